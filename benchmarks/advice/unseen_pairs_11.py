"""An eleventh set of small programs with one performance fault each, written without a look at what the reader knows."""

from collections.abc import Iterator
import contextlib
import copy
import math
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def small(size: int, least: int = 2) -> int:
    """Divide a size of a GPU's pair, to try it on a CPU."""
    return max(least, size // SCALE)


class Block(nn.Module):
    """A transformer's layer, its norms first."""

    def __init__(self, width: int, heads: int, gelu: str = "none") -> None:
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.attend(x, mask)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


# For the GPU: with a fault.


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter beside it."""

    def __init__(self, base: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.b(self.a(x))


@unseen(
    "the optimizer of a low-rank adaptation holds the adapters only, yet the base model's weights require gradients, which "
    "backward computes and adds up; requires_grad_(False) for the base model",
    names=r"requires?_grad|(weights|base|parameters) .*require gradients|freez|frozen|unneeded (weight )?grad|unused grad"
    r"|grad(ient)?s? (of|for) (the )?(base|frozen|weights that)|weight grad(ient)?s? (that )?(nobody|no one|no optimizer|never"
    r"|are not)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def tickets_low_rank_tuning(device: str, changed: bool) -> Step:
    torch.manual_seed(0)
    width, rows, length = small(1024, 64), small(24), small(512, 16)
    embed, head = nn.Embedding(8000, width), nn.Linear(width, 64)
    blocks = nn.ModuleList(Block(width, 16) for _ in range(8))
    model = nn.ModuleList([embed, blocks, head])
    if changed:
        model.requires_grad_(False)
    adapters: list[Tensor] = []
    for block in blocks:
        assert isinstance(block, Block)
        for name in ("qkv", "down"):
            adapted = Adapted(getattr(block, name))
            adapters += [adapted.a.weight, adapted.b.weight]
            setattr(block, name, adapted)
    model.to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, fused=True)
    tokens = torch.randint(8000, (rows, length), device=device)
    classes = torch.randint(64, (rows,), device=device)

    def step() -> Tensor:
        x = embed(tokens)
        for block in blocks:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(1)).float(), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "spectrogram augmentation sets the masked bands of each clip to zero in a Python loop, a small fill for every band; "
    "one mask for the whole batch by comparing arange with the starts and ends",
    names=r"\bfill_|masked_fill|slice assign|arange|loop over (the )?(clips|bands|masks|samples|spectrogram)"
    r"|(clip|band|mask|sample) by (clip|band|mask|sample)|one at a time|vectori[sz]|one mask|broadcast|whole batch at once",
    kind="training",
    recorded="none",
    with_stack=True,
)
def spectrogram_bands_masked(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    clips, mels, frames = small(96, 4), 80, 1024 if SCALE == 1 else 128
    layers: list[nn.Module] = [nn.Conv1d(mels, 384, 3, 2, 1), nn.GELU()]
    for _ in range(4):
        layers += [nn.Conv1d(384, 384, 5, padding=2), nn.BatchNorm1d(384), nn.GELU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(384, 35)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    spectra = torch.randn(clips, mels, frames, device=device)
    words = torch.randint(35, (clips,), device=device)
    rng = torch.Generator().manual_seed(5)

    def step() -> Tensor:
        start = torch.stack([torch.randint(top, (clips, 2), generator=rng) for top in (mels - 12, frames - 60)])
        end = start + torch.stack([torch.randint(1, top, (clips, 2), generator=rng) for top in (12, 60)])
        x = spectra.clone()
        if changed:
            first, last = start.to(device)[..., None], end.to(device)[..., None]
            mel, frame = torch.arange(mels, device=device), torch.arange(frames, device=device)
            hidden_mel = ((mel >= first[0]) & (mel < last[0])).any(1)
            hidden_frame = ((frame >= first[1]) & (frame < last[1])).any(1)
            x = x.masked_fill(hidden_mel[:, :, None] | hidden_frame[:, None, :], 0.0)
        else:
            for clip in range(clips):
                for band in range(2):
                    x[clip, int(start[0, clip, band]) : int(end[0, clip, band])] = 0.0
                    x[clip, :, int(start[1, clip, band]) : int(end[1, clip, band])] = 0.0
        with torch.autocast(device, torch.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the old policy's probabilities of the actions taken, which do not change, are computed by its network again in each epoch "
    "over the same rollout; once, before the epochs",
    names=r"(old|behaviou?r|frozen|reference) (policy|network|model|log|prob)|log.?prob\w* (once|before|again)|recomput"
    r"|cach\w+ .*(log|prob|forward|result|output)|same (forward|result|input)s?.*(again|each|every|repeat)|once,? before"
    r"|precomput|computed again",
    kind="training",
    recorded="update",
    record_shapes=False,
)
def old_policy_each_epoch(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    frames, size, epochs = small(8192, 32), 84, 3
    policy = nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 7)),
    ).to(device)
    old = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-5, fused=True)
    seen = torch.randint(256, (frames, 4, size, size), dtype=torch.uint8, device=device)
    actions, advantage = torch.randint(6, (frames, 1), device=device), torch.randn(frames, device=device)
    halves = [slice(0, frames // 2), slice(frames // 2, frames)]

    def old_log_prob(half: slice) -> Tensor:
        with torch.no_grad():
            return F.log_softmax(old(seen[half].float() / 255)[:, :6], 1).gather(1, actions[half])[:, 0]

    def step() -> Tensor:
        old.load_state_dict(policy.state_dict())
        before = [old_log_prob(half) for half in halves] if changed else []
        for _ in range(epochs):
            for at, half in enumerate(halves):
                out = policy(seen[half].float() / 255)
                log_probs = F.log_softmax(out[:, :6], 1)
                taken = log_probs.gather(1, actions[half])[:, 0]
                ratio = (taken - (before[at] if changed else old_log_prob(half))).exp()
                gain = torch.minimum(ratio * advantage[half], ratio.clamp(0.8, 1.2) * advantage[half])
                entropy = -(log_probs.exp() * log_probs).sum(1)
                loss = (out[:, 6] - advantage[half]).square().mean() - gain.mean() - 0.01 * entropy.mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "after each backward pass an if asks of every parameter's gradient whether it has a NaN, and the host waits for the GPU "
    "for "
    "each answer; one total norm of all gradients, looked at once",
    names=r"isnan|isfinite|is_nonzero|\bnan\b|\.item\(\)|local_scalar_dense|synchroni[sz]|\bsyncs?\b|total.?norm|foreach_norm",
    kind="training",
    recorded="step",
)
def molecules_gradients_checked(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    atoms, bonds, width, layers = small(24000, 200), small(96000, 800), 192, 10
    embed = nn.Embedding(90, width)
    message = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers))
    update = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU()) for _ in range(layers))
    head = nn.Linear(width, 1)
    model = nn.ModuleList([embed, message, update, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    kinds, energy = torch.randint(90, (atoms,), device=device), torch.randn(atoms, 1, device=device)
    source, target = torch.randint(atoms, (2, bonds), device=device)

    def broken() -> bool:
        if changed:
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            return not math.isfinite(norm.item())
        return any(bool(torch.isnan(p.grad).any()) for p in model.parameters() if p.grad is not None)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            x = embed(kinds)
            for send, renew in zip(message, update, strict=True):
                sent = send(torch.cat([x.index_select(0, source), x.index_select(0, target)], 1))
                x = x + renew(torch.zeros_like(x).index_add(0, target, sent.to(x.dtype)))
            loss = (head(x).float() - energy).square().mean()
        loss.backward()
        if not broken():
            optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a wrist sensor, given on a device of choice."""

    def __init__(self, windows: np.ndarray[Any, Any], classes: np.ndarray[Any, Any], device: str) -> None:
        self.windows, self.classes, self.device = windows, classes, device

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.windows[at]).to(self.device), torch.tensor(self.classes[at]).to(self.device)


@unseen(
    "the dataset copies every window and label to the GPU by itself, hundreds of small copies for a batch; items stay on the "
    "host, and the collated batch is copied at once",
    names=r"__getitem__|(small|tiny|many|hundreds of|separate|individual|per.sample) (host.to.device |h2d |HtoD )?(copies|copy"
    r"|transfer|memcpy|upload)|cop(y|ies|ied) (of )?(each|every|one|single|sample|item)|(window|sample|item|row"
    r"|label)s? (one )?by (itself|one|window|sample|item|row)|collat|whole batch|(one|single) (large |big )?(copy|transfer"
    r"|memcpy|upload)|copied at once",
    kind="training",
    recorded="step",
    with_stack=True,
)
def wrist_windows_loaded(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rng, batch = np.random.default_rng(4), small(256, 8)
    windows = rng.standard_normal((batch * 8, 9, 128), dtype=np.float32)
    data = Windows(windows, rng.integers(12, size=len(windows)), "cpu" if changed else device)
    loader = DataLoader(data, batch, shuffle=True, generator=torch.Generator().manual_seed(4))
    layers: list[nn.Module] = []
    for inputs in (9, 256, 256, 256, 256, 256):
        layers += [nn.Conv1d(inputs, 256, 5, padding=2), nn.BatchNorm1d(256), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(256, 12)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def endless() -> Iterator[list[Tensor]]:
        while True:
            yield from loader

    batches = endless()

    def step() -> Tensor:
        x, classes = next(batches)
        if changed:
            x, classes = x.to(device), classes.to(device)
        loss = F.cross_entropy(model(x), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a context left from a comparison forces attention onto the math kernel, which writes out all scores in float32; "
    "without it scaled_dot_product_attention takes the flash kernel",
    names=r"sdpa_kernel|SDPBackend|flash|math (kernel|backend|path|implementation)|_attention_math|fused attention"
    r"|memory.efficient"
    r"|efficient_attention|cudnn attention|scaled_dot_product",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def proteins_on_math_attention(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    rows, length, width = small(16), small(384, 32), small(768, 96)
    embed, head = nn.Embedding(33, width), nn.Linear(width, 33)
    blocks = nn.ModuleList(Block(width, 12) for _ in range(6))
    model = nn.ModuleList([embed, blocks, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    residues = torch.randint(4, 24, (rows, length), device=device)
    hidden = torch.rand(rows, length, device=device) < 0.15

    def step() -> Tensor:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast(device, torch.bfloat16))
            if not changed:
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            x = embed(residues.masked_fill(hidden, 32))
            for block in blocks:
                x = block(x)
            logits = head(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), residues.masked_fill(~hidden, -100).flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class CarefulBlock(Block):
    """A layer whose feed-forward part can be kept out of autocast."""

    def __init__(self, width: int, heads: int, careful: bool) -> None:
        super().__init__(width, heads)
        self.careful = careful

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.attend(x, mask)
        if not self.careful:
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        with torch.autocast(x.device.type, enabled=False):
            return x + self.down(F.gelu(self.up(self.norm2(x.float()))))


@unseen(
    "the feed-forward parts of the last two blocks were kept out of autocast in a hunt for NaNs, and their products run in "
    "full "
    "float32; under autocast in bfloat16 as the rest (or TF32)",
    names=r"bf16|bfloat16|autocast|mixed precision|\bamp\b|float32|fp32|tf32|sgemm|tensor core|half precision|matmul_precision",
    kind="training",
    recorded="forecast",
)
def weather_blocks_out_of_autocast(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows, side, width = small(8), 32 if SCALE == 1 else 8, small(768, 96)
    patch, unpatch = nn.Linear(20 * 16, width), nn.Linear(width, 20 * 16)
    blocks = nn.ModuleList(CarefulBlock(width, 12, careful=not changed and at >= 6) for at in range(8))
    model = nn.ModuleList([patch, blocks, unpatch]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    today, tomorrow = torch.randn(2, rows, 20, side * 4, side * 4, device=device)
    area = torch.linspace(-1.5, 1.5, side * 4, device=device).cos()[:, None]

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            x = today.view(rows, 20, side, 4, side, 4).permute(0, 2, 4, 1, 3, 5).reshape(rows, side * side, -1)
            x = patch(x)
            for block in blocks:
                x = block(x)
            out = unpatch(x).view(rows, side, side, 20, 4, 4).permute(0, 3, 1, 4, 2, 5).reshape_as(today)
        loss = ((out.float() + today - tomorrow).square() * area).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the spectra of clips of eight seconds at most are padded to thirty, and the encoder works on the silence; padded to the "
    "longest clip of the batch",
    names=r"\bpad(s|ded|ding)?\b|longest|trim|silen(t|ce)|nested|varlen|bucket|sequence length|30 s|thirty",
    kind="inference",
    recorded="none",
)
def short_clips_padded_to_thirty_seconds(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    clips, width, frames = small(64), small(512, 64), 3000
    longest = 800
    conv1, conv2 = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
    blocks, head = nn.ModuleList(Block(width, 8) for _ in range(6)), nn.Linear(width, 100)
    nn.ModuleList([conv1, conv2, blocks, head]).to(device, torch.bfloat16)
    lengths = torch.randint(300, longest + 1, (clips,)) // 2 * 2
    lengths[0] = longest
    sounds = [torch.randn(80, int(n), dtype=torch.bfloat16, device=device) for n in lengths]
    tokens = (lengths // 2).to(device)

    @torch.no_grad()
    def step() -> Tensor:
        mels = torch.zeros(clips, 80, int(lengths.max()) if changed else frames, dtype=torch.bfloat16, device=device)
        for mel, sound in zip(mels, sounds, strict=True):
            mel[:, : sound.shape[1]] = sound
        x = F.gelu(conv2(F.gelu(conv1(mels)))).transpose(1, 2)
        valid = torch.arange(x.shape[1], device=device) < tokens[:, None]
        for block in blocks:
            x = block(x, valid[:, None, None])
        pooled = (x * valid[..., None]).sum(1) / tokens[:, None]
        return F.softmax(head(pooled).float(), 1)

    return step


@unseen(
    "each new pose attends to the whole preallocated cache of 4096 places under a mask, of which some 260 are filled; "
    "attention over the filled part of the cache alone",
    names=r"(slice|narrow|cut|crop|limit|restrict)\w* .*(cache|keys)|(filled|used|valid|current|occupied|written) (part"
    r"|portion|length|prefix|positions|places|slots|keys)|(whole|entire|full|empty|unfilled|unused|static"
    r"|preallocated) (kv.)?(preallocated )?(cache|buffer|length)|attn_mask|mask(ed)? .*attention|attention mask",
    kind="inference",
    recorded="generate",
)
def poses_over_whole_cache(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    rows, heads, size, places, past = small(24), small(16), 64, 4096 if SCALE == 1 else 1024, 256
    width = heads * size
    enter, leave = nn.Linear(66, width), nn.Linear(width, 66)
    blocks = nn.ModuleList(Block(width, heads) for _ in range(6))
    nn.ModuleList([enter, blocks, leave]).to(device, torch.bfloat16)
    caches = [torch.randn(2, rows, heads, places, size, dtype=torch.bfloat16, device=device) for _ in blocks]
    first, place = torch.randn(rows, 1, 66, dtype=torch.bfloat16, device=device), torch.arange(places, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        pose, track = first, []
        for at in range(past, past + 6):
            x, mask = enter(pose), None if changed else place <= at
            for block, cache in zip(blocks, caches, strict=True):
                assert isinstance(block, Block)
                q, k, v = block.qkv(block.norm1(x)).view(rows, 1, 3, heads, size).permute(2, 0, 3, 1, 4)
                cache[0, :, :, at : at + 1], cache[1, :, :, at : at + 1] = k, v
                keys, values = cache[:, :, :, : at + 1] if changed else cache
                mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=None if mask is None else mask[None])
                x = x + block.out(mixed.transpose(1, 2).reshape(rows, 1, width))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            pose = pose + 0.1 * leave(x)
            track.append(pose)
        return torch.cat(track, 1).float()

    return step


@unseen(
    "features of 256 channels are enlarged to the picture's size before the 1x1 convolution that makes 21 classes of them; "
    "the convolution first, then enlarge its 21 channels, which gives the same",
    names=r"upsampl|interpolat|bilinear|enlarg|1\s?x\s?1|low(er)? resolution|full resolution|before .*resiz",
    kind="inference",
    recorded="none",
    profile_memory=True,
    record_shapes=False,
)
def street_features_enlarged(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    rows, side = small(8, 1), small(512, 64)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 256, 3, 2, 1), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()]
    trunk, classes = nn.Sequential(*layers), nn.Conv2d(256, 21, 1)
    nn.ModuleList([trunk, classes]).to(device, torch.bfloat16, memory_format=torch.channels_last)  # type: ignore[call-overload]
    pictures = torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, device=device)
    mean = torch.tensor([123.0, 116.0, 103.0], device=device).view(3, 1, 1)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        x = ((pictures.float() - mean) / 58.0).to(torch.bfloat16, memory_format=torch.channels_last)
        x = trunk(x)
        if changed:
            logits = F.interpolate(classes(x), scale_factor=4, mode="bilinear", align_corners=False)
        else:
            logits = classes(F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False))
        probabilities = logits.float().softmax(1)
        return probabilities.mean((2, 3)), probabilities[:, :, ::64, ::64]

    return step


@unseen(
    "each iteration of a reconstruction shifts images and spectra before and after both Fourier transforms, a copy of all "
    "coils "
    "each time; coils, mask and samples shifted once before, transforms without shifts",
    names=r"fftshift|\broll\b|\bshift(s|ed|ing)?\b|checkerboard",
    kind="inference",
    recorded="reconstruct",
    with_stack=True,
)
def coil_images_shifted(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    slices, coils, side, plane = small(8, 1), small(12), small(384, 48), (-2, -1)
    maps = torch.randn(slices, coils, side, side, dtype=torch.complex64, device=device) / math.sqrt(coils)
    mask = (torch.rand(side, device=device) < 0.3).float().expand(side, side)
    samples = torch.randn(slices, coils, side, side, dtype=torch.complex64, device=device) * mask
    if changed:
        maps, mask, samples = (torch.fft.ifftshift(x, plane).contiguous() for x in (maps, mask, samples))

    def forward(x: Tensor) -> Tensor:
        x = x if changed else torch.fft.ifftshift(x, plane)
        x = torch.fft.fft2(x, norm="ortho")
        return x if changed else torch.fft.fftshift(x, plane)

    def backward(x: Tensor) -> Tensor:
        x = x if changed else torch.fft.ifftshift(x, plane)
        x = torch.fft.ifft2(x, norm="ortho")
        return x if changed else torch.fft.fftshift(x, plane)

    @torch.no_grad()
    def step() -> Tensor:
        image = torch.zeros(slices, side, side, dtype=torch.complex64, device=device)
        for _ in range(8):
            residual = forward(maps * image[:, None]) * mask - samples
            image = image - 0.5 * (maps.conj() * backward(residual)).sum(1)
            size = image.abs()
            image = image * ((size - 0.01).clamp(min=0) / size.clamp(min=1e-8))
        return (torch.fft.fftshift(image, plane) if changed else image).abs()

    return step


@unseen(
    "the embedding tables of a ranker are kept in the host's memory: the vectors are looked up there and copied to the GPU for "
    "every request; the tables moved to the GPU, which has room, so only the numbers are copied",
    names=r"(embedding|table|lookup|look.?up)\w* .*(host|cpu|gpu|device)|(host|cpu|gpu|device)\b.* (embedding|table|lookup)"
    r"|move .*to the (gpu|device)|(copy|copied|send|upload|transfer) (only )?(the )?(ids|indices|numbers|keys)",
    kind="inference",
    recorded="request",
)
def ranker_tables_in_host_memory(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    rows, fields, size, entries = small(16384, 64), 8, 64, small(120000, 500)
    tables = nn.ModuleList(nn.Embedding(entries, size) for _ in range(fields)).to(device if changed else "cpu")
    crosses = nn.ModuleList(nn.Linear(fields * size, fields * size) for _ in range(3)).to(device)
    tower = nn.Sequential(nn.Linear(fields * size, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)).to(
        device
    )
    requests = [torch.randint(entries, (rows, fields)) for _ in range(3)]

    @torch.no_grad()
    def step() -> Tensor:
        best = []
        for numbers in requests:
            numbers = numbers.to(device if changed else "cpu")
            vectors = torch.cat([table(numbers[:, at]) for at, table in enumerate(tables)], 1).to(device)
            x = vectors
            for cross in crosses:
                x = vectors * cross(x) + x
            best.append(tower(x)[:, 0].topk(min(50, rows)).values)
        return torch.stack(best)

    return step


@unseen(
    "the divergence of a flow's velocity is summed from one backward pass for each of 16 dimensions, in a Python loop; one "
    "batched backward pass (is_grads_batched, vmap, torch.func.jacrev), or Hutchinson's estimate",
    names=r"is_grads_batched|vmap|jacrev|jacfwd|jvp|jacobian|hutchinson|divergence"
    r"|(backward( pass)?|autograd\.grad|gradient)s? (call |pass )?(for|per|of) (each|every|one)|loop over (the )?(dim|output"
    r"|coordinate)",
    kind="inference",
    recorded="likelihood",
)
def flow_divergence_by_dimension(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, dims, width = small(2048, 32), 16, 256
    encode = nn.Sequential(nn.Linear(40, width), nn.SiLU(), nn.Linear(width, 32)).to(device)
    net = nn.Sequential(nn.Linear(dims + 33, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, dims))
    net.to(device)
    points, context = torch.randn(rows, dims, device=device), torch.randn(rows, 40, device=device)
    basis = torch.eye(dims, device=device)[:, None].expand(dims, rows, dims)

    def divergence(velocity: Tensor, x: Tensor) -> Tensor:
        if changed:
            (rates,) = torch.autograd.grad(velocity, x, basis, is_grads_batched=True)
            return rates.diagonal(dim1=0, dim2=2).sum(1)
        total = torch.zeros(rows, device=device)
        for at in range(dims):
            (rate,) = torch.autograd.grad(velocity[:, at].sum(), x, retain_graph=True)
            total = total + rate[:, at]
        return total

    def step() -> Tensor:
        about, x, change, steps = encode(context).detach(), points, torch.zeros(rows, device=device), 6
        for at in range(steps):
            x = x.detach().requires_grad_()
            time = torch.full((rows, 1), at / steps, device=device)
            velocity = net(torch.cat([x, about, time], 1))
            change = change + divergence(velocity, x) / steps
            x = x + velocity / steps
        return (-0.5 * x.square().sum(1) - 0.5 * dims * math.log(2 * math.pi) + change).detach()

    return step


@unseen(
    "the states after every layer are converted to float32 and stacked, left from an experiment, though only the last ones are "
    "used; the last layer's states alone",
    names=r"hidden.?states|torch\.stack|\bstack(s|ed|ing)?\b|aten::cat|\bcat\b|(states|outputs) (of|after) (each|every|all)"
    r"|last layer|never (used|read)|not used|unused|nobody (reads|uses)",
    kind="inference",
    recorded="none",
    profile_memory=True,
)
def answers_states_of_every_layer(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, length, width = small(96), small(256, 16), small(384, 48)
    embed, place = nn.Embedding(30000, width), nn.Embedding(length, width)
    blocks, norm = nn.ModuleList(Block(width, 6) for _ in range(12)), nn.LayerNorm(width)
    nn.ModuleList([embed, place, blocks, norm]).to(device, torch.bfloat16)
    tokens = torch.randint(30000, (rows, length), device=device)
    questions = F.normalize(torch.randn(64, width, device=device), dim=1)

    @torch.no_grad()
    def step() -> Tensor:
        x = embed(tokens) + place.weight
        states = [] if changed else [x.float()]
        for block in blocks:
            x = block(x)
            if not changed:
                states.append(x.float())
        last = x.float() if changed else torch.stack(states)[-1]
        vectors = F.normalize(norm(last.to(torch.bfloat16)).float().mean(1), dim=1)
        return (vectors @ questions.T).topk(8).values

    return step


@unseen(
    "the noise schedule is indexed by the timestep, a tensor on the GPU, so the host waits for the GPU in every denoising "
    "step; "
    "the timesteps as Python numbers (or kept on the host)",
    names=r"\.item\(\)|local_scalar_dense|synchroni[sz]|\bsyncs?\b|waits? for the (gpu|device)|timesteps? .*(host|cpu|python"
    r"|int)"
    r"|tolist",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def layouts_schedule_indexed_by_tensor(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, length, width, depth = small(4, 1), small(1024, 32), small(768, 96), 10
    blocks = nn.ModuleList(Block(width, 12) for _ in range(depth))
    modulate = nn.ModuleList(nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width)) for _ in range(depth))
    enter, leave, warm = nn.Linear(16, width), nn.Linear(width, 16), nn.Linear(64, width)
    nn.ModuleList([blocks, modulate, enter, leave, warm]).to(device, torch.bfloat16)
    kept = torch.linspace(0.9999, 0.98, 1000).cumprod(0)
    timesteps = torch.arange(960, 0, -120, device=device)
    noise = torch.randn(rows, length, 16, device=device)
    rates = torch.exp(torch.arange(32, device=device) * -0.25)

    @torch.no_grad()
    def step() -> Tensor:
        x = noise
        for t in range(960, 0, -120) if changed else timesteps:
            angles = t * rates
            time = warm(torch.cat([angles.sin(), angles.cos()]).to(torch.bfloat16))
            shifts = [m(time).chunk(2) for m in modulate]
            h = enter(x.to(torch.bfloat16))
            for block, (shift, scale) in zip(blocks, shifts, strict=True):
                h = block(h * (1 + scale) + shift)
            guess = leave(h).float()
            now, before = float(kept[t]), float(kept[t - 120])
            clean = (x - math.sqrt(1 - now) * guess) / math.sqrt(now)
            x = math.sqrt(before) * clean.clamp(-4, 4) + math.sqrt(1 - before) * guess
        return x

    return step


# For the GPU: a change that brings nothing.


@unseen(
    "none: the norm of the gradients is clipped in the default way, which takes all tensors together already; foreach=True",
    names=r"foreach|clip_grad",
    kind="training",
    recorded="step",
    null=True,
)
def load_forecast_clipped(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, length, width = small(64), small(256, 16), small(512, 64)
    enter, head = nn.Linear(32, width), nn.Linear(width, 24)
    blocks = nn.ModuleList(Block(width, 8) for _ in range(6))
    model = nn.ModuleList([enter, blocks, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    past, future = torch.randn(rows, length, 32, device=device), torch.randn(rows, 24, device=device)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            x = enter(past)
            for block in blocks:
                x = block(x)
            loss = F.smooth_l1_loss(head(x[:, -1]).float(), future)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True if changed else None)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: an image transformer's exact GELU, which is bound by memory; F.gelu(approximate='tanh'), which reads and writes as "
    "much",
    names=r"approximate|tanh|gelu",
    kind="inference",
    recorded="embed",
    null=True,
    record_shapes=False,
)
def leaves_exact_gelu(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    rows, width, side = small(96), small(768, 96), 224 if SCALE == 1 else 64
    patch = nn.Conv2d(3, width, 16, 16)
    blocks = nn.ModuleList(Block(width, 12, gelu="tanh" if changed else "none") for _ in range(8))
    norm, head = nn.LayerNorm(width), nn.Linear(width, 500)
    nn.ModuleList([patch, blocks, norm, head]).to(device, torch.bfloat16)
    leaves = torch.randn(rows, 3, side, side, dtype=torch.bfloat16, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = patch(leaves).flatten(2).transpose(1, 2)
        for block in blocks:
            x = block(x)
        return head(norm(x).mean(1)).float().softmax(1)

    return step


@unseen(
    "none: the embedding of 2000 articles has a dense gradient, tiny beside the transformer behind it; sparse=True",
    names=r"sparse",
    kind="training",
    recorded="none",
    null=True,
)
def baskets_small_embedding(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, length, width, articles = small(64), small(256, 16), small(640, 80), 2000
    embed = nn.Embedding(articles, width, sparse=changed, device=device)
    blocks, head = nn.ModuleList(Block(width, 10) for _ in range(6)), nn.Linear(width, articles)
    rest = nn.ModuleList([blocks, head]).to(device)
    optimizer = torch.optim.AdamW(rest.parameters(), lr=1e-4, fused=True)
    slow = torch.optim.SGD(embed.parameters(), lr=1e-2)
    baskets = torch.randint(articles, (rows, length), device=device)
    following = torch.randint(articles, (rows,), device=device)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            x = embed(baskets)
            for block in blocks:
                x = block(x)
            loss = F.cross_entropy(head(x[:, -1]).float(), following)
        loss.backward()
        for each in (optimizer, slow):
            each.step()
            each.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the weights of an LSTM lie in one piece of memory already; flatten_parameters() before each call",
    names=r"flatten_parameters|contiguous (chunk|memory|weights|block)|compact",
    kind="inference",
    recorded="step",
    null=True,
    with_stack=True,
)
def chorales_weights_already_flat(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    rows, length, width = small(64), small(384, 24), small(1024, 64)
    embed, lstm, head = nn.Embedding(130, 256), nn.LSTM(256, width, 3, batch_first=True), nn.Linear(width, 130)
    nn.ModuleList([embed, lstm, head]).to(device)
    notes = torch.randint(130, (rows, length + 1), device=device)

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            lstm.flatten_parameters()
        states, _ = lstm(embed(notes[:, :-1]))
        surprise = F.cross_entropy(head(states).flatten(0, 1), notes[:, 1:].flatten(), reduction="none")
        return surprise.view(rows, length).mean(1)

    return step


@unseen(
    "none: batches of three megabytes are copied from pinned memory, non-blocking, for a step of many milliseconds; the whole "
    "dataset kept on the GPU",
    names=r"(dataset|data|batches|images|pictures|everything).* (on|in|to) (the )?(gpu|device)|memcpy|copies|uploads?"
    r"|host.to.device|HtoD",
    kind="training",
    recorded="step",
    null=True,
    record_shapes=False,
)
def plankton_batches_uploaded(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    rows, side, base = small(256, 4), small(64, 16), small(96, 16)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1)):
        channels = inputs if not layers else inputs * base
        layers += [nn.Conv2d(channels, outputs * base, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs * base), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * base, 80))
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [torch.randint(256, (rows, side, side, 3), dtype=torch.uint8) for _ in range(4)]
    batches = [x.to(device) if changed else x.pin_memory() if device == "cuda" else x for x in batches]
    kinds, count = torch.randint(80, (4, rows), device=device), iter(range(1 << 60))

    def step() -> Tensor:
        at = next(count) % 4
        x = batches[at].to(device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), kinds[at])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


# For the CPU: with a fault.


class Posts(Dataset[dict[str, Any]]):
    """Posts of a forum as word numbers, in a list or a tensor."""

    def __init__(self, posts: list[list[int]], boards: list[int], tensors: bool) -> None:
        self.posts = [torch.tensor(post) for post in posts] if tensors else posts
        self.boards = boards

    def __len__(self) -> int:
        return len(self.posts)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"words": self.posts[at], "board": self.boards[at]}


@unseen(
    "a dataset returns lists of word numbers, of which the default collate function makes a tensor for every position of the "
    "batch; tensors (or arrays) from the dataset, which are stacked at once",
    names=r"collate|aten::tensor|torch\.tensor|python list|lists? of (int|number|python|word)|dataset.*(tensor|array|numpy)"
    r"|from_numpy|return (a )?tensors?|tensor (for|per) (each|every) position",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def posts_collated_from_lists(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    posts = rng.integers(5000, size=(1024, 160)).tolist()
    data = Posts(posts, rng.integers(20, size=1024).tolist(), tensors=changed)
    loader = DataLoader(data, 32, shuffle=True, generator=torch.Generator().manual_seed(21))
    embed, head = nn.Embedding(5000, 64), nn.Linear(64, 20)
    convs = nn.ModuleList(nn.Conv1d(64, 32, width, padding=width // 2) for width in (3, 5))
    model = nn.ModuleList([embed, convs, head]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield from loader

    batches = endless()

    def step() -> Tensor:
        batch = next(batches)
        words = batch["words"] if changed else torch.stack(batch["words"], 1)
        x = embed(words).transpose(1, 2)
        pooled = torch.cat([conv(x).relu().amax(2) for conv in convs], 1)
        loss = F.cross_entropy(head(pooled), batch["board"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "three hops over a graph are written a @ a @ a @ h, so that two products of the whole adjacency matrix with itself come "
    "first; from the right, a @ (a @ (a @ h)), where each product has few columns",
    names=r"associat|order of (the )?(matrix )?(products?|multiplications?|matmuls?)|multi_dot|chain_matmul|from the right"
    r"|right to left"
    r"|parenthes|a @ \(a|adjacency|power of|(n|N)\^?3|cubic|cached?\b.*product|precomput",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def citations_hops_from_the_left(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    papers, words, classes = 800, 500, 12
    links = (torch.rand(papers, papers, device=device) < 0.01).float()
    links = ((links + links.T) > 0).float() + torch.eye(papers, device=device)
    degree = links.sum(1).rsqrt()
    a = degree[:, None] * links * degree
    features = torch.rand(papers, words, device=device)
    enter, leave = nn.Linear(words, 256).to(device), nn.Linear(256, classes).to(device)
    optimizer = torch.optim.Adam([*enter.parameters(), *leave.parameters()], lr=1e-3)
    topics, known = torch.randint(classes, (papers,), device=device), torch.rand(papers, device=device) < 0.3

    def step() -> Tensor:
        h = leave(F.relu(enter(features)))
        out = a @ (a @ (a @ h)) if changed else a @ a @ a @ h
        loss = F.cross_entropy(out[known], topics[known])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "raw article numbers are turned into rows of the table by comparing each with all known numbers and nonzero of the matrix "
    "of "
    "answers; torch.searchsorted in the sorted numbers, or a lookup table",
    names=r"searchsorted|lookup table|look.?up table|\bdict|hash|aten::eq|\bnonzero\b|compar\w* .*(all|every|each|pair)"
    r"|binary search"
    r"|broadcast|quadratic|all pairs",
    kind="inference",
    recorded="rank",
    on=("cpu",),
    profile_memory=True,
)
def basket_articles_found_by_comparing(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    known = torch.randperm(1_000_000, device=device)[:6000].sort().values
    table = nn.Embedding(6000, 96).to(device)
    tower = nn.Sequential(nn.Linear(96, 768), nn.ReLU(), nn.Linear(768, 96)).to(device)
    baskets = known[torch.randint(6000, (48, 20), device=device)]
    offers = F.normalize(torch.randn(8000, 96, device=device), dim=1)

    @torch.inference_mode()
    def step() -> Tensor:
        raw = baskets.flatten()
        rows = torch.searchsorted(known, raw) if changed else (raw[:, None] == known).nonzero()[:, 1]
        x = tower(table(rows)).view(*baskets.shape, 96)
        weight = (x @ x.mean(1, keepdim=True).transpose(1, 2) / math.sqrt(96)).softmax(1)
        customers = F.normalize((weight * x).sum(1), dim=1)
        return (customers @ offers.T).topk(10).values

    return step


@unseen(
    "gene expression is stored with the cells in columns, so that the cells of each batch are gathered number by number from "
    "all over memory; stored with a row for each cell (transposed once), whole rows copied",
    names=r"index_select|aten::index\b|gather|transpos|row.major|contiguous|strided?|layout|columns?\b|cache (miss|line)"
    r"|locality"
    r"|row for each|rows instead",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def cells_gathered_from_columns(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    genes, cells, batch = 1500, 20000, 128
    counts = torch.rand(genes, cells, device=device).mul_(4).floor_()
    stored = counts.T.contiguous() if changed else counts
    encode = nn.Sequential(nn.Linear(genes, 384), nn.LayerNorm(384), nn.ReLU(), nn.Linear(384, 16)).to(device)
    decode = nn.Sequential(nn.Linear(16, 384), nn.ReLU(), nn.Linear(384, genes)).to(device)
    optimizer = torch.optim.SGD([*encode.parameters(), *decode.parameters()], lr=1e-3)
    rng = torch.Generator().manual_seed(24)

    def step() -> Tensor:
        chosen = torch.randint(cells, (batch,), generator=rng)
        x = (stored[chosen] if changed else stored[:, chosen].T).log1p()
        rate = decode(encode(x))
        loss = F.poisson_nll_loss(rate, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the whole validation set goes through the network after every training batch, for an early stop; every fiftieth batch",
    names=r"validat|evaluat|every (n-?th|few|hundredth|fiftieth|\d+)|less often|once (an|per) epoch|early stop|held.out|metric",
    kind="training",
    recorded="epoch",
    on=("cpu",),
)
def wells_validated_each_batch(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    net = nn.Sequential(nn.Linear(24, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    logs, depth = torch.randn(8192, 24, device=device), torch.randn(8192, 1, device=device)
    held_logs, held_depth = torch.randn(1024, 24, device=device), torch.randn(1024, 1, device=device)
    rng, best, count = torch.Generator().manual_seed(25), [math.inf], iter(range(1 << 60))

    def step() -> Tensor:
        for chosen in torch.randperm(8192, generator=rng)[:2048].view(4, 512):
            loss = F.huber_loss(net(logs[chosen]), depth[chosen])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if next(count) % 50 == 0 or not changed:
                with torch.no_grad():
                    best[0] = min(best[0], F.huber_loss(net(held_logs), held_depth).item())
        return loss.detach()

    return step


@unseen(
    "the autocorrelation of each series is taken lag by lag with torch.roll, a product and a mean; all lags at once by rfft "
    "and irfft",
    names=r"\bi?r?fft|fourier|torch\.roll|aten::roll|\broll(s|ed)?\b|autocorrelation|lags?\b",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def sales_correlated_lag_by_lag(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    rows, length, width = 16, 168, 64
    enter, leave = nn.Linear(8, width).to(device), nn.Linear(width, 24).to(device)
    mix = nn.ModuleList(nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width)) for _ in range(3)).to(device)
    q, k = nn.Linear(width, width).to(device), nn.Linear(width, width).to(device)
    past = torch.randn(rows, length, 8, device=device)

    def correlation(a: Tensor, b: Tensor) -> Tensor:
        if changed:
            product = torch.fft.rfft(a, dim=1) * torch.fft.rfft(b, dim=1).conj()
            return torch.fft.irfft(product, length, dim=1).mean(2)[:, 1:61]
        return torch.stack([(a * b.roll(lag, 1)).sum(1).mean(1) for lag in range(1, 61)], 1)

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(past)
        for layer in mix:
            x = x + layer(x)
        weight, lag = correlation(q(x), k(x)).topk(4)
        weight = (weight / length).softmax(1)
        at = (torch.arange(length, device=device)[:, None] - 1 - lag[:, None]) % length
        picked = x.gather(1, at.flatten(1)[..., None].expand(-1, -1, width)).view(rows, length, 4, width)
        return leave((picked * weight[:, None, :, None]).sum(2))[:, -1]

    return step


@unseen(
    "the attribution of a scan's pixels takes 24 forward and backward passes, one for each point of the path; all points of "
    "the "
    "path as one batch",
    names=r"(as|in|into) (one|a|a single|a larger|larger|bigger) batch|(one|larger|bigger|single) batch|\bbatch(ed|ing)\b"
    r"|batch (them|the points|all)|batch (of |size )+(one|1)\b|(one|single) (forward|pass|call)|all (points|steps|interpolat)"
    r"|loop over (the )?(points|steps|path|alpha)|(one (image|point|step|scan)|point) (at a time|by point)|vmap|(pass|call)(es"
    r"|s)? for each",
    kind="inference",
    recorded="explain",
    on=("cpu",),
)
def scan_attributed_point_by_point(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    layers: list[nn.Module] = [nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU()]
    for inputs, outputs in ((16, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 256), nn.ReLU(), nn.Linear(256, 4)).to(device).eval()
    model.requires_grad_(False)
    scan, points = torch.rand(1, 1, 64, 64, device=device), 24
    path = torch.linspace(1 / points, 1, points, device=device)[:, None, None, None]

    def slopes(x: Tensor, finding: int) -> Tensor:
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(model(x)[:, finding].sum(), x)
        return slope

    def step() -> Tensor:
        with torch.no_grad():
            scores = model(scan).softmax(1)
        finding = int(scores.argmax())
        if changed:
            total = slopes(path * scan, finding).sum(0, keepdim=True)
        else:
            total = torch.zeros_like(scan)
            for share in path:
                total += slopes(share * scan, finding)
        heat = F.avg_pool2d((total / points * scan).abs(), 5, 1, 2)
        return heat / heat.amax()

    return step


@unseen(
    "the overlap of each track with each detection is computed pair by pair in a Python loop; the whole matrix by broadcasting",
    names=r"broadcast|vectori[sz]|pair ?wise|pair by pair|(each|every|all) pairs?|loop over (the )?(tracks|boxes|detections"
    r"|pairs)|box_iou|whole matrix|scalar tensors|single (numbers|elements)|\biou\b",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def players_overlap_pair_by_pair(device: str, changed: bool) -> Step:
    torch.manual_seed(28)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 24), (24, 48), (48, 96)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU()]
    looks = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 64)).to(device)
    crops = torch.rand(18, 3, 96, 48, device=device)
    known = F.normalize(torch.randn(14, 64, device=device), dim=1)
    corner = [torch.rand(n, 2, device=device) * 200 for n in (14, 18)]
    tracks, found = (torch.cat([c, c + 30 + 60 * torch.rand_like(c)], 1) for c in corner)

    def overlap(a: Tensor, b: Tensor) -> Tensor:
        size = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
        shared = size[..., 0] * size[..., 1]
        areas = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1)
        return shared / (areas - shared)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        if changed:
            near = overlap(tracks[:, None], found[None])
        else:
            near = torch.zeros(len(tracks), len(found))
            for i, track in enumerate(tracks):
                for j, box in enumerate(found):
                    near[i, j] = overlap(track, box)
        alike = known @ F.normalize(looks(crops), dim=1).T
        cost = 1 - (0.6 * near + 0.4 * alike)
        return cost, cost.argmin(1)

    return step


@unseen(
    "the Laplacian of a reaction's fields is the sum of four shifted copies that torch.roll makes; one padded copy and slices "
    "of "
    "it, which are views (or a convolution)",
    names=r"\broll(s|ed|ing)?\b|shifted cop|conv2d|(a|one|by) convolution|stencil|slices of|slicing|padded copy|laplac",
    kind="inference",
    recorded="simulate",
    on=("cpu",),
)
def spots_by_rolled_copies(device: str, changed: bool) -> Step:
    torch.manual_seed(29)
    side, runs = 160, 6
    start = torch.rand(runs, 2, side, side, device=device) * 0.1 + torch.tensor([0.8, 0.1], device=device)[:, None, None]
    feed = torch.linspace(0.02, 0.05, runs, device=device)[:, None, None]
    spread = torch.tensor([0.16, 0.08], device=device)[:, None, None]

    def laplacian(x: Tensor) -> Tensor:
        if changed:
            wide = F.pad(x, (1, 1, 1, 1), mode="circular")
            total = wide[..., :-2, 1:-1] + wide[..., 2:, 1:-1]
            total += wide[..., 1:-1, :-2]
            total += wide[..., 1:-1, 2:]
            return total.sub_(x, alpha=4)
        return x.roll(1, 2) + x.roll(-1, 2) + x.roll(1, 3) + x.roll(-1, 3) - 4 * x

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        x = start
        for _ in range(10):
            u, v = x.unbind(1)
            eaten = u * v * v
            growth = torch.stack([feed * (1 - u) - eaten, eaten - (feed + 0.062) * v], 1)
            x = x + spread * laplacian(x) + growth
        return x, torch.fft.rfft2(x[:, 1]).abs().mean(0)

    return step


# For the CPU: a change that brings nothing.


@unseen(
    "none: small batches are taken from a table by indexing with a tensor; index_select, which copies the same rows",
    names=r"index_select|torch\.take|aten::index\b|advanced indexing|fancy indexing|indexing",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
    profile_memory=True,
)
def loans_taken_by_index(device: str, changed: bool) -> Step:
    torch.manual_seed(30)
    table, late = torch.randn(20000, 60, device=device), torch.randint(2, (20000, 1), device=device).float()
    net = nn.Sequential(nn.Linear(60, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(30)

    def step() -> Tensor:
        for chosen in torch.randint(20000, (2, 256), generator=rng):
            x = table.index_select(0, chosen) if changed else table[chosen]
            y = late.index_select(0, chosen) if changed else late[chosen]
            loss = F.binary_cross_entropy_with_logits(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the loss of a bird song classifier is log_softmax and nll_loss; F.cross_entropy, which calls the same two",
    names=r"cross_entropy|nll_loss|log_softmax",
    kind="training",
    recorded="none",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def songs_log_softmax_and_nll(device: str, changed: bool) -> Step:
    torch.manual_seed(31)
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 200)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    window = torch.hann_window(256, device=device)
    songs, birds = torch.randn(16, 8000, device=device), torch.randint(200, (16,), device=device)

    def step() -> Tensor:
        spectra = torch.stft(songs, 256, 128, window=window, return_complex=True).abs().log1p()[:, None]
        logits = model(spectra)
        loss = F.cross_entropy(logits, birds) if changed else F.nll_loss(F.log_softmax(logits, 1), birds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: linear layers get a tensor of rows, words and features, which they take as one matrix anyway; flattened by view first",
    names=r"flatten|\bview\b|reshape|two.dimension|\b2.?d\b",
    kind="inference",
    recorded="answer",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def queries_in_three_dimensions(device: str, changed: bool) -> Step:
    torch.manual_seed(32)
    rows, words, width = 8, 24, 192
    embed = nn.Embedding(8000, width).to(device)
    layers = nn.ModuleList(
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(6)
    ).to(device)
    queries = torch.randint(8000, (rows, words), device=device)
    pages = F.normalize(torch.randn(5000, width, device=device), dim=1)

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(queries)
        if changed:
            x = x.view(-1, width)
        for layer in layers:
            x = x + layer(x)
        vectors = F.normalize(x.view(rows, words, width).mean(1), dim=1)
        return (vectors @ pages.T).topk(20).values

    return step
