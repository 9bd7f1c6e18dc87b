"""A job as a picture: a lane for each rank on one time axis, clocks aligned. Needs matplotlib."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
import numpy as np
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.analysis.jobs.rank_summary import RankSummary
from trace_reader.names.range_names import STEP
from trace_reader.report.job_report import job_sentence
from trace_reader.report.theme import COLOURS, IDLE
from trace_reader.report.timeline import Band, Stretch, rank_band
from trace_reader.system.terminal import printable
from trace_reader.write.trace_picture import BETWEEN_IN, DPI, LABEL_SIZE, MARGINS_IN, WIDTH_IN, PictureRange, encoded

LANE_IN = 0.42  # height of a rank's lane
MOST_LANES = 64
LETTERS = 150  # of a title's line
HIGH = 0.9  # of a lane


def plot(job: JobFacts, window: PictureRange, suffix: str) -> bytes:
    """Return the picture as the bytes of a .png or .svg file: the same job gives the same bytes, with the same matplotlib.

    Above in a lane is what computes and copies, below it the communication: waiting, then transfer. Of more than 64 ranks, those
    that wait least are shown, the straggler first. Raises LookupError if the window holds nothing.
    """
    return encoded(draw(job, window), suffix)


def draw(job: JobFacts, window: PictureRange) -> Figure:
    """Return the figure, laid out and not yet encoded."""
    order = sorted(range(len(job.ranks)), key=lambda place: (job.ranks[place].waiting_us, place))
    shown = sorted(order[:MOST_LANES])
    start_ns, end_ns = _window(job, shown, window)
    figure = Figure(figsize=(WIDTH_IN, LANE_IN * len(shown) + BETWEEN_IN + MARGINS_IN + 0.3), dpi=DPI)
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    legend: dict[str, str] = {}
    for row, place in enumerate(shown):
        band = rank_band(job, place)
        legend |= {kind.text: _colour(kind) for kind in band.kinds}
        _draw_lane(ax, row, band, job.offset_ns[place] or 0, start_ns, end_ns)
    _draw_steps(ax, job.summaries[shown[0]], job.offset_ns[shown[0]] or 0, start_ns, end_ns, len(shown))
    ax.set_xlim(0, (end_ns - start_ns) / 1e6)
    ax.set_ylim(len(shown) - 0.05, -0.05)
    ax.set_yticks([row + HIGH / 2 for row in range(len(shown))], [f"rank {job.ranks[place].rank}" for place in shown])
    ax.tick_params(labelsize=LABEL_SIZE, length=2)
    ax.set_xlabel("ms, by the clock of the first rank", fontsize=LABEL_SIZE)
    more = f" ({len(shown)} of {len(job.ranks)}, those that wait least)" if len(shown) < len(job.ranks) else ""
    title = textwrap.wrap(printable(job_sentence(job), 1000) + more, LETTERS)
    ax.set_title("\n".join(title), fontsize=LABEL_SIZE + 1, loc="left", pad=10)
    handles = [Patch(facecolor=colour, edgecolor="#888888", linewidth=0.5, label=name) for name, colour in legend.items()]
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize=LABEL_SIZE, frameon=False)
    height_in = figure.get_figheight()
    top_in = 0.35 + 0.13 * len(title)
    figure.subplots_adjust(left=0.06, right=0.99, top=1 - top_in / height_in, bottom=0.65 / height_in)
    return figure


def _window(job: JobFacts, shown: list[int], window: PictureRange) -> tuple[int, int]:
    """From the earliest start to the latest end of what is shown, by the first rank's clock."""
    spans = []
    for place in shown:
        summary, offset = job.summaries[place], job.offset_ns[place] or 0
        if window.steps is None:
            spans.append((summary.window_ns[0] + offset, summary.window_ns[1] + offset))
            continue
        numbers = [int(m[1]) if (m := STEP.match(name)) else -1 for name in summary.steps]
        chosen = [at for at, number in enumerate(numbers) if window.steps[0] <= number <= window.steps[1]]
        if chosen:
            next_ns = summary.step_ns[chosen[-1] + 1, 0] if chosen[-1] + 1 < len(numbers) else summary.window_ns[1]
            spans.append((int(summary.step_ns[chosen[0], 0]) + offset, int(next_ns) + offset))
    if not spans:
        first, last = window.steps or (0, 0)
        raise LookupError(f"no rank has recorded a step from ProfilerStep#{first} to #{last}")
    start_ns, end_ns = min(start for start, _ in spans), max(end for _, end in spans)
    if window.us is not None:
        start_ns, end_ns = start_ns + round(window.us[0] * 1000), min(start_ns + round(window.us[1] * 1000), end_ns)
    if end_ns <= start_ns:
        raise LookupError("the window holds nothing")
    return start_ns, end_ns


def _colour(kind: Stretch) -> str:
    return IDLE if kind.colour == "idle" else COLOURS[kind.colour]


def _draw_lane(ax: Axes, row: int, band: Band, offset_ns: int, start_ns: int, end_ns: int) -> None:
    """The lane of one rank: `row` down from the top."""
    starts, ends = (np.clip(side + offset_ns, start_ns, end_ns) for side in (band.start_ns, band.end_ns))
    for number, kind in enumerate(band.kinds):
        seen = (band.kind == number) & (ends > starts)
        left, right = ((side[seen] - start_ns) / 1e6 for side in (starts, ends))
        top = row + (HIGH / 2 if kind.half == 2 else 0)
        low = top + (HIGH / 2 if kind.half else HIGH)
        corners = [[(a, top), (b, top), (b, low), (a, low)] for a, b in zip(left.tolist(), right.tolist(), strict=True)]
        ax.add_collection(PolyCollection(corners, facecolors=_colour(kind), edgecolors="none"))


def _draw_steps(ax: Axes, summary: RankSummary, offset_ns: int, start_ns: int, end_ns: int, rows: int) -> None:
    for name, (begins, _) in zip(summary.steps, summary.step_ns.tolist(), strict=True):
        x = (begins + offset_ns - start_ns) / 1e6
        if not start_ns <= begins + offset_ns < end_ns - 0.05 * (end_ns - start_ns):  # its name would be cut off
            continue
        ax.plot([x, x], [-0.05, rows], color="#888888", linewidth=0.6, linestyle=":")
        ax.annotate(name, (x, -0.05), xytext=(2, 2), textcoords="offset points", fontsize=LABEL_SIZE - 1, annotation_clip=True)
