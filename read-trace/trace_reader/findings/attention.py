"""Attention, written out or fused."""

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, all_of, dropped, scaled, unlaunched
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of, tensors_known
from trace_reader.findings.registry import Seen, a_step, calls_of, finding, lies_inside, listed, named
from trace_reader.findings.verdict import denominator
from trace_reader.link.intervals import merged
from trace_reader.link.nesting import innermost, outermost, self_us
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct, median
from trace_reader.model.slices import Kind
from trace_reader.names.kernel_names import FUSED_ATTENTION, decode_name
from trace_reader.names.op_names import BATCHED_GEMM_OPS, VIEW_OPS
from trace_reader.names.range_names import is_loader
from trace_reader.units import about, count, us

ATTENTION = "aten::scaled_dot_product_attention"
HALVES = frozenset(["c10::BFloat16", "c10::Half"])
LEFT_OF_FLOAT32 = 0.1, 0.4  # of the GPU's time of an attention, in 16 bits
SOFTMAX_FOR_MASKED_ROWS = "aten::_safe_softmax"
SOFTMAX = frozenset(["aten::_softmax", SOFTMAX_FOR_MASKED_ROWS, "aten::softmax"])

BUILD_ONCE = "Build the mask once, outside the step, on the GPU."
COMBINING = frozenset(["aten::eq", "aten::__and__", "aten::bitwise_and", "aten::logical_and"])
NEAR = 8  # kernels: a scale, a mask and conversions stand between a GEMM and a softmax
FAR_ABOVE = 10  # times the median call of an op
MIN_SHARE_OF_PATH = 0.05  # of the path
OTHER_BACKEND = (
    "Try another attention backend (torch.backends.cuda.enable_cudnn_sdp(False)), or a cache of fixed length. cuDNN may make a "
    "new plan for each new length, such as that of a growing cache."
)
OPAQUE_SHARE = 0.2  # of a step's CPU time
SOON = 16  # ops without views: the product with the values and that of the output stand between a softmax and the weights' mean
NEED_NO_WEIGHTS = (
    "Pass need_weights=False to nn.MultiheadAttention, if nobody reads the weights that it returns: it then calls "
    "F.scaled_dot_product_attention, which is fused."
)


@finding(
    "mask-rebuilt",
    "ones, tril and where in every step",
    "the ops before the first GEMM",
    "tril or triu runs at least as often as there are steps: the causal mask is probably built again in each call.",
    "Build the mask once, outside the step, or use an attention backend that needs none (flash, efficient, cudnn).",
)
def _mask_rebuilt(trace: Trace, facts: Facts) -> Seen | None:
    tril = next((op for op in facts.ops if op.name in ("aten::tril", "aten::triu")), None)
    if tril is None or not facts.steps:
        return None
    triangles = named(trace.ops, tril.name)
    in_a_step = trace.step_at(triangles.start_ns) >= 0
    # A factor of a matrix is a triangle, too.
    triangles = triangles.where(in_a_step & ~lies_inside(trace, triangles, r"^aten::linalg_"))
    if len(triangles) < len(facts.steps):
        return None
    makers = ("aten::ones", "aten::scalar_tensor", "aten::where", "aten::fill_")
    others = listed(sorted(op.name for op in facts.ops if op.name in makers), 4) or "none"
    seen = f"{tril.name} runs {count(len(triangles), 'time')} in {count(len(facts.steps), 'step')}; other mask ops: {others}"
    launched = trace.linked.where(trace.linked.op >= 0)
    rows = launched.where(among(launched.op, triangles.at))
    made = Rows(trace.slices, np.sort(np.concatenate([triangles.at, named(trace.ops, *makers).at])))
    if len(rows):
        not_only_causal = any(op.name in COMBINING for op in facts.ops)
        return Seen(seen, rows, BUILD_ONCE if not_only_causal else "", effect=Effect(dropped(made), dropped(triangles)))
    sent = _sent(trace, tril.name)
    seen += f"; made on the CPU, then sent to the GPU ({a_step(len(sent), facts, 'copy', 'copies')})" if len(sent) else ""
    every = Rows(trace.slices, np.sort(np.concatenate([made.at, sent.at])))
    return Seen(seen, every, BUILD_ONCE, effect=Effect(dropped(every), dropped(triangles)))


def _sent(trace: Trace, maker: str) -> Rows:
    """Return the ops right after such a maker, on its thread, that bring what it made to another device."""
    outer = Rows(trace.slices, outermost(trace.slices, trace.ops.at))
    after = outer.is_named("aten::to".__eq__)[1:] & outer.is_named(maker.__eq__)[:-1] & (outer.track[1:] == outer.track[:-1])
    marked = np.zeros(len(trace.slices), bool)
    marked[outer.at[np.append(False, after)]] = True
    calls = innermost(trace.slices, trace.parent, trace.linked.call[trace.linked.call >= 0], marked)
    return Rows(trace.slices, distinct(calls[calls >= 0]).values.astype(np.int64))


@finding(
    "safe-softmax",
    "a softmax with several kernels",
    "below aten::_safe_softmax",
    "This softmax returns 0, not NaN, for fully masked rows, at the price of extra kernels.",
    "Use a fused attention backend, which computes the softmax inside its own kernel.",
)
def _safe_softmax(trace: Trace, facts: Facts) -> Seen | None:
    ops = named(trace.ops, SOFTMAX_FOR_MASKED_ROWS)
    if not len(ops):
        return None
    is_softmax = trace.slices.are_named(Kind.OP, SOFTMAX_FOR_MASKED_ROWS.__eq__)
    launched = trace.linked.where(trace.linked.call >= 0)
    inside = launched.where(innermost(trace.slices, trace.parent, launched.call, is_softmax) >= 0)
    seen = f"{SOFTMAX_FOR_MASKED_ROWS} runs {count(len(ops), 'time')}"
    if len(inside):
        each = count(round(len(inside) / len(ops)), "kernel")
        seen += f", with {each} and {us(inside.total_us / len(ops))} of GPU time each time"
    return Seen(seen, inside if len(inside) else ops)


@finding(
    "unfused-attention",
    "a softmax between two GEMMs",
    "the GPU's lane, in an attention",
    "This looks like attention that is not fused: its scores, [seq, seq] per head, go through memory between kernels.",
    "Use F.scaled_dot_product_attention with a fused backend (flash, efficient or cudnn).",
)
def _unfused_attention(trace: Trace, facts: Facts) -> Seen | None:
    if not facts.steps or any(k.decoded.is_fused_attention for k in facts.compute_kernels):
        return None
    gemms = sum(k.calls for k in facts.compute_kernels if k.decoded.is_gemm)
    softmaxes = sum(k.calls for k in facts.compute_kernels if k.decoded.is_softmax)
    if not softmaxes:
        return None
    work = trace.linked
    is_gemm = work.is_named(lambda name: decode_name(name).is_gemm)
    if gemms == 2 * softmaxes:
        each = sum(k.calls for k in facts.compute_kernels) // softmaxes
        rest = f", a softmax and {each - 3} more" if each > 3 else " and a softmax"
        own = work.where(~work.is_named(lambda name: "HtoD" in name or "DtoH" in name))
        effect = _fused(trace, own, _around_softmaxes(work, is_gemm))
        seen = f"{each} kernels per softmax: 2 GEMMs{rest}"
        return and_mean_of_heads(trace, facts, Seen(seen, work.where(work.kind == Kind.KERNEL), effect=effect))
    # A model has other GEMMs, too. Those of attention are batched, and stand on both sides of a softmax.
    batched = among(work.op, trace.ops.at[trace.ops.is_named(BATCHED_GEMM_OPS.__contains__)])
    part = _around_softmaxes(work, is_gemm & batched)
    if not len(part):
        return None
    share = part.total_us / trace.linked.total_us
    n = int(part.is_named(lambda name: decode_name(name).is_softmax).sum())
    seen = f"{a_step(n, facts, 'softmax', 'softmaxes')} between batched GEMMs; with these, {share:.0%} of GPU time"
    return and_mean_of_heads(trace, facts, Seen(seen, part, effect=_fused(trace, part, part)))


def and_mean_of_heads(trace: Trace, facts: Facts, seen: Seen) -> Seen:
    """Return what was seen of an attention in parts, with the mean over the heads of its weights, where that follows: by shapes,
    the mean of [batch, heads, seq, seq] soon after a softmax of as many numbers, as nn.MultiheadAttention takes it.
    """
    ops, means = trace.outer_ops.where(~trace.outer_ops.is_named(VIEW_OPS.__contains__)), list[int]()
    for at in np.flatnonzero(ops.is_named("aten::mean".__eq__)).tolist():
        before = ops.at[max(at - SOON, 0) : at]
        softmaxes = before[Rows(trace.slices, before).is_named(SOFTMAX.__contains__)].tolist()
        weights = next(iter(shapes_of(trace.slices, int(ops.at[at]))), ())
        made = [next(iter(shapes_of(trace.slices, softmax)), ()) for softmax in softmaxes]
        if len(weights) == 4 and any(np.prod(shape) == np.prod(weights) for shape in made if len(shape) > 1):
            means.append(int(ops.at[at]))
    if not means or seen.effect is None:
        return seen
    mean = Rows(trace.slices, np.array(means))
    text = f"{seen.text}; then {a_step(len(means), facts, 'mean', 'means')} of weights over the heads"
    effect = msgspec.structs.replace(seen.effect, most=all_of(seen.effect.most, dropped(mean)))
    return msgspec.structs.replace(seen, text=text, next=NEED_NO_WEIGHTS, effect=effect)


def _around_softmaxes(work: Rows, is_gemm: np.ndarray) -> Rows:
    """Return the GPU's work from a GEMM to the next one, where a softmax stands between them, near both."""
    softmax = np.flatnonzero(work.is_named(lambda name: decode_name(name).is_softmax))
    places = np.flatnonzero(is_gemm)
    if not len(places):
        return work.where(is_gemm)
    after = np.searchsorted(places, softmax)
    before, later = places[np.maximum(after - 1, 0)], places[np.minimum(after, len(places) - 1)]
    between = (after > 0) & (after < len(places)) & (softmax - before <= NEAR) & (later - softmax <= NEAR)
    spans = zip(before[between].tolist(), later[between].tolist(), strict=True)
    found = [np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in spans)]
    return work.where(distinct(np.concatenate(found)).values)


def _fused(trace: Trace, work: Rows, between: Rows) -> Effect:
    """Return what one kernel makes of an attention's work: it surely takes no longer than the GEMMs, and at best a quarter of
    that; of GEMMs on CUDA cores, which it brings to tensor cores, a twentieth. The ops that launch what is `between` are gone.
    """
    is_gemm = work.is_named(lambda name: decode_name(name).is_gemm)
    gemms, rest = work.where(is_gemm), unlaunched(work.where(~is_gemm))
    on_cuda_cores = gemms.is_named(lambda name: decode_name(name).unit == "CUDA cores")
    faster = scaled(gemms, np.where(on_cuda_cores, 0.05, 0.25))
    inner = between.where(~between.is_named(lambda name: decode_name(name).is_gemm))
    return Effect(all_of(faster, rest, dropped(_ops_only_of(trace, inner))), rest, REPLACED)


def _ops_only_of(trace: Trace, work: Rows) -> Rows:
    """Return the outermost ops that launched some of this work, and no other."""
    found = [np.empty(0, np.int64)]
    linked = trace.linked.where(trace.linked.op >= 0)
    launching, is_of_work = Rows(trace.slices, linked.op), among(linked.at, work.at)
    for (track,), outer in trace.outer_ops.by(trace.outer_ops.track):
        place = np.searchsorted(outer.start_ns, launching.start_ns, "right") - 1
        inside = (launching.track == track) & (place >= 0) & (launching.end_ns <= outer.end_ns[place])
        of_work, of_other = (distinct(place[inside & mask]).values for mask in (is_of_work, ~is_of_work))
        found.append(outer.at[np.setdiff1d(of_work, of_other)])
    return Rows(trace.slices, np.sort(np.concatenate(found)))


@finding(
    "fused-attention",
    "one kernel where unfused attention has many",
    "the kernel's name: fmha, flash, cudnn",
    "A fused kernel computes attention tile by tile; the score matrix stays on the chip.",
    "Compare the backends: which is fastest depends on the GPU and the shape.",
    trivia=True,
)
def _fused_attention(trace: Trace, facts: Facts) -> Seen | None:
    k = next((k for k in facts.compute_kernels if k.decoded.is_fused_attention), None)
    if k is None:
        return None
    d = k.decoded
    library = FUSED_ATTENTION[d.library] + (", as built into PyTorch" if "pytorch_flash" in k.name else "")
    said = (("for", d.architecture), ("in", d.dtype), ("tile", d.tile), ("variant", d.knob))
    words = "".join(f", {word} {value}" for word, value in said if value)
    return Seen(f"{d.label} ({library}): {us(k.median_us)} per call{words}", calls_of(trace, k))


@finding(
    "attention-in-float32",
    "attention in float32 in a model of 16 bits",
    "the types of the inputs of aten::scaled_dot_product_attention, beside those of aten::linear",
    "The layers have weights of 16 bits, but queries, keys and values are float32. A float32 tensor that is multiplied with them "
    "or added to them (rotary tables, a scale) may make them so.",
    "Give what makes them float32 the model's type (rotary tables, for instance), or cast queries, keys and values back before "
    "attention. The kernels for 16 bits are several times as fast.",
    source="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.dtype",
)
def _attention_in_float32(trace: Trace, facts: Facts) -> Seen | None:
    path, outer = facts.critical_path, trace.outer_ops
    attention = outer.where(outer.is_named(ATTENTION.__eq__))
    if path is None or not len(attention):
        return None
    is_float = np.array([_types(trace, row)[:3] == ["float"] * 3 for row in attention.at.tolist()])
    layers = outer.where(outer.is_named("aten::linear".__eq__))
    is_half = np.array([_is_of_halves(_types(trace, row)) for row in layers.at.tolist()], bool)
    # The layer that may have made its inputs: the one before it in its step, on its thread.
    before = np.searchsorted(layers.at, attention.at) - 1
    is_half = (before >= 0) & np.append(is_half, False)[before]
    for key_of in (lambda rows: rows.track, lambda rows: trace.step_at(rows.start_ns)):
        is_half &= np.append(key_of(layers), -1)[before] == key_of(attention)
    found = attention.where(is_float & is_half)
    work = trace.launched_in(found)
    if not len(work):
        return None
    share = path.explained_us(work) / path.window_us
    if share < MIN_SHARE_OF_PATH:
        return None
    seen = f"{a_step(len(found), facts, 'attention', 'attentions')} of float32 inputs, in a model whose layers have 16 bits"
    most, least = (dropped(found, 1.0, left) for left in LEFT_OF_FLOAT32)
    effect = Effect(most, least, REPLACED)
    return Seen(f"{seen}: {about(share)} of {denominator(facts)}", found, share=share, effect=effect)


def _is_of_halves(types: list[str]) -> bool:
    """Return whether a layer's input and weight have 16 bits."""
    return len(types) > 1 and set(types[:2]) <= HALVES


def _types(trace: Trace, row: int) -> list[str]:
    return [tensor.type for tensor in tensors_known(trace.slices, row)]


@finding(
    "opaque-op",
    "an op with high self CPU time and few or no children",
    "the op's self CPU time in the table",
    "The op spends this CPU time where the trace records nothing. A library may be choosing and preparing its kernel.",
    "If the GPU waits for this op, use a CPU profiler such as perf to see inside it; with_stack does not reach inside it.",
)
def _opaque_op(trace: Trace, facts: Facts) -> Seen | None:
    step = facts.usual_step
    fused = trace.linked.is_named(lambda name: decode_name(name).is_fused_attention) & (trace.linked.op >= 0)
    ops = Rows(trace.slices, distinct(trace.linked.op[fused]).values)
    for name, calls in sorted(ops.by_name()):
        inside = calls.where(trace.step_at(calls.start_ns) >= 0)
        own_us = float(self_us(trace.slices, trace.parent, inside.at).sum()) / max(len(facts.steps), 1)
        if step and step.cpu_us and own_us >= OPAQUE_SHARE * step.cpu_us:
            total_us = inside.total_us / len(facts.steps)
            if (slow := _slow_call(trace, facts)) and slow.evidence[0].name == name:
                return None
            seen = f"{name}: {us(own_us)} of its {us(total_us)} per step are self time, "
            return Seen(seen + f"{own_us / step.cpu_us:.0%} of {step.name}'s CPU time", calls)
    return None


@finding(
    "slow-call",
    "a few calls of an op take many times as long as the others",
    "the longest slices of an op that runs often",
    "These calls have far more self time than the other calls of this op, and the trace records nothing in it. A library may "
    "plan, load or compile something for inputs that are new to it.",
    "Record again with the same shapes: if the slow calls are gone, new shapes caused them. Then pad to lengths that recur.",
)
def _slow_call(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None:
        return None
    # What an op takes itself depends on its tensors' sizes where it computes, and not where it launches.
    launching = distinct(trace.linked.op[(trace.linked.op >= 0) & (trace.linked.step >= 0)]).values.astype(np.int64)
    loading = trace.slices.are_named(Kind.ANNOTATION, is_loader)
    launching = launching[innermost(trace.slices, trace.parent, launching, loading) < 0]
    every = Rows(trace.slices, launching, own_us=self_us(trace.slices, trace.parent, launching))
    most, usual_us, calls = None, 0.0, 0
    for _, rows in every.by_name():
        middle_us = float(np.sort(rows.own_us)[(len(rows) - 1) // 2])
        slow = rows.where(rows.own_us >= FAR_ABOVE * max(middle_us, 1.0))
        if len(slow) and (most is None or slow.own_us.sum() > most.own_us.sum()):
            most, usual_us, calls = slow, middle_us, len(rows)
    if most is None:
        return None
    slow = Rows(trace.slices, most.at, own_us=most.own_us)
    share = path.explained_us(slow) / path.window_us
    if share < MIN_SHARE_OF_PATH:
        return None
    take = f"takes {us(float(slow.own_us[0]))} itself" if len(slow) == 1 else f"take {us(median(slow.own_us))} each themselves"
    seen = f"{len(slow)} of {calls} calls of {slow[0].name} {take}, the others {us(usual_us)}"
    seen += f": {about(share)} of {denominator(facts)}"
    planned = "cudnn_attention" in slow[0].name
    left = len(slow) * usual_us / float(slow.own_us.sum())
    effect = Effect(lambda run: run.skip(merged(slow.start_ns, slow.end_ns), left))
    return Seen(seen, slow, OTHER_BACKEND if planned else "", share, effect)
