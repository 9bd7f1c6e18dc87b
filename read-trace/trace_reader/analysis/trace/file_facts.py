"""What a trace's header says: device, versions, rank, what was recorded, and how much of the file was read."""

from typing import Any

from trace_reader.link.trace import Trace

RECORDED = {"record_shapes": "shapes", "with_stack": "stacks", "with_modules": "modules", "profile_memory": "memory"}


def of_file(trace: Trace, used_properties: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a file says of itself, and how much of it was read."""
    header = trace.header
    lesson: dict[str, Any] = header["lesson"] if isinstance(header.get("lesson"), dict) else {}
    distributed: dict[str, Any] = header["distributedInfo"] if isinstance(header.get("distributedInfo"), dict) else {}
    said, merged = lesson.get("device"), header.get("mergedRanks")
    names = sorted({str(p["name"]) for p in used_properties if "name" in p})
    return {
        "trace": trace.path,
        "lesson": {str(k): str(v) for k, v in lesson.items()},
        "device": (said if not len(trace.work) and isinstance(said, str) else "") or ", ".join(names) or None,
        "device_properties": used_properties[0] if used_properties else None,
        "versions": _versions(header),
        "rank": _whole(distributed.get("rank")),
        "world_size": _whole(distributed.get("world_size")),
        "recorded_with": tuple(word for flag, word in RECORDED.items() if header.get(flag)),
        "merged_ranks": tuple(rank for rank in merged if type(rank) is int) if isinstance(merged, list) else (),
        "events": trace.total,
        "skipped": trace.skipped,
        "first_bad": trace.first_bad,
        "truncated": bool(header.get("truncated")),
    }


def device_properties(header: dict[str, Any]) -> list[dict[str, Any]]:
    listed = header.get("deviceProperties")
    return [p for p in listed if isinstance(p, dict)] if isinstance(listed, list) else []


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _versions(header: dict[str, Any]) -> dict[str, str]:
    versions = {}
    if isinstance(header.get("lesson"), dict) and "versions" in header["lesson"]:
        said = header["lesson"]["versions"]
        said = said.get("torch", "unknown") if isinstance(said, dict) else said
        versions["torch"] = str(said).split(",")[0].removeprefix("torch ")
    for key, name in (
        ("cuda_runtime_version", "CUDA runtime"),
        ("cuda_driver_version", "CUDA driver"),
        ("hip_runtime_version", "HIP runtime"),
        ("hip_driver_version", "HIP driver"),
    ):
        if isinstance(number := header.get(key), int):  # 13000 is 13.0
            versions[name] = f"{number // 1000}.{number % 1000 // 10}" if name.startswith("CUDA") else _hip_version(number)
    if isinstance(number := header.get("cupti_version"), int):
        versions["CUPTI"] = str(number)
    return versions


def _hip_version(number: int) -> str:
    """HIP counts 10^7 for the major version, 10^5 for the minor one: 60443483 is 6.4.43483."""
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}" if number >= 10**7 else str(number)
