"""From a file to its facts."""

from collections.abc import Callable
import re

import msgspec
from trace_reader.analysis.replay.places import places
from trace_reader.analysis.replay.plain_run import run_without_profiler
from trace_reader.analysis.trace.facts import Facts, Finding
from trace_reader.analysis.trace.summarize import summarize
from trace_reader.analysis.trace.time_by_place import CpuLine, path_lines
from trace_reader.findings import Reading, run_rules, with_own_function
from trace_reader.link.trace import Trace, link
from trace_reader.parse.decode import decode

NAMES_THE_LINE = 0.3  # of the path
# What people call there, by the function of C, and what takes less.
KNOWN_IN_C = {
    "tensor": "Of a list, torch.tensor converts number by number: torch.from_numpy(numpy.stack(...)) copies whole arrays.",
    "as_tensor": "Of a list, torch.as_tensor converts number by number: make one numpy array first.",
    "collect": "That is Python's garbage collector: call it less often, or gc.freeze() after the warm-up.",
    "deepcopy": "Copy less, or only the tensors (tensor.clone()).",
    "sleep": "The program waits there on purpose.",
}
OF_THE_GPU = frozenset(["gpu-bound", "copy-bound", "mixed"])
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
    return with_places(run_rules(trace, summarize(trace, run), run, everything))


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
    reading = examine(trace, everything)
    if path == "-" or reading.facts.verdict not in OF_THE_CPU or "python_function" not in trace.skipped:
        return reading.facts
    return with_lines(reading, load(path, steps_from=steps_from, stacks=True)).facts


def with_places(reading: Reading, stacks: Trace | None = None) -> Reading:
    """The reading with the places of its run, where that can be played again. `stacks`: the same trace, loaded with stacks."""
    if not reading.can_be_asked or reading.run is None:
        return reading
    with_floors = reading.facts.verdict in OF_THE_GPU  # elsewhere faster kernels save nothing that shows
    found = tuple(places(reading.run, reading.facts.plain, stacks, with_floors))
    told = tuple(one.place for one in found)
    return msgspec.structs.replace(reading, facts=msgspec.structs.replace(reading.facts, places=told), places=found)


def with_lines(reading: Reading, stacks: Trace) -> Reading:
    """The reading with the lines of Python in which the CPU is where the run waits for it, and with the functions and modules of
    the program among its places. `stacks`: the same trace, loaded with stacks.
    """
    facts = reading.facts
    if facts.verdict not in OF_THE_CPU or facts.critical_path is None:
        return reading
    lines = path_lines(reading.trace, facts.critical_path, stacks)
    found = tuple(_at_the_line(finding, lines) for finding in facts.findings)
    reading = msgspec.structs.replace(reading, facts=msgspec.structs.replace(facts, cpu_lines=lines, findings=found))
    return with_places(with_own_function(reading, stacks), stacks)


def _at_the_line(finding: Finding, lines: tuple[CpuLine, ...]) -> Finding:
    """What runs between the ops, where the trace says: a finding that names the line which has most of the time."""
    if finding.slug != "python-between-ops" or not lines or lines[0].share < NAMES_THE_LINE:
        return finding
    top = lines[0]
    in_c = re.search(r"built-in (?:method|function) (\w+)", top.mostly)
    known = KNOWN_IN_C.get(in_c[1], "") if in_c else ""
    mostly = f", most of it in {in_c[1]}()" if in_c else ""
    next = f"Look at {top.line}: the CPU is there for {top.share:.0%} of the critical path{mostly}. {known}".rstrip()
    return msgspec.structs.replace(finding, next=next)
