"""A picture in a file: --plot."""

from pathlib import Path
import re

from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.read_job import ONE_RANK, expanded, is_job, read_job
from trace_reader.errors import MissingExtraError, TraceError
from trace_reader.reading import examine
from trace_reader.report.timeline import Timeline
from trace_reader.system.files import write_file

ROOFLINE = "roofline"  # a picture of this name is that of the ops by shape


def run(
    paths: list[str],
    target: Path,
    steps: tuple[int, int] | None,
    window_us: tuple[float, float] | None,
    steps_from: re.Pattern[str] | None = None,
    scheduler: str | None = None,
) -> str:
    """Draw one trace, two, or a job's ranks into `target`; says what was written. Raises TraceError, LookupError,
    NotWrittenError.
    """
    try:
        from trace_reader.write.trace_picture import PictureRange, plot  # here, because matplotlib takes half a second
    except ImportError as error:
        raise MissingExtraError("plot needs matplotlib: install read-trace with it, read-trace[plot]") from error
    window, paths = PictureRange(us=window_us, steps=steps), expanded(paths)
    if target.stem == ROOFLINE:
        return _roofline(paths, target, steps_from)
    if is_job(paths) or (scheduler is not None and len(paths) > 1):
        from trace_reader.write import job_picture

        job, errors = read_job(paths, steps_from, scheduler)
        if errors:
            raise errors[0]
        data = job_picture.plot(job, window, target.suffix)
    elif len(paths) > 2:
        raise TraceError(f"plot draws one trace, two, or the ranks of a job, got {len(paths)} that are none")
    elif scheduler is not None:
        raise TraceError(ONE_RANK.format(paths[0]))
    else:
        traces = [load_with_progress(path, steps_from) for path in paths]
        data = plot([Timeline(examine(trace)) for trace in traces], window, target.suffix)
    write_file(target, data)
    return f"wrote {target} ({len(data) / 1024:.1f} KiB)\n"


def _roofline(paths: list[str], target: Path, steps_from: re.Pattern[str] | None) -> str:
    from trace_reader.write import roofline_picture

    if len(paths) != 1:
        raise TraceError(f"plot -o {target.name} draws the ops of one trace, got {len(paths)}")
    data = roofline_picture.plot(examine(load_with_progress(paths[0], steps_from)).facts, target.suffix)
    write_file(target, data)
    return f"wrote {target} ({len(data) / 1024:.1f} KiB)\n"
