"""A trace as a picture: the CPU's lane with its nesting and the GPU's lanes on one time axis. Needs matplotlib.

A long stretch in which nothing starts or ends and the GPU is idle is left out of the axis, and says how long it was.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
import io
from itertools import pairwise
import math
from pathlib import PurePath
import statistics

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from reader.decode import Event
from reader.facts import Facts, innermost_parents
from reader.kernel_names import decode_name
from reader.link import STEP, Activity, LinkedTrace
from reader.render import us, verdict
from reader.terminal import plain

FORMATS = (".png", ".svg")
WIDTH_IN, DPI = 11.0, 100  # a README shows it at about this width
ROW_IN = 0.24  # height of a lane's row
BETWEEN_IN = 0.75  # a panel's axis and title
MARGINS_IN = 0.35  # the legend
LETTER_PX = 6.0  # average width of a letter in a label
LABEL_SIZE = 7
MOST_SLICES = 4000  # of a lane; the narrowest are left out beyond
MOST_ARROWS = 200
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
    "copy": "#b279a2", "memset": "#9d9d9d", "other kernel": "#79706e",
}  # fmt: skip
DARK = (FAMILY_COLOURS["GEMM"], FAMILY_COLOURS["attention"], FAMILY_COLOURS["Triton"], FAMILY_COLOURS["other kernel"])
IDLE = "#f4e9e2"


@dataclass(frozen=True)
class Window:
    """What to show: times from the first recorded step's start (us), or steps by their numbers, both ends included."""

    us: tuple[float, float] | None = None
    steps: tuple[int, int] | None = None


class _Axis:
    """Where a moment is drawn: from 0, in microseconds of the picture, in which silences are cut out."""

    def __init__(self, start_us: float, end_us: float, silences: list[tuple[float, float]]):
        self.start_us, self.end_us, self.silences = start_us, end_us, silences
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


@dataclass(frozen=True)
class _Panel:
    trace: LinkedTrace
    facts: Facts
    axis: _Axis
    rows: list[list[Event]]  # of the CPU's main thread, by depth; then calls, then what the profiler and the driver do
    lanes: list[tuple[str, list[Activity]]]  # of the GPU, with names

    @property
    def height(self) -> int:
        return len(self.rows) + CALL_NAMES + len(self.lanes) * 3 + 1


def plot(traces: Sequence[tuple[LinkedTrace, Facts]], window: Window, suffix: str) -> bytes:
    """A picture of one trace, or of several above each other on one scale, as the bytes of a .png or .svg file.

    The same traces give the same bytes, with the same matplotlib. Raises LookupError if the window holds nothing.
    """
    figure = draw(traces, window)
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "profiling", "svg.fonttype": "path"}):
        figure.savefig(out, format=suffix.removeprefix("."), metadata={"Date": None} if suffix == ".svg" else {"Software": None})
    return out.getvalue()


def draw(traces: Sequence[tuple[LinkedTrace, Facts]], window: Window) -> Figure:
    """The figure, laid out and not yet encoded."""
    panels = [_panel(trace, facts, window) for trace, facts in traces]
    strips = [p for p in panels if len(p.trace.steps) >= STRIP_FROM_STEPS and p.trace.activities]
    heights = [p.height * ROW_IN for p in panels] + [1.4] * len(strips)
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + BETWEEN_IN * len(heights) + MARGINS_IN), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    span = max(p.axis.length_us for p in panels)
    shown: dict[str, str] = {}
    for panel, ax in zip(panels, axes, strict=False):
        _draw_panel(panel, ax, span, shown)
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
        left=0.08,
        right=0.99,
        top=1 - 0.42 / high,
        bottom=(MARGINS_IN + 0.4) / high,
        hspace=BETWEEN_IN * len(heights) / sum(heights),
    )
    return figure


def _panel(trace: LinkedTrace, facts: Facts, window: Window) -> _Panel:
    events = trace.steps or [a.event for a in trace.activities] or trace.ops
    origin_us = min((e.start_us for e in events), default=0.0)
    track = events[0].track if trace.steps else next((op.track for op in trace.ops), None)
    activities = trace.activities
    only: list[Event] | None = None
    if window.steps:
        first, last = window.steps
        wanted = {i for i, s in enumerate(trace.steps) if (m := STEP.match(s.name)) and first <= int(m[1]) <= last}
        if not wanted:
            raise LookupError(f"{facts.trace}: no recorded step from #{first} to #{last}")
        only = [s for i, s in enumerate(trace.steps) if i in wanted]
        activities = [a for a in activities if a.step in wanted]
        spans = [*only, *(a.event for a in activities)]
        start_us, end_us = min(e.start_us for e in spans), max(e.end_us for e in spans)
    elif window.us:
        start_us, end_us = origin_us + window.us[0], origin_us + window.us[1]
    else:
        every = [*events, *(a.event for a in activities), *_flush(trace, track)]
        start_us, end_us = origin_us, max((e.end_us for e in every), default=origin_us)
    rows = _rows(trace, track, start_us, end_us, only)
    lanes = _lanes(activities, start_us, end_us)
    if end_us <= start_us or not (any(rows) or lanes):
        raise LookupError(f"{facts.trace}: nothing was recorded in that window")
    axis = _Axis(start_us, end_us, _silences(rows, lanes, start_us, end_us))
    return _Panel(trace, facts, axis, rows, lanes)


def _flush(trace: LinkedTrace, track: object) -> list[Event]:
    """The synchronizing calls after the last step: the profiler's wait for the GPU."""
    end_us = max((step.end_us for step in trace.steps), default=float("inf"))
    return [call for call in trace.calls if call.start_us >= end_us and call.track == track and "Synchronize" in call.name]


def _silences(rows: list[list[Event]], lanes: list[tuple[str, list[Activity]]], start_us: float, end_us: float) -> list:
    """Intervals (start, end) in which nothing starts or ends and no GPU is busy, and that would be most of the picture."""
    if not lanes:
        return []
    busy = [a.event for _, activities in lanes for a in activities] + [e for row in rows for e in row if e.kind == "overhead"]
    moments = sorted({start_us, end_us, *(t for e in [*busy, *(e for row in rows for e in row)] for t in (e.start_us, e.end_us))})
    gaps = [(start, end) for start, end in pairwise(moments) if start_us <= start and end <= end_us]
    found: list[tuple[float, float]] = []
    rest_us = end_us - start_us
    for start, end in sorted(gaps, key=lambda gap: gap[0] - gap[1]):
        length_us = end - start
        if any(event.start_us < end and event.end_us > start for event in busy):
            continue
        if length_us < LONG_US or length_us < SILENCE * (rest_us - length_us):
            break
        found.append((start, end))
        rest_us -= length_us
    return sorted(found)


def _rows(trace: LinkedTrace, track: object, start_us: float, end_us: float, only: list[Event] | None) -> list[list[Event]]:
    """The slices of the CPU's main thread in the window, by how deep they lie in others; then calls, then overheads.

    `only`: what lies in these steps, and nothing of others.
    """
    inside = [
        e
        for events in (trace.steps, trace.annotations, trace.ops, trace.calls)
        for e in events
        if e.track == track
        and e.start_us < end_us
        and e.end_us > start_us
        and (only is None or any(step.start_us <= e.start_us < step.end_us for step in only))
    ]
    spans = [e for e in inside if e.kind != "call"]
    parent = innermost_parents(spans)
    depth: dict[int, int] = {}
    for span in sorted(spans, key=lambda e: (e.start_us, -e.duration_us)):
        above = parent.get(id(span))
        depth[id(span)] = depth[id(above)] + 1 if above is not None else 0
    rows: list[list[Event]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for span in spans:
        rows[depth[id(span)]].append(span)
    calls = [e for e in inside if e.kind == "call"]
    overheads = [e for e in trace.overheads if e.start_us < end_us and e.end_us > start_us]
    return [row for row in (*rows, calls, overheads) if row]


def _lanes(activities: Sequence[Activity], start_us: float, end_us: float) -> list[tuple[str, list[Activity]]]:
    lanes: dict[tuple, list[Activity]] = defaultdict(list)
    for activity in activities:
        if activity.event.start_us < end_us and activity.event.end_us > start_us:
            lanes[activity.event.track].append(activity)
    one_device = len({track[0] for track in lanes}) == 1
    shown = {t: [plain(str(part), 20) for part in t] for t in lanes}
    names = {t: f"GPU\nstream {s}" if one_device else f"GPU {d}\nstream {s}" for t, (d, s) in shown.items()}
    return [(names[track], lanes[track]) for track in sorted(lanes, key=_in_order)]


def _in_order(track: tuple[int | str, int | str]) -> list[tuple[bool, int, str]]:
    """Numbers by their value, before names."""
    return [(isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in track]


def family(activity: Activity) -> str:
    """The colour's name of a GPU event."""
    decoded = decode_name(activity.event.name)
    if decoded.family in ("memcpy", "memset"):
        return {"memcpy": "copy", "memset": "memset"}[decoded.family]
    if decoded.is_fused_attention:
        return "attention"
    if decoded.is_gemm:
        return "GEMM on CUDA cores" if decoded.unit == "CUDA cores" else "GEMM"
    if "Triton" in decoded.family or (decoded.family == "unknown" and _is_from_a_module(activity)):
        return "Triton"
    if decoded.family in ("softmax", "ATen reduce"):
        return "reduction, softmax"
    return "elementwise" if decoded.family in ("ATen elementwise", "multi-tensor", "ATen") else "other kernel"


def _is_from_a_module(activity: Activity) -> bool:
    """Whether a kernel of unknown make was launched as Triton's are: through the driver, and by no op of PyTorch's own."""
    by_driver = activity.call is not None and activity.call.name.startswith("cuLaunch")
    return by_driver and (activity.op is None or not activity.op.name.startswith("aten::"))


def _draw_panel(panel: _Panel, ax: Axes, span_us: float, shown: dict[str, str]) -> None:
    px_per_us = WIDTH_IN * DPI * 0.91 / span_us
    x = panel.axis

    def slices(events: list[Event], top: float, colours: list[str], labels: list[str], height: float = 0.84) -> None:
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
    ticks: list[tuple[float, str]] = [(top - 0.5, "CPU")]
    call_top = top
    unnamed: list[tuple[Event, str, float]] = []  # slices whose names go below, and where their boxes end
    for row in panel.rows:
        kinds = [_kind(event) for event in row]
        shown.update((CPU_NAMES[kind], CPU_COLOURS[kind]) for kind in sorted(set(kinds), key=list(CPU_COLOURS).index))
        labels = [plain(event.name) for event in row]
        slices(row, top, [CPU_COLOURS[kind] for kind in kinds], labels)
        unnamed += [
            (event, label, top - 0.84)
            for event, kind, label in zip(row, kinds, labels, strict=True)
            if (kind in ("call", "waiting", "profiler") or label in COMPILE_ROWS) and x.start_us <= event.start_us < x.end_us
        ]
        if row[0].kind == "overhead":
            ticks.append((top - 0.5, "profiler"))
        else:
            call_top = top
        top -= 1
    _names_below(ax, x, unnamed, top, px_per_us, rows=CALL_NAMES - 1)
    top -= CALL_NAMES
    arrows = 0
    for name, activities in panel.lanes:
        ticks.append((top - 0.5, name))
        for left, right in _gaps(panel, activities):
            ax.axvspan(x(left), x(right), (top - 1.15) / panel.height, (top + 0.15) / panel.height, color=IDLE, linewidth=0)
            text = f"idle {us(right - left)}"
            first, last = x.longest_seen(left, right)
            if _fitting(text, (last - first) * px_per_us) == text:
                middle = (first + last) / 2
                ax.text(middle, top - 0.46, text, ha="center", va="center", fontsize=LABEL_SIZE, color="#a0785a")
            shown["GPU idle"] = IDLE
        families = [family(a) for a in activities]
        shown.update((f, FAMILY_COLOURS[f]) for f in sorted(set(families), key=list(FAMILY_COLOURS).index))
        labels = [plain(decode_name(a.event.name).label) for a in activities]
        slices([a.event for a in activities], top, [FAMILY_COLOURS[f] for f in families], labels)
        below = [
            (a.event, label, top - 0.84) for a, label in zip(activities, labels, strict=True) if a.event.start_us >= x.start_us
        ]
        _names_below(ax, x, below, top - 0.9, px_per_us, rows=2)
        for a in activities:
            if a.call and a.call.start_us >= x.start_us and arrows < MOST_ARROWS:
                arrows += 1
                ax.annotate(
                    "", (x(a.event.start_us), top), (x(a.call.end_us), call_top - 0.84),
                    arrowprops={"arrowstyle": "->", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
                )  # fmt: skip
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
    _draw_scale(ax, x, span_us)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    lesson = panel.facts.lesson
    run = f"{lesson['script']} {lesson['run']}" if "script" in lesson and "run" in lesson else PurePath(panel.facts.trace).name
    title = f"{run}, {panel.facts.device or 'device unknown'}\n{verdict(panel.facts)}"
    ax.set_title("\n".join(plain(line) for line in title.split("\n")), fontsize=9, loc="left")


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


def _draw_scale(ax: Axes, x: _Axis, span_us: float) -> None:
    """Ticks at round times from the window's start, none inside a cut; in the unit that suits the window."""
    unit, size_us = next(
        (unit, size) for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1.0)) if span_us >= 2 * size or size == 1
    )
    every_us = _round_step(span_us / 9)
    whole = int((x.end_us - x.start_us) / every_us)
    # A few around each cut at most: what lies in a cut is not drawn.
    kept = [number * every_us for number in range(whole + 1) if not x.hides(x.start_us + number * every_us)]
    ax.set_xticks([x(x.start_us + moment) for moment in kept], [f"{moment / size_us:g}" for moment in kept])
    ax.set_xlabel(unit, fontsize=8, labelpad=1)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


def _kind(event: Event) -> str:
    if event.kind == "annotation":
        return "step" if STEP.match(event.name) else "annotation"
    if event.kind == "overhead":
        return "profiler"
    return "waiting" if "Synchronize" in event.name else event.kind


def _fitting(label: str, width_px: float) -> str:
    """As much of the label as fits: all of it, all but `aten::`, its beginning, or nothing."""
    letters = int((width_px - 4) / LETTER_PX)
    short = label.removeprefix("aten::")
    for text in (label, short):
        if letters >= len(text):
            return text
    return short[: letters - 1] + "…" if letters >= 5 else ""


def _gaps(panel: _Panel, activities: list[Activity]) -> list[tuple[float, float]]:
    """Where this stream did nothing, from the window's start to the last event in it; only gaps that can be seen."""
    visible = panel.axis.length_us / 400
    busy = sorted((a.event.start_us, a.event.end_us) for a in activities)
    reached, gaps = panel.axis.start_us, []
    for start, end in busy:
        if start - reached > visible:
            gaps.append((reached, start))
        reached = max(reached, end)
    return gaps


def _names_below(ax: Axes, x: _Axis, slices: list[tuple[Event, str, float]], y: float, px_per_us: float, rows: int) -> None:
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
    names = [k.name for k in panel.facts.kernels if k.decoded.family not in ("memcpy", "memset")][:STRIP_KERNELS]
    for number, name in enumerate(names):
        calls = [a for a in panel.trace.activities if a.event.name == name]
        durations = [a.event.duration_us for a in calls]
        colour = FAMILY_COLOURS[family(calls[0])]
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
