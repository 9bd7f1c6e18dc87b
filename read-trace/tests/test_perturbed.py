"""What is answered of recordings that were changed by a seed is what it was: see tests/helpers/perturbed.py."""

from helpers.answers import hashed
from helpers.perturbed import answer_of, kept
import pytest

SEEDS = kept()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_about_a_changed_recording_is_what_it_was(seed):
    assert hashed(answer_of(seed)) == SEEDS[seed], "if it is meant: uv run tests/helpers/perturbed.py --keep"
