"""Work position by position, of whose result only a part is taken."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property
import math

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Edit, Effect, all_of
from trace_reader.analysis.replay.rounds import Shape, broadcast, made_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import Tensor, inputs_of, shapes_of, size_of_view, tensors_known
from trace_reader.findings.catalogue import LARGE_VOCABULARY
from trace_reader.findings.groups import Groups, and_more, partly, the_longest
from trace_reader.findings.loops import CUTS
from trace_reader.findings.registry import Seen, finding, partly_dropped, seen_with_time, with_what_is_freed
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.units import about, by_dimensions

# What makes each number of one number of what flows, and writes it into new memory; and the same in place.
ELEMENTWISE = frozenset(
    f"aten::{name}" for name in ("to", "contiguous", "clone", "add", "sub", "rsub", "mul", "div", "neg", "abs", "exp", "log",
                                 "log1p", "sqrt", "rsqrt", "square", "pow", "reciprocal", "sin", "cos", "clamp", "clamp_min",
                                 "clamp_max",
                                 "relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu", "hardtanh",
                                 "hardswish", "mish", "dropout", "where", "masked_fill", "lerp", "minimum", "maximum")
)  # fmt: skip
IN_PLACE = frozenset(f"{name}_" for name in ELEMENTWISE)
OF_ROWS = frozenset(["aten::linear", "aten::layer_norm", "aten::rms_norm"])  # each row by itself
NORMS = OF_ROWS - {"aten::linear"}
VIEW = "aten::as_strided"  # what a cut calls
ENLARGES = frozenset(f"aten::upsample_{how}2d" for how in ("nearest", "bilinear", "bicubic"))
MOST_TAKEN, LEAST_RANK = 0.5, 3  # of the numbers; dimensions: of a matrix, a state of a loop looks alike


class _Cut(msgspec.Struct, frozen=True):
    """What a row of cuts takes of a tensor: its `dimensions` that are cut, the `shape` that is left, and where the cuts `end`."""

    whole: Tensor
    shape: Shape
    dimensions: frozenset[int]
    end: int

    @property
    def left(self) -> float:
        return math.prod(self.shape) / math.prod(self.whole.shape)

    @property
    def words(self) -> str:
        return f"{by_dimensions(self.shape) or 'one number'} of {by_dimensions(self.whole.shape)} is taken ({about(self.left)})"


@finding(
    "cut-afterwards",
    "ops on a whole tensor, and right after them a slice or select that takes a part of it",
    "aten::slice and aten::select: their inputs, beside those of the ops before them",
    "These ops compute each position by itself, and only some positions of their result seem to be used. Examples are images "
    "that are normalized before they are cropped, and layers on all tokens of which one is taken.",
    "If nothing else uses the rest: cut first (crop, slice or select the input in the same way), then compute what is left. The "
    "result is the same, but for the random numbers of a dropout.",
    source="https://docs.pytorch.org/docs/stable/tensor_view.html",
)
def _cut_afterwards(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes and types: a run of ops position by position, each of which takes what the one before it made, then cuts. Not
    where another op takes such a tensor, too, or one like it comes from outside of the step; nor where a part is written to.
    """
    if not CUTS & trace.op_names:
        return None
    found, views = Groups(), _views_of_cuts(trace)
    for _, one in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        of_step = _Ops(trace, one, views)
        for place in np.flatnonzero(one.is_named(CUTS.__contains__)).tolist():
            cut = of_step.cut_at(place) if place and of_step.names[place - 1] not in CUTS else None
            run = of_step.run_before(place, cut) if cut is not None and cut.left <= MOST_TAKEN else []
            if cut is not None and run and not of_step.ends_in_a_head(run, cut):
                found.setdefault((cut.words, cut.left), []).extend(one.at[run].tolist())
    if not found:
        return None
    told, ops = the_longest(trace, found)
    n, more = len(found[told]) / len(trace.steps), and_more(trace, found, told)
    text = f"{n:.3g} ops per step make all of a tensor, of which {told[0]}{more}"
    effect = partly(trace, found)
    if not len(trace.work):  # what is made is large, and given back where no op is recorded
        effect = msgspec.structs.replace(effect, most=all_of(effect.most, with_what_is_freed(trace, ops, told[1])))
    return seen_with_time(trace, facts, ops, text, effect)


def _views_of_cuts(trace: Trace) -> dict[int, int]:
    """Return of each cut (a row) the view that it calls, the first one of several."""
    slices, is_cut = trace.slices, np.zeros(len(trace.slices), bool)
    is_cut[trace.outer_ops.at[trace.outer_ops.is_named(CUTS.__contains__)]] = True
    views = trace.ops.at[trace.ops.is_named(VIEW.__eq__)]
    of_cuts = innermost(slices, trace.parent, views, is_cut)
    return {cut: view for cut, view in zip(of_cuts[::-1].tolist(), views[::-1].tolist(), strict=True) if cut >= 0}


@finding(
    "enlarged-before-a-layer",
    "features are enlarged, and a 1x1 convolution then makes fewer channels of them",
    "aten::upsample_bilinear2d or nearest2d, and the aten::conv2d right behind it",
    "A 1x1 convolution does the same at each place, and an interpolation the same for each channel: their order does not matter. "
    "Here the larger tensor goes through both.",
    "Convolve first, then enlarge what it makes: F.interpolate(classifier(features), size=...) in place of "
    "classifier(F.interpolate(features, size=...)). The result is the same up to rounding.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html",
)
def _enlarged_before_a_layer(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: only views lie between the two, half of the channels or fewer are made, and no later op of the step takes a
    tensor as large as what is enlarged.
    """
    if not trace.op_names & ENLARGES or "aten::conv2d" not in trace.op_names:
        return None
    every = trace.outer_ops
    outer = every.where(~every.is_named(VIEW_OPS.__contains__))
    edits, found, told = list[Edit](), list[int](), Counter[str]()
    for _, one in outer.by(trace.step_at(outer.start_ns), outer.track):
        for at in np.flatnonzero(one.is_named(ENLARGES.__contains__)[:-1]).tolist():
            pair, shapes = one.where(np.array([at, at + 1])), shapes_of(trace.slices, int(one.at[at]))
            layer = shapes_of(trace.slices, int(pair.at[1]))
            if pair.names[1] != "aten::conv2d" or (left := _left_if_turned(shapes, layer)) is None:
                continue
            later = every.where((every.track == pair.track[1]) & (every.start_ns >= pair.end_ns[1]))  # views, too
            later = later.where(trace.step_at(later.start_ns) == trace.step_at(pair.start_ns[1:])[0])
            again = any(layer[0] in shapes_of(trace.slices, row) for row in later.at.tolist())
            if again or not _is_at_each_place(trace, int(pair.at[1])):
                continue
            found += pair.at.tolist()
            edits += [partly_dropped(trace, pair.where(np.array([place])), left[place]) for place in (0, 1)]
            told[f"{by_dimensions(shapes[0])}, of which a 1x1 convolution makes {left[0]:.0%} of the channels"] += 1
    if not found:
        return None
    n, (most, _) = len(found) / 2 / len(facts.steps or (1,)), told.most_common(1)[0]
    words = f"{n:.3g} x features are enlarged per step ({most})"
    return seen_with_time(trace, facts, Rows(trace.slices, np.array(sorted(found))), words, Effect(all_of(*edits), kind=REPLACED))


def _is_at_each_place(trace: Trace, row: int) -> bool:
    """Return whether a convolution goes on by one place, without padding, as far as that was recorded."""
    inputs = inputs_of(trace.slices, row)
    values = [str(one) for one in (inputs.values or ())] if inputs is not None else []
    return values[3:5] in ([], ["", ""], ["[1, 1]", "[0, 0]"], ["[1]", "[0]"])


def _left_if_turned(features: list[Shape], layer: list[Shape]) -> tuple[float, float] | None:
    """Return how much of an interpolation and of the 1x1 convolution behind it is left in the other order; None where it is none
    of the same tensor, or makes more than half as many channels.
    """
    if not features or len(layer) < 2 or len(features[0]) != 4 or len(layer[0]) != 4 or layer[1][2:] != (1, 1):
        return None
    (batch, channels, *size), made = features[0], layer[1][0]
    if layer[0][:2] != (batch, channels) or math.prod(layer[0][2:]) <= math.prod(size) or 2 * made > channels:
        return None
    return made / channels, math.prod(size) / math.prod(layer[0][2:])


class _Ops:
    """The ops of a step, on one thread, and what they take and make."""

    def __init__(self, trace: Trace, ops: Rows, views: Mapping[int, int]):
        """`views`: of each cut the view that it calls."""
        self.trace, self.rows, self.names, self.views = trace, ops.at.tolist(), ops.names, views
        self._still_taken = dict[tuple[Shape, str], tuple[list[int], np.ndarray, np.ndarray]]()
        alike = distinct(ops.name.astype(np.int64) * (len(trace.slices.details) + 1) + ops.detail)
        self.examples, self.kind = alike.first, alike.which

    @cached_property
    def kinds(self) -> list[tuple[list[Tensor], Shape | None]]:
        """Of each kind of ops the tensors that it takes, and the shape of what it makes, judging by one of them."""
        return [(self.tensors(at), made_of(self.names[at], self.shapes(at), self.shapes(at + 1)))
                for at in self.examples.tolist()]  # fmt: skip

    def tensors(self, at: int) -> list[Tensor]:
        return tensors_known(self.trace.slices, self.rows[at]) if at < len(self.rows) else []

    def shapes(self, at: int) -> list[Shape]:
        return [tensor.shape for tensor in self.tensors(at)]

    @cached_property
    def uses(self) -> dict[Shape, list[tuple[int, Counter[str], int]]]:
        """Of each shape the ops, in order, that take or make tensors of it: the place, how many of which type it takes, and how
        many it makes.
        """
        found = defaultdict[Shape, list[tuple[int, Counter[str], int]]](list)
        of_kinds = [
            {shape: (Counter(one.type for one in taken if one.shape == shape), int(shape == made))
             for shape in {made, *(one.shape for one in taken)} if shape is not None} for taken, made in self.kinds
        ]  # fmt: skip
        for at, kind in enumerate(self.kind.tolist()):
            for shape, (takes, makes) in of_kinds[kind].items():
                found[shape].append((at, takes, makes))
        return found

    @cached_property
    def written(self) -> dict[Shape, int]:
        """Of each shape the last op that writes in place to a tensor of it."""
        last = dict[Shape, int]()
        for at, name in enumerate(self.names):
            if name.endswith("_") and (shapes := self.shapes(at)):
                last[shapes[0]] = at
        return last

    def cut_at(self, place: int) -> _Cut | None:
        """Return what the cuts from here on take of what the first of them has; None where they are not known."""
        whole = next(iter(self.tensors(place)), None)
        if whole is None or len(whole.shape) < LEAST_RANK or not math.prod(whole.shape):
            return None
        shape, of_whole, dimensions = whole.shape, list(range(len(whole.shape))), set[int]()
        while place < len(self.rows) and self.names[place] in CUTS and self.shapes(place)[:1] == [shape]:
            cut = self._left_by(place, shape)
            if cut is None:
                return None
            left, dimension = cut
            if dimension >= 0:
                dimensions.add(of_whole[dimension])
            if len(left) < len(shape):
                del of_whole[dimension]
            shape, place = left, place + 1
        return _Cut(whole, shape, frozenset(dimensions), place)

    def _left_by(self, place: int, shape: Shape) -> tuple[Shape, int] | None:
        """Return what a cut leaves of this shape, as its view says, and which dimension it cuts: of several that it may be the
        last one; -1: none.
        """
        view = self.views.get(self.rows[place])
        inputs = inputs_of(self.trace.slices, view) if view is not None else None
        if inputs is None or (left := size_of_view(inputs)) is None:
            return None
        if len(left) == len(shape):
            cut = [n for n, (before, after) in enumerate(zip(shape, left, strict=True)) if before != after]
            return (left, cut[0] if cut else -1) if len(cut) < 2 else None
        cut = [n for n in range(len(shape)) if left == (*shape[:n], *shape[n + 1 :])]
        return (left, cut[-1]) if cut else None

    def run_before(self, first: int, cut: _Cut) -> list[int]:
        """Return the ops before the cuts that may run behind them; none where something else may use what they make."""
        run, makes, made = list[int](), cut.whole.shape, set[Shape]()
        for at in range(first - 1, -1, -1):
            name, flows = self.names[at], self.shapes(at)
            is_of_rows = name in OF_ROWS and len(cut.whole.shape) - 1 not in cut.dimensions
            if name in NORMS and [len(shape) for shape in flows[1:2]] != [1]:  # over several dimensions
                break
            if not is_of_rows and name not in ELEMENTWISE | IN_PLACE:
                break
            result = made_of(name, flows, []) if is_of_rows else broadcast(*flows)
            if name == "aten::to" and result != makes:  # a weight's, say, under autocast
                continue
            if result != makes:
                break
            run.append(at)
            made.add(makes)
            if not is_of_rows and makes not in flows:  # what is broadcast is smaller than what is made
                break
            makes = flows[0] if is_of_rows else makes
        while run and self.names[run[-1]] in IN_PLACE:  # may be memory of the program's
            run.pop()
        if not run or self.written.get(cut.shape, -1) >= cut.end or self._comes_from_outside(cut.whole):
            return []
        return [] if any(self._is_taken_behind(shape, cut) for shape in made) else run[::-1]

    def ends_in_a_head(self, run: list[int], cut: _Cut) -> bool:
        """Return whether that ends in a product with a whole vocabulary (`logits-of-all-positions` tells that)."""
        return self.names[run[-1]] == "aten::linear" and cut.whole.shape[-1] >= LARGE_VOCABULARY

    def _is_taken_behind(self, shape: Shape, cut: _Cut) -> bool:
        """Return whether an op behind the cuts takes more tensors of this shape than were made since, and not yet taken."""
        of_type = cut.whole.type if shape == cut.whole.shape else ""
        if (shape, of_type) not in self._still_taken:
            uses = self.uses.get(shape, [])
            takes = np.array([takes[of_type] if of_type else takes.total() for _, takes, _ in uses], np.int64)
            more = np.cumsum([0, *(makes - taken for (*_, makes), taken in zip(uses, takes.tolist(), strict=True))])
            # By how much an op takes more than was made up to it; of what is behind a place, the most.
            lacks = np.maximum.accumulate((takes - more[:-1])[::-1])[::-1]
            self._still_taken[shape, of_type] = [at for at, *_ in uses], more, lacks
        places, more, lacks = self._still_taken[shape, of_type]
        first = bisect_left(places, cut.end)
        return first < len(places) and bool(lacks[first] + more[first] > 0)

    def _comes_from_outside(self, whole: Tensor) -> bool:
        """Return whether the first op of the step that takes a tensor of this shape and type has none before it that makes one:
        it may be what an earlier step has made, and a later one takes what this one makes.
        """
        for _, takes, makes in self.uses.get(whole.shape, []):
            if takes[whole.type]:
                return True
            if makes:
                return False
        return False
