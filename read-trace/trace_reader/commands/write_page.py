"""A report as a page: --html."""

from collections.abc import Sequence
from pathlib import Path
import re

import msgspec
import numpy as np
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.analysis.runs.comparison import compare
from trace_reader.analysis.runs.where_differs import where_differs
from trace_reader.analysis.snapshot_facts import snapshot_curves, snapshot_facts
from trace_reader.commands.load_with_progress import load_joined, load_with_progress
from trace_reader.commands.read_job import ONE_RANK, expanded, is_job, play_job
from trace_reader.errors import TraceError
from trace_reader.findings import Reading, choices
from trace_reader.model.slices import Kind
from trace_reader.parse.memory_snapshot import read_snapshot
from trace_reader.reading import examine, examine_joined, judged, with_lines
from trace_reader.report.comparison_report import comparison_report
from trace_reader.report.document import Document, Item, Part, Style, TablePart
from trace_reader.report.job_report import best_of_job, job_report
from trace_reader.report.lights import Lights, finding_light, waits_for_straggler
from trace_reader.report.memory_report import add_snapshot
from trace_reader.report.step_bars import step_bars
from trace_reader.report.timeline import Timeline
from trace_reader.report.trace_report import best_of, trace_report
from trace_reader.system.files import write_file
from trace_reader.units import human_bytes
from trace_reader.write import html_page
from trace_reader.write.html_page import Page
from trace_reader.write.page_payload import MOST_SLICES, DrawnSlices, Panel, lit_values, panel, rank_panel

ROWS = 100  # of a table
MOST_OPENED_RANKS = 8  # of a job, whose own lanes are on the page
FIRST_STEP = "the first recorded step"


def run(
    paths: list[str],
    target: Path,
    style: Style,
    steps_from: re.Pattern[str] | None,
    scheduler: str | None,
    snapshot: str | None = None,
    stacks: str | None = None,
) -> str:
    """Write a page on one trace, two, or a job's ranks into `target`; says where it is. `snapshot`: of CUDA's memory, while the
    one trace was recorded; `stacks`: another recording of its program, with its functions. Raises TraceError, LookupError,
    NotWrittenError.
    """
    style, everything = msgspec.structs.replace(style, top=style.top or ROWS, everything=True), style.everything
    paths = expanded(paths)
    for flag, wanted in (("--snapshot", snapshot), ("--stacks", stacks)):
        if wanted is not None and len(paths) > 1:
            raise TraceError(f"{flag} is of one trace, got {len(paths)}")
    if is_job(paths) or (scheduler is not None and len(paths) > 1):
        page = page_of_job(paths, style, steps_from, scheduler)
    elif len(paths) > 2:
        raise TraceError(f"page shows one trace, two, or the ranks of a job, got {len(paths)} that are none")
    elif scheduler is not None:
        raise TraceError(ONE_RANK.format(paths[0]))
    else:
        timelines = [_timeline(path, steps_from, everything, stacks=stacks) for path in paths]
        page = page_of_one(timelines[0], style, snapshot) if len(paths) == 1 else page_of_two(timelines, style)
    data = html_page.write(page)
    write_file(target, data)
    return f"wrote {target} ({human_bytes(len(data))}): open it in a browser\n"


def to_html(*paths: str) -> bytes:
    """Return the page that `--html` writes for one trace, or for two traces side by side. Raises TraceError if a trace cannot be
    read.
    """
    timelines = [_timeline(str(path), None) for path in paths]
    style = Style(top=ROWS, everything=True)
    return html_page.write(page_of_one(timelines[0], style) if len(paths) == 1 else page_of_two(timelines, style))


def _timeline(
    path: str,
    steps_from: re.Pattern[str] | None,
    everything: bool = False,
    reading: Reading | None = None,
    stacks: str | None = None,
) -> Timeline:
    """Return the trace at `path`, with the functions of Python where it has them: they are drawn, and the facts are without.
    `reading`: the trace without them, where it was read before.
    """
    if reading is None and (joined := load_joined(path, stacks, steps_from)):
        return Timeline(examine_joined(joined, everything), joined.stacks)
    if reading is not None and "python_function" not in reading.trace.skipped:
        return Timeline(reading)
    drawn = load_with_progress(path, steps_from, stacks=path != "-")
    has_python = bool((drawn.slices.kind == Kind.PYTHON).any())
    if has_python:
        reading = with_lines(reading or judged(load_with_progress(path, steps_from), everything), drawn)
    reading = reading or examine(drawn, everything)
    return Timeline(reading, drawn)


def page_of_one(timeline: Timeline, style: Style, snapshot: str | None = None) -> Page:
    """Return the page of one trace, with its memory by the snapshot at this path."""
    document = trace_report(timeline.facts, style)
    if snapshot is not None:
        timeline = _with_snapshot(timeline, snapshot, document)
    shown = {0: DrawnSlices(0, timeline, MOST_SLICES)}
    verdict = finding_light(timeline, timeline.facts.verdict)
    page = _page(document, [panel(shown[0], timeline.facts.trace)], shown, verdict={} if verdict is None else {0: verdict})
    chosen = choices(timeline.reading)
    facts = timeline.facts
    page = msgspec.structs.replace(page, bars=step_bars(facts), device=facts.device or "", best=best_of(facts))
    return page if chosen is None else msgspec.structs.replace(page, changes=(timeline.facts.plain, chosen))


def _with_snapshot(timeline: Timeline, path: str, document: Document) -> Timeline:
    """Return the timeline with the snapshot's curves in place of its own; what it says of this time goes behind the report."""
    trace, snapshot = timeline.trace, read_snapshot(path)
    zero_ns = trace.base_ns + trace.zero_ns
    length_ns = int(trace.slices.end_ns.max(initial=0))
    drawn = snapshot_curves(snapshot, zero_ns, length_ns)
    if not any(len(device.change) for device in snapshot.devices):
        raise LookupError(f"{path}: no history was recorded: call torch.cuda.memory._record_memory_history() before")
    if not drawn:
        raise LookupError(f"{path}: no allocation or free of it is from the time of the trace: is it of the same run?")
    devices = snapshot_facts(snapshot, (zero_ns / 1000, (zero_ns + length_ns) / 1000))
    peaks_ns = [None if device.peak_us is None else device.peak_us * 1000 - zero_ns for device in devices]
    at = [-1 if moment_ns is None else int(trace.step_at(np.array([moment_ns]))[0]) for moment_ns in peaks_ns]
    steps = [None if number < 0 else trace.steps[number].name for number in at]
    add_snapshot(document, path, devices, steps, snapshot.lost)
    return Timeline(timeline.reading, timeline.drawn, drawn)


def page_of_two(timelines: Sequence[Timeline], style: Style) -> Page:
    """Return the page of two traces, above each other on one scale, each from its first recorded step on."""
    a, b = timelines
    document = comparison_report(compare(a.facts, b.facts, where_differs(a.trace, b.trace)), style, with_findings=True)
    shown = {number: DrawnSlices(number, timeline, MOST_SLICES // 2) for number, timeline in enumerate(timelines)}
    panels = [
        panel(shown[number], f"{name}: {timelines[number].facts.trace}", -timelines[number].begins_ns, FIRST_STEP)
        for number, name in enumerate("AB")
    ]
    return _page(document, panels, shown, names="AB")


def page_of_job(
    paths: Sequence[str],
    style: Style,
    steps_from: re.Pattern[str] | None,
    scheduler: str | None,
    tells_waits: bool = True,
) -> Page:
    """Return the page of a job: a lane for each rank, and of the first ranks their own lanes, to be opened. `tells_waits`: in the
    ranks' lanes.
    """
    job, errors, played = play_job(paths, steps_from, scheduler)
    if errors:
        raise errors[0]
    opened = set(range(min(len(job.summaries), MOST_OPENED_RANKS)))
    most = MOST_SLICES // len(opened)
    if job.straggler is not None:
        opened.add(next(place for place, facts in enumerate(job.ranks) if facts.rank == job.straggler.rank))
    readings = dict(enumerate(played.readings)) if played else {}
    shown: dict[int, DrawnSlices] = {}
    panels: list[Panel] = []
    for place, summary in enumerate(job.summaries):
        if place in opened:
            shown[place] = DrawnSlices(place, _timeline(summary.trace, steps_from, reading=readings.get(place)), most)
        panels.append(rank_panel(job, place, shown.get(place), tells_waits))
    cut = [f"rank {job.summaries[n].rank}: the file is cut off." for n, panel in shown.items() if panel.timeline.facts.truncated]
    if len(panels) > len(shown):
        ranks = ", ".join(str(job.ranks[n].rank) for n in sorted(opened))
        cut.append(f"Of {len(panels)} ranks, {len(shown)} can be opened: {ranks}.")
    names = {place: f"rank {summary.rank}" for place, summary in enumerate(job.summaries)}
    page = _page(job_report(job, style), panels, shown, names, waits_for_straggler(job), job, cut)
    page = msgspec.structs.replace(page, best=best_of_job(job))
    chosen = played.choices() if played else None
    return page if chosen is None else msgspec.structs.replace(page, changes=(job.plain, chosen))


def _page(
    document: Document,
    panels: Sequence[Panel],
    shown: dict[int, DrawnSlices],
    names: Sequence[str] | dict[int, str] = ("",),
    verdict: Lights | None = None,
    job: JobFacts | None = None,
    notes: Sequence[str] = (),
) -> Page:
    """Return a page with what each part of the document lights up. `names`: of the traces; `notes`: more of what is not drawn."""
    timelines = {number: panel.timeline for number, panel in shown.items()}

    def lit(part: Part) -> Part:
        if isinstance(part, Item):
            light = finding_light(timelines[part.number], part.slug)
            return msgspec.structs.replace(part, light=lit_values({} if light is None else {part.number: light}, shown))
        if isinstance(part, TablePart):
            lights = [lit_values(part.table.light(item, timelines, job), shown) for item in part.items]
            return msgspec.structs.replace(part, lights=lights)
        return part

    document.parts = [lit(part) for part in document.parts]
    left_out = [f"{names[n]}: {panel.left_out}".removeprefix(": ") for n, panel in shown.items() if panel.left_out]
    return Page(
        document,
        panels,
        lit_values(verdict or {}, shown),
        " ".join([*left_out, *notes]),
    )
