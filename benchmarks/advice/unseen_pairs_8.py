"""An eighth set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

A sample of what people meet who profile PyTorch on a GPU, in programs that the earlier sets do not have.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
import contextlib
import gc
import itertools
import math
import random
import time
from typing import Any
import zlib

from advice.unseen_pairs import Step, Unseen, blocks, conv_net, low, pairs_into, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def autocast(device: str) -> torch.autocast:
    """Return bfloat16 autocasting; on a CPU, where the programs are only tried, none."""
    return torch.autocast(device, torch.bfloat16, enabled=device != "cpu")


# Inference.


class Residual(nn.Module):
    """A normalised linear layer around which its input goes."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(self.norm(x)))


@unseen(
    "a check that all values are finite after each layer, left from debugging, makes the host wait for the GPU; "
    "once, on the result",
    names=r"isfinite|finite|\bnans?\b|\binf\b|assert|aten::(item|is_nonzero|_local_scalar_dense|all|isnan|ne|eq)\b|is_nonzero"
    r"|local_scalar_dense|(host|device|gpu|cpu|stream).?sync|synchroni[sz]|sanity|\.item\(\)|\bbool\(",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def risks_checked_each_layer(device: str, changed: bool) -> Step:
    dtype = low(device)
    first, last = nn.Linear(120, 512).to(device, dtype), nn.Linear(512, 6).to(device, dtype)
    layers = nn.Sequential(*(Residual(512) for _ in range(48))).to(device, dtype).eval()
    patients = torch.randn(small(2048), 120, device=device, dtype=dtype)

    def check(x: Tensor) -> None:
        if not torch.isfinite(x).all():
            raise FloatingPointError("a value is not finite")

    @torch.no_grad()
    def step() -> Tensor:
        x = first(patients)
        for layer in layers:
            x = layer(x)
            if not changed:
                check(x)
        risks = last(x).float().sigmoid()
        check(risks)
        return risks

    return step


@unseen(
    "a search for pictures embeds them in float32, as the weights were loaded; model and pictures in bfloat16",
    names=r"bfloat16|\bbf16\b|half.?precision|\bfp16\b|float16|autocast|mixed.?precision|\bamp\b|tf32|float32_matmul_precision"
    r"|tensor.?cores?|lower precision|(full|single) precision",
    kind="inference",
    recorded="embed",
)
def photos_embedded_in_float32(device: str, changed: bool) -> Step:
    dtype = low(device) if changed else torch.float32
    tower = blocks(10, 768, 12, device).to(dtype).eval()
    patches = nn.Linear(3 * 16 * 16, 768).to(device, dtype)
    places = 0.02 * torch.randn(196, 768, device=device)
    photos = torch.rand(small(48), 3, 224, 224, device=device)
    gallery = F.normalize(torch.randn(small(20_000), 768, device=device), dim=1)

    @torch.no_grad()
    def step() -> Tensor:
        cut = photos.to(dtype).unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5).reshape(len(photos), 196, -1)
        x = patches(cut) + places.to(dtype)
        for block in tower:
            x = block(x)
        found = F.normalize(F.layer_norm(x, (768,)).mean(1).float(), dim=1)
        return (found @ gallery.T).topk(8, dim=1).values.cpu()

    return step


class RelativeBias(nn.Module):
    """T5's bias of attention, by buckets of the distance between two tokens."""

    def __init__(self, heads: int, count: int = 32, most: int = 128):
        super().__init__()
        self.table, self.count, self.most = nn.Embedding(count, heads), count, most

    def forward(self, length: int, device: str) -> Tensor:
        places = torch.arange(length, device=device)
        apart = places[None, :] - places[:, None]
        half = self.count // 2
        buckets = (apart > 0).long() * half
        apart = apart.abs()
        exact = half // 2
        far = exact + (torch.log(apart.float() / exact) / math.log(self.most / exact) * (half - exact)).clamp(min=-9).long()
        far = torch.min(far, torch.full_like(far, half - 1))
        buckets = buckets + torch.where(apart < exact, apart, far)
        return self.table(buckets).permute(2, 0, 1).unsqueeze(0).contiguous()


@unseen(
    "every layer of a T5 encoder makes the same bias of relative positions anew; once, kept for all layers and requests",
    names=r"(relative|position\w*).{0,30}(bias|bucket|distance|table)|bias of|bucket|\bbias(es)? (table|matrix|is|are|once)"
    r"|cach(e|ed|ing)\b|precomput|hoist|comput\w* (it )?(only )?once|loop.?invariant|outside (of )?the (layer|loop)"
    r"|(same|identical) (result|values?|tensor|work|inputs?)"
    r"|recomput|repeated work|shared? (by|across|between|among)",
    kind="inference",
    recorded="step",
)
def t5_bias_each_layer(device: str, changed: bool) -> Step:
    layers, heads, length, dtype = 12, 8, small(1024), low(device)
    net = blocks(layers, 512, heads, device, dtype).eval()
    words, bias_of = nn.Embedding(16_000, 512).to(device, dtype), RelativeBias(heads).to(device, dtype)
    texts = torch.randint(0, 16_000, (2, length), device=device)
    kept: list[Tensor] = []

    @torch.no_grad()
    def step() -> Tensor:
        x = words(texts)
        if changed and not kept:
            kept.append(bias_of(length, device))
        for block in net:
            bias = kept[0] if changed else bias_of(length, device)
            x = block(x, mask=bias.expand(len(texts), -1, -1, -1))
        return F.layer_norm(x, (512,)).mean(1).float()

    return step


@unseen(
    "the pose of each object is solved by itself, in a Python loop of small systems; all of them by one batched solve",
    names=r"batch(ed|ing)\b|(one|single|a) batch\b|\bbmm\b|vectori[sz]|vmap"
    r"|(all|every) (the )?(object|system|pose|matri|problem|solve)\w*.{0,20}"
    r"(at once|together|one)|stack|aten::(linalg_solve\w*|_linalg_solve_ex|linalg_lu\w*|linalg_solve_ex)|linalg|loop (of|over)"
    r"|one (object|system|matrix) at a time|(small|tiny) (system|matri|solve|linear)",
    kind="inference",
    recorded="none",
)
def poses_solved_one_by_one(device: str, changed: bool) -> Step:
    objects, points = small(64), 96
    net = nn.Sequential(nn.Linear(6, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).to(device).eval()
    model = torch.randn(objects, points, 3, device=device)
    seen = model + 0.05 * torch.randn_like(model)
    damping, zero = 1e-2 * torch.eye(6, device=device), torch.zeros(objects, points, device=device)
    x, y, z = model.unbind(-1)
    turning = torch.stack([zero, z, -y, -z, zero, x, y, -x, zero], dim=-1).unflatten(-1, (3, 3))
    moving = torch.eye(3, device=device).expand(objects, points, 3, 3)
    jacobian = torch.cat([turning, moving], dim=-1).flatten(1, 2)

    @torch.no_grad()
    def step() -> Tensor:
        found = net(torch.cat([model, seen], dim=-1))
        weights = found[..., 3:].sigmoid().expand(-1, -1, 3).reshape(objects, -1, 1)
        apart = (seen - model + 0.01 * found[..., :3]).flatten(1).unsqueeze(-1)
        if changed:
            square = jacobian.mT @ (weights * jacobian) + damping
            return torch.linalg.solve(square, jacobian.mT @ (weights * apart)).squeeze(-1)
        poses = []
        for number in range(objects):
            j, w = jacobian[number], weights[number]
            square = j.T @ (w * j) + damping
            poses.append(torch.linalg.solve(square, j.T @ (w * apart[number])).squeeze(-1))
        return torch.stack(poses)

    return step


@unseen(
    "nucleus sampling sorts the whole vocabulary for each token; the few hundred most likely words by topk, then their sums",
    names=r"\btopk\b|top-?k\b|aten::(arg)?sort|full sort|sort(s|ed|ing)? .{0,30}(vocab|logit|prob|all|whole|entire|full|every)"
    r"|partial sort|radix.?sort|(cumsum|scan) over",
    kind="inference",
    recorded="generate",
    record_shapes=False,
)
def nucleus_sorts_vocabulary(device: str, changed: bool) -> Step:
    batch, vocabulary, count, dtype = small(32), small(64_000), 12, low(device)
    words = (0.5 * torch.randn(vocabulary, 1024, device=device)).to(dtype)
    enter, again = (nn.Linear(1024, 1024).to(device, dtype) for _ in range(2))
    up, down = nn.Linear(1024, 4096).to(device, dtype), nn.Linear(4096, 1024).to(device, dtype)
    head = 5 / 32 * torch.randn(vocabulary, 1024, device=device)
    chances = torch.rand(count, batch, 1, device=device)
    start = torch.zeros(batch, dtype=torch.long, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        token, state, chosen = start, torch.zeros(batch, 1024, device=device, dtype=dtype), []
        for number in range(count):
            state = torch.tanh(enter(words[token]) + again(state))
            x = F.layer_norm(state + down(F.silu(up(state))), (1024,))
            likely = F.linear(x.float(), head).softmax(-1)
            if changed:
                best, rows = likely.topk(min(512, vocabulary), dim=-1)
            else:
                best, rows = likely.sort(dim=-1, descending=True)
            before = best.cumsum(-1) - best
            total = (best * (before < 0.9)).cumsum(-1)
            place = (total < chances[number] * total[:, -1:]).sum(-1, keepdim=True)
            token = rows.gather(1, place).squeeze(1)
            chosen.append(token)
        return torch.stack(chosen, dim=1)

    return step


@unseen(
    "sentences of very different lengths are put into batches as they come, each padded to its longest; "
    "sorted by length first, so that a batch's are alike",
    names=r"sort\w* .{0,40}length|length.{0,20}(sort|bucket|group)|bucket|(similar|equal|same|like) (\w+ )?length|group_by_length"
    r"|\bpad(s|ded|ding)?\b|varlen|nested|jagged|unpad|pack(ed|ing)\b",
    kind="inference",
    recorded="none",
)
def sentences_as_they_come(device: str, changed: bool) -> Step:
    batch, dim, dtype = small(32), 768, low(device)
    net, words = blocks(6, dim, 12, device, dtype).eval(), nn.Embedding(20_000, dim).to(device, dtype)
    places = 0.1 * torch.randn(small(384), dim, device=device, dtype=dtype)
    lengths = (4.1 + 0.8 * torch.randn(8 * batch)).exp().clamp(8, 384).int().tolist()
    sentences = [torch.randint(1, 20_000, (small(length),)) for length in lengths]

    def order() -> list[int]:
        numbers = list(range(len(sentences)))
        return sorted(numbers, key=lambda number: len(sentences[number])) if changed else numbers

    @torch.no_grad()
    def step() -> Tensor:
        numbers, vectors = order(), []
        for start in range(0, len(numbers), batch):
            chosen = [sentences[number] for number in numbers[start : start + batch]]
            ids = nn.utils.rnn.pad_sequence(chosen, batch_first=True).to(device)
            real = ids != 0
            x = words(ids) + places[: ids.shape[1]]
            for block in net:
                x = block(x, mask=real[:, None, None, :])
            vectors.append((x * real[:, :, None]).sum(1).float() / real.sum(1, keepdim=True))
        found = torch.empty(len(numbers), dim, device=device)
        found[torch.tensor(numbers, device=device)] = F.normalize(torch.cat(vectors), dim=1)
        return found.cpu()

    return step


@unseen(
    "attention within a window of 256 tokens is computed between all 8192 and masked; block by block, each with the one before",
    names=r"window|\blocal\b|sliding|\bband(ed)?\b|block.?(sparse|wise|by|mask)|flex_?attention|chunk"
    r"|(dense|full|explicit|boolean|bool) mask|masked.?out|mask\w* .{0,30}(flash|quadratic)"
    r"|quadratic|(whole|entire|all) .{0,20}masked",
    kind="inference",
    recorded="step",
    profile_memory=True,
)
def contract_window_masked(device: str, changed: bool) -> Step:
    batch, heads, dim, window, dtype = 2, 12, 768, small(256), low(device)
    length = 32 * window
    net, words = blocks(3, dim, heads, device, dtype).eval(), nn.Embedding(20_000, dim).to(device, dtype)
    contracts = torch.randint(0, 20_000, (batch, length), device=device)
    place = torch.arange(length, device=device)
    apart = place[:, None] - place
    mask = (apart >= 0) & (apart < window)
    near = torch.arange(window, device=device)[:, None] + window - torch.arange(2 * window, device=device)
    parts = ((near >= 0) & (near < window)).repeat(length // window, 1, 1)
    parts[0, :, :window] = False

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not changed:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        q, k, v = (part.flatten(0, 1).unflatten(1, (-1, window)) for part in (q, k, v))
        k, v = (torch.cat([F.pad(part, (0, 0, 0, 0, 1, 0))[:, :-1], part], dim=2) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=parts.expand(len(q), -1, -1, -1))
        return y.flatten(1, 2).unflatten(0, (batch, heads))

    @torch.no_grad()
    def step() -> Tensor:
        x = words(contracts)
        for block in net:
            x = block.rest(x, attend(*block.heads_of(x)))
        return F.layer_norm(x, (dim,)).mean(1).float().cpu()

    return step


def auroc(scores: list[Tensor], labels: list[Tensor]) -> Tensor:
    """Return the area under the curve of all predictions so far."""
    order = torch.cat(scores).argsort(descending=True)
    hits = torch.cat(labels)[order].double()
    right, wrong = hits.cumsum(0), (1 - hits).cumsum(0)
    return torch.trapezoid(right, wrong) / (right[-1] * wrong[-1]).clamp(min=1)


@unseen(
    "the area under the curve is computed over all predictions so far after every batch, for the progress bar; once, at the end",
    names=r"auroc|\bauc\b|area under|metric|(once|only) .{0,20}(at the end|end of|per epoch|after)"
    r"|after the (last|loop|epoch|final)|at the end|end of the (epoch|evaluation|loop)"
    r"|aten::(arg)?sort|aten::cumsum"
    r"|aten::cat|progress|all (predictions|scores|earlier|previous) |less often|growing|quadratic",
    kind="inference",
    recorded="evaluate",
    profile_memory=True,
)
def auroc_after_every_batch(device: str, changed: bool) -> Step:
    dtype = low(device)
    net = nn.Sequential(nn.Linear(96, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1)).to(device, dtype).eval()
    claims = torch.randn(24, small(16_384), 96, device=device, dtype=dtype)
    fraud = (claims[..., 0] + torch.randn(claims.shape[:2], device=device) > 1.5).float()
    shown: list[float] = []

    @torch.no_grad()
    def step() -> Tensor:
        scores: list[Tensor] = []
        labels: list[Tensor] = []
        for rows, wanted in zip(claims, fraud, strict=True):
            scores.append(net(rows).squeeze(1).float() + rows[:, 0].float())
            labels.append(wanted)
            if not changed:
                shown.append(auroc(scores, labels).item())
        if changed:
            shown.append(auroc(scores, labels).item())
        result = torch.tensor(shown[-1])
        shown.clear()
        return result

    return step


def peaks_of(heats: np.ndarray) -> np.ndarray:
    """Return the mean place and height of the peaks of some heat maps, on the host."""
    found = []
    for heat in heats:
        padded = np.pad(heat, 4).astype(np.float64).cumsum(0).cumsum(1)
        smooth = padded[8:, 8:] - padded[:-8, 8:] - padded[8:, :-8] + padded[:-8, :-8]
        inner = smooth[1:-1, 1:-1]
        high = inner > np.percentile(inner, 99)
        for row, column in ((0, 1), (2, 1), (1, 0), (1, 2)):
            high &= inner >= smooth[row : row + inner.shape[0], column : column + inner.shape[1]]
        rows, columns = np.nonzero(high)
        found.append([rows.mean(), columns.mean(), inner[high].mean(), len(rows)] if len(rows) else [0.0] * 4)
    return np.array(found)


@unseen(
    "the host looks for peaks in each batch's heat maps while the GPU waits for its next batch; "
    "in a thread, while the GPU computes the next",
    names=r"overlap|thread|pipelin|background|concurren|in parallel|double.?buffer|asynchron|(while|as) the gpu"
    r"|(next|following) batch|post.?process|host.?side work|numpy",
    kind="inference",
    recorded="none",
)
def cells_found_in_turn(device: str, changed: bool) -> Step:
    side, count, dtype = small(512), small(16), low(device)
    net = conv_net([64] * 8 + [128] * 8).to(device, dtype).to(memory_format=torch.channels_last).eval()
    head = nn.Conv2d(128, 1, 1).to(device, dtype)
    slides = torch.randn(5, count, 3, side, side, device=device, dtype=dtype).div_(4)
    pool = ThreadPoolExecutor(2)

    def heats_of(slide: Tensor) -> np.ndarray:
        x = head(net(slide.contiguous(memory_format=torch.channels_last)))
        return x.float().squeeze(1).contiguous().cpu().numpy()

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            waiting = [pool.submit(peaks_of, heats_of(slide)) for slide in slides]
            found = [future.result() for future in waiting]
        else:
            found = [peaks_of(heats_of(slide)) for slide in slides]
        return torch.from_numpy(np.stack(found))

    return step


# Training.


@unseen(
    "the whole device is synchronized around each phase of a step to time it, so the host prepares no batch while the GPU works; "
    "CUDA events, or no timers",
    names=r"synchroni[sz]e|\bsync(s|ing|hronization)?\b|cuda\.?Event|CUDA events?|timers?\b|timing|perf_counter|stopwatch",
    kind="training",
    recorded="step",
    with_stack=True,
)
def phases_timed(device: str, changed: bool) -> Step:
    count, dim, dtype, on_gpu = small(64), 768, low(device), device != "cpu"
    first, net, last = (
        nn.Linear(32, dim).to(device, dtype),
        blocks(3, dim, 12, device, dtype),
        nn.Linear(dim, 9).to(device, dtype),
    )
    parameters = [*first.parameters(), *net.parameters(), *last.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    chance = np.random.default_rng(0)
    recordings = chance.standard_normal((8, 40_000, 32), dtype=np.float32)
    seconds: dict[str, float] = {}
    events: deque[Any] = deque(maxlen=64)

    @contextlib.contextmanager
    def timed(phase: str) -> Iterator[None]:
        if changed and on_gpu:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            yield
            end.record()
            events.append((phase, start, end))
        else:
            if on_gpu:
                torch.cuda.synchronize()
            began = time.perf_counter()
            yield
            if on_gpu:
                torch.cuda.synchronize()
            seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - began

    def prepare() -> tuple[Tensor, Tensor]:
        windows, labels = np.empty((count, 256, 32), dtype=np.float32), np.empty(count, dtype=np.int64)
        for number in range(count):
            label, start = int(chance.integers(8)), int(chance.integers(39_000))
            window = recordings[label, start : start + 256]
            scaled = (window - window.mean(0)) / (window.std(0) + 1e-5) * (1 + 0.1 * chance.standard_normal(32))
            windows[number], labels[number] = np.roll(scaled, int(chance.integers(16)), axis=0), label
        return torch.from_numpy(windows), torch.from_numpy(labels)

    def step() -> Tensor:
        with timed("data"):
            windows, labels = prepare()
            if on_gpu:
                windows, labels = windows.pin_memory(), labels.pin_memory()
            x, wanted = windows.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with timed("forward"):
            x = first(x.to(dtype))
            for block in net:
                x = block(x)
            loss = F.cross_entropy(last(x.mean(1)).float(), wanted)
        with timed("backward"):
            optimizer.zero_grad()
            loss.backward()
        with timed("optimizer"):
            optimizer.step()
        return loss.detach()

    return step


class Leaves(Dataset[tuple[Tensor, int]]):
    """Pictures of leaves that are turned, recoloured and made noisy on the host."""

    def __init__(self) -> None:
        self.pictures = torch.randint(0, 256, (64, 3, 128, 128), dtype=torch.uint8)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        picture = self.pictures[number % 64].float() / 255
        angle, zoom = number * 0.37, 0.8 + 0.1 * math.sin(number)
        turn = zoom * torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
        places = F.affine_grid(turn[None], [1, 3, 128, 128], align_corners=False)
        picture = F.grid_sample(picture[None], places, padding_mode="reflection", align_corners=False)[0]
        grey = picture.mean(0, keepdim=True)
        picture = ((picture - grey) * 1.2 + grey).clamp(0, 1).pow(0.9)
        return (picture - 0.45) / 0.25, number % 30


@unseen(
    "one worker turns and recolours the pictures for a GPU that waits for them; num_workers=8 (or on the GPU)",
    names=r"num_workers|more (loader |data.?loader )?(workers|processes)|data.?load(er|ing)|input.?bound|augment"
    r"|__next__|_try_get_data|prefetch|(waits?|waiting|starv\w*) (on|for) (\w+ )?(data|batch|input)",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def leaves_by_one_worker(device: str, changed: bool) -> Step:
    loader = DataLoader(Leaves(), small(64), num_workers=8 if changed else 1, pin_memory=device != "cpu")
    batches = iter(loader)
    net = conv_net([64] * 3 + [128] * 3 + [256] * 3).to(device, low(device)).to(memory_format=torch.channels_last)
    head = nn.Linear(256, 30).to(device, low(device))
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-3, momentum=0.9, fused=True)

    def step() -> Tensor:
        pictures, labels = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        x = net(pictures.to(low(device), memory_format=torch.channels_last))
        loss = F.cross_entropy(head(x.mean((2, 3))).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Heartbeats(Dataset[tuple[Tensor, int]]):
    """Cuts of some electrocardiograms."""

    def __init__(self, count: int):
        self.traces, self.count = torch.randn(16, 8, 20_000), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        start = number * 131 % 18_000
        return self.traces[number % 16, :, start : start + 1024], number % 5


@unseen(
    "the loader's workers are started anew for every short epoch; persistent_workers=True",
    names=r"persistent|(start|spawn|fork|launch|creat|re-?creat|shut|tear)\w* .{0,30}(worker|process|epoch)|worker\w* .{0,40}"
    r"(start|spawn|fork|creat|epoch|alive|shut)|keep .{0,20}workers|fork\b",
    kind="training",
    recorded="epoch",
)
def heartbeats_new_workers(device: str, changed: bool) -> Step:
    data = Heartbeats(5 * small(64))
    loader = DataLoader(data, small(64), num_workers=2, persistent_workers=changed, pin_memory=device != "cpu")
    convs: list[nn.Module] = [nn.Conv1d(8, 128, 7, 2, 3), nn.ReLU()]
    for _ in range(5):
        convs += [nn.Conv1d(128, 128, 5, padding=2), nn.ReLU()]
    net, head = nn.Sequential(*convs).to(device), nn.Linear(128, 5).to(device)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-4, fused=True)

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for beats, kinds in loader:
            optimizer.zero_grad()
            found = head(net(beats.to(device, non_blocking=True)).mean(-1))
            loss = F.cross_entropy(found, kinds.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total

    return step


class Head(nn.Module):
    """One head of causal attention, as tutorials write it."""

    def __init__(self, dim: int, size: int, length: int):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(dim, size, bias=False) for _ in range(3))
        self.register_buffer("lower", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        scores = self.query(x) @ self.key(x).mT * self.key.out_features**-0.5
        scores = scores.masked_fill(~self.lower[:length, :length], -math.inf)  # type: ignore[index]
        return scores.softmax(-1) @ self.value(x)


class HeadByHead(nn.Module):
    """A block of a character model whose heads are modules of their own, or are computed together."""

    def __init__(self, dim: int, heads: int, length: int, together: bool):
        super().__init__()
        parts = [Head(dim, dim // heads, length) for _ in range(heads)]
        self.heads = heads
        self.parts: nn.ModuleList | None = None
        if together:
            weights = [getattr(part, name).weight for name in ("query", "key", "value") for part in parts]
            self.qkv = nn.Parameter(torch.cat(weights).detach().clone())
        else:
            self.parts = nn.ModuleList(parts)
        self.norm1, self.norm2, self.out = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        if self.parts is None:
            q, k, v = F.linear(y, self.qkv).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        else:
            attended = torch.cat([part(y) for part in self.parts], dim=-1)
        x = x + self.out(attended)
        return x + self.down(F.relu(self.up(self.norm2(x))))


@unseen(
    "each head of attention is a module of its own, called in a Python loop; one projection and one attention for all heads",
    names=r"(all|each|per|single|every|separate|individual|one|of the|over|across|by).{0,12}heads?\b"
    r"|heads? .{0,30}(together|batch|at once|one|loop|by one)|multi.?head|scaled_dot_product|\bsdpa\b|flash"
    r"|(one|fused|packed|single|larger) (\w+ )?(projection|linear|matmul|gemm)|\bqkv\b|\bbmm\b|batched (matmul|matrix|attention)",
    kind="training",
    recorded="step",
)
def characters_head_by_head(device: str, changed: bool) -> Step:
    dim, length, dtype = 512, small(256), low(device)
    net = nn.Sequential(*(HeadByHead(dim, 8, length, changed) for _ in range(2))).to(device, dtype)
    table, head = nn.Embedding(96, dim).to(device, dtype), nn.Linear(dim, 96).to(device, dtype)
    optimizer = torch.optim.AdamW([*table.parameters(), *net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    text = torch.randint(0, 96, (small(16), length + 1), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        logits = head(net(table(text[:, :-1])))
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Llama(nn.Module):
    """A block with root mean square norms, written out or fused."""

    def __init__(self, dim: int, heads: int, fused: bool):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.weight1, self.weight2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.fused:
            return F.rms_norm(x, weight.shape, weight, 1e-6)
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * y.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x, self.weight1)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        gate, up = self.gate(self.norm(x, self.weight2)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


@unseen(
    "the root mean square norms are written out, a pass over memory for each operation; F.rms_norm, which fuses them",
    names=r"rms.?norm|root mean square|normali[sz]|\bfus(e|ed|es|ing|ion)\b|torch\.compile|rsqrt|aten::(pow|mean|rsqrt)\b"
    r"|layer.?norm|element.?wise|pointwise",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def llama_norms_written_out(device: str, changed: bool) -> Step:
    dim, length, dtype = 512, small(512), low(device)
    net = nn.Sequential(*(Llama(dim, 8, changed) for _ in range(4))).to(device, dtype)
    table = nn.Embedding(8192, dim).to(device, dtype)
    optimizer = torch.optim.AdamW([*table.parameters(), *net.parameters()], lr=1e-5, fused=True)
    text = torch.randint(0, 8192, (small(64), length + 1), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = net(0.05 * table(text[:, :-1]))
        last = x[:, -1]
        loss = F.cross_entropy((last @ table.weight.T).float(), text[:, -1]) + 1e-3 * x.float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "gc.collect() after every step, so that memory is freed, goes through all objects of the interpreter; without it",
    names=r"\bgc\b|gc\.collect|garbage|cyclic|collector",
    kind="training",
    recorded="none",
    with_stack=True,
)
def colours_with_collection(device: str, changed: bool) -> Step:
    side, dtype = small(256), low(device)
    convs: list[nn.Module] = [nn.Conv2d(1, 64, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        convs += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*convs, nn.Conv2d(64, 2, 3, padding=1)).to(device, dtype).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    photos = torch.rand(small(16), 3, side, side, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

    def step() -> Tensor:
        light = photos.mean(1, keepdim=True)
        wanted = photos[:, 1:] - light
        optimizer.zero_grad()
        found = net(light.contiguous(memory_format=torch.channels_last))
        loss = F.l1_loss(found, wanted)
        loss.backward()
        optimizer.step()
        result = loss.detach()
        del light, wanted, found, loss
        if not changed:
            gc.collect()
        return result

    return step


class SumTree:
    """Priorities, and their sums by twos."""

    def __init__(self, size: int):
        self.size = size
        self.sums = [0.0] * (2 * size)

    def update(self, row: int, value: float) -> None:
        node = row + self.size
        change = value - self.sums[node]
        while node:
            self.sums[node] += change
            node //= 2

    def find(self, value: float) -> int:
        node = 1
        while node < self.size:
            node *= 2
            if value > self.sums[node]:
                value -= self.sums[node]
                node += 1
        return node - self.size


@unseen(
    "new priorities of a replay memory are read from the GPU one by one with float(); all of them at once by tolist()",
    names=r"tolist|\.item\(\)|aten::(item|_local_scalar_dense|select)\b|local_scalar_dense|float\(|(one|single) (copy|transfer)"
    r"|\.cpu\(\)|\.numpy\(\)|(element|sample|row|value|one)s? (by|at a|after) (element|time|sample|row|value|one)"
    r"|device.?to.?host|DtoH|D2H|synchroni[sz]|\bsyncs?\b|priorit",
    kind="training",
    recorded="step",
)
def priorities_one_by_one(device: str, changed: bool) -> Step:
    size, count = 4096, small(256)
    chance, tree = random.Random(0), SumTree(size)
    states, following = torch.randn(2, size, 64, device=device)
    rewards, actions = torch.randn(size, device=device), torch.randint(0, 8, (size, 1), device=device)
    for row in range(size):
        tree.update(row, 1.0)
    net, target = (
        nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)).to(device)
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        numbers = [min(tree.find(chance.random() * tree.sums[1]), size - 1) for _ in range(count)]
        rows = torch.tensor(numbers, device=device)
        with torch.no_grad():
            wanted = rewards[rows] + 0.99 * target(following[rows]).amax(1)
        errors = net(states[rows]).gather(1, actions[rows]).squeeze(1) - wanted
        loss = F.smooth_l1_loss(errors, torch.zeros_like(errors))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = errors.detach().abs() + 1e-3
        if changed:
            for row, value in zip(numbers, found.tolist(), strict=True):
                tree.update(row, value)
        else:
            for row, error in zip(numbers, found, strict=True):
                tree.update(row, float(error))
        return loss.detach()

    return step


@unseen(
    "the accuracy of each training batch is taken from a second forward pass over it; from the logits that are there",
    names=r"(second|extra|additional|another|redundant|two|2nd|further|separate) (\w+ )?(forward|pass|call|run|evaluation)|twice"
    r"|forward (pass )?(again|twice|a second)|reus(e|ing)|accuracy|metric"
    r"|(same|existing|already).{0,20}(logits|output|prediction|result)|duplicat|repeated (forward|work)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def birds_run_twice(device: str, changed: bool) -> Step:
    dim, dtype = 512, low(device)
    songs = torch.randn(small(48), small(512), 128, device=device, dtype=dtype)
    kinds = torch.randint(0, 200, (len(songs),), device=device)
    first, net, head = nn.Linear(128, dim), blocks(6, dim, 8, device, dtype), nn.Linear(dim, 200)
    first, head = first.to(device, dtype), head.to(device, dtype)
    optimizer = torch.optim.AdamW([*first.parameters(), *net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    right = torch.zeros((), device=device)

    def classify(x: Tensor) -> Tensor:
        x = first(x)
        for block in net:
            x = block(x)
        return head(x.mean(1)).float()

    def accuracy(logits: Tensor) -> Tensor:
        return (logits.argmax(1) == kinds).float().mean()

    def step() -> Tensor:
        logits = classify(songs)
        loss = F.cross_entropy(logits, kinds)
        if changed:
            found = accuracy(logits.detach())
        else:
            with torch.no_grad():
                found = accuracy(classify(songs))
        right.lerp_(found, 0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach() + found

    return step


class Speech(nn.Module):
    """A block of a speech synthesiser whose feed-forward net is of convolutions of width 1, or of linear layers."""

    def __init__(self, dim: int, heads: int, linear: bool):
        super().__init__()
        self.heads, self.linear = heads, linear
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up: nn.Module
        self.down: nn.Module
        up, down = nn.Conv1d(dim, 4 * dim, 1), nn.Conv1d(4 * dim, dim, 1)
        if linear:
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            for new, old in ((self.up, up), (self.down, down)):
                new.load_state_dict({"weight": old.weight.squeeze(-1), "bias": old.bias})
        else:
            nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)  # as many random numbers
            self.up, self.down = up, down

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        if self.linear:
            return x + self.down(F.relu(self.up(y)))
        return x + self.down(F.relu(self.up(y.transpose(1, 2)))).transpose(1, 2)


@unseen(
    "feed-forward layers are convolutions of width 1 between transposes, which copy and change the layout; nn.Linear",
    names=r"conv1d|nn\.Linear|linear layer|(kernel.?size|width|size).{0,6}\b1\b|1x1|point-?wise conv|transpos|permut"
    r"|channels?.?last|nhwc|nchw|memory.?format|layout|aten::(cudnn_convolution|convolution\w*|contiguous)\b",
    kind="training",
    recorded="none",
)
def voice_of_pointwise_convs(device: str, changed: bool) -> Step:
    dim, dtype = 512, low(device)
    net = nn.Sequential(*(Speech(dim, 8, changed) for _ in range(4))).to(device, dtype)
    sounds, last = nn.Embedding(80, dim).to(device, dtype), nn.Linear(dim, 80).to(device, dtype)
    optimizer = torch.optim.AdamW([*sounds.parameters(), *net.parameters(), *last.parameters()], lr=1e-5, fused=True)
    text = torch.randint(0, 80, (small(32), small(768)), device=device)
    mels = torch.randn(*text.shape, 80, device=device, dtype=dtype)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.l1_loss(last(net(sounds(text))).float(), mels.float())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Return about the nearest orthogonal matrix, or one for each of a batch, by five Newton-Schulz iterations."""
    x = matrix.to(dtype)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (2.0315 * (square @ square) - 4.775 * square) @ x
    return x.mT if tall else x


@unseen(
    "Muon makes the update of each weight matrix orthogonal by itself, many short kernels; those of one shape as a batch",
    names=r"batch(ed|ing)\b|\bbmm\b|baddbmm|stack|(same|equal|one|by|like) shapes?|newton|muon|orthogonal|foreach|grouped"
    r"|(each|every|one|per|individual|single) (\w+ )?(matrix|matrices|parameter|weight)",
    kind="training",
    recorded="none",
    record_shapes=False,
)
def muon_one_by_one(device: str, changed: bool) -> Step:
    dim, dtype = 512, low(device)
    net, head = blocks(4, dim, 8, device), nn.Linear(dim, 256).to(device)
    matrices = [parameter for parameter in net.parameters() if parameter.ndim == 2]
    others = [*(parameter for parameter in net.parameters() if parameter.ndim != 2), *head.parameters()]
    optimizer = torch.optim.AdamW(others, lr=1e-4, fused=True)
    momenta = [torch.zeros_like(parameter) for parameter in matrices]
    shapes: dict[torch.Size, list[int]] = {}
    for number, parameter in enumerate(matrices):
        shapes.setdefault(parameter.shape, []).append(number)
    pixels = torch.randn(small(16), small(256), dim, device=device)
    wanted = torch.randint(0, 256, pixels.shape[:2], device=device)

    @torch.no_grad()
    def muon() -> None:
        torch._foreach_lerp_(momenta, [parameter.grad for parameter in matrices if parameter.grad is not None], 0.1)
        if changed:
            for numbers in shapes.values():
                turned = orthogonal(torch.stack([momenta[number] for number in numbers]), dtype)
                torch._foreach_add_([matrices[number] for number in numbers], list(turned.float().unbind()), alpha=-1e-4)
        else:
            for parameter, momentum in zip(matrices, momenta, strict=True):
                parameter.add_(orthogonal(momentum, dtype).float(), alpha=-1e-4)

    def step() -> Tensor:
        optimizer.zero_grad()
        net.zero_grad()
        with autocast(device):
            x = pixels
            for block in net:
                x = block(x, causal=True)
            logits = head(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
        loss.backward()
        muon()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a net that learns a differential equation waits for the host to launch hundreds of short kernels; a CUDA graph of the step",
    names=r"cuda.?graph|graph (capture|replay)|make_graphed_callables|reduce-overhead|launch.?(bound|overhead|latency)"
    r"|torch\.compile|(short|small|tiny) kernels|host.?bound|cpu.?bound|fus(e|ed|ing|ion)\b",
    kind="training",
    recorded="fit",
)
def heat_equation_launched(device: str, changed: bool) -> Step:
    layers = [part for _ in range(4) for part in (nn.Linear(64, 64), nn.Tanh())]
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), *layers, nn.Linear(64, 1)).to(device)
    weights: list[Tensor] = list(net.parameters())
    optimizer = torch.optim.Adam(weights, lr=1e-4, capturable=device != "cpu")
    inside = torch.rand(1024, 2, device=device, requires_grad=True)
    start = torch.stack([torch.rand(256, device=device), torch.zeros(256, device=device)], dim=1)
    edge = torch.stack([torch.rand(256, device=device).round(), torch.rand(256, device=device)], dim=1)
    warm = (math.pi * start[:, :1]).sin()

    def learn() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        first = torch.autograd.grad(net(inside).sum(), inside, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), inside, create_graph=True)[0]
        rest = first[:, 1] - 0.1 * second[:, 0]
        loss = rest.square().mean() + F.mse_loss(net(start), warm) + net(edge).square().mean()
        loss.backward(inputs=weights)
        optimizer.step()
        return loss.detach()

    if not changed or device == "cpu":
        return learn
    first_weights = [weight.detach().clone() for weight in weights]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            learn()
    torch.cuda.current_stream().wait_stream(side)
    graph, held = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        held.append(learn())
    with torch.no_grad():
        torch._foreach_copy_(weights, first_weights)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()

    def step() -> Tensor:
        graph.replay()
        return held[0]

    return step


@unseen(
    "the logits are shifted against the labels by a slice that is copied, gigabytes to and fro; the labels shifted instead",
    names=r"shift|slic(e|es|ed|ing)\b|aten::(slice|slice_backward|contiguous|clone|copy_)\b|contiguous|\[.{0,6}:-1\]"
    r"|(cop(y|ies|ied)) .{0,20}logits|logits .{0,40}(cop(y|ies|ied)|contiguous)|ignore_index|chunked|fused (linear )?cross|liger"
    r"|linear_cross_entropy",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def words_shifted_by_copy(device: str, changed: bool) -> Step:
    dim, vocabulary, dtype = 768, small(64_000), low(device)
    with torch.device(device):
        net, words, head = (
            blocks(2, dim, 12, device, dtype),
            nn.Embedding(vocabulary, dim),
            nn.Linear(dim, vocabulary, bias=False),
        )
    words, head = words.to(dtype), head.to(dtype)
    optimizer = torch.optim.AdamW([*words.parameters(), *net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    ids = torch.randint(0, vocabulary, (8, small(1024)), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = words(ids)
        for block in net:
            x = block(x, causal=True)
        logits = head(F.layer_norm(x, (dim,))).float()
        if changed:
            labels = F.pad(ids[:, 1:], (0, 1), value=-100)
        else:
            logits, labels = logits[:, :-1].contiguous(), ids[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the masks become one-hot on the host and are uploaded as 21 float planes; the class numbers uploaded, one-hot on the GPU",
    names=r"one.?hot|class (numbers|ind|ids|labels)|integer (mask|label|target)|\bu?int8\b|smaller (d?type|tensor)"
    r"|aten::scatter_?|(smaller|fewer|less) (\w+ )?(bytes|copy|upload|transfer|data)"
    r"|(conver|expan|encod|made|make|build)\w* .{0,30}on the (gpu|device)"
    r"|(made|built|build|prepar\w+|comput\w+|encod\w+|work|conver\w+) (\S+ ){0,4}on the (host|cpu)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def organs_one_hot_uploaded(device: str, changed: bool) -> Step:
    side, classes = small(256), 21
    net = nn.Sequential(conv_net([64] * 4), nn.Upsample(scale_factor=2), nn.Conv2d(64, classes, 3, padding=1))
    net = net.to(device, low(device)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=True)
    scans = torch.randn(small(6), 3, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)
    turn = itertools.cycle(torch.randint(0, classes, (3, len(scans), side, side)))

    def planes(masks: Tensor) -> Tensor:
        return F.one_hot(masks, classes).permute(0, 3, 1, 2).float()

    def step() -> Tensor:
        masks = next(turn)
        wanted = planes(masks.to(device)) if changed else planes(masks).to(device)
        optimizer.zero_grad()
        found = net(scans).float().softmax(1)
        shared = (found * wanted).sum((2, 3))
        dice = (2 * shared + 1) / (found.sum((2, 3)) + wanted.sum((2, 3)) + 1)
        loss = 1 - dice.mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Changes that bring nothing.


@unseen(
    "none: a transformer of spectrograms, whose one convolution cuts the patches; cudnn.benchmark=True",
    names=r"cudnn\.?benchmark|benchmark\s*=|autotun|auto-tun",
    kind="inference",
    recorded="none",
    null=True,
)
def null_cudnn_benchmark(device: str, changed: bool) -> Step:
    dim, dtype = 1024, low(device)
    with torch.device(device):
        patches, net = nn.Conv2d(1, dim, 8, 8).to(dtype).eval(), blocks(14, dim, 16, device, dtype).eval()
    sounds = torch.randn(small(64), 1, 64, 256 if device != "cpu" else 32, device=device, dtype=dtype)
    head = nn.Linear(dim, 527).to(device, dtype)

    @torch.no_grad()
    def step() -> Tensor:
        torch.backends.cudnn.benchmark = changed
        x = patches(sounds).flatten(2).transpose(1, 2).contiguous()
        torch.backends.cudnn.benchmark = False
        for block in net:
            x = block(x)
        return head(F.layer_norm(x, (dim,)).mean(1)).float().sigmoid()

    return step


@unseen(
    "none: the 1000 scores of each picture are sorted for the best five, beside a large convolution net; topk",
    names=r"\btopk\b|top-?k\b|aten::(arg)?sort|full sort",
    kind="inference",
    recorded="none",
    null=True,
)
def null_sort_of_scores(device: str, changed: bool) -> Step:
    side, dtype = 224 if device != "cpu" else 32, low(device)
    widths = [64] * 4 + [128] * 4 + [256] * 4 + [512] * 4
    net = conv_net(widths).to(device, dtype).to(memory_format=torch.channels_last).eval()
    head = nn.Linear(512, 1000).to(device, dtype)
    pictures = torch.randn(small(128), 3, side, side, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        scores = head(net(pictures).mean((2, 3))).float().softmax(-1)
        return scores.topk(5, dim=-1).values if changed else scores.sort(dim=-1, descending=True).values[:, :5]

    return step


@unseen(
    "none: the sines of the noise level are computed in each step of denoising, some short kernels beside milliseconds; "
    "a table, made once",
    names=r"sinus|sines?\b|(time|noise|step|frequenc)\w*.{0,12}(embedding|table|level)|precomput|cach(e|ed|ing)\b|hoist"
    r"|comput\w* once|loop.?invariant|aten::(sin|cos|arange|exp)\b|outside (of )?the loop",
    kind="inference",
    recorded="denoise",
    null=True,
)
def null_sines_of_time(device: str, changed: bool) -> Step:
    dim, steps, dtype = 1024, 4, low(device)
    net = blocks(8, dim, 16, device, dtype).eval()
    first, last, mix = (nn.Linear(a, b).to(device, dtype) for a, b in ((16, dim), (dim, 16), (dim, dim)))
    noise = torch.randn(small(32), small(256), 16, device=device, dtype=dtype)

    def waves(level: float) -> Tensor:
        angles = 1000 * level * torch.exp(torch.arange(dim // 2, device=device) * (-9.21 / (dim // 2)))
        return torch.cat([angles.cos(), angles.sin()]).to(dtype)

    levels = [1 - number / steps for number in range(steps)]
    table = [waves(level) for level in levels]

    @torch.no_grad()
    def step() -> Tensor:
        x = noise
        for number, level in enumerate(levels):
            h = first(x) + F.silu(mix(table[number] if changed else waves(level)))
            for block in net:
                h = block(h)
            x = x - last(h) / steps
        return x.float()

    return step


class Notes(Dataset[tuple[Tensor, Tensor]]):
    """Cuts of long melodies, cheap to take."""

    def __init__(self, length: int):
        self.melodies, self.length = torch.randint(0, 512, (16, 60_000)), length

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        start = number * 53 % 50_000
        cut = self.melodies[number % 16, start : start + self.length + 1]
        return cut[:-1], cut[1:]


@unseen(
    "none: two workers are ahead of a GPU that is the bottleneck; num_workers=8",
    names=r"num_workers|more (loader |data.?loader )?(workers|processes)|data.?load(er|ing)|prefetch",
    kind="training",
    recorded="step",
    null=True,
)
def null_more_workers(device: str, changed: bool) -> Step:
    dim, dtype, length = 1024, low(device), small(1024)
    loader = DataLoader(Notes(length), small(16), num_workers=8 if changed else 2, pin_memory=device != "cpu")
    batches = iter(loader)
    table, net = nn.Embedding(512, dim).to(device, dtype), blocks(6, dim, 16, device, dtype)
    optimizer = torch.optim.AdamW([*table.parameters(), *net.parameters()], lr=1e-5, fused=True)

    def step() -> Tensor:
        notes, wanted = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        x = table(notes)
        for block in net:
            x = block(x, causal=True)
        logits = F.layer_norm(x, (dim,)) @ table.weight.T / 32
        loss = F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: gradients are accumulated over two micro-batches that fill the GPU each; both as one batch",
    names=r"micro.?batch|(gradient|grad).?accum|accumulat\w+ (steps|gradients|over)|(larger|bigger|increase\w*|raise|whole|one)"
    r" (the )?(per.?\w+ )?batch|batch.?size",
    kind="training",
    recorded="step",
    null=True,
)
def null_two_large_micro_batches(device: str, changed: bool) -> Step:
    dim, dtype, count = small(2048), low(device), 1 if changed else 2
    with torch.device(device):
        net = blocks(2, dim, 16, device, dtype)
        first, last = nn.Linear(64, dim).to(dtype), nn.Linear(dim, 64).to(dtype)
    optimizer = torch.optim.AdamW([*first.parameters(), *net.parameters(), *last.parameters()], lr=1e-6, fused=True)
    flows = torch.randn(32, small(1024), 64, device=device, dtype=dtype)
    later = flows + 0.1 * torch.randn_like(flows)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for now, wanted in zip(flows.chunk(count), later.chunk(count), strict=True):
            x = first(now)
            for block in net:
                x = block(x, causal=True)
            loss = F.mse_loss(last(x).float(), wanted.float()) / count
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


@unseen(
    "none: all matrix products of a training under autocast are of bfloat16 already; TF32 for those of float32",
    names=r"tf32|float32_matmul_precision|allow_tf32|fp32_precision",
    kind="training",
    recorded="none",
    null=True,
)
def null_tf32_beside_autocast(device: str, changed: bool) -> Step:
    genes, dim = small(4096), small(4096)
    widths = ((genes, dim), (dim, dim), (dim, 512), (512, dim), (dim, dim), (dim, genes))
    with torch.device(device):
        layers = [part for a, b in widths for part in (nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU())]
        net = nn.Sequential(*layers[:-2])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)
    cells = torch.rand(small(16_384), genes, device=device)

    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        optimizer.zero_grad()
        with autocast(device):
            found = net(cells)
        loss = F.smooth_l1_loss(found.float(), cells)
        loss.backward()
        optimizer.step()
        torch.set_float32_matmul_precision("highest")
        return loss.detach()

    return step


# On a CPU.


# Inference.


@unseen(
    "the nearest 16 neighbours of each point come from argsort of all its distances; topk",
    names=r"\btopk\b|aten::(arg)?sort|argsort|fully? sort|partial sort|sort(s|ed|ing)? (all|every|the (whole|entire|full))"
    r"|kthvalue",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def lidar_neighbours(device: str, changed: bool) -> Step:
    count, near = 512, 16
    cloud = torch.rand(2, count, 3)
    widths = [(6, 32), (64, 64)]
    edges = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in widths]
    head = nn.Linear(64, 9)

    def neighbours(x: Tensor) -> Tensor:
        inner = x @ x.transpose(1, 2)
        norms = x.square().sum(-1)
        apart = norms[:, :, None] - 2 * inner + norms[:, None, :]
        if changed:
            return apart.topk(near, dim=-1, largest=False).indices
        return apart.argsort(dim=-1)[:, :, :near]

    @torch.no_grad()
    def step() -> Tensor:
        x = cloud
        for edge in edges:
            rows = neighbours(x)
            around = x.gather(1, rows.flatten(1)[:, :, None].expand(-1, -1, x.shape[-1])).unflatten(1, (count, near))
            centre = x[:, :, None].expand_as(around)
            x = edge(torch.cat([centre, around - centre], dim=-1)).amax(2)
        return head(x.amax(1)).softmax(-1)

    return step


@unseen(
    "greedy CTC decoding takes every frame's symbol out of the tensor by itself, with indexing and item(); tolist() once "
    "(or unique_consecutive)",
    names=r"\.?item\(\)|aten::item|_local_scalar_dense|tolist|unique_consecutive|element (by|after) element|one element at a time"
    r"|(scalar|element|frame|value)s? .{0,40}python|python loop|vectori[sz]|numpy\(\)",
    kind="inference",
    recorded="transcribe",
    on=("cpu",),
    with_stack=True,
)
def speech_ctc_items(device: str, changed: bool) -> Step:
    symbols = " abcdefghijklmnopqrstuvwxyz'"
    features = nn.Sequential(nn.Conv1d(40, 96, 5, 2, 2), nn.ReLU(), nn.Conv1d(96, 96, 5, 1, 2), nn.ReLU()).eval()
    rnn, head = nn.GRU(96, 96, batch_first=True), nn.Linear(96, len(symbols) + 1)
    nn.init.normal_(head.weight)
    clips = torch.randn(4, 40, 200)

    def text_of(best: Tensor) -> list[int]:
        found, last = [], 0
        if changed:
            for symbol in best.tolist():
                if symbol not in (0, last):
                    found.append(symbol - 1)
                last = symbol
        else:
            for t in range(len(best)):
                if best[t].item() != 0 and best[t].item() != last:
                    found.append(int(best[t].item()) - 1)
                last = int(best[t].item())
        return found

    @torch.no_grad()
    def step() -> list[int]:
        hidden, _ = rnn(features(clips).transpose(1, 2))
        best = head(hidden).log_softmax(-1).argmax(-1)
        return [symbol for row in best for symbol in text_of(row)]

    return step


class Separable(nn.Module):
    """A depthwise and a pointwise convolution, with a residual where the shape stays."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.kept = before == after and stride == 1
        self.depth = nn.Conv2d(before, before, 3, stride, 1, groups=before)
        self.point = nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.point(F.hardswish(self.depth(x)))
        return x + y if self.kept else y


@unseen(
    "a mobile network's images and weights keep the layout NCHW, converted or slow for its convolutions; channels_last",
    names=r"channels.?last|\bnhwc\b|memory.?format|reorder|memory layout|layout",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def leaves_nchw(device: str, changed: bool) -> Step:
    stages = [(24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1), (96, 96, 1), (96, 160, 2), (160, 160, 1)]
    net = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), *(Separable(*stage) for stage in stages)).eval()
    head = nn.Linear(160, 38)
    images = torch.randn(8, 3, 160, 160)
    if changed:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.no_grad()
    def step() -> Tensor:
        x = images.contiguous(memory_format=torch.channels_last) if changed else images
        return head(net(x).mean((2, 3))).softmax(-1)

    return step


@unseen(
    "kriging builds and factorises the same stations' covariance again for each block of the map; once",
    names=r"(cholesky|factor\w*|covariance|decompos\w*).{0,60}(once|cach|kept|keep|reus|hoist|outside|again|every|each|repeat)"
    r"|(once|cach\w*|keep|reus\w*|hoist|precomput\w*|repeat\w*|same).{0,60}(cholesky|factor|covariance|decompos)"
    r"|loop.?invariant|hoist|recomput|precomput|same (inputs?|arguments?|results?|data|tensors?|values?|matri\w+)\b",
    kind="inference",
    recorded="interpolate",
    on=("cpu",),
)
def rain_kriging(device: str, changed: bool) -> Step:
    stations, rain = torch.rand(640, 2), torch.randn(640, 24)
    side = torch.linspace(0, 1, 48)
    blocks_of_map = torch.cartesian_prod(side, side).chunk(8)

    def covariance(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-4 * torch.cdist(a, b))

    def solved() -> tuple[Tensor, Tensor]:
        factor = torch.linalg.cholesky(covariance(stations, stations) + 0.1 * torch.eye(len(stations)))
        return factor, torch.cholesky_solve(rain, factor)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        means, spreads = [], []
        kept = solved() if changed else None
        for block in blocks_of_map:
            factor, weights = kept or solved()
            across = covariance(stations, block)
            means.append(across.T @ weights)
            half = torch.linalg.solve_triangular(factor, across, upper=False)
            spreads.append((1.1 - half.square().sum(0)).clamp(min=0).sqrt())
        return torch.cat(means), torch.cat(spreads)

    return step


@unseen(
    "the 16 small networks of an ensemble are called one after another; their weights stacked, one batched product for all",
    names=r"baddbmm|\bbmm\b|\bvmap\b|stack_module_state|batched (matrix|product|matmul|gemm|linear)|torch\.func"
    r"|grouped (gemm|matmul)|stack\w* (the |their |all )?(\w+ )?(weights|parameters|networks|models|members|layers)"
    r"|(batch|group|combine|merge|fuse|join)\w* (the |many |these |small |all |tiny |little )*"
    r"(networks|models|members|linears?|products|matmuls|gemms|addmm)"
    r"|(many|small|tiny) (\w+ )?(matrix products|matmuls|gemms|addmms?|linears?)",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def ensemble_one_by_one(device: str, changed: bool) -> Step:
    members, seen, acts, horizon = 16, 18, 6, 6
    widths = [(seen + acts, 48), (48, 48), (48, 48), (48, seen)]
    layers = [[nn.Linear(a, b) for _ in range(members)] for a, b in widths]
    nets = [nn.Sequential(*(m for layer in layers for m in (layer[i], nn.Tanh()))) for i in range(members)]
    weights = [torch.stack([linear.weight.detach().T for linear in layer]) for layer in layers]
    biases = [torch.stack([linear.bias.detach() for linear in layer])[:, None] for layer in layers]
    states, plans = torch.randn(members, 32, seen), torch.randn(horizon, members, 32, acts)

    @torch.no_grad()
    def step() -> Tensor:
        x, reward = states, torch.zeros(members, 32)
        for plan in plans:
            known = torch.cat([x, plan], dim=-1)
            if changed:
                moved = known
                for weight, bias in zip(weights, biases, strict=True):
                    moved = torch.baddbmm(bias, moved, weight).tanh_()
            else:
                moved = torch.stack([net(part) for net, part in zip(nets, known, strict=True)])
            x = x + moved
            reward = reward - x.square().mean(-1)
        return reward.mean(0)

    return step


@unseen(
    "the operators' threads were set to 16, the host's cores, in a container that has two; torch.set_num_threads(2)",
    names=r"set_num_threads|oversubscri|OMP_NUM_THREADS|intra.?op|too many threads|more threads than|num_threads"
    r"|threads? compete|threads than (there are |the )?(\w+ )?cores|number of (operator )?threads",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def host_threads(device: str, changed: bool) -> Step:
    threads = 2 if changed else 16
    net = conv_net([24, 24, 48, 48, 96, 96]).eval()
    head = nn.Linear(96, 12)
    crops = torch.randn(6, 1, 3, 112, 112)

    @torch.no_grad()
    def step() -> Tensor:
        torch.set_num_threads(threads)
        return torch.cat([head(net(crop).mean((2, 3))).softmax(-1) for crop in crops])

    return step


@unseen(
    "none: attention over questions of 20 tokens is written out, little beside wide layers; scaled_dot_product_attention",
    names=r"scaled_dot_product|\bsdpa\b|flash|fused attention|memory.?efficient attention",
    kind="inference",
    recorded="step",
    on=("cpu",),
    null=True,
)
def null_short_attention(device: str, changed: bool) -> Step:
    dim, heads, depth = 768, 12, 2
    projections = [nn.Linear(dim, 3 * dim) for _ in range(depth)]
    outs = [nn.Linear(dim, dim) for _ in range(depth)]
    wides = [nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(depth)]
    words = nn.Embedding(5000, dim)
    ids = torch.randint(0, 5000, (8, 20))

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if changed:
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.transpose(-2, -1) / (dim // heads) ** 0.5).softmax(-1) @ v

    @torch.no_grad()
    def step() -> Tensor:
        x = words(ids)
        for project, out, wide in zip(projections, outs, wides, strict=True):
            q, k, v = project(F.layer_norm(x, (dim,))).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + out(attended(q, k, v).transpose(1, 2).flatten(2))
            x = x + wide(x)
        return F.normalize(x.mean(1), dim=-1)

    return step


# Training.


@unseen(
    "the points of a physics-informed network came from NumPy in float64, and the network was made double for them; float32",
    names=r"float64|\bdouble\b(?! (backward|buffer))|fp64|single precision|(to|in|as|use|with) (torch\.)?float32|\.float\(\)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def heat_equation_double(device: str, changed: bool) -> Step:
    points = np.random.default_rng(0).random((1500, 2))
    inside = torch.from_numpy(points.astype(np.float32) if changed else points)
    start = inside[:400].clone()
    start[:, 1] = 0
    layers = [m for a, b in ((2, 64), (64, 64), (64, 64)) for m in (nn.Linear(a, b), nn.Tanh())]
    net = nn.Sequential(*layers, nn.Linear(64, 1)).to(inside.dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def residual() -> Tensor:
        at = inside.detach().requires_grad_()
        u = net(at)
        (first,) = torch.autograd.grad(u.sum(), at, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), at, create_graph=True)
        return first[:, 1] - 0.1 * second[:, 0]

    def step() -> Tensor:
        optimizer.zero_grad()
        wanted = torch.sin(torch.pi * start[:, :1])
        loss = residual().square().mean() + F.mse_loss(net(start), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Slides(Dataset[tuple[Tensor, int]]):
    """Compressed tiles of slides in a store that answers after some milliseconds."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.stored = [zlib.compress(random.integers(0, 32, (3, 64, 64), dtype=np.uint8).tobytes(), 1) for _ in range(32)]

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        time.sleep(0.0015)
        tile = np.frombuffer(bytearray(zlib.decompress(self.stored[number % 32])), dtype=np.uint8)
        return torch.from_numpy(tile).view(3, 64, 64).float().div_(32), number % 4


@unseen(
    "each batch of tiles is fetched and decompressed in the training process, which waits for it; DataLoader(num_workers=2)",
    names=r"num_workers|worker process|data ?load(er|ing)|prefetch|(background|another|separate|own) (thread|process)",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def slides_without_workers(device: str, changed: bool) -> Step:
    batches = iter(DataLoader(Slides(), batch_size=8, num_workers=2 if changed else 0))
    net, head = conv_net([24, 48, 48, 96], norm=True), nn.Linear(96, 4)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01, momentum=0.9)

    def step() -> Tensor:
        tiles, kinds = next(batches)
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(tiles).mean((2, 3))), kinds)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Normed(nn.Module):
    """Layer normalisation, written out or by the library's operator."""

    def __init__(self, dim: int, library: bool):
        super().__init__()
        self.library = library
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        if self.library:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-6)
        mean = x.mean(-1, keepdim=True)
        spread = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt(spread + 1e-6) + self.bias


class Mixer(nn.Module):
    """A block that mixes the places of a sequence, then its features."""

    def __init__(self, length: int, dim: int, library: bool):
        super().__init__()
        self.norm1, self.norm2 = Normed(dim, library), Normed(dim, library)
        self.places = nn.Sequential(nn.Linear(length, length), nn.ReLU())
        self.features = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.norm2(x))


@unseen(
    "layer normalisation is written out in means, differences and quotients, many passes each way; F.layer_norm",
    names=r"layer_?norm|layer normali[sz]|fused norm|native_layer_norm|torch\.compile"
    r"|normali[sz]ation (\S+ ){0,6}(fused|one op|single op|operator|built.?in|library)",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def mixer_norm_written_out(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(7, 128), *(Mixer(96, 128, changed) for _ in range(3)), Normed(128, changed))
    head = nn.Linear(128, 7)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
    series = torch.randn(24, 97, 7).cumsum(1) / 10

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.l1_loss(head(net(series[:, :-1])), series[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a triplet loss finds the hardest examples in a Python loop over the anchors; all at once, from the matrix of distances",
    names=r"vectori[sz]|cdist|broadcast|python loop|loop over|for.loop|distance matrix|matrix of distances|masked_fill"
    r"|torch\.where|(all|every) (the )?(anchors?|rows?|samples?|pairs?|examples?) (at once|together)"
    r"|boolean (mask|index)|many small op|batch\w* (the )?(loop|operations)",
    kind="training",
    recorded="fit",
    on=("cpu",),
)
def faces_triplet_loop(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    faces, people = torch.randn(48, 512), torch.arange(48) // 4

    def triplets(x: Tensor) -> Tensor:
        if changed:
            apart = (2 - 2 * x @ x.T).clamp(min=1e-6).sqrt()
            same = people[:, None] == people
            furthest = apart.masked_fill(~same, -torch.inf).amax(1)
            nearest = apart.masked_fill(same, torch.inf).amin(1)
            return F.relu(furthest - nearest + 0.3).mean()
        losses = []
        for number in range(len(x)):
            apart = (2 - 2 * x @ x[number]).clamp(min=1e-6).sqrt()
            same = people == people[number]
            losses.append(F.relu(apart[same].max() - apart[~same].min() + 0.3))
        return torch.stack(losses).mean()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = triplets(F.normalize(net(faces), dim=-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the area under the ROC curve of the last 40 batches is taken anew in every training step, for a log; every fiftieth step",
    names=r"\bauc\b|\broc\b|\bmetrics?\b|less (often|frequent)|every (\w+ )?(n|k|few|hundred\w*|fift\w+|\d+)\w* (step|batch|iter)"
    r"|only (now and then|occasionally|at the end)|\blogg(ed|ing)\b|end of (the|an|each) epoch|not (in )?every step"
    r"|sort\w* (\S+ ){0,15}(each step|every step|per step|needed)",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def clicks_auc_each_step(device: str, changed: bool) -> Step:
    table = nn.EmbeddingBag(2000, 32, mode="sum")
    net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD([*table.parameters(), *net.parameters()], lr=0.05)
    fields, clicked = torch.randint(0, 2000, (1024, 20)), (torch.rand(1024) < 0.2).float()
    last_scores = deque([torch.rand(1024) for _ in range(40)], maxlen=40)
    last_clicked = deque([clicked.roll(n) for n in range(40)], maxlen=40)
    period, logged = 50 if changed else 1, [0.5]
    count = 0

    @torch.no_grad()
    def area() -> float:
        scores, truth = torch.cat(list(last_scores)), torch.cat(list(last_clicked))
        truth = truth[scores.argsort(descending=True)]
        hits, misses = truth.cumsum(0), (1 - truth).cumsum(0)
        return float(torch.trapezoid(hits / hits[-1], misses / misses[-1]))

    def step() -> Tensor:
        nonlocal count
        count += 1
        optimizer.zero_grad()
        out = net(table(fields)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(out, clicked)
        loss.backward()
        optimizer.step()
        last_scores.append(out.detach().sigmoid())
        last_clicked.append(clicked)
        if count % period == 0:
            logged[0] = area()
        return loss.detach()

    return step


@unseen(
    "none: Adam updates the few small filters of a net that takes long for its images; fused=True",
    names=r"fused|foreach|optimi[sz]er|\badam\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
)
def null_fused_for_few(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    last = nn.Conv2d(16, 1, 3, padding=1)
    optimizer = torch.optim.Adam([*net.parameters(), *last.parameters()], lr=1e-3, fused=True if changed else None)
    clean = torch.rand(4, 1, 160, 160)
    noisy = clean + 0.1 * torch.randn_like(clean)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(noisy - last(net(noisy)), clean)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: small batches are cut from an array just before a step that keeps both cores busy; a thread that prepares the next",
    names=r"prefetch|(background|another|separate|own|second|worker|loader) thread|thread (that|which|prepares)|overlap"
    r"|double.?buffer|num_workers|ahead|data ?load",
    kind="training",
    recorded="none",
    on=("cpu",),
    null=True,
)
def null_next_batch_thread(device: str, changed: bool) -> Step:
    random = np.random.default_rng(0)
    table = random.standard_normal((20_000, 64)).astype(np.float32)
    mean, spread = table.mean(0), table.std(0)
    net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pool = ThreadPoolExecutor(1)

    def prepared() -> Tensor:
        rows = random.integers(0, len(table), 768)
        return torch.from_numpy((table[rows] - mean) / spread)

    waiting = pool.submit(prepared) if changed else None

    def step() -> Tensor:
        nonlocal waiting
        if waiting is None:
            batch = prepared()
        else:
            batch = waiting.result()
            waiting = pool.submit(prepared)
        optimizer.zero_grad()
        loss = F.mse_loss(net(batch), batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
