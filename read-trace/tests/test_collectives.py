"""Collectives by kind and size, with the bus bandwidth of nccl-tests, and what devices can reach."""

import json

import pytest
from reader_helpers.events import kernel, launch, step, write
from trace_reader import cli, read
from trace_reader.analysis.trace.collectives import bus_factor
from trace_reader.names.devices import peak

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def collective(n, ts, dur, name="allreduce", elements=(1000, 1000), ranks=4, dtype="BFloat16", group="0"):
    said = {"Collective name": name, "In msg nelems": elements[0], "Out msg nelems": elements[1], "Group size": ranks,
            "dtype": dtype, "Process Group Name": group}  # fmt: skip
    return [launch(ts, n), kernel(NCCL, ts + 1, dur, n, stream=17, **said)]


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        ("allreduce", 2, 1), ("allreduce", 4, 1.5), ("_allgather_base", 4, 0.75), ("reduce_scatter_tensor_coalesced", 4, 0.75),
        ("all_to_all", 8, 0.875), ("broadcast", 4, 1), ("reduce", 4, 1), ("send", 2, None),
        ("allreduce", 1, None), ("allreduce", 0, None),
    ],
)  # fmt: skip
def test_bytes_on_the_bus(name, ranks, factor):
    assert bus_factor(name, ranks) == factor


def test_collectives_by_kind_group_and_size(tmp_path):
    path = write(
        tmp_path / "t.json", step(0, 0, 900),
        *collective(1, 0, 30), *collective(2, 100, 10), *collective(3, 200, 20),  # 2,000 B: 3,000 on the bus
        *collective(4, 300, 8, "_allgather_base", (500, 2000)),  # the larger side: 4,000 B
        *collective(5, 400, 5, group="1"), *collective(6, 500, 4, elements=(None, None)), *collective(7, 600, 3, dtype="Odd"),
        launch(700, 8), kernel("ncclKernel_SendRecv", 710, 5, 8),  # says nothing
    )  # fmt: skip
    facts = read(path)
    told = [
        (c.name, c.group, c.bytes, c.calls, c.median_us, c.min_us, c.bus_gb_per_s, c.best_bus_gb_per_s) for c in facts.collectives
    ]
    assert told == [
        ("allreduce", "0", 2000, 3, 20, 10, 0.15, 0.3), ("_allgather_base", "0", 4000, 1, 8, 8, 0.375, 0.375),
        ("allreduce", "1", 2000, 1, 5, 5, 0.6, 0.6), ("allreduce", "0", None, 1, 4, 4, None, None),
        ("allreduce", "0", None, 1, 3, 3, None, None),
    ]  # fmt: skip


def test_the_numbers_of_collectives_make_no_kinds_of_them(tmp_path):
    calls = [
        e for n in (1, 2) for e in (launch(n, n), kernel(NCCL, 100 * n, 10, n, **{"Collective name": "allreduce", "Seq": n}))
    ]
    assert [(c.name, c.calls) for c in read(write(tmp_path / "t.json", *calls)).collectives] == [("allreduce", 2)]


def test_collectives_are_told(tmp_path, capsys):
    path = write(tmp_path / "t.json", step(0, 0, 900), *collective(1, 0, 30, elements=(10**6, 10**6)))
    assert cli.main([path, "--all"]) == 0
    assert "  allreduce       0      4  2.00      1  30.0 µs  30.0 µs  30.0 µs     100.0\n" in capsys.readouterr().out
    assert cli.main([path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collectives"] == [
        {"name": "allreduce", "group": "0", "group_size": 4, "bytes": 2_000_000, "calls": 1, "total_us": 30, "median_us": 30,
         "min_us": 30, "bus_gb_per_s": 100, "best_bus_gb_per_s": 100},
    ]  # fmt: skip


@pytest.mark.parametrize("said", [["a", "list"], {"an": "object"}, 7, None])
def test_odd_arguments_of_a_collective_do_no_harm(tmp_path, said):
    odd = {"Collective name": "allreduce", "In msg nelems": said, "Out msg nelems": said, "Group size": said, "dtype": said}
    (found,) = read(write(tmp_path / "t.json", launch(0, 1), kernel(NCCL, 1, 5, 1, **odd))).collectives
    assert found.calls == 1 and found.bytes is None


@pytest.mark.parametrize(
    ("device", "what", "value"),
    [
        ("NVIDIA H200", "memory", 4800), ("NVIDIA H200", "bf16", 989), ("NVIDIA H200 NVL", "bf16", 835),
        ("NVIDIA L4", "memory", 300),
        ("NVIDIA L40S", "memory", 864), ("NVIDIA GeForce RTX 4090", "fp16", 165.2), ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("Tesla V100-SXM2-32GB", "bf16", None), ("AMD Instinct MI300X", "memory", 5300), ("NVIDIA H200x", "memory", None),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156), ("NVIDIA A100-SXM4-80GB", "memory", 2039),
        ("NVIDIA A100-SXM4-40GB", "memory", 1555), ("NVIDIA A100 80GB PCIe", "memory", 1935), ("", "memory", None),
        ("GB200", "bf16", None),
    ],
)  # fmt: skip
def test_peaks_are_of_the_whole_name(device, what, value):
    assert peak(device, what) == value


def test_the_larger_of_what_goes_in_and_comes_out_is_the_message(tmp_path):
    events = [*collective(1, 0, 30, "reduce_scatter", (4000, 1000)), *collective(2, 100, 30, "allgather", (1000, 3000))]
    facts = read(write(tmp_path / "t.json", step(0, 0, 900), *events))
    assert {c.name: c.bytes for c in facts.collectives} == {"reduce_scatter": 8000, "allgather": 6000}
