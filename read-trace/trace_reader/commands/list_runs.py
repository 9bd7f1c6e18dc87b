"""`read-trace runs`: many runs beside each other, each with the time of its step, and how far steps differ."""

import argparse
from collections.abc import Callable, Sequence
import csv
import io
from pathlib import Path
import re
import statistics
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.runs.gate import are_plain
from trace_reader.analysis.runs.run_measures import RunMeasures, measures, of_job, steps_us
from trace_reader.analysis.trace.utilization import utilization
from trace_reader.commands.check import runs_of
from trace_reader.commands.flags import add_forms, add_steps_from, add_traces
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.read_job import expanded, jobs_of
from trace_reader.errors import TraceError
from trace_reader.reading import analyze
from trace_reader.report.document import Style
from trace_reader.report.runs_report import Base, RunRow, runs_report
from trace_reader.system.files import write_file
from trace_reader.system.terminal import say_error
from trace_reader.units import count, natural
from trace_reader.write import OUTPUTS, TEXT, Answer

RUNS = """\
A table of runs: the time of a step, recorded and without the profiler, how far the steps of a run differ, and what limits it.

    read-trace runs sweep/*.json
    read-trace runs sweep/*.json --baseline base.json --sort step --csv runs.csv

The ranks of a job are one run, shown by its slowest rank. If a file cannot be read, the exit code is 2; the others are listed.
"""
BY: dict[str, Callable[[RunRow], Any]] = {  # what to sort by: its value in a row
    "name": lambda one: natural(one.name),
    "step": lambda one: one.measures.plain_step or one.measures.step,
    "recorded": lambda one: one.recorded_us,
    "gpu": lambda one: one.measures.gpu,
    "kernels": lambda one: one.measures.kernels,
    "peak_memory": lambda one: one.measures.peak_memory,
}


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError, NotWrittenError."""
    rows, failed = _rows(args.traces, args.steps_from)
    if args.baseline:
        base = _base(runs_of(args.baseline, args.steps_from))
        rows = [msgspec.structs.replace(row, base=base) for row in rows]
    rows.sort(key=BY["name"])
    if args.sort != "name":  # the largest first; what is not known at the end
        rows.sort(key=lambda one: -value if (value := BY[args.sort](one)) is not None else np.inf)
    if args.csv is not None:
        write_file(args.csv, _csv(rows).encode())
        return f"wrote {args.csv}: {count(len(rows), 'run')}\n", failed
    answer = Answer(lambda: runs_report(rows, Style()), lambda: {"runs": [_values(row) for row in rows]})
    return (OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT).write(answer), failed


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = RUNS
    add_traces(parser, "traces, folders of them, ranks of jobs", several=True)
    base = "traces or a baseline's file: also show how much longer or shorter a step is than their median"
    parser.add_argument("--baseline", nargs="+", metavar="OLD", help=base)
    parser.add_argument("--sort", choices=BY, default="name", help="what to sort by, largest first; names: step5 before step10")
    add_steps_from(parser)
    form = add_forms(parser)
    form.add_argument("--csv", type=Path, metavar="FILE", help="write a table for a spreadsheet, times in us")


def _base(old: Sequence[RunMeasures]) -> Base:
    """Return the medians of the baseline's runs."""
    recorded_us = [one.step for one in old if one.step is not None]
    plain_us = [one.plain_step for one in old if one.plain_step is not None]
    return Base(
        statistics.median(recorded_us) if recorded_us else None, statistics.median(plain_us) if old and are_plain(old) else None
    )


def _rows(paths: Sequence[str], steps_from: re.Pattern[str] | None) -> tuple[list[RunRow], int]:
    """Return a row for each run that can be read, and the exit code. Raises TraceError: none can."""
    paths = expanded(list(paths), several=True)
    jobs = jobs_of(paths)
    in_jobs = {path for ranks in jobs.values() for path in ranks}
    groups = {**jobs, **{path: [path] for path in paths if path not in in_jobs}}
    found = []
    for name, ranks in groups.items():
        try:
            found.append(run_row(name, ranks, steps_from))
        except (TraceError, LookupError) as error:
            say_error(error)
    if not found:
        raise TraceError("none of them could be read")
    names = _short([one.name for one in found])
    found = [msgspec.structs.replace(one, name=name) for one, name in zip(found, names, strict=True)]
    return found, 0 if len(found) == len(groups) else 2


def run_row(name: str, ranks: Sequence[str], steps_from: re.Pattern[str] | None = None) -> RunRow:
    """Return one run; of a job, its slowest rank's steps."""
    each: list[tuple[RunMeasures, RunRow]] = []
    for path in ranks:
        trace = load_with_progress(path, steps_from)
        facts = analyze(trace)
        times_us = steps_us(facts)
        middle, low, high = (statistics.median(times_us), min(times_us), max(times_us)) if times_us else (None, None, None)
        item = measures(facts)
        mfu = utilization(facts)
        each.append((item, RunRow(name, item, middle, low, high, facts.plain, facts.verdict, len(facts.steps), mfu)))
    _, slowest = max(each, key=lambda pair: pair[0].step or 0.0)
    return msgspec.structs.replace(slowest, measures=of_job([one for one, _ in each]))


def _short(names: Sequence[str]) -> list[str]:
    """Return the names without the folder that they share, and without their ending."""
    parts = [Path(name).parts for name in names]
    same = 0
    while all(len(part) > same + 1 for part in parts) and len({part[same] for part in parts}) == 1:
        same += 1
    return [str(Path(*part[same:])).removesuffix(".gz").removesuffix(".json") for part in parts]


def _values(row: RunRow) -> dict[str, Any]:
    """Return a run as values, times in us."""
    plain = row.plain
    return {
        "run": row.name,
        "steps": row.steps,
        "recorded_us": row.recorded_us,
        "recorded_low_us": row.low_us,
        "recorded_high_us": row.high_us,
        "plain_us": plain.step_us,
        "plain_low_us": plain.low_us,
        "plain_high_us": plain.high_us,
        "plain_how": plain.how,
        "gpu_us": row.measures.gpu,
        "kernels": row.measures.kernels,
        "peak_memory_bytes": row.measures.peak_memory,
        "mfu_low": row.mfu.low if row.mfu else None,
        "mfu_high": row.mfu.high if row.mfu else None,
        "verdict": row.verdict,
        "change": row.change,
    }


def _csv(rows: Sequence[RunRow]) -> str:
    table = [_values(row) for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, table[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()
