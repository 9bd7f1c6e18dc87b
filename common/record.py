"""Recording a lesson: torch.profiler.profile, and what the lessons add to it.

The same with torch alone is in the README ("The same recording in plain torch"). `record` adds four things. The device is idle
when recording starts, so that no kernel of an unrecorded step is in the trace. What Kineto and torch say in a healthy run
stays off the terminal. The trace and the table are both written whole, or neither. And when the block ends, the trace is read
back: the verdict, the work of a step, the answer to --guess (common/report.py).
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
from dataclasses import dataclass

from common.device import Device
from common.memory import TensorPeak
from common.progress import Progress, progress
from common.quiet import explained, quiet
from common.report import export, peak_memory, report
import torch

WARMUP_CALLS = 3


@dataclass(frozen=True)
class Schedule:
    """How many times the step is called, and which of these calls are recorded. Repeat is always 1."""

    wait: int
    warmup: int
    active: int

    @property
    def first_recorded(self) -> int:
        return self.wait + self.warmup

    @property
    def steps(self) -> int:
        return self.first_recorded + self.active

    def __str__(self) -> str:
        last = self.steps - 1
        recorded = f"#{self.first_recorded}" if self.active == 1 else f"#{self.first_recorded}..#{last}"
        return (
            f"{self.steps} steps (wait {self.wait}, warmup {self.warmup}, active {self.active}), recording ProfilerStep{recorded}"
        )


def warm_up(step: Callable[[], object], args: argparse.Namespace, device: Device) -> None:
    """With --warmup: three plain calls of `step`, so that what happens once has happened before recording starts."""
    if not args.warmup:
        return
    with progress() as shown, quiet(args, device), explained(args, device):
        for done in range(WARMUP_CALLS):
            compiling = " (torch.compile compiles in the first)" if args.compile else ""
            shown.show(f"warm-up call {done + 1} of {WARMUP_CALLS}{compiling}", done, WARMUP_CALLS)
            step()
        device.synchronize()


@contextlib.contextmanager
def record(args: argparse.Namespace, device: Device) -> Iterator["Profiler"]:
    """Record what the block runs: `for _ in range(profiler.steps): step(); profiler.step()`.

    At its end the trace and the table are written, and what they say is printed. Raises LessonError when the device runs out
    of memory, torch.compile finds no compiler, an artifact cannot be written, or a GPU was used and none of its events was
    recorded (the artifacts are kept then).
    """
    schedule = Schedule(args.wait, args.schedule_warmup, args.active)
    print(f"run: {args.tag}: {schedule}", flush=True)
    with progress() as shown, quiet(args, device), explained(args, device):
        profiler = Profiler(schedule, args, device, shown)
        device.reset_peak()
        # Not as a context manager: in the middle of a failed step, stop() can raise an error of its own, which would hide
        # the step's. Left running, the profiler crashes the process at its end.
        profiler.start()
        try:
            yield profiler
        except BaseException:
            with contextlib.suppress(Exception):
                profiler.stop()
            raise
        profiler.stop()
        shown.resume()
        shown.show("exporting", schedule.steps, schedule.steps)
        in_graphs = args.compile_mode in ("reduce-overhead", "max-autotune")  # their memory is no longer the allocator's
        memory = peak_memory(profiler.tensor_bytes, None if in_graphs else device.peak_bytes(), device.input_bytes)
        artifacts = export(profiler, memory, args, device)
    report(artifacts, memory, args, device)


class Profiler(torch.profiler.profile):
    """torch.profiler.profile with the lesson's flags; `steps` is how many times the step is to be called.

    `tensor_bytes` is the most memory that tensors held in step #0, inputs included; None where that step is recorded
    (--wait 0), which counting would slow down, and where it is compiled: its tensors cannot be seen.
    """

    def __init__(self, schedule: Schedule, args: argparse.Namespace, device: Device, shown: Progress):
        super().__init__(
            activities=device.activities(),
            schedule=torch.profiler.schedule(wait=schedule.wait, warmup=schedule.warmup, active=schedule.active, repeat=1),
            record_shapes=args.record_shapes,
            profile_memory=args.profile_memory,
            with_stack=args.with_stack,
            acc_events=True,  # without it torch warns that a next cycle would drop the events; there is none
        )
        self.steps = schedule.steps
        self.tensor_bytes: int | None = None
        self._first_recorded, self._device, self._shown = schedule.first_recorded, device, shown
        self._counting = TensorPeak(device.inputs) if schedule.wait and not args.compile else None

    def start(self) -> None:
        """Begin with step #0."""
        self._before(0)
        super().start()
        if self._counting:
            self._counting.__enter__()

    def step(self) -> None:
        """Say that a step has ended and the next one begins."""
        if self._counting:
            self._counting.__exit__(None, None, None)
            self.tensor_bytes = self._device.input_bytes + self._counting.bytes
            self._counting = None
        self._before(self.step_num + 1)
        super().step()

    def stop(self) -> None:
        """End in any state, a failed step included."""
        if self._counting:
            self._counting.__exit__(None, None, None)
            self._counting = None
        super().stop()

    def _before(self, step: int) -> None:
        if step < self._first_recorded:
            self._shown.show(f"step {step + 1} of {self.steps}", step, self.steps)
        elif step < self.steps:
            self._shown.recorded(step, self.steps)
        if step == self._first_recorded:
            # Recording starts with this step. A kernel that is still running then would be in the trace, inside a step
            # that did not launch it.
            self._device.synchronize()
            self._shown.pause()
