"""From a file to its facts."""

from collections.abc import Callable
import re

import msgspec
from trace_reader.analysis.replay.plain_run import run_without_profiler
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.summarize import summarize
from trace_reader.analysis.trace.time_by_place import path_lines
from trace_reader.findings import Reading, run_rules
from trace_reader.link.trace import Trace, link
from trace_reader.parse.decode import decode

OF_THE_CPU = frozenset(["overhead-bound", "input-bound", "cpu-only", "mixed"])


def load(
    path: str,
    progress: Callable[[float], None] | None = None,
    steps_from: re.Pattern[str] | None = None,
    stacks: bool = False,
) -> Trace:
    """The linked trace at `path` (`.json`, `.json.gz`, or "-" for standard input).

    `progress` is called with the share of the file that is decoded, 0 to 1. `steps_from`: the annotations that are the steps, in
    the place of the profiler's ProfilerStep#N. `stacks`: keep the functions of Python (kind `python`), too; they are most of a
    trace that has them. Raises TraceError, and LookupError where no annotation matches.
    """
    return link(decode(str(path), progress, stacks), steps_from)


def analyze(trace: Trace, everything: bool = False) -> Facts:
    """The facts of a loaded trace, with their findings: of a large one, for `everything`, also those that mend nothing."""
    return examine(trace, everything).facts


def examine(trace: Trace, everything: bool = False) -> Reading:
    """A loaded trace with its facts and what each finding's rule saw: pages are made of this."""
    run = run_without_profiler(trace)
    return run_rules(trace, summarize(trace, run), run, everything)


def read(path: str) -> Facts:
    """The facts of the trace at `path`, with their findings. Raises TraceError."""
    return analyze_file(path)


def analyze_file(
    path: str,
    load: Callable[..., Trace] = load,
    steps_from: re.Pattern[str] | None = None,
    everything: bool = False,
) -> Facts:
    """As `analyze` of the trace at `path`. Where the CPU limits the run and the functions of Python were recorded, the file is
    read once more with them, for the lines in which the CPU is. Raises TraceError, and LookupError, as `load` does.
    """
    trace = load(path, steps_from=steps_from)
    facts = analyze(trace, everything)
    if path == "-" or facts.verdict not in OF_THE_CPU or "python_function" not in trace.skipped:
        return facts
    return with_lines(facts, trace, load(path, steps_from=steps_from, stacks=True))


def with_lines(facts: Facts, trace: Trace, stacks: Trace) -> Facts:
    """The facts of a trace with the lines of Python in which the CPU is where the run waits for it. `stacks`: the same trace,
    loaded with stacks.
    """
    if facts.verdict not in OF_THE_CPU or facts.critical_path is None:
        return facts
    return msgspec.structs.replace(facts, cpu_lines=path_lines(trace, facts.critical_path, stacks))
