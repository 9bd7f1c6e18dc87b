"""From a file to its facts."""

from collections.abc import Callable
import re

import msgspec
from trace_reader.analysis.facts import Facts, summarize
from trace_reader.findings import run_rules
from trace_reader.link.trace import Trace, link
from trace_reader.parse.decode import decode


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
    facts = summarize(trace)
    findings, failed = run_rules(trace, facts, everything)
    return msgspec.structs.replace(facts, findings=findings, failed=failed)


def read(path: str) -> Facts:
    """The facts of the trace at `path`, with their findings. Raises TraceError."""
    return analyze(load(path))
