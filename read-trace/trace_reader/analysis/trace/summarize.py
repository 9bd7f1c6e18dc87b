"""The facts of a trace, each worked out by its own file."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from trace_reader.analysis.replay.plain_run import ESTIMATED, RunWithoutProfiler, plain_run
from trace_reader.analysis.trace.collectives import collective_facts
from trace_reader.analysis.trace.counter_facts import (
    counter_facts,
    kernel_counters,
    op_counters,
)
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.analysis.trace.critical_path import CriticalPath, critical_path, windows
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.file_facts import device_properties as device_properties_of
from trace_reader.analysis.trace.file_facts import of_file
from trace_reader.analysis.trace.gpu_idle import idle_facts
from trace_reader.analysis.trace.gpu_time import gpu_time
from trace_reader.analysis.trace.health import health
from trace_reader.analysis.trace.kernel_facts import (
    gemm_facts,
    kernel_facts,
    work_kind_facts,
)
from trace_reader.analysis.trace.memory_facts import memory_facts
from trace_reader.analysis.trace.missing_events import missing
from trace_reader.analysis.trace.op_facts import call_facts, op_facts
from trace_reader.analysis.trace.op_shapes import op_shape_facts
from trace_reader.analysis.trace.server_steps import server_steps
from trace_reader.analysis.trace.step_facts import StepFacts, busy_us, step_facts, step_period_us, step_times_us
from trace_reader.analysis.trace.time_by_place import annotation_facts
from trace_reader.link.found_steps import outliers
from trace_reader.link.launches import Origin
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct, median
from trace_reader.model.slices import Kind
from trace_reader.system.processes import processes_for, run_in_processes

UNEXPLAINED = 0.05  # of the recorded path, that may be waiting for what the trace does not show


def summarize(trace: Trace, run: RunWithoutProfiler | None) -> Facts:
    """Return the facts of a trace, still without findings. `run`: the trace's, to be played again, if it can be."""
    work = trace.work
    properties = device_properties_of(trace.header)
    used = {trace.slices.tracks[track][0] for track in distinct(work.track).values.tolist()}
    device_properties = {p["id"]: p for p in properties if isinstance(p.get("id"), int)}
    used_properties = [p for number, p in device_properties.items() if number in used] or properties
    window_us, gpu_busy, outliers = _window(trace)
    used_name = str((used_properties or [{}])[0].get("name", ""))
    cpu, asked, period_us = CpuActivity(trace), windows(trace), step_period_us(trace)
    on_gpu = len(asked) > 0 and len(work) > 0
    # What takes the longest stands first, as processes that share them want it.
    parts = _worked_out(
        trace,
        recorded_paths=lambda: tuple(critical_path(trace, cpu, window) for window in asked),
        known=lambda: plain_run(trace, run, period_us, cpu, asked[0] if len(asked) == 1 else None),
        idle=lambda: idle_facts(trace, cpu, asked[0].device, asked[0].start_ns, asked[0].end_ns) if on_gpu else None,
        ops=lambda: op_facts(trace),
        kernels=lambda: kernel_facts(trace, device_properties),
        memory=lambda: memory_facts(trace) if len(trace.memory) else (),
        counters=lambda: counter_facts(trace),
        kernel_counters=lambda: kernel_counters(trace),
        op_counters=lambda: op_counters(trace, used_name),
        steps=lambda: step_facts(trace),
        missing=lambda: missing(trace),
        annotations=lambda: annotation_facts(trace),
        gpu_time=lambda: gpu_time(trace, asked[0].device, asked[0].start_ns, asked[0].end_ns) if on_gpu else None,
        calls=lambda: call_facts(trace),
        server_steps=lambda: server_steps(trace),
        op_shapes=lambda: op_shape_facts(trace, used_name),
        gemms=lambda: gemm_facts(trace, device_properties),
        collectives=lambda: collective_facts(trace),
    )
    recorded_paths, known = parts.pop("recorded_paths"), parts.pop("known")
    recorded = recorded_paths[0] if asked else None
    # What the trace does not show in the recorded run, a replay of it does not explain either.
    explained = recorded is not None and recorded.unknown_us <= UNEXPLAINED * recorded.window_us
    paths = (known.path,) if known.path is not None and explained else recorded_paths
    return Facts(
        **of_file(trace, used_properties),
        **parts,
        window_us=window_us,
        outliers=outliers,
        gpu_busy_us=gpu_busy,
        gpu_busy_share=None if gpu_busy is None or window_us <= 0 else gpu_busy / window_us / len(used),
        gpu_to_cpu=_gpu_to_cpu(parts["steps"]),
        verdict=_verdict(paths, parts["missing"], len(work) > 0),
        recorded_verdict=_verdict(recorded_paths, parts["missing"], len(work) > 0),
        critical_path=paths[0] if paths else None,
        critical_paths=paths,
        recorded_critical_path=recorded,
        plain=known.run,
        host_prices=trace.host_prices if known.run.how == ESTIMATED else None,
        **_of_work(work),
        health=health(trace),
        zero_timestamps=trace.zero_timestamps,
        steps_found=trace.found,
        steps_left_out=trace.steps_left_out,
        step_times_us=tuple(step_times_us(trace)),
        step_period_us=period_us,
        work_kinds=work_kind_facts(parts["kernels"]),
    )


def _of_work(work: Rows) -> dict[str, Any]:
    """Return how many GPU events there are of each kind, and from where they were launched."""
    kinds, origins = Counter(work.kind.tolist()), Counter(work.origin.tolist())
    return {
        "kernels_total": kinds[Kind.KERNEL],
        "memcpys_total": kinds[Kind.MEMCPY],
        "memsets_total": kinds[Kind.MEMSET],
        "unlinked": origins[Origin.CARRIED_OVER] + origins[Origin.UNKNOWN],
        "gpu_time_by_origin_us": {origin.word: work.where(work.origin == origin).total_us for origin in Origin},
        "gpu_events_by_origin": {origin.word: origins[origin] for origin in Origin},
    }


def _gpu_to_cpu(steps: Sequence[StepFacts]) -> float | None:
    ratios = [step.gpu_to_cpu for step in steps if step.gpu_to_cpu is not None]
    return median(np.array(ratios)) if ratios else None


def _worked_out(trace: Trace, **parts: Callable[[], Any]) -> dict[str, Any]:
    """Return the facts of these names; of a large trace, on all cores."""
    return dict(zip(parts, run_in_processes(list(parts.values()), processes_for(len(trace.slices))), strict=True))


def _window(trace: Trace) -> tuple[float, float | None, int]:
    """From the first step's start to the end of the last step or GPU event, the GPU's busy time in it, and how many events are
    left out because they are far from the others.
    """
    work, left_out = trace.work, 0
    events = work if len(work) else Rows(trace.slices, np.arange(len(trace.slices)))
    if trace.found is not None or not len(trace.steps):
        are_outliers = outliers(events)
        events, left_out = events.where(~are_outliers), int(are_outliers.sum())
    if len(trace.steps):
        start_ns, ends = trace.steps.start_ns[0], [trace.steps.end_ns, events.end_ns if len(work) else work.end_ns]
    else:
        start_ns, ends = events.start_ns[0], [events.end_ns]
    end_ns = max(int(end.max()) for end in ends if len(end))
    busy = busy_us(work, int(start_ns), end_ns) if len(work) else None
    return (end_ns - int(start_ns)) / 1000, busy, left_out


def _verdict(paths: Sequence[CriticalPath], lost: tuple[str, ...], has_gpu_work: bool) -> str:
    """Return the verdict: what the path says, unless what the trace does not hold could change it."""
    if lost:
        return "unknown"
    if not has_gpu_work:
        return "cpu-only"
    return paths[0].verdict if paths else "unknown"
