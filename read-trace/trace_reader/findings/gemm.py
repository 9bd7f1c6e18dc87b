"""Matrix products: what is fused into them, their tiles, and the units that they run on."""

from collections.abc import Iterator
import math
import re

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, all_of, scaled
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.kernel_facts import KernelFacts, gemm_calls, product_cost
from trace_reader.findings.fusable import of_the_optimizer
from trace_reader.findings.memory_traffic import bias_copies
from trace_reader.findings.registry import Seen, calls_of, finding, listed
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import Inputs, Kind
from trace_reader.names.devices import peak
from trace_reader.names.kernel_names import CONVERTS, decode_name
from trace_reader.names.op_names import GEMM_OPS
from trace_reader.units import count, us

BF16 = "Try bf16, by autocast: torch.autocast('cuda', torch.bfloat16)."
MIN_SHARE_OF_GPU_TIME = 0.05  # of the GPU's time
TF32 = 0.2  # of the GPU's time
UNALIGNED = re.compile(r"_align[12]\b")
NO_FLOAT32 = re.compile(r"BFloat16|Half|bf16|fp16|f16|<(?:long|int|bool)\b|[sS]ort|nccl")  # in the names of kernels
MOSTLY_PRODUCTS = 0.3  # of the GPU's time
SURELY_FASTER = 0.5  # what a matrix product takes on tensor cores, of its time on CUDA cores, at most
# GPUs whose tensor cores take neither bf16 nor tf32, by the major number of what they can compute; those of 6 have none.
OLD_GPUS = (
    (7, re.compile(r"\b(?:V100|T4|TITAN (?:V|RTX)|RTX 20\d\d|Quadro (?:GV|RTX)|GTX 16\d\d)")),
    (6, re.compile(r"\b(?:P100|P40|P4|GTX 10\d\d|TITAN X|K80|M60)")),
)  # fmt: skip
FAR = 4  # times the floor
FULL = 0.9  # of its SMs' time, at least, that tiles fill in a product which no size near it would do much better
NOT_IN_CACHE = 2e8  # bytes: an L2 cache holds some 100 MB at most


@finding(
    "epilogue-bias",
    "a bias is added, and there is no add op",
    "the GEMM's name: bias",
    "The library adds the bias itself, usually in the GEMM's epilogue.",
    "Leave it as it is: this bias needs no add of its own.",
    trivia=True,
)
def _epilogue_bias(trace: Trace, facts: Facts) -> Seen | None:
    every = trace.linked.where(trace.linked.op >= 0)
    kernels = distinct(every.where(every.kind == Kind.KERNEL).op)
    shared = kernels.values[kernels.counts > 1]  # ops that launch another kernel, too
    for k in facts.compute_kernels:
        if k.decoded.is_gemm and "bias" in (k.decoded.epilogue or "") and not among(calls_of(trace, k).op, shared).any():
            return Seen(f"{k.decoded.label} names a bias in its epilogue ({k.decoded.epilogue})", calls_of(trace, k))
    gemm = next((k for k in facts.compute_kernels if k.decoded.is_gemm and k.op == "aten::addmm"), None)
    if gemm is None:
        return None
    rows = calls_of(trace, gemm)
    every = every.where(trace.slices.are_named(Kind.OP, "aten::addmm".__eq__)[every.op])
    several = distinct(every.op).values[distinct(every.op).counts > 1]
    alone = (every.name == rows.name[0]) & ~among(every.op, several)
    if not alone.all() or len(bias_copies(trace)) or any(op.name == "aten::add" for op in facts.ops):
        return None
    return Seen(f"each aten::addmm launches {gemm.decoded.label} and nothing else; the trace has no aten::add", rows)


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
    if share < MIN_SHARE_OF_GPU_TIME:
        return None
    seen = f"{listed(dict.fromkeys(k.decoded.label for k in slow))}: {share:.0%} of GPU time"
    major = (facts.device_properties or {}).get("computeMajor")
    if not isinstance(major, int):  # by the name: a file of torch 1.8 has no more
        major = next((generation for generation, name in OLD_GPUS if name.search(facts.device or "")), 8)
    words = ""
    if major < 8:
        words = "Use fp16: this GPU's tensor cores take neither bf16 nor tf32." if major >= 7 else "This GPU has no tensor cores."
    if any(op.name == "aten::_scaled_dot_product_attention_math" for op in facts.ops) and _reads_half(facts):
        words = "Use another backend of scaled_dot_product_attention: the one written out computes in fp32 here."
    rows = calls_of(trace, *slow)
    fp32, bf16, fp16 = (peak(facts.device or "", dtype) for dtype in ("fp32", "bf16", "fp16"))
    half = bf16 or fp16
    others = trace.linked.where((trace.linked.kind == Kind.KERNEL) & ~among(trace.linked.at, rows.at))
    others = others.where(others.is_named(_may_be_of_float32) & ~of_the_optimizer(trace, others))
    # Where they are much of the GPU's work, what is left of it, but for 16 bits and integers, may move half of the bytes, too.
    rest = scaled(others, 0.5 if share >= MOSTLY_PRODUCTS else 1.0)
    best = all_of(scaled(rows, fp32 / half), rest) if fp32 and half else None
    faster = Effect(best, scaled(rows, SURELY_FASTER), REPLACED) if best else None
    return Seen(seen, rows, words, effect=faster)


def _may_be_of_float32(name: str) -> bool:
    """Return whether a kernel's name does not say that it works on 16 bits, on integers or for other ranks."""
    return NO_FLOAT32.search(name) is None


def _reads_half(facts: Facts) -> bool:
    """Return whether a kernel converts bf16 or fp16 to float32: then fp32 is not what the program asked for."""
    return any(CONVERTS.search(k.name) for k in facts.compute_kernels)


@finding(
    "tf32-products",
    "GEMMs or convolutions that read and write float32",
    "the GEMM's name: tf32",
    "These matrix products or convolutions read float32 and multiply in tf32. In bf16 or fp16, tensor cores are up to twice as "
    "fast, and kernels that then work in 16 bits move half of the bytes.",
    BF16 + " Check that the training still converges.",
)
def _tf32_products(trace: Trace, facts: Facts) -> Seen | None:
    products = [k for k in facts.compute_kernels if k.decoded.dtype == "tf32"]
    share = sum(k.share for k in products)
    if share < TF32:
        return None
    rows = calls_of(trace, *products)
    others = trace.linked.where((trace.linked.kind == Kind.KERNEL) & ~among(trace.linked.at, rows.at))
    effect = Effect(all_of(scaled(rows, 0.5), scaled(others, 0.5)), kind=REPLACED)
    words = "" if trace.has_backward else f"{BF16} Compare the results."
    return Seen(
        f"{listed(dict.fromkeys(k.decoded.label for k in products))}: {share:.0%} of GPU time", rows, words, effect=effect
    )


@finding(
    "unaligned-product",
    "a GEMM whose name ends in align1 or align2",
    "the shapes of the matrix product (--record_shapes)",
    "This kernel reads only one or two elements at a time. Perhaps a dimension of a matrix is not a multiple of 8. A kernel for "
    "aligned matrices is often several times as fast.",
    "Pad the dimension that is not a multiple of 8 to a multiple of 64 (a vocabulary of 50,257 to 50,304).",
)
def _unaligned_product(trace: Trace, facts: Facts) -> Seen | None:
    slow = unaligned(facts)
    share = sum(k.share for k in slow)
    if share < MIN_SHARE_OF_GPU_TIME:
        return None
    rows = calls_of(trace, *slow)
    seen = f"{listed(dict.fromkeys(k.decoded.label for k in slow))}: {share:.0%} of GPU time"
    odd = sorted({n for g in facts.gemms if UNALIGNED.search(g.kernel) for n in (g.m, g.n, g.k) if n % 8})
    seen += f"; of these sizes: {listed(map(str, odd))}" if odd else ""
    return Seen(seen, rows, effect=aligned(facts, rows))


def unaligned(facts: Facts) -> list[KernelFacts]:
    """Return the matrix products that read one or two elements at a time, and need not: on CUDA cores (simt) all kernels do."""
    named = [k for k in facts.compute_kernels if k.decoded.is_gemm and UNALIGNED.search(k.name) and "simt" not in k.name]
    return [k for k in named if _may_be_odd(facts, k)]


def _may_be_odd(facts: Facts, kernel: KernelFacts) -> bool:
    """Return whether a side of its matrices is no multiple of 8, or their shapes were not recorded."""
    shapes = [(g.m, g.n, g.k) for g in facts.gemms if g.kernel == kernel.name]
    return not shapes or any(n % 8 for sides in shapes for n in sides)


def aligned(facts: Facts, rows: Rows) -> Effect | None:
    """Return what padding makes of these products: at best they reach the device's peak; surely the geometric mean of their rate
    and of the best one in the trace. None where their shapes are not known.
    """
    best = max((g.peak_share or 0.0 for g in facts.gemms if not UNALIGNED.search(g.kernel)), default=0.0)
    reached = [(g, g.peak_share) for g in facts.gemms if UNALIGNED.search(g.kernel) and g.peak_share]
    time_us = sum(g.median_us * g.calls for g, _ in reached)
    rate = sum(share * g.median_us * g.calls for g, share in reached) / max(time_us, 1.0)
    return (
        Effect(scaled(rows, min(rate, 1.0)), scaled(rows, min(rate / best, 1.0) ** 0.5), REPLACED) if reached and best else None
    )


@finding(
    "partial-wave",
    "a somewhat larger matrix product takes hardly longer",
    "the tile in the GEMM's name, the product's shape (--record_shapes), and the device's SMs",
    "With these kernels, each SM computes one tile at a time, so the tiles run in rounds. In the last round there are fewer "
    "tiles than SMs.",
    "Try sizes whose tiles fill whole rounds: adding rows or columns up to such a size takes hardly longer.",
)
def _partial_wave(trace: Trace, facts: Facts) -> Seen | None:
    sms = (facts.device_properties or {}).get("numSms")
    if not isinstance(sms, int) or sms < 1:
        return None
    partial = sorted(
        (one for one in _tiled(trace) if one.tiles > sms and one.filled(sms) < FULL), key=lambda one: -one.calls.total_us
    )
    if not partial:
        return None
    most = partial[0]
    seen = (
        f"a product of {most.shape} is {most.tiles:,} tiles of {most.tile}: {math.ceil(most.tiles / sms)} rounds on {sms} SMs, "
        f"filled to {most.filled(sms):.0%}"
    )
    seen += f"; and {count(len(partial) - 1, 'other shape')}" if len(partial) > 1 else ""
    at = np.concatenate([one.calls.at for one in partial])
    left = np.repeat([one.filled(sms) for one in partial], [len(one.calls) for one in partial])
    order = np.argsort(at)
    rows = Rows(trace.slices, at[order])
    return Seen(seen, rows, effect=Effect(scaled(rows, left[order]), kind=REPLACED))


class Tiled(msgspec.Struct, frozen=True):
    """Products of one shape, in words, by one kernel: how many tiles of which size each is."""

    shape: str
    tile: str
    tiles: int
    calls: Rows

    def filled(self, sms: int) -> float:
        """Return how much of the time of so many SMs the tiles take, if each takes the same."""
        return self.tiles / (math.ceil(self.tiles / sms) * sms)


def _tiled(trace: Trace) -> Iterator[Tiled]:
    """Yield the products of cuBLAS' nvjet kernels for Hopper, which keep one block on an SM; those for later GPUs were not
    measured. Such a kernel can take the matrices the other way round: the fewer tiles count.
    """
    for (_, (batch, m, n, _), kernel, _), calls in gemm_calls(trace).items():
        name = decode_name(kernel)
        if name.library == "cuBLAS nvjet" and name.architecture == "sm90" and name.tile and "splitK" not in kernel:
            a, b = map(int, name.tile.split("x"))
            tiles = min(math.ceil(m / a) * math.ceil(n / b), math.ceil(n / a) * math.ceil(m / b))
            shape = f"{f'{batch:,} x ' if batch > 1 else ''}{m:,} x {n:,}"
            yield Tiled(shape, name.tile, batch * tiles, calls)


@finding(
    "far-from-the-floor",
    "matrix products with few rows, step after step",
    "the products' shapes (--record_shapes): small m, large n and k",
    "Memory bandwidth sets the lower bound per step: weight bytes / peak GB/s. These steps take at least 4 times as long.",
    "Follow the verdict first; then use a larger batch, kernels for few rows, or 8-bit weights.",
)
def _far_from_the_floor(trace: Trace, facts: Facts) -> Seen | None:
    period_us = (
        facts.plain.step_us
        or facts.step_period_us
        or (facts.critical_path.window_us if facts.critical_path and len(facts.steps) == 1 else None)
    )
    gb_per_s = peak(facts.device or "", "memory")
    if period_us is None or gb_per_s is None or not facts.steps:
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
    plainly = f" without the profiler ({facts.plain.how})" if facts.plain.step_us else ""
    seen = (
        f"{each / 1e9:.2f} GB of weights (the products' second matrices) per step need {us(floor_us)} at the published "
        f"{gb_per_s:,.0f} GB/s; a step takes {us(period_us)}{plainly}, {period_us / floor_us:.0f} times as long"
    )
    return Seen(seen, launched, share=0.0)
