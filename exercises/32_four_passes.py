"""A training step in two processes, as on two GPUs: each has the model, and a batch of its own. The batch is too large to fit
into memory at once: it goes through the model in four parts, and the gradients of the parts add up.
"""

import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PARTS, ROWS, DIM, LAYERS = 4, 16, 768, 6


def make(device):
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(DIM, DIM), nn.GELU())]
    parallel = DistributedDataParallel(nn.Sequential(*layers).to(device))
    return parallel, torch.optim.SGD(parallel.parameters(), lr=1.0)


def data(device, n):  # the n-th batch of this process; change make and step, not this
    whole = torch.randn(dist.get_world_size(), PARTS, ROWS, DIM, device=device)
    return whole[dist.get_rank()].unbind()  # parts of [rows, dim]


def step(model, batch):
    parallel, optimizer = model
    optimizer.zero_grad()
    losses = []
    for part in batch:
        loss = (parallel(part) - part).square().mean() / PARTS
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    return torch.stack(losses), next(parallel.parameters()).detach()
