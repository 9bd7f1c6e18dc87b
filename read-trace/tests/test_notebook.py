"""What a notebook uses: the DataFrame of the events, and how a trace and its facts show themselves."""

import subprocess
import sys

import pytest
from reader_helpers import GALLERY, TOOL
from reader_helpers.events import ADD, annotation, kernel, launch, on, op, step, write
from trace_reader import MissingExtraError, analyze, load, read

COLD = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"


@pytest.fixture
def made(tmp_path):
    return load(
        write(
            tmp_path / "t.json",
            step(0, 5, 100), op("aten::mm", 15, 30), launch(25, 1), kernel(ADD, 60.5, 4.25, 1),
            kernel("lost", 80, 1, 9, stream=8),
            *on(2, annotation("loader", 7, 50)),
        )
    )  # fmt: skip


def test_every_slice_is_a_row(made):
    events = made.events()
    assert events.correlation.tolist() == [-1, -1, -1, 1, 1, 9]
    assert events[["shapes", "types", "bytes"]].isna().all(axis=None) and set(events.grid.dropna()) == {(1, 1, 1)}
    assert events.iloc[:, :10].to_dict("records") == [
        {"name": name, "kind": kind, "pid": pid, "tid": tid, "start_us": start_us, "duration_us": duration_us, "parent": parent,
         "step": the_step, "call": call, "op": the_op}
        for name, kind, pid, tid, start_us, duration_us, parent, the_step, call, the_op in (
            ("ProfilerStep#0", "annotation", 1, 1, 0.0, 100.0, -1, 0, -1, -1),
            ("loader", "annotation", 1, 2, 2.0, 50.0, -1, 0, -1, -1),
            ("aten::mm", "op", 1, 1, 10.0, 30.0, 0, 0, -1, -1),
            ("cudaLaunchKernel", "call", 1, 1, 20.0, 1.0, 2, 0, -1, -1),
            (ADD, "kernel", 0, 7, 55.5, 4.25, -1, 0, 3, 2),
            ("lost", "kernel", 0, 8, 75.0, 1.0, -1, -1, -1, -1),
        )
    ]  # fmt: skip


def test_the_columns_answer_what_one_asks_a_table(made):
    events = made.events()
    kernels = events[events.kind == "kernel"]
    assert kernels.duration_us.sum() == 5.25
    assert events.name[events.loc[kernels.index[0], "op"]] == "aten::mm"
    assert list(events.kind.cat.categories) == [
        "op", "annotation", "call", "kernel", "memcpy", "memset", "overhead", "gpu_annotation", "python",
    ]  # fmt: skip


def test_without_pandas_the_extra_is_named(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"^events\(\) needs pandas: install read-trace with it, read-trace\[pandas\]$"):
        made.events()


def test_without_matplotlib_the_extra_is_named(tmp_path):
    program = f"""
import sys
sys.modules["matplotlib"] = None
from trace_reader import cli
sys.exit(cli.main([{str(COLD)!r}, "--plot", {str(tmp_path / "a.png")!r}]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=TOOL)
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr.strip().endswith("read-trace[plot]") and run.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_trace_says_what_it_holds(made):
    assert repr(made) == f"<Trace {made.path}: 6 slices, 2 on a GPU, 1 steps>"


def test_facts_fit_a_screen():
    lines = repr(read(str(COLD))).splitlines()
    assert lines[0] == f"Facts of {COLD}"
    assert lines[1:3] == ["  device: NVIDIA H200", "  verdict: overhead-bound"]
    assert len(lines) == 7 and all(len(line) < 200 for line in lines[1:])


def test_facts_of_a_made_trace(made):
    assert repr(analyze(made)).splitlines()[1:] == [
        "  device: NVIDIA H200",
        "  verdict: latency-bound",  # from the launch at 20 to the kernel at 55.5
        "  window: 100.0 µs, GPU busy 5.2%",  # 5.25 µs
        "  steps: 1, CPU 100.0 µs each (median)",
        "  kernels: add 81.0%, lost 19.0%",
        "  findings: latency-bound, light-launch",
    ]


def test_facts_of_a_trace_of_nothing_much(tmp_path):
    facts = read(write(tmp_path / "t.json", op("aten::mm", 0, 2500), deviceProperties=[]))
    assert repr(facts).splitlines()[1:] == [
        "  device: unknown",
        "  verdict: cpu-only",
        "  window: 2.50 ms",
        "  steps: 1, CPU 2.50 ms each (median)",
        "  kernels: none",
        "  findings: cpu-only",
    ]


def test_long_names_are_cut_in_the_summary(tmp_path):
    facts = read(write(tmp_path / "t.json", kernel("k" * 300, 0, 1, 1), deviceProperties=[{"id": 0, "name": "G" * 300}]))
    device, *_, kernels, _ = repr(facts).splitlines()[1:]
    assert len(device) == len("  device: ") + 100
    assert len(kernels) == len("  kernels:  100.0%") + 40


def test_facts_show_themselves_as_a_table(made):
    table = analyze(made)._repr_html_()
    assert table.startswith(
        f"<table><caption>{made.path}</caption><tr><th>device</th><td>NVIDIA H200</td></tr>"
        "<tr><th>verdict</th><td>latency-bound</td></tr>"
    )
    assert table.endswith("</td></tr></table>") and table.count("<tr>") == 6


def test_names_are_data_and_no_markup(tmp_path):
    path = tmp_path / "<b>t&.json"
    events = [step(0, 0, 10), launch(1, 1), kernel("<script>alert(1)</script>", 20, 1, 1)]
    table = analyze(load(write(path, *events, deviceProperties=[{"id": 0, "name": "<i>GPU</i>"}])))._repr_html_()
    assert "<script" not in table and "<b>" not in table and "<i>" not in table
    assert "&lt;b&gt;t&amp;.json" in table and "&lt;i&gt;GPU&lt;/i&gt;" in table
    kernels = [*events, *(e for n in range(5) for e in (launch(2, n + 5), kernel(f"\x1b[31mk{n}", 30 + n, 0.5, n + 5)))]
    assert "\x1b" not in repr(read(write(path, *kernels)))
    assert " and 3 more" in repr(read(write(path, *kernels)))


def test_rows_say_how_many_they_are(made):
    assert repr(made.ops) == "<Rows 1 of 6 slices>"
