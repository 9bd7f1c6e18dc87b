"""The jobs among several traces, each with the command that reads it."""

from collections.abc import Sequence
import shlex

import msgspec
from trace_reader.report.document import Document, Style
from trace_reader.units import count

MOST_OTHERS = 8  # that are named, of traces of no job


class ListedJob(msgspec.Struct, frozen=True):
    """A job by the names of its ranks' traces, with a star in place of the rank; `argument`: what to name to read it."""

    name: str
    argument: str
    traces: tuple[str, ...]


def argument_of(name: str) -> str:
    """Return a name with a star as a shell takes it: only the star stands for something else."""
    before, star, behind = name.rpartition("*")
    return (shlex.quote(before) if before else "") + star + (shlex.quote(behind) if behind else "")


def jobs_list(jobs: Sequence[ListedJob], others: Sequence[str], style: Style) -> Document:
    """Return what to run to read each job, two of them, and the traces of no job."""
    out = Document(style)
    besides = f" and {count(len(others), 'trace')} of no job" if others else ""
    out.title(f"{count(len(jobs), 'job')}{besides}")
    commands = [f"  read-trace {job.argument}  # {count(len(job.traces), 'rank')}" for job in jobs]
    out.section("Read one job", "jobs")
    out.block(commands, is_whole=True)
    if len(jobs) > 1:
        out.section("Compare two", "compare")
        out.block([f"  read-trace {jobs[0].argument} {jobs[1].argument}"], is_whole=True)
    if others:
        out.section("Of no job", "others")
        more = [f"  and {len(others) - MOST_OTHERS} more"] if len(others) > MOST_OTHERS else []
        out.block([*(f"  read-trace {shlex.quote(path)}" for path in others[:MOST_OTHERS]), *more], is_whole=True)
    return out
