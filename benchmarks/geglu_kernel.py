"""How fast is gelu(gate) * up, and how fast could it be? Needs a CUDA GPU.

    uv run benchmarks/geglu_kernel.py
    uv run benchmarks/geglu_kernel.py --dtype fp32
    uv run benchmarks/geglu_kernel.py --shape 8192x3072 --only torch.compile --trace_dir traces/geglu

For each shape: eager's two kernels, torch.compile's one, Liger's (of the package liger-kernel), ours (03_triton_mlp.py), and
a copy on the device that moves the same number of bytes, which is about the ceiling (it writes half of them, the others a
third, and reading is a little cheaper: hence more than 100%). The inputs rotate, so that the cache never holds the next
ones. Times are GPU busy times of a call, the median of all, taken in turns.
GB/s counts the bytes that the function needs (two tensors read, one written), not those that eager moves on top.
"""

import argparse
import importlib
from pathlib import Path
import statistics
import sys
import tempfile

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common.cli import DTYPES
from trace_reader import read

SHAPES = ((8192, 3072), (8192, 768), (4096, 11008), (1000, 3001), (32768, 3072))  # the first is the lessons' default
ROUNDS = 3
CALLS = 100  # in a round
OVER_CACHE = 4  # times the L2 cache, that the rotating inputs hold together


def eager(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def variants():
    """Return the functions to compare, by name; a line says which is left out, and why."""
    functions = {"eager": eager, "torch.compile": torch.compile(eager, dynamic=False)}
    try:
        functions["Liger"] = importlib.import_module("liger_kernel.ops.geglu").geglu_forward
    except ImportError as error:
        print(f"Liger is left out: {error}")
    functions["ours"] = importlib.import_module("03_triton_mlp").geglu
    return functions


def gpu_us(function, inputs, keep=None):
    """Return the GPU busy time (us) of each of CALLS calls, from a recorded trace, which is written to `keep` if that is a
    path.
    """
    for arguments in inputs:
        function(*arguments)
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = keep or Path(folder) / "trace.json"
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            schedule=schedule(wait=0, warmup=1, active=CALLS, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
            acc_events=True,
        ) as profiler:
            for number in range(CALLS + 1):
                function(*inputs[number % len(inputs)])
                if number == 0:
                    torch.cuda.synchronize()
                profiler.step()
        return [step.gpu_busy_us for step in read(str(path)).steps]


def measure(rows, columns, dtype, only=None, trace_dir=None):
    """Median microseconds by name, the copy's among them, and the bytes that the function needs.

    `only` names one way instead of all; `trace_dir` is where the last trace of each is kept.
    """
    size = rows * columns
    needed_bytes = 3 * size * dtype.itemsize
    sets = -(-OVER_CACHE * torch.cuda.get_device_properties().L2_cache_size // needed_bytes) + 1
    inputs = [tuple(torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2)) for _ in range(sets)]
    halves = [tuple(torch.randn(-(-3 * size // 2), device="cuda", dtype=dtype) for _ in range(2)) for _ in range(sets)]
    torch._dynamo.reset()
    runs = {name: (function, inputs) for name, function in variants().items()}
    runs["copy"] = (lambda source, target: target.copy_(source), halves)
    if only:
        runs = {only: runs[only]}
    times_us: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, (function, arguments) in runs.items():
            times_us[name] += gpu_us(function, arguments, trace_dir and trace_dir / f"{rows}x{columns}_{name}.json")
    return {name: statistics.median(times) for name, times in times_us.items()}, needed_bytes


def shape(text):
    rows, by, columns = text.partition("x")
    if not (by and rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise argparse.ArgumentTypeError(f"expected ROWSxCOLUMNS, two whole numbers, got {text!r}")
    return int(rows), int(columns)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--shape", type=shape, action="append", metavar="ROWSxCOLUMNS", help="instead of the five")
    parser.add_argument("--only", choices=("eager", "torch.compile", "Liger", "ours", "copy"), help="one way instead of all")
    parser.add_argument("--trace_dir", type=Path, help="keep a trace of each there")
    args = parser.parse_args(argv)
    if args.trace_dir:
        args.trace_dir.mkdir(parents=True, exist_ok=True)
    if not torch.cuda.is_available():
        print("error: this benchmark needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.dtype}, {ROUNDS * CALLS} calls each")
    print(f"{'shape':>14}  {'':13}  {'us':>7}  {'GB/s':>6}  of the copy's")
    for rows, columns in args.shape or SHAPES:
        medians_us, needed_bytes = measure(rows, columns, DTYPES[args.dtype], args.only, args.trace_dir)
        for name, us in medians_us.items():
            share = f"{medians_us['copy'] / us:.0%}" if "copy" in medians_us else ""
            print(f"{f'[{rows}, {columns}]':>14}  {name:13}  {us:7.1f}  {needed_bytes / us / 1e3:6.0f}  {share}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
