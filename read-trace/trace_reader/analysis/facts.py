"""What a trace says, as plain numbers with the unit in each name. Unknown is None, never 0.

The report is made of these. A finding (findings/) looks at them, and at the trace itself where it needs more.
"""

from collections import Counter
from collections.abc import Callable, Sequence
import html
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.collectives import CollectiveFacts, collective_facts
from trace_reader.analysis.counter_facts import (
    CounterFacts,
    KernelCounter,
    OpCounter,
    counter_facts,
    kernel_counters,
    op_counters,
)
from trace_reader.analysis.cpu_time import CpuActivity
from trace_reader.analysis.critical_path import CriticalPath, critical_path, lone, windows
from trace_reader.analysis.gpu_idle import IdleFacts, idle_facts
from trace_reader.analysis.gpu_time import Timeline, timeline
from trace_reader.analysis.kernel_facts import FamilyFacts, GemmFacts, KernelFacts, family_facts, gemm_facts, kernel_facts
from trace_reader.analysis.memory_facts import MemoryFacts, memory_facts
from trace_reader.analysis.missing_events import missing
from trace_reader.analysis.op_facts import CallFacts, OpFacts, call_facts, op_facts
from trace_reader.analysis.op_shapes import OpShapeFacts, op_shape_facts
from trace_reader.analysis.place_facts import CpuLine, PlaceFacts, annotation_facts
from trace_reader.analysis.plain_run import PlainRun, PricedRun, plain_run
from trace_reader.analysis.server_steps import ServerSteps, server_steps
from trace_reader.analysis.step_facts import StepFacts, busy_us, step_facts, step_period_us
from trace_reader.analysis.what_if import Gain
from trace_reader.link.launches import Origin
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct, median
from trace_reader.model.slices import Kind, Track
from trace_reader.system.processes import answers_of, copies
from trace_reader.system.terminal import plain
from trace_reader.units import percent, us

UNEXPLAINED = 0.05  # of the recorded path, that may be waiting for what the trace does not show
WORTH_A_CHANGE = 0.02  # of a step
RECORDED = {"record_shapes": "shapes", "with_stack": "stacks", "with_modules": "modules", "profile_memory": "memory"}
LARGE = 1 << 17  # slices; of fewer, the facts are there before a process is copied
MOST_HANDS = 6  # the longest of the facts takes a fifth of the time of all, and copying a process 5 ms


class Evidence(msgspec.Struct, frozen=True):
    """A slice that shows a finding. `track`: (pid, tid), of a GPU's (device, stream); `start_us` from the file's first slice."""

    name: str
    track: Track
    start_us: float
    duration_us: float


class Finding(msgspec.Struct, frozen=True):
    """A pattern that the trace shows: what was seen here, what it usually means, what to look at or try next.

    `share`: how much of the critical path it explains, 0 to 1; None without a path. `evidence`: the longest of its slices.
    `gain`: what of a step without the profiler is saved by doing what it says next; None where that is not known, and `no_gain`
    says why.
    """

    slug: str
    seen: str
    means: str
    next: str
    share: float | None
    evidence: tuple[Evidence, ...]
    gain: Gain | None = None
    no_gain: str | None = None

    @property
    def is_worthless(self) -> bool:
        """Whether it is known that what it says next saves next to nothing."""
        return self.gain is not None and self.gain.high < WORTH_A_CHANGE


class Facts(msgspec.Struct, frozen=True):
    """Everything that the reader tells of one trace. Times in microseconds, shares and ratios of 1."""

    trace: str  # its path
    lesson: dict[str, str]  # what a lesson wrote into the header: script, run, versions ...
    device: str | None
    device_properties: dict[str, Any] | None  # of the first device used, as the header has them
    versions: dict[str, str]
    rank: int | None  # of a job with several processes, and how many they are
    world_size: int | None
    recorded_with: tuple[str, ...]  # what the profiler was asked for besides: shapes, stacks, modules, memory
    merged_ranks: tuple[int, ...]  # of a file that --merge wrote
    events: int  # found in the file, of all kinds
    skipped: dict[str, int]  # of these, not used, by reason
    first_bad: str | None  # where and why the first event could not be read
    truncated: bool
    window_us: float  # from the first step (without steps: the first GPU event) to the last end
    lone_events: int  # without steps: those that are few, far from all others, and left out of the window
    gpu_busy_us: float | None  # union of the work of each device, summed over devices
    gpu_busy_share: float | None  # of the window, of all devices used
    gpu_to_cpu: float | None  # median over the steps of GPU busy time over the CPU time that it did not wait
    verdict: str  # VERDICTS of the critical path, `mixed`, or cpu-only
    recorded_verdict: str  # the same of the recorded run, which the profiler may have made another one
    critical_path: CriticalPath | None  # of the device that ends last; of the run without the profiler, where that is known
    critical_paths: tuple[CriticalPath, ...]  # of each device
    recorded_critical_path: CriticalPath | None
    timeline: Timeline | None  # of that device, in the window of its path; as the next
    idle: IdleFacts | None
    missing: tuple[str, ...]  # what the trace does not hold, in words
    kernels_total: int
    memcpys_total: int
    memsets_total: int
    unlinked: int  # of these, whose launch is not in the trace
    gpu_time_by_origin_us: dict[str, float]  # by Origin; summed durations
    gpu_events_by_origin: dict[str, int]
    zero_timestamps: int  # kernels with a start or a duration of 0
    steps: tuple[StepFacts, ...]
    server_steps: tuple[ServerSteps, ...]  # of an inference server: prefill and decode apart
    step_period_us: float | None  # from one step's end to the next one's, on average
    plain: PlainRun  # the run without the profiler
    kernels: tuple[KernelFacts, ...]
    families: tuple[FamilyFacts, ...]
    gemms: tuple[GemmFacts, ...]
    ops: tuple[OpFacts, ...]
    op_shapes: tuple[OpShapeFacts, ...]
    calls: tuple[CallFacts, ...]
    annotations: tuple[PlaceFacts, ...]
    collectives: tuple[CollectiveFacts, ...]
    memory: tuple[MemoryFacts, ...]
    counters: tuple[CounterFacts, ...]
    kernel_counters: tuple[KernelCounter, ...]
    op_counters: tuple[OpCounter, ...]
    findings: tuple[Finding, ...] = ()
    cpu_lines: tuple[CpuLine, ...] = ()  # where the CPU limits the run and stacks were recorded: the lines that it is in
    failed: tuple[str, ...] = ()  # findings whose rule failed, each as one line

    @property
    def regime(self) -> str:
        """The verdict by its name until version 0.2; goes with 0.4."""
        return self.verdict

    @property
    def has_gpu_work(self) -> bool:
        """Whether the trace holds a kernel, copy or memset: of a program without a GPU, or a file that is cut off, it may not."""
        return self.gpu_busy_us is not None

    @property
    def middle_step(self) -> StepFacts | None:
        """The recorded step in the middle: past the cold ones."""
        return self.steps[len(self.steps) // 2] if self.steps else None

    def __repr__(self) -> str:
        """A few lines: what `_summary` says."""
        return "\n".join([f"Facts of {plain(self.trace)}", *(f"  {what}: {value}" for what, value in self._summary())])

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        rows = "".join(f"<tr><th>{what}</th><td>{html.escape(value)}</td></tr>" for what, value in self._summary())
        return f"<table><caption>{html.escape(self.trace)}</caption>{rows}</table>"

    def _summary(self) -> list[tuple[str, str]]:
        busy = "" if self.gpu_busy_share is None else f", GPU busy {percent(self.gpu_busy_share)}"
        cpu = f", CPU {us(median(np.array([s.cpu_us for s in self.steps])))} each (median)" if self.steps else ""
        top = [f"{plain(k.decoded.label, 40)} {percent(k.share)}" for k in self.kernels[:3]]
        more = f" and {len(self.kernels) - len(top)} more" if len(self.kernels) > len(top) else ""
        return [
            ("device", plain(self.device or "unknown", 100)),
            ("verdict", self.verdict),
            ("window", us(self.window_us) + busy),
            ("steps", f"{len(self.steps)}{cpu}"),
            ("kernels", (", ".join(top) or "none") + more),
            ("findings", ", ".join(found.slug for found in self.findings) or "none"),
        ]

    @property
    def compute_kernels(self) -> list[KernelFacts]:
        """Kernels without copies and memsets."""
        return [k for k in self.kernels if k.kind == Kind.KERNEL]


def summarize(trace: Trace, run: PricedRun | None) -> Facts:
    """The facts of a trace, still without findings. `run`: the trace's, to be played again, if it can be."""
    work = trace.work
    properties = _device_properties(trace.header)
    used = {trace.slices.tracks[track][0] for track in distinct(work.track).values.tolist()}
    device_properties = {p["id"]: p for p in properties if isinstance(p.get("id"), int)}
    used_properties = [p for number, p in device_properties.items() if number in used] or properties
    window_us, gpu_busy, lone_events = _window(trace)
    used_name = str((used_properties or [{}])[0].get("name", ""))
    cpu, asked, period_us = CpuActivity(trace), windows(trace), step_period_us(trace)
    on_gpu = len(asked) > 0 and len(work) > 0
    # What takes the longest stands first, as processes that share them want it.
    parts = _worked_out(
        trace,
        recorded_paths=lambda: tuple(critical_path(trace, cpu, window) for window in asked),
        known=lambda: plain_run(trace, run, period_us, cpu, asked[0] if len(asked) == 1 else None),
        idle=lambda: idle_facts(trace, cpu, asked[0].device, asked[0].start_ns, asked[0].end_ns) if on_gpu else None,
        ops=lambda: op_facts(trace),
        kernels=lambda: kernel_facts(trace, device_properties),
        memory=lambda: memory_facts(trace) if len(trace.memory) else (),
        counters=lambda: counter_facts(trace),
        kernel_counters=lambda: kernel_counters(trace),
        op_counters=lambda: op_counters(trace, used_name),
        steps=lambda: step_facts(trace),
        missing=lambda: missing(trace),
        annotations=lambda: annotation_facts(trace),
        timeline=lambda: timeline(trace, asked[0].device, asked[0].start_ns, asked[0].end_ns) if on_gpu else None,
        calls=lambda: call_facts(trace),
        server_steps=lambda: server_steps(trace),
        op_shapes=lambda: op_shape_facts(trace, used_name),
        gemms=lambda: gemm_facts(trace, device_properties),
        collectives=lambda: collective_facts(trace),
    )
    recorded_paths, known = parts.pop("recorded_paths"), parts.pop("known")
    recorded = recorded_paths[0] if asked else None
    # What the trace does not show in the recorded run, a replay of it does not explain either.
    explained = recorded is not None and recorded.unknown_us <= UNEXPLAINED * recorded.window_us
    paths = (known.path,) if known.path is not None and explained else recorded_paths
    return Facts(
        **_of_file(trace, used_properties),
        **parts,
        window_us=window_us,
        lone_events=lone_events,
        gpu_busy_us=gpu_busy,
        gpu_busy_share=None if gpu_busy is None or window_us <= 0 else gpu_busy / window_us / len(used),
        gpu_to_cpu=_gpu_to_cpu(parts["steps"]),
        verdict=_verdict(paths, parts["missing"], len(work) > 0),
        recorded_verdict=_verdict(recorded_paths, parts["missing"], len(work) > 0),
        critical_path=paths[0] if paths else None,
        critical_paths=paths,
        recorded_critical_path=recorded,
        plain=known.run,
        **_of_work(work),
        zero_timestamps=trace.zero_timestamps,
        step_period_us=period_us,
        families=family_facts(parts["kernels"]),
    )


def _of_work(work: Rows) -> dict[str, Any]:
    """How many GPU events there are of each kind, and from where they were launched."""
    kinds, origins = Counter(work.kind.tolist()), Counter(work.origin.tolist())
    return {
        "kernels_total": kinds[Kind.KERNEL],
        "memcpys_total": kinds[Kind.MEMCPY],
        "memsets_total": kinds[Kind.MEMSET],
        "unlinked": origins[Origin.CARRIED_OVER] + origins[Origin.UNKNOWN],
        "gpu_time_by_origin_us": {origin.word: work.where(work.origin == origin).total_us for origin in Origin},
        "gpu_events_by_origin": {origin.word: origins[origin] for origin in Origin},
    }


def _gpu_to_cpu(steps: Sequence[StepFacts]) -> float | None:
    ratios = [step.gpu_to_cpu for step in steps if step.gpu_to_cpu is not None]
    return median(np.array(ratios)) if ratios else None


def _worked_out(trace: Trace, **parts: Callable[[], Any]) -> dict[str, Any]:
    """The facts of these names; of a large trace, on all cores."""
    return dict(zip(parts, answers_of(list(parts.values()), hands(trace)), strict=True))


def hands(trace: Trace) -> int:
    """How many processes work on a trace beside each other."""
    return min(copies(), MOST_HANDS) if len(trace.slices) >= LARGE else 1


def _of_file(trace: Trace, used_properties: list[dict[str, Any]]) -> dict[str, Any]:
    """What a file says of itself, and how much of it was read."""
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


def _device_properties(header: dict[str, Any]) -> list[dict[str, Any]]:
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


def _window(trace: Trace) -> tuple[float, float | None, int]:
    """From the first step's start to the end of the last step or GPU event, the GPU's busy time in it, and how many events are
    left out because they are far from the others.
    """
    work, left_out = trace.work, 0
    if len(trace.steps):
        start_ns, ends = trace.steps.start_ns[0], [trace.steps.end_ns, work.end_ns]
    else:
        events = work if len(work) else Rows(trace.slices, np.arange(len(trace.slices)))
        is_lone = lone(events)
        events, left_out = events.where(~is_lone), int(is_lone.sum())
        start_ns, ends = events.start_ns[0], [events.end_ns]
    end_ns = max(int(end.max()) for end in ends if len(end))
    busy = busy_us(work, int(start_ns), end_ns) if len(work) else None
    return (end_ns - int(start_ns)) / 1000, busy, left_out


def _verdict(paths: Sequence[CriticalPath], lost: tuple[str, ...], has_gpu_work: bool) -> str:
    """The verdict: what the path says, unless what the trace does not hold could change it."""
    if lost:
        return "unknown"
    if not has_gpu_work:
        return "cpu-only"
    return paths[0].verdict if paths else "unknown"
