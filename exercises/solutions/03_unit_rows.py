"""Embeddings of length one, as a search by cosine needs them.

Each of 512 embeddings is divided by its length.
"""

import torch

ROWS, DIM = 512, 256


def make(device):
    return 1e-8  # added to each length, so that nothing is divided by zero


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(ROWS, DIM, device=device)  # [rows, dim]


def step(epsilon, x):
    length = torch.sqrt((x * x).sum(-1, keepdim=True))  # [rows, 1]
    return x / (length + epsilon)  # [rows, dim]
