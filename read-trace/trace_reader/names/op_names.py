"""What a CPU op does, by its name."""

# Ops that change only a tensor's shape, strides or flags: they launch nothing on a GPU.
VIEW_OPS = frozenset(
    f"aten::{name}"
    for name in (
        "t", "transpose", "view", "reshape", "as_strided", "as_strided_", "_unsafe_view", "expand", "permute", "squeeze",
        "unsqueeze", "slice",
        "select", "detach", "alias", "_reshape_alias", "resolve_conj", "resolve_neg", "narrow", "chunk", "split", "unbind",
        "flatten", "unflatten", "T", "mT", "numpy_T", "movedim", "swapaxes", "view_as", "expand_as", "diagonal",
    )
)  # fmt: skip
# Ops that leave all work to an op inside them, or find nothing to do.
IDLE_OPS = frozenset(["aten::empty", "aten::empty_like", "aten::empty_strided", "aten::resize_", "aten::to", "aten::lift_fresh"])
BATCHED_GEMM_OPS = ("aten::bmm", "aten::baddbmm")
GEMM_OPS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
# Ops of a model's layers.
LAYER_OPS = frozenset(
    f"aten::{name}" for name in ("linear", "matmul", "conv1d", "conv2d", "conv3d", "layer_norm", "rms_norm", "batch_norm",
                                 "scaled_dot_product_attention", "mm", "addmm", "bmm", "lstm_cell", "gru_cell", "embedding")
)  # fmt: skip
# Ops that work themselves though there can be an op inside them that converts a Python number.
CONVERTING_OPS = frozenset(["aten::masked_fill_", *(f"aten::{op}{_}" for op in ("add", "sub", "mul", "div") for _ in ("", "_"))])


def is_device_copy(name: str) -> bool:
    """Return whether a memcpy of this name stays on the device."""
    return "DtoD" in name or "DeviceToDevice" in name
