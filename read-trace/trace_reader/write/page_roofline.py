"""The roofline of a page: each op by shape a dot that lights up its slices, below the device's peaks."""

from collections.abc import Sequence
from html import escape
import math

from trace_reader.analysis.trace.op_shapes import OpShapeFacts
from trace_reader.names.devices import peak
from trace_reader.report.roofline import LEFT, RIGHT, dtypes, kind, place
from trace_reader.system.terminal import printable
from trace_reader.units import us

WIDE, HIGH = 640, 300
LARGEST, SMALLEST = 14.0, 3.0  # radius of the op with the most time, and of one with nearly none
BELOW = 3.0  # the lowest dot stands so many times above the lower edge
LABEL = 4  # from a line to its label


def roofline(ops: Sequence[OpShapeFacts], device: str, lights: Sequence[int | None]) -> str:
    """Return the figure, as HTML; empty where nothing is rated. `lights`: the number of what each op lights up."""
    memory, rated = peak(device, "memory"), [(op, light) for op, light in zip(ops, lights, strict=True) if op.peak_share]
    if memory is None or not rated:
        return ""
    one = [op for op, _ in rated]
    roofs = {name: top for name in dtypes(one) if (top := peak(device, name))}
    low = min(place(op)[1] for op in one) / BELOW
    high = max([*roofs.values(), *(place(op)[1] for op in one), RIGHT * memory / 1e3 if not roofs else 0.0]) * 2

    def x(ops_for_a_byte: float) -> float:
        return round(WIDE * math.log(min(max(ops_for_a_byte, LEFT), RIGHT) / LEFT) / math.log(RIGHT / LEFT), 1)

    def y(tera: float) -> float:
        return round(HIGH * (1 - math.log(max(tera, low) / low) / math.log(high / low)), 1)

    begin = max(LEFT, low * 1e3 / memory)
    end = min(RIGHT, max(roofs.values(), default=high) * 1e3 / memory)
    out = [
        f'<figure class="roofline"><svg viewBox="0 0 {WIDE} {HIGH}" role="group" aria-label="Roofline of the ops by shape">',
        f'<line x1="{x(begin)}" y1="{y(begin * memory / 1e3)}" x2="{x(end)}" y2="{y(end * memory / 1e3)}"/>',
        f'<text x="{x(begin) + LABEL}" y="{y(begin * memory / 1e3) - LABEL}">{memory:,.0f} GB/s</text>',
    ]
    for name, top in roofs.items():
        out.append(f'<line x1="{x(top * 1e3 / memory)}" y1="{y(top)}" x2="{WIDE}" y2="{y(top)}"/>')
        out.append(f'<text class="right" x="{WIDE - LABEL}" y="{y(top) - LABEL}">{top:,.0f} TFLOP/s in {escape(name)}</text>')
    longest = max(op.time_us for op in one)
    for op, light in reversed(rated):  # those with the most time above the others
        at = place(op)
        radius = max(SMALLEST, LARGEST * math.sqrt(op.time_us / longest))
        said = f"{op.op.removeprefix('aten::')} {op.shapes}: {us(op.time_us)} in all, {op.peak_share:.0%} of its limit"
        said = escape(printable(said))
        circle = f'<title>{said}</title><circle cx="{x(at[0])}" cy="{y(at[1])}" r="{radius:.1f}" fill="{kind(op)[1]}"/>'
        if light is None:
            out.append(f"<g>{circle}</g>")
        else:
            out.append(f'<g class="lights" role="button" tabindex="0" data-light="{light}" aria-label="{said}">{circle}</g>')
    key = '<svg width="12" height="12"><circle cx="6" cy="6" r="5" fill="{1}"/></svg> {0}'
    legend = "".join(f"<span>{key.format(*named)}</span>" for named in dict.fromkeys(map(kind, one)))
    axes = "to the right: operations for a byte of memory; up: operations a second; a dot's area: its time"
    return "".join([*out, f"</svg><figcaption>{legend} {axes}</figcaption></figure>"])
