"""One large matrix multiplication.

Somebody proposes step = torch.compile(step): after compiling, one kernel can do what several did before.
"""

import torch

SIZE = 1024


def make(device):
    return torch.randn(SIZE, SIZE, device=device)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(SIZE, SIZE, device=device)


@torch.compile
def step(weight, x):
    return x @ weight
