"""How full the multiprocessors are."""

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.kernels import SMALL_SHARED_BYTES
from trace_reader.findings.registry import finding, listed
from trace_reader.link.trace import Trace

LOW_OCCUPANCY = 0.25


@finding(
    "low-occupancy-by-design",
    "few warps on an SM",
    "registers, shared memory and block of the kernel",
    "Few warps fit on an SM because each takes many registers or much shared memory, to keep its data on the chip.",
    "For GEMMs and attention this is how they are fast; only for light kernels is it a fault.",
    trivia=True,
)
def _low_occupancy(trace: Trace, facts: Facts) -> str | None:
    for k in facts.compute_kernels:
        o = k.occupancy
        if o and o.theoretical <= LOW_OCCUPANCY and o.limited_by in ("registers", "shared memory") and k.block:
            threads = 1
            for side in k.block:
                threads *= side
            registers = (facts.device_properties or {}).get("regsPerMultiprocessor")
            if o.limited_by == "registers":
                why = f"{threads} threads x {k.registers_per_thread} registers = {threads * (k.registers_per_thread or 0):,}"
                why += f" of {registers:,} an SM" if isinstance(registers, int) else ""
            else:
                shared = (facts.device_properties or {}).get("sharedMemPerMultiprocessor")
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
    trivia=True,
)
def _occupancy_not_estimated(trace: Trace, facts: Facts) -> str | None:
    gaps = [k for k in facts.compute_kernels if (k.shared_memory_bytes or 0) > SMALL_SHARED_BYTES]
    return listed(f"{k.decoded.label} ({k.shared_memory_bytes:,} B)" for k in gaps) if gaps else None
