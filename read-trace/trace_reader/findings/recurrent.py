"""Recurrent layers that are written by hand."""

from collections import Counter

import numpy as np
from trace_reader.analysis.replay.edits import ONCE, Effect
from trace_reader.analysis.replay.rounds import made_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.findings.registry import Seen, a_step, finding, partly_dropped, seen_with_time
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.units import by_dimensions

LAYERS = frozenset(f"aten::{name}" for name in ("linear", "conv1d", "conv2d", "conv3d", "matmul", "mm"))
GATES = frozenset(["aten::sigmoid", "aten::sigmoid_", "aten::tanh", "aten::tanh_", "aten::hardsigmoid"])
BETWEEN = VIEW_OPS | GATES | {"aten::add", "aten::add_", "aten::select"}
SOON = 12  # ops: from the last of a cell's layers to its gates
LEAST_GATES, LEAST_CELLS = 3, 2
LEFT_OF_GATES = 0.4  # of the time of a cell's other layers, in one layer with the first


@finding(
    "gates-one-by-one",
    "three or four equal layers of one input in a row, then sigmoid and tanh, again and again",
    "aten::linear or conv2d with the same shapes, one for each gate, before aten::sigmoid and aten::tanh",
    "Equal layers stand before sigmoid and tanh, as those of the gates of an LSTM or GRU that is written by hand.",
    "If the gates take the same input: one layer whose outputs are those of all gates (chunk or split the result), as nn.LSTM "
    "has it. What is made of the inputs alone needs no loop: all time steps at once, before it. Of linear layers without "
    "changes to the cell: nn.LSTM or nn.GRU.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
)
def _gates_one_by_one(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: in a row of layers, with sums, views and gates between them, at least LEAST_GATES of the same input and weight
    that make another shape; sigmoid and tanh among the ops up to SOON behind it. LEAST_CELLS times and more in a step.
    """
    if not facts.steps or not {"aten::sigmoid", "aten::tanh"} <= trace.op_names:
        return None
    others, cells, gates = list[int](), 0, Counter[str]()
    for _, one in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        for run in _rows_of_layers(one):
            of_shapes: dict[tuple[object, ...], list[int]] = {}
            for place in run:
                shapes = shapes_of(trace.slices, int(one.at[place]))
                if len(shapes) > 1:
                    of_shapes.setdefault((one.names[place], *shapes[:2]), []).append(place)
            equal = [places for places in of_shapes.values() if len(places) >= LEAST_GATES]
            # Of layers one after the other, each makes what the next one takes; of gates, those of the input do not.
            if not any(_changes_shape(trace, one, places[0]) for places in equal):
                continue
            behind = set(one.names[run[0] : run[-1] + 1 + SOON])
            if not {"aten::sigmoid", "aten::tanh"} <= behind:
                continue
            cells += 1
            for places in equal:
                others += one.at[places[1:]].tolist()
                shapes = shapes_of(trace.slices, int(one.at[places[0]]))
                gates[f"{len(places)} x {one.names[places[0]]} ({by_dimensions(shapes[0])}, {by_dimensions(shapes[1])})"] += 1
    if cells < LEAST_CELLS * len(facts.steps):
        return None
    words = " and ".join(what for what, _ in gates.most_common(2))
    every = Rows(trace.slices, np.sort(np.array(others)))
    text = f"{a_step(cells, facts, 'cell', 'cells')}, with {words} in each"
    return seen_with_time(trace, facts, every, text, Effect(partly_dropped(trace, every, LEFT_OF_GATES), kind=ONCE))


def _changes_shape(trace: Trace, ops: Rows, place: int) -> bool:
    """Return whether a layer makes another shape than it takes."""
    (taken, *others) = shapes_of(trace.slices, int(ops.at[place]))
    made = made_of(ops.names[place], [taken, *others], [])
    return taken != made if made else taken[1:2] != others[0][:1]  # channels


def _rows_of_layers(ops: Rows) -> list[list[int]]:
    """Return the places of layers in a row, with nothing but sums, views and gates between them."""
    found: list[list[int]] = []
    last = -1
    for place in np.flatnonzero(ops.is_named(LAYERS.__contains__)).tolist():
        if last >= 0 and BETWEEN.issuperset(ops.names[last + 1 : place]):
            found[-1].append(place)
        else:
            found.append([place])
        last = place
    return found
