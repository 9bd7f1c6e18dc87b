"""What the programs of several unseen sets are made of: sizes for a try on the CPU, convolutions, a layer of a transformer, and a
loader without an end."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from advice.unseen_pairs import SCALE
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


def small(size: int, least: int = 2) -> int:
    """Return a size, divided by UNSEEN_SCALE."""
    return max(least, size // SCALE)


def depth(layers: int) -> int:
    """Return a number of layers, two where the program is only tried."""
    return layers if SCALE == 1 else 2


def low(device: str) -> torch.dtype:
    """Return the dtype of half precision; on a CPU, where a program is only tried, float32."""
    return torch.float32 if device == "cpu" else torch.bfloat16


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    """Give the batches of epoch after epoch."""
    while True:
        yield from loader


def convolutions(channels: tuple[int, ...], stride: int = 2) -> list[nn.Module]:
    """Stack convolutions with batch norms, each of them halving the picture unless told."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return layers


class Layer(nn.Module):
    """A layer of a transformer, normed ahead of each part."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))
