"""The ops of the CPU: what takes the time of a run without a GPU, and what would take less."""

import numpy as np
from trace_reader.analysis.replay.edits import ONCE, REPLACED, Effect, dropped, skipped
from trace_reader.analysis.replay.places import by_shapes
from trace_reader.analysis.trace.cpu_time import is_compiling
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import tensors_known, tensors_of
from trace_reader.analysis.trace.op_shapes import op_shapes
from trace_reader.findings.attention import SOFTMAX, and_mean_of_heads
from trace_reader.findings.bottleneck import NO_STACKS, STACKS, has_stacks
from trace_reader.findings.registry import (
    LONGEST_FREE_NS,
    Seen,
    finding,
    lies_inside,
    listed,
    seen_with_time,
    until_the_next,
    with_what_is_freed,
)
from trace_reader.findings.verdict import BETWEEN_OPS, CLASSES, DURING_COLLECTIVES, cpu_breakdown, cpu_sentence
from trace_reader.findings.without_gradient import LEFT_WITHOUT_GRAPH
from trace_reader.link.intervals import merged
from trace_reader.link.nesting import innermost, outermost, self_us
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct, once
from trace_reader.model.slices import NO_NODE, Inputs, Kind
from trace_reader.names.op_names import BATCHED_GEMM_OPS, CONVERTING_OPS, IDLE_OPS, VIEW_OPS
from trace_reader.names.range_names import is_loader
from trace_reader.units import about, count, us

OF_WHOLE_MEMORIES = (
    "Rows of bytes are copied: it may be a copy.deepcopy of a state dict or a model. If it is to keep the best weights: "
    "copy them only where they are better, after a validation. For averaged weights, update in place (torch._foreach_lerp_)."
)
MIN_SHARE_OF_STEPS = 0.05  # of the steps' time
MIN_SHARE_OF_SMALL_OPS = 0.3
SHORT_GAP_NS = 40_000  # from an op to the next one
SMALL_US = 50.0  # of an op: calling it takes some µs of that
MANY_OPS = 50  # a step
LEFT_OF_LOOP = 0.25  # of the time of many small ops, that one op for all of them takes at best
MANY_INSIDE = 16  # ops in an op that is a loop over them
SHARE_OF_NODES = 0.5  # of a step's ops, that autograd numbers
SLOW_STEP = 2.0  # times the median
LITTLE = 0.1  # of what a step does, that only one step does
UNEVEN = 3.0  # what a tenth of the calls takes, over what another tenth does
FEWEST_CALLS = 10  # of one op and shape
FEW_ROWS, LARGE_WEIGHT, MUCH_OF_STEPS = 4, 1_000_000, 0.2  # of a layer; numbers of its weight; of the steps' time
LEFT_IN_INT8 = 0.3
LEAST_COPY_US = 5.0
COPYING = frozenset(["aten::contiguous", "aten::clone", "aten::copy_", "aten::_to_copy", "aten::to"])
# Inside these it is the bias, which the product is added to, or a Python number: the program cannot leave it out.
NEEDS_ITS_COPY = frozenset(["aten::addmm", "aten::baddbmm", "aten::addmv", "aten::addbmm"]) | CONVERTING_OPS
HALF = ("bf16", "fp16")
LEFT_OF_DOUBLE = 0.4  # of its time, in float32, at best: half of the bytes, and what then fits into a cache
COMPUTES = 50  # operations for a byte: with fewer, the memory may be what limits a product
SLOW_HALF = 0.1  # TFLOP/s: two cores with AMX reached 0.4, and bf16 was four times as fast as fp32 there
LEFT_OF_ATTENTION = 0.4  # of its time in parts, in a fused kernel: 16 cores took 0.2 of it, two 0.74 and 0.62
NEAR = 8  # ops: a scale and a mask stand between a product and a softmax
NEXT = {
    CLASSES["input"]: "See input-bound: the steps wait for a DataLoader most of the time.",
    DURING_COLLECTIVES: "Read the traces of all ranks together: that shows which rank waits for which.",
}


@finding(
    "cpu-only",
    "the trace has no GPU lane",
    "the widest ops of a step",
    "The run uses no GPU, or its work there was not recorded. If several threads share the work of an op, the trace shows only "
    "the thread that called it.",
    "Look at the op that takes the most time: the shapes and the dtype of its inputs (record_shapes=True), and the number of "
    "threads it runs on (torch.get_num_threads()).",
)
def _cpu_only(trace: Trace, facts: Facts) -> Seen | None:
    path = _path(trace, facts)
    if path is None or not (told := cpu_breakdown(path)):
        return None
    name, time_us = told[0]
    ops = trace.ops.where(trace.ops.is_named(name.__eq__))
    next = "Record after warm-up: the steps spend the most time compiling." if is_compiling(name) else NEXT.get(name, "")
    if name == BETWEEN_OPS:
        next = f"See what runs between the ops: {STACKS if has_stacks(trace) else f'{NO_STACKS}.'}"
    return Seen(cpu_sentence(facts, path), ops, next, time_us / path.window_us)


def _path(trace: Trace, facts: Facts) -> CriticalPath | None:
    """Return the path of a run without a GPU; None of another one."""
    return facts.critical_path if facts.verdict == "cpu-only" else None


def _in_path(trace: Trace, path: CriticalPath) -> Rows:
    """Return the ops of the path's stretch of time, without those of torch.compile at work and of a DataLoader."""
    ops = trace.ops.where((trace.ops.start_ns >= path.start_ns) & (trace.ops.end_ns <= path.end_ns))
    other = trace.slices.are_named(Kind.ANNOTATION, is_loader) | trace.slices.are_named(Kind.OP, is_compiling)
    return ops.where((innermost(trace.slices, trace.parent, ops.at, other) < 0) & ~other[ops.at])


def _steps(facts: Facts) -> int:
    """Return how many steps the path has."""
    return len(facts.steps) - facts.steps_left_out


@finding(
    "half-precision-on-cpu",
    "products in bf16 or fp16 on the CPU's lane",
    "the types of the inputs of aten::mm, addmm and conv (record_shapes)",
    "These products are computed in a type of 16 bits. A CPU that has no instructions for it converts the numbers, and may be "
    "slower than in float32.",
    "Time the same product in float32 on this CPU.",
)
def _half_precision(trace: Trace, facts: Facts) -> Seen | None:
    if (path := _path(trace, facts)) is None:
        return None
    half = [(op, rows) for op, rows in op_shapes(trace, "") if op.flop and op.dtype in HALF]
    if not half:
        return None
    ops = Rows(trace.slices, np.sort(np.concatenate([rows.at for _, rows in half])))
    share = path.explained_us(ops) / path.window_us
    if share < MIN_SHARE_OF_STEPS:
        return None
    most = half[0][0]
    if (most.tflop_per_s or 0) > SLOW_HALF or (most.flop or 0) < COMPUTES * (most.bytes or 1):
        return None
    names = listed(dict.fromkeys(f"{op.op} in {op.dtype}" for op, _ in half))
    largest = f"the largest, of {most.shapes}, at {(most.tflop_per_s or 0) * 1000:.0f} GFLOP/s"
    return Seen(f"{names}: {about(share)} of the time; {largest}", ops, share=share)


@finding(
    "many-small-ops",
    "hundreds of ops per step that take a few µs each",
    "the CPU's lane: narrow ops, one after another",
    "Much of the steps' time goes into ops of less than 50 µs each, and into the Python and autograd code that calls them.",
    "Do more in each op: vectorize (one op on a larger tensor in place of a Python loop), use larger batches, or torch.compile.",
)
def _many_small_ops(trace: Trace, facts: Facts) -> Seen | None:
    path = _path(trace, facts)
    if path is None or not facts.steps:
        return None
    ops = _in_path(trace, path)
    outer = Rows(trace.slices, outermost(trace.slices, ops.where(ops.is_named(lambda name: name.startswith("aten::"))).at))
    short, loops = _uninterrupted_us(trace, outer) < SMALL_US, _made_of_small(ops, outer)
    small = outer.where(short | loops)
    if len(small) < MANY_OPS * _steps(facts):
        return None
    starts, ends = small.start_ns, until_the_next(outer, small, SHORT_GAP_NS)
    share = sum(
        path.cpu_within_us(track, merged(starts[small.track == track], ends[small.track == track]))
        for track in distinct(small.track).values.tolist()
    ) / path.window_us  # fmt: skip
    if share < MIN_SHARE_OF_SMALL_OPS:
        return None
    named = sorted(small.by_name(), key=lambda item: (-len(item[1]), item[0]))
    of = f"{len(small) / _steps(facts):.0f} of {len(outer) / _steps(facts):.0f} outermost ops per step"
    once = " in at least one step" * bool((short & (outer.duration_us >= SMALL_US)).any())
    each = f"{of} take less than {SMALL_US:.0f} µs{once}{' or are loops over such ops' * bool((loops & ~short).any())}"
    seen = f"{each} (median {us(small.median_us)}; {listed(f'{len(rows) / _steps(facts):.0f} x {name}' for name, rows in named)})"
    effect = Effect(skipped(merged(starts, ends), LEFT_OF_LOOP), kind=ONCE)
    return Seen(f"{seen}: {about(share)} of the time with what is between them", small, share=share, effect=effect)


def _uninterrupted_us(trace: Trace, outer: Rows) -> np.ndarray:
    """Return how long each of these ops takes where nothing interrupts it: the shortest of the n-th calls of its name in the
    steps. On a busy machine a small op is as long as it had to wait for its core, in one step, and not in the next.
    """
    shortest_us = np.array(outer.duration_us)
    for _, calls in outer.by_name():
        rows = np.searchsorted(outer.at, calls.at)
        step = trace.step_at(calls.start_ns)
        order = np.lexsort((calls.start_ns, step))
        first = np.flatnonzero(np.r_[True, np.diff(step[order]) != 0])
        nth = np.empty(len(rows), np.int64)
        nth[order] = np.arange(len(rows)) - np.repeat(first, np.diff(np.r_[first, len(rows)]))
        least_us = np.full(nth.max() + 1, np.inf)
        np.minimum.at(least_us, nth, outer.duration_us[rows])
        shortest_us[rows] = least_us[nth]
    return shortest_us


def _made_of_small(ops: Rows, outer: Rows) -> np.ndarray:
    """Of each outer op whether it is a loop over small ones: aten::unbind, which makes a tensor of each row."""
    found = np.zeros(len(outer), bool)
    for (track,), op in ops.by(ops.track):
        here = outer.track == track
        starts = np.sort(op.start_ns)
        inside = np.searchsorted(starts, outer.end_ns[here]) - np.searchsorted(starts, outer.start_ns[here], side="right")
        found[here] = (inside >= MANY_INSIDE) & (outer.duration_us[here] < SMALL_US * inside)
    return found


@finding(
    "copies-on-the-cpu",
    "aten::contiguous, clone, copy_ and to among the largest ops",
    "what stands before and after them",
    "These ops copy tensors, or convert them to another type: they compute nothing.",
    "Leave out copies that nothing needs, make a tensor contiguous once, and keep one type.",
)
def _copies(trace: Trace, facts: Facts) -> Seen | None:
    if (path := _path(trace, facts)) is None:
        return None
    ops = _in_path(trace, path)
    ops = ops.where(ops.is_named(COPYING.__contains__) & (ops.duration_us >= LEAST_COPY_US))
    ops = Rows(trace.slices, outermost(trace.slices, ops.at))
    needed = trace.slices.are_named(Kind.OP, NEEDS_ITS_COPY.__contains__)
    ops = ops.where(~np.append(needed, False)[trace.parent[ops.at]])
    share = path.explained_us(ops) / path.window_us
    if share < 2 * MIN_SHARE_OF_STEPS:
        return None
    named = sorted(ops.by_name(), key=lambda item: -item[1].total_us)
    steps = max(_steps(facts), 1)
    seen = listed(f"{len(rows) / steps:.0f} x {name} ({us(rows.total_us / steps)})" for name, rows in named)
    per_step = " per step" if facts.steps else ""
    whole = ops.where(np.array([_copies_bytes(trace, row) for row in ops.at.tolist()], bool))
    next = OF_WHOLE_MEMORIES if 2 * whole.total_us > ops.total_us else ""
    seen = f"{seen}{per_step}: {about(share)} of the time"
    return Seen(seen, ops, next, share, Effect(with_what_is_freed(trace, ops)))


def _copies_bytes(trace: Trace, row: int) -> bool:
    """Return whether an op copies a row of bytes into another one."""
    tensors = tensors_known(trace.slices, row)
    return [(tensor.type, len(tensor.shape)) for tensor in tensors[:2]] == [("unsigned char", 1)] * 2


@finding(
    "attention-in-parts-on-cpu",
    "a softmax between two batched products",
    "aten::bmm, _softmax, aten::bmm on the CPU's lane",
    "This looks like attention that is not fused: its scores, [seq, seq] per head, go through memory between ops.",
    "Use F.scaled_dot_product_attention, which has a fused kernel for the CPU, too.",
)
def _attention_in_parts(trace: Trace, facts: Facts) -> Seen | None:
    if (path := _path(trace, facts)) is None:
        return None
    ops = _in_path(trace, path)
    ops = ops.where(~ops.is_named((VIEW_OPS | IDLE_OPS).__contains__))
    leaves = ops.where(~among(ops.at, trace.parent[ops.at]))
    leaves = leaves.where(~lies_inside(trace, leaves, "^aten::_transformer_encoder_layer_fwd$"))  # torch's own, as one op
    product, softmax = leaves.is_named(BATCHED_GEMM_OPS.__contains__), np.flatnonzero(leaves.is_named(SOFTMAX.__contains__))
    places = np.flatnonzero(product)
    if not len(places):
        return None
    after = np.searchsorted(places, softmax)
    before, later = places[np.maximum(after - 1, 0)], places[np.minimum(after, len(places) - 1)]
    between = (before < softmax) & (softmax < later) & (softmax - before <= NEAR) & (later - softmax <= NEAR)
    if not between.any():
        return None
    middle = zip(before[between].tolist(), softmax[between].tolist(), later[between].tolist(), strict=True)
    pairs = [(first, last) for first, at, last in middle if _may_take(trace, leaves.at[at], leaves.at[last])]
    if not pairs:
        return None
    inside = leaves.where(once(np.concatenate([np.arange(first, last + 1) for first, last in pairs])))
    share = path.explained_us(inside) / path.window_us
    if share < MIN_SHARE_OF_STEPS:
        return None
    starts, ends = (np.array(side) for side in zip(*((first, last) for first, last in pairs), strict=True))
    last = leaves.where(once(ends))
    union = merged(leaves.start_ns[starts], np.maximum(leaves.end_ns[ends], until_the_next(leaves, last, LONGEST_FREE_NS)))
    each = len(pairs) / max(_steps(facts), 1)
    softmaxes = "1 softmax" if each == 1 else f"{each:.0f} softmaxes"
    seen = f"{softmaxes}{' per step' * bool(facts.steps)} between two batched products"
    words = f"{seen}, {us(inside.total_us / len(pairs))} each: {about(share)} of the time"
    effect = Effect(skipped(union, LEFT_OF_ATTENTION), kind=REPLACED)
    return and_mean_of_heads(trace, facts, Seen(words, inside, share=share, effect=effect))


def _may_take(trace: Trace, softmax: int, product: int) -> bool:
    """Return whether a product may have a softmax's result for an input, by the shapes where these were recorded."""
    details = (trace.slices.details[n] if n >= 0 else None for n in trace.slices.detail[[softmax, product]].tolist())
    made, taken = ([item.elements for item in tensors_of(one) if item] if isinstance(one, Inputs) else [] for one in details)
    return not made or not taken or made[0] in taken


@finding(
    "double-precision-on-cpu",
    "matrix products in fp64 on the CPU's lane",
    "the types of the inputs of aten::mm, addmm and conv (record_shapes)",
    "These ops compute in float64: a number takes twice the bytes of float32, and half as many numbers fit into a register. "
    "Tensors made from numpy arrays are float64 unless the arrays have another dtype.",
    "Convert the inputs to float32 once (tensor.float()), and the model too if it is float64 (model.float()), unless the "
    "numbers need float64.",
)
def _double_precision(trace: Trace, facts: Facts) -> Seen | None:
    if (path := _path(trace, facts)) is None:
        return None
    double = [(op, rows) for op, rows in op_shapes(trace, "") if op.dtype == "fp64"]
    products = [op for op, _ in double if op.flop]
    if not products:
        return None
    ops = Rows(trace.slices, np.sort(np.concatenate([rows.at for _, rows in double])))
    share = path.explained_us(ops) / path.window_us
    if share < MIN_SHARE_OF_STEPS:
        return None
    names = listed(dict.fromkeys(f"{op.op} in fp64" for op, _ in double))
    seen = f"{names}: {about(share)} of the time; the largest product, {products[0].op} of {products[0].shapes}"
    outer = Rows(trace.slices, outermost(trace.slices, ops.at))
    union = merged(outer.start_ns, outer.end_ns)
    return Seen(seen, ops, share=share, effect=Effect(skipped(union, LEFT_OF_DOUBLE), kind=REPLACED))


@finding(
    "weights-for-few-rows",
    "linear layers with large weights, called with one or a few rows",
    "the shapes of aten::linear and addmm on the CPU's lane: few rows, a large weight",
    "Each call may read all of a weight from memory for a few rows: then the bytes of the weights limit it.",
    "Give each call more rows (several requests as one batch), or use weights of fewer bytes: int8 (torchao's quantize_, or "
    "torch.ao.quantization.quantize_dynamic), or bfloat16 where the CPU computes in it. Time both, and compare the results.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/dynamic_quantization.html",
)
def _weights_for_few_rows(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes and types: layers of float32 in inference, on a CPU alone. What is left of their time was measured: six layers
    of 768 and 3072 numbers took 0.21 of it in int8 and 0.48 in bfloat16 (one row, two cores, torch 2.15, 2026-11-29).
    """
    if trace.has_backward or facts.has_gpu_work or not facts.steps or "aten::linear" not in trace.op_names:
        return None
    found, weights = list[int](), 0
    layers = trace.outer_ops.where(trace.outer_ops.is_named("aten::linear".__eq__))
    for (detail,), rows in layers.by(layers.detail):
        tensors = tensors_known(trace.slices, int(rows.at[0])) if detail >= 0 else []
        if len(tensors) < 2 or any(tensor.type != "float" for tensor in tensors[:2]):
            continue
        (inputs, weight, *_) = tensors
        if inputs.elements <= FEW_ROWS * inputs.shape[-1] and weight.elements >= LARGE_WEIGHT:
            found += rows.at.tolist()
            weights += weight.elements * len(rows)
    ops = Rows(trace.slices, np.sort(np.array(found, np.int64)))
    if not found or ops.total_us < MUCH_OF_STEPS * trace.steps.total_us:
        return None
    read = 4 * weights / len(facts.steps) / 1e6
    words = f"{len(ops) / len(facts.steps):.3g} linear layers per step with at most {FEW_ROWS} rows, for {read:.0f} MB of weights"
    return seen_with_time(trace, facts, ops, words, Effect(dropped(ops, LEFT_IN_INT8), kind=REPLACED))


@finding(
    "gradients-unused",
    "autograd's sequence numbers grow from op to op, and there is no backward pass",
    "the argument Sequence number of the ops of a step",
    "Autograd records these ops and keeps the tensors that their backward pass would need, but the recording has no backward "
    "pass.",
    "For inference, run the model under torch.inference_mode() or torch.no_grad(): it takes less memory, and less time per op.",
)
def _gradients_unused(trace: Trace, facts: Facts) -> Seen | None:
    slices = trace.slices
    if not facts.steps or len(trace.backward_tracks) or trace.ops.is_named(lambda name: "Backward" in name).any():
        return None
    if trace.annotations.is_named(
        lambda name: name.startswith("Optimizer.step#")
    ).any():  # it trains: its backward pass was not recorded
        return None
    ops = trace.ops.where((slices.node[trace.ops.at] != NO_NODE) & (trace.step_at(trace.ops.start_ns) >= 0))
    outer = Rows(slices, outermost(slices, ops.at))
    numbers = slices.node[outer.at]
    every = len(distinct(slices.node[ops.at]).values)
    made = min(int(numbers.max() - numbers.min()) + 1, every) if len(numbers) else 0
    if made <= len(facts.steps) or len(distinct(numbers).values) < SHARE_OF_NODES * len(outer):
        return None  # autocast keeps the weights that it converts with autograd's numbers, also where nothing else has them
    return Seen(
        f"autograd recorded {count(round(made / len(facts.steps)), 'node')} per step, and no backward pass is in the trace",
        outer,
        share=0.0,
        effect=Effect(skipped(merged(outer.start_ns, outer.end_ns), LEFT_WITHOUT_GRAPH), kind=REPLACED),
    )


@finding(
    "uneven-steps",
    "one step takes several times as long as the others",
    "the widest op of that step, beside the same op in another",
    "One step takes much longer than the others. The machine may have been busy, or the step does something else.",
    "Record again on a machine that does nothing else, and quote the median.",
)
def _uneven_steps(trace: Trace, facts: Facts) -> Seen | None:
    if _path(trace, facts) is None or len(facts.steps) < 4:
        return None
    times_us = trace.steps.duration_us
    middle_us = float(np.median(times_us[1:]))
    slow = int(np.argmax(times_us[1:])) + 1
    if times_us[slow] < SLOW_STEP * middle_us:
        return None
    step = trace.step_at(trace.ops.start_ns)
    every = Rows(trace.slices, trace.ops.at, own_us=self_us(trace.slices, trace.parent, trace.ops.at), step=step)
    longer: dict[str, tuple[float, float]] = {}
    for name, rows in every.where(step >= 0).by_name():
        by_step = np.bincount(rows.step, rows.own_us, len(trace.steps))
        longer[name] = float(by_step[slow]), float(np.median(by_step[1:]))
    seen = f"{facts.steps[slow].name} takes {us(float(times_us[slow]))}, the median step {us(middle_us)}"
    slow_step = trace.steps.where(np.arange(slow, slow + 1))
    if more := _only_there(every.where(step >= 0), by_shapes(trace), len(trace.steps), slow, 0.5 * (times_us[slow] - middle_us)):
        return Seen(f"{seen}; {more}", slow_step, "Look at what that step does and the others do not.", share=0.0)
    name = max(longer, key=lambda name: longer[name][0] - longer[name][1], default="")
    if name and longer[name][0] - longer[name][1] >= 0.5 * (times_us[slow] - middle_us):
        seen += f"; most of the difference is {name}: {us(longer[name][0])} there, {us(longer[name][1])} in the median step"
    return Seen(seen, slow_step, share=0.0)


def _only_there(ops: Rows, alike: np.ndarray, steps: int, slow: int, least_us: float) -> str:
    """Return what one step calls more often than any other, by shapes (`alike`, of each detail) where these were recorded, where
    that takes so long; else empty, also where each step has inputs of its own.
    """
    if not len(ops):
        return ""
    number, names, has_inputs = np.zeros(len(ops), np.int64), list[str](), list[bool]()
    for (name, detail), rows in ops.by(ops.name, alike[ops.detail]):
        number[np.searchsorted(ops.at, rows.at)] = len(names)
        names.append(ops.slices.names[name])
        has_inputs.append(detail >= 0)
    both = distinct(number * steps + ops.step)
    calls, own_us = both.counts, np.bincount(both.which, ops.own_us)
    group, step = np.divmod(both.values, steps)
    # By inputs, the step with the most calls and the one after it.
    order = np.lexsort((step, -calls, group))
    first = np.flatnonzero(np.append(True, group[order][1:] != group[order][:-1]))
    second = np.minimum(first + 1, len(order) - 1)
    is_other = (second > first) & (group[order[second]] == group[order[first]])
    top, others = order[first], np.where(is_other, calls[order[second]], 0)
    # With inputs of one shape each call takes as long; else the ones that no other step makes may be the long ones.
    other_us = np.where(is_other, own_us[order[second]], 0.0)
    by_call_us, by_step_us = own_us[top] * (1 - others / calls[top]), np.maximum(own_us[top] - other_us, 0.0)
    extra_us = np.where(np.array(has_inputs)[group[top]], by_call_us, np.where(calls[top] > others, by_step_us, 0.0))
    more_us, every_us = np.bincount(step[top], extra_us, steps), np.bincount(ops.step, ops.own_us, steps)
    others_us = np.delete(more_us, [0, slow])
    if more_us[slow] < least_us or np.median(others_us) >= LITTLE * np.median(every_us):
        return ""
    most = int(np.argmax(np.where(step[top] == slow, extra_us, -1.0)))
    than = f", no other step more than {others[most]}" if others[most] else ", no other step does"
    times = count(int(calls[top[most]]), "time")
    alike = " with inputs of one shape" * has_inputs[group[top[most]]]
    return f"it calls {names[group[top[most]]]} {times}{alike}{than}: {us(float(extra_us[most]))}"


@finding(
    "uneven-op",
    "one op with equal inputs takes very different times",
    "the durations of that op, call by call",
    "The same op with inputs of one shape takes different times. More threads than cores, other programs on this machine, or "
    "memory that is used for the first time may cause this.",
    "Record again on a machine that does nothing else; if it stays, try fewer threads (torch.set_num_threads, OMP_NUM_THREADS).",
)
def _uneven_op(trace: Trace, facts: Facts) -> Seen | None:
    if (path := _path(trace, facts)) is None:
        return None
    ops = _in_path(trace, path)
    every = Rows(
        trace.slices, ops.at, own_us=self_us(trace.slices, trace.parent, ops.at), step=trace.step_at(ops.start_ns)
    )  # fmt: skip
    uneven: list[tuple[float, str, Rows, np.ndarray]] = []
    for (number, detail), rows in every.by(every.name, by_shapes(trace)[every.detail]):
        if detail < 0 or len(rows) < FEWEST_CALLS:
            continue
        fast, slow = np.quantile(rows.own_us, [0.1, 0.9])
        excess = float((rows.own_us - _usual_us(rows)).clip(0).sum())
        if slow > UNEVEN * max(fast, 1.0) and excess >= MIN_SHARE_OF_STEPS * path.window_us:
            uneven.append((excess, trace.slices.names[number], rows, rows.own_us))
    if not uneven:
        return None
    excess, name, rows, own_us = max(uneven, key=lambda item: item[0])
    low, high = np.quantile(own_us, [0.1, 0.9])
    seen = f"{len(rows)} calls of {name} with inputs of one shape: a tenth of them take {us(float(low))} and less, a tenth "
    return Seen(f"{seen}{us(float(high))} and more", rows, share=excess / path.window_us)


def _usual_us(rows: Rows) -> np.ndarray:
    """Return what each call usually takes: the median of those of its place in a step, where each step has as many; else of
    all.
    """
    calls = np.bincount(rows.step[rows.step >= 0])
    calls = calls[calls > 0]
    if (rows.step < 0).any() or len(calls) < 2 or (calls != calls[0]).any():
        return np.full(len(rows), np.median(rows.own_us))
    by_step = rows.own_us[np.argsort(rows.step, kind="stable")].reshape(len(calls), -1)
    usual_us = np.empty(len(rows))
    usual_us[np.argsort(rows.step, kind="stable")] = np.tile(np.median(by_step, axis=0), len(calls))
    return usual_us
