"""The run without the profiler: what a header says of it, what is estimated and for which traces, and how it is told."""

import json
import math
from pathlib import Path
import statistics
import time

import pytest
from reader_helpers import GALLERY, TOOL
from reader_helpers.events import ADD, GEMM, call, event, kernel, memcpy, memory, op, step, write
from reader_helpers.played import as_played  # noqa: F401  # in each test of this file
from trace_reader import Stopwatch, analyze, cli, load, plain_sentence, read, redact
from trace_reader.analysis.replay.edits import Edited, scaled, surely
from trace_reader.analysis.replay.plain_run import PRICES, PlainRun, ProfilerOverhead, RunWithoutProfiler
from trace_reader.analysis.replay.what_if import Gain, gain_of, parse_change, what_if
from trace_reader.analysis.trace.facts import Finding
from trace_reader.findings import AS_MUCH, GENERIC
from trace_reader.report.trace_report import finding_item
from trace_reader.write.json_output import trace_json

SHAPES = {"record_shapes": 1}
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def run(n=3, period=100, kernel_us=80, ops=10):
    """Steps of `period` in which the CPU runs ops one after the other and then launches one kernel (a launch takes 4.7); 10 us of
    the period lie between two steps.
    """
    events = []
    for number in range(n):
        at = number * period
        events.append(step(number, at, period - 10))
        events += [op("aten::view", at + 1 + 6 * place, 5) for place in range(ops)]
        events += [call("cudaLaunchKernel", at + 70, 4.7, number + 1), kernel(GEMM, at + 76, kernel_us, number + 1)]
    return events


@pytest.fixture
def facts(tmp_path):
    return lambda *events, **header: read(write(tmp_path / "t.json", *events, **header))


def test_a_measured_step_is_the_headers(facts):
    plain = facts(*run(), plain_step_us={"median": 90.5, "low": 90, "high": 92.25, "steps": 6}).plain
    assert (plain.step_us, plain.low_us, plain.high_us, plain.recorded_step_us, plain.how) == (90.5, 90, 92.25, 100, "measured")


@pytest.mark.parametrize(
    "said",
    [
        90.5, None, [], {}, {"median": 90.5}, {"median": "90", "low": 90, "high": 92}, {"median": 90, "low": 91, "high": 92},
        {"median": 90, "low": 89, "high": 88}, {"median": 0, "low": 0, "high": 0}, {"median": True, "low": True, "high": True},
        {"median": -1, "low": -2, "high": 5}, {"median": 10**400, "low": 1, "high": 10**400},
        {"median": 1e308, "low": 1, "high": 1e308}, {"median": 1e-320, "low": 1e-320, "high": 1},
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_is_no_measurement(facts, said):
    assert facts(*run(kernel_us=2), plain_step_us=said, **SHAPES).plain.how == "estimated"


def left_us(ops=10, functions=0, allocations=0, factor=1.0):
    """Return what the prices leave of a step of `run`, in which the CPU takes 70 to its launch, 4.7 in it, 15.3 to the step's end
    and 10 to the next step, which is the profiler's. Half of a step's price goes from its beginning, half from its end.
    """
    before = 70 - factor * (2.5 * ops + 60 / 2 + 1.1 * functions + 1.7 * allocations)
    return max(before, 7) + 4.7 - factor * 2.2 + max(15.3 - factor * 60 / 2, 1.53)


def told(gpu_us=0.0, **what):
    """Return what is told of a step of `run`: of what the profiler took beyond 0.4, half; and around that the more, the more it
    took.
    """
    took = 1 - max(left_us(**what), gpu_us) / 100
    left = max(left_us(**what, factor=(min(took, 0.4) + max(took - 0.4, 0) / 2) / took), gpu_us)
    took = 1 - left / 100
    low, high = left * math.exp(-0.12 - 1.4 * took), left * math.exp(0.12 + 0.45 * took)
    return tuple(pytest.approx(us, abs=0.02) for us in (min(max(low, 0.95 * gpu_us), left), left, min(high, 105)))


def ends(plain):
    return plain.low_us, plain.step_us, plain.high_us


def test_an_estimate_takes_the_profilers_prices_from_the_cpu(facts):
    plain = facts(*run(kernel_us=2), **SHAPES).plain
    assert (plain.how, plain.verdict, ends(plain)) == ("estimated", "overhead-bound", told())
    plain = facts(*run(kernel_us=2, ops=2), **SHAPES).plain
    assert ends(plain) == told(ops=2)
    # The GPU is busy for 45: no step is shorter.
    assert ends(facts(*run(kernel_us=45), **SHAPES).plain) == told(45)


def test_without_a_gpu_the_prices_are_others(facts):
    """Of 50 ops in a step of 1000 1.1 each is the profiler's, and 30 of the step, of which half is in it."""
    ops = [op("aten::mm", 1000 * at + 20 * k + 1, 18) for at in range(3) for k in range(50)]
    plain = facts(*[step(at, 1000 * at, 1000) for at in range(3)], *ops).plain
    took = (50 * 1.1 + 15) / 1000
    assert plain.how == "estimated" and plain.step_us == pytest.approx(1000 * (1 - took), abs=0.5)
    assert plain.low_us == pytest.approx(plain.step_us * math.exp(-0.5 - 0.6 * took), abs=0.5)
    assert plain.high_us == pytest.approx(min(plain.step_us * math.exp(0.2 + 0.9 * took), 1150), abs=0.5)


def test_of_ops_shorter_than_their_price_half_of_what_is_beyond_much_is_taken(facts):
    """Without a GPU 1000 ops of 0.9: at their price of 1.1 a tenth of a step is left, so 0.4 and half of 0.5 are taken."""
    ops = [op("aten::mm", 1000 * at + k, 0.9) for at in range(3) for k in range(1000)]
    plain = facts(*[step(at, 1000 * at, 1000) for at in range(3)], *ops).plain
    assert plain.step_us == pytest.approx(350, rel=0.02)


def test_the_pace_of_a_loaders_processes_is_not_the_profilers(facts):
    """Of steps that wait for them half of what the prices say is taken; 20 of 100 are such a wait."""
    wait = "enumerate(DataLoader)#{}DataLoaderIter.__next__"
    alone, workers = (
        facts(*run(), *[event("user_annotation", wait.format(what), 100 * at + 62, 6) for at in range(3)], **SHAPES).plain
        for what in ("_SingleProcess", "_MultiProcessing")
    )
    assert workers.step_us == alone.step_us  # a short one: 6 of 90, which is less than a tenth
    long = [event("user_annotation", wait.format("_MultiProcessing"), 100 * at + 60, 10) for at in range(3)]
    short = [e | {"name": wait.format("_SingleProcess")} for e in long]
    alone, workers = (facts(*run(kernel_us=2, ops=9), *waits, **SHAPES).plain for waits in (short, long))
    took = 1 - left_us(ops=10) / 100  # with the wait, which is an annotation
    took = min(took, 0.4) + max(took - 0.4, 0) / 2
    assert ends(alone) == told(ops=10)
    assert workers.step_us == pytest.approx(left_us(ops=10, factor=took / (1 - left_us(ops=10) / 100) / 2), abs=0.02)


def test_where_the_gpu_is_the_limit_at_any_price_the_step_is_its_own(facts):
    """Each kernel begins 5 after the one before has ended, which its launch did not wait for."""
    plain = facts(*run(kernel_us=95), **SHAPES).plain
    assert (plain.how, plain.verdict) == ("estimated", "gpu-bound")
    assert ends(plain) == (pytest.approx(95), pytest.approx(100), pytest.approx(105))


def functions(n=3, each=10):
    """Functions of Python of 3 that begin before the launch of each step of `run`."""
    return [event("python_function", "f", 100 * at + 2 + 5 * k, 3) for at in range(n) for k in range(each)]


def blocks(n=3, each=10):
    """As many allocations and frees."""
    return [memory(100 * at + 3 + 5 * k, k, 512 * (1 - 2 * (k % 2)), 512) for at in range(n) for k in range(each)]


def test_stacks_and_memory_have_prices_of_their_own(facts, tmp_path):
    """Ten of each stand before the launch of a step."""
    untimed = {**functions()[0], "ts": None}
    trace = load(write(tmp_path / "a.json", *run(kernel_us=2), *functions(), untimed, *blocks()))
    assert len(trace.functions_ns) == len(trace.memory) == 30
    both = RunWithoutProfiler(trace)
    most = 100 * both.recorded_times(both.at(ProfilerOverhead(1e-9, 0, 0, 0)))
    assert 100 * both.recorded_times(both.at(ProfilerOverhead(1e-9, 0, 0, 0, function_us=2.0))) == pytest.approx(
        most - 20, abs=0.01
    )
    assert 100 * both.recorded_times(both.at(ProfilerOverhead(1e-9, 0, 0, 0, allocation_us=0.5))) == pytest.approx(
        most - 5, abs=0.01
    )


def test_an_estimate_with_stacks_or_memory(facts):
    """A function costs 1.1, an allocation 1.7."""
    plain = facts(*run(kernel_us=2, ops=5), *functions(each=5), **SHAPES, with_stack=1).plain
    assert ends(plain) == told(ops=5, functions=5)
    plain = facts(*run(kernel_us=2, ops=5), *blocks(each=5), **SHAPES, profile_memory=1).plain
    assert ends(plain) == told(ops=5, allocations=5)


def test_of_many_short_functions_it_is_not_known_what_they_cost(facts):
    """A step of 1000 with 2,600 functions of some 0.3: by 0.2 each, more than half of it would be the profiler's."""
    events = []
    for at in range(3):
        events += [step(at, 1000 * at, 990), call("cudaLaunchKernel", 1000 * at + 900, 4.7, at + 1)]
        events += [kernel(GEMM, 1000 * at + 950, 20, at + 1)]
    names = [event("python_function", "f", 1000 * at + 10 + 0.3 * k, 0.25) for at in range(3) for k in range(2600)]
    plain = facts(*events, *names, **SHAPES, with_stack=1).plain
    assert (plain.how, plain.unknown_because) == (
        "unknown", "it holds 2,600 short functions of Python per step, of which the profiler's cost is not known"
    )  # fmt: skip
    few = facts(*events, *[name for n, name in enumerate(names) if n % 6], **SHAPES, with_stack=1)  # 2,167 a step: at least 433
    assert few.plain.how == "estimated"


@pytest.mark.parametrize(
    ("what", "price", "flags"),
    [("functions", "function_us", "shapes, stack"), ("allocations", "allocation_us", "shapes, memory")],
)
def test_the_prices_hold_what_was_measured(what, price, flags):
    """On three machines, of the programs that have many of them a step; a noisy step can lie outside by chance."""
    measured = []
    for path in sorted((TOOL / "benchmarks" / "profiler_cost").glob("*.json")):
        for program in json.loads(path.read_text())["programs"].values():
            if program[what] >= 200:
                besides_us = statistics.median(program[flags]) - statistics.median(program["shapes"])
                measured.append(besides_us / program[what])
    inside = sum(0 <= one <= 2.6 if what == "allocations" else 0.2 <= one <= 1.2 for one in measured)
    assert len(measured) >= 6 and inside >= 0.8 * len(measured)
    assert min(measured) < getattr(PRICES, price) < max(measured)


def test_where_the_gpu_is_the_limit_prices_do_not_matter(facts):
    """Kernels of 100 in recorded steps of 100."""
    found = facts(*run(kernel_us=100), *functions(), **SHAPES, with_stack=1)
    assert (found.plain.how, found.plain.verdict) == ("estimated", "gpu-bound")
    assert ends(found.plain) == (pytest.approx(95), pytest.approx(100), pytest.approx(105))


def test_the_kernels_of_a_graph_stand_closer_without_the_profiler(facts):
    """As those of other launches do not: two replays of graphs took 14 and 16% less than recorded."""
    graph = [e | {"name": "cudaGraphLaunch"} if e["cat"] == "cuda_runtime" else e for e in run(kernel_us=100)]
    plain = facts(*graph, **SHAPES).plain
    assert (plain.low_us, plain.high_us) == (pytest.approx(100 * math.exp(-0.12)), pytest.approx(105))


def test_a_rank_of_a_job_has_no_estimate_and_no_verdict(facts):
    """Its collectives wait for other processes, which are slower where they are recorded, too."""
    job = [e | {"name": NCCL} if e["cat"] == "kernel" and e["ts"] > 150 else e for e in run(kernel_us=95)]
    assert facts(*job, **SHAPES).plain.how == "unknown"
    measured = facts(*job, plain_step_us={"median": 98, "low": 97, "high": 99}).plain
    assert (measured.how, measured.step_us, measured.verdict) == ("measured", 98, None)


@pytest.mark.parametrize("launch_us", [2.3, 9.5, 30])
def test_prices_are_the_same_however_long_a_launch_takes(facts, launch_us):
    """They were on hosts whose launches take 4.7 and 9."""
    other = [e | {"dur": launch_us} if e["cat"] == "cuda_runtime" else e for e in run(kernel_us=45)]
    assert facts(*other, **SHAPES).plain.how == "estimated"


def test_of_the_time_between_two_steps_no_more_than_the_profilers_is_taken(facts):
    """400 between two steps, of which 100 may be the profiler's; the CPU takes 90 in a step, at any price 9 or more."""
    events = []
    for number in range(3):
        at = number * 490
        events += [step(number, at, 90), call("cudaLaunchKernel", at + 70, 4.7, number + 1), kernel(GEMM, at + 76, 9, number + 1)]
    plain = facts(*events, **SHAPES).plain
    assert plain.how == "estimated" and plain.step_us > 300 + 9


@pytest.mark.parametrize("kernel_us", [150, 240])
def test_a_recording_that_begins_with_a_busy_gpu_has_no_estimate(facts, kernel_us):
    """Without the profiler the first step would end sooner, but not the kernel that was launched before it: a step, from end to
    end, would seem to take longer than recorded, or longer the dearer the profiler is.
    """
    events = [call("cudaLaunchKernel", 0, 4.7, 99), kernel(GEMM, 5, kernel_us, 99), step(0, 10, 90), step(1, 110, 90)]
    events += [op("aten::view", at + 6 * n, 5) for at, ops in ((11, 12), (111, 10)) for n in range(ops)]
    events += [call("cudaLaunchKernel", 175, 4.7, 2), kernel(GEMM, max(181, 6 + kernel_us), 40, 2)]
    assert facts(*events, **SHAPES).plain.how == "unknown"


def test_of_a_long_recording_whose_first_steps_differ_nothing_is_estimated(facts, monkeypatch):
    """Three steps are played here: whose period is that of all but whose GPU works twice as long, or whose period is another."""
    monkeypatch.setattr("trace_reader.analysis.replay.plain_run.MOST_EVENTS", 3)
    alike = run(n=8, kernel_us=95)
    assert facts(*alike, **SHAPES).plain.how == "estimated"
    busy_first = [e | {"dur": 40} if e["cat"] == "kernel" and 300 < e["ts"] < 750 else e for e in alike]
    assert facts(*busy_first, **SHAPES).plain.how == "unknown"
    slow_later = [e | {"ts": e["ts"] + max(e["ts"] - 300, 0)} for e in alike]
    assert facts(*slow_later, **SHAPES).plain.how == "unknown"


def test_a_long_kernel_on_another_stream_does_not_break_the_reading(facts, monkeypatch):
    """It outlasts the steps that are played: they all end with it."""
    monkeypatch.setattr("trace_reader.analysis.replay.plain_run.MOST_EVENTS", 3)
    long = [call("cudaLaunchKernel", 60, 4.7, 99), kernel(ADD, 66, 5000, 99, stream=9)]
    assert facts(*run(n=8), *long, **SHAPES).plain.how == "unknown"


def test_without_cudas_launches_or_a_gpu_there_is_no_estimate(facts):
    hip = [e | {"name": e["name"].replace("cuda", "hip")} for e in run(kernel_us=35)]
    assert facts(*hip, **SHAPES).plain.how == "unknown"
    assert facts(*[e for e in run(kernel_us=95) if e["cat"] != "user_annotation"], **SHAPES).plain.how == "estimated"
    assert facts(*[e for e in run() if e["cat"] in ("cpu_op", "user_annotation")], **SHAPES).plain.how == "estimated"
    assert facts(*run(n=1, kernel_us=95), **SHAPES).plain.how == "estimated"


def test_an_op_without_shapes_costs_less(facts):
    with_shapes, without = facts(*run(kernel_us=2), **SHAPES).plain, facts(*run(kernel_us=2)).plain
    assert without.high_us > with_shapes.high_us


@pytest.mark.parametrize(("median_us", "verdict"), [(60, "gpu-bound"), (63, "gpu-bound"), (75, "overhead-bound")])
def test_what_limits_a_measured_run_is_what_limits_the_replay_that_takes_as_long(facts, median_us, verdict):
    """Kernels of 60 in recorded steps of 100: the GPU is the limit of a step of 60 and up to 5% more, of a longer one the CPU."""
    measured = facts(*run(kernel_us=60), plain_step_us={"median": median_us, "low": 60, "high": 80})
    assert (measured.plain.how, measured.plain.verdict) == ("measured", verdict)


def test_a_measured_step_that_the_gpu_limits_does_not_tell_what_the_cpu_takes():
    """A convolutional network's training on an H200, whose GPU is busy for 96% of the measured step: at any price that is high
    enough the replay takes as long, so that what limits it is not known.
    """
    path = str(TOOL / "tests" / "data" / "detailed" / "h200_relu_in_place.json.gz")
    bound = read(path)
    assert (bound.plain.how, bound.plain.verdict, bound.verdict) == ("measured", "gpu-bound", "gpu-bound")
    trace = load(path)
    half = what_if(trace, bound.plain, [parse_change("scale . 0.5")])
    assert half.gain_low < 0.01 and half.gain_high > 0.4  # the CPU may be the limit, or have time left


def test_why_a_step_is_not_known(facts):
    nccl = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 100 * at + 80, 5, 50 + at) for at in range(3)]
    unlaunched = [kernel(GEMM, 100 * at + 20 * k, 15, 1000 + 10 * at + k) for at in range(3) for k in range(4)]
    hip = [one | {"name": one["name"].replace("cuda", "hip")} for one in run(kernel_us=2)]
    assert facts(*hip).plain.unknown_because == "what the profiler costs on such a device was not measured"
    assert facts(*run(kernel_us=2), *nccl).plain.unknown_because == "its collectives wait for other ranks"
    missing = facts(*run(kernel_us=2), *unlaunched).plain
    assert missing.unknown_because == "the launches of too much of its GPU work are missing"
    assert facts(*run(kernel_us=95), **SHAPES).plain.unknown_because is None
    measured = facts(*run(kernel_us=2), *nccl, plain_step_us={"median": 64, "low": 63, "high": 65}).plain
    assert (measured.how, measured.unknown_because) == ("measured", None)


def test_a_time_that_no_price_explains_has_no_verdict(facts):
    """The GPU alone takes longer than the step is said to."""
    plain = facts(*run(kernel_us=60), plain_step_us={"median": 20, "low": 20, "high": 20}).plain
    assert (plain.how, plain.step_us, plain.verdict) == ("measured", 20, None)


@pytest.mark.parametrize(("median_us", "same"), [(100, True), (104, True), (106, False), (1e9, False)])
def test_a_step_that_takes_as_long_as_recorded_has_that_runs_verdict_and_a_longer_one_none(facts, median_us, same):
    """Within a round's spread the profiler cost nothing; no price that is taken away explains a longer step."""
    measured = facts(*run(kernel_us=92), plain_step_us={"median": median_us, "low": median_us, "high": median_us})
    assert (measured.plain.how, measured.plain.verdict) == ("measured", "gpu-bound" if same else None)


LOOKS = "recorded, at 100.0 µs a step, the run looks overhead-bound (72% CPU time); without the profiler"


def test_a_gpu_that_is_busy_for_longer_than_the_step_is_not_told(facts):
    said = plain_sentence(facts(*run(kernel_us=60), plain_step_us={"median": 57, "low": 56, "high": 58}))
    assert said == f"{LOOKS} it takes 57.0 µs"


def test_the_verdict_and_the_path_are_those_of_the_run_without_the_profiler(facts):
    """Kernels of 60 in recorded steps of 100, of which the CPU is the limit; a step of 60 is the GPU's."""
    found = facts(*run(kernel_us=60), plain_step_us={"median": 60, "low": 60, "high": 80})
    assert (found.verdict, found.recorded_verdict) == ("gpu-bound", "overhead-bound")
    assert found.critical_path.window_us == 120 and found.critical_path.classes["compute"] == 1  # two steps of three
    assert found.recorded_critical_path.verdict == "overhead-bound"
    assert plain_sentence(found) == f"{LOOKS} the GPU is busy for 60.0 µs of 60.0 µs per step"


def test_a_path_is_of_the_plain_run_also_where_the_verdict_is_the_same(facts):
    """Without the profiler a step of 100 takes 80: of that the CPU has what the kernel of 20 and its latency of 6 leave."""
    found = facts(*run(kernel_us=20), plain_step_us={"median": 80, "low": 79, "high": 81})
    assert (found.verdict, found.recorded_verdict) == ("overhead-bound", "overhead-bound")
    assert found.critical_path.window_us == pytest.approx(160, rel=0.01)
    assert sum(found.critical_path.classes.values()) == pytest.approx(1, abs=0.01)


def test_where_only_the_short_end_of_an_estimate_is_gpu_bound_the_run_may_be(facts):
    """The GPU is busy for 36 of a step that takes between 35 and 50; it is likely to take 38."""
    assert facts(*run(kernel_us=40), **SHAPES).plain.verdict == "gpu-bound"
    found = facts(*run(kernel_us=36, ops=6), **SHAPES)
    assert (found.plain.how, found.plain.verdict, found.verdict) == ("estimated", None, "overhead-bound")
    busy = "a step takes an estimated 34.2 µs to 56.5 µs, and the GPU's work in it, as recorded, 36.0 µs"
    assert plain_sentence(found) == f"without the profiler it may be gpu-bound: {busy}"


def test_where_the_trace_lacks_the_launches_a_measured_run_has_no_verdict(facts):
    lost = [e for e in run(kernel_us=95) if e["cat"] != "cuda_runtime"]
    assert facts(*lost, plain_step_us={"median": 95, "low": 95, "high": 95}).plain.verdict is None


def test_where_the_recorded_verdict_is_unknown_no_other_one_is_told(facts):
    """The GPU's clock is a second late."""
    late = [e | {"ts": e["ts"] + 1e6} if e["cat"] == "kernel" else e for e in run(kernel_us=95)]
    found = facts(*late, **SHAPES)
    assert (found.verdict, plain_sentence(found)) == ("unknown", "")


def test_a_redacted_copy_keeps_the_measured_step(tmp_path):
    said = {"median": 90.5, "low": 90, "high": 92.25, "steps": 6}
    path = tmp_path / "copy.json"
    path.write_bytes(redact(Path(write(tmp_path / "t.json", *run(), plain_step_us=said)).read_bytes()).data)
    assert json.loads(path.read_bytes())["plain_step_us"] == said
    assert read(str(path)).plain.how == "measured"


CUDNN = GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_cudnn_bf16_warm_eager.json"


def with_header(tmp_path, said):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(json.loads(CUDNN.read_bytes()) | {"plain_step_us": said}))
    return read(str(path))


def test_a_recording_near_the_border_says_that_the_gpu_limits_the_real_run(tmp_path):
    """The H200's cuDNN attention. Measured anew, not in this recording, a step takes 58.8 us (docs/profiler_cost.md)."""
    facts = read(str(CUDNN))
    assert (facts.recorded_verdict, facts.verdict, facts.plain.how) == ("overhead-bound", "gpu-bound", "estimated")
    assert facts.plain.low_us < 58.8 < facts.plain.high_us
    looks = "recorded, at 97.6 µs a step, the run looks overhead-bound (70% CPU time)"
    step_us = "a step takes an estimated 54.2 µs to 77.5 µs, and the GPU's work in it, as recorded, 57.1 µs"
    assert plain_sentence(facts) == f"{looks}; without the profiler {step_us}"
    measured = with_header(tmp_path, {"median": 58.8, "low": 58.7, "high": 58.9})
    assert plain_sentence(measured) == f"{looks}; without the profiler the GPU is busy for 57.1 µs of 58.8 µs per step"


def test_rounds_that_lie_far_apart_are_told(tmp_path):
    """Another program may have used the cores in one of them."""
    measured = with_header(tmp_path, {"median": 80, "low": 60, "high": 130})
    rounds = "80.0 µs (60.0 µs to 130.0 µs in its rounds)"
    assert rounds in plain_sentence(measured)
    assert "in its rounds" not in plain_sentence(with_header(tmp_path, {"median": 80, "low": 60, "high": 120}))


def test_where_the_gpu_is_not_busy_enough_only_a_measured_time_is_told(tmp_path):
    measured = with_header(tmp_path, {"median": 80, "low": 79, "high": 81})
    assert plain_sentence(measured) == "a step takes 80.0 µs without the profiler, 97.6 µs recorded"
    bound = read(str(GALLERY / "01_matmul_add" / "64_bf16_warm_eager.json"))
    assert plain_sentence(bound) == "without the profiler a step takes an estimated 5.6 µs to 27.1 µs, 62.3 µs recorded"


def test_the_json_has_all_of_it_and_no_second_name_for_the_verdict():
    data = trace_json(read(str(CUDNN)))["plain"]
    assert set(data) == {"step_us", "low_us", "high_us", "recorded_step_us", "how", "verdict", "unknown_because"}
    assert (data["how"], data["verdict"]) == ("estimated", "gpu-bound")


# --- What following a finding's advice saves


def gains(facts):
    return {finding.slug: finding.gain for finding in facts.findings if finding.gain is not None}


def waiting(kernel_us=60, period=200):
    """Steps in which a launch is followed by a call that waits for its kernel, then by 107 of the CPU alone."""
    events = []
    for at in range(0, 4 * period, period):
        events += [step(at // period, at, period - 5), call("cudaLaunchKernel", at + 20, 4.7, at + 1)]
        events += [kernel(GEMM, at + 27, kernel_us, at + 1), call("cudaStreamSynchronize", at + 26, kernel_us + 2, at + 2)]
    return events


def test_a_synchronize_that_goes_saves_what_the_cpu_waits(facts):
    """The call ends 7 + 60 + 1 after the launch began. Of that the CPU needs, without the profiler's part, some 2.5 for the
    launch and to the call: the rest of the 150 that a step takes is saved.
    """
    found = facts(*waiting(), plain_step_us={"median": 150, "low": 149, "high": 151})
    gain = gains(found)["sync-in-step"]
    assert gain.low == gain.high == pytest.approx(65.5 / 150, abs=0.01)


def test_of_a_run_whose_plain_step_is_unknown_a_gain_is_a_share_of_the_recorded_one(facts):
    """Recorded, 60 of 200 are saved. What the profiler costs of HIP's launches was not measured."""
    found = facts(*(one | {"name": one["name"].replace("cuda", "hip")} for one in waiting()))
    assert found.plain.how == "unknown"
    saved = gains(found)["sync-in-step"]
    assert (saved.of, saved.low, saved.high) == ("recorded", pytest.approx(0.3, abs=0.03), pytest.approx(0.3, abs=0.03))


def test_of_a_measured_step_that_no_replay_reaches_no_gain_is_told(facts):
    """Half as long again as recorded."""
    assert gains(facts(*waiting(), plain_step_us={"median": 300, "low": 299, "high": 301})) == {}


def test_in_a_job_no_gain_is_told(facts):
    job = [e | {"name": NCCL} if e["cat"] == "kernel" and e["ts"] > 200 else e for e in waiting()]
    found = facts(*job, plain_step_us={"median": 150, "low": 149, "high": 151})
    assert gains(found) == {}
    assert {f.slug: f.gain_unknown_because for f in found.findings}[
        "sync-in-step"
    ] == "the other ranks of the job would change, too"


def test_a_loader_that_goes_saves_what_it_takes(facts):
    """70 of the 100 of a step, and of the 90 that a step takes without the profiler what is left of it."""
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [e for n in range(4) for e in (
        step(n, 100 * n, 95), event("user_annotation", loading, 100 * n, 70),
        call("cudaLaunchKernel", 100 * n + 80, 4.7, n + 1), kernel(GEMM, 100 * n + 86, 5, n + 1),
    )]  # fmt: skip
    gain = gains(facts(*events, plain_step_us={"median": 90, "low": 89, "high": 91}))["input-bound"]
    assert (gain.low, gain.high) == (0, pytest.approx(0.75, abs=0.05))  # more workers can still keep it waiting


def test_a_blocking_copy_saves_its_wait_and_at_best_is_copied_as_fast_as_the_link_can(facts):
    """Pinned memory is also copied faster: on an H200 a step of 20.4 ms became 10.6, of which the waits were 1%. Here 640 kB
    take 48 us, and 10 over a link of 64 GB/s; how fast another device's link is, is not known.
    """
    pageable = "Memcpy HtoD (Pageable -> Device)"
    events = [e for n in range(4) for e in (
        step(n, 200 * n, 195), call("cudaMemcpyAsync", 200 * n + 20, 60, n + 1),
        memcpy(200 * n + 30, 48, n + 1, bytes=640_000, name=pageable),
        call("cudaLaunchKernel", 200 * n + 90, 4.7, n + 50), kernel(GEMM, 200 * n + 96, 80, n + 50),
    )]  # fmt: skip
    said = {"median": 150, "low": 149, "high": 151}
    unknown = facts(*events, plain_step_us=said, deviceProperties=[])
    assert "blocking-copy" in [finding.slug for finding in unknown.findings] and "blocking-copy" not in gains(unknown)
    gain = gains(facts(*events, plain_step_us=said))["blocking-copy"]
    assert gain.low == pytest.approx(0.12, abs=0.01) and gain.high - gain.low == pytest.approx(38 / 146, abs=0.005)


def test_a_verdict_that_names_no_one_change_promises_nothing(capsys, tmp_path):
    path = write(tmp_path / "t.json", *run(kernel_us=20), plain_step_us={"median": 80, "low": 79, "high": 81})
    assert cli.main([path, "--json"]) == 0
    (told,) = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["slug"] == "overhead-bound"]
    assert (told["gain"], told["no_gain"]) == (None, "a verdict names no one change")


def test_a_gain_is_no_loss(tmp_path):
    """A change that lengthens a step gains nothing."""
    trace = load(write(tmp_path / "t.json", *run(), plain_step_us={"median": 90, "low": 90, "high": 90}))
    plain = PlainRun(90, 90, 90, 100, "measured")
    assert gain_of(RunWithoutProfiler(trace), plain, surely(lambda run: run.after_ns.__iadd__(1000))) == Gain(0, 0)


def test_advice_that_brings_nothing_is_told_with_all_and_stands_behind_what_may(capsys):
    """What a compiled function does before its first launch, where the GPU has work enough."""
    path = str(GALLERY / "01_matmul_add" / "4096_bf16_warm_compile.json")
    found = read(path)
    slugs = [finding.slug for finding in found.findings]
    assert gains(found)["compile-tax"].high < 0.02 and slugs.index("compile-tax") > slugs.index("hotspot")
    assert cli.main([path]) == 0
    assert "  compile-tax" not in (brief := capsys.readouterr().out) and "compile-tax" in brief
    assert cli.main([path, "--all"]) == 0
    assert "It saves next to nothing without the profiler." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("low", "high", "said"), [(0.2, 0.251, "20% to 25%"), (0.2, 0.204, "20%"), (0.0, 0.3, "up to 30%")])
def test_a_gain_in_words(low, high, said):
    told = finding_item(Finding("sync-in-step", "seen", "means", "next.", 0.1, (), Gain(low, high)))
    assert (told.name, told.next) == (f"sync-in-step (saves {said})", f"next. That saves {said} of a step without the profiler.")


def test_a_bound_of_nearly_all_of_a_step_is_not_told():
    finding = Finding("overhead-bound", "seen", "means", "next.", 0.9, (), Gain(0.0, 0.96))
    assert finding_item(finding).next == "next."


def test_work_that_was_launched_before_the_recording_hides_nothing(facts):
    """A third of the kernels has no launch: the GPU still worked on them when the recording began."""
    later = [e | {"ts": e["ts"] + 500} for e in run(kernel_us=100)]
    before = [kernel(ADD, 350 + 60 * n, 50, 900 + n) for n in range(2)]
    assert facts(*before, *later, **SHAPES).plain.how == "estimated"
    lost = [kernel(ADD, 510 + 60 * n, 50, 900 + n, stream=9) for n in range(2)]  # in the steps: the file lacks them
    assert facts(*lost, kernel(GEMM, 505, 1, 950, stream=9), *later, **SHAPES).plain.how == "unknown"


def test_the_path_of_an_estimated_run_lies_in_the_middle_of_the_estimate():
    found = read(str(GALLERY / "01_matmul_add" / "64_bf16_cold_eager_wait-0_schedule_warmup-0_active-20.json"))
    assert (found.plain.how, found.verdict) == ("estimated", "overhead-bound")
    assert found.critical_path.window_us / (len(found.steps) - 1) == pytest.approx(found.plain.step_us, rel=0.02)


def test_what_a_change_of_the_gpus_time_brings_may_be_more_than_at_the_dear_prices(tmp_path):
    """Without its kernels the run is the CPU's, of which the profiler may have taken more than those."""
    trace = load(write(tmp_path / "t.json", *run(kernel_us=60, ops=4), **SHAPES))
    found = analyze(trace)
    priced, gone = RunWithoutProfiler(trace), scaled(trace.work, 0.0)
    ends = []
    for played in priced.played(found.plain):
        edited = Edited(priced.replay, played.after_ns)
        gone(edited)
        ends.append(1 - edited.play().step_us / played.step_us)
    assert found.plain.how == "estimated"
    assert gain_of(priced, found.plain, surely(gone)).high > max(ends) + 0.01


def test_of_a_gpu_that_is_far_from_busy_nobody_says_that_it_may_be_the_limit(facts):
    """At one end of the estimate no class has half of the path."""
    found = facts(*waiting(kernel_us=50, period=170), **SHAPES)
    assert (found.plain.how, found.plain.verdict) == ("estimated", None)
    said = "without the profiler a step takes an estimated 67.1 µs to 151.8 µs, 170.0 µs recorded"
    assert plain_sentence(found) == said


def test_what_the_cpu_does_explains_no_more_than_is_left_of_it_without_the_profiler(tmp_path):
    """Ops and calls recorded with 55 and 5 of each 100, of which a step of 60 has fewer."""
    trace = load(write(tmp_path / "t.json", *run(kernel_us=20), plain_step_us={"median": 60, "low": 60, "high": 60}))
    path = analyze(trace).critical_path
    told = {part.name: part.us for part in path.cpu}
    assert path.explained_us(trace.ops) == pytest.approx(told["op"], abs=0.1) and told["op"] < 2 * 40


def test_findings_stand_in_the_order_of_what_they_save_and_not_of_their_shares():
    """The H200's attention by PyTorch's own ops: the mask has a thousandth of the path, and with it 16% go."""
    found = read(str(GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_math_bf16_warm_eager.json"))
    told = [f for f in found.findings if f.gain and not f.is_worthless and f.slug != found.verdict]
    weight = [AS_MUCH if f.slug in GENERIC else 1 for f in told]
    middles = [float(f"{(f.gain.low + f.gain.high) / 2 * w:.1g}") for f, w in zip(told, weight, strict=True)]
    assert len(told) >= 4 and middles == sorted(middles, reverse=True)
    slugs = [f.slug for f in told]
    assert slugs.index("mask-rebuilt") < slugs.index("dtype-conversions")
    assert told[slugs.index("mask-rebuilt")].share < told[slugs.index("dtype-conversions")].share


def test_of_several_devices_the_recorded_run_is_told_and_no_gain(facts):
    """A replay plays them all together, and a path is of one."""
    other = [e | {"pid": 1, "args": e["args"] | {"device": 1}} for e in run(kernel_us=95) if e["cat"] == "kernel"]
    other = [e | {"args": e["args"] | {"correlation": e["args"]["correlation"] + 50}} for e in other]
    launches = [e | {"args": e["args"] | {"correlation": e["args"]["correlation"] + 50}, "ts": e["ts"] - 6}
                for e in run() if e["cat"] == "cuda_runtime"]  # fmt: skip
    found = facts(*run(kernel_us=95), *launches, *other, **SHAPES)
    assert len(found.critical_paths) == 2 and (found.plain.verdict, found.verdict) == (None, found.recorded_verdict)
    assert gains(found) == {} and found.findings
    others = [f for f in found.findings if "names no" not in f.gain_unknown_because]
    assert others and all("several devices" in f.gain_unknown_because for f in others)


def test_a_measured_step_that_is_shorter_than_the_gpus_work_is_the_reason_for_no_gain(facts):
    found = facts(*waiting(), plain_step_us={"median": 1, "low": 0.9, "high": 1.1})
    told = {finding.slug: finding.gain_unknown_because for finding in found.findings}
    assert told["sync-in-step"] == "the replay does not reach the step that was measured without the profiler"


def test_steps_without_work_of_their_own_have_no_plain_step(facts):
    """Each launch comes between two steps."""
    between = [e | {"ts": e["ts"] + 22, "dur": 1} if e["cat"] == "cuda_runtime" else e for e in run(kernel_us=5)]
    assert facts(*between, **SHAPES).plain.how == "unknown"


def test_a_collective_that_waits_for_other_ranks_is_no_gpu_that_limits_the_run(facts):
    """Its kernel takes 90 of each step of 100."""
    events, name = [], "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for n in range(3):
        events += [step(n, 100 * n, 99), op("aten::mm", 100 * n + 1, 4), call("cudaLaunchKernel", 100 * n + 2, 1, n + 1)]
        events += [kernel(name, 100 * n + 5, 90, n + 1)]
    found = facts(*events, plain_step_us={"low": 94, "median": 95, "high": 96})
    assert found.verdict != "gpu-bound" and found.steps[1].gpu_busy_us == 90
    assert plain_sentence(found) == "a step takes 95.0 µs without the profiler, 100.0 µs recorded"


def test_a_stopwatch_waits_for_the_device_before_it_looks_at_the_clock(monkeypatch):
    """The CPU launches a step in 1 us, the device works on it for 10: what was queued before does not count, what the steps
    queued does.
    """
    now_us, queued_us = 0, 500

    def synchronize():
        nonlocal now_us, queued_us
        now_us, queued_us = now_us + queued_us, 0

    monkeypatch.setattr(time, "perf_counter", lambda: now_us / 1e6)
    watch = Stopwatch(synchronize)
    now_us, queued_us = now_us + 4, queued_us + 36
    assert watch.step_us(4) == pytest.approx(10)


def test_a_copy_whose_bytes_are_not_known_is_no_faster_with_pinned_memory(facts):
    """What the link would take is not known: its wait goes, and no more."""
    pageable = "Memcpy HtoD (Pageable -> Device)"
    events = [e for n in range(4) for e in (
        step(n, 200 * n, 195), call("cudaMemcpyAsync", 200 * n + 20, 60, n + 1),
        memcpy(200 * n + 30, 48, n + 1, bytes=None, name=pageable),
        call("cudaLaunchKernel", 200 * n + 90, 4.7, n + 50), kernel(GEMM, 200 * n + 96, 80, n + 50),
    )]  # fmt: skip
    gain = gains(facts(*events, plain_step_us={"median": 150, "low": 149, "high": 151}))["blocking-copy"]
    assert gain.low == pytest.approx(0.12, abs=0.01) and gain.high - gain.low < 0.01
