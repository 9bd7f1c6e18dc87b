"""The GPU's time by annotation, layer and line of Python, worked out by hand."""

import json

import pytest
from reader_helpers import TOOL
from reader_helpers.events import (
    ADD,
    GEMM,
    SGEMM,
    annotation,
    backward,
    document,
    event,
    forward,
    kernel,
    launch,
    memcpy,
    on,
    op,
    step,
    write,
)
from trace_reader import cli, load
from trace_reader.analysis.trace.own_code import file_and_line, is_own, is_own_caller, is_own_function, is_program_function
from trace_reader.analysis.trace.time_by_place import (
    NO_LINE,
    NO_OP,
    attribute_cpu_time,
    attribute_gpu_work,
    folded,
    layer_facts,
    line_facts,
    op_facts_of,
)
from trace_reader.findings.verdict import cpu_lines
from trace_reader.model.slices import Kind
from trace_reader.reading import analyze_file


def python(name, ts, dur, call_from=None):
    said = {} if call_from is None else {"CallFrom": call_from}
    return event("python_function", name, ts, dur, **said)


def training(*more):
    """Return two layers; each launches a kernel, and its backward pass others on autograd's thread."""
    return [
        step(0, 0, 1000),
        annotation("layer 0", 10, 90), forward("aten::mm", 20, 30, 7), launch(25, 1), kernel(GEMM, 100, 10, 1),
        annotation("layer 1", 110, 90), forward("aten::add", 120, 30, 8), launch(125, 2), kernel(ADD, 200, 20, 2),
        *on(2, backward("Add", 300, 90, 8), launch(310, 3), backward("Mm", 400, 90, 7), launch(410, 4), launch(420, 5)),
        kernel(ADD, 500, 40, 3), kernel(SGEMM, 600, 80, 4), kernel(SGEMM, 700, 160, 5),
        *more,
    ]  # fmt: skip


STACKS = [
    python("train.py(1): <module>", 0, 990),
    python("train.py(5): step", 5, 200, "train.py:50"),
    python("nn.Module: Block_0", 12, 86, "train.py:6"),
    python("torch/nn/modules/linear.py(130): forward", 15, 80, "torch/nn/modules/module.py:1800"),
    python("<built-in function linear>", 18, 60, "torch/nn/modules/linear.py:134"),
    python("nn.Module: Block_1", 112, 80, "train.py:7"),
    python("<built-in function add>", 118, 60, "block.py:9"),
]


def test_layers_have_forward_and_backward_side_by_side(tmp_path):
    rows = layer_facts(load(write(tmp_path / "t.json", *training())))
    assert [(r.name, r.calls, r.total_us, r.launched, r.gpu_us, r.backward_us) for r in rows] == [
        ("layer 0", 1, 90, 1, 10, 240), ("layer 1", 1, 90, 1, 20, 40),
    ]  # fmt: skip


def test_threads_number_their_nodes_each_for_itself(tmp_path):
    """Two forward passes on two threads: their nodes have the same numbers, and are another thread's of autograd."""
    events = [
        step(0, 0, 1000), annotation("layer 0", 10, 90), forward("aten::mm", 20, 10, 7), forward("aten::mm", 40, 10, 8),
        *on(3, annotation("layer 1", 110, 90), forward("aten::add", 120, 10, 7), forward("aten::add", 140, 10, 9)),
        *on(2, backward("Mm", 300, 50, 8, 1), launch(310, 1), backward("Mm", 400, 50, 7, 1), launch(410, 2),
            backward("Add", 500, 50, 9, 5), launch(510, 3), backward("Add", 600, 50, 7, 5), launch(610, 4)),
        *(kernel("k", 300 + 100 * n, 10 * n, n) for n in range(1, 5)),
    ]  # fmt: skip
    rows = layer_facts(load(write(tmp_path / "t.json", *events)))
    assert {r.name: r.backward_us for r in rows} == {"layer 0": 10 + 20, "layer 1": 30 + 40}


def test_what_checkpointing_computes_again_counts_once(tmp_path):
    """Inside the backward pass the layer runs again, on autograd's thread, whose nodes have numbers of the forward pass, too."""
    events = [
        step(0, 0, 1000), annotation("layer 0", 10, 90), forward("aten::mm", 20, 10, 7), launch(22, 1),
        annotation("layer 1", 110, 90), forward("aten::add", 120, 10, 8), launch(122, 2),
        *on(2, backward("Add", 300, 300, 8), annotation("layer 1", 310, 50), forward("aten::add", 320, 10, 7), launch(322, 3),
            op("autograd::engine::evaluate_function: AddBackward1", 400, 50, **{"Sequence number": 7, "Fwd thread id": 4}),
            launch(410, 4), backward("Mm", 700, 50, 7), launch(710, 5)),
        *(kernel("k", 720 + 100 * n, 10 * n, n) for n in range(1, 6)),
    ]  # fmt: skip
    rows = layer_facts(load(write(tmp_path / "t.json", *events)))
    assert {r.name: (r.launched, r.gpu_us, r.backward_us) for r in rows} == {"layer 0": (1, 10, 50), "layer 1": (1, 20, 30 + 40)}


def test_without_annotations_of_layers_the_modules_are_the_layers(tmp_path):
    events = training(*STACKS)
    path = write(tmp_path / "t.json", *({**e, "name": "part"} if e["name"].startswith("layer") else e for e in events))
    assert [(r.name, r.launched, r.gpu_us, r.backward_us) for r in layer_facts(load(path, stacks=True))] == [
        ("nn.Module: Block_0", 1, 10, 240), ("nn.Module: Block_1", 1, 20, 40),
    ]  # fmt: skip
    with pytest.raises(LookupError):
        layer_facts(load(path))
    assert [r.name for r in layer_facts(load(write(tmp_path / "u.json", *events), stacks=True))] == ["layer 0", "layer 1"]


def test_lines_are_those_of_the_program(tmp_path):
    lines = line_facts(load(write(tmp_path / "t.json", *training(*STACKS)), stacks=True))
    assert [(r.name, r.launched, r.time_us, r.backward_us, r.share) for r in lines] == [
        ("train.py:6", 3, 10, 240, 250 / 310), ("block.py:9", 2, 20, 40, 60 / 310),
    ]  # fmt: skip


def test_without_the_calling_line_it_is_the_function(tmp_path):
    stacks = [{**e, "args": {}} for e in STACKS]
    lone = [launch(980, 9), kernel(ADD, 985, 5, 9), *on(3, launch(990, 10)), kernel(ADD, 992, 1, 10)]
    lines = line_facts(load(write(tmp_path / "t.json", *training(*stacks, *lone)), stacks=True))
    assert [(r.name, r.launched, r.time_us, r.backward_us) for r in lines] == [
        ("train.py(5): step", 5, 30, 280), ("train.py(1): <module>", 1, 5, 0), (NO_LINE, 1, 1, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "is_the_programs"),
    [
        ("train.py", True), ("models/block.py", True), ("transformers/models/qwen3/modeling_qwen3.py", True),
        ("/home/me/train.py", True), ("/usr/lib/python3.12/site-packages/mine/a.py", True), ("/home/me/torch/train.py", True),
        ("/opt/python3.12/proj/a.py", True), ("<ipython-input-3-ab>", True),
        ("torch/nn/modules/linear.py", False), ("/usr/lib/python3.12/site-packages/torch/optim/adam.py", False),
        ("C:\\py\\Lib\\site-packages\\torch\\nn\\a.py", False), ("C:\\py\\Lib\\site-packages\\mine\\a.py", True),
        ("/tmp/torchinductor_me/ab/cab.py", False), ("triton/runtime/jit.py", False), ("contextlib.py", False),
        ("importlib/metadata.py", False), ("/usr/lib/python3.12/typing.py", False), ("<string>", False), ("<frozen os>", False),
    ],
)  # fmt: skip
def test_what_is_the_programs_own(file, is_the_programs):
    assert is_own(file) is is_the_programs
    assert is_own_caller(f"{file}:12") is is_the_programs
    assert is_own_function(f"{file}(12): f") is is_the_programs


@pytest.mark.parametrize("name", ["<built-in function linear>", "nn.Module: Linear_0"])
def test_what_has_no_file_is_no_line_of_the_program(name):
    assert not is_own_function(name)


def test_stacks_lead_from_the_program_to_the_kernel(tmp_path):
    assert folded(load(write(tmp_path / "t.json", *training(*STACKS)), stacks=True)) == {
        "train.py(1): <module>;train.py(5): step;layer 0;aten::mm;nvjet GEMM 256x128": 10_000,
        "train.py(1): <module>;train.py(5): step;layer 0;aten::mm;backward;sgemm 128x64": 240_000,
        "train.py(1): <module>;train.py(5): step;layer 1;aten::add;add": 20_000,
        "train.py(1): <module>;train.py(5): step;layer 1;aten::add;backward;add": 40_000,
    }


def test_the_first_slice_and_the_first_node_count_as_the_others(tmp_path):
    """The trace begins with the op, which makes node 0."""
    path = write(
        tmp_path / "t.json", forward("aten::mm", 0, 30, 0), launch(5, 1), kernel(GEMM, 100, 10, 1),
        *on(2, backward("Mm", 200, 50, 0), launch(210, 2)), kernel(SGEMM, 300, 20, 2), launch(400, 3), kernel(ADD, 500, 40, 3),
    )  # fmt: skip
    trace = load(path)
    assert folded(trace) == {"aten::mm;nvjet GEMM 256x128": 10_000, "aten::mm;backward;sgemm 128x64": 20_000,
                             "add": 40_000}  # fmt: skip
    assert [(row.name, row.launched, row.time_us, row.backward_us) for row in op_facts_of(trace, attribute_gpu_work(trace))] == [
        (NO_OP, 1, 40, 0), ("aten::mm", 2, 10, 20),
    ]  # fmt: skip


@pytest.mark.parametrize("caller", [None, "run.py:9"])
def test_the_first_function_counts_as_the_others(tmp_path, caller):
    """What a function launches by an operator is at that function, not at the line that called it."""
    path = write(tmp_path / "t.json", python("train.py(1): main", 0, 90, caller), launch(5, 1), kernel(GEMM, 100, 10, 1))
    (row,) = line_facts(load(path, stacks=True))
    assert (row.name, row.launched, row.share) == ("train.py(1): main", 1, 1)


def test_what_a_function_of_torch_does_is_at_the_line_that_called_that(tmp_path):
    main, relu = python("train.py(1): main", 0, 90, "run.py:9"), python("torch/nn/functional.py(2): relu", 2, 80, "train.py:5")
    path = write(tmp_path / "t.json", main, relu, launch(5, 1), kernel(GEMM, 100, 10, 1))
    (row,) = line_facts(load(path, stacks=True))
    assert (row.name, row.launched, row.share) == ("train.py:5", 1, 1)


def test_a_frame_is_one_line_without_the_sign_between_frames(tmp_path):
    timeless = launch(8, 2), kernel(SGEMM, 150, 0, 2)
    path = write(tmp_path / "t.json", annotation("a;b\n  c", 0, 50), launch(5, 1), kernel(ADD, 100, 40, 1), *timeless)
    assert folded(load(path)) == {"a:b c;add": 40_000}


def test_without_a_gpu_it_is_the_cpus_time_in_ops(tmp_path, capsys):
    path = write(
        tmp_path / "t.json", step(0, 0, 500), annotation("layer 0", 5, 90), op("aten::linear", 10, 50),
        forward("aten::mm", 20, 30, 7), *on(2, backward("Mm", 200, 70, 7), op("aten::mm", 210, 40)),
    )  # fmt: skip
    assert folded(load(path)) == {
        "layer 0;aten::linear": 20_000, "layer 0;aten::linear;aten::mm": 30_000,
        "layer 0;aten::linear;aten::mm;backward;aten::mm": 40_000,
        "layer 0;aten::linear;aten::mm;backward;autograd::engine::evaluate_function: MmBackward0": 30_000,
    }  # fmt: skip
    assert cli.main([path, "--by", "layer"]) == 0
    assert (
        "  layer    calls      CPU   median  backward\n  layer 0      1  90.0 µs  90.0 µs   70.0 µs\n" in capsys.readouterr().out
    )


def test_the_tables_and_their_json(tmp_path, capsys):
    path = write(tmp_path / "t.json", *training(*STACKS))
    assert cli.main([path, "--by", "stack"]) == 0
    out = capsys.readouterr().out
    assert "  line        launched  GPU time  backward  share\n  train.py:6         3   10.0 µs  240.0 µs  80.6%\n" in out
    assert cli.main([path, "--by", "annotation"]) == 0
    assert "  layer 0         1  90.0 µs  90.0 µs         1   10.0 µs  240.0 µs\n" in capsys.readouterr().out
    assert cli.main([path, "--by", "stack", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1, "trace": path, "by": "stack", "rows": [
            {"name": "train.py:6", "launched": 3, "time_us": 10.0, "backward_us": 240.0, "share": 0.806452},
            {"name": "block.py:9", "launched": 2, "time_us": 20.0, "backward_us": 40.0, "share": 0.193548},
        ],
    }  # fmt: skip


def test_the_lines_that_inductor_wrote_are_told_of_compiled_kernels(tmp_path, capsys):
    """Two replays of a Triton kernel of three lines of the program, one of a product of one, and a copy of none; no functions."""

    def frame(line, function="forward", file="/home/me/work/model.py"):
        return f'  File "{file}", line {line}, in {function}\n    return f(x)\n'

    inside = frame(5, "gelu", "/home/me/env/lib/python3.12/site-packages/torch/nn/functional.py")
    fused = [
        frame(40, "main", "/home/me/work/train.py") + frame(12) + inside,
        frame(14),
        frame(12) + inside,
        frame(9, file="a.py"),
    ]
    kernels = [("triton_poi_fused_gelu_0", 95, fused), ("triton_poi_fused_gelu_0", 95, fused), ("gemm", 80, [frame(20)])]
    events = [step(0, 0, 400), launch(300, 9), memcpy(390, 4, 9)]
    for n, (name, dur, stack) in enumerate(kernels):
        one = kernel(name, 20 + 100 * n, dur, n)
        one["args"]["stack"] = stack
        events += [launch(100 * n, n), one]
    path = write(tmp_path / "t.json", *events)
    rows = line_facts(load(path))
    assert [(row.name, row.launched, row.time_us) for row in rows] == [
        ("model.py:12, 14, a.py:9", 2, 190), ("model.py:20", 1, 80), (NO_LINE, 1, 4),
    ]  # fmt: skip
    facts = analyze_file(path)
    assert {one.name: one.lines for one in facts.kernels}["gemm"] == ("model.py:20",)
    assert {one.name: one.configurations for one in facts.kernels}["triton_poi_fused_gelu_0"] == 1
    assert cli.main([path, "--all"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "takes 69% of GPU time in 2 calls; it does what model.py:12, 14, a.py:9 ask for" in said
    assert cli.main(["show", path, "hotspot"]) == 0
    assert "model.py:12, 14, a.py:9" in capsys.readouterr().out
    assert cli.main(["redact", path, "-o", str(tmp_path / "r.json")]) == 0
    assert "model.py" not in (tmp_path / "r.json").read_text() and "/home/me" not in (tmp_path / "r.json").read_text()


def test_of_a_deep_stack_the_outer_frames_are_told(tmp_path):
    deep = [op(f"op{n}", n, 1000 - 2 * n) for n in range(1, 300)]
    (stack,) = folded(load(write(tmp_path / "t.json", step(0, 0, 1000), *deep, launch(400, 1), kernel("k", 500, 3, 1))))
    assert stack == ";".join([*(f"op{n}" for n in range(1, 201)), "deeper ones", "k"])


def test_every_layer_has_a_row_with_all(tmp_path, capsys):
    layers = [annotation(f"layer {n}", 10 * n, 9) for n in range(50)]
    path = write(tmp_path / "t.json", step(0, 0, 900), *layers)
    for flags, rows in (((), 40), (("--all",), 50), (("--top", "3"), 3)):
        assert cli.main([path, "--by", "layer", *flags]) == 0
        assert capsys.readouterr().out.count("\n  layer ") == rows + 1


def test_a_flame_graphs_file(tmp_path, capsys):
    path = write(tmp_path / "t.json", *training(*STACKS))
    assert cli.main([path, "--folded", str(tmp_path / "f.txt")]) == 0
    assert capsys.readouterr().out == (
        f"wrote {tmp_path}/f.txt: 4 stacks, 310.0 µs of the GPU's time; open it with speedscope, inferno or flamegraph.pl\n"
    )
    assert (tmp_path / "f.txt").read_text().splitlines()[0] == (
        "train.py(1): <module>;train.py(5): step;layer 0;aten::mm;backward;sgemm 128x64 240000"
    )
    assert cli.main([path, "--folded", str(tmp_path / "no" / "f.txt")]) == 1
    assert f"error: {tmp_path}/no/f.txt: No such file or directory" in capsys.readouterr().err


def test_modules_are_layers_of_the_command_too(tmp_path, capsys):
    events = ({**e, "name": "part"} if e["name"].startswith("layer") else e for e in training(*STACKS))
    assert cli.main([write(tmp_path / "t.json", *events), "--by", "layer"]) == 0
    assert "nn.Module: Block_0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("layer", "no layers: no annotation ends with a number (layer 3), and no modules were recorded (with_stack)"),
        (
            "stack",
            "no functions of Python: record with stacks (with_stack=True, a lesson's --with_stack); --by annotation needs none",
        ),
    ],
)
def test_what_was_not_recorded_is_said(tmp_path, capsys, by, said):
    path = write(tmp_path / "t.json", step(0, 0, 9), launch(1, 1), kernel("a", 3, 2, 1))
    assert cli.main([path, "--by", by]) == 2
    assert capsys.readouterr().err == f"error: {path}: {said}\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--by", "layer", "--chain"],
            "--chain and --by are two commands: give one of them",
        ),
        (["b.json", "--by", "layer"], "time takes one trace, got 'b.json' beside it"),
        (["b.json", "--folded", "x"], "folded takes one trace, got 'b.json' beside it"),
    ],
)
def test_flags_that_do_not_go_together(capsys, flags, said):
    with pytest.raises(SystemExit) as ended:
        cli.main(["a.json", *flags])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_the_cpus_time_is_that_of_python_too(tmp_path, capsys):
    """A function of 60 µs holds an op of 10; the loop around it has 40 of its own; what comes before the step is not counted."""
    path = write(
        tmp_path / "t.json",
        event("python_function", "train.py(1): loop", -500, 600), step(0, 0, 100),
        event("python_function", "train.py(3): one", 0, 100), event("python_function", "data.py(9): normalize", 10, 60),
        op("aten::mul", 20, 10), launch(25, 1), kernel(ADD, 30, 40, 1),
    )  # fmt: skip
    assert cli.main([path, "--by", "stack", "--time", "cpu", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["rows"]
    assert [(line["name"], line["time_us"], line["share"]) for line in lines] == [
        ("data.py(9): normalize", 60, 0.6), ("train.py(3): one", 40, 0.4),
    ]  # fmt: skip
    assert cli.main([path, "--folded", str(tmp_path / "f.txt"), "--time", "cpu"]) == 0
    stacks = dict(line.rsplit(" ", 1) for line in (tmp_path / "f.txt").read_text().splitlines())
    loop = "train.py(1): loop;train.py(3): one"
    normalize = f"{loop};data.py(9): normalize"
    assert {stack: int(ns) for stack, ns in stacks.items()} == {
        loop: 40_000, normalize: 50_000, f"{normalize};aten::mul": 9000, f"{normalize};aten::mul;cudaLaunchKernel": 1000
    }  # fmt: skip
    assert cli.main([path, "--by", "annotation", "--time", "cpu"]) == 2
    assert "--time cpu is of time --by stack and of folded" in capsys.readouterr().err


def test_a_thread_that_may_wait_is_no_cpu_time(tmp_path, capsys):
    """One function is open in it all the time; the trace does not say whether it does anything."""
    trace = TOOL / "benchmarks" / "with_stacks.json.gz"
    assert cli.main([str(trace), "--folded", str(tmp_path / "f.txt"), "--time", "cpu"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / 'f.txt'}: 63 stacks, 1.04 ms of the CPU's time")
    text = (tmp_path / "f.txt").read_text()
    assert "_watch" not in text and "03_simple_mlp.py(35): forward" in text


def test_an_annotation_that_outlives_the_function_which_began_it_takes_no_time_twice(tmp_path, capsys):
    """record_function begins inside a function of torch's, and goes on after that has returned."""
    path = write(
        tmp_path / "t.json", step(0, 0, 100), event("python_function", "train.py(1): one", 0, 100),
        event("python_function", "<built-in method _record_function_enter_new>", 10, 5), annotation("fwd", 12, 80),
        event("python_function", "train.py(5): work", 20, 60),
    )  # fmt: skip
    assert cli.main([path, "--by", "stack", "--time", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["name"], row["time_us"]) for row in rows] == [("train.py(5): work", 60), ("train.py(1): one", 40)]


def loop_with_stacks(**more):
    """Steps of 100 that the CPU limits: 55 in normalize (of which 10 in an op), 35 in the loop and 6 in torch under it; on
    another thread somebody waits. The kernel takes 5. In front of the first step, a function that is not counted.
    """
    events = [event("python_function", "train.py(1): main", -500, 900)]
    for n in range(3):
        at = 100 * n
        events += [step(n, at, 98), event("python_function", "train.py(3): loop", at, 98)]
        events += [event("python_function", "data.py(9): normalize", at + 10, 55), op("aten::mul", at + 20, 10)]
        events += [event("python_function", "torch/nn/modules/linear.py(134): forward", at + 70, 6), launch(at + 72, n + 1)]
        events += [kernel(ADD, at + 80, 5, n + 1), *on(7, event("python_function", "watch.py(7): wait", at, 90))]
    return document(*events, **more)


def test_the_report_names_the_lines_that_the_cpu_is_in(tmp_path, capsys):
    """Of the path, 185 from the end of the first step to that of the last kernel: twice 55 of normalize."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps(loop_with_stacks(with_stack=1)))
    assert cli.main([str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "overhead-bound"
    shares = {line["line"]: line["share"] for line in told["cpu_lines"]}
    cpu = told["critical_path"]["cpu_us"] / told["critical_path"]["window_us"]
    assert list(shares) == ["data.py(9): normalize", "train.py(3): loop"] and sum(shares.values()) == pytest.approx(cpu, abs=0.05)
    assert shares["data.py(9): normalize"] == pytest.approx(110 / 185, abs=1e-5)
    for flags in ([], ["--brief"], ["--md"]):
        assert cli.main([str(path), *flags]) == 0
        said = " ".join(capsys.readouterr().out.split())
        line = "of the critical path, by line of Python (with what it calls in torch): data.py(9): normalize 59%, train.py("
        assert line in said and "recorded without stacks" not in said


def test_a_trace_without_stacks_that_the_cpu_limits_says_how_to_see_the_lines(tmp_path, capsys):
    data = loop_with_stacks()
    data["traceEvents"] = [one for one in data["traceEvents"] if one.get("cat") != "python_function"]
    path = tmp_path / "t.json"
    line = "\nrecorded without stacks: with_stack=True would show which lines of Python the\n  CPU is at\n"
    for one, said in ((data, True), ({**data, "lesson": {"script": "01_matmul_add"}}, False)):
        path.write_text(json.dumps(one))
        assert cli.main([str(path)]) == 0
        assert (line in capsys.readouterr().out) is said
    assert analyze_file(str(path)).cpu_lines == ()


def test_a_trace_that_the_gpu_limits_names_no_lines_and_is_read_once():
    """The run is gpu-bound without the profiler."""
    read = []

    def counted(path, steps_from=None, stacks=False):
        read.append(stacks)
        return load(path, steps_from=steps_from, stacks=stacks)

    assert analyze_file(str(TOOL / "benchmarks" / "with_stacks.json.gz"), counted).cpu_lines == () and read == [False]
    tables = TOOL / "tests" / "data" / "detailed" / "h200_tables_stacks.json.gz"
    (first,) = analyze_file(str(tables), counted).cpu_lines
    assert first.line == "path-1.py(110): forward" and 0.9 < first.share < 1
    assert read == [False, False, True]


def test_what_a_function_does_itself_is_at_it_and_what_it_calls_in_c_is_named(tmp_path):
    """torch 2.15 says the line that called: load (run.py:9) works for 105 itself, and calls C from line 5 for 600 and
    200.
    """
    events = []
    for n in range(3):
        at = 1000 * n
        events += [step(n, at, 990), python("run.py(1): main", at, 985), python("data.py(3): load", at + 1, 905, "run.py:9")]
        events += [python("<built-in function collect>", at + 101, 600, "data.py:5"), op("aten::mm", at + 950, 20)]
        events += [python("<built-in function sleep>", at + 701, 200, "data.py:5")]
    path = write(tmp_path / "t.json", *events)
    trace = load(path, stacks=True)
    first, second, *_ = line_facts(trace, attribute_cpu_time(trace))
    assert (first.name, first.time_us, second.name, second.time_us) == ("data.py:5", 2400, "data.py(3): load", 315)
    facts = analyze_file(path)
    assert [(line.line, line.mostly) for line in facts.cpu_lines[:2]] == [
        ("data.py:5", "<built-in function collect>"), ("data.py(3): load", "")
    ]  # fmt: skip
    assert "data.py:5 80% (mostly built-in function collect), data.py(3): load 11%" in cpu_lines(facts)


@pytest.mark.parametrize("begins", ["torch/profiler/profiler.py(577): start_trace", "torch/autograd/profiler.py(300): __enter__"])
def test_a_function_that_ran_when_the_recording_began_has_no_line(tmp_path, begins):
    """The profiler writes the line at which each was then: only of others is it the one at which they begin."""
    frames = [("train.py(72): <module>", 0, 900), ("train.py(9): main", 1, 898), (begins, 2, 10), ("train.py(20): loss", 100, 50)]
    on_another = [("worker.py(5): run", 0, 900), ("queue.py(9): get", 1, 898)]
    for name, known in ((begins, False), ("train.py(3): other", True)):
        python = [event("python_function", name if one is begins else one, ts, dur) for one, ts, dur in frames]
        other = [{**event("python_function", *one), "tid": 77} for one in on_another]
        trace = load(write(tmp_path / "t.json", step(0, 20, 800), op("aten::mm", 30, 10), *python, *other), stacks=True)
        names = {trace.slices.names[number] for number in trace.slices.name[trace.slices.of(Kind.PYTHON)].tolist()}
        assert {"train.py(20): loss", "worker.py(5): run"} <= names
        assert ("train.py(72): <module>" in names, "train.py(9): main" in names) == (known, known)
        assert ({"train.py(?): <module>", "train.py(?): main"} <= names) is not known
    assert file_and_line("train.py(?): main") == ("train.py", None) and is_program_function("train.py(?): main")
