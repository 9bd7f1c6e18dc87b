"""The names of a run's artifacts, and writing them: both whole, or neither."""

import argparse
import contextlib
import errno
import gzip
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TRACE_SUFFIX = ".json"
TABLE_SUFFIX = ".txt"


def run_tag(*, sizes: Sequence[int | str], dtype: str, warmup: bool, compile: bool, changed: Mapping[str, object]) -> str:
    """The name of a run: `<sizes>_<dtype>_<cold|warm>_<eager|compile>`, then each further setting that was changed.

    `sizes` may end with the choices of a lesson that name the run as the sizes do (a backend).
    A changed setting is appended as `_<flag>-<value>`, a switch as `_<flag>`; two runs share a name only if all
    their settings are equal.
    """
    parts = [*map(str, sizes), dtype, "warm" if warmup else "cold", "compile" if compile else "eager"]
    parts += [flag if value is True else f"{flag}-{value}" for flag, value in changed.items()]
    return "_".join(parts)


def trace_path(args: argparse.Namespace) -> Path:
    return args.trace_dir / f"{args.tag}{TRACE_SUFFIX}{'.gz' if args.gz else ''}"


def table_path(args: argparse.Namespace) -> Path:
    return args.trace_dir / f"{args.tag}{TABLE_SUFFIX}"


def check_folder(args: argparse.Namespace) -> None:
    """Make the trace folder and see that this run's artifacts can be written there.

    Raises OSError if not. Nothing is left but the folder.
    """
    args.trace_dir.mkdir(parents=True, exist_ok=True)
    for path in (trace_path(args), table_path(args)):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with tempfile.TemporaryFile(dir=args.trace_dir):
        pass


def encode_trace(trace: bytes, args: argparse.Namespace) -> bytes:
    """The bytes of the trace's file: as they are, or gzipped (without a time stamp: same trace, same bytes)."""
    return gzip.compress(trace, mtime=0) if args.gz else trace


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write all files, or none: each is complete on disk before the first one takes its name.

    Raises OSError, and then leaves every earlier file as it was.
    """
    with contextlib.ExitStack() as stack:
        staged = [(stack.enter_context(_staged(path, data)), path) for path, data in contents.items()]
        for name_it, path in staged:
            os.replace(name_it(), path)


@contextlib.contextmanager
def _staged(path: Path, data: bytes) -> Iterator[Callable[[], Path]]:
    """Put `data` on the disk of `path`; yields a function that gives it a temporary name beside `path`.

    Where the system can (Linux, most file systems), the data has no name until then, so that a process killed in
    the middle of a long write leaves nothing.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unnamed: int | None = os.open(path.parent, os.O_WRONLY | os.O_TMPFILE, 0o666)
    except (AttributeError, OSError):
        unnamed = None
    try:
        if unnamed is None:
            with open(temporary, "xb") as file:
                file.write(data)
            yield lambda: temporary
        else:
            with os.fdopen(unnamed, "wb") as file:
                file.write(data)
                file.flush()

                def link() -> Path:
                    # src_dir_fd is ignored for an absolute path, but without it Python does not follow the link.
                    os.link(f"/proc/self/fd/{unnamed}", temporary, src_dir_fd=unnamed)
                    return temporary

                yield link
    finally:
        temporary.unlink(missing_ok=True)
