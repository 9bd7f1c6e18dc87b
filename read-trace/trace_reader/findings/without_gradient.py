"""Layers that run without a gradient in the steps of a training."""

from collections.abc import Collection
from functools import lru_cache

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, dropped, skipped
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of, shapes_of_first
from trace_reader.findings.registry import Seen, finding, have_nodes, lies_inside, named, seen_with_time
from trace_reader.link.intervals import merged
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, among
from trace_reader.model.slices import NO_NODE

LAYERS = frozenset(f"aten::{name}" for name in ("linear", "conv1d", "conv2d", "conv3d"))
LEAST_LAYERS, MOST_LAYERS = 2, 0.6  # shapes of weights, and which share of them
LEAST_UNUSED = 0.1  # of the layers
LEFT_WITHOUT_GRAPH = 0.75  # of the CPU's time in ops that record no graph, after three pairs (23% to 40% of a step were saved)

Weight = tuple[int, ...] | None  # its shape; None: not known


@finding(
    "forward-without-gradient",
    "in training, layers run again without a backward pass",
    "aten::linear or a convolution without a node in the backward pass, with weights of the same shapes as others that have one",
    "In the steps of a training, layers with the shapes of most of those that are trained run without a gradient. It may be a "
    "validation, a rollout, a copy of the model (a moving average, an old policy, a target network), a metric that runs the "
    "model again, or frozen layers ahead of those that are trained.",
    "If the pass is a validation: run it every so many steps. If its weights and data stay the same for several steps: keep its "
    "result. If it is for a metric: take the outputs of the training's own pass.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
)
def _forward_without_gradient(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: of the weights of differentiated layers, most are also those of layers without a node. What stands between two
    such layers goes with them. A gain is told where each step ends with such a run, and does not begin with one: what a trained
    layer takes is computed before it.
    """
    layers = _layers(trace)
    if not facts.steps or len(layers.trained) < LEAST_LAYERS:
        return None
    if len(layers.trained & layers.alone) < MOST_LAYERS * len(layers.trained):
        return None
    is_alone = ~layers.has_node & layers.of(layers.trained) & ~layers.record_nodes
    if not is_alone.any():
        return None
    again, calls, are_behind = _runs(trace, layers, is_alone)
    steps = len(facts.steps)
    words = f"{calls / steps:.3g} of {len(layers.ops) / steps:.3g} layers per step run without a gradient, with the same shapes"
    seen = seen_with_time(trace, facts, again, words, Effect(dropped(again), kind=REPLACED))
    if seen is None or all(are_behind):
        return seen
    return msgspec.structs.replace(seen, effect=None, no_effect="trained layers may take what they compute")


@finding(
    "frozen-layers-run-again",
    "in training, layers of another shape than the trained ones run without a backward pass",
    "aten::linear or a convolution without a node in the backward pass",
    "Some layers run without a backward pass in the recorded steps. They may be a frozen encoder or trunk, or a teacher.",
    "If their inputs come again, as in each epoch of the same data without random changes (augmentation): compute their outputs "
    "once, ahead of the training, keep them, and train on these features.",
    source="https://docs.pytorch.org/tutorials/beginner/transfer_learning_tutorial.html",
)
def _frozen_layers(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: most of the trained layers have weights of other shapes. Silent where layers run in the backward pass: a
    checkpointed forward pass has no nodes, either.
    """
    layers = _layers(trace)
    if not facts.steps or not layers.trained or len(layers.alone) < LEAST_LAYERS or layers.run_backward:
        return None
    if len(layers.trained & layers.alone) >= MOST_LAYERS * len(layers.trained):
        return None
    if _changed_in_place(trace) & layers.alone:  # by hand, as a moving average is
        return None
    is_frozen = ~layers.has_node & ~layers.of(layers.trained) & ~layers.of({None})
    runs, calls, _ = _runs(trace, layers, is_frozen)
    steps = len(facts.steps)
    words = f"{calls / steps:.3g} of {len(layers.ops) / steps:.3g} layers per step run without a gradient, of other shapes"
    seen = seen_with_time(trace, facts, runs, words, Effect(dropped(runs), kind=REPLACED))
    frozen, trained = layers.ops.where(is_frozen), layers.ops.where(layers.has_node)
    first_ns = np.full(len(trace.steps), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, trace.step_at(trained.start_ns), trained.start_ns)
    if seen is None or bool(np.all(frozen.start_ns < first_ns[trace.step_at(frozen.start_ns)])):
        return seen
    return msgspec.structs.replace(seen, effect=None, no_effect="they may take what trained layers compute")


@finding(
    "graph-never-used",
    "in training, layers for which autograd keeps a graph, and no backward pass comes back to them",
    "the argument Sequence number, which grows from layer to layer, and no node of the backward pass with these numbers",
    "Autograd records these layers and keeps what their backward pass would need, but in the recorded steps no backward pass "
    "goes through them. They may be a rollout, a target network, a teacher, a metric, or a loss that is only shown.",
    "If nothing of what these layers compute is trained on: run them under torch.no_grad() (or torch.inference_mode()), or "
    "detach() what is kept of a running sum. It takes less memory, and less time per op.",
    source="https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",
)
def _graph_never_used(trace: Trace, facts: Facts) -> Seen | None:
    layers = _layers(trace)
    if not facts.steps or not trace.has_backward or not layers.has_node.any() or layers.run_backward:
        return None
    is_unused = ~layers.has_node & layers.record_nodes
    if is_unused.sum() < max(LEAST_LAYERS * len(facts.steps), LEAST_UNUSED * len(layers.ops)):
        return None
    runs, calls, _ = _runs(trace, layers, is_unused)
    steps = len(facts.steps)
    words = (
        f"autograd records {calls / steps:.3g} of {len(layers.ops) / steps:.3g} layers per step, to which no backward pass comes"
    )
    effect = Effect(skipped(merged(runs.start_ns, runs.end_ns), LEFT_WITHOUT_GRAPH), kind=REPLACED)
    return seen_with_time(trace, facts, runs, words, effect)


def _record_nodes(trace: Trace, ops: Rows) -> np.ndarray:
    """For each op, whether autograd's numbers go on from it to the next op on its thread: it made a node."""
    outer, makers = trace.outer_ops, [np.zeros(0, np.int64)]
    for _, one in outer.by(outer.track, trace.step_at(outer.start_ns)):
        numbers = trace.slices.node[one.at]
        goes_on = np.append((numbers[1:] > numbers[:-1]) & (numbers[:-1] != NO_NODE), False)
        makers.append(one.at[goes_on])
    return among(ops.at, np.sort(np.concatenate(makers)))


def _changed_in_place(trace: Trace) -> frozenset[Weight]:
    """Return the shapes of what ops change in place, outside of optimizers."""
    ops = trace.outer_ops.where(trace.outer_ops.is_named(lambda name: name.endswith("_") and not name.endswith("__")))
    ops = ops.where(~lies_inside(trace, ops, "^Optimizer"))
    firsts = [rows.at[0] for _, rows in ops.by(ops.detail)]
    return frozenset(shape for row in firsts for shape in shapes_of_first(trace.slices, int(row)))


class _Layers(msgspec.Struct, frozen=True):
    """The layers of a training: the `ops`, for each its weight's shape, if known, whether it `has_node` (one that runs), and
    whether autograd records one for it. `trained`, `alone`:
    the shapes of those that have one and of the others. `run_backward`: whether one runs in the backward pass.
    """

    ops: Rows
    weights: list[Weight]
    has_node: np.ndarray
    record_nodes: np.ndarray
    trained: frozenset[Weight]
    alone: frozenset[Weight]
    run_backward: bool

    def of(self, shapes: Collection[Weight]) -> np.ndarray:
        """For each layer, whether its weight has one of these shapes."""
        return np.array([shape in shapes for shape in self.weights], bool)


@lru_cache(maxsize=1)  # two rules ask
def _layers(trace: Trace) -> _Layers:
    ops = trace.outer_ops.where(trace.outer_ops.is_named(LAYERS.__contains__))
    has_node = have_nodes(trace, ops)
    weights = [next(iter(shapes_of(trace.slices, row)[1:]), None) for row in ops.at.tolist()]
    trained, alone = (
        frozenset(shape for shape, is_one in zip(weights, mask, strict=True) if shape and is_one)
        for mask in (has_node, ~has_node)
    )
    run_backward = bool(lies_inside(trace, named(trace.ops, *LAYERS), f"^{EVALUATE}").any())
    return _Layers(ops, weights, has_node, _record_nodes(trace, ops), trained, alone, run_backward)


def _runs(trace: Trace, layers: _Layers, is_one: np.ndarray) -> tuple[Rows, int, list[bool]]:
    """Return runs of some of the layers, each from the first to the last one before another layer, an op that has a node, a
    backward pass or an optimizer, with the ops between them; how many layers these are; and for each step and thread, whether it
    ends with such a run, and does not begin with one.
    """
    ops = trace.outer_ops
    spans, calls, are_behind = [np.zeros(0, np.int64)], 0, list[bool]()
    ends_a_run = ops.is_named(lambda name: name.startswith(EVALUATE)) | lies_inside(trace, ops, "^Optimizer")
    ends_a_run |= have_nodes(trace, ops)
    is_layer, is_wanted = among(ops.at, layers.ops.at), among(ops.at, layers.ops.at[is_one])
    ops = Rows(ops.slices, ops.at, ends_a_run=ends_a_run | (is_layer & ~is_wanted), is_layer=is_layer, is_wanted=is_wanted)
    for _, one in ops.by(trace.step_at(ops.start_ns), ops.track):
        if (order := one.is_wanted[one.is_layer]).any():
            are_behind.append(bool(order[-1] and not order[0]))
        wanted = np.flatnonzero(one.is_wanted)
        of_run = np.cumsum(one.ends_a_run)[wanted]
        for places in np.split(wanted, np.flatnonzero(np.diff(of_run)) + 1) if len(wanted) else ():
            spans.append(one.at[places[0] : places[-1] + 1])
            calls += len(places)
    return Rows(trace.slices, np.sort(np.concatenate(spans))), calls, are_behind
