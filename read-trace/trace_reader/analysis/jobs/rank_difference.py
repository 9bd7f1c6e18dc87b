"""Whether a late rank does something else than the others, or the same, slower: what the program can change, and what it cannot.

Two ranks that run the same ops are compared op by op, each with what passes up to the next one, without the time in which the CPU
waits for the GPU. What one place takes longer in each step is the program's; what nearly all places take a little longer is the
host's, or of that recording alone.
"""

import msgspec
import numpy as np
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.trace import Trace
from trace_reader.model.rows import median
from trace_reader.model.slices import Inputs
from trace_reader.names.kernel_names import is_collective

AT_A_PLACE, OTHER_WORK, SLOWER, NOT_LATER = "at a place", "other work", "slower", "not later"
PLACES, MOST_OF_IT = 3, 0.5  # so many places, with so much of what it is later by, are places
FEWEST_OPS = 20  # a step, of which most can be slower
BEGINS = "the step's begin"


class RankDifference(msgspec.Struct, frozen=True):
    """What a late rank does otherwise than another one. `kind`: later in each step at one place (AT_A_PLACE, behind the op
    `place`, or at the step's begin), OTHER_WORK (other ops or shapes, `place`: the first), the same `ops`, on the CPU or kernels,
    most of them some `times` as long (SLOWER), or NOT_LATER: in some step it is no later than the other.
    `later_us`: by how much it is later in a step.
    """

    kind: str
    other: int
    ops: int
    later_us: float
    times: float
    place: str = ""


def rank_difference(late: Trace, other: Trace, rank: int, of_gpu: bool) -> RankDifference | None:
    """Return how a late rank differs from another one (number `rank`): by its CPU's ops, or by its kernels (`of_gpu`). None: the
    two have no steps to compare, or not as many, too few ops, or no GPU: there a rank's ops wait for the others.
    """
    steps = len(late.steps)
    if not steps or steps != len(other.steps) or not len(late.work) or not len(other.work):
        return None
    later, ratios, ops = [], [], 0
    names: list[str] = []
    for step in range(steps):
        (names, shapes, mine_us), (others, other_shapes, theirs_us) = (
            (_kernels if of_gpu else _stretches)(trace, step) for trace in (late, other)
        )
        differ = next((n for n, one in enumerate(zip(names, others, strict=False)) if one[0] != one[1]), None)
        if differ is None and len(names) == len(others):
            differ = next((n for n, one in enumerate(zip(shapes, other_shapes, strict=True)) if one[0] != one[1]), None)
        elif differ is None:
            differ = min(len(names), len(others))
        if differ is not None:
            place = names[differ] if differ < len(names) else others[differ]
            longer_us = float(mine_us.sum() - theirs_us.sum())
            return RankDifference(OTHER_WORK, rank, len(names) - names.count(BEGINS), longer_us, 1.0, place)
        later.append(mine_us - theirs_us)
        long = theirs_us > 0
        ratios.append(median(mine_us[long] / theirs_us[long]) if long.any() else 1.0)
        ops = len(names) - names.count(BEGINS)
    if ops < FEWEST_OPS or len({len(one) for one in later}) > 1:
        return None
    every = np.array(later)
    # Of two steps what both have; of more, what most have.
    at_us, sums_us = (
        (every.min(axis=0), every.sum(axis=1).min()) if steps == 2 else (np.median(every, axis=0), median(every.sum(axis=1)))
    )
    whole_us, times = float(sums_us), median(np.array(ratios))
    if whole_us <= 0:
        return RankDifference(NOT_LATER, rank, ops, whole_us, times)
    largest = np.argsort(-at_us, kind="stable")[:PLACES]
    if at_us[largest].sum() >= MOST_OF_IT * whole_us:
        return RankDifference(AT_A_PLACE, rank, ops, whole_us, times, names[int(largest[0])])
    return RankDifference(SLOWER, rank, ops, whole_us, times)


def _stretches(trace: Trace, step: int) -> tuple[list[str], list[object], np.ndarray]:
    """Return the ops of a step, on its thread and those of the backward pass, with their shapes, and the time from each one's
    start to the next one's (us); before them the step's begin.
    """
    ops = trace.outer_ops.where(trace.step_at(trace.outer_ops.start_ns) == step)
    ops = ops.where(np.isin(ops.track, np.append(trace.steps.track[step], trace.backward_tracks)))
    edges_ns = np.concatenate([[trace.steps.start_ns[step]], ops.start_ns, [trace.steps.end_ns[step]]])
    waits = merged(trace.waits.start_ns, trace.waits.end_ns)
    free_ns = np.maximum(np.diff(edges_ns), 0) - each_within_ns(edges_ns[:-1], np.maximum(edges_ns[1:], edges_ns[:-1]), waits)
    return [BEGINS, *ops.names], [None, *_shapes(trace, ops.at)], free_ns / 1000


def _kernels(trace: Trace, step: int) -> tuple[list[str], list[object], np.ndarray]:
    """Return the computing kernels of a step, the shapes of the ops that launched them, and their times (us)."""
    work = trace.linked.where((trace.linked.step == step) & ~trace.linked.is_named(is_collective))
    order = np.argsort(trace.slices.start_ns[work.call], kind="stable")
    work = work.where(order)
    return work.names, _shapes(trace, work.op), work.duration_us


def _shapes(trace: Trace, ops: np.ndarray) -> list[object]:
    """Return the shapes of the inputs of these ops (rows; -1: none), where they were recorded."""
    details = [one.dims if isinstance(one, Inputs) else None for one in [*trace.slices.details, None]]
    return [details[n] for n in np.where(ops >= 0, trace.slices.detail[ops], -1).tolist()]
