"""What is told of a gain: the bands that measured changes give, how wide they may be, and what several changes save together."""

import math

import pytest
from reader_helpers import FAULTS
from reader_helpers.events import ADD, annotation, event, kernel, launch, on, op, step, write
from trace_reader import cli, load, read
from trace_reader.analysis.replay import edits, plain_run
from trace_reader.analysis.replay.edits import AS_PLAYED, BANDS, GONE, REPLACED, WAITS, Effect, without_waits
from trace_reader.analysis.replay.places import nodes_of, places
from trace_reader.analysis.replay.plain_run import GPU_MARGIN, RunWithoutProfiler
from trace_reader.analysis.replay.what_if import PLAIN, Gain, calibrated, gain_of, played_gains, told
from trace_reader.findings import WIDEST, choices
from trace_reader.model.rows import Rows
from trace_reader.reading import examine, with_lines

PERIOD = 1000
MEASURED = {"plain_step_us": {"median": PERIOD, "low": PERIOD, "high": PERIOD}}


def odds(share):
    return math.log(share / (1 - share))


def share(odds):
    return 1 / (1 + math.exp(-odds))


def python(name, ts, dur):
    return event("python_function", name, ts, dur)


def test_a_band_is_of_odds_and_what_is_not_known_of_the_step_is_added_to_it():
    low, high = BANDS[GONE]
    assert calibrated([0.5, 0.5], BANDS[GONE]) == pytest.approx((share(low), share(high)))
    half = (odds(0.6) - odds(0.4)) / 4
    assert calibrated([0.4, 0.6], BANDS[GONE]) == pytest.approx((share(-math.hypot(low, half)), share(math.hypot(high, half))))
    assert calibrated([0.001, 0.001], BANDS[GONE]) == (0.001, 0.001)


def test_what_is_sure_and_what_a_replay_shows_are_inside_of_what_is_told():
    low, high = calibrated([0.5, 0.5], BANDS[REPLACED])
    assert told([0.0, 0.0], [0.5, 0.5], REPLACED, PLAIN) == Gain(low, high)
    assert told([0.45, 0.48], [0.5, 0.5], REPLACED, PLAIN) == Gain(0.45, high)
    assert told([0.0] * 3, [0.5, 0.5, 0.9], REPLACED, PLAIN) == Gain(low, 0.9)
    assert told([0.0, 0.0], [0.3, 1.2], AS_PLAYED, PLAIN) == Gain(0.3, 1.0)


def test_a_gain_that_is_wider_than_half_of_a_step_is_words(tmp_path, monkeypatch):
    """As of a change of which nobody knows what takes the place of what is gone."""
    monkeypatch.setitem(BANDS, REPLACED, BANDS[edits.UNSURE])
    frames = [python("train.py(9): pad", k * PERIOD + 20, 600) for k in range(3)]
    ops = [one for k in range(3) for one in (step(k, k * PERIOD, PERIOD), op("aten::add", k * PERIOD + 30, 10),
                                             op("aten::mm", k * PERIOD + 700, 250))]  # fmt: skip
    facts = read(write(tmp_path / "t.json", *ops, *frames, **MEASURED))
    (found,) = [one for one in facts.findings if one.slug == "own-function"]
    _, high = calibrated([0.6, 0.6], BANDS[edits.UNSURE])
    assert high > WIDEST and found.gain is None
    assert found.gain_unknown_because == f"0% to {high:.0%} of a step: too wide to be useful"


def test_what_takes_a_wait_away_saves_no_more_than_the_gpus_idle_time(tmp_path):
    """In steps of 1000 the GPU is busy for 880; the CPU waits for it, and then launches the next kernel."""
    events = []
    for k in range(4):
        at = k * PERIOD
        events += [step(k, at, 990), op("aten::mm", at + 5, 20), launch(at + 10, k + 1), kernel(ADD, at + 60, 880, k + 1)]
        events += [event("cuda_runtime", "cudaDeviceSynchronize", at + 30, 915, correlation=100 + k)]
    reading = examine(load(write(tmp_path / "t.json", *events, **MEASURED)))
    effect = Effect(without_waits(reading.trace.waits), without_waits(reading.trace.waits), WAITS)
    gain = gain_of(reading.run, reading.facts.plain, effect)
    (played, *_) = played_gains(reading.run, reading.facts.plain, effect.most)
    unbounded = told([played] * 2, [played] * 2, WAITS, PLAIN)
    idle = 1 - 880 * (1 - GPU_MARGIN) / PERIOD
    assert 0.05 < played < idle < unbounded.high
    assert gain.high == pytest.approx(idle, abs=0.002)


@pytest.mark.parametrize("name", ["item_on_gradients", "loop_optimizer", "attention_written_out"])
def test_one_change_more_saves_no_less(name):
    found = choices(examine(load(str(FAULTS / f"{name}.json.gz"))))
    for chosen, gain in enumerate(found.gains):
        for place in range(len(found.changes)):
            fewer = found.gains[chosen & ~(1 << place)]
            assert gain.low >= fewer.low and gain.high >= fewer.high


def test_a_place_that_can_be_chosen_saves_what_its_row_says(tmp_path):
    """A measured step that lies between two others: both ends of it are told."""
    ops = [one for k in range(3) for one in (step(k, k * PERIOD, PERIOD), annotation("prepare", k * PERIOD + 10, 400),
                                             op("aten::mm", k * PERIOD + 500, 100))]  # fmt: skip
    ends = {"plain_step_us": {"median": 950, "low": 900, "high": 1000}}
    reading = examine(load(write(tmp_path / "t.json", *ops, **ends)))
    (place,) = [one.place for one in reading.places if one.place.name == "prepare"]
    found = choices(reading)
    assert found is not None
    chosen = {change.name: found.gains[1 << number] for number, change in enumerate(found.changes)}
    assert chosen["without prepare"] == place.gone


def test_what_the_profiler_works_itself_is_no_part_of_the_plain_step(tmp_path):
    """50 of buffers that it asks for, in an op: they go whole, and are not divided by any price."""

    def run(own):
        ops = [one for k in range(4) for one in (step(k, k * PERIOD, PERIOD), op("aten::sort", k * PERIOD + 100, 800))]
        work = [event("overhead", "Activity Buffer Request", k * PERIOD + 500, 200) for k in range(4)] if own else []
        return RunWithoutProfiler(load(write(tmp_path / f"{own}.json", *ops, *work)))

    without, own = (run(one).at(plain_run.CPU_PRICES).step_us for one in (False, True))
    assert without - own == pytest.approx(200)


def test_of_a_long_run_the_steps_that_are_played_stand_for_all_or_a_place_is_not_told(tmp_path, monkeypatch):
    """The first steps alone sort; all multiply."""
    monkeypatch.setattr("trace_reader.analysis.replay.places.MOST_NODES", 24)
    ops = [one for k in range(40) for one in (step(k, k * PERIOD, PERIOD), op("aten::mm", k * PERIOD + 500, 300))]
    ops += [op("aten::sort", k * PERIOD + 10, 400) for k in range(10)]
    trace = load(write(tmp_path / "t.json", *ops, **MEASURED))
    reading = examine(trace)
    assert len(reading.run.with_fewer_steps(24).replay.steps) < 20
    found = [one.place for one in places(reading.run, reading.facts.plain)]
    assert [one.name for one in found] == ["aten::mm"] and (found[0].calls, found[0].cpu_us) == (1, 300)


def test_each_thread_has_numbers_of_its_own_for_the_nodes_of_its_backward_pass(tmp_path):
    """Two threads make node 5 each; only the one of the first is made by its sort."""

    def numbered(name, at, thread, number, made_by=0):
        return on(thread, op(name, at, 20, **{"Sequence number": number, "Fwd thread id": made_by}))[0]

    node = "autograd::engine::evaluate_function: SortBackward0"
    forward = [numbered("aten::sort", 10 + 30 * n, 1, 5 + n) for n in range(4)]
    others = [numbered("aten::mm", 200, 2, 5), numbered(node, 400, 9, 5, made_by=2)]
    backward = [numbered(node, 500 + 40 * n, 9, 5 + n, made_by=1) for n in range(4)]
    events = [step(0, 0, 1000), *forward, *others, *backward]
    trace = load(write(tmp_path / "t.json", *events))
    sorts = trace.ops.where(trace.ops.is_named("aten::sort".__eq__))
    made = Rows(trace.slices, nodes_of(trace, sorts))
    assert made.start_ns.tolist() == [500_000, 540_000, 580_000, 620_000]


def test_a_function_of_the_program_lights_up_in_the_page_where_python_began_before_the_first_op(tmp_path, capsys):
    """The page draws the functions, which the facts are without: another loading of the file, which begins earlier."""
    frames = [python("train.py(1): main", -500, 4000), *(python("train.py(9): pad", k * PERIOD + 20, 600) for k in range(3))]
    ops = [one for k in range(3) for one in (step(k, k * PERIOD, PERIOD), op("aten::add", k * PERIOD + 30, 10),
                                             op("aten::mm", k * PERIOD + 700, 250))]  # fmt: skip
    path = write(tmp_path / "t.json", *ops, *frames, **MEASURED)
    assert cli.main(["page", path, "--out", str(tmp_path / "t.html")]) == 0, capsys.readouterr().err
    reading = with_lines(examine(load(path)), load(path, stacks=True))
    (found,) = [one for one in reading.facts.findings if one.slug == "own-function"]
    assert [one.start_us for one in found.evidence] == [20, 1020, 2020]
