"""The fixtures and hooks of tests/helpers/fixtures.py."""

from helpers.fixtures import *  # noqa: F403  # pytest finds fixtures by their names here
