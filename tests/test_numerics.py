"""The lessons compute what they say: against a float32 or float64 reference, within the dtype's tolerance."""

import importlib
import math
import os
import subprocess
import sys
from typing import Any

from common.cli import DTYPES
from helpers import ROOT, stand_ins
from kernels import get_local_kernel
import pytest
import torch
from torch.nn import functional as F

lesson01 = importlib.import_module("01_matmul_add")
lesson03: Any = importlib.import_module("03_simple_mlp")
lesson03k = importlib.import_module("03_kernels_mlp")
lesson03t = importlib.import_module("03_triton_mlp")
lesson04a = importlib.import_module("04_a_naive_attention")
lesson04b = importlib.import_module("04_b_inplace_ops_attention")
lesson04c = importlib.import_module("04_c_sdpa_attention")

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


EDGES = [0.0, -0.0, 1.0, -1.0, 5.0, -5.0, 30.0, -30.0, 6e4, -6e4, 1e-6, -1e-6, math.inf, -math.inf, math.nan]


def check_geglu(shape, dtype, device):
    """Element by element against float64, with large, small, infinite and missing values among the others."""
    torch.manual_seed(0)
    gate, up = (torch.randn(shape, device=device).to(DTYPES[dtype]) for _ in range(2))
    edges = torch.tensor(EDGES, device=device).to(DTYPES[dtype])
    if gate.numel() >= 2 * len(EDGES):
        gate.view(-1)[: len(EDGES)] = edges
        up.view(-1)[-len(EDGES) :] = edges
    limits = torch.finfo(DTYPES[dtype])
    expected = F.gelu(gate.double(), approximate="tanh") * up.double()
    expected = torch.where(expected.abs() > limits.max, expected.to(DTYPES[dtype]).double(), expected)
    actual = lesson03t.geglu(gate, up).double()
    # One rounding to the nearest, and a little for fp32's arithmetic; Triton's interpreter cuts bf16 off instead.
    rounding = {"bf16": 2**-7 if device == "cpu" else 2**-8, "fp16": 2**-11, "fp32": 0}[dtype] + 1e-5
    smallest = limits.smallest_normal  # below, a type has fewer digits, and a GPU may have none
    torch.testing.assert_close(actual, expected, rtol=rounding, atol=smallest, equal_nan=True)


@pytest.mark.slow
def test_the_triton_kernel_in_tritons_interpreter():
    code = (
        "import test_numerics, warnings; warnings.simplefilter('ignore')\n"
        "for dtype in test_numerics.DTYPES:\n"
        "    for shape in ((1,), (2, 17), (1, 1024), (3, 1025)): test_numerics.check_geglu(shape, dtype, 'cpu')"
    )
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("shape", [(1,), (2, 17), (1, 1024), (1000, 3001), (8192, 3072)])
def test_the_triton_kernel_on_the_gpu(shape, dtype):
    check_geglu(shape, dtype, "cuda")


def attention_inputs(device, dtype, *, head_dim=64):
    """q, k, v of [2, 3, 130, head_dim] (no multiple of any tile) and the mask of 04_a; scores up to about 40."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 130, head_dim, device=device, dtype=DTYPES[dtype]) for _ in range(3))
    return 3 * q, k, v, torch.ones(130, 130, device=device, dtype=torch.bool).triu(diagonal=1)


def check_attention(actual, q, k, v, dtype):
    """Every token's row by itself, from the first, which sees one token, to the last, which sees all."""
    q, k, v, actual = (t.double().cpu() for t in (q, k, v, actual))
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    later = torch.arange(q.shape[-2]) > torch.arange(q.shape[-2])[:, None]
    expected = scores.masked_fill(later, float("-inf")).softmax(dim=-1) @ v
    errors = (actual - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert errors.max() < 2 * TOLERANCE[dtype]
    assert errors[..., 0].max() <= TOLERANCE[dtype] / 100  # it is v's first row


@dtypes
@pytest.mark.parametrize("lesson", [lesson04a, lesson04b])
def test_attention_written_out(lesson, dtype):
    q, k, v, hidden = attention_inputs("cpu", dtype)
    check_attention(lesson.attention(q, k, v, hidden), q, k, v, dtype)


@dtypes
@pytest.mark.parametrize("backend", ["auto", "math", "flash"])
def test_sdpa_on_the_cpu(backend, dtype):
    q, k, v, _ = attention_inputs("cpu", dtype)
    with lesson04c.pinned(backend):
        check_attention(lesson04c.attention(q, k, v), q, k, v, dtype)


@pytest.mark.gpu
@dtypes
def test_attention_on_the_gpu(dtype, tmp_path):
    q, k, v, hidden = attention_inputs("cuda", dtype)
    for lesson in (lesson04a, lesson04b):
        check_attention(lesson.attention(q, k, v, hidden), q, k, v, dtype)
    backends = [name for name in lesson04c.BACKENDS if lesson04c.why_not(name, q, k, v) is None]
    assert backends == [n for n in lesson04c.BACKENDS if dtype != "fp32" or n not in ("flash", "cudnn")]
    for backend in backends:
        with lesson04c.pinned(backend):
            check_attention(lesson04c.attention(q, k, v), q, k, v, dtype)
    if dtype != "fp32":
        folder = stand_ins.package(tmp_path, stand_ins.FLASH_ATTN)
        flash_attn_func = get_local_kernel(folder).flash_attn_func
        transposed = (t.transpose(1, 2).contiguous() for t in (q, k, v))
        check_attention(flash_attn_func(*transposed, causal=True).transpose(1, 2), q, k, v, dtype)


@pytest.mark.gpu
@dtypes
def test_all_lessons_on_the_gpu(dtype):
    from liger_kernel.transformers.geglu import LigerGEGLUMLP

    torch.manual_seed(0)
    on: dict[str, Any] = {"device": "cuda", "dtype": DTYPES[dtype]}
    x, w, b = (torch.randn(128, 128, **on) for _ in range(3))
    for op in lesson01.OPS.values():
        check(op(x, w, b), (x.float().cpu() @ w.float().cpu()) + b.float().cpu(), dtype)

    linear, x = torch.nn.Linear(32, 64, **on), torch.randn(16, 32, **on)
    expected = x.float().cpu() @ linear.weight.detach().float().cpu().T + linear.bias.detach().float().cpu()
    check(linear(x).detach(), expected, dtype)

    x = torch.randn(4, 16, 96, **on)
    for mlp in (
        lesson03.GeGLUMLP(96, 200, **on),
        lesson03t.TritonMLP(96, 200, **on),
        lesson03k.build_mlp(LigerGEGLUMLP, 96, 200, **on),
    ):
        check(mlp(x).detach(), geglu_reference(mlp, x), dtype)
