"""`handler`: what torch.profiler calls when a trace is there.

    with profile(schedule=schedule(wait=10, warmup=2, active=3), on_trace_ready=handler("traces")) as profiler:
        for batch in loader:
            step(batch)
            profiler.step()

It writes the trace whole or not at all, by rank and step; times the steps that the schedule waits in, so that the trace tells
what a step takes without the profiler; and has rank 0 print the verdict. What fails in it is one line on stderr: the training
goes on.
"""

import atexit
from collections.abc import Callable
import contextlib
import gzip
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any, TextIO

from trace_reader.names.file_names import STACKS_NAME
from trace_reader.recording.header import Stopwatch, plain_step_us, with_header
from trace_reader.recording.slow_steps import SlowSteps

MOST_STEPS = 20  # that are timed, of those that a schedule waits in
STRETCHES, LEAST_IN_A_STRETCH = 3, 3  # that they are timed in, and steps of each
LONGEST_S = 120  # that a program waits at its end for a report to be printed


def handler(
    folder: str | os.PathLike[str],
    name: str = "trace",
    zipped: bool = False,
    report: bool = True,
    stacks: bool = False,
    slow: float | None = None,
) -> "Handler":
    """Return a handler for profile(on_trace_ready=...), which writes each trace to FOLDER/NAME_step12.json.

    In a job of several ranks the file is NAME_step12_rank0.json. With `zipped` the name ends with .json.gz. If the folder already
    has traces of an earlier run, the file is NAME_run2_step12.json, so that no trace is overwritten. Rank 0 prints a report on
    each trace from a process of its own; with `report=False` nothing is printed. `stacks`: record every second cycle of the
    schedule with stacks and memory, which cost time, and write it to NAME_step12_stacks.json beside the trace of the cycle
    before. The reader then uses the times of the first file and the lines of the second. `stacks` has no effect with
    acc_events=True. `slow`: record only around steps that take more than this many times the median step. `slow` needs
    schedule=own.schedule(...), where `own` is this handler; this schedule takes `warmup`, `active` and `repeat` (the most traces
    to write, 3 by default).
    """
    return Handler(Path(folder), name, zipped, report, stacks, slow)


class Handler:
    """See `handler`. `written` are the traces so far. The time of a step without the profiler is known from the second cycle of
    a schedule on; with `schedule=own.schedule(...)`, which takes what torch.profiler.schedule does, from the first.
    """

    def __init__(self, folder: Path, name: str, zipped: bool, report: bool, stacks: bool = False, slow: float | None = None):
        self.folder, self.zipped, self.report, self.stacks, self.slow = folder, zipped, report, stacks, slow
        self._asked_name, self.name = name, _unused(folder, name)
        self._waits_for_stacks: Path | None = None  # the trace of the cycle before, where this one has the stacks
        self._flags: dict[str, bool] = {}  # the profiler's own, of the other cycles
        self.written: list[Path] = []
        self._clock: _Clock | SlowSteps | None = None
        self._reading: list[subprocess.Popen[bytes]] = []

    def schedule(self, **options: int) -> Callable[[int], Any]:
        """torch.profiler.schedule(**options), and the steps that it waits in are timed. With `slow`: see SlowSteps. Raises
        ValueError, TypeError.
        """
        import torch

        if self.slow is not None:
            if others := options.keys() - {"warmup", "active", "repeat"}:
                raise TypeError(f"with slow, a schedule takes warmup, active and repeat, not {', '.join(sorted(others))}")
            self._clock = SlowSteps(self.slow, self._say, **options)
            return self._clock
        self._clock = _Clock(torch.profiler.schedule(**options))
        return self._clock

    def __call__(self, profiler: Any) -> None:
        try:
            self._write(profiler)
        except Exception as error:
            self._say(f"no trace was written: {type(error).__name__}: {error}")

    def _write(self, profiler: Any) -> None:
        rank = rank_of_job()
        ending = f"_step{profiler.step_num}{'' if rank is None else f'_rank{rank}'}.json{'.gz' if self.zipped else ''}"
        path = self.folder / f"{self.name}{ending}"
        if (of := self._waits_for_stacks) is not None:
            name, dot, ending = of.name.rpartition(".json")
            path = of.with_name(f"{name}{STACKS_NAME}{dot}{ending}")
        if rank is None and of is None and path.exists():  # another program's, which began when this one did
            self.name = _unused(self.folder, self._asked_name)
            path = self.folder / f"{self.name}{ending}"
        self.folder.mkdir(parents=True, exist_ok=True)
        clock = self._clock
        if isinstance(clock, SlowSteps):
            header = clock.header
        else:
            header = plain_step_us(clock.times_us, clock.steps) if clock is not None and clock.times_us else {}
            if self.slow is not None and not self.written:
                self._say("slow has no effect without schedule=own.schedule(), where own is this handler")
        write_trace(profiler, path, header)
        self.written.append(path)
        if clock is None and callable(getattr(profiler, "schedule", None)):
            self._clock = profiler.schedule = _Clock(profiler.schedule)
        if self.stacks and getattr(profiler, "acc_events", False):
            self.stacks = False
            self._say("no stacks are recorded: with acc_events=True all cycles are recorded with the same flags")
        elif self.stacks:
            self._flags = self._flags or {name: getattr(profiler, name) for name in ("with_stack", "profile_memory")}
            self._waits_for_stacks = None if of is not None else path
            for name, own in self._flags.items():  # of the next cycle
                setattr(profiler, name, own or of is None)
        if self.report and rank in (None, 0):
            self._reading.append(report_on(of or path))

    def wait(self) -> None:
        """Wait for the reports that are being made."""
        for process in self._reading:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LONGEST_S)
        self._reading.clear()

    def _say(self, text: str) -> None:
        stream: TextIO = sys.stderr
        with contextlib.suppress(OSError, ValueError):
            print(f"read-trace: {text}", file=stream, flush=True)


class _Clock:
    """A schedule that times the steps in which nothing is recorded: torch asks it what to do in each step, when the one before
    has ended. Of the steps between two recordings the later ones count, MOST_STEPS at most: what happens once has happened. They
    are timed in STRETCHES, where each has LEAST_IN_A_STRETCH steps, else in fewer; the device is synchronized at the ends of a
    stretch only.
    """

    def __init__(self, inner: Callable[[int], Any]):
        self._inner = inner
        self._waited = 0  # steps without the profiler, since the last recording
        self._begun: tuple[int, Stopwatch] | None = None
        self._length = 0  # steps of a stretch
        self.times_us: list[float] = []  # of a step, one for each stretch
        self.steps = 0

    def __call__(self, number: int) -> Any:
        action = self._inner(number)
        if _waits(action):
            self._wait(number)
        else:
            self._end(number)
        return action

    def _wait(self, number: int) -> None:
        left = next((n for n in range(MOST_STEPS + 1) if not _waits(self._inner(number + n))), MOST_STEPS + 1)
        # Never from the first on: the trace of the cycle before is written in it.
        if self._begun is None and left <= min(MOST_STEPS, self._waited):
            self._length = left // max(min(STRETCHES, left // LEAST_IN_A_STRETCH), 1)
            self._begun = number, Stopwatch(synchronize)
        elif self._begun is not None and number - self._begun[0] == self._length and left >= self._length:
            self._take(number)
            self._begun = number, Stopwatch(synchronize)
        self._waited += 1

    def _end(self, number: int) -> None:
        if self._begun is not None:
            self._take(number)
        self._waited, self._begun = 0, None

    def _take(self, number: int) -> None:
        assert self._begun is not None
        first, watch = self._begun
        self.times_us.append(watch.step_us(number - first))
        self.steps += number - first


def _unused(folder: Path, name: str) -> str:
    """Return a name of which the folder has no trace: NAME, else NAME_run2 and so on. All ranks ask before one of them writes."""
    pattern = re.compile(rf"{re.escape(name)}(?:_run(\d+))?_step\d+.*\.json(?:\.gz)?")
    runs = [int(of[1] or 1) for path in folder.glob("*.json*") if (of := pattern.fullmatch(path.name))]
    return f"{name}_run{max(runs) + 1}" if runs else name


def _waits(action: Any) -> bool:
    return getattr(action, "name", "") == "NONE"


def synchronize() -> None:
    """Wait for the device, where one is at work."""
    if is_on_gpu():
        import torch

        torch.cuda.synchronize()


def is_on_gpu() -> bool:
    """Return whether this process has used CUDA."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized()


def rank_of_job() -> int | None:
    """This process's rank; None where there are no others."""
    distributed: Any = sys.modules.get("torch.distributed")  # not imported for this alone
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() if distributed.get_world_size() > 1 else None
    return (
        int(os.environ["RANK"]) if os.environ.get("RANK", "").isdecimal() and os.environ.get("WORLD_SIZE", "1") != "1" else None
    )


def write_trace(profiler: Any, path: Path, header: dict[str, Any]) -> None:
    """A profiler's trace, with these entries at its beginning, as one file that is there when it is whole. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".json")
    os.close(handle)
    exported, whole = Path(name), Path(f"{name}.whole")
    try:
        profiler.export_chrome_trace(str(exported))
        if not exported.stat().st_size:
            raise OSError("torch wrote an empty file: is the disk full?")
        open_: Callable[[Path, str], Any] = gzip.open if path.suffix == ".gz" else open
        with exported.open("rb") as source, open_(whole, "wb") as target:
            first = source.read(1 << 16).lstrip()
            if header and first.startswith(b"{"):
                first = with_header(first, header)
            target.write(first)
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(whole, path)
    finally:
        for left in (exported, whole):
            left.unlink(missing_ok=True)


def report_on(path: Path) -> "subprocess.Popen[bytes]":
    """Print what the reader says of a trace, from a process of its own: neither its time nor its faults are the program's."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])}
    process = subprocess.Popen([sys.executable, "-m", "trace_reader", str(path), "--brief"], env=env, stdin=subprocess.DEVNULL)
    atexit.register(_ended, process)
    return process


def _ended(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LONGEST_S)
