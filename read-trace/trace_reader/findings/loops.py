"""Loops of Python over what one call can take."""

from collections import Counter
from itertools import pairwise
import math
import re

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import GONE, ONCE, Edit, Edited, Effect, dropped
from trace_reader.analysis.replay.places import MANY_ROUNDS, Candidate, loop_of, loops, nodes_of
from trace_reader.analysis.replay.rounds import made_of, unchained
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.file_facts import device_properties
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of, shapes_of_first
from trace_reader.findings.optimizer import ACCUMULATES
from trace_reader.findings.registry import LEAST_SHARE, Seen, finding, lies_inside, listed, of_the_steps
from trace_reader.findings.verdict import denominator
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, among, once
from trace_reader.model.slices import Footprint
from trace_reader.names.op_names import GEMM_OPS, LAYER_OPS, VIEW_OPS
from trace_reader.units import about, by_dimensions, us

POINTWISE = re.compile(
    r"aten::(?:mul|add|sub|div|lerp|copy|addcmul|addcdiv|sqrt|zero|fill|neg|pow|clamp|detach|to|clone|square|maximum|reciprocal|"
    r"_foreach_\w+|empty\w*|view|reshape|sign|rsqrt|exp)_?$"
)
MOVES = frozenset(f"aten::{name}" for name in ("to", "copy_", "clone", "empty", "empty_like", "empty_strided", "view", "reshape",
                                               "detach", "zero_", "fill_"))  # fmt: skip
LEAST_LOOP, LEAST_OF_MODELS = 8, 4  # rounds
SMALL_US = 50.0  # of an op on a CPU
READS = frozenset(["aten::item", "aten::resolve_neg"])  # as .item(), .tolist() and .numpy() do
OF_READING = frozenset(["aten::to", "aten::resolve_conj", "aten::is_nonzero"])
OF_THESE = 0.8  # of the nodes of a backward pass, made by the ops of a loop: then they are its own
SQUARES, SUMS = frozenset(["aten::pow", "aten::square"]), frozenset(["aten::add", "aten::add_", "aten::mul"])
TOTALS = frozenset(["aten::sum", "aten::norm", "aten::linalg_vector_norm"])  # of a whole tensor, or over dimensions
NEVER_NS = np.iinfo(np.int64).max
ATTENDS = frozenset(["aten::softmax", "aten::_softmax", "aten::scaled_dot_product_attention"])
ATTENTION = "aten::scaled_dot_product_attention"
CUTS = frozenset(["aten::slice", "aten::select", "aten::narrow"])
BETWEEN_PARTS = VIEW_OPS | frozenset(["aten::copy_", "aten::empty_like", "aten::empty", "aten::contiguous"])
HEADS_LAYERS = 2  # that take what comes from outside: queries and keys at least
CONVOLUTIONS = frozenset(["aten::conv1d", "aten::conv2d"])
ACTIVATIONS = frozenset(f"aten::{name}" for name in ("relu", "relu_", "gelu", "elu", "silu", "tanh", "sigmoid"))
WRITES = frozenset(["aten::copy_", "aten::index_put_", "aten::index_copy_", "aten::scatter_"])
ADDS = frozenset(["aten::add", "aten::add_"])
OF_ELEMENTS = frozenset(["aten::matmul", "aten::mm", "aten::bmm"])
# A polynomial of a matrix, as of an optimizer that makes its updates orthogonal: no activation, no norm of a layer.
ARITHMETIC, LEAST_ARITHMETIC = frozenset(["aten::add", "aten::sub", "aten::mul", "aten::div", "aten::rsub"]), 2
ALGEBRA = OF_ELEMENTS | ARITHMETIC | VIEW_OPS | frozenset(["aten::linalg_vector_norm", "aten::norm", "aten::eye"])
SOLVES = ("aten::linalg_inv", "aten::linalg_solve", "aten::linalg_cholesky", "aten::cholesky", "aten::inverse")
AT_ONCE_IF = (
    "If the rounds of this Python loop do not need each other's results, do all of them at once: one op over a dimension more "
    "(broadcasting, torch.where, cumsum, bmm, torch.func.vmap).{} Else fuse the loop's body with torch.compile."
)
MOST_WAYS = 2
# What does at once what a loop does with these ops.
WAYS = {
    **dict.fromkeys(("aten::index_put_", "aten::index_fill_", "aten::scatter_"),
                    "one index_put_ or scatter_ with the indices of all rounds (rows and columns) joined"),
    **dict.fromkeys(("aten::index", "aten::index_select", "aten::gather"),
                    "one index, gather or index_select with the indices of all rounds joined"),
    **dict.fromkeys(("aten::eq", "aten::nonzero", "aten::masked_select"),
                    "one index_add_ or scatter_reduce for all groups of rows (with torch.bincount for a mean)"),
    **dict.fromkeys(("aten::fft_rfft", "aten::fft_fft", "aten::fft_irfft", "aten::stft"),
                    "one FFT of all windows or rows (torch.stft, or Tensor.unfold before it)"),
    **dict.fromkeys(("aten::cosine_similarity", "aten::dot", "aten::mv"),
                    "one matrix product (of normalized rows for a cosine)"),
    **dict.fromkeys(("aten::mean", "aten::std", "aten::var", "aten::sum", "aten::amax", "aten::max", "aten::argmax"),
                    "one reduction over a dimension (dim=), of windows by Tensor.unfold, of rows of different lengths by a mask"),
    **dict.fromkeys(("aten::slice", "aten::narrow"), "Tensor.unfold for windows, one copy or index for all parts"),
    **dict.fromkeys(("aten::linalg_inv_ex", "aten::linalg_solve_ex", "aten::linalg_cholesky_ex", "aten::linalg_svd",
                     "aten::linalg_eigh", "aten::linalg_inv", "aten::inverse"), "one call on a stack of matrices"),
}  # fmt: skip
OF_MODELS = frozenset(["aten::linear", "aten::matmul", "aten::conv1d", "aten::conv2d", "aten::conv3d", *GEMM_OPS])


@finding(
    "loop-over-tensors",
    "the same few ops, hundreds of times in a row, on tensors of a list",
    "a pattern that repeats on the CPU's lane: mul, add, copy_, mul, add, copy_",
    "A Python loop goes over a list of tensors, for example for averaged weights (EMA), clipping or a hand-written optimizer. "
    "Each tensor gets its own launches.",
    "Update all tensors in a few calls: torch._foreach_lerp_, _foreach_mul_ and _foreach_add_ take lists. The optimizers of "
    "torch.optim use them (foreach=True), and so does torch.optim.swa_utils.AveragedModel.",
)
def _loop_over_tensors(trace: Trace, facts: Facts) -> Seen | None:
    found = [one for one in loops(trace) if one.rounds >= LEAST_LOOP and all(map(POINTWISE.match, one.ops))]
    found = [one for one in found if one.has_shapes or not lies_inside(trace, one.spans, "^Optimizer").any()]
    found = [one for one in found if one.has_shapes or not MOVES.issuperset(one.ops)]  # fields of a batch, each of its own shape
    return _loop(trace, facts, found, "", Effect(at_once(trace, found)))


@finding(
    "loop-of-small-products",
    "the same small network, many times in a row",
    "a pattern that repeats on the CPU's lane, with its own matrix products in each round",
    "The same sequence of ops with equal shapes runs many times in a row. Judging by the shapes, no round uses the result of "
    "the round before. The rounds can be members of an ensemble, for example, experts, heads or single samples.",
    "Do all rounds at once: stack the weights and use one batched matrix product (torch.bmm, torch.func.vmap), or one larger "
    "batch.",
)
def _loop_of_small_products(trace: Trace, facts: Facts) -> Seen | None:
    every = [one for one in loops(trace) if one.has_shapes and one.rounds >= LEAST_OF_MODELS and _gains_at_once(trace, one)]
    asked = (_members(trace, one, every) for one in every if OF_MODELS.intersection(one.ops))
    forward = [one for one in asked if one is not None and one.rounds >= LEAST_OF_MODELS]
    backward = [one for one in every if _is_backward_of(trace, one, forward)]
    has_own_weights = any(ACCUMULATES in op for one in backward for op in one.ops)  # what they share is added to once
    updates = [one for one in every if has_own_weights and _is_update_of(trace, one, forward)]
    found = [*forward, *backward, *updates]
    with_ = ("", " (forward and backward)", " (forward, backward and optimizer)")[bool(backward) + bool(updates)]
    return _loop(trace, facts, found, with_, Effect(at_once(trace, found), kind=ONCE))


def _members(trace: Trace, loop: Candidate, every: list[Candidate]) -> Candidate | None:
    """Return a loop with those of its runs whose rounds do not need each other's results; None where none is known."""
    if _are_heads(trace, loop):
        return loop
    backward = [one for one in every if one.rounds == loop.rounds and _is_backward_of(trace, one, [loop])]
    return unchained(trace, loop, each_taken_once=bool(backward) and not any(_adds_gradients(trace, one) for one in backward))


def _adds_gradients(trace: Trace, backward: Candidate) -> bool:
    """Return whether the backward pass adds up gradients in these rounds, as it does for what was used twice; what a weight's
    gradient is added to from step to step does not count.
    """
    nodes = backward.spans.where(backward.spans.is_named(lambda name: name.startswith(EVALUATE) and ACCUMULATES not in name))
    adds = trace.ops.where(trace.ops.is_named(ADDS.__contains__))
    is_ours = np.zeros(len(trace.slices.start_ns), bool)
    is_ours[nodes.at] = True
    return bool((innermost(trace.slices, trace.parent, adds.at, is_ours) >= 0).any()) or not ADDS.isdisjoint(backward.ops)


def _are_heads(trace: Trace, loop: Candidate) -> bool:
    """Return whether a round may be a head of attention that is a module of its own, by shapes: several layers take what has one
    shape, no other op takes or makes what has it, and attention is among the ops.
    """
    if not ATTENDS.intersection(loop.ops):
        return False
    of_round = [(trace.slices.names[trace.slices.name[row]], shapes_of(trace.slices, row)) for row in loop.runs[0][0].tolist()]
    taken = [shapes for name, shapes in of_round if name == "aten::linear"]
    if len(taken) < HEADS_LAYERS or any(len(shapes) < 2 or len(shapes[0]) < 2 or not shapes[1] for shapes in taken):
        return False
    (whole, *others), made = dict.fromkeys(shapes[0] for shapes in taken), [made_of(*one, []) for one in of_round]
    return not others and whole not in made and all(whole not in shapes for name, shapes in of_round if name != "aten::linear")


@finding(
    "attention-in-parts",
    "attention many times in a row, each time of a part of the same tensors",
    "aten::scaled_dot_product_attention between aten::slice or aten::select, with the same shapes each time",
    "Heads, samples or windows attend one after the other, each with launches of its own.",
    "If the parts are heads or samples: attend in one call, whose first dimensions are samples and heads. If windows: view them "
    "as more samples. A fused kernel does not write the scores to memory, so it needs little more than the inputs and the "
    "result.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
def _attention_in_parts(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: LEAST_OF_MODELS calls in a row of the same ones, views, copies and empty tensors between them, and as many
    numbers in what the views before them take parts of.
    """
    if ATTENTION not in trace.op_names:
        return None
    outer, runs, whole = trace.outer_ops, list[np.ndarray](), Counter[str]()
    for _, one in outer.by(outer.track, trace.step_at(outer.start_ns)):
        at, between = np.flatnonzero(one.is_named(ATTENTION.__eq__)), np.cumsum(~one.is_named(BETWEEN_PARTS.__contains__))
        alike = (np.diff(between[at]) == 1) & (np.diff(one.detail[at]) == 0) & (one.detail[at[1:]] >= 0)
        for row in np.split(at, np.flatnonzero(~alike) + 1):
            if len(row) < LEAST_OF_MODELS or len(set(np.diff(row).tolist())) != 1 or row[0] < row[1] - row[0] - 1:
                continue
            shapes = shapes_of(trace.slices, int(one.at[row[0]]))[:3]
            source, cuts = _cut_from(trace, one.at[row[0] : row[1]], shapes[0][-1] if shapes else 0)
            # Fewer cuts than inputs: one may be what the round before made.
            is_cut = cuts >= sum(shape == shapes[0] for shape in shapes)
            if source and is_cut and math.prod(source) >= len(row) * math.prod(shapes[0]):
                period = row[1] - row[0]
                runs.append(np.stack([one.at[place - period + 1 : place + 1] for place in row.tolist()]))
                whole[f"{by_dimensions(shapes[0])} of {by_dimensions(source)}"] += len(row)
    if not runs:
        return None
    (words, _), *others = whole.most_common()
    loop = loop_of(trace, (ATTENTION,), runs)
    if not _gains_at_once(trace, loop):
        return None
    more = f" with queries of {words}{' and others' * bool(others)}"
    return _loop(trace, facts, [loop], more, Effect(at_once(trace, [loop]), kind=ONCE))


def _cut_from(trace: Trace, rows: np.ndarray, width: int) -> tuple[tuple[int, ...], int]:
    """Return the largest shape of which a slice or select among these ops takes a part, of those whose last dimension has this
    width, and how many of these cuts there are.
    """
    cuts = rows[trace.slices.is_named(rows, CUTS.__contains__)].tolist()
    shapes = [shape for row in cuts for shape in shapes_of(trace.slices, row)[:1] if shape[-1] == width]
    return max(shapes, key=math.prod, default=()), len(shapes)


@finding(
    "inputs-projected-one-by-one",
    "a select and a linear layer, in each round of a loop",
    "aten::linear right behind aten::select, many times in a row",
    "A loop, for example over time steps, takes the input of each round out of a tensor and multiplies it with a weight. Judging "
    "by the shapes, this product needs nothing of the round before.",
    "If the weight is the same in all rounds (time steps): project all inputs before the loop, in one call on the whole tensor, "
    "and take the parts of the result with unbind. Selected one by one, each part would have a gradient as large as the whole.",
)
def _inputs_projected(trace: Trace, facts: Facts) -> Seen | None:
    every = [one for one in loops(trace) if one.has_shapes and one.rounds >= LEAST_LOOP and unchained(trace, one) is None]
    rows = [run[:, place] for one in every for run in one.runs for place in _projections(trace, run)]
    if not rows:
        return None
    spans, repeats = _with_nodes(trace, rows), _with_nodes(trace, [own[1:] for own in rows])
    if (share := _share(trace, facts, spans)) < LEAST_SHARE:
        return None
    many = sum(map(len, rows)) / len(facts.steps)
    names = listed(dict.fromkeys(trace.slices.names[trace.slices.name[own[0]]] for own in rows))
    more = ", with their backward pass" * bool(len(spans) > sum(map(len, rows)))
    cpu = us(spans.total_us / len(facts.steps))
    seen = f"in loops, per step: {many:.0f} x {names}, each of one part of a tensor; {cpu} of CPU time"
    # Whether all rounds have one weight, the backward pass says, if it adds to fewer weights than there are rounds.
    added_to = trace.nodes.is_named(lambda name: ACCUMULATES in name).sum() / len(facts.steps)
    has_one = trace.has_backward and added_to < min(len(own) for own in rows)
    return Seen(f"{seen}{more}", spans, share=share, effect=Effect(dropped(repeats), kind=ONCE) if has_one else None)


def _projections(trace: Trace, run: np.ndarray) -> list[int]:
    """Return the places in the rounds of a run (rows) of layers that take what a select before them took out of a tensor, by its
    shape: all but one dimension, which has a place for each round; without those whose input may be what the round before made,
    as a recurrence's state is, or which is taken out of what the rounds write to.
    """
    of_round, places = run[0].tolist(), (len(run), len(run) + 1)
    found, names = [], [trace.slices.names[trace.slices.name[row]] for row in of_round]
    writes = not WRITES.isdisjoint(names)
    taken = [shapes_of(trace.slices, row) for row in of_round]
    for place, both in enumerate(pairwise(names), 1):
        if both != ("aten::select", "aten::linear") or not taken[place - 1] or len(taken[place]) < 2:
            continue
        whole, (inputs, weight, *_) = taken[place - 1][0], taken[place]
        is_part = inputs in _elements([whole], places)
        # What has this shape elsewhere in the round may be what the round before made.
        elsewhere = [shape for at, shapes in enumerate(taken) if at not in (place - 1, place) for shape in shapes]
        if writes and [shapes[:1] for shapes in taken].count([whole]) > 1:
            continue
        if is_part and len(inputs) > 1 and inputs not in elsewhere and weight[0] != inputs[-1]:
            found.append(place)
    return found


@finding(
    "convolutions-of-parts",
    "a slice and a convolution, many times in a row",
    "aten::conv1d or conv2d right behind aten::slice, select or narrow, many times in a row",
    "Each part of a tensor (a channel, a sensor, a band) has a convolution of its own.",
    "If the kernels have one size, and each part has weights of its own: one grouped convolution does all parts in one call "
    "(groups=). If the weights are the same: join the parts along the batch.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html",
)
def _convolutions_of_parts(trace: Trace, facts: Facts) -> Seen | None:
    found = [one for one in loops(trace) if one.rounds >= LEAST_LOOP and _gains_at_once(trace, one)]
    found = [one for one in found if CONVOLUTIONS.intersection(one.ops) and all(map(_is_of_a_part, one.ops))]
    found = [one for one in found if any(a in CUTS and b in CONVOLUTIONS for a, b in pairwise((*one.ops, one.ops[0])))]
    found = [one for one in found if _cuts_what_no_convolution_makes(trace, one)]
    return _loop(trace, facts, found, "", Effect(at_once(trace, found), kind=ONCE))


def _cuts_what_no_convolution_makes(trace: Trace, loop: Candidate) -> bool:
    """Return whether, by the number of channels, no cut of a round takes what a convolution of it makes: then it is no chain."""
    of_round = [(trace.slices.names[trace.slices.name[row]], shapes_of(trace.slices, row)) for row in loop.runs[0][0].tolist()]
    cut = {shapes[0][1] for name, shapes in of_round if name in CUTS and shapes and len(shapes[0]) > 1}
    made = {shapes[1][0] for name, shapes in of_round if name in CONVOLUTIONS and len(shapes) > 1}
    return bool(cut and made) and not cut & made


def _is_of_a_part(op: str) -> bool:
    return op in CUTS or op in CONVOLUTIONS or op in VIEW_OPS or POINTWISE.match(op) is not None or op in ACTIVATIONS


@finding(
    "penalty-in-the-loss",
    "a square and a sum for one weight after the other, in a row",
    "aten::pow and aten::sum, once for each weight, and their nodes in the backward pass",
    "The program squares and adds up tensors one after the other, as for a penalty on the weights in the loss. Each takes a pass "
    "forward, and several backward.",
    "If the loop is a penalty on the weights: give the optimizer weight_decay in its place (for the sum of squares in SGD or "
    "Adam, twice its factor).",
)
def _penalty_in_the_loss(trace: Trace, facts: Facts) -> Seen | None:
    found = [one for one in loops(trace) if one.rounds >= LEAST_OF_MODELS and _is_penalty(one.ops)]
    found = [one for one in found if len(nodes_of(trace, one.spans))]  # without a gradient, it is clipping or a log
    weights = _updated(trace)
    found = [one for one in found if _is_of_weights(trace, one, weights)]
    if not found:
        return None
    spans = _with_nodes(trace, [one.spans.at for one in found])
    if (share := _share(trace, facts, spans)) < LEAST_SHARE:
        return None
    told = listed(f"{one.rounds} x ({one.name}){_in_runs(one, len(trace.steps))}" for one in found)
    seen = f"in a row, per step: {told}; with their backward pass {us(spans.total_us / len(facts.steps))} of CPU time"
    return Seen(seen, spans, share=share, effect=Effect(dropped(spans), kind=GONE) if weights else None)


def _updated(trace: Trace) -> set[tuple[int, ...]]:
    """Return the shapes of what an optimizer changes; none where no shapes were recorded."""
    ops = trace.outer_ops.where(lies_inside(trace, trace.outer_ops, "^Optimizer"))
    firsts = [rows.at[0] for _, rows in ops.by(ops.detail)]
    return {shape for row in firsts for shape in shapes_of_first(trace.slices, int(row))}


def _is_of_weights(trace: Trace, loop: Candidate, weights: set[tuple[int, ...]]) -> bool:
    """Return whether all that a loop squares can be an optimizer's weights, by the shapes (if these are known), each summed up
    whole, and before any backward pass of its step: what comes after one may be a gradient.
    """
    first = loop.spans.where(loop.spans.is_named(SQUARES.union(TOTALS).__contains__))
    nodes, step = trace.nodes.where(trace.step_at(trace.nodes.start_ns) >= 0), trace.step_at(first.start_ns)
    began = {
        int(one): int(nodes.start_ns[trace.step_at(nodes.start_ns) == one].min(initial=NEVER_NS)) for one in set(step.tolist())
    }
    if any(start >= began[int(one)] for start, one in zip(first.start_ns.tolist(), step.tolist(), strict=True)):
        return False
    for row in first.at.tolist():
        shapes, inputs = shapes_of(trace.slices, row), inputs_of(trace.slices, row)
        if trace.slices.names[trace.slices.name[row]] == "aten::sum" and inputs is not None and inputs.values:
            return False  # over some dimensions
        if weights and shapes and shapes[0] and shapes[0] not in weights:
            return False
    return True


def _with_nodes(trace: Trace, ops: list[np.ndarray]) -> Rows:
    """Return ops (rows) with the nodes of the backward pass that they made."""
    spans = Rows(trace.slices, once(np.concatenate(ops)))
    return Rows(trace.slices, once(np.append(spans.at, nodes_of(trace, spans))))


def _share(trace: Trace, facts: Facts, spans: Rows) -> float:
    """Return how much of the critical path or of the steps' time they are, whichever is more; 0 without steps."""
    path = facts.critical_path
    if path is None or not facts.steps:
        return 0.0
    return max(path.explained_us(spans) / path.window_us, of_the_steps(trace, spans))


def _is_penalty(ops: tuple[str, ...]) -> bool:
    return bool(SQUARES.intersection(ops) and TOTALS.intersection(ops)) and set(ops) <= SQUARES | TOTALS | SUMS


@finding(
    "read-one-by-one",
    "aten::item, or aten::to and resolve_conj, dozens of times in a row",
    "a pattern that repeats on the CPU's lane and does nothing but read; on a GPU, a small Memcpy DtoH in each round",
    "A loop reads numbers or rows of tensors by themselves (.item(), .tolist(), .numpy()). On a GPU each reading waits for what "
    "was launched before it.",
    "If the numbers are parts of one tensor: read it once, before the loop, with .tolist() or .cpu(). If they are tensors of "
    "their own: join them first (torch.stack, torch.cat), and read the result.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.Tensor.tolist.html",
)
def _read_one_by_one(trace: Trace, facts: Facts) -> Seen | None:
    """Loops of MANY_ROUNDS and more, of nothing but views and what reads; not an optimizer's, of its counts of steps."""
    found = [one for one in loops(trace) if one.rounds >= MANY_ROUNDS and _only_reads(one.ops)]
    found = [one for one in found if not lies_inside(trace, one.spans, "^Optimizer").any()]
    return _loop(trace, facts, found, "", Effect(at_once(trace, found), kind=ONCE))


def _only_reads(ops: tuple[str, ...]) -> bool:
    return bool(READS.intersection(ops)) and all(op in READS or op in VIEW_OPS or op in OF_READING for op in ops)


@finding(
    "repeated-ops",
    "the same few ops, dozens of times in a row",
    "a pattern that repeats on the CPU's lane, with different tensors or elements in each round",
    "The same sequence of ops runs many times in a row: a Python loop, for example over rows, time steps, classes or samples.",
    AT_ONCE_IF.format(""),
)
def _repeated_ops(trace: Trace, facts: Facts) -> Seen | None:
    """Without loops that other findings tell of, layers, backward passes and optimizers."""
    found = [one for one in loops(trace) if one.rounds >= MANY_ROUNDS and not all(map(POINTWISE.match, one.ops))]
    found = [one for one in found if _gains_at_once(trace, one) and not _only_reads(one.ops)]
    found = [one for one in found if not any(op.startswith(EVALUATE) for op in one.ops) and not _is_of_layers(trace, one)]
    found = [one for one in found if not lies_inside(trace, one.spans, "^Optimizer").any()]
    seen = _loop(trace, facts, found, "", Effect(at_once(trace, found), kind=ONCE))
    ways = {WAYS[name]: None for name, _ in sorted(seen.evidence.by_name(), key=_total_us) if name in WAYS} if seen else {}
    here = "; or ".join(list(ways)[:MOST_WAYS])
    next = AT_ONCE_IF.format(f" Here it may be {here}." if here else "")
    return msgspec.structs.replace(seen, next=next) if seen else None


def _total_us(ops: tuple[str, Rows]) -> tuple[float, str]:
    return -ops[1].total_us, ops[0]


def _gains_at_once(trace: Trace, loop: Candidate) -> bool:
    """Return whether its ops, done for all rounds at once, take less: on a CPU, those that take long compute for so long."""
    return len(trace.work) > 0 or are_short(loop.spans)


def are_short(ops: Rows) -> bool:
    """Return whether most of their time is in ops of less than SMALL_US."""
    return 2 * ops.where(ops.duration_us >= SMALL_US).total_us < ops.total_us


def _is_of_layers(trace: Trace, loop: Candidate) -> bool:
    """Return whether a round may be a layer of a model; not one that takes, by its shape, an element out of a tensor which has
    one for each round (what is multiplied with it may be the layers', and it the weights), or that takes an element and
    multiplies a matrix with a vector alone, or that does nothing but algebra with matrices, or that solves or inverts one.
    """
    layers = LAYER_OPS.intersection(loop.ops)
    if not layers - OF_ELEMENTS and any(op.startswith(SOLVES) for op in loop.ops):
        return False
    if not layers - OF_ELEMENTS and set(loop.ops) <= ALGEBRA and len(ARITHMETIC.intersection(loop.ops)) >= LEAST_ARITHMETIC:
        return False
    if not layers or "aten::select" not in loop.ops or layers - OF_ELEMENTS:
        return bool(layers)
    of_round, places = loop.runs[0][0].tolist(), (len(loop.runs[0]), len(loop.runs[0]) + 1)
    ops = [(trace.slices.names[trace.slices.name[row]], shapes_of(trace.slices, row)) for row in of_round]
    elements = {one for name, shapes in ops if name == "aten::select" for one in _elements(shapes[:1], places)}
    taken = {shape for name, shapes in ops if name != "aten::select" for shape in shapes}
    operands = [shapes for name, shapes in ops if name in layers and len(shapes) > 1]
    if taken & elements and not any(b in elements and a not in elements for a, b, *_ in operands):
        return False
    products = [row for row in of_round if trace.slices.names[trace.slices.name[row]] in layers]
    return any(min(map(len, shapes_of(trace.slices, row)), default=2) > 1 for row in products)


def _elements(wholes: list[tuple[int, ...]], places: tuple[int, int]) -> list[tuple[int, ...]]:
    """Return the shapes of what a select can take out of such tensors along a dimension that has so many places."""
    return [(*whole[:n], *whole[n + 1 :]) for whole in wholes for n in range(len(whole)) if whole[n] in places]


def _is_backward_of(trace: Trace, loop: Candidate, forward: list[Candidate]) -> bool:
    """Return whether the nodes of the backward pass in a loop were made by what these do; of what adds to a weight's gradient, no
    op of the forward pass is known.
    """
    nodes = loop.spans.at[loop.spans.is_named(lambda name: name.startswith(EVALUATE) and ACCUMULATES not in name)]
    if not len(nodes) or not forward:
        return False
    made = np.concatenate([nodes_of(trace, one.spans) for one in forward])
    return float(among(nodes, made).mean()) >= OF_THESE


def _is_update_of(trace: Trace, loop: Candidate, forward: list[Candidate]) -> bool:
    """Return whether a loop is that of an optimizer over as many weights, one after the other, as these have rounds, and of the
    shapes of theirs.
    """
    if loop.rounds not in {one.rounds for one in forward} or not lies_inside(trace, loop.spans, "^Optimizer").all():
        return False
    of_round = [row for one in forward for row in one.runs[0][0].tolist()]
    theirs = {shape for row in of_round for shape in shapes_of(trace.slices, row)[1:]}
    return {shape for row in loop.runs[0][0].tolist() for shape in shapes_of_first(trace.slices, row)} <= theirs


def _loop(trace: Trace, facts: Facts, found: list[Candidate], more: str, effect: Effect) -> Seen | None:
    told = listed(f"{one.rounds} x ({one.name}){_in_runs(one, len(trace.steps))}" for one in found)
    return told_loops(trace, facts, found, f"in a row{more}, per step: {told}", effect)


def told_loops(trace: Trace, facts: Facts, found: list[Candidate], words: str, effect: Effect) -> Seen | None:
    """Return what was seen of loops, with their time; None where they take little."""
    path = facts.critical_path
    if path is None or not found or not facts.steps:
        return None
    spans = Rows(trace.slices, once(np.concatenate([one.spans.at for one in found])))
    share, steps = path.explained_us(spans) / path.window_us, len(facts.steps)
    if max(share, of_the_steps(trace, spans)) < LEAST_SHARE:
        return None
    of_path = f": {about(share)} of {denominator(facts)}" if share >= LEAST_SHARE else ""
    seen = f"{words}; {us(spans.total_us / steps)} of CPU time{of_path}"
    return Seen(seen, spans, share=share, effect=effect)


def _in_runs(loop: Candidate, steps: int) -> str:
    runs = len(loop.runs) / steps
    return f" in {runs:.3g} runs" if runs > 1 else ""


def at_once(trace: Trace, found: list[Candidate]) -> Edit:
    """Return an edit: of each loop the first round is left, and of the GPU's work in the others as much as does not fit beside
    it: a kernel with a block for each multiprocessor fills the GPU, and what has no grid, as a copy, takes as long for all; so
    does a kernel of a GPU whose multiprocessors are not known. If the backward pass of the rounds is no loop itself, short nodes
    that the other rounds made go, too.
    """
    repeats, sms = [one.repeats for one in found if one.repeats is not None], _multiprocessors(trace)
    is_there = any(op.startswith(EVALUATE) for one in found for op in one.ops)
    nodes = [] if is_there else [Rows(trace.slices, nodes_of(trace, spans)) for spans in repeats]
    nodes = [spans for spans in nodes if len(trace.work) or are_short(spans)]

    def left_of(row: int) -> float:
        detail = int(trace.slices.detail[row])
        footprint = trace.slices.details[detail] if detail >= 0 else None
        return min(math.prod(footprint.grid) / sms, 1.0) if sms and isinstance(footprint, Footprint) and footprint.grid else 1.0

    def edit(run: Edited) -> None:
        left = np.array([left_of(row) for row in run.replay.work.at.tolist()])
        for spans in [*repeats, *nodes]:
            run.drop(spans, left_of_gpu=left)

    return edit


def _multiprocessors(trace: Trace) -> int:
    """Return how many the GPU has; 0: not known."""
    device = (device_properties(trace.header) or [{}])[0]
    return sms if isinstance(sms := device.get("numSms"), int) and sms > 0 else 0
