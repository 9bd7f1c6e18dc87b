"""What is written out op by op, and has an op of its own: activations, norms; and loops over what one call can take."""

from collections.abc import Iterator
import re

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import ONCE, REPLACED, Effect, all_of, dropped
from trace_reader.analysis.replay.places import Candidate, loops, nodes_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.findings.catalogue import lies_inside
from trace_reader.findings.registry import Seen, finding, listed
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, once
from trace_reader.names.op_names import GEMM_OPS
from trace_reader.units import about, us

LEAST_SHARE = 0.03  # of the path, or of the steps' time
# Runs of ops, by their names without aten:: and a trailing underscore, each followed by a space; views, and casts of autocast
# between them, are left out. What they are called, and what does the same in one op.
_MUL, _SQUARE = r"(?:mul )", r"(?:pow |square |mul )"
_RUNS = (
    ("GELU", "F.gelu", rf"(?:{_MUL}?(?:pow |{_MUL}{_MUL}){_MUL}add {_MUL}tanh |(?:div |mul )erf )add {_MUL}{{1,2}}"),
    ("GELU", "F.gelu", rf"{_MUL}{{0,2}}(?:div |mul )erf add {_MUL}{{1,2}}"),
    ("LayerNorm", "F.layer_norm",
     rf"mean (?:sub )?(?:var |(?:sub )?{_SQUARE}mean )(?:sub )?add (?:sqrt |rsqrt )(?:div |mul )(?:mul )?(?:add )?"),
    ("LayerNorm", "F.layer_norm", r"mean (?:var |std )(?:sub )?add (?:sub )?(?:sqrt |rsqrt )?(?:div |mul )(?:mul )?(?:add )?"),
    ("RMSNorm", "F.rms_norm", rf"{_SQUARE}mean add (?:rsqrt |sqrt )(?:mul |div )(?:mul )?"),
    ("softmax", "F.softmax", r"(?:amax |max )sub exp sum div "),
    ("SiLU", "F.silu", r"sigmoid mul "),  # or a gate: of equal shapes only
)  # fmt: skip
_LEFT_OUT = frozenset(
    "aten::" + name for name in ("view", "reshape", "unsqueeze", "squeeze", "expand", "transpose", "permute", "to", "_to_copy",
                                 "detach", "slice", "select", "unbind", "split", "chunk", "t", "contiguous", "type_as", "float")
)  # fmt: skip
POINTWISE = re.compile(
    r"aten::(?:mul|add|sub|div|lerp|copy|addcmul|addcdiv|sqrt|zero|fill|neg|pow|clamp|detach|to|clone|square|maximum|reciprocal|"
    r"_foreach_\w+|empty\w*|view|reshape|sign|rsqrt|exp)_?$"
)
LEAST_LOOP = 8  # rounds
MANY_ROUNDS = 16
MODELS = frozenset(
    f"aten::{name}" for name in ("linear", "matmul", "conv1d", "conv2d", "conv3d", "layer_norm", "rms_norm", "batch_norm",
                                 "scaled_dot_product_attention", "mm", "addmm", "bmm", "lstm_cell", "gru_cell", "embedding")
)  # fmt: skip
BIAS_FIRST = frozenset(["aten::addmm", "aten::baddbmm", "aten::addbmm"])  # of their inputs
SMALL_PRODUCTS = ("aten::linear", "aten::matmul", *GEMM_OPS)


class Run(msgspec.Struct, frozen=True, eq=False):
    """A run of ops that is written out: what it does, the op that does it, and the rows of its ops."""

    what: str
    op: str
    rows: np.ndarray


def _runs(trace: Trace) -> Iterator[Run]:
    """Yield the runs in the steps, thread by thread; of those that overlap, the first."""
    ops = trace.outer_ops
    ops = ops.where(~ops.is_named(lambda name: name in _LEFT_OUT or name.startswith(EVALUATE)))
    for _, one in ops.by(trace.step_at(ops.start_ns), ops.track):
        words = [name.removeprefix("aten::").rstrip("_") + " " for name in one.names]
        starts = np.append(0, np.cumsum([len(word) for word in words]))
        text, taken = "".join(words), np.zeros(len(words), bool)
        for what, op, pattern in _RUNS:
            for found in re.finditer(rf"(?<![^ ])(?:{pattern})", text):
                first, after = (int(np.searchsorted(starts, place)) for place in found.span())
                if not taken[first:after].any() and (what != "SiLU" or _may_be_silu(trace, one.at[first:after])):
                    taken[first:after] = True
                    yield Run(what, op, one.at[first:after])


def _may_be_silu(trace: Trace, rows: np.ndarray) -> bool:
    """Return whether a product is of two tensors of the shape of the sigmoid before it, as far as shapes are known; else it is a
    gate of whole channels.
    """
    sigmoid, product = (shapes_of(trace.slices, row) for row in rows.tolist())
    return not product or product == 2 * sigmoid


@finding(
    "written-out",
    "a dozen elementwise ops where one op would do",
    "runs like mean, sub, pow, mean, add, rsqrt, mul on the CPU's lane",
    "By their order, these ops may be an activation or a norm that is written out: each goes over all of the data once more, and "
    "so does its backward pass.",
    "If they are, use the op that does the same in one kernel.",
)
def _written_out(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    runs = list(_runs(trace)) if path is not None and facts.steps else []
    if path is None or not runs:
        return None
    rest = np.concatenate([run.rows[1:] for run in runs])
    gone = np.append(rest, nodes_of(trace, Rows(trace.slices, once(rest))))
    spans = Rows(trace.slices, outermost(trace.slices, once(gone)))
    share = path.explained_us(spans) / path.window_us
    if max(share, _of_the_steps(trace, spans)) < LEAST_SHARE:
        return None
    steps, kinds = len(facts.steps), list(dict.fromkeys((run.what, run.op) for run in runs))
    told = listed(f"{sum(run.what == what for run in runs) / steps:.0f} x {what}" for what, _ in kinds)
    seen = f"per step: {told}, of {sum(len(run.rows) for run in runs) / steps:.0f} ops"
    ops = " and ".join(dict.fromkeys(op for _, op in kinds))
    next = f"If that is what they compute, use {ops}; torch.compile fuses them, whatever it is."
    return Seen(seen, spans, next, share, Effect(dropped(spans), kind=REPLACED))


def may_chain(trace: Trace, candidate: Candidate) -> bool:
    """Return whether a round of a loop may take what the one before made, by the shapes of what goes in and of what the last
    product makes; also where shapes do not tell.
    """
    on_thread = candidate.spans.where(candidate.spans.track == candidate.spans.track[0])
    first = on_thread.where(np.arange(len(candidate.ops)))
    shapes = [shapes_of(trace.slices, row) for row in first.at.tolist()]
    if not all(shapes):
        return True
    names = first.names  # from where the loop begins
    products = [place for place, op in enumerate(names) if op in SMALL_PRODUCTS]
    if not products:
        return True
    weights = shapes[products[-1]]
    if len(weights) < 2:
        return True
    out = weights[1][0] if names[products[-1]] == "aten::linear" else weights[-1][-1]
    taken = shapes[products[0]][names[products[0]] in BIAS_FIRST]
    return bool(taken[-1] == out)


@finding(
    "loop-over-tensors",
    "the same few ops, hundreds of times in a row, on tensors of a list",
    "a pattern that repeats on the CPU's lane: mul, add, copy_, mul, add, copy_",
    "A Python loop goes over a list of tensors, as for averaged weights (EMA), clipping or an optimizer that is written out: "
    "each tensor has launches of its own.",
    "Update all tensors in a few calls: torch._foreach_lerp_, _foreach_mul_ and _foreach_add_ take lists "
    "(torch.optim.swa_utils.AveragedModel uses them).",
)
def _loop_over_tensors(trace: Trace, facts: Facts) -> Seen | None:
    found = [one for one in loops(trace) if one.rounds >= LEAST_LOOP and all(map(POINTWISE.match, one.ops))]
    return _loop(trace, facts, found, "", Effect(all_of(*(dropped(one.repeats) for one in found if one.repeats is not None))))


@finding(
    "loop-of-small-products",
    "the same small network, many times in a row",
    "a pattern that repeats on the CPU's lane, with its own products in each round",
    "The same run of ops with equal shapes stands many times in a row, and by these shapes no round takes what the one before "
    "made: as for the members of an ensemble, experts, heads or single samples.",
    "Do all rounds at once: stack the weights and use one batched product (torch.bmm, torch.func.vmap), or one larger batch.",
)
def _loop_of_small_products(trace: Trace, facts: Facts) -> Seen | None:
    every = [one for one in loops(trace) if one.rounds >= LEAST_LOOP]
    found = [one for one in every if any(op in SMALL_PRODUCTS for op in one.ops) and not may_chain(trace, one)]
    rounds = {one.rounds for one in found}
    if found:  # their backward pass, which goes round as often
        found += [
            one for one in every if one not in found and one.rounds in rounds and any(op.startswith(EVALUATE) for op in one.ops)
        ]
    effect = Effect(all_of(*(dropped(one.repeats) for one in found if one.repeats is not None)), kind=ONCE)
    has_backward = any(op.startswith(EVALUATE) for one in found for op in one.ops)
    return _loop(trace, facts, found, " (forward and backward)" * has_backward, effect)


@finding(
    "repeated-ops",
    "the same few ops, dozens of times in a row",
    "a pattern that repeats on the CPU's lane, with different tensors or elements in each round",
    "The same run of ops stands many times in a row: a loop of Python over rows, time steps, classes or samples.",
    "If the rounds do not need each other's results, do all of them at once: one op over a dimension more (broadcasting, "
    "torch.where, cumsum, bmm, torch.func.vmap); else a fused loop (torch.compile, a scan on the CPU).",
)
def _repeated_ops(trace: Trace, facts: Facts) -> Seen | None:
    """Without loops that other findings tell of, layers, backward passes and optimizers."""
    found = [one for one in loops(trace) if one.rounds >= MANY_ROUNDS and not all(map(POINTWISE.match, one.ops))]
    found = [one for one in found if not any(op in MODELS or op.startswith(EVALUATE) for op in one.ops)]
    found = [one for one in found if not lies_inside(trace, one.spans, "^Optimizer").any()]
    effect = Effect(all_of(*(dropped(one.repeats) for one in found if one.repeats is not None)), kind=ONCE)
    return _loop(trace, facts, found, "", effect)


def _of_the_steps(trace: Trace, spans: Rows) -> float:
    """Return the share of the steps' time that spans take on the CPU or what they launched on the GPU, whichever is more."""
    return max(spans.total_us, trace.launched_in(spans).total_us) / max(trace.steps.total_us, 1e-9)


def _loop(trace: Trace, facts: Facts, found: list[Candidate], more: str, effect: Effect) -> Seen | None:
    path = facts.critical_path
    if path is None or not found or not facts.steps:
        return None
    spans = Rows(trace.slices, once(np.concatenate([one.spans.at for one in found])))
    share, steps = path.explained_us(spans) / path.window_us, len(facts.steps)
    if max(share, _of_the_steps(trace, spans)) < LEAST_SHARE:
        return None
    told = listed(f"{one.rounds} x ({one.name})" for one in found)
    of_path = f": {about(share)} of the critical path" if share >= LEAST_SHARE else ""
    seen = f"in a row{more}, per step: {told}; {us(spans.total_us / steps)} of CPU time{of_path}"
    return Seen(seen, spans, share=share, effect=effect)
