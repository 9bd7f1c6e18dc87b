"""Calls of the runtime and driver: how kernels are launched, and who waits."""

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.kernel_facts import SMALL_SHARED_BYTES, KernelFacts
from trace_reader.findings.registry import Seen, calls_of, finding, listed
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.call_names import asks_occupancy, is_synchronizing
from trace_reader.units import count, us

LONG_SYNC_US = 100
HEAVY_REGISTERS = 128


def _is_heavy(k: KernelFacts) -> bool:
    return (k.registers_per_thread or 0) >= HEAVY_REGISTERS or (k.shared_memory_bytes or 0) > SMALL_SHARED_BYTES


def _footprint(k: KernelFacts) -> str:
    return f"{k.registers_per_thread} registers a thread, {k.shared_memory_bytes or 0:,} B of shared memory"


@finding(
    "heavy-launch",
    "a query named ...Occupancy... stands before a launch",
    "the runtime calls under the GEMM's op",
    "A heavyweight kernel (GEMM, convolution, attention) is launched adaptively: the library asks first how many of its "
    "blocks fit on an SM.",
    "Click it and read its registers, shared memory, grid and block.",
    trivia=True,
)
def _heavy_launch(trace: Trace, facts: Facts) -> Seen | None:
    queries = sum(s.occupancy_queries for s in facts.steps)
    heavy = next((k for k in facts.compute_kernels if _is_heavy(k)), None)
    if heavy is None or not queries:
        return None
    how = f"{count(queries, 'occupancy query', 'occupancy queries')} in {count(len(facts.steps), 'step')}"
    return Seen(f"{heavy.decoded.label}: {how}, {_footprint(heavy)}", trace.calls.where(trace.calls.is_named(asks_occupancy)))


@finding(
    "driver-launch",
    "a kernel has no cudaLaunchKernel",
    "the launch that the kernel's arrow comes from",
    "Launched through the driver (cuLaunch...), not through the runtime (cudaLaunchKernel): cuDNN, Triton, and cuBLAS on "
    "newer GPUs do so, for kernels that they load or make themselves.",
    "Search the trace for both names: searching only for cudaLaunchKernel misses these launches.",
    trivia=True,
)
def _driver_launch(trace: Trace, facts: Facts) -> Seen | None:
    driven = [k for k in facts.compute_kernels if (k.launch or "").startswith("cuLaunch")]
    seen = listed(f"{k.decoded.label} ({k.launch}, {_footprint(k)})" for k in driven)
    return Seen(seen, calls_of(trace, *driven)) if driven else None


@finding(
    "light-launch",
    "a launch has no query before it",
    "the runtime calls under an elementwise op",
    "An elementwise or reduction kernel is launched without asking: its footprint is small and always fits.",
    "Compare its footprint with the heavy one's.",
    trivia=True,
)
def _light_launch(trace: Trace, facts: Facts) -> Seen | None:
    light = next(
        (
            k
            for k in facts.compute_kernels
            if not _is_heavy(k) and k.registers_per_thread and (k.launch or "").startswith(("cudaLaunch", "hip"))
        ),
        None,
    )
    if light is None:
        return None
    return Seen(f"{light.decoded.label}: launched by {light.launch}, {_footprint(light)}", calls_of(trace, light))


@finding(
    "profiler-sync",
    "a long cudaDeviceSynchronize stands at the very end",
    "the CPU's lane, after the last step",
    "The synchronize after the last step is usually the profiler's own: it waits for the GPU before it collects the events.",
    "Do not count it: it is absent from unprofiled runs.",
    trivia=True,
)
def _profiler_sync(trace: Trace, facts: Facts) -> Seen | None:
    longest_us, last = final_sync_us(trace), _final_syncs(trace)
    if longest_us < LONG_SYNC_US:
        return None
    return Seen(f"a synchronizing call of {us(longest_us)} after the last step", last.where(last.duration_us == longest_us))


def final_sync_us(trace: Trace) -> float:
    """The longest synchronizing call that ends after the last step; 0 for none."""
    return float(_final_syncs(trace).duration_us.max(initial=0)) if len(trace.steps) else 0.0


def _final_syncs(trace: Trace) -> Rows:
    later = trace.calls.where(trace.calls.end_ns > trace.steps.end_ns[-1:].max(initial=0))
    return later.where(later.is_named(is_synchronizing))
