"""`--brief`: what scripts and agents need of a trace, in twenty lines at most, none of them wrapped."""

from trace_reader.analysis.trace.facts import WORTH_A_CHANGE, Facts, Finding
from trace_reader.findings import PATTERNS
from trace_reader.findings.verdict import cpu_lines, health_lines, plain_sentence, verdict_sentence
from trace_reader.report.trace_report import NAMING, device_name, gain_words, recorded_with, work_per_step
from trace_reader.report.trace_tables import place_name, saved
from trace_reader.units import about, us

MOST_CHANGES = 3
LONGEST_PLACE = 80  # characters
NO_PERIOD = "step: unknown (no step was recorded)"


def brief_lines(facts: Facts) -> list[str]:
    """Return the verdict, the step recorded and without the profiler, and the changes that save most, by the id of their
    finding.
    """
    lines = [f"trace: {facts.trace}", f"device: {device_name(facts)}", *verdict_lines(facts)]
    if facts.plain.unknown_because:
        lines.append(f"plain step: not known: {facts.plain.unknown_because}")
    elif plain := plain_sentence(facts):
        lines.append(f"plain step: {plain}")
    if facts.stacks_from:
        lines.append(f"stacks: {facts.stacks_from}")
    return [*lines, *change_lines(facts)]


def verdict_lines(facts: Facts) -> list[str]:
    """Return the verdict, what is wrong with the recording, and the recorded step."""
    step = f"step: {us(facts.step_period_us)} recorded" if facts.step_period_us else NO_PERIOD
    return [f"verdict: {verdict_sentence(facts)}", *health_lines(facts), step]


def change_lines(facts: Facts) -> list[str]:
    """Return what a step runs, the changes that save most, and the places."""
    lines = [f"lines: {cpu_lines(facts)}"] if facts.cpu_lines else []
    lines.append(work_per_step(facts))
    if with_ := recorded_with(facts):
        lines.append(with_)
    shown = changes(facts)[:MOST_CHANGES]
    for number, finding in enumerate(shown, 1):
        gain = gain_words(finding)
        worth = f"saves {gain}" if gain else f"{about(finding.share or 0.0)} of the path"
        lines += [f"{number}. {finding.slug} ({worth}): {finding.seen}", f"   next: {finding.next}"]
    if not shown:
        lines.append("no finding that names a change")
    if facts.places:
        told = (f"{place_name(one, LONGEST_PLACE).splitlines()[0]} {saved(one.gone)}" for one in facts.places[:MOST_CHANGES])
        lines.append(f"places, and what a step saves without them: {'; '.join(told)}")
    rest = [one.slug for one in facts.findings if one not in shown and one.slug in PATTERNS]
    lines.append(f"also: {', '.join(rest) or 'nothing'}")
    if facts.failed:
        lines.append(f"failed: {', '.join(facts.failed)}")
    return lines


def changes(facts: Facts) -> list[Finding]:
    """Return the findings that name a change, the best first."""
    return [one for one in facts.findings if _names_a_change(one, facts)]


def _names_a_change(finding: Finding, facts: Facts) -> bool:
    """Return whether doing what it says may save something that shows."""
    if finding.is_worthless or (finding.slug == facts.verdict and finding.slug not in NAMING):
        return False
    return bool(gain_words(finding)) or (finding.gain is None and (finding.share or 0.0) >= WORTH_A_CHANGE)
