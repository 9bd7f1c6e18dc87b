"""What a gate compares of a run: a small set of numbers, which a baseline keeps in a file of its own."""

from collections.abc import Sequence
import statistics

import msgspec
from trace_reader.analysis.replay.plain_run import MEASURED
from trace_reader.analysis.trace.cpu_time import is_compiling
from trace_reader.analysis.trace.facts import Facts
from trace_reader.names.call_names import is_synchronizing

LEAST_US = 0.5  # per step, of a row that is kept
MOST_ROWS = 300
OF_A_GPU = ("gpu", "kernels", "copies", "syncs")


class RowMeasure(msgspec.Struct, frozen=True):
    """A row, per step: calls, and their us. Its name begins with what it is: `op NAME` (us of its own on the CPU), `op NAME
    SHAPES` (of the GPU's work that it launched; without a GPU its own), `kernel NAME` (kernels and copies), `call NAME` (calls
    that wait for the GPU).
    """

    calls: float
    us: float


class RunMeasures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run; of a job, its slowest rank's times and all ranks' counts. None: not in the trace, or of no GPU.

    `step`, `gpu`, `exposed`: us per step, as recorded; `plain_step`: without the profiler, where that was measured. `kernels`,
    `aten_calls`, `copies`, `syncs`: per step, of the middle one or the mean; `aten_calls` are those of views and of ops inside
    others, too. Without steps all are of the whole trace. `compiled`: events of torch.compile at work, in all. `peak_memory`:
    bytes. `rows`: by name. `versions`, `recorded_with`: what the trace says of torch, CUDA, and the profiler's flags.
    """

    trace: str
    device: str | None
    step: float | None
    plain_step: float | None
    gpu: float | None
    exposed: float | None
    kernels: float | None
    aten_calls: float | None
    copies: float | None
    syncs: float | None
    compiled: float | None
    peak_memory: float | None
    findings: tuple[str, ...]
    rows: dict[str, RowMeasure]
    versions: dict[str, str] = {}
    recorded_with: tuple[str, ...] | None = None


def measures(facts: Facts) -> RunMeasures:
    """Return the numbers of one trace."""
    steps = len(facts.steps) or 1
    return RunMeasures(
        trace=facts.trace,
        device=facts.device,
        plain_step=facts.plain.step_us if facts.plain.how == MEASURED else None,
        exposed=facts.gpu_time.exposed_communication_us / steps if facts.collectives and facts.gpu_time else None,
        aten_calls=sum(op.calls for op in facts.ops if op.name.startswith("aten::")) / steps,
        compiled=sum(op.calls for op in facts.ops if is_compiling(op.name)),
        peak_memory=max((device_memory.peak_bytes for device_memory in facts.memory), default=None),
        findings=tuple(finding.slug for finding in facts.findings if not finding.is_worthless),
        rows=_rows(facts, steps),
        versions=facts.versions,
        recorded_with=facts.recorded_with,
        **(_of_steps(facts) if facts.steps else _of_all(facts)),
    )


def steps_us(facts: Facts) -> list[float]:
    """Return what each step takes: from the end of the one before to its own; of one step alone, its time on the CPU."""
    return [*facts.step_times_us[1:]] or [step.cpu_us for step in facts.steps]


def _of_steps(facts: Facts) -> dict[str, float | None]:
    middle = facts.usual_step
    assert middle is not None
    gpu_us = [step.gpu_busy_us for step in facts.steps if step.gpu_busy_us is not None and not step.lacks_gpu_work]
    found: dict[str, float | None] = {
        "step": statistics.median(steps_us(facts)),
        "gpu": statistics.median(gpu_us) if gpu_us else None,
        "kernels": None if middle.lacks_gpu_work else middle.kernels,
        "copies": None if middle.lacks_gpu_work else middle.memcpys,
        "syncs": sum(step.syncs for step in facts.steps) / len(facts.steps),
    }
    return found if facts.has_gpu_work else found | dict.fromkeys(OF_A_GPU)


def _of_all(facts: Facts) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        "step": facts.window_us,
        "gpu": facts.gpu_busy_us,
        "kernels": facts.kernels_total,
        "copies": facts.memcpys_total,
        "syncs": sum(call.calls for call in facts.calls if is_synchronizing(call.name)),
    }
    return found if facts.has_gpu_work else found | dict.fromkeys(OF_A_GPU)


def _rows(facts: Facts, steps: int) -> dict[str, RowMeasure]:
    by_shape = (
        set() if facts.has_gpu_work else {shape.op for shape in facts.op_shapes if shape.shapes}
    )  # without a GPU: the same time
    every = [
        *((f"op {op.name}", op.calls, op.self_us) for op in facts.ops if op.name not in by_shape),
        *((f"op {shape.op} {shape.shapes}", shape.calls, shape.time_us) for shape in facts.op_shapes if shape.shapes),
        *((f"kernel {kernel.name}", kernel.calls, kernel.total_us) for kernel in facts.kernels),
        *((f"call {call.name}", call.calls, call.total_us) for call in facts.calls if is_synchronizing(call.name)),
    ]
    found = {name: RowMeasure(calls / steps, round(us / steps, 3)) for name, calls, us in every}
    kept = sorted((name for name, one in found.items() if one.us >= LEAST_US), key=lambda name: -found[name].us)[:MOST_ROWS]
    return {name: found[name] for name in kept}


def of_job(ranks: Sequence[RunMeasures]) -> RunMeasures:
    """Return the ranks of a job as one run: what takes longest of times, the sum of counts."""

    def over(name: str, together: str) -> float | None:
        known = [value for rank in ranks if (value := getattr(rank, name)) is not None]
        return (max(known) if together == "max" else sum(known)) if known else None

    slowest = max(ranks, key=lambda one: one.step or 0.0)
    return msgspec.structs.replace(
        slowest,
        **{name: over(name, "max") for name in ("step", "gpu", "exposed", "peak_memory")},
        plain_step=over("plain_step", "max") if all(rank.plain_step is not None for rank in ranks) else None,
        **{name: over(name, "sum") for name in ("kernels", "aten_calls", "copies", "syncs", "compiled")},
        findings=tuple(dict.fromkeys(slug for rank in ranks for slug in rank.findings)),
    )
