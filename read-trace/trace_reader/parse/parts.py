"""A large file in parts, which processes read beside each other."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import multiprocessing
from multiprocessing.connection import Connection
import os
import re
import sys
import threading
from typing import Any
import warnings

from trace_reader.parse.byte_source import BLOCK_BYTES, GZIP_MAGIC
from trace_reader.system.interrupts import WATCHER, forget_signals
from trace_reader.system.processes import cores, end_with_parent

LARGE_BYTES = 1 << 26  # below, starting processes costs what it saves
MOST_PARTS = 16
END_BYTES = 1 << 20  # of the last part, which holds the end of the list of events
WINDOW_BYTES = 1 << 18  # in which an event ends


class Part:
    """Iterating gives a file's bytes from `start` to `end` (None: to its end). It is no gzip file: nothing of it is `damage`d."""

    damage = ""

    def __init__(self, path: str, start: int, end: int | None, progress: Callable[[float], None] | None = None):
        self.path, self.start, self.end, self._progress = path, start, end, progress

    def __iter__(self) -> Iterator[bytes]:
        position = self.start
        with open(self.path, "rb") as file:
            file.seek(position)
            while block := file.read(BLOCK_BYTES if self.end is None else min(BLOCK_BYTES, self.end - position)):
                position += len(block)
                if self._progress and self.end:
                    self._progress((position - self.start) / (self.end - self.start))
                yield block


def cuts_of(source: str, boundary: re.Pattern[bytes]) -> list[tuple[int, int]]:
    """Where to cut a file: the end of an event, and the start of the next. None for one that is small, zipped or no plain file,
    where no processes can be started, or where no event ends near by.
    """
    parts = min(cores(), MOST_PARTS)
    if parts < 2 or not _can_fork():
        return []
    cuts = []
    try:
        size = os.stat(source).st_size
        if size < LARGE_BYTES or not os.path.isfile(source):
            return []
        with open(source, "rb") as file:
            if file.read(2) == GZIP_MAGIC:
                return []
            for position in [size * n // parts for n in range(1, parts)] + [size - END_BYTES]:
                file.seek(position)
                found = boundary.search(file.read(WINDOW_BYTES))
                if found is None:
                    return []
                cuts.append((position + found.start() + 1, position + found.end()))
    except (OSError, ValueError):
        return []
    return cuts


@contextlib.contextmanager
def workers(work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Iterator[Any]]:
    """Start a process for each task; gives their answers in order, None of one that failed. At the end none of them is left."""
    context: Any = multiprocessing.get_context("fork")  # nothing is to be imported, and `spawn` would take as long as it saves
    started: list[tuple[Any, Connection]] = []
    try:
        for task in tasks:
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_answer, args=(work, task, there), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the thread that waits for signals
                process.start()
            there.close()
            started.append((process, here))
        yield (_received(here) for _, here in started)
    finally:
        for process, here in started:
            process.kill()
            process.join()
            here.close()


def _answer(work: Callable[..., Any], task: tuple[Any, ...], there: Connection) -> None:
    forget_signals()
    end_with_parent()
    with contextlib.suppress(BrokenPipeError):  # who asked is gone
        try:
            there.send(work(*task))
        except BrokenPipeError:
            raise
        except Exception:  # whatever it is: one process reads the file then, and says it
            there.send(None)


def _received(here: Connection) -> Any:
    try:
        return here.recv()
    except (EOFError, OSError):  # it was killed
        return None


def _can_fork() -> bool:
    """A copy of a process with several threads may wait for ever for what one of them holds; the one that waits for signals holds
    nothing. A worker of a job has its core for itself.
    """
    others = {thread.name for thread in threading.enumerate() if thread is not threading.main_thread()}
    return sys.platform == "linux" and others <= {WATCHER} and multiprocessing.parent_process() is None
