"""What the kernels of a CUDA graph are, by a trace of the same step without the graph: a replay launches them all at once, and
names no op.
"""

import msgspec
import numpy as np
from trace_reader.analysis.place_facts import Asked, asked_for
from trace_reader.link.launches import Origin
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows


class Joined(msgspec.Struct, frozen=True, eq=False):
    """The work of the graph that the other trace names, as asked for there; of how many events, in how many replays.

    `differs`: the place in its replay of the first event that has another name, that name, and what the other trace has there
    (None: nothing any more). None where all are named.
    """

    asked: Asked
    named: int
    events: int
    replays: int
    step: str | None  # of the other trace
    differs: tuple[int, str, str | None] | None


def join_names(graph: Trace, eager: Trace) -> Joined:
    """Name the kernels, copies and memsets of each graph launch by those of the middle step of `eager`, in order.

    A replay is looked for as a whole; where it is not there, as far as it agrees from its first event on, and what follows is not
    named. Raises LookupError: `graph` has no replay, or `eager` has only replays.
    """
    replayed = graph.work.where((graph.work.origin == Origin.GRAPH) & (graph.work.call >= 0))
    if not len(replayed):
        raise LookupError(f"{graph.path}: nothing was replayed by a graph launch: there is nothing to name")
    linked = np.flatnonzero(eager.linked.origin != Origin.GRAPH)
    if len(eager.steps):
        middle = len(eager.steps) // 2
        linked = linked[eager.linked.step[linked] == middle]
    if not len(linked):
        raise LookupError(f"{eager.path}: its middle step launches nothing outside a graph: it names nothing")
    numbers = {name: number for number, name in enumerate(eager.slices.names)}
    unknown = len(numbers)
    step = _text([int(number) for number in eager.linked.name[linked]])
    places, events, differs, replays = [], [], None, 0
    reached: dict[int, int] = {}  # by step: a step may replay several graphs, one after the other
    rows: Rows
    for (_, own_step), rows in replayed.by(replayed.call, replayed.step):
        replays += 1
        replay = _text([numbers.get(name, unknown) for name in rows.names])
        start, length = _found(step, replay, reached.get(own_step, 0))
        reached[own_step] = start + length
        places.append(linked[start : start + length])
        events.append(rows.at[:length])
        if length < len(rows) and differs is None:
            there = start + length
            other = eager.linked[int(linked[there])].name if there < len(linked) else None
            differs = length, rows[length].name, other
    base, place = asked_for(eager), np.concatenate(places)
    row = np.concatenate(events)
    asked = Asked(base.name[place], base.call[place], base.at[place], graph.slices.duration_us[row], base.is_backward[place])
    name = eager.steps[len(eager.steps) // 2].name if len(eager.steps) else None
    return Joined(asked, len(row), len(replayed), replays, name, differs)


def _text(numbers: list[int]) -> str:
    """Numbers as characters: looking for one sequence in another is what strings are good at."""
    return "".join(map(chr, (number + (0x800 if number >= 0xD800 else 0) for number in numbers)))  # no surrogates


def _found(step: str, replay: str, reached: int) -> tuple[int, int]:
    """Where in `step` the replay begins, and how far it agrees; from `reached` on."""
    if (start := step.find(replay, reached)) >= 0:
        return start, len(replay)
    best, length = reached, 0
    while (start := step.find(replay[: length + 1], best)) >= 0:  # each time at least one longer, and never further to the left
        best = start
        while length < len(replay) and step.startswith(replay[: length + 1], start):
            length += 1
    return best, length
