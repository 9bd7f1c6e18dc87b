"""`read-trace watch FOLDER`: traces as they land, a row each."""

import argparse
from pathlib import Path
import sys
import time

import msgspec
from trace_reader.commands.flags import add_steps_from
from trace_reader.commands.list_runs import run_row
from trace_reader.commands.read_job import is_of_stacks, may_be_trace
from trace_reader.errors import TraceError
from trace_reader.report.runs_report import Base, RunRow, plain_words
from trace_reader.system.terminal import printable, say_error
from trace_reader.units import natural, us

WATCH = """\
Read the traces of a folder, and then each new one as soon as it is whole: the time of its step, recorded and without the
profiler, how much longer that is than of the first, and what limits it. Ctrl-C ends it.

    read-trace watch traces/
"""
HEAD = ("trace", "recorded", "plain", "to first", "verdict")
State = tuple[int, int]
WIDTHS = (44, 11, 11, 9, 0)


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Print a row for each trace; what is left to print, and the exit code. Raises TraceError: there is no such folder."""
    if not args.folder.is_dir():
        raise TraceError(f"{args.folder}: not a folder")
    _print(HEAD)
    seen: dict[Path, State] = {}  # as they were at the last look
    told: dict[Path, State] = {}  # as they were when they were read: one that is written on is read again
    base: Base | None = None
    while True:
        for path in sorted(_traces(args.folder), key=lambda path: natural(str(path))):
            state = _state(path)
            if told.get(path) == state or (seen.get(path) != state and not args.once):  # it still grows
                seen[path] = state
                continue
            told[path] = state
            try:
                one = run_row(str(path), [str(path)], args.steps_from)
            except (TraceError, LookupError, OSError) as error:
                say_error(error)
                continue
            base = base or Base(one.measures.step, one.measures.plain_step)
            _print(_cells(msgspec.structs.replace(one, base=base), path.relative_to(args.folder)))
        if args.once:
            return "", 0
        time.sleep(args.every)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = WATCH
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="how often to look (default: 1)")
    add_steps_from(parser)
    parser.add_argument("--once", action="store_true", help="read what is there, and end")


def _traces(folder: Path) -> list[Path]:
    """Return the files of the folder, and those below it, that are called as traces are; none that is hidden, as one being
    written.
    """
    found = [path for path in folder.rglob("*") if may_be_trace(path.name) and not path.name.startswith(".")]
    names = {str(path) for path in found}
    return [path for path in found if not is_of_stacks(str(path), names)]


def _state(path: Path) -> State:
    """Return a file's size and when it was written last (ns)."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _cells(row: RunRow, name: Path) -> tuple[str, ...]:
    change = "-" if row.change is None else f"{row.change:+.1%}"
    return str(name).removesuffix(".gz").removesuffix(".json"), us(row.recorded_us), plain_words(row), change, row.verdict


def _print(cells: tuple[str, ...]) -> None:
    first, *rest, last = (printable(cell, 200) for cell in cells)
    middle = "  ".join(f"{cell:>{width}}" for cell, width in zip(rest, WIDTHS[1:-1], strict=True))
    sys.stdout.write(f"{first:{WIDTHS[0]}}  {middle}  {last}\n")
    sys.stdout.flush()
