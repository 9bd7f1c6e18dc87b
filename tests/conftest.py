"""The fixtures and hooks of tests/helpers/fixtures.py."""

import os

# No test depends on what its user keeps of this machine; programs that a test runs inherit it.
os.environ["READ_TRACE_CACHE"] = os.devnull

# Two workers on two cores: two threads each stand in each other's way (an exercise took 129 s instead of 32).
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from helpers.fixtures import *  # noqa: F403  # pytest finds fixtures by their names here
