"""Writing: both files or neither, and no temporary file left by whatever way it ends."""

import os
import resource
import signal
import subprocess
import sys

from common import artifacts
from conftest import ROOT
import pytest

WRITE = """
import os, signal, sys
from pathlib import Path
from common.artifacts import write_all
a, b = Path(sys.argv[1], "a.json"), Path(sys.argv[1], "a.txt")
class Contents(dict):
    def items(self):
        yield a, b"new" * 1000
        {between}
        yield b, b"new" * 1000
write_all(Contents({{a: b"", b: b""}}))
"""


def write(folder, between, **popen):
    code = WRITE.format(between=between)
    return subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True, **popen)


@pytest.fixture
def old(tmp_path):
    (tmp_path / "a.json").write_text("old")
    (tmp_path / "a.txt").write_text("old")
    return tmp_path


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_replaces_both(old):
    assert write(old, "pass").returncode == 0
    assert contents(old) == {"a.json": "new" * 1000, "a.txt": "new" * 1000}


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_killed_between_the_two_files(old):
    assert write(old, "os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
    assert contents(old) == {"a.json": "old", "a.txt": "old"}


@pytest.mark.parametrize("unnamed", [True, False])
def test_no_room_for_the_second_file(old, unnamed):
    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    between = "" if unnamed else "del os.O_TMPFILE"
    code = (
        WRITE.format(between="pass")
        .replace('yield b, b"new"', 'yield b, b"newer"')
        .replace("class Contents", f"{between}\nclass Contents")
    )
    done = subprocess.run(
        [sys.executable, "-c", code, old], cwd=ROOT, capture_output=True, text=True, preexec_fn=small_files_only
    )
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert contents(old) == {"a.json": "old", "a.txt": "old"}


def test_systems_without_unnamed_files(old, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    artifacts.write_all({old / "a.json": b"1", old / "a.txt": b"2"})
    assert contents(old) == {"a.json": "1", "a.txt": "2"}
