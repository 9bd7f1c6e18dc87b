"""Answers from a small network, one question at a time: 32 layers on one row. Needs a GPU."""

import torch
from torch import nn

DIM, LAYERS = 256, 32


def make(device):
    net = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(DIM, DIM), nn.ReLU()))).to(device)
    for weight in (p for p in net.parameters() if p.ndim == 2):
        nn.init.kaiming_normal_(weight)  # so that outputs depend on inputs, however deep
    x = torch.zeros(1, DIM, device=device)
    with torch.no_grad():
        for _ in range(3):  # cuBLAS makes its workspace in the first call
            net(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
    return net, graph, x, y  # the graph uses the net's weights, and does not keep them alive


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(1, DIM, device=device)


@torch.no_grad()
def step(model, question):
    _, graph, x, y = model
    x.copy_(question)
    graph.replay()
    return y.clone()
