"""Training waits for its DataLoader, which makes each image in the program's own process; changed: in a worker."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, number):
        image = torch.full((3, 32, 32), float(number % 255))
        for _ in range(12):
            image = (image * 1.01).clamp(0, 255).roll(1, 2)
        return image, number % 10


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = 1 if "--changed" in sys.argv else 0
    for images, labels in DataLoader(Images(), batch_size=32, num_workers=workers):
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
