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

LARGE_COPY = 1 << 20  # bytes
BUS_GB_PER_S = 1000.0  # PCIe 5 moves 64, NVLink-C2C 450 in one direction


class Health(msgspec.Struct, frozen=True):
    """What is wrong with a recording. `impossible`: GPU events that end where the next one of their stream begins, earlier than
    the file says. `overlapping`: those that begin while another of their stream runs, where these are many. `early`: those that
    begin before their launch, and `early_us` by how much at most. `outlasting`: synchronizes that go on after all recorded GPU
    work has ended, and `outlasting_us` the longest time of one behind it. `outlived`: ops that end after the op that calls them,
    or what a step of the profiler holds, after that, by `outlived_us` at most, which is `outlived_by`. `fastest_copy`: one to or
    from the device, that would move `fastest_copy_gb_per_s`, more than any bus. `is_unlinked`: no GPU event names its launch.
    `pauses`: what one step waited and the others did not. `mixed_nodes`: autograd's numbers that several nodes have.
    `collectives`, `unnamed_collectives`: how many there are, and how many say nothing of their message.

    Causality, nodes and messages are what torch.profiler._trace_validator asks of a trace, too; its three other rules are of
    `cuda_sync` events, which this reader takes nothing from.
    """

    impossible: tuple[ImpossibleEvent, ...] = ()
    overlapping: int = 0
    early: int = 0
    early_us: float = 0.0
    outlasting: int = 0
    outlasting_us: float = 0.0
    outlived: int = 0
    outlived_us: float = 0.0
    outlived_by: str = ""
    fastest_copy: str = ""
    fastest_copy_gb_per_s: float = 0.0
    is_unlinked: bool = False
    pauses: tuple[Pause, ...] = ()
    mixed_nodes: int = 0
    collectives: int = 0
    unnamed_collectives: int = 0


def health(trace: Trace) -> Health:
    """Return what is wrong with a trace."""
    work, tails_us = trace.work, trace.outlasting_us
    inner, outer, later_us = trace.outlived
    worst = int(np.argmax(later_us)) if len(later_us) else 0
    fastest_copy, fastest_gb_per_s = _too_fast_copy(trace)
    unlinked = bool(len(work)) and bool((work.origin == Origin.UNKNOWN).all())
    early_us = trace.early_us
    by_nccl = int(trace.linked.is_named(is_collective).sum())
    named = sum(len(rows) for _, rows in collectives(trace))
    return Health(
        impossible=trace.impossible,
        overlapping=overlapping(trace.work),
        early=len(early_us),
        early_us=float(early_us.max()) if len(early_us) else 0.0,
        outlasting=len(tails_us),
        outlasting_us=float(tails_us.max(initial=0.0)),
        outlived=len(later_us),
        outlived_us=float(later_us.max(initial=0.0)),
        outlived_by=f"{inner.names[worst]} in {outer.names[worst]}" if len(later_us) else "",
        fastest_copy=fastest_copy,
        fastest_copy_gb_per_s=fastest_gb_per_s,
        is_unlinked=unlinked,
        pauses=trace.pauses,
        mixed_nodes=_mixed_nodes(trace),
        collectives=by_nccl,
        unnamed_collectives=max(by_nccl - named, 0),
    )


def _too_fast_copy(trace: Trace) -> tuple[str, float]:
    """Return a copy to or from the device that would be faster than any bus, and its rate; else nothing."""
    copies = trace.work.where(trace.work.is_named(lambda name: "HtoD" in name or "DtoH" in name))
    rates = [
        (one.detail / (one.duration_us * 1000), one.name)
        for one in copies.where(copies.duration_us > 0)
        if isinstance(one.detail, int) and one.detail >= LARGE_COPY
    ]
    rate, name = max(rates, default=(0.0, ""))
    return (name, rate) if rate > BUS_GB_PER_S else ("", 0.0)


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
