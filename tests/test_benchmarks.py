"""What the benchmarks say of numbers that are known: a ratio the right way up, a count of what is there."""

import gzip
import importlib.util
import json
import os
from pathlib import Path
import re
import subprocess
import sys
import types

from helpers import GALLERY, ROOT
import pytest
from reader_helpers.events import GEMM, kernel, launch, step, write
import torch
from trace_reader import load, read


def script(path):
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2], ROOT / f"{path}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_overhead_is_the_lessons_time_by_the_bare_ones(monkeypatch, capsys):
    overhead = script("benchmarks/overhead")
    monkeypatch.setattr(overhead, "measure", lambda command: (3.0, [30, 60]) if "--trace_dir" in command else (2.0, [20, 40]))
    monkeypatch.setattr("sys.argv", ["overhead.py"])
    overhead.main()
    out = capsys.readouterr().out
    assert "process: lesson 3.00 s, bare 2.00 s, ratio 1.500 " in out
    assert "recorded step, CPU: lesson 45.00 us, bare 30.00 us, ratio 1.500 " in out


@pytest.mark.parametrize(
    ("outcomes", "wrong"),
    [(("solved", "cause"), False), (("solved", "solved"), True), (("slow", "cause"), True)],
)
def test_an_exercise_that_passes_as_given_is_wrong(monkeypatch, capsys, outcomes, wrong):
    gains = script("benchmarks/exercise_gains")
    left = [(gains.Speed(9, 11, 12, 100.0, 9.1), gains.Judgement(outcome, ("said",))) for outcome in outcomes]
    monkeypatch.setattr(gains, "measured", lambda one, mine: left.pop(0))
    monkeypatch.setattr("sys.argv", ["exercise_gains.py", "03_unit_rows"])
    assert gains.main() == int(wrong)
    out = capsys.readouterr().out
    assert f"; as given: {outcomes[1]}{'  <- WRONG' if wrong else ''}\n" in out
    assert out.endswith(f"{int(not wrong)} of 1 as they should be\n")


def test_the_steps_of_the_cpu_are_those_that_count(monkeypatch):
    """On a GPU each step stands in the trace twice."""
    overhead = script("benchmarks/overhead")

    def run(command, **_):
        steps = [("user_annotation", 50), ("gpu_user_annotation", 7)]
        trace = {"traceEvents": [{"name": "ProfilerStep#3", "cat": cat, "dur": dur} for cat, dur in steps]}
        Path(command[-1], "trace.json").write_text(json.dumps(trace))

    monkeypatch.setattr(overhead.subprocess, "run", run)
    assert overhead.measure(["a.py"])[1] == [50]


def test_the_copy_moves_as_many_bytes_as_the_function_needs(monkeypatch):
    geglu = script("benchmarks/geglu_kernel")
    moved, randn = {}, torch.randn

    def gpu_us(function, inputs, keep):
        moved[function] = [sum(tensor.nbytes for tensor in arguments) for arguments in inputs]
        return [1.0]

    monkeypatch.setattr(geglu.torch, "randn", lambda *size, device, dtype: randn(*size, dtype=dtype))
    monkeypatch.setattr(geglu.torch.cuda, "get_device_properties", lambda: types.SimpleNamespace(L2_cache_size=1000))
    monkeypatch.setattr(geglu, "variants", lambda: {"ours": len})
    monkeypatch.setattr(geglu, "gpu_us", gpu_us)
    times_us, needed_bytes = geglu.measure(10, 6, torch.bfloat16)
    own, copied = moved.values()
    assert (times_us, needed_bytes) == ({"ours": 1.0, "copy": 1.0}, 360)
    assert set(own) == {240} and set(copied) == {360} and len(copied) == len(own) == 13


def test_a_recording_again_and_again_has_as_many_steps_as_are_said(tmp_path):
    speed = script("read-trace/benchmarks/read_speed")
    path = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
    large = tmp_path / "large.json"
    steps = speed.Source(path).write(large, 0.1)
    facts = read(str(large))
    assert large.stat().st_size > 100_000 and steps == len(facts.steps) == len(
        set(re.findall(r"ProfilerStep#\d+", large.read_text()))
    )
    assert steps > 2 * len(read(str(path)).steps)


def test_the_zipped_trace_is_the_plain_one_zipped(monkeypatch, capsys):
    speed = script("read-trace/benchmarks/read_speed")
    seen = []

    def compare(kind, path, steps, args):
        data = path.read_bytes()
        seen.append((kind, path.suffix, gzip.decompress(data) if path.suffix == ".gz" else data, steps))

    monkeypatch.setattr(speed, "compare", compare)
    monkeypatch.setattr(speed, "write", speed._write)
    path = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
    monkeypatch.setattr("sys.argv", ["read_speed.py", str(path), "--megabytes", "0.1", "--gz", "--hta", "python"])
    speed.main()
    (kind, _, plain, steps), zipped = seen
    assert zipped == (f"{kind}, .gz", ".gz", plain, steps) and kind == "64_bf16_cold_eager" and len(plain) > 100_000
    assert "| HTA s |" in capsys.readouterr().out


def test_how_many_times_as_fast_and_in_which_part_of_the_memory(tmp_path, monkeypatch, capsys):
    speed = script("read-trace/benchmarks/read_speed")
    large = tmp_path / "large.json"
    large.write_bytes(b"x" * 2_000_000)
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    ran = []

    def measure(command, timeout_s, sampled=False):
        """Return the first run of each is the slowest and tells the memory; of the others the one in the middle counts."""
        name = {"taskset": "one core", speed.sys.executable: "read", "hta": "HTA", "lens": "TraceLens"}.get(command[0], "floor")
        name = "floor" if command[1] == "-c" and name == "read" else name
        assert (command[:3] == one) == (name == "one core") and timeout_s == 9
        assert name not in ("read", "one core") or command[-3:] == ["read_trace.py", "--json", str(large)]
        ran.append(name)
        seconds, held_mb = {"read": (2, 50), "one core": (4, 60), "HTA": (30, 500), "TraceLens": (16, 200), "floor": (0.25, 1)}[
            name
        ]
        turn = 100 if sampled else [0.5, 1, 7][ran.count(name) // (1 + (name == "floor")) % 3]
        return seconds * turn, held_mb if sampled else 0, "failed: x" if name == "TraceLens" else ""

    monkeypatch.setattr(speed, "measure", measure)
    args = speed.argparse.Namespace(runs=3, others={"HTA": "hta", "TraceLens": "lens"}, timeout=9, one_core=True)
    speed.compare("a kind", large, 7, args)
    assert ran == ["read", "floor", "floor", "one core", "HTA", "TraceLens"] * 4
    out = (
        "| a kind | 2 | 7 | 2.00 | 50 | 0.25, 0.25 | 4.00 | 30.0 | 500 | 15.0 | 0.10 |  | 16.0 | 200 | 8.0 | 0.25 | failed: x |\n"
    )
    assert capsys.readouterr().out == out


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the kernel tells no process's share of memory here")
def test_the_memory_of_a_reader_is_that_of_all_its_processes_and_what_they_share_counts_once():
    """50 MB that are shared with a copy of the process, and 50 MB of each; measured from a small process, as in the benchmark."""
    code = """
import sys
sys.path.insert(0, "read-trace/benchmarks")
import read_speed
both = "import os, time; a = b'x' * 50_000_000; child = os.fork(); b = b'y' * 50_000_000; time.sleep(0.8); child and os.wait()"
for code, sampled in ((both, True), (both, False), ("b = b'x' * 50_000_000", True)):
    print(read_speed.measure([sys.executable, "-c", code], sampled=sampled)[1])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    together_mb, largest_mb, alone_mb = map(float, done.stdout.split())
    assert 150 < together_mb < 190 and 100 < largest_mb < 130 and 50 < alone_mb < 80


def test_the_time_of_a_collective_is_that_of_the_timed_calls(monkeypatch, capsys):
    """Each call takes a tenth of a millisecond of a clock of our own; the calls before are not timed."""
    bench = script("benchmarks/all_reduce")
    clock = [0.0]

    def collective(*_):
        clock[0] += 1e-4

    for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"):
        monkeypatch.setattr(bench.dist, name, collective)
    for name, answer in {
        "init_process_group": None,
        "destroy_process_group": None,
        "barrier": None,
        "get_world_size": 2,
        "get_rank": 0,
    }.items():
        monkeypatch.setattr(bench.dist, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr("sys.argv", ["all_reduce.py"])
    bench.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    # Of two ranks all of an all-reduce's bytes cross the bus, half of a gather's.
    assert [(name, mb, us, rate) for name, mb, _, us, _, rate, _ in lines[3:]] == [
        ("allreduce", "1.05", "100.0", "10.5"), ("allgather", "1.05", "100.0", "5.2"),
        ("reducescatter", "1.05", "100.0", "5.2"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_pair_is_timed_before_anything_is_recorded_and_both_traces_are_kept(tmp_path):
    """Rows one by one, and all in one matmul. How much that gains is the machine's, which may be busy."""
    command = [sys.executable, "benchmarks/advice/record.py", str(tmp_path), "row_loop", "--device", "cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"row_loop: [\d.]+ -> [\d.]+ ms, gain -?\d+\.\d\d, recorded [\d.]+ times \(\d+ s\)\n", done.stdout)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "row_loop.json",
        "row_loop_after.json.gz",
        "row_loop_before.json.gz",
        "row_loop_before_memory.json.gz",
        "row_loop_before_stacks.json.gz",
    ]
    measured = json.loads((tmp_path / "row_loop.json").read_text())
    assert {name: len(times) for name, times in measured["plain_us"].items()} == {"before": 5, "after": 5}
    variants = ("before", "after", "before_stacks", "before_memory")
    before, after, stacks, memory = (read(str(tmp_path / f"row_loop_{variant}.json.gz")) for variant in variants)
    assert [facts.recorded_with for facts in (before, stacks, memory)] == [
        ("shapes",),
        ("shapes", "stacks"),
        ("shapes", "memory"),
    ]
    assert len(before.steps) == len(after.steps) == 4
    assert before.steps[1].kernels_or_ops > 256 > after.steps[1].kernels_or_ops


def test_a_step_that_became_slower_has_a_ratio_above_one(monkeypatch, capsys):
    from benchmarks import after_profiling

    rounds = iter([[100.0] * after_profiling.ROUNDS] * 2 + [[200.0] * after_profiling.ROUNDS])
    monkeypatch.setattr(after_profiling, "rounds_us", lambda net, x: next(rounds))
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch, "randn", lambda *sizes, device: None)
    after_profiling.measure("nothing")
    assert capsys.readouterr().out.endswith(": 2.00 times the fastest tenth\n")


@pytest.mark.parametrize(
    ("limit", "functions", "price_us"), [("overhead-bound", 10, 3.0), ("overhead-bound", 9, None), ("gpu-bound", 10, None)]
)
def test_a_function_of_python_costs_what_stacks_add_to_a_step_with_shapes(limit, functions, price_us):
    """Medians of three rounds: 100 without a flag, 120 with shapes, 150 with stacks besides."""
    cost = script("read-trace/benchmarks/profiler_cost")

    def rounds(*steps_us):
        return [types.SimpleNamespace(step_period_us=us, recorded_verdict=limit) for us in steps_us]

    facts = {"no flags": rounds(100, 90, 200), "shapes": rounds(120, 119, 300), "shapes, stack": rounds(150, 149, 900)}
    assert cost.price_us(facts, {"functions": functions}, "functions") == price_us


def test_a_row_of_what_the_profiler_costs():
    """Plain 80 to 200, the median 100; the estimate is that of the round with the median step."""
    cost = script("read-trace/benchmarks/profiler_cost")
    cost.ROUNDS = 3

    def rounds(*steps_us):
        return [
            types.SimpleNamespace(
                step_period_us=us, recorded_verdict=f"verdict of {us}", steps=[types.SimpleNamespace(gpu_busy_us=us / 4)],
                plain=types.SimpleNamespace(low_us=us / 2, high_us=us - 25),
            )
            for us in steps_us
        ]  # fmt: skip

    facts = {flags: rounds(*[us + 10 * n for us in (120, 110, 300)]) for n, flags in enumerate(cost.FLAGS)}
    shapes = 120 + 10 * list(cost.FLAGS).index("shapes")
    assert cost.row("name", [100, 80, 200], facts) == [
        "name", "100.0 µs (0.80 to 2.00)", *[f"{1.2 + 0.1 * n:.2f}" for n in range(len(cost.FLAGS))],
        f"verdict of {shapes}", f"{shapes / 400:.2f}", f"{shapes / 2:.1f} µs to {shapes - 25:.1f} µs",
    ]  # fmt: skip


def test_the_error_of_a_replay_is_a_share_of_the_recorded_step(tmp_path, capsys, monkeypatch):
    """A run that can be played, ranks of a job, one step, a step whose launch is missing, and what is no trace."""
    replays = script("read-trace/benchmarks/replay_error")
    sound = [
        event for n in range(3) for event in (step(n, 100 * n, 90), launch(100 * n + 5, n), kernel(GEMM, 100 * n + 20, 60, n))
    ]
    unlaunched = [event for n in range(3) for event in (step(n, 100 * n, 90), kernel(GEMM, 100 * n + 20, 60, n))]
    for name, events in {"sound": sound, "unlaunched": unlaunched, "one": sound[:3]}.items():
        write(tmp_path / f"{name}.json", *events)
    (tmp_path / "none.json").write_text("{}")
    job = [str(path) for path in sorted((ROOT / "gallery" / "several_gpus").glob("data_parallel_25mb_rank*.gz"))]
    monkeypatch.setattr(
        sys, "argv", ["", *(str(tmp_path / f"{name}.json") for name in ("sound", "unlaunched", "one", "none")), *job]
    )
    assert replays.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "2 recordings: error 0.0000 (median), 0.0000 at most",
        "not played: 1 (launches or ops are missing), 2 (of a job, played with its other ranks)",
        "1 of 1 jobs: error 0.0000 at most",
    ]
    assert f"{tmp_path}/one.json: error 0.0000; reading " in "".join(lines)
    played = replays.RunWithoutProfiler.__init__

    def slower(self, trace, steps=None):
        played(self, trace, steps)
        self.replay.nodes.after_ns[:, 0] += 1000

    monkeypatch.setattr(replays.RunWithoutProfiler, "__init__", slower)
    assert "its first steps are not like the others" in str(replays.error_of(load(str(tmp_path / "sound.json"))))


def test_a_kernel_twice_as_slow_as_the_copy_has_half_of_its_speed(monkeypatch, capsys):
    geglu = script("benchmarks/geglu_kernel")
    monkeypatch.setattr(geglu.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(geglu.torch.cuda, "get_device_name", lambda: "a device")
    monkeypatch.setattr(geglu, "measure", lambda *arguments: ({"ours": 20.0, "copy": 10.0}, 40_000))
    assert geglu.main(["--shape", "10x500"]) == 0
    ours, copy = capsys.readouterr().out.splitlines()[2:]
    assert ours.split() == ["[10,", "500]", "ours", "20.0", "2", "50%"]
    assert copy.split() == ["[10,", "500]", "copy", "10.0", "4", "100%"]
