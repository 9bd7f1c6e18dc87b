"""Matrix products: what is fused into them, their tiles, the units they run on."""

from trace_reader.analysis.facts import Facts
from trace_reader.findings.memory import bias_copies
from trace_reader.findings.registry import Seen, calls_of, finding, listed
from trace_reader.link.trace import Trace

WORTH_TELLING = 0.05  # of the GPU's time


@finding(
    "epilogue-bias",
    "a bias is added, and there is no add",
    "the GEMM's name: bias",
    "The bias is added in the GEMM's epilogue, before the result leaves the chip.",
    "There is no add to fuse any more.",
    trivia=True,
)
def _epilogue_bias(trace: Trace, facts: Facts) -> Seen | None:
    for k in facts.compute_kernels:
        if k.decoded.is_gemm and "bias" in (k.decoded.epilogue or ""):
            return Seen(f"{k.decoded.label} has the epilogue {k.decoded.epilogue} in its name", calls_of(trace, k))
    gemm = next((k for k in facts.compute_kernels if k.decoded.is_gemm and k.op == "aten::addmm"), None)
    if gemm and not len(bias_copies(trace)) and not any(op.name == "aten::add" for op in facts.ops):
        return Seen(f"aten::addmm launches {gemm.decoded.label} and neither a copy nor an add", calls_of(trace, gemm))
    return None


@finding(
    "two-gemm-tiles",
    "GEMMs of equal FLOP take different times",
    "the tile in the GEMM's name",
    "The library chose a tile for each shape.",
    "Compare the shapes (--record_shapes) and the time of each.",
    trivia=True,
)
def _two_gemm_tiles(trace: Trace, facts: Facts) -> Seen | None:
    gemms = [k for k in facts.compute_kernels if k.decoded.is_gemm and k.decoded.tile]
    tiles = sorted({k.decoded.tile for k in gemms if k.decoded.tile})
    return Seen(f"GEMMs with the tiles {listed(tiles, 4)}", calls_of(trace, *gemms)) if len(tiles) > 1 else None


@finding(
    "fp32-cuda-cores",
    "a GEMM takes many times what its FLOP explain",
    "the GEMM's name: sgemm, f32f32, ffma",
    "A GEMM or convolution in fp32 on CUDA cores: far slower than tensor cores, which take bf16, fp16 or tf32.",
    "Use bf16, or allow tf32: torch.set_float32_matmul_precision('high').",
)
def _fp32_cuda_cores(trace: Trace, facts: Facts) -> Seen | None:
    slow = [k for k in facts.compute_kernels if k.decoded.unit == "CUDA cores" and k.decoded.dtype == "fp32"]
    share = sum(k.share for k in slow)
    if share < WORTH_TELLING:
        return None
    seen = f"{listed(dict.fromkeys(k.decoded.label for k in slow))}: {share:.0%} of the GPU's time"
    major = (facts.device_properties or {}).get("computeMajor")
    next = ""
    if isinstance(major, int) and major < 8:
        next = "Use fp16: this GPU's tensor cores take neither bf16 nor tf32." if major >= 7 else "This GPU has no others."
    return Seen(seen, calls_of(trace, *slow), next)
