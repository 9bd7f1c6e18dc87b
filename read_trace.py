"""Read a profiler trace: who is slower, what each step launched, which kernels took the time, and what it means.

    uv run read_trace.py traces/01_matmul_add/64_bf16_cold_eager.json
    uv run read_trace.py EAGER.json COMPILED.json      compare two
    uv run read_trace.py traces/04_c_sdpa_attention/*.json     any number: a table with a row for each
    uv run read_trace.py TRACE.json.gz --chain 3       the dispatch tree of ProfilerStep#3
    zcat TRACE.json.gz | uv run read_trace.py - --json

Any Chrome trace of torch.profiler will do: .json or .json.gz, from any torch and any GPU. The exit code is 0, or 2 for a
file that is missing, is no trace, or has no events.
"""

from reader import LinkedTrace, TraceError, load, tell
from reader.compare import compare, rows
from reader.facts import chain
from reader.render import Style, comparison, comparison_json, dump, report, table, table_json, to_json

import argparse
import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator

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
    args = parser.parse_args(argv)
    if args.top < 1:
        parser.error(f"argument --top: expected 1 or more, got {args.top}")
    if args.chain is not None and len(args.traces) > 1:
        parser.error("--chain shows one trace: name one")
    return args


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
    with progress_on_terminal(path) as show:
        return load(path, show)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    # A million small objects that live to the end: looking for garbage among them takes as long as reading them.
    gc.disable()
    style = Style(markdown=args.md, top=args.top, full=args.full)
    try:
        if len(args.traces) == 1:
            trace = load_shown(args.traces[0])
            tree = None if args.chain is None else chain(trace, None if args.chain == -1 else args.chain)
            facts = tell(trace)
            text = dump(to_json(facts, tree)) if args.json else report(facts, style, tree)
        elif len(args.traces) == 2:
            compared = compare(*(tell(load_shown(path)) for path in args.traces))
            text = dump(comparison_json(compared)) if args.json else comparison(compared, style)
        else:
            compared_rows = rows([tell(load_shown(path)) for path in args.traces])
            text = dump(table_json(compared_rows)) if args.json else table(compared_rows, style)
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except LookupError as error:
        print(f"error: {args.traces[0]}: {error}", file=sys.stderr)
        return 2
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
