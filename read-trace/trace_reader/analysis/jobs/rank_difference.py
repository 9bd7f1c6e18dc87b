"""Whether a late rank does something else than the others, or the same, slower: what the program can change, and what it cannot.

Two ranks that run the same ops are compared op by op, each with what passes up to the next one, without the time in which the CPU
waits for the GPU. What a few places take longer in each step is the program's; what nearly all places take a little longer may be
the host's, or of that recording alone.
"""

from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np
from trace_reader.analysis.jobs.rank_summary import Union
from trace_reader.analysis.trace.collectives import ASKS
from trace_reader.link.intervals import each_within_ns, merged, without
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, median
from trace_reader.model.slices import Footprint, Inputs
from trace_reader.names.kernel_names import is_collective, is_collective_on_cpu

AT_A_PLACE, OTHER_WORK, SLOWER, NOT_LATER = "at a place", "other work", "slower", "not later"
PLACES, MOST_OF_IT = 3, 0.5  # so many places, with so much of what it is later by, are places
MIN_SHARE_OF_STEP = 0.03  # that a rank is later by, for that to be worth a name
FEWEST_OPS = 20  # a step, of which most can be slower
FEW_STEPS = 2  # of which one says nothing
BEGINS = "the start of the step"


class Stretches(NamedTuple):
    """Of a step: the ops (or kernels), their shapes, their times, and what of it may be a line of the program's own (us)."""

    names: list[str]
    shapes: list[object]
    us: np.ndarray
    own_us: np.ndarray


class RankDifference(msgspec.Struct, frozen=True):
    """What a late rank does otherwise than rank `other`, on the CPU or by its kernels (`of_gpu`). `kind`: OTHER_WORK (other ops
    or shapes) that takes longer, the same `ops` and later in each step at a few places (AT_A_PLACE), the same and later all over
    (SLOWER, half of them `times` as long or more), or NOT_LATER: in some step no later than the other. `later_us`: by how much
    it is later in a step, and `sum_us` in all of them; `place` and `place_us`: the ops that take most longer, and that time.
    """

    kind: str
    other: int
    of_gpu: bool
    ops: int
    later_us: float
    sum_us: float
    times: float = 1.0
    place: str = ""
    place_us: float = 0.0


def rank_difference(late: Trace, other: Trace, rank: int, of_gpu: bool) -> RankDifference | None:
    """Return how a late rank differs from another one (number `rank`): by its CPU's ops, or, where it has a GPU, by its kernels
    (`of_gpu`). None: the two have no steps to compare, or not as many, too few ops, or one of them has no GPU.
    """
    n, of_gpu = len(late.steps), of_gpu and len(late.work) > 0
    if not n or n != len(other.steps) or (len(late.work) > 0) != (len(other.work) > 0):
        return None
    mine, theirs = ((_kernels if of_gpu else _stretches)(trace) for trace in (late, other))
    if _has_shapes(late) != _has_shapes(other):  # then they tell nothing
        mine, theirs = ([one._replace(shapes=[None] * len(one.shapes)) for one in each] for each in (mine, theirs))
    if all(one[:2] == another[:2] for one, another in zip(mine, theirs, strict=True)):
        # Of steps that do not all do the same, those that do what most do.
        ((usual, steps),) = Counter(len(one.names) for one in mine).most_common(1)
        mine, theirs = ([one for one in each if len(one.names) == usual] for each in (mine, theirs))
        if steps < min(n, FEW_STEPS):
            return None
    step_us = median(other.steps.duration_us)
    # Of two steps what both have; of more, what most have.
    sums_us = [float(one.us.sum() - another.us.sum()) for one, another in zip(mine, theirs, strict=True)]
    later_us, sum_us = _usual(sums_us), sum(sums_us)
    ops = len(mine[-1].names) - mine[-1].names.count(BEGINS)
    if any(one[:2] != another[:2] for one, another in zip(mine, theirs, strict=True)):
        longer = _longer_by_other_work(mine, theirs)
        place, place_us = max(longer.items(), key=lambda item: (item[1], item[0]), default=("", 0.0))
        is_why = longer.total() >= MOST_OF_IT * later_us and min(later_us, place_us) >= MIN_SHARE_OF_STEP * step_us
        kind = OTHER_WORK if is_why else NOT_LATER
        return RankDifference(kind, rank, of_gpu, ops, later_us, sum_us, place=place, place_us=place_us)
    if ops < FEWEST_OPS:
        return None
    every = np.array([one.own_us - another.own_us for one, another in zip(mine, theirs, strict=True)])
    ratios = [one.us[another.us > 0] / another.us[another.us > 0] for one, another in zip(mine, theirs, strict=True)]
    times = median(np.array([median(one) for one in ratios if len(one)] or [1.0]))
    if later_us <= 0:
        return RankDifference(NOT_LATER, rank, of_gpu, ops, later_us, sum_us, times)
    at_us = every.min(axis=0) if len(every) == 2 else np.median(every, axis=0)
    largest = np.argsort(-at_us, kind="stable")[:PLACES]
    needed = int(np.searchsorted(np.cumsum(at_us[largest]), MOST_OF_IT * later_us)) + 1
    if needed <= PLACES and at_us[largest[:needed]].sum() >= MIN_SHARE_OF_STEP * step_us:
        place = ", ".join(dict.fromkeys(mine[-1].names[at] for at in largest[:needed].tolist()))
        return RankDifference(AT_A_PLACE, rank, of_gpu, ops, later_us, sum_us, times, place, float(at_us[largest[:needed]].sum()))
    return RankDifference(SLOWER, rank, of_gpu, ops, later_us, sum_us, times)


def _usual(values: list[float]) -> float:
    return min(values) if len(values) == 2 else median(np.array(values))


def _longer_by_other_work(mine: list[Stretches], theirs: list[Stretches]) -> Counter[str]:
    """Return by how much ops take longer in a step (us), by their names, of which the two have not the same: other shapes, or
    more. Of what asks for a collective it depends on the others how long it takes.
    """
    longer: Counter[str] = Counter()
    for step, others in zip(mine, theirs, strict=True):
        ran, others_ran = (Counter(zip(one.names, map(repr, one.shapes), strict=True)) for one in (step, others))
        other = {name for name, _ in ((ran - others_ran) | (others_ran - ran)) if not name.startswith(ASKS)}
        for sign, one in ((1, step), (-1, others)):
            for name, us in zip(one.names, one.us.tolist(), strict=True):
                if name in other:
                    longer[name] += sign * us / len(mine)
    return longer


def _stretches(trace: Trace) -> list[Stretches]:
    """Return the ops of each step, on its thread and those of the backward pass, with their shapes, and the time from each one's
    start to the next one's, without waiting; before them the step's begin. Where the CPU computes, an op as such is no place.
    """
    ops = trace.outer_ops.where(np.isin(trace.outer_ops.track, np.append(trace.steps.track, trace.backward_tracks)))
    step, names, shapes = (
        trace.step_at(ops.start_ns),
        np.array(ops.names, object),
        np.array([*_shapes_within(trace, ops), None], object),
    )
    waits, found = _waits(trace), []
    for number, (start_ns, end_ns) in enumerate(zip(trace.steps.start_ns, trace.steps.end_ns, strict=True)):
        here = np.flatnonzero(step == number)
        edges_ns = np.maximum.accumulate(np.concatenate([[start_ns], ops.start_ns[here], [end_ns]]))
        from_ns = edges_ns[:-1]
        free_us, behind_us = (
            (edges_ns[1:] - begin_ns - each_within_ns(begin_ns, edges_ns[1:], waits)) / 1000
            for begin_ns in (from_ns, np.clip(np.append(start_ns, ops.end_ns[here]), from_ns, edges_ns[1:]))
        )
        found.append(Stretches([BEGINS, *names[here]], [None, *shapes[here]], free_us, free_us if len(trace.work) else behind_us))
    return found


def _waits(trace: Trace) -> Union:
    """Return where the CPU waits for the GPU; without one, where a collective runs and no op that computes does."""
    if len(trace.work):
        return merged(trace.waits.start_ns, trace.waits.end_ns)
    collectives = trace.annotations.where(trace.annotations.is_named(is_collective_on_cpu))
    computing = trace.ops.where(trace.ops.is_named(lambda name: name.startswith("aten::")))
    asking = trace.ops.where(trace.ops.is_named(lambda name: name.startswith(ASKS)))
    running = merged(*(np.concatenate([getattr(collectives, end), getattr(asking, end)]) for end in ("start_ns", "end_ns")))
    return without(running, merged(computing.start_ns, computing.end_ns))


def _kernels(trace: Trace) -> list[Stretches]:
    """Return the ops that launched the computing kernels of each step (or the kernels, where no op did), with their names, grids,
    blocks and shapes, and their times.
    """
    work = trace.linked.where((trace.linked.step >= 0) & ~trace.linked.is_named(is_collective))
    work = work.where(np.argsort(trace.slices.start_ns[work.call], kind="stable"))
    names = np.array(Rows(trace.slices, np.where(work.op >= 0, work.op, work.at)).names, object)
    shapes = np.array([*zip(work.names, _grids(work), _shapes(trace, work.op), strict=True), None], object)[:-1]
    each = [np.flatnonzero(work.step == number) for number in range(len(trace.steps))]
    return [Stretches(names[here].tolist(), shapes[here].tolist(), *[work.duration_us[here]] * 2) for here in each]


def _has_shapes(trace: Trace) -> bool:
    return any(isinstance(one, Inputs) for one in trace.slices.details)


def _grids(work: Rows) -> list[object]:
    details = [(one.grid, one.block) if isinstance(one, Footprint) else None for one in [*work.slices.details, None]]
    return [details[n] for n in work.detail.tolist()]


def _shapes_within(trace: Trace, ops: Rows) -> list[object]:
    """Return the shapes of the inputs of these outermost ops, and of all ops in them: a node of the backward pass has none."""
    found: list[list[object]] = [[] for _ in range(len(ops))]
    within = trace.ops.where(np.isin(trace.ops.track, np.unique(ops.track)))
    order = np.lexsort((ops.start_ns, ops.track))
    for track in np.unique(ops.track).tolist():
        outer, inner = order[ops.track[order] == track], within.where(within.track == track)
        number = np.searchsorted(ops.start_ns[outer], inner.start_ns, "right") - 1
        for n, shapes in zip(number.tolist(), _shapes(trace, inner.at), strict=True):
            if n >= 0 and shapes:
                found[outer[n]].append(shapes)
    return list(map(tuple, found))


def _shapes(trace: Trace, ops: np.ndarray) -> list[object]:
    """Return the shapes of the inputs of these ops (rows; -1: none), where they were recorded."""
    details = [one.dims if isinstance(one, Inputs) else None for one in [*trace.slices.details, None]]
    return [details[n] for n in np.where(ops >= 0, trace.slices.detail[ops], -1).tolist()]
