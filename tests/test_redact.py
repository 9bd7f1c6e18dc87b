"""--redact: what a shared trace must not tell is gone, all else is the same byte for byte."""

import read_trace
from reader import read
from reader.redact import redact

import getpass
import gzip
import json
import socket

import pytest
from events import document, op, step
from record import DATA


def test_paths_hosts_and_users_go_and_the_rest_stays(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box.lab.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "carol")
    events = [
        step(2, 0, 100),
        op("aten::mm", 1, 5),
        op("/home/alice/my project/train.py(12): main", 2, 50),
        op("torch/nn/modules/module.py(1773): _call_impl", 3, 40),
        op("triton_poi_fused_mul_0", 4, 5, kernel_file="/tmp/torchinductor_bob/rp/abc.py", note="ran by carol on gpu-box"),
        op("load", 5, 1, path="C:\\Users\\dave\\data set\\x.bin", url="https://huggingface.co/a/b", half="1/2"),
    ]
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text(json.dumps(document(*events, hostname="gpu-box.lab.example", traceName="/scratch/alice/run 7/t.json")))
    assert read_trace.main([str(source), "--redact", str(target)]) == 0
    assert capsys.readouterr().out == f"wrote {target}; taken out: file paths: 4, host names: 2, user names: 1\n"
    text = target.read_text()
    for secret in ("alice", "bob", "carol", "dave", "gpu-box", "lab.example", "/home", "scratch", "project", "Users"):
        assert secret not in text
    data = json.loads(text)
    assert [e["name"] for e in data["traceEvents"]] == [
        "ProfilerStep#2",
        "aten::mm",
        "train.py(12): main",
        "torch/nn/modules/module.py(1773): _call_impl",
        "triton_poi_fused_mul_0",
        "load",
    ]
    assert data["traceEvents"][4]["args"] == {"kernel_file": "abc.py", "note": "ran by user on host"}
    assert data["traceEvents"][5]["args"] == {"path": "x.bin", "url": "https://huggingface.co/a/b", "half": "1/2"}
    assert data["hostname"] == "host" and data["traceName"] == "t.json"


def test_words_that_traces_are_made_of_are_no_names(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "kernel")
    monkeypatch.setattr(getpass, "getuser", lambda: "python")
    data = b'{"cat": "kernel", "name": "python_function"}'
    assert redact(data) == (data, {"file paths": 0, "host names": 0, "user names": 0})


@pytest.mark.parametrize("name", ["01_64_cold", "04_c_math", "03_compile"])
def test_a_redacted_recording_reads_the_same(name, tmp_path):
    source = DATA / f"{name}.json"
    assert read_trace.main([str(source), "--redact", str(tmp_path / "b.json.gz")]) == 0
    (tmp_path / f"{name}.json").write_bytes(gzip.decompress((tmp_path / "b.json.gz").read_bytes()))
    before, after = read(str(source)), read(str(tmp_path / f"{name}.json"))
    assert (before.kernels, before.steps, before.findings) == (after.kernels, after.steps, after.findings)


def test_the_trace_itself_is_not_overwritten(tmp_path, capsys):
    source = tmp_path / "a.json"
    source.write_bytes((DATA / "02.json").read_bytes())
    assert read_trace.main([str(source), "--redact", str(source)]) == 2
    assert capsys.readouterr().err == f"error: {source}: is the trace itself; name another file for the copy\n"
    assert source.read_bytes() == (DATA / "02.json").read_bytes()


def test_what_is_no_trace_is_not_copied(tmp_path, capsys):
    (tmp_path / "a.json").write_text("{}")
    assert read_trace.main([str(tmp_path / "a.json"), "--redact", str(tmp_path / "b.json")]) == 2
    assert "no trace" in capsys.readouterr().err and not (tmp_path / "b.json").exists()
