"""The program's own functions of Python: which of them takes the time, with all that it calls."""

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, dropped
from trace_reader.analysis.replay.place import FUNCTION
from trace_reader.analysis.replay.places import ALL_OF_A_STEP, Candidate, cpu_us_of, functions, lies_in
from trace_reader.analysis.trace.facts import OF_THE_CPU, Facts
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.op_names import GEMM_OPS
from trace_reader.units import about, us

LEAST_SHARE, SAME = 0.15, 0.95  # of the steps' time; of an outer function's
MODELS_WORK = 0.4  # of a function's time: with so much of it, it is the model itself
_WORK = (
    *GEMM_OPS,
    "aten::linear",
    "aten::matmul",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::scaled_dot_product_attention",
)


def own_function(trace: Trace, stacks: Trace, facts: Facts) -> Seen | None:
    """Return the function of the program that takes most of the steps, the innermost one of those that take as much, without
    those that are all of a step, mostly the model's products, or launch most of what the GPU does. `stacks`: the same trace,
    loaded with stacks.
    """
    if facts.verdict not in OF_THE_CPU or not facts.steps:
        return None
    window = merged(trace.steps.start_ns, trace.steps.end_ns)
    whole_us = trace.steps.total_us
    products = trace.ops.where(trace.ops.is_named(lambda name: name in _WORK or name.startswith(EVALUATE)))
    products = Rows(trace.slices, outermost(trace.slices, products.at))
    found: list[tuple[float, Candidate]] = []
    for one in functions(trace, stacks):
        share = cpu_us_of(one.spans, window) / whole_us if one.kind == FUNCTION and whole_us else 0.0
        if not LEAST_SHARE <= share < ALL_OF_A_STEP or _inside_us(products, one.spans) >= MODELS_WORK * share * whole_us:
            continue
        if not _is_all_of_a_step(trace, one.spans):
            found.append((share, one))
    work = len(trace.launched)
    found = [(share, one) for share, one in found if not work or 2 * len(trace.launched_in(one.spans)) < work]  # not the model
    if not found:
        return None
    found.sort(key=lambda item: (-item[0], item[1].name))
    share, best = found[0]
    for less, one in found[1:]:
        if less >= SAME * share and lies_in(one.spans, best.spans):
            share, best = less, one
    calls, each_us = len(best.spans) / len(trace.steps), cpu_us_of(best.spans, window) / len(trace.steps)
    times = "once" if calls == 1 else f"{calls:.0f} times" if calls >= 10 else f"{calls:.2g} times"
    seen = f"{best.name}, {times} per step: {us(each_us)} with all that it calls, {about(share)} of the steps' time"
    return Seen(seen, best.spans, share=share, effect=Effect(dropped(best.spans), kind=REPLACED))


def _is_all_of_a_step(trace: Trace, spans: Rows) -> bool:
    """Return whether these calls are all of half of the steps or more: they are the steps' own function, though others of its
    calls began before the recording.
    """
    steps = trace.steps.where(trace.steps.end_ns > trace.steps.start_ns)
    inside = np.zeros(len(steps))
    for _, one in spans.by(spans.track):
        inside = np.maximum(inside, each_within_ns(steps.start_ns, steps.end_ns, merged(one.start_ns, one.end_ns)))
    return 2 * int((inside >= ALL_OF_A_STEP * (steps.end_ns - steps.start_ns)).sum()) >= len(steps)


def _inside_us(work: Rows, spans: Rows) -> float:
    """Return how long these ops, none in another, take inside the spans, on their threads."""
    unions = {track: merged(one.start_ns, one.end_ns) for (track,), one in spans.by(spans.track)}
    return sum(cpu_us_of(one, unions[track]) for (track,), one in work.by(work.track) if track in unions)


@finding(
    "own-function",
    "one function of the program takes much of a step",
    "the functions of Python above the ops (with_stack=True): one as wide as most of the step",
    "This function takes so long with all that it calls, and little of it is products or the backward pass.",
    "Look inside it first: what it does for each row or element can often be done for all of them by one op, once, or ahead of "
    "time in a DataLoader's workers.",
)
def _own_function(trace: Trace, facts: Facts) -> Seen | None:
    return own_function(trace, trace, facts) if bool(np.any(trace.slices.kind == Kind.PYTHON)) else None
