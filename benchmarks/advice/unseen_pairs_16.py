"""A sixteenth set of small programs, for one GPU or two cores, with one performance fault each, written without a look at
the reader."""

import gc
import logging
from pathlib import Path
import tempfile
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import convolutions, depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


class Layer(nn.Module):
    """A layer of a transformer, normed ahead of each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, by head."""
        return self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """Do what follows attention."""
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))

    def forward(self, x: Tensor, causal: bool = False, bias: Tensor | None = None) -> Tensor:
        q, k, v = self.split(x)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal))


# For one GPU, with a fault.


@unseen(
    "precision, recall and overlap of each class are counted in a Python loop in every training step, three .item() calls a "
    "class, for each of which the host waits; all classes counted at once, the counts left on the GPU (read now and then)",
    names=r"\.?item\(\)|\bitem\b|_local_scalar_dense|synchroni|\bsyncs?\b|(host|cpu|python) (waits|blocks|stalls)|metrics?\b"
    r"|torchmetrics|confusion|bincount|(each|every|per|one|over) (the )?class(es)?\b|class by class|(all|the) classes"
    r"|DtoH|D2H|device.?(to|->).?(host|cpu)|read(ing)? back|every (\w+ )?(n|\d+|few|fiftieth|hundredth)(th)? (steps?|iterations?)"
    r"|(iou|precision|recall|overlap|dice|intersection)\b",
    kind="training",
    recorded="step",
    with_stack=True,
)
def ice_charts_of_the_straits(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide, kinds = small(16), small(256, 16), small(64, 16), 14
    layers = [*convolutions((4, wide)), *convolutions((wide, 2 * wide, 2 * wide, 2 * wide), 1)]
    layers += [nn.Upsample(scale_factor=2), nn.Conv2d(2 * wide, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, kinds, 1)]
    model = nn.Sequential(*layers).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    bands = torch.randn(rows, 4, side, side, device=device).contiguous(memory_format=torch.channels_last)
    charts, classes = torch.randint(kinds, (rows, side, side), device=device), torch.arange(kinds, device=device)[:, None]

    def step() -> tuple[Tensor, Tensor]:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(bands)
        loss = F.cross_entropy(scores.float(), charts)
        guess = scores.detach().argmax(1)
        if changed:
            guessed, right = guess.flatten() == classes, charts.flatten() == classes
            hits, found, there = (guessed & right).sum(1), guessed.sum(1), right.sum(1)
            counted = torch.stack([hits / found.clamp(min=1), hits / there.clamp(min=1), hits / (found + there - hits)])
        else:
            kept = []
            for kind in range(kinds):
                guessed, right = guess == kind, charts == kind
                hit = (guessed & right).sum().item()
                one, two = guessed.sum().item(), right.sum().item()
                kept.append((hit / max(one, 1), hit / max(two, 1), hit / (one + two - hit)))
            counted = torch.tensor(kept).T
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), counted

    return step


@unseen(
    "an image transformer for tissue is trained in float32 throughout, so its products miss the tensor cores; autocast to "
    "bfloat16 (or TF32)",
    names=r"autocast|bfloat16|\bbf16\b|\bfp16\b|float16|half.?precision|mixed.?precision|\bamp\b|tf32|tensor.?float"
    r"|set_float32_matmul_precision|tensor.?cores?|allow_tf32",
    kind="training",
    recorded="none",
)
def tissue_slides_under_the_lens(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    rows, width, patch, side = small(32), small(768, 64), 16, 224 if SCALE == 1 else 64
    cut, layers = nn.Conv2d(3, width, patch, patch), nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(4))))
    head, norm = nn.Linear(width, 9), nn.LayerNorm(width)
    model = nn.ModuleList([cut, layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tiles, grades = torch.randn(rows, 3, side, side, device=device), torch.randint(9, (rows,), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=changed):
            scores = head(norm(layers(cut(tiles).flatten(2).transpose(1, 2))).mean(1))
        loss = F.cross_entropy(scores.float(), grades)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the pictures of a batch, on the GPU already, are cut, mirrored and brightened one by one in a Python loop and stacked; "
    "the whole batch at once, by an index for rows and columns and one product",
    names=r"augment|vectori[sz]|kornia|grid_sample|\bcrop|\bflip|(image|picture|sample|photo)s? (by|after) (image|picture|sample"
    r"|photo|another)|(each|every|per|single|individual) (image|picture|sample|photo)|one (by one|at a time)|torch\.stack"
    r"|aten::stack|(whole|entire|full) batch|\bbatched\b|at once|python loop|loop over (the )?(batch|images|pictures|samples)"
    r"|small kernels|tiny kernels",
    kind="training",
    recorded="train",
)
def reef_fish_counted(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    rows, large, side, kinds = small(256), 72, 64, 40
    net = [*convolutions((3, 64), 1), *convolutions((64, 128, 192, 256))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, kinds))
    model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    fish, names = torch.rand(rows, 3, large, large, device=device), torch.randint(kinds, (rows,), device=device)
    draw = torch.Generator().manual_seed(3)
    which, along = torch.arange(rows, device=device)[:, None, None], torch.arange(side, device=device)

    def step() -> Tensor:
        corners, turned = torch.randint(large - side + 1, (2, rows), generator=draw), torch.rand(rows, generator=draw) < 0.5
        gains = 0.8 + 0.4 * torch.rand(2, rows, generator=draw)
        if changed:
            tops, lefts = corners.to(device)
            mirrored, (light, tint) = turned.to(device)[:, None], gains.to(device)[..., None, None, None]
            columns = lefts[:, None] + torch.where(mirrored, side - 1 - along, along)
            cuts = fish.permute(0, 2, 3, 1)[which, (tops[:, None] + along)[:, :, None], columns[:, None, :]]
            batch = (cuts.permute(0, 3, 1, 2) * light - 0.5 * tint).clamp(-1, 1)
        else:
            done = []
            tops_, lefts_, turns, (lights, tints) = *corners.tolist(), turned.tolist(), gains.tolist()
            for at, (top, left, turn) in enumerate(zip(tops_, lefts_, turns, strict=True)):
                one = fish[at, :, top : top + side, left : left + side]
                if turn:
                    one = one.flip(2)
                done.append((one * lights[at] - 0.5 * tints[at]).clamp(-1, 1))
            batch = torch.stack(done)
        batch = batch.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(batch)
        loss = F.cross_entropy(scores.float(), names)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a masked language model scores all 30522 words at every position, though the loss takes the masked seventh of them "
    "alone; the masked positions picked before the last layer",
    names=r"masked (position|token|word)s?|(only|just|alone) .{0,60}(position|token)s?|(select|pick|gather|index|slic|filter)\w* "
    r".{0,80}(position|token|hidden)|ignore_index|ignored|-100|\blogits\b|vocab|(last|output|final|lm|decoder) "
    r"(layer|head|projection|linear)|\bhead\b|chunked (cross|loss)|(fused|liger) .*cross.?entropy",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def charters_with_gaps(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, length, width, words = small(32), small(512, 32), small(768, 64), small(30522, 500)
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, words)
    layers, norm = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(6))), nn.LayerNorm(width)
    model = nn.ModuleList([embed, place, layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text, at = torch.randint(1, words, (rows, length), device=device), torch.arange(length, device=device)
    hidden = torch.rand(rows, length, device=device).topk(length * 15 // 100).indices.sort(1).values
    seen, aims = text.scatter(1, hidden, 0), torch.full_like(text, -100).scatter(1, hidden, text.gather(1, hidden))
    picked = (hidden + length * torch.arange(rows, device=device)[:, None]).flatten()
    short = text.flatten()[picked]

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(seen) + place(at)
            for layer in layers:
                x = layer(x)
            x = norm(x).flatten(0, 1)
            logits = head(x.index_select(0, picked) if changed else x)
        loss = F.cross_entropy(logits.float(), short if changed else aims.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the penalty on large weights is added up in Python, the square of each tensor of weights, and goes backward with the "
    "loss, a dozen tiny kernels for each of them; weight_decay of the optimizer",
    names=r"weight.?decay|\bl2\b|(weight|parameter|ridge|norm)s? (penalty|regulari[sz])|regulari[sz]|penalty|_foreach|foreach_"
    r"(norm|mul)|(each|every|per|over|all) (the )?(parameter|weight)s?\b|parameter by parameter|aten::pow\b|PowBackward"
    r"|square of|squares\b",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def potsherds_dated(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, wide, kinds, rate = small(128), small(64, 16), 12, 5e-4
    net = [*convolutions((3, *([wide] * depth(8))), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(10), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, kinds)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=rate if changed else 0, fused=True)
    sherds = torch.randn(rows, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    ages = torch.randint(kinds, (rows,), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(sherds)
        fit = F.cross_entropy(scores.float(), ages)
        loss = fit
        if not changed:
            penalty = torch.zeros((), device=device)
            for weight in model.parameters():
                penalty = penalty + weight.pow(2).sum()
            loss = fit + rate / 2 * penalty
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return fit.detach()

    return step


@unseen(
    "the advantages of a rollout are computed backward in time by a Python loop of tiny kernels on the GPU, eight for each "
    "of 256 times; on the host with numpy, from one copy of rewards and values (or one kernel, a graph, a scan)",
    names=r"\bgae\b|\badvantages\b|numpy|(comput|run|mov|do)\w* .{0,40}on the (host|cpu)|\bscan\b|cuda.?graph|torch\.compile"
    r"|triton|(custom|one|single|fused) kernel"
    r"|(tiny|small|short|many) kernels|python loop|loop over (the )?(time|steps|horizon)|(each|every|per) time.?(step)?"
    r"|time.?step|recurrence|vectori[sz]|cumsum",
    kind="training",
    recorded="step",
)
def crane_swings_damped(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    horizon, worlds, senses, moves, width = small(256, 16), small(1024, 16), 48, 6, small(512, 32)
    body = nn.Sequential(nn.Linear(senses, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
    act, judge = nn.Linear(width, moves), nn.Linear(width, 1)
    model = nn.ModuleList([body, act, judge]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    seen, done = torch.randn(horizon, worlds, senses, device=device), torch.randn(horizon, worlds, moves, device=device)
    rewards, values = torch.randn(horizon, worlds, device=device), torch.randn(horizon + 1, worlds, device=device)
    going, before = (torch.rand(horizon, worlds, device=device) > 0.01).float(), -4 - torch.rand(horizon, worlds, device=device)
    discount, trace = 0.99, 0.95

    def on_device() -> Tensor:
        advantages, last = torch.zeros_like(rewards), torch.zeros(worlds, device=device)
        for at in reversed(range(horizon)):
            surprise = rewards[at] + discount * values[at + 1] * going[at] - values[at]
            last = surprise + discount * trace * going[at] * last
            advantages[at] = last
        return advantages

    def on_host() -> Tensor:
        gains, worths, on = (part.cpu().numpy() for part in (rewards, values, going))
        surprises = gains + np.float32(discount) * worths[1:] * on - worths[:-1]
        kept, last = np.float32(discount * trace) * on, np.zeros(worlds, np.float32)
        for at in reversed(range(horizon)):
            last = surprises[at] + kept[at] * last
            surprises[at] = last
        return torch.from_numpy(surprises).to(device)

    def step() -> Tensor:
        advantages = on_host() if changed else on_device()
        returns = advantages + values[:-1]
        advantages = (advantages - advantages.mean()) / advantages.std()
        total = torch.zeros((), device=device)
        for part in range(4):
            rows = slice(part * horizon // 4, (part + 1) * horizon // 4)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
                x = body(seen[rows].flatten(0, 1))
                means, worth = act(x), judge(x)[:, 0]
            logs = -0.5 * (done[rows].flatten(0, 1) - means.float()).square().sum(1)
            ratio, gain = (logs - before[rows].flatten()).clamp(-4, 4).exp(), advantages[rows].flatten()
            loss = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = loss + 0.5 * F.mse_loss(worth.float(), returns[rows].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total = total + loss.detach()
        return total

    return step


@unseen(
    "a table of ten million embeddings gets a dense gradient, zeroed, filled and applied by Adam to every row in each step, "
    "though a batch meets few of them; sparse=True and SparseAdam",
    names=r"sparse|dense (\w+ )?grad|embedding.{0,100}(gradient|adam|optimi|every row|all rows|whole table|entire table|rowwise"
    r"|row-wise|touched|used)|embedding_(dense_)?backward|(gradient|optimi[sz]er|adam)\b.{0,100}(embedding|table|all rows"
    r"|every row|untouched|unused)|row.?wise|lazy ?adam|torchrec|fbgemm",
    kind="training",
    recorded="update",
    profile_memory=True,
)
def second_hand_bicycles_clicked(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    wares, rows, fields, width, hidden = small(10_000_000, 4096), small(8192, 64), 12, 64, small(2048, 64)
    table = nn.Embedding(wares, width, sparse=changed, device=device)
    deep = nn.Sequential(
        *(nn.Linear(fields * width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)),
    ).to(device)
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(deep.parameters(), lr=1e-3, fused=True)]
    if changed:
        optimizers.append(torch.optim.SparseAdam(table.parameters(), lr=1e-3))
    else:
        optimizers.append(torch.optim.Adam(table.parameters(), lr=1e-3, fused=True))
    seen = torch.randint(wares, (rows, fields), device=device)
    clicked = (torch.rand(rows, device=device) < 0.2).float()

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = deep(table(seen).flatten(1))[:, 0]
        loss = F.binary_cross_entropy_with_logits(scores.float(), clicked)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


class Grouped(nn.Module):
    """A layer of a language model that decodes, four heads of queries to one of keys, with its cache."""

    def __init__(self, heads: int, size: int, rows: int, length: int, shared: bool) -> None:
        super().__init__()
        width, self.groups, self.size, self.shared = heads * size, heads // 4, size, shared
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.turn, self.out = nn.Linear(width, (heads + 2 * self.groups) * size, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.back = nn.Linear(width, 6 * width, bias=False), nn.Linear(3 * width, width, bias=False)
        self.register_buffer("kept", torch.randn(2, rows, self.groups, length, size))

    def forward(self, x: Tensor, at: int) -> Tensor:
        rows, groups, size = len(x), self.groups, self.size
        parts = self.turn(self.first(x)).split((4 * groups * size, groups * size, groups * size), 1)
        kept: Tensor = self.kept  # type: ignore[assignment]
        kept[0, :, :, at], kept[1, :, :, at] = parts[1].view(rows, groups, size), parts[2].view(rows, groups, size)
        k, v = kept[:, :, :, : at + 1].unbind(0)
        if self.shared:
            attended = F.scaled_dot_product_attention(parts[0].view(rows, groups, 4, size), k, v)
        else:
            k, v = (part[:, :, None].expand(-1, -1, 4, -1, -1).flatten(1, 2) for part in (k, v))
            attended = F.scaled_dot_product_attention(parts[0].view(rows, 4 * groups, 1, size), k, v)
        x = x + self.out(attended.flatten(1))
        gate, up = self.wide(self.second(x)).chunk(2, 1)
        return x + self.back(F.silu(gate) * up)


@unseen(
    "keys and values of the cache are copied four times over, for the heads of queries that share them, for every word and "
    "layer; attention that shares them (enable_gqa=True, or the queries of a group as rows)",
    names=r"\bgqa\b|enable_gqa|grouped.?query|repeat_kv|repeat_interleave|\bexpand(ed|ing)?\b|(repeat|copi|copy|duplicat|replicat"
    r"|expand|materiali[sz])\w* .{0,60}(keys?|values?|\bkv\b|heads?|cache)|(keys?|values?|\bkv\b|heads?|cache)\b.{0,60}(repeat"
    r"|copied|copies|copy|duplicat|replicat|expand|shared|sharing)",
    kind="inference",
    recorded="decode",
    with_stack=True,
)
def museum_guides_answering(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    heads, size, rows, length, words, tokens = small(32, 8), small(128, 16), small(32), small(640, 32), small(32000, 500), 4
    with torch.device(device):
        layers = nn.ModuleList(Grouped(heads, size, rows, length, changed) for _ in range(depth(8)))
        embed, norm = nn.Embedding(words, heads * size), nn.RMSNorm(heads * size)
        head = nn.Linear(heads * size, words, bias=False)
    nn.ModuleList([embed, layers, norm, head]).to(low(device)).eval()
    first = torch.randint(words, (rows,), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        word, scores = first, torch.empty(0)
        for at in range(length - tokens - 1, length - 1):
            x = embed(word)
            for layer in layers:
                x = layer(x, at)
            scores = head(norm(x))
            word = scores.argmax(1)
        return scores

    return step


@unseen(
    "the text encoder is moved to the GPU for each request and back to the host after it, to save memory of which there is "
    "plenty; kept on the GPU",
    names=r"offload|(keep|kept|stay|leave|resid|hold)\w* .{0,60}(gpu|device|cuda)|(moved?|moving|cop(y|ied|ies|ying)|transfer\w*"
    r"|upload\w*|weights?|parameters?|model|module|encoder)\b.{0,80}(each|every|per) (request|call|step|iteration|repetition"
    r"|prompt)|(weights?|parameters?|model|module|encoder)\b.{0,80}(to|from|between) (the )?(gpu|host|cpu|device)"
    r"|\.to\(\W?(device|c)"
    r"|\.cpu\(\)|HtoD|H2D|DtoH|D2H|host.?(to|->).?device|Memcpy|pageable|pin(ned|_memory|ning)?\b|non_?blocking",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def wallpaper_patterns_on_request(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    width, words, length, rows, rounds = small(768, 64), small(8000, 200), 77, 4, depth(10)
    dtype = low(device)
    embed, layers = nn.Embedding(words, width), nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(4))))
    reader = nn.Sequential(embed, layers, nn.LayerNorm(width)).to(device, dtype).eval()
    cut, leave, place = nn.Linear(16, width), nn.Linear(width, 16), nn.Embedding(1024, width)
    blocks = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(6))))
    nn.ModuleList([cut, leave, place, blocks]).to(device, dtype).eval()
    prompt, noise = torch.randint(words, (rows, length), device=device), torch.randn(rows, 1024, 16, device=device, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        if not changed:
            reader.to(device)
        told = reader(prompt)
        if not changed:
            reader.to("cpu")
        x = noise
        for _ in range(rounds):
            tokens = torch.cat([cut(x) + place.weight, told], 1)
            x = x - 0.1 * leave(blocks(tokens)[:, :1024])
        return x.float()

    return step


def mel_bank(bins: int, filters: int, rate: int) -> np.ndarray[Any, Any]:
    """Return triangles of a mel scale, a row each, made as libraries do."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), filters + 2) / 2595) - 1)
    places = np.linspace(0, rate / 2, bins)
    steps, ramps = np.diff(edges), edges[:, None] - places
    bank = np.zeros((filters, bins), np.float32)
    for at in range(filters):
        bank[at] = np.maximum(0, np.minimum(-ramps[at] / steps[at], ramps[at + 2] / steps[at + 1]))
    return bank * (2 / (edges[2 : filters + 2] - edges[:filters]))[:, None].astype(np.float32)


@unseen(
    "the filter bank and the window of the spectrogram are made by numpy on the host and copied to the GPU for every request; "
    "made once, when the service starts, and kept on the GPU",
    names=r"\bmel\b|filter.?bank|spectrogram|\bbank\b|\bwindow\b|hann|register_buffer|__init__|constructor|precomput|numpy"
    r"|(once|ahead|in advance|start.?up|outside|cach\w*|again|anew|each|every|per)\b.{0,60}(filter|bank|window|constant|array)"
    r"|(filter|bank|window|constant|array)s?\b.{0,60}(once|ahead|in advance|start.?up|outside|cach|again|anew|each|every|per)\b",
    kind="inference",
    recorded="transcribe",
    with_stack=True,
)
def radio_plays_transcribed(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    rows, rate, width, letters, filters, size = small(16), 16000, small(1024, 64), 60, 128, 1024
    seconds = 20 if SCALE == 1 else 2
    shrink = nn.Sequential(
        nn.Conv1d(filters, width, 3, 2, 1), nn.GELU(), nn.Conv1d(width, width, 3, 2, 1), nn.GELU(), nn.Conv1d(width, width, 1)
    )
    layers, head = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(10)))), nn.Linear(width, letters)
    nn.ModuleList([shrink, layers, head]).to(device, low(device)).eval()
    sound = torch.randn(rows, seconds * rate, device=device)

    def made() -> tuple[Tensor, Tensor]:
        window = torch.from_numpy(np.hanning(size + 1)[:-1].astype(np.float32))
        return window.to(device), torch.from_numpy(mel_bank(size // 2 + 1, filters, rate)).to(device)

    kept = made()

    @torch.inference_mode()
    def step() -> Tensor:
        window, bank = kept if changed else made()
        power = torch.stft(sound, size, 160, window=window, return_complex=True).abs().square()
        heard = (bank @ power).clamp(min=1e-10).log10().to(low(device))
        return head(layers(shrink(heard).transpose(1, 2))).argmax(2).cpu()

    return step


@unseen(
    "every layer of a graph network counts the degrees of all nodes and makes the weights of the edges from them again, "
    "though the graph stays the same; once for the graph",
    names=r"degrees?\b|normali[sz](e|ed|ing|ation)\b|gcn_norm|cached=True|\bcach(e|ed|ing)\b|precomput|(once|again|recomput\w*"
    r"|repeated\w*|redundant|same)\b.{0,80}(layer|edge|graph|weights?|call)|(layer|edge|graph)s?\b.{0,80}(once|again|recomput"
    r"|repeated|redundant|same)|loop.?invariant|hoist",
    kind="inference",
    recorded="step",
    record_shapes=False,
)
def patents_that_cite_patents(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    nodes, edges, width, features = small(200_000, 64), small(3_000_000, 512), 32, small(256, 16)
    enter, leave = nn.Linear(features, width), nn.Linear(width, 40)
    mixes = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
    nn.ModuleList([enter, leave, mixes]).to(device).eval()
    source, goal = torch.randint(nodes, (2, edges), device=device)
    texts = torch.randn(nodes, features, device=device)

    def weighted() -> Tensor:
        degrees = torch.ones(nodes, device=device).index_add_(0, goal, torch.ones(edges, device=device))
        root = degrees.pow(-0.5)
        return (root.index_select(0, source) * root.index_select(0, goal))[:, None]

    kept = weighted()

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(texts).relu()
        for mix in mixes:
            weights = kept if changed else weighted()
            messages = mix(x).index_select(0, source) * weights
            x = (x + torch.zeros_like(x).index_add_(0, goal, messages)).relu()
        return leave(x).argmax(1).float().mean()

    return step


class Block(nn.Module):
    """A block of a denoiser: two convolutions beside the input, with the time added between."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.one, self.two = nn.GroupNorm(8, wide), nn.GroupNorm(8, wide)
        self.first, self.second, self.when = nn.Conv2d(wide, wide, 3, 1, 1), nn.Conv2d(wide, wide, 3, 1, 1), nn.Linear(wide, wide)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        y = self.first(F.silu(self.one(x))) + self.when(told)[:, :, None, None]
        return x + self.second(F.silu(self.two(y)))


@unseen(
    "guidance runs the denoiser twice in each step, with the prompt and without, one small batch after the other; both as "
    "one batch",
    names=r"\bbatch(ed|ing)?\b.{0,60}(both|two|together|joint|one|cond|single|larger|bigger)|(both|two|together|join\w*|concat\w*"
    r"|stack\w*|single|one|larger|bigger)\b.{0,60}\bbatch|torch\.cat\b|concatenat|classifier.?free|\bcfg\b|guidance|uncond"
    r"|(two|both|twice|second) .{0,30}(pass|forward|call)",
    kind="inference",
    recorded="none",
)
def stained_glass_imagined(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    wide, side, rounds = small(320, 32), 32 if SCALE == 1 else 8, depth(6)
    enter, leave = nn.Conv2d(4, wide, 3, 1, 1), nn.Conv2d(wide, 4, 3, 1, 1)
    blocks = nn.ModuleList(Block(wide) for _ in range(depth(10)))
    net = nn.ModuleList([enter, leave, blocks]).to(device, low(device))
    net.to(memory_format=torch.channels_last).eval()
    told = torch.randn(2, wide, device=device, dtype=low(device))
    times, noise = told.new_tensor([[0.1 * at] for at in range(rounds)]), torch.randn(1, 4, side, side, device=device)
    noise = noise.to(low(device), memory_format=torch.channels_last)

    def denoised(x: Tensor, told: Tensor) -> Tensor:
        x = enter(x)
        for block in blocks:
            x = block(x, told)
        return leave(x)

    @torch.inference_mode()
    def step() -> Tensor:
        x = noise
        for at in range(rounds):
            if changed:
                led, free = denoised(x.expand(2, -1, -1, -1), told + times[at]).chunk(2)
            else:
                led, free = denoised(x, told[:1] + times[at]), denoised(x, told[1:] + times[at])
            x = x - 0.1 * (free + 3 * (led - free))
        return x.float()

    return step


@unseen(
    "to draw each word from the likeliest ones, the probabilities of all 128256 words are sorted; topk of a few hundred, "
    "which hold nine tenths of it",
    names=r"\btop.?k\b|\bsort(s|ed|ing)?\b|argsort|radix|nucleus|top.?p\b|flashinfer|sampling kernel",
    kind="inference",
    recorded="step",
)
def ballads_made_up(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, width, words, length, tokens, best = small(64), small(2048, 64), small(128256, 1024), small(512, 32), 4, 512
    embed, norm, head = nn.Embedding(words, width), nn.LayerNorm(width), nn.Linear(width, words, bias=False)
    layers = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(10)))
    nn.init.normal_(head.weight, std=6 / width**0.5)
    nn.ModuleList([embed, norm, head, layers]).to(device, low(device)).eval()
    shape = (2, len(layers), rows, width // 64, length, 64)
    kept = torch.randn(shape, device=device, dtype=low(device))
    first, chances = torch.randint(words, (rows,), device=device), torch.rand(tokens, rows, 1, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        word, said = first, []
        for token in range(tokens):
            at = length - tokens + token
            x = embed(word)[:, None]
            for number, layer in enumerate(layers):
                assert isinstance(layer, Layer)
                q, k, v = layer.split(x)
                kept[0, number, :, :, at], kept[1, number, :, :, at] = k[:, :, 0], v[:, :, 0]
                keys, values = kept[0, number, :, :, : at + 1], kept[1, number, :, :, : at + 1]
                x = layer.rest(x, F.scaled_dot_product_attention(q, keys, values))
            shares = head(norm(x[:, 0])).float().softmax(1)
            top, which = shares.topk(min(best, words)) if changed else shares.sort(1, descending=True)
            total = top.cumsum(1)
            top = top * (total - top < 0.9)
            total = top.cumsum(1)
            place = (total < chances[token] * total[:, -1:]).sum(1, keepdim=True).clamp(max=top.shape[1] - 1)
            word = which.gather(1, place)[:, 0]
            said.append(word)
        return torch.stack(said, 1)

    return step


# For one GPU, with a change that brings nothing.


@unseen(
    "none: cudnn.benchmark, which tries the algorithms of convolutions, for a language model that has none; switched on",
    names=r"cudnn\.?benchmark|benchmark ?= ?True|cudnn.{0,20}(autotun|benchmark)",
    kind="training",
    recorded="none",
    null=True,
)
def cookery_books_modelled(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, length, width, words = small(16), small(512, 16), small(768, 64), small(8000, 200)
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, words, bias=False)
    layers, norm = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(8))), nn.LayerNorm(width)
    model = nn.ModuleList([embed, place, layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    books, at = torch.randint(words, (rows, length + 1), device=device), torch.arange(length, device=device)

    def step() -> Tensor:
        torch.backends.cudnn.benchmark = changed
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(books[:, :-1]) + place(at)
            for layer in layers:
                x = layer(x, causal=True)
            logits = head(norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), books[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Photos(Dataset[tuple[Tensor, int]]):
    """Photos in memory, as bytes."""

    def __init__(self, photos: int, side: int) -> None:
        self.photos = torch.randint(256, (photos, 3, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return 64 * len(self.photos)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return self.photos[at % len(self.photos)], at % 17


@unseen(
    "none: two workers make the batches, cheap ones, well ahead of a GPU that has work for many milliseconds; num_workers=8",
    names=r"num_workers|(more|extra|additional|raise|increase)\b.{0,30}workers|prefetch_factor|DataLoader|input pipeline",
    kind="training",
    recorded="step",
    null=True,
)
def beehives_by_the_hour(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, side, wide = small(64, 4), small(160, 32), small(128, 16)
    order = torch.Generator().manual_seed(15)
    batches = endless(
        DataLoader(
            Photos(1024, side),
            rows,
            shuffle=True,
            drop_last=True,
            generator=order,
            num_workers=8 if changed else 2,
            pin_memory=device != "cpu",
            persistent_workers=True,
        )
    )
    net = [*convolutions((3, wide)), *convolutions((wide,) * 8, 1), *convolutions((wide, 2 * wide, 4 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, 17))
    model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        photos, kinds = (part.to(device, non_blocking=True) for part in next(batches))
        photos = (photos.float() / 255).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(photos)
        loss = F.cross_entropy(scores.float(), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: torch.cuda.synchronize() once after each long call, for a timer; without it",
    names=r"synchroni[sz]|\bsyncs?\b|(host|cpu|python) (waits|blocks|stalls)",
    kind="inference",
    recorded="none",
    null=True,
    with_stack=True,
)
def glaciers_outlined(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, width, tokens = small(32), small(1024, 64), small(1024, 16)
    enter, leave, place = nn.Linear(48, width), nn.Linear(width, 16), nn.Embedding(tokens, width)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(8))))
    nn.ModuleList([enter, leave, place, layers]).to(device, low(device)).eval()
    scenes = torch.randn(rows, tokens, 48, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        outlines = leave(layers(enter(scenes) + place.weight)).float()
        if not changed and device != "cpu":
            torch.cuda.synchronize()
        return outlines

    return step


@unseen(
    "none: contiguous() is called on tensors that are contiguous already, and returns them as they are; left out",
    names=r"contiguous\b|clone|(needless|unneeded|redundant|extra|unnecessary) cop(y|ies)",
    kind="inference",
    recorded="embed",
    null=True,
    profile_memory=True,
)
def violins_told_apart(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    rows, width, tokens = small(48), small(768, 64), small(400, 16)
    enter, leave = nn.Linear(128, width), nn.Linear(width, 256)
    layers = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(8)))
    nn.ModuleList([enter, leave, layers]).to(device, low(device)).eval()
    played = torch.randn(rows, tokens, 128, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(played if changed else played.contiguous())
        for layer in layers:
            x = layer(x if changed else x.contiguous())
            x = x if changed else x.contiguous()
        x = leave(x.mean(1))
        return F.normalize(x if changed else x.contiguous(), dim=1).float()

    return step


@unseen(
    "none: full precision for float32 products, in a program whose products all run in bfloat16 by autocast; "
    "set_float32_matmul_precision('high')",
    names=r"tf32|tensor.?float|set_float32_matmul_precision|matmul.precision",
    kind="training",
    recorded="learn",
    null=True,
    record_shapes=False,
)
def barges_on_the_canal(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, width, tokens = small(32), small(1024, 64), small(384, 16)
    enter, leave = nn.Linear(32, width), nn.Linear(width, 8)
    layers = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(6)))
    model = nn.ModuleList([enter, leave, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    past, following = torch.randn(rows, tokens, 32, device=device), torch.randn(rows, tokens, 8, device=device)

    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = enter(past)
            for layer in layers:
                x = layer(x, causal=True)
            guess = leave(x)
        loss = F.smooth_l1_loss(guess.float(), following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


# For two cores, with a fault.


class Calls(Dataset[tuple[Tensor, int]]):
    """Spectrograms of bats: in compressed files, or unpacked into memory before."""

    def __init__(self, calls: int, unpacked: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(19)
        for at in range(calls):
            call = np.round(rng.normal(size=(64, 384)) * 4).astype(np.float32)
            np.savez_compressed(Path(self.folder.name) / f"{at}.npz", call=call)
        self.calls = [self.read(at) for at in range(calls)] if unpacked else []
        self.count = calls

    def read(self, at: int) -> Tensor:
        with np.load(Path(self.folder.name) / f"{at}.npz") as file:
            return torch.from_numpy(file["call"])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return (self.calls[at] if self.calls else self.read(at)), at % 11


@unseen(
    "each spectrogram is unpacked from a compressed file (npz) again whenever the loader takes it, between the steps; all "
    "unpacked once, into memory (or files that are not compressed, or workers)",
    names=r"compress|\bnpz\b|zlib|gzip|inflate|unpack|np\.load|\bcach(e|ed|ing)\b|in(to)? (memory|ram)|pre.?load|mmap|memmap"
    r"|num_workers|\bworkers?\b|prefetch|background|(decod|pars|load|read)\w* .{0,60}(once|again|each|every|ahead)|DataLoader"
    r"|input pipeline|data loading|\bdisk\b|\bfiles?\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def bats_over_the_mill_pond(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    order = torch.Generator().manual_seed(19)
    batches = endless(DataLoader(Calls(128, changed), 16, shuffle=True, drop_last=True, generator=order))
    net = [*convolutions((1, 24, 48)), *convolutions((48, 64, 96))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 11)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> Tensor:
        calls, kinds = next(batches)
        loss = F.cross_entropy(model(calls[:, None].to(device) / 8), kinds.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "mean and deviation of the whole table are taken again for each batch that is normalised with them; once, before the "
    "training",
    names=r"\b(mean|std|deviation|statistics|variance|var|moments)\b.{0,100}(once|again|each|every|before|ahead|precomput|cach"
    r"|whole|full|entire|outside|data ?set|table)|(once|again|precomput\w*|recomput\w*|hoist\w*|cach\w*|whole|full|entire|normali"
    r"\w*|standardi\w*)\b.{0,100}\b(mean|std|deviation|statistics|variance|moments)\b|aten::(std|mean|var|std_mean)\b"
    r"|(normali|standardi)[sz]\w* .{0,60}(once|ahead|before|advance)|loop.?invariant",
    kind="training",
    recorded="train",
    on=("cpu",),
)
def tides_at_the_harbour_wall(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    hours, gauges, rows, width = 20_000, 48, 1024, 384
    table, level = torch.randn(hours, gauges, device=device) * 3 + 1, torch.randn(hours, device=device)
    model = nn.Sequential(
        *(nn.Linear(gauges, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(20)
    middle, spread = table.mean(0), table.std(0)

    def step() -> Tensor:
        drawn = torch.randint(hours, (rows,), generator=draw).to(device)
        x = table[drawn]
        x = (x - middle) / spread if changed else (x - table.mean(0)) / table.std(0)
        loss = F.mse_loss(model(x)[:, 0], level[drawn])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "each layer makes the table of relative positions anew in every call, by Python lists of 20000 numbers; once, kept as a "
    "buffer (or by the difference of two aranges)",
    names=r"relative|positions?\b|distance table|register_buffer|\bbuffer\b|\barange\b|precomput|(python|nested) (lists?|loops?)"
    r"|list comprehension|torch\.tensor\b|aten::(tensor|lift_fresh)|\bcach(e|ed|ing)\b|(once|again|anew|same)\b.{0,60}(table"
    r"|index|layer|mask|bias|forward|call)|(table|index|mask|bias)\b.{0,60}(once|again|anew|same)|vectori[sz]",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def peptides_folded_by_sequence(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, length, width, heads, far, acids = 8, 144, 128, 4, 16, 24
    embed, head = nn.Embedding(acids, width), nn.Linear(width, 3)
    layers = nn.ModuleList(Layer(width, heads) for _ in range(3))
    biases = nn.ModuleList(nn.Embedding(2 * far + 1, heads) for _ in range(3))
    model = nn.ModuleList([embed, head, layers, biases]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    chains, folds = torch.randint(acids, (rows, length), device=device), torch.randint(3, (rows, length), device=device)

    def made() -> Tensor:
        places = range(length)
        apart = [[min(max(there - here, -far), far) + far for there in places] for here in places]
        return torch.tensor(apart, device=device)

    kept = made()

    def step() -> Tensor:
        x = embed(chains)
        for layer, bias in zip(layers, biases, strict=True):
            x = layer(x, bias=bias(kept if changed else made()).permute(2, 0, 1)[None].expand(rows, -1, -1, -1))
        loss = F.cross_entropy(head(x).flatten(0, 1), folds.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the frozen trunk of a network computes the features of the same pictures again in every epoch, though only what follows "
    "is trained; features computed once and kept",
    names=r"frozen|freez|(feature|embedding|activation|output)s?\b.{0,80}(once|cach|precomput|stor|kept|keep|sav|ahead|again)"
    r"|(once|cach\w*|precomput\w*|stor\w*|keep|kept|save|pre-?extract\w*|recomput\w*)\b.{0,80}(feature|embedding|trunk|backbone"
    r"|encoder|activation)s?|(trunk|backbone|encoder|no.?grad)\b.{0,80}(once|cach|precomput|ahead|same|again)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
    profile_memory=True,
)
def mushrooms_from_a_forest_walk(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    rows, batches, kinds = 16, 4, 30
    net = [*convolutions((3, 16, 32)), *convolutions((32, 48))]
    trunk = nn.Sequential(*net).to(device).eval().requires_grad_(False)
    model = nn.Sequential(
        *convolutions((48, 96), 1), *convolutions((96, 128)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, kinds)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    photos, found = torch.rand(batches, rows, 3, 128, 128, device=device), torch.randint(kinds, (batches, rows), device=device)
    with torch.no_grad():
        kept = [trunk(batch) for batch in photos]
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        at = turn % batches
        turn += 1
        if changed:
            features = kept[at]
        else:
            with torch.no_grad():
                features = trunk(photos[at])
        loss = F.cross_entropy(model(features), found[at])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the query is compared with each document by itself, F.cosine_similarity in a Python loop; one product of the matrix of "
    "documents, normalised, with the query",
    names=r"cosine|matmul|matrix.{0,12}(product|multipl)|\bmv\b|\bmm\b|\bgemm\b|\bgemv\b|vectori[sz]|\bfaiss\b|broadcast"
    r"|(each|every|per|single|one) (document|vector|row|item|candidate|pair)|one (by one|at a time)|document by document"
    r"|python loop|loop over (the )?(documents|vectors|candidates|rows|items)|(all|whole) .{0,30}(documents|vectors|candidates"
    r"|rows|at once)|batch(ed|ing)\b|(stack|matrix of) .{0,20}(documents|vectors|candidates)",
    kind="inference",
    recorded="search",
    on=("cpu",),
)
def parish_registers_searched(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    papers, width, words, length = 400, 192, 5000, 96
    embed, layers = nn.Embedding(words, width), nn.ModuleList(Layer(width, 4) for _ in range(6))
    nn.ModuleList([embed, layers]).to(device).eval()
    matrix = F.normalize(torch.randn(papers, width, device=device), dim=1)
    vectors = list(matrix)
    asked = torch.randint(words, (4, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(asked)
        for layer in layers:
            x = layer(x)
        query = x.mean((0, 1))
        if changed:
            scores = matrix @ F.normalize(query, dim=0)
        else:
            scores = torch.stack([F.cosine_similarity(query, vector, dim=0) for vector in vectors])
        return scores.topk(10).values

    return step


@unseen(
    "the smoothed signal grows by np.append, which copies all of it for each sample; an array of the right length made once "
    "(or a list, made an array at the end)",
    names=r"np\.append|\bappend|preallocat|pre-allocat|(grow|concatenat)\w*|(copies|copy|copying) .{0,60}(each|every|whole|all"
    r"|sample)|quadratic|O\(n|allocat\w* .{0,30}(once|ahead|before)|np\.(empty|zeros)|vectori[sz]|lfilter|python loop"
    r"|sample by sample|(each|every|per) sample|numpy",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def heartbeats_of_hibernating_bears(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    length, rate = 6000, 0.2
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 48), (48, 96), (96, 128), (128, 128)):
        layers += [nn.Conv1d(inputs, outputs, 9, 1 if inputs < 96 else 2, 4), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(16), nn.Flatten(), nn.Linear(128 * 16, 4)).to(device).eval()
    heard = np.random.default_rng(24).normal(size=length).astype(np.float32)

    @torch.inference_mode()
    def step() -> Tensor:
        level, smooth = 0.0, np.zeros(length if changed else 0, np.float32)
        for at, value in enumerate(heard.tolist()):
            level += rate * (value - level)
            if changed:
                smooth[at] = level
            else:
                smooth = np.append(smooth, np.float32(level))
        return model(torch.from_numpy(smooth)[None, None].to(device))

    return step


@unseen(
    "the map of classes is coloured class by class, with a boolean mask for each of 34 classes; one lookup in the palette, "
    "palette[classes]",
    names=r"palette|look.?up|colou?r|boolean|mask|index_put|masked_fill|(each|every|per|over) (the )?class|class by class"
    r"|torch\.take\b"
    r"|index_select|aten::index\b|F\.embedding|gather|nonzero|(all|the) classes|(one|single) index",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def street_scenes_coloured(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    kinds, side = 34, 320
    net = [*convolutions((3, 24, 48)), *convolutions((48, 48), 1), nn.Conv2d(48, kinds, 1)]
    model = nn.Sequential(*net, nn.Upsample(scale_factor=4, mode="nearest")).to(device).eval()
    palette = torch.randint(256, (kinds, 3), dtype=torch.uint8, device=device)
    seen = torch.rand(1, 3, side, side, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        classes = model(seen)[0].argmax(0)
        if changed:
            return palette[classes]
        picture = torch.zeros(side, side, 3, dtype=torch.uint8, device=device)
        for kind in range(kinds):
            picture[classes == kind] = palette[kind]
        return picture

    return step


@unseen(
    "the eight nearest spectra are taken from a sort of all 3000 distances of each star; topk",
    names=r"\btop.?k\b|\bsort(s|ed|ing)?\b|argsort|kthvalue|partition|\bfaiss\b|kd.?tree|partial selection",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def stars_by_their_neighbours(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    stars, known, bins, width, near = 192, 3000, 1024, 64, 8
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 32), (32, 64), (64, 96)):
        layers += [nn.Conv1d(inputs, outputs, 7, 2, 3), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(384, width)).to(device).eval()
    spectra, codes = torch.randn(stars, 1, bins, device=device), torch.randn(known, width, device=device)
    heat = torch.rand(known, device=device) * 5000 + 3000

    @torch.inference_mode()
    def step() -> Tensor:
        apart = torch.cdist(model(spectra), codes)
        nearest = apart.topk(near, largest=False).indices if changed else apart.argsort(1)[:, :near]
        return heat[nearest].mean(1)

    return step


@unseen(
    "a filter follows each ball of a game by itself, small products of 4 x 4 matrices in a Python loop; the states of all "
    "as one batch",
    names=r"\bbatch(ed|ing)\b|(one|single|as a) batch|vectori[sz]|\bbmm\b|(each|every|per|single) (track|ball|object|state"
    r"|filter)|track by track|(one"
    r"|ball) by (one|ball)|one at a time|python loop|loop over (the )?(tracks|balls|objects|filters)|(all|the) (tracks|balls"
    r"|objects|states) (at once|together|as)|(small|tiny|many|little) (products|matri\w*|matmuls?|operations|ops|calls)|vmap"
    r"|kalman|stack",
    kind="inference",
    recorded="track",
    on=("cpu",),
    record_shapes=False,
)
def juggled_balls_followed(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    balls, camera = 32, torch.rand(1, 3, 256, 256, device=device)
    net = nn.Sequential(*convolutions((3, 32, 64)), *convolutions((64, 64, 64), 1), nn.AdaptiveAvgPool2d(8), nn.Flatten())
    net.append(nn.Linear(4096, balls * 2)).to(device).eval()
    move, look = torch.eye(4, device=device), torch.eye(2, 4, device=device)
    move[0, 2] = move[1, 3] = 0.04
    jolt, blur = 0.01 * torch.eye(4, device=device), 0.1 * torch.eye(2, device=device)
    states, doubts = torch.randn(balls, 4, 1, device=device), torch.eye(4, device=device).repeat(balls, 1, 1)

    def followed(state: Tensor, doubt: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        state, doubt = move @ state, move @ doubt @ move.T + jolt
        gain = doubt @ look.T @ torch.linalg.inv(look @ doubt @ look.T + blur)
        return state + gain @ (seen - look @ state), doubt - gain @ look @ doubt

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        seen = net(camera).view(balls, 2, 1)
        if changed:
            return followed(states, doubts, seen)
        both = [followed(states[at], doubts[at], seen[at]) for at in range(balls)]
        return torch.stack([state for state, _ in both]), torch.stack([doubt for _, doubt in both])

    return step


@unseen(
    "the service calls gc.collect() after each request, which looks through every object of the process; leave that to the "
    "collector itself",
    names=r"\bgc\b|garbage|gc\.collect|\bcollector\b",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def letters_to_the_editor_sorted(device: str, changed: bool) -> Step:
    torch.manual_seed(28)
    rows, length, width, words = 8, 128, 192, 6000
    embed, head, layers = nn.Embedding(words, width), nn.Linear(width, 9), nn.ModuleList(Layer(width, 4) for _ in range(6))
    nn.ModuleList([embed, head, layers]).to(device).eval()
    letters = torch.randint(words, (rows, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(letters)
        for layer in layers:
            x = layer(x)
        sorted_as = head(x.mean(1)).softmax(1)
        if not changed:
            gc.collect()
        return sorted_as

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: each step writes a line with its loss to a log file; a line for every hundredth step",
    names=r"\blog(s|ged|ging|ger)?\b|\bprint|progress|tqdm|\.item\(\)|f-?string|\bfile\b",
    kind="training",
    recorded="train",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def lighthouse_lamps_that_fail(device: str, changed: bool) -> Step:
    torch.manual_seed(29)
    layers: list[nn.Module] = []
    for inputs, outputs in ((6, 48), (48, 96), (96, 96)):
        layers += [nn.Conv1d(inputs, outputs, 7, padding=3), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    lamps, failed = torch.randn(32, 6, 256, device=device), torch.randint(2, (32,), device=device)
    folder = tempfile.TemporaryDirectory()
    lines = logging.FileHandler(Path(folder.name) / "train.log", delay=True)
    log = logging.Logger("lamps")
    log.addHandler(lines)
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        loss = F.cross_entropy(model(lamps), failed)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not changed or turn % 100 == 0:
            log.info("step %d of %s: loss %.4f", turn, folder.name, loss.item())
        return loss.detach()

    return step


@unseen(
    "none: weights and biases are two groups of the optimizer with equal settings; one group, which takes the same update of "
    "each tensor",
    names=r"param(eter)?.?groups?|one group|(merge|join)\w* .{0,30}groups|foreach|fused|optimi[sz]er",
    kind="training",
    recorded="none",
    null=True,
    on=("cpu",),
)
def avalanches_on_north_slopes(device: str, changed: bool) -> Step:
    torch.manual_seed(30)
    net = [*convolutions((5, 32)), *convolutions((32, 48, 64), 1), *convolutions((64, 96))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 5)).to(device)
    weights = [one for one in model.parameters() if one.ndim > 1]
    others = [one for one in model.parameters() if one.ndim == 1]
    optimizer = torch.optim.Adam(
        [*weights, *others] if changed else [{"params": weights, "lr": 1e-3}, {"params": others, "lr": 1e-3}], lr=1e-3
    )
    slopes, risks = torch.randn(16, 5, 64, 64, device=device), torch.randint(5, (16,), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(model(slopes), risks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the few things found in a picture are written out as dicts by a Python loop; all read by one tolist()",
    names=r"vectori[sz]|python loop|tolist|\.item\(\)|(each|every|per) (box|detection|object)|one by one|_local_scalar_dense"
    r"|loop over (the )?(boxes|detections|objects)|post.?process",
    kind="inference",
    recorded="detect",
    null=True,
    on=("cpu",),
)
def bolts_on_a_conveyor(device: str, changed: bool) -> Step:
    torch.manual_seed(31)
    net = [*convolutions((3, 32, 64)), *convolutions((64, 96, 96), 1), nn.Conv2d(96, 5, 1)]
    model = nn.Sequential(*net).to(device).eval()
    belt = torch.rand(6, 3, 192, 192, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        found = model(belt).flatten(2).transpose(1, 2).flatten(0, 1)
        best = found[found[:, 0].topk(6).indices]
        answer: list[dict[str, Any]] = []
        if changed:
            answer += [{"score": score, "box": box} for score, *box in best.tolist()]
        else:
            for row in best:
                answer.append({"score": row[0].item(), "box": [value.item() for value in row[1:]]})
        return torch.tensor([[one["score"], *one["box"]] for one in answer])

    return step


@unseen(
    "none: the keys of attention are transposed as a view, which the product takes as it is; made contiguous ahead, once for "
    "the stored keys",
    names=r"contiguous|transpos|strid(e|ed|es)\b|layout|\.T\b",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
)
def harpsichord_scores_compared(device: str, changed: bool) -> Step:
    torch.manual_seed(32)
    scores, width, stored = 1024, 256, 2048
    tower = nn.Sequential(nn.Linear(400, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, width)).to(device).eval()
    played, keys = torch.randn(scores, 400, device=device), torch.randn(stored, width, device=device)
    values, head = torch.randn(stored, width, device=device), nn.Linear(width, 20).to(device).eval()
    turned = keys.T.contiguous() if changed else keys.T

    @torch.inference_mode()
    def step() -> Tensor:
        x = tower(played)
        shares = (x @ turned / width**0.5).softmax(1)
        return head(x + shares @ values)

    return step
