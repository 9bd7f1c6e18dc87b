"""What the CPU did in some stretches of time: by the innermost thing that is recorded at each moment."""

from collections import defaultdict
from itertools import pairwise
import re

import msgspec
import numpy as np
from trace_reader.link.intervals import merged
from trace_reader.link.nesting import BLOCK, innermost, innermost_over_time, outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_launch, loads_code, manages_memory
from trace_reader.names.kernel_names import is_collective_on_cpu
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.names.range_names import is_loader

_COMPILING = re.compile(r"\(dynamo_timed\)|^(?:dynamo|entire_frame_compile|backend_compile|inductor_compile)$")
_OF_A_LIBRARY = re.compile(r"(?!autograd::)[A-Za-z_]\w*::\w+(?:\.\w+)?$")
LONG_NS = 100_000  # of an op that launches nothing: it computes, and does not only prepare
WHAT = ("python", "silent", "annotation", "op", "launch", "call", "memory", "loading", "compilation", "profiler", "collective")
IN_NO_OP = tuple(WHAT.index(what) for what in ("python", "silent", "annotation"))


def is_compiling(name: str) -> bool:
    """Return whether an op is a row of torch.compile's own, at work."""
    return _COMPILING.search(name) is not None


def cpu_computing(trace: Trace) -> Rows:
    """Return the ops in which the CPU itself computes: outermost ones of a library (aten::add) that call nothing of a device, of
    LONG_NS and more, on the thread of the steps or of a backward pass, outside of a DataLoader and of torch.compile at work.
    """
    slices, parent = trace.slices, trace.parent
    calling = np.zeros(len(slices) + 1, bool)  # the last for -1
    rows = parent[trace.calls.at]
    while (rows >= 0).any():
        rows = rows[(rows >= 0) & ~calling[rows]]
        calling[rows] = True
        rows = parent[rows]
    calling[-1] = False
    tracks = np.append(trace.backward_tracks, trace.steps.track[-1:])
    ops = trace.ops.where((trace.ops.duration_us * 1000 >= LONG_NS) & ~calling[trace.ops.at])
    ops = ops.where(among(ops.track, tracks) & ops.is_named(lambda name: _OF_A_LIBRARY.match(name) is not None))
    ops = Rows(slices, outermost(slices, ops.at))
    ops = ops.where(~ops.is_named(VIEW_OPS.__contains__))  # these compute nothing, however long they take
    other = slices.are_named(Kind.ANNOTATION, is_loader) | slices.are_named(Kind.OP, is_compiling)
    return ops.where(innermost(slices, parent, ops.at, other) < 0)


class CpuTime(msgspec.Struct, frozen=True):
    """Times in us. `what_us`: by one of WHAT, without `input_us`; `op_us`: the same by the op that was open."""

    input_us: float
    what_us: dict[str, float]
    op_us: dict[str, float]


class CpuActivity:
    """What the CPU does at each moment of a trace, to be asked for stretches of time."""

    def __init__(self, trace: Trace):
        self.trace = trace
        slices = trace.slices
        self._rows, self._starts_ns = trace.cpu_spans
        self._open_before = [self._rows[:0]]  # for each block: the rows before it that end after all of them began
        for first in range(BLOCK, len(self._rows) + 1, BLOCK):
            before = np.concatenate([self._open_before[-1], self._rows[first - BLOCK : first]])
            self._open_before.append(before[slices.end_ns[before] > self._starts_ns[first - 1]])
        self._steps_track = int(trace.steps.track[-1]) if len(trace.steps) else -1
        self._what_of_call = np.full(len(slices.names), WHAT.index("call"))
        calls = slices.of(Kind.CALL)
        for test, what in ((is_launch, "launch"), (manages_memory, "memory"), (loads_code, "loading")):
            self._what_of_call[slices.name[calls[slices.is_named(calls, test)]]] = WHAT.index(what)
        self._is_step = np.zeros(len(slices), bool)
        self._is_step[trace.steps.at] = True
        compiling = slices.are_named(Kind.OP, is_compiling)
        self._compiling = compiling if compiling.any() else None
        self._is_op = slices.kind == Kind.OP
        self._works = np.append(self._is_op | (slices.kind == Kind.CALL), False)  # the last for -1
        self._input = _union(trace.annotations.where(trace.annotations.is_named(is_loader)))
        self._collective = _union(trace.annotations.where(trace.annotations.is_named(is_collective_on_cpu)))
        # Where nothing is open it is Python's time only in a recording that has Python's functions.
        self._nothing = WHAT.index("python" if len(trace.functions_ns) else "silent")
        loading = trace.overheads.is_named(lambda name: "Loading" in name)
        self._overheads = [
            (_union(trace.overheads.where(mask)), WHAT.index(what))
            for mask, what in ((loading, "loading"), (~loading, "profiler"))
            if mask.any()
        ]

    def time(self, start_ns: np.ndarray, end_ns: np.ndarray, track: np.ndarray, length_ns: np.ndarray | None = None) -> CpuTime:
        """Return what the CPU did in these stretches, which do not overlap, each on its thread; where that thread shows nothing,
        on the thread of the steps, or on one of a backward pass. Where a DataLoader is being waited for, it is input.
        `length_ns`: how long each stretch counts, if not as long as it is.
        """
        names = self.trace.slices.names
        order = np.argsort(start_ns, kind="stable")
        start, end, track = start_ns[order], end_ns[order], track[order]
        worth = np.ones(len(start)) if length_ns is None else length_ns[order] / np.maximum(end - start, 1)
        input_ns, what_ns = 0.0, np.zeros(len(WHAT))
        op_ns: dict[int, float] = defaultdict(float)
        if len(start):
            # By blocks of time, so that a large trace takes no more memory.
            edges = [int(start[0]), *self.trace.slices.start_ns[BLOCK::BLOCK].tolist(), int(end[-1])]
            for begins, ends in pairwise(sorted(edge for edge in edges if start[0] <= edge <= end[-1])):
                first, last = np.searchsorted(end, begins, "right"), np.searchsorted(start, ends)
                one = np.maximum(start[first:last], begins), np.minimum(end[first:last], ends), track[first:last]
                input_ns += self._add_block(*one, worth[first:last], self._open_between(begins, ends), what_ns, op_ns)
        return CpuTime(
            input_us=round(input_ns) / 1000,
            what_us={what: round(ns) / 1000 for what, ns in zip(WHAT, what_ns.tolist(), strict=True) if ns},
            op_us={names[name]: round(ns) / 1000 for name, ns in op_ns.items()},
        )

    def _add_block(
        self,
        start: np.ndarray,
        end: np.ndarray,
        track: np.ndarray,
        worth: np.ndarray,
        spans: np.ndarray,
        what_ns: np.ndarray,
        op_ns: dict[int, float],
    ) -> float:
        """Add the time of these stretches, in which `spans` are open, by what was done and by the op; returns what was input.
        `worth`: how much of each stretch counts, as a share.
        """
        slices, begun = self.trace.slices, start
        start, end, row = self._by_thread(start, end, track, spans)
        start, end, row, loading = _marked(start, end, row, self._input)
        is_input, was = loading >= 0, np.full(len(start), self._nothing)
        known = np.flatnonzero(row >= 0)
        was[known] = self._what(row[known])
        start, end, packed, mark = _marked(start, end, np.arange(len(start)), self._collective)
        row, was, is_input = row[packed], was[packed], is_input[packed]
        was[(mark >= 0) & among(was, IN_NO_OP)] = WHAT.index("collective")
        for union, what in self._overheads:
            start, end, packed, mark = _marked(start, end, np.arange(len(start)), union)
            row, was, is_input = row[packed], was[packed], is_input[packed]
            was[mark >= 0] = what
        length = (end - start) * worth[np.searchsorted(begun, start, "right") - 1]
        np.add.at(what_ns, was[~is_input], length[~is_input])
        in_op = np.flatnonzero((row >= 0) & ~is_input)
        op = row[in_op]
        inside = slices.kind[op] != Kind.OP
        op[inside] = innermost(slices, self.trace.parent, op[inside], self._is_op)
        known_ns = np.bincount(slices.name[op[op >= 0]], length[in_op][op >= 0])
        for name in np.flatnonzero(known_ns).tolist():
            op_ns[name] += float(known_ns[name])
        return float(length[is_input].sum())

    def _what(self, row: np.ndarray) -> np.ndarray:
        """For each row of the CPU, the number in WHAT of what is done in it itself."""
        slices = self.trace.slices
        kind, name = slices.kind[row], slices.name[row]
        was = np.full(len(row), WHAT.index("op"))
        was[kind == Kind.ANNOTATION] = WHAT.index("annotation")
        was[self._is_step[row]] = self._nothing
        is_call = kind == Kind.CALL
        was[is_call] = self._what_of_call[name[is_call]]
        if self._compiling is not None:
            inside = self._compiling[row] | (innermost(slices, self.trace.parent, row, self._compiling) >= 0)
            was[inside] = WHAT.index("compilation")
        return was

    def _open_between(self, begins: int, ends: int) -> np.ndarray:
        """Return the spans and calls of all threads that are open at some moment between these two, in order."""
        first, last = (int(place) for place in np.searchsorted(self._starts_ns, [begins, ends]))
        block = first // BLOCK
        before = np.concatenate([self._open_before[block], self._rows[block * BLOCK : first]])
        return np.concatenate([before[self.trace.slices.end_ns[before] > begins], self._rows[first:last]])

    def _by_thread(self, start: np.ndarray, end: np.ndarray, track: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the stretches cut where the innermost slice of their thread changes, with its row; -1 where nothing is recorded.

        Where a thread shows nothing, it is the thread of the steps that counts; and where neither is in an op or a call, those
        of the backward pass, for which they wait.
        """
        found: list[tuple[np.ndarray, ...]] = [(start[:0], end[:0], start[:0])]
        for thread in distinct(track).values.tolist():
            one = track == thread
            *pieces, _ = _cut(start[one], end[one], *self._innermost_over_time(thread, spans))
            others = [self._steps_track] if self._steps_track >= 0 else []
            for other in (*others, *self.trace.backward_tracks.tolist()):
                if other == thread:
                    continue
                # The thread of the steps comes first: its annotations are the program's own.
                open_ = pieces[2] < 0 if other == self._steps_track else ~self._works[pieces[2]]
                found.append(tuple(part[~open_] for part in pieces))
                asked = tuple(part[open_] for part in pieces)
                first, last, row, which = _cut(asked[0], asked[1], *self._innermost_over_time(other, spans))
                before = asked[2][which]
                pieces = [first, last, np.where(self._works[row] | (before < 0), row, before)]
            found.append(tuple(pieces))
        starts, ends, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order], rows[order]

    def _innermost_over_time(self, track: int, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From each moment on, up to the next: the row of the innermost of the spans that is open on the thread, or -1."""
        slices = self.trace.slices
        return innermost_over_time(slices, self.trace.parent, spans[slices.track[spans] == track])


def _cut(start: np.ndarray, end: np.ndarray, times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the stretches (in order, none overlapping) cut at `times`, of which the first is before them: start, end, the value
    from the last of the times on, and the place of the stretch.
    """
    last = np.searchsorted(times, start, "right") - 1  # of the times, as a stretch begins
    pieces = np.where(end > start, np.searchsorted(times, end) - last, 0)
    one = np.flatnonzero(pieces)
    first = np.cumsum(pieces) - pieces
    which = np.repeat(np.arange(len(start)), pieces)
    at = np.arange(len(which)) + (last - first)[which]
    begins = times[at]
    begins[first[one]] = start[one]
    ends = np.append(begins[1:], 0)[: len(begins)]
    ends[(first + pieces)[one] - 1] = end[one]
    return begins, ends, values[at], which


def _union(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of these rows, as moments and marks: 0 from where it begins, -1 from where it ends."""
    return _marks(*merged(rows.start_ns, rows.end_ns))


def _marks(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not len(begins):
        return np.zeros(1, np.int64), np.full(1, -1)
    times = np.stack([begins, ends], axis=1).ravel()
    return np.append(np.iinfo(np.int64).min, times), np.append(-1, np.tile([0, -1], len(begins)))


def _marked(
    start: np.ndarray, end: np.ndarray, value: np.ndarray, union: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Return the stretches cut at the ends of a union: start, end, their value, and its mark."""
    if len(union[0]) == 1:
        return start, end, value, np.full(len(start), -1)
    first, last, mark, which = _cut(start, end, *union)
    return first, last, value[which], mark
