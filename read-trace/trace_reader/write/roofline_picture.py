"""The roofline of a run as a picture: each op and shape a dot, below the roofs of the device's peaks. Needs matplotlib."""

from collections import defaultdict

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np
from trace_reader.analysis.trace.counter_facts import DRAM, SM_ACTIVE
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_shapes import OpShapeFacts
from trace_reader.names.devices import peak
from trace_reader.report.document import middle
from trace_reader.report.roofline import BYTES_ONLY, LEFT, RIGHT, dtypes, kind, place
from trace_reader.units import us
from trace_reader.write.trace_picture import DPI, LABEL_SIZE, encoded

LARGEST_DOT, SMALLEST_DOT = 900.0, 25.0  # square points, of all the time and of nearly none
MOST_NAMES = 8


def plot(facts: Facts, suffix: str) -> bytes:
    """Return the picture as the bytes of a .png or .svg file. Raises LookupError: no op has known shapes and a device's peaks."""
    device = facts.device or ""
    memory = peak(device, "memory")
    rated = [op for op in facts.op_shapes if op.peak_share]
    if memory is None or not rated:
        lacks = (
            "shapes were not recorded (record_shapes=True)"
            if not facts.op_shapes
            else f"no peaks are known of {device or 'its device'}"
        )
        raise LookupError(f"{facts.trace}: no roofline: {lacks}")
    figure = Figure(figsize=(11, 6), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    x = np.logspace(np.log10(LEFT), np.log10(RIGHT), 200)
    for dtype in dtypes(rated):
        if top := peak(device, dtype):
            axes.plot(x, np.minimum(top, x * memory / 1000), color="#888888", linewidth=1)
            axes.annotate(f"{top:,.0f} TFLOP/s in {dtype}", (RIGHT, top), ha="right", va="bottom", fontsize=LABEL_SIZE)
    axes.plot(x, x * memory / 1000, color="#888888", linewidth=1, linestyle=":")
    axes.annotate(f"{memory:,.0f} GB/s", (LEFT * 1.3, LEFT * 1.3 * memory / 1000), rotation=0, va="bottom", fontsize=LABEL_SIZE)
    longest = max(op.time_us for op in rated)
    for op in reversed(rated):
        size = SMALLEST_DOT + LARGEST_DOT * op.time_us / longest / 2
        axes.scatter(*place(op), s=size, color=kind(op)[1], alpha=0.7, edgecolors="#333333", linewidths=0.5)
    counted = defaultdict[OpShapeFacts, str](str)
    for counter in facts.op_counters:
        if counter.counter in DRAM + SM_ACTIVE:
            counted[facts.op_shapes[counter.row]] += f", {counter.counter.removesuffix(' (%)')} {counter.mean:.0f}%"
    names = []
    for number, op in enumerate(rated[:MOST_NAMES], 1):
        axes.annotate(str(number), place(op), ha="center", va="center", fontsize=LABEL_SIZE, fontweight="bold")
        reached = f"{us(op.per_step_us)} {'per step' if facts.steps else 'in all'}, {op.peak_share:.0%} of its limit{counted[op]}"
        names.append(f"{number:2}  {op.op.removeprefix('aten::')} {middle(op.shapes, 36)}: {reached}")
    axes.text(0.3, 0.04, "\n".join(names), transform=axes.transAxes, fontsize=LABEL_SIZE, va="bottom", linespacing=1.5)
    for name, colour in dict.fromkeys(kind(op) for op in rated):
        axes.scatter([], [], color=colour, label=name)
    axes.legend(fontsize=LABEL_SIZE, loc="lower right")
    top = max((peak(device, op.dtype or "") or 1.0) for op in rated)
    axes.set(xscale="log", yscale="log", xlim=(LEFT, RIGHT), ylim=(LEFT * memory / 1000 / 10, 2 * top))
    axes.set_xlabel(f"operations for a byte of memory (ops without products stand at {BYTES_ONLY:g})", fontsize=LABEL_SIZE + 1)
    axes.set_ylabel("10^12 operations per second", fontsize=LABEL_SIZE + 1)
    axes.set_title(f"{facts.device}: ops by shape below the maker's peaks; a dot's area: its time", fontsize=LABEL_SIZE + 2)
    axes.tick_params(labelsize=LABEL_SIZE)
    return encoded(figure, suffix)
