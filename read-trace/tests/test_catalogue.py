"""The catalogue of changes: for each entry a small trace that it knows, and one that it does not."""

from typing import Any, NamedTuple
import urllib.parse

import pytest
from reader_helpers import FAULTS
from reader_helpers.events import ADD, backward, kernel, launch, on, op, step, write
from trace_reader import analyze, load, read
from trace_reader.findings import PATTERNS
from trace_reader.findings.catalogue import _SHAPES, ENTRIES, places_of
from trace_reader.link.trace import EVALUATE

STEP_US, STEPS = 4000, 2


class Made(NamedTuple):
    """An op of a step, `n` times: how long it takes, with what inputs, which kernel it launches (None: none), and what is around
    and right behind it.
    """

    name: str
    n: int = 1
    us: float = 400
    dims: Any = None
    types: Any = None
    values: Any = None
    strides: Any = None
    kernel: str | None = ADD
    around: tuple[str, ...] = ()
    then: "tuple[Made, ...]" = ()


def events(*made: Made, training: bool = False, launches_more: bool = False) -> list[dict[str, Any]]:
    """Return two steps of these ops, one after the other, each kernel a third of its op; `training`: with a node of a backward
    pass. `launches_more`: with a kernel of the program's, beside them.
    """
    found, number, at = [], 1, 0.0
    for n in range(STEPS):
        at = n * STEP_US
        found.append(step(n, at, STEP_US))
        at += 10.0
        for one in [m for m in made for _ in range(m.n)]:
            for part in (one, *one.then):
                args = (
                    {}
                    if part.dims is None
                    else {"Input Dims": part.dims, "Input type": part.types, "Concrete Inputs": part.values}
                )
                if part.strides is not None:
                    args["Input Strides"] = part.strides
                length = part.us / one.n
                for depth, around in enumerate(part.around):
                    found.append(op(around, at + depth * 0.01, length - depth * 0.02))
                found.append(op(part.name, at + 0.1, length - 0.2, **args))
                if part.kernel is not None:
                    found += [launch(at + 0.2, number), kernel(part.kernel, at + 3, length / 3, number)]
                    number += 1
                at += length
        if launches_more:
            found += [op("aten::mm", at, 20), launch(at + 1, number), kernel(ADD, at + 5, 200, number)]
            number += 1
        if training:
            found += on(2, backward("Add", n * STEP_US + STEP_US - 500, 50, 1))
    return found


def slugs(tmp_path, *made: Made, **how) -> list[str]:
    facts = read(write(tmp_path / "t.json", *events(*made, **how)))
    assert not facts.failed
    return [finding.slug for finding in facts.findings]


BACKWARD_KERNEL = "void indexing_backward_kernel()"
ONTO_FEW: dict[str, Any] = {
    "dims": [[32, 8], [[1024]], [1024, 8], []], "types": ["float", "TensorList", "float", "Scalar"],
    "values": ["", "", "", "True"],
}  # fmt: skip
FLOATS: dict[str, Any] = {"dims": [[1024, 1024]], "types": ["float"], "values": [""]}
TABLE: dict[str, Any] = {
    "dims": [[2048, 8, 128], [2048, 8], [], [], []],
    "types": ["float", "long int", "Scalar", "Scalar", "Scalar"],
}
IMAGE: dict[str, Any] = {"dims": [[4, 16, 32, 32], [16, 16, 3, 3]], "types": ["float"] * 2, "values": [""] * 2}
MATRIX: dict[str, Any] = {"dims": [[1500, 20000]], "types": ["float"], "values": [""], "strides": [[20000, 1]], "kernel": None}
QKV, HALF = [[4, 8, 256, 64]] * 3, ["c10::BFloat16"] * 3
THIN: dict[str, Any] = {"dims": [[1024, 4], [4, 1024]], "types": ["float", "float"], "values": ["", ""]}
LINEAR = Made("aten::mm", dims=[[8, 1024], [1024, 1024]], types=["float", "float"], values=["", ""])


# By entry: what it knows, and what it does not, as arguments of `events`.
def case(*knows: Made, but: "list[Made] | Made", how: dict[str, Any] | None = None, but_how: dict[str, Any] | None = None):
    others = but if isinstance(but, list) else [but]
    return (list(knows), how or {}), (others, (how or {}) if but_how is None else but_how)


# A number for each of two sets and one dimension between them, which both have.
OUTER: dict[str, Any] = {"dims": [[512, 16, 1], [1, 16, 64]], "types": ["float"] * 2, "values": [""] * 2}


def of_products(over) -> dict[str, Any]:
    return {"dims": [[512, 16, 64], [], []], "types": ["float", "ScalarList", "Scalar"], "values": ["", over, "False"]}


ROWS: dict[str, Any] = {
    "dims": [[64, 10007], [], [], []], "types": ["float", "", "", ""], "values": ["", "[1]", "0", "True"], "kernel": None
}  # fmt: skip
SQUARED: dict[str, Any] = {"dims": [[512, 64], [64, 512]], "types": ["float"] * 2, "values": [""] * 2}
PART: dict[str, Any] = {"dims": [[64, 256], [], [], []], "types": ["float", "ScalarList", "Scalar", "Scalar"]}
POOLED: dict[str, Any] = {"dims": [[2, 3, 64, 64], [], []], "types": ["float", "ScalarList", "ScalarList"]}
MADE: dict[str, Any] = {"dims": [[512, 512]], "types": ["float"], "values": [""]}
ADDS: dict[str, Any] = {"dims": [[64, 64], [], [4096, 32], []], "types": ["float"] * 4, "kernel": None}
CASES = {
    "diagonal-product": case(
        Made("aten::diag", dims=[[500]], types=["float"], values=[""], then=(Made("aten::matmul", us=100),)),
        but=[Made("aten::diag", dims=[[500]], types=["float"], values=[""], then=(Made("aten::add", us=100),)),
             Made("aten::diag", dims=[[500, 500]], types=["float"], values=[""], then=(Made("aten::matmul", us=100),))],
    ),
    "diagonal-of-a-product": case(
        Made("aten::matmul", **SQUARED, then=(Made("aten::diagonal", us=10, **MADE),)),
        but=[
            Made("aten::matmul", **SQUARED, then=(Made("aten::softmax", us=10, **MADE),)),
            Made("aten::matmul", **SQUARED, then=(Made("aten::diagonal", us=10, **MADE), Made("aten::logsumexp", us=10, **MADE))),
            Made("aten::matmul", **SQUARED | {"dims": [[512, 512]] * 2}, then=(Made("aten::diagonal", us=10, **MADE),)),
        ],
    ),
    "index-put-adds-on-cpu": case(
        Made("aten::_index_put_impl_", **ADDS, values=["", "", "", "True"]),
        but=Made("aten::_index_put_impl_", **ADDS, values=["", "", "", "False"]),
    ),
    "odd-fft-length-on-cpu": case(
        Made("aten::_fft_r2c", **ROWS),
        but=[
            Made("aten::_fft_r2c", **ROWS | {"dims": [[64, 10080], [], [], []]}),
            Made("aten::_fft_r2c", **ROWS | {"dims": [[1024, 10007], [], [], []], "values": ["", "[0]", "0", "True"]}),
            Made("aten::_fft_c2r", **ROWS | {"values": ["", "[1]", "2", "10000000000000061"]}),
        ],
    ),
    "arguments-checked": case(
        Made("aten::all", n=2, then=(Made("aten::is_nonzero", us=10),)),
        but=[Made("aten::all", then=(Made("aten::is_nonzero", us=10),)), Made("aten::all", n=2)],
    ),
    "whole-sort": case(
        Made("aten::argsort"), but=[Made("aten::topk"), Made("aten::sort", around=("aten::_embedding_bag_dense_backward",))]
    ),
    "order-statistics": case(Made("aten::quantile"), but=Made("aten::mean")),
    "unique-waits": case(Made("aten::_unique2"), but=Made("aten::_unique2", kernel=None)),
    "nonzero-waits": case(Made("aten::nonzero", around=("aten::index",)), but=Made("aten::where", around=("aten::index",))),
    "index-put-sorts": case(Made("aten::index_put_", kernel="void DeviceRadixSortKernel()"), but=Made("aten::index_put_")),
    "many-rows-onto-few": case(
        Made("aten::_index_put_impl_", **ONTO_FEW, kernel=BACKWARD_KERNEL, around=("IndexBackward0",)),
        but=[Made("aten::_index_put_impl_", **ONTO_FEW, around=("IndexBackward0",)),
             Made("aten::_index_put_impl_", **ONTO_FEW, kernel=BACKWARD_KERNEL),  # a histogram
             Made("aten::_index_put_impl_", **ONTO_FEW | {"dims": [[33, 8], [[1024]], [1024, 8], []]}, kernel=BACKWARD_KERNEL,
                  around=("IndexBackward0",))],
    ),
    "interpolation-put-together": case(Made("aten::_unsafe_index_put"), but=Made("aten::_unsafe_index_put", kernel=None)),
    "repeated-copies": case(Made("aten::repeat_interleave"), but=Made("aten::expand")),
    "contiguous-in-step": case(Made("aten::contiguous"), but=Made("aten::view")),
    "clone-in-step": case(Made("aten::clone"), but=Made("aten::clone", around=("aten::masked_fill",))),
    "many-cats": case(Made("aten::cat", n=8), but=Made("aten::cat", n=7)),
    "checked-linear-algebra": case(Made("aten::linalg_inv"), but=Made("aten::linalg_inv_ex")),
    "factor-in-step": case(
        Made("aten::linalg_cholesky"), but=Made("aten::linalg_cholesky"), but_how={"training": True}
    ),
    "channels-first-on-cpu": case(
        Made("aten::mkldnn_convolution", **IMAGE, strides=[[16384, 1024, 32, 1], [144, 9, 3, 1]], kernel=None),
        but=[
            Made("aten::mkldnn_convolution", **IMAGE, strides=[[16384, 1, 512, 16], [144, 1, 48, 16]], kernel=None),
            Made("aten::mkldnn_convolution", **IMAGE | {"dims": [[4, 15, 32, 32], [16, 15, 3, 3]]},
                 strides=[[15360, 1024, 32, 1], [135, 9, 3, 1]], kernel=None),
            Made("aten::mkldnn_convolution", **IMAGE | {"dims": [[4, 16, 1, 1024], [16, 16, 1, 3]]},  # of a conv1d
                 strides=[[16384, 1024, 1024, 1], [48, 3, 3, 1]], kernel=None),
        ],
    ),
    "dense-decomposition": case(Made("aten::linalg_qr"), but=Made("aten::svd_lowrank")),
    "decomposition-with-vectors": case(
        Made("aten::linalg_eigh"), but=Made("aten::_linalg_eigh", around=("aten::linalg_eigvalsh",))
    ),
    "general-eigenvalues": case(Made("aten::linalg_eigvals"), but=Made("aten::linalg_eigvalsh")),
    "odd-fft-length": case(Made("aten::_fft_r2c", kernel="void regular_bluestein_fft<float>()"), but=Made("aten::_fft_r2c")),
    "batch-norm-in-inference": case(
        Made("aten::batch_norm"), but=Made("aten::batch_norm"), but_how={"training": True}
    ),
    "dropout-in-inference": case(
        Made("aten::native_dropout"), but=Made("aten::native_dropout"), but_how={"training": True}
    ),
    "double-on-gpu": case(
        Made("aten::mul", dims=[[1024, 1024]] * 2, types=["double"] * 2, values=["", ""]),
        but=Made("aten::mul", dims=[[1024, 1024], []], types=["float", "double"], values=["", "2."]),
    ),
    "dense-embedding-gradient": case(
        Made("aten::embedding_dense_backward", **TABLE, values=["", "", "2000000", "-1", "False"]),
        but=Made("aten::embedding_dense_backward", **TABLE, values=["", "", "5000", "-1", "False"]), how={"training": True},
    ),
    "loss-over-a-vocabulary": case(
        Made("aten::cross_entropy_loss", dims=[[4096, 32000], [4096]], types=["float", "long int"], values=["", ""]),
        but=Made("aten::cross_entropy_loss", dims=[[4096, 1000], [4096]], types=["float", "long int"], values=["", ""]),
        how={"training": True},
    ),
    "attention-mask": case(
        Made("aten::scaled_dot_product_attention", dims=[*QKV, [256, 256]], types=[*HALF, "c10::BFloat16"], values=[""] * 4),
        but=Made("aten::scaled_dot_product_attention", dims=[*QKV, []], types=[*HALF, ""], values=[""] * 4),
    ),
    "attention-by-parts": case(
        Made("aten::_scaled_dot_product_attention_math", around=("aten::scaled_dot_product_attention",)),
        but=Made("aten::_scaled_dot_product_flash_attention", around=("aten::scaled_dot_product_attention",)),
    ),
    "softmax-before-a-choice": case(
        Made("aten::softmax", then=(Made("aten::argmax", us=100),)),
        but=[
            Made("aten::softmax", then=(Made("aten::mul", us=100),)),
            Made("aten::_softmax", around=("aten::_transformer_encoder_layer_fwd",), then=(Made("aten::argmax", us=100),)),
        ],
    ),
    "padding-mask": case(
        Made("aten::scaled_dot_product_attention", dims=[*QKV, [4, 1, 1, 256]], types=[*HALF, "bool"], values=[""] * 4),
        but=Made("aten::scaled_dot_product_attention", dims=[*QKV, [4, 1, 256, 256]], types=[*HALF, "bool"], values=[""] * 4),
    ),
    "parameter-groups": case(Made("aten::_fused_adamw_", n=8), but=Made("aten::_fused_adamw_", n=7), how={"training": True}),
    "scattered-rnn-weights": case(
        Made("aten::copy_", n=4, around=("aten::_cudnn_rnn",)), but=Made("aten::copy_", n=4, around=("aten::lstm",)),
    ),
    "square-product": case(
        Made("aten::mm", dims=[[1024, 1024], [1024, 256]], types=["float", "float"], values=["", ""]),
        but=[Made("aten::mm", dims=[[1024, 1024], [1024, 257]], types=["float", "float"], values=["", ""]),
             Made("aten::mm", dims=[[1023, 1023], [1023, 16]], types=["float", "float"], values=["", ""]),
             Made("aten::mm", dims=[[16, 1024], [1024, 1024]], types=["float", "float"], values=["", ""])],  # a layer's
    ),
    "product-of-integers": case(
        Made("aten::mm", dims=[[256, 256], [256, 256]], types=["long int", "long int"], values=["", ""]),
        but=Made("aten::mm", dims=[[256, 256], [256, 256]], types=["float", "float"], values=["", ""]),
    ),
    "differences-of-all-pairs": case(
        Made("aten::sub", dims=[[512, 1, 16], [1, 64, 16], []], types=["float", "float", "Scalar"], values=["", "", "1"]),
        but=Made("aten::sub", dims=[[512, 64, 16], [1, 64, 16], []], types=["float", "float", "Scalar"], values=["", "", "1"]),
    ),
    "summed-products": case(
        Made("aten::mul", dims=[[512, 1, 16], [1, 64, 16]], types=["float"] * 2, values=[""] * 2, then=(Made("aten::sum"),)),
        but=[
            Made("aten::mul", dims=[[512, 64, 16], [1, 64, 16]], types=["float"] * 2, values=[""] * 2, then=(Made("aten::sum"),)),
            Made("aten::mul", dims=[[512, 1, 16], [1, 64, 16]], types=["float"] * 2, values=[""] * 2, then=(Made("aten::exp"),)),
            Made("aten::mul", dims=[[512, 1, 16], [1, 64, 16]], types=["float"] * 2, values=[""] * 2,
                 then=(Made("aten::sum", dims=[[8, 8]], types=["float"], values=[""]),)),  # of something else
            Made("aten::mul", dims=[[512, 1, 16], [1, 64, 16]], types=["float"] * 2, values=[""] * 2,
                 then=(Made("aten::sum"), Made("aten::div", dims=[[512, 64, 16]], types=["float"], values=[""]))),  # it is needed
            Made("aten::mul", **OUTER | {"types": ["bool"] * 2}, then=(Made("aten::sum", **of_products("[1]")),)),
            Made("aten::mul", **OUTER, then=(Made("aten::sum", **of_products("[0]")),)),  # over what one of them is broadcast to
            Made("aten::mul", **OUTER, then=(Made("aten::sum"),)),  # over what is not known: the last one they do not share
        ],
    ),
    "complex128": case(
        Made("aten::fft_fft", dims=[[8, 4096]], types=["c10::complex<double>"], values=[""]),
        but=Made("aten::fft_fft", dims=[[8, 4096]], types=["c10::complex<float>"], values=[""]),
    ),
    "norms-one-by-one": case(
        Made("aten::linalg_vector_norm", n=24),
        but=[Made("aten::linalg_vector_norm", n=23), Made("aten::linalg_vector_norm", n=24, around=("aten::cosine_similarity",))],
        how={"training": True},
    ),
    "recurrent-cells": case(Made("aten::lstm_cell", n=8), but=Made("aten::lstm_cell", n=7)),
    "many-embeddings": case(Made("aten::embedding", n=12), but=Made("aten::embedding", n=11)),
    "many-lookups": case(Made("aten::index_select", n=24), but=Made("aten::index_select", n=23)),
    "suppression-in-a-loop": case(Made("torchvision::nms", n=4), but=Made("torchvision::nms", n=3)),
    "one-hot": case(Made("aten::one_hot"), but=Made("aten::gather")),
    "counting-waits": case(Made("aten::bincount"), but=Made("aten::scatter_add_")),
    "checks-in-step": case(Made("aten::isfinite"), but=Made("aten::isfinite", around=("Optimizer.step#Adam.step",))),
    "loss-scaling": case(Made("aten::_amp_foreach_non_finite_check_and_unscale_"), but=Made("aten::_foreach_mul_")),
    "parametrized-weights": case(Made("aten::_weight_norm"), but=Made("aten::_weight_norm"), but_how={"training": True}),
    "sines-in-step": case(Made("aten::sin", n=4), but=Made("aten::sin", n=3)),
    "grids-in-step": case(Made("aten::meshgrid"), but=Made("aten::mul")),
    "random-order": case(Made("aten::randperm"), but=Made("aten::randint")),
    "moved-elements": case(Made("aten::roll"), but=Made("aten::roll", around=(f"{EVALUATE}: RollBackward0",))),
    "padding-copies": case(Made("aten::constant_pad_nd"), but=Made("aten::constant_pad_nd", around=("aten::stft",))),
    "unfolded-convolution": case(Made("aten::im2col"), but=Made("aten::conv2d")),
    "scattered-sums": case(Made("aten::index_add_"), but=Made("aten::index_select")),
    "pairwise-distances": case(Made("aten::cdist"), but=Made("aten::mm")),
    "dequantized-at-each-use": case(
        Made("aten::to", dims=[[1024, 1024]], types=["signed char"], values=[""]),
        but=[Made("aten::to", **FLOATS), Made("aten::to", dims=[[16, 3, 64, 64]], types=["unsigned char"], values=[""]),
             Made("aten::to", dims=[[64, 64], [], [], [], []], types=["signed char", "Scalar", "Scalar", "Scalar", ""],
                  values=["", "4", "False", "False", ""])],  # whole numbers
    ),
    "low-rank-product-written-out": case(
        Made("aten::mm", **THIN), LINEAR, but=[Made("aten::mm", **THIN), LINEAR._replace(dims=[[8, 512], [512, 512]])]
    ),
    "sparse-conversions": case(Made("aten::coalesce"), but=Made("aten::mm")),
    "renormalized-embedding": case(Made("aten::embedding_renorm_"), but=Made("aten::embedding")),
    "random-numbers-on-the-cpu": case(
        Made("aten::randn", kernel=None), but=Made("aten::randn"), how={"launches_more": True}
    ),
    "made-on-the-cpu": case(Made("aten::tril", kernel=None), but=Made("aten::tril"), how={"launches_more": True}),
    "gradients-of-norms": case(
        Made("autograd::engine::evaluate_function: LinalgVectorNormBackward0", n=8),
        but=Made("autograd::engine::evaluate_function: LinalgVectorNormBackward0", n=7),
    ),
    "double-backward": case(
        Made("autograd::engine::evaluate_function: SigmoidBackwardBackward0"),
        but=Made("autograd::engine::evaluate_function: SigmoidBackward0"),
    ),
    "resampling": case(Made("aten::upsample_bicubic2d"), but=Made("aten::conv2d")),
    "depthwise-convolution": case(Made("aten::_conv_depthwise2d"), but=Made("aten::cudnn_convolution")),
    "convolutions-of-width-one": case(
        Made("aten::transpose"), Made("aten::conv1d", dims=[[2, 64, 100], [32, 64, 1]], types=["float"] * 2),
        but=[
            Made("aten::conv1d", dims=[[2, 64, 100], [32, 64, 1]], types=["float"] * 2), Made("aten::relu", n=3),  # no transpose
            Made("aten::transpose"),
            Made("aten::conv1d", dims=[[2, 64, 100], [32, 64, 3]], types=["float"] * 2),
            Made("aten::conv1d", dims=[[2, 128, 100], [32, 64, 1]], types=["float"] * 2),  # of two groups
            Made("aten::transpose"),
            Made("aten::conv1d", dims=[[2, 64, 100], [32, 64, 1]], types=["float"] * 2, values=["", "", "", "[2]"]),
            Made("aten::conv1d", dims=[[2, 64, 100], [32, 64, 1]], types=["float"] * 2, values=["", "", "", "[1]", "[1]"]),
        ],
    ),
    "compared-with-all": case(
        Made("aten::eq", dims=[[960, 1], [6000]], types=["long int"] * 2), Made("aten::nonzero"),
        but=[
            Made("aten::eq", dims=[[960, 1], [6000]], types=["long int"] * 2), Made("aten::mul"),  # a mask
            Made("aten::eq", dims=[[300, 4, 1], [6000]], types=["long int"] * 2), Made("aten::nonzero"),
            Made("aten::eq", dims=[[100_000], [1]], types=["long int"] * 2), Made("aten::nonzero"),  # with one number
        ],
    ),
    "gathered-from-columns": case(
        Made("aten::index", **MATRIX), Made("aten::log1p", dims=[[1500, 128]], types=["float"], kernel=None),
        but=[
            Made("aten::index", **MATRIX), Made("aten::log1p", dims=[[128, 20000]], types=["float"], kernel=None),  # rows
            Made("aten::index", **MATRIX | {"strides": [[1, 1500]]}),  # of which columns lie together
            Made("aten::log1p", dims=[[1500, 128]], types=["float"], kernel=None),
        ],
    ),
    "pointwise-on-a-list": case(Made("aten::lerp_", n=48), but=Made("aten::lerp_", n=47)),
    "quantized-at-each-use": case(
        Made("aten::quantize_per_tensor"), but=Made("aten::quantize_per_tensor"), but_how={"training": True}
    ),
    "type-of-inputs": case(Made("aten::complex"), but=Made("aten::view_as_complex")),
    "spectral-transforms": case(Made("aten::stft"), but=Made("aten::conv1d")),
    "logits-of-all-positions": case(
        Made("aten::linear", dims=[[1, 512, 256], [32000, 256]], types=["c10::BFloat16"] * 2, values=["", ""],
             then=(Made("aten::to", us=100), Made("aten::slice", us=50), Made("aten::select", us=50))),
        but=Made("aten::linear", dims=[[1, 512, 256], [32000, 256]], types=["c10::BFloat16"] * 2, values=["", ""],
                 then=(Made("aten::slice", us=100), Made("aten::log_softmax", us=100))),
    ),
    "complex-fft-of-real": case(
        Made("aten::fft_fft", **FLOATS), but=Made("aten::fft_fft", **FLOATS | {"types": ["c10::complex<float>"]})
    ),
    "long-filter": case(
        Made("aten::conv1d", dims=[[1, 1, 48000], [1, 1, 256]], types=["float"] * 2, values=["", ""]),
        but=Made("aten::conv1d", dims=[[1, 1, 48000], [1, 1, 255]], types=["float"] * 2, values=["", ""]),
    ),
    "wide-window": case(
        Made("aten::conv2d", dims=[[4, 16, 64, 64], [16, 1, 9, 9]], types=["float"] * 2, values=["", ""]),
        but=[Made("aten::conv2d", dims=[[4, 17, 64, 64], [17, 1, 9, 9]], types=["float"] * 2, values=["", ""]),
             Made("aten::conv2d", dims=[[4, 16, 64, 64], [16, 1, 9, 9], [16]], types=["float"] * 3, values=["", "", ""]),
             Made("aten::conv2d", dims=[[4, 1, 64, 64], [16, 1, 9, 9]], types=["float"] * 2, values=["", ""])],
    ),
    "wide-pool": case(
        Made("aten::max_pool2d", values=["", "[9, 9]", "[1, 1]"], **POOLED),
        but=[Made("aten::max_pool2d", values=["", "[9, 9]", "[9, 9]"], **POOLED),
             Made("aten::max_pool2d", values=["", "[9, 8]", "[1, 1]"], **POOLED),
             Made("aten::max_pool2d", values=["", "[9, 9]", "[]"], **POOLED),
             Made("aten::max_pool2d", values=["", "[33, 33]", "[1, 1]"], **POOLED)],  # few windows
    ),
    "gradients-of-parts": case(
        Made("aten::select_backward", n=8, values=["", "[64, 64, 256]", "1", "0"], **PART), how={"training": True},
        but=Made("aten::select_backward", n=7, values=["", "[64, 64, 256]", "1", "0"], **PART),
    ),
    "wide-window-on-cpu": case(
        Made("aten::conv2d", kernel=None, dims=[[4, 3, 64, 64], [3, 1, 32, 32]], types=["float"] * 2, values=["", ""]),
        but=Made("aten::conv2d", kernel=None, dims=[[4, 3, 64, 64], [3, 1, 31, 31]], types=["float"] * 2, values=["", ""]),
    ),
    "small-matrices-one-by-one": case(
        Made("aten::linalg_svd", n=4, dims=[[3, 3]], types=["float"], values=[""]),
        but=[Made("aten::linalg_svd", n=4, dims=[[8, 3, 3]], types=["float"], values=[""]),
             Made("aten::linalg_svd", n=3, dims=[[3, 3]], types=["float"], values=[""]),
             Made("aten::linalg_svd", n=4, dims=[[65, 65]], types=["float"], values=[""]),
             Made("aten::linalg_solve", n=4, dims=[[3, 3], [3, 65]], types=["float"] * 2, values=["", ""])],
    ),
    "gathered-then-reduced": case(
        Made("aten::embedding", then=(Made("aten::unsqueeze", us=50, kernel=None), Made("aten::mean", us=100))),
        but=Made("aten::embedding", then=(Made("aten::add", us=100), Made("aten::mean", us=100))),
    ),
    "inverse-then-product": case(
        Made("aten::linalg_inv", kernel=None, then=(Made("aten::mm", us=100, kernel=None),)),
        but=Made("aten::linalg_inv", kernel=None, then=(Made("aten::add", us=100, kernel=None),)),
    ),
    "stacked-from-a-list": case(
        Made("aten::stack", dims=[[[3, 4]] * 64, []], types=["TensorList", "Scalar"], values=["", "0"]),
        but=Made("aten::stack", dims=[[[3, 4]] * 63, []], types=["TensorList", "Scalar"], values=["", "0"]),
    ),
    "connectionist-loss": case(Made("aten::_ctc_loss"), but=Made("aten::_cudnn_ctc_loss")),
}  # fmt: skip


@pytest.mark.parametrize("over", ["[1]", "[-2]"])
def test_products_are_summed_over_any_dimension_that_both_have(over, tmp_path):
    assert "summed-products" in slugs(tmp_path, Made("aten::mul", **OUTER, then=(Made("aten::sum", **of_products(over)),)))


def test_the_next_round_makes_a_product_of_its_own(tmp_path):
    product = Made("aten::mul", n=2, **OUTER, then=(Made("aten::sum", **of_products("[1]")),))
    path = write(tmp_path / "t.json", *events(product))
    (seen,) = [finding.seen for finding in read(path).findings if finding.slug == "summed-products"]
    assert seen.startswith("2 x aten::mul, 2 x aten::sum per step ")


def test_of_a_list_too_long_to_be_recorded_the_views_of_its_tensors_are_counted(tmp_path):
    for n, told in ((64, True), (63, False)):
        made = [op("aten::stack", 10, 1000), *(op("aten::unsqueeze", 20 + 9 * k, 5) for k in range(n))]
        path = write(tmp_path / "t.json", step(0, 0, 2000), *made)
        assert ("stacked-from-a-list" in [finding.slug for finding in read(path).findings]) is told


def test_what_a_step_makes_one_by_one_is_no_list_that_is_kept(tmp_path):
    """States of a loop, which are joined behind it."""
    shape = {"Input Dims": [[4, 8]], "Input type": ["float"], "Concrete Inputs": [""]}
    states = [op("aten::tanh", 10 + 9 * k, 5, **shape) for k in range(64)]
    joined = [op("aten::stack", 700, 1000), *(op("aten::unsqueeze", 710 + 9 * k, 5, **shape) for k in range(64))]
    for made, told in ((states, False), (states[:63], True)):
        path = write(tmp_path / "t.json", step(0, 0, 2000), *made, *joined)
        assert ("stacked-from-a-list" in [finding.slug for finding in read(path).findings]) is told


def test_what_is_copied_to_a_part_of_a_tensor_is_of_no_list(tmp_path):
    """As keys and values to a cache."""
    for before, told in (("aten::sin", True), ("aten::select", False), ("aten::conv2d", False)):
        ops = [e for n in range(48) for e in (op(before, 40 * n, 2), op("aten::transpose", 40 * n + 3, 1),
               op("aten::copy_", 40 * n + 5, 30))]  # fmt: skip
        path = write(tmp_path / "t.json", step(0, 0, 2000), *ops)
        assert ("pointwise-on-a-list" in [finding.slug for finding in read(path).findings]) is told


def test_each_entry_has_a_case_and_there_are_fifty():
    assert set(CASES) == {entry.slug for entry in ENTRIES} and len(CASES) >= 50


@pytest.mark.parametrize("slug", CASES)
def test_an_entry_knows_its_place(slug, tmp_path):
    made, how = CASES[slug][0]
    assert slug in slugs(tmp_path, *made, **how)


@pytest.mark.parametrize("slug", CASES)
def test_an_entry_does_not_know_what_lacks_its_condition(slug, tmp_path):
    made, how = CASES[slug][1]
    assert slug not in slugs(tmp_path, *made, **how)


def test_what_is_multiplied_by_a_one_hot_goes_with_it(tmp_path):
    dims: dict[str, Any] = {"dims": [[64, 20, 3000], [3000, 96]], "types": ["float", "float"], "values": ["", ""]}
    cast = Made("aten::to", us=300, dims=[[64, 20, 3000]], types=["long int"], values=[""])
    made = Made("aten::one_hot", us=200, dims=[[64, 20], []], types=["long int", "Scalar"], values=["", "3000"],
                then=(cast, Made("aten::matmul", us=500, **dims)))  # fmt: skip
    facts = read(write(tmp_path / "t.json", *events(made)))
    (found,) = (one for one in facts.findings if one.slug == "one-hot")
    assert found.seen.startswith("1 x aten::matmul, 1 x aten::to, 1 x aten::one_hot per step (64x20 int64), 999.4 µs of CPU time")


def test_of_padding_no_number_is_told(tmp_path):
    mask = Made("aten::scaled_dot_product_attention", dims=[*QKV, [4, 1, 1, 256]], types=[*HALF, "bool"], values=[""] * 4)
    facts = read(write(tmp_path / "t.json", *events(mask)))
    (found,) = (one for one in facts.findings if one.slug == "padding-mask")
    assert (found.gain, found.gain_unknown_because) == (None, "how much of it would be gone is not in a trace")
    assert "attention-mask" not in [one.slug for one in facts.findings]


@pytest.mark.parametrize(("rows", "told"), [(2_000_000, True), (65_536, True), (65_535, False)])
def test_a_dense_gradient_is_one_on_a_cpu_too(tmp_path, rows, told):
    """Of a table with four times as many rows as are looked up, 16,384."""
    made = Made("aten::embedding_dense_backward", **TABLE, values=["", "", str(rows), "-1", "False"], kernel=None)
    assert ("dense-embedding-gradient" in slugs(tmp_path, made, training=True)) is told


def test_what_an_entry_says_and_promises(tmp_path):
    """Of a measured step of 4000 µs the sort takes 1500 on the CPU: gone in part, by what other algorithms brought."""
    made = Made("aten::argsort", us=1500, dims=[[512, 512]], types=["float"], values=[""])
    said = {"plain_step_us": {"median": STEP_US, "low": STEP_US, "high": STEP_US}}
    facts = read(write(tmp_path / "t.json", *events(made), **said))
    (found,) = (finding for finding in facts.findings if finding.slug == "whole-sort")
    assert (
        found.seen
        == "1 x aten::argsort per step (512x512 fp32), 1.50 ms of CPU time, 500.0 µs of GPU time: 37% of the critical path"
    )
    assert found.gain is not None and (found.gain.low, found.gain.high) == (
        pytest.approx(0.25, abs=0.01),
        pytest.approx(0.6, abs=0.01),
    )


def test_what_follows_goes_with_it(tmp_path):
    """A conversion and the multiplication behind it on a tensor of the same shape, not on one of another."""
    int8: dict[str, Any] = {"dims": [[1024, 1024]], "types": ["signed char"], "values": [""]}
    found = []
    for shape in ([1024, 1024], [64, 64]):
        mul = Made("aten::mul", dims=[shape], types=["c10::BFloat16"], values=[""])
        facts = read(write(tmp_path / "t.json", *events(Made("aten::to", **int8, then=(mul,)))))
        found += [one.seen.partition(" per step")[0] for one in facts.findings if one.slug == "dequantized-at-each-use"]
    assert found == ["1 x aten::mul, 1 x aten::to", "1 x aten::to"]


@pytest.mark.parametrize(
    ("slug", "made"),
    [
        ("nonzero-waits", Made("aten::nonzero", around=("SyncBatchNorm",))),
        ("pointwise-on-a-list", Made("aten::copy_", n=48, around=("torch.distributed.ddp.reducer::copy_bucket_to_grad",))),
    ],
)
def test_what_torch_distributed_does_itself_is_no_change_of_the_program(slug, made, tmp_path):
    assert slug in slugs(tmp_path, Made(made.name, n=made.n)) and slug not in slugs(tmp_path, made)


def test_a_rule_that_knows_a_place_better_is_told_alone():
    """Cats that grow: the entry knows them, too, and is silent."""
    trace = load(str(FAULTS / "kept_by_cat.json.gz"))
    facts = analyze(trace)
    (entry,) = (one for one in ENTRIES if one.slug == "many-cats")
    told = [finding.slug for finding in facts.findings]
    assert places_of(entry, trace, facts) is not None and "cache-growing-by-cat" in told and "many-cats" not in told


def test_the_backward_pass_of_a_place_goes_with_it(tmp_path):
    """A lookup whose node takes as long again: of 1000, 300 and 300."""
    period = {"plain_step_us": {"median": 1000, "low": 1000, "high": 1000}}
    found = []
    for number in (7, 8):  # the node of the op, and another's
        made = [e for k in range(3) for e in (
            step(k, 1000 * k, 1000), op("aten::roll", 1000 * k + 10, 300, **{"Sequence number": 7 + 10 * k}),
            op("aten::mm", 1000 * k + 320, 300),
            *on(2, backward("Roll", 1000 * k + 650, 300, number + 10 * k)),
        )]  # fmt: skip
        facts = read(write(tmp_path / "t.json", *made, **period))
        found += [finding.gain for finding in facts.findings if finding.slug == "moved-elements"]
    both, alone = found
    assert alone is not None and alone.low < 0.3 < alone.high
    assert both is not None and both.low < 0.6 < both.high and alone.low < both.low - 0.2 and alone.high < both.high - 0.2


def test_every_entry_names_a_source_and_a_test_that_is_there():
    for entry in ENTRIES:
        source = urllib.parse.urlparse(entry.source)
        assert (source.scheme, bool(source.netloc and source.path)) == ("https", True), entry.slug
        assert entry.shape in ("", *_SHAPES), entry.slug
        assert PATTERNS[entry.slug].next == entry.next


@pytest.mark.parametrize(("batches", "is_told"), [(1, True), (8, False)])
def test_scores_of_attention_are_no_matrix_of_low_rank(tmp_path, batches, is_told):
    """Though they are as large as a weight, where a sequence is as long as an embedding."""
    dims = [[batches, 1024, 4], [batches, 4, 1024]]
    product = Made("aten::bmm", dims=dims, types=["float", "float"], values=["", ""])
    assert ("low-rank-product-written-out" in slugs(tmp_path, product, LINEAR)) is is_told


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        (["[64, 64, 256]"] * 8, True),
        (["[64, 64, 256]"] * 7 + ["[64, 32, 256]"], False),  # of two tensors
    ],
)
def test_parts_are_counted_of_tensors_of_one_shape(tmp_path, values, is_told):
    made = [Made("aten::select_backward", values=["", whole, "1", str(n)], **PART) for n, whole in enumerate(values)]
    assert ("gradients-of-parts" in slugs(tmp_path, *made, training=True)) is is_told


def test_small_matrices_are_counted_of_one_op_and_one_shape(tmp_path):
    ops = [Made(f"aten::linalg_{name}", dims=[[48, 48]], types=["float"], values=[""]) for name in ("svd", "inv", "det", "eigh")]
    sizes = [Made("aten::linalg_svd", dims=[[n, n]], types=["float"], values=[""]) for n in (5, 11, 23, 47)]
    assert all("small-matrices-one-by-one" not in slugs(tmp_path, *made) for made in (ops, sizes))
    assert "small-matrices-one-by-one" in slugs(tmp_path, *ops, *ops[:1] * 3)


def test_what_takes_the_complex_numbers_of_a_transform_goes_with_it(tmp_path):
    """As many of them: half of the spectrum of a real signal is left."""
    found = []
    for dims, kind in (([1024, 1024], "c10::complex<float>"), ([1024, 512], "c10::complex<float>"), ([1024, 1024], "float")):
        product = Made("aten::mul", us=600, dims=[dims, []], types=[kind, "double"], values=["", ""], kernel=None)
        unknown = Made("aten::neg", dims=[], types=["c10::complex<float>"], values=[""], kernel=None)  # its shape
        made = Made("aten::fft_fft", us=200, kernel=None, **FLOATS), product, unknown
        facts = read(write(tmp_path / "t.json", *events(*made)))
        assert not facts.failed
        (gain,) = (finding.gain for finding in facts.findings if finding.slug == "complex-fft-of-real")
        found.append((gain.low + gain.high) / 2)
    with_it, *without = found
    assert with_it > 2 * max(without)


@pytest.mark.parametrize(
    ("behind", "is_told"),
    [
        ([4, 32000], True),
        ([300, 32000], False),  # more than half of the rows
        ([4, 512], False),  # of something else
        (None, False),  # all logits are used again
    ],
)
def test_of_logits_that_are_indexed_few_rows_are_left(tmp_path, behind, is_told):
    """Between the head and the index, the positions are computed."""
    again = (
        () if behind else (Made("aten::log_softmax", us=10, dims=[[4, 128, 32000]], types=["float"], values=[""], kernel=None),)
    )
    behind = behind or [4, 32000]
    head = Made(
        "aten::linear", dims=[[4, 128, 256], [32000, 256]], types=["float"] * 2, values=["", ""], kernel=None,
        then=(Made("aten::sub", us=10, dims=[[4], []], types=["long int", "Scalar"], values=["", "1"], kernel=None),
              Made("aten::index", us=10, dims=[[4, 128, 32000], []], types=["float", ""], values=["", ""], kernel=None),
              Made("aten::topk", us=10, dims=[behind, []], types=["float", "Scalar"], values=["", "20"], kernel=None), *again),
    )  # fmt: skip
    assert ("logits-of-all-positions" in slugs(tmp_path, head)) is is_told
