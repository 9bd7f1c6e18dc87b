"""Regions of CUDA graphs, which torch 2.15's mark_kernels names.

The files are made by hand, with the arguments that torch's exporters write: no GPU with torch 2.15 was at hand.
"""

import json

import pytest
from reader_helpers.events import ADD, GEMM, annotation, call, document, kernel, launch, memcpy, memset, step
from reader_helpers.other_forms import torchs_exporter, window
from trace_reader import cli, load, read
from trace_reader.analysis.trace.time_by_place import region_facts

BASE_NS = 1_700_000_000_000_000_000


def node(event, number, *marks):
    """Return the event as a node of a graph, with the arguments that torch's exporter adds; `regions` is what that exporter is
    given.
    """
    event["args"] |= {"graph node id": number, "regions": list(marks) or None}
    return event


def replay(start, correlation):
    """Return one launch of a graph: 2 kernels of layer 0, 1 of layer 1 and its copy, a memset of none, and two of the backward
    pass.
    """
    named = [{"name": f"layers.{number}"} for number in range(2)]
    back = {"autograd_phase": "backward"}
    return [
        call("cudaGraphLaunch", start, 4, correlation),
        node(kernel(GEMM, start + 6, 10, correlation, grid=(2, 1, 1)), 1, named[0]),
        node(kernel(ADD, start + 16, 2, correlation), 2, {"name": "outer"}, named[0]),
        node(kernel(GEMM, start + 20, 20, correlation, grid=(2, 1, 1)), 3, named[1]),
        node(memcpy(start + 40, 1, correlation), 4, {**named[1], "stream": 9}),
        node(memset(start + 41, 3, correlation), 5),
        node(kernel(GEMM, start + 44, 5, correlation, grid=(2, 1, 1)), 6, {**named[1], **back}),
        node(kernel(GEMM, start + 50, 8, correlation, grid=(2, 1, 1)), 7, {**named[0], **back}),
    ]


RUN = document(
    step(2, 0, 100), annotation("replay", 1, 20), *replay(5, 1), step(3, 100, 100), *replay(105, 2), step(4, 200, 100),
    call("cudaDeviceSynchronize", 210, 20, 3),
)  # fmt: skip


def written_by_torch(path, trace=RUN):
    """Return the file that torch's exporters write: the usual one splices the marks into the arguments."""
    try:
        from torch.profiler._chrome_trace_export import _annotation_args
    except ImportError:
        pytest.skip("torch before 2.15 does not write regions")
    trace = json.loads(json.dumps(trace))
    for event in trace["traceEvents"]:
        if marks := event.get("args", {}).pop("regions", None):
            text, stream, _ = _annotation_args(marks)
            event["args"] |= json.loads(f"{{{text}}}") | ({} if stream is None else {"annotated_stream": stream})
    path.write_text(json.dumps({**trace, "cudaGraphInlineAnnotated": True}))
    return path


def spliced(path, trace=RUN):
    """As torch's exporter writes it, without torch."""
    trace = json.loads(json.dumps(trace))
    for event in trace["traceEvents"]:
        for mark in event.get("args", {}).pop("regions", None) or ():
            event["args"] |= {key: value for key, value in mark.items() if key != "stream"}
    path.write_text(json.dumps(trace))
    return path


def told(capsys, path, *flags):
    assert cli.main([str(path), *flags]) == 0
    return capsys.readouterr().out


def test_the_gpu_s_time_by_layer_of_a_replayed_graph(tmp_path, capsys):
    assert told(capsys, spliced(tmp_path / "a.json"), "--by", "layer").partition("Layers")[2] == (
        """ (GPU time: of what was launched inside, on the same thread; backward: of
its backward pass, which runs later)
  layer     calls  CPU  median  launched  GPU time  backward
  layers.0      2  -    -              4   24.0 µs   16.0 µs
  layers.1      2  -    -              4   42.0 µs   10.0 µs
"""
    )


def test_beside_the_annotations_of_the_cpu(tmp_path, capsys):
    rows = json.loads(told(capsys, spliced(tmp_path / "a.json"), "--by", "annotation", "--json"))["rows"]
    assert [(row["name"], row["total_us"], row["median_us"], row["gpu_us"], row["launched"]) for row in rows] == [
        ("layers.1", None, None, 42, 4), ("replay", 20, 20, 49, 7), ("layers.0", None, None, 24, 4),
    ]  # fmt: skip
    assert [row["backward_us"] for row in rows] == [10, None, 16]


def test_regions_change_nothing_else(tmp_path):
    """Equal launches in two regions are one footprint of a kernel."""
    plain = json.loads(json.dumps(RUN))
    for event in plain["traceEvents"]:
        event.get("args", {}).pop("regions", None)
    (tmp_path / "b.json").write_text(json.dumps(plain))
    with_regions, without = read(str(spliced(tmp_path / "a.json"))), read(str(tmp_path / "b.json"))
    assert with_regions.kernels == without.kernels and with_regions.steps == without.steps
    assert [finding.slug for finding in with_regions.findings] == [finding.slug for finding in without.findings]
    assert [one.name for one in without.annotations] == ["replay"]


def test_names_that_are_no_layers(tmp_path, capsys):
    """Without numbers at their ends, all regions are told; with some, those alone. A kernel that is in no graph is in none."""

    def run(*names):
        events = [node(kernel(GEMM, 10 + 10 * n, 5, 1), n, {"name": name}) for n, name in enumerate(names)]
        plain = kernel(ADD, 90, 5, 1, name_of="x")
        plain["args"]["name"] = "no region 7"
        trace = document(step(2, 0, 200), call("cudaGraphLaunch", 1, 4, 1), *events, plain)
        rows = json.loads(told(capsys, spliced(tmp_path / "a.json", trace), "--by", "layer", "--json"))["rows"]
        return [(row["name"], row["calls"], row["launched"], row["backward_us"]) for row in rows]

    assert run("attention", "mlp", "attention") == [("attention", 1, 2, None), ("mlp", 1, 1, None)]
    assert run("layer 0", "mlp", "layer 1") == [("layer 0", 1, 1, None), ("layer 1", 1, 1, None)]


def test_all_forms_that_torch_writes_say_the_same(tmp_path, capsys):
    """Its usual exporter, and the other one as a Chrome trace and in Perfetto's form."""
    forms = [spliced(tmp_path / "own.json"), written_by_torch(tmp_path / "usual.json")]
    cpu, columns = window(RUN, BASE_NS)
    (tmp_path / "cpu.json").write_text(json.dumps(cpu))
    for name in ("run.pftrace", "run.json"):
        torchs_exporter().merge_trace_window_into_chrome_trace(tmp_path / "cpu.json", tmp_path / name, columns)
        forms.append(tmp_path / name)
    rows = [json.loads(told(capsys, form, "--by", "layer", "--json"))["rows"] for form in forms]
    assert [row["name"] for row in rows[0]] == ["layers.0", "layers.1"]
    assert rows[1:] == rows[:1] * 3


@pytest.mark.parametrize("said", ["[", "[5]", '["x"]', '[{"name": 5}]', '{"name": "x"}', "[" * 100_000, 7, None, ["x"]])
def test_what_is_no_region_is_none(tmp_path, capsys, said):
    trace = document(step(2, 0, 100), call("cudaGraphLaunch", 1, 4, 1), kernel(GEMM, 10, 5, 1))
    trace["traceEvents"][-1]["args"] |= {"graph node id": 4, "annotation": said}
    (tmp_path / "a.json").write_text(json.dumps(trace))
    assert read(str(tmp_path / "a.json")).annotations == ()


def test_from_python_and_on_the_page(tmp_path, capsys, opened):
    path = spliced(tmp_path / "a.json")
    events = load(str(path)).events()
    assert events[events.kind == "kernel"].region.tolist() == ["layers.0", "layers.0", "layers.1", "layers.1", "layers.0"] * 2
    assert events[events.kind == "memset"].region.isna().all()
    told(capsys, path, "--html", str(tmp_path / "a.html"))
    page = opened(tmp_path / "a.html")
    details = page.evaluate("() => report.panels[0].details")
    assert "grid 2x1x1, block 128x1x1, 32 registers per thread, 0 B shared, in layers.1" in details
    assert "1000 B, in layers.1" in details


def test_a_copy_to_share_keeps_them_apart(tmp_path, capsys):
    trace = json.loads(json.dumps(RUN).replace("layers.", "secret."))
    told(capsys, spliced(tmp_path / "a.json", trace), "--redact", str(tmp_path / "b.json"))
    assert "secret" not in (tmp_path / "b.json").read_text()
    rows = json.loads(told(capsys, tmp_path / "b.json", "--by", "layer", "--json"))["rows"]
    assert [(row["gpu_us"], row["backward_us"]) for row in rows] == [(24, 16), (42, 10)]


def test_a_graph_of_the_backward_pass_alone_is_replayed_too(tmp_path):
    back = node(kernel(GEMM, 60, 5, 2), 2, {"name": "layers.0", "autograd_phase": "backward"})
    forward = node(kernel(GEMM, 11, 10, 1), 1, {"name": "layers.1"})
    trace = document(step(2, 0, 100), call("cudaGraphLaunch", 5, 4, 1), forward, call("cudaGraphLaunch", 45, 4, 2), back)
    rows = region_facts(load(str(spliced(tmp_path / "a.json", trace))))
    assert [(row.name, row.calls, row.launched, row.backward_us) for row in rows] == [
        ("layers.1", 1, 1, 0),
        ("layers.0", 1, 0, 5),
    ]


def test_what_names_another_graph_brings_no_regions_of_its_own(tmp_path, capsys):
    """--names tells the time of the graph's work; the regions of the trace that names it took other time."""
    eager = document(
        step(2, 0, 100), annotation("layer 5", 1, 30), launch(2, 8), kernel(GEMM, 10, 3, 8),
        call("cudaGraphLaunch", 40, 4, 9), node(kernel(ADD, 50, 7, 9), 1, {"name": "layer 6"}),
    )  # fmt: skip
    graph = document(step(2, 0, 100), call("cudaGraphLaunch", 5, 4, 1), node(kernel(GEMM, 11, 10, 1), 1))
    paths = spliced(tmp_path / "graph.json", graph), spliced(tmp_path / "eager.json", eager)
    for by in ("layer", "annotation"):
        told_of = json.loads(told(capsys, paths[0], "--names", str(paths[1]), "--by", by, "--json"))
        assert [(row["name"], row["gpu_us"]) for row in told_of["rows"]] == [("layer 5", 10)]


def test_a_graph_without_regions_is_to_be_named_by_another_trace(tmp_path, capsys):
    trace = document(step(2, 0, 100), call("cudaGraphLaunch", 5, 4, 1), node(kernel(GEMM, 11, 10, 1), 1))
    assert cli.main([str(spliced(tmp_path / "a.json", trace)), "--by", "layer"]) == 2
    assert capsys.readouterr().err.endswith("recorded (with_stack); what a CUDA graph replays: --names EAGER.json\n")
