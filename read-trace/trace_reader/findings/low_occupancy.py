"""Occupancy: how full the multiprocessors are."""

import math

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, all_of, scaled
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.kernel_facts import SMALL_SHARED_BYTES
from trace_reader.findings.registry import Seen, calls_of, finding, listed
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Footprint, Kind
from trace_reader.names.kernel_names import decode_name, is_collective
from trace_reader.units import about, count

LOW_OCCUPANCY = 0.25
SHORTEST_US = 5  # what is shorter does not become shorter on more multiprocessors
SMALL_GRID = 0.05  # of the path, times the share of the multiprocessors that has nothing to do


@finding(
    "low-occupancy-by-design",
    "few warps on an SM",
    "the kernel's registers, shared memory and block",
    "Registers or shared memory limit this kernel to few warps per SM. GEMMs and attention accept this to keep data on the "
    "chip, avoiding memory traffic.",
    "Treat it as a fault only in light kernels.",
    trivia=True,
)
def _low_occupancy(trace: Trace, facts: Facts) -> Seen | None:
    for k in facts.compute_kernels:
        o = k.occupancy
        if o and o.theoretical <= LOW_OCCUPANCY and o.limited_by in ("registers", "shared memory") and k.block:
            threads = 1
            for side in k.block:
                threads *= side
            registers = (facts.device_properties or {}).get("regsPerMultiprocessor")
            if o.limited_by == "registers":
                why = f"{threads} threads x {k.registers_per_thread} registers = {threads * (k.registers_per_thread or 0):,}"
                why += f" of {registers:,} per SM" if isinstance(registers, int) else ""
            else:
                shared = (facts.device_properties or {}).get("sharedMemPerMultiprocessor")
                why = f"{k.shared_memory_bytes:,} of {shared:,} B of shared memory per SM" if shared else "shared memory"
            blocks = f"{o.blocks} block{'s' if o.blocks != 1 else ''}"
            seen = f"{k.decoded.label}: {why}: {blocks}, {o.warps} of {o.max_warps} warps ({o.theoretical:.1%})"
            return Seen(seen, calls_of(trace, k))
    return None


@finding(
    "small-grid",
    "a kernel with fewer blocks than the GPU has multiprocessors",
    "the kernel's grid, beside numSms in the file's header",
    "Each block runs on one multiprocessor, so a small grid leaves some of them without a block of this kernel.",
    "Give small kernels more parallel work: a larger batch, or split the dimension that they loop over (split-K, more blocks per "
    "head).",
)
def _small_grid(trace: Trace, facts: Facts) -> Seen | None:
    path, sms = facts.critical_path, (facts.device_properties or {}).get("numSms")
    if path is None or not isinstance(sms, int) or sms < 1:
        return None
    found, faster = [], []
    kernels = trace.linked.where((trace.linked.kind == Kind.KERNEL) & (trace.linked.duration_us >= SHORTEST_US))
    kernels = kernels.where(~kernels.is_named(is_collective))
    for (detail,), rows in kernels.by(kernels.detail):
        footprint = trace.slices.details[detail] if detail >= 0 else None
        if not isinstance(footprint, Footprint) or not footprint.grid or (blocks := math.prod(footprint.grid)) >= sms:
            continue
        found.append((path.explained_us(rows) * (1 - blocks / sms), blocks, rows))
        faster.append(scaled(rows, blocks / sms))
    idle_us = sum(idle_us for idle_us, *_ in found)
    if idle_us < SMALL_GRID * path.window_us:
        return None
    _, blocks, most = max(found, key=lambda each: each[0])
    seen = (
        f"{count(sum(len(rows) for *_, rows in found), 'kernel call')} with fewer blocks than the {sms} multiprocessors, above "
        f"all {decode_name(most[0].name).label} ({count(blocks, 'block')}); weighted by the unused multiprocessors: "
        f"{about(idle_us / path.window_us)} of the critical path"
    )
    rows = Rows(trace.slices, np.sort(np.concatenate([rows.at for *_, rows in found])))
    return Seen(seen, rows, share=idle_us / path.window_us, effect=Effect(all_of(*faster), kind=REPLACED))


@finding(
    "occupancy-not-estimated",
    "est. achieved occupancy reads 0",
    "the kernel's arguments",
    "The profiler's estimate can read 0 for a kernel with more than 48 KiB of shared memory. This is a gap in the estimate, "
    "not an idle GPU.",
    "Use the theoretical occupancy, computed here from registers, shared memory and block size.",
    trivia=True,
)
def _occupancy_not_estimated(trace: Trace, facts: Facts) -> Seen | None:
    gaps = [k for k in facts.compute_kernels if (k.shared_memory_bytes or 0) > SMALL_SHARED_BYTES]
    seen = listed(dict.fromkeys(f"{k.decoded.label} ({k.shared_memory_bytes:,} B)" for k in gaps))
    return Seen(f"more than 48 KiB of shared memory: {seen}", calls_of(trace, *gaps)) if gaps else None
