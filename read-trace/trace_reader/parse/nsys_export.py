"""An export of Nsight Systems (`nsys export --type sqlite`) as the events of a Chrome trace.

Read are the documented tables of kernels, copies, memsets, calls of the runtime and driver, NVTX ranges and devices ("SQLite
Export Schema Reference" in NVIDIA's documentation of Nsight Systems); columns that a version lacks are left out. Of NVTX ranges,
those that `torch.autograd.profiler.emit_nvtx` writes (aten::mm, op_id = 3, seq = 4, sizes = [[2, 3]]) are ops, the others
annotations.
"""

from collections.abc import Iterator
from contextlib import closing
import json
from pathlib import Path
import re
import sqlite3
from typing import Any

from trace_reader.errors import NotATraceError

RANGES = (59, 60, 70, 71)  # eventType of push-pop and start-end ranges, and of those that are written with a schema of their own
PLACES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}  # srcKind, dstKind (ENUM_CUDA_MEM_KIND)
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_VERSION = re.compile(r"_(?:v\d+|ptsz|ptds)(?=_|$)")  # cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000
_OP = re.compile(r"(?P<name>[\w.]+::[^,]+?)(?P<rest>, (?:seq|op_id|sizes|input_op_ids) = .*)?", re.DOTALL)
_SEQUENCE = re.compile(r"\bseq = (\d+)")
_SIZES = re.compile(r"\bsizes = (\[.*?\])(?:, input_op_ids\b|$)", re.DOTALL)


def as_chrome(path: str) -> bytes:
    """Return the JSON of a Chrome trace. Raises NotATraceError: a database that cannot be read, or is none of nsys'."""
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            export = _Export(database)
            if not export.tables.keys() & {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"}:
                raise NotATraceError(
                    f"{path}: a SQLite database, but no export of nsys: it has no table of kernels, calls or ranges"
                )
            events = list(export.events())
            header: dict[str, Any] = {"deviceProperties": export.devices(), "exportedBy": "nsys"}
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise NotATraceError(f"{path}: a SQLite database that cannot be read: {error}") from error
    if export.lost:
        header["damaged"] = True
    return json.dumps({**header, "traceEvents": events}, separators=(",", ":")).encode(errors="replace")


class _Export:
    def __init__(self, database: sqlite3.Connection):
        self._database = database
        database.text_factory = lambda raw: raw.decode(errors="replace")
        listed = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self.tables = {name: self._columns_of(name) for (name,) in listed}
        self.lost = 0  # rows without a time
        self._strings: dict[int, str] = dict(self._rows("StringIds", "id", "value"))
        self._first_ns = min((one for one in map(self._earliest, self.tables) if one is not None), default=0)

    def _columns_of(self, table: str) -> set[str]:
        return {row[1] for row in self._database.execute(f"PRAGMA table_info({_quoted(table)})")}

    def _rows(self, table: str, *columns: str, where: str = "") -> Iterator[tuple[Any, ...]]:
        """Rows of a table; None for a column that it lacks. Nothing where there is no such table."""
        if table in self.tables:
            asked = ", ".join(_quoted(column) if column in self.tables[table] else "NULL" for column in columns)
            yield from self._database.execute(f"SELECT {asked} FROM {_quoted(table)} {where}")

    def _earliest(self, table: str) -> int | None:
        if not table.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")) or "start" not in self.tables[table]:
            return None
        found = self._database.execute(f"SELECT min(start) FROM {_quoted(table)}").fetchone()[0]
        return found if isinstance(found, int) else None

    def events(self) -> Iterator[dict[str, Any]]:
        yield from self._kernels()
        yield from self._copies()
        for table, category in (("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_runtime"), ("CUPTI_ACTIVITY_KIND_DRIVER", "cuda_driver")):
            for start, end, thread, correlation, name in self._rows(
                table, "start", "end", "globalTid", "correlationId", "nameId"
            ):
                called = _VERSION.sub("", self._string(name) or "a call without a name")
                yield from self._slice(category, called, start, end, _thread(thread), {"correlation": correlation})
        yield from self._ranges()

    def _slice(
        self, category: str, name: str, start: Any, end: Any, lane: dict[str, Any], args: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if type(start) is not int or type(end) is not int or end < start:
            self.lost += 1
            return
        said = {key: value for key, value in args.items() if value is not None}
        times = {"ts": (start - self._first_ns) / 1000, "dur": (end - start) / 1000}
        yield {"ph": "X", "cat": category, "name": name, **lane, **times, "args": said}

    def _kernels(self) -> Iterator[dict[str, Any]]:
        sizes = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
        shared = ("staticSharedMemory", "dynamicSharedMemory")
        names = ("demangledName", "shortName", "graphNodeId")
        columns = ("start", "end", "deviceId", "streamId", "correlationId", *sizes, *shared, *names)
        for start, end, device, stream, correlation, *more in self._rows("CUPTI_ACTIVITY_KIND_KERNEL", *columns):
            sized, (static, dynamic), (long, short, node) = more[:7], more[7:9], more[9:]
            args: dict[str, Any] = {"device": device, "stream": stream, "correlation": correlation, "graph node id": node}
            if None not in sized:
                args |= {"grid": sized[:3], "block": sized[3:6], "registers per thread": sized[6]}
            if type(static) is int and type(dynamic) is int:
                args["shared memory"] = static + dynamic
            name = self._string(long) or self._string(short) or "a kernel without a name"
            yield from self._slice("kernel", name, start, end, {"pid": device, "tid": stream}, args)

    def _copies(self) -> Iterator[dict[str, Any]]:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind", "srcKind", "dstKind")
        for start, end, device, stream, correlation, size, kind, source, target in self._rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY", *columns
        ):
            places = f" ({PLACES[source]} -> {PLACES[target]})" if source in PLACES and target in PLACES else ""
            args = {"device": device, "stream": stream, "correlation": correlation, "bytes": size}
            name = f"Memcpy {COPIES.get(kind, 'of an unknown kind')}{places}"
            yield from self._slice("gpu_memcpy", name, start, end, {"pid": device, "tid": stream}, args)
        for start, end, device, stream, correlation, size in self._rows("CUPTI_ACTIVITY_KIND_MEMSET", *columns[:6]):
            args = {"device": device, "stream": stream, "correlation": correlation, "bytes": size}
            yield from self._slice("gpu_memset", "Memset (Device)", start, end, {"pid": device, "tid": stream}, args)

    def _ranges(self) -> Iterator[dict[str, Any]]:
        columns = ("start", "end", "globalTid", "text", "textId", "eventType")
        for start, end, thread, text, number, kind in self._rows("NVTX_EVENTS", *columns):
            name = text if isinstance(text, str) else self._string(number)
            if end is None or name is None or (kind is not None and kind not in RANGES):  # a mark, or a range that never ended
                continue
            if (found := _OP.fullmatch(name)) is None:
                yield from self._slice("user_annotation", name, start, end, _thread(thread), {})
                continue
            sequence, sizes = _SEQUENCE.search(found["rest"] or ""), _SIZES.search(found["rest"] or "")
            args = {"Sequence number": int(sequence[1]) if sequence else None, "Input Dims": _list(sizes[1]) if sizes else None}
            yield from self._slice("cpu_op", found["name"], start, end, _thread(thread), args)

    def devices(self) -> list[dict[str, Any]]:
        """As torch.profiler writes them into a header."""
        keys = {"id": "id", "name": "name", "smCount": "numSms", "computeMajor": "computeMajor", "computeMinor": "computeMinor",
                "totalMemory": "totalGlobalMem", "threadsPerWarp": "warpSize", "maxRegistersPerSm": "regsPerMultiprocessor",
                "maxShmemPerSm": "sharedMemPerMultiprocessor", "maxWarpsPerSm": "maxWarps"}  # fmt: skip
        found = []
        for row in self._rows("TARGET_INFO_GPU", *keys):
            device = {key: value for key, value in zip(keys.values(), row, strict=True) if value is not None}
            warps = device.pop("maxWarps", None)
            if type(warps) is int and type(device.get("warpSize")) is int:
                device["maxThreadsPerMultiprocessor"] = warps * device["warpSize"]
            found.append(device)
        return found

    def _string(self, number: Any) -> str | None:
        found = self._strings.get(number) if isinstance(number, int) else number
        return found if isinstance(found, str) else None


def _thread(number: Any) -> dict[str, Any]:
    """Return a serialized id: the process in bits 24 to 47, the thread in the lower ones."""
    return {"pid": number >> 24 & 0xFFFFFF, "tid": number & 0xFFFFFF} if isinstance(number, int) else {"pid": 0, "tid": 0}


def _list(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
