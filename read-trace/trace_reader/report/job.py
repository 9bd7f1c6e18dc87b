"""The report on a job: its ranks side by side."""

from collections.abc import Sequence
from itertools import takewhile

from trace_reader.analysis.job_facts import JobCollectiveFacts, JobFacts, RankFacts
from trace_reader.analysis.rank_summary import SEND_AND_RECEIVE
from trace_reader.analysis.straggler import Straggler
from trace_reader.names.devices import peak
from trace_reader.report.document import Document, Style
from trace_reader.report.one import steps_line
from trace_reader.units import about, count, us

NOT_MATCHED = 0.005  # of what is exposed: less is not told
EXPOSED = 0.05  # of the time, from which on communication is what a job is told to wait for
MOST_RANKS = 8  # that are told in their order; of more, those that wait least come first
MOSTLY = {"transfer": "transfer", "arrival skew": "skew", "mixed": "mixed", "inconclusive": "unknown"}
MOST_LEFT_OUT = 3
APART_NS = 10**8  # of two machines' clocks
MOST_NUMBERS = 6  # in a list of ranks


def report(job: JobFacts, style: Style) -> Document:
    """All ranks of a job."""
    out = Document(style)
    out.title(f"{count(len(job.ranks), 'rank')} of one job: {_files([rank.trace for rank in job.ranks])}")
    versions = ", ".join(f"{name} {version}" for name, version in job.summaries[0].versions.items())
    devices = list(dict.fromkeys(own.device or "unknown" for own in job.summaries))
    out.lines([f"device: {', '.join(devices)}{'; ' + versions if versions else ''}"])
    if job.missing_ranks:
        said = f"of {job.world_size} ranks, these are not here, and the late one may be among them: {_ranks(job.missing_ranks)}"
        out.lines([said])
    steps = list(dict.fromkeys(own.steps for own in job.summaries))
    if len(steps) > 1:
        out.lines(["steps: not the same ones on all ranks"])
    else:
        out.lines([steps_line(steps[0]) if steps[0] else "steps: none"])
    out.section("Verdict")
    out.lines([verdict(job)])
    each = job.ranks[0].steps if len({rank.steps for rank in job.ranks}) == 1 and job.ranks[0].steps else 1
    rows = list(job.ranks)
    if len(rows) > MOST_RANKS:
        rows.sort(key=lambda rank: (rank.waiting_us, rank.rank))
    a_step = f"mean of {each} steps" if each > 1 else "all that was recorded"
    sorted_by = "; those that wait least first" if len(rows) > MOST_RANKS else ""
    out.section(f"Ranks ({a_step}; waiting and transfer: of what is exposed; last: to arrive, in all steps{sorted_by})")
    head = ["rank", "compute", "commun.", "exposed", "waiting", "transfer", "idle", "last"]
    more = [] if style.brief else ["overlapped", "all waiting", "regime"]
    out.table([*head, *more], rows, lambda rank: _rank_row(rank, each)[: len(head) + len(more)], brief=MOST_RANKS)
    nvlink = peak(devices[0], "nvlink") if len(devices) == 1 else None
    beside = f"; NVLink of a device: {nvlink:.0f} at most, as published" if nvlink else ""
    out.section(f"Collectives (transfer and skew: medians; GB/s: on the bus{beside})")
    out.table(
        ["collective", "group", "ranks", "count", "MB", "transfer", "skew", "GB/s", "mostly"],
        job.collectives,
        _collective_row,
        empty="none that all ranks have",
        brief=8,
    )
    out.section("Clocks and matching")
    out.lines(_clocks(job))
    return out


def verdict(job: JobFacts) -> str:
    """What a job waits for, in a sentence or two."""
    if job.straggler is not None:
        return _late(job, job.straggler)
    where = _regimes(job.ranks)
    window_us, exposed_us, waiting_us, transfer_us, communication_us, overlapped_us = (
        sum(getattr(rank, f"{what}_us") for rank in job.ranks)
        for what in ("window", "exposed", "exposed_waiting", "exposed_transfer", "communication", "overlapped")
    )
    if not communication_us:
        return f"{where}; no communication is in the traces"
    share = exposed_us / window_us if window_us else 0.0
    takes = f"communication takes {about(share)} of the time while nothing is computed"
    if not job.matched:
        return f"{where}; {takes}; no collective could be matched, so that nothing is known of who waits for whom"
    if not job.whole:
        return f"{where}; {takes}; how much of that is waiting is not known without the ranks that are not here"
    if not job.ends_fit:
        return (
            f"the calls of one collective end {us(job.clock_residual_us)} apart: their durations do not say who waited for whom; "
            f"{where}"
        )
    if share < EXPOSED:
        return f"no rank is late, and {takes} ({about(overlapped_us / communication_us)} of it is hidden); {where}"
    parts = [f"{about(transfer_us / exposed_us)} of that is transfer, {about(waiting_us / exposed_us)} waiting for other ranks"]
    if (rest := 1 - (transfer_us + waiting_us) / exposed_us) > NOT_MATCHED:
        parts.append(f"{about(rest)} could not be matched")
    if waiting_us > NOT_MATCHED * exposed_us:
        parts.append("no single rank causes most of the waiting")
    return f"{takes}: {', '.join(parts)}; {where}"


def _regimes(ranks: Sequence[RankFacts]) -> str:
    by_regime: dict[str, list[int]] = {}
    for rank in ranks:
        by_regime.setdefault(rank.regime, []).append(rank.rank)
    if len(by_regime) == 1:
        return f"all ranks are {ranks[0].regime}" if len(ranks) > 1 else f"rank {ranks[0].rank} is {ranks[0].regime}"
    return ", ".join(f"{_ranks(own)} {'is' if len(own) == 1 else 'are'} {regime}" for regime, own in by_regime.items())


def _late(job: JobFacts, late: Straggler) -> str:
    own = next(rank for rank in job.ranks if rank.rank == late.rank)
    others = [rank for rank in job.ranks if rank.rank != late.rank]
    waits = sorted(rank.waiting_us for rank in others)
    range_of = us(waits[0]) if us(waits[0]) == us(waits[-1]) else f"{us(waits[0])} to {us(waits[-1])}"
    least = "it is the one that waits least" if own.waiting_us < waits[0] else "it waits"
    who = "the other" if len(others) == 1 else "the others"
    place = late.place.annotation if late.place else ""
    where = f" {'before' if late.place and late.place.first else 'in'} the {place}" if place else ""
    why = {
        "compute": "it computes longer",
        "cpu": f"its CPU is late{where}",
        "input": "it waits for its input (a DataLoader)",
        "gap": "its device waits for something that is not the CPU",
    }.get(late.cause, "what keeps it is not plain from what it computes and when its CPU launches")
    lasts = f"rank {late.rank} arrives last in {late.last} of {count(late.of, 'collective')}"
    waiting = f"{us(own.waiting_us)}, {who} {range_of}"
    least = f"{least} ({waiting})" if own.waiting_us < waits[0] else f"{least} {waiting}"
    once = f"; most of that is one collective, in {late.once}" if late.once else ""
    worst = max(others, key=lambda rank: rank.exposed_waiting_us / rank.window_us if rank.window_us else 0.0)
    share = about(worst.exposed_waiting_us / worst.window_us)
    cost = f". What computing does not hide of this is {share} of rank {worst.rank}'s time"
    return f"{lasts}; {least}{once}; {why}{cost}"


def _rank_row(rank: RankFacts, steps: int) -> list[str]:
    times = (
        rank.compute_us,
        rank.communication_us,
        rank.exposed_us,
        rank.exposed_waiting_us,
        rank.exposed_transfer_us,
        rank.idle_us,
    )
    cells = [us(time / steps) for time in times]
    waiting = us(rank.waiting_us / steps)
    if rank.communication_us and not rank.matched:
        cells[3] = cells[4] = waiting = "unknown"
    return [str(rank.rank), *cells, str(rank.last_to_arrive), us(rank.overlapped_us / steps), waiting, rank.regime]


def _collective_row(row: JobCollectiveFacts) -> list[str]:
    size = "unknown" if row.bytes is None else f"{row.bytes / 1e6:.2f}"
    rate = "unknown" if row.bus_gb_per_s is None else f"{row.bus_gb_per_s:.1f}"
    group = row.group or "unknown"
    ranks = " > ".join(map(str, row.ranks)) if row.name == SEND_AND_RECEIVE else _ranks(row.ranks, "")
    return [
        row.name,
        group,
        ranks,
        str(row.count),
        size,
        us(row.transfer_us),
        us(row.skew_us),
        rate,
        MOSTLY[row.kind],
    ]


def _clocks(job: JobFacts) -> list[str]:
    lines = []
    if job.clock_residual_us is not None:
        lines.append(
            f"the clocks are aligned by the ends of {count(job.matched, 'matched collective')}; these still are "
            f"{us(job.clock_residual_us)} apart (median)"
        )
    if loose := [rank.rank for rank, offset in zip(job.ranks, job.offset_ns, strict=True) if offset is None]:
        lines.append(f"nothing ties the clock of {_ranks(loose)} to that of rank {job.ranks[0].rank}")
    if apart := _apart(job):
        lines.append(apart)
    if job.unmatched:
        lines.append(f"left out: {count(job.unmatched, 'collective')}")
        for left in job.left_out[:MOST_LEFT_OUT]:
            counts = ", ".join(f"rank {rank} has {n}" for rank, n in left.counts[:MOST_NUMBERS])
            more = f" and {len(left.counts) - MOST_NUMBERS} more ranks" if len(left.counts) > MOST_NUMBERS else ""
            name = f"{left.name} in group {left.group or 'unknown'}{', ' * bool(left.step)}{left.step}"
            lines.append(f"  {name}: {left.reason}: {counts}{more}")
        if len(job.left_out) > MOST_LEFT_OUT:
            lines.append(f"  and {len(job.left_out) - MOST_LEFT_OUT} more kinds")
    return lines or ["no collective is in the traces"]


def _apart(job: JobFacts) -> str:
    """How far the clock of a rank is from the first's, where that is more than machines that keep time are apart."""
    first, found = job.summaries[0], (0, 0)
    for own, offset in zip(job.summaries[1:], job.offset_ns[1:], strict=True):
        if offset is not None:
            apart_ns = own.base_ns + own.zero_ns - first.base_ns - first.zero_ns - offset
            found = max(found, (abs(apart_ns), own.rank))
    if found[0] < APART_NS:
        return ""
    return f"the clock of rank {found[1]} is {us(found[0] / 1000)} from that of rank {first.rank}: are these one run?"


def _ranks(ranks: Sequence[int], word: str = "rank") -> str:
    """`rank 3`, `ranks 0 to 7`, `ranks 1, 3, 4 and 5 more`."""
    if not ranks:
        return "unknown"
    label = "" if not word else f"{word} " if len(ranks) == 1 else f"{word}s "
    if len(ranks) > (2 if word else 1) and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{label}{ranks[0]}{' to ' if word else '-'}{ranks[-1]}"
    more = f" and {len(ranks) - MOST_NUMBERS} more" if len(ranks) > MOST_NUMBERS else ""
    return label + ", ".join(map(str, ranks[:MOST_NUMBERS])) + more


def _files(names: Sequence[str]) -> str:
    """The files' names with a star where they differ."""
    start = _common(names)
    end = _common([name[len(start) :][::-1] for name in names])[::-1]
    return f"{start}*{end}" if len(names) > 1 else names[0]


def _common(texts: Sequence[str]) -> str:
    """What all of the texts begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in same)
