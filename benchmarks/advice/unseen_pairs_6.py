"""A sixth set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

Written without a look at what the reader knows: the faults are ones that guides to tuning, code reviews, blog posts and
forum threads name, each in a program of its own. UNSEEN holds them by name.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
import contextlib
from dataclasses import dataclass
import math
from typing import Any

from advice.unseen_pairs import Step, Unseen, blocks, conv_net, low, pairs_into, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# Training on a GPU.


class EdgeConvolution(nn.Module):
    """Sum of the neighbours' messages, then an update of each node."""

    def __init__(self, dim: int):
        super().__init__()
        self.message, self.update, self.norm = nn.Linear(dim, dim), nn.Linear(2 * dim, dim), nn.LayerNorm(dim)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        messages = F.relu(self.message(nodes)).index_select(0, source)
        gathered = torch.zeros_like(nodes).index_add(0, target, messages)
        return self.norm(nodes + F.relu(self.update(torch.cat([nodes, gathered], 1))))


@unseen(
    "the nodes of each graph are picked by a boolean mask and averaged in a Python loop over the graphs; one index_add_ "
    "(scatter) "
    "and a division by the counts",
    names=r"boolean|\bmask(ed)? index|nonzero|scatter|index_add|segment|loop over|python loop|per[- ]graph|index_put"
    r"|vectori[sz]|host[- ]sync|synchroni[sz]",
    kind="training",
    recorded="step",
    with_stack=True,
)
def graph_readout(device: str, changed: bool) -> Step:
    dim, graphs, nodes, edges = 256, 32, small(12000), small(48000)
    layers = nn.ModuleList(EdgeConvolution(dim) for _ in range(6)).to(device)
    embed, head = nn.Embedding(100, dim).to(device), nn.Linear(dim, 1).to(device)
    parameters = [*layers.parameters(), *embed.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    atoms = torch.randint(100, (nodes,), device=device)
    source, target = (torch.randint(nodes, (edges,), device=device) for _ in range(2))
    graph_of = torch.arange(nodes, device=device) * graphs // nodes
    energies = torch.randn(graphs, device=device)

    def mean_by_graph(x: Tensor) -> Tensor:
        if changed:
            sums = x.new_zeros(graphs, dim).index_add_(0, graph_of, x)
            counts = x.new_zeros(graphs).index_add_(0, graph_of, x.new_ones(len(x)))
            return sums / counts[:, None]
        return torch.stack([x[graph_of == graph].mean(0) for graph in range(graphs)])

    def step() -> Tensor:
        x = embed(atoms)
        for layer in layers:
            x = layer(x, source, target)
        loss = F.mse_loss(head(mean_by_graph(x)).squeeze(1), energies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class ActorCritic(nn.Module):
    def __init__(self, observed: int, actions: int, width: int):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observed, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(observations)
        return self.policy(x).log_softmax(-1), self.value(x).squeeze(-1)


@unseen(
    "generalized advantages are computed by a Python loop back over the time steps, some launches each; one matrix of powers of "
    "the discount times all of the temporal differences",
    names=r"python loop|loop over|time ?step|\bgae\b|advantage|recurrence|\bscan\b|cumsum|vectori[sz]|cuda ?graph|launch"
    r"|many small|torch\.compile|tiny kernels",
    kind="training",
    recorded="none",
)
def ppo_advantages(device: str, changed: bool) -> Step:
    horizon, environments, observed, actions, discount, trace = 192, small(256), 48, 12, 0.99, 0.95
    model = ActorCritic(observed, actions, 512).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    observations = torch.randn(horizon + 1, environments, observed, device=device)
    taken = torch.randint(actions, (horizon, environments), device=device)
    rewards = torch.randn(horizon, environments, device=device)
    places = torch.arange(horizon, device=device)
    powers = ((discount * trace) ** (places[None] - places[:, None]).clamp(min=0).float()).triu()

    def advantages_of(values: Tensor) -> Tensor:
        if changed:
            return powers @ (rewards + discount * values[1:] - values[:-1])
        advantages = torch.zeros_like(rewards)
        last = torch.zeros_like(rewards[0])
        for t in reversed(range(horizon)):
            difference = rewards[t] + discount * values[t + 1] - values[t]
            last = difference + discount * trace * last
            advantages[t] = last
        return advantages

    def step() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            log_policy, values = model(observations)
            old = log_policy[:-1].gather(-1, taken[..., None]).squeeze(-1).flatten()
            advantages = advantages_of(values)
            returns = (advantages + values[:-1]).flatten()
            scaled = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).flatten()
        flat, chosen = observations[:-1].flatten(0, 1), taken.flatten()
        for rows in torch.arange(len(flat), device=device).view(8, -1):
            log_policy, values = model(flat[rows])
            ratio = (log_policy.gather(-1, chosen[rows, None]).squeeze(-1) - old[rows]).exp()
            gain = torch.minimum(ratio * scaled[rows], ratio.clamp(0.8, 1.2) * scaled[rows]).mean()
            entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
            loss = 0.5 * F.mse_loss(values, returns[rows]) - gain - 0.01 * entropy
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach(), advantages.mean()

    return step


@unseen(
    "the fixed feature network of a perceptual loss still requires gradients, so backward computes weight gradients that nobody "
    "uses; requires_grad_(False) on it",
    names=r"requires_grad|frozen|freez|weight[- ]gradient|gradients? .{0,40}(nobody|no ?one|nothing|never|not (used|needed))"
    r"|unused grad|convolution_backward.*(weight|output_mask)|wgrad",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def perceptual_loss(device: str, changed: bool) -> Step:
    generator = nn.Sequential(conv_net([64, 64, 64, 64]), nn.Conv2d(64, 12, 3, padding=1), nn.PixelShuffle(2)).to(device)
    features = conv_net([64, 64, 128, 128, 128, 256, 256, 256]).to(device).eval()
    if changed:
        features.requires_grad_(False)
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, fused=True)
    side = small(320) // 4 * 4
    coarse = torch.rand(16, 3, side, side, device=device)
    fine = torch.rand(16, 3, side, side, device=device)

    def step() -> Tensor:
        made = generator(coarse)
        with torch.no_grad():
            wanted = features(fine)
        loss = F.l1_loss(made, fine) + 0.1 * F.mse_loss(features(made), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "large embedding tables make dense gradients, filled with zeros and swept by the optimizer, for a few rows; sparse=True",
    names=r"sparse|dense grad|embedding_dense_backward|whole (embedding )?table|rowwise|row-wise|only the rows|touched rows",
    kind="training",
    recorded="train_step",
    profile_memory=True,
)
def user_item_tables(device: str, changed: bool) -> Step:
    dim, batch = 64, small(8192)
    users = nn.Embedding(small(4_000_000), dim, sparse=changed, device=device)
    items = nn.Embedding(small(2_000_000), dim, sparse=changed, device=device)
    tower = nn.Sequential(
        nn.Linear(2 * dim + 32, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 256),
        nn.ReLU(),
        nn.Linear(256, 1),
    ).to(device)
    tables = torch.optim.SGD([users.weight, items.weight], lr=0.1)
    dense = torch.optim.Adam(tower.parameters(), lr=1e-4, fused=True)
    user = torch.randint(users.num_embeddings, (batch,), device=device)
    item = torch.randint(items.num_embeddings, (batch,), device=device)
    context, clicked = torch.randn(batch, 32, device=device), (torch.rand(batch, device=device) < 0.2).float()

    def step() -> tuple[Tensor, Tensor]:
        score = tower(torch.cat([users(user), items(item), context], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, clicked)
        tables.zero_grad()
        dense.zero_grad()
        loss.backward()
        tables.step()
        dense.step()
        return loss.detach(), users.weight[user[:16]].detach().clone()

    return step


@unseen(
    "label smoothing is written with a one-hot matrix over the vocabulary and log_softmax, several passes over tokens x "
    "vocabulary; F.cross_entropy with label_smoothing",
    names=r"one[_-]hot|cross_entropy|label_smoothing|nll_loss|log_softmax",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def smoothed_targets(device: str, changed: bool) -> Step:
    dim, vocabulary, smoothing = 768, small(32000), 0.1
    embed = nn.Embedding(vocabulary, dim).to(device, low(device))
    trunk, norm = blocks(6, dim, 12, device, low(device)), nn.LayerNorm(dim).to(device, low(device))
    parameters = [*embed.parameters(), *trunk.parameters(), *norm.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    tokens = torch.randint(vocabulary, (small(16), 257), device=device)

    def loss_of(logits: Tensor, wanted: Tensor) -> Tensor:
        if changed:
            return F.cross_entropy(logits, wanted, label_smoothing=smoothing)
        smooth = F.one_hot(wanted, vocabulary).float() * (1 - smoothing) + smoothing / vocabulary
        return -(smooth * logits.log_softmax(-1)).sum(-1).mean()

    def step() -> Tensor:
        x = embed(tokens[:, :-1])
        for block in trunk:
            x = block(x, causal=True)
        logits = (norm(x) @ embed.weight.T).float()
        loss = loss_of(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "distances from latents to all codes are taken from the broadcast difference [latents, codes, dim]; a matrix product "
    "(|z|^2 - 2 z c + |c|^2, or torch.cdist)",
    names=r"cdist|pairwise|broadcast|(a|one) (matrix (product|multipl)|matmul)|squared distance|distance"
    r"|expanded (difference|product)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def nearest_codes(device: str, changed: bool) -> Step:
    dim, codes = 64, small(1024)
    encoder = nn.Sequential(conv_net([64, 128, 128, 128]), nn.Conv2d(128, dim, 1)).to(device)
    decoder = nn.Sequential(
        nn.Conv2d(dim, 128, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 3, 4, 2, 1),
    ).to(device)
    codebook = nn.Parameter(torch.randn(codes, dim, device=device) * 0.1)
    parameters = [*encoder.parameters(), *decoder.parameters(), codebook]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    images = torch.rand(small(8), 3, 128, 128, device=device)

    @torch.no_grad()
    def nearest(latents: Tensor) -> Tensor:
        if changed:
            return (codebook.pow(2).sum(1) - 2 * latents @ codebook.T).argmin(1)
        return (latents[:, None] - codebook[None]).pow(2).sum(-1).argmin(1)

    def step() -> Tensor:
        latents = encoder(images).permute(0, 2, 3, 1)
        flat = latents.flatten(0, 2)
        quantized = codebook[nearest(flat)]
        loss = F.mse_loss(quantized, flat.detach()) + 0.25 * F.mse_loss(flat, quantized.detach())
        passed = (flat + (quantized - flat).detach()).view_as(latents).permute(0, 3, 1, 2)
        loss = loss + F.mse_loss(decoder(passed), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "torch.cuda.empty_cache() after every training step makes the allocator take all of its memory anew; without it",
    names=r"empty_cache|cuda_?malloc|cuda_?free|caching allocator|allocator|cached memory",
    kind="training",
    recorded="step",
    with_stack=True,
    profile_memory=True,
)
def tidy_training(device: str, changed: bool) -> Step:
    dim, classes = 512, 200
    stem, head = nn.Conv2d(3, dim, 16, 16).to(device, low(device)), nn.Linear(dim, classes).to(device, low(device))
    trunk = blocks(8, dim, 8, device, low(device))
    parameters = [*stem.parameters(), *trunk.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    images = torch.rand(small(64), 3, 224, 224, device=device, dtype=low(device))
    labels = torch.randint(classes, (len(images),), device=device)

    def step() -> Tensor:
        x = stem(images).flatten(2).transpose(1, 2)
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(1)).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not changed:
            torch.cuda.empty_cache()
        return loss.detach()

    return step


@unseen(
    "images are normalized to float32 on the host and then copied, four times the bytes; the uint8 images are copied and "
    "normalized on the GPU",
    names=r"uint8|normali[sz]\w* .{0,30}(images?|pixels?|on the (gpu|device))|convert\w* .{0,30}on the (gpu|device)"
    r"|fewer bytes|four times|pin(ned|_memory)|pageable|host[- ]to[- ]device|\bh2d\b"
    r"|cpu[- ]side|preprocess",
    kind="training",
    recorded="step",
    with_stack=True,
)
def image_feed(device: str, changed: bool) -> Step:
    batch, side = small(96), 192
    net = nn.Sequential(
        conv_net([64, 64, 128, 128, 256, 256], norm=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)
    )
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    stored = torch.randint(256, (2 * batch, 3, side, side), dtype=torch.uint8)
    labels = torch.randint(100, (2 * batch,))
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    mean_there, std_there = mean.to(device), std.to(device)
    seen = 0

    def next_batch() -> tuple[Tensor, Tensor]:
        nonlocal seen
        rows = slice(seen % 2 * batch, (seen % 2 + 1) * batch)
        seen += 1
        if changed:
            images = (stored[rows].to(device).float() / 255 - mean_there) / std_there
        else:
            images = ((stored[rows].float() / 255 - mean) / std).to(device)
        return images, labels[rows].to(device)

    def step() -> Tensor:
        images, wanted = next_batch()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=device != "cpu"):
            loss = F.cross_entropy(net(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "random crops, flips and brightness are applied to the images on the GPU one by one in a Python loop; one batched gather",
    names=r"python loop|loop over|one (image|sample) at a time|per[- ](image|sample)|each (image|sample)|batched"
    r"|vectori[sz]|gather"
    r"|grid_sample|many small|launch|aten::(flip|stack|cat)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def crops_and_flips(device: str, changed: bool) -> Step:
    batch, side, margin = small(96), 32, 4
    net = nn.Sequential(
        conv_net([64, 64, 128, 128, 256, 256], norm=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)
    )
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.rand(batch, 3, side, side, device=device), torch.randint(10, (batch,), device=device)
    draw = np.random.default_rng(0)
    span, rows, channels = torch.arange(side, device=device), torch.arange(batch, device=device), torch.arange(3, device=device)

    def augment(padded: Tensor) -> Tensor:
        down, right = draw.integers(2 * margin + 1, size=(2, batch))
        flips, gains = draw.random(batch) < 0.5, draw.uniform(0.8, 1.2, batch).astype(np.float32)
        if changed:
            packed = torch.from_numpy(np.stack([down, right, flips])).to(device)
            columns = torch.where(packed[2, :, None] > 0, side - 1 - span, span) + packed[1, :, None]
            lines = span + packed[0, :, None]
            cut = padded[rows[:, None, None, None], channels[:, None, None], lines[:, None, :, None], columns[:, None, None, :]]
            return cut * torch.from_numpy(gains).to(device)[:, None, None, None]
        augmented = []
        for image, y, x, flip, gain in zip(padded, down, right, flips, gains, strict=True):
            cut = image[:, y : y + side, x : x + side]
            if flip:
                cut = cut.flip(-1)
            augmented.append(cut * float(gain))
        return torch.stack(augmented)

    def step() -> Tensor:
        x = augment(F.pad(images, (margin,) * 4))
        loss = F.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a causal mask is passed to scaled_dot_product_attention as a tensor, which rules flash attention out and computes "
    "the masked "
    "half; is_causal=True",
    names=r"is_causal|flash|attn_mask|attention mask|causal mask|mask tensor|efficient_attention",
    kind="training",
    recorded="none",
    record_shapes=False,
)
def masked_language_model(device: str, changed: bool) -> Step:
    dim, vocabulary, length = 1024, 16000, small(2048)
    embed = nn.Embedding(vocabulary, dim).to(device, low(device))
    trunk = blocks(6, dim, 16, device, low(device))
    optimizer = torch.optim.AdamW([*embed.parameters(), *trunk.parameters()], lr=1e-4, fused=True)
    tokens = torch.randint(vocabulary, (small(4), length + 1), device=device)
    bias = torch.full((length, length), float("-inf"), device=device, dtype=low(device)).triu(1)

    def step() -> Tensor:
        x = embed(tokens[:, :-1])
        for block in trunk:
            x = block(x, causal=True) if changed else block(x, mask=bias)
        loss = F.cross_entropy((x @ embed.weight.T).flatten(0, 1) / math.sqrt(dim), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class ClipFeeder:
    """Clips from pinned memory, copied on a stream of their own."""

    def __init__(self, clips: list[Tensor], device: str, ahead: bool):
        self.clips, self.device, self.ahead = deque(clips), device, ahead
        self.stream = None if device == "cpu" else torch.cuda.Stream()
        self.waiting: Tensor | None = None

    def copied(self) -> Tensor:
        clip = self.clips[0]
        self.clips.rotate(-1)
        with contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            return clip.to(self.device, non_blocking=True)

    def take(self) -> Tensor:
        clip = self.copied() if self.waiting is None else self.waiting
        self.waiting = None
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            clip.record_stream(torch.cuda.current_stream())
        return clip

    def prefetch(self) -> None:
        if self.ahead:
            self.waiting = self.copied()


@unseen(
    "each clip is copied on a side stream that the compute stream waits for at once, so that nothing overlaps; the next clip is "
    "copied while this one is trained on",
    names=r"overlap|prefetch|wait_stream|double[- ]buffer|side stream|copy stream|\bh2d\b|host[- ]to[- ]device|memcpy|next batch",
    kind="training",
    recorded="step",
)
def clip_stream(device: str, changed: bool) -> Step:
    dim, batch = 512, small(32)
    stem = nn.Conv3d(3, dim, (4, 16, 16), (4, 16, 16)).to(device, low(device))
    trunk, head = blocks(6, dim, 8, device, low(device)), nn.Linear(dim, 400).to(device, low(device))
    optimizer = torch.optim.AdamW([*stem.parameters(), *trunk.parameters(), *head.parameters()], lr=1e-4, fused=True)
    clips = [torch.rand(batch, 3, 16, 112, 112) for _ in range(3)]
    feeder = ClipFeeder([clip if device == "cpu" else clip.pin_memory() for clip in clips], device, changed)
    labels = torch.randint(400, (batch,), device=device)

    def step() -> float:
        x = stem(feeder.take().to(low(device))).flatten(2).transpose(1, 2)
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(1)).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        feeder.prefetch()
        return loss.item()

    return step


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum, with decoupled weight decay."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, together: bool):
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99), "decay": 0.1})
        self.together = together

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            lr, (fast, slow), decay = group["lr"], group["betas"], group["decay"]
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in parameters:
                if "momentum" not in self.state[parameter]:
                    self.state[parameter]["momentum"] = torch.zeros_like(parameter)
            gradients = [parameter.grad for parameter in parameters]
            momenta = [self.state[parameter]["momentum"] for parameter in parameters]
            if self.together:
                updates = torch._foreach_lerp(momenta, gradients, 1 - fast)
                torch._foreach_sign_(updates)
                torch._foreach_mul_(parameters, 1 - lr * decay)
                torch._foreach_add_(parameters, updates, alpha=-lr)
                torch._foreach_lerp_(momenta, gradients, 1 - slow)
                continue
            for parameter, gradient, momentum in zip(parameters, gradients, momenta, strict=True):
                update = momentum.lerp(gradient, 1 - fast).sign_()
                parameter.mul_(1 - lr * decay)
                parameter.add_(update, alpha=-lr)
                momentum.lerp_(gradient, 1 - slow)


@unseen(
    "an optimizer of the program's own runs five small operations on each parameter in turn; torch._foreach operations on all",
    names=r"foreach|multi[- ]tensor|fused optimi[sz]er|one parameter at a time|per[- ]parameter|each parameter|many small|launch"
    r"|cuda ?graph|torch\.compile",
    kind="training",
    recorded="train",
    with_stack=True,
)
def sign_momentum(device: str, changed: bool) -> Step:
    dim, classes = 384, 50
    trunk, head = blocks(12, dim, 6, device), nn.Linear(dim, classes).to(device)
    optimizer = Lion([*trunk.parameters(), *head.parameters()], 1e-5, changed)
    frames, labels = torch.randn(small(16), 96, dim, device=device), torch.randint(classes, (small(16),), device=device)

    def step() -> tuple[Tensor, Tensor]:
        x = frames
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), head.weight.detach().clone()

    return step


# Inference on a GPU.


@unseen(
    "filters and window from NumPy are float64, so that the whole spectrogram is computed in double precision; float32",
    names=r"float64|\bdouble\b|fp64|complex128|\bf64\b|64[- ]bit float",
    kind="inference",
    recorded="none",
)
def mel_features(device: str, changed: bool) -> Step:
    length, hop, bands, dim = 1024, 160, 80, 512
    window, filters = np.hanning(length), np.random.default_rng(0).random((length // 2 + 1, bands)) / length
    if changed:
        window, filters = window.astype(np.float32), filters.astype(np.float32)
    window_there, filters_there = torch.from_numpy(window).to(device), torch.from_numpy(filters).to(device)
    stem = nn.Conv1d(bands, dim, 7, stride=4, padding=3).to(device, low(device))
    trunk, head = blocks(4, dim, 8, device, low(device)), nn.Linear(dim, 35).to(device, low(device))
    waves = torch.randn(small(192), 64000, device=device)

    def features(wave: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(wave.unfold(-1, length, hop) * window_there)
        return (spectrum.abs().pow(2) @ filters_there).clamp(min=1e-6).log().transpose(1, 2)

    @torch.inference_mode()
    def step() -> Tensor:
        x = F.gelu(stem(features(waves).to(low(device)))).transpose(1, 2)
        for block in trunk:
            x = block(x)
        return head(x.mean(1)).float()

    return step


@unseen(
    "each denoising step of classifier-free guidance calls the model twice, with and without the condition; once, on both as one "
    "batch",
    names=r"one batch|batch(ed|ing)? |larger batch|concatenat|twice|two (passes|calls|forward)|guidance|uncond|cuda ?graph|launch"
    r"|reduce-overhead|torch\.compile|many small",
    kind="inference",
    recorded="denoise",
    with_stack=True,
)
def guided_denoising(device: str, changed: bool) -> Step:
    dim, tokens, times, guidance = 512, 64, 10, 4.0
    trunk, project = blocks(6, dim, 8, device, low(device)), nn.Linear(dim, dim).to(device, low(device))
    clock = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim)).to(device, low(device))
    batch = small(4)
    condition = torch.randn(batch, 1, dim, device=device, dtype=low(device))
    nothing = torch.zeros_like(condition)
    start = torch.randn(batch, tokens, dim, device=device, dtype=low(device))

    def velocity(x: Tensor, cue: Tensor, time: float) -> Tensor:
        x = x + cue + clock(torch.full((1,), time, device=device, dtype=low(device)))
        for block in trunk:
            x = block(x)
        return project(x)

    @torch.inference_mode()
    def step() -> Tensor:
        x = start
        for index in range(times):
            time = index / times
            if changed:
                with_cue, without = velocity(torch.cat([x, x]), torch.cat([condition, nothing]), time).chunk(2)
            else:
                with_cue, without = velocity(x, condition, time), velocity(x, nothing, time)
            x = x + (without + guidance * (with_cue - without)) / times
        return x.float()

    return step


class CrossDecoder(nn.Module):
    """A decoder's layer: attention to the tokens so far, to the encoder's output, and an MLP."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.query, self.pair, self.cross_out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x.view(*x.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def memory_of(self, encoded: Tensor) -> tuple[Tensor, ...]:
        return self.split(self.pair(encoded), 2)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None, memory: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.split(self.qkv(self.norms[0](x)), 3)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        (q,) = self.split(self.query(self.norms[1](x)), 1)
        x = x + self.cross_out(F.scaled_dot_product_attention(q, *memory).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[2](x)), (k, v)


@unseen(
    "the keys and values of cross-attention are projected from the unchanging encoder output again for every generated token; "
    "once, before the loop",
    names=r"cross[- ]?attention|encoder('s)? output|same (input|operand|result|product)|re-?comput|computed again|cach(e"
    r"|ing)|hoist"
    r"|once (before|outside|per)|loop[- ]invariant|repeated",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def caption_decoding(device: str, changed: bool) -> Step:
    dim, vocabulary, steps = 768, small(16000), 10
    layers: Any = nn.ModuleList(CrossDecoder(dim, 12) for _ in range(4)).to(device, low(device))
    embed, encoder = nn.Embedding(vocabulary, dim).to(device, low(device)), blocks(2, dim, 12, device, low(device))
    frames = torch.randn(small(16), 1200 if device != "cpu" else 150, dim, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        encoded = frames
        for block in encoder:
            encoded = block(encoded)
        memories = [layer.memory_of(encoded) for layer in layers] if changed else None
        pasts: list[tuple[Tensor, Tensor] | None] = [None] * len(layers)
        token = torch.zeros(len(frames), 1, dtype=torch.long, device=device)
        for _ in range(steps):
            x = embed(token)
            for index, layer in enumerate(layers):
                memory = layer.memory_of(encoded) if memories is None else memories[index]
                x, pasts[index] = layer(x, pasts[index], memory)
            logits = x[:, -1] @ embed.weight.T
            token = logits.argmax(-1, keepdim=True)
        return logits.float()

    return step


class GroupedDecoder(nn.Module):
    """A decoder's layer with fewer heads of keys than of queries, and a cache of fixed size."""

    def __init__(self, dim: int, heads: int, groups: int, folded: bool):
        super().__init__()
        self.heads, self.groups, self.width, self.folded = heads, groups, dim // heads, folded
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.query, self.out = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.pair = nn.Linear(dim, 2 * groups * self.width, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(*shape, bias=False) for shape in ((dim, 3 * dim), (dim, 3 * dim), (3 * dim, dim))
        )

    def repeat_kv(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // self.groups, 1)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
        normed = self.norm1(x)
        k, v = self.pair(normed).view(len(x), 2, self.groups, self.width).unbind(1)
        keys[:, :, position], values[:, :, position] = k, v
        k, v = keys[:, :, : position + 1], values[:, :, : position + 1]
        q = self.query(normed)
        if self.folded:
            attended = F.scaled_dot_product_attention(q.view(len(x), self.groups, -1, self.width), k, v)
        else:
            q = q.view(len(x), self.heads, 1, self.width)
            attended = F.scaled_dot_product_attention(q, self.repeat_kv(k), self.repeat_kv(v))
        x = x + self.out(attended.reshape(x.shape))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


@unseen(
    "in every decoding step the cached keys and values are repeated for all heads of queries, a copy of many times the cache; "
    "attention on the groups (enable_gqa, or the queries of a group folded together)",
    names=r"repeat_interleave|repeat_kv|\brepeat|enable_gqa|\bgqa\b|grouped[- ]query|expand(ed|ing)? (the )?(keys|kv)"
    r"|cop(y|ies) of the (kv )?cache|key.?value heads",
    kind="inference",
    recorded="decode",
)
def grouped_decoding(device: str, changed: bool) -> Step:
    dim, heads, groups, length, tokens = 2048, 16, 2, small(2048), 4
    layers = nn.ModuleList(GroupedDecoder(dim, heads, groups, changed) for _ in range(8)).to(device, low(device))
    embed = nn.Embedding(small(32000), dim).to(device, low(device))
    batch = small(16)
    caches = [torch.randn(2, batch, groups, length, dim // heads, device=device, dtype=low(device)) for _ in layers]
    first = torch.randint(embed.num_embeddings, (batch,), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        token = first
        for position in range(length - tokens, length):
            x = embed(token)
            for layer, (keys, values) in zip(layers, caches, strict=True):
                x = layer(x, keys, values, position)
            logits = x @ embed.weight.T
            token = (token + position) % embed.num_embeddings
        return logits.float()

    return step


@unseen(
    "the head computes logits over the vocabulary for every position of the prompts though only the last one's are used; "
    "the last "
    "position is taken before the head",
    names=r"last (position|token|hidden)|every position|all positions|unused (positions|logits)|before the (lm )?head|lm[_ ]?head"
    r"|logits|slice (first|before)|num_logits_to_keep|thrown away|discard",
    kind="inference",
    recorded="none",
)
def next_word(device: str, changed: bool) -> Step:
    dim, vocabulary = 1024, small(100_000)
    embed, head = (
        nn.Embedding(vocabulary, dim).to(device, low(device)),
        nn.Linear(dim, vocabulary, bias=False).to(device, low(device)),
    )
    trunk, norm = blocks(10, dim, 16, device, low(device)), nn.LayerNorm(dim).to(device, low(device))
    prompts = torch.randint(vocabulary, (small(8), 512), device=device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        x = embed(prompts)
        for block in trunk:
            x = block(x, causal=True)
        logits = head(norm(x[:, -1])) if changed else head(norm(x))[:, -1]
        best = logits.float().softmax(-1).topk(5)
        return best.values, logits.float()

    return step


@unseen(
    "short texts are all padded to the model's maximum length; to the longest of each batch",
    names=r"padd|bucket|longest|nested|jagged|varlen|max(imum)?[_ ]length|sequence length|sort.* by length|unpad",
    kind="inference",
    recorded="embed_texts",
    with_stack=True,
)
def text_embeddings(device: str, changed: bool) -> Step:
    dim, vocabulary, longest, batch = 384, 30000, 256, small(64)
    embed, places = nn.Embedding(vocabulary, dim).to(device, low(device)), nn.Embedding(longest, dim).to(device, low(device))
    trunk = blocks(8, dim, 6, device, low(device))
    draw = np.random.default_rng(0)
    texts = [draw.integers(1, vocabulary, size=length) for length in draw.integers(16, 144, size=4 * batch)]

    def padded(some: list[Any]) -> tuple[Tensor, Tensor]:
        length = -(-max(map(len, some)) // 8) * 8 if changed else longest
        ids = np.zeros((len(some), length), np.int64)
        for row, text in zip(ids, some, strict=True):
            row[: len(text)] = text
        there = torch.from_numpy(ids).to(device)
        return there, there > 0

    @torch.inference_mode()
    def step() -> Tensor:
        embedded = []
        for start in range(0, len(texts), batch):
            ids, real = padded(texts[start : start + batch])
            x = embed(ids) + places.weight[: ids.shape[1]]
            for block in trunk:
                x = block(x, mask=real[:, None, None])
            pooled = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
            embedded.append(F.normalize(pooled.float(), dim=-1))
        return torch.cat(embedded)

    return step


@unseen(
    "each of the iterations tests for convergence on the host, which waits for the GPU; a test every tenth iteration",
    names=r"synchroni[sz]|host[- ]sync|\bsync\b|\bitem\b|is_nonzero|_local_scalar_dense|__bool__|convergence|device[- ]to[- ]host"
    r"|\bif\b.*tensor|every (few|tenth|n) ",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def point_matching(device: str, changed: bool) -> Step:
    dim, points, most, every = 256, 384, 60, 10 if changed else 1
    trunk, project = blocks(3, dim, 4, device), nn.Linear(dim, dim).to(device)
    left, right = (torch.randn(small(4), points, dim, device=device) for _ in range(2))

    def transport(scores: Tensor) -> Tensor:
        u, v = torch.zeros_like(scores[:, :, 0]), torch.zeros_like(scores[:, 0])
        for iteration in range(most):
            old = u
            u = -torch.logsumexp(scores + v[:, None], 2)
            v = -torch.logsumexp(scores + u[:, :, None], 1)
            if (iteration + 1) % every == 0 and (u - old).abs().max() < 1e-9:
                break
        return scores + u[:, :, None] + v[:, None]

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        first, second = left, right
        for block in trunk:
            first, second = block(first), block(second)
        scores = project(first) @ project(second).transpose(1, 2) / math.sqrt(dim)
        plan = transport(20 * scores).exp()
        return plan, plan.amax(2)

    return step


class Experts(nn.Module):
    """A mixture of experts: each token goes to two of them."""

    def __init__(self, dim: int, hidden: int, experts: int, together: bool):
        super().__init__()
        self.experts, self.together = experts, together
        self.router, self.norm = nn.Linear(dim, experts, bias=False), nn.LayerNorm(dim)
        self.up = nn.Parameter(torch.randn(experts, dim, hidden) / math.sqrt(dim))
        self.down = nn.Parameter(torch.randn(experts, hidden, dim) / math.sqrt(hidden))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(0, 1)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(2)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        if self.together:
            gates = weights.new_zeros(len(tokens), self.experts).scatter_(1, chosen, weights)
            hidden = F.gelu(torch.matmul(tokens, self.up)) * gates.T[..., None]
            mixed = torch.matmul(hidden, self.down).sum(0)
        else:
            mixed = torch.zeros_like(tokens)
            for expert in range(self.experts):
                rows, slots = torch.where(chosen == expert)
                if len(rows) == 0:
                    continue
                hidden = F.gelu(tokens[rows] @ self.up[expert])
                mixed.index_add_(0, rows, hidden @ self.down[expert] * weights[rows, slots, None])
        return x + mixed.view_as(x)


@unseen(
    "the experts run in a Python loop, each on rows found by torch.where, which waits for the GPU; all experts in one batched "
    "matrix product",
    names=r"expert|nonzero|torch\.where|grouped|\bbmm\b|batched (matrix|matmul|gemm)|python loop|loop over|host[- ]sync"
    r"|synchroni[sz]|boolean|dynamic shape",
    kind="inference",
    recorded="step",
)
def expert_layers(device: str, changed: bool) -> Step:
    dim = 1024
    trunk = blocks(8, dim, 16, device, low(device))
    experts = nn.ModuleDict({str(place): Experts(dim, 2048, 8, changed) for place in (3, 7)}).to(device, low(device))
    prompts = torch.randn(small(8), 16, dim, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        x = prompts
        for place, block in enumerate(trunk):
            x = block(x)
            if str(place) in experts:
                x = experts[str(place)](x)
        return x.float()

    return step


@unseen(
    "the host packs the features of each batch while the GPU has nothing to do; a background thread packs them while the "
    "next batch "
    "runs",
    names=r"overlap|thread|background|executor|pipelin|asynchron|next batch|(gpu|device) (is )?idle|idle (gpu|device)"
    r"|waits? for the (host|cpu)|numpy|(quanti[sz]|pack)\w* .{0,30}on the (gpu|device)",
    kind="inference",
    recorded="none",
)
def feature_export(device: str, changed: bool) -> Step:
    dim, batch, rounds = 512, small(192), 4
    stem, trunk = nn.Conv2d(3, dim, 16, 16).to(device, low(device)), blocks(8, dim, 8, device, low(device))
    batches = [torch.rand(batch, 3, 128, 128, device=device, dtype=low(device)) for _ in range(rounds)]
    packers = ThreadPoolExecutor(1)

    def pack(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = np.abs(features).max(-1, keepdims=True) / 127
        return np.rint(features / scale).astype(np.int8), scale.astype(np.float16)

    def extract(images: Tensor) -> Tensor:
        x = stem(images).flatten(2).transpose(1, 2)
        for block in trunk:
            x = block(x)
        return F.avg_pool1d(x.transpose(1, 2), 4).transpose(1, 2).float()

    @torch.inference_mode()
    def step() -> list[Tensor]:
        packed: list[Any] = []
        for images in batches:
            features = extract(images).cpu().numpy()
            packed.append(packers.submit(pack, features) if changed else pack(features))
        if changed:
            packed = [future.result() for future in packed]
        return [torch.from_numpy(scale) for _, scale in packed]

    return step


@unseen(
    "all scores are sorted to find the best few documents of each query; torch.topk",
    names=r"top_?-?k\b|aten::sort|torch\.sort|full sort|sorting|argsort|partial sort",
    kind="inference",
    recorded="search",
)
def document_search(device: str, changed: bool) -> Step:
    dim, documents, kept = 128, small(400_000), 32
    width = 384
    index = F.normalize(torch.randn(documents, dim, device=device), dim=-1)
    asked = F.normalize(torch.randn(small(64), dim, device=device), dim=-1)
    unpack, trunk = nn.Linear(2 * dim, 24 * width).to(device), blocks(4, width, 6, device, low(device))
    judge = nn.Linear(width, 1).to(device, low(device))

    def best(scores: Tensor) -> tuple[Tensor, Tensor]:
        if changed:
            values, places = scores.topk(kept, dim=1)
            return values, places
        values, places = scores.sort(dim=1, descending=True)
        return values[:, :kept], places[:, :kept]

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        scores, places = best(asked @ index.T)
        pairs = torch.cat([index[places], asked[:, None].expand(-1, kept, -1)], -1)
        x = unpack(pairs.flatten(0, 1)).view(-1, 24, width).to(low(device))
        for block in trunk:
            x = block(x)
        judged = judge(x.mean(1)).float().view(len(asked), kept)
        return scores, judged

    return step


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    return x + torch.sin(alpha * x) ** 2 / (alpha + 1e-6)


@unseen(
    "the snake activation of a vocoder is written as several elementwise operations, each a pass over memory; "
    "torch.compile fuses "
    "them into one",
    names=r"torch\.compile|fus(e|ed|es|ing|ion)\b|elementwise|element-wise|pointwise|one kernel|passes over",
    kind="inference",
    recorded="step",
)
def vocoder(device: str, changed: bool) -> Step:
    channels, length = 128, small(16384)
    activate = torch.compile(snake, dynamic=False) if changed else snake
    convs = nn.ModuleList(nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation) for dilation in (1, 3, 5) * 4).to(
        device
    )
    alphas = nn.ParameterList(torch.rand(channels, 1) + 0.5 for _ in convs).to(device)
    first, last = nn.Conv1d(80, channels, 7, padding=3).to(device), nn.Conv1d(channels, 1, 7, padding=3).to(device)
    mels = torch.randn(small(8), 80, length, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = first(mels)
        for conv, alpha in zip(convs, alphas, strict=True):
            x = x + conv(activate(x, alpha))
        return torch.tanh(last(x))

    return step


# Changes that bring nothing, on a GPU.


@unseen(
    "null: small token batches copied from pinned memory, non-blocking, where the GPU has long steps of queued work",
    names=r"(?!)",
    kind="training",
    recorded="step",
    null=True,
)
def pinned_tokens(device: str, changed: bool) -> Step:
    dim, vocabulary, length = 1024, small(16000), 512
    embed = nn.Embedding(vocabulary, dim).to(device, low(device))
    trunk = blocks(8, dim, 16, device, low(device))
    optimizer = torch.optim.AdamW([*embed.parameters(), *trunk.parameters()], lr=1e-4, fused=True)
    batches = [torch.randint(vocabulary, (small(32), length + 1)) for _ in range(4)]
    if changed and device != "cpu":
        batches = [batch.pin_memory() for batch in batches]
    waiting = deque(batches)

    def step() -> Tensor:
        tokens = waiting[0].to(device, non_blocking=changed)
        waiting.rotate(-1)
        x = embed(tokens[:, :-1])
        for block in trunk:
            x = block(x, causal=True)
        loss = F.cross_entropy((x @ embed.weight.T).flatten(0, 1) / math.sqrt(dim), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: the loss of each long step is read by .item() once, at its end; kept on the GPU instead",
    names=r"(?!)",
    kind="training",
    recorded="train_step",
    null=True,
    with_stack=True,
)
def logged_loss(device: str, changed: bool) -> Step:
    dim, classes = 1280, 1000
    stem, head = nn.Conv2d(3, dim, 16, 16).to(device, low(device)), nn.Linear(dim, classes).to(device, low(device))
    trunk = blocks(8, dim, 20, device, low(device))
    optimizer = torch.optim.AdamW([*stem.parameters(), *trunk.parameters(), *head.parameters()], lr=1e-4, fused=True)
    images = torch.rand(small(64), 3, 224, 224, device=device, dtype=low(device))
    labels = torch.randint(classes, (len(images),), device=device)
    total: Any = 0.0

    def step() -> Any:
        nonlocal total
        x = stem(images).flatten(2).transpose(1, 2)
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(1)).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.detach() if changed else loss.item()
        total = total + value
        return value

    return step


@unseen(
    "null: a fused optimizer for a convolutional network of few parameters and large images",
    names=r"(?!)",
    kind="training",
    recorded="none",
    null=True,
)
def segmentation_optimizer(device: str, changed: bool) -> Step:
    down = conv_net([64, 64, 128, 128, 128], norm=True).to(device)
    up = nn.Sequential(nn.ConvTranspose2d(128, 64, 4, 4), nn.ReLU(), nn.Conv2d(64, 8, 1)).to(device)
    parameters = [*down.parameters(), *up.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True) if changed else torch.optim.AdamW(parameters, lr=1e-4)
    side = max(32, small(512))
    images = torch.rand(12, 3, side, side, device=device)
    classes = torch.randint(8, (12, side, side), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(up(down(images)), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: batches are put together on the host by a background thread, where the GPU's queue already hid that work",
    names=r"(?!)",
    kind="training",
    recorded="step",
    null=True,
    record_shapes=False,
)
def background_batches(device: str, changed: bool) -> Step:
    dim, bands, frames = 1024, 80, 256
    stem, trunk = nn.Linear(bands, dim).to(device, low(device)), blocks(8, dim, 16, device, low(device))
    head = nn.Linear(dim, 500).to(device, low(device))
    optimizer = torch.optim.AdamW([*stem.parameters(), *trunk.parameters(), *head.parameters()], lr=1e-4, fused=True)
    batch = small(64)
    recordings, draw = np.random.default_rng(0).standard_normal((batch, 400, bands), np.float32), np.random.default_rng(1)
    targets = torch.randint(500, (batch, frames), device=device)
    loader = ThreadPoolExecutor(1)

    def make_batch() -> Tensor:
        cut = np.empty((batch, frames, bands), np.float32)
        for row, recording, start in zip(cut, recordings, draw.integers(400 - frames, size=batch), strict=True):
            row[:] = recording[start : start + frames]
            low_band, low_frame = draw.integers(bands - 8), draw.integers(frames - 20)
            row[:, low_band : low_band + 8] = 0
            row[low_frame : low_frame + 20] = 0
        made = torch.from_numpy(cut)
        return made if device == "cpu" else made.pin_memory()

    waiting: deque[Future[Tensor]] = deque()

    def next_batch() -> Tensor:
        if not changed:
            return make_batch()
        while len(waiting) < 2:
            waiting.append(loader.submit(make_batch))
        return waiting.popleft().result()

    def step() -> Tensor:
        x = stem(next_batch().to(device, non_blocking=True).to(low(device)))
        for block in trunk:
            x = block(x)
        loss = F.cross_entropy(head(x).flatten(0, 1).float(), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: small predictions are copied to pinned memory on a side stream, beside long batches, rather than on the stream of the "
    "computation",
    names=r"(?!)",
    kind="inference",
    recorded="predict",
    null=True,
)
def prediction_copies(device: str, changed: bool) -> Step:
    batch, rounds, classes = small(128), 6, 100
    body = conv_net([64, 64, 128, 128, 256, 256]).to(device, low(device))
    net = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes).to(device, low(device))).eval()
    images = torch.rand(rounds, batch, 3, 128, 128, device=device, dtype=low(device))
    held = [torch.empty(batch, classes, dtype=low(device), pin_memory=device != "cpu") for _ in range(rounds)]
    stream = torch.cuda.Stream() if changed and device != "cpu" else None

    @torch.inference_mode()
    def step() -> list[Tensor]:
        for some, place in zip(images, held, strict=True):
            scores = net(some).softmax(-1)
            if stream is None:
                place.copy_(scores, non_blocking=True)
                continue
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                place.copy_(scores, non_blocking=True)
            scores.record_stream(stream)
        if device != "cpu":
            torch.cuda.synchronize()
        return [place.clone() for place in held]

    return step


# On a CPU with two cores.


@unseen(
    "the confusion matrix is filled one prediction at a time in a Python loop; torch.bincount of the pairs",
    names=r"bincount|histogram|confusion|python loop|loop over|one (element|prediction|sample) at a time|index_add|scatter_add"
    r"|vectori[sz]|many small",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def confusion_counts(device: str, changed: bool) -> Step:
    batch, classes = small(640), 12
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, classes)).to(device).eval()
    images, labels = torch.rand(batch, 784, device=device), torch.randint(classes, (batch,), device=device)

    def confusion(predicted: Tensor) -> Tensor:
        if changed:
            return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)
        counts = torch.zeros(classes, classes, dtype=torch.long, device=device)
        for label, guess in zip(labels, predicted, strict=True):
            counts[label, guess] += 1
        return counts

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        logits = net(images)
        counts = confusion(logits.argmax(1))
        return F.cross_entropy(logits, labels), counts

    return step


@dataclass(frozen=True)
class Transition:
    state: np.ndarray
    action: int
    reward: float
    following: np.ndarray


@unseen(
    "a batch is made by torch.tensor of a list of NumPy arrays, element by element; np.stack first, then torch.from_numpy",
    names=r"from_numpy|np\.(stack|array|asarray|concatenate)|numpy|list of|torch\.tensor\b|python list|element by element|replay"
    r"|outside (of )?(any )?(torch )?op",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def replay_batches(device: str, changed: bool) -> Step:
    observed, actions, batch = 128, 6, small(256)
    online, target = (
        nn.Sequential(nn.Linear(observed, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, actions)).to(device)
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    draw = np.random.default_rng(0)
    memory = [
        Transition(
            draw.standard_normal(observed, np.float32),
            int(draw.integers(actions)),
            float(draw.random()),
            draw.standard_normal(observed, np.float32),
        )
        for _ in range(5000)
    ]

    def states_of(arrays: list[np.ndarray]) -> Tensor:
        return (torch.from_numpy(np.stack(arrays)) if changed else torch.tensor(arrays)).to(device)

    def step() -> Tensor:
        some = [memory[place] for place in draw.integers(len(memory), size=batch)]
        states, following = states_of([one.state for one in some]), states_of([one.following for one in some])
        chosen, rewards = torch.tensor([one.action for one in some]), torch.tensor([one.reward for one in some])
        with torch.no_grad():
            wanted = rewards.to(device) + 0.99 * target(following).amax(1)
        values = online(states).gather(1, chosen.to(device)[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the embeddings of each article's words are gathered and then averaged; embedding_bag does both without the words' tensor",
    names=r"embedding[_ -]?bag",
    kind="training",
    recorded="step",
    on=("cpu",),
    profile_memory=True,
)
def article_tags(device: str, changed: bool) -> Step:
    words, dim, batch, length = 8000, 128, small(512), 100
    table = nn.Parameter(torch.randn(words, dim, device=device) * 0.1)
    head = nn.Sequential(nn.Linear(dim, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 40)).to(device)
    optimizer = torch.optim.SGD([table, *head.parameters()], lr=0.1)
    articles = torch.randint(words, (batch, length), device=device)
    tags = (torch.rand(batch, 40, device=device) < 0.1).float()

    def step() -> Tensor:
        x = F.embedding_bag(articles, table, mode="mean") if changed else F.embedding(articles, table).mean(1)
        loss = F.binary_cross_entropy_with_logits(head(x), tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "requests that a thread pool has prepared go through the model one at a time; the waiting requests as one batch",
    names=r"batch(ed|ing)?\b.*(request|together|one)|(request|sample|input)s? .*\bbatch|one request|micro-?batch"
    r"|dynamic batch|batch size"
    r"|\bgemv\b|larger batch|small batch",
    kind="inference",
    recorded="serve",
    on=("cpu",),
)
def request_threads(device: str, changed: bool) -> Step:
    dim, requests = 1024, 12
    encoder = (
        nn.Sequential(nn.Linear(300, dim), nn.ReLU(), nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        .to(device)
        .eval()
    )
    ranker = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 200)).to(device).eval()
    asked = ["".join(map(chr, np.random.default_rng(place).integers(97, 123, 400))) for place in range(requests)]
    catalogue = torch.randn(200, 2000, device=device)
    workers = ThreadPoolExecutor(2)

    def prepare(request: str) -> Tensor:
        letters = np.frombuffer(request.encode(), np.uint8).astype(np.int64)
        counts = np.bincount((letters[:-1] * 31 + letters[1:]) % 300, minlength=300).astype(np.float32)
        return torch.from_numpy(counts / np.linalg.norm(counts)).to(device)

    @torch.inference_mode()
    def answer(features: Tensor) -> Tensor:
        return (ranker(encoder(features)) @ catalogue).topk(10).values

    def step() -> list[Tensor]:
        prepared = workers.map(prepare, asked)
        if changed:
            return list(answer(torch.stack(list(prepared))))
        return [answer(features) for features in prepared]

    return step


@unseen(
    "a room's long impulse response is applied by a direct convolution; by FFT",
    names=r"\bi?r?fft\b|fftconv|fourier|frequency domain|(long|large) kernel|overlap-(add|save)|direct convolution",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def room_reverb(device: str, changed: bool) -> Step:
    batch, length, taps = small(8), 8000, 1600
    net = nn.Sequential(
        nn.Conv1d(1, 32, 16, stride=8),
        nn.ReLU(),
        nn.Conv1d(32, 64, 8, stride=4),
        nn.ReLU(),
        nn.Conv1d(64, 128, 4, stride=2),
        nn.ReLU(),
    ).to(device)
    head = nn.Linear(128, 12).to(device)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-4)
    speech, words = torch.randn(batch, length, device=device), torch.randint(12, (batch,), device=device)
    response = torch.randn(taps, device=device) * torch.exp(-torch.arange(taps, device=device) / 300)

    def reverberate(wave: Tensor) -> Tensor:
        if changed:
            size = length + taps
            return torch.fft.irfft(torch.fft.rfft(wave, size) * torch.fft.rfft(response, size), size)[:, :length]
        return F.conv1d(F.pad(wave, (taps - 1, 0))[:, None], response.flip(0)[None, None]).squeeze(1)

    def step() -> Tensor:
        with torch.no_grad():
            wave = reverberate(speech)
            wave = wave / wave.abs().amax(1, keepdim=True)
        loss = F.cross_entropy(head(net(wave[:, None]).mean(2)), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "batch norms run as passes of their own behind the convolutions of a network that is only used for inference; folded "
    "into the "
    "convolutions' weights",
    names=r"fold|fus(e|ed|ing|ion)\b.*(batch|\bbn\b|norm)|(batch|\bbn\b|norm).*fus(e|ed|ing|ion)\b|fuse_conv_bn"
    r"|batch_?norm|freezing"
    r"|optimize_for_inference",
    kind="inference",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def doorbell_camera(device: str, changed: bool) -> Step:
    layers: list[nn.Module] = []
    for given, made, stride in ((3, 24, 2), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1)):
        wide = 2 * made
        pair = nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide)
        depth = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        narrow = nn.Conv2d(wide, made, 1, bias=False), nn.BatchNorm2d(made)
        layers += [*pair, nn.ReLU(), *depth, nn.ReLU(), *narrow]
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
            layer.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    if changed:
        layers = [layer.eval() for layer in layers]
        folded: list[nn.Module] = []
        for layer in layers:
            if isinstance(layer, nn.BatchNorm2d):
                folded[-1] = torch.nn.utils.fuse_conv_bn_eval(folded[-1], layer)  # type: ignore[type-var]
            else:
                folded.append(layer)
        layers = folded
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 5)).to(device).eval()
    frames = torch.rand(4, 3, small(192), small(192), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        return net(frames).softmax(-1)

    return step


@unseen(
    "null: torch.inference_mode instead of torch.no_grad around a model of large matrix products",
    names=r"(?!)",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def sentence_scores(device: str, changed: bool) -> Step:
    dim = 256
    trunk, head = blocks(2, dim, 4, device), nn.Linear(dim, 2).to(device)
    sentences = torch.randn(small(4), 64, dim, device=device)

    def step() -> Tensor:
        with torch.inference_mode() if changed else torch.no_grad():
            x = sentences
            for block in trunk:
                x = block(x)
            return head(x.mean(1)).softmax(-1)

    return step


@unseen(
    "null: gradients are set to None instead of to zero, where they are tiny beside the activations",
    names=r"(?!)",
    kind="training",
    recorded="none",
    null=True,
    on=("cpu",),
)
def digits_training(device: str, changed: bool) -> Step:
    net = nn.Sequential(conv_net([16, 32, 32, 64]), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.rand(small(32), 3, 64, 64, device=device), torch.randint(10, (small(32),), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad(set_to_none=changed)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
