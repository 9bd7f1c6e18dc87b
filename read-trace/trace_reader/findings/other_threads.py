"""Threads beside that of the steps: one that it waits for, asleep, and one that works in the same interpreter."""

import re

import numpy as np
from trace_reader.analysis.replay.edits import WAITS, Effect, skipped
from trace_reader.analysis.replay.places import as_in_the_trace, cpu_us_of, of_the_other_loading
from trace_reader.analysis.trace.facts import OF_THE_CPU, Facts
from trace_reader.analysis.trace.own_code import is_program_function
from trace_reader.findings.registry import LEAST_SHARE, Seen, a_step, finding
from trace_reader.link.intervals import merged, within_ns, without
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.units import about, us

SLEEP = "<built-in function sleep"
# Functions of C in which a thread waits.
_WAITS = re.compile(
    r"<built-in (?:method|function) (?:sleep|get|put|acquire|wait|waitpid|wait4|join|select|poll|epoll|kqueue|accept|recv\w*"
    r"|read\w*|synchronize|query|lock|lockf|flock|fsync|sendall|connect)\b"
)
_ASKS = re.compile(r"<built-in function sleep|: (?:get_nowait|put_nowait|done|is_set|empty)$")
BETWEEN_NS = 50_000  # from one op of a thread to the next: Python is there
MUCH = 0.25  # of the steps' time
MOST_SHOWN = 1000  # rows
IN_NO_ROW = "how long the thread of the steps waits for the interpreter's lock is in no row"
NOT_SEEN = "it is not recorded what the program waits for there"
Union = tuple[np.ndarray, np.ndarray]


def sleeps_in_step(trace: Trace, stacks: Trace, facts: Facts) -> Seen | None:
    """Return the calls of time.sleep() in the steps, and how much of them passes while no other thread is at work. `stacks`: the
    same trace, loaded with stacks.
    """
    if not facts.steps:
        return None
    sleeps = sleeps_of(trace, stacks)
    tracks = [*trace.backward_tracks.tolist(), *trace.steps.track[-1:].tolist()]
    sleeps = sleeps.where(np.isin(sleeps.track, tracks))
    window = merged(trace.steps.start_ns, trace.steps.end_ns)
    sleep_us = cpu_us_of(sleeps, window) if len(sleeps) else 0.0
    share = sleep_us / max(trace.steps.total_us, 1e-9)
    if share < LEAST_SHARE:
        return None
    calls = a_step(len(sleeps), facts, "sleep()", "sleep()s").replace("sleep()s", "x sleep()")
    seen = f"{calls}, {us(sleep_us / len(facts.steps))} of a step: {about(share)} of the steps' time"
    asleep = merged(sleeps.start_ns, sleeps.end_ns)
    others = [_at_work(one) for one in _other_threads(trace, stacks)]
    gpu = trace.work.where(np.argsort(trace.work.start_ns, kind="stable"))
    at_work = _together([*others, merged(gpu.start_ns, gpu.end_ns)])
    idle = without(asleep, at_work)
    last = sleeps.where(_is_last(trace, sleeps))
    savable = without(merged(last.start_ns, last.end_ns), at_work)
    slept_ns, idle_ns = (int((union[1] - union[0]).sum()) for union in (asleep, idle))
    if idle_ns == slept_ns:  # it may wait for anything
        return Seen(seen, sleeps, share=share, no_effect=NOT_SEEN)
    who = "no other thread is at work" + ", nor the GPU" * bool(len(trace.work))
    return Seen(
        f"{seen}; in {us(idle_ns / 1000 / len(facts.steps))} of it {who}",
        sleeps,
        share=share,
        effect=Effect(skipped(savable), kind=WAITS),
    )


def _is_last(trace: Trace, sleeps: Rows) -> np.ndarray:
    """Return, of each sleep, whether an op follows on its thread before the next one. Of several in a row the program went on
    asking: all but the last were of something that was not there yet, be it in another process.
    """
    is_last = np.ones(len(sleeps), bool)
    for (track,), rows in sleeps.by(sleeps.track):
        ops = np.sort(trace.outer_ops.start_ns[trace.outer_ops.track == track])
        before_next = np.searchsorted(ops, rows.start_ns[1:])
        is_last[np.flatnonzero(sleeps.track == track)[:-1]] = before_next > np.searchsorted(ops, rows.end_ns[:-1])
    return is_last


def sleeps_of(trace: Trace, stacks: Trace) -> Rows:
    """Return the calls of time.sleep() in the steps."""
    python = Rows(stacks.slices, stacks.slices.of(Kind.PYTHON))
    return of_the_other_loading(trace, stacks, python.where(python.is_named(lambda name: name.startswith(SLEEP))))


def _other_threads(trace: Trace, stacks: Trace) -> list[Rows]:
    """Return the functions of Python and the ops of each thread of the steps' process that is not theirs, nor of a backward pass.
    What a thread without a number has was open when the recording began: what it was at is not known.
    """
    slices = stacks.slices
    of_steps = {trace.slices.tracks[track] for track in (*trace.backward_tracks.tolist(), *trace.steps.track.tolist())}
    pids = {track[0] for track in of_steps}
    is_other = np.array([track not in of_steps and track[0] in pids and track[1] != 0 for track in slices.tracks])
    rows = Rows(slices, slices.of(Kind.PYTHON, Kind.OP))
    rows = rows.where(is_other[rows.track])
    return [as_in_the_trace(trace, stacks, one) for _, one in rows.by(rows.track)]


def _at_work(thread: Rows) -> Union:
    """Return when a thread is in a function of Python, an op, or between two ops that follow each other, and does not wait."""
    waits = thread.where(thread.is_named(lambda name: _WAITS.match(name) is not None))
    ends_ns = thread.end_ns + BETWEEN_NS * (thread.kind == Kind.OP)
    return without(merged(thread.start_ns, ends_ns), merged(waits.start_ns, waits.end_ns))


def _together(unions: list[Union]) -> Union:
    starts_ns, ends_ns = (np.concatenate(edges) for edges in zip(*unions, strict=True))
    order = np.argsort(starts_ns, kind="stable")
    return merged(starts_ns[order], ends_ns[order])


def works_beside(trace: Trace, stacks: Trace, facts: Facts) -> Seen | None:
    """Return the thread beside that of the steps that is at work for most of their time, where that is long; not where the steps
    ask again and again whether it is done. `stacks`: as above.
    """
    if not facts.steps or facts.verdict not in OF_THE_CPU:
        return None
    window = merged(trace.steps.start_ns, trace.steps.end_ns)
    python = Rows(stacks.slices, stacks.slices.of(Kind.PYTHON))
    asks = python.where(python.is_named(lambda name: _ASKS.search(name) is not None or _WAITS.match(name) is not None))
    asks = of_the_other_loading(trace, stacks, asks)
    asks = asks.where(np.isin(asks.track, [*trace.backward_tracks.tolist(), *trace.steps.track.tolist()]))
    if cpu_us_of(asks, window) >= MUCH * trace.steps.total_us:
        return None
    found = [(within_ns(*_at_work(thread), window), thread) for thread in _other_threads(trace, stacks)]
    if not found:
        return None
    work_ns, thread = max(found, key=lambda one: one[0])
    share = work_ns / 1000 / max(trace.steps.total_us, 1e-9)
    if share < MUCH:
        return None
    own = thread.where((thread.kind == Kind.PYTHON) & thread.is_named(is_program_function))
    shown = own if len(own) else thread
    name = max((rows.total_us, name) for name, rows in shown.by_name())[1]
    seen = f"another thread is at work for {us(work_ns / 1000 / len(facts.steps))} of a step: {about(share)} of the steps' time; "
    seen += f"the longest there is {name}"
    shown = shown.where(np.arange(min(MOST_SHOWN, len(shown))))
    return Seen(seen, shown, share=share, no_effect=IN_NO_ROW)


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


@finding(
    "another-thread-works",
    "another thread of the program works while the steps run, and the steps wait for the CPU",
    "the lanes of the CPU's threads: functions of Python, or ops, beside those of the steps",
    "Only one thread runs Python code at a time: while the other one does, the thread of the steps may wait for the "
    "interpreter's lock. Where both are in ops, they share the cores.",
    "Let the other thread do less in Python (whole tensors or arrays, not element by element), or move its work into a process "
    "of its own: a DataLoader's workers, concurrent.futures.ProcessPoolExecutor.",
    source="https://docs.python.org/3/glossary.html#term-global-interpreter-lock",
)
def _another_thread_works(trace: Trace, facts: Facts) -> Seen | None:
    return works_beside(trace, trace, facts)
