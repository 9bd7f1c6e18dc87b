"""How often each word occurs in a text: the input of a text classifier, which has one layer.

A text is a row of 256 word numbers; the vocabulary has 2000 words.
"""

import torch
from torch import nn
from torch.profiler import record_function

TEXTS, WORDS, VOCAB, CLASSES = 64, 256, 2000, 10


def make(device):
    return nn.Linear(VOCAB, CLASSES, device=device)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randint(VOCAB, (TEXTS, WORDS), device=device)  # [texts, words]


@torch.no_grad()
def step(layer, texts):
    with record_function("list the words"):
        listed = texts.tolist()
    with record_function("count the words"):
        rows = [[0.0] * VOCAB for _ in listed]
        for row, text in zip(rows, listed, strict=True):
            for word in text:
                row[word] += 1
    with record_function("make a tensor"):
        counts = torch.tensor(rows, device=texts.device)  # [texts, vocab]
    return layer(counts)  # [texts, classes]
