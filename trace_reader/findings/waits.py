"""Where the CPU waited for the GPU in a step, and what stands in the way of its next launch."""

from collections.abc import Callable

import numpy as np
from trace_reader.analysis.cpu_time import is_compiling
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.idle import AFTER_A_WAIT
from trace_reader.findings.registry import Seen, finding, listed
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.calls import loads_code, manages_memory
from trace_reader.units import about, count, us

WORTH_TELLING = 0.02  # of the critical path's window
PAGEABLE = "Pageable"  # as CUPTI calls the host's memory in a copy's name


@finding(
    "sync-in-step",
    "inside a step, the CPU's lane stands still in a synchronize",
    "cudaStreamSynchronize and the like inside a step, and the op around it",
    "The CPU waits until the GPU has finished, and only then launches the next work: its lead is lost.",
    "Ask for values less often (.item(), .cpu(), nonzero, printing a loss), or keep them on the GPU; leave "
    "torch.cuda.synchronize() out of the loop.",
)
def _sync_in_step(trace: Trace, facts: Facts) -> Seen | None:
    if (idle_us := _idle_after_us(facts)) is None:
        return None
    words = _waited(trace, facts, Reason.SYNCHRONIZE, "synchronizing call", "synchronizing calls")
    calls = _in_path(trace, facts, Reason.SYNCHRONIZE)
    seen = f"{words}; after waits the GPU stood idle for {us(idle_us)}"
    return Seen(seen, calls, share=_part_of_idle(trace, facts, calls, idle_us)) if words else None


def _idle_after_us(facts: Facts) -> float | None:
    """How long the GPU was idle because the CPU had waited for it; None where that is little: then the waits cost nothing."""
    idle_us = dict(facts.idle.causes).get(AFTER_A_WAIT, 0.0) if facts.idle else 0.0
    return idle_us if facts.critical_path and idle_us >= WORTH_TELLING * facts.critical_path.window_us else None


@finding(
    "blocking-copy",
    "inside a step, the CPU's lane stands still in a copy",
    "a long cudaMemcpyAsync in whose time its own copy ends",
    "A copy between the GPU and ordinary (pageable) memory of the host returns only when it is done, also where its name says "
    "async.",
    "Pin the host's memory (pin_memory=True) and copy with non_blocking=True; leave results on the GPU.",
)
def _blocking_copy(trace: Trace, facts: Facts) -> Seen | None:
    idle_us = _idle_after_us(facts)
    words = _waited(trace, facts, Reason.COPY, "copy", "copies")
    if words is None or idle_us is None:
        return None
    copied = trace.work.where(_in_path(trace, facts, Reason.COPY).copied)
    sizes = [size for size in (event.detail for event in copied) if isinstance(size, int)]
    largest = f"; the largest has {max(sizes) / 1e6:.1f} MB" if sizes and max(sizes) >= 1e5 else ""
    pageable = sum(PAGEABLE in name for name in copied.names)
    memory = f"; {pageable} of {len(copied)} from or to pageable memory" if pageable else ""
    seen = f"{words}{largest}{memory}; after waits the GPU stood idle for {us(idle_us)}"
    little = "So little is a value that somebody asked for, as .item() does: ask less often."
    calls = _in_path(trace, facts, Reason.COPY)
    return Seen(seen, calls, little if sizes and max(sizes) < 1e5 else "", _part_of_idle(trace, facts, calls, idle_us))


def _part_of_idle(trace: Trace, facts: Facts, calls: Rows, idle_us: float) -> float:
    """What waiting calls explain of the path: of the GPU's idle time after all such calls, as much as of their time is theirs."""
    every_us = sum(_in_path(trace, facts, reason).total_us for reason in (Reason.SYNCHRONIZE, Reason.COPY, Reason.FREE))
    window_us = facts.critical_path.window_us if facts.critical_path else 0.0
    return idle_us * calls.total_us / every_us / window_us if every_us and window_us else 0.0


@finding(
    "blocked-by-the-queue",
    "launches and copies that take a thousand times as long as others",
    "the runtime calls of a step whose GPU work is far behind",
    "The GPU's queue is full: about a thousand launches are waiting, and the next one returns only when another has finished. "
    "The CPU's time in it is no work.",
    "Nothing to mend on the CPU: the GPU is the bottleneck, look at its kernels.",
)
def _blocked_by_the_queue(trace: Trace, facts: Facts) -> Seen | None:
    words = _waited(trace, facts, Reason.QUEUE, "call", "calls")
    return Seen(words, _in_path(trace, facts, Reason.QUEUE)) if words else None


@finding(
    "allocation-in-step",
    "cudaMalloc or cudaFree inside a recorded step",
    "the runtime calls of a step",
    "Memory is taken from the driver, or given back to it, in the middle of the work; giving it back waits for the device.",
    "After warm-up the caching allocator needs no new memory: look for growing shapes, torch.cuda.empty_cache(), or memory that "
    "is nearly full.",
)
def _allocation_in_step(trace: Trace, facts: Facts) -> Seen | None:
    told = [_cpu_share(facts, ("memory",), "managing memory"), _waited(trace, facts, Reason.FREE, "free", "frees")]
    words = "; ".join(words for words in told if words)
    return Seen(words, _calls_that(trace, facts, manages_memory)) if words else None


@finding(
    "loading-or-compiling-in-step",
    "a recorded step in which kernels are loaded, or graphs compiled",
    "Lazy Function Loading, cuModuleLoad, or rows that end in (dynamo_timed)",
    "Something that happens once is in the recording: a module is loaded at its first kernel, a graph compiled for new shapes.",
    "Record after warm-up; for torch.compile, TORCH_LOGS=recompiles says what it compiles again.",
)
def _loading_or_compiling(trace: Trace, facts: Facts) -> Seen | None:
    what = ("loading", "compilation")
    if (words := _cpu_share(facts, what, "loading code or compiling")) is None:
        return None
    path_us = sum(part.us for part in facts.critical_path.cpu if part.name in what) if facts.critical_path else 0.0
    compiling = trace.ops.where(trace.ops.is_named(is_compiling))
    rows = np.concatenate([_calls_that(trace, facts, loads_code).at, outermost(trace.slices, compiling.at), trace.overheads.at])
    return Seen(
        words, Rows(trace.slices, np.sort(rows)), share=path_us / facts.critical_path.window_us if facts.critical_path else None
    )


def _calls_that(trace: Trace, facts: Facts, test: Callable[[str], bool]) -> Rows:
    """The calls of this kind in the path's window."""
    start_ns = facts.critical_path.start_ns if facts.critical_path else 0
    return trace.calls.where(trace.calls.is_named(test) & (trace.calls.start_ns >= start_ns))


def _waited(trace: Trace, facts: Facts, reason: Reason, one: str, many: str) -> str | None:
    """How many calls waited for this reason in the path's window, how long, and in which ops; None where it is not worth it."""
    path = facts.critical_path
    if path is None or not len(trace.steps):
        return None
    calls = _in_path(trace, facts, reason)
    if calls.total_us < WORTH_TELLING * path.window_us:
        return None
    by_op = [f"{name} ({count(len(rows), one, many)}, {us(rows.total_us)})" for name, rows in _by_op(trace, calls)]
    return f"{count(len(calls), one, many)} waited {us(calls.total_us)} in {us(path.window_us)}: {listed(by_op)}"


def _in_path(trace: Trace, facts: Facts, reason: Reason) -> Rows:
    """The calls that waited for this reason in the path's steps, on a thread that launches or the steps'."""
    calls = trace.waits.where(trace.waits.reason == reason)
    start_ns = facts.critical_path.start_ns if facts.critical_path else 0
    inside = (trace.step_at(calls.start_ns) >= 0) & (calls.start_ns >= start_ns)
    launching = np.isin(calls.track, trace.slices.track[trace.work.call[trace.work.call >= 0]])
    return calls.where(inside & (launching | (calls.track == trace.steps.track[-1])))


def _by_op(trace: Trace, calls: Rows) -> list[tuple[str, Rows]]:
    """The calls by the op that is around them, the most time first."""
    op = innermost(trace.slices, trace.parent, calls.at, trace.slices.kind == Kind.OP)
    names = np.where(op >= 0, trace.slices.name[op], -1)
    groups = [("in no op" if name < 0 else trace.slices.names[name], rows) for (name,), rows in calls.by(names)]
    return sorted(groups, key=lambda group: (-group[1].total_us, group[0]))


def _cpu_share(facts: Facts, what: tuple[str, ...], words: str) -> str | None:
    path = facts.critical_path
    if path is None:
        return None
    spent_us = sum(part.us for part in path.cpu if part.name in what)
    if not spent_us or spent_us < WORTH_TELLING * path.window_us:
        return None
    return f"{words} is {about(spent_us / path.window_us)} of the critical path, {us(spent_us)}"
