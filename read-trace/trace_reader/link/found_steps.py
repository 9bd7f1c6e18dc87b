"""The steps of a recording whose program marks none: by a range that repeats, by what the program does again and again, or the
whole recording as one.
"""

from collections import Counter
import re

import msgspec
import numpy as np
from trace_reader.link.nesting import outermost
from trace_reader.model.rows import Rows, among, distinct, grouped, median
from trace_reader.model.slices import NO_CORRELATION, ON_CPU, ON_GPU, Kind, Slices
from trace_reader.names.call_names import is_launch, is_synchronizing
from trace_reader.names.range_names import is_part_of_a_step, may_be_a_range

COVERED = 0.5  # of the time: what takes more is looked into
MOST_BESIDE = 0.1  # of the work, before and after what is done again and again: of more, that is a part of a step
MOST_OUTSIDE = 0.2  # of the launches, and of the GPU's time: where more lie outside of the ranges, these are no steps
NO_LESS = 0.5  # of what the others launch: a range that launches less is a part of a step
ALIKE = 0.9  # of the elements, that are the same a period later
AS_ALIKE = 0.01  # so little less, and the shorter period is as good
MOST_CANDIDATES, MOST_LABELS, MOST_GAPS = 48, 256, 4  # periods that are tried, labels that are asked for them, and of each
LONG_PAUSE = 2.5  # times the usual pause before what is done again: one of a loop around it
LEAST_IN_STEP = 2  # ops and launches: one, again and again, is a loop
ALL_BACKWARD = 0.9  # of a thread's ops: it only runs backward passes
_BACKWARD = "autograd::engine::evaluate_function"
_DIGITS = re.compile(r"\d+")
RANGE, PERIOD, WHOLE = "range", "period", "whole"
MANY, FEW, FAR = 20, 0.01, 10  # events, of which so few behind a gap of so many times what the others take are outliers
FOUND = "step"  # what a step is called that no range of the file marks


class Found(msgspec.Struct, frozen=True):
    """How steps were found that the program does not mark: `how`, RANGE, PERIOD or WHOLE; `name`: of a range its name, of a
    period what a step begins with; with # for numbers.
    """

    how: str
    name: str


class Spans(msgspec.Struct, frozen=True, eq=False):
    """Steps that no range marks: on which track, and from when to when (ns)."""

    track: int
    start_ns: np.ndarray
    end_ns: np.ndarray


def outliers(rows: Rows) -> np.ndarray:
    """Return which of these rows, in the order of their starts, are few, stand at one end, and are far from all others: a
    hundredth at most, behind a gap of FAR times the time that the others take. Of fewer rows than MANY none is.
    """
    start_ns, end_ns, are_outliers = rows.start_ns, rows.end_ns, np.zeros(len(rows), bool)
    while (~are_outliers).sum() >= MANY:
        at = np.flatnonzero(~are_outliers)
        gaps_ns = start_ns[at][1:] - np.maximum.accumulate(end_ns[at])[:-1]
        cut = int(np.argmax(gaps_ns)) + 1
        few, others = sorted((at[:cut], at[cut:]), key=len)
        took_ns = int(end_ns[others].max() - start_ns[others].min())
        if len(few) > max(1, FEW * len(at)) or gaps_ns[cut - 1] <= FAR * took_ns:
            break
        are_outliers[few] = True
    return are_outliers


def repeated_range(slices: Slices, annotations: Rows) -> tuple[Found, np.ndarray] | None:
    """Return which annotations are the steps, as a mask: those that repeat, but for numbers in their names, on the thread that
    does the work, and hold nearly all that it launches; of several, the outermost: also all outermost ones together, if most of
    them are alike (one prefill, many decodes). None: there are none.
    """
    thread = main_thread(slices)
    if thread is None:
        return None
    number: dict[str, int] = {}
    stem_of_name = {
        name: number.setdefault(_DIGITS.sub("#", slices.names[name]), len(number))
        for name in distinct(annotations.name[annotations.track == thread]).values.tolist()
        if not is_part_of_a_step(slices.names[name])
    }
    if not number:
        return None
    launching, work = _summed(*_launches(slices, thread)), _summed(*_work(slices, thread))
    stems = np.array([stem_of_name.get(name, -1) for name in annotations.name.tolist()])
    stems[annotations.track != thread] = -1
    names, best, best_ns = list(number), None, 0
    ranges = np.flatnonzero(stems >= 0)
    while len(outer := _outermost(annotations, ranges)) == 1:  # one around all others
        ranges = ranges[ranges != outer[0]]
    order, starts = grouped(stems)
    for places in np.split(order, starts[1:]):
        stem, alike = int(stems[places[0]]), _outermost(annotations, places)
        covered_ns = _time_ns(annotations.where(alike))
        if stem >= 0 and len(alike) >= 2 and covered_ns > best_ns and _holds(annotations, alike, launching, work):
            best, best_ns = (Found(RANGE, names[stem]), alike), covered_ns
    covered_ns = _time_ns(annotations.where(outer))
    kinds = distinct(stems[outer])
    most_alike = len(outer) >= 3 and 2 * kinds.counts.max() > len(outer)
    if most_alike:  # the others are no less than a step: a prefill does what a decode does, an embedding is a part
        held = _held(annotations.where(outer), *launching)
        usual = kinds.which == int(np.argmax(kinds.counts))
        most_alike = bool((held[~usual] >= NO_LESS * median(held[usual])).all())
    if most_alike and covered_ns > best_ns and _holds(annotations, outer, launching, work):
        best = Found(RANGE, ", ".join(names[stem] for stem in dict.fromkeys(stems[outer].tolist()))), outer
    return None if best is None else (best[0], among(np.arange(len(annotations)), best[1]))


def ranges_among_ops(slices: Slices, parent: np.ndarray) -> np.ndarray:
    """Return the rows of ops that are ranges of the program, in a file that has no annotation: as torch before 1.10 and some
    backends write them. They hold ops of a library, and have neither inputs nor a number of autograd's.
    """
    if (slices.kind == Kind.ANNOTATION).any():
        return np.zeros(0, np.int64)
    ops = slices.of(Kind.OP)
    holds = np.zeros(len(slices) + 1, bool)  # the last for -1
    around = parent[ops[slices.is_named(ops, lambda name: "::" in name)]]
    while (around := around[(around >= 0) & ~holds[around]]).size:
        holds[around] = True
        around = parent[around]
    return ops[holds[ops] & slices.is_named(ops, may_be_a_range) & (slices.node[ops] < 0) & (slices.detail[ops] < 0)]


def _outermost(annotations: Rows, places: np.ndarray) -> np.ndarray:
    """Return those of these places that begin when no earlier one is open."""
    there = annotations.where(places)
    start_ns, end_ns = there.start_ns, there.end_ns
    return places[start_ns >= np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end_ns)[:-1])]


def _time_ns(rows: Rows) -> int:
    return int((rows.end_ns - rows.start_ns).sum())


def _summed(at_ns: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments in order, and the weight of all before each, and of all."""
    order = np.argsort(at_ns, kind="stable")
    return at_ns[order], np.append(0.0, np.cumsum(weight[order]))


def _held(there: Rows, at_ns: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how much of what begins at these moments (as `_summed` gives them) is inside of each of these rows."""
    return before[np.searchsorted(at_ns, there.end_ns)] - before[np.searchsorted(at_ns, there.start_ns)]


def _holds(annotations: Rows, places: np.ndarray, *moments: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether of what begins at these moments (as `_summed` gives them) nearly all is inside of the annotations there,
    which do not overlap.
    """
    there = annotations.where(places)
    for at_ns, before in moments:
        inside = float(_held(there, at_ns, before).sum())
        if not len(at_ns) or before[-1] - inside > MOST_OUTSIDE * before[-1]:
            return False
    return True


def found_spans(slices: Slices, parent: np.ndarray) -> tuple[Found, Spans] | None:
    """Return what the program does again and again, if that is nearly all; else the whole recording as one step. None: nothing
    was recorded of it.
    """
    thread = main_thread(slices)
    if thread is None:
        return None
    begin_ns, _, last_ns = _extent(slices, thread)
    rows, labels = _elements(slices, parent, thread)
    starts = _period_starts(labels)
    if len(starts) >= 2:
        reached_ns = np.maximum.accumulate(slices.end_ns[rows])
        pauses_ns = slices.start_ns[rows] - np.append(0, reached_ns[:-1])
        starts = _at_long_pauses(starts, pauses_ns)
        start_ns = slices.start_ns[rows[starts]]
        last = min(int(starts[-1] + median(np.diff(starts))), len(rows)) - 1  # what it does as the others do
        stop_ns = int(reached_ns[last] + max(median(pauses_ns[starts[1:]]), 0))  # and as long a pause behind it
        if _outside(slices, thread, int(start_ns[0]), stop_ns) <= MOST_BESIDE:
            name = _DIGITS.sub("#", slices[rows[starts[0]]].name)
            return Found(PERIOD, name), Spans(thread, start_ns, np.append(start_ns[1:], stop_ns))
    return Found(WHOLE, ""), Spans(thread, np.array([begin_ns]), np.array([last_ns]))


def _outside(slices: Slices, thread: int, start_ns: int, end_ns: int) -> float:
    """Return the share of the work that is launched before or after these moments."""
    at_ns, weight = _work(slices, thread)
    outside = (at_ns < start_ns) | (at_ns >= end_ns)
    return float(weight[outside].sum() / max(weight.sum(), 1e-9))


def _work(slices: Slices, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Return when each GPU event was launched, and how long it took; without a GPU, the thread's outermost ops."""
    rows, calls = slices.of(*ON_GPU), slices.of(Kind.CALL)
    calls = calls[slices.is_named(calls, is_launch)]
    if not len(rows):
        ops = slices.of(Kind.OP)
        ops = outermost(slices, ops[(slices.track[ops] == thread) & slices.is_named(ops, lambda name: "::" in name)])
        return slices.start_ns[ops], slices.duration_us[ops]
    called_ns = slices.start_ns[rows]
    if len(calls):
        order = calls[np.argsort(slices.correlation[calls], kind="stable")]
        place = np.minimum(np.searchsorted(slices.correlation[order], slices.correlation[rows]), len(order) - 1)
        known = slices.correlation[order[place]] == slices.correlation[rows]
        called_ns = np.where(known, slices.start_ns[order[place]], called_ns)
    return called_ns, slices.duration_us[rows]


def with_spans(slices: Slices, spans: Spans) -> tuple[Slices, np.ndarray]:
    """Return the slices with an annotation for each of the spans, and these annotations' rows."""
    n = len(spans.start_ns)
    names = [*slices.names, *(f"{FOUND} {number}" for number in range(n))]
    new = {
        "kind": np.full(n, Kind.ANNOTATION, slices.kind.dtype),
        "name": np.arange(len(slices.names), len(names), dtype=slices.name.dtype),
        "track": np.full(n, spans.track, slices.track.dtype),
        "start_ns": spans.start_ns,
        "duration_us": (spans.end_ns - spans.start_ns) / 1000,
        "correlation": np.full(n, NO_CORRELATION),
        "node": np.full(n, -1),
        "forward_thread": np.zeros(n, slices.forward_thread.dtype),
        "detail": np.full(n, -1, slices.detail.dtype),
        "region": np.full(n, -1, slices.region.dtype),
    }
    columns = {name: np.concatenate([added, getattr(slices, name)]) for name, added in new.items()}
    more = Slices(columns, names, slices.tracks, slices.details)
    return more, np.flatnonzero(more.name >= len(slices.names))


def main_thread(slices: Slices) -> int | None:
    """Return the track that launches most; without launches, whose ops take longest; one that does more than run backward passes,
    if there is one. None: there are neither launches nor ops.
    """
    calls = slices.of(Kind.CALL)
    launches = calls[slices.is_named(calls, is_launch)]
    ops = slices.of(Kind.OP)
    if not len(launches) and not len(ops):
        return None
    weight = np.bincount(slices.track[launches], minlength=len(slices.tracks)).astype(float)
    outer = outermost(slices, ops)
    if not len(launches):
        weight = np.bincount(slices.track[outer], slices.duration_us[outer], minlength=len(slices.tracks))
    is_node = slices.is_named(outer, lambda name: name.startswith(_BACKWARD)) | (slices.forward_thread[outer] > 0)
    every = np.bincount(slices.track[outer], minlength=len(slices.tracks))
    nodes = np.bincount(slices.track[outer], is_node, minlength=len(slices.tracks))
    others = weight * ((every == 0) | (nodes < ALL_BACKWARD * every))
    weight = others if others.any() else weight
    return int(np.argmax(weight))


def _launches(slices: Slices, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Return when (ns, in order) the thread launches, where nothing is launched, when its ops begin; each counts as one."""
    calls = slices.of(Kind.CALL)
    launches = calls[slices.is_named(calls, is_launch)]
    rows = launches if len(launches) else slices.of(Kind.OP)
    at_ns = slices.start_ns[rows[slices.track[rows] == thread]]
    return at_ns, np.ones(len(at_ns))


def _extent(slices: Slices, thread: int) -> tuple[int, int, int]:
    """From when to when (ns) the thread does something, and until when it then waits for what it launched."""
    rows = slices.of(*ON_CPU)
    rows = rows[slices.track[rows] == thread]
    rows = _near(slices, rows)
    waits = (slices.kind[rows] == Kind.CALL) & slices.is_named(rows, lambda name: not is_launch(name))
    return int(slices.start_ns[rows[0]]), int(slices.end_ns[rows[~waits]].max()), int(slices.end_ns[rows].max())


def _near(slices: Slices, rows: np.ndarray) -> np.ndarray:
    """Return these rows of the CPU without what is far from the rest: what launched the GPU events that are, and what lies beyond
    it.
    """
    work = Rows(slices, slices.of(*ON_GPU))
    if not len(work):
        return rows[~outliers(Rows(slices, rows))]
    far = outliers(work)
    calls = rows[slices.kind[rows] == Kind.CALL]
    first_ns, last_ns = work.start_ns[~far].min(), work.start_ns[~far].max()
    for is_late, one in ((True, far & (work.start_ns > last_ns)), (False, far & (work.start_ns < first_ns))):
        beyond = work.where(one)
        asked = np.concatenate([beyond.at, calls[among(slices.correlation[calls], beyond.correlation)]])
        if len(asked):
            edge_ns = slices.start_ns[asked].min() if is_late else slices.start_ns[asked].max()
            rows = rows[(slices.start_ns[rows] < edge_ns) if is_late else (slices.start_ns[rows] > edge_ns)]
    return rows


def _elements(slices: Slices, parent: np.ndarray, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what the thread does one after another, as rows and a label for each: ops, annotations, and calls that launch or
    wait for the device, outermost ones; but one that takes most of the time is looked into.
    """
    calls = slices.of(Kind.CALL)
    calls = calls[slices.is_named(calls, lambda name: is_launch(name) or is_synchronizing(name))]
    rows = np.sort(np.concatenate([slices.of(Kind.OP, Kind.ANNOTATION), calls]))
    rows = rows[(slices.track[rows] == thread) & (slices.end_ns[rows] > slices.start_ns[rows])]
    begin_ns, end_ns, _ = _extent(slices, thread)
    is_large = slices.end_ns[rows] - slices.start_ns[rows] > COVERED * (end_ns - begin_ns)
    around = np.append(-1, rows[is_large & among(rows, parent[rows])])
    level = rows[among(parent[rows], around) & ~among(rows, around)]
    launching = (slices.kind[level] != Kind.CALL) | slices.is_named(level, is_launch)
    level = level[: np.flatnonzero(launching)[-1] + 1] if launching.any() else level  # at the end, the profiler waits
    numbers: dict[str, int] = {}
    label_of = {
        name: numbers.setdefault(_DIGITS.sub("#", slices.names[name]), len(numbers))
        for name in distinct(slices.name[level]).values.tolist()
    }
    return level, np.array([label_of[name] for name in slices.name[level].tolist()], np.int64)


def _period_starts(labels: np.ndarray) -> np.ndarray:
    """Return the places at which what is done begins again; empty where nothing repeats."""
    n, best, period = len(labels), 0.0, 0
    for candidate in sorted(_candidates(labels)):
        alike = float((labels[candidate:] == labels[:-candidate]).mean())
        if alike > best + AS_ALIKE:
            best, period = alike, candidate
    if best < ALIKE:
        return np.zeros(0, np.int64)
    same = np.append(np.append(False, labels[period:] == labels[:-period]), False)
    edges = np.flatnonzero(same[1:] != same[:-1])
    first, last = max(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True), key=lambda run: run[1] - run[0])
    missing = max(1, int((1 - ALIKE) * period))  # of the last one, which may lack the wait at its end
    repeats = (last - first + period + missing) // period
    starts = first + period * np.arange(repeats)
    mark = labels[first]
    if (labels[first : first + period] == mark).sum() == 1 and abs((labels == mark).sum() * period - n) <= (1 - ALIKE) * n:
        return np.flatnonzero(labels == mark)  # also those steps that do something besides
    return starts if repeats * period >= COVERED * n else starts[:0]


def _at_long_pauses(starts: np.ndarray, pauses_ns: np.ndarray) -> np.ndarray:
    """Return the places at which a loop begins again that is around what begins at these places (a layer of a model, say): where
    the longest pauses, LONG_PAUSE times the usual one, come before every so many of them. `pauses_ns`: before each element.
    """
    period = int(starts[1] - starts[0])
    for parts in range(2, len(starts) // 2 + 1):
        for offset in range(period):
            places = np.arange(starts[0] + offset - period * (offset > 0), len(pauses_ns), period)
            places = places[places >= 0]
            if len(places) < 2 * parts or len(places) % parts:
                continue
            before_ns = pauses_ns[places]
            longest = int(np.argmax(before_ns[1:])) + 1
            if longest % parts == 0 and (before_ns[parts::parts] > LONG_PAUSE * max(median(before_ns[1:]), 1)).all():
                return places[::parts]
    return starts


def _candidates(labels: np.ndarray) -> set[int]:
    """Periods to try: how far apart the elements of one label often are, of the rarest labels, if that is long enough, and two of
    them fit.
    """
    known = distinct(labels)
    order = np.argsort(known.which, kind="stable")
    ends = np.cumsum(known.counts)
    votes: Counter[int] = Counter()
    for label in np.argsort(known.counts, kind="stable")[:MOST_LABELS].tolist():
        places = order[ends[label] - known.counts[label] : ends[label]]
        gaps = distinct(np.diff(np.append(-1, places)))  # also from the beginning: a wait may end each step but the last
        for gap in gaps.values[np.argsort(-gaps.counts, kind="stable")[:MOST_GAPS]].tolist():
            votes[gap] += 1
    fitting = Counter({gap: n for gap, n in votes.items() if LEAST_IN_STEP <= gap <= (len(labels) + 1) // 2})
    return {gap for gap, _ in fitting.most_common(MOST_CANDIDATES)}
