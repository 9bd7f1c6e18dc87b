"""A mask for each class, where one pass over the labels counts or sums for all of them."""

from collections import Counter, defaultdict

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, dropped
from trace_reader.analysis.replay.rounds import Shape
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of, tensors_known
from trace_reader.findings.catalogue import INTEGERS
from trace_reader.findings.registry import Seen, finding, seen_with_time
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.units import by_dimensions

SUMS = frozenset(["aten::sum", "aten::mean", "aten::count_nonzero"])
LABELS = INTEGERS | {"unsigned char", "signed char"}  # types
COMPARES, FEWEST_CLASSES = frozenset(["aten::eq", "aten::ne"]), 16
# What is done with a mask, or with several of them.
OF_MASKS = frozenset(
    f"aten::{name}" for name in ("sum", "mean", "any", "all", "count_nonzero", "nonzero", "to", "float", "mul", "index",
                                 "masked_select", "__and__", "__or__", "bitwise_and", "bitwise_or", "bitwise_not",
                                 "logical_and", "logical_or", "logical_not")
)  # fmt: skip


@finding(
    "mask-per-class",
    "a tensor of labels is compared with one number after the other",
    "aten::eq of one shape again and again, with a number as the second input",
    "Each class goes over all labels anew: once for the mask, and once more for each sum or count of it.",
    "Count or sum for all classes in one pass: torch.bincount(labels) (of target * classes + prediction: a confusion matrix, "
    "whose row and column sums are the counts of each class), index_add_ or scatter_add_ with the labels as index.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.bincount.html",
)
def _mask_per_class(trace: Trace, facts: Facts) -> Seen | None:
    """By inputs: FEWEST_CLASSES numbers or more per step, of tensors of whole numbers of one shape, and a sum or count for each.
    The ops that take a mask of that shape go with it.
    """
    if facts.critical_path is None or not facts.steps or not COMPARES & trace.op_names:
        return None
    found = defaultdict[Shape, list[int]](list)
    compared, numbers = 0, set[str]()
    for _, one in trace.outer_ops.by(trace.step_at(trace.outer_ops.start_ns), trace.outer_ops.track):
        of_shape: Shape | None = None
        of_step, seen = defaultdict[Shape, list[int]](list), defaultdict[Shape, set[str]](set)
        calls, sums, taken, changed = Counter[Shape](), Counter[Shape](), set[Shape](), set[Shape]()
        for row, name in zip(one.at.tolist(), one.names, strict=True):
            shapes = shapes_of(trace.slices, row)
            if name in COMPARES and (number := _compared_with(trace, row)) is not None and shapes:
                of_shape = shapes[0]
                changed |= {of_shape} & taken
                seen[of_shape].add(number)
                calls[of_shape] += 1
                of_step[of_shape].append(row)
            elif of_shape is not None and name in OF_MASKS and shapes and shapes[0] == of_shape and _is_mask(trace, row):
                of_step[of_shape].append(row)
                sums[of_shape] += name in SUMS
            elif of_shape is not None and name not in VIEW_OPS:  # it may make other labels
                taken |= {one.shape for one in tensors_known(trace.slices, row) if one.type in LABELS}
        for shape, ops_of_step in of_step.items():
            if shape not in changed and len(seen[shape]) >= FEWEST_CLASSES and sums[shape] >= len(seen[shape]):
                found[shape] += ops_of_step
                compared += calls[shape]
                numbers |= seen[shape]
    if not found:
        return None
    ops = Rows(trace.slices, np.sort(np.array([row for rows in found.values() for row in rows])))
    most = max((len(rows), shape) for shape, rows in found.items())[1]
    words = (
        f"labels ({by_dimensions(most)}) are compared with {len(numbers)} numbers, {compared / len(facts.steps):.3g} times per "
        f"step, with {(len(ops) - compared) / len(facts.steps):.3g} ops on these masks"
    )
    effect = Effect(dropped(ops), kind=REPLACED)
    return seen_with_time(trace, facts, ops, words, effect)


def _is_mask(trace: Trace, row: int) -> bool:
    inputs = inputs_of(trace.slices, row)
    return inputs is not None and tuple(inputs.types[:1]) == ("bool",)


def _compared_with(trace: Trace, row: int) -> str | None:
    """Return the number that a tensor of whole numbers is compared with; None where it is no number, or was not recorded."""
    inputs = inputs_of(trace.slices, row)
    if inputs is None or len(inputs.types) < 2 or inputs.types[0] not in LABELS:
        return None
    return str(inputs.values[1]) if inputs.types[1] == "Scalar" and len(inputs.values or ()) > 1 and inputs.values[1] else None
