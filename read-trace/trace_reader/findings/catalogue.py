"""The catalogue of changes: changes.toml as rules, one for each entry. An entry is a place, by ops and what is around, in and
behind them, and the change that people make there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
import math
from pathlib import Path
import re
import tomllib
from typing import Literal

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import GONE, ONCE, REPLACED, UNSURE, Effect, all_of, dropped
from trace_reader.analysis.replay.rounds import Shape
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import Tensor, inputs_of, shapes_of, shapes_of_first, tensors_of, whole_numbers
from trace_reader.analysis.trace.op_shapes import shapes_in_words
from trace_reader.findings.registry import LEAST_SHARE, Seen, finding, hold, lies_inside, listed, partly_dropped
from trace_reader.findings.verdict import denominator
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct, once
from trace_reader.model.slices import Inputs
from trace_reader.names.op_names import GEMM_OPS, VIEW_OPS
from trace_reader.units import about, us

LEFT_OF_TABLE, LEFT_ON_CPU = 0.1, 0.5  # of the optimizer's time over a table whose gradient is sparse; on a CPU, one was measured
SOON_NS = 2_000_000  # after an op, in which what goes with it begins
MOST_FOLLOW = 3  # ops that go with one, one behind the other
LARGE_TABLE, FEW_ARE_USED = 20_000, 4  # rows; times as many as are looked up
LARGE_VOCABULARY, MANY_ROWS = 8192, 64
INTEGERS_BY_NUMBER = frozenset("01234")  # types, by torch's numbers
LONG_FILTER, LONG_LIST = 256, 64  # taps; tensors
# Rows and columns of a filter; on a CPU: one of 25 saved nothing, cut in two, one of 41 a third of a step (two cores, torch 2.15,
# 2026-11-29). Filters.
WIDE_WINDOW, VERY_WIDE_WINDOW, FEW_CHANNELS = 9, 32, 16
ONTO_FEW = 32  # times as many numbers are put into a tensor as it has
SMALL_SIDE = 64  # rows and columns of a matrix
THIN = 8  # times as long as the inner dimension of a product of low rank are the others, at least
LARGE_SQUARE, MANY_BESIDE = 1024, 4  # rows; times as many as the other side has columns
SMALL_MATRIX = 1 << 16  # elements
SMALL_PRODUCT = 1 << 12  # elements of the larger matrix: below, calling it takes as long
MANY_PAIRS = 1 << 16  # differences
MANY_CHANNELS = 16  # of an image: not those of a first layer
LEAST_LISTED = 32  # of what each number is compared with
LEAST_LENGTH, LARGE_FACTOR, MOST_DIGITS = 512, 100, 8  # of a transform; its largest prime factor; of its length
LEAST_ROWS = 256  # and columns, of what is gathered from its columns
TRANSPOSES, BESIDE = frozenset(f"aten::{name}" for name in ("transpose", "permute", "movedim", "swapaxes", "mT")), 3  # ops
NOT_IN_A_TRACE = "how much of it would be gone is not in a trace"
CASTS = ("aten::to", "aten::_to_copy")
INTEGERS = frozenset(["long int", "int", "short int"])


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of changes.toml, which says what its fields mean."""

    slug: str
    ops: tuple[str, ...]
    symptom: str
    where: str
    means: str
    next: str
    source: str
    change: Literal["gone", "replaced", "once", "unsure", "untold"]
    left: float = 0.0
    outside: str = ""
    inside: str = ""
    kernels: str = ""
    types: tuple[str, ...] = ()
    shape: str = ""
    device: Literal["gpu", "cpu", ""] = ""
    launches: bool | None = None
    phase: Literal["inference", "training", ""] = ""
    calls: int = 1
    alike: bool = False
    not_behind: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    also: str = ""
    spectrum: bool = False
    whole: bool = False
    unless: tuple[str, ...] = ()

    def is_one(self, name: str) -> bool:
        """Return whether an op's name is one of its ops."""
        return name in self.ops or any(
            name.startswith(first) and last in name for first, star, last in (op.partition("*") for op in self.ops) if star
        )


def _large_table(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Many times as many rows as are looked up, by the gradient's shape."""
    rows = max([*whole_numbers(inputs), *(tensor.shape[0] for tensor in tensors if tensor)], default=0)
    gradient = tensors[0] if tensors else None
    looked_up = math.prod(gradient.shape[:-1]) if gradient else 0
    return rows >= LARGE_TABLE and rows >= FEW_ARE_USED * looked_up


def _large_vocabulary(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    return any(tensor is not None and len(tensor.shape) >= 2 and tensor.shape[-1] >= LARGE_VOCABULARY for tensor in tensors)


def _many_logits(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    if len(tensors) < 2 or tensors[0] is None or tensors[1] is None:
        return False
    rows = tensors[0].elements // max(tensors[0].shape[-1], 1)
    return tensors[1].shape[0] >= LARGE_VOCABULARY and rows >= MANY_ROWS


def _of_weights(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Not a batch of pictures, which have bytes without a sign and more than two dimensions, and not what becomes integers."""
    first, kind = next(iter(tensors), None), str((*(inputs.values or ()), "", "")[1])
    return kind not in INTEGERS_BY_NUMBER and (first is None or first.type != "unsigned char" or len(first.shape) == 2)


def _long_filter(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    return len(tensors) > 1 and tensors[1] is not None and tensors[1].shape[-1] >= LONG_FILTER


def _wide_window(tensors: list[Tensor | None], inputs: Inputs, least: int = WIDE_WINDOW) -> bool:
    """A filter of each of a few channels by itself, a wide square, without a bias: those of layers are of many channels."""
    filters = tensors[1] if len(tensors) > 1 else None
    has_bias = any(tensor is not None for tensor in tensors[2:3])
    if filters is None or has_bias or len(filters.shape) != 4 or filters.shape[1] != 1 or tensors[0] is None:
        return False
    if tensors[0].shape[-3:-2] != filters.shape[:1]:  # a layer that makes several channels of one
        return False
    return filters.shape[0] <= FEW_CHANNELS and min(filters.shape[2:]) >= least


def _wide_pool(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """A window of at least WIDE_WINDOW rows and columns, which goes on by one position, over far more of them."""
    window, stride = ([int(n) for n in re.findall(r"\d+", str(text))] for text in (*(inputs.values or ()), "", "", "")[1:3])
    if len(window) != 2 or min(window) < WIDE_WINDOW or stride != [1, 1] or not tensors or tensors[0] is None:
        return False
    return all(size >= 2 * own for size, own in zip(tensors[0].shape[-2:], window, strict=False))


def _many_onto_few(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Many times as many numbers are put as there are places: they come to a place one after the other."""
    known = [tensor.elements for tensor in tensors if tensor is not None]
    return len(known) > 1 and known[-1] >= ONTO_FEW * max(known[0], 1)


def _small_matrix(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    shapes = [tensor.shape for tensor in tensors if tensor is not None]
    return bool(shapes) and len(shapes[0]) == 2 and all(max(shape, default=0) <= SMALL_SIDE for shape in shapes)


def _long_list(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    first = inputs.dims[0] if isinstance(inputs.dims, tuple) and inputs.dims else ()
    return isinstance(first, tuple) and len(first) >= LONG_LIST and all(isinstance(one, tuple) for one in first)


def _mask(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    mask = tensors[3] if len(tensors) > 3 else None
    return mask is not None and len(mask.shape) >= 2


def _padding_mask(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    mask = tensors[3] if len(tensors) > 3 else None
    return mask is not None and len(mask.shape) == 4 and mask.shape[1:3] == (1, 1) and mask.shape[3] > 1


def _matrices(tensors: list[Tensor | None]) -> tuple[int, int, int, int] | None:
    """Of a product: how many, rows, inner dimension, columns."""
    found = [tensor.shape for tensor in tensors if tensor is not None and len(tensor.shape) in (2, 3)]
    if len(found) < 2:
        return None
    a, b = found[-2:]
    if a[-1] == b[-2]:
        return (a[0] if len(a) == 3 else 1), a[-2], a[-1], b[-1]
    return (1, int(np.prod(a[:-1])), a[-1], b[0]) if a[-1] == b[-1] else None  # a linear layer's weights lie the other way round


def _low_rank(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    sizes = _matrices(tensors)
    return sizes is not None and min(sizes[1], sizes[3]) >= THIN * sizes[2] and sizes[1] * sizes[3] >= SMALL_MATRIX


def _square(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Of a product, the first side is a large square matrix, and the other has few columns beside it: no layer with a square
    weight, which is the second side.
    """
    shapes = [tensor.shape for tensor in tensors if tensor is not None][-2:]
    if len(shapes) < 2 or any(len(shape) != 2 for shape in shapes):
        return False
    (rows, inner), (_, columns) = shapes
    return rows == inner >= LARGE_SQUARE and MANY_BESIDE * columns <= rows


def _all_integers(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    matrices = [tensor for tensor in tensors if tensor is not None]
    large = bool(matrices) and max(tensor.elements for tensor in matrices) >= SMALL_PRODUCT
    return large and all(tensor.type in INTEGERS for tensor in matrices)


def _all_pairs(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Each side is broadcast over a dimension that the other one has, and both have the last one."""
    if len(tensors) < 2 or tensors[0] is None or tensors[1] is None:
        return False
    one, other = tensors[0].shape, tensors[1].shape
    rank = max(len(one), len(other))
    one, other = ((1,) * (rank - len(shape)) + shape for shape in (one, other))
    sides = {a > b for a, b in zip(one, other, strict=True) if a != b and 1 in (a, b)}
    pairs = math.prod(max(a, b) for a, b in zip(one, other, strict=True))
    return len(sides) == 2 and one[-1] == other[-1] > 1 and pairs >= MANY_PAIRS


def _contracted(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Each side is broadcast over a dimension that the other one has, and there is one that both have."""
    first, second = (*tensors, None, None)[:2]
    return first is not None and second is not None and bool(_shared(first.shape, second.shape))


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> set[int]:
    """Return the dimensions, counted from the last one (-1), that two shapes share, where each is broadcast over another one and
    MANY_PAIRS numbers are made; else none.
    """
    rank = max(len(one), len(other))
    one, other = ((1,) * (rank - len(shape)) + shape for shape in (one, other))
    sides = {a > b for a, b in zip(one, other, strict=True) if a != b and 1 in (a, b)}
    made = math.prod(max(a, b) for a, b in zip(one, other, strict=True))
    return {n - rank for n in range(rank) if one[n] == other[n] > 1} if len(sides) == 2 and made >= MANY_PAIRS else set()


def _is_over_what_both_have(trace: Trace, product: int, total: int) -> bool:
    """Return whether a sum is over dimensions that both factors of the product have; where these are not recorded, whether the
    last one is such.
    """
    one, other = shapes_of(trace.slices, product)[:2]
    shared, rank, inputs = _shared(one, other), max(len(one), len(other)), inputs_of(trace.slices, total)
    said = re.fullmatch(r"\[([-\d, ]+)\]", str((*(inputs.values or ()), "", "")[1])) if inputs is not None else None
    over = {int(n) for n in said[1].split(",")} if said else {-1}
    return {n - rank if n >= 0 else n for n in over} <= shared


def _channels_first(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Of a convolution of images with many channels, by its strides: a row's numbers follow one another, and not a pixel's. One
    over a sequence (conv1d) comes as an image of one row.
    """
    if not tensors or tensors[0] is None or not isinstance(inputs.strides, tuple) or not inputs.strides:
        return False
    image, strides = list(tensors[0].shape), inputs.strides[0]
    return len(image) == 4 == len(strides) and image[1] >= MANY_CHANNELS and min(image[2:]) > 1 and strides[3] == 1 != strides[1]


def _all_with_all(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Two vectors, each as rows and columns of what is compared."""
    if len(tensors) < 2 or tensors[0] is None or tensors[1] is None:
        return False
    one, other = (tensor.shape for tensor in tensors[:2] if tensor)
    long = [math.prod(shape) for shape in (one, other)]
    try:
        both = np.broadcast_shapes(one, other)
    except ValueError:
        return False
    are_vectors = all(n == max(shape) for n, shape in zip(long, (one, other), strict=True))
    return are_vectors and min(long) >= LEAST_LISTED and math.prod(both) == long[0] * long[1] >= MANY_PAIRS


def _columns(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Of a large matrix whose rows lie together, by its strides."""
    if not tensors or tensors[0] is None or not isinstance(inputs.strides, tuple) or not inputs.strides:
        return False
    rows, columns = (*tensors[0].shape, 0, 0)[:2]
    return inputs.strides[0] == (columns, 1) and min(rows, columns) >= LEAST_ROWS


def _width_one(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Of a convolution over all channels (one group) that leaves no position out and adds none, as far as its inputs say."""
    if len(tensors) < 2 or tensors[0] is None or tensors[1] is None or len(tensors[1].shape) != 3:
        return False
    _, channels, width = tensors[1].shape
    stride, padding = (*(inputs.values or ()), *[""] * 5)[3:5]
    is_plain = stride in ("", "[1]") and padding in ("", "[0]", "same", "valid")
    return width == 1 and channels >= MANY_CHANNELS and tensors[0].shape[-2:-1] == (channels,) and is_plain


def _vector(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Of which a diagonal matrix is made: of a matrix, diag takes the diagonal."""
    return bool(tensors) and tensors[0] is not None and len(tensors[0].shape) == 1 and tensors[0].elements >= LEAST_LISTED


def _square_result(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """A product whose result is a square matrix, larger than its factors are."""
    sizes = _matrices(tensors)
    return sizes is not None and sizes[1] == sizes[3] >= 2 * sizes[2] and sizes[1] * sizes[3] >= SMALL_MATRIX


def _accumulates(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    return "True" in (inputs.values or ())[3:4]


def _odd_length(tensors: list[Tensor | None], inputs: Inputs) -> bool:
    """Of a transform whose length has a large prime factor: of the dimensions that it says; one back to real numbers says it."""
    shape = inputs.dims[0] if isinstance(inputs.dims, tuple) and inputs.dims else ()
    over, _, *said = (*(inputs.values or ()), "", "", "")[1:]
    said = [text for text in said if isinstance(text, str) and text.isdecimal()]
    places = [int(n) for n in re.findall(r"\d{1,2}", str(over))]
    lengths = [shape[n] for n in places if isinstance(shape, tuple) and n < len(shape) and isinstance(shape[n], int)]
    lengths = [*lengths[:-1], *(int(text) for text in said[-1:] if len(text) < MOST_DIGITS)] if said else lengths
    return any(LEAST_LENGTH <= n < 10**MOST_DIGITS and _largest_factor(n) >= LARGE_FACTOR for n in lengths)


def _largest_factor(n: int) -> int:
    """Return the largest prime factor of a number."""
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            largest, n = factor, n // factor
        factor += 1
    return max(largest, n)


_SHAPES: dict[str, Callable[[list[Tensor | None], Inputs], bool]] = {
    "all_integers": _all_integers, "all_pairs": _all_pairs, "contracted": _contracted, "channels_first": _channels_first,
    "large_table": _large_table, "large_vocabulary": _large_vocabulary, "mask": _mask, "low_rank": _low_rank,
    "many_logits": _many_logits, "long_filter": _long_filter, "long_list": _long_list, "square": _square,
    "wide_window": _wide_window, "very_wide_window": partial(_wide_window, least=VERY_WIDE_WINDOW),
    "small_matrix": _small_matrix, "many_onto_few": _many_onto_few, "wide_pool": _wide_pool,
    "padding_mask": _padding_mask, "width_one": _width_one, "all_with_all": _all_with_all, "columns": _columns,
    "of_weights": _of_weights, "vector": _vector, "square_result": _square_result, "accumulates": _accumulates,
    "odd_length": _odd_length,
}  # fmt: skip
_CHANGES = {"gone": GONE, "replaced": REPLACED, "once": ONCE, "unsure": UNSURE}


def places_of(entry: Entry, trace: Trace, facts: Facts) -> Rows | None:
    """Return the ops of the steps of which an entry speaks, outermost ones; None where there are none of these."""
    if entry.device and (entry.device == "gpu") != facts.has_gpu_work:
        return None
    if entry.phase and (entry.phase == "training") != trace.has_backward:
        return None
    if not any(map(entry.is_one, trace.op_names)):
        return None
    slices = trace.slices
    ops = trace.ops.where(trace.ops.is_named(entry.is_one))
    ops = ops.where(trace.step_at(ops.start_ns) >= 0) if len(trace.steps) else ops
    ops = _of_inputs(entry, ops) if entry.shape != "long_list" else _of_long_lists(entry, trace, ops)
    if entry.alike:
        ops = _alike(entry, trace, ops)
    if entry.shape == "low_rank":
        ops = _whose_result_is_multiplied(trace, ops)
    if entry.shape == "columns":
        ops = _whose_result_has_all_rows(trace, ops)
    if entry.shape == "width_one":
        ops = _beside_transposes(trace, ops)
    ops = Rows(slices, outermost(slices, ops.at))
    if entry.outside and len(ops):
        ops = ops.where(~lies_inside(trace, ops, entry.outside))
    if entry.inside and len(ops):
        ops = ops.where(lies_inside(trace, ops, entry.inside))
    if entry.kernels and len(ops):
        search = re.compile(entry.kernels).search
        launched = trace.launched_in(ops)
        launched = launched.where(launched.is_named(lambda name: search(name) is not None))
        ops = ops.where(hold(ops, slices.track[launched.call], slices.start_ns[launched.call]))
    if entry.launches is not None and len(ops):
        launched = trace.launched_in(ops)
        ops = ops.where(hold(ops, slices.track[launched.call], slices.start_ns[launched.call]) == entry.launches)
    if entry.not_behind and len(ops):
        ops = ops.where(~_is_behind(trace, ops, entry.not_behind))
    if len(ops) < entry.calls * max(len(trace.steps), 1):
        return None
    if entry.followed:
        ops = _followed(entry, trace, ops)
        if len(ops) < entry.calls * max(len(trace.steps), 1):
            return None
    if entry.then:
        ops = _with_what_follows(entry, trace, ops)
    if entry.whole:
        ops = _around(trace, ops)
    return ops


def _of_inputs(entry: Entry, ops: Rows) -> Rows:
    """Return those with inputs of its types and shapes; of a trace without inputs those of an entry that asks for none."""
    if not entry.types and not entry.shape:
        return ops
    kept = []
    for (detail,), rows in ops.by(ops.detail):
        inputs = ops.slices.details[detail] if detail >= 0 else None
        if not isinstance(inputs, Inputs):
            continue
        tensors = list(tensors_of(inputs))
        types = {tensor.type for tensor in tensors if tensor}
        types |= set(_types(inputs))
        if entry.types and not types & set(entry.types):
            continue
        if entry.shape and not _SHAPES[entry.shape](tensors, inputs):
            continue
        kept.append(rows.at)
    return Rows(ops.slices, np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64))


def _alike(entry: Entry, trace: Trace, ops: Rows) -> Rows:
    """Return those of which each step has as many as the entry asks for that are alike: of one name, of inputs of the same
    shapes, and of the same lists of numbers (as the sizes of a whole of which a gradient is a part).
    """
    groups: dict[tuple[int, str, tuple[str, ...]], list[np.ndarray]] = {}
    for (name, detail), rows in ops.by(ops.name, ops.detail):
        inputs = ops.slices.details[detail] if detail >= 0 else None
        if isinstance(inputs, Inputs):
            lists = tuple(str(value) for value in inputs.values or () if str(value).startswith("["))
            groups.setdefault((name, str(inputs.dims), lists), []).append(rows.at)
    least = entry.calls * max(len(trace.steps), 1)
    kept = [found for found in map(np.concatenate, groups.values()) if len(found) >= least]
    return Rows(ops.slices, np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64))


def _is_behind(trace: Trace, ops: Rows, names: tuple[str, ...]) -> np.ndarray:
    """For each op, whether the outer op right before it on its thread, other views apart, has one of these names."""
    found = np.zeros(len(ops), bool)
    outer = trace.outer_ops.where(trace.outer_ops.is_named(lambda name: name in names or name not in VIEW_OPS))
    tracks = dict(outer.by(outer.track))
    for key, one in ops.by(ops.track):
        if (here := tracks.get(key)) is not None:
            before = np.searchsorted(here.at, one.at) - 1
            is_named = np.append(here.is_named(names.__contains__), False)  # the last: of none before it
            found[np.searchsorted(ops.at, one.at)] = is_named[before]
    return found


def _of_long_lists(entry: Entry, trace: Trace, ops: Rows) -> Rows:
    """Return those of long lists: by their shapes, or, where a list is too long to be recorded, by the views that stack makes of
    its tensors, one by one.
    """
    is_one = np.zeros(len(trace.slices), bool)
    is_one[ops.at] = True
    views = trace.ops.at[trace.ops.is_named("aten::unsqueeze".__eq__)]
    around = innermost(trace.slices, trace.parent, views, is_one)
    often = np.bincount(around[around >= 0], minlength=len(trace.slices)) >= LONG_LIST
    found = ops.where(often[ops.at] | among(ops.at, _of_inputs(entry, ops).at))
    part_of = dict(zip(around[::-1].tolist(), views[::-1].tolist(), strict=True))
    lists = {row: _first_of(shapes_of(trace.slices, part_of[row]) if row in part_of else shapes_of_first(trace.slices, row))
             for row in found.at.tolist()}  # fmt: skip
    return found.where(~among(found.at, _made_in_the_step(trace, lists)))


def _first_of(shapes: list[Shape]) -> Shape | None:
    return shapes[0] if shapes else None


def _made_in_the_step(trace: Trace, lists: dict[int, Shape | None]) -> np.ndarray:
    """Return those lists that are joined (rows, each with the shape of one of its tensors) whose tensors ops before them, in
    their step and on their thread, may have made: LONG_LIST of these take what has this shape.
    """
    found = list[int]()
    for every, asked in _asked_in_steps(trace, lists):
        takers, counted, taken = every.where(~every.is_named(VIEW_OPS.__contains__)).at.tolist(), 0, Counter[Shape]()
        for row in asked:
            while counted < len(takers) and takers[counted] < row:
                taken.update(set(shapes_of(trace.slices, takers[counted])))
                counted += 1
            if (shape := lists[row]) is not None and taken[shape] >= LONG_LIST:
                found.append(row)
    return np.array(found, np.int64)


def _asked_in_steps(trace: Trace, asked: Iterable[int]) -> Iterator[tuple[Rows, list[int]]]:
    """Give the outermost ops of each thread and step that holds some of these ops (rows), and these, in order."""
    rows = Rows(trace.slices, np.array(sorted(asked), np.int64))
    outer = dict(trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)))
    for key, some in rows.by(rows.track, trace.step_at(rows.start_ns)):
        if key in outer:
            yield outer[key], some.at.tolist()


def _whose_result_is_multiplied(trace: Trace, ops: Rows) -> Rows:
    """Return those products of two matrices whose result can be what another product takes, by its shape. Not those of batches,
    as attention's scores are, which are as large as a weight where a sequence is as long as an embedding.
    """
    products = trace.ops.where(trace.ops.is_named((*GEMM_OPS, "aten::linear", "aten::matmul").__contains__))
    products = products.where(~lies_inside(trace, products, "^autograd::"))
    taken: dict[tuple[int, ...], set[int]] = {}  # by shape, the inputs of which it is one
    for (detail,), rows in products.by(products.detail):
        inputs = trace.slices.details[detail] if detail >= 0 else None
        for tensor in tensors_of(inputs) if isinstance(inputs, Inputs) else ():
            if tensor is not None and len(tensor.shape) == 2 and len(rows):
                taken.setdefault(tensor.shape, set()).add(detail)
                taken.setdefault(tensor.shape[::-1], set()).add(detail)

    def is_taken(detail: int) -> bool:
        sizes = _matrices(list(tensors_of(trace.slices.details[detail])))
        return sizes is not None and sizes[0] == 1 and bool(taken.get((sizes[1], sizes[3]), set()) - {detail})

    kept = [rows.at for (detail,), rows in ops.by(ops.detail) if is_taken(detail)]
    return Rows(ops.slices, np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64))


def _whose_result_has_all_rows(trace: Trace, ops: Rows) -> Rows:
    """Return those of a matrix behind which an op takes one with as many rows, and other columns."""
    after = _next_on_the_thread(trace.outer_ops, ops)
    pairs = [
        [next(iter(shapes_of(trace.slices, row)), ()) for row in both]
        for both in zip(ops.at.tolist(), after.tolist(), strict=True)
    ]
    return ops.where(np.array([len(b) == 2 and b[0] == a[0] and b[1] != a[1] for a, b in pairs], bool))


def _beside_transposes(trace: Trace, ops: Rows) -> Rows:
    """Return those near which, on their thread, dimensions change places."""
    kept = [np.zeros(0, np.int64)]
    for _, one in trace.outer_ops.by(trace.outer_ops.track):
        turns = np.flatnonzero(one.is_named(TRANSPOSES.__contains__))
        places = np.flatnonzero(among(one.at, ops.at))
        near = np.searchsorted(turns, places + BESIDE, side="right") > np.searchsorted(turns, places - BESIDE)
        kept.append(one.at[places[near]])
    return Rows(ops.slices, np.sort(np.concatenate(kept)))


def _types(inputs: Inputs) -> Iterable[str]:
    """Return the types of the inputs that have a shape."""
    if not isinstance(inputs.dims, tuple) or not isinstance(inputs.types, tuple):
        return []
    return [kind for shape, kind in zip(inputs.dims, inputs.types, strict=False) if shape and isinstance(kind, str)]


def _with_what_follows(entry: Entry, trace: Trace, ops: Rows) -> Rows:
    """Return the ops with those right behind them that go with them: one of its names, on a tensor of the shape that the one
    before makes; MOST_FOLLOW behind each other.
    """
    found, last = ops, ops
    for _ in range(MOST_FOLLOW):
        after = _next_on_the_thread(trace.outer_ops, last)
        is_soon = trace.slices.start_ns[np.maximum(after, 0)] - last.end_ns <= SOON_NS
        goes = (after >= 0) & is_soon & trace.slices.is_named(np.maximum(after, 0), entry.then.__contains__)
        pairs = zip(last.at[goes].tolist(), after[goes].tolist(), strict=True)
        follows = [one for row, one in pairs if _takes(trace, one, _result_shape(trace, row))]
        new = once(np.array(follows, np.int64))
        last = Rows(trace.slices, new[~among(new, found.at)])
        if not len(last):
            break
        found = Rows(trace.slices, once(np.append(found.at, last.at)))
    return found


def _takes(trace: Trace, row: int, shape: tuple[int, ...] | None) -> bool:
    """Return whether an op's first input has this shape, as far as both are known."""
    return shape is None or _first_shape(trace, row) in (shape, None)


def _followed(entry: Entry, trace: Trace, ops: Rows) -> Rows:
    """Return those right behind which, views and casts between them, one of these ops comes on their thread."""
    outer = trace.outer_ops
    outer = outer.where(~outer.is_named(lambda name: (name in VIEW_OPS or name in CASTS) and name not in entry.followed))
    if entry.shape == "many_logits":  # between them, positions may be computed
        outer = outer.where(~np.array([_is_of_whole_numbers(trace, row) for row in outer.at.tolist()], bool))
    after = _next_on_the_thread(outer, ops)
    follows = (after >= 0) & trace.slices.is_named(np.maximum(after, 0), entry.followed.__contains__)
    if entry.shape == "many_logits":
        follows &= np.array([_is_no_index(trace, at) or _takes_few_rows(trace, outer, row, at)
                             for row, at in zip(ops.at.tolist(), after.tolist(), strict=True)], bool)  # fmt: skip
    if entry.shape in ("contracted", "square_result"):
        made = {one: _result_shape(trace, row) for row, one in zip(ops.at.tolist(), after.tolist(), strict=True) if one >= 0}
        follows &= among(after, _that_take_alone(trace, made))
    if entry.shape == "contracted":
        pairs = zip(ops.at.tolist(), after.tolist(), follows.tolist(), strict=True)
        follows = np.array([is_one and _is_over_what_both_have(trace, row, one) for row, one, is_one in pairs], bool)
    return ops.where(follows)


def _is_of_whole_numbers(trace: Trace, row: int) -> bool:
    """Return whether an op takes tensors, and all of them are of whole numbers."""
    inputs = inputs_of(trace.slices, row)
    tensors = [tensor for tensor in tensors_of(inputs) if tensor is not None] if inputs is not None else []
    return bool(tensors) and all(tensor.type in INTEGERS for tensor in tensors)


def _is_no_index(trace: Trace, row: int) -> bool:
    return row < 0 or trace.slices.names[trace.slices.name[row]] != "aten::index"


def _takes_few_rows(trace: Trace, outer: Rows, product: int, index: int) -> bool:
    """Return whether the op behind an index of a product takes as many columns, and half of its rows at most, and no later op of
    the step all of them. `outer`: the outer ops, without views.
    """
    inputs, slices = inputs_of(trace.slices, product), trace.slices
    sizes = _matrices(list(tensors_of(inputs))) if inputs is not None else None
    later = outer.at[(outer.at > index) & (outer.track == slices.track[index])]
    later = later[trace.step_at(slices.start_ns[later]) == trace.step_at(slices.start_ns[[index]])[0]].tolist()
    taken = _first_shape(trace, later[0]) if later else None
    if sizes is None or not taken or taken[-1] != sizes[3] or 2 * math.prod(taken[:-1]) > sizes[1]:
        return False
    return not any(shape and math.prod(shape) == sizes[1] * sizes[3] for row in later for shape in shapes_of(slices, row))


def _that_take_alone(trace: Trace, made: dict[int, Shape | None]) -> np.ndarray:
    """Return those ops (rows, each with the shape of what the op before it makes) that take a tensor of this shape, where no
    later op of their step and thread does, up to the next product (aten::mul) that makes one.
    """
    found = [row for row, shape in made.items() if shape is None]
    known = {row: shape for row, shape in made.items() if shape is not None and _takes(trace, row, shape)}
    wanted = set(known.values())
    for every, asked in _asked_in_steps(trace, known):
        later: dict[Shape, bool] = {}  # by shape, whether the next op that takes or makes one is a product that makes it
        left = asked.copy()
        for row, name in zip(reversed(every.at.tolist()), reversed(every.names), strict=True):
            while left and left[-1] >= row:
                found += [left[-1]] * later.get(known[left[-1]], True)
                left.pop()
            later |= {shape: False for shape in shapes_of(trace.slices, row) if shape in wanted}
            if name == "aten::mul" and (shape := _result_shape(trace, row)) in wanted:
                later[shape] = True
        found += [one for one in left if later.get(known[one], True)]
    return np.sort(np.array(found, np.int64))


def _next_on_the_thread(outer: Rows, ops: Rows) -> np.ndarray:
    """For each op the row of the first of `outer` that begins on its thread when it has ended; -1 for none."""
    found, tracks = np.full(len(ops), -1, np.int64), dict(outer.by(outer.track))
    for key, one in ops.by(ops.track):
        if (here := tracks.get(key)) is not None:
            found[np.searchsorted(ops.at, one.at)] = np.append(here.at, -1)[np.searchsorted(here.start_ns, one.end_ns)]
    return found


def _result_shape(trace: Trace, row: int) -> tuple[int, ...] | None:
    """Return the shape of what an op makes: of a product by its matrices, else of its first two inputs, broadcast."""
    inputs = inputs_of(trace.slices, row)
    if inputs is not None and trace.slices.names[trace.slices.name[row]] in (*GEMM_OPS, "aten::matmul"):
        sizes = _matrices(list(tensors_of(inputs)))
        return None if sizes is None else (sizes[1], sizes[3])
    if trace.slices.names[trace.slices.name[row]] == "aten::one_hot":  # a dimension more, whose size is no shape
        return None
    shapes = shapes_of(trace.slices, row)[:2]
    if trace.slices.names[trace.slices.name[row]] in ("aten::diag", "aten::diag_embed") and shapes:  # of a vector
        return *shapes[0], shapes[0][-1]
    try:
        return np.broadcast_shapes(*shapes) if shapes else None
    except ValueError:
        return shapes[0]


def _first_shape(trace: Trace, row: int) -> tuple[int, ...] | None:
    inputs = inputs_of(trace.slices, row)
    first = next(iter(tensors_of(inputs)), None) if inputs is not None else None
    return first.shape if first else None


def _around(trace: Trace, ops: Rows) -> Rows:
    """Return the outermost ops around these, but for nodes of the backward pass."""
    aten = trace.ops.where(~trace.ops.is_named(lambda name: name.startswith("autograd::")))
    is_outer = np.zeros(len(trace.slices), bool)
    is_outer[outermost(trace.slices, aten.at)] = True
    around = innermost(trace.slices, trace.parent, ops.at, is_outer)
    return Rows(trace.slices, distinct(np.where(around >= 0, around, ops.at)).values.astype(np.int64))


def _rule(entry: Entry, trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None:
        return None
    spans = places_of(entry, trace, facts)
    if spans is None or not len(spans):
        return None
    work = trace.launched_in(spans)
    both = Rows(trace.slices, np.sort(np.concatenate([spans.at, work.at])))
    share = path.explained_us(both) / path.window_us
    steps, cpu_us = max(len(trace.steps), 1), spans.total_us
    of_cpu = cpu_us / trace.steps.total_us if len(trace.steps) and facts.plain.step_us else 0.0  # worth to be played
    if max(share, of_cpu) < LEAST_SHARE:
        return None
    per_step = " per step" if facts.steps else ""
    kinds = sorted(spans.by_name(), key=lambda item: (-item[1].total_us, item[0]))
    told = listed(f"{_calls(len(rows) / steps)} {name.rpartition(': ')[2]}" for name, rows in kinds)
    inputs = next((d for d in map(spans.slices.details.__getitem__, spans.detail[spans.detail >= 0].tolist())), None)
    shapes = shapes_in_words(inputs) if isinstance(inputs, Inputs) else ""
    times = f"{us(cpu_us / steps)} of CPU time" + (f", {us(work.total_us / steps)} of GPU time" if len(work) else "")
    of_path = f": {about(share)} of {denominator(facts)}" if share >= LEAST_SHARE else ""
    seen = f"{told}{per_step}{f' ({shapes})' if shapes else ''}, {times}{of_path}"
    effect = None if entry.change == "untold" else _effect(entry, trace, spans)
    return Seen(seen, work if len(work) else spans, share=share, effect=effect, no_effect=NOT_IN_A_TRACE)


def _calls(n: float) -> str:
    return f"{n:.0f} x" if n >= 1 else f"{n:.1f} x"


def _effect(entry: Entry, trace: Trace, spans: Rows) -> Effect:
    """Return what is left of the place: nothing, a part, or, of many calls, one of each name in a step."""
    if entry.change == "once":
        step = trace.step_at(spans.start_ns)
        first = distinct(spans.name.astype(np.int64) * (len(trace.steps) + 2) + step + 1).first
        spans = spans.where(~among(spans.at, spans.at[first]))
    edits = [partly_dropped(trace, spans, entry.left)]
    if entry.spectrum:
        edits.append(partly_dropped(trace, _of_spectra(trace, spans), entry.left))
    for updates, share in _updates_of_tables(entry, trace, spans) if entry.also else ():
        left = 1 - share * (1 - (LEFT_OF_TABLE if len(trace.work) else LEFT_ON_CPU))
        edits.append(dropped(updates, left_of_cpu=1.0 if len(trace.work) else left, left_of_gpu=left))
    return Effect(all_of(*edits), kind=_CHANGES[entry.change])


def _of_spectra(trace: Trace, spans: Rows) -> Rows:
    """Return the ops of the steps that take complex numbers, as many as one of these transforms makes."""
    made = {(_first_shape(trace, row),) for row in spans.at[distinct(spans.detail).first].tolist()}
    outer = trace.outer_ops.where(trace.step_at(trace.outer_ops.start_ns) >= 0)
    # Behind the first transform of their step.
    step = trace.step_at(spans.start_ns)
    first_ns = np.full(len(trace.steps) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, step, spans.start_ns)
    outer = outer.where(outer.start_ns > first_ns[trace.step_at(outer.start_ns)])
    found = [np.zeros(0, np.int64)]
    for _, ops in outer.by(outer.detail):
        inputs = inputs_of(trace.slices, int(ops.at[0]))
        if inputs is not None and str(inputs.types[:1]).startswith("('c10::complex") and inputs.dims[:1] in made:
            found.append(ops.at)
    return Rows(trace.slices, np.sort(np.concatenate(found)))


def _updates_of_tables(entry: Entry, trace: Trace, spans: Rows) -> Iterator[tuple[Rows, float]]:
    """Yield an optimizer's ops that go over tables of these gradients, and the tables' share of the numbers they go over."""
    tables = set[tuple[int, ...]]()
    for row in spans.at[distinct(spans.detail).first].tolist():
        inputs, grad = inputs_of(trace.slices, row), _first_shape(trace, row)
        tables |= {(max(whole_numbers(inputs), default=0), grad[-1])} if inputs is not None and grad else set()
    ops = trace.outer_ops.where(lies_inside(trace, trace.outer_ops, entry.also))
    for _, updates in ops.by(ops.detail):
        shapes = shapes_of_first(trace.slices, int(updates.at[0]))
        of_tables = sum(math.prod(shape) for shape in shapes if shape in tables)
        if of_tables:
            yield updates, of_tables / sum(map(math.prod, shapes))


def entries() -> tuple[Entry, ...]:
    """Return the entries of changes.toml, in its order."""
    text = Path(__file__).with_name("changes.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text)["change"], tuple[Entry, ...])


ENTRIES = entries()
for _entry in ENTRIES:
    _words = (_entry.symptom, _entry.where, _entry.means, _entry.next)
    finding(_entry.slug, *_words, source=_entry.source)(partial(_rule, _entry))
