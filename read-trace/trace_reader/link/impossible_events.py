"""GPU events that cannot have taken as long as a file says: others of their stream, which runs one at a time, began meanwhile."""

import msgspec
import numpy as np
from trace_reader.link.launches import Origin
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Slices, Track

LONGEST_OVERLAP_NS = 100_000  # kernels that overlap on purpose (programmatic dependent launch) do so at their edges
SLACK_NS = 2_000
# Events of a stream: where more overlap, it does not run one after another (several queues in one row).
FEW, FEW_OF_MANY = 3, 0.01


class ImpossibleEvent(msgspec.Struct, frozen=True):
    """A GPU event in whose time others of its stream began: it is `cut` to where the next one begins. Times in us."""

    name: str
    track: Track
    start_us: float
    duration_us: float  # as the file has it
    left_us: float
    others: int  # that began meanwhile


def overlapping(work: Rows) -> int:
    """Return how many events begin while another of their stream runs, where these are many: what stands in one row are then
    several queues, and nothing is cut.
    """
    found = 0
    in_order = work.where(work.origin != Origin.GRAPH)
    for _, stream in in_order.by(in_order.track):
        reached = np.maximum.accumulate(stream.end_ns)[:-1]
        late = int((reached - stream.start_ns[1:] > SLACK_NS).sum())
        found += late if late > max(FEW, FEW_OF_MANY * len(stream)) else 0
    return found


def cut_impossible(slices: Slices, work: Rows) -> tuple[ImpossibleEvent, ...]:
    """Return the impossible events, in order of start. From here on, each ends in `slices` where the next one of its stream
    begins.
    """
    found = []
    in_order = work.where(work.origin != Origin.GRAPH)  # the branches of a graph run beside each other
    for _, stream in in_order.by(in_order.track):
        start, end = stream.start_ns, stream.end_ns
        if len(stream) < 2:
            continue
        next_start = np.append(start[1:], np.iinfo(np.int64).max)
        next_end = np.append(end[1:], np.iinfo(np.int64).max)
        overlap = end - next_start
        holds = (overlap > SLACK_NS) & (next_end < end - SLACK_NS) & (next_start > start)
        wrong = np.flatnonzero(holds | ((overlap > LONGEST_OVERLAP_NS) & (next_start > start)))
        if not len(wrong) or len(wrong) > max(FEW, FEW_OF_MANY * len(stream)):
            continue
        others = np.searchsorted(start, end[wrong], "left") - 1 - wrong
        for place, n in zip(wrong.tolist(), others.tolist(), strict=True):
            one = stream[place]
            left_us = float(next_start[place] - start[place]) / 1000
            found.append(ImpossibleEvent(one.name, one.track, one.start_us, one.duration_us, left_us, n))
            slices.end_ns[one.row] = next_start[place]
            slices.duration_us[one.row] = left_us
    return tuple(sorted(found, key=lambda event: (event.start_us, str(event.track))))
