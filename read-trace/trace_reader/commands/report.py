"""The report on one trace, two, several, or a job; a step's dispatch tree; the tables of --by and --names.

What a report on one trace does without is imported where it is used: most runs are short.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
import re
from typing import Literal

from trace_reader.analysis.replay.plain_run import run_without_profiler
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.summarize import summarize
from trace_reader.analysis.trace.time_by_place import (
    AttributedWork,
    PlaceFacts,
    TimeFacts,
    annotation_facts,
    attribute_cpu_time,
    layer_facts,
    line_facts,
    op_facts_of,
)
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.errors import TraceError
from trace_reader.findings import Reading
from trace_reader.link.trace import Trace
from trace_reader.model.slices import Kind
from trace_reader.parse.byte_source import list_folder
from trace_reader.reading import analyze, examine_file, stacks_beside
from trace_reader.report.document import LONGEST_LINE, Style
from trace_reader.report.trace_report import trace_report
from trace_reader.system.terminal import printable, say_error, say_note
from trace_reader.write import Answer, in_json

Read = tuple[Answer | None, int]  # what there is to print, None where no trace could be read; and the exit code
PLACES: dict[str, Callable[[Trace, AttributedWork], Sequence[PlaceFacts | TimeFacts]]]
PLACES = {"annotation": annotation_facts, "layer": layer_facts, "stack": line_facts, "op": op_facts_of}


def report(
    paths: list[str],
    style: Style,
    steps_from: re.Pattern[str] | None,
    scheduler: str | None,
    log: Path | None = None,
    stacks: str | None = None,
) -> Read:
    """Return the report on these traces; the exit code is 2 if one of several cannot be read. `log`: a file in which
    torch.compile says what it compiled again; `stacks`: another recording of the program, with its functions; both of one trace.
    Raises TraceError and LookupError.
    """
    for flag, wanted in (("--recompiles", log), ("--stacks", stacks)):
        if wanted is not None and len(paths) > 1:
            raise TraceError(f"{flag} is of one trace, got {len(paths)}")
    if log is not None:
        return _with_log(read_one(paths[0], stacks, steps_from, style.everything).facts, log, style), 0
    if stacks is not None:
        return _one(read_one(paths[0], stacks, steps_from, style.everything).facts, style), 0
    if len(paths) > 1 or scheduler is not None or list_folder(paths[0]) is not None:
        from trace_reader.commands.read_job import expanded, is_job, jobs_of  # here: most runs are of one trace, and short

        named, paths = len(paths), expanded(paths, several=True)
        if scheduler is not None and len(paths) < 2:
            raise TraceError(
                f"--scheduler reads the ranks of a job, and {paths[0]} is one trace: name all of them, or their folder"
            )
        jobs = jobs_of(paths)
        if named > 1 and len(jobs) == 2 and all(map(is_job, jobs.values())) and sum(map(len, jobs.values())) == len(paths):
            return _two_jobs([*jobs.values()], style, steps_from, scheduler)
        if jobs and all(map(is_job, jobs.values())) and (len(jobs) > 1 or len(*jobs.values()) < len(paths)):
            return _listed(paths, style), 0
        if scheduler is not None or is_job(paths):
            return _job(paths, style, steps_from, scheduler)
    if len(paths) == 1:
        return _one(read_one(paths[0], None, steps_from, style.everything).facts, style), 0
    found: list[Facts] = []
    traces: list[Trace] = []  # of two, which are compared
    for path in paths:
        try:
            trace = load_with_progress(path, steps_from, stacks=len(paths) == 2)
            found.append(analyze(trace, style.everything))
            traces += [trace] if len(paths) == 2 else []
        except TraceError as error:
            say_error(error)
    code = 0 if len(found) == len(paths) else 2
    if len(found) < 2:
        return _one(found[0], style) if found else None, code
    if all(one.collectives and one.rank is None for one in found):
        say_note(
            "these traces hold collectives, and do not say of which ranks they are; name them ..._rank0.json, ..._rank1.json to "
            "read them as one job"
        )
    if len(paths) == 2:
        from trace_reader.analysis.runs.comparison import compare
        from trace_reader.analysis.runs.where_differs import where_differs
        from trace_reader.report.comparison_report import comparison_report

        compared = compare(found[0], found[1], where_differs(traces[0], traces[1]))
        return Answer(lambda: comparison_report(compared, style), in_json("comparison_json", compared)), code
    from trace_reader.analysis.runs.comparison import rows
    from trace_reader.report.comparison_report import several_report

    table = rows(found)
    return Answer(lambda: several_report(table, style), in_json("table_json", table)), code


def read_one(path: str, stacks: str | None, steps_from: re.Pattern[str] | None, everything: bool = False) -> Reading:
    """Return what is read of a trace with its recording with stacks: the one that is named, or that lies beside it."""
    return examine_file(path, load_with_progress, steps_from, everything, stacks, say_note)


def brief(path: str, steps_from: re.Pattern[str] | None, stacks: str | None = None) -> str:
    """Return the lines of --brief, as long as they are. Raises TraceError and LookupError."""
    from trace_reader.report.brief_report import brief_lines

    return "".join(f"{printable(line, LONGEST_LINE)}\n" for line in brief_lines(read_one(path, stacks, steps_from).facts))


def _one(facts: Facts, style: Style) -> Answer:
    return Answer(lambda: trace_report(facts, style), in_json("trace_json", facts))


def _with_log(facts: Facts, log: Path, style: Style) -> Answer:
    from trace_reader.analysis.trace.recompiles import recompiles

    try:
        found = recompiles(log.read_text(errors="replace"))
    except OSError as error:
        raise TraceError(f"{log}: {error.strerror}") from None
    if not found:
        raise LookupError(f"{log}: no line of it tells of a recompilation: record with TORCH_LOGS=recompiles, and keep stderr")
    return Answer(
        lambda: trace_report(facts, style, recompiled=found),
        lambda: {**in_json("trace_json", facts)(), "recompiles": in_json("values", found)()},
    )


def _job(paths: list[str], style: Style, steps_from: re.Pattern[str] | None, scheduler: str | None) -> Read:
    from trace_reader.commands.read_job import play_job
    from trace_reader.report.job_report import job_report

    facts, errors, _ = play_job(paths, steps_from, scheduler)
    for error in errors:
        say_error(error)
    return Answer(lambda: job_report(facts, style), in_json("job_json", facts)), 2 if errors else 0


def _listed(paths: list[str], style: Style) -> Answer:
    """Return what there is, where it is more than one job."""
    from trace_reader.commands.read_job import listed_jobs
    from trace_reader.report.jobs_list import jobs_list

    jobs, others = listed_jobs(paths)
    return Answer(lambda: jobs_list(jobs, others, style), lambda: {"jobs": in_json("values", jobs)(), "others": others})


def _two_jobs(jobs: list[list[str]], style: Style, steps_from: re.Pattern[str] | None, scheduler: str | None) -> Read:
    from trace_reader.analysis.jobs.job_comparison import compare_jobs
    from trace_reader.commands.read_job import play_job
    from trace_reader.report.job_comparison_report import job_comparison_report

    read = [play_job(paths, steps_from, scheduler) for paths in jobs]
    errors = [error for _, summary, _ in read for error in summary]
    for error in errors:
        say_error(error)
    compared = compare_jobs(read[0][0], read[1][0])
    answer = Answer(lambda: job_comparison_report(compared, style), in_json("job_comparison_json", compared))
    return answer, 2 if errors else 0


def chain(path: str, step: int | Literal["middle"], style: Style, steps_from: re.Pattern[str] | None) -> Answer:
    """Return the dispatch tree of ProfilerStep#`step`, or of the middle recorded one. Raises TraceError and LookupError."""
    if list_folder(path) is not None:
        from trace_reader.commands.read_job import expanded

        inside = expanded([path])
        if len(inside) > 1:
            raise TraceError(f"tree shows one trace: name one of these {len(inside)}, as {inside[0]}")
        (path,) = inside
    trace = load_with_progress(path, steps_from)
    from trace_reader.analysis.trace.dispatch_tree import dispatch_tree

    tree = dispatch_tree(trace, None if step == "middle" else step)
    facts = analyze(trace, style.everything)
    return Answer(lambda: trace_report(facts, style, tree), in_json("trace_json", facts, tree))


def by(path: str, place: str, style: Style, steps_from: re.Pattern[str] | None, time: str | None = None) -> Answer:
    """Time by annotation, layer or line of Python (`place` is one of BY). `time`: of lines "cpu" for the CPU's, in Python, too.
    Raises TraceError and LookupError.
    """
    from trace_reader.report.place_report import place_report

    if time == "cpu" and place != "stack":
        raise LookupError(
            f"--time cpu is of time --by stack and of folded: --by {place} has the CPU's time in a column of its own"
        )
    trace = load_with_progress(path, steps_from, stacks=place != "annotation")
    if place != "annotation" and not len(trace.slices.of(Kind.PYTHON)) and (beside := stacks_beside(path)):
        say_note(f"functions of Python: {beside}")
        trace = load_with_progress(beside, steps_from, stacks=True)
    facts = summarize(trace, run_without_profiler(trace))
    found: Sequence[PlaceFacts | TimeFacts]
    found = facts.annotations if place == "annotation" else layer_facts(trace) if place == "layer" else ()
    if place == "stack":
        found = line_facts(trace, attribute_cpu_time(trace) if time == "cpu" else None)
    return Answer(lambda: place_report(facts, place, found, style, time == "cpu"), in_json("places_json", facts, place, found))


def places(path: str, style: Style, steps_from: re.Pattern[str] | None, stacks: str | None = None) -> Answer:
    """Return all places of a run, by what a step saves without them. Raises TraceError, and LookupError where the run is not
    played.
    """
    reading = read_one(path, stacks, steps_from)
    facts = reading.facts
    if not facts.places:
        raise LookupError(f"{path}: no places: {'; '.join(facts.failed) or reading.no_places_because}")
    from trace_reader.report.place_report import where_report

    return Answer(lambda: where_report(facts, style), in_json("found_places_json", facts))


def names(path: str, eager_path: str, place: str | None, style: Style, steps_from: re.Pattern[str] | None) -> Answer:
    """Return what a CUDA graph replayed, named by a trace of the same step without it: by op, or by `place`. Raises TraceError
    and LookupError.
    """
    place = place or "op"
    graph, eager = load_with_progress(path, steps_from), load_with_progress(eager_path, steps_from, stacks=place == "stack")
    from trace_reader.analysis.trace.graph_names import join_names
    from trace_reader.report.place_report import names_report

    joined, facts = join_names(graph, eager), summarize(graph, run_without_profiler(graph))
    found = PLACES[place](eager, joined.asked)
    return Answer(
        lambda: names_report(facts, eager.path, joined, found, place, style),
        in_json("names_json", facts, eager.path, joined, place, found),
    )
