"""Recording a lesson: torch.profiler.profile with the lesson's flags. With torch alone it is in the README ("The same in plain
torch"); `record` adds what is in common/watch, times the step without the profiler (common/plain_step.py), and writes the two
artifacts (common/artifacts.py).
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import os

from common.artifacts import export, write
from common.device import Device
from common.plain_step import PlainStep
from common.summary import print_summary
from common.watch.run import WARMUP_CALLS, Watch, watched
import torch


def warm_up(step: Callable[[], object], args: argparse.Namespace, device: Device) -> None:
    """With --warmup: three plain calls of `step`, so that what happens once has happened before recording starts."""
    if not args.warmup:
        return
    with watched(args, device) as progress:
        for done in range(WARMUP_CALLS):
            compiling = " (torch.compile compiles in the first)" if args.compile else ""
            progress.show(f"warm-up call {done + 1} of {WARMUP_CALLS}{compiling}", done, WARMUP_CALLS)
            step()
        device.synchronize()


@contextlib.contextmanager
def record(args: argparse.Namespace, device: Device, plain_steps: int | None = None) -> Iterator["Profiler"]:
    """Record what the block runs: `for _ in profiler.steps: step(); profiler.step()`.

    At its end the trace and the table are written, and what they say is printed. `plain_steps`: how often the step is
    called without the profiler, where it cannot be called any number of times. Raises LessonError when the device runs out
    of memory, torch.compile finds no compiler, an artifact cannot be written, or a GPU was used and none of its events was
    recorded (the artifacts are kept then).
    """
    # Else what the profiler has attached to a CUDA device stays, and each launch goes on costing more when nothing is recorded.
    os.environ.setdefault("TEARDOWN_CUPTI", "1")
    with Watch(args, device) as watch:
        profiler = Profiler(args, device, watch, plain_steps)
        # Not as a context manager: in the middle of a failed step, stop() can raise an error of its own, which would hide
        # the step's. Left running, the profiler crashes the process at its end.
        profiler.start()
        try:
            yield profiler
        except BaseException:
            if profiler.has_recorded:  # what failed is a step after the recording: that is kept
                write(export(profiler, None, watch.peak_memory, args, device), args)
            with contextlib.suppress(Exception):
                profiler.stop()
            raise
        profiler.stop()
        watch.ends()
        artifacts = export(profiler, profiler.plain_step, watch.peak_memory, args, device)
    write(artifacts, args)
    print_summary(artifacts, args, device)


class Profiler(torch.profiler.profile):
    """torch.profiler.profile with the lesson's flags. `plain_step` is what a step takes without it, where that was measured;
    `has_recorded`: whether all steps of the schedule are over.
    """

    def __init__(self, args: argparse.Namespace, device: Device, watch: Watch, plain_steps: int | None):
        super().__init__(
            activities=device.activities(),
            schedule=torch.profiler.schedule(wait=args.wait, warmup=args.schedule_warmup, active=args.active, repeat=1),
            record_shapes=args.record_shapes,
            profile_memory=args.profile_memory,
            with_stack=args.with_stack,
            acc_events=True,  # without it torch warns that a next cycle would drop the events; there is none
        )
        self.plain_step: PlainStep | None = None
        self._args, self._device, self._watch, self._plain_steps = args, device, watch, plain_steps
        self._is_running = False
        self.has_recorded = False

    @property
    def steps(self) -> Iterator[None]:
        """As often as the step is to be called: first for the schedule, then, with the profiler stopped, to be timed."""
        for _ in range(self._args.wait + self._args.schedule_warmup + self._args.active):
            yield
        self.stop()
        self.has_recorded = True
        if self._args.plain:
            self._watch.timing()
            self.plain_step = yield from PlainStep.measure(self._device, self._plain_steps)

    def start(self) -> None:
        """Begin with step #0."""
        self._watch.step_begins(0)
        self._is_running = True
        super().start()

    def step(self) -> None:
        """Say that a step has ended and the next one begins; of the steps that are not recorded, nothing."""
        if self._is_running:
            self._watch.step_begins(self.step_num + 1)
            super().step()

    def stop(self) -> None:
        """End the recording; once it has ended, nothing."""
        if self._is_running:
            self._is_running = False
            super().stop()
