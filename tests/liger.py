"""A stand-in for the Hub's Liger package: the same layer, from the package liger-kernel."""

import json
from pathlib import Path

MODULE = """
import os
from types import SimpleNamespace

import torch
from liger_kernel.transformers.geglu import LigerGEGLUMLP


class WithoutConstructor(torch.nn.Module):
    forward = LigerGEGLUMLP.forward


form = WithoutConstructor if os.environ.get("LIGER_FORM") == "2" else LigerGEGLUMLP
layers = SimpleNamespace(LigerGEGLUMLP=form)
"""


def stand_in(folder: Path) -> dict[str, str]:
    """Build the package in `folder`; returns the environment that makes the lesson take it.

    With LIGER_FORM=2 in the environment its class has no constructor, like the Hub's from version 2 on.
    """
    build = folder / "build" / "torch-cuda"
    build.mkdir(parents=True)
    metadata = {"id": "liger_stand_in", "name": "liger-kernels", "version": 1, "license": "BSD-2-Clause"}
    (build / "metadata.json").write_text(json.dumps(metadata | {"python-depends": [], "backend": {"type": "cuda"}}))
    (build / "__init__.py").write_text(MODULE)
    return {"LOCAL_KERNELS": f"kernels-community/liger-kernels={folder}"}
