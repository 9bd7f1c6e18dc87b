"""Processes beside this one: copies of it that work for it, one for each core, and that none outlives who started it."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
from itertools import chain, repeat
import os
import sys
import threading
from typing import TYPE_CHECKING, Any
import warnings

from trace_reader.system.interrupts import WATCHER, forget_signals

# `multiprocessing` is imported where it is needed: not by those who read a lesson's trace.
if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PIPE_BYTES = 1 << 20  # what a worker can send before it waits
LARGE = 1 << 17  # slices; of fewer, the facts are there before a process is copied
MOST_PROCESSES = 6  # the longest of the facts takes a fifth of the time of all, and copying a process 5 ms


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def usable_processes() -> int:
    """Return how many copies of this process, with itself, can work beside each other; 1 where it cannot be copied.

    A copy of a process with several threads may wait for ever for what one of them holds; the one that waits for signals holds
    nothing. A worker of a job has its core for itself.
    """
    import multiprocessing

    others = {thread.name for thread in threading.enumerate() if thread is not threading.main_thread()}
    can = sys.platform == "linux" and others <= {WATCHER} and multiprocessing.parent_process() is None
    return cores() if can else 1


def processes_for(slices: int) -> int:
    """Return how many processes work on a trace of so many slices beside each other."""
    return min(usable_processes(), MOST_PROCESSES) if slices >= LARGE else 1


def run_in_processes(tasks: Sequence[Callable[[], Any]], processes: int) -> list[Any]:
    """Return what each of the tasks (255 at most) gives, in their order, worked out by so many copies of this process, with
    itself.

    Each takes the next one that none has taken, so the longest should stand first. Raises what a task raises.
    """
    if min(processes, len(tasks)) <= 1:
        return [task() for task in tasks]
    numbers, writes = os.pipe()  # a byte for each task: a byte is read by one process only
    os.write(writes, bytes(range(len(tasks))))
    os.close(writes)
    try:
        with workers(_done, [(tasks, numbers)] * (min(processes, len(tasks)) - 1)) as found:
            answers = _done(tasks, numbers)
            for others in found:
                answers |= others or {}
    finally:
        os.close(numbers)
    return [answers[number] if number in answers else task() for number, task in enumerate(tasks)]


def _done(tasks: Sequence[Callable[[], Any]], numbers: int) -> dict[int, Any]:
    """Return the answers of the tasks that this process takes, by their number."""
    answers = {}
    while taken := os.read(numbers, 1):
        answers[taken[0]] = tasks[taken[0]]()
    return answers


@contextlib.contextmanager
def workers(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Iterator[Any]]:
    """Start a process for each task; gives their answers in order, None of one that failed or could not be started. At the end
    none of them is left.
    """
    import multiprocessing

    context: Any = multiprocessing.get_context("fork")  # nothing is to be imported, and `spawn` would take as long as it saves
    started: list[tuple[Any, Connection]] = []
    try:
        for task in tasks:
            here, there = context.Pipe(duplex=False)
            _widen(there)
            process = context.Process(target=_answer, args=(work, task, there), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the thread that waits for signals
                try:
                    process.start()
                except OSError:  # no memory for a copy, or too many processes
                    here.close()
                    break
                finally:
                    there.close()
            started.append((process, here))
        yield chain((_received(here) for _, here in started), repeat(None, len(tasks) - len(started)))
    finally:
        for process, here in started:
            process.kill()
            process.join()
            here.close()


def _widen(pipe: "Connection") -> None:
    import fcntl

    with contextlib.suppress(OSError):  # the system allows a user no more
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _answer(work: Callable[..., Any], task: tuple[Any, ...], there: "Connection") -> None:
    forget_signals()
    end_with_parent()
    with contextlib.suppress(BrokenPipeError):  # who asked is gone
        try:
            there.send(work(*task))
        except BrokenPipeError:
            raise
        except Exception:  # whatever it is: who asked does it itself then, and says it
            there.send(None)


def _received(here: "Connection") -> Any:
    try:
        return here.recv()
    except (EOFError, OSError):  # it was killed
        return None


def end_with_parent() -> None:
    """Let this process end when the one that started it is gone, however that ended."""
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
