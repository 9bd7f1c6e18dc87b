"""Jobs of two ranks with one performance fault each, and the same jobs after one change, for judging advice.

Written without a look at what the reader knows: the faults are ones that people meet. JOBS holds them by name; job.before(place)
and job.after(place) build the model and return a step of the rank that the place describes, a callable without arguments that
returns a loss or a checksum. record_jobs.py times and records them. Sizes are for H100s; a tiny place divides them, to try
the jobs on a CPU.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
import contextlib
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
import tempfile
from typing import Any
import zlib

import torch
from torch import Tensor, nn
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Place:
    """A rank, its device, and whether the job is only tried."""

    rank: int
    ranks: int
    device: torch.device
    mesh: DeviceMesh
    tiny: bool

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.tiny else full

    def own_seed(self) -> None:
        """Seed what follows by rank: the models are the same on all ranks, the data are not."""
        torch.manual_seed(100 + self.rank)

    @property
    def low(self) -> torch.dtype:
        """Return the dtype of half-precision programs; on a CPU, where they are only tried, float32."""
        return torch.float32 if self.device.type == "cpu" else torch.bfloat16

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu")


Build = Callable[[Place], Step]


@dataclass(frozen=True)
class Job:
    """A job: its fault and remedy in words, what right advice names, and how a rank builds it before and after the change."""

    name: str
    truth: str
    names: str  # a regular expression, case-insensitive, that right advice matches
    before: Build
    after: Build
    kind: str  # train or inference
    null: bool  # the change brings nothing
    on: tuple[str, ...]  # backends


JOBS: dict[str, Job] = {}


def job(
    truth: str, *, names: str, kind: str = "train", null: bool = False, on: tuple[str, ...] = ("nccl", "gloo")
) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Return a decorator that puts a builder, told whether the change is made, into JOBS under its own name."""

    def register(build: Callable[..., Step]) -> Callable[..., Step]:
        name = build.__name__
        before, after = partial(build, changed=False), partial(build, changed=True)
        JOBS[name] = Job(name, truth, names, before, after, kind, null, on)
        return build

    return register


def ddp(place: Place, module: nn.Module, **settings: Any) -> DistributedDataParallel:
    settings.setdefault("broadcast_buffers", False)
    device_ids = None if place.device.type == "cpu" else [place.device.index]
    return DistributedDataParallel(module, device_ids=device_ids, **settings)


class Gated(nn.Module):
    """A residual gated perceptron."""

    def __init__(self, dim: int, wide: int):
        super().__init__()
        self.norm = nn.LayerNorm(dim, bias=False)
        self.gate, self.up = nn.Linear(dim, wide, bias=False), nn.Linear(dim, wide, bias=False)
        self.down = nn.Linear(wide, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Attending(nn.Module):
    """Attention with fewer heads of keys and values than of queries, then a perceptron with GELU."""

    def __init__(self, dim: int, head: int = 64, groups: int = 1, causal: bool = False):
        super().__init__()
        self.head, self.groups, self.causal = head, groups, causal
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key = nn.Linear(dim, dim), nn.Linear(dim, dim // groups)
        self.value, self.out = nn.Linear(dim, dim // groups), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        q, k, v = (part(h).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=self.groups > 1)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def attending(place: Place, depth: int, dim: int, dtype: torch.dtype | None = None, **settings: Any) -> nn.Sequential:
    with torch.device(place.device):
        net = nn.Sequential(*(Attending(dim, min(64, dim // 4), **settings) for _ in range(depth)))
    return net.to(dtype) if dtype else net


class Squares(nn.Module):
    """Residual 3x3 convolutions of one width after a stem of stride 4."""

    def __init__(self, channels: int, width: int, depth: int):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 4, stride=4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return x.mean((2, 3))


def squares(place: Place, channels: int, width: int, depth: int) -> Squares:
    with torch.device(place.device):
        return Squares(channels, width, depth).to(memory_format=torch.channels_last)


def pictures(place: Place, number: int, channels: int, side: int) -> Tensor:
    return torch.randn(number, channels, side, side, device=place.device).to(memory_format=torch.channels_last)


def grads_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


# Gradients over DistributedDataParallel.


@job(
    "gradients are accumulated over 6 micro-batches, and DDP all-reduces them after each; under no_sync() in all but the last",
    names=r"no_sync|gradient_sync|gradient accumulation|accumulat(e|es|ed|ing|ion)\b.{0,40}(gradient|micro|step|backward|local)"
    r"|gradients? (are |is )?accumulat|micro.?batch|(once|only once) (a|per|in each) step|after (each|every) (\w+ )?backward"
    r"|(reduc|synchroni[sz])\w*.{0,40}(\d|two|three|four|five|six|several) times|(last|final) (backward|micro)",
)
def lyrics_six_reductions(place: Place, changed: bool) -> Step:
    parts, dim = 6, place.size(2048, 32)
    with torch.device(place.device):
        net = nn.Sequential(*(Gated(dim, place.size(5632, 64)) for _ in range(place.size(5, 2))))
    model = ddp(place, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    lines, wanted = torch.randn(2, parts, place.size(1024, 16), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=place.device)
        for number in range(parts):
            local = changed and number < parts - 1
            with model.no_sync() if local else contextlib.nullcontext():
                with place.autocast():
                    loss = F.mse_loss(model(lines[number]).float(), wanted[number].float()) / parts
                loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


@job(
    "the gradients of a conv net are all-reduced and divided one parameter after another when the backward has ended; "
    "DistributedDataParallel, which reduces buckets during the backward",
    names=r"DistributedDataParallel|\bDDP\b|fully_shard|\bbuckets?\b|coalesc|(parameter|tensor) (by|after) (parameter|tensor)"
    r"|(reduc|collective)\w*.{0,60}(one|each|every|per|single) (parameter|tensor|gradient|weight)"
    r"|(not|nothing|none|no)\b.{0,40}overlap\w* (\w+ ){0,3}backward|overlap.{0,60} the backward"
    r"|(after|until|once) (all of )?the backward",
)
def defects_reduced_by_hand(place: Place, changed: bool) -> Step:
    net = squares(place, 3, place.size(1024, 16), place.size(12, 3))
    head = nn.Linear(place.size(1024, 16), 40, device=place.device)
    whole = nn.Sequential(net, head)
    model: nn.Module = ddp(place, whole) if changed else whole
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    place.own_seed()
    images = pictures(place, place.size(16, 2), 3, place.size(56, 16))
    labels = torch.randint(0, 40, (len(images),), device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with place.autocast():
            logits = model(images)
        loss = F.cross_entropy(logits.float(), labels)
        loss.backward()
        if not changed:
            for grad in grads_of(model.parameters()):
                dist.all_reduce(grad)
                grad /= place.ranks
        optimizer.step()
        return loss.detach()

    return step


@job(
    "none: buckets of 25 MB in a net whose long backward hides all communication; buckets of 80 MB",
    names=r"bucket_cap|(larger|bigger|fewer|smaller) buckets?|buckets? (is|are|of)\b",
    null=True,
)
def null_larger_buckets(place: Place, changed: bool) -> Step:
    dim = place.size(1024, 32)
    model = ddp(place, attending(place, place.size(6, 2), dim, place.low), bucket_cap_mb=80 if changed else 25)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    x = torch.randn(place.size(24, 2), place.size(768, 8), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "bucket_cap_mb=0.5 makes a bucket, and an all-reduce, of nearly each of 96 weights; the default of 25 MB",
    names=r"bucket_cap|(larger|bigger|small|tiny|default|fewer|25 MB) buckets?|buckets? (is|are|of)\b|coalesc"
    r"|(small|tiny|short|little) (all-?_?reduce|collective|reduction|message)"
    r"|(many|dozens of) (\w+ )?(all-?_?reduces|collectives|reductions)",
)
def genomes_small_buckets(place: Place, changed: bool) -> Step:
    dim, wide = place.size(512, 16), place.size(2048, 32)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, wide), nn.Linear(wide, dim)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(F.relu(self.up(self.norm(x))))

    with torch.device(place.device):
        net = nn.Sequential(*(Residual() for _ in range(place.size(48, 3))))
    model = ddp(place, net, bucket_cap_mb=25 if changed else 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    place.own_seed()
    bases = torch.randn(place.size(4096, 16), dim, device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(bases), bases.flip(0))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "a gradient of 1 GB in fp32 is all-reduced in each step of a small batch, more than the backward hides; "
    "bf16_compress_hook, half the bytes",
    names=r"(?<!de)compress|comm_?hook|powersgd|gradients?.{0,60}(bf16|bfloat16|fp16|float16|half|16.?bit|fp32|float32)"
    r"|(reduc|communicat|collective)\w*.{0,60}(bf16|bfloat16|fp16|float16|16.?bit|half precision)"
    r"|half (of )?(the|its) (bytes|size)|(bf16|bfloat16|fp16|float16).{0,40}(gradient|reduc|communicat)",
)
def products_fp32_gradients(place: Place, changed: bool) -> Step:
    dim = place.size(4096, 32)
    with torch.device(place.device):
        towers = [nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(dim, dim), nn.GELU()))) for _ in range(2)]
    model = ddp(place, nn.Sequential(*towers))
    if changed:
        model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    place.own_seed()
    queries, wanted = torch.randn(2, place.size(768, 16), dim, device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with place.autocast():
            found = model(queries)
        loss = F.mse_loss(found.float(), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "DDP searches the graph for unused parameters in each step (find_unused_parameters=True) though all 480 are used; without",
    names=r"find_unused|unused",
)
def networks_unused_search(place: Place, changed: bool) -> Step:
    dim, depth = place.size(320, 16), place.size(60, 3)

    class Message(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
            self.send, self.update = nn.Linear(dim, dim), nn.Linear(dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            x = x + torch.tanh(self.send(self.norms[0](x))).roll(1, 0)
            return x + torch.tanh(self.update(self.norms[1](x)))

    with torch.device(place.device):
        net = nn.Sequential(*(Message() for _ in range(depth)))
    model = ddp(place, net, find_unused_parameters=not changed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    nodes = torch.randn(place.size(3072, 16), dim, device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(nodes).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "a frozen bank of negatives, half a GB, is a buffer that DDP broadcasts from rank 0 before each forward; "
    "broadcast_buffers=False",
    names=r"broadcast_buffers|broadcast\w*.{0,80}(buffer|bank|forward|each step|every step)|buffers?.{0,60}broadcast|\bbank\b",
)
def faces_bank_broadcast(place: Place, changed: bool) -> Step:
    dim, bank_size = place.size(1024, 16), place.size(262_144, 64)

    class Matching(nn.Module):
        negatives: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.encoder = squares(place, 3, place.size(256, 16), place.size(5, 2))
            self.head = nn.Linear(place.size(256, 16), dim, device=place.device)
            negatives = F.normalize(torch.randn(bank_size, dim, device=place.device), dim=1)
            self.register_buffer("negatives", negatives.to(place.low))

        def forward(self, views: Tensor) -> Tensor:
            a, b = F.normalize(self.head(self.encoder(views)).float(), dim=1).to(place.low).chunk(2)
            return torch.cat([(a * b).sum(1, keepdim=True), a @ self.negatives.T], dim=1)

    model = ddp(place, Matching(), broadcast_buffers=not changed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    place.own_seed()
    views = pictures(place, place.size(96, 4), 3, place.size(112, 16))
    positive = torch.zeros(len(views) // 2, dtype=torch.long, device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with place.autocast():
            logits = model(views)
        loss = F.cross_entropy(logits.float() / 0.1, positive)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "none: bf16_compress_hook where the few gradients of a conv net hide behind a long backward",
    names=r"(?<!de)compress|comm_?hook|gradients?.{0,40} in (bf16|bfloat16|fp16|float16|half|16.?bit)|half (of )?(the|its) bytes",
    null=True,
)
def null_compressed(place: Place, changed: bool) -> Step:
    net = nn.Sequential(squares(place, 3, place.size(256, 16), place.size(10, 2)), nn.Linear(place.size(256, 16), 100))
    model = ddp(place, net.to(place.device))
    if changed:
        model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    place.own_seed()
    images = pictures(place, place.size(96, 2), 3, place.size(160, 16))
    labels = torch.randint(0, 100, (len(images),), device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with place.autocast():
            logits = model(images)
        loss = F.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# What is reduced and read beside the gradients.


def click_metrics(logits: Tensor, loss: Tensor, clicked: Tensor) -> dict[str, Tensor]:
    """Return seven numbers that a click model is watched by."""
    chance = logits.detach().sigmoid()
    said = chance > 0.5
    return {
        "loss": loss.detach().clone(),
        "accuracy": (said == clicked.bool()).float().mean(),
        "said": said.float().mean(),
        "chance": chance.mean(),
        "calibration": chance.mean() / clicked.mean(),
        "brier": (chance - clicked).square().mean(),
        "spread": chance.std(),
    }


@job(
    "seven metrics of a click model are all-reduced one by one and read with .item() in each step before the backward; kept on "
    "the device, reduced and read together every 200 steps",
    names=r"\.item\b|aten::item|local_scalar_dense|metrics?\b|less often|every (few|\d+|hundred|n)\b.{0,12}steps"
    r"|(read|copied|copies|fetched).{0,40}(each|every) step"
    r"|(on|to) the (host|cpu).{0,40}(each|every) step|reads? (it |them )?back",
)
def clicks_metrics_read(place: Place, changed: bool) -> Step:
    rows, fields, dim = place.size(12_288, 32), 24, place.size(64, 8)
    wide = place.size(2048, 32)

    class Clicks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(place.size(200_000, 100), dim)
            widths = [fields * (fields - 1) // 2 + fields * dim, wide, wide, wide // 2]
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
            self.head = nn.Linear(wide // 2, 1)

        def forward(self, ids: Tensor) -> Tensor:
            found = self.table(ids)
            near = torch.bmm(found, found.transpose(1, 2))[:, above[0], above[1]]
            x = torch.cat([found.flatten(1), near], dim=1)
            for layer in self.layers:
                x = F.relu(layer(x))
            return self.head(x).squeeze(1)

    above = torch.triu_indices(fields, fields, 1, device=place.device)
    model = ddp(place, Clicks().to(place.device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    place.own_seed()
    ids = torch.randint(0, place.size(200_000, 100), (rows, fields), device=place.device)
    clicked = torch.rand(rows, device=place.device).round()
    read: dict[str, float] = {}
    sums, steps = torch.zeros(7, device=place.device), 0

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        with place.autocast():
            logits = model(ids)
        logits = logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, clicked)
        metrics = click_metrics(logits, loss, clicked)
        if changed:
            sums.add_(torch.stack(list(metrics.values())))
            if steps % 200 == 0:
                dist.all_reduce(sums)
                read.update(zip(metrics, (sums / (200 * place.ranks)).tolist(), strict=True))
                sums.zero_()
        else:
            for name, value in metrics.items():
                dist.all_reduce(value)
                read[name] = value.item() / place.ranks
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "clipping reads the norm of each of 192 gradients with .item(), sums in Python and all-reduces the sum, in each step; "
    "clip_grad_norm_, which stays on the device (DDP's gradients are equal on all ranks)",
    names=r"clip_grad|\.item\b|aten::item|local_scalar_dense"
    r"|(gradient'?s? norms?|norms? of)\b.{0,60}(read|item|host|cpu|sync|foreach|device)"
    r"|foreach_norm|get_total_norm|reads? (it |them )?back|less often",
)
def molecules_norm_by_item(place: Place, changed: bool) -> Step:
    dim = place.size(1024, 32)
    model = ddp(place, attending(place, place.size(12, 2), dim, place.low))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    place.own_seed()
    atoms = torch.randn(place.size(16, 2), place.size(256, 8), dim, device=place.device, dtype=place.low)

    def clip() -> None:
        grads = grads_of(parameters)
        squared = torch.tensor(sum(grad.norm().item() ** 2 for grad in grads), device=place.device)
        dist.all_reduce(squared)
        norm = (squared / place.ranks).sqrt().item()
        if norm > 0.1:
            torch._foreach_mul_(grads, 0.1 / norm)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(atoms).float().square().mean()
        loss.backward()
        if changed:
            nn.utils.clip_grad_norm_(parameters, 0.1)
        else:
            clip()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "each gradient is checked to be finite, the answer all-reduced and read before each optimizer step; once in 100 steps",
    names=r"finite|found_inf|nan\b|\.item\b|aten::(item|is_nonzero)|local_scalar_dense|less often"
    r"|every (few|\d+|hundred|n)\b.{0,12}steps|once in \d+ steps|reads? (it |them )?back",
)
def captions_finite_check(place: Place, changed: bool) -> Step:
    dim = place.size(1280, 32)
    with torch.device(place.device):
        net = nn.Sequential(*(Gated(dim, place.size(3584, 48)) for _ in range(place.size(16, 2)))).to(place.low)
    model = ddp(place, net, gradient_as_bucket_view=True)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, fused=True)
    place.own_seed()
    words = torch.randn(place.size(3072, 16), dim, device=place.device, dtype=place.low)
    steps = 0

    def all_finite() -> bool:
        fine = torch.stack([grad.isfinite().all() for grad in grads_of(parameters)]).all().float()
        dist.all_reduce(fine, op=dist.ReduceOp.MIN)
        return bool(fine.item())

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        loss = (model(words) - words.roll(1, 0)).float().abs().mean()
        loss.backward()
        if (changed and steps % 100) or all_finite():
            optimizer.step()
        return loss.detach()

    return step


@job(
    "none: the loss is all-reduced in each step but never read, so that nothing waits for it; not reduced",
    names=r"\.item\b|aten::item|local_scalar_dense|metrics?\b|less often|all-?_?reduc\w* (of )?the loss",
    null=True,
)
def null_loss_reduced(place: Place, changed: bool) -> Step:
    dim = place.size(1536, 32)
    with torch.device(place.device):
        net = nn.Sequential(*(Gated(dim, place.size(4096, 48)) for _ in range(place.size(6, 2)))).to(place.low)
    model = ddp(place, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    x = torch.randn(place.size(12_288, 16), dim, device=place.device, dtype=place.low)
    mean = torch.zeros((), device=place.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        if not changed:
            mean.copy_(loss.detach())
            dist.all_reduce(mean)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "18 SyncBatchNorms gather their statistics from the other rank in forward and backward, though each rank's batch is large; "
    "BatchNorm",
    names=r"sync_?batch_?norm|statistics|batch.?norms?.{0,60}(reduc|gather|communicat|local|sync)"
    r"|(local|plain|ordinary) batch.?norm|group.?norm",
    on=("nccl",),
)
def tissue_sync_norm(place: Place, changed: bool) -> Step:
    net: nn.Module = squares(place, 3, place.size(192, 16), place.size(18, 2))
    if not changed:
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    model = ddp(place, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    place.own_seed()
    slides = pictures(place, place.size(48, 2), 3, place.size(192, 16))

    def step() -> Tensor:
        optimizer.zero_grad()
        with place.autocast():
            features = model(slides)
        loss = (features.float() - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Sharded parameters.


@job(
    "an FSDP model that fits on a GPU frees each block's gathered weights after the forward and gathers them again in the "
    "backward; reshard_after_forward=False",
    names=r"reshard|re-?gather|gather\w*.{0,40}(again|twice|second time|once more)|(second|repeated|another) (all-?_?)?gather"
    r"|SHARD_GRAD_OP|zero-?2|keep\w*.{0,40}(gathered|unsharded)|gather\w* once",
)
def stories_resharded(place: Place, changed: bool) -> Step:
    dim = place.size(2560, 32)
    net = attending(place, place.size(6, 2), dim, causal=True)
    policy = MixedPrecisionPolicy(param_dtype=place.low)
    for unit in (*net, net):
        fully_shard(unit, mesh=place.mesh, mp_policy=policy, reshard_after_forward=not changed)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    x = torch.randn(2, place.size(512, 8), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "the whole model is one FSDP unit, so that all is gathered before the forward and scattered after the backward; "
    "fully_shard on each block",
    names=r"(each|every|per).?(transformer |decoder |encoder )?(block|layer|module)\b.{0,60}(shard|unit|wrap|fsdp)|auto_?wrap"
    r"|(shard|unit|wrap|fsdp)\w*.{0,60}(each|every|per|single).?(transformer )?(block|layer|module)\b"
    r"|(one|single|whole|smaller|more|several) (fsdp )?(unit|group)s?\b|(gather|scatter)\w*.{0,80}(prefetch|overlap|behind)"
    r"|(prefetch|overlap)\w*.{0,80}(gather|scatter)",
)
def proteins_one_unit(place: Place, changed: bool) -> Step:
    dim = place.size(2048, 32)
    net = attending(place, place.size(8, 2), dim, groups=2)
    policy = MixedPrecisionPolicy(param_dtype=place.low, reduce_dtype=torch.float32)
    for unit in (*net, net) if changed else (net,):
        fully_shard(unit, mesh=place.mesh, mp_policy=policy, reshard_after_forward=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5, foreach=True)  # fused, SGD does not take DTensors
    place.own_seed()
    x = torch.randn(place.size(8, 2), place.size(256, 8), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (net(x).float() - 1).abs().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "none: explicit forward prefetching of the next two blocks where FSDP's gathers are hidden behind long blocks already",
    names=r"forward_prefetch|prefetch|reshard|re-?gather|(one|single|whole) (fsdp )?(unit|group)",
    null=True,
)
def null_prefetch(place: Place, changed: bool) -> Step:
    dim = place.size(1536, 32)
    net = attending(place, place.size(6, 3), dim)
    policy = MixedPrecisionPolicy(param_dtype=place.low)
    for unit in (*net, net):
        fully_shard(unit, mesh=place.mesh, mp_policy=policy, reshard_after_forward=False)
    if changed:
        units: list[Any] = list(net)
        for number, shards in enumerate(units[:-1]):
            shards.set_modules_to_forward_prefetch(units[number + 1 : number + 3])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    x = torch.randn(place.size(16, 2), place.size(768, 8), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "tensor parallelism in fp16 casts the partial sums of each projection to fp32 and all-reduces them so; reduce in fp16",
    names=r"(reduc|gather|sums?\b|collective|communicat|nccl)\w*.{0,80}(fp32|float32|16.?bit|[bf]+p?16|b?float16|half precision)"
    r"|(fp32|float32|16.?bit|[bf]+p?16|b?float16)\b.{0,80}(reduc|gather|collective|communicat|nccl)"
    r"|half (of )?(the|its) (bytes|size)",
    kind="inference",
)
def chat_fp32_partial_sums(place: Place, changed: bool) -> Step:
    low = torch.float32 if place.device.type == "cpu" else torch.float16
    dim, wide, head = place.size(4096, 32), place.size(8192, 64) // place.ranks, place.size(128, 8)

    class Shard(nn.Module):
        """A rank's half of the heads and of the perceptron's width."""

        def __init__(self) -> None:
            super().__init__()
            own = dim // place.ranks
            self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * own, bias=False), nn.Linear(own, dim, bias=False)
            self.up, self.down = nn.Linear(dim, wide, bias=False), nn.Linear(wide, dim, bias=False)

        def summed(self, part: Tensor) -> Tensor:
            if not changed:
                part = part.to(torch.float64 if place.device.type == "cpu" else torch.float32)
            dist.all_reduce(part)
            return part.to(low)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (h.unflatten(-1, (-1, head)).transpose(1, 2) for h in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + self.summed(self.out(mixed))
            return x + self.summed(self.down(F.silu(self.up(self.norm2(x)))))

    torch.manual_seed(7 + place.rank)  # each rank holds its own shard
    with torch.device(place.device):
        net = nn.Sequential(*(Shard() for _ in range(place.size(5, 2)))).to(low).eval()
    torch.manual_seed(11)  # and sees the same prompts
    prompts = torch.randn(place.size(4, 2), place.size(1024, 8), dim, device=place.device, dtype=low)

    @torch.no_grad()
    def step() -> Tensor:
        return net(prompts)[:, -1].float().abs().mean()

    return step


@job(
    "a pipeline of two stages passes the whole batch at once, so that each rank idles while the other works; 4 micro-batches",
    names=r"micro.?batch|\bbubble|(?<!input )\bpipelin|1F1B|gpipe|(wait|idle|idling)\w*.{0,60}(stage|each other|turn)"
    r"|\bin turns?\b|take turns|(split|cut|divid)\w* (up )?(the|each) batch",
)
def frames_one_micro_batch(place: Place, changed: bool) -> Step:
    parts, dim = 4 if changed else 1, place.size(2048, 32)
    torch.manual_seed(3 + place.rank)  # each rank holds its own stage
    stage = attending(place, place.size(4, 2), dim, place.low)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    frames = torch.randn(place.size(32, 4), place.size(196, 8), dim, device=place.device, dtype=place.low)

    def first_stage() -> Tensor:
        outputs: list[Tensor] = []
        sent: list[Any] = []
        for part in frames.chunk(parts):
            outputs.append(stage(part))
            sent.append(dist.isend(outputs[-1].detach(), 1))
        grads = [torch.empty_like(output) for output in outputs]
        received: list[Any] = [dist.irecv(grad, 1) for grad in grads]
        for output, grad, work in zip(outputs, grads, received, strict=True):
            work.wait()
            output.backward(grad)
        for work in sent:
            work.wait()
        return torch.stack([output.detach().float().mean() for output in outputs]).mean()

    def second_stage() -> Tensor:
        inputs = [torch.empty_like(part) for part in frames.chunk(parts)]
        received: list[Any] = [dist.irecv(part, 0) for part in inputs]
        losses: list[Tensor] = []
        sent: list[Any] = []
        for part, work in zip(inputs, received, strict=True):
            work.wait()
            losses.append(stage(part.requires_grad_()).float().square().mean() / parts)
        for part, loss in zip(inputs, losses, strict=True):
            loss.backward()
            assert part.grad is not None
            sent.append(dist.isend(part.grad, 0))
        for work in sent:
            work.wait()
        return torch.stack(losses).detach().sum()

    def step() -> Tensor:
        optimizer.zero_grad()
        result = second_stage() if place.rank else first_stage()
        optimizer.step()
        return result

    return step


# One rank that the other waits for: what says so of the right rank, and that its CPU is why.
STRAGGLER = (
    r"rank {0}\b[^.:;]{{0,20}}straggl|straggl\w*(,|:| is| of)? rank {0}\b(?! waits)|waits? for rank {0}\b"
    r"|slow(er|est)? (rank|one)\W+(is )?(rank )?{0}\b"
)
HOST = (
    r"rank {0}('s)? (cpu|python|host|process)\b|rank {0}\b.{{0,60}}(on (the|its) (cpu|host)|in python|python code)"
    r"|rank {0}\b.{{0,60}}(is|comes|starts) late"
)


def windows_of(documents: range, place: Place, interleaved: bool) -> list[int]:
    """Return the documents, of which document n is n windows long, that a rank takes: every other one, or a half of them."""
    share = len(documents) // place.ranks
    return list(documents[place.rank :: place.ranks] if interleaved else documents[place.rank * share :][:share])


@job(
    "the corpus is sorted by length and each rank takes a half of it, so that rank 1 has nearly three times rank 0's tokens; "
    "deal the documents out in turns",
    names=STRAGGLER.format(1)
    + r"|(longer|more|larger|bigger|uneven|unequal).{0,30}(sequence|token|length|work|batch|shape|data\b|share)"
    r"|imbalanc|unbalanc|balance (the|by)|by length",
)
def letters_sorted_by_length(place: Place, changed: bool) -> Step:
    dim = place.size(1536, 32)
    model = ddp(place, attending(place, place.size(6, 2), dim, place.low))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    windows = sum(windows_of(range(1, 17), place, changed))
    letters = torch.randn(windows, place.size(128, 4), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(letters).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "none: documents of equal lengths are dealt out in turns where each rank took a half",
    names=STRAGGLER.format("[01]") + r"|(longer|more|larger|bigger|uneven|unequal) (sequence|token|length|work|batch|shape)"
    r"|imbalanc|unbalanc|by length",
    null=True,
)
def null_equal_lengths(place: Place, changed: bool) -> Step:
    dim = place.size(2048, 32)
    model = ddp(place, attending(place, place.size(4, 2), dim, place.low, groups=4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    place.own_seed()
    windows = 5 * len(windows_of(range(1, 17), place, changed))
    letters = torch.randn(windows, place.size(192, 4), dim, device=place.device, dtype=place.low)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(letters).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "rank 1's shard is compressed, and its training loop decompresses each batch while rank 0 waits in the all-reduce; "
    "decompressed ahead, by threads",
    names=STRAGGLER.format(1) + "|" + HOST.format(1) + r"|decompress|zlib|inflat|data ?load|loader|input pipeline|prefetch|worker"
    r"|imbalanc|unbalanc",
)
def scans_inflated_on_one(place: Place, changed: bool) -> Step:
    number, side = place.size(288, 2), place.size(128, 16)
    width = place.size(192, 16)
    net = nn.Sequential(squares(place, 1, width, place.size(6, 2)), nn.Linear(width, 2, device=place.device))
    model = ddp(place, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    place.own_seed()
    levels = torch.randn(number, 1, side, side).mul_(6).clamp_(-100, 100).to(torch.int8)
    raw = levels.numpy().tobytes()
    shard = zlib.compress(raw, 1)
    labels = torch.randint(0, 2, (number,), device=place.device)
    threads = ThreadPoolExecutor(6)
    ahead: deque[Future[bytes]] = deque()
    if changed and place.rank:
        ahead.extend(threads.submit(zlib.decompress, shard) for _ in range(6))

    def next_batch() -> bytes:
        if not place.rank:
            return raw
        if not changed:
            return zlib.decompress(shard)
        ahead.append(threads.submit(zlib.decompress, shard))
        return ahead.popleft().result()

    def step() -> Tensor:
        batch = torch.frombuffer(bytearray(next_batch()), dtype=torch.int8).view(levels.shape)
        pinned = batch if place.device.type == "cpu" else batch.pin_memory()
        scans = pinned.to(place.device, non_blocking=True).float().div_(100)
        optimizer.zero_grad()
        with place.autocast():
            logits = model(scans.to(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@job(
    "rank 0 saves a checkpoint in each step while the other rank waits at a barrier; once in 1000 steps",
    names=STRAGGLER.format(0) + "|" + HOST.format(0) + r"|checkpoint|torch\.save|state_dict|barrier"
    r"|writ\w+ (to )?(a |the )?(file|disk)|sav(e|es|ing) (the |its |a )?(model|state|weights|parameters|file)",
)
def tides_saved_each_step(place: Place, changed: bool) -> Step:
    wide = place.size(768, 16)

    class Tides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(32, wide, 2, batch_first=True), nn.Linear(wide, 32)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0])

    model = ddp(place, Tides().to(place.device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    place.own_seed()
    levels = torch.randn(place.size(256, 4), place.size(97, 9), 32, device=place.device)
    folder = tempfile.TemporaryDirectory()
    steps = 0

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        loss = F.huber_loss(model(levels[:, :-1]), levels[:, 1:])
        loss.backward()
        optimizer.step()
        if not changed or steps % 1000 == 0:
            if place.rank == 0:
                torch.save(model.module.state_dict(), Path(folder.name) / "tides.pt")
            dist.barrier()
        return loss.detach()

    return step


@job(
    "a hash sends 85% of all tokens to the expert of rank 0, for which rank 1 waits in the second all-to-all of each layer; "
    "a hash that spreads them evenly",
    names=STRAGGLER.format(0) + r"|expert|imbalanc|unbalanc|balance (the|by)|uneven|unequal|router|routing|load balanc"
    r"|rank 0.{0,80}(more|larger|longer|bigger) (\w+ )?(token|work|matri|shape|share|batch|data\b|comput)",
    kind="inference",
)
def words_hashed_unevenly(place: Place, changed: bool) -> Step:
    dim, tokens = place.size(2048, 32), place.size(6144, 32)
    torch.manual_seed(5 + place.rank)  # each rank holds its own experts
    with torch.device(place.device):
        experts = [Gated(dim, place.size(5632, 64)).to(place.low) for _ in range(place.size(6, 2))]
    place.own_seed()
    words = torch.randn(tokens, dim, device=place.device, dtype=place.low)
    expert = (torch.rand(tokens) > (0.5 if changed else 0.85)).long()
    order = expert.argsort(stable=True).to(place.device)
    back = order.argsort()
    sent = expert.bincount(minlength=place.ranks)
    table = [torch.zeros_like(sent, device=place.device) for _ in range(place.ranks)]
    dist.all_gather(table, sent.to(place.device))
    out_counts, in_counts = sent.tolist(), [int(counts[place.rank]) for counts in table]

    @torch.no_grad()
    def step() -> Tensor:
        x = words
        for network in experts:
            arrived = x.new_empty(sum(in_counts), dim)
            dist.all_to_all_single(arrived, x[order], in_counts, out_counts)
            returned = torch.empty_like(x)
            dist.all_to_all_single(returned, network(arrived), out_counts, in_counts)
            x = returned[back]
        return x.float().abs().mean()

    return step
