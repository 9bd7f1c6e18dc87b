"""What it costs a step that `handler(slow=1.5)` waits for slow ones: with it and without, in turns, a process each.

    uv run read-trace/benchmarks/slow_steps.py

Prints for each length of a step the median over processes without it, and how many times as long the median with it is (least and
most of the pairs). Nothing is slow enough (slow=50) to be recorded.
"""

import argparse
import contextlib
import os
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
PAIRS, STEPS = 7, 400
OPS = (10, 50, 500)  # of a step: additions of 64 x 64, each of some us


def time_step_us(ops: int, slow: bool) -> float:
    """Return the median of a step's time, from its beginning to the next one's."""
    import torch
    from torch.profiler import profile
    from trace_reader import handler

    x = torch.ones(64, 64, device="cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        own = handler(folder, slow=50, report=False)
        profiler = stack.enter_context(profile(schedule=own.schedule(), on_trace_ready=own)) if slow else None
        begun_s = []
        for _ in range(STEPS):
            begun_s.append(time.perf_counter())
            for _ in range(ops):
                torch.add(x, x)
            if profiler is not None:
                profiler.step()
        assert not own.written
    return statistics.median(b - a for a, b in zip(begun_s[STEPS // 4 :], begun_s[STEPS // 4 + 1 :], strict=False)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, metavar=("OPS", "SLOW"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(time_step_us(int(args.one[0]), args.one[1] == "1"))
        return
    print("| ops | step | with it, times as long |\n|---|---|---|", flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    for ops in OPS:
        pairs = []
        for _ in range(PAIRS):
            pair = []
            for slow in "01":
                command = [sys.executable, __file__, "--one", str(ops), slow]
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
                pair.append(float(done.stdout.splitlines()[-1]))
            pairs.append(pair)
        ratios = [with_it / without for without, with_it in pairs]
        without_us = statistics.median(without for without, _ in pairs)
        print(
            f"| {ops} | {without_us:.1f} us | {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
