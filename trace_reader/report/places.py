"""The GPU's time by annotation, layer or line of Python: the tables of --by."""

from collections.abc import Sequence

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.places import LineFacts, PlaceFacts
from trace_reader.report import one
from trace_reader.report.document import Document, Style, middle
from trace_reader.units import percent, us

LONGEST_LINE_OF_PYTHON = 60
MOST_ROWS = 40


def by_place(facts: Facts, by: str, rows: Sequence[PlaceFacts], style: Style) -> Document:
    """A row for each annotation or layer."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(one.header(facts, style))
    one.places(out, facts, by, rows, MOST_ROWS)
    return out


def by_line(facts: Facts, rows: Sequence[LineFacts], style: Style) -> Document:
    """A row for each line of Python."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(one.header(facts, style))
    on_gpu = facts.regime != "cpu-only"
    out.section(
        "The GPU's time by line of Python (torch's own left out; backward: of its backward pass, which runs later)"
        if on_gpu
        else "The CPU's time in ops, by line of Python (torch's own left out; backward: of its backward pass)"
    )
    out.table(
        ["line", "launched" if on_gpu else "ops", "GPU time" if on_gpu else "time", "backward", "share"],
        rows,
        lambda row: [_line(row.line, style), str(row.launched), us(row.time_us), us(row.backward_us), percent(row.share)],
        every=style.everything,
        brief=MOST_ROWS,
    )
    return out


def _line(line: str, style: Style) -> str:
    return line if style.full else middle(line, LONGEST_LINE_OF_PYTHON)
