"""A fourteenth set of small programs, for one GPU or two cores, with one performance fault each, written without a look at
the reader."""

from contextlib import nullcontext
from itertools import pairwise
import json
import math
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import convolutions, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


class Layer(nn.Module):
    """A layer of a transformer, normed ahead of each part."""

    def __init__(self, width: int, heads: int, dropout: float | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Identity() if dropout is None else nn.Dropout(dropout)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.drop(self.out(attended.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.second(x)))


# For one GPU, with a fault.


@unseen(
    "the loss of a detector is taken image by image in a Python loop, with the boxes that hold something picked by a "
    "boolean mask, for which the host waits; one masked loss over the whole batch",
    names=r"boolean mask|mask(ed)? (index|select)|nonzero|index_put|per.image|image by image|each image"
    r"|loop over (the )?(images?|batch|samples)|python loop|vectori[sz]|whole batch|batched loss|torch\.where|multiply.*mask",
    kind="training",
    recorded="step",
    with_stack=True,
)
def buoys_found_at_sea(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    images, size, kinds, anchors = small(32), small(512, 64), 5, 6
    trunk = nn.Sequential(
        *convolutions((3, 64)), *convolutions((64, 64), 1), *convolutions((64, 128, 256)), *convolutions((256, 256), 1)
    )
    trunk.extend(convolutions((256, 256)))
    where, what = nn.Conv2d(256, anchors * 4, 3, 1, 1), nn.Conv2d(256, anchors * kinds, 3, 1, 1)
    model = nn.ModuleList([trunk, where, what]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seas = torch.rand(images, 3, size, size, device=device)
    places = (size // 16) ** 2 * anchors
    labels = torch.where(torch.rand(images, places) < 0.02, torch.randint(1, kinds, (images, places)), 0)
    labels[:, 0] = 1
    labels = labels.to(device)
    boxes = torch.randn(images, places, 4, device=device)

    def step() -> Tensor:
        features = trunk(seas)
        offsets = where(features).permute(0, 2, 3, 1).reshape(images, -1, 4)
        logits = what(features).permute(0, 2, 3, 1).reshape(images, -1, kinds)
        if changed:
            full = labels > 0
            far = F.smooth_l1_loss(offsets, boxes, reduction="none").sum(2)
            loss = (far * full).sum() + F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            loss = loss / full.sum()
        else:
            loss, found = torch.zeros((), device=device), torch.zeros((), device=device)
            for image in range(images):
                full = labels[image] > 0
                loss = loss + F.smooth_l1_loss(offsets[image][full], boxes[image][full], reduction="sum")
                loss = loss + F.cross_entropy(logits[image], labels[image], reduction="sum")
                found = found + full.sum()
            loss = loss / found
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a speech encoder is trained in float32 throughout, without tensor cores; autocast to bfloat16",
    names=r"autocast|bfloat16|\bbf16|mixed precision|half precision|\bfp16|float16|tf32|set_float32_matmul_precision"
    r"|tensor cores?|lower precision|\bamp\b",
    kind="training",
    recorded="none",
)
def accents_told_apart(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    clips, frames, width = small(16), small(512, 16), small(512, 64)
    enter = nn.Conv1d(80, width, 5, 2, 2)
    layers, head = nn.Sequential(*(Layer(width, 8) for _ in range(6))), nn.Linear(width, 30)
    model = nn.ModuleList([enter, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    mels, accents = torch.randn(clips, 80, 2 * frames, device=device), torch.randint(30, (clips,), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16) if changed else nullcontext():
            states = layers(F.gelu(enter(mels)).transpose(1, 2))
            loss = F.cross_entropy(head(states.mean(1)).float(), accents)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "painted portraits are fetched to the host as float32, and scaled, clipped and made bytes there by numpy; made uint8 "
    "on the GPU, a quarter of the bytes to copy",
    names=r"uint8|\bbytes? (on the|before|there)|as bytes|quarter|on the (gpu|device).*(before|then|first)"
    r"|before (the copy|copying|fetching|transfer|\.cpu|moving)"
    r"|(scal|clip|clamp|convert|round|quanti[sz]|post.?process)\w* .*on the (gpu|device)|numpy|(fewer|less) (bytes|data)",
    kind="inference",
    recorded="render",
)
def portraits_painted(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    rows, side = small(8), small(64, 8)
    layers: list[nn.Module] = [nn.Conv2d(16, 512, 3, padding=1)]
    for inputs, outputs in pairwise((512, 256, 128, 64)):
        layers += [nn.GroupNorm(16, inputs), nn.SiLU(), nn.Conv2d(inputs, inputs, 3, padding=1)]
        layers += [nn.SiLU(), nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, padding=1)]
    layers += [nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1), nn.Tanh()]
    model = nn.Sequential(*layers).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    ideas = torch.randn(rows, 16, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        painted = model(ideas)
        if changed:
            return painted.float().add(1).mul(127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu()
        on_host = painted.float().permute(0, 2, 3, 1).cpu().numpy()
        return torch.from_numpy(np.round((on_host + 1) * 127.5).clip(0, 255).astype(np.uint8))

    return step


@unseen(
    "the target networks follow by way of state dicts: each entry is mixed from two and the whole is loaded again, some "
    "launches a tensor; torch._foreach_lerp_ over all parameters in place",
    names=r"foreach|lerp|state_dict|soft update|target net|polyak|moving average|\bema\b|(in|on) place.*(target|parameter)"
    r"|parameter by parameter|(one|each) (parameter|tensor) (at a time|by itself)|multi.?tensor|(param\w*"
    r"|weight\w*) .*(loop|one by one)",
    kind="training",
    recorded="step",
)
def quadruped_learns_to_trot(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, seen, moves, width = small(512), 48, 12, 256

    def net(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for wide in (inputs, width, width):
            layers += [nn.Linear(wide, width), nn.LayerNorm(width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, outputs))

    online = nn.ModuleDict({"actor": net(seen, moves), "one": net(seen + moves, 1), "two": net(seen + moves, 1)}).to(device)
    target = nn.ModuleDict({"actor": net(seen, moves), "one": net(seen + moves, 1), "two": net(seen + moves, 1)}).to(device)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    critics = torch.optim.Adam([*online["one"].parameters(), *online["two"].parameters()], lr=3e-4, fused=True)
    actor = torch.optim.Adam(online["actor"].parameters(), lr=3e-4, fused=True)
    before, after = torch.randn(2, rows, seen, device=device)
    done, rewards = torch.rand(rows, moves, device=device) * 2 - 1, torch.randn(rows, 1, device=device)
    new_weights, old_weights = (list[Tensor](net.parameters()) for net in (online, target))

    def step() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            following = torch.cat([after, target["actor"](after).tanh()], 1)
            aim = rewards + 0.99 * torch.minimum(target["one"](following), target["two"](following))
        pair = torch.cat([before, done], 1)
        loss = F.mse_loss(online["one"](pair), aim) + F.mse_loss(online["two"](pair), aim)
        critics.zero_grad()
        loss.backward()
        critics.step()
        gain = online["one"](torch.cat([before, online["actor"](before).tanh()], 1)).mean()
        actor.zero_grad()
        (-gain).backward()
        actor.step()
        with torch.no_grad():
            if changed:
                torch._foreach_lerp_(old_weights, new_weights, 0.005)
            else:
                new, old = online.state_dict(), target.state_dict()
                for key in new:
                    old[key] = new[key] * 0.005 + old[key] * 0.995
                target.load_state_dict(old)
        return loss.detach(), old_weights[0]

    return step


@unseen(
    "the codebook's counts and sums are taken by a one-hot matrix of all codes, mostly zeros, and its product with the features; "
    "index_add (scatter_add, bincount) by the codes",
    names=r"one.?hot|index_add|scatter|bincount|mostly zeros|segment",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def mosaics_from_a_codebook(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    pictures, size, width, codes = small(32), 128, small(256, 32), small(4096, 64)
    coder = nn.Sequential(*convolutions((3, 128, 256)), *convolutions((256, 256), 1), nn.Conv2d(256, width, 1)).to(device)
    painter = nn.Sequential(
        *(nn.Conv2d(width, 256, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU()),
        nn.ConvTranspose2d(128, 3, 4, 2, 1),
    ).to(device)
    optimizer = torch.optim.Adam([*coder.parameters(), *painter.parameters()], lr=1e-4, fused=True)
    mosaics = torch.rand(pictures, 3, size, size, device=device)
    with torch.no_grad():
        flat = coder(mosaics).permute(0, 2, 3, 1).flatten(0, 2)
        book = flat[torch.randperm(len(flat))[:codes].to(device)] + 0.01 * torch.randn(codes, width, device=device)
    uses, sums = torch.ones(codes, device=device), book.clone()

    def step() -> tuple[Tensor, Tensor]:
        features = coder(mosaics).permute(0, 2, 3, 1)
        with torch.no_grad():
            flat = features.flatten(0, 2)
            code = (book.square().sum(1) - 2 * flat @ book.T).argmin(1)
            if changed:
                count = torch.zeros(codes, device=device).index_add_(0, code, torch.ones(len(code), device=device))
                total = torch.zeros(codes, width, device=device).index_add_(0, code, flat)
            else:
                chosen = F.one_hot(code, codes).to(flat.dtype)
                count, total = chosen.sum(0), chosen.T @ flat
            uses.lerp_(count, 0.01)
            sums.lerp_(total, 0.01)
        nearest = F.embedding(code, book).view_as(features)
        loss = 0.25 * F.mse_loss(features, nearest)
        through = features + (nearest - features).detach()
        loss = loss + F.mse_loss(painter(through.permute(0, 3, 1, 2)), mosaics)
        with torch.no_grad():
            book.copy_(sums / (uses[:, None] + 1e-5))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), uses

    return step


class Visits(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Visits to a shop, each a line of JSON, which is read when asked for."""

    def __init__(self, visits: int, fields: int, articles: int) -> None:
        rng = np.random.default_rng(6)
        ids, numbers = rng.integers(articles, size=(visits, fields)).tolist(), rng.random((visits, 13)).round(4).tolist()
        self.lines = [
            json.dumps(
                {"bought": at % 7 == 0, "fields": {f"field_{i}": n for i, n in enumerate(ids[at])}, "numbers": numbers[at]}
            )
            for at in range(visits)
        ]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor, Tensor]:
        visit = json.loads(self.lines[at])
        fields = visit["fields"]
        ids = torch.tensor([fields[f"field_{i}"] for i in range(len(fields))])
        return ids, torch.tensor([math.log1p(n) for n in visit["numbers"]]), torch.tensor(float(visit["bought"]))


@unseen(
    "each line of JSON is read and made tensors in the training process, for which the GPU waits; num_workers=6 (or read once, "
    "before the training)",
    names=r"num_workers|worker|DataLoader|data.?load|prefetch|background|json|pars(e|ing)|preprocess|__getitem__|input pipeline",
    kind="training",
    recorded="step",
)
def visits_that_end_in_a_purchase(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    fields, articles, width = 26, 20_000, small(64, 16)
    workers: dict[str, Any] = {"num_workers": 6 if SCALE == 1 else 1, "persistent_workers": True} if changed else {}
    order = torch.Generator().manual_seed(6)
    loader = DataLoader(
        Visits(small(40960, 64), fields, articles), small(512, 8), shuffle=True, drop_last=True, generator=order, **workers
    )
    table = nn.Embedding(fields * articles, width, sparse=True).to(device)
    below = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width)).to(device)
    wide = small(4096, 64)
    above = nn.Sequential(
        *(nn.Linear((fields + 1) * width, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()),
        *(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 1)),
    ).to(device)
    rows = torch.optim.SGD(table.parameters(), lr=0.01)
    optimizer = torch.optim.Adam([*below.parameters(), *above.parameters()], lr=1e-3, fused=True)
    first = torch.arange(fields, device=device) * articles
    batches = endless(loader)

    def step() -> Tensor:
        ids, numbers, bought = (part.to(device) for part in next(batches))
        x = torch.cat([table(ids + first), below(numbers)[:, None]], 1).flatten(1)
        loss = F.binary_cross_entropy_with_logits(above(x)[:, 0], bought)
        loss.backward()
        rows.step()
        optimizer.step()
        rows.zero_grad()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Adapted(nn.Module):
    """A linear layer beside which a low-rank adapter runs, or into which it was merged."""

    def __init__(self, inputs: int, outputs: int, rank: int, merged: bool) -> None:
        super().__init__()
        self.base, self.merged, self.scale = nn.Linear(inputs, outputs, bias=False), merged, 2.0
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        if merged:
            with torch.no_grad():
                self.base.weight += self.scale * self.up.weight @ self.down.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) if self.merged else self.base(x) + self.up(self.down(x)) * self.scale


class AdaptedLayer(nn.Module):
    """A layer of a language model that keeps the keys and values of past tokens, with adapters everywhere."""

    def __init__(self, width: int, heads: int, merged: bool) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (Adapted(width, width, 16, merged) for _ in range(4))
        self.gate, self.up, self.down = (
            Adapted(*sizes, 16, merged) for sizes in ((width, 3 * width), (width, 3 * width), (3 * width, width))
        )

    def forward(self, x: Tensor, past: Tensor, at: int) -> Tensor:
        y = self.first(x)
        past[0, :, :, at] = self.k(y).view(len(x), self.heads, -1)
        past[1, :, :, at] = self.v(y).view(len(x), self.heads, -1)
        q = self.q(y).view(len(x), self.heads, 1, -1)
        attended = F.scaled_dot_product_attention(q, past[0, :, :, : at + 1], past[1, :, :, : at + 1])
        x = x + self.out(attended.flatten(1)[:, None])
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@unseen(
    "the low-rank adapters of a tuned language model run beside each linear layer, four short kernels more for each; merged into "
    "the weights once, after loading",
    names=r"merg|\blora\b|low.?rank|adapter|fold(ed|ing)? .*weight|(extra|side|parallel|additional) (branch|path|linear|product)",
    kind="inference",
    recorded="letter",
    record_shapes=False,
)
def letters_in_house_style(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    width, heads, tokens, filled = small(1024, 64), 8, 4, small(200)
    layers = nn.ModuleList(AdaptedLayer(width, heads, changed) for _ in range(16 if SCALE == 1 else 2))
    layers = layers.to(device=device, dtype=low(device)).eval().requires_grad_(False)
    embed = nn.Embedding(8000, width, device=device, dtype=low(device))
    pasts = torch.randn(len(layers), 2, 1, heads, filled + tokens, width // heads, device=device, dtype=low(device))
    letter = torch.randint(8000, (1, tokens), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = []
        for token in range(tokens):
            x = embed(letter[:, token : token + 1])
            for at, layer in enumerate(layers):
                x = layer(x, pasts[at], filled + token)
            scores.append((x[:, 0] @ embed.weight.T).float().log_softmax(1))
        return torch.stack(scores)

    return step


@unseen(
    "the rotary tables are float32, so queries and keys become float32 by them, and attention in a bfloat16 model runs in "
    "float32; the tables (or the turned queries and keys) in the model's type",
    names=r"rotary|\brope\b|promot|upcast|cos\w* .*sin|(queries|keys|\bq\b|attention) .*(float32|fp32|bfloat16|bf16)"
    r"|(float32|fp32).* attention|flash|(fmha|efficient.?attention).*(float32|fp32)|cast.*(bfloat16|bf16|float32)",
    kind="inference",
    recorded="none",
)
def statutes_read_at_once(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    rows, length, width, heads = 2, small(2048, 32), small(2048, 64), 16
    layers = [Layer(width, heads).to(device=device, dtype=torch.bfloat16).eval() for _ in range(6)]
    embed = nn.Embedding(8000, width, device=device, dtype=torch.bfloat16)
    size = width // heads
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size)).to(device)
    cosines, sines = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    if changed:
        cosines, sines = cosines.bfloat16(), sines.bfloat16()
    statutes = torch.randint(8000, (rows, length), device=device)

    def turned(x: Tensor) -> Tensor:
        half = torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1)
        return x * cosines + half * sines

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(statutes)
        for layer in layers:
            q, k, v = layer.turn(layer.first(x)).unflatten(2, (3, heads, size)).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = turned(q), turned(k)
            attended = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True).to(x.dtype)
            x = x + layer.out(attended.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.second(x))
        return x[:, -1] @ embed.weight.T

    return step


@unseen(
    "camera frames are made float32 and shrunk on the host, and only then copied to the GPU; the bytes copied, converted "
    "and shrunk on the GPU",
    names=r"(resiz|shrink|shrunk|interpolat|upsample\w*|scal|normali[sz]|convert|pre.?process)\w*\b.*(on|to) the (gpu|device)"
    r"|(on|by) the (host|cpu).*(resiz|shrink|shrunk|interpolat|upsample|convert|pre.?process)|uint8|as bytes"
    r"|(resiz|shrink|shrunk|interpolat|upsample|pre.?process)\w*\b.*(on|by) the (host|cpu)|copy the bytes|host.side pre.?process",
    kind="inference",
    recorded="frames",
    with_stack=True,
)
def lorries_counted_at_junctions(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    frames = torch.randint(256, (4, 3, small(720, 64), small(1280, 64)), dtype=torch.uint8)
    if device != "cpu":
        frames = frames.pin_memory()
    size = (small(384, 32), small(672, 32))
    layers = convolutions((3, 128))
    for wide in (128, 256, 512):
        layers += convolutions((wide,) * (7 if SCALE == 1 else 2), 1)
        layers += convolutions((wide, 2 * wide)) if wide < 512 else [nn.Conv2d(512, 8, 1)]
    model = nn.Sequential(*layers).to(device, low(device)).to(memory_format=torch.channels_last).eval()

    @torch.inference_mode()
    def step() -> Tensor:
        x = frames.to(device, non_blocking=True) if changed else frames
        x = F.interpolate(x.float() / 255, size, mode="bilinear", align_corners=False)
        x = x.to(device, low(device), non_blocking=True).contiguous(memory_format=torch.channels_last)
        return model(x).float().sigmoid().sum((2, 3)).cpu()

    return step


@unseen(
    "the names of all plants go through the text encoder again for each batch of pictures, though they stay the same; "
    "encoded once, their vectors kept",
    names=r"cach|(text|names?|labels?|classes|prompts?|captions?)\b.*(once|again|each batch|every (batch|call|step)|same"
    r"|ahead|keep|kept|reus)"
    r"|(once|again|reus\w*|precomput\w*).*(text|names|labels|classes|prompts|vectors|embeddings)|precomput|recomput"
    r"|same (input|result|work)",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def herbarium_sheets_named(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    names, tokens, narrow = small(1000, 8), 24, small(512, 32)
    sheets, width, patch = small(64), small(768, 32), 16
    reader = nn.Sequential(*(Layer(narrow, 8) for _ in range(6)))
    viewer = nn.Sequential(*(Layer(width, 4 if width < 256 else 12) for _ in range(12 if SCALE == 1 else 2)))
    words, cut = nn.Embedding(5000, narrow), nn.Conv2d(3, width, patch, patch)
    to_text, to_image = nn.Linear(narrow, narrow), nn.Linear(width, narrow)
    nn.ModuleList([reader, viewer, words, cut, to_text, to_image]).to(device=device, dtype=low(device)).eval()
    plants = torch.randint(5000, (names, tokens), device=device)
    pictures = torch.randn(sheets, 3, 224, 224, device=device, dtype=low(device))

    def vectors() -> Tensor:
        return F.normalize(to_text(reader(words(plants))[:, -1]), dim=1)

    with torch.inference_mode():
        kept = vectors()

    @torch.inference_mode()
    def step() -> Tensor:
        seen = F.normalize(to_image(viewer(cut(pictures).flatten(2).transpose(1, 2)).mean(1)), dim=1)
        return (100 * seen @ (kept if changed else vectors()).T).float().softmax(1).topk(5 if names >= 5 else 1).values

    return step


@unseen(
    "a planner rolls a small model of the arm out step by step, many short kernels that wait for the host to launch them; a CUDA "
    "graph of the whole plan, replayed",
    names=r"cuda.?graphs?|graph (capture|replay)|reduce-overhead|launch.?bound|launch overhead|max-autotune|make_graphed"
    r"|torch\.compile|fus(e|ed|ing|ion)",
    kind="inference",
    recorded="plan",
)
def gripper_path_planned(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    paths, horizon, rounds, moves, parts = small(512), small(24), 3, 7, 21
    model = nn.Sequential(nn.Linear(parts + moves, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, parts))
    model.to(device).eval().requires_grad_(False)
    noise = 0.3 * torch.randn(rounds, horizon, paths, moves, device=device)
    start, goal = torch.randn(2, parts, device=device)
    known = start.clone()

    def plan() -> Tensor:
        mean = torch.zeros(horizon, 1, moves, device=device)
        for chance in range(rounds):
            tried = (mean + noise[chance]).clamp(-1, 1)
            state, cost = known.expand(paths, parts), torch.zeros(paths, device=device)
            for at in range(horizon):
                state = state + 0.1 * model(torch.cat([state, tried[at]], 1))
                cost = cost + (state - goal).square().sum(1) + 0.01 * tried[at].square().sum(1)
            shares = (-(cost - cost.min()) / 4).softmax(0)
            mean = (shares[:, None] * tried).sum(1, keepdim=True)
        return mean[:, 0]

    if not changed or device == "cpu":

        @torch.no_grad()
        def step() -> Tensor:
            known.copy_(start)
            return plan()

        return step

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            plan()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        planned = plan()

    def replay() -> Tensor:
        known.copy_(start)
        graph.replay()
        return planned.clone()

    return replay


@unseen(
    "each layer of a network of laser points looks for the nearest neighbours again, by the same positions; once, for all layers",
    names=r"(neighbou?rs?|k-?nn|cdist|topk|top-k|distances?|graph|positions)\b.*(once|again|each layer|every layer"
    r"|per layer|same|reus|cach|shar|redundan|repeat)"
    r"|(once|again|reus\w*|cach\w*|redundan\w*|recomput\w*|repeat\w*|shar\w*)\b.*(neighbou?rs?|k-?nn|cdist|topk|top-k"
    r"|distances?|layers)|same inputs?",
    kind="training",
    recorded="update",
    with_stack=True,
)
def terrain_types_from_laser(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    clouds, points, near, width = small(4), small(4096, 32), 16, 64
    enter, head = nn.Linear(4, width), nn.Linear(width, 9)
    mixes = nn.ModuleList(nn.Sequential(nn.Linear(2 * width + 3, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(4))
    model = nn.ModuleList([enter, head, mixes]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    places, bright = torch.rand(clouds, points, 3, device=device) * 50, torch.rand(clouds, points, 1, device=device)
    kinds = torch.randint(9, (clouds * points,), device=device)
    first = (torch.arange(clouds, device=device) * points)[:, None, None]

    def neighbours() -> Tensor:
        return (torch.cdist(places, places).topk(near, largest=False).indices + first).flatten()

    def step() -> Tensor:
        flat = places.flatten(0, 1)
        x = enter(torch.cat([places, bright], 2).flatten(0, 1))
        found = neighbours() if changed else None
        for mix in mixes:
            index = neighbours() if found is None else found
            there = x.index_select(0, index).view(-1, near, width)
            far = flat.index_select(0, index).view(-1, near, 3) - flat[:, None]
            here = x[:, None].expand_as(there)
            x = x + mix(torch.cat([here, there, far], 2)).amax(1)
        loss = F.cross_entropy(head(x), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the loss is read with item() after each step for the progress bar, so that the host masks the next batch only when "
    "the GPU has finished; kept on the GPU, and read every fiftieth step",
    names=r"\bitem\b|\.item|_local_scalar_dense|synchroni[sz]|(read|log|fetch|print|show)\w* .*(loss|less often"
    r"|every \w+ step|now and then)"
    r"|loss .*(read|log|fetch|on the (gpu|device)|less often|every)|host waits|waits for the gpu|progress",
    kind="training",
    recorded="step",
)
def enzymes_with_masked_residues(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, length, width = small(64), small(256, 16), small(512, 32)
    rng = np.random.default_rng(13)
    enzymes = [rng.integers(4, 24, size=rng.integers(length, 3 * length)) for _ in range(1000)]
    embed, place, head = nn.Embedding(25, width), nn.Embedding(length, width), nn.Linear(width, 25)
    layers = nn.Sequential(*(Layer(width, 8) for _ in range(6 if SCALE == 1 else 2)))
    model = nn.ModuleList([embed, place, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    at = torch.arange(length, device=device)
    shown, total, steps = "", torch.zeros((), device=device), 0

    def batch() -> tuple[Tensor, Tensor]:
        inputs, aims = np.zeros((rows, length), np.int64), np.full((rows, length), -100, np.int64)
        for row, chosen in enumerate(rng.integers(len(enzymes), size=rows)):
            enzyme = enzymes[chosen]
            start = rng.integers(len(enzyme) - length + 1)
            inputs[row] = enzyme[start : start + length]
            hidden = rng.choice(length, size=length // 7, replace=False)
            aims[row, hidden] = inputs[row, hidden]
            kept, swapped = rng.random(len(hidden)) < 0.1, rng.random(len(hidden)) < 0.1
            new = np.where(swapped, rng.integers(4, 24, size=len(hidden)), 3)
            inputs[row, hidden] = np.where(kept, inputs[row, hidden], new)
        both = torch.from_numpy(np.stack([inputs, aims]))
        sent = both.to(device) if device == "cpu" else both.pin_memory().to(device, non_blocking=True)
        return sent[0], sent[1]

    def step() -> Tensor:
        nonlocal shown, steps
        inputs, aims = batch()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            logits = head(layers(embed(inputs) + place(at)))
        loss = F.cross_entropy(logits.float().flatten(0, 1), aims.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        if changed:
            total.add_(loss.detach())
            if steps % 50 == 0:
                shown = f"loss {total.item() / 50:.3f}"
                total.zero_()
        else:
            shown = f"loss {loss.item():.3f}"
        return loss.detach()

    return step


# For one GPU, with a change that brings nothing.


@unseen(
    "none: the dropout layers of a model in eval mode, which hand their input on; taken out",
    names=r"dropout",
    kind="inference",
    recorded="none",
    null=True,
)
def hymns_sorted_by_mood(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, length, width = small(24), small(512, 16), small(1024, 64)
    layers = nn.Sequential(*(Layer(width, 16, None if changed else 0.1) for _ in range(8)))
    embed, head = nn.Embedding(6000, width), nn.Linear(width, 12)
    nn.ModuleList([layers, embed, head]).to(device=device, dtype=low(device)).eval()
    hymns = torch.randint(6000, (rows, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        return head(layers(embed(hymns)).mean(1)).float().softmax(1)

    return step


@unseen(
    "none: the class token of an image transformer is repeated for each picture, a few kilobytes; expand",
    names=r"\bexpand|aten::repeat\b|\.repeat\b|class token",
    kind="inference",
    recorded="classify",
    null=True,
    profile_memory=True,
)
def beetles_in_drawers(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    pictures, width, patch = small(96), small(768, 64), 16
    cut, head = nn.Conv2d(3, width, patch, patch), nn.Linear(width, 400)
    layers = nn.Sequential(*(Layer(width, 4 if width < 256 else 12) for _ in range(8 if SCALE == 1 else 2)))
    nn.ModuleList([cut, head, layers]).to(device=device, dtype=low(device)).eval()
    token = nn.Parameter(torch.randn(1, 1, width, device=device, dtype=low(device)))
    places = nn.Parameter(torch.randn(1, 197, width, device=device, dtype=low(device)))
    beetles = torch.randn(pictures, 3, 224, 224, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        first = token.expand(pictures, -1, -1) if changed else token.repeat(pictures, 1, 1)
        x = torch.cat([first, cut(beetles).flatten(2).transpose(1, 2)], 1) + places
        return head(layers(x)[:, 0]).float().softmax(1)

    return step


@unseen(
    "none: a scheduler sets the learning rate after each batch, a little arithmetic in Python while the GPU is busy; once "
    "an epoch",
    names=r"lr_scheduler|scheduler|learning.rate|\blr\b",
    kind="training",
    recorded="step",
    null=True,
    with_stack=True,
)
def glazes_judged_by_photo(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    photos, size = small(64), small(256, 32)
    layers = [*convolutions((3, 64)), *convolutions((64, 64), 1), *convolutions((64, 128)), *convolutions((128, 128), 1)]
    layers += [*convolutions((128, 256)), *convolutions((256, 256), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 20)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)
    pots, glazes = torch.rand(photos, 3, size, size, device=device), torch.randint(20, (photos,), device=device)
    steps = 0

    def step() -> Tensor:
        nonlocal steps
        loss = F.cross_entropy(model(pots), glazes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        if not changed or steps % 1000 == 0:
            schedule.step()
        return loss.detach()

    return step


@unseen(
    "none: the grid of coordinates that a network gets beside the picture is built on the GPU in each step, half a megabyte; "
    "once, kept as a buffer",
    names=r"meshgrid|linspace|register_buffer|coordinate",
    kind="training",
    recorded="none",
    null=True,
)
def galaxies_outlined(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    pictures, size = small(24), small(256, 32)
    layers = [*convolutions((5, 48)), *convolutions((48, 96, 96), 1), *convolutions((96, 192)), *convolutions((192, 192), 1)]
    model = nn.Sequential(*layers, nn.Conv2d(192, 16, 1), nn.PixelShuffle(4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sky = torch.rand(pictures, 3, size, size, device=device)
    outlines = (torch.rand(pictures, 1, size, size, device=device) < 0.3).float()

    def grid() -> Tensor:
        line = torch.linspace(-1, 1, size, device=device)
        return torch.stack(torch.meshgrid(line, line, indexing="ij"))

    kept = grid()

    def step() -> Tensor:
        places = (kept if changed else grid()).expand(pictures, -1, -1, -1)
        loss = F.binary_cross_entropy_with_logits(model(torch.cat([sky, places], 1)), outlines)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the losses of four tasks are weighted and added in Python, a few numbers; stacked, and multiplied by a tensor "
    "of weights",
    names=r"\bstack|(four|several|task) losses|weights? of the (losses|tasks)|(sum|add|combin)\w* .*losses",
    kind="training",
    recorded="train",
    null=True,
    record_shapes=False,
)
def catalysts_with_four_traits(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, atoms, width = small(192), small(128, 8), small(640, 64)
    enter, layers = nn.Linear(16, width), nn.Sequential(*(Layer(width, 10 if width == 640 else 8) for _ in range(6)))
    heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(4))
    model = nn.ModuleList([enter, layers, heads]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    features, traits = torch.randn(rows, atoms, 16, device=device), torch.randn(4, rows, 1, device=device)
    shares = (1.0, 0.5, 0.25, 0.1)
    weights = torch.tensor(shares, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = layers(enter(features)).mean(1)
            guesses = [head(x) for head in heads]
        losses = [F.mse_loss(guess.float(), trait) for guess, trait in zip(guesses, traits, strict=True)]
        if changed:
            loss = (torch.stack(losses) * weights).sum()
        else:
            loss = sum((share * part for share, part in zip(shares, losses, strict=True)), torch.zeros((), device=device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


# For two cores, with a fault.


@unseen(
    "the distances of two domains' features are taken from the differences of all pairs, a tensor of pairs x features; by "
    "a product (or torch.cdist)",
    names=r"cdist|matrix product|matmul.*(distance|instead|pair)|\bgram\b|broadcast|(differences?|all) .*pairs|pairwise"
    r"|large (temporar|intermediate)\w*|x\^2|dot product",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def transformers_heard_in_two_plants(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    rows, inputs, width = 128, 256, 24
    coder = nn.Sequential(nn.Linear(inputs, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, width)).to(device)
    head = nn.Linear(width, 5).to(device)
    optimizer = torch.optim.SGD([*coder.parameters(), *head.parameters()], lr=0.01)
    here, there = torch.randn(rows, inputs, device=device), torch.randn(rows, inputs, device=device) + 0.3
    faults = torch.randint(5, (rows,), device=device)

    def step() -> Tensor:
        x = coder(torch.cat([here, there]))
        if changed:
            squares = x.square().sum(1)
            far = (squares[:, None] + squares - 2 * x @ x.T).clamp(min=0)
        else:
            far = (x[:, None] - x[None]).square().sum(2)
        wide = far.detach().mean()
        alike = sum((torch.exp(-far / (wide * scale)) for scale in (0.5, 1.0, 2.0)), torch.zeros((), device=device))
        apart = alike[:rows, :rows].mean() + alike[rows:, rows:].mean() - 2 * alike[:rows, rows:].mean()
        loss = F.cross_entropy(head(x[:rows]), faults) + 0.5 * apart
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "np.random.choice without replacement permutes the numbers of all 300000 memories to draw 256; numpy's new Generator, or "
    "numbers with replacement (integers, randint)",
    names=r"\bchoice\b|replace(ment)?\b|permut|default_rng|Generator|randint|rng\.integers|random\.sample|randperm|sampl(e|ing) "
    r"|draw\w* .*(batch|memor|numbers|indices)",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def greenhouse_vents_learn(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    memories, size, rows, moves = 300_000, 24, 256, 5
    before, after = torch.randn(memories, size, device=device), torch.randn(memories, size, device=device)
    done, rewards = torch.randint(moves, (memories,), device=device), torch.rand(memories, device=device)
    value, target = (
        nn.Sequential(nn.Linear(size, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, moves)).to(device)
        for _ in "ab"
    )
    target.load_state_dict(value.state_dict())
    optimizer = torch.optim.SGD(value.parameters(), lr=1e-3)
    old, new = np.random.RandomState(20), np.random.default_rng(20)

    def step() -> Tensor:
        numbers = new.choice(memories, rows, replace=False) if changed else old.choice(memories, rows, replace=False)
        drawn = torch.from_numpy(numbers).to(device)
        with torch.no_grad():
            aim = rewards[drawn] + 0.98 * target(after[drawn]).amax(1)
        loss = F.smooth_l1_loss(value(before[drawn]).gather(1, done[drawn, None])[:, 0], aim)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "each word of a question is looked for in the list of 5000 words from its start (list.index); a dict from word to number",
    names=r"\bdict(ionary)?\b|hash|\blist\b.*(search|index|scan|lookup|look)|\.index\b|list\.index|linear (search|scan)"
    r"|look.?ups?|vocabulary|tokeni[sz]|python (code|work|between|on the host)|host.side python",
    kind="inference",
    recorded="answer",
    on=("cpu",),
    with_stack=True,
)
def tenants_questions_routed(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    words = [f"{'aeiou'[at % 5]}{at * 7919 % 99991}" for at in range(5000)]
    numbers = {word: at for at, word in enumerate(words)}
    questions = [" ".join(words[at] for at in rng.integers(5000, size=10)) for _ in range(16)]
    embed, read, head = nn.Embedding(5000, 192), nn.GRU(192, 448, batch_first=True), nn.Linear(448, 40)
    nn.ModuleList([embed, read, head]).to(device).eval()

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            rows = [[numbers[word] for word in question.split()] for question in questions]
        else:
            rows = [[words.index(word) for word in question.split()] for question in questions]
        states, _ = read(embed(torch.tensor(rows, device=device)))
        return head(states.amax(1)).softmax(1)

    return step


@unseen(
    "a manual is read window by window, each by itself through a small transformer; all windows as one batch",
    names=r"\bbatch(ed|ing|es)\b|(one|single|larger|bigger|same|small) batch|batch (size|of|all|them|the)\b"
    r"|one by one|one at a time|window by window|each window|(all|several) windows|\bstack|windows .*together",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def manuals_searched_for_answers(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    windows, length, width = 24, 24, 96
    embed, layers, head = nn.Embedding(4000, width), nn.Sequential(*(Layer(width, 4) for _ in range(3))), nn.Linear(width, 2)
    nn.ModuleList([embed, layers, head]).to(device).eval()
    manual = torch.randint(4000, (windows, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            return head(layers(embed(manual))).log_softmax(1)
        return torch.cat([head(layers(embed(window[None]))).log_softmax(1) for window in manual])

    return step


@unseen(
    "recall is counted listener by listener in Python, with a set of the best podcasts and one of those heard; all at "
    "once, the hits gathered from a table of what was heard",
    names=r"vectori[sz]|gather|\bisin\b|listener by listener|(each|per|every) (listener|user)|user by user"
    r"|loop over (the )?(listeners|users)"
    r"|python (loop|sets?\b)|set intersection|all (at once|users|listeners)|tolist|in batches|topk .*(once|whole|all)|batched",
    kind="inference",
    recorded="evaluate",
    on=("cpu",),
    record_shapes=False,
)
def podcasts_recalled(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    listeners, podcasts, width, best = 256, 4000, 64, 20
    likes, tower = (
        torch.randn(listeners, 128, device=device),
        nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, width)),
    )
    tower.to(device).eval()
    vectors = torch.randn(podcasts, width, device=device)
    heard = torch.stack([torch.randperm(podcasts)[:30] for _ in range(listeners)])
    table = torch.zeros(listeners, podcasts, dtype=torch.bool).scatter_(1, heard, True).to(device)
    heard = heard.to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = tower(likes) @ vectors.T
        if changed:
            hits = table.gather(1, scores.topk(best).indices).sum(1)
            return (hits / 30).mean()
        recalls = []
        for listener in range(listeners):
            top = set(scores[listener].topk(best).indices.tolist())
            recalls.append(len(top & set(heard[listener].tolist())) / 30)
        return torch.tensor(sum(recalls) / listeners)

    return step


@unseen(
    "stations without features get the identity matrix as such, and the first layer multiplies by it; the layer's weight itself "
    "(an embedding)",
    names=r"identity|\beye\b|one.?hot|embedding|weight itself|look.?up|(skip|leave out|drop) .*(product|matmul|multipl)|sparse",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def metro_stations_by_role(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    stations, lines, width = 1100, 4000, 96
    first = nn.Linear(stations, width, bias=False).to(device)
    layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2)).to(device)
    head = nn.Linear(width, 7).to(device)
    optimizer = torch.optim.SGD([*first.parameters(), *layers.parameters(), *head.parameters()], lr=0.05)
    source, goal = torch.randint(stations, (2, lines), device=device)
    count = torch.bincount(goal, minlength=stations).clamp(min=1)[:, None]
    features, roles = torch.eye(stations, device=device), torch.randint(7, (stations,), device=device)

    def step() -> Tensor:
        x = (first.weight.T if changed else first(features)).relu()
        for layer in layers:
            near = torch.zeros_like(x).index_add(0, goal, x.index_select(0, source)) / count
            x = x + layer(torch.cat([x, near], 1)).relu()
        loss = F.cross_entropy(head(x), roles)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the derivatives of the head by each coordinate are asked for with a call of autograd.grad each, a pass back through "
    "the whole network every time; one call for all coordinates",
    names=r"autograd\.grad|(one|single|same) (call|backward|pass|grad)|(each|every|per) coordinate|all (the )?(coordinates"
    r"|inputs|derivatives)"
    r"|coordinates? .*(together|once|by itself|at once)|several backward|backward pass\w* .*(times|once|each|again)"
    r"|forward.mode|\bjvp\b|jacfwd",
    kind="training",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def aquifer_heads_from_equation(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    points, width = 384, 96
    layers: list[nn.Module] = [nn.Linear(3, width), nn.Tanh()]
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y, t = (torch.rand(points, 1, device=device, requires_grad=True) for _ in range(3))

    def step() -> Tensor:
        head = model(torch.cat([x, y, t], 1)).sum()
        if changed:
            by_x, by_y, by_t = torch.autograd.grad(head, (x, y, t), create_graph=True)
        else:
            by_x, by_y, by_t = (torch.autograd.grad(head, at, create_graph=True)[0] for at in (x, y, t))
        (twice_x,) = torch.autograd.grad(by_x.sum(), x, create_graph=True)
        (twice_y,) = torch.autograd.grad(by_y.sum(), y, create_graph=True)
        loss = (by_t - 0.3 * (twice_x + twice_y) - torch.sin(3 * x.detach())).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "series are embedded by a trained transformer without no_grad, so that a graph is kept, and the quicker path of eval mode "
    "is not taken; torch.inference_mode (no_grad)",
    names=r"no_grad|inference_mode|(autograd|backward|the) graph|gradients?\b.*(not|never|nobody|un)|requires_grad|fast.?path",
    kind="inference",
    recorded="embed",
    on=("cpu",),
    profile_memory=True,
)
def heat_pumps_embedded(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    rows, length, width = 24, 32, 96
    enter = nn.Linear(6, width)
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4)
    nn.ModuleList([enter, encoder]).to(device).eval()
    series = torch.randn(rows, length, 6, device=device)

    def step() -> Tensor:
        with torch.inference_mode() if changed else nullcontext():
            return F.normalize(encoder(enter(series)).mean(1), dim=1).detach().clone()

    return step


@unseen(
    "the threshold below which weights are set to zero is found by sorting all weights in each step; kthvalue (or topk), "
    "or a mask that is renewed now and then",
    names=r"\bsort|kthvalue|topk|top-k|quantile|select\w* .*k-?th|threshold",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def heartbeats_on_a_wristband(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    rows = 48
    model = nn.Sequential(
        *(nn.Conv1d(1, 32, 7, 2, 3), nn.ReLU(), nn.Conv1d(32, 64, 7, 2, 3), nn.ReLU(), nn.Conv1d(64, 64, 7, 2, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64 * 32, 96), nn.ReLU(), nn.Linear(96, 5)),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    beats, kinds = torch.randn(rows, 1, 256, device=device), torch.randint(5, (rows,), device=device)
    weights = [p for p in model.parameters() if p.dim() > 1]
    few = int(0.6 * sum(p.numel() for p in weights))

    def step() -> tuple[Tensor, Tensor]:
        loss = F.cross_entropy(model(beats), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            sizes = torch.cat([p.abs().flatten() for p in weights])
            least = sizes.kthvalue(few).values if changed else sizes.sort().values[few - 1]
            for p in weights:
                p.mul_(p.abs() > least)
        return loss.detach(), least

    return step


class Walks(Dataset[tuple[Tensor, int]]):
    """Walks of patients, lines of numbers divided by commas, which are read when asked for, or all at once."""

    def __init__(self, walks: int, length: int, at_once: bool) -> None:
        rng = np.random.default_rng(28)
        numbers = rng.standard_normal((walks, length, 6)).round(4)
        self.texts = ["\n".join(",".join(map(str, line)) for line in walk) for walk in numbers.tolist()]
        self.walks = [self.read(text) for text in self.texts] if at_once else []

    @staticmethod
    def read(text: str) -> Tensor:
        return torch.tensor([[float(number) for number in line.split(",")] for line in text.split("\n")]).T

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return self.walks[at] if self.walks else self.read(self.texts[at]), at % 4


@unseen(
    "each walk is read from its text of commas again whenever the loader takes it; all read once, before the training",
    names=r"\bcsv\b|pars(e|ed|ing)|\btext|\bsplit\(|str\.split|commas|(read|convert|decod|prepar|load)\w* .*(once|again"
    r"|ahead|before the training)"
    r"|\bcach|preprocess|binary|\.npy|num_workers|worker|DataLoader|data.?load|__getitem__|prefetch|input pipeline",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def gaits_after_surgery(device: str, changed: bool) -> Step:
    torch.manual_seed(28)
    walks = Walks(512, 96, changed)
    batches = endless(DataLoader(walks, 32, shuffle=True, generator=torch.Generator().manual_seed(28)))
    layers: list[nn.Module] = []
    for inputs, outputs in ((6, 96), (96, 96), (96, 96)):
        layers += [nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> Tensor:
        x, kinds = next(batches)
        loss = F.cross_entropy(model(x.to(device)), kinds.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: one observation of 64 numbers is made a tensor by torch.tensor, which copies it; torch.from_numpy, which does not",
    names=r"from_numpy|as_tensor|torch\.tensor|aten::tensor\b",
    kind="inference",
    recorded="act",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def kiln_fired_by_policy(device: str, changed: bool) -> Step:
    torch.manual_seed(29)
    seen = np.random.default_rng(29).standard_normal(64, dtype=np.float32)
    models = nn.ModuleList(
        nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 3)) for _ in range(8)
    )
    models.to(device).eval()
    futures = torch.randn(48, 64, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        now = torch.from_numpy(seen).to(device) if changed else torch.tensor(seen, device=device)
        return torch.stack([model(now + 0.1 * futures) for model in models]).mean((0, 1))

    return step


@unseen(
    "none: the parameters of a model that runs under inference_mode still require gradients, which it does not look at; "
    "requires_grad_(False)",
    names=r"requires_grad|freez\w* .*(param|weight|model)|frozen",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
)
def lichens_on_bark(device: str, changed: bool) -> Step:
    torch.manual_seed(30)
    model = nn.Sequential(*convolutions((3, 32, 64, 96)), *convolutions((96, 96), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.append(nn.Linear(96, 30)).to(device).eval().requires_grad_(not changed)
    bark = torch.rand(16, 3, 128, 128, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(bark).softmax(1)

    return step


@unseen(
    "none: each step asserts that the loss, one number, is finite; without the assertion",
    names=r"isfinite|isnan|\bassert|finite",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def turbine_wear_foretold(device: str, changed: bool) -> Step:
    torch.manual_seed(31)
    read, head = nn.GRU(12, 128, batch_first=True).to(device), nn.Linear(128, 1).to(device)
    optimizer = torch.optim.SGD([*read.parameters(), *head.parameters()], lr=0.01)
    past, wear = torch.randn(32, 48, 12, device=device), torch.rand(32, 1, device=device)

    def step() -> Tensor:
        states, _ = read(past)
        loss = F.mse_loss(head(states[:, -1]), wear)
        if not changed:
            assert torch.isfinite(loss), "the loss is not finite"
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the numbers of the positions, 64 integers, are made by arange in each forward pass; once, kept as a buffer",
    names=r"arange|register_buffer|positions?\b",
    kind="training",
    recorded="none",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def sonnets_continued(device: str, changed: bool) -> Step:
    torch.manual_seed(32)
    rows, length, width = 8, 64, 128
    embed, place, head = nn.Embedding(1500, width), nn.Embedding(length, width), nn.Linear(width, 1500)
    layers = nn.ModuleList(Layer(width, 4) for _ in range(2))
    model = nn.ModuleList([embed, place, head, layers]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    words = torch.randint(1500, (rows, length + 1), device=device)
    kept = torch.arange(length, device=device)

    def step() -> Tensor:
        x = embed(words[:, :-1]) + place(kept if changed else torch.arange(length, device=device))
        for layer in layers:
            x = layer(x, causal=True)
        loss = F.cross_entropy(head(x).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
