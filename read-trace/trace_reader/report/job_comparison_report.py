"""The report on two jobs beside each other."""

from trace_reader.analysis.jobs.job_comparison import JobComparison
from trace_reader.report.document import Column, Document, Style, Table
from trace_reader.report.job_report import job_sentence
from trace_reader.units import count, percent, us

ROWS = {
    "step_us": "a step, of the slowest rank", "compute_us": "compute", "exposed_communication_us": "exposed communication",
    "exposed_waiting_us": "of it waiting for other ranks", "idle_us": "idle",
}  # fmt: skip
STEP = Table(
    key="job_steps",
    title="A step, recorded (the mean of those after the first; below the first row, medians over the ranks)",
    rows=lambda c: list(ROWS),
    columns=(
        Column("", lambda key, c: ROWS[key]),
        Column("A", lambda key, c: us(getattr(c.step_a, key))),
        Column("B", lambda key, c: us(getattr(c.step_b, key))),
        Column("change", lambda key, c: _change(getattr(c.step_a, key), getattr(c.step_b, key))),
    ),
    short_rows=len(ROWS),
)


def job_comparison_report(c: JobComparison, style: Style) -> Document:
    """Return the report on two jobs: what a step takes in each, how B scales, and what each waits for."""
    out = Document(style)
    names = [f"{name}: {count(len(job.ranks), 'rank')}, {job.ranks[0].trace} ..." for name, job in (("A", c.a), ("B", c.b))]
    out.title(*names)
    out.section("Verdict", "verdict")
    out.lines([_sentence(c), f"A: {job_sentence(c.a)}", f"B: {job_sentence(c.b)}"])
    out.table(STEP, c)
    return out


def _sentence(c: JobComparison) -> str:
    a, b = c.step_a, c.step_b
    step = f"a recorded step takes {us(a.step_us)} on {count(a.ranks, 'rank')}, {us(b.step_us)} on {count(b.ranks, 'rank')}"
    if c.weak_efficiency is None or c.strong_efficiency is None:
        return f"{step} ({_change(a.step_us, b.step_us)}; of one recording each)"
    weak = f"where a rank has the same work in both, the scaling efficiency is {percent(c.weak_efficiency)}"
    return f"{step}; {weak}; where all ranks share it, {percent(c.strong_efficiency)}"


def _change(before: float, after: float) -> str:
    return f"{after / before - 1:+.0%}" if before else "unknown"
