"""What a trace tells of its run beside what torch writes: entries at its beginning, above all a step without the profiler, and
the clock by which that step is timed. The lessons write the same bytes (common/artifacts.py).
"""

from collections.abc import Callable, Sequence
import json
import statistics
import time
from typing import Any

from trace_reader.names.header_keys import PLAIN_STEP


def plain_step_us(times_us: Sequence[float], steps: int) -> dict[str, Any]:
    """Return the header entry for a step without the profiler: the median, shortest and longest of `times_us`, in microseconds.
    `steps`: the number of steps that were timed in all.
    """
    times = {"median": statistics.median(times_us), "low": min(times_us), "high": max(times_us)}
    return {PLAIN_STEP: {**{name: round(time_us, 3) for name, time_us in times.items()}, "steps": steps}}


def beginning(header: dict[str, Any]) -> bytes:
    """Return how a trace with these entries begins, up to its own first one."""
    return b"{" + json.dumps(header)[1:-1].encode() + b"," if header else b"{"


def with_header(trace: bytes, header: dict[str, Any]) -> bytes:
    """Return the Chrome trace `trace` with the entries of `header` added at its beginning."""
    return beginning(header) + trace.lstrip()[1:]


class Stopwatch:
    """Times steps that may return while the device is still at work. It calls `synchronize` before the first step and after the
    last, and not between steps.
    """

    def __init__(self, synchronize: Callable[[], None]):
        self._synchronize = synchronize
        synchronize()
        self._begun_s = time.perf_counter()

    def step_us(self, steps: int) -> float:
        """Return how long each of so many steps took since the beginning, on average (us)."""
        self._synchronize()
        return (time.perf_counter() - self._begun_s) / steps * 1e6
