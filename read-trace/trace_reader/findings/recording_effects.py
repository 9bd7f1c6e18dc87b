"""What the profiler, the viewer and the recording itself change in a trace."""

from collections import Counter
import re

from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.registry import Seen, finding, listed, named
from trace_reader.link.intervals import has_overlaps
from trace_reader.link.launches import Origin
from trace_reader.link.trace import TOLERANCE_NS, Trace
from trace_reader.names.call_names import begins_capture, is_graph_launch
from trace_reader.names.kernel_names import decode_name
from trace_reader.units import count, us


@finding(
    "annotation-double-count",
    "Self CUDA % above 100%",
    "the annotation's row in the table",
    "The profiler's table lists the annotation's GPU span as a row but leaves it out of the total, so Self CUDA % can exceed "
    "100%.",
    "Ignore the annotation's own device row.",
    trivia=True,
)
def _double_count(trace: Trace, facts: Facts) -> Seen | None:
    total_us = sum(facts.gpu_time_by_origin_us.values())
    spans = {name: rows.total_us for name, rows in trace.gpu_annotations.by_name()}
    name, span_us = max(spans.items(), key=lambda item: (item[1], item[0]), default=("", 0.0))
    if not total_us or span_us <= total_us:
        return None
    seen = f"{name} spans {us(span_us)} on the GPU, {span_us / total_us:.0%} of the summed GPU time"
    return Seen(seen, named(trace.gpu_annotations, name), share=0.0)


@finding(
    "carried-over",
    "more kernels than the steps launched",
    "kernels at the very start of the GPU's lane",
    "The trace holds no launch of this work: it was probably launched before the recording began.",
    "Synchronize before recording starts; here this work counts in no step and in no mean.",
)
def _carried_over(trace: Trace, facts: Facts) -> Seen | None:
    n = facts.gpu_events_by_origin["carried_over"]
    seen = f"{count(n, 'GPU event')} ({us(facts.gpu_time_by_origin_us['carried_over'])}) without a launch in the trace"
    return Seen(seen, trace.work.where(trace.work.origin == Origin.CARRIED_OVER)) if n else None


@finding(
    "graph-launch",
    "many kernels, one launch",
    "cudaGraphLaunch",
    "A CUDA graph replays many kernels with one launch; they have no op of their own.",
    "Count kernels, not launches; --names EAGER.json names what is replayed.",
    trivia=True,
)
def _graph_launch(trace: Trace, facts: Facts) -> Seen | None:
    n = facts.gpu_events_by_origin["graph"]
    launches = trace.calls.where(trace.calls.is_named(is_graph_launch))
    seen = f"{count(n, 'GPU event')} from {count(len(launches), 'graph launch', 'graph launches')}"
    return Seen(seen, launches) if n else None


@finding(
    "capture-trace",
    "launches without a kernel, around a stream capture",
    "what is launched after cudaStreamBeginCapture",
    "A CUDA graph was captured in the recording: captured work runs only when the graph is replayed.",
    "Record after the capture, so that the steps show replays.",
)
def _capture(trace: Trace, facts: Facts) -> Seen | None:
    begins = trace.calls.where(trace.calls.is_named(begins_capture))
    return Seen(count(len(begins), "graph capture"), begins) if len(begins) else None


@finding(
    "crossing-slices",
    "a kernel in the table that the viewer does not show",
    "the stream's lane",
    "These slices partly overlap others on their stream; Perfetto hides such slices.",
    'Turn on "Preserve overlapping events" in Perfetto\'s flags to see them.',
    trivia=True,
)
def _crossing_slices(trace: Trace, facts: Facts) -> Seen | None:
    crossing = crossing_slices(trace)
    if not crossing:
        return None
    labels = listed(dict.fromkeys(decode_name(name).label for name in crossing))
    seen = f"{count(sum(crossing.values()), 'crossing slice')}: {labels}"
    return Seen(seen, named(trace.work, *crossing), share=0.0)


def crossing_slices(trace: Trace) -> Counter[str]:
    """By name: GPU slices that start inside another one of their stream and end after it. Perfetto cannot nest them."""
    crossing: Counter[str] = Counter()
    for _, stream in trace.work.by(trace.work.track):
        if not has_overlaps(stream.start_ns, stream.end_ns, TOLERANCE_NS):
            continue  # as almost all streams are
        ends: list[int] = []  # of those that are open
        for name, start, end in zip(stream.names, stream.start_ns.tolist(), stream.end_ns.tolist(), strict=True):
            while ends and ends[-1] <= start + TOLERANCE_NS:
                ends.pop()
            if ends and end > ends[-1] + TOLERANCE_NS:
                crossing[name] += 1
                ends[-1] = end
            else:
                ends.append(end)
    return crossing


@finding(
    "zero-timestamps",
    "kernels with a start or a duration of 0",
    "the first kernels of the recording",
    "These kernels may have lost their times: some versions of CUPTI lose them at the start of a session.",
    "Do not trust their durations.",
    trivia=True,
)
def _zero_timestamps(trace: Trace, facts: Facts) -> Seen | None:
    if not facts.zero_timestamps:
        return None
    zero = trace.work.where(trace.work.end_ns == trace.work.start_ns)
    version = [int(part) for part in re.findall(r"\d+", facts.versions.get("CUDA runtime", ""))[:2]]
    known = "Do not trust their durations: CUPTI from CUDA 12.6 update 2 to 13.0 is known to do this, and CUDA 13.1 fixes it."
    next = known if [12, 6] <= version < [13, 1] else ""
    return Seen(f"kernels with a start or a duration of 0: {facts.zero_timestamps} of {facts.kernels_total}", zero, next)
