"""Attention by its formula: softmax(q k^T / sqrt(d)) v (Vaswani et al. 2017, arXiv:1706.03762)."""

import math

import torch

BATCH, HEADS, SEQ, HEAD_DIM = 2, 8, 1024, 64


def make(device):
    return 1 / math.sqrt(HEAD_DIM)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(3, BATCH, HEADS, SEQ, HEAD_DIM, device=device).unbind()


def step(scale, qkv):
    q, k, v = qkv  # [batch, heads, seq, head_dim] each
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
