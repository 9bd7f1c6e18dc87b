"""The fixtures and hooks of reader_helpers/fixtures.py."""

from reader_helpers.fixtures import *  # noqa: F403  # pytest finds fixtures by their names here
