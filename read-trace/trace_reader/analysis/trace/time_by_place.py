"""The GPU's time by the place in the program that asked for it: an annotation, a layer, a line of Python.

What the backward pass launches runs later and on another thread. It belongs to the place of the forward op whose node it is:
the two have one sequence number of autograd.
"""

from collections import Counter
import math
import re

import msgspec
import numpy as np
from trace_reader.analysis.trace.critical_path import CriticalPath, PathClass
from trace_reader.analysis.trace.own_code import is_own_caller, is_own_function, lines_of, written_lines
from trace_reader.link.backward import forward_ops
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.launches import Origin
from trace_reader.link.nesting import innermost, innermost_over_time, itself_or_innermost, parents, self_us
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct, grouped, once
from trace_reader.model.slices import ON_CPU, Footprint, Kind, Slices
from trace_reader.names.kernel_names import decode_name

Union = tuple[np.ndarray, np.ndarray]
MODULE = "nn.Module: "  # so torch names the call of a module among the functions of Python
NO_LINE = "no line of Python is known"
MOST_LINES, MIN_SHARE_OF_PATH = 3, 0.05  # of the critical path
BUILT_IN, MIN_SHARE_OF_LINE = "<built-in ", 0.5
NO_OP = "no op"
MOST_FRAMES = 200  # of a stack
DEEPER = "deeper ones;"
_NUMBERED = re.compile(r".*\d$", re.DOTALL)


class PlaceFacts(msgspec.Struct, frozen=True):
    """All calls of one annotation or layer. `gpu_us` and `launched`: the summed time and the number of what was launched inside
    it, on its thread. `backward_us`: the summed GPU time of the backward pass of what was done inside it (in a trace without a
    GPU, the CPU's time in its ops); None where the trace has none. A region of a CUDA graph takes no time on the CPU (None); its
    calls are the replays.
    """

    name: str
    calls: int
    total_us: float | None
    median_us: float | None
    gpu_us: float
    launched: int
    backward_us: float | None


class TimeFacts(msgspec.Struct, frozen=True):
    """A line of Python or an op, and the summed time of the GPU's work that it asked for and of the backward pass of that.

    In a trace without a GPU, the CPU's time in the ops that it called, without the ops inside them. `share`: of all of it.
    """

    name: str
    launched: int
    time_us: float
    backward_us: float
    share: float


class CpuLine(msgspec.Struct, frozen=True):
    """A line of Python, and the share of the critical path in which the CPU is in it; `mostly`: the function of C that has most
    of that, as Python calls it (`<built-in function collect>`), or empty.
    """

    line: str
    share: float
    mostly: str = ""


class AttributedWork(msgspec.Struct, frozen=True, eq=False):
    """For each piece of work: the number of its name, the call that launched it, the slice that asked for it (both rows, -1: not
    known), and its time. Of what a backward pass did, `at` is the forward op whose node it is, where `is_backward` says so.
    `detail`: what a kernel says of itself (a place in the details of the slices, -1: nothing).
    """

    name: np.ndarray
    call: np.ndarray
    at: np.ndarray
    time_us: np.ndarray
    is_backward: np.ndarray
    detail: np.ndarray


def annotation_facts(trace: Trace, asked: AttributedWork | None = None) -> tuple[PlaceFacts, ...]:
    """Return a row for each name of the CPU's annotations but the steps, and of the regions of CUDA graphs, the most GPU time
    first. Takes time by how deep they nest.

    Here and below: `asked` is the work that is told of, where it is not the trace's own.
    """
    found = [*_place_facts(trace, trace.annotations, trace.parent, asked), *(region_facts(trace) if asked is None else ())]
    return tuple(sorted(found, key=lambda a: (-a.gpu_us - (a.backward_us or 0.0), -(a.total_us or 0.0), a.name)))


def layer_facts(trace: Trace, asked: AttributedWork | None = None) -> tuple[PlaceFacts, ...]:
    """Return a row for each layer, in the order in which the layers first run. `asked`: the work to count, if it is not the
    trace's own.

    Layers are the annotations, and the regions of CUDA graphs, whose names end with a number. If there are none, all regions
    count as layers; else the modules do, if the trace was recorded and loaded with stacks. Raises LookupError if the trace has
    none of these.
    """
    layers, parent = trace.annotations.where(trace.annotations.is_named(is_numbered)), trace.parent
    regions = region_facts(trace) if asked is None else ()
    numbered = [region for region in regions if is_numbered(region.name)]
    if regions and not len(layers):
        return tuple(numbered or regions)
    if not len(layers):
        functions = Rows(trace.slices, trace.slices.of(Kind.PYTHON))
        layers = functions.where(functions.is_named(lambda name: name.startswith(MODULE)))
        parent = parents(trace.slices, (*ON_CPU, Kind.PYTHON))
    if not len(layers):
        graph = "; what a CUDA graph replays: --names EAGER.json" if (trace.work.origin == Origin.GRAPH).any() else ""
        why = "no annotation ends with a number (layer 3), and no modules were recorded (with_stack)"
        raise LookupError(f"{trace.path}: no layers: {why}{graph}")
    return (*_place_facts(trace, layers, parent, asked), *numbered)


def region_facts(trace: Trace) -> tuple[PlaceFacts, ...]:
    """Return a row for each region of this trace's CUDA graphs, in the order in which they run first."""
    details, work = trace.slices.details, trace.linked
    region = trace.slices.region[work.at]
    rows = work.where(region >= 0)
    names = np.array([details[number].name for number in region[region >= 0].tolist()], object)
    later = np.array([details[number].is_backward for number in region[region >= 0].tolist()], bool)
    found = []
    for name in dict.fromkeys(names.tolist()):
        now, back = (rows.where((names == name) & (later == when)) for when in (False, True))
        calls = len(distinct(np.append(now.call, back.call)).values)
        found.append(PlaceFacts(name, calls, None, None, now.total_us, len(now), back.total_us if later.any() else None))
    return tuple(found)


def is_numbered(name: str) -> bool:
    """Return whether an annotation ends with a number, as those of layers do."""
    return _NUMBERED.fullmatch(name) is not None


def _place_facts(trace: Trace, places: Rows, parent: np.ndarray, asked: AttributedWork | None) -> list[PlaceFacts]:
    """Return a row for each name of the places (slices of the CPU), in the order in which they come first."""
    slices, asked = trace.slices, asked or attribute_gpu_work(trace)
    is_place = np.zeros(len(slices), bool)
    is_place[places.at] = True
    known, later = np.flatnonzero(asked.call >= 0), np.flatnonzero(asked.is_backward)
    backward = _inside(slices, parent, is_place, asked.at[later], later)
    # What checkpointing computes again is launched inside the layer, in its backward pass: it is counted there alone.
    forward = _inside(slices, parent, is_place, asked.call[known], known)
    forward = forward[~among(forward, backward)]
    gpu_ns, launched = _by_name(slices, asked, forward)
    backward_ns, _ = _by_name(slices, asked, backward)
    found = []
    rows: Rows
    for (name,), rows in sorted(places.by(places.name), key=lambda group: int(group[1].at[0])):
        later_us = int(backward_ns[name]) / 1000 if len(later) else None
        row = PlaceFacts(
            slices.names[name], len(rows), rows.total_us, rows.median_us, int(gpu_ns[name]) / 1000, int(launched[name]), later_us
        )
        found.append(row)
    return found


def _inside(slices: Slices, parent: np.ndarray, is_place: np.ndarray, inner: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return which of the slices `inner` (rows, with an id each) lie in a place of which name: id times the number of names and
    the name, each once.
    """
    start_ns, span = slices.start_ns[inner], parent[inner]
    counted = [np.zeros(0, np.int64)]
    every = np.arange(len(inner))
    while (inside := span >= 0).any():
        every, span = every[inside], span[inside]
        around = is_place[span] & (slices.end_ns[span] > start_ns[every])
        counted.append(ids[every[around]] * len(slices.names) + slices.name[span[around]])
        span = parent[span]
    return once(np.concatenate(counted))


def _by_name(slices: Slices, asked: AttributedWork, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each name: the summed time (ns) of the work that lies inside, and how much there is."""
    sum_ns, number = np.zeros(len(slices.names), np.int64), np.zeros(len(slices.names), np.int64)
    work, names = np.divmod(inside, len(slices.names))
    np.add.at(sum_ns, names, np.rint(asked.time_us[work] * 1000).astype(np.int64))
    np.add.at(number, names, 1)
    return sum_ns, number


def attribute_gpu_work(trace: Trace) -> AttributedWork:
    """Return the GPU's work and what asked for it; without a GPU the ops, each with its own time."""
    if len(trace.linked):
        work, call, time_us, detail = trace.linked, trace.linked.call, trace.linked.duration_us, trace.linked.detail
        at = call.copy()
    else:
        work, call, detail = trace.ops, np.full(len(trace.ops), -1), np.full(len(trace.ops), -1)
        at, time_us = work.at.copy(), self_us(trace.slices, trace.parent, work.at)
    known = np.flatnonzero(at >= 0)
    forward, backward = forward_ops(trace.slices, trace.parent, at[known])
    is_backward = np.zeros(len(work), bool)
    at[known[backward]], is_backward[known[backward]] = forward, True
    return AttributedWork(work.name, call, at, time_us, is_backward, detail)


def path_lines(trace: Trace, path: CriticalPath, stacks: Trace, between_ops: bool = False) -> tuple[CpuLine, ...]:
    """Return the lines of Python, as `line_facts` has them, in which the CPU is where a trace's path waits for it, the most time
    first; those that are worth telling. `stacks`: the same trace, loaded with stacks. `between_ops`: only of what Python itself
    does.
    """
    pieces, shift_ns = path.pieces.where(path.pieces.kind == PathClass.CPU), trace.zero_ns - stacks.zero_ns
    pieces = pieces.where(np.argsort(pieces.start_ns, kind="stable"))
    within: dict[int, Union] = {}
    for track, name in enumerate(stacks.slices.tracks):
        number = trace.slices.tracks.index(name) if name in trace.slices.tracks else -1
        rows = pieces.where((pieces.track == number) & (pieces.track >= 0))
        within[track] = merged(rows.start_ns + shift_ns, rows.end_ns + shift_ns)
    whole_us = float((pieces.end_ns - pieces.start_ns).sum()) / 1000
    # Without the profiler the path's stretches are shorter: each line's by as much as all of them.
    left = float(pieces.length_ns.sum()) / 1000 / path.window_us / whole_us if whole_us else 0.0
    asked = attribute_cpu_time(stacks, within)
    if between_ops:
        own = stacks.slices.kind[asked.at] == Kind.PYTHON
        asked = AttributedWork(*(getattr(asked, name)[own] for name in AttributedWork.__struct_fields__))
    if not len(asked.at):
        return ()
    key, names = _line_of(stacks, asked)
    lines = [
        one for one in _by_key(asked, key, names, NO_LINE) if one.name != NO_LINE and one.time_us * left >= MIN_SHARE_OF_PATH
    ]
    mostly = {names[line]: name for line, name in _in_c(stacks, asked, key).items()}
    return tuple(CpuLine(one.name, one.time_us * left, mostly.get(one.name, "")) for one in lines[:MOST_LINES])


def _in_c(trace: Trace, asked: AttributedWork, key: np.ndarray) -> dict[int, str]:
    """By the key of a line, the function of C that has most of its time."""
    total_us = np.bincount(key[key >= 0], asked.time_us[key >= 0]) if (key >= 0).any() else np.zeros(0)
    in_c = np.flatnonzero((key >= 0) & trace.slices.is_named(asked.at, lambda name: name.startswith(BUILT_IN)))
    inside = Rows(trace.slices, asked.at[in_c], own_us=asked.time_us[in_c], line=key[in_c])
    return {
        line: trace.slices.names[name]
        for (line, name), rows in inside.by(inside.line, inside.name)
        if math.fsum(rows.own_us.tolist()) > MIN_SHARE_OF_LINE * total_us[line]
    }


def attribute_cpu_time(trace: Trace, within: dict[int, Union] | None = None) -> AttributedWork:
    """Return the CPU's time in the steps (without steps: in all) or `within` these stretches of each track, each piece by the
    innermost thing that is open: an op, a call, an annotation, or, where the trace was loaded with stacks, a function of Python.
    Without threads in which one function is open all the time and nothing else happens: they may wait.
    """
    slices = trace.slices
    kinds = (*ON_CPU, Kind.PYTHON) if len(slices.of(Kind.PYTHON)) else ON_CPU
    parent = parents(slices, kinds) if Kind.PYTHON in kinds else trace.parent
    rows = slices.of(*kinds)
    rows = rows[slices.end_ns[rows] > slices.start_ns[rows]]
    steps = merged(trace.steps.start_ns, trace.steps.end_ns)
    own_ns = np.zeros(len(slices), np.int64)
    for track in distinct(slices.track[rows]).values.tolist():
        if len(trace.steps) and not trace.has_steps[track]:
            continue
        times, inside = innermost_over_time(slices, parent, rows[slices.track[rows] == track])
        starts, ends, inside = times[:-1], times[1:], inside[:-1]
        asked = steps if within is None else within[track]
        length = each_within_ns(starts, ends, asked) if within is not None or len(trace.steps) else ends - starts
        if len(set(inside[length > 0].tolist())) == 1 and slices.kind[inside[length > 0][0]] == Kind.PYTHON:
            continue
        np.add.at(own_ns, inside[inside >= 0], length[inside >= 0])
    own_ns[trace.steps.at] = 0
    found = np.flatnonzero(own_ns)
    none = np.full(len(found), -1)
    return AttributedWork(slices.name[found], none, found, own_ns[found] / 1000, none >= 0, none)


def op_facts_of(trace: Trace, asked: AttributedWork) -> tuple[TimeFacts, ...]:
    """Return a row for each op that launched part of the work `asked`, itself or in its backward pass; the op with the most time
    first.
    """
    known = np.flatnonzero(asked.at >= 0)
    is_op = trace.slices.kind == Kind.OP
    row = np.full(len(asked.at), -1)
    row[known] = np.where(is_op[asked.at[known]], asked.at[known], innermost(trace.slices, trace.parent, asked.at[known], is_op))
    return _by_key(asked, np.where(row < 0, -1, trace.slices.name[row]), trace.slices.names, NO_OP)


def line_facts(trace: Trace, asked: AttributedWork | None = None) -> tuple[TimeFacts, ...]:
    """Return a row for each line of Python that is not torch's own or the standard library's, the most time first.

    It is the line from which such code called what asked for the work; for what a function does itself, and where the trace does
    not say which line called (torch before 2.15), the function, with the line at which it begins; of a compiled kernel the lines
    that Inductor wrote, where it did. Raises LookupError: the trace was recorded without stacks.
    """
    asked = asked or attribute_gpu_work(trace)
    return _by_key(asked, *_line_of(trace, asked), NO_LINE)


def _line_of(trace: Trace, asked: AttributedWork) -> tuple[np.ndarray, list[str]]:
    """For each piece of work the number of its line in a list of names, or -1. Raises LookupError as `line_facts`."""
    details = trace.slices.details
    stacks = [detail.stacks if isinstance(detail, Footprint) else () for detail in details]
    if not any(stacks) or (asked.detail < 0).all():
        return _line_that_called(trace, asked)
    lines = [lines_of(written_lines(one)) for one in stacks]
    is_written = np.array([*map(bool, lines), False])[asked.detail]  # the last for no detail
    key, names = np.full(len(asked.at), -1), list[str]()
    if len(trace.slices.of(Kind.PYTHON)):
        key, names = _line_that_called(trace, asked)
    every = list(dict.fromkeys([*names, *lines]))
    number = {name: place for place, name in enumerate(every)}
    of_name, of_line = (np.array([*(number[text] for text in texts), -1]) for texts in (names, lines))
    return np.where(is_written, of_line[asked.detail], of_name[key]), every


def _line_that_called(trace: Trace, asked: AttributedWork) -> tuple[np.ndarray, list[str]]:
    """As `_line_of`, by the functions of Python."""
    slices = trace.slices
    python = Rows(slices, slices.of(Kind.PYTHON))
    if not len(python):
        how = "record with stacks (with_stack=True, a lesson's --with_stack); --by annotation needs none"
        raise LookupError(f"{trace.path}: no functions of Python: {how}")
    callers = [detail if isinstance(detail, str) else "" for detail in slices.details]
    says_line = len(callers) > 0 and bool((python.detail >= 0).any())
    if says_line:
        own_caller = np.array([is_own_caller(text) for text in callers])
        chosen = python.where((python.detail >= 0) & own_caller[python.detail])
    else:
        chosen = python.where(python.is_named(is_own_function))
    is_chosen = np.zeros(len(slices), bool)
    is_chosen[chosen.at] = True
    known = np.flatnonzero(asked.at >= 0)
    row = np.full(len(asked.at), -1)
    at = asked.at[known]
    parent = parents(slices, (*ON_CPU, Kind.PYTHON))
    row[known] = itself_or_innermost(slices, parent, at, is_chosen)
    if not says_line:
        return np.where(row < 0, -1, slices.name[row]), slices.names
    # What a function does itself is not at the line that called it: what calls nothing that is recorded, and operators (`+=`,
    # `[]`, `@`), which are no calls of Python.
    is_python = slices.kind == Kind.PYTHON
    inner = itself_or_innermost(slices, parent, at, is_python)
    function = np.full(len(row), -1)
    function[known] = np.where((inner >= 0) & slices.is_named(np.maximum(inner, 0), is_own_function), inner, -1)
    key = np.where(function >= 0, len(callers) + slices.name[function], np.where(row < 0, -1, slices.detail[row]))
    return key, [*callers, *slices.names]


def _by_key(asked: AttributedWork, key: np.ndarray, names: list[str], without: str) -> tuple[TimeFacts, ...]:
    """Return a row for each key, a place in `names` or -1, the most time first."""
    total_us, facts = math.fsum(asked.time_us.tolist()), []
    order, starts = grouped(key)
    for places in np.split(order, starts[1:]) if len(order) else []:
        number, later = int(key[places[0]]), asked.is_backward[places]
        now_us, later_us = (math.fsum(asked.time_us[places[later == when]].tolist()) for when in (False, True))
        name, share = without if number < 0 else names[number], (now_us + later_us) / total_us if total_us else 0.0
        facts.append(TimeFacts(name, len(places), now_us, later_us, share))
    return tuple(sorted(facts, key=lambda found: (-found.share, found.name)))


def folded(trace: Trace, asked: AttributedWork | None = None) -> dict[str, int]:
    """Stacks, from the outermost annotation, function or op to the GPU's kernel, with their summed time in ns.

    Frames are joined by `;` as tools for flame graphs read them, 200 at most. Functions of Python are there where the trace was
    loaded with stacks, without torch's own. What a backward pass launched stands at the forward op, below a frame `backward`.
    Without a GPU it is the ops' own time. `asked`: what else it is the time of.
    """
    on_gpu = len(trace.linked) > 0 and asked is None
    slices, asked = trace.slices, asked or attribute_gpu_work(trace)
    parent = parents(slices, (*ON_CPU, Kind.PYTHON)) if len(slices.of(Kind.PYTHON)) else trace.parent
    one = slices.are_named(Kind.PYTHON, is_own_function)
    is_step = np.zeros(len(slices), bool)
    is_step[trace.steps.at] = True
    stacks: dict[int, str] = {-1: ""}

    def stack(row: int) -> str:
        missing = []
        while row not in stacks:
            missing.append(row)
            row = int(parent[row])
        for row in reversed(missing):
            around = stacks[int(parent[row])]
            hidden = is_step[row] or (slices.kind[row] == Kind.PYTHON and not one[row])
            if hidden or around.endswith(DEEPER):
                stacks[row] = around
            elif around.count(";") == MOST_FRAMES:
                stacks[row] = around + DEEPER
            else:
                stacks[row] = f"{around}{_frame(slices.names[slices.name[row]])};"
        return stacks[row]

    summed: Counter[str] = Counter()
    time_ns = np.rint(asked.time_us * 1000).astype(np.int64)
    is_call = slices.kind == Kind.CALL
    for row, work, later, ns in zip(
        asked.at.tolist(), asked.name.tolist(), asked.is_backward.tolist(), time_ns.tolist(), strict=True
    ):
        around = stack(int(parent[row]) if on_gpu and row >= 0 and is_call[row] else row)
        name = slices.names[work]
        leaf = _frame(decode_name(name).label) if on_gpu else _frame(name) if later else ""  # an op is the end of its own stack
        summed[(around + "backward;" * later + leaf).rstrip(";")] += ns
    return {text: ns for text, ns in sorted(summed.items()) if ns > 0 and text}


def _frame(name: str) -> str:
    return " ".join(name.replace(";", ":").split())
