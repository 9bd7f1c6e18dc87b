"""--redact: what is not known to be public is replaced, all else is the same byte for byte, and the report says the same."""

import getpass
import gzip
import json
import re
import socket
import subprocess
import sys
import time

import pytest
from reader_helpers import GALLERY, TOOL
from reader_helpers.events import annotation, document, event, kernel, launch, op, step
from trace_reader import cli, read
from trace_reader.commands import redact as redact_module
from trace_reader.commands.redact import CHUNK_BYTES, redact
from trace_reader.names.public_words import public_words

FAULTS = TOOL / "tests" / "data" / "faults"
RECORDINGS = sorted([*GALLERY.glob("*/*.json"), *GALLERY.parent.glob("*/*.json.gz"), *FAULTS.glob("*.json.gz")])


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine of a known name with a user of a known name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box.lab.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "carol")


def redacted(*events, keep=None, **header):
    """Return the redacted trace, as text and as JSON."""
    text = redact(json.dumps(document(*events, **header)).encode(), keep).data.decode()
    return text, json.loads(text)


def names(data):
    return [event["name"] for event in data["traceEvents"]]


def test_what_is_public_stays_and_the_rest_gets_words_of_its_kind(tmp_path, capsys):
    events = [
        step(2, 0, 100),
        op("aten::mm", 1, 5),
        op("/home/alice/my project/train.py(12): main", 2, 50),
        op("torch/nn/modules/module.py(1773): _call_impl", 3, 40),
        op("triton_poi_fused_mul_0", 4, 5, kernel_file="/tmp/torchinductor_bob/rp/abc.py", note="ran by carol on gpu-box"),
        op("load", 5, 1, path="C:\\Users\\dave\\x.bin", url="https://huggingface.co/a/b"),
    ]
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text(json.dumps(document(*events, hostname="gpu-box.lab.example", traceName="/scratch/alice/run 7/t.json")))
    assert cli.main([str(source), "--redact", str(target)]) == 0
    data = json.loads(target.read_text())
    assert names(data) == [
        "ProfilerStep#2",
        "aten::mm",
        "path-2.py(12): main",
        "torch/nn/modules/module.py(1773): _call_impl",
        "triton_poi_fused_mul_0",
        "load",
    ]
    assert data["traceEvents"][4]["args"] == {"kernel_file": "torch/path-3.py", "note": "name-1"}
    assert data["traceEvents"][5]["args"] == {"path": "name-2", "key-1": "name-3"}
    assert data["hostname"] == "host-1" and data["traceName"] == "path-1.json"
    assert capsys.readouterr().out == (
        f"wrote {target}: 8 strings replaced in 8 places\n"
        "places  in the copy  before\n"
        "     1  host-1       gpu-box.lab.example\n"
        "     1  key-1        url\n"
        "     1  name-1       ran by carol on gpu-box\n"
        "     1  name-2       C:\\Users\\dave\\x.bin\n"
        "     1  name-3       https://huggingface.co/a/b\n"
        "     1  path-1.json  /scratch/alice/run 7/t.json\n"
        "     1  path-2.py    /home/alice/my project/train.py\n"
        "     1  path-3.py    /tmp/torchinductor_bob/rp/abc.py\n"
    )


# A name before and after. Words of one kind are counted from 1.
NAMES = {
    # paths
    "/workspace//src/train.py(3): f": "path-1.py(3): f",
    "//home/alice/SEKRET/train.py": "path-1.py",
    "/data/SEKRET:a/m.py": "path-1.py",
    "/data/SEKRET (old), new;x'/m.py(1): f": "path-1.py(1): f",
    "%USERPROFILE%\\SEKRET\\x.py": "path-1.py",
    "SEKRET/k.cubin": "path-1.cubin",
    "SEKRET.GGUF": "path-1.gguf",
    "\\\\filer\\projects\\x.py": "path-1.py",
    "~mallory/x.py": "path-1.py",
    "../corp/net.py(1): f": "path-1.py(1): f",
    "torch/../../corp/x.py": "torch/path-1.py",
    "/opt/site-packages/torch/../data.py": "torch/path-1.py",
    "file:///opt/corp/a.py see /opt/corp/b.py": "path-1.py see path-2.py",
    "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py(9): linear": "torch/nn/functional.py(9): linear",
    "torch/nn/sekret.py(9): linear": "torch/path-1.py(9): linear",
    "threading.py(1016): _bootstrap": "threading.py(1016): _bootstrap",
    "<built-in method lower of str object at 0x7f0062e5bc60>": "<built-in method lower of str object at name1>",
    "/mnt/a/m.py(1): forward;torch/nn/functional.py(9): linear": "path-1.py(1): forward;torch/nn/functional.py(9): linear",
    # words, and numbers beside them
    "mallory@corp.example": "name-1@host-1",
    "tcp://kestrel:29500": "path-1:29500",
    "from 10.1.2.3 to fe80::1c2a:7": "from host-1 to name-1",
    "call 555-01-2345 or 4111111111111111": "call name-1 or name2",
    "run 2024-05-03": "run name-1",
    "call 555-1234": "call name-1",
    "HB-QX 7714": "name-1",
    "jürgen and 山田": "name1 and name2",
    "tokens/s": "tokens/s",
    "ops-77123": "ops-name1",
    "x_i_a_o forward": "name1 forward",
    "void k<r,o,l,l,e,r>(int)": "void k<name-1>(int)",
    "[1048576, 64]": "[1048576, 64]",
    "0.08838834764": "0.08838834764",
    "1e-08": "1e-08",
    "compile_id=0/1": "compile_id=0/1",
    "torch 2.11.0+cu130, step 3": "torch 2.11.0+cu130, step 3",
    "layer 17 of sekret 4": "layer 17 of name-1",
    # names of programs
    "aten::sekret": "aten::name1",
    "acme::sekret_op": "name1::name2_op",
    "cudaSekretCall": "name1",
    "ProfilerStep#2 (sekret)": "ProfilerStep#2 (name1)",
    "autograd::engine::evaluate_function: SekretBackward0": "autograd::engine::evaluate_function: name1",
    "Memcpy HtoD (Pageable -> Sekret)": "Memcpy HtoD (Pageable -> name1)",
    "void acme::fused_kernel<Sekret, 4>(float*)": "void name1::fused_kernel<name2, 4>(float*)",
    "_ZN4acme12fused_kernelEPf": "name1::fused_kernel(float*)",
    "_ZN2at6native4copyEv": "at::native::copy()",
    "triton_poi_fused_add_sekret_mul_3": "triton_poi_fused_add_name1_mul_3",
    "cutlass_80_tensorop_bf16_s16816gemm_sekret_128x128_32x5_nn_align8": (
        "cutlass_80_tensorop_bf16_s16816gemm_name1_128x128_32x5_nn_align8"
    ),
    "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_TNT": "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_TNT",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0": "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0",
    '{"user": "mallory"}': '{"user": "name1"}',
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    for ascii_only in (True, False):
        data = redact(json.dumps(document(op(name, 0, 1)), ensure_ascii=ascii_only).encode()).data
        assert names(json.loads(data)) == [NAMES[name]]


@pytest.mark.parametrize(
    ("key", "word"),
    [
        *(
            (key, "host-1")
            for key in ("fqdn", "rank_host", "local_hostname", "masterAddr", "ip", "SLURMD_NODENAME", "MASTER_ADDR")
        ),
        *(
            (key, "name-1")
            for key in ("SLURM_JOB_USER", "sys_argv", "launch_command", "cmdline", "branch", "note", "uuid", "trace_id")
        ),
    ],
)
def test_a_value_under_a_key_that_is_not_known_goes_whole(key, word):
    """Even if it is made of public words."""
    for value in ("tensor", "10.1.2.3", "train.py --batch 4"):
        _, data = redacted(op("x", 0, 1, **{key: value}), **{key: value})
        assert data["traceEvents"][0]["args"].popitem()[1] == word and word in data.values()


def test_keys_lists_and_what_is_nested():
    text, data = redacted(
        op("x", 0, 1, **{"Input type": ["float", "acme::Sekret"], "sekret": {"a": ["sekret", 7, None]}}),
        rank_hosts={"0": "kestrel"},
        arguments=["train.py", "--token", "hunter2"],
        env={"HF_TOKEN": "hunter3"},
    )
    assert data["traceEvents"][0]["args"] == {"Input type": ["float", "name1::name2"], "key-1": {"a": ["name4", 7, None]}} or text
    for secret in ("ekret", "kestrel", "hunter"):
        assert secret not in text
    assert data["arguments"] == ["name-2", "name-3", "name-4"] and {"0": "name-1"} in data.values()


def test_a_host_of_public_words_goes_wherever_the_trace_says_that_it_is_one():
    """In a list under a key of somebody's own, in an address, in a key; and a launch's kernel stays as the kernel does."""
    nccl = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
    text, data = redacted(
        op("x", 0, 1, **{"relu": 1, "Input type": ["float"], "notes": ["gpu-node7", "float"]}),
        event("cuda_runtime", "cudaLaunchKernel", 5, 1, kernel=nccl),
        event("user_annotation", "python3 on train-data-03", 6, 1),
        event("user_annotation", "adam-optimizer and softmax-host-12", 7, 1),
        host_name="relu",
        init_method="tcp://train-data-03:29500",
        mail="adam-optimizer@example.com",
        copied="bob@softmax-host-12:/data",
    )
    for word in ("gpu-node7", "train-data-03", "adam-optimizer", "softmax-host-12", '"relu"', "bob"):
        assert word not in text
    events = data["traceEvents"]
    assert events[0]["args"]["Input type"] == ["float"] and events[1]["args"]["kernel"] == nccl


def test_the_domain_that_a_host_is_in_is_everybodys():
    """And a list's number that one wrote beside it is no name."""
    _, data = redacted(
        op("aten::to", 0, 1, **{"Input type": ["float"], "Concrete Inputs": ["cuda", "torch.bfloat16"]}),
        note="see kestrel@build7.nvidia.com and https://docs.python.org/3/",
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
    )
    assert data["deviceProperties"][0]["name"] == "NVIDIA H200" and names(data) == ["aten::to"]
    assert data["traceEvents"][0]["args"]["Concrete Inputs"] == ["cuda", "torch.bfloat16"]
    for word in ("kestrel", "build7"):
        assert word not in json.dumps(data)


def test_the_same_text_is_the_same_word_and_another_one_another():
    _, data = redacted(op("sekret", 0, 1), op("kestrel", 1, 1), op("sekret", 2, 1), op("sekret_kestrel", 3, 1))
    assert names(data) == ["name1", "name2", "name1", "name3"]


def test_escapes_hide_nothing():
    """`c\\u0061rol` reads as carol; so do keys, slashes and what stands after a line's end inside a string."""
    text = redact(
        b'{"e\\u006evsecretproj": {"A": "hunter2"}, "us\\u0065r": "mallory", "traceEvents": [{"name": "c\\u0061rol", '
        b'"a": "by mallory", '
        b'"p": "\\u002fhome\\u002falice\\u002fx.py", "\\u0074raceName": "\\u006dallory", "bad": "\\q mallory", '
        b'"s": "a\\n/opt/secretproj/y.py\\nby\\ncarol\\tC:\\\\secretproj\\\\z.py"}]}'
    ).data.decode()
    for secret in ("hunter2", "mallory", "carol", "alice", "secretproj"):
        assert secret not in json.dumps(json.loads(text.replace("\\q", "q")), ensure_ascii=False)


def test_numbers_that_the_reader_needs_stay_and_others_do_not():
    _, data = redacted(
        {**op("x", 0, 1, correlation="123456789012", **{"External id": "4915177883026402"}), "pid": "8155912", "tid": "stream 7"},
    )
    event = data["traceEvents"][0]
    assert (event["pid"], event["tid"], event["args"]) == (
        "8155912",
        "stream 7",
        {"correlation": "123456789012", "External id": "name1"},
    )


def test_a_key_that_is_an_address_or_a_number_is_replaced():
    text = json.dumps({"10.20.30.40": 1, "4915177883026402": 2, "rank": 3, **document(op("x", 0, 1))})
    assert [*json.loads(redact(text.encode()).data)][:3] == ["key-1", "key-2", "rank"]


def test_public_words_and_numbers_by_turns_are_a_key():
    """`abc` and `def` are words of Python; a kernel's tile has letters, not words, between its numbers."""
    kernel_name = "ampere_bf16_s16816gemm_bf16_128x128_MT128x128x32_ldg8_f2f_stages_32x5_tn"
    _, data = redacted(op("token abc123DEF456", 0, 1), op("nccl:abc123def456", 1, 1), op(kernel_name, 2, 1))
    assert names(data) == ["token name1", "nccl:name2", kernel_name]


def test_keep_lets_more_through_and_names_it(tmp_path, capsys):
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text(json.dumps(document(step(2, 0, 9), op("acme::sekret", 1, 2), op("falcon stage", 2, 2), op("carol", 3, 1))))
    assert cli.main([str(source), "--redact", str(target), "--keep", "acme|falcon stage"]) == 0
    assert names(json.loads(target.read_text())) == ["ProfilerStep#2", "acme::name1", "falcon stage", "name2"]
    assert capsys.readouterr().out.endswith("these stay: look at them before you share the copy\n     1  falcon stage\n")
    with pytest.raises(SystemExit):
        cli.main([str(source), "--redact", str(target), "--keep", "("])
    assert "argument --keep: expected a regular expression, got '('" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([str(source), "--keep", "x"])
    assert "--keep does nothing with report: it is for redact" in capsys.readouterr().err


def test_a_public_word_that_is_this_machines_name_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(socket, "gethostname", lambda: "kernel")
    monkeypatch.setattr(getpass, "getuser", lambda: "adam")
    source = tmp_path / "a.json"
    source.write_text(json.dumps(document(step(2, 0, 9), op("Optimizer.step#Adam.step", 1, 2), op("Adamax", 2, 2))))
    assert cli.main([str(source), "--redact", str(tmp_path / "b.json")]) == 0
    assert (tmp_path / "b.json").read_bytes() == source.read_bytes()
    assert capsys.readouterr().out == (
        f"wrote {tmp_path / 'b.json'}: 0 strings replaced in 0 places\n"
        "these stay: look at them before you share the copy\n     1  Optimizer.step#Adam.step\n"
    )


def test_a_long_list_is_cut_and_counted(tmp_path, capsys):
    letters = "abcdefghijklmnopqrstuvwxyz"
    source = tmp_path / "a.json"
    source.write_text(json.dumps(document(*(op(f"zq{letter}zq" + "x" * 200, 0, 1) for letter in letters))))
    assert cli.main([str(source), "--redact", str(tmp_path / "b.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[2:22]] == [f"name{n}" for n in range(1, 21)]
    assert len(lines) == 23 and lines[-1] == "        and 6 more (--all)" and lines[2].endswith(f"  zqazq{'x' * 82}...")


def meant(value, words):
    """Return a JSON value with its strings as they were before the redaction."""
    if isinstance(value, dict):
        return {meant(key, words): meant(element, words) for key, element in value.items()}
    if isinstance(value, list):
        return [meant(element, words) for element in value]
    return words.sub("?", value) if isinstance(value, str) else value


def said(path, capsys, words):
    assert cli.main([str(path), "--json"]) == 0
    return meant(json.loads(capsys.readouterr().out.replace(str(path), "T")), words)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path.suffix == ".gz" and path.name != "fp32.json.gz"))
        for path in RECORDINGS
    ],
    ids=lambda path: path.name[:60],
)
def test_a_redacted_recording_reads_the_same(source, tmp_path, capsys):
    """Verdict, numbers and findings; a name that was replaced is `?` on both sides."""
    data = source.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    copy = redact(data)
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    before.write_bytes(data)
    after.write_bytes(copy.data)
    # A graph's hash is shown by its first letters.
    originals = [re.escape(text) for found in copy.replaced for text in (found.original, f"{found.original[:12]}...")]
    replaced = re.compile(
        "|".join([*sorted(originals, key=len, reverse=True), r"(?:name|path|host|key)-?\d+(?:\.\w+)?(?:\.\.\.)?"])
    )
    assert said(before, capsys, replaced) == said(after, capsys, replaced)


def test_a_trace_of_which_nothing_is_public_reads_the_same(tmp_path):
    """Names that decide something are replaced so that they decide the same."""
    events = [step(2, 0, 1000), op("falcon::gemm_bf16", 10, 200), op("sekret", 300, 50)]
    for number, name in enumerate(
        [
            "geglu_sekret",
            "falconkernel",
            "void falcon::flash_fwd_kernel<Sekret>(float*)",
            "triton_red_fused_sekret_sum_1",
            "ncclDevKernel_Sekret",
        ]
    ):
        events += [launch(20 + 10 * number, number + 1), kernel(name, 100 + 200 * number, 150, number + 1)]
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text(json.dumps(document(*events)))
    target.write_bytes(redact(source.read_bytes()).data)
    one, other = read(str(source)), read(str(target))
    assert one.verdict == other.verdict and [f.slug for f in one.findings] == [f.slug for f in other.findings]
    rows = [[(k.work_kind, k.calls, k.total_us) for k in facts.kernels] for facts in (one, other)]
    assert rows[0] == rows[1]


def test_the_recordings_need_no_redaction_but_for_hashes():
    for path in GALLERY.glob("*/*.json"):
        originals = [found.original for found in redact(path.read_bytes()).replaced]
        hashes = r"f[a-z2-7]{51}|[0-9A-F]{32}|name-1"  # the last: of a trace, as an earlier redaction left it
        assert [text for text in originals if not re.fullmatch(hashes, text)] == [], path


def test_public_words_are_words():
    assert len(public_words()) > 2000 and {"softmax", "elementwise", "nvjet", "backward"} <= public_words()
    assert all(re.fullmatch("[a-z]{2,24}", word) for word in public_words())
    assert not public_words() & set(["alice", "bob", "carol", "dave", "mallory", "kestrel", "falcon", "sekret"])


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB", "Tesla T4", "NVIDIA L40S",
     "Tesla V100-SXM2-16GB", "Tesla P100-PCIE-16GB", "NVIDIA RTX 6000 Ada Generation", "AMD Radeon RX 7900 XTX", "NVIDIA Thor",
     "AMD Instinct MI300X", "NVIDIA GeForce RTX 4090", "NVIDIA H200", "NVIDIA B200", "NVIDIA GB200", "Orin"],
)  # fmt: skip
def test_the_names_of_gpus_stay(name):
    """Peaks are looked up by them."""
    _, data = redacted(op("x", 0, 1), deviceProperties=[{"id": 0, "name": name}])
    assert data["deviceProperties"][0]["name"] == name


def test_the_keys_of_traces_are_public():
    keys = {key: "7" for key in redact_module.NAMES | redact_module.PATHS | redact_module.NUMBERS}
    assert set(redacted(op("x", 0, 1), more=keys)[1]["more"]) == set(keys)


def test_a_damaged_original_whose_copy_holds_less_says_so(tmp_path, capsys):
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    text = json.dumps(document(op("aten::mm", 0, 1), op("aten::add", 2, 1), op("aten::mul", 4, 1), hostname="kestrel"))
    source.write_text(text.replace('"kestrel"', '"kestrel'))
    assert cli.main([str(source), "--redact", str(target), "--all"]) == 0
    out = capsys.readouterr().out
    assert "kestrel" not in target.read_text() and "the original is damaged: of its 3 events, " in out
    source.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert cli.main([str(source), "--redact", str(target)]) == 0
    assert "the original is" not in capsys.readouterr().out and read(str(target)).events == 3


def secret_trace(**header):
    return json.dumps(document(step(2, 0, 100), *(op(f"/home/alice/x.py({n}): f", n, 1) for n in range(99)), **header)).encode()


def test_a_gzipped_source_is_unpacked_first_and_the_copy_has_the_same_bytes(tmp_path, monkeypatch):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(secret_trace()))
    target = tmp_path / "b.json.gz"
    assert cli.main([str(tmp_path / "a.json.gz"), "--redact", str(target)]) == 0
    first = target.read_bytes()
    assert names(json.loads(gzip.decompress(first)))[1] == "path-1.py(0): f"
    monkeypatch.setattr(time, "time", lambda: 1e9)  # no time stamp in the file
    assert cli.main([str(tmp_path / "a.json.gz"), "--redact", str(target)]) == 0 and target.read_bytes() == first


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
    assert cli.main([str(source), "--redact", str(target)]) == 0
    assert b"alice" not in target.read_bytes()
    assert [op.calls for op in before.ops] == [op.calls for op in read(str(target)).ops]


@pytest.mark.parametrize(
    ("cut", "copy"),
    [
        ('{"traceEvents": [{"ph": "X", "n": "mallory did", "user": "mallor',
         '{"traceEvents": [{"ph": "X", "n": "name-1", "user":"name-2'),
        ('{"traceEvents": [{"hostname": "kestrel', '{"traceEvents": [{"hostname":"name-1'),
        ('{"traceEvents": [{"na\\', '{"traceEvents": [{"name-1'),
        ('{"traceEvents": [{"a": 1e5, "b": kestrel, "c": -2.5, // by mallory\n"d": 10.1.2.3, "e": NaN, "f": +49-555, "g": 5-5}',
         '{"traceEvents": [{"a": 1e5, "b": null, "c": -2.5, null null null\n"d": null, "e": NaN, "f": null, "g": null}'),
        ('{"traceEvents": [{"name": "a"mallory"b"}, {"name": "mm"}\n, {"name": "mm"}', None),
    ],
)  # fmt: skip
def test_broken_text_leaks_nothing(cut, copy):
    text = redact(cut.encode()).data.decode()
    assert "kestrel" not in text and "mallor" not in text
    assert copy is None or text.replace(": ", ":") == copy.replace(": ", ":")


def test_a_line_ends_what_an_odd_quote_began():
    text = redact(b'{"traceEvents": [{"name": "a"b"},\n{"ph": "X", "name": "aten::mm"}]}').data
    assert text.endswith(b'\n{"ph": "X", "name": "aten::mm"}]}')


@pytest.mark.slow
def test_it_takes_one_pass():
    """Deep nesting, a string of half a million signs, one larger than a piece, words without end: in the time of the file."""
    start = time.perf_counter()
    redact(b'{"traceEvents": [' + b'{"host":' * 4000)
    event = op("x" * 500_000, 0, 1, note="/" + "a" * 300_000, other="y/" * 50_000, name2="z 1 " * 50_000, more="1 " * 100_000)
    redacted(event, op("y" * 3 * CHUNK_BYTES, 1, 1), op("1 a/" * 50_000, 1, 1), op("zq.py " * 50_000, 1, 1))
    assert time.perf_counter() - start < 20  # two seconds; what is quadratic takes minutes


def test_a_piece_may_end_anywhere(monkeypatch):
    data = json.dumps(document(op('sekret \\ " é', 0, 1, hostname="kestrel", note={"a": "b"}), traceName="/a/b.json")).encode()
    whole = redact(data).data
    for size in range(1, 60):
        monkeypatch.setattr("trace_reader.commands.redact.CHUNK_BYTES", size)
        assert redact(data).data == whole


def test_from_stdin_to_stdout():
    code = "import sys; from trace_reader import cli; sys.exit(cli.main(['-', '--redact', '-']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOOL, input=secret_trace(), capture_output=True)
    assert done.returncode == 0 and names(json.loads(done.stdout))[1] == "path-1.py(0): f"
    assert done.stderr.startswith(b"wrote standard output: 1 string replaced in 99 places\n")


def test_from_a_pipe_once_and_nothing_of_what_is_no_trace(tmp_path, capsys):
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_bytes(secret_trace())
    command = f"{sys.executable} -m trace_reader <(cat {source}) --redact {target}"
    done = subprocess.run(["bash", "-c", command], cwd=TOOL, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and b"alice" not in target.read_bytes()
    refused = subprocess.run(
        [sys.executable, "-m", "trace_reader", "-", "--redact", tmp_path / "c.json"], cwd=TOOL, input=b"{}", capture_output=True
    )
    assert refused.returncode == 2 and not (tmp_path / "c.json").exists()
    with pytest.raises(SystemExit):
        cli.main([str(source), "--redact", ""])
    assert "argument -o/--out: expected the name of a file, got ''" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("redirection", "code", "error"), [(">/dev/full", 1, b"error: cannot write to standard output"), ("| true", 0, b"")]
)
def test_a_stdout_that_fails_is_no_traceback(redirection, code, error, tmp_path):
    (tmp_path / "a.json").write_bytes(secret_trace())
    command = f"{sys.executable} -m trace_reader {tmp_path / 'a.json'} --redact - {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=TOOL, capture_output=True, timeout=60)
    assert done.returncode == code and error in done.stderr and b"Traceback" not in done.stderr


def test_what_is_no_trace_is_not_copied(tmp_path, capsys):
    (tmp_path / "a.json").write_text("{}")
    assert cli.main([str(tmp_path / "a.json"), "--redact", str(tmp_path / "b.json")]) == 2
    assert "no trace" in capsys.readouterr().err and not (tmp_path / "b.json").exists()


def test_an_error_names_the_file_that_it_is_about(tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(secret_trace())
    target = tmp_path / "no" / "b.json"
    assert cli.main([str(tmp_path / "a.json"), "--redact", str(target)]) == 1
    assert capsys.readouterr().err == f"error: {target}: No such file or directory\n"


def test_a_key_and_a_value_of_the_same_text_have_words_of_their_own():
    assert b'{"key-1": "name-1"}' in redact(b'{"traceEvents":[{"ph":"i","args":{"zyxwv": "zyxwv"}}]}').data


WORDS = (
    "gpu-node7", "train-data-03", "data-loader-1", "adam-optimizer", "tensor_core", "alice", "zeta9", "model-zoo.example.org",
    "conv2d-box", "falcon",
)  # fmt: skip


def with_a_word(said, word):
    """Return a trace whose header or a path says a word, and that has it in names, keys, processes and frames."""
    places = [f"load_{word}_shard", f"{word} forward", f"run on {word}", f"my{word}x" if len(word) >= 8 else word]
    events = [annotation(name, n, 1) for n, name in enumerate(places)]
    events += [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": f"python {word.upper()}"}}]
    events += [op("aten::add", 9, 1) | {"args": {word: 3, "note": f"see {word}"}}, step(3, 20, 9)]
    return json.dumps({**said, "traceEvents": events}).encode()


SAYS = {
    "host_name": lambda word: word,
    "env": lambda word: {"USER": word},
    "SLURM_JOB_NAME": lambda word: word,
    "hosts": lambda word: [word],
    "master_addr": lambda word: f"{word}:29500",
    "environ": lambda word: [f"LOGNAME={word}"],
    "HOME": lambda word: f"/home/{word}",
    "traceName": lambda word: f"/data/{word}/run/t.json",
    "x": lambda word: f"C:\\Users\\{word}\\t.py",
    "email": lambda word: f"{word}@corp.example",
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("key", SAYS)
def test_what_a_trace_calls_a_host_a_user_or_a_folder_is_nowhere_in_the_copy(word, key):
    copy = redact(with_a_word({key: SAYS[key](word)}, word)).data.decode()
    assert word.lower() not in copy.lower()
    assert '"aten::add"' in copy and '"ProfilerStep#3"' in copy and json.loads(copy)["traceEvents"]


FOLDERS = ("kernel", "dataloader", "distributed", "step", "optimizer", "add", "rank", "args", "user_annotation")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_called_as_torch_calls_something_destroys_nothing(folder):
    wait = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [step(0, 0, 90), annotation(wait, 1, 5), annotation("Optimizer.step#SGD.step", 10, 20), op("aten::add", 11, 9)]
    events += [launch(12, 1), kernel("void at::native::add_kernel<float>(int)", 14, 9, 1)]
    text = json.dumps({"traceEvents": events, "distributedInfo": {"rank": 1, "world_size": 2}, "x": f"/home/zoe/{folder}/t.py"})
    copy = redact(text.encode()).data.decode()
    assert json.loads(copy)["traceEvents"] == events and json.loads(copy)["distributedInfo"] == {"rank": 1, "world_size": 2}
    assert "zoe" not in copy
