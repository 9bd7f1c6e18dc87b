"""The bottleneck, and what makes up most of it."""

import math
import re

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import (
    ELSEWHERE,
    REPLACED,
    Effect,
    Union,
    all_of,
    dropped,
    scaled,
    skipped,
    without_waits,
)
from trace_reader.analysis.replay.plain_run import UNKNOWN
from trace_reader.analysis.trace.cpu_time import cpu_computing
from trace_reader.analysis.trace.critical_path import CriticalPath, PathClass
from trace_reader.analysis.trace.facts import Facts, Finding
from trace_reader.analysis.trace.op_cost import shapes_of, shapes_within
from trace_reader.analysis.trace.op_shapes import OpShapeFacts
from trace_reader.analysis.trace.time_by_place import CpuLine
from trace_reader.findings.compiled import compiled_share
from trace_reader.findings.registry import (
    LONGEST_FREE_NS,
    MIN_SHARE_OF_PATH,
    Seen,
    a_step,
    copying_ops,
    counted,
    finding,
    listed,
    named,
    ops_that_launch,
    with_what_is_freed,
)
from trace_reader.findings.verdict import denominator, what_limits
from trace_reader.link.intervals import merged, without
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows, among, distinct, median, once
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_launch
from trace_reader.names.kernel_names import is_collective_on_cpu
from trace_reader.names.op_names import VIEW_OPS
from trace_reader.names.range_names import is_loader
from trace_reader.units import about, count, us

NO_OP_IS_FAR = "no op of known cost is far from what its kind usually reaches"
SHARE_TO_NAME = 0.5  # of the CPU's part of the path
LEFT_OF_COMPUTING = 0.2  # of its time, that launching it on the GPU may take
REDUCES = frozenset(f"aten::{name}" for name in ("argmax", "argmin", "max", "min", "amax", "amin", "sum", "mean", "topk", "norm",
                                                 "any", "all", "count_nonzero", "logsumexp", "std", "var"))  # fmt: skip
PICKS = frozenset(f"aten::{name}" for name in ("index", "index_select", "embedding", "gather", "take"))
LEFT_OF_SENT = 0.25  # of a copy's time, where bytes are sent in place of float32
LONG_GAP_NS = 40_000  # between two ops; a module's call takes less
GPU_CLASSES = (PathClass.COMPUTE, PathClass.COMMUNICATION, PathClass.COPY)
SHARE_OF = {"gpu-bound": "compute", "copy-bound": "copy", "latency-bound": "latency"}  # of the path's classes
ONE_THREAD = "what one thread with all of the work would take is not in the trace"
LEAST_OF_LAUNCHES = 0.1  # that a thread makes, which counts
MANY_WAYS = "a verdict names no one change"
STACKS = "read-trace time TRACE --by stack --time cpu tells which lines are at work there, from the Python functions in it."
STACKS_THERE = "read-trace time TRACE --by stack --time cpu, of the recording with stacks, tells which lines are at work there"
NO_STACKS = "record with with_stack=True, or use py-spy"
OTHER_THAN_LAUNCHING = {  # what to do where most of the CPU's part is this
    "call": "Look for long calls that launch nothing, such as blocking copies: the CPU spends the most time there.",
    "memory": "See allocation-in-step: the CPU spends the most time managing memory.",
    "loading": "Record after warm-up: the CPU spends the most time loading code.",
    "compilation": "Record after warm-up: the CPU spends the most time compiling (TORCH_LOGS=recompiles shows what and why).",
    "annotation": "Profile the Python code (with_stack, py-spy): the CPU spends the most time in annotations, in no op there.",
    "profiler": "Record less (no stacks, no shapes) or fewer steps: the CPU spends the most time in the profiler itself.",
}
BETWEEN_OPS = (
    "See what runs between the ops: record with with_stack=True, or use py-spy. If it is the garbage collector, call gc.freeze() "
    "after the warm-up."
)
AT_THE_SAME_TIME = (
    "Most of it follows a wait for the GPU: if it works on results (post-processing, a draw by numpy), do it on the GPU, or "
    "launch the next batch before it, or do it in a thread, so that the GPU works at the same time."
)
SOON_NS = 500_000  # behind a wait: casts and views of what came back
CALLS = ("launch", "call")  # of what the CPU does
NEARLY_ALL = 0.95  # of the path
NAMES_THE_LINE = 0.5  # of the path's share that lies between ops
# What people call there, by the function of C, and what takes less.
FRESH = "aten::lift_fresh"  # the last op of torch.tensor and as_tensor, of what is no tensor
ASLEEP = "the program sleeps there, and what it waits for may take as long"
KNOWN_IN_C = {
    "tensor": "torch.tensor converts a list number by number: torch.from_numpy(numpy.stack(...)) copies whole arrays.",
    "as_tensor": "torch.as_tensor converts a list number by number: make one numpy array first.",
    "collect": "This is Python's garbage collector: run it less often, or call gc.freeze() after the warm-up.",
    "deepcopy": "Copy less, or only the tensors (tensor.clone()).",
    "sleep": "What it waits for, sleeps-in-step tells.",
    "acquire": "This waits for another thread, or for the thread that holds a lock: look at what that thread does.",
}


@finding(
    "no-gpu-events",
    "CUDA total is 0 in the table, though the program used a GPU",
    "the GPU's lanes: there are none",
    "The trace holds kernel launches but no GPU events. CUPTI may not have started: for lack of permission, or with another "
    "profiler (nsys, ncu) attached.",
    "Detach other profilers or grant the permission, and record again.",
)
def _no_gpu_events(trace: Trace, facts: Facts) -> Seen | None:
    launches = sum(s.launches for s in facts.steps) or sum(c.calls for c in facts.calls if "Launch" in c.name)
    if launches and facts.verdict == "cpu-only":
        seen = f"{count(launches, 'kernel launch', 'kernel launches')} and no GPU event"
        return Seen(seen, trace.calls.where(trace.calls.is_named(is_launch)))
    return None


@finding(
    "overhead-bound",
    "CPU total is many times the CUDA total in the table",
    "the GPU's lane: mostly gaps between short kernels",
    "The run spends most of its time waiting for the CPU.",
    "Give each launch more work (larger batch), launch fewer kernels (fuse, torch.compile), or replay them (CUDA graphs).",
)
def _overhead_bound(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or facts.verdict != "overhead-bound":
        return None
    most, next = path.cpu[0].name if path.cpu else "", ""
    if most in OTHER_THAN_LAUNCHING:
        next = OTHER_THAN_LAUNCHING[most]
    elif _computes(trace, path) >= SHARE_TO_NAME * path.classes["cpu"]:
        next = "See compute-on-the-cpu: most of the CPU's time goes into ops that it computes itself."
    elif facts.gpu_time_by_origin_us["graph"] > 0.5 * sum(facts.gpu_time_by_origin_us.values()):
        next = "Look at what the CPU does between graph replays: most GPU time is replayed from a graph already."
    elif compiled_share(trace) >= SHARE_TO_NAME:
        next = "Most of it is compiled already: give each launch more work (larger batch), or replay it as a CUDA graph."
    elif path.cpu_within_us(*_long_gaps(trace)[:2]) >= SHARE_TO_NAME * path.cpu_us:
        next = f"See python-between-ops: {STACKS if has_stacks(trace) else f'most of it is in no op ({NO_STACKS}).'}"
    work = _cpu_work(trace, path, *((Kind.CALL,) if most in CALLS else (Kind.OP, Kind.CALL)))
    if most in CALLS:
        work = work.where(work.is_named(is_launch) == (most == "launch"))
    return Seen(what_limits(path), work, next, path.classes["cpu"], no_effect=MANY_WAYS)


def has_stacks(trace: Trace) -> bool:
    """Return whether the file holds functions of Python, which are read where they are asked for."""
    return "python_function" in trace.skipped or bool((trace.slices.kind == Kind.PYTHON).any())


def _limits(trace: Trace, facts: Facts, verdict: str, *classes: PathClass) -> Seen | None:
    """Return the verdict `verdict`: its share of the path (the two largest of a mixed one), and the GPU events of `classes` on
    it.
    """
    path = facts.critical_path
    if path is None or facts.verdict != verdict:
        return None
    found = path.pieces.row[among(path.pieces.kind, classes)]
    share = sum(sorted(path.classes.values())[-2:]) if verdict == "mixed" else path.classes[SHARE_OF[verdict]]
    return Seen(what_limits(path), Rows(trace.slices, np.sort(found[found >= 0])), share=share, no_effect=MANY_WAYS)


def _cpu_work(trace: Trace, path: CriticalPath, *kinds: Kind) -> Rows:
    """Return what the CPU did in the path's window: the outermost slices of these kinds."""
    rows = Rows(trace.slices, outermost(trace.slices, trace.slices.of(*kinds)))
    return rows.where((rows.start_ns >= path.start_ns) & (rows.end_ns <= path.end_ns))


def _computes(trace: Trace, path: CriticalPath) -> float:
    """Return the share of the path in which the CPU computes itself."""
    return path.explained_us(cpu_computing(trace)) / path.window_us


KEPT_THERE = (
    "If the GPU's memory allows, keep the data on the GPU, and pick the rows of each batch there: then the host copies nothing. "
    "Else pick them ahead of time, in a DataLoader's workers, with pin_memory=True and copies with non_blocking=True."
)


@finding(
    "compute-on-the-cpu",
    "long ops on the CPU's lane that launch nothing",
    "wide ops of a step with no launch below them, and the shapes of their inputs",
    "The CPU computes these ops itself, on tensors in its own memory, while the GPU waits for what comes after them.",
    "Move the inputs to the GPU and compute there, or compute the result only once, or ahead of time in a DataLoader's workers.",
)
def _compute_on_the_cpu(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or not len(trace.steps) or not facts.has_gpu_work:
        return None
    ops = cpu_computing(trace)
    ops = ops.where(trace.step_at(ops.start_ns) >= 0)
    share = path.explained_us(ops) / path.window_us
    if share < MIN_SHARE_OF_PATH:
        return None
    longest = sorted(ops.by_name(), key=lambda item: -item[1].total_us)
    told = listed(f"{a_step(len(rows), facts, name, name)} ({us(rows.total_us / len(rows))} each)" for name, rows in longest)
    # What an op made and the next one took is freed behind it, where no op is recorded.
    spans = trace.cpu_spans[0]
    after = np.searchsorted(trace.slices.start_ns[spans], ops.end_ns)
    freed_ns = np.minimum(trace.slices.start_ns[spans[np.minimum(after, len(spans) - 1)]], ops.end_ns + LONGEST_FREE_NS)
    freed = merged(ops.end_ns, np.maximum(freed_ns, ops.end_ns))
    # What is sent instead may be smaller, and need no wait.
    sent = trace.work.where(trace.work.is_named(lambda name: "HtoD" in name))
    waits = trace.waits.where(trace.waits.reason == Reason.COPY)
    picked = _picked(trace, ops)  # what lies on the GPU needs no copy at all
    most = [dropped(ops), skipped(freed), scaled(sent, LEFT_OF_SENT), without_waits(waits), with_what_is_freed(trace, picked)]
    least, also = dropped(ops, left_of_cpu=LEFT_OF_COMPUTING), ""
    fetched, may_be = _fetched(trace, ops)
    most.append(dropped(may_be))
    if len(fetched):
        work = trace.launched_in(fetched)
        also = f"; what they reduce may be copied to the host for them alone, {us(work.total_us / len(trace.steps))} per step"
    effect = Effect(all_of(*most), least, REPLACED)
    next = KEPT_THERE if longest and longest[0][0] in PICKS else ""
    return Seen(f"{told}: {about(share)} of the critical path{also}", ops, next, share, effect)


def _picked(trace: Trace, ops: Rows) -> Rows:
    """Return the ops that copy something to the GPU behind one of these that picks rows of a table, other such picks and copies
    between them.
    """
    picking, copying = named(trace.outer_ops, *PICKS), copying_ops(trace, "HtoD").at
    picking = picking.where(~among(picking.at, ops_that_launch(trace, trace.linked).at))  # on the CPU
    found = [np.empty(0, np.int64)]
    for _, every in trace.outer_ops.by(trace.outer_ops.track, trace.step_at(trace.outer_ops.start_ns)):
        one = every.where(~every.is_named(VIEW_OPS.__contains__))
        copies_it, picks = among(one.at, copying), among(one.at, picking.at)
        of_run = np.cumsum(~copies_it & ~picks)
        with_long = once(of_run[among(one.at, named(ops, *PICKS).at)])  # runs of picks and copies with one of these
        is_behind = np.append(False, (picks | copies_it)[:-1]) if len(one) else copies_it
        found.append(one.at[copies_it & is_behind & among(of_run, with_long)])
    return Rows(trace.slices, np.sort(np.concatenate(found)))


def _fetched(trace: Trace, ops: Rows) -> tuple[Rows, Rows]:
    """Return the ops that copy something to the host, where the next one on their thread (views apart) is one of these and
    reduces it, and no other in their step takes a tensor of its shape behind that; and with them those of which no shapes were
    recorded.
    """
    outer, copying = trace.outer_ops, copying_ops(trace, "DtoH").at
    found, may_be = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for _, every in outer.by(outer.track, trace.step_at(outer.start_ns)):
        one = every.where(~every.is_named(VIEW_OPS.__contains__))
        copies_it = among(one.at, copying)
        reduces_it = np.append(False, copies_it[:-1]) & among(one.at, ops.at) & one.is_named(REDUCES.__contains__)
        places = np.flatnonzero(reduces_it) - 1
        if not len(places):
            continue
        others = every.at[~among(every.at, one.at[copies_it | reduces_it])].tolist()
        taken_last = {shape: row for row in others for shape in shapes_within(trace.slices, row)}
        shapes = [[shapes_of(trace.slices, row)[:1] for row in one.at[at : at + 2].tolist()] for at in places.tolist()]
        is_fetched = [copied != [] and copied == reduced and taken_last.get(copied[0], -1) < row
                      for row, (copied, reduced) in zip(one.at[places + 1].tolist(), shapes, strict=True)]  # fmt: skip
        found.append(one.at[places[is_fetched]])
        has_none = [copied == reduced == [] for copied, reduced in shapes]
        may_be.append(one.at[places[np.logical_or(is_fetched, has_none)]])
    return Rows(trace.slices, np.sort(np.concatenate(found))), Rows(trace.slices, np.sort(np.concatenate(may_be)))


@finding(
    "python-between-ops",
    "white space between two ops on the CPU's lane",
    "the gaps between the ops of a step",
    "In these gaps, no op or call is recorded on the steps' thread. The thread may be running Python code (data, logging, "
    "loops) or Python's garbage collector. It may be waiting for another thread that holds the interpreter lock, or for threads "
    "whose ops are not recorded. Or it may be freeing the memory of large tensors.",
    BETWEEN_OPS,
)
def _python_between_ops(trace: Trace, facts: Facts) -> Seen | None:
    _, gaps, spans = _long_gaps(trace)
    if (told := _gaps_in_path(trace, facts, gaps)) is None:
        return None
    seen, share, gaps = told
    around = spans.where(among(spans.end_ns, gaps[0]) | among(spans.start_ns, gaps[1]))
    next = f"See what runs between the ops: {STACKS}" if has_stacks(trace) else ""
    if _begin_behind_waits(trace, gaps):
        next = f"{next or BETWEEN_OPS} {AT_THE_SAME_TIME}"
    if facts.plain.how == UNKNOWN and len(trace.functions_ns):
        because = "the gaps include the profiler's cost of Python functions, which is not known"
        return Seen(seen, around, next, share, None, gaps, because)
    if share > NEARLY_ALL:
        return Seen(seen, around, next, share, None, gaps, "what a step does is in these gaps, and not recorded")
    return Seen(seen, around, next, share, Effect(skipped(gaps), kind=ELSEWHERE), gaps)


def _begin_behind_waits(trace: Trace, gaps: Union) -> bool:
    """Return whether most of the time of these gaps is in ones that begin where the CPU has just waited for the GPU."""
    ends_ns = np.sort(trace.waits.end_ns)
    if not len(ends_ns):
        return False
    last = np.searchsorted(ends_ns, gaps[0], side="right") - 1
    is_behind = (last >= 0) & (gaps[0] - ends_ns[np.maximum(last, 0)] <= SOON_NS)
    length_ns = gaps[1] - gaps[0]
    return bool(2 * length_ns[is_behind].sum() > length_ns.sum())


@finding(
    "tensor-of-a-list",
    "white space between aten::empty and aten::lift_fresh",
    "the gap before aten::lift_fresh, the last op of torch.tensor",
    "Between these two ops, torch.tensor converts a Python list number by number.",
    "If its values stay the same, make the tensor once, and keep it (register_buffer). If not, make one numpy array first: "
    "torch.from_numpy(numpy.stack(...)) or numpy.asarray(...) copies whole arrays. Or keep tensors instead of lists, and join "
    "them with torch.stack(). Given a dtype, torch.tensor need not look at each number's type first.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.tensor.html",
)
def _tensor_of_a_list(trace: Trace, facts: Facts) -> Seen | None:
    if FRESH not in trace.op_names:
        return None
    track, gaps, _ = _long_gaps(trace)
    outer = trace.outer_ops.where(trace.outer_ops.track == track)
    names = np.array([*outer.names, "", "", ""], object)
    next_one, before = np.searchsorted(outer.start_ns, gaps[1]), np.searchsorted(outer.start_ns, gaps[0]) - 1
    fresh = next_one + (names[next_one] == "aten::to")
    is_made = (names[fresh] == FRESH) & (names[fresh + 1] == "aten::detach_")  # behind from_numpy's there is none
    is_made &= (before >= 0) & (names[before] == "aten::empty")
    if (told := _gaps_in_path(trace, facts, (gaps[0][is_made], gaps[1][is_made]))) is None:
        return None
    seen, share, found = told
    around = outer.where(among(outer.end_ns, found[0]) | among(outer.start_ns, found[1]))
    begins_ns = outer.start_ns[np.searchsorted(outer.start_ns, found[0]) - 1]  # of torch.tensor
    making = among(gaps[1], np.sort(begins_ns))
    also = gaps[0][making], gaps[1][making]
    both_us = [int((ends_ns - starts_ns).sum()) / 1000 for starts_ns, ends_ns in (found, also)]
    if also_us := both_us[1]:
        per_step_us = also_us / (len(facts.steps) - facts.steps_left_out)
        seen += (
            f"; {us(per_step_us)} of a step right before, where torch.tensor may look for the list's type, or the list be made"
        )
    # To look for the type takes as long as the conversion, at most.
    left = max(1 - both_us[0] / also_us, 0.0) if also_us else 0.0
    return Seen(seen, around, share=share, effect=Effect(all_of(skipped(found), skipped(also, left)), kind=REPLACED), gaps=found)


def _gaps_in_path(trace: Trace, facts: Facts, gaps: Union) -> tuple[str, float, Union] | None:
    """Return what is seen of long gaps, their share, and those in the window of the path; None: too little, or no path."""
    path = facts.critical_path
    if path is None or not len(trace.steps) or not len(gaps[0]):
        return None
    track, in_path = int(trace.steps.track[-1]), gaps[1] > path.start_ns
    gaps = gaps[0][in_path], gaps[1][in_path]
    steps = len(facts.steps) - facts.steps_left_out
    of_step = np.bincount(trace.step_at(gaps[0]), gaps[1] - gaps[0], minlength=len(facts.steps))[-steps:]
    # As much as an ordinary step has: a few long gaps of one step are not what each step takes.
    ordinary = min(median(of_step) * steps / max(int(of_step.sum()), 1), 1.0)
    share = path.cpu_within_us(track, gaps) * ordinary / path.window_us
    if share < MIN_SHARE_OF_PATH:
        return None
    least, longest_us = us(LONG_GAP_NS / 1000), int((gaps[1] - gaps[0]).max()) / 1000
    kinds = f"gap of {least} or more", f"gaps of {least} or more"
    seen = f"{counted(len(gaps[0]), steps, *kinds)}, {us(median(of_step) / 1000)} of a step"
    return f"{seen}, the longest {us(longest_us)}: {about(share)} of {denominator(facts)}", share, gaps


def _long_gaps(trace: Trace) -> tuple[int, Union, Rows]:
    """Return the thread of the steps, the long gaps in them in which it is in no op and no call (nor a backward pass in one), and
    the ops and calls around these.
    """
    if not len(trace.steps):
        return -1, (np.zeros(0, np.int64), np.zeros(0, np.int64)), trace.ops
    track = int(trace.steps.track[-1])
    spans = Rows(trace.slices, trace.slices.of(Kind.OP, Kind.CALL))
    # What waits for a loader, or for other ranks, is no Python at work.
    loading = trace.annotations.where(trace.annotations.is_named(lambda name: is_loader(name) or is_collective_on_cpu(name)))
    at = np.sort(np.concatenate([spans.at[(spans.track == track) | among(spans.track, trace.backward_tracks)], loading.at]))
    spans = Rows(trace.slices, at)
    gaps = without((trace.steps.start_ns, trace.steps.end_ns), merged(spans.start_ns, spans.end_ns))
    gaps = without(gaps, trace.pauses_ns)
    long = gaps[1] - gaps[0] >= LONG_GAP_NS
    return track, (gaps[0][long], gaps[1][long]), spans


@finding(
    "threads-take-turns",
    "several threads that launch kernels, and a GPU that waits for all of them",
    "the lanes of the CPU's threads: while one thread runs ops, the others are idle",
    "Several threads launch GPU work. Python's interpreter lock lets only one of them run Python at a time. With small kernels, "
    "the threads may take turns and together launch no more than one thread would.",
    "Collect the work of all threads (requests, streams of data) into one batch on one thread, or use processes.",
)
def _threads_take_turns(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or facts.verdict != "overhead-bound":
        return None
    launches = trace.calls.where(trace.calls.is_named(is_launch))
    threads = distinct(launches.track)
    many = threads.values[threads.counts >= LEAST_OF_LAUNCHES * len(launches)]
    many = many[~among(many, trace.backward_tracks)] if len(trace.backward_tracks) else many
    if len(many) < 2:
        return None
    rows = launches.where(among(launches.track, many))
    seen = f"{len(many)} threads launch {len(rows)} of the trace's {len(launches)} launches, and the GPU waits for the CPU"
    return Seen(
        f"{seen} in {about(path.classes['cpu'])} of the critical path", rows, share=path.classes["cpu"], no_effect=ONE_THREAD
    )


@finding(
    "gpu-bound",
    "CPU total and CUDA total are about equal in the table",
    "the GPU's lane: no gaps between kernels",
    "The GPU is the bottleneck: faster kernels would end the run earlier.",
    "Look at the longest kernels first. If the trace was recorded with record_shapes=True, the report says which op is furthest "
    "from what the device can do.",
)
def _gpu_bound(trace: Trace, facts: Facts) -> Seen | None:
    seen = _limits(trace, facts, "gpu-bound", PathClass.COMPUTE)
    worth = far_from_usual(facts)
    if seen is None or worth is None:
        return seen
    if not worth:
        next = f"Fuse ops, or use a smaller dtype: {NO_OP_IS_FAR}."
        return msgspec.structs.replace(seen, next=next)
    most = max(worth, key=lambda op: op.to_gain_us or 0.0)
    to_gain_us = (most.to_gain_us or 0.0) / max(len(facts.steps), 1)
    what = f"{most.op} of {most.shapes}: {most.peak_share:.0%} of the {'memory rate' if most.limited_by == 'memory' else 'peak'}"
    return msgspec.structs.replace(seen, next=f"Look first at {what}, {us(to_gain_us)} per step to gain.")


def far_from_usual(facts: Facts, least: float = SHARE_TO_NAME) -> list[OpShapeFacts] | None:
    """Return the ops by shape that would save much of the time if they reached what is usual for their kind; None where that is
    known of less than `least` of the time.
    """
    all_us = math.fsum(op.time_us for op in facts.op_shapes)
    rated_us = math.fsum(op.time_us for op in facts.op_shapes if op.peak_share)
    if rated_us < least * all_us or not rated_us:
        return None
    return [op for op in facts.op_shapes if (op.to_gain_us or 0.0) >= MIN_SHARE_OF_PATH * all_us]


@finding(
    "copy-bound",
    "the GPU's lane is mostly copies",
    "the memcpy rows and their stream",
    "Copying is the bottleneck: it takes at least half of the critical path.",
    "Copy less, use pinned memory, and overlap copies with compute on another stream.",
)
def _copy_bound(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "copy-bound", PathClass.COPY)


@finding(
    "latency-bound",
    "many short kernels with a small gap before each",
    "the time from a launch to its kernel, and between kernels",
    "At least half of the critical path is latency: the time from a launch to its kernel, or from one kernel to the next.",
    "Launch fewer, larger kernels (fuse, torch.compile, CUDA graphs), and synchronize less often.",
)
def _latency_bound(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "latency-bound", *GPU_CLASSES)


@finding(
    "mixed",
    "neither the CPU's lane nor the GPU's is full",
    "the largest gaps on the GPU, and what the CPU does in them",
    "No single resource takes half of the critical path.",
    "Reduce the largest share of the critical path first; the second largest then bounds the run.",
)
def _mixed(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "mixed", *GPU_CLASSES)


def at_the_line(finding: Finding, lines: tuple[CpuLine, ...], facts: Facts) -> Finding:
    """Return what runs between the ops, where the trace says: a finding that names the line which has most of the time. `lines`:
    of what Python itself does on the path.
    """
    if finding.slug != "python-between-ops" or not lines or lines[0].share < NAMES_THE_LINE * (finding.share or 0.0):
        return finding
    top = lines[0]
    in_c = re.search(r"built-in (?:method|function) (\w+)", top.mostly)
    known = KNOWN_IN_C.get(in_c[1], "") if in_c else ""
    mostly = f", most of it in {in_c[1]}()" if in_c else ""
    there = f"Python is there, between the ops, for {about(top.share)} of {denominator(facts)}{mostly}"
    next = f"Look at {top.line}: {there}. {known}".rstrip()
    if in_c and in_c[1] == "sleep":  # what it waits for may take as long
        return msgspec.structs.replace(finding, next=next, gain=None, gain_unknown_because=ASLEEP)
    return msgspec.structs.replace(finding, next=next)
