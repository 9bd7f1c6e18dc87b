"""Calls of the runtime and driver: how kernels are launched, and the profiler's own synchronize."""

from collections import Counter

import numpy as np
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.kernel_facts import SMALL_SHARED_BYTES, KernelFacts
from trace_reader.findings.registry import Seen, calls_of, finding, listed
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import asks_occupancy, is_synchronizing
from trace_reader.names.kernel_names import decode_name
from trace_reader.units import count, us

LONG_SYNC_US = 100
HEAVY_REGISTERS = 128


def _is_heavy(k: KernelFacts) -> bool:
    return (k.registers_per_thread or 0) >= HEAVY_REGISTERS or (k.shared_memory_bytes or 0) > SMALL_SHARED_BYTES


def _footprint(k: KernelFacts) -> str:
    return f"{k.registers_per_thread} registers per thread, {k.shared_memory_bytes or 0:,} B of shared memory"


@finding(
    "heavy-launch",
    "a query named ...Occupancy... stands before a launch",
    "the runtime calls of a step",
    "In the op that then launched the kernel named here, a library asked how much fits on the GPU at once (blocks, clusters, "
    "shared memory). A query far ahead of the launch may belong to the set-up of the process.",
    "Compare that kernel's registers and shared memory with those of kernels that are launched without such a query.",
    trivia=True,
)
def _heavy_launch(trace: Trace, facts: Facts) -> Seen | None:
    queries = trace.calls.where(trace.calls.is_named(asks_occupancy))
    queries = queries.where(trace.step_at(queries.start_ns) >= 0)
    op = innermost(trace.slices, trace.parent, queries.at, trace.slices.kind == Kind.OP)
    queries = Rows(trace.slices, queries.at, op=op)
    launched = trace.linked.where((trace.linked.call >= 0) & (trace.linked.kind == Kind.KERNEL))
    called_ns, track = trace.slices.start_ns[launched.call], trace.slices.track[launched.call]
    after: Counter[str] = Counter()
    for (thread,), query in queries.by(queries.track):
        mine = np.flatnonzero(track == thread)
        mine = mine[np.argsort(called_ns[mine], kind="stable")]
        next_ = np.searchsorted(called_ns[mine], query.start_ns)
        found = launched.where(mine[next_[next_ < len(mine)]])
        same_op = found.op == query.op[next_ < len(mine)]
        after.update(decode_name(name).label for name in found.where(same_op).names)
    if not after:
        return None
    in_steps = distinct(trace.step_at(queries.start_ns)).values
    where = trace.steps[int(in_steps[0])].name if len(in_steps) == 1 else count(len(in_steps), "step")
    how = f"{count(len(queries), 'occupancy query', 'occupancy queries')} in {where}"
    return Seen(f"{how}; launched next: {listed(f'{label} (after {n})' for label, n in after.most_common())}", queries)


@finding(
    "driver-launch",
    "a kernel has no cudaLaunchKernel",
    "the launch that the kernel's arrow comes from",
    "These kernels are launched through the driver (cuLaunch...), not through the runtime (cudaLaunchKernel). Triton, cuDNN "
    "and newer cuBLAS often do this.",
    "Search for both names: searching only for cudaLaunchKernel misses these launches.",
    trivia=True,
)
def _driver_launch(trace: Trace, facts: Facts) -> Seen | None:
    driven = [k for k in facts.compute_kernels if (k.launch or "").startswith("cuLaunch")]
    seen = listed(dict.fromkeys(f"{k.decoded.label} ({k.launch})" for k in driven))
    return Seen(seen, calls_of(trace, *driven)) if driven else None


@finding(
    "light-launch",
    "a kernel with fewer registers and less shared memory than others",
    "the kernel's registers per thread and shared memory",
    "This kernel has fewer than 128 registers per thread and at most 48 KiB of shared memory. Registers can limit its occupancy "
    "all the same.",
    "Compare its footprint with that of a heavy kernel.",
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
    return Seen(f"{light.decoded.label} is launched by {light.launch} and has {_footprint(light)}", calls_of(trace, light))


@finding(
    "profiler-sync",
    "a long cudaDeviceSynchronize at the very end",
    "the CPU's lane, after the last step",
    "A synchronize after the last step is usually the profiler's own: it waits for the GPU before it collects the events.",
    "Do not count it: it is usually absent from unprofiled runs.",
    trivia=True,
)
def _profiler_sync(trace: Trace, facts: Facts) -> Seen | None:
    longest_us, last = _final_sync_us(trace), _final_syncs(trace)
    if longest_us < LONG_SYNC_US:
        return None
    return Seen(f"a synchronizing call of {us(longest_us)} ends after the last step", last.where(last.duration_us == longest_us))


def _final_sync_us(trace: Trace) -> float:
    """Return the longest synchronizing call that ends after the last step; 0 for none."""
    return float(_final_syncs(trace).duration_us.max(initial=0)) if len(trace.steps) else 0.0


def _final_syncs(trace: Trace) -> Rows:
    later = trace.calls.where(trace.calls.end_ns > trace.steps.end_ns[-1:].max(initial=0))
    return later.where(later.is_named(is_synchronizing))
