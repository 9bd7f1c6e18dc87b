"""Recording in a program of one's own: the handler, a block, the fixture of pytest, and what the document shows."""

import gzip
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

from helpers import TOOL
import pytest
from trace_reader import handler, load, profiled, read, recorded
from trace_reader.recording import slow_steps
from trace_reader.recording.handler import _Clock

torch = pytest.importorskip("torch")
profiler = torch.profiler
DOCUMENT = TOOL / "docs" / "own_loop.md"


def loop(one, steps, **schedule):
    """Steps of a small product, recorded by this handler."""
    x = torch.ones(32, 32)
    with profiler.profile(
        schedule=schedule.pop("plan", None) or one.schedule(**schedule), on_trace_ready=one, acc_events=True
    ) as p:
        for _ in range(steps):
            torch.mm(x, x)
            p.step()


# --- The handler


def test_traces_are_written_by_step_and_tell_the_plain_step(tmp_path):
    handler_ = handler(tmp_path / "traces", report=False)
    loop(handler_, 20, wait=6, warmup=1, active=3, repeat=2)
    assert [path.name for path in handler_.written] == ["trace_step10.json", "trace_step20.json"]
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == sorted(path.name for path in handler_.written)
    for path, steps in zip(handler_.written, (3, 6), strict=True):
        header = json.loads(path.read_text())["plain_step_us"]
        assert header["steps"] == steps and 0 < header["low"] <= header["median"] <= header["high"]
        facts = read(str(path))
        assert len(facts.steps) == 3 and facts.plain.how == "measured"


def test_two_programs_that_begin_together_write_two_traces(tmp_path):
    one, other = (handler(tmp_path, report=False) for _ in range(2))
    for own in (one, other):
        loop(own, 5, wait=1, warmup=1, active=3)
    assert [path.name for path in (*one.written, *other.written)] == ["trace_step5.json", "trace_run2_step5.json"]
    assert one.written[0].exists() and other.written[0].exists()


def recorded_steps(monkeypatch, slow, steps=400, **options):
    """Return which steps SlowSteps records, by trace, and what it says, where a step takes 10 ms but those in `slow` (ms)."""
    clock_s, said = [0.0], list[str]()
    found, of_one = list[list[int]](), list[int]()
    monkeypatch.setattr(slow_steps.time, "perf_counter", lambda: clock_s[0])
    own = slow_steps.SlowSteps(1.5, said.append, **options)
    for number in range(steps):
        action = own(number).name
        if action.startswith("RECORD"):
            of_one.append(number)
        if action == "RECORD_AND_SAVE":
            found.append(of_one)
            of_one = []
        clock_s[0] += slow.get(number, 10) / 1000
    return found, said, own


def test_the_next_steps_of_a_slow_one_are_recorded_and_then_those_around_the_foretold(monkeypatch):
    found, said, own = recorded_steps(monkeypatch, {70: 30, 140: 31, 210: 32, 280: 30})
    assert found == [[72, 73, 74], [209, 210, 211], [349, 350, 351]]
    assert said == [
        "step 70 took 30.00 ms, 3.0 times the median (10.00 ms); steps 72 to 74 will be recorded",
        "step 140 took 31.00 ms, 3.1 times the median (10.00 ms); steps 209 to 211 will be recorded",
        "step 280 took 30.00 ms, 3.0 times the median (10.00 ms); steps 349 to 351 will be recorded",
    ]
    assert own.header == {"slow_step": {"step": 280, "us": 30000.0, "median_us": 10000.0}}


def test_what_is_slow_from_a_step_on_is_the_usual_soon(monkeypatch):
    found, said, _ = recorded_steps(monkeypatch, dict.fromkeys(range(100, 400), 30) | {300: 90}, repeat=20)
    assert found == [[102, 103, 104], [302, 303, 304]]
    assert said[-1] == "step 300 took 90.00 ms, 3.0 times the median (30.00 ms); steps 302 to 304 will be recorded"


@pytest.mark.parametrize(
    ("slow", "recorded"),
    [
        ({}, []),
        ({n: 14.9 for n in range(25, 400, 25)}, []),  # less than 1.5 times
        ({5: 90, 15: 90}, []),  # before there is a median
        ({50: 40, 90: 16, 120: 40}, [[52, 53, 54], [189, 190, 191]]),  # 16 is of another kind, and less
        ({50: 18, 90: 40}, [[52, 53, 54], [92, 93, 94]]),  # the slowest so far
        ({50: 40, 60: 40, 65: 18, 66: 18}, [[52, 53, 54], [69, 70, 71]]),  # which is waited for, whatever is less slow
        ({50: 40, 53: 40, 100: 41}, [[52, 53, 54], [149, 150, 151]]),  # recorded steps are not timed
        ({50: 40, 55: 40, 100: 41}, [[52, 53, 54], [149, 150, 151]]),  # nor is that in which the trace is written
    ],
)  # fmt: skip
def test_what_counts_as_slow(monkeypatch, slow, recorded):
    assert recorded_steps(monkeypatch, slow)[0] == recorded


def test_so_many_traces_of_so_many_steps(monkeypatch):
    slow = dict.fromkeys(range(40, 400, 40), 50)
    assert recorded_steps(monkeypatch, slow, warmup=2, active=1, repeat=2)[0] == [[43], [120]]
    for options in ({"warmup": 0}, {"active": 0}, {"repeat": 0}):
        with pytest.raises(ValueError, match="a slow step takes more than once the median"):
            slow_steps.SlowSteps(1.5, print, **options)
    for times in (1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a slow step"):
            slow_steps.SlowSteps(times, print)
    with pytest.raises(TypeError, match="with slow, a schedule takes warmup, active and repeat, not wait"):
        handler("traces", slow=1.5).schedule(wait=1)


def test_slow_without_its_schedule_is_told(tmp_path, capsys):
    own = handler(tmp_path, report=False, slow=1.5)
    loop(own, 20, plan=profiler.schedule(wait=6, warmup=1, active=3, repeat=2))
    said = "read-trace: slow has no effect without schedule=own.schedule(), where own is this handler\n"
    assert capsys.readouterr().err == said and len(own.written) == 2


def test_the_handler_writes_the_slow_step(tmp_path, capsys):
    """Every 50th step sleeps, for far longer than a busy machine makes another one take."""
    own = handler(tmp_path, report=False, slow=12)
    x = torch.ones(128, 128)
    with profiler.profile(schedule=own.schedule(repeat=2), on_trace_ready=own, acc_events=True) as p:
        for number in range(1, 200):
            torch.mm(x, x)
            time.sleep(0.4 if number % 50 == 0 else 0.008)
            p.step()
    assert [path.name for path in own.written] == ["trace_step54.json", "trace_step151.json"]
    said = capsys.readouterr().err
    assert re.search(r"read-trace: step 99 took .*; steps 148 to 150 will be recorded\n", said), said
    header = json.loads(own.written[1].read_text())
    assert header["slow_step"]["step"] == 99 and "plain_step_us" not in header  # which is not that of these steps
    times_us = load(str(own.written[1])).steps.duration_us
    assert times_us[1] > 390_000 > max(times_us[0], times_us[2])


def test_a_schedule_of_torchs_own_is_timed_from_the_second_cycle_on(tmp_path):
    handler_ = handler(tmp_path, name="mine", zipped=True, report=False)
    loop(handler_, 20, plan=profiler.schedule(wait=6, warmup=1, active=3, repeat=2))
    assert [path.name for path in handler_.written] == ["mine_step10.json.gz", "mine_step20.json.gz"]
    headers = [json.loads(gzip.decompress(path.read_bytes())).get("plain_step_us") for path in handler_.written]
    assert headers[0] is None and headers[1]["steps"] == 2


def test_every_second_cycle_is_recorded_with_stacks_beside_the_one_before(tmp_path):
    x, own = torch.ones(32, 32), handler(tmp_path, report=False, stacks=True)
    with profiler.profile(schedule=own.schedule(wait=4, warmup=1, active=2, repeat=3), on_trace_ready=own) as p:
        for _ in range(21):
            torch.mm(x, x)
            p.step()
    assert [path.name for path in own.written] == ["trace_step7.json", "trace_step7_stacks.json", "trace_step21.json"]
    with_stacks = [json.loads(path.read_text()).get("with_stack") for path in own.written]
    assert with_stacks == [0, 1, 0] or with_stacks == [None, 1, None]
    facts = read(str(own.written[0]))
    assert len(facts.steps) == 2 and not facts.recorded_with


def test_the_programs_own_flags_stay_in_every_cycle(tmp_path):
    x, own = torch.ones(32, 32), handler(tmp_path, name="my.json.run", report=False, stacks=True)
    with profiler.profile(
        schedule=own.schedule(wait=4, warmup=1, active=2, repeat=3), on_trace_ready=own, profile_memory=True
    ) as p:
        for _ in range(21):
            torch.mm(x, x)
            p.step()
    assert [path.name for path in own.written] == [
        "my.json.run_step7.json", "my.json.run_step7_stacks.json", "my.json.run_step21.json"
    ]  # fmt: skip
    said = [json.loads(path.read_text()) for path in own.written]
    assert [bool(one.get("with_stack")) for one in said] == [False, True, False]
    assert all(one["profile_memory"] for one in said)


def test_with_events_kept_over_cycles_no_stacks_are_recorded(tmp_path, capsys):
    own = handler(tmp_path, report=False, stacks=True)
    loop(own, 7, wait=4, warmup=1, active=2, repeat=1)
    said = "read-trace: no stacks are recorded: with acc_events=True all cycles are recorded with the same flags\n"
    assert said in capsys.readouterr().err
    assert [path.name for path in own.written] == ["trace_step7.json"]


@pytest.mark.parametrize(
    ("plan", "timed"),
    [
        ({"wait": 1, "warmup": 1, "active": 1}, 0),  # the only one may be the first of all
        ({"wait": 2, "warmup": 1, "active": 1}, 1),
        ({"wait": 9, "warmup": 0, "active": 2}, 4),
        ({"wait": 14, "warmup": 0, "active": 2}, 7),  # two stretches, of 3 and 4
        ({"wait": 20, "warmup": 0, "active": 2}, 10),  # three, of 3, 3 and 4
        ({"wait": 100, "warmup": 1, "active": 1}, 20),
        ({"wait": 0, "warmup": 1, "active": 1}, 0),
    ],
)
def test_the_later_half_of_the_steps_without_the_profiler_counts(plan, timed):
    clock = _Clock(profiler.schedule(**plan))
    for number in range(sum(plan.values()) + 1):
        clock(number)
    stretches = max(min(3, timed // 3), 1)
    assert clock.steps == timed and len(clock.times_us) == (stretches if timed else 0)


def test_the_time_is_that_of_the_steps(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = _Clock(profiler.schedule(wait=4, warmup=1, active=1))
    for number, long_s in enumerate((9.0, 7.0, 0.25, 0.75, 5.0, 5.0)):
        clock(number)
        now[0] += long_s
    assert (clock.times_us, clock.steps) == ([500000.0], 2)


def test_a_rank_writes_its_own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    own = handler(tmp_path)  # not rank 0: nothing is printed
    loop(own, 5, wait=1, warmup=1, active=3)
    assert [path.name for path in own.written] == ["trace_step5_rank3.json"] and not own._reading
    monkeypatch.setenv("WORLD_SIZE", "1")
    own = handler(tmp_path, name="alone", report=False)
    loop(own, 5, wait=1, warmup=1, active=3)
    assert [path.name for path in own.written] == ["alone_step5.json"]


def test_traces_of_an_earlier_run_are_not_written_over(tmp_path):
    names = []
    for zipped in (False, True, False):
        own, other = handler(tmp_path, report=False, zipped=zipped), handler(tmp_path, name="trace_b", report=False)
        loop(own, 5, wait=1, warmup=1, active=3)
        names += [path.name for path in own.written]
    assert names == ["trace_step5.json", "trace_run2_step5.json.gz", "trace_run3_step5.json"] and other.name == "trace_b"


def test_what_fails_in_it_does_not_reach_the_loop(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    handler_ = handler(tmp_path / "file" / "traces", report=False)
    loop(handler_, 5, wait=1, warmup=1, active=3)
    assert handler_.written == [] and re.match(r"read-trace: no trace was written: \w+Error: ", capsys.readouterr().err)


def test_rank_0_prints_the_verdict_from_a_process_of_its_own(tmp_path, capfd):
    handler_ = handler(tmp_path)
    loop(handler_, 5, wait=1, warmup=1, active=3)
    handler_.wait()
    out = capfd.readouterr().out
    assert out.startswith(f"trace: {handler_.written[0]}\n") and "\nverdict: cpu-only: " in out and out.count("\n") <= 20


@pytest.mark.slow
def test_a_program_waits_for_its_report(tmp_path):
    program = f"""
import torch
from torch.profiler import profile
from trace_reader import handler
own = handler({str(tmp_path)!r})
with profile(schedule=own.schedule(wait=1, warmup=1, active=1), on_trace_ready=own) as p:
    for _ in range(3):
        torch.ones(4).sum(); p.step()
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOL), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=100)
    assert ran.returncode == 0 and "verdict: cpu-only" in ran.stdout, ran.stderr


def test_a_trace_that_cannot_be_written_whole_is_not_there(tmp_path, capsys, monkeypatch):
    """And the one of an earlier run stays as it was."""
    (tmp_path / "trace_step5.json").write_text("earlier")
    monkeypatch.setattr("shutil.copyfileobj", lambda *rest: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    handler_ = handler(tmp_path, report=False)
    loop(handler_, 5, wait=1, warmup=1, active=3)
    assert capsys.readouterr().err == "read-trace: no trace was written: OSError: [Errno 28] No space left on device\n"
    assert [path.name for path in tmp_path.iterdir()] == ["trace_step5.json"]
    assert (tmp_path / "trace_step5.json").read_text() == "earlier" and not handler_.written


# --- A block, a function, the fixture


def test_a_block_is_recorded_with_its_steps(tmp_path, capfd):
    x = torch.ones(32, 32)
    with recorded(tmp_path / "new" / "block.json") as steps:
        for one in steps([x] * 4):
            torch.mm(one, one)
    out = capfd.readouterr().out
    assert "\ninnermost ops per step: 1 (aten::mm)\n" in out
    facts = read(str(tmp_path / "new" / "block.json"))
    assert [step.name for step in facts.steps] == [f"ProfilerStep#{n}" for n in range(4)]
    assert facts.op_shapes[0].shapes == "2 of 32x32 fp32"
    with pytest.raises(ValueError, match="mine"), recorded(tmp_path / "failed.json"):
        raise ValueError("mine")
    assert not (tmp_path / "failed.json").exists()


def test_the_fixture_tells_what_a_call_does(profiled, tmp_path):
    x = torch.ones(32, 32)
    calls = []

    def step():
        calls.append(1)
        return torch.mul(x, x) + x

    one = profiled(step)
    assert (one.aten_calls, one.kernels, one.copies, one.syncs, one.recompiles) == (2, None, None, None, 0)  # also with a GPU
    assert len(calls) == 3 + 3 * 3 + 3 and one.step_us > 0 and one.facts.plain.how == "measured"
    assert one.peak_memory == 2 * 32 * 32 * 4
    assert one.trace.parent == tmp_path and re.match(
        r"<Profiled aten_calls=2, .*peak_memory=8192; cpu-only: .*profiled_1.json>", repr(one)
    )
    assert profiled(step, warmup=0).trace.name == "profiled_2.json"


def test_recompilations_and_waits_are_counted(profiled):
    number = iter(range(100))
    compiled = torch.compile(lambda x, name: x + 1 if name != "nothing" else x, backend="eager", dynamic=False)
    x = torch.ones(4)
    assert profiled(lambda: compiled(x, "same")).recompiles == 0
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    assert profiled(lambda: compiled(x, str(next(number))), warmup=1).recompiles >= 3


def test_without_pytest_the_file_is_kept_where_it_is_asked_for(tmp_path):
    x = torch.ones(4)
    assert profiled(lambda: x + 1).trace is None
    assert profiled(lambda: x + 1, tmp_path / "kept" / "a.json").trace == tmp_path / "kept" / "a.json"
    assert len(read(str(tmp_path / "kept" / "a.json")).steps) == 3


def test_the_fixture_is_there_where_the_package_is_installed(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(profiled):\n    assert callable(profiled)\n")
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"], cwd=tmp_path,
                         capture_output=True, text=True, timeout=100)  # fmt: skip
    if ran.returncode and "fixture 'profiled' not found" in ran.stdout:
        pytest.skip("the package is not installed here: it is on the path")
    assert ran.returncode == 0, ran.stdout


# --- What the document shows


def snippets():
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


def snippet(word):
    (code,) = [one for one in snippets() if word in one]
    return code


def test_the_loop_and_the_block_of_the_document_run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    x = torch.ones(8, 8)
    names = {"loader": [x] * 30, "step": lambda batch: batch @ batch, "texts": [x] * 3, "model": lambda text: text + 1}
    exec(snippet("for batch in loader"), dict(names))
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["trace_step25.json"]
    exec(snippet("recorded("), dict(names))
    assert len(read("traces/answer.json").steps) == 3


def test_the_callback_for_transformers_is_called_as_it_is_written(tmp_path):
    pytest.importorskip("transformers")
    names: dict = {}
    exec(snippet("TrainerCallback"), names)
    one = names["Profile"](tmp_path, wait=2, warmup=1, active=2, repeat=1)
    one.profiler.on_trace_ready.report = False
    one.on_train_begin(None, None, None)
    for _ in range(6):
        torch.ones(4).sum()
        one.on_step_end(None, None, None)
    one.on_train_end(None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["trace_step5.json"]


def test_a_trainer_of_transformers_is_recorded(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    names: dict = {}
    exec(snippet("TrainerCallback"), names)
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=100, n_positions=32)
    texts = [{"input_ids": [n % 100] * 32, "labels": [n % 100] * 32} for n in range(64)]
    one = names["Profile"](tmp_path / "traces", wait=4, warmup=2, active=3, repeat=1)
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        transformers.TrainingArguments(str(tmp_path / "out"), max_steps=12, per_device_train_batch_size=4, report_to=[]),
        train_dataset=texts,
        callbacks=[one],
    )
    trainer.train()
    (path,) = (tmp_path / "traces").iterdir()
    facts = read(str(path))
    assert path.name == "trace_step9.json" and len(facts.steps) == 3 and facts.plain.how == "measured"


def test_a_loop_of_accelerate_is_recorded(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(snippet("ProfileKwargs").replace('"wait": 10', '"wait": 4'), names)
    accelerator = names["accelerator"]
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    with accelerator.profile() as profiler:
        for _ in range(20):
            accelerator.backward(model(torch.ones(4, 8, device=accelerator.device)).square().mean())
            optimizer.step()
            profiler.step()
    first, second = sorted((tmp_path / "traces").iterdir(), key=lambda path: len(path.name))
    assert (first.name, second.name) == ("trace_step9.json", "trace_step18.json")
    assert [len(read(str(path)).steps) for path in (first, second)] == [3, 3]
    assert read(str(first)).plain.how != "measured" and read(str(second)).plain.how == "measured"


def test_a_trainer_of_lightning_is_recorded(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    base: Any = lightning.LightningModule
    names: dict = {}
    exec(snippet("lightning.pytorch"), names)

    class Small(base):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch, number):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    one = names["Profile"](tmp_path / "traces", wait=4, warmup=2, active=3, repeat=1)
    trainer = lightning.Trainer(devices=1, max_steps=12, callbacks=[one], logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, default_root_dir=tmp_path)  # fmt: skip
    trainer.fit(Small(), torch.utils.data.DataLoader([torch.ones(8)] * 64, 4))
    (path,) = (tmp_path / "traces").iterdir()
    assert path.name == "trace_step9.json" and len(read(str(path)).steps) == 3


def test_a_block_is_recorded_without_shapes_where_it_is_told_to(tmp_path, capfd):
    x = torch.ones(32, 32)
    with recorded(tmp_path / "a.json", report=False, record_shapes=False) as steps:
        for step in steps([x] * 3):
            torch.mm(step, step)
    assert "Input Dims" not in (tmp_path / "a.json").read_text()
