"""The program's own annotations (record_function, Optimizer.step, DistributedDataParallel.forward ...), by name."""

import msgspec
import numpy as np
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import NO_CORRELATION, Kind


class AnnotationFacts(msgspec.Struct, frozen=True):
    """All calls of one annotation. `gpu_us` and `launched`: the summed time and the number of what was launched inside it, on its
    thread. `backward_us`: the summed GPU time of the backward pass of what was done inside it, which runs later and on another
    thread; linked by autograd's sequence numbers, and None where the trace has none.
    """

    name: str
    calls: int
    total_us: float
    median_us: float
    gpu_us: float
    launched: int
    backward_us: float | None


def annotation_facts(trace: Trace) -> tuple[AnnotationFacts, ...]:
    """A row for each name of the CPU's annotations but the steps, the most GPU time first. Takes time by how deep they nest."""
    slices, work = trace.slices, trace.linked.where(trace.linked.call >= 0)
    gpu_ns, launched = _by_name(trace, work.call, work.end_ns - work.start_ns)
    forward, backward = _forward_ops(trace, work)
    backward_ns, _ = _by_name(trace, forward, (work.end_ns - work.start_ns)[backward])
    facts = []
    rows: Rows
    for (name,), rows in trace.annotations.by(trace.annotations.name):
        later_us = int(backward_ns[name]) / 1000 if len(forward) else None
        found = AnnotationFacts(
            slices.names[name], len(rows), rows.total_us, rows.median_us, int(gpu_ns[name]) / 1000, int(launched[name]), later_us
        )
        facts.append(found)
    return tuple(sorted(facts, key=lambda a: (-a.gpu_us - (a.backward_us or 0.0), -a.total_us, a.name)))


def _by_name(trace: Trace, inner: np.ndarray, length_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each name: the sum of the lengths, and how many there are, whose slice (`inner`, rows) lies in an annotation of the
    name; one inside another of the same name counts once.
    """
    slices = trace.slices
    sum_ns, number = np.zeros(len(slices.names), np.int64), np.zeros(len(slices.names), np.int64)
    start_ns, span = slices.start_ns[inner], trace.parent[inner]
    counted: list[np.ndarray] = []  # pairs of a place and a name
    every = np.arange(len(inner))
    while (inside := span >= 0).any():
        every, span = every[inside], span[inside]
        around = (slices.kind[span] == Kind.ANNOTATION) & (slices.end_ns[span] > start_ns[every])
        counted.append(every[around] * len(slices.names) + slices.name[span[around]])
        span = trace.parent[span]
    if counted:
        places, names = np.divmod(distinct(np.concatenate(counted)).values, len(slices.names))
        np.add.at(sum_ns, names, length_ns[places])
        np.add.at(number, names, 1)
    return sum_ns, number


def _forward_ops(trace: Trace, work: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The ops (rows) of the forward pass whose backward pass launched work, and the places of that in `work`.

    Of the ops with the sequence number of a node, the one that began last made it: the next op has a larger number.
    """
    slices = trace.slices
    number = np.where(slices.kind == Kind.OP, slices.correlation, NO_CORRELATION)
    is_backward = (number < 0) & (number > NO_CORRELATION)
    forward = np.flatnonzero(number >= 0)
    place = innermost(slices, trace.parent, work.call, is_backward)
    backward = np.flatnonzero(place >= 0)
    if not len(backward) or not len(forward):
        return forward[:0], backward[:0]
    order = forward[np.argsort(number[forward], kind="stable")]
    wanted = -1 - number[place[backward]]
    at = np.searchsorted(number[order], wanted, "right") - 1
    found = order[np.maximum(at, 0)]
    fits = (at >= 0) & (number[found] == wanted) & (slices.start_ns[found] < slices.start_ns[place[backward]])
    return found[fits], backward[fits]
