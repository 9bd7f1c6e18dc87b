"""What a slice is, in one word: the same for tables, pictures and pages."""

import re

from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_synchronizing
from trace_reader.names.kernel_names import decode_name, is_collective, work_of_part

WORK_KINDS = (
    "communication", "copy", "attention", "convolution", "GEMM", "optimizer", "softmax, norm, reduction", "Triton", "pointwise",
    "other",
)  # fmt: skip
CPU_KINDS = ("step", "annotation", "op", "call", "waiting", "profiler", "Python")
_FUSED_OPTIMIZER = re.compile(r"Fused(?:Adam|AdamW|Sgd|SGD|Adagrad|Lamb|Lion)")
_FOREACH_COPY = re.compile(r"_foreach_(?:copy|zero)")
_FOREACH_NORM = re.compile(r"_foreach_(?:norm|max)|LpNorm")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")


def work_kind(name: str, kind: Kind, op: str | None, launch: str | None, in_optimizer: bool = False) -> str:
    """Return the kind of a GPU event's work, one of WORK_KINDS; the first that fits.

    `op` and `launch` are the names of the CPU op and of the call that launched it (None: not in the trace); `in_optimizer`:
    whether that op lies in an annotation of an optimizer's step.
    """
    decoded = decode_name(name)
    if is_collective(name):
        return "communication"
    if kind != Kind.KERNEL or "CatArray" in name:
        return "copy"
    if decoded.is_fused_attention:
        return "attention"
    if "conv" in (op or ""):
        return "convolution"
    if decoded.is_gemm:
        return "GEMM"
    if "multi_tensor_apply" in name:
        return _foreach_kind(name, op or "", in_optimizer)
    if decoded.is_softmax or decoded.library == "ATen reduce" or _normalizes(name, op or ""):
        return "softmax, norm, reduction"
    if "Triton" in decoded.library or (decoded.library == "unknown" and _is_from_a_module(name, op, launch)):
        return "Triton"
    if decoded.library == "ATen elementwise":
        return "pointwise"
    return decoded.work or work_of_part(name) or "other"


def cpu_kind(kind: Kind, name: str, is_step: bool) -> str:
    """Return the kind of a slice of the CPU, one of CPU_KINDS. `is_step`: whether it is one of the trace's steps."""
    if kind == Kind.ANNOTATION:
        return "step" if is_step else "annotation"
    if kind == Kind.OVERHEAD:
        return "profiler"
    if kind == Kind.PYTHON:
        return "Python"
    return "waiting" if is_synchronizing(name) else kind.word


def _foreach_kind(name: str, op: str, in_optimizer: bool) -> str:
    """Of a kernel that goes through a list of tensors: an optimizer's where it is fused, or runs inside an optimizer's step."""
    if in_optimizer or _FUSED_OPTIMIZER.search(name):
        return "optimizer"
    if _FOREACH_COPY.search(op):
        return "copy"
    return "softmax, norm, reduction" if _FOREACH_NORM.search(op) or _FOREACH_NORM.search(name) else "pointwise"


def _normalizes(name: str, op: str) -> bool:
    return "norm" in name.lower() or "GammaBeta" in name or "norm" in op.lower()


def _is_from_a_module(name: str, op: str | None, launch: str | None) -> bool:
    """Return whether a kernel of unknown make was launched as Triton's are: a plain name, by the driver, by no op of PyTorch's
    own.
    """
    by_driver = launch is not None and launch.startswith("cuLaunch")
    return by_driver and _IDENTIFIER.match(name) is not None and (op is None or not op.startswith("aten::"))
