"""What a step takes without the profiler, which lengthens what it records."""

from collections.abc import Generator
from dataclasses import dataclass
import math
import time

from common.device import Device
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

    @staticmethod
    def measure(device: Device, steps: int | None = None) -> Generator[None, None, "PlainStep"]:
        """To be asked for one value after the other, with a call of the step after each, until it returns.

        Two calls are not timed by themselves: the first, and one that says how many make a round, at least two; with `steps`, all
        calls together are so many at most, on every machine. The device is synchronized only at both ends of a round, so that the
        CPU can run ahead as it does in a real run.
        """
        yield
        device.synchronize()
        start = time.perf_counter()
        yield
        device.synchronize()
        calls = max(2, math.ceil(ROUND_S / (time.perf_counter() - start)))
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            calls = IN_A_JOB
        if steps is not None:
            calls = max(1, (steps - 2) // ROUNDS)
        times_us = []
        for _ in range(ROUNDS):
            device.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                yield
            device.synchronize()
            times_us.append((time.perf_counter() - start) / calls * 1e6)
        low_us, median_us, high_us = sorted(times_us)
        return PlainStep(median_us, low_us, high_us, ROUNDS * calls)
