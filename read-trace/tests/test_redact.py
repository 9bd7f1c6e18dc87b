"""--redact: what a shared trace must not tell is gone, all else is the same byte for byte."""

import getpass
import gzip
import json
import os
import socket
import subprocess
import sys
import time

from helpers import GALLERY, ROOT
from helpers.events import document, op, step
import pytest
from trace_reader import read
from trace_reader.commands import redact as module
from trace_reader.commands.redact import redact

import read_trace


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine of a known name with a user of a known name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box.lab.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "carol")


def redacted(*events, **header):
    """The redacted trace, as text and as JSON."""
    text = redact(json.dumps(document(*events, **header)).encode()).data.decode()
    return text, json.loads(text)


def names(data):
    return [event["name"] for event in data["traceEvents"]]


def test_paths_hosts_and_users_go_and_the_rest_stays(tmp_path, capsys):
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
    assert capsys.readouterr().out == (
        f"wrote {target}; taken out: file paths: 4, host names: 2, user names: 1, arguments and environments: 0\n"
    )
    text = target.read_text()
    for secret in ("alice", "bob", "carol", "dave", "gpu-box", "lab.example", "/home", "scratch", "project", "Users"):
        assert secret not in text
    data = json.loads(text)
    assert names(data) == [
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


@pytest.mark.parametrize(
    "name",
    ["tb/vm_27461.1763700000123456789.pt.trace.json", "vm_27461.1763700000123456789.pt.trace.json.gz", "logs/deep/vm_2.pt"],
)
def test_what_tensorboard_trace_handler_writes(name, monkeypatch):
    """Its files are called <host>_<process>.<time>: the host stands next to `_`, after a relative path."""
    monkeypatch.setattr(socket, "gethostname", lambda: "vm")
    _, data = redacted(step(2, 0, 9), op("aten::vmap", 1, 2), op("llvm::call", 2, 2), traceName=name)
    assert data["traceName"] == name.rpartition("/")[2].replace("vm_", "host_")
    assert names(data)[1:] == ["aten::vmap", "llvm::call"]


def test_another_machines_trace_names_its_host_in_its_file_name():
    text, data = redacted(op("on node17x", 0, 1), traceName="node17x_311.1763700000123456789.pt.trace.json", node17x_gpus=8)
    assert "node17x" not in text
    assert data["host_gpus"] == 8 and names(data) == ["on host"]  # in keys, too


def test_a_name_like_vllms_keeps_its_ranks():
    _, data = redacted(
        op("x", 0, 1), traceName="/scratch/vllm_profile/dp0_pp0_tp0_dcp0_ep0_rank0.1763700000123456789.pt.trace.json.gz"
    )
    assert data["traceName"] == "dp0_pp0_tp0_dcp0_ep0_rank0.1763700000123456789.pt.trace.json.gz"


def test_hosts_next_to_dots_digits_and_underscores_and_not_inside_words(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "ada")
    _, data = redacted(
        op("ada_7", 0, 1), op("rank0.ada", 1, 1), op("9ada", 2, 1), op("Ada", 3, 1), op("adam", 4, 1), op("Canada", 5, 1)
    )
    assert names(data) == ["host_7", "rank0.host", "9host", "host", "adam", "Canada"]


def test_a_special_name_goes_inside_longer_words_too():
    _, data = redacted(op("ongpu-boxes", 0, 1), op("GPU-BOX", 1, 1))
    assert names(data) == ["onhostes", "host"]


@pytest.mark.parametrize("field", ["host", "hostname", "host_name", "HOSTNAME", "nodename", "MASTER_ADDR"])
def test_hosts_of_fields(field):
    text, _ = redacted(op("sent to kestrel", 0, 1), **{field: "kestrel"})
    assert "kestrel" not in text


@pytest.mark.parametrize(
    "path",
    ["/home/{}/x.py", "/Users/{}/x.py", "C:\\Users\\{}\\x.py", "c:/Users/{}/x.py", "/tmp/torchinductor_{}/ab/x.py", "~{}/x.py",
     "file:///home/{}/a/x.py"],
)  # fmt: skip
@pytest.mark.parametrize("user", ["mallory", "jürgen", "m.lory-2"])
def test_owners_of_home_folders_are_users_wherever_they_stand(path, user):
    for ascii_only in (True, False):
        events = document(op(path.format(user), 0, 1), op(f"for {user}", 1, 1), op(f"{user}_2", 2, 1))
        text = redact(json.dumps(events, ensure_ascii=ascii_only).encode()).data.decode()
        assert names(json.loads(text)) == ["x.py", "for user", "user_2"]


def test_a_path_with_escaped_slashes():
    data = b'{"traceEvents": [{"ph": "X", "name": "\\/home\\/alice\\/x.py(3): f", "note": "by alice"}]}'
    assert redact(data).data == b'{"traceEvents": [{"ph": "X", "name": "x.py(3): f", "note": "by user"}]}'


def test_relative_paths_keep_only_the_file_but_for_packages_that_all_have():
    _, data = redacted(
        op("src/secret_model/attention.py(30): forward", 0, 1),
        op("../other/net.py(1): f", 1, 1),
        op("torch/nn/functional.py(9): linear", 2, 1),
        op("tokens/s", 3, 1),
        op("\\\\filer\\projects\\x.py", 4, 1),
    )
    assert names(data) == ["attention.py(30): forward", "net.py(1): f", "torch/nn/functional.py(9): linear", "tokens/s", "x.py"]


def test_arguments_and_environments_go_whole():
    text, data = redacted(
        op("x", 0, 1, cmdline="python train.py --key hunter2"),
        argv=["train.py", "--token", 'hunter2, ["x"]}'],
        env={"API_KEY": "hunter2", "nested": {"a": [1, 2]}},
        environment=None,
        after=1,
    )
    assert "hunter2" not in text and data["after"] == 1
    assert (data["argv"], data["env"], data["environment"]) == (None, None, None)
    assert data["traceEvents"][0]["args"] == {"cmdline": None}


@pytest.mark.parametrize("key", ["Process Args", "cmd", "Environment Variables", "environment-variables", "ENV", "Command Line"])
def test_keys_of_arguments_and_environments_in_any_spelling(key):
    text, data = redacted(op("x", 0, 1, **{key: {"HF_TOKEN": "hf_abc"}}))
    assert "hf_abc" not in text and data["traceEvents"][0]["args"] == {key: None}


def test_folders_and_owners_with_spaces():
    _, data = redacted(
        op("open /data/My Secret Project/run me.py", 0, 1),
        op("C:\\Users\\Bob Smith\\x.py", 1, 1),
        op("Smith's model, by Bob Smith", 2, 1),
        op("torch/../../corp/x.py", 3, 1),
    )
    assert names(data) == ["open run me.py", "x.py", "user's model, by user", "x.py"]


def test_a_name_of_half_a_million_characters_takes_no_longer_than_the_file():
    event = op("x" * 500_000, 0, 1, note="/" + "a" * 300_000, other="y/" * 50_000)
    start = time.perf_counter()
    redacted(event)
    assert time.perf_counter() - start < 20  # under a second; a quadratic search takes minutes


def test_words_that_traces_are_made_of_stay_and_are_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(socket, "gethostname", lambda: "kernel")
    monkeypatch.setattr(getpass, "getuser", lambda: "python")
    source = tmp_path / "a.json"
    source.write_text(json.dumps(document(step(2, 0, 9), op("python_function", 1, 2))))
    assert read_trace.main([str(source), "--redact", str(tmp_path / "b.json")]) == 0
    assert (tmp_path / "b.json").read_bytes() == source.read_bytes()
    assert capsys.readouterr().out.endswith(
        "the name 'kernel' is a word that traces are made of, and stays\n"
        "the name 'python' is a word that traces are made of, and stays\n"
    )


def test_a_user_who_is_called_like_an_op(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "max")
    _, data = redacted(op("aten::max", 0, 1), op("max ran it", 1, 1))
    assert names(data) == ["aten::max", "user ran it"]


def test_what_is_left_stops_it(monkeypatch, tmp_path, capsys):
    """With the step that takes paths out broken, the search of the copy finds them, and nothing is written."""
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    for broken, event, left in (
        ("_without_paths", op("/scratch/a/x.py", 0, 1), "a path is"),
        ("_without_paths", op("src/a/x.py", 0, 1), "a relative path is"),
        ("_without_paths", op("ordinary", 0, 1, note="ok", where="C:\\Users\\x\\y"), "a path is"),
    ):
        source.write_text(json.dumps(document(event)))
        with monkeypatch.context() as patched:
            patched.setattr(module, broken, lambda text: (text, 0))
            assert read_trace.main([str(source), "--redact", str(target)]) == 1
        assert capsys.readouterr().err == f"error: {left} still in the copy; nothing was written\n"
        assert not target.exists()


def test_escapes_hide_nothing():
    """`c\\u0061rol` reads as carol; so do keys, slashes and what stands after a line's end inside a string."""
    text = redact(
        b'{"e\\u006ev": {"A": "hunter2"}, "us\\u0065r": "mallory", "traceEvents": [{"name": "c\\u0061rol", "a": "by mallory", '
        b'"p": "\\u002fhome\\u002falice\\u002fx.py", '
        b'"s": "a\\n/opt/secretproj/y.py\\nby\\ncarol\\tC:\\\\secretproj\\\\z.py"}]}'
    ).data.decode()
    for secret in ("hunter2", "mallory", "carol", "alice", "secretproj", "u0061"):
        assert secret not in text
    assert json.loads(text)["traceEvents"][0]["s"] == "a\ny.py\nby\nuser\tz.py"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("cwd:/opt/secretproj/x", "cwd:x"),
        ("see file:///opt/secretproj/x.py", "see x.py"),
        ("g++ -I/opt/secretproj/inc", "g++ -Iinc"),
        ("at \\\\filer\\secretproj\\x.py", "at x.py"),
        ("..\\secretproj\\x.py", "x.py"),
        ("secretproj\\mod\\x.py", "x.py"),
        ("./secretproj/model", "model"),
        ("secretproj/model.rs", "model.rs"),
        (
            "/opt/secretproj/a.py(1): f;/opt/secretproj/b.py(2): g; torch/nn/m.py(3): h",
            "a.py(1): f;b.py(2): g; torch/nn/m.py(3): h",
        ),
        ("/opt/secretproj/a.py(1): tokens/s", "a.py(1): tokens/s"),
        ("/opt/secretproj/a.py see https://x.y/z/w", "a.py see https://x.y/z/w"),
        ("HF_TOKEN=hunter2 run", "HF_TOKEN= run"),
        ('{"user": "mallory", "env": {"A": "hunter2"}, "argv": ["h3"]}', '{"user": "user", "env": null, "argv": null}'),
        ("USER='mallory' and mallory", "USER='user' and user"),
    ],
)
def test_what_stands_inside_longer_strings(said, kept):
    assert names(redacted(op(said, 0, 1))[1]) == [kept]


def test_addresses_ports_and_logins():
    text, data = redacted(
        op("ProfilerStep#10", 0, 1), op("from 10.1.2.3 to 10.1.2.34", 1, 1), op("kestrel and mallory, corp", 2, 1),
        MASTER_ADDR="10.1.2.3", host="kestrel:29500", user="mallory@corp",
    )  # fmt: skip
    assert names(data) == ["ProfilerStep#10", "from host to 10.1.2.34", "host and user, user"] and "kestrel" not in text


@pytest.mark.parametrize(
    "cut", ['{"traceEvents": [{"ph": "X", "n": "mallory did", "user": "mallor', '{"traceEvents": [{"hostname": "kestrel']
)
def test_a_file_that_ends_inside_a_name(cut):
    text = redact(cut.encode()).data.decode()
    assert "kestrel" not in text and not text.endswith("mallor")


@pytest.mark.parametrize("user", ["traceEvents", "cpu_op", "correlation", "Input", "float", "void", "nan"])
def test_a_name_that_the_format_needs_stays(user, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: user)
    data = json.dumps(document(step(2, 0, 9), op("void f<float>", 1, 1, **{"Input Dims": []}))).encode()
    assert redact(data).data == data and redact(data).stay == (user,)


@pytest.mark.parametrize("name", ["01_matmul_add/64_bf16_cold_eager", "04_c_sdpa_attention/8_16_1024_64_math_bf16_warm_eager"])
def test_a_redacted_recording_reads_the_same(name, tmp_path, monkeypatch):
    source = GALLERY / f"{name}.json"
    target = tmp_path / "b.json.gz"
    assert read_trace.main([str(source), "--redact", str(target)]) == 0
    before, after = read(str(source)), read(str(target))
    assert (before.kernels, before.steps, before.findings) == (after.kernels, after.steps, after.findings)
    assert gzip.decompress(target.read_bytes()) == source.read_bytes()
    first = target.read_bytes()
    monkeypatch.setattr(time, "time", lambda: 1e9)  # no time stamp in the file: same trace, same bytes
    assert read_trace.main([str(source), "--redact", str(target)]) == 0 and target.read_bytes() == first


def secret_trace(**header):
    return json.dumps(document(step(2, 0, 100), *(op(f"/home/alice/x.py({n}): f", n, 1) for n in range(99)), **header)).encode()


def test_a_gzipped_source_is_unpacked_first(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(secret_trace()))
    assert read_trace.main([str(tmp_path / "a.json.gz"), "--redact", str(tmp_path / "b.json")]) == 0
    assert names(json.loads((tmp_path / "b.json").read_text()))[1] == "x.py(0): f"


@pytest.mark.parametrize("broken", ["cut gzip", "corrupt gzip", "cut text", "control character"])
def test_what_the_reader_reads_can_be_redacted(broken, tmp_path):
    text = secret_trace()
    zipped = bytearray(gzip.compress(text))
    if broken == "corrupt gzip":
        zipped[-20] ^= 0xFF
    data = {"cut gzip": zipped[:-30], "corrupt gzip": zipped, "cut text": text[:-40]}.get(
        broken, text.replace(b"x.py(3)", b"x\x01y")
    )
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(data)
    before = read(str(source))
    assert read_trace.main([str(source), "--redact", str(target)]) == 0
    assert b"alice" not in target.read_bytes()
    assert [(op.name.rpartition("/")[2], op.calls) for op in before.ops] == [(op.name, op.calls) for op in read(str(target)).ops]


def test_from_stdin_to_stdout():
    code = "import sys, read_trace; sys.exit(read_trace.main(['-', '--redact', '-']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, input=secret_trace(), capture_output=True)
    assert done.returncode == 0 and names(json.loads(done.stdout))[1] == "x.py(0): f"
    assert done.stderr.startswith(b"wrote standard output; taken out: file paths: 99")


def test_from_a_pipe_once_and_nothing_of_what_is_no_trace(tmp_path, capsys):
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_bytes(secret_trace())
    command = f"{sys.executable} read_trace.py <(cat {source}) --redact {target}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and b"alice" not in target.read_bytes()
    refused = subprocess.run(
        [sys.executable, "read_trace.py", "-", "--redact", tmp_path / "c.json"], cwd=ROOT, input=b"{}", capture_output=True
    )
    assert refused.returncode == 2 and not (tmp_path / "c.json").exists()
    with pytest.raises(SystemExit):
        read_trace.main([str(source), "--redact", ""])
    assert "argument --redact: expected the name of a file, got ''" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("redirection", "code", "error"), [(">/dev/full", 1, b"error: cannot write to standard output"), ("| true", 0, b"")]
)
def test_a_stdout_that_fails_is_no_traceback(redirection, code, error, tmp_path):
    (tmp_path / "a.json").write_bytes(secret_trace())
    command = f"{sys.executable} read_trace.py {tmp_path / 'a.json'} --redact - {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode == code and error in done.stderr and b"Traceback" not in done.stderr


def test_what_is_no_trace_is_not_copied(tmp_path, capsys):
    (tmp_path / "a.json").write_text("{}")
    assert read_trace.main([str(tmp_path / "a.json"), "--redact", str(tmp_path / "b.json")]) == 2
    assert "no trace" in capsys.readouterr().err and not (tmp_path / "b.json").exists()


def test_an_error_names_the_file_that_it_is_about(tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(secret_trace())
    target = tmp_path / "no" / "b.json"
    assert read_trace.main([str(tmp_path / "a.json"), "--redact", str(target)]) == 1
    assert capsys.readouterr().err == f"error: {target}: No such file or directory\n"


def test_no_recording_of_the_gallery_names_a_machine():
    for path in GALLERY.glob("*/*.json"):
        assert redact(path.read_bytes()).data == path.read_bytes(), path
    assert os.listdir(GALLERY)
