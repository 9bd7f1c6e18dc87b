"""From a file to its facts."""

from collections.abc import Callable
from pathlib import Path
import re
from typing import NamedTuple

import msgspec
from trace_reader.analysis.replay.cost_factor import priced_device
from trace_reader.analysis.replay.places import AskedPlace, places
from trace_reader.analysis.replay.plain_run import run_without_profiler
from trace_reader.analysis.trace.facts import OF_THE_CPU, Facts
from trace_reader.analysis.trace.memory_facts import memory_facts
from trace_reader.analysis.trace.summarize import summarize
from trace_reader.analysis.trace.time_by_place import path_lines
from trace_reader.errors import TraceError
from trace_reader.findings import Reading, run_rules, with_functions
from trace_reader.findings.bottleneck import NO_STACKS, STACKS_THERE, at_the_line
from trace_reader.guard import Failures
from trace_reader.link.other_recording import with_functions_of
from trace_reader.link.trace import Trace, link
from trace_reader.names.file_names import STACKS_NAME
from trace_reader.parse.decode import decode
from trace_reader.parse.price_file import prices_for

OF_THE_GPU = frozenset(["gpu-bound", "copy-bound", "mixed"])


def load(
    path: str,
    progress: Callable[[float], None] | None = None,
    steps_from: re.Pattern[str] | None = None,
    stacks: bool = False,
) -> Trace:
    """Read the trace at `path` (`.json`, `.json.gz`, or "-" for standard input), link its events, and return the linked trace.

    `progress` is called with the share of the file that is decoded, from 0 to 1. `steps_from`: a pattern for the annotations to
    use as steps instead of the profiler's ProfilerStep#N. `stacks`: keep the Python functions (kind `python`), too, which make up
    most of a trace that holds them. The trace also gets what the profiler costs on its host, if a file says so
    (parse/price_file.py). Raises TraceError if the trace cannot be read, and LookupError if no annotation matches `steps_from`.
    """
    trace = link(decode(str(path), progress, stacks), steps_from)
    prices = prices_for(path, priced_device(trace))
    return trace if prices is None else msgspec.structs.replace(trace, host_prices=prices)


def analyze(trace: Trace, everything: bool = False) -> Facts:
    """Return the facts of a loaded trace, with their findings. With `everything`, a large trace also gets the findings that only
    teach how to read a trace and suggest no change.
    """
    return examine(trace, everything).facts


def examine(trace: Trace, everything: bool = False) -> Reading:
    """Return a loaded trace with its facts, the evidence that each finding's rule saw, and its places. Pages are made from the
    result.
    """
    return with_places(judged(trace, everything))


def judged(trace: Trace, everything: bool = False) -> Reading:
    """Return a loaded trace with its facts and what each finding's rule saw."""
    run = run_without_profiler(trace)
    return run_rules(trace, summarize(trace, run), run, everything)


def read(path: str) -> Facts:
    """Return the facts of the trace at `path`, with their findings. Raises TraceError if the trace cannot be read."""
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
    return examine_file(path, load, steps_from, everything).facts


def examine_file(
    path: str,
    load: Callable[..., Trace] = load,
    steps_from: re.Pattern[str] | None = None,
    everything: bool = False,
    stacks_path: str | None = None,
    say: Callable[[str], object] | None = None,
) -> Reading:
    """As `examine` of the trace at `path`, read as `analyze_file` reads it, which raises what this does; with the recording with
    stacks that is named, or lies beside it. `say` is told where that one is left out; else the facts have it (`failed`).
    """
    left_out: list[str] = []
    if joined := joined_file(path, load, steps_from, stacks_path, say or left_out.append):
        return examine_joined(joined, everything)
    trace = load(path, steps_from=steps_from)
    has_functions = path != "-" and "python_function" in trace.skipped
    reading = judged(trace, everything)
    if has_functions and reading.facts.verdict in OF_THE_CPU:
        reading = with_lines(reading, load(path, steps_from=steps_from, stacks=True))
    else:
        reading = with_places(reading)
    facts = msgspec.structs.replace(reading.facts, failed=(*reading.facts.failed, *left_out)) if left_out else reading.facts
    return msgspec.structs.replace(reading, facts=facts)


class Joined(NamedTuple):
    """Two recordings of one program: `trace`, and `other` with stacks; `stacks`: the trace with the other's functions. `said`:
    which file that is, and how far both are alike.
    """

    trace: Trace
    other: Trace
    stacks: Trace
    said: str


def join_recordings(trace: Trace, other: Trace) -> Joined:
    """`other`: loaded with stacks. Raises LookupError where they are not of one program."""
    stacks, matched = with_functions_of(trace, other)
    return Joined(trace, other, stacks, f"{other.path}, which does the same in {matched} of {len(trace.steps)} steps")


def joined_file(
    path: str,
    load: Callable[..., Trace],
    steps_from: re.Pattern[str] | None,
    stacks_path: str | None,
    say: Callable[[str], object],
) -> Joined | None:
    """Return a trace with the recording with stacks that is named, or that lies beside it; None where there is none. One that
    lies beside it, and is of another program, is said to be left out. Raises TraceError, and LookupError.
    """
    beside = stacks_path or stacks_beside(path)
    if beside is None:
        return None
    trace = load(path, steps_from=steps_from)
    try:
        return join_recordings(trace, load(beside, steps_from=steps_from, stacks=True))
    except (TraceError, LookupError) as error:
        if stacks_path is not None:
            raise
        say(f"{error}; it is left out")
        return None


def examine_joined(joined: Joined, everything: bool = False) -> Reading:
    """Return what is read of two recordings of one program: times, verdict and gains of the one, lines and functions of Python of
    the one with stacks, and its memory where the first has none.
    """
    reading = with_lines(judged(joined.trace, everything), joined.stacks)
    facts = reading.facts
    has_memory = not facts.memory and len(joined.other.memory) > 0
    memory = memory_facts(joined.other) if has_memory else facts.memory
    findings = tuple(msgspec.structs.replace(one, next=one.next.replace(NO_STACKS, STACKS_THERE)) for one in facts.findings)
    said = joined.said + "; so is the memory" * has_memory
    facts = msgspec.structs.replace(facts, memory=memory, stacks_from=said, findings=findings)
    return msgspec.structs.replace(reading, facts=facts)


def stacks_beside(path: str) -> str | None:
    """Return the recording with stacks that lies beside a trace: NAME_stacks.json of NAME.json (either may be zipped)."""
    name = path.removesuffix(".gz").removesuffix(".json")
    found = (f"{name}{STACKS_NAME}{ending}" for ending in (".json", ".json.gz"))
    return next((one for one in found if name != path and Path(one).is_file()), None)


def with_places(reading: Reading, stacks: Trace | None = None) -> Reading:
    """Return the reading with the places of its run, where that can be played again. `stacks`: the same trace, loaded with
    stacks.
    """
    if not reading.can_be_asked or reading.run is None:
        return reading
    facts, found, failures = reading.facts, tuple[AskedPlace, ...](), Failures()
    with_floors = facts.verdict in OF_THE_GPU  # elsewhere faster kernels save nothing that shows
    with failures.caught("what the places save"):
        found = tuple(places(reading.run, facts.plain, stacks, with_floors))
    told = tuple(one.place for one in found)
    facts = msgspec.structs.replace(facts, places=told, failed=(*facts.failed, *failures))
    return msgspec.structs.replace(reading, facts=facts, places=found)


def with_lines(reading: Reading, stacks: Trace) -> Reading:
    """Return the reading with the lines of Python in which the CPU is where the run waits for it, and with the functions and
    modules of the program among its places. `stacks`: the same trace, loaded with stacks.
    """
    facts = reading.facts
    if facts.verdict not in OF_THE_CPU or facts.critical_path is None:
        return with_places(reading, stacks)
    lines, found = path_lines(reading.trace, facts.critical_path, stacks), facts.findings
    if any(finding.slug == "python-between-ops" for finding in found):
        between = path_lines(reading.trace, facts.critical_path, stacks, between_ops=True)
        found = tuple(at_the_line(finding, between, facts) for finding in found)
    reading = msgspec.structs.replace(reading, facts=msgspec.structs.replace(facts, cpu_lines=lines, findings=found))
    return with_places(with_functions(reading, stacks), stacks)
