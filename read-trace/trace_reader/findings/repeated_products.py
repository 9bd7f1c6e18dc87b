"""Products that could be fewer: of gathered rows, made again in each round, in the dearer order, or by experts of all rows."""

from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import ONCE, REPLACED, Effect, all_of, dropped
from trace_reader.analysis.replay.places import loops
from trace_reader.analysis.replay.rounds import made_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of, whole_numbers
from trace_reader.findings.groups import Groups, and_more, partly, the_longest
from trace_reader.findings.registry import Seen, finding, partly_dropped, seen_with_time
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.units import by_dimensions, count

PRODUCTS = frozenset(["aten::linear", "aten::matmul", "aten::mm"])
GATHERS = frozenset(["aten::index", "aten::index_select", "aten::embedding"])
JOINED = "joined of"
OF_JOINED = (
    "Split the layer's weight by the parts that are joined, multiply each part before it is gathered, and add what is gathered: "
    "linear(cat([h[source], h[target]])) is linear_a(h)[source] + linear_b(h)[target]."
)
MOST_MADE = 2  # columns that a layer makes of one that was gathered
MORE_ROWS = 2  # times as many as what they were gathered from has
CHAINED = frozenset(["aten::matmul", "aten::bmm", "aten::mm"])
MOST_RANK, THIN = 256, 4  # numbers; times as many on the other side
MOST_RANKS_TOLD = 3
FEWER = 2  # times as many operations as in the other order
OF_A_NUMBER = frozenset(["aten::mul", "aten::div"])
CHOICES = frozenset(["aten::topk", "aten::max"])
WEIGHTS = frozenset(["aten::mul", "aten::mul_", "aten::where", "aten::addcmul", "aten::addcmul_"])
MAKES_ZEROS = frozenset(
    f"aten::{name}"
    for name in ("scatter", "scatter_", "one_hot", "where", "eq", "zeros_like", "masked_fill", "masked_fill_", "zeros")
)
WEIGHTED_SOON = 8  # ops
ATTENTION = "aten::scaled_dot_product_attention"
ATTENDS = frozenset([ATTENTION, "aten::softmax", "aten::_softmax"])
APPENDS = "aten::cat"
OF_CROSS_ATTENTION = (
    "If their input is the same (an encoder's output), compute the keys and values of this cross-attention once, before the "
    "loop, and keep them."
)
OF_POWERS = (
    "If each of these products takes the result of the one before (powers of a matrix), and nothing else uses these results: "
    "multiply from the other side, so that each product has few columns. torch.linalg.multi_dot chooses the order by itself."
)
ROUNDS, MORE_THAN_A_ROUND = 8, 32  # calls; times the rows of the products between them


def _rows_of(trace: Trace, op: int) -> int:
    """Return how many rows an op's first input has: all but the last dimension; 0: not known."""
    shape = next(iter(shapes_of(trace.slices, op)), ())
    return int(np.prod(shape[:-1])) if len(shape) > 1 else 0


def _has_one_matrix(trace: Trace, product: int) -> bool:
    """Return whether all rows are multiplied by the same matrix, as by a layer's weights."""
    return [len(shape) for shape in shapes_of(trace.slices, product)[1:2]] == [2]


def _takes_what_is_gathered(trace: Trace, gather: int, product: int) -> bool:
    """Return whether a product's first input may be what a gather makes, by their shapes."""
    source, *index = shapes_of(trace.slices, gather)
    taken = shapes_of(trace.slices, product)[0]
    if index and trace.slices.names[trace.slices.name[gather]] == "aten::embedding":
        return taken == (*index[0], source[-1])
    return taken[-1:] == source[-1:]


@finding(
    "gathered-then-multiplied",
    "a gather from few rows, and right after it a matrix product over many rows",
    "aten::index_select (or an index, or an embedding) and the aten::linear after it: the numbers of rows of their inputs",
    "Rows are gathered several times each, and every copy is multiplied by the same weights.",
    "Multiply first, then gather: linear(h)[source] gives the same result as linear(h[source]), but multiplies each row of h "
    "only once.",
    source="https://pytorch-geometric.readthedocs.io/en/latest/tutorial/create_gnn.html",
)
def _gathered_then_multiplied(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a product has so many rows more than what the op before it, on its thread, has taken them from."""
    outer, found = trace.outer_ops, Groups()
    if not GATHERS.intersection(trace.op_names):
        return None
    for _, one in outer.by(outer.track):
        names = np.array(one.names, object)
        gathers = np.flatnonzero(np.isin(names[:-1], list(GATHERS)) & np.isin(names[1:], list(PRODUCTS)))
        for at in gathers.tolist():
            source, rows = _rows_of(trace, int(one.at[at])), _rows_of(trace, int(one.at[at + 1]))
            may_be = source and rows >= MORE_ROWS * source and _has_one_matrix(trace, int(one.at[at + 1]))
            if may_be and _takes_what_is_gathered(trace, int(one.at[at]), int(one.at[at + 1])):
                words = f"{rows:,} rows per step that were gathered from {source:,}"
                found.setdefault((words, source / rows), []).append(int(one.at[at + 1]))
        for at in np.flatnonzero((names[:-1] == "aten::cat") & np.isin(names[1:], list(PRODUCTS))).tolist():
            if (key := _of_joined_gathers(trace, one, at)) is not None:
                found.setdefault(key, []).append(int(one.at[at + 1]))
    if not found:
        return None
    told, products = the_longest(trace, found)
    n, more = len(found[told]) / len(trace.steps), and_more(trace, found, told)
    next = OF_JOINED if JOINED in told[0] else ""
    seen = seen_with_time(trace, facts, products, f"{n:.3g} x a product of {told[0]}{more}", partly(trace, found))
    return msgspec.structs.replace(seen, next=next) if seen else None


def _of_joined_gathers(trace: Trace, ops: Rows, at: int) -> tuple[str, float] | None:
    """Return what a product takes that stands behind a cat (`at`), behind gathers from fewer rows, and what would be left of it:
    of each gathered column as much as its source has of the rows; None where the shapes do not say so.
    """
    product, gathers = int(ops.at[at + 1]), list[list[tuple[int, ...]]]()
    while at > len(gathers) and ops.where(np.array([at - 1 - len(gathers)])).is_named(GATHERS.__contains__).all():
        gathers.append(shapes_of(trace.slices, int(ops.at[at - 1 - len(gathers)])))
    taken, sources = shapes_of(trace.slices, product)[:1], [shapes[0] for shapes in gathers if len(shapes) > 1]
    is_matrix = len(sources) == len(gathers) > 0 and all(len(shape) == 2 for shape in [*taken, *sources])
    if not taken or not is_matrix or not _has_one_matrix(trace, product):
        return None
    rows, width = taken[0]
    by_rows = trace.slices.names[trace.slices.name[product]] == "aten::linear"
    made = shapes_of(trace.slices, product)[1][0 if by_rows else 1]
    columns, most = sum(shape[1] for shape in sources), max(shape[0] for shape in sources)
    if made > MOST_MADE * columns:  # each of the products is then gathered, as wide as this, and added
        return None
    if columns > width or 2 * columns < width or rows < MORE_ROWS * most or any(shapes[-1] != (rows,) for shapes in gathers):
        return None
    left = (sum(shape[0] * shape[1] for shape in sources) / rows + width - columns) / width
    return f"{rows:,} rows per step, {JOINED} {count(len(sources), 'gather', 'gathers')} from {most:,}", left


@finding(
    "product-in-each-round",
    "a large matrix product again and again, between matrix products of a few rows",
    "an aten::linear of many rows between those of one row: in a decoder, the keys and values computed from the encoder's output",
    "In each round of a loop, one matrix product has far more rows than the others, and always the same number of rows. Its "
    "input may be the same each time.",
    "If its input is the same (an encoder's output, a prompt, a table), compute the product once, before the loop, and keep it.",
    source="https://huggingface.co/docs/transformers/main/en/kv_cache",
)
def _product_in_each_round(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: of equal products with so many rows, ROUNDS a step or more, about every second at least has smaller ones before
    the next (keys and values are two, one after the other).
    """
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
        if 2 * int(between.sum()) >= len(at) - 2:
            found += of_one.at.tolist()
    if not found:
        return None
    products = Rows(trace.slices, np.sort(np.array(found)))
    again = [of_one.at[1:] for _, of_one in products.by(products.detail, trace.step_at(products.start_ns))]
    effect = Effect(dropped(Rows(trace.slices, np.sort(np.concatenate(again)))), kind=ONCE)
    n = len(found) / len(trace.steps)
    words = f"{n:.0f} products per step of {(many := _rows_of(trace, found[0])):,} rows, between others of few"
    if not _are_attended(trace, many):
        return seen_with_time(trace, facts, products, words, effect)
    seen = seen_with_time(trace, facts, products, f"{words}; attention takes as many keys", effect)
    return seen and msgspec.structs.replace(seen, next=OF_CROSS_ATTENTION)


def _are_attended(trace: Trace, many: int) -> bool:
    """Return whether an attention of fewer queries takes so many keys, those of all sequences together."""
    outer = trace.outer_ops
    for op in outer.at[outer.is_named(ATTENTION.__eq__)].tolist():
        shapes = shapes_of(trace.slices, op)[:2]
        if [len(shape) for shape in shapes] == [4, 4] and shapes[0][2] < shapes[1][2] and shapes[1][0] * shapes[1][2] == many:
            return True
    return False


@finding(
    "prefix-again",
    "the same layers again and again, each time with one more row",
    "the input shapes of aten::linear: 128 rows, then 129, then 130 ...; each time also attention over these rows, and an "
    "aten::cat",
    "Each round of a loop seems to compute all earlier rows again, plus one new row, as a language model does when it generates "
    "text without a cache.",
    "If attention is causal, so that later rows do not change earlier ones, keep the keys and values in a KV cache and compute "
    "only the new row.",
    source="https://huggingface.co/docs/transformers/main/en/kv_cache",
)
def _prefix_again(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: the rows of products with the same weights grow by one, ROUNDS times and more, attention has as many, and an op
    puts the new one to the others. Of each round but the first the new row is left, of the ops that have all.
    """
    if trace.has_backward or not (PRODUCTS & trace.op_names and ATTENDS & trace.op_names and APPENDS in trace.op_names):
        return None
    ops, edits, rounds = [np.empty(0, np.int64)], [], Counter[str]()
    for _, one in trace.outer_ops.by(trace.outer_ops.track):
        lengths = _lengths(trace, one)
        for starts in _growing(lengths):
            # A round begins before its first product, somewhere behind the first of the round before.
            ends = [*starts[2:], 2 * starts[-1] - starts[-2]]
            spans = zip(starts[:-1], starts[1:], ends, strict=True)
            rows = [_of_length(trace, one, before, end, int(lengths[at])) for before, at, end in spans]
            appended = [APPENDS in one.names[begin:end] for begin, end in pairwise(starts)]
            attends = [bool(ATTENDS.intersection(Rows(trace.slices, own).names)) for own in rows]
            if not all(appended) or not all(attends):
                continue
            again = Rows(trace.slices, np.concatenate(rows))
            edits.append(partly_dropped(trace, again, 1 / float(lengths[starts[len(starts) // 2]])))
            ops.append(again.at)
            rounds[f"of {lengths[starts[0]]:,} rows, then {lengths[starts[1]]:,}, to {lengths[starts[-1]]:,}"] += len(starts)
    if not rounds:
        return None
    (words, n), *others = rounds.most_common()
    more = f", and {sum(n for _, n in others) / len(trace.steps):,.3g} times other lengths" if others else ""
    often = f"{n / len(trace.steps):,.0f} times the same layers per step, {words}{more}"
    return seen_with_time(
        trace, facts, Rows(trace.slices, np.sort(np.concatenate(ops))), often, Effect(all_of(*edits), kind=REPLACED)
    )


def _of_length(trace: Trace, ops: Rows, begin: int, end: int, length: int) -> np.ndarray:
    """Return which of these ops, by place, have a shape with this length in it."""
    own = ops.at[begin:end].tolist()
    return np.array([op for op in own if any(length in shape for shape in shapes_of(trace.slices, op))], np.int64)


def _lengths(trace: Trace, ops: Rows) -> np.ndarray:
    """Of each op, how many rows its input has, where it is a product by the weights that most are by (of as many, the first);
    else 0.
    """
    found = np.zeros(len(ops), np.int64)
    by_weights = dict[tuple[tuple[int, ...], ...], list[int]]()
    for at in np.flatnonzero(ops.is_named(PRODUCTS.__contains__)).tolist():
        if len(shapes := shapes_of(trace.slices, int(ops.at[at]))) > 1 and len(shapes[0]) > 1 and len(shapes[1]) == 2:
            by_weights.setdefault((shapes[1], (*shapes[0][:-2], shapes[0][-1])), []).append(at)
            found[at] = shapes[0][-2]
    most = max(by_weights.values(), key=len, default=[])
    found[np.setdiff1d(np.arange(len(ops)), most)] = 0
    return found


def _growing(lengths: np.ndarray) -> list[list[int]]:
    """Return where lengths grow by one from each to the next other one, ROUNDS times and more: where each of them begins."""
    known = np.flatnonzero(lengths)
    starts = known[np.append(True, np.diff(lengths[known]) != 0)] if len(known) else known
    runs = np.split(starts, np.flatnonzero(np.diff(lengths[starts]) != 1) + 1)
    return [run.tolist() for run in runs if len(run) >= ROUNDS]


@finding(
    "adapters-not-merged",
    "in inference, two thin layers beside a large one, and a sum",
    "aten::linear with a weight of few rows, and right after it one with a weight of as few columns; aten::add behind them",
    "Low-rank adapters may run as two short layers beside each layer that they adapt, so that their result is added to its.",
    "If the thin layers are adapters, and the same ones serve all requests: merge them into the weights once, after loading "
    "(peft: merge_and_unload()).",
    source="https://huggingface.co/docs/peft/main/en/developer_guides/lora",
)
def _adapters_not_merged(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a layer to at most MOST_RANK numbers, and right behind it one from these, to as many as a layer right before or
    behind both makes of the first one's input; then an addition of that shape.
    """
    if trace.has_backward or "aten::linear" not in trace.op_names:
        return None
    found, ranks = list[int](), Counter[int]()
    outer = trace.outer_ops.where(~trace.outer_ops.is_named(VIEW_OPS.__contains__))
    for _, one in outer.by(outer.track, trace.step_at(outer.start_ns)):
        names, rows = one.names, one.at.tolist()
        layers = {at: shapes_of(trace.slices, rows[at])[:2] for at, name in enumerate(names) if name == "aten::linear"}
        for (down, first), (up, second) in pairwise(layers.items()):
            if up - down > 1 or len(first) < 2 or len(second) < 2 or second[0] != made_of("aten::linear", first, []):
                continue
            (x, (rank, wide)), (many, few) = first, second[1]
            if rank > MOST_RANK or few != rank or min(many, wide) < THIN * rank:
                continue
            before = down - 2 if down and names[down - 1] in ("aten::to", "aten::dropout") else down - 1
            adapted = [at for at in (before, up + 1, up + 2) if layers.get(at) == [x, (many, wide)]]
            add = _sum_behind(trace, rows, names, up)
            if not adapted or add is None or any(at > add for at in adapted):
                continue
            if shapes_of(trace.slices, rows[add])[:2] == [made_of("aten::linear", second, [])] * 2:
                scale = [at for at in range(up + 1, add) if names[at] in OF_A_NUMBER]
                found += [rows[at] for at in (down, up, *scale, add)]
                ranks[rank] += 1
    if not found:
        return None
    ops = Rows(trace.slices, np.sort(np.array(found)))
    of_ranks = " and ".join(f"{rank}" for rank in sorted(ranks)[:MOST_RANKS_TOLD])
    of_ranks += f" and {len(ranks) - MOST_RANKS_TOLD} more" if len(ranks) > MOST_RANKS_TOLD else ""
    n = ranks.total() / len(trace.steps)
    return seen_with_time(trace, facts, ops, f"{n:.3g} adapters per step, of rank {of_ranks}", Effect(dropped(ops), dropped(ops)))


def _sum_behind(trace: Trace, rows: list[int], names: list[str], up: int) -> int | None:
    """Return the addition behind an adapter's second layer: between them one layer at most, dropout, and products with or
    quotients by a number.
    """
    at, layers = up + 1, 0
    while at < len(rows) and names[at] != "aten::add":
        layers += names[at] == "aten::linear"
        is_scaled = names[at] in OF_A_NUMBER and len(shapes_of(trace.slices, rows[at])) == 1
        if layers > 1 or not (is_scaled or names[at] in ("aten::linear", "aten::dropout")):
            return None
        at += 1
    return at if at < len(rows) else None


@finding(
    "product-order",
    "two matrix products in a row that would take half the operations or less in the other order",
    "the input shapes of two matmuls (or bmm) in a row: (A B) C",
    "Judging by the shapes, both products together take more than twice the operations of the other order. Linear attention is "
    "an example, if queries are multiplied by keys before keys are multiplied by values; so are powers of an adjacency matrix.",
    "If the second product takes the result of the first, and nothing else uses that result, multiply the second matrix by "
    "the third one first, then the first one by that: the result is the same. torch.linalg.multi_dot chooses the order of "
    "several products by itself.",
    source="https://arxiv.org/abs/2006.16236",
)
def _product_order(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: of two products in a row, views and a number's multiplication between them, in the order with fewer operations
    there are FEWER times less. Not where another op of the step takes what has the first product's shape: it may be that one.
    Where one of its factors has that, too (a power of a square matrix), products may take it. Powers before it go with it.
    """
    found, powers, outer = Groups(), Groups(), trace.outer_ops
    if not CHAINED.intersection(trace.op_names):
        return None
    for _, every in outer.by(outer.track, trace.step_at(outer.start_ns)):
        one = every.where(~every.is_named(VIEW_OPS.__contains__))
        pairs, names = list[tuple[int, int, float]](), one.names
        for at in np.flatnonzero(one.is_named(CHAINED.__contains__)).tolist():
            after = at + 1
            if after < len(names) and names[after] in OF_A_NUMBER and len(shapes_of(trace.slices, int(one.at[after]))) == 1:
                after += 1
            if after < len(names) and names[after] in CHAINED:
                left = _left_in_the_other_order(*(shapes_of(trace.slices, int(one.at[place])) for place in (at, after)))
                pairs += [(at, after, left)] if left <= 1 / FEWER else []
        if not pairs:
            continue
        of_pairs = {place for at, after, _ in pairs for place in range(at, after + 1)}
        taken = {shape for at, row in enumerate(one.at.tolist()) if at not in of_pairs for shape in shapes_of(trace.slices, row)}
        taken_last = _taken_last(every)
        for at, after, left in pairs:
            first, second = (shapes_of(trace.slices, int(one.at[place])) for place in (at, after))
            made = _product(*first)
            if made not in taken or (made in first and taken_last.get(made, -1) < one.at[at]):
                factors = *first, second[1 - (second[1] == made)]
                words = "{} by {}, then by {}".format(*map(by_dimensions, factors))
                found.setdefault((words, left), []).extend([int(one.at[at]), int(one.at[after])])
                before = at - 1
                while before >= 0 and names[before] in CHAINED and shapes_of(trace.slices, int(one.at[before])) == [made, made]:
                    powers.setdefault((words, left), []).append(int(one.at[before]))
                    before -= 1
    if not found:
        return None
    told, products = the_longest(trace, found)
    (words, left), n = told, len(found[told]) / 2 / len(trace.steps)
    more = and_more(trace, {key: ops[::2] for key, ops in found.items()}, told)
    seen = f"{n:.3g} x {words} per step: {1 / left:.3g} times the operations of the other order{more}"
    if powers:
        products = Rows(trace.slices, np.sort(np.concatenate([products.at, *powers.values()])))
        seen += f"; {sum(map(len, powers.values())) / len(trace.steps):.3g} square ones before them"
    with_powers = {key: [*ops, *powers.get(key, [])] for key, ops in found.items()}
    told_of = seen_with_time(trace, facts, products, seen, partly(trace, with_powers))
    return msgspec.structs.replace(told_of, next=OF_POWERS) if told_of is not None and powers else told_of


def _taken_last(ops: Rows) -> dict[tuple[int, ...], int]:
    """Return of each shape the last op (a row) that takes it, views among them, but for products."""
    others = ops.at[~ops.is_named(CHAINED.__contains__)]
    return {shape: row for row in others.tolist() for shape in shapes_of(ops.slices, row)}


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
    "as many equal networks in a row as a topk has columns, each applied to all rows",
    "aten::topk (or max) over tokens x experts; then the same layers once for each expert, with as many rows as tokens, and a "
    "multiplication by one number per token",
    "Each expert of a mixture of experts computes all tokens. The results that are not chosen may be multiplied by zero.",
    "If each token needs only its chosen experts, gather the tokens of each expert (index_select), compute only those, and add "
    "the results back (index_add_); or use a grouped matrix product.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html",
)
def _experts_on_all_tokens(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a choice of k among experts for each token; then a loop of as many rounds (or several) with products of so many
    rows, whose results are weighted token by token, in each round or behind the loop.
    """
    choices = trace.outer_ops.where(trace.outer_ops.is_named(CHOICES.__contains__))
    found, rounds = Groups(), Counter[str]()
    for name, run in [(loop.name, run) for loop in loops(trace) for run in loop.runs] if len(choices) else ():
        rows = {_rows_of(trace, row) for row in run[0].tolist() if trace.slices.names[trace.slices.name[row]] in PRODUCTS}
        if len(rows) == 1 and (chosen := _chosen_before(trace, choices, run, tokens := rows.pop())):
            words = f"x ({name}) per step of all {tokens:,} rows each, {chosen[0]} of {chosen[1]} chosen for a row"
            found.setdefault((words, chosen[0] / chosen[1]), []).extend(run.ravel().tolist())
            rounds[words] += len(run)
    if not found:
        return None
    told, experts = the_longest(trace, found)
    more = (sum(rounds.values()) - rounds[told[0]]) / len(trace.steps)
    words = f"{rounds[told[0]] / len(trace.steps):.3g} {told[0]}" + f", and {more:.3g} others" * bool(more)
    return seen_with_time(trace, facts, experts, words, partly(trace, found))


def _chosen_before(trace: Trace, choices: Rows, rounds: np.ndarray, tokens: int) -> tuple[int, int] | None:
    """Return how many of how many are chosen for each of so many rows, by the last choice before these rounds in their step,
    where as many rounds (or several times as many) stand and their results are weighted.
    """
    first = int(rounds[0, 0])
    is_before = (choices.track == trace.slices.track[first]) & (choices.start_ns < trace.slices.start_ns[first])
    step = trace.step_at(trace.slices.start_ns[[first]])[0]
    before = choices.at[is_before & (trace.step_at(choices.start_ns) == step)]
    chosen = next((k_of for row in before[::-1].tolist() if (k_of := _choice(trace, row, tokens))), None)
    if chosen is None or len(rounds) % chosen[1]:
        return None
    return chosen if _is_weighted(trace, rounds, tokens, chosen[1]) else None


def _choice(trace: Trace, row: int, tokens: int) -> tuple[int, int] | None:
    """Return how many of how many columns an op chooses for each of so many rows; None where it does not, or all."""
    shapes, inputs = shapes_of(trace.slices, row), inputs_of(trace.slices, row)
    if inputs is None or len(shapes) != 1 or len(shapes[0]) < 2 or int(np.prod(shapes[0][:-1])) != tokens:
        return None
    is_top, values = trace.slices.names[trace.slices.name[row]] == "aten::topk", [*(inputs.values or ()), "", "", ""]
    if values[2 if is_top else 1] not in ("-1", str(len(shapes[0]) - 1)):  # of another dimension, or the largest of all
        return None
    k = next(iter(whole_numbers(inputs)), 0) if is_top else 1
    return (k, shapes[0][-1]) if 0 < k < shapes[0][-1] else None


def _is_weighted(trace: Trace, rounds: np.ndarray, tokens: int, experts: int) -> bool:
    """Return whether, in the last round or in one of the WEIGHTED_SOON ops behind it, a product has a number for each token, and
    something up to there makes zeros for those that are not chosen.
    """
    ops = trace.outer_ops.where(trace.outer_ops.track == trace.slices.track[rounds[0, 0]])
    first, last = np.searchsorted(ops.at, (rounds[0, 0], rounds[-1, -1])).tolist()
    around = ops.at[max(first - WEIGHTED_SOON, 0) : last + 1 + WEIGHTED_SOON]
    if not Rows(trace.slices, around).is_named(MAKES_ZEROS.__contains__).any():
        return False
    behind = ops.at[last + 1 : last + 1 + WEIGHTED_SOON].tolist()
    for sizes, rows in ((tokens, rounds[-1].tolist()), (tokens * experts, behind)):
        for row in rows:
            if trace.slices.names[trace.slices.name[row]] in WEIGHTS:
                numbers = [shape for shape in shapes_of(trace.slices, row) if shape[-1:] == (1,)]
                if any(int(np.prod(shape)) in (sizes, tokens) for shape in numbers):
                    return True
    return False
