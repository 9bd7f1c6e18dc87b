"""Recording a lesson: what 01_matmul_add.py writes out, torch.profiler.profile with the lesson's flags and its two artifacts."""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import sys

from common.artifacts import TABLE, Files, writing
from common.device import Device
from common.quiet import watched
from common.tensor_memory import PeakMemory
import torch
from torch.profiler import profile, schedule

WARMUP_CALLS = 3


def warm_up(step: Callable[[], object], args: argparse.Namespace, device: Device) -> None:
    """With --warmup: three plain calls of `step`, so that what happens once has happened before recording starts."""
    if args.compile and sys.stderr.isatty():
        print("compiling in the first call, which can take minutes", file=sys.stderr)
    if args.warmup:
        with watched(args, device):
            for _ in range(WARMUP_CALLS):
                step()
            device.synchronize()
    first, last = args.wait + args.schedule_warmup, args.wait + args.schedule_warmup + args.active - 1
    recorded = f"#{first}" if first == last else f"#{first}..#{last}"
    planned = f"wait {args.wait}, warmup {args.schedule_warmup}, active {args.active}"
    print(f"run: {args.run.tag}: {last + 1} steps ({planned}), recording ProfilerStep{recorded}", flush=True)


class Recording:
    """A profiler at work. `steps` gives as many turns as its schedule has; `step` tells it that one has ended. `files`: what was
    written at the end of the block.
    """

    files: Files

    def __init__(self, profiler: torch.profiler.profile, memory: PeakMemory, args: argparse.Namespace, device: Device):
        self._profiler, self._memory, self._args, self._device = profiler, memory, args, device

    @property
    def steps(self) -> Iterator[int]:
        for number in range(self._args.wait + self._args.schedule_warmup + self._args.active):
            with self._memory.of_step(number):
                yield number

    def step(self) -> None:
        if self._profiler.step_num + 1 == self._args.wait + self._args.schedule_warmup:
            self._device.synchronize()
        self._profiler.step()


@contextlib.contextmanager
def record(args: argparse.Namespace, device: Device) -> Iterator[Recording]:
    """Record what the block runs: `for _ in profiler.steps: step(); profiler.step()`. At its end the trace and the table are
    written.

    Raises LessonError when the device runs out of memory, torch.compile finds no compiler, or an artifact cannot be written.
    """
    memory = PeakMemory(args, device)
    with watched(args, device):
        device.synchronize()
        with profile(
            activities=device.activities(),
            schedule=schedule(wait=args.wait, warmup=args.schedule_warmup, active=args.active, repeat=1),
            record_shapes=args.record_shapes,
            profile_memory=args.profile_memory,
            with_stack=args.with_stack,
            acc_events=True,
        ) as profiler:
            recording = Recording(profiler, memory, args, device)
            yield recording
        with writing(args, device, memory.peak) as recording.files:
            files = recording.files
            profiler.export_chrome_trace(str(files.trace))
            averages = profiler.key_averages(group_by_input_shape=args.record_shapes)
            files.table.write_text(averages.table(sort_by=device.sort_by, **TABLE))
