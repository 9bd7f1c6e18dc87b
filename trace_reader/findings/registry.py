"""What a finding is. A rule takes the trace and its facts, and says what it saw, or None: its evidence is not there.

What it says is a sentence with numbers; or `Seen`, with what to do `next` in this trace in the place of what usually helps.

To add one, write a function beside the sentences that explain it, in the file of its subject:

    @finding("slug", "what one notices", "where to look", "what it usually means", "what to do next")
    def _rule(trace: Trace, facts: Facts) -> str | None:
        ...
"""

from collections.abc import Callable, Iterable

import msgspec
from trace_reader.analysis.facts import Facts
from trace_reader.link.trace import Trace
from trace_reader.units import count


class Seen(msgspec.Struct, frozen=True):
    """What a rule saw, and what to do next in this trace."""

    text: str
    next: str


Rule = Callable[[Trace, Facts], str | Seen | None]


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


def a_step(n: int, facts: Facts, one: str, many: str) -> str:
    """`1 copy a step`, where every step has as many; else the count in all of the trace."""
    steps = len(facts.steps)
    if steps and n % steps == 0:
        return f"{count(n // steps, one, many)} a step"
    return f"{count(n, one, many)} in {count(steps, 'step')}" if steps else count(n, one, many)
