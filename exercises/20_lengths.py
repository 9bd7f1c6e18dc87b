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
    for layer in layers:
        mask = torch.zeros(TEXTS, WORDS, 1)
        for text, length in enumerate(lengths):
            mask[text, :length] = 1
        x = layer(x) * mask.to(x.device)
    return x
