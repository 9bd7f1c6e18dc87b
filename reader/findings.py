"""The patterns that the posts teach, as rules: each looks at the facts and is silent unless its evidence is there.

A rule is a function from Facts to what it saw, or None, beside the sentences that explain it. To add one, add a function.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reader.bandwidth import is_device_copy
from reader.facts import VIEW_OPS, Facts, Finding, KernelFacts

Rule = Callable[[Facts], str | None]


@dataclass(frozen=True)
class Pattern:
    """What a reader of traces notices first (`symptom`), `where` to look, what it usually `means`, what to do `next`."""

    rule: Rule
    symptom: str
    where: str
    means: str
    next: str


PATTERNS: dict[str, Pattern] = {}  # by slug, in the order of this file

HOTSPOT_SHARE = 0.5
MANY_CALLS_A_STEP = 50
COLD_FACTOR = 1.5
LONG_SYNC_US = 100
UNEVEN_SPREAD = 0.04  # of the median
LOW_OCCUPANCY = 0.25
LARGE_BYTES = 10_000_000  # below, a kernel's start and end weigh as much as its work
SLOW_RATE = 0.6  # of the best in the trace
OPAQUE_SHARE = 0.2  # of a step's CPU time
HEAVY_REGISTERS = 128
LIBRARIES = {  # of fused attention
    "FlashAttention": "FlashAttention",
    "memory-efficient attention": "xFormers' memory-efficient attention, on CUTLASS, in PyTorch",
    "cuDNN attention": "cuDNN, which generated it",
}
HEAVY_SHARED_BYTES = 49152


def finding(slug: str, symptom: str, where: str, means: str, next: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        PATTERNS[slug] = Pattern(rule, symptom, where, means, next)
        return rule

    return register


def find(facts: Facts) -> tuple[Finding, ...]:
    """What the rules see in the facts, in the order of this file."""
    found = []
    for slug, pattern in PATTERNS.items():
        if seen := pattern.rule(facts):
            found.append(Finding(slug, seen, pattern.means, pattern.next))
    return tuple(found)


def _us(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 1000 else f"{us:.1f} us"


def _share(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio >= 0.095 else f"{ratio:.1%}"


def _names(names: Iterable[str], most: int = 3) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _n(count: int, one: str, many: str | None = None) -> str:
    """`1 copy`, `2 copies`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _a_step(count: int, facts: Facts, one: str, many: str) -> str:
    """`1 copy a step`, where every step has as many; else the count in all of the trace."""
    steps = len(facts.steps)
    if steps and count % steps == 0:
        return f"{_n(count // steps, one, many)} a step"
    return f"{_n(count, one, many)} in {_n(steps, 'step')}" if steps else _n(count, one, many)


def _compute(facts: Facts) -> list[KernelFacts]:
    """Kernels without copies and memsets."""
    return [k for k in facts.kernels if k.decoded.family not in ("memcpy", "memset")]


@finding(
    "no-gpu-events",
    "the table's CUDA total is 0, though the program used a GPU",
    "the GPU's lanes: there are none",
    "The calls that launch work were recorded, the work was not: CUPTI, which records it, did not start. Another profiler "
    "may be attached (nsys, ncu, compute-sanitizer), the container may lack the permission, or WSL its support.",
    "Detach the other profiler or grant the permission, and record again.",
)
def _no_gpu_events(f: Facts) -> str | None:
    launches = sum(s.launches for s in f.steps) or sum(c.calls for c in f.calls if "Launch" in c.name)
    if launches and f.regime == "cpu-only":
        return f"{_n(launches, 'launch', 'launches')} and no GPU event"
    return None


@finding(
    "overhead-bound",
    "the table's CPU total is many times its CUDA total",
    "the GPU's lane: mostly white between short kernels",
    "The CPU launches work more slowly than the GPU executes it: the GPU waits.",
    "Give each launch more to do (larger batch), launch less (fuse, torch.compile), or replay launches (CUDA graphs).",
)
def _overhead_bound(f: Facts) -> str | None:
    if f.regime != "overhead-bound":
        return None
    return _verdict_numbers(f)


@finding(
    "gpu-bound",
    "the CPU's total and the CUDA total are alike, because the CPU waits in a synchronize",
    "the GPU's lane: no white between kernels",
    "The GPU is the bottleneck; the CPU runs ahead and its time is hidden.",
    "Look at the longest kernels.",
)
def _gpu_bound(f: Facts) -> str | None:
    return _verdict_numbers(f) if f.regime == "gpu-bound" else None


def _verdict_numbers(f: Facts) -> str:
    if f.gpu_to_cpu is not None:
        steps = sorted((s for s in f.steps if s.gpu_to_cpu is not None), key=lambda s: s.gpu_to_cpu or 0)
        middle = steps[len(steps) // 2]
        return (
            f"GPU busy time is {_share(f.gpu_to_cpu)} of a step's CPU time (median of {len(steps)}); {middle.name}: "
            f"{_us(middle.gpu_busy_us or 0)} on the GPU, {_us(middle.cpu_us - middle.sync_us)} on the CPU"
        )
    return f"the GPU is busy {f.gpu_busy_share or 0:.0%} of {_us(f.window_us)}; the trace has no steps"


@finding(
    "hotspot",
    "one row has most of the table's CUDA total",
    "the widest slice on the GPU's lane",
    "One kernel is most of the GPU's time.",
    "Optimize this first.",
)
def _hotspot(f: Facts) -> str | None:
    top = next(iter(_compute(f)), None)
    if top is None or top.share < HOTSPOT_SHARE or len(f.kernels) < 2:
        return None
    return f"{top.decoded.label} takes {top.share:.0%} of the GPU's time in {_n(top.calls, 'call')}"


@finding(
    "many-calls",
    "one row of the table has a huge number of calls",
    "many equal slices on the GPU's lane",
    "Each launch has a price on the CPU; many small ones add up.",
    "Fuse them, or batch them.",
)
def _many_calls(f: Facts) -> str | None:
    if not f.steps:
        return None
    top = max(_compute(f), key=lambda k: k.calls, default=None)
    if top is None or top.graph or top.calls < MANY_CALLS_A_STEP * len(f.steps):
        return None
    return f"{top.decoded.label} is called {top.calls / len(f.steps):.0f} times a step, {_us(top.median_us)} each"


@finding(
    "cold-start",
    "the first recorded step is much wider than the others",
    "the ProfilerStep slices",
    "The first recorded step still pays for something that happens once: caches, allocations, lazy initialization.",
    "Read the later steps. A warm-up before the profiler starts (--warmup) takes away what is the program's, not what is the "
    "profiler's own first step.",
)
def _cold_start(f: Facts) -> str | None:
    if len(f.steps) < 3:
        return None
    later = sorted(s.cpu_us for s in f.steps[1:])
    middle = later[len(later) // 2]
    if f.steps[0].cpu_us < COLD_FACTOR * middle:
        return None
    return f"{f.steps[0].name} takes {_us(f.steps[0].cpu_us)} of CPU time, the later ones {_us(middle)}"


@finding(
    "entry-gap",
    "an annotation begins long before its first op",
    "between an annotation's start and its first aten:: slice",
    "Between the annotation's start and its first op nothing was recorded: Python, or initialization that has no op.",
    "If it shrinks from step to step it was the cold start; under torch.compile it is Python overhead before the guard checks.",
)
def _entry_gap(f: Facts) -> str | None:
    gaps = [s.entry_gap_us for s in f.steps if s.entry_gap_us is not None]
    if not gaps or max(gaps) < 10 or max(gaps) < 2 * min(gaps):
        return None
    return "from the annotation to its first op: " + ", ".join(
        f"{s.name.removeprefix('ProfilerStep')} {_us(s.entry_gap_us)}" for s in f.steps[:5] if s.entry_gap_us is not None
    )


def _heavy(k: KernelFacts) -> bool:
    return (k.registers_per_thread or 0) >= HEAVY_REGISTERS or (k.shared_memory_bytes or 0) > HEAVY_SHARED_BYTES


@finding(
    "heavy-launch",
    "a query named ...Occupancy... stands before a launch",
    "the runtime calls under the GEMM's op",
    "A heavyweight kernel (GEMM, convolution, attention) is launched adaptively: the library asks first how many of its "
    "blocks fit on an SM.",
    "Click it and read its registers, shared memory, grid and block.",
)
def _heavy_launch(f: Facts) -> str | None:
    queries = sum(s.occupancy_queries for s in f.steps)
    heavy = next((k for k in _compute(f) if _heavy(k)), None)
    if heavy is None or not queries:
        return None
    how = f"{_n(queries, 'occupancy query', 'occupancy queries')} in {_n(len(f.steps), 'step')}"
    return f"{heavy.decoded.label}: {how}, {_footprint(heavy)}"


@finding(
    "driver-launch",
    "a kernel has no cudaLaunchKernel",
    "the launch that the kernel's arrow comes from",
    "Launched through the driver (cuLaunch...), not through the runtime (cudaLaunchKernel): cuDNN, Triton, and cuBLAS on "
    "newer GPUs do so, for kernels that they load or make themselves.",
    "Search the trace for both names: searching only for cudaLaunchKernel misses these launches.",
)
def _driver_launch(f: Facts) -> str | None:
    driven = [k for k in _compute(f) if (k.launch or "").startswith("cuLaunch")]
    return _names(f"{k.decoded.label} ({k.launch}, {_footprint(k)})" for k in driven) if driven else None


@finding(
    "light-launch",
    "a launch has no query before it",
    "the runtime calls under an elementwise op",
    "An elementwise or reduction kernel is launched without asking: its footprint is small and always fits.",
    "Compare its footprint with the heavy one's.",
)
def _light_launch(f: Facts) -> str | None:
    light = next(
        (
            k
            for k in _compute(f)
            if not _heavy(k) and k.registers_per_thread and (k.launch or "").startswith(("cudaLaunch", "hip"))
        ),
        None,
    )
    return f"{light.decoded.label}: launched by {light.launch}, {_footprint(light)}" if light else None


def _footprint(k: KernelFacts) -> str:
    return f"{k.registers_per_thread} registers a thread, {k.shared_memory_bytes or 0:,} B of shared memory"


@finding(
    "profiler-sync",
    "a long cudaDeviceSynchronize stands at the very end",
    "the CPU's lane, after the last step",
    "The synchronize after the last step is usually the profiler's own: it waits for the GPU before it collects the events.",
    "Do not count it: it is absent from unprofiled runs.",
)
def _profiler_sync(f: Facts) -> str | None:
    if f.final_sync_us is None or f.final_sync_us < LONG_SYNC_US:
        return None
    return f"a synchronizing call of {_us(f.final_sync_us)} after the last step"


@finding(
    "hidden-copy",
    "a copy that nobody wrote",
    "a Memcpy DtoD on the GPU's lane, and the cudaMemcpyAsync that launched it",
    "A copy from device to device that nobody wrote: an out-of-place op copies its input before it changes the copy.",
    "Use the in-place form where the input is not needed any more (masked_fill_ for masked_fill).",
)
def _hidden_copy(f: Facts) -> str | None:
    return (
        "; ".join(
            f"{c.path}: {_a_step(c.calls, f, 'copy', 'copies')} of {c.bytes / c.calls / 1e6:.1f} MB, "
            f"{c.share:.0%} of the GPU's time"
            for c in f.hidden_copies
            if "addmm" not in c.path
        )
        or None
    )


@finding(
    "bias-copy",
    "a Memcpy DtoD stands right before a GEMM",
    "the GPU's lane, under aten::addmm",
    "addmm copies the bias into the output, then a GEMM adds its product to it (beta = 1): fused in the dispatcher, not "
    "in the kernel.",
    "A one-dimensional bias (nn.Linear) goes into the GEMM's epilogue instead, without the copy.",
)
def _bias_copy(f: Facts) -> str | None:
    return (
        f"{_a_step(f.bias_copies, f, 'device-to-device copy', 'device-to-device copies')} in an addmm that launches a GEMM"
        if f.bias_copies
        else None
    )


@finding(
    "profiler-buffer",
    "an Activity Buffer Request",
    "the overhead lane, before the first kernel",
    "The profiler asked for memory for its own records; the GPU can pause meanwhile.",
    "It is not the program's. Give the schedule a wait and a warmup step.",
)
def _profiler_buffer(f: Facts) -> str | None:
    if not f.profiler_buffers:
        return None
    return f"{_n(f.profiler_buffers, 'Activity Buffer Request')}, {_us(f.profiler_buffer_us)} in all"


@finding(
    "uneven-kernel",
    "one kernel takes different times in equal steps",
    "the kernel's durations, call by call",
    "The same kernel takes different times: clocks, heat, power, a neighbour in memory; or other shapes, if it has several.",
    "Quote the median, and look at the distribution before the mean (--active 20).",
)
def _uneven_kernel(f: Facts) -> str | None:
    def spread(k: KernelFacts) -> float:
        return (k.max_us - k.min_us) / k.median_us if k.median_us else 0.0

    def range_us(k: KernelFacts) -> float:
        return k.max_us - k.min_us

    def same_work(k: KernelFacts) -> bool:
        # A kernel whose every step has a slow call does different work in them.
        different = len(k.outlier_steps) == len(f.steps) > 1
        return k.calls >= 3 and k.calls % len(f.steps) == 0 and k.calls <= 3 * len(f.steps) and not different

    if not f.steps:
        return None
    k = max((k for k in _compute(f) if k.share > 0.1 and same_work(k) and spread(k) >= UNEVEN_SPREAD), key=range_us, default=None)
    if k is None or range_us(k) < 1:
        return None
    where = f"; far out in {_names(k.outlier_steps)}" if k.outlier_steps else ""
    return f"{k.decoded.label}: median {_us(k.median_us)}, {_us(k.min_us)} to {_us(k.max_us)} in {k.calls} calls{where}"


@finding(
    "slow-pointwise",
    "a pointwise kernel is far slower than its bytes explain",
    "GB/s in the reader's bandwidth table (record shapes)",
    "A pointwise kernel only moves bytes, so it could run at the rate that another one reaches. It does not: it moves few "
    "bytes at a time (strides, a broadcast input, a narrow type), or it computes more than it seems.",
    "Write it another way, make its inputs contiguous, or let torch.compile or a kernel of yours fuse it with a neighbour.",
)
def _slow_pointwise(f: Facts) -> str | None:
    rated = [k for k in f.kernels if k.gb_per_s and (k.moved_bytes or 0) >= LARGE_BYTES]
    rated = [k for k in rated if k.decoded.family != "memcpy" or is_device_copy(k.name)]
    best = max(rated, key=_rate, default=None)
    if best is None:
        return None
    slow = [k for k in rated if k.decoded.family != "memcpy" and _rate(k) < SLOW_RATE * _rate(best)]
    if not slow:
        return None
    return _names(
        f"{k.decoded.label} moves {(k.moved_bytes or 0) / 1e6:.1f} MB at {_rate(k):.0f} GB/s, where {best.decoded.label} "
        f"reaches {_rate(best):.0f}"
        for k in slow
    )


def _rate(k: KernelFacts) -> float:
    return k.gb_per_s or 0.0


@finding(
    "views-launch-nothing",
    "ops that spend 0 us on the GPU",
    "aten::t, view, transpose: no launch below them",
    "These ops change strides, not data: CPU time only, 0 us on the GPU.",
    "Their CPU time matters only if the step is overhead-bound.",
)
def _views(f: Facts) -> str | None:
    if f.regime == "cpu-only":
        return None
    views = [op for op in f.ops if op.name in VIEW_OPS and not op.launched]
    if not views:
        return None
    views.sort(key=lambda op: (-op.calls, op.name))
    return f"{_names((f'{op.calls} x {op.name}' for op in views), 5)} launched nothing"


@finding(
    "epilogue-bias",
    "a bias is added, and there is no add",
    "the GEMM's name: bias",
    "The bias is added in the GEMM's epilogue, before the result leaves the chip.",
    "There is no add to fuse any more.",
)
def _epilogue_bias(f: Facts) -> str | None:
    for k in _compute(f):
        if k.decoded.is_gemm and "bias" in (k.decoded.epilogue or ""):
            return f"{k.decoded.label} has the epilogue {k.decoded.epilogue} in its name"
    gemm = next((k for k in _compute(f) if k.decoded.is_gemm and k.op == "aten::addmm"), None)
    if gemm and not f.bias_copies and not any(op.name == "aten::add" for op in f.ops):
        return f"aten::addmm launches {gemm.decoded.label} and neither a copy nor an add"
    return None


@finding(
    "two-gemm-tiles",
    "GEMMs of equal FLOP take different times",
    "the tile in the GEMM's name",
    "The library chose a tile for each shape.",
    "Compare the shapes (--record_shapes) and the time of each.",
)
def _two_gemm_tiles(f: Facts) -> str | None:
    tiles = sorted({k.decoded.tile for k in _compute(f) if k.decoded.is_gemm and k.decoded.tile})
    return f"GEMMs with the tiles {_names(tiles, 4)}" if len(tiles) > 1 else None


@finding(
    "fused-triton",
    "a kernel named triton_...",
    "its name: poi, red or per, then the ops that it merged",
    "torch.compile wrote one kernel for several ops: what is between them no longer goes through memory.",
    "Compare with eager: read_trace.py EAGER.json COMPILED.json.",
)
def _fused_triton(f: Facts) -> str | None:
    fused = [k for k in _compute(f) if len(k.decoded.merged_ops) > 1]
    if not fused:
        return None
    k = fused[0]
    return f"{k.name}: {k.decoded.inductor_kind} kernel of {', '.join(k.decoded.merged_ops)}, {_us(k.median_us)}"


@finding(
    "compile-tax",
    "compiled, a small step takes more CPU time",
    "TorchDynamo Cache Lookup, AOTDispatcher Runtime Wrapper Prologue",
    "A compiled call looks up its cache, checks guards and goes through wrappers, before the first kernel is launched.",
    "It pays where the GPU is the bottleneck; for tiny ops it costs more than it saves (reduce-overhead takes launches away).",
)
def _compile_tax(f: Facts) -> str | None:
    lookups = next((op for op in f.ops if op.name == "TorchDynamo Cache Lookup"), None)
    regions = [op for op in f.ops if op.name.startswith("Torch-Compiled Region")]
    if lookups is None or not regions:
        return None
    prologue = next((op for op in f.ops if "Runtime Wrapper Prologue" in op.name), None)
    extra = f", {_us(prologue.total_us / prologue.calls)} in the runtime wrapper's prologue" if prologue else ""
    return f"{_us(lookups.total_us / lookups.calls)} in the cache lookup{extra}, each call on average"


@finding(
    "cache-hits",
    "the same graph hash in every step",
    "## Call CompiledFxGraph <hash>",
    "Every step ran the graph that was compiled before the recording.",
    "Nothing to do: this is what a warm compiled function looks like.",
)
def _cache_hits(f: Facts) -> str | None:
    if len(f.graphs) != 1 or len(f.steps) < 2:
        return None
    ((graph, calls),) = f.graphs.items()
    return f"one graph, {graph[:12]}..., in {_n(calls, 'call')}" if calls >= len(f.steps) else None


@finding(
    "recompile",
    "some steps take seconds, others microseconds",
    "more than one graph hash; compile_inner among the ops",
    "More than one compiled graph ran: graph breaks, or a recompilation for other shapes.",
    "TORCH_LOGS=recompiles,graph_breaks tells which.",
)
def _recompile(f: Facts) -> str | None:
    if len(f.graphs) < 2:
        return None
    return f"{len(f.graphs)} compiled graphs: " + _names(f"{g[:12]}... ({_n(n, 'call')})" for g, n in f.graphs.items())


@finding(
    "fp32-cuda-cores",
    "a GEMM takes many times what its FLOP explain",
    "the GEMM's name: sgemm, f32f32, ffma",
    "A GEMM in fp32 on CUDA cores: far slower than tensor cores, which take bf16, fp16 or tf32.",
    "Use bf16, or allow tf32: torch.set_float32_matmul_precision('high').",
)
def _fp32_cuda_cores(f: Facts) -> str | None:
    slow = [k for k in _compute(f) if k.decoded.unit == "CUDA cores" and k.decoded.dtype == "fp32"]
    return f"{_names(k.decoded.label for k in slow)}: {sum(k.share for k in slow):.0%} of the GPU's time" if slow else None


@finding(
    "mask-rebuilt",
    "ones, tril and where in every step",
    "the ops before the first GEMM",
    "The causal mask is made anew in every call.",
    "Build it once outside, or use a backend that needs none (flash, efficient, cudnn).",
)
def _mask_rebuilt(f: Facts) -> str | None:
    tril = next((op for op in f.ops if op.name in ("aten::tril", "aten::triu")), None)
    if tril is None or not f.steps or tril.calls < len(f.steps):
        return None
    makers = ("aten::ones", "aten::scalar_tensor", "aten::where", "aten::fill_")
    others = _names(sorted(op.name for op in f.ops if op.name in makers), 4) or "nothing else"
    return f"{tril.name} {_n(tril.calls, 'time')} in {_n(len(f.steps), 'step')}, beside {others}"


@finding(
    "safe-softmax",
    "a softmax with several kernels",
    "below aten::_safe_softmax",
    "A softmax that returns 0, not NaN, for fully masked rows, at the price of extra kernels.",
    "Fused attention backends do the same inside their one kernel.",
)
def _safe_softmax(f: Facts) -> str | None:
    op = f.safe_softmax
    if op is None:
        return None
    seen = f"{op.name} {_n(op.calls, 'time')}"
    if op.launched:
        seen += f"; {_n(round(op.launched / op.calls), 'kernel')} and {_us(op.gpu_us / op.calls)} on the GPU each time"
    return seen


@finding(
    "unfused-attention",
    "a softmax between two GEMMs",
    "the GPU's lane, in an attention",
    "Attention written out: between these kernels the scores, [seq, seq] for each head, go through memory.",
    "One fused kernel keeps them on the chip: F.scaled_dot_product_attention with flash, efficient or cudnn.",
)
def _unfused_attention(f: Facts) -> str | None:
    if not f.steps or any(k.decoded.is_fused_attention for k in _compute(f)):
        return None
    gemms = sum(k.calls for k in _compute(f) if k.decoded.is_gemm)
    softmaxes = sum(k.calls for k in _compute(f) if k.decoded.is_softmax)
    if not softmaxes or gemms != 2 * softmaxes:
        return None
    each = sum(k.calls for k in _compute(f)) // softmaxes
    rest = f", a softmax and {each - 3} more" if each > 3 else " and a softmax"
    return f"{each} kernels for one attention: 2 GEMMs{rest}"


@finding(
    "fused-attention",
    "one kernel where attention was many",
    "the kernel's name: fmha, flash, cudnn",
    "One kernel does the whole of attention, tile by tile; the score matrix never leaves the chip.",
    "Compare the backends: each library has kernels of its own, and which is fastest depends on the GPU and the shape.",
)
def _fused_attention(f: Facts) -> str | None:
    k = next((k for k in _compute(f) if k.decoded.is_fused_attention), None)
    if k is None:
        return None
    d = k.decoded
    library = LIBRARIES[d.family] + (", as built into PyTorch" if "pytorch_flash" in k.name else "")
    said = (("for", d.architecture), ("in", d.dtype), ("tile", d.tile), ("variant (knob)", d.knob))
    return f"{d.label}: of {library}; {', '.join(f'{word} {value}' for word, value in said if value)}; {_us(k.median_us)} a call"


@finding(
    "opaque-op",
    "an op takes long and holds nothing",
    "self CPU time of the op in the table",
    "The CPU's time went into one op of a library, where the trace sees no further: choosing and preparing its kernel.",
    "It matters where the GPU waits for it; with_stack and the profiler's ops do not reach inside, a CPU profiler (perf) does.",
)
def _opaque_op(f: Facts) -> str | None:
    step = f.middle_step
    op = next((op for op in f.attention_ops if step and op.own_us >= OPAQUE_SHARE * step.cpu_us), None)
    if op is None or step is None:
        return None
    return (
        f"{op.name}: {_us(op.own_us)} of its {_us(op.median_us)} are in no op or call inside it, "
        f"{op.own_us / step.cpu_us:.0%} of {step.name}'s CPU time"
    )


@finding(
    "low-occupancy-by-design",
    "few warps on an SM",
    "registers, shared memory and block of the kernel",
    "Few warps fit on an SM because each takes many registers or much shared memory, to keep its data on the chip.",
    "For GEMMs and attention this is how they are fast; only for light kernels is it a fault.",
)
def _low_occupancy(f: Facts) -> str | None:
    for k in _compute(f):
        o = k.occupancy
        if o and o.theoretical <= LOW_OCCUPANCY and o.limited_by in ("registers", "shared memory") and k.block:
            threads = 1
            for side in k.block:
                threads *= side
            registers = (f.device_properties or {}).get("regsPerMultiprocessor")
            if o.limited_by == "registers":
                why = f"{threads} threads x {k.registers_per_thread} registers = {threads * (k.registers_per_thread or 0):,}"
                why += f" of {registers:,} an SM" if isinstance(registers, int) else ""
            else:
                shared = (f.device_properties or {}).get("sharedMemPerMultiprocessor")
                why = f"{k.shared_memory_bytes:,} of {shared:,} B of shared memory an SM" if shared else "shared memory"
            blocks = f"{o.blocks} block{'s' if o.blocks != 1 else ''}"
            return f"{k.decoded.label}: {why}: {blocks}, {o.warps} of {o.max_warps} warps ({o.theoretical:.1%})"
    return None


@finding(
    "occupancy-not-estimated",
    "est. achieved occupancy reads 0",
    "the kernel's arguments",
    "The profiler's estimate reads 0 for a kernel with more than 48 KiB of shared memory: that is a gap in its estimate, "
    "not an idle GPU.",
    "Take the theoretical occupancy, worked out here from registers, shared memory and block size.",
)
def _occupancy_not_estimated(f: Facts) -> str | None:
    gaps = [k for k in _compute(f) if (k.shared_memory_bytes or 0) > HEAVY_SHARED_BYTES]
    return _names(f"{k.decoded.label} ({k.shared_memory_bytes:,} B)" for k in gaps) if gaps else None


@finding(
    "annotation-double-count",
    "Self CUDA % above 100%",
    "the annotation's row in the table",
    "The profiler's table lists the annotation a second time, as a row of the device, and leaves it out of the total: "
    "so Self CUDA % passes 100%.",
    "Ignore the annotation's own device row.",
)
def _double_count(f: Facts) -> str | None:
    total = sum(f.gpu_time_by_origin_us.values())
    name, us = max(f.annotation_gpu_us.items(), key=lambda item: (item[1], item[0]), default=("", 0.0))
    if not total or us <= total:
        return None
    return f"{name} spans {_us(us)} on the GPU's lane, {us / total:.0%} of the GPU's summed time"


@finding(
    "carried-over",
    "more kernels than the steps launched",
    "kernels at the very start of the GPU's lane",
    "Work that was launched before the recording and still ran when it began: no recorded step launched it.",
    "Synchronize before recording starts; here it is in no step and in no mean.",
)
def _carried_over(f: Facts) -> str | None:
    n = f.gpu_events_by_origin["carried_over"]
    return f"{_n(n, 'GPU event')}, {_us(f.gpu_time_by_origin_us['carried_over'])}" if n else None


@finding(
    "graph-launch",
    "many kernels, one launch",
    "cudaGraphLaunch",
    "A CUDA graph replays many kernels with one launch; they have no op of their own.",
    "Count kernels, not launches; small kernels that copy the graph's inputs come on top.",
)
def _graph_launch(f: Facts) -> str | None:
    n = f.gpu_events_by_origin["graph"]
    launches = sum(c.calls for c in f.calls if "GraphLaunch" in c.name)
    return f"{_n(n, 'GPU event')} from {_n(launches, 'graph launch', 'graph launches')}" if n else None


@finding(
    "crossing-slices",
    "a kernel in the table that the viewer does not show",
    "the stream's lane",
    "These slices overlap others on their stream without lying inside them; Perfetto hides such slices.",
    'Turn on "Preserve overlapping events" in Perfetto\'s flags to see them.',
)
def _crossing_slices(f: Facts) -> str | None:
    if not f.crossing:
        return None
    return f"{_n(sum(f.crossing.values()), 'slice')}: {_names(name[:60] for name in f.crossing)}"


@finding(
    "zero-timestamps",
    "kernels with a start or a duration of 0",
    "the first kernels of the recording",
    "Kernels with a start or duration of 0: CUPTI of CUDA 12.6 update 2 up to 13.0 loses times at a session's start.",
    "Their durations are not to be trusted; fixed in 13.1.",
)
def _zero_timestamps(f: Facts) -> str | None:
    return f"{f.zero_timestamps} of {f.kernels_total} kernels" if f.zero_timestamps else None
