"""Steps that differ, and what stands before the first op of one."""

import numpy as np
from trace_reader.analysis.facts import Facts
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.trace import Trace
from trace_reader.units import us

COLD_FACTOR = 1.5


@finding(
    "cold-start",
    "the first recorded step is much wider than the others",
    "the ProfilerStep slices",
    "The first recorded step still pays for something that happens once: caches, allocations, lazy initialization.",
    "Read the later steps. A warm-up before the profiler starts takes away what is the program's, not what is the profiler's own "
    "first step.",
)
def _cold_start(trace: Trace, facts: Facts) -> Seen | None:
    if len(facts.steps) < 3:
        return None
    later = sorted(s.cpu_us for s in facts.steps[1:])
    middle = later[len(later) // 2]
    if facts.steps[0].cpu_us < COLD_FACTOR * middle:
        return None
    seen = f"{facts.steps[0].name} takes {us(facts.steps[0].cpu_us)} of CPU time, the later ones {us(middle)}"
    return Seen(seen, trace.steps.where(np.arange(1)), share=0.0)  # the path begins with the second step


@finding(
    "entry-gap",
    "an annotation begins long before its first op",
    "between an annotation's start and its first aten:: slice",
    "Between the annotation's start and its first op nothing was recorded: Python, or initialization that has no op.",
    "If it shrinks from step to step it was the cold start; under torch.compile it is Python overhead before the guard checks.",
    trivia=True,
)
def _entry_gap(trace: Trace, facts: Facts) -> Seen | None:
    gaps = [s.entry_gap_us for s in facts.steps if s.entry_gap_us is not None]
    if not gaps or max(gaps) < 10 or max(gaps) < 2 * min(gaps):
        return None
    each = (f"{s.name.removeprefix('ProfilerStep')} {us(s.entry_gap_us)}" for s in facts.steps[:5] if s.entry_gap_us is not None)
    return Seen(f"from the annotation to its first op: {', '.join(each)}", trace.steps)
