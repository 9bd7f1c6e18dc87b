"""The functions of Python that take the time, with all that they call: the program's own, and a library's that it calls."""

from collections import defaultdict
from pathlib import Path
import re
import tomllib
from typing import Any

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, dropped
from trace_reader.analysis.replay.place import FUNCTION, MODULE
from trace_reader.analysis.replay.places import (
    ALL_OF_A_STEP,
    Candidate,
    as_in_the_trace,
    cpu_us_of,
    functions,
    library_calls,
    lies_in,
)
from trace_reader.analysis.replay.plain_run import usual_prices
from trace_reader.analysis.trace.facts import OF_THE_CPU, Facts
from trace_reader.findings.other_threads import SLEEP, sleeps_of
from trace_reader.findings.registry import Seen, finding, ops_that_launch
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, among
from trace_reader.model.slices import Kind
from trace_reader.names.op_names import GEMM_OPS
from trace_reader.units import about, us

LEAST_SHARE, SAME = 0.15, 0.95  # of the steps' time; of an outer function's
MOST_OF_A_MODEL = 0.8  # of its modules' time
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
# What runs the program's own code, its model, its backward pass and its optimizer, or waits: no place to change.
_FRAMES = re.compile(
    r"trace_reader/|torch/(?:_compile|_dynamo|_tensor\.py\(\d+\): backward|_ops|autograd/(?:__init__|graph|profiler)"
    r"|func/|_functorch|optim"
    r"|nn/(?:modules|functional|utils)|amp/grad_scaler\.py\(\d+\): step|profiler|utils/(?:_contextlib|data|hooks)|accelerator"
    r"|cuda/__init__)|threading|concurrent/|asyncio/|contextlib|runpy|importlib"
    r"|<built-in (?:method|function) (?:next|iter|exec|acquire|wait|get|result|map|backward|apply|_cuda_synchronize)\b"
)
_ENTRIES = tomllib.loads(Path(__file__).with_name("library_calls.toml").read_text("utf-8"))["library"]
_WORDS = tuple((re.compile(entry["called"]), entry["next"]) for entry in _ENTRIES)
MUCH_OF_A_FUNCTION = 0.3  # that the model runs in: its time
MOSTLY_ASLEEP = 0.5  # of a function's time
MOST_NAMES = 3  # functions of one file
THE_PROFILERS = 0.75  # of a function's time, by the price of the functions in it: then it is not known what it takes itself


def own_function(trace: Trace, stacks: Trace, facts: Facts) -> Seen | None:
    """Return the function of the program that takes most of the steps, the innermost one of those that take as much, without
    those that are all of a step, a model's own forward, mostly its products, in a model and mostly launches, or that launch most
    of what the GPU does. `stacks`: the same trace, loaded with stacks.
    """
    if facts.verdict not in OF_THE_CPU or not facts.steps:
        return None
    steps = _steps_with_functions(trace, stacks)
    window, whole_us = merged(steps.start_ns, steps.end_ns), steps.total_us
    products = trace.ops.where(trace.ops.is_named(lambda name: name in _WORK or name.startswith(EVALUATE)))
    products = Rows(trace.slices, outermost(trace.slices, products.at))
    found: list[tuple[float, Candidate]] = []
    every = list(functions(trace, stacks))
    launching = ops_that_launch(trace, trace.linked)
    modules = [one.spans for one in every if one.kind == MODULE]
    models = _together(trace, modules) if modules else None
    sleeps = sleeps_of(trace, stacks)  # another finding is about them
    for one in every:
        share = cpu_us_of(one.spans, window) / whole_us if one.kind == FUNCTION and whole_us else 0.0
        if _inside_us(sleeps, one.spans) >= MOSTLY_ASLEEP * share * whole_us > 0:
            continue
        if not LEAST_SHARE <= share < ALL_OF_A_STEP or _inside_us(products, one.spans) >= MODELS_WORK * share * whole_us:
            continue
        if models is not None and _holds(one.spans, models):
            continue
        if models is not None and one.name.endswith(": forward") and _is_most_of(models, one.spans):
            continue
        launching_us = _inside_us(launching, one.spans) if models is not None and lies_in(one.spans, models) else 0.0
        if launching_us >= MODELS_WORK * share * whole_us:
            continue
        if not _is_all_of_a_step(trace, steps, one.spans):
            found.append((share, one))
    work = int((among(trace.launched.step, trace.step_at(steps.start_ns))).sum())
    found = [(share, one) for share, one in found if not work or 2 * len(trace.launched_in(one.spans)) < work]  # not the model
    if not found:
        return None
    found.sort(key=lambda item: (-item[0], item[1].name))
    share, best = found[0]
    for less, one in found[1:]:
        if less >= SAME * share and lies_in(one.spans, best.spans):
            share, best = less, one
    calls, each_us = len(best.spans) / len(steps), cpu_us_of(best.spans, window) / len(steps)
    times = "once" if calls == 1 else f"{calls:.0f} times" if calls >= 10 else f"{calls:.2g} times"
    seen = f"{best.name}, {times} per step: {us(each_us)} with all that it calls, {about(share)} of the steps' time"
    return Seen(seen, best.spans, share=share, **_effect(trace, steps, best.spans))


def library_function(trace: Trace, stacks: Trace, facts: Facts) -> Seen | None:
    """Return the functions of one file of a library (or one function of C) that take most of the steps where the program calls
    them, without those that are mostly the model's products or run the program's own code. `stacks`: as above.
    """
    if facts.verdict not in OF_THE_CPU or not facts.steps:
        return None
    steps = _steps_with_functions(trace, stacks)
    window, whole_us = merged(steps.start_ns, steps.end_ns), steps.total_us
    files: dict[str, list[Candidate]] = defaultdict(list)
    for one in library_calls(trace, stacks):
        if not _FRAMES.match(one.name) and not one.name.startswith(SLEEP):
            files[_of_c(one.name) or one.name.partition("(")[0]].append(one)
    products = trace.ops.where(trace.ops.is_named(lambda name: name in _WORK or name.startswith(EVALUATE)))
    products = Rows(trace.slices, outermost(trace.slices, products.at))
    own = [one.spans for one in functions(trace, stacks) if one.kind == FUNCTION]
    found: list[tuple[float, str, Rows, str]] = []
    for file, calls in files.items():
        spans = _together(trace, [one.spans for one in calls])
        share = cpu_us_of(spans, window) / whole_us if whole_us else 0.0
        if share < LEAST_SHARE:
            continue
        longest = max(calls, key=lambda one: (cpu_us_of(one.spans, window), one.name)).name
        known = next((words for pattern, words in _WORDS if pattern.search(longest)), "")
        inside_us = 0.0 if known else _inside_us(products if "built-in" not in calls[0].name else trace.ops, spans)
        callbacks_us = sum(_inside_us(_begun_in(one, spans), spans) for one in own)
        if inside_us + callbacks_us < MODELS_WORK * share * whole_us:
            found.append((share, _names(file, calls, window), spans, known))
    if not found:
        return None
    share, name, spans, known = max(found, key=lambda one: (one[0], one[1]))
    calls_per_step, each_us = len(spans) / len(steps), cpu_us_of(spans, window) / len(steps)
    times = (
        "once"
        if calls_per_step == 1
        else f"{calls_per_step:.0f} times"
        if calls_per_step >= 10
        else f"{calls_per_step:.2g} times"
    )
    seen = (
        f"{name}, called by the program {times} per step: {us(each_us)} with all that it calls, {about(share)} of the steps' time"
    )
    return Seen(seen, spans, known, share, **_effect(trace, steps, spans))


def _steps_with_functions(trace: Trace, stacks: Trace) -> Rows:
    """Return the steps in which functions of Python are: another recording may do the same in some of them alone."""
    python = Rows(stacks.slices, stacks.slices.of(Kind.PYTHON))
    step = trace.step_at(as_in_the_trace(trace, stacks, python).start_ns)
    has_some = np.isin(np.arange(len(trace.steps)), step)
    return trace.steps.where(has_some) if has_some.any() else trace.steps


def _effect(trace: Trace, steps: Rows, spans: Rows) -> dict[str, Any]:
    """Return what is left without these spans, where they are known of all steps."""
    if len(steps) < len(trace.steps):
        return {"no_effect": f"its functions are known of {len(steps)} of {len(trace.steps)} steps alone"}
    starts_ns, ends_ns = merged(spans.start_ns, spans.end_ns)
    begun = int((np.searchsorted(trace.functions_ns, ends_ns) - np.searchsorted(trace.functions_ns, starts_ns)).sum())
    if begun * usual_prices(trace).function_us > THE_PROFILERS * spans.total_us:
        return {"no_effect": "the profiler may take most of its time for the short functions of Python in it"}
    return {"effect": Effect(dropped(spans), kind=REPLACED)}


def _is_most_of(models: Rows, spans: Rows) -> bool:
    """Return whether these functions' time is most of the models' (modules that are in no other one), and in it."""
    return spans.total_us >= MOST_OF_A_MODEL * models.total_us and lies_in(spans, models)


def _holds(spans: Rows, models: Rows) -> bool:
    """Return whether most of the models' time is in these functions, which are in no model: they are the program, and no place
    in it.
    """
    inside_us = _inside_us(models, spans)
    much = inside_us >= MUCH_OF_A_FUNCTION * spans.total_us
    return much and inside_us >= MOST_OF_A_MODEL * models.total_us and not lies_in(spans, models)


def _begun_in(rows: Rows, spans: Rows) -> Rows:
    """Return the rows that begin inside these spans, on their threads."""
    is_in = np.zeros(len(rows), bool)
    unions = {track: merged(one.start_ns + 1, one.end_ns) for (track,), one in spans.by(spans.track)}
    for track, union in unions.items():
        here = np.flatnonzero(rows.track == track)
        is_in[here] = each_within_ns(rows.start_ns[here], rows.start_ns[here] + 1, union) > 0
    return rows.where(is_in)


def _of_c(name: str) -> str:
    """Return what a function of C is called, without the object that it is of; empty for one of Python."""
    return f"{name.split(' object at ')[0]}" if name.startswith("<built-in ") else ""


def _names(file: str, calls: list[Candidate], window: tuple[np.ndarray, np.ndarray]) -> str:
    """Return a file's functions, the longest first: `torch/serialization.py: save`."""
    if file.startswith("<built-in "):
        return f"{file.rstrip('>').split()[2]}()"
    times_us: dict[str, float] = defaultdict(float)
    for one in calls:
        times_us[one.name.partition("): ")[2]] += cpu_us_of(one.spans, window)
    names = sorted(times_us, key=lambda name: (-times_us[name], name))
    more = f" and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
    return f"{file}: {', '.join(names[:MOST_NAMES])}{more}"


def _together(trace: Trace, parts: list[Rows]) -> Rows:
    """Return spans of the other loading together, in order, none in another."""
    at, track, start_ns, end_ns = (
        np.concatenate([getattr(one, column) for one in parts]) for column in ("at", "track", "start_ns", "end_ns")
    )
    order = np.lexsort((-end_ns, start_ns, track))
    kept, reached, before = [], 0, -1
    for n in order.tolist():
        if track[n] != before or start_ns[n] >= reached:
            kept.append(n)
            before, reached = int(track[n]), int(end_ns[n])
    places = np.array(sorted(kept, key=lambda n: int(start_ns[n])), np.int64)
    return Rows(parts[0].slices, at[places], track=track[places], start_ns=start_ns[places], end_ns=end_ns[places])


def _is_all_of_a_step(trace: Trace, steps: Rows, spans: Rows) -> bool:
    """Return whether these calls are all of half of the steps or more, or each goes from one step to another and takes as long as
    either: they are the steps' own function, though others of its calls began before the recording, or steps begin elsewhere.
    """
    steps = steps.where(steps.end_ns > steps.start_ns)
    starts_ns, steps_us = trace.steps.start_ns, trace.steps.duration_us
    first, last = np.searchsorted(starts_ns, spans.start_ns, "right") - 1, np.searchsorted(starts_ns, spans.end_ns) - 1
    if bool(np.all((first < last) & (spans.duration_us >= ALL_OF_A_STEP * np.maximum(steps_us[first], steps_us[last])))):
        return True
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
    "the Python functions above the ops (with_stack=True): one that spans most of the step",
    "This is the time of the function and of everything that it calls. Little of this time goes into matrix products or the "
    "backward pass.",
    "Look inside this function first: work that it does for each row or element can often be done for all of them by one op, or "
    "only once, or ahead of time in a DataLoader's workers.",
)
def _own_function(trace: Trace, facts: Facts) -> Seen | None:
    return own_function(trace, trace, facts) if bool(np.any(trace.slices.kind == Kind.PYTHON)) else None


@finding(
    "library-function",
    "one function of a library takes much of a step",
    "the Python functions below the program's own functions (with_stack=True): a wide one",
    "The program calls this library function. Little of its time goes into matrix products or into the program's own code.",
    "Call the function less often, once ahead of time, or for a whole batch; or look for a function that does the same on whole "
    "tensors.",
)
def _library_function(trace: Trace, facts: Facts) -> Seen | None:
    return library_function(trace, trace, facts) if bool(np.any(trace.slices.kind == Kind.PYTHON)) else None
