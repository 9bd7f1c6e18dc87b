"""Where an op by shape stands in a roofline, and in which colour: for the picture, and for the page."""

from trace_reader.analysis.trace.op_shapes import OpShapeFacts
from trace_reader.report.theme import COLOURS

_KINDS = {  # of an op's cost: its colour's name
    "gemm": "GEMM", "convolution": "convolution", "attention": "attention", "reduction": "softmax, norm, reduction",
    "pointwise": "pointwise",
}  # fmt: skip
TENSOR_CORES = {"fp32": ("tf32",)}  # they take products of fp32 as tf32, where they may
BYTES_ONLY = 0.25  # operations for a byte, at which ops that have no products stand
LEFT, RIGHT = 0.1, 10_000.0  # operations for a byte


def place(op: OpShapeFacts) -> tuple[float, float]:
    """Operations for a byte, and 10^12 operations a second."""
    if op.flop and op.bytes and op.tflop_per_s:
        return op.flop / op.bytes, op.tflop_per_s
    return BYTES_ONLY, BYTES_ONLY * (op.gb_per_s or 0.0) / 1000


def kind(op: OpShapeFacts) -> tuple[str, str]:
    """Return the name of its kind, and its colour."""
    name = _KINDS[op.kind or ""]
    return name, COLOURS[name]


def dtypes(ops: list[OpShapeFacts]) -> list[str]:
    """Return the types whose peaks are drawn: of the products, and what tensor cores may take these as."""
    return list(dict.fromkeys(name for op in ops if op.flop and op.dtype for name in (op.dtype, *TENSOR_CORES.get(op.dtype, ()))))
