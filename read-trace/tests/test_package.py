"""What is shipped, and how its parts may use each other."""

import ast
from pathlib import Path
import sys
import textwrap
import tomllib

from packaging.requirements import Requirement
import pytest
from reader_helpers import TOOL
import trace_reader
from trace_reader import cli

PROJECT = tomllib.loads((TOOL / "pyproject.toml").read_text())
PACKAGE = TOOL / "trace_reader"
# From the ground up: a part imports from itself and from those before it.
LAYERS = [
    "errors", "guard", "units", "glossary", "system", "model", "names", "parse", "link", "analysis", "findings", "reading",
    "recording", "report", "write", "commands", "pictures", "pages", "cli", "__main__",
]  # fmt: skip
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
LONGEST = 60  # lines of a function


def imported(path: Path) -> set[str]:
    """Return the names of all modules that a file imports, wherever in it."""
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
    one = layer(".".join(path.relative_to(TOOL).with_suffix("").parts))
    used = {name for name in imported(path) if name.startswith("trace_reader.")} - {"trace_reader.__version__"}
    assert {name for name in used if layer(name) > one} == set()


def test_the_version_is_said(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"read-trace {PROJECT['project']['version']}\n")


def test_the_reader_needs_what_its_wheel_installs():
    declared = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    extras = {Requirement(text).name for texts in PROJECT["project"]["optional-dependencies"].values() for text in texts}
    top = {name.split(".")[0] for path in MODULES for name in imported(path)}
    third_party = top - sys.stdlib_module_names - {"trace_reader"}
    assert third_party - {"google"} | {"protobuf"} == declared | extras | {"torch", "pytest"}  # its package is google.protobuf
    assert declared == {"msgspec", "numpy", "rich"}


@pytest.mark.slow
def test_only_what_records_needs_torch():
    """And what is a plugin of pytest, pytest: where they are not installed, the reader works."""
    needing = {
        name: {str(path.relative_to(PACKAGE)) for path in MODULES if name in {one.split(".")[0] for one in imported(path)}}
        for name in ("torch", "pytest")
    }
    assert needing == {
        "torch": {
            f"recording/{name}.py"
            for name in ("found_step", "handler", "job_command", "recorded", "slow_steps", "step_recorder", "tried_program")
        },
        "pytest": {"recording/pytest_plugin.py", "recording/tried_program.py"},
    }


def test_no_module_shares_its_name_with_another():
    """A module's name says what is in it, without its folder."""
    names = [path.stem for path in MODULES if path.name != "__init__.py"]
    assert {name for name in names if names.count(name) > 1} == set()


def test_no_function_is_long():
    """Counted without its docstring: what takes more is several things."""
    long = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = node.end_lineno - body[0].lineno + 1 if body else 0
                long += [f"{path.name}: {node.name}, {lines} lines"] * (lines > LONGEST)
    assert long == []


def test_what_is_exported_is_there_and_listed():
    for name in trace_reader.__all__:
        assert getattr(trace_reader, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        trace_reader.nothing  # noqa: B018
    # What type checkers see is what the program finds.
    block = (PACKAGE / "__init__.py").read_text().partition("if TYPE_CHECKING:")[2].partition("__version__")[0]
    seen = {alias.name for node in ast.walk(ast.parse(textwrap.dedent(block))) for alias in getattr(node, "names", ())}
    assert seen == set(trace_reader.__all__)
