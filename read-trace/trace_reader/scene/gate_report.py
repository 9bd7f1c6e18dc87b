"""What the gate says: a line for each limit, and what changed."""

from trace_reader.analysis.gate import COUNTS, FINDINGS, Cause, Gate, Limit, Outcome
from trace_reader.names.kernel_names import decode_name
from trace_reader.scene.document import Column, Document, Style, Table
from trace_reader.units import count, human_bytes, us

WORDS = {"fine": "no worse than the baseline", "worse": "worse than the baseline", "inconclusive": "inconclusive"}


def gate_report(gate: Gate, style: Style) -> Document:
    """The outcome, the limits, and the rows that changed."""
    out = Document(style)
    old, new = gate.runs
    out.title(f"{WORDS[gate.verdict]} ({count(new, 'run')} beside {count(old, 'run')})")
    out.table(LIMITS, gate)
    if fresh := [slug for own in gate.outcomes for slug in own.findings]:
        out.lines(["", f"new findings: {', '.join(fresh)}"])
    if gate.verdict != "fine" and gate.causes:
        out.table(CAUSES, gate)
    if gate.verdict == "inconclusive":
        more = max(own.more_runs or 0 for own in gate.outcomes)
        out.lines(["", f"record {count(more, 'more run')} of each: the spread between runs is wider than the limit"])
    return out


def shown(limit: Limit, value: float | None) -> str:
    """A measure's value with its unit."""
    if value is None:
        return "-"
    if limit.measure in COUNTS:
        return f"{value:g}"
    return human_bytes(int(value)) if limit.measure == "peak_memory" else us(value)


def change(own: Outcome) -> str:
    """By how much a measure grew, as an interval."""
    if own.limit.measure == FINDINGS:
        return ", ".join(own.findings) or "none new"
    if own.low is None or own.high is None:
        return "-"
    if own.limit.measure in COUNTS or own.limit.amount is not None:
        return f"{own.low:+g}" if own.low == own.high else f"{own.low:+g} to {own.high:+g}"
    return f"{own.low - 1:+.1%} to {own.high - 1:+.1%}"


LIMITS = Table(
    "limits",
    "Limits (by how much it grew, with the noise between runs)",
    lambda gate: gate.outcomes,
    (
        Column("limit", lambda own, view: f"{own.limit.text}{', without the profiler' if own.plain else ''}"),
        Column("baseline", lambda own, view: shown(own.limit, own.old)),
        Column("new", lambda own, view: shown(own.limit, own.new)),
        Column("grew by", lambda own, view: f"{len(own.findings)} new" if own.findings else change(own)),
        Column("", lambda own, view: own.verdict),
    ),
    every=lambda gate: True,
)


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g} -> {pair[1]:g}" if pair[0] != pair[1] else f"{pair[0]:g}"


def called(own: Cause) -> str:
    """A row's name as the report on a trace has it."""
    kind, _, name = own.name.partition(" ")
    return decode_name(name).label if kind == "kernel" else name


CAUSES = Table(
    "causes",
    "What grew, per step",
    lambda gate: gate.causes,
    (
        Column("op, kernel or call", lambda own, view: called(own)),
        Column("calls", lambda own, view: _pair(own.calls)),
        Column("time", lambda own, view: f"{us(own.us[0])} -> {us(own.us[1])}"),
    ),
    every=lambda gate: True,
)
