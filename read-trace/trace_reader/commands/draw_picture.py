"""A picture in a file."""

from pathlib import Path
import re

from trace_reader.commands.load_shown import load_shown
from trace_reader.commands.read_job import expanded, is_job, read_job
from trace_reader.errors import MissingExtraError, NotWrittenError, TraceError
from trace_reader.reading import analyze
from trace_reader.system.files import write_all


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
        from trace_reader.report.picture import Window, plot  # here, because matplotlib takes half a second
    except ImportError as error:
        raise MissingExtraError("--plot needs matplotlib: install read-trace with it, read-trace[plot]") from error
    window, paths = Window(us=window_us, steps=steps), expanded(paths)
    if is_job(paths):
        from trace_reader.report import job_picture

        job, errors = read_job(paths, steps_from, scheduler)
        if errors:
            raise errors[0]
        data = job_picture.plot(job, window, target.suffix)
    elif len(paths) > 2:
        raise TraceError(f"--plot draws one trace, two, or the ranks of a job, got {len(paths)} that are none")
    else:
        traces = [load_shown(path, steps_from) for path in paths]
        data = plot([(trace, analyze(trace)) for trace in traces], window, target.suffix)
    try:
        write_all({target: data})
    except OSError as error:
        raise NotWrittenError(f"{target}: {error.strerror or error}") from error
    return f"wrote {target} ({len(data) / 1024:.1f} KiB)\n"
