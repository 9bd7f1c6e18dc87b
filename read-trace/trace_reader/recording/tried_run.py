"""What `read-trace try` tells the process that runs the program, and what that tells of the run."""

import importlib.metadata
import platform
import statistics
import sys
from typing import Any, NamedTuple

from trace_reader.recording.step_recorder import StepRecorder

SETTINGS = "READ_TRACE_TRY"  # in the environment


class Settings(NamedTuple):
    """`command`: "script", "module" or "pytest", and its words. `folder`: for the traces. `step`: what ends a step, where that is
    told. `only_timed`: records nothing. `has`: how many steps the program has, where that is known and few. `source`: the folder
    of a saved source that is run in the place of what is there. `none`: what is no step, in words; `hurries`: a
    loop is one however short it runs.
    """

    command: list[str]
    folder: str
    step: str | None = None
    only_timed: bool = False
    has: int | None = None
    keep_running: bool = False
    is_quiet: bool = False
    source: str | None = None
    none: tuple[str, ...] = ()
    hurries: bool = False


class TriedRun(NamedTuple):
    """A run. `step`: what a step is, in words; `seen`: how many the program had;
    `failed`: why nothing could be recorded; `times_us`: of a step without the profiler, in
    each stretch, and `steps` of all stretches, without `pauses_us` between some; `recorded` steps in the trace; `functions`: of
    the program, the most called first.
    """

    step: str
    seen: int
    is_done: bool
    failed: str
    times_us: list[float]
    steps: int
    pauses_us: list[float]
    recorded: int
    functions: list[str]
    python: str
    torch: str
    device: str
    threads: int
    packages: dict[str, str]

    @property
    def step_us(self) -> float:
        """The median of the stretches."""
        return statistics.median(self.times_us)


MOST_FUNCTIONS = 10  # that are told


def run_of(recorder: StepRecorder, step: str, seen: int, failed: str, functions: list[str], with_packages: bool) -> TriedRun:
    """Return what a process has to tell, which has recorded its steps or not."""
    torch: Any = sys.modules.get("torch")
    is_there = torch is not None and hasattr(torch, "get_num_threads")  # not of a program that failed to import it
    return TriedRun(
        step=step,
        seen=seen,
        is_done=recorder.is_done,
        failed=failed,
        times_us=recorder.times_us,
        steps=recorder.steps,
        pauses_us=recorder.pauses_us,
        recorded=recorder.recorded,
        functions=functions[:MOST_FUNCTIONS],
        python=platform.python_version(),
        torch=str(torch.__version__) if is_there else "",
        device=_device(torch) if is_there else "",
        threads=torch.get_num_threads() if is_there else 0,
        packages=_packages() if with_packages else {},
    )


def _device(torch: Any) -> str:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return f"CPU ({platform.machine()})"


def _packages() -> dict[str, str]:
    names = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions() if one.metadata["Name"]}
    return dict(sorted(names.items(), key=lambda item: item[0].lower()))
