"""Views that repeat a tensor, written to memory all the same."""

import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import GONE, Effect, all_of, scaled
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of, shapes_within, tensors_known
from trace_reader.findings.groups import Groups, and_more, the_longest
from trace_reader.findings.registry import Seen, a_step, finding, partly_dropped, seen_with_time
from trace_reader.link.nesting import itself_or_innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, once
from trace_reader.names.op_names import GEMM_OPS, VIEW_OPS
from trace_reader.units import by_dimensions

EXPANDS = frozenset(["aten::expand", "aten::expand_as", "aten::broadcast_to"])
COPIES = frozenset(["aten::reshape", "aten::flatten", "aten::contiguous", "aten::clone"])
ATTENTION = "aten::scaled_dot_product_attention"
PRODUCTS = frozenset([*GEMM_OPS, "aten::matmul", "aten::einsum"])  # which write such a view themselves
NEED_IT = frozenset(f"aten::{name}" for name in ("conv1d", "conv2d", "conv3d", "convolution", "index_put"))
HALVES = frozenset(["c10::BFloat16", "c10::Half"])
SOON = 16  # ops, views among them, up to the one that takes the copy
FEW_QUERIES = 16  # per head: then attention takes as long as reading its keys and values
FEWER_HEADS = (
    "Call scaled_dot_product_attention(..., enable_gqa=True), which takes fewer heads of keys and values than of queries, and "
    "leave out the expand and the copy."
)
OF_PRODUCTS = (
    "A batched product writes such a view itself. If these are heads of keys or values, use scaled_dot_product_attention(..., "
    "enable_gqa=True), or make the queries that share a head rows of one product."
)


class _Copy(msgspec.Struct, frozen=True):
    """The copy of a view: its `row`, what is repeated, `whole` and `repeated` (shapes), and the `taker`: the op that takes it."""

    row: int
    whole: tuple[int, ...]
    repeated: tuple[int, ...]
    taker: int

    @property
    def words(self) -> str:
        return f"{by_dimensions(self.whole)} to {by_dimensions(self.repeated)}"

    @property
    def times(self) -> int:
        return math.prod(self.repeated) // math.prod(self.whole)


@finding(
    "expanded-then-copied",
    "a tensor is written several times over",
    "aten::expand, and right behind it aten::reshape, flatten, contiguous or clone with aten::copy_ inside",
    "An expanded view repeats a tensor without memory of its own. Copied, each repetition is written, and what takes it may read "
    "them all.",
    "Leave the expanded tensor a view where the op that takes it broadcasts, as pointwise ops do: no reshape, flatten, "
    "contiguous or clone behind "
    "expand. If heads of queries share heads of keys and values: scaled_dot_product_attention(..., enable_gqa=True).",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
def _expanded_then_copied(trace: Trace, facts: Facts) -> Seen | None:
    if not EXPANDS.intersection(trace.op_names) or not facts.steps:
        return None
    copies = _copies(trace)
    if not copies:
        return None
    groups = Groups()
    for one in copies:
        groups.setdefault((one.words, 0.0), []).append(one.row)
    told, every = the_longest(trace, groups)
    seen = f"{a_step(len(groups[told]), facts, 'tensor', 'tensors')} from {told[0]}{and_more(trace, groups, told)}"
    # What to do with those that are told of, by what takes most of them.
    taken = [one for one in copies if one.words == told[0]]
    of_heads = [one for one in taken if _is_of_heads(trace, one)]
    of_products = [one for one in taken if _name(trace, one.taker) in PRODUCTS]
    times = {one.taker: one.times for one in copies if _is_of_heads(trace, one) and _queries(trace, one.taker) <= FEW_QUERIES}
    least = partly_dropped(trace, every)
    read = [scaled(trace.launched_in(Rows(trace.slices, np.array([row]))), 1 / many) for row, many in times.items()]
    found = seen_with_time(trace, facts, every, seen, Effect(all_of(least, *read), least, GONE))
    if found is None:
        return None
    if 2 * len(of_products) > len(taken):
        because = "a batched product writes such a view itself, and how long another form of it takes is not in a trace"
        return msgspec.structs.replace(found, next=OF_PRODUCTS, effect=None, no_effect=because)
    if 2 * len(of_heads) <= len(taken):
        return found
    if (
        len(trace.work)
        and not {tensor.type for one in of_heads for tensor in tensors_known(trace.slices, one.taker)[:3]} <= HALVES
    ):
        because = "in float32, attention of fewer heads can take longer"
        return msgspec.structs.replace(found, next=f"{FEWER_HEADS} Time both.", effect=None, no_effect=because)
    return msgspec.structs.replace(found, next=FEWER_HEADS)


def _name(trace: Trace, row: int) -> str:
    return trace.slices.names[trace.slices.name[row]]


def _copies(trace: Trace) -> list[_Copy]:
    """Return the copies of expanded views that an op takes soon, by the number of elements, which neither changes it in place nor
    needs a tensor of its own.
    """
    found, copying = [], _that_copy(trace)
    for _, every in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        rows, is_view = every.at.tolist(), every.is_named(VIEW_OPS.__contains__)
        copies_it = among(every.at, copying) & np.append(False, every.is_named(EXPANDS.__contains__)[:-1])
        for place in np.flatnonzero(copies_it).tolist():
            view, copied = (next(iter(shapes_of(trace.slices, row)), ()) for row in rows[place - 1 : place + 1])
            if not _is_repeated(view, copied) or _has_memory(inputs_of(trace.slices, rows[place])):
                continue
            behind = (n for n in range(place + 1, min(place + 1 + SOON, len(rows))) if not is_view[n] and not copies_it[n])
            numbers = math.prod(copied)
            taker = next((rows[n] for n in behind if numbers in map(math.prod, shapes_within(trace.slices, rows[n]))), -1)
            if taker >= 0 and not _name(trace, taker).endswith("_") and _name(trace, taker) not in NEED_IT:
                found.append(_Copy(rows[place], view, copied, taker))
    return found


def _is_repeated(view: tuple[int, ...], copied: tuple[int, ...]) -> bool:
    """Return whether the second shape is the first one's with dimensions of 1 repeated, or with more of them in front."""
    tail = copied[len(copied) - len(view) :]
    fits = len(view) <= len(copied) and all(one in (1, other) for one, other in zip(view, tail, strict=True))
    return fits and math.prod(copied) >= 2 * math.prod(view) > 0


def _has_memory(inputs: Any) -> bool:
    """Return whether an op's first input is known not to repeat its memory: its strides were recorded, and none is 0."""
    strides = inputs.strides if inputs is not None else None
    first = strides[0] if isinstance(strides, tuple) and strides else None
    return isinstance(first, tuple) and bool(first) and 0 not in first


def _is_of_heads(trace: Trace, one: _Copy) -> bool:
    """Return whether attention takes keys or values whose heads are repeated, each for several of the queries' heads."""
    if _name(trace, one.taker) != ATTENTION or len(one.whole) != 5 or one.whole[2] != 1:
        return False
    queries = next(iter(shapes_of(trace.slices, one.taker)), ())
    return len(queries) == 4 and one.whole[1] * one.repeated[2] == queries[1] > one.whole[1] == one.repeated[1]


def _queries(trace: Trace, row: int) -> int:
    """Return how many queries an attention has per head."""
    return next(iter(shapes_of(trace.slices, row)), (0, 0))[-2]


def _that_copy(trace: Trace) -> np.ndarray:
    """Return the outermost ops that copy a view, in order."""
    is_one = np.zeros(len(trace.slices), bool)
    is_one[trace.outer_ops.at[trace.outer_ops.is_named(COPIES.__contains__)]] = True
    around = itself_or_innermost(trace.slices, trace.parent, trace.ops.at[trace.ops.is_named("aten::copy_".__eq__)], is_one)
    return once(around[around >= 0])
