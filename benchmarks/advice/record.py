"""Time each pair of pairs.py without the profiler, before and after its change, in turns; then record both.

    uv run benchmarks/advice/record.py FOLDER [PAIR ...]

Takes some fifteen minutes on a GPU. FOLDER/<pair>.json holds the times, FOLDER/<pair>_<before|after>.json.gz the traces, and
FOLDER/<pair>_before_<stacks|memory>.json.gz the step before its change, recorded with more flags; ledger.py
then puts what the reader says of them beside what was measured. Each pair is a process of its own, in which nothing has been
profiled before the times are taken: on a GPU, what the profiler has once attached goes on
costing time when the recording is over.
"""

import argparse
import datetime
import json
from pathlib import Path
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from advice.pairs import PAIRS, Step
from advice.timing import exported, plain_us, synchronize
import torch
from torch.profiler import profile, schedule
from trace_reader import write_all

ROUNDS, WARMUP_STEPS, ACTIVE = 5, 4, 4
MORE = {"stacks": {"with_stack": True}, "memory": {"profile_memory": True}}  # flags of further recordings


def recorded(step: Step, device: str, with_stack: bool = False, profile_memory: bool = False) -> tuple[float, bytes]:
    """Return some steps under the profiler: the time of one in us, and their trace, gzipped."""
    plan = schedule(wait=1, warmup=1, active=ACTIVE, repeat=1)
    with profile(
        schedule=plan, acc_events=True, record_shapes=True, with_stack=with_stack, profile_memory=profile_memory
    ) as profiler:
        for number in range(2 + ACTIVE):
            if number == 2:
                synchronize(device)
                start = time.perf_counter()
            step()
            if number == 1 + ACTIVE:
                synchronize(device)
                recorded_us = (time.perf_counter() - start) / ACTIVE * 1e6
            profiler.step()
    return recorded_us, exported(profiler)


def measure(name: str, device: str, folder: Path) -> None:
    """Measure a pair in this process, write what came out, and print a line."""
    start = time.perf_counter()
    steps = {}
    for variant in ("before", "after"):
        torch.manual_seed(0)
        steps[variant] = PAIRS[name].build(device, variant == "after")
    for step in steps.values():
        for _ in range(WARMUP_STEPS):
            step()
    plain: dict[str, list[float]] = {variant: [] for variant in steps}
    for _ in range(ROUNDS):
        for variant, step in steps.items():
            plain[variant].append(plain_us(step, device))
    recorded_us, traces = {}, {}
    for variant, step in steps.items():
        recorded_us[variant], trace = recorded(step, device)
        traces[folder / f"{name}_{variant}.json.gz"] = trace
    for what, flags in MORE.items():
        _, traces[folder / f"{name}_before_{what}.json.gz"] = recorded(steps["before"], device, **flags)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    measured = {
        "device": device, "torch": torch.__version__, "date": date, "plain_us": plain, "recorded_us": recorded_us
    }  # fmt: skip
    write_all({folder / f"{name}.json": f"{json.dumps(measured, indent=1)}\n".encode(), **traces})
    before, after = (statistics.median(plain[variant]) for variant in ("before", "after"))
    print(
        f"{name}: {before / 1000:.2f} -> {after / 1000:.2f} ms, gain {1 - after / before:.2f}, recorded "
        f"{recorded_us['before'] / before:.2f} times ({time.perf_counter() - start:.0f} s)",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="*", metavar="PAIR", help=", ".join(PAIRS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    wanted = [name for name, pair in PAIRS.items() if args.device in pair.on and (not args.pairs or name in args.pairs)]
    if len(wanted) == 1:
        measure(wanted[0], args.device, args.folder)
        return 0
    failed = 0
    for name in wanted:
        done = subprocess.run([sys.executable, __file__, str(args.folder), name, "--device", args.device])
        failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
