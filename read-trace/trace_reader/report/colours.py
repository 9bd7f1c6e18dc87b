"""Which colour a slice has, by what it is."""

from trace_reader.link.trace import STEP, Activity
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_synchronizing
from trace_reader.names.kernel_names import decode_name, is_collective

# Of the page, by what a slice is; of the GPU's work by the kinds of the report's table. Of one kind of lane, any two can be told
# apart by people who see no difference of red and green, or of blue and yellow, and black or white text can be read on each
# (tests/test_page.py); `waiting` is hatched besides.
CPU_COLOURS = {
    "step": "#c8ccd2", "annotation": "#576aee", "op": "#a6cbf2", "call": "#dda929", "waiting": "#f7f3c0", "profiler": "#b44786",
    "Python": "#55623f",
}  # fmt: skip
GPU_COLOURS = {
    "communication": "#ffb74d", "copy": "#b4e8a4", "attention": "#793fff", "convolution": "#18dcc8", "GEMM": "#0072b2",
    "optimizer": "#7a4a2b", "softmax, norm, reduction": "#ffe80b", "Triton": "#e63800", "pointwise": "#19a862",
    "other": "#6b6b6b", "GPU annotation": "#d3d0ff",
}  # fmt: skip


def cpu_kind(kind: Kind, name: str) -> str:
    """The colour's name of a slice of the CPU."""
    if kind == Kind.ANNOTATION:
        return "step" if STEP.match(name) else "annotation"
    if kind == Kind.OVERHEAD:
        return "profiler"
    if kind == Kind.PYTHON:
        return "Python"
    return "waiting" if is_synchronizing(name) else kind.word


def family(activity: Activity) -> str:
    """The colour's name of a GPU event."""
    decoded = decode_name(activity.event.name)
    if activity.event.kind != Kind.KERNEL:
        return "copy" if activity.event.kind == Kind.MEMCPY else "memset"
    if decoded.is_fused_attention:
        return "attention"
    if decoded.is_gemm:
        return "GEMM on CUDA cores" if decoded.unit == "CUDA cores" else "GEMM"
    if "Triton" in decoded.family or (decoded.family == "unknown" and _is_from_a_module(activity)):
        return "Triton"
    if decoded.family in ("softmax", "ATen reduce"):
        return "reduction, softmax"
    if is_collective(activity.event.name):
        return "communication"
    return "elementwise" if decoded.family in ("ATen elementwise", "multi-tensor", "ATen") else "other kernel"


def _is_from_a_module(activity: Activity) -> bool:
    """Whether a kernel of unknown make was launched as Triton's are: through the driver, and by no op of PyTorch's own."""
    by_driver = activity.call is not None and activity.call.name.startswith("cuLaunch")
    return by_driver and (activity.op is None or not activity.op.name.startswith("aten::"))
