"""Which token may attend to which: attention scores, in which each token sees itself and the tokens before it."""

import torch

HEADS, SEQ = 4, 512


def make(device):
    return torch.full((SEQ, SEQ), float("-inf"), device=device).triu(1)  # the same in each step


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(HEADS, SEQ, SEQ, device=device)  # [heads, seq, seq]


def step(mask, scores):
    return torch.softmax(scores + mask, dim=-1)
