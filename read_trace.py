"""Read a profiler trace: what the bottleneck is, what each step launched, which kernels took the time, and what it means.

    uv run read_trace.py traces/01_matmul_add/64_bf16_cold_eager.json
    uv run read_trace.py EAGER.json COMPILED.json      compare two
    uv run read_trace.py traces/04_c_sdpa_attention/*.json     any number: a table with a row for each
    uv run read_trace.py TRACE.json.gz --chain 3       the dispatch tree of ProfilerStep#3
    uv run read_trace.py TRACE.json --plot out.png     a picture (two traces: on one scale); --steps 3:4, --us 100:250
    uv run read_trace.py TRACE.json --open             in Perfetto, from this machine, without an upload
    uv run read_trace.py TRACE.json --redact B.json    a copy without host name, user name and file paths
    zcat TRACE.json.gz | uv run read_trace.py - --json

Any Chrome trace of torch.profiler will do: .json or .json.gz, from any torch and any GPU. The exit code is 0; 2 for a file
that is missing, is no trace, or has no events (of several, the others are told all the same); 1 if the answer could not be
written, or --redact could not take all out.
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import gc
import math
from pathlib import Path
import sys
import time
from typing import Any

from reader.interrupts import at_once, unwind_on_signals
from reader.terminal import plain, prepare_streams, stdout_failed

with at_once():
    from reader import LinkedTrace, TraceError, load, serve, tell
    from reader.compare import compare, rows
    from reader.errors import NotWrittenError
    from reader.facts import Facts, chain
    from reader.files import write_all
    from reader.redact import LeftOverError, redact_file
    from reader.render import Style, comparison, comparison_json, dump, report, table, table_json, to_json

PROGRESS_AFTER_S = 1.0


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="read_trace.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE", help="one trace to read, two to compare, or more for a table; - is stdin"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="for programs: stable field names, null for unknown")
    output.add_argument("--md", action="store_true", help="Markdown, for notes")
    parser.add_argument("--top", type=int, default=15, metavar="N", help="rows of each table (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="full kernel names instead of short labels")
    parser.add_argument(
        "--chain",
        nargs="?",
        type=int,
        const=-1,
        metavar="N",
        help="the dispatch tree of ProfilerStep#N instead of the report (without N: of the middle recorded step)",
    )
    output.add_argument("--plot", metavar="FILE", type=picture, help="draw it into FILE, .png or .svg, instead of the report")
    output.add_argument("--open", action="store_true", help="show it in Perfetto: serves the file to your browser, once")
    output.add_argument(
        "--redact", metavar="FILE", type=named, help="write a copy to share, and count what was taken out; - is stdout"
    )
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--steps", metavar="A:B", type=interval(int), help="of --plot: only ProfilerStep#A to #B")
    window.add_argument("--us", metavar="A:B", type=interval(float), help="of --plot: only these microseconds of the window")
    args = parser.parse_args(argv)
    if (args.steps or args.us) and not args.plot:
        parser.error("--steps and --us choose what --plot shows: add --plot FILE")
    if args.plot and len(args.traces) > 2:
        parser.error(f"--plot draws one trace or two, got {len(args.traces)}")
    if args.open and (len(args.traces) > 1 or args.traces == ["-"]):
        parser.error("--open takes one trace, a file: name one")
    if args.redact and len(args.traces) > 1:
        parser.error("--redact takes one trace: name one")
    if args.traces.count("-") > 1:
        parser.error("standard input (-) can be read once only")
    if args.chain is not None and (args.plot or args.open or args.redact):
        parser.error("--chain prints a report: leave --plot, --open and --redact out")
    if args.top < 1:
        parser.error(f"argument --top: expected 1 or more, got {args.top}")
    if args.chain is not None and len(args.traces) > 1:
        parser.error("--chain shows one trace: name one")
    return args


def named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file, got ''")
    return text


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


@contextlib.contextmanager
def progress_on_terminal(path: str) -> Iterator[Callable[[float], None] | None]:
    """Yields what shows the share of the file that is done, from the second second on; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    start = time.monotonic()
    with contextlib.ExitStack() as shown:
        bar = None

        def show(share: float) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - start > PROGRESS_AFTER_S:
                from rich.console import Console  # here, because most files are read before rich is imported
                from rich.progress import Progress

                bar = shown.enter_context(Progress(console=Console(stderr=True), transient=True))
                bar.add_task(f"reading {path}", total=1.0)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=share)

        yield show


def load_shown(path: str) -> LinkedTrace:
    with progress_on_terminal(plain(path)) as show:
        return load(path, show)


def draw(args: argparse.Namespace) -> str:
    from reader.plot import Window, plot  # here, because matplotlib takes half a second

    traces = [load_shown(path) for path in args.traces]
    data = plot([(trace, tell(trace)) for trace in traces], Window(us=args.us, steps=args.steps), args.plot.suffix)
    try:
        write_all({args.plot: data})
    except OSError as error:
        raise NotWrittenError(f"{args.plot}: {error.strerror or error}") from error
    return f"wrote {args.plot} ({len(data) / 1024:.1f} KiB)\n"


def shared(source: str, target: str) -> str:
    """Write the redacted copy; what was taken out, in words."""
    redacted = redact_file(source, target)
    taken = ", ".join(f"{what}: {n}" for what, n in redacted.removed.items())
    text = f"wrote {'standard output' if target == '-' else target}; taken out: {taken}\n"
    for name in redacted.stay:
        text += f"the name {plain(name)!r} is a word that traces are made of, and stays\n"
    return text


def show_in_perfetto(path: str) -> int:
    """Serve the trace to Perfetto's page; 0: it was fetched, 1: it was not."""
    load_shown(path)  # a file that cannot be read is said here, not by the page

    def ready(link: str) -> None:
        print(
            f"open {link}\nwaiting up to {serve.TIMEOUT_S:.0f} s for your browser to fetch the trace; nothing is uploaded",
            flush=True,
        )
        serve.open_browser(link)

    try:
        fetched = serve.serve(Path(path), ready=ready)
    except serve.PortTakenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("the browser has it" if fetched else serve.NO_REQUEST)
    return 0 if fetched else 1


def read_all(paths: list[str]) -> tuple[list[Facts], bool]:
    """The facts of all that can be read, and whether some could not; these are named on stderr."""
    found, failed = [], False
    for path in paths:
        try:
            found.append(tell(load_shown(path)))
        except TraceError as error:
            failed = True
            say_error(error)
    return found, failed


def say_error(error: Exception) -> None:
    print(f"error: {plain(str(error), longest=2000)}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    # A million small objects that live to the end: looking for garbage among them takes as long as reading them.
    gc.disable()
    style = Style(markdown=args.md, top=args.top, full=args.full)
    code = 0
    try:
        if args.open:
            return show_in_perfetto(args.traces[0])
        if args.redact:
            text = shared(args.traces[0], args.redact)
        elif args.plot:
            text = draw(args)
        elif len(args.traces) == 1:
            trace = load_shown(args.traces[0])
            tree = None if args.chain is None else chain(trace, None if args.chain == -1 else args.chain)
            facts = tell(trace)
            text = dump(to_json(facts, tree)) if args.json else report(facts, style, tree)
        elif len(args.traces) == 2:
            compared = compare(*(tell(load_shown(path)) for path in args.traces))
            text = dump(comparison_json(compared)) if args.json else comparison(compared, style)
        else:
            found, failed = read_all(args.traces)
            if not found:
                return 2
            code = 2 if failed else 0
            compared_rows = rows(found)
            text = dump(table_json(compared_rows)) if args.json else table(compared_rows, style)
    except (TraceError, LookupError) as error:
        say_error(error)
        return 2
    except (LeftOverError, NotWrittenError) as error:
        say_error(error)
        return 1
    except OSError as error:  # of the copy on stdout
        return stdout_failed(error)
    try:
        # The copy itself went to stdout: what is said of it does not.
        stream = sys.stderr if args.redact == "-" else sys.stdout
        stream.write(text)
        stream.flush()
        sys.stdout.flush()
    except OSError as error:
        return stdout_failed(error)
    return code


if __name__ == "__main__":
    prepare_streams()
    unwind_on_signals()
    sys.exit(main())
