"""The barrier: what fails on an unusual trace is one line, and the rest of the report holds."""

import json

import msgspec
import pytest
from reader_helpers import FAULTS, RECORDINGS
from reader_helpers.events import ADD, GEMM, kernel, launch, op, step, write
from trace_reader import cli, guard
from trace_reader.commands import read_job
from trace_reader.findings import PATTERNS
from trace_reader.report import trace_report
from trace_reader.report.trace_tables import KERNELS, TABLES

EVENTS = (
    step(0, 0, 40), op("aten::mm", 2, 9), launch(3, 1), op("aten::add", 12, 9), launch(13, 2), kernel(GEMM, 9, 90, 1),
    kernel(ADD, 99, 9, 2),
)  # fmt: skip
PLEASE = "the rest holds; please report it"


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch):
    monkeypatch.setattr(guard, "raises", False)


def fails(*_, **__):
    raise ZeroDivisionError("float division by zero")


@pytest.fixture
def broken_rule(monkeypatch):
    monkeypatch.setitem(PATTERNS, "unfused-attention", msgspec.structs.replace(PATTERNS["unfused-attention"], rule=fails))


def test_a_finding_that_fails_is_one_line_and_the_others_are_told(tmp_path, capsys, broken_rule):
    path = write(tmp_path / "t.json", *EVENTS)
    line = f"the finding unfused-attention failed on this trace (ZeroDivisionError); {PLEASE}"
    assert cli.main([path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["failed"] == [line] and facts["findings"][0]["slug"] == "gpu-bound"
    assert cli.main([path, "--md"]) == 0
    out, err = capsys.readouterr()
    assert f"- {line}\n" in out and "The GPU is the bottleneck" in out and err == ""


def test_in_the_tests_it_raises(tmp_path, monkeypatch, broken_rule):
    monkeypatch.setattr(guard, "raises", True)
    with pytest.raises(ZeroDivisionError):
        cli.main([write(tmp_path / "t.json", *EVENTS)])


def test_a_table_that_fails_is_left_out_whole(tmp_path, capsys, monkeypatch):
    broken = msgspec.structs.replace(KERNELS, rows=fails)
    monkeypatch.setattr(trace_report, "TABLES", tuple(broken if table is KERNELS else table for table in TABLES))
    assert cli.main([write(tmp_path / "t.json", *EVENTS), "--all"]) == 0
    out, _ = capsys.readouterr()
    assert "the table kernels failed on this trace (ZeroDivisionError);" in out
    assert "Kernels, copies and memsets" not in out and "GPU time by kind of work" in out


def test_a_rank_that_fails_is_named_and_the_others_are_read(tmp_path, capsys, monkeypatch):
    paths = [write(tmp_path / f"t_rank{rank}.json", *EVENTS) for rank in range(3)]
    examine = read_job.examine
    monkeypatch.setattr(read_job, "examine", lambda trace: fails() if trace.path == paths[1] else examine(trace))
    assert cli.main(paths) == 2
    out, err = capsys.readouterr()
    assert err == f"error: {paths[1]}: reading it failed (ZeroDivisionError: float division by zero); please report it\n"
    assert out.startswith("2 ranks of one job: ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("no"), "failed on this: ZeroDivisionError: no, test_guard.py:"),
        (MemoryError(), "there is not enough memory for this trace: read it on a larger machine, or record fewer steps\n"),
    ],
)
def test_anything_else_is_one_line(tmp_path, capsys, monkeypatch, error, said):
    def summarize(*_):
        raise error

    monkeypatch.setattr("trace_reader.reading.summarize", summarize)
    assert cli.main([write(tmp_path / "t.json", *EVENTS)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.startswith("error: ") and err.count("\n") == 1


def test_no_rule_is_called_twice(tmp_path, capsys, monkeypatch):
    """The report, the page, a finding's slices and a job are made of what each rule saw once, of each trace."""
    called: list[tuple[str, str]] = []

    def counting(slug, rule):
        def counted(trace, facts):
            called.append((slug, trace.path))
            return rule(trace, facts)

        return counted

    for slug, pattern in PATTERNS.items():
        monkeypatch.setitem(PATTERNS, slug, msgspec.structs.replace(pattern, rule=counting(slug, pattern.rule)))
    faults = [str(FAULTS / f"{name}.json.gz") for name in ("item_on_gradients", "loop_optimizer")]
    job = [str(path) for path in sorted(RECORDINGS.glob("several_gpus/data_parallel_slow30_rank*"))]
    html = ("--html", str(tmp_path / "a.html"))
    for arguments in (faults[:1], [faults[0], *html], [*faults, *html], ["show", faults[0], "sync-in-step"], job, [*job, *html]):
        called.clear()
        assert cli.main(arguments) == 0
        assert len(called) > 50 and len(called) == len(set(called)), arguments
    capsys.readouterr()
