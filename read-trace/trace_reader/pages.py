"""Provide parts of pages to programs that make their own pages, such as a course or a gallery. `--html` uses the same parts."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.runs.comparison import rows
from trace_reader.analysis.trace.facts import Facts
from trace_reader.commands import write_page
from trace_reader.findings import Reading
from trace_reader.model.rows import Rows
from trace_reader.report.comparison_report import several_report
from trace_reader.report.document import Style
from trace_reader.report.lights import Light, finding_light, white_space_of_gpu
from trace_reader.report.timeline import Timeline
from trace_reader.write import html_page, markdown
from trace_reader.write.html_page import DETAILS, html, timeline_html, with_terms
from trace_reader.write.page_payload import DrawnSlices, Panel, lit_values, panel

__all__ = [
    "DETAILS",
    "Panels",
    "html",
    "job_panels",
    "several_markdown",
    "timeline_html",
    "trace_page",
    "trace_panels",
    "with_terms",
]


class Panels(msgspec.Struct, frozen=True):
    """Panels of a page's timeline, and what its first button lights up there, as `html` takes them."""

    panels: Sequence[Panel]
    lights: list[dict[str, Any]]


def trace_page(reading: Reading, navigation: str = "") -> bytes:
    """Return the page of one trace with everything, below some HTML of one's own."""
    page = write_page.page_of_one(Timeline(reading), Style(top=write_page.ROWS, everything=True))
    return html_page.write(msgspec.structs.replace(page, navigation=navigation))


def trace_panels(
    traces: Sequence[Reading],
    labels: Sequence[str],
    finding: str = "",
    named: Callable[[str], bool] = lambda name: False,
    white: bool = False,
) -> Panels:
    """Traces above each other, each from its first recorded step on. In the last of them a finding lights up, by its slug, or the
    slices whose names are `named`, or the `white` space of the GPU's lanes.
    """
    shown = [DrawnSlices(number, Timeline(reading)) for number, reading in enumerate(traces)]
    panels = [
        panel(drawn, label, -drawn.timeline.begins_ns, write_page.FIRST_STEP) for drawn, label in zip(shown, labels, strict=True)
    ]
    last = shown[-1]
    slices = last.timeline.trace.slices
    every = Rows(slices, np.arange(len(slices)))
    if white:
        light: Light | None = white_space_of_gpu(last.timeline)
    else:
        light = finding_light(last.timeline, finding) if finding else Light(every.where(every.is_named(named)))
    return Panels(panels, [lit_values({} if light is None else {last.number: light}, {last.number: last})])


def job_panels(paths: Sequence[str]) -> Panels:
    """Return the ranks of a job, whose lanes do not say which communication is waiting; where the others waited for a straggler
    lights up, if there is one. Raises TraceError.
    """
    page = write_page.page_of_job(paths, Style(everything=True), None, None, tells_waits=False)
    return Panels(page.panels, [page.lit_verdict] if page.lit_verdict else [])


def several_markdown(traces: Sequence[Facts]) -> str:
    """Return a Markdown table that compares several traces."""
    return markdown.write(several_report(rows(traces), Style()))
