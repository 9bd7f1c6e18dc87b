"""The verdict's sentence, to the letter, on traces of a few events."""

import json
from pathlib import Path

import pytest
from reader_helpers.events import ADD, GEMM, annotation, call, document, event, kernel, launch, memcpy, on, op, step, write
from trace_reader import cli, load, read
from trace_reader.analysis.runs.comparison import rows
from trace_reader.analysis.trace.missing_events import missing
from trace_reader.findings.verdict import largest_contributors, verdict_sentence

OTHER_ADD = ADD.replace("<8,", "<4,")
CASES = {
    "no GPU, no launch": ([step(0, 0, 10), op("aten::mm", 1, 5)],
                          "cpu-only: the trace holds no GPU event; 50% of the steps' time is aten::mm, 50% is in no op "
                          "(Python, waiting, or freeing memory)"),
    "no GPU, no steps": ([op("aten::mm", 1, 6), op("aten::add", 8, 3)],
                         "cpu-only: the trace holds no GPU event; 60% of the steps' time is aten::mm, 30% is aten::add"),
    "no GPU, and nothing to wait for": (
        [step(0, 0, 10)],
        "unknown: the trace lacks any op or kernel (it holds 1 annotation): run the program inside the profile() block",
    ),
    "no GPU, a loader": ([step(0, 0, 10), annotation("enumerate(DataLoader)#_Iter.__next__", 0, 8), op("aten::mm", 8, 2)],
                         "cpu-only: the trace holds no GPU event; 80% of the steps' time is waiting for a DataLoader, 20% is "
                         "aten::mm"),
    "no GPU, a backward pass on its thread": (
        [step(0, 0, 10), op("aten::mm", 0, 2),
         *on(2, op("autograd::engine::evaluate_function: MmBackward0", 2, 8), op("aten::bmm", 3, 6))],
        "cpu-only: the trace holds no GPU event; 60% of the steps' time is aten::bmm, 20% is aten::mm"),
    "no GPU, but launches": ([step(0, 0, 10), launch(1, 1)], "cpu-only: the trace holds launches, but no GPU event"),
    "launches outside the steps": ([step(0, 0, 10), launch(20, 1)], "cpu-only: the trace holds no GPU event"),
    "one class of one thing": (
        [step(0, 0, 10), launch(0, 1), kernel(GEMM, 4, 96, 1)],
        "gpu-bound: 96% of the critical path is GPU compute (nvjet GEMM 256x128 96%)",
    ),
    "the two that are most of three": (
        [step(0, 0, 10), launch(0, 1), launch(1, 2), launch(2, 3),
         kernel(GEMM, 4, 70, 1), kernel("small", 74, 6, 3), kernel(ADD, 80, 20, 2)],
        "gpu-bound: 96% of the critical path is GPU compute (nvjet GEMM 256x128 70%, add 20%)",
    ),
    "kernels of one label are one thing": (
        [step(0, 0, 10), launch(0, 1), launch(1, 2), launch(2, 3),
         kernel(ADD, 4, 30, 1), kernel(GEMM, 34, 36, 2), kernel(OTHER_ADD, 70, 30, 3)],
        "gpu-bound: 96% of the critical path is GPU compute (add 60%, nvjet GEMM 256x128 36%)",
    ),
    "two classes": (
        [step(0, 0, 100), launch(40, 1), kernel(GEMM, 52, 48, 1)],
        "mixed: 48% of the critical path is GPU compute and 40% is CPU time (nvjet GEMM 256x128 48%, nothing recorded 40%)",
    ),
    "copies": (
        [step(0, 0, 100), call("cudaMemcpyAsync", 0, 2, 1), memcpy(8, 92, 1, name="Memcpy HtoD (Pinned -> Device)")],
        "copy-bound: 92% of the critical path is copying (Memcpy HtoD (Pinned -> Device) 92%)",
    ),
    "latency has no things": ([step(0, 0, 100), launch(0, 1), kernel(ADD, 60, 40, 1)],
                              "latency-bound: 60% of the critical path is launch latency"),
    "the device that ends last": (
        [step(0, 0, 10), launch(0, 1), launch(1, 2), kernel(GEMM, 4, 40, 1), kernel(ADD, 5, 95, 2, device=1)],
        "gpu-bound: on GPU 1, which ends last, 95% of the critical path is GPU compute (add 95%)",
    ),
    "steps without GPU work": (
        [step(0, 0, 100), kernel(GEMM, 4, 96, 99), launch(500, 1), kernel(ADD, 510, 10, 1)],
        "unknown: the trace lacks GPU work of the 1 recorded step",
    ),
    "launches whose kernels are lost": (
        [step(0, 0, 10), *(launch(0.1 * n, n) for n in range(1, 12)), kernel(GEMM, 4, 96, 1), kernel(ADD, 100, 50, 2)],
        "unknown: the trace lacks the GPU events of 81.8% of the launches; of what it holds, "
        "97% of the critical path is GPU compute (nvjet GEMM 256x128 64%, add 33%)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_sentence(tmp_path, name):
    events, sentence = CASES[name]
    assert verdict_sentence(read(write(tmp_path / "t.json", *events))) == sentence


def test_what_is_missing_is_named_once(tmp_path):
    events = [step(0, 0, 10), launch(0, 1), kernel(GEMM, 4, 96, 1)]
    assert missing(load(write(tmp_path / "t.json", *events))) == ()
    path = tmp_path / "cut.json"
    path.write_text((tmp_path / "t.json").read_text().rstrip()[:-2])
    assert len(missing(load(str(path)))) == 1


def test_what_a_trace_lacks_is_in_the_sentence(tmp_path):
    """The last launch has no GPU event, and the end is cut off."""
    events = [step(0, 0, 30), launch(1, 1), kernel("a", 5, 20, 1), launch(28, 2), kernel("b", 30, 2, 2)]
    text = Path(write(tmp_path / "t.json", *events)).read_text()
    (tmp_path / "t.json").write_text(text[: text.rindex('{"ph"') + 20])
    assert verdict_sentence(read(str(tmp_path / "t.json"))).startswith(
        "unknown: the trace lacks the cut-off end of the file and the GPU events of 50.0% of the launches; of what it "
    )
    before = write(tmp_path / "b.json", kernel("a", 0, 20, 9), step(0, 30, 10))
    assert verdict_sentence(read(before)) == "unknown: the trace lacks GPU work of the 1 recorded step"


@pytest.mark.parametrize(
    ("events", "devices", "words"),
    [
        ([launch(1, 1)], [], "unknown: the trace lacks the cut-off end of the file; it holds no GPU event"),
        ([], [{"id": 0}], "unknown: the trace lacks the cut-off end of the file; it holds no GPU event"),
        ([], [], "unknown: the trace lacks the cut-off end of the file; it holds no GPU event"),
    ],
)
def test_a_file_that_is_cut_off_before_its_first_gpu_event(tmp_path, capsys, events, devices, words):
    """GPU events stand behind the CPU's: what is cut off may be all of them."""
    path = tmp_path / "t.json"
    code = event("python_function", "t.py(7): step", 0, 10)
    whole = document(step(0, 0, 10), annotation("x", 1, 8), code, op("aten::mm", 1, 5), *events, deviceProperties=devices)
    path.write_text(json.dumps(whole)[:-2] + ', {"ph"')
    facts = read(str(path))
    assert (verdict_sentence(facts), facts.verdict, facts.has_gpu_work) == (words, words.partition(":")[0], False)
    assert "no-gpu-events" not in [found.slug for found in facts.findings]
    assert rows([facts])[0].kernels is None
    for flags, shown in {
        (): "innermost ops per step: 1 (aten::mm)",
        ("--all",): "entry gap",
        ("--by", "annotation"): "calls     CPU",
        ("--by", "stack"): "The CPU's time in ops",
    }.items():
        assert cli.main([str(path), *flags]) == 0
        out = capsys.readouterr().out
        assert shown in out and "GPU busy" not in out and "GPU time" not in out


def test_the_largest_things_of_a_class_come_first(tmp_path):
    work = [kernel(GEMM, 10, 20, 1), kernel("middle", 30, 30, 2), kernel("largest", 60, 300, 3), kernel(GEMM, 360, 20, 4)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 20), *(launch(n, n) for n in range(1, 5)), *work))
    largest = largest_contributors(facts.critical_path, "compute")
    assert largest == [("largest", 300.0), ("nvjet GEMM 256x128", 40.0), ("middle", 30.0)]


@pytest.mark.parametrize(("broken", "verdict"), [(1, "cpu-only"), (2, "unknown")])
def test_a_hundredth_of_the_events_that_could_not_be_read_leaves_the_verdict_open(tmp_path, broken, verdict):
    events = [op(f"a{n}", 2 * n, 1) for n in range(198)] + [{**op("bad", 0, 1), "dur": "x"} for _ in range(broken)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 500), *events[: 199 - broken], *events[198:]))
    assert (facts.verdict, len(facts.missing)) == (verdict, verdict == "unknown")


@pytest.mark.parametrize("unknown", [("mtia_ccp_events", {}), ("acme_work", {"device": 0, "stream": 7})])
def test_a_device_that_the_reader_does_not_know_is_not_nothing(tmp_path, unknown):
    category, said = unknown
    unknown = event(category, "kernel_0", 20, 9, {"pid": 3, "tid": 1}, **said)
    path = write(tmp_path / "t.json", step(0, 0, 100), op("aten::mm", 1, 5), launch(2, 1), unknown)
    facts = read(path)
    assert (facts.verdict, [found.slug for found in facts.findings]) == ("unknown", [])
    assert verdict_sentence(facts) == (
        "unknown: the trace lacks what 1 event of a kind of device that this reader does not know would say; it holds no GPU "
        "event"
    )


def test_what_is_of_another_category_without_a_stream_is_no_devices_work(tmp_path):
    others = [event("acme_work", "marker", 20, 9, device=0), event("cuda_sync", "Stream Sync", 40, 9, device=0, stream=7)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 100), op("aten::mm", 1, 5), *others))
    assert (facts.verdict, facts.skipped["other category"]) == ("cpu-only", 2)
