"""The patterns to look for in a trace, as rules, a file for each subject. A rule is silent without its evidence."""

from functools import partial

import numpy as np
from trace_reader.analysis.critical_path import CriticalPath
from trace_reader.analysis.facts import Evidence, Facts, Finding, hands
from trace_reader.analysis.plain_run import UNKNOWN, PricedRun
from trace_reader.analysis.what_if import Gain, gain_of
from trace_reader.findings import (
    attention,
    bottleneck,
    cold_steps,
    communication,
    compiled,
    gemm,
    gpu_waits,
    kernel_patterns,
    low_occupancy,
    memory_traffic,
    optimizer,
    recording_effects,
    runtime_calls,
)
from trace_reader.findings.registry import RULES, Pattern, Seen
from trace_reader.guard import Failures
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.system.processes import answers_of

__all__ = ["PATTERNS", "evidence_of", "run_rules"]
# In the order in which they are told; in a file, from the top.
_SUBJECTS = (
    bottleneck, gpu_waits, communication, optimizer, cold_steps, kernel_patterns, memory_traffic, gemm, attention, compiled,
    runtime_calls, low_occupancy, recording_effects,
)  # fmt: skip
_ORDER = [module.__name__ for module in _SUBJECTS]
PATTERNS = dict(sorted(RULES.items(), key=lambda item: _ORDER.index(item[1].rule.__module__)))


LESSON_SIZE = 300  # kernels, copies and memsets, at most


MOST_EVIDENCE = 20  # slices of a finding


def run_rules(trace: Trace, facts: Facts, everything: bool = False) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What the rules find, and which of them failed: what explains most of the critical path first, then what is known to bring
    nothing, trivia last. Trivia are reported only for a trace no larger than a lesson's, or with `everything`.
    """
    asked = [slug for slug, pattern in PATTERNS.items() if everything or not pattern.trivia or len(trace.work) <= LESSON_SIZE]
    judged = answers_of([partial(_judged, trace, facts, slug) for slug in asked], hands(trace))
    found = [finding for finding, _ in judged if finding is not None]
    found.sort(key=lambda finding: (PATTERNS[finding.slug].trivia, finding.is_worthless, -(finding.share or 0.0)))
    return tuple(found), tuple(failure for _, failures in judged for failure in failures)


def _judged(trace: Trace, facts: Facts, slug: str) -> tuple[Finding | None, tuple[str, ...]]:
    """What a rule finds, and whether it failed."""
    pattern, finding, failures = PATTERNS[slug], None, Failures()
    with failures.caught(f"the finding {slug}"):
        if seen := pattern.rule(trace, facts):
            share = _share(seen, facts.critical_path, pattern.trivia)
            evidence, gain = _evidence(trace, seen.evidence), _gain(trace, facts, pattern, seen)
            finding = Finding(slug, seen.text, pattern.means, seen.next or pattern.next, share, evidence, gain)
    return finding, tuple(failures)


def _gain(trace: Trace, facts: Facts, pattern: Pattern, seen: Seen) -> Gain | None:
    """What doing what the finding says next saves of a step without the profiler."""
    if pattern.change is None or facts.plain.how == UNKNOWN or not len(trace.work):
        return None
    gain = gain_of(PricedRun(trace), facts.plain, pattern.change.edit(seen.evidence))
    return Gain(0.0, gain.high) if gain and pattern.change.at_most else gain


def evidence_of(trace: Trace, facts: Facts, slug: str) -> Rows | None:
    """All slices that show a finding, which itself lists only the longest; None if the trace does not show it."""
    seen = PATTERNS[slug].rule(trace, facts) if slug in PATTERNS else None
    return seen.evidence if seen else None


def _share(seen: Seen, path: CriticalPath | None, trivia: bool) -> float | None:
    if path is None:
        return None
    if trivia:  # it teaches how to read, and explains no time
        return 0.0
    return path.explained_us(seen.evidence) / path.window_us if seen.share is None else seen.share


def _evidence(trace: Trace, rows: Rows) -> tuple[Evidence, ...]:
    """The longest of these slices, in order of their starts."""
    longest = np.lexsort((rows.start_ns, -rows.duration_us))[:MOST_EVIDENCE]
    found = [Evidence(s.name, s.track, s.start_us, s.duration_us) for s in rows.where(longest)]
    return tuple(sorted(found, key=lambda e: (e.start_us, -e.duration_us, e.name)))
