"""Scores of candidates: of all of them where few are picked, or by vectors that are made anew each time."""

from collections import Counter

import numpy as np
from trace_reader.analysis.replay.edits import GONE, Effect, dropped
from trace_reader.analysis.replay.rounds import Shape, made_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of, shapes_within
from trace_reader.findings.groups import Groups, and_more, partly, the_longest
from trace_reader.findings.registry import Seen, finding, seen_with_time
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.units import by_dimensions

PRODUCTS = frozenset(["aten::linear", "aten::matmul", "aten::mm", "aten::einsum"])
PICKS = frozenset(["aten::gather", "aten::take_along_dim"])
RANKS = frozenset(f"aten::{name}" for name in ("topk", "sort", "argsort", "argmax", "max", "softmax", "log_softmax"))
LAYERS = frozenset(f"aten::{name}" for name in ("linear", "lstm", "gru", "_transformer_encoder_layer_fwd"))
NORMS = frozenset(["aten::linalg_vector_norm", "aten::norm"])  # by which vectors are divided
OF_IMAGES = frozenset(["aten::conv2d", "aten::conv3d"])  # which come with the batch, as a rule
COMPARES = frozenset(["aten::matmul", "aten::mm", "aten::einsum"])  # not a layer's product with its weights
LEAST_CANDIDATES = 32
# Vectors that are picked are read, written and multiplied from memory: each takes so many times as long as in one large product.
AS_VECTORS, AS_VECTORS_ON_GPU = 30, 200
MOST_LEFT = 0.5  # of the product's time, at which it is told
RANKED_SOON, USED_SOON = 6, 500  # ops


@finding(
    "scored-then-picked",
    "in inference, a product with all candidates, and right behind it aten::gather",
    "aten::matmul (or mm, linear) and, next to it, aten::gather with far fewer columns",
    "All scores of a product are computed, and few of each row are picked.",
    "If nothing else uses the scores: pick the candidates' vectors first (index_select or F.embedding with the same numbers), "
    "and multiply only these, with torch.bmm or einsum.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.bmm.html",
)
def _scored_then_picked(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: what a product makes is the next op's input that is no view, a gather of its columns; no other op takes it."""
    if trace.has_backward or not (PICKS & trace.op_names and PRODUCTS & trace.op_names):
        return None
    found = Groups()
    for _, one in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        for place in np.flatnonzero(one.is_named(PICKS.__contains__)).tolist():
            scores, picked = ([*shapes_of(trace.slices, int(one.at[place])), (), ()])[:2]
            product = _made_right_before(trace, one, place, scores)
            if product is None or len(scores) < 2 or len(picked) != len(scores) or scores[-1] < LEAST_CANDIDATES:
                continue
            left = (AS_VECTORS_ON_GPU if len(trace.work) else AS_VECTORS) * picked[-1] / scores[-1]
            if left > MOST_LEFT or _is_taken_again(trace, one, place, scores):
                continue
            words = f"{by_dimensions(picked)} of {by_dimensions(scores)} scores are picked"
            found.setdefault((words, left), []).append(int(one.at[product]))
    if not found:
        return None
    told, ops = the_longest(trace, found)
    n = len(found[told]) / len(trace.steps)
    return seen_with_time(
        trace,
        facts,
        ops,
        f"{n:.3g} product{'s' * (n != 1)} per step: {told[0]}{and_more(trace, found, told)}",
        partly(trace, found),
    )


def _made_right_before(trace: Trace, ops: Rows, place: int, shape: Shape) -> int | None:
    """Return the place of the product that makes this shape, with views alone between it and this place."""
    for before in range(place - 1, -1, -1):
        if ops.names[before] in PRODUCTS:
            own = shapes_of(trace.slices, int(ops.at[before]))
            return before if made_of(ops.names[before], own, [shape]) == shape else None
        if ops.names[before] not in VIEW_OPS:
            return None
    return None


def _is_taken_again(trace: Trace, ops: Rows, place: int, shape: Shape) -> bool:
    """Return whether another op soon behind this place takes a tensor of this shape before one is made again."""
    for behind in range(place + 1, min(place + 1 + USED_SOON, len(ops))):
        own = shapes_of(trace.slices, int(ops.at[behind]))
        if shape in own:
            return True
        if ops.names[behind] in PRODUCTS and made_of(ops.names[behind], own, []) == shape:
            return False
    return False


@finding(
    "candidates-each-time",
    "in inference, layers or a norm on many rows, a product of the batch's rows with all of these, and topk, softmax or argmax",
    "the inputs of aten::linear and aten::matmul: the number of candidates among the rows, then among the columns",
    "The batch's rows are compared with those of candidates. The candidates' vectors are made, or scaled to one length, anew in "
    "each step.",
    "If the candidates (items, documents, the texts of class names) and the weights are the same in each step: compute their "
    "vectors once, ahead, and keep them.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.topk.html",
)
def _candidates_each_time(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a product [rows, n] of [rows, d] with [d, n], soon behind it a choice among the n, and before it layers or norms
    on n rows, the last of which makes d numbers of each. Not where the batch has as many rows, or where the n are images.
    """
    if trace.has_backward or not (RANKS & trace.op_names and (LAYERS | NORMS) & trace.op_names):
        return None
    told, ops = Counter[str](), list[np.ndarray]()
    for _, one in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        ranked = dict[int, tuple[int, Shape]]()  # by the number of candidates the last product with them
        for place in np.flatnonzero(one.is_named(COMPARES.__contains__)).tolist():
            if (scores := _scores_at(trace, one, place)) is not None and _are_ranked(trace, one, place, scores):
                ranked[scores[-1]] = place, scores
        for n, rows in (_by_rows(trace, one, set(ranked)) if ranked else {}).items():
            place, scores = ranked[n]
            width = shapes_within(trace.slices, int(one.at[place]))[0][-1]
            if len(made := _layers_on(trace, one, [at for at in rows if at < place], width)):
                ops.append(made)
                told[f"{n:,} candidates, with which {by_dimensions(scores[:-1])} rows are compared"] += len(made)
    if not ops:
        return None
    every = Rows(trace.slices, np.unique(np.concatenate(ops)))
    (words, _), *others = told.most_common()
    more = ", and others" * bool(others)
    text = f"{len(every) / len(trace.steps):.3g} ops per step make the vectors of {words}{more}"
    return seen_with_time(trace, facts, every, text, Effect(dropped(every), dropped(every), kind=GONE))


def _scores_at(trace: Trace, ops: Rows, place: int) -> Shape | None:
    """Return the shape that a product of two matrices makes; None where they are no two, or the second has few columns."""
    name, own = ops.names[place], shapes_of(trace.slices, int(ops.at[place]))
    if name == "aten::einsum":
        own = shapes_within(trace.slices, int(ops.at[place]))
        own = [own[0], own[1][::-1]] if [len(shape) for shape in own] == [2, 2] else []
    made = made_of("aten::mm", own, []) if name == "aten::einsum" else made_of(name, own, [])
    if made is None or len(made) != 2 or made[1] < LEAST_CANDIDATES or made[0] == made[1]:
        return None
    return made


def _are_ranked(trace: Trace, ops: Rows, place: int, scores: Shape) -> bool:
    """Return whether soon an op chooses among these scores; not attention, in which a product takes its result."""
    soon = [int(row) for row in ops.at[place + 1 : place + 1 + RANKED_SOON]]
    names, own = ops.names[place + 1 : place + 1 + RANKED_SOON], [shapes_of(trace.slices, row)[:1] for row in soon]
    taken = [name for name, first in zip(names, own, strict=True) if first == [scores]]
    return bool(RANKS.intersection(taken)) and not PRODUCTS.intersection(taken)


def _by_rows(trace: Trace, ops: Rows, numbers: set[int]) -> dict[int, list[int]]:
    """Return of each of these numbers the places of the ops, but for views, whose first input has so many rows."""
    found: dict[int, list[int]] = {}
    of_kind = dict[int, int]()
    for place, (detail, name) in enumerate(zip(trace.slices.detail[ops.at].tolist(), ops.names, strict=True)):
        if detail not in of_kind:
            shape = next(iter(shapes_of(trace.slices, int(ops.at[place]))), ())
            of_kind[detail] = shape[0] if len(shape) > 1 else 0
        if of_kind[detail] in numbers and name not in VIEW_OPS:
            found.setdefault(of_kind[detail], []).append(place)
    return found


def _layers_on(trace: Trace, ops: Rows, places: list[int], width: int) -> np.ndarray:
    """Return these ops (rows); none, where no layer or norm is among them, or where they do not make vectors of this width."""
    names = [ops.names[place] for place in places]
    shapes = [shapes_of(trace.slices, int(ops.at[place])) for place in places]
    made = [made_of(name, own, []) or own[0] for name, own in zip(names, shapes, strict=True)]
    if not (LAYERS | NORMS).intersection(names) or OF_IMAGES.intersection(names) or width not in {shape[-1] for shape in made}:
        return np.empty(0, np.int64)
    return ops.at[places]
