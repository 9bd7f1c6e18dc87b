"""A batch of texts of different lengths: each layer hides what is beyond the end of a text. Needs a GPU."""

import torch
from torch import nn

TEXTS, WORDS, DIM, LAYERS = 32, 512, 256, 12


def make(device):
    return nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(LAYERS)).to(device)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(TEXTS, WORDS, DIM, device=device), torch.randint(1, WORDS, (TEXTS,)).tolist()


@torch.no_grad()
def step(layers, batch):
    x, lengths = batch  # [texts, words, dim], and a number for each text
    ends = torch.tensor(lengths).to(x.device)[:, None, None]
    mask = torch.arange(WORDS, device=x.device)[:, None] < ends  # [texts, words, 1], once, on the GPU
    for layer in layers:
        x = layer(x) * mask
    return x
