"""`read-trace baseline`: what `check` compares of some runs, as a file."""

import argparse
from pathlib import Path

import msgspec
from trace_reader.commands.check import SCHEMA, Baseline, runs_of
from trace_reader.commands.flags import add_steps_from, add_traces
from trace_reader.system.files import write_file

BASELINE = """\
Write what `check` compares of some runs into a small file, to be kept beside the program.

    read-trace baseline run1.json run2.json run3.json -o base.json
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = BASELINE
    add_traces(parser, "traces of the runs, a folder of them, or ranks of jobs", several=True)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="the file to write, .json")
    add_steps_from(parser)


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Write a baseline's file; what is printed, and the exit code. Raises TraceError, NotWrittenError."""
    runs = tuple(runs_of(args.traces, args.steps_from))
    write_file(args.out, msgspec.json.format(msgspec.json.encode(Baseline(SCHEMA, runs)), indent=1) + b"\n")
    return f"wrote {args.out}: {len(runs)} run{'s' * (len(runs) > 1)}\n", 0
