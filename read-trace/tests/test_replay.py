"""A run played again: each rule on a few events with the times worked out by hand, and what holds for every recording."""

from pathlib import Path

import numpy as np
import pytest
from reader_helpers import GALLERY
from reader_helpers.events import ADD, GEMM, call, event, kernel, launch, memcpy, op, step, write
from trace_reader import load, read
from trace_reader.analysis.replay import replay as replaying
from trace_reader.analysis.replay.edits import NEVER_NS
from trace_reader.analysis.replay.plain_run import RunWithoutProfiler
from trace_reader.analysis.replay.replay import Replay
from trace_reader.analysis.trace.step_facts import step_period_us

BACKWARD, LOADER = {"pid": 1, "tid": 2}, {"pid": 1, "tid": 3}
RECORDED = sorted(path for folder in ("h200", "llm", "several_gpus") for path in (GALLERY.parent / folder).rglob("*.json*"))
RECORDED = [path for path in RECORDED if "traceEvents" in path.name or path.stem not in ("inductor_choice", "machine", "spread")]


@pytest.fixture
def replay(tmp_path):
    return lambda *events: Replay(load(write(tmp_path / "t.json", *events)))


def with_cpu(replay, share):
    """Return the times between the nodes if the CPU took this share of its time between its calls."""
    after_ns = replay.nodes.after_ns.copy()
    nodes = replay.stretches.node
    after_ns[nodes, 0] = (after_ns[nodes, 0] * share).astype(np.int64)
    return after_ns


def at_share(replay, share):
    return replay.play(with_cpu(replay, share)).step_us


def test_two_steps_at_one_moment_take_no_time_and_no_other(tmp_path):
    """As a damaged file has them: from the end of the one to the end of the other nothing passes."""
    events = [step(0, 0, 100), step(1, 0, 100), op("aten::mm", 5, 10), launch(6, 1), kernel(GEMM, 20, 10, 1)]
    run = RunWithoutProfiler(load(write(tmp_path / "t.json", *events)))
    played = run.replay.play()
    assert (played.step_us, run.recorded_times(played)) == (0, 1)


def test_a_step_that_waits_for_the_gpu_does_not_gain_by_a_faster_cpu(replay):
    run = replay(
        step(0, 0, 20), step(1, 20, 20), launch(2, 1), launch(22, 2), kernel(GEMM, 10, 50, 1), kernel(GEMM, 61, 50, 2),
    )  # fmt: skip
    # From 60 to 111: the second kernel comes 1 µs after the first one. With no time between the calls, the launches are at 0 and
    # 1 (a launch takes 1): the second kernel is still the first one's next.
    assert (run.play().step_us, at_share(run, 0)) == (51, 51)


def test_a_step_that_waits_for_the_cpu_ends_sooner_by_what_the_cpu_saves_until_the_gpu_is_the_limit(replay):
    run = replay(
        step(0, 0, 100), step(1, 100, 100), launch(80, 1), launch(180, 2), kernel(GEMM, 86, 10, 1), kernel(GEMM, 186, 10, 2),
    )  # fmt: skip
    # The CPU ends the steps: 100. At half the time between calls: steps end at 40 + 1 + 9.5, and again so much later.
    assert (run.play().step_us, at_share(run, 0.5)) == (100, 50.5)
    # With none: launches at 0 and 1, the first kernel ends at 6 + 10, the second at once after it, and 10 later.
    assert at_share(run, 0) == 10


def test_a_call_that_synchronizes_ends_with_the_last_event_launched_before_it(replay):
    run = replay(
        step(0, 0, 100), step(1, 100, 100),
        launch(10, 1), kernel(GEMM, 15, 40, 1), call("cudaDeviceSynchronize", 80, 10, 3),
        launch(110, 2), kernel(GEMM, 115, 40, 2), call("cudaDeviceSynchronize", 180, 10, 4),
    )  # fmt: skip
    # Recorded, the GPU was done before the CPU asked. With no time between calls, the launch is at 0, the kernel 5 to 45 and the
    # call ends 2 later: so it goes in each step.
    assert (run.play().step_us, at_share(run, 0)) == (100, 47)


def test_a_call_that_waited_ends_as_long_after_the_event_as_it_did(replay):
    run = replay(
        step(0, 0, 100), step(1, 100, 100),
        launch(10, 1), kernel(GEMM, 15, 60, 1), call("cudaStreamSynchronize", 20, 58, 3),
        launch(110, 2), kernel(GEMM, 115, 60, 2), call("cudaStreamSynchronize", 120, 58, 4),
    )  # fmt: skip
    # With no time between calls: launch 0, kernel 5 to 65, the call's end 3 after that.
    assert (run.play().step_us, at_share(run, 0)) == (100, 68)


def test_a_blocking_copy_ends_with_its_own_copy(replay):
    pageable = "Memcpy DtoH (Device -> Pageable)"
    run = replay(
        step(0, 0, 100), step(1, 100, 100),
        call("cudaMemcpyAsync", 40, 30, 1), memcpy(48, 20, 1, name=pageable),
        call("cudaMemcpyAsync", 140, 30, 2), memcpy(148, 20, 2, name=pageable),
    )  # fmt: skip
    # Each call takes 8 until its copy begins, 20, and 2: that is left with no time between calls.
    assert (run.play().step_us, at_share(run, 0)) == (100, 30)


def test_a_launch_into_a_full_queue_waits_for_the_event_that_makes_room(replay):
    events = [step(0, 0, 3000), step(1, 3000, 3000)]
    for n in range(1000):
        events += [launch(10 + n * 1.5, n + 1), kernel(ADD, 3000 + n * 2, 2, n + 1)]
    events += [call("cudaLaunchKernel", 1600, 1500, 2000), kernel(ADD, 5000, 2, 2000)]
    run = replay(*events)
    (call_row,) = [row.row for row in run.trace.calls if row.duration_us == 1500]
    place = run.moments.place(np.array([call_row]), end=True)
    # It ended at 3100, as the kernel of 3098 to 3100 did: with the CPU's time gone that kernel still ends at its time.
    assert run.nodes.times_ns()[run.number[place]].tolist() == [3_100_000]
    earlier = run.nodes.times_ns(with_cpu(run, 0))[run.number[place]].tolist()
    launches_us = 1000 * 1  # what the thousand calls take themselves; the first kernel comes so long after the first of them
    assert earlier == [pytest.approx((2990 + 100) * 1000, abs=launches_us * 1000)]


def test_an_event_that_waited_for_another_stream_ends_after_that_one(replay):
    run = replay(
        step(0, 0, 10), step(1, 10, 10),
        launch(1, 1), launch(3, 2), kernel(GEMM, 6, 50, 1, stream=7), kernel(GEMM, 57, 30, 2, stream=8),
        launch(11, 3), launch(13, 4), kernel(GEMM, 88, 50, 3, stream=7), kernel(GEMM, 139, 30, 4, stream=8),
    )  # fmt: skip
    assert run.play().step_us == 169 - 87
    after_ns = run.nodes.after_ns.copy()
    # Half the time of stream 7's kernels: what waited for them comes so much sooner, 2 x 25 in two steps, 25 of it before the
    # first step's end.
    for node in run.gpu_nodes[[0, 1]]:
        after_ns[node] -= 25_000
    assert run.play(after_ns).step_us == 82 - 25


def test_the_backward_passs_thread_goes_on_where_the_other_one_stopped(replay):
    node = "autograd::engine::evaluate_function: MmBackward0"
    run = replay(
        step(0, 0, 100), step(1, 100, 100),
        launch(10, 1), kernel(GEMM, 15, 5, 1), event("cpu_op", node, 40, 40, BACKWARD),
        event("cuda_runtime", "cudaLaunchKernel", 60, 1, BACKWARD, correlation=2), kernel(GEMM, 65, 5, 2),
        launch(110, 3), kernel(GEMM, 115, 5, 3), event("cpu_op", node, 140, 40, BACKWARD),
        event("cuda_runtime", "cudaLaunchKernel", 160, 1, BACKWARD, correlation=4), kernel(GEMM, 165, 5, 4),
    )  # fmt: skip
    # 98 between calls, and two launches of 1: half of that, and 2.
    assert (run.play().step_us, at_share(run, 0.5)) == (100, 51)


def test_a_thread_that_runs_beside_does_not_hold_up_the_steps(replay):
    run = replay(
        step(0, 0, 100), step(1, 100, 100), launch(10, 1), kernel(GEMM, 15, 5, 1), launch(110, 2), kernel(GEMM, 115, 5, 2),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 70, LOADER),
        event("cuda_runtime", "cudaStreamSynchronize", 130, 60, LOADER),
    )  # fmt: skip
    assert (run.play().step_us, at_share(run, 0.5)) == (100, 50.5)


def test_a_call_of_another_thread_comes_after_the_steps_last_moment_before_it(replay):
    """It is the program that hands it work: in a faster program it comes sooner."""
    run = replay(
        step(0, 0, 100), step(1, 100, 100), launch(10, 1), kernel(GEMM, 15, 5, 1), launch(110, 2), kernel(GEMM, 115, 5, 2),
        event("cuda_runtime", "cudaLaunchKernel", 120, 2, LOADER, correlation=3), kernel(ADD, 130, 5, 3, stream=9),
    )  # fmt: skip
    (row,) = [one.row for one in run.trace.calls if one.duration_us == 2]
    place = run.moments.place(np.array([row]), end=False)
    assert run.moments.at_ns[run.earlier[place]].tolist() == [111_000]  # the end of the launch before


def test_a_graphs_events_come_after_its_launch_and_after_each_other(replay):
    run = replay(
        step(0, 0, 60), step(1, 60, 60),
        call("cudaGraphLaunch", 40, 10, 1), kernel(GEMM, 52, 20, 1), kernel(ADD, 73, 20, 1),
        call("cudaGraphLaunch", 100, 10, 2), kernel(GEMM, 112, 20, 2), kernel(ADD, 133, 20, 2),
    )  # fmt: skip
    # With no time between calls: launches at 0 and 10, the kernels at 12, 33, then queued 1 after each other.
    assert (run.play().step_us, at_share(run, 0)) == (60, 42)


def test_a_single_step_counts_from_its_start(replay):
    run = replay(step(0, 5, 20), launch(10, 1), kernel(GEMM, 20, 30, 1))
    assert run.play().step_us == 45
    with pytest.raises(ValueError, match=r"^a trace without steps is not played again$"):
        replay(kernel(GEMM, 20, 30, 1)).play()


def test_of_a_long_recording_the_first_steps_can_be_played_alone(replay, tmp_path):
    events = []
    for n, took in enumerate((100, 100, 150, 900)):
        at = (0, 100, 200, 350)[n]
        events += [step(n, at, took), launch(at + 10, n), kernel(GEMM, at + 15, 5, n), op("aten::sort", at + 20, took - 30)]
    trace = load(write(tmp_path / "long.json", *events))
    assert [Replay(trace, steps).play().step_us for steps in (2, 3, 4, None)] == [100, 125, 1150 / 3, 1150 / 3]
    assert len(Replay(trace, 2).nodes.recorded_ns) == 2 * (2 + 2 + 1)  # of a step, of a call, an event


def test_what_the_time_was_spent_on(replay):
    run = replay(
        step(0, 0, 100), step(1, 100, 100), launch(80, 1), launch(150, 2), kernel(GEMM, 86, 14, 1), kernel(GEMM, 156, 64, 2),
    )  # fmt: skip
    # Back from 220: the kernel 64, its latency 6, the CPU from 100 to 150.
    assert run.play().shares == pytest.approx(
        {"compute": 64 / 120, "cpu": 50 / 120, "latency": 6 / 120, "input": 0, "communication": 0, "copy": 0}
    )


def test_what_a_dataloader_took_is_input(replay):
    loading = event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100, 30)
    run = replay(
        step(0, 0, 100), step(1, 100, 100), loading,
        launch(80, 1), launch(150, 2), kernel(GEMM, 86, 14, 1), kernel(GEMM, 156, 64, 2),
    )  # fmt: skip
    shares = run.play().shares
    assert (shares["input"], shares["cpu"]) == pytest.approx((30 / 120, 20 / 120))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def test_every_recording_is_played_again_as_it_was(path: Path):
    """Unchanged, each node at its time, and the step's as the report has it; with less of the CPU's time never longer, and never
    shorter than the work of the busiest stream. The CPU's share is the critical path's, which is found another way.
    """
    trace = load(str(path))
    if not len(trace.steps):
        pytest.skip("the recording has no steps")
    run = Replay(trace)
    assert np.array_equal(run.nodes.times_ns(), run.nodes.recorded_ns)
    recorded_us = step_period_us(trace)
    if recorded_us is not None:
        assert run.play().step_us == pytest.approx(recorded_us, abs=1e-6)
    times_us = [at_share(run, share) for share in (1, 0.75, 0.5, 0.25, 0)]
    assert times_us == sorted(times_us, reverse=True) and times_us[0] == run.play().step_us
    assert sum(run.play().shares.values()) == pytest.approx(1, abs=1e-3)
    facts = read(str(path))
    if facts.critical_path and len(facts.steps) >= 3 and len(facts.critical_paths) == 1 and facts.world_size in (None, 1):
        assert run.play().shares["cpu"] == pytest.approx(facts.recorded_critical_path.classes["cpu"], abs=0.12)


@pytest.mark.parametrize("seed", range(40))
def test_nodes_that_are_played_together_come_as_one_by_one(seed, monkeypatch):
    """Of any graph: chains, runs of nodes that wait for the one before them, and waits that are gone."""
    monkeypatch.setattr(replaying, "LEAST_TOGETHER", 2)
    draw = np.random.default_rng(seed)
    n, columns = 200, 3 + seed % 2
    waits_for = np.full((n, columns), -1)
    for node in range(1, n):
        waits_for[node, 0] = node - 1 if draw.random() < 0.7 else draw.integers(0, node)
        for column in range(1, columns):
            if draw.random() < 0.3:
                waits_for[node, column] = node - 1 if draw.random() < 0.5 else draw.integers(0, node)
    after_ns = np.where(waits_for >= 0, draw.integers(0, 1000, (n, columns)), 0)
    after_ns[draw.random((n, columns)) < 0.05 * (seed % 3)] = NEVER_NS
    after_ns[0, 0] = -replaying.LONG_AGO_NS
    nodes = replaying.Nodes(np.zeros(n, np.int64), waits_for.astype(np.int32), after_ns)
    one_by_one = nodes.begun()
    nodes.play(one_by_one, after_ns, 0, n)
    come = np.array(one_by_one[:-1]) > NEVER_NS // 2  # what waits for nothing that is left comes long ago
    assert (nodes.times_ns()[come] == np.array(one_by_one[:-1])[come]).all() and come[0]


def test_of_a_run_whose_waits_are_gone_each_node_comes_when_its_launch_does():
    """Of 100 kernels, each launched from the first node, and waiting no more for the one before it."""
    n = 101
    waits_for, after_ns = np.full((n, 3), -1, np.int32), np.zeros((n, 3), np.int64)
    after_ns[0, 0] = -replaying.LONG_AGO_NS
    waits_for[1:, 0], after_ns[1:, 0] = 0, 10 * np.arange(1, n)
    waits_for[2:, 1], after_ns[2:, 1] = np.arange(1, n - 1), NEVER_NS
    nodes = replaying.Nodes(np.zeros(n, np.int64), waits_for, after_ns)
    assert nodes.chains.runs[-1][2]  # they are played together
    assert nodes.times_ns().tolist() == [10 * node for node in range(n)]
