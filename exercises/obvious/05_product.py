"""One large product of matrices.

The obvious change is torch.compile: step = torch.compile(step), in which one kernel can do what several did.
"""

import torch

SIZE = 1024


def make(device):
    return torch.randn(SIZE, SIZE, device=device)


def data(device, n):
    return torch.randn(SIZE, SIZE, device=device)


@torch.compile
def step(weight, x):
    return x @ weight
