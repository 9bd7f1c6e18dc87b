"""Recording a lesson: torch.profiler.profile with the lesson's flags. With torch alone it is in the README ("The same in plain
torch"); `record` adds what is in common/watch, and writes the two artifacts (common/artifacts.py).
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib

from common.artifacts import export, write
from common.device import Device
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
def record(args: argparse.Namespace, device: Device) -> Iterator["Profiler"]:
    """Record what the block runs: `for _ in range(profiler.steps): step(); profiler.step()`.

    At its end the trace and the table are written, and what they say is printed. Raises LessonError when the device runs out
    of memory, torch.compile finds no compiler, an artifact cannot be written, or a GPU was used and none of its events was
    recorded (the artifacts are kept then).
    """
    with Watch(args, device) as watch:
        profiler = Profiler(args, device, watch)
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
        watch.ends()
        artifacts = export(profiler, watch.peak_memory, args, device)
    write(artifacts, args)
    print_summary(artifacts, args, device)


class Profiler(torch.profiler.profile):
    """torch.profiler.profile with the lesson's flags; `steps` is how many times the step is to be called."""

    def __init__(self, args: argparse.Namespace, device: Device, watch: Watch):
        super().__init__(
            activities=device.activities(),
            schedule=torch.profiler.schedule(wait=args.wait, warmup=args.schedule_warmup, active=args.active, repeat=1),
            record_shapes=args.record_shapes,
            profile_memory=args.profile_memory,
            with_stack=args.with_stack,
            acc_events=True,  # without it torch warns that a next cycle would drop the events; there is none
        )
        self.steps = args.wait + args.schedule_warmup + args.active
        self._watch = watch

    def start(self) -> None:
        """Begin with step #0."""
        self._watch.step_begins(0)
        super().start()

    def step(self) -> None:
        """Say that a step has ended and the next one begins."""
        self._watch.step_begins(self.step_num + 1)
        super().step()
