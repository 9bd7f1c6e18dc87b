"""What the lessons' shared code costs: 01_matmul_add.py beside a bare script that records the same.

    uv run benchmarks/overhead.py

Takes about a minute. Runs both in turns and compares the medians: the time of the whole process, and the CPU time of a
recorded step, which the shared code must not touch.
"""

import argparse
import json
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import time

import torch

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 5


def measure(command):
    """Run a script that writes its trace into the folder it is given; (process seconds, microseconds of its steps)."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([sys.executable, *command, folder], cwd=ROOT, check=True, capture_output=True)
        process_s = time.perf_counter() - start
        (trace,) = Path(folder).glob("*.json")
        events = json.loads(trace.read_text())["traceEvents"]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#") and e.get("cat") == "user_annotation"]
    return process_s, [e["dur"] for e in steps]


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    commands = {
        "lesson": ["01_matmul_add.py", "--size", "64", "--trace_dir"],
        "bare": ["benchmarks/bare_matmul_add.py"],
    }
    process_s: dict[str, list[float]] = {name: [] for name in commands}
    step_us: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():  # once unmeasured: files into the page cache, bytecode onto the disk
        measure(command)
    for pair in range(PAIRS):
        for name, command in commands.items():
            seconds, steps = measure(command)
            process_s[name].append(seconds)
            step_us[name] += steps
            print(f"pair {pair + 1} of {PAIRS}: {name:6} {seconds:.2f} s, steps {steps} us", flush=True)

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"\n{device}, torch {torch.__version__}, medians of {PAIRS} runs and {len(step_us['bare'])} steps:")
    for title, unit, values in (("process", "s", process_s), ("recorded step, CPU", "us", step_us)):
        lesson, bare = (statistics.median(values[name]) for name in ("lesson", "bare"))
        quarter, _, three_quarters = statistics.quantiles(values["bare"], n=4)
        print(
            f"{title}: lesson {lesson:.2f} {unit}, bare {bare:.2f} {unit}, ratio {lesson / bare:.3f} "
            f"(the middle half of the bare runs: {quarter:.2f} to {three_quarters:.2f} {unit})"
        )


if __name__ == "__main__":
    main()
