"""How far a long run is, on a terminal, from the second second on; nothing where nobody watches."""

from collections.abc import Iterator
import contextlib
import os
import sys
import threading
import time
from typing import Any

AFTER_S = 1.0
LONG_STEP_S = 0.5  # a recorded step this long is not disturbed by a line on the terminal


class Progress:
    """What is told of a run while it runs; this one tells nobody."""

    def show(self, text: str, done: int, of: int) -> None:
        """`text` is going on; `done` calls of so many are behind us."""

    def pause(self) -> None:
        """Recording starts: from here on nothing may disturb the steps."""

    def recorded(self, done: int, of: int) -> None:
        """A step was recorded; `done` of so many are behind us."""

    def resume(self) -> None:
        """Recording has ended."""

    def end(self) -> None:
        """Take away what is shown."""


class OnTerminal(Progress):
    """One line on stderr, drawn by a thread that is still while steps are recorded."""

    def __init__(self) -> None:
        self._terminal = os.fdopen(os.dup(2), "w")  # stderr is redirected while a lesson runs
        self._bar: Any = None
        self._text, self._done, self._of = "", 0, 0
        self._lock = threading.Lock()
        self._may_draw = threading.Event()
        self._ended = threading.Event()
        self._start_s = self._last_s = time.monotonic()
        self._may_draw.set()
        self._thread = threading.Thread(target=self._draw_now_and_then, daemon=True)
        self._thread.start()

    def show(self, text: str, done: int, of: int) -> None:
        self._text, self._done, self._of = text, done, of

    def pause(self) -> None:
        self._may_draw.clear()
        self._make_bar()  # now: the import would lengthen a recorded step
        if time.monotonic() - self._start_s > AFTER_S:
            self._draw()
        self._last_s = time.monotonic()

    def recorded(self, done: int, of: int) -> None:
        now_s = time.monotonic()
        self._text, self._done, self._of = f"recording step {done + 1} of {of}", done, of
        if now_s - self._last_s > LONG_STEP_S and now_s - self._start_s > AFTER_S:
            self._draw()
        self._last_s = now_s

    def resume(self) -> None:
        self._may_draw.set()

    def end(self) -> None:
        self._ended.set()
        self._may_draw.set()
        self._thread.join()
        if self._bar is not None:
            self._bar.stop()
        self._terminal.close()

    def _draw_now_and_then(self) -> None:
        self._ended.wait(AFTER_S)
        while not self._ended.wait(0.2):
            self._may_draw.wait()
            if not self._ended.is_set():
                self._draw()

    def _make_bar(self) -> None:
        with self._lock:
            if self._bar is None:
                from rich.console import Console  # here, because most runs end before
                from rich.progress import BarColumn, TextColumn
                from rich.progress import Progress as Bar

                console = Console(file=self._terminal)
                columns = (TextColumn("{task.description}"), BarColumn(bar_width=20))
                self._bar = Bar(*columns, console=console, transient=True, auto_refresh=False)
                self._bar.add_task("")

    def _draw(self) -> None:
        self._make_bar()
        with self._lock:
            if not self._bar.live.is_started:
                self._bar.start()
            text = f"{self._text}, {time.monotonic() - self._start_s:.0f} s"
            self._bar.update(self._bar.task_ids[0], description=text, completed=self._done, total=self._of, refresh=True)


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Tells of the run while the block runs, where stderr is a terminal."""
    shown = OnTerminal() if sys.stderr.isatty() else Progress()
    try:
        yield shown
    finally:
        shown.end()
