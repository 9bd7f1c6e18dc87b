"""The model of the lessons on several GPUs: residual blocks of LayerNorm, Linear, GELU, Linear."""

import argparse

from common.cli import DTYPES
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import record_function


class Block(nn.Module):
    """x + down(gelu(up(norm(x)))), x: [batch, seq, dim]."""

    def __init__(self, dim: int, **kind):
        super().__init__()
        self.norm = nn.LayerNorm(dim, **kind)
        self.up = nn.Linear(dim, 4 * dim, bias=False, **kind)
        self.down = nn.Linear(4 * dim, dim, bias=False, **kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def make_blocks(args: argparse.Namespace, device: str) -> nn.Sequential:
    return nn.Sequential(*(Block(args.dim, device=device, dtype=DTYPES[args.dtype]) for _ in range(args.layers)))


def train_step(forward, optimizer: torch.optim.Optimizer, x: torch.Tensor, parts: int = 1, last: bool = True) -> torch.Tensor:
    """Forward and backward on x, whose loss is the mean square of the output over `parts`, and, if this is the `last` of a step's
    backward passes, the optimizer; each annotated. Returns the loss.
    """
    with record_function("forward"):
        loss = forward(x).float().square().mean() / parts
    with record_function("backward"):
        loss.backward()
    if last:
        with record_function("optimizer"):
            optimizer.step()
    return loss.detach()
