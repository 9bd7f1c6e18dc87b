"""The documents name what there is: every command parses, every lesson and flag is in the README."""

import importlib
import re
import shlex

from conftest import LESSONS, ROOT
import pytest
from record import PART_3

import read_trace

README = (ROOT / "README.md").read_text()
DOCUMENTS = ["README.md", "traces/README.md", "docs/figures.md", "docs/lessons.md", "read_trace.py", "00_doctor.py", *LESSONS]


def commands(script: str) -> list[tuple[str, str]]:
    """(document, command) for each time that a document says `uv run <script> ...`."""
    pattern = rf"uv run ({script}[^`\n&|(;,\"]*)"
    return sorted({(d, c.strip()) for d in DOCUMENTS for c in re.findall(pattern, (ROOT / d).read_text())})


COMMANDS = commands(r"\d\d_\w+\.py")
READING = commands(r"read_trace\.py")


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 25


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_every_command_parses(document, command):
    script, *flags = shlex.split(command)
    importlib.import_module(script.removesuffix(".py")).parse_args([flag for flag in flags if flag != "..."])


@pytest.mark.parametrize(("document", "command"), READING)
def test_every_command_that_reads_a_trace_parses(document, command):
    _, *arguments = shlex.split(re.sub(r" {2,}.*", "", command))
    for path in read_trace.parse_args(arguments).traces:
        if path.startswith(("tests/", "gallery/")):
            assert list(ROOT.glob(path))


def test_the_chain_in_the_readme_is_what_the_command_prints(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert read_trace.main(["tests/data/01_64_cold.json", "--chain"]) == 0
    tree = capsys.readouterr().out.partition("Dispatch of ")[2]
    assert f"Dispatch of {tree}" in README


def test_the_table_in_the_readme_is_what_the_command_prints(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert read_trace.main(sorted(f"tests/data/{name}" for name in PART_3)) == 0
    assert capsys.readouterr().out.partition("\n\n")[0] in README


def test_the_readme_names_every_lesson():
    assert set(re.findall(r"\d\d_\w+\.py", README)) == {"00_doctor.py", *LESSONS}


def test_the_readme_names_every_shared_flag_and_no_other():
    from test_cli import OWN, SHARED

    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", README))
    reading = {"--json", "--md", "--top", "--full", "--chain", "--plot", "--steps", "--us", "--open", "--redact"}
    foreign = {"--no-delete", "--help", "--in-dim"} | reading  # trace-util's, argparse's, and the other spelling
    assert reading <= named
    assert set(SHARED) <= named
    assert named <= {*SHARED, *foreign, *(flag for flags in OWN.values() for flag in flags)}


def test_every_folder_and_file_that_the_readme_names_is_there():
    for name in (
        "requirements.txt",
        "common",
        "tests",
        "benchmarks/overhead.py",
        ".ci/run",
        "traces/README.md",
        "docs/figures.md",
        "docs/lessons.md",
        "gallery/figures.toml",
        "gallery/record.py",
        "gallery/docs.py",
    ):
        assert (ROOT / name).exists()


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_says_what_to_guess_and_what_it_writes(lesson):
    doc = importlib.import_module(lesson.removesuffix(".py")).__doc__
    assert "Guess first" in doc and "Then look" in doc and f"Writes traces/{lesson.removesuffix('.py')}/<" in doc
    assert (ROOT / lesson).read_text().count("\n") <= 120
