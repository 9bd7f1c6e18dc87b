"""A step as bars: how long it is, recorded and without the profiler, and what it is made of by the critical path."""

import msgspec
from trace_reader.analysis.replay.plain_run import MEASURED, UNKNOWN
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.report.theme import PATH_COLOURS

SMALLEST = 0.004  # of a bar
WORDS = {"cpu": "CPU", "compute": "GPU compute", "copy": "copies", "latency": "launch latency", "unknown": "unknown"}


class Part(msgspec.Struct, frozen=True):
    """A part of a bar: what it is, its share of the step, its colour."""

    name: str
    share: float
    colour: str


class StepBar(msgspec.Struct, frozen=True):
    """A step's time, from the lowest to the highest that it may be (us), and its parts in order; none: not known."""

    name: str
    low_us: float
    high_us: float
    parts: tuple[Part, ...]


def step_bars(facts: Facts) -> tuple[StepBar, ...]:
    """Return the recorded step, and the one without the profiler where that is known; none of a trace without steps."""
    plain, found = facts.plain, []
    recorded_us = plain.recorded_step_us or facts.step_period_us
    if recorded_us:
        found.append(StepBar("recorded", recorded_us, recorded_us, _parts(facts.recorded_critical_path)))
    if plain.how != UNKNOWN and plain.low_us is not None and plain.high_us is not None:
        name = "without the profiler" if plain.how == MEASURED else "without the profiler (estimated)"
        is_known = facts.critical_path is not facts.recorded_critical_path or not facts.has_gpu_work
        found.append(StepBar(name, plain.low_us, plain.high_us, _parts(facts.critical_path) if is_known else ()))
    return tuple(found)


def _parts(path: CriticalPath | None) -> tuple[Part, ...]:
    if path is None or path.window_us <= 0:
        return ()
    named = ((name, getattr(path, f"{name}_us") / path.window_us, colour) for name, colour in PATH_COLOURS.items())
    return tuple(Part(WORDS.get(name, name), share, colour) for name, share, colour in named if share >= SMALLEST)
