"""The dispatch tree of one step: from the annotation to the op, the call and what it launched, on every thread."""

from collections import defaultdict

import msgspec
import numpy as np
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among
from trace_reader.model.slices import ON_CPU, Slice
from trace_reader.names.kernel_names import decode_name
from trace_reader.names.range_names import STEP

DEEPEST = 100  # levels of a dispatch tree; what lies deeper is counted


class Node(msgspec.Struct, frozen=True):
    """A slice of a step's dispatch tree. `launched` holds the labels and durations (us) of what a call launched.

    Of kind `thread`: what another thread did in the step's time, with the summed duration of what lies in nothing else.
    """

    name: str
    kind: str
    duration_us: float
    launched: tuple[tuple[str, float], ...]
    children: tuple["Node", ...]


def dispatch_tree(trace: Trace, number: int | None = None) -> Node:
    """Return the tree of ProfilerStep#`number`; by default that of the middle recorded step.

    Raises LookupError, naming the steps that there are, if the trace does not have it.
    """
    step = _step(trace, number)
    rows = rows_in_step(trace, step)
    inside = set(rows.at.tolist())
    children: dict[int, list[int]] = defaultdict(list)
    threads: dict[int, list[int]] = defaultdict(list)
    one = int(trace.slices.track[step.row])
    for row, parent, track in zip(rows.at.tolist(), trace.parent[rows.at].tolist(), rows.track.tolist(), strict=True):
        if parent in inside:
            children[parent].append(row)
        elif track == one:
            children[step.row].append(row)
        else:
            threads[track].append(row)
    launched: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for activity in trace.activities(trace.work.where(among(trace.work.call, rows.at))):
        if activity.call:
            launched[activity.call.row].append((decode_name(activity.event.name).label, activity.event.duration_us))

    def node(event: Slice, depth: int = 1) -> Node:
        inner = [trace.slices[row] for row in children[event.row]]
        if depth < DEEPEST or not inner:
            nodes = tuple(node(child, depth + 1) for child in inner)
        else:
            nodes = (Node(f"and {below(event.row)} slices inside", "left out", sum(e.duration_us for e in inner), (), ()),)
        return Node(event.name, event.kind.word, event.duration_us, tuple(launched[event.row]), nodes)

    def below(row: int) -> int:
        count, waiting = 0, [row]
        while waiting:
            inner = children[waiting.pop()]
            count += len(inner)
            waiting += inner
        return count

    root = node(step)
    beside = []
    for track, top in sorted(threads.items()):
        nodes = tuple(node(trace.slices[row], 2) for row in top)
        beside.append(Node(thread_label(trace, track), "thread", sum(child.duration_us for child in nodes), (), nodes))
    return msgspec.structs.replace(root, children=(*root.children, *beside))


def _step(trace: Trace, number: int | None) -> Slice:
    if not len(trace.steps):
        raise LookupError(f"{trace.path}: the trace has no ProfilerStep")
    if number is None:
        return trace.steps[len(trace.steps) // 2]
    numbers = [int(found[1]) if (found := STEP.match(name)) else place for place, name in enumerate(trace.steps.names)]
    by_number = {number: place for place, number in enumerate(numbers)}
    if number not in by_number:
        first, last = min(by_number), max(by_number)
        raise LookupError(f"{trace.path}: the trace has no ProfilerStep#{number}; it has #{first} to #{last}")
    return trace.steps[by_number[number]]


def rows_in_step(trace: Trace, step: Slice) -> Rows:
    """Return the annotations, ops and calls of all threads that start while the step is open."""
    slices = trace.slices
    start_ns, end_ns = slices.start_ns[step.row], slices.end_ns[step.row]
    first, last = np.searchsorted(slices.start_ns, [start_ns, end_ns])
    kind = slices.kind[first:last]
    is_step = among(np.arange(first, last), trace.steps.at)
    return Rows(slices, first + np.flatnonzero(among(kind, ON_CPU) & ~is_step))


def thread_label(trace: Trace, track: int) -> str:
    """Return what to call a thread: as the trace names it, and whether autograd runs the backward pass on it."""
    thread = trace.slices.tracks[track]
    label = trace.thread_names.get(thread) or f"thread {thread[1]}"
    on_it = trace.ops.where(trace.ops.track == track)
    backward = on_it.is_named(lambda name: name.startswith("autograd::engine::"))
    return f"{label}, autograd's" if backward.any() else label
