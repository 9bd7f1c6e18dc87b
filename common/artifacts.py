"""A run's two artifacts, the trace and the table: both take their names when both are whole."""

import argparse
from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import gzip
import json
import os
from pathlib import Path
import tempfile
import time
from typing import Any

from common.cli import LessonError, tidy_on_signals
from common.device import Device, versions

# What the table has: rows, and characters of a name, as kernels that differ do so well before.
TABLE = {"row_limit": 15, "max_name_column_width": 120, "max_shapes_column_width": 120}


@dataclass
class Files:
    """Where to write the trace and the table; the run's peak memory, in words; `seconds`: how long the writing took."""

    trace: Path
    table: Path
    peak_memory: str | None
    seconds: float = 0.0


@contextlib.contextmanager
def writing(args: argparse.Namespace, device: Device, peak_memory: str | None = None) -> Iterator[Files]:
    """Let the block write two files; at its end both lie under the run's names, or, after an error, neither. The trace begins
    with what its events do not tell: the lesson, its run, the device, the versions and the peak memory.

    Raises LessonError if one of them is not whole.
    """
    start_s = time.perf_counter()
    lesson = {"script": args.run.script, "run": args.run.tag, "device": device.name, "versions": versions()}
    if peak_memory:
        lesson["peak_memory"] = peak_memory
    with tidy_on_signals(), tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder, "trace.json"), Path(folder, "table.txt"), peak_memory)
        yield files
        trace = files.trace.read_bytes() if files.trace.exists() else b""
        table = files.table.read_bytes()
    if not trace.rstrip().endswith(b"}"):  # Kineto only logs that it could not write
        raise LessonError(f"cannot write the trace: no room in the temporary folder {tempfile.gettempdir()}")
    # Kineto writes the path of its file into the trace; the name is enough.
    trace = trace.replace(json.dumps(str(files.trace)).encode(), json.dumps(args.run.trace.name).encode())
    contents = {args.run.trace: with_header(trace, {"lesson": lesson}), args.run.table: table}
    _replace(contents)
    files.seconds = time.perf_counter() - start_s


def add_header(path: Path, header: dict[str, Any]) -> None:
    """Put these entries at the beginning of a written trace. Raises LessonError."""
    data = path.read_bytes()
    _replace({path: with_header(gzip.decompress(data) if path.suffix == ".gz" else data, header)})


def with_header(trace: bytes, header: dict[str, Any]) -> bytes:
    """Return a Chrome trace with these entries at its beginning; as trace_reader.recording.header does it."""
    return b"{" + json.dumps(header)[1:-1].encode() + b"," + trace.lstrip()[1:]


@tidy_on_signals()
def _replace(contents: dict[Path, bytes]) -> None:
    """Write the files beside their names first. Raises LessonError, and earlier files stay."""
    waiting = {path: path.with_name(f".{os.getpid()}{path.name[-100:]}") for path in contents}
    try:
        for path, data in contents.items():
            # Without a time stamp: same trace, same bytes.
            waiting[path].write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        for path, written in waiting.items():
            os.replace(written, os.path.realpath(path))
    except OSError as error:
        folder = next(iter(contents)).parent
        raise LessonError(f"cannot write to {folder}: {error.strerror}; earlier artifacts are kept") from error
    finally:
        for written in waiting.values():
            written.unlink(missing_ok=True)
