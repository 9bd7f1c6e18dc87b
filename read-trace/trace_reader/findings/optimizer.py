"""The optimizer's step."""

import numpy as np
from trace_reader.analysis.facts import Facts
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.units import about, us

STEP = "Optimizer.step#"
MANY_KERNELS = 50  # a step
WORTH_TELLING = 0.02  # of the path


@finding(
    "unfused-optimizer",
    "hundreds of small kernels after the backward pass",
    "the annotation Optimizer.step#..., and what it launches",
    "The optimizer step launches many separate kernels, as a loop over the parameters does.",
    "Use fused=True (or foreach=True): a few kernels then update all parameters.",
)
def _unfused_optimizer(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    is_step = trace.slices.are_named(Kind.ANNOTATION, lambda name: name.startswith(STEP))
    launched = trace.linked.where((trace.linked.call >= 0) & (trace.linked.kind == Kind.KERNEL))
    own = launched.where(innermost(trace.slices, trace.parent, launched.call, is_step) >= 0)
    steps = trace.annotations.where(is_step[trace.annotations.at])
    one_by_one = own.where(~own.is_named(lambda name: "multi_tensor_apply" in name))
    if path is None or not len(steps) or len(one_by_one) < MANY_KERNELS * len(steps):
        return None
    spent = Rows(trace.slices, np.sort(np.concatenate([steps.at, own.at])))
    share = path.explained_us(spent) / path.window_us
    if share < WORTH_TELLING:
        return None
    kernels = f"{len(own) / len(steps):.0f} kernels per optimizer step (median {us(own.median_us)})"
    return Seen(f"{kernels} and {us(steps.median_us)} of CPU time: {about(share)} of the critical path", steps, share=share)
