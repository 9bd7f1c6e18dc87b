"""Results on the CPU that are so large that each is memory that the system gives anew."""

import math

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect
from trace_reader.analysis.replay.rounds import broadcast
from trace_reader.analysis.trace.bandwidth import ITEM_BYTES
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, tensors_known
from trace_reader.findings.registry import Seen, a_step, finding, have_nodes, listed, seen_with_time, with_what_is_freed
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows

GIVEN_BACK_BYTES = 32 << 20  # glibc gives this much back when it is freed, however often it is asked for (mallopt(3))
SLOW_BYTES_PER_NS = 12.0  # that are written: of two cores, memory that is there takes 25 and more, new pages 4 (2026-11-29)
LEFT = 0.2  # of an op's time, and of what is freed behind it
FEWEST = 2  # a step
CHEAP = frozenset(
    f"aten::{name}" for name in ("add", "sub", "rsub", "mul", "div", "neg", "abs", "sqrt", "relu", "clamp", "clamp_min",
                                 "clamp_max")
)  # fmt: skip


@finding(
    "large-results-on-cpu",
    "elementwise ops on the CPU, each of which makes a result of 32 MiB or more",
    "the input shapes of aten::add, mul, div and the like",
    "The C library gives memory of 32 MiB and more back to the system as soon as it is freed (glibc). So each such result may be "
    "memory whose pages the system clears first, and that can take longer than the op itself.",
    "Write into memory that is kept: in place (sub_(), mul_(), clamp_()) where nothing else reads the input, or with out= where "
    "the last step's result is no longer needed; or go over the data in parts of a few MB, which stay in the cache.",
    source="https://man7.org/linux/man-pages/man3/mallopt.3.html",
)
def _large_results(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: FEWEST ops or more per step, not in place, that autograd does not keep, and that write slower than memory is."""
    if facts.has_gpu_work or not facts.steps:
        return None
    outer = trace.outer_ops.where(trace.outer_ops.is_named(CHEAP.__contains__))
    outer = outer.where(trace.step_at(outer.start_ns) >= 0)
    outer = outer.where(~have_nodes(trace, outer)) if len(outer) else outer
    found, largest_bytes = [np.empty(0, np.int64)], 0
    for _, rows in outer.by(outer.name, outer.detail):
        size_bytes = _result_bytes(trace, int(rows.at[0]))
        if size_bytes >= GIVEN_BACK_BYTES and _lie_in_order(trace, int(rows.at[0])):
            slow = rows.where(size_bytes < SLOW_BYTES_PER_NS * 1000 * rows.duration_us)
            found.append(slow.at)
            largest_bytes = max(largest_bytes, size_bytes * bool(len(slow)))
    ops = Rows(trace.slices, np.sort(np.concatenate(found)))
    if len(ops) < FEWEST * len(facts.steps):
        return None
    names = listed(f"{len(rows) / len(facts.steps):.3g} x {name}" for name, rows in sorted(ops.by_name(), key=_most_first))
    words = f"{a_step(len(ops), facts, 'result', 'results')} of up to {largest_bytes / 1e6:.0f} MB: {names}"
    return seen_with_time(trace, facts, ops, words, Effect(with_what_is_freed(trace, ops, LEFT), kind=REPLACED))


def _most_first(item: tuple[str, Rows]) -> tuple[int, str]:
    return -len(item[1]), item[0]


def _lie_in_order(trace: Trace, row: int) -> bool:
    """Return whether no matrix is read across its rows, which by itself takes longer; also where strides were not recorded."""
    inputs = inputs_of(trace.slices, row)
    strides = inputs.strides if inputs is not None and isinstance(inputs.strides, tuple) else ()
    return all(list(one) == sorted(one, reverse=True) for one in strides if isinstance(one, tuple))


def _result_bytes(trace: Trace, row: int) -> int:
    """Return how large the result of an elementwise op is, by its inputs that have dimensions; 0 where that is not known."""
    tensors = [tensor for tensor in tensors_known(trace.slices, row) if tensor.shape]
    shape = broadcast(*(tensor.shape for tensor in tensors)) if 0 < len(tensors) <= 2 else None  # a third one: out=
    types = [tensor.type for tensor in tensors]
    decimal = [one for one in types if "int" not in one and one not in ("bool", "long", "short", "signed char", "unsigned char")]
    return math.prod(shape) * max(ITEM_BYTES.get(one, 0) for one in decimal or types) if shape else 0
