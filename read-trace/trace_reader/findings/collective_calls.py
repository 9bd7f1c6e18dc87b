"""What a program asks of its collectives: how often, how much at a time, in which type, and whether the CPU waits for it."""

from collections.abc import Callable
import re

import numpy as np
from trace_reader.analysis.replay.edits import (
    JOINED,
    REPLACED,
    UNSURE,
    WAITS,
    Edit,
    Effect,
    all_of,
    dropped,
    scaled,
    skipped,
    without_waits,
)
from trace_reader.analysis.trace.collectives import Phase, asked_on_the_cpu, collective_calls, messages_of, plain_name
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.fusable import optimizer_steps
from trace_reader.findings.registry import Seen, a_step, finding
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows, among, once
from trace_reader.model.slices import Collective, Kind
from trace_reader.names.kernel_names import CONVERTS
from trace_reader.units import count, us

SAME = 0.8  # of the bytes of a pass, that the one before it sends, too
BUCKET = 25 << 20  # bytes: DistributedDataParallel's default, bucket_cap_mb
FEWEST, TIMES_AS_MANY = 8, 3  # collectives a step; as many as buckets of that size
TO_BE_READ = 4096  # bytes at most, of a number that is summed to be looked at
BEHIND = 8  # ops of the program, at most, between a collective and the wait for it
LARGE = 1 << 20  # bytes of what counts in float32
BLOCKS = 8  # a part of what a model is sharded into, that nothing hides
MORE_PARTS = 4  # of a batch, that would be launched one after the other
MOSTLY = 0.5  # of the time of a trace's matrix products
UNEVEN = 1.2  # times as much one way as the other
WORTH_A_STREAM = 0.03  # of the path
WAITS_EXPOSED = 0.1  # of a step, that the receives of a stage are exposed
STAGES = 2
GATHERING = re.compile("FSDP::all_gather|FullyShardedDataParallel")
NORM, OF_A_PARAMETER = re.compile("SyncBatchNorm"), re.compile("AccumulateGrad")
OF_ANY_NORM = re.compile("aten::batch_norm_(?:stats|elemt|backward)|aten::contiguous")
FORWARD_OF_DDP = re.compile("^DistributedDataParallel.forward")
OF_THE_OTHERS = "it depends on what the other ranks would get"
REDUCES = ("allreduce", "reducescatter")


def _kind(*kinds: str) -> Callable[[Collective], bool]:
    return lambda message: plain_name(message.name).startswith(kinds)


def _inside(trace: Trace, calls: Rows, name: re.Pattern[str]) -> np.ndarray:
    """Return of each collective whether an op or annotation of such a name is around it."""
    spans = trace.slices.are_named(Kind.ANNOTATION, name.search) | trace.slices.are_named(Kind.OP, name.search)
    return innermost(trace.slices, trace.parent, calls.op, spans) >= 0


def _ops(calls: Rows) -> Rows:
    """Return the ops of the process group that asked for these collectives."""
    return Rows(calls.slices, once(calls.op).astype(np.int64))


def _share(facts: Facts, calls: Rows) -> float:
    """Return how much of the path these collectives are, and the ops that ask for them."""
    path = facts.critical_path
    if path is None or not len(calls):
        return 0.0
    return path.explained_us(Rows(calls.slices, np.sort(np.concatenate([_ops(calls).at, calls.at])))) / path.window_us


def _per_step(n: float, facts: Facts) -> float:
    return n / max(len(facts.steps), 1)


def _number(n: float) -> str:
    return f"{n:.0f}" if n >= 10 or n == round(n) else f"{n:.1f}"


def _megabytes(calls: Rows, facts: Facts) -> str:
    size = _per_step(float(calls.bytes.sum()), facts)
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _batched(calls: Rows, keep: int) -> Edit:
    """Let of each step's collectives only so many ask, which send what all did: the CPU asks less often."""
    gone = [rows.at[keep:] for _, rows in calls.by(calls.step)]
    rest = calls.where(among(calls.at, np.sort(np.concatenate(gone))))
    return dropped(_ops(rest), left_of_gpu=1.0)


@finding(
    "reduced-in-each-pass",
    "gradients are reduced in each of several backward passes of a step",
    "the all-reduces of each backward pass, and the optimizer's step behind the last",
    "Gradients are summed over the ranks after each part of a batch, though only their sum over all parts is used.",
    "Accumulate first: DistributedDataParallel's no_sync() in all passes but the last (FSDP: set_requires_gradient_sync(False)).",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
def _reduced_in_each_pass(trace: Trace, facts: Facts) -> Seen | None:
    has_gpu, passes = len(trace.work) > 0, trace.passes
    calls = collective_calls(trace, _kind(*REDUCES)) if has_gpu else asked_on_the_cpu(trace, REDUCES)
    calls = calls.where(calls.phase == Phase.BACKWARD)
    sizes, asked = (calls.bytes, calls.call) if has_gpu else (calls.elements, calls.at)
    if not (known := bool(sizes.any())):  # without shapes, their number has to do
        sizes = np.ones_like(sizes)
    number = np.searchsorted(passes.start_ns, trace.slices.start_ns[asked], "right") - 1
    updates, gone = optimizer_steps(trace).start_ns, []
    for at in np.flatnonzero(passes.is_again).tolist():
        updated = np.searchsorted(updates, passes.start_ns[[at - 1, at]])
        if updated[0] == updated[1] and _in_common(sizes[number == at - 1], sizes[number == at]) >= SAME:
            gone.append(calls.at[number == at - 1])
    if not gone:
        return None
    of_gone = calls.where(among(calls.at, np.sort(np.concatenate(gone))))
    n, left = _per_step(len(calls), facts), _per_step(len(calls) - len(of_gone), facts)
    same = "the same gradients" if known else "gradients"
    each = f"{_number(1 + _per_step(len(gone), facts))} backward passes per step, each of which reduces {same}"
    size = f" of {_megabytes(calls, facts)}" if has_gpu and known else ""
    seen = f"{each}: {_number(n)} collectives{size}, where {_number(left)} would do"
    if not has_gpu:  # what waits for gloo's threads is not played
        return Seen(seen, of_gone)
    return Seen(seen, of_gone, share=_share(facts, of_gone), effect=Effect(dropped(_ops(of_gone))))


def _in_common(before: np.ndarray, behind: np.ndarray) -> float:
    """Return the share of the larger of the two sums of messages' sizes that both send, message by message."""
    sizes = [dict(zip(*np.unique(one, return_counts=True), strict=True)) for one in (before, behind)]
    both = sum(int(size) * min(n, sizes[1].get(size, 0)) for size, n in sizes[0].items())
    return both / max(int(before.sum()), int(behind.sum()), 1)


@finding(
    "small-buckets",
    "a backward pass reduces gradients in many small collectives",
    "the collectives of the backward pass: their number and their bytes",
    "Each collective costs the CPU a launch and the GPUs a synchronization, however little it sends.",
    "Let larger buckets be reduced at once: DistributedDataParallel's bucket_cap_mb (its default is 25), or one call for a list.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
def _small_buckets(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace, _kind("allreduce"))
    calls = calls.where((calls.phase == Phase.BACKWARD) & (calls.bytes > TO_BE_READ) & _inside(trace, calls, OF_A_PARAMETER))
    n, bytes_a_step, passes = _per_step(len(calls), facts), _per_step(float(calls.bytes.sum()), facts), _passes(trace, facts)
    buckets = (int(bytes_a_step // BUCKET) + 1) * passes
    if n < FEWEST * passes or n < TIMES_AS_MANY * buckets:
        return None
    text = f"{a_step(len(calls), facts, 'collective', 'collectives')} in the backward pass, of {bytes_a_step / n / 1e6:.1f} MB"
    text = f"{text} on average: in buckets of 25 MiB they are {_number(buckets)}"
    return Seen(text, calls, share=_share(facts, calls), effect=Effect(_batched(calls, round(buckets)), kind=JOINED))


@finding(
    "reduced-late",
    "gradients are reduced only after the backward pass has ended",
    "the collectives between the last node of the backward pass and the optimizer",
    "No part of the backward pass is left that could run while gradients are sent, and each call costs a launch.",
    "Reduce the gradients in buckets while the backward pass runs: use DistributedDataParallel, or hooks "
    "(register_post_accumulate_grad_hook). At least send them together: flatten them, or use torch.distributed's coalesced "
    "calls.",
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
)
def _reduced_late(trace: Trace, facts: Facts) -> Seen | None:
    """Up to the step of an optimizer: behind it, weights may be averaged."""
    calls = collective_calls(trace, _kind(*REDUCES))
    calls = calls.where(calls.phase == Phase.AFTER)
    updates, at_ns = optimizer_steps(trace).start_ns, trace.slices.start_ns[calls.op]
    calls = calls.where(np.searchsorted(updates, at_ns) == np.searchsorted(updates, trace.steps.start_ns[calls.step]))
    n, bytes_a_step = _per_step(len(calls), facts), _per_step(float(calls.bytes.sum()), facts)
    if bytes_a_step < LARGE or n < 1:
        return None
    backward = trace.linked.where(among(trace.linked.call, trace.calls.at[np.isin(trace.calls.track, trace.backward_tracks)]))
    # What the backward pass computes hides so much; the last bucket nothing does.
    left = max(1 - backward.total_us / max(calls.total_us, 1e-9), min(BUCKET / bytes_a_step, 1.0))
    buckets = max(round(bytes_a_step / BUCKET), 1)
    ops, edits = _ops(calls), [scaled(calls, left)]
    if n > buckets:  # a loop over the gradients, with what it does for each
        spans = [(rows.start_ns.min(), rows.end_ns.max()) for _, rows in ops.by(trace.step_at(ops.start_ns))]
        edits += [_batched(calls, buckets), skipped((np.array(spans)[:, 0], np.array(spans)[:, 1]), left=buckets / n)]
    text = f"{a_step(len(calls), facts, 'collective', 'collectives')}, asked for when the backward pass has ended: "
    return Seen(
        f"{text}{_megabytes(calls, facts)} a step", calls, share=_share(facts, calls), effect=Effect(all_of(*edits), kind=JOINED)
    )


def _passes(trace: Trace, facts: Facts) -> float:
    """Return how many backward passes a step has, on average."""
    return 1 + _per_step(int(trace.passes.is_again.sum()), facts)


@finding(
    "collective-is-read",
    "the CPU waits for a collective's result in each step",
    "a small all-reduce or a barrier, and the cudaStreamSynchronize or copy after it",
    "The CPU may read a number that was summed over the ranks, or the ranks may meet at a barrier. Either way, the CPU waits "
    "for the GPU and for the slowest rank before it launches what comes next.",
    "Reduce such numbers only every few steps and in one call (torch.stack first), read them a step later or not at all, and "
    "leave out barriers.",
)
def _collective_is_read(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace)
    is_barrier = Rows(trace.slices, calls.op).is_named(lambda name: name.endswith("barrier"))
    small = calls.where((calls.phase != Phase.BACKWARD) & (((calls.bytes > 0) & (calls.bytes <= TO_BE_READ)) | is_barrier))
    small = small.where(~_inside(trace, small, NORM))
    waits = trace.waits.where((trace.waits.reason == Reason.SYNCHRONIZE) | (trace.waits.reason == Reason.COPY))
    waits = waits.where(trace.step_at(waits.start_ns) >= 0)
    if not len(small) or not len(waits):
        return None
    ops = _ops(small)
    outer = trace.outer_ops
    read, waiting = [], []
    for (track,), mine in ops.by(ops.track):
        own, there = waits.where(waits.track == track), outer.where(outer.track == track)
        if not len(own):
            continue
        behind = np.minimum(np.searchsorted(own.end_ns, mine.start_ns), len(own) - 1)
        wait_ns = own.start_ns[behind]
        between = np.searchsorted(there.start_ns, wait_ns) - np.searchsorted(there.start_ns, mine.start_ns, "right")
        is_read = (own.end_ns[behind] >= mine.start_ns) & (between <= BEHIND) & (
            trace.step_at(mine.start_ns) == trace.step_at(wait_ns)
        )  # fmt: skip
        read.append(mine.at[is_read])
        waiting.append(own.at[behind[is_read]])
    if not read or len(np.concatenate(read)) < len(facts.steps):
        return None
    asked = Rows(trace.slices, np.sort(np.concatenate(read)))
    waited = waits.where(among(waits.at, once(np.concatenate(waiting))))
    items = innermost(trace.slices, trace.parent, waited.at, trace.slices.are_named(Kind.OP, "aten::item".__eq__))
    gone = Rows(trace.slices, outermost(trace.slices, once(np.concatenate([asked.at, items[items >= 0]])).astype(np.int64)))
    waited_us = _per_step(waited.total_us, facts)
    small_calls = a_step(len(asked), facts, "small collective", "small collectives")
    text = f"{small_calls}, right behind which the CPU waits for the GPU: {us(waited_us)} of a step"
    path = facts.critical_path
    share = path.after_waits_us(waited) / path.window_us + _share(facts, small) if path is not None else 0.0
    effect = Effect(all_of(dropped(gone), without_waits(waited)), kind=WAITS)
    return Seen(text, asked, share=min(share, 1.0), effect=effect)


@finding(
    "sync-batch-norm",
    "small collectives around each BatchNorm",
    "SyncBatchNorm's ops, and the all-gather and all-reduce in them",
    "SyncBatchNorm synchronizes the ranks in each of its layers, forward and backward, to exchange a few numbers.",
    "If each rank's own batch is large enough for its statistics (some dozens of samples), use BatchNorm; or use GroupNorm, "
    "which needs no batch statistics.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",
)
def _sync_batch_norm(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace)
    calls = calls.where(_inside(trace, calls, NORM))
    if not len(calls):
        return None
    text = f"{a_step(len(calls), facts, 'collective', 'collectives')} in SyncBatchNorm, of {us(calls.median_us)} (median)"
    # A BatchNorm has the statistics and the normalization, and nothing of what puts ranks together.
    is_norm = trace.slices.are_named(Kind.OP, NORM.search)
    parts = trace.ops.where(innermost(trace.slices, trace.parent, trace.ops.at, is_norm) >= 0)
    parts = parts.where(~is_norm[parts.at] & ~parts.is_named(OF_ANY_NORM.match))
    gone = Rows(trace.slices, outermost(trace.slices, parts.at))
    return Seen(text, calls, share=_share(facts, calls), effect=Effect(dropped(gone)))


@finding(
    "gathered-again",
    "parameters are gathered in the forward pass, and again in the backward pass",
    "the all-gathers of both passes, with equal sizes",
    "FSDP frees a layer's gathered parameters after the layer's forward pass and gathers them again in the backward pass.",
    "If there is enough memory, keep them gathered: fully_shard(..., reshard_after_forward=False), or SHARD_GRAD_OP of the "
    "older FSDP.",
    source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
)
def _gathered_again(trace: Trace, facts: Facts) -> Seen | None:
    gathers = collective_calls(trace, _kind("allgather"))
    gathers = gathers.where((gathers.bytes >= LARGE) & _inside(trace, gathers, GATHERING))
    forward, backward = (gathers.where(gathers.phase == phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    again = backward.where(among(backward.message, once(forward.message)))
    if not len(again) or not len(facts.steps):
        return None
    of_others = again.bytes * (1 - 1 / np.maximum(again.group_size, 2))
    kept = _per_step(float(of_others.sum()), facts) / _passes(trace, facts)
    text = f"{a_step(len(again), facts, 'all-gather', 'all-gathers')} of what the forward pass gathered before"
    # What FSDP does around each: it copies shards in, and parameters out.
    around = trace.slices.are_named(Kind.ANNOTATION, GATHERING.search) | trace.slices.are_named(Kind.OP, GATHERING.search)
    spans = np.flatnonzero(around & np.isin(trace.slices.track, trace.backward_tracks))
    gone = Rows(trace.slices, outermost(trace.slices, once(np.concatenate([spans, again.op])).astype(np.int64)))
    text = f"{text}; to keep it takes {kept / 1e6:.1f} MB more"
    return Seen(text, again, share=_share(facts, again), effect=Effect(dropped(gone)))


@finding(
    "sharded-as-one",
    "all parameters are gathered in one collective, before anything is computed",
    "one large all-gather, and one reduce-scatter per step",
    "The model may be sharded as one unit: then nothing is computed while its parameters are gathered or its gradients are sent.",
    "Shard each block separately (fully_shard on the blocks, then on the model): the next block's parameters are then gathered "
    "while the current block computes.",
    source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
)
def _sharded_as_one(trace: Trace, facts: Facts) -> Seen | None:
    large = collective_calls(trace, _kind("allgather", "reducescatter"))
    large = large.where(large.bytes >= LARGE)
    is_gather = _inside(trace, large, GATHERING)
    steps = np.arange(len(facts.steps))
    parts = large.where(is_gather & (large.phase == Phase.FORWARD)), large.where(~is_gather)
    if not len(steps) or not all(np.array_equal(np.sort(part.step), steps) for part in parts):
        return None
    text = f"1 all-gather in the forward pass and 1 reduce-scatter per step, {_megabytes(large.where(is_gather), facts)} gathered"
    computed_us = facts.gpu_time.compute_us if facts.gpu_time else 0.0
    left = max(1 - computed_us / max(large.total_us, 1e-9), 1 / BLOCKS)
    return Seen(text, large, share=_share(facts, large), effect=Effect(scaled(large, left), kind=UNSURE))


@finding(
    "collectives-in-float32",
    "float32 is sent between GPUs that compute in 16 bits",
    "the type of the collectives' messages, beside that of the matrix products",
    "The collectives send twice as many bytes per number as the computation uses.",
    "Send 16-bit numbers: convert to float32 after a gather, not before. For gradients, use DistributedDataParallel's "
    "bf16_compress_hook or FSDP's MixedPrecisionPolicy(reduce_dtype=torch.bfloat16). Sums in 16 bits are less exact.",
    source="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
)
def _collectives_in_float32(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace, lambda message: message.dtype == "Float")
    calls = calls.where(calls.bytes >= LARGE)
    products = [kernel for kernel in facts.kernels if kernel.decoded.work == "GEMM"]
    narrow_us = sum(kernel.total_us for kernel in products if kernel.decoded.dtype in ("bf16", "fp16"))
    if not len(calls) or narrow_us <= MOSTLY * sum(kernel.total_us for kernel in products):
        return None
    what = a_step(len(calls), facts, "collective", "collectives")
    text = f"{what} in float32 ({_megabytes(calls, facts)} a step), beside matrix products in 16 bits"
    around = _conversions_around(trace, calls.where(calls.phase == Phase.FORWARD))
    effect = Effect(all_of(scaled(calls, 0.5), dropped(around)))
    return Seen(text, calls, share=_share(facts, calls), effect=effect)


def _conversions_around(trace: Trace, calls: Rows) -> Rows:
    """Return the ops right before and behind these collectives of which a kernel says that it converts."""
    outer, ops = trace.outer_ops, _ops(calls)
    converts = trace.linked.where(trace.linked.is_named(lambda name: CONVERTS.search(name) is not None))
    is_outer = np.zeros(len(trace.slices), bool)
    is_outer[outer.at] = True
    converting, found = once(innermost(trace.slices, trace.parent, converts.call, is_outer)), [np.zeros(0, np.int64)]
    for (track,), mine in ops.by(ops.track):
        there = outer.where(outer.track == track)
        at = np.searchsorted(there.start_ns, mine.start_ns, "right") - 1
        found += [there.at[np.clip(beside, 0, len(there) - 1)] for beside in (at - 1, at + 1)]
    near = once(np.concatenate(found)).astype(np.int64)
    return Rows(trace.slices, near[among(near, converting)])


@finding(
    "buffers-broadcast",
    "buffers are broadcast before each forward pass",
    "c10d::broadcast_ in DistributedDataParallel.forward",
    "DistributedDataParallel sends rank 0's buffers, such as BatchNorm's statistics, to all ranks in each step.",
    "If the buffers never change, or are a BatchNorm's running statistics, which training does not read: "
    "broadcast_buffers=False, and send them once before evaluation.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
def _buffers_broadcast(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace, _kind("broadcast"))
    calls = calls.where((calls.phase == Phase.FORWARD) & _inside(trace, calls, FORWARD_OF_DDP))
    if len(calls) < len(facts.steps) or not len(calls):
        return None
    what = a_step(len(calls), facts, "broadcast", "broadcasts")
    text = f"{what} before the forward pass, {_megabytes(calls, facts)} a step"
    return Seen(text, calls, share=_share(facts, calls), effect=Effect(dropped(_ops(calls))))


@finding(
    "unused-parameters",
    "a tensor of integers is all-reduced after each backward pass",
    "an all-reduce of type Int, with one number for each parameter",
    "DistributedDataParallel looks for parameters that got no gradient: it goes through the autograd graph after each forward "
    "pass, and the ranks exchange what they found.",
    "If each step uses all parameters, leave find_unused_parameters out.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
def _unused_parameters(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace, lambda message: message.dtype == "Int" and _kind("allreduce")(message))
    calls = calls.where(calls.phase == Phase.BACKWARD)
    if len(calls) < len(facts.steps) or not len(calls):
        return None
    text = f"{a_step(len(calls), facts, 'all-reduce', 'all-reduces')} of whole numbers in the backward pass"
    return Seen(text, calls, share=_share(facts, calls), no_effect="the search through the graph is in no op")


@finding(
    "stages-in-turn",
    "a rank waits in a receive for most of a step, for a few large messages",
    "ncclDevKernel_SendRecv, and what runs beside it on each rank",
    "The ranks are stages of a pipeline, and only a few parts of the batch are in the pipeline at a time. While one stage "
    "works, the others wait.",
    "Cut the batch into more parts (micro-batches), so that all stages can work at the same time.",
    source="https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
)
def _stages_in_turn(trace: Trace, facts: Facts) -> Seen | None:
    """Of p stages and m parts a step takes (m + p - 1) / m times what one without waits does: GPipe (2019), section 2. Told of a
    group of two: of more ranks a trace does not say whether they are a chain or a ring.
    """
    sends, receives = (collective_calls(trace, _kind(kind)) for kind in ("send", "recv"))
    sends, receives = (calls.where((calls.bytes >= LARGE) & (calls.group_size == STAGES)) for calls in (sends, receives))
    path, times = facts.critical_path, facts.gpu_time
    if path is None or times is None or not facts.steps or not len(receives):
        return None
    parts = max(len(sends), len(receives)) / len(facts.steps)
    exposed = times.exposed_communication_us / times.window_us
    if parts >= 2 * STAGES or exposed < WAITS_EXPOSED:
        return None
    now, then = ((m + STAGES - 1) / m for m in (max(parts, 1), 4 * STAGES))
    text = f"{count(round(parts), 'part')} of a batch per step between two stages; {us(_per_step(receives.total_us, facts))} "
    text = f"{text}of a step in receives"
    next = (
        f"Cut the batch into more parts, micro-batches: in {4 * STAGES} a step takes {then / now:.2f} times as long, by the "
        "formula of the bubble, m + 1 over m for m parts in two stages, if a part is as efficient."
    )
    asking_us = _asking_us(trace, facts) / max(parts, 1)
    if MORE_PARTS * asking_us > path.window_us / max(len(facts.steps) - trace.steps_left_out, 1):
        why = f"the CPU takes {us(asking_us)} to launch a part: {MORE_PARTS} of them may take longer than the step does now"
        return Seen(text, receives, next, share=exposed, no_effect=why)
    # With ever more parts, nobody waits.
    return Seen(text, receives, next, share=exposed, effect=Effect(dropped(_ops(receives)), kind=REPLACED))


def _asking_us(trace: Trace, facts: Facts) -> float:
    """Return how long the CPU is in ops that wait for nothing, in a step (us)."""
    ops = trace.outer_ops.where(trace.outer_ops.track == trace.steps.track[0])
    backward = trace.outer_ops.where(np.isin(trace.outer_ops.track, trace.backward_tracks))
    waits = merged(trace.waits.start_ns, trace.waits.end_ns)
    both = [rows.total_us - float(each_within_ns(rows.start_ns, rows.end_ns, waits).sum()) / 1000 for rows in (ops, backward)]
    return _per_step(sum(both), facts)


@finding(
    "uneven-exchange",
    "an all-to-all in which ranks send and receive unequal amounts",
    "the numbers of elements in and out of all_to_all",
    "The rank with the most data takes longest, and all ranks wait for it: the experts or keys are not distributed evenly.",
    "Balance the amount that each rank gets: use a loss that balances the experts, a capacity limit, or another assignment.",
)
def _uneven_exchange(trace: Trace, facts: Facts) -> Seen | None:
    every = collective_calls(trace, _kind("alltoall"))
    uneven = collective_calls(trace, lambda message: _kind("alltoall")(message) and _apart(message) >= UNEVEN)
    if not len(every) or 2 * len(uneven) < len(every):
        return None
    n, of = (_per_step(len(rows), facts) for rows in (uneven, every))
    times = max(_apart(message) for message in messages_of(uneven))
    text = f"{_number(n)} of {_number(of)} all-to-alls per step, with up to {times:.1f} times as much one way as the other"
    return Seen(text, uneven, share=_share(facts, uneven), no_effect=OF_THE_OTHERS)


def _apart(message: Collective) -> float:
    """Return how many times as much goes one way as the other, where both are said."""
    one, other = message.elements_in, message.elements_out
    return max(one, other) / min(one, other) if one and other else 1.0


@finding(
    "on-the-compute-stream",
    "large collectives on the stream that computes",
    "the GPU's lanes: NCCL's kernels between the matrix products, on one stream",
    "These collectives run on the stream that does most of the GPU's computation, so what this stream computes next waits for "
    "them.",
    "If the next op does not need the result at once, pass async_op=True and call wait() where the result is needed; the "
    "collectives then run on a stream of their own.",
    source="https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations",
)
def _on_the_compute_stream(trace: Trace, facts: Facts) -> Seen | None:
    calls = collective_calls(trace)
    others = trace.launched.where(~among(trace.launched.at, calls.at) & (trace.launched.kind == Kind.KERNEL))
    computed_us = {track: one.total_us for (track,), one in others.by(others.track)}
    if not computed_us:
        return None
    large = calls.where((calls.bytes >= LARGE) & (calls.track == max(computed_us, key=lambda track: computed_us[track])))
    share = _share(facts, large)
    if len(large) < len(facts.steps) or share < WORTH_A_STREAM:
        return None
    text = (
        f"{a_step(len(large), facts, 'collective', 'collectives')} on the stream that computes most, {_megabytes(large, facts)} "
    )
    time_us = _per_step(large.total_us, facts)
    return Seen(f"{text}and {us(time_us)} a step", large, share=share, no_effect="which op needs their results is not in a trace")
