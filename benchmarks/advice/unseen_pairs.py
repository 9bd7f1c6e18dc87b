"""Small PyTorch programs with one performance fault each, and the same programs after one change, for judging advice.

Written without a look at what the reader knows: the faults are ones that people meet. UNSEEN holds them by name; a pair's
build(device, changed) returns a step, a callable without arguments. record_unseen.py times and records them. The
environment variable UNSEEN_SCALE divides the sizes, to try the GPU's pairs on a CPU.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import math
import os
import queue
import threading
import time
from typing import Any

import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

Step = Callable[[], Any]
Build = Callable[[str, bool], Step]
SCALE = max(1, int(os.environ.get("UNSEEN_SCALE", "1")))


@dataclass(frozen=True)
class Unseen:
    """A pair: what its change is, what right advice names, how it is built, and how it is recorded."""

    name: str
    change: str  # the truth in words: the fault; the remedy
    names: str  # a regular expression, case-insensitive, that right advice matches
    build: Build
    kind: str  # inference or training
    null: bool  # the change brings nothing
    recorded: str  # "step": by the schedule; "none": without marks; else the range around each repetition
    on: tuple[str, ...]
    with_stack: bool
    profile_memory: bool
    record_shapes: bool


UNSEEN: dict[str, Unseen] = {}


def pairs_into(found: dict[str, Unseen]) -> Callable[..., Callable[[Build], Build]]:
    """Return a decorator that puts builders into a set of pairs, each under its own name."""

    def unseen(
        change: str,
        *,
        names: str,
        kind: str,
        recorded: str,
        null: bool = False,
        on: tuple[str, ...] = ("cuda",),
        with_stack: bool = False,
        profile_memory: bool = False,
        record_shapes: bool = True,
    ) -> Callable[[Build], Build]:
        def register(build: Build) -> Build:
            name = build.__name__
            found[name] = Unseen(name, change, names, build, kind, null, recorded, on, with_stack, profile_memory, record_shapes)
            return build

        return register

    return unseen


unseen = pairs_into(UNSEEN)


def small(number: int) -> int:
    """Return a size, divided by UNSEEN_SCALE."""
    return max(2, number // SCALE)


def low(device: str) -> torch.dtype:
    """Return the dtype of half-precision programs; on a CPU, where they are only tried, float32."""
    return torch.float32 if device == "cpu" else torch.bfloat16


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        return q, k, v

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        q, k, v = self.heads_of(x)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal))


def blocks(number: int, dim: int, heads: int, device: str, dtype: torch.dtype = torch.float32) -> Any:
    return nn.ModuleList(Block(dim, heads) for _ in range(number)).to(device=device, dtype=dtype)


def conv_net(widths: list[int], norm: bool = False) -> nn.Sequential:
    """3x3 convolutions and ReLUs, with stride 2 where the width changes."""
    layers: list[nn.Module] = []
    last = 3
    for width in widths:
        layers.append(nn.Conv2d(last, width, 3, stride=1 if width == last else 2, padding=1, bias=not norm))
        layers += [nn.BatchNorm2d(width), nn.ReLU()] if norm else [nn.ReLU()]
        last = width
    return nn.Sequential(*layers)


# Inference on a GPU.


@unseen(
    "the scores of all documents are sorted where the 16 largest are used; topk",
    names=r"\btopk\b|aten::(arg)?sort|full sort",
    kind="inference",
    recorded="none",
)
def retrieval_sort(device: str, changed: bool) -> Step:
    tower = blocks(6, 512, 8, device, low(device)).eval()
    tokens = torch.randn(small(32), 128, 512, device=device, dtype=low(device))
    documents = torch.randn(small(100_000), 512, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        x = tokens
        for block in tower:
            x = block(x)
        scores = (F.normalize(x.mean(1), dim=-1) @ documents.T).float()
        if changed:
            best, rows = scores.topk(16, dim=-1)
        else:
            values, order = scores.sort(dim=-1, descending=True)
            best, rows = values[:, :16], order[:, :16]
        return (best.softmax(-1).unsqueeze(-1) * documents[rows].float()).sum(1)

    return step


@unseen(
    "the key and value caches grow by torch.cat with every token; preallocated caches, written in place",
    names=r"preallocat|static.?cache|torch\.cat|aten::cat\b|index_copy|CatArray|(write|written|updat\w+) in.?place",
    kind="inference",
    recorded="none",
    profile_memory=True,
)
def decode_cat_cache(device: str, changed: bool) -> Step:
    layers, batch, heads, prefix, count = 4, small(16), 16, small(2048), 8
    model = blocks(layers, 1024, heads, device, low(device)).eval()
    cached = torch.randn(layers, 2, batch, heads, prefix, 64, device=device, dtype=low(device))
    first = torch.randn(batch, 1, 1024, device=device, dtype=low(device))
    room = cached.new_zeros(layers, 2, batch, heads, prefix + count, 64)
    room[..., :prefix, :] = cached

    @torch.no_grad()
    def step() -> Tensor:
        keys, values = [cached[i, 0] for i in range(layers)], [cached[i, 1] for i in range(layers)]
        x = first
        for position in range(prefix, prefix + count):
            for i, block in enumerate(model):
                q, k, v = block.heads_of(x)
                if changed:
                    room[i, 0, :, :, position : position + 1] = k
                    room[i, 1, :, :, position : position + 1] = v
                    k, v = room[i, 0, :, :, : position + 1], room[i, 1, :, :, : position + 1]
                else:
                    k = keys[i] = torch.cat([keys[i], k], dim=2)
                    v = values[i] = torch.cat([values[i], v], dim=2)
                x = block.rest(x, F.scaled_dot_product_attention(q, k, v))
        return x

    return step


@unseen(
    "grouped key and value heads are copied with repeat_interleave to every query head before attention; "
    "attend by group, or enable_gqa",
    names=r"repeat_interleave|enable_gqa|grouped?.quer|\bgqa\b|\bexpand\b",
    kind="inference",
    recorded="decode",
)
def gqa_repeat(device: str, changed: bool) -> Step:
    layers, batch, heads, groups, length, tokens = 3, small(8), 32, 4, small(4096), 4
    dtype = low(device)
    query = [nn.Linear(2048, heads * 128, bias=False, device=device, dtype=dtype) for _ in range(layers)]
    out = [nn.Linear(heads * 128, 2048, bias=False, device=device, dtype=dtype) for _ in range(layers)]
    keys = torch.randn(layers, batch, groups, length, 128, device=device, dtype=dtype)
    values = torch.randn_like(keys)
    first = torch.randn(batch, 2048, device=device, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        x = first
        for _ in range(tokens):
            for i in range(layers):
                q = query[i](F.rms_norm(x, (2048,)))
                if changed:
                    y = F.scaled_dot_product_attention(q.view(batch, groups, heads // groups, 128), keys[i], values[i])
                else:
                    k = keys[i].repeat_interleave(heads // groups, dim=1)
                    v = values[i].repeat_interleave(heads // groups, dim=1)
                    y = F.scaled_dot_product_attention(q.view(batch, heads, 1, 128), k, v)
                x = x + out[i](y.reshape(batch, heads * 128))
        return x

    return step


@unseen(
    "non-maximum suppression in a loop over the classes, each with its own nonzero; torchvision's batched_nms",
    names=r"batched_nms|\bnms\b|aten::nonzero|boolean (mask|index)|(loop|once|each|per|every)\W+(over\W+)?(the\W+)?class",
    kind="inference",
    recorded="step",
)
def detect_class_loop(device: str, changed: bool) -> Step:
    from torchvision.ops import batched_nms, nms

    classes, side = 20, small(512)
    net = conv_net([32, 64, 64, 128, 128, 128, 128]).to(device).eval()
    head = nn.Conv2d(128, 4 + classes, 1).to(device)
    image = torch.randn(1, 3, side, side, device=device)
    cells = side // 8
    grid = torch.stack(torch.meshgrid(torch.arange(cells), torch.arange(cells), indexing="xy"), -1).view(-1, 2)
    centers = grid.float().to(device) * 8

    @torch.no_grad()
    def step() -> Tensor:
        found = head(net(image))[0].flatten(1).T
        middle = centers + found[:, :2].tanh() * 8
        size = 12 * found[:, 2:4].clamp(-2, 2).exp()
        corners = torch.cat([middle - size, middle + size], dim=1)
        scores, labels = (found[:, 4:] * 50).sigmoid().max(dim=1)
        if changed:
            kept = batched_nms(corners, scores, labels, 0.5)
        else:
            of_class = []
            for label in range(classes):
                rows = (labels == label).nonzero().squeeze(1)
                of_class.append(rows[nms(corners[rows], scores[rows], 0.5)])
            kept = torch.cat(of_class)
        return scores[kept].sort(descending=True).values[:50]

    return step


@unseen(
    "a prefill makes logits for every position and uses the last one's; the head only for the last position",
    names=r"lm_head|last (position|token|row)|unused (row|logit|output|position)|only the last|logits|vocabular|unembed",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def prefill_all_logits(device: str, changed: bool) -> Step:
    vocabulary = small(64_000)
    model = blocks(4, 1024, 16, device, low(device)).eval()
    lm_head = nn.Linear(1024, vocabulary, bias=False, device=device, dtype=low(device))
    prompt = torch.randn(4, small(1024), 1024, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        x = prompt
        for block in model:
            x = block(x, causal=True)
        if changed:
            x = x[:, -1:]
        logits = lm_head(x).float()
        return logits[:, -1].argmax(-1)

    return step


@unseen(
    "int8 weights are dequantised again in every call; dequantised once, kept in bfloat16",
    names=r"de-?quanti|int8|aten::(_to_copy|copy_|to)\b|dtype conver|\bcast(s|ing)?\b|convert\w* (once|the weights)",
    kind="inference",
    recorded="step",
    record_shapes=False,
)
def int8_dequantised(device: str, changed: bool) -> Step:
    layers, dim, tokens = 16, small(4096), 3
    weights = [torch.randint(-127, 128, (dim, dim), device=device, dtype=torch.int8) for _ in range(layers)]
    scales = [torch.rand(dim, 1, device=device).to(low(device)) / (64 * math.sqrt(dim)) for _ in range(layers)]
    first = torch.randn(8, dim, device=device, dtype=low(device))
    kept = [w.to(low(device)) * s for w, s in zip(weights, scales, strict=True)] if changed else []

    @torch.no_grad()
    def step() -> Tensor:
        x = first
        for _ in range(tokens):
            for i in range(layers):
                weight = kept[i] if changed else weights[i].to(low(device)) * scales[i]
                x = x + F.silu(F.linear(F.rms_norm(x, (dim,)), weight))
        return x

    return step


class Denoiser(nn.Module):
    """A small residual denoiser, conditioned by addition."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(depth))
        self.condition = nn.Linear(256, width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        x = self.first(x) + self.condition(condition)[:, :, None, None]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + conv(F.silu(norm(x)))
        return self.last(x)


@unseen(
    "classifier-free guidance runs the network twice, with and without the condition; both halves as one batch",
    names=r"(one|single|same) (batch|forward|pass|call)|batch\w* (both|the two|together|them)|larger batch|bigger batch"
    r"|twice|two (forward|pass|call|run)|guidance|uncondition|concatenat",
    kind="inference",
    recorded="sample",
    record_shapes=False,
)
def guidance_two_passes(device: str, changed: bool) -> Step:
    net = Denoiser(128, 8).to(device=device, dtype=low(device)).eval()
    noise = torch.randn(1, 4, 32, 32, device=device, dtype=low(device))
    condition = torch.randn(1, 256, device=device, dtype=low(device))
    nothing = torch.zeros_like(condition)
    pair = torch.cat([condition, nothing])

    @torch.no_grad()
    def step() -> Tensor:
        x = noise
        for _ in range(8):
            if changed:
                with_it, without = net(x.expand(2, -1, -1, -1), pair).chunk(2)
            else:
                with_it, without = net(x, condition), net(x, nothing)
            x = x - 0.05 * torch.lerp(without, with_it, 3.0)
        return x

    return step


@unseen(
    "each user's vector is repeated for all candidates and concatenated with theirs before the first layer; "
    "that layer split, the user's part computed once and broadcast",
    names=r"aten::(repeat|cat|expand)\b|\brepeat(ed|s|ing)?\b|\btil(e|ed|ing)\b|\bexpand|broadcast"
    r"|torch\.cat|CatArray|concatenat",
    kind="inference",
    recorded="none",
    profile_memory=True,
)
def candidates_repeat(device: str, changed: bool) -> Step:
    users, candidates = small(128), small(2000)
    first, second, last = (nn.Linear(a, b).to(device) for a, b in ((320, 256), (256, 64), (64, 1)))
    user = torch.randn(users, 256, device=device)
    items = torch.randn(users, candidates, 64, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            of_user = F.linear(user, first.weight[:, :256], first.bias)
            hidden = F.linear(items, first.weight[:, 256:]) + of_user[:, None]
        else:
            hidden = first(torch.cat([user[:, None].repeat(1, candidates, 1), items], dim=-1))
        scores = last(F.relu(second(F.relu(hidden)))).squeeze(-1)
        return scores.topk(min(20, candidates), dim=1).values

    return step


@unseen(
    "a trained CNN runs its BatchNorms as layers of their own; folded into the convolutions",
    names=r"fold|fuse_conv_bn|(conv\w*|batch_?norm|bn)\W+(and|with|into|\+)\W+\w*(batch_?norm|bn|conv)|aten::\w*batch_norm"
    r"|BatchNorm|bn_fw_inf",
    kind="inference",
    recorded="step",
    record_shapes=False,
)
def bn_unfolded(device: str, changed: bool) -> Step:
    net = conv_net([64] * 9 + [128] * 8 + [256] * 8, norm=True).to(device=device, dtype=low(device))
    for module in net:
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.2, 0.6)  # type: ignore[arg-type]
    net = net.to(memory_format=torch.channels_last).eval()
    images = torch.randn(small(256), 3, 96, 96, device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    if changed:
        layers = list(net)
        folded: list[nn.Module] = []
        for i in range(0, len(layers), 3):
            folded += [nn.utils.fuse_conv_bn_eval(layers[i], layers[i + 1]), layers[i + 2]]  # type: ignore[type-var, arg-type]
        net = nn.Sequential(*folded).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        return net(images).mean((2, 3))

    return step


@unseen(
    "an evaluation copies whole logits to the host to take the argmax there; argmax on the GPU, its indices copied",
    names=r"\.cpu\(\)|DtoH|D2H|argmax|device ?(->|to) ?host|to the (host|cpu)|from the (gpu|device)",
    kind="inference",
    recorded="evaluate",
    with_stack=True,
)
def eval_logits_to_host(device: str, changed: bool) -> Step:
    dim = small(4096)
    net = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(dim, dim), nn.ReLU()))).to(device)
    head = nn.Linear(dim, 5000).to(device)
    batches = torch.randn(3, small(1024), dim, device=device)
    labels = torch.randint(0, 5000, batches.shape[:2])

    @torch.no_grad()
    def step() -> float:
        right = 0
        for batch, label in zip(batches, labels, strict=True):
            logits = head(net(batch))
            found = logits.argmax(-1).cpu() if changed else logits.cpu().argmax(-1)
            right += int((found == label).sum())
        return right / labels.numel()

    return step


@unseen(
    "each pinned chunk is uploaded on the stream that computes, so copies and kernels take turns; "
    "the next chunk uploaded on a side stream meanwhile",
    names=r"side stream|prefetch|overlap|(second|another|separate|own|copy) (cuda )?stream|cuda\.Stream"
    r"|ahead of time|next (batch|chunk)",
    kind="inference",
    recorded="none",
)
def upload_in_turn(device: str, changed: bool) -> Step:
    chunks, count = 8, small(24)
    net = conv_net([64, 64, 64, 128, 128, 128]).to(device=device, dtype=low(device)).eval()
    net = net.to(memory_format=torch.channels_last)
    host = torch.randn(chunks, count, 3, 256, 256)
    host = host if device == "cpu" else host.pin_memory()
    side = None if device == "cpu" else torch.cuda.Stream()

    def compute(chunk: Tensor) -> Tensor:
        x = chunk.to(dtype=low(device), memory_format=torch.channels_last)
        return net(x).mean((2, 3)).float()

    @torch.no_grad()
    def step() -> Tensor:
        outputs = []
        if not changed or side is None:
            for chunk in host:
                outputs.append(compute(chunk.to(device, non_blocking=True)))
            return torch.cat(outputs)
        main = torch.cuda.current_stream()

        def upload(number: int) -> Tensor:
            with torch.cuda.stream(side):
                return host[number].to(device, non_blocking=True)

        following = upload(0)
        for number in range(chunks):
            main.wait_stream(side)
            chunk = following
            chunk.record_stream(main)
            if number + 1 < chunks:
                following = upload(number + 1)
            outputs.append(compute(chunk))
        return torch.cat(outputs)

    return step


@unseen(
    "the main thread polls for a worker thread's result with sleeps of 5 ms; a queue whose get() waits",
    names=r"time\.sleep|\bsleep|\bpoll|queue|busy.?wait|condition variable|threading\.(Event|Condition)",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def polling_consumer(device: str, changed: bool) -> Step:
    net = blocks(4, 512, 8, device, low(device)).eval()
    asked: queue.Queue[int] = queue.Queue()
    ready: queue.Queue[Tensor] = queue.Queue()
    found: deque[Tensor] = deque()
    sounds = torch.randn(3, small(16), 128, 512)

    def prepare() -> None:
        while True:
            x = sounds[asked.get()]
            x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
            if changed:
                ready.put(x)
            else:
                found.append(x)

    threading.Thread(target=prepare, daemon=True).start()

    @torch.no_grad()
    def step() -> Tensor:
        outputs = []
        for number in range(len(sounds)):
            asked.put(number)
            if changed:
                x = ready.get()
            else:
                while not found:
                    time.sleep(0.005)
                x = found.popleft()
            x = x.to(device=device, dtype=low(device))
            for block in net:
                x = block(x)
            outputs.append(x.mean(1).cpu())
        return torch.stack(outputs)

    return step


@unseen(
    "a decoder of batch 1 waits for the host to launch its many short kernels; a CUDA graph, replayed for each token",
    names=r"cuda ?graph|reduce-overhead|torch\.compile|launch",
    kind="inference",
    recorded="step",
)
def tiny_decoder_launches(device: str, changed: bool) -> Step:
    net = blocks(6, 256, 4, device, low(device)).eval()
    keys, values = torch.randn(2, 6, 1, 4, small(512), 64, device=device, dtype=low(device))
    head = nn.Linear(256, 4096, bias=False, device=device, dtype=low(device))
    table = torch.randn(4096, 256, device=device, dtype=low(device))
    token = torch.zeros(1, 1, dtype=torch.long, device=device)

    @torch.no_grad()
    def decode() -> None:
        x = F.embedding(token, table)
        for block, key, value in zip(net, keys, values, strict=True):
            q, k, v = block.heads_of(x)
            k, v = torch.cat([key, k], 2), torch.cat([value, v], 2)
            x = block.rest(x, F.scaled_dot_product_attention(q, k, v))
        token.copy_(head(x).argmax(-1))

    graph = None
    if changed and device != "cpu":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                decode()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            decode()

    def step() -> Tensor:
        token.zero_()
        for _ in range(6):
            if graph is None:
                decode()
            else:
                graph.replay()
        return token.float() + 1

    return step


# Training on a GPU.


class MLPBlock(nn.Module):
    """A residual MLP whose GELU is written out, or not."""

    def __init__(self, dim: int, by_hand: bool):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.by_hand = by_hand

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(self.norm(x))
        if self.by_hand:
            h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3))))
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


@unseen(
    "GELU written out in elementwise operations; F.gelu(approximate='tanh'), or a compiler that fuses them",
    names=r"gelu|\bfus(e|es|ed|ing|ion)\b|torch\.compile|aten::(tanh|pow)\b",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def gelu_written_out(device: str, changed: bool) -> Step:
    net = nn.Sequential(*(MLPBlock(1024, not changed) for _ in range(3))).to(device=device, dtype=low(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(small(8192), 1024, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "an LSTM cell is called for each time step from Python; nn.LSTM over the whole sequence (cuDNN)",
    names=r"nn\.LSTM\b|cudnn|LSTMCell|lstm_cell|whole sequence|\bLSTM\b",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def lstm_cells(device: str, changed: bool) -> Step:
    cell, head = nn.LSTMCell(128, 256).to(device), nn.Linear(256, 10).to(device)
    lstm = nn.LSTM(128, 256).to(device)
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            getattr(lstm, f"{name}_l0").copy_(parameter)
    net: nn.Module = lstm if changed else cell
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-2)
    x = torch.randn(64, small(64), 128, device=device)
    labels = torch.randint(0, 10, (small(64),), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        if changed:
            last = lstm(x)[0][-1]
        else:
            h = c = x.new_zeros(x.shape[1], 256)
            for now in x:
                h, c = cell(now, (h, c))
            last = h
        loss = F.cross_entropy(head(last), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "an exponential moving average of the weights, updated one parameter after another; torch._foreach_lerp_",
    names=r"foreach|multi_tensor|\bema\b|moving average|swa_utils|aten::lerp",
    kind="training",
    recorded="none",
    with_stack=True,
)
def ema_loop(device: str, changed: bool) -> Step:
    net = nn.Sequential(*(Block(384, 6) for _ in range(10))).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    average = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    x, target = torch.randn(2, small(16), 128, 384, device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            y = net(x)
        loss = F.mse_loss(y.float(), target)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if changed:
                torch._foreach_lerp_(list(average.values()), [p.detach() for p in net.parameters()], 0.001)
            else:
                for name, parameter in net.named_parameters():
                    average[name].mul_(0.999).add_(parameter, alpha=0.001)
        return loss.detach()

    return step


@unseen(
    "autograd's anomaly detection was left on, and looks at every gradient for NaN; off",
    names=r"anomaly|nan.?check|check\w* for nan|aten::(isnan|is_nonzero)|\bisnan\b",
    kind="training",
    recorded="step",
    with_stack=True,
)
def anomaly_left_on(device: str, changed: bool) -> Step:
    net = nn.Sequential(*(Block(512, 8) for _ in range(4))).to(device=device, dtype=low(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x, target = torch.randn(2, small(16), 256, 512, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autograd.set_detect_anomaly(not changed):
            loss = F.mse_loss(net(x), target)
            loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "only the head is trained, yet gradients are computed for the whole backbone; requires_grad_(False) or no_grad there",
    names=r"requires_grad|no_grad|inference_mode|fr(ee|o)ze|detach|backbone",
    kind="training",
    recorded="none",
    record_shapes=False,
)
def frozen_backbone(device: str, changed: bool) -> Step:
    net = conv_net([64, 64, 64, 128, 128, 128, 256, 256]).to(device=device, dtype=low(device))
    net = net.to(memory_format=torch.channels_last)
    head = nn.Linear(256, 100).to(device)
    if changed:
        net.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-2, momentum=0.9)
    images = torch.randn(small(256), 3, 128, 128, device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (small(256),), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(images).mean((2, 3)).float()), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a graph network gathers its neighbours with h[source], whose backward sorts the indices (index_put); "
    "index_select, whose backward adds",
    names=r"index_select|index_put|indexing_backward|index_add|IndexBackward|gather|embedding|advanced index|scatter",
    kind="training",
    recorded="step",
)
def neighbours_by_index(device: str, changed: bool) -> Step:
    nodes, edges, dim = small(50_000), small(600_000), 64
    layers = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(3)).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-2)
    x = torch.randn(nodes, dim, device=device)
    source, sink = torch.randint(0, nodes, (2, edges), device=device)
    degree = torch.bincount(sink, minlength=nodes).clamp(min=1).unsqueeze(1).float()

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        for layer in layers:
            messages = h.index_select(0, source) if changed else h[source]
            summed = torch.zeros_like(h).index_add_(0, sink, messages) / degree
            h = F.relu(layer(torch.cat([h, summed], dim=1)))
        loss = (h - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "causal attention is given its triangle as a mask tensor, which rules out flash attention; is_causal=True",
    names=r"is_causal|attn_mask|\bcausal|flash|mask tensor|efficient_attention",
    kind="training",
    recorded="none",
)
def causal_mask_tensor(device: str, changed: bool) -> Step:
    length = small(2048)
    net = blocks(3, 1024, 16, device, low(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    x, target = torch.randn(2, 4, length, 1024, device=device, dtype=low(device))
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        for block in net:
            h = block(h, causal=True) if changed else block(h, mask=mask)
        loss = F.mse_loss(h, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "activation checkpointing recomputes every block although there is ample memory; without it",
    names=r"checkpoint|recomput",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def checkpoint_needless(device: str, changed: bool) -> Step:
    from torch.utils.checkpoint import checkpoint

    net = blocks(6, 1024, 16, device, low(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    x, target = torch.randn(2, small(16), 512, 1024, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        for block in net:
            h = block(h) if changed else checkpoint(block, h, use_reentrant=False)
        loss = F.mse_loss(h, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "torch.cuda.empty_cache() in every step makes the allocator ask the driver for the same memory again; without it",
    names=r"empty_cache|cudaFree|cudaMalloc|caching allocator|allocator",
    kind="training",
    recorded="step",
    profile_memory=True,
    record_shapes=False,
)
def empty_cache_each_step(device: str, changed: bool) -> Step:
    net = conv_net([64, 64, 128, 128, 256, 256]).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(small(96), 3, 160, 160, device=device, dtype=low(device)).to(memory_format=torch.channels_last)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(images).square().mean()
        loss.backward()
        optimizer.step()
        if not changed and device != "cpu":
            torch.cuda.empty_cache()
        return loss.detach()

    return step


@unseen(
    "a large embedding table gets a dense gradient for the few rows of the batch; sparse=True",
    names=r"sparse|dense (grad|update)|embedding_dense_backward|embedding_backward|rows? (that|of the batch|used)",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def dense_embedding_gradient(device: str, changed: bool) -> Step:
    table = nn.Embedding(small(4_000_000), 64, sparse=changed, device=device)
    net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)).to(device)
    optimizers = [torch.optim.SGD(table.parameters(), lr=0.1), torch.optim.Adam(net.parameters(), fused=True)]
    ids = torch.randint(0, small(4_000_000), (small(8192), 10), device=device)
    clicked = torch.rand(small(8192), device=device).round()

    def step() -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(table(ids).mean(1)).squeeze(1), clicked)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


@unseen(
    "images are flipped one by one, each after the host has read a flag from the GPU; torch.where over the batch",
    names=r"torch\.where|aten::(where|flip|item|is_nonzero)|local_scalar_dense|vectori[sz]|(image|sample) by (image|sample)"
    r"|\.item\(\)|is_nonzero|per.(image|sample)|one (image|sample) (at a time|after)|mask",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def flip_loop(device: str, changed: bool) -> Step:
    net = conv_net([32, 64, 64, 128, 128]).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    count = small(32)
    images = torch.randn(count, 3, 256, 256, device=device, dtype=low(device))
    flags = torch.rand(count, device=device) < 0.5

    def step() -> Tensor:
        optimizer.zero_grad()
        if changed:
            x = torch.where(flags[:, None, None, None], images.flip(-1), images)
        else:
            x = images.clone()
            for i in range(count):
                if flags[i]:
                    x[i] = images[i].flip(-1)
        loss = net(x.contiguous(memory_format=torch.channels_last)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Sounds(Dataset[tuple[Tensor, int]]):
    """Sounds made when asked for: some numpy work for each."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        import numpy as np

        random = np.random.default_rng(number % 64)
        wave = random.standard_normal(4096).astype(np.float32)
        for _ in range(2):
            spectrum = np.fft.rfft(wave)
            spectrum[400:] *= 0.5
            wave = np.fft.irfft(spectrum).astype(np.float32)
        return torch.from_numpy(wave / np.abs(wave).max()), number % 10


def batches_for_ever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


@unseen(
    "the DataLoader makes each batch in the main process while the GPU waits; num_workers=4",
    names=r"num_workers|worker|prefetch|data ?load",
    kind="training",
    recorded="step",
    with_stack=True,
)
def loader_without_workers(device: str, changed: bool) -> Step:
    batch = small(32)
    workers = 4 if changed else 0
    loader = DataLoader(Sounds(), batch, num_workers=workers, persistent_workers=changed, pin_memory=device != "cpu")
    batches = batches_for_ever(loader)
    net = nn.Sequential(
        nn.Conv1d(1, 128, 16, 4), nn.ReLU(), *(m for _ in range(8) for m in (nn.Conv1d(128, 128, 9, padding=4), nn.ReLU()))
    ).to(device)
    head = nn.Linear(128, 10).to(device)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-4)

    def step() -> float:
        sounds, labels = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(sounds[:, None]).mean(-1)), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@unseen(
    "PPO's advantages are scanned backwards step by step with small GPU operations; "
    "one product with the triangle of discounts, or the scan on the host",
    names=r"matmul|triang|cumsum|\bscan\b|associative|vectori[sz]|on the (cpu|host)|numpy|advantage|\bGAE\b"
    r"|loop over (time|the steps)",
    kind="training",
    recorded="update",
    record_shapes=False,
)
def advantages_scan(device: str, changed: bool) -> Step:
    length, envs, gamma, decay = 128, small(64), 0.99, 0.95
    policy = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 7)).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
    seen = torch.randn(length, envs, 64, device=device)
    rewards = torch.randn(length, envs, device=device)
    actions = torch.randint(0, 6, (length, envs), device=device)
    apart = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    discounts = torch.where(apart >= 0, (gamma * decay) ** apart.clamp(min=0), 0.0).to(device)

    def step() -> Tensor:
        with torch.no_grad():
            values = policy(seen)[..., 6]
            if changed:
                errors = rewards - values
                errors[:-1] += gamma * values[1:]
                advantages = discounts @ errors
            else:
                advantages = torch.zeros_like(rewards)
                last = following = torch.zeros(envs, device=device)
                for t in reversed(range(length)):
                    error = rewards[t] + gamma * following - values[t]
                    last = error + gamma * decay * last
                    advantages[t] = last
                    following = values[t]
        first = advantages.mean()
        for _ in range(12):
            optimizer.zero_grad()
            out = policy(seen)
            chosen = out[..., :6].log_softmax(-1).gather(-1, actions[..., None]).squeeze(-1)
            loss = 0.5 * (out[..., 6] - values - advantages).square().mean() - (chosen * advantages).mean()
            loss.backward()
            optimizer.step()
        return torch.stack([first, loss.detach()])

    return step


class Gated(nn.Module):
    """Norms and gates written out, for a compiler to fuse."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 1024, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
            gate, value = layer(y).chunk(2, dim=-1)
            x = x + torch.tanh(gate) * torch.sigmoid(gate) * value * torch.exp(-value.square())
        return x


class GatedCounted(Gated):
    """The same with a counter of its calls, and with code of its own, for what is compiled is kept by code."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        for layer in self.layers:
            y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
            gate, value = layer(y).chunk(2, dim=-1)
            x = x + torch.tanh(gate) * torch.sigmoid(gate) * value * torch.exp(-value.square())
        return x.clamp(-10, 10) if self.calls % 1_000_000 == 999_999 else x


@unseen(
    "a compiled module counts its calls in a Python int, so it compiles anew until the limit and then runs eagerly; "
    "the counter outside, or mark it dynamic",
    names=r"recompil|recompile_limit|cache_size|\bguards?\b|mark_dynamic|\bdynamo|not compiled|(runs?|back)( to)? eager",
    kind="inference",
    recorded="step",
    record_shapes=False,
)
def compiled_counter(device: str, changed: bool) -> Step:
    net = (Gated() if changed else GatedCounted()).to(device=device, dtype=low(device))
    net.forward = torch.compile(net.forward)  # type: ignore[method-assign]
    x = torch.randn(small(32_768), 512, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        return net(x)

    for _ in range(11):
        step()
    return step


# On a GPU, changes that bring nothing.


@unseen(
    "none: two towers of large matrix products, which fill the GPU each; a stream for each",
    names=r"stream",
    kind="inference",
    recorded="none",
    null=True,
    record_shapes=False,
)
def null_streams_saturated(device: str, changed: bool) -> Step:
    dim = small(4096)
    towers = [[nn.Linear(dim, dim, device=device, dtype=low(device)) for _ in range(6)] for _ in range(2)]
    x = torch.randn(small(8192), dim, device=device, dtype=low(device))
    sides = [torch.cuda.Stream() for _ in towers] if changed and device != "cpu" else []

    def run(tower: list[nn.Linear]) -> Tensor:
        y = x
        for layer in tower:
            y = F.relu(layer(y))
        return y

    @torch.no_grad()
    def step() -> Tensor:
        if not sides:
            return run(towers[0]) + run(towers[1])
        main, outputs = torch.cuda.current_stream(), []
        for side, tower in zip(sides, towers, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side):
                outputs.append(run(tower))
            outputs[-1].record_stream(main)
        for side in sides:
            main.wait_stream(side)
        return outputs[0] + outputs[1]

    return step


@unseen(
    "none: SGD over four large weights, whose foreach form is as good; fused=True",
    names=r"fused|optimi[sz]er",
    kind="training",
    recorded="step",
    null=True,
)
def null_fused_sgd(device: str, changed: bool) -> Step:
    dim = small(4096)
    net = nn.Sequential(*(nn.Linear(dim, dim, bias=False) for _ in range(4))).to(device=device, dtype=low(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=changed)
    x = torch.randn(small(4096), dim, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: a chain of large matrix products, for which the compiler calls the same library; torch.compile",
    names=r"torch\.compile|fuse|fusion",
    kind="inference",
    recorded="step",
    null=True,
)
def null_compile_products(device: str, changed: bool) -> Step:
    dim = small(8192)
    maps = [torch.randn(dim, dim, device=device, dtype=low(device)) / math.sqrt(dim) for _ in range(6)]
    x = torch.randn(small(4096), dim, device=device, dtype=low(device))

    def run(y: Tensor) -> Tensor:
        for each in maps:
            y = y @ each
        return y

    called = torch.compile(run) if changed else run

    @torch.no_grad()
    def step() -> Tensor:
        return called(x)

    return step


@unseen(
    "none: a reaction-diffusion simulation of elementwise operations with one small matrix product; TF32",
    names=r"tf32|float32_matmul_precision",
    kind="inference",
    recorded="none",
    null=True,
    record_shapes=False,
)
def null_tf32_simulation(device: str, changed: bool) -> Step:
    side = small(2048)
    start_u, start_v = torch.rand(2, side, side, device=device)
    probe = torch.rand(16, side, device=device)

    def spread(x: Tensor) -> Tensor:
        return x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4 * x

    @torch.no_grad()
    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        u, v = start_u, start_v
        for _ in range(12):
            uvv = u * v * v
            u, v = u + 0.16 * spread(u) - uvv + 0.06 * (1 - u), v + 0.08 * spread(v) + uvv - 0.122 * v
        return probe @ v

    return step


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Batches that only need to be cut out of a table in memory."""

    def __init__(self, table: Tensor, batch: int):
        self.table, self.batch = table, batch

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        start = number % 32 * self.batch
        rows = self.table[start : start + self.batch]
        return rows, rows.roll(1, 1)


@unseen(
    "none: batches cut from a table in memory, for a GPU that is the bottleneck; num_workers=2",
    names=r"worker|data ?load",
    kind="training",
    recorded="step",
    null=True,
)
def null_loader_workers(device: str, changed: bool) -> Step:
    batch, dim = small(2048), small(2048)
    dataset = Rows(torch.randn(32 * batch, 64), batch)
    loader: DataLoader[Any] = DataLoader(dataset, None, num_workers=2 if changed else 0, persistent_workers=changed)
    batches = batches_for_ever(loader)
    middle = (m for _ in range(10) for m in (nn.Linear(dim, dim), nn.ReLU()))
    net = nn.Sequential(nn.Linear(64, dim), *middle, nn.Linear(dim, 64)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> Tensor:
        rows, target = (part.to(device) for part in next(batches))
        optimizer.zero_grad()
        loss = F.mse_loss(net(rows), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# On the CPU.


@unseen(
    "a long FIR filter as a direct conv1d; by FFT",
    names=r"\bfft|rfft|fftconvolve|conv1d|aten::\w*convolution",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def long_filter(device: str, changed: bool) -> Step:
    taps, length = 1025, 8000
    sound = torch.randn(2, 1, length)
    kernel = torch.randn(1, 1, taps) * torch.exp(-torch.arange(taps) / 200)
    net = nn.Sequential(*(m for i in range(4) for m in (nn.Conv1d(16 if i else 1, 16, 9, padding=4), nn.ReLU())))

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            size = length + taps - 1
            product = torch.fft.rfft(sound, size) * torch.fft.rfft(kernel.flip(-1), size)
            filtered = torch.fft.irfft(product, size)[..., taps - 1 : length]
        else:
            filtered = F.conv1d(sound, kernel)
        return net(filtered).mean(-1)

    return step


@unseen(
    "a mel filterbank is built anew for every clip; once",
    names=r"mel|filter.?bank|linspace|outside (the|of)|comput\w* once|precomput|buil[dt]\w* once|once|hoist",
    kind="inference",
    recorded="features",
    on=("cpu",),
    with_stack=True,
)
def filterbank_each_clip(device: str, changed: bool) -> Step:
    clips = torch.randn(6, 32_000)
    window = torch.hann_window(512)

    def mel_filterbank(bins: int = 257, mels: int = 40, rate: int = 16_000) -> Tensor:
        frequencies = torch.linspace(0, rate / 2, bins)
        points = 700 * (10 ** (torch.linspace(0, 2595 * math.log10(1 + rate / 1400), mels + 2) / 2595) - 1)
        rows = []
        for i in range(mels):
            rising = (frequencies - points[i]) / (points[i + 1] - points[i])
            falling = (points[i + 2] - frequencies) / (points[i + 2] - points[i + 1])
            rows.append(torch.minimum(rising, falling).clamp(min=0))
        return torch.stack(rows)

    kept = mel_filterbank()
    net = nn.Sequential(nn.Conv1d(40, 128, 5), nn.ReLU(), nn.Conv1d(128, 128, 5), nn.ReLU(), nn.Conv1d(128, 128, 5))

    @torch.no_grad()
    def step() -> Tensor:
        features = []
        for clip in clips:
            power = torch.stft(clip, 512, 160, window=window, return_complex=True).abs().square()
            features.append(((kept if changed else mel_filterbank()) @ power + 1e-6).log())
        return net(torch.stack(features)).mean(-1)

    return step


@unseen(
    "all embeddings of a bag are gathered into a large tensor and then averaged; F.embedding_bag",
    names=r"embedding_?bag|aten::embedding|EmbeddingBag",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def bags_gathered(device: str, changed: bool) -> Step:
    table = torch.randn(100_000, 64)
    ids = torch.randint(0, 100_000, (4096, 40))
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    @torch.no_grad()
    def step() -> Tensor:
        pooled = F.embedding_bag(ids, table, mode="mean") if changed else F.embedding(ids, table).mean(1)
        return net(pooled)

    return step


@unseen(
    "a forecaster runs in float64, for its data came from numpy so; float32",
    names=r"float64|\bdouble\b|float32|single precision",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def forecaster_in_double(device: str, changed: bool) -> Step:
    import numpy as np

    series = torch.from_numpy(np.cumsum(np.random.default_rng(0).standard_normal((64, 48, 16)), axis=1))
    series = series.float() if changed else series
    rnn, head = nn.GRU(16, 96, batch_first=True), nn.Linear(96, 16)
    if not changed:
        rnn, head = rnn.double(), head.double()
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.huber_loss(head(rnn(series[:, :-1])[0]), series[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a Kalman filter multiplies by the inverse of a covariance; torch.linalg.solve, or a Cholesky factor",
    names=r"linalg\.solve|cholesky|linalg_inv|\binv(erse|ert\w*)?\b|getri",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def covariance_inverted(device: str, changed: bool) -> Step:
    size, seen = 160, 400
    root = torch.randn(seen, seen) / math.sqrt(seen)
    covariance = root @ root.T + torch.eye(seen)
    moving = torch.randn(seen, size) / math.sqrt(size)
    start, measured = torch.randn(size), torch.randn(3, seen)

    @torch.no_grad()
    def step() -> Tensor:
        state, spread = start, torch.eye(size)
        for now in measured:
            shared = spread @ moving.T
            innovation = moving @ shared + covariance
            gain = torch.linalg.solve(innovation, shared.T).T if changed else shared @ torch.linalg.inv(innovation)
            state = state + gain @ (now - moving @ state)
            spread = spread - gain @ shared.T + 0.01 * torch.eye(size)
        return torch.cat([state, spread.diagonal()])

    return step


@unseen(
    "a metric reads a tensor element by element with item(); tolist() once, or the comparison over the whole tensor",
    names=r"tolist|\.item\(\)|aten::(item|select)|local_scalar_dense|numpy|vectori[sz]|element by element|elementwise",
    kind="inference",
    recorded="evaluate",
    on=("cpu",),
)
def items_one_by_one(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    x, labels = torch.randn(360, 256), torch.randint(0, 2, (360,))

    @torch.no_grad()
    def step() -> list[int]:
        scores = net(x).squeeze(1)
        count = [0, 0, 0, 0]
        if changed:
            for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
                count[2 * (score > 0) + label] += 1
        else:
            for i in range(len(scores)):
                count[2 * (scores[i].item() > 0) + int(labels[i].item())] += 1
        return count

    return step


@unseen(
    "a graph convolution multiplies by a dense adjacency matrix, 0.3% of which is not zero; a sparse CSR matrix",
    names=r"sparse|\bcsr\b|index_add|scatter|spmm",
    kind="training",
    recorded="step",
    on=("cpu",),
    profile_memory=True,
)
def dense_adjacency(device: str, changed: bool) -> Step:
    nodes = 2000
    dense = (torch.rand(nodes, nodes) < 0.003).float()
    dense = dense / dense.sum(1, keepdim=True).clamp(min=1)
    adjacency = dense.to_sparse_csr() if changed else dense
    layers = nn.ModuleList([nn.Linear(64, 768), nn.Linear(768, 128), nn.Linear(128, 8)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    x, labels = torch.randn(nodes, 64), torch.randint(0, 8, (nodes,))
    gathered = dense @ x

    def step() -> Tensor:
        optimizer.zero_grad()
        hidden = F.relu(layers[1](F.relu(layers[0](gathered))))
        loss = F.cross_entropy(adjacency @ layers[2](hidden), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "two request threads hold one lock over their whole request, so one core idles; no lock around the model",
    names=r"\block|seriali[sz]|one (thread )?at a time|\bGIL\b|threads? (wait|in parallel|take turns)|acquire|contention",
    kind="inference",
    recorded="serve",
    on=("cpu",),
    with_stack=True,
)
def requests_under_lock(device: str, changed: bool) -> Step:
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2))
    images = torch.randint(0, 256, (8, 3, 160, 160), dtype=torch.uint8)
    pool, lock = ThreadPoolExecutor(2), threading.Lock()

    @torch.no_grad()
    def answer(image: Tensor) -> Tensor:
        return net(image[None].float() / 255).mean((2, 3))

    def request(image: Tensor) -> Tensor:
        if changed:
            return answer(image)
        with lock:
            return answer(image)

    def step() -> Tensor:
        return torch.cat(list(pool.map(request, images)))

    return step


class Windows(Dataset[Tensor]):
    """Windows of a short series."""

    def __init__(self) -> None:
        self.series = torch.sin(torch.arange(4096) / 17)

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, number: int) -> Tensor:
        return self.series[number : number + 64]


@unseen(
    "the DataLoader starts its two worker processes anew for each short epoch; persistent_workers=True",
    names=r"persistent_?workers|worker|data ?loader",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def workers_each_epoch(device: str, changed: bool) -> Step:
    loader = DataLoader(Windows(), 128, num_workers=2, persistent_workers=changed)
    net = nn.Sequential(nn.Linear(63, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step() -> Tensor:
        total = torch.zeros(())
        for windows in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(net(windows[:, :-1]), windows[:, -1:])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total

    return step


@unseen(
    "norms, spreads and histograms of all weights and gradients are logged in every step; every hundredth",
    names=r"histc|histogram|aten::(std|norm|linalg_vector_norm)|log(s|ged|ging)\b|statistics|diagnos"
    r"|less often|every \w+ steps",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def weights_logged_each_step(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 16))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, labels = torch.randn(256, 256), torch.randint(0, 16, (256,))
    history: deque[dict[str, Any]] = deque(maxlen=100)
    steps = 0

    @torch.no_grad()
    def log_weights() -> None:
        logged: dict[str, Any] = {}
        for name, parameter in net.named_parameters():
            for what, values in (("weight", parameter), ("gradient", parameter.grad)):
                if values is not None:
                    logged[f"{name}/{what}"] = values.norm().item(), values.std().item(), torch.histc(values, 64).tolist()
        history.append(logged)

    def step() -> Tensor:
        nonlocal steps
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), labels)
        loss.backward()
        if not changed or steps % 100 == 99:
            log_weights()
        optimizer.step()
        steps += 1
        return loss.detach()

    return step


@unseen(
    "the replay memory is a list of small tensors, stacked anew for each sample; one tensor, indexed",
    names=r"torch\.stack|aten::(stack|cat)|preallocat|index_select|replay|one tensor|contiguous (buffer|tensor)",
    kind="training",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def replay_of_small_tensors(device: str, changed: bool) -> Step:
    count, batch = 5000, 768
    states, rewards, actions = torch.randn(count + 1, 24), torch.randn(count), torch.randint(0, 4, (count,))
    memory = [(states[i].clone(), actions[i].clone(), rewards[i].clone(), states[i + 1].clone()) for i in range(count)]
    policy, target = (
        nn.Sequential(nn.Linear(24, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)) for _ in range(2)
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)

    def step() -> Tensor:
        rows = torch.randint(0, count, (batch,))
        if changed:
            now, action, reward, following = states[rows], actions[rows], rewards[rows], states[rows + 1]
        else:
            sampled = [memory[i] for i in rows.tolist()]
            now, action, reward, following = (torch.stack(part) for part in zip(*sampled, strict=True))
        with torch.no_grad():
            wanted = reward + 0.99 * target(following).max(1).values
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(policy(now).gather(1, action[:, None]).squeeze(1), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "two losses go backwards one after the other through the same trunk (retain_graph); their sum, once",
    names=r"retain_graph|sum (of )?(the )?(two )?losses|(one|single) backward|backward (once|twice)|two backward"
    r"|add(ing)? the losses|backward\W+(pass\w* )?is (run|called) twice",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def backward_twice(device: str, changed: bool) -> Step:
    trunk = conv_net([16, 32, 64, 64])
    heads = nn.ModuleList([nn.Linear(64, 10), nn.Linear(64, 4)])
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=1e-3)
    images = torch.randn(8, 3, 112, 112)
    labels, boxes = torch.randint(0, 10, (8,)), torch.rand(8, 4)

    def step() -> Tensor:
        optimizer.zero_grad()
        features = trunk(images).mean((2, 3))
        loss_class = F.cross_entropy(heads[0](features), labels)
        loss_box = F.l1_loss(heads[1](features), boxes)
        if changed:
            (loss_class + loss_box).backward()
        else:
            loss_class.backward(retain_graph=True)
            loss_box.backward()
        optimizer.step()
        return torch.stack([loss_class.detach(), loss_box.detach()])

    return step


@unseen(
    "real signals are denoised by a complex FFT of full length; rfft and irfft",
    names=r"\bi?rfft|real.(valued|input)|half (of )?the spectrum|hermitian|one.?sided",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def complex_fft_of_real(device: str, changed: bool) -> Step:
    signals = torch.randn(64, 16_384)
    features = nn.Conv1d(1, 32, 65, stride=64)

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            spectrum = torch.fft.rfft(signals)
            kept = spectrum * (spectrum.abs() > 100)
            clean = torch.fft.irfft(kept, signals.shape[1])
        else:
            full = torch.fft.fft(signals)
            clean = torch.fft.ifft(full * (full.abs() > 100)).real.contiguous()
        return F.relu(features(clean[:, None])).mean(-1)

    return step


@unseen(
    "frames are converted to float and normalised whole, then cropped to a fifth; cropped first",
    names=r"\bcrop|slic(e|ing) (first|before|earlier)|fewer pixels|before (the )?(conver|normali)"
    r"|smaller (image|tensor|frame)",
    kind="inference",
    recorded="prepare",
    on=("cpu",),
    record_shapes=False,
    profile_memory=True,
)
def crop_last(device: str, changed: bool) -> Step:
    frames = torch.randint(0, 256, (4, 720, 1280, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    net = conv_net([32, 32, 64, 64, 64])

    @torch.no_grad()
    def step() -> Tensor:
        ready = []
        for frame in frames:
            part = frame[120:568, 416:864] if changed else frame
            x = (part.permute(2, 0, 1).float() / 255 - mean) / std
            x = x if changed else x[:, 120:568, 416:864]
            ready.append(F.interpolate(x[None], size=(224, 224), mode="bilinear"))
        return net(torch.cat(ready)).mean((2, 3))

    return step


# On the CPU, changes that bring nothing.


@unseen(
    "none: two large matrix products that use all cores each; a pool of two threads",
    names=r"thread|pool|parallel",
    kind="inference",
    recorded="none",
    on=("cpu",),
    null=True,
)
def null_pool_of_threads(device: str, changed: bool) -> Step:
    left, right = torch.randn(2, 1000, 1000), torch.randn(2, 1000, 1000)
    pool = ThreadPoolExecutor(2)

    def product(number: int) -> Tensor:
        with torch.no_grad():
            return (left[number] @ right[number]).relu() @ right[number]

    def step() -> Tensor:
        return torch.stack(list(pool.map(product, range(2))) if changed else [product(0), product(1)])

    return step


@unseen(
    "none: a convolution net under no_grad; inference_mode",
    names=r"inference_mode|no_grad",
    kind="inference",
    recorded="step",
    on=("cpu",),
    null=True,
    record_shapes=False,
)
def null_inference_mode(device: str, changed: bool) -> Step:
    net = conv_net([16, 32, 32, 64], norm=True).eval()
    images = torch.randn(16, 3, 160, 160)

    def step() -> Tensor:
        with torch.inference_mode() if changed else torch.no_grad():
            return net(images).mean((2, 3))

    return step
