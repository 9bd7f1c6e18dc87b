"""What is written out op by op, and has an op of its own: activations, norms."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
import re

import msgspec
import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, dropped
from trace_reader.analysis.replay.places import nodes_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_cost import shapes_of
from trace_reader.findings.fusable import calls_that_ran_eager
from trace_reader.findings.registry import LEAST_SHARE, Seen, finding, listed, of_the_steps
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, once
from trace_reader.units import us

SCATTERS = frozenset(["aten::scatter_", "aten::scatter", "aten::one_hot"])
BY_A_NUMBER = frozenset(f"aten::{name}" for name in ("mul", "mul_", "add", "add_", "div", "div_", "sub", "rsub"))
FILLS = frozenset(["aten::full_like", "aten::zeros_like", "aten::fill_", "aten::zero_"])
# Runs of ops, by their names without aten:: and a trailing underscore, each followed by a space; views, and casts of autocast
# between them, are left out. What they are called, and what does the same in one op.
_MUL, _SQUARE = r"(?:mul )", r"(?:pow |square |mul )"
_RUNS = (
    ("GELU", "F.gelu(approximate='tanh')",
     rf"{_MUL}?(?:pow |{_MUL}{_MUL}){_MUL}add {_MUL}{{1,2}}tanh add {_MUL}{{1,2}}"),
    ("GELU", "F.gelu", rf"{_MUL}{{0,2}}(?:div |mul )erf add {_MUL}{{1,2}}"),
    ("LayerNorm", "F.layer_norm",
     rf"mean (?:sub )?(?:var |(?:sub )?{_SQUARE}mean )(?:sub )?(?:mul )?add (?:sqrt |rsqrt )(?:div |mul )(?:mul )?(?:add )?"),
    ("LayerNorm", "F.layer_norm", r"mean (?:var |std )(?:sub )?add (?:sub )?(?:sqrt |rsqrt )?(?:div |mul )(?:mul )?(?:add )?"),
    ("RMSNorm", "F.rms_norm", rf"{_SQUARE}mean add (?:rsqrt |sqrt )(?:mul |div )(?:mul )?"),
    ("softmax", "F.softmax", r"(?:amax |max )sub exp sum div "),
    ("SiLU", "F.silu", r"sigmoid mul "),  # or a gate: of equal shapes only
)  # fmt: skip
_LEFT_OUT = frozenset(
    "aten::" + name for name in ("view", "reshape", "unsqueeze", "squeeze", "expand", "transpose", "permute", "to", "_to_copy",
                                 "detach", "slice", "select", "unbind", "split", "chunk", "t", "contiguous", "type_as", "float")
)  # fmt: skip


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
        words = {name: name.removeprefix("aten::").rstrip("_") + " " for name in set(one.names)}
        text, taken = "".join([words[name] for name in one.names]), np.zeros(len(one), bool)
        starts = list(accumulate((len(words[name]) for name in one.names), initial=0))
        for what, op, pattern in _RUNS:
            for found in re.finditer(rf"(?<![^ ])(?:{pattern})", text):
                first, after = (bisect_left(starts, place) for place in found.span())
                if not taken[first:after].any() and (what != "SiLU" or _may_be_silu(trace, one.at[first:after])):
                    taken[first:after] = True
                    yield Run(what, op, one.at[first:after])


def _may_be_silu(trace: Trace, rows: np.ndarray) -> bool:
    """Return whether a product is of two tensors of the shape of the sigmoid before it, as far as shapes are known; else it is a
    gate of whole channels.
    """
    sigmoid, product = (shapes_of(trace.slices, row) for row in rows.tolist())
    return not product or product == 2 * sigmoid


def fused_in_compiled_code(trace: Trace) -> Rows:
    """Return the ops of written-out runs, and the nodes of their backward pass, that one op or compiled code does without."""
    return _fused(trace, list(_runs(trace)))


def _fused(trace: Trace, runs: list[Run]) -> Rows:
    rest = np.concatenate([np.empty(0, np.int64), *(run.rows[1:] for run in runs)])
    gone = np.append(rest, nodes_of(trace, Rows(trace.slices, once(rest))))
    return Rows(trace.slices, outermost(trace.slices, once(gone)))


@finding(
    "written-out",
    "a dozen elementwise ops where one op would do",
    "runs like mean, sub, pow, mean, add, rsqrt, mul on the CPU's lane",
    "Judging by their order, these ops may be an activation or a norm that is written out as separate ops. Each op goes over "
    "all of the data once more, and so does its backward pass.",
    "If they are, use the op that does the same in one kernel.",
)
def _written_out(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    runs = list(_runs(trace)) if path is not None and facts.steps else []
    if path is None or not runs:
        return None
    spans = _fused(trace, runs)
    share = path.explained_us(spans) / path.window_us
    if max(share, of_the_steps(trace, spans)) < LEAST_SHARE:
        return None
    steps, kinds = len(facts.steps), list(dict.fromkeys((run.what, run.op) for run in runs))
    told = listed(f"{sum(run.what == what for run in runs) / steps:.0f} x {what}" for what, _ in kinds)
    seen = f"per step: {told}, of {sum(len(run.rows) for run in runs) / steps:.0f} ops"
    ops = " and ".join(dict.fromkeys(op for _, op in kinds))
    compiled = "" if len(calls_that_ran_eager(trace)) else "; torch.compile fuses them in any case"
    next = f"If that is what they compute, use {ops}{compiled}."
    return Seen(seen, spans, next, share, Effect(dropped(spans), kind=REPLACED))


@finding(
    "dense-targets",
    "log_softmax, and its product with a tensor of the same size into which labels were scattered",
    "aten::scatter_ (or one_hot) of tokens x classes, and aten::mul of log_softmax with it",
    "Judging by the shapes, a loss expands one label per row to a row over all classes. This takes several passes over rows x "
    "classes, forward and backward.",
    "If the labels are one class for each row, smoothed or not, pass the class indices to F.cross_entropy, which also takes "
    "label_smoothing.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
)
def _dense_targets(trace: Trace, facts: Facts) -> Seen | None:
    """By shapes: the first op of a step that takes such a tensor is, behind log_softmax, a product of two; but for those that
    fill one, scatter one class into each row, or take a number: what is mixed, or kept of a teacher's, are no labels.
    """
    path, outer = facts.critical_path, trace.outer_ops.where(~trace.outer_ops.is_named(_LEFT_OUT.__contains__))
    if path is None or not SCATTERS.intersection(trace.op_names):
        return None
    found, classes = list[int](), 0
    for _, one in outer.by(trace.step_at(outer.start_ns), outer.track):
        shapes, names, rows = [shapes_of(trace.slices, row) for row in one.at.tolist()], one.names, one.at.tolist()
        for at in [at for at, name in enumerate(names) if name == "aten::log_softmax" and shapes[at]]:
            logits = shapes[at][0]
            spread = [
                n for n, name in enumerate(names) if name in SCATTERS and _spreads_labels(trace, rows[n], shapes[n], logits)
            ]
            made = [n for n, name in enumerate(names) if name in FILLS and shapes[n][:1] == [logits]]
            scaled = [n for n, name in enumerate(names) if name in BY_A_NUMBER and shapes[n] == [logits]]
            takes = [n for n in range(len(rows)) if logits in shapes[n] and n not in {at, *spread, *made, *scaled}]
            first = takes[0] if takes else -1
            if min(spread, default=first) < first > at and names[first] == "aten::mul" and shapes[first] == [logits, logits]:
                scaled = [n for n in scaled if n > min(spread) and n != at - 1]  # the one before log_softmax is of the logits
                found += [rows[n] for n in (first, *spread, *made, *scaled) if n <= first]
                classes = logits[-1]
    if not found:
        return None
    rows = once(np.sort(np.array(found)))
    spans = Rows(trace.slices, np.sort(np.append(rows, nodes_of(trace, Rows(trace.slices, rows)))))
    share = path.explained_us(spans) / path.window_us
    if max(share, of_the_steps(trace, spans)) < LEAST_SHARE:
        return None
    work = trace.launched_in(spans)
    time_us, what = (work, "GPU") if len(work) else (spans, "CPU")
    seen = (
        f"labels spread over {classes:,} classes, and multiplied with log_softmax: {us(time_us.total_us / len(facts.steps))} of "
    )
    return Seen(f"{seen}{what} time per step", spans, share=share, effect=Effect(dropped(spans), kind=REPLACED))


def _spreads_labels(trace: Trace, row: int, shapes: list[tuple[int, ...]], logits: tuple[int, ...]) -> bool:
    """Return whether a scatter puts one number into each row of such a tensor."""
    if trace.slices.names[trace.slices.name[row]] == "aten::one_hot":
        return shapes[:1] == [logits[:-1]]
    return shapes[:2] == [logits, (*logits[:-1], 1)]
