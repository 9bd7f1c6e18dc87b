"""Writing the two artifacts of a run: both of them whole and under their names, or neither. The reader has a copy of its own."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import os
from pathlib import Path
from typing import BinaryIO


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write all files, or none: each is whole on the disk (fsync) before the first one takes its name.

    Where a name is a link, what it points to is replaced. A device or pipe is written to as it is. Raises OSError, and
    then leaves every earlier file as it was; so does a process that is killed before the first name is taken.
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
