"""Pauses that one step has and the others have not: a garbage collection, or a machine that was busy elsewhere. They are told,
and taken out of what is told per step.
"""

import msgspec
import numpy as np
from trace_reader.model.rows import Rows, median
from trace_reader.model.slices import Kind, Slices

ODD = 3.0  # times the median of all steps
OF_THE_EXCESS = 0.7  # that the pause explains
NEARLY_ALL = 0.9  # of the step, that an annotation spans: what it holds is looked at


class Pause(msgspec.Struct, frozen=True):
    """A pause of one step, or before it: its place, and from when to when (ns) its thread recorded nothing."""

    step: int
    start_ns: int
    end_ns: int
    is_before: bool = False


def pauses(slices: Slices, steps: Rows, ends_ns: np.ndarray) -> tuple[Pause, ...]:
    """The pauses of those steps that take ODD times as long as is usual, if one pause explains that; of three steps or more, and
    not the first one's. None where they are more than half. `ends_ns`: when each step ends, its GPU work with it.
    """
    if len(steps) < 3:
        return ()
    times_ns = np.diff(np.append(steps.start_ns[0], ends_ns))
    usual_ns, found = median(times_ns), []
    for step in (np.flatnonzero(times_ns[1:] > ODD * usual_ns) + 1).tolist():
        begin_ns, end_ns = int(steps.start_ns[step]), int(steps.end_ns[step])
        rows = slices.of(Kind.OP, Kind.CALL, Kind.ANNOTATION)
        rows = rows[
            (slices.track[rows] == steps.track[step]) & (slices.start_ns[rows] < end_ns) & (slices.end_ns[rows] > begin_ns)
        ]
        spans_all = slices.end_ns[rows] - slices.start_ns[rows] >= NEARLY_ALL * (end_ns - begin_ns)
        rows = rows[~((slices.kind[rows] == Kind.ANNOTATION) & spans_all)]
        starts = np.append(np.maximum(slices.start_ns[rows], begin_ns), end_ns)
        reached = np.append(begin_ns, np.maximum.accumulate(np.maximum(slices.end_ns[rows], begin_ns)))
        longest = int(np.argmax(starts - reached))
        pause = Pause(step, int(reached[longest]), int(starts[longest]))
        before_ns = begin_ns - int(steps.end_ns[step - 1])
        if before_ns > pause.end_ns - pause.start_ns:  # between two steps
            pause = Pause(step, int(steps.end_ns[step - 1]), begin_ns, is_before=True)
        if pause.end_ns - pause.start_ns >= OF_THE_EXCESS * (times_ns[step] - usual_ns):
            found.append(pause)
    return tuple(found) if 2 * len(found) <= len(steps) - 1 else ()
