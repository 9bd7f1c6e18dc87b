"""The bottleneck, and what makes up most of it."""

import numpy as np
from trace_reader.analysis.cpu_time import is_loader
from trace_reader.analysis.critical_path import Class, CriticalPath
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.verdict import what_limits
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_launch
from trace_reader.units import about, count, us

WORTH_TELLING = 0.05  # of the path
GPU_CLASSES = (Class.COMPUTE, Class.COMMUNICATION, Class.COPY)
SHARE_OF = {"gpu-bound": "compute", "copy-bound": "copy", "latency-bound": "latency"}  # of the path's classes
OTHER_THAN_LAUNCHING = {  # what to do where most of the CPU's part is this
    "call": "Most of it is calls that launch nothing, such as copies that wait: see the other findings.",
    "memory": "Most of it is managing memory: see allocation-in-step.",
    "loading": "Most of it is loading code, which happens once: record after warm-up.",
    "compilation": "Most of it is compiling: record after warm-up; TORCH_LOGS=recompiles says what is compiled again.",
    "annotation": "Most of it is Python inside annotations, outside ops: a profiler of Python (with_stack, py-spy) says where.",
    "profiler": "Most of it is the profiler's own: record less (no stacks, no shapes), or fewer steps.",
}


@finding(
    "no-gpu-events",
    "the table's CUDA total is 0, though the program used a GPU",
    "the GPU's lanes: there are none",
    "The calls that launch work were recorded, the work was not: CUPTI, which records it, did not start. Another profiler "
    "may be attached (nsys, ncu, compute-sanitizer), the container may lack the permission, or WSL its support.",
    "Detach the other profiler or grant the permission, and record again.",
)
def _no_gpu_events(trace: Trace, facts: Facts) -> Seen | None:
    launches = sum(s.launches for s in facts.steps) or sum(c.calls for c in facts.calls if "Launch" in c.name)
    if launches and facts.regime == "cpu-only":
        seen = f"{count(launches, 'launch', 'launches')} and no GPU event"
        return Seen(seen, trace.calls.where(trace.calls.is_named(is_launch)))
    return None


@finding(
    "overhead-bound",
    "the table's CPU total is many times its CUDA total",
    "the GPU's lane: mostly white between short kernels",
    "The CPU brings work more slowly than the GPU executes it: the GPU waits.",
    "Give each launch more to do (larger batch), launch less (fuse, torch.compile), or replay launches (CUDA graphs).",
)
def _overhead_bound(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or facts.regime != "overhead-bound":
        return None
    most, next = path.cpu[0].name if path.cpu else "", ""
    if most in OTHER_THAN_LAUNCHING:
        next = OTHER_THAN_LAUNCHING[most]
    elif facts.gpu_time_by_origin_us["graph"] > 0.5 * sum(facts.gpu_time_by_origin_us.values()):
        next = "Its launches are replayed from a graph already: look at what the CPU does between the replays."
    elif any(op.name.startswith("Torch-Compiled Region") for op in facts.ops):
        next = "It is compiled already: give each launch more to do (larger batch), or replay it as a CUDA graph."
    return Seen(what_limits(path), _cpu_work(trace, path), next, path.classes["cpu"])


def _limits(trace: Trace, facts: Facts, regime: str, *classes: Class) -> Seen | None:
    """The verdict `regime`: its share of the path (the two largest of a mixed one), and the GPU events of `classes` on it."""
    path = facts.critical_path
    if path is None or facts.regime != regime:
        return None
    found = path.pieces.row[np.isin(path.pieces.kind, classes)]
    share = sum(sorted(path.classes.values())[-2:]) if regime == "mixed" else path.classes[SHARE_OF[regime]]
    return Seen(what_limits(path), Rows(trace.slices, np.sort(found[found >= 0])), share=share)


def _cpu_work(trace: Trace, path: CriticalPath) -> Rows:
    """What the CPU did in the path's window: ops and calls that are in no other."""
    rows = Rows(trace.slices, outermost(trace.slices, trace.slices.of(Kind.OP, Kind.CALL)))
    return rows.where((rows.start_ns >= path.start_ns) & (rows.end_ns <= path.end_ns))


@finding(
    "gpu-bound",
    "the CPU's total and the CUDA total are alike, because the CPU waits in a synchronize",
    "the GPU's lane: no white between kernels",
    "The GPU is the bottleneck: the run would end earlier if its kernels were faster. CPU time beside them is hidden.",
    "Look at the longest kernels.",
)
def _gpu_bound(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "gpu-bound", Class.COMPUTE)


@finding(
    "copy-bound",
    "the GPU's lane is mostly copies",
    "the memcpy rows, and the lane of the stream that they are on",
    "The run waits for copies: nothing is computed meanwhile.",
    "Copy less, from pinned memory, and on a stream of its own while something is computed.",
)
def _copy_bound(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "copy-bound", Class.COPY)


@finding(
    "latency-bound",
    "many short kernels with a little white before each",
    "from a launch on the CPU's lane to its kernel, and between two kernels",
    "Most of the time is the way from a launch to its kernel, or from one kernel to the next: neither side works in it.",
    "Launch less and larger: fuse, torch.compile, CUDA graphs; wait for the GPU less often.",
)
def _latency_bound(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "latency-bound", *GPU_CLASSES)


@finding(
    "mixed",
    "neither lane is full: the GPU waits in one part of a step, the CPU in another",
    "the largest gaps of the GPU, and what the CPU does in them",
    "No single thing limits the run: of the critical path, none has half.",
    "Take the larger of the two that are named; the other one is the most that is left after it.",
)
def _mixed(trace: Trace, facts: Facts) -> Seen | None:
    return _limits(trace, facts, "mixed", *GPU_CLASSES)


@finding(
    "input-bound",
    "the GPU's lane is white while a DataLoader is asked for the next batch",
    "the annotation enumerate(DataLoader)...__next__, on the lane of the steps",
    "The GPU waits for its input.",
    "More workers (num_workers), cheaper transforms, or more of them done ahead.",
)
def _input_bound(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or path.input_us < WORTH_TELLING * path.window_us:
        return None
    seen = f"waiting for a DataLoader is {about(path.input_us / path.window_us)} of the critical path, {us(path.input_us)}"
    waits = trace.annotations.where(trace.annotations.is_named(is_loader) & (trace.annotations.end_ns > path.start_ns))
    alone = any("_SingleProcessDataLoaderIter" in name for name in waits.names)
    next = "It loads in the program's own process, while nothing else happens: give it num_workers." if alone else ""
    return Seen(seen, waits, next, path.input_us / path.window_us)
