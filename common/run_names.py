"""What a run is called, and the paths of its two artifacts, the trace and the table."""

import argparse
from collections.abc import Mapping, Sequence
import errno
import os
from pathlib import Path
import re
import tempfile
import zlib

ROOT = Path(__file__).resolve().parent.parent
TRACE_SUFFIX = ".json"
TABLE_SUFFIX = ".txt"


def run_tag(*, sizes: Sequence[int | str], dtype: str, warmup: bool, compile: bool, changed: Mapping[str, object]) -> str:
    """The name of a run: `<sizes>_<dtype>_<cold|warm>_<eager|compile>`, then each further setting that was changed.

    `sizes` may end with the choices of a lesson that name the run as the sizes do (a backend).
    A changed setting is appended as `_<flag>-<value>`, a switch as `_<flag>`; two runs share a name only if all
    their settings are equal.
    """
    parts = [*map(str, sizes), dtype, "warm" if warmup else "cold", "compile" if compile else "eager"]
    parts += [flag if value is True else f"{flag}-{_in_a_name(value)}" for flag, value in changed.items()]
    return "_".join(parts)


def _in_a_name(value: object) -> str:
    """A value as part of a file's name: of a path its end, with a sum of the whole, so that no two share one."""
    text = str(value)
    if "/" not in text:
        return text
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', text)[-40:].strip('-.')}-{zlib.crc32(text.encode()):08x}"


def trace_path(args: argparse.Namespace) -> Path:
    return args.trace_dir / f"{args.tag}{TRACE_SUFFIX}{'.gz' if args.gz else ''}"


def table_path(args: argparse.Namespace) -> Path:
    return args.trace_dir / f"{args.tag}{TABLE_SUFFIX}"


def recorded_on_a_gpu(script: str, tag: str) -> Path | None:
    """The gallery's recording of the same script and settings on a GPU, as a path in the clone; None: it has none."""
    path = Path("gallery", "h200", script, f"{tag.removesuffix('_device-cpu')}{TRACE_SUFFIX}")
    return path if (ROOT / path).is_file() else None


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
