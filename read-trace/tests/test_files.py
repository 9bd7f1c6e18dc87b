"""Writing: all files or none, whole on the disk, an earlier one kept whatever goes wrong, and no temporary file left."""

from concurrent.futures import ThreadPoolExecutor
import errno
import os
from pathlib import Path
import resource
import signal
import stat
import subprocess
import sys

import pytest
from reader_helpers import TOOL
from reader_helpers.events import GEMM, kernel, launch, op, step, write
from trace_reader import cli
from trace_reader.errors import NotWrittenError
from trace_reader.system import files
from trace_reader.system.files import protected, write_all, write_file

EVENTS = (step(0, 0, 40), op("aten::mm", 2, 9), launch(3, 1), kernel(GEMM, 9, 90, 1))
READ = (sys.executable, "-m", "trace_reader")

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


def write_in_process(folder, between, **popen):
    code = WRITE.format(between=between)
    return subprocess.run([sys.executable, "-c", code, folder], cwd=TOOL, capture_output=True, text=True, **popen)


@pytest.fixture
def old(tmp_path):
    (tmp_path / "a.json").write_text("old")
    (tmp_path / "a.txt").write_text("old")
    return tmp_path


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_replaces_both(old):
    assert write_in_process(old, "pass").returncode == 0
    assert contents(old) == {"a.json": "new" * 1000, "a.txt": "newer" * 1000}


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_killed_between_the_two_files(old):
    assert write_in_process(old, "os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
    assert contents(old) == {"a.json": "old", "a.txt": "old"}


@pytest.mark.parametrize("unnamed", [True, False])
def test_no_room_for_the_second_file(old, unnamed):
    """Both are staged before the first takes its name; also on systems whose files always have one."""
    between = "pass" if unnamed else "del os.O_TMPFILE"
    code = WRITE.format(between="pass").replace("class Contents", f"{between}\nclass Contents")
    done = subprocess.run(
        [sys.executable, "-c", code, old],
        cwd=TOOL,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # which would be cut off, too
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
    """One function does it: no other place calls what writes a file under its own name."""
    sources = [path for folder in ("trace_reader", "benchmarks") for path in (TOOL / folder).rglob("*.py")]
    sources.remove(TOOL / "benchmarks" / "growth.py")  # its traces are written into pytest's folder
    sources.remove(TOOL / "benchmarks" / "gate" / "gate.py")  # a repository of its own, in a temporary folder
    writing = ("write_text(", "write_bytes(", '"wb"', '"w")', "savefig(str", "json.dump(")
    found = {
        f"{path.relative_to(TOOL)}: {line.strip()}"
        for path in sources
        if path != Path(files.__file__)
        for line in path.read_text().splitlines()
        if any(call in line for call in writing)
    }
    assert found == {
        'trace_reader/system/terminal.py: for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), '
        '("stderr", "w"))):',
        # A trace of any size, which takes its name when it is whole.
        'trace_reader/recording/handler.py: with exported.open("rb") as source, open_(whole, "wb") as target:',
        # Inputs of a measurement, in a temporary folder.
        'benchmarks/read_speed.py: with open(target, "w") as file:',
        'benchmarks/read_speed.py: with open(large, "rb") as plain, gzip.open(f"{large}.gz", "wb", 6) as zipped:',
        'benchmarks/read_ranks.py: (folder / f"job_rank{rank}.json.gz")'
        ".write_bytes(gzip.compress(json.dumps(trace).encode(), 1, mtime=0))",
    }


@pytest.fixture
def one(tmp_path):
    """A trace, and its other names."""
    path = Path(write(tmp_path / "own.json", *EVENTS))
    (tmp_path / "soft.json").symlink_to(path)
    (tmp_path / "hard.json").hardlink_to(path)
    return path


@pytest.mark.parametrize("flag", ["--folded", "--merge", "--redact"])
@pytest.mark.parametrize("name", ["own.json", "soft.json", "hard.json", "sub/../own.json"])
def test_nothing_is_written_onto_what_is_read(one, capsys, flag, name):
    (one.parent / "sub").mkdir()
    whole, target = one.read_bytes(), f"{one.parent}/{name}"
    assert cli.main([str(one), flag, target]) == 1
    said = str(Path(target)) if flag == "--merge" else target
    assert capsys.readouterr() == ("", f"error: {said}: it is {one}, which is read here: name another file\n")
    assert one.read_bytes() == whole


def test_nothing_is_written_onto_the_trace_that_names_a_graph(one, capsys):
    other = write(one.parent / "graph.json", *EVENTS)
    with pytest.raises(SystemExit):
        cli.main([other, "--names", str(one), "--folded", str(one)])
    assert "are two commands" in capsys.readouterr().err


def test_a_report_is_not_appended_to_its_own_trace(one):
    whole = one.read_bytes()
    with one.open("ab") as file:
        done = subprocess.run([*READ, str(one), "--json"], stdout=file, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1, f"error: standard output: it is {one}, which is read here: name another file\n",
    )  # fmt: skip
    assert one.read_bytes() == whole


def test_a_trace_in_a_folder_that_is_read_is_not_replaced(tmp_path, capsys):
    for rank in range(2):
        write(tmp_path / f"a_rank{rank}.json", *EVENTS)
    target = tmp_path / "a_rank1.json"
    whole = target.read_bytes()
    assert cli.main([str(tmp_path), "--merge", str(target)]) == 1
    assert "which is read here" in capsys.readouterr().err and target.read_bytes() == whole


def test_a_file_that_is_read_is_refused_when_it_is_written(one):
    """Whatever name the answer goes by, and whoever asks."""
    whole = one.read_bytes()
    with protected([str(one)]), pytest.raises(NotWrittenError, match=r"hard\.json: it is .*own\.json, which is read here"):
        write_file(one.with_name("hard.json"), b"new")
    assert one.read_bytes() == whole


def test_what_was_read_before_may_be_written(one, capsys):
    """A library's caller reads, and then writes what it likes."""
    assert cli.main([str(one)]) == 0
    write_file(one, b"new")
    assert one.read_bytes() == b"new"


def test_a_full_disk_is_said_where_output_is_not_buffered(one, tmp_path):
    """A write of a part is no error of the system: the rest is written next, and that fails."""
    limit = 1000  # bytes of any file

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [*READ, str(one), "--json"], stdout=(tmp_path / "out.json").open("wb"), stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=small_files,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "error: cannot write to standard output: File too large\n")
    assert (tmp_path / "out.json").stat().st_size == limit


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path, capsys):
    write(tmp_path / "a.json", *EVENTS)
    os.mkfifo(tmp_path / "b.json")
    assert cli.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/a.json\n")


def test_a_merged_file_among_the_ranks_is_left_out(tmp_path, capsys):
    for rank in range(2):
        write(tmp_path / f"a_rank{rank}.json", *EVENTS)
    merged = tmp_path / "all.json.gz"
    assert cli.main([str(tmp_path), "--merge", str(merged)]) == 0
    capsys.readouterr()
    assert cli.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 ranks of one job: ")
    assert err == f"note: {merged}: made of ranks by --merge, and left out; name it to read it\n"
    assert cli.main([str(merged)]) == 0
    assert "ranks: 0, 1, merged" in capsys.readouterr().out
    (tmp_path / "merged").mkdir()  # a folder of such files alone is what they are
    for name in "ab":
        (tmp_path / "merged" / f"{name}.json.gz").write_bytes(merged.read_bytes())
    assert cli.main([str(tmp_path / "merged")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("A: ") and "\nB: " in out and err == ""


def test_an_empty_name_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([""])
    assert ended.value.code == 2 and "expected the name of a file, got ''" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["reference://x", "hdfs://x/y", "nothing://x"])
def test_a_file_system_that_is_not_there_is_one_line(capsys, address):
    pytest.importorskip("fsspec")
    assert cli.main([address]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error: {address}: ") and err.count("\n") == 1
