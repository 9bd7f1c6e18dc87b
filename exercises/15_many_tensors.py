"""Adam by its formula (Kingma and Ba 2014, arXiv:1412.6980), for a model of 300 small tensors.

The gradients come with the data: the program does only what an optimizer does. Somebody proposes torch's own
Adam, with fused=True.
"""

import torch

TENSORS, SIZE = 300, 256
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


class Adam:
    def __init__(self, parameters):
        self.parameters = parameters
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]
        self.steps = 0

    def step(self):
        self.steps += 1
        for p, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            mean.mul_(BETA1).add_(p.grad, alpha=1 - BETA1)
            square.mul_(BETA2).addcmul_(p.grad, p.grad, value=1 - BETA2)
            size = (square / (1 - BETA2**self.steps)).sqrt_().add_(EPSILON)
            p.addcdiv_(mean, size, value=-LEARNING_RATE / (1 - BETA1**self.steps))


def make(device):
    parameters = [torch.zeros(SIZE, device=device) for _ in range(TENSORS)]
    return parameters, Adam(parameters)


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.randn(TENSORS, SIZE, device=device).unbind()


def step(model, gradients):
    parameters, optimizer = model
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
    optimizer.step()
    return torch.stack(parameters)
