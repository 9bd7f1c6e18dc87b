"""Whether the rounds of a loop may need each other's results, by the shapes of what its ops take and make."""

from collections import Counter
import math
import re

import numpy as np
from trace_reader.analysis.replay.places import Candidate, loop_of
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.link.trace import Trace
from trace_reader.names.op_names import VIEW_OPS

Shape = tuple[int, ...]

PRODUCTS = frozenset(["aten::mm", "aten::matmul", "aten::bmm"])
BIAS_FIRST = frozenset(["aten::addmm", "aten::baddbmm", "aten::addbmm"])  # of their inputs
# Of these the first input is what flows, the others are weights; those that stand in _AS_TAKEN make as much as they take.
_WITH_WEIGHTS = frozenset(
    f"aten::{name}" for name in ("linear", "conv1d", "conv2d", "conv3d", "layer_norm", "rms_norm", "group_norm", "batch_norm",
                                 "instance_norm", "prelu")
)  # fmt: skip
_AS_TAKEN = frozenset(
    f"aten::{name}" for name in ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "prelu", "relu", "relu_",
                                 "gelu", "silu", "silu_", "tanh", "tanh_", "sigmoid", "sigmoid_", "softmax", "log_softmax",
                                 "log_sigmoid", "hardtanh", "hardswish", "hardsigmoid", "mish", "selu", "relu6", "leaky_relu",
                                 "elu", "softplus", "dropout", "dropout_", "exp", "log", "log1p", "neg", "sin", "cos", "abs",
                                 "sqrt", "rsqrt", "square", "pow", "reciprocal", "contiguous", "clone", "to", "add", "add_",
                                 "sub", "rsub", "mul", "mul_", "div", "div_", "maximum", "minimum", "lerp", "where",
                                 "masked_fill", "masked_fill_",
                                 "bitwise_not", "logical_not", "clamp", "normalize", "cumsum", "tril", "triu",
                                 "flip", "roll")
)  # fmt: skip
_TURNS = frozenset(["aten::t", "aten::mT"])  # the last two dimensions
_REVERSES = frozenset(["aten::T", "aten::numpy_T"])
_PARTS = frozenset(["aten::split", "aten::chunk", "aten::slice", "aten::narrow"])
_SEVERAL = frozenset(["aten::unbind", "aten::split", "aten::chunk"])
_CONVOLUTIONS = frozenset(["aten::conv1d", "aten::conv2d", "aten::conv3d"])
_POOLS = re.compile(r"aten::(adaptive_)?(max|avg)_pool[123]d$")
_RESHAPES = frozenset(
    f"aten::{name}" for name in ("flatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "unflatten", "t")
)
KEPT: Shape = (-1,)  # the shape of what no op of a round takes
_REDUCTIONS = frozenset(f"aten::{name}" for name in ("mean", "sum", "amax", "amin", "argmax", "argmin", "norm", "var", "std"))


def unchained(trace: Trace, loop: Candidate, each_taken_once: bool = False) -> Candidate | None:
    """Return a loop with those of its runs in which no round takes what the one before made; None where there are none, or shapes
    do not tell. `each_taken_once`: whether it is known that no result has two uses.

    A round takes nothing of the one before if it can be cut at an op so that, from there on, none of what comes from outside
    has a shape that it makes. What is made is taken by one op (of residuals by two: such a round may chain), first of all by the
    next one; where another may have taken a result that is left over, too, a later round may take that one.
    """
    asked = dict[tuple[int, ...], bool]()  # by what the ops of a round have as shapes
    keys = [tuple(trace.slices.detail[rows[0]].tolist()) for rows in loop.runs]
    for key, rows in zip(keys, loop.runs, strict=True):
        if key not in asked:
            asked[key] = _may_chain(trace, rows[0].tolist(), each_taken_once)
    runs = [rows for key, rows in zip(keys, loop.runs, strict=True) if not asked[key]]
    return loop_of(trace, loop.ops, runs) if runs else None


def _may_chain(trace: Trace, of_round: list[int], each_taken_once: bool) -> bool:
    ops = [(trace.slices.names[trace.slices.name[row]], shapes_of(trace.slices, row)) for row in of_round]
    if not all(shapes for _, shapes in ops):
        return True
    taken = [_taken(name, shapes) for name, shapes in ops]
    made = [made_of(*one, after) for one, after in zip(ops, [*taken[1:], taken[0]], strict=True)]
    several = [name in _SEVERAL for name, _ in ops]
    # A view that no op of the round takes is kept in whatever shape: of what comes from outside none may have as many numbers.
    outside = {math.prod(shape) for shapes in taken for shape in shapes if shape not in made}
    made = [KEPT if shape is None and name in _RESHAPES and own and math.prod(own[0]) not in outside else shape
            for shape, (name, _), own in zip(made, ops, taken, strict=True)]  # fmt: skip
    places = range(len(ops))
    return any(shape is None for shape in made) or not any(_is_cut(at, several, taken, made, each_taken_once) for at in places)


def _taken(name: str, shapes: list[Shape]) -> list[Shape]:
    """Return the shapes of what an op takes, without weights."""
    if name in _WITH_WEIGHTS:
        return shapes[:1]
    if name in BIAS_FIRST and len(shapes) > 2 and shapes[0] == _of_matmul(*shapes[1:3]):
        return shapes  # no bias: what is added to
    return shapes[1:] if name in BIAS_FIRST or name == "aten::embedding" else shapes


def made_of(name: str, shapes: list[Shape], following: list[Shape]) -> Shape | None:
    """Return the shape of what an op makes, where these or what the next op takes tell."""
    taken = _taken(name, shapes)
    if name == "aten::linear" and len(shapes) > 1:
        return (*shapes[0][:-1], shapes[1][0])
    if (name in PRODUCTS or name in BIAS_FIRST) and len(taken) > 1:
        return _of_matmul(*taken[-2:])
    if name == "aten::embedding" and len(shapes) > 1:
        return (*shapes[1], shapes[0][-1])
    if name == "aten::scaled_dot_product_attention" and len(shapes) > 2:
        return (*shapes[0][:-1], shapes[2][-1])
    if name in _TURNS and taken and len(taken[0]) > 1:
        return (*taken[0][:-2], taken[0][-1], taken[0][-2])
    if name in _REVERSES and taken:
        return taken[0][::-1]
    if name in _AS_TAKEN and taken:
        return broadcast(*taken)
    return next((shape for shape in following if taken and _may_make(name, shapes, shape)), None)


def broadcast(*shapes: Shape) -> Shape | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _of_matmul(a: Shape, b: Shape) -> Shape | None:
    """Return the shape of a product of two, batches broadcast; None where they do not fit."""
    if not a or not b:
        return None
    batch = broadcast(a[:-2], b[:-2])
    return None if batch is None else (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _may_make(name: str, shapes: list[Shape], shape: Shape) -> bool:
    """Return whether an op that takes these may make one of this shape."""
    whole = math.prod(shapes[0])
    if name in _CONVOLUTIONS:
        return len(shapes) > 1 and len(shape) == len(shapes[0]) and shape[:2] == (shapes[0][0], shapes[1][0])
    if _POOLS.match(name):
        return len(shape) == len(shapes[0]) and shape[:2] == shapes[0][:2]
    if name in ("aten::unbind", "aten::select"):
        return any(shape == shapes[0][:n] + shapes[0][n + 1 :] for n in range(len(shapes[0])))
    if name in _PARTS:
        smaller = [n for n, (part, of_all) in enumerate(zip(shape, shapes[0], strict=False)) if part != of_all]
        return len(shape) == len(shapes[0]) and all(shape[n] < shapes[0][n] for n in smaller) and len(smaller) <= 1
    if name in _REDUCTIONS:
        return math.prod(shape) < whole and not Counter(n for n in shape if n > 1) - Counter(shapes[0])
    return name in VIEW_OPS and math.prod(shape) == whole


def _is_cut(place: int, several: list[bool], taken: list[list[Shape]], made: list[Shape | None], each_taken_once: bool) -> bool:
    """Return whether a round, begun at this op, takes from outside, and nothing of a shape that it makes; if `each_taken_once`,
    that it makes and takes at once itself, it cannot take twice. `several`: of which ops the result is several tensors, which
    may be taken one by one.
    """
    order = [*range(place, len(taken)), *range(place)]
    live, outside, kept, older = Counter[Shape | None](), set[Shape | None](), set[Shape | None](), set[Shape | None]()
    of_the_last = None
    for at in order:
        for shape in taken[at]:
            if shape == of_the_last:
                live[shape] -= 1
                of_the_last = None
            elif live[shape] or shape in kept:
                live[shape] -= shape not in kept
                older.add(shape)
            else:
                outside.add(shape)
        if several[at]:
            kept.add(made[at])
        else:
            live[made[at]] += 1
        of_the_last = None if several[at] else made[at]
    if each_taken_once and not older and not kept:
        return bool(outside) and not any(live[shape] for shape in outside)
    return bool(outside) and not outside.intersection(made) and not any(live[shape] for shape in older)
