"""`recorded`: a block that is recorded. `profiled`: a function that is, and the numbers to assert on."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import os
from pathlib import Path
import tempfile
from typing import Any

from trace_reader.analysis.runs.run_measures import RunMeasures, measures
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.verdict import verdict_sentence
from trace_reader.reading import read
from trace_reader.recording.handler import report_on, synchronize, write_trace
from trace_reader.recording.header import Stopwatch, plain_step_us

WARMUP, ACTIVE, PLAIN = 3, 3, 9  # calls of a function
STRETCHES = 3  # in which those without the profiler are timed


@contextlib.contextmanager
def recorded(path: str | os.PathLike[str], report: bool = True, **options: Any) -> Iterator[Callable[..., Iterator[Any]]]:
    """Record the block with torch.profiler, write the trace to `path` (.json or .json.gz) and print the reader's report on it.
    The `with` statement gives a function that marks each item of an iterable as a step:

        with recorded("traces/answer.json") as steps:
            for text in steps(texts):
                model(text)

    `report`: whether to print the report. `options` are passed to torch.profiler.profile; shapes are recorded by default.
    """
    from torch.profiler import profile, record_function

    def steps(values: Iterable[Any]) -> Iterator[Any]:
        for number, value in enumerate(values):
            with record_function(f"ProfilerStep#{number}"):
                yield value

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with profile(**{"record_shapes": True, "acc_events": True, **options}) as profiler:
        yield steps
    write_trace(profiler, target, {})
    if report:
        report_on(target).wait()


class Profiled:
    """What a function does each time it is called: `kernels`, `copies` and `syncs` (None where there is no GPU), `aten_calls`,
    `recompiles` (events of torch.compile at work, in all recorded calls), `peak_memory` in bytes, `step_us` without the profiler.
    `facts` are all that the reader tells, `trace` is the file (None where it was not kept).
    """

    def __init__(self, facts: Facts, trace: Path | None):
        measured: RunMeasures = measures(facts)
        self.facts, self.trace = facts, trace
        self.kernels, self.copies, self.syncs = measured.kernels, measured.copies, measured.syncs
        self.aten_calls = measured.aten_calls
        self.recompiles, self.peak_memory, self.step_us = measured.compiled, measured.peak_memory, measured.plain_step
        self.findings = measured.findings

    def __repr__(self) -> str:
        """For a failed assertion: what limits it, and where the trace is."""
        known = {name: getattr(self, name) for name in ("kernels", "aten_calls", "copies", "syncs", "recompiles", "peak_memory")}
        listed = ", ".join(f"{name}={value:g}" for name, value in known.items() if value is not None)
        return f"<Profiled {listed}; {verdict_sentence(self.facts)}{f'; {self.trace}' if self.trace else ''}>"


def profiled(step: Callable[[], object], path: str | os.PathLike[str] | None = None, warmup: int = WARMUP) -> Profiled:
    """Call `step` a few times to warm up, then several times without the profiler, then a few times with the profiler. Read the
    trace and return the numbers of a call. `path`: where to keep the trace; without a path it is deleted.
    """
    from torch.profiler import profile, record_function

    for _ in range(warmup):
        step()
    times_us = []
    for _ in range(STRETCHES):
        watch = Stopwatch(synchronize)
        for _ in range(PLAIN // STRETCHES):
            step()
        times_us.append(watch.step_us(PLAIN // STRETCHES))
    header = plain_step_us(times_us, PLAIN)
    with profile(record_shapes=True, profile_memory=True, acc_events=True) as profiler:
        for number in range(ACTIVE):
            with record_function(f"ProfilerStep#{number}"):
                step()
        synchronize()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if path is None else Path(path).parent
        target = folder / "profiled.json" if path is None else Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_trace(profiler, target, header)
        return Profiled(read(str(target)), None if path is None else target)
