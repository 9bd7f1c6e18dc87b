"""Which token may look at which: scores of attention, where each token sees those before it and itself."""

import torch

HEADS, SEQ = 4, 512


def make(device):
    return torch.full((SEQ, SEQ), float("-inf"), device=device).triu(1)  # the same in each step


def data(device, n):  # the n-th batch; it stays as it is
    return torch.randn(HEADS, SEQ, SEQ, device=device)  # [heads, seq, seq]


def step(mask, scores):
    return torch.softmax(scores + mask, dim=-1)
