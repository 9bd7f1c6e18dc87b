"""The calls in which the CPU waited for the GPU: it synchronized, copied to or from pageable memory, gave memory back, or
launched into a full queue."""

from enum import IntEnum

import numpy as np
from trace_reader.link.launches import devices_of
from trace_reader.model.rows import Rows, among, distinct, median
from trace_reader.names.call_names import is_copy, is_free, is_synchronizing

SHORTEST_NS = 5_000  # a call that returns earlier did not wait
LATE_END_NS = 500  # an event that a call waited for can seem to end this long after the call: two clocks
LATE_COPY_NS = 100_000  # a copy of pageable memory returns when the last part of it is staged, a little before it is copied
LATE_CLOCK_NS = 10_000  # of a copy whose name says that it waits: on an MI300X the copy seems to end up to 3.7 us later
PAGEABLE = "Pageable"  # as CUPTI calls the host's ordinary memory in a copy's name
LONGEST_TAIL_NS = 1_000_000  # from the end of what a call waited for to its own
FULL_QUEUE = 900  # launches outstanding; a device takes about a thousand
FAR_LONGER = 10  # times the median of the launches that found room


class Reason(IntEnum):
    """Why a call waited."""

    SYNCHRONIZE = 0
    COPY = 1
    FREE = 2
    QUEUE = 3


def waits(calls: Rows, work: Rows) -> Rows:
    """Return the calls that waited for the GPU, in order of their starts, with three columns: `reason`; of a copy `copied`, its
    place in the GPU's `work` (-1: none); and `outlasts`, whether all recorded work had ended long before a synchronize did: then
    it waited for what the file does not have.

    Of a synchronize it is not asked whether there was something to wait for.
    """
    reason, copied = np.full(len(calls), -1), _blocking_copies(calls, work)
    reason[calls.is_named(is_free) & _is_long(calls)] = Reason.FREE
    reason[calls.is_named(is_synchronizing)] = Reason.SYNCHRONIZE
    reason[among(calls.at, _blocked_launches(work))] = Reason.QUEUE
    reason[copied >= 0] = Reason.COPY
    found = Rows(calls.slices, calls.at, reason=reason, copied=copied).where(reason >= 0)
    return Rows(calls.slices, found.at, reason=found.reason, copied=found.copied, outlasts=_outlasts(found, work))


def _outlasts(calls: Rows, work: Rows) -> np.ndarray:
    """For each call that waited, whether it is a synchronize that goes on for longer than LONGEST_TAIL_NS while nothing recorded
    runs any more.
    """
    asked = calls.reason == Reason.SYNCHRONIZE
    if not asked.any() or not len(work):
        return np.zeros(len(calls), bool)
    order = np.argsort(work.start_ns, kind="stable")
    reached_ns = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(work.end_ns[order]))
    begun = np.searchsorted(work.start_ns[order], calls.end_ns + LATE_END_NS)
    idle_from_ns = np.maximum(reached_ns[begun], calls.start_ns)
    return asked & (calls.end_ns - idle_from_ns > LONGEST_TAIL_NS)


def _blocking_copies(calls: Rows, work: Rows) -> np.ndarray:
    """For each call: the place of its copy in the work, if it returned only when that was done; else -1.

    A function that is named async waits, too, where the memory is pageable: it shows in the copy, which ended inside the call.
    """
    copied = np.full(len(calls), -1)
    asked = np.flatnonzero(calls.is_named(is_copy) & _is_long(calls))
    if len(work) and len(asked):
        copies = calls.where(asked)
        order = np.argsort(work.call, kind="stable")
        place = order[np.searchsorted(work.call[order], copies.at, "right") - 1]
        ended_ns = work.end_ns[place]
        pageable = work.is_named(lambda name: PAGEABLE in name)[place]
        by_name = ~copies.is_named(lambda name: "Async" in name)  # these wait, whatever the memory
        late_ns = np.where(pageable, LATE_COPY_NS, np.where(by_name, LATE_CLOCK_NS, LATE_END_NS))
        begun = (work.start_ns[place] < copies.end_ns) | by_name
        inside = (ended_ns >= copies.start_ns) & (ended_ns <= copies.end_ns + late_ns) & begun
        copied[asked] = np.where((work.call[place] == copies.at) & inside, place, -1)
    return copied


def _is_long(calls: Rows) -> np.ndarray:
    return calls.end_ns - calls.start_ns > SHORTEST_NS


def _blocked_launches(work: Rows) -> np.ndarray:
    """Return the rows of the calls that launched (kernels, copies, memsets), found their device's queue full, and waited for
    room.
    """
    slices = work.slices
    work = work.where(work.call >= 0)
    found = [np.empty(0, np.int64)]
    for _, event in work.by(devices_of(work)):
        called_ns, ends_ns = np.sort(slices.start_ns[event.call]), np.sort(event.end_ns)
        call = distinct(event.call).values  # each once: a graph's launch has many events
        moment = slices.start_ns[call]
        full = np.searchsorted(called_ns, moment) - np.searchsorted(ends_ns, moment, "right") >= FULL_QUEUE
        if not full.any():
            continue
        for _, alike in Rows(slices, call, full=full).by(slices.name[call]):
            usual = median(alike.duration_us[~alike.full] if (~alike.full).any() else alike.duration_us)
            found.append(alike.at[alike.full & (alike.duration_us > FAR_LONGER * usual)])
    return np.concatenate(found)
