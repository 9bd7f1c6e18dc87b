"""Where a trace's bytes come from: plain and zipped files, in parts and in a row, pipes, and files that are something else."""

from collections.abc import Generator
import gzip
import json
import os
import random
import re
import sqlite3
import sys
import tarfile
import threading
import zipfile
import zlib

import pytest
from reader_helpers import GALLERY
from reader_helpers.events import document, kernel, launch, op, step
from trace_reader import MissingExtraError, NotATraceError, TraceError, cli, load, read
from trace_reader.parse import decode as decode_module
from trace_reader.parse.byte_source import BLOCK_BYTES, list_folder, open_blocks, read_bytes, size_of
from trace_reader.parse.decode import decode_bytes

EVENTS = [step(0, 0, 100), op("aten::mm", 10, 20), launch(12, 1), kernel("a", 30, 5, 1), op("aten::add", 50, 9)]
TEXT = json.dumps(document(*EVENTS)).encode()
_PICK = random.Random(1)
MANY = json.dumps(document(*(op(f"op{n}", n, 1, q=f"{_PICK.getrandbits(128):x}") for n in range(60_000)))).encode()


def names(path):
    return [row.name for row in load(str(path)).ops]


@pytest.fixture
def file(tmp_path):
    def write(data, name="t.json"):
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return write


def zipped_more_than_a_block():
    zipped = gzip.compress(MANY, 1)
    assert len(zipped) > BLOCK_BYTES  # so that a thread unzips it
    return zipped


def test_a_large_gzip_file_is_unzipped_ahead(file):
    assert read_bytes(file(zipped_more_than_a_block())).data == MANY
    assert len(names(file(zipped_more_than_a_block()))) == 60_000


@pytest.mark.parametrize("parts", [2, 5])
def test_gzip_files_in_a_row_are_one(file, parts):
    size = len(TEXT) // parts + 1
    assert read(file(b"".join(gzip.compress(TEXT[n * size : (n + 1) * size]) for n in range(parts)))).kernels_total == 1
    ones = [
        bytes([65 + n]) * size for n, size in enumerate((5_000_000, 70_000, 90))
    ]  # more than is unzipped at once, then little
    assert read_bytes(file(b"".join(map(gzip.compress, ones)))).data == b"".join(ones)
    half = len(MANY) // 2
    assert read_bytes(file(gzip.compress(MANY[:half], 1) + gzip.compress(MANY[half:], 1))).data == MANY


@pytest.mark.parametrize("padding", [b"\x00" * 100, b"\x00", b"\x1f"])
def test_padding_behind_a_gzip_file(file, padding):
    found = read_bytes(file(gzip.compress(TEXT) + padding))
    assert (found.data, found.damage) == (TEXT, "")


@pytest.mark.parametrize("data", [gzip.compress(b""), gzip.compress(TEXT)[:10], b"\x1f\x8b"], ids=["empty", "header", "magic"])
def test_a_gzip_file_with_nothing_in_it(tmp_path, data):
    (tmp_path / "t.json.gz").write_bytes(data)
    with pytest.raises(NotATraceError, match=r"t.json.gz: a gzip file with nothing in it: it is empty or cut off$"):
        load(str(tmp_path / "t.json.gz"))


def test_a_large_gzip_file_that_is_damaged_is_read_up_to_there(file):
    zipped = bytearray(gzip.compress(MANY, 0))  # stored in blocks of 64 KiB: the next one's head is hit
    zipped[3_000_000:3_070_000] = b"\xff" * 70_000
    found = read_bytes(file(bytes(zipped)))
    place = int(re.fullmatch(r"the gzip file is damaged at byte (\d+) \(.+\)", found.damage)[1])
    assert 3_000_000 <= place < 3_070_000
    assert 2_900_000 < len(found.data) < 3_070_000 and MANY.startswith(found.data[:2_999_000])
    facts = read(file(bytes(zipped)))
    assert facts.truncated and facts.first_bad.startswith(found.damage)
    assert len({f"op{n}" for n in range(20_000)} - {op.name for op in facts.ops}) == 0 and len(facts.ops) < 60_000


def test_damage_that_hides_the_list_of_events_is_said(file):
    """One byte: the key reads otherwise, and the checksum knows it."""
    data = bytearray(gzip.compress(TEXT, 0))  # as it is, so that a byte changed is a letter changed
    data[data.index(b"traceEvents")] ^= 1
    with pytest.raises(NotATraceError, match="no list traceEvents in it; the gzip file's checksum is wrong: "):
        read(file(bytes(data), "t.json.gz"))


def test_damage_that_hides_all_gpu_events_leaves_no_verdict(file):
    data = bytearray(gzip.compress(TEXT, 0))
    data[data.index(b'"kernel"') + 1] ^= 1
    facts = read(file(bytes(data), "t.json.gz"))
    assert (facts.kernels_total, facts.verdict) == (0, "unknown")
    unknown = "what 1 event of a kind of device that this reader does not know would say"  # of a category that is damaged
    assert facts.missing == ("the damaged parts of the file", unknown)


def test_a_damaged_start_is_an_error(file):
    with pytest.raises(NotATraceError, match=r"t\.json: a damaged gzip file: "):
        read(file(b"\x1f\x8b\x08\x00" + b"\xff" * 50))


def test_an_error_in_the_thread_reaches_who_takes_the_blocks(file):
    zipped = zipped_more_than_a_block()
    before = threading.active_count()
    with pytest.raises(NotATraceError, match="a damaged gzip file"):
        read(file(zipped[:10] + b"\xff" * len(zipped)))
    assert threading.active_count() == before


def test_who_stops_early_stops_the_thread(file):
    before = set(threading.enumerate())  # another test's library may have left one
    with open_blocks(file(zipped_more_than_a_block())) as blocks:
        iterator = iter(blocks)
        assert isinstance(iterator, Generator)
        next(iterator)
        one = set(threading.enumerate()) - before
        iterator.close()
    assert len(one) == 1
    for thread in one:
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize("zip_it", [False, True])
def test_a_named_pipe(tmp_path, zip_it):
    """As `read_trace.py <(zcat t.json.gz)` has it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(TEXT) if zip_it else TEXT))
    writer.start()
    try:
        assert read(str(pipe)).kernels_total == 1
    finally:
        writer.join()


def test_progress_is_a_share_of_the_file(file):
    for data in (MANY, zipped_more_than_a_block()):
        shares: list[float] = []
        load(file(data), shares.append)
        assert len(shares) > 1 and shares == sorted(shares) and 0 < shares[0] < 1 and shares[-1] == 1


def test_bytes_that_are_read_already(file):
    path = file(gzip.compress(TEXT)[:-4])
    decoded = decode_bytes(read_bytes(path), path)
    assert (decoded.path, decoded.total, len(decoded.slices)) == (path, 5, 5)
    assert decode_bytes(read_bytes(path), "-").path == "standard input"


def test_any_name_of_file_will_do(file):
    assert read(file(TEXT, "trace")).kernels_total == 1
    assert read(file(gzip.compress(TEXT), "trace.json")).kernels_total == 1
    assert read(file(TEXT, "trace.json.gz")).kernels_total == 1  # not zipped after all


def foreign(tmp_path):
    """(file, what is said of it)"""
    made = zipfile.ZipFile(tmp_path / "artifact", "w")
    made.write(GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json")
    made.close()
    base = sqlite3.connect(tmp_path / "export.sqlite")
    base.execute("create table kernels (name)")
    base.commit()
    base.close()
    zip_words = "a zip file; unzip it and name the .json or .json.gz in it"
    (tmp_path / "t.zip").write_bytes((tmp_path / "artifact").read_bytes())
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04\x95")
    (tmp_path / "snapshot").write_bytes(b"\x80\x04\x95")
    (tmp_path / "t.pftrace").write_bytes(b"\x0a\x10perfetto")
    (tmp_path / "report.nsys-rep").write_bytes(b"NVIDIA")
    (tmp_path / "report.ncu-rep").write_bytes(b"NVR\x00")
    (tmp_path / "report").write_bytes(b"NVR\x00")
    for name, start in (("xz", b"\xfd7zXZ\x00"), ("zst", b"\x28\xb5\x2f\xfd"), ("bz2", b"BZh91AY")):
        (tmp_path / f"t.json.{name}").write_bytes(start)
    with tarfile.open(tmp_path / "traces.tar", "w") as archive:
        archive.add(GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json", "t.json")
    with tarfile.open(tmp_path / "traces.tar.gz", "w:gz") as archive:
        archive.add(GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json", "t.json")
    (tmp_path / "traces.tgz").write_bytes((tmp_path / "traces.tar.gz").read_bytes())
    (tmp_path / "twice.json.gz").write_bytes(gzip.compress(gzip.compress(TEXT)))
    (tmp_path / "powershell.json").write_text(TEXT.decode(), "utf-16")
    (tmp_path / "stream.qdstrm").write_bytes(b"\x00")
    (tmp_path / "weights.bin").write_bytes(b"\x00\x01")
    pickle = "a pickle; if it is a snapshot of CUDA's memory: read-trace memory FILE"
    nsys = "a report of Nsight Systems; this reads its exports (nsys export --type sqlite), and the traces of torch.profiler"
    ncu = "a report of Nsight Compute; this reads the traces of torch.profiler: open this file with ncu-ui"
    return {
        "artifact": zip_words,
        "t.zip": zip_words,
        "snapshot.pickle": pickle,
        "snapshot": pickle,
        "t.pftrace": "a trace in Perfetto's format, of which no packet can be read",
        "report.nsys-rep": nsys,
        "report.ncu-rep": ncu,
        "report": ncu,
        "export.sqlite": "a SQLite database, but no export of nsys: it has no table of kernels, calls or ranges",
        "t.json.xz": "compressed with xz; unpack it first: xz -d",
        "t.json.zst": "compressed with zstd; unpack it first: zstd -d",
        "t.json.bz2": "compressed with bzip2; unpack it first: bzip2 -d",
        "traces.tar": "a tar archive; unpack it and name the .json or .json.gz in it",
        "traces.tar.gz": "a tar archive; unpack it and name the .json or .json.gz in it",
        "traces.tgz": "a tar archive; unpack it and name the .json or .json.gz in it",
        "twice.json.gz": "zipped twice; unzip it once: gzip -d",
        "powershell.json": "text in UTF-16, as PowerShell's > writes it; save it as UTF-8",
        "stream.qdstrm": nsys,
        "weights.bin": r"not JSON: it starts with b'\x00\x01'",
    }


def test_a_file_that_is_something_else_is_one_line_and_what_to_do(tmp_path, capsys):
    for name, words in foreign(tmp_path).items():
        assert cli.main([str(tmp_path / name)]) == 2
        assert capsys.readouterr() == ("", f"error: {tmp_path / name}: {words}\n")


def test_a_folder(tmp_path, capsys):
    def said(path):
        assert cli.main([path, "--by", "layer"]) == 2
        return capsys.readouterr().err.removeprefix(f"error: {path}: a folder; ").removesuffix("\n")

    folder = tmp_path / "runs"
    folder.mkdir()
    assert said(str(tmp_path)) == "no trace lies in it: no .json, .json.gz, .pftrace or .sqlite"
    (folder / "a.json.gz").touch()
    assert said(f"{folder}/") == f"name the traces in it: {folder}/*.json.gz"
    assert said(str(tmp_path)) == f"name the traces in it: {tmp_path}/*/*.json.gz"
    (folder / "b.json").touch()
    assert said(str(folder)) == f"name the traces in it: {folder}/*.json"


def test_a_file_that_may_not_be_read(file, monkeypatch):
    path = file(TEXT)
    os.chmod(path, 0)
    if os.access(path, os.R_OK):  # root may read anything
        pytest.skip("this user may read every file")
    with pytest.raises(TraceError, match=r"t\.json: Permission denied"):
        read(path)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "runs/a.json", "runs/a.json.gz"])
def test_of_a_folder_the_traces_in_it_are_named(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    pattern = ("*/" if "/" in name else "") + "*" + name[name.index(".") :]
    with pytest.raises(TraceError, match=rf"a folder; name the traces in it: .*/{re.escape(pattern)}$"):
        read(str(tmp_path))


def test_a_place_that_fsspec_knows(capsys):
    """A file and a folder of its memory:, which stands for s3: and others."""
    there = pytest.importorskip("fsspec").filesystem("memory")
    there.pipe({"/runs/a.json": TEXT, "/runs/b.json.gz": gzip.compress(TEXT)})
    assert names("memory://runs/a.json") == names("memory://runs/b.json.gz") == ["aten::mm", "aten::add"]
    assert sorted(list_folder("memory://runs")) == ["memory:///runs/a.json", "memory:///runs/b.json.gz"]
    assert list_folder("memory://runs/a.json") is None
    assert [size_of(f"memory://runs/{name}") for name in ("a.json", "none.json")] == [len(TEXT), 0]
    for path, why in (("memory://runs/none.json", "No such file or directory"), ("nosuch://a", "Protocol not known: nosuch")):
        assert cli.main([path, "--json"]) == 2
        assert capsys.readouterr() == ("", f"error: {path}: {why}\n")


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    words = r"^a path with :// needs fsspec: install read-trace with it, read-trace\[dask\]$"
    for use in (read, list_folder):
        with pytest.raises(MissingExtraError, match=words):
            use("s3://bucket/a.json")


def test_the_files_of_a_folder_and_their_sizes(file, tmp_path):
    path = file(TEXT)
    assert list_folder(f"{tmp_path}/") == [path] and list_folder(path) is None
    assert [size_of(path), size_of(f"{path}x"), size_of("nosuch://a")] == [len(TEXT), 0, 0]
    with pytest.raises(TraceError, match=r"^nosuch://a: Protocol not known: nosuch$"):
        list_folder("nosuch://a")


def bomb(path, head: bytes, unit: bytes, times: int, tail: bytes) -> str:
    """Return a gzip file that holds a thousand times its bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(head), *(packer.compress(unit) for _ in range(times)), packer.compress(tail), packer.flush()]
    path.write_bytes(b"".join(parts))
    return str(path)


SMALL = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2},\n' * 100


@pytest.mark.parametrize(
    ("opening", "unit"),
    [(b'{"ph":"X","cat":"cpu_op","name":"', b"x" * 1_000_000), (b'{"ph":"X","args":{"l":[', b'{"a":1},' * 125_000)],
    ids=["name", "objects"],
)
def test_an_event_without_end_is_given_up(tmp_path, monkeypatch, opening, unit):
    """Many megabytes in one name, or in objects inside one event: what came before is read."""
    monkeypatch.setattr(decode_module, "LARGEST_REST_BYTES", 5_000_000)
    monkeypatch.setattr(decode_module, "LARGEST_EVENT", 1_000_000)
    path = bomb(tmp_path / "t.json.gz", b'{"traceEvents":[' + SMALL + opening, unit, 30, b'"}]}')
    facts = read(path)
    assert (facts.events, facts.missing) == (100, ("the part of the file that is not read",))
    assert re.fullmatch(r"from byte \d+ on nothing is certain: 100 events before it", facts.first_bad)


def test_a_header_without_end_is_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(decode_module, "LARGEST_REST_BYTES", 5_000_000)
    path = bomb(tmp_path / "t.json.gz", b'{"a":"', b"x" * 1_000_000, 30, b'","traceEvents":[' + SMALL + b'{"ph":"X"}]}')
    with pytest.raises(NotATraceError, match=r"no trace: there is no list traceEvents in its first 8\.0 MiB$"):
        read(path)


def test_the_place_of_a_damage_counts_from_the_files_first_byte(file):
    """Of two gzip files in a row, in the second."""
    first, second = gzip.compress(b'{"traceEvents":[\n'), bytearray(gzip.compress(MANY[len(b'{"traceEvents":[') :], 0))
    second[10] = 7  # the head of its first block
    damage = read_bytes(file(first + bytes(second))).damage
    assert damage.startswith(f"the gzip file is damaged at byte {len(first) + 10} (") or str(len(first) + 11) in damage, damage
