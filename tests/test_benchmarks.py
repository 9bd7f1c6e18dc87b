"""What the benchmarks say of numbers that are known: a ratio the right way up, a count of what is there."""

import importlib.util
import re

from helpers import GALLERY, ROOT
from trace_reader import read


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


def test_how_many_times_as_fast_and_in_which_part_of_the_memory(tmp_path, monkeypatch, capsys):
    speed = script("read-trace/benchmarks/read_speed")
    large = tmp_path / "large.json"
    large.write_bytes(b"x" * 2_000_000)
    monkeypatch.setattr(speed, "middle", lambda command, runs: (2.0, 50.0, "") if "read_trace.py" in command else (0.25, 1.0, ""))
    monkeypatch.setattr(speed, "measure", lambda command, timeout_s: (30.0, 500.0, ""))
    args = speed.argparse.Namespace(runs=3, hta="python", timeout=9)
    speed.compare("a kind", large, 7, args)
    assert capsys.readouterr().out == "| a kind | 2 | 7 | 2.00 | 50 | 0.25, 0.25 | 30.0 | 500 | 15.0 | 0.10 |  |\n"


def test_the_time_of_a_collective_is_that_of_the_timed_calls(monkeypatch, capsys):
    """Each call takes a millisecond of a clock of our own; the calls before are not timed."""
    bench = script("benchmarks/all_reduce")
    clock = [0.0]

    def collective(*_):
        clock[0] += 1e-3

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
        ("allreduce", "1.05", "1000.0", "1.0"), ("allgather", "1.05", "1000.0", "0.5"),
        ("reducescatter", "1.05", "1000.0", "0.5"),
    ]  # fmt: skip
