"""Places by what their absence saves: made runs of which it can be worked out by hand, each with its step measured."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from reader_helpers import DATA, FAULTS
from reader_helpers.events import ADD, GEMM, annotation, event, kernel, launch, on, op, step, write
from trace_reader import cli, load, read
from trace_reader.analysis.replay.place import Place
from trace_reader.analysis.replay.places import loops, repetitions
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.findings import Reading
from trace_reader.report.trace_tables import place_name, saved

PERIOD = 1000


def run_of(*ops, n=3, period=PERIOD, **header):
    """Steps of ops (name, start, length) on the CPU, measured to take as long without the profiler."""
    found = [e for k in range(n) for e in (step(k, k * period, period), *(op(name, k * period + at, us) for name, at, us in ops))]
    return found, {"plain_step_us": {"median": period, "low": period, "high": period}, **header}


def told(tmp_path, events, header):
    facts = read(write(tmp_path / "t.json", *events, **header))
    assert not facts.failed
    return {place.name: place for place in facts.places}


def test_what_a_step_saves_without_a_place(tmp_path):
    """Of 1000: 400 of a sort, 300 of a product, which is called twice."""
    found = told(tmp_path, *run_of(("aten::sort", 10, 400), ("aten::mm", 500, 150), ("aten::mm", 700, 150)))
    assert list(found) == ["aten::sort", "aten::mm"]
    assert (found["aten::sort"].gone.low, found["aten::sort"].gone.high) == (pytest.approx(0.4, abs=0.01),) * 2
    assert (found["aten::mm"].calls, found["aten::mm"].cpu_us, found["aten::mm"].gone.high) == (
        2,
        300,
        pytest.approx(0.3, abs=0.01),
    )
    assert found["aten::mm"].kind == "op" and found["aten::mm"].floor is None


def test_of_places_in_one_another_that_save_the_same_the_innermost_is_told(tmp_path):
    events, header = run_of(("aten::sort", 10, 400), ("aten::mm", 500, 300))
    around = [annotation(name, k * PERIOD + at, us) for k in range(3) for name, at, us in (("rank", 5, 410), ("both", 2, 900))]
    found = told(tmp_path, [*events, *around], header)
    assert list(found) == ["both", "aten::sort", "aten::mm"]  # not `rank`, in which is the sort alone


def test_a_loop_is_a_place_with_what_one_round_leaves(tmp_path):
    """Ten rounds of 90, 80 of it in ops: from end to end they take 895, all but the first 805."""
    ops = [(name, 10 + 90 * n + at, 40) for n in range(10) for name, at in (("aten::mul", 0), ("aten::add", 45))]
    found = told(tmp_path, *run_of(*ops))
    loop = found["aten::add, aten::mul"]
    assert (loop.kind, loop.rounds, loop.ops) == ("loop", 10, ("aten::add", "aten::mul"))
    assert (round(loop.gone.high, 3), round(loop.once.high, 3)) == (0.895, 0.805)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ("abababab", [(0, 2, 4)]),
        ("xabababy", []),  # three times only
        ("aaaaa", [(0, 1, 5)]),
        ("qabcabcabcabcaq", [(1, 3, 4)]),
        ("ababababcccc", [(0, 2, 4), (8, 1, 4)]),
        ("abcd", []),
        ("", []),
        ("aabaabaabaab", [(0, 3, 4)]),
        ("abbaabbaabbaabba", [(0, 4, 4)]),  # each twice, at distances of 1 and 3
        ("aabbaabbaabbaabb", [(0, 4, 4)]),
        # Each token but one stands at many distances from its next like; that one's are all the length of a round.
        (5 * "abcacbbacabcbcaabcbacbbcacbabcacbcabacbx", [(0, 40, 5)]),
        (5 * "dededededcabcacbbacabcbcaabcbacbbcacbabcacbcabacbx", [(50 * n, 2, 4) for n in range(5)]),  # a loop in each round
    ],
)
def test_runs_that_repeat(tokens, found):
    assert repetitions(np.array([ord(token) for token in tokens], np.int64)) == found


def test_runs_that_repeat_are_found_in_linear_time():
    """A million tokens: no length that is tried looks at more than each token once."""
    tokens = np.tile(np.arange(250), 4000)
    assert repetitions(tokens) == [(0, 250, 4000)]


def test_loops_are_of_one_thread_and_one_step(tmp_path):
    """Two rounds in each of two steps, and four on two threads, are none."""
    twice = [op("aten::mul", 1000 * k + 10 + 50 * n, 40) for k in range(2) for n in range(2)]
    others = [on(2 + n % 2, op("aten::add", 200 + 50 * n, 40))[0] for n in range(4)]
    trace = load(write(tmp_path / "t.json", step(0, 0, 1000), step(1, 1000, 1000), *twice, *others))
    assert loops(trace) == []


@pytest.mark.parametrize(("first", "found"), [("aten::linear", 0), ("aten::mul", 1)])
def test_a_loop_over_tensors_of_different_shapes_has_no_layers(tmp_path, first, found):
    """Layers that follow each other are a network."""
    ops = [op(name, 40 * n + at, 15, **{"Input Dims": [[n + 1, 8]], "Input type": ["float"]})
           for n in range(20) for name, at in ((first, 1), ("aten::relu", 20))]  # fmt: skip
    assert len(loops(load(write(tmp_path / "t.json", step(0, 0, 1000), *ops)))) == found


def test_a_place_on_the_gpu_at_its_floor(tmp_path):
    """A copy of 8 MB that takes 100 µs, where an H200 needs at least 2; GPU-bound: 10 of them fill a step."""
    inputs = {"Input Dims": [[1000, 1000], [1000, 1000]], "Input type": ["float", "float"], "Input Strides": [[1000, 1]] * 2}
    events = []
    for k in range(3):
        events += [step(k, 100 * k, 95)]
        for n in range(10):
            number = 10 * k + n + 1
            events += [op("aten::copy_", 100 * k + 8 * n, 6, **inputs), launch(100 * k + 8 * n + 1, number)]
            events += [kernel(ADD, 50 + 1000 * k + 100 * n, 100, number)]
    found = told(tmp_path, events, {"plain_step_us": {"median": 1000, "low": 1000, "high": 1000}})
    copy = found["aten::copy_"]
    assert (copy.shapes, copy.gpu_us) == ("2 of 1000x1000 fp32", 1000)
    assert copy.floor is not None
    assert (copy.gone.high, copy.floor.high) == (pytest.approx(0.978, abs=0.01), pytest.approx(0.9, abs=0.01))


SQUARE = {"Input Dims": [[1024, 1024]] * 2, "Input type": ["c10::BFloat16"] * 2, "Input Strides": [[1024, 1]] * 2}


@pytest.mark.parametrize(
    ("second", "dims", "types", "lasts_us", "region"),
    [
        ("aten::add", [[1000, 1000]], ["float"], 110, 0.0103),  # whose operations are no product's
        ("aten::add", [], [], 110, None),  # most of it is not known
        ("aten::add", [], [], 98, 0.011),
        ("aten::mm", [[1024, 1024]] * 2, ["c10::BFloat16", "float"], 110, None),  # of two types: without a peak
    ],
)
def test_of_a_region_the_products_are_told_beside_the_peak(tmp_path, second, dims, types, lasts_us, region):
    """Of 1024 x 1024 x 1024 in bf16 an H200 needs 2.17 µs (989.4 TFLOP/s): of 100 that it takes, and of those with another op."""
    found = in_a_region(tmp_path, SQUARE, second, {"Input Dims": dims, "Input type": types}, lasts_us)
    assert found["forward"].mfu == (region and pytest.approx(region, abs=1e-4))
    if second == "aten::add":
        assert found["aten::mm"].mfu == pytest.approx(0.0217, abs=1e-4) and found["aten::add"].mfu is None


def test_more_than_the_peak_is_not_told(tmp_path):
    """Of 4096 x 4096 x 4096 an H200 needs 139 µs: more than the 100 that this kernel takes."""
    found = in_a_region(
        tmp_path, {**SQUARE, "Input Dims": [[4096, 4096]] * 2, "Input Strides": [[4096, 1]] * 2}, "aten::add", {}, 9
    )
    assert found["aten::mm"].mfu is None


def in_a_region(tmp_path, product, second, more, lasts_us):
    events = []
    for k in range(3):
        events += [step(k, 215 * k, 212), annotation("forward", 215 * k + 5, 30), op("aten::mm", 215 * k + 8, 8, **product),
                   launch(215 * k + 10, 2 * k + 1), kernel(GEMM, 50 + 215 * k, 100, 2 * k + 1),
                   op(second, 215 * k + 20, 8, **more), launch(215 * k + 22, 2 * k + 2),
                   kernel(ADD, 150 + 215 * k, lasts_us, 2 * k + 2)]  # fmt: skip
    device = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 1, "computeMajor": 9, "computeMinor": 0}]
    return told(tmp_path, events, {"plain_step_us": {"median": 215, "low": 215, "high": 215}, "deviceProperties": device})


def test_functions_and_modules_are_places_where_stacks_were_recorded(tmp_path):
    events, header = run_of(("aten::sort", 20, 300), ("aten::mm", 500, 300))
    python = [
        ("train.py(3): main", 0, 990),
        ("train.py(?): <module>", 1, 900),
        ("train.py(9): pick", 10, 420),
        ("torch/x.py(2): f", 15, 310),
        ("nn.Module: Linear_0", 490, 320),
    ]
    frames = [event("python_function", name, k * PERIOD + at, us) for k in range(3) for name, at, us in python]
    found = told(tmp_path, [*events, *frames], header)
    assert {name: place.kind for name, place in found.items()} == {
        "train.py(9): pick": "function", "Linear_0": "module", "aten::sort": "op", "aten::mm": "op",
    }  # fmt: skip  # not main, which is all of a step, no file's own level, and not torch's


def test_a_run_that_cannot_be_played_has_no_places(tmp_path, capsys):
    path = write(tmp_path / "t.json", op("aten::mm", 0, 10), kernel(ADD, 20, 30, 5))
    assert read(path).places == ()
    assert cli.main(["places", path]) == 2
    assert capsys.readouterr().err == f"error: {path}: no places: what limits the run is not known\n"


def test_the_command_the_flag_and_json_say_the_same(capsys):
    path = str(FAULTS / "kept_by_cat.json.gz")
    assert cli.main(["places", path]) == 0
    text = capsys.readouterr().out
    assert cli.main([path, "--places"]) == 0 and capsys.readouterr().out == text
    assert cli.main(["places", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert cli.main([path, "--json"]) == 0
    assert data["places"] == json.loads(capsys.readouterr().out)["places"] and len(data["places"]) >= 3
    assert data["places"][1]["name"] in text


def test_a_place_is_shown_with_its_slices(capsys):
    path = str(FAULTS / "kept_by_cat.json.gz")
    assert cli.main(["show", path, "aten::cat", "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("op: aten::cat (without it a step saves ") and "\n  aten::cat" in out
    assert cli.main(["show", path, "aten::cat", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["place"]["name"] == "aten::cat" and data["slices"][0]["name"] == "aten::cat"
    assert cli.main(["show", path, "aten::nothing"]) == 2


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.0, 0.0049, "0%"), (0.0, 0.005, "up to 0%"), (0.0, 0.2, "up to 20%"), (0.1, 0.2, "10% to 20%"), (0.2, 0.2, "20%")],
)
def test_what_is_saved_in_words(low, high, words):
    assert saved(Gain(low, high)) == words


def test_a_short_name_of_a_loop_counts_the_kinds_of_ops_that_it_leaves_out():
    ops = ("aten::add", "aten::linear", "aten::linear", "aten::relu")
    place = Place("loop", "2 x aten::linear, aten::add, aten::relu", 8, "", 1.0, 0.0, Gain(0.1, 0.2), None, None, 8, ops)
    assert place_name(place) == "8 x (2 x aten::linear, aten::add, aten::relu)"
    assert place_name(place, 40) == "8 x (2 x aten::linear and 2 more)"


@pytest.mark.parametrize(
    ("rows", "because"), [(0, "its steps hold no op and no annotation"), (1, "none saves a hundredth of a step")]
)
def test_why_there_is_no_place(rows, because):
    trace = SimpleNamespace(outer_ops=[None] * rows, annotations=[])
    reading = SimpleNamespace(facts=SimpleNamespace(verdict="overhead-bound"), can_be_asked=True, trace=trace)
    told: Any = Reading.no_places_because
    assert told.fget(reading) == because


def test_what_is_saved_has_both_ends_of_an_estimated_step_in_all_columns():
    """What a place brings at its floor, or once, was told of the shorter step alone."""
    once = [place.once for place in read(str(FAULTS / "item_on_gradients.json.gz")).places if place.once]
    floor = [place.floor for place in read(str(DATA / "detailed" / "h200_relu_in_place.json.gz")).places if place.floor]
    assert all(max(gain.high - gain.low for gain in gains) > 0.02 for gains in (once, floor))
