"""How many bytes a kernel has to move, from its op's recorded inputs or a copy's size, and the rate that follows."""

import pytest
from reader_helpers.events import call, kernel, launch, memcpy, op, write
from trace_reader import read
from trace_reader.analysis.trace.bandwidth import pointwise_bytes
from trace_reader.model.slices import Inputs

BF16, BOOL, FLOAT = "c10::BFloat16", "bool", "float"


@pytest.mark.parametrize(
    ("name", "dims", "types", "strides", "size"),
    [
        ("aten::gelu", ((64, 128), ()), (BF16, ""), ((128, 1), ()), 2 * 64 * 128 * 2),
        ("aten::mul", ((64, 128), (64, 128)), (BF16, BF16), None, 3 * 64 * 128 * 2),
        ("aten::mul", ((64, 128), ()), (BF16, "double"), None, 2 * 64 * 128 * 2),
        ("aten::add", ((64, 128), (128,), ()), (FLOAT, FLOAT, "Scalar"), None, (2 * 64 * 128 + 128) * 4),
        ("aten::add", ((64, 1), (1, 128), ()), (FLOAT, FLOAT, "Scalar"), None, (64 + 128 + 64 * 128) * 4),
        ("aten::add_", ((64, 128), (64, 128), ()), (FLOAT, FLOAT, "Scalar"), None, 3 * 64 * 128 * 4),
        ("aten::masked_fill_", ((8, 64, 64), (64, 64), ()), (BF16, BOOL, "Scalar"), None, 2 * 8 * 64 * 64 * 2 + 64 * 64),
        ("aten::where", ((64, 64), (8, 64, 64), ()), (BOOL, FLOAT, FLOAT), None, 64 * 64 + 2 * 8 * 64 * 64 * 4),
        ("aten::copy_", ((64, 64), (64, 64), ()), (BF16, FLOAT, "Scalar"), None, 64 * 64 * (2 + 4)),
        ("aten::fill_", ((64, 64), ()), (BOOL, "Scalar"), None, 64 * 64),
        # an expanded input holds one row
        ("aten::add", ((64, 128), (64, 128), ()), (FLOAT, FLOAT, "Scalar"), ((128, 1), (0, 1), ()), (2 * 64 * 128 + 128) * 4),
        # the number first; two shapes of rank 3 that are 1 wide; in place, where the output's type is that of the first
        ("aten::mul", ((), (64, 128)), ("double", BF16), None, 2 * 64 * 128 * 2),
        ("aten::add", ((1, 64, 1), (64, 1), ()), (FLOAT, FLOAT, "Scalar"), None, 3 * 64 * 4),
        ("aten::add_", ((64, 128), (64, 128), ()), (BF16, FLOAT, "Scalar"), None, 64 * 128 * (2 + 4 + 2)),
        ("aten::add", ((64, 128), (64, 128), ()), (FLOAT, FLOAT, "Scalar"), ((128, 1),), 3 * 64 * 128 * 4),  # strides of one only
        ("aten::mul", ((64,), (64,)), ("long int", "long int"), None, 3 * 64 * 8),
        ("aten::copy_", ((64, 64), ()), (BF16, "Scalar"), None, None),
        ("aten::copy_", ((64, 64), (64, 64), (64, 64)), (BF16, BF16, BF16), None, None),
        # unknown: no pointwise op, a promotion, an odd type, shapes that do not fit or are none
        ("aten::mm", ((64, 64), (64, 64)), (BF16, BF16), None, None),
        ("aten::add", ((64, 64), (64, 64), ()), (BF16, FLOAT, "Scalar"), None, None),
        ("aten::add", ((64, 64), (64, 64), ()), (BF16, "c10::complex<float>", "Scalar"), None, None),
        ("aten::add", ((64, 64), (64, 63), ()), (BF16, BF16, "Scalar"), None, None),
        ("aten::add", ((64, "s0"), (64, 64), ()), (BF16, BF16, "Scalar"), None, None),
        ("aten::add", ((64, 64),), None, None, None),
        ("aten::add", None, (BF16,), None, None),
        ("aten::add", (), (), None, None),
    ],
)
def test_what_a_pointwise_op_reads_and_writes(name, dims, types, strides, size):
    assert pointwise_bytes(name, Inputs(dims, types, strides)) == size


def gelu(ts, n, dur, **inputs):
    recorded = {"Input Dims": [[1000, 1000], []], "Input type": [BF16, ""], "Input Strides": [[1000, 1], []]} | inputs
    return op("aten::gelu", ts, 5, **recorded), launch(ts + 1, n), kernel("gelu", ts + 10, dur, n)


def kernels(tmp_path, *events):
    return read(write(tmp_path / "t.json", *events)).kernels


def test_the_rate_is_the_median_over_the_calls(tmp_path):
    (k,) = kernels(tmp_path, *gelu(0, 1, 2), *gelu(100, 2, 4), *gelu(200, 3, 5))
    assert (k.moved_bytes, k.gb_per_s) == (4_000_000, 1000)


def test_one_call_of_unknown_size_leaves_the_rate_unknown(tmp_path):
    (k,) = kernels(tmp_path, *gelu(0, 1, 2), *gelu(100, 2, 4, **{"Input type": ["c10::Float8_e4m3fn", ""]}))
    assert k.moved_bytes is k.gb_per_s is None


def test_an_op_that_launches_two_kernels_does_not_say_what_each_moves(tmp_path):
    (k,) = kernels(tmp_path, *gelu(0, 1, 2), launch(2, 2), kernel("gelu", 20, 2, 2))
    assert k.gb_per_s is None


def test_a_copy_inside_a_device_reads_and_writes(tmp_path):
    inside, to_host = kernels(
        tmp_path,
        call("cudaMemcpyAsync", 0, 1, 1),
        memcpy(5, 20, 1, bytes=1_000_000),
        call("cudaMemcpyAsync", 2, 1, 2),
        memcpy(30, 10, 2, name="Memcpy DtoH (Device -> Pinned)", bytes=1_000_000),
    )
    assert (inside.moved_bytes, inside.gb_per_s, to_host.moved_bytes, to_host.gb_per_s) == (2_000_000, 100, 1_000_000, 100)
