"""The report on two traces, and the table of several."""

from collections.abc import Sequence

from trace_reader.analysis.compare import Comparison, Row
from trace_reader.analysis.kernels import KernelFacts
from trace_reader.analysis.steps import StepFacts
from trace_reader.analysis.verdict import verdict
from trace_reader.report.document import Document, Style
from trace_reader.report.one import kernel_row, short
from trace_reader.units import count, percent, us


def comparison(c: Comparison, style: Style) -> Document:
    """Two traces side by side."""
    out = Document(style)
    out.title(f"A: {c.a.trace}", f"B: {c.b.trace}")
    out.lines([f"A: {verdict(c.a)}", f"B: {verdict(c.b)}", "", c.summary])
    out.section("Steps")
    out.table(
        ["A", "B", "CPU A", "CPU B", "GPU busy A", "GPU busy B", "kernels A", "kernels B", "launches A", "launches B"],
        c.steps,
        lambda pair: _pair_row(*pair),
        empty="neither trace has ProfilerSteps",
    )
    out.section("Kernels with the identical name in both")
    out.table(
        ["kernel", "calls A", "calls B", "median A", "median B", "change"],
        c.common,
        lambda pair: _common_row(*pair, style),
    )
    for which, kernels in (("A", c.only_a), ("B", c.only_b)):
        out.section(f"Kernels only in {which}")
        out.table(
            ["kernel", "family", "calls", "total", "median", "min", "max", "share", "op", "launch"],
            kernels,
            lambda k: kernel_row(k, style),
        )
    out.section("Ops and findings")
    out.lines(
        [
            f"ops only in A: {', '.join(c.ops_only_a) or 'none'}",
            f"ops only in B: {', '.join(c.ops_only_b) or 'none'}",
            f"findings only in A: {', '.join(c.findings_gone) or 'none'}",
            f"findings only in B: {', '.join(c.findings_new) or 'none'}",
        ]
    )
    return out


def table(rows: Sequence[Row], style: Style) -> Document:
    """Several traces, a row for each."""
    out = Document(style)
    out.title(count(len(rows), "trace"))
    out.lines(["of a recorded step: the counts of the middle one, the medians of the times"])
    out.table(
        ["trace", "kernels", "copies", "GPU busy", "CPU", "regime", "slowest kernel", "its median", "its share"],
        rows,
        lambda row: _row(row, style),
        every=True,
    )
    out.section("Findings (without those that all of the traces show)")
    for row in rows:
        out.lines([f"{row.label}: {', '.join(row.findings) or 'none'}"], indented=True)
    return out


def _row(row: Row, style: Style) -> list[str]:
    counts = ["unknown" if n is None else str(n) for n in (row.kernels, row.copies)]
    k = row.slowest
    slowest = ["none"] * 3 if k is None else [k.name if style.full else k.decoded.label, us(k.median_us), percent(k.share)]
    return [row.label, *counts, us(row.gpu_us), us(row.cpu_us), row.facts.regime, *slowest]


def _common_row(a: KernelFacts, b: KernelFacts, style: Style) -> list[str]:
    change = f"{b.median_us / a.median_us - 1:+.0%}" if a.median_us else "unknown"
    return [short(a.name, style), str(a.calls), str(b.calls), us(a.median_us), us(b.median_us), change]


def _pair_row(a: StepFacts | None, b: StepFacts | None) -> list[str]:
    def cells(step: StepFacts | None) -> list[str]:
        if step is None:
            return ["-"] * 5
        return [step.name, us(step.cpu_us), us(step.gpu_busy_us), str(step.kernels), str(step.launches)]

    return [cell for pair in zip(cells(a), cells(b), strict=True) for cell in pair]
