"""When the GPU did nothing, and why: gaps of a few events, worked out by hand."""

import pytest
from reader_helpers import GALLERY
from reader_helpers.events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, on, op, step, write
from trace_reader import load, read
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.analysis.trace.gpu_idle import idle_facts


@pytest.fixture
def idle(tmp_path):
    def facts(*events, window=None, device=0):
        trace = load(write(tmp_path / "t.json", *events))
        begins, ends = window or (0, int(trace.work.end_ns.max()) / 1000)
        return idle_facts(trace, CpuActivity(trace), device, int(begins * 1000), int(ends * 1000))

    return facts


def test_a_gap_whose_next_event_was_launched_already_is_latency(idle):
    f = idle(step(0, 0, 10), launch(0, 1), launch(2, 2), kernel(GEMM, 5, 20, 1), kernel(ADD, 30, 10, 2))
    # 0 to 5: launched at 0; 25 to 30: launched at 2
    assert (f.total_us, f.causes) == (10, (("latency", 10),))
    assert [(g.start_us, g.duration_us, g.before, g.after, g.cause) for g in f.gaps] == [
        (0, 5, "the window's start", "nvjet GEMM 256x128", "latency"), (25, 5, "nvjet GEMM 256x128", "add", "latency"),
    ]  # fmt: skip


def test_a_late_host_is_told_by_what_it_did(idle):
    f = idle(
        step(0, 0, 500), launch(0, 1), kernel(GEMM, 1, 9, 1),
        op("aten::add", 40, 50), launch(60, 2), kernel(ADD, 65, 5, 2),  # 10 to 40 python, to 60 an op, 5 latency
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 80, 100),
        launch(200, 3), kernel(ADD, 203, 7, 3),
        op("aten::empty", 210, 50), call("cudaMalloc", 215, 40, 9), launch(262, 4), kernel(ADD, 263, 7, 4),
    )  # fmt: skip
    assert f.total_us == 1 + 55 + 133 + 53
    # 70 to 200: 10 in add, 100 input, 20 python; 210 to 262: 10 in empty, 40 memory, 2 python
    assert f.causes == (("input", 100), ("silent", 30 + 20 + 2), ("memory", 40), ("op", 20 + 10 + 10), ("latency", 1 + 5 + 3 + 1))
    assert [(g.duration_us, g.cause) for g in f.gaps] == [(133, "input"), (55, "silent"), (53, "memory"), (1, "latency")]


@pytest.mark.parametrize(
    ("launched", "more", "cause"),
    [
        (60, [], "silent"),
        (12, [], "silent"),  # a short time, too
        (60, on(7, op("aten::mul", 25, 1)), "silent"),  # what another thread does, this one does not
        (60, [event("python_function", "data.py(9): normalize", -5, 100)], "python"),
    ],
)
def test_a_time_in_which_nothing_is_recorded_is_called_python_only_where_python_was_recorded(idle, launched, more, cause):
    f = idle(step(0, 0, 500), launch(0, 1), kernel(GEMM, 1, 9, 1), *more, launch(launched, 2), kernel(ADD, launched + 1, 5, 2))
    (gap,) = [one for one in f.gaps if one.start_us]
    assert gap.cause == cause


def test_a_gap_comes_after_the_kernel_that_ended_last(idle):
    """Not the one that began last: another stream's ended before."""
    f = idle(step(0, 0, 90), launch(0, 1), launch(0.5, 2), kernel(GEMM, 1, 49, 1), kernel("other", 10, 9, 2, stream=8),
             launch(60, 3), kernel(ADD, 70, 5, 3))  # fmt: skip
    assert [(g.start_us, g.before, g.after) for g in f.gaps if g.start_us] == [(50, "nvjet GEMM 256x128", "add")]


def test_loading_compiling_and_what_the_profiler_does(idle):
    f = idle(
        step(0, 0, 900), launch(0, 1), kernel(GEMM, 0, 10, 1),
        op("f (dynamo_timed)", 10, 90), launch(100, 2), kernel(ADD, 100, 10, 2),
        call("cuModuleLoadData", 110, 30, 8), event("overhead", "Activity Buffer Request", 140, 60, {"pid": -1, "tid": 0}),
        launch(200, 3), kernel(ADD, 200, 10, 3),
    )  # fmt: skip
    assert dict(f.causes) == {"compilation": 90, "loading": 30, "profiler": 60}
    assert [g.cause for g in f.gaps] == ["compilation", "profiler"]


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaDeviceSynchronize"])
def test_after_a_synchronization_the_cpu_has_no_lead(idle, name):
    f = idle(step(0, 0, 90), launch(0, 1), kernel(GEMM, 0, 40, 1), call(name, 10, 32, 9), launch(70, 2), kernel(ADD, 74, 6, 2))
    assert (f.total_us, dict(f.causes)) == (34, {"silent": 28, "latency": 4, "a synchronization that returns late": 2})
    assert f.gaps[0].cause == "silent"


def test_a_gap_after_a_synchronization_that_is_mostly_latency_is_called_so(idle):
    f = idle(step(0, 0, 90), launch(0, 1), kernel(GEMM, 0, 40, 1), call("cudaDeviceSynchronize", 10, 32, 9),
             launch(50, 2), kernel(ADD, 74, 6, 2))  # fmt: skip
    assert (dict(f.causes), f.gaps[0].cause) == (
        {"latency": 24, "silent": 8, "a synchronization that returns late": 2},
        "latency",
    )


def test_a_loader_after_a_synchronization_is_input(idle):
    f = idle(step(0, 0, 900), launch(0, 1), kernel(GEMM, 0, 40, 1), call("cudaDeviceSynchronize", 10, 32, 9),
             annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 45, 500), launch(550, 2),
             kernel(ADD, 554, 6, 2))  # fmt: skip
    causes = {"input": 500, "silent": 8, "latency": 4, "a synchronization that returns late": 2}
    assert (dict(f.causes), f.gaps[0].cause) == (causes, "input")


def test_a_loader_before_a_synchronization_is_input_too(idle):
    """The call began when the GPU had long been idle: it did not wait for that."""
    f = idle(step(0, 0, 900), launch(0, 1), kernel(GEMM, 0, 40, 1),
             annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 45, 200),
             call("cudaDeviceSynchronize", 250, 10, 9), launch(270, 2), kernel(ADD, 274, 6, 2))  # fmt: skip
    assert (dict(f.causes)["input"], f.gaps[0].cause) == (200, "input")


def test_what_the_thread_of_the_steps_is_in_counts_where_no_thread_works(idle):
    """A backward pass has a thread of its own, which shows an op from 30 to 60; the annotation is open all the while."""
    node, name = {"Sequence number": 7}, "autograd::engine::evaluate_function: MmBackward0"
    f = idle(
        step(0, 0, 500), op("aten::mm", 0, 5, **node), launch(1, 1), kernel(GEMM, 0, 10, 1), annotation("x", 10, 90),
        *on(2, op(name, 30, 30, **node, **{"Fwd thread id": 1})), launch(100, 2), kernel(ADD, 100, 10, 2),
    )  # fmt: skip
    assert dict(f.causes) == {"annotation": 20 + 40, "op": 30}


def test_causes_of_equal_time_stand_by_their_names(idle):
    f = idle(step(0, 0, 500), launch(0, 1), kernel(GEMM, 0, 10, 1), op("x", 30, 20), launch(50, 2), kernel(ADD, 50, 10, 2))
    assert f.causes == (("op", 20), ("silent", 20))


def test_times_of_a_gap_below_a_microsecond(idle):
    # 0.4 µs of input, 0.5 of an op: neither is lost, and the larger one is the cause
    f = idle(
        step(0, 0, 500), launch(0, 1), kernel(GEMM, 1, 9, 1), annotation("enumerate(DataLoader)#x.__next__", 10, 0.4),
        op("aten::add", 10.4, 0.5), launch(10.9, 2), kernel(ADD, 10.9, 5, 2),
    )  # fmt: skip
    assert f.causes == (("latency", 1), ("op", 0.5), ("input", 0.4)) and f.gaps[1].cause == "op"


def test_what_comes_first_in_the_file_counts(idle):
    assert idle(launch(0, 1), kernel(GEMM, 5, 20, 1)).causes == (("latency", 5),)
    assert idle(op("aten::mm", 0, 50), launch(40, 1), kernel(GEMM, 45, 20, 1)).causes == (("op", 40), ("latency", 5))


def test_an_event_without_a_launch(idle):
    f = idle(step(0, 0, 90), launch(0, 1), kernel(GEMM, 0, 40, 1), kernel(ADD, 60, 6, 99))
    assert dict(f.causes) == {"unknown": 20} and f.gaps[0].cause == "unknown"


def test_streams_of_one_device_fill_each_others_gaps(idle):
    events = [step(0, 0, 90), launch(0, 1), launch(0.5, 2), launch(1, 3), kernel(GEMM, 0, 10, 1), kernel(ADD, 5, 30, 2, stream=8),
              kernel(ADD, 40, 10, 3)]  # fmt: skip
    f = idle(*events)
    assert (f.total_us, [(g.start_us, g.before) for g in f.gaps]) == (5, [(35, "add")])
    other = idle(*events, launch(2, 4), kernel(ADD, 20, 5, 4, device=1), device=1, window=(0, 25))
    assert other.total_us == 20


def test_only_the_window_counts(idle):
    events = [launch(0, 1), launch(0.5, 2), launch(1, 3), kernel(GEMM, 10, 10, 1), memcpy(40, 10, 2), kernel(ADD, 80, 10, 3)]
    assert idle(*events, window=(15, 60)).total_us == 20
    assert idle(*events, window=(30, 90)).total_us == 10 + 30


def test_the_largest_are_told(idle):
    events = [e for n in range(10) for e in (launch(0, n), kernel(ADD, 100 * n + 10 * n, 50, n))]
    f = idle(step(0, 0, 5), *events)
    assert [g.duration_us for g in f.gaps] == [60] * 5 and f.total_us == 9 * 60


def test_idle_time_is_that_of_the_timeline(tmp_path):
    for path in sorted(GALLERY.glob("*/*.json"))[::4]:
        facts = read(str(path))
        assert facts.idle.total_us == pytest.approx(facts.gpu_time.idle_us, abs=0.01), path
        assert sum(us for _, us in facts.idle.causes) == pytest.approx(facts.idle.total_us, abs=0.01)


def test_a_launch_into_another_device_s_full_queue_is_no_synchronization(idle):
    """GPU 1's queue is full, and a launch for it waits from 300 to 400; GPU 0 has nothing to do from 310 on, until the launch at
    450.
    """
    full = [one for n in range(950) for one in (launch(0.1 * n, 10 + n), kernel("k", 1000 + n, 1, 10 + n, device=1))]
    waits = call("cudaLaunchKernel", 300, 100, 5000), kernel("k", 3000, 1, 5000, device=1)
    item = launch(200, 5001), kernel(GEMM, 201, 109, 5001), launch(450, 5002), kernel(GEMM, 451, 10, 5002)
    f = idle(step(0, 0, 600), *full, *waits, *item, window=(200, 461))
    assert dict(f.causes) == {"launch": 90, "silent": 50, "latency": 2}
