"""The two packages: what the tutorial takes of the tool, and what it needs to record."""

import ast
from pathlib import Path
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from types import SimpleNamespace
from typing import Any

from common import artifacts
from common.cli import LessonError
from common.plain_step import PlainStep
from helpers import LESSONS, ROOT, TOOL
from models import llm
from packaging.requirements import Requirement
import pytest
import trace_reader

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CODE = sorted(
    [
        *ROOT.glob("*.py"),
        *(p for folder in ("common", "doctor", "models", "gallery", "benchmarks") for p in (ROOT / folder).rglob("*.py")),
    ]
)
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PROGRAM = {"read_trace.py"}  # it is the tool's main


def imports(path: Path) -> list[tuple[str, str]]:
    """(module, name) of all that a file imports, wherever in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tutorial_uses_what_the_tool_exports(path):
    used = [(module, name) for module, name in imports(path) if module.split(".")[0] == "trace_reader"]
    used += [
        ("trace_reader", node.attr)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "trace_reader"
    ]
    exported = {"", "__all__", *trace_reader.__all__}  # "": the module itself, of which attributes are taken
    if path.name not in PROGRAM:
        assert [pair for pair in used if pair[0] != "trace_reader" or pair[1] not in exported] == []


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_needs_torch_and_what_lessons_share_alone(lesson):
    allowed = {"torch", "common", "models", "triton", *sys.stdlib_module_names}
    assert {module.split(".")[0] for module, _ in imports(ROOT / lesson)} <= allowed


@pytest.mark.slow
def test_a_lesson_records_where_the_tool_is_not_installed(tmp_path):
    """The scripts and common/ alone, with a tool that cannot be imported."""
    shutil.copy(ROOT / "01_matmul_add.py", tmp_path)
    shutil.copytree(ROOT / "common", tmp_path / "common")
    (tmp_path / "trace_reader.py").write_text("raise ImportError('not installed')\n")
    command = [sys.executable, "01_matmul_add.py", "--size", "8", "--device", "cpu", "--guess", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    path = "traces/01_matmul_add/8_bf16_cold_eager_device-cpu.json"
    assert done.stdout.splitlines()[-2:] == [
        "verdict: left out, because the reader is not installed: pip install ./read-trace",
        f"next: drag {path} into https://ui.perfetto.dev",
    ]
    assert [step.name for step in trace_reader.read(str(tmp_path / path)).steps] == [f"ProfilerStep#{n}" for n in (2, 3, 4)]


def test_requirements_txt_has_what_the_lessons_and_the_tool_need():
    """It is the lock for people with pip alone."""
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    tool = tomllib.loads((TOOL / "pyproject.toml").read_text())["project"]
    wanted = [*PROJECT["project"]["dependencies"], *tool["dependencies"], *tool["optional-dependencies"]["plot"]]
    for requirement in map(Requirement, wanted):
        if requirement.name != "read-trace":
            assert requirement.specifier.contains(pins[requirement.name], prereleases=True), requirement


def test_workflows_pin_actions_by_commit_and_what_deploys_runs_nothing_of_ours():
    """No YAML reader is among our packages: each line is looked at."""
    for path in (ROOT / ".github" / "workflows").iterdir():
        text = path.read_text()
        used = re.findall(r"uses:\s*(\S+)", text)
        assert used and [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
        head, *jobs = re.split(r"^  (?=\w+:$)", text.partition("\njobs:\n")[2], flags=re.MULTILINE)
        assert "permissions: {}" in text.partition("\njobs:\n")[0] and not head.strip()
        for job in jobs:
            assert not ("write" in job and ("run:" in job or "checkout" in job)), job


def test_no_function_is_long():
    """Counted without its docstring: what takes more is several things."""
    long = []
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                long += [f"{path.name}: {node.name}, {lines} lines"] * (lines > 60)
    assert long == []


def test_the_readers_recordings_are_the_gallerys():
    """Copied byte for byte, so that the reader's tests run without the gallery."""
    copies = ROOT / "read-trace" / "tests" / "data" / "gallery"
    files = [path.relative_to(copies) for path in copies.rglob("*.json*")]
    changed = [str(path) for path in files if (copies / path).read_bytes() != (ROOT / "gallery" / path).read_bytes()]
    assert len(files) > 40 and not changed, f"copy them again: cp gallery/PATH {copies.relative_to(ROOT)}/PATH"


def test_lessons_and_the_reader_write_the_same_header():
    """Each has its own few lines: a lesson records where the reader is not installed."""
    times_us = [101.23456, 99.0, 140.5]
    one = PlainStep(median_us=101.23456, low_us=99.0, high_us=140.5, steps=21).as_header()
    assert (
        one
        == trace_reader.plain_step_us(times_us, 21)
        == {"plain_step_us": {"median": 101.235, "low": 99.0, "high": 140.5, "steps": 21}}
    )
    header = {"lesson": {"device": 'ü "1"'}, **one}
    trace = b' {"traceEvents": []}'
    assert artifacts.with_header(trace, header) == trace_reader.with_header(trace, header)


def test_uv_run_installs_what_lessons_need_and_nothing_else():
    """The tests bring the rest (conftest.py), and language models the group llm."""
    assert PROJECT["tool"]["uv"]["default-groups"] == []
    names = [Requirement(text).name for text in PROJECT["project"]["dependencies"]]
    assert names == ["kernels", "pytest", "read-trace", "torch", "trace-util"]
    assert PROJECT["dependency-groups"]["dev"][0] == {"include-group": "llm"}


@pytest.mark.parametrize(
    ("has_xdist", "has_uv", "again", "said"),
    [
        (
            False,
            True,
            False,
            ["uv", "run", "--python", "{}.{}".format(*sys.version_info), "--group", "dev", "pytest", "-q", "x.py"],
        ),
        (True, True, False, None),
        (False, False, False, None),  # pytest itself says what it does not know
        (False, True, True, "uv installs nothing here (UV_NO_SYNC): uv pip install --group dev"),
    ],
)
def test_the_tests_bring_their_own_packages(monkeypatch, capsys, has_xdist, has_uv, again, said):
    light: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "conftest.py")))
    ran = []
    monkeypatch.setattr(light.importlib.util, "find_spec", lambda name: object() if has_xdist else None)
    monkeypatch.setattr(light.shutil, "which", lambda name: "/bin/uv" if has_uv else None)
    monkeypatch.setattr(light.os, "execvp", lambda program, words: ran.append(words))
    monkeypatch.setattr(light.os, "environ", {light.AGAIN: "1"} if again else {})
    monkeypatch.setattr(light.sys, "argv", ["pytest", "-q", "x.py"])
    plugins = SimpleNamespace(getplugin=lambda name: None)
    if again:
        with pytest.raises(pytest.UsageError, match=re.escape(said)):
            light.pytest_addoption(plugins)
    else:
        light.pytest_addoption(plugins)
    assert ran == ([said] if isinstance(said, list) else [])


def test_a_language_model_without_its_library_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(sys, "argv", ["05_a_llm_decode.py"])
    said = "this needs transformers: uv run --group llm 05_a_llm_decode.py, or pip install transformers"
    with pytest.raises(LessonError, match=said):
        llm._transformers()
