"""Pictures: of every kind of trace, with labels that do not run into each other, and the flags that choose what is drawn."""

from collections import defaultdict
from itertools import pairwise
import subprocess
import sys

from conftest import ROOT
from events import ADD, GEMM, kernel, launch, memcpy, op, step, write
from matplotlib.text import Text
import pytest
from reader import load, tell
from reader.plot import Window, draw, plot
from record import DATA, TRACES

import read_trace

RECORDED = sorted((ROOT / "gallery" / "h200").glob("*/*.json"))


def overlapping_labels(figure):
    """How many pairs of neighbouring labels overlap by more than 2 px on their lane."""
    count = 0
    for ax in figure.axes:
        lanes = defaultdict(list)
        for text in ax.findobj(Text):
            if isinstance(text, Text) and text in ax.texts and text.get_text():
                box = text.get_window_extent(figure.canvas.get_renderer())
                lanes[round((box.y0 + box.y1) / 2)].append(box)
        for boxes in lanes.values():
            boxes.sort(key=lambda box: box.x0)
            count += sum(after.x0 < before.x1 - 2 for before, after in pairwise(boxes))
    return count


def pair(path):
    trace = load(str(path))
    return trace, tell(trace)


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text()]


@pytest.mark.parametrize(
    "path", [*RECORDED, *(DATA / f"{name}.json" for name in TRACES)], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_no_label_runs_into_its_neighbour(path):
    figure = draw([pair(path)], Window())
    assert overlapping_labels(figure) == 0
    width, height = figure.get_size_inches() * figure.dpi
    assert width == 1100 and 250 < height < 1200
    assert len(texts(figure)) > 5
    assert "\n" in figure.axes[0].get_title(loc="left")  # the run and its device, then the verdict


def test_steps_kernels_launches_and_idle_time_are_drawn():
    figure = draw([pair(DATA / "01_64_cold.json")], Window())
    shown = texts(figure)
    assert {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4", "matmul_add", "mm", "nvjet GEMM 64x8"} <= set(shown)
    assert any(text.startswith("idle ") for text in shown)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["step", "annotation", "CPU op", "runtime or driver call", "GPU idle", "GEMM", "elementwise"]
    arrows = [text for text in figure.axes[0].texts if not text.get_text()]
    assert len(arrows) == 6  # two launches in each of three steps
    assert "NVIDIA H200\noverhead-bound: " in figure.axes[0].get_title(loc="left")


def test_two_traces_share_one_scale():
    figure = draw([pair(DATA / "03_eager.json"), pair(DATA / "03_compile.json")], Window())
    above, below = figure.axes
    assert above.get_xlim() == below.get_xlim()


def test_twenty_steps_get_a_strip_of_durations():
    (path,) = (ROOT / "gallery/h200/01_matmul_add").glob("4096_*active-20.json")
    figure = draw([pair(path)], Window())
    assert len(figure.axes) == 2
    strip = figure.axes[1]
    first = strip.lines[0]
    assert len(first.get_ydata()) == 20 and 150 < min(first.get_ydata()) < max(first.get_ydata()) < 200
    assert ": median 169." in strip.get_legend().get_texts()[0].get_text()


def test_a_window_shows_only_what_lies_in_it():
    trace = pair(DATA / "01_64_cold.json")
    assert not {"ProfilerStep#2", "ProfilerStep#4"} & set(texts(draw([trace], Window(steps=(3, 3)))))
    narrow = draw([trace], Window(us=(160.0, 230.0)))
    left, right = narrow.axes[0].get_xlim()
    assert 69 < right - left < 71
    for window in (Window(steps=(7, 9)), Window(us=(1e6, 2e6))):
        with pytest.raises(LookupError):
            draw([trace], window)


def test_traces_without_steps_without_a_gpu_and_with_two_streams(tmp_path):
    for events in (
        [launch(0, 1), kernel(GEMM, 5, 50, 1), launch(10, 2), memcpy(20, 30, 2, stream=9)],
        [step(0, 0, 100), op("aten::mm", 10, 50)],
        [launch(0, 1), kernel(GEMM, 5, 50, 1), launch(10, 2), kernel(ADD, 20, 30, 2, device=1)],
    ):
        figure = draw([pair(write(tmp_path / "t.json", *events))], Window())
        assert overlapping_labels(figure) == 0


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_trace_gives_the_same_bytes(suffix):
    trace = pair(DATA / "02.json")
    first, second = (plot([trace], Window(), suffix) for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_the_command_writes_a_file(tmp_path, capsys):
    target = tmp_path / "out.png"
    assert (
        read_trace.main([str(DATA / "03_eager.json"), str(DATA / "03_compile.json"), "--plot", str(target), "--us", "0:400"]) == 0
    )
    assert capsys.readouterr().out == f"wrote {target} ({target.stat().st_size / 1024:.1f} KiB)\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--plot", "a.pdf"], "argument --plot: expected a name that ends with .png or .svg, got 'a.pdf'"),
        (["--steps", "3:4"], "--steps and --us choose what --plot shows: add --plot FILE"),
        (["--plot", "a.png", "--steps", "4:3"], "argument --steps: expected A:B with A before B, got '4:3'"),
        (["--plot", "a.png", "--us", "x:3"], "argument --us: expected A:B, two numbers, got 'x:3'"),
        (["b", "c", "--plot", "a.png"], "--plot draws one trace or two, got 3"),
        (["--plot", "a.png", "--json"], "argument --json: not allowed with argument --plot"),
        (["b", "--open"], "--open takes one trace, a file: name one"),
        (["--redact", "b", "--chain"], "--chain prints a report: leave --plot, --open and --redact out"),
    ],
)
def test_mistakes_in_the_flags(flags, message, capsys):
    with pytest.raises(SystemExit) as end:
        read_trace.main(["a.json", *flags])
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"read_trace.py: error: {message}"


def test_a_step_that_is_not_there_is_one_line(tmp_path, capsys):
    assert read_trace.main([str(DATA / "02.json"), "--plot", str(tmp_path / "a.png"), "--steps", "9"]) == 2
    assert capsys.readouterr().err == f"error: {DATA / '02.json'}: no recorded step from #9 to #9\n"
    assert read_trace.main([str(DATA / "02.json"), "--plot", str(tmp_path / "no" / "a.png")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'no' / 'a.png'}: No such file or directory\n"


def test_the_reader_does_not_import_matplotlib_before_a_plot():
    code = "import sys, read_trace; read_trace.main([sys.argv[1]]); assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, DATA / "02.json"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
