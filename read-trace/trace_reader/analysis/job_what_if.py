"""What a change of a job would bring: its ranks without the profiler, played again together, with the change made
(job_replay.py).
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from trace_reader.analysis.collective_matching import match
from trace_reader.analysis.edits import Edited
from trace_reader.analysis.job_facts import JobFacts
from trace_reader.analysis.job_replay import JobReplay
from trace_reader.analysis.plain_run import (
    CHEAP,
    ESTIMATED,
    GPU_MARGIN,
    HEADER_KEY,
    MARGIN,
    MEASURED,
    MOST_DEAR,
    SOUND_SHARE,
    SPREAD,
    TRIES,
    UNKNOWN,
    WIDEST,
    PlainRun,
    PricedRun,
    has_prices,
    measured,
    narrowed,
    steps_to_play,
)
from trace_reader.analysis.step_facts import step_period_us
from trace_reader.analysis.what_if import RECORDED, Change, make, only_removes
from trace_reader.link.trace import Trace


class JobWhatIf(msgspec.Struct, frozen=True):
    """What changes of a job bring, as WhatIf has it of a trace. Times in us, of the slowest rank; `collectives`: how many of them
    hold the ranks together.
    """

    traces: tuple[str, ...]
    changes: tuple[str, ...]
    matched: tuple[str, ...]
    ranks: tuple[int, ...]
    collectives: int
    of: str
    recorded_step_us: float
    plain: PlainRun
    changed_low_us: float
    changed_high_us: float
    gain_low: float
    gain_high: float


def job_what_if(job: JobFacts, traces: Sequence[Trace], changes: Sequence[Change]) -> JobWhatIf:
    """What these changes bring, all together, made on all ranks. `traces`: of the job's ranks, in their order. Raises
    LookupError: the job cannot be played again, or a change finds nothing to change.
    """
    _, matched, _ = match(job.summaries)
    if None in job.offset_ns or not matched.whole.any():
        raise LookupError("--what_if plays ranks together that share collectives, and these share none that can be matched")
    # A step that another rank lacks has nobody to wait for.
    steps = min(min(steps_to_play(trace), len(trace.steps)) for trace in traces)
    recorded_us = [step_period_us(trace) for trace in traces]
    if None in recorded_us:
        raise LookupError("--what_if changes a step, and a rank has fewer than two")
    priced = [PricedRun(trace, steps) for trace in traces]
    replay = JobReplay([run.replay for run in priced], matched, [offset or 0 for offset in job.offset_ns])
    as_recorded = [own.nodes.after_ns for own in replay.replays]
    before_us = _play(replay, as_recorded)
    for played, recorded, trace in zip(before_us, recorded_us, traces, strict=True):
        if abs(played - (recorded or 0.0)) > SOUND_SHARE * (recorded or 0.0):
            raise LookupError(
                f"{trace.path}: --what_if cannot play this rank again: clocks disagree, or its first steps are others"
            )
    like = _like(job, changes)
    counted = [place for place in range(len(traces)) if place not in like] or list(range(len(traces)))

    def slowest(times_us: Sequence[float]) -> float:
        return max(times_us[place] for place in counted)

    plain, each = _plain(replay, priced, traces, max(before_us))
    of = plain.how if each else RECORDED
    each = each or [(max(before_us), as_recorded)]
    gains, told, busy_us = [], tuple[str, ...](), 0.0
    for _, own in each:
        runs, told = _changed(replay, own, [change for change in changes if change.kind != "rank"])
        busy_us = max(run.busy_us() for run in runs)
        gains.append(1 - slowest(replay.play(runs, like)) / slowest(_play(replay, own)))
    if all(map(only_removes, changes)):
        gains = [max(gain, 0.0) for gain in gains]
    # The wide margin of an estimate is the CPU's: what the GPUs do in a step is known better.
    changed_us = [
        max(whole * (1 - gain), min(busy_us * (1 - GPU_MARGIN), whole)) for (whole, _), gain in zip(each, gains, strict=True)
    ]
    return JobWhatIf(
        traces=tuple(trace.path for trace in traces),
        changes=tuple(change.text for change in changes),
        matched=told,
        ranks=tuple(rank.rank for rank in job.ranks),
        collectives=replay.collectives,
        of=of,
        recorded_step_us=max(before_us),
        plain=plain,
        changed_low_us=min(changed_us),
        changed_high_us=max(changed_us),
        gain_low=min(gains),
        gain_high=max(gains),
    )


def _like(job: JobFacts, changes: Sequence[Change]) -> dict[int, int]:
    """The ranks (places) that come when another one does. Raises LookupError: a rank that is not there, or in two changes."""
    places = {rank.rank: place for place, rank in enumerate(job.ranks)}
    like = {}
    for change in changes:
        if change.kind == "rank":
            unknown = [str(rank) for rank in change.ranks if rank not in places]
            if unknown:
                raise LookupError(f"{change.text!r}: the job has no trace of rank {' or '.join(unknown)}")
            if places[change.ranks[0]] in like:
                raise LookupError(f"{change.text!r}: rank {change.ranks[0]} is given twice")
            like[places[change.ranks[0]]] = places[change.ranks[1]]
    if chained := set(like) & set(like.values()):
        ranks = ", ".join(str(job.ranks[place].rank) for place in sorted(chained))
        raise LookupError(f"rank {ranks} cannot come like another one and be the one that others come like")
    return like


def _play(replay: JobReplay, times_ns: Sequence[np.ndarray]) -> list[float]:
    """The time of a step on each rank (us), with these times between its nodes."""
    return replay.play([Edited(own, after_ns) for own, after_ns in zip(replay.replays, times_ns, strict=True)])


def _plain(
    replay: JobReplay, priced: Sequence[PricedRun], traces: Sequence[Trace], recorded_us: float
) -> tuple[PlainRun, list[tuple[float, list[np.ndarray]]]]:
    """The job's step without the profiler, of the slowest rank, and the runs that it may be: how long a step is in each (us), and
    the times between the nodes of each rank. None of these: no price is known, or they tell too little.
    """
    unknown = PlainRun(None, None, None, recorded_us, UNKNOWN)
    told = [measured(trace.header.get(HEADER_KEY)) for trace in traces]
    if all(told):
        low, middle, high = (max(own[at] for own in told if own) for at in range(3))
        times = _times_at(replay, priced, middle, recorded_us)
        runs = [(middle, times)] if times else []
        dearest = [run.without(CHEAP.times(MOST_DEAR)) for run in priced]
        if times and middle < recorded_us and max(_play(replay, dearest)) >= middle * (1 - SPREAD):
            runs.append((middle, dearest))  # the GPUs limit it: it does not tell what the CPU takes
        return PlainRun(middle, low, high, recorded_us, MEASURED), runs
    if not all(map(has_prices, traces)):
        return unknown, []
    times_ns = [[run.without(run.estimated[end]) for run in priced] for end in (0, 1)]
    least, most = (max(_play(replay, own)) for own in times_ns)
    if not PricedRun.are_sound(least, most, recorded_us):
        return unknown, []
    # Where both ends are one, the GPUs limit the job, and what they take is known better.
    low = least * (1 - (GPU_MARGIN if most - least < GPU_MARGIN * most else MARGIN))
    high = most * (1 + (MARGIN / 2 if most - least < GPU_MARGIN * most else MARGIN))
    if high - low > WIDEST * high:
        return unknown, []
    low, high = narrowed(low, high)
    runs = list(zip((low, high), times_ns, strict=True))
    if high > recorded_us:  # then the profiler may have cost the slowest rank nothing
        runs.append((recorded_us, [run.replay.nodes.after_ns for run in priced]))
    return PlainRun(min(max((least + most) / 2, low), high), low, high, recorded_us, ESTIMATED), runs


def _times_at(replay: JobReplay, priced: Sequence[PricedRun], step_us: float, recorded_us: float) -> list[np.ndarray] | None:
    """The times between each rank's nodes at the prices, all by one factor, at which the slowest rank's step takes so long; None:
    it does at none.
    """
    low, high = 0.0, MOST_DEAR if step_us < recorded_us else 0.0
    times = [run.without(CHEAP.times(high)) for run in priced]
    if step_us > recorded_us * (1 + SPREAD) or max(_play(replay, times)) > step_us * (1 + MARGIN):
        return None
    for _ in range(TRIES if high else 0):
        middle = (low + high) / 2
        times = [run.without(CHEAP.times(middle)) for run in priced]
        low, high = (middle, high) if max(_play(replay, times)) > step_us else (low, middle)
    return times


def _changed(
    replay: JobReplay, times_ns: Sequence[np.ndarray], changes: Sequence[Change]
) -> tuple[list[Edited], tuple[str, ...]]:
    """The ranks with the changes made on each that has what they change. Raises LookupError: none has."""
    runs = [Edited(own, after_ns) for own, after_ns in zip(replay.replays, times_ns, strict=True)]
    told: dict[str, int] = {}
    for change in changes:
        missed = []
        for run in runs:
            try:
                for matched in make([change], run):
                    told[matched] = told.get(matched, 0) + 1
            except LookupError as error:
                missed.append(error)
        if len(missed) == len(runs):
            raise missed[0]
    return runs, tuple(f"{matched} (on {n} of {len(runs)} ranks)" for matched, n in told.items())
