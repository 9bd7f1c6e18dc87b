"""Is a step as fast after a recording as before it? On a GPU it is not, unless the profiler's library is told to let go of it.

    uv run benchmarks/after_profiling.py

Takes about two minutes: three processes of each kind, in turns. Each times the same steps before and after; what lies between
is nothing, a recording, or a recording with TEARDOWN_CUPTI=1, as the lessons set it.
"""

import argparse
import os
import subprocess
import sys
import time

import torch
from torch import nn
from torch.profiler import profile, schedule

ROUNDS, CALLS, PROCESSES = 25, 40, 3
KINDS = {"nothing": {}, "a recording": {}, "a recording, TEARDOWN_CUPTI=1": {"TEARDOWN_CUPTI": "1"}}


def rounds_us(net: nn.Module, x: torch.Tensor) -> list[float]:
    """Return the time of a step in each round, the shortest first."""
    times = []
    for _ in range(ROUNDS):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            net(x)
        torch.accelerator.synchronize()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return sorted(times)


def measure(between: str) -> None:
    """In this process: time the steps, do what is asked for, time them again."""
    net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(200))).cuda()
    x = torch.randn(8, 64, device="cuda")
    rounds_us(net, x)
    before = rounds_us(net, x)
    if between != "nothing":
        with profile(schedule=schedule(wait=1, warmup=1, active=3, repeat=1), acc_events=True) as profiler:
            for _ in range(5):
                net(x)
                profiler.step()
    after = rounds_us(net, x)
    tenth = ROUNDS // 10
    said = [f"{times[ROUNDS // 2]:.0f} us (a tenth below {times[tenth]:.0f})" for times in (before, after)]
    print(f"{between}: {said[0]} before, {said[1]} after: {after[tenth] / before[tenth]:.2f} times the fastest tenth", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--between", choices=KINDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: needs a CUDA device: on a CPU, nothing stays attached", file=sys.stderr)
        return 2
    if args.between:
        measure(args.between)
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: 200 linear layers of 64, forward", flush=True)
    for _ in range(PROCESSES):
        for between, env in KINDS.items():
            subprocess.run([sys.executable, __file__, "--between", between], env=os.environ | env, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
