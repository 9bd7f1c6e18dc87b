"""Attention, written out or fused."""

import numpy as np
from trace_reader.analysis.facts import Facts
from trace_reader.findings.registry import Seen, a_step, calls_of, finding, listed, named
from trace_reader.link.nesting import innermost, self_us
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Kind
from trace_reader.names.kernel_names import decode_name
from trace_reader.units import count, us

SOFTMAX_FOR_MASKED_ROWS = "aten::_safe_softmax"

BATCHED_GEMM_OPS = ("aten::bmm", "aten::baddbmm")
NEAR = 8  # kernels: a scale, a mask and conversions stand between a GEMM and a softmax
OPAQUE_SHARE = 0.2  # of a step's CPU time
LIBRARIES = {  # of fused attention
    "FlashAttention": "FlashAttention",
    "memory-efficient attention": "xFormers' memory-efficient attention, on CUTLASS, in PyTorch",
    "cuDNN attention": "cuDNN, which generated it",
}


@finding(
    "mask-rebuilt",
    "ones, tril and where in every step",
    "the ops before the first GEMM",
    "The causal mask is made anew in every call.",
    "Build it once outside, or use a backend that needs none (flash, efficient, cudnn).",
)
def _mask_rebuilt(trace: Trace, facts: Facts) -> Seen | None:
    tril = next((op for op in facts.ops if op.name in ("aten::tril", "aten::triu")), None)
    if tril is None or not facts.steps or tril.calls < len(facts.steps):
        return None
    makers = ("aten::ones", "aten::scalar_tensor", "aten::where", "aten::fill_")
    others = listed(sorted(op.name for op in facts.ops if op.name in makers), 4) or "nothing else"
    seen = f"{tril.name} {count(tril.calls, 'time')} in {count(len(facts.steps), 'step')}, beside {others}"
    launched = trace.linked.where(trace.linked.op >= 0)
    return Seen(seen, launched.where(np.isin(launched.op, named(trace.ops, tril.name).at)))


@finding(
    "safe-softmax",
    "a softmax with several kernels",
    "below aten::_safe_softmax",
    "A softmax that returns 0, not NaN, for fully masked rows, at the price of extra kernels.",
    "Fused attention backends do the same inside their one kernel.",
)
def _safe_softmax(trace: Trace, facts: Facts) -> Seen | None:
    ops = named(trace.ops, SOFTMAX_FOR_MASKED_ROWS)
    if not len(ops):
        return None
    is_softmax = trace.slices.are_named(Kind.OP, SOFTMAX_FOR_MASKED_ROWS.__eq__)
    launched = trace.linked.where(trace.linked.call >= 0)
    inside = launched.where(innermost(trace.slices, trace.parent, launched.call, is_softmax) >= 0)
    seen = f"{SOFTMAX_FOR_MASKED_ROWS} {count(len(ops), 'time')}"
    if len(inside):
        each = count(round(len(inside) / len(ops)), "kernel")
        seen += f"; {each} and {us(inside.total_us / len(ops))} on the GPU each time"
    return Seen(seen, inside if len(inside) else ops)


@finding(
    "unfused-attention",
    "a softmax between two GEMMs",
    "the GPU's lane, in an attention",
    "Attention written out: between these kernels the scores, [seq, seq] for each head, go through memory.",
    "One fused kernel keeps them on the chip: F.scaled_dot_product_attention with flash, efficient or cudnn.",
)
def _unfused_attention(trace: Trace, facts: Facts) -> Seen | None:
    if not facts.steps or any(k.decoded.is_fused_attention for k in facts.compute_kernels):
        return None
    gemms = sum(k.calls for k in facts.compute_kernels if k.decoded.is_gemm)
    softmaxes = sum(k.calls for k in facts.compute_kernels if k.decoded.is_softmax)
    if not softmaxes:
        return None
    if gemms == 2 * softmaxes:
        each = sum(k.calls for k in facts.compute_kernels) // softmaxes
        rest = f", a softmax and {each - 3} more" if each > 3 else " and a softmax"
        kernels = trace.linked.where(trace.linked.kind == Kind.KERNEL)
        return Seen(f"{each} kernels for one attention: 2 GEMMs{rest}", kernels)
    return _softmax_between_gemms(trace, facts)


def _softmax_between_gemms(trace: Trace, facts: Facts) -> Seen | None:
    """In a model, other GEMMs stand around: those of attention are batched, and next to a softmax on both sides."""
    kernels = trace.linked.where(trace.linked.kind == Kind.KERNEL)
    batched = np.isin(kernels.op, trace.ops.at[trace.ops.is_named(BATCHED_GEMM_OPS.__contains__)])
    softmax = np.flatnonzero(kernels.is_named(lambda name: decode_name(name).is_softmax))
    places = np.flatnonzero(batched & kernels.is_named(lambda name: decode_name(name).is_gemm))
    if not len(places):
        return None
    after = np.searchsorted(places, softmax)
    before, later = places[np.maximum(after - 1, 0)], places[np.minimum(after, len(places) - 1)]
    between = (after > 0) & (after < len(places)) & (softmax - before <= NEAR) & (later - softmax <= NEAR)
    if not between.any():
        return None
    spans = zip(before[between].tolist(), later[between].tolist(), strict=True)
    part = kernels.where(distinct(np.concatenate([np.arange(first, last + 1) for first, last in spans])).values)
    share = part.total_us / trace.linked.total_us
    softmaxes = a_step(int(between.sum()), facts, "softmax", "softmaxes")
    return Seen(f"{softmaxes} between two batched GEMMs: {share:.0%} of the GPU's time", part)


@finding(
    "fused-attention",
    "one kernel where attention was many",
    "the kernel's name: fmha, flash, cudnn",
    "One kernel does the whole of attention, tile by tile; the score matrix never leaves the chip.",
    "Compare the backends: each library has kernels of its own, and which is fastest depends on the GPU and the shape.",
    trivia=True,
)
def _fused_attention(trace: Trace, facts: Facts) -> Seen | None:
    k = next((k for k in facts.compute_kernels if k.decoded.is_fused_attention), None)
    if k is None:
        return None
    d = k.decoded
    library = LIBRARIES[d.family] + (", as built into PyTorch" if "pytorch_flash" in k.name else "")
    said = (("for", d.architecture), ("in", d.dtype), ("tile", d.tile), ("variant (knob)", d.knob))
    words = ", ".join(f"{word} {value}" for word, value in said if value)
    return Seen(f"{d.label}: of {library}; {words}; {us(k.median_us)} a call", calls_of(trace, k))


@finding(
    "opaque-op",
    "an op takes long and holds nothing",
    "self CPU time of the op in the table",
    "The CPU's time went into one op of a library, where the trace sees no further: choosing and preparing its kernel.",
    "It matters where the GPU waits for it; with_stack and the profiler's ops do not reach inside, a CPU profiler (perf) does.",
)
def _opaque_op(trace: Trace, facts: Facts) -> Seen | None:
    step = facts.middle_step
    fused = trace.linked.is_named(lambda name: decode_name(name).is_fused_attention) & (trace.linked.op >= 0)
    ops = Rows(trace.slices, distinct(trace.linked.op[fused]).values)
    for name, calls in sorted(ops.by_name()):
        inside = calls.where(trace.step_at(calls.start_ns) >= 0)
        own_us = float(self_us(trace.slices, trace.parent, inside.at).sum()) / max(len(facts.steps), 1)
        if step and own_us >= OPAQUE_SHARE * step.cpu_us:
            total_us = inside.total_us / len(facts.steps)
            seen = f"{name}: {us(own_us)} of its {us(total_us)} a step are in no op or call inside it, "
            return Seen(seen + f"{own_us / step.cpu_us:.0%} of {step.name}'s CPU time", calls)
    return None
