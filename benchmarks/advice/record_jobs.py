"""Time each job of unseen_jobs.py on two ranks without the profiler, before and after its change; then record both.

    python3 benchmarks/advice/record_jobs.py OUT [--only NAME ...] [--backend nccl|gloo] [--limit_s 90]

OUT/NAME.before.rank0.json.gz, NAME.before.rank1.json.gz and NAME.after... are the traces, OUT/pairs.json what was measured, by
job: of the slowest rank, in ms. Two processes run all jobs, over NCCL on a GPU each; over Gloo on the CPU, in tiny sizes, only to
try the programs. A job that fails is told of on stderr and left out. Where one rank waits for another for TIMEOUT_S, or --limit_s
is over, the run ends with what is there. Jobs in OUT/pairs.json that are not run again stay in it.
"""

import argparse
from collections.abc import Callable
from datetime import timedelta
import gc
import json
import os
from pathlib import Path
import re
import socket
import statistics
import sys
import time
import traceback
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from advice.timing import exported
from advice.unseen_jobs import JOBS, Build, Job, Place, Step
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

RANKS, WARMUP_STEPS, GUESS_STEPS, STRETCHES, ACTIVE_STEPS = 2, 3, 2, 3, 3
LEAST_STEPS, LEAST_S, MOST_S = 10, 0.3, 1.0
TIMEOUT_S = 20
VARIANTS = ("before", "after")
LOST = re.compile("timed? ?out|connection (closed|reset|refused)|broken pipe", re.IGNORECASE)


class OtherFailed(Exception):
    """The other rank failed in this variant, and waits for this one where all agree on that."""


class Lost(Exception):
    """The ranks no longer make the same collectives: the run is over."""


class Ranks:
    """What the ranks agree on, over Gloo and the CPU, so that it neither waits for a GPU nor shows among a job's collectives."""

    def __init__(self) -> None:
        # Later than the jobs' own group, so that a rank that waited there in vain can still tell.
        self.group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=2 * TIMEOUT_S))

    def most(self, number: float = 0, failed: bool = False, lost: bool = False) -> float:
        """Return the largest number that a rank has, once all ranks are here; raise where one comes to tell of a failure."""
        largest = torch.tensor([number, failed, lost], dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        if largest[2]:
            raise Lost("the ranks lost each other")
        if largest[1] and not failed:
            raise OtherFailed
        return float(largest[0])


def say(place: Place, text: str) -> None:
    if place.rank == 0:
        print(text, file=sys.stderr, flush=True)


def synchronize(place: Place) -> None:
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)


def stretch_s(step: Step, steps: int, place: Place, ranks: Ranks) -> float:
    """Return the seconds of some steps on the slowest rank, all ranks starting together."""
    synchronize(place)
    ranks.most()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize(place)
    return ranks.most(time.perf_counter() - start)


def timed_ms(step: Step, place: Place, ranks: Ranks) -> tuple[list[float], int]:
    """Return the time of a step in each stretch, and the number of steps in all of them."""
    guess = stretch_s(step, GUESS_STEPS, place, ranks) / GUESS_STEPS
    wanted = min(max(LEAST_STEPS, LEAST_S / guess), MOST_S / guess)
    steps = max(1, round(wanted / STRETCHES))
    return [stretch_s(step, steps, place, ranks) / steps * 1000 for _ in range(STRETCHES)], STRETCHES * steps


def trace_of(step: Step, place: Place, ranks: Ranks) -> bytes:
    """Return the trace of ACTIVE_STEPS steps, gzipped."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (place.device.type == "cuda")
    cycle = schedule(wait=0, warmup=1, active=ACTIVE_STEPS, repeat=1)
    synchronize(place)
    ranks.most()
    with profile(activities=activities, schedule=cycle, record_shapes=True, acc_events=True) as profiler:
        for _ in range(1 + ACTIVE_STEPS):
            step()
            profiler.step()
        synchronize(place)
    return exported(profiler)


def measure(build: Build, place: Place, ranks: Ranks, trace: Path) -> dict[str, Any]:
    """Return what was measured of one variant, whose trace is written."""
    torch.manual_seed(0)
    step = build(place)
    results = [step() for _ in range(WARMUP_STEPS)]
    result = float(results[-1])
    times, steps = timed_ms(step, place, ranks)
    peak = torch.cuda.max_memory_allocated(place.device) if place.device.type == "cuda" else 0
    trace.write_bytes(trace_of(step, place, ranks))
    return {"ms": statistics.median(times), "range": [min(times), max(times)], "steps": steps, "result": result, "peak": peak}


def free(place: Place) -> None:
    gc.collect()
    if place.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(place.device)


def tried(build: Build, place: Place, ranks: Ranks, trace: Path) -> dict[str, Any] | None:
    """Return what was measured of one variant, or None, on all ranks alike, where it failed on one; all of it is freed."""
    measured, failed, lost, told = None, False, False, False
    try:
        measured = measure(build, place, ranks, trace)
    except Lost:
        raise
    except OtherFailed:
        told = True
    except Exception as error:
        failed = True
        lost = isinstance(error, dist.DistError) or LOST.search(str(error)) is not None
        print(f"rank {place.rank}: {traceback.format_exc()}", file=sys.stderr, flush=True)
    free(place)
    synchronize(place)  # none of this variant's collectives is under way now; else TIMEOUT_S ends the run
    try:
        if not told:
            ranks.most(failed=failed, lost=lost)
    except OtherFailed:
        measured = None
    return measured


def pair_of(job: Job, before: dict[str, Any], after: dict[str, Any], place: Place) -> dict[str, Any]:
    cuda = place.device.type == "cuda"
    return {
        "before_ms": before["ms"],
        "before_ms_range": before["range"],
        "before_steps_timed": before["steps"],
        "after_ms": after["ms"],
        "after_ms_range": after["range"],
        "after_steps_timed": after["steps"],
        "saved": 1 - after["ms"] / before["ms"],
        "differ": abs(after["result"] - before["result"]) / max(abs(before["result"]), 1e-30),
        "truth": job.truth,
        "names": job.names,
        "null": job.null,
        "kind": job.kind,
        "recorded": {"mode": "step", "with_stack": False, "record_shapes": True, "steps": ACTIVE_STEPS, "ranks": place.ranks},
        "device": f"{place.ranks} x {torch.cuda.get_device_name(place.device)}" if cuda else f"{place.ranks} x cpu",
        "torch": torch.__version__,
    }


def run_jobs(place: Place, ranks: Ranks, folder: Path, names: list[str], over: Callable[[], bool]) -> None:
    """Measure the jobs one after another, and write pairs.json after each."""
    file = folder / "pairs.json"
    pairs: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    pairs = {name: pair for name, pair in pairs.items() if name not in names}
    for name in names:
        start = time.perf_counter()
        if ranks.most(over()):
            say(place, f"{name}: not run, the time is over")
            continue
        job, measured = JOBS[name], []
        traces = [folder / f"{name}.{variant}.rank{place.rank}.json.gz" for variant in VARIANTS]
        for trace in traces:
            trace.unlink(missing_ok=True)
        for build, trace in zip((job.before, job.after), traces, strict=True):
            found = tried(build, place, ranks, trace)
            if found is None:
                break
            measured.append(found)
        if len(measured) < len(VARIANTS):
            say(place, f"{name}: failed, left out")
            for trace in traces:
                trace.unlink(missing_ok=True)
            continue
        pairs[name] = pair = pair_of(job, measured[0], measured[1], place)
        if place.rank == 0:
            file.write_text(f"{json.dumps(pairs, indent=1)}\n")
        ms, peak_gb = f"{pair['before_ms']:.2f} -> {pair['after_ms']:.2f} ms", max(found["peak"] for found in measured) / 1e9
        spent = f"peak {peak_gb:.1f} GB, {time.perf_counter() - start:.1f} s"
        say(place, f"{name}: {ms}, saved {pair['saved']:.3f}, differ {pair['differ']:.1e} ({spent})")


def rank_main(rank: int, backend: str, folder: Path, names: list[str], start: float, limit_s: float) -> None:
    """Be one of the ranks: spawned by main."""
    cuda = backend == "nccl"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=TIMEOUT_S),
        device_id=device if cuda else None,
    )
    ranks = Ranks()
    place = Place(rank, RANKS, device, init_device_mesh(device.type, (RANKS,)), tiny=not cuda)
    warm = torch.ones(1, device=device)
    # The first profile of a process is slow to start, and leaves hooks: all jobs are timed after it, none before.
    trace_of(lambda: warm + 1, place, ranks)
    dist.all_reduce(warm)
    synchronize(place)
    say(place, f"ready after {time.time() - start:.0f} s")
    run_jobs(place, ranks, folder, names, lambda: time.time() > start + limit_s)
    dist.destroy_process_group()


def main() -> int:
    start = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=tuple(JOBS), metavar="NAME", default=list(JOBS), help=", ".join(JOBS))
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl" if torch.cuda.is_available() else "gloo")
    parser.add_argument("--limit_s", type=float, default=90, help="no job is begun after so many seconds (default: 90)")
    args = parser.parse_args()
    names = [name for name in JOBS if name in args.only]
    for name in [name for name in names if args.backend not in JOBS[name].on]:
        print(f"{name}: skipped, it does not run on {args.backend}", file=sys.stderr, flush=True)
        names.remove(name)
    args.out.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free_port:
        free_port.bind(("127.0.0.1", 0))
        port = free_port.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")  # a rank that waited in vain ends at once
    context = mp.spawn(rank_main, (args.backend, args.out, names, start, args.limit_s), RANKS, join=False)
    code = 0
    try:
        while not context.join(timeout=1):
            if time.time() > start + args.limit_s + 2 * TIMEOUT_S:
                raise TimeoutError("a rank has not ended")
    except Exception as error:
        code = 1
        print(f"the run ended early: {error}", file=sys.stderr, flush=True)
        for process in context.processes:
            process.kill()
    print(f"wrote {args.out / 'pairs.json'} ({time.time() - start:.0f} s)", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
