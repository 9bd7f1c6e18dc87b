"""What a change of the program would bring, by the trace: --what_if."""

from collections.abc import Sequence
import re
from typing import TYPE_CHECKING

from trace_reader.analysis.replay.edits import AS_PLAYED, Effect, dropped
from trace_reader.analysis.replay.plain_run import MEASURED, run_without_profiler
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.summarize import summarize
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.read_job import expanded, is_job, read_rank
from trace_reader.commands.show_finding import place_called
from trace_reader.errors import TraceError
from trace_reader.findings import PATTERNS, Reading
from trace_reader.link.trace import Trace
from trace_reader.reading import examine_file
from trace_reader.report.document import Style
from trace_reader.write import Answer, json_output

if TYPE_CHECKING:
    from trace_reader.analysis.replay.what_if import Change, WhatIf


def run(paths: Sequence[str], changes: "list[Change]", style: Style, steps_from: re.Pattern[str] | None) -> Answer:
    """Return the report on the step of a trace, or of a job's ranks, with these changes made, all together. Raises TraceError and
    LookupError.
    """
    paths = expanded(paths)
    if is_job(paths):
        return _of_job(paths, changes, style, steps_from)
    if len(paths) > 1:
        raise TraceError(f"what-if is of one trace, or of the ranks of a job, got {len(paths)} traces that are none")
    from trace_reader.report.what_if_report import what_if_report

    facts, changed = _asked(paths[0], changes, steps_from)
    return Answer(lambda: what_if_report(facts, changed, style), lambda: json_output.values(changed))


def _asked(path: str, changes: "list[Change]", steps_from: re.Pattern[str] | None) -> "tuple[Facts, WhatIf]":
    """Return the facts of a trace, and what its step would take with these changes. Raises TraceError and LookupError."""
    from trace_reader.analysis.replay.what_if import NAMED, what_if

    named = [change.kind in NAMED for change in changes]
    if any(named) and not all(named):
        raise LookupError("findings and places go together, and not with other changes: ask for one kind at a time")
    if any(named):
        return _of_named(path, changes, steps_from)
    trace = load_with_progress(path, steps_from)
    facts = summarize(trace, run_without_profiler(trace))
    return facts, what_if(trace, facts.plain, changes)


def _of_named(path: str, changes: "list[Change]", steps_from: re.Pattern[str] | None) -> "tuple[Facts, WhatIf]":
    """Return the facts of a trace, and what its findings and places would save, as its report tells it. Raises TraceError, and
    LookupError: the trace does not show one of them, or it is not known what that saves.
    """
    from trace_reader.analysis.replay.what_if import RECORDED, WhatIf, gains_together

    reading = examine_file(path, load_with_progress, steps_from, everything=True)
    facts, run, plain = reading.facts, reading.run, reading.facts.plain
    found = [_named(reading, change) for change in changes]
    if run is None or not reading.can_be_asked:
        raise LookupError(f"{path}: {reading.no_places_because}")
    gain = gains_together(run, plain, [effect for effect, _ in found])[-1]
    recorded_us = plain.recorded_step_us or facts.step_period_us or 0.0
    low_us, high_us = (plain.low_us, plain.high_us) if plain.low_us and plain.high_us else (recorded_us, recorded_us)
    if plain.how == MEASURED:
        low_us = high_us = plain.step_us or recorded_us
    return facts, WhatIf(
        trace=path,
        changes=tuple(change.text for change in changes),
        matched=tuple(f"{change.text}: {seen}" for change, (_, seen) in zip(changes, found, strict=True)),
        of=plain.how if plain.low_us else RECORDED,
        recorded_step_us=recorded_us,
        plain=plain,
        changed_low_us=low_us * (1 - gain.high),
        changed_high_us=high_us * (1 - gain.low),
        gain_low=gain.low,
        gain_high=gain.high,
        in_a_job=bool(facts.collectives),
    )


def _named(reading: Reading, change: "Change") -> "tuple[Effect, str]":
    """Return what a change that the report names makes of the run, and what of it was seen. Raises LookupError."""
    path, findings = reading.facts.trace, {one.slug: one for one in reading.facts.findings}
    if change.kind == "place":
        if (asked := place_called(reading, change.name)) is None:
            raise LookupError(f"{path}: no place is called {change.name!r}, or several are; `places` lists them")
        calls = "once" if asked.place.calls == 1 else f"{asked.place.calls:g} times"
        return Effect(dropped(asked.spans), kind=AS_PLAYED), f"{asked.place.name}, {calls} per step"
    slug = change.name.replace("_", "-")
    if slug not in findings:
        raise LookupError(f"{path} does not show {slug}; it shows {', '.join(findings) or 'none'}")
    effect = reading.effect(slug)
    if effect is None:
        because = findings[slug].gain_unknown_because
        raise LookupError(f"{path}: what {slug} saves is not known{f': {because}' if because else ''}")
    return effect, findings[slug].seen


def replay(path: str, *changes: str) -> "WhatIf":
    """Return how long a step of the trace at `path` takes without the profiler, and how long it would take with these changes. A
    change is written as for `--what_if`.

    Raises TraceError if the trace cannot be read; ValueError if a text is not a change; and LookupError if a change matches
    nothing, if the changes cannot be combined, or if the trace does not allow a replay.
    """
    return _asked(str(path), [parsed_change(change) for change in changes], None)[1]


def parsed_change(text: str) -> "Change":
    """Return a change as it is written; the id of a finding is one, too. Raises ValueError, in words for the user."""
    from trace_reader.analysis.replay.what_if import parse_change

    is_id = text.strip().replace("_", "-") in PATTERNS
    return parse_change(f"finding {text.strip()}" if is_id else text)


def _of_job(paths: Sequence[str], changes: "list[Change]", style: Style, steps_from: re.Pattern[str] | None) -> Answer:
    from trace_reader.analysis.jobs.job_facts import job_facts
    from trace_reader.analysis.jobs.job_what_if import job_what_if
    from trace_reader.analysis.replay.what_if import NAMED
    from trace_reader.report.what_if_report import job_what_if_report

    if named := [change.text for change in changes if change.kind in NAMED]:
        raise LookupError(f"{named[0]!r} is of one trace: name one of the ranks'")
    traces: dict[str, Trace] = {}
    keep = lambda one: traces.update({one.trace.path: one.trace})  # noqa: E731
    read = [read_rank(path, steps_from, load_with_progress, keep) for path in paths]
    if errors := [found for found in read if isinstance(found, TraceError)]:
        raise errors[0]
    job = job_facts([found for found in read if not isinstance(found, TraceError)])
    changed = job_what_if(job, [traces[summary.trace] for summary in job.summaries], changes)
    return Answer(lambda: job_what_if_report(changed, style), lambda: json_output.values(changed))
