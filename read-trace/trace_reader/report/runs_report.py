"""The table of runs: a row for each, with the time of its step."""

from collections.abc import Sequence

import msgspec
from trace_reader.analysis.replay.plain_run import MEASURED, PlainRun
from trace_reader.analysis.runs.run_measures import RunMeasures
from trace_reader.analysis.trace.utilization import Utilization
from trace_reader.report.document import Column, Document, Style, Table
from trace_reader.units import about, count, human_bytes, us


class Base(msgspec.Struct, frozen=True):
    """The step of the runs that others are beside (us): as recorded, and without the profiler where all of them measured that."""

    recorded_us: float | None
    plain_us: float | None


class RunRow(msgspec.Struct, frozen=True):
    """A run: what is measured of it, and its recorded steps from the end of one to the end of the next (median, least and most,
    in us).
    """

    name: str
    measures: RunMeasures
    recorded_us: float | None
    low_us: float | None
    high_us: float | None
    plain: PlainRun
    verdict: str
    steps: int
    mfu: Utilization | None = None
    base: Base = Base(None, None)

    @property
    def change(self) -> float | None:
        """How much longer its step is than the baseline's, as a share of that: without the profiler, where both are measured."""
        for own_us, base_us in (
            (self.measures.plain_step, self.base.plain_us), (self.measures.step, self.base.recorded_us)
        ):  # fmt: skip
            if own_us is not None and base_us:
                return own_us / base_us - 1
        return None


def runs_report(rows: Sequence[RunRow], style: Style) -> Document:
    """Return the runs, a row for each."""
    out = Document(style)
    out.title(count(len(rows), "run"))
    out.lines(["A step, recorded: the median, and the spread of its steps. plain: without the profiler (~ estimated)."])
    out.rows(RUNS, rows)
    return out


def _spread(row: RunRow) -> str:
    """From the shortest step to the longest, as a share of the median."""
    if not row.recorded_us or row.low_us is None or row.high_us is None or row.low_us == row.high_us:
        return "-"
    return about((row.high_us - row.low_us) / row.recorded_us)


def plain_words(row: RunRow) -> str:
    """Return the step without the profiler; ~ where it is estimated."""
    if row.plain.step_us is None:
        return "unknown"
    return f"{'' if row.plain.how == MEASURED else '~'}{us(row.plain.step_us)}"


RUNS = Table(
    key="runs",
    title="Runs",
    rows=lambda rows: rows,
    columns=(
        Column("run", lambda row, rows: row.name),
        Column("recorded", lambda row, rows: us(row.recorded_us)),
        Column("spread", lambda row, rows: _spread(row)),
        Column("plain", lambda row, rows: plain_words(row)),
        Column(
            "to baseline",
            lambda row, rows: "-" if row.change is None else f"{row.change:+.1%}",
            shown=lambda rows: any(row.base.recorded_us for row in rows),
        ),
        Column(
            "GPU busy",
            lambda row, rows: us(row.measures.gpu),
            shown=lambda rows: any(row.measures.gpu is not None for row in rows),
        ),
        Column(
            "peak memory",
            lambda row, rows: "-" if row.measures.peak_memory is None else human_bytes(row.measures.peak_memory),
            shown=lambda rows: any(row.measures.peak_memory is not None for row in rows),
        ),
        Column(
            "MFU",
            lambda row, rows: "-" if row.mfu is None else f"{about(row.mfu.low)} to {about(row.mfu.high)}",
            shown=lambda rows: any(row.mfu is not None for row in rows),
        ),
        Column("verdict", lambda row, rows: row.verdict),
    ),
    every=lambda rows: True,
)
