"""A program that sleeps while it waits for another thread."""

import re

import numpy as np
from trace_reader.analysis.replay.edits import WAITS, Effect, skipped
from trace_reader.analysis.replay.places import cpu_us_of, of_the_other_loading
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.registry import LEAST_SHARE, Seen, a_step, finding
from trace_reader.link.intervals import merged, without
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.units import about, us

SLEEP = "<built-in function sleep"
# Functions of C in which a thread waits.
_WAITS = re.compile(
    r"<built-in (?:method|function) (?:sleep|get|put|acquire|wait|join|select|poll|accept|recv|recv_into|read|readinto)\b"
)
NOT_SEEN = "it is not recorded what the program waits for there"
Union = tuple[np.ndarray, np.ndarray]


def sleeps_in_step(trace: Trace, stacks: Trace, facts: Facts) -> Seen | None:
    """Return the calls of time.sleep() in the steps, and how much of them passes while no other thread is at work. `stacks`: the
    same trace, loaded with stacks.
    """
    if not facts.steps:
        return None
    python = Rows(stacks.slices, stacks.slices.of(Kind.PYTHON))
    sleeps = of_the_other_loading(trace, stacks, python.where(python.is_named(lambda name: name.startswith(SLEEP))))
    tracks = [*trace.backward_tracks.tolist(), *trace.steps.track[-1:].tolist()]
    sleeps = sleeps.where(np.isin(sleeps.track, tracks))
    window = merged(trace.steps.start_ns, trace.steps.end_ns)
    sleep_us = cpu_us_of(sleeps, window) if len(sleeps) else 0.0
    share = sleep_us / max(trace.steps.total_us, 1e-9)
    if share < LEAST_SHARE:
        return None
    shift_ns = stacks.zero_ns - trace.zero_ns
    at_work = _at_work(stacks, {stacks.slices.tracks.index(trace.slices.tracks[track]) for track in sleeps.track.tolist()})
    calls = a_step(len(sleeps), facts, "sleep()", "sleep()s").replace("sleep()s", "x sleep()")
    seen = f"{calls}, {us(sleep_us / len(facts.steps))} of a step: {about(share)} of the steps' time"
    if at_work is None:
        return Seen(seen, sleeps, share=share, no_effect=NOT_SEEN)
    asleep = merged(sleeps.start_ns, sleeps.end_ns)
    idle = without(asleep, (at_work[0] + shift_ns, at_work[1] + shift_ns))
    idle_us = float((idle[1] - idle[0]).sum()) / 1000 / len(facts.steps)
    return Seen(
        f"{seen}; in {us(idle_us)} of it no other thread is at work",
        sleeps,
        share=share,
        effect=Effect(skipped(idle), kind=WAITS),
    )


def _at_work(stacks: Trace, sleeping: set[int]) -> Union | None:
    """Return when another thread than these is in a function or an op, and does not wait; None where none is recorded. What a
    thread without a number has was open when the recording began: what it was at is not known.
    """
    slices = stacks.slices
    rows = Rows(slices, slices.of(Kind.PYTHON, Kind.OP))
    pids = {slices.tracks[track][0] for track in sleeping}
    is_other = np.array([n not in sleeping and track[0] in pids and track[1] != 0 for n, track in enumerate(slices.tracks)])
    others = rows.where(is_other[rows.track])
    if not len(others):
        return None
    busy = []
    for _, one in others.by(others.track):
        waits = one.where(one.is_named(lambda name: _WAITS.match(name) is not None))
        busy.append(without(merged(one.start_ns, one.end_ns), merged(waits.start_ns, waits.end_ns)))
    starts_ns, ends_ns = (np.concatenate(edges) for edges in zip(*busy, strict=True))
    order = np.argsort(starts_ns, kind="stable")
    return merged(starts_ns[order], ends_ns[order])


@finding(
    "sleeps-in-step",
    "time.sleep() takes much of a step",
    "the Python functions above the gaps between the ops (with_stack=True): <built-in function sleep>",
    "The program asks again and again, and sleeps in between, or pauses on purpose. A sleep lasts its time, also where what it "
    "waits for is there already.",
    "Wait for it instead: a queue's get(), an event's wait() or a future's result() returns as soon as it is there. If the pause "
    "is meant, take it out of what is timed.",
    source="https://docs.python.org/3/library/queue.html",
)
def _sleeps_in_step(trace: Trace, facts: Facts) -> Seen | None:
    return sleeps_in_step(trace, trace, facts) if bool(np.any(trace.slices.kind == Kind.PYTHON)) else None
