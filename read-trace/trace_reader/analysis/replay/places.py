"""The places of a program, by what their absence saves of a step.

A place is all calls of one op, annotation, module, function of the program or node of the backward pass, or a loop: the same run
of ops, several times in a row. The replay is asked of each what a step would take without it, with its kernels as fast as their
bytes and operations let them be (the roofline, at what is usual: op_shapes.py), and, of a loop, if it ran once. Causal profiling
(Curtsinger and Berger, Coz, SOSP 2015) asks so of running programs, by slowing down all others.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import Edit, Edited, dropped, scaled
from trace_reader.analysis.replay.place import ANNOTATION, BACKWARD, FUNCTION, LOOP, MODULE, OP, Place
from trace_reader.analysis.replay.plain_run import UNKNOWN, PlainRun, RunWithoutProfiler
from trace_reader.analysis.replay.what_if import PLAIN, RECORDED, Gain
from trace_reader.analysis.trace.file_facts import device_properties
from trace_reader.analysis.trace.op_shapes import op_shapes, shapes_in_words
from trace_reader.analysis.trace.own_code import is_program_function
from trace_reader.analysis.trace.utilization import MOST_UNKNOWN, PRODUCT_KINDS
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import outermost, parents
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Inputs, Kind
from trace_reader.names.op_names import LAYER_OPS
from trace_reader.system.processes import processes_for, run_in_processes

MOST_NODES = 5000  # of the run that is asked: of a longer one, its first steps
MOST_ASKED, MOST_TOLD = 20, 10  # places, of which the replay is asked: those with the most time on the CPU and the GPU; all
LEAST_GAIN = 0.01  # of a step, that a place is told for
USUAL = 0.8  # of a place's time in a step of all, that it takes in one that is played, or the other way round
SAME = 0.95  # of an outer place's gain: what an inner one saves then, is the outer one's
ALL_OF_A_STEP = 0.97  # what encloses so much names nothing
KNOWN = 0.8  # of a place's time on the GPU, whose floor is known
OF_ANY_LENGTH = frozenset(["aten::slice", "aten::narrow", "aten::fill_", "aten::zero_"])  # in the rounds of a loop
MANY_ROUNDS = 16  # of a loop of any shapes
LEAST_ROUNDS, LONGEST_ROUND, MOST_PERIODS = 4, 400, 6  # of a loop: in a row, ops in a round, lengths of rounds that are tried
MOST_IN_A_ROUND = 2  # times that each op is in a round, where these lengths are looked for
MODULE_PREFIX = "nn.Module: "


class Candidate(msgspec.Struct, frozen=True, eq=False):
    """A place before the replay is asked: its spans (outermost ones, in order of their starts). Of a loop: the `whole` of its
    runs with the time between their ops, the same but for the first round of each (`repeats`), how many `rounds` a step has, and
    `runs`, one after another without a break: of each the rows of its ops, rounds x ops; `has_shapes`: whether each round has the
    same ones (of loops without, only ops are alike).
    """

    kind: str
    name: str
    spans: Rows
    whole: Rows | None = None
    repeats: Rows | None = None
    rounds: int = 0
    ops: tuple[str, ...] = ()
    runs: tuple[np.ndarray, ...] = ()
    has_shapes: bool = True


class AskedPlace(msgspec.Struct, frozen=True, eq=False):
    """A place with its spans, for those who light them."""

    place: Place
    spans: Rows


def places(run: RunWithoutProfiler, plain: PlainRun, stacks: Trace | None = None, with_floors: bool = True) -> list[AskedPlace]:
    """Return the places of a run, what saves most first; of places in one another that save the same, the innermost. `stacks`:
    the same trace, loaded with stacks, for modules and the program's functions. `with_floors`: ask what the GPU's work at its
    floor saves, and how far its products are from the device's peak.
    """
    trace, run = run.trace, run.with_fewer_steps(MOST_NODES)
    times = run.plain_times(plain)[:2]
    if not times or not len(trace.steps):
        return []
    found = [*_spans(trace), *loops(trace), *(functions(trace, stacks) if stacks is not None else ())]
    asked = [(one, *_per_step(trace, one.spans, trace.steps)) for one in found]
    asked.sort(key=lambda item: (-item[1] - item[2], item[0].name))
    if len(run.replay.steps) < len(trace.steps) - trace.steps_left_out:
        asked = [item for item in asked[:MOST_ASKED] if _is_as_usual(trace, run, *item)]
    factors = _floors(trace) if with_floors else _no_floors(trace)
    of = RECORDED if plain.how == UNKNOWN else PLAIN
    asked = asked[:MOST_ASKED]
    ask = [partial(_gain, run, times, dropped(one.spans if one.whole is None else one.whole), of) for one, _, _ in asked]
    gains = list(zip(run_in_processes(ask, processes_for(len(trace.slices))), asked, strict=True))
    gains = sorted([one for one in gains if one[0].high >= LEAST_GAIN], key=lambda one: (-one[0].high, one[1][0].name))
    told = []
    for number, (gone, (candidate, cpu_us, gpu_us)) in enumerate(gains):
        is_told = number < MOST_TOLD  # of the others no other change is asked
        rows = trace.launched_in(candidate.spans)
        left = _at_the_floor(factors, rows) if is_told and len(rows) else None
        floor = None if left is None else _gain(run, times, scaled(rows, left), of)
        once_gain = _gain(run, times, dropped(candidate.repeats), of) if candidate.repeats is not None and is_told else None
        place = Place(
            candidate.kind, candidate.name, candidate.rounds or len(candidate.spans) / len(trace.steps), _shapes(candidate.spans),
            cpu_us, gpu_us, gone, floor, once_gain, candidate.rounds, candidate.ops,
            _mfu(factors, rows),
        )  # fmt: skip
        told.append(AskedPlace(place, candidate.spans))
    told.sort(key=lambda one: (-_middle(one.place.gone), one.place.kind, one.place.name))
    return _without_the_same(told)


def _per_step(trace: Trace, spans: Rows, steps: Rows) -> tuple[float, float]:
    """Return the time that spans take in each of these steps (which follow each other) on the CPU and on the GPU, on average
    (us).
    """
    inside = spans.where((spans.start_ns >= steps.start_ns[0]) & (spans.start_ns < steps.end_ns[-1]))
    cpu_us, gpu_us = cpu_us_of(inside, merged(steps.start_ns, steps.end_ns)), trace.launched_in(inside).total_us
    return cpu_us / len(steps), gpu_us / len(steps)


def _is_as_usual(trace: Trace, run: RunWithoutProfiler, one: Candidate, cpu_us: float, gpu_us: float) -> bool:
    """Return whether a place takes in the steps that are played again about what it takes in all."""
    played_us = sum(_per_step(trace, one.spans, run.replay.steps))
    return USUAL * played_us <= cpu_us + gpu_us <= played_us / USUAL


def _of_rows(factors: Rows, column: np.ndarray, rows: Rows) -> np.ndarray:
    """Of each GPU event what a column says; nan: nothing."""
    if not len(factors):
        return np.full(len(rows), np.nan)
    at = np.minimum(np.searchsorted(factors.at, rows.at), len(factors) - 1)
    return np.where(factors.at[at] == rows.at, column[at], np.nan)


def _at_the_floor(factors: Rows, rows: Rows) -> np.ndarray | None:
    """Of each GPU event what is left at its floor; None where that is not known of most of their time."""
    factor = _of_rows(factors, factors.factor, rows)
    is_known = np.isfinite(factor)
    known_us = float(rows.duration_us[is_known].sum())
    return np.where(is_known, factor, 1.0) if known_us and known_us >= KNOWN * rows.total_us else None


def _mfu(factors: Rows, rows: Rows) -> float | None:
    """Return the share of the GPU events' time that their products would take at the device's peaks; None where they have none,
    what most of their time goes into is not known, or it is more than all.
    """
    share = _of_rows(factors, factors.at_peak, rows)
    is_known = np.isfinite(share)
    unknown_us, every_us = float(rows.duration_us[~is_known].sum()), rows.total_us
    if not every_us or unknown_us > MOST_UNKNOWN * every_us or not (share[is_known] > 0).any():
        return None
    mfu = float((rows.duration_us[is_known] * share[is_known]).sum()) / every_us
    return mfu if mfu <= 1 else None


def _middle(gain: Gain) -> float:
    return (gain.low + gain.high) / 2


def _gain(run: RunWithoutProfiler, times: list[tuple[np.ndarray, float]], edit: Edit, of: str) -> Gain:
    """Return what an edit saves, at both ends of the plain step."""
    gains = []
    for after_ns, before_us in times:
        edited = Edited(run.replay, after_ns)
        edit(edited)
        gains.append(min(max(1 - edited.play().step_us / before_us, 0.0), 1.0) if before_us else 0.0)
    return Gain(min(gains), max(gains), of)


def cpu_us_of(spans: Rows, window: tuple[np.ndarray, np.ndarray]) -> float:
    """Return how long they take of the steps, on their threads."""
    return sum(float(each_within_ns(*merged(one.start_ns, one.end_ns), window).sum()) / 1000 for _, one in spans.by(spans.track))


def _in_steps(trace: Trace, rows: Rows) -> Rows:
    return rows.where(trace.step_at(rows.start_ns) >= 0)


def nodes_of(trace: Trace, spans: Rows) -> np.ndarray:
    """Return the nodes of the backward pass (rows) that were made by what lies in these spans."""
    nodes = trace.nodes.where(trace.nodes.made_by >= 0)
    track, start_ns = trace.slices.track[nodes.made_by], trace.slices.start_ns[nodes.made_by]
    is_made = np.zeros(len(nodes), bool)
    for (number,), one in spans.by(spans.track):
        here = np.flatnonzero(track == number)
        is_made[here] = each_within_ns(start_ns[here], start_ns[here] + 1, merged(one.start_ns, one.end_ns)) > 0
    return nodes.at[is_made]


def _spans(trace: Trace) -> Iterator[Candidate]:
    """Ops, nodes of the backward pass, and annotations, by name."""
    for name, rows in trace.outer_ops.by_name():
        if name.startswith(EVALUATE):
            yield Candidate(BACKWARD, name.removeprefix(EVALUATE).lstrip(": "), rows)
        else:
            yield Candidate(OP, name, rows)
    for name, rows in _in_steps(trace, trace.annotations).by_name():
        yield Candidate(ANNOTATION, name, Rows(trace.slices, outermost(trace.slices, rows.at)))


def functions(trace: Trace, stacks: Trace) -> Iterator[Candidate]:
    """Modules and the program's own functions, as rows whose tracks and times are those of the other loading of the file. Without
    a file's own level, which is no function that could be changed.
    """
    python = Rows(stacks.slices, stacks.slices.of(Kind.PYTHON))
    for name, rows in python.by_name():
        kind = MODULE if name.startswith(MODULE_PREFIX) else FUNCTION if is_program_function(name) else ""
        if kind and not name.endswith(": <module>") and len(found := of_the_other_loading(trace, stacks, rows)):
            yield Candidate(kind, name.removeprefix(MODULE_PREFIX), found)


def library_calls(trace: Trace, stacks: Trace) -> Iterator[Candidate]:
    """Functions of Python's library, of torch and of other packages, and of C, where the program's own functions call them."""
    slices = stacks.slices
    python = Rows(slices, slices.of(Kind.PYTHON))
    own = slices.are_named(Kind.PYTHON, is_program_function)
    is_called = own[np.maximum(parents(slices, (Kind.PYTHON,))[python.at], 0)] & ~own[python.at]
    for name, rows in python.where(is_called).by_name():
        if not name.startswith(MODULE_PREFIX) and len(found := of_the_other_loading(trace, stacks, rows)):
            yield Candidate(FUNCTION, name, found)


def of_the_other_loading(trace: Trace, stacks: Trace, rows: Rows) -> Rows:
    """Return the outermost of these functions in the steps, as rows whose tracks and times are the trace's."""
    rows = as_in_the_trace(trace, stacks, Rows(stacks.slices, outermost(stacks.slices, rows.at)))
    return rows.where((rows.track >= 0) & (trace.step_at(rows.start_ns) >= 0))


def as_in_the_trace(trace: Trace, stacks: Trace, rows: Rows) -> Rows:
    """Return rows of the other loading, whose tracks (-1: of functions of Python alone) and times are the trace's."""
    shift_ns, numbers = stacks.zero_ns - trace.zero_ns, {track: n for n, track in enumerate(trace.slices.tracks)}
    tracks = np.array([numbers.get(track, -1) for track in stacks.slices.tracks])[rows.track]
    return Rows(stacks.slices, rows.at, track=tracks, start_ns=rows.start_ns + shift_ns, end_ns=rows.end_ns + shift_ns)


@lru_cache(maxsize=1)
def loops(trace: Trace) -> list[Candidate]:
    """Return the same run of ops several times in a row, in a step, on one thread, of the same shapes but for parts that are set
    to a number; runs of the same ops are one place. Of ops that are no layers, MANY_ROUNDS of any shapes are a run, too: rows
    of different lengths, tensors of a list. Kept for the trace that was asked of last: several rules ask.
    """
    ops, alike = trace.outer_ops, by_shapes(trace)
    shapes = np.where(ops.is_named(OF_ANY_LENGTH.__contains__), 0, alike[ops.detail] + 1)
    token = distinct(ops.name.astype(np.int64) * (len(alike) + 1) + shapes).which
    is_of_layers = ops.is_named(lambda name: name in LAYER_OPS or name.startswith(EVALUATE))
    ops = Rows(ops.slices, ops.at, token=token, is_of_layers=is_of_layers)
    found: dict[tuple[tuple[str, ...], bool], list[np.ndarray]] = {}
    for _, one in ops.by(trace.step_at(ops.start_ns), ops.track):
        of_same_shapes = repetitions(one.token)
        every = [(run, True) for run in of_same_shapes] + [(run, False) for run in _of_any_shapes(one, of_same_shapes)]
        for (first, period, rounds), has_shapes in every:
            names = tuple(trace.slices.names[n] for n in one.name[first : first + period].tolist())
            rows = one.at[first : first + period * rounds].reshape(rounds, period)
            found.setdefault((_turned(names), has_shapes), []).append(rows)
    candidates = [loop_of(trace, names, runs, has_shapes) for (names, has_shapes), runs in found.items()]
    return [one for one in candidates if one.rounds >= (LEAST_ROUNDS if one.has_shapes else MANY_ROUNDS)]


def _of_any_shapes(ops: Rows, of_same_shapes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return where the same run of ops that are no layers stands many times in a row, besides those that were found."""
    is_free = ~ops.is_of_layers
    for first, period, rounds in of_same_shapes:
        is_free[first : first + period * rounds] = False
    if not is_free.any():
        return []
    alone = -1 - np.arange(len(ops))  # like nothing else
    found = repetitions(distinct(np.where(is_free, ops.name, alone)).which)
    return [one for one in found if one[2] >= MANY_ROUNDS]


def loop_of(trace: Trace, names: tuple[str, ...], runs: Sequence[np.ndarray], has_shapes: bool = True) -> Candidate:
    """Return a loop of these ops, with these runs."""
    every = np.sort(np.concatenate([rows.ravel() for rows in runs]))
    rounds = round(sum(map(len, runs)) / len(trace.steps))
    spans, (whole, repeats) = Rows(trace.slices, every), (_from_round(trace, runs, number) for number in (0, 1))
    return Candidate(LOOP, _loop_name(names, spans), spans, whole, repeats, rounds, names, tuple(runs), has_shapes)


def by_shapes(trace: Trace) -> np.ndarray:
    """For each of the trace's details the first of the same shapes and types, in whatever strides; -1 for none (the last)."""
    details, first = trace.slices.details, dict[str, int]()
    keys = (f"{one.dims} {one.types}" if isinstance(one, Inputs) else str(n) for n, one in enumerate(details))
    return np.array([*(first.setdefault(key, n) for n, key in enumerate(keys)), -1], np.int64)


def _from_round(trace: Trace, runs: Sequence[np.ndarray], number: int) -> Rows:
    """Return where the rounds of each run are from this one on (0: all), with the time between their ops: a row of that round's
    first op, with the end of the last one's last.
    """
    first, last = (np.array([rows[place] for rows in runs]) for place in ((number, 0), (-1, -1)))
    order = np.argsort(first)
    return Rows(trace.slices, first[order], end_ns=trace.slices.end_ns[last[order]])


def _turned(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a round from its least name on: a loop is the same, wherever one begins to count."""
    return min(names[n:] + names[:n] for n in range(len(names)) if names[n] == min(names))


def _loop_name(names: tuple[str, ...], spans: Rows) -> str:
    """Return the ops of a round, those with the most time first."""
    total_us = {name: rows.total_us for name, rows in spans.by_name()}
    counts = Counter(name.removeprefix(EVALUATE).removeprefix(": ") for name in sorted(names, key=lambda name: -total_us[name]))
    listed = ", ".join(name if n == 1 else f"{n} x {name}" for name, n in list(counts.items())[:3])
    return listed + (f" and {len(counts) - 3} more" if len(counts) > 3 else "")


def repetitions(tokens: np.ndarray) -> list[tuple[int, int, int]]:
    """Return where the same run of tokens stands several times in a row: its first place, its length, and how many times; none in
    another. Takes linear time: the lengths that are tried are the most frequent distances from a token to its next like, and to
    the one behind that (a round can have a token twice); and, where these find none, those that are most of one token's
    distances, however often others stand.
    """
    n = len(tokens)
    order = np.argsort(tokens, kind="stable")

    def lengths(behind: int, weights: np.ndarray | None = None) -> list[int]:
        same = tokens[order[behind:]] == tokens[order[:-behind]]
        apart = (order[behind:] - order[:-behind])[same]
        often = np.bincount(apart, minlength=1)[: LONGEST_ROUND + 1]
        rank = often if weights is None else np.bincount(apart, weights[behind:][same], minlength=1)[: LONGEST_ROUND + 1]
        return [p for p in np.argsort(-rank, kind="stable")[:MOST_PERIODS].tolist() if often[p] >= LEAST_ROUNDS - 1]

    frequent = dict.fromkeys(p for behind in range(1, MOST_IN_A_ROUND + 1) for p in lengths(behind))
    periods = dict.fromkeys([*frequent, *lengths(1, 1 / np.bincount(tokens)[tokens[order]])] if n else [])
    found: list[tuple[int, int, int]] = []
    taken = np.zeros(n, bool)
    runs = []
    for period in periods:
        alike = np.concatenate([[False], tokens[period:] == tokens[:-period], [False]])
        edges = np.flatnonzero(alike[1:] != alike[:-1])
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            rounds = (end - first) // period + 1
            if rounds >= LEAST_ROUNDS:
                runs.append((period in frequent, rounds * period, -period, first, rounds))
    # Those of frequent lengths first, then the longest; of equally long ones that with the shortest round.
    for _, length, period, first, rounds in sorted(runs, reverse=True):
        if not taken[first : first + length].any():
            taken[first : first + length] = True
            found.append((first, -period, rounds))
    return sorted(found)


def _floors(trace: Trace) -> Rows:
    """Return the GPU's work of ops with shapes, with the columns `factor`: what of its time is left at what is usual, and
    `at_peak`: which share of it its products would take at the device's peak; nan: not known.
    """
    device = str((device_properties(trace.header) or [{}])[0].get("name", ""))
    at, factor, at_peak = [], [], []
    for fact, rows in op_shapes(trace, device) if len(trace.work) else ():
        known = fact.to_gain_us is not None and fact.time_us > 0
        at.append(rows.at)
        factor.append(np.full(len(rows), 1 - (fact.to_gain_us or 0.0) / fact.time_us if known else np.nan))
        product = (fact.at_peak_us or np.nan) / max(fact.per_step_us, 1e-9) if fact.kind in PRODUCT_KINDS else 0.0
        at_peak.append(np.full(len(rows), np.nan if fact.kind is None else product))
    if not at:
        return _no_floors(trace)
    places, factors, shares = np.concatenate(at), np.concatenate(factor), np.concatenate(at_peak)
    order = np.argsort(places, kind="stable")
    return Rows(trace.slices, places[order], factor=factors[order], at_peak=shares[order])


def _no_floors(trace: Trace) -> Rows:
    return Rows(trace.slices, np.zeros(0, np.int64), factor=np.zeros(0), at_peak=np.zeros(0))


def _shapes(spans: Rows) -> str:
    """Return the inputs that most of the spans have, in words; empty where none were recorded."""
    known = spans.detail[spans.detail >= 0]
    counts = Counter(known.tolist()).most_common(1)
    inputs = spans.slices.details[counts[0][0]] if counts else None
    return shapes_in_words(inputs) if isinstance(inputs, Inputs) else ""


def _without_the_same(asked: list[AskedPlace]) -> list[AskedPlace]:
    """Without those in which another one lies that saves as much, and without those that are all of a step."""
    sizes = [(one.spans.total_us, number) for number, one in enumerate(asked)]  # of two that are the same, the first stays
    kept: list[AskedPlace] = []
    for one, size in zip(asked, sizes, strict=True):
        least = SAME * _middle(one.place.gone)
        smaller = (other for other, its_size in zip(asked, sizes, strict=True) if its_size < size)
        has_inner = any(_middle(other.place.gone) >= least and lies_in(other.spans, one.spans) for other in smaller)
        names_something = _middle(one.place.gone) < ALL_OF_A_STEP or one.place.kind in (OP, BACKWARD, LOOP)
        if names_something and not has_inner:
            kept.append(one)
    return kept


def lies_in(inner: Rows, outer: Rows) -> bool:
    """Return whether all but a little of the inner spans' time lies in the outer ones."""
    inside = total = 0.0
    by_track = dict(outer.by(outer.track))
    for key, one in inner.by(inner.track):
        union = merged(one.start_ns, one.end_ns)
        total += float((union[1] - union[0]).sum())
        if (around := by_track.get(key)) is not None:
            inside += float(each_within_ns(*union, merged(around.start_ns, around.end_ns)).sum())
    return inside >= SAME * total
