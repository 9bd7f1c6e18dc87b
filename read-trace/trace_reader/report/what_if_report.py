"""What a change would bring, in words: the report of --what_if."""

from trace_reader.analysis.jobs.job_what_if import JobWhatIf
from trace_reader.analysis.replay.plain_run import ESTIMATED, MEASURED
from trace_reader.analysis.replay.what_if import WhatIf, parse_change
from trace_reader.analysis.trace.facts import Facts
from trace_reader.report.document import Document, Style
from trace_reader.report.trace_report import header
from trace_reader.units import count, us

SMALLEST_GAIN = 0.005  # that is not nothing


def what_if_report(facts: Facts, changed: WhatIf, style: Style) -> Document:
    """Return the step as recorded, without the profiler, and with the changes made."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(header(facts, style))
    out.section(f"What if: {', '.join(changed.changes)}", "what_if")
    lines = _lines(changed)
    if changed.in_a_job:
        lines.append("one rank of a job: its collectives last as long as recorded here, though the other ranks may change that")
    out.lines(lines, indented=True)
    return out


def job_what_if_report(changed: JobWhatIf, style: Style) -> Document:
    """A step of a job as recorded, without the profiler, and with the changes made."""
    out = Document(style)
    out.title(*changed.traces)
    out.lines([f"{len(changed.ranks)} ranks, held together by {count(changed.collectives, 'collective')}"])
    out.section(f"What if: {', '.join(changed.changes)}", "what_if")
    out.lines(_lines(changed), indented=True)
    return out


def _lines(changed: WhatIf | JobWhatIf) -> list[str]:
    lines = [*changed.matched, f"recorded: a step takes {us(changed.recorded_step_us)}"]
    if changed.of == MEASURED:
        lines.append(f"without the profiler: {us(changed.plain.step_us)}, measured")
    elif changed.of == ESTIMATED:
        lines.append(f"without the profiler: {us(changed.plain.low_us)} to {us(changed.plain.high_us)}, estimated")
    else:
        known = f"{us(changed.plain.step_us)} measured, which the replay does not reach" if changed.plain.step_us else "unknown"
        lines.append(f"without the profiler: {known}; what follows is computed from the recorded step")
    lines.append(f"changed: {_between(us(changed.changed_low_us), us(changed.changed_high_us))}, which {_gain(changed)}")
    if isinstance(changed, JobWhatIf) and changed.latency_us is not None:
        latency = (
            f"a latency of up to {us(changed.latency_us)}" if changed.latency_us else "no latency: no small message tells it"
        )
        lines.append(f"a model: each rank does what it does here, and each step of a ring has the recorded rate, and {latency}")
    if any(parse_change(text).factor > 1 for text in changed.changes) or (
        isinstance(changed, JobWhatIf) and changed.latency_us is not None
    ):
        lines.append("a lower limit: work that did not wait in the recording may have to wait for the longer kernels")
    return lines


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _gain(changed: WhatIf | JobWhatIf) -> str:
    """Return how much of a step is saved, or lost."""
    step = "the recorded step" if changed.of not in (MEASURED, ESTIMATED) else "a step"
    low, high = changed.gain_low, changed.gain_high
    if max(-low, high) < SMALLEST_GAIN:
        return f"saves nothing of {step}"
    if low <= -SMALLEST_GAIN and high >= SMALLEST_GAIN:
        return f"is between {-low:.0%} longer and {high:.0%} shorter than {step}"
    if high < SMALLEST_GAIN:
        return f"makes {step} {_between(f'{abs(min(high, 0.0)):.0%}', f'{-low:.0%}')} longer"
    return f"saves {_between(f'{max(low, 0.0):.0%}', f'{high:.0%}')} of {step}"
