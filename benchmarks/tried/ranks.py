"""Two ranks on gloo: each of four passes reduces the gradients; changed: the last alone."""

import contextlib
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(400):
    for part in range(4):
        waits = model.no_sync() if "--changed" in sys.argv and part < 3 else contextlib.nullcontext()
        with waits:
            model(torch.randn(16, 512)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
