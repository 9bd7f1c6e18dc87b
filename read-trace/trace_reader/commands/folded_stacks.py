"""Stacks in the form that tools for flame graphs read."""

from pathlib import Path
import re

from trace_reader.analysis.trace.time_by_place import attribute_cpu_time, folded
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.system.files import write_file
from trace_reader.units import count, us


def run(path: str, target: Path, steps_from: re.Pattern[str] | None = None, time: str | None = None) -> str:
    """Write a line for each stack, its frames and its time in ns; says what was written. `time`: "cpu" for the CPU's, in Python,
    too. Raises TraceError, NotWrittenError.
    """
    trace = load_with_progress(path, steps_from, stacks=True)
    stacks = folded(trace, attribute_cpu_time(trace) if time == "cpu" else None)
    write_file(target, "".join(f"{stack} {ns}\n" for stack, ns in stacks.items()).encode())
    whose = "the GPU's time" if len(trace.linked) else "the CPU's time in ops"
    whose = "the CPU's time" if time == "cpu" else whose
    total = us(sum(stacks.values()) / 1000)
    return (
        f"wrote {target}: {count(len(stacks), 'stack')}, {total} of {whose}; open it with speedscope, inferno or flamegraph.pl\n"
    )
