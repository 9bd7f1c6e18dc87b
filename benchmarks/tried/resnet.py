"""ResNet-18 of torchvision answers on a CPU, and records for a backward pass that never comes; changed: it does not."""

import contextlib
import sys

import torch
from torchvision.models import resnet18

torch.manual_seed(0)
model = resnet18().eval()
with torch.inference_mode() if "--changed" in sys.argv else contextlib.nullcontext():
    for _ in range(500):
        scores = model(torch.randn(1, 3, 64, 64))
