"""The lessons compute what they say: against a float32 reference, within the dtype's tolerance."""

from common.cli import DTYPES

import importlib

import pytest
import torch
from torch.nn import functional as F

lesson01 = importlib.import_module("01_matmul_add")
lesson03 = importlib.import_module("03_simple_mlp")
lesson03k = importlib.import_module("03_kernels_mlp")

# Relative error of one rounding: 2**-8 for bf16, 2**-11 for fp16; a few of them add up.
TOLERANCE = {"bf16": 2e-2, "fp16": 3e-3, "fp32": 1e-5}
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def check(actual, expected, dtype):
    error = (actual.float().cpu() - expected).norm() / expected.norm()
    assert error < TOLERANCE[dtype]


@dtypes
@pytest.mark.parametrize(("op", "shape"), [("matmul_add", (64, 64)), ("matmul_add", (8, 64, 64)), ("addmm", (64, 64))])
def test_matmul_add(op, shape, dtype):
    torch.manual_seed(0)
    x, w, b = (torch.randn(shape, dtype=DTYPES[dtype]) for _ in range(3))
    check(lesson01.OPS[op](x, w, b), x.float() @ w.float() + b.float(), dtype)


@dtypes
def test_linear(dtype):
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(32, 64, dtype=DTYPES[dtype]), torch.randn(16, 32, dtype=DTYPES[dtype])
    check(linear(x).detach(), x.float() @ linear.weight.detach().float().T + linear.bias.detach().float(), dtype)


def geglu_reference(mlp, x):
    gate, up, down = (layer.weight.detach().float().cpu() for layer in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    x = x.float().cpu()
    return (F.gelu(x @ gate.T, approximate="tanh") * (x @ up.T)) @ down.T


@dtypes
def test_simple_mlp(dtype):
    torch.manual_seed(0)
    mlp = lesson03.GeGLUMLP(32, 96, dtype=DTYPES[dtype])
    x = torch.randn(2, 8, 32, dtype=DTYPES[dtype])
    check(mlp(x).detach(), geglu_reference(mlp, x), dtype)


class WithConstructor(lesson03.GeGLUMLP):
    """The form of the Hub's class in version 1, without its kernel."""

    def __init__(self, config):
        super().__init__(config.hidden_size, config.intermediate_size)


class WithoutConstructor(torch.nn.Module):
    """The form of the Hub's class from version 2 on, without its kernel."""

    forward = lesson03.GeGLUMLP.forward


@dtypes
@pytest.mark.parametrize("layer_class", [WithConstructor, WithoutConstructor])
def test_both_forms_of_ligers_class_get_their_layers(layer_class, dtype):
    torch.manual_seed(0)
    mlp = lesson03k.build_mlp(layer_class, 32, 96, device="cpu", dtype=DTYPES[dtype])
    assert [tuple(p.shape) for p in mlp.parameters()] == [(96, 32), (96, 32), (32, 96)]
    x = torch.randn(2, 8, 32, dtype=DTYPES[dtype])
    check(mlp(x).detach(), geglu_reference(mlp, x), dtype)


@pytest.mark.gpu
@dtypes
def test_all_lessons_on_the_gpu(dtype):
    from liger_kernel.transformers.geglu import LigerGEGLUMLP

    torch.manual_seed(0)
    on = {"device": "cuda", "dtype": DTYPES[dtype]}
    x, w, b = (torch.randn(128, 128, **on) for _ in range(3))
    for op in lesson01.OPS.values():
        check(op(x, w, b), (x.float().cpu() @ w.float().cpu()) + b.float().cpu(), dtype)

    linear, x = torch.nn.Linear(32, 64, **on), torch.randn(16, 32, **on)
    expected = x.float().cpu() @ linear.weight.detach().float().cpu().T + linear.bias.detach().float().cpu()
    check(linear(x).detach(), expected, dtype)

    x = torch.randn(4, 16, 96, **on)
    for mlp in (lesson03.GeGLUMLP(96, 200, **on), lesson03k.build_mlp(LigerGEGLUMLP, 96, 200, **on)):
        check(mlp(x).detach(), geglu_reference(mlp, x), dtype)
