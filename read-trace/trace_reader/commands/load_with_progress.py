"""Loading a trace while somebody watches: a progress bar on the terminal from the second second on."""

from collections.abc import Callable, Iterator
import contextlib
import re
import sys
import time

from trace_reader.link.trace import Trace
from trace_reader.reading import Joined, joined_file, load
from trace_reader.system.terminal import printable, say_note

PROGRESS_AFTER_S = 1.0


def load_with_progress(path: str, steps_from: re.Pattern[str] | None = None, stacks: bool = False) -> Trace:
    """As `load`. Raises TraceError and LookupError."""
    with showing(printable(path)) as show:
        return load(path, show, steps_from, stacks)


def load_joined(path: str, stacks_path: str | None, steps_from: re.Pattern[str] | None) -> Joined | None:
    """As `joined_file`. Raises TraceError and LookupError."""
    return joined_file(path, load_with_progress, steps_from, stacks_path, say_note)


@contextlib.contextmanager
def showing(what: str) -> Iterator[Callable[[float], None] | None]:
    """Yields what shows the share of `what` that is read; None where nobody watches."""
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
                bar.add_task(f"reading {what}", total=1.0)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=share)

        yield show
