"""The ranks of one job together: how long each computed, communicated and waited, and who waited for whom.

A collective ends on all ranks when the last one has come and the message is through: the last to come waits for nobody, so that
the shortest of its durations is the transfer, and what the others take beyond it is waiting.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
import math

import msgspec
import numpy as np
from trace_reader.analysis.jobs.collective_matching import (
    LeftOut,
    Matched,
    Unit,
    aligned,
    entries_of,
    match,
    says_nothing,
)
from trace_reader.analysis.jobs.rank_difference import FEW_STEPS, NOT_LATER, OTHER_WORK, SLOWER, RankDifference
from trace_reader.analysis.jobs.rank_summary import Message, RankFinding, RankSummary, Union
from trace_reader.analysis.jobs.straggler import MIN_SHARE_OF_WINDOW, NOBODY, Straggler, find_straggler, last_to_arrive
from trace_reader.analysis.replay.plain_run import MEASURED, UNKNOWN, PlainRun
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.collectives import OF_COLLECTIVES, bus_factor
from trace_reader.analysis.trace.facts import WORTH_A_CHANGE
from trace_reader.errors import TraceError
from trace_reader.link.intervals import each_within_ns, merged, union_ns, within_ns
from trace_reader.model.rows import median

TOGETHER = 0.5  # of a collective: the most that its ends are apart, where its durations are compared
MOSTLY_TRANSFER, MOSTLY_WAITING = 0.25, 0.5  # the share of skew in transfer and skew: up to, and from
APART_US = 40.0  # ends of one collective, by clocks that are aligned: those of one job are 0.5 to 25 us apart, on H200s
FEWEST_TO_TELL = 10  # steps
EXPLAINS = 1 / 3  # of what another rank waits
MIN_SHARE = 0.05  # of the path of the rank that shows a finding most; of what is asked of collectives the job's replay decides
TOLD_BETTER = ("exposed-communication", "late-rank-suspected")  # by the job's own tables and its verdict
NO_ENTRIES = np.empty(0, np.int64)


class RankStep(msgspec.Struct, frozen=True):
    """A rank in a recorded step, from the end of the one before, of its work, to its own; the first one from its start."""

    step: str
    period_us: float
    compute_us: float
    exposed_us: float
    waiting_us: float
    idle_us: float


class RankFacts(msgspec.Struct, frozen=True):
    """One rank, summed over its recorded steps. Communication is overlapped where something is computed at the same time, else
    exposed. `waiting_us`: of its matched collectives, the durations beyond the transfer; `exposed_waiting_us` and
    `exposed_transfer_us`: of these what is exposed. `last_to_arrive`: in how many of its `matched` ones it was the last.
    """

    rank: int
    trace: str
    steps: int
    window_us: float
    compute_us: float
    communication_us: float
    overlapped_us: float
    exposed_us: float
    waiting_us: float
    exposed_waiting_us: float
    exposed_transfer_us: float
    idle_us: float
    last_to_arrive: int
    matched: int
    verdict: str
    by_step: tuple[RankStep, ...]


class JobCollectiveFacts(msgspec.Struct, frozen=True):
    """All matched calls of one kind and size in one group. Times are medians: the transfer, and the skew, which is what the first
    to come waited. `kind`: transfer, arrival skew or mixed, by what took the time of the first; inconclusive where some ranks'
    traces are not there.
    """

    name: str
    group: str
    ranks: tuple[int, ...]
    count: int
    bytes: int | None
    transfer_us: float
    skew_us: float
    bus_gb_per_s: float | None
    kind: str


class JobFinding(msgspec.Struct, frozen=True):
    """A finding of some of the ranks' own traces, as that one has it which has the largest share.
    `gain`: what following its advice on all of them saves of a step of the job without the profiler; None where that is not
    known, and `gain_unknown_because` says why.
    """

    slug: str
    ranks: tuple[int, ...]
    seen: str
    next: str
    share: float
    gain: Gain | None = None
    gain_unknown_because: str | None = None

    @property
    def is_worthless(self) -> bool:
        """Whether it is known that what it says next saves next to nothing."""
        return self.gain is not None and self.gain.high < WORTH_A_CHANGE


class CommunicationPlace(msgspec.Struct, frozen=True):
    """Collectives of one kind, type and phase that one place asks for: `asked_by`, the innermost annotation around them (without
    what is in brackets), or op; empty: none. `calls` and `bytes`: of a rank in a step (0 bytes: not said). What the job's step
    saves: `gone`, without them; `half`, where each takes half of its transfer; `hidden`, where none of it is waited for;
    `in_one`, where one call a step sends what all of them do (None where it is one).
    """

    name: str
    dtype: str
    phase: str
    asked_by: str
    calls: float
    bytes: float
    gone: Gain
    half: Gain
    hidden: Gain
    in_one: Gain | None


class JobFacts(msgspec.Struct, frozen=True, eq=False):
    """The facts of one job.

    `offset_ns`: for each rank, the nanoseconds to add to its times to get times on the first rank's clock; None where nothing
    ties the two clocks. `clock_residual_us`: how far apart the ends of one collective still are after that, the median.
    `ends_fit`: whether these ends are close enough for the durations to be compared. `late`: the rank that causes half of the
    waiting or more, even where that is too little to report. `waits_ns`: for each rank, the intervals in which it waited.
    `plain`: a step without the profiler on the slowest rank. `late_gain`: how much of this step is saved if the late rank arrives
    at its collectives when the rank that waits longest does; None where that is not known. `difference`: what the late rank does
    differently from that rank; None where their two traces could not be compared. `communication`: the collectives, grouped by
    the place that asks for them; the group whose removal saves most comes first. `can_be_played`: False if a replay of the job
    was tried and was not possible; else True.
    """

    summaries: tuple[RankSummary, ...]
    ranks: tuple[RankFacts, ...]
    world_size: int | None
    matched: int
    unmatched: int
    whole: bool
    transfer_us: float
    clock_residual_us: float | None
    ends_fit: bool
    by_order: bool  # the traces do not say who takes part in a collective: matched by name and order
    late: Straggler | None
    collectives: tuple[JobCollectiveFacts, ...]
    left_out: tuple[LeftOut, ...]
    offset_ns: tuple[int | None, ...]
    waits_ns: tuple[Union, ...]
    plain: PlainRun
    findings: tuple[JobFinding, ...]
    late_gain: Gain | None = None
    difference: RankDifference | None = None
    communication: tuple[CommunicationPlace, ...] = ()
    can_be_played: bool = True

    @property
    def straggler(self) -> Straggler | None:
        """The late rank, where what it costs the job is worth telling; where that is not known, what the others wait for it. One
        that only does the same more slowly is none; without a GPU, where the two are not compared, nor is one that is late in
        half of the steps, or waits half as long as another.
        """
        late = self.late
        if late is None or late.cost < MIN_SHARE_OF_WINDOW or self.is_slower_alone:
            return None
        if self.difference is None and not any(summary.has_gpu for summary in self.summaries):
            (own_us,) = (rank.waiting_us for rank in self.ranks if rank.rank == late.rank)
            by_turns = late.of_steps > FEW_STEPS and 2 * late.in_steps <= late.of_steps and not late.once
            if by_turns or 2 * own_us >= self.waits_longest.waiting_us:
                return None
        return self.late if self.late_gain is None or self.late_gain.high >= MIN_SHARE_OF_WINDOW else None

    @property
    def mending_gain(self) -> Gain | None:
        """What the job's step saves if the late rank is mended: all that it costs, or, where it has more to compute than another,
        what is left if that is shared out.
        """
        gain, late, difference = self.late_gain, self.late, self.difference
        if gain is None or late is None or late.cause != "compute" or difference is None or difference.kind != OTHER_WORK:
            return gain
        return msgspec.structs.replace(gain, low=gain.low * (len(self.ranks) - 1) / len(self.ranks))

    @property
    def is_slower_alone(self) -> bool:
        """Whether nothing shows that the late rank does what takes it longer in each step: that it does the same, more slowly, or
        is no later by its own ops.
        """
        of_host = self.late is not None and self.late.cause in ("cpu", "unknown", "compute")
        if not of_host or self.difference is None:
            return False
        return self.difference.kind in (SLOWER, NOT_LATER) or self.is_hardly_explained

    @property
    def is_hardly_explained(self) -> bool:
        """Whether what the late rank does otherwise takes less than a third of what another one waits."""
        waits = self.waits_longest
        return self.difference is not None and self.difference.sum_us < EXPLAINS * waits.exposed_waiting_us

    @property
    def to_compare(self) -> tuple[RankFacts, RankFacts] | None:
        """The late rank and the one that waits for it longest, where what it costs is worth a look."""
        if self.late is None or self.late.cost < MIN_SHARE_OF_WINDOW or len(self.ranks) < 2:
            return None
        (late,) = (rank for rank in self.ranks if rank.rank == self.late.rank)
        return late, self.waits_longest

    @property
    def waits_longest(self) -> RankFacts:
        """Of the ranks that are not the late one, that which waits for most of its time."""
        others = [rank for rank in self.ranks if self.late is None or rank.rank != self.late.rank]
        return max(others, key=lambda rank: rank.exposed_waiting_us / rank.window_us if rank.window_us else 0.0)

    @property
    def steps_to_tell(self) -> int:
        """How many steps would tell what the rank that waits longest waits from chance: twice the standard error of their mean is
        then half of it (n = (2 s / (m / 2))^2, as of any mean: NIST/SEMATECH e-Handbook, 7.2.2.2), FEWEST_TO_TELL at least.
        """
        waits_us = [step.waiting_us for step in self.waits_longest.by_step]
        mean_us = math.fsum(waits_us) / max(len(waits_us), 1)
        if len(waits_us) < 3 or mean_us <= 0:
            return FEWEST_TO_TELL
        return max(math.ceil((4 * float(np.std(waits_us, ddof=1)) / mean_us) ** 2), FEWEST_TO_TELL)

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks of the job whose traces are not there."""
        return tuple(sorted(set(range(self.world_size or 0)) - {rank.rank for rank in self.ranks}))


def job_facts(summaries: Iterable[RankSummary]) -> JobFacts:
    """Return the facts of a job from its ranks, in any order. Raises TraceError where they are not the ranks of one job."""
    ranks = sorted(summaries, key=lambda summary: summary.rank)
    check_job(ranks)
    units, matched, left_out = match(ranks)
    offset_ns, residual_us = aligned(ranks, matched, units)
    _check_times(ranks, matched, offset_ns, residual_us)
    shortest = np.full(len(matched.whole), np.inf)
    np.minimum.at(shortest, matched.collective, matched.duration_us)
    longest = np.zeros(len(matched.whole))
    np.maximum.at(longest, matched.collective, matched.duration_us)
    waited_us = matched.duration_us - shortest[matched.collective]
    last = last_to_arrive(matched, units, offset_ns, longest - shortest)
    lasts, entries = np.bincount(last[last != NOBODY], minlength=len(ranks)), dict(entries_of(matched.rank))
    facts, waits = [], []
    for place, summary in enumerate(ranks):
        told, waiting = _rank_facts(summary, matched, entries.get(place, NO_ENTRIES), waited_us, int(lasts[place]))
        facts.append(told)
        waits.append(waiting)
    exposed = [told.exposed_waiting_us / told.window_us if told.window_us else 0.0 for told in facts]
    guessed = any(says_nothing(message, summary) for summary in ranks for message in summary.messages)
    ends_fit = (any(summary.has_gpu for summary in ranks) and not guessed) or _ends_fit(longest, residual_us)
    return JobFacts(
        summaries=tuple(ranks),
        ranks=tuple(facts),
        world_size=next((summary.world_size for summary in ranks if summary.world_size), None),
        matched=len(matched.whole),
        unmatched=_unmatched(left_out),
        whole=bool(matched.whole.all()),
        transfer_us=math.fsum(shortest.tolist()),
        clock_residual_us=residual_us,
        ends_fit=ends_fit,
        by_order=guessed,
        late=find_straggler(ranks, matched, last, waited_us, exposed) if ends_fit else None,
        collectives=_collective_facts(units, matched, shortest, longest),
        left_out=tuple(left_out),
        offset_ns=tuple(offset_ns),
        waits_ns=tuple(waits),
        plain=_plain(ranks),
        findings=_findings(ranks),
    )


def check_job(summaries: Sequence[RankSummary]) -> None:
    """Raises TraceError where two are of one rank, or not all of one job: it names the files."""
    by_rank: dict[int, RankSummary] = {}
    for summary in summaries:
        if (other := by_rank.setdefault(summary.rank, summary)) is not summary:
            raise TraceError(
                f"two files are of rank {summary.rank}: {other.trace} and {summary.trace}; name one for each rank of one job"
            )
    first = min(summaries, key=lambda summary: (summary.world_size is None, summary.rank))
    for summary in summaries:
        if first.world_size and summary.world_size and first.world_size != summary.world_size:
            raise TraceError(
                f"not one job: {first.trace} is of {first.world_size} ranks, {summary.trace} of {summary.world_size}"
            )
        if _groups_of_all(first) != _groups_of_all(summary):
            raise TraceError(f"not one job: {first.trace} and {summary.trace} have different process groups")
        if summary.world_size and summary.rank >= summary.world_size:
            raise TraceError(f"{summary.trace}: rank {summary.rank} of {summary.world_size} ranks")


def _groups_of_all(summary: RankSummary) -> list[str]:
    """Return the names of the groups of all ranks, which every rank knows."""
    return sorted(name for name, ranks in summary.groups if len(ranks) == summary.world_size)


def _check_times(ranks: Sequence[RankSummary], matched: Matched, offset_ns: list[int | None], residual_us: float | None) -> None:
    """Raises TraceError where two traces were recorded at different times and nothing shows that only their clocks differ."""
    for summary, shift in zip(ranks[1:], offset_ns[1:], strict=True):
        first = ranks[0]
        starts, ends = ([rank.base_ns + rank.zero_ns + rank.window_ns[end] for rank in (first, summary)] for end in (0, 1))
        apart_ns = max(starts) - min(ends)
        tied = shift is not None and residual_us is not None and residual_us < APART_US
        if apart_ns > 0 and not tied and len(first.calls) and len(summary.calls):
            raise TraceError(
                f"not one job: {first.trace} and {summary.trace} were recorded {apart_ns / 1e9:.1f} s apart, and their "
                "collectives do not fit each other"
            )


def _plain(ranks: Sequence[RankSummary]) -> PlainRun:
    """Return the step of the slowest rank without the profiler, where each has measured its own."""
    slowest = max(ranks, key=lambda rank: (rank.plain.step_us or 0.0, -rank.rank)).plain
    if all(rank.plain.how == MEASURED for rank in ranks):
        low_us, high_us = (max(getattr(rank.plain, end) for rank in ranks) for end in ("low_us", "high_us"))
        return PlainRun(slowest.step_us, low_us, high_us, slowest.recorded_step_us, MEASURED)
    return PlainRun(None, None, None, None, UNKNOWN)


def _findings(ranks: Sequence[RankSummary]) -> tuple[JobFinding, ...]:
    """Return the findings of the ranks' own traces, but for what the job itself tells better; those of few ranks first, which
    tell the ranks apart.
    """
    by_slug: dict[str, list[tuple[float, int, RankFinding]]] = defaultdict(list)
    for summary in ranks:
        for finding in summary.findings:
            if finding.slug not in TOLD_BETTER:
                by_slug[finding.slug].append((finding.share, -summary.rank, finding))
    found = []
    for slug, one in by_slug.items():
        share, _, finding = max(one, key=lambda item: item[:2])
        if share < MIN_SHARE and slug not in OF_COLLECTIVES:
            continue
        found.append(JobFinding(slug, tuple(sorted(-rank for _, rank, _ in one)), finding.seen, finding.next, finding.share))
    return tuple(sorted(found, key=lambda item: (len(item.ranks), -item.share, item.slug)))


def _unmatched(left_out: list[LeftOut]) -> int:
    """Return how many collectives that are: as many as the rank with the most calls of a group has, in all of its kinds."""
    most: dict[tuple[str, str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for left in left_out:
        for rank, n in left.counts:
            most[left.name, left.group, left.step][rank] += n
    return sum(max(counts.values()) for counts in most.values())


def _ends_fit(longest_us: np.ndarray, residual_us: float | None) -> bool:
    """Return whether the calls of one collective end together, without which a duration does not say who waited."""
    return residual_us is not None and residual_us <= TOGETHER * median(longest_us)


def _rank_facts(
    summary: RankSummary, matched: Matched, entries: np.ndarray, waited_us: np.ndarray, last: int
) -> tuple[RankFacts, Union]:
    """Return the facts of a rank, and where it waited."""
    communication_ns, compute_ns = _length(summary.communicating), _length(summary.computing)
    overlapped_ns = within_ns(*summary.communicating, summary.computing)
    start_ns = matched.start_ns[entries]
    waiting = merged_in_order(start_ns, start_ns + np.rint(waited_us[entries] * 1000).astype(np.int64))
    waiting_ns = _length(waiting) - within_ns(*waiting, summary.computing)
    end_ns = start_ns + np.rint(matched.duration_us[entries] * 1000).astype(np.int64)
    transferring = merged_in_order(start_ns + np.rint(waited_us[entries] * 1000).astype(np.int64), end_ns)
    # Of several collectives at once one may transfer while another waits: that is waiting.
    not_transferring = merged_in_order(
        *(np.concatenate(ends) for ends in zip(waiting, summary.computing, strict=True))
    )  # fmt: skip
    transfer_ns = _length(transferring) - within_ns(*transferring, not_transferring)
    exposed_ns = communication_ns - overlapped_ns
    told = RankFacts(
        rank=summary.rank,
        trace=summary.trace,
        steps=len(summary.steps),
        window_us=(summary.window_ns[1] - summary.window_ns[0]) / 1000,
        compute_us=compute_ns / 1000,
        communication_us=communication_ns / 1000,
        overlapped_us=overlapped_ns / 1000,
        exposed_us=exposed_ns / 1000,
        waiting_us=math.fsum(waited_us[entries].tolist()),
        exposed_waiting_us=min(waiting_ns, exposed_ns) / 1000,
        exposed_transfer_us=min(transfer_ns, exposed_ns) / 1000,
        idle_us=(summary.window_ns[1] - summary.window_ns[0] - _length(summary.busy)) / 1000,
        last_to_arrive=last,
        matched=len(entries),
        verdict=summary.verdict,
        by_step=_by_step(summary, waiting),
    )
    return told, waiting


def _by_step(summary: RankSummary, waiting: Union) -> tuple[RankStep, ...]:
    """Return what a rank did in each step. Waiting is what is exposed of it."""
    end_ns = summary.step_ends_ns
    if not len(end_ns):
        return ()
    start_ns = np.append(summary.window_ns[0], end_ns[:-1])
    computing_ns = each_within_ns(start_ns, end_ns, summary.computing)

    def exposed_ns(union: Union) -> np.ndarray:
        both = tuple(np.concatenate([one, other]) for one, other in zip(union, summary.computing, strict=True))
        return each_within_ns(start_ns, end_ns, merged_in_order(*both)) - computing_ns

    communicating_ns = exposed_ns(summary.communicating)
    idle_ns = end_ns - start_ns - each_within_ns(start_ns, end_ns, summary.busy)
    columns = end_ns - start_ns, computing_ns, communicating_ns, np.minimum(exposed_ns(waiting), communicating_ns), idle_ns
    return tuple(RankStep(name, *step) for name, step in zip(summary.steps, (np.stack(columns, 1) / 1000).tolist(), strict=True))


def merged_in_order(start_ns: np.ndarray, end_ns: np.ndarray) -> Union:
    """As `merged`, of intervals in any order."""
    order = np.argsort(start_ns, kind="stable")
    return merged(start_ns[order], end_ns[order])


def _length(union: Union) -> int:
    return union_ns(*union)


def _collective_facts(
    units: list[Unit], matched: Matched, shortest: np.ndarray, longest: np.ndarray
) -> tuple[JobCollectiveFacts, ...]:
    """Return a row for each kind, size and group, those with the most time on the first to come first."""
    rows: dict[tuple[Message, tuple[int, ...]], list[int]] = defaultdict(list)
    for number, unit in enumerate(matched.unit_of.tolist()):
        rows[units[unit].message, units[unit].ranks].append(number)
    found = []
    for (message, ranks), numbers in rows.items():
        transfer_us, skew_us = median(shortest[numbers]), median(longest[numbers] - shortest[numbers])
        factor = bus_factor(message.name, len(ranks))
        rate = message.bytes * factor / transfer_us / 1e3 if message.bytes and factor and transfer_us > 0 else None
        total = math.fsum(longest[numbers].tolist())
        share = skew_us / (skew_us + transfer_us) if skew_us + transfer_us > 0 else 0.0
        kind = "transfer" if share <= MOSTLY_TRANSFER else "arrival skew" if share >= MOSTLY_WAITING else "mixed"
        if not matched.whole[numbers].all():
            rate, kind = None, "inconclusive"
        row = JobCollectiveFacts(
            message.name, message.group, ranks, len(numbers), message.bytes, transfer_us, skew_us, rate, kind
        )
        found.append((total, row))
    return tuple(row for _, row in sorted(found, key=lambda pair: (-pair[0], pair[1].name, pair[1].group, pair[1].bytes or 0)))
