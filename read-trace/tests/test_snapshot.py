"""Snapshots of CUDA's memory: made by hand, with numbers worked out by hand, and recorded ones (NVIDIA H100, torch 2.11)."""

import gzip
import json
from pathlib import Path
import pickle
import random
import struct
import sys

import pytest
from reader_helpers import GALLERY
from trace_reader import cli
from trace_reader.analysis.snapshot_facts import compare_held, snapshot_curves, snapshot_facts
from trace_reader.errors import NotATraceError
from trace_reader.parse.memory_snapshot import NotPlainError, loads, read_snapshot

DATA = Path(__file__).parent / "data" / "snapshot"
MIB = 2**20
SITE = "/home/me/lib/python3.12/site-packages/torch"
OWN = "/home/me/project/train.py"


def frames(*named):
    return [{"filename": file, "line": line, "name": name} for file, line, name in named]


WEIGHTS = frames((f"{SITE}/nn/modules/module.py", 934, "_apply"), (OWN, 5, "main"))
FORWARD = frames(("??", 0, "at::_ops::relu::call(x)"), (f"{SITE}/nn/modules/linear.py", 134, "forward"), (OWN, 9, "forward"))
BACKWARD = frames(
    ("??", 0, "at::_ops::mm::call(x)"), ("??", 0, "torch::autograd::generated::MmBackward0::apply(x)"),
    ("", 0, "torch::autograd::Engine::thread_main(x)"),
)  # fmt: skip
STATES = frames((f"{SITE}/optim/adam.py", 178, "_init_group"), (OWN, 12, "step"))
LOSS = frames((f"{SITE}/autograd/__init__.py", 231, "backward"), (OWN, 11, "step"))
REDUCED = frames((f"{SITE}/distributed/distributed_c10d.py", 9, "all_reduce"), (OWN, 13, "step"))
CALLED = (f"{SITE}/nn/modules/module.py", 1790, "_call_impl")
SHARDED = frames((OWN, 9, "forward"), CALLED, (f"{SITE}/distributed/fsdp/fully_sharded_data_parallel.py", 900, "forward"))
LAUNCHED = frames((OWN, 3, "main"), (f"{SITE}/distributed/elastic/multiprocessing/errors/__init__.py", 300, "wrapper"))
MADE = frames((f"{SITE}/nn/modules/linear.py", 100, "__init__"), (OWN, 4, "__init__"))
CLOSURE = frames((f"{SITE}/nn/modules/linear.py", 134, "forward"), (OWN, 9, "closure"), (f"{SITE}/optim/lbfgs.py", 330, "step"))
BLAS = frames(("", 0, "at::cuda::setWorkspaceForHandle(x)"), (OWN, 9, "forward"))
ONLY_TORCH = frames((f"{SITE}/functional.py", 3, "split"))
WINDOWS = frames(("C:\\work\\code\\own.py", 4, "main"))
WINDOWS_STATES = frames(
    (r"C:\py\Lib\site-packages\torch\optim\adam.py", 178, "_init_group"), (r"C:\work\code\own.py", 12, "step")
)


def event(action, address, size, at_us=0, stack=FORWARD, **more):
    return {"action": action, "addr": address, "size": size, "time_us": at_us, "stream": 0, "frames": stack, **more}


def block(size, stack, state="active_allocated", **more):
    return {"size": size, "requested_size": size, "state": state, "frames": stack, **more}


def segment(device, address, *blocks):
    total = sum(one["size"] for one in blocks)
    return {"device": device, "address": address, "total_size": total, "blocks": list(blocks)}


# 10 MiB of weights from before, which stay, 4 of activations (freed), 6 of a gradient (freed), 8 of states, 3 of a loss (freed):
#   after each event  14  20  16  24  27  24  18; the peak is 27.
RUN = {
    "segments": [
        segment(0, 1000, block(10 * MIB, WEIGHTS), block(8 * MIB, STATES, address=3), block(2 * MIB, [], "inactive")),
        segment(0, 10**9, block(5 * MIB, FORWARD, "active_awaiting_free"), block(MIB, [], "inactive")),
    ],
    "device_traces": [[
        event("segment_alloc", 1000, 20 * MIB), event("alloc", 1, 4 * MIB, 100), event("alloc", 2, 6 * MIB, 200, BACKWARD),
        event("free_requested", 1, 4 * MIB, 300), event("free_completed", 1, 4 * MIB, 301),
        event("alloc", 3, 8 * MIB, 400, STATES),
        event("alloc", 1, 3 * MIB - 100, 500, LOSS), event("free_requested", 1, 3 * MIB - 100, 600, LOSS),
        event("free_requested", 2, 6 * MIB, 700, BACKWARD), event("snapshot", 0, 0),
    ]],
}  # fmt: skip


def kept(path, snapshot):
    path.write_bytes(pickle.dumps(snapshot))
    return str(path)


def told(capsys, *arguments):
    assert cli.main(["memory", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def devices(capsys, path):
    return json.loads(told(capsys, path, "--json"))["devices"]


def test_the_peak_what_was_in_use_then_and_at_the_end(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = kept(Path("a.pickle"), RUN)
    assert told(capsys, path) == (
        f"""{path}

GPU 0
  in use at the end: 18.0 MiB of 26.0 MiB reserved, the largest free piece: 2.0
  MiB
  peak of the recorded history: 27.0 MiB (7 events)

In use at the peak, by the line that asked for it
  line                      category   blocks     bytes  share
  project/train.py:5 main   module          1  10.0 MiB  37.0%
  project/train.py:12 step  optimizer       1   8.0 MiB  29.6%
  MmBackward0               backward        1   6.0 MiB  22.2%
  project/train.py:11 step  backward        1   3.0 MiB  11.1%

In use at the end, by the line that asked for it
  line                      category   blocks     bytes  share
  project/train.py:5 main   module          1  10.0 MiB  55.6%
  project/train.py:12 step  optimizer       1   8.0 MiB  44.4%

next: read-trace memory {path} LATER.pickle tells what grew since
"""
    )
    (device,) = devices(capsys, path)
    assert (device["peak_bytes"], device["peak_us"], device["before_bytes"], device["events"]) == (27 * MIB, 500, 0, 7)
    assert (device["allocated_bytes"], device["reserved_bytes"], device["largest_free_bytes"]) == (18 * MIB, 26 * MIB, 2 * MIB)


@pytest.mark.parametrize(
    ("stack", "line", "category"),
    [
        (FORWARD, "project/train.py:9 forward", "forward"),
        (REDUCED, "project/train.py:13 step", "collective"),
        (SHARDED, "project/train.py:9 forward", "forward"),  # not all that FSDP wraps is a collective
        (LAUNCHED, "project/train.py:3 main", "other"),  # nor all that torchrun starts
        (MADE, "project/train.py:4 __init__", "module"),
        (CLOSURE, "project/train.py:9 closure", "forward"),  # what LBFGS calls again
        (BLAS, "project/train.py:9 forward", "workspace"),
        (ONLY_TORCH, "torch/functional.py:3 split", "other"),
        (WINDOWS, "code/own.py:4 main", "other"),
        (BACKWARD[:1], "at::_ops::mm", "other"),
        (BACKWARD[2:], "torch::autograd::Engine::thread_main(x)", "backward"),
        (frames(("", 0, "torch::autograd::AccumulateGrad::apply(x)")), "AccumulateGrad", "other"),
        (frames(("x.cpp", 0, "")), "no stack was recorded", "other"),
        ([], "no stack was recorded", "other"),
        (None, "no stack was recorded", "other"),
    ],
)
def test_the_line_and_the_category_of_a_stack(tmp_path, capsys, stack, line, category):
    (device,) = devices(capsys, kept(tmp_path / "a.pickle", {"segments": [segment(1, 0, block(512, stack))]}))
    assert device["device"] == "GPU 1"
    assert device["at_end"] == [{"line": line, "category": category, "blocks": 1, "bytes": 512}]


def test_without_a_history_there_is_no_peak(tmp_path, capsys):
    """And in older files the stack of a block is in its history."""
    old = {"size": 512, "state": "active_allocated", "history": [{"addr": 0, "frames": FORWARD, "real_size": 512}]}
    path = kept(tmp_path / "a.pickle", {"segments": [segment(0, 0, old, block(1024, FORWARD))], "device_traces": [[], []]})
    lines = told(capsys, path).splitlines()
    assert lines[3:7] == [
        "  in use at the end: 1.5 KiB of 1.5 KiB reserved, the largest free piece: 0 B",
        "  no history was recorded: call torch.cuda.memory._record_memory_history()",
        "  before, for the peak",
        "",
    ]
    assert lines[7:10] == [
        "In use at the end, by the line that asked for it",
        "  line                        category  blocks    bytes   share",
        "  project/train.py:9 forward  forward        2  1.5 KiB  100.0%",
    ]
    (device,) = devices(capsys, path)
    assert (device["peak_bytes"], device["peak_us"], device["at_peak"]) == (None, None, [])


def test_a_peak_before_the_first_event(tmp_path, capsys):
    trace = [event("free_requested", 1, 4 * MIB, 100), event("alloc", 1, MIB, 200)]
    run = {"segments": [segment(0, 1, block(MIB, FORWARD))], "device_traces": [trace]}
    (device,) = devices(capsys, kept(tmp_path / "a.pickle", run))
    assert (device["peak_bytes"], device["before_bytes"], device["peak_us"], device["at_peak"]) == (4 * MIB, 4 * MIB, None, [])


def test_what_was_allocated_before_the_history_and_stays_is_named(tmp_path, capsys):
    """A history of few events (max_entries) has lost the allocations of what is still in use."""
    run = {**RUN, "device_traces": [RUN["device_traces"][0][-3:]]}  # two frees, of 3 and 6 MiB, and no allocation
    (device,) = devices(capsys, kept(tmp_path / "a.pickle", run))
    assert (device["peak_bytes"], device["before_bytes"], device["events"]) == (27 * MIB, 9 * MIB, 2)
    assert [(row["line"], row["bytes"]) for row in device["at_peak"]] == [
        ("project/train.py:5 main", 10 * MIB), ("project/train.py:12 step", 8 * MIB),
    ]  # fmt: skip
    assert "27.0 MiB, 9.0 MiB of it allocated before the first event, freed later" in " ".join(
        told(capsys, tmp_path / "a.pickle").split()
    )


def test_a_block_that_the_allocator_did_not_split_counts_whole(tmp_path, capsys):
    """19.5 MiB were asked for, 20 were taken, twice; one address was used before."""
    run = {
        "segments": [segment(0, 100, block(20 * MIB, FORWARD)), segment(0, 10**9, block(20 * MIB, FORWARD))],
        "device_traces": [[
            event("alloc", 100, MIB, 1), event("free_requested", 100, MIB, 2),
            event("alloc", 100, 39 * MIB // 2, 3), event("alloc", 10**9, 39 * MIB // 2, 4),
        ]],
    }  # fmt: skip
    (device,) = devices(capsys, kept(tmp_path / "a.pickle", run))
    assert (device["peak_bytes"], device["before_bytes"]) == (40 * MIB, 0)
    assert device["at_peak"] == [{"line": "project/train.py:9 forward", "category": "forward", "blocks": 2, "bytes": 40 * MIB}]


def test_out_of_memory_and_what_cannot_be_read(tmp_path, capsys):
    failed = {"action": "oom", "size": 3 * MIB, "device_free": MIB, "time_us": 5, "frames": FORWARD}
    odd = [
        event("alloc", None, 512), event("alloc", 1, "512"), event("alloc", 1, -1), event("alloc", 1, 2**44),
        event("alloc", True, 512), event("free", 1, 512, at_us=0.5), {"action": "oom", "size": None}, "no event", None,
        event(["alloc"], 1, 512),
    ]  # fmt: skip
    run = {"segments": [segment(0, 0, block(512, LOSS)), 5], "device_traces": [[failed, *odd, {**failed, "device_free": None}]]}
    run["segments"][0]["blocks"] += [{"size": None}, {"size": "512", "state": "active_allocated"}]
    lines = told(capsys, kept(tmp_path / "a.pickle", run)).splitlines()
    assert lines[1] == "12 entries could not be read, and are not counted"
    assert lines[7:11] == [
        "  out of memory: 3.0 MiB asked for by project/train.py:9 forward; the device had",
        "  1.0 MiB free",
        "  out of memory: 3.0 MiB asked for by project/train.py:9 forward",
        "",
    ]


def test_two_snapshots_beside_each_other(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    later = {
        "segments": [
            segment(0, 0, block(10 * MIB, WEIGHTS), block(MIB, STATES), block(4 * MIB, FORWARD), block(4 * MIB, FORWARD)),
            segment(2, 0, block(512, LOSS)),
        ]
    }
    early = {"segments": [*RUN["segments"], segment(1, 0, block(512, LOSS))]}
    paths = kept(Path("a.pickle"), early), kept(Path("b.pickle"), later)
    assert told(capsys, *paths) == (
        f"""A: {paths[0]}
B: {paths[1]}

GPU 0
  in use at the end: 18.0 MiB, then 19.0 MiB (+1.0 MiB)

What grew and shrank, by the line that asked for it
  line                        category         A        B     bytes  blocks
  project/train.py:9 forward  forward        0 B  8.0 MiB  +8.0 MiB      +2
  project/train.py:12 step    optimizer  8.0 MiB  1.0 MiB  -7.0 MiB       0

GPU 1
  in A only

GPU 2
  in B only
"""
    )
    grown = json.loads(told(capsys, *paths, "--json"))["grown"]
    assert [(one["line"], one["bytes"], one["blocks"]) for one in grown["GPU 0"]] == [
        ("project/train.py:9 forward", [0, 8 * MIB], [0, 2]), ("project/train.py:12 step", [8 * MIB, MIB], [1, 1]),
        ("project/train.py:5 main", [10 * MIB, 10 * MIB], [1, 1]),
    ]  # fmt: skip
    assert list(grown) == ["GPU 0"]


def test_blocks_without_addresses_follow_each_other(tmp_path, capsys):
    """As in older files; what is known by its event counts once."""
    run = {
        "segments": [segment(0, 1000, block(10 * MIB, WEIGHTS), block(8 * MIB, STATES))],
        "device_traces": [[event("alloc", 1000 + 10 * MIB, 8 * MIB, 1, STATES)]],
    }
    (device,) = devices(capsys, kept(tmp_path / "a.pickle", run))
    assert (device["peak_bytes"], [row["bytes"] for row in device["at_peak"]]) == (18 * MIB, [10 * MIB, 8 * MIB])


def test_peaks_are_compared_where_both_are_known(tmp_path, capsys):
    known, unknown = kept(tmp_path / "a.pickle", RUN), kept(tmp_path / "b.pickle", {"segments": RUN["segments"]})
    assert "  peak of the recorded history: 27.0 MiB, then 27.0 MiB\n" in told(capsys, known, known)
    assert "peak of" not in told(capsys, known, unknown) + told(capsys, unknown, known)


def test_a_line_that_holds_nothing_any_more_shrank(tmp_path):
    later = {"segments": [segment(0, 1000, block(10 * MIB, WEIGHTS))]}
    paths = kept(tmp_path / "a.pickle", RUN), kept(tmp_path / "b.pickle", later)
    (before,), (after,) = (snapshot_facts(read_snapshot(path)) for path in paths)
    assert [(one.line, one.bytes) for one in compare_held(before, after)] == [
        ("project/train.py:12 step", (8 * MIB, 0)), ("project/train.py:5 main", (10 * MIB, 10 * MIB)),
    ]  # fmt: skip


def test_the_curve_has_what_is_allocated_after_each_event(tmp_path):
    (curve,) = snapshot_curves(read_snapshot(kept(tmp_path / "a.pickle", RUN)), 0, 10**6)
    assert (curve.device, curve.first_bytes) == ("GPU 0", 10 * MIB)
    assert [size / MIB for size in curve.bytes.tolist()] == [14, 20, 16, 24, 27, 24, 18]
    assert curve.moment_ns.tolist() == [n * 100_000 for n in range(1, 8)]


def test_a_device_that_holds_nothing_at_the_end_is_told(tmp_path, capsys):
    (device,) = devices(capsys, kept(tmp_path / "a.pickle", {**RUN, "segments": []}))
    assert (device["device"], device["peak_bytes"], device["allocated_bytes"]) == ("GPU 0", 9 * MIB, 0)


def test_a_snapshot_without_a_gpu(tmp_path, capsys):
    path = kept(tmp_path / "a.pickle", {"segments": [], "device_traces": [[]]})
    assert told(capsys, path).endswith("\nno memory of a GPU is in it: was CUDA used before it was dumped?\n")


def test_a_recorded_run_has_the_peak_that_torch_counted(capsys):
    """The script that recorded them (tests/helpers/record_snapshot.py) printed torch's own numbers."""
    for name, allocated, peak in (("before", 189853696, 324093440), ("after", 357625856, 382791680)):
        (device,) = devices(capsys, DATA / f"{name}.pickle")
        assert (device["allocated_bytes"], device["peak_bytes"], device["reserved_bytes"]) == (allocated, peak, 421527552)
        assert device["before_bytes"] == 0
    assert device["ooms"] == [{"line": "me/record_snapshot.py:78 main", "bytes": 1 << 43, "free_bytes": 83796099072}]
    assert told(capsys, DATA / "before.pickle", DATA / "after.pickle").splitlines()[4:] == [
        "  in use at the end: 181.1 MiB, then 341.1 MiB (+160.0 MiB)",
        "  peak of the recorded history: 309.1 MiB, then 365.1 MiB",
        "  B: out of memory: 8.0 TiB asked for by me/record_snapshot.py:78 main; the",
        "  device had 78.0 GiB free",
        "",
        "What grew and shrank, by the line that asked for it",
        "  line                              category    A          B       bytes  blocks",
        "  me/record_snapshot.py:29 forward  forward   0 B  160.0 MiB  +160.0 MiB      +8",
    ]


def test_beside_the_timeline_of_its_step(tmp_path, capsys, opened):
    """The curve and the peak are those of the trace's own allocations; what was there before the trace, the snapshot names."""
    arguments = [str(DATA / "train.json.gz"), "--html", str(tmp_path / "a.html"), "--snapshot", str(DATA / "before.pickle")]
    assert cli.main(arguments) == 0
    page = opened(tmp_path / "a.html")
    curve = page.evaluate("() => report.panels[0].curves")
    assert [(one["label"], one["peak"]) for one in curve] == [("GPU 0 memory", 324093440)]
    text = page.text_content("body")
    assert "GPU 0: peak in the trace's time, in ProfilerStep#2: 309.1 MiB (156 events)" in text
    assert "me/record_snapshot.py:35 train_step" in text


def test_a_peak_at_the_trace_s_start_is_in_no_step(tmp_path, capsys):
    """Of a history that begins in a step and holds only frees, the most was allocated before all of it."""
    snapshot = pickle.loads((DATA / "before.pickle").read_bytes())
    snapshot["device_traces"] = [[one for one in snapshot["device_traces"][0] if one["action"] == "free_requested"][-20:]]
    arguments = [str(DATA / "train.json.gz"), "--html", str(tmp_path / "a.html"), "--snapshot"]
    assert cli.main([*arguments, kept(tmp_path / "a.pickle", snapshot)]) == 0
    words = "s time: 445.1 MiB, 264.0 MiB of it allocated before the first event, freed later (20 events)"
    assert words in (tmp_path / "a.html").read_text()


def test_of_another_run_it_is_refused(tmp_path, capsys):
    other = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
    page = ["--html", str(tmp_path / "a.html")]
    assert cli.main([str(other), *page, "--snapshot", str(DATA / "before.pickle")]) == 2
    words = "no allocation or free of it is from the time of the trace: is it of the same run?"
    assert capsys.readouterr() == ("", f"error: {DATA / 'before.pickle'}: {words}\n")
    assert cli.main([str(other), str(other), *page, "--snapshot", str(DATA / "before.pickle")]) == 2
    assert capsys.readouterr() == ("", "error: --snapshot is of one trace, got 2\n")
    odd = gzip.decompress((DATA / "train.json.gz").read_bytes()).replace(
        b'"baseTimeNanoseconds": 1', b'"baseTimeNanoseconds": 1' + b"0" * 40
    )
    (tmp_path / "odd.json").write_bytes(odd)
    assert cli.main([str(tmp_path / "odd.json"), *page, "--snapshot", str(DATA / "before.pickle")]) == 2
    assert capsys.readouterr().err.endswith(f"{words}\n")
    without = {"segments": RUN["segments"]}
    assert cli.main([str(other), *page, "--snapshot", kept(tmp_path / "a.pickle", without)]) == 2
    assert "a.pickle: no history was recorded: call torch.cuda.memory._record_memory_history()" in capsys.readouterr().err
    timeless = {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 512}]]}
    assert cli.main([str(other), *page, "--snapshot", kept(tmp_path / "a.pickle", timeless)]) == 2
    assert capsys.readouterr().err.endswith(f"{words}\n")
    assert not (tmp_path / "a.html").exists()


def test_mistakes_in_a_command(tmp_path, capsys):
    assert cli.main(["memory", "a", "b", "c"]) == 2
    assert capsys.readouterr().err == "error: one snapshot, or two to compare, got 3\n"
    with pytest.raises(SystemExit, match="2"):
        cli.main(["memory", "a", "--top", "0"])
    said = "error: argument --top: expected a whole number, 1 or more, got '0'\n  usage: read-trace memory "
    assert capsys.readouterr().err.startswith(said)
    for name, data, words in (
        ("missing", None, "No such file or directory"),
        ("text", b"hello", "no snapshot of CUDA's memory, which is a pickle"),
        ("zipped", gzip.compress(pickle.dumps(RUN)), "zipped; unzip it first: gzip -d"),
        ("trace", b' {"traceEvents": []}', "JSON, and no snapshot of CUDA's memory: a trace is read by read-trace FILE"),
        ("cut", pickle.dumps(RUN)[:-9], "no snapshot of CUDA's memory: cut off or damaged: "),
        ("list", pickle.dumps([1]), "a pickle, but no snapshot of CUDA's memory: it has neither segments nor device_traces"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        assert cli.main(["memory", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith(f"error: {tmp_path / name}: {words}")


# Pickles that would run something, if Python's unpickler read them.


class Runs:
    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return self.how


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_run(tmp_path, protocol):
    made = tmp_path / "made"
    runs = Runs((open, (str(made), "w")))
    data = pickle.dumps({"segments": [runs], "device_traces": []}, protocol)
    with pytest.raises(NotPlainError, match=r"it names _?io\.open, which is not of plain data: it was not run"):
        loads(data)
    assert not made.exists()
    pickle.loads(data)  # which does
    assert made.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (b"cos\nsystem\n.", "it names os.system"), (b"(ios\nsystem\n.", "it names os.system"),
        (b"\x8c\x02os\x8c\x06system\x93.", "it names os.system"), (b"(cos\nsystem\no.", "it names os.system"),
        (b"Pname\n.", "outside the file"), (b"NQ.", "outside the file"), (b"\x82\x01.", "damaged"),
        (b"N)R.", "damaged: TypeError"), (b"}}b.", "damaged: AttributeError"), (b"N)\x81.", "damaged"), (b"\x97.", "damaged"),
    ],
)  # fmt: skip
def test_no_instruction_that_names_or_calls_anything_is_run(code, words):
    with pytest.raises(NotPlainError, match=words):
        loads(b"\x80\x05" + code)


def test_plain_data_is_what_pythons_unpickler_makes_of_it():
    plain = {
        "segments": [1, -1, 2**31, -(2**40), 2**100, 1.5, True, False, None, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "ü" * 300: b"x" * 300, 5: {"empty": {}, "list": [], "bytes": b"1", "long": "x" * 70000, "bytes long": b"1" * 70000},
    }  # fmt: skip
    plain["twice"] = [plain["segments"]] * 300
    for protocol in range(3, pickle.HIGHEST_PROTOCOL + 1):  # before, bytes are made by a call
        data = loads(pickle.dumps(plain, protocol))
        assert data == plain
        assert data["twice"][0] is data["segments"]


def test_pickles_that_would_take_all_memory_or_the_stack():
    deep = b")" + b"\x85" * 1_000_000
    for data in (
        b"\x80\x04B" + struct.pack("<I", 2**32 - 1) + b"x.", b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"x.",
        b"\x80\x04}(K\x01u.", b"\x80\x04" + b"(" * 1_000_000, b"\x80\x04)a.", b"\x80\x04h\x07.", b"\x80\x04e.",
        b"\x80\x04K\x01\x86.", b"\x80\x04Nr" + struct.pack("<I", 2**32 - 1) + b".",
    ):  # fmt: skip
        with pytest.raises(NotPlainError, match=r"^(?:cut off or damaged|damaged): "):
            loads(data)
    assert len(loads(b"\x80\x04}" + deep + b"Ns.")) == 1  # its hash goes down a million tuples
    laughs = b"\x80\x04]\x94" + b"(h\x00h\x00e" * 40 + b"."  # a list that is put into itself
    assert len(loads(laughs)) == 80


def test_damaged_snapshots_are_one_line_or_a_report(tmp_path, capsys):
    """300 with wrong bytes, and one that ends at each byte."""
    whole = pickle.dumps(RUN)
    pick = random.Random(7)
    damaged = [whole[:end] for end in range(0, len(whole), 3)]
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(pick.randint(1, 8)):
            raw[pick.randrange(len(raw))] = pick.randrange(256)
        damaged.append(bytes(raw))
    codes = set()
    for data in damaged:
        (tmp_path / "a.pickle").write_bytes(data)
        codes.add(cli.main(["memory", str(tmp_path / "a.pickle")]))
        assert "Traceback" not in capsys.readouterr().err
    assert codes == {0, 2}


def test_values_of_other_types_are_counted_or_refused(tmp_path, capsys):
    """Every value of the snapshot, in turn, becomes one of another type."""
    strange: tuple[object, ...] = (None, "x", 1.5, b"x", (), [], {}, -1, 2**70, True, [[]], [None], {"frames": 5})

    def places(value, path=()):
        if isinstance(value, dict | list):
            for key, one in value.items() if isinstance(value, dict) else enumerate(value):
                yield (*path, key)
                yield from places(one, (*path, key))

    for number, path in enumerate(places(RUN)):
        changed = pickle.loads(pickle.dumps(RUN))
        part = changed
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = strange[number % len(strange)]
        kept(tmp_path / "a.pickle", changed)
        try:
            read_snapshot(str(tmp_path / "a.pickle"))
        except NotATraceError:
            continue
        assert cli.main(["memory", str(tmp_path / "a.pickle")]) == 0
        capsys.readouterr()
    assert sys.exc_info() == (None, None, None)


def test_the_category_of_a_line_on_windows(tmp_path, capsys):
    path = kept(tmp_path / "a.pickle", {"segments": [segment(0, 0, block(MIB, WINDOWS_STATES))], "device_traces": []})
    lines = [line.split() for line in told(capsys, path).splitlines()]
    assert ["code/own.py:12", "step", "optimizer", "1", "1.0", "MiB", "100.0%"] in lines
