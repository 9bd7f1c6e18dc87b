"""What the reader says that an op has to do, against torch's own counter, on the same run."""

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from trace_reader import analyze, load
from trace_reader.analysis.trace.op_cost import _ATTENTIONS, _CONVOLUTIONS, cost_of
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
    "transposed": lambda: F.conv_transpose2d(torch.randn(2, 6, 9, 7), torch.randn(6, 4, 3, 5), stride=2, padding=1),
    "transposed, grouped": lambda: F.conv_transpose2d(
        torch.randn(2, 6, 9, 7), torch.randn(6, 4, 3, 5), groups=2, output_padding=0
    ),
    "attention": attention(),
    "attention to other keys": attention(length=40),
    "grouped queries": attention(grouped=True),
}


def counted(path, run):
    """Return the operations by the reader, of the run as recorded."""
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


def arguments(op):
    """Return the names of an op's arguments, as torch has them; None where this torch has no such op."""
    found = getattr(torch.ops.aten, op.removeprefix("aten::"), None)
    return None if found is None else [argument.name for argument in found.default._schema.arguments]


@pytest.mark.parametrize("op", _CONVOLUTIONS)
def test_a_convolutions_stride_padding_and_dilation_stand_where_torch_has_them(op):
    names, places = arguments(op), _CONVOLUTIONS[op]
    if names is None:
        pytest.skip(f"this torch has no {op}")
    assert [names[place] for place in places if place is not None] == ["stride", "padding", "dilation"][: 3 - (places[2] is None)]
    assert (places[2] is None) is ("dilation" not in names)


@pytest.mark.parametrize("op", _ATTENTIONS)
def test_an_attentions_query_and_its_mask_stand_where_torch_has_them(op):
    names, (first, _, causal, products) = arguments(op), _ATTENTIONS[op]
    if names is None:
        pytest.skip(f"this torch has no {op}")
    assert names[first : first + 3] == ["query", "key", "value"] and names[causal] in ("is_causal", "custom_mask_type")
    assert products == (5 if "backward" in op else 2)


@pytest.mark.parametrize(("custom_mask", "pairs"), [("0", 24 * 24), ("1", 24 * 25 // 2), ("2", 24 * 25 // 2)])
def test_the_efficient_backend_says_by_a_number_that_it_is_causal(custom_mask, pairs):
    shape, values = (2, 24, 4, 16), ("",) * 9 + (custom_mask, "True")
    cost = cost_of("aten::_efficient_attention_forward", Inputs((shape,) * 3, ("c10::Half",) * 3, (), values))
    assert cost is not None and cost.flop == 4 * 2 * 4 * pairs * 16


@pytest.mark.parametrize(("asked", "kept"), [(1024, 128), (128, 1024)])
def test_of_other_many_queries_than_keys_a_causal_attention_is_not_rated(asked, kept):
    """Where the mask begins is the backend's. Without a mask all pairs count."""
    dims = ((1, asked, 16, 64), *((1, kept, 16, 64),) * 2)
    first, _, causal, _ = _ATTENTIONS["aten::_flash_attention_forward"]
    for masked in ("True", "False"):
        values = ("",) * 8 + (masked, "False")
        assert (first, values[causal]) == (0, masked)
        cost = cost_of("aten::_flash_attention_forward", Inputs(dims, ("c10::Half",) * 3, (), values))
        assert cost is None if masked == "True" else cost is not None and cost.flop == 4 * 16 * asked * kept * 64


def test_an_attentions_output_is_as_wide_as_its_values():
    """The queries and keys are 192 wide, the values 128. Backward reads these, the output and its gradient, and writes three."""
    query, value = (2, 24, 4, 192), (2, 24, 4, 128)
    forward = cost_of(
        "aten::_flash_attention_forward", Inputs((query, query, value), ("c10::Half",) * 3, (), ("",) * 8 + ("False",))
    )
    rows = 2 * 24 * 4 * 2
    assert forward is not None and forward.bytes == rows * (192 + 192 + 128 + 128)
    backward = cost_of(
        "aten::_flash_attention_backward", Inputs((value, query, query, value), ("c10::Half",) * 4, (), ("",) * 11 + ("False",))
    )
    assert backward is not None and backward.bytes == 2 * forward.bytes
    # Three products are as wide as the queries, two as the values.
    assert backward.flop == 2 * 2 * 4 * 24 * 24 * (3 * 192 + 2 * 128)


@pytest.mark.parametrize(
    ("op", "added", "values", "read"),
    [
        ("aten::addmm", (512,), (), 512), ("aten::addmm", (64, 512), ("", "", "", "1", "1"), 64 * 512),
        ("aten::addmm", (64, 512), ("", "", "", "0", "1"), 0),
    ],
)  # fmt: skip
def test_what_is_added_to_a_product_is_read_once(op, added, values, read):
    cost = cost_of(op, Inputs((added, (64, 256), (256, 512)), ("c10::Half",) * 3, (), values))
    assert cost is not None and cost.bytes == 2 * (64 * 256 + 256 * 512 + 64 * 512 + read)


def test_what_is_written_into_a_given_tensor_is_not_multiplied():
    """mm.out, as torch.compile calls it; and addmm, where what is added is a matrix."""
    types = ("c10::Half",) * 3
    out = cost_of("aten::mm", Inputs(((64, 256), (256, 512), (64, 512)), types, ()))
    added = cost_of("aten::addmm", Inputs(((64, 512), (64, 256), (256, 512)), types, ()))
    assert out is not None and added is not None and out.flop == added.flop == 2 * 64 * 256 * 512


def test_a_transposed_convolution_multiplies_each_element_of_its_image():
    """Its output has 2 times 3 channels and (6 - 1) * 2 - 2 + 2 + 1 + 1 = 12 by 12 elements of each."""
    dims = ((2, 4, 6, 6), (4, 3, 3, 3), (), (), (), (), ())
    values = ("", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[1, 1]", "2")
    inputs = Inputs(dims, ("float", "float", *("",) * 5), (), values)
    cost = cost_of("aten::_convolution", inputs)
    assert cost is not None and cost.flop == 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3)
    assert cost.bytes == 4 * (2 * 4 * 6 * 6 + 4 * 3 * 3 * 3 + 2 * 6 * 12 * 12)
    assert cost_of("aten::_convolution", msgspec.structs.replace(inputs, values=values[:7])) is None
    whole = msgspec.structs.replace(inputs, dims=((2, 3, 6, 6), *dims[1:]), values=(*values[:6], "False"))
    assert cost_of("aten::_convolution", whole) is not None
