"""Communication by kind of collective and size of its message, from what NCCL's kernels say of themselves."""

from collections.abc import Callable
from enum import IntEnum
import math

import msgspec
import numpy as np
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, median
from trace_reader.model.slices import Collective, Footprint, Inputs, Kind

ELEMENT_BYTES = {
    "BFloat16": 2, "Half": 2, "Float": 4, "Double": 8, "Int": 4, "Long": 8, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip


# Findings of what a program asks of its collectives: what they save of a job, its replay says, however small their share.
OF_COLLECTIVES = frozenset(
    ["reduced-in-each-pass", "small-buckets", "reduced-late", "collective-is-read", "sync-batch-norm",
     "gathered-again", "sharded-as-one", "collectives-in-float32", "buffers-broadcast",
     "unused-parameters", "stages-in-turn", "uneven-exchange", "on-the-compute-stream"]
)  # fmt: skip
ASKS = ("c10d::", "_c10d_functional::")  # ops of a process group


class Phase(IntEnum):
    """When in a step a collective was asked for: before its backward pass, or one of them (FORWARD), in it, or behind the last.
    Without a backward pass all of a step is FORWARD.
    """

    FORWARD = 0
    BACKWARD = 1
    AFTER = 2


PHASES = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.AFTER: "behind it"}


class CollectiveFacts(msgspec.Struct, frozen=True):
    """All calls of one collective with one size of message, in one group of ranks.

    `bytes` is the larger of what a rank puts in and gets out. The bus bandwidth is that of the median and of the fastest call:
    a call also takes the time in which it waits for the other ranks. Unknown is None.
    """

    name: str
    group: str
    group_size: int | None
    bytes: int | None
    calls: int
    total_us: float
    median_us: float
    min_us: float
    bus_gb_per_s: float | None
    best_bus_gb_per_s: float | None


def collective_facts(trace: Trace) -> tuple[CollectiveFacts, ...]:
    """Return a row for each collective, group and size, the most time first."""
    facts = [_facts(message, rows) for message, rows in collectives(trace)]
    return tuple(sorted(facts, key=lambda c: (-c.total_us, c.name, c.group, c.bytes or 0)))


def collectives(trace: Trace) -> list[tuple[Collective, Rows]]:
    """Return the kernels that say what they communicate, by what they say."""
    details = trace.slices.details
    of_detail = [
        msgspec.structs.replace(detail.collective, sequence=None)
        if isinstance(detail, Footprint) and detail.collective is not None
        else None
        for detail in details
    ]
    numbers = {message: number for number, message in enumerate(dict.fromkeys(message for message in of_detail if message))}
    if not numbers:
        return []
    which = np.array([-1 if message is None else numbers[message] for message in of_detail] + [-1])  # the last for no detail
    number = which[trace.linked.detail]
    every = list(numbers)
    return [(every[n], rows) for (n,), rows in trace.linked.where(number >= 0).by(number[number >= 0])]


def collective_calls(trace: Trace, test: Callable[[Collective], bool] = lambda _: True) -> Rows:
    """Return the kernels of collectives that the steps' ops asked for, of those whose message passes a test, with the columns
    `call`, `step`, `op` (the row of the op of the process group), `phase`, `message` (equal ones have one number), `bytes` and
    `group_size` (0: not said).
    """
    every = [(message, rows.at) for message, rows in collectives(trace) if test(message)]
    at = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows in every)])
    order = np.argsort(at)
    message = np.repeat(np.arange(len(every)), [len(rows) for _, rows in every])[order]
    linked = trace.linked.where(np.searchsorted(trace.linked.at, at[order]))
    slices = trace.slices
    if not len(linked):  # as in most traces
        none = dict.fromkeys(("call", "step", "op", "phase", "message", "bytes", "group_size"), np.zeros(0, np.int64))
        return Rows(slices, linked.at, **none)
    asks = slices.are_named(Kind.OP, lambda name: name.startswith(ASKS))
    op = innermost(slices, trace.parent, linked.call, asks)
    sizes, groups = (np.array(one, np.int64)[message] for one in (
        [message_bytes(message) or 0 for message, _ in every], [message.group_size or 0 for message, _ in every]
    ))  # fmt: skip
    found = Rows(
        slices,
        linked.at,
        call=linked.call,
        step=linked.step,
        op=op,
        phase=_phases(trace, linked.call, linked.step),
        message=message,
        bytes=sizes,
        group_size=groups,
    )
    return found.where((linked.step >= 0) & (linked.call >= 0) & (op >= 0))


def asked_on_the_cpu(trace: Trace, kinds: tuple[str, ...]) -> Rows:
    """Return of a trace without a GPU the steps' ops that ask for collectives of these kinds ("allreduce"), with their `phase`
    and `elements`, where shapes were recorded. In which type these are is not.
    """
    ops = trace.ops.where(
        trace.ops.is_named(lambda name: name.startswith(ASKS) and plain_name(name.rpartition("::")[2]) in kinds)
    )
    ops = ops.where(trace.step_at(ops.start_ns) >= 0)
    details = [trace.slices.details[n] if n >= 0 else None for n in ops.detail.tolist()]
    elements = [_elements(one.dims[:1]) if isinstance(one, Inputs) else 0 for one in details]
    phase = _phases(trace, ops.at, trace.step_at(ops.start_ns))
    return Rows(ops.slices, ops.at, phase=phase, elements=np.array(elements, np.int64))


def _elements(dims: tuple) -> int:
    """Return how many numbers tensors of these shapes have, in lists or not."""
    if dims and all(isinstance(n, int) for n in dims):
        return math.prod(dims)
    return sum(_elements(one) for one in dims if isinstance(one, tuple))


def messages_of(calls: Rows) -> list[Collective]:
    """Return what each of these kernels says of its message."""
    details = (calls.slices.details[number] for number in calls.detail.tolist())
    return [detail.collective for detail in details if isinstance(detail, Footprint) and detail.collective is not None]


def _phases(trace: Trace, calls: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return in which phase of its step each of these calls (rows) is."""
    slices, nodes = trace.slices, trace.nodes
    at_ns = slices.start_ns[calls]
    is_node = slices.are_named(Kind.OP, lambda name: name.startswith(EVALUATE))
    inside = (innermost(slices, trace.parent, calls, is_node) >= 0) | np.isin(slices.track[calls], trace.backward_tracks)
    last_ns = np.full(len(trace.steps) + 1, np.iinfo(np.int64).max)
    of_node = trace.step_at(nodes.start_ns)
    for number in range(len(trace.steps)):
        if (mine := of_node == number).any():
            last_ns[number] = nodes.start_ns[mine].max()
    return np.where(inside, Phase.BACKWARD, np.where(at_ns > last_ns[step], Phase.AFTER, Phase.FORWARD))


def message_bytes(message: Collective) -> int | None:
    """Return the larger of what a rank puts in and gets out, in bytes; None where it is not said."""
    size = ELEMENT_BYTES.get(message.dtype)
    elements = max((n for n in (message.elements_in, message.elements_out) if n is not None), default=0)
    return elements * size if size and elements > 0 else None


def plain_name(name: str) -> str:
    """Return a collective's name without what differs between versions of torch: all_gather, _allgather_base."""
    return name.lower().replace("_", "")


def waits_for_all(name: str) -> bool:
    """Return whether no rank can leave a collective of this kind before the last has come."""
    plain = plain_name(name)
    return not plain.startswith(("broadcast", "gather", "scatter", "send", "recv")) and not (
        plain.startswith("reduce") and "scatter" not in plain
    )


def bus_factor(name: str, ranks: int) -> float | None:
    """Return the factor by which to multiply the bytes of a message to get the bytes that each link carries, as in PERFORMANCE.md
    of nccl-tests; None for an unknown kind of collective, or for fewer than two ranks. For all-gather, reduce-scatter and
    all-to-all, the bytes of the message are those of all ranks together.
    """
    kind = plain_name(name)
    if ranks < 2:
        return None
    for part, factor in (
        ("allreduce", 2 * (ranks - 1) / ranks),
        ("allgather", (ranks - 1) / ranks),
        ("reducescatter", (ranks - 1) / ranks),
        ("alltoall", (ranks - 1) / ranks),
        ("broadcast", 1.0),
        ("reduce", 1.0),
    ):
        if part in kind:
            return factor
    return None


def _facts(message: Collective, rows: Rows) -> CollectiveFacts:
    size, factor = message_bytes(message), bus_factor(message.name, message.group_size or 0)
    median_us, min_us = median(rows.duration_us), float(rows.duration_us.min())

    def rate(duration_us: float) -> float | None:
        return size * factor / duration_us / 1e3 if size and factor and duration_us > 0 else None

    return CollectiveFacts(
        message.name,
        message.group,
        message.group_size,
        size,
        len(rows),
        rows.total_us,
        median_us,
        min_us,
        rate(median_us),
        rate(min_us),
    )
