"""Work that is done again: constants made anew, a history that each round goes over, workers that start anew."""

from collections import Counter
import math

import numpy as np
from trace_reader.analysis.replay.edits import GONE, Effect, all_of, dropped, skipped
from trace_reader.analysis.replay.rounds import Shape, broadcast, made_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import inputs_of, shapes_of, shapes_of_first
from trace_reader.findings.registry import LEAST_SHARE, Seen, finding, listed, of_the_steps, seen_with_time
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, median
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.names.range_names import is_loader
from trace_reader.units import us

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
LEAST_OPS, LEAST_WORK = 5, 3  # of a chain: all, and those that are no views
LEAST_TIMES = 3  # in a step
OF_METRICS = frozenset(
    f"aten::{name}" for name in ("sort", "argsort", "cumsum", "topk", "unique", "_unique2", "bincount", "histc", "trapezoid",
                                 "quantile", "median", "searchsorted", "corrcoef", "cov")
)  # fmt: skip
LEAST_ROUNDS = 6
LEAST_CALLS = 5  # of a loader: two passes of two batches at least
LONG_NS, LONGER = 5_000_000, 5  # of a loader's first and last call of a pass, and times the others'
FEW = 2  # times as many ops run behind a call that brings a batch


@finding(
    "constants-made-again",
    "a chain of ops that begins with aten::arange, the same in each layer or step",
    "aten::arange and the ops behind it, up to the first one that takes a tensor of the program",
    "Judging by the shapes, these ops take nothing but numbers, sizes and each other's results. If the numbers are the same each "
    "time, too, so is what they make.",
    "If so, compute it once, for all layers and steps, and keep it as a buffer (register_buffer(..., persistent=False)) or in a "
    "cache by size.",
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
    takes no more tensors of a shape than the run has made before it. Not what begins with a single number, which may be the
    position of what a loop is at.
    """
    found: list[list[int]] = []
    ops = trace.outer_ops.where(trace.step_at(trace.outer_ops.start_ns) >= 0)
    for _, one in ops.by(trace.step_at(ops.start_ns), ops.track):
        rows, names = one.at.tolist(), one.names
        place = 0
        while place < len(rows):
            if names[place] not in FACTORIES:
                place += 1
                continue
            end = _end_of_chain(trace, rows, names, place)
            working = [name for name in names[place:end] if name not in VIEW_OPS]
            is_position = end > place and [math.prod(shape) for shape in _tensors(trace, rows[place + 1])[:1]] == [1]
            if end - place >= LEAST_OPS and len(working) >= LEAST_WORK and not is_position:
                found.append(rows[place:end])
            place = max(end, place + 1)
    return found


def _end_of_chain(trace: Trace, rows: list[int], names: list[str], place: int) -> int:
    """Return the place of the first op behind a run of constants that begins here."""
    made, viewed = Counter[Shape](), Counter[int]()  # of views, whose shapes are not known, by how many numbers they have
    for at in range(place, len(rows) - 1):
        name, following = names[at], _tensors(trace, rows[at + 1])
        if name in RANDOM or inputs_of(trace.slices, rows[at]) is None:
            return at
        taken = _tensors(trace, rows[at])
        begins = name in FACTORIES or name in FILLED
        # The table of a lookup is the same each time, too, but for training.
        missing = Counter(taken[1:] if name == LOOKUP and not trace.has_backward else taken) - made
        views = Counter(math.prod(shape) for shape in missing.elements())  # each of which is taken once
        if views - viewed or not (taken or begins):
            return at
        viewed -= views
        if name in VIEW_OPS and taken:
            viewed[math.prod(taken[0])] += 1
        elif not name.endswith("_"):
            result = following[0] if begins and following else made_of(name, taken, following)
            made[result or broadcast(*taken) or taken[0]] += 1
    return len(rows) - 1


def _tensors(trace: Trace, row: int) -> list[Shape]:
    """Return the shapes of an op's inputs that have dimensions."""
    return [shape for shape in shapes_of(trace.slices, row) if shape]


@finding(
    "history-in-each-round",
    "the same sort or sum again and again, each time over more numbers",
    "aten::sort, cumsum or a similar op whose input grows by the same number in each round",
    "Judging by the shapes, each round of a loop may also go over all that the earlier rounds collected. The work then grows "
    "with the square of the rounds.",
    "If it is for a metric: collect, and compute it once, after the last round. If it is to be shown on the way: every so many "
    "rounds, or from counts that can be added up (a histogram of the scores).",
    source="https://lightning.ai/docs/torchmetrics/stable/pages/overview.html",
)
def _history_in_each_round(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: an op's first dimension is that of the first round times 1, 2, 3, ... Ops of a round count from the first that
    takes so many, or a list of so many parts, to the last; not in the first round, in which the model takes as many.
    """
    path = facts.critical_path
    if path is None or not facts.steps or not OF_METRICS.intersection(trace.op_names):
        return None
    told, rounds, before_the_last = Counter[str](), list[np.ndarray](), list[np.ndarray]()
    outer = trace.outer_ops.where(trace.step_at(trace.outer_ops.start_ns) >= 0)
    for _, one in outer.by(trace.step_at(outer.start_ns), outer.track):
        if (grows := _what_grows(trace, one)) is None:
            continue
        name, ops, unit = grows
        told[f"{name} of {unit:,} to {len(ops) * unit:,} rows"] += len(ops)
        behind, of_step = [*ops[1:], len(one)], [(ops[0], ops[0] + 1)]
        for n in range(1, len(ops)):
            of_step.append(_round_of(trace, one, ops[n], (of_step[-1][1], behind[n]), unit * (n + 1), n + 1))
        found = [one.at[first:after] for first, after in of_step[1:]]
        rounds += found
        before_the_last += found[:-1]
    if not rounds:
        return None
    every, gone = (Rows(trace.slices, np.sort(np.concatenate(some))) for some in (rounds, before_the_last))
    work = trace.launched_in(every)
    share = path.explained_us(Rows(trace.slices, np.sort(np.append(every.at, work.at)))) / path.window_us
    if max(share, of_the_steps(trace, every)) < LEAST_SHARE:
        return None
    words = listed(f"{calls / len(facts.steps):.3g} x {what}" for what, calls in told.items())
    seen = f"per step: {words}; {us(every.total_us / len(facts.steps))} of CPU time with what goes with it"
    return Seen(seen, every, share=share, effect=Effect(dropped(gone), kind=GONE))


def _rows_of(trace: Trace, row: int) -> int:
    shape = next(iter(shapes_of(trace.slices, row)), ())
    return shape[0] if shape else 0


def _what_grows(trace: Trace, ops: Rows) -> tuple[str, list[int], int] | None:
    """Return an op of a metric whose calls take so many, twice, three times as many rows and so on: its name, the places of its
    calls, and the first one's rows.
    """
    places: dict[str, list[int]] = {}
    for place in np.flatnonzero(ops.is_named(OF_METRICS.__contains__)).tolist():
        places.setdefault(ops.names[place], []).append(place)
    for name, at in places.items():
        sizes = [_rows_of(trace, int(ops.at[place])) for place in at]
        unit = sizes[0]
        if len(at) >= LEAST_ROUNDS and unit > 1 and sizes == [unit * n for n in range(1, len(at) + 1)]:
            return name, at, unit
    return None


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
    "The last call of a pass over the data, which brings no batch, and the first one of the next take long, and those between "
    "them do not. Worker processes may end there, and new ones start.",
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
    # The last call of a pass brings no batch: behind it, before the first one of the next, few ops run.
    work = trace.outer_ops.where(trace.outer_ops.track == track)
    between = np.diff(np.searchsorted(work.start_ns, calls.start_ns))
    ends = np.flatnonzero(long[:-1] & long[1:] & (FEW * between <= median(between)))
    if not len(ends) or 2 * int(long.sum()) > len(calls):
        return None
    # The time before a long call, in which no op runs, goes with it.
    starts_ns, begin_ns = calls.start_ns[long], int(trace.steps.start_ns[0])
    before_ns = np.array([int(work.end_ns[work.end_ns <= start].max(initial=begin_ns)) for start in starts_ns.tolist()], np.int64)
    is_long = starts_ns - before_ns >= LONG_NS
    gaps = before_ns[is_long], starts_ns[is_long]
    between_us = median(calls.start_ns[ends + 1] - calls.end_ns[ends]) / 1000
    last_us, first_us = median(length_ns[ends]) / 1000, median(length_ns[ends + 1]) / 1000
    seen = (
        f"the last call of a pass takes {us(last_us)}, the first one of the next {us(first_us)}, the others "
        f"{us(median(length_ns[~long]) / 1000)}; {us(between_us)} between the two"
    )
    waits = calls.where(long)
    share = (path.explained_us(waits) + path.cpu_within_us(track, gaps)) / path.window_us
    return Seen(seen, waits, share=share, effect=Effect(all_of(dropped(waits), skipped(gaps)), kind=GONE))


def _is_of_workers(name: str) -> bool:
    return is_loader(name) and "_MultiProcessingDataLoaderIter" in name
