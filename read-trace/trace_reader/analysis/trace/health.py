"""Whether a recording is fit to be judged: what in it cannot be, or proves that something is not in it."""

import msgspec
import numpy as np
from trace_reader.analysis.trace.collectives import collectives
from trace_reader.link.impossible_events import ImpossibleEvent, overlapping
from trace_reader.link.launches import Origin
from trace_reader.link.odd_steps import Pause
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import distinct
from trace_reader.model.slices import NO_NODE
from trace_reader.names.kernel_names import is_collective


class Health(msgspec.Struct, frozen=True):
    """What is wrong with a recording. `impossible`: GPU events that end where the next one of their stream begins, earlier than
    the file says. `overlapping`: those that begin while another of their stream runs, where these are many. `early`: those that
    begin before their launch, and `early_us` by how much at most. `outlasting`: synchronizes that go on after all recorded GPU
    work has ended, and `outlasting_us` the longest time of one behind it. `is_unlinked`: no GPU event names its launch. `pauses`:
    what one step waited and the others did not. `mixed_nodes`: autograd's numbers that several nodes have. `collectives`,
    `unnamed_collectives`: how many there are, and how many say nothing of their message.

    Causality, nodes and messages are what torch.profiler._trace_validator asks of a trace, too; its three other rules are of
    `cuda_sync` events, which this reader takes nothing from.
    """

    impossible: tuple[ImpossibleEvent, ...] = ()
    overlapping: int = 0
    early: int = 0
    early_us: float = 0.0
    outlasting: int = 0
    outlasting_us: float = 0.0
    is_unlinked: bool = False
    pauses: tuple[Pause, ...] = ()
    mixed_nodes: int = 0
    collectives: int = 0
    unnamed_collectives: int = 0


def health(trace: Trace) -> Health:
    """Return what is wrong with a trace."""
    waits, work = trace.waits.where(trace.waits.outlasts), trace.work
    tails_us = 0.0
    if len(waits):
        last_ns = np.sort(work.end_ns)
        before_ns = last_ns[np.maximum(np.searchsorted(last_ns, waits.end_ns, "right") - 1, 0)]
        tails_us = float((waits.end_ns - np.maximum(before_ns, waits.start_ns)).max()) / 1000
    unlinked = bool(len(work)) and bool((work.origin == Origin.UNKNOWN).all())
    early_us = trace.early_us
    by_nccl = int(trace.linked.is_named(is_collective).sum())
    named = sum(len(rows) for _, rows in collectives(trace))
    return Health(
        impossible=trace.impossible,
        overlapping=overlapping(trace.work),
        early=len(early_us),
        early_us=float(early_us.max()) if len(early_us) else 0.0,
        outlasting=len(waits),
        outlasting_us=tails_us,
        is_unlinked=unlinked,
        pauses=trace.pauses,
        mixed_nodes=_mixed_nodes(trace),
        collectives=by_nccl,
        unnamed_collectives=max(by_nccl - named, 0),
    )


def _mixed_nodes(trace: Trace) -> int:
    """Return how many of autograd's numbers, each of one forward thread, name backward nodes of several kinds."""
    slices = trace.slices
    nodes = trace.ops.where(trace.ops.is_named(lambda name: name.startswith(EVALUATE)))
    nodes = nodes.where(slices.node[nodes.at] != NO_NODE)
    number = distinct(slices.node[nodes.at]).which
    thread = distinct(slices.forward_thread[nodes.at]).which
    node = distinct(number * (thread.max(initial=0) + 1) + thread).which
    pairs = distinct(node * len(slices.names) + nodes.name).values  # of a node and a name, each once
    return int((distinct(pairs // max(len(slices.names), 1)).counts > 1).sum())
