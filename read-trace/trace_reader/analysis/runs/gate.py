"""Is a run worse than its baseline? Counts are compared as they are, times with their noise.

Noise is measured by repeating runs: the ratio of the medians lies in an interval that bootstrap over the runs gives (percentiles
of resampled medians; Efron 1979, Annals of Statistics 7). It is worse only where the interval begins above the limit, and above
what the runs of one side differ by among themselves. One run alone says nothing of the noise between runs: then the interval is
widened by ONE_RUN on each side.
"""

from collections.abc import Sequence
import math
import re
import statistics

import msgspec
import numpy as np
from trace_reader.analysis.runs.run_measures import RowMeasure, RunMeasures

COUNTS = ("kernels", "aten_calls", "copies", "syncs", "compiled")
TIMES = ("step", "gpu", "exposed")
STEP, PLAIN = "step", "plain_step"
UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
UNITS_BYTES = {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}
MEMORY = "peak_memory"  # the same in each run of the same program, as counts are
FINDINGS = "findings"
ALIASES = {"communication.exposed": "exposed", "recompiles": "compiled"}
DEFAULTS = ("step=+10%", "gpu=+10%", "kernels=+0", "aten_calls=+0", "copies=+0", "syncs=+0", "compiled=+0", "peak_memory=+5%")
ONE_RUN = 0.25  # five processes of one lesson differ by so much and more (docs/figures.md: 49.6 to 79.1 us of one step)
RESAMPLES, CONFIDENCE = 4000, 0.95
ENOUGH_RUNS = 3  # of each side, for an interval of their own
ROW_SHARE, MOST_CAUSES = 0.02, 5  # of a step, that a row has to change by to be told
MOST_COUNTED = 3  # rows that are told of a count that grew
# Of a count: how the names of its rows begin.
ROWS_OF = {"kernels": ("kernel ",), "copies": ("kernel Mem",), "aten_calls": ("op aten::",), "syncs": ("call ",)}
FINE, WORSE, INCONCLUSIVE, UNKNOWN = "fine", "worse", "inconclusive", "not in the traces"
MORE = "more, in a faster step"  # kernels or ops: what a step takes is measured
OF_A_FASTER_STEP = ("kernels", "aten_calls")
GONE = "not in the new run"  # though the baseline has it: what cannot be judged any more


class Limit(msgspec.Struct, frozen=True):
    """How much more a measure may be: by `share`, or by `amount`; of findings, that no new one comes."""

    text: str
    measure: str
    share: float | None = None
    amount: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """A limit, and what came of it. `low`, `high`: by what the measure grew, as a ratio, or as a difference of counts and where
    the limit is an amount; `more_runs`: how many more of each would do, where it is inconclusive. `plain`: of `step`, whether it
    is the one without the profiler, which it is where all runs of both sides measured that.
    """

    limit: Limit
    verdict: str
    old: float | None = None
    new: float | None = None
    low: float | None = None
    high: float | None = None
    more_runs: int | None = None
    findings: tuple[str, ...] = ()
    plain: bool = False


class Cause(msgspec.Struct, frozen=True):
    """A row that changed: calls and us per step, before and after."""

    name: str
    calls: tuple[float, float]
    us: tuple[float, float]


class Gate(msgspec.Struct, frozen=True):
    """All outcomes, and the rows that changed most. `runs`: how many of the baseline, and of the new one. `unlike`: in what they
    were not recorded alike, in words.
    """

    outcomes: tuple[Outcome, ...]
    causes: tuple[Cause, ...]
    runs: tuple[int, int]
    unlike: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst of all."""
        said = {outcome.verdict for outcome in self.outcomes}
        return WORSE if said & {WORSE, GONE} else INCONCLUSIVE if INCONCLUSIVE in said else FINE


def parse_limit(text: str) -> Limit:
    """Return a limit as it is written: step=+5%, step=+20us, kernels=+0, peak_memory=+64MiB, findings=new. Raises ValueError."""
    name, _, value = text.partition("=")
    measure = ALIASES.get(name.strip(), name.strip().replace("-", "_"))
    if measure == FINDINGS and value.strip() == "new":
        return Limit(text, FINDINGS)
    found = re.fullmatch(r"\s*\+?(\d+(?:\.\d+)?)\s*([a-zA-Zµ%]*)\s*", value)
    if measure not in (*COUNTS, *TIMES, MEMORY) or found is None:
        known = ", ".join((*TIMES, MEMORY, *COUNTS))
        raise ValueError(f"expected MEASURE=+N%, MEASURE=+N with a unit or findings=new, got {text!r}; measures: {known}")
    number, unit = float(found[1]), found[2]
    units = UNITS_US if measure in TIMES else UNITS_BYTES if measure == MEMORY else {"": 1}
    if unit != "%" and unit not in units:
        raise ValueError(f"{text!r} needs a unit that {measure} has: {', '.join(filter(None, ('%', *units)))}")
    return Limit(text, measure, share=number / 100) if unit == "%" else Limit(text, measure, amount=number * units[unit])


def gate(old: Sequence[RunMeasures], new: Sequence[RunMeasures], limits: Sequence[Limit], strict: bool = True) -> Gate:
    """Judge new runs beside a baseline's. Unless `strict`, more kernels or ops are told and no fault where a step without the
    profiler is measured and shorter. Raises ValueError: one of them has no run, or there is nothing to compare.
    """
    if not old or not new:
        raise ValueError("no run to compare")
    outcomes = tuple(_outcome(limit, old, new) for limit in limits)
    if not strict and any(outcome.plain and (outcome.high or math.inf) < 1 for outcome in outcomes):
        outcomes = tuple(
            msgspec.structs.replace(one, verdict=MORE) if one.verdict == WORSE and one.limit.measure in OF_A_FASTER_STEP else one
            for one in outcomes
        )
    if all(outcome.verdict == UNKNOWN for outcome in outcomes):
        asked = ", ".join(limit.measure for limit in limits)
        raise ValueError(f"nothing to compare: the traces hold none of what the limits are of ({asked})")
    grown = [outcome.limit.measure for outcome in outcomes if outcome.verdict == WORSE]
    return Gate(outcomes, _causes(old, new, grown), (len(old), len(new)), tuple(unlike(old, new)))


def unlike(old: Sequence[RunMeasures], new: Sequence[RunMeasures]) -> list[str]:
    """Return in what runs were not recorded alike, as far as their traces say it: the device, versions, the profiler's flags."""
    found = []
    names = dict.fromkeys(name for run in [*old, *new] for name in run.versions)
    for what, of in [
        ("device", lambda run: run.device),
        *((name, lambda run, name=name: run.versions.get(name)) for name in names),
    ]:
        before, after = (dict.fromkeys(value for run in runs if (value := of(run))) for runs in (old, new))
        if before and after and set(before) != set(after):
            found.append(f"{what} {' and '.join(before)} in the baseline, now {' and '.join(after)}")
    if any(run.recorded_with is None for run in [*old, *new]):  # an older baseline does not say it
        return found
    old_flags, new_flags = ({flag for run in runs for flag in run.recorded_with or ()} for runs in (old, new))
    found += [f"recorded with {flag}, the baseline without" for flag in sorted(new_flags - old_flags)]
    return found + [f"recorded without {flag}, the baseline with it" for flag in sorted(old_flags - new_flags)]


def _outcome(limit: Limit, old: Sequence[RunMeasures], new: Sequence[RunMeasures]) -> Outcome:
    if limit.measure == FINDINGS:
        known = {slug for run in old for slug in run.findings}
        fresh = [slug for slug in new[0].findings if slug not in known and all(slug in run.findings for run in new)]
        return Outcome(limit, WORSE if fresh else FINE, findings=tuple(fresh))
    measure = PLAIN if limit.measure == STEP and are_plain([*old, *new]) else limit.measure
    before, after = ([v for run in runs if (v := getattr(run, measure)) is not None] for runs in (old, new))
    if not before or not after:
        old_value, new_value = (statistics.median(values) if values else None for values in (before, after))
        return Outcome(limit, GONE if before else UNKNOWN, old_value, new_value)
    if measure == PLAIN:
        return msgspec.structs.replace(_timed(limit, before, after), plain=True)
    return _timed(limit, before, after)


def are_plain(runs: Sequence[RunMeasures]) -> bool:
    """Return whether all of these runs measured a step without the profiler: such a step is not beside a recorded one."""
    return all(run.plain_step is not None for run in runs)


def _timed(limit: Limit, before: list[float], after: list[float]) -> Outcome:
    medians = statistics.median(before), statistics.median(after)
    if limit.measure in COUNTS or limit.amount is not None:
        return _counted(limit, before, after, medians)
    most = 1 + (limit.share or 0.0)
    if limit.measure == MEMORY and min(before) > 0:
        low, high = min(after) / max(before), max(after) / min(before)
        verdict = WORSE if low > most else FINE if max(after) / max(before) <= most else INCONCLUSIVE
        return Outcome(limit, verdict, *medians, low, high, 1 if verdict == INCONCLUSIVE else None)
    low, high = ratio_of_medians(before, after)
    noise = max(max(runs) / min(runs) for runs in (before, after)) if min(*before, *after) > 0 else 1.0
    verdict = WORSE if low > max(most, noise) else FINE if high <= most else INCONCLUSIVE
    more = _more_runs(low, high, medians[1] / medians[0] if medians[0] else math.inf, most, min(len(before), len(after)))
    return Outcome(limit, verdict, *medians, low, high, more if verdict == INCONCLUSIVE else None)


def _counted(limit: Limit, before: list[float], after: list[float], medians: tuple[float, float]) -> Outcome:
    """Return what a run launches is the same in each run of the same program; where runs differ, the intervals of both are
    compared.
    """
    room = limit.amount if limit.amount is not None else (limit.share or 0.0) * max(before)
    low, high = min(after) - max(before), max(after) - min(before)
    verdict = WORSE if low > room else FINE if max(after) - max(before) <= room else INCONCLUSIVE
    return Outcome(limit, verdict, *medians, low, high, 1 if verdict == INCONCLUSIVE else None)


def ratio_of_medians(before: list[float], after: list[float]) -> tuple[float, float]:
    """Return where the ratio of the medians lies, after over before: 95% of what runs drawn anew give."""
    if min(before) <= 0:
        return (1.0, 1.0) if max(after) <= 0 else (1.0, math.inf)
    if min(len(before), len(after)) < ENOUGH_RUNS:
        return min(after) / max(before) * (1 - ONE_RUN), max(after) / min(before) * (1 + ONE_RUN)
    random = np.random.default_rng(0)  # the same runs give the same answer
    drawn = [np.median(random.choice(runs, (RESAMPLES, len(runs))), axis=1) for runs in (before, after)]
    low, high = np.quantile(drawn[1] / drawn[0], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _more_runs(low: float, high: float, ratio: float, most: float, runs: int) -> int:
    """Return how many more runs of each would narrow the interval to one side of the limit: its width falls as one over the
    root.
    """
    if runs < ENOUGH_RUNS:
        return ENOUGH_RUNS - runs
    room = abs(ratio - most)
    half = (high - low) / 2
    needed = math.ceil(runs * (half / room) ** 2) if room > half / 10 else 100 * runs
    return min(max(1, needed - runs), 99)


def _causes(old: Sequence[RunMeasures], new: Sequence[RunMeasures], grown: Sequence[str]) -> tuple[Cause, ...]:
    """Return the rows that take more than before, or run more often, those that cost most first; then those of the counts that
    grew (`grown`), those that did so most first.
    """
    nothing = RowMeasure(0.0, 0.0)

    def middle(runs: Sequence[RunMeasures], name: str) -> tuple[float, float]:
        rows = [run.rows.get(name, nothing) for run in runs]
        return statistics.median(row.calls for row in rows), statistics.median(row.us for row in rows)

    step_us = statistics.median([run.step for run in old if run.step is not None] or [0.0])
    found = []
    for name in dict.fromkeys(name for run in (*new, *old) for name in run.rows):
        (calls_a, us_a), (calls_b, us_b) = middle(old, name), middle(new, name)
        if us_b - us_a > ROW_SHARE * step_us or calls_b > calls_a:
            found.append(Cause(name, (calls_a, calls_b), (us_a, us_b)))
    told = sorted(found, key=lambda one: one.us[0] - one.us[1])[:MOST_CAUSES]
    for measure in grown:
        counted = [one for one in found if one.name.startswith(ROWS_OF.get(measure, ())) and one.calls[1] > one.calls[0]]
        told += sorted(counted, key=lambda one: one.calls[0] - one.calls[1])[:MOST_COUNTED]
    return tuple(dict.fromkeys(told))
