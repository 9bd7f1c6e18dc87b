"""Hardware counters, which torch 2.15 samples on the GPU.

The files are made by hand, or by torch's own exporter from columns made by hand: no GPU with torch 2.15 was at hand.
"""

import gzip
import json

from matplotlib.axes import Axes
import numpy as np
import pytest
from reader_helpers.events import ADD, GEMM, call, document, kernel, launch, op, step
from reader_helpers.other_forms import torchs_exporter, window
from trace_reader import cli, read
from trace_reader.analysis.trace.counter_facts import short_name
from trace_reader.write import roofline_picture

BASE_NS = 1_700_000_000_000_000_000


def sample(at_us, name, value, device=0):
    return {"ph": "C", "name": name, "pid": f"GPU {device} Counters", "ts": float(at_us), "args": {"": value}}


# Ten samples in two steps; the GEMM fills those at 20, 30 and 40, two runs of the add that at 60, both together that at 80.
KERNELS = (
    launch(1, 1), kernel(GEMM, 20, 30, 1), launch(4, 2), kernel(ADD, 60, 5, 2), launch(7, 3), kernel(ADD, 65, 5, 3),
    launch(71, 4), kernel(GEMM, 80, 10, 4), launch(74, 5), kernel(ADD, 80, 10, 5, stream=9),
)  # fmt: skip
ACTIVE = [0, 0, 90, 80, 100, 5, 40, 0, 99, 7]
RUN = document(
    step(2, 0, 70), *KERNELS, step(3, 70, 30), call("cudaDeviceSynchronize", 92, 6, 9),
    *(sample(10 * n, "SM Active (%)", value) for n, value in enumerate(ACTIVE)),
    *(sample(50 * n, "Power (W)", value) for n, value in enumerate((400.5, 600, 700))),
)  # fmt: skip


def written(path, trace=RUN):
    path.write_text(json.dumps(trace))
    return path


def told(capsys, path, *flags):
    assert cli.main([str(path), *flags]) == 0
    return capsys.readouterr().out


def test_the_report_tells_means_by_time(tmp_path, capsys):
    """The sample at 10 holds while the GPU is idle, that at 20 while it works; the third of power begins after the window."""
    said = told(capsys, written(tmp_path / "a.json"), "--all")
    assert said.partition("Hardware counters of")[2].partition("\n\nThe GPU's time")[0] == (
        """ GPU 0 (means by time, in the recorded steps; GPU busy:
while it works)
  counter        samples     each   mean  GPU busy  lowest  highest
  SM Active (%)       10  10.0 µs   42.1      81.8     0.0    100.0
  Power (W)            2  50.0 µs  500.2     480.3   400.5    600.0

Hardware counters by kernel (of samples that a kernel fills alone)
  kernel              counter        samples  mean
  nvjet GEMM 256x128  SM Active (%)        3  90.0
  add                 SM Active (%)        1  40.0"""
    )


def test_the_json_tells_the_same(tmp_path, capsys):
    data = json.loads(told(capsys, written(tmp_path / "a.json"), "--json"))
    assert data["counters"][0] == {
        "device": 0, "name": "SM Active (%)", "samples": 10, "interval_us": 10.0, "mean": 42.1, "mean_busy": 81.8,
        "low": 0.0, "high": 100.0,
    }  # fmt: skip
    assert [(k["device"], k["counter"], k["samples"], k["mean"]) for k in data["kernel_counters"]] == [
        (0, "SM Active (%)", 3, 90.0), (0, "SM Active (%)", 1, 40.0),
    ]  # fmt: skip


def test_a_lost_sample_does_not_stretch_the_one_before(tmp_path):
    """The samples from 50 to 70 are lost; that at 40 holds for twice the usual interval, no longer."""
    events = [one for one in RUN["traceEvents"] if one["ph"] != "C" or one["ts"] not in (50, 60, 70)]
    (active, _) = read(str(written(tmp_path / "a.json", document(*events)))).counters
    assert active.samples == 7 and active.interval_us == 10
    assert active.mean == pytest.approx((0 + 0 + 90 + 80 + 100 * 2 + 99 + 7) / 8)


def test_without_steps_the_window_is_the_gpu_s_work(tmp_path):
    events = [one for one in RUN["traceEvents"] if not one["name"].startswith("ProfilerStep")]
    active, power = read(str(written(tmp_path / "a.json", document(*events)))).counters
    assert (active.samples, active.low, active.high) == (10, 0, 100)  # of all that was recorded, as of one step
    assert power.samples == 2 and power.mean == pytest.approx((400.5 * 49 + 600 * 48) / 97)  # from 1 to 98


def test_each_device_has_its_own(tmp_path, capsys):
    more = [sample(10 * n, "SM Active (%)", 50, device=1) for n in range(10)]
    path = written(tmp_path / "a.json", document(*RUN["traceEvents"], *more))
    facts = read(str(path))
    assert [(counter.device, counter.mean_busy) for counter in facts.counters] == [
        (0, pytest.approx(81.8)),
        (0, pytest.approx(480.3)),
        (1, None),
    ]
    assert {counter.device for counter in facts.kernel_counters} == {0}
    assert "\n  1    SM Active (%)       10  10.0 µs   50.0   unknown    50.0     50.0\n" in told(capsys, path, "--all")


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        ({"pid": "GPU x Counters"}, 10), ({"pid": 7}, 10), ({"ts": None}, 10), ({"args": 5}, 10), ({"args": None}, 10),
        ({"args": {}}, 10), ({"args": {"": "8"}}, 10), ({"args": {"": True}}, 10), ({"args": {"": 1e300}}, 10),
        ({"args": {"": 10**400}}, 10), ({"args": {"a": 1, "b": 2}}, 10), ({"name": "Cycles (Current Kernel)"}, 0),
    ],
)  # fmt: skip
def test_what_is_no_counter_is_none(tmp_path, change, left_out):
    events = [{**one, **change} if one["name"] == "SM Active (%)" else one for one in RUN["traceEvents"]]
    facts = read(str(written(tmp_path / "a.json", document(*events))))
    assert [counter.name for counter in facts.counters] == ["Power (W)"] and facts.kernel_counters == ()
    assert facts.skipped.get("counter", 0) == left_out and facts.events == len(events)


def test_times_since_1970_and_a_broken_event_change_nothing(tmp_path):
    """Where one event cannot be read, the others are read one by one."""
    whole = read(str(written(tmp_path / "a.json")))
    later = [{**one, "ts": one["ts"] + 1.7e15} if "ts" in one else one for one in RUN["traceEvents"]]
    assert read(str(written(tmp_path / "b.json", document(*later)))).counters == whole.counters
    text = json.dumps(RUN).replace('"traceEvents": [', '"traceEvents": [{"ph": "X", "name": 5, "dur": []}, ')
    (tmp_path / "c.json").write_text(text)
    broken = read(str(tmp_path / "c.json"))
    assert broken.counters == whole.counters and broken.kernel_counters == whole.kernel_counters and broken.first_bad


def test_both_forms_that_torch_writes_say_the_same(tmp_path, capsys):
    """Two devices, whose samples name their counters in descriptors of their own."""
    try:
        exporter = torchs_exporter()
    except ImportError:
        pytest.skip("torch before 2.15 does not write counters")
    other = [launch(11, 21), kernel(GEMM, 30, 40, 21, device=1)]
    cpu, columns = window(document(step(2, 0, 70), *KERNELS, *other, step(3, 70, 30)), BASE_NS)
    at = BASE_NS + 10_000 * np.arange(10)
    columns["columns"]["pm_sampling"] = {
        "start_ns": np.concatenate([at, at]),
        "device_id": np.repeat([0, 1], 10),
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": np.array([*ACTIVE, *ACTIVE[::-1]], float),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": np.arange(20.0),
        "lts__hits": np.arange(20.0),
    }
    watts = 1000 * np.array([400, 600], np.uint64)
    columns["columns"]["environment"] = {
        "start_ns": BASE_NS + np.array([0, 50_000]), "device_id": np.zeros(2, int), "environment_kind": np.array([3, 3]),
        "data": watts,
    }  # fmt: skip
    (tmp_path / "cpu.json").write_text(json.dumps(cpu))
    facts = []
    for name in ("run.pftrace", "run.json"):
        exporter.merge_trace_window_into_chrome_trace(tmp_path / "cpu.json", tmp_path / name, columns)
        facts.append(read(str(tmp_path / name)))
    assert facts[0].counters == facts[1].counters and facts[0].kernel_counters == facts[1].kernel_counters
    assert [(counter.device, counter.name, counter.mean) for counter in facts[1].counters] == [
        (0, "SM Active (%)", 42.1), (0, "DRAM BW (%)", 4.5), (0, "lts__hits", 4.5), (0, "Power (W)", 500.0),
        (1, "SM Active (%)", 42.1), (1, "DRAM BW (%)", 14.5), (1, "lts__hits", 14.5),
    ]  # fmt: skip
    assert {(counter.device, counter.samples) for counter in facts[1].kernel_counters if counter.counter == "SM Active (%)"} == {
        (0, 3),
        (0, 1),
        (1, 4),
    }


# Two products of matrices; each GEMM fills samples alone, the smaller one on two devices.
PRODUCTS = document(
    step(2, 0, 100),
    *(e for n, size in enumerate((1024, 512, 512))
      for shapes in [{"Input Dims": [[size, size]] * 2, "Input type": ["c10::BFloat16"] * 2}]
      for e in (op("aten::mm", 3 * n, 2, **shapes), launch(3 * n + 1, n),
                kernel(GEMM, 20 + 25 * min(n, 1), 20, n, device=n // 2))),
    *(sample(5 * n, name, value + n, device) for device in (0, 1) for n in range(20)
      for name, value in (("SM Active (%)", 80), ("HBM BW (%)", 40), ("SM Clock (MHz)", 1900))),
    *(sample(5 * n, "sm__inst_executed_pipe_tensor_op_hmma.max.pct_of_peak_sustained_active", 70.0) for n in range(20)),
)  # fmt: skip


def test_ops_by_shape_say_what_was_counted(tmp_path, capsys, monkeypatch):
    """One kernel name, two shapes: what the counters say of the one is not said of the other."""
    path = written(tmp_path / "a.json", PRODUCTS)
    data = json.loads(told(capsys, path, "--json"))
    assert [tuple(c.values()) for c in data["op_counters"] if c["counter"] == "SM Active (%)"] == [
        (0, "aten::mm", "2 of 512x512 bf16", "SM Active (%)", 8, 90.5),
        (1, "aten::mm", "2 of 1024x1024 bf16", "SM Active (%)", 4, 85.5),
    ]  # fmt: skip
    assert told(capsys, path, "--md", "--all").partition("Ops by shape")[2].strip() == (
        """(per step; of peak: of the limit; to gain: up to the usual; DRAM, SM: as counted)

| op | inputs | calls | time | rate | limit | of peak | to gain | DRAM | SM |
|---|---|---|---|---|---|---|---|---|---|
| mm | 2 of 512x512 bf16 | 2 | 40.0 µs | 79 GB/s | memory | 1.6% | 36.0 µs | 50.5% | 90.5% |
| mm | 2 of 1024x1024 bf16 | 1 | 20.0 µs | 107 TFLOP/s | compute | 10.9% | 16.9 µs | 45.5% | 85.5% |"""
    )
    texts = []
    monkeypatch.setattr(Axes, "text", lambda axes, x, y, text, **how: texts.append(text))
    roofline_picture.plot(read(str(path)), ".svg")
    assert [line.partition("limit")[2] for line in texts[0].splitlines()] == [
        ", SM Active 90%, HBM BW 50%",
        ", SM Active 86%, HBM BW 46%",
    ]


def test_a_metric_is_told_as_torch_tells_those_that_it_knows(tmp_path, capsys):
    """Its name without how the share of the peak is taken; in the JSON as it is."""
    path = written(tmp_path / "a.json", PRODUCTS)
    assert "| sm__inst_executed_pipe_tensor_op_hmma.max (% of active) | 20 | 5.0 µs |" in told(capsys, path, "--md", "--all")
    assert [short_name(f"dram__bytes_read.{end}") for end in ("sum", "avg.per_second", "avg.pct_of_peak_sustained_elapsed")] == [
        "dram__bytes_read.sum", "dram__bytes_read.avg.per_second", "dram__bytes_read (%)",
    ]  # fmt: skip
    told(capsys, path, "--redact", str(tmp_path / "copy.json"))
    assert read(str(tmp_path / "copy.json")).counters == read(str(path)).counters


def test_without_counters_ops_by_shape_have_no_columns_for_them(tmp_path, capsys):
    events = [one for one in PRODUCTS["traceEvents"] if one["ph"] != "C"]
    said = told(capsys, written(tmp_path / "a.json", document(*events)), "--all").partition("Ops by shape")[2]
    assert said.splitlines()[0] == " (per step; of peak: of the limit; to gain: up to the usual)" and " SM" not in said


def test_a_redacted_copy_and_a_merged_file_keep_them(tmp_path, capsys):
    path = written(tmp_path / "a.json")
    told(capsys, path, "--redact", str(tmp_path / "copy.json"))
    original, copied = (read(str(name)) for name in (path, tmp_path / "copy.json"))
    assert copied.counters == original.counters
    for rank in range(2):
        trace = {**RUN, "distributedInfo": {"rank": rank, "world_size": 2}}
        written(tmp_path / f"rank{rank}.json", trace)
    told(capsys, tmp_path / "rank0.json", str(tmp_path / "rank1.json"), "--merge", str(tmp_path / "job.json.gz"))
    merged = json.loads(gzip.decompress((tmp_path / "job.json.gz").read_bytes()))["traceEvents"]
    assert {event["pid"] for event in merged if event["name"] == "SM Active (%)"} == {"GPU 0 Counters", "GPU 1 Counters"}


def test_a_longer_sample_weighs_more_in_a_kernels_mean(tmp_path):
    """Without the sample at 40, that at 30 holds for 20: 90 for 10, and 80 for 20."""
    events = [one for one in RUN["traceEvents"] if one["ph"] != "C" or one["ts"] != 40]
    first = read(str(written(tmp_path / "a.json", document(*events)))).kernel_counters[0]
    assert (first.samples, first.mean) == (2, pytest.approx((90 * 10 + 80 * 20) / 30))
    events = [one for one in PRODUCTS["traceEvents"] if one["ph"] != "C" or one["ts"] != 30]
    (larger,) = [
        counter for counter in read(str(written(tmp_path / "b.json", document(*events)))).op_counters
        if counter.row == 1 and counter.counter == "SM Active (%)"
    ]  # fmt: skip
    assert (larger.samples, larger.mean) == (3, pytest.approx((84 * 5 + 85 * 10 + 87 * 5) / 20))


def test_a_sample_that_holds_beyond_the_window_counts_in_it(tmp_path):
    """Every 100 µs from before the steps on: the one at -50 holds for 50 of them, the next one for the other 50."""
    events = [one for one in RUN["traceEvents"] if one["name"] != "SM Active (%)" and one["name"] != "Power (W)"]
    more = [sample(at, "Power (W)", value) for at, value in ((-150, 9), (-50, 300), (50, 500), (150, 9))]
    twice = [sample(at, "Twice", at) for at in (10, 10, 20, 20, 30, 30)]
    power, double = read(str(written(tmp_path / "a.json", document(*events, *more, *twice)))).counters[::-1]
    assert (power.name, power.samples, power.interval_us, power.mean) == ("Power (W)", 2, 100, 400)
    assert (double.samples, double.interval_us, double.mean) == (3, 10, 20)


def test_what_a_kernel_fills_in_the_window_alone_is_no_whole_sample(tmp_path):
    """The only samples are longer than the window, all of which a kernel takes."""
    events = [
        step(2, 0, 100),
        launch(-6, 1),
        kernel(GEMM, -5, 110, 1),
        *(sample(200 * n - 50, "SM Active (%)", 7) for n in range(3)),
    ]
    facts = read(str(written(tmp_path / "a.json", document(*events))))
    assert facts.counters[0].mean == 7 and facts.kernel_counters == ()


def test_two_ops_whose_kernels_overlap_share_their_samples(tmp_path):
    """One kernel's name, side by side on two streams: the counter is the kernel's, and neither op's."""
    events = [
        *(e for n, size in enumerate((1024, 512))
          for shapes in [{"Input Dims": [[size, size]] * 2, "Input type": ["float"] * 2}]
          for e in (op("aten::mm", 3 * n, 2, **shapes), launch(3 * n + 1, n),
                    kernel(GEMM, 20, 20, n, stream=7 + n))),
        *(sample(5 * n, "SM Active (%)", 80 + n) for n in range(10)),
    ]  # fmt: skip
    facts = read(str(written(tmp_path / "a.json", document(*events))))
    assert [counter.samples for counter in facts.kernel_counters] == [4] and len(facts.op_shapes) == 2
    assert facts.op_counters == ()


def test_a_sample_beyond_the_windows_end_fills_no_kernel(tmp_path):
    """The kernel ends with the window, in the middle of what the last sample holds for."""
    events = [
        step(2, 0, 100),
        launch(1, 1),
        kernel(GEMM, 85, 15, 1),
        *(sample(at, "SM Active (%)", 7) for at in (-10, 40, 90, 140)),
    ]
    facts = read(str(written(tmp_path / "a.json", document(*events))))
    assert facts.counters[0].mean == 7 and facts.kernel_counters == ()
