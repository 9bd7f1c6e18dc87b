"""stdin, stdout and stderr that work, however the program was started. The reader has a copy of its own."""

import contextlib
import errno
import io
import os
import sys


def prepare_streams() -> None:
    """Make stdin, stdout and stderr usable, however the program was started.

    A stream that was closed reads as empty and swallows what is written; a character that the terminal's encoding lacks is
    written as its escape.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it lives as long as the process
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED: it may write a part, and not say so
        buffered = io.BufferedWriter(sys.stdout.buffer)  # type: ignore[arg-type]
        sys.stdout = io.TextIOWrapper(buffered, sys.stdout.encoding, sys.stdout.errors, write_through=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a test's stream
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def stdout_failed(error: OSError) -> int:
    """The exit code after writing to stdout failed: 141 if its reader went away (`| head`), else 1 after a line that says why.

    What is still to be written is dropped, so that Python does not try again at its end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 141  # 128 + SIGPIPE
    print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
    return 1
