"""The calls in which the CPU waited for the GPU: it synchronized, copied to or from pageable memory, gave memory back, or
launched into a full queue."""

from enum import IntEnum

import numpy as np
from trace_reader.link.launches import devices_of
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct, median
from trace_reader.names.calls import is_copy, is_free, is_synchronizing

SHORTEST_NS = 5_000  # a call that returns earlier did not wait
LATE_END_NS = 500  # an event that a call waited for can seem to end this long after the call: two clocks
FULL_QUEUE = 900  # launches outstanding; a device takes about a thousand
FAR_LONGER = 10  # times the median of the launches that found room


class Reason(IntEnum):
    """Why a call waited."""

    SYNCHRONIZE = 0
    COPY = 1
    FREE = 2
    QUEUE = 3


def waits(trace: Trace) -> Rows:
    """The calls that waited for the GPU, in order of their starts, with the column `reason`.

    Of a synchronize it is not asked whether there was something to wait for.
    """
    calls = trace.calls
    reason = np.full(len(calls), -1)
    reason[calls.is_named(is_free) & _is_long(calls)] = Reason.FREE
    reason[calls.is_named(is_synchronizing)] = Reason.SYNCHRONIZE
    reason[np.isin(calls.at, _blocked_launches(trace))] = Reason.QUEUE
    reason[np.isin(calls.at, blocking_copies(trace).at)] = Reason.COPY
    return Rows(trace.slices, calls.at, reason=reason).where(reason >= 0)


def blocking_copies(trace: Trace) -> Rows:
    """The copying calls that returned only when their copy was done, with the column `copied`, a place in the trace's work.

    A function that is named async waits, too, where the memory is pageable: it shows in the copy, which ended inside the call.
    """
    calls, work = trace.calls, trace.work
    calls = calls.where(calls.is_named(is_copy) & _is_long(calls))
    if not len(work):
        return Rows(trace.slices, calls.at[:0], copied=calls.at[:0])
    order = np.argsort(work.call, kind="stable")
    copied = order[np.searchsorted(work.call[order], calls.at, "right") - 1]
    ended_ns = work.end_ns[copied]
    done = (work.call[copied] == calls.at) & (ended_ns >= calls.start_ns) & (ended_ns <= calls.end_ns + LATE_END_NS)
    return Rows(trace.slices, calls.at, copied=copied).where(done)


def _is_long(calls: Rows) -> np.ndarray:
    return calls.end_ns - calls.start_ns > SHORTEST_NS


def _blocked_launches(trace: Trace) -> np.ndarray:
    """The rows of the calls that launched (kernels, copies, memsets), found their device's queue full, and waited for room."""
    slices, work = trace.slices, trace.work
    work = work.where(work.call >= 0)
    found = [np.empty(0, np.int64)]
    for _, own in work.by(devices_of(work)):
        called_ns, ends_ns = np.sort(slices.start_ns[own.call]), np.sort(own.end_ns)
        call = distinct(own.call).values  # each once: a graph's launch has many events
        moment = slices.start_ns[call]
        full = np.searchsorted(called_ns, moment) - np.searchsorted(ends_ns, moment, "right") >= FULL_QUEUE
        if not full.any():
            continue
        for _, alike in Rows(slices, call, full=full).by(slices.name[call]):
            usual = median(alike.duration_us[~alike.full] if (~alike.full).any() else alike.duration_us)
            found.append(alike.at[alike.full & (alike.duration_us > FAR_LONGER * usual)])
    return np.concatenate(found)
