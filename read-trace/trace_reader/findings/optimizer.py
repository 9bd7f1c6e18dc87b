"""The optimizer's step."""

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, dropped, skipped
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.units import about, us

STEP = "Optimizer.step#"
MANY_KERNELS = 50  # a step
MIN_SHARE_OF_PATH = 0.02  # of the path
# What a fused optimizer leaves of the GPU's time of a loop over the parameters, at best and surely, and of the CPU's.
FUSED_GPU, FUSED_CPU = (0.1, 0.6), 0.2
# On a CPU: two cores took 0.10 to 0.38 of the time that one operation after another took, in parameters of 64 to 16 M numbers
# (torch 2.15, 2026-11-25). SGD's took up to 1.5 times as long: it is not named.
FUSED_ON_CPU = frozenset(["Optimizer.step#Adam.step", "Optimizer.step#AdamW.step"])
LEFT_ON_CPU = (0.1, 0.6)
WORTH_TELLING_ON_CPU = 0.05  # of the steps' time
FEW_KERNELS = 5  # a step, of an optimizer that goes over lists of parameters
FUSED_OF_FOREACH = 0.3  # of the GPU's time of such a one, at best: it reads and writes all of them once, not several times


@finding(
    "unfused-optimizer",
    "hundreds of small kernels after the backward pass",
    "the annotation Optimizer.step#..., and what it launches",
    "The optimizer step runs several kernels (on a CPU: ops) for each parameter, or each list of parameters, one operation after "
    "another.",
    "Use fused=True (or foreach=True): a few kernels then update all parameters.",
)
def _unfused_optimizer(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is not None and facts.verdict == "cpu-only":
        return _on_cpu(trace, path)
    is_step = trace.slices.are_named(Kind.ANNOTATION, lambda name: name.startswith(STEP))
    launched = trace.linked.where((trace.linked.call >= 0) & (trace.linked.kind == Kind.KERNEL))
    rows = launched.where(innermost(trace.slices, trace.parent, launched.call, is_step) >= 0)
    steps = trace.annotations.where(is_step[trace.annotations.at])
    by_lists = rows.is_named(lambda name: "multi_tensor_apply" in name)
    if path is None or not len(steps) or rows.is_named(lambda name: "Fused" in name).any():
        return None
    if by_lists.sum() >= FEW_KERNELS * len(steps) and (~by_lists).sum() < MANY_KERNELS * len(steps):
        return _foreach(path, steps, rows)
    if (~by_lists).sum() < MANY_KERNELS * len(steps):
        return None
    spent = Rows(trace.slices, np.sort(np.concatenate([steps.at, rows.at])))
    share = path.explained_us(spent) / path.window_us
    if share < MIN_SHARE_OF_PATH:
        return None
    kernels = f"{len(rows) / len(steps):.0f} kernels per optimizer step (median {us(rows.median_us)})"
    seen = f"{kernels} and {us(steps.median_us)} of CPU time: {about(share)} of the critical path"
    effect = Effect(dropped(steps, left_of_gpu=FUSED_GPU[0]), dropped(steps, FUSED_CPU, FUSED_GPU[1]), REPLACED)
    return Seen(seen, steps, share=share, effect=effect)


def _on_cpu(trace: Trace, path: CriticalPath) -> Seen | None:
    """Return an optimizer of the CPU's that goes over the parameters, one operation after the other, and has a fused one."""
    steps = trace.annotations.where(trace.annotations.is_named(FUSED_ON_CPU.__contains__))
    steps = steps.where((steps.start_ns >= path.start_ns) & (steps.end_ns <= path.end_ns))
    if not len(steps):
        return None
    ops = Rows(trace.slices, outermost(trace.slices, trace.ops.at))
    ops = ops.where(each_within_ns(ops.start_ns, ops.start_ns + 1, merged(steps.start_ns, steps.end_ns)) > 0)
    share = path.explained_us(steps) / path.window_us
    if share < WORTH_TELLING_ON_CPU or not len(ops) or ops.is_named(lambda name: "fused" in name).any():
        return None
    seen = f"{len(ops) / len(steps):.0f} ops per optimizer step, and {us(steps.median_us)}: {about(share)} of the time"
    union = merged(steps.start_ns, steps.end_ns)
    most, least = (skipped(union, left) for left in LEFT_ON_CPU)
    return Seen(
        seen, steps, "Use fused=True: one op then reads and writes each parameter once.", share, Effect(most, least, REPLACED)
    )


def _foreach(path: CriticalPath, steps: Rows, rows: Rows) -> Seen | None:
    """Return an optimizer that goes over lists of parameters, one operation after the other."""
    kernels = f"{len(rows) / len(steps):.0f} kernels per optimizer step, each over a list of parameters"
    seen = f"{kernels} (foreach), and {us(steps.median_us)} of CPU time"
    spent = Rows(steps.slices, np.sort(np.concatenate([steps.at, rows.at])))
    effect = Effect(dropped(steps, left_of_gpu=FUSED_OF_FOREACH), kind=REPLACED)
    next = "Use fused=True: one kernel then reads and writes a list of parameters once."
    return Seen(seen, steps, next, path.explained_us(spent) / path.window_us, effect)
