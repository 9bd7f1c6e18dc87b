"""The command `read-trace`: its flags, its exit codes, and which of trace_reader/commands/ does what is asked."""

import argparse
from collections.abc import Callable
import gc
import math
from pathlib import Path
import re
import sys
from typing import Any

from trace_reader import __version__
from trace_reader.errors import LeftOverError, MissingExtraError, NotWrittenError, TraceError
from trace_reader.system.interrupts import at_once, unwind_on_signals
from trace_reader.system.terminal import prepare_streams, say_error, stdout_failed

with at_once():
    from trace_reader.commands import print_report
    from trace_reader.report import OUTPUTS, TEXT
    from trace_reader.report.document import Style

DESCRIPTION = """\
Read a profiler trace: what the bottleneck is, what each step launched, which kernels took the time, and what it means.

    {command} traces/01_matmul_add/64_bf16_cold_eager.json
    {command} EAGER.json COMPILED.json      compare two
    {command} traces/04_c_sdpa_attention/*.json     any number, or a folder: a table with a row for each
    {command} JOB_rank*.json        the ranks of one job, or their folder: who waits for whom
    {command} TRACE.json.gz --chain 3       the dispatch tree of ProfilerStep#3
    {command} TRACE.json --by layer         GPU time of each layer, forward and backward; annotation, stack
    {command} GRAPH.json --names EAGER.json     what a CUDA graph replays, by a trace of the same step without it
    {command} TRACE.json --plot out.png     a picture (two traces: on one scale); --steps 3:4, --us 100:250
    {command} JOB_rank*.json --merge ALL.json.gz    one file for Perfetto, clocks aligned
    {command} TRACE.json --html out.html    the report as a page, with a timeline to click; two traces; a job
    {command} TRACE.json --open             in Perfetto, from this machine, without an upload
    {command} TRACE.json --redact B.json    a copy without host name, user name and file paths
    zcat TRACE.json.gz | {command} - --json

Any Chrome trace of torch.profiler will do: .json or .json.gz, from any torch and any GPU. The exit code is 0; 2 for a file
that is missing, is no trace, or has no events (of several, the others are told all the same); 1 if the answer could not be
written, or --redact could not take all out.
"""


def parse_args(argv: list[str] | None = None, prog: str = "read-trace", command: str = "read-trace") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=prog, description=DESCRIPTION.format(command=command), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="one trace to read, two to compare, more or a folder for a table, the ranks of a job for a report on it; - is stdin",
    )
    output = parser.add_mutually_exclusive_group()
    for flag, form in OUTPUTS.items():
        output.add_argument(f"--{flag}", dest="output", action="store_const", const=form, help=form.help)
    parser.add_argument("--top", type=int, metavar="N", help="rows of each table (default: what fits; with --all 15)")
    parser.add_argument(
        "--all", action="store_true", help="all findings and all tables, also what only teaches how to read a trace"
    )
    parser.add_argument("--full", action="store_true", help="full kernel names instead of short labels")
    parser.add_argument(
        "--chain",
        nargs="?",
        type=int,
        const=-1,
        metavar="N",
        help="the dispatch tree of ProfilerStep#N instead of the report (without N: of the middle recorded step)",
    )
    parser.add_argument(
        "--by",
        choices=print_report.BY,
        help="the GPU's time by annotation, layer or line of Python instead of the report, forward and backward side by side",
    )
    parser.add_argument(
        "--names",
        metavar="TRACE",
        type=named,
        help="name what a CUDA graph replayed by this trace of the same step without the graph; by op, or --by",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        type=named,
        help="of a job: let this Dask cluster read its ranks (tcp://HOST:8786); else processes of this machine do",
    )
    parser.add_argument(
        "--steps_from",
        metavar="REGEX",
        type=pattern,
        help="the annotations that are the steps, where these are not ProfilerStep#N: their names match",
    )
    output.add_argument("--plot", metavar="FILE", type=picture, help="draw it into FILE, .png or .svg, instead of the report")
    output.add_argument(
        "--html", metavar="FILE", type=html_page, help="write the report as a page with a timeline to click: opens offline"
    )
    output.add_argument(
        "--folded", metavar="FILE", type=named, help="write stacks for flame graph tools into FILE, with Python's where recorded"
    )
    output.add_argument(
        "--merge", metavar="FILE", type=merge_target, help="of a job: write its ranks into one trace for Perfetto, clocks aligned"
    )
    output.add_argument("--open", action="store_true", help="show it in Perfetto: serves the file to your browser, once")
    output.add_argument(
        "--redact", metavar="FILE", type=named, help="write a copy to share, and count what was taken out; - is stdout"
    )
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--steps", metavar="A:B", type=interval(int), help="of --plot: only ProfilerStep#A to #B")
    window.add_argument("--us", metavar="A:B", type=interval(float), help="of --plot: only these microseconds of the window")
    parser.add_argument("--version", action="version", version=f"read-trace {__version__}")
    args = parser.parse_args(argv)
    if (args.steps or args.us) and args.html:
        parser.error("--html shows all steps, to zoom into: leave --steps and --us out")
    if (args.steps or args.us) and not args.plot:
        parser.error("--steps and --us choose what --plot shows: add --plot FILE")
    if args.open and (len(args.traces) > 1 or args.traces == ["-"]):
        parser.error("--open takes one trace, a file: name one")
    if args.redact and len(args.traces) > 1:
        parser.error("--redact takes one trace: name one")
    if [*args.traces, args.names].count("-") > 1:
        parser.error("standard input (-) can be read once only")
    if args.chain is not None and (args.plot or args.html or args.open or args.redact or args.folded or args.merge):
        parser.error("--chain prints a report: leave --plot, --html, --open, --redact, --folded and --merge out")
    if args.by and (args.plot or args.html or args.open or args.redact or args.folded or args.merge or args.chain is not None):
        parser.error("--by prints a table: leave --plot, --html, --open, --redact, --folded, --merge and --chain out")
    if args.names and (args.plot or args.html or args.open or args.redact or args.folded or args.merge or args.chain is not None):
        parser.error("--names prints a table: leave --plot, --html, --open, --redact, --folded, --merge and --chain out")
    for flag, given in (("--by", args.by), ("--folded", args.folded), ("--names", args.names)):
        if given and len(args.traces) > 1:
            parser.error(f"{flag} takes one trace: name one")
    if args.top is not None and args.top < 1:
        parser.error(f"argument --top: expected 1 or more, got {args.top}")
    if args.chain is not None and len(args.traces) > 1:
        parser.error("--chain shows one trace: name one")
    return args


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


def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, got {text!r}: {error}") from None


def picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".png", ".svg"):
        raise argparse.ArgumentTypeError(f"expected a name that ends with .png or .svg, got {text!r}")
    return path


def interval(number: type) -> Callable[[str], tuple[Any, Any]]:
    def parse(text: str) -> tuple[Any, Any]:
        first, _, last = text.partition(":")
        try:
            found = number(first), number(last or first)
            if not all(map(math.isfinite, found)):
                raise ValueError
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected A:B, two numbers, got {text!r}") from None
        if found[0] > found[1] or (number is float and found[0] == found[1]):
            raise argparse.ArgumentTypeError(f"expected A:B with A before B, got {text!r}")
        return found

    return parse


def main(argv: list[str] | None = None, prog: str = "read-trace", command: str = "read-trace") -> int:
    """Do what the arguments say; the exit code. `command` is how the help's examples call the program."""
    args = parse_args(argv, prog, command)
    try:
        text, code = answer(args)
    except (TraceError, LookupError) as error:
        say_error(error)
        return 2
    except (LeftOverError, MissingExtraError, NotWrittenError) as error:
        say_error(error)
        return 1
    except OSError as error:  # of a copy on stdout
        return stdout_failed(error)
    try:
        # A copy itself went to stdout: what is said of it does not.
        stream = sys.stderr if args.redact == "-" else sys.stdout
        stream.write(text)
        stream.flush()
        sys.stdout.flush()
    except OSError as error:
        return stdout_failed(error)
    return code


def answer(args: argparse.Namespace) -> tuple[str, int]:
    """What is printed, and the exit code. What only some actions need is imported by them: most runs are short."""
    if args.open:
        from trace_reader.commands import open_perfetto

        return "", open_perfetto.run(args.traces[0])
    if args.redact:
        from trace_reader.commands import redact

        return redact.run(args.traces[0], args.redact), 0
    if args.merge:
        from trace_reader.commands import merge_ranks

        return merge_ranks.run(args.traces, args.merge, args.scheduler), 0
    if args.plot:
        from trace_reader.commands import draw_picture

        return draw_picture.run(args.traces, args.plot, args.steps, args.us, args.steps_from, args.scheduler), 0
    style = Style(top=args.top, full=args.full, everything=args.all)
    if args.html:
        from trace_reader.commands import write_page

        return write_page.run(args.traces, args.html, style, args.steps_from, args.scheduler), 0
    if args.folded:
        from trace_reader.commands import folded_stacks

        return folded_stacks.run(args.traces[0], Path(args.folded), args.steps_from), 0
    told, code = print_report.run(args.traces, style, args.chain, args.steps_from, args.by, args.names, args.scheduler)
    return ((args.output or TEXT).write(told) if told else ""), code


def script(prog: str = "read-trace", command: str = "read-trace") -> None:
    """The program: as `main`, with streams that work, ended quietly by Ctrl-C and SIGTERM."""
    prepare_streams()
    unwind_on_signals()
    gc.disable()  # what is read lives to the end: looking for garbage in it takes as long as reading it
    sys.exit(main(None, prog, command))
