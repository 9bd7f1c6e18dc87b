"""The traces of a job's ranks in one file for Perfetto: clocks aligned, and lanes, ids and devices of their own for each rank."""

from collections import Counter, defaultdict
from collections.abc import Sequence
import io
import json
from pathlib import Path
from typing import Any

import msgspec
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.analysis.jobs.rank_summary import RankSummary, Union
from trace_reader.commands.read_job import expanded, read_job
from trace_reader.errors import NotATraceError, TraceError
from trace_reader.parse.byte_source import read_bytes
from trace_reader.parse.event_types import GPU_COUNTERS
from trace_reader.system.files import gzipped, write_file
from trace_reader.units import count, human_bytes

FIRST_PROCESS = 100_000  # below it, processes are devices
ID_BITS, SEQUENCE_BITS, ADDRESS_BITS = 33, 30, 48  # of a rank's own numbers; the rank's place stands above them
IDS = ("correlation", "External id", "Python id", "Python parent id", "Python module id")
PROCESS_LABELS = ("process_name", "process_labels", "process_sort_index")
CALLS = ("cuda_runtime", "cuda_driver", "runtime", "driver")
PART = 1000  # events that are written at once


def run(paths: Sequence[str], target: Path, scheduler: str | None = None) -> str:
    """Write one trace of all ranks into `target` (.json, or .json.gz); says what was written. Raises TraceError,
    NotWrittenError."""
    paths = expanded(paths)
    if len(paths) < 2:
        raise TraceError(f"{paths[0]}: one trace; merge takes the ranks of a job")
    job, errors = read_job(paths, scheduler=scheduler)
    if errors:
        raise errors[0]
    data = merged(job)
    data = gzipped(data) if target.suffix == ".gz" else data
    write_file(target, data)
    loose = sum(offset is None for offset in job.offset_ns)
    clocks = f"; the clocks of {loose} could not be aligned" if loose else ", clocks aligned"
    return f"wrote {target} ({human_bytes(len(data))}): {count(len(job.ranks), 'rank')}{clocks}; open it in https://ui.perfetto.dev\n"


def merged(job: JobFacts) -> bytes:
    """Return the bytes of one Chrome trace with the events of all ranks. Times are those of the first rank's clock."""
    out = io.BytesIO()
    header: dict[str, Any] = {}
    properties: list[Any] = []
    devices: dict[tuple[int, Any], int] = {}
    processes: dict[tuple[int, Any], int] = {}
    first = job.summaries[0]
    ranks = msgspec.json.encode([summary.rank for summary in job.summaries])
    opening = b'{"mergedRanks":' + ranks + b',"traceEvents":[\n'  # first, so that the file is known without reading all of it
    out.write(opening)
    separator = b""
    for place, (summary, offset_ns) in enumerate(zip(job.summaries, job.offset_ns, strict=True)):
        trace = _decoded(summary.trace)
        header = header or {key: value for key, value in trace.items() if key not in ("traceEvents", "deviceProperties")}
        rank = _Rank(place, summary, _later_ns(first, summary, offset_ns), devices, processes)
        # Labels last: which numbers are devices is known from the events.
        listed = sorted((event for event in trace["traceEvents"] if isinstance(event, dict)), key=_is_label)
        events = list(map(rank.event, listed))
        kept = [event for event in events if event.get("ph") != "M" or rank.has_lane(event)]
        kept += [*_queue_depths(events), *rank.waits(events, job.waits_ns[place])]
        for start in range(0, len(kept), PART):
            encoded = b",\n".join(map(msgspec.json.encode, kept[start : start + PART]))
            out.write(separator + encoded)
            separator = b",\n"
        properties += rank.properties(trace.get("deviceProperties"))
    header |= {"deviceProperties": properties, "traceName": "merged"}
    for of_one in ("distributedInfo", "trace_id", "host_name", "mergedRanks"):
        header.pop(of_one, None)
    out.write(b"\n],")
    out.write(msgspec.json.encode(header)[1:] + b"\n")
    return out.getvalue()


def _is_label(event: dict[str, Any]) -> bool:
    return event.get("ph") == "M"


def _later_ns(first: RankSummary, summary: RankSummary, offset_ns: int | None) -> int:
    """Return what is added to a rank's times in its file to make them the first's; where nothing ties them, by the machines'
    clocks.
    """
    if offset_ns is None:
        return summary.base_ns - first.base_ns
    return offset_ns + first.zero_ns - summary.zero_ns


def _decoded(path: str) -> dict[str, Any]:
    try:
        trace = msgspec.json.decode(read_bytes(path).data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: it can be read, but is not whole, and cannot be merged: {error}") from error
    trace = {"traceEvents": trace} if isinstance(trace, list) else trace
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise NotATraceError(f"{path}: no trace: there is no list traceEvents in it")
    return trace


def _queue_depths(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counters: how many of each stream's events are launched and not done, at each moment at which that changes."""
    launched_us = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in CALLS and _is_timed(event) and type(event.get("args", {}).get("correlation")) is int
    }
    changes: dict[tuple[Any, Any], Counter[float]] = defaultdict(Counter)
    for event in events:
        args = event.get("args", {})
        if _is_timed(event) and "stream" in args and args.get("correlation") in launched_us:
            of_stream = changes[event.get("pid"), _hashable(args["stream"])]
            of_stream[min(launched_us[args["correlation"]], event["ts"])] += 1
            of_stream[event["ts"] + event["dur"]] -= 1
    found = []
    for (pid, stream), of_stream in changes.items():
        depth = 0
        for moment_us, change in sorted(of_stream.items()):
            depth += change
            name = f"launched and not done, stream {stream}"
            found.append({"ph": "C", "name": name, "pid": pid, "ts": moment_us, "args": {"events": depth}})
    return found


def _is_timed(event: dict[str, Any]) -> bool:
    return all(type(event.get(name)) in (int, float) for name in ("ts", "dur"))


class _Rank:
    """One rank's events, with numbers of their own: `place` is the rank's among those that are merged."""

    def __init__(
        self,
        place: int,
        summary: RankSummary,
        later_ns: int,
        devices: dict[tuple[int, Any], int],
        processes: dict[tuple[int, Any], int],
    ):
        self._place, self._own, self._later_ns, self._devices, self._processes = place, summary, later_ns, devices, processes
        self._large: dict[int, int] = {}
        self._lanes: set[Any] = set()

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        event = dict(event)
        args = event["args"] = dict(event["args"]) if isinstance(event.get("args"), dict) else {}
        on_gpu = "stream" in args or str(event.get("cat", "")).startswith(("gpu_", "kernel"))
        meta = event.get("ph") == "M"
        if "pid" in event:
            event["pid"] = self._process(event["pid"], on_gpu, meta)
            if not meta:
                self._lanes.add(event["pid"])
        if isinstance(event.get("ts"), int | float):
            event["ts"] = (round(event["ts"] * 1000) + self._later_ns) / 1000
        if on_gpu and "device" in args:
            args["device"] = self._device(args["device"])
        for name in IDS:
            if type(args.get(name)) is int:
                args[name] = self._number(args[name])
        if type(args.get("Sequence number")) is int and 0 <= args["Sequence number"] < 1 << SEQUENCE_BITS:
            args["Sequence number"] += self._place << SEQUENCE_BITS
        if type(args.get("Addr")) is int and 0 <= args["Addr"] < 1 << ADDRESS_BITS:
            args["Addr"] += self._place << ADDRESS_BITS
        if type(args.get("Device Id")) is int:
            on_device = args.get("Device Type") not in (None, 0)
            args["Device Id"] = self._device(args["Device Id"]) if on_device else self._place
        if "id" in event:
            event["id"] = self._number(event["id"]) if type(event["id"]) is int else f"{self._own.rank}-{event['id']}"
        if meta and event.get("name") in PROCESS_LABELS and event["name"] != "process_sort_index":
            for name in ("name", "labels"):
                if name in args:
                    args[name] = f"rank {self._own.rank}: {args[name]}"
        if not args:
            del event["args"]
        return event

    def waits(self, events: list[dict[str, Any]], union_ns: Union) -> list[dict[str, Any]]:
        """Return a counter: while this rank waits in a collective for another one, how long it does, in us."""
        pid = next((event["pid"] for event in events if "stream" in event.get("args", {}) and "pid" in event), None)
        first_us = (self._own.zero_ns + self._later_ns) / 1000
        found = []
        for start_ns, end_ns in zip(*(side.tolist() for side in union_ns), strict=True):
            for moment_ns, waited_ns in ((start_ns, end_ns - start_ns), (end_ns, 0)):
                wait = {"us": waited_ns / 1000}
                name = "waits for another rank (us)"
                found.append({"ph": "C", "name": name, "pid": pid, "ts": first_us + moment_ns / 1000, "args": wait})
        return found if pid is not None else []

    def has_lane(self, event: dict[str, Any]) -> bool:
        """Return whether a label is of a process that has events: the profiler names all devices of the machine."""
        return _hashable(event.get("pid")) in self._lanes

    def properties(self, listed: Any) -> list[dict[str, Any]]:
        """Return those of the devices that this rank used, under their new numbers."""
        if not isinstance(listed, list):
            return []
        known = [(self._devices.get((self._place, _hashable(one.get("id")))), one) for one in listed if isinstance(one, dict)]
        return [{**one, "id": number} for number, one in known if number is not None]

    def _process(self, pid: Any, on_gpu: bool, meta: bool) -> int | str:
        pid = _hashable(pid)
        if isinstance(pid, str) and (counters := GPU_COUNTERS.fullmatch(pid)):
            return f"GPU {self._device(int(counters[1]))} Counters"
        if (self._place, pid) in self._devices and (on_gpu or meta):
            return self._devices[self._place, pid]
        if on_gpu:
            return self._device(pid)
        return self._processes.setdefault((self._place, pid), FIRST_PROCESS + len(self._processes))

    def _device(self, device: Any) -> int:
        return self._devices.setdefault((self._place, _hashable(device)), len(self._devices))

    def _number(self, number: int) -> int:
        """Return an id that no other rank has; -1 is none."""
        if number < 0:
            return number
        if number >= 1 << (ID_BITS - 1):
            number = (1 << (ID_BITS - 1)) + self._large.setdefault(number, len(self._large))
        return number + (self._place << ID_BITS)


def _hashable(number: Any) -> Any:
    """Return a process or device as a trace writes it: a list or an object, which no profiler writes, as its text."""
    return json.dumps(number) if isinstance(number, list | dict) else number
