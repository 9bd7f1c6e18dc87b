"""Time by annotation, layer or line of Python: the tables of --by and --names."""

from collections.abc import Sequence
from typing import Any

import msgspec
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.graph_names import Joined
from trace_reader.analysis.trace.time_by_place import PlaceFacts, TimeFacts
from trace_reader.findings.verdict import plain_sentence
from trace_reader.names.kernel_names import decode_name
from trace_reader.report.document import Column, Document, Style, Table, middle
from trace_reader.report.trace_report import header
from trace_reader.report.trace_tables import OP_SHAPES, PLACES, TraceView, on_gpu, places_table
from trace_reader.units import count, percent, us

LONGEST_LINE_OF_PYTHON = 60
MOST_ROWS = 40


class PlaceView:
    """What the tables are made from: the facts of the trace, its rows by `by`, and of --names how they were `joined`."""

    def __init__(self, facts: Facts, by: str, rows: Sequence[PlaceFacts | TimeFacts], style: Style, joined: Joined | None = None):
        self.facts, self.by, self.rows, self.style, self.joined = facts, by, rows, style, joined


def place_report(facts: Facts, by: str, rows: Sequence[PlaceFacts | TimeFacts], style: Style, of_cpu: bool = False) -> Document:
    """Return a row for each annotation, layer or line of Python ("stack"); `of_cpu`: of these all of the CPU's time."""
    out = _begun(facts, style)
    lines = CPU_LINES if of_cpu else LINES
    table = lines if by == "stack" else places_table(by, lambda view: view.rows, MOST_ROWS)
    out.table(table, PlaceView(facts, by, rows, style))
    return out


def where_report(facts: Facts, style: Style) -> Document:
    """Return all places of a run, by what a step saves without them."""
    out = _begun(facts, style)
    if plain := plain_sentence(facts):
        out.lines([plain])
    out.table(msgspec.structs.replace(PLACES, every=lambda view: True), TraceView(facts, style))
    return out


def ops_report(facts: Facts, style: Style) -> Document:
    """Return all ops by the shapes of their inputs."""
    out = _begun(facts, style)
    out.table(msgspec.structs.replace(OP_SHAPES, every=lambda view: True), TraceView(facts, style))
    return out


def names_report(
    graph: Facts, names: str, joined: Joined, rows: Sequence[PlaceFacts | TimeFacts], by: str, style: Style
) -> Document:
    """Return the work of a CUDA graph by what a trace without the graph says that it is."""
    out = _begun(graph, style)
    out.section(f"Named by {names}" + (f", {joined.step}" if joined.step else ""), "names")
    replays = count(joined.replays, "graph launch", "graph launches")
    out.lines([f"{joined.named} of {joined.events} kernels, copies and memsets that {replays} replayed"], indented=True)
    if joined.differs:
        place, here, there = joined.differs
        other = decode_name(there).label if there else "nothing more"
        out.lines(
            [
                f"the first {place} of a launch agree; then the graph has {decode_name(here).label} and the other trace {other}. "
                "What follows has no name"
            ],
            indented=True,
        )
    out.rows(NAMED, PlaceView(graph, by, rows, style, joined))
    return out


def _begun(facts: Facts, style: Style) -> Document:
    out = Document(style)
    out.title(facts.trace)
    out.lines(header(facts, style))
    return out


def _line(row: Any, view: PlaceView) -> str:
    return row.name if view.style.full else middle(row.name, LONGEST_LINE_OF_PYTHON)


def _forward_us(row: PlaceFacts | TimeFacts) -> float:
    return row.gpu_us if isinstance(row, PlaceFacts) else row.time_us


def _share(row: PlaceFacts | TimeFacts, view: PlaceView) -> str:
    assert view.joined is not None
    return percent((_forward_us(row) + (row.backward_us or 0.0)) / (float(view.joined.asked.time_us.sum()) or 1.0))


NAMED = Table(
    key="names",
    title="",
    rows=lambda view: view.rows,
    columns=(
        Column(lambda view: view.by, _line),
        Column("replayed", lambda row, view: str(row.launched)),
        Column("GPU time", lambda row, view: us(_forward_us(row))),
        Column(
            "backward", lambda row, view: us(row.backward_us or 0.0), shown=lambda view: any(row.backward_us for row in view.rows)
        ),
        Column("share", _share),
    ),
    short_rows=MOST_ROWS,
    every=lambda view: view.style.everything,
)
LINES = Table(
    key="lines",
    title=lambda view: (
        "The GPU's time by line of Python (torch's own left out; backward: of its backward pass, which runs later)"
        if on_gpu(view)
        else "The CPU's time in ops, by line of Python (torch's own left out; backward: of its backward pass)"
    ),
    rows=lambda view: view.rows,
    columns=(
        Column("line", _line),
        Column(lambda view: "launched" if on_gpu(view) else "ops", lambda row, view: str(row.launched)),
        Column(lambda view: "GPU time" if on_gpu(view) else "time", lambda row, view: us(row.time_us)),
        Column("backward", lambda row, view: us(row.backward_us)),
        Column("share", lambda row, view: percent(row.share)),
    ),
    short_rows=MOST_ROWS,
    every=lambda view: view.style.everything,
)
CPU_LINES = Table(
    key="lines",
    title=(
        "The CPU's time by line of Python, in ops, calls and Python itself (what torch's code takes, at the line that "
        "called it; what a function itself takes, at its own)"
    ),
    rows=lambda view: view.rows,
    columns=(
        Column("line", _line),
        Column("time", lambda row, view: us(row.time_us)),
        Column("share", lambda row, view: percent(row.share)),
    ),
    short_rows=MOST_ROWS,
    every=lambda view: view.style.everything,
)
