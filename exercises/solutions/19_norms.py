"""A deep MLP that watches its own activations: after every second layer it keeps the largest of them, for a plot. Needs a GPU."""

import torch
from torch import nn

ROWS, DIM, LAYERS = 256, 512, 24


def make(device):
    net = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(DIM, DIM), nn.GELU()))).to(device)
    for weight in (p for p in net.parameters() if p.ndim == 2):
        nn.init.kaiming_normal_(weight)  # so that outputs depend on inputs, however deep
    return net


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(ROWS, DIM, device=device)


@torch.no_grad()
def step(net, x):
    largest = []
    for n, layer in enumerate(net):
        x = layer(x)
        if n % 4 == 3:
            largest.append(x.abs().max())
    return x, torch.stack(largest)  # the CPU waits for none of them
