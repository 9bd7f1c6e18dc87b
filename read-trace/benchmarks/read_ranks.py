"""How long it takes to read a job of many ranks: with one process and with two, and HolisticTraceAnalysis beside it.

    uv run read-trace/benchmarks/read_ranks.py --ranks 64 256 --hta /path/to/a/python/with/HolisticTraceAnalysis
    uv run read-trace/benchmarks/read_ranks.py --ranks --reduce 1024 4096 16384

The ranks are copies of two recordings, with ranks, ids and clocks of their own and one group of all of them. Each reading is a
process of its own, three times, alternating; told are the median and the range of its seconds, its largest process's memory, and
what of it the reduction takes. HTA reads the same folder and computes its communication overlap; a crash is not a time.
With --reduce, the reduction alone, of summaries that are in memory already and share one description of their group.
"""

import argparse
import gzip
import json
import os
from pathlib import Path
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "gallery" / "several_gpus" / f"data_parallel_25mb_rank{rank}.json.gz" for rank in range(2)]
TIMES = 3

OURS = """
import pickle, sys, time
from trace_reader.commands.read_job import _read_all, expanded
from trace_reader.analysis.jobs.job_facts import job_facts
if __name__ == "__main__":
    summaries = list(_read_all(expanded([sys.argv[1]]), None, None, int(sys.argv[2])))
    mapped = time.perf_counter()
    job = job_facts(summaries)
    reduced = time.perf_counter()
    print(reduced - mapped, sum(len(pickle.dumps(s)) for s in summaries) / len(summaries), job.matched)
"""
REDUCE = """
import sys, time
import msgspec
from trace_reader import analyze, load
from trace_reader.analysis.jobs.job_facts import job_facts
from trace_reader.analysis.jobs.rank_summary import summarize_rank
if __name__ == "__main__":
    n, traces = int(sys.argv[1]), [load(path) for path in sys.argv[2:]]
    two = [summarize_rank(trace, analyze(trace), rank) for rank, trace in enumerate(traces)]
    groups, replace = (("0", tuple(range(n))),), msgspec.structs.replace
    summaries = []
    for rank in range(n):
        summary = two[rank % 2]
        messages = tuple(replace(message, ranks=None, group_size=n) for message in summary.messages)
        summaries.append(replace(summary, rank=rank, world_size=n, groups=groups, messages=messages, trace=f"rank{rank}"))
    start = time.perf_counter()
    job_facts(summaries)
    print(time.perf_counter() - start)
"""
HTA = """
import sys, time
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    overlap = TraceAnalysis(trace_dir=sys.argv[1]).get_comm_comp_overlap(visualize=False)
    print(len(overlap))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--reduce", type=int, nargs="+", default=[], metavar="RANKS", help="of so many, the reduction alone")
    parser.add_argument("--hta", metavar="PYTHON", help="a Python that has HolisticTraceAnalysis")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {TIMES} times each, alternating")
    for ranks in args.ranks:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(folder, ranks)
            commands = {f"{n} process{'es' * (n > 1)}": [sys.executable, "-c", OURS, name, str(n)] for n in (1, 2)}
            if args.hta:
                commands["HTA"] = [args.hta, "-c", HTA, name]
            found: dict[str, list[tuple[float, float, str]]] = {what: [] for what in commands}
            for _ in range(TIMES):
                for what, command in commands.items():
                    found[what].append(run(command))
            for what, runs in found.items():
                seconds = [run[0] for run in runs]
                spread = f"({min(seconds):.1f} to {max(seconds):.1f})"
                megabytes = max(run[1] for run in runs)
                line = f"{ranks:>4} ranks, {what:>11}: {statistics.median(seconds):6.1f} s {spread}, {megabytes:6.0f} MB"
                if what != "HTA":
                    reduced, size, matched = map(float, runs[-1][2].split())
                    line += f"; reduction {reduced:.2f} s, {size / 1000:.0f} kB a rank, {matched:.0f} collectives"
                print(line, flush=True)
    for ranks in args.reduce:
        command = [sys.executable, "-c", REDUCE, str(ranks), *map(str, SOURCES)]
        runs = [run(command) for _ in range(TIMES)]
        seconds = [float(printed.split()[0]) for _, _, printed in runs]
        spread = f"({min(seconds):.1f} to {max(seconds):.1f}), {max(run[1] for run in runs):.0f} MB"
        print(f"{ranks:>6} ranks, reduction alone: {statistics.median(seconds):.1f} s {spread}", flush=True)


def make(folder: Path, ranks: int) -> None:
    """A folder of so many ranks."""
    sources = [json.loads(gzip.decompress(path.read_bytes())) for path in SOURCES]
    everyone = list(range(ranks))
    for rank in everyone:
        trace = sources[rank % 2]
        trace["distributedInfo"] |= {
            "rank": rank, "world_size": ranks, "pg_config": [{"pg_name": "0", "pg_size": ranks, "ranks": everyone}],
        }  # fmt: skip
        trace["trace_id"] = f"{rank:032X}"
        for event in trace["traceEvents"]:
            if "ts" in event:
                event["ts"] += 13.0  # each rank's clock is later than that of the one before
            if "Group size" in event.get("args", {}):
                event["args"] |= {"Group size": ranks, "Process Group Ranks": str(everyone) if ranks < 30 else "[0, 1, ...]"}
        (folder / f"job_rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode(), 1, mtime=0))


def run(command: list[str]) -> tuple[float, float, str]:
    """Seconds, MB of the largest process, and what it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"exit code {process.returncode}: {errors.read()[-2000:].decode()}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024, printed.strip().splitlines()[-1]


if __name__ == "__main__":
    main()
