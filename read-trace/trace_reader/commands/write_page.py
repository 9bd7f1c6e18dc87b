"""A report as a page: --html."""

from collections.abc import Sequence
from pathlib import Path
import re

import msgspec
from trace_reader.analysis.comparison import compare
from trace_reader.analysis.job_facts import JobFacts
from trace_reader.commands.load_shown import load_shown
from trace_reader.commands.read_job import expanded, is_job, read_job
from trace_reader.errors import NotWrittenError, TraceError
from trace_reader.findings import evidence_of
from trace_reader.link.trace import Trace
from trace_reader.model.slices import Kind
from trace_reader.reading import analyze
from trace_reader.report import job as job_report
from trace_reader.report import one, page, several
from trace_reader.report.columns import MOST_SLICES, Lit, Panel, Shown, lit_of, lit_waits, panel, rank_panel
from trace_reader.report.document import Document, Item, Style, Table
from trace_reader.system.files import write_all
from trace_reader.units import human_bytes

ROWS = 100  # of a table
MOST_RANKS = 8  # of a job, whose own lanes are on the page


def run(paths: list[str], target: Path, style: Style, steps_from: re.Pattern[str] | None, scheduler: str | None) -> str:
    """Write a page on one trace, two, or a job's ranks into `target`; says where it is. Raises TraceError, LookupError,
    NotWrittenError.
    """
    style, everything = msgspec.structs.replace(style, top=style.top or ROWS, everything=True), style.everything
    paths = expanded(paths)
    if is_job(paths) or (scheduler is not None and len(paths) > 1):
        found = of_job(paths, style, steps_from, scheduler)
    elif len(paths) > 2:
        raise TraceError(f"--html shows one trace, two, or the ranks of a job, got {len(paths)} that are none")
    else:
        most = MOST_SLICES // len(paths)
        shown = [_shown(number, path, steps_from, everything, most) for number, path in enumerate(paths)]
        found = of_one(shown[0], style) if len(shown) == 1 else of_two(shown, style)
    data = page.write(found)
    try:
        write_all({target: data})
    except OSError as error:
        raise NotWrittenError(f"{target}: {error.strerror or error}") from error
    return f"wrote {target} ({human_bytes(len(data))}): open it in a browser\n"


def _shown(
    number: int, path: str, steps_from: re.Pattern[str] | None, everything: bool = False, most: int = MOST_SLICES
) -> Shown:
    """The trace at `path`, with the functions of Python where it has them: they are drawn, and the facts are without."""
    drawn = load_shown(path, steps_from, stacks=path != "-")
    has_python = bool((drawn.slices.kind == Kind.PYTHON).any())
    trace = load_shown(path, steps_from) if has_python else drawn
    return Shown(number, trace, analyze(trace, everything), most, drawn if has_python else None)


def of_one(shown: Shown, style: Style) -> page.Page:
    """The page of one trace."""
    facts = shown.facts
    document = one.report(facts, style)
    found = [lit_finding(shown, item.name.partition(" ")[0]) for item in document.parts if isinstance(item, Item)]
    return _page(document, [panel(shown, facts.trace)], [shown], found, lit_finding(shown, facts.regime), left_out=shown.left_out)


def of_two(shown: Sequence[Shown], style: Style) -> page.Page:
    """The page of two traces, above each other on one scale, each from its first recorded step on."""
    panels = [
        panel(own, f"{name}: {own.facts.trace}", -begins(own.trace), "the first recorded step")
        for name, own in zip("AB", shown, strict=True)
    ]
    document, found = several.comparison(compare(shown[0].facts, shown[1].facts), style), []
    document.section("Findings (share: of the critical path)")
    for name, own in zip("AB", shown, strict=True):
        for finding in own.facts.findings:
            document.item(f"{name}: {one.finding_title(finding)}", finding.seen, finding.means, finding.next)
            found.append(lit_finding(own, finding.slug))
    left_out = " ".join(f"{name}: {own.left_out}" for name, own in zip("AB", shown, strict=True) if own.left_out)
    return _page(document, panels, shown, found, left_out=left_out)


def of_job(paths: Sequence[str], style: Style, steps_from: re.Pattern[str] | None, scheduler: str | None) -> page.Page:
    """The page of a job: a lane for each rank, and of the first ranks their own lanes, to be opened."""
    job, errors = read_job(paths, steps_from, scheduler)
    if errors:
        raise errors[0]
    shown: list[Shown] = []
    panels: list[Panel] = []
    most = MOST_SLICES // min(len(job.summaries), MOST_RANKS)
    opened = set(range(min(len(job.summaries), MOST_RANKS)))
    if job.straggler is not None:
        opened.add(next(place for place, own in enumerate(job.ranks) if own.rank == job.straggler.rank))
    for place, own in enumerate(job.summaries):
        each = _shown(place, own.trace, steps_from, most=most) if place in opened else None
        shown += [each] if each else []
        panels.append(rank_panel(job, place, each))
    left_out = [f"rank {job.summaries[own.number].rank}: {own.left_out}" for own in shown if own.left_out]
    left_out += [f"rank {job.summaries[own.number].rank}: the file is cut off." for own in shown if own.facts.truncated]
    if len(panels) > len(shown):
        left_out.append(
            f"Of {len(panels)} ranks, {len(shown)} can be opened: {', '.join(str(job.ranks[n].rank) for n in sorted(opened))}."
        )
    return _page(job_report.report(job, style), panels, shown, lit_verdict=lit_waits(job), left_out=" ".join(left_out), job=job)


def lit_finding(shown: Shown, slug: str) -> Lit:
    """The slices that show a finding."""
    lit = Lit()
    if (rows := evidence_of(shown.trace, shown.facts, slug)) is not None:
        shown.light(lit, rows)
    return lit


def begins(trace: Trace) -> int:
    """When the first recorded step begins (ns from the first slice); without steps, the GPU's first work, or the first slice."""
    return int(trace.steps.start_ns[0]) if len(trace.steps) else int(trace.work.start_ns[0]) if len(trace.work) else 0


def _page(
    document: Document,
    panels: Sequence[Panel],
    shown: Sequence[Shown],
    found: Sequence[Lit] = (),
    lit_verdict: Lit | None = None,
    left_out: str = "",
    job: JobFacts | None = None,
) -> page.Page:
    tables = [part for part in document.parts if isinstance(part, Table)]
    rows = [[lit_of(item, shown, job) for item in table.items] for table in tables]
    return page.Page(document, panels, found, rows, lit_verdict or Lit(), left_out)
