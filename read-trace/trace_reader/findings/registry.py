"""What a finding is. A rule takes the trace and its facts and returns what it saw, or None if the trace lacks the evidence.

What it saw is a sentence with numbers, and the slices that show it. Findings are ranked by
what following the advice saves of a step without the profiler (`effect`, played by what_if.py), else by the time that
these slices take on the critical path, unless the rule returns the share of the path that it explains.

To add a finding, write a function in the file of its subject, below the sentences that explain it. `means` says no more than
the rule checks; a cause that the rule does not prove comes with "may":

    @finding("slug", "what one notices", "where to look", "what it usually means", "what to do next")
    def _rule(trace: Trace, facts: Facts) -> Seen | None:
        ...
"""

from collections.abc import Callable, Iterable
import re

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import Edit, Effect, all_of, dropped, skipped
from trace_reader.analysis.replay.places import nodes_of
from trace_reader.analysis.trace.cpu_time import is_compiling
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.kernel_facts import KernelFacts
from trace_reader.findings.verdict import denominator
from trace_reader.link.intervals import merged
from trace_reader.link.nesting import innermost, itself_or_innermost, outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, once
from trace_reader.model.slices import Kind
from trace_reader.units import about, count, us

LONGEST_FREE_NS = 5_000_000  # that giving memory back takes
MIN_SHARE_OF_PATH = 0.05  # that the CPU's own work, or a loader, has to have
LEAST_SHARE = 0.03  # of the path, or of the steps' time, that a place is told for


class Seen(msgspec.Struct, frozen=True):
    """What a rule saw, and in which slices. `next`: what to do in this trace, if it differs from the usual advice. `share`: of
    the critical path, 0 to 1, if it differs from the time of the slices. `effect`: what following the advice makes of the run,
    where that can be played; `no_effect`: why it cannot. `gaps`: starts and ends (ns) of what it is about, where that is time in
    which no slice is.
    """

    text: str
    evidence: Rows
    next: str = ""
    share: float | None = None
    effect: Effect | None = None
    gaps: tuple[np.ndarray, np.ndarray] | None = None
    no_effect: str = "the advice names no change that can be played"


Rule = Callable[[Trace, Facts], Seen | None]


class Pattern(msgspec.Struct, frozen=True):
    """What one notices first (`symptom`), `where` to look, what it `means`, and what to do `next`."""

    rule: Rule
    symptom: str
    where: str
    means: str
    next: str
    trivia: bool  # teaches how to read a trace, and mends nothing: told of a lesson's trace only
    source: str = ""  # a page or a thread that says so


RULES: dict[str, Pattern] = {}  # by slug


def finding(
    slug: str, symptom: str, where: str, means: str, next: str, trivia: bool = False, source: str = ""
) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES[slug] = Pattern(rule, symptom, where, means, next, trivia, source)
        return rule

    return register


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def calls_of(trace: Trace, *kernels: KernelFacts) -> Rows:
    """Return the slices of these kernels, copies or memsets."""
    return trace.linked.where(trace.linked.is_named({k.name for k in kernels}.__contains__))


def named(rows: Rows, *names: str) -> Rows:
    """Return the rows that have one of these names."""
    return rows.where(rows.is_named(names.__contains__))


def of_the_steps(trace: Trace, spans: Rows) -> float:
    """Return the share of the steps' time that spans take on the CPU or what they launched on the GPU, whichever is more."""
    return max(spans.total_us, trace.launched_in(spans).total_us) / max(trace.steps.total_us, 1e-9)


def seen_with_time(trace: Trace, facts: Facts, spans: Rows, words: str, effect: Effect) -> Seen | None:
    """Return what was seen with the time that it takes in a step, on the GPU if it launches anything; None where that is less
    than LEAST_SHARE of the path and of the steps.
    """
    path = facts.critical_path
    if path is None or not facts.steps:
        return None
    work = trace.launched_in(spans)
    share = path.explained_us(Rows(trace.slices, np.sort(np.append(spans.at, work.at)))) / path.window_us
    if max(share, of_the_steps(trace, spans)) < LEAST_SHARE:
        return None
    time_us = (work if len(work) else spans).total_us / len(facts.steps)
    what = "GPU time" if len(work) else "CPU time"
    return Seen(f"{words}; {us(time_us)} of {what}: {about(share)} of {denominator(facts)}", spans, share=share, effect=effect)


def ops_that_launch(trace: Trace, work: Rows) -> Rows:
    """Return the outermost ops that launch any of this work on a GPU."""
    is_outer = np.zeros(len(trace.slices), bool)
    is_outer[trace.outer_ops.at] = True
    around = itself_or_innermost(trace.slices, trace.parent, work.op[work.op >= 0], is_outer)
    return Rows(trace.slices, once(around[around >= 0]))


def copying_ops(trace: Trace, direction: str) -> Rows:
    """Return the outermost ops that copy something in this direction: HtoD or DtoH."""
    return ops_that_launch(trace, trace.linked.where(trace.linked.is_named(lambda name: direction in name)))


def hold(ops: Rows, track: np.ndarray, moments_ns: np.ndarray) -> np.ndarray:
    """For each op (none in another), whether one of these moments of its thread is in it."""
    found = np.zeros(len(ops), bool)
    for (number,), rows in ops.by(ops.track):
        moments = np.sort(moments_ns[track == number])
        first, after = np.searchsorted(moments, rows.start_ns), np.searchsorted(moments, rows.end_ns)
        found[np.searchsorted(ops.at, rows.at)] = after > first
    return found


def have_nodes(trace: Trace, ops: Rows) -> np.ndarray:
    """For each op (none in another), whether it made a node of the backward pass."""
    makers = trace.nodes.made_by[trace.nodes.made_by >= 0]
    return hold(ops, trace.slices.track[makers], trace.slices.start_ns[makers])


def lies_inside(trace: Trace, ops: Rows, pattern: str) -> np.ndarray:
    """For each op, whether one that is open around it, or an annotation, matches."""
    search, kinds = re.compile(pattern).search, (Kind.OP, Kind.ANNOTATION)
    wanted = np.zeros(len(trace.slices), bool)
    for kind in kinds:
        wanted |= trace.slices.are_named(kind, lambda name: search(name) is not None)
    return innermost(trace.slices, trace.parent, ops.at, wanted) >= 0


def partly_dropped(trace: Trace, ops: Rows, left: float = 0.0) -> Edit:
    """Leave so much of these ops' time and of what they launched, and of their nodes of the backward pass; with a GPU the CPU
    takes as long as it did, to launch what is smaller.
    """
    of_cpu = 1.0 if left and len(trace.work) else left
    return dropped(Rows(trace.slices, once(np.append(ops.at, nodes_of(trace, ops)))), of_cpu, left)


def until_the_next(every: Rows, ops: Rows, longest_ns: int) -> np.ndarray:
    """For each of these ops, when the next of `every` begins, where that is soon; else its end."""
    following = np.searchsorted(every.start_ns, ops.end_ns)
    next_ns = np.append(every.start_ns, np.iinfo(np.int64).max)[following]
    return np.where(next_ns - ops.end_ns <= longest_ns, np.maximum(next_ns, ops.end_ns), ops.end_ns)


def with_what_is_freed(trace: Trace, ops: Rows, left: float = 0.0) -> Edit:
    """Take these ops of the CPU away, or leave so much, and so of the time up to the next one: large memory that one made and the
    next one took is given back there, where no op is recorded.
    """
    every = Rows(trace.slices, outermost(trace.slices, trace.ops.at))
    return all_of(dropped(ops, left), skipped(merged(ops.end_ns, until_the_next(every, ops, LONGEST_FREE_NS)), left))


def not_compiling(trace: Trace, calls: Rows) -> Rows:
    """Return these calls without those that torch.compile makes while it compiles and tries out kernels."""
    compiling = trace.slices.are_named(Kind.OP, is_compiling)
    return calls.where(innermost(trace.slices, trace.parent, calls.at, compiling) < 0) if compiling.any() else calls


def a_step(n: int, facts: Facts, one: str, many: str) -> str:
    """`1 copy per step`, if the count divides evenly by the steps; else the count in the whole trace."""
    return counted(n, len(facts.steps), one, many)


def counted(n: int, steps: int, one: str, many: str) -> str:
    """Return the same of so many steps."""
    if steps and n % steps == 0:
        return f"{count(n // steps, one, many)} per step"
    return f"{count(n, one, many)} in {count(steps, 'step')}" if steps else count(n, one, many)
