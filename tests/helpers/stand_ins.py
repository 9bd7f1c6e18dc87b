"""Stand-ins for the Hub's kernel packages: folders that LOCAL_KERNELS names, made of what is installed here."""

import json
from pathlib import Path

# The package liger-kernel holds the same layer. With LIGER_FORM=2 in the environment its class has no constructor, like
# the Hub's from version 2 on.
LIGER = """
import os
from types import SimpleNamespace

import torch
from liger_kernel.transformers.geglu import LigerGEGLUMLP


class WithoutConstructor(torch.nn.Module):
    forward = LigerGEGLUMLP.forward


form = WithoutConstructor if os.environ.get("LIGER_FORM") == "2" else LigerGEGLUMLP
layers = SimpleNamespace(LigerGEGLUMLP=form)
"""
# torch's own flash attention, which was built from the same source, behind the package's signature.
FLASH_ATTN = """
import torch


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    lengths = q.shape[1], k.shape[1]
    forward = torch.ops.aten._flash_attention_forward
    return forward(q, k, v, None, None, *lengths, dropout_p, causal, False, scale=softmax_scale)[0]
"""


def package(folder: Path, module: str, *, name: str = "stand-in", backend: str = "cuda") -> Path:
    """Return a kernel package of one Python module, built for any torch of that backend."""
    build = folder / "build" / f"torch-{backend}"
    build.mkdir(parents=True)
    metadata = {"id": f"{name}_id", "name": name, "version": 1, "license": "Apache-2.0"}
    (build / "metadata.json").write_text(json.dumps(metadata | {"python-depends": [], "backend": {"type": backend}}))
    (build / "__init__.py").write_text(module)
    return folder


def all_packages(folder: Path) -> dict[str, str]:
    """Build both packages in `folder`; returns the environment that makes the lessons take them."""
    liger, flash = package(folder / "liger", LIGER), package(folder / "flash", FLASH_ATTN)
    return {"LOCAL_KERNELS": f"kernels-community/liger-kernels={liger}:kernels-community/flash-attn2={flash}"}
