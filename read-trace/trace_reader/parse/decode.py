"""Bytes to events, in bounded memory, from whole and from broken files; parse/event_columns.py makes columns of them.

The list `traceEvents` is cut into pieces of half a megabyte between two events (larger ones do not stay in the processor's
cache). msgspec decodes a piece to one typed object an event, and each field of all of them becomes a column at once. A
piece that is not as it should be is read event by event (parse/repair.py); the others are not slowed down by it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice
import json
import operator
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.errors import NoEventsError, NotATraceError, TraceError
from trace_reader.model.slices import Counters, Memory, Slices, Track
from trace_reader.parse.byte_source import Blocks, Bytes, open_blocks, shown
from trace_reader.parse.event_columns import LONGEST_US, EventColumns
from trace_reader.parse.event_types import ARROW, ARROWS_NUMBER, SKIPPED, AnyEpochEvent, AnyEvent
from trace_reader.parse.foreign_files import what_it_is
from trace_reader.parse.parts import Part, cut
from trace_reader.parse.repair import EVENT, mended, next_event, one_by_one
from trace_reader.system.processes import workers
from trace_reader.units import human_bytes

PIECE_BYTES = 1 << 19
LARGEST_PIECE_BYTES = 1 << 22
LARGEST_EVENT = 1 << 24  # characters; with so many objects inside, it would take minutes
LARGEST_REST_BYTES = 1 << 26  # without the beginning of an event: of a name, and of the header before or behind the events
SAMPLE_BYTES = 1 << 17  # from whose first times it is told since when times count
SAMPLE_TIMES = 1000
IMPLAUSIBLE = 100  # events of a piece that cannot be read; if they are half of it, the file is no trace from there on
EXACT_US = 2**43  # below, a float tells the nanoseconds; beyond are times since 1970


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
    counters: Counters
    functions_ns: np.ndarray  # when each function of Python began
    arrows: (
        np.ndarray
    )  # between the nodes of CUDA graphs: track and end (ns) of what comes before, track and start of what follows
    zero_ns: int  # when the first slice starts, by the file's own clock


_ENCODER = msgspec.json.Encoder(decimal_format="number")
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)')
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*([\[{])")
_TRACE_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'("traceEvents"\s*:\s*\[)|"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}\[\]]', re.DOTALL)
# The end of one event and the start of the next. No string holds it: a quote inside a string is escaped.
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + EVENT.encode() + rb")")
_ANY_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")  # between two events, or two objects inside one
_PH = re.compile(r'"ph"\s*:')
_SECOND_LIST = re.compile(r'"traceEvents"\s*:\s*\[\s*$')
_ZEROS = bytes(16)  # in a row: of no name, but of a disk or a transfer that failed
_LONGEST_BOUNDARY = 1 << 14  # bytes to the first event's "ph", at most


def decode(source: str, progress: Callable[[float], None] | None = None, stacks: bool = False) -> Decoded:
    """Read the trace at the path `source` (`.json` or `.json.gz`, by content), or on standard input for "-".

    `progress` is called with the share of the file that is done; `stacks`: keep the functions of Python, too. Raises TraceError:
    file missing or unreadable; NotATraceError: no Chrome trace; NoEventsError: a trace without events.
    """
    if (found := _on_all_cores(source, progress, stacks)) is not None:
        return found
    with open_blocks(source, progress) as blocks:
        return _Decoder(blocks, shown(source), stacks).decode()


def decode_bytes(file: Bytes, source: str) -> Decoded:
    """As `decode`, of bytes that are read already."""
    return _Decoder(file, shown(source)).decode()


def _on_all_cores(source: str, progress: Callable[[float], None] | None, stacks: bool) -> Decoded | None:
    """As `decode`, of a large file each of whose parts is whole; None for any other, which one process reads and accounts for.

    This process reads the first part and what follows the last, a process of its own each of the others.
    """
    parts = cut(source, _BOUNDARY, progress)
    if not parts:
        return None
    head, *others = parts
    first = _Decoder(head, shown(source), stacks)
    try:
        blocks = iter(head)
        buffer = first.begin(blocks)
        with workers(_decode_part, [(part, first.columns.epoch, stacks) for part in others]) as answers:
            if not first.take_part(blocks, buffer):
                return None
            rest = b""
            for answer in answers:
                if answer is None:
                    return None
                total, columns, rest = answer
                first.total += total
                first.columns.merge(columns)
        first.take_end(rest)
    except (TraceError, OSError):
        return None  # one process says what it is
    return None if first.is_odd else first.decoded()


def _decode_part(part: Part, epoch: bool, stacks: bool) -> tuple[int, Any, bytes] | None:
    """Return how many events are in a part, their columns, and what follows it; None where one of them is not as it should be."""
    decoder = _Decoder(part, shown(part.path), stacks)
    decoder.prepare(epoch)
    if not decoder.take_part(iter(part), bytearray(b"[")) or decoder.header or part.damage:
        return None
    state = decoder.columns.state()
    return None if state is None else (decoder.total, state, part.rest)


class _Decoder:
    def __init__(self, source: Blocks | Bytes | Part, path: str, stacks: bool = False):
        self.source, self.path = source, path
        self.stacks = stacks
        self.total = 0
        self.first_bad: str | None = None
        self.header: dict[str, Any] = {}
        self._patience = 0  # characters that a left over end must have before it is looked at again
        self._offset = 0  # bytes of the file before the buffer
        self._given_up = False  # what follows is no trace
        self._left = False  # what follows is not of this trace: its events are counted

    def decode(self) -> Decoded:
        blocks = iter([self.source.data]) if isinstance(self.source, Bytes) else iter(self.source)
        rest = self._pieces(blocks, self.begin(blocks))
        if rest is not None:
            self._last_piece(*rest)
        return self.decoded()

    def begin(self, blocks: Iterator[bytes]) -> bytearray:
        """Read the header; returns the `[` of the events and what follows."""
        buffer = self._read_header(blocks)
        while len(buffer) < SAMPLE_BYTES and (block := next(blocks, None)) is not None:
            buffer += block
        self.prepare(any(EXACT_US <= float(time[1]) < LONGEST_US for time in islice(_TIME.finditer(buffer), SAMPLE_TIMES)))
        return buffer

    def prepare(self, epoch: bool) -> None:
        """`epoch`: times count since 1970."""
        self.columns = EventColumns(epoch, self.stacks)
        one = self.columns
        every = reduce(operator.or_, SKIPPED, one.slice_type | one.instant_type | one.counter_type)
        self._many: Any = msgspec.json.Decoder(list[every], strict=False)  # type: ignore[valid-type]  # times may be strings
        self._one: Any = msgspec.json.Decoder(AnyEpochEvent if epoch else AnyEvent, strict=False)

    @property
    def is_odd(self) -> bool:
        """Whether something is not as it should be, and has to be accounted for."""
        told = {"unread", "truncated", "damaged"}.intersection(self.header)
        return bool(told or self.first_bad or self._left or self._given_up or self.columns.skipped["malformed"])

    def take_part(self, blocks: Iterator[bytes], buffer: bytearray) -> bool:
        """Take the events of a part that ends behind an event; whether all is as it should be."""
        rest = self._pieces(blocks, buffer)
        if rest is None:
            return False
        carried, buffer = rest
        left = self._piece(carried, buffer + b"]", 1, len(buffer))
        return not left.strip() and not self.is_odd

    def take_end(self, text: bytes) -> None:
        """Take the events of the last part, and the header's keys behind them."""
        self._last_piece("", bytearray(b"[" + text))

    def _pieces(self, blocks: Iterator[bytes], buffer: bytearray) -> tuple[str, bytearray] | None:
        """Take the events of `buffer` and `blocks`, piece by piece, up to the last; what is left. None: it was given up."""
        carried = ""
        searched = 0  # no boundary begins before, beyond the piece's size
        while True:
            position = 1
            while not self._given_up and (cut := self._cut(buffer, position, searched)):
                carried = self._piece(carried, buffer, position, cut.start() + 1)
                position = cut.end()
            if self._given_up:
                return None
            if position > 1:
                self._offset += position - 1
                buffer = buffer[position - 1 :]  # a new one: slices that are kept may still point into the old one
            searched = len(buffer) - _LONGEST_BOUNDARY
            if len(buffer) > LARGEST_REST_BYTES or len(carried) > LARGEST_EVENT:
                if last := deque(_BOUNDARY.finditer(buffer), maxlen=1):
                    self._piece(carried, buffer, 1, last[0].start() + 1)
                    self._offset += last[0].end() - 1
                self._give_up(self._offset, self.total)
                return None
            if (block := next(blocks, None)) is None:
                return carried, buffer
            buffer += block

    def _cut(self, buffer: bytearray, position: int, searched: int) -> re.Match[bytes] | None:
        """Return where a piece that begins at `position` can end."""
        if found := _BOUNDARY.search(buffer, max(position + PIECE_BYTES, searched)):
            return found
        if len(buffer) - position > LARGEST_PIECE_BYTES:  # of events whose "ph" stands behind other objects, perhaps
            return _ANY_BOUNDARY.search(buffer, position + PIECE_BYTES)
        return None

    def decoded(self) -> Decoded:
        if not self.total:
            why = (
                f"no event of it can be read: {self.first_bad}"
                if self._given_up
                else "the trace has no events: run the program inside profile(), for as many steps as its schedule asks"
            )
            raise NoEventsError(f"{self.path}: {why}")
        columns = self.columns
        finished = columns.finish()
        skipped = {reason: n for reason, n in sorted(columns.skipped.items()) if n}
        if finished is None:
            reasons = ", ".join(f"{n} {reason}" for reason, n in skipped.items())
            place = f"; first {self.first_bad}" if self.first_bad else ""
            if not reasons:
                raise NoEventsError(f"{self.path}: its {self.total} events are allocations and frees, without an op or a kernel")
            if columns.is_of_xla:
                raise NoEventsError(f"{self.path}: written by XLA's profiler; open it with XProf or Perfetto")
            raise NoEventsError(f"{self.path}: none of the {self.total} events is one that a profiler writes ({reasons}{place})")
        slices, memory, counters, functions_ns, arrows, zero_ns = finished
        return Decoded(
            path=self.path,
            slices=slices,
            header=self.header,
            total=self.total,
            skipped=skipped,
            first_bad=self.first_bad,
            zero_timestamps=columns.zero_timestamps,
            thread_names=columns.thread_names,
            memory=memory,
            counters=counters,
            functions_ns=functions_ns,
            arrows=arrows,
            zero_ns=zero_ns,
        )

    def _read_header(self, blocks: Iterator[bytes]) -> bytearray:
        """Decode the header's keys before the list of events; returns its `[` and what follows."""
        buffer, whole = bytearray(next(blocks, b"")), False
        while (start := self._list_start(buffer, whole)) is None:
            size = len(buffer)
            if size > LARGEST_REST_BYTES:
                raise NotATraceError(f"{self.path}: no trace: there is no list traceEvents in its first {human_bytes(size)}")
            while len(buffer) < 2 * size and not whole:  # twice as much each time: looking at it again costs no more than it
                block = next(blocks, None)
                whole = block is None
                buffer += block or b""
        self._offset = start - 1
        del buffer[: start - 1]
        return buffer

    def _list_start(self, buffer: bytearray, whole: bool) -> int | None:
        """Return the position after the `[` of the events, or None: not in the buffer, which is not the `whole` file."""
        opening = _OPENING.match(buffer)
        if opening is None:
            raise NotATraceError(f"{self.path}: {what_it_is(self.path, bytes(buffer[:20]))}")
        if opening[1] == b"[":
            return opening.end()
        depth, is_inside = 0, False
        for token in _TOKEN.finditer(buffer, opening.start(1)):
            if token[1]:
                if depth == 1:
                    self._take_header(buffer[opening.start(1) : token.start()] + b'"":0}')
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
            self._take_header(buffer[opening.start(1) : found.start()] + b'"":0}')
            return found.end()
        damage = f"; {self.source.damage}" if self.source.damage else ""
        raise NotATraceError(f"{self.path}: no trace: there is no list traceEvents in it{damage}")

    def _add_to_header(self, text: bytes | bytearray | str) -> bool:
        """Return whether it can be read."""
        try:
            header = json.loads(mended(text if isinstance(text, str) else text.decode(errors="replace")))
        except (ValueError, RecursionError):
            return False
        header.pop("", None)
        self.header.update(header)
        return True

    def _take_header(self, text: bytes | bytearray) -> None:
        if not self._add_to_header(text):
            self._say("header: cannot be read as JSON")

    def _say(self, message: str) -> None:
        """Of what is wrong with the file, the first is said in the report, and what follows it."""
        self.first_bad = f"{self.first_bad}; {message}" if self.first_bad else message

    def _piece(self, carried: str, buffer: bytearray, start: int, end: int) -> str:
        """Take the events of `buffer[start:end]`, which have commas between, after what was left over of the piece before it.

        What stands beside them is no part of an event: brackets are put there, which costs less than a copy with brackets.
        Returns an end that is no whole event yet.
        """
        if not carried and not self._left:
            buffer[start - 1], buffer[end] = b"[]"
            try:
                events = self._many.decode(memoryview(buffer)[start - 1 : end + 1])
            except (msgspec.MsgspecError, RecursionError, ValueError):
                pass
            else:
                self.total += len(events)
                self.columns.take(events)
                if ARROWS_NUMBER.search(buffer, start, end):
                    self.columns.take_arrows(ARROW.findall(buffer, start, end))
                return ""
        self._look_for_zeros(buffer, start, end)  # of the others: zeros are no JSON
        joined = _after(carried, buffer[start:end].decode(errors="replace"))
        # What is left over is looked at again when there is twice as much of it: an event may be larger than many pieces.
        if carried and len(joined) < self._patience:
            return joined
        found, lost = self.total, self.columns.skipped["malformed"]
        left = self._take_text(joined, self._offset + end)
        lost = self.columns.skipped["malformed"] - lost
        if lost >= IMPLAUSIBLE and 2 * lost > self.total - found:
            self._give_up(self._offset + start, found)
        self._patience = 2 * len(left)
        return left

    def _look_for_zeros(self, buffer: bytearray, start: int, end: int) -> None:
        if (zeros := buffer.find(_ZEROS, start, end)) >= 0 and not self.header.get("damaged"):
            self._say(f"zero bytes from byte {self._offset + zeros} on: what was written there is lost")
            self.header["damaged"] = True

    def _give_up(self, byte: int, found: int) -> None:
        """What follows this byte, after so many events, is no trace."""
        self._given_up = self.header["unread"] = True
        self._say(f"from byte {byte} on nothing is certain: {found} events before it")

    def _take_text(self, text: str, end: int, final: bool = False) -> str:
        """Take the events of a text that ends at byte `end`; returns what is left over: the end of the list with what follows it,
        in which there is no event, or the beginning of an event.
        """
        if self._left:
            self._leave(text, end)
            return ""
        left = one_by_one(text, self._take_one, self._bad, final)
        while left.startswith("]") and (event := next_event(left, final)) is not None:
            if not self._goes_on(left[1:event]):
                self._leave(left[event:], end)
                return ""
            left = one_by_one(left[event:], self._take_one, self._bad, final)
        return left

    def _goes_on(self, between: str) -> bool:
        """Return whether the event that follows is one of this trace: between the list's end and it stand a bracket too much, a
        broken event, or other keys of the trace, perhaps with the key of a second list.
        """
        if lost := len(_PH.findall(between)):
            self._bad("cannot be read as JSON", lost)
            return True
        keys = _SECOND_LIST.sub("", between).strip(", \t\r\n")
        if not keys.strip("[],"):
            if not _SECOND_LIST.search(between):
                self._bad("a bracket stands between two events", 0)
            return True
        return self._add_to_header(f"{{{keys}}}")

    def _leave(self, text: str, end: int) -> None:
        """Count the events of a text that ends at byte `end` and is not read."""
        if not self._left:
            self._left = self.header["unread"] = True
            self._say(f"what begins at byte {end - len(text.encode(errors='replace'))} is not of this trace, and not read")
        lost = len(_PH.findall(text))
        self.total += lost
        self.columns.skipped["not read"] += lost

    def _last_piece(self, carried: str, buffer: bytearray) -> None:
        """Take the rest of the file: events, the end of their list, and the header's keys that follow it."""
        start, end = 1, self._offset + len(buffer)
        if last := deque(_BOUNDARY.finditer(buffer), maxlen=1):
            carried = self._piece(carried, buffer, start, last[0].start() + 1)
            start = last[0].end()
        self._look_for_zeros(buffer, start, len(buffer))
        rest = self._take_text(_after(carried, buffer[start:].decode(errors="replace")), end, final=True).strip()
        if rest.startswith("]"):
            after = rest[1:].lstrip().lstrip(",").strip()
            if after not in ("", "}"):
                self._take_header(b"{" + after.encode(errors="replace"))
        elif not self._left:
            if rest:
                if (more := rest.count('"ph"') - 1) > 0:
                    self._bad("cannot be read as JSON", more)
                self.columns.skipped["truncated"] += 1
                self.total += 1
            self.header["truncated"] = True
        if damage := self.source.damage:
            self.header["damaged"] = True
            self.first_bad = f"{damage}; {self.first_bad}" if self.first_bad else damage

    def _take_one(self, value: Any) -> None:
        """Take an event whose JSON was read to Python's values."""
        try:
            text = _ENCODER.encode(value)
            event = self._one.decode(text)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            self._bad(f"{message[0].lower()}{message[1:]}", where=where.rstrip("`"))
            return
        except (ValueError, OverflowError, RecursionError, TypeError) as error:
            self._bad(str(error))
            return
        self.total += 1
        self.columns.take_one(event)
        if ARROWS_NUMBER.search(text):
            self.columns.take_arrows(ARROW.findall(text))

    def _bad(self, message: str, events: int = 1, where: str = "") -> None:
        if self.first_bad is None:
            self._say(f"traceEvents[{self.total}]{where}: {message}")
        self.total += events
        self.columns.skipped["malformed"] += events


def _after(carried: str, text: str) -> str:
    """`text` after what was left over of the piece before it; the comma between them went with the cut."""
    return carried + "," + text if carried else text
