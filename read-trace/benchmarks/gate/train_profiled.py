"""A small training loop that records a few of its steps, for a gate: python train_profiled.py --out new1.json"""

import argparse

import torch
from torch import nn
from torch.profiler import profile, schedule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, WIDTH, LAYERS = 256, 512, 4
WAIT, WARMUP, ACTIVE = 1, 2, 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)))

    def forward(self, x, name=""):
        return x if name == "nothing" else self.layers(x)


def load(n):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(n))


def step(net, optimizer, n, kept):
    x = load(n).to(DEVICE)
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = Net().to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    compiled = torch.compile(net, backend="eager")
    kept: list[torch.Tensor] = []
    with profile(schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE), profile_memory=True, acc_events=True) as profiler:
        for n in range(WAIT + WARMUP + ACTIVE):
            step(compiled, optimizer, n, kept)
            profiler.step()
    profiler.export_chrome_trace(args.out)


if __name__ == "__main__":
    main()
