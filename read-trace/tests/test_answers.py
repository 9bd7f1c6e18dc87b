"""What is answered of every recording of the repository, in every form, is what it was: see tests/helpers/answers.py."""

from helpers import ROOT
from helpers.answers import KEPT, answer, groups, hashed, kept
import pytest

QUICK = ("--all", "--json")  # of each recording alone; all else takes a minute
RECORDINGS = groups()
AGAIN = "after a change that is meant: uv run tests/helpers/answers.py --against HEAD shows the lines, --keep keeps them"


def _changed(name, forms):
    paths, _ = RECORDINGS[name]
    return [form for form in forms if hashed(answer(paths, form)) != kept()[name][form]]


def test_every_recording_has_its_answers():
    assert {name: list(forms) for name, (_, forms) in RECORDINGS.items()} == {name: list(own) for name, own in kept().items()}
    assert len(KEPT.read_text().splitlines()) > 1000


@pytest.mark.parametrize("name", [name for name, (paths, _) in RECORDINGS.items() if len(paths) == 1])
def test_the_report_of_a_recording_is_what_it_was(monkeypatch, name):
    monkeypatch.chdir(ROOT)
    assert not _changed(name, QUICK), AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_other_answer_is_what_it_was(monkeypatch, name):
    monkeypatch.chdir(ROOT)
    assert not _changed(name, [form for form in RECORDINGS[name][1] if form not in QUICK or len(RECORDINGS[name][0]) > 1]), AGAIN
