"""The exercises: their list, the process that runs them, the judge, and the conversation, as their reader has it."""

from dataclasses import replace
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from types import SimpleNamespace
from typing import Any, cast

from exercises.judge import measure, session, why_not
from exercises.judge.book import FOLDER, Choice, Gone, exercises
from exercises.judge.progress import Progress, State
from exercises.judge.verdict import Judgement, Speed, in_no_op_us, judge, judged, right_option, still_there
from exercises.judge.why_not import has_of, named
from helpers import ROOT
import pytest
from reader_helpers.events import call, event, kernel, op, step
import torch
from trace_reader import PATTERNS, examine, load, read, read_job

from exercise import is_solved

EVERY = exercises()
BY_NAME = {item.name: item for item in EVERY}
MEND = [item for item in EVERY if item.kind == "mend"]
LEAVE = [item for item in EVERY if item.kind == "leave"]
CASES = [item for item in EVERY if item.kind == "case"]
ON_ONE_CPU = [item for item in (*MEND, *LEAVE) if item.device == "cpu" and item.ranks == 1]
JOBS = [item for item in MEND if item.ranks > 1]
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


# --- The list


def test_there_are_exercises_of_each_kind_and_each_file_belongs_to_one():
    assert (len(MEND), len(LEAVE), len(CASES)) == (20, 3, 11)
    assert len([one for one in (*MEND, *LEAVE) if one.device == "cpu"]) == 20
    programs = {f"{one.name}.py" for one in (*MEND, *LEAVE)}
    assert {path.name for path in FOLDER.glob("*.py")} == {*programs, "__init__.py"}
    assert {path.stem for path in FOLDER.glob("solutions/*.py")} == {one.name for one in MEND}
    assert {path.stem for path in FOLDER.glob("obvious/*.py")} == {one.name for one in LEAVE}
    own_traces = {trace for one in CASES for trace in one.traces if trace.startswith("exercises/")}
    assert {f"exercises/cases/{path.name}" for path in FOLDER.glob("cases/*.gz")} == own_traces
    assert all((ROOT / trace).is_file() for one in CASES for trace in one.traces)
    assert set(json.loads((FOLDER / "cases" / "measured.json").read_text())) == {one.name for one in CASES}


@pytest.mark.parametrize("own", EVERY, ids=lambda one: one.name)
def test_an_exercise_is_whole(own):
    assert own.name.startswith(f"{own.number:02}_") and own.why and own.title
    assert len(own.hints) == (0 if own.kind == "case" else 3)
    assert own.limits.ask.endswith("?") and own.finding in {*PATTERNS, "", "gpu-bound"}
    assert own.like == "" if own.device != "cuda" else BY_NAME[own.like].kind == "case"
    for gone in own.gone:
        assert [bool(name) for name in (gone.op, gone.call, gone.shrinks, gone.waits)].count(True) == 1
    if own.kind == "case":
        assert own.brought > 0
        return
    lines = own.given.read_text().splitlines()
    assert len(lines) <= 60 and own.doc.count("\n") < 5
    changed = own.solution if own.kind == "mend" else own.obvious
    assert changed.read_text().split('"""')[1] == own.given.read_text().split('"""')[1] and changed.read_text() != "\n".join(
        lines
    )


def test_what_is_learned_has_a_figure_that_is_there():
    figures = {
        f"{one['post']}: {one['figure']}" for one in tomllib.loads((ROOT / "gallery" / "figures.toml").read_text())["figure"]
    }
    assert {one.figure for one in EVERY if one.figure} <= figures
    assert [one.number for one in EVERY if not one.figure] == [4, 11, 12, 22, 26, 29, 30, 31, 32, 33]  # the posts have none
    for one in EVERY:
        assert len(re.findall(r"[.?](?= [A-Z.]|$)", one.learned)) == 2 and len(one.learned) < 240, one.learned
    said = {one.name: one.where_in_the_posts for one in EVERY}
    assert said["09_attention"] == "part 3 of the posts, figure 14 (docs/figures.md)"
    assert said["06_features"] == 'part 1 of the posts, "peak" (docs/figures.md)' and said["12_regression"] == ""
    assert said["27_small_gpt"] == "docs/figures.md, beyond the posts: one token, replayed" and said["30_two_gpus"] == ""


def test_the_right_option_has_no_place_of_its_own():
    """So that its place does not tell it."""
    for choices in ([one.limits for one in EVERY], [one.shows for one in EVERY if one.shows]):
        places = [choice.right for choice in choices]
        assert {1, 2, 3, 4} == set(places) and max(map(places.count, places)) <= 0.4 * len(places)


def test_the_right_option_is_as_often_the_longest_as_another():
    """So that its length does not tell it: of four options, one in four, but for those of which two are as long."""
    choices = [choice for one in EVERY for choice in (one.limits, one.shows) if choice is not None]
    lengths = [sorted(map(len, choice.options)) for choice in choices]
    choices = [choice for choice, (*_, second, most) in zip(choices, lengths, strict=True) if second < most]
    longest = sum(len(choice.answer) == max(map(len, choice.options)) for choice in choices)
    assert len(choices) > 20 and 0.15 * len(choices) <= longest <= 0.35 * len(choices)


def test_options_are_about_as_long_as_each_other_and_count_nothing():
    """So that a long one, or one that counts what is in the trace, does not look like the right one."""
    for choice in (choice for one in EVERY for choice in (one.limits, one.shows) if choice is not None):
        shortest, *_, longest = sorted(map(len, choice.options))
        assert longest <= 1.6 * shortest or longest <= 22, choice.options  # names, sizes and numbers are short
        if not choice.bounds:
            assert not [option for option in choice.options if re.search(r"\d+ (?:a|each|per) |\d+ \w+::|\d+ cu[A-Z]", option)]


def test_of_a_first_wrong_guess_the_trace_is_shown_and_not_the_answer():
    """Of an op that is one option's alone; not of a size, whose rows are the right one's."""
    cases = {one.name: one for one in CASES}
    proof = cases["24_mlp_by_hand"].shows
    assert proof is not None
    assert [named(proof, n) for n in (1, 2, 3, 4)] == [(), ("aten::addmm",), ("cutlass GEMM",), ("cudaDeviceSynchronize",)]
    facts = read(str(ROOT / cases["24_mlp_by_hand"].traces[0]))
    assert has_of(("aten::addmm",), proof, facts).startswith("aten::addmm, 16 times: ")
    by_name = {one.name: one for one in EVERY}
    assert {named(by_name["14_head_on_encoder"].limits, n) for n in (1, 2, 3, 4)} == {()}
    assert {named(by_name["01_heads"].limits, n) for n in (1, 2, 3, 4)} == {()}


def test_a_list_with_a_fault_is_refused():
    with pytest.raises(ValueError, match="no option 3 of 'What\\?'"):
        Choice("What?", ("a", "b"), 3)


@pytest.mark.parametrize("own", [one for one in CASES if one.finding], ids=lambda one: one.name)
def test_the_reader_names_the_cause_of_a_case(own):
    facts = read(str(ROOT / own.traces[0]))
    assert own.finding in [finding.slug for finding in facts.findings]


@pytest.mark.parametrize("own", [one for one in CASES if one.traces[0].startswith("exercises/")], ids=lambda one: one.name)
def test_what_proves_a_case_is_in_its_trace(own):
    """Each name of a kernel, call or op that the options and the reason say is in the report of the trace."""
    facts = read(str(ROOT / own.traces[0]))
    known = " ".join([*(k.decoded.label for k in facts.kernels), *(k.name for k in facts.kernels), *(c.name for c in facts.calls),
                      *(o.name for o in facts.ops)])  # fmt: skip
    said = re.findall(
        r"aten::\w+|cuda[A-Z]\w+|cuLaunch\w+|Memcpy \w+(?: \([^)]*\))?|\w+_\w+(?= kernel)", f"{own.shows.answer} {own.why}"
    )
    assert all(name in known for name in said), said


# --- The process that runs programs

OLD, DIFFERS, NO_USE = "on batches not seen before, output 1 differs by up to ", "output 1 differs by up to ", ""

PROGRAM = '''"""A program."""

import torch


def make(device):
    return torch.ones(4, device=device)


def data(device, n):
    return torch.arange(4.0, device=device) + n


def step(model, x):
    return model * x
'''


@pytest.fixture
def program(tmp_path):
    def written(name="given", old="", new=""):
        path = tmp_path / f"{name}.py"
        assert old in PROGRAM
        path.write_text(PROGRAM.replace(old, new) if old else PROGRAM)
        return path

    return written


@pytest.fixture
def cpu(monkeypatch):
    monkeypatch.setattr(measure, "ROUND_S", 0.0)
    return measure.device_of("cpu")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("model * x", "model * x * 1.01", "output 1 differs by up to 0.04, where its largest number is 4"),
        ("model * x", "(model * x).double()", "output 1 is float64, where the program as given has float32"),
        ("model * x", "model * x * 1.0001", "output 1 differs by up to 0.0004, where its largest number is 4"),
        ("model * x", "(model * x)[:2]", "output 1 has the shape [2], where the program as given has [4]"),
        ("model * x", "model * x, x", "a step gives 2 outputs, where the program as given gives 1"),
        ("model * x", "model * x / 0 * 0", "output 1 differs by up to nan, where its largest number is 4"),
        ("return model * x", "model * x", "a step gives NoneType, where numbers or tensors are expected"),
    ],
)
def test_outputs_that_are_not_equal_are_said(program, cpu, old, new, said):
    found, traces = measure.measure(program(), program("mine", old, new), cpu)
    assert found["differs"] == said and not traces


def test_outputs_within_the_tolerance_are_equal_and_both_runs_are_recorded(program, cpu, tmp_path):
    found, traces = measure.measure(program(), program("mine", "model * x", "torch.mul(x, model) * 1.00001"), cpu)
    assert found["differs"] == "" and found["torch"] == torch.__version__
    assert [len(times) for times in found["times_us"].values()] == [measure.ROUNDS] * 2
    facts: dict[str, Any] = {}
    for name, trace in traces.items():
        (tmp_path / f"{name}.json").write_bytes(trace)
        facts[name] = read(str(tmp_path / f"{name}.json"))
    assert [len(rank_facts.steps) for rank_facts in facts.values()] == [measure.ACTIVE] * 2
    assert [rank_facts.plain.how for rank_facts in facts.values()] == ["measured"] * 2
    assert [rank_facts.usual_step.kernels_or_ops for rank_facts in facts.values()] == [1, 2]
    assert str(tmp_path) not in traces["mine"].decode()


def test_the_data_stays_as_it_is(program, cpu):
    """Else one could make it smaller; its comments may change."""
    with pytest.raises(measure.BrokenError, match=r"mine.py: data\(\) is changed; the batches have to stay the same"):
        measure.measure(program(), program("mine", "+ n", "* 0"), cpu)
    assert measure.measure(program(), program("mine", "+ n", "+ n  # the n-th"), cpu)[0]["differs"] == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return model * x", "return model * y", "NameError: name 'y' is not defined"),
        ("def step(model, x):", "def step(model, x)", "SyntaxError: expected ':'"),
        ("def step(", "def stop(", "mine.py has no function `step` any more; --reset brings the program back"),
        ("return model * x", "raise SystemExit(3)", "SystemExit: 3"),
        ("torch.ones(4", "torch.ones(-4", "RuntimeError: Trying to create tensor with negative dimension -4: [-4]"),
    ],
)
def test_a_program_that_does_not_run_gives_its_own_traceback(program, cpu, old, new, said):
    with pytest.raises(measure.BrokenError) as broken:
        measure.measure(program(), program("mine", old, new), cpu)
    text = str(broken.value)
    assert text.splitlines()[-1] == said
    assert "measure.py" not in text and ("mine.py" in text)


def test_a_batch_that_is_written_to_is_said(program, cpu):
    """The first time, the output is right."""
    with pytest.raises(measure.BrokenError, match=r"^mine.py: step writes into its batch, which is used again: write into a"):
        measure.measure(program(), program("mine", "return model * x", "y = model * x; x.add_(1); return y"), cpu)


def test_each_batch_is_compared_twice(program, cpu):
    """What is right the first time that a batch comes, and wrong the second time."""
    mine = program("mine", "return model * x", "calls.append(0); return model * x + (len(calls) > 3)")
    mine.write_text(f"calls = []\n{mine.read_text()}")
    found, traces = measure.measure(program(), mine, cpu)
    assert found["differs"].startswith("output 1 differs by up to ") and not traces


def by(key):
    return "kept = {}", f"key = {key}\n    if key not in kept: kept[key] = work(model, x)\n    return kept[key]"


def in_an_attribute_of(what):
    return "", f"if not hasattr({what}, 'kept'): {what}.kept = work(model, x)\n    return {what}.kept"


CHEATS = {  # what a step keeps, in good faith or not: lines before the functions and its body, and what is said of it
    "lru_cache": (("from functools import lru_cache\nwork = lru_cache(work)", "return work(model, x)"), OLD),
    "the call's number": (("calls = []", "calls.append(work(model, x)) if len(calls) < 7 else 0; return calls[-1]"), OLD),
    "its place in a circle": (("n, kept = [0], {}", "n[0] += 1\n    return kept.setdefault(n[0] % 3, work(model, x))"), OLD),
    "an address": (by("x.data_ptr()"), OLD),
    "an identity": (by("id(x)"), OLD),
    "the model and an address": (by("id(model), x.data_ptr()"), OLD),
    "a shape": (by("x.shape"), DIFFERS),
    "an attribute of the function": (in_an_attribute_of("step"), DIFFERS),
    "an attribute of the batch": (in_an_attribute_of("x"), OLD),
    "the first values": (by("float(x[1])"), NO_USE),
    "all values": (by("tuple(x.tolist())"), NO_USE),
    "a file": (("from pathlib import Path", "path = Path(__file__).with_name(f'{float(x[1])}.pt')\n"
     "    if not path.exists(): torch.save(work(model, x), path)\n    return torch.load(path)"), NO_USE),
    "a clock that stands": (("import time\ntime.perf_counter = lambda: 0.0", "return work(model, x)"), NO_USE),
    "its batch": (("", "y = work(model, x); x.add_(1); return y"), "step writes into its batch"),
    "less of the batch": (("", "return torch.cat([work(model, x)[:2], x[2:] * 0])"), DIFFERS),
    "another type": (("", "return work(model, x).bfloat16().float()"), DIFFERS),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_is_kept_of_earlier_steps_is_of_no_use(program, cpu, cheat, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", time.perf_counter)  # one of them puts another in its place
    (before, body), said = CHEATS[cheat]
    mine = program("mine", "return model * x", body)
    work = "runs = []\n\n\ndef work(model, x):\n    runs.append(0)\n    return model * x\n"
    mine.write_text(mine.read_text().replace("import torch\n", f"import torch\n{work}\n{before}\n", 1))
    given = program("given", "torch.arange(4.0, device=device) + n", "torch.rand(4, device=device)")
    mine.write_text(mine.read_text().replace("torch.arange(4.0, device=device) + n", "torch.rand(4, device=device)"))
    if "writes" in said:
        with pytest.raises(measure.BrokenError, match=said):
            measure.measure(given, mine, cpu)
        return
    found, traces = measure.measure(given, mine, cpu, seed=1)
    assert found["differs"].startswith(said) and bool(found["differs"]) == bool(said) == (not traces)
    if not said:  # all that was timed was computed; what is compared comes twice
        timed = 2 * measure.LEAST_STEPS + measure.ROUNDS * measure.LEAST_STEPS + 2 + measure.ACTIVE
        assert len(sys.modules[f"{mine.parent.name}_mine"].runs) >= timed
        assert min(found["times_us"]["mine"]) > 0


SLOW = "import time\nfast = {0}\ndef slow(*args):\n    time.sleep(0.01)\n    return fast(*args)\n"
SLOWED = {  # what a program changes of torch, so that the one as given takes longer: lines before the functions, and its body
    "an op that sleeps": (f"{SLOW.format('torch.mul')}torch.mul = slow", ""),
    "an op of tensors": (f"{SLOW.format('torch.Tensor.__mul__')}torch.Tensor.__mul__ = slow", ""),
    "in its step": (SLOW.format("torch.mul"), "torch.mul = slow; "),
    "a method that is inherited": (f"{SLOW.format('torch.Tensor.sub')}torch.Tensor.sub = slow\nfast = torch.mul", ""),
}


@pytest.mark.parametrize("how", SLOWED)
def test_what_a_program_changes_of_torch_holds_for_itself_alone(program, cpu, how, monkeypatch):
    for owner, name in ((torch, "mul"), (torch.Tensor, "__mul__")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    before, first = SLOWED[how]
    given = program("given", "return model * x", "return torch.mul(model * x, 1).sub(0)")
    mine = program("mine", "return model * x", f"{first}return fast(model, x)")
    mine.write_text(mine.read_text().replace("import torch\n", f"import torch\n{before}\n", 1))
    found, _ = measure.measure(given, mine, cpu)
    assert found["differs"] == "" and min(found["times_us"]["given"]) < 10_000


def test_a_program_may_set_the_precision_of_its_products_by_op(program, cpu):
    mine = program("mine", "return model * x", "torch.backends.mkldnn.matmul.fp32_precision = 'ieee'; return model * x")
    mkldnn: Any = torch.backends.mkldnn
    before = mkldnn.matmul.fp32_precision
    try:
        assert measure.measure(program(), mine, cpu)[0]["differs"] == ""
    finally:
        mkldnn.matmul.fp32_precision = before


def test_what_makes_wrong_results_look_right_holds_for_its_program_alone(program, cpu):
    """A difference that is always nothing: __sub__ is a method that torch.Tensor has inherited."""
    mine = program("mine", "return model * x", "return model * x * 7")
    mine.write_text(mine.read_text().replace("import torch\n", "import torch\ntorch.Tensor.__sub__ = lambda a, b: a * 0\n", 1))
    assert measure.measure(program(), mine, cpu)[0]["differs"].startswith("output 1 differs by up to ")
    assert "__sub__" not in vars(torch.Tensor)


LIES = """
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.zeros(())

"""
LATER = """
class Later(torch.Tensor):
    pass

calls = []
"""


@pytest.mark.parametrize(
    ("before", "body", "said"),
    [
        (LIES, "return torch.zeros(4).as_subclass(Liar)", "step gives a Liar, a class of its own: give plain tensors"),
        (LATER, "calls.append(0)\n    return x * model if len(calls) < 7 else (x * model).as_subclass(Later)",  # when it is timed
         "step gives a Later, a class of its own"),
        ("class Much(float):\n    pass\n", "return Much(3.0)", "step gives a Much, a class of its own"),
        ("class Lazy(tuple):\n    def __iter__(self):\n        yield torch.zeros(4)\n", "return Lazy((x,))",
         "step gives a Lazy, a class of its own"),
        ("class Own:\n    pass\n", "return Own()", "step gives a Own, a class of its own"),
    ],
)  # fmt: skip
def test_a_step_gives_no_tensor_of_a_class_of_its_own(program, cpu, before, body, said):
    mine = program("mine", "return model * x", body)
    mine.write_text(mine.read_text().replace("import torch\n", f"import torch\n{before}\n", 1))
    with pytest.raises(measure.BrokenError, match=said):
        measure.measure(program(), mine, cpu)


@pytest.mark.parametrize(
    "how",
    [
        "judge.difference = judge.differs = lambda *_, **__: ''",
        "judge.difference.__code__ = (lambda given, mine: '').__code__",
        "judge.Program.outputs = lambda self, batches: [torch.zeros(4)] * 6",
        "judge.round_us = lambda *_: (10.0, 10.0)",
        "judge.perf_counter = lambda: 0.0",
    ],
)
@pytest.mark.parametrize("is_in_step", [False, True])
def test_who_changes_the_judge_is_told_so(program, cpu, how, is_in_step):
    mine = program("mine", "return model * x", f"{f'{how}; ' * is_in_step}return model * x * 7")
    patched = f"import torch\nimport sys\njudge = sys.modules['exercises.judge.measure']\n{how * (not is_in_step)}\n"
    mine.write_text(mine.read_text().replace("import torch\n", patched, 1))
    before = measure.difference, measure.round_us, measure.perf_counter, measure.Program.outputs, measure.difference.__code__
    with pytest.raises(measure.BrokenError, match=r"mine\.py changes the process that judges it"):
        measure.measure(program(), mine, cpu)
    assert before == (
        measure.difference, measure.round_us, measure.perf_counter, measure.Program.outputs, measure.difference.__code__
    )  # fmt: skip


def test_threads_that_a_program_sets_are_its_own(program, cpu):
    threads = torch.get_num_threads()
    mine = program("mine", "return model * x", f"torch.set_num_threads({threads + 1}); return model * x")
    given = program("given", "return model * x", f"assert torch.get_num_threads() == {threads}; return model * x")
    assert measure.measure(given, mine, cpu)[0]["differs"] == "" and torch.get_num_threads() == threads


def test_what_is_kept_of_the_model_outside_of_it_shows_with_a_second_one(program, cpu):
    made = "return torch.rand(4, device=device)"
    given = program("given", "return torch.ones(4, device=device)", made)
    mine = program("mine", "return torch.ones(4, device=device)", made)
    assert measure.measure(given, mine, cpu)[0]["differs"] == ""
    mine.write_text(f"kept = []\n{mine.read_text()}".replace("return model * x", "kept.append(model); return kept[0] * x"))
    said = measure.measure(given, mine, cpu)[0]["differs"]
    assert said.startswith("with a second model, output 1 differs by up to ") and said.endswith(measure.OF_ANOTHER_MODEL)


HANDED_BACK = "output 1 is the batch itself or a part of it, where the program as given makes a new tensor"


@pytest.mark.parametrize(
    ("given", "mine", "said"),
    [
        ("model * x", "x", HANDED_BACK),
        ("model * x", "x.view(2, 2).reshape(4)", HANDED_BACK),
        ("model * x", "x.clone()", ""),
        ("x.view(4)", "x", ""),  # as given, too
        ("(model * x)[:0]", "x[:0]", ""),  # nothing lies there
    ],
)
def test_a_batch_that_is_handed_back_is_no_output(program, cpu, given, mine, said):
    one, other = (program(name, "return model * x", f"return {body}") for name, body in (("given", given), ("mine", mine)))
    assert measure.measure(one, other, cpu)[0]["differs"] == said


def test_the_cache_of_exercise_4_is_not_its_batch(cpu, tmp_path):
    one, mine = BY_NAME["04_cache"], tmp_path / "mine.py"
    mine.write_text(one.solution.read_text().replace("return torch.stack(best), cache", "return torch.stack(best), keys"))
    assert measure.measure(one.given, mine, cpu)[0]["differs"] == HANDED_BACK.replace("output 1", "output 2")


def test_what_computes_at_first_and_is_kept_from_then_on_is_of_no_use(program, cpu):
    """A count in the model begins anew with it; so more steps come before those that are compared once more."""
    given, mine = program(), program("mine", "return torch.ones(4, device=device)", "return {'calls': 0}")
    step = """model['calls'] += 1
    if model['calls'] <= 6:
        model['last'] = x * 1
    return model['last']"""
    mine.write_text(mine.read_text().replace("return model * x", step))
    for path in (given, mine):
        path.write_text(path.read_text().replace("torch.arange(4.0, device=device) + n", "torch.rand(4, device=device)"))
    assert measure.measure(given, mine, cpu)[0]["differs"].startswith(OLD)


def test_a_program_may_use_dataclasses_and_modules_beside_it(program, cpu, tmp_path):
    (tmp_path / "beside.py").write_text("ONE = 1\n")
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom beside import ONE\n"
    body = "\n\n@dataclass\nclass Model:\n    weight: torch.Tensor\n"
    mine = program("mine", "return model * x", "return Model(model).weight * x * ONE")
    mine.write_text(head + mine.read_text().partition('"""\n\n')[2].replace("import torch\n", f"import torch\n{body}", 1))
    assert measure.measure(program(), mine, cpu)[0]["differs"] == ""


def test_what_a_program_prints_is_shown_for_the_steps_that_are_compared(program, cpu, capsys):
    printing = program("mine", "return model * x", "print('shape', x.shape); return model * x")
    assert measure.measure(program(), printing, cpu)[0]["prints"] is True
    assert capsys.readouterr().out.count("shape") == measure.COMPARED


def test_rounds_are_timed_in_turns_after_steps_of_warmup_and_wait_for_the_device(program, cpu, monkeypatch):
    seen = []

    class Counted:
        type, name = "cpu", "counted"

        def synchronize(self):
            seen.append("|")

    def recorded(program, *rest):
        return b""

    monkeypatch.setattr(measure.Program, "step", lambda self, batch: seen.append(self.path.stem[0]))
    monkeypatch.setattr(measure.Program, "outputs", lambda self, batches: [1.0] * len(batches))
    monkeypatch.setattr(measure, "recorded", recorded)
    measure.measure(program(), program("mine"), cast(Any, Counted()))
    assert "".join(seen) == "|ggg||ggg||mmm||mmm|" + measure.ROUNDS * "|ggg||mmm|"


def test_models_and_batches_are_made_with_the_same_seeds(program, cpu):
    random = program().read_text().replace("torch.ones(4", "torch.rand(4").replace("torch.arange(4.0,", "torch.rand(4,")
    given, mine = program(), program("mine")
    for path in (given, mine):
        path.write_text(random)
    assert measure.measure(given, mine, cpu)[0]["differs"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("own", [one for one in ON_ONE_CPU if one.kind == "mend"], ids=lambda one: one.name)
def test_outputs_depend_on_the_batch(own):
    """Else a program that computes something else would be called equal."""
    given = measure.loaded(own.given)
    found = measure.Program(own.given, given, "cpu").outputs(measure.Batches(given, "cpu", 1).fresh(2))
    each = len(found) // 2
    apart = []
    for a, b in zip(found[:each], found[each : 2 * each], strict=True):
        a, b = torch.as_tensor(a).double(), torch.as_tensor(b).double()
        apart.append(((a - b).abs().max() / a.abs().max()).item())
    assert max(apart) > 0.03, apart
    assert all(torch.as_tensor(output).isfinite().all() for output in found)


JOB = '''"""A program."""

import torch
import torch.distributed as dist


def make(device):
    return torch.ones(4)


def data(device, n):
    return torch.rand(4)


def step(model, x):
    y = model * x * (dist.get_rank() + 1)
    dist.all_reduce(y)
    return y
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("model * x", "x * model", 0, ""),
        ("return y", "return y + dist.get_rank()", 0, "rank 1: output 1 differs by up to 1, where its largest number is "),
        ("return y", "return z", measure.BROKEN, "NameError: name 'z' is not defined"),
        ("    dist.all_reduce(y)\n", "    if dist.get_rank():\n        raise ValueError('of rank 1')\n", measure.BROKEN,
         "ValueError: of rank 1"),
    ],
)  # fmt: skip
def test_a_job_is_measured_in_its_ranks(tmp_path, old, new, code, said):
    """Each rank's outputs are compared, each leaves its trace, and an error is told once: the first, of what raised it."""
    assert old in JOB
    for name, text in (("given", JOB), ("mine", JOB.replace(old, new))):
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "exercises.judge.measure", tmp_path, tmp_path / "given.py", tmp_path / "mine.py"]
    ran = subprocess.run([*command, "--ranks", "2"], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ran.returncode == code, ran.stderr
    if code:
        assert ran.stderr.rstrip().splitlines()[-1] == said and ran.stderr.count("Traceback") == 1
        return
    found = json.loads((tmp_path / "measured.json").read_text())
    assert found["differs"].startswith(said) and bool(found["differs"]) == bool(said)
    if not said:
        facts, _ = read_job([str(tmp_path / f"mine_rank{rank}.json") for rank in range(2)])
        assert (facts.matched, len(facts.summaries[0].steps)) == (measure.ACTIVE, measure.ACTIVE)
        assert found["device"].startswith("2 ranks, each ") and len(found["times_us"]["mine"]) == measure.ROUNDS


# --- The judge


@pytest.fixture
def trace(tmp_path):
    """A trace of two steps of 100 µs, each with these events, given as functions of when the step begins; read."""

    def made(*events, name="trace"):
        path = tmp_path / f"{name}.json"
        every = [step(n, 100 * n, 100) for n in (1, 2)] + [event(100 * n) for n in (1, 2) for event in events]
        path.write_text(json.dumps({"traceEvents": every}))
        return read(str(path))

    return made


def some(name, at, duration=10, times=1, **args):
    return [lambda t, n=n: op(name, t + at + n * duration, duration - 1, **args) for n in range(times)]


@pytest.mark.parametrize(
    ("gone", "before", "after", "said"),
    [
        (Gone(op="aten::item", most=1), some("aten::item", 0, times=5), some("aten::item", 0), ""),
        (Gone(op="aten::item", most=1), [], some("aten::item", 0, times=2),
         "aten::item still runs 2 times a step (at most 1 of them needed)."),
        (Gone(op="aten::item"), [], some("aten::items", 0), ""),  # an op by its whole name
        (Gone(call="Memcpy"), [], [lambda t: call("cudaMemcpyAsync", t, 5, t)], "Memcpy still runs once a step."),
        (Gone(shrinks="aten::mm", to=0.5), some("aten::mm", 0, 41), some("aten::mm", 0, 21), ""),
        (Gone(shrinks="aten::mm", to=0.5), some("aten::mm", 0, 41), some("aten::mm", 0, 31),
         "aten::mm still takes 30.0 µs of a step (40.0 "),
        (Gone(shrinks="Python", to=0.3), some("aten::mm", 90), some("aten::mm", 0, 90), ""),
        (Gone(shrinks="Python", to=0.3), some("aten::mm", 90), some("aten::mm", 0, 40),
         "Python, in no op, still takes 61.0 µs of a step (91.0 "),
        (Gone(op="aten::mm", dtype="fp64"), [],
         some("aten::mm", 0, **{"Input Dims": [[4, 4], [4, 4]], "Input type": ["double", "double"]}),
         "aten::mm still has inputs of the type fp64"),
        (Gone(op="aten::mm", dtype="fp64"), [],
         some("aten::mm", 0, **{"Input Dims": [[4, 4], [4, 4]], "Input type": ["float", "float"]}), ""),
    ],
)  # fmt: skip
def test_a_cause_is_gone_from_the_trace_or_is_named(trace, gone, before, after, said):
    told = still_there(gone, trace(*before, name="before"), trace(*after, name="after"))
    assert told.startswith(said) and bool(told) == bool(said)


def speed(low, median, high):
    return Speed(low, median, high, 100.0, 100.0 / median)


def test_the_judge_knows_five_outcomes(trace):
    own, nothing = BY_NAME["03_unit_rows"], trace(*some("aten::linalg_vector_norm", 0))
    many = trace(*some("aten::div", 0, 5, times=5))
    assert judge(own, speed(99, 100, 101), [many], [many]).outcome == "cause"
    assert judge(own, speed(10, 11, 12), [many], [nothing]).outcome == "solved"
    slow = judge(own, speed(8, 9, 9.9), [many], [nothing])
    assert (slow.outcome, slow.said) == (
        "slow",
        ("The cause is gone from the trace, but at least 10 times as fast is possible.",),
    )
    noise = judge(own, speed(9, 11, 12), [many], [nothing])
    assert noise.outcome == "noise" and noise.said[0].startswith("Inconclusive: this machine is busy. ")
    assert judge(own, speed(9, 9.5, 12), [many], [nothing]).outcome == "noise"  # it may be fast enough
    slower = judge(own, speed(0.4, 0.5, 0.6), [many], [nothing])  # threads that wait for a core that is taken
    assert slower.outcome == "noise" and slower.said[1] == "close that program, and run the exercise again."
    perhaps = judge(own, speed(0.8, 0.9, 1.2), [many], [nothing])  # slower by the median
    assert perhaps.outcome == "noise" and perhaps.said == slower.said
    empty = judge(own, speed(99, 100, 101), [many], [trace()])
    assert (empty.outcome, empty.said) == (
        "cause",
        ("The trace of your step has no op at all: does it return a kept result, or one computed elsewhere?",),
    )
    leave = BY_NAME["05_product"]
    assert judge(leave, speed(1.09, 1.2, 1.3), [nothing], [nothing]).outcome == "no gain"
    assert judge(leave, speed(1.1, 1.2, 1.3), [nothing], [nothing]).outcome == "gain"


def test_of_a_job_each_rank_is_judged_and_what_one_waits(trace):
    own, texts = BY_NAME["32_four_passes"], BY_NAME["33_shared_texts"]
    once, twice = (trace(*some("c10d::allreduce_", 0, times=n), name=f"{n}") for n in (1, 3))
    assert judge(own, speed(2, 2, 2), [twice] * 2, [once] * 2).outcome == "solved"
    left = judge(own, speed(2, 2, 2), [twice] * 2, [once, twice])
    said = "rank 1: c10d::allreduce_ still runs 3 times a step (at most 2 of them needed)."
    assert (left.outcome, left.said) == ("cause", (said,))

    def job(*waits_us):
        return cast(
            Any, SimpleNamespace(ranks=[SimpleNamespace(rank=n, waiting_us=us, steps=2) for n, us in enumerate(waits_us)])
        )

    assert judge(texts, speed(2, 2, 2), [once] * 2, [once] * 2, (job(900, 10), job(10, 450))).outcome == "solved"
    left = judge(texts, speed(2, 2, 2), [once] * 2, [once] * 2, (job(900, 10), job(10, 451)))
    said = "rank 1 still waits 225.5 µs of a step for the other (as given, rank 0 waited 450.0 µs)."
    assert (left.outcome, left.said) == ("cause", (said,))


def test_the_speed_is_the_median_of_ratios_between_the_second_lowest_and_the_second_highest():
    given, mine = [float(n) for n in (900, 20, 30, 40, 50, 60, 70, 80, 10)], [10.0] * 9
    rows = Speed.of(given, mine)
    assert (rows.low, rows.median, rows.high, rows.given_us) == (2.0, 5.0, 8.0, 50.0)
    assert str(rows) == "5 times as fast (2 to 8 in 96% of cases): 50.0 µs a step as given, 10.0 µs as it is now"


@pytest.mark.parametrize(
    ("guess", "measured", "said"),
    [
        (2, 2.4, "near (2.4 times)"),
        (2, 2.9, "a little too low (2.9 times)"),
        (9, 2, "too high (2 times)"),
        (1.1, 10, "too low (10 times)"),
        (1.2, 1, "a little too high (1.00 times)"),
        (1.05, 1, "near (1.00 times)"),
        (1, 1.13, "a little too low (1.13 times)"),
        (4, 3, "a little too high (3 times)"),
    ],
)
def test_how_near_a_guess_is(guess, measured, said):
    assert session.how_near(guess, measured) == said


# --- The conversation, in a copy of the project


@pytest.fixture
def copied(tmp_path):
    """A copy of what exercise.py needs: its reader's files are written there, and not in this clone."""
    for name in ("exercises", "common"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("mine", "__pycache__"))
    shutil.copyfile(ROOT / "exercise.py", tmp_path / "exercise.py")
    return tmp_path


def run(folder, *arguments, typed=""):
    env = {**os.environ, "BROWSER": "true"}
    ran = subprocess.run(
        [sys.executable, "exercise.py", *arguments], cwd=folder, input=typed, capture_output=True, text=True, env=env, timeout=200
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_a_list_that_nobody_reads_any_more_ends_quietly(copied):
    there, here = os.pipe()
    os.close(there)
    ran = subprocess.run([sys.executable, "exercise.py", "--list"], cwd=copied, stdout=here, stderr=subprocess.PIPE, text=True)
    os.close(here)
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.slow
def test_from_the_guess_to_the_solution(copied):
    mine = copied / "exercises" / "mine" / "02_threshold.py"
    code, out, err = run(copied, "2", typed="7\n4\nfast\n10x\n")
    assert (code, err) == (0, "")
    assert out.startswith(
        "2. Scores above a threshold (Six small programs; on the CPU)\n\nThe sum of all scores above a threshold.\n"
    )
    assert (
        "Type one of the numbers 1 to 4.\n" in out
        and "Type a number such as 1.5, for 1.5 times as fast. 1 is as fast as now.\n" in out
    )
    assert re.search(r"^verdict: cpu-only: .*\na step takes .* without the profiler, .* recorded\n  op  ", out, re.MULTILINE)
    assert out.index("Now look.") < out.index("you said: ") < out.index("\nfinding: ")  # the advice names the cause
    assert "\nyou said: about 4,100 (not what the trace shows: about 19,000)\n" in out
    assert "\nnot about 4,100: aten::select 4,096 times, aten::as_strided 4,096 times, aten::item " in out
    assert (
        "next: a change counts if a step becomes at least 10 times as fast, "
        "with the same outputs (within 0.00002 of the largest number).\n"
        "  Change exercises/mine/02_threshold.py, then run " in out
    )
    assert mine.read_bytes() == (ROOT / "exercises" / "02_threshold.py").read_bytes()

    ops = dict(re.findall(r"^  (aten::\w+) +([\d.]+) +[\d.]+ \S+$", out.partition("(a step, the mean of 3)\n")[2], re.MULTILINE))
    assert len(ops) == 5 and 4096 <= float(ops["aten::item"]) <= 8192

    mine.write_text(mine.read_text().replace("total += score.item()", "total += scores.item()"))
    code, out, err = run(copied, "2")
    assert code == 1 and err.rstrip().endswith("error: exercises/mine/02_threshold.py does not count: the message above says why")
    assert "RuntimeError: a Tensor with 4096 elements cannot be converted to Scalar" in err and "measure.py" not in err

    shutil.copyfile(ROOT / "exercises" / "solutions" / "02_threshold.py", mine)
    code, out, err = run(copied, "2")
    assert (code, err) == (0, "")
    assert "outputs: equal. Speed: " in out and "\nsolved: Scores above a threshold" in out
    assert "(not what the trace shows: about 19,000)\nyou guessed 10 times as fast: too low (" in out
    estimate = session.predicted(read(str(copied / "traces" / "exercises" / "02_threshold" / "given.json")), "read-one-by-one")
    assert f"\nthe reader's estimate before: {estimate}\n" in out and "read-one-by-one" in estimate
    assert "\nwhy: Each element costs an aten::select" in out
    code, out, _ = run(copied, "--list")
    assert re.search(
        r"^   2  Scores above a threshold +cpu +solved in (?:\d+|<1) min, [\d.e+]+ times as fast, you guessed 10$",
        out,
        re.MULTILINE,
    )
    assert out.endswith(f"1 of {len(EVERY)} solved\n")


def test_a_case_is_judged_by_what_was_measured(copied):
    code, out, err = run(copied, "23", typed="2\n1\n4\n2\n")
    assert (code, err) == (0, "")
    assert "Not that: look at the timeline once more, and guess again.\n" in out
    assert "How much of the GPU's time do the sixteen matrix multiplications take? a third (right)\n" in out
    most = "Which slices take most of the GPU's time? bfloat16_copy (right the second time)\n"
    assert most in out
    assert "measured on NVIDIA H200, torch 2.11.0+cu130, 2026-11-23, without the profiler: 2.23 times as fast\n" in out
    assert "you guessed 2: near (2.23 times)\n" in out
    state = json.loads((copied / ".exercises.json").read_text())["23_linear_stack"]
    assert (state["limits"], state["shows"], state["gain"]) == ([2], [1, 4], 2.0)
    assert state["solved_s"] >= state["began_s"] and round(state["measured"], 2) == 2.23
    page = (copied / "traces" / "exercises" / "23_linear_stack" / "look.html").read_text()
    assert "dtype-conversions" not in page and "Verdict" not in page and "default-src 'none'" in page


def test_a_case_whose_cause_was_not_found_is_not_solved(copied):
    code, out, err = run(copied, "28", typed="1\n2\n1\n2\n4\n1.5\n")
    assert (code, err) == (0, "") and "limits the step? the GPU (not found)\n" in out
    listed = run(copied, "--list")[1]
    assert re.search(r"^  28  .* seen, and not found, in <1 min, 1\.03 times as fast, you guessed 4$", listed, re.MULTILINE)
    assert listed.endswith(f"\n0 of {len(EVERY)} solved\n")


def test_a_case_wants_its_cause_and_its_proof(tmp_path):
    one = BY_NAME["23_linear_stack"]
    assert one.shows is not None
    progress = Progress(tmp_path / "progress.json")
    state = progress.of(one.name)
    state.solved_s = 1.0
    for cause in (0, 1):
        for proof in (0, 1):
            state.limits, state.shows = [one.limits.right + cause], [one.shows.right + proof]
            assert is_solved(one, progress) is (cause == proof == 0)


@pytest.mark.slow
def test_what_needs_no_run(copied):
    assert run(copied, "99") == (2, "", f"error: no exercise 99: they are 1 to {len(EVERY)} (--list)\n")
    assert run(copied, "5", "--hint")[1] == "hint 1 of 3: How many ops does the step run? What could a compiler put together?\n"
    assert run(copied, "05_product", "--hint")[1].count("\n") == 3
    for _ in range(2):  # the last one, and once more
        said = run(copied, "5", "--hint")[1]
        assert "hint 3 of 3: " in said and said.endswith("that was all; the solution: uv run exercise.py 5 --solution\n")
    code, out, _ = run(copied, "1", "--solution")
    assert (
        code == 0
        and out.startswith((ROOT / "exercises" / "solutions" / "01_heads.py").read_text())
        and "why: contiguous()" in out
    )
    assert run(copied, "12", "--solution")[1].startswith("What takes most of a step? the matmuls (aten::mm, aten::addmm).\n")
    assert run(copied, "3", "--html") == (1, "", "error: nothing is recorded yet: uv run exercise.py 3\n")
    assert run(copied, "5", "--reset") == (0, "5. One large product: as it was given\n", "")
    assert run(copied, "--reset") == (2, "", "error: --reset takes the number of an exercise\n")
    said = "error: 22 is a trace without a program: there is nothing to watch or to leave\n"
    assert run(copied, "22", "--leave") == (2, "", said)
    mine = copied / "exercises" / "mine" / "05_product.py"
    mine.write_text("mine")
    said = "5. One large product: as it was given; yours is kept as exercises/mine/05_product.before_reset.py\n"
    assert run(copied, "5", "--reset") == (0, said, "")
    assert mine.read_bytes() == (ROOT / "exercises" / "05_product.py").read_bytes()
    assert mine.with_suffix(".before_reset.py").read_text() == "mine"
    code, _, err = run(copied, "3")
    assert code == 2 and err == "error: no guess, no run: type it, or give a line on standard input for each question\n"
    (copied / ".exercises.json").write_text("{")
    code, _, err = run(copied, "--list")
    assert code == 1 and err.startswith(
        f"error: {copied / '.exercises.json'}: not the progress of exercises (delete it to begin anew): "
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_an_exercise_that_needs_one_names_another(copied):
    assert (
        run(copied, "19")[2] == "error: A network that watches itself needs a GPU; a similar exercise, on a recorded trace: "
        "uv run exercise.py 22_watched_mlp\n"
    )


def test_the_next_one_is_the_first_that_is_not_solved(tmp_path, monkeypatch):
    import exercise

    progress = Progress(tmp_path / "progress.json")
    assert exercise.chosen(None, progress).number == 1
    for one in EVERY[:18]:
        progress.states[one.name] = State(solved_s=1.0)
    monkeypatch.setattr(exercise, "has_gpu", lambda: False)
    assert exercise.chosen(None, progress).number == 22
    monkeypatch.setattr(exercise, "has_gpu", lambda: True)
    assert exercise.chosen(None, progress).number == 19
    for one in EVERY:
        progress.states[one.name] = State(solved_s=1.0)
    with pytest.raises(session.ExerciseError, match="all exercises that this machine can run are solved"):
        exercise.chosen(None, progress)


def test_who_knows_a_trace_is_spared_the_exercises_on_it(tmp_path, monkeypatch, capsys):
    """Of ten questions two are answered right, in two sittings; the first one's exercise was solved before."""
    import exercise

    asked = [one for one in EVERY if one.skips]
    assert len(asked) == 10 and {name for one in asked for name in one.skips} <= set(BY_NAME)
    assert not any(len(BY_NAME[name].traces) for one in asked for name in one.skips)  # of programs
    monkeypatch.setattr("exercises.judge.book.TRACES", tmp_path / "traces")
    progress = Progress(tmp_path / "progress.json")
    progress.states["12_regression"] = State(solved_s=1.0)
    right = {"22_watched_mlp", "29_recommender"}
    typed = iter(str(one.limits.right if one.name in right else 1 + one.limits.right % 4) for one in asked[:3])
    with pytest.raises(StopIteration):
        exercise.ask_fast(progress, lambda prompt: next(typed))
    said = capsys.readouterr().out
    assert said.startswith("question 1 of 10\n22. A network on a GPU (Detective work; recorded on NVIDIA H200)\n")
    assert "\nright\n\nquestion 2 of 10\n" in said and "\nno: a third\nnot a tenth: nvjet GEMM, sixteen a step, takes 181" in said
    progress = Progress(tmp_path / "progress.json")
    typed = iter(str(one.limits.right if one.name in right else 1 + one.limits.right % 4) for one in asked[3:])
    exercise.ask_fast(progress, lambda prompt: next(typed))
    said = capsys.readouterr().out
    assert said.startswith("question 4 of 10\n25. ")
    last = "2 of 10 right; skipped: 2, 3, 15, 19, 22, 29 (--reset N brings one back)\nnext: uv run exercise.py\n"
    assert said.endswith(last)
    monkeypatch.setattr(exercise, "has_gpu", lambda: False)
    progress.states["01_heads"] = State(solved_s=1.0)
    assert exercise.chosen(None, progress).number == 4
    exercise.list_all(progress)
    assert "   2  Scores above a threshold                      cpu              known by 29\n" in capsys.readouterr().out
    exercise.ask_fast(progress)
    assert capsys.readouterr().out == last  # all were asked
    progress.forget("02_threshold")
    assert exercise.chosen(None, progress).number == 2


@pytest.fixture
def talk(tmp_path, monkeypatch):
    """A conversation on an exercise whose files are elsewhere, with answers given in advance."""

    def made(name, *typed):
        monkeypatch.setattr("exercises.judge.book.MINE", tmp_path / "mine")
        monkeypatch.setattr("exercises.judge.book.TRACES", tmp_path / "traces")
        answers = iter(typed)
        return session.Session(BY_NAME[name], Progress(tmp_path / "progress.json"), lambda prompt: next(answers))

    return made


@pytest.mark.parametrize(("asked", "is_changed", "called"), [(["5", "--leave"], True, "leave"), (["5"], True, "judge")])
@pytest.mark.parametrize("solved", [False, True])
def test_what_is_judged_and_not_solved_ends_with_1(monkeypatch, asked, is_changed, called, solved):
    import exercise

    said = []

    class Judged:
        def __init__(self, one, progress):
            self.is_changed, self.state = is_changed, State(limits=[3])

        def __getattr__(self, name):
            said.append(name)
            return lambda: solved

    monkeypatch.setattr(exercise, "Session", Judged)
    assert exercise.main(exercise.parse_args(asked)) == (0 if solved else 1)
    assert said == [called]


def test_what_is_to_be_left_is_left_for_the_right_reason(talk, trace, capsys):
    one = talk("05_product", "3", "4")
    one.state.limits, one.state.gain = [3], 1.0
    one.exercise.folder.mkdir(parents=True)
    path = one.exercise.folder / "given.json"
    path.write_text(json.dumps({"traceEvents": [step(1, 0, 100), op("aten::mm", 0, 90)]}))
    assert one.leave() is False
    out = " ".join(capsys.readouterr().out.split())
    assert "The rows of a step show what a compiler could fuse: here there is one op. It is right to leave it, but not for" in out
    assert one.leave() is True
    assert (
        "as fast: torch.compile gained less than 10% on the machines tried\nwhy: The step is one aten::mm."
        in capsys.readouterr().out
    )
    assert talk("01_heads").leave() is False
    assert capsys.readouterr().out == "not this one: at least 1.7 times as fast is possible.\n"


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.0, 0.5, "up to 2 times"), (0.2, 0.5, "1.25 to 2 times"), (0.0, 1.0, "up to 1e+03 times")]
)
def test_a_predicted_gain_is_said_as_times_as_fast(trace, low, high, said):
    import msgspec
    from trace_reader.analysis.replay.what_if import Gain

    facts = trace(*some("aten::mm", 0))
    finding = facts.findings[0]
    facts = msgspec.structs.replace(
        facts, findings=(msgspec.structs.replace(finding, slug="sync-in-step", gain=Gain(low, high)),)
    )
    assert session.predicted(facts, "sync-in-step") == f"sync-in-step alone, {said} as fast"
    assert session.predicted(facts, "") == f"sync-in-step alone, {said} as fast"
    other = f"none for this cause in this recording; its first was sync-in-step alone, {said} as fast"
    assert session.predicted(facts, "casts") == other
    without = msgspec.structs.replace(facts, findings=(msgspec.structs.replace(finding, slug="casts", gain=None),))
    assert session.predicted(without, "casts") == "none in this recording, though it names the cause (casts)"
    assert session.predicted(without, "") == session.predicted(without, "other") == "none in this recording"


@pytest.fixture
def rounds(monkeypatch, tmp_path):
    """Runs that are not run: each is judged as the next of these outcomes; the list of those that were used."""

    def made(*outcomes, differs=""):
        left, used = list(outcomes), []
        given = tmp_path / "traces" / "03_unit_rows" / "given.json"
        given.parent.mkdir(parents=True)
        given.write_text(json.dumps({"traceEvents": [step(1, 0, 100), op("aten::mm", 0, 90)]}))

        def judged(exercise, times_us, folder):
            used.append(left.pop(0))
            return speed(9, 11, 12), Judgement(used[-1], ("said",))

        def run(self, mine, threads=None):
            assert threads == (1 if used[-1:] == ["noise"] else None)
            return {"differs": differs, "times_us": {}, "prints": True}

        monkeypatch.setattr(session.Session, "run", run)
        others = iter(["cc1plus (1.9 cores)", "ld (1.2 cores)"])
        monkeypatch.setattr(session, "Others", lambda: SimpleNamespace(busy=functools.partial(str, next(others))))
        monkeypatch.setattr(session, "judged", judged)
        return used

    return made


@pytest.mark.parametrize(
    ("outcomes", "solved", "said"),
    [
        (["noise", "solved"], True, "\nsolved: Embeddings of length one\n"),
        (["noise", "noise"], False, "\nsaid\n"),
        (["slow", "slow"], False, f"\n{session.STILL_BUSY}\n"),
        (
            ["slow", "solved"],
            True,
            "\nother programs are busy: timing them once more\n",
        ),
        (
            ["no gain"],
            False,
            "\nno gain: said\nnext: uv run exercise.py 3 --leave, if the trace says why there is nothing to "
            "gain; or try another change\n",
        ),
    ],
)
def test_what_noise_hides_is_measured_once_more(talk, rounds, capsys, outcomes, solved, said):
    own, used = talk("03_unit_rows"), rounds(*outcomes)
    own.state.limits, own.state.gain = [2], 10.0
    assert own.judge() is solved and used == outcomes
    out = capsys.readouterr().out
    assert said in out and ("solved" in out) is solved
    assert ("\nother programs that were busy: ld (1.2 cores)\n" in out) is (outcomes in (["noise", "noise"], ["slow", "slow"]))
    assert (own.state.solved_s is not None, own.state.judged) == (solved, 1)
    assert "\nnote: the program prints in each step, which takes time, too\n" in out


def test_what_a_change_brought_beyond_the_estimate_is_told_by_the_rows(tmp_path):
    """Of 2,000 µs, 16 rounds take 1,440 (half of it in an op inside), and another op 100; of the changed program's, one op takes
    5.
    """
    given, mine = tmp_path / "given.json", tmp_path / "mine.json"
    rounds = [op(name, 2000 * n + 110 * k + at, 45) for n in range(3) for k in range(16)
              for name, at in (("aten::select", 100), ("aten::maximum", 155))]  # fmt: skip
    rounds += [one | {"name": "aten::fill_", "dur": one["dur"] / 2} for one in rounds]
    steps = [step(n, 2000 * n, 2000) for n in range(3)]
    other = [op("aten::sum", 2000 * n + 1870, 100) for n in range(3)]
    given.write_text(json.dumps({"traceEvents": [*steps, *rounds, *other]}))
    mine.write_text(json.dumps({"traceEvents": [e for n in range(3) for e in (step(n, 20 * n, 20), op("aten::max", 20 * n, 5))]}))
    (finding,) = [one for one in read(str(given)).findings if one.slug == "repeated-ops"]
    assert finding.gain is not None
    low, high = 1 / (1 - finding.gain.low), 1 / (1 - finding.gain.high)
    before, after = examine(load(str(given))), examine(load(str(mine)))
    assert session.beside_the_estimate(before, after, "repeated-ops", (low + high) / 2) == ""
    for measured, more in ((100.0, "more"), (1.01, "less")):
        assert session.beside_the_estimate(before, after, "repeated-ops", measured) == (
            f"that is {more} than the estimate: it leaves {1 / high:.1%} to {1 / low:.1%} of a step, your change leaves "
            f"{1 / measured:.1%}\n"
            "  of a recorded step                         as given        now\n"
            "  the ops that the finding names              1.44 ms     0.0 µs\n"
            "  other ops                                  100.0 µs     5.0 µs\n"
            "  no op (Python, waiting, freeing memory)    460.0 µs    15.0 µs"
        )
    assert session.beside_the_estimate(before, after, "no-such", 100.0) == ""
    (gap,) = [one for one in before.facts.findings if one.slug == "python-between-ops"]
    assert gap.gain is not None and session.beside_the_estimate(before, after, gap.slug, 100.0) == ""  # it is of no ops


def test_on_a_quiet_machine_what_is_slow_is_not_yet_there(talk, rounds, monkeypatch, capsys):
    own, used = talk("03_unit_rows"), rounds("slow")
    monkeypatch.setattr(session, "Others", lambda: SimpleNamespace(busy=str))
    own.state.limits, own.state.gain = [2], 10.0
    assert own.judge() is False and used == ["slow"] and "\nnot yet: said\n" in capsys.readouterr().out


def test_what_is_in_no_op_may_be_in_annotations():
    """Nearly all of the step of the program that is annotated."""
    facts = read(str(BY_NAME["13_word_counts"].recorded[0]))
    assert in_no_op_us(facts) > 0.9 * (facts.step_period_us or 0.0)


def test_solving_it_again_changes_nothing(talk, rounds):
    own, _ = talk("03_unit_rows"), rounds("solved", "solved")
    own.state.limits, own.state.gain = [2], 10.0
    assert own.judge() is True
    own.state.solved_s, own.state.measured = 1.0, 7.0
    assert own.judge() is True
    assert (own.state.solved_s, own.state.measured) == (1.0, 7.0)


def test_other_outputs_are_not_judged(talk, rounds, capsys):
    own, used = talk("03_unit_rows"), rounds(differs="output 1 differs")
    assert own.judge() is False and not used
    assert capsys.readouterr().out.endswith("\nnot yet: the outputs are not those of the program as given: output 1 differs\n")


def test_a_program_that_does_not_end_is_stopped(talk, monkeypatch, tmp_path):
    one = talk("03_unit_rows")
    endless = tmp_path / "03_unit_rows.py"
    endless.write_text(f"{PROGRAM}\n\nwhile True:\n    pass\n")
    monkeypatch.setattr("exercises.judge.book.FOLDER", tmp_path)
    monkeypatch.setattr(session, "LONGEST_RUN_S", 0.6)
    with pytest.raises(session.ExerciseError, match=r"the program still runs after 0\.01 minutes: "):
        one.run(mine=False)


def test_two_that_run_at_once_keep_each_others_progress(tmp_path):
    one, two = Progress(tmp_path / "kept.json"), Progress(tmp_path / "kept.json")
    one.of("a").gain, two.of("b").gain = 2.0, 3.0
    one.save("a")
    two.save("b")
    kept = Progress(tmp_path / "kept.json")
    assert {name: state.gain for name, state in kept.states.items()} == {"a": 2.0, "b": 3.0}
    kept.forget("a")
    assert set(Progress(tmp_path / "kept.json").states) == {"b"}


def test_progress_of_another_version_is_read_as_far_as_it_holds(talk, tmp_path):
    path = tmp_path / "progress.json"
    path.write_text('{"03_unit_rows": {"limits": [9], "gain": 2, "later": 1}}')
    assert talk("03_unit_rows").state.limits == []  # there are no nine options any more
    path.write_text('{"03_unit_rows": {"limits": [2]}}')
    assert talk("03_unit_rows").state.limits == []  # stopped before the second question
    path.write_text('{"03_unit_rows": {"limits": "2"}}')
    said = r"not the progress of exercises \(delete it to begin anew\): 03_unit_rows: Expected `array`, got `str`"
    with pytest.raises(ValueError, match=said):
        talk("03_unit_rows")


def test_no_page_is_made_of_a_trace_that_cannot_be_read(talk):
    one = talk("03_unit_rows")
    one.exercise.folder.mkdir(parents=True)
    (one.exercise.folder / "given.json").write_text("{")
    with pytest.raises(ValueError, match=r"no page of given.json: record it anew"):
        one.open_page()


def test_watching_judges_each_save(talk, monkeypatch, capsys):
    one = talk("01_heads")
    one.exercise.mine.parent.mkdir(parents=True)
    shutil.copyfile(one.exercise.given, one.exercise.mine)
    results = iter([False, session.ExerciseError("broken"), True])
    slept = []

    def judged(self):
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) % 2 == 0:  # saved after each second look
            one.exercise.mine.write_text(f"changed {len(slept)}")

    monkeypatch.setattr(session.Session, "judge", judged)
    monkeypatch.setattr("time.sleep", sleep)
    assert one.watch() is True and len(slept) == 7
    assert capsys.readouterr().out.count("waiting for the next edit") == 2


def test_the_page_of_a_case_tells_nothing_but_the_timeline(talk, opened):
    one = talk("24_mlp_by_hand")
    page = opened(one.look())
    assert page.inner_text("h1") == "24. A loop over layers" and page.locator("table").count() == 0
    page.focus("#lanes")
    page.keyboard.press("ArrowRight")
    assert "Nothing yet" not in page.inner_text("#details")


# --- Each exercise, run


@pytest.mark.slow
@pytest.mark.parametrize("own", ON_ONE_CPU, ids=lambda one: one.name)
def test_as_given_it_fails_and_solved_it_passes(own, tmp_path, monkeypatch):
    """And what a wrong guess is told of is in the trace, which runs as many ops as the book says."""
    passes(own, tmp_path, monkeypatch)
    facts = read(str(tmp_path / "given.json"))
    said = [why_not.wrong_because(own.limits, n, own.limits.right, facts) for n in range(1, len(own.limits.options) + 1)]
    assert [one for one in said if "The trace has no" in one] == []
    assert own.limits.beside or right_option(own.limits, facts) == own.limits.right


@pytest.mark.slow
@pytest.mark.parametrize("own", JOBS, ids=lambda one: one.name)
def test_a_job_as_given_fails_and_solved_it_passes(own, tmp_path):
    """The cause is in its traces as given, and not in the solution's."""
    command = [sys.executable, "-m", "exercises.judge.measure", tmp_path, own.given, own.solution, "--ranks", "2"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads((tmp_path / "measured.json").read_text())
    assert found["differs"] == ""
    assert judged(own, found["times_us"], tmp_path)[1].outcome in {"solved", "slow", "noise"}
    assert of_the_given(own, found["times_us"], tmp_path) == "cause"


def of_the_given(own, times_us, folder):
    """What is judged of a program that was left as it was given, by that one's traces and times in this folder."""
    for given, mine in zip(own.recordings("given", folder), own.recordings("mine", folder), strict=True):
        shutil.copyfile(given, mine)
    return judged(own, {"given": times_us["given"], "mine": times_us["given"]}, folder)[1].outcome


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("own", [one for one in MEND if one.device == "cuda"], ids=lambda one: one.name)
def test_those_of_a_gpu_fail_as_given_and_pass_solved(own, tmp_path, monkeypatch):
    passes(own, tmp_path, monkeypatch)


def passes(one, folder, monkeypatch):
    """The cause is in the trace as given, and not in the solution's; an obvious change is no gain. How fast the solution is on a
    busy machine, no test can say.
    """

    is_left = one.kind == "leave"
    monkeypatch.setattr(measure, "LEAST_STEPS", 1)
    if not is_left:
        monkeypatch.setattr(measure, "ROUND_S", 0.0)  # what is still there, the trace says
    found = measure.measure_into(folder, one.given, one.obvious if is_left else one.solution, measure.device_of(one.device))
    assert found["differs"] == ""
    outcome = judged(one, found["times_us"], folder)[1].outcome
    assert outcome == "no gain" if is_left else outcome != "cause"
    assert is_left or of_the_given(one, found["times_us"], folder) == "cause"


QUIET = [80.0] * 8 + [110.0]


@pytest.mark.parametrize(
    ("rounds_us", "busy", "noted"),
    [(QUIET, "", ""), ([110.0] * 9, "", session.VARY),
     (QUIET, "cc1plus (1.9 cores)", "note: other programs were busy meanwhile (cc1plus (1.9 cores)): do not trust the times")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "right", "counts"),
    [
        ("03_unit_rows", "fourteen", True),
        ("06_features", "four to thirty times as long", False),
        ("13_word_counts", "torch.tensor: make a tensor", False),
    ],
)
@pytest.mark.parametrize("is_shown", [True, False])
def test_times_of_a_busy_machine_are_not_to_be_trusted(
    talk, monkeypatch, capsys, rounds_us, busy, noted, name, right, counts, is_shown
):
    """The profiler cannot make a step shorter: if all rounds took longer, other programs did it. A count is what it is; and what
    such a recording shows, where quiet machines showed the same.
    """
    monkeypatch.setattr(session, "Others", lambda: SimpleNamespace(busy=lambda least_cores: busy))
    one = talk(name, "", "")
    book = one.exercise.limits.right
    one.state.right = book if is_shown or counts else book % len(one.exercise.limits.options) + 1
    one.state.limits, one.state.gain = [book], 10.0
    monkeypatch.setattr(session.Session, "run", lambda self, mine: {"means_us": {"given": rounds_us}})
    facts = SimpleNamespace(plain=SimpleNamespace(recorded_step_us=100.0), findings=(), verdict="", op_shapes=())
    monkeypatch.setattr(session.Session, "show", lambda self: [facts])
    monkeypatch.setattr(session, "finding_line", lambda *_: "")
    monkeypatch.setattr(session, "say_why_not", lambda *_: None)
    one.begin()
    said, is_judged = capsys.readouterr().out, counts or not noted or is_shown
    assert [line for line in said.splitlines() if "do not trust" in line] == [noted] * bool(noted)
    too_noisy = f"the times are too noisy to judge an answer; on the machines tried, the right one was: {right}\n"
    assert (too_noisy in said) is not is_judged
    assert (f"you said: {right} (right)\n" in said) is (counts or is_shown)
    assert not noted or one.right == book  # later, too, what was said now is right


def test_who_says_what_a_noisy_recording_shows_is_right(talk, monkeypatch, capsys):
    """And who says something else is told what quiet machines showed, then and at the end."""
    monkeypatch.setattr(session, "Others", lambda: SimpleNamespace(busy=lambda least_cores: "cc1plus (1.9 cores)"))
    monkeypatch.setattr(session.Session, "run", lambda self, mine: {"means_us": {"given": QUIET}})
    facts = SimpleNamespace(plain=SimpleNamespace(recorded_step_us=100.0), findings=(), verdict="", op_shapes=())
    monkeypatch.setattr(session.Session, "show", lambda self: [facts])
    monkeypatch.setattr(session, "finding_line", lambda *_: "")
    monkeypatch.setattr(session, "say_why_not", lambda *_: None)
    for guess, said in (
        (1, "you said: less than a fourth as long (right)\n(so it is in this noisy recording; on the machines tried it was: four "
         "to thirty times as long)\n"),
        (2, "the times are too noisy to judge an answer; on the machines tried, the right one was: four to thirty times as "
         "long\n"),
    ):  # fmt: skip
        one = talk("06_features", "", "")
        options, book = one.exercise.limits.options, one.exercise.limits.right
        wrong = [n for n in range(1, len(options) + 1) if n != book]
        one.state.right, one.state.limits, one.state.gain = wrong[0], [wrong[guess - 1]], 10.0
        one.begin()
        out = capsys.readouterr().out
        assert said.replace("less than a fourth as long", options[wrong[0] - 1]) in out
        assert guess == 1 or one.told() == f"{options[wrong[1] - 1]} (on machines with nothing beside it: {options[book - 1]})"


def test_the_finding_that_is_shown_is_the_exercises_where_it_is_told():
    facts = read(str(BY_NAME["14_head_on_encoder"].recorded[0]))
    *_, last = [finding for finding in facts.findings if finding.slug != facts.verdict]
    assert session.finding_line(facts, last.slug).startswith(f"finding: {last.slug}: {last.seen}. ")
    assert session.finding_line(facts, "none-of-these") == session.finding_line(facts, "")


def test_outputs_may_be_narrower_and_not_wider():
    wide, narrow = [torch.ones(2, dtype=torch.float64)] * 6, [torch.ones(2)] * 6
    assert measure.difference(wide, narrow) == ""
    assert measure.difference(narrow, wide) == "output 1 is float64, where the program as given has float32"


def test_the_table_of_ops_ends_with_the_annotations_and_all_that_runs_inside_them():
    said = session.longest_ops(read(str(BY_NAME["16_wide_mlp"].recorded[0])))
    assert said.splitlines()[0] == f"  {'op':35}    calls   own time  (a step, the mean of 3)"
    assert said.splitlines()[-4:] == [
        f"  {'all ops, those inside others too':35}      472",
        f"  {'annotation':35}    calls       time",
        f"  {'Optimizer.step#AdamW.step':35}        1    1.57 ms",
        f"  {'Optimizer.zero_grad#AdamW.zero_grad':35}        1    26.3 µs",
    ]


# --- What a wrong guess is told


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (1, "aten::sum, once: 3.0 µs of a step's 100.0 µs (3%)."),
        (2, ""),
        (3, "aten::item, twice: 18.0 µs of a step's 100.0 µs (18%). The trace has no aten::cat. So it is."),
        (4, "Optimizer.step#SGD.step: 7.0 µs of a step's 100.0 µs (7%)."),
        (5, "It is in no op."),
        (6, "Python, in no op: 67.0 µs of a step's 100.0 µs (67%)."),
    ],
)
def test_a_wrong_guess_is_told_what_the_trace_has_of_it(trace, guess, said):
    shown = ("aten::sum", "", "aten::item, aten::cat; So it is.", "Optimizer.step", "; It is in no op.", "Python")
    mark = [lambda t: event("user_annotation", "Optimizer.step#SGD.step", t + 80, 7)]
    facts = trace(*some("aten::sum", 10, 4), *some("aten::item", 20, 10, times=2), *some("aten::mm", 60, 6), *mark)
    assert why_not.wrong_because(Choice("What?", tuple("abcdef"), 2, shown), guess, 2, facts) == said
    assert why_not.wrong_because(Choice("What?", tuple("abcdef"), 2), guess, 2, facts) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nvjet GEMM", "nvjet GEMM, twice: on the GPU, 10.0 µs of a step's 100.0 µs (10%)."),
        ("gelu", "gelu, once: on the GPU, 3.0 µs of a step's 100.0 µs (3%)."),  # not gelu_backward
        ("cudaLaunchKernel", "cudaLaunchKernel, 4 times: 0.4 µs of a step's 100.0 µs (less than 1%)."),
        ("cudaDeviceSynchronize", "cudaDeviceSynchronize, once in the recording: 50.0 µs."),
        ("aten::linear", "aten::linear, once: 30.0 µs of a step's 100.0 µs (30%)."),  # with what it calls
    ],
)
def test_of_kernels_calls_and_ops_with_what_they_call_too(trace, name, said):
    gelu = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl{}>(int)"
    kernels = [("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_NTN", 5), ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_NTN", 5), (gelu, 3),
               (gelu.replace("Gelu", "GeluBackward"), 7)]  # fmt: skip
    made = [*some("aten::linear", 0, 31), *some("aten::addmm", 5, 21)]
    for n, (kernel_name, us) in enumerate(kernels):
        made += [lambda t, n=n: call("cudaLaunchKernel", t + 40 + n, 0.1, int(t) + n),
                 lambda t, n=n, k=kernel_name, us=us: kernel(k, t + 50 + 10 * n, us, int(t) + n)]  # fmt: skip
    facts = trace(
        *made, lambda t: call("cudaDeviceSynchronize", 300, 50, 9) if t == 100 else event("user_annotation", "end", t, 1)
    )
    assert why_not.wrong_because(Choice("What?", ("a", "b"), 1, ("", name)), 2, 1, facts) == said


def test_what_the_trace_has_is_said_once_of_several_wrong_options(trace, capsys):
    facts = trace(*some("aten::copy_", 10, 31), *some("aten::sum", 50, 11, times=2))
    choice = Choice("What?", ("a", "b", "c"), 3, ("aten::copy_", "aten::copy_", ""), (0.5, 1.0), ("aten::copy_", "aten::sum"))
    session.say_why_not(choice, [1, 2, 3], 3, facts)
    copy = "aten::copy_, once: 30.0 µs of a step's 100.0 µs (30%). aten::copy_ takes 1.5 times as"
    assert capsys.readouterr().out == f"not a, nor b: {copy}\nlong as aten::sum.\n"
    counts = Choice("What?", ("a", "b"), 2, ("aten::copy_, aten::cat", ""), (1.0,), each=3)
    session.say_why_not(counts, [1], 2, facts)
    assert (
        capsys.readouterr().out
        == "not a: aten::copy_ 1 times, aten::cat 0 times a step: with all others 3 ops, 1 for each of 3.\n"
    )


@pytest.mark.parametrize("own", [one for one in (*MEND, *LEAVE) if one.device == "cpu"], ids=lambda one: one.name)
def test_each_wrong_option_has_an_answer(own):
    assert [bool(one) for one in own.limits.shown] == [n != own.limits.right for n in range(1, len(own.limits.options) + 1)]


@pytest.mark.parametrize(
    ("typed", "looked", "said"),
    [
        (["", "many", "80x"], 80.0, "\nafter you had looked: 80 times as fast: near (90 times)\n"),
        (["", ""], 10.0, None),  # the same
    ],
)
def test_the_gain_is_asked_again_when_the_trace_was_seen(talk, capsys, typed, looked, said):
    one = talk("03_unit_rows", *typed)
    one.state.limits, one.state.gain = [2], 10.0
    one.guess_again()
    assert one.state.looked == looked
    one.exercise.folder.mkdir(parents=True)
    (one.exercise.folder / "given.json").write_text(json.dumps({"traceEvents": [step(1, 0, 100), op("aten::mm", 0, 90)]}))
    one.solved(90.0)
    out = capsys.readouterr().out
    assert "you guessed 10 times as fast: too low (90 times)\n" in out and ("after you had looked" in out) is (said is not None)
    assert said is None or said in out


@pytest.mark.parametrize(("sums", "right"), [(4, 1), (3, 1), (1, 2), (0, 3)])
def test_what_is_right_the_own_trace_says(trace, sums, right):
    """A copy of 25 by itself beside sums of 36, 27, 9 and none."""
    inside = [
        *some("aten::clone", 8, 34),
        *some("aten::fill_", 12, 5),
        *some("aten::sum_to_size", 90, 9),
    ]  # none of them a copy, a sum
    facts = trace(*inside, *some("aten::copy_", 10, 30), *(e for n in range(sums) for e in some("aten::sum", 45 + 11 * n, 10)))
    beside = Choice("What?", ("less", "more", "most"), 1, bounds=(1.0, 100.0), beside=("aten::copy_", "aten::sum"))
    assert right_option(beside, facts) == right
    ops = sum(row.calls for row in facts.ops) / len(facts.steps)
    for each in (1, 2):
        counted = Choice("What?", ("few", "many"), 1, bounds=(ops / each,), each=each)
        assert right_option(counted, facts) == 2
        assert right_option(replace(counted, bounds=(ops / each + 0.1,)), facts) == 1
    falling = replace(beside, options=("most", "more", "less"), bounds=(100.0, 1.0))
    assert right_option(falling, facts) == 4 - right
    assert right_option(Choice("What?", ("a", "b"), 2), facts) == 2
    with pytest.raises(ValueError, match="has 2 options, and 2 bounds between them"):
        Choice("What?", ("a", "b"), 2, bounds=(1.0, 2.0))


@pytest.mark.parametrize(
    ("first", "typed", "said"),
    [
        (4, "", "fourteen (right)"),
        (1, "4", "five; once you had looked: fourteen (right)"),
        (1, "", "five (not what the trace shows: fourteen)"),
        (4, "2", "seven (not what the trace shows: fourteen)"),
    ],
)
def test_the_answer_is_asked_again_when_the_trace_was_seen(talk, first, typed, said):
    one = talk("03_unit_rows", *(["nine"] if typed else []), typed, "")
    one.state.limits, one.state.gain, one.state.right = [first], 10.0, 4
    one.guess_again()
    assert (one.state.limits, one.told()) == ([first, int(typed or first)], said)


def test_where_nobody_answers_the_first_guess_stays(tmp_path, monkeypatch, talk):
    def nobody(prompt):
        raise EOFError

    one = talk("03_unit_rows")
    one._ask, one.state.limits, one.state.gain = nobody, [2], 10.0
    one.guess_again()
    assert one.state.looked is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # a place that the first step fills
        ("return torch.ones(4, device=device)", "return {'made': None, 'norm': None}"),
        # a frozen dataclass
        ("return torch.ones(4, device=device)", "return Model(torch.ones(4), [0])"),
        # a tensor that a step replaces by one of another shape, and one of inference mode
        ("return torch.ones(4, device=device)", "return {'last': torch.zeros(1), 'made': torch.ones(4), 'kept': torch.zeros(4)}"),
    ],
)
def test_a_model_is_brought_back_whatever_a_step_has_put_there(program, cpu, old, new):
    mine = program("mine", old, new)
    step = """
    if isinstance(model, Model):
        return model.made * x
    if model["made"] is None:
        model["made"], model["norm"] = torch.ones(4), torch.nn.LayerNorm(4)
    model["last"] = x[:3]
    with torch.inference_mode():
        model["kept"] = x * 2
    return model["made"] * x"""
    head = (
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Model:\n    made: torch.Tensor\n    calls: list\n"
    )
    mine.write_text(
        mine.read_text().replace("    return model * x", step.lstrip("\n")).replace("import torch\n", f"import torch\n{head}", 1)
    )
    assert measure.measure(program(), mine, cpu)[0]["differs"] == ""


def test_a_batch_that_a_step_wants_gradients_of_is_drawn_anew(program, cpu):
    mine = program("mine", "return model * x", "return (model * x.requires_grad_()).detach()")
    assert measure.measure(program(), mine, cpu)[0]["differs"] == ""
