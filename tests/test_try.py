"""`read-trace try`: programs with torch, run as they are, changed, and run again."""

import importlib
import itertools
import json
import linecache
import os
import pkgutil
import re
import signal
import subprocess
import sys
from typing import Any

from helpers import TOOL
import msgspec
import pytest
import torch
from torch.profiler import record_function
from torch.utils.data import DataLoader, TensorDataset
from trace_reader import cli, load, read
from trace_reader.analysis.runs.attempts import Advice, Attempt, outcome, outcomes
from trace_reader.commands import try_program
from trace_reader.model.slices import Kind
from trace_reader.recording import found_step, step_recorder
from trace_reader.recording.found_step import FoundStep
from trace_reader.recording.saved_source import SavedSource, digest_of
from trace_reader.report.attempt_report import attempt_lines, log_report, outcome_lines
from trace_reader.report.document import Style
from trace_reader.write import TEXT, Answer

TRAIN = """\
import sys
import torch
from layers import model

own = model()
optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
for k in range(int(sys.argv[1])):
    own(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done", k + 1)
"""
LAYERS = "import torch\n\n\ndef model():\n    return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range({})])\n"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A folder with a program that trains, in which commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "layers.py").write_text(LAYERS.format(8))
    return tmp_path


def tried(capfd, *words):
    return cli.main(["try", *words]), *capfd.readouterr()


@pytest.mark.slow
def test_a_program_is_tried_changed_and_tried_again(program, capfd, monkeypatch):
    code, out, err = tried(capfd, "train.py", "100000")
    assert code == 0 and "done" not in out  # it was ended
    lines = out.splitlines()
    assert lines[:2] == ["attempt 001: train.py 100000", "a step: step() of its optimizer (SGD)"]
    assert lines[2].startswith("without the profiler: ") and " steps in 5 stretches" in lines[2]
    assert lines[-1] == "all of it: read-trace .read-trace/001"
    assert err.splitlines()[0] == "read-trace: a step is step() of its optimizer (SGD)"
    names = ["attempt.json", "run.json", "source", "trace.json", "trace_stacks.json"]
    assert sorted(path.name for path in (program / ".read-trace" / "001").iterdir()) == names
    assert sorted(path.name for path in program.iterdir() if path.name != "__pycache__") == [
        ".read-trace",
        "layers.py",
        "train.py",
    ]
    stacks = load(str(program / ".read-trace" / "001" / "trace_stacks.json"), stacks=True).slices
    python = {stacks.names[stacks.name[row]]: (stacks.start_ns[row], stacks.end_ns[row]) for row in stacks.of(Kind.PYTHON)}
    ((_, begun_ns),) = (span for name, span in python.items() if name.endswith(": start_trace"))
    assert begun_ns < python["train.py(?): <module>"][1] - 1000  # it has returned; the module has not
    facts = read(str(program / ".read-trace" / "001" / "trace.json"))
    assert len(facts.steps) == 3 and facts.plain.how == "measured"

    assert cli.main(["brief", ".read-trace/001/trace.json", "--json"]) == 0
    places = {one["place"]: one["file"] for one in json.loads(capfd.readouterr().out)["next"]}  # their order is that of times
    assert places["many-small-ops"] == "train.py"  # not in what called it back

    (program / "layers.py").write_text(LAYERS.format(1))
    monkeypatch.setattr(try_program, "RUNS", 1)
    code, out, err = tried(capfd, "--against", "1")
    assert code == 0
    assert "\n001 -> 002: " in out and "1 processes of each, in turns)" in out
    told = [line[:17] for line in err.splitlines() if " of 2: " in line]
    assert told == ["note: 1 of 2: 001", "note: 2 of 2: 002"]
    assert (program / ".read-trace" / "002" / "in_turns.json").is_file()
    assert cli.main([".read-trace/002"]) == 0 and "left out" not in capfd.readouterr().err
    assert cli.main(["show", ".read-trace/002", "many-small-ops"]) == 2
    assert capfd.readouterr().err.startswith("error: .read-trace/002/trace.json does not show many-small-ops; this trace shows ")
    assert cli.main(["time", ".read-trace/002", "--by", "stack"]) == 0
    out, err = capfd.readouterr()
    assert "note: functions of Python: .read-trace/002/trace_stacks.json\n" in err and re.search(
        r"\n  train\.py(?::8|\(\?\): <module>)  ", out
    )
    code, out, err = tried(capfd, "--log", "--json")
    told = json.loads(out)
    assert told["outcomes"][0]["in_turns"] == 1
    assert [one["command"] for one in told["attempts"]] == [["train.py", "100000"]] * 2
    assert told["outcomes"][0]["saved"] > 0.3  # an eighth of the layers


@pytest.mark.slow
def test_a_step_that_calls_no_function_of_python_is_recorded_as_it_is(program, capfd):
    loop = "import torch\n\na = torch.randn(64, 64)\nfor k in range(10**7):\n    c = torch.relu(a @ a)\n    d = c.softmax(1)\n"
    (program / "train.py").write_text(loop)
    code, out, _ = tried(capfd, "train.py")
    assert (code, out.splitlines()[1]) == (0, "a step: a turn of the loop at train.py:4")
    assert "library-function" not in out and "trace_reader" not in out
    stacks = load(str(program / ".read-trace" / "001" / "trace_stacks.json"), stacks=True)
    rows = stacks.slices.of(Kind.PYTHON)
    called = [row for row in rows.tolist() if stacks.slices.names[stacks.slices.name[row]].endswith(": called")]
    assert called and stacks.slices.end_ns[called[0]] < stacks.slices.end_ns[rows].max() - 1000  # it has returned


@pytest.mark.slow
def test_ctrl_c_as_a_recording_with_stacks_begins_is_the_programs(program, capfd):
    begins = "import os, signal\nimport torch.profiler.profiler as P\nbegan = P.profile.start_trace\n"
    begins += "signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background, it has none\n"
    begins += "\n\ndef start_trace(self):\n"
    begins += "    began(self)\n    if self.with_stack:\n        os.kill(os.getpid(), signal.SIGINT)\n\n\n"
    (program / "train.py").write_text(f"{begins}P.profile.start_trace = start_trace\n{TRAIN}")
    code, _, err = tried(capfd, "train.py", "100000")
    assert code == 130 and "SystemError" not in err and "KeyboardInterrupt" in err


@pytest.mark.slow
def test_a_program_with_few_steps_is_run_once_more_and_one_with_too_few_is_told(program, capfd):
    code, out, err = tried(capfd, "--json", "train.py", "60")
    (told,) = json.loads(out)["attempts"]  # nothing else is printed to stdout
    assert code == 0 and err.count("done 60") == 1 and 20 <= told["steps"] <= 30  # 30, or without what came between some
    assert "\nnote: the program has 58 steps from there on: once more, and fewer are timed\n" in err
    code, out, err = tried(capfd, "train.py", "20")
    assert (code, out) == (2, "done 20\n")
    assert err.splitlines()[-1] == (
        "error: train.py 20: it ended 18 steps later (step() of its optimizer (SGD)); 29 are needed, to warm up, to time and to "
        "record: let it run longer, or say what a step is: --step"
    )


@pytest.mark.slow
def test_what_fails_in_the_program_is_its_own(program, capfd):
    (program / "fails.py").write_text("import torch\n\n\ndef f(k):\n    if k == 5:\n        raise ValueError('no more')\n\n\n"
                                      "for k in range(9):\n    f(k)\n    torch.ones(3)\n")  # fmt: skip
    code, out, err = tried(capfd, "fails.py")
    assert (code, out) == (1, "")
    path = program / "fails.py"
    assert err == (
        f'Traceback (most recent call last):\n  File "{path}", line 10, in <module>\n    f(k)\n  File "{path}", line 6, in f\n'
        "    raise ValueError('no more')\nValueError: no more\n"
    )
    assert [path.name for path in (program / ".read-trace").iterdir()] == [".gitignore"]
    (program / "ends.py").write_text("import sys, torch\nsys.exit('not today')\n")
    assert tried(capfd, "ends.py") == (1, "", "not today\n")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_the_end_of_a_terminal_is_the_programs_and_nothing_is_left(program, name):
    (program / "train.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(TOOL), os.environ.get("PYTHONPATH")]))}
    words = [sys.executable, "-m", "trace_reader", "try", "train.py"]
    own = getattr(signal, name)  # which nohup has this process ignore, and what it starts
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        preexec_fn=lambda: signal.signal(own, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert [path.name for path in (program / ".read-trace").iterdir()] == [".gitignore"]


@pytest.mark.slow
def test_what_fails_in_the_recording_is_told_and_is_no_fault_of_the_programs(program, capfd):
    """No file may have more than 20 kB, which a trace has."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    (program / "full.py").write_text(limit + TRAIN)
    code, out, err = tried(capfd, "full.py", "100000")
    assert (code, out) == (2, "") and "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: full.py 100000: its steps could not be recorded: ")
    assert [path.name for path in (program / ".read-trace").iterdir()] == [".gitignore"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--log",), "no attempt is in .read-trace/: read-trace try PROGRAM makes one"),
        ((), "no program to try, and none was tried here before: " + try_program.EXAMPLE),
        (("nothing.py",), "no program is called 'nothing.py'"),
        (("ls", "-la"), "'ls' is no Python program: " + try_program.EXAMPLE),
        (("--against", "3", "train.py"), "no attempt 3 in .read-trace/: there are none"),
        (("bare.py",), "bare.py: it does not import torch; a step of it cannot be recorded"),
        pytest.param(("--step", "fit", "once.py"), "once.py: no step was found: no function called fit was entered, and no loop "
                     "there turned; its functions: main of once.py", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_what_cannot_be_tried_is_told(program, capfd, words, said):
    (program / "bare.py").write_text("for k in range(99):\n    a = k\n    b = a\n")
    (program / "once.py").write_text("import torch\n\n\ndef main():\n    torch.ones(3)\n\n\nmain()\n")
    code, out, err = tried(capfd, *words)
    assert (code, out, err) == (2, "", f"error: {said}\n")


@pytest.mark.slow
def test_a_loop_that_is_found_late_is_run_from_its_first_turn_on(program, capfd):
    """Of 60 turns the finder sees the last few alone."""
    (program / "serve.py").write_text(
        "import time\nimport torch\n\nx = torch.ones(64, 64)\nfor k in range(60):\n"
        "    x = torch.tanh(x @ x)\n    time.sleep(0.006)\n"
    )
    code, out, err = tried(capfd, "serve.py")
    assert code == 0 and "a step: a turn of the loop at serve.py:5" in out, err


@pytest.mark.slow
def test_a_test_of_pytest_is_called_again_and_again(program, capfd):
    (program / "test_it.py").write_text(
        "import pytest, torch\nfrom layers import model\n\n\n@pytest.fixture\ndef own():\n    return model()\n\n\n"
        "def test_y(own):\n    with torch.profiler.profile():\n        assert own(torch.ones(4, 64)).shape == (4, 64)\n\n\n"
        "def test_z():\n    pass\n"
    )
    code, out, err = tried(capfd, "pytest", "test_it.py::test_y", "-q")
    assert code == 0 and "\na step: a call of the test test_y\n" in out and "1 passed" in out
    code, out, err = tried(capfd, "pytest", "test_it.py", "-q")
    assert code == 4 and "ERROR: try takes one test, and these are 2: name it, as test_it.py::test_y" in out + err


@pytest.mark.slow
def test_the_ranks_of_a_job_are_each_recorded(program, capfd):
    job = TRAIN.replace("own = model()", "torch.distributed.init_process_group('gloo')\n"
                        "own = torch.nn.parallel.DistributedDataParallel(model())")  # fmt: skip
    (program / "job.py").write_text(job)
    code, out, err = tried(capfd, "torchrun", "--standalone", "--nproc_per_node", "2", "job.py", "5000")
    assert code == 0, err
    assert "\na step: step() of its optimizer (SGD) on each of 2 ranks, the slowest told\n" in out
    assert "\n2 ranks of one job: .read-trace/001/trace_rank*.json\n" in out
    assert re.search(r"; (1\d|20) steps in 5 stretches", out.splitlines()[2])


# --- What ends a step


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Runs a program of these lines with torch; returns what its steps are said to be."""
    monkeypatch.setattr(found_step, "SETTLED_S", 0.0)

    def run(*lines):
        told, ends = [], []

        def ended(words):
            ends.append(words)
            told.extend([words] if words else [])

        found = FoundStep(ended)
        begun = {"torch": torch, "DataLoader": DataLoader, "record_function": record_function, "TensorDataset": TensorDataset,
                 "w": torch.ones(3, requires_grad=True)}  # fmt: skip
        text = "\n".join(lines)
        code = compile(text, str(tmp_path / "train.py"), "exec")
        found.watch()
        found._look_at_torch()
        try:
            exec(code, begun)
        finally:
            found.stop()
        run.__dict__["ends"] = len(ends)
        return told

    return run


FIT = ["  w.sum().backward()", "  o.step()"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["o = torch.optim.SGD([w], 0.1)", "for k in range(9):", *FIT], ["step() of its optimizer (SGD)"]),
        # Two optimizers: the first that steps often enough.
        (["o, p = (torch.optim.SGD([w], 0.1) for _ in 'ab')", "for k in range(9):", *FIT, "  p.step()"],
         ["step() of its optimizer (SGD), one of 2"]),
        # Of several backward passes before a step the optimizer's, however often the loader was asked.
        (["o = torch.optim.SGD([w], 0.1)", "d = DataLoader(TensorDataset(torch.ones(60)))",
          "for k, x in enumerate(d):", "  w.sum().backward()", "  if k % 9 == 8:", "    o.step()"],
         ["step() of its optimizer (SGD)"]),
        (["d = DataLoader(TensorDataset(torch.ones(9)))", "for x in d:", "  x[0] + 1", "  x[0] + 2"],
         ["the next batch of its DataLoader"]),
        # What came once, before the loop began, does not recur.
        (["d = DataLoader(TensorDataset(torch.ones(9)))", "next(iter(d))", "for k in range(9):", "  w + 1", "  w + 2"],
         ["a turn of the loop at train.py:3"]),
        (["for k in range(9):", "  with record_function(f'turn {k}'):", "    with record_function('a'):", "      w + 1"],
         ["the range 'turn N'"]),
        (["for k in range(9):", "  with record_function('request'):", "    for l in range(4):",
          "      with record_function('attention'):", "        w + 1"], ["the range 'request'"]),
        # An optimizer in a hook of the backward pass: nothing can be recorded from there on.
        (["o = torch.optim.SGD([w], 0.1)", "w.register_post_accumulate_grad_hook(lambda p: o.step())", "for k in range(9):",
          "  w.sum().backward()", "  w.grad = None"], ["a turn of the loop at train.py:3"]),
        # Without an optimizer: the innermost loop around the backward pass, though another one is around that.
        (["for e in range(9):", "  for k in range(9):", "    w.sum().backward()", "    for p in [w, w]:", "      p.grad = None",
          "      p.grad"], ["a turn of the loop at train.py:2"]),
        # What is made before, in a loop of its own.
        (["a = []", "for k in range(9):", "  b = torch.ones(3)", "  a.append(b)", "o = torch.optim.SGD([w], 0.1)",
          "for k in range(9):", *FIT], ["a turn of the loop at train.py:2", "step() of its optimizer (SGD)"]),
    ],
    ids=["optimizer", "two", "accumulated", "loader", "once", "range", "ranges", "hook", "by hand", "data"],
)  # fmt: skip
def test_what_ends_a_step(steps, lines, said):
    assert steps(*lines) == said


@pytest.mark.slow
def test_a_loop_that_was_said_is_found_at_its_line_of_now(program, capfd):
    code, out, err = tried(capfd, "--step", "train.py:7", "train.py", "100000")
    assert code == 0 and out.splitlines()[1] == "a step: a turn of the loop at train.py:7"
    (program / "train.py").write_text(TRAIN.replace("import sys\n", "import sys\n\n# more\n"))
    code, out, err = tried(capfd)
    assert code == 0 and err.startswith("note: the loop at train.py:7 is at train.py:9 now\n")
    assert "\n001 -> 002: " in out


def test_of_two_loaders_one_counts(steps):
    lines = [
        "a, b = (DataLoader(TensorDataset(torch.ones(9))) for _ in 'ab')",
        "for x, y in zip(a, b):",
        "  x[0] + y[0]",
        "  w + 1",
    ]
    assert steps(*lines) == ["the next batch of its DataLoader"] and steps.ends == 9 - 2


def test_an_optimizer_comes_in_the_place_of_one_that_is_gone(steps):
    lines = ["def run(n):", "  o = torch.optim.SGD([w], 0.1)", "  for k in range(n):", "    w.sum().backward()", "    o.step()"]
    assert steps(*lines, "run(5)", "run(20)") == ["step() of its optimizer (SGD)"] and steps.ends == 5 - 2 + 20


def test_the_programs_own_profiler_ends_its_steps(steps):
    lines = ["p = torch.profiler.profile(schedule=lambda n: torch.profiler.ProfilerAction.NONE)", "p.start()"]
    assert steps(*lines, "for k in range(9):", "  w + 1", "  p.step()", "p.stop()") == ["step() of its profiler"]


# --- What is recorded


def recorder(tmp_path, monkeypatch, took_s, **options):
    """A recorder whose steps take so long; what it said, and after how many it was done."""
    clock = iter(itertools.accumulate(itertools.chain([0.0], took_s, itertools.repeat(took_s[-1]))))
    monkeypatch.setattr(step_recorder.time, "perf_counter", lambda: next(clock))
    said: list[str] = []
    one = step_recorder.StepRecorder(tmp_path, say=said.append, **options)
    ended = 0
    while not one.is_done and ended < 2000:
        one.ended()
        ended += 1
    return one, said, ended


def test_a_recording_that_was_abandoned_before_it_began_is_none(tmp_path):
    """What was to begin soon comes when another step is looked for already."""
    soon: list[Any] = []
    one = step_recorder.StepRecorder(tmp_path, soon=soon.append)
    one._start(2, tmp_path / "t.json")
    one.recorded = 3
    one.ended()
    one.abandon()
    (step,) = soon
    step()
    assert not one.is_done and not list(tmp_path.iterdir())


def test_steps_are_timed_when_the_last_ones_are_alike(tmp_path, monkeypatch):
    one, said, _ = recorder(tmp_path, monkeypatch, [9, 4, 2, 1, 1, 0.9, 0.8], only_timed=True)
    assert said == ["900.00 ms or more each: 15 are timed"] and (one.steps, len(one.times_us)) == (15, 5)


@pytest.mark.parametrize(
    ("options", "steps"), [({}, 1000), ({"has": 29}, 15), ({"has": 60}, 45), ({"rank": 1}, 20), ({"has": 60, "rank": 0}, 20)]
)
def test_how_many_steps_are_timed(tmp_path, monkeypatch, options, steps):
    one, _, ended = recorder(tmp_path, monkeypatch, [0.001], only_timed=True, **options)
    assert one.steps == steps
    assert ended == steps + 1 + (8 if "rank" in options else 5)  # of all ranks as many


def test_pauses_between_steps_are_none_of_a_step():
    assert step_recorder._pauses_us([0, 1, 2, 3, 13, 14, 15]) == [10e6]
    assert step_recorder._pauses_us([0, 1, 2, 3, 7, 8, 9]) == []  # four times as long as most
    assert step_recorder._pauses_us([0, 1, 2, 3, 4, 14, 24, 34]) == []  # three of seven: they are steps


# --- What a change brought


def attempt(number, times_us, *advice, program="script train.py"):
    told = tuple(Advice(slug, "", "", low, high) for slug, low, high in advice)
    return Attempt(number, "2026-11-26T12:00:00+00:00", ("train.py",), program, None, "a turn", tuple(times_us), 15, (), 3,
                   None, 1, "CPU", "2.15", "3.12", 2, "", "", told)  # fmt: skip


SAME_FILES = "none of the program's own Python files changed, nor its arguments"
BEFORE = attempt(1, [9.9, 10, 10.1], ("sync", 0.3, 0.5), ("copies", 0.1, 0.2), ("unknown", None, None))


@pytest.mark.parametrize(
    ("times_us", "left", "said"),
    [
        ([5.9, 6, 6.1], ("copies", "unknown"), ["001 -> 002: 10.0 µs -> 6.0 µs, 40% less (38% to 42%)",
         "no longer shown: #1 sync, which was to save 30% to 50%", "the promise (30% to 50%): kept"]),
        ([7.9, 8, 8.1], ("copies", "unknown"), ["001 -> 002: 10.0 µs -> 8.0 µs, 20% less (18% to 22%)",
         "two processes may differ by so much: --against 1 runs both in turns",
         "no longer shown: #1 sync, which was to save 30% to 50%"]),  # of one run each
        ([2.9, 3, 3.1], ("copies", "unknown"), ["001 -> 002: 10.0 µs -> 3.0 µs, 70% less (69% to 71%)",
         "no longer shown: #1 sync, which was to save 30% to 50%"]),
        ([1.9, 2, 2.1], ("copies", "unknown"), ["001 -> 002: 10.0 µs -> 2.0 µs, 80% less (79% to 81%)",
         "no longer shown: #1 sync, which was to save 30% to 50%", "the promise (30% to 50%): more than promised"]),
        ([4.9, 5, 5.1], ("unknown",), ["001 -> 002: 10.0 µs -> 5.0 µs, 50% less (48% to 51%)",
         "no longer shown: #1 sync, which was to save 30% to 50%",
         "no longer shown: #2 copies, which was to save 10% to 20%", "the promise (together 30% to 60%): kept"]),
        ([4.2, 4.3, 4.4], ("unknown",), ["001 -> 002: 10.0 µs -> 4.3 µs, 57% less (56% to 58%)",
         "no longer shown: #1 sync, which was to save 30% to 50%",
         "no longer shown: #2 copies, which was to save 10% to 20%", "the promise (together 30% to 60%): kept"]),
        ([4.9, 5, 5.1], ("copies", "sync"), ["001 -> 002: 10.0 µs -> 5.0 µs, 50% less (48% to 51%)",
         "no longer shown: #3 unknown"]),
        ([19.9, 20, 20.1], ("copies", "sync", "unknown"), ["001 -> 002: 10.0 µs -> 20.0 µs, 100% more (97% to 103%)"]),
        ([9.8, 10, 10.2], ("copies", "unknown"), ["001 -> 002: 10.0 µs -> 10.0 µs: inconclusive, no difference beyond the spread "
         "(-3.0% to 3.0%)", "two processes may differ by so much: --against 1 runs both in turns",
         "no longer shown: #1 sync, which was to save 30% to 50%",
         "the promise (30% to 50%): less than promised"]),
        ([6, 10, 10.2], ("copies", "unknown"), ["001 -> 002: 10.0 µs -> 10.0 µs: inconclusive, no difference beyond the spread "
         "(-3.0% to 41%)", "two processes may differ by so much: --against 1 runs both in turns",
         "no longer shown: #1 sync, which was to save 30% to 50%"]),
    ],
    ids=["kept", "less", "little more", "more", "two", "both", "not known", "slower", "none", "unclear"],
)  # fmt: skip
def test_what_a_change_brought_beside_what_was_promised(times_us, left, said):
    after = attempt(2, times_us, *((slug, 0.1, 0.2) for slug in left))
    assert outcome_lines(outcome(BEFORE, after), BEFORE) == said


def test_generic_advice_that_is_gone_beside_other_was_no_promise():
    generic = Advice("many-small-ops", "", "", 0.3, 0.7, is_generic=True)
    before = msgspec.structs.replace(
        attempt(1, [10, 10, 10], ("fused", 0.1, 0.4)), advice=(generic, *attempt(1, [1], ("fused", 0.1, 0.4)).advice)
    )
    both, alone = outcome(before, attempt(2, [8, 8, 8])), outcome(before, attempt(2, [4, 4, 4], ("fused", 0.1, 0.4)))
    assert (both.done, both.promised_low, both.promised_high) == ((1, 2), 0.1, pytest.approx(0.4))
    assert outcome_lines(both, before)[-1] == "the promise (10% to 40%): kept"
    assert (alone.done, alone.promised_low, alone.kept) == ((1,), 0.3, "kept")


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"source": "a", "times_us": (9.5, 9.8, 9.9)}, f"{SAME_FILES}: two runs differ by so much"),
        ({"source": "a"}, f"{SAME_FILES}: something that it reads has, or the machine"),
        ({"source": "b"}, "the promise (30% to 50%): kept"),
        ({"command": ("python", "./train.py"), "source": "b"}, "the promise (30% to 50%): kept"),
        ({"command": ("train.py", "--batch", "32")}, "tried with other arguments: no promise is judged"),
        ({"torch": "2.16", "source": "b"}, "tried on other terms (torch 2.15 -> 2.16): no promise is judged"),
        ({"device": "H200", "source": "b"}, "tried on other terms (CPU -> H200): no promise is judged"),
        ({"threads": 1, "source": "a"}, "tried on other terms (threads: 2 -> 1): no promise is judged"),
        ({"threads": 1, "source": "b"}, "the promise (30% to 50%): kept"),  # the change may have set them
    ],
)
def test_a_promise_is_of_a_change_of_the_program(changes, last):
    before = msgspec.structs.replace(BEFORE, source="a")
    after = msgspec.structs.replace(attempt(2, [5.9, 6, 6.1], ("copies", 0.1, 0.2), ("unknown", 0.1, 0.2)), **changes)
    found = outcome(before, after)
    assert outcome_lines(found, before)[-1] == last and (found.kept == "kept") is last.endswith("kept")


@pytest.mark.parametrize(
    ("slug", "seen", "now", "is_done"),
    [
        ("own-function", "serve.py(23): score, once per step: 3 ms", "serve.py(25): score, 9 times per step: 1 ms", False),
        ("own-function", "serve.py(23): score, once per step: 3 ms", "serve.py(33): rank, once per step: 3 ms", True),
        ("repeated-ops", "per step: 64 x (aten::add, aten::mul); 3 ms", "per step: 8 x (aten::add, aten::mul); 1 ms", False),
        ("repeated-ops", "per step: 64 x (aten::add, aten::mul); 3 ms", "per step: 64 x (aten::sin); 1 ms", True),
        ("repeated-ops", "per step: 64 x (aten::add), 9 x (aten::sin); 3 ms", "per step: 9 x (aten::sin); 1 ms", False),
        ("library-function", "torch/serialization.py: save, dump, called by the program once per step: 3 ms",
         "torch/serialization.py: dump and 2 more, called by the program once per step: 1 ms", False),
        ("library-function", "save(), called by the program once per step: 3 ms", "load(), called by the program", True),
        ("sync-in-step", "24 calls", "12 calls", False),
    ],
)  # fmt: skip
def test_of_functions_and_loops_it_counts_which_one(slug, seen, now, is_done):
    with_advice = [
        msgspec.structs.replace(attempt(n, [10, 10, 10]), advice=(Advice(slug, text, "", 0.1, 0.2),))
        for n, text in enumerate((seen, now), 1)
    ]
    assert (outcome(*with_advice).done == (1,)) is is_done
    shown = msgspec.structs.replace(with_advice[1], advice=(), shown=(slug,))
    assert outcome(with_advice[0], shown).done == ()  # told elsewhere in the report


def test_what_differs_too_much_in_itself_is_not_compared():
    """By more than twice: two stretches of the earlier one, or two runs of the later one in turns."""
    before = attempt(1, [68, 792, 800], ("sync", 0.3, 0.5))
    found = outcome(before, attempt(2, [13, 14, 15]))
    assert (found.is_clear, found.kept, found.low > 0) == (False, "not told", True)
    assert outcome_lines(found, before) == [
        "001 -> 002: 792.0 µs -> 14.0 µs: inconclusive; the longest stretch of one takes 12 times as long as its shortest. Try "
        "again when nothing else runs, or with fewer threads"
    ]
    found = outcome(attempt(1, [10, 10, 10]), attempt(2, [15, 15, 40]), (1.2, 4.0))
    assert outcome_lines(found, before, in_turns=3)[0].startswith("001 -> 002: 10.0 µs -> 15.0 µs: inconclusive, 3 processes of")
    assert (found.in_turns, found.is_clear) == (3, False)


@pytest.mark.parametrize(("pauses_us", "told"), [((290.0,), False), ((200.0, 110.0), True)])
def test_pauses_that_are_longer_than_the_steps_are_doubted(pauses_us, told):
    """15 steps of 10: pauses of more than 300."""
    lines = attempt_lines(msgspec.structs.replace(BEFORE, pauses_us=pauses_us))
    said = "these pauses are 2 times as long as the steps: is the machine busy, or a step something else? read-trace try --step "
    assert (lines[-1] == f"{said}FUNCTION, before the program's name, says which") is told


def test_the_log_has_what_was_told_of_runs_in_turns():
    after = attempt(2, [9, 9, 9])
    turns = outcome(BEFORE, attempt(2, [5, 5, 5]), (0.4, 0.6))
    (found,) = outcomes([BEFORE, after], {2: turns})
    assert found == turns and found.in_turns == 3
    text = TEXT.write(Answer(lambda: log_report([BEFORE, after], [found], Style()), lambda: {}))
    assert "001, in turns" in text and "40% to 60% less" in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": "b"}, "kept"),
        ({"source": "a"}, "same files"),
        ({"source": "b", "command": ("train.py", "9")}, "other arguments"),
        ({"source": "b", "torch": "2.16"}, "other terms"),
    ],
)
def test_the_log_says_why_no_promise_is_judged(changes, told):
    before, after = attempt(1, [10, 10, 10], ("sync", 0.3, 0.5)), attempt(2, [6, 6, 6])
    attempts = [msgspec.structs.replace(before, source="a"), msgspec.structs.replace(after, **changes)]
    text = TEXT.write(Answer(lambda: log_report(attempts, outcomes(attempts), Style()), lambda: {}))
    assert any(line.startswith("  002") and line.endswith(f"  {told}") for line in text.splitlines())


def test_of_files_of_which_none_is_known_nothing_is_compared(tmp_path):
    (tmp_path / "source").mkdir()
    for text in ("[]", "{", '[{"path": "a.py"}]'):
        (tmp_path / "source" / "files.json").write_text(text)
        assert digest_of(tmp_path) == ""
    before = attempt(1, [0, 0, 0])
    assert outcome(before, attempt(2, [0, 0, 0])).kept == "not told"


def test_files_beside_a_saved_module_are_those_that_are_there(tmp_path, monkeypatch):
    """Its own text is the saved one."""
    (tmp_path / "pk").mkdir()
    for name, text in (("pk/__init__.py", "NOW = 1\n"), ("pk/x.txt", "data"), ("old.py", "NOW = 0\n")):
        (tmp_path / name).write_text(text)
    kept = tmp_path / "001" / "source"
    kept.mkdir(parents=True)
    (kept / "000_pk.py").write_text("NOW = 0\n")
    listed = [{"path": str(tmp_path / "pk" / "__init__.py"), "module": "pk", "copy": "000_pk.py"}]
    (kept / "files.json").write_text(json.dumps(listed))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(linecache, "cache", {})
    SavedSource(tmp_path / "001").install()
    pk: Any = importlib.import_module("pk")
    monkeypatch.delitem(sys.modules, "pk")
    assert pk.NOW == 0 and pkgutil.get_data("pk", "x.txt") == b"data"
    assert linecache.getline(str(tmp_path / "pk" / "__init__.py"), 1) == "NOW = 0\n"


def test_each_attempt_is_beside_the_one_before_it_of_its_program():
    other = attempt(2, [1, 1, 1], program="script other.py")
    found = outcomes([BEFORE, other, attempt(3, [5, 5, 5])])
    assert [(one.before, one.after) for one in found] == [(1, 3)]


def test_a_disturbed_attempt_gives_way_to_one_of_the_same_files_that_is_not():
    quiet, disturbed, other = ([10, 10, 10], [10, 10, 25], [9, 9, 9])
    made = [(quiet, "a"), (disturbed, "a"), (other, "b"), (disturbed, "b"), (disturbed, "c"), (other, "d")]
    attempts = [
        msgspec.structs.replace(attempt(n, times, program="p"), source=digest) for n, (times, digest) in enumerate(made, 1)
    ]
    assert [(one.before, one.after) for one in outcomes(attempts)] == [(1, 2), (1, 3), (3, 4), (3, 5), (5, 6)]
    first, last, new = attempts[:3]
    for changes in ({"threads": 1}, {"step": "another"}):  # not what the disturbed one was
        others = [msgspec.structs.replace(first, **changes), last, new]
        assert [(one.before, one.after) for one in outcomes(others)][-1] == (2, 3)


def test_attempts_with_other_steps_are_not_compared():
    first, second = attempt(1, [5, 5, 5]), attempt(2, [1, 1, 1])
    replace = msgspec.structs.replace
    at = [replace(first, step=f"a turn of the loop at t.py:{line}") for line in (6, 15)]
    assert at[0].has_the_step_of(at[1])  # a line may have moved
    assert not replace(at[0], asked="t.py:6").has_the_step_of(replace(at[1], asked="t.py:15"))
    assert replace(at[0], asked="t.py:6").has_the_step_of(at[0])
    said = [replace(one, asked=where, asked_line="for x in y:") for one, where in zip(at, ("t.py:6", "t.py:15"), strict=True)]
    assert said[0].has_the_step_of(said[1]) and not said[0].has_the_step_of(replace(said[1], asked_line="for y in x:"))
    assert not at[0].has_the_step_of(first) and outcomes([first, replace(second, step="another")]) == []


# --- A cell of a notebook


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """A notebook's interpreter with %%try_step; runs cells."""
    testing = pytest.importorskip("IPython.testing.globalipapp")
    monkeypatch.chdir(tmp_path)
    shell = testing.start_ipython() or testing.get_ipython()
    shell.run_line_magic("load_ext", "trace_reader")
    return lambda line, cell: shell.run_cell_magic("try_step", line, cell)


def test_a_cell_is_a_step(notebook, program, capsys):
    notebook("mine", "import torch\nx = torch.ones(200, 200)\nfor _ in range(40):\n    y = x @ x\nprint('ran')\n")
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == ["ran", "attempt 001: %%try_step mine", "a step: a run of the cell"]
    assert said.count("ran") == 1 and said[-1] == "all of it: read-trace .read-trace/001"
    notebook("mine", "y = x @ x\n")
    assert "\n001 -> 002: " in capsys.readouterr().out
    notebook("", "y = x @ x\n")
    assert "->" not in capsys.readouterr().out  # of another name
    with pytest.raises(ZeroDivisionError):
        notebook("", "1 / 0\n")
    assert sorted(path.name for path in (program / ".read-trace").iterdir()) == [".gitignore", "001", "002", "003"]
    assert (program / ".read-trace" / "002" / "cell.py").read_text() == "y = x @ x\n"
