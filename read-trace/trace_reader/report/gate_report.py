"""What the gate says: a line for each limit, and what changed."""

from trace_reader.analysis.runs.gate import COUNTS, FINDINGS, UNKNOWN, Cause, Gate, Limit, Outcome
from trace_reader.names.kernel_names import decode_name
from trace_reader.report.document import Column, Document, Style, Table
from trace_reader.units import count, human_bytes, us

WORDS = {"fine": "no worse than the baseline", "worse": "worse than the baseline", "inconclusive": "inconclusive"}


def gate_report(gate: Gate, style: Style) -> Document:
    """Return the outcome, the limits, and the rows that changed."""
    out = Document(style)
    old, new = gate.runs
    out.title(f"{WORDS[gate.verdict]} ({count(new, 'run')} beside {count(old, 'run')})")
    if gate.unlike:
        out.lines([f"not recorded alike: {'; '.join(gate.unlike)}"])
    out.table(LIMITS, gate)
    if fresh := [slug for outcome in gate.outcomes for slug in outcome.findings]:
        out.lines(["", f"new findings: {', '.join(fresh)}"])
    if gate.verdict != "fine" and gate.causes:
        out.table(CAUSES, gate)
    if gate.verdict == "inconclusive":
        more = max(outcome.more_runs or 0 for outcome in gate.outcomes)
        out.lines(["", f"record {count(more, 'more run')} of each: the spread between runs is wider than the limit"])
    return out


def shown(limit: Limit, value: float | None) -> str:
    """Return a measure's value with its unit."""
    if value is None:
        return "-"
    if limit.measure in COUNTS:
        return f"{value:g}"
    return human_bytes(int(value)) if limit.measure == "peak_memory" else us(value)


def change(outcome: Outcome) -> str:
    """By how much a measure grew, as an interval."""
    if outcome.limit.measure == FINDINGS:
        return ", ".join(outcome.findings) or "none new"
    if outcome.low is None or outcome.high is None:
        return "-"
    if outcome.limit.measure in COUNTS or outcome.limit.amount is not None:
        low, high = (f"{'-' if value < 0 else '+'}{shown(outcome.limit, abs(value))}" for value in (outcome.low, outcome.high))
        return low if low == high else f"{low} to {high}"
    return f"{outcome.low - 1:+.1%} to {outcome.high - 1:+.1%}"


LIMITS = Table(
    "limits",
    "Limits (by how much it grew, with the noise between runs)",
    lambda gate: [one for one in gate.outcomes if one.verdict != UNKNOWN or one.new is not None],
    (
        Column("limit", lambda row, view: f"{row.limit.text}{', without the profiler' if row.plain else ''}"),
        Column("baseline", lambda row, view: shown(row.limit, row.old)),
        Column("new", lambda row, view: shown(row.limit, row.new)),
        Column("grew by", lambda row, view: f"{len(row.findings)} new" if row.findings else change(row)),
        Column("", lambda row, view: row.verdict),
    ),
    every=lambda gate: True,
)


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g} -> {pair[1]:g}" if pair[0] != pair[1] else f"{pair[0]:g}"


def called(cause: Cause) -> str:
    """Return a row's name as the report on a trace has it."""
    kind, _, name = cause.name.partition(" ")
    return decode_name(name).label if kind == "kernel" else name


CAUSES = Table(
    "causes",
    "What grew, per step",
    lambda gate: gate.causes,
    (
        Column("op, kernel or call", lambda row, view: called(row)),
        Column("calls", lambda row, view: _pair(row.calls)),
        Column("time", lambda row, view: f"{us(row.us[0])} -> {us(row.us[1])}"),
    ),
    every=lambda gate: True,
)
