"""The patterns to look for in a trace, as rules, a file for each subject. A rule is silent without its evidence."""

from collections.abc import Mapping
from functools import partial
import re
from typing import Any, cast

import msgspec
import numpy as np
from trace_reader.analysis.jobs.job_facts import JobFinding
from trace_reader.analysis.replay.edits import AS_PLAYED, Effect, all_of, dropped
from trace_reader.analysis.replay.place import is_named_in
from trace_reader.analysis.replay.places import AskedPlace, lies_in
from trace_reader.analysis.replay.plain_run import RunWithoutProfiler
from trace_reader.analysis.replay.what_if import Gain, busy_after, gain_of, gains_together, subsets
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import OF_THE_CPU, WORTH_A_CHANGE, Evidence, Facts, Finding
from trace_reader.findings import (
    again,
    attention,
    bottleneck,
    catalogue,
    cold_steps,
    collective_calls,
    communication,
    compiled,
    cpu_ops,
    cut_away,
    expanded,
    gemm,
    gpu_waits,
    kernel_patterns,
    large_results,
    loading,
    loops,
    low_occupancy,
    memory_traffic,
    optimizer,
    other_threads,
    own_functions,
    per_class,
    recording_effects,
    recurrent,
    repeated_products,
    runtime_calls,
    scores,
    twice,
    without_gradient,
    written_out,
)
from trace_reader.findings.registry import RULES, Seen
from trace_reader.guard import Failures
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, once
from trace_reader.names.kernel_names import is_collective
from trace_reader.system.processes import processes_for, run_in_processes

__all__ = ["PATTERNS", "Choice", "Choices", "Reading", "choices", "run_rules"]
# In the order in which they are told; in a file, from the top.
_SUBJECTS = (
    bottleneck, loading, catalogue, written_out, loops, per_class, twice, again, without_gradient, repeated_products, cut_away,
    scores, recurrent, expanded, own_functions, other_threads, cpu_ops, large_results, gpu_waits, collective_calls, communication,
    optimizer, cold_steps, kernel_patterns, memory_traffic, gemm, attention, compiled, runtime_calls, low_occupancy,
    recording_effects,
)  # fmt: skip
_ORDER = [module.__name__ for module in _SUBJECTS]
PATTERNS = dict(sorted(RULES.items(), key=lambda item: _ORDER.index(getattr(item[1].rule, "func", item[1].rule).__module__)))


LESSON_SIZE = 300  # kernels, copies and memsets, at most


IN_ANOTHER_PROCESS = Effect(all_of())  # in the place of an effect that another process has
MOST_EVIDENCE = 20  # slices of a finding
NAMING = frozenset(["input-bound"])  # verdicts that name one change
# Advice for nearly every run: it stands behind a change that saves AS_MUCH of what it does.
GENERIC = frozenset(
    ["many-calls", "many-small-kernels", "unfused-pointwise", "hotspot", "dtype-conversions", "slow-pointwise", "small-grid",
     "many-small-ops", "compile-tax", "hidden-copy", "python-between-ops", "far-from-the-floor"]
)  # fmt: skip
NOT_PLAYED = (
    "the run cannot be played again: no steps with work, launches that are missing, several devices, or clocks that disagree"
)
# Of generic advice that knows more: at which line of Python what is between the ops runs; that weights are converted anew.
SPECIFIC = ("Look at ", "Convert the weights once")
AS_MUCH = 0.125  # of what generic advice may bring: a change that saves so much of that stands before it
# Where the rounds may need each other's results, and where new inputs may come each time.
WEIGHTS = {"repeated-ops": 0.8, "frozen-layers-run-again": 0.5, "candidates-each-time": 0.5, "inputs-made-elsewhere": 0.5}
UNPLAYED = 0.5  # of the share of the path that a change explains, where it cannot be played: so much it may save
WIDEST = 0.5  # of a step, between the ends of a gain that is told
MOST_COMPARED = 6  # findings, with those behind them
MOST_CHOICES = 4  # findings, and places, whose changes can be chosen together
LONGEST_CHOICE = 60  # characters of a place's name
WITHOUT_PLACE = "The most that a change at this place can save."


class Reading(msgspec.Struct, frozen=True, eq=False):
    """A trace that was read.

    `facts` holds its facts, with the findings. `seen`: what each rule saw, by the id of its finding. `run`: the run without the
    profiler, for replays; None where there is none. `places`: those for which a replay said what a step takes without them.
    """

    trace: Trace
    facts: Facts
    seen: Mapping[str, Seen] = {}
    run: RunWithoutProfiler | None = None
    places: tuple[AskedPlace, ...] = ()

    @property
    def can_be_asked(self) -> bool:
        """Whether its run can be played again, and what limits it is known."""
        return self.facts.verdict != "unknown" and _can_be_asked(self.run, self.facts)

    @property
    def no_places_because(self) -> str:
        if self.facts.verdict == "unknown":
            return "what limits the run is not known"
        if self.can_be_asked:
            is_empty = not len(self.trace.outer_ops) and not len(self.trace.annotations)
            return "its steps hold no op and no annotation" if is_empty else "none saves a hundredth of a step"
        waits = self.trace.work.is_named(is_collective).any()
        return "its collectives wait for other ranks: the report on all of them tells what a step saves" if waits else NOT_PLAYED

    def effect(self, slug: str) -> Effect | None:
        """Return what following a finding's advice makes of the run, where that can be played."""
        seen = self.seen.get(slug)
        if seen is not None and seen.effect is IN_ANOTHER_PROCESS:  # it could not be sent to this process
            seen = PATTERNS[slug].rule(self.trace, self.facts)
        return seen.effect if seen else None


def run_rules(trace: Trace, facts: Facts, run: RunWithoutProfiler | None, everything: bool = False) -> Reading:
    """Return the facts with what the rules find, and which of them failed: first what explains the verdict, then the advice that
    saves most, generic advice behind what saves a part of that, then what saves next to nothing, trivia last. Trivia are reported
    only for a trace no larger than a lesson's, or with `everything`.
    """
    asked = [slug for slug, pattern in PATTERNS.items() if everything or not pattern.trivia or len(trace.work) <= LESSON_SIZE]
    playable = run if _can_be_asked(run, facts) else None
    processes = processes_for(len(trace.slices))
    judge = partial(_judged_elsewhere if processes > 1 else _judged, trace, facts, playable)
    judged = run_in_processes([partial(judge, slug) for slug in asked], processes)
    found = _without_the_same(_with_one_gain([finding for finding, _, _ in judged if finding is not None]))
    failed = tuple(failure for _, _, failures in judged for failure in failures)
    seen = {slug: _here(trace, what) for slug, (_, what, _) in zip(asked, judged, strict=True) if what is not None}
    return _with_parts(Reading(trace, _with_findings(facts, found, failed), seen, run))


def _with_findings(facts: Facts, found: list[Finding], failed: tuple[str, ...]) -> Facts:
    """Return the facts with these findings, in the order in which they are told."""
    found = sorted(found, key=lambda finding: (finding.slug != facts.verdict, *rank_of_finding(finding)))
    return msgspec.structs.replace(facts, findings=tuple(found), failed=(*facts.failed, *failed))


def _with_one_gain(findings: list[Finding]) -> list[Finding]:
    """Return the findings, of which those that give another one's advice ("See python-between-ops: ...") promise what that one
    does.
    """
    by_slug = {finding.slug: finding for finding in findings}
    found = []
    for finding in findings:
        other = by_slug.get(see[1]) if (see := re.match(r"See ([\w-]+): ", finding.next)) else None
        gain = {"gain": other.gain, "gain_unknown_because": other.gain_unknown_because} if other else {}
        found.append(msgspec.structs.replace(finding, **gain))
    return found


def _without_the_same(findings: list[Finding]) -> list[Finding]:
    """Return the findings without entries of the catalogue whose place a rule knows better."""
    slugs = {finding.slug for finding in findings}
    better = {entry.slug: entry.unless for entry in catalogue.ENTRIES}
    return [finding for finding in findings if not slugs.intersection(better.get(finding.slug, ()))]


def _can_be_asked(run: RunWithoutProfiler | None, facts: Facts) -> bool:
    return run is not None and len(facts.critical_paths) == 1 and run.replays_as_recorded(facts.plain.recorded_step_us)


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


def choices(reading: Reading) -> Choices | None:
    """Return what the advice of several findings saves together, and, where these are few, what is saved without the places of
    which none of them speaks; None where nothing is known to, or the plain step is not known.
    """
    facts, run = reading.facts, reading.run
    told = [f for f in facts.findings if f.gain and not f.is_worthless and (f.slug != facts.verdict or f.slug in NAMING)]
    if run is None or not facts.plain.step_us or not _can_be_asked(run, facts):
        return None
    told = told[:MOST_CHOICES]
    effects = [effect for finding in told if (effect := reading.effect(finding.slug))]
    seen = " ".join(finding.seen for finding in told)
    asked = [one for one in reading.places if not is_named_in(one.place.name, seen) and one.place.gone.high >= WORTH_A_CHANGE]
    asked = asked[: MOST_CHOICES - len(told)]
    effects += [Effect(dropped(one.spans), kind=AS_PLAYED) for one in asked]
    changes = tuple(Choice(finding.slug, finding.next) for finding in told)
    changes += tuple(Choice(f"without {one.place.name[:LONGEST_CHOICE]}", WITHOUT_PLACE) for one in asked)
    if not changes:
        return None
    every = subsets(effects)
    busy_us = tuple(busy_after(run, all_of(*(effect.most for effect in chosen))) for chosen in every)
    return Choices(changes, tuple(gains_together(run, facts.plain, effects)), busy_us)


def rank_of_finding(finding: Finding | JobFinding) -> tuple[bool, bool, float, float, float, float]:
    """Return the rank of a finding; what is told first has the smallest one: that of the change that saves most; of one that
    cannot be played, of which half of what it explains is taken. Of gains that are about the same, the one of which more is
    sure stands first, then the one that can be larger, then that of the larger share.
    """
    weight = AS_MUCH if is_generic(finding) else WEIGHTS.get(finding.slug, 1.0)
    gain, share = finding.gain, (finding.share or 0.0) * weight
    middle, sure, most = float(f"{UNPLAYED * share:.1g}"), 0.0, 0.0
    if gain is not None:
        middle, sure, most = about_middle(gain, weight), round(gain.low, 1), round(gain.high, 2)
    return PATTERNS[finding.slug].trivia, finding.is_worthless, -middle, -sure, -most, -share


def is_generic(finding: Finding | JobFinding) -> bool:
    """Return whether what it advises fits nearly every run."""
    return finding.slug in GENERIC and not finding.next.startswith(SPECIFIC)


def about_middle(gain: Gain, weight: float = 1.0) -> float:
    """Return the middle of a gain, times a weight, rounded to a digit: gains of one middle are about the same."""
    return float(f"{(gain.low + gain.high) / 2 * weight:.1g}")


Judged = tuple[Finding | None, Seen | None, tuple[str, ...]]


def with_functions(reading: Reading, stacks: Trace) -> Reading:
    """Return the reading with the functions that take most, the program's own and a library's, and what other threads do, which
    are found where the trace is loaded with stacks, too. What a rule saw without them gives way.
    """
    facts, trace, failures, all_seen = reading.facts, reading.trace, Failures(), dict(reading.seen)
    found = list(facts.findings)
    rules = (
        ("own-function", own_functions.own_function),
        ("library-function", own_functions.library_function),
        ("sleeps-in-step", other_threads.sleeps_in_step),
        ("another-thread-works", other_threads.works_beside),
    )
    for slug, rule in rules:
        with failures.caught(f"the finding {slug}"):
            seen = rule(trace, stacks, facts)
            found = [one for one in found if one.slug != slug]
            all_seen.pop(slug, None)
            if seen is not None:
                found.append(_finding(slug, seen, trace, facts, reading.run if reading.can_be_asked else None))
                all_seen[slug] = seen
    facts = _with_findings(facts, found, tuple(failures))
    return _with_parts(msgspec.structs.replace(reading, facts=facts, seen=all_seen))


def _with_parts(reading: Reading) -> Reading:
    """Return the reading whose first findings with a gain say of which one before them they are a part: most of their work lies
    in its work, on the GPU, or, where the run waits for the CPU, on the CPU. Generic advice has no parts: it is about nearly all.
    """
    trace, facts, before = reading.trace, reading.facts, list[tuple[str, Rows]]()
    on_gpu, found = facts.verdict not in OF_THE_CPU, list(facts.findings)
    for n, finding in enumerate(found):
        seen = reading.seen.get(finding.slug)
        evidence = seen.evidence if seen is not None and seen.gaps is None else None  # else its work is in the gaps
        if evidence is None or evidence.slices is not trace.slices:  # functions are slices of another loading of the file
            continue
        if finding.slug == facts.verdict or finding.is_worthless or finding.gain is None:
            continue
        work = _work_of(trace, evidence, on_gpu)
        same = next((slug for slug, other in before if len(work) and lies_in(work, other)), None)
        found[n] = msgspec.structs.replace(finding, part_of=same)
        if not is_generic(finding):
            before.append((finding.slug, work))
        if len(before) == MOST_COMPARED:
            break
    return msgspec.structs.replace(reading, facts=msgspec.structs.replace(facts, findings=tuple(found)))


def _work_of(trace: Trace, evidence: Rows, on_gpu: bool) -> Rows:
    """Return the GPU's work that these rows are, or launched; or the CPU's, which they are, or which launched them."""
    is_on_gpu = among(evidence.at, trace.work.at)
    if on_gpu:
        launched = trace.launched_in(evidence.where(~is_on_gpu))
        return Rows(trace.slices, once(np.append(evidence.at[is_on_gpu], launched.at)))
    calls = trace.work.call[among(trace.work.at, evidence.at[is_on_gpu])]
    return Rows(trace.slices, once(np.append(evidence.at[~is_on_gpu], calls[calls >= 0])))


def _judged(trace: Trace, facts: Facts, run: RunWithoutProfiler | None, slug: str) -> Judged:
    """Return what a rule finds, what it saw, and whether it failed."""
    pattern, finding, seen, failures = PATTERNS[slug], None, None, Failures()
    with failures.caught(f"the finding {slug}"):
        if seen := pattern.rule(trace, facts):
            finding = _finding(slug, seen, trace, facts, run)
    return finding, seen if finding else None, tuple(failures)


def _finding(slug: str, seen: Seen, trace: Trace, facts: Facts, run: RunWithoutProfiler | None) -> Finding:
    """Return what a rule saw, with what its advice saves."""
    pattern = PATTERNS[slug]
    share = _share(seen, facts.critical_path, pattern.trivia)
    gain = gain_of(run, facts.plain, seen.effect) if run and seen.effect and facts.verdict != "unknown" else None
    evidence, next = _evidence(trace, seen.evidence), seen.next or pattern.next
    because: str | None = None if gain else _why_gain_is_unknown(trace, facts, run, seen)
    if gain is not None and gain.high - gain.low > WIDEST:
        because = too_wide(gain)
        gain = None
    return Finding(slug, seen.text, pattern.means, next, share, evidence, gain, because)


def too_wide(gain: Gain) -> str:
    """Return why a gain is not told that is wider than WIDEST."""
    return f"{gain.low:.0%} to {gain.high:.0%} of a step: too wide to be useful"


def _judged_elsewhere(trace: Trace, facts: Facts, run: RunWithoutProfiler | None, slug: str) -> Judged:
    """Return the same in a form that another process can take: rows as their numbers, no effect."""
    finding, seen, failures = _judged(trace, facts, run, slug)
    if seen is None:
        return finding, None, failures
    numbers, has_effect = cast(Any, (seen.evidence.at, seen.effect is not None))
    return finding, msgspec.structs.replace(seen, evidence=numbers, effect=has_effect), failures


def _here(trace: Trace, seen: Seen) -> Seen:
    """Return what a rule saw in this or another process."""
    if isinstance(seen.evidence, Rows):
        return seen
    there = IN_ANOTHER_PROCESS if seen.effect else None
    return msgspec.structs.replace(seen, evidence=Rows(trace.slices, seen.evidence), effect=there)


def _why_gain_is_unknown(trace: Trace, facts: Facts, run: RunWithoutProfiler | None, seen: Seen) -> str:
    """Return why it is not known what the advice saves."""
    if facts.verdict == "unknown":
        return "what limits the run is not known"
    if seen.effect is None:
        return seen.no_effect
    if trace.work.is_named(is_collective).any():
        return "the other ranks of the job would change, too"
    if run is not None:
        return "the replay does not reach the step that was measured without the profiler"
    return NOT_PLAYED


def _share(seen: Seen, path: CriticalPath | None, trivia: bool) -> float | None:
    if path is None:
        return None
    if trivia:  # it teaches how to read, and explains no time
        return 0.0
    return path.explained_us(seen.evidence) / path.window_us if seen.share is None else seen.share


def _evidence(trace: Trace, rows: Rows) -> tuple[Evidence, ...]:
    """Return the longest of these slices, in order of their starts."""
    longest = np.lexsort((rows.start_ns, -rows.duration_us))[:MOST_EVIDENCE]
    rows = rows.where(longest)
    found = [
        Evidence(s.name, s.track, at_ns / 1000, s.duration_us) for s, at_ns in zip(rows, rows.start_ns.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda e: (e.start_us, -e.duration_us, e.name)))
