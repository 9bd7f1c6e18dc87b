"""What a change would bring: the run without the profiler, played again with the change made (analysis/replay/replay.py).

A change is text: `drop REGEX` (ops, annotations and calls of these names, and what they launched), `scale REGEX FACTOR` (GPU
events of these names; without a GPU ops and annotations), `finding ID` (what its advice makes of the run), `place NAME` (without
it), `no waits` (no call waits for the GPU), `graph` (each step is one launch), `loader` (no time goes into
asking a DataLoader for a batch).
"""

from collections import Counter
from collections.abc import Sequence
import math
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import AS_PLAYED, AT_ONCE, BANDS, WAITS, Edit, Edited, Effect, all_of
from trace_reader.analysis.replay.plain_run import GPU_MARGIN, MEASURED, UNKNOWN, UNLIKE, PlainRun, RunWithoutProfiler
from trace_reader.analysis.replay.replay import Replay
from trace_reader.analysis.trace.missing_events import missing
from trace_reader.link.trace import Trace
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows
from trace_reader.model.slices import ON_CPU
from trace_reader.names.kernel_names import decode_name, is_collective
from trace_reader.names.range_names import is_step

PLAIN, RECORDED = "plain", "recorded"
OF_THE_CPU_ALONE = frozenset([WAITS, AT_ONCE])  # kinds of change that leave the GPU's work as it is
LEAST_ODDS = 0.002  # of a step, that is saved or left
MOST_FACTOR, MOST_NAMES, LONGEST_NAME_IN_WORDS = 1000, 3, 60
CHANGES = "drop REGEX, scale REGEX FACTOR, finding ID, place NAME, no waits, graph, loader, rank R like S, ranks N"
_RANK, _RANKS = re.compile(r"rank (\d{1,7}) like (\d{1,7})"), re.compile(r"ranks (\d{1,7})")
OF_A_JOB = ("rank", "ranks")
NAMED = ("finding", "place")  # what the report on the trace names


class Change(msgspec.Struct, frozen=True):
    """A change by its `kind`: drop, scale, finding, place, no waits, graph, loader, rank or ranks. `pattern`, `factor`, `ranks`
    (R and S, or N) and `name`: of those that take them.
    """

    text: str
    kind: str
    pattern: re.Pattern[str] | None = None
    factor: float = 1.0
    ranks: tuple[int, ...] = ()
    name: str = ""


class WhatIf(msgspec.Struct, frozen=True):
    """What changes bring. `of`: which step they are told of: the plain one, measured or estimated, or the recorded one.

    `matched`: of each change with a name, what that matched. `changed`: the step's time after them, from the lowest to the
    highest (us); `gain`: the share of the step that they save. `in_a_job`: whether the trace holds collectives, which are played
    as long as they were, though other ranks may change them.
    """

    trace: str
    changes: tuple[str, ...]
    matched: tuple[str, ...]
    of: str
    recorded_step_us: float
    plain: PlainRun
    changed_low_us: float
    changed_high_us: float
    gain_low: float
    gain_high: float
    in_a_job: bool


class Gain(msgspec.Struct, frozen=True):
    """The share of a step that a change saves, 0 to 1: of a step without the profiler (`of` PLAIN), or, where that is not known,
    of a recorded one (RECORDED).
    """

    low: float
    high: float
    of: str = PLAIN


def parse_change(text: str) -> Change:
    """Raises ValueError, in words for the user."""
    kind, _, rest = text.strip().partition(" ")
    if text.strip() in ("no waits", "graph", "loader"):
        return Change(text, text.strip())
    if named := _RANK.fullmatch(text.strip()):
        ranks = int(named[1]), int(named[2])
        if ranks[0] == ranks[1]:
            raise ValueError(f"expected two ranks, got {text!r}")
        return Change(text, "rank", ranks=ranks)
    if named := _RANKS.fullmatch(text.strip()):
        return Change(text, "ranks", ranks=(int(named[1]),))
    if kind in NAMED and rest.strip():
        return Change(text, kind, name=rest.strip())
    if kind not in ("drop", "scale") or not rest.strip():
        raise ValueError(f"expected one of {CHANGES}, got {text!r}")
    factor = 1.0
    if kind == "scale":
        rest, _, number = rest.strip().rpartition(" ")
        try:
            factor = float(number)
        except ValueError:
            factor = math.nan
        if not rest or not 0 <= factor <= MOST_FACTOR:
            raise ValueError(f"expected scale REGEX FACTOR, with a factor from 0 to {MOST_FACTOR}, got {text!r}")
    try:
        return Change(text, kind, re.compile(rest.strip()), factor)
    except re.error as error:
        raise ValueError(f"expected a regular expression in {text!r}: {error}") from None


def what_if(trace: Trace, plain: PlainRun, changes: list[Change]) -> WhatIf:
    """Return what these changes bring, all together, in whatever order. Raises LookupError: the trace has no steps, it cannot be
    played again, or a change finds nothing to change.
    """
    if any(change.kind in OF_A_JOB for change in changes):
        raise LookupError(f"{trace.path}: 'rank R like S' and 'ranks N' are of a job: name its ranks' traces, or their folder")
    if not len(trace.steps):
        raise LookupError(f"{trace.path}: what-if changes a step, and the trace has none")
    if lacks := missing(trace):
        raise LookupError(f"{trace.path}: nothing is promised of a trace that lacks {' and '.join(lacks)}")
    if len(trace.outlasting_us):
        raise LookupError(f"{trace.path}: nothing is promised where a call waits for GPU work that the trace lacks")
    run = RunWithoutProfiler(trace)
    if not run.replays_as_recorded(plain.recorded_step_us):
        raise LookupError(f"{trace.path}: what-if cannot play this trace again: {UNLIKE}")
    played, of = run.played(plain) if plain.how != UNKNOWN else [], plain.how
    if not played:
        played, of = [run.replay.play()], RECORDED
    after_us: list[float] = []
    matched, busy_us = tuple[str, ...](), 0.0
    for before in played:
        edited = Edited(run.replay, before.after_ns)
        matched, busy_us = make(changes, edited), edited.busy_us()
        after_us.append(edited.play().step_us)
    gains = [1 - after / before.step_us for before, after in zip(played, after_us, strict=True)]
    if all(map(only_removes, changes)):
        gains = [max(gain, 0.0) for gain in gains]
    recorded_us = plain.recorded_step_us or run.replay.play().step_us
    whole_us = [plain.low_us or 0.0, plain.high_us or 0.0]  # of an estimate its ends, in the order of the gains
    if of == MEASURED or len(gains) == 1:
        whole_us = [(plain.step_us if of == MEASURED else None) or recorded_us] * len(gains)
    # The wide margin of an estimate is the CPU's: what the GPU does in a step is known better.
    changed_us = [
        max(whole * (1 - gain), min(busy_us * (1 - GPU_MARGIN), whole)) for whole, gain in zip(whole_us, gains, strict=True)
    ]
    return WhatIf(
        trace=trace.path,
        changes=tuple(change.text for change in changes),
        matched=matched,
        of=of,
        recorded_step_us=recorded_us,
        plain=plain,
        changed_low_us=min(changed_us),
        changed_high_us=max(changed_us),
        **gains_of(whole_us, changed_us),
        in_a_job=bool(run.replay.work.is_named(is_collective).any()),
    )


def gains_of(whole_us: Sequence[float], changed_us: Sequence[float]) -> dict[str, float]:
    """Return the least and the most that is saved of these steps, as shares."""
    gains = [1 - changed / whole if whole else 0.0 for whole, changed in zip(whole_us, changed_us, strict=True)]
    return {"gain_low": min(gains), "gain_high": max(gains)}


def only_removes(change: Change) -> bool:
    """Return whether a change takes work or waits away and adds none: then no step is longer. One can seem so, where the first
    one ends earlier, from whose end on the others are told.
    """
    return change.kind in ("drop", "no waits", "loader", "rank") or (change.kind == "scale" and change.factor <= 1)


def gain_of(run: RunWithoutProfiler, plain: PlainRun, effect: Effect) -> Gain | None:
    """Return what an advice saves of the plain step, where that is not known of the recorded one; None where no replay reaches
    it.
    """
    least, most = (played_gains(run, plain, edit) for edit in (effect.least, effect.most))
    if not most:
        return None
    gain = told(least, most, effect.kind, RECORDED if plain.how == UNKNOWN else PLAIN)
    if effect.kind not in OF_THE_CPU_ALONE:
        return gain
    # The GPU's work stays, and a step is no shorter than that.
    longest_us = max(step_us for _, step_us in run.plain_times(plain)[:2])
    bound = max(1 - busy_after(run, effect.most) * (1 - GPU_MARGIN) / longest_us if longest_us else 0.0, *most, 0.0)
    return msgspec.structs.replace(gain, low=min(gain.low, bound), high=min(gain.high, bound))


def played_gains(run: RunWithoutProfiler, plain: PlainRun, edit: Edit | None) -> list[float]:
    """Return what an edit saves, played at both ends of the plain step, and of an estimated one also at dearer prices."""
    return [_gain(run, times, edit) for times in run.plain_times(plain)]


def told(least: list[float], most: list[float], kind: str, of: str) -> Gain:
    """Return what is told of a change of this kind, by what is sure of it and what there is at most, as played at both ends of
    the plain step and in what else the run may be.
    """
    ends = most[:2]
    if kind == AS_PLAYED:
        ends = [min(max(end, 0.0), 1.0) for end in ends]
        return Gain(min(ends), max(ends), of)
    low, high = calibrated(ends, BANDS[kind])
    low = max(low, min(least))
    return Gain(low, max(high, low, *most), of)


def calibrated(ends: list[float], band: tuple[float, float]) -> tuple[float, float]:
    """Return what is told of a gain, by what the replay says at both ends of the plain step and by the band of its kind of
    change. What is not known of the plain step is in the band already, for as wide a step as most have: half of it is added.
    """
    middle, half = (min(ends) + max(ends)) / 2, (odds(max(ends)) - odds(min(ends))) / 4
    if middle < LEAST_ODDS:
        return max(middle, 0.0), max(*ends, 0.0)
    return share_at(odds(middle) - math.hypot(band[0], half)), share_at(odds(middle) + math.hypot(band[1], half))


def odds(share: float) -> float:
    """Return the logarithm of what is saved over what is left; of nearly nothing and of nearly all, that of LEAST_ODDS."""
    share = min(max(share, LEAST_ODDS), 1 - LEAST_ODDS)
    return math.log(share / (1 - share))


def share_at(logarithm: float) -> float:
    """Return the share of a step at these odds."""
    return 1 / (1 + math.exp(-logarithm))


def gains_together(run: RunWithoutProfiler, plain: PlainRun, effects: list[Effect]) -> list[Gain]:
    """Return what several advices save, all of some of them: by the number whose bits say which, from 0 on. What some of them
    save is not lost by following one more; and no more is told than the sum of what each saves, or than the replay says.
    """
    found = list[Gain]()
    for chosen, subset in enumerate(subsets(effects)):
        effect = together(subset)
        gain = gain_of(run, plain, effect) or Gain(0.0, 0.0)
        if len(subset) > 1:
            each = [found[1 << place] for place in range(len(effects)) if chosen >> place & 1]
            most = max(sum(one.high for one in each), *played_gains(run, plain, effect.most))
            gain = msgspec.structs.replace(gain, high=min(gain.high, most), low=min(gain.low, most))
        fewer = [found[chosen & ~(1 << place)] for place in range(len(effects)) if chosen >> place & 1]
        low, high = max(one.low for one in (gain, *fewer)), max(one.high for one in (gain, *fewer))
        found.append(Gain(low, high, gain.of))
    return found


def together(effects: Sequence[Effect]) -> Effect:
    """Return several effects as one, of the kind of the least sure of them."""
    least = [effect.least for effect in effects if effect.least is not None]
    kind = min((effect.kind for effect in effects), key=lambda kind: BANDS[kind][0], default=AS_PLAYED)
    return Effect(all_of(*(effect.most for effect in effects)), all_of(*least), kind)


def subsets(offered: list[Any]) -> list[list[Any]]:
    """Return each choice of some of these, by the number whose bits say which."""
    return [[choice for place, choice in enumerate(offered) if chosen >> place & 1] for chosen in range(1 << len(offered))]


def busy_after(run: RunWithoutProfiler, edit: Edit) -> float:
    """Return how long the GPU is busy in a step at least, after a change (us)."""
    edited = Edited(run.replay, run.replay.nodes.after_ns)
    edit(edited)
    return edited.busy_us()


def _gain(run: RunWithoutProfiler, times: tuple[np.ndarray, float], edit: Edit | None) -> float:
    """Return the share of a step that an edit saves, of these times between the nodes and the step's time with them."""
    if edit is None:
        return 0.0
    after_ns, before_us = times
    edited = Edited(run.replay, after_ns)
    edit(edited)
    return 1 - edited.play().step_us / before_us


def make(changes: list[Change], run: Edited) -> tuple[str, ...]:
    """Make the changes. For each change in words what it matched. Raises LookupError: there is nothing to change."""
    replay, kinds, matched = run.replay, {change.kind for change in changes}, []
    factors = np.ones(len(replay.work))
    for change in changes:
        if change.kind == "scale" and not len(replay.work):  # of a CPU: its ops
            spans = _matching(change, replay)
            matched.append(f"{change.text}: {_listed(spans.names)}")
            run.stretch(spans, change.factor)
        elif change.kind == "scale":
            scaled, told = _scaled(change, replay)
            factors *= scaled
            matched.append(f"{change.text}: {told}")
    run.scale(np.minimum(factors, MOST_FACTOR))
    if "graph" in kinds:
        if not len(replay.work):
            raise _nothing("graph", replay, "no GPU event")
        run.launch_at_once("loader" not in kinds)
    if "loader" in kinds and not run.load_nothing():
        raise _nothing("loader", replay, "no DataLoader that was asked for a batch")
    calls = replay.trace.waits.where(replay.trace.waits.reason != Reason.QUEUE)
    if "no waits" in kinds and not run.return_at_once(calls.at):
        raise _nothing("no waits", replay, "no call that waits for the GPU")
    for change in changes:
        if change.kind == "drop":
            spans = _matching(change, replay)
            matched.append(f"{change.text}: {_listed(spans.names)}")
            run.drop(spans)
    return tuple(matched)


def _nothing(text: str, replay: Replay, what: str) -> LookupError:
    return LookupError(f"{replay.trace.path}: {text!r} matches nothing: the trace has {what}")


def _listed(names: list[str]) -> str:
    """Return how many there are, and of which names, the most frequent first."""
    counts = Counter(names).most_common()
    more = f" and {len(counts) - MOST_NAMES} more names" if len(counts) > MOST_NAMES else ""
    return ", ".join(f"{n} x {name[:LONGEST_NAME_IN_WORDS]}" for name, n in counts[:MOST_NAMES]) + more


def _scaled(change: Change, replay: Replay) -> tuple[np.ndarray, str]:
    """For each GPU event, the change's factor, 1 for those that do not match; and what matches, in words."""
    work = replay.work

    def matches(name: str) -> bool:
        return bool(change.pattern and (change.pattern.search(name) or change.pattern.search(decode_name(name).label)))

    chosen = work.is_named(matches)
    if not chosen.any():
        raise _nothing(change.text, replay, "no kernel or copy of such a name (scale takes kernels and copies, drop takes ops)")
    labels = [decode_name(name).label for name in work.where(chosen).names]
    return np.where(chosen, change.factor, 1.0), _listed(labels)


def _matching(change: Change, replay: Replay) -> Rows:
    """Return the ops, annotations and calls of the steps that match."""
    slices = replay.trace.slices
    spans = Rows(slices, slices.of(*ON_CPU))
    spans = spans.where(spans.is_named(lambda name: bool(change.pattern and change.pattern.search(name) and not is_step(name))))
    spans = spans.where((spans.start_ns >= replay.steps.start_ns[0]) & (spans.start_ns < replay.steps.end_ns[-1]))
    if not len(spans):
        scales = "kernels and copies" if len(replay.work) else "ops, too, where there is no GPU"
        what = f"no op, annotation or call of such a name in its steps (drop takes ops, scale takes {scales})"
        raise _nothing(change.text, replay, what)
    return spans
