"""A loop of plain torch: clipping by hand reads each gradient's norm; changed: torch's own clipping, which reads none."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(512, 512), nn.GELU())]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def clip(parameters, most):
    total = sum(parameter.grad.norm().item() ** 2 for parameter in parameters) ** 0.5
    for parameter in parameters:
        parameter.grad.mul_(min(1.0, most / (total + 1e-6)))


for _ in range(3000):
    x = torch.randn(256, 512, device="cuda")
    model(x).square().mean().backward()
    if "--changed" in sys.argv:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    else:
        clip(list(model.parameters()), 1.0)
    optimizer.step()
    optimizer.zero_grad()
