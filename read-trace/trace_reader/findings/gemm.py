"""Matrix products: what is fused into them, their tiles, and the units that they run on."""

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.kernel_facts import product_cost
from trace_reader.findings.memory_traffic import bias_copies
from trace_reader.findings.registry import Seen, calls_of, finding, listed
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Inputs
from trace_reader.names.devices import peak
from trace_reader.names.op_names import GEMM_OPS
from trace_reader.units import us

WORTH_TELLING = 0.05  # of the GPU's time
FAR = 4  # times the floor
NOT_IN_CACHE = 2e8  # bytes: an L2 cache holds some 100 MB at most


@finding(
    "epilogue-bias",
    "a bias is added, and there is no add op",
    "the GEMM's name: bias",
    "The library adds the bias itself, usually in the GEMM's epilogue.",
    "Leave it as it is: there is no separate add to fuse.",
    trivia=True,
)
def _epilogue_bias(trace: Trace, facts: Facts) -> Seen | None:
    for k in facts.compute_kernels:
        if k.decoded.is_gemm and "bias" in (k.decoded.epilogue or ""):
            return Seen(f"{k.decoded.label} names a bias in its epilogue ({k.decoded.epilogue})", calls_of(trace, k))
    gemm = next((k for k in facts.compute_kernels if k.decoded.is_gemm and k.op == "aten::addmm"), None)
    if gemm and not len(bias_copies(trace)) and not any(op.name == "aten::add" for op in facts.ops):
        return Seen(
            f"aten::addmm launches {gemm.decoded.label}; the trace has no copy of the bias and no aten::add",
            calls_of(trace, gemm),
        )
    return None


@finding(
    "two-gemm-tiles",
    "GEMMs of equal FLOP take different times",
    "the tile in the GEMM's name",
    "The library chose kernels with different tiles, usually by the shape.",
    "Compare the shapes (--record_shapes) and the time of each.",
    trivia=True,
)
def _two_gemm_tiles(trace: Trace, facts: Facts) -> Seen | None:
    gemms = [k for k in facts.compute_kernels if k.decoded.is_gemm and k.decoded.tile]
    tiles = sorted({k.decoded.tile for k in gemms if k.decoded.tile})
    return Seen(f"the GEMMs have the tiles {listed(tiles, 4)}", calls_of(trace, *gemms)) if len(tiles) > 1 else None


@finding(
    "fp32-cuda-cores",
    "a GEMM is far slower than its FLOP count explains",
    "the GEMM's name: sgemm, f32f32, ffma",
    "A GEMM or convolution runs in fp32 on CUDA cores. Tensor cores (bf16, fp16, tf32) are much faster, where the GPU has them.",
    "Use bf16, or allow tf32: torch.set_float32_matmul_precision('high').",
)
def _fp32_cuda_cores(trace: Trace, facts: Facts) -> Seen | None:
    slow = [k for k in facts.compute_kernels if k.decoded.unit == "CUDA cores" and k.decoded.dtype == "fp32"]
    share = sum(k.share for k in slow)
    if share < WORTH_TELLING:
        return None
    seen = f"{listed(dict.fromkeys(k.decoded.label for k in slow))}: {share:.0%} of GPU time"
    major = (facts.device_properties or {}).get("computeMajor")
    next = ""
    if isinstance(major, int) and major < 8:
        next = "Use fp16: this GPU's tensor cores take neither bf16 nor tf32." if major >= 7 else "This GPU has no tensor cores."
    return Seen(seen, calls_of(trace, *slow), next)


@finding(
    "far-from-the-floor",
    "matrix products with few rows, step after step",
    "the products' shapes (--record_shapes): small m, large n and k",
    "Memory bandwidth sets the lower bound per step: weight bytes / peak GB/s. These steps take at least 4 times as long.",
    "Follow the verdict first; then use a larger batch, kernels for few rows, or 8-bit weights.",
)
def _far_from_the_floor(trace: Trace, facts: Facts) -> Seen | None:
    period_us = facts.step_period_us or (facts.critical_path.window_us if facts.critical_path and len(facts.steps) == 1 else None)
    gb_per_s = peak(facts.device or "", "memory")
    if period_us is None or gb_per_s is None:
        return None
    slices = trace.slices
    launched = trace.linked.where((trace.linked.op >= 0) & (trace.linked.step >= 0))
    launched = launched.where(slices.is_named(launched.op, GEMM_OPS.__contains__))
    ops = Rows(slices, distinct(launched.op).values)
    weights, flop_us = 0, 0.0
    for (number,), same in ops.by(ops.detail):
        found = slices.details[number] if number >= 0 else None
        cost = product_cost(found) if isinstance(found, Inputs) else None
        if cost is None:
            return None
        weights += len(same) * cost.weight_bytes
        flop_us += len(same) * cost.flop / (peak(facts.device or "", cost.dtype) or float("inf")) / 1e6
    floor_us, each = weights / gb_per_s / 1e3 / len(facts.steps), weights / len(facts.steps)
    if each < NOT_IN_CACHE or flop_us / len(facts.steps) > floor_us or period_us < FAR * floor_us:
        return None
    seen = (
        f"{each / 1e9:.2f} GB of weights (the products' second matrices) per step need {us(floor_us)} at the published "
        f"{gb_per_s:,.0f} GB/s; a step takes {us(period_us)}, {period_us / floor_us:.0f} times as long"
    )
    return Seen(seen, launched, share=0.0)
