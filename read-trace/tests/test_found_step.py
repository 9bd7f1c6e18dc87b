"""What a step of a running program is, by what recurs in it: programs without torch."""

import sys

import pytest
from trace_reader.recording import found_step
from trace_reader.recording.found_step import FoundStep, is_own

pytestmark = pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="needs Python 3.12")


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Runs a program; returns what its steps are said to be, each with how many ended."""
    monkeypatch.setattr(found_step, "SETTLED_S", 0.0)
    monkeypatch.setattr(found_step, "AGAIN_S", 0.005)
    monkeypatch.setattr(found_step, "SILENT_S", 0.01)

    called: dict[str, int] = {}

    def run(text, asked=None, name="train.py"):
        told = []

        def ended(words):
            if words is not None:
                told.append([words, 0])
            told[-1][1] += 1

        (tmp_path / name).write_text(text)
        found = FoundStep(ended, asked)
        code = compile(text, str(tmp_path / name), "exec")
        found.watch()
        try:
            exec(code, {"__name__": "__main__"})
        finally:
            found.stop()
        called.update(found.functions)
        return told

    run.__dict__["called"] = called
    return run


LOOP = "a turn of the loop at train.py:"


def test_a_step_is_a_turn_of_the_loop(steps):
    """From the third on; the last one has no turn behind it."""
    assert steps("for k in range(10):\n    a = k\n    b = a\n") == [[f"{LOOP}1", 8]]


def test_of_loops_in_each_other_it_is_the_outermost_that_turns(steps):
    program = "def f():\n    for k in range(9):\n        pass\nfor k in range(10):\n    for j in range(5):\n        f()\n"
    assert steps(program) == [[f"{LOOP}4", 8]]


def test_a_loop_that_takes_too_long_is_none(steps, monkeypatch):
    monkeypatch.setattr(found_step, "OUTER_S", 0.0)
    assert steps("for k in range(10):\n    for j in range(5):\n        j += 1\n")[0] == [f"{LOOP}2", 48]


def test_behind_a_loop_that_has_ended_another_one_is_it(steps):
    """When no turn of the first one has ended for long."""
    program = "import time\nfor k in range(9):\n    a = k\nfor k in range(200):\n    b = k\n    time.sleep(0.001)\n"
    (first, second) = steps(program)
    assert first == [f"{LOOP}2", 7] and second[0] == f"{LOOP}4" and second[1] > 100


def test_a_comprehension_and_a_generator_are_no_loops(steps):
    assert steps("a = [k\n     for k in range(99)]\nb = {k: k for k in a}\nc = sum(k\n  for k in a)\n") == []
    assert steps("for k in range(9): k + 1\n") == [[f"{LOOP}1", 7]]


def test_what_is_no_step_is_not_asked_again_and_another_one_is_found(steps, tmp_path):
    said = []

    def ended(words):
        said.append(words)
        if words == f"{LOOP}1":
            found.reject()

    found = FoundStep(ended)
    found.watch()
    program = "for k in range(9):\n    a = k\nfor k in range(9):\n    b = k\n"
    exec(compile(program, str(tmp_path / "train.py"), "exec"), {})
    found.stop()
    assert said == [f"{LOOP}1", f"{LOOP}3", *[None] * 6]


def test_a_step_that_was_found_is_looked_at_and_nothing_else(steps, monkeypatch):
    """A loop inside it calls back once: its turns are timed."""
    called = []
    monkeypatch.setattr(found_step, "AGAIN_S", 9.0)
    first = FoundStep._jumped

    def counted(self, *args):
        called.append(args)
        return first(self, *args)

    monkeypatch.setattr(FoundStep, "_jumped", counted)
    program = "def f():\n    for k in range(1000):\n        pass\nfor k in range(9):\n    f()\n"
    assert steps(program) == [[f"{LOOP}4", 7]]
    assert len(called) <= 9 + found_step.OFTEN + 1  # up to its budget, and once when another one is found


def test_a_while_with_continue_is_one_loop(steps):
    program = "n = 20\nwhile n:\n    n -= 1\n    if n % 2:\n        continue\n    a = n\n"
    assert steps(program) == [[f"{LOOP}2", 17]]  # the last turn jumps to no other


@pytest.mark.parametrize("asked", ["step", "Model.step", "train.Model.step", "train:Model.step", "package.train:Model.step"])
def test_a_function_that_was_named_is_it_from_its_first_call_on(steps, asked):
    program = "class Model:\n    def step(self):\n        pass\nm = Model()\nfor k in range(6):\n    m.step()\n    a = k\n"
    assert steps(program, asked) == [["a call of Model.step of train.py", 6]]


def test_a_loop_that_was_named_is_it(steps):
    program = "for k in range(9):\n    a = k\nfor k in range(7):\n    b = k\n    c = b\n"
    assert steps(program, "train.py:3") == [[f"{LOOP}3", 7]]
    assert steps(program, "train.py:4") == [] == steps(program, "other:step")


def test_what_was_called_is_known(steps):
    assert steps("def f(): pass\nf()\nf()\n") == [] and steps.called == {"f of train.py": 2}


def test_what_is_raised_at_the_end_of_a_step_ends_the_program(steps, tmp_path):
    def ended(words):
        raise SystemExit(7)

    found = FoundStep(ended, "train.py:1")
    found.watch()
    with pytest.raises(SystemExit, match="7"):
        exec(compile("for k in range(9):\n    a = k\n", str(tmp_path / "train.py"), "exec"), {})
    found.stop()
    assert sys.monitoring.get_tool(found_step.TOOL) is None


def test_a_threads_steps_are_not_the_programs(steps):
    program = (
        "import threading\ndef f():\n    for k in range(9):\n        a = k\nt = threading.Thread(target=f)\nt.start()\nt.join()\n"
    )
    assert steps(program) == []


def test_whose_code_it_is(tmp_path):
    assert is_own(str(tmp_path / "train.py")) and not is_own(pytest.__file__) and not is_own(found_step.__file__)
    assert not is_own("<string>") and not is_own("/tmp/torchinductor_me/ab/cab.py")


def test_a_loop_whose_body_ends_in_a_with_is_its_own(steps, tmp_path):
    """What handles an exception jumps back, too, from the end of the function."""
    begin = "import contextlib\nfor e in range(3):\n    for k in range(50):\n"
    program = f"{begin}        with contextlib.nullcontext():\n            a = k\n"
    assert steps(program, "train.py:3") == [[f"{LOOP}3", 150]]
    code = compile(program, "train.py", "exec")
    assert sorted({loop.line for loop in found_step._loops(code).values()}) == [2, 3]


def test_what_was_said_to_be_none_is_none(tmp_path):
    said: list[object] = []
    found = FoundStep(said.append, none=(f"{LOOP}1",))
    found.watch()
    exec(compile("for k in range(9):\n    for j in range(9):\n        k + j\n", str(tmp_path / "train.py"), "exec"), {})
    found.stop()
    assert set(said) <= {None, f"{LOOP}2"}


@pytest.mark.parametrize("loop", ["while r < 99:\n            r += 1", "for r in range(99):\n            r + 1"])
def test_what_is_around_a_loop_runs_when_the_program_is_ended_in_it(tmp_path, loop):
    """The instruction that jumps back is in no exception table: the next line is."""
    ran: list[str] = []
    program = f"def f():\n    r = 0\n    try:\n        {loop}\n    finally:\n        ran.append('finally')\nf()\n"

    def ended(words):
        raise SystemExit(0)

    found = FoundStep(ended, hurries=True)
    found.watch()
    with pytest.raises(SystemExit):
        exec(compile(program, str(tmp_path / "train.py"), "exec"), {"ran": ran})
    found.stop()
    assert ran == ["finally"]
