"""Answers from a small network, one question at a time: 32 layers on one row. Needs a GPU."""

import torch
from torch import nn

DIM, LAYERS = 256, 32


def make(device):
    net = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(DIM, DIM), nn.ReLU()))).to(device)
    for weight in (p for p in net.parameters() if p.ndim == 2):
        nn.init.kaiming_normal_(weight)  # so that outputs depend on inputs, however deep
    return net


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(1, DIM, device=device)


@torch.no_grad()
def step(net, x):
    return net(x)
