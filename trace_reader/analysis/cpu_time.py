"""What the CPU did in some stretches of time: by the innermost thing that is recorded at each moment."""

from itertools import pairwise
import re

import msgspec
import numpy as np
from trace_reader.link.nesting import BLOCK, innermost, innermost_at
from trace_reader.link.trace import Trace, is_step
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Kind
from trace_reader.names.calls import is_launch, loads_code, manages_memory

_LOADER = re.compile(r"DataLoader\b.*(?:__next__|_next_data)|enumerate\(DataLoader\)")
_COMPILING = re.compile(r"\(dynamo_timed\)|^(?:dynamo|entire_frame_compile|backend_compile|inductor_compile)$")
WHAT = ("python", "annotation", "op", "launch", "call", "memory", "loading", "compilation", "profiler")


class CpuTime(msgspec.Struct, frozen=True):
    """Times in us. `what_us`: by one of WHAT, without `input_us`; `op_us`: the same by the op that was open."""

    input_us: float
    what_us: dict[str, float]
    op_us: dict[str, float]


def cpu_time(trace: Trace, start_ns: np.ndarray, end_ns: np.ndarray, track: np.ndarray) -> CpuTime:
    """What the CPU did in these stretches, which do not overlap, each on its thread; where that thread shows nothing, on the
    thread of the steps. Where a DataLoader is being waited for, it is input.
    """
    order = np.argsort(start_ns, kind="stable")
    start, end, track = start_ns[order], end_ns[order], track[order]
    input_ns, what_ns, op_ns = 0, np.zeros(len(WHAT), np.int64), np.zeros(len(trace.slices.names), np.int64)
    if len(start):
        # By blocks of time, so that a large trace takes no more memory.
        edges = [int(start[0]), *trace.slices.start_ns[BLOCK::BLOCK].tolist(), int(end[-1])]
        for begins, ends in pairwise(sorted(edge for edge in edges if start[0] <= edge <= end[-1])):
            first, last = np.searchsorted(end, begins, "right"), np.searchsorted(start, ends)
            own = np.maximum(start[first:last], begins), np.minimum(end[first:last], ends), track[first:last]
            input_ns += _add_block(trace, *own, what_ns, op_ns)
    return CpuTime(
        input_us=input_ns / 1000,
        what_us={what: ns / 1000 for what, ns in zip(WHAT, what_ns.tolist(), strict=True) if ns},
        op_us={trace.slices.names[name]: int(op_ns[name]) / 1000 for name in np.flatnonzero(op_ns).tolist()},
    )


def _add_block(
    trace: Trace,
    start: np.ndarray,
    end: np.ndarray,
    track: np.ndarray,
    what_ns: np.ndarray,
    op_ns: np.ndarray,
) -> int:
    """Add the time of these stretches by what was done, and by the name of the op; returns what was input."""
    slices = trace.slices
    start, end, row = _by_thread(trace, start, end, track)
    loader = trace.annotations.where(trace.annotations.is_named(lambda name: _LOADER.search(name) is not None))
    start, end, row, loading = _marked(start, end, row, loader)
    is_input, was = loading >= 0, np.zeros(len(start), np.int64)
    known = np.flatnonzero(row >= 0)
    was[known] = _what(trace, row[known])
    overheads = trace.overheads.is_named(lambda name: "Loading" in name)
    for rows, what in ((trace.overheads.where(overheads), "loading"), (trace.overheads.where(~overheads), "profiler")):
        if len(rows):
            start, end, packed, mark = _marked(start, end, np.arange(len(start)), rows)
            row, was, is_input = row[packed], was[packed], is_input[packed]
            was[mark >= 0] = WHAT.index(what)
    length = end - start
    np.add.at(what_ns, was[~is_input], length[~is_input])
    in_op = np.flatnonzero((row >= 0) & ~is_input)
    op = row[in_op]
    inside = slices.kind[op] != Kind.OP
    op[inside] = innermost(slices, trace.parent, op[inside], slices.kind == Kind.OP)
    np.add.at(op_ns, slices.name[op[op >= 0]], length[in_op][op >= 0])
    return int(length[is_input].sum())


def _what(trace: Trace, row: np.ndarray) -> np.ndarray:
    """For each row of the CPU, the number in WHAT of what is done in it itself."""
    slices = trace.slices
    kind, name = slices.kind[row], slices.name[row]
    was = np.full(len(row), WHAT.index("op"))
    was[kind == Kind.ANNOTATION] = WHAT.index("annotation")
    was[(kind == Kind.ANNOTATION) & slices.named(is_step)[name]] = WHAT.index("python")
    is_call = kind == Kind.CALL
    was[is_call] = WHAT.index("call")
    for test, what in ((is_launch, "launch"), (manages_memory, "memory"), (loads_code, "loading")):
        was[is_call & slices.named(test)[name]] = WHAT.index(what)
    compiling = slices.named(lambda text: _COMPILING.search(text) is not None)[slices.name] & (slices.kind == Kind.OP)
    if compiling.any():
        inside = compiling[row] | (innermost(slices, trace.parent, row, compiling) >= 0)
        was[inside] = WHAT.index("compilation")
    return was


def _by_thread(trace: Trace, start: np.ndarray, end: np.ndarray, track: np.ndarray) -> tuple[np.ndarray, ...]:
    """The stretches cut where the innermost slice of their thread changes, with its row; -1 where nothing is recorded."""
    steps_track = int(trace.steps.track[-1]) if len(trace.steps) else -1
    found: list[tuple[np.ndarray, ...]] = [(start[:0], end[:0], start[:0])]
    for thread in distinct(track).values.tolist():
        own = track == thread
        span = int(start[0]), int(end[-1])
        pieces: tuple[np.ndarray, ...] = _cut(start[own], end[own], *_innermost_over_time(trace, thread, *span))
        if thread != steps_track and steps_track >= 0:
            bare = pieces[2] < 0
            found.append(tuple(part[~bare] for part in pieces))
            pieces = _cut(pieces[0][bare], pieces[1][bare], *_innermost_over_time(trace, steps_track, *span))
        found.append(pieces)
    starts, ends, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order], rows[order]


def _innermost_over_time(trace: Trace, track: int, begins: int, ends: int) -> tuple[np.ndarray, np.ndarray]:
    """From each moment on, up to the next: the row of the innermost span or call that is open on the thread, or -1.

    Of what is open between the moments `begins` and `ends`.
    """
    slices = trace.slices
    rows, starts_ns = trace.cpu_spans
    first, last = np.searchsorted(starts_ns, [begins, ends])
    early = rows[:first]
    own = np.concatenate([early[slices.end_ns[early] > begins], rows[first:last]])
    own = own[slices.track[own] == track]
    if not len(own):
        return np.zeros(1, np.int64), np.full(1, -1)
    times = np.sort(np.concatenate([slices.start_ns[own], slices.end_ns[own]]), kind="stable")  # mostly in order
    times = times[np.append(times[1:] != times[:-1], True)]
    return np.append(np.iinfo(np.int64).min, times), np.append(-1, innermost_at(slices, own, times))


def _cut(start: np.ndarray, end: np.ndarray, times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stretches (in order, none overlapping) cut at `times`, each with the value from the last of the times on."""
    if not len(start):
        return start, end, np.zeros(0, np.int64)
    inside = times[np.searchsorted(times, start[0]) : np.searchsorted(times, end[-1])]
    points = np.sort(np.concatenate([start, end, inside]), kind="stable")  # three runs in order
    first, last = points[:-1], points[1:]
    stretch = np.searchsorted(start, first, "right") - 1
    kept = (last > first) & (stretch >= 0) & (first < end[np.maximum(stretch, 0)])
    first, last = first[kept], last[kept]
    return first, last, values[np.searchsorted(times, first, "right") - 1]


def _marked(start: np.ndarray, end: np.ndarray, value: np.ndarray, rows: Rows) -> tuple[np.ndarray, ...]:
    """The stretches cut at the ends of these rows: start, end, their value, and the place of one that is open, or -1."""
    if not len(rows):
        return start, end, value, np.full(len(start), -1)
    # Their union: one that begins inside an earlier one goes on with it.
    reached = np.maximum.accumulate(rows.end_ns)
    new = np.append(True, rows.start_ns[1:] > reached[:-1])
    begins, ends = rows.start_ns[new], np.append(reached[:-1][new[1:]], reached[-1])
    times = np.stack([begins, ends], axis=1).ravel()
    marks = np.tile([0, -1], len(begins))
    times, marks = np.append(np.iinfo(np.int64).min, times), np.append(-1, marks)
    first, last, mark = _cut(start, end, times, marks)
    return first, last, value[np.searchsorted(start, first, "right") - 1], mark
