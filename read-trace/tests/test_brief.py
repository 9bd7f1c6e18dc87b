"""For scripts: --brief, and the slices of a finding; a folder whose traces are told as they land."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from reader_helpers import GALLERY, TOOL
from reader_helpers.events import op, step, write
from trace_reader import cli, read

NAIVE = GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json"
STACKS = TOOL / "benchmarks" / "with_stacks.json.gz"


def told(capsys, *arguments):
    code = cli.main(list(map(str, arguments)))
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_brief_says_why_a_step_is_not_known_without_the_profiler(tmp_path, capsys):
    text = (GALLERY / "01_matmul_add" / "64_bf16_warm_eager.json").read_text()
    (tmp_path / "hip.json").write_text(text.replace('"cudaLaunchKernel', '"hipLaunchKernel').replace('"cuLaunch', '"hipLaunch'))
    _, out, _ = told(capsys, tmp_path / "hip.json", "--brief")
    assert "\nplain step: not known: what the profiler costs on such a device was not measured\n" in out


def test_brief_is_short_and_no_line_is_wrapped(capsys):
    code, out, _ = told(capsys, NAIVE, "--brief")
    facts = read(str(NAIVE))
    lines = out.splitlines()
    assert code == 0 and len(lines) <= 20
    assert lines[:5] == [
        f"trace: {NAIVE}",
        "device: NVIDIA H200",
        "verdict: gpu-bound: 87% of the critical path is GPU compute (masked_fill 33%, softmax 26%, other 27%)",
        "step: 1.08 ms recorded",
        "kernels per step: 5 and 1 memcpy and 1 memset "
        "(Memset, nvjet GEMM 256x128, mul, Memcpy DtoD, masked_fill, softmax, nvjet GEMM 64x512)",
    ]
    assert lines[5] == "1. unfused-attention (saves 85% to 97%): 5 kernels per softmax: 2 GEMMs, a softmax and 2 more"
    assert lines[6].startswith("   next: Use F.scaled_dot_product_attention with a fused backend")
    told_of = [line.split()[1] for line in lines if line[0].isdigit()]
    also = lines[-1].removeprefix("also: ").split(", ")
    assert sorted([*told_of, *also]) == sorted(finding.slug for finding in facts.findings)


def test_brief_names_three_changes_at_most_and_nothing_that_changes_nothing(capsys):
    shapes = NAIVE.with_name("8_16_1024_64_bf16_warm_eager_record_shapes.json")
    numbered = [line.split()[1] for line in told(capsys, shapes, "--brief")[1].splitlines() if line[0].isdigit()]
    assert numbered == ["unfused-attention", "slow-pointwise", "hidden-copy"]
    cold = told(capsys, GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json", "--brief")[1]
    assert "\nno finding that names a change\nplaces, and what a step saves without them: matmul_add 90% to 93%; " in cold
    assert "\nalso: overhead-bound, cold-start, " in cold


@pytest.mark.parametrize("trace", sorted(GALLERY.glob("0[13]*/*.json"))[::4], ids=lambda path: path.stem)
def test_brief_holds_for_all_of_them(capsys, trace):
    code, out, _ = told(capsys, trace, "--brief")
    assert code == 0 and len(out.splitlines()) <= 20 and out.count("\nverdict: ") == 1


def test_a_finding_is_shown_with_its_slices(capsys):
    code, out, _ = told(capsys, "show", NAIVE, "unfused-attention", "--top", "3")
    assert code == 0 and "15 slices, 2.81 ms together:" in out and "and 12 more" in out
    lines = [line.split() for line in out.splitlines() if line.startswith("  masked_fill")]
    assert len(lines) == 3 and lines[0][1:] == ["468.2", "µs", "358.5", "µs", "#2", "aten::masked_fill_"]
    found = json.loads(told(capsys, "show", NAIVE, "unfused-attention", "--json")[1])
    first = found["slices"][0]
    assert found["finding"] == "unfused-attention" and found["gain"]["low"] < found["gain"]["high"] and len(found["slices"]) == 15
    assert (first["name"], first["kind"], first["step"], first["line"]) == ("masked_fill", "kernel", "ProfilerStep#2", None)
    assert first["ops"][0] == "aten::masked_fill" and first["correlation"] > 0
    assert "| masked_fill |" in told(capsys, "show", NAIVE, "unfused-attention", "--md")[1]


def test_a_slice_has_its_line_where_stacks_were_recorded(capsys):
    code, out, _ = told(capsys, "show", STACKS, "views-launch-nothing", "--json")
    lines = {load["line"] for load in json.loads(out)["slices"]}
    assert code == 0 and any(line and ".py(" in line and "site-packages" not in line for line in lines), lines


def test_what_is_no_finding_or_not_there_is_said(capsys):
    code, _, err = told(capsys, "show", NAIVE, "nothing")
    assert code == 2 and err.startswith("error: no finding is called 'nothing'; this trace shows gpu-bound, ")
    code, _, err = told(capsys, "show", NAIVE, "recompile")
    assert code == 2 and err.startswith(f"error: {NAIVE} does not show recompile; this trace shows gpu-bound, ")


def test_what_is_in_a_folder_is_told_and_what_lands_in_it(tmp_path):
    trace = NAIVE.read_bytes()
    (tmp_path / "step10.json").write_bytes(trace)
    (tmp_path / "step9.json").write_bytes(trace)
    (tmp_path / ".hidden.json").write_bytes(trace)
    (tmp_path / "note.txt").write_text("no trace")
    command = [sys.executable, "-m", "trace_reader", "watch", str(tmp_path), "--every", "0.05"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOL), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        # A shell's job in the background ignores SIGINT, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline().split() == ["trace", "recorded", "plain", "to", "first", "verdict"]
        rows = [process.stdout.readline().split() for _ in range(2)]
        assert [row[0] for row in rows] == ["step9", "step10"] and rows[0][1:3] == ["1.08", "ms"]
        assert all(row[-2:] == ["+0.0%", "gpu-bound"] for row in rows)
        with (tmp_path / "late.json").open("wb") as file:  # written in two parts: half of it is no trace
            file.write(trace[: len(trace) // 2])
            file.flush()
            time.sleep(0.02)
            file.write(trace[len(trace) // 2 :])
        assert process.stdout.readline().split()[0] == "late"
        (tmp_path / "broken.json").write_text("{")
        assert process.stderr.readline().startswith(f"error: {tmp_path / 'broken.json'}: ")
        (tmp_path / "last.json").write_bytes(trace)
        assert process.stdout.readline().split()[0] == "last"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()


def test_a_folder_is_read_once(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(NAIVE.read_bytes())
    code, out, _ = told(capsys, "watch", tmp_path, "--once")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["trace", "in/a"]
    assert told(capsys, "watch", tmp_path / "none", "--once")[0] == 2


@pytest.mark.slow
def test_the_questions_that_a_script_answers_from_the_text_alone():
    """On recordings of known faults; of `item_on_gradients` less than a tenth is told, and was saved; of `loop_optimizer` 3% to a
    tenth is told, and 3% was saved.
    """
    spec = importlib.util.spec_from_file_location("questions", TOOL / "benchmarks" / "questions.py")
    assert spec is not None and spec.loader is not None
    questions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(questions)
    sound_us = questions.step_us(questions.asked(str(questions.FAULTS / "sound.json.gz"), "--brief"))
    found = {name: questions.answers(name, sound_us) for name in questions.TRUTH}
    assert {name: row for name, row in found.items() if False in row} == {
        "item_on_gradients": (True, True, False), "loop_optimizer": (True, True, False)}  # fmt: skip


def test_of_a_finding_about_gaps_the_gaps_are_shown(tmp_path, capsys):
    """When each begins, how long it lasts, and what stands before and after it."""
    events = [
        e for n in range(3)
        for e in (step(n, 1000 * n, 990), op("aten::mm", 1000 * n + 20, 100), op("aten::add", 1000 * n + 420 + 50 * n, 100))
    ]  # fmt: skip
    path = write(tmp_path / "t.json", *events)
    assert cli.main(["show", path, "python-between-ops"]) == 0
    out = capsys.readouterr().out
    # 350 and 400 between the ops; 420 and 370 behind them, to the step's end. The first 20 are short, and of three steps the path
    # leaves the first out.
    assert "\n4 gaps, 1.54 ms together:\n" in out
    rows = [re.split(r"  +", line.strip()) for line in out.partition("together:\n")[2].splitlines()[1:]]
    assert rows == [
        ["after aten::add", "1.57 ms", "420.0 µs", "#1"],
        ["after aten::mm, before aten::add", "2.12 ms", "400.0 µs", "#2"], ["after aten::add", "2.62 ms", "370.0 µs", "#2"],
        ["after aten::mm, before aten::add", "1.12 ms", "350.0 µs", "#1"],
    ]  # fmt: skip
    assert cli.main(["show", path, "python-between-ops", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["slices"][0]
    assert (first["kind"], first["start_us"], first["duration_us"], first["name"]) == ("gap", 1570, 420, "after aten::add")
    assert cli.main(["show", path, "python-between-ops", "--md"]) == 0
    assert "together:\n\n| gap | at | takes | step |\n" in capsys.readouterr().out  # a table of Markdown begins a paragraph
