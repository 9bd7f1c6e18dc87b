"""What the lessons share, in process: warm-up, schedule, quiet, memory, progress, and the lines that a run prints."""

import argparse
import gzip
import json
import os
from pathlib import Path
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from common import artifacts, run_names, units
from common.cli import LessonError, LessonParser
from common.device import Device, choose_device, versions
from common.plain_step import time_plain_steps
from common.quiet import quiet
from common.record import record, warm_up
from common.summary import _profilers_share, finish
from common.tensor_memory import BoundedMemory, TensorMemory, TooLargeError, peak_memory
from helpers import ROOT, Trace
import pytest
import torch
from torch.profiler import ProfilerAction
from trace_reader import human_bytes, plain_sentence, read, us


def parse(tmp_path, *flags) -> argparse.Namespace:
    parser = LessonParser("lesson.py", "A lesson.", warmup=False)
    parser.add_size("--size", 8, "rows")
    return parser.parse_args(["--device", "cpu", "--trace_dir", str(tmp_path), *flags])


class Idle(Device):
    """A CPU that says when it was waited for."""

    def __init__(self, said):
        super().__init__("cpu", "a machine", None)
        self.said = said

    def synchronize(self):
        self.said.append("synchronize")


def run(tmp_path, *flags, step=lambda: torch.ones(4) + 1, device=None):
    args = parse(tmp_path, *flags)
    device = device or Device("cpu", "a machine", None)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)
    return args, profiler


@pytest.mark.parametrize(("flag", "calls"), [("--warmup", 3), ("--no-warmup", 0)])
def test_warm_up_makes_three_plain_calls_or_none(flag, calls, tmp_path):
    said = []
    warm_up(lambda: said.append("step"), parse(tmp_path, flag), Idle(said))
    assert said == ["step"] * calls + ["synchronize"] * bool(calls)


def test_the_schedule_is_the_flags(tmp_path):
    called = []
    _, profiler = run(
        tmp_path, "--no-plain", "--wait", "2", "--schedule_warmup", "1", "--active", "2", step=lambda: called.append(1)
    )
    assert len(called) == 2 + 1 + 2
    off, trace, on, last = ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
    assert [profiler._profiler.schedule(n) for n in range(6)] == [off, off, trace, on, last, off]


@pytest.mark.parametrize(
    ("flags", "before"),
    [(("--wait", "1"), 2), (("--wait", "0", "--schedule_warmup", "0"), 0), (("--wait", "3", "--schedule_warmup", "0"), 3)],
)
def test_the_device_is_idle_when_recording_starts(flags, before, tmp_path):
    said = []
    run(tmp_path, "--no-plain", *flags, step=lambda: said.append("step"), device=Idle(said))
    assert said[: before + 2] == ["synchronize", *["step"] * before, *["synchronize", "step"][not before :]][: before + 2]
    assert said.count("synchronize") == 1 + bool(before)


def measured(monkeypatch, call_s, most=None):
    """Return what time_plain_steps does with a clock on which a call takes so long, a wait for the device a thousandth of a
    second, and what it returns.
    """
    said, clock = [], [0.0]

    class Timed(Device):
        def synchronize(self):
            said.append("synchronize")
            clock[0] += 1e-3

    def step():
        said.append("step")
        clock[0] += call_s(said.count("step"))

    monkeypatch.setattr("common.plain_step.time.perf_counter", lambda: clock[0])
    args = argparse.Namespace(plain=True, compile=False, compile_mode=None)
    return said, time_plain_steps(step, args, Timed("cuda", "a GPU", None), most)


def test_a_plain_step_is_timed_in_three_rounds_with_the_device_waited_for_at_their_ends_only(monkeypatch):
    """The first call is not timed, the second says how many make a round: two of 50 ms, and of them the median round."""
    took_s = [9, 0.05, 0.05, 0.07, 0.1, 0.1, 0.2, 0.1]
    said, plain = measured(monkeypatch, lambda n: took_s[n - 1])
    first, one_round = ["step", "synchronize", "step", "synchronize"], ["synchronize", "step", "step", "synchronize"]
    assert said == first + 3 * one_round
    assert (plain.low_us, plain.median_us, plain.high_us) == pytest.approx((60_500, 100_500, 150_500))
    assert plain.steps == 6


@pytest.mark.parametrize(("call_s", "steps", "calls"), [(0.0095, None, 7), (0.0095, 11, 3), (5.0, None, 2), (5.0, 11, 3)])
def test_a_round_of_plain_steps_takes_so_many_calls(call_s, steps, calls, monkeypatch):
    """0.07 s of them, but two at least; of a lesson that cannot make any number of them, three on every machine."""
    said, plain = measured(monkeypatch, lambda n: call_s, steps)
    assert (said.count("step"), plain.steps) == (2 + 3 * calls, 3 * calls)


def test_ranks_make_equally_many_plain_steps_however_long_they_take(monkeypatch):
    """Each waits for the others in a step: one more of it on one rank would wait for ever."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert [measured(monkeypatch, lambda n, s=s: s)[1].steps for s in (1e-4, 0.03, 2.0)] == [15, 15, 15]


@pytest.mark.parametrize(("own", "then"), [(None, "1"), ("0", "0")])
def test_the_profilers_library_is_told_to_let_go_of_the_gpu_unless_the_user_says_otherwise(own, then, monkeypatch):
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    if own is not None:
        monkeypatch.setenv("TEARDOWN_CUPTI", own)
    choose_device("cpu")
    assert os.environ["TEARDOWN_CUPTI"] == then
    monkeypatch.delenv("TEARDOWN_CUPTI")


def test_the_steps_after_the_recording_are_timed_without_it_and_their_time_is_in_the_trace(tmp_path, capsys):
    """Each step takes 20 ms: as long as the trace's header says, while the trace holds the three recorded steps alone."""
    called = []

    def step():
        called.append(1)
        time.sleep(0.02)

    args, _ = run(tmp_path, step=step)
    header = json.loads(args.run.trace.read_text())
    plain = header["plain_step_us"]
    assert plain["steps"] == len(called) - 5 - 2 and 20_000 < plain["low"] <= plain["median"] <= plain["high"]
    assert sum(event["name"].startswith("ProfilerStep#") for event in header["traceEvents"]) == 3
    facts = read(str(args.run.trace))
    assert (facts.plain.how, facts.plain.step_us) == ("measured", plain["median"])
    said = plain_sentence(facts)  # with the rounds, where a busy machine makes them differ
    assert said.startswith(f"a step takes {us(plain['median'])} ") and said.endswith(f", {us(facts.step_period_us)} recorded")
    assert f"\n{said}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("recorded_us", "flags", "said"), [
    (90.0, ("--warmup",), "; 50% of the recorded step is the profiler's own cost"),
    (180.0, ("--warmup",), "; 75% of the recorded step is the profiler's own cost"),  # of calls, too
    (90.0, (), ""),  # cold
    (90.0, ("--warmup", "--vary_batch"), ""),  # other rows than those that were timed
    (45.5, ("--warmup",), ""),  # within the rounds
    (400.0, ("--warmup",), ""),  # more than ops and calls can cost
])  # fmt: skip
def test_what_the_profiler_costs_is_said_of_what_it_can_cost_alone(recorded_us, flags, said, tmp_path):
    """Ten events in three steps: up to 100 us, and 15 for each event."""
    plain = SimpleNamespace(step_us=45.0, low_us=44.0, high_us=46.0, recorded_step_us=recorded_us)
    facts = SimpleNamespace(
        plain=plain, world_size=None, steps=[0] * 3, ops=[SimpleNamespace(calls=6)], calls=[SimpleNamespace(calls=4)]
    )
    args = parse(tmp_path, *(flag for flag in flags if flag != "--vary_batch"))
    args.vary_batch = "--vary_batch" in flags
    assert _profilers_share(facts, args) == said
    facts.world_size = 2
    assert _profilers_share(facts, args) == ""


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_step_that_fails_after_the_recording_leaves_the_recording(error, tmp_path):
    called = []

    def step():
        called.append(torch.ones(4) + 1)
        if len(called) == 8:
            raise error

    with pytest.raises(type(error)):
        run(tmp_path, step=step)
    trace = json.loads(parse(tmp_path).run.trace.read_text())
    assert "plain_step_us" not in trace
    assert sum(event["name"].startswith("ProfilerStep#") for event in trace["traceEvents"]) == 3


def test_a_failed_step_says_so_leaves_nothing_and_lets_the_next_run_record(tmp_path):
    def fail():
        raise ZeroDivisionError("the step's own")

    with pytest.raises(ZeroDivisionError, match="the step's own"):
        run(tmp_path, step=fail)
    assert list(tmp_path.iterdir()) == []
    args, _ = run(tmp_path)
    assert Trace.load(args.run.trace).steps() == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]


def test_a_disk_that_is_full_at_the_second_file_is_one_line_and_keeps_both_earlier_ones(tmp_path, monkeypatch):
    args, _ = run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write = Path.write_bytes

    def full(path, data):
        if ".txt" in path.name:
            write(path, data[:10])
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LessonError, match=f"^cannot write to {tmp_path}: No space left on device; earlier artifacts are kept$"):
        run(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(before) == 2 and args.run.tag == "8_bf16_cold_eager_device-cpu"


def test_a_folder_in_which_nothing_can_be_written_is_found_before_the_run(tmp_path):
    """It is there, and takes no files: not a matter of its name, nor of who asks."""
    with pytest.raises(OSError):
        run_names.check_folder(parse(tmp_path, "--trace_dir", "/proc/self/task").run)


def test_the_table_has_fifteen_rows(tmp_path):
    ops = [torch.sin, torch.cos, torch.exp, torch.tan, torch.abs, torch.neg, torch.tanh, torch.sigmoid, torch.relu, torch.sqrt]
    ops += [torch.floor, torch.ceil, torch.round, torch.trunc, torch.erf, torch.square, torch.log1p, torch.expm1]
    x = torch.ones(8)
    args, _ = run(tmp_path, step=lambda: [op(x) for op in ops])
    lines = args.run.table.read_text().split("\n")
    assert lines.index(lines[0], 3) - 3 == 15


def test_a_healthy_runs_chatter_is_kept_off_and_all_else_is_passed_on(tmp_path, capfd, monkeypatch):
    passed = ["E1120 11:48:15.123 1 torch/x.py:1] an error", "a warning of yours"]
    lines = ["INFO:2026-11-20 11:48:15 1:1 init.cpp:1] hello", "W1120 11:48:15.123 1 torch/x.py:1] careful", *passed]

    def speak():
        with quiet(parse(tmp_path), Device("cpu", "a machine", None)):
            os.write(2, "".join(f"{line}\n" for line in lines).encode())

    monkeypatch.delenv("TORCH_LOGS", raising=False)
    speak()
    assert capfd.readouterr().err.splitlines() == passed
    monkeypatch.setenv("TORCH_LOGS", "output_code")  # then everything is wanted
    speak()
    assert capfd.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(("kind", "passed"), [("cpu", False), ("cuda", True)])
def test_that_no_gpu_is_found_is_news_on_a_gpu_alone(kind, passed, tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    line = "ERROR:2026-11-24 10:00:00 7:7 DeviceUtil.cpp:17] gpuGetDeviceCount failed with code 35"
    with quiet(parse(tmp_path), Device(kind, "a machine", None)):
        os.write(2, f"{line}\n".encode())
    assert capfd.readouterr().err.splitlines() == [line] * passed


@pytest.mark.parametrize("written", ["", '{"traceEvents": [{"ph": "X"', None])
def test_a_trace_that_kineto_wrote_in_part_is_none(written, tmp_path):
    with (
        pytest.raises(LessonError, match="cannot write the trace: no room in the temporary folder"),
        artifacts.writing(parse(tmp_path), Device("cpu", "a machine", None)) as files,
    ):
        files.table.write_text("")
        if written is not None:
            files.trace.write_text(written)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("module", "passed"), [("torch.nn", False), ("mine", True)])
def test_warnings_of_torch_are_kept_off_and_others_are_not(module, passed):
    code = (
        "import argparse, warnings; from common.quiet import quiet; from common.device import Device\n"
        "with quiet(argparse.Namespace(compile_mode=None), Device('cpu', 'a machine', None)):\n"
        f"    warnings.warn_explicit('think of it', UserWarning, 'file.py', 1, module={module!r})"
    )
    env = {name: value for name, value in os.environ.items() if name != "TORCH_LOGS"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, "think of it" in done.stderr) == (0, passed)


def test_the_seed_decides_the_inputs(tmp_path):
    def drawn(seed):
        with Device("cpu", "a machine", None).allocating(parse(tmp_path, "--seed", seed)):
            return torch.randn(4, device="cpu")

    torch.manual_seed(123)
    first = drawn("1")
    torch.rand(7)
    assert torch.equal(first, drawn("1")) and not torch.equal(first, drawn("2"))


def test_seeds_that_torch_cannot_take(tmp_path, capsys):
    assert parse(tmp_path, "--seed", str(2**64 - 1)).seed == 2**64 - 1
    for seed in (str(2**64), "-1", "x"):
        with pytest.raises(SystemExit) as end:
            parse(tmp_path, "--seed", seed)
        assert end.value.code == 2 and "argument --seed: expected a whole number" in capsys.readouterr().err


def test_flags_are_not_abbreviated(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse(tmp_path, "--siz", "9")
    assert "unrecognized arguments: --siz 9" in capsys.readouterr().err


@pytest.mark.parametrize("said", [human_bytes, units.human_bytes], ids=["reader", "lessons"])
def test_sizes_in_bytes(said):
    assert [said(n) for n in (0, 1000, 1023, 1024, 1536, 2**20, 2**30, 3 * 2**30, 5 * 2**40)] == [
        "0 B", "1000 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "3.0 GiB", "5.0 TiB",
    ]  # fmt: skip


def test_versions_name_what_torch_is_built_for_and_nothing_else():
    assert versions().startswith(f"torch {torch.__version__}") and "None" not in versions()
    assert ("CUDA" in versions()) == bool(torch.version.cuda)


def test_the_same_trace_gives_the_same_gz_bytes(tmp_path, monkeypatch):
    args, written = parse(tmp_path, "--gz"), []
    for moment_s in (1e9, 2e9):
        monkeypatch.setattr(time, "time", lambda moment_s=moment_s: moment_s)
        with artifacts.writing(args, Device("cpu", "a machine", None)) as files:
            files.trace.write_text('{"traceEvents": []}')
            files.table.write_text("")
        artifacts.add_header(args.run.trace, {"plain_step_us": {"median": 1.0}})
        written.append(args.run.trace.read_bytes())
    assert written[0] == written[1]
    header = json.loads(gzip.decompress(written[0]))
    assert list(header) == ["plain_step_us", "lesson", "traceEvents"] and header["lesson"]["run"] == args.run.tag


@pytest.mark.slow
def test_an_error_comes_after_what_was_printed():
    code = "from common.cli import LessonError, stop; print('first'); stop(LessonError('second', exit_code=2))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.stdout, done.returncode) == ("first\nerror: second\n", 2)


def peak_of(step, *inputs):
    tensors = [
        tensor
        for inputs_of in inputs
        for tensor in (inputs_of.parameters() if isinstance(inputs_of, torch.nn.Module) else [inputs_of])
    ]
    with TensorMemory({tensor.untyped_storage()._cdata for tensor in tensors}) as memory:
        step(*inputs)
    return memory.peak_bytes


def test_the_peak_counts_tensors_from_their_op_to_their_last_reference():
    x = torch.ones(256)  # 1 KiB
    kib = 1024

    def frees_the_first():
        first = x + 1
        second = first * 2
        del first
        return second - 1

    def keeps_all():
        first = x + 1
        second = first * 2
        return first, second - 1

    assert peak_of(lambda x: x + 1, x) == kib
    assert peak_of(lambda x: frees_the_first(), x) == 2 * kib
    assert peak_of(lambda x: keeps_all(), x) == 3 * kib
    assert peak_of(lambda x: x.view(16, 16).t()[1:], x) == 0  # views of an input
    assert peak_of(lambda x: (x + 1).view(16, 16).t(), x) == kib  # and of a result
    assert peak_of(lambda x: x.add_(1), x) == 0
    assert peak_of(lambda x: torch.stack([x, x]).sum(), x) == 2 * kib + 4
    assert peak_of(lambda layer: layer(torch.ones(1, 8)), torch.nn.Linear(8, 4)) == 8 * 4 + 4 * 4


def test_inputs_have_to_fit_together():
    """Each of 1 KiB; what is gone counts no more."""
    with BoundedMemory(2500) as memory:
        first, second = (torch.ones(256, device="cpu") for _ in range(2))
        with pytest.raises(TooLargeError) as failed:
            torch.ones(256, device="cpu")
        assert failed.value.needed_bytes == 3072
        del first
        assert torch.ones(256, device="cpu").nbytes + second.nbytes == memory.alive_bytes == 2048


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["AVX2", "DEFAULT"])
def test_the_peak_does_not_depend_on_the_cpus_instructions(mode, lesson):
    run = lesson("01_matmul_add.py", "--device", "cpu", env={"ONEDNN_MAX_CPU_ISA": mode})
    assert "\npeak memory: 40.0 KiB of tensors, of which 24.0 KiB are inputs and weights\n" in run.out


def test_what_the_line_on_memory_says():
    kib, mib = 1024, 2**20
    assert peak_memory(40 * kib, None, 24 * kib) == "40.0 KiB of tensors, of which 24.0 KiB are inputs and weights"
    assert peak_memory(40 * kib, 40 * kib, 24 * kib) == "40.0 KiB of tensors, of which 24.0 KiB are inputs and weights"
    assert peak_memory(40 * kib, 32 * mib, 24 * kib) == (
        "40.0 KiB of tensors, of which 24.0 KiB are inputs and weights; 32.0 MiB with what libraries took for themselves"
    )
    assert peak_memory(None, 32 * mib, 24 * kib) == (
        "32.0 MiB, of which 24.0 KiB are inputs and weights; workspaces of libraries are counted"
    )
    assert peak_memory(None, None, 24 * kib) is None


class Gpu(Idle):
    """A GPU whose memory is known, on a machine without one."""

    def peak_bytes(self):
        return 32 * 2**20


def test_memory_in_cuda_graphs_is_not_what_the_allocator_says(tmp_path, capsys):
    """A graph's memory is taken before the step that is watched."""
    for flags, said in (((), "; 32.0 MiB with what libraries took"), (("--compile", "--compile_mode", "reduce-overhead"), None)):
        run(tmp_path, *flags, device=Gpu([]))
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("peak memory: ")]
        assert [said in line for line in lines] == [True] if said else not any("32.0 MiB" in line for line in lines)


@pytest.mark.parametrize(
    ("kind", "column"), [("cuda", "device_time_total"), ("cpu", "cpu_time_total"), ("mps", "cpu_time_total")]
)
def test_the_table_is_sorted_by_the_time_on_the_device(kind, column):
    assert Device(kind, "a device", None).sort_by == column


def test_the_peak_of_a_gpu_is_the_most_that_was_given_out_at_once(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda: 7)
    monkeypatch.setattr(torch.accelerator, "memory_allocated", lambda: 3)
    assert (Device("cuda", "a GPU", None).peak_bytes(), Device("cpu", "a machine", None).peak_bytes()) == (7, None)


def test_two_paths_with_the_same_end_have_two_names():
    end = "models/" + "x" * 60
    same: dict[str, Any] = {"sizes": (), "dtype": "bf16", "warmup": False, "compile": False}
    one, other = (run_names.run_tag(**same, changed={"model": f"/{root}/{end}"}) for root in ("a", "b"))
    assert one != other and one.rpartition("-")[0] == other.rpartition("-")[0]


def test_a_run_on_a_gpu_without_its_events_does_not_end_well(tmp_path):
    args, profiler = run(tmp_path)
    finish(profiler.files, None, args, Device("cpu", "a machine", None))
    with pytest.raises(LessonError, match=r"^the lesson ran on the GPU, but no GPU event was recorded "):
        finish(profiler.files, None, args, Device("cuda", "a GPU", None))


@pytest.mark.parametrize("flags", [("--wait", "0"), ("--compile",)])
def test_nothing_is_said_of_memory_where_it_is_not_known(flags, tmp_path, capsys):
    run(tmp_path, *flags)
    assert "peak memory" not in capsys.readouterr().out


def test_the_next_command_can_be_pasted_where_the_folder_has_spaces(tmp_path, capsys):
    folder = tmp_path / "my traces"
    folder.mkdir()
    args, _ = run(folder)
    assert f"\nnext: uv run read_trace.py '{args.run.trace}', or drag it" in capsys.readouterr().out


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line(tmp_path):
    command = f"{sys.executable} 01_matmul_add.py --device cpu --trace_dir {tmp_path}"
    done = subprocess.run(f"{command} >/dev/full", shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: cannot write to standard output: No space left on device\n")
