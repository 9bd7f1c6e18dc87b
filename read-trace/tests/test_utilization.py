"""The operations of a step, and what the device could do in that time."""

import json
from pathlib import Path
import re

import pytest
from reader_helpers import GALLERY
from reader_helpers.events import GEMM, document, kernel, launch, op, step
from reader_helpers.recordings import TRACES
from trace_reader import cli, read
from trace_reader.analysis.trace.utilization import utilization

BF16 = "c10::BFloat16"


@pytest.fixture
def made(tmp_path):
    """Three steps of a product of n x n in bf16, and of another kernel; a step takes 200 us without the profiler."""

    def written(n=4096, other_us=0, plain_us=(200, 200), device="NVIDIA H200", dims=True, devices=1):
        events = []
        for k in range(3):
            at, shapes = 1000 * k, {"Input Dims": [[n, n], [n, n]], "Input type": [BF16, BF16]} if dims else {}
            events += [step(k, at, 990), op("aten::mm", at + 10, 30, **shapes), launch(at + 20, 10 * k + 1)]
            events += [kernel(GEMM, at + 50, 180, 10 * k + 1)]
            if devices > 1:
                events += [launch(at + 30, 10 * k + 5), kernel(GEMM, at + 50, 180, 10 * k + 5, device=1)]
            if other_us:
                events += [op("mine::work", at + 60, 10), launch(at + 62, 10 * k + 2)]
                events += [kernel("mine", at + 300, other_us, 10 * k + 2)]
        low, high = plain_us
        header: dict[str, object] = {"plain_step_us": {"low": low, "median": (low + high) / 2, "high": high}}
        header["deviceProperties"] = [{"id": 0, "name": device, "totalGlobalMem": 1, "computeMajor": 9, "computeMinor": 0}]
        path = tmp_path / "t.json"
        path.write_text(json.dumps(document(*events, **header)))
        return str(path)

    return written


def test_a_product_at_the_devices_peak(made):
    """2 x 4096^3 operations: at 989 TFLOP/s 138.97 us."""
    found = utilization(read(made()))
    assert (found.flop, found.low, found.unknown) == (2 * 4096**3, pytest.approx(138.97 / 200, abs=1e-4), 0.0)
    assert found.low == found.high
    found = utilization(read(made(plain_us=(180, 240))))
    assert (found.low, found.high) == (pytest.approx(138.97 / 240, abs=1e-4), pytest.approx(138.97 / 180, abs=1e-4))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "operations per step: 137.44 GFLOP, 69% of the device's peak for their types (MFU)"),
        ({"plain_us": (180, 240)}, "operations per step: 137.44 GFLOP, 58% to 77% of the device's peak for their types (MFU)"),
        ({"other_us": 60}, "operations per step: 137.44 GFLOP, 69% of the device's peak for their types (MFU); 25% of the "
         "GPU's time is in ops that are not counted"),
        ({"n": 128}, "operations per step: 4.19 MFLOP, less than 0.1% of the device's peak for their types (MFU)"),
        ({"other_us": 200}, None),  # more than half of the GPU's time is in ops that are not known
        ({"device": "NVIDIA Unknown 1"}, None),
        ({"dims": False}, None),
        ({"plain_us": (100, 120)}, None),  # more than the device can: one of the two is wrong
        ({"devices": 2}, None),
    ],
    ids=["measured", "range", "others", "small", "unknown", "device", "no shapes", "too much", "two GPUs"],
)  # fmt: skip
def test_it_is_told_where_it_is_known(made, capsys, more, said):
    assert cli.main([made(**more), "--all"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (said in out) if said else ("operations per step" not in out)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4", 494.7),  # tensor cores take fp32 as tf32
        ("ampere_sgemm_128x64_tn", 66.9),
        ("mine", None),
    ],
)
def test_products_of_fp32_are_counted_at_the_peak_of_what_computes_them(made, tmp_path, name, peak):
    events = json.loads(Path(made(n=2048)).read_text())
    for event in events["traceEvents"]:
        if event["cat"] == "kernel":
            event["name"] = name
        if event["name"] == "aten::mm":
            event["args"]["Input type"] = ["float", "float"]
    events["plain_step_us"] = {"low": 1000, "median": 1000, "high": 1000}
    (tmp_path / "fp32.json").write_text(json.dumps(events))
    found = utilization(read(str(tmp_path / "fp32.json")))
    if peak is None:
        assert found is None
    else:
        assert found.low == pytest.approx(2 * 2048**3 / peak / 1e6 / 1000, rel=0.01)


def test_the_utilization_of_an_estimated_step_says_so(tmp_path, capsys):
    trace = json.loads((GALLERY / TRACES["03_eager"]).read_text())
    trace.pop("plain_step_us", None)
    (tmp_path / "estimated.json").write_text(json.dumps(trace))
    assert cli.main([str(tmp_path / "estimated.json"), "--all"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"per step: [\d.]+ GFLOP, \d+% to \d+% of the device's peak for their types \(MFU, by the estimated step\)", said
    )


def test_in_json_and_among_runs(made, capsys):
    path = made(plain_us=(180, 240))
    assert cli.main([path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["mfu"]
    assert told == {
        "flop": 137438953472,
        "low": pytest.approx(0.579, abs=1e-3),
        "high": pytest.approx(0.772, abs=1e-3),
        "unknown": 0,
    }
    assert cli.main(["runs", path]) == 0
    assert "58% to 77%" in capsys.readouterr().out
    assert cli.main(["runs", made(dims=False)]) == 0
    assert "MFU" not in capsys.readouterr().out
