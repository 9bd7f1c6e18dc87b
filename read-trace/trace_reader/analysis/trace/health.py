"""Whether a recording is fit to be judged: what in it cannot be, or proves that something is not in it."""

import msgspec
import numpy as np
from trace_reader.link.impossible_events import ImpossibleEvent
from trace_reader.link.launches import Origin
from trace_reader.link.odd_steps import Pause
from trace_reader.link.trace import Trace


class Health(msgspec.Struct, frozen=True):
    """What is wrong with a recording. `impossible`: GPU events that end where the next one of their stream begins, earlier than
    the file says. `outlasting`: synchronizes that go on after all recorded GPU work has ended, and `outlasting_us` the longest
    time of one behind it. `is_unlinked`: no GPU event names its launch. `pauses`: what one step waited and the others did not.
    """

    impossible: tuple[ImpossibleEvent, ...] = ()
    outlasting: int = 0
    outlasting_us: float = 0.0
    is_unlinked: bool = False
    pauses: tuple[Pause, ...] = ()


def health(trace: Trace) -> Health:
    """What is wrong with a trace."""
    waits, work = trace.waits.where(trace.waits.outlasts), trace.work
    tails_us = 0.0
    if len(waits):
        last_ns = np.sort(work.end_ns)
        before_ns = last_ns[np.maximum(np.searchsorted(last_ns, waits.end_ns, "right") - 1, 0)]
        tails_us = float((waits.end_ns - np.maximum(before_ns, waits.start_ns)).max()) / 1000
    unlinked = bool(len(work)) and bool((work.origin == Origin.UNKNOWN).all())
    return Health(trace.impossible, len(waits), tails_us, unlinked, trace.pauses)
