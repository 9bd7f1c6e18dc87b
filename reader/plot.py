"""A trace as a picture: the CPU's lane with its nesting and the GPU's lanes on one time axis. Needs matplotlib."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
import io
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

FORMATS = (".png", ".svg")
WIDTH_IN, DPI = 11.0, 100  # a README shows it at about this width
ROW_IN = 0.24  # height of a lane's row
LETTER_PX = 6.0  # average width of a letter in a label
LABEL_SIZE = 7
MOST_SLICES = 4000  # of a lane; the narrowest are left out beyond
MOST_ARROWS = 200
STRIP_FROM_STEPS = 10  # recorded steps, from which on the durations are drawn too
STRIP_KERNELS = 3
CPU_COLOURS = {
    "step": "#d9dde3", "annotation": "#b9c6d8", "op": "#8fb3e0", "call": "#f2c078", "waiting": "#e3e3e3"
}  # fmt: skip
CPU_NAMES = {"step": "step", "annotation": "annotation", "op": "CPU op", "call": "runtime or driver call", "waiting": "waits"}
FAMILY_COLOURS = {
    "GEMM": "#4c78a8", "attention": "#72559f", "Triton": "#e45756", "elementwise": "#54a24b", "reduction, softmax": "#eeca3b",
    "copy": "#b279a2", "memset": "#9d9d9d", "other kernel": "#79706e",
}  # fmt: skip
DARK = (FAMILY_COLOURS["GEMM"], FAMILY_COLOURS["attention"], FAMILY_COLOURS["Triton"], FAMILY_COLOURS["other kernel"])
IDLE = "#f4e9e2"


@dataclass(frozen=True)
class Window:
    """What to show: times from the first recorded step's start (us), or steps by their numbers, both ends included."""

    us: tuple[float, float] | None = None
    steps: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Panel:
    trace: LinkedTrace
    facts: Facts
    start_us: float
    end_us: float
    rows: list[list[Event]]  # of the CPU's main thread, by depth
    lanes: list[tuple[str, list[Activity]]]  # of the GPU, with names

    @property
    def height(self) -> int:
        return len(self.rows) + len(self.lanes) * 3 + 2


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
    heights = [p.height * ROW_IN + 0.75 for p in panels] + [2.0] * len(strips)
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + 0.85), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    span = max(p.end_us - p.start_us for p in panels)
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
    figure.subplots_adjust(
        left=0.08, right=0.99, top=1 - 0.42 / figure.get_figheight(), bottom=0.87 / figure.get_figheight(), hspace=0.45
    )
    return figure


def _panel(trace: LinkedTrace, facts: Facts, window: Window) -> _Panel:
    events = trace.steps or [a.event for a in trace.activities] or trace.ops
    origin_us = min((e.start_us for e in events), default=0.0)
    if window.steps:
        first, last = window.steps
        wanted = {i for i, s in enumerate(trace.steps) if (m := STEP.match(s.name)) and first <= int(m[1]) <= last}
        if not wanted:
            raise LookupError(f"no recorded step from #{first} to #{last}")
        spans = [s for i, s in enumerate(trace.steps) if i in wanted]
        spans += [a.event for a in trace.activities if a.step in wanted]
        start_us, end_us = min(e.start_us for e in spans), max(e.end_us for e in spans)
    elif window.us:
        start_us, end_us = origin_us + window.us[0], origin_us + window.us[1]
    else:
        every = [*events, *(a.event for a in trace.activities)]
        start_us, end_us = origin_us, max((e.end_us for e in every), default=origin_us)
    track = events[0].track if trace.steps else next((op.track for op in trace.ops), None)
    rows = _rows(trace, track, start_us, end_us)
    lanes = _lanes(trace, start_us, end_us)
    if end_us <= start_us or not (rows or lanes):
        raise LookupError(f"{facts.trace}: nothing was recorded in that window")
    return _Panel(trace, facts, start_us, end_us, rows, lanes)


def _rows(trace: LinkedTrace, track: object, start_us: float, end_us: float) -> list[list[Event]]:
    """The slices of the CPU's main thread in the window, by how deep they lie in others; calls come last."""
    inside = [
        e
        for events in (trace.steps, trace.annotations, trace.ops, trace.calls)
        for e in events
        if e.track == track and e.start_us < end_us and e.end_us > start_us
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
    return rows + ([calls] if calls else [])


def _lanes(trace: LinkedTrace, start_us: float, end_us: float) -> list[tuple[str, list[Activity]]]:
    lanes: dict[tuple, list[Activity]] = defaultdict(list)
    for activity in trace.activities:
        if activity.event.start_us < end_us and activity.event.end_us > start_us:
            lanes[activity.event.track].append(activity)
    one_device = len({track[0] for track in lanes}) == 1
    names = {t: f"GPU\nstream {t[1]}" if one_device else f"GPU {t[0]}\nstream {t[1]}" for t in lanes}
    return [(names[track], lanes[track]) for track in sorted(lanes, key=str)]


def family(activity: Activity) -> str:
    """The colour's name of a GPU event."""
    decoded = decode_name(activity.event.name)
    if decoded.family in ("memcpy", "memset"):
        return {"memcpy": "copy", "memset": "memset"}[decoded.family]
    if decoded.is_fused_attention:
        return "attention"
    if decoded.is_gemm:
        return "GEMM"
    if "Triton" in decoded.family or (decoded.family == "unknown" and activity.op is None):
        return "Triton"
    if decoded.family in ("softmax", "ATen reduce"):
        return "reduction, softmax"
    return "elementwise" if decoded.family in ("ATen elementwise", "multi-tensor", "ATen") else "other kernel"


def _draw_panel(panel: _Panel, ax: Axes, span_us: float, shown: dict[str, str]) -> None:
    px_per_us = WIDTH_IN * DPI * 0.91 / span_us

    def x(moment_us: float) -> float:
        return moment_us - panel.start_us

    def slices(events: list[Event], top: float, colours: list[str], labels: list[str], height: float = 0.84) -> None:
        kept = sorted(zip(events, colours, labels, strict=True), key=lambda item: -item[0].duration_us)[:MOST_SLICES]
        boxes = []
        for event, colour, label in kept:
            left, right = max(x(event.start_us), 0.0), min(x(event.end_us), panel.end_us - panel.start_us)
            boxes.append([(left, top), (right, top), (right, top - height), (left, top - height)])
            if text := _fitting(label, (right - left) * px_per_us):
                ink = "white" if colour in DARK else "black"
                middle = (left + right) / 2
                ax.text(middle, top - height / 2 - 0.04, text, ha="center", va="center", fontsize=LABEL_SIZE, color=ink)
        ax.add_collection(
            PolyCollection(boxes, facecolors=[c for _, c, _ in kept], edgecolors="#666666", linewidths=0.4), autolim=False
        )

    top = float(panel.height)
    ticks: list[tuple[float, str]] = [(top - 0.5, "CPU")]
    call_top = top
    for row in panel.rows:
        kinds = [_kind(event) for event in row]
        shown.update((CPU_NAMES[kind], CPU_COLOURS[kind]) for kind in sorted(set(kinds), key=list(CPU_COLOURS).index))
        slices(row, top, [CPU_COLOURS[kind] for kind in kinds], [e.name.removeprefix("aten::") for e in row])
        call_top = top
        top -= 1
    top -= 1
    arrows = 0
    for name, activities in panel.lanes:
        ticks.append((top - 0.5, name))
        for left, right in _gaps(panel, activities):
            ax.axvspan(x(left), x(right), (top - 1.15) / panel.height, (top + 0.15) / panel.height, color=IDLE, linewidth=0)
            text = f"idle {us(right - left)}"
            if _fitting(text, (right - left) * px_per_us) == text:
                middle = (x(left) + x(right)) / 2
                ax.text(middle, top - 0.46, text, ha="center", va="center", fontsize=LABEL_SIZE, color="#a0785a")
            shown["GPU idle"] = IDLE
        families = [family(a) for a in activities]
        shown.update((f, FAMILY_COLOURS[f]) for f in sorted(set(families), key=list(FAMILY_COLOURS).index))
        labels = [decode_name(a.event.name).label for a in activities]
        slices([a.event for a in activities], top, [FAMILY_COLOURS[f] for f in families], labels)
        _names_below(ax, panel, activities, labels, top - 0.9, px_per_us, span_us)
        for a in activities:
            if a.call and a.call.start_us >= panel.start_us and arrows < MOST_ARROWS:
                arrows += 1
                ax.annotate(
                    "", (max(x(a.event.start_us), 0), top), (x(a.call.end_us), call_top - 0.84),
                    arrowprops={"arrowstyle": "->", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
                )  # fmt: skip
        top -= 3
    for step in panel.trace.steps:
        if panel.start_us <= step.start_us <= panel.end_us:
            ax.axvline(x(step.start_us), color="#555555", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    ax.set_xlim(-span_us * 0.003, span_us * 1.003)
    ax.set_ylim(0, panel.height + 0.1)
    ax.set_yticks([y for y, _ in ticks], [name for _, name in ticks], fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8)
    ax.set_xlabel("us", fontsize=8, labelpad=1)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    lesson = panel.facts.lesson
    run = f"{lesson['script']} {lesson['run']}" if "script" in lesson and "run" in lesson else PurePath(panel.facts.trace).name
    ax.set_title(f"{run}, {panel.facts.device or 'device unknown'}\n{verdict(panel.facts)}", fontsize=9, loc="left")


def _kind(event: Event) -> str:
    if event.kind == "annotation":
        return "step" if STEP.match(event.name) else "annotation"
    return "waiting" if "Synchronize" in event.name else event.kind


def _fitting(label: str, width_px: float) -> str:
    """As much of the label as fits: all of it, its beginning, or nothing."""
    letters = int((width_px - 4) / LETTER_PX)
    if letters >= len(label):
        return label
    return label[: letters - 1] + "…" if letters >= 5 else ""


def _gaps(panel: _Panel, activities: list[Activity]) -> list[tuple[float, float]]:
    """Where this stream did nothing, from the window's start to the last event in it; only gaps that can be seen."""
    visible = (panel.end_us - panel.start_us) / 400
    busy = sorted((a.event.start_us, a.event.end_us) for a in activities)
    reached, gaps = panel.start_us, []
    for start, end in busy:
        if start - reached > visible:
            gaps.append((reached, start))
        reached = max(reached, end)
    return gaps


def _names_below(
    ax: Axes, panel: _Panel, activities: list[Activity], labels: list[str], y: float, px_per_us: float, span_us: float
) -> None:
    """Names of slices too narrow to hold them, in up to two rows below, each where there is room."""
    free_from = [0.0, 0.0]  # px
    for activity, label in zip(activities, labels, strict=True):
        left = max(activity.event.start_us, panel.start_us)
        width_px = (min(activity.event.end_us, panel.end_us) - left) * px_per_us
        if _fitting(label, width_px) == label or left < panel.start_us:
            continue
        at_px = (left - panel.start_us) * px_per_us
        needs_px = len(label) * LETTER_PX + 8
        row = next((r for r, free in enumerate(free_from) if free <= at_px), None)
        if row is None or at_px + needs_px > span_us * px_per_us + 8:
            continue
        free_from[row] = at_px + needs_px
        ax.plot([at_px / px_per_us] * 2, [y, y - 0.55 - 0.8 * row], color="#999999", linewidth=0.5)
        ax.text(at_px / px_per_us + 2 / px_per_us, y - 0.6 - 0.8 * row, label, ha="left", va="center", fontsize=LABEL_SIZE)


def _draw_strip(panel: _Panel, ax: Axes) -> None:
    """The durations of the kernels that take most, call by call: what a mean would hide."""
    names = [k.name for k in panel.facts.kernels if k.decoded.family not in ("memcpy", "memset")][:STRIP_KERNELS]
    for number, name in enumerate(names):
        durations = [a.event.duration_us for a in panel.trace.activities if a.event.name == name]
        colour = list(FAMILY_COLOURS.values())[number]
        median = statistics.median(durations)
        label = f"{decode_name(name).label}: median {us(median)}, mean {us(statistics.fmean(durations))}"
        ax.plot(range(len(durations)), durations, marker="o", markersize=4, linewidth=0.6, color=colour, label=label)
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
