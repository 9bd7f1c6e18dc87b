"""`read-trace baseline`: what `check` compares of some runs, as a file."""

import argparse
from pathlib import Path
import re

import msgspec
from trace_reader.commands.attempt_folder import made_folder
from trace_reader.commands.check import BASELINES, NAME, SCHEMA, Baseline, runs_of
from trace_reader.commands.flags import add_steps_from, add_traces
from trace_reader.system.files import write_file

BASELINE = """\
Write the measures of some runs that `check` compares into a small file, which you keep with the program.

    read-trace baseline run1.json run2.json run3.json -o base.json

With a name in place of a file, the baseline is kept in .read-trace/ (which is not in git), and `check NEW --baseline main` finds
it:

    read-trace baseline traces/*.json --name main
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = BASELINE
    add_traces(parser, "traces of the runs, a folder of them, or ranks of jobs", several=True)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--out", type=Path, metavar="FILE", help="the file to write, .json")
    where.add_argument("--name", type=_named, metavar="NAME", help="keep it under a name, such as main")
    add_steps_from(parser)


def _named(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise argparse.ArgumentTypeError(f"a name is of letters, digits, _, . and -, not {text!r}")
    return text


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Write a baseline's file; what is printed, and the exit code. Raises TraceError, NotWrittenError."""
    runs = tuple(runs_of(args.traces, args.steps_from))
    file = args.out or BASELINES / f"{args.name}.json"
    if args.name:
        made_folder(BASELINES)
    write_file(file, msgspec.json.format(msgspec.json.encode(Baseline(SCHEMA, runs)), indent=1) + b"\n")
    return f"wrote {file}: {len(runs)} run{'s' * (len(runs) > 1)}\n", 0
