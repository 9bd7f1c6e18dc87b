"""Which span of a thread holds which slice, worked out once for the whole trace.

A span is an op or an annotation. A slice lies in the span that began last on its thread and is still open when the slice
starts. So it does where spans cross, too (one that ends after its parent does).
"""

from collections.abc import Iterator
from itertools import count

import numpy as np
from trace_reader.link.intervals import unions_ns
from trace_reader.model.rows import once
from trace_reader.model.slices import ON_CPU, Kind, Slices

BLOCK = 1 << 16  # slices that are worked on at once
SHALLOW = 32  # levels that are gone through one by one


def parents(slices: Slices, kinds: tuple[Kind, ...] = ON_CPU) -> np.ndarray:
    """For each row: the row of the innermost span that is open on its thread when it starts; -1 for none, and on a GPU.

    `kinds`: what can be asked for and can be a span; of these, calls are none.
    """
    parent = np.full(len(slices), -1, np.int32)
    for rows in _by_track(slices, slices.of(*kinds)):
        # A slice of no length holds nothing; a call is asked for, but never an answer.
        is_span = (slices.kind[rows] != Kind.CALL) & (slices.end_ns[rows] > slices.start_ns[rows])
        spans, others = rows[is_span], rows[~is_span]
        if not len(spans):
            continue
        for asked, answer in zip((spans, others), _holders(slices, spans, slices.start_ns[others]), strict=True):
            parent[asked] = np.where(answer >= 0, spans[answer], -1)
    return parent


def innermost_over_time(slices: Slices, parent: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments, and from each one to the next the row of the last begun of `spans` that is open, or -1.

    `spans`: in order, of one thread, none of no length; calls may be among them, none in another.
    """
    if not len(spans):
        return np.full(1, np.iinfo(np.int64).min), np.full(1, -1)
    start, end, around = slices.start_ns[spans], slices.end_ns[spans], parent[spans]
    inner, is_call = around >= 0, slices.kind[spans[:-1]] == Kind.CALL
    if np.any(end[inner] > slices.end_ns[around[inner]]) or np.any(is_call & (start[1:] < end[:-1])):  # some cross
        times = once(np.concatenate([start, end]))
        _, index = _holders(slices, spans, times)
        rows = np.where(index >= 0, spans[index], -1)
    else:
        # Where a span ends, the one around it is the innermost again; of several at one moment, the last of these counts.
        times, rows = np.concatenate([end[::-1], start]), np.concatenate([around[::-1], spans])
        order = np.argsort(times, kind="stable")
        times, rows = times[order], rows[order]
        last = np.append(times[1:] != times[:-1], True)
        times, rows = times[last], rows[last]
    return np.append(np.iinfo(np.int64).min, times), np.append(-1, rows)


def _holders(slices: Slices, spans: np.ndarray, moments_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each span and each moment, the place of the span around it, or -1."""
    return _nested(slices, spans, moments_ns) or _crossing(slices, spans, moments_ns)


def spans_at(slices: Slices, tracks: np.ndarray, moments_ns: np.ndarray) -> np.ndarray:
    """For each moment on a track: the row of the innermost op or annotation that is open, or -1."""
    found = np.full(len(moments_ns), -1, np.int64)
    spans = slices.of(Kind.OP, Kind.ANNOTATION)
    spans = spans[slices.end_ns[spans] > slices.start_ns[spans]]
    for one in _by_track(slices, spans):
        asked = np.flatnonzero(tracks == slices.track[one[0]])
        asked = asked[np.argsort(moments_ns[asked], kind="stable")]
        _, index = _holders(slices, one, moments_ns[asked])
        found[asked] = np.where(index >= 0, one[index], -1)
    return found


def innermost(slices: Slices, parent: np.ndarray, rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each of `rows`: the innermost of its spans for which `wanted` (a mask over all rows) holds, or -1.

    Every span that is open when a slice starts is among its parents' parents; those that have ended by then are passed over.
    """
    found = np.full(len(rows), -1, np.int32)
    asked = np.arange(len(rows))
    spans, next_wanted = parent[rows], parent
    for level in count():
        if level == SHALLOW:  # from here on, straight to the next one that is wanted
            next_wanted = _next_wanted(parent, wanted)
            spans = np.where((spans >= 0) & ~wanted[spans], next_wanted[spans], spans)
        asked = asked[spans >= 0]
        spans = spans[spans >= 0]
        if not len(asked):
            return found
        good = wanted[spans] & (slices.end_ns[spans] > slices.start_ns[rows[asked]])
        found[asked[good]] = spans[good]
        asked, spans = asked[~good], next_wanted[spans[~good]]
    raise AssertionError


def itself_or_innermost(slices: Slices, parent: np.ndarray, rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each of `rows`: the same where `wanted` holds for it, else the innermost of its spans for which it does, or -1."""
    return np.where(wanted[rows], rows, innermost(slices, parent, rows, wanted))


def _next_wanted(parent: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each row the nearest of its parents' parents that is wanted, or -1: in as many rounds as their number has bits."""
    found = parent.copy()
    while True:
        on = (found >= 0) & ~wanted[found]
        if not on.any():
            return found
        found[on] = found[found[on]]


def outermost(slices: Slices, rows: np.ndarray) -> np.ndarray:
    """Return those of `rows` (in order) that begin when no earlier one of their thread is open."""
    kept = []
    for one in _by_track(slices, rows):
        reached = np.maximum.accumulate(slices.end_ns[one])
        kept.append(one[np.append(True, slices.start_ns[one][1:] >= reached[:-1])])
    return np.sort(np.concatenate(kept)) if kept else rows


def self_us(slices: Slices, parent: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """For each of `rows` (in order): its duration without what lies directly in it, in microseconds."""
    is_asked = np.zeros(len(slices), bool)
    is_asked[rows] = True
    inner = np.flatnonzero((parent >= 0) & is_asked[parent])
    inner = inner[np.argsort(parent[inner], kind="stable")]
    covered_ns = np.zeros(len(rows), np.int64)
    first = 0
    while first < len(inner):  # by blocks, so that a large trace takes no more memory
        last_parent = parent[inner[min(first + BLOCK, len(inner)) - 1]]
        end = int(np.searchsorted(parent[inner[first:]], last_parent, "right")) + first
        part = inner[first:end]
        index = np.searchsorted(rows, parent[part])
        ends_ns = np.minimum(slices.end_ns[part], slices.end_ns[parent[part]])
        covered = unions_ns(slices.start_ns[part], ends_ns, index - index[0], int(index[-1] - index[0]) + 1)
        covered_ns[index[0] : index[-1] + 1] += covered
        first = end
    return slices.duration_us[rows] - covered_ns / 1000


def _by_track(slices: Slices, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of each track, in order."""
    if not len(rows):
        return
    track = slices.track[rows]
    if len(slices.tracks) < 2**15:
        track = track.astype(np.int16)  # of 16 bits, numpy sorts in linear time
    order = np.argsort(track, kind="stable")
    rows, ends = rows[order], np.flatnonzero(np.diff(track[order])) + 1
    del track, order  # these would stay as long as there are tracks
    yield from np.split(rows, ends)


def _nested(slices: Slices, spans: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """For each span and each moment, the place of the span around it, or -1. None: some of the spans cross.

    As many spans are open at a moment as have started and not ended. If d are, the innermost one is the last before it at
    which d - 1 were: another one after it, at d - 1, would have started after its end.
    """
    start, end = slices.start_ns[spans], slices.end_ns[spans]
    ends = np.sort(end, kind="stable")  # mostly in order
    depth = np.arange(len(spans)) - np.searchsorted(ends, start, "right")
    if depth.max() < 2**15:
        depth = depth.astype(np.int16)
    keys = np.argsort(depth, kind="stable")
    keys += depth[keys].astype(np.int64) * len(spans)  # in order

    def parents(places: np.ndarray, depths: np.ndarray) -> np.ndarray:
        found = np.full(len(places), -1, np.int32)
        for first in range(0, len(places), BLOCK):  # by blocks, so that a large trace takes no more memory
            asked = first + np.flatnonzero(depths[first : first + BLOCK] > 0)
            wanted = (depths[asked].astype(np.int64) - 1) * len(spans) + places[asked]
            found[asked] = keys[np.searchsorted(keys, wanted) - 1] % len(spans)
        return found

    around = parents(np.arange(len(spans)), depth)
    inner = np.flatnonzero(depth > 0)
    if np.any(end[inner] > end[around[inner]]):
        return None
    before = np.searchsorted(start, moments, "right")
    return around, parents(before, before - np.searchsorted(ends, moments, "right"))


def _crossing(slices: Slices, spans: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `_nested`, for spans of which some cross and moments in order: one after the other, with the open ones on a stack."""
    starts, ends = slices.start_ns[spans].tolist(), slices.end_ns[spans].tolist()
    of_spans, of_others = [-1] * len(starts), [-1] * len(moments)
    is_open: list[int] = []
    index = 0
    for number, moment in enumerate([*moments.tolist(), None]):
        while index < len(starts) and (moment is None or starts[index] <= moment):
            while is_open and ends[is_open[-1]] <= starts[index]:
                is_open.pop()
            if is_open:
                of_spans[index] = is_open[-1]
            is_open.append(index)
            index += 1
        if moment is not None:
            while is_open and ends[is_open[-1]] <= moment:
                is_open.pop()
            if is_open:
                of_others[number] = is_open[-1]
    return np.array(of_spans, np.int64), np.array(of_others, np.int64)
