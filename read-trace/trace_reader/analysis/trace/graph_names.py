"""What the kernels of a CUDA graph are, by a trace of the same step without the graph: a replay launches them all at once, and
names no op.
"""

import msgspec
import numpy as np
from trace_reader.analysis.trace.time_by_place import AttributedWork, attribute_gpu_work
from trace_reader.link.launches import Origin
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind


class Joined(msgspec.Struct, frozen=True, eq=False):
    """The work of the graph that the other trace names, as asked for there; of how many events, in how many replays.

    `differs`: the place in its replay of the first event that has another name, that name, and what the other trace has there
    (None: nothing any more). None where all are named.
    """

    asked: AttributedWork
    named: int
    events: int
    replays: int
    step: str | None  # of the other trace
    differs: tuple[int, str, str | None] | None


class _Step(msgspec.Struct, frozen=True, eq=False):
    """What the other trace launches in a step (or, where it is of a capture, in all), in order, as asked for there."""

    names: list[str]
    asked: AttributedWork
    name: str | None
    kernels_only: bool


def join_names(graph: Trace, eager: Trace) -> Joined:
    """Give the kernels, copies and memsets of each graph launch the names of those that the middle step of `eager` launches,
    in the same order. If `eager` also holds the capture of a graph, and more of the capture's launches than of the step's say
    which kernel they launch, the kernels are named by the capture's launches instead.

    Each graph launch is searched for as a whole. If it is not found, those of its events that come before the first difference
    are named; this event and all later ones stay unnamed. Raises LookupError if `graph` has no GPU work of a graph launch, or
    if `eager` gives no names because it launches nothing outside a graph.
    """
    replayed = graph.work.where((graph.work.origin == Origin.GRAPH) & (graph.work.call >= 0))
    if not len(replayed):
        raise LookupError(f"{graph.path}: nothing was replayed by a graph launch: there is nothing to name")
    other = max(filter(None, (_middle_step(eager), _captured(eager))), key=lambda step: len(step.names), default=None)
    if other is None:
        raise LookupError(f"{eager.path}: its middle step launches nothing outside a graph: it names nothing")
    if other.kernels_only:
        replayed = replayed.where(replayed.kind == Kind.KERNEL)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(other.names))}
    unknown = len(numbers)
    step = _text([numbers[name] for name in other.names])
    places, events, differs, replays = [], [], None, 0
    reached: dict[int, int] = {}  # by step: a step may replay several graphs, one after the other
    rows: Rows
    for (_, own_step), rows in replayed.by(replayed.call, replayed.step):
        replays += 1
        replay = _text([numbers.get(name, unknown) for name in rows.names])
        start, length = _found(step, replay, reached.get(own_step, 0))
        reached[own_step] = start + length
        places.append(np.arange(start, start + length))
        events.append(rows.at[:length])
        if length < len(rows) and differs is None:
            there = start + length
            differs = length, rows[length].name, other.names[there] if there < len(other.names) else None
    base, place = other.asked, np.concatenate(places)
    row = np.concatenate(events)
    asked = AttributedWork(
        base.name[place], base.call[place], base.at[place], graph.slices.duration_us[row], base.is_backward[place],
        base.detail[place],
    )  # fmt: skip
    return Joined(asked, len(row), len(replayed), replays, other.name, differs)


def _middle_step(eager: Trace) -> _Step | None:
    """Return what the middle step launches outside a graph (without steps, all that is); None for nothing."""
    linked = np.flatnonzero(eager.linked.origin != Origin.GRAPH)
    middle = len(eager.steps) // 2
    if len(eager.steps):
        linked = linked[eager.linked.step[linked] == middle]
    if not len(linked):
        return None
    base = attribute_gpu_work(eager)
    asked = AttributedWork(*(getattr(base, name)[linked] for name in AttributedWork.__struct_fields__))
    return _Step(eager.linked.where(linked).names, asked, eager.steps[middle].name if len(eager.steps) else None, False)


def _captured(eager: Trace) -> _Step | None:
    """Return the launches that say what they launch, in order: while a graph is captured, nothing runs. None for none."""
    calls = eager.calls.where(eager.slices.detail[eager.calls.at] >= 0)
    names = [eager.slices.details[number] for number in eager.slices.detail[calls.at].tolist()]
    if not len(calls) or not all(isinstance(name, str) for name in names):
        return None
    nothing, none = np.zeros(len(calls)), np.full(len(calls), -1)
    return _Step(names, AttributedWork(calls.name, calls.at, calls.at.copy(), nothing, nothing > 0, none), None, True)


def _text(numbers: list[int]) -> str:
    """Numbers as characters: looking for one sequence in another is what strings are good at."""
    return "".join(map(chr, (number + (0x800 if number >= 0xD800 else 0) for number in numbers)))  # no surrogates


def _found(step: str, replay: str, reached: int) -> tuple[int, int]:
    """Return where in `step` the replay begins, and how far it agrees; from `reached` on."""
    if (start := step.find(replay, reached)) >= 0:
        return start, len(replay)
    best, length = reached, 0
    while (start := step.find(replay[: length + 1], best)) >= 0:  # each time at least one longer, and never further to the left
        best = start
        while length < len(replay) and step.startswith(replay[: length + 1], start):
            length += 1
    return best, length
