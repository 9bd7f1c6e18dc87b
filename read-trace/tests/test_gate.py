"""The gate: what is worse, what is not, and what the noise between runs does not tell."""

import json
from pathlib import Path
import re
import xml.etree.ElementTree as ET

import pytest
from reader_helpers import TOOL
from reader_helpers.events import call, document, kernel, launch, memcpy, memory, op, step, write
from trace_reader import cli, read
from trace_reader.analysis.runs.gate import DEFAULTS, Limit, gate, parse_limit
from trace_reader.analysis.runs.run_measures import RowMeasure, RunMeasures, measures, of_job
from trace_reader.report.document import Lines, Style
from trace_reader.report.gate_report import change, gate_report


def run(step_us=None, rows=None, findings=(), **more):
    names = ("plain_step", "gpu", "exposed", "kernels", "aten_calls", "copies", "syncs", "compiled", "peak_memory")
    return RunMeasures(
        trace="run.json",
        device=None,
        step=step_us,
        findings=findings,
        rows=rows or {},
        **{name: more.get(name) for name in names},
    )


def runs(*steps_us, **more):
    return [run(us, **more) for us in steps_us]


def judged(old, new, limit):
    return gate(old, new, [parse_limit(limit)]).outcomes[0]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("step=+5%", Limit("step=+5%", "step", share=0.05)),
        ("kernels=+0", Limit("kernels=+0", "kernels", amount=0.0)),
        ("communication.exposed=10%", Limit("communication.exposed=10%", "exposed", share=0.1)),
        ("recompiles = +2", Limit("recompiles = +2", "compiled", amount=2.0)),
        ("findings=new", Limit("findings=new", "findings")),
    ],
)
def test_a_limit_is_read(text, limit):
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["step", "step=fast", "speed=+5%", "step=-5%", "findings=2", ""])
def test_a_limit_that_is_none(text):
    with pytest.raises(ValueError, match=r"expected MEASURE=\+N%, MEASURE=\+N with a unit or findings=new, got "):
        parse_limit(text)


@pytest.mark.parametrize(
    ("old", "new", "limit", "verdict"),
    [
        ((100, 101, 102), (100, 101, 102), "step=+5%", "fine"),
        ((100, 101, 102), (150, 151, 152), "step=+5%", "worse"),
        ((100, 101, 102), (104, 105, 106), "step=+5%", "inconclusive"),  # up to 5% more, but perhaps not
        ((100, 101, 102), (80, 81, 82), "step=+0%", "fine"),
        ((100, 150, 200), (210, 220, 230), "step=+5%", "inconclusive"),  # the old runs differ by more than the new one is longer
        ((100, 150, 200), (220, 230, 240), "step=+5%", "inconclusive"),  # above the limit, and within the noise
        ((100, 150, 200), (450, 460, 470), "step=+5%", "worse"),
        ((100, 101, 102), (130, 160, 300), "step=+5%", "inconclusive"),  # the new runs differ by more than they are longer
        ((100,), (110,), "step=+5%", "inconclusive"),  # one run each: who knows
        ((100,), (200,), "step=+5%", "worse"),
        ((100,), (70,), "step=+5%", "fine"),
        ((100, 100, 100), (100, 100, 100), "step=+0%", "fine"),
    ],
)
def test_a_time_is_worse_only_beyond_the_noise(old, new, limit, verdict):
    assert judged(runs(*old), runs(*new), limit).verdict == verdict


def test_the_interval_holds_the_ratio_and_is_the_same_each_time():
    one = judged(runs(100, 110, 120), runs(130, 140, 150), "step=+5%")
    assert one == judged(runs(100, 110, 120), runs(130, 140, 150), "step=+5%")
    assert (one.old, one.new) == (110, 140) and one.low == pytest.approx(130 / 120) and one.high == pytest.approx(150 / 100)


def test_how_many_more_runs_would_do():
    assert judged(runs(100), runs(110), "step=+5%").more_runs == 2
    assert judged(runs(100, 101, 102), runs(104, 105, 106), "step=+5%").more_runs > 1
    assert judged(runs(100, 101), runs(200, 201), "step=+5%").more_runs is None
    # An interval falls as one over the root: of four runs each, 20 more.
    assert judged(runs(100, 110, 120, 130), runs(100, 112, 124, 130), "step=+10%").more_runs == 20


@pytest.mark.parametrize(
    ("old", "new", "limit", "verdict", "low", "high"),
    [
        ((5, 5), (5, 5), "kernels=+0", "fine", 0, 0),
        ((5, 5), (6, 6), "kernels=+0", "worse", 1, 1),
        ((5, 5), (6, 6), "kernels=+1", "fine", 1, 1),
        ((5, 6), (5, 7), "kernels=+0", "inconclusive", -1, 2),
        ((10,), (11,), "kernels=+10%", "fine", 1, 1),
        ((10,), (12,), "kernels=+10%", "worse", 2, 2),
    ],
)
def test_a_count_is_compared_as_it_is(old, new, limit, verdict, low, high):
    before, after = ([run(kernels=float(n)) for n in each] for each in (old, new))
    one = judged(before, after, limit)
    assert (one.verdict, one.low, one.high) == (verdict, low, high)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ([100], [104], "fine"),
        ([100], [106], "worse"),
        ([100, 90], [104, 104], "fine"),  # as much as one of the baseline's, and a little
        ([100, 90], [100, 110], "inconclusive"),
    ],
)
def test_the_peak_of_memory_needs_no_more_than_a_run(old, new, verdict):
    outcome = judged([run(peak_memory=b) for b in old], [run(peak_memory=b) for b in new], "peak_memory=+5%")
    assert outcome.verdict == verdict


def test_a_new_finding_has_to_be_in_each_new_run():
    old, shown, not_shown = run(findings=("a",)), run(findings=("a", "b")), run(findings=("a",))
    assert judged([old], [shown, shown], "findings=new").findings == ("b",)
    assert judged([old], [shown, not_shown], "findings=new").verdict == "fine"
    assert judged([shown], [old], "findings=new").verdict == "fine"


def test_what_is_not_in_a_trace_is_said_and_is_no_fault():
    found = gate([run(100.0)], [run(60.0, kernels=5)], [parse_limit(text) for text in DEFAULTS])
    assert found.verdict == "fine" and [outcome.verdict for outcome in found.outcomes][1:] == ["not in the traces"] * (
        len(DEFAULTS) - 1
    )
    assert [(outcome.old, outcome.new) for outcome in found.outcomes if outcome.limit.measure == "kernels"] == [(None, 5)]


@pytest.mark.parametrize(
    ("new", "strict", "verdicts"),
    [
        ({"plain_step": 60.0, "kernels": 9, "aten_calls": 30}, False, ["fine", *["more, in a faster step"] * 2]),
        ({"plain_step": 60.0, "kernels": 9, "aten_calls": 30}, True, ["fine", "worse", "worse"]),
        # Of one run each it may be no faster.
        ({"plain_step": 90.0, "kernels": 9, "aten_calls": 30}, False, ["inconclusive", "worse", "worse"]),
        ({"plain_step": 60.0, "kernels": 9, "aten_calls": 20, "syncs": 3}, False, ["fine", "more, in a faster step", "fine",
         "worse"]),
        ({"plain_step": None, "kernels": 9, "aten_calls": 30}, False, ["fine", "worse", "worse"]),  # as recorded: no measurement
    ],
)  # fmt: skip
def test_more_kernels_of_a_measured_faster_step_are_told(new, strict, verdicts):
    old = {"plain_step": 100.0, "kernels": 3, "aten_calls": 20, **({"syncs": 1} if "syncs" in new else {})}
    found = gate([run(100.0, **old)], [run(60.0, **new)], [parse_limit(text) for text in DEFAULTS], strict)
    assert [outcome.verdict for outcome in found.outcomes if outcome.verdict != "not in the traces"] == verdicts
    assert found.verdict == ("worse" if "worse" in verdicts else "fine")


def test_what_neither_side_has_is_not_listed(traces, capsys):
    """Nor does a limit of one's own give way."""
    old, new = traces("old", with_memory=False), traces("new", kernels=3, with_memory=False)
    code, out = checked(capsys, new, "--baseline", old)
    assert code == 1 and "peak_memory" not in out and "kernels=+0" in out
    code, out = checked(capsys, new, "--baseline", old, "--json")
    said = {one["limit"]["measure"]: one["verdict"] for one in json.loads(out)["outcomes"]}
    assert said["peak_memory"] == "not in the traces"


def test_what_the_baseline_has_and_the_new_run_lacks_fails():
    """A job that lost its GPU would pass any limit on kernels."""
    found = gate([run(100.0, kernels=5)], [run(60.0)], [parse_limit("step=+5%"), parse_limit("kernels=+0")])
    assert (found.verdict, found.outcomes[1].verdict, found.outcomes[1].old) == ("worse", "not in the new run", 5)
    with pytest.raises(
        ValueError, match=r"^nothing to compare: the traces hold none of what the limits are of \(kernels, syncs\)$"
    ):
        gate([run(100.0)], [run(60.0)], [parse_limit("kernels=+0"), parse_limit("syncs=+0")])


@pytest.mark.parametrize(
    ("old", "new", "low", "plain"),
    [
        ((100, 40), (100, 80), 2.0, True), ((100, 40), (110, None), 1.1, False), ((100, None), (110, 10), 1.1, False),
        ((100, None), (110, None), 1.1, False),
    ],
)  # fmt: skip
def test_a_step_without_the_profiler_is_beside_its_like(old, new, low, plain):
    """Where one side did not measure that, both are as recorded."""
    before, after = ([run(step_us, plain_step=plain_us)] * 3 for step_us, plain_us in (old, new))
    found = judged(before, after, "step=+5%")
    assert (found.verdict, found.low, found.plain) == ("worse", pytest.approx(low), plain)
    first = [
        line for part in gate_report(gate(before, after, [found.limit]), Style()).parts for line in getattr(part, "rows", [])
    ]
    assert first[0][0] == ("step=+5%, without the profiler" if plain else "step=+5%")


def test_a_job_has_a_step_without_the_profiler_where_each_rank_has():
    ranks = [run(100.0, plain_step=50), run(120.0, plain_step=40)]
    assert of_job(ranks).plain_step == 50 and of_job([*ranks, run(90.0)]).plain_step is None


def test_of_a_count_that_grew_its_own_rows_are_named():
    """Five rows cost more than any kernel; the kernels are named all the same, those with the most new calls first."""
    slow = {f"op aten::op{n}": RowMeasure(1, 100 + n) for n in range(7)}
    fast = {name: RowMeasure(1, 1) for name in slow}
    new = {f"kernel k{n}": RowMeasure(n, 1) for n in range(1, 6)} | {"call cudaStreamSynchronize": RowMeasure(2, 1)}
    found = gate(
        [run(100.0, fast, kernels=0, syncs=0)], [run(900.0, slow | new, kernels=15, syncs=2)],
        [parse_limit("kernels=+0"), parse_limit("syncs=+0")],
    )  # fmt: skip
    assert [cause.name for cause in found.causes] == [
        *(f"op aten::op{n}" for n in (6, 5, 4, 3, 2)), "kernel k5", "kernel k4", "kernel k3", "call cudaStreamSynchronize",
    ]  # fmt: skip


def test_the_rows_that_grew_are_named_those_that_cost_most_first():
    before = {"op aten::mm": RowMeasure(1, 50), "op aten::add": RowMeasure(2, 10), "op aten::relu": RowMeasure(1, 10)}
    after = {
        "op aten::mm": RowMeasure(1, 51),
        "op aten::add": RowMeasure(4, 20),
        "op aten::relu": RowMeasure(1, 30),
        "new": RowMeasure(1, 1),
    }
    found = gate([run(100.0, before)], [run(140.0, after)], [parse_limit("step=+5%")])
    assert [cause.name for cause in found.causes] == ["op aten::relu", "op aten::add", "new"]  # 1 us of aten::mm is no cause
    assert found.causes[1].calls == (2, 4) and found.causes[1].us == (10, 20)


def test_the_rows_of_a_job_are_those_of_its_slowest_rank():
    ranks = [run(100.0, rows={"a": RowMeasure(1, 50)}), run(120.0, rows={"b": RowMeasure(1, 90)})]
    assert of_job(ranks).rows == {"b": RowMeasure(1, 90)}


def test_the_ranks_of_a_job_are_one_run():
    ranks = [run(100.0, kernels=5.0, exposed=3.0, findings=("a",)), run(120.0, kernels=6.0, exposed=2.0, findings=("b", "a"))]
    one = of_job(ranks)
    assert (one.step, one.kernels, one.exposed, one.findings, one.syncs) == (120.0, 11.0, 3.0, ("a", "b"), None)


# --- The command


@pytest.fixture
def traces(tmp_path):
    """Traces of three steps with kernels, a copy and a synchronization each, as asked for."""

    def written(name, kernels=1, copies=0, syncs=0, us=100, with_memory=False):
        events = []
        for n in range(1, 4):
            at, number = n * 1000, n * 100
            events.append(step(n, at, us))
            for k in range(kernels):
                events += [op("aten::mm", at + 10 * k, 8), launch(at + 10 * k + 1, number + k)]
                events.append(kernel(f"gemm{k}", at + 10 * k + 5, 4, number + k))
            for k in range(copies):
                events += [call("cudaMemcpyAsync", at + 50 + k, 1, number + 50 + k), memcpy(at + 55 + k, 1, number + 50 + k)]
            events += [call("cudaStreamSynchronize", at + 70 + k, 1, number + 70 + k) for k in range(syncs)]
        events += [memory(1005, 100, 4096, 4096)] if with_memory else []
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document(*events)))
        return str(path)

    return written


def checked(capsys, *arguments):
    code = cli.main(["check", *arguments])
    return code, capsys.readouterr().out


def test_equal_runs_pass_and_more_kernels_copies_and_waits_do_not(traces, capsys):
    old, same = traces("old"), traces("same")
    limits = ["--max", "kernels=+0", "--max", "copies=+0", "--max", "syncs=+0"]
    code, out = checked(capsys, same, "--baseline", old, *limits)
    assert code == 0 and out.startswith("no worse than the baseline (1 run beside 1 run)\n") and "What grew" not in out
    code, out = checked(capsys, traces("new", kernels=3, copies=1, syncs=2), "--baseline", old, *limits)
    assert code == 1 and out.startswith("worse than the baseline")
    lines = [re.split(r"  +", line.strip()) for line in out.splitlines() if "=+0" in line]
    assert lines == [
        ["kernels=+0", "1", "3", "+2", "worse"],
        ["copies=+0", "0", "1", "+1", "worse"],
        ["syncs=+0", "0", "2", "+2", "worse"],
    ]
    for row in ("aten::mm +1 -> 3", "gemm1 +0 -> 1", "Memcpy DtoD +0 -> 1", "cudaStreamSynchronize +0 -> 2"):
        assert re.search(f"^  {row} ", out, re.MULTILINE), row


def test_a_baseline_has_a_name(traces, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["baseline", traces("old"), "--name", "main"]) == 0
    assert capsys.readouterr().out == "wrote .read-trace/baselines/main.json: 1 run\n"
    assert (tmp_path / ".read-trace" / ".gitignore").read_text() == "*\n"
    assert checked(capsys, traces("new"), "--baseline", "main", "--max", "kernels=+0")[0] == 0
    assert checked(capsys, traces("new", kernels=2), "--baseline", "main", "--max", "kernels=+0")[0] == 1
    assert cli.main(["runs", traces("new"), "--baseline", "main"]) == 0
    assert "to baseline" in capsys.readouterr().out
    for name, said in (("other", "no such file, and no baseline of this name (there is main)"), ("../x", "")):
        assert cli.main(["check", traces("new"), "--baseline", name]) == 2
        assert f"error: {name}: {said}" in capsys.readouterr().err
    (tmp_path / "main").mkdir()
    assert cli.main(["check", traces("new"), "--baseline", "main"]) == 2
    assert "error: main: .read-trace/baselines/main.json or ./main? Say which" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["baseline", traces("old"), "--name", "../main"])
    assert "a name is of letters, digits, _, . and -, not '../main'" in capsys.readouterr().err


def test_what_was_not_recorded_alike_is_told(traces, tmp_path, capsys):
    def on(name, device, **header):
        trace = json.loads(Path(traces(name)).read_text())
        trace |= {"deviceProperties": [{"id": 0, "name": device}], **header}
        (tmp_path / f"{name}.json").write_text(json.dumps(trace))
        return str(tmp_path / f"{name}.json")

    old = on("old", "NVIDIA H100", cuda_runtime_version=12080)
    limits = ("--max", "kernels=+0")
    assert "not recorded alike" not in checked(capsys, old, "--baseline", old, *limits)[1]
    new = on("new", "NVIDIA H200", cuda_runtime_version=13000, record_shapes=1)
    code, out = checked(capsys, new, "--baseline", old, *limits)
    said = (
        "not recorded alike: device NVIDIA H100 in the baseline, now NVIDIA H200; CUDA runtime 12.8 in the baseline, now 13.0; "
    )
    assert code == 0 and said + "recorded with shapes, the baseline without" in " ".join(out.split())
    code, out = checked(capsys, old, "--baseline", new, *limits, "--json")
    assert json.loads(out)["unlike"][-1] == "recorded without shapes, the baseline with it"


def test_a_baseline_of_the_version_before_does_not_say_how_it_was_recorded(traces, tmp_path, capsys):
    kept = tmp_path / "kept.json"
    assert cli.main(["baseline", traces("old"), "-o", str(kept)]) == 0
    before = json.loads(kept.read_text()) | {"read_trace_baseline": 3}
    for run in before["runs"]:
        del run["recorded_with"]
    kept.write_text(json.dumps(before))
    trace = json.loads(Path(traces("new")).read_text()) | {"record_shapes": 1}
    (tmp_path / "new.json").write_text(json.dumps(trace))
    code, out = checked(capsys, str(tmp_path / "new.json"), "--baseline", str(kept), "--max", "kernels=+0")
    assert code == 0 and "not recorded alike" not in out


def test_a_wait_after_the_last_step_is_not_of_a_step(traces, tmp_path, capsys):
    """The profiler's own, when it ends: of one recorded step it would be one, of three a third."""
    paths = []
    for steps in (1, 3):
        events = json.loads(Path(traces("one")).read_text())["traceEvents"]
        events = [event for event in events if event.get("ts", 0) < 1000 * (steps + 1)]
        path = tmp_path / f"of_{steps}.json"
        path.write_text(json.dumps(document(*events, call("cudaDeviceSynchronize", 9000, 5, 999))))
        paths.append(str(path))
    code, out = checked(capsys, paths[0], "--baseline", paths[1], "--max", "syncs=+0")
    assert code == 0 and re.search(r"^  syncs=\+0 +0 +0 +\+0 +fine$", out, re.MULTILINE)


def test_steps_are_the_annotations_that_are_named(traces, tmp_path, capsys):
    """As in a trace of another program. Without that they are found: the annotations repeat."""
    paths = []
    for name, kernels in (("old", 1), ("new", 2)):
        text = Path(traces(name, kernels=kernels, syncs=1)).read_text().replace("ProfilerStep#", "train_")
        path = tmp_path / f"{name}_train.json"
        path.write_text(text)
        paths.append(str(path))
    steps = ["--steps_from", r"train_\d"]
    for more, lines in ((steps, ("1 +2", "1 +1")), ([], ("1 +2", "1 +1"))):
        code, out = checked(capsys, paths[1], "--baseline", paths[0], "--max", "kernels=+0", "--max", "syncs=+0", *more)
        assert code == 1 and all(
            re.search(rf"^  {name}=\+0 +{line} ", out, re.MULTILINE)
            for name, line in zip(("kernels", "syncs"), lines, strict=True)
        )
    base = str(tmp_path / "base.json")
    assert cli.main(["baseline", paths[0], "-o", base, *steps]) == 0
    capsys.readouterr()
    assert checked(capsys, paths[0], "--baseline", base, "--max", "kernels=+0", *steps)[0] == 0
    assert cli.main(["runs", *paths, "--baseline", base, "--json", *steps]) == 0
    assert [load["kernels"] for load in json.loads(capsys.readouterr().out)["runs"]] == [2, 1]
    assert cli.main(["watch", str(tmp_path), "--once", *steps]) == 0
    assert re.search(r"^old_train +1\.00 ms ", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["show", paths[0], "gpu-bound", *steps]) == 2
    assert "does not show gpu-bound; this trace shows" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["check", paths[0], "--baseline", base, "--steps_from", "["])
    assert "expected a regular expression, got '['" in capsys.readouterr().err


def test_an_op_that_became_slower_is_named_with_its_shape(tmp_path, capsys):
    def written(name, us):
        shape = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
        events = [
            e for n in range(3)
            for e in (step(n, 1000 * n, 900), op("aten::mm", 1000 * n + 5, 10, **shape), launch(1000 * n + 6, n + 1),
                      kernel("ampere_sgemm_128x64_tn", 1000 * n + 20, us, n + 1))
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps(document(*events)))
        return str(path)

    code, out = checked(capsys, written("new.json", 300), "--baseline", written("old.json", 100), "--max", "gpu=+5%")
    assert code == 1
    for name in ("aten::mm 2 of 64x64 fp32", "sgemm 128x64"):
        assert re.search(rf"^  {name} +1 +100\.0 µs -> 300\.0 µs$", out, re.MULTILINE), out


def test_new_findings_are_named_whole(capsys):
    names = tuple(f"finding-number-{n}" for n in range(6))
    found = gate([run(100.0)], [run(100.0, findings=names)], [parse_limit("findings=new")])
    parts = gate_report(found, Style()).parts
    assert ["", f"new findings: {', '.join(names)}"] in [part.lines for part in parts if isinstance(part, Lines)]


def test_a_steps_time_is_the_median_of_its_periods(tmp_path, capsys):
    """One hiccup says nothing of the others."""
    events, at = [], 0.0
    for n, long_us in enumerate((50, 100, 100, 1000, 100, 100)):
        events += [step(n, at, long_us), op("aten::mm", at, 10)]
        at += long_us
    path = tmp_path / "hiccup.json"
    path.write_text(json.dumps(document(*events)))
    assert cli.main(["baseline", str(path), "-o", str(tmp_path / "base.json")]) == 0
    capsys.readouterr()
    assert json.loads((tmp_path / "base.json").read_text())["runs"][0]["step"] == 100


def test_a_baseline_is_a_small_file_that_gives_the_same_answer(traces, tmp_path, capsys):
    old, new, base = traces("old"), traces("new", kernels=2), tmp_path / "base.json"
    assert cli.main(["baseline", old, old, "-o", str(base)]) == 0
    assert capsys.readouterr().out == f"wrote {base}: 2 runs\n"
    kept = json.loads(base.read_text())
    assert kept["read_trace_baseline"] == 4 and [one["kernels"] for one in kept["runs"]] == [1, 1]
    assert checked(capsys, new, "--baseline", str(base)) == checked(capsys, new, "--baseline", old, old)
    before = base.read_bytes()
    assert cli.main(["baseline", old, old, "-o", str(base)]) == 0 and base.read_bytes() == before
    capsys.readouterr()
    for text, said in (
        (
            '{"read_trace_baseline": 1, "runs": [{"trace": "x"}]}',
            "a baseline of version 1, and this reads 3 to 4: make it again",
        ),
        ('{"read_trace_baseline": 3, "runs": [{"trace": "x"}]}', "a baseline that this version does not read: "),
        ('{"read_trace_baseline": 3, "runs": []}', "a baseline without a run"),
        ('{"read_trace_baseline"', "a baseline that this version does not read: "),
    ):
        base.write_text(text)
        assert cli.main(["check", new, "--baseline", str(base)]) == 2
        assert capsys.readouterr().err.startswith(f"error: {base}: {said}")


def test_one_run_each_that_could_be_either_is_inconclusive(traces, capsys):
    code, out = checked(capsys, traces("new", us=105), "--baseline", traces("old"), "--max", "step=+1%")
    assert code == 3 and out.startswith("inconclusive") and "record 2 more runs of each: " in out


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("step=+500us", "+900.0 µs to +1.10 ms"),
        ("step=+0.5ms", "+900.0 µs to +1.10 ms"),
        ("step=+5%", "+42.5% to +162.5%"),
        ("kernels=+9", "+2"),
        ("kernels=+9%", "+2"),
    ],
)
def test_what_grew_is_told_as_its_limit_is_an_amount_or_a_share(limit, said):
    assert change(judged(runs(1000, kernels=5), runs(1900, 2100, kernels=7), limit)) == said


def test_the_forms(traces, tmp_path, capsys):
    old, new, junit = traces("old"), traces("new", kernels=2), tmp_path / "report.xml"
    limits = ["--max", "kernels=+0", "--max", "peak_memory=+5%", "--max", "copies=+0"]
    code, out = checked(capsys, new, "--baseline", old, *limits, "--json", "--junit", str(junit))
    found = json.loads(out)
    assert code == 1 and found["verdict"] == "worse" and found["outcomes"][0]["limit"]["measure"] == "kernels"
    suite = ET.parse(junit).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("testsuite", "3", "1", "1")
    assert suite[0].find("failure").get("message") == "grew by +1" and suite[0].get("name") == "kernels=+0"
    recorded = traces("recorded", with_memory=True)
    assert checked(capsys, new, "--baseline", recorded, *limits, "--junit", str(junit))[0] == 1
    suite = ET.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "0")  # the kernel that is new, the memory that is gone
    code, out = checked(capsys, new, "--baseline", old, *limits, "--github")
    assert code == 1 and out.splitlines()[0] == "::error title=read-trace kernels=+0::kernels grew by +1"
    assert all(line.startswith("::notice title=read-trace::") for line in out.splitlines()[1:]) and len(out.splitlines()) > 1
    assert checked(capsys, new, "--baseline", old, "--max", "step=+100%", "--github") == (0, "")  # what grew is no news
    assert "| kernels=+0 | 1 | 2 | +1 | worse |" in checked(capsys, new, "--baseline", old, *limits, "--md")[1]


def test_limits_come_from_a_file(traces, tmp_path, capsys, monkeypatch):
    old, new = traces("old"), traces("new", kernels=2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.read-trace]\nmax = ["kernels=+1"]\n')
    code, out = checked(capsys, new, "--baseline", old)
    assert code == 0 and "kernels=+1" in out and "step" not in out
    (tmp_path / "limits.toml").write_text('max = ["kernels=+0"]\n')
    assert checked(capsys, new, "--baseline", old, "--config", "limits.toml")[0] == 1
    (tmp_path / "limits.toml").write_text('[tool.read-trace]\nmax = ["kernels=+0"]\n')  # as pyproject.toml has it
    assert checked(capsys, new, "--baseline", old, "--config", "limits.toml")[0] == 1
    for text, said in (
        ("max = 3\n", "max: expected a list of limits"),
        ('maxx = ["kernels=+0"]\n', "limits.toml: 'maxx' is no key of read-trace; expected max = [...]"),
        ("[tool.read-trace]\nlimits = []\n", "limits.toml: 'limits' is no key of read-trace; expected max = [...]"),
        ("[tool]\nread-trace = 3\n", "limits.toml: read-trace: expected a table with max = [...]"),
        ("[tool.other]\nmax = []\n", "limits.toml: it has no limits; expected max = [...], or that under [tool.read-trace]"),
    ):
        (tmp_path / "limits.toml").write_text(text)
        assert cli.main(["check", new, "--baseline", old, "--config", "limits.toml"]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    told = json.loads(checked(capsys, new, "--baseline", old, "--json")[1])
    assert [one["limit"]["text"] for one in told["outcomes"]] == list(DEFAULTS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.json", "--baseline", "OLD"], "error: missing.json: No such file or directory"),
        (["OLD", "--baseline", "missing.json"], "error: missing.json: No such file or directory"),
        (["OLD"], "the following arguments are required: --baseline"),
        (
            ["OLD", "--baseline", "OLD", "--max", "speed=1"],
            "expected MEASURE=+N%, MEASURE=+N with a unit or findings=new, got 'speed=1'",
        ),
        (["OLD", "--baseline", "OLD", "--json", "--md"], "not allowed with argument"),
    ],
)
def test_mistakes_end_with_2(traces, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    old = traces("old")
    try:
        code = cli.main(["check", *(old if word == "OLD" else word for word in arguments)])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2 and said in capsys.readouterr().err


def test_a_file_that_is_called_check_is_read_by_its_path(traces, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "check").write_bytes((tmp_path / traces("old")).read_bytes())
    assert cli.main(["./check"]) == 0 and "kernels per step: 1" in capsys.readouterr().out


def test_the_readme_shows_both_commands():
    text = (TOOL / "README.md").read_text()
    assert "read-trace check" in text and "read-trace baseline" in text
    told = (TOOL / "docs" / "check.md").read_text()
    assert {"--max", "--config", "--github", "--md", "--junit"} <= set(re.findall(r"--[a-z]+", told))


def test_as_many_more_runs_are_asked_for_as_the_widest_limit_needs():
    old, new = ([run(step_us=us, gpu=us / 2)] for us in (100, 110))
    found = gate(old, new, [parse_limit("step=+5%"), parse_limit("gpu=+5%")])
    assert [outcome.more_runs for outcome in found.outcomes] == [2, 2]
    (said,) = [part.lines for part in gate_report(found, Style()).parts if isinstance(part, Lines)]
    assert said[1].startswith("record 2 more runs of each: ")


def test_without_steps_all_is_of_the_whole_trace(tmp_path):
    """Two kernels of 4 and 6, launched from 1 on; one copy, one wait until 31."""
    events = [
        launch(1, 1), kernel("a", 5, 4, 1), launch(10, 2), kernel("b", 20, 6, 2), call("cudaMemcpyAsync", 12, 1, 3),
        memcpy(30, 1, 3), call("cudaStreamSynchronize", 14, 17, 4),
    ]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document(*events)))
    facts = read(str(path))
    one = measures(facts)
    assert (one.step, one.gpu, one.kernels, one.copies, one.syncs) == (facts.window_us, 11, 2, 1, 1) and facts.window_us == 30


def test_what_a_trace_lacks_of_its_launches_is_unknown_and_not_0(tmp_path):
    events = [one for n in range(3) for one in (step(n, 100 * n, 90), launch(100 * n + 5, n), op("aten::mm", 100 * n + 4, 9))]
    one = measures(read(write(tmp_path / "t.json", *events, kernel("a", 295, 30, 99))))
    assert (one.step, one.aten_calls, one.gpu, one.kernels, one.copies) == (100, 1, None, None, None)


def test_without_a_gpu_an_op_has_one_row_by_its_shapes(tmp_path):
    shape = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document(step(0, 0, 99), op("aten::mm", 5, 40, **shape), op("aten::add", 50, 9))))
    assert set(measures(read(str(path))).rows) == {"op aten::mm 2 of 64x64 fp32", "op aten::add"}


def test_a_kernel_that_only_takes_longer_is_not_told_of_a_count():
    slow = {f"op aten::op{n}": RowMeasure(1, 100 + n) for n in range(6)}
    fast = {name: RowMeasure(1, 1) for name in slow}
    before, after = ({**rows, "kernel same": RowMeasure(1, us)} for rows, us in ((fast, 1), (slow, 50)))
    found = gate([run(100.0, before, kernels=1)], [run(900.0, after, kernels=2)], [parse_limit("kernels=+0")])
    assert [cause.name for cause in found.causes] == [f"op aten::op{n}" for n in (5, 4, 3, 2, 1)]
