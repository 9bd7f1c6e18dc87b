"""Recordings whose program marks no step, or marks it otherwise than torch does today."""

import pytest
from reader_helpers.events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, on, op, step, write
from trace_reader import cli, load, read
from trace_reader.link.found_steps import Found

SYNC = "cudaDeviceSynchronize"


def layer(at, number):
    """Return an op with a kernel and one without, in 20."""
    return [op("aten::linear", at, 8), launch(at + 2, number), kernel(GEMM, at + 4, 6, number), op("aten::gelu", at + 10, 6)]


def passes(n, layers, pause):
    """So many passes through so many layers, with a pause before each pass but the first."""
    events, at = [], 0
    for number in range(n * layers):
        at += 20 + (pause if number and number % layers == 0 else 0)
        events += layer(at, number)
    return events


@pytest.fixture
def loaded(tmp_path):
    return lambda *events: load(write(tmp_path / "t.json", *events))


@pytest.fixture
def told(tmp_path, capsys):
    def text(*events, flags=()):
        assert cli.main([write(tmp_path / "t.json", *events), *flags]) == 0
        return " ".join(capsys.readouterr().out.split())

    return text


@pytest.mark.parametrize("category", ["Operator", "operator", "cpu_op", "user_annotation"])
def test_a_step_is_known_by_its_name(tmp_path, category):
    """Torch 1.8 and 1.9 and other backends give ranges the category of an op."""
    wait = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    ranges = [step(0, 0, 90), annotation(wait, 1, 60), annotation("mine", 70, 15)]
    ranges += [step(1, 100, 90), annotation(wait, 101, 60), annotation("mine", 170, 15)]
    ops = [op("aten::add", at, 10) for at in (72, 172)]
    facts = read(write(tmp_path / "t.json", *({**one, "cat": category} for one in ranges), *ops))
    assert ([one.name for one in facts.steps], facts.steps_found) == (["ProfilerStep#0", "ProfilerStep#1"], None)
    assert facts.critical_path.input_us == 120
    assert [(one.name, one.calls) for one in facts.ops] == [("aten::add", 2)]


def test_a_backward_pass_of_torch_1_8_is_known_by_the_thread_that_made_its_nodes(tmp_path):
    node = op("NllLossBackward", 40, 40, **{"Fwd thread id": 1, "Sequence number": 3})
    path = read(write(tmp_path / "t.json", step(0, 0, 100), op("aten::nll_loss", 10, 20), *on(7, node))).critical_path
    assert {part.name: part.us for part in path.cpu} == {"op": 60, "silent": 40}


def launching(at, number, dur=60):
    """Return a launch and its kernel."""
    return [launch(at, number), kernel(GEMM, at + 10, dur, number)]


def test_a_range_that_repeats_is_the_step(loaded, told):
    """Of several the outermost; what torch opens for a part of a step is none; numbers in its name differ."""
    events = []
    for n in range(3):
        at = 100 * n
        events += [
            annotation(f"generate {n}", at, 90),
            annotation("nn.Module: Net_0", at + 1, 80),
            annotation("inner", at + 2, 70),
        ]
        events += [annotation("Optimizer.step#SGD.step", at + 3, 60), *launching(at + 10, n)]
    trace = loaded(*events)
    assert (trace.found, trace.steps.names) == (Found("range", "generate #"), ["generate 0", "generate 1", "generate 2"])
    assert trace.work.step.tolist() == [0, 1, 2]
    said = told(*events)
    how = "no ProfilerStep: the steps are the range generate #, which repeats (1 launch each)"
    assert f"steps: 3 (generate 0 to generate 2), one every 100.0 µs {how}" in said
    assert "no ProfilerStep in the trace" not in said
    assert "steps: 3 (inner), one every" in told(*events, flags=["--steps_from", "inner"])


def test_a_range_that_covers_little_or_leaves_launches_out_is_no_step(loaded):
    short = []
    for at in (0, 100, 200):
        short += [annotation("log", at, 9), *layer(at + 20, at), *layer(at + 60, at + 1)]
    assert loaded(*short).found.how == "period"
    beside = [annotation("half", 0, 60), *launching(5, 1, 5), annotation("half", 100, 60), *launching(105, 2, 5)]
    beside += [one for n in range(4, 8) for one in (launch(70 + n, n), kernel(ADD, 90 + n, 1, n))]
    assert loaded(*beside).found.how != "range"


def test_ranges_among_the_ops_of_a_file_without_annotations_are_found(tmp_path):
    """As torch 1.8 writes record_function where nobody called the profiler's step()."""
    events = [one for n in range(4) for one in (op("train_step", 100 * n, 90), *layer(100 * n + 5, n))]
    facts = read(write(tmp_path / "t.json", *({**one, "cat": "Operator"} if one["cat"] == "cpu_op" else one for one in events)))
    assert ([one.name for one in facts.steps], facts.steps_found) == (["train_step"] * 4, Found("range", "train_step"))
    assert {one.name for one in facts.ops} == {"aten::linear", "aten::gelu"}


def test_one_range_of_another_kind_before_many_of_one_is_a_step_too(loaded):
    """A prefill takes more of the GPU's time than all tokens after it; layers are parts of both."""
    events = [annotation("prefill", 0, 90), annotation("layer 0", 2, 80), *launching(10, 0, 900)]
    for n in range(1, 7):
        events += [
            annotation("decode", 1000 + 100 * n, 90),
            annotation("layer 0", 1002 + 100 * n, 80),
            *launching(1010 + 100 * n, n),
        ]
    trace = loaded(*events)
    assert (trace.found, len(trace.steps)) == (Found("range", "prefill, decode"), 7)


def test_the_parts_of_one_pass_are_no_steps(loaded):
    """An embedding, twelve layers and a head, each a range: nothing is done again. A prefill does no less than a decode."""
    ranges, at = [], 0
    for n, name in enumerate(["embed", *(f"layer {k}" for k in range(12)), "lm_head"]):
        launches = 1 if name in ("embed", "lm_head") else 6
        ranges.append(annotation(name, at, 10 * launches + 8))
        ranges += [one for k in range(launches) for one in launching(at + 2 + 10 * k, 10 * n + k, 4)]
        at += 10 * launches + 20
    assert loaded(*ranges).found == Found("whole", "")
    served = [{**one, "name": one["name"].replace("layer", "decode").replace("embed", "prefill")} for one in ranges]
    assert loaded(*served).found.name == "decode #"


def test_a_long_pause_between_ranges_hides_none(loaded):
    events = [
        one for n, at in enumerate((0, 100, 200, 90_000, 90_100)) for one in (annotation("train", at, 90), *launching(at + 5, n))
    ]
    assert (loaded(*events).found, len(loaded(*events).steps)) == (Found("range", "train"), 5)


def test_what_is_done_again_and_again_is_the_step(loaded, told):
    trace = loaded(*passes(5, 1, 0))
    assert (trace.found, len(trace.steps)) == (Found("period", "aten::linear"), 5)
    assert [trace.steps.start_ns.tolist(), trace.work.step.tolist()] == [[0, 20000, 40000, 60000, 80000], [0, 1, 2, 3, 4]]
    how = "no ProfilerStep: the steps are the ops that repeat, starting at aten::linear (1 launch each)"
    said = told(*passes(5, 1, 0))
    assert f"steps: 5 (step 0 to step 4), one every 20.0 µs {how}; one step of the program may span several" in said


def test_layers_are_no_steps_where_longer_pauses_tell_the_passes_apart(loaded):
    """The pauses between two layers are 4 long, and the one between two passes 34."""
    assert len(loaded(*passes(3, 4, 30)).steps) == 3
    assert len(loaded(*passes(3, 4, 0)).steps) == 12


def test_a_wait_ends_each_step_but_the_last(loaded):
    first = [one for n, at in enumerate((0, 20, 40)) for one in layer(at, n)]
    second = [one for n, at in enumerate((100, 120, 140), 10) for one in layer(at, n)]
    trace = loaded(*first, call(SYNC, 65, 10, 50), *second)
    assert (trace.found.how, trace.steps.start_ns.tolist()) == ("period", [0, 100000])


def test_one_pass_with_much_beside_its_layers_is_one_step(loaded, told):
    """An embedding before and a large product behind the layers take a third of the GPU's time."""
    rest = [op("aten::embedding", 0, 9), launch(2, 90), kernel(ADD, 4, 8, 90), op("aten::matmul", 130, 9), launch(132, 91),
            kernel(GEMM, 140, 12, 91)]  # fmt: skip
    events = [*rest, *passes(1, 6, 0)]
    trace = loaded(*events)
    assert (trace.found, trace.steps.names, trace.work.step.tolist()) == (Found("whole", ""), ["step 0"], [0] * 8)
    said = told(*events)
    assert "steps: 1 (step 0), 152.0 µs no ProfilerStep, and nothing repeats: the whole recording counts as one step" in said


def test_a_whole_recording_has_findings_gains_and_a_what_if(told):
    events = [*layer(0, 1), op("aten::mul", 60, 30), op("aten::mul", 95, 30), launch(126, 7), kernel(ADD, 130, 9, 7)]
    said = told(*events, flags=["--what_if", "drop aten::mul"])
    assert "changed: 79.0 µs, which saves 43% of the recorded step" in said  # 60 of 139


def test_steps_are_the_same_with_pythons_functions(tmp_path):
    path = write(tmp_path / "t.json", event("python_function", "train.py(3): main", -5, 300), *passes(5, 1, 0))
    assert load(path).steps.names == load(path, stacks=True).steps.names == [f"step {n}" for n in range(5)]


def test_a_servers_detailed_and_short_names_are_its_steps(tmp_path):
    decode = "execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq64sk131072sqsq64sqsk131072)"
    prefill = "execute_9_context_1(sq9sk9sqsq81sqsk81)_generation_0(sq0sk0)"

    def kinds(*names):
        events = [one for n, name in enumerate(names) for one in (annotation(name, 100 * n, 90), *launching(100 * n + 5, n))]
        return [(one.kind, one.steps) for one in read(write(tmp_path / "t.json", *events)).server_steps]

    assert kinds(decode, prefill) == [("prefill", 1), ("decode", 1)]
    assert kinds("prefill[3]", "decode[8]", "decode[8]") == [("prefill", 1), ("decode", 2)]


def test_only_hints_that_a_person_would_give(told):
    """A collective's annotation, or a part of a step, is not offered as a step."""
    events = []
    for n in range(4):
        events += [annotation(f"nccl:all_reduce {n}", 7 * n, 1), annotation(f"chunk {n}", 7 * n + 2, 1)]
    said = told(*events, op("aten::sort", 40, 50), memcpy(60, 2, 9))
    assert "--steps_from '^chunk\\ ' would take 4 annotations for steps" in said and "nccl" not in said.partition("Verdict")[0]


def test_the_last_of_the_found_steps_ends_where_what_it_does_ends(loaded, tmp_path):
    """Three ops, twice; in the first step the profiler starts for 900: that is none of the second one's time."""
    events = [event("overhead", "Activity Buffer Request", 30, 850, {"pid": -1, "tid": 0})]
    for n, at in enumerate((20, 1000)):
        later = 900 * (n == 0)
        events += [op("aten::linear", at, 8), *launching(at + 2, 3 * n, 4)]
        events += [op(name, at + later + 20 + 20 * k, 8) for k, name in enumerate(("aten::gelu", "aten::sum"))]
    trace = loaded(*events)
    assert trace.found == Found("period", "aten::linear") and trace.steps_left_out == 1
    assert trace.steps.duration_us.tolist() == [980, 48 + 32]
    facts = read(write(tmp_path / "u.json", *events))
    assert (facts.step_period_us, facts.critical_path.window_us) == (80, 16)  # to the last kernel
