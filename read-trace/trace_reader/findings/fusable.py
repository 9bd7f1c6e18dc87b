"""Kernels that one kernel could do the work of: elementwise ones, softmaxes and reductions that follow each other; and whether
torch.compile was to do that, and gave up.
"""

import numpy as np
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among
from trace_reader.model.slices import Kind
from trace_reader.names.kernel_names import decode_name

LEFT_OF_LONGEST = 0.5  # of the longest kernel of a run, at best, of one that does the work of all: it reads and writes less
FUSABLE = frozenset(["ATen elementwise", "ATen reduce"])
OPTIMIZER_STEP = "Optimizer.step#"
CACHE_LOOKUP = "TorchDynamo Cache Lookup"
COMPILED = ("Torch-Compiled Region", "CompiledFunction")  # forward, and backward: CompiledFunctionBackward


def optimizer_steps(trace: Trace) -> Rows:
    """Return the annotations around the steps of optimizers."""
    return trace.annotations.where(trace.annotations.is_named(lambda name: name.startswith(OPTIMIZER_STEP)))


def of_the_optimizer(trace: Trace, rows: Rows) -> np.ndarray:
    """For each GPU event whether an optimizer's step launched it: that has a finding of its own."""
    is_step = trace.slices.are_named(Kind.ANNOTATION, lambda name: name.startswith(OPTIMIZER_STEP))
    found = np.zeros(len(rows), bool)
    launched = rows.call >= 0
    found[launched] = innermost(trace.slices, trace.parent, rows.call[launched], is_step) >= 0
    return found


def fusable(trace: Trace) -> tuple[Rows, Rows]:
    """Return the runs of elementwise kernels, softmaxes and reductions on a stream: all but the longest of each, and the
    longest.
    """
    kernels = trace.work.where(trace.work.kind == Kind.KERNEL)
    if not len(kernels):
        return kernels, kernels
    kernels = kernels.where(np.lexsort((kernels.start_ns, kernels.track)))
    simple = kernels.is_named(lambda name: decode_name(name).is_softmax or decode_name(name).library in FUSABLE)
    simple &= ~of_the_optimizer(trace, kernels)
    begins = np.append(True, (simple[1:] != simple[:-1]) | (kernels.track[1:] != kernels.track[:-1]))
    run = np.cumsum(begins)
    order = np.lexsort((-kernels.duration_us, run))
    longest = np.zeros(len(kernels), bool)
    longest[order[np.append(True, run[order][1:] != run[order][:-1])]] = True
    gone, left = (kernels.at[simple & which] for which in (~longest, longest))
    return trace.work.where(among(trace.work.at, gone)), trace.work.where(among(trace.work.at, left))


def calls_that_ran_eager(trace: Trace) -> Rows:
    """Return the cache lookups of compiled functions in the steps, where no compiled code ran in the whole trace."""
    lookups = trace.ops.where(trace.ops.is_named(CACHE_LOOKUP.__eq__))
    has_compiled = trace.ops.is_named(lambda name: name.startswith((*COMPILED, "## Call CompiledFxGraph"))).any()
    inside = trace.step_at(lookups.start_ns) >= 0 if len(trace.steps) else np.ones(len(lookups), bool)
    return lookups.where(inside & ~has_compiled)
