"""The recorded steps: what each took, waited for and launched."""

from collections.abc import Callable

import msgspec
import numpy as np
from trace_reader.analysis.trace.cpu_time import is_compiling
from trace_reader.link.intervals import union_ns, unions_ns
from trace_reader.link.launches import devices_of
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows, distinct, grouped
from trace_reader.model.slices import NO_CORRELATION, ON_GPU, Kind
from trace_reader.names.call_names import asks_occupancy, is_launch, is_synchronizing
from trace_reader.names.kernel_names import decode_name
from trace_reader.names.op_names import CONVERTING_OPS, GEMM_OPS, IDLE_OPS, VIEW_OPS

NO_LIBRARY = ("autograd::", "torch::", "c10d::", "prims::")  # no library of ops
Counts = tuple[tuple[str, int], ...]  # labels, with how often each


class StepFacts(msgspec.Struct, frozen=True):
    """One recorded step. GPU numbers are those of the work that this step launched, whenever it ran."""

    name: str
    cpu_us: float
    sync_us: float  # waited for the GPU: in synchronizing calls, blocking copies, and launches into a full queue
    gpu_busy_us: float | None
    gpu_to_cpu: float | None  # gpu_busy_us over cpu_us - sync_us
    kernels: int
    memcpys: int
    memsets: int
    launches: int
    syncs: int  # synchronizing calls, which wait for the GPU
    occupancy_queries: int
    entry_gap_us: float | None  # from the annotation's start to the first op inside it
    work: Counts  # what it launched; without a GPU: its leaf ops
    is_mixed: bool = False  # whether what it launched cannot be told from what another process did

    @property
    def kernels_or_ops(self) -> int:
        """How many kernels it launched; without a GPU: how many leaf ops it ran."""
        return sum(n for _, n in self.work) if self.gpu_busy_us is None else self.kernels

    @property
    def lacks_gpu_work(self) -> bool:
        """Whether the trace lacks the GPU work of its launches, or has another process' in it: it is then unknown, and not 0."""
        return self.is_mixed or (self.gpu_busy_us is not None and self.launches > 0 and not self.work)


def step_facts(trace: Trace) -> tuple[StepFacts, ...]:
    """Return a row for each recorded step, in order."""
    n = len(trace.steps)
    if not n:
        return ()
    has_gpu = len(trace.work) > 0
    launched = trace.work.where(trace.work.step >= 0)
    calls = _inside_steps(trace, trace.calls)
    kernels, memcpys, memsets = (_each_step(launched.where(launched.kind == kind).step, n) for kind in ON_GPU)
    syncs = _each_step(calls.where(calls.is_named(is_synchronizing)).step, n)
    queries = _each_step(calls.where(calls.is_named(asks_occupancy)).step, n)
    columns = zip(
        trace.steps.names,
        trace.steps.duration_us.tolist(),
        _waited_us(trace),
        _busy_us(launched, n) if has_gpu else [None] * n,
        kernels,
        memcpys,
        memsets,
        _launches(calls, n),
        syncs,
        queries,
        _entry_gaps_us(trace),
        _launched(launched, n) if has_gpu else _leaf_ops(trace),
        [trace.mixed_processes > 0] * n,
        strict=True,
    )
    facts = []
    for name, cpu_us, sync_us, busy_us, *rest in columns:
        ratio = busy_us / (cpu_us - sync_us) if busy_us is not None and cpu_us > sync_us else None
        facts.append(StepFacts(name, cpu_us, sync_us, busy_us, ratio, *rest))
    return tuple(facts)


def _inside_steps(trace: Trace, rows: Rows) -> Rows:
    """Return those that start inside a step, with its index as the column `step`."""
    step = trace.step_at(rows.start_ns)
    inside = (step >= 0) & trace.has_steps[rows.track]
    return Rows(trace.slices, rows.at[inside], step=step[inside])


def _each_step(step: np.ndarray, steps: int) -> list[int]:
    return np.bincount(step, minlength=steps).tolist()


def busy_us(work: Rows, start_ns: int, end_ns: int) -> float:
    """Return how long a GPU was busy between two moments: the union of the work on each device, summed over devices."""
    total_ns = 0
    for _, of_device in work.by(devices_of(work)):
        total_ns += union_ns(np.clip(of_device.start_ns, start_ns, end_ns), np.clip(of_device.end_ns, start_ns, end_ns))
    return total_ns / 1000


def _busy_us(launched: Rows, steps: int) -> list[float]:
    """For each step: the busy time of each device with what the step launched, summed over devices."""
    device = distinct(devices_of(launched))
    n = max(len(device.values), 1)
    busy_ns = unions_ns(launched.start_ns, launched.end_ns, launched.step * n + device.which, steps * n)
    return (busy_ns.reshape(steps, n).sum(axis=1) / 1000).tolist()


def step_period_us(trace: Trace) -> float | None:
    """Return the time from one step's end to the next one's, on average, without `pauses`; of one step, from its start on. None
    where there is no step, or times are such that none passes.
    """
    ends_ns = trace.step_ends_ns
    if len(ends_ns) == 1:
        return int(ends_ns[0] - trace.steps.start_ns[0]) / 1000 or None
    paused_ns = sum(pause.end_ns - pause.start_ns for pause in trace.pauses)
    period_us = (int(ends_ns[-1] - ends_ns[0]) - paused_ns) / 1000 / (len(ends_ns) - 1) if len(ends_ns) else 0.0
    return period_us if period_us > 0 else None


def step_times_us(trace: Trace) -> list[float]:
    """Return each step's time from the end of the one before (of the first from its start) to its own, without `pauses`."""
    times_ns = np.diff(np.append(trace.steps.start_ns[:1], trace.step_ends_ns))
    for pause in trace.pauses:
        times_ns[pause.step] -= pause.end_ns - pause.start_ns
    return (times_ns / 1000).tolist()


def _waited_us(trace: Trace) -> list[float]:
    """For each step: the time in calls that waited for the GPU, up to the step's end. What a free takes is its own work."""
    calls = _inside_steps(trace, trace.waits.where(trace.waits.reason != Reason.FREE))
    end_ns = np.minimum(calls.end_ns, trace.steps.end_ns[calls.step])
    return (unions_ns(calls.start_ns, end_ns, calls.step, len(trace.steps)) / 1000).tolist()


def _launches(calls: Rows, steps: int) -> list[int]:
    """For each step: how many launches. A runtime call and the driver call inside it share an id: they are one."""
    launches = calls.where(calls.is_named(is_launch))
    unknown_ids = NO_CORRELATION + np.arange(len(launches))  # each without an id counts for itself
    ids = np.where(launches.correlation == NO_CORRELATION, unknown_ids, launches.correlation)
    order, starts = grouped(launches.step, ids)
    return _each_step(launches.step[order[starts]], steps)


def _entry_gaps_us(trace: Trace) -> list[float | None]:
    """For each step: how long its entry gap is."""
    gaps: list[float | None] = [None] * len(trace.steps)
    for step, start_ns, end_ns in zip(*(gap.tolist() for gap in entry_gaps(trace)), strict=True):
        gaps[step] = (end_ns - start_ns) / 1000
    return gaps


def entry_gaps(trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each step that has one, from the start of its first annotation to the first op that starts inside that annotation: which
    step, start and end (ns).
    """
    annotations = _inside_steps(trace, trace.annotations)
    annotations = annotations.where(annotations.track == trace.steps.track[annotations.step])
    outer = annotations.where(distinct(annotations.step).first)
    found = []
    for (track,), group in outer.by(outer.track):
        starts = trace.ops.start_ns[trace.ops.track == track]
        place = np.searchsorted(starts, group.start_ns)
        first_ns = np.append(starts, np.iinfo(np.int64).max)[place]
        inside = first_ns < group.end_ns
        found.append(np.stack([group.step[inside], group.start_ns[inside], first_ns[inside]]))
    step, start_ns, end_ns = np.concatenate(found, axis=1) if found else np.zeros((3, 0), np.int64)
    order = np.argsort(step, kind="stable")
    return step[order], start_ns[order], end_ns[order]


def _launched(launched: Rows, steps: int) -> list[Counts]:
    """For each step: labels of what it launched."""
    return _counted(launched.step, launched.name, lambda name: decode_name(launched.slices.names[name]).label, steps)


def _leaf_ops(trace: Trace) -> list[Counts]:
    """For each step: the ops that do the work: no views, and no op whose work another op inside it does; and the kernels in C++
    that torch.compile made (in the trace where TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE is set). What compiling runs is none.
    """
    idle = VIEW_OPS | IDLE_OPS

    def works(name: str) -> bool:
        return ("::" in name and not name.startswith(NO_LIBRARY) and name not in idle) or "cpp_fused" in name

    working = _inside_steps(trace, trace.ops.where(trace.ops.is_named(works)))
    compiling = trace.slices.are_named(Kind.OP, is_compiling)
    if compiling.any():
        working = working.where(innermost(trace.slices, trace.parent, working.at, compiling) < 0)
    found = [np.empty(0, np.int64)]
    for _, ops in working.by(working.track):
        converts = ops.is_named(CONVERTING_OPS.__contains__)
        done_until = np.maximum.accumulate(np.where(converts, ops.end_ns, np.iinfo(np.int64).min))
        counted_already = np.append(False, ops.start_ns[1:] < done_until[:-1])
        holds_another = np.append(ops.start_ns[1:] < ops.end_ns[:-1], False)
        leaf = converts | ops.is_named(GEMM_OPS.__contains__) | ~holds_another
        found.append(ops.at[leaf & ~counted_already])
    leaves = _inside_steps(trace, Rows(trace.slices, np.concatenate(found)))
    return _counted(leaves.step, leaves.name, trace.slices.names.__getitem__, len(trace.steps))


def _counted(step: np.ndarray, name: np.ndarray, label_of: Callable[[int], str], steps: int) -> list[Counts]:
    """For each step: the labels of these names with their counts, in the order in which they come first."""
    labels: dict[str, int] = {}
    numbers = {number: labels.setdefault(label_of(number), len(labels)) for number in distinct(name).values.tolist()}
    label = np.array([numbers[number] for number in name.tolist()], np.int64)
    order, starts = grouped(step, label)
    counts, first = np.diff(np.append(starts, len(order))), order[starts]
    counted: list[list[tuple[str, int]]] = [[] for _ in range(steps)]
    texts = list(labels)
    for place in np.argsort(first).tolist():
        counted[step[first[place]]].append((texts[label[first[place]]], int(counts[place])))
    shared: dict[Counts, Counts] = {}  # most steps do the same
    return [shared.setdefault(each, each) for each in map(tuple, counted)]
