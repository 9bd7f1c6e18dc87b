"""Which launch does torch.compile choose for gelu(gate) * up, how often, and how long does it take? Needs a CUDA GPU.

    uv run benchmarks/inductor_choice.py
    uv run benchmarks/inductor_choice.py --processes 3

Inductor writes one Triton kernel for the function, tries a few launches of it (autotuning), and keeps the fastest. Each process
starts with an empty cache, so that it chooses anew. Two programs have the function: the lesson (03_simple_mlp.py --compile), and
the function alone on inputs that rotate through memory (as benchmarks/geglu_kernel.py calls it). Ours (03_triton_mlp.py) and
Liger's (03_kernels_mlp.py, from the package liger-kernel) run beside them. For each process: the median time of the fused kernel,
its grid and block, and what autotuning measured of each launch that it tried.
"""

import argparse
import datetime
import json
import os
from pathlib import Path
import re
import statistics
import subprocess
import sys
import tempfile

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from trace_reader import read, write_all

ROOT = Path(__file__).resolve().parent.parent

MLP = ("--batch", "64", "--seq", "128", "--dim", "768", "--hidden", "3072")
PROGRAMS = {
    "lesson, torch.compile": ("03_simple_mlp.py", *MLP, "--compile"),
    "alone, torch.compile": ("benchmarks/geglu_kernel.py", "--shape", "8192x3072", "--only", "torch.compile"),
    "lesson, ours": ("03_triton_mlp.py", *MLP),
    "alone, ours": ("benchmarks/geglu_kernel.py", "--shape", "8192x3072", "--only", "ours"),
    "lesson, Liger's": ("03_kernels_mlp.py", *MLP),
}
TRIED = re.compile(r"(XBLOCK: \d+, num_warps: \d+)[^\n]*?: (\d+\.\d+), nreg (\d+)")


def run(command: tuple[str, ...], env: dict[str, str]) -> dict[str, object]:
    """Return one process; its fused kernel's median (us), grid and block, and autotuning's milliseconds by launch."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = {"TORCHINDUCTOR_CACHE_DIR": folder + "/cache", "TORCH_LOGS": "+torch._inductor.runtime.triton_heuristics"}
        done = subprocess.run(
            [sys.executable, *command, "--trace_dir", folder], cwd=ROOT, env=env | fresh, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
        (trace,) = Path(folder).glob("*.json")
        fused = next(k for k in read(str(trace)).kernels if "gelu" in k.name or "geglu" in k.name)
        tried = {launch: float(ms) for launch, ms, _ in TRIED.findall(done.stderr.partition("Best config")[0])}
    return {
        "kernel": fused.name,
        "median_us": fused.median_us,
        "grid": fused.grid,
        "block": fused.block,
        "registers": fused.registers_per_thread,
        "autotuning_ms": tried,
    }


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10, help="of each program (default: %(default)s)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what every process measured there, too (docs: gallery/h200)"
    )
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("error: this benchmark needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        return 2
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.stand_ins import all_packages

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.processes} processes each", flush=True)
    measured: dict[str, list[dict]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **all_packages(Path(folder, "packages"))}
        for number in range(args.processes):
            for name, command in PROGRAMS.items():
                result = run(command, env)
                measured[name].append(result)
                print(f"{number + 1}/{args.processes} {name}: {json.dumps(result)}", flush=True)
    for name, results in measured.items():
        times = sorted(r["median_us"] for r in results)
        print(f"{name}: median {statistics.median(times):.1f} us, {times[0]:.1f} to {times[-1]:.1f}")
        for launch in sorted({(r["grid"], r["block"]) for r in results}):
            of_it = sorted(r["median_us"] for r in results if (r["grid"], r["block"]) == launch)
            grid, block = ("x".join(map(str, side)) for side in launch)
            print(f"    grid {grid}, block {block}: {len(of_it)} processes, {of_it[0]:.1f} to {of_it[-1]:.1f} us")
    if args.json:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "date": date}
        write_all({args.json: (json.dumps(about | {"programs": measured}, indent=1) + "\n").encode()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
