"""A network that runs several times in a step, and one whose inputs the step does not make."""

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import ONCE, REPLACED, Effect, dropped
from trace_reader.analysis.replay.places import loop_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.findings.loops import are_short, at_once, told_loops
from trace_reader.findings.registry import Seen, finding, lies_inside, seen_with_time
from trace_reader.findings.without_gradient import LAYERS
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, once
from trace_reader.names.op_names import LAYER_OPS, VIEW_OPS

LEAST_LAYERS, MOST_TIMES = 4, 3  # of a network; that it runs
MOST_COLOURS = 4  # of an image
IMAGES = frozenset(["aten::conv2d", "aten::conv3d"])
MORE_AROUND = 3  # ops: before the first pass and behind the last one, than between two
CHOOSES = ("aten::arg", "aten::multinomial", "aten::topk", "aten::sort")  # the next token
# What makes or brings numbers that an embedding may look up.
MAKES_NUMBERS = tuple(
    f"aten::{name}" for name in ("to", "_to_copy", "copy_", "arange", "arg", "multinomial", "rand", "index", "cat", "stack",
                                 "topk", "where", "gather", "nonzero", "sort", "full", "zeros", "ones", "clone", "fill_",
                                 "lift_fresh", "remainder", "cumsum", "bucketize", "searchsorted")
)  # fmt: skip


@finding(
    "same-network-twice",
    "the same layers with the same shapes, twice in a row",
    "the layers of a step on the CPU's lane, from the first one on: halfway through they come again",
    "Layers of the same shapes run two or three times in a row. Judging by the first of them, this is no block of a larger "
    "network: it may be one network, or several.",
    "If no pass needs the result of the one before it, and it is one network (guidance with and without a prompt, two views): "
    "join the inputs along the batch, and run it once (torch.cat, then chunk); a batch norm in training then sees all. If the "
    "inputs are the same, too: keep the first result. If they are networks with weights of their own (two critics): stack the "
    "weights (torch.func.stack_module_state and vmap).",
    source="https://arxiv.org/abs/2207.12598",
)
def _same_network_twice(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: the layers of each step are two or three times the same ones, or pairs of these, with more between two pairs
    than inside one. Between the passes of a chain stands all that stands around them, too: what makes the next input.
    """
    outer, found = trace.outer_ops, list[np.ndarray]()
    forward = outer.where(~outer.is_named(lambda name: name.startswith(EVALUATE)) & ~lies_inside(trace, outer, "^Optimizer"))
    for _, one in forward.by(forward.track, trace.step_at(forward.start_ns)):
        found += _passes(trace, one)
    kinds = [tuple(trace.slices.name[passes[0]].tolist()) for passes in found]
    runs = [passes for passes, kind in zip(found, kinds, strict=True) if kind == kinds[0]]
    if not facts.steps or len(runs) < len(facts.steps):
        return None
    names = tuple(trace.slices.names[n] for n in kinds[0])
    network = loop_of(trace, names, runs)
    layers = sum(name in LAYERS for name in names)
    times = sum(map(len, runs)) / len(runs)
    pairs = f" in {len(runs) / len(trace.steps):.3g} places" if len(runs) > len(trace.steps) else ""
    words = f"{times:.3g} passes in a row per step{pairs} through {layers} layers of the same shapes"
    seen = told_loops(trace, facts, [network], words, Effect(at_once(trace, [network]), kind=ONCE))
    if seen is None or len(trace.work) or are_short(network.spans):
        return seen
    return msgspec.structs.replace(seen, effect=None, no_effect="whether the inputs are the same is not in a trace")


def _passes(trace: Trace, ops: Rows) -> list[np.ndarray]:
    """Return the passes of a step's ops through a network (rows: passes x ops, from its first layer to its last), in runs."""
    places = np.flatnonzero(ops.is_named(LAYER_OPS.__contains__))
    kinds = list(zip(ops.name[places].tolist(), ops.detail[places].tolist(), strict=True))
    times = next((n for n in range(len(kinds) // LEAST_LAYERS, 1, -1) if _is_repeated(kinds, n)), 0)
    each = len(kinds) // times if times else 0
    if not times or (times > MOST_TIMES and times % 2):
        return []
    firsts, lasts = places[::each], places[each - 1 :: each]
    begun_ns = trace.nodes.start_ns  # a backward pass between two of them, as of micro-batches, needs the first one's result
    if np.searchsorted(begun_ns, ops.start_ns[firsts[0]]) != np.searchsorted(begun_ns, ops.start_ns[lasts[-1]]):
        return []
    length = int(lasts[0] - firsts[0])
    if set((lasts - firsts).tolist()) != {length} or not _is_whole(trace, ops, places[:each]):
        return []
    is_done = ~ops.is_named(VIEW_OPS.__contains__)
    between = np.array([is_done[last + 1 : first].sum() for last, first in zip(lasts[:-1], firsts[1:], strict=True)])
    together = times
    if times <= MOST_TIMES:
        around = is_done[: firsts[0]].sum() + is_done[lasts[-1] + 1 :].sum()
        chosen = any(name.startswith(CHOOSES) for name in ops.names[lasts[0] + 1 : firsts[-1]])
        if chosen or around - between.max() < MORE_AROUND:
            return []
    else:  # pairs, with more between them than inside
        together = 2
        if len(set(between[::2].tolist())) > 1 or between[1::2].min() <= between[0]:
            return []
    rounds = np.stack([ops.at[first : first + length + 1] for first in firsts.tolist()])
    same = (trace.slices.name[rounds] == trace.slices.name[rounds[0]]).all()
    return [rounds[n : n + together] for n in range(0, times, together)] if same else []


def _is_repeated(kinds: list[tuple[int, int]], times: int) -> bool:
    each, rest = divmod(len(kinds), times)
    return not rest and all(detail >= 0 for _, detail in kinds) and kinds == kinds[:each] * times


def _is_whole(trace: Trace, ops: Rows, layers: np.ndarray) -> bool:
    """Return whether layers (places) may be a network: the first looks up rows, takes an image, or takes what no layer but the
    last one makes; a block takes what blocks make.
    """
    first = int(ops.at[layers[0]])
    name, taken = trace.slices.names[trace.slices.name[first]], shapes_of(trace.slices, first)
    if name == "aten::embedding":
        return True
    weights = [shapes_of(trace.slices, int(ops.at[place]))[1:2] for place in layers.tolist() if ops.names[place] in LAYERS]
    known = [shapes[0] for shapes in weights if shapes and len(shapes[0]) > 1]
    if name not in LAYERS or len(taken) < 2 or len(known) < LEAST_LAYERS:
        return False
    is_image = name.startswith("aten::conv") and taken[0][1:2] <= (MOST_COLOURS,)  # by its channels
    return is_image or taken[1][1] not in {weight[0] for weight in known[:-1]}


@finding(
    "inputs-made-elsewhere",
    "in inference, layers on numbers that were there before the step",
    "aten::embedding with no copy to the GPU and no op that makes numbers before it in its step",
    "A part of the network looks up numbers that its step neither copies to the GPU nor makes, beside a part that takes images. "
    "They may be the same in each step, as names of classes or prompts are.",
    "If what this part takes (texts, prompts, names of classes) stays the same: run it once, ahead of the loop, keep its result, "
    "and reuse it.",
    source="https://arxiv.org/abs/2103.00020",
)
def _inputs_made_elsewhere(trace: Trace, facts: Facts) -> Seen | None:
    if trace.has_backward or not facts.steps or not facts.has_gpu_work or "aten::embedding" not in trace.op_names:
        return None
    found, calls = [np.zeros(0, np.int64)], 0
    outer = trace.outer_ops
    for (_, step), one in outer.by(outer.track, trace.step_at(outer.start_ns)):
        names, is_layer = one.names, one.is_named(LAYER_OPS.__contains__)
        images = np.flatnonzero(one.is_named(IMAGES.__contains__))
        looked_up = [n for n, name in enumerate(names) if name == "aten::embedding"]
        if step < 0 or not len(images) or not looked_up:
            continue
        before = max(np.flatnonzero(is_layer[: looked_up[0]]).tolist(), default=-1)
        if before >= 0 and names[before] in IMAGES:  # then these may be the positions of an image's patches
            continue
        if any(name.startswith(MAKES_NUMBERS) for name in names[before + 1 : looked_up[0]]):
            continue
        end = next((n for n in images.tolist() if n > looked_up[-1]), len(names))
        layers = [n for n in np.flatnonzero(is_layer).tolist() if looked_up[0] <= n < end]
        if len(layers) <= LEAST_LAYERS:
            continue
        found.append(one.at[looked_up[0] : layers[-1] + 1])
        calls += len(layers)
    if len(found) <= len(facts.steps):
        return None
    spans = Rows(trace.slices, once(np.concatenate(found)))
    words = (
        f"{calls / len(facts.steps):.0f} layers per step from aten::embedding on, whose numbers the step neither copies nor makes"
    )
    return seen_with_time(trace, facts, spans, words, Effect(dropped(spans), kind=REPLACED))
