"""Record the lessons on several GPUs, each in several processes of the launcher, for docs/several_gpus.md.

    uv run gallery/jobs.py --out gallery/several_gpus --runs 4 [NAME ...]

Of each command the first run's traces are kept, one for each rank, and of all runs what a step takes, in spread_DATE.json. Needs
a machine with as many GPUs as --ranks (2).
"""

import argparse
import datetime
import json
from pathlib import Path
import platform
import subprocess
import sys
import tempfile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from trace_reader import read, read_job, write_all  # noqa: E402

COMMANDS = {
    "data_parallel_1mb": ("06_a_data_parallel.py", "--bucket_mb", "1"),
    "data_parallel_25mb": ("06_a_data_parallel.py",),
    "data_parallel_1000mb": ("06_a_data_parallel.py", "--bucket_mb", "1000"),
    "data_parallel_slow5": ("06_a_data_parallel.py", "--slow_rank", "1"),
    "data_parallel_slow30": ("06_a_data_parallel.py", "--slow_rank", "1", "--slow_ms", "30"),
    "data_parallel_accumulate": ("06_a_data_parallel.py", "--accumulate", "2"),
    "data_parallel_each_pass": ("06_a_data_parallel.py", "--accumulate", "2", "--reduce_each_pass"),
    "data_parallel_slow_host": ("06_a_data_parallel.py", "--slow_rank", "1", "--slow_host"),
    "sharded": ("06_b_sharded.py",),
    "sharded_kept": ("06_b_sharded.py", "--no-reshard_after_forward"),
    "tensor_parallel": ("06_c_tensor_parallel.py",),
    "sequence_parallel": ("06_c_tensor_parallel.py", "--sequence_parallel"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these recordings (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="folder of what is kept")
    parser.add_argument("--runs", type=int, default=4, help="of each command (default: 4)")
    parser.add_argument("--ranks", type=int, default=2, help="processes, one a GPU (default: 2)")
    args = parser.parse_args()
    if torch.cuda.device_count() < args.ranks:
        raise SystemExit(
            f"this needs {args.ranks} GPUs, and finds {torch.cuda.device_count()}; gallery/several_gpus/ holds a run of each"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "nccl": list(torch.cuda.nccl.version()),
               "python": platform.python_version(), "ranks": args.ranks}  # fmt: skip
    found: dict[str, list[dict[str, object]]] = {name: [] for name in args.names or COMMANDS}
    for number in range(args.runs):  # all of them, then all again: what drifts touches all alike
        for name in found:
            found[name].append(record(name, COMMANDS[name], args, keep=number == 0))
            print(name, number + 1, found[name][-1], flush=True)
            spread = json.dumps({"machine": machine, "runs": found}, indent=1) + "\n"
            write_all({args.out / f"spread_{date}.json": spread.encode()})


def record(name: str, command: tuple[str, ...], args: argparse.Namespace, keep: bool) -> dict[str, object]:
    """Run a lesson; what a step takes, in us, of the slowest rank."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(args.ranks)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*launch, *command, "--gz", "--trace_dir", folder], cwd=ROOT, capture_output=True, text=True, check=False
        )
        traces = sorted(Path(folder).glob("*_rank*.json.gz"))
        if done.returncode or len(traces) != args.ranks:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        job, _ = read_job(list(map(str, traces)))
        periods_us = [read(str(trace)).step_period_us or 0.0 for trace in traces]
        if keep:
            write_all({args.out / f"{name}_rank{rank}.json.gz": trace.read_bytes() for rank, trace in enumerate(traces)})
    steps = job.ranks[0].steps
    return {
        "step_us": round(max(periods_us), 1),
        "compute_us": round(max(rank.compute_us for rank in job.ranks) / steps, 1),
        "communication_us": round(min(rank.communication_us for rank in job.ranks) / steps, 1),
        "exposed_us": round(max(rank.exposed_us for rank in job.ranks) / steps, 1),
        "transfer_us": round(job.transfer_us / steps, 1),
        "late": job.to_compare[0].rank if job.to_compare else None,
        "bus_gb_per_s": round(max((row.bus_gb_per_s or 0.0 for row in job.collectives), default=0.0), 1),
    }


if __name__ == "__main__":
    main()
