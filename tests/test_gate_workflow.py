"""The gate where it works: a repository of its own, and the shell lines that the reader's document says."""

import importlib.util
import re

from helpers import ROOT
import pytest

DOCUMENT = ROOT / "read-trace" / "docs" / "check.md"
_spec = importlib.util.spec_from_file_location("gate_benchmark", ROOT / "read-trace" / "benchmarks" / "gate" / "gate.py")
assert _spec is not None and _spec.loader is not None
benchmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(benchmark)


def test_the_document_says_the_lines_that_are_run():
    assert benchmark.lines_of(DOCUMENT, benchmark.WITH_BASELINE) == [
        "pip install wheels/read_trace-*.whl",
        "for n in 1 2 3; do python train_profiled.py --out new$n.json; done",
        "read-trace check new1.json new2.json new3.json --baseline base.json --github --junit profile.xml",
    ]
    assert benchmark.lines_of(DOCUMENT, benchmark.IN_TURNS) == [
        "pip install wheels/read_trace-*.whl",
        "rm -rf old && git worktree prune && git worktree add old origin/$GITHUB_BASE_REF",
        "for n in 1 2 3 4 5; do python train_profiled.py --out new$n.json; "
        "(cd old && python train_profiled.py --out ../old$n.json); done",
        "read-trace check new?.json --baseline old?.json --github --junit profile.xml",
    ]
    text = DOCUMENT.read_text("utf-8")
    for line in ("for n in 1 2 3; do python train_profiled.py --out old$n.json; done", "read-trace baseline old1.json"):
        assert line in text


@pytest.mark.parametrize(
    ("of_unchanged", "of_fault", "code"),
    [
        ((0, ""), (1, "::error title=read-trace syncs=+0::syncs grew by +1\n"), 0),
        ((3, ""), (1, "::error title=read-trace aten_calls=+0::aten_calls grew by +1\n"), 0),
        ((0, ""), (1, "::error title=read-trace step=+10%::step grew by +30%\n"), 1),  # not what the fault is
        ((0, ""), (1, ""), 1),
        ((0, ""), (0, ""), 1),
        ((0, ""), (3, "::error title=read-trace syncs=+0::syncs grew by +1\n"), 1),
        ((1, ""), (1, "::error title=read-trace syncs=+0::syncs grew by +1\n"), 1),
    ],
)
def test_a_fault_is_found_where_the_gate_stops_and_names_it(monkeypatch, capsys, of_unchanged, of_fault, code):
    said = iter([of_unchanged, of_fault])
    monkeypatch.setattr(benchmark.Repository, "__init__", lambda self, *arguments: None)
    for name in ("change", "restore"):
        monkeypatch.setattr(benchmark.Repository, name, lambda self, *arguments: None)
    monkeypatch.setattr(benchmark.Repository, "run", lambda self: next(said))
    monkeypatch.setattr("sys.argv", ["gate.py", "--unchanged", "1", "sync"])
    assert benchmark.main() == code
    assert ("WRONG" in capsys.readouterr().out) is bool(code)


@pytest.mark.slow
def test_a_workflow_and_a_hook_stop_a_fault_and_nothing_else(tmp_path):
    """For counts, one recording is enough."""
    repository = benchmark.Repository(tmp_path, DOCUMENT)
    repository.lines = [line.replace("1 2 3;", "1;").replace(" new2.json new3.json", "") for line in repository.lines]
    (hook,) = re.findall(r"^ +entry: sh -c '(.*)'$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    unchanged = repository.shell(hook)
    assert unchanged.returncode == 0, unchanged.stdout + unchanged.stderr  # counts alone: no noise
    old, new, _ = benchmark.FAULTS["kernels"]
    repository.change(old, new)
    code, said = repository.run()
    assert code == 1 and "aten_calls" in benchmark.worse(said), said
    assert '<failure message="grew by +' in (tmp_path / "profile.xml").read_text("utf-8")
    repository.restore()
    assert repository.shell("git status --porcelain").stdout == ""


@pytest.mark.slow
def test_a_workflow_in_turns_stops_a_fault(tmp_path):
    """The old commit is recorded beside the new one: what is compared is the change. For counts, two turns are enough."""
    repository = benchmark.Repository(tmp_path, DOCUMENT, benchmark.IN_TURNS)
    repository.lines = [line.replace("1 2 3 4 5", "1 2") for line in repository.lines]
    repository.change(*benchmark.FAULTS["kernels"][:2])
    code, said = repository.run()
    assert code == 1 and "aten_calls" in benchmark.worse(said), said
    again = repository.shell(repository.lines[0])  # in a checkout that is kept
    assert again.returncode == 0, again.stderr
    repository.restore()
    assert repository.shell("git status --porcelain").stdout == "" and not (tmp_path / "old").exists()
