"""The next token of a language model: how likely each word is after each text. Only the model's last layer is here."""

import torch
from torch import nn

BATCH, SEQ, DIM, VOCAB = 4, 256, 256, 8192


def make(device):
    return nn.Linear(DIM, VOCAB, bias=False, device=device)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(BATCH, SEQ, DIM, device=device)  # [batch, seq, dim]


@torch.no_grad()
def step(head, hidden):
    logits = head(hidden)  # [batch, seq, vocab]
    return logits[:, -1].softmax(-1)  # [batch, vocab]
