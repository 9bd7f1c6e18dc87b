"""The command `read-trace`: its flags and its exit codes. What the flags ask for is in trace_reader/commands."""

import argparse
from collections.abc import Callable
import contextlib
import gc
import importlib
import math
from pathlib import Path
import sys
from typing import Any, TextIO

from trace_reader import __version__, guard
from trace_reader.commands.flags import add_steps_from, pattern
from trace_reader.errors import MissingExtraError, NotWrittenError, TraceError
from trace_reader.parse.byte_source import is_remote, list_folder
from trace_reader.system.files import check_target, protected
from trace_reader.system.interrupts import at_once, unwind_on_signals
from trace_reader.system.terminal import prepare_streams, say_error, stdout_failed

with at_once():
    from trace_reader.commands import command_of
    from trace_reader.commands.report import BY
    from trace_reader.write import OUTPUTS

WORDS = {
    "check": "check",
    "baseline": "check",
    "runs": "list_runs",
    "show": "show_finding",
    "watch": "watch_folder",
    "mcp": "serve_tools",
    "memory": "read_memory",
}  # with flags of their own; the file in commands/
DESCRIPTION = """\
Read a profiler trace: what the bottleneck is, what each step launched, which kernels took the time, and what it means.

    {command} traces/01_matmul_add/64_bf16_cold_eager.json
    {command} EAGER.json COMPILED.json      compare two
    {command} traces/04_c_sdpa_attention/*.json     any number, or a folder: a table with a row for each
    {command} JOB_rank*.json        the ranks of one job, or their folder: who waits for whom
    {command} TRACE.json.gz --chain 3       the dispatch tree of ProfilerStep#3
    {command} TRACE.json --by layer         GPU time of each layer, forward and backward; annotation, stack
    {command} GRAPH.json --names EAGER.json     what a CUDA graph replays, by a trace of the same step without it
    {command} TRACE.json --what_if 'drop aten::item'    what a step would take without these ops; graph, no waits, ...
    {command} TRACE.json --plot out.png     a picture (two traces: on one scale); --steps 3:4, --us 100:250
    {command} JOB_rank*.json --merge ALL.json.gz    one file for Perfetto, clocks aligned
    {command} TRACE.json --html out.html    the report as a page, with a timeline to click; two traces; a job
    {command} TRACE.json --open             in Perfetto, from this machine, without an upload
    {command} TRACE.json --redact B.json    a copy to share, without names that are not public
    {command} check NEW*.json --baseline OLD*.json      a gate for CI: is it worse? (check --help, baseline --help)
    {command} runs SWEEP/*.json      a table of runs with the time of a step (runs --help)
    {command} watch FOLDER       new traces as they land, a row each (watch --help)
    {command} TRACE.json --brief; {command} show TRACE.json ID      for scripts: twenty lines; the slices of a finding
    {command} memory SNAPSHOT.pickle      a snapshot of CUDA's memory: its peak, by line; of two, what grew (memory --help)
    {command} mcp FOLDER        its answers as tools of the Model Context Protocol, for agents (mcp --help)
    zcat TRACE.json.gz | {command} - --json

Any Chrome trace of torch.profiler will do: .json or .json.gz, from any torch and any GPU. The exit code is 0; 2 for a file
that is missing, is no trace, or has no events (of several, the others are told all the same); 1 if the answer could not be
written, memory ran out, or the reader itself failed.
"""


def parse_args(argv: list[str] | None = None, prog: str = "read-trace", command: str = "read-trace") -> argparse.Namespace:
    """The flags; `run` is the command that they ask for. A mistake ends the process with a message and exit code 2."""
    parser = argparse.ArgumentParser(
        prog=prog, description=DESCRIPTION.format(command=command), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "traces",
        nargs="+",
        type=named,
        metavar="TRACE",
        help="one trace to read, two to compare, more or a folder for a table, the ranks of a job for a report on it; - is stdin",
    )
    _add_commands(parser.add_argument_group("commands, in place of the report"))
    _add_settings(parser)
    args = parser.parse_args(argv)
    try:
        asked = command_of(args)
    except ValueError as error:
        parser.error(str(error))
    if [*args.traces, args.names].count("-") > 1:
        parser.error("standard input (-) can be read only once")
    if args.open and args.traces == ["-"]:
        parser.error("--open takes a file, not standard input")
    if asked.one and len(args.traces) > 1:
        parser.error(f"--{asked.flag} takes one trace, got {len(args.traces)}")
    args.run = asked.run
    return args


def _add_commands(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--brief",
        action="store_true",
        help="at most twenty lines for scripts: verdict, step, three changes with their ids (show)",
    )
    group.add_argument(
        "--chain",
        nargs="?",
        type=step_number,
        const="middle",
        metavar="N",
        help="print the dispatch tree of ProfilerStep#N (without N: of the middle recorded step)",
    )
    group.add_argument(
        "--by", choices=BY, help="print time by annotation, layer or line of Python, forward and backward side by side"
    )
    group.add_argument(
        "--names",
        metavar="TRACE",
        type=named,
        help="name what a CUDA graph replayed by this trace of the same step without the graph; by op, or --by",
    )
    group.add_argument(
        "--what_if",
        metavar="CHANGE",
        type=change,
        action="append",
        help="what a step takes, and saves, with this change: 'drop REGEX' (ops, annotations, calls), 'scale REGEX FACTOR' "
        "(kernels, copies), 'no waits', 'graph', 'loader', of a job also 'rank R like S'; repeated, all of them together",
    )
    group.add_argument(
        "--plot",
        metavar="FILE",
        type=picture,
        help="draw a picture into FILE, .png or .svg; into roofline.png, the ops by shape below the device's peaks",
    )
    group.add_argument("--html", metavar="FILE", type=html_page, help="write a page with a timeline to click; it opens offline")
    group.add_argument(
        "--folded", metavar="FILE", type=named, help="write stacks for flame graph tools into FILE, with Python's where recorded"
    )
    group.add_argument("--time", choices=("cpu", "gpu"), help="of --by stack and --folded: whose time (default: the GPU's)")
    group.add_argument(
        "--merge", metavar="FILE", type=merge_target, help="write the ranks of a job into one trace for Perfetto, clocks aligned"
    )
    group.add_argument("--open", action="store_true", help="show it in Perfetto: serves the file to your browser, once")
    group.add_argument(
        "--redact",
        metavar="FILE",
        type=named,
        help="write a copy to share: strings that are not public are replaced; - is stdout",
    )
    group.add_argument("--keep", metavar="REGEX", type=pattern, help="with --redact: what matches as a whole stays, too")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    for flag, output in OUTPUTS.items():
        form.add_argument(f"--{flag}", action="store_true", help=output.help)
    parser.add_argument("--top", type=at_least_one, metavar="N", help="rows of each table (default: what fits; with --all 15)")
    parser.add_argument(
        "--all", action="store_true", help="all findings and all tables, also what only teaches how to read a trace"
    )
    parser.add_argument("--full", action="store_true", help="full kernel names instead of short labels")
    add_steps_from(parser)
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        type=named,
        help="of a job: let this Dask cluster read its ranks (tcp://HOST:8786) instead of processes of this machine",
    )
    parser.add_argument(
        "--recompiles",
        metavar="FILE",
        type=Path,
        help="what TORCH_LOGS=recompiles wrote to stderr: tell why torch.compile compiled again",
    )
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        type=named,
        help="of --html: the memory of this run by torch.cuda.memory._dump_snapshot(FILE), beside the timeline",
    )
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--steps", metavar="A:B", type=interval(int), help="of --plot: only ProfilerStep#A to #B")
    window.add_argument("--us", metavar="A:B", type=interval(float), help="of --plot: only these microseconds of the window")
    parser.add_argument("--version", action="version", version=f"read-trace {__version__}")


def step_number(text: str) -> int | str:
    return text if text == "middle" else int(text)


def at_least_one(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r}")
    return value


def named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file, got ''")
    return text


def merge_target(text: str) -> Path:
    if not text.endswith((".json", ".json.gz")):
        raise argparse.ArgumentTypeError(f"expected a name that ends with .json or .json.gz, got {text!r}")
    return Path(text)


def html_page(text: str) -> Path:
    if not text.lower().endswith((".html", ".htm")):
        raise argparse.ArgumentTypeError(f"expected a name that ends with .html, got {text!r}")
    return Path(text)


def change(text: str) -> Any:
    from trace_reader.analysis.what_if import parse_change  # here: most runs ask for no change

    try:
        return parse_change(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".png", ".svg"):
        raise argparse.ArgumentTypeError(f"expected a name that ends with .png or .svg, got {text!r}")
    return path


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


def main(argv: list[str] | None = None, prog: str = "read-trace", command: str = "read-trace") -> int:
    """Do what the arguments say; the exit code. `command` is how the help's examples call the program."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in WORDS and not Path(argv[0]).exists():
        return _answered(lambda: _of_word(argv[0])(argv[1:], prog, command), lambda: sys.stdout)
    args = parse_args(argv, prog, command)

    def run() -> tuple[str, int]:
        with protected(_inputs(args)):
            _check_targets(args)
            return args.run(args)

    # A copy itself went to stdout: what is said of it does not.
    return _answered(run, lambda: sys.stderr if args.redact == "-" else sys.stdout)


def _of_word(word: str) -> Callable[[list[str], str, str], tuple[str, int]]:
    """The function of a word."""
    commands = importlib.import_module(f"trace_reader.commands.{WORDS[word]}")  # here: a report does without
    return getattr(commands, word)


def _answered(run: Callable[[], tuple[str, int]], stream_of: Callable[[], TextIO]) -> int:
    """Run a command and print its answer; the exit code."""
    try:
        text, code = run()
    except (TraceError, LookupError) as error:
        say_error(error)
        return 2
    except (MissingExtraError, NotWrittenError) as error:
        say_error(error)
        return 1
    except OSError as error:  # of a copy on stdout
        return stdout_failed(error)
    except MemoryError:
        say_error("there is not enough memory for this trace: read it on a larger machine, or record fewer steps")
        return 1
    except Exception as error:
        if guard.raises:
            raise
        say_error(f"read-trace {__version__} failed on this: {guard.words_of(error)}; please report it")
        return 1
    try:
        stream = stream_of()
        stream.write(text)
        stream.flush()
        sys.stdout.flush()
    except OSError as error:
        return stdout_failed(error)
    return code


def _inputs(args: argparse.Namespace) -> list[str | int]:
    """The files that are read, those in folders, too; 0 is standard input."""
    named = [*args.traces, *filter(None, (args.names, args.snapshot))]
    every = [own for path in named for own in ([path] if path == "-" or is_remote(path) else list_folder(path) or [path])]
    return [0 if path == "-" else path for path in every]


def _check_targets(args: argparse.Namespace) -> None:
    """Raises NotWrittenError where the answer would be written onto what is read: before it is worked out."""
    for target in (args.plot, args.html, args.folded, args.merge, args.redact):
        if target is not None and str(target) != "-":
            check_target(target)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream that is no file
        check_target(sys.stdout.fileno())


def script(prog: str = "read-trace", command: str = "read-trace") -> None:
    """The program: as `main`, with streams that work, ended quietly by Ctrl-C and SIGTERM."""
    prepare_streams()
    unwind_on_signals()
    gc.disable()  # what is read lives to the end: looking for garbage in it takes as long as reading it
    code = main(None, prog, command)
    gc.freeze()  # nor is it looked for at the end
    sys.exit(code)
