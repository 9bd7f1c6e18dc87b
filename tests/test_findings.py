"""Every finding once triggered, on the least evidence that it asks for, and silent without that evidence."""

from events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, op, step, write
import pytest
from trace_reader import read
from trace_reader.findings import PATTERNS

HEAVY = dict(regs=168, shared=213188, grid=(2, 66, 1), block=(384, 1, 1))
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>>(int)"
SGEMM = "ampere_sgemm_128x64_tn"
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
COMPILED = [
    e
    for n in range(3)
    for e in (
        step(n, n * 100, 50),
        op("TorchDynamo Cache Lookup", n * 100 + 1, 4),
        op("Torch-Compiled Region: 0/0", n * 100 + 6, 40),
        op("AOTDispatcher Runtime Wrapper Prologue", n * 100 + 7, 3),
        op("## Call CompiledFxGraph fadri2gvaccdsuvko2wt ##", n * 100 + 11, 30),
    )
]


def linked(name, ts, dur, n=1, **more):
    """A launch and its kernel."""
    return [launch(ts, n), kernel(name, ts + 1, dur, n, **more)]


def runs(name, durations, **more):
    """Three steps of 100 us, each launching the kernel once for its duration."""
    return [e for n, d in enumerate(durations) for e in (step(n, n * 100, 100), *linked(name, n * 100 + 1, d, n + 1, **more))]


def gaps(*gaps_us):
    """Steps whose annotation waits that long for its first op."""
    return [
        e
        for n, gap in enumerate(gaps_us)
        for e in (step(n, n * 100, 90), annotation("fwd", n * 100, 80), op("aten::mm", n * 100 + gap, 5))
    ]


def pointwise(name, ts, dur, n):
    """An op on ten million elements of two bytes, and its kernel."""
    inputs = {"Input Dims": [[10_000, 1000]], "Input type": ["c10::Half"], "Input Strides": [[1000, 1]]}
    return [op(name, ts, 5, **inputs), launch(ts + 1, n), kernel(name.removeprefix("aten::"), ts + 10, dur, n)]


def copied(**more):
    """A copy's call and the copy."""
    return [call("cudaMemcpyAsync", 2, 3, 1), memcpy(10, 9, 1, **more)]


# slug: (events that show it, what is seen, events that lack one thing)
CASES = {
    "no-gpu-events": ([step(0, 0, 10), launch(1, 1)], "1 launch and no GPU event", [step(0, 0, 10), op("aten::mm", 1, 2)]),
    "overhead-bound": (
        runs("a", (10, 10, 10)),
        "GPU busy time is 10% of a step's CPU time (median of 3); ProfilerStep#1: 10.0 us on the GPU, 100.0 us on "
        "the CPU",
        runs("a", (60, 60, 60)),
    ),
    "gpu-bound": (
        runs("a", (200, 200, 200)),
        "GPU busy time is 200% of a step's CPU time (median of 3); ProfilerStep#1: 200.0 us on the GPU, 100.0 us on "
        "the CPU",
        runs("a", (60, 60, 60)),
    ),
    "hotspot": (
        [*linked(GEMM, 0, 90), *linked(ADD, 100, 10, 2)],
        "nvjet GEMM 256x128 takes 90% of the GPU's time in 1 call",
        [*linked(GEMM, 0, 40), *linked(ADD, 50, 30, 2), *linked("b", 100, 30, 3)],
    ),
    "many-calls": (
        [step(0, 0, 1000), *(e for n in range(50) for e in linked(ADD, 10 * n, 2, n))],
        "add is called 50 times a step, 2.0 us each",
        [step(0, 0, 1000), *(e for n in range(49) for e in linked(ADD, 10 * n, 2, n))],
    ),
    "cold-start": (
        [step(2, 0, 90), step(3, 100, 60), step(4, 200, 40)],
        "ProfilerStep#2 takes 90.0 us of CPU time, the later ones 60.0 us",
        [step(2, 0, 70), step(3, 100, 60), step(4, 200, 40)],
    ),
    "entry-gap": (
        gaps(30, 4),
        "from the annotation to its first op: #0 30.0 us, #1 4.0 us",
        gaps(5, 4),
    ),
    "heavy-launch": (
        [step(0, 0, 9), call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1, 1, 9), *linked(GEMM, 2, 5, **HEAVY)],
        "nvjet GEMM 256x128: 1 occupancy query in 1 step, 168 registers a thread, 213,188 B of shared memory",
        [step(0, 0, 9), *linked(GEMM, 2, 5, **HEAVY)],
    ),
    "driver-launch": (
        [launch(0, 1, "cuLaunchKernelEx"), kernel(CUDNN, 2, 5, 1, **HEAVY)],
        "cuDNN attention 64x128x64 (cuLaunchKernelEx, 168 registers a thread, 213,188 B of shared memory)",
        linked(CUDNN, 0, 5, **HEAVY),
    ),
    "light-launch": (
        linked(ADD, 0, 5),
        "add: launched by cudaLaunchKernel, 32 registers a thread, 0 B of shared memory",
        linked(GEMM, 0, 5, **HEAVY),
    ),
    "profiler-sync": (
        [step(0, 0, 10), call("cudaDeviceSynchronize", 12, 300, 9)],
        "a synchronizing call of 300.0 us after the last step",
        [step(0, 0, 400), call("cudaDeviceSynchronize", 12, 300, 9)],
    ),
    "hidden-copy": (
        [
            op("aten::masked_fill", 0, 20), op("aten::clone", 1, 10), *copied(bytes=2_000_000),
            op("aten::masked_fill_", 12, 5), *linked(ADD, 13, 27, 2),
        ],
        "aten::masked_fill > aten::clone: 1 copy of 2.0 MB, 25% of the GPU's time",
        [op("aten::to", 0, 20), *copied(name="Memcpy HtoD (Pageable -> Device)")],
    ),
    "bias-copy": (
        [op("aten::addmm", 0, 20), *copied(), *linked(GEMM, 15, 5, 2)],
        "1 device-to-device copy in an addmm that launches a GEMM",
        [op("aten::addmm", 0, 20), *linked(GEMM, 15, 5, 2)],
    ),
    "profiler-buffer": (
        [step(0, 0, 10), event("overhead", "Activity Buffer Request", 1, 1770)],
        "1 Activity Buffer Request, 1.77 ms in all",
        [step(0, 0, 10), event("overhead", "Resource", 1, 1770)],
    ),
    "uneven-kernel": (
        runs(GEMM, (90, 72, 71)),
        "nvjet GEMM 256x128: median 72.0 us, 71.0 us to 90.0 us in 3 calls; far out in ProfilerStep#0",
        runs(GEMM, (72, 72, 71)),
    ),
    "slow-pointwise": (
        [*pointwise("aten::gelu", 0, 100, 1), *pointwise("aten::relu", 200, 20, 2)],
        "gelu moves 40.0 MB at 400 GB/s, where relu reaches 2000",
        [*pointwise("aten::gelu", 0, 30, 1), *pointwise("aten::relu", 200, 20, 2)],
    ),
    "views-launch-nothing": (
        [op("aten::t", 0, 2), op("aten::transpose", 0.5, 1), *linked(ADD, 5, 5)],
        "1 x aten::t, 1 x aten::transpose launched nothing",
        [op("aten::mm", 0, 2), op("aten::empty", 1, 1), *linked(ADD, 5, 5)],
    ),
    "epilogue-bias": (
        [op("aten::addmm", 0, 9), *linked("nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", 1, 5)],
        "nvjet GEMM 64x8 has the epilogue bz_bias in its name",
        [op("aten::mm", 0, 9), *linked(GEMM, 1, 5)],
    ),
    "two-gemm-tiles": (
        [*linked(GEMM, 0, 5), *linked("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT", 10, 5, 2)],
        "GEMMs with the tiles 192x128, 256x128",
        [*linked(GEMM, 0, 5), *linked(GEMM, 10, 5, 2)],
    ),
    "fp32-cuda-cores": (
        [*linked(SGEMM, 0, 3), *linked(GEMM, 5, 1, 2)],
        "sgemm 128x64: 75% of the GPU's time",
        linked(GEMM, 0, 5),
    ),
    "fused-triton": (
        linked(FUSED, 0, 5),
        f"{FUSED}: pointwise kernel of _unsafe_view, gelu, mul, 5.0 us",
        linked("triton_poi_fused_gelu_0", 0, 5),
    ),
    "compile-tax": (
        COMPILED,
        "4.0 us in the cache lookup, 3.0 us in the runtime wrapper's prologue, each call on average",
        [e for e in COMPILED if e["name"] != "TorchDynamo Cache Lookup"],
    ),
    "cache-hits": (COMPILED, "one graph, fadri2gvaccd..., in 3 calls", COMPILED[:5]),
    "recompile": (
        [*COMPILED, op("## Call CompiledFxGraph zzzzzzzzzzzzzzzz ##", 400, 5)],
        "2 compiled graphs: fadri2gvaccd... (3 calls), zzzzzzzzzzzz... (1 call)",
        COMPILED,
    ),
    "mask-rebuilt": (
        [e for n in range(2) for e in (step(n, n * 10, 10), op("aten::ones", n * 10 + 1, 1), op("aten::tril", n * 10 + 3, 1))],
        "aten::tril 2 times in 2 steps, beside aten::ones",
        [op("aten::tril", -50, 1), step(0, 0, 10), step(1, 10, 10)],
    ),
    "safe-softmax": (
        [
            op("aten::_safe_softmax", 0, 20), op("aten::_softmax", 1, 5), *linked(SOFTMAX, 2, 30),
            op("aten::isneginf", 7, 5), *linked("isneginf", 8, 12, 2), op("aten::mm", 25, 5), *linked(GEMM, 26, 9, 3),
        ],
        "aten::_safe_softmax 1 time; 2 kernels and 42.0 us on the GPU each time",
        [op("aten::_softmax", 0, 5), *linked(SOFTMAX, 2, 30)],
    ),
    "unfused-attention": (
        [step(0, 0, 9), *linked(GEMM, 1, 5), *linked(ADD, 2, 5, 2), *linked(SOFTMAX, 3, 5, 3), *linked(GEMM, 4, 5, 4)],
        "4 kernels for one attention: 2 GEMMs, a softmax and 1 more",
        [step(0, 0, 9), *linked(GEMM, 1, 5), *linked(ADD, 2, 5, 2), *linked(GEMM, 4, 5, 4)],
    ),
    "fused-attention": (
        linked(CUDNN, 0, 5),
        "cuDNN attention 64x128x64: of cuDNN, which generated it; for sm90, tile 64x128x64, variant (knob) 7; 5.0 us a call",
        linked(SOFTMAX, 0, 5),
    ),
    "opaque-op": (
        [step(0, 0, 100), op("aten::_cudnn_attention_forward", 10, 40), op("aten::empty", 11, 10), *linked(CUDNN, 30, 5)],
        "aten::_cudnn_attention_forward: 29.0 us of its 40.0 us are in no op or call inside it, 29% of ProfilerStep#0's CPU time",
        [step(0, 0, 100), op("aten::_cudnn_attention_forward", 10, 40), op("aten::empty", 11, 20), *linked(CUDNN, 40, 5)],
    ),
    "low-occupancy-by-design": (
        linked(FLASH, 0, 5, regs=255, block=(128, 1, 1)),
        "flash attention fwd: 128 threads x 255 registers = 32,640 of 65,536 an SM: 2 blocks, 8 of 64 warps (12.5%)",
        linked(FLASH, 0, 5, regs=32, block=(128, 1, 1)),
    ),
    "occupancy-not-estimated": (
        linked(GEMM, 0, 5, **HEAVY),
        "nvjet GEMM 256x128 (213,188 B)",
        linked(GEMM, 0, 5, regs=168, shared=49152),
    ),
    "annotation-double-count": (
        [*linked(ADD, 0, 10), event("gpu_user_annotation", "fwd", 1, 50, {"pid": 0, "tid": 7})],
        "fwd spans 50.0 us on the GPU's lane, 500% of the GPU's summed time",
        [*linked(ADD, 0, 10), event("gpu_user_annotation", "fwd", 1, 10, {"pid": 0, "tid": 7})],
    ),
    "carried-over": (
        [kernel(GEMM, 0, 20, 99), *linked(GEMM, 30, 5)],
        "1 GPU event, 20.0 us",
        [*linked(GEMM, 30, 5), kernel(GEMM, 50, 20, 99)],
    ),
    "graph-launch": (
        [call("cudaGraphLaunch", 0, 2, 1), kernel(GEMM, 5, 5, 1), kernel(ADD, 11, 5, 1)],
        "2 GPU events from 1 graph launch",
        linked(GEMM, 0, 5),
    ),
    "crossing-slices": (
        [kernel("a", 0, 10, 1), kernel("b", 5, 10, 2)],
        "1 slice: b",
        [kernel("a", 0, 10, 1), kernel("b", 5, 10, 2, stream=8)],
    ),
    "zero-timestamps": (
        [step(0, 5e12, 10), launch(5e12 + 1, 1), kernel("a", 0, 5, 1), kernel("a", 5e12 + 5, 5, 1)],
        "1 of 1 kernels",
        [step(0, 5e12, 10), launch(5e12 + 1, 1), kernel("a", 5e12 + 5, 5, 1)],
    ),
}  # fmt: skip


def test_every_finding_has_a_case():
    assert list(PATTERNS) == list(CASES)


def found(path, events):
    return {f.slug: f.seen for f in read(write(path / "t.json", *events)).findings}


@pytest.mark.parametrize("slug", CASES)
def test_a_finding_says_what_it_saw(slug, tmp_path):
    events, seen, _ = CASES[slug]
    assert found(tmp_path, events)[slug] == seen


@pytest.mark.parametrize("slug", CASES)
def test_a_finding_is_silent_without_its_evidence(slug, tmp_path):
    _, _, lacking = CASES[slug]
    assert slug not in found(tmp_path, lacking)


def test_every_finding_explains_itself():
    for slug, pattern in PATTERNS.items():
        assert slug == slug.lower() and len(pattern.means) > 20 and len(pattern.next) >= 20
        assert pattern.means.endswith(".") and pattern.next.endswith((".", ").")), slug
        assert pattern.symptom and pattern.where, slug
