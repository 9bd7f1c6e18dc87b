"""The calls of several ranks that are one collective, and the ranks' clocks aligned by their ends.

Nothing is matched by guessing: where the trace has no numbers, the calls of one kind in one step are taken in their order, where
all ranks have equally many. What cannot be matched is left out, with the reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.jobs.rank_summary import SEND_AND_RECEIVE, Message, RankSummary
from trace_reader.analysis.trace.collectives import plain_name
from trace_reader.model.rows import among, grouped, median

UNEQUAL = "not all ranks have equally many"
ALONE = "no other rank of its group is here"
UNKNOWN_GROUP = "the traces do not say which ranks take part"
NOT_A_MEMBER = "a rank has calls of a group that it is not in"


class LeftOut(msgspec.Struct, frozen=True):
    """Calls that could not be matched: how many each rank has (`counts`: rank and number), and why, in words."""

    name: str
    group: str
    step: str
    counts: tuple[tuple[int, int], ...]
    reason: str


class Unit(msgspec.Struct, frozen=True):
    """Calls that were matched together: of one kind, among these ranks."""

    message: Message
    ranks: tuple[int, ...]


class Matched(msgspec.Struct, frozen=True, eq=False):
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


def match(ranks: Sequence[RankSummary]) -> tuple[list[Unit], Matched, list[LeftOut]]:
    """Return the calls that are one collective, and those of which that cannot be said.

    A unit are the calls of one kind in one step, or the one with a number: matched in their order, where all ranks of the group
    that are here have equally many.
    """
    groups: dict[tuple[int, ...], int] = {}
    kinds: dict[tuple[Any, ...], int] = {}
    labels: list[tuple[Message, tuple[int, ...]]] = []
    found: dict[tuple[int, str, int], dict[int, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[tuple[int, str, int], set[int | None]] = defaultdict(set)
    for place, summary in enumerate(ranks):
        calls = summary.calls
        if not len(calls):
            continue
        members = [_members(message, summary, ranks) for message in summary.messages]
        group_of = [groups.setdefault(group, len(groups)) for group in members]
        order, starts = grouped(calls.message, calls.step, calls.sequence)
        for at in np.split(order, starts[1:]):
            number, step, sequence = int(calls.message[at[0]]), int(calls.step[at[0]]), int(calls.sequence[at[0]])
            message, numbered = summary.messages[number], sequence >= 0
            # Of an all-to-all each rank may have its own size; and a number says more than a size does.
            sized = not numbered and "alltoall" not in plain_name(message.name)
            key = message.name, message.group, group_of[number], *((message.bytes, message.dtype) if sized else ())
            kind = kinds.setdefault(key, len(kinds))
            if kind == len(labels):
                labels.append((message, members[number]))
            name = summary.steps[step] if step >= 0 and not numbered else ""
            found[kind, name, sequence][place].append(at)
            sizes[kind, name, sequence].add(message.bytes)
    here = {summary.rank: place for place, summary in enumerate(ranks)}
    places = [[here[rank] for rank in group if rank in here] for group in groups]
    group_of_kind = [key[2] for key in kinds]
    units: list[Unit] = []
    unit_of: list[int] = []
    left_out, columns, whole = [], [], []
    for unit, own_parts in found.items():
        kind, step_name, _ = unit
        (message, group), there = labels[kind], places[group_of_kind[kind]]
        parts = [(place, np.sort(np.concatenate(at))) for place, at in own_parts.items()]
        counts = {place: len(at) for place, at in parts}
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
        # Of one call the size is its largest rank's; of several of different sizes, there is none to tell.
        largest, *others = sorted(sizes[unit], key=lambda size: -(size or 0))
        units.append(Unit(msgspec.structs.replace(message, bytes=None if others and calls_each > 1 else largest), group))
    collective, rank, call = np.concatenate(columns, axis=1) if columns else np.zeros((3, 0), np.int64)
    start_ns, duration_us = np.zeros(len(call), np.int64), np.zeros(len(call))
    for place, mine in entries_of(rank):
        start_ns[mine], duration_us[mine] = ranks[place].calls.start_ns[call[mine]], ranks[place].calls.duration_us[call[mine]]
    matched = Matched(collective, rank, call, start_ns, duration_us, np.array(unit_of, np.int64), np.array(whole, bool))
    return units, matched, left_out


def _members(message: Message, summary: RankSummary, ranks: Sequence[RankSummary]) -> tuple[int, ...]:
    """Return the ranks of a kind of collective; empty where the trace does not say."""
    if message.ranks is not None:
        return message.ranks
    if not message.group and len(summary.groups) > 1:
        return ()  # gloo does not say which group, nor do old traces
    named = [ranks for name, ranks in summary.groups if name == message.group or not message.group]
    if named:
        return named[0]
    if message.group_size is not None and message.group_size == summary.world_size:
        return tuple(range(summary.world_size))
    if not message.group and not summary.has_gpu and summary.world_size:
        return tuple(range(summary.world_size))
    return by_order(ranks) if says_nothing(message, summary) else ()


def says_nothing(message: Message, summary: RankSummary) -> bool:
    """Return whether a trace tells nothing of groups, as those of torch before 2.2: then a job's collectives are all ranks'."""
    return message.ranks is None and not message.group and message.group_size is None and not summary.groups


def by_order(ranks: Sequence[RankSummary]) -> tuple[int, ...]:
    """Return all ranks of a job whose traces do not say who takes part: matched by name and order, which the ends bear out or
    not.
    """
    world = next((summary.world_size for summary in ranks if summary.world_size), None)
    return tuple(range(world)) if world else tuple(summary.rank for summary in ranks)


def _reason(group: tuple[int, ...], there: list[int], counts: dict[int, int], parts: list[tuple[int, np.ndarray]]) -> str:
    """Return why calls cannot be matched; empty where they can."""
    if not group:
        return UNKNOWN_GROUP
    if not counts.keys() <= set(there):
        return NOT_A_MEMBER
    if len(there) < 2:
        return ALONE
    if len(parts) != len(there) or len(set(counts.values())) > 1:
        return UNEQUAL
    return ""


def entries_of(rank: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """For each rank that has some, its place and its entries."""
    if len(rank):
        order, starts = grouped(rank)
        for entries in np.split(order, starts[1:]):
            yield int(rank[entries[0]]), entries


def aligned(ranks: Sequence[RankSummary], matched: Matched, units: list[Unit]) -> tuple[list[int | None], float | None]:
    """Return what to add to each rank's times, and the residual (us). The first is left as it is; a rank that shares a collective
    with one that is aligned gets the median difference of their ends. A send may end before its receive: it ties clocks only
    where nothing else does.
    """
    offset: list[int | None] = [0, *[None] * (len(ranks) - 1)]
    end_ns = matched.end_ns
    one_sided = np.array([unit.message.name == SEND_AND_RECEIVE for unit in units] + [False])[matched.unit_of[matched.collective]]
    for used in (np.flatnonzero(~one_sided), np.arange(len(end_ns))):
        while True:
            at, known = _reference(matched, end_ns, used, offset)
            open_ = [place for place, shift_ns in enumerate(offset) if shift_ns is None]
            tied = used[among(matched.rank[used], open_) & known[matched.collective[used]]]
            if not len(tied):
                break
            order, starts = grouped(matched.rank[tied])
            for entries in np.split(tied[order], starts[1:]):
                apart = at[matched.collective[entries]] - end_ns[entries]
                offset[int(matched.rank[entries[0]])] = round(median(apart))
    both = np.flatnonzero(~one_sided) if not one_sided.all() else np.arange(len(end_ns))
    at, known = _reference(matched, end_ns, both, offset)
    both = both[known[matched.collective[both]]]
    shifted = end_ns[both] + np.array([shift_ns or 0 for shift_ns in offset])[matched.rank[both]]
    # Each collective is measured from the end of one of its ranks, whose own difference is no residual.
    lowest = np.full(len(matched.whole), len(ranks))
    np.minimum.at(lowest, matched.collective[both], matched.rank[both])
    others = matched.rank[both] != lowest[matched.collective[both]]
    residual = np.abs(shifted - at[matched.collective[both]])[others]
    return offset, median(residual) / 1000 if len(residual) else None


def _reference(matched: Matched, end_ns: np.ndarray, used: np.ndarray, offset: list[int | None]) -> tuple[np.ndarray, np.ndarray]:
    """For each collective the aligned end on its first rank that is aligned, and whether there is one."""
    is_aligned = np.array([shift_ns is not None for shift_ns in offset])
    mine = used[is_aligned[matched.rank[used]]]
    mine = mine[np.argsort(-matched.rank[mine], kind="stable")]  # the lowest rank is written last
    at, known = np.zeros(len(matched.whole), np.int64), np.zeros(len(matched.whole), bool)
    at[matched.collective[mine]] = end_ns[mine] + np.array([shift_ns or 0 for shift_ns in offset])[matched.rank[mine]]
    known[matched.collective[mine]] = True
    return at, known
