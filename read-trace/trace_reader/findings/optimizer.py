"""The optimizer's step, and the gradients that it uses."""

from collections import Counter
from itertools import pairwise
import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import GONE, ONCE, REPLACED, Effect, dropped, skipped
from trace_reader.analysis.replay.rounds import Shape
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of, shapes_of_first, shapes_within
from trace_reader.findings.fusable import OPTIMIZER_STEP, optimizer_steps
from trace_reader.findings.registry import Seen, finding, lies_inside, seen_with_time
from trace_reader.findings.verdict import denominator
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import innermost, outermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import Footprint, Kind
from trace_reader.units import about, us

MANY_KERNELS = 50  # a step
MANY_OPTIMIZERS = 8  # steps of optimizers in a step
MIN_SHARE_OF_PATH = 0.02  # of the path
# What a fused optimizer leaves of the GPU's time of a loop over the parameters, at best and surely, and of the CPU's.
FUSED_GPU, FUSED_CPU = (0.1, 0.6), 0.2
# On a CPU: two cores took 0.10 to 0.38 of the time that one operation after another took, in parameters of 64 to 16 M numbers
# (torch 2.15, 2026-11-25). SGD's took up to 1.5 times as long: it is not named.
FUSED_ON_CPU = frozenset(["Optimizer.step#Adam.step", "Optimizer.step#AdamW.step"])
LEFT_ON_CPU = (0.1, 0.6)
WORTH_TELLING_ON_CPU = 0.05  # of the steps' time
FEW_KERNELS = 5  # a step, of an optimizer that goes over lists of parameters
CHUNK = 1 << 16  # numbers of a tensor that a block of a kernel over lists goes over, at most (multi_tensor_apply)
# Of torch's own, those that change each parameter by ops or blocks of its own.
ONE_BY_ONE = frozenset(["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adagrad", "RMSprop", "Adamax", "Adadelta", "ASGD", "Rprop"])
ACCUMULATES = "torch::autograd::AccumulateGrad"
LEAST_UNUSED = 0.25  # of the gradients, that the optimizer cannot have used
FUSED_OF_FOREACH = 0.3  # of the GPU's time of such a one, at best: it reads and writes all of them once, not several times
TWICE_IN_ADAM = frozenset(["aten::mul_", "aten::add_"])
READS = frozenset(f"aten::{name}" for name in ("norm", "linalg_vector_norm", "_foreach_norm", "flatten", "clone", "cat", "stack",
                                               "dot", "sign"))  # fmt: skip
OF_WEIGHTS = 0.5  # of a node's time, where it computes the gradient of its weights beside that of its input
ENDS_THERE = (
    "If these parameters belong to a part that made the input of the part that is trained here (a generator's images for the "
    "discriminator): detach() that input, or make it under torch.no_grad(). The backward pass then ends there."
)
FLOWS_THROUGH = (
    "If the loss only flows through the part that these parameters belong to (a critic that judges an actor): set "
    "requires_grad_(False) on them for this pass, and back after it. Their own gradients are then not computed."
)


@finding(
    "unfused-optimizer",
    "hundreds of small kernels after the backward pass",
    "the annotation Optimizer.step#..., and what it launches",
    "The optimizer step runs several kernels (on a CPU: ops) for each parameter, or each list of parameters, one operation after "
    "another.",
    "Use fused=True (or foreach=True): a few kernels then update all parameters.",
)
def _unfused_optimizer(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is not None and facts.verdict == "cpu-only":
        return _on_cpu(trace, path)
    is_step = trace.slices.are_named(Kind.ANNOTATION, lambda name: name.startswith(OPTIMIZER_STEP))
    launched = trace.linked.where((trace.linked.call >= 0) & (trace.linked.kind == Kind.KERNEL))
    rows = launched.where(innermost(trace.slices, trace.parent, launched.call, is_step) >= 0)
    steps = trace.annotations.where(is_step[trace.annotations.at])
    by_lists = rows.is_named(lambda name: "multi_tensor_apply" in name)
    if path is None or not len(steps) or rows.is_named(lambda name: "Fused" in name).any():
        return None
    if by_lists.sum() >= FEW_KERNELS * len(steps) and (~by_lists).sum() < MANY_KERNELS * len(steps):
        return _foreach(path, steps, rows)
    if (~by_lists).sum() < MANY_KERNELS * len(steps):
        return None
    spent = Rows(trace.slices, np.sort(np.concatenate([steps.at, rows.at])))
    share = path.explained_us(spent) / path.window_us
    if share < MIN_SHARE_OF_PATH:
        return None
    kernels = f"{len(rows) / len(steps):.0f} kernels per optimizer step (median {us(rows.median_us)})"
    seen = f"{kernels} and {us(steps.total_us / len(steps))} of CPU time: {about(share)} of the critical path"
    effect = Effect(dropped(steps, left_of_gpu=FUSED_GPU[0]), dropped(steps, FUSED_CPU, FUSED_GPU[1]), REPLACED)
    return Seen(seen, steps, share=share, effect=effect)


def _on_cpu(trace: Trace, path: CriticalPath) -> Seen | None:
    """Return an optimizer of the CPU's that goes over the parameters, one operation after the other, and has a fused one."""
    steps = trace.annotations.where(trace.annotations.is_named(FUSED_ON_CPU.__contains__))
    steps = steps.where((steps.start_ns >= path.start_ns) & (steps.end_ns <= path.end_ns))
    if not len(steps):
        return None
    ops = Rows(trace.slices, outermost(trace.slices, trace.ops.at))
    ops = ops.where(each_within_ns(ops.start_ns, ops.start_ns + 1, merged(steps.start_ns, steps.end_ns)) > 0)
    share = path.explained_us(steps) / path.window_us
    if share < WORTH_TELLING_ON_CPU or not len(ops) or ops.is_named(lambda name: "fused" in name).any():
        return None
    seen = (
        f"{len(ops) / len(steps):.0f} ops per optimizer step, and {us(steps.total_us / len(steps))}: {about(share)} of the time"
    )
    union = merged(steps.start_ns, steps.end_ns)
    most, least = (skipped(union, left) for left in LEFT_ON_CPU)
    return Seen(
        seen, steps, "Use fused=True: one op then reads and writes each parameter once.", share, Effect(most, least, REPLACED)
    )


def _foreach(path: CriticalPath, steps: Rows, rows: Rows) -> Seen | None:
    """Return an optimizer that goes over lists of parameters, one operation after the other."""
    kernels = f"{len(rows) / len(steps):.0f} kernels per optimizer step, each over a list of parameters"
    seen = f"{kernels} (foreach), and {us(steps.total_us / len(steps))} of CPU time"
    spent = Rows(steps.slices, np.sort(np.concatenate([steps.at, rows.at])))
    effect = Effect(dropped(steps, left_of_gpu=FUSED_OF_FOREACH), kind=REPLACED)
    next = "Use fused=True: one kernel then reads and writes a list of parameters once."
    return Seen(seen, steps, next, path.explained_us(spent) / path.window_us, effect)


@finding(
    "many-optimizer-steps",
    "many optimizers' steps in one step of the program",
    "the annotations Optimizer.step#..., one after the other, each with a few launches",
    "Many optimizers, or one many times, update a few parameters each: for example one optimizer for each parameter, called by a "
    "hook of the backward pass to save memory. Each call pays its overhead and its launches.",
    "If memory suffices for all gradients: give all parameters to one optimizer (fused=True), and call it once, after the "
    "backward pass.",
    source="https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html",
)
def _many_optimizer_steps(trace: Trace, facts: Facts) -> Seen | None:
    """Those that an op of the backward pass calls, or between which no op runs: nothing is computed anew between them."""
    path, steps = facts.critical_path, optimizer_steps(trace)
    if path is None or not facts.steps or len(steps) < MANY_OPTIMIZERS * len(facts.steps):
        return None
    ops = trace.outer_ops.where(~lies_inside(trace, trace.outer_ops, "^Optimizer"))
    is_node = trace.slices.are_named(Kind.OP, lambda name: name.startswith(EVALUATE))
    again = innermost(trace.slices, trace.parent, steps.at, is_node) >= 0
    for _, one in steps.by(steps.track):
        starts_ns = ops.where(ops.track == one.track[0]).start_ns
        before, after = np.searchsorted(starts_ns, one.end_ns[:-1]), np.searchsorted(starts_ns, one.start_ns[1:])
        again[np.searchsorted(steps.at, one.at[1:][before == after])] = True
    step = trace.step_at(steps.start_ns)
    again &= (step >= 0) & np.append(False, step[1:] == step[:-1])  # of each step all but the first
    rest = steps.where(again)
    share = path.explained_us(Rows(trace.slices, np.sort(np.append(rest.at, trace.launched_in(rest).at)))) / path.window_us
    if len(rest) < MANY_OPTIMIZERS * len(facts.steps) or share < MIN_SHARE_OF_PATH:
        return None
    cpu = us(rest.total_us / len(facts.steps))
    seen = f"{len(rest) / len(facts.steps):.3g} more optimizer steps in each, {cpu} of CPU time: {about(share)} of "
    return Seen(
        f"{seen}{denominator(facts)}", rest, share=share, effect=Effect(dropped(rest, left_of_gpu=FUSED_OF_FOREACH), kind=ONCE)
    )


@finding(
    "gradients-nobody-uses",
    "a step accumulates gradients for more parameters than its optimizer updates",
    "torch::autograd::AccumulateGrad, once for each parameter, compared with the ops or blocks of Optimizer.step",
    "The backward pass computes gradients for parameters that this step's optimizer does not change: parameters of a frozen "
    "part, of a teacher, or of a part that something else updates.",
    "If nothing uses these gradients, run the parts that are not trained under torch.no_grad(), or set requires_grad_(False) on "
    "their parameters before the forward pass; the backward pass then ends where the trained part begins.",
    source="https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",
)
def _gradients_nobody_uses(trace: Trace, facts: Facts) -> Seen | None:
    """Where each step has one backward pass and one optimizer's step: every parameter that this one changes takes one op, or one
    block of a kernel over lists, at least (and one for each CHUNK numbers).
    """
    slices, n = trace.slices, len(trace.steps)
    steps = optimizer_steps(trace)
    steps = steps.where(trace.step_at(steps.start_ns) >= 0)
    if not all(name.removeprefix(OPTIMIZER_STEP).removesuffix(".step") in ONE_BY_ONE for name in steps.names):
        return None
    if any(name.startswith(("c10d::", "_c10d_functional::", "record_param_comms")) for name in trace.op_names):
        return None  # a rank may update its share of them
    passes = trace.passes
    if facts.critical_path is None or not n or len(steps) != n or len(passes.start_ns) != n or passes.is_again.any():
        return None
    made_by = trace.nodes.made_by[(trace.nodes.made_by >= 0) & (trace.step_at(trace.nodes.start_ns) >= 0)]
    if len(distinct(made_by).values) < len(made_by):  # two losses go back through the same ops: each gradient is added to
        return None
    nodes = trace.ops.where(trace.ops.is_named(ACCUMULATES.__eq__))
    nodes = nodes.where(trace.step_at(nodes.start_ns) >= 0)
    sizes = [math.prod(shape) for row in nodes.at.tolist() for shape in shapes_of(slices, row)[:1]]
    has_shapes = len(sizes) == len(nodes)
    made = sum(math.ceil(size / CHUNK) for size in sizes) / n if has_shapes else len(nodes) / n
    used = _most_updated(trace, steps, has_shapes) / n
    if not len(nodes) or not used or 1 - used / made < LEAST_UNUSED:
        return None
    every = trace.ops.where(trace.ops.is_named(lambda name: name.startswith(EVALUATE)))
    every = every.where(trace.step_at(every.start_ns) >= 0)
    both = Rows(slices, np.sort(np.concatenate([every.at, trace.launched_in(every).at])))
    share = facts.critical_path.explained_us(both) / facts.critical_path.window_us
    gradients = f"the gradients of {len(nodes) / n:.0f} parameters are computed in a step"
    pieces = f"; in pieces of at most 65,536 numbers these are {made:.0f}, of which" if has_shapes else ", of which"
    seen = (
        f"{gradients}{pieces} the optimizer uses {used:.0f} at most; the backward pass is {about(share)} of {denominator(facts)}"
    )
    left = min(used / made, 1.0)
    return Seen(seen, every, share=share * (1 - left), effect=Effect(dropped(every, left, left), kind=REPLACED))


def _most_updated(trace: Trace, steps: Rows, by_chunks: bool) -> float:
    """Return how many parameters (or chunks of them) the optimizers' steps change at most: of each optimizer, as many as the op
    that it calls most.
    """
    slices, total = trace.slices, 0.0
    every = trace.ops.where(trace.ops.is_named(lambda name: name.startswith("aten::")))
    for _, of_one in steps.by_name():
        is_step = np.zeros(len(slices), bool)
        is_step[of_one.at] = True
        ops = Rows(slices, outermost(slices, every.at[innermost(slices, trace.parent, every.at, is_step) >= 0]))
        changed = dict[str, Counter[Any]]()
        for name, rows in ops.by_name():
            if name.startswith(("aten::_foreach", "aten::_fused")):
                blocks = [
                    one.detail.grid[0] for one in trace.launched_in(rows) if isinstance(one.detail, Footprint) and one.detail.grid
                ]
                changed[name] = Counter({"blocks": sum(blocks)})
            elif by_chunks:
                firsts = (shape for row in rows.at.tolist() for shape in shapes_of(slices, row)[:1])
                changed[name] = Counter({"chunks": sum(math.ceil(math.prod(shape) / CHUNK) for shape in firsts)})
            else:
                changed[name] = Counter({"ops": len(rows)})
        total += max((one.total() for one in _without_adams_others(changed).values()), default=0)
    return total


def _without_adams_others(changed: dict[str, Counter[Any]]) -> dict[str, Counter[Any]]:
    """Return what each op of an optimizer changes, without those that Adam calls twice for some parameters: it has one addcmul_
    and one addcdiv_ for each of them; and without the add_ of an SGD with momentum, which has two of these, and one mul_.
    """
    scaled, added = changed.get("aten::mul_"), changed.get("aten::add_")
    if scaled and added and added == scaled + scaled:
        return {name: one for name, one in changed.items() if name != "aten::add_"}
    by_adam = changed.get("aten::addcdiv_")
    if not by_adam or changed.get("aten::addcmul_") != by_adam:
        return changed
    return {name: one for name, one in changed.items() if name not in TWICE_IN_ADAM}


class _Pass(msgspec.Struct):
    """What stands between two steps of optimizers, from `begin_ns` to `end_ns`: the nodes that accumulate a gradient (rows), the
    shapes of those gradients, of those among them that are added to none (`anew`), and of what the `optimizer`'s step behind them
    updates.
    """

    optimizer: str
    begin_ns: int
    end_ns: int
    accumulates: list[int]
    gradients: list[Shape]
    anew: Counter[Shape]
    updated: Counter[Shape]
    used: set[Shape]  # what ops take or change between the backward pass and the optimizer's step, and other ops in place


class _Unused(msgspec.Struct):
    """What a pass accumulates for nobody (rows), and whether that comes last in it, or first. `place`: of the pass."""

    place: int
    rows: list[int]
    is_last: bool


@finding(
    "gradients-of-another-part",
    "a step with several backward passes and optimizers, and a pass that accumulates more gradients than the optimizer behind it "
    "updates",
    "torch::autograd::AccumulateGrad in each backward pass, compared with the ops of the Optimizer.step behind it",
    "A backward pass computes gradients of parameters that the optimizer's step behind it does not update, and the next pass "
    "begins those anew: nobody reads them.",
    "If the pass should train one part only: detach() what the other part made, or set requires_grad_(False) on the other part.",
    source="https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",
)
def _gradients_of_another_part(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes. What a step of an optimizer leaves out gets a new gradient in the next pass, which is added to none. It is told
    where these parameters come last in the backward pass, or first.
    """
    steps = optimizer_steps(trace)
    steps = steps.where(trace.step_at(steps.start_ns) >= 0)
    nodes = trace.ops.where(trace.ops.is_named(ACCUMULATES.__eq__) & (trace.step_at(trace.ops.start_ns) >= 0))
    of_each = np.bincount(trace.step_at(steps.start_ns), minlength=len(trace.steps))
    if not len(nodes) or len(distinct(of_each).values) != 1 or of_each[0] < 2:
        return None
    passes = [one for one in _passes(trace, steps, nodes) if one.gradients or one.updated]
    a_step = len(passes) // len(trace.steps)
    if not all(one.gradients and one.updated for one in passes) or a_step < 2:
        return None
    # Behind the last of all passes, what comes is known by the steps before: there a pass follows that has its place.
    afters = [*passes[1:], passes[-a_step]] if len(trace.steps) > 1 else passes[1:]
    found = [_unused(place, one, after) for place, (one, after) in enumerate(zip(passes, afters, strict=False))]
    told = [one for one in found if one is not None]
    told = [one for one in told if one.is_last] or told
    if not told:
        return None
    every, chosen = trace.nodes, np.zeros(len(trace.nodes), bool)
    starts_ns = every.start_ns
    for one in told:
        of, unused_rows = passes[one.place], set(one.rows)
        if one.is_last:
            last_used = [row for row in of.accumulates if row not in unused_rows][-1]
            ends_ns = trace.slices.end_ns[last_used], of.end_ns
        else:
            ends_ns = of.begin_ns, trace.slices.end_ns[one.rows[-1]]
        chosen[slice(*np.searchsorted(starts_ns, ends_ns))] = True
    of, unused, left = passes[told[0].place], len(told[0].rows), 0.0 if told[0].is_last else OF_WEIGHTS
    number, n = told[0].place % a_step + 1, len(of.gradients)
    words = (
        f"backward pass {number} of {a_step} in a step, before {of.optimizer}, computes the gradients of {n} parameters, "
        f"of which {n - unused} are updated; the next pass computes the others anew"
    )
    rows = Rows(trace.slices, every.at[chosen])
    seen = seen_with_time(trace, facts, rows, words, Effect(dropped(rows, left, left), kind=REPLACED if left else GONE))
    return seen and msgspec.structs.replace(seen, next=FLOWS_THROUGH if left else ENDS_THERE)


def _unused(place: int, one: _Pass, after: _Pass) -> _Unused | None:
    """Return what a pass accumulates for nobody, where these are the last ones that it has, or else the first ones, for sure."""
    unused = Counter(one.gradients) - one.updated
    if unused.total() < LEAST_UNUSED * len(one.gradients) or unused - after.anew:
        return None
    # What the next pass adds to a gradient may be left of a parameter that was updated; else it is kept, as what is updated there
    # beside its own gradients.
    kept = (Counter(after.gradients) - after.anew - one.updated) + (after.updated - Counter(after.gradients))
    if any(shape in kept or shape in one.used for shape in unused):
        return None
    last, first = _taken(unused, one.gradients[::-1])[::-1], _taken(unused, one.gradients)
    is_last, is_first = last == sorted(last), first == sorted(first, reverse=True)
    if is_last == is_first:
        return None
    of_these = last if is_last else first
    return _Unused(place, [row for row, is_one in zip(one.accumulates, of_these, strict=True) if is_one], is_last)


def _added(trace: Trace, nodes: Rows) -> set[int]:
    """Return which of these nodes add a gradient to another (rows)."""
    is_node = np.zeros(len(trace.slices), bool)
    is_node[nodes.at] = True
    adds = trace.ops.where(trace.ops.is_named(("aten::add_", "aten::add").__contains__))
    return set(innermost(trace.slices, trace.parent, adds.at, is_node).tolist())


def _passes(trace: Trace, steps: Rows, nodes: Rows) -> list[_Pass]:
    """Return what stands before each of the optimizers' steps, behind the one before it or the beginning of its step: of the
    nodes those whose gradient has dimensions.
    """
    slices, passes, added = trace.slices, list[_Pass](), _added(trace, nodes)
    places = np.searchsorted(nodes.start_ns, steps.start_ns).tolist()
    last_ns = np.append(nodes.end_ns, 0)[np.array(places) - 1]
    # Where the backward pass before a step of an optimizer has ended, where that begins and ends, and where the next one begins.
    moments_ns = np.stack([np.minimum(last_ns, steps.start_ns), steps.start_ns, steps.end_ns,
                           np.append(steps.start_ns[1:], np.iinfo(np.int64).max)], axis=1)  # fmt: skip
    begins_ns, outer = [int(trace.steps.start_ns[0]), *steps.end_ns.tolist()], trace.outer_ops
    ops_at = np.searchsorted(outer.start_ns, moments_ns).tolist()
    inside_at = np.searchsorted(trace.ops.start_ns, moments_ns[:, 1:3]).tolist()
    for number, (begin, end) in enumerate(pairwise([0, *places])):
        shapes = {row: shape for row in nodes.at[begin:end].tolist() for shape in shapes_of(slices, row)[:1]}
        anew = Counter(shape for row, shape in shapes.items() if row not in added)
        behind, step, after, until = ops_at[number]
        used = _used(Rows(slices, outer.at[behind:step]), Rows(slices, outer.at[after:until]))
        updated = _updated(Rows(slices, trace.ops.at[slice(*inside_at[number])]), int(steps.end_ns[number]))
        optimizer, end_ns = slices.names[slices.name[steps.at[number]]], int(steps.start_ns[number])
        passes.append(_Pass(optimizer, begins_ns[number], end_ns, [*shapes], [*shapes.values()], anew, updated, used))
    return passes


def _used(before: Rows, behind: Rows) -> set[Shape]:
    """Return the shapes that the ops between a backward pass and the optimizer's step behind it take, and that those from there
    to the next such step write in place, take twice, or take as one reads a gradient.
    """
    found = {shape for row in before.at.tolist() for shape in shapes_within(before.slices, row)}
    in_place = behind.where(behind.is_named(lambda name: name.endswith("_") and name != "aten::zero_" and "_zero_" not in name))
    found |= {shape for row in in_place.at.tolist() for shape in shapes_of_first(behind.slices, row)}
    read = behind.where(behind.is_named(READS.__contains__))
    found |= {shape for row in read.at.tolist() for shape in shapes_within(behind.slices, row)}
    twice = (shapes_within(behind.slices, row) for row in behind.at.tolist())
    return found | {shape for shapes in twice for shape, n in Counter(shapes).items() if n > 1}


def _updated(ops: Rows, end_ns: int) -> Counter[Shape]:
    """Return the shapes of what an optimizer's step updates at most: of each the most that ops of one name take. `ops`: those
    that begin in it; it ends at `end_ns`.
    """
    outer = Rows(ops.slices, outermost(ops.slices, ops.at[ops.end_ns <= end_ns]))
    changed = {
        name: Counter(shape for row in rows.at.tolist() for shape in shapes_of_first(ops.slices, row))
        for name, rows in outer.by_name()
        if name.startswith("aten::") and name.endswith("_")
    }
    found = Counter[Shape]()
    for one in _without_adams_others(changed).values():
        found |= one
    return found


def _taken(wanted: Counter[Shape], shapes: list[Shape]) -> list[bool]:
    """Return which of these are the first ones of the wanted shapes."""
    left, taken = Counter(wanted), list[bool]()
    for shape in shapes:
        taken.append(left[shape] > 0)
        left[shape] -= taken[-1]
    return taken
