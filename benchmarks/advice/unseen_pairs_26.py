"""Eighteen more programs for one GPU, before and after one change: thirteen with a fault, five where the change brings nothing.

Written without a look at what the reader knows, as unseen_pairs.py says. Every program is a whole small model with its step of
training or its service; sizes are made with small(...), so that UNSEEN_SCALE=8 lets a CPU try them.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
import copy
import itertools
import random
from typing import Any
import zlib

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, endless, low, small
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def pinned(tensor: Tensor, device: str) -> Tensor:
    """Return a host's tensor in pinned memory, where there is a GPU."""
    return tensor.pin_memory() if device == "cuda" else tensor


def mixed(device: str, enabled: bool = True) -> torch.autocast:
    """Return the context of mixed precision, which does nothing on a CPU."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled and device == "cuda")


class Vocoder(nn.Module):
    """A generator of waves out of mel frames: transposed convolutions, each followed by three stacks of dilated ones."""

    def __init__(self, mels: int, width: int) -> None:
        super().__init__()
        self.pre = nn.Conv1d(mels, width, 7, padding=3)
        self.ups, self.stacks = nn.ModuleList(), nn.ModuleList()
        for rate, taps in ((8, 16), (8, 16), (2, 4), (2, 4)):
            self.ups.append(nn.ConvTranspose1d(width, width // 2, taps, rate, (taps - rate) // 2))
            width //= 2
            self.stacks.append(nn.ModuleList(self.stack(width, taps) for taps in (3, 7, 11)))
        self.post = nn.Conv1d(width, 1, 7, padding=3)

    @staticmethod
    def stack(width: int, taps: int) -> nn.ModuleList:
        """Return pairs of convolutions, the first of each dilated."""
        return nn.ModuleList(
            nn.Conv1d(width, width, taps, dilation=dilation, padding=dilation * (taps - 1) // 2)
            for wide in (1, 3, 5)
            for dilation in (wide, 1)
        )

    def forward(self, mel: Tensor) -> Tensor:
        x = self.pre(mel)
        for up, stacks in zip(self.ups, self.stacks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            outs = []
            for stack in stacks:  # type: ignore[attr-defined]
                y = x
                for first, second in zip(stack[::2], stack[1::2], strict=True):
                    y = y + second(F.leaky_relu(first(F.leaky_relu(y, 0.1)), 0.1))
                outs.append(y)
            x = (outs[0] + outs[1] + outs[2]) / 3
        return self.post(F.leaky_relu(x)).tanh()


@unseen(
    "the weight norm of every convolution is still computed at each call of the service; it is folded into the weights once",
    names=r"weight.?norm|parametri[sz]|fold|cuda.?graph|reduce-overhead",
    kind="inference",
    recorded="sentence",
)
def speech_synthesis_chunks(device: str, changed: bool) -> Step:
    dtype = torch.float16 if device == "cuda" else torch.float32
    vocoder = Vocoder(80, 256).eval()
    convs = [part for part in vocoder.modules() if isinstance(part, (nn.Conv1d, nn.ConvTranspose1d))]
    for conv in convs:
        weight_norm(conv)
    if changed:
        for conv in convs:
            remove_parametrizations(conv, "weight", leave_parametrized=True)
    vocoder.to(device, dtype)
    mels = [torch.randn(1, 80, small(96, 16)) for _ in range(3)]

    @torch.inference_mode()
    def step() -> list[Tensor]:
        waves = []
        for mel in mels:
            wave = vocoder(mel.to(device, dtype))
            waves.append((wave[0, 0] * 32767).to(torch.int16).cpu())
        return waves

    return step


@unseen(
    "wide features are enlarged to the full picture ahead of the 1x1 classifier; it classifies first, then classes are enlarged",
    names=r"upsampl|interpolat|enlarg|resiz",
    kind="inference",
    recorded="none",
)
def land_cover_tiles(device: str, changed: bool) -> Step:
    width, side, dtype = small(256, 16), small(512, 32), low(device)
    backbone = nn.Sequential(*convolutions((4, 64, width)), *convolutions((width,) * (depth(6) + 1), 1)).eval()
    classify = nn.Conv2d(width, 12, 1)
    for part in (backbone, classify):
        part.to(device, dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    tiles = pinned(torch.randint(0, 256, (small(16), side, side, 4), dtype=torch.uint8), device)

    @torch.inference_mode()
    def step() -> Tensor:
        picture = tiles.to(device, non_blocking=True).permute(0, 3, 1, 2).to(dtype) / 255
        features = backbone(picture)
        if changed:
            logits = F.interpolate(classify(features), scale_factor=4, mode="bilinear")
        else:
            logits = classify(F.interpolate(features, scale_factor=4, mode="bilinear"))
        return logits.float().softmax(1).mean((2, 3)).cpu()

    return step


class Neighbours(nn.Module):
    """A layer that adds what the neighbours say to what a node knows."""

    def __init__(self, width: int, select: bool) -> None:
        super().__init__()
        self.own, self.told, self.select = nn.Linear(width, width), nn.Linear(width, width), select

    def forward(self, h: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        told = self.told(h)
        said = told.index_select(0, source) if self.select else told[source]
        heard = torch.zeros_like(told).index_add(0, target, said * weight)
        return F.relu(self.own(h) + heard)


@unseen(
    "nodes are gathered by h[source], whose gradient sorts edges (index_put_ with accumulate); index_select, whose gradient adds",
    names=r"index_put|index_select|index_add|index_backward|IndexBackward|aten::index\b|scatter|embedding",
    kind="training",
    recorded="step",
)
def payment_network_accounts(device: str, changed: bool) -> Step:
    nodes, edges, width = small(150_000), small(2_000_000), 64
    source, target = (torch.randint(0, nodes, (edges,)).to(device) for _ in range(2))
    weight = torch.rand(edges, 1).to(device) / 13
    known = torch.randn(nodes, 32).to(device)
    labels = (torch.rand(nodes, 1) < 0.1).float().to(device)
    enter, leave = nn.Linear(32, width).to(device), nn.Linear(width, 1).to(device)
    layers = nn.ModuleList(Neighbours(width, changed) for _ in range(3)).to(device)
    parameters = [*enter.parameters(), *layers.parameters(), *leave.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-4, fused=True)

    def step() -> Tensor:
        h = F.relu(enter(known))
        for layer in layers:
            h = layer(h, source, target, weight)
        loss = F.binary_cross_entropy_with_logits(leave(h), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


BLANK = 0
ALPHABET = "_abcdefghijklmnopqrstuvwxyz '.,?ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"[:64]
LETTERS = ALPHABET.encode().ljust(256, b"?")
Transcript = tuple[str, list[float]]


def spelled(ids: Tensor) -> list[Transcript]:
    """Return each row's text and when its letters are said, frame by frame."""
    transcripts = []
    for row in ids.tolist():
        letters, marks, last = [], [], BLANK
        for frame, symbol in enumerate(row):
            if symbol != last and symbol != BLANK:
                letters.append(ALPHABET[symbol])
                marks.append(round(frame * 0.02, 2))
            last = symbol
        transcripts.append(("".join(letters), marks))
    return transcripts


def read(symbols: Tensor, frames: Tensor, counts: Tensor) -> list[Transcript]:
    """Return the same out of symbols that are already collapsed."""
    seconds = frames.float() * 0.02
    return [
        (row[:count].numpy().tobytes().translate(LETTERS).decode(), marks[:count].tolist())
        for row, marks, count in zip(symbols, seconds, counts.tolist(), strict=True)
    ]


@unseen(
    "a thread spells the last batch's transcripts in a Python loop over frames and holds the interpreter's lock from the thread "
    "that launches the next batch; frames are collapsed on the GPU and the thread only joins bytes",
    names=r"\bGIL\b|interpreter|(background|other|second|worker|pool).?thread|ThreadPool|post.?process|vectori[sz]|tolist|numpy",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def call_centre_transcripts(device: str, changed: bool) -> Step:
    width, frames, dtype = small(512, 64), small(1000, 50), low(device)
    enter = nn.Sequential(nn.Conv1d(80, width, 3, 2, 1), nn.GELU()).to(device, dtype)
    layers = nn.ModuleList(Layer(width, 8) for _ in range(depth(10))).to(device, dtype)
    leave = nn.Linear(width, len(ALPHABET)).to(device, dtype)
    mel = pinned(torch.randn(small(32), 80, 2 * frames), device)
    pool = ThreadPoolExecutor(1)
    pending: list[Future[list[Transcript]]] = []

    @torch.inference_mode()
    def step() -> list[Any]:
        x = enter(mel.to(device, non_blocking=True).to(dtype)).transpose(1, 2)
        for layer in layers:
            x = layer(x)
        ids = leave(x).argmax(2)
        if changed:
            keep = (ids != F.pad(ids[:, :-1], (1, 0), value=BLANK)) & (ids != BLANK)
            order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)
            symbols = ids.gather(1, order).to(torch.uint8)
            task = pool.submit(read, symbols.cpu(), order.to(torch.int16).cpu(), keep.sum(1).cpu())
        else:
            task = pool.submit(spelled, ids.cpu())
        pending.append(task)
        if len(pending) < 2:
            return []
        return [part for text, marks in pending.pop(0).result() for part in (len(text), sum(marks))]

    return step


@unseen(
    "the head gives logits of every position of the prompt, of which only the last is read; the last position is taken first",
    names=r"last (token|position|row)|lm.?head|logits|slic|aten::select|narrow|unused|unread|discard|thrown",
    kind="inference",
    recorded="none",
)
def passage_reranker(device: str, changed: bool) -> Step:
    width, vocabulary, dtype = small(1024, 64), small(98_304), low(device)
    with torch.device(device):
        words = nn.Embedding(vocabulary, width, dtype=dtype)
        layers = nn.ModuleList(Layer(width, 16, causal=True) for _ in range(depth(8))).to(dtype)
        norm = nn.LayerNorm(width, dtype=dtype)
        head = nn.Linear(width, vocabulary, bias=False, dtype=dtype)
    prompts = pinned(torch.randint(0, vocabulary, (small(32), small(512))), device)
    answers = torch.tensor([17, 42], device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = words(prompts.to(device, non_blocking=True))
        for layer in layers:
            x = layer(x)
        last = head(norm(x[:, -1:]))[:, 0] if changed else head(norm(x))[:, -1]
        return last.index_select(1, answers).float().log_softmax(1)[:, 1].cpu()

    return step


@unseen(
    "the table of millions of ids gets a dense gradient, and Adam passes over all of its rows; a sparse gradient and SparseAdam",
    names=r"sparse|embedding_dense_backward|embedding_backward|EmbeddingBackward|embedding",
    kind="training",
    recorded="step",
)
def classified_ads_clicks(device: str, changed: bool) -> Step:
    rows, batch, fields, width = small(10_000_000), small(8192), 24, 64
    table = nn.Embedding(rows, width, sparse=changed, device=device)
    mlp = nn.Sequential(nn.Linear(fields * width + 13, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
    mlp.to(device)
    if changed:
        optimizers: list[torch.optim.Optimizer] = [
            torch.optim.SparseAdam(list(table.parameters()), 1e-4),
            torch.optim.Adam(mlp.parameters(), 1e-4, fused=True),
        ]
    else:
        optimizers = [torch.optim.Adam([*table.parameters(), *mlp.parameters()], 1e-4, fused=True)]
    ids = pinned((torch.rand(batch, fields) ** 2 * (rows - 1)).long(), device)
    numbers = pinned(torch.randn(batch, 13), device)
    clicks = pinned((torch.rand(batch, 1) < 0.05).float(), device)

    def step() -> Tensor:
        fed, counted, clicked = (part.to(device, non_blocking=True) for part in (ids, numbers, clicks))
        with mixed(device):
            logits = mlp(torch.cat([table(fed).flatten(1), counted], 1))
        loss = F.binary_cross_entropy_with_logits(logits.float(), clicked)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


class Denoiser(nn.Module):
    """A transformer on the patches of a noisy latent."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.enter, self.when = nn.Linear(16, width), nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(Layer(width, 6) for _ in range(layers))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 16))

    def forward(self, noisy: Tensor, level: Tensor) -> Tensor:
        x = self.enter(noisy) + self.when(level)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x)


@unseen(
    "the averaged copy of the weights is updated tensor by tensor, two operations each; torch._foreach_lerp_ updates all of them",
    names=r"foreach|multi.?tensor|\bema\b|lerp|AveragedModel|swa_utils|moving average|aten::(mul|add)_|cuda.?graph",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def galaxy_image_denoiser(device: str, changed: bool) -> Step:
    model = Denoiser(small(384, 48), depth(24)).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    latents = torch.randn(small(8), small(256), 16).to(device)
    decay = 0.999

    @torch.no_grad()
    def follow() -> None:
        if changed:
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
            return
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.mul_(decay).add_(new, alpha=1 - decay)

    def step() -> list[Tensor]:
        noise, level = torch.randn_like(latents), torch.rand(len(latents), 1, 1, device=device)
        with mixed(device):
            guess = model(latents * (1 - level) + noise * level, level)
        loss = F.mse_loss(guess.float(), noise - latents)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow()
        return [loss.detach(), average.enter.weight.detach()]

    return step


@unseen(
    "each chunk of frames is uploaded on the stream that computes, which waits; a side stream uploads the next chunk meanwhile",
    names=r"overlap|prefetch|double.?buffer|(side|second|other|separate|own|copy) stream|wait_stream|wait_event",
    kind="inference",
    recorded="clip",
    record_shapes=False,
)
def traffic_camera_clips(device: str, changed: bool) -> Step:
    height, width, dtype = small(720, 96), small(1280, 96), low(device)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 5, 4, 2),
        nn.ReLU(),
        *convolutions((64, 128)),
        *convolutions((128,) * (depth(5) + 1), 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    model.eval().to(device, dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    frames = torch.randint(0, 256, (small(32), height, width, 3), dtype=torch.uint8)
    chunks = [pinned(frames + 40 * number, device) for number in range(6)]

    def judged(chunk: Tensor) -> Tensor:
        return model(chunk.permute(0, 3, 1, 2).to(dtype) / 255).float()

    @torch.inference_mode()
    def in_turn() -> Tensor:
        return torch.cat([judged(chunk.to(device, non_blocking=True)) for chunk in chunks]).cpu()

    if device != "cuda" or not changed:
        return in_turn
    side = torch.cuda.Stream()
    slots = [torch.empty_like(chunks[0], device=device) for _ in range(2)]
    filled, free = ([torch.cuda.Event() for _ in slots] for _ in range(2))

    def upload(number: int) -> None:
        with torch.cuda.stream(side):
            side.wait_event(free[number % 2])
            slots[number % 2].copy_(chunks[number], non_blocking=True)
            filled[number % 2].record(side)

    @torch.inference_mode()
    def ahead() -> Tensor:
        current = torch.cuda.current_stream()
        upload(0)
        scores = []
        for number in range(len(chunks)):
            if number + 1 < len(chunks):
                upload(number + 1)
            current.wait_event(filled[number % 2])
            scores.append(judged(slots[number % 2]))
            free[number % 2].record(current)
        return torch.cat(scores).cpu()

    return ahead


def advantages_in_turn(delta: Tensor, keep: Tensor) -> Tensor:
    """Return the discounted sums of delta, from the last row to the first."""
    advantages, last = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for row in reversed(range(len(delta))):
        last = delta[row] + 0.99 * 0.95 * keep[row] * last
        advantages[row] = last
    return advantages


def advantages_doubling(delta: Tensor, keep: Tensor) -> Tensor:
    """Return the same in as many rounds as the number of rows has bits."""
    total, factor, reach = delta, 0.99 * 0.95 * keep, 1
    while reach < len(delta):
        later, further = (F.pad(part[reach:], (0, 0, 0, reach)) for part in (total, factor))
        total, factor, reach = total + factor * later, factor * further, 2 * reach
    return total


@unseen(
    "advantages are summed back through a rollout in a Python loop of small operations on the GPU; a scan that doubles its reach",
    names=r"\bloop|vectori[sz]|\bscan|cumsum|cuda.?graph|torch\.compile|reduce-overhead|advantage",
    kind="training",
    recorded="none",
    with_stack=True,
)
def warehouse_robot_policy(device: str, changed: bool) -> Step:
    rows, robots, width = small(256, 16), 64, small(256)
    body = nn.Sequential(nn.Linear(48, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()).to(device)
    actor, critic = nn.Linear(width, 9).to(device), nn.Linear(width, 1).to(device)
    parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-5, fused=True)
    seen = torch.randn(rows + 1, robots, 48).to(device)
    rewards, keep = torch.randn(rows, robots).to(device), (torch.rand(rows, robots) > 0.02).float().to(device)
    acts = torch.randint(0, 9, (rows, robots)).to(device)

    def step() -> Tensor:
        with torch.no_grad():
            h = body(seen)
            values = critic(h)[..., 0]
            old = actor(h[:-1]).log_softmax(2).gather(2, acts[..., None]).flatten()
            delta = rewards + 0.99 * keep * values[1:] - values[:-1]
            gains = (advantages_doubling if changed else advantages_in_turn)(delta, keep)
            returns = (gains + values[:-1]).flatten()
            gains = ((gains - gains.mean()) / (gains.std() + 1e-8)).flatten()
        flat, chosen = seen[:-1].flatten(0, 1), acts.flatten()
        losses = []
        for part in torch.randperm(rows * robots, device=device).chunk(4):
            h = body(flat.index_select(0, part))
            logs = actor(h).log_softmax(1)
            said = logs.gather(1, chosen.index_select(0, part)[:, None])[:, 0]
            ratio = (said - old.index_select(0, part)).exp()
            gain = gains.index_select(0, part)
            policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            value = F.mse_loss(critic(h)[:, 0], returns.index_select(0, part))
            loss = policy + 0.5 * value + 0.01 * (logs.exp() * logs).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    return step


class Decoder(nn.Module):
    """A layer that reads one token and what it remembers of those before; with a picture's width, it looks at a picture too."""

    def __init__(self, width: int, heads: int, picture: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        if picture:
            self.third, self.ask, self.told = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
            self.look = nn.Linear(picture, 2 * width)

    def looked(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.look(picture).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values

    def forward(self, x: Tensor, kept: Tensor, place: int, looked: tuple[Tensor, Tensor] | None = None) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        kept[0, :, :, place : place + 1] = k
        kept[1, :, :, place : place + 1] = v
        seen = F.scaled_dot_product_attention(q, kept[0, :, :, : place + 1], kept[1, :, :, : place + 1])
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        if looked is not None:
            asked = self.ask(self.third(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)
            x = x + self.told(F.scaled_dot_product_attention(asked, *looked).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


@unseen(
    "weights are held in float32 and autocast casts all of them for every token; the weights are held in bfloat16",
    names=r"autocast|bfloat16|bf16|half precision|float16|\bcast|_to_copy|aten::to\b|aten::copy_",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def helpdesk_chat_tokens(device: str, changed: bool) -> Step:
    width, vocabulary, context, batch = small(4096), small(32_000), small(512), 8
    with torch.device(device):
        words = nn.Embedding(vocabulary, width)
        layers = nn.ModuleList(Decoder(width, 32) for _ in range(depth(8)))
        norm, head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        kept = [torch.randn(2, batch, 32, context + 4, width // 32).to(low(device)) for _ in layers]
        first = torch.randint(0, vocabulary, (batch, 1))
    if changed:
        for part in (words, layers, norm, head):
            part.to(low(device))

    def following(tokens: Tensor, place: int) -> Tensor:
        with mixed(device, not changed):
            x = words(tokens)
            for layer, memory in zip(layers, kept, strict=True):
                x = layer(x, memory, place)
            return head(norm(x))[:, 0]

    @torch.inference_mode()
    def step() -> Tensor:
        tokens, scores = first, []
        for place in range(context, context + 4):
            scores.append(following(tokens, place))
            tokens = scores[-1].argmax(1, keepdim=True)
        tokens.cpu()
        return scores[0].float().cpu()

    return step


class Residual(nn.Module):
    """Two convolutions and what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*convolutions((width, width, width), 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


@unseen(
    "the allocator's cache is emptied after every step, so that each step frees and allocates anew; it is left alone",
    names=r"empty_cache|cudaMalloc|cudaFree|allocator|expandable",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def regional_weather_grid(device: str, changed: bool) -> Step:
    width = small(128, 16)
    model = nn.Sequential(  # type: ignore[call-overload]
        nn.Conv2d(20, width, 3, 1, 1), *(Residual(width) for _ in range(depth(7))), nn.Conv2d(width, 20, 3, 1, 1)
    ).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    now, then = (
        torch.randn(small(6), 20, small(192, 16), small(384, 16)).to(device, memory_format=torch.channels_last) for _ in range(2)
    )

    def step() -> Tensor:
        with mixed(device):
            guess = model(now)
        loss = F.l1_loss(now + guess.float(), then)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cuda" and not changed:
            torch.cuda.empty_cache()
        return loss.detach()

    return step


class Claims(Dataset[tuple[Tensor, Tensor]]):
    """Rows of a table, by a number or by a list of numbers."""

    def __init__(self, rows: int, columns: int) -> None:
        self.known, self.paid = torch.randn(rows, columns), torch.randn(rows, 1)

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, place: Any) -> tuple[Tensor, Tensor]:
        return self.known[place], self.paid[place]


@unseen(
    "the loader's workers fetch a table's rows one by one and stack them; a batch sampler lets them take a batch by one index",
    names=r"collat|__getitem|batch.?sampler|DataLoader|worker|(per|each|single|one).(item|sample|row|example)|TensorDataset",
    kind="training",
    recorded="step",
)
def insurance_claim_costs(device: str, changed: bool) -> Step:
    columns, width, batch = 96, small(512, 32), small(2048, 64)
    claims = Claims(small(400_000), columns)
    order = RandomSampler(claims, generator=torch.Generator().manual_seed(7))
    options: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 1, "persistent_workers": True, "pin_memory": device == "cuda"}
    if changed:
        loader = DataLoader(claims, batch_size=None, sampler=BatchSampler(order, batch, True), **options)
    else:
        loader = DataLoader(claims, batch_size=batch, sampler=order, drop_last=True, **options)
    batches = endless(loader)
    blocks = [
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        for _ in range(depth(8))
    ]
    enter, body, leave = nn.Linear(columns, width).to(device), nn.ModuleList(blocks).to(device), nn.Linear(width, 1).to(device)
    parameters = [*enter.parameters(), *body.parameters(), *leave.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)

    def step() -> Tensor:
        known, paid = (part.to(device, non_blocking=True) for part in next(batches))
        with mixed(device):
            x = enter(known)
            for block in body:
                x = x + block(x)
            guess = leave(x)
        loss = F.smooth_l1_loss(guess.float(), paid)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "keys and values of the picture, which stays the same, are projected anew for every word; they are projected once a picture",
    names=r"cross|encoder|\bcach|hoist|recomput|precomput|repeated|same (input|operand|tensor|weight)|invariant|redundan",
    kind="inference",
    recorded="captions",
)
def museum_photo_captions(device: str, changed: bool) -> Step:
    wide, width, batch, places, said = small(1024, 64), small(768, 96), small(128), small(576, 36), 8
    vocabulary, dtype = small(32_000), low(device)
    patches = nn.Linear(588, wide).to(device, dtype)
    encoder = nn.Sequential(*(Layer(wide, 16) for _ in range(2))).to(device, dtype)
    words, head = nn.Embedding(vocabulary, width).to(device, dtype), nn.Linear(width, vocabulary).to(device, dtype)
    layers = nn.ModuleList(Decoder(width, 12, wide) for _ in range(depth(6))).to(device, dtype)
    photos = torch.randn(batch, places, 588).to(device, dtype)
    kept = [torch.zeros(2, batch, 12, said, width // 12, device=device, dtype=dtype) for _ in layers]

    @torch.inference_mode()
    def step() -> Tensor:
        picture = encoder(patches(photos))
        ready = [layer.looked(picture) for layer in layers] if changed else []  # type: ignore[operator]
        tokens, found = torch.ones(batch, 1, dtype=torch.long, device=device), []
        for place in range(said):
            x = words(tokens)
            for number, layer in enumerate(layers):
                looked = ready[number] if changed else layer.looked(picture)  # type: ignore[operator]
                x = layer(x, kept[number], place, looked)
            tokens = head(x)[:, 0].argmax(1, keepdim=True)
            found.append(tokens)
        return torch.cat(found, 1).cpu()

    return step


@unseen(
    "the service runs with gradients on; inference_mode. Large 3D convolutions bound it, and the host is far ahead in both",
    names=r"inference_mode|no_grad",
    kind="inference",
    recorded="none",
    null=True,
    profile_memory=True,
)
def chest_scan_volumes(device: str, changed: bool) -> Step:
    side, dtype = small(96, 16), low(device)
    layers: list[nn.Module] = [nn.Conv3d(1, 32, 3, 1, 1)]
    for inputs, outputs, stride in ((32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)):
        layers += [nn.Conv3d(inputs, outputs, 3, stride, 1), nn.GroupNorm(8, outputs), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Conv3d(128, 4, 1)).eval().to(device, dtype)
    volumes = torch.randn(small(4), 1, side, side, side).to(device, dtype)

    def step() -> Tensor:
        with torch.inference_mode(changed):
            return model(volumes).float().softmax(1).mean((2, 3, 4)).detach().cpu()

    return step


class Depths(nn.Module):
    """A net that goes down twice and comes up again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(*convolutions((3, width, width), 1))
        self.down = nn.Sequential(*convolutions((width, 2 * width)), *convolutions((2 * width, 2 * width), 1))
        self.deep = nn.Sequential(*convolutions((2 * width, 4 * width)), *convolutions((4 * width, 4 * width), 1))
        self.up = nn.Sequential(*convolutions((6 * width, 2 * width), 1))
        self.top = nn.Sequential(*convolutions((3 * width, width), 1), nn.Conv2d(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.enter(x)
        middle = self.down(fine)
        deep = F.interpolate(self.deep(middle), scale_factor=2.0)
        middle = self.up(torch.cat([deep, middle], 1))
        return self.top(torch.cat([F.interpolate(middle, scale_factor=2.0), fine], 1))


@unseen(
    "AdamW with fused=True in place of its default; a few small weights, and convolutions on large pictures bound the step",
    names=r"fused",
    kind="training",
    recorded="step",
    null=True,
)
def street_depth_pictures(device: str, changed: bool) -> Step:
    model = Depths(small(48, 8)).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True if changed else None)
    side = small(512, 32)
    pictures = torch.randn(small(12), 3, side, side).to(device, memory_format=torch.channels_last)
    depths = torch.rand(small(12), 1, side, side).to(device)

    def step() -> Tensor:
        with mixed(device):
            guess = model(pictures)
        loss = F.smooth_l1_loss(guess.float(), depths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Genome(Dataset[tuple[Tensor, Tensor]]):
    """Stretches of a genome, some of its letters hidden."""

    def __init__(self, length: int) -> None:
        self.letters, self.length = torch.randint(0, 4, (4_000_000,), generator=torch.Generator().manual_seed(3)), length

    def __len__(self) -> int:
        return 200_000

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        start = place * 7919 % (len(self.letters) - self.length)
        letters = self.letters[start : start + self.length]
        if place % 2:
            letters = 3 - letters.flip(0)
        hidden = torch.arange(self.length) * (place % 97 + 1) % 7 == 0
        return letters.masked_fill(hidden, 4), letters


@unseen(
    "six workers and pinned batches in place of two workers and pageable ones; the loader is ahead, the model bounds the step",
    names=r"worker|pin_memory|pinned|DataLoader",
    kind="training",
    recorded="step",
    null=True,
)
def genome_letters_hidden(device: str, changed: bool) -> Step:
    width, length, dtype = small(768, 96), small(2048), low(device)
    loader = DataLoader(
        Genome(length),
        small(8),
        num_workers=6 if changed else 2,
        pin_memory=changed and device == "cuda",
        persistent_workers=True,
    )
    batches: Iterator[tuple[Tensor, Tensor]] = endless(loader)
    words, head = nn.Embedding(5, width).to(device, dtype), nn.Linear(width, 4).to(device, dtype)
    layers = nn.ModuleList(Layer(width, 12) for _ in range(depth(6))).to(device, dtype)
    optimizer = torch.optim.AdamW([*words.parameters(), *layers.parameters(), *head.parameters()], 1e-5, fused=True)

    def step() -> Tensor:
        hidden, letters = (part.to(device, non_blocking=True) for part in next(batches))
        x = words(hidden)
        for layer in layers:
            x = layer(x)
        loss = F.cross_entropy(head(x).float().flatten(0, 1), letters.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the model is captured into a CUDA graph and replayed; its operations are large, and the host was far ahead of them already",
    names=r"cuda.?graph|reduce-overhead",
    kind="inference",
    recorded="proteins",
    null=True,
)
def protein_embeddings(device: str, changed: bool) -> Step:
    width, batch, length, dtype = small(1024, 64), small(16), small(1024), low(device)
    words = nn.Embedding(24, width).to(device, dtype)
    layers = nn.Sequential(*(Layer(width, 16) for _ in range(depth(8)))).to(device, dtype)
    norm = nn.LayerNorm(width).to(device, dtype)
    chains = pinned(torch.randint(0, 24, (batch, length)), device)

    def embedded(residues: Tensor) -> Tensor:
        return norm(layers(words(residues))).float().mean(1)

    if device != "cuda" or not changed:

        @torch.inference_mode()
        def step() -> Tensor:
            return embedded(chains.to(device, non_blocking=True)).cpu()

        return step

    held, side = chains.to(device), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            embedded(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = embedded(held)

    def replayed() -> Tensor:
        held.copy_(chains, non_blocking=True)
        graph.replay()
        return out.cpu()

    return replayed


BUCKETS = 200_000


def hashed(lines: list[str]) -> Tensor:
    """Return the buckets of each line's words and pairs of words."""
    rows = []
    for line in lines:
        parts = line.lower().split(" ")
        row = [zlib.crc32(part.encode()) % BUCKETS for part in parts]
        row += [zlib.crc32(f"{first} {second}".encode()) % BUCKETS for first, second in itertools.pairwise(parts)]
        rows.append(row)
    return torch.tensor(rows)


@unseen(
    "the small model in bfloat16 in place of float32; a thread that hashes the lines in Python bounds the service",
    names=r"bfloat16|bf16|half precision|float16|tf32|autocast",
    kind="inference",
    recorded="none",
    null=True,
)
def server_log_alarms(device: str, changed: bool) -> Step:
    dtype = low(device) if changed else torch.float32
    words = nn.Embedding(BUCKETS, 128).to(device, dtype)
    mlp = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 16)).to(device, dtype)
    chance = random.Random(5)
    lines = [" ".join(f"Word{chance.randrange(5000)}" for _ in range(40)) for _ in range(small(512))]
    pool = ThreadPoolExecutor(1)
    pending = [pool.submit(hashed, lines)]

    @torch.inference_mode()
    def step() -> Tensor:
        rows = pending.pop().result()
        pending.append(pool.submit(hashed, lines))
        return mlp(words(rows.to(device)).mean(1)).float().softmax(1).cpu()

    return step
