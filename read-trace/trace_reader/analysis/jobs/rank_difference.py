"""Whether a late rank does something else than the others, or the same, slower: what the program can change, and what it cannot.

Two ranks that run the same ops are compared op by op, each with what passes up to the next one, without the time in which the CPU
waits for the GPU. What a few places take longer in each step is the program's; what nearly all places take a little longer may be
the host's, or of that recording alone.
"""

from collections import Counter

import msgspec
import numpy as np
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, median
from trace_reader.model.slices import Footprint, Inputs
from trace_reader.names.kernel_names import is_collective

AT_A_PLACE, OTHER_WORK, SLOWER, NOT_LATER = "at a place", "other work", "slower", "not later"
PLACES, MOST_OF_IT = 3, 0.5  # so many places, with so much of what it is later by, are places
MIN_SHARE_OF_STEP = 0.03  # that a rank is later by, for that to be worth a name
FEWEST_OPS = 20  # a step, of which most can be slower
BEGINS = "the step's begin"

Steps = list[tuple[list[str], list[object], np.ndarray]]  # of each step: names, shapes, times (us)


class RankDifference(msgspec.Struct, frozen=True):
    """What a late rank does otherwise than rank `other`, on the CPU or by its kernels (`of_gpu`). `kind`: OTHER_WORK (other ops
    or shapes) that takes longer, the same `ops` and later in each step at a few places (AT_A_PLACE), the same and later all over
    (SLOWER, half of them `times` as long or more), or NOT_LATER: in some step no later than the other. `later_us`: by how much
    it is later in a step; `place` and `place_us`: the ops that take most longer, and that time.
    """

    kind: str
    other: int
    of_gpu: bool
    ops: int
    later_us: float
    times: float = 1.0
    place: str = ""
    place_us: float = 0.0


def rank_difference(late: Trace, other: Trace, rank: int, of_gpu: bool) -> RankDifference | None:
    """Return how a late rank differs from another one (number `rank`): by its CPU's ops, or by its kernels (`of_gpu`). None: the
    two have no steps to compare, or not as many, too few ops, or no GPU: there a rank's ops wait for the others.
    """
    n = len(late.steps)
    if not n or n != len(other.steps) or not len(late.work) or not len(other.work):
        return None
    mine, theirs = ((_kernels if of_gpu else _stretches)(trace) for trace in (late, other))
    step_us = median(other.steps.duration_us)
    # Of two steps what both have; of more, what most have.
    sums_us = [float(us.sum() - others_us.sum()) for (_, _, us), (_, _, others_us) in zip(mine, theirs, strict=True)]
    later_us = _usual(sums_us)
    ops = len(mine[-1][0]) - mine[-1][0].count(BEGINS)
    if any(one[:2] != another[:2] for one, another in zip(mine, theirs, strict=True)):
        place, place_us = _most_of_a_name(mine, theirs)
        kind = OTHER_WORK if later_us >= MIN_SHARE_OF_STEP * step_us else NOT_LATER
        return RankDifference(kind, rank, of_gpu, ops, later_us, place=place, place_us=place_us)
    if ops < FEWEST_OPS or len({len(names) for names, _, _ in mine}) > 1:
        return None
    every = np.array([us - others_us for (_, _, us), (_, _, others_us) in zip(mine, theirs, strict=True)])
    ratios = [us[others_us > 0] / others_us[others_us > 0] for (_, _, us), (_, _, others_us) in zip(mine, theirs, strict=True)]
    times = median(np.array([median(one) for one in ratios if len(one)] or [1.0]))
    if later_us <= 0:
        return RankDifference(NOT_LATER, rank, of_gpu, ops, later_us, times)
    at_us = every.min(axis=0) if n == 2 else np.median(every, axis=0)
    largest = np.argsort(-at_us, kind="stable")[:PLACES]
    needed = int(np.searchsorted(np.cumsum(at_us[largest]), MOST_OF_IT * later_us)) + 1
    if needed <= PLACES and at_us[largest[:needed]].sum() >= MIN_SHARE_OF_STEP * step_us:
        place = ", ".join(dict.fromkeys(mine[-1][0][at] for at in largest[:needed].tolist()))
        return RankDifference(AT_A_PLACE, rank, of_gpu, ops, later_us, times, place, float(at_us[largest[:needed]].sum()))
    return RankDifference(SLOWER, rank, of_gpu, ops, later_us, times)


def _usual(values: list[float]) -> float:
    return min(values) if len(values) == 2 else median(np.array(values))


def _most_of_a_name(mine: Steps, theirs: Steps) -> tuple[str, float]:
    """Return the name of the ops that take most longer, and by how much in a step."""
    longer: Counter[str] = Counter()
    for sign, steps in ((1, mine), (-1, theirs)):
        for names, _, us in steps:
            for name, one in zip(names, us.tolist(), strict=True):
                longer[name] += sign * one / len(mine)
    return max(longer.items(), key=lambda item: (item[1], item[0]), default=("", 0.0))


def _stretches(trace: Trace) -> Steps:
    """Return the ops of each step, on its thread and those of the backward pass, with their shapes, and the time from each one's
    start to the next one's; before them the step's begin.
    """
    ops = trace.outer_ops.where(np.isin(trace.outer_ops.track, np.append(trace.steps.track, trace.backward_tracks)))
    step, names, shapes = (
        trace.step_at(ops.start_ns),
        np.array(ops.names, object),
        np.array([*_shapes(trace, ops.at), None], object),
    )
    waits, found = merged(trace.waits.start_ns, trace.waits.end_ns), []
    for number, (start_ns, end_ns) in enumerate(zip(trace.steps.start_ns, trace.steps.end_ns, strict=True)):
        here = np.flatnonzero(step == number)
        edges_ns = np.maximum.accumulate(np.concatenate([[start_ns], ops.start_ns[here], [end_ns]]))
        free_us = (np.diff(edges_ns) - each_within_ns(edges_ns[:-1], edges_ns[1:], waits)) / 1000
        found.append(([BEGINS, *names[here]], [None, *shapes[here]], free_us))
    return found


def _kernels(trace: Trace) -> Steps:
    """Return the computing kernels of each step, their grids and blocks with the shapes of the ops that launched them, and their
    times.
    """
    work = trace.linked.where((trace.linked.step >= 0) & ~trace.linked.is_named(is_collective))
    work = work.where(np.argsort(trace.slices.start_ns[work.call], kind="stable"))
    names, dims = np.array(work.names, object), _shapes(trace, work.op)
    shapes = np.array([*zip(_grids(work), dims, strict=True), None], object)[:-1]
    return [(names[here].tolist(), shapes[here].tolist(), work.duration_us[here]) for here in (
        np.flatnonzero(work.step == number) for number in range(len(trace.steps))
    )]  # fmt: skip


def _grids(work: Rows) -> list[object]:
    details = [(one.grid, one.block) if isinstance(one, Footprint) else None for one in [*work.slices.details, None]]
    return [details[n] for n in work.detail.tolist()]


def _shapes(trace: Trace, ops: np.ndarray) -> list[object]:
    """Return the shapes of the inputs of these ops (rows; -1: none), where they were recorded."""
    details = [one.dims if isinstance(one, Inputs) else None for one in [*trace.slices.details, None]]
    return [details[n] for n in np.where(ops >= 0, trace.slices.detail[ops], -1).tolist()]
