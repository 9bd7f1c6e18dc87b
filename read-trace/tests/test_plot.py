"""Pictures: what is drawn where, in made traces with numbers worked out by hand; and that no label runs into its neighbour."""

from collections import defaultdict
from itertools import pairwise
import os
from pathlib import Path
import resource
import subprocess
import sys
import time

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.text import Text
import numpy as np
import pytest
from reader_helpers import GALLERY, TOOL
from reader_helpers.events import (
    ADD,
    GEMM,
    H200,
    annotation,
    call,
    event,
    kernel,
    launch,
    memcpy,
    memory_training,
    on,
    op,
    step,
    write,
)  # fmt: skip
from trace_reader import cli, examine, load, read
from trace_reader.report import roofline
from trace_reader.report.theme import COLOURS, IDLE, MEMORY
from trace_reader.report.timeline import Timeline
from trace_reader.write import roofline_picture
from trace_reader.write.picture_axis import silences
from trace_reader.write.trace_picture import COMPILE_ROWS, MOST_THREADS, OTHERS, PictureRange, draw, plot

RECORDED = sorted(GALLERY.glob("*/*.json"))
COLD = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
LINEAR = GALLERY / "02_linear" / "1024_32_64_bf16_warm_eager.json"
FP32_GEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
)


def overlapping_labels(figure):
    """Pairs of neighbouring labels that overlap by more than 2 px on their lane."""
    found = []
    for ax in figure.axes:
        lanes = defaultdict(list)
        for text in ax.findobj(Text):
            if text in ax.texts and text.get_text() and not text.get_rotation():
                box = text.get_window_extent(figure.canvas.get_renderer())
                lanes[round((box.y0 + box.y1) / 2)].append((box.x0, box.x1, text.get_text()))
        for boxes in lanes.values():
            found += [(a[2], b[2]) for a, b in pairwise(sorted(boxes)) if b[0] < a[1] - 2]
    return found


def timeline(path):
    trace = load(str(path))
    return Timeline(examine(trace))


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text()]


def boxes(ax):
    """Return every slice that is drawn: (from, to, colour), in the axis' units."""
    found = []
    for collection in ax.collections:
        if isinstance(collection, PolyCollection):
            for path, colour in zip(collection.get_paths(), np.asarray(collection.get_facecolor()), strict=True):
                across = np.asarray(path.vertices)[:, 0]
                found.append((round(across.min(), 3), round(across.max(), 3), to_hex(colour)))
    return found


def of_colour(ax, colour):
    return sorted((left, right) for left, right, c in boxes(ax) if c == colour)


def idle(ax):
    """Return where an idle GPU is drawn: (from, to)."""
    spans = [patch for patch in ax.patches if to_hex(patch.get_facecolor()) == IDLE]
    return sorted((round(p.get_x(), 3), round(p.get_x() + p.get_width(), 3)) for p in spans)


def picture(tmp_path, *events, window=PictureRange(), **header):  # noqa: B008  # it is frozen
    return draw([timeline(write(tmp_path / "t.json", *events, **header))], window)


OTHER = event("user_annotation", "loaded before", 0, 1, {"pid": 1, "tid": 9})  # the file does not begin with a step
STEPS = [  # two steps; the kernel of the first runs into the second
    OTHER, step(3, 100, 40), op("aten::mm", 110, 20), launch(115, 1), kernel(GEMM, 130, 60, 1),
    step(4, 150, 40), op("aten::add", 160, 20), launch(165, 2), kernel(ADD, 200, 10, 2),
]  # fmt: skip
BLUE, GREEN = COLOURS["GEMM"], COLOURS["pointwise"]


def test_slices_lie_where_their_times_are_from_the_first_steps_start(tmp_path):
    (ax,) = picture(tmp_path, *STEPS).axes
    assert of_colour(ax, COLOURS["step"]) == [(0, 40), (50, 90)]
    assert of_colour(ax, COLOURS["op"]) == [(10, 30), (60, 80)]
    assert of_colour(ax, COLOURS["call"]) == [(15, 16), (65, 66)]
    assert (of_colour(ax, BLUE), of_colour(ax, GREEN)) == ([(30, 90)], [(100, 110)])
    assert idle(ax) == [(0, 30), (90, 100)]
    assert {"idle 30.0 µs", "idle 10.0 µs"} <= set(texts(ax.figure))


def test_arrows_go_from_the_end_of_a_launch_to_the_start_of_its_kernel(tmp_path):
    (ax,) = picture(tmp_path, *STEPS).axes
    arrows = [(a.xyann[0], a.xy[0]) for a in ax.texts if not a.get_text()]
    assert arrows == [(16, 30), (66, 100)]


def test_steps_shows_these_steps_with_the_gpu_work_that_they_launched_and_nothing_else(tmp_path):
    (ax,) = picture(tmp_path, *STEPS, window=PictureRange(steps=(3, 3))).axes
    assert of_colour(ax, COLOURS["step"]) == [(0, 40)] and of_colour(ax, COLOURS["op"]) == [(10, 30)]
    assert (of_colour(ax, BLUE), of_colour(ax, GREEN)) == ([(30, 90)], [])  # though step 4 began meanwhile
    (ax,) = picture(tmp_path, *STEPS, window=PictureRange(steps=(4, 4))).axes
    assert (of_colour(ax, BLUE), of_colour(ax, GREEN)) == ([], [(50, 60)])


def test_us_counts_from_the_first_step_and_cuts_slices_at_its_ends(tmp_path):
    (ax,) = picture(tmp_path, *STEPS, window=PictureRange(us=(20.0, 70.0))).axes
    assert of_colour(ax, COLOURS["step"]) == [(0, 20), (30, 50)]
    assert of_colour(ax, BLUE) == [(10, 50)]
    assert ax.get_xlim() == pytest.approx((-0.15, 50.15))


def test_a_gap_is_idle_only_where_nothing_runs_on_that_stream(tmp_path):
    """A short kernel inside a long one, as in a graph's branches, ends before it does: what follows is not idle."""
    events = [step(3, 0, 100), *(call("cudaGraphLaunch", n, 1, n) for n in (1, 2, 3))]
    events += [kernel(GEMM, 10, 50, 1), kernel(ADD, 20, 5, 2), kernel(ADD, 80, 10, 3)]
    (ax,) = picture(tmp_path, *events).axes
    assert idle(ax) == [(0, 10), (60, 80)]


def test_a_gap_of_a_hundredth_of_the_picture_is_drawn(tmp_path):
    events = [step(3, 0, 1000), launch(1, 1), launch(2, 2), kernel(GEMM, 0, 500, 1), kernel(GEMM, 510, 490, 2)]
    (ax,) = picture(tmp_path, *events).axes
    assert idle(ax) == [(500, 510)]


BACKWARD = {"pid": 1, "tid": 2}


def test_every_thread_with_a_part_has_lanes_with_its_name(tmp_path):
    """The backward pass runs on autograd's thread; one that only repeats annotations has no part."""
    events = [
        *STEPS,
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 111, 20, BACKWARD),
        event("cuda_runtime", "cudaLaunchKernel", 115, 5, BACKWARD, correlation=50),
        kernel(ADD, 140, 5, 50),
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "thread 1 (python)"}},
        event("user_annotation", "everywhere", 100, 90, {"pid": 1, "tid": 3}),
    ]
    (ax,) = picture(tmp_path, *events).axes
    names = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
    assert names[:2] == ["CPU thread 1 (python)", "CPU thread 2, autograd's"] and len([n for n in names if "CPU" in n]) == 2
    assert "everywhere" not in texts(ax.figure)


def test_a_thread_that_does_nothing_in_the_window_has_no_lane(tmp_path):
    (ax,) = picture(tmp_path, *STEPS, event("cpu_op", "aten::other", 900, 20, BACKWARD), window=PictureRange(us=(0, 150))).axes
    assert ax.get_yticklabels()[0].get_text() == "CPU"


def test_of_many_threads_the_busiest_are_drawn_and_the_others_counted(tmp_path):
    others = [event("cpu_op", f"aten::o{n}", 111 + k, 0.5, {"pid": 1, "tid": 10 + n}) for n in range(12) for k in range(n + 1)]
    (ax,) = picture(tmp_path, *STEPS, *others).axes
    names = [label.get_text() for label in ax.get_yticklabels() if "CPU" in label.get_text()]
    assert len(names) == MOST_THREADS and names[-1].endswith("5 threads more")
    assert "thread 21" in names[1].replace("\n", " ")  # with twelve slices


def test_what_lies_deeper_than_one_can_read_is_left_out_and_said(tmp_path):
    nested = [op(f"aten::n{n}", 110 + n / 1000, 50 - n / 500) for n in range(5000)]
    (ax,) = picture(tmp_path, step(3, 100, 100), *nested).axes
    assert ax.get_yticklabels()[0].get_text() == "CPU\n4961 deeper\nleft out"


def test_streams_are_in_the_order_of_their_numbers_and_devices_are_told_apart(tmp_path):
    events = [step(3, 0, 100), *(launch(n, n) for n in range(1, 5))]
    events += [kernel(ADD, 10 * n, 5, n, stream=stream) for n, stream in enumerate((7, 16, 9, 100), 1)]
    (ax,) = picture(tmp_path, *events).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "CPU", "GPU\nstream 7", "GPU\nstream 9", "GPU\nstream 16", "GPU\nstream 100",
    ]  # fmt: skip
    events[-1] = kernel(ADD, 40, 5, 4, stream=7, device=1)
    (ax,) = picture(tmp_path, *events).axes
    assert [label.get_text() for label in ax.get_yticklabels()][-2:] == ["GPU 0\nstream 16", "GPU 1\nstream 7"]


def test_kinds_of_work_have_colours_of_their_own(tmp_path):
    names = {
        GEMM: "GEMM",
        FP32_GEMM: "GEMM",
        "triton_poi_fused_gelu_mul_0": "Triton",
        ADD: "pointwise",
        "my_cuda_kernel": "other",
    }
    events = [step(3, 0, 100), op("aten::mm", 0, 50), op("LigerGELUMulFunction", 60, 20)]
    events += [launch(n, n) for n in range(len(names))]
    events += [kernel(name, 10 * n, 9, n) for n, name in enumerate(names)]
    events += [launch(65, 70, "cuLaunchKernel"), kernel("_geglu_tanh_forward_kernel", 70, 9, 70)]
    events += [launch(90, 80, "cudaMemcpyAsync"), memcpy(90, 5, 80)]
    (ax,) = picture(tmp_path, *events).axes
    for n, kind in enumerate(names.values()):
        assert (10 * n, 10 * n + 9) in of_colour(ax, COLOURS[kind]), kind
    assert of_colour(ax, COLOURS["Triton"]) == [(20, 29), (70, 79)]  # Liger's kernel is Triton's, too
    assert of_colour(ax, COLOURS["copy"]) == [(90, 95)]


def test_a_pause_of_a_day_has_no_ticks_inside(tmp_path):
    """They were all counted, one by one."""
    day_us = 24 * 3600 * 1e6
    events = [op("aten::mm", 0, 50), launch(5, 1), kernel(GEMM, 10, 60, 1)]
    later = [op("aten::mm", day_us, 50), launch(day_us + 5, 2), kernel(GEMM, day_us + 10, 60, 2)]
    start = time.monotonic()
    figure = picture(tmp_path, *events, *later)
    assert len(figure.axes[0].get_xticks()) < 30
    assert time.monotonic() - start < 20  # well under a second; before, it did not end


def test_a_long_silence_is_cut_out_and_says_how_long_it_was(tmp_path):
    """100 µs of work, 50 ms of silence inside an op, 100 µs of work: the silence is 4% of what is left."""
    events = [step(3, 0, 50_200), op("aten::add", 90, 50_020), launch(50, 1), kernel(ADD, 60, 10, 1)]
    events += [launch(50_120, 2), kernel(ADD, 50_150, 50, 2)]
    figure = picture(tmp_path, *events)
    (ax,) = figure.axes
    kept_us = 50_200 - (50_110 - 90)
    cut_us = kept_us * 0.04
    assert "50.02 ms left out" in texts(figure)
    assert of_colour(ax, GREEN)[0] == (60, 70)
    assert of_colour(ax, GREEN)[1] == pytest.approx((90 + cut_us + 40, 90 + cut_us + 90), abs=0.01)
    assert "idle 50.08 ms" in texts(figure)  # the real length
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert {"0", "50"} <= set(shown) and shown[-1] == "50200"


@pytest.mark.parametrize("busy", ["GPU", "profiler"])
def test_what_is_full_of_work_is_not_cut(busy, tmp_path):
    work = kernel(ADD, 60, 50_000, 1) if busy == "GPU" else event("overhead", "Activity Buffer Request", 60, 50_000)
    figure = picture(tmp_path, step(3, 0, 50_200), launch(50, 1), kernel(ADD, 55, 1, 1), work)
    assert not any("left out" in text for text in texts(figure))
    if busy == "profiler":
        assert "Activity Buffer Request" in texts(figure)
        assert "profiler" in [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_the_synchronize_after_the_last_step_is_in_the_picture(tmp_path):
    events = [*STEPS, event("cuda_runtime", "cudaDeviceSynchronize", 230, 70, correlation=9)]
    (ax,) = picture(tmp_path, *events).axes
    assert of_colour(ax, COLOURS["waiting"]) == [(130, 200)]


def test_names_of_launches_and_of_compiles_narrow_rows_stand_below(tmp_path):
    events = [step(3, 0, 1000), annotation("fwd", 10, 900), op("TorchDynamo Cache Lookup", 20, 10)]
    events += [
        op("AOTDispatcher Runtime Wrapper Prologue", 300, 10),
        op("aten::mm", 600, 200),
        launch(650, 1),
        kernel(GEMM, 700, 90, 1),
    ]
    shown = texts(picture(tmp_path, *events))
    assert {"cudaLaunchKernel", *COMPILE_ROWS} <= set(shown)


def test_a_label_is_whole_or_without_its_prefix_or_cut(tmp_path):
    events = [
        step(3, 0, 1000),
        op("aten::masked_fill", 0, 200),
        op("aten::masked_fill", 300, 75),
        op("aten::masked_fill", 400, 45),
    ]
    shown = texts(picture(tmp_path, *events))
    assert [text for text in shown if "m" in text] == ["aten::masked_fill", "masked_fill", "maske…"]


def test_control_characters_in_names_do_nothing(tmp_path):
    events = [step(3, 0, 1000), op("a\x1b[31m$b$\n", 0, 900)]
    assert r"a\x1b[31m$b$\n" in texts(picture(tmp_path, *events))


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_label_runs_into_its_neighbour(path):
    figure = draw([timeline(path)], PictureRange())
    assert overlapping_labels(figure) == []
    width, height = figure.get_size_inches() * figure.dpi
    assert width == 1100 and 250 < height < 1200
    assert len(texts(figure)) > 5
    assert "\n" in figure.axes[0].get_title(loc="left")  # the run and its device, then the verdict


def test_allocated_memory_has_a_lane(tmp_path):
    path = write(tmp_path / "t.json", *memory_training())
    figure = draw([timeline(path)], PictureRange())
    ax = figure.axes[0]
    assert ax.get_yticklabels()[-1].get_text() == "GPU 0\nmemory"
    assert "peak 19.0 MiB" in texts(figure)
    assert figure.legends[0].get_texts()[-1].get_text() == "allocated memory"
    (area,) = [found for found in ax.collections if to_hex(np.asarray(found.get_facecolor())[0]) == MEMORY]
    (outline,) = area.get_paths()
    edge = np.asarray(outline.vertices)[:, 1]
    low, high = edge.min(), edge.max()
    heights = {round((y - low) / (high - low) * 19, 3) for y in edge.tolist()}
    assert heights == {0, 10, 12, 13, 14, 15, 16, 17, 19}  # MiB; 10 before the first
    # A window between two events: what was allocated before it.
    assert "peak 16.0 MiB" in texts(draw([timeline(path)], PictureRange(us=(200, 290))))


def test_a_recording_shows_steps_kernels_launches_and_a_legend_of_what_is_there():
    figure = draw([timeline(COLD)], PictureRange())
    shown = texts(figure)
    assert {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4", "matmul_add", "aten::mm", "nvjet GEMM 64x8"} <= set(shown)
    assert {"cuLaunchKernelEx", "cudaLaunchKernel"} <= set(shown)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["step", "annotation", "CPU op", "runtime or driver call", "waiting", "GPU idle", "GEMM", "pointwise"]
    assert "NVIDIA H200\noverhead-bound: " in figure.axes[0].get_title(loc="left")


def test_two_traces_share_one_scale_that_holds_the_longer(tmp_path):
    long = write(tmp_path / "long.json", step(3, 0, 1000), op("aten::mm", 0, 1000))
    short = write(tmp_path / "short.json", step(3, 0, 100), op("aten::mm", 0, 100))
    for first, second in ((long, short), (short, long)):
        above, below = draw([timeline(first), timeline(second)], PictureRange()).axes
        assert above.get_xlim() == below.get_xlim() == pytest.approx((-3, 1003))


def strip(tmp_path, steps):
    events = []
    for n in range(steps):
        events += [step(n, 100 * n, 90), launch(100 * n + 1, n), kernel(ADD, 100 * n + 5, 60 if n == 0 else 10, n)]
    return picture(tmp_path, *events)


def test_ten_steps_get_a_strip_of_durations_with_median_and_mean(tmp_path):
    assert len(strip(tmp_path, 9).axes) == 1
    _, ax = strip(tmp_path, 10).axes
    assert list(ax.lines[0].get_ydata()) == [60, *[10] * 9]
    assert ax.get_legend().get_texts()[0].get_text() == "add: median 10.0 µs, mean 15.0 µs"


def test_the_widest_slices_are_kept_where_there_are_too_many(monkeypatch, tmp_path):
    monkeypatch.setattr("trace_reader.write.trace_picture.MOST_SLICES", 2)
    events = [step(3, 0, 100), *(launch(n, n) for n in range(3))]
    events += [kernel(ADD, 0, 5, 0), kernel(ADD, 10, 20, 1), kernel(ADD, 40, 30, 2)]
    (ax,) = picture(tmp_path, *events).axes
    assert of_colour(ax, GREEN) == [(10, 30), (40, 70)]


def test_the_axis_has_the_unit_that_suits_it(tmp_path):
    for length, unit, last in ((900, "µs", "900"), (90_000, "ms", "90"), (9e6, "s", "9")):
        (ax,) = picture(tmp_path, step(3, 0, length), op("aten::mm", 0, length)).axes
        assert (ax.get_xlabel(), ax.get_xticklabels()[-1].get_text()) == (unit, last)


def test_narrow_slices_have_no_edge(tmp_path):
    events = [step(3, 0, 10_000), op("aten::mm", 0, 5000), op("aten::mm", 6000, 10)]
    (ax,) = picture(tmp_path, *events).axes
    ops = next(c for c in ax.collections if to_hex(c.get_facecolors()[0]) == COLOURS["op"])
    assert list(ops.get_linewidths()) == [0.4, 0.0]


def test_traces_without_steps_without_a_gpu_and_with_two_streams(tmp_path):
    for events in (
        [launch(0, 1), kernel(GEMM, 5, 50, 1), launch(10, 2), memcpy(20, 30, 2, stream=9)],
        [step(0, 0, 100), op("aten::mm", 10, 50)],
        [launch(0, 1), kernel(GEMM, 5, 50, 1), launch(10, 2), kernel(ADD, 20, 30, 2, device=1)],
    ):
        assert overlapping_labels(picture(tmp_path, *events)) == []


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_trace_gives_the_same_bytes(suffix):
    first, second = (plot([timeline(LINEAR)], PictureRange(), suffix) for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_the_command_writes_a_file(tmp_path, capsys):
    target = tmp_path / "out.png"
    assert cli.main([str(COLD), str(LINEAR), "--plot", str(target), "--us", "0:400"]) == 0
    assert capsys.readouterr().out == f"wrote {target} ({target.stat().st_size / 1024:.1f} KiB)\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--plot", "a.pdf"], "argument -o/--out: expected a name that ends with .png or .svg, got 'a.pdf'"),
        (["--steps", "3:4"], "--steps does nothing with report: it is for plot"),
        (["--plot", "a.png", "--steps", "4:3"], "argument --steps: expected A:B with A before B, got '4:3'"),
        (["--plot", "a.png", "--us", "x:3"], "argument --us: expected A:B, two numbers, got 'x:3'"),
        (["--plot", "a.png", "--us", "0:inf"], "argument --us: expected A:B, two numbers, got '0:inf'"),
        (["--plot", "a.png", "--us", "nan:3"], "argument --us: expected A:B, two numbers, got 'nan:3'"),
        (
            ["--plot", "a.png", "--json"],
            "--json does nothing with plot: it is for report, brief, show, tree, time, places, names, what-if, compare, check, "
            "runs, try, prices and memory",
        ),
        (["b", "--open"], "open takes one trace, got 'b' beside it"),
        (["b", "--redact", "c"], "redact takes one trace, got 'b' beside it"),
        (
            ["--redact", "b", "--chain"],
            "--chain and --redact are two commands: give one of them",
        ),
    ],
)
def test_mistakes_in_the_flags(flags, message, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["a.json", *flags])
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {message}"


def test_what_is_not_there_is_one_line_that_names_the_file(tmp_path, capsys):
    target = str(tmp_path / "a.png")
    for arguments, message in (
        ([str(LINEAR), "--plot", target, "--steps", "9"], f"{LINEAR}: no recorded step from #9 to #9"),
        ([str(LINEAR), "--plot", target, "--us", "9e9:1e10"], f"{LINEAR}: nothing was recorded in that window"),
        ([str(LINEAR), "--plot", str(tmp_path / "no" / "a.png")], f"{tmp_path / 'no' / 'a.png'}: No such file or directory"),
    ):
        assert cli.main(arguments) == (1 if "No such" in message else 2)
        assert capsys.readouterr().err == f"error: {message}\n"
    (tmp_path / "b.json").write_text(COLD.read_text().replace("ProfilerStep#3", "ProfilerStep#8"))
    assert cli.main([str(COLD), str(tmp_path / "b.json"), "--plot", target, "--steps", "3:3"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'b.json'}: no recorded step from #3 to #3\n"
    assert not Path(target).exists()


@pytest.mark.slow
def test_a_full_disk_leaves_the_earlier_picture(tmp_path):
    target = tmp_path / "a.png"
    target.write_bytes(b"earlier")
    done = subprocess.run(
        [sys.executable, "-m", "trace_reader", LINEAR, "--plot", target],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},  # bytecode would be cut off, too
    )
    assert done.returncode == 1 and done.stderr.endswith(f"error: {target}: File too large\n")
    assert target.read_bytes() == b"earlier"


def test_the_reader_does_not_import_matplotlib_before_a_plot():
    code = "import sys; from trace_reader import cli; cli.main([sys.argv[1]]); assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, LINEAR], cwd=TOOL, check=True, stdout=subprocess.DEVNULL)


def test_what_other_steps_launched_is_pale_and_not_idle(tmp_path):
    """#1's kernel runs while #2 is shown: only 40 to 60 is idle."""
    path = write(
        tmp_path / "t.json",
        step(1, 0, 10),
        launch(5, 1),
        kernel("a", 8, 32, 1),
        step(2, 10, 20),
        launch(15, 2),
        kernel("b", 60, 40, 2),
    )
    ax = draw([timeline(path)], PictureRange(steps=(2, 2))).axes[0]
    assert [text for text in texts(ax.figure) if text.startswith("idle")] == ["idle 20.0 µs"]
    pale = [(left, right) for left, right, colour in boxes(ax) if colour == OTHERS]
    assert pale == [(0, 30)]  # from the window's start, at 10, on


def test_arrows_that_are_left_out_are_said(tmp_path):
    def label(n):
        events = [e for k in range(n) for e in (launch(10 * k, k + 1), kernel("a", 10 * k + 5, 2, k + 1))]
        return draw([timeline(write(tmp_path / "t.json", step(0, 0, 10 * n), *events))], PictureRange()).axes[0].get_xlabel()

    assert label(200).endswith("s") and label(201).endswith("s (arrows of the first 200 launches)")


def test_us_is_told_by_the_axis(tmp_path):
    path = write(tmp_path / "t.json", step(0, 1000, 500), op("aten::mm", 1120, 60))
    ax = draw([timeline(path)], PictureRange(us=(100, 250))).axes[0]
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert (labels[0], labels[-1]) == ("100", "240") and ax.get_xticks()[0] == 0


def test_the_names_of_threads_are_whole_words_inside_the_picture(tmp_path):
    names = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "thread 1511 (pt_autograd_0)"}}
    backward = on(2, op("autograd::engine::evaluate_function: MmBackward0", 20, 30))
    figure = draw(
        [timeline(write(tmp_path / "t.json", names, step(0, 0, 100), op("aten::mm", 5, 10), *backward))], PictureRange()
    )
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["CPU\nthread 1", "CPU\nthread 1511\n(pt_autograd_0),\nautograd's"]
    assert isinstance(figure.canvas, FigureCanvasAgg)
    renderer = figure.canvas.get_renderer()
    assert all(label.get_window_extent(renderer).x0 >= 0 for label in labels)


def products(*sizes):
    """A step with a product of two square matrices of each size, which takes 10 µs."""
    return [
        step(0, 0, 500),
        *(e for n, size in enumerate(sizes)
          for shapes in [{"Input Dims": [[size, size]] * 2, "Input type": ["c10::BFloat16"] * 2}]
          for e in (op("aten::mm", 20 * n, 5, **shapes), launch(20 * n + 1, n), kernel(GEMM, 100 + 20 * n, 10, n))),
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_called_roofline_has_a_dot_for_each_op_and_shape(tmp_path, suffix):
    path, target = write(tmp_path / "t.json", *products(1024, 512)), tmp_path / f"roofline{suffix}"
    assert cli.main([path, "--plot", str(target)]) == 0
    first = target.read_bytes()
    assert cli.main([path, "--plot", str(target)]) == 0 and target.read_bytes() == first
    facts = read(path)
    # 2 * 1024**3 FLOP in 10 µs are 214.7 TFLOP/s, of 989; 512 cubed an eighth of that
    assert [(o.shapes, round(o.tflop_per_s, 1), round(o.peak_share, 3)) for o in facts.op_shapes] == [
        ("2 of 1024x1024 bf16", 214.7, 0.217), ("2 of 512x512 bf16", 26.8, 0.033)
    ]  # fmt: skip
    assert [o.limited_by for o in facts.op_shapes] == ["compute", "memory"]  # 1.5 MB need 0.33 µs, the FLOP 0.27
    # FLOP per byte: 2 n^3 over the 6 n^2 bytes of three matrices
    assert [roofline.place(shape)[0] for shape in facts.op_shapes] == pytest.approx([1024 / 3, 512 / 3])
    assert facts.op_shapes[0].to_gain_us == pytest.approx(10 - 2 * 1024**3 / 989e6 / 0.7, abs=1e-6)


@pytest.mark.parametrize(
    ("events", "header", "words"),
    [
        ([op("aten::mm", 0, 5), launch(1, 1), kernel(GEMM, 5, 9, 1)], {}, "shapes were not recorded (record_shapes=True)"),
        (products(64), {"deviceProperties": [{**H200, "name": "A GPU"}]}, "no peaks are known of A GPU"),
    ],
)
def test_no_roofline_without_shapes_or_peaks(tmp_path, capsys, events, header, words):
    path = write(tmp_path / "t.json", *events, **header)
    assert cli.main([path, "--plot", str(tmp_path / "roofline.png")]) == 2
    assert capsys.readouterr().err == f"error: {path}: no roofline: {words}\n"
    assert not (tmp_path / "roofline.png").exists()


@pytest.mark.parametrize(("op_name", "dims", "usual"), [
    ("aten::cudnn_convolution", [[64, 256, 32, 32], [256, 256, 3, 3]], 0.55),
    ("aten::_flash_attention_forward", [[8, 2048, 16, 64]] * 3, 0.45),
])  # fmt: skip
def test_what_there_is_to_gain_is_up_to_what_is_usual_for_the_kind(tmp_path, op_name, dims, usual):
    values = ["", "", "[1, 1]", "[1, 1]", "[1, 1]"] if "conv" in op_name else [""] * 8 + ["False"]
    shapes = {"Input Dims": dims + [[]] * (len(values) - len(dims)), "Concrete Inputs": values,
              "Input type": ["c10::BFloat16"] * len(dims) + [""] * (len(values) - len(dims))}  # fmt: skip
    events = [step(0, 0, 9000), op(op_name, 0, 5, **shapes), launch(1, 1), kernel("a_kernel", 100, 5000, 1)]
    (row,) = read(write(tmp_path / "t.json", *events)).op_shapes
    assert (row.limited_by, row.to_gain_us) == ("compute", pytest.approx(5000 - row.flop / 989e6 / usual, rel=1e-9))


def test_a_silence_is_measured_by_what_is_left_without_it():
    """4 ms of silence beside 6 ms of work: two thirds of that."""
    assert silences(0, 10_000, [0, 3000, 7000, 10_000], [(0, 1000), (1000, 3000), (7000, 10_000)]) == [(3000, 7000)]


def test_a_picture_has_the_steps_that_it_is_told_to_take(tmp_path, capsys):
    events = [
        one
        for n in range(3)
        for one in (
            annotation("all", 100 * n, 90),
            annotation("my_step", 100 * n + 2, 70),
            launch(100 * n + 5, n),
            kernel(GEMM, 100 * n + 9, 60, n),
        )
    ]
    path, target = write(tmp_path / "a.json", *events), tmp_path / "a.svg"
    pictures = []
    for flags in ((), ("--steps_from", "my_step")):
        assert cli.main([path, "--plot", str(target), *flags]) == 0
        pictures.append(target.read_bytes())
    assert pictures[0] != pictures[1]
    capsys.readouterr()


def test_the_list_of_a_roofline_tells_times_per_step(monkeypatch):
    said, written = [], Axes.text

    def text(self, x, y, words, **more):
        said.append(words)
        return written(self, x, y, words, **more)

    monkeypatch.setattr(Axes, "text", text)
    roofline_picture.plot(read(str(GALLERY / "01_matmul_add" / "4096_bf16_warm_eager_record_shapes.json")), ".png")
    assert "169.7 µs per step" in said[0]


def test_on_a_cpu_an_op_whose_work_is_done_deep_inside_it_has_no_rate(tmp_path):
    """The gradient of an embedding: its table of 4 MB is filled with zeros two ops deeper, which takes 90 of 100."""
    table = {"Input Dims": [[1000, 1000]], "Input type": ["float"]}
    one = {"Input Dims": [[8, 1000], [8], [], [], []], "Input type": ["float", "long int", "Scalar", "Scalar", "Scalar"],
           "Concrete Inputs": ["", "", "1000", "-1", "False"]}  # fmt: skip
    events = [step(0, 0, 1000), op("aten::embedding_dense_backward", 0, 100, **one), op("aten::zeros", 2, 94)]
    events += [op("aten::zero_", 3, 92, **table), op("aten::fill_", 4, 90, **table)]
    rates = {row.op: row.gb_per_s for row in read(write(tmp_path / "t.json", *events)).op_shapes}
    assert rates["aten::embedding_dense_backward"] is None and rates["aten::fill_"] == pytest.approx(4000 / 90, abs=0.01)
