"""The thirtieth set of small PyTorch programs with one performance fault each, and the same programs after one change.

Written for one NVIDIA H200 without a look at what the reader knows; see unseen_pairs.py for what a pair is.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
import contextlib
import math

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, endless, low, small
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Independent, Normal
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def pinned(tensor: Tensor, device: str) -> Tensor:
    """Return the tensor in page-locked memory where there is a GPU."""
    return tensor.pin_memory() if device == "cuda" else tensor


def placed(module: nn.Module, device: str, dtype: torch.dtype) -> nn.Module:
    """Move a module of convolutions to a device, channels last."""
    return module.to(device, dtype).to(memory_format=torch.channels_last)


class MemoryReader(nn.Module):
    """A block whose queries read a long memory of a document, its keys and values computed before."""

    keys: Tensor
    values: Tensor

    def __init__(self, heads: int, groups: int, batch: int, length: int, native: bool) -> None:
        super().__init__()
        width = heads * 128
        self.heads, self.groups, self.native = heads, groups, native
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.register_buffer("keys", torch.randn(batch, groups, length, 128))
        self.register_buffer("values", torch.randn(batch, groups, length, 128))

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(self.first(x)).unflatten(2, (self.heads, 128)).transpose(1, 2)
        if self.native:
            seen = F.scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=True)
        else:
            times = self.heads // self.groups
            keys, values = self.keys.repeat_interleave(times, dim=1), self.values.repeat_interleave(times, dim=1)
            seen = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.second(x))))


@unseen(
    "keys and values of 4 heads are copied out to 32 heads with repeat_interleave in each layer; enable_gqa=True",
    names=r"repeat_interleave|repeat_kv|enable_gqa|\bgqa\b|grouped.?query|"
    r"(repeat|expand|duplicat|replicat|copy|copi)\w*[^.]{0,40}(keys?\b|k/v|\bkv\b|heads)",
    kind="inference",
    recorded="answer",
    profile_memory=True,
)
def legal_contracts_questioned(device: str, changed: bool) -> Step:
    heads, groups, batch = small(32, 4), small(4, 2), small(4, 2)
    with torch.device(device):
        layers = nn.Sequential(*(MemoryReader(heads, groups, batch, small(8192), changed) for _ in range(depth(8))))
        tokens = nn.Embedding(small(32000), heads * 128)
        norm, spans = nn.LayerNorm(heads * 128), nn.Linear(heads * 128, 2)
        questions = torch.randint(0, tokens.num_embeddings, (batch, small(128)))
    model = nn.Sequential(tokens, layers, norm, spans).to(low(device)).eval()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(questions).float().softmax(1)

    return step


class Clips(Dataset[tuple[Tensor, int]]):
    """Short clips of small pictures, a few of them given again and again."""

    def __init__(self, frames: int, side: int) -> None:
        self.clips = torch.randint(0, 256, (32, 3, frames, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.clips[index % 32], index % 50


class ClipLayer(nn.Module):
    def __init__(self, width: int, heads: int, weights: bool) -> None:
        super().__init__()
        self.weights = weights
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.first(x)
        x = x + self.attention(normed, normed, normed, need_weights=self.weights)[0]
        return x + self.mlp(self.second(x))


@unseen(
    "nn.MultiheadAttention returns attention weights that nobody reads, so it multiplies, softmaxes and averages whole matrices; "
    "need_weights=False lets it take scaled_dot_product_attention",
    names=r"need_weights|scaled_dot_product|\bsdpa\b|flash.?attention|fused attention|memory.?efficient attention|"
    r"(attention|score)s? (weights|matri|scores)|aten::baddbmm|aten::_softmax\b",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def sign_language_clips(device: str, changed: bool) -> Step:
    width, side = small(768, 96), 112 if device == "cuda" else 32
    patch = nn.Linear(3 * 2 * 8 * 8, width).to(device)
    layers = [ClipLayer(width, 12, not changed) for _ in range(depth(6))]
    body = nn.Sequential(*layers, nn.LayerNorm(width)).to(device)
    head = nn.Linear(width, 50).to(device)
    parameters = [*patch.parameters(), *body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
    loader = DataLoader(
        Clips(8, side),
        small(16),
        num_workers=2,
        pin_memory=device == "cuda",
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    batches = endless(loader)

    def step() -> Tensor:
        clips, labels = next(batches)
        clips, labels = clips.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            cubes = clips.float().div(127.5).sub(1).unflatten(4, (-1, 8)).unflatten(3, (-1, 8)).unflatten(2, (-1, 2))
            x = patch(cubes.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4).flatten(1, 3))
            loss = F.cross_entropy(head(body(x).mean(1)).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the gradient of an embedding of 4 million rows is dense, zeroed and applied whole though a step touches few rows; "
    "nn.Embedding(sparse=True)",
    names=r"sparse=True|sparse (grad|embedding|update)|sparseadam|embedding_dense_backward|dense (embedding )?grad|"
    r"(whole|entire|full|every row of the) (embedding|table)|rows? (that (were|was|are) )?(not )?(touched|used|looked)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def grocery_baskets_next_item(device: str, changed: bool) -> Step:
    items, width, batch = small(4_000_000), 128, small(4096)
    with torch.device(device):
        table = nn.Embedding(items, width, sparse=changed)
        body = nn.Sequential(*(Layer(width, 4, causal=True) for _ in range(2)), nn.LayerNorm(width))
        baskets = torch.randint(0, items, (4, batch, 20))
        bought = torch.randint(0, items, (4, batch))
        right = torch.arange(batch)
    rows = torch.optim.SGD(table.parameters(), 0.05)
    dense = torch.optim.AdamW(body.parameters(), 1e-3, fused=True)
    count = 0

    def step() -> Tensor:
        nonlocal count
        seen, target = baskets[count % 4], bought[count % 4]
        count += 1
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            users = body(table(seen))[:, -1]
            scores = users @ table(target).T / math.sqrt(width)
            loss = F.cross_entropy(scores.float(), right)
        rows.zero_grad()
        dense.zero_grad()
        loss.backward()
        rows.step()
        dense.step()
        return loss.detach()

    return step


@unseen(
    "each distribution checks its arguments and samples with .all() read by the host, a wait and some operations each; "
    "validate_args=False",
    names=r"validate_args|set_default_validate_args|(argument|distribution|parameter)s?.{0,20}(validat|check)|validat\w+ of|"
    r"is_nonzero|_local_scalar_dense|aten::item\b|\.item\(\)|aten::all\b",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def warehouse_robots_rollout(device: str, changed: bool) -> Step:
    robots, seen, joints, horizon = small(2048), 48, 6, 16
    check = not changed
    with torch.device(device):
        trunk = nn.Sequential(nn.Linear(seen, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU(), nn.Linear(256, 128), nn.ELU())
        mean, grip, value = nn.Linear(128, joints), nn.Linear(128, 1), nn.Linear(128, 1)
        spread = nn.Parameter(torch.zeros(joints))
        moved, gripped = torch.randn(joints, seen) * 0.1, torch.randn(seen) * 0.1
        start = torch.randn(robots, seen)

    @torch.no_grad()
    def step() -> list[Tensor]:
        state = start
        rewards, chances, values = [], [], []
        for _ in range(horizon):
            hidden = trunk(state)
            aim = Normal(mean(hidden), spread.exp().expand(robots, joints), validate_args=check)
            arm = Independent(aim, 1, validate_args=check)
            hand = Bernoulli(logits=grip(hidden).squeeze(1), validate_args=check)
            turn, hold = arm.sample(), hand.sample()
            chances.append(arm.log_prob(turn) + hand.log_prob(hold))
            values.append(value(hidden).squeeze(1))
            state = 0.95 * state + turn.tanh() @ moved + hold[:, None] * gripped
            rewards.append(-state[:, :3].square().sum(1) - 0.01 * turn.square().sum(1))
            fallen = state[:, 3].abs() > 4
            state = torch.where(fallen[:, None], start, state)
        advantage, gain = torch.zeros_like(values[0]), []
        for index in reversed(range(horizon - 1)):
            delta = rewards[index] + 0.99 * values[index + 1] - values[index]
            advantage = delta + 0.99 * 0.95 * advantage
            gain.append(advantage)
        return [torch.stack(gain), torch.stack(chances)]

    return step


@unseen(
    "the covariance, symmetric and positive definite, is inverted in full and then multiplied; a Cholesky factor and triangular "
    "solves need a fraction of the operations",
    names=r"cholesky|linalg_inv|linalg\.inv|linalg_solve|linalg\.solve|solve_triangular|lu_factor|"
    r"(matrix|explicit|full) inver|inverse|\binvert|getrf|potrf",
    kind="inference",
    recorded="none",
)
def groundwater_levels_kriged(device: str, changed: bool) -> Step:
    wells, cells = small(4096), small(4096)
    with torch.device(device):
        places = torch.rand(wells, 2, dtype=torch.float64) * 100
        grid = torch.rand(cells, 2, dtype=torch.float64) * 100
        levels = torch.sin(places[:, 0] / 9) + torch.cos(places[:, 1] / 7) + 0.1 * torch.randn(wells, dtype=torch.float64)
        noise = 0.05 * torch.eye(wells, dtype=torch.float64)

    def covariance(first: Tensor, second: Tensor) -> Tensor:
        apart = math.sqrt(3) / 8 * torch.cdist(first, second)
        return (1 + apart) * torch.exp(-apart)

    @torch.inference_mode()
    def step() -> list[Tensor]:
        known = covariance(places, places) + noise
        across = covariance(grid, places)
        trend = levels.mean()
        if changed:
            factor = torch.linalg.cholesky(known)
            weights = torch.cholesky_solve((levels - trend)[:, None], factor)[:, 0]
            half = torch.linalg.solve_triangular(factor, across.T, upper=False)
            variance = 1 - half.square().sum(0)
        else:
            inverse = torch.linalg.inv(known)
            weights = inverse @ (levels - trend)
            variance = 1 - ((across @ inverse) * across).sum(1)
        return [trend + across @ weights, variance.clamp(min=0).sqrt()]

    return step


def mel_bank(size: int, bands: int, rate: int) -> Tensor:
    """Return triangular filters over the frequencies of a spectrum, spaced by the mel scale."""
    frequencies = torch.linspace(0, rate / 2, size // 2 + 1)
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = [700 * (10 ** (top * number / (bands + 1) / 2595) - 1) for number in range(bands + 2)]
    bank = torch.zeros(bands, size // 2 + 1)
    for band in range(bands):
        left, centre, right = edges[band : band + 3]
        rising = (frequencies - left) / (centre - left)
        falling = (right - frequencies) / (right - centre)
        bank[band] = torch.minimum(rising, falling).clamp(min=0)
    return bank


@unseen(
    "windows and mel filters, always the same, are built on the CPU band by band in each call and copied to the GPU; "
    "built once and kept on the GPU",
    names=r"filter.?bank|mel.?(bank|filter)|hann_window|register_buffer|pre-?comput|loop.?invariant|constants\b|"
    r"constant tensor|rebuil|re-?creat|(built|computed|created|constructed|made) on the (cpu|host)|"
    r"(build|built|create|compute|move|copy|upload)\w*[^.]{0,40}\bonce\b|cache (the|them|these|it)\b",
    kind="inference",
    recorded="none",
)
def birdsong_microphones(device: str, changed: bool) -> Step:
    rate, bands, sizes, clips = 32000, 64, (1024, 2048, 4096), small(24)
    waves = pinned(torch.randn(clips, small(320_000)), device)
    channels = (3, 64, 128, 256, 512)
    network = nn.Sequential(*convolutions(channels), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 400))
    model = placed(network, device, low(device)).eval()

    def tools() -> list[tuple[Tensor, Tensor]]:
        return [(torch.hann_window(size).to(device), mel_bank(size, bands, rate).to(device)) for size in sizes]

    kept = tools() if changed else None

    @torch.inference_mode()
    def step() -> Tensor:
        sound = waves.to(device, non_blocking=True)
        sound = sound - sound.mean(1, keepdim=True)
        pictures = []
        for size, (window, bank) in zip(sizes, kept if kept is not None else tools(), strict=True):
            spectrum = torch.stft(sound, size, 320, window=window, return_complex=True)
            pictures.append(torch.log(bank @ (spectrum.real.square() + spectrum.imag.square()) + 1e-5))
        picture = torch.stack(pictures, 1)
        picture = (picture - picture.mean((2, 3), keepdim=True)) / (picture.std((2, 3), keepdim=True) + 1e-5)
        return model(picture.to(low(device)).contiguous(memory_format=torch.channels_last)).float().sigmoid()

    return step


class Tabular(nn.Module):
    """A transformer over the columns of a table."""

    def __init__(self, numbers: int, kinds: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers, width) * 0.1)
        self.bias = nn.Parameter(torch.zeros(numbers, width))
        self.kinds = nn.Embedding(kinds * 100, width)
        self.register_buffer("offsets", torch.arange(kinds) * 100)
        self.layers = nn.Sequential(*(Layer(width, 8) for _ in range(3)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 1)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        offsets = self.get_buffer("offsets")
        columns = [numbers[:, :, None] * self.weight + self.bias, self.kinds(kinds + offsets)]
        return self.head(self.layers(torch.cat(columns, 1)).mean(1)).squeeze(1)


@unseen(
    "a table in memory is read row by row, a thousand small tensors stacked for each batch; whole batches of indices are taken "
    "at once (BatchSampler as sampler, batch_size=None)",
    names=r"collat|per.?(sample|row|item)|(row|sample|item) by (row|sample|item)|(single|individual) (rows?|samples?|items?)|"
    r"batchsampler|batch_size=None|__getitem|aten::stack|aten::select|num_workers|worker process|dataloader|data load",
    kind="training",
    recorded="step",
    with_stack=True,
)
def credit_default_tables(device: str, changed: bool) -> Step:
    rows, batch = small(65536), small(1024)
    table = TensorDataset(torch.randn(rows, 20), torch.randint(0, 100, (rows, 12)), torch.rand(rows).round())
    if changed:
        whole = BatchSampler(SequentialSampler(table), batch, drop_last=True)
        loader: DataLoader[tuple[Tensor, ...]] = DataLoader(table, sampler=whole, batch_size=None, pin_memory=False)
    else:
        loader = DataLoader(table, batch, shuffle=False, drop_last=True)
    batches = endless(loader)
    model = Tabular(20, 12, 192).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)

    def step() -> Tensor:
        numbers, kinds, defaults = (part.to(device) for part in next(batches))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            scores = model(numbers, kinds)
        loss = F.binary_cross_entropy_with_logits(scores.float(), defaults)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Residual(nn.Module):
    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.enter, self.leave = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.shift = nn.Linear(times, width)

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        hidden = self.enter(F.silu(self.first(x))) + self.shift(when)[:, :, None, None]
        return x + self.leave(F.silu(self.second(hidden)))


class Reading(nn.Module):
    """Attention of a picture to a text."""

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.both = nn.Linear(text, 2 * width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        pixels = self.norm(x.flatten(2).transpose(1, 2))
        q = self.query(pixels).unflatten(2, (4, -1)).transpose(1, 2)
        k, v = self.both(text).unflatten(2, (2, 4, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        seen = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + seen.transpose(1, 2).unflatten(2, x.shape[2:])


class Denoiser(nn.Module):
    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.when = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
        self.enter, self.leave = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(width, 256) for _ in range(6))
        self.readings = nn.ModuleList(Reading(width, text) for _ in range(3))

    def forward(self, x: Tensor, when: Tensor, text: Tensor) -> Tensor:
        time, hidden = self.when(when), self.enter(x)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, time)
            if index % 2:
                hidden = self.readings[index // 2](hidden, text)
        return self.leave(F.silu(hidden))


@unseen(
    "guidance calls the network twice a step on a batch of one, bound by launches; both halves in one call with a batch of two",
    names=r"classifier.?free|guidance|(one|single|same) (batched |combined )?(forward|call|pass|batch)|"
    r"both (halves|branches|passes|calls)|batch (both|the two|them|the calls|the passes|more|requests|several)|"
    r"(larger|bigger|increase the|raise the|small|tiny) batch|"
    r"batch(ing)? (of )?(inputs|requests|together)|cuda ?graph|reduce-overhead",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def fashion_sketches_drawn(device: str, changed: bool) -> Step:
    width, text, steps = small(192, 32), 256, 12 if device == "cuda" else 3
    model = Denoiser(width, text).to(device, low(device)).eval()
    with torch.device(device):
        noise = torch.randn(1, 4, 32, 32, dtype=low(device))
        prompt, empty = torch.randn(1, 77, text, dtype=low(device)), torch.zeros(1, 77, text, dtype=low(device))
        angles = torch.linspace(1, 0, steps)[:, None] * torch.logspace(0, 3, 32)
        whens = torch.cat([angles.sin(), angles.cos()], 1).to(low(device))
    texts = torch.cat([prompt, empty])

    @torch.inference_mode()
    def step() -> Tensor:
        x = noise
        for index in range(steps):
            when = whens[index : index + 1]
            if changed:
                led, free = model(x.expand(2, -1, -1, -1), when.expand(2, -1), texts).chunk(2)
            else:
                led, free = model(x, when, prompt), model(x, when, empty)
            x = x - (free + 3 * (led - free)) / steps
        return x.clamp(-4, 4)

    return step


@unseen(
    "a background thread counts labels in pure Python and holds the interpreter lock against the thread that launches; "
    "bincount, which releases it and takes microseconds",
    names=r"\bGIL\b|interpreter.?lock|pure.?python|python (loop|code|work)|python.level|tolist|bincount|vectori[sz]|"
    r"multi-?process|separate process|(worker|background|second|other|another|helper|python) thread",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def traffic_cameras_counted(device: str, changed: bool) -> Step:
    groups, classes, lanes, side = 6, 12, 8, 256
    layers: list[nn.Module] = convolutions((3, 32, 64), 2)
    for _ in range(depth(14)):
        layers += convolutions((64, 64), 1)
    network = nn.Sequential(*layers, nn.Conv2d(64, classes, 1))
    model = placed(network, device, low(device)).eval()
    pictures = torch.randint(0, 256, (groups, 2, 3, side, side), dtype=torch.uint8, device=device)
    across = (torch.arange(side // 4) * lanes // (side // 4)).expand(2, side // 4, side // 4).flatten().contiguous()
    lane_of = across.tolist()
    pool = ThreadPoolExecutor(1)

    def tally(labels: Tensor) -> Tensor:
        if changed:
            return torch.bincount(across * classes + labels.flatten(), minlength=lanes * classes).view(lanes, classes)
        counts: dict[tuple[int, int], int] = {}
        for lane, label in zip(lane_of, labels.flatten().tolist(), strict=True):
            counts[lane, label] = counts.get((lane, label), 0) + 1
        return torch.tensor([[counts.get((lane, label), 0) for label in range(classes)] for lane in range(lanes)])

    @torch.inference_mode()
    def step() -> list[Tensor]:
        waiting = []
        for picture in pictures:
            x = picture.to(low(device)).div(255).contiguous(memory_format=torch.channels_last)
            labels = model(x).argmax(1).cpu()
            waiting.append(pool.submit(tally, labels))
        return [found.result() for found in waiting]

    return step


@unseen(
    "tiles are copied on a side stream but the host waits for the whole device after each, so nothing overlaps; the copies go "
    "ahead and the compute stream waits for an event",
    names=r"synchroni[sz]e|wait_event|wait_stream|cudaStreamWaitEvent|cuda ?events?\b|overlap|prefetch|double.?buffer|"
    r"copy ahead|next tile",
    kind="inference",
    recorded="scene",
)
def satellite_scenes_mapped(device: str, changed: bool) -> Step:
    tiles, side = small(10), small(2048, 64)
    scene = [pinned(torch.randint(0, 4096, (1, 4, side, side), dtype=torch.int16), device) for _ in range(tiles)]
    places = [torch.empty(1, 4, side, side, dtype=torch.int16, device=device) for _ in range(tiles)]
    network = nn.Sequential(*convolutions((4, 64), 2), *convolutions((64, 64, 64), 1), *convolutions((64, 128), 2))
    network = nn.Sequential(network, *convolutions((128, 128), 1), nn.Conv2d(128, 10, 1))
    model = placed(network, device, low(device)).eval()
    copying = torch.cuda.Stream() if device == "cuda" else None

    def cover(tile: Tensor) -> Tensor:
        x = tile.to(low(device)).div(4096).contiguous(memory_format=torch.channels_last)
        return model(x).float().softmax(1).mean((2, 3))

    @torch.inference_mode()
    def step() -> Tensor:
        found, events = [], []
        if copying is not None:
            copying.wait_stream(torch.cuda.current_stream())
        if changed and copying is not None:
            with torch.cuda.stream(copying):
                for tile, place in zip(scene, places, strict=True):
                    place.copy_(tile, non_blocking=True)
                    events.append(copying.record_event())
        for index, (tile, place) in enumerate(zip(scene, places, strict=True)):
            if copying is None:
                place.copy_(tile)
            elif changed:
                torch.cuda.current_stream().wait_event(events[index])
            else:
                with torch.cuda.stream(copying):
                    place.copy_(tile, non_blocking=True)
                torch.cuda.synchronize()
            found.append(cover(place))
            if copying is not None and not changed:
                torch.cuda.synchronize()
        return torch.cat(found)

    return step


class Messages(nn.Module):
    """A layer whose edges are gated by both of their nodes."""

    def __init__(self, width: int, select: bool) -> None:
        super().__init__()
        self.select = select
        self.sent, self.got, self.own = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        sent, got = self.sent(x), self.got(x)
        if self.select:
            left, right = sent.index_select(0, source), got.index_select(0, target)
        else:
            left, right = sent[source], got[target]
        gathered = torch.zeros_like(x).index_add(0, target, torch.sigmoid(right) * left)
        return x + F.relu(self.norm(self.own(x) + gathered))


@unseen(
    "nodes are gathered with x[index], whose backward is an index_put_ that sorts all edges; index_select, whose backward is "
    "index_add_",
    names=r"index_put|index_select|index_add|scatter_add|torch\.gather|indexing_backward|advanced indexing|fancy index|"
    r"IndexBackward|accumulate=True|index(ing)?('s)? backward|sorts? (all |the )?(indices|edges)|F\.embedding",
    kind="training",
    recorded="step",
)
def citations_between_authors(device: str, changed: bool) -> Step:
    nodes, edges, width = small(100_000), small(2_000_000), 64
    with torch.device(device):
        source = (torch.rand(edges).pow(1.5) * nodes).long().clamp(max=nodes - 1)
        target = torch.randint(0, nodes, (edges,))
        features, fields = torch.randn(nodes, 128), torch.randint(0, 40, (nodes,))
        enter, leave = nn.Linear(128, width), nn.Linear(width, 40)
        layers = nn.ModuleList(Messages(width, changed) for _ in range(3))
    parameters = [*enter.parameters(), *layers.parameters(), *leave.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3, fused=True)

    def step() -> Tensor:
        x = F.relu(enter(features))
        for layer in layers:
            x = layer(x, source, target)
        loss = F.cross_entropy(leave(x), fields)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Cached(nn.Module):
    """A layer of a decoder for one token at a time, with room for its keys and values."""

    keys: Tensor
    values: Tensor

    def __init__(self, width: int, heads: int, batch: int, room: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.register_buffer("keys", torch.randn(batch, heads, room, width // heads, dtype=dtype))
        self.register_buffer("values", torch.randn(batch, heads, room, width // heads, dtype=dtype))

    def forward(self, x: Tensor, place: int) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        self.keys[:, :, place : place + 1] = k
        self.values[:, :, place : place + 1] = v
        seen = F.scaled_dot_product_attention(q, self.keys[:, :, : place + 1], self.values[:, :, : place + 1])
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


@unseen(
    "float32 weights under autocast, entered for each token, are cast to bfloat16 again for each token; model.bfloat16() once",
    names=r"autocast|aten::to\b|aten::_to_copy|(cast|convert)\w*[^.]{0,40}(weights|parameters|model)|"
    r"(weights|parameters|model)[^.]{0,40}(cast|convert|in (bfloat16|bf16|half|fp16))|\.bfloat16\(\)|\.half\(\)|"
    r"model\.to\([^)]*bfloat16|(bf16|bfloat16|half.precision) (weights|parameters)|dtype conversion",
    kind="inference",
    recorded="completion",
)
def clinical_notes_continued(device: str, changed: bool) -> Step:
    width, batch, words, new = small(4096, 64), 4, small(16000), 8 if device == "cuda" else 3
    room = small(512, 32)
    with torch.device(device):
        tokens = nn.Embedding(words, width)
        layers = nn.ModuleList(Cached(width, 32, batch, room, low(device)) for _ in range(depth(4)))
        norm, head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        forced = torch.randint(0, words, (batch, new + 1))
    model = nn.ModuleList([tokens, layers, norm, head]).eval()
    if changed:
        model.to(low(device))

    def forward(ids: Tensor, place: int) -> Tensor:
        mixed = torch.autocast(device, torch.bfloat16) if device == "cuda" and not changed else contextlib.nullcontext()
        with mixed:
            x = tokens(ids)
            for layer in layers:
                x = layer(x, place)
            return head(norm(x))[:, 0]

    @torch.no_grad()
    def step() -> Tensor:
        total = torch.zeros(batch, device=device)
        for index in range(new):
            scores = forward(forced[:, index : index + 1], room - new + index).float().log_softmax(1)
            total = total + scores.gather(1, forced[:, index + 1 : index + 2])[:, 0]
        return total

    return step


class PairBlock(nn.Module):
    """Updates of a matrix of pairs of residues: along triangles, then each pair on its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.open, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, pairs: Tensor) -> Tensor:
        normed = self.first(pairs)
        left, right = self.left(normed).sigmoid() * normed, self.right(normed).sigmoid() * normed
        triangles = torch.einsum("bikc,bjkc->bijc", left, right) / math.sqrt(pairs.shape[1])
        pairs = pairs + self.open(normed).sigmoid() * self.out(self.second(triangles))
        return pairs + self.down(F.relu(self.up(self.third(pairs))))


@unseen(
    "anomaly detection was left on: a stack trace for each operation and a check for NaN, read by the host, for each gradient",
    names=r"anomaly|detect_anomaly|nan.?(check|test|detect)|check\w* (for|of) nan|isnan|"
    r"aten::ne\b|is_nonzero|_local_scalar_dense|aten::item\b",
    kind="training",
    recorded="step",
)
def protein_contacts_learned(device: str, changed: bool) -> Step:
    residues, width, batch = small(256, 16), 128, 2
    with torch.device(device):
        embed, apart = nn.Embedding(21, width), nn.Embedding(65, width)
        blocks = nn.Sequential(*(PairBlock(width) for _ in range(depth(4))))
        head = nn.Linear(width, 36)
        sequence = torch.randint(0, 21, (batch, residues))
        steps = torch.arange(residues)
        offsets = (steps[:, None] - steps[None]).clamp(-32, 32) + 32
        distances = torch.randint(0, 36, (batch, residues, residues))
    parameters = [*embed.parameters(), *apart.parameters(), *blocks.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-3, fused=True)

    def step() -> Tensor:
        with contextlib.nullcontext() if changed else torch.autograd.set_detect_anomaly(True):
            optimizer.zero_grad()
            single = embed(sequence)
            pairs = single[:, :, None] + single[:, None] + apart(offsets)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                pairs = blocks(pairs)
                logits = head(pairs + pairs.transpose(1, 2))
            loss = F.cross_entropy(logits.float().flatten(0, 2), distances.flatten())
            loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


class Scans(Dataset[tuple[Tensor, int]]):
    """Pictures with a little augmentation that depends on the index."""

    def __init__(self, side: int) -> None:
        self.scans = torch.randint(0, 256, (48, 3, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        scan = self.scans[index % 48]
        scan = scan.flip(2) if index % 3 == 0 else scan
        return (scan.float() * (0.8 + 0.01 * (index % 40))).clamp(max=255).to(torch.uint8), index % 5


def stages(widths: Sequence[int], each: int) -> list[nn.Module]:
    """Stack stages of convolutions, the first of each halving the picture."""
    layers: list[nn.Module] = []
    for index in range(1, len(widths)):
        layers += convolutions((widths[index - 1], widths[index]), 2)
        layers += convolutions((widths[index],) * each, 1)
    return layers


@unseen(
    "null: eight workers in place of three, where three are far ahead of the GPU's training",
    names=r"num_workers|\bworkers\b|worker process|prefetch_factor|dataloader|data load|input pipeline",
    kind="training",
    recorded="step",
    null=True,
)
def retina_scans_graded(device: str, changed: bool) -> Step:
    side, batch = 224 if device == "cuda" else 64, small(64)
    network = nn.Sequential(*stages((3, 96, 192, 384, 512), 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 5))
    model = placed(network, device, torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loader = DataLoader(
        Scans(side),
        batch,
        num_workers=8 if changed else 3,
        pin_memory=device == "cuda",
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    batches = endless(loader)

    def step() -> Tensor:
        scans, grades = next(batches)
        scans, grades = scans.to(device, non_blocking=True), grades.to(device, non_blocking=True)
        x = scans.to(memory_format=torch.channels_last).float().div(127.5).sub(1)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = F.cross_entropy(model(x).float(), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: the two towers run on two streams, though each fills the GPU by itself",
    names=r"(side|second|separate|multiple|several|parallel|two|concurrent) (cuda )?streams?|torch\.cuda\.stream|"
    r"concurren|run\w* in parallel|overlap",
    kind="inference",
    recorded="views",
    null=True,
    record_shapes=False,
)
def night_drives_seen_twice(device: str, changed: bool) -> Step:
    batch, high, wide = small(8), small(512, 32), small(1024, 32)

    def tower(channels: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(channels, 128, 3, 2, 1), nn.ReLU(inplace=True)]
        for _ in range(depth(7)):
            layers += [nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(inplace=True)]
        return placed(nn.Sequential(*layers), device, low(device)).eval()

    colour, heat = tower(3), tower(1)
    head = placed(nn.Conv2d(256, 8, 1), device, low(device))
    with torch.device(device):
        camera = torch.rand(batch, 3, high, wide, dtype=low(device)).contiguous(memory_format=torch.channels_last)
        thermal = torch.rand(batch, 1, high, wide, dtype=low(device)).contiguous(memory_format=torch.channels_last)
    side = torch.cuda.Stream() if changed and device == "cuda" else None

    @torch.inference_mode()
    def step() -> Tensor:
        if side is None:
            first, second = colour(camera), heat(thermal)
        else:
            here = torch.cuda.current_stream()
            side.wait_stream(here)
            with torch.cuda.stream(side):
                second = heat(thermal)
            first = colour(camera)
            here.wait_stream(side)
            second.record_stream(here)
        return head(torch.cat([first, second], 1)).float().softmax(1).mean((2, 3))

    return step


class Nowcast(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(*convolutions((8, width, width), 1))
        self.down = nn.Sequential(*convolutions((width, 2 * width), 2), *convolutions((2 * width, 2 * width), 1))
        self.deep = nn.Sequential(*convolutions((2 * width, 2 * width), 2), *convolutions((2 * width,) * 3, 1))
        self.up = nn.Sequential(*convolutions((4 * width, 2 * width, width), 1))
        self.leave = nn.Sequential(*convolutions((2 * width, width, width), 1), nn.Conv2d(width, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.enter(x)
        middle = self.down(fine)
        coarse = F.interpolate(self.deep(middle), scale_factor=2.0)
        middle = F.interpolate(self.up(torch.cat([middle, coarse], 1)), scale_factor=2.0)
        return self.leave(torch.cat([fine, middle], 1))


@unseen(
    "null: fused AdamW, where the optimizer's part is a hundredth beside convolutions over large maps",
    names=r"\bfused=True|fused (adam|optimi[sz]er)|_fused_adam|optimi[sz]er",
    kind="training",
    recorded="step",
    null=True,
)
def rain_radar_nowcast(device: str, changed: bool) -> Step:
    batch, side = small(12), small(256, 16)
    network = placed(Nowcast(64), device, torch.float32)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, fused=True if changed else None)
    with torch.device(device):
        past = torch.rand(batch, 8, side, side).contiguous(memory_format=torch.channels_last)
        later = torch.rand(batch, 4, side, side).contiguous(memory_format=torch.channels_last)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            rain = network(past)
        weight = 1 + 4 * (later > 0.8)
        loss = (weight * F.smooth_l1_loss(rain.float(), later, reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: a CUDA graph of a network whose few kernels are long, the launches far ahead of them",
    names=r"cuda ?graphs?|cudagraph|make_graphed_callables|reduce-overhead",
    kind="inference",
    recorded="enlarge",
    null=True,
)
def xray_plates_enlarged(device: str, changed: bool) -> Step:
    batch, side = small(4), small(512, 32)
    plates = pinned(torch.rand(batch, 1, side, side), device)
    body = [nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)) for _ in range(depth(12))]
    enter, leave = nn.Conv2d(1, 64, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
    model = placed(nn.ModuleList([enter, *body, leave]), device, low(device)).eval()
    given = torch.zeros(batch, 1, side, side, device=device)

    def forward() -> Tensor:
        x = enter(given.to(low(device)).contiguous(memory_format=torch.channels_last))
        for block in body:
            x = x + 0.1 * block(x)
        fine = F.pixel_shuffle(leave(x), 2).float()
        return (fine + F.interpolate(given, scale_factor=2.0, mode="bilinear")).clamp(0, 1)

    model.requires_grad_(False)
    if not changed or device != "cuda":

        @torch.no_grad()
        def plain() -> Tensor:
            given.copy_(plates, non_blocking=True)
            return forward()

        return plain
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm), torch.no_grad():
        for _ in range(3):
            forward()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        enlarged = forward()

    def replayed() -> Tensor:
        given.copy_(plates, non_blocking=True)
        graph.replay()
        return enlarged

    return replayed


@unseen(
    "null: bfloat16 in a small recurrent network whose step waits for launches, not for arithmetic or memory",
    names=r"bfloat16|\bbf16\b|float16|\bfp16\b|half.?precision|autocast|(lower|reduced|mixed).?precision",
    kind="inference",
    recorded="step",
    null=True,
)
def earthquakes_listened_for(device: str, changed: bool) -> Step:
    stations, frames, width = 8, 120 if device == "cuda" else 12, 128
    dtype = low(device) if changed else torch.float32
    enter = nn.Sequential(nn.Linear(48, width), nn.GELU()).to(device, dtype)
    first, second = nn.GRUCell(width, width).to(device, dtype), nn.GRUCell(width, width).to(device, dtype)
    head = nn.Linear(width, 3).to(device, dtype)
    waves = torch.randn(stations, frames, 48, device=device).to(dtype)

    @torch.inference_mode()
    def step() -> Tensor:
        seen = enter(waves)
        low_state = high_state = torch.zeros(stations, width, device=device, dtype=dtype)
        picks = []
        for frame in range(frames):
            low_state = first(seen[:, frame], low_state)
            high_state = second(low_state, high_state)
            picks.append(head(high_state))
        return torch.stack(picks, 1).float().softmax(2)

    return step
