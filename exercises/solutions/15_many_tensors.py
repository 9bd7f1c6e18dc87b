"""Adam by its formula (Kingma and Ba 2014, arXiv:1412.6980), for a model of 300 small tensors.

The gradients come with the data: the program does only what an optimizer does. Somebody proposes torch's own
Adam, with fused=True.
"""

import torch

TENSORS, SIZE = 300, 256
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


def make(device):
    parameters = [torch.zeros(SIZE, device=device) for _ in range(TENSORS)]
    return parameters, torch.optim.Adam(parameters, LEARNING_RATE, (BETA1, BETA2), EPSILON, fused=True)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(TENSORS, SIZE, device=device).unbind()


def step(model, gradients):
    parameters, optimizer = model
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
    optimizer.step()
    return torch.stack(parameters)
