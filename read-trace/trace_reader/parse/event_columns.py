"""Events to columns: what is used of them is kept, a piece of the file at a time, and the rest is counted."""

from array import array
from collections import Counter
from collections.abc import Iterable
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.model.rows import distinct, median
from trace_reader.model.slices import (
    NO_CORRELATION,
    NO_NODE,
    ON_GPU,
    Counters,
    Kind,
    Memory,
    Slices,
    Track,
)
from trace_reader.names.demangle import demangled
from trace_reader.names.function_names import begins_recording, without_line
from trace_reader.names.range_names import is_step, is_torchs_range, may_be_a_range
from trace_reader.parse.details import collective_key, detail_of, hashable, integer, integers, region_key
from trace_reader.parse.event_types import (
    GPU_COUNTERS,
    KINDS,
    NO_ARGS,
    NULL,
    PHASES,
    SKIPPED,
    AnyEvent,
    Args,
    Arrow,
    CounterEvent,
    EpochArrow,
    EpochCounterEvent,
    EpochInstant,
    EpochSliceEvent,
    Instant,
    MemoryArgs,
    Metadata,
    Name,
    SliceEvent,
    is_of_unknown_device,
)

LARGEST_VALUE = 1e18  # of a counter; a larger one is none
LARGEST_BYTES = 2**50  # of a block of memory; larger numbers are none, and a sum of many has to fit into 64 bits
NULL_VALUES = b"[]"
# Ops whose numbers are kept, since they tell one call from another: the positions of what a loop is at.
BY_NUMBERS = tuple(f"aten::{name}" for name in ("arange", "lt", "le", "gt", "ge", "eq", "ne"))
TIMES_AS_LONG, LEAST_LONG_NS = 100, 10**10  # than the time in which nearly all slices begin, and ten seconds: no slice is
LOST_TIME_NS = 10**9  # a GPU event at 0, this long before all others, has lost its time
LONGEST_US = 3e15  # a time or duration beyond is none: in nanoseconds, a start and a duration fit into 64 bits
_XLAS_DEVICE = re.compile(r"/device:\w+:\d|/host:CPU$")  # as XLA's profiler calls a process
_DECODE_ARGS = msgspec.json.Decoder(Args)
_DECODE_NAME = msgspec.json.Decoder(Name)
_DECODE_MEMORY = msgspec.json.Decoder(MemoryArgs)
_DECODE_VALUES = msgspec.json.Decoder(dict[str, Any])
_PYTHON, _OTHER = 254, 255  # codes of categories that are not used
_IS_ON_GPU = np.array([code in ON_GPU for code in range(256)])


class _Numbers(dict):
    """Numbers its keys, from 0 on, as they are asked for."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class _Codes(dict):
    """The code of each category as it is written; `python` is that of the functions of Python."""

    def __init__(self, python: int):
        super().__init__(KINDS)
        self.python = python

    def __missing__(self, category: str | None) -> int:
        unused = self.python if category == "python_function" else _OTHER
        code = self[category] = KINDS.get((category or "").lower(), unused)
        return code


class EventColumns:
    """The columns that are filled. `skipped` counts the events that are not used, by the reason."""

    def __init__(self, epoch: bool, stacks: bool):
        """`epoch`: times count since 1970, and have more digits than a float; `stacks`: keep the functions of Python."""
        self.slice_type: Any = EpochSliceEvent if epoch else SliceEvent
        self.instant_type: Any = EpochInstant if epoch else Instant
        self.counter_type: Any = EpochCounterEvent if epoch else CounterEvent
        self.epoch = epoch
        self._arrow = msgspec.json.Decoder(EpochArrow if epoch else Arrow)
        self.skipped: Counter[str] = Counter()
        self.thread_names: dict[Track, str] = {}
        self.is_of_xla = False  # a process is called as XLA's profiler calls a device
        self._names, self._tracks, self._details, self._large = _Numbers(), _Numbers(), _Numbers(), _Numbers()
        self._codes = _Codes(Kind.PYTHON if stacks else _PYTHON)
        self._columns: list[dict[str, np.ndarray]] = []  # a piece each
        self._devices = _Numbers()
        self._memory: list[tuple[np.ndarray, ...]] = []  # a piece each: the columns of Memory
        self._series = _Numbers()  # (device, name) of the hardware counters
        self._counters: list[tuple[np.ndarray, ...]] = []  # a piece each: the columns of Counters
        self._functions_ns: list[np.ndarray] = []  # a piece each: when the functions of Python begin
        self._arrows: list[np.ndarray] = []  # a piece each: number, whether it is the end, lane and moment (ns) of arrows' ends
        self._lanes = _Numbers()  # (pid, tid) of the arrows
        self._gpu_lanes: set[int] = set()  # (pid, tid) of the GPU events
        self._base_ns: int | None = None  # of the first slice
        self._first_ns = 0  # the earliest start
        self._at_zero: list[Any] = []  # GPU events with the timestamp 0
        self._zero_durations = 0

    def take(self, events: list[Any]) -> None:
        """Keep what is used of the events of a piece, and count the rest."""
        used = self.slice_type
        slices = [event for event in events if event.__class__ is used]
        if len(slices) < len(events):
            others = [event for event in events if event.__class__ is not used]
            for kind, n in Counter(map(type, others)).items():
                if kind is self.instant_type:
                    self.skipped["instant"] += n
                    self._take_memory([event for event in others if event.__class__ is kind])
                elif kind is self.counter_type:
                    self.skipped["counter"] += n
                    self._take_counters([event for event in others if event.__class__ is kind])
                else:
                    self.skipped[SKIPPED[kind]] += n
                if kind is Metadata:
                    self._take_metadata(event for event in others if type(event) is Metadata)
        if slices:
            self._keep(slices)

    def take_one(self, event: AnyEvent) -> None:
        """As `take`, of an event whose phase was not known before."""
        if event.ph == "X":
            more = _decoded(_DECODE_ARGS, event.args) or NO_ARGS
            self._keep([self.slice_type(event.cat, event.name, event.pid, event.tid, event.ts, event.dur, more)])
            return
        self.skipped[PHASES.get(event.ph, "other phase")] += 1
        if event.ph == "M":
            self._take_metadata([Metadata(event.name, event.pid, event.tid, _decoded(_DECODE_NAME, event.args))])
        elif event.ph == "i":
            args = _decoded(_DECODE_MEMORY, event.args)
            self._take_memory([self.instant_type(event.name, event.pid, event.tid, event.ts, args)])
        elif event.ph == "C":
            self._take_counters([self.counter_type(event.name, event.pid, event.ts, _decoded(_DECODE_VALUES, event.args))])

    def state(self) -> dict[str, Any] | None:
        """Return what another process needs to go on: see `merge`. None where it would have to look at the events again."""
        if self._at_zero or self._large:
            return None
        return {
            "columns": self._joined() if self._columns else {},
            "names": list(self._names),
            "tracks": list(self._tracks),
            "details": list(self._details),
            "devices": list(self._devices),
            "memory": self._memory,
            "series": list(self._series),
            "counters": self._counters,
            "functions_ns": self._functions_ns,
            "arrows": self._arrows,
            "lanes": list(self._lanes),
            "gpu_lanes": self._gpu_lanes,
            "base_ns": self._base_ns,
            "first_ns": self._first_ns,
            "zero_durations": self._zero_durations,
            "thread_names": self.thread_names,
            "skipped": self.skipped,
        }

    def merge(self, state: dict[str, Any]) -> None:
        """Take the columns of the next part of the file, numbered as these are."""
        name, track, detail, device, series = (
            np.array([numbers[key] for key in state[kind]] + [-1], np.int64)
            for numbers, kind in (
                (self._names, "names"), (self._tracks, "tracks"), (self._details, "details"), (self._devices, "devices"),
                (self._series, "series"),
            )
        )  # fmt: skip
        if columns := state["columns"]:
            if self._base_ns is None:
                self._base_ns = state["base_ns"]
            moved_ns = state["base_ns"] - self._base_ns
            columns["start_ns"] += moved_ns
            self._first_ns = min(self._first_ns, state["first_ns"] + moved_ns)
            for column, numbers in (("name", name), ("track", track), ("detail", detail), ("region", detail)):
                columns[column] = numbers[columns[column]].astype(np.int32)
            self._columns.append(columns)
        for at_ns, own_track, own_device, *sizes in state["memory"]:
            self._memory.append((at_ns, track[own_track], device[own_device], *sizes))
        self._functions_ns += state["functions_ns"]
        lanes = np.array([self._lanes[lane] for lane in state["lanes"]], np.int64)
        for ends in state["arrows"]:
            ends[:, 2] = lanes[ends[:, 2]]
            self._arrows.append(ends)
        self._counters += [(at_ns, series[one], value) for at_ns, one, value in state["counters"]]
        self._gpu_lanes |= {int(track[lane]) for lane in state["gpu_lanes"]}
        self._zero_durations += state["zero_durations"]
        self.thread_names |= state["thread_names"]
        self.skipped += state["skipped"]

    def _joined(self) -> dict[str, np.ndarray]:
        return {name: np.concatenate([piece.pop(name) for piece in self._columns]) for name in list(self._columns[0])}

    @property
    def zero_timestamps(self) -> int:
        """How many kernels have a start or a duration of 0."""
        return self.skipped["zero timestamp"] + self._zero_durations

    def finish(self) -> tuple[Slices, Memory, Counters, np.ndarray, np.ndarray, int] | None:
        """Return the slices, the allocations and frees, the hardware counters, when the functions of Python begin, the arrows,
        and when the first slice starts (ns by the file's own clock). None: no slice.
        """
        self._judge_zeros()
        if not self._columns:
            return None
        columns = self._possible(self._joined())
        first_ns = columns["start_ns"].min()
        columns["start_ns"] -= first_ns
        zero_ns = (self._base_ns or 0) + int(first_ns)
        # Where a clock counts whole microseconds, what takes less than one has a duration of 0.
        if not (columns["start_ns"] % 1000).any() and not (columns["duration_us"] % 1).any():
            self._zero_durations = 0
        memory, counters = self._decoded_memory(zero_ns), self._decoded_counters(zero_ns)
        self._tell_ranges(columns)
        self._tell_gpu_annotations(columns["kind"], columns["track"])
        self._tell_open_functions(columns)
        details = self._distinct_details(columns["detail"], columns["region"])
        functions_ns = np.sort(np.concatenate([np.zeros(0, np.int64), *self._functions_ns])) - zero_ns
        slices = Slices(columns, list(map(demangled, self._names)), list(self._tracks), details)
        return slices, memory, counters, functions_ns, self._decoded_arrows(zero_ns), zero_ns

    def _take_metadata(self, events: Iterable[Metadata]) -> None:
        for event in events:
            if event.name == "process_name" and event.args is not None:
                self.is_of_xla |= _XLAS_DEVICE.match(event.args.name) is not None
            if event.name == "thread_name" and event.args is not None:
                self.thread_names[event.pid, event.tid] = event.args.name  # type: ignore[index]

    def take_arrows(self, texts: Iterable[bytes]) -> None:
        """Keep the arrows between nodes of CUDA graphs, whose events are counted as flows already."""
        every = (arrow for text in texts if (arrow := _decoded(self._arrow, text)) is not None)
        arrows = [arrow for arrow in every if arrow.ph in ("s", "f") and type(arrow.id) is int and 0 <= arrow.id < 1 << 62]
        at_ns, timed = self._nanoseconds([arrow.ts for arrow in arrows])
        ends = [(arrow.id, arrow.ph == "f", self._lanes[arrow.pid, arrow.tid]) for arrow in arrows]
        self._arrows.append(np.column_stack([np.array(ends, np.int64).reshape(-1, 3), at_ns])[timed])

    def _decoded_arrows(self, zero_ns: int) -> np.ndarray:
        """Return for each arrow that has both ends the track and the moment (ns) of its start, and those of its end."""
        ends = np.concatenate([np.zeros((0, 4), np.int64), *self._arrows])
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        whole = np.flatnonzero((ends[1:, 0] == ends[:-1, 0]) & (ends[:-1, 1] == 0) & (ends[1:, 1] == 1))
        track = np.array([self._tracks.get(lane, -1) for lane in self._lanes], np.int64)
        found = np.concatenate([ends[whole, 2:], ends[whole + 1, 2:]], axis=1)
        found[:, [0, 2]] = track[found[:, [0, 2]]]
        found[:, [1, 3]] -= zero_ns
        return found

    def _take_memory(self, instants: list[Any]) -> None:
        """Keep the allocations and frees among these events, which are counted as not used already."""
        events = [event for event in instants if event.name == "[memory]" and event.args.__class__ is MemoryArgs]
        if not events:
            return
        every = [event.args for event in events]
        at_ns, fine = self._nanoseconds([event.ts for event in events])
        devices, tracks = self._devices, self._tracks
        address, has_address = integers([args.address for args in every], unsigned=True)
        size, has_size = integers([args.bytes for args in every])
        device_type, has_type = integers([args.device_type for args in every])
        index, has_index = integers([args.device for args in every])
        total, has_total = integers([-1 if args.total is None else args.total for args in every])
        total[~has_total | (total >= 2**62)] = -1
        possible = (size > -LARGEST_BYTES) & (size < LARGEST_BYTES)
        impossible = int((has_size & ~possible).sum())
        self.skipped["impossible size"] += impossible
        self.skipped["instant"] -= impossible
        fine &= has_address & has_size & possible & has_type & has_index
        pairs = zip(device_type[fine].tolist(), index[fine].tolist(), strict=True)
        device = np.array([devices[pair] for pair in pairs], np.int64)
        track = np.array([tracks[event.pid, event.tid] for event in _chosen(events, fine)], np.int64)
        self.skipped["instant"] -= len(device)
        self._memory.append((at_ns[fine], track, device, address[fine], size[fine], total[fine]))

    def _take_counters(self, events: list[Any]) -> None:
        """Keep the samples of hardware counters among these events, which are counted as not used already."""
        numbers, moments, values = [], [], []
        for event in events:
            found = GPU_COUNTERS.fullmatch(event.pid) if event.pid.__class__ is str else None
            said = list(event.args.values()) if event.args.__class__ is dict else []
            if found and len(said) == 1 and said[0].__class__ in (int, float) and abs(said[0]) < LARGEST_VALUE:
                numbers.append(self._series[int(found[1]), event.name])
                moments.append(event.ts)
                values.append(float(said[0]))
        if values:
            at_ns, fine = self._nanoseconds(moments)
            self.skipped["counter"] -= int(fine.sum())
            self._counters.append((at_ns[fine], np.array(numbers)[fine], np.array(values)[fine]))

    def _keep(self, slices: list[Any]) -> None:
        """Append what is used of these slices to the columns, and count the rest."""
        kind = np.frombuffer(bytes(map(self._codes.__getitem__, [event.cat for event in slices])), np.uint8)
        functions = np.flatnonzero((kind == _PYTHON) | (kind == Kind.PYTHON))
        if len(functions):
            begun_ns, timed = self._nanoseconds([event.ts for event in _at(slices, functions)])
            self._functions_ns.append(begun_ns[timed])
        used = kind < _PYTHON
        if not used.all():
            python = int((kind == _PYTHON).sum())
            others = _at(slices, np.flatnonzero(~used & (kind != _PYTHON)))
            unknown = sum(is_of_unknown_device(event.cat, event.args) for event in others)
            self.skipped["python_function"] += python
            self.skipped["unknown device"] += unknown
            self.skipped["other category"] += int((~used).sum()) - python - unknown
            slices, kind = _chosen(slices, used), kind[used]
        if slices:
            self._append(slices, kind)

    def _append(self, slices: list[Any], kind: np.ndarray, judged: bool = False) -> None:
        start_ns, timed = self._nanoseconds([event.ts for event in slices])
        duration_us = np.array([event.dur for event in slices], np.float64)  # nan for None
        fine = timed & (duration_us >= 0) & (duration_us < LONGEST_US)
        # Of the CPU's, where the others are late already; most files begin near 0 or far from it.
        others_ns = int(median(start_ns)) if self._base_ns is None else self._base_ns + self._first_ns
        late = len(start_ns) > 0 and others_ns > LOST_TIME_NS
        at_zero = fine & (start_ns == 0) & (_IS_ON_GPU[kind] | late)
        if at_zero.any() and not judged:
            self._at_zero += _chosen(slices, at_zero)
            fine &= ~at_zero
        if not fine.all():
            below = int((timed & (duration_us < 0)).sum())
            self.skipped["no timestamp"] += int((~timed).sum())
            self.skipped["negative duration"] += below
            self.skipped["no duration"] += int((timed & ~fine & ~at_zero).sum()) - below
            slices, kind = _chosen(slices, fine), kind[fine]
            start_ns, duration_us = start_ns[fine], duration_us[fine]
            if not slices:
                return
        if self._base_ns is None:
            self._base_ns = 0 if judged else int(start_ns[0])
        start_ns -= self._base_ns
        self._first_ns = min(self._first_ns, int(start_ns.min()))
        lanes = zip([event.pid for event in slices], [event.tid for event in slices], strict=True)
        name = np.array(array("i", map(self._names.__getitem__, [event.name for event in slices])))
        track = np.array(array("i", map(self._tracks.__getitem__, lanes)))
        columns = {"kind": kind, "name": name, "track": track, "start_ns": start_ns, "duration_us": duration_us}
        self._add_arguments(columns, slices)
        self._columns.append(columns)

    def _add_arguments(self, columns: dict[str, np.ndarray], slices: list[Any]) -> None:
        """Add the columns that come from the arguments; the track of GPU work is in them, too."""
        kind, track = columns["kind"], columns["track"]
        every = [args if (args := event.args).__class__ is Args else NO_ARGS for event in slices]
        columns["correlation"] = correlation = np.full(len(slices), NO_CORRELATION)
        columns["node"] = node = np.full(len(slices), NO_NODE)
        columns["forward_thread"] = forward_thread = np.zeros(len(slices), np.int32)
        columns["detail"] = detail = np.full(len(slices), -1, np.int32)
        columns["region"] = region = np.full(len(slices), -1, np.int32)
        gpu = _IS_ON_GPU[kind]
        places = np.flatnonzero(gpu | (kind == Kind.CALL))
        if len(places):
            correlation[places] = self._correlations([args.correlation for args in _at(every, places)])
        launching = np.flatnonzero(kind == Kind.CALL)
        kernels = [args.kernel for args in _at(every, launching)]
        if any(name.__class__ is str for name in kernels):
            detail[launching] = [self._details[name,] if name.__class__ is str else -1 for name in kernels]
        places = np.flatnonzero(gpu)
        if len(places):
            self._gpu_lanes.update(track[places].tolist())
            args = _at(every, places)
            track[places] = self._streams(args, _at(slices, places))
            detail[places] = self._gpu_details(args, (kind[places] == Kind.KERNEL).tolist())
            if any(one.graph_node is not None for one in args):
                region[places] = self._regions(args)
            self._zero_durations += int(((kind == Kind.KERNEL) & (columns["duration_us"] == 0)).sum())
        places = np.flatnonzero(kind == Kind.OP)
        if len(places):
            ops = _at(every, places)
            node[places], forward_thread[places] = _nodes(ops)
            detail[places] = self._inputs(ops, columns["name"][places])
        if self._codes.python == Kind.PYTHON:
            places = np.flatnonzero(kind == Kind.PYTHON)
            lines = [args.call_from for args in _at(every, places)]
            detail[places] = [self._details[line,] if line.__class__ is str else -1 for line in lines]

    def _nanoseconds(self, times: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Times in microseconds, as whole nanoseconds (0 where there is none), and which are times."""
        if self.slice_type is EpochSliceEvent:
            # A number of any size may stand there: its power of ten is looked at before it is calculated with.
            near = (t is not None and t.is_finite() and t.adjusted() < 16 and abs(t) < LONGEST_US for t in times)
            exact = [int(t * 1000) if fine else None for t, fine in zip(times, near, strict=True)]
            timed = np.array([t is not None for t in exact], bool)
            return np.array([t or 0 for t in exact], np.int64), timed
        start_us = np.array(times, np.float64)  # nan for None
        timed = np.abs(start_us) < LONGEST_US
        if not timed.all():
            start_us[~timed] = 0
        # In two parts: the product with 1000 would need more digits than a float has.
        whole = np.floor(start_us)
        return whole.astype(np.int64) * 1000 + np.rint((start_us - whole) * 1000).astype(np.int64), timed

    def _correlations(self, values: list[Any]) -> Any:
        try:
            ids = np.frombuffer(array("q", values), np.int64)
            if ids.max() < 2**61 and ids.min() >= 0:
                return ids
        except (TypeError, OverflowError):
            pass
        return [self._correlation(value) for value in values]

    def _correlation(self, value: Any) -> int:
        """As a number below 2^61; larger ones get numbers of their own. -1 is what some backends write for none."""
        number = integer(value)
        if number is None or number == -1:
            return NO_CORRELATION
        return number if 0 <= number < 2**61 else -2 - self._large[number]

    def _streams(self, all_args: list[Args], slices: list[Any]) -> list[int]:
        """Return the numbers of the tracks (device, stream); from pid and tid where the arguments lack them."""
        tracks, ids = self._tracks, (int, str)
        return [
            tracks[
                args.device if args.device.__class__ in ids else event.pid,
                args.stream if args.stream.__class__ in ids else event.tid,
            ]
            for args, event in zip(all_args, slices, strict=True)
        ]

    def _inputs(self, ops: list[Args], names: np.ndarray) -> list[int]:
        details = self._details
        found = [-1 if a.dims is NULL else details[b",".join((a.dims, a.types, a.strides, _told_apart(a.values)))] for a in ops]
        by_numbers = [self._names[name] for name in BY_NUMBERS if name in self._names]
        for place in np.flatnonzero(np.isin(names, by_numbers)).tolist() if by_numbers else ():
            if (a := ops[place]).dims is not NULL and a.values is not NULL:
                found[place] = details[b",".join((a.dims, a.types, a.strides, a.values))]
        return found

    def _gpu_details(self, all_args: list[Args], is_kernel: list[bool]) -> list[int]:
        details = self._details
        keys: list[Any] = [
            (a.registers, a.shared_memory, bytes(a.grid), bytes(a.block), a.occupancy, collective_key(a), _written(a.stack))
            if kernel
            else a.bytes
            for a, kernel in zip(all_args, is_kernel, strict=True)
        ]
        try:
            return [-1 if key is None else details[key] for key in keys]
        except TypeError:  # a list or object where a number should be
            return [details[hashable(key)] for key in keys]

    def _regions(self, all_args: list[Args]) -> list[int]:
        keys = (None if args.graph_node is None else region_key(args) for args in all_args)
        return [-1 if key is None else self._details[key] for key in keys]

    def _judge_zeros(self) -> None:
        """A GPU event at 0 is a real one if the others start near 0, too; else its time was lost."""
        if (self._base_ns or 0) + self._first_ns > LOST_TIME_NS:
            self.skipped["zero timestamp"] += len(self._at_zero)
        elif self._at_zero:
            self._append(self._at_zero, np.array([self._codes[event.cat] for event in self._at_zero], np.uint8), judged=True)

    def _decoded_memory(self, zero_ns: int) -> Memory:
        """Return the allocations and frees; `zero_ns` is the time of the first slice."""
        columns = [np.concatenate(parts) for parts in zip(*self._memory, strict=True)] or [np.zeros(0, np.int64)] * 6
        if np.any(columns[0][1:] < columns[0][:-1]):
            order = np.argsort(columns[0], kind="stable")
            columns = [column[order] for column in columns]
        at_ns, track, device, address, size, total = columns
        return Memory(at_ns - zero_ns, track, device, address, size, total, list(self._devices))

    def _decoded_counters(self, zero_ns: int) -> Counters:
        columns = [np.concatenate(parts) for parts in zip(*self._counters, strict=True)] or [np.zeros(0, np.int64)] * 3
        order = np.argsort(columns[0], kind="stable")
        at_ns, series, value = (column[order] for column in columns)
        return Counters(at_ns - zero_ns, series, value, list(self._series))

    def _distinct_details(self, *columns: np.ndarray) -> list[Any]:
        """Return the details, equal ones once; the columns are renumbered. One that is written in two ways has two keys."""
        numbers: dict[Any, int] = {}
        found = []
        for key in self._details:
            value = detail_of(key)
            try:
                found.append(numbers.setdefault(value, len(numbers)))
            except TypeError:  # objects among an op's inputs
                found.append(numbers.setdefault(key, len(numbers)))
        for column in columns if found else ():
            column[:] = np.where(column >= 0, np.array(found, np.int32)[column], -1)
        return [detail_of(value) if type(value) is bytes else value for value in numbers]

    def _possible(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Without slices that begin, or last, so far from where nearly all begin that no recording is so long."""
        start_ns = np.sort(columns["start_ns"])
        few = max(len(start_ns) // 50, 1)
        if len(start_ns) <= 2 * few:
            return columns
        low, high = int(start_ns[few]), int(start_ns[-1 - few])
        longest_ns = TIMES_AS_LONG * (high - low + LEAST_LONG_NS)
        fine = (columns["start_ns"] >= low - longest_ns) & (columns["start_ns"] <= high + longest_ns)
        fine &= columns["duration_us"] * 1000 <= longest_ns
        if fine.all() or not fine.any():
            return columns
        self.skipped["impossible time"] += int((~fine).sum())
        return {name: column[fine] for name, column in columns.items()}

    def _tell_ranges(self, columns: dict[str, np.ndarray]) -> None:
        """Torch before 1.10 and some backends give ranges an op's category: they are known by their names; where the profiler's
        steps are among them, so are the program's own.
        """
        kind, name, names = columns["kind"], columns["name"], list(self._names)
        found = (kind == Kind.OP) & np.array([is_torchs_range(one) for one in names], bool)[name]
        if not found.any():
            return
        if any(is_step(names[number]) for number in distinct(name[found]).values.tolist()):
            ranges = np.array([may_be_a_range(one) for one in names], bool)
            is_node = (columns["node"] != NO_NODE) | (columns["detail"] >= 0)
            found |= (kind == Kind.OP) & ranges[name] & ~is_node
        kind[found] = Kind.ANNOTATION

    def _tell_open_functions(self, columns: dict[str, np.ndarray]) -> None:
        """Give the functions that ran when the recording began, on the thread that began it, no line: the profiler writes the one
        at which each was then, and of all others that at which they begin.
        """
        name, start_ns, python = columns["name"], columns["start_ns"], np.flatnonzero(columns["kind"] == Kind.PYTHON)
        if not len(python):
            return
        names = list(self._names)
        begins = np.array([begins_recording(one) for one in names], bool)
        end_ns = start_ns + np.rint(columns["duration_us"] * 1000).astype(np.int64)
        for track in distinct(columns["track"][python]).values.tolist():
            rows = python[columns["track"][python] == track]
            is_open = rows[start_ns[rows] < end_ns[rows].min()]
            if begins[name[is_open]].any():
                name[is_open] = [self._names[without_line(names[number])] for number in name[is_open].tolist()]

    def _tell_gpu_annotations(self, kind: np.ndarray, track: np.ndarray) -> None:
        """Old traces repeat the annotations on the GPU's lane, under the category of the CPU's."""
        on_gpu, on_cpu = (np.zeros(len(self._tracks), bool) for _ in range(2))
        on_gpu[list(self._gpu_lanes)] = True
        on_cpu[track[(kind == Kind.OP) | (kind == Kind.CALL)]] = True
        kind[(kind == Kind.ANNOTATION) & (on_gpu & ~on_cpu)[track]] = Kind.GPU_ANNOTATION


def _written(stack: msgspec.Raw) -> bytes | None:
    return None if stack is NULL else bytes(stack)


def _told_apart(values: msgspec.Raw) -> bytes:
    """Return the values of an op's other inputs, where a list or a flag is among them; numbers alone are too many, and say
    little, but those of BY_NUMBERS.
    """
    text = bytes(values)
    return text if b'"[' in text or b'e"' in text else NULL_VALUES


def _at(values: list[Any], places: np.ndarray) -> list[Any]:
    return [values[place] for place in places.tolist()]


def _chosen(values: list[Any], mask: np.ndarray) -> list[Any]:
    return _at(values, np.flatnonzero(mask))


def _nodes(ops: list[Args]) -> tuple[np.ndarray, np.ndarray]:
    """Autograd's number of the node that each op makes or, in the backward pass, runs, or NO_NODE; and for the latter autograd's
    number of the thread that made it, else 0.
    """
    node, is_node = integers([NO_NODE if args.sequence is None else args.sequence for args in ops])
    thread, is_thread = integers([args.forward_thread or 0 for args in ops])
    fine = is_node & (node >= 0) & is_thread & (thread >= 0) & (thread < 1 << 31)
    return np.where(fine, node, NO_NODE), np.where(fine, thread, 0).astype(np.int32)


def _decoded(decoder: msgspec.json.Decoder, raw: msgspec.Raw | bytes) -> Any:
    """Return an event's args, or None where they are missing, no object, or no text."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
