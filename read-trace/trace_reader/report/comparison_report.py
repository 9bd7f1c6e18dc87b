"""The report on two traces, and the table of several."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from trace_reader.analysis.runs.comparison import Change, Comparison, Row
from trace_reader.analysis.runs.where_differs import Difference, WhereDiffers
from trace_reader.findings.verdict import verdict_sentence
from trace_reader.model.slices import ON_GPU
from trace_reader.names.kernel_names import decode_name
from trace_reader.report.document import Column, Document, Style, Table, middle
from trace_reader.report.lights import Lights, rows_named
from trace_reader.report.timeline import Timeline
from trace_reader.report.trace_report import FINDINGS_TITLE, finding_item
from trace_reader.report.trace_tables import distinct_labels, label_of, step_light
from trace_reader.units import count, percent, us

MOST_NAMES = 8  # of ops in one line
LONGEST_RENAMED = 60
MOST_REPLACED, SHORT_PLACES = 3, 5  # names of what stands beside others; places of a short report


class ComparisonView:
    """What the tables of two traces are made from."""

    def __init__(self, comparison: Comparison, style: Style):
        self.comparison, self.style = comparison, style
        self.labels = distinct_labels(comparison.a.kernels, style), distinct_labels(comparison.b.kernels, style)


def comparison_report(comparison: Comparison, style: Style, with_findings: bool = False) -> Document:
    """Return the report on two traces side by side; `with_findings`: those of each, too."""
    out, view = Document(style), ComparisonView(comparison, style)
    out.title(f"A: {comparison.a.trace}", f"B: {comparison.b.trace}")
    sentences = (verdict_sentence(comparison.a), verdict_sentence(comparison.b))
    out.section("Verdict", "verdict")
    out.lines([comparison.summary, f"A: {sentences[0]}", f"B: {sentences[1]}"])
    out.table(STEP_PAIRS, view)
    for where in comparison.where:
        times = f"{us(where.us[0])} -> {us(where.us[1])}"
        out.section(f"Where the {'GPU' if where.of_gpu else 'CPU'}'s time in a step differs: {times}", f"where_{where.of_gpu}")
        out.lines(_where_lines(where, style) or ["nowhere by much"], indented=True)
    out.table(CHANGES, view)
    out.section("Ops and findings", "differences")
    most = MOST_NAMES if style.is_short else None
    out.lines(
        [
            f"ops only in A: {_names(comparison.ops_only_a, most)}",
            f"ops only in B: {_names(comparison.ops_only_b, most)}",
            f"findings only in A: {', '.join(comparison.findings_gone) or 'none'}",
            f"findings only in B: {', '.join(comparison.findings_new) or 'none'}",
        ]
    )
    if with_findings:
        out.section(FINDINGS_TITLE.format("the critical path"), "findings")
        for number, (name, facts) in enumerate((("A", comparison.a), ("B", comparison.b))):
            for finding in facts.findings:
                out.item(finding_item(finding, name, number))
    return out


def _side(number: int, cell: Any) -> Any:
    """Return a cell of one of the two; a dash where that trace has no such row."""
    return lambda pair, view: "-" if pair[number] is None else cell(pair[number])


def _pair_lights(pair: Any, timelines: dict[int, Timeline], job: Any) -> Lights:
    lights = {number: step_light(timeline, pair[number]) for number, timeline in timelines.items()}
    return {number: light for number, light in lights.items() if light is not None}


def _change_lights(change: Change, timelines: dict[int, Timeline], job: Any) -> Lights:
    sides = (change.a, change.b)
    lights = {n: rows_named(timeline, side.name, *ON_GPU) for n, timeline in timelines.items() if (side := sides[n])}
    return {number: light for number, light in lights.items() if light is not None}


def _change_name(change: Change, view: ComparisonView) -> str:
    both = [one[k.name] for k, one in zip((change.a, change.b), view.labels, strict=True) if k]
    return " -> ".join(both[:1] if change.matched_by == "name" else both)


def _where_lines(where: WhereDiffers, style: Style) -> list[str]:
    """Return a line for each place, as many as the style shows."""
    most = style.top or (SHORT_PLACES if style.is_short else len(where.differences))
    lines = [
        f"{_place(one)}: {_signed(one.difference_us)} ({us(one.us[0])} -> {us(one.us[1])}{_calls_of(one)})"
        for one in where.differences[:most]
    ]
    left = len(where.differences) - len(lines)
    return [*lines, *([f"and {left} more ({'--all' if style.is_short else f'--top {len(where.differences)}'})"] * (left > 0))]


def _place(one: Difference) -> str:
    """Such as: forward > layer 3 > aten::mul, aten::gelu -> triton gelu+mul."""
    a, b = _some(one.a), _some(one.b)
    here = a if one.a == one.b else f"{a} -> {b}" if a and b else f"{a or b} (only in {'A' if a else 'B'})"
    return " > ".join((*one.path, here))


def _some(names: Sequence[str]) -> str:
    labels = [decode_name(name).label if name.startswith("triton_") else name for name in names[:MOST_REPLACED]]
    return ", ".join([*labels, *([f"{len(names) - MOST_REPLACED} more"] * (len(names) > MOST_REPLACED))])


def _calls_of(one: Difference) -> str:
    calls = [_calls(calls) for calls in one.calls]
    return (
        ""
        if calls == ["0", "0"]
        else f", {calls[0]} call{'s' * (calls[0] != '1')}"
        if calls[0] == calls[1]
        else f", {calls[0]} -> {calls[1]} calls"
    )


def _calls(n: float) -> str:
    return f"{n:.0f}" if n == round(n) else f"{n:.1f}"


def _difference(change: Change, view: ComparisonView) -> str:
    return _signed(change.difference_us)


def _signed(difference_us: float) -> str:
    return f"{'+' if difference_us >= 0 else '-'}{us(abs(difference_us))}"


def _what_changed(change: Change, view: ComparisonView) -> str:
    return f"only in {'B' if change.a is None else 'A'}" if not (change.a and change.b) else change.renamed or "-"


STEP_PAIRS = Table(
    key="steps",
    title="Steps",
    rows=lambda view: view.comparison.steps,
    columns=tuple(
        Column(f"{head}{' ' if head else ''}{name}", _side(number, cell), in_short=brief)
        for head, cell, brief in (
            ("", lambda step: step.name, True),
            ("CPU", lambda step: us(step.cpu_us), True),
            ("GPU busy", lambda step: us(step.gpu_busy_us), True),
            ("kernels", lambda step: str(step.kernels), False),
            ("launches", lambda step: str(step.launches), False),
        )
        for number, name in enumerate("AB")
    ),
    light=_pair_lights,
    short_rows=4,
    empty="neither trace has ProfilerSteps",
)
CHANGES = Table(
    key="kernels",
    title=lambda view: (
        f"Kernels{' per step' * bool(view.comparison.a.steps and view.comparison.b.steps)}, by the difference in their time"
    ),
    rows=lambda view: view.comparison.changes,
    columns=(
        Column("kernel", _change_name),
        Column("calls A", lambda change, view: _calls(change.calls[0])),
        Column("calls B", lambda change, view: _calls(change.calls[1])),
        Column("time A", lambda change, view: us(change.us[0])),
        Column("time B", lambda change, view: us(change.us[1])),
        Column("difference", _difference),
        Column("what changed", _what_changed, in_short=False),
    ),
    light=_change_lights,
    short_rows=12,
)


class SeveralView:
    """What the table of several traces is made from."""

    def __init__(self, rows: Sequence[Row], style: Style):
        self.rows, self.style = rows, style

    @cached_property
    def ending(self) -> str:
        """What all labels end with, from an underscore on."""
        labels = [row.label for row in self.rows]
        shortest = min(labels, key=len)
        same = (n for n in range(len(shortest)) if all(label.endswith(shortest[n:]) for label in labels))
        ending = shortest[next(same, len(shortest)) :].rpartition("/")[2] if len(labels) > 1 else ""
        return ending[ending.index("_") :] if "_" in ending and ending not in labels else ""


def _slowest(cell: Any) -> Any:
    return lambda row, view: "none" if row.slowest is None else cell(row.slowest, view)


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


SEVERAL = Table(
    key="rows",
    title="Traces",
    rows=lambda view: view.rows,
    columns=(
        Column(
            lambda view: f"trace (... {view.ending})" if view.ending else "trace",
            lambda row, view: row.label.removesuffix(view.ending),
        ),
        Column("kernels", lambda row, view: _or_unknown(row.kernels)),
        Column("GPU busy", lambda row, view: us(row.gpu_us)),
        Column("CPU", lambda row, view: us(row.cpu_us)),
        Column("verdict", lambda row, view: row.facts.verdict),
        Column("copies", lambda row, view: _or_unknown(row.copies), in_short=False),
        Column("slowest kernel", _slowest(lambda k, view: label_of(k, view.style)), in_short=False),
        Column("its median", _slowest(lambda k, view: us(k.median_us)), in_short=False),
        Column("its share", _slowest(lambda k, view: percent(k.share)), in_short=False),
    ),
    every=lambda view: view.style.top is None,
)


def several_report(rows: Sequence[Row], style: Style) -> Document:
    """Return the report on several traces, a row for each."""
    out, view = Document(style), SeveralView(rows, style)
    out.title(count(len(rows), "trace"))
    out.lines(["Per step: counts from the middle step, median times."])
    out.rows(SEVERAL, view)
    out.section("Findings (without those that all of the traces show)", "findings")
    for row in rows:
        out.lines([f"{row.label.removesuffix(view.ending)}: {', '.join(row.findings) or 'none'}"], indented=True)
    return out


def _names(names: Sequence[str], most: int | None) -> str:
    more = len(names) - len(names[:most])
    return (", ".join(middle(name, LONGEST_RENAMED) for name in names[:most]) or "none") + (f" and {more} more" if more else "")
