"""What the reader says of every recording of the repository, words and numbers, is what it was: see tests/helpers/accept.py."""

from helpers import ROOT, accept
import pytest

GROUPS, SEEDS = accept.groups(), accept.seeds()
AGAIN = "after a change that is meant: uv run tests/helpers/accept.py shows it, --accept keeps it"


@pytest.fixture(scope="module")
def kept():
    return accept.Answer(accept.kept_words(), accept.kept_numbers())


def _check(kept, today):
    assert {name: kept.words.get(name) for name in today.words} == today.words, AGAIN
    assert {key: kept.numbers.get(key) for key in today.numbers} == today.numbers, AGAIN


def test_every_recording_has_its_answers_and_no_answer_is_of_none(kept):
    forms = {(name, form) for name, group in GROUPS.items() for form in group.numbers}
    assert set(kept.numbers) == forms | {("perturbed", str(seed)) for seed in SEEDS}
    assert set(kept.words) == {name for group in GROUPS.values() for name in accept.files_of(group)}
    assert len(kept.words) > 100 and len(SEEDS) > 150


@pytest.mark.parametrize("name", [name for name, group in GROUPS.items() if len(group.paths) == 1])
def test_the_report_of_a_recording_is_what_it_was(monkeypatch, kept, name):
    monkeypatch.chdir(ROOT)
    _check(kept, accept.short_answer_about(GROUPS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, group in GROUPS.items() if len(group.paths) > 1 or len(group.numbers) > 1])
def test_every_other_answer_is_what_it_was(monkeypatch, kept, name):
    monkeypatch.chdir(ROOT)
    _check(kept, accept.answer_about(GROUPS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_about_a_changed_recording_is_what_it_was(kept, seed):
    _check(kept, accept.answer_about_seed(seed))
