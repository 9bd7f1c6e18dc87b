"""What a change of the program would bring, by the trace: --what_if."""

from collections.abc import Sequence
import re
from typing import TYPE_CHECKING

from trace_reader.analysis.replay.plain_run import run_without_profiler
from trace_reader.analysis.trace.summarize import summarize
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.read_job import expanded, is_job, read_rank
from trace_reader.errors import TraceError
from trace_reader.link.trace import Trace
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
    from trace_reader.analysis.replay.what_if import what_if
    from trace_reader.report.what_if_report import what_if_report

    trace = load_with_progress(paths[0], steps_from)
    facts = summarize(trace, run_without_profiler(trace))
    changed = what_if(trace, facts.plain, changes)
    return Answer(lambda: what_if_report(facts, changed, style), lambda: json_output.values(changed))


def replay(path: str, *changes: str) -> "WhatIf":
    """Return what a step of a trace takes without the profiler, and what it would with these changes, as `--what_if` writes them.
    Raises TraceError, and ValueError for a change that is none.
    """
    from trace_reader.analysis.replay.what_if import parse_change, what_if

    parsed = [parse_change(change) for change in changes]
    trace = load_with_progress(str(path))
    return what_if(trace, summarize(trace, run_without_profiler(trace)).plain, parsed)


def _of_job(paths: Sequence[str], changes: "list[Change]", style: Style, steps_from: re.Pattern[str] | None) -> Answer:
    from trace_reader.analysis.jobs.job_facts import job_facts
    from trace_reader.analysis.jobs.job_what_if import job_what_if
    from trace_reader.report.what_if_report import job_what_if_report

    traces: dict[str, Trace] = {}
    keep = lambda one: traces.update({one.trace.path: one.trace})  # noqa: E731
    read = [read_rank(path, steps_from, load_with_progress, keep) for path in paths]
    if errors := [found for found in read if isinstance(found, TraceError)]:
        raise errors[0]
    job = job_facts([found for found in read if not isinstance(found, TraceError)])
    changed = job_what_if(job, [traces[summary.trace] for summary in job.summaries], changes)
    return Answer(lambda: job_what_if_report(changed, style), lambda: json_output.values(changed))
