"""What cannot be, or proves that something is not in a file, is told before the verdict, and nothing is promised from it."""

import json

import pytest
from reader_helpers.events import ADD, GEMM, call, event, kernel, launch, memcpy, op, step, write
from trace_reader import cli, load, read

SYNC = "cudaStreamSynchronize"
NCCL = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"


@pytest.fixture
def told(tmp_path, capsys):
    def text(*events, **header):
        assert cli.main([write(tmp_path / "t.json", *events, **header)]) == 0
        return " ".join(capsys.readouterr().out.split())

    return text


def kernels(*spans, stream=7, by="cudaLaunchKernel"):
    """Kernels of these starts and durations, each launched 5 before it."""
    return [
        one
        for n, (start, dur) in enumerate(spans)
        for one in (call(by, start - 5, 2, 100 * stream + n), kernel(GEMM, start, dur, 100 * stream + n, stream=stream))
    ]


def test_an_event_that_others_of_its_stream_begin_in_is_cut_and_told(tmp_path, told):
    events = [step(0, 0, 1000), *kernels((10, 100_000), (200, 50), (300, 50))]
    (cut,) = load(write(tmp_path / "t.json", *events)).impossible
    assert (cut.duration_us, cut.left_us, cut.others) == (100_000, 190, 2)
    facts = read(write(tmp_path / "t.json", *events))
    assert (facts.gpu_busy_us, facts.steps[0].gpu_busy_us) == (290, 290)
    impossible = "nvjet GEMM 256x128 lasts 100.00 ms, but 2 later events start on the same stream before it ends"
    said = f"impossible timing: {impossible}; it is cut at the next event's start"
    assert said in told(*events).partition("Verdict")[0]


def test_kernels_that_overlap_at_their_edges_or_in_a_graph_or_often_are_left(tmp_path):
    """Programmatic launches overlap on purpose, a graph's branches run beside each other, and a row can hold several queues."""
    edges = kernels((10, 60), (50, 60))
    graph = kernels((10, 100_000), (200, 50), by="cudaGraphLaunch")
    often = kernels(*((100 * n + 10, 150) for n in range(9)), *((1000 + 100 * n, 5000) for n in range(9)))
    for events in (edges, graph, often):
        assert load(write(tmp_path / "t.json", step(0, 0, 20_000), *events)).impossible == ()


def test_a_wait_that_outlasts_all_recorded_work_is_unknown_and_promises_nothing(tmp_path, told):
    events = []
    for n in range(3):
        at = 20_000 * n
        events += [step(n, at, 19_900), launch(at + 20, n), kernel(GEMM, at + 60, 500, n), call(SYNC, at + 100, 19_700, 50 + n)]
    facts = read(write(tmp_path / "t.json", *events))
    assert (facts.verdict, facts.health.outlasting, facts.health.outlasting_us) == ("unknown", 3, 19_240)
    assert [finding.slug for finding in facts.findings if finding.gain] == []
    said = told(*events)
    missing = "missing GPU work: 3 synchronizing calls wait up to 19.24 ms after the last recorded GPU work ends"
    assert missing in said.partition("Verdict")[0]
    assert "of a step without the profiler" not in said and "sync-in-step" not in said
    late = [one | {"dur": 1400} if one["name"] == SYNC else one for one in events]  # 0.94 ms behind the kernel's end
    assert read(write(tmp_path / "t.json", *late)).health.outlasting == 0


def one_of_four(late, us=180_000):
    """Four steps of 1000 with a kernel each; in step `late` the synchronize takes `us`."""
    events, at = [], 0
    for n in range(4):
        took = us if n == late else 500
        events += [step(n, at, 400 + took), launch(at + 20, n), kernel(GEMM, at + 60, 500, n), call(SYNC, at + 100, took, 50 + n)]
        at += 500 + took
    return events


@pytest.mark.parametrize("late", [0, 2, 3])
def test_one_wait_for_what_is_not_recorded_is_enough_wherever_it_is(told, late):
    said = told(*one_of_four(late))
    lacks = "GPU work that 1 call waits for, 179.54 ms"
    assert f"Verdict unknown: the trace lacks {lacks}; of what it holds, " in said
    assert "best change" not in said and "(saves" not in said


def test_the_profilers_own_synchronize_behind_the_last_step_lacks_nothing(tmp_path, told):
    events = [*one_of_four(-1), call("cudaDeviceSynchronize", 4_000, 90_000, 99)]
    assert read(write(tmp_path / "t.json", *events)).health.outlasting == 0
    assert "missing GPU work" not in told(*events)


def test_a_wait_before_any_recorded_work_is_as_long_as_it_is(tmp_path):
    """Without steps: 48 to 62 ms, where the only kernel begins at a second."""
    events = [call("cudaDeviceSynchronize", 48_000, 14_000, 1), launch(999_990, 2), kernel(GEMM, 1_000_000, 100, 2)]
    assert read(write(tmp_path / "t.json", *events)).health.outlasting_us == 14_000


def test_a_long_copy_without_its_event_is_lost_work(told):
    """Of 41 launches one: too few to count, but most of the time."""
    events = one_of_four(-1)
    many = [one for n in range(36) for one in (launch(30 + 2 * n, 200 + n), kernel(ADD, 600 + n, 0.5, 200 + n))]
    copy = call("cudaMemcpyAsync", 3_000, 400, 98)
    assert "the GPU events of 1 call that 400.0 µs were spent in" in told(*events, *many, copy)
    assert "were spent in" not in told(*events, *many, copy, memcpy(3_020, 200, 98))
    outside = call("cudaMemcpyAsync", 90_000, 400, 98)  # of no step
    assert "were spent in" not in told(*events, *many, outside)


@pytest.mark.parametrize(
    ("outer", "inner", "until", "seen"),
    [
        (op("aten::linear", 2_100, 20), op("aten::addmm", 2_105, 900), 3_005, "aten::addmm in aten::linear"),
        (op("aten::linear", 2_100, 20), op("aten::addmm", 2_105, 17), 2_122, ""),  # two clocks
        (op("my::op", 2_100, 20), op("aten::addmm", 2_105, 900), 3_005, ""),  # another library's times
        (op("aten::linear", 92_100, 20), op("aten::addmm", 92_105, 900), 0, ""),  # of no step
    ],
)
def test_an_op_cannot_end_after_the_one_that_calls_it(told, outer, inner, until, seen):
    said = told(*one_of_four(-1), outer, inner)
    words = f"impossible timing: 1 op or call ends after the parent, by up to {until - 2_120}.0 µs ({seen})"
    assert (words in said) is bool(seen) and ("impossible timing" in said) is bool(seen)
    assert ("unknown: the trace lacks times that fit" in said) is bool(seen)


def test_a_step_cannot_end_before_what_it_holds(told):
    events = [one | {"dur": 150} if one["name"] == "ProfilerStep#2" else one for one in one_of_four(-1)]
    said = told(*events)
    assert "1 op or call ends after the parent, by up to 450.0 µs (cudaStreamSynchronize in ProfilerStep#2)" in said


def test_a_copy_is_no_faster_than_a_bus(told):
    copy = [launch(150, 77, "cudaMemcpyAsync"), memcpy(700, 20, 77, "Memcpy HtoD (Pinned -> Device)", 1 << 30, stream=8)]
    said = "impossible timing: Memcpy HtoD (Pinned -> Device) would move 53,687 GB/s, more than any bus"
    assert said in told(*one_of_four(-1), *copy)
    assert "impossible timing" not in told(*one_of_four(-1), copy[0], copy[1] | {"dur": 20_000})


def test_steps_of_one_name_on_two_threads_are_two_processes(told):
    """Two containers' processes have one number."""
    other = [one | {"tid": 20} if one["pid"] != 0 else one | {"pid": 1} for one in one_of_four(-1)]
    said = told(*one_of_four(-1), *other)
    assert "unknown: the trace lacks a way to tell apart the 2 processes" in said
    assert "is not known: the events of several processes are in this one file" in said


def test_a_pause_in_a_loader_is_its_own(told):
    events = []
    for n, at in enumerate((0, 10_000, 20_000, 120_000)):
        longer = 90_000 * (n == 2)
        wait = event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 4_020, 20 + longer)
        events += [step(n, at, 9_900 + longer), op("aten::mm", at + 10, 4_000), wait, op("aten::add", at + 4_050 + longer, 5_800)]
    assert "ProfilerStep#2 pauses for 90.04 ms, unlike the other steps (it waits for its DataLoader); per-step" in told(*events)


def test_a_gpu_that_is_nearly_always_busy_is_what_limits_the_run(tmp_path):
    """No wait is recorded; the CPU launches each kernel when the one before it has ended."""
    busy, less = (
        read(write(tmp_path / "t.json", *kernels(*((10_100 * n + 10, dur) for n in range(3))))) for dur in (10_000, 6_000)
    )
    path = busy.critical_path
    assert (busy.verdict, path.compute_us, path.cpu_us, path.latency_us) == (
        "gpu-bound", 30_000, pytest.approx(190, rel=0.02), pytest.approx(15, rel=0.02)
    )  # fmt: skip
    assert less.verdict == "overhead-bound"


def test_a_pause_of_one_step_is_told_once_and_is_in_no_number_per_step(tmp_path, told):
    def run(pause):
        events = []
        for n, at in enumerate((0, 10_000, 20_000, 30_000 + pause)):
            longer = pause * (n == 2)
            events += [step(n, at, 9_900 + longer), op("aten::mm", at + 10, 4_000), op("aten::add", at + 4_050 + longer, 5_800)]
        return events

    facts, without = (read(write(tmp_path / "t.json", *run(pause))) for pause in (90_000, 0))
    usual = 40  # between the two ops of any step
    assert (facts.step_period_us, without.step_period_us) == (pytest.approx(10_000 - usual / 3), 10_000)
    assert (facts.step_times_us[1:], without.step_times_us[1:]) == ((10_000, 9_960, 10_000), (10_000,) * 3)
    assert facts.critical_path.window_us == without.critical_path.window_us - usual
    assert [(one.step, (one.end_ns - one.start_ns) / 1000) for one in facts.health.pauses] == [(2, 90_040)]
    said = told(*run(90_000))
    assert (
        "ProfilerStep#2 pauses for 90.04 ms, unlike the other steps (perhaps garbage collection, or a busy machine); per-step"
        in said
    )
    assert "python-between-ops" not in said and "pauses for" not in told(*run(0))


def test_a_pause_between_two_steps_is_in_no_number_per_step_either(tmp_path, told):
    starts = (0, 1000, 2000, 23_000, 24_000)
    events = [one for n, at in enumerate(starts) for one in (step(n, at, 990), op("aten::mm", at + 5, 900))]
    assert read(write(tmp_path / "t.json", *events)).step_period_us == pytest.approx(1000, abs=5)
    said = told(*events)
    assert "nothing is recorded for 20.01 ms before ProfilerStep#3; per-step numbers exclude this gap" in said


def test_of_many_pauses_the_longest_three_are_told_and_none_is_in_a_number_per_step(tmp_path, told):
    """12 steps; before four of them nothing is recorded, and one pauses."""
    before, events, at = {3: 20_000, 5: 40_000, 7: 30_000, 9: 10_000}, [], 0
    for n in range(12):
        at += before.get(n, 0)
        pause = 50_000 * (n == 10)
        events += [step(n, at, 990 + pause), op("aten::mm", at + 5, 440), op("aten::mm", at + 450 + pause, 530)]
        at += 1000 + pause
    facts, said = read(write(tmp_path / "t.json", *events)), told(*events)
    assert [(one.step, one.is_before) for one in facts.health.pauses] == [(3, True), (5, True), (7, True), (9, True), (10, False)]
    assert facts.step_period_us == pytest.approx(1000, abs=6)
    told_of = [said.find(words) for words in (
        "nothing is recorded for 40.01 ms before ProfilerStep#5;", "nothing is recorded for 30.01 ms before ProfilerStep#7;",
        "ProfilerStep#10 pauses for 50.01 ms,", "2 more steps have a shorter pause; per-step numbers exclude these, too",
    )]  # fmt: skip
    assert -1 not in told_of and told_of == sorted(told_of)
    assert "before ProfilerStep#3" not in said and "before ProfilerStep#9" not in said


def test_one_step_that_does_more_is_named_and_what_most_do_is_told(told):
    def run(copies):
        events = []
        for n in range(6):
            at, more = 10_000 * n, copies * (n == 3)
            events += [step(n, at, 990 + 800 * more), launch(at + 5, 100 * n), kernel(GEMM, at + 10, 900, 100 * n)]
            events += [one for k in range(more) for one in (
                call("cudaMemcpyAsync", at + 1000 + 80 * k, 70, 100 * n + k + 1), memcpy(at + 1002 + 80 * k, 60, 100 * n + k + 1),
            )]  # fmt: skip
        return events

    assert "kernels per step: 1 (nvjet GEMM 256x128) Findings" in told(*run(0))
    assert "kernels per step: 1 (nvjet GEMM 256x128), in 5 of 6 steps" in told(*run(9))


def test_times_that_no_recording_has_are_left_out_and_told(tmp_path, told):
    """A step at 0 where all else is since 1970 or late, an op of 11 hours, a kernel a century ahead."""
    good = []
    for n in range(4):
        at = 3e6 + 100 * n
        good += [step(n, at, 90), launch(at + 5, n), kernel(GEMM, at + 9, 60, n)]
    far = "impossible time"
    lost = [(step(9, 0, 90), "zero timestamp"), (op("aten::mm", 3e6 + 20, 4e10), far), (kernel(ADD, 9e12, 5, 77), far)]
    for bad, reason in lost:
        facts = read(write(tmp_path / "t.json", *good, bad))
        assert (facts.skipped, len(facts.steps), facts.step_period_us) == ({reason: 1}, 4, 100), bad["name"]
        assert f"1 not used (1 {reason})" in told(*good, bad)


def test_launches_whose_kernels_are_lost_are_no_zero(told):
    events = [one for n in range(3) for one in (step(n, 100 * n, 90), launch(100 * n + 5, n))] + [kernel(GEMM, 20, 30, 0)]
    said = told(*events)
    assert "kernels per step: unknown (of its 1 launch the trace lacks the GPU events)" in said
    assert (
        "CPU waited GPU busy GPU/CPU kernels launches" in said
        and "ProfilerStep#1 90.0 µs 0.0 µs unknown unknown unknown 1 " in said
    )


def test_work_that_only_one_step_does_is_no_pause(tmp_path):
    events = []
    for n, (at, dur, mm) in enumerate(((0, 900, 400), (1000, 900, 400), (2000, 20_900, 20_000), (23_000, 900, 400))):
        events += [step(n, at, dur), op("aten::mm", at + 10, mm)]
    assert read(write(tmp_path / "t.json", *events)).health.pauses == ()


def test_launches_are_matched_by_name_and_order_where_the_ids_tell_of_none(tmp_path):
    """RCCL's kernels have the id 0, and HIP's launches say what they launch."""
    events = [one for n in range(3) for one in (
        step(n, 100 * n, 90), event("cuda_runtime", "hipExtLaunchKernel", 100 * n + 10, 2, correlation=900 + n, kernel=NCCL),
        kernel(NCCL, 100 * n + 30, 40, 0),
    )]  # fmt: skip
    trace = load(write(tmp_path / "t.json", *events))
    assert trace.work.step.tolist() == [0, 1, 2] and read(write(tmp_path / "t.json", *events)).missing == ()
    assert (load(write(tmp_path / "t.json", *events[:-1], step(9, 300, 5))).work.call < 0).all()  # fewer kernels than launches


def test_events_that_name_no_launch_count_in_the_step_in_which_they_begin(tmp_path, told):
    events = [
        step(0, 0, 90),
        step(1, 100, 90),
        op("aten::mm", 5, 9),
        kernel(GEMM, 20, 30, 1),
        kernel(GEMM, 120, 30, 2),
        kernel(ADD, 155, 5, 3),
    ]
    facts = read(write(tmp_path / "t.json", *events))
    assert [(one.kernels, one.gpu_busy_us) for one in facts.steps] == [(1, 30), (2, 35)]
    assert "the GPU events name no launch: each counts in the step in which it starts" in told(*events)


def test_a_clock_of_whole_microseconds_is_a_clock(tmp_path):
    whole = [step(0, 0, 90), launch(1, 1), kernel(ADD, 5, 0, 1), launch(9, 2), kernel(ADD, 12, 1, 2)]
    assert read(write(tmp_path / "t.json", *whole)).zero_timestamps == 0
    assert read(write(tmp_path / "t.json", *whole[:-1], kernel(ADD, 12.25, 1, 2))).zero_timestamps == 1


def test_a_rate_far_above_the_devices_peak_is_told_first(told):
    """Two products of 4096 x 4096 in bf16 are 137 GFLOP each: 139 µs at the peak of an H200."""
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    for took_us, is_told in ((50, True), (180, False)):
        events = [step(0, 0, 900), op("aten::mm", 5, 30, **shapes), launch(10, 1), kernel(GEMM, 20, took_us, 1)]
        said = told(*events).partition("Verdict")[0]
        assert ("impossible timing: aten::mm of 2 of 4096x4096 bf16 would run at 2.8 times the device's peak" in said) is is_told


@pytest.mark.parametrize(("early", "seen"), [(1, "told"), (4, "unknown"), (0, "sound")])
def test_a_kernel_cannot_begin_before_its_launch(told, early, seen):
    """20 kernels, some of which begin 40 before they are launched; by 1, a rounded clock may be wrong."""
    starts = [100 * n + (-40 if n < early else 9) for n in range(20)]
    events = [one for n, at in enumerate(starts) for one in (launch(100 * n, n), kernel(GEMM, at, 20, n))]
    said = told(step(0, -50, 2000), *events, launch(2050, 99), kernel(GEMM, 2049, 5, 99))
    line = f"impossible timing: {early} GPU event{'s begin' if early > 1 else ' begins'} before the launch, by up to 40.0 µs: the"
    assert (line in said) is (early > 0)
    lacks = "unknown: the trace lacks one clock (4 GPU events begin up to 40.0 µs before the launch)"
    assert (lacks in said) is (seen == "unknown")


def test_a_stream_whose_events_overlap_all_the_time_is_told_and_left(tmp_path, told):
    """20 kernels of 15 every 10: several queues in one row; edges of 2 are a launch that depends on the program."""
    for long, is_told in ((15, True), (12, False)):
        events = [step(0, 0, 400), *kernels(*((10 + 10 * n, long) for n in range(20)))]
        line = "19 GPU events begin while another of the same stream runs: times that are added up count such moments twice"
        assert (line in told(*events)) is is_told
        assert {k.max_us for k in read(write(tmp_path / "t.json", *events)).kernels} == {long}


def test_a_sequence_number_of_two_backward_ops_is_told(told):
    def node(name, at, sequence, thread):
        args = {"Sequence number": sequence, "Fwd thread id": thread}
        return {**op(f"autograd::engine::evaluate_function: {name}", at, 5, tid=9), "args": args}

    sound = [step(0, 0, 90), op("aten::mm", 1, 9), node("MmBackward0", 20, 3, 1), node("MmBackward0", 30, 3, 1)]
    line = "1 sequence number names several backward ops: which forward op these belong to is not certain"
    assert line in told(*sound, node("AddBackward0", 40, 3, 1))
    assert "sequence number" not in told(*sound, node("AddBackward0", 40, 3, 2), node("AddBackward0", 50, 4, 1))


def test_collectives_without_a_message_are_told(told):
    said = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 64, "Out msg nelems": 64, "Group size": 2}
    events = [step(0, 0, 90), launch(5, 1), kernel(NCCL, 10, 9, 1), launch(25, 2)]
    named = kernel(NCCL, 30, 9, 2)
    named["args"] |= said
    line = "1 of 2 collectives says nothing of its message: no rate is reported for it"
    assert line in told(*events, named)
    events[2]["args"] |= said
    assert "of its message" not in told(*events, named)


def test_an_empty_recording_says_so(told):
    said = told(call("cudaDeviceSynchronize", 5, 3, 1), call("cudaDeviceSynchronize", 15, 3, 2))
    assert "unknown: the trace lacks any op or kernel (it holds 2 calls): run the program inside the profile() block" in said


@pytest.mark.parametrize("shared", ["steps", "launches"])
def test_two_processes_in_one_file_are_not_read_as_one(tmp_path, told, shared):
    """Steps of one name, or launches of one number, are two processes'."""
    second = 2 if shared == "launches" else 5
    events = []
    for rank, pid in enumerate((1, 900)):
        number = 7 + rank * (second - 2)
        events += [{**one, "pid": pid} for one in (step(1 + 5 * (rank and shared == "launches"), 0, 90), launch(5, number))]
        events.append(kernel(GEMM, 10, 60, number, device=rank))
    said = told(*events)
    lacks = "a way to tell apart the 2 processes whose events are in this one file (let each write a file of its own: "
    assert f"unknown: the trace lacks {lacks}" in said
    assert "saves" not in said.replace("what each saves", "")
    assert read(write(tmp_path / "t.json", *events, mergedRanks=[0, 1])).missing == ()
    assert "kernels per step: unknown (several processes' are in the file)" in said
    assert "90.0 µs 0.0 µs unknown unknown unknown 1 " in said


def test_other_makers_files_are_called_what_they_are(tmp_path, capsys, told):
    device = {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:TPU:0"}}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": [device, {"ph": "X", "name": "fusion.1", "pid": 3, "tid": 1, "ts": 1, "dur": 2}]}))
    assert cli.main([str(path)]) == 2
    assert capsys.readouterr().err == f"error: {path}: written by XLA's profiler; open it with XProf or Perfetto\n"
    args = {"Task Type": "AI_CORE", "Stream Id": 3}
    npu = {"ph": "X", "name": "MatMulV2", "pid": 9, "tid": 3, "ts": 20, "dur": 40, "args": args}
    lacks = "unknown: the trace lacks what 1 event of a kind of device that this reader does not know would say"
    assert lacks in told(step(1, 0, 90), op("aten::mm", 5, 9), npu)
    node = event("graph_host_node", "host", 20, 5, device=0, stream=7)
    assert "does not know" not in told(step(1, 0, 90), launch(5, 1), kernel(GEMM, 10, 60, 1), node)


def test_silence_is_python_only_where_python_was_recorded(told):
    events = [step(0, 0, 500), launch(5, 1), kernel(GEMM, 10, 5, 1), launch(400, 2), kernel(GEMM, 405, 20, 2)]
    verdict = told(*events).partition("Findings")[0]
    assert "CPU time (nothing recorded " in verdict and "(Python" not in verdict
    with_functions = told(*events, event("python_function", "a.py(1): f", -1, 600)).partition("Findings")[0]
    assert "nothing recorded" not in with_functions
