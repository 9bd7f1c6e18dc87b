"""A trace as a picture: the CPU's threads with their nesting and the GPU's streams on one time axis. Needs matplotlib.

What there is to draw, and in which colour, is the timeline's (report/timeline.py); here it is decided what fits, and where.
"""

from collections.abc import Sequence
import io
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
from trace_reader.analysis.trace.memory_facts import Curve
from trace_reader.findings.verdict import verdict_sentence
from trace_reader.link.trace import Activity, Trace
from trace_reader.model.rows import Rows, among, once
from trace_reader.model.slices import ON_CPU, Kind, Slice
from trace_reader.names.call_names import is_synchronizing
from trace_reader.names.kernel_names import decode_name
from trace_reader.names.range_names import STEP
from trace_reader.report.document import middle
from trace_reader.report.theme import COLOURS, IDLE, LABELS, MEMORY, ink
from trace_reader.report.timeline import KINDS, Band, Lane, Timeline
from trace_reader.system.terminal import printable
from trace_reader.units import human_bytes, us
from trace_reader.write.picture_axis import Axis, round_step, silences

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
HIGH = 0.84  # of a row: its slices
NARROWEST_EDGE_PX = 3.0  # a narrower slice has no edge: edges alone would be a dark smear
# Rows of torch.compile that a reader looks for, though they are narrow.
COMPILE_ROWS = ("TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue")
MOST_POINTS = 2000  # of a curve
OTHERS = "#ececec"  # what steps launched that are not shown


class PictureRange(msgspec.Struct, frozen=True):
    """What to show: times from the first recorded step's start (us), or steps by their numbers, both ends included."""

    us: tuple[float, float] | None = None
    steps: tuple[int, int] | None = None


class _Thread(msgspec.Struct, frozen=True):
    """A thread of the CPU: its slices by how deep they lie in others; its calls are the last row."""

    name: str
    rows: list[list[Slice]]


class _Stream(msgspec.Struct, frozen=True):
    """A stream of a GPU: the work that is shown, and in its time the `others`, which steps launched that are not."""

    name: str
    device: int | str
    activities: list[Activity]
    others: list[Slice]


class _Panel(msgspec.Struct, frozen=True):
    timeline: Timeline
    axis: Axis
    threads: list[_Thread]  # that of the steps first
    overheads: list[Slice]  # what the profiler and the driver do
    streams: list[_Stream]

    @property
    def is_wide(self) -> bool:
        """Whether its labels need room: threads are named where there are several."""
        return len(self.threads) > 1

    @property
    def height(self) -> int:
        rows = sum(len(thread.rows) + CALL_NAMES for thread in self.threads) + bool(self.overheads)
        return rows + (len(self.streams) + len(self.timeline.curves)) * 3 + 1

    def kind(self, event: Slice) -> str:
        return KINDS[self.timeline.kinds[event.row]]


def plot(timelines: Sequence[Timeline], window: PictureRange, suffix: str) -> bytes:
    """Return a picture of one trace, or of several above each other on one scale, as the bytes of a .png or .svg file.

    The same traces give the same bytes, with the same matplotlib. Raises LookupError if the window holds nothing.
    """
    return encoded(draw(timelines, window), suffix)


def encoded(figure: Figure, suffix: str) -> bytes:
    """Return the bytes of a .png or .svg file: the same each time. Its metadata holds the titles, which pixels do not tell."""
    out = io.BytesIO()
    titles = [title for axes in figure.axes for loc in ("left", "center") if (title := axes.get_title(loc))]
    metadata = {"Description": "\n".join(titles), **({"Date": None} if suffix == ".svg" else {"Software": None})}
    with matplotlib.rc_context({"svg.hashsalt": "profiling", "svg.fonttype": "path"}):
        figure.savefig(out, format=suffix.removeprefix("."), metadata=metadata)
    return out.getvalue()


def draw(timelines: Sequence[Timeline], window: PictureRange) -> Figure:
    """Return the figure, laid out and not yet encoded."""
    panels = [_panel(timeline, window) for timeline in timelines]
    strips = [p for p in panels if len(p.timeline.trace.steps) >= STRIP_FROM_STEPS and len(p.timeline.trace.work)]
    heights = [p.height * ROW_IN for p in panels] + [1.4] * len(strips)
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + BETWEEN_IN * len(heights) + MARGINS_IN), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    span = max(p.axis.length_us for p in panels)
    left = LEFT_WIDE if any(p.is_wide for p in panels) else LEFT
    legend: dict[str, str] = {}
    for panel, ax in zip(panels, axes, strict=False):
        legend |= _Painter(panel, ax, span, left).paint()
    for panel, ax in zip(strips, axes[len(panels) :], strict=True):
        _draw_strip(panel, ax)
    handles = [Patch(facecolor=colour, edgecolor="#888888", linewidth=0.5, label=name) for name, colour in legend.items()]
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


def _panel(timeline: Timeline, window: PictureRange) -> _Panel:
    """Return what of a timeline lies in the window."""
    trace = timeline.trace
    shown = next((rows for rows in (trace.steps, trace.work, trace.ops) if len(rows)), trace.ops)
    origin_us = shown[0].start_us if len(shown) else 0.0
    main = int(trace.steps.track[0]) if len(trace.steps) else int(trace.ops.track[0]) if len(trace.ops) else None
    work, steps = trace.work, trace.steps
    if window.steps:
        steps, work = _of_steps(timeline, window.steps)
        start_us = min(int(rows.start_ns.min()) for rows in (steps, work) if len(rows)) / 1000
        end_us = max(int(rows.end_ns.max()) for rows in (steps, work) if len(rows)) / 1000
    elif window.us:
        start_us, end_us = origin_us + window.us[0], origin_us + window.us[1]
    else:
        ends = [rows.end_ns for rows in (shown, work, _flush(trace, main)) if len(rows)]
        start_us, end_us = origin_us, max((int(end.max()) for end in ends), default=0) / 1000
    threads = _threads(timeline, main, start_us, end_us, steps if window.steps else None)
    overheads = list(_between(trace.overheads, start_us, end_us))
    others = trace.work.where(~among(trace.work.at, work.at))
    streams = _streams(timeline, _between(work, start_us, end_us), _between(others, start_us, end_us))
    if end_us <= start_us or not (threads or overheads or streams):
        raise LookupError(f"{timeline.facts.trace}: nothing was recorded in that window")
    on_gpu = [event for stream in streams for event in (*(a.event for a in stream.activities), *stream.others)]
    on_cpu = [event for thread in threads for row in thread.rows for event in row]
    moments = [moment for event in on_cpu for moment in (event.start_us, event.end_us)]
    cuts = silences(start_us, end_us, moments, [(e.start_us, e.end_us) for e in (*on_gpu, *overheads)]) if streams else []
    return _Panel(timeline, Axis(start_us, end_us, cuts, window.us[0] if window.us else 0.0), threads, overheads, streams)


def _of_steps(timeline: Timeline, chosen: tuple[int, int]) -> tuple[Rows, Rows]:
    """Return the steps of these numbers, and the work that they launched."""
    first, last = chosen
    steps, work = timeline.trace.steps, timeline.trace.work
    wanted = [i for i, name in enumerate(steps.names) if (m := STEP.match(name)) and first <= int(m[1]) <= last]
    if not wanted:
        raise LookupError(f"{timeline.facts.trace}: no recorded step from #{first} to #{last}")
    return steps.where(np.array(wanted)), work.where(among(work.step, wanted))


def _between(rows: Rows, start_us: float, end_us: float) -> Rows:
    return rows.where((rows.start_ns < end_us * 1000) & (rows.end_ns > start_us * 1000))


def _flush(trace: Trace, main: int | None) -> Rows:
    """Return the synchronizing calls of the main thread after the last step: the profiler's wait for the GPU."""
    if not len(trace.steps):
        return trace.calls.where(np.zeros(len(trace.calls), bool))
    after = (trace.calls.start_ns >= trace.steps.end_ns.max()) & (trace.calls.track == main)
    return trace.calls.where(after & trace.calls.is_named(is_synchronizing))


def _threads(timeline: Timeline, main: int | None, start_us: float, end_us: float, steps: Rows | None) -> list[_Thread]:
    """Return the CPU threads that have a part in the window, in the lanes' order, with their slices by how deep they lie; calls
    last.

    `steps`: what starts in these steps, and nothing of others.
    """
    slices = timeline.trace.slices
    inside = _between(Rows(slices, slices.of(*ON_CPU)), start_us, end_us)
    if steps is not None:
        place = np.searchsorted(steps.start_ns, inside.start_ns, "right") - 1
        inside = inside.where((place >= 0) & (inside.start_ns < steps.end_ns[place]))
    by_track = {track: rows for (track,), rows in inside.by(inside.track)}
    # A thread of which there are only long annotations has no part in it: they are others' repeated.
    having = [t for t, rows in by_track.items() if (rows.kind != Kind.ANNOTATION).any() or t == main]
    lanes = sorted((lane for lane in timeline.lanes if lane.track in having), key=lambda lane: lane.track != main)
    left_out = len(lanes) - MOST_THREADS
    found = []
    for number, lane in enumerate(lanes[:MOST_THREADS]):
        rows = _by_depth(by_track[lane.track], timeline.trace.parent)
        name = "CPU" if len(lanes) == 1 else f"CPU\n{_wrapped(lane.label)}"
        if len(rows) - 1 > MOST_LEVELS:
            name += f"\n{len(rows) - 1 - MOST_LEVELS} deeper\nleft out"
        if number == MOST_THREADS - 1 and left_out > 0:
            name += f"\n{left_out} threads more"
        found.append(_Thread(name, [row for row in (*rows[:-1][:MOST_LEVELS], rows[-1]) if row]))
    return found


def _by_depth(rows: Rows, parents: np.ndarray) -> list[list[Slice]]:
    """Return the slices of a thread by how deep they lie in others; the calls are the last row."""
    levels: list[list[Slice]] = []
    calls: list[Slice] = []
    depth: dict[int, int] = {}
    for event, parent in zip(rows, parents[rows.at].tolist(), strict=True):
        if event.kind == Kind.CALL:
            calls.append(event)
            continue
        depth[event.row] = level = depth.get(parent, -1) + 1
        if level == len(levels):
            levels.append([])
        levels[level].append(event)
    return [*levels, calls]


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(printable(label, 60), 18, break_long_words=False))


def _streams(timeline: Timeline, work: Rows, others: Rows) -> list[_Stream]:
    """Return the streams that have work in the window."""
    found = []
    having = set(work.track.tolist())
    for lane in timeline.lanes:
        if lane.track in having:
            activities = timeline.trace.activities(work.where(work.track == lane.track))
            beside = list(others.where(others.track == lane.track))
            found.append(_Stream(_stream_name(lane), timeline.trace.slices.tracks[lane.track][0], activities, beside))
    return found


def _stream_name(lane: Lane) -> str:
    return printable(lane.label, 40).replace(" stream ", "\nstream ")


class _Painter:
    """Draws one panel, from the top down. `legend` are the colours that were used, by what they are called there."""

    def __init__(self, panel: _Panel, ax: Axes, span_us: float, left: float):
        self.panel, self.ax, self.x, self.span_us = panel, ax, panel.axis, span_us
        self.px_per_us = WIDTH_IN * DPI * (RIGHT - left) / span_us
        self.top = float(panel.height)
        self.ticks: list[tuple[float, str]] = []
        self.call_top: dict[tuple[int | str, int | str], float] = {}  # of each thread
        self.arrows = 0
        self.legend: dict[str, str] = {}

    def paint(self) -> dict[str, str]:
        for number, thread in enumerate(self.panel.threads):
            self._thread(thread, self.panel.overheads if number == 0 else [])
        devices: set[int | str] = set()
        for stream in self.panel.streams:
            self._idle(stream, is_first=stream.device not in devices)
            devices.add(stream.device)
            self._stream(stream)
        for curve in self.panel.timeline.curves:
            self._curve(curve)
        self._cuts()
        self._frame()
        return self.legend

    def _thread(self, thread: _Thread, overheads: list[Slice]) -> None:
        x = self.x
        self.ticks.append((self.top - 0.5 * (1 if len(self.panel.threads) == 1 else len(thread.rows)), thread.name))
        unnamed: list[tuple[Slice, str, float]] = []  # slices whose names go below, and where their boxes end
        for row in [*thread.rows, overheads] if overheads else thread.rows:
            kinds = [self.panel.kind(event) for event in row]
            labels = [printable(event.name) for event in row]
            self._slices(row, self.top, kinds, labels)
            unnamed += [
                (event, label, self.top - HIGH)
                for event, kind, label in zip(row, kinds, labels, strict=True)
                if (kind in ("call", "waiting", "profiler") or label in COMPILE_ROWS) and x.start_us <= event.start_us < x.end_us
            ]
            if row is overheads:
                self.ticks.append((self.top - 0.5, "profiler"))
            else:
                self.call_top[row[0].track] = self.top
            self.top -= 1
        self._names_below(unnamed, self.top, rows=CALL_NAMES - 1)
        self.top -= CALL_NAMES

    def _stream(self, stream: _Stream) -> None:
        activities = stream.activities
        self.ticks.append((self.top - 0.5, stream.name))
        if stream.others:
            self._boxes(stream.others, self.top, [OTHERS] * len(stream.others), [""] * len(stream.others))
            self.legend["other steps' work"] = OTHERS
        labels = [printable(decode_name(a.event.name).label) for a in activities]
        events = [a.event for a in activities]
        self._slices(events, self.top, [self.panel.kind(event) for event in events], labels)
        below = [(e, label, self.top - HIGH) for e, label in zip(events, labels, strict=True) if e.start_us >= self.x.start_us]
        self._names_below(below, self.top - 0.9, rows=2)
        for a in activities:
            self._arrow(a)
        self.top -= 3

    def _arrow(self, activity: Activity) -> None:
        """From a launch to what it launched."""
        call, x = activity.call, self.x
        if call is None or call.start_us < x.start_us or call.track not in self.call_top:
            return
        self.arrows += 1
        if self.arrows <= MOST_ARROWS:
            self.ax.annotate(
                "", (x(activity.event.start_us), self.top), (x(call.end_us), self.call_top[call.track] - HIGH),
                arrowprops={"arrowstyle": "->", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
            )  # fmt: skip

    def _idle(self, stream: _Stream, is_first: bool) -> None:
        """Where the stream's device did nothing, as far as it can be seen; in the lane of its first stream with how long."""
        band = next((band for device, band in self.panel.timeline.idle if device == stream.device), None)
        for start_us, end_us, text in _in_window(band, self.x) if band else []:
            self.ax.axvspan(
                self.x(start_us), self.x(end_us), (self.top - 1.15) / self.panel.height, (self.top + 0.15) / self.panel.height,
                color=IDLE, linewidth=0,
            )  # fmt: skip
            first, last = self.x.longest_seen(start_us, end_us)
            if is_first and _fitting(text, (last - first) * self.px_per_us) == text:
                middle_us = (first + last) / 2
                self.ax.text(middle_us, self.top - 0.46, text, ha="center", va="center", fontsize=LABEL_SIZE, color="#a0785a")
            self.legend["GPU idle"] = IDLE

    def _slices(self, events: list[Slice], top: float, kinds: list[str], labels: list[str]) -> None:
        self.legend |= {LABELS.get(kind, kind): COLOURS[kind] for kind in sorted(set(kinds), key=KINDS.index)}
        self._boxes(events, top, [COLOURS[kind] for kind in kinds], labels)

    def _boxes(self, events: list[Slice], top: float, colours: list[str], labels: list[str]) -> None:
        x = self.x
        kept = sorted(zip(events, colours, labels, strict=True), key=lambda item: -item[0].duration_us)[:MOST_SLICES]
        boxes, edges = [], []
        for event, colour, label in kept:
            left, right = x(event.start_us), x(event.end_us)
            boxes.append([(left, top), (right, top), (right, top - HIGH), (left, top - HIGH)])
            edges.append(0.4 if (right - left) * self.px_per_us >= NARROWEST_EDGE_PX else 0.0)
            first, last = x.longest_seen(event.start_us, event.end_us)
            if text := _fitting(label, (last - first) * self.px_per_us):
                self.ax.text(
                    (first + last) / 2,
                    top - HIGH / 2 - 0.04,
                    text,
                    ha="center",
                    va="center",
                    fontsize=LABEL_SIZE,
                    color=ink(colour),
                )
        self.ax.add_collection(
            PolyCollection(boxes, facecolors=[c for _, c, _ in kept], edgecolors="#666666", linewidths=edges), autolim=False
        )

    def _names_below(self, slices: list[tuple[Slice, str, float]], y: float, rows: int) -> None:
        """Names of slices too narrow to hold them, in so many rows below `y`, each where there is room.

        `slices`: the event, its name, and the height at which its box ends.
        """
        free_from, px = [0.0] * rows, self.px_per_us
        for event, label, bottom in sorted(slices, key=lambda item: item[0].start_us):
            at_px, end_px = self.x(event.start_us) * px, self.x(event.end_us) * px
            if _fitting(label, end_px - at_px) == label:
                continue
            needs_px = len(label) * LETTER_PX + 8
            # To the right of the slice's start; before a cut and the picture's end, to the left of its end.
            to_left = at_px + needs_px > self.x.seen_until(event.start_us) * px + 8
            left_px, edge_px = (end_px - needs_px, end_px) if to_left else (at_px, at_px)
            row = next((r for r, free in enumerate(free_from) if free <= left_px), None)
            if row is None:
                continue
            free_from[row] = left_px + needs_px
            self.ax.plot([edge_px / px] * 2, [bottom, y - 0.65 - 0.8 * row], color="#999999", linewidth=0.5)
            self.ax.text(
                (edge_px + (-2 if to_left else 2)) / px, y - 0.5 - 0.8 * row, label,
                ha="right" if to_left else "left", va="center", fontsize=LABEL_SIZE,
                bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.3}, zorder=6,
            )  # fmt: skip

    def _curve(self, curve: Curve) -> None:
        """The allocated bytes over time, from 0 to their peak in the window, as high as two rows."""
        x, top = self.x, self.top
        self.ticks.append((top - 1.3, f"{curve.device}\nmemory"))
        first, last = np.searchsorted(curve.moment_ns, [x.start_us * 1000, x.end_us * 1000])
        before = int(curve.bytes[first - 1]) if first else curve.first_bytes
        moments = np.append(x.start_us, curve.moment_ns[first:last] / 1000)
        height = np.append(before, curve.bytes[first:last]).astype(float)
        kept = once(np.linspace(0, len(height), MOST_POINTS + 1).astype(int)[:-1])  # of many, the highest of each stretch
        peak = max(float(height.max()), 1.0)
        tops = top - 2.2 + 2 * np.maximum.reduceat(height, kept) / peak
        places = [x(moment) for moment in [*moments[kept].tolist(), x.end_us]]
        self.ax.fill_between(places, np.append(tops, tops[-1]), top - 2.2, step="post", color=MEMORY, linewidth=0)
        self.ax.text(0, top - 2.25, f"peak {human_bytes(peak)}", ha="left", va="top", fontsize=LABEL_SIZE, color="#4d7a68")
        self.legend["allocated memory"] = MEMORY
        self.top -= 3

    def _cuts(self) -> None:
        """Two slanted strokes where a silence is cut out, and how long it is; a line where a step begins."""
        ax, x, height = self.ax, self.x, self.panel.height
        for step in self.panel.timeline.trace.steps:
            if x.start_us <= step.start_us <= x.end_us:
                ax.axvline(x(step.start_us), color="#555555", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
        for start, end in x.silences:
            left, right = x(start), x(end)
            ax.axvspan(left, right, color="white", zorder=3, linewidth=0)
            for edge in (left, right):
                ax.plot([edge, edge], [0, height], color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=4)
            ax.text(
                (left + right) / 2, height - 0.2, f"{us(end - start)} left out", rotation=90, ha="center", va="top",
                fontsize=LABEL_SIZE, color="#555555", zorder=5,
            )  # fmt: skip

    def _frame(self) -> None:
        """Axes, scale and title."""
        ax, panel = self.ax, self.panel
        ax.set_xlim(-self.span_us * 0.003, self.span_us * 1.003)
        ax.set_ylim(0, panel.height + 0.1)
        ax.set_yticks([y for y, _ in self.ticks], [name for _, name in self.ticks], fontsize=8)
        ax.tick_params(axis="y", length=0)
        ax.tick_params(axis="x", labelsize=8)
        note = f" (arrows of the first {MOST_ARROWS} launches)" if self.arrows > MOST_ARROWS else ""
        _draw_scale(ax, self.x, self.span_us, note)
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
        facts = panel.timeline.facts
        lesson = facts.lesson
        run = f"{lesson['script']} {lesson['run']}" if "script" in lesson and "run" in lesson else PurePath(facts.trace).name
        device = printable(facts.device or "device unknown")
        run = middle(printable(run), max(LONGEST_TITLE - len(device) - 2, 20))
        lines = [f"{run}, {device}", verdict_sentence(facts)]
        ax.set_title("\n".join(middle(printable(line), LONGEST_TITLE) for line in lines), fontsize=9, loc="left")


def _in_window(band: Band, axis: Axis) -> list[tuple[float, float, str]]:
    """Return the stretches of a band that can be seen: from, to (us), and what is written on them."""
    found = []
    for start_us, end_us in zip((band.start_ns / 1000).tolist(), (band.end_ns / 1000).tolist(), strict=True):
        first, last = max(start_us, axis.start_us), min(end_us, axis.end_us)
        if last - first > axis.length_us / 400:
            found.append((first, last, f"idle {us(end_us - start_us)}"))
    return found


def _draw_scale(ax: Axes, x: Axis, span_us: float, note: str) -> None:
    """Ticks at round times, none inside a cut; in the unit that suits the window."""
    unit, size_us = next(
        (unit, size) for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)) if span_us >= 2 * size or size == 1
    )
    every_us = round_step(span_us / 9)
    zero_us = x.start_us - x.counts_from_us
    kept = [
        number * every_us
        for start_us, end_us in x.seen
        for number in range(math.ceil((start_us - zero_us) / every_us), int((end_us - zero_us) / every_us) + 1)
    ]
    ax.set_xticks([x(zero_us + moment) for moment in kept], [f"{moment / size_us:g}" for moment in kept])
    ax.set_xlabel(unit + note, fontsize=8, labelpad=1)


def _fitting(label: str, width_px: float) -> str:
    """As much of the label as fits: all of it, all but `aten::`, its beginning, or nothing."""
    letters = int((width_px - 4) / LETTER_PX)
    short = label.removeprefix("aten::")
    for text in (label, short):
        if letters >= len(text):
            return text
    return short[: letters - 1] + "…" if letters >= 5 else ""


def _draw_strip(panel: _Panel, ax: Axes) -> None:
    """The durations of the longest kernels, call by call: what a mean would hide."""
    work = panel.timeline.trace.work
    for number, kernel in enumerate(panel.timeline.facts.compute_kernels[:STRIP_KERNELS]):
        calls = work.where(work.is_named(kernel.name.__eq__) & (work.kind == Kind.KERNEL))
        durations = calls.duration_us.tolist()
        colour = COLOURS[kernel.work_kind]
        median = statistics.median(durations)
        label = f"{kernel.decoded.label}: median {us(median)}, mean {us(statistics.fmean(durations))}"
        ax.plot(range(len(durations)), durations, marker="os^"[number], markersize=4, linewidth=0.6, color=colour, label=label)
        ax.axhline(median, color=colour, linewidth=0.6, linestyle=":")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("call", fontsize=8, labelpad=1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("µs", fontsize=8)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=8, frameon=False, loc="center right")
    ax.set_title("Durations of the longest kernels", fontsize=9, loc="left")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
