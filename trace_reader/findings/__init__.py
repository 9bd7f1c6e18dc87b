"""The patterns that the posts teach, as rules: each is silent unless its evidence is there. A subject is a file."""

from trace_reader.analysis.facts import Facts, Finding
from trace_reader.findings import attention, calls, compiled, gemm, kernels, memory, occupancy, recording, steps, verdict
from trace_reader.findings.registry import RULES
from trace_reader.link.trace import Trace

__all__ = ["PATTERNS", "run_rules"]
# In the order in which they are told; in a file, from the top.
_SUBJECTS = (verdict, steps, calls, memory, kernels, gemm, compiled, attention, occupancy, recording)
_ORDER = [module.__name__ for module in _SUBJECTS]
PATTERNS = dict(sorted(RULES.items(), key=lambda item: _ORDER.index(item[1].rule.__module__)))


def run_rules(trace: Trace, facts: Facts) -> tuple[Finding, ...]:
    """What the rules see, in their order."""
    found = []
    for slug, pattern in PATTERNS.items():
        if seen := pattern.rule(trace, facts):
            found.append(Finding(slug, seen, pattern.means, pattern.next))
    return tuple(found)
