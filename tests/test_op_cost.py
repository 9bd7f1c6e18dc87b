"""What the reader says that an op has to do, against torch's own counter, on the same run."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from trace_reader import analyze, load
from trace_reader.analysis.op_cost import cost_of
from trace_reader.model.slices import Inputs


def conv(*sizes, **more):
    return lambda: nn.Conv2d(*sizes, **more)(torch.randn(2, sizes[0], 15, 12, requires_grad=True)).sum().backward()


def attention(causal=False, grouped=False, length=24):
    query, key = torch.randn(2, 4, 24, 16, requires_grad=True), torch.randn(2, 2 if grouped else 4, length, 16)

    def run():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(query, key, key, is_causal=causal, enable_gqa=grouped).sum().backward()

    return run


RUNS = {
    "mm": lambda: torch.randn(5, 7) @ torch.randn(7, 11),
    "addmm": lambda: torch.addmm(torch.randn(11), torch.randn(5, 7), torch.randn(7, 11)),
    "bmm": lambda: torch.bmm(torch.randn(3, 5, 7), torch.randn(3, 7, 11)),
    "linear, both ways": lambda: nn.Linear(7, 11)(torch.randn(5, 7, requires_grad=True)).sum().backward(),
    "convolution": conv(6, 8, 3),
    "strided": conv(6, 8, (3, 5), stride=(2, 3), padding=(1, 2)),
    "dilated": conv(6, 8, 3, dilation=2, padding=1),
    # Of a grouped one, torch's counter takes the weight's gradient as if it had no groups.
    "grouped, forward": lambda: F.conv2d(torch.randn(2, 6, 15, 12), torch.randn(12, 2, 3, 3), groups=3),
    "attention": attention(),
    "attention to other keys": attention(length=40),
    "grouped queries": attention(grouped=True),
}


def counted(path, run):
    """The operations by the reader, of the run as recorded."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run()
    recorded.export_chrome_trace(str(path))
    return analyze(load(str(path))).op_shapes


@pytest.mark.parametrize("name", RUNS)
def test_operations_are_what_torch_counts(tmp_path, name):
    torch.manual_seed(0)
    shapes = counted(tmp_path / "t.json", RUNS[name])
    flop = sum(op.flop * op.calls for op in shapes if op.flop)
    with FlopCounterMode(display=False) as counter:
        RUNS[name]()
    assert flop == counter.get_total_flops() > 0


def test_a_causal_attention_counts_the_scores_that_it_needs(tmp_path):
    full, causal = (
        next(op.flop for op in counted(tmp_path / "t.json", attention(causal)) if op.op.endswith("_attention_for_cpu"))
        for causal in (False, True)
    )
    assert (full, causal) == (4 * 2 * 4 * 24 * 24 * 16, 4 * 2 * 4 * (24 * 25 // 2) * 16)


@pytest.mark.parametrize(
    ("op", "dims", "values", "kind", "moved"),
    [
        ("aten::_softmax", [(8, 16), (), ()], (), "reduction", 2 * 8 * 16 * 2),
        ("aten::native_layer_norm_backward", [(8, 16), (8, 16)], (), "reduction", 3 * 8 * 16 * 2),
        ("aten::sum", [(8, 16), ()], (), "reduction", 8 * 16 * 2),
        ("aten::embedding_dense_backward", [(4, 16), (4,), ()], ("", "", "10"), "pointwise", (4 + 10) * 16 * 2),
        ("aten::mm", [(8, 16), (16, 4)], (), "gemm", (8 * 16 + 16 * 4 + 8 * 4) * 2),
    ],
)
def test_bytes_are_inputs_read_and_outputs_written_once(op, dims, values, kind, moved):
    types = tuple("c10::Half" if dim else "" for dim in dims)
    cost = cost_of(op, Inputs(tuple(dims), types, ((),) * len(dims), values))
    assert cost is not None
    assert (cost.kind, cost.bytes, cost.dtype) == (kind, moved, "fp16")


@pytest.mark.parametrize(
    ("op", "dims", "types", "values"),
    [
        ("aten::mm", ((8, 16), (15, 4)), ("float", "float"), ()),
        ("aten::mm", ((8, 16),), ("float",), ()),
        ("aten::mm", "a text", ("float",), ()),
        ("aten::mkldnn_convolution", ((2, 3, 8, 8), (4, 3, 3, 3)), ("float", "float"), ()),  # no stride
        ("aten::_flash_attention_forward", ((9, 2, 16),) * 3, ("float",) * 3, ("",) * 9),  # of several lengths
        ("aten::_cudnn_attention_forward", ((1, 2, 9, 16),) * 3, ("float",) * 3, ()),  # causal or not
        ("aten::convolution_backward", ((2, 4, 6, 6), (2, 3, 8, 8)), ("float", "float"), ()),
        ("aten::embedding_dense_backward", ((4, 16), (4,)), ("float", "long int"), ("", "", "many")),
        ("a_custom::op", ((8, 16),), ("float",), ()),
        ("aten::mkldnn_convolution", ((2, 3, 8, 8), (4, 3, 3, 3)), ("float", "float"), ("", "", "", "[1]", "[0]", "[1]")),
        ("aten::sum", ((2**30, 2**30),), ("float",), ()),
        ("aten::sum", ((1,) * 65,), ("float",), ()),
    ],
)
def test_what_the_inputs_do_not_tell_is_not_guessed(op, dims, types, values):
    assert cost_of(op, Inputs(dims, types, (), values)) is None
