"""Work that is done again: constants made anew, statistics of a table, a history that each round or step goes over, layers
before a dropout, workers that start anew, a network that is built in each step.
"""

from collections import Counter
from collections.abc import Iterable
import math

import numpy as np
from trace_reader.analysis.replay.edits import GONE, Effect, all_of, dropped, skipped
from trace_reader.analysis.replay.places import loops, nodes_of
from trace_reader.analysis.replay.rounds import Shape, broadcast, made_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of, shapes_of_first, shapes_within, tensors_of
from trace_reader.findings.registry import Seen, finding, lies_inside, listed, seen_with_time
from trace_reader.link.intervals import merged
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, median
from trace_reader.model.slices import Inputs
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.names.range_names import is_loader
from trace_reader.units import by_dimensions, us

# What makes numbers of nothing but sizes, and what may stand beside it in a chain of such ops.
FACTORIES = frozenset(
    f"aten::{name}" for name in ("arange", "linspace", "logspace", "eye", "tril_indices", "triu_indices", "hann_window",
                                 "hamming_window", "blackman_window", "kaiser_window")
)  # fmt: skip
FILLED = frozenset(f"aten::{name}" for name in ("zeros", "ones", "full"))
RANDOM = frozenset(
    f"aten::{name}" for name in ("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "normal", "normal_",
                                 "uniform_", "random_", "bernoulli", "bernoulli_", "multinomial", "randperm", "dropout",
                                 "native_dropout", "exponential_")
)  # fmt: skip
LOOKUP = "aten::embedding"
MAKES_A_NUMBER = frozenset(["aten::empty", "aten::lift_fresh", "aten::detach_"])  # torch.tensor() of one, with aten::to
OF_TENSORS = frozenset(["float", "c10::BFloat16", "c10::Half"])  # types
LEAST_OPS, LEAST_WORK = 5, 3  # of a chain: all, and those that are no views
LEAST_TIMES = 3  # in a step
OF_METRICS = frozenset(
    f"aten::{name}" for name in ("sort", "argsort", "cumsum", "topk", "unique", "_unique2", "bincount", "histc", "trapezoid",
                                 "quantile", "median", "searchsorted", "corrcoef", "cov")
)  # fmt: skip
STATISTICS = frozenset(
    f"aten::{name}" for name in ("mean", "std", "var", "std_mean", "var_mean", "min", "max", "amin", "amax", "aminmax", "median",
                                 "quantile", "cov", "corrcoef")
)  # fmt: skip
GATHERS = frozenset(["aten::index", "aten::index_select"])
LEAST_ROWS = 1000  # of a table
LEAST_ROUNDS = 6
FEW = 2  # times as many ops run behind a call that brings a batch
JOINS = frozenset(["aten::cat", "aten::concat", "aten::stack", "aten::hstack", "aten::vstack"])
JOINS_ROWS = frozenset(["aten::cat", "aten::concat", "aten::vstack"])  # along the first dimension, as a rule
MOST_JOINED = 16  # cats of a step
LEAST_KEPT, MOST_MADE = 8, 3  # parts of a list; of these the step's own
LISTED = 30  # parts, at most, of which the profiler records shapes
DROPOUT = frozenset(["aten::dropout", "aten::dropout_", "aten::feature_dropout", "aten::alpha_dropout", "aten::native_dropout"])
AT_WORK = frozenset(["aten::native_dropout", "aten::bernoulli_", "aten::_fused_dropout"])  # not in evaluation
LAYERS = frozenset(f"aten::{name}" for name in ("linear", "conv1d", "conv2d", "conv3d", "lstm", "gru", "embedding"))
LEAST_SAMPLES = 3  # rounds of a step
DRAWN, LEAST_DRAWN = frozenset(["aten::uniform_", "aten::normal_"]), 6  # how weights are drawn; tensors
TAKES_WINDOWS = LAYERS | {"aten::matmul", "aten::mm", "aten::bmm", "aten::einsum", "aten::scaled_dot_product_attention",
                          "aten::cdist", "aten::layer_norm", "aten::batch_norm", "aten::transpose", "aten::t", "aten::numpy_T",
                          "aten::T", "aten::mT"}  # fmt: skip
LEAST_CALLS = 5  # of a loader: two passes of two batches at least
LONG_NS, LONGER = 5_000_000, 5  # of a loader's first and last call of a pass, and times the others'


@finding(
    "constants-made-again",
    "a chain of ops that begins with aten::arange, with the same shapes in each layer or step",
    "aten::arange and the ops behind it, up to the first one that takes a tensor of the program",
    "Judging by the shapes, these ops take nothing but numbers, sizes, each other's results and, of a lookup, its table. If the "
    "numbers and the table are the same each time, so is what they make.",
    "If the numbers (and a lookup's table) are the same each time: compute it once, for all layers and steps, and keep it as a "
    "buffer (register_buffer(..., persistent=False)) or in a cache by size.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer",
)
def _constants_made_again(trace: Trace, facts: Facts) -> Seen | None:
    if not facts.steps or not FACTORIES.intersection(trace.op_names):
        return None
    times: dict[tuple[tuple[int, int], ...], list[list[int]]] = {}
    for chain in _constant_chains(trace):
        key = tuple((int(trace.slices.name[row]), int(trace.slices.detail[row])) for row in chain)
        times.setdefault(key, []).append(chain)
    found = [chains for chains in times.values() if _is_again(trace, chains)]
    if not found:
        return None
    spans = Rows(trace.slices, np.sort(np.concatenate([chain for chains in found for chain in chains])))
    found.sort(key=lambda chains: -sum(_took_ns(trace, chain) for chain in chains))
    steps = len(facts.steps)
    told = listed((f"{len(chains) / steps:.3g} x ({_in_words(trace, chains[0])})" for chains in found), most=2)
    return seen_with_time(trace, facts, spans, f"per step: {told}", Effect(dropped(spans), kind=GONE))


def _is_again(trace: Trace, chains: list[list[int]]) -> bool:
    """Return whether they are several in a step, or one in each of several steps."""
    of_step = np.bincount(trace.step_at(trace.slices.start_ns[[chain[0] for chain in chains]]), minlength=len(trace.steps))
    return bool(len(of_step) > 1 and of_step.all()) or int(of_step.max(initial=0)) >= LEAST_TIMES


def _took_ns(trace: Trace, chain: list[int]) -> int:
    return int(trace.slices.end_ns[chain[-1]] - trace.slices.start_ns[chain[0]])


def _in_words(trace: Trace, chain: list[int]) -> str:
    first, last = (trace.slices.names[trace.slices.name[row]] for row in (chain[0], chain[-1]))
    return f"{first} to {last}, {len(chain)} ops"


def _constant_chains(trace: Trace) -> list[list[int]]:
    """Return runs of ops of the steps (rows), on one thread, that need nothing but sizes, by the shapes of what they take: each
    takes no more tensors of a shape than the run has made before it, and where ops outside of such runs take that shape, too, no
    more than are left of those. No op of which the backward pass has a node. Not what begins with a single number, which may be
    the position of what a loop is at.
    """
    differentiated = set(trace.nodes.made_by.tolist())
    found = _runs_of_constants(trace, differentiated, frozenset())
    if not found:
        return []
    outside = trace.outer_ops.at[~among(trace.outer_ops.at, np.sort(np.concatenate(found)))]
    first_of = [rows.at[0] for _, rows in Rows(trace.slices, outside).by(trace.slices.detail[outside])]
    return _runs_of_constants(trace, differentiated, frozenset(shape for row in first_of for shape in _tensors(trace, int(row))))


def _runs_of_constants(trace: Trace, differentiated: set[int], taken_elsewhere: frozenset[Shape]) -> list[list[int]]:
    found: list[list[int]] = []
    ops = trace.outer_ops
    for _, one in ops.by(trace.step_at(ops.start_ns), ops.track):
        rows, names = one.at.tolist(), one.names
        place = 0
        while place < len(rows):
            if names[place] not in FACTORIES:
                place += 1
                continue
            run = _Constants(trace, taken_elsewhere)
            end = place
            while end < len(rows) - 1 and rows[end] not in differentiated and run.takes(rows[end], rows[end + 1]):
                end += 1
            ops_of_run = [name for name in names[place:end] if name not in MAKES_A_NUMBER]
            working = [name for name in ops_of_run if name not in VIEW_OPS]
            is_position = end > place and [math.prod(shape) for shape in _tensors(trace, rows[place + 1])[:1]] == [1]
            if len(ops_of_run) >= LEAST_OPS and len(working) >= LEAST_WORK and not is_position:
                found.append(rows[place:end])
            place = max(end, place + 1)
    return found


class _Constants:
    """What a run of ops has made of nothing but sizes: how many tensors of a shape; views, whose shapes are not known, by how
    many numbers they have; vectors of an unknown length; and tensors of one number, made of Python's.
    """

    def __init__(self, trace: Trace, taken_elsewhere: frozenset[Shape]):
        self.trace, self.taken_elsewhere = trace, taken_elsewhere
        self.made, self.viewed, self.vectors, self.numbers = Counter[Shape](), Counter[int](), 0, 0

    def takes(self, row: int, after: int) -> bool:
        """Return whether an op takes only such results; what it makes is one then. `after`: the op behind it."""
        name, inputs = self.trace.slices.names[self.trace.slices.name[row]], inputs_of(self.trace.slices, row)
        taken, following = _tensors(self.trace, row), _tensors(self.trace, after)
        begins, is_view = name in FACTORIES or name in FILLED, name in VIEW_OPS
        if (
            not taken
            and (name in MAKES_A_NUMBER or name == "aten::to")
            and (name != "aten::empty" or _is_of_no_dimension(inputs))
        ):
            self.numbers += name == "aten::detach_" and inputs is not None and _numbers_in(inputs) > 0
            return True
        if name in RANDOM or inputs is None or _takes_of_the_program(inputs, self.numbers):
            return False
        if not taken and not begins:  # of such a number makes another one
            return self.numbers > 0 and _numbers_in(inputs) == 1
        self.numbers -= _numbers_in(inputs)
        # The table of a lookup is the same each time, too, but for training.
        wanted = Counter(taken[1:] if name == LOOKUP and not self.trace.has_backward else taken)
        if not self._take_views((wanted - self.made).elements()):
            return False
        if not is_view:
            self.made -= Counter({shape: n for shape, n in (wanted & self.made).items() if shape in self.taken_elsewhere})
        if is_view and taken:
            self.viewed[math.prod(taken[0])] += 1
        elif begins and not following:
            self.vectors += 1
        elif not name.endswith("_") or name.endswith("__"):
            result = following[0] if begins else made_of(name, taken, following)
            self.made[result or broadcast(*taken) or taken[0]] += 1
        return True

    def _take_views(self, shapes: Iterable[Shape]) -> bool:
        """Take a view for each of these shapes, or a vector; whether there was one for each."""
        for shape in shapes:
            if self.viewed[math.prod(shape)]:
                self.viewed[math.prod(shape)] -= 1
            elif self.vectors and len(shape) == 1:
                self.vectors -= 1
            else:
                return False
        return True


def _takes_of_the_program(inputs: Inputs, numbers: int) -> bool:
    """Return whether an op takes more tensors of one number, which Python's numbers are not (double, long int), than that, or one
    of a type that is not known.
    """
    if not isinstance(inputs.dims, tuple) or not isinstance(inputs.types, tuple):
        return True
    known = [tensor is not None for tensor in tensors_of(inputs)]
    pairs = zip(inputs.dims, known, strict=False)
    return _numbers_in(inputs) > numbers or any(
        isinstance(shape, tuple) and shape != () and not is_known for shape, is_known in pairs
    )


def _is_of_no_dimension(inputs: Inputs | None) -> bool:
    """Return whether an aten::empty makes a tensor of one number."""
    return inputs is not None and tuple(inputs.values or ())[:1] == ("[]",)


def _numbers_in(inputs: Inputs) -> int:
    """Return how many tensors of one number an op takes."""
    return sum(shape == () and kind in OF_TENSORS for shape, kind in zip(inputs.dims, inputs.types, strict=False))


def _tensors(trace: Trace, row: int) -> list[Shape]:
    """Return the shapes of an op's inputs that have dimensions."""
    return [shape for shape in shapes_of(trace.slices, row) if shape]


@finding(
    "statistics-of-a-table",
    "a mean or a deviation of a large table in each step, and a gather from it",
    "aten::mean, std, var or the like, and aten::index or index_select, of tensors of one shape",
    "Each step takes statistics of a whole table, and gathers from a tensor of the table's shape.",
    "If the table does not change between the steps (as one that another thread or numpy fills may): take its statistics once, "
    "before the loop, and keep them.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
def _statistics_of_a_table(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: as many rows or numbers as the table has nothing else of the step has, and no node goes back to it. So no op of
    the step makes the table, or trains it.
    """
    if not STATISTICS & trace.op_names or not GATHERS & trace.op_names:
        return None
    outer, found, tables = trace.outer_ops, list[int](), Counter[Shape]()
    for _, one in outer.by(outer.track, trace.step_at(outer.start_ns)):
        counted, gathered = one.is_named(STATISTICS.__contains__).tolist(), one.is_named(GATHERS.__contains__).tolist()
        gathers = one.where(np.array(gathered))
        if not any(counted) or not any(gathered) or len(nodes_of(trace, gathers)):  # what is gathered from is trained
            continue
        shapes = [shapes_within(trace.slices, row) for row in one.at.tolist()]
        others = [shape for at, taken in enumerate(shapes) if not counted[at] and not gathered[at] for shape in taken]
        of_others = {n for shape in others for n in (*shape, math.prod(shape))}
        from_which = {taken[0] for at, taken in enumerate(shapes) if gathered[at] and taken}
        large = {shape for shape in from_which if len(shape) > 1 and shape[0] >= LEAST_ROWS
                 and not {shape[0], math.prod(shape)} & of_others}  # fmt: skip
        rows = [at for at, taken in enumerate(shapes) if counted[at] and taken and taken[0] in large]
        found += one.at[rows].tolist()
        tables.update(shapes[at][0] for at in rows)
    if not found:
        return None
    ops, table = Rows(trace.slices, np.sort(np.array(found))), by_dimensions(tables.most_common(1)[0][0])
    names = listed(f"{len(rows) / len(trace.steps):.3g} x {name}" for name, rows in sorted(ops.by_name()))
    words = f"{names} per step, of {'a table' if len(tables) == 1 else 'tables, most often'} of {table}"
    return seen_with_time(trace, facts, ops, words, Effect(dropped(ops), dropped(ops)))


@finding(
    "history-in-each-round",
    "the same sort or sum again and again, each time over more numbers",
    "aten::sort, cumsum or a similar op whose input grows by the same number in each round",
    "Judging by the shapes, each round of a loop also puts its own rows behind those of all earlier rounds, and goes over all of "
    "them.",
    "If the history is for a metric: collect, and compute it once, after the last round. If it is to be shown on the way: every "
    "so many rounds, or from counts that can be added up (a histogram of the scores).",
    source="https://lightning.ai/docs/torchmetrics/stable/pages/overview.html",
)
def _history_in_each_round(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: an op's first dimension is that of the first round times 1, 2, 3, ... (the last can be less), and before each
    call what was collected is joined. Ops of a round count from the first that takes so many, or a list of so many parts, to the
    last; not in the first round, in which the model takes as many.
    """
    if not facts.steps or not OF_METRICS.intersection(trace.op_names):
        return None
    told, rounds, before_the_last = Counter[str](), list[np.ndarray](), list[np.ndarray]()
    outer = trace.outer_ops
    for _, one in outer.by(trace.step_at(outer.start_ns), outer.track):
        if (grows := _what_grows(trace, one)) is None:
            continue
        name, ops, sizes = grows
        told[f"{name} of {sizes[0]:,} to {sizes[-1]:,} rows"] += len(ops)
        behind, of_step = [*ops[1:], len(one)], [(ops[0], ops[0] + 1)]
        for n in range(1, len(ops)):
            of_step.append(_round_of(trace, one, ops[n], (of_step[-1][1], behind[n]), sizes[n], n + 1))
        found = [one.at[first:after] for first, after in of_step[1:]]
        rounds += found
        before_the_last += found[:-1]
    if not rounds:
        return None
    every, gone = (Rows(trace.slices, np.sort(np.concatenate(some))) for some in (rounds, before_the_last))
    words = listed(f"{calls / len(facts.steps):.3g} x {what}" for what, calls in told.items())
    return seen_with_time(trace, facts, every, f"per step: {words}, with what goes with it", Effect(dropped(gone), kind=GONE))


def _rows_of(trace: Trace, row: int) -> int:
    shape = next(iter(shapes_of(trace.slices, row)), ())
    return shape[0] if shape else 0


def _what_grows(trace: Trace, ops: Rows) -> tuple[str, list[int], list[int]] | None:
    """Return an op of a metric whose calls take so many, twice, three times as many rows and so on: its name, the places of its
    calls, and their rows.
    """
    places: dict[str, list[int]] = {}
    for place in np.flatnonzero(ops.is_named(OF_METRICS.__contains__)).tolist():
        places.setdefault(ops.names[place], []).append(place)
    for name, at in places.items():
        sizes = [_rows_of(trace, int(ops.at[place])) for place in at]
        unit, rounds = sizes[0], len(at)
        if rounds < LEAST_ROUNDS or unit < 2 or sizes[:-1] != [unit * n for n in range(1, rounds)]:
            continue
        if sizes[-2] < sizes[-1] <= unit * rounds and _are_collected(trace, ops, at, sizes):
            return name, at, sizes
    return None


def _are_collected(trace: Trace, ops: Rows, at: list[int], sizes: list[int]) -> bool:
    """Return whether before each of these calls but the first two an op joins as many parts as there were rounds, or what the
    round before had and more.
    """

    def joins(place: int, number: int) -> bool:
        parts = shapes_of_first(trace.slices, int(ops.at[place])) if ops.names[place] in JOINS else []
        rows = [shape[0] for shape in parts if shape]
        return len(parts) == number or (len(parts) > 1 and rows[:1] == [sizes[number - 2]])

    return all(any(joins(place, n + 1) for place in range(at[n - 1] + 1, at[n])) for n in range(2, len(at)))


def _round_of(trace: Trace, ops: Rows, at: int, within: tuple[int, int], rows: int, parts: int) -> tuple[int, int]:
    """Return the places, from the first to the one behind the last, of what goes with a call: ops beside it on as many rows, or
    on a list of as many parts, and those on single numbers between and right behind them. `within`: where they may be.
    """

    def goes_with(place: int) -> bool:
        row = int(ops.at[place])
        shapes, of_first = shapes_of(trace.slices, row), shapes_of_first(trace.slices, row)
        return not any(shapes) or (shapes[0] or (0,))[0] in (rows, rows - 1) or len(of_first) == parts

    first, after = at, at + 1
    while first > within[0] and goes_with(first - 1):
        first -= 1
    while after < within[1] and goes_with(after):
        after += 1
    return first, after


@finding(
    "workers-start-anew",
    "a long wait for the DataLoader at the end of each epoch, and another at the start of the next",
    "enumerate(DataLoader)...__next__ on the lane of the steps: the last call of a pass, the time after it, and the first call",
    "Two calls in a row take long, with a gap between them, and those before and behind them do not. The first of the two may be "
    "the last call of a pass over the data, at which worker processes end, and in the gap new ones may start.",
    "If the DataLoader is the same in each epoch, keep its workers: DataLoader(..., persistent_workers=True).",
    source="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
)
def _workers_start_anew(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or not facts.steps:
        return None
    track = int(trace.steps.track[0])
    calls = trace.annotations.where(trace.annotations.is_named(_is_of_workers))
    calls = calls.where(calls.track == track)
    if len(calls) < LEAST_CALLS:
        return None
    length_ns = calls.end_ns - calls.start_ns
    long = length_ns >= max(LONG_NS, LONGER * median(length_ns))
    work = trace.outer_ops.where(trace.outer_ops.track == track)
    # Two long calls, short ones on both sides, a gap between the two, and few ops: the last call of a pass brings no batch, and
    # in the gap the loader's iterator is made.
    at_edges, ops = np.concatenate([[False], long, [False]]), np.diff(np.searchsorted(work.start_ns, calls.start_ns))
    pair = long[:-1] & long[1:] & ~at_edges[:-3] & ~at_edges[3:]
    is_gap = calls.start_ns[1:] - calls.end_ns[:-1] >= LONG_NS
    ends = np.flatnonzero(pair & is_gap & (FEW * ops <= median(ops)))
    if not len(ends) or 2 * int(long.sum()) > len(calls):
        return None
    gaps = calls.end_ns[ends], calls.start_ns[ends + 1]
    between_us = median(calls.start_ns[ends + 1] - calls.end_ns[ends]) / 1000
    last_us, first_us = median(length_ns[ends]) / 1000, median(length_ns[ends + 1]) / 1000
    seen = (
        f"the call before the gap takes {us(last_us)}, the one behind it {us(first_us)}, the others "
        f"{us(median(length_ns[~long]) / 1000)}; {us(between_us)} between the two"
    )
    waits = Rows(calls.slices, np.sort(calls.at[np.concatenate([ends, ends + 1])]))
    share = (path.explained_us(waits) + path.cpu_within_us(track, gaps)) / path.window_us
    return Seen(seen, waits, share=share, effect=Effect(all_of(dropped(waits), skipped(gaps)), kind=GONE))


def _is_of_workers(name: str) -> bool:
    return is_loader(name) and "_MultiProcessingDataLoaderIter" in name


@finding(
    "history-in-each-step",
    "in each step an aten::cat of many equal tensors, of which the step made one",
    "the inputs of aten::cat: a list of tensors of one shape, far more than the step makes",
    "Judging by the shapes, a step may join its own result with those of many steps before it, and goes over all of them.",
    "If the history is for a metric (accuracy, a mean) of all steps: keep counts or sums, and add each batch's own. Else join "
    "once, when all are there, or every so many steps.",
    source="https://lightning.ai/docs/torchmetrics/stable/pages/overview.html",
)
def _history_in_each_step(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a cat of LEAST_KEPT parts and more, and ops behind it on as many rows as all parts have. Not where a layer, a
    product or attention takes them: a window, a sample of a memory, or keys and values.
    """
    if not facts.steps or not JOINS_ROWS & trace.op_names:
        return None
    told, ops = Counter[str](), list[int]()
    for _, one in trace.outer_ops.by(trace.step_at(trace.outer_ops.start_ns), trace.outer_ops.track):
        windows, of_step = set[int](), list[tuple[int, Shape, list[int]]]()
        for place, parts, shape in _kept(trace, one)[:MOST_JOINED]:
            behind = [row for row in one.at[place + 1 :].tolist() if _rows_of(trace, row) == parts * shape[0]]
            of_step.append((parts, shape, [int(one.at[place]), *behind] if behind else []))
            if TAKES_WINDOWS.intersection(_names(trace, np.array(behind, np.int64))):
                windows.add(parts)  # and what is joined of as many belongs to it
        for parts, shape, rows in of_step:
            if rows and parts not in windows:
                ops += rows
                told[f"({parts} tensors of {by_dimensions(shape)})"] += 1
    if not told:
        return None
    words, every = listed(f"{n / len(facts.steps):.3g} x {what}" for what, n in told.items()), Rows(trace.slices, np.unique(ops))
    text = f"joined per step: {words}, of which the step made at most {MOST_MADE}; with what goes over all of them"
    return seen_with_time(trace, facts, every, text, Effect(dropped(every), kind=GONE))


def _kept(trace: Trace, ops: Rows) -> list[tuple[int, int, Shape]]:
    """Return each cat (its place) of many parts, how many they are, and their shape, where the step makes at most MOST_MADE of
    them before. Of more than LISTED parts no shapes are recorded: then the next op's input tells, whose rows are so many times
    those of what the step makes.
    """
    joins = {
        place: shapes_of_first(trace.slices, int(ops.at[place]))
        for place in np.flatnonzero(ops.is_named(JOINS_ROWS.__contains__)).tolist()
    }
    joins = {place: parts for place, parts in joins.items() if not parts or (len(parts) >= LEAST_KEPT and len(set(parts)) == 1)}
    found, own, made = list[tuple[int, int, Shape]](), Counter[Shape](), dict[tuple[int, int], Shape | None]()
    kinds = zip(trace.slices.name[ops.at].tolist(), trace.slices.detail[ops.at].tolist(), strict=True)
    for place, (kind, name) in enumerate(zip(kinds, ops.names, strict=True)) if joins else ():
        if place in joins:
            parts = joins[place]
            if not parts and place + 1 < len(ops):
                joined = next(iter(shapes_of(trace.slices, int(ops.at[place + 1]))), ())
                whole = [shape for shape in own if joined and shape[1:] == joined[1:] and not joined[0] % max(shape[0], 1)]
                parts = next(([shape] * n for shape in whole if (n := joined[0] // max(shape[0], 1)) > LISTED), [])
            if parts and parts[0] and 1 <= own[parts[0]] <= MOST_MADE:
                found.append((place, len(parts), parts[0]))
        elif name not in VIEW_OPS:
            if kind not in made:
                shapes = shapes_of(trace.slices, int(ops.at[place]))
                made[kind] = made_of(name, shapes, []) if shapes else None
            if shape := made[kind]:
                own[shape] += 1
    return found


@finding(
    "layers-before-dropout-again",
    "in inference layers of the same shapes several times in a row, with dropout at work behind some of them",
    "aten::dropout in each round of a loop over the same layers",
    "Dropout is at work, and layers of the same shapes run several times in a row, as in Monte Carlo dropout. What stands before "
    "a round's first dropout is not random.",
    "If all rounds have the same weights and the same input: compute what stands before the first dropout once, and pass the "
    "result, repeated as often as there are rounds, through the rest as one batch.",
    source="https://arxiv.org/abs/1506.02142",
)
def _layers_before_dropout_again(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: a round begins with the op whose input no op of the round makes."""
    if trace.has_backward or not facts.steps or not AT_WORK & trace.op_names:
        return None
    at_work = trace.ops.where(trace.ops.is_named(AT_WORK.__contains__))
    if not (lies_inside(trace, at_work, f"^({'|'.join(DROPOUT)})$") | at_work.is_named("aten::native_dropout".__eq__)).any():
        return None
    ops, told = list[np.ndarray](), Counter[str]()
    for loop in (one for one in loops(trace) if one.rounds >= LEAST_SAMPLES and DROPOUT.intersection(one.ops)):
        for run in loop.runs:
            before = _before_dropout(trace, run)
            layers = [name for name in _names(trace, before[:1].ravel()) if name in LAYERS]
            if layers:
                ops.append(before[1:].ravel())
                told[f"{len(run)} times layers of the same shapes, {len(layers)} of them before the first dropout"] += 1
    if not told:
        return None
    words = listed(f"{n / len(facts.steps):.3g} x {what}" for what, n in told.items())
    every = Rows(trace.slices, np.sort(np.concatenate(ops)))
    return seen_with_time(trace, facts, every, f"per step: {words}", Effect(dropped(every), kind=GONE))


def _before_dropout(trace: Trace, run: np.ndarray) -> np.ndarray:
    """Return the ops of each round before its first dropout (rounds x ops), of a loop's ops (rounds x ops), whose rows may begin
    anywhere in a round; of the first or last round none, where they are not all there.
    """
    names, shapes = _names(trace, run[0]), [shapes_of(trace.slices, int(row)) for row in run[0]]
    made = {made_of(name, own, after) for name, own, after in zip(names, shapes, [*shapes[1:], shapes[0]], strict=True)}
    begins = [at for at, own in enumerate(shapes) if own and len(own[0]) > 1 and own[0] not in made and names[at] in LAYERS]
    if not begins:
        return run[:, :0]
    whole = run.ravel()[begins[0] : len(run.ravel()) - (-begins[0] % len(names))].reshape(-1, len(names))
    return whole[:, : next(at for at, name in enumerate(_names(trace, whole[0])) if name in DROPOUT)]


def _names(trace: Trace, rows: np.ndarray) -> list[str]:
    return [trace.slices.names[name] for name in trace.slices.name[rows].tolist()]


@finding(
    "network-made-in-step",
    "in inference, random weights are drawn for layer after layer, before the layers run",
    "aten::uniform_ or normal_, many times, before the first layer of a step; then aten::copy_, where weights are loaded",
    "Random numbers are written over tensor after tensor before the layers run. It may be a network that is built: its weights "
    "are drawn, and may then be replaced by those of a file.",
    "If the step makes the same network each time: build it and load its weights once, before the loop or when the service "
    "starts.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/module_load_state_dict_tips.html",
)
def _network_made_in_step(trace: Trace, facts: Facts) -> Seen | None:
    if trace.has_backward or not facts.steps or not DRAWN & trace.op_names:
        return None
    outer, starts_ns, ends_ns, rows, drawn = trace.outer_ops, list[int](), list[int](), list[np.ndarray](), 0
    for (_, step), one in outer.by(outer.track, trace.step_at(outer.start_ns)):
        draws, layers = (np.flatnonzero(one.is_named(names.__contains__)) for names in (DRAWN, LAYERS))
        behind = layers[layers > draws[-1]] if len(draws) else layers
        if step < 0 or len(draws) < LEAST_DRAWN or not len(behind) or (layers[:1] < draws[-1]).any():
            continue
        starts_ns.append(int(one.start_ns[draws[0]]))
        ends_ns.append(int(one.start_ns[behind[0]]))
        rows.append(one.at[draws[0] : behind[0]])
        drawn += len(draws)
    if len(starts_ns) < len(facts.steps):
        return None
    union, ops = merged(np.array(starts_ns), np.array(ends_ns)), Rows(trace.slices, np.sort(np.concatenate(rows)))
    took = us(float((union[1] - union[0]).sum()) / 1000 / len(facts.steps))
    words = f"random numbers are written over {drawn / len(facts.steps):.3g} tensors per step, {took} before its first layer"
    return seen_with_time(trace, facts, ops, words, Effect(all_of(dropped(ops), skipped(union))))
