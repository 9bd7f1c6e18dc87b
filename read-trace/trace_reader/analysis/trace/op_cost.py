"""What an op has to do by its recorded inputs: floating-point operations, and bytes through memory.

Operations are counted as `torch.utils.flop_counter` does: 2 for each multiplication and addition of a product; 2 products for
attention, 5 for its backward pass, which computes the scores again. Unlike there, a causal attention counts half. Bytes: each
input read once, each output written once, as if nothing else went through memory; what a cache holds moves faster. Of a list of
tensors (an optimizer's, what cat joins) the trace does not say the type. docs/coming_from.md compares all this with TraceLens.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
import math
import re
from typing import Any

import msgspec
from trace_reader.analysis.trace.bandwidth import ITEM_BYTES, LARGEST, MOST_DIMENSIONS, pointwise_bytes
from trace_reader.model.slices import Inputs, Slices
from trace_reader.names.op_names import GEMM_OPS

DTYPES = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64", "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
}  # fmt: skip
BYTES = {**ITEM_BYTES, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1}
NO_INPUTS = Inputs((), (), ())

# Where an op's inputs have what a convolution needs: stride, padding and dilation.
_CONVOLUTIONS = {
    "aten::convolution": (3, 4, 5), "aten::_convolution": (3, 4, 5), "aten::cudnn_convolution": (3, 2, 4),
    "aten::miopen_convolution": (4, 3, 5), "aten::mkldnn_convolution": (4, 3, 5), "aten::convolution_overrideable": (3, 4, 5),
    "aten::_conv_depthwise2d": (4, 5, 6), "aten::conv_depthwise3d": (4, 5, 6), "aten::thnn_conv2d": (4, 5, None),
    "aten::_slow_conv2d_forward": (4, 5, None), "aten::slow_conv3d_forward": (4, 5, None),
    "aten::cudnn_convolution_relu": (3, 4, 5),
}  # fmt: skip
_MAY_BE_TRANSPOSED = ("aten::convolution", "aten::_convolution", "aten::convolution_overrideable")
# Of an attention: the first of query, key and value among the inputs, whether heads stand before the sequence, where the inputs
# say that it is causal, and how many products it takes.
_ATTENTIONS = {
    "aten::_flash_attention_forward": (0, False, 8, 2), "aten::_efficient_attention_forward": (0, False, 9, 2),
    "aten::_cudnn_attention_forward": (0, True, 10, 2), "aten::_scaled_dot_product_cudnn_attention": (0, True, 6, 2),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (0, True, 4, 2),
    "aten::_flash_attention_backward": (1, False, 11, 5), "aten::_efficient_attention_backward": (1, False, 14, 5),
    "aten::_cudnn_attention_backward": (1, True, 14, 5), "aten::_scaled_dot_product_cudnn_attention_backward": (1, True, 14, 5),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (1, True, 7, 5),
}  # fmt: skip
# How often the first input's bytes go through memory, at least: read, and written once for an output of its size.
_PASSES = {
    **dict.fromkeys(["aten::native_layer_norm", "aten::_fused_rms_norm", "aten::native_group_norm", "aten::_softmax",
                     "aten::_log_softmax", "aten::cudnn_batch_norm", "aten::native_batch_norm", "aten::miopen_batch_norm",
                     "aten::_batch_norm_with_update", "aten::flip", "aten::cumsum", "aten::tril", "aten::triu",
                     "aten::native_dropout"], 2),
    **dict.fromkeys(["aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward", "aten::native_group_norm_backward",
                     "aten::_softmax_backward_data", "aten::_log_softmax_backward_data", "aten::cudnn_batch_norm_backward",
                     "aten::native_batch_norm_backward", "aten::miopen_batch_norm_backward", "aten::batch_norm_backward",
                     "aten::gelu_backward", "aten::silu_backward", "aten::threshold_backward", "aten::sigmoid_backward",
                     "aten::tanh_backward", "aten::hardswish_backward", "aten::native_dropout_backward"], 3),
    **dict.fromkeys(["aten::sum", "aten::mean", "aten::amax", "aten::amin", "aten::max", "aten::min", "aten::argmax",
                     "aten::argmin", "aten::any", "aten::all", "aten::prod", "aten::var", "aten::std", "aten::var_mean",
                     "aten::linalg_vector_norm", "aten::norm", "aten::logsumexp", "aten::bernoulli_", "aten::normal_"], 1),
}  # fmt: skip


# Of these, the ops that do as much for each element.
_POINTWISE = frozenset(
    f"aten::{name}"
    for name in (
        "gelu_backward", "silu_backward", "threshold_backward", "sigmoid_backward", "tanh_backward", "hardswish_backward",
        "native_dropout", "native_dropout_backward", "flip", "tril", "triu", "bernoulli_", "normal_",
    )
)  # fmt: skip


class Cost(msgspec.Struct, frozen=True):
    """What one call has to do. `kind`: gemm, convolution, attention, pointwise or reduction. None: not known."""

    kind: str
    dtype: str | None
    flop: int | None
    bytes: int | None


class Tensor(msgspec.Struct, frozen=True):
    """An input as recorded: its shape, its type as torch names it, and its bytes in memory."""

    shape: tuple[int, ...]
    type: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES[self.type]


def cost_of(op: str, inputs: Inputs) -> Cost | None:
    """Return what a call of this op with these inputs has to do; None for an op or inputs that are not known."""
    tensors = list(tensors_of(inputs))
    if not any(tensors):
        return None
    try:
        for test, find in _KINDS:
            if test(op):
                return find(op, tensors, inputs)
    except (ArithmeticError, IndexError, TypeError, ValueError):  # other inputs than the op has in the versions that are known
        return None
    return None


def tensors_of(inputs: Inputs) -> Iterator[Tensor | None]:
    """Of each input its shape and type; None for one that is no tensor, or none of a known type."""
    if not isinstance(inputs.dims, tuple) or not isinstance(inputs.types, tuple) or len(inputs.dims) != len(inputs.types):
        return
    for shape, item in zip(inputs.dims, inputs.types, strict=True):
        is_shape = isinstance(shape, tuple) and 0 < len(shape) <= MOST_DIMENSIONS and all(map(_is_size, shape))
        is_shape = is_shape and math.prod(shape) < LARGEST
        yield Tensor(shape, item) if is_shape and isinstance(item, str) and item in BYTES else None


def inputs_of(slices: Slices, row: int) -> Inputs | None:
    """Return an op's inputs, where they were recorded."""
    detail = int(slices.detail[row])
    inputs = slices.details[detail] if detail >= 0 else None
    return inputs if isinstance(inputs, Inputs) else None


def tensors_known(slices: Slices, row: int) -> list[Tensor]:
    """Return an op's inputs that are tensors, as far as they were recorded."""
    inputs = inputs_of(slices, row)
    return [tensor for tensor in tensors_of(inputs) if tensor] if inputs is not None else []


def shapes_of(slices: Slices, row: int) -> list[tuple[int, ...]]:
    """Return the shapes of an op's inputs that are tensors, as far as they were recorded."""
    return _shapes_by_detail(slices)[0][slices.detail[row]]


@lru_cache(maxsize=4)
def _shapes_by_detail(slices: Slices) -> tuple[list[list[tuple[int, ...]]], list[list[tuple[int, ...]]]]:
    """Return for each of the details the shapes of the inputs that are tensors, and of all inputs, each one's of a list; behind
    them, at -1, those of none. Kept for the traces asked of last: rules ask for op after op, and many ops are alike.
    """
    of_tensors, within = list[list[tuple[int, ...]]](), list[list[tuple[int, ...]]]()
    for inputs in slices.details:
        known = inputs if isinstance(inputs, Inputs) and isinstance(inputs.dims, tuple) else NO_INPUTS
        of_tensors.append([tensor.shape for tensor in tensors_of(known) if tensor])
        within.append([shape for one in known.dims if isinstance(one, tuple) for shape in _shapes_in(one)])
    return [*of_tensors, []], [*within, []]


def shapes_of_first(slices: Slices, row: int) -> list[tuple[int, ...]]:
    """Return the shape of an op's first input, each one's of a list of tensors."""
    inputs = inputs_of(slices, row)
    return _shapes_in(inputs.dims[0]) if inputs is not None and isinstance(inputs.dims, tuple) and inputs.dims else []


def shapes_within(slices: Slices, row: int) -> list[tuple[int, ...]]:
    """Return the shapes of all of an op's inputs, each one's of a list of tensors."""
    return _shapes_by_detail(slices)[1][slices.detail[row]]


def _shapes_in(dims: Any) -> list[tuple[int, ...]]:
    shapes = [dims] if isinstance(dims, tuple) and dims and isinstance(dims[0], int) else dims
    return [shape for shape in shapes if isinstance(shape, tuple) and all(type(n) is int for n in shape)]


def whole_numbers(inputs: Inputs) -> list[int]:
    """Return the inputs that are whole numbers, 0 or above."""
    return [int(text) for text in inputs.values or () if isinstance(text, str) and text.isdecimal()]


def size_of_view(inputs: Inputs) -> tuple[int, ...] | None:
    """Return the shape that aten::as_strided makes; None where it was not recorded, or has a minus."""
    text = _value(inputs, 1)
    is_size = isinstance(text, str) and text.startswith("[") and "-" not in text
    return tuple(map(int, re.findall(r"\d+", text))) if is_size else None


def _is_size(n: Any) -> bool:
    return type(n) is int and 0 <= n < LARGEST


def dtype_of(tensors: list[Tensor | None]) -> str | None:
    """Return the one floating-point type of the tensors; None where they have several, or none."""
    found = {DTYPES[tensor.type] for tensor in tensors if tensor and tensor.type in DTYPES}
    return found.pop() if len(found) == 1 else None


def _gemm(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    first = 1 if "add" in op else 0  # of what is multiplied: what is added stands before it, and what is written (mm.out) behind
    a, b = tensors[first : first + 2]
    if a is None or b is None or not len(a.shape) == len(b.shape) >= 2 or a.shape[-1] != b.shape[-2]:
        return None
    out = math.prod(a.shape[:-1]) * b.shape[-1]
    added = tensors[0] if first and _value(inputs, 3) != "0" else None  # beta: by 0 it is not read
    moved = a.bytes + b.bytes + out * BYTES[a.type] + (added.bytes if added else 0)
    return Cost("gemm", dtype_of([a, b]), 2 * out * a.shape[-1], moved)


def _convolution(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    image, weight = tensors[0], tensors[1]
    if image is None or weight is None or len(image.shape) != len(weight.shape):
        return None
    stride, padding, dilation = (_list(inputs, place, len(image.shape) - 2) for place in _CONVOLUTIONS[op])
    if stride is None or padding is None or dilation is None:
        return None
    if op in _MAY_BE_TRANSPOSED and _value(inputs, 6) == "True":
        return _transposed(image, weight, inputs, (stride, padding, dilation))
    sizes = [
        (n + 2 * pad - step_in * (k - 1) - 1) // step + 1
        for n, k, step, pad, step_in in zip(image.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    ]
    out = image.shape[0] * weight.shape[0] * math.prod(sizes)
    flop = 2 * out * math.prod(weight.shape[1:])
    return Cost("convolution", dtype_of([image, weight]), flop, image.bytes + weight.bytes + out * BYTES[image.type])


def _transposed(image: Tensor, weight: Tensor, inputs: Inputs, lists: tuple[list[int], ...]) -> Cost | None:
    """Return a transposed convolution: each element of the image is multiplied with the weights of its channel."""
    more, groups = _list(inputs, 7, len(image.shape) - 2), _value(inputs, 8)
    if more is None or groups is None:
        return None
    sizes = [
        (n - 1) * step - 2 * pad + step_in * (k - 1) + extra + 1
        for n, k, step, pad, step_in, extra in zip(image.shape[2:], weight.shape[2:], *lists, more, strict=True)
    ]
    out = image.shape[0] * weight.shape[1] * int(groups) * math.prod(sizes)
    flop = 2 * image.elements * math.prod(weight.shape[1:])
    return Cost("convolution", dtype_of([image, weight]), flop, image.bytes + weight.bytes + out * BYTES[image.type])


def _convolution_backward(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    grad, image, weight = tensors[:3]
    wanted = re.findall(r"True|False", str(_value(inputs, 10)))[:2]
    if grad is None or image is None or weight is None or len(wanted) != 2 or _value(inputs, 7) == "True":
        return None
    products = wanted.count("True")
    flop = 2 * products * grad.elements * math.prod(weight.shape[1:])
    moved = products * (grad.bytes + image.bytes + weight.bytes)  # of each two are read, and the third is written
    return Cost("convolution", dtype_of([grad, image, weight]), flop, moved)


def _attention(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    first, heads_first, causal_at, products = _ATTENTIONS[op]
    query, key, value = tensors[first : first + 3]
    if query is None or key is None or value is None or not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        return None  # sequences of several lengths stand in one, and the trace does not say where each ends
    at = 2 if heads_first else 1
    asked, kept = query.shape[at], key.shape[at]
    said = _value(inputs, causal_at)
    if said is None:
        return None
    causal = said in ("True", "1", "2")
    if causal and asked != kept:
        return None  # which keys a query then sees differs between kernels
    pairs = asked * (asked + 1) // 2 if causal else asked * kept
    heads = query.shape[0] * query.shape[3 - at]
    backward = products > 2
    width = 3 * query.shape[-1] + 2 * value.shape[-1] if backward else query.shape[-1] + value.shape[-1]
    out = query.bytes // query.shape[-1] * value.shape[-1]
    moved = query.bytes + key.bytes + value.bytes + out
    return Cost("attention", dtype_of([query, key, value]), 2 * heads * pairs * width, moved * (1 + backward))


def served_attention(inputs: Inputs, queries: int, keys: int, pairs: int) -> Cost | None:
    """Return what a server's attention has to do for all requests of a step, by the sums of their lengths, which its inputs do
    not say: the keys and values lie in a cache, here of the inputs' type. `inputs`: query, key and value first, [tokens, ...].
    """
    query, key, value = [*tensors_of(inputs), None, None, None][:3]
    if query is None or key is None or value is None or key.shape[0] != value.shape[0] or not query.shape[0] * key.shape[0]:
        return None
    width, kept = query.elements // query.shape[0], (key.bytes + value.bytes) // key.shape[0]
    moved = 2 * queries * width * BYTES[query.type] + keys * kept
    return Cost("attention", dtype_of([query, key, value]), 4 * width * pairs, moved)


def _passes(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    first = next(filter(None, tensors), None)
    if first is None or (op in ("aten::max", "aten::min") and sum(tensor is not None for tensor in tensors) > 1):
        return None  # of two tensors it is the larger elements, not the largest one
    kind = "pointwise" if op in _POINTWISE else "reduction"
    return Cost(kind, DTYPES.get(first.type), None, _PASSES[op] * first.bytes)


def _embedding(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    table, places = tensors[:2]
    if table is None or places is None:
        return None
    if op == "aten::embedding_dense_backward":  # the gradient of each place; the table's is written, most of it with zeros
        rows = int(str(_value(inputs, 2)))
        return Cost("pointwise", DTYPES.get(table.type), None, table.bytes + rows * table.shape[-1] * BYTES[table.type])
    row = table.shape[-1] * BYTES[table.type]
    return Cost("pointwise", DTYPES.get(table.type), None, 2 * places.elements * row + places.bytes)


def _pointwise(op: str, tensors: list[Tensor | None], inputs: Inputs) -> Cost | None:
    moved = pointwise_bytes(op, inputs)
    return None if moved is None else Cost("pointwise", dtype_of(tensors), None, moved)


_KINDS: tuple[tuple[Callable[[str], bool], Callable[[str, list[Tensor | None], Inputs], Cost | None]], ...] = (
    (GEMM_OPS.__contains__, _gemm),
    (_CONVOLUTIONS.__contains__, _convolution),
    ("aten::convolution_backward".__eq__, _convolution_backward),
    (_ATTENTIONS.__contains__, _attention),
    (_PASSES.__contains__, _passes),
    (("aten::embedding", "aten::embedding_dense_backward").__contains__, _embedding),
    (lambda op: True, _pointwise),
)


def _value(inputs: Inputs, place: int) -> Any:
    """Return the recorded value of an input that is no tensor, as text; None where it was not recorded."""
    values = inputs.values
    return values[place] if isinstance(values, tuple) and place < len(values) else None


def _list(inputs: Inputs, place: int | None, length: int) -> list[int] | None:
    """Return an input that is a list of so many integers, which may be written as one for all."""
    if place is None:
        return [1] * length
    found = [int(text) for text in re.findall(r"-?\d+", str(_value(inputs, place) or ""))]
    return found * length if len(found) == 1 else found if len(found) == length else None
