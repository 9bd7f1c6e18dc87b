"""What stands between a program's words and the terminal: streams that work, and names that do nothing but show."""

import contextlib
import errno
import io
import os
import re
import sys

LONGEST_PRINTED = 300  # characters; the longest kernel names that differ late do so before
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]{4,16}\b")  # of a function of Python or its object: another one in each run
# Control characters (C0, DEL, C1), line and paragraph separators, and those that change the direction of the text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(name: str, longest: int = LONGEST_PRINTED) -> str:
    """Return a name from a trace, fit to be printed: control characters as escapes, and the middle left out beyond `longest`."""
    name = _ADDRESS.sub("", name)
    if len(name) > longest:
        name = f"{name[: longest // 2]}...{name[3 - longest // 2 :]}"
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), name)


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
    """Return the exit code after writing to stdout failed: 141 if its reader went away (`| head`), else 1 after a line that says
    why.

    What is still to be written is dropped, so that Python does not try again at its end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 141  # 128 + SIGPIPE
    print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
    return 1


def say_note(text: str) -> None:
    """A remark as one line on stderr."""
    print(f"note: {printable(text, longest=2000)}", file=sys.stderr)


def say_error(error: Exception | str) -> None:
    """An error as one line on stderr; where it lists jobs, a line for each of them."""
    print(f"error: {printable(str(error), longest=2000)}", file=sys.stderr)
    for job in getattr(error, "jobs", ()):
        print(f"  {printable(job, longest=2000)}", file=sys.stderr)
