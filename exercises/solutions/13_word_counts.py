"""How often each word occurs in a text: the input of a text classifier, which has one layer.

A text is a row of 256 word numbers; the vocabulary has 2000 words.
"""

import torch
from torch import nn

TEXTS, WORDS, VOCAB, CLASSES = 64, 256, 2000, 10


def make(device):
    return nn.Linear(VOCAB, CLASSES, device=device)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randint(VOCAB, (TEXTS, WORDS), device=device)  # [texts, words]


@torch.no_grad()
def step(layer, texts):
    counts = torch.zeros(TEXTS, VOCAB, device=texts.device)
    counts.scatter_add_(1, texts, torch.ones(texts.shape, device=texts.device))  # [texts, vocab]
    return layer(counts)  # [texts, classes]
