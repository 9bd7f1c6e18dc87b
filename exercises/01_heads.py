"""The mean of each attention head, for every token.

A layer's output holds all heads side by side, 64 numbers for each. The program puts the heads in front of the tokens, and takes
the mean of each head's numbers.
"""

import torch

BATCH, SEQ, HEADS, HEAD_DIM = 8, 1024, 16, 64


def make(device):
    return None  # nothing is kept from step to step


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(BATCH, SEQ, HEADS * HEAD_DIM, device=device)  # [batch, seq, heads * head_dim]


def step(model, x):
    heads = x.view(BATCH, SEQ, HEADS, HEAD_DIM)
    heads = heads.transpose(1, 2).contiguous()  # [batch, heads, seq, head_dim]
    return heads.mean(-1)  # [batch, heads, seq]
