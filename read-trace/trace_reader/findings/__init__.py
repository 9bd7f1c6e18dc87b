"""The patterns to look for in a trace, as rules, a file for each subject. A rule is silent without its evidence."""

from functools import partial

import msgspec
import numpy as np
from trace_reader.analysis.critical_path import CriticalPath
from trace_reader.analysis.edits import all_of
from trace_reader.analysis.facts import Evidence, Facts, Finding, hands
from trace_reader.analysis.plain_run import PricedRun, priced
from trace_reader.analysis.what_if import Gain, busy_after, chosen_of, gain_of, gains_together
from trace_reader.findings import (
    attention,
    bottleneck,
    cold_steps,
    communication,
    compiled,
    cpu_ops,
    gemm,
    gpu_waits,
    kernel_patterns,
    low_occupancy,
    memory_traffic,
    optimizer,
    recording_effects,
    runtime_calls,
)
from trace_reader.findings.registry import RULES, Seen
from trace_reader.guard import Failures
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.kernel_names import is_collective
from trace_reader.system.processes import answers_of

__all__ = ["PATTERNS", "Choice", "Choices", "choices", "evidence_of", "run_rules", "seen_of"]
# In the order in which they are told; in a file, from the top.
_SUBJECTS = (
    bottleneck, cpu_ops, gpu_waits, communication, optimizer, cold_steps, kernel_patterns, memory_traffic, gemm, attention,
    compiled, runtime_calls, low_occupancy, recording_effects,
)  # fmt: skip
_ORDER = [module.__name__ for module in _SUBJECTS]
PATTERNS = dict(sorted(RULES.items(), key=lambda item: _ORDER.index(item[1].rule.__module__)))


LESSON_SIZE = 300  # kernels, copies and memsets, at most


MOST_EVIDENCE = 20  # slices of a finding
NAMING = frozenset(["input-bound"])  # verdicts that name one change
MOST_CHOICES = 4  # findings, whose changes can be chosen together


def run_rules(trace: Trace, facts: Facts, everything: bool = False) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What the rules find, and which of them failed: first what explains the verdict, then the advice that saves most, then those
    of which that is not known, by the share of the critical path that they explain, then what saves next to nothing, trivia
    last. Trivia are reported only for a trace no larger than a lesson's, or with `everything`.
    """
    asked = [slug for slug, pattern in PATTERNS.items() if everything or not pattern.trivia or len(trace.work) <= LESSON_SIZE]
    run = _run_to_play(trace, facts)
    judged = answers_of([partial(_judged, trace, facts, run, slug) for slug in asked], hands(trace))
    found = [finding for finding, _ in judged if finding is not None]
    found.sort(key=lambda finding: (finding.slug != facts.verdict, *_rank(finding)))
    return tuple(found), tuple(failure for _, failures in judged for failure in failures)


def _run_to_play(trace: Trace, facts: Facts) -> PricedRun | None:
    run = priced(trace) if len(facts.critical_paths) == 1 else None
    return run if run and run.is_sound(facts.plain.recorded_step_us) else None


class Choice(msgspec.Struct, frozen=True):
    """A change that can be chosen: what it is called, and what to do."""

    name: str
    advice: str


class Choices(msgspec.Struct, frozen=True):
    """The changes that save most, and what each choice of them saves together, and how long a GPU is busy then in a step at least
    (us): `gains` and `busy_us` by the number whose bits say which.
    """

    changes: tuple[Choice, ...]
    gains: tuple[Gain, ...]
    busy_us: tuple[float, ...]


def choices(trace: Trace, facts: Facts) -> Choices | None:
    """What the advice of several findings saves together; None where none is known to, or the plain step is not known."""
    told = [f for f in facts.findings if f.gain and not f.is_worthless and (f.slug != facts.verdict or f.slug in NAMING)]
    run = _run_to_play(trace, facts) if told and facts.plain.step_us else None
    if run is None:
        return None
    told = told[:MOST_CHOICES]
    seen = [PATTERNS[finding.slug].rule(trace, facts) for finding in told]
    effects = [found.effect for found in seen if found and found.effect]
    changes = tuple(Choice(finding.slug, finding.next) for finding in told)
    every = chosen_of(effects)
    busy_us = tuple(busy_after(run, all_of(*(effect.most for effect in own))) for own in every)
    return Choices(changes, tuple(gains_together(run, facts.plain, effects)), busy_us)


def _rank(finding: Finding) -> tuple[bool, bool, bool, float, float, float, float]:
    """What is told first has the smallest one. Of gains that are about the same, the one of which more is sure stands first, then
    the one that can be larger, then that of the larger share.
    """
    gain, share = finding.gain, finding.share or 0.0
    middle, sure, most = (0.0, 0.0, 0.0)
    if gain is not None:
        middle, sure, most = float(f"{(gain.low + gain.high) / 2:.1g}"), round(gain.low, 1), round(gain.high, 2)
    return PATTERNS[finding.slug].trivia, finding.is_worthless, gain is None, -middle, -sure, -most, -share


def _judged(trace: Trace, facts: Facts, run: PricedRun | None, slug: str) -> tuple[Finding | None, tuple[str, ...]]:
    """What a rule finds, and whether it failed."""
    pattern, finding, failures = PATTERNS[slug], None, Failures()
    with failures.caught(f"the finding {slug}"):
        if seen := pattern.rule(trace, facts):
            share = _share(seen, facts.critical_path, pattern.trivia)
            gain = gain_of(run, facts.plain, seen.effect) if run and seen.effect else None
            evidence, next = _evidence(trace, seen.evidence), seen.next or pattern.next
            no_gain = None if gain else _no_gain(trace, run, seen)
            finding = Finding(slug, seen.text, pattern.means, next, share, evidence, gain, no_gain)
    return finding, tuple(failures)


def _no_gain(trace: Trace, run: PricedRun | None, seen: Seen) -> str:
    """Why it is not known what the advice saves."""
    if seen.effect is None:
        return seen.no_effect
    if trace.work.is_named(is_collective).any():
        return "the other ranks of the job would change, too"
    if run is not None:
        return "the replay does not reach the step that was measured without the profiler"
    return (
        "the run cannot be played again: no steps with work, launches that are missing, several devices, or clocks that disagree"
    )


def seen_of(trace: Trace, facts: Facts, slug: str) -> Seen | None:
    """What a finding's rule saw, with all slices that show it (the finding lists the longest); None if the trace does not."""
    return PATTERNS[slug].rule(trace, facts) if slug in PATTERNS else None


def evidence_of(trace: Trace, facts: Facts, slug: str) -> Rows | None:
    """All slices that show a finding; None if the trace does not show it."""
    seen = seen_of(trace, facts, slug)
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
