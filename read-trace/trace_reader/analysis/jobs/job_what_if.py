"""What a change of a job would bring, by its ranks without the profiler, played again together with the change made."""

from collections.abc import Sequence

import msgspec
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.analysis.jobs.job_run import JobRun
from trace_reader.analysis.jobs.more_ranks import MoreRanks
from trace_reader.analysis.replay.edits import Edited
from trace_reader.analysis.replay.plain_run import GPU_MARGIN, PlainRun
from trace_reader.analysis.replay.what_if import OF_A_JOB, RECORDED, Change, gains_of, make, only_removes
from trace_reader.link.trace import Trace


class JobWhatIf(msgspec.Struct, frozen=True):
    """What changes of a job bring, as WhatIf has it of a trace. Times in us, of the slowest rank; `collectives`: how many of them
    hold the ranks together; `latency_us`: of a step of the rings of more ranks, at most.
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
    latency_us: float | None = None


def job_what_if(job: JobFacts, traces: Sequence[Trace], changes: Sequence[Change]) -> JobWhatIf:
    """Return what these changes bring, all together, made on all ranks. `traces`: of the job's ranks, in their order. Raises
    LookupError: the job cannot be played again, or a change finds nothing to change.
    """
    try:
        run = JobRun(job, traces)
    except LookupError as error:
        raise LookupError(f"what-if cannot play this job again: {error}") from None
    others = [change for change in changes if change.kind not in OF_A_JOB]
    matched, rings = tuple[str, ...](), [MoreRanks(run, traces, *one.ranks) for one in changes if one.kind == "ranks"]
    if len(rings) > 1:
        raise LookupError("expected 'ranks N' once")
    latency = 0.0

    def change(ranks: Sequence[Edited]) -> None:
        nonlocal matched
        matched = _make(others, ranks)
        for ring in rings:
            ring.change(ranks, latency)
            matched = (*matched, f"ranks {ring.ranks}: {ring.matched}")

    gains, busy_us = run.changed(change, _like(job, changes))
    runs = list(run.runs)
    if rings:  # each of the runs, without a latency of the rings' steps, and with all of it
        latency = 1.0
        with_latency, _ = run.changed(change, _like(job, changes))
        _, busy_us = run.changed(lambda ranks: _make(others, ranks), _like(job, changes))
        gains, runs = [*gains, *with_latency], [*runs, *runs]
    if all(map(only_removes, changes)):
        gains = [max(gain, 0.0) for gain in gains]
    # The wide margin of an estimate is the CPU's: what the GPUs do in a step is known better.
    changed_us = [
        max(whole * (1 - gain), min(busy_us * (1 - GPU_MARGIN), whole)) for (whole, _), gain in zip(runs, gains, strict=True)
    ]
    return JobWhatIf(
        traces=tuple(trace.path for trace in traces),
        changes=tuple(one.text for one in changes),
        matched=matched,
        ranks=tuple(rank.rank for rank in job.ranks),
        collectives=run.collectives,
        of=run.plain.how if run.is_plain else RECORDED,
        recorded_step_us=run.recorded_us,
        plain=run.plain,
        changed_low_us=min(changed_us),
        changed_high_us=max(changed_us),
        latency_us=rings[0].latency_us if rings else None,
        **gains_of([whole for whole, _ in runs], changed_us),
    )


def _like(job: JobFacts, changes: Sequence[Change]) -> dict[int, int]:
    """Return the ranks (places) that come when another one does. Raises LookupError: a rank that is not there, or in two
    changes.
    """
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


def _make(changes: Sequence[Change], ranks: Sequence[Edited]) -> tuple[str, ...]:
    """Make the changes on each rank that has what they change. Raises LookupError: none has."""
    told: dict[str, int] = {}
    for change in changes:
        missed = []
        for rank in ranks:
            try:
                for matched in make([change], rank):
                    told[matched] = told.get(matched, 0) + 1
            except LookupError as error:
                missed.append(error)
        if len(missed) == len(ranks):
            raise missed[0]
    return tuple(f"{matched} (on {n} of {len(ranks)} ranks)" for matched, n in told.items())
