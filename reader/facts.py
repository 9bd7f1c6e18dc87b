"""What a trace says, as plain numbers: frozen dataclasses with the unit in each name. Unknown is None, never 0.

Rules (reader/findings.py) and renderers (reader/render.py) see these facts and no events.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, zip_longest
import re
import statistics
from typing import Any

from reader.bandwidth import copied_bytes, is_device_copy, pointwise_bytes
from reader.decode import Event
from reader.kernel_names import KernelName, decode_name
from reader.link import (
    STEP,
    TOLERANCE_US,
    Activity,
    LinkedTrace,
    Origin,
    busy_us,
    innermost,
    is_launch,
    is_synchronizing,
    union_us,
)
from reader.occupancy import Occupancy, occupancy

SMALL_SHARED_BYTES = 49152  # Kineto estimates the occupancy against this limit, so a kernel above it reads 0
DEEPEST = 100  # levels of a dispatch tree; what lies deeper is counted
OUTLIER = 1.2  # a call that takes this many times the kernel's median
GRAPH_HASH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
# Ops that change only a tensor's shape, strides or flags: they launch nothing on a GPU.
VIEW_OPS = frozenset(
    [
        "aten::t",
        "aten::transpose",
        "aten::view",
        "aten::reshape",
        "aten::as_strided",
        "aten::_unsafe_view",
        "aten::expand",
        "aten::permute",
        "aten::squeeze",
        "aten::unsqueeze",
        "aten::slice",
        "aten::select",
        "aten::detach",
        "aten::alias",
        "aten::_reshape_alias",
        "aten::resolve_conj",
        "aten::resolve_neg",
        "aten::narrow",
        "aten::chunk",
        "aten::split",
        "aten::unbind",
        "aten::flatten",
        "aten::unflatten",
        "aten::T",
        "aten::mT",
    ]
)
# Ops that leave all work to an op inside them, or find nothing to do.
IDLE_OPS = frozenset(["aten::empty", "aten::empty_like", "aten::empty_strided", "aten::resize_", "aten::to", "aten::lift_fresh"])
GEMM_OPS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
# Ops that work themselves though there can be an op inside them that converts a Python number.
POINTWISE_OPS = frozenset(["aten::masked_fill_", *(f"aten::{op}{_}" for op in ("add", "sub", "mul", "div") for _ in ("", "_"))])
SOFTMAX_FOR_MASKED_ROWS = "aten::_safe_softmax"


@dataclass(frozen=True)
class StepFacts:
    """One recorded step. GPU numbers are those of the work that this step launched, whenever it ran."""

    name: str
    cpu_us: float
    sync_us: float  # waited in synchronizing calls
    gpu_busy_us: float | None
    gpu_to_cpu: float | None  # gpu_busy_us over cpu_us - sync_us
    kernels: int
    memcpys: int
    memsets: int
    launches: int
    occupancy_queries: int
    entry_gap_us: float | None  # from the annotation's start to the first op inside it
    work: tuple[tuple[str, int], ...]  # what it launched, label and count; without a GPU: its leaf ops

    @property
    def kernels_or_ops(self) -> int:
        """How many kernels it launched; without a GPU: how many leaf ops it ran."""
        return sum(n for _, n in self.work) if self.gpu_busy_us is None else self.kernels


@dataclass(frozen=True)
class KernelFacts:
    """All calls of one kernel, copy or memset, without work that was carried over from before the recording."""

    name: str
    decoded: KernelName
    calls: int
    total_us: float
    median_us: float
    min_us: float
    max_us: float
    share: float  # of the summed time of kernels, copies and memsets
    op: str | None
    launch: str | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    occupancy: Occupancy | None
    reported_occupancy_percent: float | None  # None: not estimated
    bytes: int | None
    moved_bytes: int | None  # median of what a call has to read and write, where that is known of all calls
    gb_per_s: float | None  # median over the calls; 10^9 bytes
    outlier_steps: tuple[str, ...]
    graph: bool


@dataclass(frozen=True)
class GemmFacts:
    """The GEMMs of one shape: `m`, `n`, `k` as in [m, k] @ [k, n], `batch` of them at once."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    calls: int
    kernel: str
    median_us: float
    flop: int
    tflop_per_s: float


@dataclass(frozen=True)
class OpFacts:
    """All calls of one CPU op. `gpu_us` is the summed time of what it launched itself, `launched` how many."""

    name: str
    calls: int
    total_us: float
    gpu_us: float
    launched: int


@dataclass(frozen=True)
class CallFacts:
    """All calls of one function of the runtime or driver."""

    name: str
    calls: int
    total_us: float
    max_us: float


@dataclass(frozen=True)
class CopyFacts:
    """Copies from device to device. `path` is the outermost aten op and the one that made the copy, joined by " > "."""

    path: str
    calls: int
    bytes: int
    share: float  # of the summed time of kernels, copies and memsets


@dataclass(frozen=True)
class AttentionOpFacts:
    """An op that launched a fused attention kernel: medians of its calls. `own_us` is spent in no op or call inside it."""

    name: str
    calls: int
    median_us: float
    own_us: float


@dataclass(frozen=True)
class Facts:
    """Everything that the reader tells of one trace."""

    trace: str
    lesson: dict[str, str]
    device: str | None
    device_properties: dict[str, Any] | None
    versions: dict[str, str]
    events: int
    skipped: dict[str, int]
    first_bad: str | None
    truncated: bool
    window_us: float
    gpu_busy_us: float | None
    gpu_busy_share: float | None
    gpu_to_cpu: float | None
    regime: str
    kernels_total: int
    memcpys_total: int
    memsets_total: int
    unlinked: int
    gpu_time_by_origin_us: dict[str, float]
    gpu_events_by_origin: dict[str, int]
    steps: tuple[StepFacts, ...]
    kernels: tuple[KernelFacts, ...]
    gemms: tuple[GemmFacts, ...]
    ops: tuple[OpFacts, ...]
    calls: tuple[CallFacts, ...]
    final_sync_us: float | None  # the longest synchronizing call after the last step
    annotation_gpu_us: dict[str, float]  # annotations that are repeated on the GPU's lane
    profiler_buffers: int
    profiler_buffer_us: float
    graphs: dict[str, int]  # compiled graphs by hash: calls
    bias_copies: int
    hidden_copies: tuple[CopyFacts, ...]
    safe_softmax: OpFacts | None  # with all that was launched inside it
    attention_ops: tuple[AttentionOpFacts, ...]
    crossing: dict[str, int]  # GPU slices that cross another one on their stream, by kernel
    zero_timestamps: int
    findings: tuple["Finding", ...] = field(default=())

    @property
    def middle_step(self) -> StepFacts | None:
        """The recorded step in the middle: past the cold ones."""
        return self.steps[len(self.steps) // 2] if self.steps else None


@dataclass(frozen=True)
class Finding:
    """A pattern that the trace shows: what was seen here, what it usually means, what to look at or try next."""

    slug: str
    seen: str
    means: str
    next: str


def gather(trace: LinkedTrace) -> Facts:
    """The facts of a linked trace, still without findings."""
    header = trace.decoded.header
    listed = header.get("deviceProperties")
    properties = [p for p in listed if isinstance(p, dict)] if isinstance(listed, list) else []
    used = {a.event.track[0] for a in trace.activities}
    device_properties = {p["id"]: p for p in properties if isinstance(p.get("id"), int)}
    shown = [p for number, p in device_properties.items() if number in used] or properties
    lesson: dict[str, Any] = header["lesson"] if isinstance(header.get("lesson"), dict) else {}
    names = sorted({str(p["name"]) for p in shown if "name" in p})
    kinds = Counter(a.event.kind for a in trace.activities)
    origins = Counter(a.origin for a in trace.activities)
    steps = _steps(trace)
    window_us, gpu_busy = _window(trace)
    share = None if gpu_busy is None or window_us <= 0 else gpu_busy / window_us / len(used)
    gpu_to_cpu, regime = _verdict(steps, share, bool(trace.activities))
    linked = [a for a in trace.activities if a.origin is not Origin.CARRIED_OVER]
    ops = _ops(trace, linked)
    last_us = trace.steps[-1].end_us if trace.steps else None
    final_syncs = [c.duration_us for c in trace.calls if is_synchronizing(c.name) and last_us is not None and c.end_us > last_us]
    buffers = [o for o in trace.overheads if o.name == "Activity Buffer Request"]
    gpu_names: dict[str, float] = defaultdict(float)
    for annotation in trace.gpu_annotations:
        gpu_names[annotation.name] += annotation.duration_us
    return Facts(
        trace=trace.decoded.path,
        lesson={str(k): str(v) for k, v in lesson.items()},
        device=(None if trace.activities else lesson.get("device")) or ", ".join(names) or None,
        device_properties=shown[0] if shown else None,
        versions=_versions(header),
        events=trace.decoded.total,
        skipped=trace.decoded.skipped,
        first_bad=trace.decoded.first_bad,
        truncated=bool(header.get("truncated")),
        window_us=window_us,
        gpu_busy_us=gpu_busy,
        gpu_busy_share=share,
        gpu_to_cpu=gpu_to_cpu,
        regime=regime,
        kernels_total=kinds["kernel"],
        memcpys_total=kinds["memcpy"],
        memsets_total=kinds["memset"],
        unlinked=sum(1 for a in trace.activities if a.call is None),
        gpu_time_by_origin_us={
            str(origin): sum((a.event.duration_us for a in trace.activities if a.origin is origin), 0.0) for origin in Origin
        },
        gpu_events_by_origin={str(origin): origins[origin] for origin in Origin},
        steps=steps,
        kernels=_kernels(trace, linked, device_properties),
        gemms=_gemms(linked),
        ops=ops,
        calls=_calls(trace),
        final_sync_us=max(final_syncs, default=None),
        annotation_gpu_us=dict(gpu_names),
        profiler_buffers=len(buffers),
        profiler_buffer_us=sum((b.duration_us for b in buffers), 0.0),
        graphs={m[1]: op.calls for op in sorted(ops, key=lambda op: op.name) if (m := GRAPH_HASH.search(op.name))},
        bias_copies=_bias_copies(linked),
        hidden_copies=_hidden_copies(trace, linked),
        safe_softmax=_with_all_inside(SOFTMAX_FOR_MASKED_ROWS, trace, linked),
        attention_ops=_attention_ops(trace, linked),
        crossing=_crossing(trace.activities),
        zero_timestamps=trace.decoded.zero_timestamps,
    )


def _versions(header: dict[str, Any]) -> dict[str, str]:
    versions = {}
    if isinstance(header.get("lesson"), dict) and "versions" in header["lesson"]:
        versions["torch"] = str(header["lesson"]["versions"]).split(",")[0].removeprefix("torch ")
    for key, name in (
        ("cuda_runtime_version", "CUDA runtime"),
        ("cuda_driver_version", "CUDA driver"),
        ("hip_runtime_version", "HIP runtime"),
        ("hip_driver_version", "HIP driver"),
    ):
        if isinstance(number := header.get(key), int):  # 13000 is 13.0
            versions[name] = f"{number // 1000}.{number % 1000 // 10}" if name.startswith("CUDA") else str(number)
    if isinstance(number := header.get("cupti_version"), int):
        versions["CUPTI"] = str(number)
    return versions


def _steps(trace: LinkedTrace) -> tuple[StepFacts, ...]:
    by_step: list[list[Activity]] = [[] for _ in trace.steps]
    for activity in trace.activities:
        if activity.step is not None:
            by_step[activity.step].append(activity)
    launches: list[set[int]] = [set() for _ in trace.steps]
    queries = [0] * len(trace.steps)
    waits: list[list[tuple[float, float]]] = [[] for _ in trace.steps]
    for call in trace.calls:
        launching, waiting, asking = _duties(call.name)
        if not (launching or waiting or asking) or (index := trace.step_of(call.start_us)) is None:
            continue
        if launching:
            launches[index].add(id(call) if call.correlation is None else call.correlation)
        if waiting:
            waits[index].append((call.start_us, min(call.end_us, trace.steps[index].end_us)))
        queries[index] += asking
    gaps = _entry_gaps(trace)
    leaves = [()] * len(trace.steps) if trace.activities else _leaf_ops(trace)
    facts = []
    for index, step in enumerate(trace.steps):
        work = by_step[index]
        kinds = Counter(a.event.kind for a in work)
        sync_us = union_us(waits[index])
        busy = busy_us(a.event for a in work) if trace.activities else None
        own_us = step.duration_us - sync_us
        facts.append(
            StepFacts(
                name=step.name,
                cpu_us=step.duration_us,
                sync_us=sync_us,
                gpu_busy_us=busy,
                gpu_to_cpu=busy / own_us if busy is not None and own_us > 0 else None,
                kernels=kinds["kernel"],
                memcpys=kinds["memcpy"],
                memsets=kinds["memset"],
                launches=len(launches[index]),
                occupancy_queries=queries[index],
                entry_gap_us=gaps[index],
                work=_counted(decode_name(a.event.name).label for a in work) if trace.activities else leaves[index],
            )
        )
    return tuple(facts)


@lru_cache(maxsize=1024)
def _duties(call: str) -> tuple[bool, bool, bool]:
    """Whether a function of the runtime or driver launches kernels, waits for the GPU, or asks how many blocks fit."""
    return is_launch(call), is_synchronizing(call), "Occupancy" in call


def _entry_gaps(trace: LinkedTrace) -> list[float | None]:
    """For each step: from the start of its first annotation to the first op that starts inside that annotation."""
    first: list[Event | None] = [None] * len(trace.steps)
    for annotation in trace.annotations:
        index = trace.step_of(annotation.start_us)
        if index is not None and first[index] is None and annotation.track == trace.steps[index].track:
            first[index] = annotation
    starts = [op.start_us for op in trace.ops]
    gaps: list[float | None] = [None] * len(trace.steps)
    for index, outer in enumerate(first):
        if outer is None:
            continue
        for position in range(bisect_left(starts, outer.start_us), len(starts)):
            op = trace.ops[position]
            if op.start_us >= outer.end_us:
                break
            if op.track == outer.track:
                gaps[index] = round(op.start_us - outer.start_us, 3)
                break
    return gaps


def _leaf_ops(trace: LinkedTrace) -> list[tuple[tuple[str, int], ...]]:
    """The ops of each step that do the work: no views, and no op whose work another op inside it does."""
    leaves: list[list[str]] = [[] for _ in trace.steps]
    working = [op for op in trace.ops if op.name.startswith("aten::") and op.name not in VIEW_OPS | IDLE_OPS]
    for track in _by_track(working):
        counted_until = float("-inf")
        for op, following in zip_longest(track, track[1:]):
            index = trace.step_of(op.start_us)
            if index is None or op.start_us < counted_until:
                continue
            if op.name in POINTWISE_OPS:
                counted_until = op.end_us
            elif op.name not in GEMM_OPS and following is not None and following.start_us < op.end_us:
                continue
            leaves[index].append(op.name)
    return [_counted(names) for names in leaves]


def _by_track(events: Iterable[Event]) -> Iterable[list[Event]]:
    """The events of each thread or stream, in the order of their starts, outer ones first."""
    tracks: dict[tuple, list[Event]] = defaultdict(list)
    for event in events:
        tracks[event.track].append(event)
    for track in tracks.values():
        yield sorted(track, key=lambda event: (event.start_us, -event.duration_us))


def _counted(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(names).items())


def _window(trace: LinkedTrace) -> tuple[float, float | None]:
    gpu = [a.event for a in trace.activities]
    if trace.steps:
        start = trace.steps[0].start_us
        end = max([max(s.end_us for s in trace.steps), *(e.end_us for e in gpu)])
    else:
        events = gpu or trace.decoded.events
        start, end = min(e.start_us for e in events), max(e.end_us for e in events)
    return end - start, busy_us(gpu, start, end) if gpu else None


def _verdict(steps: tuple[StepFacts, ...], busy_share: float | None, has_gpu: bool) -> tuple[float | None, str]:
    """The median over the steps of GPU busy time to CPU time, and the bottleneck by it; without steps, by the busy share."""
    if not has_gpu:
        return None, "cpu-only"
    ratios = [s.gpu_to_cpu for s in steps if s.gpu_to_cpu is not None]
    if ratios:
        ratio = statistics.median(ratios)
        return ratio, "overhead-bound" if ratio < 0.5 else "gpu-bound" if ratio > 1 else "mixed"
    share = busy_share or 0.0
    return None, "overhead-bound" if share < 0.4 else "gpu-bound" if share > 0.7 else "mixed"


def _kernels(trace: LinkedTrace, linked: list[Activity], devices: dict[Any, dict]) -> tuple[KernelFacts, ...]:
    groups: dict[tuple[str, str], list[Activity]] = defaultdict(list)
    for activity in linked:
        groups[activity.event.kind, activity.event.name].append(activity)
    summed_us = sum(a.event.duration_us for a in linked)
    kernels_of = Counter(id(a.op) for a in linked if a.op and a.event.kind == "kernel")
    facts = []
    for (_, name), group in groups.items():
        durations = [a.event.duration_us for a in group]
        median = statistics.median(durations)
        event = group[0].event
        footprint = event.footprint
        estimated = footprint is not None and (footprint.shared_memory_bytes or 0) <= SMALL_SHARED_BYTES
        moved_bytes, gb_per_s = _bandwidth(group, kernels_of)
        outliers = {
            trace.steps[a.step].name: None
            for a in group
            if a.step is not None and len(group) >= 3 and a.event.duration_us > OUTLIER * median
        }
        facts.append(
            KernelFacts(
                name=name,
                decoded=decode_name(name),
                calls=len(group),
                total_us=sum(durations),
                median_us=median,
                min_us=min(durations),
                max_us=max(durations),
                share=sum(durations) / summed_us if summed_us else 0.0,
                op=_most(a.op.name for a in group if a.op),
                launch=_most(a.call.name for a in group if a.call),
                registers_per_thread=footprint.registers_per_thread if footprint else None,
                shared_memory_bytes=footprint.shared_memory_bytes if footprint else None,
                grid=footprint.grid if footprint else None,
                block=footprint.block if footprint else None,
                occupancy=occupancy(footprint, devices.get(event.track[0])),
                reported_occupancy_percent=(footprint.reported_occupancy_percent or None) if footprint and estimated else None,
                bytes=event.bytes,
                moved_bytes=moved_bytes,
                gb_per_s=gb_per_s,
                outlier_steps=tuple(outliers),
                graph=any(a.origin is Origin.GRAPH for a in group),
            )
        )
    return tuple(sorted(facts, key=lambda k: (-k.total_us, k.name)))


def _bandwidth(group: list[Activity], kernels_of: Counter[int]) -> tuple[int | None, float | None]:
    """Medians over a kernel's calls: bytes to move, and GB/s. None unless they are known of every call.

    `kernels_of` tells how many kernels an op launched: what an op moves is one kernel's only if it has no other.
    """
    moved = []
    for activity in group:
        event, op = activity.event, activity.op
        if event.kind == "memcpy":
            size = copied_bytes(event.name, event.bytes)
        else:
            size = pointwise_bytes(op.name, op.inputs) if op and kernels_of[id(op)] == 1 else None
        if size is None or not event.duration_us:
            return None, None
        moved.append((size, size / event.duration_us / 1e3))
    return round(statistics.median(size for size, _ in moved)), statistics.median(rate for _, rate in moved)


def _gemms(linked: list[Activity]) -> tuple[GemmFacts, ...]:
    groups: dict[tuple, list[Activity]] = defaultdict(list)
    for activity in linked:
        op = activity.op
        if (
            op is not None
            and op.inputs
            and isinstance(op.inputs.dims, tuple)
            and op.name in GEMM_OPS
            and activity.event.kind == "kernel"
        ):
            shape = _gemm_shape(op.inputs.dims)
            if shape and decode_name(activity.event.name).is_gemm:
                groups[op.name, shape, activity.event.name].append(activity)
    facts = []
    for (op_name, (batch, m, n, k), kernel), group in groups.items():
        median = statistics.median(a.event.duration_us for a in group)
        flop = 2 * batch * m * n * k
        rate = flop / median / 1e6 if median else 0.0
        facts.append(GemmFacts(op_name, batch, m, n, k, len(group), kernel, median, flop, rate))
    return tuple(sorted(facts, key=lambda g: (-g.median_us * g.calls, g.op, g.m, g.n, g.k)))


def _gemm_shape(dims: tuple) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) from the shapes of the two matrices, the last two inputs of rank 2 or 3."""
    matrices = [d for d in dims if isinstance(d, tuple) and len(d) in (2, 3) and all(isinstance(n, int) for n in d)]
    if len(matrices) < 2:
        return None
    a, b = matrices[-2:]
    if len(a) != len(b) or a[-1] != b[-2] or not all(0 < n < 2**63 for n in a + b):
        return None
    return (a[0] if len(a) == 3 else 1), a[-2], b[-1], a[-1]


def _ops(trace: LinkedTrace, linked: list[Activity]) -> tuple[OpFacts, ...]:
    durations: dict[str, list[float]] = defaultdict(list)
    for op in trace.ops:
        durations[op.name].append(op.duration_us)
    gpu: dict[str, list[float]] = defaultdict(list)
    for activity in linked:
        if activity.op:
            gpu[activity.op.name].append(activity.event.duration_us)
    facts = [OpFacts(name, len(d), sum(d), sum(gpu[name]), len(gpu[name])) for name, d in durations.items()]
    return tuple(sorted(facts, key=lambda op: (-op.gpu_us, -op.total_us, op.name)))


def _calls(trace: LinkedTrace) -> tuple[CallFacts, ...]:
    durations: dict[str, list[float]] = defaultdict(list)
    for call in trace.calls:
        durations[call.name].append(call.duration_us)
    facts = [CallFacts(name, len(d), sum(d), max(d)) for name, d in durations.items()]
    return tuple(sorted(facts, key=lambda c: (-c.total_us, c.name)))


def _bias_copies(linked: list[Activity]) -> int:
    """Device-to-device copies whose op is an addmm that launches a GEMM, too."""
    gemm_calls = {id(a.op) for a in linked if a.op and decode_name(a.event.name).is_gemm}
    return sum(1 for a in linked if _is_device_copy(a) and a.op and "addmm" in a.op.name and id(a.op) in gemm_calls)


def _hidden_copies(trace: LinkedTrace, linked: list[Activity]) -> tuple[CopyFacts, ...]:
    copies = [a for a in linked if _is_device_copy(a)]
    if not copies:
        return ()
    outer_of = innermost(_outermost(op for op in trace.ops if op.name.startswith("aten::")), (a.call for a in copies if a.call))
    groups: dict[str, list[Event]] = defaultdict(list)
    for copy in copies:
        outer = outer_of.get(id(copy.call))
        path = dict.fromkeys(op.name for op in (outer, copy.op) if op)
        groups[" > ".join(path) or "no op"].append(copy.event)
    summed_us = sum(a.event.duration_us for a in linked)
    return tuple(
        CopyFacts(path, len(group), sum(e.bytes or 0 for e in group), sum(e.duration_us for e in group) / (summed_us or 1.0))
        for path, group in sorted(groups.items())
    )


def _outermost(events: Iterable[Event]) -> Iterable[Event]:
    """The events that lie in no other one of their track."""
    for track in _by_track(events):
        reached = float("-inf")
        for event in track:
            if event.start_us >= reached:
                reached = event.end_us
                yield event


def _with_all_inside(name: str, trace: LinkedTrace, linked: list[Activity]) -> OpFacts | None:
    """The op `name` with what was launched by it and by all ops inside it; None if it was not called."""
    spans = [op for op in trace.ops if op.name == name]
    if not spans:
        return None
    inside = innermost(spans, {id(a.call): a.call for a in linked if a.call}.values())
    launched = [a.event for a in linked if a.call and id(a.call) in inside]
    gpu_us = sum(event.duration_us for event in launched)
    return OpFacts(name, len(spans), sum(op.duration_us for op in spans), gpu_us, len(launched))


def _attention_ops(trace: LinkedTrace, linked: list[Activity]) -> tuple[AttentionOpFacts, ...]:
    calls: dict[str, dict[int, Event]] = defaultdict(dict)
    for activity in linked:
        if activity.op and decode_name(activity.event.name).is_fused_attention:
            calls[activity.op.name][id(activity.op)] = activity.op
    return tuple(
        AttentionOpFacts(
            name,
            len(ops),
            statistics.median(op.duration_us for op in ops.values()),
            statistics.median(_own_us(op, trace) for op in ops.values()),
        )
        for name, ops in sorted(calls.items())
    )


def _own_us(op: Event, trace: LinkedTrace) -> float:
    """The time of an op that it spends in no op and no runtime call inside it."""
    inside = []
    for events in (trace.ops, trace.calls):
        first = bisect_left(events, op.start_us, key=lambda event: event.start_us)
        for event in islice(events, first, None):
            if event.start_us >= op.end_us:
                break
            if event is not op and event.track == op.track:
                inside.append((event.start_us, min(event.end_us, op.end_us)))
    return round(op.duration_us - union_us(inside), 3)


def _is_device_copy(activity: Activity) -> bool:
    return activity.event.kind == "memcpy" and is_device_copy(activity.event.name)


def _crossing(activities: list[Activity]) -> dict[str, int]:
    """GPU slices that start inside another one of their stream and end after it: Perfetto cannot nest them."""
    open_until: dict[tuple, list[float]] = defaultdict(list)
    crossing: Counter[str] = Counter()
    for activity in activities:  # in the order of their starts
        event = activity.event
        ends = open_until[event.track]
        while ends and ends[-1] <= event.start_us + TOLERANCE_US:
            ends.pop()
        if ends and event.end_us > ends[-1] + TOLERANCE_US:
            crossing[event.name] += 1
            ends[-1] = event.end_us
        else:
            ends.append(event.end_us)
    return dict(crossing)


def _most(names: Iterable[str]) -> str | None:
    """The most frequent name; of equally frequent ones, the first of the alphabet."""
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name)) if counts else None


@dataclass(frozen=True)
class Node:
    """A slice of a step's dispatch tree. `launched` holds the labels and durations (us) of what a call launched."""

    name: str
    kind: str
    duration_us: float
    launched: tuple[tuple[str, float], ...]
    children: tuple["Node", ...]


def chain(trace: LinkedTrace, number: int | None = None) -> Node:
    """The dispatch tree of ProfilerStep#`number`; by default that of the middle recorded step.

    Raises LookupError, naming the steps that there are, if the trace does not have it.
    """
    by_number = {int(m[1]): step for step in trace.steps if (m := STEP.match(step.name))}
    if not by_number:
        raise LookupError(f"{trace.decoded.path}: the trace has no ProfilerStep")
    if number is None:
        step = trace.steps[len(trace.steps) // 2]
    elif number in by_number:
        step = by_number[number]
    else:
        raise LookupError(
            f"{trace.decoded.path}: the trace has no ProfilerStep#{number}; it has #{min(by_number)} to #{max(by_number)}"
        )
    launched: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for activity in trace.activities:
        if activity.call:
            launched[id(activity.call)].append((decode_name(activity.event.name).label, activity.event.duration_us))
    inside = [
        e
        for events in (trace.annotations, trace.ops, trace.calls)
        for e in events
        if step.start_us <= e.start_us < step.end_us and e.track == step.track
    ]
    spans = [step, *(e for e in inside if e.kind != "call")]
    parent = innermost_parents(spans)
    parent |= innermost(spans, (e for e in inside if e.kind == "call"))
    children: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(inside, key=lambda e: (e.start_us, -e.duration_us)):
        children[id(parent.get(id(event), step))].append(event)

    def node(event: Event, depth: int = 1) -> Node:
        inner = children[id(event)]
        if depth < DEEPEST or not inner:
            nodes = tuple(node(child, depth + 1) for child in inner)
        else:
            nodes = (Node(f"and {_slices_below(event)} slices inside", "left out", sum(e.duration_us for e in inner), (), ()),)
        return Node(event.name, event.kind, event.duration_us, tuple(launched[id(event)]), nodes)

    def _slices_below(event: Event) -> int:
        count, waiting = 0, [event]
        while waiting:
            inner = children[id(waiting.pop())]
            count += len(inner)
            waiting += inner
        return count

    return node(step)


def innermost_parents(spans: list[Event]) -> dict[int, Event]:
    """For each span, by its `id()`: the innermost other span on its track that is open when it starts."""
    found = {}
    open_spans: list[Event] = []
    for span in sorted(spans, key=lambda e: (e.start_us, -e.duration_us)):
        while open_spans and open_spans[-1].end_us <= span.start_us:
            open_spans.pop()
        if open_spans:
            found[id(span)] = open_spans[-1]
        open_spans.append(span)
    return found
