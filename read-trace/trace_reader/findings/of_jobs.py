"""What the advice of its ranks' findings saves of a job's step, in which the ranks wait for each other."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
import re

import msgspec
import numpy as np
from trace_reader.analysis.jobs.job_facts import CommunicationPlace, JobFacts, JobFinding
from trace_reader.analysis.jobs.job_run import JobRun
from trace_reader.analysis.jobs.more_ranks import SMALL
from trace_reader.analysis.jobs.rank_difference import RankDifference, rank_difference
from trace_reader.analysis.replay.edits import BANDS, Edit, Edited, Effect, all_of, dropped, scaled
from trace_reader.analysis.replay.plain_run import UNKNOWN
from trace_reader.analysis.replay.what_if import PLAIN, Gain, subsets, together, told
from trace_reader.analysis.trace.collectives import ASKS, PHASES, Phase, collective_calls, messages_of
from trace_reader.findings import MOST_CHOICES, NAMING, WIDEST, Choice, Choices, Reading, too_wide
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, among, distinct, once
from trace_reader.model.slices import Kind
from trace_reader.names.kernel_names import is_of_a_backend
from trace_reader.names.range_names import is_step

MOST_PLACES = 12  # of communication, that are played: those that take most
MEND = "Fix what delays this rank, or give it less work: see its own trace."
Effects = Mapping[int, Effect]  # by the rank's place in the job


class PlayedJob:
    """A job and its ranks' traces, played again. `job`: with what a step takes without the profiler, and the findings' gains; of
    one that cannot be played, or whose plain step is not known, with the reason.
    """

    def __init__(self, job: JobFacts, read: Sequence[Reading]):
        """`read`: of the job's ranks, in their order."""
        self.readings, self._run = read, None
        job = msgspec.structs.replace(job, difference=_difference(job, read))
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
        communication = self._communication()
        self.job = msgspec.structs.replace(self.job, findings=findings, late_gain=late_gain, communication=communication)

    @property
    def _like(self) -> dict[int, int]:
        """The late rank, coming when the one does that waits for it longest."""
        if self.job.late is None:
            return {}
        places = [rank.rank for rank in self.job.ranks]
        return {places.index(self.job.late.rank): places.index(self.job.waits_longest.rank)}

    def _communication(self) -> tuple[CommunicationPlace, ...]:
        """Return what of the ranks' communication a step could do without, and what that saves."""
        by_key: dict[tuple[str, str, Phase, str], dict[int, Rows]] = defaultdict(dict)
        for place, reading in enumerate(self.readings):
            calls = collective_calls(reading.trace)
            keys = [
                (message.name.strip("_").removesuffix("_base"), message.dtype, Phase(phase), asker)
                for message, phase, asker in zip(messages_of(calls), calls.phase, _askers(reading.trace, calls), strict=True)
            ]
            numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
            every = list(numbers)
            for (number,), rows in calls.by(np.array([numbers[key] for key in keys], np.int64)):
                by_key[every[number]][place] = rows
        found, latency_us = [], self._latency_us()
        longest = sorted(by_key.items(), key=lambda item: -max(rows.total_us for rows in item[1].values()))[:MOST_PLACES]
        for (name, dtype, phase, annotation), ranks in longest:
            ops = {place: Rows(rows.slices, once(rows.op).astype(np.int64)) for place, rows in ranks.items()}
            gone, _ = self._gain({place: Effect(dropped(rows)) for place, rows in ops.items()})
            half, hidden, in_one = (
                _at_most(gone, self._gain({place: Effect(edit(rows)) for place, rows in ranks.items()})[0])
                for edit in (
                    lambda rows: scaled(rows, 0.5),
                    lambda rows: scaled(rows, 0.0),
                    lambda rows: _in_one(rows, latency_us),
                )
            )
            steps = sum(len(self.readings[place].trace.steps) for place in ranks)
            asked, sent = sum(map(len, ranks.values())), sum(float(rows.bytes.sum()) for rows in ranks.values())
            several = in_one if asked > steps else None
            found.append(CommunicationPlace(
                name, dtype, PHASES[phase], annotation, asked / steps, sent / steps, gone, half, hidden, several
            ))  # fmt: skip
        return tuple(sorted(found, key=lambda one: (-one.gone.low - one.gone.high, -one.bytes, one.name, one.asked_by)))

    def _latency_us(self) -> float:
        """Return how long the shortest small message of the job takes; 0 where it has none."""
        small_us = list[float]()
        for reading in self.readings:
            calls = collective_calls(reading.trace)
            small = calls.where((calls.bytes > 0) & (calls.bytes <= SMALL))
            small_us += small.duration_us.tolist()
        return min(small_us, default=0.0)

    def choices(self) -> Choices | None:
        """Return what the late rank and the findings that save most save together, to be chosen from; None where none is known
        to.
        """
        job, offered = self.job, list[tuple[Choice, Effects, dict[int, int]]]()
        if job.straggler is not None and job.late_gain is not None:
            name = f"rank {job.straggler.rank} like {job.waits_longest.rank}"
            offered.append((Choice(name, MEND), {}, self._like))
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
        """Return what the changes save of the job's step, by their kind as of a single trace (`told`); and how long a GPU is busy
        then at least (us).
        """
        assert self._run is not None

        def change(ranks: Sequence[Edited], most: bool) -> None:
            for place, effect in effects.items():
                edit = effect.most if most else effect.least
                if edit is not None:
                    edit(ranks[place])

        is_sure = not effects or any(effect.least is not None for effect in effects.values())
        least = self._run.changed(lambda ranks: change(ranks, False), like)[0] if is_sure else [0.0]
        most, busy_us = self._run.changed(lambda ranks: change(ranks, True), like)
        if not effects:  # the late rank's, which is what waiting for it takes
            low = max(min(least), 0.0)
            return Gain(low, max(*most, low)), busy_us
        kind = min((effect.kind for effect in effects.values()), key=lambda kind: BANDS[kind][0])
        return told([max(one, 0.0) for one in least], [max(one, 0.0) for one in most], kind, PLAIN), busy_us


def _at_most(gone: Gain, gain: Gain) -> Gain:
    """Return a gain, but for what is more than without any of it: the replay of few steps has their ends in it."""
    return Gain(min(gain.low, gone.low), min(gain.high, gone.high), gain.of)


def _in_one(calls: Rows, latency_us: float) -> Edit:
    """Let of each step's collectives the first ask for all: each other one takes no launch, and a message's latency less."""
    first = distinct(calls.step).first
    others = calls.where(~among(np.arange(len(calls)), first))
    left = np.maximum(others.duration_us - latency_us, 0) / np.maximum(others.duration_us, 1e-9)
    asked = Rows(calls.slices, once(others.op).astype(np.int64))
    return all_of(dropped(asked, left_of_gpu=1.0), scaled(others, left))


def _askers(trace: Trace, calls: Rows) -> list[str]:
    """Return the innermost annotation around each of these collectives' ops, but for the step's and the backend's own, without
    what is in brackets ("FSDP::all_gather (blocks.0)"), and with a star for each number; where there is none the op around it,
    as the node of the backward pass that makes a gradient; empty for none.
    """
    slices = trace.slices
    is_place = slices.are_named(Kind.ANNOTATION, lambda name: not is_step(name) and not is_of_a_backend(name))
    is_op = slices.are_named(Kind.OP, lambda name: not name.startswith(ASKS) and not is_of_a_backend(name))
    around, op = (innermost(slices, trace.parent, calls.op, mask) for mask in (is_place, is_op))
    rows = np.where(around >= 0, around, op).tolist()
    names = [slices.names[slices.name[row]].partition(" (")[0] if row >= 0 else "" for row in rows]
    names = [name.removeprefix(f"{EVALUATE}: ").removeprefix("torch::autograd::") for name in names]
    return [re.sub(r"\d+", "*", name) for name in names]


def _difference(job: JobFacts, read: Sequence[Reading]) -> RankDifference | None:
    """Return what the late rank does otherwise than the one that waits for it longest."""
    if job.late is None or (both := job.to_compare) is None:
        return None
    places = [rank.rank for rank in job.ranks]
    late, other = (read[places.index(rank.rank)].trace for rank in both)
    return rank_difference(late, other, both[1].rank, of_gpu=job.late.cause == "compute")


def without_gains(job: JobFacts, because: str) -> JobFacts:
    """Return a job of which it is not known what changes bring, and why. A measured step stays known."""
    findings = tuple(msgspec.structs.replace(finding, gain_unknown_because=because) for finding in job.findings)
    known = job.plain.how != UNKNOWN or job.plain.unknown_because
    plain = job.plain if known else msgspec.structs.replace(job.plain, unknown_because=because)
    return msgspec.structs.replace(job, plain=plain, findings=findings)
