"""Bytes to typed events: only the fields that the reader uses, in bounded memory, from whole and from broken files.

The list `traceEvents` is cut into pieces of some megabytes between two events, and msgspec decodes each piece at once.
A piece that is not valid JSON is decoded event by event: what can be repaired is (raw control characters, bare nan and
inf, bad backslashes), what cannot is counted, and the rest of the file is read all the same.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
import contextlib
from dataclasses import dataclass
from decimal import Decimal
import io
import json
import mmap
from pathlib import Path
import re
import sys
from typing import Any
import zlib

import msgspec
from reader.errors import NoEventsError, NotATraceError, TraceError

PIECE_BYTES = 4 << 20
LONGEST_EVENT_BYTES = 1 << 20
GZIP = 31  # zlib's word for: with gzip's header
LOST_TIME_US = 1e6  # a GPU event at 0, this long before all others, has lost its time

# Kineto's categories, today's and those of old versions, as the kinds that the reader tells apart.
KINDS = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "annotation",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "runtime": "call",
    "driver": "call",
    "xpu_runtime": "call",
    "xpu_driver": "call",
    "mtia_runtime": "call",
    "privateuse1_runtime": "call",
    "privateuse1_driver": "call",
    "overhead": "overhead",
    "gpu_user_annotation": "gpu_annotation",
}
GPU_KINDS = ("kernel", "memcpy", "memset")


class Footprint(msgspec.Struct, frozen=True, gc=False):
    """What one launch of a kernel takes, as the trace reports it. None: not reported."""

    registers_per_thread: int | None
    shared_memory_bytes: int | None
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    reported_occupancy_percent: float | None


class Inputs(msgspec.Struct, frozen=True, gc=False):
    """An op's inputs, as recorded: for each its shape, type and strides, in tuples."""

    dims: Any
    types: Any
    strides: Any


class Event(msgspec.Struct, frozen=True, gc=False):
    """One slice. `kind` is a value of KINDS, `track` the pair (pid, tid); a GPU event's track is (device, stream).

    `start_us` counts from the first slice of the file, so that it is exact to the nanosecond that traces are written in.

    `bytes` is the size of a copy or memset. `inputs` are an op's, if they were recorded.
    """

    kind: str
    name: str
    track: tuple[int | str, int | str]
    start_us: float
    duration_us: float
    correlation: int | None = None
    footprint: Footprint | None = None
    bytes: int | None = None
    inputs: Inputs | None = None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Decoded:
    """A file's events and header. `total` events were found; `skipped` says how many were not used, and why."""

    path: str
    events: list[Event]
    header: dict[str, Any]
    total: int
    skipped: dict[str, int]
    first_bad: str | None  # the place of the first event that could not be read
    zero_timestamps: int  # kernels with a start or a duration of 0


class _GpuArgs(msgspec.Struct, gc=False):
    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)
    occupancy: Any = msgspec.field(name="est. achieved occupancy %", default=None)


class _CallArgs(msgspec.Struct, gc=False):
    correlation: Any = None


class _OpArgs(msgspec.Struct, gc=False):
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=msgspec.Raw())


class _RawEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: float | None = None
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw()  # decoded by what the event is: most events need nothing of it


class _EpochEvent(_RawEvent, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]  # microseconds since 1970: a float has no room for their decimals


_DECODERS = (msgspec.json.Decoder(list[_RawEvent]), msgspec.json.Decoder(_RawEvent))
_EPOCH_DECODERS = (msgspec.json.Decoder(list[_EpochEvent]), msgspec.json.Decoder(_EpochEvent))
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_LENIENT = json.JSONDecoder(strict=False, parse_float=Decimal)
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?(\d+)')
EPOCH_US = 1e12  # a time beyond is counted since 1970, not since the machine started
_DECODE_GPU_ARGS = msgspec.json.Decoder(_GpuArgs)
_DECODE_CALL_ARGS = msgspec.json.Decoder(_CallArgs)
_DECODE_OP_ARGS = msgspec.json.Decoder(_OpArgs)
_NO_GPU_ARGS = _GpuArgs()
_INFINITY = 1e18  # microseconds: a time beyond is none
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*([\[{])")
_TRACE_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'("traceEvents"\s*:\s*\[)|"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_FIRST_KEY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')
_ANY_BOUNDARY = re.compile(r"\}\s*,\s*(?=\{)")  # between two events, or two objects inside one
_SEPARATOR = re.compile(r"[\s,]*")
_END = re.compile(r"\}(?=\s*\])")  # of the last event of the list
_SPACES_FOR_CONTROLS = {code: " " for code in range(32)}
_BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)(?:[-+]?(?:nan|inf(?:inity)?)|N/A)(?=\s*[,}\]])", re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_PHASES = {"M": "metadata", "s": "flow", "t": "flow", "f": "flow", "i": "instant", "I": "instant", "C": "counter"}


def decode(source: str, progress: Callable[[float], None] | None = None) -> Decoded:
    """Read the trace at the path `source` (`.json` or `.json.gz`, by content), or on standard input for "-".

    `progress` is called with the share of the file that is done. Raises TraceError: file missing or unreadable;
    NotATraceError: no Chrome trace; NoEventsError: a trace without events.
    """
    with file_bytes(source) as file:
        return decode_bytes(file, source, progress)


def decode_bytes(file: "Bytes", source: str, progress: Callable[[float], None] | None = None) -> Decoded:
    """As `decode`, of bytes that are read already."""
    return _Decoder(file, _shown(source), progress).decode()


def _shown(source: str) -> str:
    return "standard input" if source == "-" else source


@contextlib.contextmanager
def file_bytes(source: str) -> Iterator["Bytes"]:
    """All of the file at the path `source`, or of standard input for "-", unzipped if it is gzipped.

    A gzip file that is cut off or damaged is unzipped as far as it goes; `damage` then says what is wrong. Raises TraceError.
    """
    path = _shown(source)
    try:
        with contextlib.ExitStack() as stack:
            if source == "-":
                data: bytes | mmap.mmap = sys.stdin.buffer.read()
            else:
                file = stack.enter_context(open(source, "rb"))
                if not Path(source).is_file():  # a pipe: cannot be mapped
                    data = file.read()
                elif file.seek(0, io.SEEK_END) == 0:
                    data = b""
                else:
                    data = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            if not data:
                raise NotATraceError(f"{path}: the file is empty" if source != "-" else f"{path}: there is nothing on it")
            yield Bytes(*_unzip(data, path)) if data[:2] == b"\x1f\x8b" else Bytes(data)
    except IsADirectoryError as error:
        raise TraceError(f"{path}: a folder; name the traces in it: {path.rstrip('/')}/*.json") from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Bytes:
    """A file's bytes. `damage` says why some are missing at their end, in words; empty if none are."""

    data: bytes | mmap.mmap
    damage: str = ""


def _unzip(data: bytes | mmap.mmap, path: str) -> tuple[bytes, str]:
    """All that can be unzipped, and what is wrong with the rest."""
    unzipped, position, size = bytearray(), 0, PIECE_BYTES
    unzipper = zlib.decompressobj(wbits=GZIP)
    while position < len(data):
        before = unzipper.copy()
        try:
            unzipped += unzipper.decompress(data[position : position + size])
        except zlib.error as error:
            if size > 1:  # what comes before the damaged byte is whole: on in smaller steps
                unzipper, size = before, max(size // 16, 1)
                continue
            if not unzipped:
                raise NotATraceError(f"{path}: a damaged gzip file: {error}") from error
            return bytes(unzipped), f"the gzip file is damaged at byte {position} ({str(error).partition(': ')[2] or error})"
        position += size
        if unzipper.eof:  # several gzip files in a row are one
            position = min(position, len(data)) - len(unzipper.unused_data)
            unzipper = zlib.decompressobj(wbits=GZIP)
            if data[position : position + 2] != b"\x1f\x8b":
                break  # padding
    return bytes(unzipped), ""


class _Decoder:
    def __init__(self, source: Bytes, path: str, progress: Callable[[float], None] | None):
        self.data, self.damage, self.path, self.progress = source.data, source.damage, path, progress
        self.events: list[Event] = []
        self.skipped: Counter[str] = Counter()
        self.total = 0
        self.first_bad: str | None = None
        self.header: dict[str, Any] = {}
        self._gpu_lanes: set[tuple] = set()  # (pid, tid) of the GPU events
        self._shared: dict[Any, Any] = {}  # equal names, tracks and footprints are stored once
        self._base_us: Any = None  # of the first slice; a Decimal in a file that counts since 1970
        self._at_zero: list[Event] = []  # GPU events with the timestamp 0
        self._zero_durations = 0
        self._has_inputs = False  # whether an op's args hold something in this piece

    def decode(self) -> Decoded:
        start = self._list_start()
        time = _FIRST_TIME.search(self.data, start)
        self._many: Any
        self._one: Any
        self._many, self._one = _EPOCH_DECODERS if time and int(time[1]) > EPOCH_US else _DECODERS
        first = _FIRST_KEY.match(self.data, start)
        key = first[1] if first else b'"ph"'
        # The end of one event and the start of the next. No string holds this: a quote inside it is escaped.
        boundary = re.compile(rb"\}\s*,\s*(?=\{\s*" + re.escape(key) + rb"\s*:)")
        position, carried = start, b""
        while cut := boundary.search(self.data, position + PIECE_BYTES):
            carried = self._piece(self._after(carried, self.data[position : cut.start() + 1]), boundary)
            position = cut.end()
            if self.progress:
                self.progress(position / len(self.data))
        self._last_piece(self._after(carried, self.data[position:]), boundary)
        self._judge_zeros()
        self._check()
        self._tell_gpu_annotations()
        skipped = {reason: n for reason, n in sorted(self.skipped.items()) if n}
        zeros = self.skipped["zero timestamp"] + self._zero_durations
        return Decoded(self.path, self.events, self.header, self.total, skipped, self.first_bad, zeros)

    def _tell_gpu_annotations(self) -> None:
        """Old traces repeat the annotations on the GPU's lane, under the category of the CPU's."""
        doubtful = [i for i, e in enumerate(self.events) if e.kind == "annotation" and e.track in self._gpu_lanes]
        if doubtful:
            cpu_lanes = {e.track for e in self.events if e.kind in ("op", "call")}
            for index in doubtful:
                if self.events[index].track not in cpu_lanes:
                    self.events[index] = msgspec.structs.replace(self.events[index], kind="gpu_annotation")

    def _judge_zeros(self) -> None:
        """A GPU event at 0 is a real one if the others start near 0, too; else its time was lost."""
        base_us = float(self._base_us or 0.0)
        if base_us + min((e.start_us for e in self.events), default=0.0) > LOST_TIME_US:
            self.skipped["zero timestamp"] += len(self._at_zero)
        else:
            self.events += [msgspec.structs.replace(e, start_us=round(-base_us, 3)) for e in self._at_zero]

    @staticmethod
    def _after(carried: bytes, text: bytes) -> bytes:
        """`text` after what was left over of the piece before it; the comma between them went with the cut."""
        return carried + b"," + text if carried else text

    def _check(self) -> None:
        if not self.total:
            raise NoEventsError(f"{self.path}: the trace has no events")
        if not self.events:
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.skipped.items()))
            place = f"; first {self.first_bad}" if self.first_bad else ""
            raise NoEventsError(f"{self.path}: none of the {self.total} events is one that a profiler writes ({reasons}{place})")

    def _list_start(self) -> int:
        """The position after the `[` of the events; decodes the header's keys before it."""
        opening = _OPENING.match(self.data)
        if opening is None:
            start = bytes(self.data[:20])
            if start[:1] == b"\x0a":
                raise NotATraceError(
                    f"{self.path}: a trace in Perfetto's own format; this reads the .json that torch.profiler's "
                    "export_chrome_trace writes"
                )
            raise NotATraceError(f"{self.path}: not JSON: it starts with {start!r}")
        if opening[1] == b"[":
            return opening.end()
        depth = 0
        for token in _TOKEN.finditer(self.data, opening.start(1)):
            if token[1]:
                if depth == 1:
                    self._read_header(self.data[opening.start(1) : token.start()] + b'"":0}')
                    return token.end()
                depth += 1  # the list that the key has
            elif token[0] in (b"{", b"["):
                depth += 1
            elif token[0] in (b"}", b"]"):
                depth -= 1
        if found := _TRACE_EVENTS.search(self.data):  # the header's quotes or brackets do not match
            self._read_header(self.data[opening.start(1) : found.start()] + b'"":0}')
            return found.end()
        raise NotATraceError(f"{self.path}: no trace: there is no list traceEvents in it")

    def _read_header(self, text: bytes) -> None:
        try:
            header = json.loads(_repaired(text.decode(errors="replace")), strict=False)
        except (ValueError, RecursionError):
            self.first_bad = self.first_bad or "header: cannot be read as JSON"
        else:
            header.pop("", None)
            self.header.update(header)

    def _piece(self, text: bytes, boundary: re.Pattern[bytes]) -> bytes:
        """Take the events of `text`, which have commas between; returns an end that is no whole event yet."""
        self._has_inputs = b'"Input Dims"' in text
        try:
            raw_events = self._many.decode(b"[%b]" % text)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return self._one_by_one(text.decode(errors="replace"), boundary).encode(errors="replace")
        self._take(raw_events)
        return b""

    def _last_piece(self, text: bytes, boundary: re.Pattern[bytes]) -> None:
        """Take the rest of the file: events, the end of their list, and the header's keys that follow it."""
        if last := deque(boundary.finditer(text), maxlen=1):
            carried = self._piece(text[: last[0].start() + 1], boundary)
            text = self._after(carried, text[last[0].end() :])
        rest = self._one_by_one(text.decode(errors="replace"), boundary, final=True).strip()
        if rest.startswith("]"):
            after = rest[1:].lstrip().lstrip(",").strip()
            if after not in ("", "}"):
                self._read_header(b"{" + after.encode(errors="replace"))
        else:
            self.skipped["truncated"] += 1 if rest else 0
            self.total += 1 if rest else 0
            self.header["truncated"] = True
        if self.damage:
            self.first_bad = f"{self.damage}; {self.first_bad}" if self.first_bad else self.damage

    def _one_by_one(self, text: str, boundary: re.Pattern[bytes], final: bool = False) -> str:
        """Take events until the list ends (`]`) or no whole event is left; returns what follows."""
        next_event = re.compile(boundary.pattern.decode(errors="replace"))
        self._has_inputs = '"Input Dims"' in text
        position = 0
        while True:
            if position > LONGEST_EVENT_BYTES // 16:  # an error's place is counted from the text's start
                text, position = text[position:], 0
            position = _SEPARATOR.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
            if position == len(text) or text[position] == "]":
                return text[position:]
            try:
                value, position = _LENIENT.raw_decode(text, position)
            except (ValueError, RecursionError) as error:
                at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(text) - 1
                if at_end and not final and len(text) - position < LONGEST_EVENT_BYTES:
                    return text[position:]  # the piece was cut inside an event: the rest of it is in the next one
                cut = next_event.search(text, position) or _ANY_BOUNDARY.search(text, position)
                if cut is None:
                    end = _END.search(text, position)
                    if end is None or not self._repair(text[position : end.start() + 1]):
                        return text[position:]
                    position = end.start() + 1
                    continue
                if not self._repair(text[position : cut.start() + 1]):
                    self._bad("cannot be read as JSON")
                position = cut.end()
            else:
                self._convert(value)

    def _repair(self, text: str) -> bool:
        try:
            value = json.loads(_repaired(text), strict=False, parse_float=Decimal)
        except (ValueError, RecursionError):
            return False
        self._convert(value)
        return True

    def _convert(self, value: Any) -> None:
        try:
            self._take([self._one.decode(_ENCODER.encode(value))])
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            self._bad(f"{message[0].lower()}{message[1:]}", where.rstrip("`"))
        except (ValueError, OverflowError, RecursionError, TypeError) as error:
            self._bad(str(error))

    def _bad(self, message: str, where: str = "") -> None:
        if self.first_bad is None:
            self.first_bad = f"traceEvents[{self.total}]{where}: {message}"
        self.total += 1
        self.skipped["malformed"] += 1

    def _take(self, raw_events: list[_RawEvent]) -> None:
        """Keep the events that are slices the reader uses; count the others as skipped. This loop is the hot one."""
        skipped, keep, share, kinds = self.skipped, self.events.append, self._shared.setdefault, KINDS
        has_inputs, base_us = self._has_inputs, self._base_us
        self.total += len(raw_events)
        last_lane: Any = ()
        for raw in raw_events:
            if raw.ph != "X":
                skipped[_PHASES.get(raw.ph, "other phase")] += 1
                continue
            kind = kinds.get(raw.cat or "") or kinds.get((raw.cat or "").lower())
            if kind is None:
                skipped["python_function" if raw.cat == "python_function" else "other category"] += 1
                continue
            start_us, duration_us = raw.ts, raw.dur
            if type(start_us) is Decimal and not start_us.is_finite():  # comparing it would raise
                start_us = None
            if start_us is None or not -_INFINITY < start_us < _INFINITY:
                skipped["no timestamp"] += 1
                continue
            if duration_us is None or not 0 <= duration_us < _INFINITY:
                bad = duration_us is not None and duration_us < 0
                skipped["negative duration" if bad else "no duration"] += 1
                continue
            if not start_us and kind in GPU_KINDS:
                self._at_zero.append(self._gpu_event(raw, kind, start_us, duration_us))
                continue
            if base_us is None:
                base_us = self._base_us = start_us
            start_us = round(float(start_us - base_us), 3)
            if kind in GPU_KINDS:
                keep(self._gpu_event(raw, kind, start_us, duration_us))
                continue
            correlation = inputs = None
            if kind == "call":
                args = _args(_DECODE_CALL_ARGS, raw)
                correlation = _int(args.correlation) if args else None
            elif has_inputs and kind == "op":
                args = _args(_DECODE_OP_ARGS, raw)
                inputs = self._inputs(args) if args else None
            lane = (raw.pid, raw.tid)
            if lane != last_lane:  # most events follow one of their own lane
                last_lane = share(lane, lane)
            name = share(raw.name, raw.name)
            keep(Event(kind, name, last_lane, start_us, duration_us, correlation, None, None, inputs))

    def _gpu_event(self, raw: _RawEvent, kind: str, start_us: float, duration_us: float) -> Event:
        args = _args(_DECODE_GPU_ARGS, raw) or _NO_GPU_ARGS
        lane = (raw.pid, raw.tid)
        self._gpu_lanes.add(lane)
        device = args.device if isinstance(args.device, int | str) else raw.pid
        stream = args.stream if isinstance(args.stream, int | str) else raw.tid
        track = (device, stream)
        footprint = _footprint(args) if kind == "kernel" else None
        if kind == "kernel" and not duration_us:
            self._zero_durations += 1
        share = self._shared.setdefault
        return Event(
            kind,
            share(raw.name, raw.name),
            share(track, track),
            start_us,
            duration_us,
            _int(args.correlation),
            share(footprint, footprint) if footprint else None,
            _int(args.bytes),
        )

    def _inputs(self, args: _OpArgs) -> Inputs | None:
        """An op's inputs; equal ones are decoded once."""
        texts = bytes(args.dims), bytes(args.types), bytes(args.strides)
        if not texts[0]:
            return None
        if texts not in self._shared:
            try:
                self._shared[texts] = Inputs(*(_as_tuples(msgspec.json.decode(text)) if text else None for text in texts))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._shared[texts] = None
        return self._shared[texts]


def _args(decoder: msgspec.json.Decoder, raw: _RawEvent) -> Any:
    """An event's args, or None where they are missing, no object, or no text."""
    try:
        return decoder.decode(raw.args)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _repaired(text: str) -> str:
    """JSON without the faults that profilers have written: raw control characters, bare nan, inf and N/A, bad backslashes."""
    text = _BARE_NUMBER.sub(r"\1null", text.translate(_SPACES_FOR_CONTROLS))
    return _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)


def _int(value: Any) -> int | None:
    """An integer that may be written as a number or as a string; None for anything else."""
    try:
        number = value if type(value) is int else int(value) if isinstance(value, str | float) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and -(2**64) < number < 2**64 else None


def _numbers(value: Any) -> tuple[int, ...] | None:
    """A grid or block: a list of numbers, which some traces hold as a string."""
    if isinstance(value, str):
        value = re.findall(r"\d+", value)
    if not isinstance(value, list) or not value:
        return None
    numbers = tuple(map(_int, value))
    return None if None in numbers else numbers  # type: ignore[return-value]


def _footprint(args: _GpuArgs) -> Footprint:
    occupancy = args.occupancy if isinstance(args.occupancy, int | float) else None
    return Footprint(_int(args.registers), _int(args.shared_memory), _numbers(args.grid), _numbers(args.block), occupancy)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
