"""Hardware counters, of a trace that samples them: torch 2.15's PerformanceMetricsConfig, and its samples of power and clocks.

A sample says what held from its moment on, until the next one of its series (torch/profiler/_cuspy/trace.py: its time is the
start of what is sampled). Means are weighted by time. A kernel has counters where it fills whole samples alone; of shorter
kernels a sample says only what all that ran meanwhile did together.
"""

import msgspec
import numpy as np
from trace_reader.analysis.trace.op_shapes import op_shapes
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among

SM_ACTIVE = ("SM Active (%)",)
DRAM = ("DRAM BW (%)", "HBM BW (%)")  # the memory's rate: of what the hardware can sustain
DERIVED = "Cycles (Current Kernel)"  # no sample: a kernel's duration, times the clock
LONGEST_GAP = 2  # of a series' usual interval: what should have come before was lost, and no sample holds for longer
FILLED, SHARED = 0.95, 0.05  # of a sample, that a kernel takes, and that others take meanwhile


def short_name(counter: str) -> str:
    """Return a metric that torch has no words for, as torch names those that it has: without how the share of the peak is
    taken.
    """
    metric, _, rollup = counter.partition(".")
    kind, _, of = rollup.partition(".")
    if not of.startswith("pct_of_peak_sustained"):
        return counter
    end = "" if of == "pct_of_peak_sustained_elapsed" else f" of {of.removeprefix('pct_of_peak_sustained_')}"
    return f"{metric}{'' if kind == 'avg' else f'.{kind}'} (%{end})"


class CounterFacts(msgspec.Struct, frozen=True):
    """One counter of one device, in the window of the recorded steps (without steps, of the GPU's work)."""

    device: int
    name: str  # with its unit: SM Active (%)
    samples: int  # that hold in the window, or in a part of it
    interval_us: float  # from one sample to the next: the median
    mean: float
    mean_busy: float | None  # while the device was at work
    low: float
    high: float


class KernelCounter(msgspec.Struct, frozen=True):
    """What a counter says of a kernel that fills whole samples alone."""

    device: int
    kernel: str
    counter: str
    samples: int
    mean: float


class OpCounter(msgspec.Struct, frozen=True):
    """What a counter says of an op with inputs of one shape, whose work fills whole samples alone.

    `row`: which of the ops by shape it is, from 0. Of several devices the mean is over the samples of all.
    """

    row: int
    op: str
    shapes: str
    counter: str
    samples: int
    mean: float


class _Series(msgspec.Struct, frozen=True, eq=False):
    device: int
    name: str
    usual_ns: int  # from one sample to the next
    start_ns: np.ndarray  # in the window: cut at its ends
    end_ns: np.ndarray
    is_whole: np.ndarray  # whether the window holds all of a sample
    value: np.ndarray


def _series(trace: Trace) -> list[_Series]:
    """Return the samples of each counter that hold in the window, and when; of a device, the finest first."""
    if not len(trace.counters):
        return []
    rows = trace.steps if len(trace.steps) else trace.work
    if not len(rows):
        return []
    first_ns, last_ns = int(rows.start_ns[0]), max(int(row.end_ns.max()) for row in (rows, trace.work) if len(row))
    found = []
    for number, (device, name) in enumerate(trace.counters.series):
        at = np.flatnonzero(trace.counters.of == number)
        start_ns = trace.counters.at_ns[at]
        if name == DERIVED or len(at) < 2:  # of one sample it is not known how long it holds
            continue
        apart = np.diff(start_ns)
        if not apart.any():
            continue
        usual = int(np.median(apart[apart > 0]))
        end_ns = start_ns + np.append(np.minimum(apart, LONGEST_GAP * usual), usual)
        is_whole = (start_ns >= first_ns) & (end_ns <= last_ns)
        start_ns, end_ns = np.maximum(start_ns, first_ns), np.minimum(end_ns, last_ns)
        kept = end_ns > start_ns
        if kept.any():
            value = trace.counters.value[at]
            found.append(_Series(device, name, usual, start_ns[kept], end_ns[kept], is_whole[kept], value[kept]))
    return sorted(found, key=lambda one: (one.device, one.usual_ns))


def counter_facts(trace: Trace) -> tuple[CounterFacts, ...]:
    """Return a row for each counter of each device."""
    facts = []
    for sery in _series(trace):
        work = _of_device(trace, sery.device)
        busy = each_within_ns(sery.start_ns, sery.end_ns, merged(work.start_ns, work.end_ns))
        held = sery.end_ns - sery.start_ns
        facts.append(
            CounterFacts(
                device=sery.device,
                name=sery.name,
                samples=len(sery.value),
                interval_us=sery.usual_ns / 1000,
                mean=float(np.average(sery.value, weights=held)),
                mean_busy=float(np.average(sery.value, weights=busy)) if busy.any() else None,
                low=float(sery.value.min()),
                high=float(sery.value.max()),
            )
        )
    return tuple(facts)


def kernel_counters(trace: Trace) -> tuple[KernelCounter, ...]:
    """Return the counters of each kernel that fills samples alone, the kernel with the most time first."""
    every = _series(trace)
    found = []
    for device in dict.fromkeys(one.device for one in every):
        work = _of_device(trace, device)
        for name, calls in sorted(work.by_name(), key=lambda one: (-one[1].total_us, one[0])):
            for series in every:
                if series.device == device and (filled := _filled(series, calls, work)).any():
                    held = (series.end_ns - series.start_ns)[filled]
                    mean = float(np.average(series.value[filled], weights=held))
                    found.append(KernelCounter(device, name, series.name, int(filled.sum()), mean))
    return tuple(found)


def op_counters(trace: Trace, device: str) -> tuple[OpCounter, ...]:
    """Return the counters of each op by shape whose work fills samples alone, in the order of `op_shapes`. `device`: its name."""
    every = _series(trace)
    if not every:
        return ()
    work = {number: _of_device(trace, number) for number in {one.device for one in every}}
    found = []
    for row, (op, rows) in enumerate(op_shapes(trace, device)):
        values: dict[str, list[np.ndarray]] = {}
        for series in every:
            calls = rows.where(among(rows.at, work[series.device].at))
            filled = _filled(series, calls, work[series.device])
            if filled.any():
                held = (series.end_ns - series.start_ns)[filled]
                values.setdefault(series.name, []).append(np.stack([series.value[filled], held]))
        for counter, parts in values.items():
            value, held = np.concatenate(parts, axis=1)
            found.append(OpCounter(row, op.op, op.shapes, counter, len(value), float(np.average(value, weights=held))))
    return tuple(found)


def _filled(series: _Series, calls: Rows, work: Rows) -> np.ndarray:
    """For each sample, whether these calls fill it, and no other kernel or copy runs beside them."""
    held = series.end_ns - series.start_ns
    alone = each_within_ns(series.start_ns, series.end_ns, merged(calls.start_ns, calls.end_ns))
    filled = series.is_whole & (alone >= FILLED * held)
    if filled.any():
        others = work.where(~among(work.at, calls.at))
        beside = each_within_ns(series.start_ns, series.end_ns, merged(others.start_ns, others.end_ns))
        filled &= beside <= SHARED * held
    return filled


def _of_device(trace: Trace, device: int) -> Rows:
    devices = np.array([track == device for track, _ in trace.slices.tracks], bool)
    return trace.work.where(devices[trace.work.track])
