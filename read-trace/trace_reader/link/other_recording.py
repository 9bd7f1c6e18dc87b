"""Two recordings of one program: the functions of Python of the one, at the times of the other.

Stacks make a step longer, and what it takes is then a guess. So times are those of a recording without, and lines those of one
with stacks: where both do the same ops, a function of the other one lies between the same ops here.
"""

import re
from typing import Any, NamedTuple

import numpy as np
from trace_reader.link.trace import Trace, link
from trace_reader.model.rows import Rows, once
from trace_reader.model.slices import NO_CORRELATION, NO_NODE, Kind, Slices
from trace_reader.names.range_names import is_step
from trace_reader.parse.decode import Decoded
from trace_reader.units import count

LEAST_MATCHED = 0.5  # of the steps, that do in the other recording what they do here


def with_functions_of(trace: Trace, other: Trace) -> tuple[Trace, int]:
    """Return the trace with the functions of Python of another recording of its program (loaded with stacks), at its own times,
    and in how many of its steps the other one does the same. Only of the thread of the steps; what is open around a step is open
    in all of it.

    Raises LookupError: one of them has no steps, or the other one no functions, or its steps do other work.
    """
    for one in (trace, other):
        if not len(one.steps):
            raise LookupError(f"{one.path}: no steps, by which two recordings of a program are matched")
    frames = Rows(other.slices, other.slices.of(Kind.PYTHON))
    frames = frames.where(frames.track == other.steps.track[0])
    if not len(frames):
        raise LookupError(f"{other.path}: no functions of Python were recorded: record it with with_stack=True")
    here, there = _steps(trace), _steps(other)
    matched = _matched(here, there)
    if len(matched) < LEAST_MATCHED * len(here):
        raise LookupError(f"{other.path}: another program than {trace.path}: {_difference(here, there)}")
    columns, names, details = _moved(trace, frames, [(here[number], there[like]) for number, like in matched.items()])
    slices = trace.slices
    every = {name: np.concatenate([added, getattr(slices, name)]) for name, added in columns.items()}
    more = Slices(every, [*slices.names, *names], slices.tracks, [*slices.details, *details])
    decoded = Decoded(
        path=trace.path, slices=more, header=trace.header, total=trace.total, skipped=trace.skipped, first_bad=trace.first_bad,
        zero_timestamps=trace.zero_timestamps, thread_names=trace.thread_names, memory=trace.memory, counters=trace.counters,
        functions_ns=np.sort(columns["start_ns"]), arrows=np.zeros((0, 4), np.int64), zero_ns=trace.zero_ns,
    )  # fmt: skip
    return link(decoded, _steps_of(trace)), len(matched)


def _steps_of(trace: Trace) -> re.Pattern[str] | None:
    """Return the names of the steps, where they are not the profiler's; the reader's own are called as it calls them."""
    names = sorted(set(trace.steps.names))
    return None if all(map(is_step, names)) else re.compile(f"^(?:{'|'.join(map(re.escape, names))})$")


class _Step(NamedTuple):
    """The names of a step's outer ops, on its thread, and when (ns) it, and each of them, begins and ends, in order."""

    ops: tuple[str, ...]
    moments_ns: np.ndarray


def _steps(trace: Trace) -> list[_Step]:
    steps, ops = trace.steps, trace.outer_ops
    ops = ops.where(ops.track == steps.track[0])
    of_step, found = dict(ops.by(trace.step_at(ops.start_ns))), []
    for number in range(len(steps)):
        rows = of_step.get((number,), ops.where(np.zeros(len(ops), bool)))
        of_ops = np.column_stack([rows.start_ns, rows.end_ns]).ravel()
        moments_ns = np.concatenate([steps.start_ns[[number]], of_ops, steps.end_ns[[number]]])
        found.append(_Step(tuple(rows.names), np.maximum.accumulate(moments_ns)))
    return found


def _matched(here: list[_Step], there: list[_Step]) -> dict[int, int]:
    """Return for each step the one of the other recording that does the same ops: of several, the one that is as late."""
    by_ops: dict[tuple[str, ...], list[int]] = {}
    for number, step in enumerate(there):
        by_ops.setdefault(step.ops, []).append(number)
    same = {number: by_ops[step.ops] for number, step in enumerate(here) if step.ops in by_ops}
    return {number: min(those, key=lambda one: (abs(one - number), one)) for number, those in same.items()}


def _difference(here: list[_Step], there: list[_Step]) -> str:
    """Return where a step in the middle of each parts from the other."""
    one, other = (steps[len(steps) // 2].ops for steps in (here, there))
    place = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    named = [ops[place] if place < len(ops) else "the step's end" for ops in (one, other)]
    return f"behind {count(place, 'op', 'ops')} of a step {named[0]} here, and {named[1]} there"


def _moved(trace: Trace, frames: Rows, matched: list[tuple[_Step, _Step]]) -> tuple[dict[str, np.ndarray], list[str], list[Any]]:
    """Return the columns of the functions in all steps, their names and details, as those of the trace are numbered with these
    behind them.
    """
    found = []
    for step, like in matched:
        inside = frames.where((frames.start_ns < like.moments_ns[-1]) & (frames.end_ns > like.moments_ns[0]))
        starts_ns, ends_ns = (  # what is open around the step is cut at its ends
            np.rint(np.interp(moments_ns, like.moments_ns, step.moments_ns)).astype(np.int64)
            for moments_ns in (inside.start_ns, inside.end_ns)
        )
        found.append((inside.at, starts_ns, ends_ns))
    rows, starts_ns, ends_ns = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n, slices, others = len(rows), trace.slices, frames.slices
    name, names = _numbered(others.name[rows], others.names, len(slices.names))
    detail, details = _numbered(others.detail[rows], others.details, len(slices.details))
    columns = {
        "kind": np.full(n, Kind.PYTHON, slices.kind.dtype), "name": name.astype(slices.name.dtype),
        "track": np.full(n, trace.steps.track[0], slices.track.dtype), "start_ns": starts_ns,
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
