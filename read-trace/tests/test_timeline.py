"""What a picture and a page show of one trace: the same kinds, the same idle time, the same bands, on every recording."""

import base64
import gzip
from types import SimpleNamespace
from typing import cast

from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
import numpy as np
import pytest
from reader_helpers import FAULTS, GALLERY, RECORDINGS
from reader_helpers.events import ADD, GEMM, MIB, annotation, kernel, launch, memcpy, memory, memset, on, op, step, write
from trace_reader import examine, load, read_job
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.model.slices import ON_GPU, Kind
from trace_reader.names.work_kinds import work_kind
from trace_reader.report import lights
from trace_reader.report.theme import COLOURS, IDLE
from trace_reader.report.timeline import KINDS, Timeline, rank_band
from trace_reader.report.trace_tables import collective_light
from trace_reader.write import job_picture, trace_picture
from trace_reader.write.page_payload import DrawnSlices, panel, rank_panel
from trace_reader.write.trace_picture import PictureRange, draw

EVERY = sorted([*GALLERY.glob("*/*.json"), *(RECORDINGS / "llm").glob("*.json.gz"), *FAULTS.glob("*.json.gz")])
JOBS = sorted({path.name.partition("_rank")[0] for path in (RECORDINGS / "several_gpus").glob("*_rank*.json.gz")})
NEAR = (-1, 0, 1)  # ns: the picture's axis is a float
TYPES = {"f64": "<f8", "i32": "<i4", "u8": "u1"}


def columns_of(panel_):
    """Return the arrays that a page's script unpacks, by name."""
    data, at, found = gzip.decompress(base64.b64decode(panel_.columns)), 0, {}
    for name, kind, n in panel_.head["columns"]:
        size = np.dtype(TYPES[kind]).itemsize
        planes = np.frombuffer(data, np.uint8, n * size, at).reshape(size, n)
        found[name] = np.ascontiguousarray(planes.T).reshape(-1).view(TYPES[kind]) if n else np.empty(0)
        at += n * size
    return found


def page_of(timeline):
    """(the kinds of each slice, by name and start, and the idle bands) as the page has them."""
    shown = DrawnSlices(0, timeline)
    made = panel(shown, "")
    columns = columns_of(made)
    starts = np.cumsum(columns["start"])
    names, categories = made.head["names"], [name for name, _ in made.head["categories"]]
    kinds = {
        (round(start / 1000, 3), names[name]): categories[kind]
        for start, name, kind in zip(starts.tolist(), columns["name"].tolist(), columns["category"].tolist(), strict=True)
    }
    bands = {
        band["label"]: [
            (start / 1000, end / 1000)
            for start, end in zip(columns[f"{band['name']}_start"].tolist(), columns[f"{band['name']}_end"].tolist(), strict=True)
        ]
        for band in made.head["bands"]
    }
    return kinds, bands


def picture_of(timeline):
    """(the colours of the slices on the GPU that are drawn, by their start on the axis; where idle is drawn) in the picture."""
    figure = draw([timeline], PictureRange())
    ax = figure.axes[0]
    colours: dict[tuple[float, float], set[str]] = {}
    for collection in ax.collections:
        if isinstance(collection, PolyCollection):
            for path, colour in zip(collection.get_paths(), np.asarray(collection.get_facecolor()), strict=True):
                across = np.asarray(path.vertices)[:, 0]
                key = round(float(across.min()), 3), round(float(across.max()), 3)
                colours.setdefault(key, set()).add(to_hex(colour))
    idle = set()
    for patch in ax.patches:
        if to_hex(patch.get_facecolor()) == IDLE:
            assert isinstance(patch, Rectangle)
            idle.add((round(patch.get_x(), 3), round(patch.get_x() + patch.get_width(), 3)))
    return colours, idle


def check(timeline, monkeypatch):
    """Each slice of the page that the picture draws has the same colour there; each idle stretch of the picture is the page's."""
    axes = []
    make = trace_picture.Axis

    def kept(*args):
        axes.append(make(*args))
        return axes[-1]

    monkeypatch.setattr(trace_picture, "Axis", kept)
    kinds, bands = page_of(timeline)
    colours, idle = picture_of(timeline)
    (x,) = axes
    compared = 0
    for event in timeline.trace.slices:
        if event.kind not in ON_GPU or not x.start_us <= event.start_us < x.end_us:
            continue
        drawn = colours.get((round(x(event.start_us), 3), round(x(event.end_us), 3)))
        if drawn is not None:  # the narrowest of very many are left out
            name = event.name if len(event.name) <= 2000 else None
            assert name is None or COLOURS[kinds[round(event.start_us, 3), name]] in drawn, event
            compared += 1
    assert compared or not len(timeline.trace.work)
    stretches = {(round(x(a), 3), round(x(b), 3)) for band in bands.values() for a, b in band}
    assert idle <= stretches
    wide = {(a, b) for a, b in stretches if b - a > x.length_us / 400 + 0.002}
    assert wide <= idle


@pytest.mark.slow
@pytest.mark.parametrize("path", EVERY, ids=lambda path: f"{path.parent.name}/{path.name.partition('.')[0]}")
def test_the_picture_and_the_page_show_the_same(path, monkeypatch):
    trace = load(str(path))
    check(Timeline(examine(trace)), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_the_picture_and_the_page_of_a_job_show_the_same(job):
    """A rank's band: its stretches on the page, and what its lane in the picture is made of."""
    paths = sorted(map(str, (RECORDINGS / "several_gpus").glob(f"{job}_rank*.json.gz")))
    facts, _ = read_job(paths)
    start_ns = min(summary.window_ns[0] + (offset or 0) for summary, offset in zip(facts.summaries, facts.offset_ns, strict=True))
    ax = job_picture.draw(facts, PictureRange()).axes[0]
    drawn: dict[tuple[int, str], set[tuple[int, int]]] = {}
    for collection in ax.collections:
        for path in collection.get_paths():
            left, top, right, _ = path.get_extents().extents
            key = int(top), to_hex(np.asarray(collection.get_facecolor())[0])
            drawn.setdefault(key, set()).add((round(float(left) * 1e6), round(float(right) * 1e6)))
    for place in range(len(facts.ranks)):
        made = rank_panel(facts, place, None)
        columns, texts = columns_of(made), made.head["bands"][0]["texts"]
        for number, (_, colour, _) in enumerate(texts):
            of_kind = columns["band0_text"] == number
            offset = (facts.offset_ns[place] or 0) - start_ns
            sides = [(columns[f"band0_{side}"][of_kind] + offset).astype(int).tolist() for side in ("start", "end")]
            there = drawn.get((place, IDLE if colour == "idle" else COLOURS[colour]), set())
            assert {(a, b) for a, b in zip(*sides, strict=True)} <= {(a + d, b + e) for a, b in there for d in NEAR for e in NEAR}


def made(tmp_path, *events):
    trace = load(write(tmp_path / "t.json", *events))
    return Timeline(examine(trace))


def test_a_made_trace_is_shown_the_same(tmp_path, monkeypatch):
    events = [step(0, 0, 100), step(1, 100, 100), op("aten::mm", 5, 10), *(launch(6 + n, n) for n in range(1, 6))]
    events += [
        kernel(GEMM, 20, 30, 1),
        kernel(ADD, 60, 10, 2, stream=9),
        memcpy(90, 5, 3),
        memset(96, 1, 4),
        kernel("own", 150, 9, 5),
    ]
    timeline = made(tmp_path, *events)
    check(timeline, monkeypatch)
    ((device, band),) = timeline.idle
    assert (device, band.label) == (0, "GPU idle")
    assert list(zip(band.start_ns.tolist(), band.end_ns.tolist(), strict=True)) == [
        (0, 20_000), (50_000, 60_000), (70_000, 90_000), (95_000, 96_000), (97_000, 150_000),
    ]  # fmt: skip
    gpu = [(e.name, KINDS[timeline.kinds[e.row]]) for e in timeline.trace.slices if e.kind in ON_GPU]
    assert gpu == [(GEMM, "GEMM"), (ADD, "pointwise"), ("Memcpy DtoD (Device -> Device)", "copy"), ("Memset (Device)", "copy"),
                   ("own", "other")]  # fmt: skip


def test_lanes_are_threads_then_streams_in_order(tmp_path):
    events = [
        step(0, 0, 100),
        launch(1, 1),
        launch(2, 2),
        launch(3, 3),
        *on(2, *(op("aten::add", n, 1) for n in range(5, 50, 2))),
    ]
    events += [kernel(ADD, 10, 5, 1, stream=20), kernel(ADD, 20, 5, 2, stream=7), kernel(ADD, 30, 5, 3, stream=9, device=1)]
    lanes = made(tmp_path, *events).lanes
    assert [(lane.label, lane.on_gpu) for lane in lanes] == [
        ("thread 1", False), ("thread 2", False), ("GPU 0 stream 7", True), ("GPU 0 stream 20", True), ("GPU 1 stream 9", True),
    ]  # fmt: skip


FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, {}>(int)"


@pytest.mark.parametrize(
    ("name", "kind", "op_name", "call", "in_optimizer", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", Kind.KERNEL, None, None, False, "communication"),
        ("Memset (Device)", Kind.MEMSET, "aten::mm", None, False, "copy"),
        (FOREACH.format("FusedAdamMathFunctor<float>"), Kind.KERNEL, "aten::_fused_adamw_", None, False, "optimizer"),
        (FOREACH.format("Copy<float, float>"), Kind.KERNEL, "aten::_foreach_copy_", None, False, "copy"),
        (FOREACH.format("Copy<float, float>"), Kind.KERNEL, "aten::_foreach_copy_", None, True, "optimizer"),
        ("void at::native::CatArrayBatchedCopy<float, 2>(int)", Kind.KERNEL, "aten::cat", None, False, "copy"),
        (FOREACH.format("ZeroFunctor<float>"), Kind.KERNEL, "aten::_foreach_zero_", None, False, "copy"),
        (FOREACH.format("LpNormFunctor<float>"), Kind.KERNEL, "aten::_foreach_norm", None, False, "softmax, norm, reduction"),
        (FOREACH.format("BinaryOpScalarFunctor<float>"), Kind.KERNEL, "aten::_foreach_mul_", None, False, "pointwise"),
        ("void at::native::vectorized_layer_norm_kernel<float>(int)", Kind.KERNEL, "aten::native_layer_norm", None, False,
         "softmax, norm, reduction"),
        ("geglu_kernel", Kind.KERNEL, None, "cuLaunchKernelEx", False, "Triton"),
        ("geglu_kernel", Kind.KERNEL, None, "cudaLaunchKernel", False, "other"),
        ("geglu_kernel", Kind.KERNEL, "aten::mm", "cuLaunchKernel", False, "other"),
        ("void mine::kernel<float>(int)", Kind.KERNEL, None, "cuLaunchKernel", False, "other"),
        (ADD, Kind.KERNEL, "aten::convolution_backward", None, False, "convolution"),
        ("void splitKreduce_kernel<32, 16, int, c10::BFloat16, float>(int)", Kind.KERNEL, "aten::mm", None, False,
         "GEMM"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0", Kind.KERNEL, "aten::mm", None, False, "GEMM"),
    ],
)  # fmt: skip
def test_the_kind_of_a_kernels_work(name, kind, op_name, call, in_optimizer, expected):
    assert work_kind(name, kind, op_name, call, in_optimizer) == expected


def test_a_list_of_tensors_in_an_optimizers_step_is_the_optimizers(tmp_path):
    name = FOREACH.format("BinaryOpListAlphaFunctor<float>")
    inside = [
        annotation("Optimizer.step#AdamW.step", 10, 40),
        op("aten::_foreach_add_", 12, 10),
        launch(14, 1),
        kernel(name, 60, 5, 1),
    ]
    outside = [op("aten::_foreach_add_", 12, 10), launch(14, 1), kernel(name, 60, 5, 1)]
    for events, kind in ((inside, "optimizer"), (outside, "pointwise")):
        (family,) = made(tmp_path, step(0, 0, 100), *events).facts.work_kinds
        assert family.work_kind == kind


def test_a_ranks_band_fills_its_window(tmp_path):
    paths = sorted(map(str, (RECORDINGS / "several_gpus").glob("data_parallel_slow5_rank*.json.gz")))
    facts, _ = read_job(paths)
    for place, summary in enumerate(facts.summaries):
        band = rank_band(facts, place)
        whole = [kind.half == 0 for kind in band.kinds]
        upper = np.array([kind.half in (0, 1) for kind in band.kinds])[band.kind]
        assert band.label == f"rank {summary.rank}" and whole == [True, False, False, False, False]
        idle = int((band.end_ns - band.start_ns)[band.kind == 0].sum())
        assert idle / 1000 == pytest.approx(facts.ranks[place].idle_us, abs=0.001)
        assert (band.start_ns[upper][1:] >= band.end_ns[upper][:-1]).all()


def test_a_row_of_a_collective_lights_up_the_calls_of_its_group(tmp_path):
    events = [step(0, 0, 1000)]
    for n, group in enumerate("01"):
        said = {"Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2,
                "dtype": "BFloat16", "Process Group Name": group, "Process Group Ranks": "[0, 1]"}  # fmt: skip
        events += [launch(100 * n, n + 1), kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 100 * n + 1, 10, n + 1, **said)]
    trace = load(write(tmp_path / "t.json", *events))
    timeline = Timeline(examine(trace))
    lit = {row.group: collective_light(timeline, row).rows.start_ns.tolist() for row in timeline.facts.collectives}
    assert lit == {"0": [1000], "1": [101_000]}


def test_the_causes_of_idle_time_are_those_of_the_device_that_ends_last(tmp_path):
    """Two GPUs that are idle from the same moment on."""
    events = [step(0, 0, 300)]
    for device in (0, 1):
        events += [launch(device, 1 + device), kernel(GEMM, 10, 40, 1 + device, device=device)]
        events += [launch(200 + device, 3 + device), kernel(GEMM, 210, 40 + device, 3 + device, device=device)]
    trace = load(write(tmp_path / "t.json", *events))
    (first, of_first), (second, of_second) = Timeline(examine(trace)).idle
    assert (first, second) == (1, 0)
    assert [of_first.kinds[kind].text for kind in of_first.kind.tolist()][-1] == "idle, nothing recorded"
    assert [of_second.kinds[kind].text for kind in of_second.kind.tolist()] == ["idle", "idle"]


def test_of_many_waits_the_longest_light_up(monkeypatch):
    monkeypatch.setattr(lights, "MOST_SPANS", 1)
    job = SimpleNamespace(waits_ns=[(np.array([0, 100]), np.array([10, 200]))])
    assert lights.waits_of(cast(JobFacts, job), 0).spans_ns.tolist() == [[100, 200]]


def test_the_peak_of_memory_that_only_falls_is_its_beginning(tmp_path):
    events = step(0, 0, 100), memory(20, 100, -2 * MIB, 8 * MIB), memory(30, 101, -MIB, 7 * MIB)
    trace = load(write(tmp_path / "t.json", *events))
    (curve,) = panel(DrawnSlices(0, Timeline(examine(trace))), "t").head["curves"]
    assert (curve["first"], curve["peak"]) == (10 * MIB, 10 * MIB)
