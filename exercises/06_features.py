"""Two layers on features that numpy has read from a table.

The weights come from numpy, too.
"""

import numpy
import torch
from torch import nn

ROWS, FEATURES, HIDDEN = 1024, 512, 1024


def make(device):
    made = numpy.random.default_rng(0)
    first = torch.from_numpy(made.standard_normal((HIDDEN, FEATURES)) / 16).to(device)
    second = torch.from_numpy(made.standard_normal((FEATURES, HIDDEN)) / 16).to(device)
    return first, second


def data(device, n):  # the n-th batch; change make and step, not this
    return torch.from_numpy(numpy.random.default_rng(n).standard_normal((ROWS, FEATURES))).to(device)  # [rows, features]


def step(model, x):
    first, second = model
    hidden = nn.functional.relu(nn.functional.linear(x, first))  # [rows, hidden]
    return nn.functional.linear(hidden, second)  # [rows, features]
