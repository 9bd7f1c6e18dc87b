"""The command: what is found in traces recorded on an H200, exit codes and messages, and the shape of its JSON."""

import gzip
import io
import json
import os
import subprocess
import sys

import pytest
from reader_helpers import GALLERY, TOOL
from reader_helpers.events import ADD, GEMM, annotation, kernel, launch, memcpy, memset, op, step, write
from reader_helpers.recordings import PART_3, TRACES, printed
from trace_reader import cli

LINEAR, MLP = GALLERY / TRACES["02"], GALLERY / TRACES["03_eager"]


@pytest.fixture
def in_data(monkeypatch):
    monkeypatch.chdir(GALLERY)


EXPECTED = {  # verdict, kernels a step, findings that the post teaches on this trace
    "01_64_cold": ("overhead-bound", 2, {"overhead-bound", "cold-start", "entry-gap", "driver-launch", "light-launch"}),
    "01_64_no_warmup_step": ("overhead-bound", 2, {"profiler-buffer", "cold-start"}),
    "01_4096_warm": ("gpu-bound", 2, {"gpu-bound", "hotspot", "annotation-double-count", "profiler-sync"}),
    "01_4096_compile": ("gpu-bound", 1, {"bias-copy", "compile-tax", "cache-hits"}),
    "01_4096_graph": (None, 5, {"graph-launch"}),
    "02": ("overhead-bound", 1, {"epilogue-bias", "views-launch-nothing"}),
    "03_eager": ("gpu-bound", 5, {"two-gemm-tiles", "views-launch-nothing", "low-occupancy-by-design"}),
    "03_compile": (None, 4, {"fused-triton", "compile-tax", "cache-hits", "occupancy-not-estimated"}),
    "03_kernels": (None, 4, {"views-launch-nothing"}),
    "03_triton": (None, 4, {"views-launch-nothing", "driver-launch"}),
    "shapes_04_a": ("gpu-bound", 5, {"hidden-copy", "unfused-attention", "slow-pointwise"}),
    "04_a": ("gpu-bound", 5, {"hidden-copy", "unfused-attention", "views-launch-nothing"}),
    "04_b": ("gpu-bound", 5, {"unfused-attention", "views-launch-nothing"}),
    "04_c_math": ("gpu-bound", 20, {"fp32-cuda-cores", "mask-rebuilt", "safe-softmax", "unfused-attention"}),
    "04_c_efficient": ("gpu-bound", 1, {"fused-attention", "views-launch-nothing", "low-occupancy-by-design"}),
    "04_c_flash": ("gpu-bound", 1, {"fused-attention", "views-launch-nothing", "low-occupancy-by-design"}),
    "04_c_cudnn": ("gpu-bound", 1, {"fused-attention", "driver-launch", "opaque-op", "occupancy-not-estimated"}),
    "04_d": ("gpu-bound", 1, {"fused-attention", "low-occupancy-by-design"}),
    "01_64_cpu": ("cpu-only", 0, set()),
}
NOT_EXPECTED = {
    "04_b": {"hidden-copy", "safe-softmax", "mask-rebuilt", "fp32-cuda-cores"},
    "04_c_flash": {"driver-launch", "opaque-op", "unfused-attention"},
    "04_c_cudnn": {"views-launch-nothing", "unfused-attention"},
    "04_d": {"views-launch-nothing"},
}


@pytest.mark.parametrize("name", TRACES)
def test_what_the_posts_teach_is_found_in_the_recorded_traces(in_data, name):
    verdict, kernels, slugs = EXPECTED[name]
    data = json.loads(printed([name, "--json"]))
    assert verdict in (None, data["verdict"])
    assert {s["kernels"] for s in data["steps"]} == {kernels}
    found = {f["slug"] for f in data["findings"]}
    assert slugs <= found and not NOT_EXPECTED.get(name, set()) & found
    assert data["unlinked"] == 0 and "malformed" not in data["skipped"]


def test_the_comparison_of_eager_and_compiled_says_it_in_one_sentence(in_data):
    data = json.loads(printed(["03_eager", "03_compile", "--json"]))
    assert ", the same 3 GEMM calls per step, mul and gelu became triton gelu+mul, GPU time per step -" in data["summary"]
    assert len([k for k in data["kernels_common"] if k["name"].startswith("nvjet")]) == 2
    assert data["kernels_only_b"] == ["triton_poi_fused__unsafe_view_gelu_mul_0"]
    assert "aten::linear" in data["ops_only_a"] and "TorchDynamo Cache Lookup" in data["ops_only_b"]
    assert "fused-triton" in data["findings_only_b"]


def test_the_json_has_the_fields_of_the_contract(in_data):
    data = json.loads(printed(["03_eager", "--json"]))
    assert {
        "trace", "device", "events", "skipped", "window_us", "gpu_busy_us", "gpu_busy_share", "gpu_to_cpu", "verdict",
        "kernels_total", "memcpys_total", "memsets_total", "unlinked", "gpu_time_by_origin_us", "steps", "kernels",
        "findings",
    } <= set(data)  # fmt: skip
    assert set(data["gpu_time_by_origin_us"]) == {"op", "library", "graph", "carried_over", "unknown"}
    assert set(data["steps"][0]) == {
        "name", "cpu_us", "sync_us", "gpu_busy_us", "gpu_to_cpu", "kernels", "memcpys", "memsets", "launches",
        "syncs", "occupancy_queries", "entry_gap_us",
    }  # fmt: skip
    assert {
        "name", "label", "family", "calls", "total_us", "median_us", "min_us", "max_us", "share", "op", "launch",
        "registers_per_thread", "shared_memory_bytes", "grid", "block", "theoretical_occupancy", "limited_by",
        "moved_bytes", "gb_per_s",
    } <= set(data["kernels"][0])  # fmt: skip
    assert set(data["findings"][0]) == {"slug", "seen", "means", "next", "share", "evidence", "gain", "no_gain", "part_of"}
    assert set(data["findings"][0]["evidence"][0]) == {"name", "track", "start_us", "duration_us"}


def test_the_table_of_several_traces_as_json(in_data):
    data = json.loads(printed([*PART_3, "01_64_cpu", "--json"]))
    first, *_, last = data["rows"]
    labels = [TRACES[name].removesuffix(".json") for name in (*PART_3, "01_64_cpu")]
    assert [row["label"] for row in data["rows"]] == labels
    gpu_us = sorted(step["gpu_busy_us"] for step in first["facts"]["steps"])
    assert (first["kernels_a_step"], first["copies_a_step"], first["gpu_us_a_step"]) == (5, 1, gpu_us[1])
    assert {"schema_version": 1} | first["facts"] == json.loads(printed(["04_a", "--json"]))
    assert data["schema_version"] == 1
    assert first["slowest_kernel"].startswith("void at::native::elementwise_kernel") and "hidden-copy" in first["findings"]
    assert last["kernels_a_step"] is last["gpu_us_a_step"] is last["slowest_kernel"] is None


def test_labels_leave_out_the_folders_that_all_traces_share(tmp_path, capsys):
    events = step(0, 0, 100), launch(1, 1), kernel(GEMM, 5, 10, 1)
    paths = []
    for name in ("a/x", "a/y", "b/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        paths.append(write(tmp_path / f"{name}.json", *events))
    assert cli.main(paths) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:6]] == ["a/x", "a/y", "b/x"]


def test_unknown_is_null(tmp_path, capsys):
    assert cli.main([write(tmp_path / "t.json", step(0, 0, 9), deviceProperties=[]), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["device"] is data["gpu_busy_us"] is data["gpu_busy_share"] is data["gpu_to_cpu"] is None
    assert data["steps"][0]["gpu_busy_us"] is data["steps"][0]["entry_gap_us"] is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "the file is empty"),
        (b"{}", "no trace: there is no list traceEvents in it"),
        (
            b'{"traceEvents": []}',
            "the trace has no events: run the program inside profile(), for as many steps as its schedule asks",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path, capsys, content, message):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    assert cli.main([str(path)]) == 2
    assert capsys.readouterr() == ("", f"error: {path}: {message}\n")


def test_of_three_traces_the_two_that_can_be_read_have_rows(tmp_path, capsys):
    good = [write(tmp_path / f"{name}.json", step(0, 0, 10), op("aten::mm", 1, 5)) for name in "ab"]
    assert cli.main([*good, str(tmp_path / "none.json"), "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert [row["facts"]["trace"] for row in data["rows"]] == good


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_traces_the_one_that_can_be_read_is_told(tmp_path, capsys, order, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    good, bad = write(tmp_path / "good.json", step(0, 0, 10), op("aten::mm", 1, 5)), str(tmp_path / "none.json")
    assert cli.main([good, bad][::order]) == 2
    out, err = capsys.readouterr()
    assert err == f"error: {bad}: No such file or directory\n"
    assert out.startswith(f"{good}\n") and "aten::mm" in out
    assert cli.main([bad, bad]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.json", "b.json", "c.json", "--chain"], "tree takes one trace, got 'b.json' beside it"),
        (["a.json", "--top", "0"], "argument --top: expected a whole number, 1 or more, got '0'"),
        (["a.json", "b.json", "--chain"], "tree takes one trace, got 'b.json' beside it"),
        (["a.json", "--json", "--md"], "argument --md: not allowed with argument --json"),
    ],
)
def test_mistakes_in_the_flags(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {message}"


def test_a_step_that_is_not_there(in_data, capsys):
    assert cli.main([TRACES["02"], "--chain", "9"]) == 2
    assert capsys.readouterr().err == f"error: {TRACES['02']}: the trace has no ProfilerStep#9; it has #2 to #4\n"


def test_launches_without_gpu_events_are_said(tmp_path, capsys):
    path = write(tmp_path / "t.json", step(0, 0, 100), op("aten::mm", 1, 9), launch(2, 1))
    assert cli.main([path]) == 0
    out = capsys.readouterr().out
    assert "\ncpu-only: the trace holds launches, but no GPU event\n" in out
    assert "  no-gpu-events: 1 kernel launch and no GPU event\n" in out and "(nsys, ncu) attached" in " ".join(out.split())


def test_the_first_bad_event_is_shown_with_its_place(tmp_path, capsys):
    path = write(tmp_path / "t.json", step(0, 0, 100), {**op("aten::mm", 1, 9), "dur": "long"})
    assert cli.main([path]) == 0
    out = capsys.readouterr().out
    assert "events: 2 found, 1 not used (1 malformed)\n" in out
    assert " read: traceEvents[1].dur: expected `float | null`, got `str` steps: 1 " in " ".join(out.split())


def test_standard_input_plain_and_zipped(monkeypatch, capsys):
    data = (LINEAR).read_bytes()
    outputs = []
    for content in (data, gzip.compress(data)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert cli.main(["-"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("standard input\ndevice: NVIDIA H200;")


def test_top_cuts_the_tables_and_says_what_is_left(in_data):
    text = printed(["03_eager", "--top", "2"])
    assert "  and 3 more (--top 5)\n" in text


def test_a_pipe_gets_plain_text_and_the_same_bytes_each_time(tmp_path):
    command = [sys.executable, "-m", "trace_reader", str(MLP)]
    runs = [subprocess.run(command, cwd=TOOL, capture_output=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout and b"\x1b" not in runs[0].stdout
    assert runs[0].stderr == b""


def test_it_does_not_import_torch():
    code = "import sys; from trace_reader import cli; cli.main([sys.argv[1]]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, MLP], cwd=TOOL, check=True, stdout=subprocess.DEVNULL)


def test_a_terminal_shows_progress_of_a_file_that_takes_long(tmp_path, monkeypatch):
    """Without waiting for a large file: the pieces are small, and the second is over at once."""
    path = write(tmp_path / "t.json", *(op(f"a{n}", n, 1) for n in range(2000)))
    code = (
        "import sys; from trace_reader import cli; from trace_reader.commands import load_with_progress;"
        "from trace_reader.parse import byte_source;"
        "load_with_progress.PROGRESS_AFTER_S = 0; byte_source.BLOCK_BYTES = 50_000; sys.exit(cli.main([sys.argv[1]]))"
    )
    leader, follower = os.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", code, path], cwd=TOOL, stdout=subprocess.PIPE, stderr=follower, env=env)
    os.close(follower)
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    assert done.returncode == 0 and b"\x1b" not in done.stdout
    assert f"reading {path}" in shown and "%" in shown
    assert shown.endswith("\x1b[2K") or shown.endswith("\x1b[?25h")  # cleared: nothing stays on the screen


def test_markdown_is_markdown(in_data):
    text = printed(["03_eager", "--md"])
    assert (
        text.startswith(f"# {TRACES['03_eager']}\n")
        and "\n## Findings (what each saves, or its share of the critical path)\n" in text
    )
    table = [line for line in text.splitlines() if line.startswith("| ProfilerStep")]
    assert len(table) == 3 and all(line.count("|") == 8 for line in table)


def test_in_markdown_a_name_is_no_markup(tmp_path, capsys):
    name = "std::f<float>(int&) <img src=x onerror=alert(1)> a|b [c](d) `e` *f* _g_ h_i"
    assert cli.main([write(tmp_path / "t.json", op(name, 1, 2)), "--md"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "float" in line and line.startswith("|")]
    assert row == (
        "| std::f&lt;float&gt;(int&amp;) &lt;img src=x onerror=alert(1)&gt; a\\|b \\[c\\](d) \\`e\\` \\*f\\* \\_g\\_ h_i "
        "| 1 | 2.0 µs | 2.0 µs | 1 |"
    )


def test_the_library_prints_nothing(capsys):
    from trace_reader import read

    facts = read(str(GALLERY / TRACES["01_64_cold"]))
    assert facts.verdict == "overhead-bound" and facts.steps[0].kernels == 2
    assert capsys.readouterr() == ("", "")


def test_two_traces_without_a_gpu_compare_their_cpu_time(tmp_path, capsys):
    a = write(tmp_path / "a.json", step(0, 0, 100), annotation("fwd", 1, 9), op("aten::mm", 2, 3))
    b = write(tmp_path / "b.json", step(0, 0, 150), annotation("fwd", 1, 9), op("aten::bmm", 2, 3))
    assert cli.main([a, b]) == 0
    assert "\nCPU time per step +50% (of one recording each).\n" in capsys.readouterr().out


def test_the_same_kernels_are_said_to_be(tmp_path, capsys):
    events = step(0, 0, 100), launch(1, 1), kernel(GEMM, 5, 10, 1)
    a, b = write(tmp_path / "a.json", *events), write(tmp_path / "b.json", *events)
    assert cli.main([a, b]) == 0
    assert "\nthe same 1 GEMM call per step, GPU time per step +0%, CPU time per step +0%.\n" in capsys.readouterr().out


def test_the_json_of_a_trace_says_what_was_put_in(tmp_path, capsys):
    bf16 = {"Input type": ["c10::BFloat16", "c10::BFloat16"]}
    path = write(
        tmp_path / "t.json",
        step(0, 0, 100), op("aten::mm", 2, 8, **{"Input Dims": [[1000, 200], [200, 3000]]}, **bf16), launch(4, 1),
        op("aten::add_", 12, 8, **{"Input Dims": [[1000, 1000], [1000, 1000]]}, **bf16), launch(14, 2),
        op("aten::copy_", 22, 8), launch(24, 3, name="cudaMemcpyAsync"), launch(26, 4, name="cudaMemsetAsync"),
        launch(27, 5, name="cudaMemsetAsync"),
        kernel(GEMM, 30, 12, 1, regs=168, shared=100_000, grid=(4, 5, 6), block=(384, 1, 1)), kernel(ADD, 50, 4, 2),
        memcpy(60, 5, 3, bytes=10_000_000), memset(70, 1, 4), memset(72, 2, 5),
    )  # fmt: skip
    assert cli.main([path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    totals = {key: data[key] for key in ("kernels_total", "memcpys_total", "memsets_total", "events", "window_us", "gpu_busy_us")}
    assert totals == {
        "kernels_total": 2, "memcpys_total": 1, "memsets_total": 2, "events": 14, "window_us": 100, "gpu_busy_us": 24,
    }  # fmt: skip
    (only,) = data["steps"]
    assert only == {
        "name": "ProfilerStep#0", "cpu_us": 100, "sync_us": 0, "gpu_busy_us": 24, "gpu_to_cpu": 0.24, "kernels": 2, "memcpys": 1,
        "memsets": 2, "launches": 2, "syncs": 0, "occupancy_queries": 0, "entry_gap_us": None,
    }  # fmt: skip
    (gemm,) = data["gemms"]
    assert gemm == {
        "op": "aten::mm", "batch": 1, "m": 1000, "n": 3000, "k": 200, "calls": 1, "kernel": GEMM, "median_us": 12,
        "flop": 1_200_000_000, "tflop_per_s": 100, "dtype": "bf16", "peak_share": 0.101112,  # of 989
    }  # fmt: skip
    by_label = {k["label"]: k for k in data["kernels"]}
    nvjet, add, copied = by_label["nvjet GEMM 256x128"], by_label["add"], by_label["Memcpy DtoD"]
    assert (nvjet["registers_per_thread"], nvjet["shared_memory_bytes"], nvjet["grid"]) == (168, 100_000, [4, 5, 6])
    assert (nvjet["block"], nvjet["share"], nvjet["op"], nvjet["launch"]) == ([384, 1, 1], 0.5, "aten::mm", "cudaLaunchKernel")
    assert (nvjet["moved_bytes"], nvjet["gb_per_s"]) == (None, None)
    assert (add["moved_bytes"], add["gb_per_s"]) == (6_000_000, 1500)  # two read and one written, in 4 µs
    assert (copied["moved_bytes"], copied["gb_per_s"]) == (20_000_000, 4000)  # read and written
