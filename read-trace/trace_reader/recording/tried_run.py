"""What `read-trace try` tells the process that runs the program, and what that tells of the run."""

from typing import NamedTuple

SETTINGS = "READ_TRACE_TRY"  # in the environment


class Settings(NamedTuple):
    """`command`: "script", "module" or "pytest", and its words. `folder`: for the traces. `step`: what ends a step, where that is
    told. `only_timed`: records nothing. `has`: how many steps the program has, where that is known and few. `source`: the folder
    of a saved source that is run in the place of what is there.
    """

    command: list[str]
    folder: str
    step: str | None = None
    only_timed: bool = False
    has: int | None = None
    keep_running: bool = False
    is_quiet: bool = False
    source: str | None = None


class TriedRun(NamedTuple):
    """A run. `step`: what a step is, in words; `seen`: how many the program had; `times_us`: of a step without the profiler, in
    each stretch, and `steps` of all stretches; `recorded` steps in the trace; `functions`: of the program, the most called first.
    """

    step: str
    seen: int
    is_done: bool
    times_us: list[float]
    steps: int
    recorded: int
    functions: list[str]
    python: str
    torch: str
    device: str
    threads: int
    packages: dict[str, str]
