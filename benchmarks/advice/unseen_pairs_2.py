"""A second set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

Written without a look at what the reader knows, with other programs than the first set's. UNSEEN holds them by name.
"""

from concurrent.futures import ThreadPoolExecutor
import copy
from itertools import pairwise
import math
from typing import Any

from advice.unseen_pairs import Step, Unseen, batches_for_ever, blocks, low, pairs_into, small
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with a SiLU between each two."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


# Training on a GPU.


@unseen(
    "the mean activation of every layer is read with item() for a log, in the middle of the forward pass; "
    "kept on the GPU and read together now and then",
    names=r"\bitem\(\)|aten::item|local_scalar|synchroni|DtoH|read\w* (less|every|together|later)",
    kind="training",
    recorded="none",
)
def speech_layers_logged(device: str, changed: bool) -> Step:
    encoder = blocks(12, 512, 8, device, low(device))
    head = nn.Linear(512, 320, device=device, dtype=low(device))
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-5, fused=True)
    frames = torch.randn(small(8), 400, 512, device=device, dtype=low(device))
    units = torch.randint(0, 320, (frames.shape[0] * 400,), device=device)
    log: list[float] = []
    steps = 0

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        x, kept = frames, []
        for block in encoder:
            x = block(x)
            mean = x.detach().abs().mean(dtype=torch.float32)
            if changed:
                kept.append(mean)
            else:
                log.append(mean.item())
        if kept and steps % 50 == 0:
            log.extend(torch.stack(kept).tolist())
        del log[:-1000]
        loss = F.cross_entropy(head(x).flatten(0, 1).float(), units)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "satellite tiles are copied to the GPU from pageable memory; pinned memory and non_blocking=True",
    names=r"pin_memory|pinned|page-?able|page-?locked|non_blocking",
    kind="training",
    recorded="step",
)
def satellite_tiles_pageable(device: str, changed: bool) -> Step:
    bands, count, side = 6, small(16), 256
    layers: list[nn.Module] = [nn.Conv2d(bands, 64, 3, 2, 1), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Conv2d(64, 9, 1)).to(device=device, dtype=low(device))
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    tiles = [torch.randn(count, bands, side, side) for _ in range(4)]
    covers = torch.randint(0, 9, (count, side // 2, side // 2), device=device)
    if changed and device != "cpu":
        tiles = [tile.pin_memory() for tile in tiles]
    number = 0

    def step() -> Tensor:
        nonlocal number
        number += 1
        x = tiles[number % 4].to(device, non_blocking=changed)
        optimizer.zero_grad()
        found = net(x.to(dtype=low(device), memory_format=torch.channels_last))
        loss = F.cross_entropy(found.float(), covers)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a diffusion model's noise is drawn on the CPU and copied to the GPU; torch.randn(device=...)",
    names=r"device=|randn|aten::normal_|(draw|creat|generat|mak|sampl)\w* \w*\s?(directly )?on the (gpu|device)|\bnoise\b",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def sound_diffusion_noise(device: str, changed: bool) -> Step:
    count, length = small(64), 32_768
    net = nn.Sequential(
        nn.Conv1d(1, 128, 16, 8, 4),
        nn.SiLU(),
        *(m for _ in range(4) for m in (nn.Conv1d(128, 128, 5, padding=2), nn.SiLU())),
        nn.ConvTranspose1d(128, 1, 16, 8, 4),
    ).to(device=device, dtype=low(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    sounds = torch.randn(count, 1, length, device=device) / 3

    def step() -> Tensor:
        level = torch.rand(count, 1, 1, device=device)
        noise = torch.randn(sounds.shape, device=device) if changed else torch.randn(sounds.shape).to(device)
        noisy = (1 - level).sqrt() * sounds + level.sqrt() * noise
        optimizer.zero_grad()
        loss = F.mse_loss(net(noisy.to(low(device))).float(), noise)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a point cloud network multiplies in full float32; TF32 (set_float32_matmul_precision) or autocast",
    names=r"tf32|matmul_precision|autocast|bf16|bfloat16|half.precision|mixed.precision|float16",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def point_cloud_full_float32(device: str, changed: bool) -> Step:
    clouds, points = small(24), small(2048)
    layers: list[nn.Module] = []
    for before, after in ((3, 64), (64, 128), (128, 512), (512, 1024)):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    each, whole = nn.Sequential(*layers).to(device), perceptron(1024, 256, 40).to(device)
    optimizer = torch.optim.Adam([*each.parameters(), *whole.parameters()], lr=1e-3, fused=True)
    cloud = torch.randn(clouds * points, 3, device=device)
    labels = torch.randint(0, 40, (clouds,), device=device)

    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        optimizer.zero_grad()
        found = whole(each(cloud).view(clouds, points, -1).amax(1))
        loss = F.cross_entropy(found, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "AdamW was told foreach=False, and updates the parameters of eight critics one after another; fused=True",
    names=r"fused ?= ?True|fused\W+(adam|optim|kernel|implementation|version)|foreach|multi.?tensor|single.?tensor",
    kind="training",
    recorded="update",
)
def critics_single_tensor(device: str, changed: bool) -> Step:
    critics = nn.ModuleList(perceptron(80, 256, 256, 256, 1) for _ in range(8)).to(device)
    targets = copy.deepcopy(critics).requires_grad_(False)
    options: dict[str, Any] = {"fused": True} if changed else {"foreach": False}
    optimizer = torch.optim.AdamW(critics.parameters(), lr=3e-4, **options)
    now, following = torch.randn(2, 512, 80, device=device)
    reward = torch.randn(512, 1, device=device)

    def step() -> Tensor:
        with torch.no_grad():
            wanted = reward + 0.99 * torch.stack([target(following) for target in targets]).amin(0)
        optimizer.zero_grad()
        loss = torch.stack([F.mse_loss(critic(now), wanted) for critic in critics]).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "categorical fields are made one-hot and multiplied by a weight; nn.Embedding (a lookup)",
    names=r"one_?hot|embedding|look-?up|index_select|\bgather\b|aten::scatter",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def fields_one_hot(device: str, changed: bool) -> Step:
    rows, kinds, dim = small(4096), small(4000), 128
    tables = nn.ParameterList(nn.Parameter(torch.randn(kinds, dim) / 10) for _ in range(3)).to(device)
    net = perceptron(3 * dim, 2048, 2048, 2048, 1).to(device=device, dtype=low(device))
    optimizer = torch.optim.SGD([*tables.parameters(), *net.parameters()], lr=1e-2)
    fields = torch.randint(0, kinds, (3, rows), device=device)
    bought = torch.rand(rows, device=device).round()

    def step() -> Tensor:
        optimizer.zero_grad()
        if changed:
            parts = [F.embedding(field, table) for field, table in zip(fields, tables, strict=True)]
        else:
            parts = [F.one_hot(field, kinds).float() @ table for field, table in zip(fields, tables, strict=True)]
        score = net(torch.cat(parts, dim=1).to(low(device))).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score.float(), bought)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a radiance field permutes all rays of the scene with randperm to draw 4096 of them; randint",
    names=r"randperm|randint|radix.?sort|permut|aten::(arg)?sort",
    kind="training",
    recorded="step",
    with_stack=True,
)
def rays_by_permutation(device: str, changed: bool) -> Step:
    rays, drawn, samples = small(24_000_000), small(4096), 48
    scene = torch.randn(rays, 3, device=device)
    colors = torch.rand(rays, 1, device=device)
    field = perceptron(36, 256, 256, 256, 256, 2).to(device=device, dtype=low(device))
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4, fused=True)
    scales = 2.0 ** torch.arange(6, device=device)
    depth = torch.linspace(0.5, 4, samples, device=device)[:, None]

    def step() -> Tensor:
        chosen = torch.randint(rays, (drawn,), device=device) if changed else torch.randperm(rays, device=device)[:drawn]
        points = scene[chosen][:, None] * depth
        angles = (points[..., None] * scales).flatten(-2)
        encoded = torch.cat([angles.sin(), angles.cos()], dim=-1).to(low(device))
        optimizer.zero_grad()
        density, color = field(encoded).float().unbind(-1)
        opaque = 1 - torch.exp(-F.softplus(density) * 0.1)
        light = torch.cumprod(1 - opaque + 1e-6, dim=1)
        loss = F.mse_loss((light * opaque * color.sigmoid()).sum(1, keepdim=True), colors[chosen])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "private training takes the gradient of each sample with a backward pass of its own; torch.func's vmap of grad",
    names=r"vmap|per.?(sample|example)|torch\.func|functorch|opacus|(loop|pass|backward|one|each|every)\W+(\w+\W+){0,3}sample",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def private_sample_by_sample(device: str, changed: bool) -> Step:
    from torch.func import functional_call, grad, vmap

    count = 24
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, 2), nn.Tanh(), nn.Conv2d(16, 32, 5, 2), nn.Tanh(), nn.Flatten(), nn.Linear(512, 10)
    ).to(device)
    images, labels = torch.randn(count, 1, 28, 28, device=device), torch.randint(0, 10, (count,), device=device)
    parameters: dict[str, Tensor] = dict(net.named_parameters())

    def loss_of(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, weights, (image[None],)), label[None])

    each_grad = vmap(grad(loss_of), in_dims=(None, 0, 0))

    def step() -> Tensor:
        if changed:
            found = list(each_grad({name: p.detach() for name, p in parameters.items()}, images, labels).values())
        else:
            rows = []
            for image, label in zip(images, labels, strict=True):
                rows.append(torch.autograd.grad(loss_of(parameters, image, label), list(parameters.values())))
            found = [torch.stack(column) for column in zip(*rows, strict=True)]
        norms = torch.stack([part.flatten(1).norm(dim=1) for part in found]).norm(dim=0)
        shrink = (1 / norms).clamp(max=1)
        with torch.no_grad():
            for parameter, part in zip(parameters.values(), found, strict=True):
                summed = torch.tensordot(shrink, part, dims=1)
                parameter.sub_((summed + 0.1 * torch.randn_like(summed)) / count, alpha=0.01)
        return norms.mean()

    return step


@unseen(
    "the discriminator's loss goes back through the generator too, whose gradients are thrown away; "
    "detach the generated images, or generate them under no_grad",
    names=r"detach|no_grad|inference_mode|requires_grad|through the generator|generator'?s (gradient|backward)",
    kind="training",
    recorded="none",
)
def discriminator_without_detach(device: str, changed: bool) -> Step:
    count, dtype = small(128), low(device)
    layers: list[nn.Module] = [nn.ConvTranspose2d(64, 256, 4)]
    for before, after in ((256, 256), (256, 128), (128, 64)):
        layers += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1)]
    generator = nn.Sequential(*layers, nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
    critic = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(128, 256, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(256, 1, 8),
    )  # fmt: skip
    for net in (generator, critic):
        net.to(device=device, dtype=dtype).to(memory_format=torch.channels_last)
    makes = torch.optim.Adam(generator.parameters(), lr=1e-5, fused=True)
    judges = torch.optim.Adam(critic.parameters(), lr=1e-5, fused=True)
    real = torch.randn(count, 3, 64, 64, device=device, dtype=dtype).to(memory_format=torch.channels_last)

    def step() -> Tensor:
        for _ in range(3):
            fake = generator(torch.randn(count, 64, 1, 1, device=device, dtype=dtype))
            fake = fake.detach() if changed else fake
            judges.zero_grad()
            loss = (F.relu(1 - critic(real)) + F.relu(1 + critic(fake))).float().mean()
            loss.backward()
            judges.step()
        makes.zero_grad()
        fooled = -critic(generator(torch.randn(count, 64, 1, 1, device=device, dtype=dtype))).float().mean()
        fooled.backward()
        makes.step()
        return torch.stack([loss.detach(), fooled.detach()])

    return step


class SmallUNet(nn.Module):
    """Two levels down and up, with skips."""

    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.same = nn.Conv2d(width, width, 3, padding=1)
        self.down1, self.down2 = nn.Conv2d(width, 2 * width, 3, 2, 1), nn.Conv2d(2 * width, 4 * width, 3, 2, 1)
        self.middle = nn.Conv2d(4 * width, 4 * width, 3, padding=1)
        self.up2, self.up1 = nn.Conv2d(6 * width, 2 * width, 3, padding=1), nn.Conv2d(3 * width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.same(F.relu(self.first(x))))
        b = F.relu(self.down1(a))
        c = F.relu(self.middle(F.relu(self.down2(b))))
        b = F.relu(self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], dim=1)))
        return self.last(F.relu(self.up1(torch.cat([F.interpolate(b, scale_factor=2.0), a], dim=1))))


@unseen(
    "a segmentation network in bfloat16 keeps the NCHW layout, which its convolutions convert back and forth; channels_last",
    names=r"channels_last|nhwc|nchw|memory.?format|layout",
    kind="training",
    recorded="step",
)
def cells_in_nchw(device: str, changed: bool) -> Step:
    layout = torch.channels_last if changed else torch.contiguous_format
    net = SmallUNet(64).to(device=device, dtype=low(device)).to(memory_format=layout)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    images = torch.randn(small(12), 3, 256, 256, device=device, dtype=low(device)).to(memory_format=layout)
    cells = torch.randint(0, 4, (images.shape[0], 256, 256), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), cells)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a language model's vocabulary of 50257 is no multiple of 8, which rules out the fast bfloat16 products; padded to 50304",
    names=r"50257|50304|multiple\w* of|align|pad\w* (the |its )?(vocab|head|classes|output)|odd (size|dim|vocab)|divisible",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def vocabulary_of_odd_size(device: str, changed: bool) -> Step:
    words = 50_304 if changed else 50_257
    if device == "cpu":
        words //= 64
    net = blocks(4, 768, 12, device, low(device))
    table = nn.Parameter(torch.randn(words, 768, device=device, dtype=low(device)) / 40)
    optimizer = torch.optim.AdamW([*net.parameters(), table], lr=1e-5, fused=True)
    text = torch.randint(0, 700 if device == "cpu" else 50_000, (4, small(1024)), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = F.embedding(text[:, :-1], table)
        for block in net:
            x = block(x, causal=True)
        loss = F.cross_entropy((F.layer_norm(x, (768,)) @ table.T).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "gradients are clipped by hand, the norm of each parameter read with item(); clip_grad_norm_, which keeps them on the GPU",
    names=r"clip_grad_norm|foreach|multi.?tensor|\bitem\(\)|aten::item|local_scalar|linalg_vector_norm|synchroni",
    kind="training",
    recorded="step",
)
def translator_clipped_by_hand(device: str, changed: bool) -> Step:
    net = blocks(10, 384, 6, device, low(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    x, target = torch.randn(2, small(32), 128, 384, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        for block in net:
            h = block(h)
        loss = F.mse_loss(h.float(), target.float())
        loss.backward()
        if changed:
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        else:
            squares = 0.0
            for parameter in net.parameters():
                squares += parameter.grad.norm().item() ** 2
            if squares > 1e-4:
                for parameter in net.parameters():
                    parameter.grad.mul_(0.01 / math.sqrt(squares))
        optimizer.step()
        return loss.detach()

    return step


class Reviews(Dataset[tuple[Any, int]]):
    """Texts of words already numbered, as lists or as tensors."""

    def __init__(self, tensors: bool):
        random = torch.Generator().manual_seed(3)
        lengths = torch.randint(100, 500, (2048,), generator=random).tolist()
        texts = [torch.randint(1, 20_000, (length,), generator=random) for length in lengths]
        self.texts: list[Any] = texts if tensors else [text.tolist() for text in texts]

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.texts[number % 2048], number % 2


def pad_lists(samples: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    longest = max(len(text) for text, _ in samples)
    rows = [text + [0] * (longest - len(text)) for text, _ in samples]
    return torch.tensor(rows), torch.tensor([label for _, label in samples])


def pad_tensors(samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    texts = nn.utils.rnn.pad_sequence([text for text, _ in samples], batch_first=True)
    return texts, torch.tensor([label for _, label in samples])


@unseen(
    "the workers' collate function pads Python lists and makes a tensor of them, by element, and the GPU waits for it; "
    "tensors and pad_sequence",
    names=r"collate|pad_sequence|torch\.tensor|python lists?|data ?load|num_workers|worker",
    kind="training",
    recorded="step",
    with_stack=True,
    record_shapes=False,
)
def reviews_slow_collate(device: str, changed: bool) -> Step:
    collate: Any = pad_tensors if changed else pad_lists
    loader = DataLoader(
        Reviews(changed), small(320), num_workers=2, persistent_workers=True, collate_fn=collate, pin_memory=device != "cpu"
    )
    batches = batches_for_ever(loader)
    table = nn.Embedding(20_000, 128, device=device)
    net = nn.Sequential(
        *(m for _ in range(3) for m in (nn.Conv1d(128, 128, 5, padding=2), nn.ReLU())), nn.AdaptiveMaxPool1d(1), nn.Flatten()
    ).to(device)
    head = nn.Linear(128, 2).to(device)
    optimizer = torch.optim.SGD([*table.parameters(), *net.parameters(), *head.parameters()], lr=1e-2)

    def step() -> Tensor:
        texts, labels = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(table(texts).transpose(1, 2))), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class WalkersInPython:
    """Walkers on a grid, each moved by itself."""

    def __init__(self, count: int):
        self.places = [[i % 16, i // 16 % 16] for i in range(count)]
        self.goals = [[15 - i % 16, i % 7] for i in range(count)]

    def env_step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        seen, rewards = [], []
        for place, goal, action in zip(self.places, self.goals, actions.tolist(), strict=True):
            move = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
            place[0] = min(max(place[0] + move[0], 0), 15)
            place[1] = min(max(place[1] + move[1], 0), 15)
            far = abs(place[0] - goal[0]) + abs(place[1] - goal[1])
            rewards.append(1.0 if far == 0 else -0.01 * far)
            seen.append([place[0] / 16, place[1] / 16, goal[0] / 16, goal[1] / 16])
        return torch.tensor(seen), torch.tensor(rewards)


class WalkersTogether:
    """The same walkers, moved together."""

    def __init__(self, count: int):
        self.places = torch.tensor([[i % 16, i // 16 % 16] for i in range(count)])
        self.goals = torch.tensor([[15 - i % 16, i % 7] for i in range(count)])
        self.moves = torch.tensor([(0, 1), (1, 0), (0, -1), (-1, 0)])

    def env_step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        self.places = (self.places + self.moves[actions.cpu()]).clamp(0, 15)
        far = (self.places - self.goals).abs().sum(1)
        return torch.cat([self.places, self.goals], dim=1) / 16, torch.where(far == 0, 1.0, -0.01 * far)


@unseen(
    "the walkers of a rollout are moved one by one in Python while the GPU waits; all of them together, as arrays",
    names=r"vectori[sz]|env_step|environment|\benvs?\b|walker|rollout|numpy|python (code|loop|function)|one by one",
    kind="training",
    recorded="none",
    with_stack=True,
)
def walkers_one_by_one(device: str, changed: bool) -> Step:
    count, length = 160, 12
    world: Any = (WalkersTogether if changed else WalkersInPython)(count)
    policy = perceptron(4, 256, 256, 256, 4).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
    first = world.env_step(torch.zeros(count, dtype=torch.long))[0].to(device)

    def step() -> Tensor:
        seen, kept = first, []
        for _ in range(length):
            with torch.no_grad():
                action = torch.multinomial(policy(seen).softmax(-1), 1).squeeze(1)
            following, reward = world.env_step(action)
            kept.append((seen, action, reward.to(device)))
            seen = following.to(device)
        states, actions, rewards = (torch.stack(part) for part in zip(*kept, strict=True))
        returns = rewards.flip(0).cumsum(0).flip(0)
        optimizer.zero_grad()
        chosen = policy(states).log_softmax(-1).gather(-1, actions[..., None]).squeeze(-1)
        loss = -(chosen * (returns - returns.mean())).mean()
        loss.backward()
        optimizer.step()
        return rewards.mean()

    return step


# Inference on a GPU.


class ViTBlock(nn.Module):
    """A transformer block whose attention is written out, or not."""

    def __init__(self, dim: int, heads: int, by_hand: bool):
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norms[0](x)
        q, k, v = (m(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.query, self.key, self.value))
        if self.by_hand:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            h = scores.softmax(dim=-1) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(h.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


@unseen(
    "an image transformer writes its attention out as a product, a softmax and a product; scaled_dot_product_attention",
    names=r"scaled_dot_product|\bsdpa\b|flash|(fused|memory.efficient) attention|aten::_?softmax",
    kind="inference",
    recorded="none",
)
def patches_attention_by_hand(device: str, changed: bool) -> Step:
    net = nn.Sequential(*(ViTBlock(768, 12, not changed) for _ in range(6))).to(device=device, dtype=low(device)).eval()
    cut = nn.Conv2d(3, 768, 16, 16).to(device=device, dtype=low(device))
    images = torch.randn(small(24), 3, 384, 384, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        return net(cut(images).flatten(2).transpose(1, 2)).mean(1)

    return step


@unseen(
    "the embeddings of a catalogue grow by torch.cat with every batch; written into one tensor, or one torch.cat at the end",
    names=r"torch\.cat|aten::cat\b|CatArray|preallocat|append|quadratic|(one|single) (cat|concat)",
    kind="inference",
    recorded="none",
    profile_memory=True,
    record_shapes=False,
)
def catalogue_grown_by_cat(device: str, changed: bool) -> Step:
    batches, rows = 24, small(8192)
    net = perceptron(512, 1024, 1024, 512).to(device=device, dtype=low(device)).eval()
    items = torch.randn(batches, rows, 512, device=device, dtype=low(device))
    queries = torch.randn(64, 512, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        found, parts = torch.empty(0, 512, device=device), []
        for batch in items:
            embedded = F.normalize(net(batch).float(), dim=1)
            if changed:
                parts.append(embedded)
            else:
                found = torch.cat([found, embedded])
        if changed:
            found = torch.cat(parts)
        return (queries @ found.T).amax(1)

    return step


@unseen(
    "sentences are padded to the model's limit of 512, where the longest has 320 tokens; padded to the longest (or packed)",
    names=r"\bpad(ded|ding|s)?\b|longest|\btrim|bucket|varlen|variable.length|nested|packed|sequence length",
    kind="inference",
    recorded="embed",
)
def sentences_padded_to_limit(device: str, changed: bool) -> Step:
    count, limit = small(48), 512
    net = blocks(6, 768, 12, device, low(device)).eval()
    table = torch.randn(30_000, 768, device=device, dtype=low(device))
    lengths = torch.randint(150, 321, (count,), device=device)
    lengths[0] = 320
    shown = torch.arange(limit, device=device) < lengths[:, None]
    tokens = torch.randint(1, 30_000, (count, limit), device=device) * shown

    @torch.no_grad()
    def step() -> Tensor:
        size = 320 if changed else limit
        x, real = F.embedding(tokens[:, :size], table), shown[:, :size]
        for block in net:
            x = block(x, mask=real[:, None, None])
        return (x * real[..., None]).sum(1) / lengths[:, None]

    return step


@unseen(
    "a forecaster clones its input twice in every layer and converts to float32 and back; without clones and casts",
    names=r"clone|aten::(copy_|_to_copy|to)\b|dtype conver|\bcast(s|ing)?\b|(needless|redundant|unnecessary) cop(y|ies)"
    r"|float32 and back|\.float\(\)",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def forecaster_of_clones(device: str, changed: bool) -> Step:
    series, channels, length = small(256), 128, 512
    dtype = low(device)
    mixes = [perceptron(length, length, length).to(device=device, dtype=dtype) for _ in range(6)]
    last = nn.Linear(length, 96, device=device, dtype=dtype)
    x = torch.randn(series, channels, length, device=device, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        h = x
        for mix in mixes:
            if changed:
                h = h + mix(h)
            else:
                skip, h = h.clone(), h.clone().contiguous()
                h = (skip + mix(h)).float().clone().to(dtype)
        return last(h)

    return step


@unseen(
    "a confusion matrix is counted on the host, from predictions copied there; torch.bincount on the GPU",
    names=r"bincount|\.cpu\(\)|DtoH|D2H|confusion|(gpu|device) ?(->|to) ?(host|cpu)|to the (host|cpu)|on the (gpu|device)",
    kind="inference",
    recorded="evaluate",
)
def confusion_on_host(device: str, changed: bool) -> Step:
    classes, count = 21, small(16)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Conv2d(64, classes, 1)).to(device=device, dtype=low(device))
    net = net.to(memory_format=torch.channels_last).eval()
    images = torch.randn(2, count, 3, 256, 256, device=device, dtype=low(device))
    labels = torch.randint(0, classes, (2, count, 256, 256), dtype=torch.uint8)

    @torch.no_grad()
    def step() -> Tensor:
        matrix = torch.zeros(classes * classes, dtype=torch.long, device=device if changed else "cpu")
        for image, label in zip(images, labels, strict=True):
            found = net(image.to(memory_format=torch.channels_last)).argmax(1)
            found, truth = (found, label.to(device)) if changed else (found.cpu(), label)
            matrix += torch.bincount((truth.long() * classes + found).flatten(), minlength=classes * classes)
        hits = matrix.view(classes, classes).diagonal()
        return hits.float().cpu() / labels.numel()

    return step


@unseen(
    "every layer builds the tables of its rotary embedding anew for each token; once, for all layers and tokens",
    names=r"rotary|\brope\b|aten::(cos|sin|arange|pow|outer|exp)\b|precomput|(comput|buil|mak)\w* (them )?(once|ahead)|hoist",
    kind="inference",
    recorded="decode",
)
def rotary_each_layer(device: str, changed: bool) -> Step:
    layers, batch, heads, room, tokens = 6, 4, 16, small(1024), 4
    dtype = low(device)
    model = blocks(layers, 1024, heads, device, dtype).eval()
    cache = torch.randn(layers, 2, batch, heads, room, 64, device=device, dtype=dtype)
    first = torch.randn(batch, 1, 1024, device=device, dtype=dtype)

    def rotary_tables() -> tuple[Tensor, Tensor]:
        inverse = 1.0 / (10_000 ** (torch.arange(0, 64, 2, device=device, dtype=torch.float32) / 64))
        angles = torch.outer(torch.arange(room, device=device, dtype=torch.float32), inverse)
        angles = torch.cat([angles, angles], dim=1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    kept = rotary_tables()

    def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return x * cosine + torch.cat([-right, left], dim=-1) * sine

    @torch.no_grad()
    def step() -> Tensor:
        x = first
        for place in range(room - tokens, room):
            for i, block in enumerate(model):
                q, k, v = block.heads_of(x)
                cosine, sine = kept if changed else rotary_tables()
                cache[i, 0, :, :, place : place + 1] = turned(k, cosine[place], sine[place])
                cache[i, 1, :, :, place : place + 1] = v
                keys, values = cache[i, :, :, :, : place + 1]
                x = block.rest(x, F.scaled_dot_product_attention(turned(q, cosine[place], sine[place]), keys, values))
        return x

    return step


@unseen(
    "a network of brain signals was left in training mode, so its dropout and batch statistics run; eval()",
    names=r"\.eval\(\)|eval(uation)? mode|train(ing)? mode|dropout|batch.?norm",
    kind="inference",
    recorded="none",
)
def brain_signals_in_train_mode(device: str, changed: bool) -> Step:
    layers: list[nn.Module] = []
    for before, after in ((32, 64), (64, 64), (64, 64), (64, 128), (128, 128)):
        layers += [nn.Conv1d(before, after, 7, padding=3), nn.BatchNorm1d(after), nn.ELU(), nn.Dropout(0.25)]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(1024, 4)).to(device)
    if changed:
        net.eval()
    signals = torch.randn(small(256), 32, 1024, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        return net(signals).softmax(-1)

    return step


@unseen(
    "a vocoder computes its normalised weights (weight_norm) in every call; the parametrizations removed after training",
    names=r"weight_?norm|parametri[sz]ation|aten::(_weight_norm\w*|linalg_vector_norm|norm)\b",
    kind="inference",
    recorded="vocode",
    with_stack=True,
)
def vocoder_weight_norm(device: str, changed: bool) -> Step:
    from torch.nn.utils.parametrizations import weight_norm
    from torch.nn.utils.parametrize import remove_parametrizations

    layers: list[nn.Module] = []
    for before, after in ((80, 128), (128, 64), (64, 32)):
        layers += [weight_norm(nn.ConvTranspose1d(before, after, 8, 4, 2)), nn.LeakyReLU(0.1)]
        for _ in range(4):
            layers += [weight_norm(nn.Conv1d(after, after, 7, padding=3)), nn.LeakyReLU(0.1)]
    net = nn.Sequential(*layers, weight_norm(nn.Conv1d(32, 1, 7, padding=3)), nn.Tanh()).to(device).eval()
    if changed:
        for module in net:
            if hasattr(module, "parametrizations"):
                remove_parametrizations(module, "weight")
    spectra = torch.randn(3, small(8), 80, 96, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        return torch.stack([net(spectrum) for spectrum in spectra])

    return step


@unseen(
    "an image field's coordinates came from numpy in float64, and so their sines are taken in double; float32",
    names=r"float64|\bdouble\b|float32|single.precision",
    kind="inference",
    recorded="step",
    profile_memory=True,
    record_shapes=False,
)
def field_coordinates_in_double(device: str, changed: bool) -> Step:
    import numpy as np

    rows, columns = small(512), small(768)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij"), -1).reshape(-1, 2)
    places = torch.from_numpy(grid.astype(np.float32) if changed else grid).to(device)
    waves = torch.randn(2, 64, device=device).to(places.dtype) * 6
    net = perceptron(128, 256, 256, 256, 3).to(device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        angles = 2 * math.pi * places @ waves
        encoded = torch.cat([angles.sin(), angles.cos()], dim=1)
        return net(encoded.to(low(device))).float().sigmoid()

    return step


@unseen(
    "the whole device is synchronized after each chunk of a film, so that the staging buffer may be filled again; "
    "two buffers, and an event for each one's upload",
    names=r"synchroni[sz]e|DeviceSynchronize|\bevents?\b|double.?buffer|(two|several|second|another) (\w+ )?buffer|overlap",
    kind="inference",
    recorded="none",
)
def film_device_synchronized(device: str, changed: bool) -> Step:
    chunks, count = 8, small(16)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU()]
    for _ in range(5):
        layers += [nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()]
    net = nn.Sequential(*layers).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last).eval()
    film = torch.randint(0, 256, (chunks, count, 3, 256, 256), dtype=torch.uint8)
    gpu = device != "cpu"
    buffers = [torch.empty(count, 3, 256, 256, pin_memory=gpu) for _ in range(2 if changed else 1)]
    side, uploaded = (torch.cuda.Stream(), [torch.cuda.Event() for _ in buffers]) if gpu else (None, [])

    def upload(number: int) -> Tensor:
        buffer = buffers[number % len(buffers)]
        if side is None:
            return buffer.copy_(film[number])
        if changed:
            uploaded[number % 2].synchronize()
        buffer.copy_(film[number])
        with torch.cuda.stream(side):
            chunk = buffer.to(device, non_blocking=True)
            uploaded[number % len(buffers)].record()
        torch.cuda.current_stream().wait_stream(side)
        chunk.record_stream(torch.cuda.current_stream())
        return chunk

    @torch.no_grad()
    def step() -> Tensor:
        outputs = []
        for number in range(chunks):
            x = (upload(number) / 255 - 0.5).to(dtype=low(device), memory_format=torch.channels_last)
            outputs.append(net(x).mean((2, 3)))
            if gpu and not changed:
                torch.cuda.synchronize()
        return torch.cat(outputs).float()

    return step


@unseen(
    "a thread prepares each clip's spectra, but its result is asked for at once, so GPU and thread take turns; "
    "the next clip submitted before the model runs",
    names=r"prefetch|overlap|pipelin|background|thread|\bfutures?\b|submit|next (clip|batch)|ahead of time|data ?load",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def clips_awaited_at_once(device: str, changed: bool) -> Step:
    clips, dtype = 5, low(device)
    sounds = torch.randn(clips, small(16), 48_000)
    window = torch.hann_window(1024)
    net = blocks(6, 512, 8, device, dtype).eval()
    first = nn.Linear(513, 512, device=device, dtype=dtype)
    pool = ThreadPoolExecutor(1)

    def spectra(number: int) -> Tensor:
        found = torch.stft(sounds[number], 1024, 128, window=window, return_complex=True)
        return (found.abs().square() + 1e-6).log().transpose(1, 2)

    @torch.no_grad()
    def step() -> Tensor:
        outputs = []
        waiting = pool.submit(spectra, 0)
        for number in range(clips):
            ready = waiting.result()
            if changed and number + 1 < clips:
                waiting = pool.submit(spectra, number + 1)
            x = first(ready.to(device=device, dtype=dtype))
            for block in net:
                x = block(x)
            outputs.append(x.mean(1).float().cpu())
            if not changed and number + 1 < clips:
                waiting = pool.submit(spectra, number + 1)
        return torch.cat(outputs)

    return step


@unseen(
    "a repetition penalty divides the logit of each earlier token in a Python loop; gather and scatter over all of them",
    names=r"scatter|\bgather|index_put|vectori[sz]|penal|aten::(select|div_|copy_)|advanced index"
    r"|(token|logit) by (token|logit)|(each|every|per|one) (earlier |previous )?(token|logit)",
    kind="inference",
    recorded="generate",
    record_shapes=False,
)
def repetition_penalty_loop(device: str, changed: bool) -> Step:
    layers, batch, room, words, earlier, dtype = 8, 2, small(1024), 32_000, 24, low(device)
    model = blocks(layers, 1024, 16, device, dtype).eval()
    cache = torch.randn(layers, 2, batch, 16, room, 64, device=device, dtype=dtype)
    table = torch.randn(words, 1024, device=device, dtype=dtype) / 32
    seen = torch.stack([torch.randperm(words)[:earlier] for _ in range(batch)])
    seen_list, seen = seen.tolist(), seen.to(device)

    @torch.no_grad()
    def step() -> Tensor:
        token = torch.zeros(batch, 1, dtype=torch.long, device=device)
        for place in range(room - 3, room):
            x = F.embedding(token, table)
            for i, block in enumerate(model):
                q, k, v = block.heads_of(x)
                cache[i, 0, :, :, place : place + 1], cache[i, 1, :, :, place : place + 1] = k, v
                keys, values = cache[i, :, :, :, : place + 1]
                x = block.rest(x, F.scaled_dot_product_attention(q, keys, values))
            logits = (x[:, 0] @ table.T).float() + 20
            if changed:
                logits.scatter_(1, seen, logits.gather(1, seen) / 1.3)
            else:
                for row in range(batch):
                    for word in seen_list[row]:
                        logits[row, word] /= 1.3
            token = logits.argmax(-1, keepdim=True)
        return logits

    return step


# On a GPU, changes that bring nothing.


@unseen(
    "none: one loss.item() at the end of a long step of large products; the loss left on the GPU",
    names=r"\bitem\(\)|aten::item|local_scalar|synchroni",
    kind="training",
    recorded="step",
    null=True,
)
def null_item_of_long_step(device: str, changed: bool) -> Step:
    dim, dtype = small(4096), low(device)
    net = perceptron(*[dim] * 7).to(device=device, dtype=dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, target = torch.randn(2, small(12_288), dim, device=device, dtype=dtype)
    losses: list[Any] = []

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach() if changed else loss.item())
        del losses[:-20]
        return loss.detach()

    return step


@unseen(
    "none: 16 kB of token numbers copied for a step of many milliseconds; pinned memory and non_blocking=True",
    names=r"pin_memory|pinned|page-?able|page-?locked|non_blocking",
    kind="training",
    recorded="none",
    null=True,
)
def null_pinned_few_tokens(device: str, changed: bool) -> Step:
    net, table = blocks(4, 1024, 16, device, low(device)), nn.Embedding(8192, 1024, device=device, dtype=low(device))
    optimizer = torch.optim.SGD([*net.parameters(), *table.parameters()], lr=1e-3)
    texts = [torch.randint(0, 8192, (4, 512)) for _ in range(8)]
    if changed and device != "cpu":
        texts = [text.pin_memory() for text in texts]
    target = torch.randn(small(16), 512, 1024, device=device, dtype=low(device))
    number = 0

    def step() -> Tensor:
        nonlocal number
        number += 1
        text = texts[number % 8].to(device, non_blocking=changed)
        optimizer.zero_grad()
        x = table(text).repeat(target.shape[0] // 4 or 1, 1, 1)[: target.shape[0]]
        for block in net:
            x = block(x, causal=True)
        loss = F.mse_loss(x, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: a few large products, which the host launches far ahead of the GPU; a CUDA graph of them",
    names=r"cuda ?graph|reduce-overhead",
    kind="inference",
    recorded="none",
    null=True,
    record_shapes=False,
)
def null_graph_of_large_products(device: str, changed: bool) -> Step:
    dim = small(4096)
    net = perceptron(*[dim] * 9).to(device=device, dtype=low(device))
    x = torch.randn(small(8192), dim, device=device, dtype=low(device))
    graph, out = None, x
    if changed and device != "cpu":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = net(x)

    @torch.no_grad()
    def step() -> Tensor:
        if graph is None:
            return net(x)
        graph.replay()
        return out

    return step


@unseen(
    "none: feature maps concatenated once, for the layer after them; written into a preallocated tensor, as many bytes",
    names=r"torch\.cat|aten::cat\b|CatArray|preallocat",
    kind="inference",
    recorded="step",
    null=True,
    profile_memory=True,
)
def null_pyramid_preallocated(device: str, changed: bool) -> Step:
    side, count, dtype = small(64), small(64), low(device)
    convs = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(6))
    last = nn.Conv2d(512, 256, 3, padding=1)
    for net in (convs, last):
        net.to(device=device, dtype=dtype).to(memory_format=torch.channels_last)
    x = torch.randn(count, 256, side, side, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    room = torch.empty(count, 512, side, side, device=device, dtype=dtype).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        h, parts = x, []
        for i, conv in enumerate(convs):
            h = F.relu(conv(h))
            if i in (2, 5):
                if changed:
                    room[:, 256 * (i // 3) : 256 * (i // 3 + 1)] = h
                else:
                    parts.append(h)
        return last(room if changed else torch.cat(parts, dim=1)).mean((2, 3))

    return step


@unseen(
    "none: a policy so small that the host is the bottleneck; autocast to bfloat16, which adds casts",
    names=r"autocast|bfloat16|bf16|float16|half.precision|mixed.precision|\bamp\b|tf32|matmul_precision",
    kind="training",
    recorded="update",
    null=True,
    with_stack=True,
)
def null_autocast_small_policy(device: str, changed: bool) -> Step:
    policy = perceptron(32, 128, 128, 12).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
    seen, wanted = torch.randn(128, 32, device=device), torch.randn(128, 12, device=device)

    def step() -> Tensor:
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=changed):
                found = policy(seen)
            loss = F.mse_loss(found.float(), wanted)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


# On the CPU.


@unseen(
    "the gaps of each series are filled by themselves, with boolean masks, in a Python loop; torch.where and nanmean over all",
    names=r"torch\.where|nanmean|nan_to_num|masked_fill|vectori[sz]|aten::(nonzero|index|index_put_|masked\w*)|boolean"
    r"|(each|per|every|one) (row|series)|fill_gaps",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def gaps_filled_by_row(device: str, changed: bool) -> Step:
    series = torch.randn(90, 400)
    series[torch.rand(90, 400) < 0.1] = float("nan")
    net = nn.Sequential(nn.Conv1d(1, 16, 9, 2), nn.ReLU(), nn.Conv1d(16, 32, 9, 2), nn.ReLU(), nn.Conv1d(32, 32, 9, 2))

    def fill_gaps(rows: Tensor) -> Tensor:
        if changed:
            return torch.where(rows.isnan(), rows.nanmean(1, keepdim=True), rows)
        rows = rows.clone()
        for row in rows:
            gaps = row.isnan()
            row[gaps] = row[~gaps].mean()
        return rows

    @torch.no_grad()
    def step() -> Tensor:
        return net(fill_gaps(series)[:, None]).mean(-1)

    return step


@unseen(
    "k-means takes all differences of points and centres as one large tensor for its distances; torch.cdist, or a product",
    names=r"cdist|matmul|matrix (product|multipl)|aten::(sub|pow|square|sum)\b|broadcast|pairwise|(large|big) (tensor|interm)",
    kind="training",
    recorded="step",
    on=("cpu",),
    profile_memory=True,
)
def clusters_by_difference(device: str, changed: bool) -> Step:
    encoder, signals = perceptron(64, 512, 48), torch.randn(2500, 64)
    centers = torch.randn(24, 48) / 10

    @torch.no_grad()
    def step() -> Tensor:
        points = encoder(signals)
        if changed:
            nearest = (centers.square().sum(1) - 2 * points @ centers.T).argmin(1)
        else:
            nearest = (points[:, None] - centers).square().sum(-1).argmin(1)
        summed = torch.zeros_like(centers).index_add_(0, nearest, points)
        counted = torch.bincount(nearest, minlength=len(centers)).clamp(min=1)
        centers.copy_(summed / counted[:, None])
        return centers.norm(dim=1)

    return step


@unseen(
    "co-occurrences are counted by a matrix product of int64, which has no fast kernel; in float32",
    names=r"int64|\blong\b|integer|float32|\.float\(\)|dtype|aten::mm\b",
    kind="inference",
    recorded="count",
    on=("cpu",),
)
def cooccurrence_of_integers(device: str, changed: bool) -> Step:
    bought = (torch.rand(1200, 240) < 0.1).long()
    net = perceptron(240, 512, 512, 64)

    @torch.no_grad()
    def step() -> Tensor:
        counts = bought.float().T @ bought.float() if changed else (bought.T @ bought).float()
        near = counts / counts.diagonal().clamp(min=1)
        return net(torch.cat([near] * 2)).mean(0)

    return step


@unseen(
    "a planner rolls its model out without no_grad, so that a graph is kept which nothing uses; no_grad, inference_mode",
    names=r"no_grad|inference_mode|requires_grad|autograd graph|detach",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def planner_keeps_graph(device: str, changed: bool) -> Step:
    model, cost = perceptron(20, 48, 48, 16), perceptron(16, 16, 1)
    start, plans = torch.randn(1, 16), torch.randn(64, 38, 4)

    def step() -> Tensor:
        with torch.set_grad_enabled(not changed):
            state, total = start.expand(64, -1), torch.zeros(64, 1)
            for action in plans.unbind(1):
                state = (state + 0.1 * model(torch.cat([state, action.clamp(-1, 1)], dim=1))).clamp(-5, 5)
                total = total + 0.99 * cost(state).abs()
            return total.squeeze(1).topk(8, largest=False).values.detach()

    return step


@unseen(
    "sliding windows are cut one by one and stacked; unfold (or as_strided), a view",
    names=r"unfold|as_strided|sliding_window|torch\.stack|aten::(stack|cat|slice)|sliding",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
    profile_memory=True,
)
def windows_stacked(device: str, changed: bool) -> Step:
    signal = torch.randn(900 + 127, 6)
    net = perceptron(768, 192, 64, 8)

    @torch.no_grad()
    def step() -> Tensor:
        cut = signal.unfold(0, 128, 1).transpose(1, 2) if changed else torch.stack([signal[i : i + 128] for i in range(900)])
        return net(cut.flatten(1)).softmax(-1)

    return step


class Notes:
    """Notes in words, for a classifier of hashed words."""

    def __init__(self, count: int, length: int):
        random = torch.Generator().manual_seed(5)
        stems, endings = ("Pump", "valve", "Fan", "seal", "belt"), ("", "s", ",", "ing", ".")
        words = [f"{stem}{ending}" for stem in stems for ending in endings]
        self.texts = [" ".join(words[i] for i in torch.randint(0, 25, (length,), generator=random)) for _ in range(count)]

    def tokenize(self) -> tuple[Tensor, Tensor]:
        numbers: list[int] = []
        starts = []
        for text in self.texts:
            starts.append(len(numbers))
            for word in text.split(" "):
                number = 7
                for letter in word.lower().rstrip(",."):
                    number = (number * 31 + ord(letter)) % 20_011
                numbers.append(number)
        return torch.tensor(numbers), torch.tensor(starts)


@unseen(
    "the same texts are tokenised again in every step, in Python; once, before the training",
    names=r"token|precomput|pre-?process|Notes|(comput|done|prepar)\w* once|\bcach(e|ed|ing)\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def notes_tokenised_again(device: str, changed: bool) -> Step:
    notes = Notes(64, 60)
    kept = notes.tokenize()
    bag, net = nn.EmbeddingBag(20_011, 64, sparse=True), perceptron(64, 512, 512, 5)
    optimizer = torch.optim.SGD([*bag.parameters(), *net.parameters()], lr=1e-2)
    labels = torch.randint(0, 5, (64,))

    def step() -> Tensor:
        numbers, starts = kept if changed else notes.tokenize()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(bag(numbers, starts)), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the 32 highest cells of each heat map are found by taking the maximum and masking it, again and again; topk",
    names=r"topk|argmax|aten::(max|scatter_?|fill_?|masked_fill_?)\b|(repeated|iterat\w+|loop\w*)\W+(\w+\W+){0,3}max",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def peaks_by_repeated_maximum(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 1))
    pictures = torch.randn(8, 1, 160, 160)

    @torch.no_grad()
    def step() -> Tensor:
        heat = net(pictures).flatten(1)
        if changed:
            return heat.topk(32, dim=1).values
        peaks = []
        for _ in range(32):
            best, place = heat.max(dim=1, keepdim=True)
            peaks.append(best)
            heat.scatter_(1, place, -math.inf)
        return torch.cat(peaks, dim=1)

    return step


class Readings(Dataset[tuple[Tensor, Tensor]]):
    """Readings of sensors, by row or by batch of rows."""

    def __init__(self) -> None:
        self.values = torch.rand(4096, 32, generator=torch.Generator().manual_seed(7)) + 0.1

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> tuple[Tensor, Tensor]:
        values = self.values[rows].log()
        values = (values - values.mean(-1, keepdim=True)) / values.std(-1, keepdim=True)
        return values[..., :-1], values[..., -1:]


@unseen(
    "a DataLoader's worker takes, transforms and collates its batches row by row; whole batches of rows (batch_size=None)",
    names=r"worker|data ?load|collate|batch_?sampler|batch_size ?= ?None|__getitems?__|vectori[sz]|row by row|whole batch",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def readings_row_by_row(device: str, changed: bool) -> Step:
    from torch.utils.data import BatchSampler, SequentialSampler

    torch.set_num_threads(1)  # a core for the training, one for the worker
    data = Readings()
    batches = BatchSampler(SequentialSampler(data), 256, drop_last=True)
    loader: DataLoader[Any] = (
        DataLoader(data, None, sampler=batches, num_workers=1, persistent_workers=True)
        if changed
        else DataLoader(data, 256, num_workers=1, persistent_workers=True)
    )
    ready = batches_for_ever(loader)
    net = perceptron(31, 384, 384, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> Tensor:
        total = torch.zeros(())
        for _ in range(2):
            values, target = next(ready)
            optimizer.zero_grad()
            loss = F.mse_loss(net(values), target)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total

    return step


@unseen(
    "the vectors of the whole catalogue are normalised again for each query; once, when they are loaded",
    names=r"normali[sz]|linalg_vector_norm|aten::(div|norm|clamp_min)\b|precomput|(comput|done)\w* once|cosine",
    kind="inference",
    recorded="search",
    on=("cpu",),
    profile_memory=True,
)
def catalogue_normalised_again(device: str, changed: bool) -> Step:
    songs = torch.randn(30_000, 64)
    kept = F.normalize(songs, dim=1)
    net = perceptron(128, 512, 64)
    listened = torch.randn(3, 32, 128)

    @torch.no_grad()
    def step() -> Tensor:
        found = []
        for listeners in listened:
            wanted = F.normalize(net(listeners), dim=1)
            found.append((wanted @ (kept if changed else F.normalize(songs, dim=1)).T).amax(1))
        return torch.cat(found)

    return step


@unseen(
    "the target network is a deepcopy of the critics, made anew in every step; its weights copied in place",
    names=r"deepcopy|copy_|load_state_dict|foreach|aten::clone|target",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def target_deepcopied(device: str, changed: bool) -> Step:
    critics = nn.ModuleList(perceptron(24, 160, 160, 160, 1) for _ in range(4))
    target = copy.deepcopy(critics)
    optimizer = torch.optim.SGD(critics.parameters(), lr=1e-3)
    now, following = torch.randn(2, 96, 24)
    reward = torch.randn(96, 1)

    def step() -> Tensor:
        nonlocal target
        with torch.no_grad():
            wanted = reward + 0.9 * torch.stack([each(following) for each in target]).amin(0)
        optimizer.zero_grad()
        loss = torch.stack([F.mse_loss(each(now), wanted) for each in critics]).sum()
        loss.backward()
        optimizer.step()
        if changed:
            with torch.no_grad():
                torch._foreach_copy_(list(target.parameters()), list(critics.parameters()))
        else:
            target = copy.deepcopy(critics)
        return loss.detach()

    return step


# On the CPU, a change that brings nothing.


@unseen(
    "none: the loss is read with item() in every step, which on a CPU waits for nothing; kept as a tensor",
    names=r"\bitem\(\)|aten::item|local_scalar|synchroni",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
    with_stack=True,
)
def null_item_on_cpu(device: str, changed: bool) -> Step:
    rnn, head = nn.GRU(8, 64, batch_first=True), nn.Linear(64, 3)
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=1e-2)
    x, labels = torch.randn(96, 20, 8), torch.randint(0, 3, (96,))
    losses: list[Any] = []

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(rnn(x)[0][:, -1]), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach() if changed else loss.item())
        del losses[:-100]
        return loss.detach()

    return step
