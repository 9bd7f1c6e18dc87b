"""A large file in parts, which processes read beside each other."""

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
import os
import re

from trace_reader.errors import NotATraceError
from trace_reader.parse.byte_source import BEGINNING_BYTES, BLOCK_BYTES, GZIP_MAGIC, form_of, open_blocks
from trace_reader.system.processes import usable_processes

LARGE_BYTES = 1 << 26  # below, starting processes costs what it saves
MOST_PARTS = 16
END_BYTES = 1 << 20  # behind the last part: the end of the list of events, and what follows it
WINDOW_BYTES = 1 << 18  # in which an event ends
UNZIPPED_SHARE = 0.8  # of the time of unzipping a byte and decoding it, decoding
SENT_SHARE = 0.92  # of the time of decoding a part and sending what was found, decoding


class Part:
    """Iterating gives a file's bytes, unzipped, from the first event that begins behind `start` to the last one that begins
    before `end`; where `start` is 0, from the file's first byte.

    A zipped file is unzipped from its first byte on. Once the last part ended, `rest` is what follows it. Iterating raises
    NotATraceError where no event ends near by, or the file is shorter.
    """

    damage = ""
    is_last = False
    progress: Callable[[float], None] | None = None  # called with the share of the part that is done
    rest = b""

    def __init__(self, path: str, boundary: re.Pattern[bytes], start: int, end: int):
        """`boundary` matches from the end of an event to the start of the next."""
        self.path, self.start, self.end, self._boundary = path, start, end, boundary

    def __iter__(self) -> Iterator[bytes]:
        blocks = self._from_start()
        block, given, length = next(blocks, b""), 0, self.end - self.start
        if self.start:
            block = _filled(block, blocks, WINDOW_BYTES)
            given = self._cut(block, 0).end()
            block = block[given:]
        while block and given + len(block) < length:
            yield block
            given += len(block)
            if self.progress:
                self.progress(given / length)
            block = next(blocks, b"")
        if given > length:
            raise NotATraceError(f"{self.path}: an event is longer than a part")
        block = _filled(block, blocks, length - given + WINDOW_BYTES)
        cut = self._cut(block, length - given)
        yield block[: cut.start() + 1]
        if self.is_last:
            self.rest = _filled(block[cut.end() :], blocks, 2 * END_BYTES + WINDOW_BYTES)
            if next(blocks, b""):
                raise NotATraceError(f"{self.path}: longer than it says itself")

    def _cut(self, data: bytes, position: int) -> re.Match[bytes]:
        """Return where the first event behind `position` begins: the part before it and the one that begins here find the
        same.
        """
        found = self._boundary.search(data, position, position + WINDOW_BYTES)
        if found is None:
            raise NotATraceError(f"{self.path}: no event ends near by")
        return found

    def _from_start(self) -> Iterator[bytes]:
        """Yield the bytes from `start` on."""
        with open(self.path, "rb") as file:
            if file.read(2) != GZIP_MAGIC:
                file.seek(self.start)
                while block := file.read(BLOCK_BYTES):
                    yield block
                return
        skipped = 0
        with open_blocks(self.path, ahead=False) as blocks:
            for block in blocks:
                if skipped < self.start:
                    skipped, block = skipped + len(block), block[max(self.start - skipped, 0) :]
                if block:
                    yield block
            self.damage = blocks.damage


def _filled(data: bytes, blocks: Iterator[bytes], size: int) -> bytes:
    """`data` with so many of the blocks behind it that it is as long as `size`, if there are as many."""
    every, length = [data], len(data)
    while length < size and (block := next(blocks, b"")):
        every.append(block)
        length += len(block)
    return b"".join(every)


def cut(source: str, boundary: re.Pattern[bytes], progress: Callable[[float], None] | None) -> list[Part]:
    """Return the parts of a file, which take about the same time. None for one that is small or no plain file, or where no
    processes can be started.
    """
    try:
        if not os.path.isfile(source):
            return []
        with open(source, "rb") as file:
            if form_of(file.read(BEGINNING_BYTES)) is not None:
                return []
        size, is_zipped = _unzipped_bytes(source)
    except (OSError, ValueError):
        return []
    if size < LARGE_BYTES or (parts := min(usable_processes(), MOST_PARTS)) < 2:
        return []
    # Each process unzips what is before its part, too: the later ones are smaller. The first part is not sent.
    weights = [(UNZIPPED_SHARE**number if is_zipped else 1) * (SENT_SHARE if number else 1) for number in range(parts)]
    ends = [int((size - END_BYTES) * done / sum(weights)) for done in accumulate(weights, initial=0)]
    every = [Part(source, boundary, *limits) for limits in pairwise(ends)]
    every[0].progress, every[-1].is_last = progress, True
    return every


def _unzipped_bytes(path: str) -> tuple[int, bool]:
    """Return the size of a file, and whether it is zipped: then the unzipped size that stands in its last four bytes (RFC 1952),
    less than the real one where it is several files in a row, or 4 GB and more.
    """
    with open(path, "rb") as file:
        is_zipped = file.read(2) == GZIP_MAGIC
        size = file.seek(0, os.SEEK_END)
        if is_zipped:
            file.seek(max(size - 4, 0))
            size = int.from_bytes(file.read(4), "little")
        return size, is_zipped
