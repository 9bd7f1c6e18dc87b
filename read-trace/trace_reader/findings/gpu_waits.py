"""Where the CPU waited for the GPU in a step, and what delayed its next launch."""

from collections.abc import Callable
import re

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, WAITS, Effect, all_of, dropped, scaled, surely, without_waits
from trace_reader.analysis.trace.cpu_time import is_compiling
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.registry import Seen, finding, hold, lies_inside, listed, not_compiling
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import PAGEABLE, Reason
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_synchronizing, loads_code, manages_memory
from trace_reader.names.devices import peak
from trace_reader.units import about, count, us

MIN_SHARE_OF_PATH = 0.01  # of the critical path's window
LITTLE_BYTES = 100_000
PIN = (
    "Pin the host memory (pin_memory=True), and copy with non_blocking=True: the copy of pageable memory waits for the GPU here."
)
LATEST_NS = np.iinfo(np.int64).max


@finding(
    "sync-in-step",
    "inside a step, the CPU blocks in a synchronize",
    "cudaStreamSynchronize inside a step, and the op around it",
    "The CPU waits for the GPU in these calls. Afterwards the GPU waits for the CPU's next launch.",
    "Read values less often (.item(), .cpu(), nonzero, printing a loss), and keep torch.cuda.synchronize() out of the loop.",
)
def _sync_in_step(trace: Trace, facts: Facts) -> Seen | None:
    path, calls = facts.critical_path, without_the_recordings(trace, _in_path(trace, facts, Reason.SYNCHRONIZE))
    if path is None or (saved_us := path.after_waits_us(calls)) < MIN_SHARE_OF_PATH * path.window_us:
        return None
    words = _waited(trace, path, calls, "synchronizing call", "synchronizing calls")
    seen = f"{words}; the GPU's wait afterwards is {_on_path(path, saved_us)}"
    if 2 * (searches := calls.where(lies_inside(trace, calls, CONVOLUTION))).total_us > calls.total_us:
        ops = _around(trace, searches, CONVOLUTION)
        others = _unread(trace, calls.where(~among(calls.at, searches.at)))
        effect = Effect(all_of(dropped(ops, LEFT_OF_SEARCH, LEFT_OF_SEARCH), others.most), kind=REPLACED)
        return Seen(seen, calls, SEARCHES, max(saved_us, path.explained_us(ops)) / path.window_us, effect)
    next = PIN if 2 * _of_what_is_sent(trace, calls).total_us > calls.total_us else ""
    return Seen(seen, calls, next, saved_us / path.window_us, _unread(trace, calls))


def _of_what_is_sent(trace: Trace, calls: Rows) -> Rows:
    """Return the calls that wait in an op which copies from pageable memory to the GPU."""
    copies = trace.work.where((trace.work.call >= 0) & trace.work.is_named(lambda name: PAGEABLE in name and "HtoD" in name))
    is_op = trace.slices.kind == Kind.OP
    ops = innermost(trace.slices, trace.parent, copies.call, is_op)
    return calls.where(among(innermost(trace.slices, trace.parent, calls.at, is_op), ops[ops >= 0]))


def without_the_recordings(trace: Trace, calls: Rows) -> Rows:
    """Return the calls without those that may be the recording's: that synchronize, in no op, before all launches of the first
    recorded step or behind all of the last one, where not every step has one there.
    """
    syncs = trace.calls.where(trace.calls.is_named(is_synchronizing) & (trace.step_at(trace.calls.start_ns) >= 0))
    syncs = syncs.where(innermost(trace.slices, trace.parent, syncs.at, trace.slices.kind == Kind.OP) < 0)
    steps, step = len(trace.steps), trace.step_at(syncs.start_ns)
    launch_ns = trace.slices.start_ns[trace.work.call[trace.work.call >= 0]]
    of_step = trace.step_at(launch_ns)
    first_ns, last_ns = np.full(steps, LATEST_NS), np.full(steps, -LATEST_NS)
    np.minimum.at(first_ns, of_step[of_step >= 0], launch_ns[of_step >= 0])
    np.maximum.at(last_ns, of_step[of_step >= 0], launch_ns[of_step >= 0])
    own = np.zeros(len(syncs), bool)
    for edge, outside in ((0, syncs.start_ns < first_ns[step]), (steps - 1, syncs.start_ns > last_ns[step])):
        if len(distinct(step[outside]).values) < steps:
            own |= outside & (step == edge)
    return calls.where(~among(calls.at, syncs.at[own]))


def _around(trace: Trace, calls: Rows, pattern: str) -> Rows:
    """Return the outermost ops of such names that hold these calls."""
    search = re.compile(pattern).search
    ops = trace.ops.where(trace.ops.is_named(lambda name: search(name) is not None))
    ops = Rows(trace.slices, outermost(trace.slices, ops.at))
    return ops.where(hold(ops, calls.track, calls.start_ns))


def _unread(trace: Trace, calls: Rows) -> Effect:
    """Return what is left if these calls wait for nothing; at best, if nothing is read either: what an .item() around them
    does.
    """
    is_item = trace.slices.are_named(Kind.OP, "aten::item".__eq__)
    around = innermost(trace.slices, trace.parent, calls.at, is_item)
    items = Rows(trace.slices, distinct(around[around >= 0]).values.astype(np.int64))
    return Effect(all_of(without_waits(calls), dropped(items)), without_waits(calls), WAITS)


def _on_path(path: CriticalPath, saved_us: float) -> str:
    return f"{about(saved_us / path.window_us)} of the critical path"


CONVOLUTION, LEFT_OF_SEARCH = r"^aten::(cudnn_|miopen_)?convolution", 0.1  # of a convolution's time, with all that it tries
SEARCHES = (
    "Most of this time is in convolutions: for each size that is new, torch.backends.cudnn.benchmark=True may be trying several "
    "algorithms, and waiting for them. If sizes change from step to step, set it to False, or pad to a few sizes."
)
FETCH_LESS = (
    "Compute on the GPU what the host needs (an argmax, a draw by torch.multinomial, uint8 in place of float32), and copy only "
    "that. Or pin the host memory (pin_memory=True), and copy with non_blocking=True."
)


@finding(
    "blocking-copy",
    "inside a step, the CPU waits in a copy",
    "a long cudaMemcpyAsync, and the copy's own time on the GPU's lane",
    "These calls do not return before their copy runs or is done. A copy from or to pageable memory can block like this, even "
    "if its name says Async. A copy to the GPU may return once the bytes are staged; one from the GPU, once they have arrived.",
    "Pin the host memory (pin_memory=True), copy with non_blocking=True, and leave results on the GPU.",
)
def _blocking_copy(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None:
        return None
    calls = _in_path(trace, facts, Reason.COPY)
    copied = trace.work.where(among(trace.work.call, calls.at))
    saved_us = path.explained_us(copied) + path.after_waits_us(calls)
    if saved_us < MIN_SHARE_OF_PATH * path.window_us:
        return None
    sizes = [size for size in (event.detail for event in copied) if isinstance(size, int)]
    largest = f"; up to {max(sizes) / 1e6:.1f} MB each" if sizes and max(sizes) >= LITTLE_BYTES else ""
    pageable = sum(PAGEABLE in name for name in copied.names)
    of_all = "" if pageable == len(copied) else f" ({pageable} of {len(copied)} in all)"
    memory = f"; pageable memory{of_all}" if pageable else ""
    words = _waited(trace, path, calls, "copy", "copies")
    little = "Read values less often: a copy this small is usually the result of .item() or a print."
    little = little if sizes and max(sizes) < LITTLE_BYTES else ""
    longest = copied.names[int(np.argmax(copied.duration_us))] if len(copied) else ""
    next = little or (FETCH_LESS if "DtoH" in longest else "")
    rows = Rows(trace.slices, np.sort(np.concatenate([calls.at, copied.at])))
    on_path = f"copies and the GPU's wait after them are {_on_path(path, saved_us)}"
    effect = _unread(trace, calls) if little else _pinned(facts, calls, copied)
    return Seen(f"{words}{largest}{memory}; {on_path}", rows, next, saved_us / path.window_us, effect)


def _pinned(facts: Facts, calls: Rows, copied: Rows) -> Effect | None:
    """Return what pinned memory makes of these copies: they wait for nothing, and at best move their bytes as fast as the link
    can.
    """
    gb_per_s = peak(facts.device or "", "pcie")
    if gb_per_s is None:
        return None
    sizes = np.array([size if isinstance(size, int) else 0 for size in (event.detail for event in copied)])
    faster = np.minimum(sizes / gb_per_s / np.maximum(copied.duration_us * 1000, 1), 1.0)
    return Effect(all_of(without_waits(calls), scaled(copied, np.where(sizes > 0, faster, 1.0))), without_waits(calls), WAITS)


def _in_window(trace: Trace, facts: Facts, calls: Rows) -> np.ndarray:
    """For each call, whether it begins in a recorded step of the path's window."""
    path = facts.critical_path
    inside = (calls.start_ns >= path.start_ns) & (calls.start_ns < path.end_ns) if path else np.ones(len(calls), bool)
    return (trace.step_at(calls.start_ns) >= 0) & inside & trace.has_steps[calls.track]


@finding(
    "blocked-by-the-queue",
    "launches and copies that take a thousand times longer than others",
    "the runtime calls of a step whose GPU work lags far behind",
    "These calls began with at least 900 launches pending and took over 10 times the usual. They probably waited for room in "
    "the GPU's queue.",
    "Look at what the GPU does: the CPU is far ahead of it in these calls.",
)
def _blocked_by_the_queue(trace: Trace, facts: Facts) -> Seen | None:
    path, calls = facts.critical_path, _in_path(trace, facts, Reason.QUEUE)
    if path is None or calls.total_us < MIN_SHARE_OF_PATH * path.window_us:
        return None
    return Seen(_waited(trace, path, calls, "call", "calls"), calls)


@finding(
    "allocation-in-step",
    "cudaMalloc or cudaFree inside a recorded step",
    "the runtime calls of a step",
    "Recorded steps allocate or free memory through the driver; cudaFree also waits for the GPU.",
    "Look for growing shapes, torch.cuda.empty_cache() or nearly full memory: a warm caching allocator rarely calls the driver. "
    "If memory grows from step to step, something keeps tensors (a list of outputs, a sum of losses without detach()).",
)
def _allocation_in_step(trace: Trace, facts: Facts) -> Seen | None:
    path, frees = facts.critical_path, _in_path(trace, facts, Reason.FREE)
    if path is None:
        return None
    told = [_cpu_share(facts, ("memory",), "managing memory")]
    if frees.total_us >= MIN_SHARE_OF_PATH * path.window_us:
        told.append(_waited(trace, path, frees, "free", "frees"))
    words = "; ".join(words for words in told if words)
    calls = _calls_that(trace, facts, manages_memory)
    saved_us = path.explained_us(calls) + path.after_waits_us(frees)
    on_path = f"with the GPU's wait after frees, {_on_path(path, saved_us)}"
    if not words:
        return None
    return Seen(f"{words}; {on_path}", calls, share=saved_us / path.window_us, effect=surely(dropped(calls)))


@finding(
    "loading-or-compiling-in-step",
    "a recorded step loads kernels or compiles graphs",
    "Lazy Function Loading, cuModuleLoad, rows ending in (dynamo_timed)",
    "Recorded steps load GPU code or compile graphs. This usually happens once, at a kernel's first use or for new shapes.",
    "Record after warm-up; for torch.compile, TORCH_LOGS=recompiles shows what is compiled again.",
)
def _loading_or_compiling(trace: Trace, facts: Facts) -> Seen | None:
    what = ("loading", "compilation")
    if (words := _cpu_share(facts, what, "loading code or compiling")) is None:
        return None
    path = facts.critical_path
    path_us = sum(part.us for part in path.cpu if part.name in what) if path else 0.0
    compiling = outermost(trace.slices, trace.ops.at[trace.ops.is_named(is_compiling)])
    rows = np.sort(np.concatenate([_calls_that(trace, facts, loads_code).at, compiling, trace.overheads.at]))
    steps = set(trace.step_at(trace.slices.start_ns[compiling]).tolist())
    again = "It compiles in every step: mark what changes as dynamic (torch._dynamo.mark_dynamic), or pad to a few shapes."
    next = again if len(facts.steps) > 2 and steps >= set(range(len(facts.steps))) else ""
    effect = Effect(dropped(Rows(trace.slices, compiling))) if next else None
    return Seen(words, Rows(trace.slices, rows), next, path_us / path.window_us if path else None, effect)


def _calls_that(trace: Trace, facts: Facts, test: Callable[[str], bool]) -> Rows:
    """Return the calls of this kind in the path's window."""
    start_ns = facts.critical_path.start_ns if facts.critical_path else 0
    return trace.calls.where(trace.calls.is_named(test) & (trace.calls.start_ns >= start_ns))


def _waited(trace: Trace, path: CriticalPath, calls: Rows, one: str, many: str) -> str:
    """Return how many calls waited in the path's window, how long they took, and in which ops."""
    steps = int((trace.steps.start_ns >= path.start_ns).sum())
    in_step = distinct(trace.step_at(calls.start_ns))
    is_even = len(in_step.values) == steps and bool((in_step.counts == in_step.counts[0]).all())
    n = steps if is_even else 1  # all of the sentence is of a step, or of all of them
    by_op = [f"{name} ({_calls(len(rows) / n)}, {us(_within_us(path, rows) / n)})" for name, rows in _by_op(trace, calls)]
    of = " per step" if is_even else f" in {count(steps, 'step')}" if steps else ""
    return f"{count(len(calls) // n, one, many)}{of} took {us(_within_us(path, calls) / n)}: {listed(by_op)}"


def _calls(n: float) -> str:
    return count(round(n), "call") if n == round(n) else f"{n:.1f} calls"


def _within_us(path: CriticalPath, calls: Rows) -> float:
    """Return how long these calls took in the path's window."""
    return int((np.minimum(calls.end_ns, path.end_ns) - np.minimum(calls.start_ns, path.end_ns)).sum()) / 1000


def _in_path(trace: Trace, facts: Facts, reason: Reason) -> Rows:
    """Return the calls that waited for this reason in the path's steps, on a thread that launches work or records the steps."""
    calls = not_compiling(trace, trace.waits.where((trace.waits.reason == reason) & ~trace.waits.outlasts))
    calls = calls.where(_in_window(trace, facts, calls))
    launching = among(calls.track, trace.slices.track[trace.work.call[trace.work.call >= 0]])
    return calls.where(launching | among(calls.track, trace.steps.track[-1:]))


def _by_op(trace: Trace, calls: Rows) -> list[tuple[str, Rows]]:
    """Return the calls by the op that is around them, the most time first."""
    op = innermost(trace.slices, trace.parent, calls.at, trace.slices.kind == Kind.OP)
    names = np.where(op >= 0, trace.slices.name[op], -1)
    groups = [("in no op" if name < 0 else trace.slices.names[name], rows) for (name,), rows in calls.by(names)]
    return sorted(groups, key=lambda group: (-group[1].total_us, group[0]))


def _cpu_share(facts: Facts, what: tuple[str, ...], words: str) -> str | None:
    path = facts.critical_path
    if path is None:
        return None
    spent_us = sum(part.us for part in path.cpu if part.name in what)
    if not spent_us or spent_us < MIN_SHARE_OF_PATH * path.window_us:
        return None
    return f"{words} takes {about(spent_us / path.window_us)} of the critical path"
