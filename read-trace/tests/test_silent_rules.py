"""Where rules that look alike to their places keep silent, and how much of an optimizer goes with a table."""

import pytest
from reader_helpers.events import ADD, annotation, event, kernel, launch, op, step, write
from trace_reader import load, read
from trace_reader.analysis.replay.edits import Edited
from trace_reader.findings.catalogue import ENTRIES, _updates_of_tables, places_of
from trace_reader.reading import examine, with_lines

PERIOD = 1000


def python(name, ts, dur):
    return event("python_function", name, ts, dur)


def own(tmp_path, *more, frames=(("train.py(9): pad", 20, 600),), n=3):
    """What own-function says of steps with these frames of Python and ops."""
    events = [one for k in range(n) for one in (step(k, k * PERIOD, PERIOD),
                                                *(python(name, k * PERIOD + at, us) for name, at, us in frames),
                                                *(make(k * PERIOD, k) for make in more))]  # fmt: skip
    path = write(tmp_path / "t.json", *events)
    reading = with_lines(examine(load(path)), load(path, stacks=True))
    return [one.seen for one in reading.facts.findings if one.slug == "own-function"]


def test_a_function_that_is_mostly_the_models_products_is_none_to_look_into(tmp_path):
    add, product = lambda at, k: op("aten::add", at + 700, 200), lambda at, k: op("aten::mm", at + 100, 400)
    assert own(tmp_path, add)[0].startswith("train.py(9): pad, once per step")
    assert own(tmp_path, add, product) == []


def test_nor_is_a_models_own_forward(tmp_path):
    """A part of a model's is, and a function of another name."""
    modules = [("nn.Module: Net_0", 15, 620), ("nn.Module: Part_0", 30, 300)]
    add = lambda at, k: op("aten::add", at + 700, 200)  # noqa: E731
    for name, at, us, told in (
        ("m.py(9): forward", 20, 600, False),
        ("m.py(9): run", 20, 600, True),
        ("m.py(9): forward", 35, 290, True),
    ):
        assert bool(own(tmp_path, add, frames=(*modules, (name, at, us)))) is told
    beside = (("nn.Module: Net_0", 15, 300), ("m.py(9): forward", 320, 300))  # of something else
    assert own(tmp_path, add, frames=beside)


def test_nor_is_one_in_which_the_model_runs(tmp_path):
    """A handler of requests, which calls the model; one beside it is."""
    add = lambda at, k: op("aten::add", at + 700, 200)  # noqa: E731
    model = ("nn.Module: Net_0", 100, 300)
    assert own(tmp_path, add, frames=(("m.py(9): handle", 20, 600), model)) == []
    (seen,) = own(tmp_path, add, frames=(("m.py(9): handle", 20, 600), model, ("m.py(30): log", 420, 190)))
    assert seen.startswith("m.py(30): log")


def test_nor_is_what_launches_in_a_model(tmp_path):
    """Beside a model it may be, and in one where little of its time is a launch."""
    launching = [lambda at, k: op("aten::add", at + 100, 300), lambda at, k: launch(at + 110, k + 1),
                 lambda at, k: kernel(ADD, at + 130, 10, k + 1)]  # fmt: skip
    other = [lambda at, k: op("aten::add", at + 700, 200)] + [
        part for n in range(2)
        for part in (lambda at, k, n=n: launch(at + 710 + 20 * n, k + 101 + 10 * n),
                     lambda at, k, n=n: kernel(ADD, at + 730 + 20 * n, 10, k + 101 + 10 * n))
    ]  # fmt: skip
    rest, model = ("m.py(9): rest", 50, 500), ("nn.Module: Net_0", 15, 620)
    assert own(tmp_path, *launching, *other, frames=(model, rest)) == []
    assert len(own(tmp_path, *launching, *other, frames=(("nn.Module: Net_0", 700, 250), rest))) == 1
    assert len(own(tmp_path, *other, frames=(model, rest))) == 1


def test_nor_is_one_that_takes_as_long_as_a_step_and_begins_elsewhere(tmp_path):
    """Of two steps, one call that is known begins in the middle of the first."""
    events = [step(k, k * PERIOD, PERIOD) for k in range(2)] + [op("aten::add", k * PERIOD + 700, 200) for k in range(2)]
    for us, told in ((995, False), (900, True)):
        path = write(tmp_path / "t.json", *events, python("train.py(9): step", 500, us))
        reading = with_lines(examine(load(path)), load(path, stacks=True))
        assert bool([one for one in reading.facts.findings if one.slug == "own-function"]) is told


@pytest.mark.parametrize(("at", "us"), [(700, 1200), (5900, 2080)])  # it ends in the longer step, or begins there
def test_one_that_goes_from_a_long_step_to_a_short_one_is_not_all_of_a_step(tmp_path, at, us):
    events = [step(0, 0, 1000), step(1, 1000, 6000), step(2, 7000, 1000), *(op("aten::add", ts, 5) for ts in (10, 3000, 7990))]
    path = write(tmp_path / "t.json", *events, python("x.py(3): pad", at, us))
    reading = with_lines(examine(load(path)), load(path, stacks=True))
    assert [one.seen for one in reading.facts.findings if one.slug == "own-function"]


def test_one_that_takes_most_of_the_longest_step_is_told(tmp_path):
    """A validation in the last of four steps, longer than the others."""
    events = [step(k, k * PERIOD, PERIOD) for k in range(3)] + [step(3, 3000, 5000)]
    events += [op("aten::add", at, 50) for at in (100, 1100, 2100, 7500)] + [python("train.py(30): validate", 3100, 3900)]
    path = write(tmp_path / "t.json", *events)
    reading = with_lines(examine(load(path)), load(path, stacks=True))
    (found,) = [one.seen for one in reading.facts.findings if one.slug == "own-function"]
    assert found.startswith("train.py(30): validate, ")


def test_a_function_that_is_known_of_some_steps_alone_is_counted_in_these(tmp_path):
    """As where another recording with stacks does the same in two of three steps."""
    events = [one for k in range(3) for one in (step(k, k * PERIOD, PERIOD), op("aten::add", k * PERIOD + 700, 200),
              *([python("train.py(9): pad", k * PERIOD + 20, 600)] if k < 2 else []))]  # fmt: skip
    path = write(tmp_path / "t.json", *events)
    facts = with_lines(examine(load(path)), load(path, stacks=True)).facts
    (found,) = (one for one in facts.findings if one.slug == "own-function")
    assert found.seen == "train.py(9): pad, once per step: 600.0 µs with all that it calls, 60% of the steps' time"
    assert (found.gain, found.gain_unknown_because) == (None, "its functions are known of 2 of 3 steps alone")


def test_nor_is_one_that_launches_most_of_the_gpus_work(tmp_path):
    inside = [lambda at, k: op("aten::add", at + 100, 20), lambda at, k: launch(at + 110, k + 1),
              lambda at, k: kernel(ADD, at + 130, 10, k + 1)]  # fmt: skip
    outside = [lambda at, k: op("aten::add", at + 700, 20), lambda at, k: launch(at + 710, k + 1),
               lambda at, k: kernel(ADD, at + 730, 10, k + 1)]  # fmt: skip
    assert len(own(tmp_path, *outside)) == 1
    assert own(tmp_path, *inside) == []


def test_a_function_that_is_known_of_few_steps_is_the_model_by_what_it_launches_in_these(tmp_path):
    """Of four steps alike, in one of which it is known: it launches all of the GPU's work there, or is all of that step."""

    def seen(name, at, us):
        events = []
        for k in range(4):
            events += [step(k, k * PERIOD, PERIOD), op("aten::add", k * PERIOD + 100, 20), launch(k * PERIOD + 110, k + 1)]
            events += [kernel(ADD, k * PERIOD + 130, 10, k + 1)]
            events += [python(name, k * PERIOD + at, us), python("x.py(3): pad", k * PERIOD + 500, 300)] if k < 1 else []
        path = write(tmp_path / "t.json", *events)
        reading = with_lines(examine(load(path)), load(path, stacks=True))
        return [one.seen.partition(",")[0] for one in reading.facts.findings if one.slug == "own-function"]

    assert seen("train.py(9): model", 20, 450) == seen("train.py(9): train", 2, 990) == ["x.py(3): pad"]
    assert seen("train.py(9): other", 140, 350) == ["train.py(9): other"]


def test_nor_is_one_that_is_all_of_a_step_where_others_of_its_calls_began_before(tmp_path):
    """Of two steps the second is one call of `train`, the first lies in one that began before the recording."""
    events = [
        step(0, 0, 1000),
        step(1, 1000, 1000),
        python("train.py(5): train", 999, 1002),
        python("train.py(9): pad", 1100, 500),
    ]
    events += [op("aten::add", at, 50) for at in (100, 700, 1700)]
    path = write(tmp_path / "t.json", *events)
    reading = with_lines(examine(load(path)), load(path, stacks=True))
    (found,) = [one.seen for one in reading.facts.findings if one.slug == "own-function"]
    assert found.startswith("train.py(9): pad, 0.5 times per step")


def test_a_loop_in_an_optimizer_is_the_optimizers(tmp_path):
    ops = [op(("aten::select", "aten::maximum")[n % 2], 20 + 20 * n, 18) for n in range(40)]
    loop = {one.slug for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *ops)).findings}
    within = annotation("Optimizer.step#Adam.step", 10, 900)
    optimizer = {one.slug for one in read(write(tmp_path / "b.json", step(0, 0, 1000), within, *ops)).findings}
    assert "repeated-ops" in loop and "repeated-ops" not in optimizer


@pytest.mark.parametrize(("factor", "told"), [([64, 32], True), ([64, 1], False), ([], False), (None, True)])
def test_a_product_with_a_sigmoid_is_silu_where_both_are_as_large(tmp_path, factor, told):
    """A gate of whole channels, or a half of it, is none; without shapes nobody knows."""

    def shaped(name, at, *dims):
        args = {} if factor is None else {"Input Dims": list(dims), "Input type": ["float"] * len(dims)}
        return op(name, at, 300, **args)

    ops = [shaped("aten::sigmoid", 20, [64, 32]), shaped("aten::mul", 400, [64, 32], factor)]
    found = [one.seen for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *ops)).findings if one.slug == "written-out"]
    assert found == (["per step: 1 x SiLU, of 2 ops"] if told else [])


@pytest.mark.parametrize("scaled", ["", "mul "])
@pytest.mark.parametrize("squared", ["var ", "sub pow mean "])
def test_a_layer_norm_may_scale_before_it_divides(tmp_path, scaled, squared):
    """weight * (x - mean) / sqrt(var + eps) + bias."""
    names = f"mean {squared}sub {scaled}add sqrt div add".split()
    ops = [op(f"aten::{name}", 20 + 100 * n, 90) for n, name in enumerate(names)]
    found = [one.seen for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *ops)).findings if one.slug == "written-out"]
    assert found == [f"per step: 1 x LayerNorm, of {len(names)} ops"]


@pytest.mark.parametrize(("arounds", "seen"), [
    (["aten::linalg_cholesky_ex"], []),
    (["aten::masked_fill"], ["aten::tril runs 2 times in 2 steps; other mask ops: none"]),
    (["aten::linalg_cholesky_ex", "aten::masked_fill"], ["aten::tril runs 2 times in 2 steps; other mask ops: none"]),
])  # fmt: skip
def test_a_triangle_of_a_factor_is_no_mask(tmp_path, arounds, seen):
    ops = [step(n, 200 * n, 190) for n in range(2)]
    for at, around in ((200 * n + 90 * k, around) for n in range(2) for k, around in enumerate(arounds)):
        ops += [op(around, at + 5, 50), op("aten::tril", at + 9, 9)]
    found = [one.seen for one in read(write(tmp_path / "a.json", *ops)).findings if one.slug == "mask-rebuilt"]
    assert found == seen


def test_of_an_optimizer_the_updates_of_tables_goes_with_its_gradient(tmp_path):
    """A table of 100,000 rows of 4 among 800,000 numbers: half of the optimizer's kernels."""
    grad = {"Input Dims": [[8, 4], [8], [], [], []], "Input type": ["float", "long int", "Scalar", "Scalar", "Scalar"],
            "Concrete Inputs": ["", "", "100000", "-1", "False"]}  # fmt: skip
    update = {"Input Dims": [[[100000, 4], [100, 4000]], []], "Input type": ["TensorList", "Scalar"], "Concrete Inputs": ["", ""]}
    events = []
    for k in range(3):
        at = k * PERIOD
        events += [step(k, at, 950), op("aten::embedding_dense_backward", at + 10, 200, **grad), launch(at + 20, 2 * k + 1),
                   kernel(ADD, at + 30, 100, 2 * k + 1), annotation("Optimizer.step#Adam.step", at + 400, 300),
                   op("aten::_fused_adam_", at + 410, 200, **update), launch(at + 420, 2 * k + 2),
                   kernel(ADD, at + 440, 400, 2 * k + 2)]  # fmt: skip
    trace = load(write(tmp_path / "a.json", *events))
    facts = examine(trace).facts
    (entry,) = [one for one in ENTRIES if one.slug == "dense-embedding-gradient"]
    spans = places_of(entry, trace, facts)
    assert spans is not None and len(spans) == 3
    assert [(len(updates), share) for updates, share in _updates_of_tables(entry, trace, spans)] == [(3, pytest.approx(0.5))]
    effect = examine(trace).effect(entry.slug)
    edited = Edited(examine(trace).run.replay, examine(trace).run.replay.nodes.after_ns)
    effect.most(edited)
    left = dict(zip(edited.replay.work.at.tolist(), edited.left.tolist(), strict=True))
    optimizer = trace.work.at[trace.work.duration_us == 400]
    assert [left[row] for row in optimizer.tolist()] == [pytest.approx(1 - 0.5 * 0.9)] * 3
    # On a CPU, where sparse updates take more, half of the table's share is left: 200 us of the gradient go, and 50 of 200.
    alone = [e for e in events if e["cat"] in ("cpu_op", "user_annotation")]
    reading = examine(load(write(tmp_path / "a.json", *alone)))
    edited = Edited(reading.run.replay, reading.run.replay.nodes.after_ns)
    reading.effect(entry.slug).most(edited)
    assert reading.run.replay.play().step_us - edited.play().step_us == pytest.approx(250, abs=1)


@pytest.mark.parametrize(("updates", "told"), [(0, True), (1, True), (4, False)])
def test_where_an_optimizer_steps_after_each_backward_pass_they_are_steps(tmp_path, updates, told):
    """As in a trace whose steps are found among the ops, and hold four of the program's."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    numbered = [(k, {"Sequence number": k}) for k in range(4)]
    events = [op("aten::mm", 200 * k + 10, 60, **number, **{"Fwd thread id": 0}) for k, number in numbered]
    events += [op(node, 200 * k + 80, 60, **number, **{"Fwd thread id": 1}) for k, number in numbered]
    events += [annotation("Optimizer.step#SGD.step", 200 * k + 150, 40) for k in range(updates)]
    found = {one.slug for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *events)).findings}
    assert ("many-backward-passes" in found) is told


@pytest.mark.parametrize(("columns", "told"), [(64, True), (32, False)])
def test_rounds_of_a_product_with_a_bias_may_chain_by_what_is_multiplied_alone(tmp_path, columns, told):
    """Of addmm the first input is the bias, as long as the result: a round of 32 to 64 numbers does not take what it makes."""
    inputs = {"Input Dims": [[columns], [4, 32], [32, columns], [], []], "Input type": ["float"] * 3 + ["Scalar"] * 2}
    behind = {"Input Dims": [[4, columns]], "Input type": ["float"]}
    ops = [one for n in range(8) for one in (op("aten::addmm", 20 + 100 * n, 40, **inputs),
                                             op("aten::sin", 65 + 100 * n, 40, **behind))]  # fmt: skip
    found = {one.slug for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *ops)).findings}
    assert ("loop-of-small-products" in found) is told
