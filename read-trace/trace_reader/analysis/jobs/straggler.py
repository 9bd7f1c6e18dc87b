"""Who came last to the collectives of a job, whom the others waited for, and what kept it."""

from collections import defaultdict
from collections.abc import Sequence
import math

import msgspec
import numpy as np
from trace_reader.analysis.jobs.collective_matching import Matched, Unit
from trace_reader.analysis.jobs.rank_summary import CAUSES, Place, RankSummary
from trace_reader.analysis.trace.collectives import waits_for_all
from trace_reader.model.rows import distinct, median

MIN_SHARE_OF_WINDOW = 0.03  # of the window: what exposed waiting takes at least, where somebody is called late
SHARE_TO_NAME = 0.5  # of the waiting that one rank causes, to be called the late one
MIN_SHARE_OF_CAUSED = 2 / 3  # of what a rank causes, in one collective
RECURS = 0.5  # of what it causes in a step on average, from which on a step counts
EXPLAINS = 0.5  # of it, to be called its cause
SHORT = 0.25  # of a collective: waiting up to which the ranks are taken to come together
NOT_WORTH_BLAME = 1e-6  # a share
SEVERAL = 10  # collectives, of which it is told that one makes most of the waiting
NOBODY = -1


class Straggler(msgspec.Struct, frozen=True):
    """The rank that the others wait for: of `of` collectives it was the last in `last`; `caused_us` is what all others together
    waited because of it, in these and where that made another late, and `share` how much of all waiting that is. `cost`: the most
    of its window that another rank waits while it computes nothing; below MIN_SHARE_OF_WINDOW that is small.

    `in_steps`: in how many of all recorded steps, `of_steps`, it caused at least half of what it causes in one on average.
    `once`: the step in which a single collective made most of that; else empty. `cause`: compute, cpu, input, gap (see
    rank.CAUSES), or unknown; `place`: where its CPU was late.
    """

    rank: int
    last: int
    of: int
    caused_us: float
    share: float
    cost: float
    in_steps: int
    of_steps: int
    once: str
    cause: str
    place: Place | None


def last_to_arrive(matched: Matched, units: list[Unit], offset_ns: list[int | None], skew_us: np.ndarray) -> np.ndarray:
    """For each collective, the place of the rank that came last, whose own call is the shortest; of equals, that began last.
    NOBODY: all came together, or some need not wait for the others (the root of a broadcast goes on when it has sent).
    """
    started = matched.start_ns + np.array([offset_n or 0 for offset_n in offset_ns])[matched.rank]
    order = np.lexsort((-started, matched.duration_us, matched.collective))
    first = distinct(matched.collective[order]).first if len(order) else order
    joint = np.array([waits_for_all(unit.message.name) for unit in units] + [False])[matched.unit_of]
    return np.where(matched.whole & joint & (skew_us > 0), matched.rank[order[first]], NOBODY)


def find_straggler(
    ranks: Sequence[RankSummary], matched: Matched, last: np.ndarray, waited_us: np.ndarray, exposed: Sequence[float]
) -> Straggler | None:
    """Return the rank that causes half of the waiting or more. `exposed`: of each rank, the share of its window that it waits
    while nothing is computed.
    """
    counted = last[matched.collective] != NOBODY
    total_us = math.fsum(waited_us[counted].tolist())
    if not total_us:
        return None
    collective, culprit, us = _causes(matched, last, waited_us)
    late = int(np.argmax(np.bincount(culprit, us, len(ranks))))
    caused_us = np.bincount(collective[culprit == late], us[culprit == late], len(last))
    most = max((share for place, share in enumerate(exposed) if place != late), default=0.0)
    if caused_us.sum() < SHARE_TO_NAME * total_us:
        return None
    cause, place = _cause(ranks, matched, late, last, caused_us)
    largest = int(np.argmax(caused_us))
    once = caused_us[largest] > MIN_SHARE_OF_CAUSED * caused_us.sum() and len(last) >= SEVERAL
    mine = matched.call[(matched.collective == largest) & (matched.rank == late)]
    step = int(ranks[late].calls.step[mine[0]]) if once and len(mine) else -1
    steps = np.full(len(last), -1)
    steps[matched.collective[matched.rank == late]] = ranks[late].calls.step[matched.call[matched.rank == late]]
    by_step = np.bincount(steps[steps >= 0], caused_us[steps >= 0], len(ranks[late].steps))
    return Straggler(
        ranks[late].rank,
        last=int((last == late).sum()),
        of=int(((matched.rank == late) & counted).sum()),
        caused_us=float(caused_us.sum()),
        share=float(caused_us.sum()) / total_us,
        cost=most,
        in_steps=int((by_step >= RECURS * by_step.mean()).sum()) if by_step.any() else 0,
        of_steps=len(by_step),
        once=(ranks[late].steps[step] if step >= 0 else "one place") if once else "",
        cause=cause,
        place=place,
    )


def _causes(matched: Matched, last: np.ndarray, waited_us: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how long the others waited in a collective because of a rank, summed over them: the collective, the rank, the time
    (us).

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
        elsewhere = [one for other, one in waited[late].items() if other != group]
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
    ranks: Sequence[RankSummary], matched: Matched, late: int, last: np.ndarray, caused_us: np.ndarray
) -> tuple[str, Place | None]:
    """Return what kept the late rank: what it computed longer than the others (the median of them), or what its device waited for
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
        together = skew_us <= SHORT * (skew_us + matched.duration_us[entry])
        if last[collective] != late or together:
            before.update(done)
            longest = (0, "none", -1)
            continue
        since = {place: np.subtract(done[place], before.get(place) or _at_step(ranks[place], at)) / 1000 for place, at in pairs}
        others = np.array([one for place, one in since.items() if place != late])
        longer_us = [float(since[late][what]) - median(others[:, what]) for what in range(2)]
        for what, us in zip((("compute", -1), longest[1:]), longer_us, strict=True):
            explained[what] += min(max(us, 0.0) / skew_us, 1.0) * float(caused_us[collective])
    cause, place = max(explained, key=lambda what: explained[what], default=("none", -1))
    if cause == "none" or explained[cause, place] < EXPLAINS * math.fsum(caused_us.tolist()):
        return "unknown", None
    return cause, ranks[late].places[place] if place >= 0 else None


def _at_step(summary: RankSummary, call: int) -> tuple[int, int]:
    """Return what a rank had computed and idled when the step of a call began; 0 where there are no steps."""
    step = int(summary.calls.step[call])
    return (int(summary.step_done_ns[step, 0]), int(summary.step_done_ns[step, 1])) if step >= 0 else (0, 0)
