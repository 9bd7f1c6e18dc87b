"""What limits a run: each branch of the definition on a few events, with the path walked by hand, and beside a slow walk that
follows the definition word by word."""

import json
import random

import pytest
from reader_helpers import GALLERY
from reader_helpers.events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, on, op, step, write
from trace_reader import analyze, cli, load, read
from trace_reader.analysis.trace import cpu_time
from trace_reader.analysis.trace.critical_path import critical_path, windows
from trace_reader.findings.verdict import verdict_sentence
from trace_reader.link import nesting
from trace_reader.write import json_output

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CLASSES = ("compute", "communication", "copy", "latency", "input", "cpu", "unknown")


def paths_of(trace):
    cpu = cpu_time.CpuActivity(trace)
    return tuple(critical_path(trace, cpu, window) for window in windows(trace))


@pytest.fixture
def paths(tmp_path):
    return lambda *events, **header: paths_of(load(write(tmp_path / "t.json", *events, **header)))


def spent(path):
    """Return the window and the classes that are not 0."""
    times = {name: getattr(path, f"{name}_us") for name in CLASSES}
    assert sum(times.values()) == pytest.approx(path.window_us, abs=1e-6)
    return path.window_us, {name: us for name, us in times.items() if us}


def named(parts):
    return {part.name: part.us for part in parts}


def test_a_full_queue_is_the_gpus_time(paths):
    (path,) = paths(
        step(0, 0, 20), launch(1, 1), launch(2, 2), launch(3, 3),
        kernel(GEMM, 10, 30, 1), kernel(ADD, 40, 30, 2), kernel(GEMM, 72, 28, 3),
    )  # fmt: skip
    # from 100: GEMM 28, a gap of 2 (the GPU was busy at the launch), 30, 30, from the first launch 9, the CPU before it 1
    assert spent(path) == (100, {"compute": 88, "latency": 11, "cpu": 1})
    assert [(k.name, k.kind, k.us) for k in path.kernels] == [(GEMM, "compute", 58), (ADD, "compute", 30)]
    assert (path.verdict, named(path.cpu)) == ("gpu-bound", {"silent": 1})


def test_a_late_cpu_is_the_cpus_time(paths):
    (path,) = paths(
        step(0, 0, 100), op("aten::mm", 5, 20), launch(10, 1), op("aten::add", 60, 30), launch(80, 2),
        kernel(GEMM, 20, 10, 1), kernel(ADD, 90, 10, 2),
    )  # fmt: skip
    # ADD 90 to 100; its launch began at 80, when the GPU had nothing to do; before it nothing waited: all is the CPU's
    assert spent(path) == (100, {"compute": 10, "latency": 10, "cpu": 80})
    # to 5 python, in mm 5 to 10, launch 10 to 11, mm to 25, python to 60, add to 80
    assert named(path.cpu) == {"silent": 40, "op": 39, "launch": 1}
    assert named(path.ops) == {"aten::mm": 20, "aten::add": 20}


def test_a_blocking_copy_leads_back_to_its_copy(paths):
    (path,) = paths(
        step(0, 0, 100), call("cudaMemcpyAsync", 20, 40, 1), memcpy(30, 28, 1, name="Memcpy DtoH (Device -> Pageable)"),
        launch(65, 2), kernel(ADD, 70, 10, 2),
    )  # fmt: skip
    # ADD 10; to its launch 5; the CPU from the call's end 5; from there to the copy's end 2; copy 28; to its launch 10; CPU 20
    assert spent(path) == (80, {"compute": 10, "latency": 17, "cpu": 25, "copy": 28})


@pytest.mark.parametrize(
    ("name", "start", "end", "is_a_wait"),
    [("cudaMemcpyAsync", 20, 26, False), ("cudaMemcpyAsync", 20, 57.4, False), ("cudaMemcpyAsync", 20, 57.5, True),
     ("cudaMemcpy", 55, 60, False), ("hipMemcpyWithStream", 20, 60, True)],
)  # fmt: skip
def test_a_copy_waits_if_its_copy_ended_inside_it(paths, name, start, end, is_a_wait):
    """Long ones, too, return before; of 5 µs or less none is said to wait. Clocks may differ by half a microsecond."""
    (path,) = paths(
        step(0, 0, 100), call(name, start, end - start, 1), memcpy(57, 1, 1), launch(80, 2), kernel(ADD, 90, 5, 2)
    )  # fmt: skip
    assert (path.copy_us > 0) is is_a_wait


def test_a_synchronize_each_step(paths):
    steps = []
    for n in range(2):
        t = 100 * n
        steps += [step(n, t, 90), op("aten::mm", t + 10, 10), launch(t + 12, n + 1), kernel(GEMM, t + 20, 40, n + 1),
                  call("cudaDeviceSynchronize", t + 20, 42, 50 + n)]  # fmt: skip
    (path,) = paths(*steps)
    # 160 back: 40, 8 to the launch at 112, CPU to 62, its end to the kernel's 2, 40, 8, CPU from 0 to 12
    assert spent(path) == (160, {"compute": 80, "latency": 18, "cpu": 62})


@pytest.mark.parametrize(("dur", "cpu_us"), [(5, 80), (6, 5 + 80 - 42)])
def test_a_synchronize_of_5_us_or_less_did_not_wait(paths, dur, cpu_us):
    sync = call("cudaStreamSynchronize", 36, dur, 9)
    (path,) = paths(step(0, 0, 100), launch(5, 1), kernel(ADD, 10, 30, 1), sync, launch(80, 2), kernel(ADD, 90, 5, 2))
    assert path.cpu_us == cpu_us


def test_an_event_that_ends_half_a_microsecond_after_the_call(paths):
    for end, waited in ((41.5, True), (41.6, False)):
        (path,) = paths(
            step(0, 0, 100), launch(5, 1), kernel(ADD, 10, end - 10, 1), call("cudaDeviceSynchronize", 20, 21, 9),
            launch(80, 2), kernel(ADD, 90, 5, 2),
        )  # fmt: skip
        # the CPU from 80 to 41; the kernel counts to the call's end only
        assert (path.compute_us, path.cpu_us) == ((36, 44) if waited else (5, 80))


def test_a_free_waits_and_works(paths):
    (path,) = paths(
        step(0, 0, 100), launch(5, 1), kernel(ADD, 10, 20, 1), call("cudaFree", 15, 35, 9), launch(80, 2), kernel(ADD, 90, 5, 2),
    )  # fmt: skip
    # ADD 5; 10; CPU from 80 to 50, and the free's own work from 50 to the kernel's end at 30; 20; 5 to the launch; CPU 5
    assert spent(path) == (95, {"compute": 25, "latency": 15, "cpu": 55})
    assert named(path.cpu) == {"silent": 35, "memory": 20}


def test_two_streams_are_one_device(paths):
    (path,) = paths(
        step(0, 0, 50), launch(1, 1), launch(2, 2), launch(3, 3),
        kernel(GEMM, 10, 50, 1), kernel(ADD, 15, 60, 2, stream=8), kernel(GEMM, 75, 25, 3),
    )  # fmt: skip
    # GEMM 25; then what ended last before it: ADD, 15 to 75; before 15 nothing had ended: to its launch; from 10 on GEMM runs
    assert spent(path) == (100, {"compute": 90, "latency": 8, "cpu": 2})


def test_an_event_without_a_launch_waited_for_something_unknown(paths):
    (path,) = paths(step(0, 0, 50), launch(1, 1), kernel(GEMM, 10, 30, 1), kernel("lost", 60, 10, 99), launch(45, 2),
                    kernel(ADD, 80, 20, 2))  # fmt: skip
    # ADD 20; 10 of latency, for lost ended after the launch; 10; from 60 to 40 unknown; GEMM 30; 9; 1
    assert spent(path) == (100, {"compute": 60, "latency": 19, "cpu": 1, "unknown": 20})


def test_the_first_event_without_a_launch(paths):
    (path,) = paths(step(0, 0, 50), kernel("lost", 60, 10, 99), launch(45, 2), kernel(ADD, 80, 20, 2))
    assert spent(path) == (100, {"compute": 30, "latency": 10, "unknown": 60})


def test_autograds_thread_launches(paths):
    (path,) = paths(
        step(0, 0, 100), annotation("backward", 5, 90), op("aten::mul", 6, 4), launch(7, 1),
        *on(2, op("MmBackward0", 20, 40), op("aten::mm", 30, 20), launch(45, 2)),
        kernel(ADD, 10, 5, 1), kernel(GEMM, 60, 40, 2),
    )  # fmt: skip
    assert spent(path) == (100, {"compute": 40, "latency": 15, "cpu": 45})
    # thread 2 from 20 to 45; before, it shows nothing, and the steps' thread does: 0 to 5, the annotation, mul with a launch
    assert named(path.cpu) == {"op": 28, "annotation": 11, "silent": 5, "launch": 1}
    assert named(path.ops) == {"aten::mm": 15, "MmBackward0": 10, "aten::mul": 4}


def test_a_synchronize_of_the_steps_thread_counts_for_launches_of_another(paths):
    (path,) = paths(
        step(0, 0, 100), launch(5, 1), kernel(ADD, 10, 30, 1), call("cudaDeviceSynchronize", 20, 22, 9),
        *on(3, call("cudaDeviceSynchronize", 20, 30, 10)),  # another's, whom nobody asked
        *on(2, launch(60, 2)), kernel(GEMM, 70, 30, 2),
    )  # fmt: skip
    assert spent(path) == (100, {"compute": 60, "latency": 17, "cpu": 23})


def test_waiting_for_the_data_loader_is_input(paths):
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 60)
    (path,) = paths(
        step(0, 0, 100), loader, op("aten::stack", 20, 30), op("aten::mm", 75, 10), launch(80, 1), kernel(GEMM, 85, 15, 1)
    )
    assert spent(path) == (100, {"compute": 15, "latency": 5, "input": 60, "cpu": 20})
    assert (path.verdict, named(path.cpu), named(path.ops)) == ("input-bound", {"silent": 15, "op": 5}, {"aten::mm": 5})


def test_nccl_beside_compute(paths):
    hidden, exposed = (
        paths(
            step(0, 0, 20), launch(1, 1), launch(2, 2), launch(3, 3), kernel(GEMM, 10, 40, 1),
            kernel(NCCL, 20, end - 20, 2, stream=17), kernel(ADD, max(end, 50), 10, 3),
        )[0]
        for end in (45, 90)
    )  # fmt: skip
    assert spent(hidden) == (60, {"compute": 50, "latency": 9, "cpu": 1})
    # NCCL from 20 to 90, of which 30 lie under GEMM: these would not be saved without it.
    assert spent(exposed) == (100, {"compute": 50, "communication": 40, "latency": 8, "cpu": 2})
    assert (exposed.verdict, [(kernel.kind, kernel.us) for kernel in exposed.kernels]) == (
        "gpu-bound", [("communication", 40), ("compute", 40), ("compute", 10)]
    )  # fmt: skip


@pytest.mark.parametrize(("gap", "named_so"), [(1000, "latency"), (1000.001, "unknown")])
def test_a_wait_of_over_a_millisecond_is_not_explained(paths, gap, named_so):
    (path,) = paths(step(0, 0, 20), launch(10, 1), kernel(GEMM, 10 + gap, 100, 1))
    assert getattr(path, f"{named_so}_us") == gap
    (queued,) = paths(step(0, 0, 20), launch(1, 1), launch(2, 2), kernel(ADD, 5, 10, 1), kernel(GEMM, 15 + gap, 100, 2))
    assert getattr(queued, f"{named_so}_us") == pytest.approx(gap + (4 if named_so == "latency" else 0))


def test_steps_without_gpu_work_have_no_path(paths, tmp_path):
    events = [step(0, 0, 20), op("aten::mm", 5, 5), launch(100, 1), kernel(GEMM, 110, 10, 1)]
    assert paths(*events) == ()
    facts = read(str(tmp_path / "t.json"))
    assert (facts.verdict, facts.critical_path, facts.missing) == ("unknown", None, ("GPU work of the 1 recorded step",))
    assert verdict_sentence(facts) == "unknown: the trace lacks GPU work of the 1 recorded step"


def test_without_steps_the_window_begins_with_what_the_thread_does_that_launches(paths):
    (path,) = paths(op("aten::mm", 0, 9), launch(5, 1), kernel(GEMM, 10, 30, 1), launch(60, 2), kernel(ADD, 70, 35, 2))
    assert spent(path) == (105, {"compute": 35, "latency": 10, "cpu": 60})
    (early,) = paths(kernel("before", 2, 3, 99), launch(5, 1), kernel(GEMM, 10, 30, 1))
    assert early.window_us == 35


def test_the_first_of_three_steps_is_left_out_and_what_began_in_it_is_cut(paths):
    steps = [step(0, 0, 50), launch(10, 1), kernel(GEMM, 20, 60, 1), step(1, 50, 20), launch(55, 2), kernel(ADD, 80, 15, 2),
             step(2, 70, 10), launch(75, 3), kernel(ADD, 95, 5, 3)]  # fmt: skip
    (path,) = paths(*steps)
    assert spent(path) == (50, {"compute": 50})
    assert named(path.kernels) == {GEMM: 30, ADD: 20}
    (two,) = paths(*steps[:6])
    assert spent(two) == (95, {"compute": 75, "latency": 10, "cpu": 10})


def test_the_window_ends_with_what_the_steps_launched(paths):
    (path,) = paths(step(0, 0, 20), launch(5, 1), kernel(GEMM, 10, 30, 1), launch(50, 2), kernel(ADD, 60, 500, 2))
    assert spent(path) == (40, {"compute": 30, "latency": 5, "cpu": 5})


def test_each_device_has_a_path_and_that_which_ends_last_is_the_verdicts(paths, tmp_path):
    late, early = paths(
        step(0, 0, 50), launch(5, 1), launch(6, 2), launch(30, 3),
        kernel(GEMM, 10, 20, 1), kernel(NCCL, 10, 80, 2, device=1), kernel(ADD, 40, 20, 3),
    )  # fmt: skip
    assert (late.device, spent(late)) == (1, (90, {"communication": 80, "latency": 4, "cpu": 6}))
    assert (early.device, spent(early)) == (0, (60, {"compute": 40, "latency": 15, "cpu": 5}))
    facts = read(str(tmp_path / "t.json"))
    assert facts.verdict == "communication-bound"
    assert verdict_sentence(facts) == (
        "communication-bound: on GPU 1, which ends last, 89% of the critical path is communication (NCCL AllReduce 89%)"
    )


def test_what_the_cpu_did(paths):
    (path,) = paths(
        step(0, 0, 1000), annotation("forward", 100, 850), op("aten::empty", 200, 100), call("cudaMalloc", 220, 50, 1),
        event("cuda_driver", "cuMemAlloc_v2", 225, 10), op("torch_compile", 400, 200),
        op("_compile.compile_inner (dynamo_timed)", 420, 100), op("fake::op", 430, 50), call("cuModuleLoadData", 700, 30, 2),
        event("overhead", "Lazy Function Loading", 740, 20, {"pid": -1, "tid": 0}),
        event("overhead", "Activity Buffer Request", 770, 10, {"pid": -1, "tid": 0}),
        op("aten::mm", 735, 60), call("cudaStreamIsCapturing", 790, 2, 3), launch(900, 9), kernel(GEMM, 910, 90, 9),
    )  # fmt: skip
    assert spent(path)[1] == {"compute": 90, "latency": 10, "cpu": 900}
    assert named(path.cpu) == {
        "silent": 100,  # the step alone, before its first annotation
        "memory": 50,  # the driver's call is inside
        "op": 50 + 100 + 28,  # empty, torch_compile around compiling, mm without what is the driver's, the profiler's, a call
        "compilation": 100,
        "loading": 30 + 20,
        "profiler": 10,
        "call": 2,
        "annotation": 1000 - 100 - 50 - 178 - 100 - 50 - 10 - 2 - 100,
    }
    assert named(path.ops) == {"torch_compile": 100, "aten::empty": 100, "fake::op": 50, "aten::mm": 60,
                               "_compile.compile_inner (dynamo_timed)": 50}  # fmt: skip


def test_what_nothing_is_recorded_in_at_a_steps_ends_is_no_python(tmp_path):
    """40 before the first op and 110 after the last one; of 39, as long as a module's call, it may be Python."""

    def cpu(*events):
        return named(read(write(tmp_path / "t.json", *events)).critical_path.cpu)

    assert cpu(step(0, 0, 1000), op("aten::mm", 40, 850)) == {"op": 850, "silent": 150}
    assert cpu(step(0, 0, 1000), op("aten::mm", 39, 922)) == {"op": 922, "silent": 78}


def test_clocks_that_disagree_do_not_make_it_walk_in_circles(paths):
    (path,) = paths(
        step(0, 0, 100), launch(50, 1), kernel(ADD, 49.8, 0.1, 1), call("cudaDeviceSynchronize", 30, 19.7, 5),
        launch(60, 2), kernel(ADD, 59.9, 0.2, 2), kernel("empty", 59.95, 0, 3), kernel("empty", 59.95, 0, 4),
    )  # fmt: skip
    spent(path)


# The definition again, word by word, one event at a time.


def slow_walk(trace, device):
    slices = trace.slices
    one = [a for a in trace.activities() if a.event.track[0] == device]

    def ns(us):
        return round(us * 1000)

    begin = {a.event.row: ns(a.event.start_us) for a in one}
    end = {row: int(slices.end_ns[row]) for row in begin}
    steps = [(ns(s.start_us), int(slices.end_ns[s.row])) for s in trace.steps]
    in_steps = [a for a in one if a.step is not None] if steps else one
    if not in_steps:
        return None
    if steps:
        first = steps[1 if len(steps) >= 3 else 0][0]
    else:
        first = min([*begin.values(), *(ns(a.call.start_us) for a in one if a.call)])
    last = max(end[a.event.row] for a in in_steps)
    if last <= first:
        return None
    order = sorted(
        (a for a in one if end[a.event.row] <= last), key=lambda a: (end[a.event.row], begin[a.event.row], a.event.row)
    )
    place = {a.event.row: n for n, a in enumerate(order)}
    steps_track = trace.steps[-1].track if steps else None
    copies = {a.call.row: place[a.event.row] for a in order if a.call}
    spent_on = []

    def spend(kind, start, stop):
        if stop > max(start, first):
            spent_on.append((kind, max(start, first), stop))

    def kind_of(a):
        return "communication" if a.event.name.startswith("nccl") else "compute" if a.event.kind.word == "kernel" else "copy"

    def waited_for(found, before):
        """(the call's end, place of the event, is a free) of each call that waited."""
        thread, moment = found
        best = None
        for c in trace.calls:
            c_end = int(slices.end_ns[c.row])
            c_start = int(slices.start_ns[c.row])
            if c.track not in (thread, steps_track) or c_end > moment or c_end - c_start <= 5000:
                continue
            if "Memcpy" in c.name:
                event = copies.get(c.row)
            elif "Synchronize" in c.name or "Free" in c.name:
                event = max((n for n, a in enumerate(order) if end[a.event.row] <= c_end + 500), default=None)
            else:
                continue
            if event is None or event >= before or not c_start <= end[order[event].event.row] <= c_end + 500:
                continue
            if best is None or (c_end, c.row) >= (best[0], best[3]):
                best = c_end, event, "Free" in c.name, c.row
        return best

    at, moment = len(order) - 1, last
    while at is not None and moment > first:
        a = order[at]
        row = a.event.row
        start = min(begin[row], moment)
        spend(kind_of(a), start, moment)
        if start <= first:
            break
        earlier = [n for n in range(at) if end[order[n].event.row] <= begin[row]]
        p = earlier[-1] if earlier else None
        if a.call is None:
            gap = end[order[p].event.row] if p is not None else first
            spend("unknown", gap, start)
            at, moment = p, gap
            continue
        launch_ns = int(slices.start_ns[a.call.row])
        if p is not None and end[order[p].event.row] >= launch_ns:
            gap = end[order[p].event.row]
            spend("unknown" if start - gap > 1_000_000 else "latency", gap, start)
            at, moment = p, gap
            continue
        gap = min(launch_ns, start)
        spend("unknown" if start - gap > 1_000_000 else "latency", gap, start)
        wait = waited_for((a.call.track, min(launch_ns, begin[row])), at)
        if wait is None:
            spend("cpu", first, gap)
            break
        c_end, at, is_free, _ = wait
        moment = min(end[order[at].event.row], c_end)
        spend("cpu", min(c_end, gap), gap)
        spend("cpu" if is_free else "latency", moment, min(c_end, gap))
    busy = moments(((begin[a.event.row], end[a.event.row]) for a in order if kind_of(a) != "communication"), first, last)
    on_gpu = sum(stop - start for kind, start, stop in spent_on if kind in ("compute", "communication", "copy"))
    if len(busy) and length(busy) >= 0.85 * (last - first) and length(busy) - on_gpu > 0.05 * (last - first):
        # Along the device alone: the CPU cannot have been what it waited for.
        spent_on.clear()
        at = len(order) - 1
        while at is not None and end[order[at].event.row] > first:
            a = order[at]
            spend(kind_of(a), begin[a.event.row], end[a.event.row])
            if begin[a.event.row] <= first:
                break
            earlier = [n for n in range(at) if end[order[n].event.row] <= begin[a.event.row]]
            at = earlier[-1] if earlier else None
            free = end[order[at].event.row] if at is not None else first
            launch_ns = free if a.call is None else min(max(int(slices.start_ns[a.call.row]), free), begin[a.event.row])
            late = begin[a.event.row] - launch_ns > 1_000_000
            spend("unknown" if a.call is None or late else "latency", launch_ns, begin[a.event.row])
            spend("cpu", free, launch_ns)
    # Beside a kernel, what is neither compute nor the CPU's costs nothing more than it.
    computing = moments(((begin[a.event.row], end[a.event.row]) for a in order if kind_of(a) == "compute"), first, last)
    times = dict.fromkeys(("compute", "communication", "copy", "latency", "cpu", "unknown"), 0)
    for kind, start, stop in spent_on:
        covered = 0 if kind in ("compute", "cpu") else sum(max(min(stop, b) - max(start, a), 0) for a, b in computing)
        times[kind] += stop - start - covered
        times["compute"] += covered
    return {name: us / 1000 for name, us in times.items()}


def moments(spans, first, last):
    """Return the union of spans between two moments."""
    found: list[list[int]] = []
    for start, stop in sorted((max(start, first), min(stop, last)) for start, stop in spans):
        if stop <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], stop)
        else:
            found.append([start, stop])
    return found


def length(spans):
    return sum(stop - start for start, stop in spans)


def random_trace(pick):
    events = []
    for n in range(pick.choice((0, 1, 2, 3, 5))):
        events.append(step(n, 100 * n, pick.choice((100, 90, 60))))
    names = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaFree", "cudaStreamSynchronize")
    for number in range(1, pick.randrange(2, 26)):
        t, lane = pick.randrange(0, 500), pick.choice((1, 1, 1, 2, 3))
        name = pick.choice(names)
        events += on(lane, call(name, t, pick.choice((1, 4, 6, 30, 80)), number))
        if pick.random() < 0.9 and name in names[:2]:
            start = max(t + pick.choice((-1, 0, 3, 10, 40, 1500)), 0)
            device, dur = pick.choice((0, 0, 0, 1)), pick.choice((0, 0.3, 5, 20, 60))
            correlation = number if pick.random() < 0.9 else 9999
            stream = pick.choice((7, 8))
            if "Memcpy" in name:
                made = memcpy(start, dur, number)
            else:
                made = kernel(pick.choice((GEMM, ADD, NCCL)), start, dur, correlation, stream, device)
            events.append(made)
    return events


@pytest.mark.parametrize("seed", range(40))
def test_random_traces_are_walked_as_the_definition_says(tmp_path, seed):
    pick = random.Random(seed)
    compared = 0
    for _ in range(15):
        trace = load(write(tmp_path / "t.json", *random_trace(pick)))
        found = {path.device: path for path in paths_of(trace)}
        for device in {a.event.track[0] for a in trace.activities()}:
            expected = slow_walk(trace, device)
            assert (expected is None) == (device not in found)
            if expected:
                path = found[device]
                assert {name: getattr(path, f"{name}_us") for name in expected if name != "cpu"} == pytest.approx(
                    {name: us for name, us in expected.items() if name != "cpu"}, abs=1e-6
                )
                assert path.cpu_us + path.input_us == pytest.approx(expected["cpu"], abs=1e-6)
                spent(path)
                compared += 1
    assert compared > 5


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*/*.json"))[::5], ids=lambda path: path.stem)
def test_recordings_are_walked_as_the_definition_says(path):
    trace = load(str(path))
    if not len(trace.work):
        pytest.skip("no GPU work")
    (found,) = paths_of(trace)
    expected = slow_walk(trace, found.device)
    assert {name: getattr(found, f"{name}_us") for name in expected} == pytest.approx(expected, abs=1e-6)
    spent(found)


def test_the_json_of_a_path(tmp_path):
    trace = load(
        write(
            tmp_path / "t.json", step(0, 0, 20), op("aten::mm", 5, 10), launch(8, 1), launch(9, 2), kernel(GEMM, 10, 30, 1),
            kernel(NCCL, 20, 60, 2, stream=8), memcpy(85, 15, 3),
        )
    )  # fmt: skip
    data = json.loads(json_output.write(json_output.trace_json(analyze(trace))))
    assert data["critical_path"] == {
        "device": 0, "verdict": "communication-bound", "regime": "communication-bound",
        "window_us": 80, "compute_us": 30, "communication_us": 40, "copy_us": 0,
        "latency_us": 1, "input_us": 0, "cpu_us": 9, "unknown_us": 0,
        "cpu": [{"what": "silent", "us": 5}, {"what": "op", "us": 3}, {"what": "launch", "us": 1}],
        "kernels": [{"name": NCCL, "us": 40}, {"name": GEMM, "us": 30}], "ops": [{"name": "aten::mm", "us": 4}],
    }  # fmt: skip
    assert data["critical_paths"] == [data["critical_path"]]
    assert data["timeline"] == {
        "window_us": 80, "compute_us": 30, "communication_us": 60, "exposed_communication_us": 40, "copy_us": 0,
        "exposed_copy_us": 0, "idle_us": 10,
    }  # fmt: skip
    assert (data["verdict"], data["missing"]) == ("communication-bound", [])


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_size_of_the_blocks_changes_nothing(tmp_path, monkeypatch, size):
    pick = random.Random(size)
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 30, 60)
    files = [write(tmp_path / f"{n}.json", loader, op("aten::mm", 5, 200), op("aten::mul", 20, 50), *random_trace(pick))
             for n in range(20)]  # fmt: skip
    files += map(str, sorted(GALLERY.glob("*/*.json"))[::7])
    whole = [read(file) for file in files]
    monkeypatch.setattr(cpu_time, "BLOCK", size)
    monkeypatch.setattr(nesting, "BLOCK", size)
    for file, facts in zip(files, whole, strict=True):
        again = read(file)
        assert (again.critical_paths, again.ops) == (facts.critical_paths, facts.ops)


def _kernels(n, *far_us):
    """So many kernels, one after the other, 10 us each; and others at these times."""
    times = [*(10 * k for k in range(n)), *far_us]
    return [e for k, at in enumerate(times) for e in (launch(at, k + 1), kernel(GEMM, at + 2, 8, k + 1))]


@pytest.mark.parametrize(
    ("n", "far_us", "left_out"),
    [
        (20, [2179], 1), (20, [2178], 0), (20, [-1989], 1), (20, [-1988], 0),
        (19, [5000], 1), (18, [5000], 0), (200, [90_000, 90_010], 2),
        (100, [90_000, 90_010], 0), (100, [90_000, -5_000_000], 2), (20, [90_000, 90_010], 0),
    ],
)  # fmt: skip
def test_a_few_events_far_from_the_rest_do_not_stretch_the_window(tmp_path, capsys, n, far_us, left_out):
    """Far: behind more than ten times what the others take, from 2 to 200. Few: a hundredth, or one."""
    path = write(tmp_path / "t.json", *_kernels(n, *far_us))
    facts = read(path)
    assert facts.outliers == left_out
    assert (facts.window_us <= 10 * n) is (left_out == len(far_us))
    assert (facts.verdict == "gpu-bound") is (left_out == len(far_us))
    assert cli.main([path]) == 0
    said = {
        0: "",
        1: "\n1 event far from all others is left out of the window\n",
        2: "\n2 events far from all others are left out",
    }
    assert said[left_out] in (out := capsys.readouterr().out) and ("far from all others" in out) is bool(left_out)


def test_in_recorded_steps_nothing_is_left_out(tmp_path):
    """There the steps say what belongs together."""
    path = write(tmp_path / "t.json", step(0, 0, 300), *_kernels(20), step(1, 50_000, 20), *_kernels(0, 50_001))
    facts = read(path)
    assert facts.outliers == 0 and facts.critical_path.window_us == 50_011


def test_a_long_kernel_on_another_stream_ends_where_it_ends(tmp_path):
    """What comes soon after it is not far."""
    beside = [launch(-5, 90), kernel(ADD, -3, 50_000, 90, stream=9)]
    assert read(write(tmp_path / "t.json", *beside, *_kernels(20, 50_100))).outliers == 0


def test_a_lone_op_of_a_run_without_a_gpu_does_not_stretch_its_window(tmp_path):
    path = write(tmp_path / "t.json", *(op("aten::mm", 10 * k, 9) for k in range(20)), op("aten::mm", 9000, 9))
    facts = read(path)
    assert (facts.outliers, facts.window_us, facts.critical_path.window_us) == (1, 199, 199)
