"""An attempt at a program: its step, what is advised, and what it brought beside the one before; the table of all of them."""

from collections.abc import Sequence

import msgspec
from trace_reader.analysis.runs.attempts import NOT_TOLD, Attempt, Outcome
from trace_reader.analysis.runs.gate import ONE_RUN
from trace_reader.report.document import Column, Document, Style, Table
from trace_reader.units import about, count, us

LONG_PAUSES = 2  # times as long as all that is timed: then a step may be something else


def attempt_lines(attempt: Attempt) -> list[str]:
    """Return what was run, what a step is and takes, and on what."""
    ranks = f" on each of {attempt.ranks} ranks, the slowest told" if attempt.ranks > 1 else ""
    low, high = us(min(attempt.times_us)), us(max(attempt.times_us))
    spread = f"{low} to {high}; {attempt.steps} steps in {count(len(attempt.times_us), 'stretch', 'stretches')}"
    if attempt.pauses_us:
        pauses = count(len(attempt.pauses_us), "pause")
        spread += f"; without {pauses} between steps, {us(max(attempt.pauses_us))} at most: an evaluation, or a busy machine"
    if attempt.is_noisy:
        spread += "; they differ by more than twice: something else may come between some steps"
    busy = f"; busy beside it: {attempt.busy}" if attempt.busy else ""
    lines = [
        f"attempt {attempt.name}: {' '.join(attempt.command)}",
        f"a step: {attempt.step}{ranks}",
        f"without the profiler: {us(attempt.step_us)} ({spread})",
        f"on: {attempt.device}, torch {attempt.torch}, {count(attempt.threads, 'thread')}{busy}",
    ]
    times = sum(attempt.pauses_us) / max(attempt.step_us * attempt.steps, 1e-9)
    if times > LONG_PAUSES:
        what = f"these pauses are {times:.0f} times as long as the steps: is the machine busy, or a step something else?"
        lines.append(f"{what} read-trace try --step FUNCTION, before the program's name, says which")
    return lines


def outcome_lines(outcome: Outcome, before: Attempt, in_turns: int = 0) -> list[str]:
    """Return what an attempt brought, and whether that is what was promised. `in_turns`: how many processes of each ran."""
    names = f"{outcome.before:03} -> {outcome.after:03}"
    how = f", {in_turns} processes of each, in turns" if in_turns else ""
    steps = f"{names}: {us(outcome.before_us)} -> {us(outcome.after_us)}"
    if outcome.is_noisy:
        what = "run" if in_turns else "stretch"
        times = f"{outcome.spread:.2g}" if outcome.spread < 100 else f"{outcome.spread:,.0f}"
        why = f"the longest {what} of one takes {times} times as long as its shortest. Try again when nothing else "
        why += "runs, or with fewer threads"
        lines = [f"{steps}: inconclusive{how}; {why}"]
    elif not outcome.is_clear:
        lines = [f"{steps}: inconclusive, no difference beyond the spread ({_range(outcome.low, outcome.high)}){how}"]
    else:
        word = "less" if outcome.saved > 0 else "more"
        lines = [f"{steps}, {about(abs(outcome.saved))} {word} ({_range(outcome.low, outcome.high)}{how})"]
    if outcome.other_arguments:
        return [*lines, "tried with other arguments: no promise is judged"]
    if outcome.other_terms:
        return [*lines, f"tried on other terms ({', '.join(outcome.other_terms)}): no promise is judged"]
    if outcome.unchanged:
        is_more = outcome.is_clear and abs(outcome.saved) >= ONE_RUN
        why = "something that it reads has, or the machine" if is_more else "two runs differ by so much"
        return [*lines, f"none of the program's own Python files changed, nor its arguments: {why}"]
    if outcome.is_noisy:
        return lines
    if not in_turns and (abs(outcome.saved) < ONE_RUN or not outcome.is_clear):
        lines.append(f"two processes may differ by so much: --against {outcome.before} runs both in turns")
    for number in outcome.done:
        one = before.advice[number - 1]
        promised = f", which was to save {_range(one.low, one.high)}" if one.low is not None else ""
        lines.append(f"no longer shown: #{number} {one.slug}{promised}")
    if outcome.kept != NOT_TOLD:
        several = "together " if len(outcome.promised_by) > 1 else ""
        lines.append(f"the promise ({several}{_range(outcome.promised_low, outcome.promised_high)}): {outcome.kept}")
    return lines


def log_report(attempts: Sequence[Attempt], outcomes: Sequence[Outcome], style: Style) -> Document:
    """Return all attempts, a row for each, with what each brought beside the one before it of the same program."""
    out = Document(style)
    out.title(count(len(attempts), "attempt"))
    found = {one.after: one for one in outcomes}
    out.rows(LOG, [AttemptRow(one, found.get(one.number)) for one in attempts])
    return out


class AttemptRow(msgspec.Struct, frozen=True):
    """An attempt, and what it brought; None where there is none before it."""

    attempt: Attempt
    outcome: Outcome | None


def _range(low: float | None, high: float | None) -> str:
    """Return "47% to 50%", of which what is below 0 is longer."""
    if low is None or high is None:
        return "not known"
    if high < 0:  # longer
        low, high = -high, -low
    return f"{about(low)} to {about(high)}"


def _brought(row: AttemptRow) -> str:
    found = row.outcome
    if found is None or not found.is_clear:
        return "-" if found is None else "inconclusive"
    return f"{_range(found.low, found.high)} {'less' if found.saved > 0 else 'more'}"


def _beside(row: AttemptRow) -> str:
    found = row.outcome
    return "-" if found is None else f"{found.before:03}{', in turns' if found.in_turns else ''}"


def _promised(row: AttemptRow) -> str:
    found = row.outcome
    if found is None:
        return "-"
    if found.other_arguments or found.other_terms:
        return "other arguments" if found.other_arguments else "other terms"
    return "same files" if found.unchanged else found.kept if found.kept != NOT_TOLD else "-"


LOG = Table(
    key="attempts",
    title="",
    rows=lambda rows: rows,
    columns=(
        Column("attempt", lambda row, view: row.attempt.name),
        Column("step", lambda row, view: us(row.attempt.step_us)),
        Column("spread", lambda row, view: f"{us(min(row.attempt.times_us))} to {us(max(row.attempt.times_us))}"),
        Column("beside", lambda row, view: _beside(row)),
        Column("change", lambda row, view: _brought(row)),
        Column("promise", lambda row, view: _promised(row)),
        Column("a step is", lambda row, view: row.attempt.step),
        Column("command", lambda row, view: " ".join(row.attempt.command)),
    ),
    every=lambda rows: True,
)
