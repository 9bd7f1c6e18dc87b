"""Allocated memory over time, its peak, and what was alive at it; of a trace with allocations (profile_memory=True)."""

from collections import defaultdict
from typing import NamedTuple

import msgspec
import numpy as np
from trace_reader.analysis.trace.time_by_place import is_numbered
from trace_reader.link.backward import forward_ops
from trace_reader.link.nesting import spans_at
from trace_reader.link.trace import Trace
from trace_reader.model.rows import grouped
from trace_reader.model.slices import NO_NODE, Kind

CPU = 0  # torch's number of this type of device
NEVER = np.iinfo(np.int64).max


class AliveFacts(msgspec.Struct, frozen=True):
    """What one op allocated in one annotation and was not yet freed at the peak. The op is the outermost one in the innermost
    annotation (each None: there was none); what a backward pass allocated has the annotation of the forward op and `, backward`.
    """

    annotation: str | None
    op: str | None
    blocks: int
    bytes: int


class MemoryFacts(msgspec.Struct, frozen=True):
    """The peak of a device's allocated bytes; of the CPU, as far as the trace shows it.

    `before_bytes`: of them, allocated before the recording began. `activation_bytes`: made by the forward pass and not freed
    before the backward pass, `layer_bytes` of these in annotations that end with a number, the `layers`.
    """

    device: str
    peak_bytes: int
    peak_us: float  # from the first slice
    step: str | None  # that is open at the peak
    before_bytes: int
    activation_bytes: int
    layer_bytes: int
    layers: tuple[str, ...]
    alive: tuple[AliveFacts, ...]


class Curve(msgspec.Struct, frozen=True, eq=False):
    """The allocated bytes from each moment (ns from the first slice) on: after the allocations and frees in the places `at` of
    the trace's memory. `first_bytes`: before all of them.
    """

    device: str
    at: np.ndarray
    moment_ns: np.ndarray
    bytes: np.ndarray
    first_bytes: int


def curves(trace: Trace) -> list[Curve]:
    """Return a curve for each device: the GPUs, or the CPU where there is none."""
    memory = trace.memory
    kinds = [kind for kind, _ in memory.devices]
    found = []
    for number, (kind, index) in enumerate(memory.devices):
        if kind == CPU and any(other != CPU for other in kinds):
            continue
        at = np.flatnonzero(memory.device == number)
        total = memory.total_bytes[at]
        if kind == CPU or (total < 0).any():  # what the profiler counts on the CPU begins with the recording
            total = np.cumsum(memory.bytes[at]) + _known_before(memory.address[at], memory.bytes[at])
        first = int(total[0] - memory.bytes[at[0]])
        found.append(Curve("CPU" if kind == CPU else f"GPU {index}", at, memory.at_ns[at], total, first))
    return found


def _known_before(block: np.ndarray, size: np.ndarray) -> int:
    """Return the bytes that were freed and not allocated in the trace."""
    order, starts = grouped(block)
    first = size[order[starts]]
    return -int(first[first < 0].sum())


def memory_facts(trace: Trace) -> tuple[MemoryFacts, ...]:
    """Return a row for each device: the GPUs, or the CPU where there is none."""
    return tuple(_facts(trace, curve) for curve in curves(trace))


def _facts(trace: Trace, curve: Curve) -> MemoryFacts:
    memory, slices = trace.memory, trace.slices
    peak = int(np.argmax(curve.bytes)) if curve.bytes.max() >= curve.first_bytes else -1  # before the first of them
    peak_ns = int(curve.moment_ns[max(peak, 0)])
    freed = _next_of_block(memory.address[curve.at])
    alive = np.flatnonzero((memory.bytes[curve.at[: peak + 1]] > 0) & (freed[: peak + 1] > peak))
    moments = np.append(curve.moment_ns, NEVER)
    at = curve.at[alive]
    spans = spans_at(slices, memory.track[at], memory.at_ns[at])
    backward_ns = np.sort(slices.start_ns[slices.forward_thread > 0])
    groups: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    activations, in_layers, layers = 0, 0, set[str]()
    places = _Places(trace)
    forward, backward = forward_ops(trace.slices, trace.parent, spans[known := np.flatnonzero(spans >= 0)])
    forward_of = dict(zip(known[backward].tolist(), forward.tolist(), strict=True))  # of what a backward pass allocates
    for number, (span, size, freed_ns, moment_ns) in enumerate(
        zip(spans.tolist(), memory.bytes[at].tolist(), moments[freed[alive]].tolist(), memory.at_ns[at].tolist(), strict=True)
    ):
        found = places.of(span)
        annotation = found.annotation
        if number in forward_of and (made_in := places.of(forward_of[number]).annotation):
            annotation = f"{made_in}, backward"
        groups[annotation, found.op].append(size)
        begins = int(np.searchsorted(backward_ns, moment_ns))  # the backward pass after it
        if found.makes_node and number not in forward_of and begins < len(backward_ns) and freed_ns > backward_ns[begins]:
            activations += size
            in_layers += size if found.layer else 0
            layers |= {found.layer} if found.layer else set()
    told = [AliveFacts(*key, len(sizes), sum(sizes)) for key, sizes in groups.items()]
    step = int(trace.step_at(np.array([peak_ns]))[0])
    peak_bytes = int(curve.bytes[peak]) if peak >= 0 else curve.first_bytes
    return MemoryFacts(
        device=curve.device,
        peak_bytes=peak_bytes,
        peak_us=peak_ns / 1000,
        step=trace.steps[step].name if step >= 0 else None,
        before_bytes=max(peak_bytes - sum(found.bytes for found in told), 0),
        activation_bytes=activations,
        layer_bytes=in_layers,
        layers=tuple(sorted(layers, key=lambda name: (len(name), name))),
        alive=tuple(sorted(told, key=lambda found: (-found.bytes, found.annotation or "", found.op or ""))),
    )


class _Place(NamedTuple):
    """Where something is allocated: the innermost annotation and the outermost op in it, the innermost layer, and whether one of
    the ops around makes a node of autograd.
    """

    annotation: str | None
    op: str | None
    layer: str | None
    makes_node: bool


class _Places:
    """The place of each span, worked out once, from the outermost one inwards."""

    def __init__(self, trace: Trace):
        self.slices, self.parent = trace.slices, trace.parent
        self.steps = set(trace.steps.at.tolist())
        self.known: dict[int, _Place] = {-1: _Place(None, None, None, False)}

    def of(self, span: int) -> _Place:
        missing = []
        while span not in self.known:
            missing.append(span)
            span = int(self.parent[span])
        place = self.known[span]
        for row in reversed(missing):
            if row not in self.steps:
                name = self.slices.names[self.slices.name[row]]
                if self.slices.kind[row] == Kind.ANNOTATION:
                    place = _Place(name, None, name if is_numbered(name) else place.layer, place.makes_node)
                else:
                    makes_node = place.makes_node or (self.slices.node[row] != NO_NODE and not self.slices.forward_thread[row])
                    place = _Place(place.annotation, place.op or name, place.layer, makes_node)
            self.known[row] = place
        return place


def _next_of_block(block: np.ndarray) -> np.ndarray:
    """For each allocation or free: the place of the next one of the same block, or how many there are."""
    order, starts = grouped(block)
    following = np.append(order[1:], len(block))
    following[starts[1:] - 1] = len(block)
    found = np.empty(len(block), np.int64)
    found[order] = following
    return found
