"""The report on a job: its ranks side by side."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from trace_reader.analysis.jobs.job_facts import JobFacts, JobFinding, RankFacts
from trace_reader.analysis.jobs.rank_difference import AT_A_PLACE, BEGINS, NOT_LATER, OTHER_WORK
from trace_reader.analysis.jobs.rank_summary import SEND_AND_RECEIVE, RankSummary
from trace_reader.analysis.jobs.straggler import MIN_SHARE_OF_WINDOW, Straggler
from trace_reader.analysis.replay.plain_run import MEASURED
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.collectives import OF_COLLECTIVES
from trace_reader.findings import NAMING, rank_of_finding
from trace_reader.findings.verdict import far_rounds
from trace_reader.model.rows import median
from trace_reader.names.devices import peak
from trace_reader.report.document import Best, Column, Document, Style, Table
from trace_reader.report.lights import waits_of
from trace_reader.report.trace_report import (
    OF_A_STEP,
    OF_NO_CHANGE,
    advice,
    called_first,
    gain_words,
    is_first_worthy,
    saved,
    steps_line,
)
from trace_reader.report.trace_tables import collective_light, each, known, megabytes
from trace_reader.units import about, count, percent, us

NOT_MATCHED = 0.005  # of what is exposed: less is left out of the sentence
EXPOSED = 0.05  # of the time, from which on a job is said to wait for its communication
MOST_RANKS_IN_ORDER = 8  # that are shown in their order; of more, those that wait least come first
MAIN_CAUSE = {"transfer": "transfer", "arrival skew": "skew", "mixed": "mixed", "inconclusive": "unknown"}
MOST_LEFT_OUT = 3
APART_NS = 10**8  # of two machines' clocks
SEEN_WIDTH = 22  # characters
SLOWER_BY = 1.05  # times as long: less is told of no host
WORTH_ITS_PLACE = 0.05  # of a step, from which on what is asked of collectives stands before generic advice
SMALLEST_GAIN = 0.005  # that is not nothing
MENDED_AS_MUCH = 0.25  # of what a finding's change saves: if mending the late rank saves so much of that, it is told first
MOST_TO_RECORD = 100  # steps
MOST_NUMBERS = 6  # in a list of ranks


class JobView:
    """What the tables of a job are made from."""

    def __init__(self, job: JobFacts, style: Style):
        self.job, self.style = job, style
        same = len({rank.steps for rank in job.ranks}) == 1 and job.ranks[0].steps
        self.steps = job.ranks[0].steps if same else 1  # that times are divided by

    @property
    def ranks(self) -> list[RankFacts]:
        """In their order; of many, those that wait least first."""
        ranks = list(self.job.ranks)
        return sorted(ranks, key=lambda rank: (rank.waiting_us, rank.rank)) if len(ranks) > MOST_RANKS_IN_ORDER else ranks

    @property
    def nvlink_gb_per_s(self) -> float | None:
        devices = {summary.device or "unknown" for summary in self.job.summaries}
        return peak(devices.pop(), "nvlink") if len(devices) == 1 else None


def _device(rank: RankSummary) -> str:
    return rank.device or ("CPU" if rank.verdict == "cpu-only" else "unknown")


def job_report(job: JobFacts, style: Style) -> Document:
    """Return the report on all ranks of a job."""
    out, view = Document(style), JobView(job, style)
    out.title(f"{count(len(job.ranks), 'rank')} of one job: {_files([rank.trace for rank in job.ranks])}")
    versions = ", ".join(f"{name} {version}" for name, version in job.summaries[0].versions.items())
    devices = list(dict.fromkeys(_device(summary) for summary in job.summaries))
    out.lines([f"device: {', '.join(devices)}{'; ' + versions if versions else ''}"])
    if job.missing_ranks:
        verb = "is" if len(job.missing_ranks) == 1 else "are"
        missing = f"{_ranks(job.missing_ranks)} {verb} missing here"
        out.lines([f"of {job.world_size} ranks, {missing}; the straggler may be among them"])
    steps = list(dict.fromkeys(summary.steps for summary in job.summaries))
    if len(steps) > 1:
        out.lines(["steps: the ranks did not record the same ones"])
    else:
        out.lines([steps_line(steps[0]) if steps[0] else "steps: none"])
    if cut := [summary.rank for summary in job.summaries if summary.truncated]:
        out.lines([f"{_ranks(cut)}: the file is cut off, and its whole part was read"])
    out.section("Verdict", "verdict")
    best = best_of_job(job)
    out.lines([line for line in (job_sentence(job), *job_details(job), _plain(job), best.line if best else "") if line])
    out.table(RANKS, view)
    for table in (RANK_STEPS, FOUND):
        if table.shown(view):
            out.table(table, view)
    told = [finding for finding in found_in(job, not style.is_short) if finding.slug in OF_COLLECTIVES]
    if more := [f"{finding.slug}: {advice(finding.next)}" for finding in told if not best or advice(finding.next) != best.advice]:
        out.lines(["", *more])
    if COMMUNICATION.shown(view):
        out.table(COMMUNICATION, view)
    out.table(JOB_COLLECTIVES, view)
    out.section("Clocks and matching", "clocks")
    out.lines(_clocks(job))
    return out


def job_sentence(job: JobFacts) -> str:
    """Return one sentence that says what a job waits for."""
    if job.straggler is not None:
        return _straggler(job.straggler)
    window_us, exposed_us, waiting_us, transfer_us, communication_us, overlapped_us = _sums(job)
    if not communication_us:
        return "the traces hold no communication"
    share = exposed_us / window_us if window_us else 0.0
    exposed = f"exposed communication takes {about(share)} of the time"
    if not job.matched:
        return f"{exposed}; no collective could be matched, so which rank waits for which is unknown"
    if not job.whole:
        return f"{exposed}; how much of it is waiting is unknown without the missing ranks"
    if not job.ends_fit:
        return (
            f"the calls of one collective end {us(job.clock_residual_us)} apart: their durations do not show which rank waited "
            "for which"
        )
    if share < EXPOSED:
        hidden = f"{about(overlapped_us / communication_us)} of all communication is hidden"
        none = "there is no straggler" if job.late is None else "there is no straggler that costs much"
        return f"{none}, and {exposed} ({hidden})"
    parts = [f"{about(transfer_us / exposed_us)} of it is transfer and {about(waiting_us / exposed_us)} waiting for other ranks"]
    if (rest := 1 - (transfer_us + waiting_us) / exposed_us) > NOT_MATCHED:
        parts.append(f"{about(rest)} could not be matched")
    return f"{exposed}: {', '.join(parts)}"


def job_details(job: JobFacts) -> list[str]:
    """Return the sentences behind `job_sentence`: which rank waits for which, what delays the late rank, and what limits the
    ranks.
    """
    if job.straggler is not None:
        late = job.straggler
        return [line for line in (_waits(job, late), _why_late(job, late), _late(job)) if line]
    told = []
    _, exposed_us, waiting_us, _, communication_us, _ = _sums(job)
    if communication_us and job.matched and job.whole and job.ends_fit and waiting_us > NOT_MATCHED * exposed_us:
        told = [_who(job)]
        if job.late is not None and job.late.cost >= MIN_SHARE_OF_WINDOW and job.is_slower_alone:
            told.append(_difference(job, job.late.rank))
    return [*told, _verdicts(job)]


def _sums(job: JobFacts) -> list[float]:
    """Return the ranks' window, exposed communication, waiting and transfer in it, communication, and what of it is hidden."""
    parts = ("window", "exposed", "exposed_waiting", "exposed_transfer", "communication", "overlapped")
    return [sum(getattr(rank, f"{what}_us") for rank in job.ranks) for what in parts]


def _who(job: JobFacts) -> str:
    """Return which rank the others wait for, where it is no straggler."""
    late = job.late
    if late is not None:
        whose = f"{about(late.cost)} of rank {job.waits_longest.rank}'s time"
        costs = f"which costs {whose}"
        if late.cost >= MIN_SHARE_OF_WINDOW and job.late_gain is not None and not job.is_slower_alone:
            most = f"up to {job.late_gain.high:.1%}" if job.late_gain.high >= SMALLEST_GAIN else "nothing that the replay shows"
            costs = f"which takes {whose}, and of a step without the profiler {most}"
        small = ": small" if late.cost < MIN_SHARE_OF_WINDOW else ""
        return f"rank {late.rank} causes {about(late.share)} of the waiting, {costs}{small}"
    if not any(rank.waiting_us for rank in job.ranks):
        return "no rank waits for another"
    if not any(rank.last_to_arrive for rank in job.ranks):
        return "which rank causes it is not known"
    return "no rank causes half of the waiting"


def _difference(job: JobFacts, rank: int) -> str:
    """Return what a late rank does otherwise than the one that waits longest; empty where that is not known."""
    difference, waits = job.difference, job.waits_longest
    if difference is None:
        return ""
    what, whose = ("kernels", "its GPU") if difference.of_gpu else ("outermost ops", "its host")
    same = f"rank {rank} runs the same {difference.ops} {what} as rank {waits.rank}"
    later = f"takes {us(difference.later_us)} longer for them per step"
    few = max((other.steps for other in job.ranks), default=0) < job.steps_to_tell <= MOST_TO_RECORD
    more = f"record {job.steps_to_tell} steps or more" if few else "record once more"
    again = f"{more}, to tell a slow one from chance"
    if difference.kind in (OTHER_WORK, AT_A_PLACE) and job.is_hardly_explained:
        little = f"little of what rank {waits.rank} waits: {again}"
        return f"rank {rank} is {us(difference.later_us)} later in a step than rank {waits.rank} by its own {what}, {little}"
    if difference.kind == OTHER_WORK:
        more = f"{us(difference.later_us)} a step longer than rank {waits.rank}, by other {what}"
        behind = "" if difference.of_gpu else ", or right behind"
        return f"rank {rank} takes {more}: {us(difference.place_us)} in {difference.place}{behind}"
    if difference.kind == AT_A_PLACE:
        where = difference.place if difference.place == BEGINS else f"{difference.place}, or right behind"
        return f"{same}, and {later}; {us(difference.place_us)} later at {where}"
    if difference.kind == NOT_LATER and difference.later_us > 0:
        other = f"rank {rank} runs other {what} than rank {waits.rank}"
        return f"{other}, and {later}; the other ones explain too little of that to call it the straggler"
    if difference.kind == NOT_LATER:
        return f"by its own {what} rank {rank} is no later than rank {waits.rank}, in one step at least; {again}"
    meeting_us = waits.waiting_us / max(waits.matched, 1)  # of which each collective counts what it waits for the same delay
    if difference.times < SLOWER_BY or difference.later_us < meeting_us:
        return f"{same}, and {later}, spread over many of them; {again}"
    slower = f"half of them {difference.times:.2f} times as long or more, and {later}"
    return f"{same}, {slower}: {whose} may be slow, rather than a line of the program; {again}"


def _verdicts(job: JobFacts) -> str:
    """Return what the ranks are bound by, each by its own trace; where the CPU is what limits them as recorded, what it is of a
    step.
    """
    ranks = job.ranks
    by_verdict: dict[str, list[int]] = {}
    for rank in ranks:
        by_verdict.setdefault(rank.verdict, []).append(rank.rank)
    told = ", ".join(f"{_ranks(one)} {'is' if len(one) == 1 else 'are'} {verdict}" for verdict, one in by_verdict.items())
    if len(by_verdict) == 1 and len(ranks) > 1:
        told = f"all ranks are {ranks[0].verdict}"
    launching = next((finding.gain for finding in job.findings if finding.slug == "overhead-bound"), None)
    if launching is None:
        return told
    most = "nothing" if launching.high < SMALLEST_GAIN else f"up to {launching.high:.0%}"
    return f"{told} as recorded (of a step without the profiler, less work on the CPU saves {most})"


def _straggler(late: Straggler) -> str:
    in_steps = f", in {late.in_steps} of {late.of_steps} steps" if late.of_steps > 1 and late.in_steps else ""
    return f"rank {late.rank} is the straggler{in_steps}: it arrives last in {late.last} of {count(late.of, 'collective')}"


def _waits(job: JobFacts, late: Straggler) -> str:
    """Return who waits for the straggler, and how long."""
    last = next(rank for rank in job.ranks if rank.rank == late.rank)
    others = [rank for rank in job.ranks if rank.rank != late.rank]
    waits = sorted(rank.waiting_us for rank in others)
    range_of = us(waits[0]) if us(waits[0]) == us(waits[-1]) else f"{us(waits[0])} to {us(waits[-1])}"
    who = f"rank {others[0].rank} waits {range_of}" if len(others) == 1 else f"the others wait {range_of}"
    once = f", most of it in one collective, in {late.once}" if late.once else ""
    in_all = f" (in all {last.steps} steps, hidden or not)" if last.steps > 1 else ""
    worst = job.waits_longest
    return (
        f"{who} in collectives{once}{in_all}, rank {late.rank} waits {us(last.waiting_us)}; rank {worst.rank} spends "
        f"{about(worst.exposed_waiting_us / worst.window_us)} of its time in exposed waiting"
    )


def _why_late(job: JobFacts, late: Straggler) -> str:
    """Return what keeps the straggler."""
    annotation = late.place.annotation if late.place else ""
    where = f" {'before' if late.place and late.place.first else 'in'} {annotation}" if annotation else ""
    why = {
        "compute": "it computes longer",
        "cpu": f"its CPU is late{where}",
        "input": "it waits for its input (a DataLoader)",
        "gap": "its device waits for something that is not the CPU",
    }.get(late.cause, "")
    told = "; ".join(part for part in (why, _difference(job, late.rank)) if part)
    return told or "its compute and launches do not show what delays it"


def _plain(job: JobFacts) -> str:
    """Return one line: what a step of the job takes without the profiler; empty where nothing was recorded that could tell."""
    plain = job.plain
    if plain.step_us is None:
        return f"what a step takes without the profiler is not known: {plain.unknown_because}" if plain.unknown_because else ""
    recorded = f", {us(plain.recorded_step_us)} recorded" if plain.recorded_step_us else ""
    if plain.how == MEASURED:
        return f"a step takes {us(plain.step_us)}{far_rounds(plain)} without the profiler{recorded}"
    return f"without the profiler a step takes an estimated {us(plain.low_us)} to {us(plain.high_us)}{recorded}"


def _late(job: JobFacts) -> str:
    """Return one line: what the straggler costs."""
    if job.straggler is None:
        return ""
    change = f"rank {job.straggler.rank} like {job.waits_longest.rank}"
    if job.late_gain is not None:
        more = "" if not job.unmatched else ", or more: not all of its collectives are here"
        return f"what it costs: {saved(job.late_gain)} of a step{more} (--what_if '{change}')"
    return f"what it costs: --what_if '{change}'" if _can_be_played(job) else ""


def _can_be_played(job: JobFacts) -> bool:
    """Return whether --what_if can tell of this job what a change brings: it takes a step's time from one end to the next."""
    steps = all(len(summary.steps) > 1 and summary.has_gpu for summary in job.summaries)
    return job.can_be_played and job.whole and None not in job.offset_ns and steps


def _saved_most(finding: JobFinding) -> tuple[Any, ...]:
    """Return the rank of a finding, the smallest first: what the ranks ask of their collectives, where that may save something,
    then as of a single trace.
    """
    is_asked = finding.slug in OF_COLLECTIVES and finding.gain is not None and finding.gain.high >= WORTH_ITS_PLACE
    return not is_asked, finding.gain is None, *rank_of_finding(finding)


def best_of_job(job: JobFacts) -> Best | None:
    """Return the change of the job's step that is told first, of those that the ranks' findings name, and of what keeps a
    straggler.
    """
    named = [finding for finding in sorted(job.findings, key=_saved_most) if finding.slug not in OF_NO_CHANGE]
    named = [finding for finding in named if is_first_worthy(finding)]
    if not named:
        return None
    first, gains = named[0], [finding.gain for finding in named]
    assert first.gain is not None  # it is known to save something
    late, gain = job.straggler, job.mending_gain
    if late is not None and gain is not None and gain.low + gain.high >= MENDED_AS_MUCH * (first.gain.low + first.gain.high):
        (trace,) = (rank.trace for rank in job.ranks if rank.rank == late.rank)
        mend = f"Fix what delays this rank, or give it less work; its own report: {trace}"
        return Best(called_first(gain, gains), f"to what delays rank {late.rank}", OF_A_STEP.format(saved(gain)), mend)
    ranks = "all ranks" if len(first.ranks) == len(job.ranks) else _ranks(first.ranks)
    return Best(
        called_first(first.gain, gains), f"{first.slug} of {ranks}", OF_A_STEP.format(gain_words(first)), advice(first.next)
    )


def _time(what: str, if_matched: bool = False) -> Callable[[RankFacts, JobView], str]:
    """Return a time of a rank per step; `if_matched`: unknown where none of its collectives could be matched."""

    def cell(rank: RankFacts, view: JobView) -> str:
        if if_matched and rank.communication_us and not rank.matched:
            return "unknown"
        return us(getattr(rank, what) / view.steps)

    return cell


def _ranks_title(view: JobView) -> str:
    per_step = f"as recorded, the mean of {view.steps} steps" if view.steps > 1 else "all that was recorded"
    order = "; those that wait least first" if len(view.job.ranks) > MOST_RANKS_IN_ORDER else ""
    return f"Ranks ({per_step}; waiting and transfer: the exposed part; last: how often it arrived last, in all steps{order})"


def _place(job: JobFacts, rank: RankFacts) -> int:
    return next(place for place, other in enumerate(job.ranks) if other.rank == rank.rank)


RANKS = Table(
    key="ranks",
    title=_ranks_title,
    rows=lambda view: view.ranks,
    columns=(
        Column("rank", lambda rank, view: str(rank.rank)),
        Column("compute", _time("compute_us")),
        Column("commun.", _time("communication_us")),
        Column("exposed", _time("exposed_us")),
        Column("waiting", _time("exposed_waiting_us", if_matched=True)),
        Column("transfer", _time("exposed_transfer_us", if_matched=True)),
        Column("idle", _time("idle_us")),
        Column("last", lambda rank, view: str(rank.last_to_arrive)),
        Column("overlapped", _time("overlapped_us"), in_short=False),
        Column("all waiting", _time("waiting_us", if_matched=True), in_short=False),
        Column("verdict", lambda rank, view: rank.verdict, in_short=False),
    ),
    light=lambda rank, timelines, job: {place: waits_of(job, place)} if (place := _place(job, rank)) in timelines else {},
    short_rows=MOST_RANKS_IN_ORDER,
)


def _has_several_steps(view: JobView) -> bool:
    return all(len(rank.by_step) > 2 for rank in view.job.ranks)


def _first(what: str) -> Callable[[RankFacts, JobView], str]:
    return lambda rank, view: us(getattr(rank.by_step[0], what))


def _later(what: str) -> Callable[[RankFacts, JobView], str]:
    """Return the median of the steps after the first, which often is a cold one."""
    return lambda rank, view: us(median(np.array([getattr(step, what) for step in rank.by_step[1:]])))


RANK_STEPS = Table(
    key="rank_steps",
    title="Steps of the ranks (as recorded; first: the first one, from its start; else the later ones' median, end to end)",
    rows=lambda view: view.ranks,
    columns=(
        Column("rank", lambda rank, view: str(rank.rank)),
        Column("first", _first("period_us")),
        Column("step", _later("period_us")),
        Column("compute", _later("compute_us")),
        Column("exposed", _later("exposed_us")),
        Column("first waiting", _first("waiting_us")),
        Column("waiting", _later("waiting_us")),
    ),
    shown=lambda view: _has_several_steps(view) and not view.style.is_short,
    name="the steps of the ranks",
)


def job_changes(job: JobFacts) -> list[JobFinding]:
    """Return the changes that the report on a job suggests, in its order: first the straggler with what delays it, then the
    findings.
    """
    late, told = job.straggler, found_in(job)
    if late is None:
        return told
    return [JobFinding("straggler", (late.rank,), job_sentence(job), " ".join(job_details(job)), 0.0, job.mending_gain), *told]


def found_in(job: JobFacts, everything: bool = False) -> list[JobFinding]:
    """Return the findings that are worth telling, in their order. What all ranks show, and is not known to save anything, only
    where everything is told, unless it is of their collectives. A verdict is told in its place, unless it is known what it costs.
    """
    verdicts = {summary.verdict for summary in job.summaries} - NAMING
    found = [item for item in job.findings if item.slug not in verdicts or gain_words(item)]
    if not everything:
        of_some = [item for item in found if item.gain or len(item.ranks) < len(job.ranks) or item.slug in OF_COLLECTIVES]
        found = [item for item in of_some if not item.is_worthless]
    return sorted(found, key=_saved_most)


def _begun(text: str) -> str:
    """Return the beginning of a sentence."""
    return text if len(text) <= SEEN_WIDTH else f"{text[: SEEN_WIDTH - 3].rstrip()}..."


def _whose(found: JobFinding, view: JobView) -> str:
    if len(found.ranks) == len(view.job.ranks):
        return "all ranks" if len(found.ranks) > 1 else "the rank"
    return f"{_ranks(found.ranks)}{' alone' if len(found.ranks) == 1 else ''}"


def _saved(found: JobFinding) -> str:
    """Return what following the advice saves; unknown where that is not known, or the bound says nothing."""
    return "nothing" if found.is_worthless else gain_words(found) or "unknown"


FOUND = Table(
    key="rank_findings",
    title="Findings of the ranks' own traces (share: of the path of the one that shows most; saves: of the job's step)",
    rows=lambda view: found_in(view.job, not view.style.is_short),
    columns=(
        Column("of", _whose),
        Column("finding", lambda found, view: found.slug),
        Column("share", lambda found, view: percent(found.share)),
        Column("saves", lambda found, view: _saved(found)),
        Column("seen", lambda found, view: _begun(found.seen) if view.style.is_short else found.seen),
    ),
    short_rows=3,
    shown=lambda view: bool(found_in(view.job, not view.style.is_short)),
    name="the ranks' own findings",
)


def _more_of(view: JobView) -> str:
    return "" if view.style.is_short else ", with half of its transfer, with none of it waited for"


def _saves(gain: Gain) -> str:
    return "nothing" if gain.high < SMALLEST_GAIN else saved(gain)


COMMUNICATION = Table(
    key="communication",
    title=lambda view: f"Communication (of a rank, per step; what the job's step saves without it{_more_of(view)}, in one call)",
    rows=lambda view: view.job.communication,
    columns=(
        Column("collective", lambda row, view: row.name),
        Column("type", lambda row, view: row.dtype or "unknown"),
        Column("phase", lambda row, view: row.phase),
        Column("calls", lambda row, view: f"{row.calls:.0f}" if row.calls == round(row.calls) else f"{row.calls:.1f}"),
        Column("MB", lambda row, view: f"{row.bytes / 1e6:.2f}" if row.bytes else "unknown"),
        Column("gone", lambda row, view: _saves(row.gone)),
        Column("half", lambda row, view: _saves(row.half), in_short=False),
        Column("hidden", lambda row, view: _saves(row.hidden), in_short=False),
        Column("in one", lambda row, view: "-" if row.in_one is None else _saves(row.in_one)),
        Column("asked by", lambda row, view: _begun(row.asked_by) if view.style.is_short else row.asked_by),
    ),
    short_rows=4,
    shown=lambda view: bool(view.job.communication),
    name="communication by place",
)


def _collectives_title(view: JobView) -> str:
    nvlink = view.nvlink_gb_per_s
    beside = f"; a device's NVLink carries {nvlink:.0f} as published" if nvlink else ""
    return f"Collectives (transfer and skew: medians; GB/s: on the bus{beside})"


def _collective_ranks(row: Any, view: JobView) -> str:
    return " > ".join(map(str, row.ranks)) if row.name == SEND_AND_RECEIVE else _ranks(row.ranks, "")


JOB_COLLECTIVES = Table(
    key="collectives",
    title=_collectives_title,
    rows=lambda view: view.job.collectives,
    columns=(
        Column("collective", lambda row, view: row.name),
        Column("group", lambda row, view: row.group or "unknown"),
        Column("ranks", _collective_ranks),
        Column("count", lambda row, view: str(row.count)),
        Column("MB", lambda row, view: megabytes(row)),
        Column("transfer", lambda row, view: us(row.transfer_us)),
        Column("skew", lambda row, view: us(row.skew_us)),
        Column("GB/s", lambda row, view: known(row.bus_gb_per_s, ".1f")),
        Column("mostly", lambda row, view: MAIN_CAUSE[row.kind]),
    ),
    light=each(collective_light),
    short_rows=8,
    empty="none that all ranks have",
)


def _clocks(job: JobFacts) -> list[str]:
    lines = []
    if job.clock_residual_us is not None:
        lines.append(
            f"the ends of {count(job.matched, 'matched collective')} align the clocks; they remain {us(job.clock_residual_us)} "
            "apart (median)"
        )
    if job.by_order:
        lines.append("the traces do not say which ranks take part in a collective: they are matched by name and order")
    if loose := [rank.rank for rank, offset in zip(job.ranks, job.offset_ns, strict=True) if offset is None]:
        lines.append(f"nothing ties the clock of {_ranks(loose)} to the clock of rank {job.ranks[0].rank}")
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
    return lines or ["the traces hold no collective"]


def _apart(job: JobFacts) -> str:
    """Return how far the clock of a rank is from the first's, where that is more than machines that keep time are apart."""
    first, furthest = job.summaries[0], (0, 0)
    for summary, offset in zip(job.summaries[1:], job.offset_ns[1:], strict=True):
        if offset is not None:
            apart_ns = summary.base_ns + summary.zero_ns - first.base_ns - first.zero_ns - offset
            furthest = max(furthest, (abs(apart_ns), summary.rank))
    if furthest[0] < APART_NS:
        return ""
    return f"the clocks of ranks {first.rank} and {furthest[1]} are {us(furthest[0] / 1000)} apart: is this one run?"


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
    """Return the files' names with a star where they differ."""
    start = _common(names)
    end = _common([name[len(start) :][::-1] for name in names])[::-1]
    return f"{start}*{end}" if len(names) > 1 else names[0]


def _common(texts: Sequence[str]) -> str:
    """Return what all of the texts begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in same)
