"""Time each pair of unseen_pairs.py (or of unseen_pairs_N.py) without the profiler, before and after its change, in turns;
then record both.

    uv run python benchmarks/advice/record_unseen.py FOLDER [PAIR ...] [--device cuda|cpu] [--set N]

FOLDER/NAME.before.json.gz and NAME.after.json.gz are the traces, FOLDER/pairs.json what was measured, by pair. Each pair is a
process of its own, with a minute's time, in which nothing has been profiled before the times are taken. The CPU's pairs run on
two cores (OMP_NUM_THREADS, where set, says how many threads an operation takes there).
"""

import argparse
from collections.abc import Callable
import contextlib
import importlib
import json
import os
from pathlib import Path
import statistics
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from advice.timing import exported, plain_us, synchronize
from advice.unseen_pairs import Unseen
import torch
from torch.profiler import profile, record_function, schedule

ROUNDS, WARMUP_STEPS, REPETITIONS, LIMIT_S = 3, 4, 2, 60
VARIANTS = ("before", "after")
SETS = range(1, 32)


def pairs_of(number: int) -> dict[str, Unseen]:
    """Return the pairs of a set."""
    name = "advice.unseen_pairs" + f"_{number}" * (number > 1)
    pairs: dict[str, Unseen] = importlib.import_module(name).UNSEEN
    return pairs


def trace_of(pair: Unseen, step: Callable[[], Any], device: str) -> bytes:
    """Return the trace of some repetitions, recorded as the pair says, gzipped."""
    flags = {what: getattr(pair, what) for what in ("with_stack", "profile_memory", "record_shapes")}
    synchronize(device)
    if pair.recorded == "step":
        with profile(schedule=schedule(wait=1, warmup=1, active=REPETITIONS, repeat=1), acc_events=True, **flags) as profiler:
            for _ in range(2 + REPETITIONS):
                step()
                profiler.step()
            synchronize(device)
    else:
        with profile(acc_events=True, **flags) as profiler:
            for _ in range(REPETITIONS):
                with contextlib.nullcontext() if pair.recorded == "none" else record_function(pair.recorded):
                    step()
            synchronize(device)
    return exported(profiler)


def tensors_of(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result.detach().to("cpu", torch.float64)]
    if isinstance(result, (list, tuple)):
        return [tensor for part in result for tensor in tensors_of(part)]
    return [torch.tensor(float(result), dtype=torch.float64)] if isinstance(result, (int, float)) else []


def difference(before: Any, after: Any) -> float | None:
    """Return the largest difference between two results, relative to the largest value of the first; None where shapes differ."""
    largest = 0.0
    firsts, seconds = tensors_of(before), tensors_of(after)
    if len(firsts) != len(seconds):
        return None
    for first, second in zip(firsts, seconds, strict=True):
        if first.shape != second.shape:
            return None
        if first.numel():
            largest = max(largest, float((first - second).abs().max() / first.abs().max().clamp(min=1e-30)))
    return largest


def measure(pair: Unseen, device: str, folder: Path) -> None:
    """Measure a pair in this process, write what came out, and print a line."""
    start = time.perf_counter()
    name = pair.name
    steps, results = {}, {}
    for variant in VARIANTS:
        torch.manual_seed(0)
        steps[variant] = pair.build(device, variant == "after")
        torch.manual_seed(1)
        results[variant] = tensors_of(steps[variant]())
    for step in steps.values():
        for _ in range(WARMUP_STEPS):
            step()
    plain: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(ROUNDS):
        for variant, step in steps.items():
            plain[variant].append(plain_us(step, device) / 1000)
    for variant, step in steps.items():
        (folder / f"{name}.{variant}.json.gz").write_bytes(trace_of(pair, step, device))
    before, after = (statistics.median(plain[variant]) for variant in VARIANTS)
    measured = {
        "before_ms": before,
        "before_ms_range": [min(plain["before"]), max(plain["before"])],
        "after_ms": after,
        "after_ms_range": [min(plain["after"]), max(plain["after"])],
        "saved": 1 - after / before,
        "differ": difference(results["before"], results["after"]),
        "truth": pair.change,
        "names": pair.names,
        "null": pair.null,
        "kind": pair.kind,
        "recorded": {
            "mode": pair.recorded,
            "with_stack": pair.with_stack,
            "profile_memory": pair.profile_memory,
            "record_shapes": pair.record_shapes,
            "steps": REPETITIONS,
        },
        "device": "cpu" if device == "cpu" else torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    (folder / f"{name}.json").write_text(f"{json.dumps(measured, indent=1)}\n")
    differ = "shapes" if measured["differ"] is None else f"{measured['differ']:.1e}"
    print(
        f"{name}{' (null)' if pair.null else ''}: {before:.2f} -> {after:.2f} ms, saved {1 - after / before:.3f}, "
        f"differ {differ} ({time.perf_counter() - start:.0f} s)",
        flush=True,
    )


def merge(pairs: dict[str, Unseen], folder: Path) -> None:
    """Put all that the children wrote into pairs.json, in the order of the set."""
    files = {name: folder / f"{name}.json" for name in pairs}
    merged = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    (folder / "pairs.json").write_text(f"{json.dumps(merged, indent=1)}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="*", metavar="PAIR", help="by name (default: all of the set for the device)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", type=int, choices=SETS, default=1, help="2 and more: the pairs of unseen_pairs_N.py")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    pairs = pairs_of(args.set)
    unknown = [name for name in args.pairs if name not in pairs]
    if unknown:
        parser.error(f"no such pair: {', '.join(unknown)}")
    if args.child:
        measure(pairs[args.pairs[0]], args.device, args.folder)
        sys.stdout.flush()
        os._exit(0)  # threads and workers of a pair are not waited for
    environment = dict(os.environ)
    if args.device == "cpu":
        environment.setdefault("OMP_NUM_THREADS", "2")
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    failed = []
    for name, pair in pairs.items():
        if args.device not in pair.on or (args.pairs and name not in args.pairs):
            continue
        for stale in (f"{name}.json", f"{name}.before.json.gz", f"{name}.after.json.gz"):
            (args.folder / stale).unlink(missing_ok=True)
        command = [sys.executable, __file__, str(args.folder), name, "--child"]
        command += ["--device", args.device, "--set", str(args.set)]
        try:
            code = subprocess.run(command, timeout=LIMIT_S, env=environment).returncode
        except subprocess.TimeoutExpired:
            code = -1
            print(f"{name}: not done after {LIMIT_S} s", flush=True)
        if code:
            failed.append(name)
        merge(pairs, args.folder)
    print(f"failed: {', '.join(failed) or 'none'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
