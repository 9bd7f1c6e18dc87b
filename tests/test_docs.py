"""The documents name what there is: every command parses, every lesson and flag is in the README."""

import importlib
import re
import shlex

import pytest
from conftest import LESSONS, ROOT

README = (ROOT / "README.md").read_text()
DOCUMENTS = ["README.md", "traces/README.md", *LESSONS]
COMMANDS = sorted(
    {
        (document, command.strip())
        for document in DOCUMENTS
        for command in re.findall(r"uv run (\d\d_\w+\.py[^`\n&|(;\"]*)", (ROOT / document).read_text())
    }
)


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 25


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_every_command_parses(document, command):
    script, *flags = shlex.split(command)
    importlib.import_module(script.removesuffix(".py")).parse_args([flag for flag in flags if flag != "..."])


def test_the_readme_names_every_lesson():
    assert set(re.findall(r"\d\d_\w+\.py", README)) == set(LESSONS)


def test_the_readme_names_every_shared_flag_and_no_other():
    from test_cli import OWN, SHARED

    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", README))
    foreign = {"--no-delete", "--help", "--in-dim"}  # trace-util's, argparse's, and the other spelling
    assert set(SHARED) <= named
    assert named <= {*SHARED, *foreign, *(flag for flags in OWN.values() for flag in flags)}


def test_every_folder_and_file_that_the_readme_names_is_there():
    for name in ("requirements.txt", "common", "tests", "benchmarks/overhead.py", ".ci/run", "traces/README.md"):
        assert (ROOT / name).exists()


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_says_what_to_guess_and_what_it_writes(lesson):
    doc = importlib.import_module(lesson.removesuffix(".py")).__doc__
    assert "Guess first" in doc and "Then look" in doc and f"Writes traces/{lesson.removesuffix('.py')}/<" in doc
    assert (ROOT / lesson).read_text().count("\n") <= 120
