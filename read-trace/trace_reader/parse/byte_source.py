"""A trace's bytes, block by block: plain or gzipped (by content), from a path or from standard input.

A gzip file is unzipped ahead of who takes the blocks, by a thread; a damaged one as far as it goes. Of a trace in another form
(Perfetto's own, an export of nsys), the blocks are those of the Chrome trace that it is as well.
"""

from collections.abc import Callable, Iterator
import contextlib
import errno
import io
import os
from pathlib import Path
import queue
import re
import sys
import threading
from typing import Any, BinaryIO
import zlib

import msgspec
from trace_reader.errors import MissingExtraError, NotATraceError, TraceError
from trace_reader.parse.foreign_files import is_perfetto

BLOCK_BYTES = 1 << 20
ZIPPED_BYTES = 1 << 17  # of a gzip file: unzipped, a trace is 10 to 20 times as large
UNZIPPED_BYTES = 1 << 22  # at once: what was packed to a thousandth is not unpacked as a whole
GZIP_MAGIC = b"\x1f\x8b"
AHEAD = 2  # blocks
BEGINNING_BYTES = 1 << 12  # of a file, by which its form is told
SQLITE_MAGIC = b"SQLite format 3\x00"
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://")
_GZIP_HEADER = 31  # zlib's word for: with gzip's header


class Blocks:
    """Iterating gives the file's bytes, unzipped. Once it ended, `damage` says what is missing at the end, in words."""

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        first: bytes,
        size: int | None,
        progress: Callable[[float], None] | None,
        ahead: bool = True,
    ):
        self.path, self.damage = path, ""
        self._file, self._first, self._size, self._progress, self._is_ahead = file, first, size, progress, ahead
        self._taken = 0

    def __iter__(self) -> Iterator[bytes]:
        if self._first[:2] != GZIP_MAGIC:
            return self._read()
        unzipped = self._unzip()
        small = self._size is not None and self._size < BLOCK_BYTES
        return _ahead(unzipped) if self._is_ahead and not small else unzipped

    def _read(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        block = self._first
        while block:
            self._taken += len(block)
            if self._progress and self._size:
                self._progress(min(self._taken / self._size, 1.0))
            yield block
            block = self._file.read(size)

    def _unzip(self) -> Iterator[bytes]:
        unzipper: Any = None
        zipped, position, begun = b"", 0, False
        for block in self._read(ZIPPED_BYTES):
            zipped += block
            size = ZIPPED_BYTES
            while zipped:
                if unzipper is None:  # several gzip files in a row are one
                    if len(zipped) < 2:
                        break
                    if zipped[:2] != GZIP_MAGIC:
                        return  # padding
                    unzipper = zlib.decompressobj(wbits=_GZIP_HEADER)
                before = unzipper.copy()
                part = zipped[:size]
                try:
                    out = unzipper.decompress(part, UNZIPPED_BYTES)
                except zlib.error as error:
                    if size > 1:  # what comes before the damaged byte is whole: on in smaller steps
                        unzipper, size = before, max(size // 16, 1)
                        continue
                    if not begun:
                        raise NotATraceError(f"{self.path}: a damaged gzip file: {error}") from error
                    why = str(error).partition(": ")[2] or str(error)
                    if why in ("incorrect data check", "incorrect length check"):
                        self.damage = "the gzip file's checksum is wrong: a byte in it, and which is not known, has changed"
                    else:
                        self.damage = f"the gzip file is damaged at byte {position} ({why})"
                    return
                left = unzipper.unused_data if unzipper.eof else unzipper.unconsumed_tail  # at the end, zlib can give it in both
                zipped = left + zipped[size:]
                position += len(part) - len(left)
                if unzipper.eof:
                    unzipper = None
                if out:
                    begun = True
                    yield out
        if unzipper is not None and (out := unzipper.flush()):
            yield out


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same blocks, made by a thread while the earlier ones are used."""
    made: queue.Queue[bytes | BaseException | None] = queue.Queue(AHEAD)
    gone = threading.Event()

    def put(item: bytes | BaseException | None) -> None:
        while not gone.is_set():
            with contextlib.suppress(queue.Full):
                return made.put(item, timeout=0.1)

    def make() -> None:
        try:
            for block in blocks:
                put(block)
                if gone.is_set():
                    return
        except BaseException as error:  # it is raised where the blocks are used
            put(error)
        else:
            put(None)

    threading.Thread(target=make, daemon=True).start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        gone.set()


def form_of(first: bytes) -> str | None:
    """Return the form of a file that begins with these bytes, where it is a trace in another one than JSON: "perfetto" or
    "nsys".
    """
    if first.startswith(GZIP_MAGIC):
        try:
            first = zlib.decompressobj(wbits=_GZIP_HEADER).decompress(first[:BEGINNING_BYTES], BEGINNING_BYTES)
        except zlib.error:
            return None
        return "perfetto" if is_perfetto(first) else None
    return "nsys" if first.startswith(SQLITE_MAGIC) else "perfetto" if is_perfetto(first) else None


def _converted(form: str, source: str, blocks: Blocks) -> Blocks:
    """Return the Chrome trace that a trace in another form is. Raises NotATraceError, MissingExtraError."""
    if form == "perfetto":
        from trace_reader.parse.perfetto_trace import as_chrome as of_perfetto  # here, and below: most traces are JSON

        data, damage = of_perfetto(b"".join(blocks), blocks.path)
        damage = "; ".join(filter(None, [blocks.damage, damage]))
    elif source == "-" or is_remote(source):
        raise NotATraceError(f"{blocks.path}: a SQLite database, such as nsys exports: save it as a file, and name that")
    else:
        from trace_reader.parse.nsys_export import as_chrome as of_nsys

        data, damage = of_nsys(source), ""
    found = Blocks(io.BytesIO(data[BLOCK_BYTES:]), blocks.path, data[:BLOCK_BYTES], len(data), None)
    found.damage = damage
    return found


def shown(source: str) -> str:
    return "standard input" if source == "-" else source


@contextlib.contextmanager
def open_blocks(source: str, progress: Callable[[float], None] | None = None, ahead: bool = True) -> Iterator[Blocks]:
    """The blocks of the file at the path `source`, or of standard input for "-".

    `progress` is called with the share of the file that is done; `ahead`: let a thread unzip. Raises TraceError: missing,
    unreadable, a folder; NotATraceError: empty, or a gzip file that is damaged at its start; MissingExtraError: a remote path,
    and no fsspec.
    """
    path = shown(source)
    try:
        with contextlib.ExitStack() as stack:
            if source == "-":
                file: BinaryIO = sys.stdin.buffer
            elif is_remote(source):
                file = stack.enter_context(_remote(source))
            else:
                file = stack.enter_context(open(source, "rb"))
            size = os.fstat(file.fileno()).st_size if source != "-" and Path(source).is_file() else None
            first = file.read(BLOCK_BYTES)
            if not first:
                raise NotATraceError(f"{path}: the file is empty" if source != "-" else f"{path}: there is nothing on it")
            blocks = Blocks(file, path, first, size, progress, ahead)
            yield blocks if (form := form_of(first)) is None else _converted(form, source, blocks)
    except IsADirectoryError as error:
        raise TraceError(f"{path}: a folder; {traces_in(path.rstrip('/'))}") from error
    except FileNotFoundError as error:  # of fsspec's, some say only the path
        raise TraceError(f"{path}: {os.strerror(errno.ENOENT)}") from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


def is_remote(source: str) -> bool:
    """Return whether a path is one for fsspec: s3://..., gs://..., file://..."""
    return _REMOTE.match(source) is not None


def list_folder(source: str) -> list[str] | None:
    """Return the paths in a folder, or None if `source` is none. Raises TraceError, MissingExtraError."""
    fsspec = _fsspec() if is_remote(source) else None
    try:
        if fsspec is None:
            folder = Path(source)
            if not folder.is_dir():
                return None
            return [f"{source.rstrip('/')}/{path.name}" for path in folder.iterdir() if path.is_file()]  # no pipe, which may wait
        system, path = fsspec.core.url_to_fs(source)
        return [system.unstrip_protocol(found) for found in system.ls(path, detail=False)] if system.isdir(path) else None
    except Exception as error:  # of any file system that fsspec knows
        raise TraceError(f"{source}: {error or type(error).__name__}") from error


def size_of(source: str) -> int:
    """Return the bytes of a file; 0 where that cannot be told."""
    try:
        if is_remote(source):
            system, path = _fsspec().core.url_to_fs(source)
            return int(system.size(path) or 0)
        return os.stat(source).st_size
    except Exception:  # of any file system that fsspec knows
        return 0


def _remote(source: str) -> BinaryIO:
    fsspec = _fsspec()
    try:
        return fsspec.open(source, "rb").open()
    except OSError:
        raise
    except Exception as error:  # a protocol that is unknown, or whose package is not there
        raise TraceError(f"{source}: {error or type(error).__name__}") from error


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("a path with :// needs fsspec: install read-trace with it, read-trace[dask]") from error
    return fsspec


def traces_in(folder: str) -> str:
    """Return what to do with a folder, in words."""
    if (Path(folder) / "attempt.json").is_file():  # of read-trace try
        return f"name the trace in it: {folder}/trace.json"
    for ending in (".json", ".json.gz", ".pftrace", ".sqlite"):
        for pattern in (f"*{ending}", f"*/*{ending}"):
            if next(Path(folder).glob(pattern), None):
                return f"name the traces in it: {folder}/{pattern}"
    return "no trace lies in it: no .json, .json.gz, .pftrace or .sqlite"


class Bytes(msgspec.Struct, frozen=True):
    """All of a file, unzipped. `damage` says what is missing at its end, in words; empty if nothing is."""

    data: bytes
    damage: str = ""


def read_bytes(source: str) -> Bytes:
    """Return all bytes of the file at the path `source`, or of standard input for "-". Raises TraceError."""
    with open_blocks(source) as blocks:
        return Bytes(b"".join(blocks), blocks.damage)
