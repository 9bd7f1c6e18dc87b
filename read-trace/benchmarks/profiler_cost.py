"""What the profiler costs: the same programs plain and recorded, in turns, with several flags of the profiler.

    uv run read-trace/benchmarks/profiler_cost.py

Takes about three minutes. Prints a table: of each program the time of a step without the profiler, how many times as long it is
when it is recorded, and with shapes recorded what the trace says limits it, how long the GPU is busy of the plain step, and
what the reader estimates of the plain step from the trace alone. Then, of each program that the GPU does not limit, what each
function of Python cost that stacks recorded besides, and each allocation or free that memory did: the prices of
trace_reader/analysis/replay/plain_run.py. At last, how many times these prices the programs with shapes paid on this host: what
--json keeps is a file by which the reader prices a trace that it lies beside, as profiler_cost.json.
"""

import argparse
from collections.abc import Callable
import datetime
import json
import os
from pathlib import Path
import statistics
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import msgspec
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import profile, schedule
from trace_reader import Facts, analyze, load, us, write_all
from trace_reader.analysis.replay.cost_factor import cost_factor, host_prices
from trace_reader.recording.header import plain_step_us

Step = Callable[[], object]
ROUNDS, ROUND_S, ACTIVE = 5, 0.1, 5
LEAST = 10  # functions or allocations of a step, of fewer no price is told
FLAGS: dict[str, dict[str, Any]] = {
    "no flags": {},
    "shapes": {"record_shapes": True},
    "shapes, stack": {"record_shapes": True, "with_stack": True},
    "shapes, memory": {"record_shapes": True, "profile_memory": True},
    "all": {"record_shapes": True, "with_stack": True, "profile_memory": True, "with_modules": True},
}
DEARER_BY = {"functions": "shapes, stack", "allocations": "shapes, memory"}  # what is counted, and the flags that record it


def matmul_add(size: int) -> Callable[[str], Step]:
    def build(device: str) -> Step:
        x, w, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(3))
        return lambda: torch.add(torch.matmul(x, w), b)

    return build


def gated_mlp(tokens: int) -> Callable[[str], Step]:
    def build(device: str) -> Step:
        x = torch.randn(tokens, 768, device=device, dtype=torch.bfloat16)
        gate, up, down = (
            torch.randn(shape, device=device, dtype=torch.bfloat16) for shape in ((3072, 768), (3072, 768), (768, 3072))
        )
        return lambda: F.linear(F.gelu(F.linear(x, gate), approximate="tanh") * F.linear(x, up), down)

    return build


def forward(layers: int, size: int) -> Callable[[str], Step]:
    def build(device: str) -> Step:
        net = nn.Sequential(*(nn.Linear(size, size) for _ in range(layers))).to(device)
        x = torch.randn(32, size, device=device)

        @torch.no_grad()
        def step():
            return net(x)

        return step

    return build


def training(layers: int, size: int) -> Callable[[str], Step]:
    def build(device: str) -> Step:
        net = nn.Sequential(*(nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.GELU()) for _ in range(layers))).to(
            device
        )
        x, optimizer = torch.randn(512, size, device=device), torch.optim.AdamW(net.parameters())

        def step():
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()

        return step

    return build


def python_between(calls: int) -> Callable[[str], Step]:
    def add(total: int, n: int) -> int:
        return total + n

    def build(device: str) -> Step:
        x = torch.randn(64, 64, device=device)

        def step():
            total = 0
            for n in range(calls):
                total = add(total, n)
            return x + total

        return step

    return build


PROGRAMS: dict[str, Callable[[str], Step]] = {
    "01: matmul and add, 64": matmul_add(64),
    "01: matmul and add, 1024": matmul_add(1024),
    "01: matmul and add, 2048": matmul_add(2048),
    "01: matmul and add, 4096": matmul_add(4096),
    "03: gated MLP, 512 tokens": gated_mlp(512),
    "03: gated MLP, 8192 tokens": gated_mlp(8192),
    "100 linear layers, forward": forward(100, 64),
    "16 layers, training": training(16, 512),
    "1,000 functions of Python": python_between(1000),
}


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()


def plain_us(step: Step, device: str) -> float:
    """Return the time of a step without the profiler."""
    for _ in range(3):
        step()
    synchronize(device)
    start, steps = time.perf_counter(), 0
    while steps < 5 or time.perf_counter() - start < ROUND_S:
        step()
        steps += 1
    synchronize(device)
    return (time.perf_counter() - start) / steps * 1e6


def recorded(step: Step, device: str, flags: dict[str, Any], plain_us: float) -> tuple[Facts, dict[str, float], float | None]:
    """Return what the reader says of some recorded steps, how many functions of Python and allocations and frees a step has, and
    how many times the usual prices explain a plain step.
    """
    with profile(schedule=schedule(wait=1, warmup=1, active=ACTIVE, repeat=1), acc_events=True, **flags) as profiler:
        for number in range(2 + ACTIVE):
            if number == 2:
                synchronize(device)
            step()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = load(str(path))
        counts = {"functions": len(trace.functions_ns) / ACTIVE, "allocations": len(trace.memory) / ACTIVE}
        measured = msgspec.structs.replace(trace, header={**trace.header, **plain_step_us([plain_us], ACTIVE)})
        return analyze(trace), counts, cost_factor(measured)


def measure(
    build: Callable[[str], Step], device: str
) -> tuple[list[float], dict[str, list[Facts]], dict[str, float], list[float]]:
    """Return the plain times, what the reader says by flags, what a step has of what is counted, and the factors of `shapes`."""
    step = build(device)
    times, facts, factors = [], {flags: [] for flags in FLAGS}, []  # type: ignore[var-annotated]
    counts: dict[str, float] = {}
    for _ in range(ROUNDS):
        times.append(plain_us(step, device))
        for flags, given in FLAGS.items():
            found, counted, factor = recorded(step, device, given, times[-1])
            facts[flags].append(found)
            counts |= {what: n for what, n in counted.items() if DEARER_BY[what] == flags}
            if flags == "shapes" and factor is not None:
                factors.append(factor)
    return times, facts, counts, factors


def period_us(facts: list[Facts]) -> float:
    return statistics.median(f.step_period_us or 0 for f in facts)


def price_us(facts: dict[str, list[Facts]], counts: dict[str, float], what: str) -> float | None:
    """Return what each of these cost besides; None where there are too few, or the GPU limits the step."""
    limited = any(f.recorded_verdict == "gpu-bound" for f in facts["shapes"])
    besides_us = period_us(facts[DEARER_BY[what]]) - period_us(facts["shapes"])
    return besides_us / counts[what] if counts[what] >= LEAST and not limited else None


def row(name: str, times: list[float], facts: dict[str, list[Facts]]) -> list[str]:
    """Return a line of the table: medians of the rounds."""
    plain = statistics.median(times)
    more = [f"{period_us(facts[flags]) / plain:.2f}" for flags in FLAGS]
    # The round whose step is the median: its verdict, and its estimate.
    middle = sorted(facts["shapes"], key=lambda f: f.step_period_us or 0)[ROUNDS // 2]
    busy = [step.gpu_busy_us for step in middle.steps if step.gpu_busy_us is not None]
    share = f"{statistics.mean(busy) / plain:.2f}" if busy else "-"
    low, high = middle.plain.low_us, middle.plain.high_us
    estimate = "-" if low is None or high is None else f"{us(low)} to {us(high)}{'' if low <= plain <= high else ' (outside)'}"
    return [
        name,
        f"{us(plain)} ({min(times) / plain:.2f} to {max(times) / plain:.2f})",
        *more,
        middle.recorded_verdict,
        share,
        estimate,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="keep the numbers there, too")
    args = parser.parse_args()
    # Else the steps after the first recording would pay for what it has attached to the GPU.
    os.environ.setdefault("TEARDOWN_CUPTI", "1")
    name = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}: medians of {ROUNDS} rounds; times as long as the plain step\n")
    head = ["program", "plain step (rounds)", *FLAGS, "recorded verdict", "GPU busy / plain", "estimated from the trace"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    kept, prices, factors = {}, {what: {} for what in DEARER_BY}, []  # type: ignore[var-annotated]
    for program, build in PROGRAMS.items():
        times, facts, counts, of_program = measure(build, args.device)
        factors += [statistics.median(of_program)] if of_program else []
        print(f"| {' | '.join(row(program, times, facts))} |", flush=True)
        kept[program] = {"plain_us": times, **{flags: [f.step_period_us for f in of] for flags, of in facts.items()}, **counts}
        for what, each in prices.items():
            if (price := price_us(facts, counts, what)) is not None:
                each[program] = price
    for what, each in prices.items():
        listed = ", ".join(f"{program} {price:.2f} ({kept[program][what]:.0f} a step)" for program, price in each.items())
        print(f"\n{what}, us each: {listed or 'too few'}", flush=True)
    host = host_prices("CPU" if args.device == "cpu" else name, factors)
    print(
        f"\nthe prices, how often: {host.factor:.2f}, by {host.recordings} programs"
        if host
        else "\nthe prices, how often: too few"
    )
    if args.json:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        hosts = msgspec.to_builtins([host] if host else [])
        found = {"device": name, "torch": torch.__version__, "date": date, "hosts": hosts, "programs": kept}
        write_all({args.json: f"{json.dumps(found, indent=1)}\n".encode()})


if __name__ == "__main__":
    main()
