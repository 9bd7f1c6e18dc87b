"""The gate: what is worse, what is not, and what the noise between runs does not tell."""

import json
import re
import xml.etree.ElementTree as ET

from helpers import TOOL
from helpers.events import call, document, kernel, launch, memcpy, op, step
import pytest
from trace_reader import cli
from trace_reader.analysis.gate import DEFAULTS, Limit, gate, parse_limit
from trace_reader.analysis.run_measures import RowMeasure, RunMeasures, of_job
from trace_reader.scene.document import Lines, Style
from trace_reader.scene.gate_report import gate_report


def run(step_us=None, rows=None, findings=(), **more):
    names = ("gpu", "exposed", "kernels", "ops", "copies", "syncs", "compiled", "peak_memory")
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
    with pytest.raises(ValueError, match=r"expected MEASURE=\+N, MEASURE=\+N% or findings=new, got "):
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
        ((100,), (110,), "step=+5%", "inconclusive"),  # one run each: who knows
        ((100,), (200,), "step=+5%", "worse"),
        ((100,), (70,), "step=+5%", "fine"),
        ((100, 100, 100), (100, 100, 100), "step=+0%", "fine"),
    ],
)
def test_a_time_is_worse_only_beyond_the_noise(old, new, limit, verdict):
    assert judged(runs(*old), runs(*new), limit).verdict == verdict


def test_the_interval_holds_the_ratio_and_is_the_same_each_time():
    own = judged(runs(100, 110, 120), runs(130, 140, 150), "step=+5%")
    assert own == judged(runs(100, 110, 120), runs(130, 140, 150), "step=+5%")
    assert (own.old, own.new) == (110, 140) and own.low == pytest.approx(130 / 120) and own.high == pytest.approx(150 / 100)


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
    own = judged(before, after, limit)
    assert (own.verdict, own.low, own.high) == (verdict, low, high)


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
    found = gate([run(100.0)], [run(60.0)], [parse_limit(text) for text in DEFAULTS])
    assert found.verdict == "fine" and [own.verdict for own in found.outcomes][1:] == ["not in the trace"] * (len(DEFAULTS) - 1)


def test_the_rows_that_grew_are_named_those_that_cost_most_first():
    before = {"aten::mm": RowMeasure(1, 50), "aten::add": RowMeasure(2, 10), "aten::relu": RowMeasure(1, 10)}
    after = {
        "aten::mm": RowMeasure(1, 51),
        "aten::add": RowMeasure(4, 20),
        "aten::relu": RowMeasure(1, 30),
        "new": RowMeasure(1, 1),
    }
    found = gate([run(100.0, before)], [run(140.0, after)], [parse_limit("step=+5%")])
    assert [own.name for own in found.causes] == ["aten::relu", "aten::add", "new"]  # 1 us of aten::mm is no cause
    assert found.causes[1].calls == (2, 4) and found.causes[1].us == (10, 20)


def test_the_rows_of_a_job_are_those_of_its_slowest_rank():
    ranks = [run(100.0, rows={"a": RowMeasure(1, 50)}), run(120.0, rows={"b": RowMeasure(1, 90)})]
    assert of_job(ranks).rows == {"b": RowMeasure(1, 90)}


def test_the_ranks_of_a_job_are_one_run():
    ranks = [run(100.0, kernels=5.0, exposed=3.0, findings=("a",)), run(120.0, kernels=6.0, exposed=2.0, findings=("b", "a"))]
    own = of_job(ranks)
    assert (own.step, own.kernels, own.exposed, own.findings, own.syncs) == (120.0, 11.0, 3.0, ("a", "b"), None)


# --- The command


@pytest.fixture
def traces(tmp_path):
    """Traces of three steps with kernels, a copy and a synchronization each, as asked for."""

    def written(name, kernels=1, copies=0, syncs=0, us=100):
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
    assert re.search(r"^  aten::mm +1 -> 3 ", out, re.MULTILINE) and re.search(r"^  kernel gemm1 +0 -> 1 ", out, re.MULTILINE)


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
    assert kept["read_trace_baseline"] == 1 and [own["kernels"] for own in kept["runs"]] == [1, 1]
    assert checked(capsys, new, "--baseline", str(base)) == checked(capsys, new, "--baseline", old, old)
    before = base.read_bytes()
    assert cli.main(["baseline", old, old, "-o", str(base)]) == 0 and base.read_bytes() == before
    capsys.readouterr()
    for text, said in (
        ('{"read_trace_baseline": 2, "runs": []}', "a baseline of version 2, and this reads version 1"),
        ('{"read_trace_baseline": 1, "runs": [{"trace": "x"}]}', "a baseline that this version does not read: "),
        ('{"read_trace_baseline": 1, "runs": []}', "a baseline of version 1, and this reads version 1"),
        ('{"read_trace_baseline"', "a baseline that this version does not read: "),
    ):
        base.write_text(text)
        assert cli.main(["check", new, "--baseline", str(base)]) == 2
        assert capsys.readouterr().err.startswith(f"error: {base}: {said}")


def test_one_run_each_that_could_be_either_is_inconclusive(traces, capsys):
    code, out = checked(capsys, traces("new", us=105), "--baseline", traces("old"), "--max", "step=+1%")
    assert code == 3 and out.startswith("inconclusive") and "record 2 more runs of each: " in out


def test_the_forms(traces, tmp_path, capsys):
    old, new, junit = traces("old"), traces("new", kernels=2), tmp_path / "report.xml"
    limits = ["--max", "kernels=+0", "--max", "peak_memory=+5%", "--max", "copies=+0"]
    code, out = checked(capsys, new, "--baseline", old, *limits, "--json", "--junit", str(junit))
    found = json.loads(out)
    assert code == 1 and found["verdict"] == "worse" and found["outcomes"][0]["limit"]["measure"] == "kernels"
    suite = ET.parse(junit).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("testsuite", "3", "1", "1")
    assert suite[0].find("failure").get("message") == "grew by +1" and suite[0].get("name") == "kernels=+0"
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
    (tmp_path / "limits.toml").write_text("max = 3\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", new, "--baseline", old, "--config", "limits.toml"])
    assert ended.value.code == 2 and "max: expected a list of limits" in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert all(text in checked(capsys, new, "--baseline", old)[1] for text in DEFAULTS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.json", "--baseline", "OLD"], "error: missing.json: No such file or directory"),
        (["OLD", "--baseline", "missing.json"], "error: missing.json: No such file or directory"),
        (["OLD"], "the following arguments are required: --baseline"),
        (["OLD", "--baseline", "OLD", "--max", "speed=1"], "expected MEASURE=+N, MEASURE=+N% or findings=new, got 'speed=1'"),
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


def test_a_file_that_is_called_check_is_a_trace(traces, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "check").write_bytes((tmp_path / traces("old")).read_bytes())
    assert cli.main(["check"]) == 0 and "kernels per step: 1" in capsys.readouterr().out


def test_the_readme_shows_both_commands():
    text = (TOOL / "README.md").read_text()
    assert "read-trace check" in text and "read-trace baseline" in text
    told = (TOOL / "docs" / "check.md").read_text()
    assert {"--max", "--config", "--github", "--md", "--junit"} <= set(re.findall(r"--[a-z]+", told))


def test_as_many_more_runs_are_asked_for_as_the_widest_limit_needs():
    old, new = ([run(step_us=us, gpu=us / 2)] for us in (100, 110))
    found = gate(old, new, [parse_limit("step=+5%"), parse_limit("gpu=+5%")])
    assert [own.more_runs for own in found.outcomes] == [2, 2]
    (said,) = [own.lines for own in gate_report(found, Style()).parts if isinstance(own, Lines)]
    assert said[1].startswith("record 2 more runs of each: ")
