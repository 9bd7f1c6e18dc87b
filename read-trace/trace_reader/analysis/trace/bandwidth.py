"""How many bytes a kernel has to move through memory: each input read once, the output written once.

Known for copies, whose size the trace has, and for pointwise ops whose inputs were recorded (record_shapes). What is in a
cache already moves faster than memory, so a rate can pass the device's.
"""

import math
from typing import Any

from trace_reader.model.slices import Inputs
from trace_reader.names.op_names import is_device_copy

LARGEST, MOST_DIMENSIONS = 2**48, 64  # elements of a tensor
ITEM_BYTES = {
    "double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2, "long": 8, "long int": 8, "int": 4, "short": 2,
    "short int": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
_OUT_OF_PLACE = (
    "add", "sub", "mul", "div", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "pow", "sin", "cos", "tanh",
    "sigmoid", "relu", "silu", "gelu", "leaky_relu", "clamp", "clamp_min", "clamp_max", "where",
)  # fmt: skip
POINTWISE_OPS = frozenset(
    [f"aten::{op}{way}" for op in _OUT_OF_PLACE for way in ("", "_")] + ["aten::masked_fill_", "aten::copy_", "aten::fill_"]
)


def copied_bytes(name: str, size: int | None) -> int | None:
    """Bytes that a memcpy of `size` bytes moves: inside one device it reads and writes them."""
    if size is None:
        return None
    return 2 * size if is_device_copy(name) else size


def pointwise_bytes(op: str, inputs: Inputs | None) -> int | None:
    """Bytes that the pointwise op reads and writes; None for another op, and where types or shapes do not tell."""
    if op not in POINTWISE_OPS or inputs is None:
        return None
    tensors = list(_tensors(inputs))
    if not tensors or None in tensors:
        return None
    if op == "aten::fill_":
        return _bytes(tensors[0])
    if op == "aten::copy_":
        return _bytes(tensors[0]) + _bytes(tensors[1]) if len(tensors) == 2 else None
    read = sum(map(_bytes, tensors))
    if op.endswith("_"):
        return read + _bytes(tensors[0])
    kinds = {item for _, _, item in tensors if item != "bool"}
    if len(kinds) != 1:  # the output's type would be a promotion
        return None
    (item,) = kinds
    shape = _broadcast([shape for shape, _, _ in tensors])
    return None if shape is None else read + math.prod(shape) * ITEM_BYTES[item]


def _tensors(inputs: Inputs) -> Any:
    """(shape, elements in memory, type) of each input that is a tensor with a shape; None for one that is unclear."""
    if not all(isinstance(part, tuple) for part in (inputs.dims, inputs.types)) or len(inputs.dims) != len(inputs.types):
        return
    strides = inputs.strides if isinstance(inputs.strides, tuple) and len(inputs.strides) == len(inputs.dims) else None
    for number, (shape, item) in enumerate(zip(inputs.dims, inputs.types, strict=True)):
        if shape == ():
            continue  # a number, or a tensor of one; what is no tensor has no shape, either
        rank = len(shape) if isinstance(shape, tuple) else 0
        steps = strides[number] if strides else (1,) * rank
        known = 0 < rank <= MOST_DIMENSIONS and isinstance(steps, tuple) and len(steps) == rank and item in ITEM_BYTES
        if not known or not all(isinstance(n, int) and abs(n) < 2**63 for n in (*shape, *steps)) or math.prod(shape) >= LARGEST:
            yield None
            continue
        # A dimension of stride 0 is an expanded one: its elements are one in memory.
        yield shape, math.prod(n for n, step in zip(shape, steps, strict=True) if step), item


def _bytes(tensor: Any) -> int:
    _, elements, item = tensor
    return elements * ITEM_BYTES[item]


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    rank = max(map(len, shapes))
    columns = list(zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True))
    fits = all(len({n for n in column if n != 1}) <= 1 for column in columns)
    return tuple(next((n for n in column if n != 1), 1) for column in columns) if fits else None
