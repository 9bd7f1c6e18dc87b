"""Allocated memory: its curve, its peak and what was alive at it, worked out by hand."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reader_helpers.events import MIB, annotation, backward, forward, kernel, launch, memory, memory_training, on, op, step, write
from trace_reader import cli, load, read
from trace_reader.analysis.trace.memory_facts import curves
from trace_reader.errors import NoEventsError
from trace_reader.write import page_payload


def test_the_curve_is_what_the_profiler_counts(tmp_path):
    trace = load(write(tmp_path / "t.json", *memory_training()))
    (curve,) = curves(trace)
    assert (curve.device, curve.first_bytes) == ("GPU 0", 10 * MIB)
    assert [(ns / 1000, n / MIB) for ns, n in zip(curve.moment_ns.tolist(), curve.bytes.tolist(), strict=True)] == [
        (22, 14), (60, 15), (70, 14), (122, 16), (125, 17), (140, 16), (310, 19), (380, 17), (480, 13), (500, 12),
    ]  # fmt: skip


def test_what_was_alive_at_the_peak(tmp_path):
    (found,) = read(write(tmp_path / "t.json", *memory_training())).memory
    assert (found.device, found.peak_bytes, found.peak_us, found.step) == ("GPU 0", 19 * MIB, 310, "ProfilerStep#0")
    assert found.before_bytes == 10 * MIB
    assert [(a.annotation, a.op, a.blocks, a.bytes / MIB) for a in found.alive] == [
        ("layer 0", "aten::mm", 1, 4),
        ("layer 1, backward", "autograd::engine::evaluate_function: AddBackward0", 1, 3),
        ("layer 1", "aten::add", 1, 2),
    ]
    assert (found.activation_bytes, found.layer_bytes, found.layers) == (6 * MIB, 6 * MIB, ("layer 0", "layer 1"))


def test_an_annotation_in_a_layer_is_of_that_layer(tmp_path):
    """What the op makes in it makes a node of the op around them all."""
    events = [
        step(0, 0, 1000), annotation("layer 3", 10, 90), forward("checkpoint", 12, 80, 0), annotation("attention", 15, 60),
        op("aten::empty", 20, 5), memory(21, 100, MIB, MIB), *on(2, backward("Mm", 300, 90, 0), memory(310, 100, -MIB, 0)),
    ]  # fmt: skip
    (found,) = read(write(tmp_path / "t.json", *events)).memory
    assert [(a.annotation, a.op) for a in found.alive] == [("attention", "aten::empty")]
    assert (found.activation_bytes, found.layer_bytes, found.layers) == (MIB, MIB, ("layer 3",))


def test_layers_are_in_the_order_of_their_numbers(tmp_path):
    layers = [e for n in (10, 2) for e in (annotation(f"layer {n}", 10 + 50 * n, 40), forward("aten::mm", 12 + 50 * n, 30, n))]
    made = [memory(13 + 50 * n, n, MIB, MIB * i) for i, n in enumerate((2, 10), 1)]
    end = on(2, backward("Mm", 700, 50, 10), memory(710, 10, -MIB, MIB), backward("Mm", 760, 50, 2), memory(770, 2, -MIB, 0))
    (found,) = read(write(tmp_path / "t.json", step(0, 0, 1000), *layers, *made, *end)).memory
    assert found.layers == ("layer 2", "layer 10")


def test_what_the_forward_pass_frees_itself_is_no_activation(tmp_path):
    """At the peak, in the forward pass, the MiB of aten::add is alive; it is freed before the backward pass begins."""
    events = [e for e in memory_training() if e["ts"] not in (310, 500)] + [
        memory(126, 103, 9 * MIB, 26 * MIB),
        memory(130, 103, -9 * MIB),
    ]
    (found,) = read(write(tmp_path / "t.json", *events)).memory
    assert (found.peak_us, found.activation_bytes) == (126, 6 * MIB)
    assert [a.bytes / MIB for a in found.alive if a.op == "aten::add"] == [12]


def test_what_was_there_before_stands_where_it_belongs(tmp_path, capsys):
    events = [op("aten::mm", 0, 50), memory(1, 7, 4 * MIB, 6 * MIB), memory(100, 8, MIB, 7 * MIB)]
    assert cli.main([write(tmp_path / "t.json", step(0, 0, 900), *events), "--all"]) == 0
    out = capsys.readouterr().out
    rows = out[out.index("Memory of") :].splitlines()[3:6]
    assert [row.split("  ")[1] for row in rows] == ["none", "before the recording", "none"]


def test_of_the_cpu_it_is_what_the_trace_shows(tmp_path):
    cpu = (0, -1)
    events = [memory(1, 7, 300, 300, cpu), memory(2, 8, -1000, 0, cpu), memory(3, 7, -300, 0, cpu), memory(4, 9, 50, 50, cpu)]
    (curve,) = curves(load(write(tmp_path / "t.json", step(0, 0, 9), *events)))
    assert (curve.device, curve.first_bytes, curve.bytes.tolist()) == ("CPU", 1000, [1300, 300, 0, 50])


def test_what_was_there_before_can_be_the_peak(tmp_path):
    events = [memory(1, 7, -100, 900), memory(2, 8, 50, 950)]
    (found,) = read(write(tmp_path / "t.json", step(0, 0, 9), *events)).memory
    assert (found.peak_bytes, found.peak_us, found.before_bytes, found.alive) == (1000, 1, 1000, ())


def test_a_peak_behind_the_steps_is_in_none(tmp_path):
    (found,) = read(write(tmp_path / "t.json", step(0, 0, 9), memory(20, 7, 100, 100), op("aten::mm", 30, 1))).memory
    assert (found.peak_us, found.step) == (20, None)


def test_with_a_gpu_the_cpus_allocations_are_left_out(tmp_path):
    events = [memory(1, 7, 300, 300, (0, -1)), memory(2, 7, 500, 500, (1, 1)), memory(3, 7, 600, 600, (1, 0))]
    path = write(tmp_path / "t.json", step(0, 0, 9), *events)
    assert [(m.device, m.peak_bytes, m.before_bytes) for m in read(path).memory] == [("GPU 1", 500, 0), ("GPU 0", 600, 0)]


def test_times_since_1970_and_what_comes_before_the_first_slice(tmp_path):
    zero = 1_700_000_000_000_000
    early, late = memory(zero - 5, 1, 100, 100), memory(zero + 7.5, 1, -100, 0)
    trace = load(write(tmp_path / "t.json", early, step(0, zero, 9), late))
    assert trace.memory.at_ns.tolist() == [-5000, 7500]


@pytest.mark.parametrize(
    "args",
    [
        {"Addr": None}, {"Bytes": "x"}, {"Bytes": 2**63}, {"Device Type": [1]}, {"Device Id": {}}, {"Bytes": None},
        {"Addr": 1.5e400}, {"Bytes": 2**64 - 1}, {"Bytes": True}, {"Device Id": False},
    ],
)  # fmt: skip
def test_an_odd_event_of_memory_is_not_used(tmp_path, args):
    said = {"Addr": 7, "Bytes": 300, "Device Type": 1, "Device Id": 0, **args}
    f = read(write(tmp_path / "t.json", step(0, 0, 9), {**memory(1, 7, 300), "args": said}, memory(2, 7, 300, 300)))
    assert ([m.peak_bytes for m in f.memory], f.skipped) == ([300], {"instant": 1})


@pytest.mark.parametrize("size", [2**50, -(2**50), 2**62])
def test_more_bytes_than_any_memory_has_are_not_added_up(tmp_path, size):
    huge = [{**memory(1 + n, n, 300), "args": {"Addr": n, "Bytes": size, "Device Type": 1, "Device Id": 0}} for n in range(8)]
    f = read(write(tmp_path / "t.json", step(0, 0, 90), *huge, memory(20, 70, 300, 300)))
    assert ([m.peak_bytes for m in f.memory], f.skipped) == ([300], {"impossible size": 8})


def test_what_is_left_out_is_told_in_every_report(tmp_path, capsys):
    huge = {**memory(1, 5, 300), "args": {"Addr": 5, "Bytes": 2**61, "Device Type": 1, "Device Id": 0}}
    path = write(tmp_path / "t.json", step(0, 0, 90), huge, memory(20, 70, 300, 300))
    assert cli.main([path]) == 0
    assert "events: 3 found, 1 not used (1 impossible size)\n" in capsys.readouterr().out
    assert cli.main([write(tmp_path / "u.json", step(0, 0, 90), memory(20, 70, 300, 300))]) == 0
    assert "events: " not in capsys.readouterr().out


def test_a_trace_of_memory_alone_says_so(tmp_path):
    with pytest.raises(NoEventsError, match=r"its 2 events are allocations and frees, without an op or a kernel$"):
        read(write(tmp_path / "t.json", memory(1, 7, 300), memory(2, 7, -300)))


def test_an_event_of_memory_without_a_time_is_not_used(tmp_path):
    untimed = {**memory(None, 8, 100, 100), "tid": 2}
    f = read(write(tmp_path / "t.json", annotation("a", 0, 9), untimed, memory(2, 7, 300, 300)))
    assert ([(m.peak_bytes, m.alive[0].annotation) for m in f.memory], f.skipped) == ([(300, "a")], {"instant": 1})


@pytest.mark.parametrize("total", [None, "many", 2**62, 2**64 - 2**40, -5, [1]])
def test_where_one_total_is_none_they_are_counted_from_the_sizes(tmp_path, total):
    events = [memory(1, 7, 300, total), memory(2, 8, 100, 1000)]
    (found,) = read(write(tmp_path / "t.json", step(0, 0, 9), *events)).memory
    assert found.peak_bytes == 400


def test_odd_addresses_and_totals_are_used_as_far_as_they_go(tmp_path):
    events = [memory(1, 2**64 - 1, 300, "many"), memory(2, "0x7", 100, 100), memory(3, 2**64 - 1, -300, -5)]
    (found,) = read(write(tmp_path / "t.json", step(0, 0, 9), *events)).memory
    assert (found.peak_bytes, found.alive[0].bytes) == (300, 300)


def test_other_instants_are_counted(tmp_path):
    other = {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": 1, "tid": 1, "ts": 3, "s": "g"}
    f = read(write(tmp_path / "t.json", step(0, 0, 9), other, memory(1, 7, 300, 300)))
    assert (f.events, f.skipped, len(f.memory)) == (3, {"instant": 1}, 1)


def test_it_is_told(tmp_path, capsys):
    events = [*memory_training(), launch(5, 1), kernel("a", 8, 500, 1)]
    path = write(tmp_path / "t.json", *events)
    assert cli.main([path]) == 0
    out = " ".join(capsys.readouterr().out.split())
    kept = "activations-kept: at the peak of 19.0 MiB, 6.0 MiB were kept from the forward pass, 6.0 MiB of it in layer 0, layer 1"
    assert kept in out
    assert cli.main([path, "--all"]) == 0
    out = capsys.readouterr().out
    assert "\nMemory of GPU 0: peak 19.0 MiB in ProfilerStep#0; what was alive at it, by" in out
    assert "  before the recording" in out and "10.0 MiB  52.6%" in out
    assert out.index("  before the recording") < out.index("aten::mm", out.index("Memory of"))  # the most first
    made = "activations, made by the forward pass and not freed before the backward pass: 6.0 MiB, 6.0 MiB of it in layers"
    assert made in " ".join(out.split())
    assert cli.main([path, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["memory"]
    assert (told["peak_bytes"], told["before_bytes"], told["alive"][0]) == (
        19 * MIB, 10 * MIB, {"annotation": "layer 0", "op": "aten::mm", "blocks": 1, "bytes": 4 * MIB},
    )  # fmt: skip


def test_where_layers_keep_little_nothing_is_said_of_them(tmp_path):
    """As with checkpointing: the layers are there, what is kept was made outside them."""
    events = [annotation("layer 9", 900, 5) if e["name"].startswith("layer") else e for e in memory_training()]
    f = read(write(tmp_path / "t.json", *events, launch(5, 1), kernel("a", 8, 500, 1)))
    assert f.memory[0].activation_bytes == 6 * MIB and f.memory[0].layers == ()
    assert "activations-kept" not in [found.slug for found in f.findings]


def test_the_curve_of_a_small_program(tmp_path):
    """a: 4 KiB, b: 8 KiB, a is freed, c = b + 1: 8 KiB."""
    torch = pytest.importorskip("torch")
    torch.zeros(8) + 1  # what the first call allocates for itself
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        a = torch.empty(1024)
        b = torch.ones(2048)
        del a
        c = b.add(b)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    assert c.numel() == 2048
    (curve,) = curves(load(str(tmp_path / "t.json")))
    assert curve.bytes.tolist()[:4] == [4096, 12288, 8192, 16384]
    (found,) = read(str(tmp_path / "t.json")).memory
    assert (found.peak_bytes, [(x.op, x.bytes) for x in found.alive]) == (16384, [("aten::add", 8192), ("aten::ones", 8192)])


def test_the_pages_peak_counts_what_was_there_before(tmp_path):
    path = write(tmp_path / "t.json", step(0, 0, 9), memory(1, 7, -100, 900), memory(2, 8, 50, 950))
    timeline, packed = cast(Any, (SimpleNamespace(curves=curves(load(path))), SimpleNamespace(add=lambda *_: 0)))
    assert page_payload._curves(timeline, packed)[0]["peak"] == 1000


def test_a_level_that_is_reached_again_is_the_peak_with_what_is_alive_at_it(tmp_path):
    events = [memory(1, 7, -100, 900), op("aten::mm", 1.5, 2), memory(2, 8, 100, 1000)]
    (found,) = read(write(tmp_path / "t.json", step(0, 0, 9), *events)).memory
    assert (found.peak_bytes, found.peak_us, found.before_bytes) == (1000, 2, 900)
