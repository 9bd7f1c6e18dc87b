"""Bytes to columns: only the fields that the reader uses, in bounded memory, from whole and from broken files.

The list `traceEvents` is cut into pieces of half a megabyte between two events (larger ones do not stay in the processor's
cache). msgspec decodes a piece to one typed object an event, and each field of all of them becomes a column at once. A
piece that is not as it should be is read event by event (parse/repair.py); the others are not slowed down by it.
"""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import reduce
from itertools import islice
import json
import operator
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.errors import NoEventsError, NotATraceError
from trace_reader.model.slices import (
    NO_CORRELATION,
    ON_GPU,
    SEQUENCE_BITS,
    Collective,
    Footprint,
    Inputs,
    Kind,
    Memory,
    Slices,
    Track,
)
from trace_reader.names.demangle import demangled
from trace_reader.parse.byte_source import Blocks, Bytes, open_blocks, shown
from trace_reader.parse.foreign_files import what_it_is
from trace_reader.parse.repair import EVENT, mended, one_by_one

PIECE_BYTES = 1 << 19
LARGEST_PIECE_BYTES = 1 << 22
SAMPLE_BYTES = 1 << 17  # from whose first times it is told since when times count
SAMPLE_TIMES = 1000
LOST_TIME_NS = 10**9  # a GPU event at 0, this long before all others, has lost its time
LONGEST_US = 3e15  # a time or duration beyond is none: in nanoseconds, a start and a duration fit into 64 bits
EXACT_US = 2**43  # below, a float tells the nanoseconds; beyond are times since 1970

# Kineto's categories, today's and those of old versions.
KINDS = {
    **dict.fromkeys(("cpu_op", "operator"), Kind.OP),
    "user_annotation": Kind.ANNOTATION,
    "kernel": Kind.KERNEL,
    **dict.fromkeys(("gpu_memcpy", "memcpy"), Kind.MEMCPY),
    **dict.fromkeys(("gpu_memset", "memset"), Kind.MEMSET),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "driver", "xpu_runtime", "xpu_driver", "mtia_runtime"), Kind.CALL),
    **dict.fromkeys(("privateuse1_runtime", "privateuse1_driver"), Kind.CALL),
    "overhead": Kind.OVERHEAD,
    "gpu_user_annotation": Kind.GPU_ANNOTATION,
}
_PHASES = {"M": "metadata", "s": "flow", "t": "flow", "f": "flow", "i": "instant", "I": "instant", "C": "counter"}
_OTHER_PHASES = "BEbeNODSnpFPTRcVv()"
_PYTHON, _OTHER = 254, 255  # codes of categories that are not used
_IS_ON_GPU = np.array([code in ON_GPU for code in range(256)])


class Decoded(msgspec.Struct, frozen=True, eq=False):
    """A file's slices and header. `total` events were found; `skipped` says how many were not used, and why."""

    path: str
    slices: Slices
    header: dict[str, Any]
    total: int
    skipped: dict[str, int]
    first_bad: str | None  # the place of the first event that could not be read
    zero_timestamps: int  # kernels with a start or a duration of 0
    thread_names: dict[Track, str]
    memory: Memory
    zero_ns: int  # when the first slice starts, by the file's own clock


_NULL = msgspec.Raw(b"null")


class _Args(msgspec.Struct, frozen=True, gc=False):
    """What is used of an event's arguments. Those of many values stay text: equal ones are read once."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)
    occupancy: Any = msgspec.field(name="est. achieved occupancy %", default=None)
    grid: msgspec.Raw = msgspec.Raw()
    block: msgspec.Raw = msgspec.Raw()
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NULL)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sender: Any = msgspec.field(name="Src Rank", default=None)
    receiver: Any = msgspec.field(name="Dst Rank", default=None)
    collective_sequence: Any = msgspec.field(name="Seq", default=None)
    call_from: Any = msgspec.field(name="CallFrom", default=None)


_NO_ARGS = _Args()
_AnyArgs = _Args | str | int | float | bool | list | None
_Id = int | str | float | None


class _Slice(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    cat: str | None = None
    name: str = ""
    pid: _Id = None
    tid: _Id = None
    ts: float | None = None
    dur: float | None = None
    args: _AnyArgs = None


class _EpochSlice(_Slice, gc=False, tag_field="ph", tag="X"):
    ts: Decimal | None = None  # type: ignore[assignment]  # a float has no room for the decimals


class _Event(msgspec.Struct, gc=False):
    """Any event, where the phase is not known before."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: _Id = None
    tid: _Id = None
    ts: float | None = None
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw()


class _EpochEvent(_Event, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]


class _Name(msgspec.Struct, gc=False):
    name: str = ""


class _Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    name: str = ""
    pid: _Id = None
    tid: _Id = None
    args: _Name | None = None


class _MemoryArgs(msgspec.Struct, gc=False):
    address: Any = msgspec.field(name="Addr", default=None)
    bytes: Any = msgspec.field(name="Bytes", default=None)
    total: Any = msgspec.field(name="Total Allocated", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)


class _Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    name: str = ""
    pid: _Id = None
    tid: _Id = None
    ts: float | None = None
    args: _MemoryArgs | str | int | float | bool | list | None = None


class _EpochInstant(_Instant, gc=False, tag_field="ph", tag="i"):
    ts: Decimal | None = None  # type: ignore[assignment]


_SKIPPED: dict[type, str] = {_Metadata: _PHASES["M"]}  # by the type that an event of another phase is decoded to
for _phase in (*_PHASES, *_OTHER_PHASES):
    if _phase not in ("M", "i"):
        _SKIPPED[msgspec.defstruct("_Skipped", [], gc=False, tag_field="ph", tag=_phase)] = _PHASES.get(_phase, "other phase")
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_DECODE_ARGS = msgspec.json.Decoder(_Args)
_DECODE_NAME = msgspec.json.Decoder(_Name)
_DECODE_MEMORY = msgspec.json.Decoder(_MemoryArgs)
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)')
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*([\[{])")
_TRACE_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'("traceEvents"\s*:\s*\[)|"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
# The end of one event and the start of the next. No string holds it: a quote inside a string is escaped.
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + EVENT.encode() + rb")")
_ANY_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")  # between two events, or two objects inside one
_LONGEST_BOUNDARY = 1 << 14  # bytes to the first event's "ph", at most


def decode(source: str, progress: Callable[[float], None] | None = None, stacks: bool = False) -> Decoded:
    """Read the trace at the path `source` (`.json` or `.json.gz`, by content), or on standard input for "-".

    `progress` is called with the share of the file that is done; `stacks`: keep the functions of Python, too. Raises TraceError:
    file missing or unreadable; NotATraceError: no Chrome trace; NoEventsError: a trace without events.
    """
    with open_blocks(source, progress) as blocks:
        return _Decoder(blocks, shown(source), stacks).decode()


def decode_bytes(file: Bytes, source: str) -> Decoded:
    """As `decode`, of bytes that are read already."""
    return _Decoder(file, shown(source)).decode()


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


class _Decoder:
    def __init__(self, source: Blocks | Bytes, path: str, stacks: bool = False):
        self.source, self.path = source, path
        self.skipped: Counter[str] = Counter()
        self.total = 0
        self.first_bad: str | None = None
        self.header: dict[str, Any] = {}
        self.thread_names: dict[Track, str] = {}
        self._names, self._tracks, self._details, self._large = _Numbers(), _Numbers(), _Numbers(), _Numbers()
        self._codes = _Codes(Kind.PYTHON if stacks else _PYTHON)
        self._columns: list[dict[str, np.ndarray]] = []  # a piece each
        self._devices = _Numbers()
        self._memory: list[tuple[np.ndarray, ...]] = []  # a piece each: the columns of Memory
        self._gpu_lanes: set[int] = set()  # (pid, tid) of the GPU events
        self._base_ns: int | None = None  # of the first slice
        self._first_ns = 0  # the earliest start
        self._at_zero: list[Any] = []  # GPU events with the timestamp 0
        self._zero_durations = 0
        self._patience = 0  # characters that a left over end must have before it is looked at again
        self._list_ended = False

    def decode(self) -> Decoded:
        blocks = iter([self.source.data]) if isinstance(self.source, Bytes) else iter(self.source)
        buffer = self._read_header(blocks)
        while len(buffer) < SAMPLE_BYTES and (block := next(blocks, None)) is not None:
            buffer += block
        epoch = any(EXACT_US <= float(time[1]) < LONGEST_US for time in islice(_TIME.finditer(buffer), SAMPLE_TIMES))
        self._slice: Any = _EpochSlice if epoch else _Slice
        self._instant: Any = _EpochInstant if epoch else _Instant
        every = reduce(operator.or_, _SKIPPED, self._slice | self._instant)
        self._many: Any = msgspec.json.Decoder(list[every], strict=False)  # type: ignore[valid-type]  # times may be strings
        self._one: Any = msgspec.json.Decoder(_EpochEvent if epoch else _Event, strict=False)
        carried = ""
        searched = 0  # no boundary begins before, beyond the piece's size
        while True:
            position = 1
            while cut := self._cut(buffer, position, searched):
                carried = self._piece(carried, buffer, position, cut.start() + 1)
                position = cut.end()
            if position > 1:
                buffer = buffer[position - 1 :]  # a new one: slices that are kept may still point into the old one
            searched = len(buffer) - _LONGEST_BOUNDARY
            if (block := next(blocks, None)) is None:
                break
            buffer += block
        self._last_piece(carried, buffer)
        self._judge_zeros()
        return self._decoded()

    def _cut(self, buffer: bytearray, position: int, searched: int) -> re.Match[bytes] | None:
        """Where a piece that begins at `position` can end."""
        if found := _BOUNDARY.search(buffer, max(position + PIECE_BYTES, searched)):
            return found
        if len(buffer) - position > LARGEST_PIECE_BYTES:  # of events whose "ph" stands behind other objects, perhaps
            return _ANY_BOUNDARY.search(buffer, position + PIECE_BYTES)
        return None

    def _decoded(self) -> Decoded:
        if not self.total:
            raise NoEventsError(f"{self.path}: the trace has no events")
        if not self._columns:
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.skipped.items()) if n)
            place = f"; first {self.first_bad}" if self.first_bad else ""
            raise NoEventsError(f"{self.path}: none of the {self.total} events is one that a profiler writes ({reasons}{place})")
        columns = {name: np.concatenate([piece.pop(name) for piece in self._columns]) for name in list(self._columns[0])}
        first_ns = columns["start_ns"].min()
        columns["start_ns"] -= first_ns
        zero_ns = (self._base_ns or 0) + int(first_ns)
        memory = self._decoded_memory(zero_ns)
        self._tell_gpu_annotations(columns["kind"], columns["track"])
        slices = Slices(columns, list(map(demangled, self._names)), list(self._tracks), self._distinct_details(columns["detail"]))
        skipped = {reason: n for reason, n in sorted(self.skipped.items()) if n}
        zeros = self.skipped["zero timestamp"] + self._zero_durations
        return Decoded(
            self.path, slices, self.header, self.total, skipped, self.first_bad, zeros, self.thread_names, memory, zero_ns
        )

    def _decoded_memory(self, zero_ns: int) -> Memory:
        """The allocations and frees; `zero_ns` is the time of the first slice."""
        columns = [np.concatenate(parts) for parts in zip(*self._memory, strict=True)] or [np.zeros(0, np.int64)] * 6
        order = np.argsort(columns[0], kind="stable")
        at_ns, track, device, address, size, total = (column[order] for column in columns)
        return Memory(at_ns - zero_ns, track, device, address, size, total, list(self._devices))

    def _distinct_details(self, detail: np.ndarray) -> list[Any]:
        """The details, equal ones once; `detail` is renumbered. One that is written in two ways has two keys."""
        numbers: dict[Any, int] = {}
        found = []
        for key in self._details:
            value = _detail(key)
            try:
                found.append(numbers.setdefault(value, len(numbers)))
            except TypeError:  # objects among an op's inputs
                found.append(numbers.setdefault(key, len(numbers)))
        if found:
            detail[:] = np.where(detail >= 0, np.array(found, np.int32)[detail], -1)
        return [_detail(value) if type(value) is bytes else value for value in numbers]

    def _tell_gpu_annotations(self, kind: np.ndarray, track: np.ndarray) -> None:
        """Old traces repeat the annotations on the GPU's lane, under the category of the CPU's."""
        on_gpu, on_cpu = (np.zeros(len(self._tracks), bool) for _ in range(2))
        on_gpu[list(self._gpu_lanes)] = True
        on_cpu[track[(kind == Kind.OP) | (kind == Kind.CALL)]] = True
        kind[(kind == Kind.ANNOTATION) & (on_gpu & ~on_cpu)[track]] = Kind.GPU_ANNOTATION

    def _judge_zeros(self) -> None:
        """A GPU event at 0 is a real one if the others start near 0, too; else its time was lost."""
        if (self._base_ns or 0) + self._first_ns > LOST_TIME_NS:
            self.skipped["zero timestamp"] += len(self._at_zero)
        elif self._at_zero:
            self._append(self._at_zero, np.array([self._codes[event.cat] for event in self._at_zero], np.uint8), judged=True)

    def _read_header(self, blocks: Iterator[bytes]) -> bytearray:
        """Decode the header's keys before the list of events; returns its `[` and what follows."""
        buffer, whole = bytearray(next(blocks, b"")), False
        while (start := self._list_start(buffer, whole)) is None:
            size = len(buffer)
            while len(buffer) < 2 * size and not whole:  # twice as much each time: looking at it again costs no more than it
                block = next(blocks, None)
                whole = block is None
                buffer += block or b""
        del buffer[: start - 1]
        return buffer

    def _list_start(self, buffer: bytearray, whole: bool) -> int | None:
        """The position after the `[` of the events, or None: not in the buffer, which is not the `whole` file."""
        opening = _OPENING.match(buffer)
        if opening is None:
            raise NotATraceError(f"{self.path}: {what_it_is(self.path, bytes(buffer[:20]))}")
        if opening[1] == b"[":
            return opening.end()
        depth, is_inside = 0, False
        for token in _TOKEN.finditer(buffer, opening.start(1)):
            if token[1]:
                if depth == 1:
                    self._add_to_header(buffer[opening.start(1) : token.start()] + b'"":0}')
                    return token.end()
                depth, is_inside = depth + 1, True  # the list that the key has
            elif token[0] in (b"{", b"["):
                depth += 1
            elif token[0] in (b"}", b"]"):
                depth -= 1
        if not whole:
            return None
        if is_inside and depth == 0:
            raise NotATraceError(f"{self.path}: no trace: its list traceEvents is inside another object; write that to a file")
        if found := _TRACE_EVENTS.search(buffer):  # the header's quotes or brackets do not match
            self._add_to_header(buffer[opening.start(1) : found.start()] + b'"":0}')
            return found.end()
        damage = f"; {self.source.damage}" if self.source.damage else ""
        raise NotATraceError(f"{self.path}: no trace: there is no list traceEvents in it{damage}")

    def _add_to_header(self, text: bytes | bytearray) -> None:
        try:
            header = json.loads(mended(text.decode(errors="replace")))
        except (ValueError, RecursionError):
            said = "header: cannot be read as JSON"
            self.first_bad = f"{self.first_bad}; {said}" if self.first_bad else said
        else:
            header.pop("", None)
            self.header.update(header)

    def _piece(self, carried: str, buffer: bytearray, start: int, end: int) -> str:
        """Take the events of `buffer[start:end]`, which have commas between, after what was left over of the piece before it.

        What stands beside them is no part of an event: brackets are put there, which costs less than a copy with brackets.
        Returns an end that is no whole event yet.
        """
        if not carried:
            buffer[start - 1], buffer[end] = b"[]"
            try:
                events = self._many.decode(memoryview(buffer)[start - 1 : end + 1])
            except (msgspec.MsgspecError, RecursionError, ValueError):
                pass
            else:
                self._take(events)
                return ""
        joined = _after(carried, buffer[start:end].decode(errors="replace"))
        # What is left over is looked at again when there is twice as much of it: an event may be larger than many pieces.
        if carried and (self._list_ended or len(joined) < self._patience):
            return joined
        left = one_by_one(joined, self._take_one, self._bad)
        self._list_ended = left.startswith("]")
        self._patience = 2 * len(left)
        return left

    def _last_piece(self, carried: str, buffer: bytearray) -> None:
        """Take the rest of the file: events, the end of their list, and the header's keys that follow it."""
        start = 1
        if last := deque(_BOUNDARY.finditer(buffer), maxlen=1):
            carried = self._piece(carried, buffer, start, last[0].start() + 1)
            start = last[0].end()
        rest = one_by_one(_after(carried, buffer[start:].decode(errors="replace")), self._take_one, self._bad, final=True).strip()
        if rest.startswith("]"):
            after = rest[1:].lstrip().lstrip(",").strip()
            if after not in ("", "}"):
                self._add_to_header(b"{" + after.encode(errors="replace"))
        else:
            if rest:
                if (more := rest.count('"ph"') - 1) > 0:
                    self._bad("cannot be read as JSON", more)
                self.skipped["truncated"] += 1
                self.total += 1
            self.header["truncated"] = True
        if damage := self.source.damage:
            self.header["damaged"] = True
            self.first_bad = f"{damage}; {self.first_bad}" if self.first_bad else damage

    def _take_one(self, value: Any) -> None:
        """Take an event whose JSON was read to Python's values."""
        try:
            event = self._one.decode(_ENCODER.encode(value))
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            self._bad(f"{message[0].lower()}{message[1:]}", where=where.rstrip("`"))
            return
        except (ValueError, OverflowError, RecursionError, TypeError) as error:
            self._bad(str(error))
            return
        self.total += 1
        if event.ph == "X":
            more = _decoded(_DECODE_ARGS, event.args) or _NO_ARGS
            self._keep([self._slice(event.cat, event.name, event.pid, event.tid, event.ts, event.dur, more)])
            return
        self.skipped[_PHASES.get(event.ph, "other phase")] += 1
        if event.ph == "M":
            self._take_metadata([_Metadata(event.name, event.pid, event.tid, _decoded(_DECODE_NAME, event.args))])
        elif event.ph == "i":
            self._take_memory([self._instant(event.name, event.pid, event.tid, event.ts, _decoded(_DECODE_MEMORY, event.args))])

    def _bad(self, message: str, events: int = 1, where: str = "") -> None:
        if self.first_bad is None:
            self.first_bad = f"traceEvents[{self.total}]{where}: {message}"
        self.total += events
        self.skipped["malformed"] += events

    def _take_metadata(self, events: Iterable[_Metadata]) -> None:
        for event in events:
            if event.name == "thread_name" and event.args is not None:
                self.thread_names[event.pid, event.tid] = event.args.name  # type: ignore[index]

    def _take(self, events: list[Any]) -> None:
        """Keep what is used of the events of a piece, and count the rest."""
        self.total += len(events)
        used = self._slice
        slices = [event for event in events if event.__class__ is used]
        if len(slices) < len(events):
            others = [event for event in events if event.__class__ is not used]
            for kind, n in Counter(map(type, others)).items():
                if kind is self._instant:
                    self.skipped["instant"] += n
                    self._take_memory([event for event in others if event.__class__ is kind])
                else:
                    self.skipped[_SKIPPED[kind]] += n
                if kind is _Metadata:
                    self._take_metadata(event for event in others if type(event) is _Metadata)
        if slices:
            self._keep(slices)

    def _take_memory(self, instants: list[Any]) -> None:
        """Keep the allocations and frees among these events, which are counted as not used already."""
        events = [event for event in instants if event.name == "[memory]" and event.args.__class__ is _MemoryArgs]
        if not events:
            return
        every = [event.args for event in events]
        at_ns, fine = self._nanoseconds([event.ts for event in events])
        devices, tracks = self._devices, self._tracks
        address, has_address = _integers([args.address for args in every], unsigned=True)
        size, has_size = _integers([args.bytes for args in every])
        device_type, has_type = _integers([args.device_type for args in every])
        index, has_index = _integers([args.device for args in every])
        total, has_total = _integers([-1 if args.total is None else args.total for args in every])
        total[~has_total | (total >= 2**62)] = -1
        fine &= has_address & has_size & (size > -(2**62)) & (size < 2**62) & has_type & has_index
        pairs = zip(device_type[fine].tolist(), index[fine].tolist(), strict=True)
        device = np.array([devices[pair] for pair in pairs], np.int64)
        track = np.array([tracks[event.pid, event.tid] for event in _chosen(events, fine)], np.int64)
        self.skipped["instant"] -= len(device)
        self._memory.append((at_ns[fine], track, device, address[fine], size[fine], total[fine]))

    def _keep(self, slices: list[Any]) -> None:
        """Append what is used of these slices to the columns, and count the rest."""
        kind = np.frombuffer(bytes(map(self._codes.__getitem__, [event.cat for event in slices])), np.uint8)
        used = kind < _PYTHON
        if not used.all():
            python = int((kind == _PYTHON).sum())
            self.skipped["python_function"] += python
            self.skipped["other category"] += int((~used).sum()) - python
            slices, kind = _chosen(slices, used), kind[used]
        if slices:
            self._append(slices, kind)

    def _append(self, slices: list[Any], kind: np.ndarray, judged: bool = False) -> None:
        start_ns, timed = self._nanoseconds([event.ts for event in slices])
        duration_us = np.array([event.dur for event in slices], np.float64)  # nan for None
        fine = timed & (duration_us >= 0) & (duration_us < LONGEST_US)
        gpu = _IS_ON_GPU[kind]
        at_zero = gpu & fine & (start_ns == 0)
        if at_zero.any() and not judged:
            self._at_zero += _chosen(slices, at_zero)
            fine &= ~at_zero
        if not fine.all():
            below = int((timed & (duration_us < 0)).sum())
            self.skipped["no timestamp"] += int((~timed).sum())
            self.skipped["negative duration"] += below
            self.skipped["no duration"] += int((timed & ~fine & ~at_zero).sum()) - below
            slices, kind, gpu = _chosen(slices, fine), kind[fine], gpu[fine]
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
        every = [event.args if event.args.__class__ is _Args else _NO_ARGS for event in slices]
        correlation = np.full(len(slices), NO_CORRELATION)
        detail = np.full(len(slices), -1, np.int32)

        places = np.flatnonzero(gpu | (kind == Kind.CALL))
        if len(places):
            correlation[places] = self._correlations([args.correlation for args in _at(every, places)])
        places = np.flatnonzero(gpu)
        if len(places):
            self._gpu_lanes.update(track[places].tolist())
            args = _at(every, places)
            track[places] = self._streams(args, _at(slices, places))
            detail[places] = self._gpu_details(args, (kind[places] == Kind.KERNEL).tolist())
            self._zero_durations += int(((kind == Kind.KERNEL) & (duration_us == 0)).sum())
        places = np.flatnonzero(kind == Kind.OP)
        if len(places):
            ops = _at(every, places)
            correlation[places] = _nodes(ops)
            detail[places] = self._inputs(ops)
        if self._codes.python == Kind.PYTHON:
            places = np.flatnonzero(kind == Kind.PYTHON)
            lines = [args.call_from for args in _at(every, places)]
            detail[places] = [self._details[line,] if line.__class__ is str else -1 for line in lines]
        self._columns.append(
            {
                "kind": kind,
                "name": name,
                "track": track,
                "start_ns": start_ns,
                "duration_us": duration_us,
                "correlation": correlation,
                "detail": detail,
            }
        )

    def _nanoseconds(self, times: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Times in microseconds, as whole nanoseconds (0 where there is none), and which are times."""
        if self._slice is _EpochSlice:
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
        number = _int(value)
        if number is None or number == -1:
            return NO_CORRELATION
        return number if 0 <= number < 2**61 else -2 - self._large[number]

    def _streams(self, all_args: list[_Args], slices: list[Any]) -> list[int]:
        """The numbers of the tracks (device, stream); from pid and tid where the arguments lack them."""
        tracks, ids = self._tracks, (int, str)
        return [
            tracks[
                args.device if args.device.__class__ in ids else event.pid,
                args.stream if args.stream.__class__ in ids else event.tid,
            ]
            for args, event in zip(all_args, slices, strict=True)
        ]

    def _inputs(self, ops: list[_Args]) -> list[int]:
        details = self._details
        return [-1 if a.dims is _NULL else details[b",".join((a.dims, a.types, a.strides))] for a in ops]

    def _gpu_details(self, all_args: list[_Args], is_kernel: list[bool]) -> list[int]:
        details = self._details
        keys: list[Any] = [
            (a.registers, a.shared_memory, bytes(a.grid), bytes(a.block), a.occupancy, _collective(a)) if kernel else a.bytes
            for a, kernel in zip(all_args, is_kernel, strict=True)
        ]
        try:
            return [-1 if key is None else details[key] for key in keys]
        except TypeError:  # a list or object where a number should be
            return [details[_hashable(key)] for key in keys]


def _after(carried: str, text: str) -> str:
    """`text` after what was left over of the piece before it; the comma between them went with the cut."""
    return carried + "," + text if carried else text


def _at(values: list[Any], places: np.ndarray) -> list[Any]:
    return [values[place] for place in places.tolist()]


def _chosen(values: list[Any], mask: np.ndarray) -> list[Any]:
    return _at(values, np.flatnonzero(mask))


def _nodes(ops: list[_Args]) -> np.ndarray:
    """What stands in the column `correlation` of ops: the number of the autograd node that it makes, counted by each thread for
    itself; for an op of the backward pass of that node -1 less it, with autograd's number of the thread in the bits above.
    """
    number, is_number = _integers([-1 if args.sequence is None else args.sequence for args in ops])
    thread, is_thread = _integers([args.forward_thread or 0 for args in ops])
    fine = is_number & (number >= 0) & (number < 1 << SEQUENCE_BITS) & is_thread & (thread >= 0) & (thread < 1 << 20)
    return np.where(fine, np.where(thread > 0, -1 - (number | thread << SEQUENCE_BITS), number), NO_CORRELATION)


def _collective(args: _Args) -> Any:
    """What a kernel of NCCL says of its message; None for other kernels."""
    if args.collective is None:
        return None
    peer = args.sender if args.receiver is None else args.receiver
    return (args.collective, args.elements_in, args.elements_out, args.group_size, args.dtype, args.group,
            args.ranks, peer, args.collective_sequence)  # fmt: skip


def _hashable(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_hashable, key))
    return key if isinstance(key, int | float | str | bytes) else None


def _decoded(decoder: msgspec.json.Decoder, raw: msgspec.Raw) -> Any:
    """An event's args, or None where they are missing, no object, or no text."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _detail(key: Any) -> Footprint | Inputs | int | str | None:
    """What a key of the details stands for: a kernel's arguments, an op's, a size in bytes, or a line of Python."""
    if isinstance(key, bytes):  # an op's: its inputs' dims, types and strides
        try:
            return Inputs(*map(_as_tuples, msgspec.json.decode(b"[" + key + b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    if not isinstance(key, tuple):
        return _int(key)
    if len(key) == 1:
        return key[0]
    registers, shared_memory, grid, block, occupancy, said = key
    reported = occupancy if isinstance(occupancy, int | float) else None
    collective = None
    if said is not None:
        name, elements_in, elements_out, group_size, dtype, group, ranks, peer, sequence = said
        collective = Collective(
            str(name), _int(elements_in), _int(elements_out), _int(group_size), str(dtype or ""), str(group or ""),
            str(ranks or ""), _int(peer), _int(sequence),
        )  # fmt: skip
    sizes = _int(registers), _int(shared_memory), _numbers(_value(grid)), _numbers(_value(block))
    return Footprint(*sizes, reported, collective)


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _int(value: Any) -> int | None:
    """An integer that may be written as a number or as a string; None for anything else."""
    try:
        whole = isinstance(value, str) or (isinstance(value, float) and value.is_integer())
        number = value if type(value) is int else int(value) if whole else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and -(2**64) < number < 2**64 else None


def _integers(values: list[Any], unsigned: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A column of integers of 64 bits (0 where there is none), and where there is one. `unsigned` ones stand as signed ones."""
    try:
        if bool in set(map(type, values)):
            raise TypeError("an array takes true for 1")
        return np.array(array("q", values)), np.ones(len(values), bool)
    except (TypeError, OverflowError):
        end = 2**64 if unsigned else 2**63
        read = [_int(value) for value in values]
        known = np.array([number is not None and -(2**63) <= number < end for number in read], bool)
        signed = [((number or 0) + 2**63) % 2**64 - 2**63 for number in read]
        return np.array(signed, np.int64), known


def _numbers(value: Any) -> tuple[int, ...] | None:
    """A grid or block: a list of numbers, which some traces hold as a string."""
    if isinstance(value, str):
        value = re.findall(r"\d+", value)
    if not isinstance(value, list) or not value:
        return None
    numbers = tuple(map(_int, value))
    return None if None in numbers else numbers  # type: ignore[return-value]


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
