"""The program's own annotations (record_function, Optimizer.step, DistributedDataParallel.forward ...), by name."""

import msgspec
import numpy as np
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Kind


class AnnotationFacts(msgspec.Struct, frozen=True):
    """All calls of one annotation. `gpu_us` and `launched`: the summed time and the number of what was launched inside it, on its
    thread; the backward pass runs on another thread, and is its own.
    """

    name: str
    calls: int
    total_us: float
    median_us: float
    gpu_us: float
    launched: int


def annotation_facts(trace: Trace) -> tuple[AnnotationFacts, ...]:
    """A row for each name of the CPU's annotations but the steps, the most GPU time first. Takes time by how deep they nest."""
    slices, work = trace.slices, trace.linked.where(trace.linked.call >= 0)
    gpu_ns, launched = np.zeros(len(slices.names), np.int64), np.zeros(len(slices.names), np.int64)
    length = work.end_ns - work.start_ns
    start_ns = slices.start_ns[work.call]
    span = trace.parent[work.call]
    counted: list[np.ndarray] = []  # pairs of work and name that are counted: an annotation inside one of its name adds nothing
    every = np.arange(len(work))
    while (inside := span >= 0).any():
        every, span = every[inside], span[inside]
        around = (slices.kind[span] == Kind.ANNOTATION) & (slices.end_ns[span] > start_ns[every])
        counted.append(every[around] * len(slices.names) + slices.name[span[around]])
        span = trace.parent[span]
    if counted:
        pairs = distinct(np.concatenate(counted)).values
        of_work, names = np.divmod(pairs, len(slices.names))
        np.add.at(gpu_ns, names, length[of_work])
        np.add.at(launched, names, 1)
    facts = []
    rows: Rows
    for (name,), rows in trace.annotations.by(trace.annotations.name):
        gpu_us, count = int(gpu_ns[name]) / 1000, int(launched[name])
        facts.append(AnnotationFacts(slices.names[name], len(rows), rows.total_us, rows.median_us, gpu_us, count))
    return tuple(sorted(facts, key=lambda a: (-a.gpu_us, -a.total_us, a.name)))
