"""Kernels that are many, slow or uneven, and ops that launch none."""

from collections import defaultdict
import math

import numpy as np
from trace_reader.analysis.replay.edits import AT_ONCE, REPLACED, Effect, all_of, launched_at_once, scaled, unlaunched
from trace_reader.analysis.replay.replay import BUSY_ITSELF_US
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.kernel_facts import KernelFacts
from trace_reader.analysis.trace.own_code import lines_of
from trace_reader.findings.bottleneck import NO_OP_IS_FAR, far_from_usual
from trace_reader.findings.compiled import compiled_share
from trace_reader.findings.fusable import LEFT_OF_LONGEST, calls_that_ran_eager, fusable, of_the_optimizer
from trace_reader.findings.gemm import aligned, unaligned
from trace_reader.findings.gpu_waits import without_the_recordings
from trace_reader.findings.registry import Seen, a_step, calls_of, finding, listed, named, not_compiling
from trace_reader.link.launches import Origin
from trace_reader.link.nesting import outermost, self_us
from trace_reader.link.trace import Trace
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows, among, distinct, median
from trace_reader.model.slices import Kind
from trace_reader.names.devices import peak
from trace_reader.names.kernel_names import decode_name
from trace_reader.names.op_names import VIEW_OPS, is_device_copy
from trace_reader.units import about, count, us

HOTSPOT_SHARE = 0.5  # of the GPU's time
MANY_CALLS_A_STEP = 50
MANY_ALIKE = 20  # calls of one kernel a step
SMALL_US = 10
START_US = 5  # of a small kernel, at most, goes into its start and end, which one that does the work of several has once
LONG_US = 50  # on average, of kernels that are no longer called many small ones: a launch takes less than half of that
MIN_SHARE_OF_KERNELS = 0.6  # of the kernels
WAITING = 0.3  # of the path
UNEVEN_SPREAD = 0.04  # of the median
LARGE_BYTES = 10_000_000  # below, a kernel's start and end weigh as much as its work
UNFUSED, UNFUSED_FEW = 0.1, 0.2  # of the path; of fewer kernels: a sound step of training has 0.14
ALSO_PADS = (
    "Fuse pointwise kernels with torch.compile, which also pads matrix products of odd sizes (unaligned-product), or use a "
    "fused op (F.rms_norm, F.layer_norm), which does not."
)
NEAR_PEAK = 0.93
PATTERN_OF_SMALL = (
    "Launch fewer, larger kernels (a larger batch, one op in place of a Python loop, torch.compile), or replay them as a CUDA "
    "graph."
)
IN_DIFFERENT_STEPS = (
    "Launch fewer, larger kernels: a larger batch, one op in place of a Python loop, torch.compile. The steps launch different "
    "kernels: one CUDA graph does not replay them."
)
SLOW_RATE = 0.6  # of the best in the trace


@finding(
    "hotspot",
    "one row has most of the CUDA total in the table",
    "the widest slice on the GPU's lane",
    "The GPU is the bottleneck, and one kernel takes at least half of its time.",
    "Optimize this kernel first.",
)
def _hotspot(trace: Trace, facts: Facts) -> Seen | None:
    top = next(iter(facts.compute_kernels), None)
    if facts.verdict != "gpu-bound" or top is None or top.share < HOTSPOT_SHARE or len(facts.kernels) < 2:
        return None
    if top.work_kind == "communication":  # it waits for other ranks
        return None
    seen = f"{top.decoded.label} takes {top.share:.0%} of GPU time in {count(top.calls, 'call')}"
    if top.lines:
        seen += f"; it does what {lines_of(top.lines)} ask{'s' * (len(top.lines) == 1)} for"
    near = f"Call it less often, or use a smaller dtype: {NO_OP_IS_FAR}."
    return Seen(seen, calls_of(trace, top), near if far_from_usual(facts) == [] else "")


@finding(
    "many-calls",
    "one row of the table has a huge number of calls",
    "many equal slices on the GPU's lane",
    "Each launch costs CPU time, and here the CPU is the bottleneck.",
    "Fuse or batch the kernels that have many calls, so that each step launches fewer.",
)
def _many_calls(trace: Trace, facts: Facts) -> Seen | None:
    if not facts.steps or facts.verdict != "overhead-bound" or _many_small_kernels(trace, facts):
        return None
    calls = trace.linked.where((trace.linked.kind == Kind.KERNEL) & (trace.linked.origin != Origin.GRAPH))
    calls = calls.where(calls.call >= 0)
    made = not_compiling(trace, Rows(trace.slices, calls.call)).at
    calls = calls.where(among(calls.call, made))
    labels: dict[str, list[Rows]] = defaultdict(list)
    for name, rows in calls.by_name():
        labels[decode_name(name).label].append(rows)
    steps = len(facts.steps)
    counts = sorted(((sum(map(len, groups)), label) for label, groups in labels.items()), key=lambda item: (-item[0], item[1]))
    many = [
        (n, label)
        for n, label in counts
        if n >= MANY_ALIKE * steps and math.fsum(rows.total_us for rows in labels[label]) < LONG_US * n
    ]
    if not many:
        return None
    seen = "per step: " + listed(
        f"{n / steps:.0f} x {label} ({us(sum(rows.total_us for rows in labels[label]) / n)} on average)" for n, label in many
    )
    found = calls.where(among(calls.at, np.concatenate([rows.at for _, label in many for rows in labels[label]])))
    return Seen(seen, found, share=_with_their_ops(trace, facts, found), effect=_fused_or_replayed(found, steps))


def _fused_or_replayed(small: Rows, steps: int) -> Effect:
    """Return what it brings at most to launch once, and to let one kernel a step do the work of these, but for the matrix
    products.
    """
    small = small.where(~small.is_named(lambda name: decode_name(name).is_gemm or decode_name(name).is_fused_attention))
    left_us = np.maximum(small.duration_us - START_US, small.duration_us * steps / max(len(small), 1))
    left = np.minimum(left_us / np.maximum(small.duration_us, 1e-9), 1.0)
    return Effect(all_of(launched_at_once, scaled(small, left)), kind=AT_ONCE)


def _differ(launched: Rows) -> bool:
    """Return whether no two of three steps or more launch the same kernels, with the same grids, in whatever order: two may
    differ by what one of them does now and then.
    """
    of_steps = [
        tuple(sorted(zip(rows.name.tolist(), rows.detail.tolist(), strict=True))) for _, rows in launched.by(launched.step)
    ]
    return len(of_steps) >= 3 and len(set(of_steps)) == len(of_steps)


def _with_their_ops(trace: Trace, facts: Facts, calls: Rows) -> float | None:
    """Return the share of the path that kernels explain together with the ops that launched them, but for ops that do more than
    that.
    """
    path, ops = facts.critical_path, distinct(calls.op[calls.op >= 0]).values
    long = ops[trace.slices.duration_us[ops] >= BUSY_ITSELF_US]
    ops = ops[~among(ops, long[self_us(trace.slices, trace.parent, long) >= BUSY_ITSELF_US])]
    spent = Rows(trace.slices, np.sort(np.concatenate([calls.at, outermost(trace.slices, ops)])))
    return path.explained_us(spent) / path.window_us if path else None


@finding(
    "many-small-kernels",
    "hundreds of kernels per step that take a few µs each",
    "the GPU's lane: slices narrower than the gaps around them",
    "Most kernels take less than 10 µs, and the GPU often waits for the CPU or a launch.",
    PATTERN_OF_SMALL,
)
def _many_small_kernels(trace: Trace, facts: Facts) -> Seen | None:
    path, steps = facts.critical_path, len(facts.steps)
    if path is None or not steps:
        return None
    launched = trace.linked.where((trace.linked.kind == Kind.KERNEL) & (trace.linked.origin != Origin.GRAPH))
    of_steps = launched.where(launched.step >= 0)
    launched = of_steps.where(of_steps.start_ns >= path.start_ns)
    small = launched.where(launched.duration_us < SMALL_US)
    waiting = path.classes["cpu"] + path.classes["latency"]
    recorded = steps - facts.steps_left_out
    if len(small) < max(MANY_CALLS_A_STEP * recorded, MIN_SHARE_OF_KERNELS * len(launched)) or waiting < WAITING:
        return None
    seen = (
        f"{len(small) / recorded:.0f} of {len(launched) / recorded:.0f} kernels per step take less than {SMALL_US} µs (median "
        f"{us(median(small.duration_us))}); the GPU waits for the CPU or a launch in {about(waiting)} of the critical path"
    )
    next = (
        "Launch fewer, larger kernels (larger batch), or replay them as a CUDA graph."
        if compiled_share(trace) >= MIN_SHARE_OF_KERNELS
        else PATTERN_OF_SMALL
    )
    if _differ(of_steps):
        why = "its steps launch different kernels: one graph does not replay them"
        return Seen(seen, small, IN_DIFFERENT_STEPS, _with_their_ops(trace, facts, small), no_effect=why)
    waits = trace.waits.where((trace.waits.reason != Reason.QUEUE) & (trace.waits.start_ns >= path.start_ns))
    waits = without_the_recordings(trace, waits.where((trace.step_at(waits.start_ns) >= 0) & trace.has_steps[waits.track]))
    if len(waits) >= recorded:  # in a graph's capture none may be
        next += f" A graph takes no call that waits for the GPU: remove those first, {len(waits) / recorded:.0f} in each step."
    return Seen(seen, small, next, _with_their_ops(trace, facts, small), _fused_or_replayed(small, recorded))


@finding(
    "uneven-kernel",
    "one kernel takes different times in equal steps",
    "the kernel's durations, call by call",
    "The same kernel with the same grid and block takes different times. Clocks, power limits, memory contention or other "
    "inputs may cause this.",
    "Quote the median, and record more steps (--active 20) to see the distribution.",
)
def _uneven_kernel(trace: Trace, facts: Facts) -> Seen | None:
    def spread(k: KernelFacts) -> float:
        return (k.max_us - k.min_us) / k.median_us if k.median_us else 0.0

    def range_us(k: KernelFacts) -> float:
        return k.max_us - k.min_us

    def same_work(k: KernelFacts) -> bool:
        # A kernel whose every step has a slow call does different work in them.
        different = len(k.outlier_steps) == len(facts.steps) > 1
        return (
            k.configurations == 1
            and k.calls >= 3
            and k.calls % len(facts.steps) == 0
            and k.calls <= 3 * len(facts.steps)
            and not different
        )

    if not facts.steps:
        return None
    k = max(
        (k for k in facts.compute_kernels if k.share > 0.1 and same_work(k) and spread(k) >= UNEVEN_SPREAD),
        key=range_us,
        default=None,
    )
    if k is None or range_us(k) < 1:
        return None
    where = f"; outliers in {listed(k.outlier_steps)}" if k.outlier_steps else ""
    seen = f"{k.decoded.label}: median {us(k.median_us)}, {us(k.min_us)} to {us(k.max_us)} in {k.calls} calls{where}"
    calls, path = calls_of(trace, k), facts.critical_path
    slow = calls.where(calls.duration_us > k.median_us)
    # What it would save if no call took longer than the median.
    excess = 1 - len(slow) * k.median_us / slow.total_us if len(slow) else 0.0
    return Seen(seen, calls, share=excess * path.explained_us(slow) / path.window_us if path else None)


@finding(
    "unfused-pointwise",
    "many elementwise kernels in a row",
    "the GPU's lane: add, mul, copy, pow one after another",
    "Each elementwise kernel reads its inputs from memory and writes its result back. Fusing kernels that feed each other "
    "saves this traffic.",
    "Fuse pointwise kernels with torch.compile, or use a fused op (F.rms_norm, F.layer_norm, a fused activation).",
)
def _unfused_pointwise(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or not facts.steps or any(k.decoded.inductor_kind for k in facts.kernels) or len(calls_that_ran_eager(trace)):
        return None
    rows = trace.linked.where(trace.linked.is_named(lambda name: decode_name(name).library == "ATen elementwise"))
    rows = rows.where(~of_the_optimizer(trace, rows))
    if len(rows) < MANY_CALLS_A_STEP * len(facts.steps):
        return _large_ones(trace, facts, path, rows)
    share = path.explained_us(rows) / path.window_us
    if share < UNFUSED:
        return None
    seen = f"{len(rows) / len(facts.steps):.0f} elementwise kernels per step take {about(share)} of the critical path"
    padded = aligned(facts, calls_of(trace, *unaligned(facts)))  # as torch.compile does, too
    if padded:
        seen += "; torch.compile may pad products of odd sizes, too"
    gone, longest = fusable(trace)
    most = all_of(unlaunched(gone), scaled(longest, LEFT_OF_LONGEST), *([padded.most] if padded else []))
    return Seen(seen, rows, ALSO_PADS if padded else "", effect=Effect(most, kind=REPLACED))


def _large_ones(trace: Trace, facts: Facts, path: CriticalPath, rows: Rows) -> Seen | None:
    """Return a few elementwise kernels, each of them long: at best one in each step does the work of all."""
    rows = rows.where((rows.duration_us >= SMALL_US) & (rows.step >= 0))
    share = path.explained_us(rows) / path.window_us
    if len(rows) < 2 * len(facts.steps) or share < UNFUSED_FEW:
        return None
    order = np.lexsort((-rows.duration_us, rows.step))
    longest = np.append(True, rows.step[order][1:] != rows.step[order][:-1])
    gone = rows.where(np.sort(order[~longest]))
    names = listed(dict.fromkeys(decode_name(name).label for name in rows.names))
    kernels = a_step(len(rows), facts, "long elementwise kernel", "long elementwise kernels")
    return Seen(f"{kernels} ({names}): {about(share)} of the critical path", rows, effect=Effect(unlaunched(gone), kind=REPLACED))


@finding(
    "slow-pointwise",
    "a pointwise kernel is far slower than its bytes explain",
    "GB/s in the bandwidth table (--record_shapes)",
    "These kernels move bytes at less than 60% of the rate that another one reaches. Strides, broadcasting, a narrow type or "
    "extra arithmetic may be why.",
    "Make the inputs contiguous, rewrite the kernel, or fuse it with another (torch.compile or a custom kernel).",
)
def _slow_pointwise(trace: Trace, facts: Facts) -> Seen | None:
    rated = [k for k in facts.kernels if k.gb_per_s and (k.moved_bytes or 0) >= LARGE_BYTES]
    rated = [k for k in rated if k.kind != Kind.MEMCPY or is_device_copy(k.name)]
    top = peak(facts.device or "", "memory")  # a kernel that seems to be near it reads what is still in a cache
    best = max((k for k in rated if top is None or _rate(k) < NEAR_PEAK * top), key=_rate, default=None)
    if best is None:
        return None
    slow = [k for k in rated if k.kind != Kind.MEMCPY and _rate(k) < SLOW_RATE * _rate(best)]
    if not slow:
        return None
    seen = listed(f"{k.decoded.label} moves {(k.moved_bytes or 0) / 1e6:.1f} MB at {_rate(k):.0f} GB/s" for k in slow)
    seen += f"; {best.decoded.label} reaches {_rate(best):.0f} GB/s"
    path = facts.critical_path
    saved_us = sum((1 - _rate(k) / _rate(best)) * path.explained_us(calls_of(trace, k)) for k in slow) if path else 0.0
    faster = [(calls_of(trace, k), _rate(k) / _rate(best)) for k in slow]
    effect = Effect(all_of(*(scaled(rows, factor) for rows, factor in faster)), kind=REPLACED)
    return Seen(seen, calls_of(trace, *slow), share=saved_us / path.window_us if path else None, effect=effect)


def _rate(k: KernelFacts) -> float:
    return k.gb_per_s or 0.0


@finding(
    "views-launch-nothing",
    "ops that spend 0 µs on the GPU",
    "aten::t, view, transpose: no launch below them",
    "View ops launch nothing themselves. They cost CPU time only, unless a copy inside one (a reshape) runs on the GPU.",
    "Mind their CPU time only if the verdict is overhead-bound.",
    trivia=True,
)
def _views(trace: Trace, facts: Facts) -> Seen | None:
    if not facts.has_gpu_work:
        return None
    views = [op for op in facts.ops if op.name in VIEW_OPS and not op.launched]
    if not views:
        return None
    views.sort(key=lambda op: (-op.calls, op.name))
    steps = max(len(facts.steps), 1)
    each = all(op.calls % steps == 0 for op in views)  # what is outside of the steps, or in some of them, has no count per step
    names = listed((f"{op.calls // steps if each else op.calls} x {op.name}" for op in views), 5)
    seen = f"{names}{' of a step' if each and facts.steps else ''} launched nothing themselves"
    return Seen(seen, named(trace.ops, *(op.name for op in views)))
