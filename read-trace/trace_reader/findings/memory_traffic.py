"""Copies inside other ops, conversions, memory that is kept, and the profiler's own buffers."""

from collections import defaultdict
import math
import re
from typing import Any

import numpy as np
from trace_reader.analysis.replay.edits import GONE, ONCE, UNSURE, Effect, all_of, dropped, scaled, unlaunched
from trace_reader.analysis.replay.places import nodes_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.memory_facts import curves
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.analysis.trace.time_by_place import is_numbered
from trace_reader.findings.fusable import optimizer_steps
from trace_reader.findings.registry import Seen, a_step, finding, listed, named, with_what_is_freed
from trace_reader.findings.verdict import denominator
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import innermost, itself_or_innermost, outermost
from trace_reader.link.trace import Activity, Trace
from trace_reader.model.rows import Rows, among, distinct, grouped, median, once
from trace_reader.model.slices import NO_NODE, Inputs, Kind
from trace_reader.names.kernel_names import CONVERTS, decode_name
from trace_reader.names.op_names import is_device_copy
from trace_reader.units import about, count, human_bytes, us

# Whoever calls these asks for a copy.
COPYING_OPS = frozenset(
    f"aten::{name}"
    for name in ("copy_", "to", "_to_copy", "clone", "contiguous", "cat", "stack", "item", "_local_scalar_dense", "lift_fresh",
                 "repeat", "reshape", "_foreach_copy_", "index_select", "narrow_copy", "fill_", "scatter", "full_like")
)  # fmt: skip
MIN_SHARE_OF_GPU_TIME = 0.01  # of the GPU's time
CONVERSION = "aten::_to_copy"
CONVERT_ONCE = (
    "Convert weights once, when they are loaded (dequantized int8, half precision), and keep tensors that are used again in the "
    "dtype in which they are used."
)
CONVERT_WEIGHTS = (
    "Convert the weights once, when they are loaded: model.to(torch.bfloat16). If it is autocast that converts them: it keeps "
    "them only until its block ends."
)
MOST_OF_WEIGHTS = 0.5  # of the conversions' time
LAYERS_WITH_WEIGHTS = frozenset(["aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::matmul"])
CONVERSIONS = 0.05  # of the path, or of the GPU's time
NORMS = re.compile(r"batch_norm|bn_(?:fw|bw)")
LEFT_OF_NORMS = 0.25  # of their time, at best, where channels stand last
LAYOUTS = re.compile(r"nchwToNhwc|nhwcToNchw")
OTHER_LAYOUTS = {  # than channels_last, which is of images alone
    "aten::conv1d": "Try nn.Conv2d with kernels of one row, on inputs with a dimension of one row more (unsqueeze(2)), in "
    "channels_last, which does not exist for sequences (conv1d). Time both.",
    "aten::conv3d": "Keep model and volumes in channels_last_3d: .to(memory_format=torch.channels_last_3d). Time both.",
}
LAYOUT_TIME = 0.02  # of the GPU's time
RECOMPUTED = 0.02  # of the GPU's time
BACKWARD = "autograd::engine::evaluate_function"
FORWARD_ONLY = frozenset(
    f"aten::{name}"
    for name in ("linear", "layer_norm", "rms_norm", "group_norm", "batch_norm", "scaled_dot_product_attention", "conv1d",
                 "conv2d", "conv3d", "gelu", "silu", "relu", "dropout", "embedding", "softmax", "max_pool2d")
)  # fmt: skip
ACTIVATIONS = 0.3  # of the peak
FEWEST_STEPS, GROWS_BYTES, MOST_TOLD = 3, 1 << 20, 5
FEWEST_AGAIN, MOST_NODES_CHECKED = 3, 0.7  # nodes that run again, in a step; of all nodes
LOOKS_FOR_NAN = frozenset(["aten::isnan", "aten::_is_any_true", "aten::any", "aten::item"])  # of a gradient
LEFT_OF_TRACEBACKS = 0.15, 0.7  # of the CPU's time in ops that keep a traceback for each of their nodes
FEWEST_CATS = 4  # a step
CHANGES = re.compile(r"aten::(?:sub|add|addcdiv|addcmul|lerp|mul|copy|_foreach_(?!zero)\w+|_fused_\w+)_$")  # in place
FEWEST_PASSES, LEFT_OF_PASSES = 4, 0.5  # a step; of the GPU's time of those that become one, at best
TOO_SHORT_US = 50.0  # of a kernel, to have enough to do
GROWING = 0.7  # of the calls take longer than the one before


AS_OF_A_JACOBIAN = 4  # times that a node runs in a step
ONE_BY_ONE = (
    "If the gradients of several outputs are taken one by one (a Jacobian, a divergence): take them as one batch, with "
    "torch.func.jacrev, torch.func.vmap or torch.autograd.grad(..., is_grads_batched=True). If they are of several losses: add "
    "these, and call backward() once."
)


@finding(
    "hidden-copy",
    "a copy that your code does not ask for",
    "a Memcpy DtoD on the GPU's lane, and the op that launched it",
    "Another op makes this device-to-device copy. An out-of-place op often copies its input, then changes the copy.",
    "Use the in-place form if the input is no longer needed (masked_fill_ for masked_fill).",
)
def _hidden_copy(trace: Trace, facts: Facts) -> Seen | None:
    total_us = trace.linked.total_us or 1.0
    seen, in_place, rows = [], True, []
    for path, copies in sorted(_by_path(trace, _device_copies(trace)).items()):
        outer, _, inner = path.partition(" > ")
        share = sum(copy.event.duration_us for copy in copies) / total_us
        if outer in COPYING_OPS or not inner or "addmm" in path or share < MIN_SHARE_OF_GPU_TIME:
            continue
        megabytes = sum(copy.event.detail or 0 for copy in copies) / len(copies) / 1e6  # type: ignore[misc, operator]
        how_many = a_step(len(copies), facts, "copy", "copies")
        seen.append(f"{path}: {how_many}, {megabytes:.1f} MB on average, {share:.0%} of GPU time")
        in_place &= outer == "aten::masked_fill"
        rows += [copy.event.row for copy in copies]
    if not seen:
        return None
    next = "" if in_place else "Check why the op copies: another op may not need to."
    found = Rows(trace.slices, np.sort(np.array(rows)))
    return Seen("; ".join(seen), found, next, effect=Effect(scaled(found, 0.0)))


@finding(
    "activations-kept",
    "allocated memory rises in the forward pass, falls in the backward",
    "the memory curve (--plot), and what is alive at its peak (--all)",
    "These tensors were allocated in the forward pass and not freed before the backward pass. Activations grow with batch size "
    "and sequence length.",
    "Try activation checkpointing (less memory, one more forward pass), or a smaller batch with gradient accumulation.",
)
def _activations_kept(trace: Trace, facts: Facts) -> Seen | None:
    most = max(facts.memory, key=lambda memory: memory.peak_bytes, default=None)
    has_layers = trace.annotations.is_named(is_numbered).any()
    if most is None or (most.layer_bytes if has_layers else most.activation_bytes) < ACTIVATIONS * most.peak_bytes:
        return None
    kept = f"{human_bytes(most.activation_bytes)} were kept from the forward pass"
    seen = f"at the peak of {human_bytes(most.peak_bytes)}, {kept}"
    if most.layers:
        seen += f", {human_bytes(most.layer_bytes)} of it in {listed(most.layers)}"
    layers = trace.annotations.where(trace.annotations.is_named(set(most.layers).__contains__))
    return Seen(seen, layers, share=0.0)


@finding(
    "memory-grows",
    "allocated memory is higher after each step",
    "the memory curve (--plot) at the steps' ends",
    "Something that a step makes is still alive when the next one has ended, as where a loss is kept with its graph, or outputs "
    "are appended to a list.",
    "Keep numbers (loss.item()) or detached tensors (loss.detach()) rather than tensors with a graph; move what is kept to the "
    "CPU.",
)
def _memory_grows(trace: Trace, facts: Facts) -> Seen | None:
    ends_ns = trace.steps.end_ns
    for curve in curves(trace) if len(trace.memory) and len(ends_ns) >= FEWEST_STEPS else ():
        at = np.searchsorted(curve.moment_ns, ends_ns, "right") - 1
        if (at < 0).any():
            continue
        held = curve.bytes[at].astype(np.int64)
        grown = np.diff(held)
        if grown.min() >= GROWS_BYTES and grown.max() <= 2 * grown.min():
            usual = human_bytes(int(np.median(grown)))
            seen = f"{curve.device} memory: {', '.join(map(human_bytes, held.tolist()[:MOST_TOLD]))} at the ends of the steps: "
            return Seen(f"{seen}{usual} more after each", trace.steps, share=0.0, no_effect="it is memory, not time")
    return None


def _device_copies(trace: Trace) -> Rows:
    return trace.linked.where((trace.linked.kind == Kind.MEMCPY) & trace.linked.is_named(is_device_copy))


def _by_path(trace: Trace, copies: Rows) -> dict[str, list[Activity]]:
    """Return the copies by the outermost aten op around them and the op that made them, joined by " > "."""
    aten = trace.ops.where(trace.ops.is_named(lambda name: name.startswith("aten::")))
    is_outermost = np.zeros(len(trace.slices), bool)
    is_outermost[outermost(trace.slices, aten.at)] = True
    outer = np.full(len(copies), -1)
    launched = copies.call >= 0
    outer[launched] = innermost(trace.slices, trace.parent, copies.call[launched], is_outermost)
    paths: dict[str, list[Activity]] = defaultdict(list)
    for copy, row in zip(trace.activities(copies), outer.tolist(), strict=True):
        ops = ([trace.slices[row].name] if row >= 0 else []) + ([copy.op.name] if copy.op else [])
        paths[" > ".join(dict.fromkeys(ops)) or "no op"].append(copy)
    return paths


@finding(
    "bias-copy",
    "a Memcpy DtoD right before a GEMM",
    "the GPU's lane, under aten::addmm",
    "addmm copies the bias into the output before the GEMM. The GEMM then does the add, at the cost of a copy.",
    "If the bias is the same for each row, use a one-dimensional bias, as nn.Linear does: it usually needs no copy.",
)
def _bias_copy(trace: Trace, facts: Facts) -> Seen | None:
    copies = bias_copies(trace)
    how_many = a_step(len(copies), facts, "device-to-device copy", "device-to-device copies")
    seen = f"{how_many} inside an addmm that also launches a GEMM"
    return Seen(seen, copies, effect=Effect(scaled(copies, 0.0))) if len(copies) else None


def bias_copies(trace: Trace) -> Rows:
    """Device-to-device copies whose op is an addmm that launches a GEMM after them."""
    gemms = trace.linked.where((trace.linked.op >= 0) & trace.linked.is_named(lambda name: decode_name(name).is_gemm))
    copies = _device_copies(trace)
    copies = copies.where((copies.op >= 0) & among(copies.op, gemms.op))
    last_ns = np.zeros(len(trace.slices), np.int64)
    np.maximum.at(last_ns, gemms.op, gemms.start_ns)
    copies = copies.where(copies.start_ns < last_ns[copies.op])
    return copies.where(trace.slices.is_named(copies.op, lambda name: "addmm" in name))


@finding(
    "dtype-conversions",
    "copy kernels under aten::to and aten::_to_copy",
    "the ops named aten::_to_copy, and what they launch",
    "Kernels convert tensors from one dtype to another: each reads and writes all of its data, and computes nothing.",
    "Keep tensors that are used again in the dtype in which they are used, and leave out conversions there and back.",
)
def _dtype_conversions(trace: Trace, facts: Facts) -> Seen | None:
    path, launched = facts.critical_path, trace.linked.where((trace.linked.call >= 0) & (trace.linked.kind == Kind.KERNEL))
    is_conversion = trace.slices.are_named(Kind.OP, CONVERSION.__eq__)
    # The kernel's own name says that it converts; a copy of one dtype in another order of memory is none.
    converting = launched.where(launched.is_named(lambda name: CONVERTS.search(name) is not None))
    inside = innermost(trace.slices, trace.parent, converting.call, is_conversion)
    rows, ops = converting.where(inside >= 0), Rows(trace.slices, distinct(inside[inside >= 0]).values.astype(np.int64))
    if path is None or not len(rows):
        return None
    share = path.explained_us(Rows(trace.slices, np.sort(np.concatenate([rows.at, ops.at])))) / path.window_us
    if share < CONVERSIONS and rows.total_us < CONVERSIONS * trace.linked.total_us:
        return None
    words = a_step(len(rows), facts, "conversion", "conversions")
    seen = f"{words}: {about(share)} of the critical path, {about(rows.total_us / trace.linked.total_us)} of GPU time"
    if trace.has_backward:
        return Seen(seen, rows, share=share, effect=Effect(dropped(ops)))
    of_weights = _share_of_weights(trace, rows, inside[inside >= 0])
    if of_weights < MOST_OF_WEIGHTS:
        return Seen(seen, rows, CONVERT_ONCE, share, Effect(dropped(ops)))
    words = f"{seen}; {about(of_weights)} of it in tensors of the shapes of layers' weights"
    return Seen(words, rows, CONVERT_WEIGHTS, share, Effect(dropped(ops)))


def _share_of_weights(trace: Trace, rows: Rows, ops: np.ndarray) -> float:
    """Return of the kernels' time how much is of tensors, the inputs of these ops, that have the shape of a layer's weights, and
    not of what a layer takes besides.
    """
    layers = trace.ops.where(trace.ops.is_named(LAYERS_WITH_WEIGHTS.__contains__))
    layers = layers.where(distinct(layers.name.astype(np.int64) * (len(trace.slices.details) + 1) + layers.detail + 1).first)
    every = [shapes_of(trace.slices, row) for row in layers.at.tolist()]
    is_matmul = layers.is_named("aten::matmul".__eq__).tolist()  # whose second input is a weight if it is one matrix
    both = zip(every, is_matmul, strict=True)
    weights = {shapes[1] for shapes, one in both if len(shapes) > 1 and (not one or len(shapes[1]) == 2)} - {
        shapes[0] for shapes in every if shapes
    }
    is_weight = np.array([next(iter(shapes_of(trace.slices, row)), None) in weights for row in ops.tolist()], bool)
    return rows.where(is_weight).total_us / rows.total_us if rows.total_us else 0.0


@finding(
    "layout-copies",
    "kernels named nchwToNhwc and nhwcToNchw around convolutions",
    "the GPU's lane, before and after a convolution",
    "cuDNN converts tensors to another memory layout (channels last) and back, for convolutions that it runs in that layout.",
    "Keep model and images in channels_last: .to(memory_format=torch.channels_last). This also changes the norms and pointwise "
    "kernels.",
)
def _layout_copies(trace: Trace, facts: Facts) -> Seen | None:
    rows = trace.linked.where(trace.linked.is_named(lambda name: LAYOUTS.search(name) is not None))
    if not len(rows) or rows.total_us < LAYOUT_TIME * trace.linked.total_us:
        return None
    words = a_step(len(rows), facts, "such kernel", "such kernels")
    norms = trace.linked.where(trace.linked.is_named(lambda name: NORMS.search(name) is not None))
    gone = scaled(rows, 0.0)
    seen = f"{words}: {about(rows.total_us / trace.linked.total_us)} of GPU time"
    # Which convolutions have most of these kernels, forward and backward.
    every = {name: named(trace.ops, name) for name in ("aten::conv2d", *OTHER_LAYOUTS)}
    both = {name: Rows(trace.slices, once(np.append(ops.at, nodes_of(trace, ops)))) for name, ops in every.items()}
    times_us = {name: rows.where(among(rows.at, trace.launched_in(ops).at)).total_us for name, ops in both.items()}
    most = max(times_us, key=lambda name: times_us[name])
    most_gone = all_of(gone, scaled(norms, LEFT_OF_NORMS))
    is_other_op = most == "aten::conv1d"  # of which nothing is sure
    effect = Effect(most_gone, None if is_other_op else gone, UNSURE if is_other_op else GONE)
    return Seen(seen, rows, OTHER_LAYOUTS.get(most, ""), effect=effect)


@finding(
    "copies-in-turn",
    "copies to the GPU on the stream of the kernels",
    "the GPU's lane: a Memcpy HtoD between kernels, on the same stream",
    "These copies share the kernels' stream, so copies and kernels never overlap.",
    "Copy the next batch on a stream of its own while the current batch is computed (torch.cuda.Stream, pinned memory, "
    "non_blocking=True), and wait for the copy's event before you use the batch.",
)
def _copies_in_turn(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or not facts.steps or facts.verdict not in ("gpu-bound", "copy-bound", "mixed"):
        return None
    sent = trace.linked.where(trace.linked.is_named(lambda name: "HtoD" in name and "Pageable" not in name))
    kernels = trace.linked.where(trace.linked.kind == Kind.KERNEL)
    sent = sent.where(among(sent.track, kernels.track))
    share = path.explained_us(sent) / path.window_us
    if share < CONVERSIONS:
        return None
    words = a_step(len(sent), facts, "copy", "copies")
    each = us(sent.total_us / len(facts.steps))
    seen = f"{words} on the kernels' stream, {each} of a step: {about(share)} of the critical path"
    return Seen(seen, sent, share=share, effect=Effect(scaled(sent, 0.0)))


@finding(
    "backward-twice",
    "a node of the backward pass runs twice in a step",
    "two evaluate_function slices with the same sequence number in a step",
    "The backward pass goes through the same nodes more than once, for example because each of several losses has its own "
    "backward() call.",
    "Add the losses and call backward() once: (a + b).backward(), without retain_graph.",
)
def _backward_twice(trace: Trace, facts: Facts) -> Seen | None:
    path, slices = facts.critical_path, trace.slices
    nodes = trace.ops.where(trace.ops.is_named(lambda name: name.startswith(BACKWARD)) & (slices.node[trace.ops.at] != NO_NODE))
    step = trace.step_at(nodes.start_ns)
    fine = (step >= 0) & ~nodes.is_named(lambda name: "AccumulateGrad" in name)
    nodes, step = nodes.where(fine), step[fine]
    if path is None or not len(nodes):
        return None
    thread = slices.forward_thread[nodes.at].astype(np.int64)
    order, starts = grouped(step, thread, slices.node[nodes.at], nodes.name)
    times = np.diff(np.append(starts, len(nodes)))
    first = np.zeros(len(nodes), bool)
    first[order[starts]] = True
    again = nodes.where(~first)
    if len(again) < FEWEST_AGAIN * max(len(facts.steps), 1):
        return None
    share = path.explained_us(Rows(slices, outermost(slices, again.at))) / path.window_us
    seen = f"{len(again) / max(len(facts.steps), 1):.0f} of {len(nodes) / max(len(facts.steps), 1):.0f} nodes per step run again"
    if (often := median(times[times > 1])) < AS_OF_A_JACOBIAN:
        return Seen(seen, again, share=share, effect=Effect(dropped(again)))
    return Seen(f"{seen}, most of these {often:.0f} times", again, ONE_BY_ONE, share, Effect(dropped(again), kind=ONCE))


@finding(
    "many-backward-passes",
    "several forward and backward passes, one after the other, in each step",
    "evaluate_function again and again in a step, with ops of the forward pass in between",
    "Each step runs the forward and backward pass several times, for example once for each sample or for each part of a batch.",
    "If the weights stay the same between the passes, none needs what another one made, and all parts fit into memory together, "
    "run them as one batch; for the gradients of each sample, use torch.func.vmap over torch.func.grad.",
)
def _many_backward_passes(trace: Trace, facts: Facts) -> Seen | None:
    """Where an optimizer steps after each pass, they are steps of training, whatever the trace marks; where something else is
    changed in place between them, it may be the weights.
    """
    path = facts.critical_path
    found, again = trace.passes, trace.passes.is_again
    if path is None or not facts.steps:
        return None
    passes = int(again.sum()) / len(facts.steps) + 1
    updates = int((trace.step_at(optimizer_steps(trace).start_ns) >= 0).sum()) / len(facts.steps)
    if passes < FEWEST_PASSES * max(updates, 1.0):
        return None
    union = merged(found.forward_ns[again], found.end_ns[again])
    rounds = trace.outer_ops.where(each_within_ns(trace.outer_ops.start_ns, trace.outer_ops.start_ns + 1, union) > 0)
    share = path.explained_us(rounds) / path.window_us
    if share < CONVERSIONS:
        return None
    seen = f"{passes:.0f} backward passes per step, each of {found.nodes / len(facts.steps) / passes:.0f} nodes"
    text = f"{seen}: {about(share)} of {denominator(facts)} is in all but the first"
    changed = _what_has_dimensions(
        trace, trace.outer_ops.where(trace.outer_ops.is_named(lambda name: CHANGES.match(name) is not None))
    )
    from_ns, to_ns = found.end_ns[:-1][again[1:]], found.forward_ns[again]
    between = np.searchsorted(changed.start_ns, to_ns) - np.searchsorted(changed.start_ns, from_ns)
    if 2 * (between > 0).sum() >= again.sum():
        return Seen(text, rounds, share=share, no_effect="something is changed in place between them, which may be the weights")
    # What a kernel with enough to do takes grows with the batch.
    made = trace.launched_in(rounds)
    small = made.where(made.duration_us < TOO_SHORT_US)
    effect = Effect(all_of(dropped(rounds, left_of_gpu=1.0), scaled(small, LEFT_OF_PASSES)), kind=ONCE)
    return Seen(text, rounds, share=share, effect=effect)


def _what_has_dimensions(trace: Trace, changed: Rows) -> Rows:
    """Return which of these ops change more than a number (the sum of the losses); all, where shapes were not recorded."""
    if not trace.header.get("record_shapes"):
        return changed
    lists = changed.is_named(lambda name: "_foreach_" in name or "_fused_" in name)
    return changed.where(lists | np.array([bool(shapes_of(trace.slices, row)) for row in changed.at.tolist()], bool))


@finding(
    "anomaly-detection",
    "aten::isnan after each node of the backward pass",
    "evaluate_function in the backward pass: aten::isnan, any and item in each",
    "Each gradient is searched for NaN values, as torch.autograd.set_detect_anomaly does. That mode also keeps a traceback for "
    "each op of the forward pass.",
    "Switch it off (torch.autograd.set_detect_anomaly(False), no detect_anomaly(), no such hooks) except while you debug.",
)
def _anomaly_detection(trace: Trace, facts: Facts) -> Seen | None:
    checks = trace.ops.where(trace.ops.is_named(LOOKS_FOR_NAN.__contains__))
    in_backward = trace.slices.are_named(Kind.OP, lambda name: name.startswith(BACKWARD))
    checks = checks.where(innermost(trace.slices, trace.parent, checks.at, in_backward) >= 0)
    looking = named(checks, "aten::isnan")
    nodes = int(in_backward.sum())
    checked = len(distinct(innermost(trace.slices, trace.parent, looking.at, in_backward)).values)
    if not nodes or checked < MOST_NODES_CHECKED * nodes:
        return None
    seen = f"{checked} of {nodes} nodes of the backward pass look for NaN"
    ops = trace.ops.where(trace.slices.node[trace.ops.at] != NO_NODE)
    forward = Rows(trace.slices, outermost(trace.slices, ops.at[innermost(trace.slices, trace.parent, ops.at, in_backward) < 0]))
    forward = forward.where(~in_backward[forward.at])
    lefts = LEFT_OF_TRACEBACKS if facts.has_gpu_work else (1.0, 1.0)  # on a CPU, most of an op's time is its own
    most, least = (all_of(dropped(checks), dropped(forward, left, 1.0)) for left in lefts)
    return Seen(seen, looking, share=1.0, effect=Effect(most, least))


@finding(
    "recomputation",
    "forward ops inside the backward pass",
    "below autograd::engine::evaluate_function: aten::linear, aten::layer_norm",
    "Ops of the forward pass run in the backward pass, as activation checkpointing has it, which keeps less memory.",
    "If the memory suffices, checkpoint less: fewer layers, or only what is cheap to compute again.",
)
def _recomputation(trace: Trace, facts: Facts) -> Seen | None:
    in_backward = trace.slices.are_named(Kind.OP, lambda name: name.startswith(BACKWARD))
    ops = trace.ops.where(trace.ops.is_named(FORWARD_ONLY.__contains__))
    ops = ops.where(innermost(trace.slices, trace.parent, ops.at, in_backward) >= 0)
    again = Rows(trace.slices, outermost(trace.slices, ops.at))
    again = again.where(trace.step_at(again.start_ns) >= 0) if facts.steps else again
    launched = trace.linked.where(trace.linked.op >= 0)
    launched = launched.where(_are_inside(trace, launched.op, again))
    work, all_us, of_what = launched, trace.linked.total_us, "GPU time"
    if facts.verdict == "cpu-only":
        again = again.where(_are_recorded_by_autograd(trace, again))  # else a backward pass of the program's own
        work, all_us, of_what = again, trace.steps.total_us, "the steps' time"
    if not len(work) or work.total_us < RECOMPUTED * all_us:
        return None
    often, steps = sorted(again.by_name(), key=lambda item: -len(item[1])), max(len(facts.steps), 1)
    named_ops = listed(f"{len(rows) / steps:.3g} x {name}" for name, rows in often)
    seen = f"in the backward pass{' of each step' * (steps > 1)}: {named_ops}; {about(work.total_us / all_us)} of {of_what}"
    node = innermost(trace.slices, trace.parent, again.at, in_backward)
    if kept := _kept_less(trace, again, node):
        seen += f"; else about {human_bytes(kept)} more would be kept for the backward pass"
    last_ns = np.zeros(len(trace.slices), np.int64)
    np.maximum.at(last_ns, node, again.end_ns)
    # Up to the last of them, other ops and Python run again, too.
    first_parts = Rows(trace.slices, once(node), end_ns=last_ns[once(node)])
    return Seen(seen, work, effect=Effect(dropped(first_parts), dropped(again)))


def _are_recorded_by_autograd(trace: Trace, ops: Rows) -> np.ndarray:
    """For each op, whether it or one inside of it makes a node."""
    is_one = np.zeros(len(trace.slices), bool)
    is_one[ops.at] = True
    makers = trace.ops.at[trace.slices.node[trace.ops.at] != NO_NODE]
    around = itself_or_innermost(trace.slices, trace.parent, makers, is_one)
    return among(ops.at, once(around[around >= 0]))


def _kept_less(trace: Trace, again: Rows, node: np.ndarray) -> int:
    """Return the bytes that recomputation saves, where allocations were recorded: what each node of the backward pass has
    allocated when it has computed again, all together, but for the largest, as one is there at a time.
    """
    memory = trace.memory
    if not len(memory):
        return 0
    kinds = np.array([kind for kind, _ in memory.devices])
    on_device = (kinds == kinds.max())[memory.device]  # the GPUs, where there are any
    at_ns, total = memory.at_ns[on_device], np.append(0, np.cumsum(memory.bytes[on_device]))
    starts, ends = [], []
    for (at,), rows in again.by(node):
        starts.append(int(trace.slices.start_ns[at]))
        ends.append(int(rows.end_ns.max()))
    grown = total[np.searchsorted(at_ns, ends, "right")] - total[np.searchsorted(at_ns, starts)]
    return max(int(grown.sum()) // max(len(trace.steps), 1) - int(grown.max()), 0)


def _are_inside(trace: Trace, rows: np.ndarray, around: Rows) -> np.ndarray:
    """For each of these rows, whether it is one of the others or inside one of them."""
    marked = np.zeros(len(trace.slices), bool)
    marked[around.at] = True
    return marked[rows] | (innermost(trace.slices, trace.parent, rows, marked) >= 0)


@finding(
    "cache-growing-by-cat",
    "aten::cat takes longer each time",
    "the growing durations of the CatArrayBatchedCopy kernels (without a GPU: of aten::cat)",
    "These concatenations grow. To add a little, each one probably copies everything that was kept so far into new memory.",
    "Write into preallocated memory (a static cache, index_copy_), or keep a list and concatenate once.",
)
def _cache_by_cat(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if facts.verdict == "cpu-only":
        return _cats_on_the_cpu(trace, facts)
    every = trace.linked.where(trace.linked.is_named(lambda name: "CatArray" in name))
    # Those of one op of a thread: a stack, or a step of the backward pass, may cat other things.
    around = np.where(every.op >= 0, trace.parent[every.op], -1)
    around = np.where(around >= 0, trace.slices.name[around], -1)
    groups = (rows for _, rows in every.by(around, np.where(every.call >= 0, trace.slices.track[every.call], -1)))
    growing = [rows.at for rows in groups if _grow_in_a_step(rows) or _one_goes_into_the_next(trace, rows)]
    if path is None or not growing:
        return None
    rows = every.where(among(every.at, np.concatenate(growing)))
    if path.explained_us(rows) < CONVERSIONS * path.window_us:
        return None
    first_us, last_us = float(rows.duration_us[0]), float(rows.duration_us.max())
    words = f"{a_step(len(rows), facts, 'cat', 'cats')}: {about(path.explained_us(rows) / path.window_us)} of the critical path"
    return Seen(f"{words}; the first takes {us(first_us)}, the longest {us(last_us)}", rows, effect=Effect(unlaunched(rows)))


def _cats_on_the_cpu(trace: Trace, facts: Facts) -> Seen | None:
    """Return the same without a GPU: the ops themselves."""
    path, ops = facts.critical_path, named(trace.ops, "aten::cat")
    ops = Rows(trace.slices, ops.at, op=ops.at, step=trace.step_at(ops.start_ns))
    ops = ops.where(ops.step >= 0)
    kinds = np.array([_kind_of_list(op.detail) for op in ops], np.int64)
    growing = [rows.at for _, rows in ops.by(kinds) if _grow_in_a_step(rows) or _one_goes_into_the_next(trace, rows)]
    if path is None or not growing:
        return None
    ops = ops.where(among(ops.at, np.concatenate(growing)))
    share = path.explained_us(ops) / path.window_us
    if share < CONVERSIONS:
        return None
    words = f"{a_step(len(ops), facts, 'cat', 'cats')}: {about(share)} of the steps' time"
    seen = f"{words}; the first takes {us(float(ops.duration_us[0]))}, the longest {us(float(ops.duration_us.max()))}"
    return Seen(seen, ops, share=share, effect=Effect(with_what_is_freed(trace, ops)))


def _kind_of_list(detail: Any) -> int:
    """Return a number for the tensors of a list, by their rank and last dimension: those of one cache are alike. 0: not known."""
    dims = detail.dims[0] if isinstance(detail, Inputs) and isinstance(detail.dims, tuple) and detail.dims else None
    first = dims[0] if isinstance(dims, tuple) and dims else None
    if not isinstance(first, tuple) or not first or not isinstance(first[-1], int):
        return 0
    return len(first) + 100 * (abs(first[-1]) % 2**40)


def _grow_in_a_step(rows: Rows) -> bool:
    """Return whether the calls of a step become longer and longer: almost every one, up to twice the first's time and more."""
    for (step,), row in rows.by(rows.step):
        times = row.duration_us
        if step >= 0 and len(row) >= FEWEST_CATS and times[-1] > 2 * times[0] and (np.diff(times) > 0).mean() >= GROWING:
            return True
    return False


def _one_goes_into_the_next(trace: Trace, rows: Rows) -> bool:
    """Return whether, by the recorded shapes, the first input of most calls is as large as what an earlier call gave."""
    ops = Rows(trace.slices, distinct(rows.op[rows.op >= 0]).values)
    made, grown = set(), 0
    for op in ops:
        dims = op.detail.dims[0] if isinstance(op.detail, Inputs) and isinstance(op.detail.dims, tuple) and op.detail.dims else ()
        shapes = [shape for shape in dims if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)] if dims else []
        sizes = [math.prod(shape) for shape in shapes]
        if len(sizes) >= 2:
            grown += sizes[0] in made and sizes[0] > sum(sizes) / 2
            made.add(sum(sizes))
    return len(ops) >= FEWEST_CATS and grown > len(ops) / 2


@finding(
    "profiler-buffer",
    "an Activity Buffer Request",
    "the overhead lane, before the first kernel",
    "The profiler requested memory for its own records; the program may pause meanwhile.",
    "Ignore this time, and give the schedule a wait and a warmup step.",
)
def _profiler_buffer(trace: Trace, facts: Facts) -> Seen | None:
    buffers = named(trace.overheads, "Activity Buffer Request")
    seen = f"{count(len(buffers), 'Activity Buffer Request')}, {us(buffers.total_us)} in total"
    return Seen(seen, buffers) if len(buffers) else None
