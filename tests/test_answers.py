"""What the reader says of every recording of the repository, words and numbers, is what it was: see tests/helpers/accept.py."""

import re

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


OF_ONE = [pytest.param(name, marks=() if name in accept.IN_EVERY_FORM else pytest.mark.slow)
          for name, group in GROUPS.items() if len(group.paths) == 1]  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE)
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


def test_no_screen_says_two_things_that_cannot_both_be():
    """Of all reports of one recording: an unknown step has no share, and an unknown verdict no promise."""
    reports = {name: " ".join(text.split()) for name, text in accept.kept_words().items() if ".forms" not in name}
    assert len(reports) > 90
    for name, said in reports.items():
        if "what a step takes without the profiler is not known" in said:
            assert "of a step without the profiler." not in said, name
        if "Verdict unknown: " in said:
            assert re.search(r"saves (?:up to )?\d", said) is None, name
        assert "no step in the trace" not in said or "steps: none" in said, name
