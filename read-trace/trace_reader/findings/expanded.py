"""Views that repeat a tensor, written to memory all the same."""

import math

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import GONE, Effect, all_of, scaled
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.findings.groups import Groups, and_more, the_longest
from trace_reader.findings.registry import Seen, a_step, finding, partly_dropped, seen_with_time
from trace_reader.link.nesting import itself_or_innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, once
from trace_reader.units import by_dimensions

EXPANDS = frozenset(["aten::expand", "aten::expand_as", "aten::broadcast_to"])
COPIES = frozenset(["aten::reshape", "aten::flatten", "aten::contiguous", "aten::clone"])
ATTENTION = "aten::scaled_dot_product_attention"
SOON = 12  # ops, views among them: the values' copy, and views of the queries, stand between the keys' copy and attention
FEW_QUERIES = 16  # per head: then attention takes as long as reading its keys and values
FEWER_HEADS = (
    "Call scaled_dot_product_attention(..., enable_gqa=True), which takes fewer heads of keys and values than of queries, and "
    "leave out the expand and the copy."
)


@finding(
    "expanded-then-copied",
    "a tensor is written several times over",
    "aten::expand, and right behind it aten::reshape, flatten, contiguous or clone with aten::copy_ inside",
    "An expanded view repeats a tensor without memory of its own. Copied, each repetition is written, and the next op reads them "
    "all.",
    "Leave it a view where the next op broadcasts, as matrix products (matmul) and pointwise ops do: no reshape, flatten, "
    "contiguous or clone behind expand.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
def _expanded_then_copied(trace: Trace, facts: Facts) -> Seen | None:
    if not EXPANDS.intersection(trace.op_names) or not facts.steps:
        return None
    groups, faster, takes_fewer = Groups(), [], False
    copying = _that_copy(trace)
    for _, every in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        copies_it = among(every.at, copying) & np.append(False, every.is_named(EXPANDS.__contains__)[:-1])
        written: dict[int, tuple[int, int]] = {}  # by place: the numbers that are written, and how many times each
        for place in np.flatnonzero(copies_it).tolist():
            view, copied = (shapes_of(trace.slices, int(row))[:1] for row in every.at[place - 1 : place + 1])
            if not view or not copied or math.prod(copied[0]) < 2 * max(math.prod(view[0]), 1):
                continue
            written[place] = math.prod(copied[0]), math.prod(copied[0]) // math.prod(view[0])
            words = f"{by_dimensions(view[0])} to {by_dimensions(copied[0])}"
            groups.setdefault((words, 0.0), []).append(int(every.at[place]))
        for place in np.flatnonzero(every.is_named(ATTENTION.__eq__)).tolist() if written else ():
            queries, keys, *_ = [*shapes_of(trace.slices, int(every.at[place])), (), ()]
            near = [written[at] for at in range(max(place - SOON, 0), place) if at in written]
            times = [many for numbers, many in near if numbers == math.prod(keys)]
            takes_fewer |= bool(times)
            if times and len(queries) > 1 and queries[-2] <= FEW_QUERIES:
                faster.append((int(every.at[place]), 1 / max(times)))
    if not groups:
        return None
    (words, _), copies = told = the_longest(trace, groups)
    more = and_more(trace, groups, told[0])
    seen = f"{a_step(len(groups[told[0]]), facts, 'tensor', 'tensors')} from {words}{more}"
    least = partly_dropped(trace, copies)
    read = [scaled(trace.launched_in(Rows(trace.slices, np.array([row]))), left) for row, left in faster]
    found = seen_with_time(trace, facts, copies, seen, Effect(all_of(least, *read), least, GONE))
    return msgspec.structs.replace(found, next=FEWER_HEADS) if found and takes_fewer else found


def _that_copy(trace: Trace) -> np.ndarray:
    """Return the outermost ops that copy a view, in order."""
    is_one = np.zeros(len(trace.slices), bool)
    is_one[trace.outer_ops.at[trace.outer_ops.is_named(COPIES.__contains__)]] = True
    around = itself_or_innermost(trace.slices, trace.parent, trace.ops.at[trace.ops.is_named("aten::copy_".__eq__)], is_one)
    return once(around[around >= 0])
