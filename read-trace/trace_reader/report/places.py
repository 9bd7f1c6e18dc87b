"""The GPU's time by annotation, layer or line of Python: the tables of --by."""

from collections.abc import Sequence

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.graph_names import Joined
from trace_reader.analysis.place_facts import PlaceFacts, TimeFacts
from trace_reader.names.kernel_names import decode_name
from trace_reader.report import one
from trace_reader.report.document import Document, Style, middle
from trace_reader.units import count, percent, us

LONGEST_LINE_OF_PYTHON = 60
MOST_ROWS = 40


def by_place(facts: Facts, by: str, rows: Sequence[PlaceFacts], style: Style) -> Document:
    """A row for each annotation or layer."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(one.header(facts, style))
    one.places(out, facts, by, rows, MOST_ROWS)
    return out


def by_names(graph: Facts, names: str, joined: Joined, rows: Sequence[PlaceFacts | TimeFacts], by: str, style: Style) -> Document:
    """The work of a CUDA graph by what a trace without the graph says that it is."""
    out = Document(style)
    out.title(graph.trace)
    out.lines(one.header(graph, style))
    out.section(f"Named by {names}" + (f", {joined.step}" if joined.step else ""))
    replays = count(joined.replays, "graph launch", "graph launches")
    out.lines([f"{joined.named} of {joined.events} kernels, copies and memsets that {replays} replayed"], indented=True)
    if joined.differs:
        place, here, there = joined.differs
        other = decode_name(there).label if there else "nothing more"
        said = f"they agree in the first {place} of a launch; then the graph has {decode_name(here).label}, "
        said += f"and the other trace {other}"
        out.lines([said + "; what follows is not named"], indented=True)
    later = any(row.backward_us for row in rows)
    out.table(
        [by, "replayed", "GPU time", *["backward"] * later, "share"],
        rows,
        lambda row: [_line(row.name, style), *_times(row, joined, later)],
        every=style.everything,
        brief=MOST_ROWS,
    )

    return out


def _times(row: PlaceFacts | TimeFacts, joined: Joined, later: bool) -> list[str]:
    """How many, their time, that of the backward pass, and the share of all that is named."""
    forward_us, backward_us = row.gpu_us if isinstance(row, PlaceFacts) else row.time_us, row.backward_us or 0.0
    share = (forward_us + backward_us) / (float(joined.asked.time_us.sum()) or 1.0)
    return [str(row.launched), us(forward_us), *[us(backward_us)] * later, percent(share)]


def by_line(facts: Facts, rows: Sequence[TimeFacts], style: Style) -> Document:
    """A row for each line of Python."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(one.header(facts, style))
    on_gpu = facts.has_gpu_work
    out.section(
        "The GPU's time by line of Python (torch's own left out; backward: of its backward pass, which runs later)"
        if on_gpu
        else "The CPU's time in ops, by line of Python (torch's own left out; backward: of its backward pass)"
    )
    out.table(
        ["line", "launched" if on_gpu else "ops", "GPU time" if on_gpu else "time", "backward", "share"],
        rows,
        lambda row: [_line(row.name, style), str(row.launched), us(row.time_us), us(row.backward_us), percent(row.share)],
        every=style.everything,
        brief=MOST_ROWS,
    )
    return out


def _line(line: str, style: Style) -> str:
    return line if style.full else middle(line, LONGEST_LINE_OF_PYTHON)
