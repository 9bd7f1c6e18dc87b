"""A run's two artifacts, the trace and the table: their bytes, and where they are written."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
import json
from pathlib import Path
import tempfile
import time
from typing import Any
import zlib

from common.cli import LessonError
from common.device import Device, versions
from common.plain_step import PlainStep
from common.run_names import table_path, trace_path
from common.units import human_bytes
from common.watch.interrupts import temporary_folders
from common.watch.whole_files import write_all
import torch

TABLE_ROWS = 15
NAME_WIDTH = 120  # characters; kernels that differ do so well before


@dataclass(frozen=True)
class Artifacts:
    """The bytes of the two files, the seconds that it took to make each, the step without the profiler, if it was timed, and the
    run's peak memory in words."""

    trace: bytes
    trace_s: float
    table: str
    table_s: float
    plain_step: PlainStep | None
    peak_memory: str | None


def export(
    profiler: torch.profiler.profile,
    plain_step: PlainStep | None,
    peak_memory: str | None,
    args: argparse.Namespace,
    device: Device,
) -> Artifacts:
    """The artifacts of what `profiler` recorded; writes only into the system's temporary folder.

    `plain_step` and `peak_memory` go into the trace, which does not tell them otherwise.
    """
    trace, trace_s = _timed(lambda: _trace(profiler, plain_step, peak_memory, args, device))
    table, table_s = _timed(lambda: _table(profiler, args, device))
    return Artifacts(trace, trace_s, table, table_s, plain_step, peak_memory)


def write(artifacts: Artifacts, args: argparse.Namespace) -> None:
    """Write both files, or neither, and print where they are. Raises LessonError."""
    contents = {trace_path(args): artifacts.trace, table_path(args): artifacts.table.encode()}
    try:
        _, write_s = _timed(lambda: write_all(contents))
    except OSError as error:
        raise LessonError(f"cannot write to {args.trace_dir}: {error.strerror}; earlier artifacts are kept") from error
    for (path, data), seconds in zip(contents.items(), (artifacts.trace_s, artifacts.table_s), strict=True):
        print(f"wrote {path} ({human_bytes(len(data))}, {seconds + write_s:.3f} s)")


def _trace(
    profiler: torch.profiler.profile,
    plain_step: PlainStep | None,
    peak_memory: str | None,
    args: argparse.Namespace,
    device: Device,
) -> bytes:
    """The Chrome trace, with what its events do not tell at the top, under the keys `lesson` and `plain_step_us`."""
    lesson = {"script": args.script, "run": args.tag, "device": device.name, "versions": versions()}
    if peak_memory:
        lesson["peak_memory"] = peak_memory
    trace = _chrome_trace(profiler, trace_path(args).name)
    header: dict[str, Any] = {"lesson": lesson}
    if plain_step:
        low, median, high = (round(us, 3) for us in (plain_step.low_us, plain_step.median_us, plain_step.high_us))
        header["plain_step_us"] = {"median": median, "low": low, "high": high, "steps": plain_step.steps}
    said = "".join(f'\n  "{key}": {json.dumps(value)},' for key, value in header.items())
    trace = b"{" + said.encode() + trace.lstrip()[1:]
    return encode(trace, args)


def encode(trace: bytes, args: argparse.Namespace) -> bytes:
    """The bytes of the trace's file: as they are, or gzipped (without a time stamp: same trace, same bytes)."""
    return zlib.compress(trace, 9, wbits=16 + zlib.MAX_WBITS) if args.gz else trace  # gzip.compress differs between Pythons


def _chrome_trace(profiler: torch.profiler.profile, name: str) -> bytes:
    """The Chrome trace, called `name`. Raises LessonError if Kineto could not write it: it only logs that."""
    with tempfile.TemporaryDirectory() as folder:
        temporary_folders.add(folder)
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes() if path.exists() else b""
    temporary_folders.discard(folder)
    if not trace.rstrip().endswith(b"}"):
        raise LessonError(f"cannot write the trace: no room in the temporary folder {tempfile.gettempdir()}")
    # Kineto writes the path of its file into the trace; the name is enough.
    return trace.replace(json.dumps(str(path)).encode(), json.dumps(name).encode())


def _table(profiler: torch.profiler.profile, args: argparse.Namespace, device: Device) -> str:
    averages = profiler.key_averages(group_by_input_shape=args.record_shapes)
    sort_by = "cpu_time_total" if device.type in ("cpu", "mps") else "device_time_total"
    return averages.table(
        sort_by=sort_by, row_limit=TABLE_ROWS, max_name_column_width=NAME_WIDTH, max_shapes_column_width=NAME_WIDTH
    )


def _timed[Made](call: Callable[[], Made]) -> tuple[Made, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start
