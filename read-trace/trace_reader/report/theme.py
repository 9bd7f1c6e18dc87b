"""The colours of slices and stretches, by what they are: one palette for pictures, pages and the course.

Of one kind of lane, any two can be told apart by people who see no difference of red and green, or of blue and yellow, and black
or white text can be read on each (tests/test_theme.py). `waiting` is hatched besides on pages.
"""

from trace_reader.names.work_kinds import CPU_KINDS, WORK_KINDS

CPU_COLOURS = {
    "step": "#c8ccd2", "annotation": "#576aee", "op": "#a6cbf2", "call": "#dda929", "waiting": "#f7f3c0", "profiler": "#b44786",
    "Python": "#55623f",
}  # fmt: skip
GPU_COLOURS = {
    "communication": "#ffb74d", "copy": "#b4e8a4", "attention": "#793fff", "convolution": "#18dcc8", "GEMM": "#0072b2",
    "optimizer": "#7a4a2b", "softmax, norm, reduction": "#ffe80b", "Triton": "#e63800", "pointwise": "#19a862",
    "other": "#6b6b6b", "GPU annotation": "#d3d0ff",
}  # fmt: skip
PATH_COLOURS = {  # the classes of the critical path, as a bar of a step has them
    "cpu": "#8cb8ea", "input": "#55623f", "latency": "#c34b0f", "compute": "#0072b2", "copy": "#b4e8a4",
    "communication": "#ffb74d", "unknown": "#c8ccd2",
}  # fmt: skip
COLOURS = {**CPU_COLOURS, **GPU_COLOURS}
IDLE = "#f4e9e2"
MEMORY = "#a9cfc0"
LABELS = {  # what a legend calls them, where that is not their kind
    "op": "CPU op", "call": "runtime or driver call", "waiting": "waiting", "profiler": "profiler or driver",
    "other": "other kernel", "copy": "copy or memset",
}  # fmt: skip

assert tuple(CPU_COLOURS) == CPU_KINDS and tuple(GPU_COLOURS) == (*WORK_KINDS, "GPU annotation")


def ink(colour: str) -> str:
    """Black or white: in which of them text can be read on a colour (relative luminance of WCAG 2.1)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "white"
