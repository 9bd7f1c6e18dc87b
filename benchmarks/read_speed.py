"""How fast and in how much memory read_trace.py reads a large trace, beside HolisticTraceAnalysis and orjson.

    uv run --with HolisticTraceAnalysis --with orjson benchmarks/read_speed.py TRACE.json --megabytes 200

The large trace is TRACE over and over: shifted in time, with its correlation and external ids renumbered, so that it
is one long recording. HolisticTraceAnalysis searches all steps for each event, so its time depends on how many there are:
--long_steps 3 takes that out of the comparison. Each reader runs in a process of its own, on the same file:

    read_trace   read_trace.py --json
    hta          HolisticTraceAnalysis: load, temporal breakdown, kernel breakdown, launch statistics
    orjson       orjson.loads alone: the time and memory of plain JSON
"""

import argparse
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

STEP = re.compile(r"ProfilerStep#(\d+)$")
ROOT = Path(__file__).resolve().parent.parent

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
for name, run in {
    "temporal breakdown": analysis.get_temporal_breakdown,
    "kernel breakdown": analysis.get_gpu_kernel_breakdown,
    "launch statistics": analysis.get_cuda_kernel_launch_stats,
}.items():
    try:
        run(visualize=False)
    except Exception as error:
        print(f"failed: {name}: {type(error).__name__} {error}")
"""
ORJSON = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"


def make_large(source: Path, target: Path, megabytes: float, long_steps: int) -> int:
    """Write the trace `source` over and over to `target` until it has that size; returns the number of copies.

    `long_steps` steps span all copies; with 0, the copies keep their own steps, renumbered.
    """
    trace = json.loads(source.read_text())
    events = trace.pop("traceEvents")
    slices = [e for e in events if "dur" in e]
    start_us = min(e["ts"] for e in slices)
    span_us = max(e["ts"] + e["dur"] for e in slices) - start_us + 100
    ids = 1 + max(int(e["args"][key]) for e in slices for key in ("correlation", "External id") if key in e.get("args", {}))
    steps = [e for e in slices if STEP.match(e["name"])]
    if long_steps:
        events = [e for e in events if not STEP.match(e["name"])]
    copies = 0
    with open(target, "w") as file:
        file.write(json.dumps(trace, indent=2)[:-2] + ',\n  "traceEvents": [\n')
        file.write(",\n".join(json.dumps(e, indent=2) for e in events if e["ph"] == "M"))
        while file.tell() < megabytes * 1e6:
            for event in events:
                if event["ph"] == "M":
                    continue
                shifted = {**event, "ts": round(event["ts"] + copies * span_us, 3)}
                if "id" in shifted:
                    shifted["id"] += copies * ids
                if args := event.get("args"):
                    renumbered = {k: args[k] + copies * ids for k in ("correlation", "External id") if k in args}
                    shifted["args"] = {**args, **renumbered}
                if found := STEP.match(event["name"]):
                    shifted["name"] = f"ProfilerStep#{int(found[1]) + copies * len(steps)}"
                file.write(",\n" + json.dumps(shifted, indent=2))
            copies += 1
        for number in range(long_steps):
            length_us = copies * span_us / long_steps
            long = {"name": f"ProfilerStep#{number}", "ts": start_us + number * length_us, "dur": length_us - 1}
            file.write(",\n" + json.dumps({**steps[0], **long}, indent=2))
        file.write("\n]}\n")
    return copies


def measure(command: list[str], timeout_s: float) -> tuple[float, float, str]:
    """Run to the end; (seconds, peak memory in MB, what failed)."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.DEVNULL)
        stop = threading.Timer(timeout_s, process.kill)
        stop.start()
        _, status, usage = os.wait4(process.pid, 0)
        stop.cancel()
        seconds = time.perf_counter() - start
        out.seek(0)
        failed = "; ".join(line.strip() for line in out if line.startswith("failed: "))
    if status == signal.SIGKILL and seconds >= timeout_s:
        failed = "stopped: not done by then"
    elif status:
        raise SystemExit(f"ended with status {status}: {' '.join(command)[:200]}")
    return seconds, usage.ru_maxrss / 1e3, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[200], help="sizes of the large trace")
    parser.add_argument("--long_steps", type=int, default=0, help="this many steps over all copies, not the copies' own")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a reader is stopped")
    parser.add_argument("--without_hta", action="store_true", help="leave out HolisticTraceAnalysis")
    args = parser.parse_args()
    readers = {"read_trace": ["read_trace.py", "--json"], "orjson": ["-c", ORJSON]}
    if not args.without_hta:
        readers["hta"] = ["-c", HTA]
    print("| file MB | reader | seconds | MB/s | peak MB | |\n|---:|---|---:|---:|---:|---|")
    for megabytes in args.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            large = Path(folder) / "large.json"
            make_large(args.trace, large, megabytes, args.long_steps)
            size = large.stat().st_size / 1e6
            for name, command in readers.items():
                seconds, peak, failed = measure([sys.executable, *command, str(large)], args.timeout)
                row = f"| {size:.0f} | {name} | {seconds:.2f} | {size / seconds:.0f} | {peak:.0f} | {failed} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
