"""What the reader's tests share: where things are, and what a browser shows."""

import contextlib
import os
from pathlib import Path
import random
import socket
from typing import Any

TOOL = Path(__file__).resolve().parents[2]  # the package
DATA = TOOL / "tests" / "data"
FAULTS = DATA / "faults"
# Copies of recordings of the tutorial's gallery, byte for byte, so that these tests run where the package is alone.
RECORDINGS = DATA / "gallery"
GALLERY = RECORDINGS / "h200"


def fuzz_seed() -> int:
    """Return what test_fuzz.py begins with: FUZZ_SEED, or always the same number: a change is judged by itself."""
    return int(os.environ.get("FUZZ_SEED") or 20261123)


def free_port() -> int:
    """Return a port of this machine that nobody listens on, below those that the system itself gives to the tests beside this
    one.
    """
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000))) as server:
            return server.getsockname()[1]


def keep_screen(page: Any, name: str) -> None:
    """A picture of what the page shows, in the folder that SCREENSHOTS names, if it does: CI keeps it."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")
