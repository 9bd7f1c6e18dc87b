"""A fifth set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

Written without a look at what the reader knows: the faults are ones that guides to tuning, code reviews and forums name
often, each in a program of its own. UNSEEN holds them by name.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
import itertools
import math
from typing import Any
import zlib

from advice.unseen_pairs import Step, Unseen, blocks, conv_net, low, pairs_into, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# Training on a GPU.


@unseen(
    "the norm of every parameter's gradient is logged through .item(), one at a time, each step; torch._foreach_norm, one stack, "
    "one .tolist()",
    names=r"\bitem\b|_local_scalar_dense|foreach_norm|gradient_norms|host[- ]sync|device[- ]to[- ]host|synchroni[sz]",
    kind="training",
    recorded="step",
    with_stack=True,
)
def gradient_norms_one_by_one(device: str, changed: bool) -> Step:
    dim, vocabulary = 512, 4000
    embed = nn.Embedding(vocabulary, dim).to(device, low(device))
    trunk = blocks(10, dim, 8, device, low(device))
    named = [*embed.named_parameters("embed"), *trunk.named_parameters("trunk")]
    optimizer = torch.optim.AdamW([parameter for _, parameter in named], lr=1e-4, fused=True)
    tokens = torch.randint(vocabulary, (small(32), 129), device=device)

    def gradient_norms() -> dict[str, float]:
        gradients = {name: parameter.grad for name, parameter in named if parameter.grad is not None}
        if changed:
            return dict(zip(gradients, torch.stack(list(torch._foreach_norm(list(gradients.values())))).tolist(), strict=True))
        return {name: gradient.norm().item() for name, gradient in gradients.items()}

    def step() -> list[Any]:
        x = embed(tokens[:, :-1])
        for block in trunk:
            x = block(x, causal=True)
        loss = F.cross_entropy((x @ embed.weight.T).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        logged = gradient_norms()
        optimizer.step()
        return [loss.detach(), *logged.values()]

    return step


@unseen(
    "a recurrent layer runs as a Python loop of LSTMCell over the frames, some launches each; nn.LSTM (cuDNN) takes all frames",
    names=r"cudnn|nn\.LSTM\b|LSTM ?Cell|lstm_cell|fused_lstm|python loop|over (the )?time|cuda ?graph|launch|reduce-overhead"
    r"|many small",
    kind="training",
    recorded="step",
)
def recurrence_by_cells(device: str, changed: bool) -> Step:
    dim, frames = 512, 80
    rnn, cell = nn.LSTM(dim, dim, batch_first=True).to(device), nn.LSTMCell(dim, dim).to(device)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in rnn.state_dict().items()})
    front = nn.Sequential(nn.Conv1d(80, dim, 5, padding=2), nn.ReLU(), nn.Conv1d(dim, dim, 5, padding=2), nn.ReLU()).to(device)
    trunk, head = blocks(6, dim, 8, device), nn.Linear(dim, 60).to(device)
    layers = nn.ModuleList([front, rnn if changed else cell, trunk, head])
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4, fused=True)
    speech = torch.randn(small(32), 80, frames, device=device)
    phones = torch.randint(60, (small(32), frames), device=device)

    def step() -> Tensor:
        x = front(speech).transpose(1, 2)
        if changed:
            x = rnn(x)[0]
        else:
            hidden = state = x.new_zeros(len(x), dim)
            outputs = []
            for frame in x.unbind(1):
                hidden, state = cell(frame, (hidden, state))
                outputs.append(hidden)
            x = torch.stack(outputs, 1)
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x).flatten(0, 1), phones.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the moving average of the weights is updated by two small operations for each parameter; torch._foreach_lerp_ for all",
    names=r"foreach|\bema\b|averaged?model|moving average|multi_avg|lerp|cuda ?graph|launch|many small|one parameter at a time",
    kind="training",
    recorded="step",
)
def average_by_parameter(device: str, changed: bool) -> Step:
    dim = 384
    trunk = blocks(16, dim, 6, device)
    parameters = list(trunk.parameters())
    ema = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    patches = torch.randn(small(16), 64, dim, device=device)

    @torch.no_grad()
    def update_ema() -> None:
        if changed:
            torch._foreach_lerp_(ema, parameters, 0.001)
        else:
            for average, parameter in zip(ema, parameters, strict=True):
                average.mul_(0.999).add_(parameter, alpha=0.001)

    def step() -> tuple[Tensor, Tensor]:
        noise, level = torch.randn_like(patches), torch.rand(len(patches), 1, 1, device=device)
        x = level * patches + (1 - level) * noise
        for block in trunk:
            x = block(x)
        loss = F.mse_loss(x, patches - noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_ema()
        return loss.detach(), ema[-2]

    return step


@unseen(
    "discounted returns come from a Python loop backwards over time, tiny operations each; one product with a triangular matrix "
    "of discounts",
    names=r"discount|python loop|over (the )?time|cumsum|\bscan\b|one (product|matmul)|vectori[sz]|cuda ?graph|launch"
    r"|reduce-overhead|many small",
    kind="training",
    recorded="learn",
)
def returns_backwards_in_time(device: str, changed: bool) -> Step:
    environments, horizon, gamma = small(256), 256, 0.99
    observations = torch.randn(environments, horizon, 128, device=device)
    actions = torch.randint(8, (environments, horizon), device=device)
    rewards = torch.rand(environments, horizon, device=device)
    actor, critic = (
        nn.Sequential(nn.Linear(128, 384), nn.Tanh(), nn.Linear(384, 384), nn.Tanh(), nn.Linear(384, outputs)).to(device)
        for outputs in (8, 1)
    )
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
    ages = torch.arange(horizon, device=device)
    discounts = (gamma ** (ages[:, None] - ages).clamp(min=0).float()).tril()

    def step() -> Tensor:
        if changed:
            returns = rewards @ discounts
        else:
            returns, later = torch.empty_like(rewards), torch.zeros_like(rewards[:, 0])
            for time in reversed(range(horizon)):
                later = rewards[:, time] + gamma * later
                returns[:, time] = later
        values = critic(observations).squeeze(-1)
        advantages = (returns - values).detach()
        chosen = actor(observations).log_softmax(-1).gather(-1, actions[..., None]).squeeze(-1)
        loss = F.mse_loss(values, returns) - (chosen * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the teacher of a distillation runs with gradients, so that backward goes through it too; torch.no_grad around the teacher",
    names=r"no_grad|inference_mode|requires_grad|detach|frozen|teacher",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def teacher_with_gradients(device: str, changed: bool) -> Step:
    def classifier(widths: list[int]) -> nn.Sequential:
        return nn.Sequential(conv_net(widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)).to(device)

    teacher = classifier([64, 64, 64, 128, 128, 128, 256, 256, 256]).eval()
    student = classifier([32, 32, 64, 64, 128, 128])
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(small(128), 3, 128, 128, device=device)
    labels = torch.randint(100, (len(images),), device=device)

    def step() -> Tensor:
        with torch.set_grad_enabled(not changed):
            wanted = (teacher(images) / 2).softmax(-1)
        logits = student(images)
        loss = F.cross_entropy(logits, labels) + 4 * F.kl_div((logits / 2).log_softmax(-1), wanted, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the vocabulary's logits are computed for every position where the loss uses the masked 15%; gather those rows before the "
    "head",
    names=r"ignore_index|masked (positions?|tokens?|rows?)|vocab|unmasked|(only|just) the (masked|label|row|position)|logits"
    r"|cross_entropy|log_softmax|nll_loss|before the (head|projection|last)",
    kind="training",
    recorded="step",
)
def logits_of_all_positions(device: str, changed: bool) -> Step:
    dim, vocabulary, length, masked = 512, small(30_000), 256, 38
    embed = nn.Embedding(vocabulary, dim).to(device, low(device))
    trunk, head = blocks(6, dim, 8, device, low(device)), nn.Linear(dim, vocabulary).to(device, low(device))
    optimizer = torch.optim.AdamW(nn.ModuleList([embed, trunk, head]).parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1, vocabulary, (small(32), length), device=device)
    places = torch.rand(tokens.shape, device=device).argsort(-1)[:, :masked]
    labels = torch.full_like(tokens, -100).scatter(1, places, tokens.gather(1, places))
    inputs = tokens.scatter(1, places, 0)
    rows = (places + length * torch.arange(len(tokens), device=device)[:, None]).flatten()

    def step() -> Tensor:
        x = embed(inputs)
        for block in trunk:
            x = block(x)
        x, targets = x.flatten(0, 1), labels.flatten()
        if changed:
            x, targets = x[rows], targets[rows]
        loss = F.cross_entropy(head(x).float(), targets, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "torch.cuda.empty_cache() at the end of each step, so that the next allocates all its memory anew; leave it out",
    names=r"empty_cache|cudaMalloc|cudaFree|caching allocator|allocat(or|ion)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def cache_emptied_each_step(device: str, changed: bool) -> Step:
    down = conv_net([64, 64, 128, 128, 256, 256])
    up = nn.Sequential(nn.Conv2d(256, 64, 1), nn.Upsample(scale_factor=8, mode="bilinear"), nn.Conv2d(64, 12, 3, padding=1))
    net = nn.Sequential(down, up).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    scans = torch.randn(small(24), 3, 256, 256, device=device)
    organs = torch.randint(12, (len(scans), 256, 256), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(scans), organs)
        loss.backward()
        optimizer.step()
        if not changed:
            torch.cuda.empty_cache()
        return loss.detach()

    return step


@unseen(
    "each batch is decompressed in the training thread while the GPU waits; threads that decode the next batch meanwhile",
    names=r"threads|ThreadPool|background|prefetch|worker|data ?load|decompress|decode|input pipeline|zlib",
    kind="training",
    recorded="step",
    with_stack=True,
)
def records_decoded_in_line(device: str, changed: bool) -> Step:
    length, batch, random = 32_768, small(48), np.random.default_rng(0)
    waves = np.sin(np.arange(length) * random.uniform(0.01, 0.3, (batch, 1))) * 2000 + random.normal(0, 20, (batch, length))
    records = [zlib.compress(wave.astype(np.int16).tobytes()) for wave in waves]
    labels = torch.randint(20, (batch,), device=device)
    layers = (layer for _ in range(6) for layer in (nn.Conv1d(64, 64, 9, padding=4), nn.ReLU()))
    net = nn.Sequential(nn.Conv1d(1, 64, 16, 4), nn.ReLU(), *layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 20))
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    pool = ThreadPoolExecutor(4)

    def decode(record: bytes) -> Tensor:
        return torch.from_numpy(np.frombuffer(zlib.decompress(record), np.int16).astype(np.float32) / 32_768)

    ahead = deque(pool.submit(decode, record) for record in records) if changed else deque()

    def next_batch() -> Tensor:
        if changed:
            decoded = [ahead.popleft().result() for _ in range(batch)]
            ahead.extend(pool.submit(decode, record) for record in records)
        else:
            decoded = [decode(record) for record in records]
        stacked = torch.stack(decoded)[:, None]
        return stacked if device == "cpu" else stacked.pin_memory().to(device, non_blocking=True)

    def step() -> Tensor:
        loss = F.cross_entropy(net(next_batch()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "zero_grad(set_to_none=False) where the gradients are small beside the convolutions; set_to_none=True, which brings nothing",
    names=r"set_to_none|zero_grad|_foreach_zero_",
    kind="training",
    recorded="step",
    null=True,
)
def gradients_set_to_zero(device: str, changed: bool) -> Step:
    net = conv_net([48, 48, 48, 96, 96, 96], norm=True).to(device)
    head = nn.Conv2d(96, 4, 1).to(device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01, momentum=0.9)
    tiles = torch.randn(small(64), 3, 256, 256, device=device)
    land = torch.randint(4, (len(tiles), 64, 64), device=device)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=changed)
        loss = F.cross_entropy(head(net(tiles)), land)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "small pinned batches are copied in the stream of the computation; a side stream that copies one batch ahead, which brings "
    "nothing to a GPU that is never idle",
    names=r"side stream|copy stream|prefetch|overlap|Memcpy HtoD|non_blocking",
    kind="training",
    recorded="step",
    null=True,
)
def small_batches_copied_ahead(device: str, changed: bool) -> Step:
    dim = 768
    trunk = blocks(6, dim, 12, device, low(device))
    embed, head = nn.Linear(8, dim).to(device, low(device)), nn.Linear(dim, 8).to(device, low(device))
    optimizer = torch.optim.AdamW(nn.ModuleList([trunk, embed, head]).parameters(), lr=1e-4, fused=True)
    windows = [torch.randn(small(64), 256, 8, dtype=low(device)) for _ in range(4)]
    gpu = device != "cpu"
    source = itertools.cycle([window.pin_memory() for window in windows] if gpu else windows)
    side = torch.cuda.Stream() if gpu and changed else None

    def fetch() -> Tensor:
        with torch.cuda.stream(side):
            return next(source).to(device, non_blocking=True)

    ahead = deque([fetch()] if side else [])

    def step() -> Tensor:
        if side:
            torch.cuda.current_stream().wait_stream(side)
            weather = ahead.popleft()
            weather.record_stream(torch.cuda.current_stream())
            ahead.append(fetch())
        else:
            weather = fetch()
        x = embed(weather)
        for block in trunk:
            x = block(x, causal=True)
        loss = F.mse_loss(head(x)[:, :-1], weather[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Inference on a GPU.


@unseen(
    "a decoder projects the keys and values of the encoder's whole output again at every token; project them once before the "
    "loop",
    names=r"\bkeys?\b|\bkv\b|keys_and_values|cross[- ]attention|(project|comput)\w* (once|again|every|anew)|recomput|redundant"
    r"|same (input|result|weights)|hoist|loop[- ]invariant",
    kind="inference",
    recorded="generate",
)
def memory_projected_each_token(device: str, changed: bool) -> Step:
    dim, heads, words, dtype = 512, 8, 1000, low(device)
    encoder = blocks(3, dim, heads, device, dtype).eval()
    embed, head = nn.Embedding(words, dim).to(device, dtype), nn.Linear(dim, words).to(device, dtype)
    cell = nn.GRUCell(2 * dim, dim).to(device, dtype)
    query, keys_values, out = (nn.Linear(dim, size).to(device, dtype) for size in (dim, 2 * dim, dim))
    speech = torch.randn(small(64), 800, dim, device=device, dtype=dtype)

    def keys_and_values(memory: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = keys_values(memory).view(*memory.shape[:2], 2, heads, dim // heads).permute(2, 0, 3, 1, 4)
        return keys, values

    @torch.no_grad()
    def step() -> Tensor:
        memory = speech
        for block in encoder:
            memory = block(memory)
        state = context = memory.mean(1)
        word = torch.zeros(len(speech), dtype=torch.long, device=device)
        written = []
        keys, values = keys_and_values(memory)
        for _ in range(48):
            state = cell(torch.cat([embed(word), context], -1), state)
            if not changed:
                keys, values = keys_and_values(memory)
            asked = query(state).view(len(speech), heads, 1, dim // heads)
            context = out(F.scaled_dot_product_attention(asked, keys, values).flatten(1))
            word = head(state + context).argmax(-1)
            written.append(word)
        return torch.stack(written, 1)

    return step


@unseen(
    "48 small embedding tables are looked up one after another; one table with an offset for each feature, one lookup",
    names=r"embedding|one table|single table|offsets?\b|index_select|cuda ?graph|launch|reduce-overhead|many small",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def table_for_each_feature(device: str, changed: bool) -> Step:
    features, rows, dim = 48, small(10_000), 32
    tables: Any = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(features)).to(device)
    table = torch.cat([one.weight.detach() for one in tables])
    offsets = torch.arange(features, device=device) * rows
    wide = features * dim
    tower = nn.Sequential(nn.Linear(wide, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)).to(device).eval()
    requests = [torch.randint(rows, (small(2048), features), device=device) for _ in range(10)]

    def looked_up(ids: Tensor) -> Tensor:
        if changed:
            return F.embedding(ids + offsets, table).flatten(1)
        return torch.cat([one(ids[:, feature]) for feature, one in enumerate(tables)], -1)

    @torch.no_grad()
    def step() -> Tensor:
        return torch.stack([tower(looked_up(ids)).squeeze(-1).sigmoid() for ids in requests])

    return step


@unseen(
    "attention is written out as a product, a softmax and a product, with all scores in memory; scaled_dot_product_attention",
    names=r"scaled_dot_product|sdpa|flash|fused attention|memory[- ]efficient attention|flex_?attention",
    kind="inference",
    recorded="none",
    profile_memory=True,
)
def residues_attend_by_hand(device: str, changed: bool) -> Step:
    dim, heads = 512, 8
    trunk, head = blocks(6, dim, heads, device, low(device)).eval(), nn.Linear(dim, 3).to(device, low(device))
    residues = torch.randn(small(16), 1024, dim, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        x = residues
        for block in trunk:
            q, k, v = block.heads_of(x)
            if changed:
                attended = F.scaled_dot_product_attention(q, k, v)
            else:
                attended = ((q @ k.transpose(-2, -1)) / math.sqrt(dim // heads)).softmax(-1) @ v
            x = block.rest(x, attended)
        return head(x)

    return step


@unseen(
    "camera frames are made float and normalised on the CPU, then copied four times as large; copy the bytes, do the rest on the "
    "GPU",
    names=r"uint8|on the (gpu|device)|bytes first|normali[sz](e|ation)|preprocess|aten::(div|sub)\b|fewer bytes",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def frames_normalised_on_host(device: str, changed: bool) -> Step:
    frames = np.random.default_rng(0).integers(0, 256, (small(32), 224, 224, 3), dtype=np.uint8)
    net = conv_net([64] * 4 + [128] * 5 + [256] * 5 + [512] * 5).to(device).eval()
    head = nn.Linear(512, 1000).to(device)
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def preprocess(where: str) -> Tensor:
        pixels = torch.from_numpy(frames).to(where).float() / 255
        return ((pixels - mean.to(where)) / spread.to(where)).permute(0, 3, 1, 2)

    @torch.no_grad()
    def step() -> Tensor:
        images = preprocess(device if changed else "cpu").to(device)
        return head(net(images).mean((2, 3))).argmax(-1).cpu()

    return step


@unseen(
    "an evaluation copies all logits to the CPU and finds classes and confusion matrix there; argmax and bincount on the GPU, "
    "copy the counts",
    names=r"DtoH|device[- ]to[- ]host|argmax|bincount|on the (gpu|device)|\bcpu\(\)|\.cpu\b|confusion",
    kind="inference",
    recorded="evaluate",
    with_stack=True,
)
def confusion_on_host(device: str, changed: bool) -> Step:
    classes = 21
    net = conv_net([64] * 4 + [128] * 6).to(device).eval()
    head = nn.Conv2d(128, classes, 1).to(device)
    images = torch.randn(small(8), 3, 512, 512, device=device)
    labels = torch.randint(classes, (len(images), 128, 128), device=device)

    def confusion(logits: Tensor, wanted: Tensor) -> Tensor:
        if not changed:
            logits, wanted = logits.cpu(), wanted.cpu()
        found = logits.argmax(1)
        return torch.bincount((wanted * classes + found).flatten(), minlength=classes**2).view(classes, classes)

    @torch.no_grad()
    def step() -> float:
        counts = confusion(head(net(images)), labels).cpu().double()
        return float((counts.diag() / (counts.sum(0) + counts.sum(1) - counts.diag())).mean())

    return step


@unseen(
    "convolutions in bfloat16 run on NCHW tensors, which cuDNN transposes around them; channels_last for weights and images",
    names=r"channels_last|nhwc|nchw|memory_format|memory layout",
    kind="inference",
    recorded="none",
)
def x_rays_channels_first(device: str, changed: bool) -> Step:
    layout = torch.channels_last if changed else torch.contiguous_format
    net = conv_net([64, 64, 64, 128, 128, 128, 256, 256, 256], norm=True).eval()
    net.to(device=device, dtype=low(device), memory_format=layout)
    head = nn.Linear(256, 14).to(device, low(device))
    x_rays = torch.randn(small(64), 3, 320, 320, device=device, dtype=low(device)).to(memory_format=layout)

    @torch.no_grad()
    def step() -> Tensor:
        return head(net(x_rays).mean((2, 3))).sigmoid()

    return step


@unseen(
    "a graph network applies its linear layer to every edge's copy of its source node; apply it to the nodes, then gather",
    names=r"per[- ](edge|node)|(each|every) (edge|node)|repeat(ed|s) rows|messages|index_select|aten::index\b|gather|duplicat"
    r"|before (the )?index|redundant|recomput",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def edges_transformed(device: str, changed: bool) -> Step:
    nodes, edges, dim = small(30_000), small(800_000), 128
    sources, targets = torch.randint(nodes, (2, edges), device=device)
    features = torch.randn(nodes, dim, device=device)
    layers = [(nn.Linear(dim, dim).to(device), nn.Linear(dim, dim).to(device)) for _ in range(4)]
    degrees = torch.bincount(targets, minlength=nodes).clamp(min=1)[:, None]

    def messages(message: nn.Module, x: Tensor) -> Tensor:
        return message(x)[sources] if changed else message(x[sources])

    @torch.no_grad()
    def step() -> Tensor:
        x = features
        for message, own in layers:
            summed = torch.zeros_like(x).index_add_(0, targets, messages(message, x))
            x = F.layer_norm(x + F.relu(own(x) + summed / degrees), (dim,))
        return x

    return step


@unseen(
    "weights kept in pinned host memory are copied in the stream of the computation, layer by layer; a side stream copies the "
    "next layer's meanwhile",
    names=r"(side|copy|second|other|another|separate|own) stream|cuda\.stream|prefetch|overlap|offload|double[- ]buffer|HtoD",
    kind="inference",
    recorded="none",
)
def weights_fetched_when_needed(device: str, changed: bool) -> Step:
    dim, layers, gpu = small(2048), 8, device != "cpu"
    ups = [torch.randn(4 * dim, dim, dtype=low(device)) / dim**0.5 for _ in range(layers)]
    downs = [torch.randn(dim, 4 * dim, dtype=low(device)) / (4 * dim) ** 0.5 for _ in range(layers)]
    host = [(up.pin_memory(), down.pin_memory()) if gpu else (up, down) for up, down in zip(ups, downs, strict=True)]
    tokens = torch.randn(small(8192), dim, device=device, dtype=low(device))
    side = torch.cuda.Stream() if gpu and changed else None

    def fetch(layer: int) -> list[Tensor]:
        with torch.cuda.stream(side):
            return [weight.to(device, non_blocking=True) for weight in host[layer]]

    @torch.no_grad()
    def step() -> Tensor:
        x = tokens
        if side:
            side.wait_stream(torch.cuda.current_stream())
        ready = fetch(0)
        for layer in range(layers):
            up, down = ready
            if side:
                torch.cuda.current_stream().wait_stream(side)
                for weight in ready:
                    weight.record_stream(torch.cuda.current_stream())
                ready = fetch(layer + 1) if layer + 1 < layers else []
            x = x + F.gelu(F.layer_norm(x, (dim,)) @ up.T) @ down.T
            if not side and layer + 1 < layers:
                ready = fetch(layer + 1)
        return x

    return step


@unseen(
    "no_grad around a transformer whose kernels are long; inference_mode, which brings nothing",
    names=r"inference_mode",
    kind="inference",
    recorded="none",
    null=True,
    with_stack=True,
)
def captions_without_grad(device: str, changed: bool) -> Step:
    dim = 768
    patch = nn.Conv2d(3, dim, 16, 16).to(device, low(device))
    trunk, head = blocks(8, dim, 12, device, low(device)).eval(), nn.Linear(dim, 512).to(device, low(device))
    images = torch.randn(small(96), 3, 224, 224, device=device, dtype=low(device))

    @(torch.inference_mode() if changed else torch.no_grad())
    def step() -> Tensor:
        x = patch(images).flatten(2).transpose(1, 2)
        for block in trunk:
            x = block(x)
        return F.normalize(head(x.mean(1)), dim=-1)

    return step


@unseen(
    "large products and attention launched one by one, with the GPU always behind the CPU; a CUDA graph, which brings nothing",
    names=r"cuda ?graph|reduce-overhead|graph capture|launch",
    kind="inference",
    recorded="none",
    null=True,
)
def long_kernels_in_a_graph(device: str, changed: bool) -> Step:
    dim = 1024
    trunk = blocks(5, dim, 16, device, low(device)).eval()
    table = torch.randn(small(48), 512, dim, device=device, dtype=low(device))

    @torch.no_grad()
    def forward() -> Tensor:
        x = table
        for block in trunk:
            x = block(x)
        return x.mean(1)

    if not changed or device == "cpu":
        return forward
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            forward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward()

    def step() -> Tensor:
        graph.replay()
        return result.clone()

    return step


# On a CPU.


@unseen(
    "every batch of sentences is padded to the model's maximum of 128 tokens; pad to the longest sentence of the batch",
    names=r"\bpad(s|ded|ding)?\b|longest|max_length|max_len|nested|bucket|varlen|trim",
    kind="inference",
    recorded="embed",
    on=("cpu",),
    with_stack=True,
)
def sentences_padded_to_maximum(device: str, changed: bool) -> Step:
    dim, longest = 192, 128
    lengths = torch.randint(20, 60, (12,), device=device)
    embed, trunk = nn.Embedding(5000, dim).to(device), blocks(3, dim, 6, device).eval()
    sentences = [torch.randint(1, 5000, (int(length),), device=device) for length in lengths]

    def padded(sentences: list[Tensor]) -> Tensor:
        batch = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        return batch if changed else F.pad(batch, (0, longest - batch.shape[1]))

    @torch.no_grad()
    def step() -> Tensor:
        ids = padded(sentences)
        real = ids != 0
        x = embed(ids)
        for block in trunk:
            x = block(x, mask=real[:, None, None, :])
        return (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)

    return step


@unseen(
    "a table from NumPy is float64, and the model was made double to take it; make the table float32",
    names=r"float64|\bdoubles?\b|\bfp64\b",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def table_in_doubles(device: str, changed: bool) -> Step:
    random = np.random.default_rng(0)
    table, prices = random.normal(size=(20_000, 64)), random.normal(size=(20_000, 1))
    net = nn.Sequential(
        nn.Linear(64, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 1)
    )
    net.to(device, torch.float32 if changed else torch.float64)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    rows = np.arange(2048) * 7

    def step() -> Tensor:
        x, wanted = torch.from_numpy(table[rows]).to(device), torch.from_numpy(prices[rows]).to(device)
        if changed:
            x, wanted = x.float(), wanted.float()
        loss = F.huber_loss(net(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "ids become one-hot vectors that are multiplied with a weight; look the rows up with F.embedding",
    names=r"one[-_ ]?hot|embedding|look(ed)?[- ]?up|index_select|gather",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def clicks_as_one_hot(device: str, changed: bool) -> Step:
    items, dim = 3000, 96
    weight = nn.Parameter(torch.randn(items, dim, device=device) / 10)
    rnn, head = nn.GRU(dim, 192, batch_first=True).to(device), nn.Linear(192, items).to(device)
    optimizer = torch.optim.SGD([weight, *rnn.parameters(), *head.parameters()], lr=0.1)
    sessions = torch.randint(items, (48, 21), device=device)

    def embedded(ids: Tensor) -> Tensor:
        return F.embedding(ids, weight) if changed else F.one_hot(ids, items).float() @ weight

    def step() -> Tensor:
        states, _ = rnn(embedded(sessions[:, :-1]))
        loss = F.cross_entropy(head(states[:, 4::4]).flatten(0, 1), sessions[:, 5::4].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "distances to all stored points are computed for one query at a time in a Python loop; torch.cdist for all queries",
    names=r"cdist|pairwise|nearest_rows|python loop|one (query|row) at a time|batch(ed)? (the )?(quer|dist|matmul)|vectori[sz]"
    r"|many small",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def neighbours_query_by_query(device: str, changed: bool) -> Step:
    stored, values = torch.randn(4000, 32, device=device), torch.randn(4000, 128, device=device)
    encode = nn.Sequential(nn.Linear(200, 512), nn.ReLU(), nn.Linear(512, 32)).to(device).eval()
    judge = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(device).eval()
    measured = torch.randn(64, 200, device=device)

    def nearest_rows(queries: Tensor) -> Tensor:
        if changed:
            return torch.cdist(queries, stored).topk(32, largest=False).indices
        return torch.stack([(stored - query).square().sum(-1).topk(32, largest=False).indices for query in queries])

    @torch.no_grad()
    def step() -> Tensor:
        near = values[nearest_rows(encode(measured))]
        return judge(near).squeeze(-1).logsumexp(-1)

    return step


@unseen(
    "an embedding of 300,000 rows gets a dense gradient and update where a batch touches few rows; sparse=True",
    names=r"sparse|embedding_dense_backward|dense grad|embedding",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def dense_gradient_of_table(device: str, changed: bool) -> Step:
    products = nn.Embedding(300_000, 32, sparse=changed).to(device)
    tower = nn.Sequential(nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
    optimizer = torch.optim.SGD([*products.parameters(), *tower.parameters()], lr=0.05)
    baskets = torch.randint(300_000, (1024, 8), device=device)
    bought = torch.randint(2, (1024, 1), device=device).float()

    def step() -> Tensor:
        loss = F.binary_cross_entropy_with_logits(tower(products(baskets).flatten(1)), bought)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the table of sines for the positions is built in Python anew at every call; build it once and keep it as a buffer",
    names=r"sinusoid|position|register_buffer|precomput|lru_cache|torch\.tensor|rebuil[dt]|built (once|again)|math\.sin",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def sines_built_each_call(device: str, changed: bool) -> Step:
    dim, length = 160, 200
    trunk, head = blocks(3, dim, 4, device).eval(), nn.Linear(dim, 40).to(device)
    notes = torch.randn(4, length, dim, device=device)

    def sinusoids() -> Tensor:
        rates = [math.exp(-math.log(10_000) * i / (dim // 2)) for i in range(dim // 2)]
        rows = [[wave(time * rate) for rate in rates for wave in (math.sin, math.cos)] for time in range(length)]
        return torch.tensor(rows, device=device)

    kept = sinusoids()

    @torch.no_grad()
    def step() -> Tensor:
        x = notes + (kept if changed else sinusoids())
        for block in trunk:
            x = block(x, causal=True)
        return head(x).softmax(-1)

    return step


@unseen(
    "a room's long impulse response is applied to speech by conv1d; multiply in the frequency domain (torch.fft.rfft)",
    names=r"\btorch\.fft|\bi?r?fft\b|fftconvolve|frequency domain|long (kernel|filter)|reverb"
    r"|aten::(conv1d|convolution|_convolution|mkldnn_convolution|_slow_conv2d_forward|thnn_conv2d)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def room_by_convolution(device: str, changed: bool) -> Step:
    speech = torch.randn(8, 12_000, device=device)
    room = torch.randn(1500, device=device) * torch.exp(-torch.arange(1500, device=device) / 200)
    window = torch.hann_window(400, device=device)
    net = nn.Sequential(nn.Linear(201, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 30)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    labels = torch.randint(30, (8,), device=device)

    def reverberant(waves: Tensor) -> Tensor:
        if changed:
            size = waves.shape[-1] + len(room) - 1
            return torch.fft.irfft(torch.fft.rfft(waves, size) * torch.fft.rfft(room, size), size)[:, : waves.shape[-1]]
        return F.conv1d(F.pad(waves, (len(room) - 1, 0))[:, None], room.flip(0)[None, None]).squeeze(1)

    def step() -> Tensor:
        heard = torch.stft(reverberant(speech), 400, 100, window=window, return_complex=True).abs().log1p()
        loss = F.cross_entropy(net(heard.transpose(1, 2)).mean(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the predictions of a pass are joined with torch.cat after every batch, so that all are copied each time; a list and one cat",
    names=r"\bcat\b|concat|quadratic|append|preallocat",
    kind="inference",
    recorded="evaluate",
    on=("cpu",),
)
def predictions_joined_each_batch(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 100)).to(device).eval()
    batches = torch.randn(60, 256, 64, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        parts: list[Tensor] = []
        joined = torch.empty(0, 100, device=device)
        for batch in batches:
            predicted = net(batch).log_softmax(-1)
            if changed:
                parts.append(predicted)
            else:
                joined = torch.cat([joined, predicted])
        return (torch.cat(parts) if changed else joined).exp().mean(0)

    return step


@unseen(
    "the weight goes into the product as a transposed view; a contiguous transpose made beforehand, which brings nothing",
    names=r"contiguous|transpos|aten::t\b|layout",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
)
def weights_as_transposed_views(device: str, changed: bool) -> Step:
    sizes = [256, 768, 768, 768, 10]
    weights = [torch.randn(out, into, device=device) / into**0.5 for into, out in itertools.pairwise(sizes)]
    turned = [weight.T.contiguous() if changed else weight.T for weight in weights]
    spectra = torch.randn(1024, 256, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = spectra
        for weight in turned[:-1]:
            x = F.relu(x @ weight)
        return (x @ turned[-1]).softmax(-1)

    return step


@unseen(
    "torch.tensor copies each small batch of readings out of a NumPy array; torch.from_numpy, which brings nothing",
    names=r"from_numpy|as_tensor|torch\.tensor|zero[- ]copy|numpy",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def readings_copied_from_numpy(device: str, changed: bool) -> Step:
    dim, length = 192, 128
    embed, trunk, head = nn.Linear(16, dim).to(device), blocks(2, dim, 6, device), nn.Linear(dim, 12).to(device)
    optimizer = torch.optim.SGD(nn.ModuleList([embed, trunk, head]).parameters(), lr=0.01)
    readings = np.random.default_rng(0).normal(size=(64, length, 16)).astype(np.float32)
    faults = torch.randint(12, (64,), device=device)
    starts = itertools.cycle(range(0, 64, 8))

    def step() -> Tensor:
        start = next(starts)
        part = readings[start : start + 8]
        x = embed(torch.from_numpy(part) if changed else torch.tensor(part))
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(1)), faults[start : start + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
