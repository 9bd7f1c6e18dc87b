"""What the programs of several unseen sets are made of: sizes for a try on the CPU, convolutions, and a loader without an end."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from advice.unseen_pairs import SCALE
import torch
from torch import nn
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
