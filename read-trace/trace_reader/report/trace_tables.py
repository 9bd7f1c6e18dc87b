"""The tables of a report on one trace: each is one entry here, with its heading, its columns, and what a row lights up.

To add one: a field of `Facts` (its name is the key in the JSON), and a `Table` in TABLES, where the report is to show it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.place import LOOP, Place, is_named_in
from trace_reader.analysis.replay.plain_run import UNKNOWN
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.collectives import CollectiveFacts, message_bytes
from trace_reader.analysis.trace.counter_facts import DRAM, SM_ACTIVE, short_name
from trace_reader.analysis.trace.critical_path import PathClass
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.gpu_idle import Gap
from trace_reader.analysis.trace.kernel_facts import GemmFacts, KernelFacts
from trace_reader.analysis.trace.memory_facts import AliveFacts, MemoryFacts
from trace_reader.analysis.trace.op_shapes import MEMORY as BY_MEMORY
from trace_reader.analysis.trace.op_shapes import OpShapeFacts
from trace_reader.analysis.trace.own_code import lines_of
from trace_reader.findings.verdict import CLASSES, CPU_WORDS, largest_contributors
from trace_reader.model.rows import Rows
from trace_reader.model.slices import ON_GPU, Kind
from trace_reader.names.devices import peak
from trace_reader.names.range_names import is_loader
from trace_reader.report.document import LABEL_WIDTH, LONGEST_CELL, Column, Style, Table, middle, short
from trace_reader.report.lights import Light, Lights, light_of, place_named, rows_named
from trace_reader.report.timeline import Timeline
from trace_reader.units import about, count, human_bytes, percent, us

MIN_SHARE_IDLE = 0.02  # of the path's window: idle time
WORTH_SHOWING = 0.005  # of the path's window: a class of the path
BRIEF_OP, BRIEF_SHAPES, BRIEF_PLACE = 14, 24, 40  # characters
MOST_PLACES, FIRST_PLACES, LEAST_TOLD = 10, 3, 0.03  # with --all, on the first screen; of a step, that one is told for there
MIN_GAIN = 0.005  # that is not 0%
MOST_THINGS = 2  # of a class of the path
ORIGINS = {
    "op": "launched inside a CPU op",
    "library": "launched outside any op (Triton, a library)",
    "graph": "replayed by a graph launch",
    "carried_over": "launched before the recording began",
    "unknown": "no launch in the trace",
}


class TraceView:
    """What the tables of one trace are made from. `memory`: of which device the memory table is."""

    def __init__(self, facts: Facts, style: Style, memory: MemoryFacts | None = None):
        self.facts, self.style, self.memory = facts, style, memory

    @cached_property
    def labels(self) -> dict[str, str]:
        """The label of each kernel, by its name."""
        return distinct_labels(self.facts.kernels, self.style)

    @cached_property
    def counted(self) -> dict[OpShapeFacts, dict[str, float]]:
        """Of ops by shape that hardware counters say something of: each counter's mean."""
        found: dict[OpShapeFacts, dict[str, float]] = {}
        for counter in self.facts.op_counters:
            found.setdefault(self.facts.op_shapes[counter.row], {})[counter.counter] = counter.mean
        return found

    @cached_property
    def peak_gb_per_s(self) -> float | None:
        return peak(self.facts.device or "", "memory")


def distinct_labels(kernels: Sequence[KernelFacts], style: Style) -> dict[str, str]:
    """Return the label of each kernel, by its name; of several kernels with one label, the later ones are numbered."""
    labels: dict[str, str] = {}
    used: Counter[str] = Counter()
    for k in kernels:
        if k.name not in labels:
            label = label_of(k, style)
            used[label] += 1
            labels[k.name] = label if used[label] == 1 else f"{label} #{used[label]}"
    return labels


def label_of(k: KernelFacts, style: Style) -> str:
    return k.name if style.full else middle(k.decoded.label, LABEL_WIDTH)


def known(value: Any, form: str = "") -> str:
    """Return a number as text; `unknown` for None."""
    return "unknown" if value is None else format(value, form)


def on_gpu(view: TraceView) -> bool:
    return view.facts.has_gpu_work


def without_gpu(view: TraceView) -> bool:
    return not view.facts.has_gpu_work


def each(find: Callable[[Timeline, Any], Light | None]) -> Callable[[Any, dict[int, Timeline], Any], Lights]:
    """Return what a row lights up in each of the traces."""

    def lights(row: Any, timelines: dict[int, Timeline], job: Any) -> Lights:
        found = {number: find(timeline, row) for number, timeline in timelines.items()}
        return {number: light for number, light in found.items() if light is not None}

    return lights


def kernel_light(timeline: Timeline, k: KernelFacts) -> Light | None:
    return rows_named(timeline, k.name, *ON_GPU)


def step_light(timeline: Timeline, step: Any) -> Light | None:
    steps = timeline.trace.steps
    return None if step is None else Light(steps.where(steps.is_named(step.name.__eq__)))


def _class_light(timeline: Timeline, name: str) -> Light | None:
    return Light(path=PathClass[name.upper()]) if name.upper() in PathClass.__members__ else None


def _gemm_light(timeline: Timeline, g: GemmFacts) -> Light | None:
    return Light(timeline.gemms[g.op, (g.batch, g.m, g.n, g.k), g.kernel, g.dtype])


def _work_light(timeline: Timeline, family: Any) -> Light | None:
    names = {k.name for k in timeline.facts.kernels if k.work_kind == family.work_kind}
    linked = timeline.trace.linked
    return Light(linked.where(linked.is_named(names.__contains__)))


def collective_light(timeline: Timeline, row: Any) -> Light | None:
    """Return the calls of a collective of this name, group and size."""
    alike = [
        rows.at
        for said, rows in timeline.collectives
        if (said.name, said.group, message_bytes(said)) == (row.name, row.group, row.bytes)
    ]
    return Light(Rows(timeline.trace.slices, np.sort(np.concatenate(alike)))) if alike else None


def _gap_light(timeline: Timeline, gap: Gap) -> Light | None:
    start_ns = round(gap.start_us * 1000)
    return Light(spans_ns=np.array([[start_ns, start_ns + round(gap.duration_us * 1000)]]))


def _path_title(view: TraceView) -> str:
    facts, path = view.facts, view.facts.critical_path
    assert path is not None
    if path is not facts.recorded_critical_path:
        told = count(max(round(path.window_us / (facts.plain.step_us or path.window_us)), 1), "step")
        return f"Critical path without the profiler, {facts.plain.how}: {us(path.window_us)} in {told}"
    steps = len(facts.steps) - facts.steps_left_out
    first = facts.steps[-steps].name if steps else ""
    return f"Critical path: {us(path.window_us)}" + (f" from {first} on ({steps} of {len(facts.steps)} steps)" if first else "")


def _path_things(name: str, view: TraceView) -> str:
    path = view.facts.critical_path
    assert path is not None
    largest = largest_contributors(path, name)[:MOST_THINGS]
    return ", ".join(f"{what} {about(time_us / path.window_us)}" for what, time_us in largest)


def _share_of(view: TraceView, name: str) -> float:
    assert view.facts.critical_path is not None
    return view.facts.critical_path.classes[name]


def _times_of_gpu(view: TraceView) -> list[tuple[str, float]]:
    times = view.facts.gpu_time
    assert times is not None
    every = {
        "compute": times.compute_us, "communication": times.communication_us,
        "of it exposed": times.exposed_communication_us, "copies": times.copy_us, "of them exposed": times.exposed_copy_us,
        "idle": times.idle_us,
    }  # fmt: skip
    return [(what, time_us) for what, time_us in every.items() if time_us]


def _of_window(view: TraceView) -> float:
    assert view.facts.gpu_time is not None
    return view.facts.gpu_time.window_us


def _grid(k: KernelFacts, view: TraceView) -> str:
    sms = (view.facts.device_properties or {}).get("numSms")
    few = k.grid is not None and isinstance(sms, int) and math.prod(k.grid) < sms
    text = "unknown" if k.grid is None else "x".join(map(str, k.grid))
    text += f", fewer than the {sms} SMs" if few else ""
    return text + (f" ({k.configurations} configurations, this {percent(k.configuration_share)})" if k.configurations > 1 else "")


def _warps(k: KernelFacts, view: TraceView) -> str:
    o = k.occupancy
    return "unknown" if o is None else f"{o.warps}/{o.max_warps} warps, {o.theoretical:.1%}"


def _estimate(k: KernelFacts, view: TraceView) -> str:
    return "not estimated" if k.reported_occupancy_percent is None else f"{k.reported_occupancy_percent:.0f}%"


def _alive(view: TraceView) -> list[AliveFacts]:
    assert view.memory is not None
    before = view.memory.before_bytes
    rows = [*([AliveFacts("before the recording", None, 0, before)] if before else []), *view.memory.alive]
    return sorted(rows, key=lambda alive: -alive.bytes)


def _memory_title(view: TraceView) -> str:
    m = view.memory
    assert m is not None
    where = f" in {m.step}" if m.step else ""
    return f"Memory of {m.device}: peak {human_bytes(m.peak_bytes)}{where}; what was alive at it, by what allocated it"


def _op_of(alive: AliveFacts, view: TraceView) -> str:
    return alive.op or ("none" if alive.blocks else "")


def _op_shapes_title(view: TraceView) -> str:
    per_step = "per step" if view.facts.steps else "in all"
    if not on_gpu(view):
        return f"Ops by shape ({per_step}, without the ops inside)"
    counted = "; DRAM, SM: as counted" if view.counted else ""
    return f"Ops by shape ({per_step}; of peak: of the limit; to gain: up to the usual{counted})"


def _rate(o: OpShapeFacts, view: TraceView) -> str:
    """Return what an op reaches: of what limits it; without a known limit its operations, or its bytes."""
    if o.tflop_per_s is not None and o.limited_by != BY_MEMORY:
        return f"{o.tflop_per_s:.0f} TFLOP/s" if o.tflop_per_s >= 10 else f"{o.tflop_per_s * 1000:.0f} GFLOP/s"
    return "unknown" if o.gb_per_s is None else f"{o.gb_per_s:.0f} GB/s" if o.gb_per_s >= 10 else f"{o.gb_per_s:.1f} GB/s"


def _counter(head: str, names: tuple[str, ...]) -> Column:
    """Return the first of these counters that was sampled, in percent: of an op by shape whose work fills samples alone."""

    def name(view: TraceView) -> str | None:
        sampled = {counter.counter for counter in view.facts.op_counters}
        return next((name for name in names if name in sampled), None)

    def cell(o: OpShapeFacts, view: TraceView) -> str:
        share = view.counted.get(o, {}).get(name(view) or "")
        return "unknown" if share is None else percent(share / 100)

    return Column(head, cell, shown=lambda view: name(view) is not None)


def _to_gain(o: OpShapeFacts, view: TraceView) -> float | None:
    return None if o.to_gain_us is None else o.to_gain_us / max(len(view.facts.steps), 1)


def _op_shape_light(timeline: Timeline, o: OpShapeFacts) -> Light | None:
    return Light(timeline.op_shapes[o])


def _peak_of(view: TraceView) -> float:
    assert view.memory is not None
    return view.memory.peak_bytes


def _bandwidth_title(view: TraceView) -> str:
    best = view.peak_gb_per_s
    reached = f"; of peak: of the published {best:.0f} GB/s" if best else ""
    return f"Bandwidth (bytes that a call has to read and write, over its time{reached})"


def _has_launches(view: TraceView) -> bool:
    return on_gpu(view) or any(step.launches for step in view.facts.steps)


def _has_entry_gaps(view: TraceView) -> bool:
    return not view.style.is_short if on_gpu(view) else any(step.entry_gap_us is not None for step in view.facts.steps)


STEPS = Table(
    key="steps",
    title=lambda view: "Steps (GPU columns: the work that the step launched, whenever it ran)" if on_gpu(view) else "Steps",
    rows=lambda view: view.facts.steps,
    columns=(
        Column("step", lambda s, view: s.name),
        Column("CPU", lambda s, view: us(s.cpu_us)),
        Column("waited", lambda s, view: us(s.sync_us), shown=on_gpu),
        Column("GPU busy", lambda s, view: us(None if s.lacks_gpu_work else s.gpu_busy_us), shown=on_gpu),
        Column("GPU/CPU", lambda s, view: known(None if s.lacks_gpu_work else s.gpu_to_cpu, ".2f"), shown=on_gpu),
        Column("kernels", lambda s, view: known(None if s.lacks_gpu_work else s.kernels, "d"), shown=on_gpu),
        Column("ops", lambda s, view: str(s.kernels_or_ops), shown=without_gpu),
        Column("launches", lambda s, view: str(s.launches), shown=_has_launches),
        Column("memcpys", lambda s, view: str(s.memcpys), in_short=False, shown=on_gpu),
        Column("memsets", lambda s, view: str(s.memsets), in_short=False, shown=on_gpu),
        Column("queries", lambda s, view: str(s.occupancy_queries), in_short=False, shown=on_gpu),
        Column("entry gap", lambda s, view: us(s.entry_gap_us), shown=_has_entry_gaps),
    ),
    light=each(step_light),
    short_rows=4,
    least=2,
    empty="no step in the trace",
)
PATH = Table(
    key="critical_path",
    title=_path_title,
    rows=lambda view: [name for name, share in view.facts.critical_path.classes.items() if share >= WORTH_SHOWING],
    columns=(
        Column("waited for", lambda name, view: CLASSES[name]),
        Column("time", lambda name, view: us(_share_of(view, name) * view.facts.critical_path.window_us)),
        Column("share", lambda name, view: percent(_share_of(view, name))),
        Column("most of it", _path_things),
    ),
    light=each(_class_light),
    short_rows=15,
    least=2,
    shown=lambda view: view.facts.critical_path is not None and on_gpu(view),
)


def _of_all_steps(view: TraceView) -> str:
    """Say that a table adds up several steps."""
    return f" of all {len(view.facts.steps)} steps" if len(view.facts.steps) > 1 else ""


def _calls_of_a_step(view: TraceView) -> str:
    calls = sum(op.calls for op in view.facts.ops)
    return f", {calls / len(view.facts.steps):,.0f} a step" if view.facts.steps else ""


OPS = Table(
    key="ops",
    title=lambda view: f"Ops{_of_all_steps(view)}{_calls_of_a_step(view)} (self: without the ops inside)",
    rows=lambda view: sorted(view.facts.ops, key=lambda op: (-op.self_us, op.name)),
    columns=(
        Column("op", lambda op, view: short(op.name, view.style)),
        Column("calls", lambda op, view: str(op.calls)),
        Column("self", lambda op, view: us(op.self_us)),
        Column("total", lambda op, view: us(op.total_us)),
        Column("threads", lambda op, view: str(op.threads)),
    ),
    light=each(lambda timeline, op: rows_named(timeline, op.name, Kind.OP)),
    short_rows=12,
    shown=without_gpu,
)
KERNELS = Table(
    key="kernels",
    title=lambda view: f"Kernels, copies and memsets{_of_all_steps(view)} (share: of their summed time)",
    rows=lambda view: view.facts.kernels,
    columns=(
        Column("kernel", lambda k, view: view.labels[k.name]),
        Column("family", lambda k, view: k.decoded.library, in_short=False),
        Column("calls", lambda k, view: str(k.calls)),
        Column("total", lambda k, view: us(k.total_us)),
        Column("median", lambda k, view: us(k.median_us)),
        Column("min", lambda k, view: us(k.min_us), in_short=False),
        Column("max", lambda k, view: us(k.max_us), in_short=False),
        Column("share", lambda k, view: percent(k.share)),
        Column("op", lambda k, view: (k.op or "none")[: None if view.style.full or view.style.is_short else LABEL_WIDTH]),
        Column("line", lambda k, view: lines_of(k.lines), shown=lambda view: any(k.lines for k in view.facts.kernels)),
        Column("launch", lambda k, view: k.launch or "unknown", in_short=False),
    ),
    light=each(kernel_light),
    short_rows=8,
    shown=lambda view: on_gpu(view) and not _are_first(view),
    name="kernels",
)
LATER_KERNELS = msgspec.structs.replace(KERNELS, short_rows=None, shown=lambda view: on_gpu(view) and _are_first(view))


def places_table(what: str, rows: Callable[[Any], Sequence[Any]], most: int | None = None) -> Table:
    """Return a row for each annotation or layer. `most`: how many rows a brief report shows; all with --all."""

    def has_backward(view: TraceView) -> bool:
        return any(a.backward_us is not None for a in rows(view))

    def title(view: TraceView) -> str:
        said = "GPU time: of what was launched inside, on the same thread; backward: of its backward pass, which runs later"
        if not on_gpu(view):
            said = "backward: the CPU's time in the ops of its backward pass, which runs later" if has_backward(view) else ""
        return f"{what.capitalize()}s" + (f" ({said})" if said else "")

    return Table(
        key=f"{what}s",
        title=title,
        rows=rows,
        columns=(
            Column(what, lambda a, view: short(a.name, view.style)),
            Column("calls", lambda a, view: str(a.calls)),
            Column("CPU", lambda a, view: "-" if a.total_us is None else us(a.total_us)),
            Column("median", lambda a, view: "-" if a.median_us is None else us(a.median_us)),
            Column("launched", lambda a, view: str(a.launched), shown=on_gpu),
            Column("GPU time", lambda a, view: us(a.gpu_us), shown=on_gpu),
            Column("backward", lambda a, view: us(a.backward_us), shown=has_backward),
        ),
        light=each(lambda timeline, a: place_named(timeline, a.name, a.total_us is None)),
        short_rows=most,
        every=lambda view: most is not None and view.style.everything,
        shown=lambda view: bool(rows(view)),
        name=f"{what}s",
    )


ANNOTATIONS = places_table("annotation", lambda view: view.facts.annotations)
GPU_TIME = Table(
    key="timeline",
    title="The GPU's time in the path's window (exposed: while nothing is computed)",
    rows=_times_of_gpu,
    columns=(
        Column("", lambda item, view: item[0]),
        Column("time", lambda item, view: us(item[1])),
        Column("share", lambda item, view: percent(item[1] / _of_window(view))),
    ),
    shown=lambda view: view.facts.gpu_time is not None,
    name="the GPU's time",
)
ORIGIN = Table(
    key="gpu_time_by_origin_us",
    title="Where the GPU's time comes from",
    rows=lambda view: [(name, n) for name, n in view.facts.gpu_events_by_origin.items() if n],
    columns=(
        Column("origin", lambda item, view: item[0]),
        Column("events", lambda item, view: str(item[1])),
        Column("time", lambda item, view: us(view.facts.gpu_time_by_origin_us[item[0]])),
        Column(
            "share",
            lambda item, view: percent(
                view.facts.gpu_time_by_origin_us[item[0]] / total
                if (total := sum(view.facts.gpu_time_by_origin_us.values()))
                else None
            ),
        ),
        Column("", lambda item, view: ORIGINS[item[0]]),
    ),
    shown=on_gpu,
    name="origins",
)
IDLE = Table(
    key="idle",
    title=lambda view: (
        f"Idle time of the GPU in the path's window: {us(view.facts.idle.total_us)}, by cause, and its largest gaps"
    ),
    rows=lambda view: view.facts.idle.gaps,
    columns=(
        Column("gap", lambda gap, view: us(gap.duration_us)),
        Column("after", lambda gap, view: gap.before),
        Column("before", lambda gap, view: gap.after),
        Column("cause", lambda gap, view: CPU_WORDS.get(gap.cause, gap.cause)),
    ),
    light=each(_gap_light),
    shown=lambda view: bool(
        view.facts.idle
        and view.facts.critical_path
        and view.facts.idle.total_us > MIN_SHARE_IDLE * view.facts.critical_path.window_us
    ),
    name="the GPU's idle time",
)
FAMILIES = Table(
    key="families",
    title="GPU time by kind of work",
    rows=lambda view: view.facts.work_kinds,
    columns=(
        Column("kind", lambda f, view: f.work_kind),
        Column("calls", lambda f, view: str(f.calls)),
        Column("time", lambda f, view: us(f.total_us)),
        Column("share", lambda f, view: percent(f.share)),
    ),
    light=each(_work_light),
    shown=on_gpu,
    name="kinds of work",
)
FOOTPRINTS = Table(
    key="footprints",
    title="Footprints (occupancy: theoretical, of the warps an SM holds)",
    rows=lambda view: [k for k in view.facts.kernels if k.registers_per_thread is not None],
    columns=(
        Column("kernel", lambda k, view: view.labels[k.name]),
        Column("regs/thread", lambda k, view: str(k.registers_per_thread)),
        Column("shared B", lambda k, view: known(k.shared_memory_bytes)),
        Column("grid", _grid),
        Column("block", lambda k, view: "unknown" if k.block is None else "x".join(map(str, k.block))),
        Column("blocks/SM", lambda k, view: known(k.occupancy and k.occupancy.blocks)),
        Column("occupancy", _warps),
        Column("limited by", lambda k, view: known(k.occupancy and k.occupancy.limited_by)),
        Column("profiler's estimate", _estimate),
    ),
    light=each(kernel_light),
    empty="not in the trace",
    shown=on_gpu,
    name="footprints and occupancy",
)
COLLECTIVES = Table(
    key="collectives",
    title="Collectives (bus bandwidth: of the median call, in which it may wait for others, and of the fastest)",
    rows=lambda view: view.facts.collectives,
    columns=(
        Column("collective", lambda c, view: c.name),
        Column("group", lambda c, view: c.group),
        Column("ranks", lambda c, view: known(c.group_size)),
        Column("MB", lambda c, view: megabytes(c)),
        Column("calls", lambda c, view: str(c.calls)),
        Column("total", lambda c, view: us(c.total_us)),
        Column("median", lambda c, view: us(c.median_us)),
        Column("min", lambda c, view: us(c.min_us)),
        Column("bus GB/s", lambda c, view: known(c.bus_gb_per_s, ".1f")),
        Column("best", lambda c, view: known(c.best_bus_gb_per_s, ".1f")),
    ),
    light=each(collective_light),
    shown=lambda view: bool(view.facts.collectives),
    name="collectives",
)


def megabytes(row: CollectiveFacts | Any) -> str:
    """Return the size of a collective's message."""
    return "unknown" if row.bytes is None else f"{row.bytes / 1e6:.2f}"


MEMORY = Table(  # one for each device
    key="memory",
    title=_memory_title,
    rows=_alive,
    columns=(
        Column("annotation", lambda alive, view: alive.annotation or "none"),
        Column("op", _op_of),
        Column("blocks", lambda alive, view: str(alive.blocks or "")),
        Column("bytes", lambda alive, view: human_bytes(alive.bytes)),
        Column("share", lambda alive, view: percent(alive.bytes / _peak_of(view))),
    ),
    shown=lambda view: bool(view.facts.memory),
    name="memory",
)


def _one_gpu(view: TraceView) -> bool:
    return len({c.device for c in view.facts.counters}) <= 1


def _counters_title(view: TraceView) -> str:
    of = f" of GPU {view.facts.counters[0].device}" if _one_gpu(view) else ""
    window = "the recorded steps" if view.facts.steps else "the time of the GPU's work"
    return f"Hardware counters{of} (means by time, in {window}; GPU busy: while it works)"


def _counted(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"


COUNTERS = Table(
    key="counters",
    title=_counters_title,
    rows=lambda view: view.facts.counters,
    columns=(
        Column("GPU", lambda c, view: str(c.device), shown=lambda view: not _one_gpu(view)),
        Column("counter", lambda c, view: short_name(c.name)),
        Column("samples", lambda c, view: str(c.samples)),
        Column("each", lambda c, view: us(c.interval_us)),
        Column("mean", lambda c, view: _counted(c.mean)),
        Column("GPU busy", lambda c, view: _counted(c.mean_busy)),
        Column("lowest", lambda c, view: _counted(c.low)),
        Column("highest", lambda c, view: _counted(c.high)),
    ),
    short_rows=6,
    shown=lambda view: bool(view.facts.counters),
)
KERNEL_COUNTERS = Table(
    key="kernel_counters",
    title="Hardware counters by kernel (of samples that a kernel fills alone)",
    rows=lambda view: view.facts.kernel_counters,
    columns=(
        Column("GPU", lambda k, view: str(k.device), shown=lambda view: not _one_gpu(view)),
        Column("kernel", lambda k, view: view.labels[k.kernel]),
        Column("counter", lambda k, view: short_name(k.counter)),
        Column("samples", lambda k, view: str(k.samples)),
        Column("mean", lambda k, view: _counted(k.mean)),
    ),
    light=each(lambda timeline, k: rows_named(timeline, k.kernel, *ON_GPU)),
    short_rows=6,
    shown=lambda view: bool(view.facts.kernel_counters),
)
BANDWIDTH = Table(
    key="bandwidth",
    title=_bandwidth_title,
    rows=lambda view: [k for k in view.facts.kernels if k.gb_per_s is not None],
    columns=(
        Column("kernel", lambda k, view: view.labels[k.name]),
        Column("op", lambda k, view: k.op or "unknown"),
        Column("calls", lambda k, view: str(k.calls)),
        Column("MB", lambda k, view: f"{(k.moved_bytes or 0) / 1e6:.1f}"),
        Column("median", lambda k, view: us(k.median_us)),
        Column("GB/s", lambda k, view: f"{k.gb_per_s:.0f}"),
        Column(
            "of peak",
            lambda k, view: percent((k.gb_per_s or 0) / (view.peak_gb_per_s or 1)),
            shown=lambda view: bool(view.peak_gb_per_s),
        ),
    ),
    light=each(kernel_light),
    shown=lambda view: any(k.gb_per_s is not None for k in view.facts.kernels),
    name="bandwidth",
)
GEMMS = Table(
    key="gemms",
    title="GEMMs ([m, k] @ [k, n]; of peak: of the published dense TFLOP/s, where the kernel's name tells the dtype)",
    rows=lambda view: view.facts.gemms,
    columns=(
        Column("op", lambda g, view: g.op),
        Column("batch", lambda g, view: str(g.batch)),
        Column("m", lambda g, view: str(g.m)),
        Column("n", lambda g, view: str(g.n)),
        Column("k", lambda g, view: str(g.k)),
        Column("calls", lambda g, view: str(g.calls)),
        Column("median", lambda g, view: us(g.median_us)),
        Column("GFLOP", lambda g, view: f"{g.flop / 1e9:.1f}"),
        Column("TFLOP/s", lambda g, view: f"{g.tflop_per_s:.0f}"),
        Column("of peak", lambda g, view: percent(g.peak_share)),
        Column("kernel", lambda g, view: short(g.kernel, view.style)),
    ),
    light=each(_gemm_light),
    shown=lambda view: bool(view.facts.gemms),
    name="GEMMs",
)


def _are_first(view: TraceView) -> bool:
    """Return whether the ops by shape stand among what is told first: where the GPU limits the run, or there is none."""
    return bool(view.facts.op_shapes) and view.style.is_short and view.facts.verdict in ("gpu-bound", "cpu-only")


OP_SHAPES = Table(
    key="op_shapes",
    title=_op_shapes_title,
    rows=lambda view: view.facts.op_shapes,
    columns=(
        Column("op", lambda o, view: middle(o.op.removeprefix("aten::"), BRIEF_OP if view.style.is_short else LABEL_WIDTH)),
        Column("inputs", lambda o, view: middle(o.shapes or "unknown", BRIEF_SHAPES if view.style.is_short else LABEL_WIDTH * 2)),
        Column("calls", lambda o, view: str(o.calls), in_short=False),
        Column("time", lambda o, view: us(o.per_step_us)),
        Column("rate", _rate, shown=lambda view: not (on_gpu(view) and view.style.is_short)),
        Column("limit", lambda o, view: o.limited_by or "unknown", shown=on_gpu),
        Column("of peak", lambda o, view: percent(o.peak_share), shown=on_gpu),
        Column("to gain", lambda o, view: us(_to_gain(o, view)), shown=on_gpu),
        _counter("DRAM", DRAM),
        _counter("SM", SM_ACTIVE),
    ),
    light=each(_op_shape_light),
    shown=lambda view: bool(view.facts.op_shapes) and not _are_first(view),
    name="ops by shape",
)
FIRST_OP_SHAPES = msgspec.structs.replace(OP_SHAPES, short_rows=6, shown=_are_first)


def saved(gain: Gain) -> str:
    """Return the share of a step that is saved, in words."""
    low, high = f"{gain.low:.0%}", f"{gain.high:.0%}"
    if gain.low < MIN_GAIN <= gain.high:
        return f"up to {high}"
    return high if low == high else f"{low} to {high}"


def _place_light(timeline: Timeline, place: Place) -> Light | None:
    spans = next((one.spans for one in timeline.reading.places if one.place == place), None)
    return None if spans is None else light_of(timeline, spans)


def places_line(facts: Facts) -> str:
    """Return one line for the first screen: the places that save most, without those of which a finding speaks (they are the
    `other` ones then); empty where there is none.
    """
    seen = " ".join(finding.seen for finding in facts.findings if not finding.is_worthless)
    every = told = [one for one in facts.places if (one.gone.low + one.gone.high) / 2 >= LEAST_TOLD]
    slugs = {finding.slug for finding in facts.findings}
    told = [one for one in told if not (is_loader(one.name) and "input-bound" in slugs)]
    told = [one for one in told if one.kind == LOOP or not is_named_in(one.name, seen)]
    words = "; ".join(f"{place_name(one, BRIEF_PLACE)} {saved(one.gone)}" for one in told[:FIRST_PLACES])
    places = "places" if told == every else "other places"
    return f"{places}, and what a step saves without each: {words}" if words else ""


def place_names(place: Place) -> list[str]:
    """Return all names by which reports call a place."""
    return [place_name(place, longest) for longest in (BRIEF_PLACE, LONGEST_CELL, 10**6)]


def place_name(place: Place, longest: int = LONGEST_CELL) -> str:
    """Return what a place is called: its name; of a loop how many rounds it has, and their ops."""
    if place.kind != LOOP:
        return middle(place.name, longest)
    name, kinds = f"{place.rounds} x ({place.name})", len(set(place.ops))
    if len(name) > longest and kinds > 1:  # whole names, as `show` takes them
        name = f"{place.rounds} x ({place.name.split(', ')[0]} and {kinds - 1} more)"
    return middle(name, longest)


def _places_title(view: TraceView) -> str:
    of = " without the profiler" * (view.facts.plain.how != UNKNOWN)
    floor = ", if its GPU work is at the floor" * _has_floors(view)
    mfu = "; MFU: of its GPU time, what its products take at the device's peak" * _has_mfu(view)
    return f"Places (what is saved of a step{of} if each is gone{floor}{', if a loop runs once' * _has_loops(view)}{mfu})"


def _has_floors(view: TraceView) -> bool:
    return any(place.floor for place in view.facts.places)


def _has_mfu(view: TraceView) -> bool:
    return any(place.mfu is not None for place in view.facts.places)


def _has_loops(view: TraceView) -> bool:
    return any(place.once for place in view.facts.places)


PLACES = Table(
    key="places",
    title=_places_title,
    rows=lambda view: view.facts.places,
    columns=(
        Column("place", lambda p, view: place_name(p)),
        Column("kind", lambda p, view: p.kind),
        Column("calls", lambda p, view: f"{p.calls:g}" if p.calls < 10 else f"{p.calls:.0f}"),
        Column("inputs", lambda p, view: p.shapes or "-"),
        Column("CPU", lambda p, view: us(p.cpu_us)),
        Column("GPU", lambda p, view: us(p.gpu_us), shown=on_gpu),
        Column("MFU", lambda p, view: "-" if p.mfu is None else about(p.mfu), shown=_has_mfu),
        Column("gone", lambda p, view: saved(p.gone)),
        Column("at the floor", lambda p, view: saved(p.floor) if p.floor else "-", shown=_has_floors),
        Column("once", lambda p, view: saved(p.once) if p.once else "-", shown=_has_loops),
    ),
    light=each(_place_light),
    rows_of_all=MOST_PLACES,
    shown=lambda view: bool(view.facts.places),
    name="places",
)
TABLES = (
    STEPS, PATH, PLACES, FIRST_OP_SHAPES, OPS, KERNELS, LATER_KERNELS, COUNTERS, KERNEL_COUNTERS, ANNOTATIONS, GPU_TIME, ORIGIN,
    IDLE, FAMILIES, FOOTPRINTS, COLLECTIVES, MEMORY, BANDWIDTH, GEMMS, OP_SHAPES,
)  # in the order of the report  # fmt: skip
