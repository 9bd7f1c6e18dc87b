"""Writing: all files or none, whole on the disk, an earlier one kept whatever goes wrong, and no temporary file left."""

import ast
from concurrent.futures import ThreadPoolExecutor
import errno
import os
from pathlib import Path
import resource
import signal
import stat
import subprocess
import sys

from helpers import ROOT, TOOL
import pytest
from trace_reader.system import files
from trace_reader.system.files import write_all

WRITE = """
import os, signal, sys
from pathlib import Path
from trace_reader.system.files import write_all
a, b = Path(sys.argv[1], "a.json"), Path(sys.argv[1], "a.txt")
class Contents(dict):
    def items(self):
        yield a, b"new" * 1000
        {between}
        yield b, b"newer" * 1000
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
    assert contents(old) == {"a.json": "new" * 1000, "a.txt": "newer" * 1000}


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_killed_between_the_two_files(old):
    assert write(old, "os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
    assert contents(old) == {"a.json": "old", "a.txt": "old"}


@pytest.mark.parametrize("unnamed", [True, False])
def test_no_room_for_the_second_file(old, unnamed):
    """Both are staged before the first takes its name; also on systems whose files always have one."""
    between = "pass" if unnamed else "del os.O_TMPFILE"
    code = WRITE.format(between="pass").replace("class Contents", f"{between}\nclass Contents")
    done = subprocess.run(
        [sys.executable, "-c", code, old],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
    )
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert contents(old) == {"a.json": "old", "a.txt": "old"}


def test_a_file_system_without_unnamed_files(old, monkeypatch):
    """Some refuse O_TMPFILE when it is used (NFS): what they say is an OSError."""
    opened = os.open

    def refuse(path, flags, *rest, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no files without a name here")
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    write_all({old / "a.json": b"1", old / "a.txt": b"2"})
    assert contents(old) == {"a.json": "1", "a.txt": "2"}


def test_everything_is_on_the_disk_before_the_first_file_takes_its_name(old, monkeypatch):
    """The order of the system's calls: what is synced is the data, and then the folder with the names."""
    order = []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        info = os.fstat(handle)
        order.append("folder" if stat.S_ISDIR(info.st_mode) else f"{info.st_size} bytes")
        fsync(handle)

    def named(source, target):
        order.append(f"name {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    write_all({old / "a.json": b"1", old / "a.txt": b"22"})
    assert order == ["1 bytes", "2 bytes", "name a.json", "name a.txt", "folder"]


def test_two_writers_at_once_leave_one_of_the_two_whole(tmp_path):
    target = tmp_path / "a.json"
    wanted = {bytes([n]) * 100_000 for n in range(65, 69)}

    def write_often(data):
        for _ in range(20):
            write_all({target: data})

    with ThreadPoolExecutor(len(wanted)) as pool:
        for writer in [pool.submit(write_often, data) for data in wanted]:
            writer.result()  # none was disturbed by another
    assert target.read_bytes() in wanted and list(tmp_path.iterdir()) == [target]


def test_a_new_file_can_be_read_by_all_that_the_umask_lets(tmp_path):
    before = os.umask(0o022)
    try:
        write_all({tmp_path / "a": b"x"})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_all({tmp_path / "link": b"new"})
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    write_all({Path(os.devnull): b"x"})
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(IsADirectoryError):
        write_all({tmp_path: b"x"})


def test_names_of_any_length(tmp_path):
    target = tmp_path / ("x" * 255)
    write_all({target: b"1"})
    assert target.read_bytes() == b"1"


def test_nothing_else_writes_files():
    """One function does it in each package: no other place calls what writes a file under its own name."""
    here, lessons = Path(files.__file__), ROOT / "common" / "watch" / "whole_files.py"
    sources = [*ROOT.glob("*.py"), *(p for folder in ("common", "gallery", "benchmarks") for p in (ROOT / folder).rglob("*.py"))]
    sources += [p for folder in ("trace_reader", "benchmarks") for p in (TOOL / folder).rglob("*.py")]
    sources.remove(TOOL / "benchmarks" / "growth.py")  # its traces are written into pytest's folder
    writing = ("write_text(", "write_bytes(", '"wb"', '"w")', "savefig(str", "json.dump(")
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources
        if path not in (here, lessons)
        for line in path.read_text().splitlines()
        if any(call in line for call in writing)
    }
    streams = 'for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):'
    assert found == {
        'common/watch/progress.py: self._terminal = os.fdopen(os.dup(2), "w")  # stderr is redirected while a lesson runs',
        f"common/watch/streams.py: {streams}",
        f"read-trace/trace_reader/system/terminal.py: {streams}",
        # Inputs of a measurement, in a temporary folder, and a script that shows what it is to record without the suite.
        'read-trace/benchmarks/read_speed.py: with open(target, "w") as file:',
        'read-trace/benchmarks/read_speed.py: with open(large, "rb") as plain, gzip.open(f"{large}.gz", "wb", 6) as zipped:',
        'read-trace/benchmarks/read_ranks.py: (folder / f"job_rank{rank}.json.gz")'
        ".write_bytes(gzip.compress(json.dumps(trace).encode(), 1, mtime=0))",
        'benchmarks/bare_matmul_add.py: (folder / "trace.txt").write_text'
        "(profiler.key_averages().table(sort_by=sort_by, row_limit=15))",
    }


@pytest.mark.parametrize(
    ("ours", "lessons"),
    [("files.py", "whole_files.py"), ("interrupts.py", "interrupts.py"), ("terminal.py", "streams.py")],
)
def test_what_stands_in_both_packages_is_the_same(ours, lessons):
    """The lessons record where the tool is not installed, so they have a copy of these functions: to the letter."""

    def functions(path):
        tree = ast.parse(path.read_text())
        return {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}

    here = functions(Path(files.__file__).parent / ours)
    there = functions(ROOT / "common" / "watch" / lessons)
    assert there and {name: here.get(name) for name in there} == there
