"""What a step takes without the profiler, which lengthens what it records."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
import math
import time

from common.device import Device
from common.quiet import watched
import torch

ROUNDS = 3
ROUND_S = 0.07  # of each round, where steps are short
IN_A_JOB = 5  # steps of a round where other ranks take part: all must call the step equally often


@dataclass(frozen=True)
class PlainStep:
    """The time of a step in us: the median of some rounds, and the shortest and the longest of them. `steps`: of all rounds."""

    median_us: float
    low_us: float
    high_us: float
    steps: int

    def as_header(self) -> dict[str, dict[str, float]]:
        """Return the entry of the trace's header, as trace_reader.recording.header has it."""
        times = {"median": self.median_us, "low": self.low_us, "high": self.high_us}
        return {"plain_step_us": {**{name: round(time_us, 3) for name, time_us in times.items()}, "steps": self.steps}}


def time_plain_steps(
    step: Callable[[], object], args: argparse.Namespace, device: Device, most: int | None = None
) -> PlainStep | None:
    """Time the step without the profiler; None with --no-plain. `most`: how often it can be called, where that is limited.

    Two calls are not timed by themselves: the first, and one that says how many make a round, at least two. The device is
    synchronized only at both ends of a round, so that the CPU can run ahead as it does in a real run.
    """
    if not args.plain:
        return None
    with watched(args, device):
        step()
        first_s = _timed(step, 1, device)
        calls = max(2, math.ceil(ROUND_S / first_s))
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            calls = IN_A_JOB
        if most is not None:
            calls = max(1, (most - 2) // ROUNDS)
        low_s, median_s, high_s = sorted(_timed(step, calls, device) / calls for _ in range(ROUNDS))
    return PlainStep(median_s * 1e6, low_s * 1e6, high_s * 1e6, ROUNDS * calls)


def _timed(step: Callable[[], object], calls: int, device: Device) -> float:
    """Return how long so many calls take, in seconds."""
    device.synchronize()
    start_s = time.perf_counter()
    for _ in range(calls):
        step()
    device.synchronize()
    return time.perf_counter() - start_s
