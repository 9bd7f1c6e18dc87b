"""Products that could be fewer: of gathered rows, made again in each round, in the dearer order, or by experts of all rows."""

import numpy as np
from trace_reader.analysis.replay.edits import ONCE, REPLACED, Effect, all_of, dropped
from trace_reader.analysis.replay.places import loops, nodes_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of
from trace_reader.findings.registry import Seen, finding
from trace_reader.findings.verdict import denominator
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.units import about, us

PRODUCTS = frozenset(["aten::linear", "aten::matmul", "aten::mm"])
GATHERS = frozenset(["aten::index", "aten::index_select", "aten::embedding"])
MORE_ROWS = 2  # times as many as what they were gathered from has
CHAINED = frozenset(["aten::matmul", "aten::bmm", "aten::mm"])
FEWER = 2  # times as many operations as in the other order
OF_A_NUMBER = frozenset(["aten::mul", "aten::div"])
CHOICES = frozenset(["aten::topk", "aten::max", "aten::argmax"])
ROUNDS, MORE_THAN_A_ROUND = 8, 32  # calls; times the rows of the products between them
LEAST_SHARE = 0.03  # of the path, or of the steps' time


def _rows_of(trace: Trace, op: int) -> int:
    """Return how many rows an op's first input has: all but the last dimension; 0: not known."""
    shape = next(iter(shapes_of(trace.slices, op)), ())
    return int(np.prod(shape[:-1])) if len(shape) > 1 else 0


def _has_one_matrix(trace: Trace, product: int) -> bool:
    """Return whether all rows are multiplied by the same matrix, as by a layer's weights."""
    return [len(shape) for shape in shapes_of(trace.slices, product)[1:2]] == [2]


def _seen(trace: Trace, facts: Facts, products: Rows, words: str, effect: Effect) -> Seen | None:
    path = facts.critical_path
    if path is None or not facts.steps:
        return None
    work = trace.launched_in(products)
    share = path.explained_us(Rows(trace.slices, np.sort(np.concatenate([products.at, work.at])))) / path.window_us
    if max(share, products.total_us / max(trace.steps.total_us, 1e-9) if not len(work) else share) < LEAST_SHARE:
        return None
    time_us = (work if len(work) else products).total_us / len(facts.steps)
    what = "GPU time" if len(work) else "CPU time"
    return Seen(f"{words}; {us(time_us)} of {what}: {about(share)} of {denominator(facts)}", products, share=share, effect=effect)


@finding(
    "gathered-then-multiplied",
    "a product of many rows right behind a gather from few",
    "aten::index_select (or an index, or an embedding), and aten::linear behind it, by the rows of their inputs",
    "Rows are gathered, several times each, and every copy is multiplied by the same weights.",
    "Multiply first, gather then: linear(h)[source] in place of linear(h[source]) gives the same, with as many rows as there "
    "are.",
    source="https://pytorch-geometric.readthedocs.io/en/latest/tutorial/create_gnn.html",
)
def _gathered_then_multiplied(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a product has so many rows more than what the op before it, on its thread, has taken them from."""
    outer, found, left = trace.outer_ops, list[int](), list[float]()
    if not GATHERS.intersection(trace.op_names):
        return None
    for _, one in outer.by(outer.track):
        names = np.array(one.names, object)
        gathers = np.flatnonzero(np.isin(names[:-1], list(GATHERS)) & np.isin(names[1:], list(PRODUCTS)))
        for at in gathers.tolist():
            source, rows = _rows_of(trace, int(one.at[at])), _rows_of(trace, int(one.at[at + 1]))
            if source and rows >= MORE_ROWS * source and _has_one_matrix(trace, int(one.at[at + 1])):
                found.append(int(one.at[at + 1]))
                left.append(source / rows)
    if not found:
        return None
    order = np.argsort(found)
    products, share_left = Rows(trace.slices, np.array(found)[order]), float(np.mean(left))
    nodes = Rows(trace.slices, nodes_of(trace, products))
    edits = [dropped(products, 1.0 if len(trace.work) else share_left, share_left)]
    edits += [dropped(nodes, 1.0 if len(trace.work) else share_left, share_left)] if len(nodes) else []
    n, rows = len(found) / len(trace.steps), _rows_of(trace, found[0])
    words = f"{n:.3g} x a product of {rows:,} rows per step that were gathered from {round(rows * left[0]):,}"
    return _seen(trace, facts, products, words, Effect(all_of(*edits), kind=REPLACED))


@finding(
    "product-in-each-round",
    "a large product again and again, between products of a few rows",
    "aten::linear of many rows between those of one row: in a decoder, the keys and values of the encoder's output",
    "In each round of a loop a product has far more rows than the others, always as many: its input may be the same each time.",
    "If it is (what an encoder made, a prompt, a table): compute it once, before the loop, and keep it.",
    source="https://huggingface.co/docs/transformers/main/en/kv_cache",
)
def _product_in_each_round(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: of equal products with so many rows, ROUNDS a step or more, half and more have smaller ones before the next."""
    if trace.has_backward:
        return None
    ops = trace.outer_ops.where(trace.outer_ops.is_named(PRODUCTS.__contains__))
    if len(ops) < 2 * ROUNDS * max(len(trace.steps), 1):
        return None
    rows = np.array([_rows_of(trace, row) for row in ops.at.tolist()])
    step = trace.step_at(ops.start_ns)
    found = list[int]()
    for _, of_one in ops.by(ops.detail, step):
        at = np.searchsorted(ops.at, of_one.at)
        if len(at) < ROUNDS or not rows[at[0]] or not _has_one_matrix(trace, int(of_one.at[0])):
            continue
        small = np.flatnonzero((rows > 0) & (rows * MORE_THAN_A_ROUND <= rows[at[0]]))
        between = np.searchsorted(small, at[1:]) > np.searchsorted(small, at[:-1])
        if 2 * int(between.sum()) >= len(at) - 1:
            found += of_one.at.tolist()
    if not found:
        return None
    products = Rows(trace.slices, np.sort(np.array(found)))
    again = [of_one.at[1:] for _, of_one in products.by(products.detail, trace.step_at(products.start_ns))]
    effect = Effect(dropped(Rows(trace.slices, np.sort(np.concatenate(again)))), kind=ONCE)
    n = len(found) / len(trace.steps)
    words = f"{n:.0f} products per step of {_rows_of(trace, found[0]):,} rows, between others of few"
    return _seen(trace, facts, products, words, effect)


@finding(
    "product-order",
    "a product of two matrices, large, and right behind it its product with a third, small again",
    "two matmuls (or bmm) in a row, by the shapes of their inputs: (A B) C",
    "The first product is larger than what goes in and what comes out: as in linear attention, where queries meet keys before "
    "keys meet values.",
    "If nothing else needs it, multiply the others first: A (B C) is the same.",
    source="https://arxiv.org/abs/2006.16236",
)
def _product_order(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: of two products in a row, views and a number's multiplication between them, in the order with fewer operations
    there are FEWER times less.
    """
    found, left = list[int](), list[float]()
    outer = trace.outer_ops
    outer = outer.where(~outer.is_named(VIEW_OPS.__contains__))
    for _, one in outer.by(outer.track):
        names = one.names
        for at in np.flatnonzero(one.is_named(CHAINED.__contains__)).tolist():
            after = at + 1
            if after < len(names) and names[after] in OF_A_NUMBER and len(shapes_of(trace.slices, int(one.at[after]))) == 1:
                after += 1
            if after < len(names) and names[after] in CHAINED:
                pair = [shapes_of(trace.slices, int(one.at[place])) for place in (at, after)]
                if (share := _left_in_the_other_order(*pair)) <= 1 / FEWER:
                    found += [int(one.at[at]), int(one.at[after])]
                    left.append(share)
    if not found:
        return None
    products, share_left = Rows(trace.slices, np.sort(np.array(found))), float(np.mean(left))
    nodes = Rows(trace.slices, nodes_of(trace, products))
    of_cpu = 1.0 if len(trace.work) else share_left
    effect = Effect(all_of(dropped(products, of_cpu, share_left), dropped(nodes, of_cpu, share_left)), kind=REPLACED)
    first, second = (shapes_of(trace.slices, row) for row in found[:2])
    of_all = f"{_times(first[0])} by {_times(first[1])}, then by {_times(second[1 - (second[1] == _product(*first))])}"
    words = (
        f"{len(left) / len(trace.steps):.3g} x {of_all} per step: {1 / share_left:.3g} times the operations of the other order"
    )
    return _seen(trace, facts, products, words, effect)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _product(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return (*a[:-1], b[-1])


def _left_in_the_other_order(first: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> float:
    """Return which share of the operations of (A B) C is left as A (B C), or of C (A B) as (C A) B; 1 where the second product
    does not take the first's result, or batches differ.
    """
    if not len(first) == len(second) == 2 or len({shape[:-2] for shape in (*first, *second)}) > 1:
        return 1.0
    if any(len(shape) < 2 for shape in (*first, *second)) or first[0][-1] != first[1][-2] or second[0][-1] != second[1][-2]:
        return 1.0
    (n, k), m, made = first[0][-2:], first[1][-1], _product(*first)
    if second[0] == made:
        p = second[1][-1]
        return (k * m * p + n * k * p) / (n * k * m + n * m * p)
    if second[1] == made:
        p = second[0][-2]
        return (p * n * k + p * k * m) / (n * k * m + p * n * m)
    return 1.0


@finding(
    "experts-on-all-tokens",
    "as many equal networks in a row as a choice has columns, each on all rows",
    "aten::topk (or max) of a row for each token and a column for each expert; then the same layers so often, on as many rows",
    "Each expert of a mixture computes all tokens, and what the choice leaves out is multiplied by zero.",
    "If each token needs only the chosen ones: gather an expert's tokens (index_select), compute those, and add them back "
    "(index_add_); or a grouped product.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html",
)
def _experts_on_all_tokens(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: the choice takes tokens x experts, and a loop of as many rounds (or several) has products of so many rows."""
    choices = {}
    for row in trace.outer_ops.where(trace.outer_ops.is_named(CHOICES.__contains__)).at.tolist():
        shapes, inputs = shapes_of(trace.slices, row), inputs_of(trace.slices, row)
        if shapes and len(shapes[0]) >= 2 and inputs is not None:
            is_top = trace.slices.names[trace.slices.name[row]] == "aten::topk"
            numbers = [int(text) for text in inputs.values or () if isinstance(text, str) and text.isdecimal()]
            k = next(iter(numbers), 0) if is_top else 1
            choices[int(np.prod(shapes[0][:-1])), shapes[0][-1]] = k
    found, left, words = list[Rows](), 1.0, ""
    for loop in loops(trace) if choices else ():
        of_loop = loop.spans.where(loop.spans.is_named(PRODUCTS.__contains__))
        rows = {_rows_of(trace, row) for row in of_loop.at.tolist()}
        for (tokens, experts), k in choices.items():
            if rows == {tokens} and loop.rounds % experts == 0 and 0 < k < experts:
                found.append(loop.spans)
                left = k / experts
                words = f"{loop.rounds} x ({loop.name}) per step of all {tokens:,} rows each, {k} of {experts} chosen for a row"
    if not found:
        return None
    rounds = Rows(trace.slices, np.sort(np.concatenate([rows.at for rows in found])))
    nodes = Rows(trace.slices, nodes_of(trace, rounds))
    of_cpu = 1.0 if len(trace.work) else left
    effect = Effect(all_of(dropped(rounds, of_cpu, left), dropped(nodes, of_cpu, left)), kind=REPLACED)
    return _seen(trace, facts, rounds, words, effect)
