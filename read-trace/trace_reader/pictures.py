"""Pictures of traces for programs: what --plot draws, as bytes. Needs matplotlib."""

from collections.abc import Sequence

from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.findings import Reading
from trace_reader.report.timeline import Timeline


def draw_traces(traces: Sequence[Reading], suffix: str = ".png", steps: tuple[int, int] | None = None) -> bytes:
    """Draw one trace, or several below each other on one scale, and return the picture as a .png or .svg file. `steps`: the first
    and the last step to draw.

    The same traces give the same bytes with the same version of matplotlib. Raises LookupError if nothing was recorded in the
    window to draw.
    """
    from trace_reader.write.trace_picture import PictureRange, plot

    return plot([Timeline(reading) for reading in traces], PictureRange(steps=steps), suffix)


def draw_job(job: JobFacts, suffix: str = ".png", steps: tuple[int, int] | None = None) -> bytes:
    """Draw the ranks of a job, a lane for each, and return the picture as a .png or .svg file. `steps`: the first and the last
    step to draw. Raises LookupError if no rank has recorded these steps.
    """
    from trace_reader.write import job_picture
    from trace_reader.write.trace_picture import PictureRange

    return job_picture.plot(job, PictureRange(steps=steps), suffix)
