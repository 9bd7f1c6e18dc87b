"""Changes to a replay: made in any order, and together with others; what one takes away, another does not take again."""

from itertools import permutations

import numpy as np
import pytest
from reader_helpers import FAULTS
from reader_helpers.events import ADD, GEMM, call, kernel, launch, op, step, write
from reader_helpers.played import as_played  # noqa: F401  # in each test of this file
from trace_reader import examine, load
from trace_reader.analysis.replay.edits import (
    Edited,
    Effect,
    all_of,
    dropped,
    launched_at_once,
    scaled,
    skipped,
    surely,
    unlaunched,
    without_waits,
)
from trace_reader.analysis.replay.plain_run import PlainRun, RunWithoutProfiler
from trace_reader.analysis.replay.replay import Replay
from trace_reader.analysis.replay.what_if import Gain, gain_of, gains_together
from trace_reader.findings import choices
from trace_reader.model.rows import Rows

PERIOD = 200


def events(steps=3):
    """In each step of 200: an op of 50 with a kernel of 60, an op of 30 with a kernel of 20, a call that waits for both."""
    found = []
    for n in range(steps):
        at = n * PERIOD
        found += [
            step(n, at, PERIOD), op("aten::mm", at + 10, 50), launch(at + 30, 10 * n + 1), kernel(GEMM, at + 70, 60, 10 * n + 1),
            op("aten::add", at + 70, 30), launch(at + 80, 10 * n + 2), kernel(ADD, at + 130, 20, 10 * n + 2),
            call("cudaDeviceSynchronize", at + 120, 31, 10 * n + 3),
        ]  # fmt: skip
    return found


@pytest.fixture
def replay(tmp_path):
    return Replay(load(write(tmp_path / "t.json", *events())))


def after(replay, *edits):
    run = Edited(replay, replay.nodes.after_ns)
    for edit in edits:
        edit(run)
    return run.play().step_us


def kernels(replay, name):
    return replay.trace.work.where(replay.trace.work.is_named(lambda one: one == name))


def ops(replay, name):
    return replay.trace.ops.where(replay.trace.ops.is_named(name.__eq__))


def test_nothing_changed_is_the_recorded_run(replay):
    assert after(replay) == PERIOD and after(replay, all_of()) == PERIOD


def test_a_kernel_that_takes_half_as_long_ends_the_wait_sooner(replay):
    """By 10, not 30: the next one then comes as long after its launch at 80 as the first after its own, 40."""
    assert after(replay, scaled(kernels(replay, GEMM), 0.5)) == PERIOD - 10


def test_factors_of_each_kernel_are_its_own(replay):
    every = replay.trace.work
    factors = np.where(every.is_named(GEMM.__eq__), 0.5, 0.0)
    assert after(replay, scaled(every, factors)) == after(
        replay, scaled(kernels(replay, GEMM), 0.5), scaled(kernels(replay, ADD), 0)
    )


def test_what_is_gone_is_not_scaled_again_in_any_order(replay):
    gone, half = unlaunched(kernels(replay, GEMM)), scaled(kernels(replay, GEMM), 0.5)
    assert after(replay, gone, half) == after(replay, half, gone) == after(replay, gone)
    part, third = dropped(ops(replay, "aten::mm"), left_of_gpu=0.5), scaled(kernels(replay, GEMM), 1 / 3)
    for order in permutations([part, third]):
        run = Edited(replay, replay.nodes.after_ns)
        all_of(*order)(run)
        assert run.left[replay.work.is_named(GEMM.__eq__)] == pytest.approx([1 / 3] * 3)


def test_whoever_waited_for_a_kernel_that_is_gone_waits_for_what_that_waited_for(tmp_path):
    """In each step of 150 the second kernel, of 80, comes on another stream when the first has ended at 60; a call waits for
    both.
    """
    found = [e for n in range(3) for at in [150 * n] for e in (
        step(n, at, 149), op("aten::mm", at + 3, 3), launch(at + 4, 10 * n + 1), kernel(GEMM, at + 10, 50, 10 * n + 1),
        op("aten::add", at + 7, 3), launch(at + 8, 10 * n + 2), kernel(ADD, at + 61, 80, 10 * n + 2, stream=9),
        call("cudaDeviceSynchronize", at + 12, 130, 10 * n + 3),
    )]  # fmt: skip
    replay = Replay(load(write(tmp_path / "t.json", *found)))
    assert after(replay) == 150
    # What is left of a step: 60 to the first kernel's end, 1 to the call's, 8 to the next step; the op took 3.
    assert after(replay, dropped(ops(replay, "aten::add"))) == pytest.approx(69, abs=3)


def test_what_two_changes_skip_is_skipped_once(replay):
    """Of the 10 to 60 that the op takes, 10 to 40 and 20 to 60: of the 30 before its launch 20, once."""
    us = [np.array([(n * PERIOD + at) * 1000 for n in range(3)]) for at in (10, 40, 20, 60)]
    zero = replay.trace.steps.start_ns[0]
    first, second = (us[0] + zero, us[1] + zero), (us[2] + zero, us[3] + zero)
    both = (us[0] + zero, us[3] + zero)
    assert after(replay, skipped(first), skipped(second)) == after(replay, skipped(both)) == PERIOD - 20
    assert after(replay, skipped(both), skipped(both)) == after(replay, skipped(both))


def test_of_what_is_gone_in_part_and_of_what_is_gone_the_parts_add_up(replay):
    """Of the 20 before the op's launch 10 are gone, and half of 10; of what both are of, all is gone."""
    at = {us: np.array([(n * PERIOD + us) * 1000 for n in range(3)]) + replay.trace.steps.start_ns[0] for us in (10, 20, 40)}
    gone, half = skipped((at[10], at[20])), skipped((at[20], at[40]), 0.5)
    assert after(replay, gone, half) == after(replay, half, gone) == PERIOD - 15
    assert after(replay, skipped((at[10], at[40]), 0.5), gone) == after(replay, gone, half)


def test_what_takes_longer_by_two_changes_takes_longer_by_both(replay):
    """Of the 20 before the op's launch 10: three times as long by one, twice by another; half of all by a third."""
    at = {us: np.array([(n * PERIOD + us) * 1000 for n in range(3)]) + replay.trace.steps.start_ns[0] for us in (10, 20, 30)}
    thrice, twice, half = skipped((at[10], at[20]), 3), skipped((at[10], at[20]), 2), skipped((at[10], at[30]), 0.5)
    assert after(replay, thrice) == pytest.approx(PERIOD + 20, abs=0.01)
    assert after(replay, thrice, twice) == after(replay, twice, thrice) == pytest.approx(PERIOD + 50, abs=0.01)
    # 10 take 15, the other 10 take 5.
    assert after(replay, thrice, half) == after(replay, half, thrice) == pytest.approx(PERIOD, abs=0.01)


def test_of_a_call_that_two_changes_leave_a_part_of_the_least_is_left(replay):
    every = replay.trace.calls.where(replay.trace.calls.is_named("cudaLaunchKernel".__eq__))
    half, fifth = dropped(every, 0.5, 1.0), dropped(every, 0.2, 1.0)
    assert after(replay, half, fifth) == after(replay, fifth, half) == after(replay, fifth) < after(replay, half) < PERIOD


def test_changes_bring_the_same_in_any_order(replay):
    changes = [
        scaled(kernels(replay, GEMM), 0.5), dropped(ops(replay, "aten::add")), without_waits(replay.trace.waits),
        unlaunched(kernels(replay, ADD)),
    ]  # fmt: skip
    assert len({after(replay, *order) for order in permutations(changes)}) == 1


def test_as_a_graph_a_step_is_one_launch_and_what_the_gpu_takes(replay):
    """20 of the launch, 40 from there to the first kernel, 80 of kernels; the call that waits for them ends 1 later."""
    assert after(replay, launched_at_once) == 141


@pytest.mark.parametrize("name", ["item_on_gradients", "loop_optimizer", "attention_written_out"])
def test_what_is_chosen_together_saves_at_least_what_each_saves_and_less_than_everything(name):
    trace = load(str(FAULTS / f"{name}.json.gz"))
    reading = examine(trace)
    facts, found = reading.facts, choices(reading)
    assert found is not None and found.changes
    assert len(found.gains) == 1 << len(found.changes) and found.gains[0] == Gain(0, 0)
    gains = {finding.slug: finding.gain for finding in facts.findings}
    gains |= {f"without {one.place.name}"[: len("without ") + 60]: one.place.gone for one in reading.places}
    for place, change in enumerate(found.changes):
        told = gains[change.name]
        assert told is not None and found.gains[1 << place].high == pytest.approx(told.high, abs=0.02)
    assert any(change.name.startswith("without ") for change in found.changes) == (len(found.changes) == 4)
    for chosen, gain in enumerate(found.gains):
        assert 0 <= gain.low <= gain.high < 1
        for place in range(len(found.changes)):
            assert gain.high >= found.gains[chosen & ~(1 << place)].high - 1e-9


def test_of_a_run_that_waits_for_others_there_is_nothing_to_choose(tmp_path):
    trace = load(write(tmp_path / "t.json", *events(), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 160, 5, 99)))
    assert choices(examine(trace)) is None


def test_what_is_sure_is_the_least_at_any_price_and_what_is_not_the_most(tmp_path):
    trace = load(write(tmp_path / "t.json", *events()))
    run, plain = RunWithoutProfiler(trace), PlainRun(190, 190, 190, 200, "measured")
    half = scaled(trace.work.where(trace.work.is_named(GEMM.__eq__)), 0.5)
    both = gain_of(run, plain, surely(half))
    assert both.low == both.high > 0.05 and gain_of(run, plain, Effect(half)) == Gain(0, both.high)
    assert gains_together(run, plain, [Effect(half), surely(half)])[3].high >= both.high
    none = Rows(trace.slices, np.zeros(0, np.int64))
    assert gain_of(run, plain, surely(scaled(none, 0.5))) == Gain(0, 0)


def test_a_pause_inside_of_a_loop_is_no_part_of_what_the_loop_saves(tmp_path):
    """It is not played: once in one step, as of Python's garbage collector."""

    def left_us(pause):
        events = []
        for n, at in enumerate((0, 10_000, 20_000, 30_000 + pause)):
            longer = pause * (n == 2)
            events.append(step(n, at, 9_900 + longer))
            for k in range(8):
                ts = at + 10 + 400 * k + longer * (k > 3)
                events += [op("aten::mul", ts, 40), op("aten::add_", ts + 50, 40)]
            events.append(op("aten::mm", at + 4_000 + longer, 5_000))
        reading = examine(load(write(tmp_path / "t.json", *events)))
        edited = Edited(reading.run.replay, reading.run.replay.nodes.after_ns)
        reading.effect("loop-over-tensors").most(edited)
        return edited.play().step_us

    assert left_us(90_000) == pytest.approx(left_us(0), rel=0.05) and left_us(0) == pytest.approx(10_000 - 7 * 400, rel=0.05)
