"""Which slices a finding or a table's row is about: what lights up in the timeline for it."""

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from trace_reader.analysis.trace.critical_path import PathClass
from trace_reader.link.intervals import merged, without
from trace_reader.model.rows import Rows
from trace_reader.model.slices import ON_GPU, Kind, Region
from trace_reader.report.timeline import Timeline

if TYPE_CHECKING:
    from trace_reader.analysis.jobs.job_facts import JobFacts

MOST_SPANS = 2000


class Light(msgspec.Struct, frozen=True, eq=False):
    """What lights up in one trace's timeline: slices, stretches of time ([n, 2], ns), or a class of the critical path."""

    rows: Rows | None = None
    spans_ns: np.ndarray | None = None
    path: PathClass | None = None


Lights = dict[int, Light]  # by the number of the trace among those that are shown


def rows_named(timeline: Timeline, name: str | None, *kinds: Kind) -> Light | None:
    """Return the slices of this name and these kinds; of the GPU's, without what was carried over from before the recording."""
    trace = timeline.trace
    rows = trace.linked if kinds == ON_GPU else Rows(trace.slices, trace.slices.of(*kinds))
    return None if name is None else Light(rows.where(rows.is_named(lambda other: other == name)))


def place_named(timeline: Timeline, name: str, on_gpu: bool) -> Light | None:
    """Return the annotations of this name, or what was captured in the regions of this name."""
    if not on_gpu:
        return rows_named(timeline, name, Kind.ANNOTATION)
    slices, work = timeline.trace.slices, timeline.trace.linked
    of_name = [isinstance(detail, Region) and detail.name == name for detail in slices.details]
    return Light(work.where(np.array([*of_name, False])[slices.region[work.at]]))


def finding_light(timeline: Timeline, slug: str) -> Light | None:
    """Return all slices that show a finding, or the stretches without one that do; None where the trace does not show it."""
    seen = timeline.reading.seen.get(slug)
    if seen is None:
        return None
    return light_of(timeline, seen.evidence) if seen.gaps is None else spans_light(*seen.gaps)


def white_space_of_gpu(timeline: Timeline) -> Light:
    """Return the stretches of the steps in which nothing runs on the GPU."""
    trace = timeline.trace
    return spans_light(*without((trace.steps.start_ns, trace.steps.end_ns), merged(trace.work.start_ns, trace.work.end_ns)))


def spans_light(start_ns: np.ndarray, end_ns: np.ndarray) -> Light:
    """Return the longest of these stretches."""
    longest = np.sort(np.argsort(start_ns - end_ns, kind="stable")[:MOST_SPANS])
    longest = longest[end_ns[longest] > start_ns[longest]]
    return Light(spans_ns=np.stack([start_ns[longest], end_ns[longest]], axis=1))


def light_of(timeline: Timeline, rows: Rows) -> Light:
    """Slices of the trace; of those of another loading of the file, as functions are, when they are."""
    if rows.slices is timeline.trace.slices:
        return Light(rows)
    return Light(spans_ns=np.stack([rows.start_ns, rows.end_ns], axis=1)[:MOST_SPANS])


def waits_of(job: "JobFacts", place: int) -> Light:
    """Return the longest waits of a rank."""
    return spans_light(*job.waits_ns[place])


def waits_for_straggler(job: "JobFacts") -> Lights:
    """Return where the other ranks waited, if one rank is the straggler; of this one, what it did at the times at which another
    did so: of those whose clocks are known to go as its own, the one that waited longest.
    """
    if job.straggler is None:
        return {}
    late = next(place for place, rank in enumerate(job.ranks) if rank.rank == job.straggler.rank)
    lights = {place: waits_of(job, place) for place in range(len(job.ranks)) if place != late}
    own_ns = job.offset_ns[late]
    tied = {place: offset_ns for place in lights if (offset_ns := job.offset_ns[place]) is not None}
    if own_ns is not None and tied:
        longest = max(tied, key=lambda place: int((job.waits_ns[place][1] - job.waits_ns[place][0]).sum()))
        lights[late] = spans_light(*(side + tied[longest] - own_ns for side in job.waits_ns[longest]))
    return lights
