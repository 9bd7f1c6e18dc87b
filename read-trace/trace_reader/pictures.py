"""Pictures of traces for programs: what --plot draws, as bytes. Needs matplotlib."""

from collections.abc import Sequence

from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.findings import Reading
from trace_reader.report.timeline import Timeline


def draw_traces(traces: Sequence[Reading], suffix: str = ".png", steps: tuple[int, int] | None = None) -> bytes:
    """Return one trace, or several above each other on one scale, as a .png or .svg file; of these `steps` only, where they are
    given.

    The same traces give the same bytes, with the same matplotlib. Raises LookupError if the window holds nothing.
    """
    from trace_reader.write.trace_picture import PictureRange, plot

    return plot([Timeline(reading) for reading in traces], PictureRange(steps=steps), suffix)


def draw_job(job: JobFacts, suffix: str = ".png", steps: tuple[int, int] | None = None) -> bytes:
    """Return the ranks of a job, a lane each, as a .png or .svg file. Raises LookupError if no rank has these `steps`."""
    from trace_reader.write import job_picture
    from trace_reader.write.trace_picture import PictureRange

    return job_picture.plot(job, PictureRange(steps=steps), suffix)
