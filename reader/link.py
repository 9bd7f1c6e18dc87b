"""Events to a linked trace: who launched which GPU event, inside which op, in which recorded step.

GPU events are joined to the call that launched them on the correlation id, never on flow events, which Kineto writes
incompletely. A call belongs to the step whose time it starts in, and to the innermost op that is open then on its thread.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
import re

import msgspec
from reader.decode import GPU_KINDS, Decoded, Event

STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
# cudaLaunchKernel, cudaLaunchKernelExC, cuLaunchKernelEx, cudaLaunchCooperativeKernel, hipLaunchKernel,
# hipModuleLaunchKernel, hipExtModuleLaunchKernel, cudaGraphLaunch, hipGraphLaunch, urEnqueueKernelLaunch(Exp).
_LAUNCH = re.compile(r"Launch\w*Kernel|KernelLaunch|GraphLaunch|MultiDevice$")
_start = attrgetter("start_us")
_duration = attrgetter("duration_us")
TOLERANCE_US = 0.002  # times are written with three decimals: ends and starts that meet can differ by a rounding


@lru_cache(maxsize=1024)
def is_launch(call: str) -> bool:
    """Whether a function of the runtime or driver launches kernels."""
    return bool(_LAUNCH.search(call))


def is_graph_launch(call: str) -> bool:
    return "GraphLaunch" in call


def is_synchronizing(call: str) -> bool:
    return "Synchronize" in call


class Origin(StrEnum):
    """Where a GPU event comes from."""

    OP = "op"  # its launch is in the trace, inside a CPU op
    LIBRARY = "library"  # its launch is in the trace, with no op around it: Triton, or a library without one
    GRAPH = "graph"  # replayed by a graph launch
    CARRIED_OVER = "carried_over"  # launched before recording began
    UNKNOWN = "unknown"


class Activity(msgspec.Struct, frozen=True, gc=False):
    """A GPU event with what is known of its launch. `step` is the index of the recorded step that launched it."""

    event: Event
    origin: Origin
    call: Event | None
    op: Event | None
    step: int | None


@dataclass(frozen=True)
class LinkedTrace:
    """`steps`, in time order, are the CPU's ProfilerStep slices; `ops`, `calls` and so on are sorted by start."""

    decoded: Decoded
    steps: list[Event]
    activities: list[Activity]
    ops: list[Event]
    annotations: list[Event]
    gpu_annotations: list[Event]
    calls: list[Event]
    overheads: list[Event]
    step_of: "StepFinder"


class StepFinder:
    """Which step a moment lies in."""

    def __init__(self, steps: list[Event]):
        self._starts = [step.start_us for step in steps]
        self._ends = [step.end_us for step in steps]

    def __call__(self, moment_us: float) -> int | None:
        """The index of the step that is open at `moment_us`, or None."""
        index = bisect_right(self._starts, moment_us + TOLERANCE_US) - 1
        return index if index >= 0 and moment_us < self._ends[index] + TOLERANCE_US else None


def link(decoded: Decoded) -> LinkedTrace:
    """Join the events of a file. Works in time n log n of the number of events."""
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in decoded.events:
        by_kind[event.kind].append(event)
    for events in by_kind.values():
        events.sort(key=_start)
    steps = [e for e in by_kind["annotation"] if STEP.match(e.name)]
    annotations = [e for e in by_kind["annotation"] if not STEP.match(e.name)]
    step_of = StepFinder(steps)

    gpu = sorted((e for kind in GPU_KINDS for e in by_kind[kind]), key=_start)
    wanted = {e.correlation for e in gpu if e.correlation is not None}
    call_of: dict[int, Event] = {}
    for call in by_kind["call"]:
        if call.correlation in wanted:
            known = call_of.get(call.correlation)
            # A runtime call and the driver call inside it can share the id: the one that launches is meant.
            if known is None or (is_launch(call.name) and not is_launch(known.name)):
                call_of[call.correlation] = call
    op_of = innermost(by_kind["op"], call_of.values())

    first_linked_us: dict[tuple, float] = {}
    for event in gpu:
        if event.correlation in call_of and event.track not in first_linked_us:
            first_linked_us[event.track] = event.start_us

    activities = []
    for event in gpu:
        launching = None if event.correlation is None else call_of.get(event.correlation)
        if launching is None:
            before = event.start_us < first_linked_us.get(event.track, float("-inf"))
            activities.append(Activity(event, Origin.CARRIED_OVER if before else Origin.UNKNOWN, None, None, None))
            continue
        op = op_of.get(id(launching))
        linked = Origin.OP if op else Origin.LIBRARY
        origin = Origin.GRAPH if is_graph_launch(launching.name) else linked
        activities.append(Activity(event, origin, launching, op, step_of(launching.start_us)))
    return LinkedTrace(
        decoded,
        steps,
        activities,
        by_kind["op"],
        annotations,
        by_kind["gpu_annotation"],
        by_kind["call"],
        by_kind["overhead"],
        step_of,
    )


def innermost(spans: Iterable[Event], inner: Iterable[Event]) -> dict[int, Event]:
    """For each event of `inner`, by its `id()`: the innermost span on its track that is open when it starts.

    Spans may cross (end after their parent): the one that began last and is still open counts. Of spans that begin
    together, the shorter is the inner one.
    """
    spans_of: dict[tuple, list[Event]] = defaultdict(list)
    for span in sorted(sorted(spans, key=_duration, reverse=True), key=_start):
        spans_of[span.track].append(span)
    inner_of: dict[tuple, list[Event]] = defaultdict(list)
    for event in sorted(inner, key=_start):
        inner_of[event.track].append(event)
    found: dict[int, Event] = {}
    for track, events in inner_of.items():
        waiting = iter(spans_of[track])
        upcoming = next(waiting, None)
        open_spans: list[tuple[float, Event]] = []  # with their ends
        for event in events:
            moment_us = event.start_us
            while upcoming is not None and (start_us := upcoming.start_us) <= moment_us:
                while open_spans and open_spans[-1][0] <= start_us:
                    open_spans.pop()
                open_spans.append((start_us + upcoming.duration_us, upcoming))
                upcoming = next(waiting, None)
            while open_spans and open_spans[-1][0] <= moment_us:
                open_spans.pop()
            if open_spans:
                found[id(event)] = open_spans[-1][1]
    return found


def union_us(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of (start, end) intervals, in their unit."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return round(total, 3)


def busy_us(events: Iterable[Event], start_us: float = float("-inf"), end_us: float = float("inf")) -> float:
    """How long a GPU was busy with `events` between two moments: the union of them on each device, summed over devices."""
    by_device: dict[int | str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        start, end = max(event.start_us, start_us), min(event.end_us, end_us)
        if end > start:
            by_device[event.track[0]].append((start, end))
    return sum(union_us(intervals) for intervals in by_device.values())
