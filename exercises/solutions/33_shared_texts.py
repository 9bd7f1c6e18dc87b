"""Texts of different lengths, in two processes, as on two GPUs. Both have all texts of a batch, sorted by length, as a
data loader gives them. Each process works on half of the texts, and the gradients are averaged.
"""

import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TEXTS, LONGEST, DIM = 64, 96, 256


def make(device):
    net = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM)).to(device)
    parallel = DistributedDataParallel(net)
    return parallel, torch.optim.SGD(parallel.parameters(), lr=1.0)


def data(device, n):  # the n-th batch, of both processes; change make and step, not this
    lengths = (1 + LONGEST * torch.rand(TEXTS) ** 3).int().sort().values.tolist()
    return [torch.randn(words, DIM, device=device) for words in lengths]


def step(model, batch):
    parallel, optimizer = model
    rank, ranks = dist.get_rank(), dist.get_world_size()
    words = torch.cat(batch[rank::ranks])  # [words, dim]
    optimizer.zero_grad()
    loss = (parallel(words) - words).square().sum() * ranks / sum(map(len, batch)) / DIM
    loss.backward()
    optimizer.step()
    return next(parallel.parameters()).detach()
