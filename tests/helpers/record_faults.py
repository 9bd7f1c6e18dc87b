"""Record a small transformer's training step, sound and with one fault at a time: what read-trace/tests/test_faults.py reads.

    uv run tests/helpers/record_faults.py FOLDER [FAULT ...]

Needs a GPU. Writes FOLDER/<fault>.json.gz, without paths and host names.
"""

import argparse
from collections.abc import Callable
import gzip
from pathlib import Path
import sys
import tempfile
import time

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset
from trace_reader import redact

LAYERS, DIM, HEADS, BATCH, SEQ, CLASSES = 4, 1024, 16, 64, 512, 4096
SLICES = 32  # of a batch that is gone through in a loop
WARM_UP, RECORDED = 6, 3
FAULTS = (
    "sound", "item_on_gradients", "cpu_in_forward", "slow_loader", "pageable_copy", "empty_cache", "synchronize",
    "loop_optimizer", "fp32", "attention_written_out", "loop_over_slices", "changing_shapes", "tiny_batch", "kept_by_cat",
)  # fmt: skip


class Block(nn.Module):
    """Attention and an MLP, each with what stands around it."""

    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault
        self.norm_1, self.norm_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp: Callable[[torch.Tensor], torch.Tensor] = nn.Sequential(
            nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM)
        )
        if fault == "changing_shapes":
            self.mlp = torch.compile(self.mlp, dynamic=False)  # type: ignore[arg-type]

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        if self.fault == "attention_written_out":
            y = torch.softmax(q @ k.transpose(-2, -1) * (DIM // HEADS) ** -0.5, -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, seq, DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm_1(x))
        y = self.norm_2(x)
        if self.fault == "loop_over_slices":
            return x + torch.cat([self.mlp(part) for part in y.flatten(0, 1).chunk(SLICES)]).view_as(x)
        return x + self.mlp(y)


class Model(nn.Module):
    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault
        compiled = fault == "changing_shapes"  # one block is: each shape is compiled once for each block
        self.blocks = nn.ModuleList(Block("sound" if compiled and number else fault) for number in range(LAYERS))
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        for number, block in enumerate(self.blocks):
            x = block(x)
            if self.fault == "cpu_in_forward" and number == LAYERS // 2:
                x = x.cpu().to("cuda")
            if self.fault == "kept_by_cat":
                for _ in range(3):
                    kept = torch.cat([kept, x], 1)
        if self.fault == "kept_by_cat":
            x = x + kept.mean(1, keepdim=True)
        return self.head(x)


class Slow(Dataset):
    """Samples with a costly transform."""

    def __init__(self, x: torch.Tensor, samples: int):
        self.x, self.samples = x, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int) -> torch.Tensor:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        return self.x[number % len(self.x)]


def run(fault: str, path: Path) -> None:
    """Train for some steps and record the last ones into `path`."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    dtype = torch.float32 if fault == "fp32" else torch.bfloat16
    batch, seq = (1, 64) if fault == "tiny_batch" else (BATCH, SEQ)
    model = Model(fault).to(device, dtype)
    looping = fault == "loop_optimizer"
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=False if looping else None, fused=not looping)
    inputs = torch.randn(batch, seq, DIM, device=device, dtype=dtype)
    target = torch.randint(CLASSES, (batch, seq), device=device)
    on_host = inputs.cpu()
    steps = WARM_UP + 2 + RECORDED
    loader = iter(DataLoader(Slow(on_host.pin_memory(), steps * batch), batch_size=batch, pin_memory=True))

    def step(number: int) -> None:
        x, y = inputs, target
        if fault == "slow_loader":
            x = next(loader).to(device, non_blocking=True)
        if fault == "pageable_copy":
            x = on_host.to(device, non_blocking=True)
        if fault == "changing_shapes":
            shorter = SEQ - 8 * max(number - WARM_UP, 0)
            x, y = x[:, :shorter], y[:, :shorter]
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        if fault == "item_on_gradients":
            norm = sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5
            if norm > 1:
                torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], 1 / norm)
        optimizer.step()
        optimizer.zero_grad()
        if fault == "empty_cache":
            torch.cuda.empty_cache()
        if fault == "synchronize":
            torch.cuda.synchronize()

    for number in range(WARM_UP):
        step(number)
    torch.cuda.synchronize()
    plan = schedule(wait=0, warmup=2, active=RECORDED, repeat=1)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=plan) as profiler:
        for number in range(WARM_UP, steps):
            step(number)
            if number == WARM_UP + 1:
                torch.cuda.synchronize()  # nothing is carried over into the recorded steps
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        profiler.export_chrome_trace(str(raw))
        path.write_bytes(gzip.compress(redact(raw.read_bytes()).data, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"which (default: all): {', '.join(FAULTS)}")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for fault in args.faults or FAULTS:
        run(fault, args.folder / f"{fault}.json.gz")
        print(f"{fault}: {(args.folder / f'{fault}.json.gz').stat().st_size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
