"""What a gate compares of a run: a small set of numbers, which a baseline keeps in a file of its own."""

from collections.abc import Sequence
import statistics

import msgspec
from trace_reader.analysis.cpu_time import is_compiling
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.plain_run import MEASURED
from trace_reader.names.call_names import is_synchronizing

LEAST_US = 0.5  # per step, of a row that is kept
MOST_ROWS = 300


class RowMeasure(msgspec.Struct, frozen=True):
    """An op (by shape, where recorded) or a kernel, per step: calls, and µs of its own on the CPU, of a kernel on the GPU."""

    calls: float
    us: float


class RunMeasures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run; of a job, its slowest rank's times and all ranks' counts. None: not in the trace, or of no GPU.

    `step`, `gpu`, `exposed`: us per step (`step`: without the profiler where that was measured). `kernels`, `ops`, `copies`,
    `syncs`: per step, of the middle one or the mean; ops are those of aten. `compiled`: events of torch.compile at work, in all.
    `peak_memory`: bytes. `rows`: by name.
    """

    trace: str
    device: str | None
    step: float | None
    gpu: float | None
    exposed: float | None
    kernels: float | None
    ops: float | None
    copies: float | None
    syncs: float | None
    compiled: float | None
    peak_memory: float | None
    findings: tuple[str, ...]
    rows: dict[str, RowMeasure]


def measures(facts: Facts, periods_us: Sequence[float] = ()) -> RunMeasures:
    """The numbers of one trace. `periods_us`: of its steps, whose median tells less of a hiccup than their mean does."""
    steps = len(facts.steps) or 1
    middle = facts.middle_step
    is_measured = facts.plain.how == MEASURED
    gpu_us = [step.gpu_busy_us for step in facts.steps if step.gpu_busy_us is not None]
    syncs = sum(call.calls for call in facts.calls if is_synchronizing(call.name)) if facts.has_gpu_work else None
    return RunMeasures(
        trace=facts.trace,
        device=facts.device,
        step=facts.plain.step_us if is_measured else _median(periods_us or [step.cpu_us for step in facts.steps]),
        gpu=_median(gpu_us),
        exposed=facts.timeline.exposed_communication_us / steps if facts.collectives and facts.timeline else None,
        kernels=middle.kernels if middle and facts.has_gpu_work else None,
        ops=sum(op.calls for op in facts.ops if op.name.startswith("aten::")) / steps,
        copies=middle.memcpys if middle and facts.has_gpu_work else None,
        syncs=None if syncs is None else syncs / steps,
        compiled=sum(op.calls for op in facts.ops if is_compiling(op.name)),
        peak_memory=max((own.peak_bytes for own in facts.memory), default=None),
        findings=tuple(finding.slug for finding in facts.findings if not finding.is_worthless),
        rows=_rows(facts, steps),
    )


def _rows(facts: Facts, steps: int) -> dict[str, RowMeasure]:
    found = {op.name: RowMeasure(op.calls / steps, round(op.self_us / steps, 3)) for op in facts.ops}
    found |= {f"kernel {own.name}": RowMeasure(own.calls / steps, round(own.total_us / steps, 3)) for own in facts.kernels}
    kept = sorted((name for name, own in found.items() if own.us >= LEAST_US), key=lambda name: -found[name].us)[:MOST_ROWS]
    return {name: found[name] for name in kept}


def of_job(ranks: Sequence[RunMeasures]) -> RunMeasures:
    """The ranks of a job as one run: what takes longest of times, the sum of counts."""

    def over(name: str, together: str) -> float | None:
        known = [value for own in ranks if (value := getattr(own, name)) is not None]
        return (max(known) if together == "max" else sum(known)) if known else None

    slowest = max(ranks, key=lambda own: own.step or 0.0)
    return msgspec.structs.replace(
        slowest,
        **{name: over(name, "max") for name in ("step", "gpu", "exposed", "peak_memory")},
        **{name: over(name, "sum") for name in ("kernels", "ops", "copies", "syncs", "compiled")},
        findings=tuple(dict.fromkeys(slug for own in ranks for slug in own.findings)),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
