"""Communication by kind of collective and size of its message, from what NCCL's kernels say of themselves."""

import msgspec
import numpy as np
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, median
from trace_reader.model.slices import Collective, Footprint

ELEMENT_BYTES = {
    "BFloat16": 2, "Half": 2, "Float": 4, "Double": 8, "Int": 4, "Long": 8, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip


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
    """Return what a message's bytes are multiplied by to get those that each link carries, as nccl-tests has it in
    PERFORMANCE.md; None for a kind that is not there. Of all-gather, reduce-scatter and all-to-all the bytes are those of all
    ranks together.
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
