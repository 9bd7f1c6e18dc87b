"""Two recordings of one program: the functions of Python of the one, at the times of the other.

Stacks make a step longer, and what it takes is then a guess. So times are those of a recording without, and lines those of one
with stacks. What ties them are the ops: the same names in the same order. A function of the other recording that lies between two
ops lies between the same two ops here, wherever either of the recordings marks its steps.
"""

import re
from typing import Any, NamedTuple

import numpy as np
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import Trace, link
from trace_reader.model.rows import Rows, once
from trace_reader.model.slices import NO_CORRELATION, NO_NODE, Kind, Slices
from trace_reader.names.range_names import is_step
from trace_reader.parse.decode import Decoded
from trace_reader.units import count

LEAST_MATCHED = 0.5  # of the steps, whose ops the other recording has, too
MOST_TRIED = 64  # places at which the ops of a step stand in the other recording
LONGEST = 1 << 14  # ops of a chain


class _Thread:
    """A recording's ops on the thread of its steps, none in another, with a number for each name (`numbers` is filled); its
    steps, what these are called without their numbers (`marks`), and their starts and ends in order (ns) with the op before which
    each is (`gaps`).
    """

    def __init__(self, trace: Trace, numbers: dict[str, int]):
        ops = trace.ops.where(trace.ops.track == trace.steps.track[-1])
        self.ops, self.steps = Rows(trace.slices, outermost(trace.slices, ops.at)), trace.steps
        self.names = np.array([numbers.setdefault(name, len(numbers)) for name in self.ops.names], np.int32)
        self.marks = {re.sub(r"\d+", "", name) for name in self.steps.names}
        self.edges_ns = np.sort(np.concatenate([self.steps.start_ns, self.steps.end_ns]))
        self.gaps = self.at(self.edges_ns)

    def at(self, moment_ns: np.ndarray) -> np.ndarray:
        """Return how many of its ops begin before these moments."""
        return np.searchsorted(self.ops.start_ns, moment_ns)

    def edges_in(self, gap: int) -> np.ndarray:
        """Return the starts and ends of steps between an op and the one before it."""
        return self.edges_ns[slice(*np.searchsorted(self.gaps, (gap, gap + 1)))]


class _Chain(NamedTuple):
    """Steps from `first` to `last` whose ops stand in a row in the other recording, and moments (ns) of both that are one."""

    first: int
    last: int
    here_ns: np.ndarray
    there_ns: np.ndarray


def with_functions_of(trace: Trace, other: Trace) -> tuple[Trace, int]:
    """Return the trace with the functions of Python of another recording of its program (loaded with stacks), at its own times,
    and in how many of its steps the other one has the same ops. Only of the thread of the steps, and only inside of these.

    Raises LookupError: one of them has no steps, or the other one no functions, or its ops are others.
    """
    for one in (trace, other):
        if not len(one.steps):
            raise LookupError(f"{one.path}: no steps, by which two recordings of a program are matched")
    frames = Rows(other.slices, other.slices.of(Kind.PYTHON))
    frames = frames.where(frames.track == other.steps.track[-1])
    if not len(frames):
        raise LookupError(f"{other.path}: no functions of Python were recorded: record it with with_stack=True")
    numbers: dict[str, int] = {}
    here, there = _Thread(trace, numbers), _Thread(other, numbers)
    chains = _chains(here, there)
    matched = sum(chain.last - chain.first + 1 for chain in chains)
    if matched < LEAST_MATCHED * len(trace.steps):
        raise LookupError(f"{other.path}: another program than {trace.path}: {_difference(here, there, chains)}")
    columns, names, details = _moved(trace, frames, chains)
    slices = trace.slices
    every = {name: np.concatenate([added, getattr(slices, name)]) for name, added in columns.items()}
    more = Slices(every, [*slices.names, *names], slices.tracks, [*slices.details, *details])
    decoded = Decoded(
        path=trace.path, slices=more, header=trace.header, total=trace.total, skipped=trace.skipped, first_bad=trace.first_bad,
        zero_timestamps=trace.zero_timestamps, thread_names=trace.thread_names, memory=trace.memory, counters=trace.counters,
        functions_ns=trace.functions_ns, arrows=np.zeros((0, 4), np.int64), zero_ns=trace.zero_ns,
    )  # fmt: skip
    return link(decoded, _steps_of(trace)), matched


def _steps_of(trace: Trace) -> re.Pattern[str] | None:
    """Return the names of the steps, where they are not the profiler's; the reader's own are called as it calls them."""
    names = sorted(set(trace.steps.names))
    return None if all(map(is_step, names)) else re.compile(f"^(?:{'|'.join(map(re.escape, names))})$")


def _chains(here: _Thread, there: _Thread) -> list[_Chain]:
    """Return the longest rows of steps, from the first step on, whose ops the other recording has in a row. An op before and one
    behind belong to it, where they were recorded: between them and the steps lies Python, too.
    """
    begins, ends, n = here.at(here.steps.start_ns), here.at(here.steps.end_ns), len(here.names)
    found, step = list[_Chain](), 0
    while step < len(here.steps):
        for around in (1, 0):
            first, after = max(int(begins[step]) - around, 0), min(int(ends[step]) + around, n)
            places = _places(there.names, here.names[first:after])
            if len(places):
                break
        else:
            step += 1
            continue
        longest = max(LONGEST, after - first)  # of a step at least, however many ops it has
        wanted = here.names[first : first + longest]
        alike = np.array([_in_common(wanted, there.names[place : place + longest]) for place in places.tolist()])
        # The longest; of several one behind another op, which the Python before it needs; then the one that is as late.
        nearest = np.lexsort((np.abs(np.arange(len(places)) - step), places == 0, -alike))[0]
        place, reached = int(places[nearest]), first + int(alike[nearest])
        last = step + int(np.flatnonzero(np.minimum(ends[step:] + around, n) <= reached)[-1])
        found.append(_chain(here, there, (step, last), (first, min(int(ends[last]) + around, n)), place - first))
        step = last + 1
    return found


def _places(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where these names stand in a row, MOST_TRIED places at most."""
    text, part, found, at = names.tobytes(), wanted.tobytes(), list[int](), 0
    while part and len(found) < MOST_TRIED and (at := text.find(part, at)) >= 0:
        if at % names.itemsize == 0:
            found.append(at // names.itemsize)
        at += 1
    return np.array(found, np.int64)


def _in_common(names: np.ndarray, others: np.ndarray) -> int:
    """Return how many names both begin with."""
    n = min(len(names), len(others))
    differ = np.flatnonzero(names[:n] != others[:n])
    return int(differ[0]) if len(differ) else n


def _chain(here: _Thread, there: _Thread, steps: tuple[int, int], ops: tuple[int, int], shift: int) -> _Chain:
    """Return the chain of steps (first and last) with its ops (from, to), which in the other recording stand `shift` further on.

    Moments that are one are the starts and ends of ops; and where a step ends in both between the same two ops, or at an end of
    the chain, that.
    """
    first, after = ops
    pairs = [np.zeros((0, 2), np.int64)]
    one, other = here.ops.where(np.arange(first, after)), there.ops.where(np.arange(first + shift, after + shift))
    pairs += [np.column_stack([one.start_ns, other.start_ns]), np.column_stack([one.end_ns, other.end_ns])]
    if here.marks == there.marks:  # else one's step may begin before the Python with which the other's ends
        for gap in once(here.gaps[(here.gaps >= first) & (here.gaps <= after)]).tolist():
            both = [thread.edges_in(gap + more) for thread, more in ((here, 0), (there, shift))]
            if all(map(len, both)):
                pairs.append(np.array([[both[0][0], both[1][0]], [both[0][-1], both[1][-1]]]))
    # Beyond the chain's ends no op ties them: there the other one goes on at its pace, up to its next op.
    begin_ns, end_ns = int(here.steps.start_ns[steps[0]]), int(here.steps.end_ns[steps[1]])
    every = np.concatenate(pairs)
    (first_ns, other_first_ns), (last_ns, other_last_ns) = every.min(axis=0).tolist(), every.max(axis=0).tolist()
    pace = (other_last_ns - other_first_ns) / max(last_ns - first_ns, 1)
    if begin_ns < first_ns:
        earliest_ns = int(there.ops.end_ns[first + shift - 1]) if first + shift > 0 else -(2**62)
        pairs.append(np.array([[begin_ns, max(other_first_ns - round((first_ns - begin_ns) * pace), earliest_ns)]]))
    if end_ns > last_ns:
        latest_ns = int(there.ops.start_ns[after + shift]) if after + shift < len(there.ops) else 2**62
        pairs.append(np.array([[end_ns, min(other_last_ns + round((end_ns - last_ns) * pace), latest_ns)]]))
    every = np.concatenate(pairs)
    every = every[np.lexsort((every[:, 1], every[:, 0]))]
    return _Chain(*steps, *(np.maximum.accumulate(column) for column in every.T))


def _difference(here: _Thread, there: _Thread, chains: list[_Chain]) -> str:
    """Return where the first step that has no match parts from the other recording's."""
    matched = {step for chain in chains for step in range(chain.first, chain.last + 1)}
    step = next(number for number in range(len(here.steps)) if number not in matched)
    ops = []
    for one in (here, there):
        number = min(step, len(one.steps) - 1)
        begin, end = one.at(one.steps.start_ns[[number]])[0], one.at(one.steps.end_ns[[number]])[0]
        ops.append(one.ops.where(np.arange(begin, end)).names)
    if not ops[0]:
        return "its steps have no ops, by which two recordings are matched"
    place = next((n for n, (a, b) in enumerate(zip(*ops, strict=False)) if a != b), min(map(len, ops)))
    named = [names[place] if place < len(names) else "the step's end" for names in ops]
    return f"behind {count(place, 'op', 'ops')} of a step {named[0]} here, and {named[1]} there"


def _moved(trace: Trace, frames: Rows, chains: list[_Chain]) -> tuple[dict[str, np.ndarray], list[str], list[Any]]:
    """Return the columns of the functions in all steps, their names and details, as those of the trace are numbered with these
    behind them.
    """
    found = []
    for chain in chains:
        inside = frames.where((frames.start_ns < chain.there_ns[-1]) & (frames.end_ns > chain.there_ns[0]))
        begin_ns, end_ns = trace.steps.start_ns[chain.first], trace.steps.end_ns[chain.last]
        starts_ns, ends_ns = (
            np.clip(np.rint(np.interp(moments_ns, chain.there_ns, chain.here_ns)).astype(np.int64), begin_ns, end_ns)
            for moments_ns in (inside.start_ns, inside.end_ns)
        )
        found.append((inside.at[ends_ns > starts_ns], starts_ns[ends_ns > starts_ns], ends_ns[ends_ns > starts_ns]))
    rows, starts_ns, ends_ns = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n, slices, others = len(rows), trace.slices, frames.slices
    name, names = _numbered(others.name[rows], others.names, len(slices.names))
    detail, details = _numbered(others.detail[rows], others.details, len(slices.details))
    columns = {
        "kind": np.full(n, Kind.PYTHON, slices.kind.dtype), "name": name.astype(slices.name.dtype),
        "track": np.full(n, trace.steps.track[-1], slices.track.dtype), "start_ns": starts_ns,
        "duration_us": (ends_ns - starts_ns) / 1000, "correlation": np.full(n, NO_CORRELATION), "node": np.full(n, NO_NODE),
        "forward_thread": np.zeros(n, slices.forward_thread.dtype), "detail": detail.astype(slices.detail.dtype),
        "region": np.full(n, -1, slices.region.dtype),
    }  # fmt: skip
    return columns, names, details


def _numbered(places: np.ndarray, values: list[Any], first: int) -> tuple[np.ndarray, list[Any]]:
    """Return the places of these values in a list that gets them behind its `first`; -1 stays."""
    used = once(places[places >= 0])
    numbers = np.where(places >= 0, first + np.searchsorted(used, places), -1)
    return numbers, [values[place] for place in used.tolist()]
