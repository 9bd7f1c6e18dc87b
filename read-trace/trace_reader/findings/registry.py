"""What a finding is. A rule takes the trace and its facts, and says what it saw, or None: its evidence is not there.

What it saw is a sentence with numbers, and the slices that show it. By the time that these take on the critical path it is
ranked, unless the rule says which share of the path it explains.

To add one, write a function beside the sentences that explain it, in the file of its subject:

    @finding("slug", "what one notices", "where to look", "what it usually means", "what to do next")
    def _rule(trace: Trace, facts: Facts) -> Seen | None:
        ...
"""

from collections.abc import Callable, Iterable

import msgspec
from trace_reader.analysis.cpu_time import is_compiling
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.kernel_facts import KernelFacts
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.units import count


class Seen(msgspec.Struct, frozen=True):
    """What a rule saw, in which slices; what to do `next` in this trace, where that is not what usually helps; and its `share`
    of the critical path, 0 to 1, where that is not the time of the slices.
    """

    text: str
    evidence: Rows
    next: str = ""
    share: float | None = None


Rule = Callable[[Trace, Facts], Seen | None]


class Pattern(msgspec.Struct, frozen=True):
    """What a reader of traces notices first (`symptom`), `where` to look, what it usually `means`, what to do `next`."""

    rule: Rule
    symptom: str
    where: str
    means: str
    next: str
    trivia: bool  # teaches how to read a trace, and mends nothing: told of a lesson's trace only


RULES: dict[str, Pattern] = {}  # by slug


def finding(slug: str, symptom: str, where: str, means: str, next: str, trivia: bool = False) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES[slug] = Pattern(rule, symptom, where, means, next, trivia)
        return rule

    return register


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first names, and how many there are more."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def calls_of(trace: Trace, *kernels: KernelFacts) -> Rows:
    """The slices of these kernels, copies or memsets."""
    return trace.linked.where(trace.linked.is_named({k.name for k in kernels}.__contains__))


def named(rows: Rows, *names: str) -> Rows:
    """Those of the rows that have one of these names."""
    return rows.where(rows.is_named(names.__contains__))


def not_compiling(trace: Trace, calls: Rows) -> Rows:
    """Those of these calls that are not made by torch.compile at work, which tries out kernels."""
    compiling = trace.slices.are_named(Kind.OP, is_compiling)
    return calls.where(innermost(trace.slices, trace.parent, calls.at, compiling) < 0) if compiling.any() else calls


def a_step(n: int, facts: Facts, one: str, many: str) -> str:
    """`1 copy a step`, where every step has as many; else the count in all of the trace."""
    steps = len(facts.steps)
    if steps and n % steps == 0:
        return f"{count(n // steps, one, many)} a step"
    return f"{count(n, one, many)} in {count(steps, 'step')}" if steps else count(n, one, many)
