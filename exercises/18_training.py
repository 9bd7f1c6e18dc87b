"""A training step with more than one fault: it flips images at random, trains a classifier, and keeps the sizes of all weights
for a plot. First mend what takes most of the step, then the next fault.
"""

import torch
from torch import nn

BATCH, SIDE, CLASSES, HIDDEN = 128, 24, 10, 32
PIXELS = SIDE * SIDE


def make(device):
    net = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), *(nn.Linear(HIDDEN, HIDDEN) for _ in range(6)))
    net.append(nn.Linear(HIDDEN, CLASSES)).to(device)
    for weight in (p for p in net.parameters() if p.ndim == 2):
        nn.init.kaiming_normal_(weight)  # so that outputs depend on inputs, however deep
    return net, torch.optim.SGD(net.parameters(), lr=0.01)


def data(device, n):  # the n-th batch; change make and step, not this
    images = torch.rand(BATCH, SIDE, SIDE, device=device)  # [batch, side, side]
    return images, torch.rand(BATCH, device=device) < 0.5, torch.randint(CLASSES, (BATCH,), device=device)


def step(model, batch):
    net, optimizer = model
    images, flip, labels = batch
    prepared = []
    for n in range(BATCH):
        image = images[n].flip(-1) if flip[n] else images[n]
        image = (image - image.mean()) / image.std()
        prepared.append(image.flatten())
    optimizer.zero_grad()
    logits = net(torch.stack(prepared))
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    sizes = [p.abs().max().item() for p in net.parameters()]
    return logits.detach(), torch.tensor(sizes)
