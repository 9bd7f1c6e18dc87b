"""The run without the profiler: what a header says of it, what is estimated and for which traces, and how it is told."""

import json

from helpers import GALLERY
from helpers.events import GEMM, call, kernel, op, step, write
import pytest
from trace_reader import plain_sentence, read
from trace_reader.analysis.plain_run import PlainRun
from trace_reader.write.json_output import trace_json

SHAPES = {"record_shapes": 1}


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
        {"median": -1, "low": -2, "high": 5},
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_is_no_measurement(facts, said):
    assert facts(*run(), plain_step_us=said, with_stack=1).plain == PlainRun(None, None, None, 100, "unknown", None)


def test_an_estimate_takes_the_profilers_prices_from_the_cpu(facts):
    """In a step of 100 the CPU takes 70 to its launch, 4.7 in it, 15.3 to the step's end and 10 to the next step, which is the
    profiler's. 10 ops begin before the launch.

    Cheap: 10 ops of 2 and half of the step's 20 go from the 70, a call of 2 from the 4.7, half of the step's from the 15.3: 40,
    2.7 and 5.3 are left. Dear: a tenth of 70 is left, since 10 x 3.5 and 30 would leave less; 1.7; a tenth of 15.3.
    """
    plain = facts(*run(kernel_us=2), **SHAPES).plain
    assert plain == PlainRun(None, None, None, 100, "unknown", None)  # between 9.2 and 52.8: that says nothing
    # The GPU is busy for 35: no step is shorter.
    plain = facts(*run(kernel_us=35), **SHAPES).plain
    assert (plain.how, plain.low_us, plain.high_us) == ("estimated", pytest.approx(35 * 0.9), pytest.approx(48 * 1.1))
    assert (plain.step_us, plain.verdict) == (pytest.approx((35 + 48) / 2), None)  # at one end the GPU, at the other the CPU


def test_where_the_gpu_is_the_limit_at_any_price_the_step_is_its_own(facts):
    """Each kernel begins 5 after the one before has ended, which its launch did not wait for."""
    plain = facts(*run(kernel_us=95), **SHAPES).plain
    assert (plain.how, plain.verdict) == ("estimated", "gpu-bound")
    assert (plain.low_us, plain.high_us) == (pytest.approx(90), pytest.approx(110))


@pytest.mark.parametrize("flag", ["with_stack", "with_modules", "profile_memory"])
def test_what_was_recorded_with_other_flags_has_no_estimate(facts, flag):
    """Their prices were not measured."""
    assert facts(*run(kernel_us=95), **SHAPES).plain.how == "estimated"
    assert facts(*run(kernel_us=95), **SHAPES, **{flag: 1}).plain.how == "unknown"


def test_without_cudas_launches_or_steps_or_a_gpu_there_is_no_estimate(facts):
    hip = [e | {"name": e["name"].replace("cuda", "hip")} for e in run(kernel_us=95)]
    assert facts(*hip, **SHAPES).plain.how == "unknown"
    assert facts(*[e for e in run(kernel_us=95) if e["cat"] != "user_annotation"], **SHAPES).plain.how == "unknown"
    assert facts(*[e for e in run() if e["cat"] in ("cpu_op", "user_annotation")], **SHAPES).plain.how == "unknown"
    assert facts(*run(n=1, kernel_us=95), **SHAPES).plain.how == "unknown"


def test_prices_are_those_of_this_traces_cpu(facts):
    """Launches of half the time: each price is half as high, and the cheap end so much longer."""
    fast = [e | {"dur": 2.35} if e["cat"] == "cuda_runtime" else e for e in run(kernel_us=60)]
    usual, faster = (facts(*events, **SHAPES).plain for events in (run(kernel_us=60), fast))
    assert (usual.how, faster.how) == ("estimated", "estimated")
    assert faster.high_us > usual.high_us


def test_an_op_without_shapes_costs_less(facts):
    with_shapes, without = facts(*run(kernel_us=40), **SHAPES).plain, facts(*run(kernel_us=40)).plain
    assert without.high_us > with_shapes.high_us


@pytest.mark.parametrize(("median_us", "verdict"), [(60, "gpu-bound"), (63, "gpu-bound"), (75, "overhead-bound")])
def test_what_limits_a_measured_run_is_what_limits_the_replay_that_takes_as_long(facts, median_us, verdict):
    """Kernels of 60 in recorded steps of 100: the GPU is the limit of a step of 60 and up to 5% more, of a longer one the CPU."""
    measured = facts(*run(kernel_us=60), plain_step_us={"median": median_us, "low": 60, "high": 80})
    assert (measured.plain.how, measured.plain.verdict) == ("measured", verdict)


def test_a_time_that_no_price_explains_has_no_verdict(facts):
    """The GPU alone takes longer than the step is said to."""
    plain = facts(*run(kernel_us=60), plain_step_us={"median": 20, "low": 20, "high": 20}).plain
    assert (plain.how, plain.step_us, plain.verdict) == ("measured", 20, None)


CUDNN = GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_cudnn_bf16_warm_eager.json"


def with_header(tmp_path, said):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(json.loads(CUDNN.read_bytes()) | {"plain_step_us": said}))
    return read(str(path))


def test_a_recording_near_the_border_says_that_the_gpu_limits_the_real_run(tmp_path):
    """The H200's cuDNN attention. Measured anew, not in this recording, a step takes 58.8 us (docs/profiler_cost.md)."""
    facts = read(str(CUDNN))
    assert (facts.verdict, facts.plain.how, facts.plain.verdict) == ("overhead-bound", "estimated", "gpu-bound")
    assert facts.plain.low_us < 58.8 < facts.plain.high_us
    estimated = "without the profiler a step takes an estimated 51.3 µs to 62.7 µs, 97.6 µs recorded"
    assert plain_sentence(facts) == f"{estimated}; the GPU is busy for 57.1 µs of it: that run is gpu-bound"
    measured = with_header(tmp_path, {"median": 58.8, "low": 58.7, "high": 58.9})
    told = "a step takes 58.8 µs without the profiler, 97.6 µs recorded"
    assert plain_sentence(measured) == f"{told}; the GPU is busy for 57.1 µs of it: that run is gpu-bound"


def test_where_the_gpu_is_not_busy_enough_only_a_measured_time_is_told(tmp_path):
    measured = with_header(tmp_path, {"median": 80, "low": 79, "high": 81})
    assert plain_sentence(measured) == "a step takes 80.0 µs without the profiler, 97.6 µs recorded"
    bound = read(str(GALLERY / "01_matmul_add" / "64_bf16_warm_eager.json"))
    assert plain_sentence(bound) == ""


def test_the_json_has_all_of_it_and_no_second_name_for_the_verdict():
    data = trace_json(read(str(CUDNN)))["plain"]
    assert set(data) == {"step_us", "low_us", "high_us", "recorded_step_us", "how", "verdict"}
    assert (data["how"], data["verdict"]) == ("estimated", "gpu-bound")
