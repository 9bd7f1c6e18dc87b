"""What measures a pair: the time of a step without the profiler, and the trace that a profiler holds."""

from collections.abc import Callable
import gzip
from pathlib import Path
import tempfile
import time
from typing import Any

import torch
from torch.profiler import profile

LEAST_STEPS, LEAST_S = 5, 0.25


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()


def plain_us(step: Callable[[], Any], device: str) -> float:
    """Return the time of a step without the profiler, the device synchronized at both ends only."""
    synchronize(device)
    start, steps = time.perf_counter(), 0
    while steps < LEAST_STEPS or time.perf_counter() - start < LEAST_S:
        step()
        steps += 1
    synchronize(device)
    return (time.perf_counter() - start) / steps * 1e6


def exported(profiler: profile) -> bytes:
    """Return the Chrome trace, gzipped."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        return gzip.compress(trace.read_bytes(), 6, mtime=0)
