"""What the reader says where it cannot do what it is asked, and the ends of what it tells where little is known."""

import io
import json
import sys

import pytest
from reader_helpers.events import GEMM, call, document, kernel, launch, op, step, write
from trace_reader import analyze, cli, examine, load, read
from trace_reader.analysis.jobs.job_facts import job_facts
from trace_reader.analysis.jobs.rank_summary import summarize_rank
from trace_reader.analysis.runs.gate import gate
from trace_reader.analysis.trace.op_cost import Cost, cost_of
from trace_reader.model.slices import Inputs
from trace_reader.names.kernel_names import decode_name
from trace_reader.pictures import draw_job, draw_traces

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NO_SERVER = "127.0.0.1:1"


def job(folder, ranks=2, steps=True):
    """A job with a collective in each of two steps."""
    folder.mkdir()
    spans = [step(1, 0, 100), step(2, 100, 100)] if steps else []
    said = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": ranks, "dtype": "float",
            "Process Group Name": "0", "Process Group Ranks": str([*range(ranks)])}  # fmt: skip
    for rank in range(ranks):
        work = [launch(10, 1), kernel(NCCL, 20, 10 + rank, 1, **said), launch(110, 2), kernel(NCCL, 120, 10 + rank, 2, **said)]
        trace = document(*spans, *work, distributedInfo={"backend": "nccl", "rank": rank, "world_size": ranks})
        (folder / f"t_rank{rank}.json").write_text(json.dumps(trace))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a trace, `one.json`, and jobs: `job`, `bad` whose rank 1 is empty, `nosteps`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").write_text(json.dumps(document(step(1, 0, 100), op("aten::mm", 1, 50), step(2, 100, 100))))
    for name, steps in (("job", True), ("bad", True), ("nosteps", False)):
        job(tmp_path / name, steps=steps)
    (tmp_path / "bad" / "t_rank1.json").write_text("")
    return tmp_path


def told(capsys, *arguments, code=0):
    assert cli.main(list(arguments)) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


ONE_RANK = "--scheduler reads the ranks of a job, and one.json is one trace: name all of them, or their folder"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.json", "--scheduler", NO_SERVER], ONE_RANK),
        (["one.json", "--plot", "a.png", "--scheduler", NO_SERVER], ONE_RANK),
        (["one.json", "--html", "a.html", "--scheduler", NO_SERVER], ONE_RANK),
        (["job", "--plot", "roofline.png"], "plot -o roofline.png draws the ops of one trace, got 2"),
        (["bad", "--merge", "a.json"], "bad/t_rank1.json: the file is empty"),
        (["bad", "--plot", "a.png"], "bad/t_rank1.json: the file is empty"),
        (["bad", "--html", "a.html"], "bad/t_rank1.json: the file is empty"),
        (["bad", "--what_if", "no waits"], "bad/t_rank1.json: the file is empty"),
        (["nosteps", "--what_if", "no waits"], "what-if cannot play this job again: a rank has fewer than two steps"),
        (["job/t_rank0.json", "object_rank1.json", "--merge", "a.json"],
         "object_rank1.json: no trace: there is no list traceEvents in it"),
        (["job", "--chain"], "tree shows one trace: name one of these 2, as job/t_rank0.json"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(here, capsys, arguments, message):
    (here / "object_rank1.json").write_text('{"distributedInfo": {"rank": 1}}')
    before = sorted(here.rglob("*"))
    assert told(capsys, *arguments, code=2) == f"error: {message}\n"
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-", "--open"], "open takes a file, not standard input"),
        (["job", "--merge", "a.txt"], "argument -o/--out: expected a name that ends with .json or .json.gz, got 'a.txt'"),
    ],
)
def test_mistakes_in_the_flags(here, capsys, arguments, message):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {message}"


def test_an_export_of_nsys_is_read_from_a_file_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SQLite format 3\0" + bytes(200))))
    message = "error: standard input: a SQLite database, such as nsys exports: save it as a file, and name that\n"
    assert told(capsys, "-", code=2) == message


def test_a_folder_with_one_trace_is_that_trace(here, capsys):
    (here / "alone").mkdir()
    (here / "one.json").rename(here / "alone" / "one.json")
    assert told(capsys, "alone", "--chain").startswith("alone/one.json\n")


def test_a_trace_that_is_a_bare_list_can_be_merged(here, capsys):
    """What an older Kineto wrote: the events alone; the name says the rank."""
    path = here / "job" / "t_rank1.json"
    path.write_text(json.dumps(json.loads(path.read_text())["traceEvents"]))
    assert told(capsys, "job", "--merge", "a.json").startswith("wrote a.json (")


def test_ids_below_zero_and_beyond_their_bits_stay_apart_in_a_merged_file(here, capsys):
    """-1 is none, on every rank; equal large numbers of two ranks are two."""
    for rank in range(2):
        path = here / "job" / f"t_rank{rank}.json"
        trace = json.loads(path.read_text())
        for name, number in (("none", -1), ("large", 2**60)):
            trace["traceEvents"].append(call(name, 50, 1, number))
        path.write_text(json.dumps(trace))
    told(capsys, "job", "--merge", "a.json")
    merged = json.loads((here / "a.json").read_text())["traceEvents"]
    ids = {name: [one["args"]["correlation"] for one in merged if one.get("name") == name] for name in ("none", "large")}
    assert ids["none"] == [-1, -1] and len(set(ids["large"])) == 2


def test_the_tree_as_markdown_is_a_block(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document(step(1, 0, 100), op("aten::mm", 1, 90), launch(2, 1), kernel("k", 200, 5, 1))))
    assert told(capsys, str(path), "--chain", "--md").partition("## ")[2] == (
        """Dispatch of ProfilerStep#1

```
ProfilerStep#1  100.0 µs
  aten::mm  90.0 µs
    cudaLaunchKernel  1.0 µs  -> k 5.0 µs
```
"""
    )


def test_of_a_graph_launch_three_kernels_are_named_in_the_tree(tmp_path, capsys):
    path = tmp_path / "a.json"
    kernels = [kernel(f"k{n}", 20 + 10 * n, 5, 1) for n in range(5)]
    path.write_text(json.dumps(document(step(1, 0, 100), call("cudaGraphLaunch", 2, 4, 1), *kernels)))
    tree = told(capsys, str(path), "--chain").splitlines()[-1]
    assert tree == "  cudaGraphLaunch  4.0 µs  -> k0 5.0 µs  -> k1 5.0 µs  -> k2 5.0 µs  and 2 more"


@pytest.fixture
def measured(tmp_path):
    """A trace with stacks and shapes whose step was measured without the profiler, too."""
    one = [op("aten::mm", 1, 50), launch(2, 1), kernel(GEMM, 10, 30, 1)]
    again = [op("aten::mm", 101, 50), launch(102, 2), kernel(GEMM, 110, 30, 2), call("cudaDeviceSynchronize", 150, 45, 9)]
    plain = {"plain_step_us": {"median": 95.0, "low": 94, "high": 96}, "record_shapes": True, "with_stack": True}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document(step(1, 0, 100), *one, step(2, 100, 100), *again, **plain)))
    return str(path)


def test_a_change_that_makes_a_measured_step_longer(measured, capsys):
    assert told(capsys, measured, "--what_if", "scale nvjet 20").partition("What if: ")[2] == (
        """scale nvjet 20
  scale nvjet 20: 2 x nvjet GEMM 256x128
  recorded: a step takes 100.0 µs
  without the profiler: 95.0 µs, measured
  changed: 631.8 µs, which makes a step 565% longer
  a lower limit: work that did not wait in the recording may have to wait for
  the longer kernels
"""
    )


def test_the_brief_report_tells_what_recording_cost(measured, capsys):
    lines = told(capsys, measured, "--brief").splitlines()
    assert "recorded with shapes, stacks: 5.0% of a recorded step is the profiler's" in lines
    assert "plain step: a step takes 95.0 µs without the profiler, 100.0 µs recorded" in lines


def cpu_run(path, mm_us):
    """Return two steps of an op that takes so long and one that takes 5 us."""
    period, events = mm_us + 50, []
    for n in range(2):
        at = n * period
        events += [step(n + 1, at, period), op("aten::mm", at + 1, mm_us), op("aten::add", at + mm_us + 10, 5)]
    path.write_text(json.dumps(document(*events)))
    return str(path)


def test_of_two_runs_without_a_gpu_the_op_that_differs_most_is_named(tmp_path, capsys):
    a, b = cpu_run(tmp_path / "a.json", 50), cpu_run(tmp_path / "b.json", 250)
    said = told(capsys, a, b).replace("\n  ", " ")
    assert "CPU time per step +200% (of one recording each), most of it aten::mm (50.0 µs became 250.0 µs).\n" in said
    none = write(tmp_path / "c.json", call("cudaDeviceSynchronize", 0, 9, 1))
    assert "\ncpu-only became unknown.\n" in told(capsys, a, none)


def test_no_new_finding_is_said(tmp_path, capsys):
    a = cpu_run(tmp_path / "a.json", 50)
    assert told(capsys, "check", a, "--baseline", a, "--max", "findings=new").endswith(
        "  findings=new  -         -    none new  fine\n"
    )


def test_a_gate_needs_runs(tmp_path):
    with pytest.raises(ValueError, match="no run to compare"):
        gate([], [], [])


def test_a_step_of_no_time_has_no_ratio(tmp_path, capsys):
    """Two such are the same; a longer one is inconclusive, of one run each, and JSON has no infinity."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document(step(1, 0, 0), op("aten::mm", 0, 0))))
    same = json.loads(told(capsys, "check", str(path), "--baseline", str(path), "--json"))
    assert [same["outcomes"][0][key] for key in ("verdict", "low", "high")] == ["fine", 1.0, 1.0]
    longer = cpu_run(tmp_path / "b.json", 50)
    assert cli.main(["check", longer, "--baseline", str(path), "--max", "step=+10%", "--json"]) == 3
    (found,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert [found[key] for key in ("verdict", "low", "high")] == ["inconclusive", 1.0, None]


@pytest.mark.parametrize(
    ("name", "label", "arch", "dtype", "tile"),
    [
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "scudnn 128x64", "sm70", "fp32", "128x64"),
        ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "scudnn winograd 128x128", "sm80", "fp32", "128x128"),
        ("turing_hcudnn_128x32_relu_nn", "hcudnn 128x32", "sm75", "fp16", "128x32"),
        ("maxwell_scudnn_128x32_relu_nn", "scudnn 128x32", None, "fp32", "128x32"),
    ],
)
def test_old_names_of_cudnn(name, label, arch, dtype, tile):
    found = decode_name(name)
    assert (found.label, found.library, found.unit) == (label, "cuDNN", "CUDA cores")
    assert (found.architecture, found.dtype, found.tile) == (arch, dtype, tile)


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "cost"),
    [
        # 8 x 1024 rows of 768 floats are read and written, and the places (int64) read
        ("aten::embedding", ((50257, 768), (8, 1024)), ("float", "long int"), (),
         Cost("pointwise", "fp32", None, 2 * 8192 * 768 * 4 + 8192 * 8)),
        ("aten::embedding", ((50257, 768), ()), ("float", "Scalar"), (), None),
        ("aten::max", ((64, 64), (64, 64)), ("float", "float"), (), None),
        ("aten::max", ((64, 64), ()), ("float", ""), (), Cost("reduction", "fp32", None, 64 * 64 * 4)),
        ("aten::conv2d", ((1, 3, 8, 8), (4, 3, 3)), ("float", "float"), (), None),  # weights of another rank
        ("aten::convolution_backward", ((1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)), ("float",) * 3,
         ("",) * 7 + ("True", "", "", "[True, True, False]"), None),  # transposed
    ],
)  # fmt: skip
def test_what_an_op_has_to_do(name, dims, types, values, cost):
    assert cost_of(name, Inputs(dims, types, (), values)) == cost


def test_the_name_of_the_verdict_until_version_02(measured):
    facts = read(measured)
    with pytest.warns(DeprecationWarning, match="called verdict, and goes with version 0.4"):
        assert facts.regime == facts.verdict == "overhead-bound"


def test_pictures_for_programs_are_those_of_the_command(here, capsys):
    told(capsys, "one.json", "--plot", "a.svg", "--steps", "2:2")
    trace = load("one.json")
    assert draw_traces([examine(trace)], ".svg", (2, 2)) == (here / "a.svg").read_bytes()
    told(capsys, "job", "--plot", "b.png")
    traces = [load(f"job/t_rank{rank}.json") for rank in range(2)]
    facts = job_facts(summarize_rank(one, analyze(one), rank) for rank, one in enumerate(traces))
    assert draw_job(facts) == (here / "b.png").read_bytes()
    with pytest.raises(LookupError):
        draw_traces([examine(trace)], steps=(7, 8))


def test_ranks_of_other_steps_and_more_kinds_than_are_listed(here, capsys):
    """Rank 1 counts its steps from 5 on, and lacks seven collectives."""
    one, other = (here / "job" / f"t_rank{rank}.json" for rank in range(2))
    other.write_text(other.read_text().replace("ProfilerStep#1", "ProfilerStep#5").replace("ProfilerStep#2", "ProfilerStep#6"))
    trace = json.loads(one.read_text())
    for n in range(7):
        said = {"Collective name": f"odd{n}", "In msg nelems": 1, "Out msg nelems": 1, "Group size": 2, "dtype": "float",
                "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}  # fmt: skip
        trace["traceEvents"] += [launch(150 + n, 50 + n), kernel(NCCL, 160 + 3 * n, 2, 50 + n, **said)]
    one.write_text(json.dumps(trace))
    lines = [line.strip() for line in told(capsys, "job", "--all").splitlines()]
    assert "steps: the ranks did not record the same ones" in lines
    assert "and 8 more kinds" in lines  # of 11: the seven, and each step's own of each rank, whose steps have other names
