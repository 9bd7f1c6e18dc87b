"""One large product of matrices.

Somebody proposes torch.compile: step = torch.compile(step), in which one kernel can do what several did.
"""

import torch

SIZE = 1024


def make(device):
    return torch.randn(SIZE, SIZE, device=device)


def data(device, n):  # the n-th batch; it stays as it is
    return torch.randn(SIZE, SIZE, device=device)


def step(weight, x):
    return x @ weight
