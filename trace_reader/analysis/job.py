"""The ranks of one job together: collectives matched over the ranks, clocks aligned by their ends, and who waited for whom.

A collective ends on all ranks when the last one has come and the message is through: the last to come waits for nobody, so that
the shortest of its durations is the transfer, and what the others take beyond it is waiting. Nothing is matched by guessing:
where the trace has no numbers, the calls of one kind in one step are taken in their order, where all ranks have equally many.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.collectives import bus_factor
from trace_reader.analysis.rank import CAUSES, Message, Place, RankSummary, Union
from trace_reader.errors import TraceError
from trace_reader.link.intervals import merged, union_ns, within_ns
from trace_reader.model.rows import distinct, grouped, median

POINT_TO_POINT = "send and recv"
WORTH_TELLING = 0.03  # of the window: what exposed waiting takes at least, where somebody is called late
TOGETHER = 0.5  # of a collective: the most that its ends are apart, where its durations are compared
MOSTLY = 2 / 3  # of the waiting that one rank causes, to be called the late one
EXPLAINS = 0.5  # of it, to be called its cause
MOSTLY_TRANSFER, MOSTLY_WAITING = 0.25, 0.5  # the share of waiting in the longest duration: up to, and from
APART_US = 40.0  # ends of one collective, by clocks that are aligned: those of one job are 0.5 to 25 us apart, on H200s
NOT_WORTH_BLAME = 1e-6  # a share
SEVERAL = 10  # collectives, of which it is told that one makes most of the waiting
NOBODY = -1
NO_ENTRIES = np.empty(0, np.int64)
UNEQUAL = "not all ranks have equally many"
ALONE = "no other rank of its group is here"
UNKNOWN_GROUP = "the traces do not say which ranks take part"
NOT_A_MEMBER = "a rank has calls of a group that it is not in"


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
    regime: str


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


class LeftOut(msgspec.Struct, frozen=True):
    """Calls that could not be matched: how many each rank has (`counts`: rank and number), and why, in words."""

    name: str
    group: str
    step: str
    counts: tuple[tuple[int, int], ...]
    reason: str


class Straggler(msgspec.Struct, frozen=True):
    """The rank that the others wait for: of `of` collectives it was the last in `last`; `caused_us` is what all others together
    waited because of it, in these and where that made another late. `once`: the step in which a single collective made most of
    that; else empty. `cause`: compute, cpu, input, gap (see rank.CAUSES), or unknown; `place`: where its CPU was late.
    """

    rank: int
    last: int
    of: int
    caused_us: float
    once: str
    cause: str
    place: Place | None


class JobFacts(msgspec.Struct, frozen=True, eq=False):
    """A job. `offset_ns`: what is added to each rank's times to make them the first's; None where nothing ties the two clocks.
    `residual_us`: how far the ends of one collective still are apart, the median; `ends_fit`: little
    enough for the durations to be compared. `waits_ns`: of each rank, where it waited.
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
    straggler: Straggler | None
    collectives: tuple[JobCollectiveFacts, ...]
    left_out: tuple[LeftOut, ...]
    offset_ns: tuple[int | None, ...]
    waits_ns: tuple[Union, ...]

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks of the job whose traces are not there."""
        return tuple(sorted(set(range(self.world_size or 0)) - {rank.rank for rank in self.ranks}))


class _Matched(msgspec.Struct, frozen=True, eq=False):
    """Matched calls as columns, an entry for each of a rank: of which `collective` (from 0), by which rank (a place in the
    summaries), and which of its calls. Of each collective: the unit that it is of, and whether all of its ranks are there.
    """

    collective: np.ndarray
    rank: np.ndarray
    call: np.ndarray
    start_ns: np.ndarray
    duration_us: np.ndarray
    unit_of: np.ndarray
    whole: np.ndarray

    @property
    def end_ns(self) -> np.ndarray:
        return self.start_ns + np.rint(self.duration_us * 1000).astype(np.int64)


class _Unit(msgspec.Struct, frozen=True):
    message: Message
    ranks: tuple[int, ...]
    step: str
    sequence: int


def check_job(summaries: Sequence[RankSummary]) -> None:
    """Raises TraceError where two are of one rank, or not all of one job: it names the files."""
    by_rank: dict[int, RankSummary] = {}
    for own in summaries:
        if (other := by_rank.setdefault(own.rank, own)) is not own:
            raise TraceError(
                f"two files are of rank {own.rank}: {other.trace} and {own.trace}; name one for each rank of one job"
            )
    first = min(summaries, key=lambda own: (own.world_size is None, own.rank))
    for own in summaries:
        for what, a, b in (("ranks", first.world_size, own.world_size), ("groups", first.groups, own.groups)):
            if what == "ranks" and a and b and a != b:
                raise TraceError(f"not one job: {first.trace} is of {a} ranks, {own.trace} of {b}")
            if what == "groups" and _world(a, first.world_size) != _world(b, own.world_size):
                raise TraceError(f"not one job: {first.trace} and {own.trace} have different process groups")
        if own.world_size and own.rank >= own.world_size:
            raise TraceError(f"{own.trace}: rank {own.rank} of {own.world_size} ranks")


def job_facts(summaries: Iterable[RankSummary]) -> JobFacts:
    """The facts of a job from its ranks, in any order. Raises TraceError where they are not the ranks of one job."""
    ranks = sorted(summaries, key=lambda own: own.rank)
    check_job(ranks)
    units, matched, left_out = _match(ranks)
    offset_ns, residual_us = _aligned(ranks, matched, units)
    _check_times(ranks, matched, offset_ns, residual_us)
    shortest = np.full(len(matched.whole), np.inf)
    np.minimum.at(shortest, matched.collective, matched.duration_us)
    longest = np.zeros(len(matched.whole))
    np.maximum.at(longest, matched.collective, matched.duration_us)
    waited_us = matched.duration_us - shortest[matched.collective]
    last = _last(matched, units, offset_ns, longest - shortest)
    lasts, entries = np.bincount(last[last != NOBODY], minlength=len(ranks)), dict(_entries_of(matched.rank))
    facts, waits = [], []
    for place, own in enumerate(ranks):
        told, waiting = _rank_facts(own, matched, entries.get(place, NO_ENTRIES), waited_us, int(lasts[place]))
        facts.append(told)
        waits.append(waiting)
    return JobFacts(
        summaries=tuple(ranks),
        ranks=tuple(facts),
        world_size=next((own.world_size for own in ranks if own.world_size), None),
        matched=len(matched.whole),
        unmatched=_unmatched(left_out),
        whole=bool(matched.whole.all()),
        transfer_us=math.fsum(shortest.tolist()),
        clock_residual_us=residual_us,
        ends_fit=(ends_fit := any(own.has_gpu for own in ranks) or _ends_fit(longest, residual_us)),
        straggler=_straggler(ranks, matched, last, waited_us, facts) if ends_fit else None,
        collectives=_collective_facts(units, matched, shortest, longest),
        left_out=tuple(left_out),
        offset_ns=tuple(offset_ns),
        waits_ns=tuple(waits),
    )


def _unmatched(left_out: list[LeftOut]) -> int:
    """How many collectives that are: as many as the rank with the most calls of a group has, in all of its kinds."""
    most: dict[tuple[str, str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for left in left_out:
        for rank, n in left.counts:
            most[left.name, left.group, left.step][rank] += n
    return sum(max(counts.values()) for counts in most.values())


def _world(groups: object, world_size: int | None) -> object:
    """Of the groups of a rank, those of all ranks, which every rank knows."""
    if not isinstance(groups, tuple) or not groups or not world_size:
        return ()
    return tuple(sorted(name for name, ranks in groups if len(ranks) == world_size))


def _members(message: Message, own: RankSummary) -> tuple[int, ...]:
    """The ranks of a kind of collective; empty where the trace does not say."""
    if message.ranks is not None:
        return message.ranks
    if not message.group and len(own.groups) > 1:
        return ()  # gloo does not say which group, nor do old traces
    named = [ranks for name, ranks in own.groups if name == message.group or not message.group]
    if named:
        return named[0]
    if message.group_size is not None and message.group_size == own.world_size:
        return tuple(range(own.world_size))
    return tuple(range(own.world_size)) if not message.group and not own.has_gpu and own.world_size else ()


def _match(ranks: Sequence[RankSummary]) -> tuple[list[_Unit], _Matched, list[LeftOut]]:
    """The calls that are one collective, and those of which that cannot be said.

    A unit are the calls of one kind in one step, or the one with a number: matched in their order, where all ranks of the group
    that are here have equally many.
    """
    groups: dict[tuple[int, ...], int] = {}
    kinds: dict[tuple[Any, ...], int] = {}
    labels: list[tuple[Message, tuple[int, ...]]] = []
    found: dict[tuple[int, str, int], list[tuple[int, np.ndarray]]] = defaultdict(list)
    for place, own in enumerate(ranks):
        calls = own.calls
        if not len(calls):
            continue
        members = [_members(message, own) for message in own.messages]
        group_of = [groups.setdefault(group, len(groups)) for group in members]
        order, starts = grouped(calls.message, calls.step, calls.sequence)
        for at in np.split(order, starts[1:]):
            number, step, sequence = int(calls.message[at[0]]), int(calls.step[at[0]]), int(calls.sequence[at[0]])
            message, numbered = own.messages[number], sequence >= 0
            # Of an all-to-all each rank may have its own size; and a number says more than a size does.
            sized = not numbered and "alltoall" not in _plain(message.name)
            key = message.name, message.group, group_of[number], *((message.bytes, message.dtype) if sized else ())
            kind = kinds.setdefault(key, len(kinds))
            if kind == len(labels):
                labels.append((message, members[number]))
            elif (message.bytes or 0) > (labels[kind][0].bytes or 0):
                labels[kind] = message, members[number]
            name = own.steps[step] if step >= 0 and not numbered else ""
            found[kind, name, sequence].append((place, np.sort(at)))
    here = {own.rank: place for place, own in enumerate(ranks)}
    places = [[here[rank] for rank in group if rank in here] for group in groups]
    group_of_kind = [key[2] for key in kinds]
    units: list[_Unit] = []
    unit_of: list[int] = []
    left_out, columns, whole = [], [], []
    for (kind, step_name, sequence), parts in found.items():
        (message, group), there = labels[kind], places[group_of_kind[kind]]
        counts = Counter[int]()
        for place, at in parts:
            counts[place] += len(at)
        reason = _reason(group, there, counts, parts)
        if reason:
            every = tuple((ranks[place].rank, counts.get(place, 0)) for place in sorted({*there, *counts}))
            left_out.append(LeftOut(message.name, message.group, step_name, every, reason))
            continue
        first, calls_each = len(unit_of), len(parts[0][1])
        for place, at in parts:
            columns.append(np.stack([np.arange(first, first + calls_each), np.full(calls_each, place), at]))
        unit_of += [len(units)] * calls_each
        whole += [len(there) == len(group)] * calls_each
        units.append(_Unit(msgspec.structs.replace(message, ranks=None), group, step_name, sequence))
    collective, rank, call = np.concatenate(columns, axis=1) if columns else np.zeros((3, 0), np.int64)
    start_ns, duration_us = np.zeros(len(call), np.int64), np.zeros(len(call))
    for place, mine in _entries_of(rank):
        start_ns[mine], duration_us[mine] = ranks[place].calls.start_ns[call[mine]], ranks[place].calls.duration_us[call[mine]]
    matched = _Matched(collective, rank, call, start_ns, duration_us, np.array(unit_of, np.int64), np.array(whole, bool))
    return units, matched, left_out


def _plain(name: str) -> str:
    return name.lower().replace("_", "").removesuffix("base")


def _reason(group: tuple[int, ...], there: list[int], counts: dict[int, int], parts: list[tuple[int, np.ndarray]]) -> str:
    """Why calls cannot be matched; empty where they can."""
    if not group:
        return UNKNOWN_GROUP
    if not counts.keys() <= set(there):
        return NOT_A_MEMBER
    if len(there) < 2:
        return ALONE
    if len(parts) != len(there) or len(set(counts.values())) > 1:
        return UNEQUAL
    return ""


def _entries_of(rank: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """For each rank that has some, its place and its entries."""
    if len(rank):
        order, starts = grouped(rank)
        for entries in np.split(order, starts[1:]):
            yield int(rank[entries[0]]), entries


def _aligned(ranks: Sequence[RankSummary], matched: _Matched, units: list[_Unit]) -> tuple[list[int | None], float | None]:
    """What to add to each rank's times, and the residual (us). The first is left as it is; a rank that shares a collective with
    one that is aligned gets the median difference of their ends. A send may end before its receive: it ties clocks only
    where nothing else does.
    """
    offset: list[int | None] = [0, *[None] * (len(ranks) - 1)]
    end_ns = matched.end_ns
    one_sided = np.array([unit.message.name == POINT_TO_POINT for unit in units] + [False])[matched.unit_of[matched.collective]]
    for used in (np.flatnonzero(~one_sided), np.arange(len(end_ns))):
        while True:
            at, known = _reference(matched, end_ns, used, offset)
            open_ = [place for place, own in enumerate(offset) if own is None]
            tied = used[np.isin(matched.rank[used], open_) & known[matched.collective[used]]]
            if not len(tied):
                break
            order, starts = grouped(matched.rank[tied])
            for entries in np.split(tied[order], starts[1:]):
                apart = at[matched.collective[entries]] - end_ns[entries]
                offset[int(matched.rank[entries[0]])] = round(median(apart))
    both = np.flatnonzero(~one_sided) if not one_sided.all() else np.arange(len(end_ns))
    at, known = _reference(matched, end_ns, both, offset)
    both = both[known[matched.collective[both]]]
    shifted = end_ns[both] + np.array([own or 0 for own in offset])[matched.rank[both]]
    # Each collective is measured from the end of one of its ranks, whose own difference is no residual.
    lowest = np.full(len(matched.whole), len(ranks))
    np.minimum.at(lowest, matched.collective[both], matched.rank[both])
    others = matched.rank[both] != lowest[matched.collective[both]]
    residual = np.abs(shifted - at[matched.collective[both]])[others]
    return offset, median(residual) / 1000 if len(residual) else None


def _reference(
    matched: _Matched, end_ns: np.ndarray, used: np.ndarray, offset: list[int | None]
) -> tuple[np.ndarray, np.ndarray]:
    """For each collective the aligned end on its first rank that is aligned, and whether there is one."""
    is_aligned = np.array([own is not None for own in offset])
    mine = used[is_aligned[matched.rank[used]]]
    mine = mine[np.argsort(-matched.rank[mine], kind="stable")]  # the lowest rank is written last
    at, known = np.zeros(len(matched.whole), np.int64), np.zeros(len(matched.whole), bool)
    at[matched.collective[mine]] = end_ns[mine] + np.array([own or 0 for own in offset])[matched.rank[mine]]
    known[matched.collective[mine]] = True
    return at, known


def _check_times(ranks: Sequence[RankSummary], matched: _Matched, offset_ns: list[int | None], residual_us: float | None) -> None:
    """Raises TraceError where two traces were recorded at different times and nothing shows that only their clocks differ."""
    for own, shift in zip(ranks[1:], offset_ns[1:], strict=True):
        first = ranks[0]
        starts, ends = ([rank.base_ns + rank.zero_ns + rank.window_ns[end] for rank in (first, own)] for end in (0, 1))
        apart_ns = max(starts) - min(ends)
        tied = shift is not None and residual_us is not None and residual_us < APART_US
        if apart_ns > 0 and not tied and len(first.calls) and len(own.calls):
            raise TraceError(
                f"not one job: {first.trace} and {own.trace} were recorded {apart_ns / 1e9:.1f} s apart, and their collectives "
                "do not fit each other"
            )


def _ends_fit(longest_us: np.ndarray, residual_us: float | None) -> bool:
    """Whether the calls of one collective end together, without which a duration does not say who waited."""
    return residual_us is not None and residual_us <= TOGETHER * median(longest_us)


def _last(matched: _Matched, units: list[_Unit], offset_ns: list[int | None], skew_us: np.ndarray) -> np.ndarray:
    """For each collective, the place of the rank that came last, whose own call is the shortest; of equals, that began last.
    NOBODY: all came together, or some need not wait for the others (the root of a broadcast goes on when it has sent).
    """
    started = matched.start_ns + np.array([own or 0 for own in offset_ns])[matched.rank]
    order = np.lexsort((-started, matched.duration_us, matched.collective))
    first = distinct(matched.collective[order]).first if len(order) else order
    waits_for_all = np.array([_waits_for_all(unit.message.name) for unit in units] + [False])[matched.unit_of]
    return np.where(matched.whole & waits_for_all & (skew_us > 0), matched.rank[order[first]], NOBODY)


def _waits_for_all(name: str) -> bool:
    """Whether no rank can leave a collective of this kind before the last has come."""
    plain = _plain(name)
    return (
        plain != _plain(POINT_TO_POINT)
        and not plain.startswith(("broadcast", "gather", "scatter", "send", "recv"))
        and not (plain.startswith("reduce") and "scatter" not in plain)
    )


def _rank_facts(
    own: RankSummary, matched: _Matched, entries: np.ndarray, waited_us: np.ndarray, last: int
) -> tuple[RankFacts, Union]:
    """The facts of a rank, and where it waited."""
    communication_ns, compute_ns = _length(own.communicating), _length(own.computing)
    overlapped_ns = within_ns(*own.communicating, own.computing)
    start_ns = matched.start_ns[entries]
    waiting = merged_in_order(start_ns, start_ns + np.rint(waited_us[entries] * 1000).astype(np.int64))
    waiting_ns = _length(waiting) - within_ns(*waiting, own.computing)
    end_ns = start_ns + np.rint(matched.duration_us[entries] * 1000).astype(np.int64)
    transferring = merged_in_order(start_ns + np.rint(waited_us[entries] * 1000).astype(np.int64), end_ns)
    transfer_ns = _length(transferring) - within_ns(*transferring, own.computing)
    told = RankFacts(
        rank=own.rank,
        trace=own.trace,
        steps=len(own.steps),
        window_us=(own.window_ns[1] - own.window_ns[0]) / 1000,
        compute_us=compute_ns / 1000,
        communication_us=communication_ns / 1000,
        overlapped_us=overlapped_ns / 1000,
        exposed_us=(communication_ns - overlapped_ns) / 1000,
        waiting_us=math.fsum(waited_us[entries].tolist()),
        exposed_waiting_us=min(waiting_ns, communication_ns - overlapped_ns) / 1000,
        exposed_transfer_us=min(transfer_ns, communication_ns - overlapped_ns) / 1000,
        idle_us=(own.window_ns[1] - own.window_ns[0] - _length(own.busy)) / 1000,
        last_to_arrive=last,
        matched=len(entries),
        regime=own.regime,
    )
    return told, waiting


def merged_in_order(start_ns: np.ndarray, end_ns: np.ndarray) -> Union:
    """As `merged`, of intervals in any order."""
    order = np.argsort(start_ns, kind="stable")
    return merged(start_ns[order], end_ns[order])


def _length(union: Union) -> int:
    return union_ns(*union)


def _collective_facts(
    units: list[_Unit], matched: _Matched, shortest: np.ndarray, longest: np.ndarray
) -> tuple[JobCollectiveFacts, ...]:
    """A row for each kind, size and group, those with the most time on the first to come first."""
    rows: dict[tuple[Message, tuple[int, ...]], list[int]] = defaultdict(list)
    for number, unit in enumerate(matched.unit_of.tolist()):
        rows[units[unit].message, units[unit].ranks].append(number)
    found = []
    for (message, ranks), numbers in rows.items():
        transfer_us, skew_us = median(shortest[numbers]), median(longest[numbers] - shortest[numbers])
        factor = bus_factor(message.name, len(ranks) or message.group_size or 0)
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


def _straggler(
    ranks: Sequence[RankSummary], matched: _Matched, last: np.ndarray, waited_us: np.ndarray, facts: list[RankFacts]
) -> Straggler | None:
    """The rank that causes most of the waiting, where so much of that is exposed that it is worth telling."""
    counted = last[matched.collective] != NOBODY
    total_us = math.fsum(waited_us[counted].tolist())
    if not total_us:
        return None
    collective, culprit, us = _causes(matched, last, waited_us)
    late = int(np.argmax(np.bincount(culprit, us, len(ranks))))
    caused_us = np.bincount(collective[culprit == late], us[culprit == late], len(last))
    exposed = max(
        (own.exposed_waiting_us / own.window_us for own in facts if own.rank != ranks[late].rank and own.window_us), default=0
    )
    if exposed < WORTH_TELLING or caused_us.sum() < MOSTLY * total_us:
        return None
    cause, place = _cause(ranks, matched, late, last, caused_us)
    largest = int(np.argmax(caused_us))
    once = caused_us[largest] > MOSTLY * caused_us.sum() and len(last) >= SEVERAL
    mine = matched.call[(matched.collective == largest) & (matched.rank == late)]
    step = int(ranks[late].calls.step[mine[0]]) if once and len(mine) else -1
    return Straggler(
        ranks[late].rank,
        last=int((last == late).sum()),
        of=int(((matched.rank == late) & counted).sum()),
        caused_us=float(caused_us.sum()),
        once=(ranks[late].steps[step] if step >= 0 else "one place") if once else "",
        cause=cause,
        place=place,
    )


def _causes(matched: _Matched, last: np.ndarray, waited_us: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How long the others waited in a collective because of a rank, summed over them: the collective, the rank, the time (us).

    The last to come may be late because it waited elsewhere, since it last met this group: so much goes on to the rank that it
    waited for there. (Waiting for a slow peer in one group makes a rank late in its other groups.)
    """
    total_us, skew_us, ended_ns = np.bincount(matched.collective, waited_us, len(last)), np.zeros(len(last)), np.zeros(len(last))
    np.maximum.at(skew_us, matched.collective, waited_us)
    ended_ns[matched.collective] = matched.end_ns
    entries_of = np.split(np.argsort(matched.collective, kind="stable"), np.cumsum(np.bincount(matched.collective))[:-1])
    # Of each rank, what it waited since it last met each group, and who was to blame for that, with shares.
    groups: dict[frozenset[int], int] = {}
    waited: dict[int, dict[int, tuple[float, dict[int, float]]]] = defaultdict(dict)
    found: list[tuple[int, int, float]] = []
    at = np.flatnonzero(last != NOBODY)
    for collective in at[np.argsort(ended_ns[at], kind="stable")].tolist():
        entries = entries_of[collective]
        group = groups.setdefault(frozenset(matched.rank[entries].tolist()), len(groups))
        late, most_us = int(last[collective]), float(skew_us[collective])
        elsewhere = [own for other, own in waited[late].items() if other != group]
        there_us = math.fsum(us for us, _ in elsewhere)
        inherited = min(there_us / most_us, 1.0)
        blame: dict[int, float] = defaultdict(float, {late: 1 - inherited})
        for us, whose in elsewhere:
            for rank, share in whose.items():
                blame[rank] += inherited * us / there_us * share
        blame = {rank: share for rank, share in blame.items() if share > NOT_WORTH_BLAME}
        found += [(collective, rank, share * float(total_us[collective])) for rank, share in blame.items()]
        for rank, us in zip(matched.rank[entries].tolist(), waited_us[entries].tolist(), strict=True):
            waited[rank].pop(group, None)
            if us > 0:
                waited[rank][group] = us, blame
    collectives, culprits, times_us = zip(*found, strict=True)
    return np.array(collectives), np.array(culprits), np.array(times_us)


def _cause(
    ranks: Sequence[RankSummary], matched: _Matched, late: int, last: np.ndarray, caused_us: np.ndarray
) -> tuple[str, Place | None]:
    """What kept the late rank: what it computed longer than the others (the median of them), or what its device waited for
    longer, since the collective before those in a row that it was late for: who waits goes on computing, and so the others
    need less time before the next one.
    """
    entries_of = np.split(np.argsort(matched.collective, kind="stable"), np.cumsum(np.bincount(matched.collective))[:-1])
    caused_us = np.where(last == late, caused_us, 0.0)
    mine = np.flatnonzero(matched.rank == late)
    mine = mine[np.argsort(matched.start_ns[mine], kind="stable")]
    before: dict[int, tuple[int, int]] = {}  # of each rank, what it had computed and idled where they last met
    longest = (0, "none", -1)  # of the stretches in which the late one's device did nothing, since then
    explained: dict[tuple[str, int], float] = defaultdict(float)
    for entry in mine.tolist():
        collective, calls, call = int(matched.collective[entry]), ranks[late].calls, int(matched.call[entry])
        pairs = [(int(matched.rank[other]), int(matched.call[other])) for other in entries_of[collective].tolist()]
        done = {place: (int(ranks[place].calls.computed_ns[at]), int(ranks[place].calls.idled_ns[at])) for place, at in pairs}
        longest = max(longest, (int(calls.gap_ns[call]), CAUSES[calls.cause[call]], int(calls.place[call])))
        skew_us = max(float(matched.duration_us[other]) for other in entries_of[collective]) - float(matched.duration_us[entry])
        together = skew_us <= MOSTLY_TRANSFER * (skew_us + matched.duration_us[entry])
        if last[collective] != late or together:
            before.update(done)
            longest = (0, "none", -1)
            continue
        since = {place: np.subtract(done[place], before.get(place) or _at_step(ranks[place], at)) / 1000 for place, at in pairs}
        others = np.array([own for place, own in since.items() if place != late])
        longer_us = [float(since[late][what]) - median(others[:, what]) for what in range(2)]
        for what, us in zip((("compute", -1), longest[1:]), longer_us, strict=True):
            explained[what] += min(max(us, 0.0) / skew_us, 1.0) * float(caused_us[collective])
    cause, place = max(explained, key=lambda what: explained[what], default=("none", -1))
    if cause == "none" or explained[cause, place] < EXPLAINS * math.fsum(caused_us.tolist()):
        return "unknown", None
    return cause, ranks[late].places[place] if place >= 0 else None


def _at_step(own: RankSummary, call: int) -> tuple[int, int]:
    """What a rank had computed and idled when the step of a call began; 0 where there are no steps."""
    step = int(own.calls.step[call])
    return (int(own.step_done_ns[step, 0]), int(own.step_done_ns[step, 1])) if step >= 0 else (0, 0)
