"""How fast and in how much memory read_trace.py reads large traces, beside other readers in the same run.

    uv run --with traceinsight read-trace/benchmarks/read_speed.py
    uv run --with traceinsight read-trace/benchmarks/read_speed.py TRACE.json.gz --megabytes 25 200 1000 --gz
    uv run read-trace/benchmarks/read_speed.py --lesson

Each large trace is a recording over and over: moved on in time, its ids, flows and steps renumbered, so that it is one long
recording, written as the profiler wrote it. Every reader runs in a process of its own, by turns; of several runs the medians are
shown.

    read        read_trace.py --json; on one core, too, with --one_core
    HTA         HolisticTraceAnalysis (traceinsight on the index): load, temporal breakdown, kernel breakdown, launch statistics.
                Where one of these fails or the time is up, that is said: a crash is not a time.
    TraceLens   AMD's: load, GPU timeline, kernel launchers. It is not at the Python registries (a package of that name there is
                another): --tracelens names the Python that has it.
    floor       what cannot be avoided: cat, inflating, and msgspec turning the text into Python's values

Memory is the most that all processes of a reader held at a time; what they share counts once (PSS, every 20 ms, in a first run
that is not timed; of a single process the kernel's own ru_maxrss).

--lesson reads a lesson's trace, which takes as long as Python needs to start: it is shown beside `import numpy` alone.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
import contextlib
import gzip
import json
from multiprocessing import get_context
import os
from pathlib import Path
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "gallery" / "h200"
KINDS = {  # recordings of lessons, each with something of its own
    "attention": GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_math_bf16_warm_eager.json",
    "with shapes": GALLERY / "03_simple_mlp" / "64_128_768_3072_bf16_warm_eager_record_shapes.json",
    "with stacks": ROOT / "read-trace" / "benchmarks" / "with_stacks.json.gz",
    "many steps": GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json",
}
LESSON = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
NUMBER = re.compile(
    r'(?P<time>"ts": )(?P<whole>\d+)(?:\.(?P<decimals>\d+))?|(?P<step>ProfilerStep#)(?P<number>\d+)'
    r'|(?P<id>"(?:correlation|External id|id)": )(?P<value>\d+)'
)
HTA = """
import logging, os, sys
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # with times in whole microseconds its temporal breakdown fails on many traces
logging.disable(logging.CRITICAL)
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
TRACELENS = """
import sys
from TraceLens.TreePerf import TreePerfAnalyzer
analyzer = TreePerfAnalyzer.from_file(sys.argv[1])
analyzer.get_df_gpu_timeline()
analyzer.get_df_kernel_launchers()
"""
OTHERS = {"HTA": HTA, "TraceLens": TRACELENS}
SAMPLED_S = 0.02
MSGSPEC = "import msgspec, sys; msgspec.json.decode(open(sys.argv[1], 'rb').read())"


class Source:
    """A recording that can be written again and again, moved on in time. Raises ValueError where it has no event."""

    def __init__(self, path: Path):
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        start = re.search(r'"traceEvents"\s*:\s*\[', text)
        if start is None:
            raise ValueError(f"{path}: no list traceEvents")
        self.header = text[: start.end()]
        decoder, position = json.JSONDecoder(), start.end()
        once: list[str] = []
        again: list[str] = []
        times_ns: list[int] = []
        ids, steps = [0], list[str]()
        while position < len(text) and (begin := text.find("{", position)) >= 0 and "]" not in text[position:begin]:
            event, position = decoder.raw_decode(text, begin)
            (once if event["ph"] == "M" else again).append(text[begin:position])
            if "dur" in event:
                times_ns += [round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)]
                steps += re.findall(r"ProfilerStep#(\d+)$", event["name"])
            ids += [
                int(value) for key, value in {**event, **event.get("args", {})}.items() if key in IDS and str(value).isdigit()
            ]
        self.once = ",\n".join(once)
        self.span_us = (max(times_ns) - min(times_ns)) // 1000 + 100
        self.steps, self.ids = len(set(steps)), max(ids) + 1
        self.numbers: list[int] = []
        self.moves: list[int] = []
        self.template = NUMBER.sub(self._place, ",\n".join(again).replace("%", "%%"))

    def _place(self, found: re.Match[str]) -> str:
        """Return a place for each number that differs from copy to copy: its value and by how much it moves on."""
        if found["time"]:
            value, move, end = found["whole"], self.span_us, f".{found['decimals']}" if found["decimals"] else ""
        elif found["step"]:
            value, move, end = found["number"], self.steps, ""
        else:
            value, move, end = found["value"], self.ids, ""
        self.numbers.append(int(value))
        self.moves.append(move)
        return f"{found['time'] or found['step'] or found['id']}%d{end}"

    def write(self, target: Path, megabytes: float) -> int:
        """Write as many copies as that size takes; how many steps they have together."""
        import numpy as np

        numbers, moves = np.array(self.numbers), np.array(self.moves)
        copies = 0
        with open(target, "w") as file:
            file.write(self.header + self.once)
            while not copies or file.tell() < megabytes * 1e6:
                file.write(",\n" * bool(copies or self.once) + self.template % tuple((numbers + copies * moves).tolist()))
                copies += 1
            file.write("\n]}\n")
        os.sync()  # so that no reader is timed while it is being written to the disk
        return copies * self.steps


IDS = ("correlation", "External id", "id")


def write(source: Path, target: Path, megabytes: float) -> int:
    """`Source.write`, in a process of its own: what this one holds would count as the readers' memory (ru_maxrss)."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_write, source, target, megabytes).result()


def _write(source: Path, target: Path, megabytes: float) -> int:
    return Source(source).write(target, megabytes)


def measure(command: list[str], timeout_s: float = 3600, sampled: bool = False) -> tuple[float, float, str]:
    """Run to the end; (seconds, peak memory in MB, what failed). `sampled`: of all its processes together, which takes time."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.DEVNULL)
        stop = threading.Timer(timeout_s, process.kill)
        stop.start()
        together = Together(process.pid) if sampled else None
        _, status, usage = os.wait4(process.pid, 0)
        stop.cancel()
        seconds = time.perf_counter() - start
        held_mb = max(usage.ru_maxrss / 1e3, together.end() if together else 0)
        out.seek(0)
        failed = "; ".join(line.strip() for line in out if line.startswith("failed: "))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        failed = "not done by then" if seconds >= timeout_s else "killed, for memory perhaps"
    elif status:
        raise SystemExit(f"ended with status {status}: {' '.join(command)[:200]}")
    return seconds, held_mb, failed


class Together(threading.Thread):
    """The most memory in MB that a process and those that it started hold at a time, while there are several."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.most_mb, self.ended = pid, 0.0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(SAMPLED_S):
            with contextlib.suppress(OSError):  # one that has just ended; no such files on this system
                if len(every := [self.pid, *started_by(self.pid)]) > 1:
                    self.most_mb = max(self.most_mb, sum(map(share_mb, every)))

    def end(self) -> float:
        self.ended.set()
        self.join()
        return self.most_mb


def started_by(pid: int) -> list[int]:
    """Return the processes that this one started, and those that they did."""
    one = [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return one + [further for child in one for further in started_by(child)]


def share_mb(pid: int) -> float:
    """Return the memory of a process; what it shares with others is divided among them (PSS)."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def by_turns(commands: dict[str, list[str]], runs: int, timeout_s: float) -> dict[str, tuple[float, float, str]]:
    """Of each command, the median of the seconds of `runs` runs, its memory in MB and what failed. They run by turns, so that a
    slow minute of the machine is one of all; the first run of each fills the caches, and tells its memory.
    """
    first = {name: measure(command, timeout_s, sampled=True) for name, command in commands.items()}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            seconds[name].append(measure(command, timeout_s)[0])
    return {name: (statistics.median(seconds[name]), *first[name][1:]) for name in commands}


def compare(kind: str, path: Path, steps: int, args: argparse.Namespace) -> None:
    size = path.stat().st_size / 1e6
    read = [sys.executable, "read_trace.py", "--json", str(path)]
    commands = {"read": read, "cat": ["cat", str(path)]}
    if path.suffix == ".gz":
        commands["gzip"] = ["gzip", "-dc", str(path)]
    elif size < 600:  # beyond, Python's values take more memory than a laptop has
        commands["msgspec"] = [sys.executable, "-c", MSGSPEC, str(path)]
    if args.one_core:
        commands["one core"] = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *read]
    commands |= {name: [python, "-c", OTHERS[name], str(path)] for name, python in args.others.items()}
    found = by_turns(commands, args.runs, args.timeout)
    read_s, read_mb, _ = found["read"]
    floor = ", ".join(f"{found[name][0]:.2f}" for name in ("cat", "gzip", "msgspec") if name in found)
    row = f"| {kind} | {size:.0f} | {steps} | {read_s:.2f} | {read_mb:.0f} | {floor} |"
    if args.one_core:
        row += f" {found['one core'][0]:.2f} |"
    for name in args.others:
        other_s, other_mb, failed = found[name]
        row += f" {other_s:.1f} | {other_mb:.0f} | {other_s / read_s:.1f} | {read_mb / other_mb:.2f} | {failed} |"
    print(row, flush=True)


def lesson(runs: int) -> None:
    """Reading a lesson's trace beside importing numpy, by turns."""
    found: dict[str, list[float]] = {"read_trace.py": [], "import numpy": []}
    commands = {"read_trace.py": ["read_trace.py", str(LESSON)], "import numpy": ["-c", "import numpy"]}
    for _ in range(runs + 1):
        for name, command in commands.items():
            found[name].append(measure([sys.executable, *command])[0])
    for name, seconds in found.items():
        kept = seconds[1:]
        print(f"{name}: {statistics.median(kept):.3f} s, median of {runs} ({min(kept):.3f} to {max(kept):.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE", help="recordings to make large (default: four lessons')")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[200], help="sizes of the large traces (default: 200)")
    parser.add_argument("--gz", action="store_true", help="each large trace gzipped, too")
    parser.add_argument("--runs", type=int, default=3, help="of each reader, after one that fills the caches")
    parser.add_argument("--one_core", action="store_true", help="read_trace.py on one core, too")
    parser.add_argument("--timeout", type=float, default=900, help="seconds after which another reader is stopped")
    parser.add_argument("--hta", metavar="PYTHON", help="the Python that has HTA, where it is not this one")
    parser.add_argument("--tracelens", metavar="PYTHON", help="the Python that has TraceLens")
    parser.add_argument("--lesson", action="store_true", help="a lesson's trace, beside `import numpy`")
    args = parser.parse_args()
    if args.lesson:
        return lesson(max(args.runs, 11))
    if not args.hta and not subprocess.run([sys.executable, "-c", "import hta"], stderr=subprocess.DEVNULL).returncode:
        args.hta = sys.executable
    args.others = {name: python for name, python in (("HTA", args.hta), ("TraceLens", args.tracelens)) if python}
    kinds = {path.name.split(".")[0]: path for path in args.traces} or KINDS
    head = "| kind | MB | steps | read s | peak MB | floor s |" + " one core s |" * args.one_core
    head += "".join(f" {name} s | {name} MB | times as fast | memory | |" for name in args.others)
    print(head + "\n|" + "---|" * (head.count("|") - 1))
    for kind, source in kinds.items():
        for megabytes in args.megabytes:
            with tempfile.TemporaryDirectory() as folder:
                large = Path(folder) / "large.json"
                steps = write(source, large, megabytes)
                compare(kind, large, steps, args)
                if args.gz:
                    with open(large, "rb") as plain, gzip.open(f"{large}.gz", "wb", 6) as zipped:
                        shutil.copyfileobj(plain, zipped)
                    compare(f"{kind}, .gz", Path(f"{large}.gz"), steps, args)


if __name__ == "__main__":
    main()
