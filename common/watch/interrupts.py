"""Ctrl-C and SIGTERM: a program ends quietly at any moment, with 130 or 143 (128 + the signal's number), within two seconds. The
reader has a copy of its own.

Python runs a signal's handler between two of its own instructions, so a native operation (a large matrix product) holds it
up, and code that swallows exceptions can lose the one that the handler raises. Hence a thread beside the program: woken by
the signal itself, it ends the process when the program has not ended by then.
"""

from collections.abc import Iterator
import contextlib
import os
import shutil
import signal
import sys
import threading
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GIVE_UP_S = 1.5
WATCHER = "waits for signals"  # the name of the thread
STUCK = b"ended inside an operation that cannot be interrupted\n"
temporary_folders: set[str] = set()  # removed, too, when the process is ended from beside
_asked = threading.Event()  # set once the handler has run


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Inside, both signals end the process on the spot: for imports that take seconds and have nothing to put away.

    Off the main thread, where no handler can be set, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.signal(number, lambda number, _: os._exit(128 + number)) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def unwind_on_signals() -> None:
    """From here on both signals raise SystemExit in the main thread, so that it puts away what it holds, and ends.

    If it has not ended 1.5 s later, the process does; with a line that says so if an operation held Python up.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    for number in _heeded():
        signal.signal(number, _unwind)
    earlier = sys.unraisablehook

    def lost(unraisable: "sys.UnraisableHookArgs") -> None:
        """Raised inside a finalizer or a callback, Python drops it with a traceback. The thread ends the process all the same."""
        if not (isinstance(unraisable.exc_value, SystemExit) and _asked.is_set()):
            earlier(unraisable)

    sys.unraisablehook = lost
    terminal = os.dup(2)  # what the program does to its own stderr later does not matter
    threading.Thread(target=_watch, args=(reads, terminal), name=WATCHER, daemon=True).start()


def _heeded() -> list[signal.Signals]:
    """Not the signals that the program was started to ignore (Ctrl-C, in a job in the background)."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _unwind(number: int, _frame: object) -> None:
    _asked.set()
    raise SystemExit(128 + number)


def _watch(reads: int, terminal: int) -> None:
    while (number := os.read(reads, 1)[0]) not in SIGNALS:
        pass
    time.sleep(GIVE_UP_S)
    for folder in temporary_folders:
        shutil.rmtree(folder, ignore_errors=True)
    if not _asked.is_set():
        os.write(terminal, STUCK)
    os._exit(128 + number)
