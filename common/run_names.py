"""What a run is called, and the paths of its two artifacts, the trace and the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Return the name of a run: `<sizes>_<dtype>_<cold|warm>_<eager|compile>`, then each further setting that was changed.

    `sizes` may end with the choices of a lesson that name the run as the sizes do (a backend).
    A changed setting is appended as `_<flag>-<value>`, a switch as `_<flag>`; two runs share a name only if all
    their settings are equal.
    """
    parts = [*map(str, sizes), dtype, "warm" if warmup else "cold", "compile" if compile else "eager"]
    parts += [flag if value is True else f"{flag}-{_in_a_name(value)}" for flag, value in changed.items()]
    return "_".join(parts)


def _in_a_name(value: object) -> str:
    """Return a value as part of a file's name: of a path its end, with a sum of the whole, so that no two share one."""
    text = str(value)
    if "/" not in text:
        return text
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', text)[-40:].strip('-.')}-{zlib.crc32(text.encode()):08x}"


@dataclass(frozen=True)
class Run:
    """What belongs to a run: the lesson's name, the run's own, its sizes' flags, and where its artifacts lie. `rank`: of a job,
    which process this is.
    """

    script: str
    tag: str
    sizes: tuple[str, ...]
    folder: Path
    is_gzipped: bool
    rank: int | None = None

    @property
    def trace(self) -> Path:
        return self.folder / f"{self.tag}{TRACE_SUFFIX}{'.gz' if self.is_gzipped else ''}"

    @property
    def table(self) -> Path:
        return self.folder / f"{self.tag}{TABLE_SUFFIX}"

    def of_rank(self, rank: int, world: int) -> "Run":
        """Return the same run of one of the job's ranks."""
        tag = self.tag if self.rank is None else self.tag.removesuffix(f"_w{world}_rank{self.rank}")
        return replace(self, tag=f"{tag}_w{world}_rank{rank}", rank=rank)


def recorded_on_a_gpu(script: str, tag: str) -> Path | None:
    """Return the gallery's recording of the same script and settings on a GPU, as a path in the clone; None: it has none."""
    path = Path("gallery", "h200", script, f"{tag.removesuffix('_device-cpu')}{TRACE_SUFFIX}")
    return path if (ROOT / path).is_file() else None


def check_folder(run: Run) -> None:
    """Make the trace folder and see that this run's artifacts can be written there.

    Raises OSError if not. Nothing is left but the folder.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    for path in (run.trace, run.table):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with tempfile.TemporaryFile(dir=run.folder):
        pass
