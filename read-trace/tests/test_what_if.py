"""What a change would bring: each kind of change on a few events with the times worked out by hand, and the command."""

import json
from types import SimpleNamespace

import pytest
from reader_helpers import GALLERY, RECORDINGS
from reader_helpers.events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, on, op, step, write
from trace_reader import analyze, cli, load, replay
from trace_reader.analysis.replay.edits import scaled
from trace_reader.analysis.replay.plain_run import PlainRun, RunWithoutProfiler
from trace_reader.analysis.replay.what_if import busy_after, parse_change, what_if
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.findings.registry import named
from trace_reader.report.what_if_report import _gain

CUDNN = str(GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_cudnn_bf16_warm_eager.json")
NO_OP = "no op, annotation or call of such a name in its steps (drop takes ops, scale takes kernels and copies)"
EXPECTED = (
    "expected one of drop REGEX, scale REGEX FACTOR, finding ID, place NAME, no waits, graph, loader, rank R like S, ranks N"
)
PAGEABLE = "Memcpy DtoH (Device -> Pageable)"


@pytest.fixture
def asked(tmp_path):
    def ask(*events, changes, **header):
        trace = load(write(tmp_path / "t.json", *events, **header))
        plain = analyze(trace).plain if header else PlainRun(None, None, None, step_period_us(trace), "unknown")
        return what_if(trace, plain, [parse_change(text) for text in changes])

    return ask


def two_steps(of_step):
    """Steps of 100, with what a function of a moment and a number gives for each."""
    return [e for n in (0, 1) for e in (step(n, 100 * n, 100), *of_step(100 * n, n * 10))]


def told(changed):
    assert (changed.changed_low_us, changed.gain_low) == (changed.changed_high_us, changed.gain_high)
    return changed.of, changed.recorded_step_us, changed.changed_low_us, changed.gain_low


def test_ops_that_are_dropped_take_their_calls_and_kernels_with_them(asked):
    """The op takes 20 of the CPU's time, its launch is in it; the GPU has room for its kernel."""
    events = two_steps(lambda at, n: [op("aten::add", at + 40, 20), launch(at + 50, n + 1), kernel(ADD, at + 55, 10, n + 1)])
    assert told(asked(*events, changes=["drop aten::add"])) == ("recorded", 100, 80, pytest.approx(0.2))


def test_where_the_cpu_is_the_limit_a_dropped_kernel_saves_its_ops_time_alone(asked):
    """A kernel of 48 is gone from the GPU, and 3 of the CPU's 100."""
    events = two_steps(
        lambda at, n: [
            op("aten::mm", at + 1, 3), launch(at + 2, n + 1), kernel(GEMM, at + 10, 50, n + 1),
            op("aten::add", at + 5, 3), launch(at + 6, n + 2), kernel(ADD, at + 61, 48, n + 2),
        ]
    )  # fmt: skip
    assert told(asked(*events, changes=["drop ^aten::add$"])) == ("recorded", 100, 97, pytest.approx(0.03))


def test_of_two_gpus_the_one_that_is_busier_is_left(asked, tmp_path):
    """In a step of 100 each is busy for 55; without one of the kernels the other still is, by an edit or as a graph."""
    events = two_steps(
        lambda at, n: [
            launch(at + 2, n + 1), kernel(GEMM, at + 10, 55, n + 1),
            launch(at + 6, n + 2), kernel(ADD, at + 12, 55, n + 2, device=1),
        ]
    )  # fmt: skip
    assert told(asked(*events, changes=["graph"]))[2] == pytest.approx(55)
    trace = load(write(tmp_path / "t.json", *events))
    run = RunWithoutProfiler(trace)
    for name in (GEMM, ADD):
        assert busy_after(run, scaled(named(trace.work, name), 0.0)) == pytest.approx(55)
    assert busy_after(run, scaled(trace.work, 0.2)) == pytest.approx(11)


def test_an_annotation_that_is_dropped_takes_all_that_is_in_it(asked):
    events = two_steps(lambda at, n: [annotation("log", at + 10, 60), call("cudaStreamSynchronize", at + 20, 50, n + 1)])
    events += [launch(1, 99), kernel(GEMM, 6, 5, 99)]
    assert told(asked(*events, changes=["drop log"])) == ("recorded", 100, 40, pytest.approx(0.6))


def test_a_call_that_waited_and_is_dropped_lets_the_cpu_go_on(asked):
    """The wait of 59 is gone; the kernel takes 60 and its latency 5 in each step, which the CPU no longer waits for."""
    events = two_steps(
        lambda at, n: [
            launch(at + 10, n + 1), kernel(GEMM, at + 15, 60, n + 1), call("cudaDeviceSynchronize", at + 17, 59, n + 2)
        ]
    )  # fmt: skip
    # Without it, the CPU takes 41 a step; the GPU 60, and a gap of 0, as it has none that is its own.
    assert told(asked(*events, changes=["drop cudaDeviceSynchronize"])) == ("recorded", 100, 60, pytest.approx(0.4))
    assert told(asked(*events, changes=["no waits"])) == ("recorded", 100, 60, pytest.approx(0.4))


def test_no_waits_lets_a_blocking_copy_return(asked):
    events = two_steps(lambda at, n: [call("cudaMemcpyAsync", at + 20, 60, n + 1), memcpy(at + 30, 48, n + 1, name=PAGEABLE)])
    # The call takes 2 then, the rest of the step 40.
    assert told(asked(*events, changes=["no waits"])) == ("recorded", 100, 48, pytest.approx(0.52))


@pytest.mark.parametrize(
    ("regex", "changed_us"), [("nvjet", 60), ("nvjet GEMM", 60), ("elementwise|nvjet", 50), ("elementwise", 90)]
)
def test_kernels_are_scaled_by_their_name_or_their_label(asked, regex, changed_us):
    """The GPU is the limit: 80 and 20 in each step, one right after the other."""
    events = two_steps(
        lambda at, n: [
            launch(at + 1, n + 1),
            launch(at + 3, n + 2),
            kernel(GEMM, at + 10, 80, n + 1),
            kernel(ADD, at + 90, 20, n + 2),
        ]
    )
    # At a hundredth of the CPU's time it would be the GPU's alone: drop what the CPU does to see it.
    assert asked(*events, changes=[f"scale {regex} 0.5", "graph"]).changed_low_us == pytest.approx(changed_us)


def test_a_graph_is_one_launch_a_step(asked):
    events = two_steps(
        lambda at, n: [e for k in range(4) for e in (launch(at + 20 * k, n + k), kernel(ADD, at + 20 * k + 5, 10, n + k))]
    )
    # The GPU's 40 in a step; a launch takes 20 of the CPU, which runs ahead.
    assert told(asked(*events, changes=["graph"])) == ("recorded", 100, 40, pytest.approx(0.6))


def test_a_loader_that_takes_no_time(asked):
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = two_steps(lambda at, n: [annotation(loading, at, 70), launch(at + 80, n + 1), kernel(ADD, at + 85, 5, n + 1)])
    assert told(asked(*events, changes=["loader"])) == ("recorded", 100, pytest.approx(30), pytest.approx(0.7))
    # In a graph it still takes its time: 70 and the launch of 20.
    assert asked(*events, changes=["graph"]).changed_low_us == pytest.approx(90)
    assert asked(*events, changes=["loader", "graph"]).changed_low_us == pytest.approx(20)


def test_of_a_measured_step_the_gain_is_of_that(asked):
    """Recorded 100 and measured 50: dropping all of the CPU's ops leaves what it does outside of them."""
    events = two_steps(
        lambda at, n: [
            op("aten::add", at + 10, 80), call("cudaLaunchKernel", at + 50, 4.7, n + 1), kernel(ADD, at + 55, 5, n + 1)
        ]
    )  # fmt: skip
    changed = asked(*events, changes=["drop aten::add"], plain_step_us={"median": 50, "low": 49, "high": 51})
    assert (changed.of, changed.recorded_step_us) == ("measured", 100)
    assert changed.changed_low_us == changed.changed_high_us == pytest.approx(50 * (1 - changed.gain_low))
    assert 0.7 < changed.gain_low < 0.9


GPU_BOUND = two_steps(
    lambda at, n: [
        launch(at + 1, n + 1), launch(at + 3, n + 2), kernel(GEMM, at + 10, 80, n + 1), kernel(ADD, at + 90, 20, n + 2)
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        (["scale nvjet 0.5", "scale nvjet 0.5"], ["scale nvjet 0.25"]),
        (["scale nvjet 0"] * 4, ["scale nvjet 0"]),
        (["scale . 4", "scale . 0.25"], ["scale . 1"]),
        (["scale nvjet 0.5", "graph", "scale nvjet 2"], ["graph"]),
        (["drop cudaLaunch", "scale . 9"], ["scale . 9", "drop cudaLaunch"]),
        (["scale . 1000", "scale . 1000"], ["scale . 1000"]),
    ],
)
def test_changes_are_made_together_whatever_their_order(asked, changes, same):
    """Factors multiply, up to a thousand, and what is dropped stays so."""
    given, expected = (asked(*GPU_BOUND, changes=texts) for texts in (changes, same))
    assert given.changed_low_us == pytest.approx(expected.changed_low_us) and given.changed_low_us >= 0


def test_what_a_change_matched_is_told_with_the_most_frequent_names(asked):
    events = two_steps(
        lambda at, n: [op(f"aten::{name}", at + 2 * k, 1) for k, name in enumerate(("a", "b", "a", "c", "d", "d", "d"))]
    )
    events += [launch(50, 1), kernel(GEMM, 55, 5, 1)]
    changed = asked(*events, changes=["drop aten::", "scale nvjet 1"])
    dropped = "drop aten::: 6 x aten::d, 4 x aten::a, 2 x aten::b and 1 more names"
    assert changed.matched == ("scale nvjet 1: 1 x nvjet GEMM 256x128", dropped)


def test_a_graph_needs_a_gpu_and_takes_its_launch_in_every_step(asked, tmp_path, capsys):
    """A first launch that took 300 to reach the GPU leaves no room for later steps to catch up in."""
    cold = two_steps(lambda at, n: [call("cudaLaunchKernel", at + 50, 5, n + 1), kernel(ADD, at + (255 if n else 350), 2, n + 1)])
    assert asked(*cold, changes=["graph"]).changed_low_us == pytest.approx(20)
    path = write(tmp_path / "t.json", step(0, 0, 100), step(1, 100, 100), op("aten::mm", 5, 50))
    assert cli.main([path, "--what_if", "graph"]) == 2
    assert capsys.readouterr().err == f"error: {path}: 'graph' matches nothing: the trace has no GPU event\n"


def test_a_rank_of_a_job_says_that_its_collectives_may_change(tmp_path, capsys):
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    events = two_steps(lambda at, n: [launch(at + 10, n + 1), kernel(nccl, at + 15, 60, n + 1)])
    path = write(tmp_path / "t.json", *events)
    assert cli.main([path, "--what_if", "scale NCCL 0.5"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.endswith(
        "one rank of a job: its collectives last as long as recorded here, though the other ranks may change that"
    )


def test_of_a_step_that_takes_as_long_as_recorded_the_change_is_told_of_that(asked):
    """Within a round's spread the profiler cost nothing; a step of half as long again no replay reaches."""
    events = two_steps(lambda at, n: [op("aten::add", at + 10, 80), launch(at + 50, n + 1), kernel(ADD, at + 55, 5, n + 1)])
    for median_us, of in ((100, "measured"), (104, "measured"), (150, "recorded")):
        changed = asked(*events, changes=["drop aten::add"], plain_step_us={"median": median_us, "low": 99, "high": 151})
        assert (changed.of, changed.gain_low) == (of, pytest.approx(0.8, abs=1e-4))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", f"{EXPECTED}, got ''"),
        ("drop", f"{EXPECTED}, got 'drop'"),
        ("graphs", f"{EXPECTED}, got 'graphs'"),
        ("scale gemm", "expected scale REGEX FACTOR, with a factor from 0 to 1000, got 'scale gemm'"),
        ("scale gemm -1", "expected scale REGEX FACTOR, with a factor from 0 to 1000, got 'scale gemm -1'"),
        ("scale gemm nan", "expected scale REGEX FACTOR, with a factor from 0 to 1000, got 'scale gemm nan'"),
        ("scale gemm inf", "expected scale REGEX FACTOR, with a factor from 0 to 1000, got 'scale gemm inf'"),
        ("drop (", "expected a regular expression in 'drop (': missing ), unterminated subpattern at position 0"),
    ],
)
def test_a_change_that_cannot_be_read_says_what_can(text, error, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([CUDNN, "--what_if", text])
    assert ended.value.code == 2 and capsys.readouterr().err.startswith(f"error: argument -c/--change: {error}\n")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            "drop aten::nothing",
            "no op, annotation or call of such a name in its steps (drop takes ops, scale takes kernels and copies)",
        ),
        (
            "drop ProfilerStep",
            "no op, annotation or call of such a name in its steps (drop takes ops, scale takes kernels and copies)",
        ),
        ("scale aten::mm 0.5", "no kernel or copy of such a name (scale takes kernels and copies, drop takes ops)"),
        ("loader", "no DataLoader that was asked for a batch"),
    ],
)
def test_a_change_of_nothing_is_an_error(change, error, capsys):
    assert cli.main([CUDNN, "--what_if", change]) == 2
    assert capsys.readouterr().err == f"error: {CUDNN}: {change!r} matches nothing: the trace has {error}\n"


def test_a_blocking_copy_waits_for_its_own_copy_alone(asked):
    """A kernel of another stream ends later inside the call; without its time, the call takes as long."""
    events = two_steps(
        lambda at, n: [
            launch(at + 5, n + 1), kernel(GEMM, at + 12, 47.5, n + 1, stream=8),
            call("cudaMemcpyAsync", at + 20, 40, n + 2), memcpy(at + 30, 28, n + 2, name=PAGEABLE),
        ]
    )  # fmt: skip
    assert told(asked(*events, changes=["scale nvjet 0"])) == ("recorded", 100, 100, 0)


def test_a_trace_without_steps_has_none_to_change(tmp_path, capsys):
    path = write(tmp_path / "t.json", kernel(GEMM, 5, 5, 1))
    assert cli.main([path, "--what_if", "graph"]) == 2
    assert capsys.readouterr().err == f"error: {path}: what-if changes a step, and the trace has none\n"


def test_the_report_and_its_json(capsys):
    assert cli.main([CUDNN, "--what_if", "scale cudnn 0.5", "--what_if", "graph"]) == 0
    out = capsys.readouterr().out
    assert out.partition("What if: ")[2] == (
        "scale cudnn 0.5, graph\n"
        "  scale cudnn 0.5: 3 x cuDNN attention 64x128x64\n"
        "  recorded: a step takes 97.6 µs\n"
        "  without the profiler: 54.2 µs to 77.5 µs, estimated\n"
        "  changed: 27.5 µs to 29.9 µs, which saves 49% to 61% of a step\n"
    )
    assert cli.main([CUDNN, "--what_if", "graph", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["changes"], data["of"], data["gain_low"], data["plain"]["how"]) == (["graph"], "estimated", 0, "estimated")
    assert cli.main([CUDNN, CUDNN, "--what_if", "graph"]) == 2
    expected = "error: what-if is of one trace, or of the ranks of a job, got 2 traces that are none\n"
    assert capsys.readouterr().err == expected
    with pytest.raises(SystemExit):
        cli.main([CUDNN, "--what_if", "graph", "--by", "layer"])
    assert capsys.readouterr().err.startswith("error: --by and --what_if are two commands: give one of them\n")


def test_nothing_is_promised_of_a_trace_that_lacks_what_a_promise_needs(tmp_path, capsys):
    """Launches whose kernels are lost; and waits that go on for 19,000 after the last recorded kernel has ended."""
    lost = [one for n in range(3) for one in (step(n, 100 * n, 90), launch(100 * n + 5, n))] + [kernel(GEMM, 20, 30, 0)]
    path = write(tmp_path / "a.json", *lost)
    assert cli.main([path, "--what_if", "graph"]) == 2
    said = f"error: {path}: nothing is promised of a trace that lacks the GPU events of 66.7% of the launches\n"
    assert capsys.readouterr().err == said
    waits = []
    for n, at in enumerate((0, 20_000, 40_000)):
        waits += [step(n, at, 19_900), launch(at + 5, 2 * n), kernel(GEMM, at + 10, 500, 2 * n)]
        waits += [call("cudaStreamSynchronize", at + 50, 19_700, 2 * n + 1)]
    path = write(tmp_path / "b.json", *waits)
    assert cli.main([path, "--what_if", "no waits"]) == 2
    said = f"error: {path}: nothing is promised of a trace that lacks GPU work that 3 calls wait for, up to 19.24 ms\n"
    assert capsys.readouterr().err == said
    short = [one | {"dur": 2_000} if one["name"] == "cudaStreamSynchronize" else one for one in waits]
    path = write(tmp_path / "c.json", *short)
    assert cli.main([path, "--what_if", "no waits"]) == 2
    said = f"error: {path}: nothing is promised where a call waits for GPU work that the trace lacks\n"
    assert capsys.readouterr().err == said


def test_what_is_told_of_the_recorded_step_alone_says_so(tmp_path, capsys):
    path = write(
        tmp_path / "t.json", step(0, 0, 100), launch(10, 1), kernel(GEMM, 20, 30, 1), event("x", "y", 0, 1), with_stack=1
    )
    assert cli.main([path, "--what_if", "no waits"]) == 2
    assert capsys.readouterr().err.endswith("'no waits' matches nothing: the trace has no call that waits for the GPU\n")
    assert cli.main([path, "--what_if", "scale gemm 2"]) == 2  # as it is written in the label: GEMM
    capsys.readouterr()
    assert cli.main([path, "--what_if", "scale GEMM 5"]) == 0
    assert capsys.readouterr().out.partition("What if: ")[2] == (
        "scale GEMM 5\n"
        "  scale GEMM 5: 1 x nvjet GEMM 256x128\n"
        "  recorded: a step takes 100.0 µs\n"
        "  without the profiler: unknown; what follows is computed from the recorded step\n"
        "  changed: 170.0 µs, which makes the recorded step 70% longer\n"
        "  a lower limit: work that did not wait in the recording may have to wait for\n"
        "  the longer kernels\n"
    )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.2, 0.3, "saves 20% to 30% of a step"), (0.0, 0.3, "saves 0% to 30% of a step"),
        (0.001, 0.004, "saves nothing of a step"),
        (-0.11, 0.014, "is between 11% longer and 1% shorter than a step"), (-0.2, -0.1, "makes a step 10% to 20% longer"),
        (-0.2, 0.0, "makes a step 0% to 20% longer"),
    ],
)  # fmt: skip
def test_a_change_that_may_lengthen_a_step_says_so(low, high, said):
    assert _gain(SimpleNamespace(of="estimated", gain_low=low, gain_high=high)) == said  # type: ignore[arg-type]


def test_each_end_of_an_estimate_is_changed_by_what_the_change_brings_there(asked):
    """The GPU is busy for 35 of a step that takes 34 to 53: at the low end, where it is the limit, ops that go bring nothing."""
    events = [e for n in range(3) for at in [100 * n] for e in (
        step(n, at, 90), *(op("aten::view", at + 1 + 6 * k, 5) for k in range(10)), call("cudaLaunchKernel", at + 70, 4.7, n + 1),
        kernel(GEMM, at + 76, 35, n + 1),
    )]  # fmt: skip
    changed = asked(*events, changes=["drop aten::view"], record_shapes=1)
    assert (changed.of, changed.gain_low) == ("estimated", 0) and changed.gain_high > 0.2
    assert changed.changed_low_us == pytest.approx(changed.plain.low_us)
    assert changed.changed_high_us == pytest.approx(changed.plain.high_us * (1 - changed.gain_high))


def test_what_another_thread_does_is_not_taken_from_the_steps_thread(asked):
    """An op on a thread of its own, over both steps; and the same op on the steps' thread."""
    (side,) = on(9, op("side_work", 1, 198))
    events = two_steps(lambda at, n: [op("aten::add", at + 40, 20), launch(at + 50, n + 1), kernel(ADD, at + 55, 10, n + 1)])
    assert told(asked(*events, side, changes=["drop side_work"])) == ("recorded", 100, 100, 0)
    same = [op("side_work", 101, 35)]
    assert told(asked(*events, *same, changes=["drop side_work"])) == ("recorded", 100, 65, pytest.approx(0.35))


def test_what_is_taken_away_never_lengthens_a_step(asked):
    """Of the first step the GPU's work ends 500 after the CPU's; without it the second one seems longer."""
    events = [
        step(0, 0, 100), launch(50, 1), kernel(GEMM, 60, 540, 1), step(1, 100, 800), launch(850, 2), kernel(ADD, 860, 10, 2),
    ]  # fmt: skip
    assert told(asked(*events, changes=["scale .* 0"])) == ("recorded", 300, 300, 0)
    assert told(asked(*events, changes=["drop cudaLaunchKernel"]))[2:] == (300, 0)
    assert asked(*events, changes=["scale add 40"]).gain_low < 0  # more work may


def test_a_changed_step_is_no_shorter_than_what_the_gpu_still_does(asked):
    """The estimate's low end is a tenth below what its prices say, which is the CPU's; the GPU's work stays, but for 3%."""
    events = [
        e for n in range(3)
        for e in (step(n, 1000 * n, 990), call("cudaLaunchKernel", 1000 * n + 40, 4.7, n + 1),
                  op("aten::add", 1000 * n + 60, 900), kernel(GEMM, 1000 * n + 50, 800, n + 1))
    ]  # fmt: skip
    changed = asked(*events, changes=["drop aten::add"], record_shapes=1)
    assert changed.of == "estimated" and changed.changed_low_us == pytest.approx(0.95 * 800)
    ends = sorted([1 - changed.changed_low_us / changed.plain.low_us, 1 - changed.changed_high_us / changed.plain.high_us])
    assert [changed.gain_low, changed.gain_high] == ends  # of what is told


def test_no_change_leaves_a_measured_step_as_it_is(asked):
    """Its rounds were from 990 to 1,300; a change is of their median."""
    events = [
        e for n in range(3)
        for e in (step(n, 1000 * n, 990), call("cudaLaunchKernel", 1000 * n + 40, 4.7, n + 1),
                  op("aten::add", 1000 * n + 60, 20), kernel(GEMM, 1000 * n + 50, 985, n + 1))
    ]  # fmt: skip
    changed = asked(*events, changes=["scale . 1"], plain_step_us={"median": 995, "low": 990, "high": 1300})
    assert (changed.of, changed.changed_low_us, changed.changed_high_us) == ("measured", 995, 995)
    assert (changed.gain_low, changed.gain_high) == (0, 0)


def test_longer_kernels_may_let_others_wait_that_did_not(tmp_path, capsys):
    path = write(tmp_path / "t.json", *GPU_BOUND)
    least = "a lower limit: work that did not wait in the recording may have to wait for the longer kernels"
    for factor, is_told in (("1", False), ("1.5", True)):
        assert cli.main([path, "--what_if", f"scale nvjet {factor}"]) == 0
        assert (least in " ".join(capsys.readouterr().out.split())) is is_told


NAIVE = str(GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json")


def asked_of(capsys, *changes):
    code = cli.main(["what-if", NAIVE, *(word for change in changes for word in ("-c", change))])
    said = capsys.readouterr()
    return code, " ".join(said.out.partition("What if: ")[2].split()) or said.err


@pytest.mark.parametrize(
    ("changes", "gain"),
    [
        (["unfused-attention"], "saves 85% to 97% of a step"),  # as the report has it
        (["hidden_copy"], "saves 9% to 33% of a step"),
        (["place aten::softmax"], "saves 26% of a step"),
        (["place softmax", "finding hidden-copy"], "saves 32% to 60% of a step"),
    ],
)
def test_what_the_report_names_can_be_asked_for(capsys, changes, gain):
    code, said = asked_of(capsys, *changes)
    assert code == 0 and said.endswith(gain)


def test_what_a_place_was_is_told(capsys):
    assert " place aten::softmax: aten::softmax, once per step recorded: " in asked_of(capsys, "place aten::softmax")[1]
    assert " finding hidden-copy: aten::masked_fill > aten::copy_: 1 copy per step" in asked_of(capsys, "hidden-copy")[1]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (["finding nothing"], f"{NAIVE} does not show nothing; it shows gpu-bound, unfused-attention, hidden-copy, "),
        (["sync-in-step"], f"{NAIVE} does not show sync-in-step; it shows gpu-bound, "),
        (["place nothing"], f"{NAIVE}: no place is called 'nothing', or several are; `places` lists them\n"),
        (["entry-gap"], f"{NAIVE}: what entry-gap saves is not known"),
        (
            ["unfused-attention", "graph"],
            "findings and places go together, and not with other changes: ask for one kind at a time\n",
        ),
    ],
)
def test_what_the_report_does_not_name_is_told(capsys, changes, error):
    code, said = asked_of(capsys, *changes)
    assert code == 2 and said.startswith(f"error: {error}")


@pytest.mark.parametrize(("factor", "left_us"), [(0.5, 80), (2, 140), (0, 60)])
def test_without_a_gpu_ops_are_scaled(asked, factor, left_us):
    """Of 100, 40 are in the op, of which 10 are in another one of that name inside it."""
    steps = two_steps(lambda at, n: [op("aten::mm", at + 10, 40), op("aten::mm", at + 20, 10)])
    changed = asked(*steps, changes=[f"scale aten::mm {factor}"])
    assert told(changed)[1:3] == (100, left_us) and changed.matched == (f"scale aten::mm {factor}: 4 x aten::mm",)


def test_a_program_asks_as_the_command_does():
    found = replay(NAIVE, "unfused_attention")
    assert (round(found.gain_low, 2), round(found.gain_high, 2)) == (0.85, 0.97)
    with pytest.raises(LookupError, match="does not show sync-in-step"):
        replay(NAIVE, "finding sync-in-step")


def test_a_job_has_no_findings_and_places_of_its_own(capsys):
    ranks = sorted(map(str, (RECORDINGS / "several_gpus").glob("data_parallel_25mb_rank*")))
    assert cli.main(["what-if", *ranks, "-c", "place aten::mm"]) == 2
    assert capsys.readouterr().err == "error: 'place aten::mm' is of one trace: name one of the ranks'\n"
