"""Copies that nobody wrote, and memory that the profiler asks for."""

from collections import defaultdict

import numpy as np
from trace_reader.analysis.facts import Facts
from trace_reader.findings.registry import Seen, a_step, finding
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import Activity, Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.kernels import decode_name
from trace_reader.names.ops import is_device_copy
from trace_reader.units import count, us

# Whoever calls these asks for a copy.
COPYING_OPS = frozenset(
    f"aten::{name}"
    for name in ("copy_", "to", "_to_copy", "clone", "contiguous", "cat", "stack", "item", "_local_scalar_dense", "lift_fresh",
                 "repeat", "reshape", "_foreach_copy_", "index_select", "narrow_copy", "fill_", "scatter", "full_like")
)  # fmt: skip
WORTH_TELLING = 0.01  # of the GPU's time


@finding(
    "hidden-copy",
    "a copy that nobody wrote",
    "a Memcpy DtoD on the GPU's lane, and the cudaMemcpyAsync that launched it",
    "A copy from device to device that nobody wrote: an out-of-place op copies its input before it changes the copy.",
    "Use the in-place form where the input is not needed any more (masked_fill_ for masked_fill).",
)
def _hidden_copy(trace: Trace, facts: Facts) -> str | Seen | None:
    total_us = trace.linked.total_us or 1.0
    seen, in_place = [], True
    for path, copies in sorted(_by_path(trace, _device_copies(trace)).items()):
        outer, _, inner = path.partition(" > ")
        share = sum(copy.event.duration_us for copy in copies) / total_us
        if outer in COPYING_OPS or not inner or "addmm" in path or share < WORTH_TELLING:
            continue
        megabytes = sum(copy.event.detail or 0 for copy in copies) / len(copies) / 1e6  # type: ignore[misc, operator]
        how_many = a_step(len(copies), facts, "copy", "copies")
        seen.append(f"{path}: {how_many} of {megabytes:.1f} MB, {share:.0%} of the GPU's time")
        in_place &= outer == "aten::masked_fill"
    if not seen:
        return None
    return "; ".join(seen) if in_place else Seen("; ".join(seen), "See what the op copies for: another op may do without.")


def _device_copies(trace: Trace) -> Rows:
    return trace.linked.where((trace.linked.kind == Kind.MEMCPY) & trace.linked.is_named(is_device_copy))


def _by_path(trace: Trace, copies: Rows) -> dict[str, list[Activity]]:
    """The copies by the outermost aten op around them and the op that made them, joined by " > "."""
    aten = trace.ops.where(trace.ops.is_named(lambda name: name.startswith("aten::")))
    is_outermost = np.zeros(len(trace.slices), bool)
    is_outermost[outermost(trace.slices, aten.at)] = True
    outer = np.full(len(copies), -1)
    launched = copies.call >= 0
    outer[launched] = innermost(trace.slices, trace.parent, copies.call[launched], is_outermost)
    paths: dict[str, list[Activity]] = defaultdict(list)
    for copy, row in zip(trace.activities(copies), outer.tolist(), strict=True):
        ops = ([trace.slices[row].name] if row >= 0 else []) + ([copy.op.name] if copy.op else [])
        paths[" > ".join(dict.fromkeys(ops)) or "no op"].append(copy)
    return paths


@finding(
    "bias-copy",
    "a Memcpy DtoD stands right before a GEMM",
    "the GPU's lane, under aten::addmm",
    "addmm copies the bias into the output, then a GEMM adds its product to it (beta = 1): fused in the dispatcher, not "
    "in the kernel.",
    "A one-dimensional bias (nn.Linear) goes into the GEMM's epilogue instead, without the copy.",
)
def _bias_copy(trace: Trace, facts: Facts) -> str | None:
    copies = bias_copies(trace)
    how_many = a_step(copies, facts, "device-to-device copy", "device-to-device copies")
    return f"{how_many} in an addmm that launches a GEMM" if copies else None


def bias_copies(trace: Trace) -> int:
    """Device-to-device copies whose op is an addmm that launches a GEMM, too."""
    gemms = trace.linked.where((trace.linked.op >= 0) & trace.linked.is_named(lambda name: decode_name(name).is_gemm))
    copies = _device_copies(trace)
    ops = copies.op[(copies.op >= 0) & np.isin(copies.op, gemms.op)]
    return int(trace.slices.named(lambda name: "addmm" in name)[trace.slices.name[ops]].sum())


@finding(
    "profiler-buffer",
    "an Activity Buffer Request",
    "the overhead lane, before the first kernel",
    "The profiler asked for memory for its own records; the GPU can pause meanwhile.",
    "It is not the program's. Give the schedule a wait and a warmup step.",
)
def _profiler_buffer(trace: Trace, facts: Facts) -> str | None:
    buffers = trace.overheads.where(trace.overheads.is_named("Activity Buffer Request".__eq__))
    return f"{count(len(buffers), 'Activity Buffer Request')}, {us(buffers.total_us)} in all" if len(buffers) else None
