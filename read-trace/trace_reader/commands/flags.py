"""The flags of commands: those that several have, each once, and the types of their values."""

import argparse
from collections.abc import Callable
import contextlib
import math
from pathlib import Path
import re
from typing import Any

BY = ("annotation", "layer", "stack")


def add_traces(parser: argparse.ArgumentParser, help: str = "a trace; - is standard input", several: bool = False) -> None:
    """The traces to read: one, or with `several` any number."""
    parser.add_argument("traces", nargs="+" if several else 1, type=named if several else one_trace, metavar="TRACE", help=help)


def add_forms(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """`--json`, `--md`: the forms of an answer, in the place of text."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs: stable field names, null for unknown")
    form.add_argument("--md", action="store_true", help="Markdown, for notes")
    return form


def add_amount(parser: argparse.ArgumentParser) -> None:
    """`--all`, `--top`, `--full`: how much is told."""
    parser.add_argument("--all", action="store_true", help="all findings and tables, also what only teaches how to read a trace")
    parser.add_argument("--top", type=at_least_one, metavar="N", help="rows of each table (default: what fits; with --all 15)")
    parser.add_argument("--full", action="store_true", help="full kernel names instead of short labels")


def add_steps_from(parser: argparse.ArgumentParser) -> None:
    """`--steps_from REGEX`."""
    parser.add_argument(
        "--steps_from",
        metavar="REGEX",
        type=pattern,
        help="if the steps are not ProfilerStep#N: annotations whose names match are the steps",
    )


def add_stacks(parser: argparse.ArgumentParser) -> None:
    """`--stacks FILE`."""
    told = "a recording of the same program with stacks: lines from it, times from TRACE (default: NAME_stacks.json if there)"
    parser.add_argument("--stacks", metavar="FILE", type=named, help=told)


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """`--scheduler ADDRESS`."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        type=named,
        help="for a job: this Dask cluster (tcp://HOST:8786) reads the ranks, not processes of this machine",
    )


def add_time(parser: argparse.ArgumentParser, of: str = "") -> None:
    """`--time`: whose."""
    parser.add_argument("--time", choices=("cpu", "gpu"), help=f"{of}the time of the CPU or the GPU (default: gpu)")


def add_out(parser: argparse.ArgumentParser, help: str, type: Callable[[str], Any] = Path) -> None:
    """`-o FILE`: what is written."""
    parser.add_argument("-o", "--out", metavar="FILE", type=type, required=True, help=help)


def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, got {text!r}: {error}") from None


def step_number(text: str) -> int | str:
    try:
        return text if text == "middle" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected the number of a step, got {text!r}") from None


def at_least_one(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r}")
    return value


def one_trace(path: str) -> str:
    """Return a trace's path; of the folder of an attempt (read-trace try) that of the trace in it."""
    inside = Path(named(path)) / "trace.json"
    with contextlib.suppress(OSError):  # a name that is too long
        return str(inside) if inside.is_file() and inside.with_name("attempt.json").is_file() else path
    return path


def named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file, got ''")
    return text


def ending(*ends: str) -> Callable[[str], Path]:
    """Return the type of a file that is written, whose name ends so."""

    def parse(text: str) -> Path:
        if not text.lower().endswith(ends):
            raise argparse.ArgumentTypeError(f"expected a name that ends with {' or '.join(ends)}, got {text!r}")
        return Path(text)

    return parse


def change(text: str) -> Any:
    from trace_reader.commands.change_run import parsed_change  # here: most runs ask for no change

    try:
        return parsed_change(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def interval(number: type) -> Callable[[str], tuple[Any, Any]]:
    def parse(text: str) -> tuple[Any, Any]:
        first, _, last = text.partition(":")
        try:
            limits = number(first), number(last or first)
            if not all(map(math.isfinite, limits)):
                raise ValueError
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected A:B, two numbers, got {text!r}") from None
        if limits[0] > limits[1] or (number is float and limits[0] == limits[1]):
            raise argparse.ArgumentTypeError(f"expected A:B with A before B, got {text!r}")
        return limits

    return parse
