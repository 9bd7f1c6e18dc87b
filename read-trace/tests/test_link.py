"""Who holds and who launched what, in which step: traces of a few events, with the answer worked out by hand."""

import random
import re

import numpy as np
import pytest
from reader_helpers.events import ADD, annotation, call, event, kernel, launch, memcpy, memset, on, op, step, write
from trace_reader import analyze, load
from trace_reader.link.intervals import has_overlaps, merged, union_ns, unions_ns, within_ns
from trace_reader.link.nesting import innermost_over_time, outermost, self_us
from trace_reader.model.rows import grouped
from trace_reader.model.slices import Kind


@pytest.fixture
def linked(tmp_path):
    return lambda *events, **header: load(write(tmp_path / "t.json", *events, **header))


def test_names_are_asked_of_slices_of_one_kind(linked):
    slices = linked(step(0, 0, 3), op("x", 0, 5), annotation("x", 10, 5), op("y", 20, 5), kernel("x", 30, 5, 1)).slices
    tried = []

    def is_x(name):
        tried.append(name)
        return name == "x"

    assert slices.are_named(Kind.OP, is_x).tolist() == [True, False, False, False, False]
    assert tried == ["x", "y"]
    assert slices.is_named(np.array([4, 3, 4]), "x".__eq__).tolist() == [True, False, True]


def ops_of(trace):
    """Return the op of each kernel, by the kernel's name."""
    return {a.event.name: a.op.name if a.op else None for a in trace.activities()}


def parents_of(trace):
    """Return the span around each slice of the CPU, by name; that all of it is taken for a step is not asked here."""
    names = [trace.slices[row].name for row in range(len(trace.slices))]
    held_by = {name: names[parent] if parent >= 0 else None for name, parent in zip(names, trace.parent.tolist(), strict=True)}
    return {name: None if parent == "step 0" else parent for name, parent in held_by.items() if name != "step 0"}


def test_a_launch_is_of_the_op_that_is_open_on_its_own_thread(linked):
    trace = linked(
        step(0, 0, 100),
        op("aten::mm", 10, 30),
        launch(20, 1),
        *on(2, op("aten::add", 15, 20), launch(18, 2), launch(50, 3)),
        *on((9, 1), op("aten::mul", 5, 90), launch(40, 4)),  # the same thread number, in another process
        *(kernel(name, 60, 5, n, stream=n) for n, name in enumerate("abcd", 1)),
    )
    assert ops_of(trace) == {"a": "aten::mm", "b": "aten::add", "c": None, "d": "aten::mul"}
    assert analyze(trace).steps[0].kernels == 4  # launched in the step's time, on whichever thread


@pytest.mark.parametrize("order", [1, -1])
def test_of_spans_that_start_together_the_longer_is_outside(linked, order):
    trace = linked(*[op("outer", 10, 20), op("inner", 10, 5), launch(12, 1), kernel("a", 40, 1, 1)][::order])
    assert ops_of(trace) == {"a": "inner"}
    assert parents_of(trace) == {"outer": None, "inner": "outer", "cudaLaunchKernel": "inner", "a": None}


def test_so_it_is_in_a_file_that_is_in_order(linked):
    """The inner one stands first, and nothing begins earlier than what is before it."""
    trace = linked(op("inner", 10, 5), op("outer", 10, 20), launch(12, 1), kernel("a", 40, 1, 1))
    assert parents_of(trace) == {"outer": None, "inner": "outer", "cudaLaunchKernel": "inner", "a": None}


def test_spans_of_one_start_and_end_hold_each_other_in_the_files_order(linked):
    assert parents_of(linked(op("first", 10, 20), op("second", 10, 20), op("third", 10, 20))) == {
        "first": None, "second": "first", "third": "second",
    }  # fmt: skip


def test_a_span_holds_what_starts_with_it_and_not_what_starts_as_it_ends(linked):
    trace = linked(
        op("mm", 10, 10), launch(10, 1), op("add", 20, 10), launch(30, 2), kernel("a", 40, 1, 1), kernel("b", 42, 1, 2),
    )  # fmt: skip
    assert ops_of(trace) == {"a": "mm", "b": None}
    assert parents_of(trace)["add"] is None


def test_a_span_of_no_length_holds_nothing(linked):
    trace = linked(op("outer", 0, 50), op("empty", 10, 0), launch(10, 1), op("tiny", 20, 0.0004), launch(20, 2),
                   kernel("a", 60, 1, 1), kernel("b", 62, 1, 2))  # fmt: skip
    assert ops_of(trace) == {"a": "outer", "b": "outer"}


def test_an_annotation_between_an_op_and_its_launch_is_no_op(linked):
    trace = linked(op("compiled", 0, 50), annotation("fwd", 5, 40), launch(20, 1), kernel("a", 60, 1, 1))
    assert ops_of(trace) == {"a": "compiled"}
    assert parents_of(trace)["cudaLaunchKernel"] == "fwd"


@pytest.mark.parametrize(
    ("moment", "parent"),
    [
        (25, "b"),
        (45, "b"),
        (60, "outer"),
        (15, "a"),
        (120, None),
        (5, "outer"),
        (10, "a"),
        (20, "b"),
        (30, "b"),
        (50, "outer"),
        (100, None),
    ],
)
def test_where_spans_cross_the_one_that_began_last_and_is_open_holds(linked, moment, parent):
    trace = linked(op("outer", 0, 100), op("a", 10, 20), op("b", 20, 30), launch(moment, 1), kernel("k", 200, 1, 1))
    assert ops_of(trace) == {"k": parent}
    assert parents_of(trace) == {
        "outer": None, "a": "outer", "b": "a", "cudaLaunchKernel": parent, "k": None,
    }  # fmt: skip


def test_spans_that_follow_one_another_beside_some_that_cross(linked):
    trace = linked(op("a", 0, 20), op("b", 10, 20), op("c", 30, 10), op("d", 40, 10), op("in d", 40, 10))
    assert parents_of(trace) == {"a": None, "b": "a", "c": None, "d": None, "in d": "d"}


def test_an_op_that_has_ended_when_the_call_starts_launched_nothing(linked):
    """The annotation crosses x: x is its parent, but over when the launch begins."""
    trace = linked(op("outer", 0, 100), op("x", 10, 20), annotation("y", 20, 40), launch(50, 1), kernel("k", 200, 1, 1))
    assert ops_of(trace) == {"k": "outer"}


def test_many_levels(linked):
    trace = linked(*(op(f"op{n}", n, 1000 - 2 * n) for n in range(300)), launch(400, 1), kernel("k", 2000, 1, 1))
    assert ops_of(trace) == {"k": "op299"}
    assert parents_of(trace)["op299"] == "op298"


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("cudaLaunchKernel", "cuda_runtime"), ("cuLaunchKernelEx", "cuda_driver"), ("hipLaunchKernel", "cuda_runtime"),
        ("hipExtModuleLaunchKernel", "cuda_runtime"), ("urEnqueueKernelLaunch", "xpu_runtime"),
        ("urEnqueueKernelLaunchExp", "xpu_driver"), ("runtimeLaunchKernel", "privateuse1_runtime"),
        ("runtimeLaunchKernel", "privateuse1_driver"), ("mtiaLaunchKernel", "mtia_runtime"),
    ],
)  # fmt: skip
def test_launches_of_all_vendors(linked, name, category):
    f = analyze(linked(step(0, 0, 100), op("aten::add", 5, 20), call(name, 10, 5, 1, cat=category), kernel(ADD, 40, 5, 1)))
    assert (f.steps[0].launches, f.steps[0].kernels, f.kernels[0].op, f.kernels[0].launch) == (1, 1, "aten::add", name)


@pytest.mark.parametrize(
    "name",
    ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize", "hipStreamSynchronize"],
)
def test_synchronizing_calls_of_all_kinds_are_waits(linked, name):
    f = analyze(linked(step(0, 0, 100), launch(5, 1), kernel("a", 10, 40, 1), call(name, 20, 60, 2)))
    assert (f.steps[0].sync_us, f.steps[0].gpu_to_cpu) == (60, 1.0)


def test_waits_of_two_threads_are_one_and_end_with_the_step(linked):
    f = analyze(
        linked(
            step(0, 0, 100), launch(5, 1), kernel("a", 10, 40, 1),
            call("cudaStreamSynchronize", 20, 30, 2),  # 20 to 50
            *on(2, call("cudaStreamSynchronize", 40, 20, 3)),  # to 60
            call("cudaDeviceSynchronize", 90, 500, 4),  # from 90 on; the step ends at 100
            step(1, 600, 10),
        )
    )  # fmt: skip
    assert [s.sync_us for s in f.steps] == [50, 0]


@pytest.mark.parametrize(
    ("moment", "steps"),
    [(50, (1, 0)), (99.998, (1, 0)), (100.002, (1, 0)), (100.499, (0, 1)), (100.4, (0, 0)), (150, (0, 1)), (210, (0, 0))],
)
def test_a_moment_on_a_steps_edge(linked, moment, steps):
    """#0 ends at 100.001 and #1 begins at 100.5; each edge gives way by the rounding of a time, 2 ns."""
    f = analyze(linked(step(0, 0, 100.001), step(1, 100.5, 100), launch(moment, 1), kernel("a", 300, 1, 1)))
    assert tuple(s.kernels for s in f.steps) == steps


def test_of_an_even_number_of_steps_the_verdict_is_between_the_two_in_the_middle(linked):
    events = [(step(n, 100 * n, 10), launch(100 * n + 1, n + 1), kernel("a", 100 * n + 2, gpu_us, n + 1))
              for n, gpu_us in enumerate((9, 1, 3, 5))]  # fmt: skip
    f = analyze(linked(*(e for each in events for e in each)))
    assert (f.gpu_to_cpu, f.verdict, f.usual_step.name) == (0.4, "overhead-bound", "ProfilerStep#2")
    assert (f.kernels[0].median_us, f.kernels[0].calls) == (4.0, 4)


def test_a_correlation_id_of_any_size_and_writing_joins(linked):
    ids = [0, 2**61, 2**63, 2**64 - 1]
    trace = linked(
        op("aten::mm", 0, 50), *(launch(n, number) for n, number in enumerate(ids, 1)), launch(20, "77"),
        *(kernel(f"k{n}", 100 + n, 0.5, number) for n, number in enumerate([*ids, 77])),
    )  # fmt: skip
    assert [a.call.start_us for a in trace.activities()] == [1, 2, 3, 4, 20]


@pytest.mark.parametrize("none", [-1, None, "", "x", 1.5j, 2**70, []])
def test_what_is_no_correlation_id_joins_nothing(linked, none):
    none = str(none) if isinstance(none, complex) else none
    trace = linked(op("aten::mm", 0, 50), launch(1, none), launch(2, none), kernel("a", 60, 1, none))
    (activity,) = trace.activities()
    assert (activity.call, activity.op, activity.origin.word) == (None, None, "unknown")


def test_calls_without_an_id_are_launches_each_for_itself(linked):
    bare = [event("cuda_runtime", "cudaLaunchKernel", t, 1) for t in (5, 7)]
    f = analyze(linked(step(0, 0, 10), *bare, launch(8, 1), step(1, 20, 10), launch(21, 1), kernel("a", 40, 1, 1)))
    assert [s.launches for s in f.steps] == [3, 1]


def test_of_calls_with_one_id_the_launching_one_is_meant_else_the_first(linked):
    trace = linked(
        call("cudaMalloc", 1, 9, 1), call("cuLaunchKernel", 2, 2, 1, cat="cuda_driver"), call("cuLaunchKernelEx", 5, 2, 1),
        call("cudaMemcpyAsync", 20, 9, 2), call("cuMemcpyAsync", 21, 2, 2, cat="cuda_driver"),
        kernel("a", 30, 1, 1), memcpy(40, 1, 2),
    )  # fmt: skip
    assert [a.call.name for a in trace.activities()] == ["cuLaunchKernel", "cudaMemcpyAsync"]


def test_work_from_before_the_recording_is_told_per_stream(linked):
    trace = linked(
        kernel("early", 5, 20, 99), op("mm", 10, 5), launch(11, 1), kernel("a", 30, 5, 1), kernel("late", 50, 5, 98),
        kernel("elsewhere", 1, 5, 97, stream=8),  # nothing of its stream is linked
        memset(70, 5, 96),
    )  # fmt: skip
    origins = {a.event.name: a.origin.word for a in trace.activities()}
    assert origins == {
        "early": "carried_over", "a": "op", "late": "unknown", "elsewhere": "unknown", "Memset (Device)": "unknown",
    }  # fmt: skip


def test_rocm_graphs_are_graphs(linked):
    trace = linked(op("mm", 0, 9), call("hipGraphLaunch", 1, 5, 1), kernel("a", 10, 1, 1), kernel("b", 12, 1, 1))
    assert [a.origin.word for a in trace.activities()] == ["graph", "graph"]


def test_the_entry_gap_is_of_the_steps_own_thread(linked):
    f = analyze(
        linked(
            step(0, 0, 100), annotation("fwd", 20, 60), op("aten::mm", 50, 10),
            *on(2, annotation("loader", 5, 90), op("aten::stack", 25, 5)),
        )
    )  # fmt: skip
    assert f.steps[0].entry_gap_us == 30


def test_self_time_is_without_what_lies_directly_inside(linked):
    trace = linked(
        op("outer", 0, 100), op("a", 10, 20), op("inside a", 12, 10), call("cudaMalloc", 50, 5, 1), op("b", 52, 10),
        *on(2, op("beside", 0, 90)),
    )  # fmt: skip
    one = dict(zip(trace.ops.names, self_us(trace.slices, trace.parent, trace.ops.at).tolist(), strict=True))
    assert one == {"outer": 68, "a": 10, "inside a": 10, "b": 10, "beside": 90}  # 100 - 20 - (50 to 62)


def test_self_time_of_a_span_that_another_outlives(linked):
    trace = linked(op("outer", 0, 30), op("long", 20, 50))
    assert self_us(trace.slices, trace.parent, trace.ops.at).tolist() == [20, 50]


def test_outermost_are_those_that_begin_when_none_is_open(linked):
    trace = linked(
        op("a", 0, 10), op("in a", 2, 3), op("b", 10, 10), op("crosses b", 15, 10), op("in it", 22, 2), op("c", 25, 1),
        *on(2, op("other thread", 3, 1)),
    )  # fmt: skip
    kept = outermost(trace.slices, trace.ops.at)
    assert [trace.slices[row].name for row in kept] == ["a", "other thread", "b", "c"]


@pytest.mark.parametrize("seed", range(200))
def test_the_innermost_at_each_moment_is_the_last_begun_that_is_open(linked, seed):
    """Beside a search moment by moment; on half of the traces spans cross, on the others they nest."""
    rng = random.Random(seed)
    spans = [(0, 40)]
    for _ in range(rng.randrange(30)):
        start, end = sorted(rng.sample(range(41), 2))
        if seed % 2 or all(end <= s or start >= e or (s <= start and end <= e) or (start <= s and e <= end) for s, e in spans):
            spans.append((start, end))
    make = [lambda s, e: op("op", s, e - s), lambda s, e: annotation("a", s, e - s)]
    trace = linked(
        *(rng.choice(make)(*span) for span in spans),
        call("cudaLaunchKernel", rng.randrange(35), rng.randrange(1, 6), 1),
        kernel(ADD, 90, 1, 1),
    )
    rows, _ = trace.cpu_spans
    times, found = innermost_over_time(trace.slices, trace.parent, rows)
    for moment_ns in range(-500, 42_000, 500):
        open_rows = [row for row in rows if trace.slices.start_ns[row] <= moment_ns < trace.slices.end_ns[row]]
        assert found[np.searchsorted(times, moment_ns, "right") - 1] == max(open_rows, default=-1), moment_ns


def test_unions():
    start, end, group = (np.array(x, np.int64) for x in ([5, 0, 8, 0, 30], [10, 6, 9, 4, 31], [0, 0, 0, 1, 0]))
    assert union_ns(start, end) == 11  # 0 to 10, 30 to 31
    assert unions_ns(start, end, group, 3).tolist() == [11, 4, 0]
    assert union_ns(start[:0], end[:0]) == 0
    assert unions_ns(start[:0], end[:0], group[:0], 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("ends", "slack", "crossing"), [((5, 9), 0, False), ((6, 9), 0, True), ((6, 9), 1, False), ((9, 6), 3, True)]
)
def test_overlaps(ends, slack, crossing):
    assert has_overlaps(np.array([0, 5]), np.array(ends), slack) is crossing


def test_a_union_and_what_lies_within_it():
    start, end = np.array([0, 2, 10, 10, 20, 30]), np.array([5, 4, 15, 12, 20, 31])
    union = merged(start, end)
    assert [part.tolist() for part in union] == [[0, 10, 20, 30], [5, 15, 20, 31]]
    every = [(a, b) for a in range(-2, 34) for b in range(a, 34)]
    covered = {moment for a, b in zip(*union, strict=True) for moment in range(a, b)}
    for a, b in every:
        assert within_ns(np.array([a]), np.array([b]), union) == len(covered & set(range(a, b))), (a, b)
    assert within_ns(np.array([0, 12]), np.array([3, 40]), union) == 3 + 3 + 1
    empty = merged(start[:0], end[:0])
    assert [len(part) for part in empty] == [0, 0] and within_ns(start, end, empty) == 0


def test_groups_are_in_the_order_of_their_keys():
    order, starts = grouped(np.array([1, 0, 1, 0]), np.array([0, 1, 0, 0]))
    assert (order.tolist(), starts.tolist()) == ([3, 1, 0, 2], [0, 1, 2])
    order, starts = grouped(np.arange(10_000) % 2)  # within a group in their own order, of however many
    assert order.tolist() == [*range(0, 10_000, 2), *range(1, 10_000, 2)] and starts.tolist() == [0, 5000]


@pytest.mark.parametrize(("outstanding", "blocked"), [(900, 5), (899, 4), (895, 0)])
def test_a_launch_waits_where_its_devices_queue_is_full(linked, outstanding, blocked):
    """Of two devices, one has as many launches outstanding; the long ones among those that find it so are blocked."""
    early = [launch(0, 9000), kernel("a", 1, 1, 9000)]  # device 0 is idle
    queued = [e for n in range(outstanding) for e in (launch(10 + n * 0.01, n), kernel("a", 1000 + n, 1, n, device=1))]
    late = [
        e
        for n in range(5)
        for e in (call("cudaLaunchKernel", 100 + 60 * n, 50, 5000 + n), kernel("a", 5000 + n, 1, 5000 + n, device=1))
    ]
    short = [call("cudaLaunchKernel", 90, 10, 6000), kernel("a", 6000, 1, 6000, device=1)] if outstanding == 900 else []
    trace = linked(*early, *queued, *late, *short)
    assert len(trace.waits) == blocked and set(trace.waits.duration_us.tolist()) <= {50.0}


def test_each_device_has_a_queue_of_its_own(linked):
    """Together 1,000 launches are outstanding, of each device 500."""
    queued = [e for n in range(1000) for e in (launch(10 + n * 0.01, n), kernel("a", 1000 + n, 1, n, device=n % 2))]
    late = [
        e for n in range(5) for e in (call("cudaLaunchKernel", 100 + 60 * n, 50, 5000 + n), kernel("a", 5000 + n, 1, 5000 + n))
    ]
    assert len(linked(*queued, *late).waits) == 0


def test_what_a_launch_usually_takes_is_told_by_those_that_found_room(linked):
    """Half of them find the queue full, and take as long: the three before do not."""
    room = [e for n in range(3) for e in (call("cudaLaunchKernel", 5 * n, 1, 9000 + n), kernel("a", 5000 + n, 1, 9000 + n))]
    graph = [call("cudaGraphLaunch", 20 + n * 0.01, 0.01, n) for n in range(900)]
    queued = [kernel("a", 1000 + n, 1, n) for n in range(900)]
    late = [
        e for n in range(5) for e in (call("cudaLaunchKernel", 100 + 60 * n, 50, 8000 + n), kernel("a", 6000 + n, 1, 8000 + n))
    ]
    assert linked(*room, *graph, *queued, *late).waits.duration_us.tolist() == [50] * 5


def test_ops_nest_on_every_thread_whatever_another_one_holds(linked):
    """The first thread of the file has launches alone."""
    trace = linked(*on(9, launch(1, 1)), op("aten::linear", 0, 50), op("aten::mm", 5, 20), launch(10, 2),
                   kernel("a", 60, 5, 1), kernel("b", 70, 5, 2))  # fmt: skip
    assert ops_of(trace) == {"a": None, "b": "aten::mm"}


def test_steps_that_meet_are_both_steps(linked, tmp_path):
    events = [annotation("it 0", 0, 50), annotation("it 1", 50, 50), annotation("it 2", 60, 10)]
    trace = load(write(tmp_path / "s.json", *events), steps_from=re.compile("it"))
    assert trace.steps.names == ["it 0", "it 1"] and trace.annotations.names == ["it 2"]
    with pytest.raises(LookupError, match="no annotation matches 'no'; there are none at all"):
        load(write(tmp_path / "n.json", op("a", 0, 1)), steps_from=re.compile("no"))
    with pytest.raises(LookupError, match=r"there are 'a', 'b', 'c', 'd', 'e'$"):
        load(write(tmp_path / "m.json", *(annotation(name, 0, 1) for name in "fedcba")), steps_from=re.compile("no"))


def test_a_blocking_copy_whose_gpu_event_begins_behind_it_is_a_wait(linked):
    trace = linked(step(0, 0, 100), call("cudaMemcpy", 0, 20, 1), memcpy(21, 4, 1, name="Memcpy HtoD (Pageable -> Device)"))
    assert trace.waits.names == ["cudaMemcpy"]
