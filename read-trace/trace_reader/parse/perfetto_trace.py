"""A trace in Perfetto's own format (`.pftrace`), as torch.profiler writes it from 2.15 on, as the events of a Chrome trace.

The messages are those of Perfetto's package (extra `perfetto`): slices of threads (TrackEvent), the work of GPUs
(GpuRenderStageEvent, a lane for each stream), hardware counters (GpuCounterEvent), and the tables of names that these refer to.
What torch leaves out of this format, a report lacks: the devices' names and limits, a kernel's static shared memory, where a copy
comes from and goes to.
"""

from collections.abc import Iterator
import json
import re
from typing import Any

from trace_reader.errors import MissingExtraError, NotATraceError
from trace_reader.units import count

STAGES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Annotation": "gpu_user_annotation"}
FIRST_ARROW = 1 << 40  # the number that torch gives the first arrow of a graph in a Chrome trace
CLEARED = 1  # of sequence_flags: what was named before is forgotten
_PACKET = 0x0A  # field 1 of Trace, as bytes
_STREAM = re.compile(r"(?:\[\d+\] )?stream (\d+)")


def as_chrome(data: bytes, path: str) -> tuple[bytes, str]:
    """Return the JSON of a Chrome trace, and what of it could not be read, in words. Raises NotATraceError, MissingExtraError."""
    try:
        from google.protobuf.message import DecodeError
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket
    except ImportError as error:
        raise MissingExtraError("a trace in Perfetto's format needs its messages: install read-trace[perfetto]") from error
    trace, damage = _Trace(), ""
    lost = 0
    for packet, rest in _packets(data):
        if packet is None:
            damage = f"cut off, or no Perfetto trace, from byte {rest} on"
            break
        try:
            trace.take(TracePacket.FromString(packet))
        except DecodeError:
            lost += 1
    if lost:
        damage = "; ".join(filter(None, [f"{count(lost, 'packet')} cannot be read", damage]))
    if not trace.packets:
        raise NotATraceError(f"{path}: a trace in Perfetto's format, of which no packet can be read")
    return json.dumps(trace.chrome(), separators=(",", ":")).encode(errors="replace"), damage


def _packets(data: bytes) -> Iterator[tuple[bytes | None, int]]:
    """Yield the packets, each with the place behind it; None for what is none, with its place."""
    view, position = memoryview(data), 0
    while position < len(data):
        if data[position] != _PACKET:
            yield None, position
            return
        size, start = 0, position + 1
        for shift in range(0, 64, 7):
            if start >= len(data):
                yield None, position
                return
            size |= (data[start] & 0x7F) << shift
            start += 1
            if data[start - 1] < 0x80:
                break
        if start + size > len(data):
            yield None, position
            return
        position = start + size
        yield bytes(view[start:position]), position


class _Names:
    """What the packets of one sequence have named by numbers."""

    def __init__(self) -> None:
        self.events: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.annotations: dict[int, str] = {}
        self.strings: dict[int, str] = {}
        self.specifications: dict[int, str] = {}
        self.counters: dict[int, tuple[int, dict[int, str]]] = {}  # by the number of a descriptor: the device, and its names

    def take(self, interned: Any) -> None:
        for event, names in (
            (self.events, interned.event_names),
            (self.categories, interned.event_categories),
            (self.annotations, interned.debug_annotation_names),
            (self.specifications, interned.gpu_specifications),
        ):
            event.update((entry.iid, _text(entry.name)) for entry in names)
        for described in interned.gpu_counter_descriptors:
            self.counters[described.iid] = described.gpu_id, _counter_names(described.counter_descriptor)
        self.strings.update((entry.iid, entry.str.decode(errors="replace")) for entry in interned.debug_annotation_string_values)


class _Trace:
    def __init__(self) -> None:
        self.packets = 0
        self._names: dict[int, _Names] = {}
        self._tracks: dict[int, dict[str, Any]] = {}  # by uuid: pid, tid
        self._labels: list[dict[str, Any]] = []
        self._begun: list[tuple[int, int, dict[str, Any]]] = []  # track, ns, event
        self._ended: list[tuple[int, int]] = []
        self._done: list[dict[str, Any]] = []
        self._gpu: list[dict[str, Any]] = []  # with times in ns
        self._by_number: dict[int, dict[str, Any]] = {}  # the GPU's work, by what a graph's other nodes call it
        self._waits: list[tuple[dict[str, Any], int]] = []  # a node of a graph, and the number of one that it waits for
        self._samples: list[dict[str, Any]] = []
        self._base_ns: int | None = None

    def take(self, packet: Any) -> None:
        self.packets += 1
        names = self._names.setdefault(packet.trusted_packet_sequence_id, _Names())
        if packet.sequence_flags & CLEARED:
            names.__init__()  # type: ignore[misc]
        if packet.HasField("interned_data"):
            names.take(packet.interned_data)
        if packet.HasField("clock_snapshot") and self._base_ns is None and packet.clock_snapshot.clocks:
            self._base_ns = packet.clock_snapshot.clocks[0].timestamp
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)
        elif packet.HasField("track_event"):
            self._slice(packet.timestamp, packet.track_event, names)
        elif packet.HasField("gpu_render_stage_event"):
            # The packets of the GPU's work need not name their sequence: torch writes one.
            self._stage(packet.timestamp, packet.gpu_render_stage_event, names if names.specifications else self._only_names())

        elif packet.HasField("gpu_counter_event"):
            self._sample(packet.timestamp, packet.gpu_counter_event, names)

    def _only_names(self) -> _Names:
        return next((name for name in self._names.values() if name.specifications), _Names())

    def _describe(self, track: Any) -> None:
        if track.HasField("thread"):
            lane = {"pid": track.thread.pid, "tid": track.thread.tid}
            self._tracks[track.uuid] = lane
            if track.thread.thread_name:
                label = {"name": _text(track.thread.thread_name)}
                self._labels.append({"ph": "M", "name": "thread_name", **lane, "args": label})
        elif track.HasField("process"):
            self._tracks.setdefault(track.uuid, {"pid": track.process.pid, "tid": track.process.pid})

    def _slice(self, moment_ns: int, event: Any, names: _Names) -> None:
        if event.type == event.TYPE_SLICE_END:
            self._ended.append((event.track_uuid, moment_ns))
        elif event.type == event.TYPE_SLICE_BEGIN:
            if self._ended:
                self._close()
            categories = [names.categories.get(iid, "") for iid in event.category_iids] or list(map(_text, event.categories))
            args = {_key(annotation, names): _value(annotation, names) for annotation in event.debug_annotations}
            name = _text(event.name) or names.events.get(event.name_iid, "")
            slice = {"ph": "X", "cat": categories[0] if categories else "", "name": name, "args": args}
            self._begun.append((event.track_uuid, moment_ns, slice))

    def _close(self) -> None:
        """Pair what has begun with what has ended. Torch writes the begins of many slices, then their ends in the same order;
        where the packets are in the order of time, what began last on a track ends first.
        """
        begun, ended = self._begun, self._ended
        ends_ns = [one[1] for one in ended]
        in_time = bool(begun and ended) and max(one[1] for one in begun) <= ends_ns[0] and ends_ns == sorted(ends_ns)
        in_pairs = len(begun) == len(ended) and all(a[0] == b[0] and a[1] <= b[1] for a, b in zip(begun, ended, strict=True))
        if in_pairs and not in_time:
            pairs, self._begun = list(zip(begun, ends_ns, strict=True)), []
        else:
            pairs, self._begun = _by_stack(begun, ended)
        self._ended = []
        for (track, start_ns, event), end_ns in pairs:
            lane = self._tracks.get(track, {"pid": 0, "tid": track})
            self._done.append({**event, **lane, "ts": start_ns, "dur": end_ns - start_ns})

    def _stage(self, moment_ns: int, event: Any, names: _Names) -> None:
        said = {_text(one.name): _text(one.value) for one in event.extra_data}
        lane = names.specifications.get(event.hw_queue_iid, "")
        found = _STREAM.fullmatch(lane)
        stream: int | str | None = _whole(said.get("stream id"))
        if stream is None:
            stream = int(found[1]) if found else lane
        stage = names.specifications.get(event.stage_iid, "")
        args: dict[str, Any] = {"device": event.gpu_id, "stream": stream}
        for key, one in (("correlation", "correlation"), ("bytes", "bytes"), ("graph node id", "graph node id")):
            if (number := _whole(said.get(key))) is not None:
                args[one] = number
        known = {"device id", "context id", "stream id", "process_id", "process_name", "arch", "priority", "queued", "channel",
                 "channel_type", "graph id", "value", "memory kind", *args}  # fmt: skip
        args |= {key: value for key, value in said.items() if key not in known}
        if event.HasField("launch"):
            sizes = event.launch.grid_size, event.launch.workgroup_size
            args |= {name: [size.x, size.y, size.z] for name, size in zip(("grid", "block"), sizes, strict=True)}
            numbers = {one.name_iid: one.uint_value for one in event.launch.args}
            args |= {"registers per thread": numbers.get(1, 0), "shared memory": numbers.get(2, 0)}
        name = _text(event.name) or names.events.get(event.name_iid) or stage
        work = {"ph": "X", "cat": STAGES.get(stage, "graph node"), "name": name, "pid": event.gpu_id, "tid": stream,
                "ts": moment_ns, "dur": event.duration, "args": args}  # fmt: skip
        self._gpu.append(work)
        self._by_number[event.event_id] = work
        self._waits += [(work, number) for number in event.event_wait_ids]

    def _sample(self, moment_ns: int, event: Any, names: _Names) -> None:
        """As torch writes it into a Chrome trace: one event for each value."""
        device, said = names.counters.get(event.counter_descriptor_iid, (event.gpu_id, {}))
        for counter in event.counters:
            value = getattr(counter, counter.WhichOneof("value") or "int_value")
            name = said.get(counter.counter_id, f"counter {counter.counter_id}")
            self._samples.append({"ph": "C", "name": name, "pid": f"GPU {device} Counters", "ts": moment_ns, "args": {"": value}})

    def chrome(self) -> dict[str, Any]:
        if self._ended or self._begun:
            self._close()
        events = self._done + self._gpu
        first_ns = min((event["ts"] for event in events), default=0)
        base_ns = self._base_ns if self._base_ns is not None and self._base_ns <= first_ns else first_ns
        arrows = self._arrows()
        for event in events:
            event["ts"], event["dur"] = (event["ts"] - base_ns) / 1000, event["dur"] / 1000
        for sample in self._samples + arrows:
            sample["ts"] = (sample["ts"] - base_ns) / 1000
        header: dict[str, Any] = {"baseTimeNanoseconds": base_ns, "exportedBy": "perfetto"}
        if self._begun:
            header["unfinished"] = len(self._begun)
        return {**header, "traceEvents": self._labels + events + self._samples + arrows}

    def _arrows(self) -> list[dict[str, Any]]:
        """As torch writes them into a Chrome trace, with times in ns: from the end of one node to the start of the other."""
        arrows = []
        for number, (work, before) in enumerate(self._waits, FIRST_ARROW):
            if (other := self._by_number.get(before)) is not None:
                head = {"cat": "ac2g", "name": "ac2g", "id": number}
                arrows.append({**head, "ph": "s", "pid": other["pid"], "tid": other["tid"], "ts": other["ts"] + other["dur"]})
                arrows.append({**head, "ph": "f", "pid": work["pid"], "tid": work["tid"], "ts": work["ts"], "bp": "e"})
        return arrows


def _by_stack(
    begun: list[tuple[int, int, dict[str, Any]]], ended: list[tuple[int, int]]
) -> tuple[list[tuple[tuple[int, int, dict[str, Any]], int]], list[tuple[int, int, dict[str, Any]]]]:
    """Pairs of a slice and its end, and the slices that are still open."""
    moments = sorted(
        [(one[1], 1, number) for number, one in enumerate(begun)] + [(ns, 0, -1 - n) for n, (_, ns) in enumerate(ended)]
    )
    is_open: dict[int, list[tuple[int, int, dict[str, Any]]]] = {}
    pairs = []
    for moment_ns, is_begin, number in moments:
        if is_begin:
            is_open.setdefault(begun[number][0], []).append(begun[number])
        elif stack := is_open.get(ended[-1 - number][0]):
            pairs.append((stack.pop(), moment_ns))
    return pairs, [one for stack in is_open.values() for one in stack]


def _counter_names(descriptor: Any) -> dict[int, str]:
    return {spec.counter_id: _text(spec.name) for spec in descriptor.specs}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None


def _text(value: str | bytes) -> str:
    """Return a string, also one that is not UTF-8, which the messages give as bytes."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _key(item: Any, names: _Names) -> str:
    return _text(item.name) or names.annotations.get(item.name_iid, "")


def _value(item: Any, names: _Names) -> Any:
    """Return the value of a debug annotation, which may hold others."""
    if item.dict_entries:
        return {_key(entry, names): _value(entry, names) for entry in item.dict_entries}
    if item.array_values:
        return [_value(entry, names) for entry in item.array_values]
    which = item.WhichOneof("value")
    if which is None:
        return []
    if which == "string_value_iid":
        return names.strings.get(item.string_value_iid, "")
    value = getattr(item, which)
    return _text(value) if isinstance(value, str | bytes) else value if isinstance(value, bool | int | float) else None
