"""Twenty more small PyTorch programs for one GPU with one performance fault each, and the same programs after one change.

Written without a look at the reader. Fifteen have a fault that people meet; five are nulls, whose change brings nothing because
something else bounds the program. Half precision is float32 on a CPU, where the programs are only tried.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import math
import queue
import time
from typing import Any
import warnings
import zlib

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, endless, low, small
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# ---------------------------------------------------------------------------------------------------------------- science


@unseen(
    "full complex FFTs of real fields, whose results are then cut to their real part; rfft2 and irfft2",
    names=r"\bi?rfft|fft_r2c|fft_c2r|_fft_c2c|\bi?fft2\b|real.{0,20}\bffts?\b|half.{0,12}spectrum|hermitian",
    kind="inference",
    recorded="none",
)
def ocean_eddies_simulated(device: str, changed: bool) -> Step:
    """Step a pseudo-spectral model of two-dimensional turbulence, whose closure is a small network."""
    side, members = small(512, 32), small(32)
    frequency = torch.fft.fftfreq(side, 1 / side, device=device)
    rows = frequency[:, None]
    columns = (torch.fft.rfftfreq(side, 1 / side, device=device) if changed else frequency)[None, :]
    square = rows**2 + columns**2
    inverse = -1 / square.clamp(min=1.0)
    along_y, along_x = 1j * rows, 1j * columns
    kept = ((rows.abs() < side / 3) & (columns.abs() < side / 3)).float()
    decay = kept * -1e-4 * square
    pad: dict[str, Any] = {"padding": 1, "padding_mode": "circular"}
    closure = nn.Sequential(
        nn.Conv2d(1, 16, 3, **pad), nn.GELU(), nn.Conv2d(16, 16, 3, **pad), nn.GELU(), nn.Conv2d(16, 1, 3, **pad)
    )
    closure.to(device)
    start = F.avg_pool2d(torch.randn(members, 1, side, side, device=device), 5, 1, 2)[:, 0].contiguous()

    def ahead(field: Tensor) -> Tensor:
        return torch.fft.rfft2(field) if changed else torch.fft.fft2(field)

    def back(spectrum: Tensor) -> Tensor:
        return torch.fft.irfft2(spectrum, s=(side, side)) if changed else torch.fft.ifft2(spectrum).real

    def tendency(vorticity: Tensor) -> Tensor:
        spectrum = ahead(vorticity) * kept
        stream = spectrum * inverse
        u, v = back(stream * along_y), back(stream * along_x)
        gradient_x, gradient_y = back(spectrum * along_x), back(spectrum * along_y)
        advection = ahead(v * gradient_y - u * gradient_x) * kept
        return back(advection + spectrum * decay)

    @torch.no_grad()
    def step() -> Tensor:
        vorticity, interval = start, 1e-2
        for _ in range(depth(4)):
            middle = vorticity + interval / 2 * tendency(vorticity)
            vorticity = vorticity + interval * tendency(middle)
        return vorticity + interval * closure(vorticity[:, None])[:, 0]

    return step


@unseen(
    "a symmetric positive definite matrix factored by LU twice, for its determinant and for a solution; one Cholesky for both",
    names=r"cholesky|potrf|linalg_lu|lu_factor|slogdet|logdet|getrf|linalg[._]solve|positive.definite|factori[sz]",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def groundwater_levels_kriged(device: str, changed: bool) -> Step:
    """Compare a few length scales by the likelihood of a Gaussian process, and predict a grid by each."""
    wells, grid = small(3072, 128), small(16384, 256)
    places, targets = torch.rand(wells, 3, device=device), torch.rand(grid, 3, device=device)
    levels = torch.sin(places @ torch.tensor([[9.0], [5.0], [3.0]], device=device)) + 0.1 * torch.randn(wells, 1, device=device)
    noise = 0.1 * torch.eye(wells, device=device)
    scales = (0.15, 0.3)

    def covariance(first: Tensor, second: Tensor, scale: float) -> Tensor:
        near = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist") * (math.sqrt(3) / scale)
        return (1 + near) * torch.exp(-near)

    @torch.no_grad()
    def step() -> list[Tensor]:
        found = []
        for scale in scales:
            matrix = covariance(places, places, scale) + noise
            if changed:
                factor = torch.linalg.cholesky(matrix)
                determinant = 2 * factor.diagonal().log().sum()
                weights = torch.cholesky_solve(levels, factor)
            else:
                determinant = torch.logdet(matrix)
                weights = torch.linalg.solve(matrix, levels)
            likelihood = -0.5 * ((levels * weights).sum() + determinant + wells * math.log(2 * math.pi))
            found += [likelihood, covariance(targets, places, scale) @ weights]
        return found

    return step


class Interactions(nn.Module):
    """One continuous-filter convolution, with a table of embeddings for the bins of distances."""

    def __init__(self, width: int, bins: int, lookup: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.lookup = lookup
        self.bins = nn.Parameter(torch.randn(bins, width) * 0.1)
        self.filter = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))
        self.out = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))

    def forward(self, atoms: Tensor, source: Tensor, target: Tensor, binned: Tensor) -> Tensor:
        weights = self.filter(self.lookup(self.bins, binned))
        messages = atoms.index_select(0, source) * weights
        return atoms + self.out(torch.zeros_like(atoms).index_add(0, target, messages))


@unseen(
    "tables of embeddings read by table[kinds], whose backward is a sorting index_put_ with long runs of equal rows; F.embedding",
    names=r"embedding|index_put|indexing_backward|IndexBackward|index_select|advanced.{0,5}index|\bgather\b|duplicate",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def molecule_energies_fitted(device: str, changed: bool) -> Step:
    """Fit energies of molecules by a network of atoms and of binned distances."""
    atoms, pairs, width, kinds, bins, molecules = small(12288), small(196608), 128, 24, 64, small(512)

    def lookup(table: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, table) if changed else table[index]

    kind_table = nn.Parameter(torch.randn(kinds, width, device=device))
    layers = nn.ModuleList(Interactions(width, bins, lookup) for _ in range(3)).to(device)
    head = nn.Sequential(nn.Linear(width, 64), nn.Softplus(), nn.Linear(64, 1)).to(device)
    parameters = [kind_table, *layers.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
    kind = torch.randint(kinds, (atoms,), device=device)
    source, target = torch.randint(atoms, (2, pairs), device=device).unbind(0)
    binned = torch.randint(bins, (pairs,), device=device)
    owner, energies = torch.arange(atoms, device=device) % molecules, torch.randn(molecules, device=device)

    def step() -> Tensor:
        state = lookup(kind_table, kind)
        for layer in layers:
            state = layer(state, source, target, binned)
        found = torch.zeros_like(energies).index_add(0, owner, head(state)[:, 0])
        loss = F.mse_loss(found, energies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# ----------------------------------------------------------------------------------------------------------------- graphs


@unseen(
    "an adjacency matrix left uncoalesced, so that each product sorts its entries anew; coalesce() once (or CSR)",
    names=r"coalesc|\bcsr\b|sparse_csr|compressed.{0,8}row",
    kind="inference",
    recorded="request",
)
def grant_reviewers_suggested(device: str, changed: bool) -> Step:
    """Propagate the scores of a network over a graph of citations, as personalised PageRank does."""
    nodes, width, topics = small(400_000, 500), 128, 64
    cited, citing = torch.randint(nodes, (2, 9 * nodes), device=device).unbind(0)
    itself = torch.arange(nodes, device=device)
    rows, columns = torch.cat((cited, citing, itself)), torch.cat((citing, cited, itself))
    degree = torch.bincount(rows, minlength=nodes).float().rsqrt()
    adjacency = torch.sparse_coo_tensor(
        torch.stack((rows, columns)), degree[rows] * degree[columns], (nodes, nodes), check_invariants=False
    )
    if changed:
        adjacency = adjacency.coalesce()
    model = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, topics)).to(device)
    papers = torch.randn(nodes, width, device=device)
    asked = torch.randint(nodes, (64,), device=device)

    @torch.no_grad()
    def step() -> Tensor:
        own = model(papers)
        spread = own
        for _ in range(5):
            spread = 0.9 * torch.sparse.mm(adjacency, spread) + 0.1 * own
        near = F.normalize(spread[asked], dim=1) @ F.normalize(spread, dim=1).T
        return near.topk(20).values.cpu()

    return step


# ------------------------------------------------------------------------------------------------- reinforcement learning


@unseen(
    "advantages by a Python loop over the time steps, backwards, of tiny operations; one product with a matrix of discounts",
    names=r"vectori[sz]|python.{0,15}loop|\bloop|recurren|matmul|matrix of discounts|cumsum|\bscan\b|tiny op|small op|cuda.?graph"
    r"|torch\.compile|elementwise.{0,20}fus|fus.{0,20}elementwise",
    kind="training",
    recorded="update",
)
def walking_robots_improved(device: str, changed: bool) -> Step:
    """Update a policy by PPO from rollouts of a fixed horizon."""
    horizon, robots, seen, moves, discount, trace = 192, small(512), 48, 12, 0.99, 0.95
    actor = nn.Sequential(nn.Linear(seen, 512), nn.ELU(), nn.Linear(512, 256), nn.ELU(), nn.Linear(256, moves)).to(device)
    critic = nn.Sequential(nn.Linear(seen, 512), nn.ELU(), nn.Linear(512, 256), nn.ELU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 1e-5)
    states = torch.randn(horizon + 1, robots, seen, device=device)
    rewards = torch.rand(horizon, robots, device=device)
    with torch.no_grad():
        actions = actor(states[:-1])
        actions = actions + torch.randn_like(actions)
        old = -0.5 * (actions - actor(states[:-1])).square().sum(-1)
    lag = torch.arange(horizon, device=device)[None, :] - torch.arange(horizon, device=device)[:, None]
    discounts = torch.where(lag >= 0, (discount * trace) ** lag.clamp(min=0).float(), 0.0)

    def advantages_of(values: Tensor) -> Tensor:
        if changed:
            return discounts @ (rewards + discount * values[1:] - values[:-1])
        found = torch.empty_like(rewards)
        running = torch.zeros_like(rewards[0])
        for moment in reversed(range(horizon)):
            surprise = rewards[moment] + discount * values[moment + 1] - values[moment]
            running = surprise + discount * trace * running
            found[moment] = running
        return found

    def step() -> list[float]:
        with torch.no_grad():
            values = critic(states)[..., 0]
            advantages = advantages_of(values)
            returns = advantages + values[:-1]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for _ in range(2):
            chosen = -0.5 * (actions - actor(states[:-1])).square().sum(-1)
            ratio = (chosen - old).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            fit = F.mse_loss(critic(states[:-1])[..., 0], returns)
            loss = 0.5 * fit - gain
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 1.0)
            optimizer.step()
        figures: list[float] = torch.stack((loss.detach(), fit.detach(), (old - chosen.detach()).mean().abs())).tolist()
        return figures[:2]

    return step


# ----------------------------------------------------------------------------------------------------------------- vision


@unseen(
    "deterministic algorithms left on after a comparison of runs: a slow backward of interpolation; switched off",
    names=r"determinis|index_put|fill_uninitialized|_unsafe_index|reproducib",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def crop_parcels_mapped(device: str, changed: bool) -> Step:
    """Train a network on tiles of a satellite's bands, its coarse classes interpolated to the tiles' size."""
    side, batch, classes = small(256, 32), small(16), 14
    model = nn.Sequential(
        *convolutions((6, 64)),
        *convolutions((64, 64), 1),
        *convolutions((64, 256)),
        *convolutions((256,) * 9, 1),
        nn.Conv2d(256, classes, 1),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    tiles = torch.randn(batch, 6, side, side, device=device)
    labels = torch.randint(classes, (batch, side, side), device=device)
    importance = torch.rand(batch, side, side, device=device)

    def step() -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.use_deterministic_algorithms(not changed, warn_only=True)
            fine = F.interpolate(model(tiles), (side, side), mode="bilinear", align_corners=False)
            logarithms = fine.log_softmax(1)
            loss = -(logarithms.gather(1, labels[:, None])[:, 0] * importance).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.use_deterministic_algorithms(False)
        return loss.detach()

    return step


@unseen(
    "each frame's result fetched by a blocking .cpu() into new pageable memory; copies into pinned buffers on a side stream",
    names=r"pin(ned|_memory|ning)?\b|pageable|non_blocking|async.{0,20}(cop|transfer)|overlap.{0,30}(cop|transfer)"
    r"|(cop|transfer)\w*.{0,30}overlap|side stream|second stream|copy stream|memcpy.?dtoh|device.to.host|\.cpu\(\)",
    kind="inference",
    recorded="none",
)
def dance_video_matted(device: str, changed: bool) -> Step:
    """Cut the people out of a few frames, one frame at a time, for a host that encodes them."""
    height, width, count, dtype = small(720, 64), small(1280, 64), 6, low(device)
    model = nn.Sequential(*convolutions((3, 64), 1), *convolutions((64,) * 8, 1), nn.Conv2d(64, 4, 3, 1, 1))
    model = model.to(device, dtype).eval().to(memory_format=torch.channels_last)
    frames = torch.randint(256, (count, 3, height, width), dtype=torch.uint8, device=device)
    cuda = device == "cuda"
    buffers = [torch.empty(3, height, width, pin_memory=cuda) for _ in range(count)] if changed else []
    side = torch.cuda.Stream() if cuda and changed else None

    def cut(frame: Tensor) -> Tensor:
        picture = (frame[None].to(dtype) / 255).contiguous(memory_format=torch.channels_last)
        found = model(picture)
        alpha = found[:, 3:].sigmoid()
        return (alpha * (picture + found[:, :3].tanh())).float().contiguous()[0]

    @torch.inference_mode()
    def step() -> list[Tensor]:
        if not changed:
            return [cut(frame).cpu() for frame in frames]
        for frame, buffer in zip(frames, buffers, strict=True):
            result = cut(frame)
            if side is None:
                buffer.copy_(result)
                continue
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                buffer.copy_(result, non_blocking=True)
            result.record_stream(side)
        if side is not None:
            side.synchronize()
        return buffers

    return step


class Objects(Dataset[tuple[Tensor, int]]):
    """Points of objects from the street, each turned about the upright axis."""

    def __init__(self, points: int) -> None:
        self.store = torch.randn(256, points, 4)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        cloud, angle = self.store[index % 256].clone(), index * 0.37
        turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        cloud[:, :2] = cloud[:, :2] @ turn
        return cloud, index % 40


@unseen(
    "workers hand over lists of samples, each mapped, copied to the device and then stacked; collated by workers",
    names=r"collat|torch\.stack|aten::stack|one (big |large |single )?(copy|transfer|tensor)|single (copy|transfer)"
    r"|(many|small|tiny|separate) (host.to.device )?(copies|transfers|memcpy)|memcpy.?htod|host.to.device|coalesc.{0,20}cop",
    kind="training",
    recorded="step",
)
def street_objects_recognised(device: str, changed: bool) -> Step:
    """Train a network of points on objects that workers prepare."""
    points, batch = small(1024, 64), small(96)
    collate: dict[str, Any] = {} if changed else {"collate_fn": list}
    loader = DataLoader(Objects(points), batch, num_workers=3, persistent_workers=True, **collate)
    batches = endless(loader)
    each = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 512), nn.GELU()).to(device)
    head = nn.Sequential(nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 40)).to(device)
    optimizer = torch.optim.AdamW([*each.parameters(), *head.parameters()], 1e-4, fused=True)

    def step() -> Tensor:
        fetched = next(batches)
        if changed:
            clouds, labels = (part.to(device) for part in fetched)
        else:
            clouds = torch.stack([cloud.to(device) for cloud, _ in fetched])
            labels = torch.tensor([label for _, label in fetched], device=device)
        loss = F.cross_entropy(head(each(clouds).amax(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# --------------------------------------------------------------------------------------------------------------- language


class Grouped(nn.Module):
    """A layer of a decoder with fewer heads of keys than of queries, and its cache."""

    def __init__(self, width: int, heads: int, groups: int, cache: tuple[int, int], native: bool) -> None:
        super().__init__()
        self.heads, self.groups, self.native, size = heads, groups, native, width // heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.pair = nn.Linear(width, 2 * groups * size, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        batch, length = cache
        self.cache: Tensor
        self.register_buffer("cache", torch.randn(2, batch, groups, length, size))

    def forward(self, x: Tensor, position: int) -> Tensor:
        y = self.first(x)
        query = self.query(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
        new = self.pair(y).unflatten(2, (2, self.groups, -1)).permute(2, 0, 3, 1, 4)
        self.cache[:, :, :, position : position + 1] = new
        key, value = self.cache[:, :, :, : position + 1].unbind(0)
        if self.native:
            seen = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        else:
            key = key.repeat_interleave(self.heads // self.groups, 1)
            value = value.repeat_interleave(self.heads // self.groups, 1)
            seen = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@unseen(
    "cached keys and values repeated for every head of queries ahead of attention; scaled_dot_product_attention(enable_gqa=True)",
    names=r"enable_gqa|\bgqa\b|grouped.{0,3}query|repeat_interleave|repeat_kv|(repeat|expand|cop)\w*.{0,30}(keys|k/v|kv|heads)",
    kind="inference",
    recorded="none",
)
def support_chats_answered(device: str, changed: bool) -> Step:
    """Decode two tokens of a batch of chats from full caches."""
    width, heads, groups, length, batch = small(4096, 64), 32, 8, small(2048, 16), small(32)
    heads, groups = (heads, groups) if width >= 512 else (8, 2)
    with torch.device(device):
        layers = nn.ModuleList(Grouped(width, heads, groups, (batch, length), changed) for _ in range(depth(8)))
        words, head = nn.Embedding(small(32000), width), nn.Linear(width, small(32000), bias=False)
        tokens = torch.randint(small(32000), (batch, 1))
    for part in (layers, words, head):
        part.to(low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        token, answers = tokens, []
        for position in (length - 2, length - 1):
            x = words(token)
            for layer in layers:
                x = layer(x, position)
            answers.append(head(x[:, -1]))
            token = answers[-1].argmax(-1, keepdim=True)
        return answers[0]

    return step


class Encoder(nn.Module):
    """A layer that attends by nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int, **attention: Any) -> None:
        super().__init__()
        self.first, self.second, self.options = nn.LayerNorm(width), nn.LayerNorm(width), attention
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, **self.options)[0]
        return x + self.mlp(self.second(x))


@unseen(
    "nn.MultiheadAttention asked (by default) for the weights, which nobody reads, so not fused; need_weights=False",
    names=r"need_weights|scaled_dot_product|\bsdpa\b|flash|fused.{0,12}attention|attention.{0,20}fus|memory.efficient.attention",
    kind="training",
    recorded="step",
)
def enzymes_stability_learned(device: str, changed: bool) -> Step:
    """Regress the stability of proteins from their residues."""
    width, heads, length, batch = small(768, 64), 12 if small(768, 64) == 768 else 4, small(1024, 32), small(8)
    options = {"need_weights": False} if changed else {}
    embed, place = nn.Embedding(26, width).to(device), nn.Parameter(torch.randn(1, length, width, device=device) * 0.02)
    body = nn.Sequential(*(Encoder(width, heads, **options) for _ in range(depth(6))), nn.LayerNorm(width)).to(device)
    head = nn.Linear(width, 1).to(device)
    optimizer = torch.optim.AdamW([*embed.parameters(), place, *body.parameters(), *head.parameters()], 1e-5, fused=True)
    residues = torch.randint(26, (batch, length), device=device)
    melting = torch.randn(batch, device=device)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            found = head(body(embed(residues) + place).mean(1))[:, 0]
        loss = F.huber_loss(found.float(), melting)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "autocast around a frozen model whose float32 weights are cast anew for each small request; weights kept in bfloat16",
    names=r"autocast|_to_copy|(cast|convert)\w*.{0,40}(weight|parameter|once|model)|(weight|parameter|model)s?.{0,40}(cast|convert)"
    r"|\.bfloat16\(\)|\.half\(\)|(weights|model|parameters) in (bf16|bfloat16|half)",
    kind="inference",
    recorded="none",
)
def search_results_reordered(device: str, changed: bool) -> Step:
    """Score a few short answers to a query by a wide transformer."""
    width, heads, vocabulary = small(4096, 64), 32 if small(4096, 64) == 4096 else 4, small(30000)
    with torch.device(device):
        words = nn.Embedding(vocabulary, width)
        body = nn.Sequential(*(Layer(width, heads) for _ in range(depth(12))), nn.LayerNorm(width))
        head = nn.Linear(width, 1)
        answers = torch.randint(vocabulary, (4, 32))
    for part in (words, body, head):
        part.eval().requires_grad_(False)
        if changed:
            part.to(torch.bfloat16)

    @torch.no_grad()
    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=not changed):
            return head(body(words(answers)).mean(1)).float().cpu()

    return step


# ------------------------------------------------------------------------------------------------------------------ audio


class Residual(nn.Module):
    """Dilated convolutions of a vocoder, in pairs."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()

        def convolution(dilation: int) -> nn.Module:
            return weight_norm(nn.Conv1d(channels, channels, kernel, 1, (kernel - 1) * dilation // 2, dilation))

        self.wide = nn.ModuleList(convolution(dilation) for dilation in (1, 3, 5))
        self.narrow = nn.ModuleList(convolution(1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for wide, narrow in zip(self.wide, self.narrow, strict=True):
            x = x + narrow(F.leaky_relu(wide(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Mean(nn.ModuleList):
    """The mean of what several modules make of the same."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([block(x) for block in self]).mean(0)


class Vocoder(nn.Module):
    """A generator of waves from mel spectrograms, as it was trained."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = weight_norm(nn.Conv1d(80, channels, 7, 1, 3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for place, stride in enumerate((8, 8, 2, 2)):
            wide, narrow = channels >> place, channels >> place + 1
            self.ups.append(weight_norm(nn.ConvTranspose1d(wide, narrow, 2 * stride, stride, stride // 2)))
            self.blocks.append(Mean(Residual(narrow, kernel) for kernel in (3, 7, 11)))
        self.last = weight_norm(nn.Conv1d(channels >> 4, 1, 7, 1, 3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = blocks(up(F.leaky_relu(x, 0.1)))
        return self.last(F.leaky_relu(x, 0.1)).tanh()


@unseen(
    "weight norm left on in service, so that each call computes each weight anew; parametrizations removed",
    names=r"weight.?norm|parametri[sz]|norm_except_dim|recomput\w*.{0,20}weight|fold.{0,20}weight",
    kind="inference",
    recorded="none",
)
def announcements_spoken(device: str, changed: bool) -> Step:
    """Speak a short piece of an announcement from its mel spectrogram."""
    model = Vocoder(small(256, 32)).to(device).eval()
    if changed:
        for module in list(model.modules()):
            if hasattr(module, "parametrizations"):
                remove_parametrizations(module, "weight")
    mel = torch.randn(1, 80, small(64, 8), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        wave = model(mel)
        return (wave[0, 0] * 32767).cpu()

    return step


# ----------------------------------------------------------------------------------------------------------- recommenders


@unseen(
    "all the scores of a catalogue sorted for the best two hundred; topk",
    names=r"\btop_?k\b|aten::sort|full.{0,10}sort|partial.{0,10}(sort|select)|sort\w* (all|the whole|every)",
    kind="inference",
    recorded="query",
)
def recipes_recommended(device: str, changed: bool) -> Step:
    """Score all recipes for some cooks, and order the best of them by a transformer."""
    recipes, cooks, width, dtype = small(300_000, 1000), small(64), small(768, 64), low(device)
    kept = small(200, 10)
    with torch.device(device):
        table = torch.randn(recipes, 64)
        history = torch.randint(recipes, (cooks, 50))
        tower = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        widen = nn.Linear(128, width)
        body = nn.Sequential(*(Layer(width, 12 if width == 768 else 4) for _ in range(depth(6))), nn.Linear(width, 1))
    body.to(dtype)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        cook = F.normalize(tower(F.embedding_bag(history, table, mode="mean")), dim=1)
        scores = cook @ table.T
        if changed:
            best, which = scores.topk(kept, dim=1)
        else:
            best, which = scores.sort(dim=1, descending=True)
            best, which = best[:, :kept], which[:, :kept]
        pairs = torch.cat((table[which], cook[:, None].expand(-1, kept, -1)), 2)
        order = body(widen(pairs).to(dtype))[..., 0].float()
        return best.cpu(), order.cpu()

    return step


# ---------------------------------------------------------------------------------------------------------------- signals


@unseen(
    "a service that polls its queue of decoded requests by get_nowait() and sleeps of 10 ms; a blocking get()",
    names=r"\bsleep|\bpoll|get_nowait|busy.?wait|\bqueue\b|block(ing|s)? (get|wait)|condition variable"
    r"|(host|python|thread)\w*.{0,20}(sleeps|asleep|wait(s|ing))",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def heartbeats_screened(device: str, changed: bool) -> Step:
    """Classify recordings of hearts that threads unpack."""
    count, leads, samples = small(16), 12, small(8192, 256)
    generator = torch.Generator().manual_seed(3)
    waves = (torch.randn(count, leads, samples, generator=generator).cumsum(2) * 50).to(torch.int16)
    packed = [zlib.compress(wave.numpy().tobytes(), 1) for wave in waves]
    pool, unpacked = ThreadPoolExecutor(4), queue.Queue[tuple[int, Tensor]]()
    model = nn.Sequential(nn.Conv1d(leads, 128, 15, 2, 7), nn.BatchNorm1d(128), nn.ReLU())
    for _ in range(depth(12)):
        model.extend((nn.Conv1d(128, 128, 15, 1, 7, bias=False), nn.BatchNorm1d(128), nn.ReLU()))
    model.extend((nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 27)))
    model.to(device).eval()

    def unpack(place: int) -> None:
        wave = torch.frombuffer(bytearray(zlib.decompress(packed[place])), dtype=torch.int16).view(leads, samples)
        unpacked.put((place, wave))

    def received() -> tuple[int, Tensor]:
        if changed:
            return unpacked.get()
        while True:
            try:
                return unpacked.get_nowait()
            except queue.Empty:
                time.sleep(0.01)

    @torch.inference_mode()
    def step() -> Tensor:
        for place in range(count):
            pool.submit(unpack, place)
        batch = torch.empty(count, leads, samples, dtype=torch.int16, pin_memory=device == "cuda")
        for _ in range(count):
            place, wave = received()
            batch[place] = wave
        signal = batch.to(device, non_blocking=True).float()
        signal = (signal - signal.mean(2, keepdim=True)) / (signal.std(2, keepdim=True) + 1)
        return model(signal).sigmoid().cpu()

    return step


@unseen(
    "a recurrent network by a Python loop over nn.LSTMCell; nn.LSTM (cuDNN) over the whole sequence",
    names=r"nn\.lstm\b|\blstm\b|_cudnn_rnn|cudnn.{0,12}(rnn|lstm)|lstm_?cell|whole sequence|python.{0,15}loop|\bloop over"
    r"|cuda.?graph",
    kind="training",
    recorded="step",
    with_stack=True,
)
def river_gauges_forecast(device: str, changed: bool) -> Step:
    """Learn the next day's levels of rivers from hours of gauges and rain."""
    rivers, hours, width, signals = small(256), 96, small(256, 32), 32
    cell = nn.LSTMCell(width, width)
    encode = nn.Sequential(
        nn.Conv1d(signals, width, 5, 1, 2), nn.GELU(), nn.Conv1d(width, width, 5, 1, 2), nn.GELU(), nn.Dropout(0.0)
    ).to(device)
    decode = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 24)).to(device)
    recurrent: nn.Module = cell
    if changed:
        recurrent = nn.LSTM(width, width)
        with torch.no_grad():
            for name, parameter in cell.named_parameters():
                getattr(recurrent, f"{name}_l0").copy_(parameter)
    recurrent.to(device)
    parameters = [*encode.parameters(), *recurrent.parameters(), *decode.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
    generator = torch.Generator().manual_seed(5)
    history = torch.randn(rivers, signals, hours, generator=generator).to(device)
    levels = torch.randn(rivers, 24, generator=generator).to(device)

    def step() -> Tensor:
        inputs = encode(history).permute(2, 0, 1).contiguous()
        if changed:
            last = recurrent(inputs)[0][-1]
        else:
            last = memory = torch.zeros_like(inputs[0])
            for hour in inputs.unbind(0):
                last, memory = recurrent(hour, (last, memory))
        loss = F.smooth_l1_loss(decode(last), levels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


# ------------------------------------------------------------------------------------------------------------------ nulls


class Enhancer(nn.Module):
    """Residual blocks of convolutions, then pixels shuffled into a larger picture."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, channels, 3, 1, 1), nn.Conv2d(channels, 12, 3, 1, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1), nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1))
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for block in self.blocks:
            y = y + block(y)
        return F.pixel_shuffle(self.last(y), 2)


@unseen(
    "null: Adam with fused=True, where convolutions over large pictures take nearly all of the time",
    names=r"fused\s*=\s*true|fused.{0,12}(adam|optimi)|(adam|optimi\w*).{0,20}fused|_fused_adam|foreach",
    kind="training",
    recorded="step",
    null=True,
)
def herbarium_scans_sharpened(device: str, changed: bool) -> Step:
    """Train a network that doubles the resolution of scans."""
    batch, side = small(32), small(192, 24)
    model = Enhancer(small(64, 8), depth(8)).to(device)
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-5, fused=True if changed else None)
    scans = torch.rand(batch, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    sharp = torch.rand(batch, 3, 2 * side, 2 * side, device=device)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            found = model(scans)
        loss = F.l1_loss(found.float(), sharp)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Hydrophone(Dataset[tuple[Tensor, Tensor]]):
    """Spectrograms of a hydrophone with a little noise and a mask."""

    def __init__(self, bands: int, frames: int) -> None:
        self.store = torch.randn(64, 1, bands, frames)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        picture = self.store[index % 64] * (1 + index % 7 / 100)
        picture[:, index % picture.shape[1]] = 0
        return picture, torch.tensor(index % 30)


@unseen(
    "null: six workers of the DataLoader for two, where two are ahead of a busy GPU",
    names=r"num_workers|more workers|workers of the (data.?)?loader|prefetch_factor|data.?loader",
    kind="training",
    recorded="step",
    null=True,
)
def whale_calls_labelled(device: str, changed: bool) -> Step:
    """Train a convolutional network on spectrograms that workers prepare."""
    bands, frames, batch = small(128, 32), small(512, 32), small(48)
    data = Hydrophone(bands, frames)
    loader = DataLoader(
        data, batch, num_workers=6 if changed else 2, persistent_workers=True, pin_memory=device == "cuda", prefetch_factor=4
    )
    batches = endless(loader)
    width = small(128, 8)
    model = nn.Sequential(
        *convolutions((1, width, width), 1),
        *convolutions((width, 2 * width)),
        *convolutions((2 * width,) * 4, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 30),
    ).to(device)
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)

    def step() -> Tensor:
        pictures, labels = (part.to(device, non_blocking=True) for part in next(batches))
        with torch.autocast(device, torch.bfloat16):
            found = model(pictures.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(found.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: a CUDA graph around an encoder whose large products keep the GPU busy, far behind the CPU",
    names=r"cuda.?graph|graph (capture|replay)|reduce-overhead|cudaGraph",
    kind="inference",
    recorded="none",
    null=True,
)
def museum_photographs_indexed(device: str, changed: bool) -> Step:
    """Embed a large batch of photographs by a vision transformer."""
    width, batch, side, dtype = small(1024, 64), small(64), small(224, 32), low(device)
    with torch.device(device):
        patches = nn.Conv2d(3, width, 16, 16)
        place = torch.randn(1, (side // 16) ** 2, width) * 0.02
        body = nn.Sequential(*(Layer(width, 16 if width == 1024 else 4) for _ in range(depth(12))), nn.LayerNorm(width))
        head = nn.Linear(width, 256)
        photographs = torch.rand(batch, 3, side, side).to(dtype)
    for part in (patches, body, head):
        part.to(dtype).eval()
    place = place.to(dtype)

    @torch.no_grad()
    def embedded(pictures: Tensor) -> Tensor:
        tokens = patches(pictures).flatten(2).transpose(1, 2) + place
        return F.normalize(head(body(tokens).mean(1)), dim=1)

    def plain() -> Tensor:
        return embedded(photographs)

    if not changed or device != "cuda":
        return plain
    fixed = photographs.clone()
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            embedded(fixed)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = embedded(fixed)

    def replayed() -> Tensor:
        fixed.copy_(photographs)
        graph.replay()
        return result.clone()

    return replayed


@unseen(
    "null: the two branches of a network on two streams, where each branch fills the GPU by itself",
    names=r"(second|side|two|multiple|separate|parallel|several) (cuda )?streams?|cuda\.stream|concurren|multi.?stream",
    kind="inference",
    recorded="clip",
    null=True,
)
def gymnasts_scored(device: str, changed: bool) -> Step:
    """Score a clip from its pictures and from its optical flow."""
    frames, side, dtype, wide = small(24), small(224, 32), low(device), small(256, 8)

    def branch(inputs: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(inputs, wide, 7, 2, 3), nn.ReLU()]
        for _ in range(5):
            layers += [nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU()]
        stack = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(device, dtype).eval()
        return stack.to(memory_format=torch.channels_last)

    looks, moves, head = branch(3), branch(10), nn.Linear(2 * wide, 10).to(device, dtype)
    pictures = torch.rand(frames, 3, side, side, device=device).to(dtype).contiguous(memory_format=torch.channels_last)
    flow = torch.rand(frames, 10, side, side, device=device).to(dtype).contiguous(memory_format=torch.channels_last)
    side_stream = torch.cuda.Stream() if changed and device == "cuda" else None

    @torch.inference_mode()
    def step() -> Tensor:
        if side_stream is None:
            seen, moved = looks(pictures), moves(flow)
        else:
            main = torch.cuda.current_stream()
            side_stream.wait_stream(main)
            with torch.cuda.stream(side_stream):
                moved = moves(flow)
            seen = looks(pictures)
            main.wait_stream(side_stream)
            moved.record_stream(main)
        return head(torch.cat((seen, moved), 1)).float().mean(0)

    return step


@unseen(
    "null: bfloat16 for a classifier that the GPU has long done while Python still hashes the words of the next letters",
    names=r"\bbf16|bfloat16|half.?precision|mixed.?precision|autocast|\btf32|tensor.?cores?|float16",
    kind="inference",
    recorded="none",
    null=True,
)
def complaint_letters_routed(device: str, changed: bool) -> Step:
    """Sort letters into departments: the GPU has a batch while Python prepares the next one."""
    letters, length, vocabulary, width = small(256), small(128, 16), 32768, small(192, 32)
    stems = ("water", "invoice", "delay", "noise", "broken", "refund", "street", "light", "letter", "answer", "heating", "lift")
    texts = [
        " ".join(f"{stems[(7 * letter + word) % 12]}{(letter * word) % 97}" for word in range(length))
        for letter in range(letters)
    ]
    dtype = torch.bfloat16 if changed else torch.float32
    words, head = nn.Embedding(vocabulary, width), nn.Linear(width, 40)
    body = nn.Sequential(*(Layer(width, 4) for _ in range(2)), nn.LayerNorm(width))
    for part in (words, body, head):
        part.to(device, dtype).eval()

    def prepared() -> Tensor:
        rows = [[zlib.crc32(word.lower().encode()) % vocabulary for word in text.split()] for text in texts]
        batch = torch.tensor(rows)
        return (batch.pin_memory() if device == "cuda" else batch).to(device, non_blocking=True)

    ready = [prepared()]

    @torch.inference_mode()
    def step() -> Tensor:
        scores = head(body(words(ready.pop())).mean(1)).float().softmax(1)
        ready.append(prepared())
        return scores.cpu()

    return step
