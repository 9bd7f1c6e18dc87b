"""The report on two traces, and the table of several."""

from collections.abc import Sequence

from trace_reader.analysis.comparison import Change, Comparison, Row
from trace_reader.analysis.step_facts import StepFacts
from trace_reader.analysis.verdict import verdict
from trace_reader.report.document import Document, Style, middle
from trace_reader.report.one import distinct_labels, label_of
from trace_reader.units import count, percent, us

MOST_NAMES = 8  # of ops in one line
LONGEST_NAME = 60


def comparison(c: Comparison, style: Style) -> Document:
    """Two traces side by side."""
    out = Document(style)
    out.title(f"A: {c.a.trace}", f"B: {c.b.trace}")
    out.lines([f"A: {verdict(c.a)}", f"B: {verdict(c.b)}", "", c.summary])
    out.section("Steps")
    head = ["A", "B", "CPU A", "CPU B", "GPU busy A", "GPU busy B"]
    more = [] if style.brief else ["kernels A", "kernels B", "launches A", "launches B"]
    out.table(
        [*head, *more],
        c.steps,
        lambda pair: _pair_row(*pair)[: len(head) + len(more)],
        empty="neither trace has ProfilerSteps",
        brief=4,
    )
    labels = distinct_labels(c.a.kernels, style), distinct_labels(c.b.kernels, style)
    head = ["kernel", "calls A", "calls B", "time A", "time B", "difference"]
    more = [] if style.brief else ["what changed"]
    out.section(f"Kernels{' of a step' * bool(c.a.steps and c.b.steps)}, by the difference in their time")
    out.table(
        [*head, *more],
        c.changes,
        lambda change: _change_row(change, labels)[: len(head) + len(more)],
        brief=12,
    )
    out.section("Ops and findings")
    most = MOST_NAMES if style.brief else None
    out.lines(
        [
            f"ops only in A: {_names(c.ops_only_a, most)}",
            f"ops only in B: {_names(c.ops_only_b, most)}",
            f"findings only in A: {', '.join(c.findings_gone) or 'none'}",
            f"findings only in B: {', '.join(c.findings_new) or 'none'}",
        ]
    )
    return out


def table(rows: Sequence[Row], style: Style) -> Document:
    """Several traces, a row for each."""
    out = Document(style)
    out.title(count(len(rows), "trace"))
    ending = _common_ending([row.label for row in rows])
    out.lines(["of a recorded step: the counts of the middle one, the medians of the times"])
    head = [f"trace (... {ending})" if ending else "trace", "kernels", "GPU busy", "CPU", "regime"]
    more = [] if style.brief else ["copies", "slowest kernel", "its median", "its share"]
    out.table(
        [*head, *more],
        rows,
        lambda row: [row.label.removesuffix(ending), *_row(row, style)][: len(head) + len(more)],
        every=True,
    )
    out.section("Findings (without those that all of the traces show)")
    for row in rows:
        out.lines([f"{row.label.removesuffix(ending)}: {', '.join(row.findings) or 'none'}"], indented=True)
    return out


def _common_ending(labels: Sequence[str]) -> str:
    """What all labels end with, from an underscore on."""
    shortest = min(labels, key=len)
    same = (n for n in range(len(shortest)) if all(label.endswith(shortest[n:]) for label in labels))
    ending = shortest[next(same, len(shortest)) :].rpartition("/")[2] if len(labels) > 1 else ""
    return ending[ending.index("_") :] if "_" in ending and ending not in labels else ""


def _row(row: Row, style: Style) -> list[str]:
    kernels, copies = ("unknown" if n is None else str(n) for n in (row.kernels, row.copies))
    k = row.slowest
    slowest = ["none"] * 3 if k is None else [label_of(k, style), us(k.median_us), percent(k.share)]
    return [kernels, us(row.gpu_us), us(row.cpu_us), row.facts.regime, copies, *slowest]


def _names(names: Sequence[str], most: int | None) -> str:
    more = len(names) - len(names[:most])
    return (", ".join(middle(name, LONGEST_NAME) for name in names[:most]) or "none") + (f" and {more} more" if more else "")


def _change_row(change: Change, labels: tuple[dict[str, str], dict[str, str]]) -> list[str]:
    both = [own[k.name] for k, own in zip((change.a, change.b), labels, strict=True) if k]
    names = both[:1] if change.matched_by == "name" else both
    what = f"only in {'B' if change.a is None else 'A'}" if not (change.a and change.b) else change.renamed or "-"
    calls = [f"{n:.0f}" if n == round(n) else f"{n:.1f}" for n in change.calls]
    sign = "+" if change.difference_us >= 0 else "-"
    return [" -> ".join(names), *calls, *map(us, change.us), f"{sign}{us(abs(change.difference_us))}", what]


def _pair_row(a: StepFacts | None, b: StepFacts | None) -> list[str]:
    def cells(step: StepFacts | None) -> list[str]:
        if step is None:
            return ["-"] * 5
        return [step.name, us(step.cpu_us), us(step.gpu_busy_us), str(step.kernels), str(step.launches)]

    return [cell for pair in zip(cells(a), cells(b), strict=True) for cell in pair]
