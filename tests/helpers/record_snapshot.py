"""Record three training steps with two snapshots of CUDA's memory, the second one behind a leak: what
read-trace/tests/test_snapshot.py reads.

    uv run tests/helpers/record_snapshot.py FOLDER

Needs a GPU. Writes FOLDER/before.pickle, after.pickle and train.json.gz, with short paths, and prints what torch counted.
"""

import gzip
from pathlib import Path
import pickle
import re
import sys
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = schedule(wait=1, warmup=1, active=3)
_FOLDERS = re.compile(r"/\S*/(?=site-packages/)|/\S*/(?=[^/]+\.py$)")


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def train_step(model: Mlp, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def shorten(value: Any, done: set[int]) -> None:
    """Take the folders of this machine out of all files' names. `done`: the lists and dictionaries that it went through."""
    if id(value) in done or not isinstance(value, dict | list):
        return
    done.add(id(value))
    for one in value.values() if isinstance(value, dict) else value:
        shorten(one, done)
    if isinstance(value, dict) and "filename" in value:
        value["filename"] = sys.intern(_FOLDERS.sub("/home/me/", value["filename"], count=1))


def dump(path: Path) -> None:
    torch.cuda.memory._dump_snapshot(str(path))
    snapshot = pickle.loads(path.read_bytes())
    shorten(snapshot, set())
    path.write_bytes(pickle.dumps(snapshot))
    counted = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
    print(path.name, *counted, flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    early = torch.ones(3 << 20, device="cuda")
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    model = Mlp().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(2048, 1024, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, schedule=STEPS) as profiler:
        for _ in range(5):
            train_step(model, optimizer, x)
            torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(str(folder / "train.json"))
    (folder / "train.json.gz").write_bytes(gzip.compress((folder / "train.json").read_bytes(), mtime=0))
    (folder / "train.json").unlink()
    dump(folder / "before.pickle")
    kept = [model(x) for _ in range(4)]  # with their graphs
    try:
        torch.empty(1 << 43, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError:
        dump(folder / "after.pickle")
    del kept, early


if __name__ == "__main__":
    main()
