"""A first step that takes longer, and the gap before a step's first op."""

import numpy as np
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.step_facts import entry_gaps
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.trace import Trace
from trace_reader.model.rows import median
from trace_reader.units import us

COLD_FACTOR = 1.5


@finding(
    "cold-start",
    "the first recorded step is much longer than the others",
    "the ProfilerStep slices",
    "The first recorded step may pay one-time costs, of the program or of the profiler.",
    "Read the later steps; a warm-up removes what the program pays once. The trace does not explain any slowness that remains.",
)
def _cold_start(trace: Trace, facts: Facts) -> Seen | None:
    if len(facts.steps) < 3 or facts.server_steps:  # of a server, prefill and decode are no equal steps
        return None
    first, *later = (s.cpu_us - s.sync_us for s in facts.steps)  # what the CPU waits for the GPU is no cost of its own
    middle = median(np.array(later))
    if first < COLD_FACTOR * middle:
        return None
    seen = f"{facts.steps[0].name} takes {us(first)} of CPU time, the later steps {us(middle)} (median)"
    return Seen(seen, trace.steps.where(np.arange(1)), share=0.0)  # the path begins with the second step


@finding(
    "entry-gap",
    "an annotation begins long before its first op",
    "between the annotation's start and its first aten:: slice",
    "No op was recorded between the annotation's start and its first op. The time may be Python or initialization.",
    "Compare the steps: a shrinking gap suggests a cold start; under torch.compile it may be Python overhead before the guard "
    "checks.",
    trivia=True,
)
def _entry_gap(trace: Trace, facts: Facts) -> Seen | None:
    gaps = [s.entry_gap_us for s in facts.steps if s.entry_gap_us is not None]
    if not gaps or max(gaps) < 10 or max(gaps) < 2 * min(gaps):
        return None
    each = (f"{s.name.removeprefix('ProfilerStep')} {us(s.entry_gap_us)}" for s in facts.steps[:5] if s.entry_gap_us is not None)
    return Seen(f"from the annotation's start to its first op: {', '.join(each)}", trace.steps, gaps=entry_gaps(trace)[1:])
