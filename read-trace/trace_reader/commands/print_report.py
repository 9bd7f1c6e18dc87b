"""The report: on one trace, on two side by side, or a table of several."""

from collections.abc import Callable, Sequence
import re

from trace_reader.analysis.comparison import compare, rows
from trace_reader.analysis.dispatch_tree import Node, dispatch_tree
from trace_reader.analysis.facts import Facts, summarize
from trace_reader.analysis.graph_names import join_names
from trace_reader.analysis.place_facts import Asked, PlaceFacts, TimeFacts, annotation_facts, layer_facts, line_facts, op_facts_of
from trace_reader.commands.load_shown import load_shown
from trace_reader.errors import TraceError
from trace_reader.link.trace import Trace
from trace_reader.parse.byte_source import list_folder
from trace_reader.reading import analyze
from trace_reader.report import Answer, json, one, places, several
from trace_reader.report.document import Style
from trace_reader.system.terminal import say_error

BY = ("annotation", "layer", "stack")


def run(
    paths: list[str],
    style: Style,
    step: int | None,
    steps_from: re.Pattern[str] | None = None,
    by: str | None = None,
    names: str | None = None,
    scheduler: str | None = None,
) -> tuple[Answer | None, int]:
    """What there is to tell, and the exit code: 2 if a trace of several cannot be read; None if none can.

    `step`: the dispatch tree of this step instead of the report, -1 for the one in the middle; `steps_from`: the annotations
    that are the steps; `by`: one of BY, whose table is told instead; `names`: a trace that names what graphs replay;
    `scheduler`: the Dask cluster that reads a job's ranks. Raises TraceError and LookupError.
    """
    if names is not None:
        return _by_names(
            load_shown(paths[0], steps_from), load_shown(names, steps_from, stacks=by == "stack"), by or "op", style
        ), 0
    if by is not None:
        return _by(load_shown(paths[0], steps_from, stacks=by != "annotation"), by, style), 0
    if len(paths) > 1 or scheduler is not None or list_folder(paths[0]) is not None:
        from trace_reader.commands.read_job import expanded, is_job  # what only these need: most runs are of one trace, and short

        paths = expanded(paths)
        if step is not None and len(paths) > 1:
            raise TraceError(f"--chain shows one trace: name one of these {len(paths)}, as {paths[0]}")
        if scheduler is not None or is_job(paths):
            return _job(paths, style, steps_from, scheduler)
    if len(paths) == 1:
        trace = load_shown(paths[0], steps_from)
        tree = None if step is None else dispatch_tree(trace, None if step == -1 else step)
        return _one(analyze(trace, style.everything), style, tree), 0
    found: list[Facts] = []
    for path in paths:
        try:
            found.append(analyze(load_shown(path, steps_from), style.everything))
        except TraceError as error:
            say_error(error)
    code = 0 if len(found) == len(paths) else 2
    if not found:
        return None, code
    if len(found) == 1:
        return _one(found[0], style, None), code
    if len(paths) == 2:
        compared = compare(*found)
        return Answer(lambda: several.comparison(compared, style), lambda: json.comparison_json(compared)), code
    table = rows(found)
    return Answer(lambda: several.table(table, style), lambda: json.table_json(table)), code


def _job(paths: list[str], style: Style, steps_from: re.Pattern[str] | None, scheduler: str | None) -> tuple[Answer, int]:
    from trace_reader.commands.read_job import read_job
    from trace_reader.report.job import report

    facts, errors = read_job(paths, steps_from, scheduler)
    for error in errors:
        say_error(error)
    return Answer(lambda: report(facts, style), lambda: json.job_json(facts)), 2 if errors else 0


def _by(trace: Trace, by: str, style: Style) -> Answer:
    facts = summarize(trace)
    if by == "stack":
        lines = line_facts(trace)
        return Answer(lambda: places.by_line(facts, lines, style), lambda: json.places_json(facts, by, lines))
    found = facts.annotations if by == "annotation" else layer_facts(trace)
    return Answer(lambda: places.by_place(facts, by, found, style), lambda: json.places_json(facts, by, found))


def _by_names(graph: Trace, eager: Trace, by: str, style: Style) -> Answer:
    joined, facts = join_names(graph, eager), summarize(graph)
    told: dict[str, Callable[[Trace, Asked], Sequence[PlaceFacts | TimeFacts]]]
    told = {"annotation": annotation_facts, "layer": layer_facts, "stack": line_facts, "op": op_facts_of}
    rows = told[by](eager, joined.asked)
    return Answer(
        lambda: places.by_names(facts, eager.path, joined, rows, by, style),
        lambda: json.names_json(facts, eager.path, joined, by, rows),
    )


def _one(facts: Facts, style: Style, tree: Node | None) -> Answer:
    return Answer(lambda: one.report(facts, style, tree), lambda: json.to_json(facts, tree))
