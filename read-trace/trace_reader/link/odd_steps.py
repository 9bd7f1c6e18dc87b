"""Pauses that one step has and the others have not: a garbage collection, or a machine that was busy elsewhere. They are told,
and taken out of what is told per step.
"""

import msgspec
import numpy as np
from trace_reader.model.rows import Rows, distinct, median
from trace_reader.model.slices import Kind, Slices
from trace_reader.names.range_names import is_loader

ODD = 3.0  # times the median of all steps
OF_THE_EXCESS = 0.7  # that the pause explains
NEARLY_ALL = 0.9  # of the step, that an annotation spans: what it holds is looked at; of a pause, that a DataLoader's spans


class Pause(msgspec.Struct, frozen=True):
    """A pause of one step, or before it: its place, and from when to when (ns) its thread recorded nothing. `is_of_loader`: an
    annotation of a DataLoader is open meanwhile.
    """

    step: int
    start_ns: int
    end_ns: int
    is_before: bool = False
    is_of_loader: bool = False


def pauses(slices: Slices, steps: Rows, ends_ns: np.ndarray) -> tuple[Pause, ...]:
    """Return the pauses of those steps that take ODD times as long as is usual, if one pause explains that; of three steps or
    more, and not the first one's. None where they are more than half. `ends_ns`: when each step ends, its GPU work with it.
    """
    if len(steps) < 3:
        return ()
    starts_ns, stops_ns, tracks = steps.start_ns, steps.end_ns, steps.track
    times_ns = np.diff(np.append(starts_ns[0], ends_ns))
    usual_ns, found = median(times_ns), []
    annotations = Rows(slices, slices.of(Kind.ANNOTATION))
    loaders = annotations.where(annotations.is_named(is_loader))
    rows = slices.of(Kind.OP, Kind.CALL, Kind.ANNOTATION)
    on_track = {track: _busy(slices, rows[slices.track[rows] == track]) for track in distinct(tracks).values.tolist()}
    for step in (np.flatnonzero(times_ns[1:] > ODD * usual_ns) + 1).tolist():
        begin_ns, end_ns, before_ns = int(starts_ns[step]), int(stops_ns[step]), int(stops_ns[step - 1])
        rows, rows_ns, open_until_ns = on_track[int(tracks[step])]
        first, last = np.searchsorted(rows_ns, (begin_ns, end_ns)).tolist()
        busy = rows[first:last]
        spans_all = slices.end_ns[busy] - slices.start_ns[busy] >= NEARLY_ALL * (end_ns - begin_ns)
        busy = busy[~((slices.kind[busy] == Kind.ANNOTATION) & spans_all)]
        starts = np.append(slices.start_ns[busy], end_ns)
        reached = np.maximum.accumulate(np.append(max(begin_ns, int(open_until_ns[first])), slices.end_ns[busy]))
        longest = int(np.argmax(starts - reached))
        pause = Pause(step, int(reached[longest]), int(starts[longest]))
        if begin_ns - before_ns > pause.end_ns - pause.start_ns:  # between two steps
            pause = Pause(step, before_ns, begin_ns, is_before=True)
        in_loader_ns = np.minimum(loaders.end_ns, pause.end_ns) - np.maximum(loaders.start_ns, pause.start_ns)
        is_of_loader = int(in_loader_ns.max(initial=0)) >= NEARLY_ALL * (pause.end_ns - pause.start_ns)
        pause = msgspec.structs.replace(pause, is_of_loader=is_of_loader)
        if pause.end_ns - pause.start_ns >= OF_THE_EXCESS * (times_ns[step] - usual_ns):
            found.append(pause)
    return tuple(found) if 2 * len(found) <= len(steps) - 1 else ()


def _busy(slices: Slices, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a thread does, in order of start; these starts; and until when an op or a call that began before each of it is
    open, and before the end. Times in ns.
    """
    rows = rows[np.argsort(slices.start_ns[rows], kind="stable")]
    ends_ns = np.where(slices.kind[rows] == Kind.ANNOTATION, 0, slices.end_ns[rows])
    return rows, slices.start_ns[rows], np.append(0, np.maximum.accumulate(ends_ns))
