"""What is shipped, and how its parts may use each other."""

import ast
from pathlib import Path
import re
import sys
import tomllib

from helpers import ROOT
from packaging.requirements import Requirement
import pytest
from trace_reader import cli

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "trace_reader"
# From the ground up: a part imports from itself and from those before it.
LAYERS = ["errors", "units", "system", "names", "model", "parse", "link", "analysis", "findings", "reading", "report", "commands",
          "cli"]  # fmt: skip
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imported(path: Path) -> set[str]:
    """The names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_only_downward(path):
    own = layer(".".join(path.relative_to(ROOT).with_suffix("").parts))
    used = {name for name in imported(path) if name.startswith("trace_reader.")} - {"trace_reader.__version__"}
    assert {name for name in used if layer(name) > own} == set()


def test_the_version_is_said(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"read-trace {PROJECT['project']['version']}\n")


def test_the_reader_needs_what_its_wheel_installs():
    declared = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    extras = {Requirement(text).name for texts in PROJECT["project"]["optional-dependencies"].values() for text in texts}
    top = {name.split(".")[0] for path in MODULES for name in imported(path)}
    third_party = top - sys.stdlib_module_names - {"trace_reader"}
    assert third_party == declared | extras
    assert declared == {"msgspec", "numpy", "rich"}


def test_requirements_txt_has_what_the_lessons_need():
    """It is the lock for people with pip alone."""
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["lessons"]]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[requirement.name], prereleases=True), requirement
