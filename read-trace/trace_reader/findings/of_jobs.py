"""What the advice of its ranks' findings saves of a job's step, in which the ranks wait for each other."""

from collections.abc import Mapping, Sequence

import msgspec
from trace_reader.analysis.jobs.job_facts import JobFacts, JobFinding
from trace_reader.analysis.jobs.job_run import JobRun
from trace_reader.analysis.replay.edits import Edited, Effect
from trace_reader.analysis.replay.plain_run import UNKNOWN
from trace_reader.analysis.replay.what_if import Gain, subsets, together
from trace_reader.findings import MOST_CHOICES, NAMING, WIDEST, Choice, Choices, Reading, too_wide

Effects = Mapping[int, Effect]  # by the rank's place in the job


class PlayedJob:
    """A job and its ranks' traces, played again. `job`: with what a step takes without the profiler, and the findings' gains; of
    one that cannot be played, or whose plain step is not known, with the reason.
    """

    def __init__(self, job: JobFacts, read: Sequence[Reading]):
        """`read`: of the job's ranks, in their order."""
        self.readings, self._run = read, None
        try:
            self._run = JobRun(job, [reading.trace for reading in read])
        except LookupError as error:
            self.job = msgspec.structs.replace(without_gains(job, str(error)), can_be_played=False)
            return
        self.job = msgspec.structs.replace(job, plain=self._run.plain)
        if not self._run.is_plain:
            self.job = without_gains(self.job, self.job.plain.unknown_because or "the replay does not reach the measured step")
            return
        findings = tuple(self._with_gain(finding) for finding in job.findings)
        late_gain = None if job.late is None else self._gain({}, self._like)[0]
        self.job = msgspec.structs.replace(self.job, findings=findings, late_gain=late_gain)

    @property
    def _like(self) -> dict[int, int]:
        """The late rank, coming when the one does that waits for it longest."""
        if self.job.late is None:
            return {}
        places = [rank.rank for rank in self.job.ranks]
        return {places.index(self.job.late.rank): places.index(self.job.waits_longest.rank)}

    def choices(self) -> Choices | None:
        """Return what the late rank and the findings that save most save together, to be chosen from; None where none is known
        to.
        """
        job, offered = self.job, list[tuple[Choice, Effects, dict[int, int]]]()
        if job.straggler is not None and job.late_gain is not None:
            advice = "Mend what keeps it, or let it do less: what its own trace shows."
            name = f"rank {job.straggler.rank} like {job.waits_longest.rank}"
            offered.append((Choice(name, advice), {}, self._like))
        for finding in job.findings:
            if finding.gain and not finding.is_worthless and (finding.slug in NAMING or not self._is_verdict(finding)):
                offered.append((Choice(finding.slug, finding.next), self._effects(finding), {}))
        if not offered:
            return None
        offered, gains, busy_us = offered[:MOST_CHOICES], [], []
        for subset in subsets(offered):
            ranks = {place for _, effects, _ in subset for place in effects}
            of_ranks = {place: together([effects[place] for _, effects, _ in subset if place in effects]) for place in ranks}
            gain, busy = self._gain(of_ranks, {late: other for _, _, like in subset for late, other in like.items()})
            gains.append(gain)
            busy_us.append(busy)
        return Choices(tuple(choice for choice, _, _ in offered), tuple(gains), tuple(busy_us))

    def _is_verdict(self, finding: JobFinding) -> bool:
        return any(summary.verdict == finding.slug for summary in self.job.summaries)

    def _with_gain(self, finding: JobFinding) -> JobFinding:
        effects = self._effects(finding)
        if not effects:
            return msgspec.structs.replace(finding, gain_unknown_because="the advice names no change that can be played")
        gain, _ = self._gain(effects)
        if gain.high - gain.low > WIDEST:
            return msgspec.structs.replace(finding, gain_unknown_because=too_wide(gain))
        return msgspec.structs.replace(finding, gain=gain)

    def _effects(self, finding: JobFinding) -> dict[int, Effect]:
        """Return what following the advice does to each of the ranks that show it, also where it is too small there to be a
        finding.
        """
        effects = {place: reading.effect(finding.slug) for place, reading in enumerate(self.readings)}
        return {place: effect for place, effect in effects.items() if effect is not None}

    def _gain(self, effects: Effects, like: Mapping[int, int] | None = None) -> tuple[Gain, float]:
        """From what is sure in the worst of the runs that the job may be to the most in the best of them, as played (no change
        of a job was measured, by which this could be told more narrowly); and how long a GPU is busy then at least (us).
        """
        assert self._run is not None

        def change(ranks: Sequence[Edited], most: bool) -> None:
            for place, effect in effects.items():
                edit = effect.most if most else effect.least
                if edit is not None:
                    edit(ranks[place])

        least, _ = self._run.changed(lambda ranks: change(ranks, False), like)
        most, busy_us = self._run.changed(lambda ranks: change(ranks, True), like)
        low = max(min(least), 0.0)
        return Gain(low, max(*most, low)), busy_us


def without_gains(job: JobFacts, because: str) -> JobFacts:
    """Return a job of which it is not known what changes bring, and why. A measured step stays known."""
    findings = tuple(msgspec.structs.replace(finding, gain_unknown_because=because) for finding in job.findings)
    known = job.plain.how != UNKNOWN or job.plain.unknown_because
    plain = job.plain if known else msgspec.structs.replace(job.plain, unknown_because=because)
    return msgspec.structs.replace(job, plain=plain, findings=findings)
