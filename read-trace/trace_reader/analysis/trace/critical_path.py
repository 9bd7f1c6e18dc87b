"""What limits a run: walking back from its end, and asking at each point what was being waited for.

Without a GPU the path is the CPU's: that of the thread of the steps, and of the backward pass for which it waits.

At a GPU event, the time back to its start is the event's. Then, if the device was still busy when the event was launched, it
waited for the event before it: the walk goes on there. If the device had nothing to do, it waited for the CPU: the walk goes on
at the launch, and back along the CPU to the last call that waited for the GPU, and on at the event for which it waited.
"""

from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.analysis.trace.missing_events import missing
from trace_reader.link.found_steps import outliers
from trace_reader.link.intervals import each_within_ns, merged, union_ns, without
from trace_reader.link.launches import devices_of
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import LATE_END_NS, SHORTEST_NS, Reason
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_launch
from trace_reader.names.kernel_names import is_collective

NO_GPU = "CPU"  # the device of a run without a GPU
LONGEST_LATENCY_NS = 1_000_000  # a longer wait of the device: the trace does not show what for
SHARE_THAT_NAMES = 0.5
NEARLY_BUSY = 0.85  # of the window: what a device is busy for that limits the run, whatever launched its work
MOST_APART = 0.05  # of the window: so much more than the path's work a device may be busy beside it


class PathClass(IntEnum):
    """What a stretch of the path was spent on."""

    COMPUTE = 0  # kernels
    COMMUNICATION = 1  # collective kernels
    COPY = 2  # copies and memsets
    LATENCY = 3  # between a launch and the event, and between two events
    CPU = 4
    UNKNOWN = 5


class CpuShare(msgspec.Struct, frozen=True):
    """Time on the path under one name."""

    name: str
    us: float


class KernelShare(msgspec.Struct, frozen=True):
    """The time on the path of one kernel, copy or memset; `kind` is its class: compute, communication or copy."""

    name: str
    kind: str
    us: float


class Pieces(msgspec.Struct, frozen=True, eq=False):
    """Stretches of a path: recorded from `start_ns` to `end_ns`, of a class, and how long they are on the path: in the recorded
    run as long as that, in one without the profiler shorter. `row` is the GPU event's, `track` the thread of the CPU's, `waited`
    the row of the call that waited for the GPU, before which the CPU could not go on; -1 for none.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    length_ns: np.ndarray
    kind: np.ndarray
    row: np.ndarray
    track: np.ndarray
    waited: np.ndarray

    def __eq__(self, other: object) -> bool:
        columns = ("start_ns", "end_ns", "length_ns", "kind")  # the others are numbers that another file may give otherwise
        return isinstance(other, Pieces) and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def where(self, mask: np.ndarray) -> "Pieces":
        return Pieces(*(getattr(self, name)[mask] for name in self.__struct_fields__))

    def total_us(self, kind: PathClass) -> float:
        return int(self.length_ns[self.kind == kind].sum()) / 1000


class CriticalPath(msgspec.Struct, frozen=True):
    """The path of one device. The times of the classes sum up to the window; `input_us` is no part of `cpu_us`.

    `start_ns` and `end_ns` are where it was recorded, from the file's first slice; `window_us` is how long the run takes there,
    which without the profiler is less.

    `cpu` splits `cpu_us` by what the CPU did, `ops` the same time by the op that was open, `kernels` the GPU's time on the path
    by kernel, copy and memset; the most first.
    """

    device: int | str
    start_ns: int
    end_ns: int
    window_us: float
    compute_us: float
    communication_us: float
    copy_us: float
    latency_us: float
    input_us: float
    cpu_us: float
    unknown_us: float
    cpu: tuple[CpuShare, ...]
    kernels: tuple[KernelShare, ...]
    ops: tuple[CpuShare, ...]
    pieces: Pieces

    def explained_us(self, rows: Rows) -> float:
        """Return how much of the path is these slices (in order): of a GPU's its own time on the path, of the CPU's the path's
        `cpu` and `input` in their time on their thread.
        """
        asked = np.zeros(len(rows.slices), bool)
        asked[rows.at] = True
        pieces = self.pieces
        found_us = int(pieces.length_ns[(pieces.row >= 0) & asked[pieces.row]].sum()) / 1000
        for (track,), intervals in rows.by(rows.track):
            found_us += self.cpu_within_us(track, merged(intervals.start_ns, intervals.end_ns))
        return found_us

    def cpu_within_us(self, track: int, union: tuple[np.ndarray, np.ndarray]) -> float:
        """Return how much of the path is the time of this thread in these stretches (as `merged` gives them)."""
        rows = self.pieces.where((self.pieces.kind == PathClass.CPU) & (self.pieces.track == track))
        inside_ns = each_within_ns(rows.start_ns, rows.end_ns, union)
        return int((inside_ns * (rows.length_ns / (rows.end_ns - rows.start_ns))).sum()) / 1000

    def after_waits_us(self, calls: Rows) -> float:
        """Return the most that could be saved if these calls (in order) had not waited for the GPU.

        That is the path's time on the CPU from the end of each to the launch for which the GPU then waited, as far as the CPU
        would have been ahead: by what the calls took up to then, less what was saved by it before.
        """
        # Those before the path's first piece are not of it: of a played run it begins where the first step ends.
        calls = calls.where(calls.end_ns > self.pieces.start_ns.min(initial=np.iinfo(np.int64).max))
        after = self.pieces.where(among(self.pieces.waited, calls.at) & (self.pieces.kind != PathClass.UNKNOWN))
        length = np.zeros(len(calls), np.int64)
        np.add.at(length, np.searchsorted(calls.at, after.waited), after.length_ns)
        ahead = np.cumsum(calls.end_ns - calls.start_ns - length)
        return int(length.sum() - max(0, -ahead.min(initial=0))) / 1000

    @property
    def classes(self) -> dict[str, float]:
        """The share of each class, 0 to 1, the largest first."""
        times = {
            "compute": self.compute_us, "cpu": self.cpu_us, "input": self.input_us, "communication": self.communication_us,
            "copy": self.copy_us, "latency": self.latency_us, "unknown": self.unknown_us,
        }  # fmt: skip
        shares = {name: us / self.window_us for name, us in times.items()}
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    @property
    def verdict(self) -> str:
        """The class that has half of the path or more, as a verdict; else `mixed`."""
        name, share = next(iter(self.classes.items()))
        return VERDICTS[name] if share >= SHARE_THAT_NAMES else "mixed"


VERDICTS = {
    "compute": "gpu-bound", "cpu": "overhead-bound", "input": "input-bound", "communication": "communication-bound",
    "copy": "copy-bound", "latency": "latency-bound", "unknown": "unknown",
}  # fmt: skip


class PathWindow(msgspec.Struct, frozen=True):
    """Of a device's `work`: from when to when a path goes, in ns from the file's first slice. `track`: of a run without a GPU the
    thread.
    """

    device: int | str
    work: Rows
    start_ns: int
    end_ns: int
    track: int = -1


def windows(trace: Trace) -> list[PathWindow]:
    """Return the window of each device that has one, that of the device which ends last first.

    It begins with the second recorded step (with the first one, where none is left out; without steps, with the first GPU event
    or its launch) and ends with the last GPU event that the recorded steps launched (without steps: with the last). Where the
    trace holds neither GPU events nor launches, it is the CPU's, of the same steps (without steps: of the busiest thread's ops).
    Without steps, what is among the `outliers` is in no window.
    """
    if not len(trace.work):
        return _without_gpu(trace)
    found = []
    for _, event in trace.work.by(devices_of(trace.work)):
        work = event if trace.found is None and len(trace.steps) else event.where(~outliers(event))
        start_ns = _window_start(trace, work)
        launched = work.step >= 0 if len(trace.steps) else np.ones(len(work), bool)
        if launched.any() and (end_ns := int(work.end_ns[launched].max())) > start_ns:
            found.append(PathWindow(trace.slices.tracks[work.track[0]][0], work, start_ns, end_ns))
    return sorted(found, key=lambda window: -window.end_ns)


def _without_gpu(trace: Trace) -> list[PathWindow]:
    """Return the window of a run without a GPU; none where kernels were launched, or may be in what the trace lacks."""
    if trace.calls.is_named(is_launch).any() or not len(trace.ops) or missing(trace):
        return []
    spans = trace.steps.where(np.arange(len(trace.steps)) >= trace.steps_left_out)
    if not len(spans):
        outer = Rows(trace.slices, outermost(trace.slices, trace.ops.at))
        spans = max((rows for _, rows in outer.by(outer.track)), key=lambda rows: rows.total_us)
        spans = spans.where(~outliers(spans))
    start_ns, end_ns = int(spans.start_ns[0]), int(spans.end_ns.max())
    return [PathWindow(NO_GPU, trace.work, start_ns, end_ns, int(spans.track[0]))] if end_ns > start_ns else []


def _window_start(trace: Trace, work: Rows) -> int:
    if len(trace.steps):
        return int(trace.steps.start_ns[trace.steps_left_out])
    launches = work.call[work.call >= 0]
    return min(int(work.start_ns.min()), int(trace.slices.start_ns[launches].min()) if len(launches) else 2**62)


def critical_path(trace: Trace, cpu: CpuActivity, window: PathWindow) -> CriticalPath:
    """Return the path in a window. Takes time n log n of the GPU's events."""
    if window.device == NO_GPU:
        walked = _of_threads(trace, window)
    else:
        work = window.work.where(window.work.end_ns <= window.end_ns)
        walked = _walk(trace, work, window.start_ns)
        working = work.where(_classes(work) != PathClass.COMMUNICATION)  # a collective's kernel waits for other ranks
        busy_ns = union_ns(np.maximum(working.start_ns, window.start_ns), np.maximum(working.end_ns, window.start_ns))
        length_ns = window.end_ns - window.start_ns
        on_gpu_ns = int(walked.length_ns[walked.row >= 0].sum())
        if busy_ns >= NEARLY_BUSY * length_ns and busy_ns - on_gpu_ns > MOST_APART * length_ns:
            # A call that waited is not in the file: no more can be saved than the time in which the device was idle.
            walked = _along_device(trace, work, window.start_ns)
        walked = _computing_meanwhile(work, walked)
    walked = _without_pauses(trace, walked)
    return path_of(trace, cpu, walked, window, int(walked.length_ns.sum()))


def _without_pauses(trace: Trace, path: Pieces) -> Pieces:
    """Return the same path without the CPU's time in pauses that one step has and the others have not."""
    if not trace.pauses:
        return path
    pauses_start_ns, pauses_end_ns = trace.pauses_ns
    first, last = np.searchsorted(pauses_end_ns, path.start_ns, "right"), np.searchsorted(pauses_start_ns, path.end_ns)
    cuts = np.where(path.kind == PathClass.CPU, last - first, 0)
    piece = np.repeat(np.arange(len(cuts)), cuts + 1)  # one more than the pauses that cut it
    nth = np.arange(len(piece)) - (np.cumsum(cuts + 1) - cuts - 1)[piece]
    parts, cuts, place = path.where(piece), cuts[piece], first[piece] + nth
    start_ns = np.where(nth > 0, np.append(0, pauses_end_ns)[place], parts.start_ns)
    end_ns = np.where(nth < cuts, np.append(pauses_start_ns, 0)[place], parts.end_ns)
    length_ns = np.where(cuts > 0, end_ns - start_ns, parts.length_ns)
    parts = msgspec.structs.replace(parts, start_ns=start_ns, end_ns=end_ns, length_ns=length_ns)
    parts = parts.where((cuts == 0) | (length_ns > 0))
    return parts.where(np.lexsort((parts.start_ns, -parts.end_ns)))


def _of_threads(trace: Trace, window: PathWindow) -> Pieces:
    """Return the pieces of a run without a GPU: the ops of a backward pass's thread, and its own thread between them. That it
    waits for others, no row says.
    """
    left, found = (np.array([window.start_ns]), np.array([window.end_ns])), []
    for track in trace.backward_tracks.tolist():
        ops = trace.ops.where(trace.ops.track == track)
        waiting = without(left, merged(ops.start_ns, ops.end_ns))
        found.append(pieces(*without(left, waiting), PathClass.CPU, track=track))
        left = waiting
    path = joined(*found, pieces(*left, PathClass.CPU, track=window.track))
    return path.where(np.argsort(-path.end_ns, kind="stable"))


def path_of(trace: Trace, cpu: CpuActivity, pieces: Pieces, window: PathWindow, length_ns: int) -> CriticalPath:
    """Return the path that consists of these pieces, in a run of this length that was recorded in the window."""
    on_gpu = pieces.where(pieces.row >= 0)
    by_name = Rows(trace.slices, on_gpu.row, kind=on_gpu.kind, ns=on_gpu.length_ns).by(on_gpu.kind, trace.slices.name[on_gpu.row])
    kernels = [KernelShare(rows[0].name, PathClass(kind).name.lower(), int(rows.ns.sum()) / 1000) for (kind, _), rows in by_name]
    on_cpu = pieces.where(pieces.kind == PathClass.CPU)
    spent = cpu.time(on_cpu.start_ns, on_cpu.end_ns, on_cpu.track, on_cpu.length_ns)
    return CriticalPath(
        device=window.device,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        window_us=length_ns / 1000,
        compute_us=pieces.total_us(PathClass.COMPUTE),
        communication_us=pieces.total_us(PathClass.COMMUNICATION),
        copy_us=pieces.total_us(PathClass.COPY),
        latency_us=pieces.total_us(PathClass.LATENCY),
        input_us=spent.input_us,
        cpu_us=sum(spent.what_us.values()),
        unknown_us=pieces.total_us(PathClass.UNKNOWN),
        cpu=_most_first(spent.what_us),
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel.us, kernel.name))),
        ops=_most_first(spent.op_us),
        pieces=pieces,
    )


def _most_first(times_us: dict[str, float]) -> tuple[CpuShare, ...]:
    return tuple(CpuShare(name, us) for name, us in sorted(times_us.items(), key=lambda item: (-item[1], item[0])) if us > 0)


def _walk(trace: Trace, work: Rows, start_ns: int) -> Pieces:
    """Return the pieces of the path that ends with the last of a device's events.

    Where the walk goes on from each event does not depend on how it came there: that is worked out for all of them at once,
    and the walk itself only follows the numbers. Events are numbered in the order of their ends, in which it goes back.
    """
    slices = trace.slices
    order = np.lexsort((work.at, work.start_ns, work.end_ns))
    work = work.where(order)
    start, end, place = work.start_ns, work.end_ns, np.arange(len(work))
    launched = work.call >= 0
    launch = np.where(launched, np.minimum(slices.start_ns[work.call], start), np.iinfo(np.int64).max)
    before = np.minimum(np.searchsorted(end, start, "right"), place) - 1  # the event that ended last before each one
    queued = (before >= 0) & (end[before] >= slices.start_ns[work.call]) & launched
    late = launched & ~queued
    waits = _Waits(trace, work)
    wait = waits.last_before(launch, np.where(launched, slices.track[work.call], -1), place)
    wait[~late] = -1
    came_from = np.where(late, waits.event[wait], before)

    followed, going = [], len(work) - 1
    came_from_list, start_list = came_from.tolist(), start.tolist()
    while going >= 0:
        followed.append(going)
        going = came_from_list[going] if start_list[going] > start_ns else -1
    at = np.array(followed)
    # The moment at which the walk arrives at each event: its end, but no later than the call that waited for it.
    arrival = end[at]
    through = wait[at[:-1]]
    arrival[1:] = np.where(through >= 0, np.minimum(arrival[1:], waits.end_ns[through]), arrival[1:])
    earlier = np.append(arrival[1:], start_ns)  # where the walk goes on
    event_start = np.minimum(start[at], arrival)
    event_kind = _classes(work.where(at))
    was_late = late[at]
    gap_start = np.where(was_late, np.minimum(launch[at], event_start), np.minimum(earlier, event_start))
    too_long = event_start - gap_start > LONGEST_LATENCY_NS
    gap_kind = np.where(~launched[at] | too_long, PathClass.UNKNOWN, PathClass.LATENCY)
    # On the CPU: from the launch back to the end of the call that waited (or to the window's start), and that call's own end.
    call = wait[at]
    wait_end = np.where(call >= 0, waits.end_ns[call], start_ns)
    cpu_start = np.where(was_late, np.minimum(np.maximum(wait_end, earlier), gap_start), gap_start)
    track = np.where(was_late, slices.track[work.call[at]], -1)
    tail_kind = np.where(waits.is_free[call], PathClass.CPU, np.where(waits.outlasts[call], PathClass.UNKNOWN, PathClass.LATENCY))
    path = joined(
        pieces(event_start, arrival, event_kind, row=work.at[at]),
        pieces(gap_start, event_start, gap_kind),
        pieces(cpu_start, gap_start, PathClass.CPU, track=track, waited=waits.at[call]),
        pieces(np.where(was_late, earlier, cpu_start), cpu_start, tail_kind, track=waits.track[call], waited=waits.at[call]),
    )
    begun_ns = np.maximum(path.start_ns, start_ns)
    path = msgspec.structs.replace(path, start_ns=begun_ns, length_ns=path.end_ns - begun_ns)
    return path.where(path.length_ns > 0)


def path_along_device(trace: Trace, cpu: CpuActivity, window: PathWindow, length_ns: int) -> CriticalPath:
    """Return the path that never leaves the device, of a run that takes so long: its events as recorded, and less time between
    them.
    """
    work = window.work.where(window.work.end_ns <= window.end_ns)
    path = _computing_meanwhile(work, _along_device(trace, work, window.start_ns))
    between = path.row < 0
    busy_ns, idle_ns = int(path.length_ns[~between].sum()), int(path.length_ns[between].sum())
    left = max(length_ns - busy_ns, 0) / max(idle_ns, 1)
    path = msgspec.structs.replace(
        path, length_ns=np.where(between, np.rint(path.length_ns * left), path.length_ns).astype(np.int64)
    )
    path = path.where(path.length_ns > 0)
    return path_of(trace, cpu, path, window, int(path.length_ns.sum()))


def _along_device(trace: Trace, work: Rows, start_ns: int) -> Pieces:
    """Return the pieces of a path that never leaves the device: its events, and before each what the device waited for."""
    slices = trace.slices
    order = np.lexsort((work.at, work.start_ns, work.end_ns))
    work = work.where(order)
    start, end, place = work.start_ns, work.end_ns, np.arange(len(work))
    before = np.minimum(np.searchsorted(end, start, "right"), place) - 1
    going, followed = len(work) - 1, []
    while going >= 0:
        followed.append(going)
        going = int(before[going]) if start[going] > start_ns else -1
    at = np.array(followed)
    earlier = np.append(end[at[1:]], start_ns)
    launched = work.call[at] >= 0
    launch = np.where(launched, np.clip(slices.start_ns[work.call[at]], earlier, np.maximum(start[at], earlier)), earlier)
    track = np.where(launched, slices.track[work.call[at]], -1)
    gap_kind = np.where(launched & (start[at] - launch <= LONGEST_LATENCY_NS), PathClass.LATENCY, PathClass.UNKNOWN)
    path = joined(
        pieces(start[at], end[at], _classes(work.where(at)), row=work.at[at]),
        pieces(launch, np.maximum(start[at], launch), gap_kind),
        pieces(earlier, launch, PathClass.CPU, track=track),
    )
    begun_ns = np.maximum(path.start_ns, start_ns)
    path = msgspec.structs.replace(path, start_ns=begun_ns, length_ns=path.end_ns - begun_ns)
    return path.where(path.length_ns > 0)


def _classes(work: Rows) -> np.ndarray:
    """Return the class of each of these GPU events."""
    of_kernels = np.where(work.is_named(is_collective), PathClass.COMMUNICATION, PathClass.COMPUTE)
    return np.where(work.kind == Kind.KERNEL, of_kernels, PathClass.COPY)


def _computing_meanwhile(work: Rows, path: Pieces) -> Pieces:
    """Return the same path, where a transfer, a collective or a wait of the device counts only while nothing is computed: what is
    beside a kernel costs nothing more than it.
    """
    beside = among(path.kind, (PathClass.COMMUNICATION, PathClass.COPY, PathClass.LATENCY, PathClass.UNKNOWN))
    kernels = work.where(_classes(work) == PathClass.COMPUTE)
    if not beside.any() or not len(kernels):
        return path
    # The stretches in which a kernel runs, each with the one that began last.
    order = np.lexsort((kernels.at, kernels.start_ns))
    kernels = kernels.where(order)
    begun, ended = kernels.start_ns, np.maximum.accumulate(kernels.end_ns)
    stop = np.minimum(ended, np.append(begun[1:], np.iinfo(np.int64).max))
    parts = [path.where(~beside)]
    one = path.where(beside)
    first, last = np.searchsorted(stop, one.start_ns, "right"), np.searchsorted(begun, one.end_ns, "left")
    n = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(n)), n)
    at = np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n) + first[which]
    from_ns, to_ns = np.maximum(begun[at], one.start_ns[which]), np.minimum(stop[at], one.end_ns[which])
    covered = pieces(from_ns, to_ns, PathClass.COMPUTE, row=kernels.at[at]).where(to_ns > from_ns)
    parts.append(covered)
    left_from = np.concatenate([one.start_ns, to_ns])
    owner = np.concatenate([np.arange(len(n)), which])
    sort = np.lexsort((left_from, owner))
    left_from, owner = left_from[sort], owner[sort]
    follows = np.append(owner[1:] == owner[:-1], False)
    next_from = np.append(np.concatenate([one.start_ns, from_ns])[sort][1:], 0)
    left_to = np.where(follows, next_from, one.end_ns[owner])
    left = pieces(left_from, left_to, one.kind[owner], row=one.row[owner], track=one.track[owner], waited=one.waited[owner])
    parts.append(left.where(left_to > left_from))
    found = joined(*parts)
    return found.where(np.lexsort((found.start_ns, -found.end_ns)))


def pieces(
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    kind: Any,
    row: Any = -1,
    track: Any = -1,
    waited: Any = -1,
    length_ns: np.ndarray | None = None,
) -> Pieces:
    """Pieces of these columns, each an array or one value for all; as long as they were recorded, unless a length is given."""
    length_ns = end_ns - start_ns if length_ns is None else length_ns
    return Pieces(*np.broadcast_arrays(start_ns, end_ns, length_ns, kind, row, track, waited))


def joined(*parts: Pieces) -> Pieces:
    """Return several pieces as one."""
    return Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in Pieces.__struct_fields__))


class _Waits:
    """The calls that waited for an event of a device, in order of their ends; `event` are places in the device's events.

    Behind the last of them, at -1, stands what is none.
    """

    def __init__(self, trace: Trace, work: Rows):
        """`work`: the device's events in order of their ends."""
        calls = trace.waits
        calls = calls.where((calls.reason != Reason.QUEUE) & (calls.end_ns - calls.start_ns > SHORTEST_NS))
        event = np.searchsorted(work.end_ns, calls.end_ns + LATE_END_NS, "right") - 1
        copies = calls.reason == Reason.COPY
        event[copies] = _last_place_of(work.call, calls.at[copies])
        good = (event >= 0) & ((work.end_ns[event] >= calls.start_ns) | calls.outlasts)
        order = np.flatnonzero(good)[np.argsort(calls.end_ns[good], kind="stable")]
        calls = calls.where(order)
        self.event = np.append(event[order], -1)
        self.end_ns, self.track = np.append(calls.end_ns, 0), np.append(calls.track, -1)
        self.at = np.append(calls.at, -1)
        self.is_free = np.append(calls.reason == Reason.FREE, False)
        self.outlasts = np.append(calls.outlasts, False)
        # The thread of the steps waits for the threads of the backward pass: what they wait for, it waits for, too.
        self._shared = np.append(trace.backward_tracks, trace.steps.track[-1:])

    def last_before(self, moment_ns: np.ndarray, track: np.ndarray, place: np.ndarray) -> np.ndarray:
        """For each moment: the last of the calls on its thread, the steps' or the backward pass's that has ended by then, or -1.

        What it waited for came before the event at `place`, also where clocks disagree and an event ends before its launch.
        """
        found = np.full(len(moment_ns), -1)
        for thread in distinct(track).values.tolist():
            asked = np.flatnonzero(track == thread)
            candidates = np.flatnonzero((self.track[:-1] == thread) | among(self.track[:-1], self._shared))
            if thread < 0 or not len(candidates):
                continue
            at = np.searchsorted(self.end_ns[candidates], moment_ns[asked], "right") - 1
            while (wrong := (at >= 0) & (self.event[candidates[at]] >= place[asked])).any():
                at[wrong] -= 1
            found[asked] = np.where(at >= 0, candidates[at], -1)
        return found


def _last_place_of(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted one, the last place at which it stands among the values, or -1."""
    order = np.argsort(values, kind="stable")
    at = np.searchsorted(values[order], wanted, "right") - 1
    return np.where((at >= 0) & (values[order][at] == wanted), order[at], -1)
