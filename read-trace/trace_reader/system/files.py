"""Writing files: all of them whole and under their names, or none. Every file that the suite writes is written here."""

from collections.abc import Callable, Iterable, Iterator, Mapping
import contextlib
import os
from pathlib import Path
import stat
from typing import BinaryIO
import zlib

from trace_reader.errors import NotWrittenError

_INPUTS: dict[tuple[int, int], str] = {}  # what is read and must stay, by its file system and number: a link's is its target's


@contextlib.contextmanager
def protected(paths: Iterable[str | int]) -> Iterator[None]:
    """Inside, nothing is written onto these files. One that is not there, or is a pipe, is none."""
    before = dict(_INPUTS)
    try:
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                status = os.stat(path)
                if stat.S_ISREG(status.st_mode):
                    _INPUTS[status.st_dev, status.st_ino] = "standard input" if isinstance(path, int) else path
        yield
    finally:
        _INPUTS.clear()
        _INPUTS.update(before)


def check_target(path: Path | str | int) -> None:
    """Raises NotWrittenError: it is one of the files that are read, by whatever name."""
    try:
        status = os.stat(path)
    except OSError:
        return
    if (status.st_dev, status.st_ino) in _INPUTS:
        name = "standard output" if isinstance(path, int) else path
        raise NotWrittenError(f"{name}: it is {_INPUTS[status.st_dev, status.st_ino]}, which is read here: name another file")


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write all files or none: each file is complete on the disk (fsync) before the first one gets its name.

    If a name is a symbolic link, the file that the link points to is replaced. A device or pipe is written to directly. Raises
    OSError if a file cannot be written, and then leaves every earlier file as it was. The earlier files also stay if the process
    is killed before the first new file gets its name.
    """
    with contextlib.ExitStack() as stack:
        staged = []
        for path, data in contents.items():
            target = Path(os.path.realpath(path))
            if target.exists() and not target.is_file():  # a folder raises here
                target.write_bytes(data)
            else:
                staged.append((stack.enter_context(_staged(target, data)), target))
        for name_it, target in staged:
            os.replace(name_it(), target)
        for folder in {target.parent for _, target in staged}:
            _sync_folder(folder)


def write_file(path: Path, data: bytes) -> None:
    """Write one file whole. Raises NotWrittenError, which names it; an earlier file of the name is kept then. One that is read
    (`protected`) is never written.
    """
    check_target(path)
    try:
        write_all({path: data})
    except OSError as error:
        raise NotWrittenError(f"{path}: {error.strerror or error}") from error


@contextlib.contextmanager
def _staged(target: Path, data: bytes) -> Iterator[Callable[[], Path]]:
    """Put `data` on the disk of `target`; yields a function that gives it a temporary name beside `target`.

    Where the system can (Linux, most file systems), the data has no name until then, so that a process killed in
    the middle of a long write leaves nothing.
    """
    # A name of its own: two runs may write one file at once, and the later one stays.
    temporary = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}")
    try:
        unnamed: int | None = os.open(target.parent, os.O_WRONLY | os.O_TMPFILE, 0o666)
    except (AttributeError, OSError):
        unnamed = None
    try:
        if unnamed is None:
            with open(temporary, "xb") as file:
                _write(file, data)
            yield lambda: temporary
        else:
            with os.fdopen(unnamed, "wb") as file:
                _write(file, data)

                def link() -> Path:
                    # src_dir_fd is ignored for an absolute path, but without it Python does not follow the link.
                    os.link(f"/proc/self/fd/{unnamed}", temporary, src_dir_fd=unnamed)
                    return temporary

                yield link
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Put the names on the disk, too. Some systems cannot open or sync a folder: their files are whole all the same."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def gzipped(data: bytes, level: int = 9) -> bytes:
    """`data` as a gzip file without a time: the same bytes on every Python, which `gzip.compress` does not promise."""
    return zlib.compress(data, level, wbits=16 + zlib.MAX_WBITS)
