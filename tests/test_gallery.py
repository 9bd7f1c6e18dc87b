"""The gallery: every figure's command parses and has its recording, the documents say what the recordings say."""

import importlib
import json
import re

from conftest import LESSONS
from gallery import docs
from gallery.figures import GALLERY, MACHINE, NUMBERS, ROOT, figures, recording
import pytest

FIGURES = figures()
RECORDED = sorted(GALLERY.glob("*/*.json"))
each = pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f"{f.post}-{f.figure}-{f.script}")


@each
def test_the_command_parses_and_its_recording_is_there(figure):
    args = importlib.import_module(figure.script).parse_args(figure.flags)
    for suffix in (".json", ".txt", ".png"):
        path = GALLERY / figure.script / f"{args.tag}{suffix}"
        assert path.stat().st_size > 1000 and path.stat().st_size < 2_000_000


@each
def test_the_reader_finds_what_the_figure_shows(figure):
    _, facts = recording(figure.trace)
    assert set(figure.findings) <= {finding.slug for finding in facts.findings}
    assert facts.device == "NVIDIA H200" and facts.lesson["script"] == figure.script


@each
def test_the_texts_are_complete(figure):
    assert figure.guess.endswith("?") and figure.look and figure.numbers and figure.findings
    named = re.findall(r"\{(\w+)\}", figure.differs + figure.answer)
    assert set(named) | set(figure.numbers) <= set(NUMBERS)


def test_every_number_is_used():
    used = {name for f in FIGURES for name in (*f.numbers, *re.findall(r"\{(\w+)\}", f.differs + f.answer))}
    assert used == set(NUMBERS)


def test_every_lesson_and_every_post_has_figures_and_nothing_else_is_recorded():
    assert {f"{f.script}.py" for f in FIGURES} == set(LESSONS)
    assert {f.post for f in FIGURES} == {1, 2, 3, 4}
    assert {f.trace for f in FIGURES} == set(RECORDED)
    assert sum(path.stat().st_size for path in GALLERY.rglob("*")) < 10_000_000


def test_the_documents_are_fresh():
    """After a new recording or a change of figures.toml: uv run gallery/docs.py, and look at the difference."""
    assert docs.FIGURES.read_text() == docs.figures_md()
    assert docs.LESSONS.read_text() == docs.lessons_md()


def test_the_exercises_are_about_25_and_fold_their_answers_away():
    text = docs.lessons_md()
    numbers = re.findall(r"^### (\d+)\. ", text, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)] and 22 <= len(numbers) <= 30
    assert text.count("<details><summary>Answer</summary>") == text.count("</details>") == len(numbers)


def test_links_and_pictures_of_the_documents_are_there():
    for document in (docs.FIGURES, docs.LESSONS):
        for target in re.findall(r"\]\(\.\./([^)]+)\)", document.read_text()):
            assert (ROOT / target).is_file(), target


def test_the_machine_is_described_without_its_name():
    machine = json.loads(MACHINE.read_text())
    assert {"device", "driver", "torch", "CUDA", "CUPTI", "date", "kernels"} == set(machine)
    for path in RECORDED:
        text = path.read_text()
        assert not re.search(r'"/|[" ]/(?:home|root|tmp|usr|opt|work)/|torchinductor_', text)
