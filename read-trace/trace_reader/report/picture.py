"""A trace as a picture: the CPU's lane with its nesting and the GPU's lanes on one time axis. Needs matplotlib.

A long stretch in which nothing starts or ends and the GPU is idle is left out of the axis, and says how long it was.
"""

from collections import defaultdict
from collections.abc import Sequence
import io
from itertools import pairwise
import math
from pathlib import PurePath
import statistics
import textwrap

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
import msgspec
import numpy as np
from trace_reader.analysis.dispatch_tree import thread_label
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.memory_facts import Curve, curves
from trace_reader.analysis.verdict import verdict
from trace_reader.link.trace import STEP, Activity, Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import ON_CPU, Kind, Slice, Track
from trace_reader.names.call_names import is_synchronizing
from trace_reader.names.kernel_names import decode_name
from trace_reader.report import document
from trace_reader.report.colours import cpu_kind, family
from trace_reader.system.terminal import plain
from trace_reader.units import human_bytes, us

FORMATS = (".png", ".svg")
WIDTH_IN, DPI = 11.0, 100  # a README shows it at about this width
ROW_IN = 0.24  # height of a lane's row
BETWEEN_IN = 0.75  # a panel's axis and title
MARGINS_IN = 0.35  # the legend
LEFT, LEFT_WIDE, RIGHT = 0.08, 0.11, 0.99  # of the width: where the lanes begin and end
LETTER_PX = 6.0  # average width of a letter in a label
LONGEST_TITLE = 130  # letters
LABEL_SIZE = 7
MOST_SLICES = 4000  # of a lane; the narrowest are left out beyond
MOST_ARROWS = 200
MOST_THREADS = 8
MOST_LEVELS = 40  # of nesting
CALL_NAMES = 3  # rows below the CPU's for the names of narrow slices
STRIP_FROM_STEPS = 10  # recorded steps, from which on the durations are drawn too
STRIP_KERNELS = 3
LONG_US = 1000  # of silence
SILENCE = 0.5  # of the rest of the window, from which on a silence is cut out
CUT = 0.04  # of the width, for each silence that is cut out
NARROWEST_EDGE_PX = 3.0  # a narrower slice has no edge: edges alone would be a dark smear
CPU_COLOURS = {
    "step": "#d9dde3", "annotation": "#b9c6d8", "op": "#8fb3e0", "call": "#f2c078", "waiting": "#e3e3e3", "profiler": "#c9b3d9"
}  # fmt: skip
CPU_NAMES = {
    "step": "step", "annotation": "annotation", "op": "CPU op", "call": "runtime or driver call", "waiting": "waits",
    "profiler": "profiler or driver, by itself",
}  # fmt: skip
# Rows of torch.compile that a reader looks for, though they are narrow.
COMPILE_ROWS = ("TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue")
FAMILY_COLOURS = {
    "GEMM": "#4c78a8", "GEMM on CUDA cores": "#9ecae9", "attention": "#72559f", "Triton": "#e45756",
    "elementwise": "#54a24b", "reduction, softmax": "#eeca3b",
    "communication": "#ff9da6", "copy": "#b279a2", "memset": "#9d9d9d", "other kernel": "#79706e",
}  # fmt: skip
DARK = (FAMILY_COLOURS["GEMM"], FAMILY_COLOURS["attention"], FAMILY_COLOURS["Triton"], FAMILY_COLOURS["other kernel"])
IDLE = "#f4e9e2"
MEMORY = "#a9cfc0"
MOST_POINTS = 2000  # of a curve
OTHERS = "#ececec"  # what steps launched that are not shown


class Window(msgspec.Struct, frozen=True):
    """What to show: times from the first recorded step's start (us), or steps by their numbers, both ends included."""

    us: tuple[float, float] | None = None
    steps: tuple[int, int] | None = None


class _Axis:
    """Where a moment is drawn: from 0, in microseconds of the picture, in which silences are cut out."""

    def __init__(self, start_us: float, end_us: float, silences: list[tuple[float, float]], counts_from_us: float):
        self.start_us, self.end_us, self.silences, self.counts_from_us = start_us, end_us, silences, counts_from_us
        kept_us = end_us - start_us - sum(end - start for start, end in silences)
        self.cut_us = kept_us * CUT
        self.length_us = kept_us + self.cut_us * len(silences)

    def __call__(self, moment_us: float) -> float:
        moment_us = min(max(moment_us, self.start_us), self.end_us)
        drawn = moment_us - self.start_us
        for start, end in self.silences:
            if moment_us >= end:
                drawn -= end - start - self.cut_us
            elif moment_us > start:
                drawn -= (moment_us - start) * (1 - self.cut_us / (end - start))
        return drawn

    def hides(self, moment_us: float) -> bool:
        return any(start < moment_us < end for start, end in self.silences)

    def longest_seen(self, start_us: float, end_us: float) -> tuple[float, float]:
        """The longest part of an interval that no cut lies in, from and to where it is drawn."""
        start_us, end_us = max(start_us, self.start_us), min(end_us, self.end_us)
        edges = [start_us, *(t for cut in self.silences for t in cut if start_us < t < end_us), end_us]
        parts = [(self(a), self(b)) for a, b in pairwise(edges) if not self.hides((a + b) / 2)]
        return max(parts, key=lambda part: part[1] - part[0], default=(0.0, 0.0))

    def seen_until(self, moment_us: float) -> float:
        """Where the part that the moment lies in ends: at the next cut, or the picture's end."""
        return next((self(start) for start, _ in self.silences if start >= moment_us), self.length_us)


class _Thread(msgspec.Struct, frozen=True):
    """A thread of the CPU: its slices by how deep they lie in others; its calls are the last row."""

    name: str
    rows: list[list[Slice]]


class _Lane(msgspec.Struct, frozen=True):
    """A stream of a GPU: the work that is shown, and in its time the `others`, which steps launched that are not."""

    name: str
    activities: list[Activity]
    others: list[Slice]


class _Panel(msgspec.Struct, frozen=True):
    trace: Trace
    facts: Facts
    axis: _Axis
    threads: list[_Thread]  # the main one first
    overheads: list[Slice]  # what the profiler and the driver do
    lanes: list["_Lane"]
    curves: list[Curve]  # of allocated memory, where it was recorded

    @property
    def is_wide(self) -> bool:
        """Whether its labels need room: threads are named where there are several."""
        return len(self.threads) > 1

    @property
    def height(self) -> int:
        rows = sum(len(thread.rows) + CALL_NAMES for thread in self.threads) + bool(self.overheads)
        return rows + (len(self.lanes) + len(self.curves)) * 3 + 1


def plot(traces: Sequence[tuple[Trace, Facts]], window: Window, suffix: str) -> bytes:
    """A picture of one trace, or of several above each other on one scale, as the bytes of a .png or .svg file.

    The same traces give the same bytes, with the same matplotlib. Raises LookupError if the window holds nothing.
    """
    return encoded(draw(traces, window), suffix)


def encoded(figure: Figure, suffix: str) -> bytes:
    """The bytes of a .png or .svg file: the same each time."""
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "profiling", "svg.fonttype": "path"}):
        figure.savefig(out, format=suffix.removeprefix("."), metadata={"Date": None} if suffix == ".svg" else {"Software": None})
    return out.getvalue()


def draw(traces: Sequence[tuple[Trace, Facts]], window: Window) -> Figure:
    """The figure, laid out and not yet encoded."""
    panels = [_panel(trace, facts, window) for trace, facts in traces]
    strips = [p for p in panels if len(p.trace.steps) >= STRIP_FROM_STEPS and len(p.trace.work)]
    heights = [p.height * ROW_IN for p in panels] + [1.4] * len(strips)
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + BETWEEN_IN * len(heights) + MARGINS_IN), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    span = max(p.axis.length_us for p in panels)
    left = LEFT_WIDE if any(p.is_wide for p in panels) else LEFT
    shown: dict[str, str] = {}
    for panel, ax in zip(panels, axes, strict=False):
        _draw_panel(panel, ax, span, left, shown)
    for panel, ax in zip(strips, axes[len(panels) :], strict=True):
        _draw_strip(panel, ax)
    handles = [Patch(facecolor=colour, edgecolor="#888888", linewidth=0.5, label=name) for name, colour in shown.items()]
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=len(handles) if len(handles) <= 9 else -(-len(handles) // 2),
        fontsize=8,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.2,
    )
    high = figure.get_figheight()
    figure.subplots_adjust(
        left=left,
        right=RIGHT,
        top=1 - 0.42 / high,
        bottom=(MARGINS_IN + 0.4) / high,
        hspace=BETWEEN_IN * len(heights) / sum(heights),
    )
    return figure


def _panel(trace: Trace, facts: Facts, window: Window) -> _Panel:
    shown = next((rows for rows in (trace.steps, trace.work, trace.ops) if len(rows)), trace.ops)
    origin_us = shown[0].start_us if len(shown) else 0.0
    main = int(trace.steps.track[0]) if len(trace.steps) else int(trace.ops.track[0]) if len(trace.ops) else None
    work, steps = trace.work, trace.steps
    if window.steps:
        first, last = window.steps
        wanted = [i for i, name in enumerate(steps.names) if (m := STEP.match(name)) and first <= int(m[1]) <= last]
        if not wanted:
            raise LookupError(f"{facts.trace}: no recorded step from #{first} to #{last}")
        steps = steps.where(np.array(wanted))
        work = work.where(np.isin(work.step, wanted))
        start_us = min(int(rows.start_ns.min()) for rows in (steps, work) if len(rows)) / 1000
        end_us = max(int(rows.end_ns.max()) for rows in (steps, work) if len(rows)) / 1000
    elif window.us:
        start_us, end_us = origin_us + window.us[0], origin_us + window.us[1]
    else:
        ends = [rows.end_ns for rows in (shown, work, _flush(trace, main)) if len(rows)]
        start_us, end_us = origin_us, max((int(end.max()) for end in ends), default=0) / 1000
    threads = _threads(trace, main, start_us, end_us, steps if window.steps else None)
    overheads = list(_between(trace.overheads, start_us, end_us))
    others = trace.work.where(~np.isin(trace.work.at, work.at))
    lanes = _lanes(trace.activities(_between(work, start_us, end_us)), list(_between(others, start_us, end_us)))
    if end_us <= start_us or not (threads or overheads or lanes):
        raise LookupError(f"{facts.trace}: nothing was recorded in that window")
    axis = _Axis(start_us, end_us, _silences(threads, overheads, lanes, start_us, end_us), window.us[0] if window.us else 0.0)
    return _Panel(trace, facts, axis, threads, overheads, lanes, curves(trace) if len(trace.memory) else [])


def _between(rows: Rows, start_us: float, end_us: float) -> Rows:
    return rows.where((rows.start_ns < end_us * 1000) & (rows.end_ns > start_us * 1000))


def _flush(trace: Trace, main: int | None) -> Rows:
    """The synchronizing calls of the main thread after the last step: the profiler's wait for the GPU."""
    if not len(trace.steps):
        return trace.calls.where(np.zeros(len(trace.calls), bool))
    after = (trace.calls.start_ns >= trace.steps.end_ns.max()) & (trace.calls.track == main)
    return trace.calls.where(after & trace.calls.is_named(is_synchronizing))


def _silences(threads: list[_Thread], overheads: list[Slice], lanes: list[_Lane], start_us: float, end_us: float) -> list:
    """Intervals (start, end) in which nothing starts or ends and no GPU is busy, and that would be most of the picture."""
    if not lanes:
        return []
    on_gpu = [event for lane in lanes for event in (*(a.event for a in lane.activities), *lane.others)]
    busy = sorted((e.start_us, e.end_us) for e in [*on_gpu, *overheads])
    others = [e for thread in threads for row in thread.rows for e in row]
    moments = {start_us, end_us, *(t for e in others for t in (e.start_us, e.end_us)), *(t for pair in busy for t in pair)}
    found: list[tuple[float, float]] = []
    place, busy_until = 0, float("-inf")
    for start, end in pairwise(sorted(t for t in moments if start_us <= t <= end_us)):
        while place < len(busy) and busy[place][0] < end:
            busy_until = max(busy_until, busy[place][1])
            place += 1
        if busy_until <= start and end - start >= LONG_US:
            found.append((start, end))
    rest_us = end_us - start_us
    kept = []
    for start, end in sorted(found, key=lambda gap: gap[0] - gap[1]):
        if end - start < SILENCE * (rest_us - (end - start)):
            break
        kept.append((start, end))
        rest_us -= end - start
    return sorted(kept)


def _threads(trace: Trace, main: int | None, start_us: float, end_us: float, steps: Rows | None) -> list[_Thread]:
    """The CPU threads that have a part in the window, the main one first, with their slices by how deep they lie; calls last.

    `steps`: what starts in these steps, and nothing of others.
    """
    slices = trace.slices
    inside = _between(Rows(slices, slices.of(*ON_CPU)), start_us, end_us)
    if steps is not None:
        place = np.searchsorted(steps.start_ns, inside.start_ns, "right") - 1
        inside = inside.where((place >= 0) & (inside.start_ns < steps.end_ns[place]))
    by_track = {track: rows for (track,), rows in inside.by(inside.track)}
    # A thread of which there are only long annotations has no part in it: they are others' repeated.
    having = [track for track, rows in by_track.items() if (rows.kind != Kind.ANNOTATION).any() or track == main]
    order = sorted(having, key=lambda track: (track != main, -len(by_track[track]), track))
    left_out = len(order) - MOST_THREADS
    found = []
    for number, track in enumerate(order[:MOST_THREADS]):
        rows: list[list[Slice]] = []
        calls: list[Slice] = []
        depth: dict[int, int] = {}
        for event, parent in zip(by_track[track], trace.parent[by_track[track].at].tolist(), strict=True):
            if event.kind == Kind.CALL:
                calls.append(event)
                continue
            depth[event.row] = level = depth.get(parent, -1) + 1
            if level == len(rows):
                rows.append([])
            rows[level].append(event)
        name = "CPU" if len(order) == 1 else f"CPU\n{_wrapped(thread_label(trace, track))}"
        if len(rows) > MOST_LEVELS:
            name += f"\n{len(rows) - MOST_LEVELS} deeper\nleft out"
        if number == MOST_THREADS - 1 and left_out > 0:
            name += f"\n{left_out} threads more"
        found.append(_Thread(name, [row for row in (*rows[:MOST_LEVELS], calls) if row]))
    return found


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(plain(label, 60), 18, break_long_words=False))


def _lanes(activities: Sequence[Activity], others: Sequence[Slice]) -> list[_Lane]:
    lanes: dict[Track, list[Activity]] = defaultdict(list)
    beside: dict[Track, list[Slice]] = defaultdict(list)
    for activity in activities:
        lanes[activity.event.track].append(activity)
    for event in others:
        beside[event.track].append(event)
    one_device = len({track[0] for track in lanes}) == 1
    shown = {t: [plain(str(part), 20) for part in t] for t in lanes}
    names = {t: f"GPU\nstream {s}" if one_device else f"GPU {d}\nstream {s}" for t, (d, s) in shown.items()}
    return [_Lane(names[track], lanes[track], beside[track]) for track in sorted(lanes, key=_in_order)]


def _in_order(track: tuple[int | str, int | str]) -> list[tuple[bool, int, str]]:
    """Numbers by their value, before names."""
    return [(isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in track]


def _draw_panel(panel: _Panel, ax: Axes, span_us: float, left: float, shown: dict[str, str]) -> None:
    px_per_us = WIDTH_IN * DPI * (RIGHT - left) / span_us
    x = panel.axis

    def slices(events: list[Slice], top: float, colours: list[str], labels: list[str], height: float = 0.84) -> None:
        kept = sorted(zip(events, colours, labels, strict=True), key=lambda item: -item[0].duration_us)[:MOST_SLICES]
        boxes, edges = [], []
        for event, colour, label in kept:
            left, right = x(event.start_us), x(event.end_us)
            boxes.append([(left, top), (right, top), (right, top - height), (left, top - height)])
            edges.append(0.4 if (right - left) * px_per_us >= NARROWEST_EDGE_PX else 0.0)
            first, last = x.longest_seen(event.start_us, event.end_us)
            if text := _fitting(label, (last - first) * px_per_us):
                ink = "white" if colour in DARK else "black"
                middle = (first + last) / 2
                ax.text(middle, top - height / 2 - 0.04, text, ha="center", va="center", fontsize=LABEL_SIZE, color=ink)
        ax.add_collection(
            PolyCollection(boxes, facecolors=[c for _, c, _ in kept], edgecolors="#666666", linewidths=edges), autolim=False
        )

    top = float(panel.height)
    ticks: list[tuple[float, str]] = []
    call_top: dict[Track, float] = {}
    for number, thread in enumerate(panel.threads):
        ticks.append((top - 0.5 * (1 if len(panel.threads) == 1 else len(thread.rows)), thread.name))
        unnamed: list[tuple[Slice, str, float]] = []  # slices whose names go below, and where their boxes end
        rows = [*thread.rows, panel.overheads] if number == 0 and panel.overheads else thread.rows
        for row in rows:
            kinds = [cpu_kind(event.kind, event.name) for event in row]
            shown.update((CPU_NAMES[kind], CPU_COLOURS[kind]) for kind in sorted(set(kinds), key=list(CPU_COLOURS).index))
            labels = [plain(event.name) for event in row]
            slices(row, top, [CPU_COLOURS[kind] for kind in kinds], labels)
            unnamed += [
                (event, label, top - 0.84)
                for event, kind, label in zip(row, kinds, labels, strict=True)
                if (kind in ("call", "waiting", "profiler") or label in COMPILE_ROWS) and x.start_us <= event.start_us < x.end_us
            ]
            if row is panel.overheads:
                ticks.append((top - 0.5, "profiler"))
            else:
                call_top[row[0].track] = top
            top -= 1
        _names_below(ax, x, unnamed, top, px_per_us, rows=CALL_NAMES - 1)
        top -= CALL_NAMES
    launched = 0
    for lane in panel.lanes:
        activities = lane.activities
        ticks.append((top - 0.5, lane.name))
        for start, end in _gaps(panel, lane):
            ax.axvspan(x(start), x(end), (top - 1.15) / panel.height, (top + 0.15) / panel.height, color=IDLE, linewidth=0)
            text = f"idle {us(end - start)}"
            first, last = x.longest_seen(start, end)
            if _fitting(text, (last - first) * px_per_us) == text:
                middle = (first + last) / 2
                ax.text(middle, top - 0.46, text, ha="center", va="center", fontsize=LABEL_SIZE, color="#a0785a")
            shown["GPU idle"] = IDLE
        if lane.others:
            slices(lane.others, top, [OTHERS] * len(lane.others), [""] * len(lane.others))
            shown["other steps' work"] = OTHERS
        families = [family(a) for a in activities]
        shown.update((f, FAMILY_COLOURS[f]) for f in sorted(set(families), key=list(FAMILY_COLOURS).index))
        labels = [plain(decode_name(a.event.name).label) for a in activities]
        slices([a.event for a in activities], top, [FAMILY_COLOURS[f] for f in families], labels)
        below = [
            (a.event, label, top - 0.84) for a, label in zip(activities, labels, strict=True) if a.event.start_us >= x.start_us
        ]
        _names_below(ax, x, below, top - 0.9, px_per_us, rows=2)
        for a in activities:
            if a.call is None or a.call.start_us < x.start_us or a.call.track not in call_top:
                continue
            launched += 1
            if launched <= MOST_ARROWS:
                ax.annotate(
                    "", (x(a.event.start_us), top), (x(a.call.end_us), call_top[a.call.track] - 0.84),
                    arrowprops={"arrowstyle": "->", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
                )  # fmt: skip
        top -= 3
    for curve in panel.curves:
        ticks.append((top - 1.3, f"{curve.device}\nmemory"))
        _draw_curve(ax, x, curve, top, shown)
        top -= 3
    for step in panel.trace.steps:
        if x.start_us <= step.start_us <= x.end_us:
            ax.axvline(x(step.start_us), color="#555555", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    _draw_cuts(ax, panel)
    ax.set_xlim(-span_us * 0.003, span_us * 1.003)
    ax.set_ylim(0, panel.height + 0.1)
    ax.set_yticks([y for y, _ in ticks], [name for _, name in ticks], fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8)
    _draw_scale(ax, x, span_us, f" (arrows of the first {MOST_ARROWS} launches)" if launched > MOST_ARROWS else "")
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    lesson = panel.facts.lesson
    run = f"{lesson['script']} {lesson['run']}" if "script" in lesson and "run" in lesson else PurePath(panel.facts.trace).name
    device = plain(panel.facts.device or "device unknown")
    run = document.middle(plain(run), max(LONGEST_TITLE - len(device) - 2, 20))
    lines = [f"{run}, {device}", verdict(panel.facts).partition(". ")[0]]
    ax.set_title("\n".join(document.middle(plain(line), LONGEST_TITLE) for line in lines), fontsize=9, loc="left")


def _draw_curve(ax: Axes, x: _Axis, curve: Curve, top: float, shown: dict[str, str]) -> None:
    """The allocated bytes over time, from 0 to their peak in the window, as high as two rows."""
    first, last = np.searchsorted(curve.moment_ns, [x.start_us * 1000, x.end_us * 1000])
    before = int(curve.bytes[first - 1]) if first else curve.first_bytes
    moments = np.append(x.start_us, curve.moment_ns[first:last] / 1000)
    height = np.append(before, curve.bytes[first:last]).astype(float)
    kept = np.unique(np.linspace(0, len(height), MOST_POINTS + 1).astype(int)[:-1])  # of many, the highest of each stretch
    peak = max(float(height.max()), 1.0)
    tops = top - 2.2 + 2 * np.maximum.reduceat(height, kept) / peak
    places = [x(moment) for moment in [*moments[kept].tolist(), x.end_us]]
    ax.fill_between(places, np.append(tops, tops[-1]), top - 2.2, step="post", color=MEMORY, linewidth=0)
    ax.text(0, top - 2.25, f"peak {human_bytes(peak)}", ha="left", va="top", fontsize=LABEL_SIZE, color="#4d7a68")
    shown["allocated memory"] = MEMORY


def _draw_cuts(ax: Axes, panel: _Panel) -> None:
    """Two slanted strokes where a silence is cut out, and how long it is."""
    x = panel.axis
    for start, end in x.silences:
        left, right = x(start), x(end)
        ax.axvspan(left, right, color="white", zorder=3, linewidth=0)
        for edge in (left, right):
            ax.plot([edge, edge], [0, panel.height], color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=4)
        ax.text(
            (left + right) / 2, panel.height - 0.2, f"{us(end - start)} left out", rotation=90, ha="center", va="top",
            fontsize=LABEL_SIZE, color="#555555", zorder=5,
        )  # fmt: skip


def _draw_scale(ax: Axes, x: _Axis, span_us: float, note: str) -> None:
    """Ticks at round times, none inside a cut; in the unit that suits the window."""
    unit, size_us = next(
        (unit, size) for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1.0)) if span_us >= 2 * size or size == 1
    )
    every_us = _round_step(span_us / 9)
    zero_us = x.start_us - x.counts_from_us
    numbers = range(math.ceil(x.counts_from_us / every_us), int((x.end_us - zero_us) / every_us) + 1)
    # A few around each cut at most: what lies in a cut is not drawn.
    kept = [number * every_us for number in numbers if not x.hides(zero_us + number * every_us)]
    ax.set_xticks([x(zero_us + moment) for moment in kept], [f"{moment / size_us:g}" for moment in kept])
    ax.set_xlabel(unit + note, fontsize=8, labelpad=1)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


def _fitting(label: str, width_px: float) -> str:
    """As much of the label as fits: all of it, all but `aten::`, its beginning, or nothing."""
    letters = int((width_px - 4) / LETTER_PX)
    short = label.removeprefix("aten::")
    for text in (label, short):
        if letters >= len(text):
            return text
    return short[: letters - 1] + "…" if letters >= 5 else ""


def _gaps(panel: _Panel, lane: _Lane) -> list[tuple[float, float]]:
    """Where this stream did nothing, from the window's start to the last event in it; only gaps that can be seen."""
    visible = panel.axis.length_us / 400
    busy = sorted((event.start_us, event.end_us) for event in (*(a.event for a in lane.activities), *lane.others))
    reached, gaps = panel.axis.start_us, []
    for start, end in busy:
        if start - reached > visible:
            gaps.append((reached, start))
        reached = max(reached, end)
    return gaps


def _names_below(ax: Axes, x: _Axis, slices: list[tuple[Slice, str, float]], y: float, px_per_us: float, rows: int) -> None:
    """Names of slices too narrow to hold them, in so many rows below `y`, each where there is room.

    `slices`: the event, its name, and the height at which its box ends.
    """
    free_from = [0.0] * rows  # px
    for event, label, bottom in sorted(slices, key=lambda item: item[0].start_us):
        at_px, end_px = x(event.start_us) * px_per_us, x(event.end_us) * px_per_us
        if _fitting(label, end_px - at_px) == label:
            continue
        needs_px = len(label) * LETTER_PX + 8
        # To the right of the slice's start; before a cut and the picture's end, to the left of its end.
        to_left = at_px + needs_px > x.seen_until(event.start_us) * px_per_us + 8
        left_px, edge_px = (end_px - needs_px, end_px) if to_left else (at_px, at_px)
        row = next((r for r, free in enumerate(free_from) if free <= left_px), None)
        if row is None:
            continue
        free_from[row] = left_px + needs_px
        ax.plot([edge_px / px_per_us] * 2, [bottom, y - 0.65 - 0.8 * row], color="#999999", linewidth=0.5)
        ax.text(
            (edge_px + (-2 if to_left else 2)) / px_per_us, y - 0.5 - 0.8 * row, label,
            ha="right" if to_left else "left", va="center", fontsize=LABEL_SIZE,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.3}, zorder=6,
        )  # fmt: skip


def _draw_strip(panel: _Panel, ax: Axes) -> None:
    """The durations of the kernels that take most, call by call: what a mean would hide."""
    work = panel.trace.work
    for number, kernel in enumerate(panel.facts.compute_kernels[:STRIP_KERNELS]):
        name = kernel.name
        calls = work.where(work.is_named(name.__eq__) & (work.kind == Kind.KERNEL))
        durations = calls.duration_us.tolist()
        colour = FAMILY_COLOURS[family(panel.trace.activities(calls.where(np.array([0])))[0])]
        median = statistics.median(durations)
        label = f"{decode_name(name).label}: median {us(median)}, mean {us(statistics.fmean(durations))}"
        ax.plot(range(len(durations)), durations, marker="os^"[number], markersize=4, linewidth=0.6, color=colour, label=label)
        ax.axhline(median, color=colour, linewidth=0.6, linestyle=":")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("call", fontsize=8, labelpad=1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("us", fontsize=8)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=8, frameon=False, loc="center right")
    ax.set_title("Durations of the kernels that take most", fontsize=9, loc="left")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
