"""A cache of keys that grows by one token at a time, as in a language model that writes.

For each of 512 tokens the program adds a key to the cache, and asks how well the newest key agrees with the first one, in one
head.
"""

import torch

TOKENS, HEADS, HEAD_DIM = 512, 16, 64


def make(device):
    return None


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(TOKENS, HEADS, HEAD_DIM, device=device)  # [tokens, heads, head_dim]


def step(model, keys):
    cache = torch.empty_like(keys)  # room for all of them, once
    best = []
    for n, key in enumerate(keys):  # [heads, head_dim]
        cache[n] = key
        best.append(cache[n, 0] @ cache[0, 0])
    return torch.stack(best), cache
