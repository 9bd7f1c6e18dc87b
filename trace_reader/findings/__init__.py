"""The patterns that the posts teach, as rules: each is silent unless its evidence is there. A subject is a file."""

from trace_reader.analysis.facts import Facts, Finding
from trace_reader.findings import attention, calls, compiled, gemm, kernels, memory, occupancy, recording, steps, verdict, waits
from trace_reader.findings.registry import RULES, Seen
from trace_reader.link.trace import Trace

__all__ = ["PATTERNS", "run_rules"]
# In the order in which they are told; in a file, from the top.
_SUBJECTS = (verdict, waits, steps, calls, memory, kernels, gemm, compiled, attention, occupancy, recording)
_ORDER = [module.__name__ for module in _SUBJECTS]
PATTERNS = dict(sorted(RULES.items(), key=lambda item: _ORDER.index(item[1].rule.__module__)))


LESSON_SIZE = 300  # kernels, copies and memsets, at most


def run_rules(trace: Trace, facts: Facts, everything: bool = False) -> tuple[Finding, ...]:
    """What the rules see, in their order. Trivia are told of a trace no larger than a lesson's, or for `everything`."""
    found = []
    for slug, pattern in PATTERNS.items():
        if pattern.trivia and not everything and len(trace.work) > LESSON_SIZE:
            continue
        if seen := pattern.rule(trace, facts):
            text, next = (seen.text, seen.next) if isinstance(seen, Seen) else (seen, pattern.next)
            found.append(Finding(slug, text, pattern.means, next))
    return tuple(found)
