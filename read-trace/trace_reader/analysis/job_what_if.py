"""What a change of a job would bring: its ranks played again together, as recorded, with the change made (job_replay.py)."""

from collections.abc import Sequence

import msgspec
from trace_reader.analysis.collective_matching import match
from trace_reader.analysis.edits import Edited
from trace_reader.analysis.job_facts import JobFacts
from trace_reader.analysis.job_replay import JobReplay
from trace_reader.analysis.plain_run import SOUND_SHARE, steps_to_play
from trace_reader.analysis.replay import Replay
from trace_reader.analysis.step_facts import step_period_us
from trace_reader.analysis.what_if import Change, make
from trace_reader.link.trace import Trace


class JobWhatIf(msgspec.Struct, frozen=True):
    """What changes of a job bring. Times in us, of the slowest rank; `matched`: of each change with a name, what that matched;
    `collectives`: how many of them hold the ranks together; `gain`: the share of a recorded step that is saved.
    """

    traces: tuple[str, ...]
    changes: tuple[str, ...]
    matched: tuple[str, ...]
    ranks: tuple[int, ...]
    collectives: int
    recorded_step_us: float
    changed_step_us: float
    gain: float


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
    replay = JobReplay([Replay(trace, steps) for trace in traces], matched, [offset or 0 for offset in job.offset_ns])
    before_us = replay.play([Edited(own, own.nodes.after_ns) for own in replay.replays])
    for played, recorded, trace in zip(before_us, recorded_us, traces, strict=True):
        if abs(played - (recorded or 0.0)) > SOUND_SHARE * (recorded or 0.0):
            raise LookupError(
                f"{trace.path}: --what_if cannot play this rank again: clocks disagree, or its first steps are others"
            )
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
    runs, told = _changed(replay, [change for change in changes if change.kind != "rank"])
    after_us = replay.play(runs, like)
    counted = [place for place in range(len(traces)) if place not in like] or list(range(len(traces)))
    before, after = max(before_us[place] for place in counted), max(after_us[place] for place in counted)
    return JobWhatIf(
        traces=tuple(trace.path for trace in traces),
        changes=tuple(change.text for change in changes),
        matched=told,
        ranks=tuple(rank.rank for rank in job.ranks),
        collectives=replay.collectives,
        recorded_step_us=before,
        changed_step_us=after,
        gain=1 - after / before,
    )


def _changed(replay: JobReplay, changes: Sequence[Change]) -> tuple[list[Edited], tuple[str, ...]]:
    """The ranks with the changes made on each that has what they change. Raises LookupError: none has."""
    runs = [Edited(own, own.nodes.after_ns) for own in replay.replays]
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
