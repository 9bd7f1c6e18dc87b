"""Where only the lessons' packages are installed, the tests bring their own: `uv run pytest` needs no other step."""

import importlib.util
import os
import shutil
import sys

import pytest

AGAIN = "PROFILING_TESTS_AGAIN"  # in the environment: this is the second try


def pytest_addoption(pluginmanager):
    """Called before pytest looks at -n, which is one of those packages'."""
    if importlib.util.find_spec("xdist") is not None or not shutil.which("uv"):
        return
    if AGAIN in os.environ:
        raise pytest.UsageError("uv installs nothing here (UV_NO_SYNC): uv pip install --group dev")
    if (capturing := pluginmanager.getplugin("capturemanager")) is not None:
        capturing.stop_global_capturing()
    print("installing what the tests need (uv's group dev)", file=sys.stderr, flush=True)
    os.environ[AGAIN], python = "1", f"{sys.version_info.major}.{sys.version_info.minor}"
    os.execvp("uv", ["uv", "run", "--python", python, "--group", "dev", "pytest", *sys.argv[1:]])
