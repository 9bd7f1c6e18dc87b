"""What a CUDA graph replays, named by a trace of the same step without the graph."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from reader_helpers.events import ADD, GEMM, SGEMM, annotation, call, event, kernel, launch, memcpy, op, step, write
from trace_reader import cli, load
from trace_reader.analysis.trace.graph_names import join_names
from trace_reader.analysis.trace.time_by_place import NO_OP, TimeFacts, layer_facts, op_facts_of
from trace_reader.report import place_report


def eager(*more):
    """Return two equal steps: two layers, each of a GEMM and an add, and a copy before."""
    events = []
    for n, at in enumerate((0, 1000)):
        first = 10 * n
        events += [
            step(n, at, 900), call("cudaMemcpyAsync", at + 1, 2, first), memcpy(at + 5, 2, first),
            annotation("layer 0", at + 10, 90), op("aten::mm", at + 20, 30), launch(at + 25, first + 1),
            op("aten::add", at + 60, 20), launch(at + 65, first + 2),
            annotation("layer 1", at + 110, 90), op("aten::mm", at + 120, 30), launch(at + 125, first + 3),
            op("aten::add_", at + 160, 20), launch(at + 165, first + 4),
            kernel(GEMM, at + 30, 10, first + 1), kernel(ADD, at + 70, 5, first + 2),
            kernel(GEMM, at + 130, 10, first + 3), kernel(ADD, at + 170, 5, first + 4),
        ]  # fmt: skip
    return [*events, *more]


def replay(*names, steps=2):
    """As many replays as steps; a kernel of 1, 2, 3, ... us for each name."""
    events = []
    for n in range(steps):
        at = 100 * n
        events += [step(n, at, 90), call("cudaGraphLaunch", at + 5, 3, n)]
        events += [kernel(name, at + 10 + 8 * place, place + 1, n) for place, name in enumerate(names)]
    return events


@pytest.fixture
def joined(tmp_path):
    def join(graph, other):
        return join_names(
            load(write(tmp_path / "graph.json", *graph)), named := load(write(tmp_path / "eager.json", *other))
        ), named

    return join


def test_every_kernel_has_its_op_and_its_layer(joined):
    found, named = joined(replay(GEMM, ADD, GEMM, ADD), eager())
    assert (found.named, found.events, found.replays, found.step, found.differs) == (8, 8, 2, "ProfilerStep#1", None)
    assert [(r.name, r.launched, r.time_us, r.backward_us, r.share) for r in op_facts_of(named, found.asked)] == [
        ("aten::add_", 2, 8, 0, 8 / 20), ("aten::mm", 4, 8, 0, 8 / 20), ("aten::add", 2, 4, 0, 4 / 20),
    ]  # fmt: skip
    assert [(r.name, r.launched, r.gpu_us) for r in layer_facts(named, found.asked)] == [("layer 0", 4, 6), ("layer 1", 4, 14)]


def test_where_they_differ_the_rest_has_no_name(joined):
    found, named = joined(replay(GEMM, ADD, SGEMM, ADD), eager())
    assert (found.named, found.events, found.differs) == (4, 8, (2, SGEMM, GEMM))
    assert [(r.name, r.launched, r.time_us) for r in op_facts_of(named, found.asked)] == [("aten::add", 2, 4), ("aten::mm", 2, 2)]


def test_what_differs_is_told_of_the_right_trace(tmp_path, capsys):
    graph, other = write(tmp_path / "graph.json", *replay(GEMM, ADD, SGEMM, ADD)), write(tmp_path / "eager.json", *eager())
    assert cli.main([graph, "--names", other, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differs"] == {"place": 2, "graph": SGEMM, "names": GEMM}


def test_a_share_counts_the_backward_pass():
    view: Any = SimpleNamespace(joined=SimpleNamespace(asked=SimpleNamespace(time_us=np.array([3.0, 5.0]))))
    assert place_report._share(TimeFacts("aten::mm", 2, 3.0, 1.0, 0.0), view) == "50.0%"


def test_the_longest_agreement_counts(joined):
    """GEMM, add agrees at both layers; what follows only at the second."""
    found, named = joined(replay(GEMM, ADD, SGEMM), eager(launch(1200, 30), kernel(SGEMM, 1300, 1, 30)))
    assert found.differs is None
    assert [(r.name, r.gpu_us) for r in layer_facts(named, found.asked)] == [("layer 0", 0), ("layer 1", 6)]
    assert [r.name for r in op_facts_of(named, found.asked)] == [NO_OP, "aten::add_", "aten::mm"]


def test_a_replay_that_goes_on_after_the_other_ends(joined):
    found, _ = joined(replay(GEMM, ADD, GEMM, ADD, ADD), eager())
    assert (found.named, found.differs) == (8, (4, ADD, None))


def test_several_graphs_of_a_step_are_named_one_after_the_other(joined):
    graph = [step(0, 0, 90), call("cudaGraphLaunch", 5, 3, 1), call("cudaGraphLaunch", 15, 3, 2)]
    graph += [kernel(GEMM, 20, 1, 1), kernel(ADD, 22, 2, 1), kernel(GEMM, 25, 4, 2), kernel(ADD, 30, 8, 2)]
    found, named = joined(graph, eager())
    assert (found.replays, found.differs) == (2, None)
    assert [(r.name, r.gpu_us) for r in layer_facts(named, found.asked)] == [("layer 0", 3), ("layer 1", 12)]


def test_a_launch_more_than_the_other_has_is_not_named_twice(joined):
    graph = [step(0, 0, 90), *(call("cudaGraphLaunch", 5 + 10 * n, 3, n) for n in range(3))]
    graph += [e for n in range(3) for e in (kernel(GEMM, 40 + 10 * n, 1, n), kernel(ADD, 45 + 10 * n, 1, n))]
    found, _ = joined(graph, eager())
    assert (found.named, found.events, found.replays, found.differs) == (4, 6, 3, (0, GEMM, None))


def test_nothing_agrees(joined, tmp_path, capsys):
    found, _ = joined(replay(SGEMM), eager())
    assert (found.named, found.events, found.differs) == (0, 2, (0, SGEMM, "Memcpy DtoD (Device -> Device)"))
    assert cli.main([str(tmp_path / "graph.json"), "--names", str(tmp_path / "eager.json")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "0 of 2 kernels, copies and memsets that 2 graph launches replayed" in out
    assert "the first 0 of a launch agree; then the graph has sgemm 128x64 and the other trace Memcpy DtoD" in out


def test_what_is_printed(joined, tmp_path, capsys):
    joined(replay(GEMM, ADD, GEMM, ADD), eager())
    graph, other = str(tmp_path / "graph.json"), str(tmp_path / "eager.json")
    assert cli.main([graph, "--names", other]) == 0
    out = capsys.readouterr().out
    assert "".join(f"Named by {other}, ProfilerStep#1".split()) in "".join(out.split())
    assert "  8 of 8 kernels, copies and memsets that 2 graph launches replayed\n" in out
    assert "  op          replayed  GPU time  share\n  aten::add_         2    8.0 µs  40.0%\n" in out
    assert cli.main([graph, "--names", other, "--by", "layer"]) == 0
    assert "  layer    replayed  GPU time  share\n  layer 0         4    6.0 µs  30.0%\n" in capsys.readouterr().out
    assert cli.main([graph, "--names", other, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"][2] == {"name": "aten::add", "launched": 2, "time_us": 4.0, "backward_us": 0.0, "share": 0.2}
    assert {key: said[key] for key in ("trace", "names", "by", "named", "events", "replays", "differs")} == {
        "trace": graph, "names": other, "by": "op", "named": 8, "events": 8, "replays": 2, "differs": None,
    }  # fmt: skip


def test_what_cannot_be_named_is_said(tmp_path, capsys):
    graph, other = write(tmp_path / "graph.json", *replay(GEMM)), write(tmp_path / "eager.json", *eager())
    for first, second, said in (
        (other, graph, f"{other}: nothing was replayed by a graph launch: there is nothing to name"),
        (graph, graph, f"{graph}: its middle step launches nothing outside a graph: it names nothing"),
    ):
        assert cli.main([first, "--names", second]) == 2
        assert capsys.readouterr().err == f"error: {said}\n"
    with pytest.raises(SystemExit):
        cli.main([graph, "--names", other, "--chain"])
    assert "are two commands: give one of them" in capsys.readouterr().err


def test_the_lines_of_python_are_the_other_traces(tmp_path, capsys):
    frame = event("python_function", "torch/functional.py(5): step", 1000, 900, CallFrom="train.py:50")
    graph = write(tmp_path / "graph.json", *replay(GEMM, ADD, GEMM, ADD))
    other = write(tmp_path / "eager.json", *eager(frame))
    assert cli.main([graph, "--names", other, "--by", "stack"]) == 0
    assert "  train.py:50         8   20.0 µs  100.0%\n" in capsys.readouterr().out


def test_standard_input_is_read_once(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["-", "--names", "-"])
    assert ended.value.code == 2 and "standard input (-) can be read only once" in capsys.readouterr().err


def test_a_capture_whose_launches_say_what_they_launch_names_the_kernels(joined):
    """As on AMD's devices: no event of the GPU in the capture. A memset of the graph, which no launch names, is left out."""
    said = [(op(name, 10 * n, 9), {**call("hipLaunchKernel", 10 * n + 2, 3, n), "args": {"correlation": n, "kernel": of}})
            for n, (name, of) in enumerate((("aten::mm", GEMM), ("aten::add", ADD), ("aten::mm", GEMM)))]  # fmt: skip
    graph = [*replay(GEMM, ADD, GEMM), event("gpu_memset", "Memset (Device)", 80, 1, {"pid": 0, "tid": 7}, correlation=0)]
    found, named = joined(graph, [e for pair in said for e in pair])
    assert (found.named, found.events, found.replays, found.step, found.differs) == (6, 6, 2, None, None)
    assert [(r.name, r.launched, r.time_us) for r in op_facts_of(named, found.asked)] == [
        ("aten::mm", 4, 8), ("aten::add", 2, 4)
    ]  # fmt: skip
