"""A seventh set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

The faults are those that tuning guides, reviews and forum threads name most often, each in a program of a domain of its own.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
import itertools
import logging
import math
import os
import queue
import random
import tempfile
import threading
from typing import Any

from advice.unseen_pairs import Step, Unseen, blocks, conv_net, low, pairs_into, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def autocast(device: str) -> torch.autocast:
    """Return bfloat16 autocasting; on a CPU, where the programs are only tried, none."""
    return torch.autocast(device, torch.bfloat16, enabled=device != "cpu")


# Inference.


@unseen(
    "an autoregressive forecaster runs the whole history through the network for every new patch; a key-value cache",
    names=r"\bkv.?cach|key.?(and.?)?value|past_key|cach\w* (the |of )?(keys|k/v|kv|attention)|use_cache"
    r"|(whole|entire|full|growing) (history|prefix|sequence|series|context)|prefill|recomput|increment\w+ decod",
    kind="inference",
    recorded="forecast",
)
def forecast_whole_history(device: str, changed: bool) -> Step:
    layers, batch, past, count, dtype = 6, small(8), small(512), 12, low(device)
    net = blocks(layers, 1024, 16, device, dtype).eval()
    embed, head = nn.Linear(32, 1024).to(device, dtype), nn.Linear(1024, 32).to(device, dtype)
    positions = 0.1 * torch.randn(past + count, 1024, device=device, dtype=dtype)
    history = torch.randn(batch, past, 32, device=device, dtype=dtype)
    keys, values = torch.zeros(2, layers, batch, 16, past + count, 64, device=device, dtype=dtype)

    def following(patches: Tensor, start: int) -> Tensor:
        end = start + patches.shape[1]
        x = embed(patches) + positions[start:end]
        for i, block in enumerate(net):
            if changed:
                q, k, v = block.heads_of(x)
                keys[i, :, :, start:end], values[i, :, :, start:end] = k, v
                k, v = keys[i, :, :, :end], values[i, :, :, :end]
                x = block.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=start == 0))
            else:
                x = block(x, causal=True)
        return head(x[:, -1:])

    @torch.no_grad()
    def step() -> Tensor:
        found = [following(history, 0)]
        for number in range(1, count):
            if changed:
                found.append(following(found[-1], past + number - 1))
            else:
                found.append(following(torch.cat([history, *found], dim=1), 0))
        return torch.cat(found, dim=1).float()

    return step


@unseen(
    "a keyword-spotting server answers each waiting request by a forward pass of its own; waiting requests as one batch",
    names=r"batch(ed|ing)\b|(one|single|larger|bigger|same) batch|(dynamic|micro).?batch|max_batch|together|coalesc|one forward"
    r"|(batch|stack|group)\w* (up )?(the |several |multiple |many |all |waiting |pending |queued )*(requests|clips|them|waves)",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def requests_one_by_one(device: str, changed: bool) -> Step:
    most = 32 if changed else 1
    convs = [nn.Conv1d(1, 64, 400, 160), nn.ReLU()]
    for _ in range(6):
        convs += [nn.Conv1d(64, 64, 5, padding=2), nn.BatchNorm1d(64), nn.ReLU()]
    net, head = nn.Sequential(*convs).to(device).eval(), nn.Linear(64, 35).to(device)
    clips = [torch.randn(16_000) for _ in range(small(32))]
    Request = tuple[Tensor, "Future[Tensor]"]

    @torch.no_grad()
    def answer(waves: Tensor) -> Tensor:
        x = waves.to(device)
        x = x / x.abs().amax(dim=1, keepdim=True)
        return head(net(x[:, None]).mean(-1)).softmax(-1).cpu()

    def serve(waiting: "queue.Queue[Request | None]") -> None:
        ended = False
        while not ended:
            taken: list[Request] = []
            while not ended and len(taken) < most:
                request = waiting.get()
                if request is None:
                    ended = True
                else:
                    taken.append(request)
            if taken:
                for (_, future), found in zip(taken, answer(torch.stack([wave for wave, _ in taken])), strict=True):
                    future.set_result(found)

    def step() -> Tensor:
        waiting: queue.Queue[Request | None] = queue.Queue()
        futures: list[Future[Tensor]] = [Future() for _ in clips]
        for request in zip(clips, futures, strict=True):
            waiting.put(request)
        waiting.put(None)
        server = threading.Thread(target=serve, args=(waiting,), daemon=True)
        server.start()
        found = torch.stack([future.result(timeout=60) for future in futures])
        server.join()
        return found

    return step


@unseen(
    "a captioner's float32 weights are cast to bfloat16 by autocast again for every token; the model converted once",
    names=r"autocast|\bcast(s|ing)?\b|aten::(_to_copy|to)\b|(model|net|weights?)\.(to|bfloat16|half)\(|bfloat16|\bbf16\b"
    r"|float32 (weights|parameters)|convert\w* (the )?(model|weights|parameters)",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def caption_autocast(device: str, changed: bool) -> Step:
    layers, heads, dim, batch, seen, count = 4, 32, small(4096), 4, small(256), 8
    with torch.device(device):
        net = blocks(layers, dim, heads, device).eval()
    if changed:
        net = net.to(low(device))
    pictures = torch.randn(2, layers, batch, heads, seen, dim // heads, device=device, dtype=low(device))
    room = torch.zeros(2, layers, batch, heads, seen + count, dim // heads, device=device, dtype=low(device))
    first = torch.randn(batch, 1, dim, device=device)

    @torch.no_grad()
    def token(x: Tensor, end: int) -> Tensor:
        for i, block in enumerate(net):
            q, k, v = block.heads_of(x)
            room[0, i, :, :, end - 1 : end], room[1, i, :, :, end - 1 : end] = k, v
            x = block.rest(x, F.scaled_dot_product_attention(q, room[0, i, :, :, :end], room[1, i, :, :, :end]))
        return F.layer_norm(x, (dim,))

    def step() -> Tensor:
        room[..., :seen, :] = pictures
        x = first.to(low(device)) if changed else first
        for number in range(count):
            if changed:
                x = token(x, seen + number + 1)
            else:
                with autocast(device):
                    x = token(x, seen + number + 1)
        return x.float()

    return step


class Conditioned(nn.Module):
    """A convolution and a cross-attention to the words of a text."""

    def __init__(self, width: int, words: int):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(16, width), nn.Conv2d(width, width, 3, padding=1)
        self.query, self.pair, self.out = nn.Linear(width, width), nn.Linear(words, 2 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        x = x + self.conv(F.silu(self.norm(x)))
        places = x.flatten(2).transpose(1, 2)
        q = self.query(places).unflatten(-1, (4, -1)).transpose(1, 2)
        k, v = self.pair(text).unflatten(-1, (2, 4, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(y).transpose(1, 2).reshape(x.shape)


@unseen(
    "the text encoder runs anew in each denoising step, on the same prompt; once, before the loop",
    names=r"text.?encoder|prompt|encod\w+ (the text )?(once|before|outside)|loop.?invariant|hoist"
    r"|outside (of )?the (loop|sampl|denois)|same (text|embedding|encoding)",
    kind="inference",
    recorded="sample",
    with_stack=True,
)
def prompt_each_step(device: str, changed: bool) -> Step:
    dtype = low(device)
    encoder = blocks(6, 768, 12, device, dtype).eval()
    parts = nn.ModuleList(Conditioned(256, 768) for _ in range(5)).to(device, dtype).eval()
    first, last = nn.Conv2d(4, 256, 3, padding=1).to(device, dtype), nn.Conv2d(256, 4, 3, padding=1).to(device, dtype)
    times = torch.randn(8, 256, 1, 1, device=device, dtype=dtype)
    prompt = torch.randn(4, 77, 768, device=device, dtype=dtype)
    noise = torch.randn(4, 4, small(64), small(64), device=device, dtype=dtype)

    def encode() -> Tensor:
        x = prompt
        for block in encoder:
            x = block(x)
        return F.layer_norm(x, (768,))

    @torch.no_grad()
    def step() -> Tensor:
        x, text = noise, None
        for time in times:
            if text is None or not changed:
                text = encode()
            h = first(x) + time
            for part in parts:
                h = part(h, text)
            x = x - 0.1 * last(h)
        return x.float()

    return step


@unseen(
    "the features of a scan's chunks are collected by torch.cat onto all earlier ones, so all are copied for every chunk; "
    "a list, concatenated once, or a buffer",
    names=r"torch\.cat|aten::cat\b|CatArray|concatenat|preallocat|quadratic|grow",
    kind="inference",
    recorded="evaluate",
    profile_memory=True,
)
def scan_grown_by_cat(device: str, changed: bool) -> Step:
    scan = torch.randn(24, small(80_000), 3, device=device)
    net = nn.Sequential(nn.Linear(3, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)).to(device).eval()
    kinds = F.normalize(torch.randn(20, 128, device=device), dim=1)

    @torch.no_grad()
    def step() -> Tensor:
        features, parts = torch.empty(0, 128, device=device), []
        for chunk in scan:
            if changed:
                parts.append(net(chunk))
            else:
                features = torch.cat([features, net(chunk)])
        if changed:
            features = torch.cat(parts)
        scores = (features - features.mean(0)) @ kinds.T
        return scores.softmax(1).mean(0)

    return step


@unseen(
    "each chunk's features are fetched by a blocking .cpu() into pageable memory before the next chunk is launched; "
    "non-blocking copies into a pinned buffer on a side stream, one synchronisation at the end",
    names=r"pin(ned|_memory|ning)?\b|pageable|page-?locked|non_?blocking|DtoH|D2H|device.?(to|->).?host|\.cpu\(\)|side stream"
    r"|overlap|cuda\.Stream|(copy|second|separate|another|own) stream",
    kind="inference",
    recorded="none",
)
def video_features_fetched(device: str, changed: bool) -> Step:
    chunks, count = 6, small(16)
    net = conv_net([64] * 4 + [128] * 4).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    frames = torch.randint(0, 256, (chunks, count, 3, 512, 512), device=device, dtype=torch.uint8)
    if device == "cpu":
        frames = frames[..., :64, :64]
    side = torch.cuda.Stream() if changed and device != "cpu" else None
    kept = torch.empty(chunks, count, 128, *(length // 16 for length in frames.shape[-2:]), pin_memory=side is not None)

    def features_of(chunk: Tensor) -> Tensor:
        x = (chunk.to(low(device)) / 255).contiguous(memory_format=torch.channels_last)
        return F.avg_pool2d(net(x), 4).float().contiguous()

    @torch.no_grad()
    def step() -> list[Tensor]:
        if side is None:
            return [features_of(chunk).cpu() for chunk in frames]
        for number, chunk in enumerate(frames):
            features = features_of(chunk)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                kept[number].copy_(features, non_blocking=True)
            features.record_stream(side)
        side.synchronize()
        return list(kept)

    return step


@unseen(
    "distances of all pairs by a broadcast difference of three dimensions; torch.cdist, or a matrix product and norms",
    names=r"cdist|broadcast|pairwise|materiali[sz]|(3|three|rank).?-?(d\b|dim|3)|difference tensor|squared norm"
    r"|(dot|inner) product|distances? (\S+ ){0,8}(matmul|matrix|gemm|mm\b)|(matmul|matrix|gemm|mm\b) (\S+ ){0,8}(distance|norm)",
    kind="inference",
    recorded="step",
    profile_memory=True,
)
def spectra_neighbours(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 32)).to(device)
    spectra = torch.rand(small(2048), 1024, device=device)
    known = torch.randn(small(16_384), 32, device=device)
    properties = torch.randn(small(16_384), 4, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = net(spectra)
        x = (x - x.mean(0)) / x.std(0)
        apart = torch.cdist(x, known) if changed else (x[:, None, :] - known[None, :, :]).square().sum(-1).sqrt()
        nearest, rows = apart.topk(min(10, len(known)), dim=1, largest=False)
        return ((-nearest).softmax(1)[:, :, None] * properties[rows]).sum(1)

    return step


# Training.


@unseen(
    "every batch of texts is padded to the model's limit of 512 tokens, where the longest has 120; padded to the longest",
    names=r"\bpad(s|ded|ding)?\b|longest|max(imum)?.?length|dynamic.?pad|group_by_length|bucket|varlen|nested|jagged|unpad",
    kind="training",
    recorded="step",
)
def texts_padded(device: str, changed: bool) -> Step:
    limit, longest, dtype = small(512), small(120), low(device)
    texts = [torch.randint(1, 8000, (length,)) for length in torch.randint(small(24), longest + 1, (small(64),)).tolist()]
    texts[0] = torch.randint(1, 8000, (longest,))
    labels = torch.randint(0, 5, (len(texts),))
    table, net = nn.Embedding(8000, 512).to(device, dtype), blocks(4, 512, 8, device, dtype)
    places = nn.Parameter(0.1 * torch.randn(limit, 512, device=device, dtype=dtype))
    head = nn.Linear(512, 5).to(device, dtype)
    optimizer = torch.optim.AdamW([*table.parameters(), *net.parameters(), places, *head.parameters()], lr=1e-5, fused=True)

    def collate() -> tuple[Tensor, Tensor]:
        ids = pad_sequence(texts, batch_first=True)
        return (ids if changed else F.pad(ids, (0, limit - ids.shape[1]))), labels

    def step() -> Tensor:
        ids, wanted = (part.to(device) for part in collate())
        real = ids != 0
        optimizer.zero_grad()
        x = table(ids) + places[: ids.shape[1]]
        for block in net:
            x = block(x, mask=real[:, None, None, :])
        mean = (x * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
        loss = F.cross_entropy(head(mean).float(), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def double_conv(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (before, after):
        layers += [nn.Conv2d(width, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three levels down, and up again."""

    def __init__(self, classes: int):
        super().__init__()
        self.down = nn.ModuleList([double_conv(3, 64), double_conv(64, 128), double_conv(128, 256)])
        self.up = nn.ModuleList([double_conv(256 + 128, 128), double_conv(128 + 64, 64)])
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        for number, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if number else x)
            found.append(x)
        for part, skipped in zip(self.up, found[-2::-1], strict=True):
            x = part(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skipped], dim=1))
        return self.head(x)


@unseen(
    "a U-Net's convolutions in bfloat16 keep the layout NCHW, which cuDNN transposes to and fro; channels_last",
    names=r"channels.?last|nhwc|memory.?format|nchw\w*ToNhwc|layout",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def segment_nchw(device: str, changed: bool) -> Step:
    side = small(256) // 4 * 4 or 4
    net, images = UNet(12).to(device), torch.randn(small(16), 3, side, side, device=device)
    if changed:
        net, images = net.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
    masks = torch.randint(0, 12, (len(images), side, side), device=device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(device):
            logits = net(images)
        loss = F.cross_entropy(logits.float(), masks)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a weather model's float32 matrix products run at full precision, without tensor cores; TF32 (or bfloat16)",
    names=r"tf32|float32_matmul_precision|autocast|mixed.?precision|bfloat16|\bbf16\b|\bamp\b|tensor.?cores?",
    kind="training",
    recorded="none",
)
def weather_full_precision(device: str, changed: bool) -> Step:
    net = blocks(4, 1024, 16, device)
    embed, head = nn.Linear(72, 1024).to(device), nn.Linear(1024, 72).to(device)
    optimizer = torch.optim.AdamW([*embed.parameters(), *net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    now = torch.randn(4, small(1024), 72, device=device)
    later = now + 0.1 * torch.randn_like(now)
    weights = torch.linspace(0, math.pi, small(1024), device=device).sin()[:, None]

    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        optimizer.zero_grad()
        x = embed(now)
        for block in net:
            x = block(x)
        loss = (weights * (now + head(x) - later).square()).mean()
        loss.backward()
        optimizer.step()
        torch.set_float32_matmul_precision("highest")
        return loss.detach()

    return step


@unseen(
    "the gradients are clipped by hand, with .item() for the norm of each parameter; clip_grad_norm_ (foreach, no item)",
    names=r"clip_grad|gradient.?(norm|clip)|clipping|\.item\(\)|aten::(item|_local_scalar_dense|norm|linalg_vector_norm)"
    r"|_foreach_norm|local_scalar_dense|get_total_norm",
    kind="training",
    recorded="step",
    with_stack=True,
)
def speech_clipped_by_hand(device: str, changed: bool) -> Step:
    net, head = blocks(8, 512, 8, device), nn.Linear(512, 64).to(device)
    parameters = [*net.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    sounds = torch.randn(small(16), 1024 if device != "cpu" else 32, 512, device=device)
    labels = torch.randint(0, 64, sounds.shape[:2], device=device)

    def clip(limit: float) -> None:
        total = 0.0
        for parameter in parameters:
            if parameter.grad is not None:
                total += parameter.grad.norm(2).item() ** 2
        factor = limit / (total**0.5 + 1e-6)
        if factor < 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(device):
            x = sounds
            for block in net:
                x = block(x)
            logits = head(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        if changed:
            nn.utils.clip_grad_norm_(parameters, 0.5)
        else:
            clip(0.5)
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "images are converted to float and normalised on the host and uploaded as float32; uploaded as uint8, converted on the GPU",
    names=r"uint8|bytes? (are|is|per)|four times|4x|(convert|normali[sz])\w* (\w+ ){0,6}on the (gpu|device|card)"
    r"|after the (upload|copy|transfer)|(normali[sz]|conver|preprocess|arithmetic|255|float)\S* (\S+ ){0,8}(on|by) the (host|cpu)"
    r"|aten::(div|sub)_?\b|smaller (copy|upload|transfer)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def photos_uploaded_as_float(device: str, changed: bool) -> Step:
    side = 224 if device != "cpu" else 32
    net = conv_net([64] * 4 + [128] * 4 + [256] * 4).to(device, low(device)).to(memory_format=torch.channels_last)
    head = nn.Linear(256, 100).to(device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-2, momentum=0.9, fused=True)
    photos = torch.randint(0, 256, (3, small(96), 3, side, side), dtype=torch.uint8)
    labels = torch.randint(0, 100, (small(96),), device=device)
    photos = photos if device == "cpu" else photos.pin_memory()
    turn = itertools.cycle(photos)
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)
    mean, std = (mean.to(device), std.to(device)) if changed else (mean, std)

    def step() -> Tensor:
        batch = next(turn)
        if changed:
            batch = batch.to(device, non_blocking=True)
        images = ((batch.float() / 255 - mean) / std).to(device, non_blocking=True)
        optimizer.zero_grad()
        x = net(images.to(low(device), memory_format=torch.channels_last))
        loss = F.cross_entropy(head(x.mean((2, 3)).float()), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "batches of 134 MB are uploaded from pageable memory; pinned memory and non_blocking",
    names=r"pin(ned|_memory|ning)?\b|pageable|page-?locked|non_?blocking|HtoD|H2D|host.?(to|->).?(device|gpu)",
    kind="training",
    recorded="none",
)
def genes_from_pageable(device: str, changed: bool) -> Step:
    genes = small(8192)
    net = nn.Sequential(
        *(nn.Linear(genes, 2048), nn.ReLU(), nn.Linear(2048, 256), nn.Tanh()),
        *(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, genes)),
    ).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    batches = [10 * torch.rand(small(4096), genes) for _ in range(3)]
    if changed and device != "cpu":
        batches = [batch.pin_memory() for batch in batches]
    turn = itertools.cycle(batches)

    def step() -> Tensor:
        counts = next(turn).to(device, non_blocking=changed)
        wanted = torch.log1p(counts)
        optimizer.zero_grad()
        with autocast(device):
            found = net(wanted)
        loss = F.mse_loss(found.float(), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "attention written out, with scores and probabilities of all pairs in memory; scaled_dot_product_attention (flash)",
    names=r"scaled_dot_product|sdpa|flash|fused attention|memory.?efficient|attention\w* (\w+ ){0,4}(written out|by hand|manual)"
    r"|xformers|aten::_?softmax|materiali[sz]",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def proteins_attention_by_hand(device: str, changed: bool) -> Step:
    dtype, heads = low(device), 12
    net = blocks(4, 768, heads, device, dtype)
    table, head = nn.Embedding(33, 768).to(device, dtype), nn.Linear(768, 33).to(device, dtype)
    optimizer = torch.optim.AdamW([*table.parameters(), *net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    chains = torch.randint(4, 24, (small(8), small(1024)), device=device)
    hidden = torch.rand(chains.shape, device=device) < 0.15
    seen = chains.masked_fill(hidden, 32)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if changed:
            return F.scaled_dot_product_attention(q, k, v)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores.float().softmax(-1).to(v.dtype) @ v

    def step() -> Tensor:
        optimizer.zero_grad()
        x = table(seen)
        for block in net:
            x = block.rest(x, attend(*block.heads_of(x)))
        each = F.cross_entropy(head(x).float().flatten(0, 1), chains.flatten(), reduction="none")
        loss = (each * hidden.flatten()).sum() / hidden.sum().clamp(min=1)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def sinusoids(length: int, dim: int, device: str) -> Tensor:
    """Return the positions' sines and cosines."""
    angles = torch.arange(length, device=device)[:, None] * torch.exp(torch.arange(0, dim, 2, device=device) * (-9.21 / dim))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


@unseen(
    "each layer of a speech encoder makes its table of positions on the CPU and copies it to the GPU; made there, or kept",
    names=r"sinus|position|\btable|device=|aten::(sin|cos|exp|arange)\b|register_buffer"
    r"|(built|made|mak|creat|comput|buil)\w* (\S+ ){0,8}(on|by) the (cpu|host)"
    r"|HtoD|H2D|host.?(to|->).?device|precomput|hoist|comput\w* once",
    kind="training",
    recorded="none",
    with_stack=True,
)
def transcriber_positions_on_cpu(device: str, changed: bool) -> Step:
    length, dtype = small(1504), low(device)
    front = nn.Linear(80, 512).to(device, dtype)
    net, head = blocks(6, 512, 8, device, dtype), nn.Linear(512, 1000).to(device, dtype)
    mixes = nn.ParameterList(nn.Parameter(torch.full((512,), 0.1, device=device, dtype=dtype)) for _ in net)
    parameters = [*front.parameters(), *net.parameters(), *head.parameters(), *mixes.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    mels = torch.randn(8, length, 80, device=device, dtype=dtype)
    labels = torch.randint(0, 1000, (8, length), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = front(mels)
        for block, mix in zip(net, mixes, strict=True):
            places = sinusoids(length, 512, device if changed else "cpu").to(device, dtype)
            x = block(x + mix * places)
        loss = F.cross_entropy(head(x).float().flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "gradients are accumulated over 16 micro-batches of two, though memory is ample; two of sixteen",
    names=r"micro.?batch|(gradient|grad).?accum|accumulat\w+ (steps|gradients|over)"
    r"|(larger|bigger|increase\w*|raise|small\w*|tiny) (the )?(per.?\w+ )?batch|batch.?size",
    kind="training",
    recorded="step",
)
def diffusion_micro_batches(device: str, changed: bool) -> Step:
    count, dtype = 2 if changed else 16, low(device)
    net = blocks(6, 768, 12, device, dtype)
    first, last = nn.Linear(16, 768).to(device, dtype), nn.Linear(768, 16).to(device, dtype)
    optimizer = torch.optim.AdamW([*first.parameters(), *net.parameters(), *last.parameters()], lr=1e-5, fused=True)
    latents, noise = torch.randn(2, 32, small(256), 16, device=device, dtype=dtype)
    times = torch.rand(32, 1, 1, device=device, dtype=dtype)
    waves = torch.randn(768, device=device, dtype=dtype)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for clean, dirt, time in zip(latents.chunk(count), noise.chunk(count), times.chunk(count), strict=True):
            x = first((1 - time) * clean + time * dirt) + (time * waves).sin()
            for block in net:
                x = block(x)
            loss = F.mse_loss(last(x).float(), (dirt - clean).float()) / count
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


@unseen(
    "the replay batch is a list of numpy arrays, which torch.tensor reads element by element; np.stack or np.asarray first",
    names=r"np\.(stack|array|asarray|concatenate)|numpy|from_numpy|list of (np|nd)|torch\.tensor\(|ndarray|as_tensor"
    r"|element by element|element-wise conversion",
    kind="training",
    recorded="none",
    with_stack=True,
    record_shapes=False,
)
def replay_list_of_arrays(device: str, changed: bool) -> Step:
    values, chance = np.random.default_rng(0), random.Random(0)
    memory = [
        (values.standard_normal(40, dtype=np.float32), int(values.integers(6)), float(values.standard_normal()),
         values.standard_normal(40, dtype=np.float32))
        for _ in range(20_000)
    ]  # fmt: skip
    policy, target = (
        nn.Sequential(nn.Linear(40, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 6)).to(device)
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4, fused=True)

    def tensor(arrays: tuple[Any, ...]) -> Tensor:
        return torch.tensor(np.stack(arrays) if changed else arrays).to(device)

    def step() -> Tensor:
        states, actions, rewards, following = zip(*chance.sample(memory, 768), strict=True)
        now, after = tensor(states), tensor(following)
        action, reward = torch.tensor(actions, device=device), torch.tensor(rewards, device=device)
        with torch.no_grad():
            best = policy(after).argmax(1, keepdim=True)
            wanted = reward + 0.99 * target(after).gather(1, best).squeeze(1)
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(policy(now).gather(1, action[:, None]).squeeze(1), wanted)
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_([p.detach() for p in target.parameters()], [p.detach() for p in policy.parameters()], 0.005)
        return loss.detach()

    return step


@unseen(
    "a table in memory goes through a DataLoader, which takes and collates single rows; whole batches by index",
    names=r"data.?loader|TensorDataset|collat|row.by.row|sample.by.sample|(single|individual|each|per) (row|sample)|BatchSampler"
    r"|__getitems__|index_select|(whole|full|entire) batch|batch_size=None|num_workers",
    kind="training",
    recorded="epoch",
)
def credit_table_by_rows(device: str, changed: bool) -> Step:
    batch, rows = small(2048), 3 * small(2048)
    features, labels = torch.randn(rows, 64), torch.rand(rows).round()
    order = torch.randperm(rows)
    loader = DataLoader(TensorDataset(features, labels), batch, sampler=order.tolist())
    net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def batches() -> Iterator[Any]:
        if changed:
            for chosen in order.split(batch):
                yield features[chosen], labels[chosen]
        else:
            yield from loader

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for x, y in batches():
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(net(x.to(device)).squeeze(1), y.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total

    return step


class MeshLayer(nn.Module):
    """Messages along the edges of a mesh, and their sums at its nodes."""

    def __init__(self, dim: int):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.node = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, x: Tensor, source: Tensor, sink: Tensor) -> Tensor:
        messages = self.edge(torch.cat([x.index_select(0, source), x.index_select(0, sink)], dim=1))
        summed = torch.zeros_like(x).index_add(0, sink, messages)
        return x + self.node(torch.cat([x, summed], dim=1))


@unseen(
    "deterministic algorithms were left on, so each index_add sorts its indices and memory is filled first; off",
    names=r"determinis|use_deterministic_algorithms|fill_uninitialized|index_put|reproducib",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def mesh_deterministic(device: str, changed: bool) -> Step:
    nodes, edges, dim = small(40_000), small(300_000), 64
    net = nn.ModuleList(MeshLayer(dim) for _ in range(3)).to(device)
    first, last = nn.Linear(7, dim).to(device), nn.Linear(dim, 3).to(device)
    optimizer = torch.optim.Adam([*first.parameters(), *net.parameters(), *last.parameters()], lr=1e-4, fused=True)
    state, moved = torch.randn(nodes, 7, device=device), torch.randn(nodes, 3, device=device)
    source, sink = torch.randint(0, nodes, (2, edges), device=device)

    def step() -> Tensor:
        torch.use_deterministic_algorithms(not changed, warn_only=True)
        optimizer.zero_grad()
        x = first(state)
        for layer in net:
            x = layer(x, source, sink)
        loss = F.mse_loss(last(x), moved)
        loss.backward()
        optimizer.step()
        torch.use_deterministic_algorithms(False)
        return loss.detach()

    return step


@unseen(
    "training waits while its checkpoint is fetched and written to the disk; a copy on the GPU, written by a thread meanwhile",
    names=r"checkpoint|sav(e|es|ed|ing) (the |its |all |a )*(weights|parameters|state|model|copies)|torch\.save|async"
    r"|background|(another|separate|worker|side) thread|np\.save|\bdisk|writ(e|es|ing|ten) (the )?(file|weights|parameters)"
    r"|less often|DtoH|D2H|\.cpu\(\)",
    kind="training",
    recorded="none",
    with_stack=True,
)
def checkpoint_in_the_way(device: str, changed: bool) -> Step:
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    net = blocks(4, 512, 8, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    weights = [parameter.detach() for parameter in net.parameters()]
    copies = [torch.empty_like(weight) for weight in weights]
    x, target = torch.randn(2, small(24), 512, 512, device=device)
    pool, side = ThreadPoolExecutor(1), None if device == "cpu" else torch.cuda.Stream()
    writing: list[Future[None]] = []

    def write(tensors: list[Tensor]) -> None:
        for number, tensor in enumerate(tensors):
            np.save(os.path.join(folder.name, f"{number}.npy"), tensor.cpu().numpy())

    def write_aside() -> None:
        with torch.cuda.stream(side):
            write(copies)

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for _ in range(6):
            optimizer.zero_grad()
            y = x
            with autocast(device):
                for block in net:
                    y = block(y)
            loss = F.mse_loss(y.float(), target)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if changed:
            if writing:
                writing.pop().result()
            torch._foreach_copy_(copies, weights)
            if side is not None:
                side.wait_stream(torch.cuda.current_stream())
            writing.append(pool.submit(write_aside))
        else:
            write(weights)
        return total

    return step


class Recordings(Dataset[tuple[Tensor, int]]):
    """Windows of a recording in a file, which is read whole for each of them, or mapped once."""

    def __init__(self, folder: str, mapped: bool, count: int):
        self.path, self.count = os.path.join(folder, "recording.npy"), count
        np.save(self.path, np.random.default_rng(0).standard_normal((8192, 256), dtype=np.float32))
        self.open = np.load(self.path, mmap_mode="r") if mapped else None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        rows = np.load(self.path) if self.open is None else self.open
        start = number * 29 % 8000
        window = np.array(rows[start : start + 64])
        return torch.from_numpy((window - window.mean()) / window.std()), number % 8


@unseen(
    "the dataset reads the whole file anew for every window; opened once, memory-mapped",
    names=r"np\.load|mmap|memory.?map|memmap|(whole|entire|same) (file|array|recording)|(open|load|read)\w* (\w+ ){0,3}once"
    r"|__getitem__|file (read|i/?o)|per.(item|sample)",
    kind="training",
    recorded="epoch",
)
def recordings_read_whole(device: str, changed: bool) -> Step:
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    data = Recordings(folder.name, changed, 6 * small(32))
    loader = DataLoader(data, small(32), num_workers=4, persistent_workers=True, pin_memory=device != "cpu")
    convs: list[nn.Module] = [nn.Conv1d(256, 512, 3, padding=1), nn.ReLU()]
    for _ in range(5):
        convs += [nn.Conv1d(512, 512, 3, padding=1), nn.ReLU()]
    net, head = nn.Sequential(*convs).to(device), nn.Linear(512, 8).to(device)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-4, fused=True)

    def step() -> Tensor:
        if not os.path.isdir(folder.name):
            raise FileNotFoundError(folder.name)
        total = torch.zeros((), device=device)
        for windows, labels in loader:
            optimizer.zero_grad()
            x = windows.to(device, non_blocking=True).transpose(1, 2)
            loss = F.cross_entropy(head(net(x).mean(-1)), labels.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total

    return step


@unseen(
    "a debug line formats GPU tensors in every step, though the log drops it; formatted only when the level is on",
    names=r"logg(er|ing)|\blog\.|debug|f-?string|repr|__format__|_tensor_str|print|isEnabledFor"
    r"|format(s|ted|ting)? (\S+ ){0,4}(tensor|string|message|line)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def autoencoder_debug_lines(device: str, changed: bool) -> Step:
    log = logging.getLogger("autoencoder")
    log.setLevel(logging.INFO)
    dim, dtype = small(4096), low(device)
    encoder = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 512)).to(device, dtype)
    decoder = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim)).to(device, dtype)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=1e-5, fused=True)
    x = torch.rand(small(16_384), dim, device=device, dtype=dtype)
    chance = torch.randn(small(16_384), 256, device=device, dtype=dtype)

    def step() -> Tensor:
        optimizer.zero_grad()
        mean, spread = encoder(x).chunk(2, dim=1)
        latent = mean + chance * (0.5 * spread).exp()
        found = decoder(latent)
        error = F.mse_loss(found.float(), x.float())
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).float().mean()
        loss = error + 0.01 * divergence
        if not changed or log.isEnabledFor(logging.DEBUG):
            log.debug(f"latents {latent}, error {error}, divergence {divergence}")
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Changes that bring nothing.


@unseen(
    "none: token ids of 128 kB, uploaded for a step of large kernels; pinned memory and non_blocking",
    names=r"pin(ned|_memory|ning)?\b|pageable|page-?locked|non_?blocking",
    kind="training",
    recorded="none",
    null=True,
)
def null_pinned_ids(device: str, changed: bool) -> Step:
    dtype = low(device)
    net, table = blocks(6, 1024, 16, device, dtype), nn.Embedding(8192, 1024).to(device, dtype)
    optimizer = torch.optim.AdamW([*table.parameters(), *net.parameters()], lr=1e-5, fused=True)
    batches = torch.randint(0, 8192, (4, 16, small(1024)))
    if changed and device != "cpu":
        batches = batches.pin_memory()
    turn = itertools.cycle(batches)

    def step() -> Tensor:
        ids = next(turn).to(device, non_blocking=changed)
        optimizer.zero_grad()
        x = table(ids)
        for block in net:
            x = block(x, causal=True)
        logits = F.layer_norm(x[:, :-1], (1024,)) @ table.weight.T
        loss = F.cross_entropy(logits.flatten(0, 1) / 32, ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: a vision transformer, whose one convolution is the patch embedding; channels_last",
    names=r"channels.?last|nhwc|memory.?format",
    kind="inference",
    recorded="step",
    null=True,
)
def null_channels_last_patches(device: str, changed: bool) -> Step:
    side, dtype = 224 if device != "cpu" else 32, low(device)
    patches, net = nn.Conv2d(3, 768, 16, 16).to(device, dtype).eval(), blocks(18, 768, 12, device, dtype).eval()
    first, head = torch.randn(1, 1, 768, device=device, dtype=dtype), nn.Linear(768, 1000).to(device, dtype)
    places = torch.randn(1 + (side // 16) ** 2, 768, device=device, dtype=dtype)
    images = torch.randn(small(96), 3, side, side, device=device, dtype=dtype)
    if changed:
        patches, images = patches.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        x = patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([first.expand(len(x), -1, -1), x], dim=1).contiguous() + places
        for block in net:
            x = block(x)
        return head(F.layer_norm(x[:, 0], (768,))).float().softmax(-1)

    return step


@unseen(
    "none: the loss is read with .item() once in a step of large kernels, which the host is far ahead of; kept on the GPU",
    names=r"\.item\(\)|aten::item|local_scalar_dense|(host|device|gpu|cpu|stream).?sync"
    r"|synchroni[sz](e|ing|ation) (\S+ ){0,4}loss",
    kind="training",
    recorded="step",
    null=True,
    with_stack=True,
)
def null_item_of_loss(device: str, changed: bool) -> Step:
    users, dim = small(16_384), small(4096)
    tower, other = (
        nn.Sequential(nn.Linear(512, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 512)).to(device, low(device))
        for _ in range(2)
    )
    optimizer = torch.optim.AdamW([*tower.parameters(), *other.parameters()], lr=1e-6, fused=True)
    queries, items = torch.randn(2, users, 512, device=device, dtype=low(device))
    wanted = torch.arange(users, device=device)
    history: list[float] = []
    total = torch.zeros((), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        scores = F.normalize(tower(queries), dim=1) @ F.normalize(other(items), dim=1).T
        loss = F.cross_entropy(20 * scores.float(), wanted)
        loss.backward()
        optimizer.step()
        if changed:
            total.add_(loss.detach())
        else:
            history.append(loss.item())
        return loss.detach()

    return step


@unseen(
    "none: large kernels, which the host launches far ahead; a CUDA graph",
    names=r"cuda.?graph|reduce-overhead|graph (capture|replay)|launch overhead",
    kind="inference",
    recorded="rerank",
    null=True,
    record_shapes=False,
)
def null_graph_of_large_kernels(device: str, changed: bool) -> Step:
    dtype = low(device)
    net, head = blocks(5, 2048, 16, device, dtype).eval(), nn.Linear(2048, 1).to(device, dtype)
    pairs = torch.randn(small(64), 256 if device != "cpu" else 8, 2048, device=device, dtype=dtype)
    held: list[Tensor] = []

    @torch.no_grad()
    def scores() -> Tensor:
        x = pairs
        for block in net:
            x = block(x)
        return head(x[:, 0]).squeeze(1).float()

    graph = None
    if changed and device != "cpu":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                scores()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held.append(scores())

    def step() -> Tensor:
        if graph is None:
            found = scores()
        else:
            graph.replay()
            found = held[0]
        return found.sort(descending=True).values

    return step


@unseen(
    "none: the gradients of a few small filters are filled with zeros, beside large images; set_to_none=True",
    names=r"set_to_none|zero_grad|aten::(zero_|_foreach_zero_)",
    kind="training",
    recorded="step",
    null=True,
    profile_memory=True,
)
def null_set_to_none(device: str, changed: bool) -> Step:
    side = small(256)
    convs: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    for _ in range(8):
        convs += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*convs, nn.Conv2d(64, 12, 3, padding=1), nn.PixelShuffle(2)).to(device, low(device))
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
    coarse = torch.rand(small(32), 3, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)
    fine = F.interpolate(coarse.float(), scale_factor=2, mode="bilinear").to(low(device))

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=changed)
        loss = F.l1_loss(net(coarse), fine)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Markets(Dataset[tuple[Tensor, Tensor]]):
    """Windows of random walks, cheap to cut."""

    def __init__(self) -> None:
        self.walks = torch.randn(32, 20_000).cumsum(1)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        start = number * 37 % 19_000
        window = self.walks[:, start : start + 136]
        window = (window - window[:, :1]) / 10
        return window[:, :128].T, window[:, 128:].T


@unseen(
    "none: two workers are ahead of a GPU that is the bottleneck; prefetch_factor=8",
    names=r"prefetch|num_workers|workers|data.?loader",
    kind="training",
    recorded="step",
    null=True,
)
def null_prefetch_factor(device: str, changed: bool) -> Step:
    loader = DataLoader(Markets(), small(64), num_workers=2, prefetch_factor=8 if changed else 2, pin_memory=device != "cpu")
    batches = iter(loader)
    dtype = low(device)
    net = blocks(6, 1024, 16, device, dtype)
    first, last = nn.Linear(32, 1024).to(device, dtype), nn.Linear(1024, 8 * 32).to(device, dtype)
    optimizer = torch.optim.AdamW([*first.parameters(), *net.parameters(), *last.parameters()], lr=1e-5, fused=True)

    def step() -> Tensor:
        past, later = (part.to(device, dtype, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        x = first(past)
        for block in net:
            x = block(x, causal=True)
        loss = F.huber_loss(last(x[:, -1]).float(), later.flatten(1).float())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# On a CPU.


# Inference.


@unseen(
    "a decoder runs the whole sequence again for each new token; keys and values kept in a cache, one token at a time",
    names=r"kv.?cache|(key|k)\w*\W*(and|/|,|&)?\W*(value|v)\w* cache|cach\w+ (the )?(\w+ )?(k|key|kv)|past_key_values|use_cache"
    r"|incremental(ly)? (decod|generat)|(whole|entire|full|growing) (prefix|sequence|context|prompt)|recomput\w* .{0,30}"
    r"(prefix|token|position|sequence|context)|only the (new|last|latest|newest) token|(new|last|latest) token only",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def story_without_cache(device: str, changed: bool) -> Step:
    layers, dim, heads, prompt, count, vocabulary = 3, 192, 6, 128, 16, 4000
    model = blocks(layers, dim, heads, device).eval()
    words, places = nn.Embedding(vocabulary, dim), nn.Embedding(prompt + count, dim)
    head = nn.Linear(dim, vocabulary, bias=False)
    story = torch.randint(0, vocabulary, (2, prompt))
    kept = torch.zeros(layers, 2, 2, heads, prompt + count, dim // heads)

    def hidden_of(ids: Tensor, start: int) -> Tensor:
        end = start + ids.shape[1]
        x = words(ids) + places.weight[start:end]
        for i, block in enumerate(model):
            if not changed:
                x = block(x, causal=True)
                continue
            q, k, v = block.heads_of(x)
            kept[i, 0, :, :, start:end], kept[i, 1, :, :, start:end] = k, v
            attended = F.scaled_dot_product_attention(q, kept[i, 0, :, :, :end], kept[i, 1, :, :, :end], is_causal=start == 0)
            x = block.rest(x, attended)
        return x

    @torch.no_grad()
    def step() -> Tensor:
        ids = story
        logits = head(hidden_of(ids, 0)[:, -1])
        for position in range(prompt, prompt + count - 1):
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
            x = hidden_of(ids[:, position:], position) if changed else hidden_of(ids, 0)
            logits = head(x[:, -1])
        return logits

    return step


class Residual(nn.Module):
    """Two dilated convolutions of a vocoder, with weight normalisation."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.first = weight_norm(nn.Conv1d(width, width, 7, padding=3 * dilation, dilation=dilation))
        self.second = weight_norm(nn.Conv1d(width, width, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.leaky_relu(self.first(F.leaky_relu(x, 0.1)), 0.1))


@unseen(
    "a vocoder computes its normalised weights anew for every chunk of a stream; weight normalisation removed after training",
    names=r"weight.?norm|parametri[sz]|_weight_norm|fold(ed|ing)? .{0,30}weights?|reparametri",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def vocoder_weight_norm(device: str, changed: bool) -> Step:
    net = nn.Sequential(
        weight_norm(nn.Conv1d(80, 256, 7, padding=3)),
        Residual(256, 1),
        Residual(256, 3),
        nn.LeakyReLU(0.1),
        weight_norm(nn.ConvTranspose1d(256, 128, 16, 8, 4)),
        Residual(128, 1),
        Residual(128, 3),
        nn.LeakyReLU(0.1),
        weight_norm(nn.ConvTranspose1d(128, 64, 8, 4, 2)),
        Residual(64, 1),
        nn.LeakyReLU(0.1),
        weight_norm(nn.Conv1d(64, 1, 7, padding=3)),
    ).eval()
    if changed:
        for module in net.modules():
            if parametrize.is_parametrized(module):
                parametrize.remove_parametrizations(module, "weight")
    mel = torch.randn(1, 80, 72)

    @torch.no_grad()
    def step() -> Tensor:
        return torch.cat([net(chunk).tanh() for chunk in mel.split(24, dim=-1)], dim=-1)

    return step


class Attentive(nn.Module):
    """An encoder layer around nn.MultiheadAttention, with positions added to queries and keys as in DETR."""

    def __init__(self, dim: int, heads: int, weights: bool):
        super().__init__()
        self.weights = weights
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        y = self.norm1(x)
        placed = y + position
        attended, _ = self.attention(placed, placed, y, need_weights=self.weights)
        x = x + attended
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@unseen(
    "nn.MultiheadAttention returns its attention weights, which nobody reads; need_weights=False",
    names=r"need_weights|scaled_dot_product|\bsdpa\b|flash.?attention|attention (weight|map|matri|prob)"
    r"|aten::(_?softmax|bmm|baddbmm)|native_multi_head|fused attention",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def scene_attention_weights(device: str, changed: bool) -> Step:
    patches = nn.Conv2d(3, 128, 8, stride=8)
    layers = nn.ModuleList(Attentive(128, 4, not changed) for _ in range(3)).eval()
    head = nn.Linear(128, 92)
    position = torch.randn(768, 128)
    image = torch.randn(1, 3, 192, 256)

    @torch.no_grad()
    def step() -> Tensor:
        x = patches(image).flatten(2).transpose(1, 2)
        for layer in layers:
            x = layer(x, position)
        return head(x.mean(1)).log_softmax(-1)

    return step


@unseen(
    "Lennard-Jones forces raise every pair's distance to the powers 14 and 8 with pow; products of the squared inverse",
    names=r"\bpow(er|ers|s)?\b|aten::pow|\*\*|exponent|repeated (multipl|squar)|multipl\w+ (instead|by itself|out)",
    kind="inference",
    recorded="simulate",
    on=("cpu",),
    with_stack=True,
)
def atoms_with_pow(device: str, changed: bool) -> Step:
    side = 9
    lattice = torch.stack(torch.meshgrid(*(torch.arange(side),) * 3, indexing="ij"), -1).view(-1, 3) * 1.12
    start = lattice + 0.02 * torch.randn(side**3, 3)
    velocity = 0.1 * torch.randn(side**3, 3)
    far = 1e6 * torch.eye(side**3)

    def forces(place: Tensor) -> tuple[Tensor, Tensor]:
        apart = place[:, None] - place
        squared = apart.square().sum(-1) + far
        if changed:
            inverse = squared.reciprocal()
            sixth = inverse * inverse * inverse
            strength = (48 * sixth - 24) * sixth * inverse
            energy = 2 * (sixth * sixth - sixth).sum()
        else:
            distance = squared.sqrt()
            strength = 48 * distance**-14 - 24 * distance**-8
            energy = 2 * (distance**-12 - distance**-6).sum()
        return (strength.unsqueeze(-1) * apart).sum(1), energy

    @torch.no_grad()
    def step() -> Tensor:
        place, speed = start, velocity
        force, energy = forces(place)
        for _ in range(2):
            speed = speed + 0.001 * force
            place = place + 0.002 * speed
            force, energy = forces(place)
            speed = speed + 0.001 * force
        return torch.cat([place.flatten(), energy.view(1)])

    return step


@unseen(
    "two pool threads run a net with two operator threads each, four on two cores; torch.set_num_threads(1)",
    names=r"set_num_threads|oversubscri|OMP_NUM_THREADS|intra.?op|too many threads|more threads than|num_threads"
    r"|threads compete|threads than (there are )?cores",
    kind="inference",
    recorded="tiles",
    on=("cpu",),
)
def tiles_oversubscribed(device: str, changed: bool) -> Step:
    torch.set_num_threads(1 if changed else 2)
    net = conv_net([16, 16, 32, 32, 64, 64], norm=True).eval()
    head = nn.Conv2d(64, 6, 1)
    scene = torch.randn(3, 384, 384)
    corners = [(row, column) for row in range(0, 384, 96) for column in range(0, 384, 96)]
    pool = ThreadPoolExecutor(2)

    @torch.no_grad()
    def classes_of(corner: tuple[int, int]) -> Tensor:
        tile = scene[:, corner[0] : corner[0] + 96, corner[1] : corner[1] + 96]
        return head(net(tile[None])).softmax(1).mean((0, 2, 3))

    def step() -> Tensor:
        return torch.stack(list(pool.map(classes_of, corners)))

    return step


class Encoder(nn.Module):
    """A layer whose queries, keys and values have a projection each, or one for all."""

    def __init__(self, dim: int, heads: int, packed: bool):
        super().__init__()
        self.heads, self.packed = heads, packed
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        projections = (self.query, self.key, self.value)
        self.weight, self.bias = torch.cat([p.weight for p in projections]), torch.cat([p.bias for p in projections])

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        if self.packed:
            parts = F.linear(y, self.weight, self.bias).chunk(3, dim=-1)
        else:
            parts = self.query(y), self.key(y), self.value(y)
        q, k, v = (part.unflatten(-1, (self.heads, 64)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@unseen(
    "none: queries, keys and values of long proteins from three large matrix products; one product for all three",
    names=r"qkv|in_proj|(one|single|packed|fused|larger|combined|merged?) (\w+ )?(projection|linear|matmul|matrix|product|gemm)"
    r"|(quer\w*|\bq\b)\W+(key\w*|k)\W+(and\W+)?(value\w*|v)\b.{0,40}(projection|linear|together|single|one)"
    r"|three (linear|projection|matmul)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    null=True,
)
def null_proteins_packed(device: str, changed: bool) -> Step:
    residues, head = nn.Embedding(25, 384), nn.Linear(384, 3)
    layers = nn.ModuleList(Encoder(384, 6, changed) for _ in range(2)).eval()
    protein = torch.randint(0, 25, (1, 640))

    @torch.no_grad()
    def step() -> Tensor:
        x = residues(protein)
        for layer in layers:
            x = layer(x)
        return head(x).softmax(-1)

    return step


# Training.


@unseen(
    "a rollout's observations become a tensor from a list of numpy arrays, number by number; np.stack first, then from_numpy",
    names=r"from_numpy|np\.(array|stack|asarray|concatenate|vstack)|numpy\.(array|stack)|list of (numpy|np|arrays|ndarray)"
    r"|as_tensor|ndarray|torch\.(tensor|FloatTensor)\b|numpy arrays?",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def rollout_from_list(device: str, changed: bool) -> Step:
    length, seen = 600, 48
    policy = nn.Sequential(nn.Linear(seen, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 7))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    random = np.random.default_rng(0)
    turn = (random.standard_normal((seen, seen)) / np.sqrt(seen)).astype(np.float32)
    actions = torch.from_numpy(random.integers(0, 6, length))

    def rollout() -> tuple[list[np.ndarray], list[float]]:
        observations, rewards = [], []
        now = np.ones(seen, dtype=np.float32)
        for _ in range(length):
            now = np.tanh(turn @ now + 0.1)
            observations.append(now)
            rewards.append(float(now[0]))
        return observations, rewards

    def step() -> Tensor:
        observations, rewards = rollout()
        states = torch.from_numpy(np.stack(observations)) if changed else torch.tensor(observations)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0) / length
        for _ in range(2):
            out = policy(states)
            advantage = returns - out[:, 6]
            chosen = out[:, :6].log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
            loss = advantage.square().mean() - (advantage.detach() * chosen).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


@unseen(
    "every batch of reviews is padded to the model's maximum of 256 tokens; to its longest review",
    names=r"\bpad(s|ded|ding)?\b|longest|bucket|max_length|maximum length|nested.?tensor|shorter sequence|sequence length"
    r"|var(iable)?.?len",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def reviews_padded(device: str, changed: bool) -> Step:
    longest, dim = 256, 96
    model = blocks(2, dim, 4, device)
    words, places, head = nn.Embedding(8000, dim, padding_idx=0), nn.Embedding(longest, dim), nn.Linear(dim, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *words.parameters(), *head.parameters()], lr=0.01)
    lengths = torch.randint(24, 110, (12,))
    reviews = [torch.randint(1, 8000, (n,)) for n in lengths.tolist()]
    labels = torch.randint(0, 2, (12,))

    def collate() -> Tensor:
        ids = nn.utils.rnn.pad_sequence(reviews, batch_first=True)
        return ids if changed else F.pad(ids, (0, longest - ids.shape[1]))

    def step() -> Tensor:
        ids = collate()
        mask = ids != 0
        x = words(ids) + places.weight[: ids.shape[1]]
        for block in model:
            x = block(x, mask[:, None, None])
        pooled = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        loss = F.cross_entropy(head(pooled), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "AdamW updates wide layers with a chain of elementwise passes over each weight; fused=True, which a CPU has too",
    names=r"fused|foreach|optimi[sz]er|adamw?\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def claims_adamw(device: str, changed: bool) -> Step:
    widths = [(240, 1024), (1024, 1024), (1024, 512), (512, 64)]
    layers = [m for a, b in widths for m in (nn.Linear(a, b), nn.SiLU())]
    net = nn.Sequential(nn.LayerNorm(240), *layers, nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True if changed else None)
    x, claimed = torch.randn(96, 240), torch.randint(0, 2, (96, 1)).float()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(x), claimed)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class GraphConv(nn.Module):
    """A graph convolution with symmetric normalisation, whose weights can be kept."""

    def __init__(self, inside: int, outside: int, cached: bool):
        super().__init__()
        self.linear = nn.Linear(inside, outside)
        self.cached = cached
        self.kept: tuple[Tensor, Tensor, Tensor] | None = None

    def normalised(self, edges: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        loops = torch.arange(nodes).expand(2, -1)
        source, target = torch.cat([edges, loops], dim=1)
        degree = torch.zeros(nodes).scatter_add_(0, target, torch.ones(len(target)))
        scale = degree.pow(-0.5).masked_fill(degree == 0, 0)
        return source, target, (scale[source] * scale[target]).unsqueeze(1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        if self.kept is None or not self.cached:
            self.kept = self.normalised(edges, len(x))
        source, target, weight = self.kept
        h = self.linear(x)
        return torch.zeros_like(h).index_add(0, target, h.index_select(0, source) * weight)


@unseen(
    "graph convolutions add self-loops and normalise the same edges by degree in every forward; cached once",
    names=r"normali[sz]\w+ .{0,40}(once|edge|adjacen|graph|degree|every|each)|degree|self.?loop|cached?\b|caching"
    r"|precomput|comput\w* once|hoist|outside (the|of) (forward|loop|step)",
    kind="training",
    recorded="fit",
    on=("cpu",),
    with_stack=True,
)
def citations_normalised_each_time(device: str, changed: bool) -> Step:
    nodes = 6000
    edges = torch.randint(0, nodes, (2, 90_000))
    first, second = GraphConv(128, 24, changed), GraphConv(24, 7, changed)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    x, labels = torch.randn(nodes, 128), torch.randint(0, 7, (nodes,))
    known = torch.arange(0, nodes, 10)

    def step() -> Tensor:
        optimizer.zero_grad()
        out = second(F.relu(first(x, edges)), edges)
        loss = F.cross_entropy(out[known], labels[known])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: gradients of a small convolution net are filled with zeros, little beside the convolutions; set_to_none=True",
    names=r"set_to_none|zero_grad|aten::zero_",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
)
def null_set_to_none_on_two_cores(device: str, changed: bool) -> Step:
    net = nn.Sequential(conv_net([32, 64, 64, 64, 96], norm=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=changed)
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Loads(IterableDataset[Tensor]):
    """Endless batches of windows of an electricity load, the same for every worker."""

    def __iter__(self) -> Iterator[Tensor]:
        hours = torch.arange(128.0).unsqueeze(-1) + torch.arange(8)
        number = 0
        while True:
            number += 1
            starts = torch.arange(32).view(-1, 1, 1) * 24.0 + number // 1000
            yield torch.sin((hours + starts) / 24) + 0.3 * torch.cos((hours + starts) / 168)


@unseen(
    "none: two workers are always ahead of a recurrent net that takes much longer than a batch; prefetch_factor=8",
    names=r"prefetch|num_workers|more workers|data ?load(er|ing)",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
)
def null_prefetch_more(device: str, changed: bool) -> Step:
    batches = iter(DataLoader(Loads(), None, num_workers=2, prefetch_factor=8 if changed else 2))
    rnn, head = nn.GRU(8, 128, batch_first=True), nn.Linear(128, 8)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)

    def step() -> Tensor:
        windows = next(batches)
        optimizer.zero_grad()
        loss = F.mse_loss(head(rnn(windows[:, :-1])[0]), windows[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
