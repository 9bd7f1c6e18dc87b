"""A thirteenth set of small programs, for a GPU and for two cores, with one performance fault each, written without a look at
the reader. The faults are ones that people's programs have most often.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
import tempfile
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import endless, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def half(device: str) -> torch.dtype:
    """Return bfloat16, or float32 on a CPU, where the GPU's pairs are only tried."""
    return torch.float32 if device == "cpu" else torch.bfloat16


def mixed(device: str) -> torch.autocast:
    """Return autocast to bfloat16, which is off on a CPU."""
    return torch.autocast(device, torch.bfloat16, enabled=device != "cpu")


class Layer(nn.Module):
    """A layer of a transformer, with the norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in "ab")
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.view(len(x), x.shape[1], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        q, k, v = self.split(self.turn(self.norms[0](x)))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Residual(nn.Module):
    """Two convolutions with batch norms, and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


def pictures_net(widths: tuple[int, ...], residuals: int = 1, channels: int = 3) -> nn.Sequential:
    """Stack stages, each of which halves the picture and then has some residual blocks."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((channels, *widths)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [Residual(outputs) for _ in range(residuals)]
    return nn.Sequential(*layers)


# For the GPU, with a fault.


@unseen(
    "autograd's anomaly detection was left on after a hunt for a NaN, so each operation keeps its traceback and the host looks "
    "at every gradient of the backward pass; off (set_detect_anomaly(False)), but for a hunt",
    names=r"anomal|(nan|not.a.number|non.?finite).?check|check\w* .*\bnans?\b|\bisnan\b|aten::(isnan|ne)\b.*backward",
    kind="training",
    recorded="step",
    with_stack=True,
)
def dialects_told_by_ear(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, frames, width = small(32), small(1500, 32), small(512, 64)
    enter, leave = nn.Conv1d(80, width, 5, 2, 2), nn.Linear(width, 24)
    layers = nn.ModuleList(Layer(width, 8) for _ in range(10))
    model = nn.ModuleList([enter, leave, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    mels, dialects = torch.randn(rows, 80, frames, device=device), torch.randint(24, (rows,), device=device)

    def step() -> Tensor:
        with torch.autograd.set_detect_anomaly(not changed):
            with mixed(device):
                x = F.gelu(enter(mels)).transpose(1, 2)
                for layer in layers:
                    x = layer(x)
                loss = F.cross_entropy(leave(x.mean(1)), dialects)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Scans(Dataset[tuple[Tensor, int]]):
    """Ultrasound pictures, cut, mirrored and brightened when asked for."""

    def __init__(self, scans: int, side: int, cut: int) -> None:
        rng = np.random.default_rng(2)
        self.pictures = rng.integers(256, size=(48, side, side, 3), dtype=np.uint8)
        self.scans, self.cut = scans, cut

    def __len__(self) -> int:
        return self.scans

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng(at)
        top, left = rng.integers(self.pictures.shape[1] - self.cut, size=2)
        part = self.pictures[at % 48, top : top + self.cut, left : left + self.cut].astype(np.float32) / 255
        part = np.clip((part - 0.5) * rng.uniform(0.7, 1.3) + 0.5 + rng.uniform(-0.2, 0.2), 0, 1)
        if rng.random() < 0.5:
            part = part[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(part.transpose(2, 0, 1), dtype=np.float32)), at % 7


@unseen(
    "the loader has no workers, so the pictures are cut, mirrored and brightened by numpy in the training process while the GPU "
    "waits; num_workers=6, which make the next batches meanwhile",
    names=r"num_workers|\bworkers?\b|data.?load|prefetch|__getitem__|_next_data|input pipeline|background (thread|process)"
    r"|augment\w* .*(gpu|cach|ahead|parallel|process)",
    kind="training",
    recorded="step",
)
def ultrasound_scans_sorted(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    workers: dict[str, Any] = {"num_workers": 6 if device != "cpu" else 2, "persistent_workers": True} if changed else {}
    data = Scans(9600, 256 if SCALE == 1 else 96, 176 if SCALE == 1 else 64)
    loader = DataLoader(data, small(32), shuffle=True, generator=torch.Generator().manual_seed(2), **workers)
    net = pictures_net((64, 128, 256, 512), 2)
    model = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 7)).to(device)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    batches = endless(loader)

    def step() -> Tensor:
        scans, kinds = next(batches)
        with mixed(device):
            loss = F.cross_entropy(model(scans.to(device).contiguous(memory_format=torch.channels_last)), kinds.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the matrix products of a surrogate for plasma profiles run in full float32, the default; TF32 "
    "(set_float32_matmul_precision('high')), or autocast to bfloat16",
    names=r"tf32|float32_matmul_precision|tensor.?cores?|bf16|bfloat16|autocast|\bamp\b|mixed.precision|half.precision"
    r"|lower.precision",
    kind="training",
    recorded="none",
)
def plasma_profiles_fitted(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    points, width = small(98304, 512), small(384, 64)
    layers: list[nn.Module] = [nn.Linear(12, width), nn.SiLU()]
    for _ in range(6):
        layers += [nn.Linear(width, width), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    shots, profiles = torch.randn(points, 12, device=device), torch.randn(points, 4, device=device)

    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        loss = F.smooth_l1_loss(model(shots), profiles)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.set_float32_matmul_precision("highest")
        return loss.detach()

    return step


@unseen(
    "a diffusion policy takes hundreds of tiny kernels for one chunk of actions, launched one by one from Python, so the GPU "
    "mostly waits for the host; all denoising steps captured in a CUDA graph and replayed (or compile with reduce-overhead)",
    names=r"cuda.?graph|make_graphed|reduce.overhead|torch\.compile|(launch|host|cpu|overhead).?bound|kernel launches"
    r"|launch\w* (overhead|cost|latency|each|one by one)",
    kind="inference",
    recorded="none",
)
def gripper_follows_diffusion(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    width, moves, steps = 256, 16, small(12)
    enter, see, leave = nn.Linear(7, width), nn.Linear(64, width), nn.Linear(width, 7)
    layers = nn.ModuleList(Layer(width, 4) for _ in range(5))
    nn.ModuleList([enter, see, leave, layers]).to(device).eval()
    times = torch.randn(steps, width, device=device)
    keep = torch.linspace(0.05, 0.95, steps).tolist()
    sight, noise = torch.randn(1, 64, device=device), torch.randn(1, moves, 7, device=device)
    seen, start = sight.clone(), noise.clone()

    def act() -> Tensor:
        x, scene = start, see(seen)[:, None]
        for at in range(steps):
            states = torch.cat([scene, enter(x) + times[at]], 1)
            for layer in layers:
                states = layer(states)
            x = keep[at] * x + (1 - keep[at]) * leave(states[:, 1:]).tanh()
        return x

    replay: Callable[[], Tensor] = act
    if changed and device != "cpu":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                act()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            static = act()

        def graphed() -> Tensor:
            graph.replay()
            return static.clone()

        replay = graphed

    @torch.no_grad()
    def step() -> Tensor:
        seen.copy_(sight)
        start.copy_(noise)
        return replay()

    return step


class Listener(nn.Module):
    """A layer with PyTorch's own attention module."""

    def __init__(self, width: int, heads: int, needed: bool) -> None:
        super().__init__()
        self.needed = needed
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in "ab")
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, need_weights=self.needed)[0]
        return x + self.mlp(self.norms[1](x))


@unseen(
    "nn.MultiheadAttention is called as by default, so it writes out the weights of attention and averages them over the heads, "
    "though no one looks at them; need_weights=False, which takes the fused attention",
    names=r"need_weights|(attention|attn).?weights|average_attn|scaled_dot_product|\bsdpa\b|flash|fused attention"
    r"|(materiali[sz]|writ)\w* .*(scores|attention)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def instruments_of_an_orchestra(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, patches, width = small(16), small(1024, 64), small(768, 96)
    enter, leave = nn.Linear(256, width), nn.Linear(width, 40)
    layers = nn.ModuleList(Listener(width, 12, not changed) for _ in range(5))
    model = nn.ModuleList([enter, leave, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    spectra = torch.randn(rows, patches, 256, device=device)
    heard = (torch.rand(rows, 40, device=device) < 0.2).float()

    def step() -> Tensor:
        with mixed(device):
            x = enter(spectra)
            for layer in layers:
                x = layer(x)
            loss = F.binary_cross_entropy_with_logits(leave(x.mean(1)), heard)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "to find the rank of the article really bought, all 100000 scores of each customer are sorted and searched for it; count the "
    "scores that are higher than its own",
    names=r"arg.?sort|aten::sort|\bsort(s|ed|ing)?\b(?! by (their )?length)|radix|top.?k|count\w* .*(greater|higher|above|larger)"
    r"|(greater|higher|above|larger) .*\bcount",
    kind="inference",
    recorded="evaluate",
)
def next_purchase_ranked(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    rows, length, width, articles = small(256, 8), small(256, 16), 256, small(100_000, 1000)
    table = nn.Embedding(articles, width).to(device)
    layers = nn.ModuleList(Layer(width, 4) for _ in range(6)).to(device=device, dtype=half(device)).eval()
    bought = torch.randint(articles, (rows, length), device=device)
    truth = torch.randint(articles, (rows, 1), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = table(bought).to(half(device))
        for layer in layers:
            x = layer(x, causal=True)
        scores = x[:, -1].float() @ table.weight.T
        if changed:
            rank = (scores > scores.gather(1, truth)).sum(1)
        else:
            rank = (scores.argsort(1, descending=True) == truth).int().argmax(1)
        return torch.stack([(1 / (rank + 1)).mean(), (rank < 10).float().mean(), (1 / (rank + 2).log2()).mean()])

    return step


@unseen(
    "the norms of each weight and of its gradient are fetched with .item() for the log in every step, and the host waits for the "
    "GPU for each of them; all norms together (torch._foreach_norm), one copy to the host (or a log now and then)",
    names=r"\.item\b|item\(\)|_local_scalar_dense|foreach_norm|\bsync|(one|single) (copy|transfer|fetch)"
    r"|waits? for the (gpu|device)|log\w* (less|every|only)|(norms?|scalars?) .*(together|stack|at once)",
    kind="training",
    recorded="none",
    with_stack=True,
)
def recipes_written_by_model(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows, length, width, vocabulary = small(16), small(768, 32), small(512, 64), small(8192, 256)
    embed, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
    layers = nn.ModuleList(Layer(width, 8) for _ in range(12))
    model = nn.ModuleList([embed, head, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(vocabulary, (rows, length + 1), device=device)
    weights = list(model.parameters())

    def watched() -> list[float]:
        grads = [weight.grad for weight in weights if weight.grad is not None]
        if changed:
            return torch.stack(torch._foreach_norm([weight.detach() for weight in weights] + grads)).tolist()
        return [tensor.detach().norm().item() for tensor in [*weights, *grads]]

    def step() -> tuple[Tensor, float]:
        with mixed(device):
            x = embed(words[:, :-1])
            for layer in layers:
                x = layer(x, causal=True)
            loss = F.cross_entropy(head(x).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        norms = watched()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), sum(norms)

    return step


@unseen(
    "the boxes above the threshold are picked with a boolean mask for each camera and each class in a Python loop, and the host "
    "waits for the GPU at each; one nonzero over the scores of all cameras and classes",
    names=r"nonzero|boolean|mask(ed)?.?(index|select)|index\w* (with|by) (a )?mask"
    r"|(class|camera|image) (by|after) (class|camera|image)|loop over"
    r"|(per|each).(class|camera)|vectori[sz]|\bsync|waits? for the (gpu|device)|_local_scalar_dense"
    r"|all (the )?classes (at once|together)",
    kind="inference",
    recorded="frame",
)
def crossings_seen_by_cameras(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    cameras, kinds, high, wide = 6, small(10, 4), 512 if SCALE == 1 else 64, 960 if SCALE == 1 else 96
    net = pictures_net((64, 128, 256, 384), 2)
    head = nn.Conv2d(384, 4 + kinds, 1, bias=False)
    nn.ModuleList([net, head]).to(device=device, dtype=half(device)).to(memory_format=torch.channels_last).eval()
    frames = torch.rand(cameras, 3, high, wide, device=device, dtype=half(device)).to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor, Tensor]:
        found = head(net(frames)).flatten(2).transpose(1, 2).float()
        boxes, scores = found[..., :4].exp(), found[..., 4:]
        scores = ((scores - scores.mean(1, keepdim=True)) / (scores.std(1, keepdim=True) + 1e-12) - 2.3).sigmoid()
        if changed:
            camera, kind, place = (scores.transpose(1, 2) > 0.5).nonzero(as_tuple=True)
            return boxes[camera, place].cpu(), scores[camera, place, kind].cpu(), kind.cpu()
        parts: list[list[Tensor]] = [[], [], []]
        for camera in range(cameras):
            for kind in range(kinds):
                good = scores[camera, :, kind] > 0.5
                parts[0].append(boxes[camera][good])
                parts[1].append(scores[camera, :, kind][good])
                parts[2].append(torch.full_like(parts[1][-1], kind, dtype=torch.long))
        joined = [torch.cat(part).cpu() for part in parts]
        return joined[0], joined[1], joined[2]

    return step


@unseen(
    "the neighbours' states of a power grid are summed by a product with its dense adjacency matrix, of which one number in "
    "a thousand is not zero; gather and index_add along the lines (or a sparse matrix)",
    names=r"sparse|dense.?adjacency|adjacency|index_add|scatter|\bspmm\b|\bcsr\b|\bcoo\b|edge.?(list|index)"
    r"|(mostly|nearly all) zero",
    kind="training",
    recorded="step",
)
def power_grid_states_estimated(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    nodes, degree, width = small(12288, 256), 12, 128
    lines = torch.randint(nodes, (2, nodes * degree), device=device)
    strength = torch.rand(nodes * degree, 1, device=device) / degree
    grid = torch.zeros(1, device=device)
    if not changed:
        grid = torch.zeros(nodes, nodes, device=device).index_put((lines[0], lines[1]), strength[:, 0], accumulate=True)
    enter, leave = nn.Linear(10, width), nn.Linear(width, 2)
    mixes = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.LayerNorm(width)) for _ in range(4))
    model = nn.ModuleList([enter, leave, mixes]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    measured, states = torch.randn(nodes, 10, device=device), torch.randn(nodes, 2, device=device)

    def neighbours(x: Tensor) -> Tensor:
        if changed:
            return torch.zeros_like(x).index_add(0, lines[0], x[lines[1]] * strength)
        return grid @ x

    def step() -> Tensor:
        x = enter(measured)
        for mix in mixes:
            x = x + mix(torch.cat([x, neighbours(x)], 1))
        loss = F.mse_loss(leave(x), states)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "waves come from numpy as float64 in pageable memory, are copied so to the GPU, and become float32 there; float32 in pinned "
    "memory on the host, copied without waiting",
    names=r"float64|\bdoubles?\b|\bfp64\b|float32 (on|in|before)|pin(ned|ning)?.?memory|pinned|pageable|non_blocking"
    r"|host.to.device|\bhtod\b",
    kind="training",
    recorded="none",
    record_shapes=False,
)
def tremors_dated_by_waves(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    rows, length, rng = small(192, 4), small(6000, 256), np.random.default_rng(10)
    waves = [rng.standard_normal((rows, 6, length)) for _ in range(3)]
    ready = [torch.from_numpy(wave).float() for wave in waves] if changed else []
    if changed and device != "cpu":
        ready = [wave.pin_memory() for wave in ready]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((6, 96, 192, 256, 256, 384, 384)):
        layers += [nn.Conv1d(inputs, outputs, 7, 2, 3), nn.BatchNorm1d(outputs), nn.ReLU()]
        layers += [nn.Conv1d(outputs, outputs, 7, 1, 3), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(384, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    arrivals, at = torch.rand(rows, 2, device=device), 0

    def step() -> Tensor:
        nonlocal at
        at = (at + 1) % 3
        x = ready[at].to(device, non_blocking=True) if changed else torch.from_numpy(waves[at]).to(device).float()
        with mixed(device):
            loss = F.smooth_l1_loss(model(x), arrivals)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "three losses go backward one after the other with retain_graph=True, each through the whole shared trunk; one backward pass "
    "of their sum, which gives the same gradients",
    names=r"retain_graph|(one|single) backward|(sum|add)\w* .*\bloss|\bloss\w* .*(sum|added|together)"
    r"|backward.*(three times|thrice|twice|once|several|(each|per|every) loss)|(three|several|repeated|multiple) backward"
    r"|(trunk|backbone) .*(three times|again|repeated|more than once)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def harvester_sees_three_things(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    rows, high, wide = small(16), 256 if SCALE == 1 else 64, 384 if SCALE == 1 else 64
    trunk = pictures_net((64, 128, 256), 2)
    heads = nn.ModuleList(
        nn.Sequential(nn.Conv2d(256, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, outputs, 1)) for outputs in (1, 9, 2)
    )
    model = nn.ModuleList([trunk, heads]).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    fields = torch.rand(rows, 3, high, wide, device=device).to(memory_format=torch.channels_last)
    depth = torch.rand(rows, 1, high // 8, wide // 8, device=device)
    plants = torch.randint(9, (rows, high // 8, wide // 8), device=device)
    drive = torch.randn(rows, 2, high // 8, wide // 8, device=device)

    def step() -> Tensor:
        with mixed(device):
            x = trunk(fields)
            far, kinds, way = (head(x) for head in heads)
            losses = [F.l1_loss(far, depth), F.cross_entropy(kinds, plants), F.mse_loss(way, drive)]
        if changed:
            torch.stack(losses).sum().backward()
        else:
            losses[0].backward(retain_graph=True)
            losses[1].backward(retain_graph=True)
            losses[2].backward()
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).detach()

    return step


def graded(film: Tensor, knobs: Tensor) -> Tensor:
    """Grade the colours of frames by hand-written curves."""
    lift, gamma, gain, toe = knobs[:, :, None, None].unbind(-1)
    x = film * gain + lift
    x = torch.clamp(x, min=1e-4)
    x = x**gamma
    filmic = (x * (2.51 * x + 0.03)) / (x * (2.43 * x + 0.59) + 0.14)
    x = torch.where(x < toe, x * 0.9, filmic)
    grey = (0.2126 * x[:, 0] + 0.7152 * x[:, 1] + 0.0722 * x[:, 2])[:, None]
    x = grey + 1.15 * (x - grey)
    shade = torch.exp(-4 * grey)
    x = x * (1 - 0.2 * shade) + 0.02 * shade
    return torch.where(x <= 0.0031308, 12.92 * x, 1.055 * torch.clamp(x, min=1e-6) ** (1 / 2.4) - 0.055)


@unseen(
    "colours of large frames are graded by some thirty small operations, each of which reads and writes all frames; "
    "torch.compile, which makes one kernel of them",
    names=r"torch\.compile|\bcompil|triton|(element|point).?wise|one kernel|\bfus\w* .*(operations|\bops\b|kernels|chain)",
    kind="inference",
    recorded="grade",
)
def films_given_old_colours(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    frames, high, wide = small(4, 1), small(1620, 64), small(2880, 96)
    net = nn.Sequential(pictures_net((64, 128, 256, 384), 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(384, 12))
    net.to(device=device, dtype=half(device)).to(memory_format=torch.channels_last).eval()
    film = torch.rand(frames, 3, high, wide, device=device)
    spread, least = torch.tensor(((0.1, 0.5, 0.4, 0.05), (0.0, 0.8, 0.8, 0.0)), device=device)
    grade = torch.compile(graded, dynamic=False) if changed else graded

    @torch.no_grad()
    def step() -> Tensor:
        view = F.interpolate(film, size=(small(512, 64), small(896, 64)), mode="bilinear")
        knobs = net(view.to(half(device)).contiguous(memory_format=torch.channels_last)).float().sigmoid().view(frames, 3, 4)
        return grade(film, knobs * spread + least)

    return step


@unseen(
    "the scores of all eight organs are copied to the host as float32, and the argmax is taken there; argmax on the GPU, only "
    "the labels copied, as uint8",
    names=r"argmax|(reduc|cop|fetch|transfer)\w* (only|less|the labels|fewer|smaller)|device.to.host|\bdtoh\b"
    r"|(scores|logits) .*(to the (host|cpu)|before .*cop)|smaller (copy|transfer)|\.cpu\(\)",
    kind="inference",
    recorded="volume",
    record_shapes=False,
)
def organs_outlined_in_scan(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    slices, side, width, organs = small(8, 1), 512 if SCALE == 1 else 64, small(96, 16), 8
    down = pictures_net((width, 2 * width, 4 * width), 2, 1)
    rise = nn.ModuleList(
        nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 2, 2), nn.BatchNorm2d(outputs), nn.ReLU(), Residual(outputs))
        for inputs, outputs in pairwise((4 * width, 2 * width, width, width))
    )
    head = nn.Conv2d(width, organs, 1, bias=False)
    nn.ModuleList([down, rise, head]).to(device=device, dtype=half(device)).to(memory_format=torch.channels_last).eval()
    scan = torch.randn(slices, 1, side, side, device=device, dtype=half(device))

    @torch.inference_mode()
    def step() -> Tensor:
        x = down(scan)
        for part in rise:
            x = part(x)
        scores = head(x).float()
        return scores.argmax(1).to(torch.uint8).cpu() if changed else scores.cpu().argmax(1).to(torch.uint8)

    return step


# For the GPU, a change that brings nothing.


@unseen(
    "none: a network on a single GPU is wrapped in DataParallel, which calls it as it is there; without the wrapper",
    names=r"DataParallel|data.parallel|\breplica",
    kind="inference",
    recorded="none",
    null=True,
    with_stack=True,
)
def welds_checked_by_x_ray(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, side = small(48), 320 if SCALE == 1 else 64
    model: nn.Module = nn.Sequential(pictures_net((96, 192, 384, 512), 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(512, 5)).to(device=device, dtype=half(device)).to(memory_format=torch.channels_last)
    model.eval()
    if not changed:
        model = nn.DataParallel(model, device_ids=None if device == "cpu" else [0])
    welds = torch.randn(rows, 1, side, side, device=device, dtype=half(device))

    @torch.inference_mode()
    def step() -> Tensor:
        return model(welds).float().softmax(1)

    return step


@unseen(
    "none: after each word the host asks whether all texts have ended, while a word takes the GPU milliseconds; ask after every "
    "fourth word",
    names=r"\.item\b|item\(\)|_local_scalar_dense|\bsync|\beos\b|end.of.(text|sequence)|every (few|n|fourth) (word|token)"
    r"|waits? for the (gpu|device)",
    kind="inference",
    recorded="reply",
    null=True,
)
def letters_answered_for_office(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, width, heads, places, words = small(48), small(2048, 128), 16, small(1024, 64), 8
    vocabulary, dtype = small(32000, 500), half(device)
    with torch.device(device):
        embed, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        layers = [Layer(width, heads) for _ in range(small(20))]
    nn.ModuleList([embed, head, *layers]).to(dtype=dtype).eval()
    shape = (rows, heads, places, width // heads)
    caches = [torch.randn(shape, device=device, dtype=dtype) * 0.3 for _ in range(2 * len(layers))]

    @torch.inference_mode()
    def step() -> Tensor:
        word, chosen = torch.ones(rows, 1, dtype=torch.long, device=device), []
        ended = torch.zeros(rows, 1, dtype=torch.bool, device=device)
        for at in range(words):
            x, full = embed(word), places - words + at
            for number, layer in enumerate(layers):
                q, k, v = layer.split(layer.turn(layer.norms[0](x)))
                keys, values = caches[2 * number], caches[2 * number + 1]
                keys[:, :, full], values[:, :, full] = k[:, :, 0], v[:, :, 0]
                y = F.scaled_dot_product_attention(q, keys[:, :, : full + 1], values[:, :, : full + 1])
                x = x + layer.out(y.transpose(1, 2).flatten(2))
                x = x + layer.mlp(layer.norms[1](x))
            word = head(x[:, -1]).argmax(1, keepdim=True)
            chosen.append(word)
            ended = ended | (word == 2)
            if (not changed or at % 4 == 3) and bool(ended.all()):
                break
        return torch.cat(chosen, 1)

    return step


@unseen(
    "none: a frozen encoder, whose weights require no gradients, is called without no_grad, and autograd records nothing of it; "
    "torch.no_grad() around it",
    names=r"no_grad|inference_mode|detach|requires_grad|frozen|(?<!gc\.)freez",
    kind="training",
    recorded="step",
    null=True,
)
def herbarium_sheets_probed(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, width, side = small(128), small(768, 96), 224 if SCALE == 1 else 64
    cut = nn.Conv2d(3, width, 16, 16)
    layers = nn.ModuleList(Layer(width, 12) for _ in range(10))
    nn.ModuleList([cut, layers]).to(device=device, dtype=half(device)).requires_grad_(False)
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, 900)).to(device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    sheets = torch.randn(rows, 3, side, side, device=device, dtype=half(device))
    plants = torch.randint(900, (rows,), device=device)

    def step() -> Tensor:
        with torch.set_grad_enabled(not changed):
            x = cut(sheets).flatten(2).transpose(1, 2)
            for layer in layers:
                x = layer(x)
        loss = F.cross_entropy(head(x.float().mean(1)), plants)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Threefold(nn.Module):
    """Attention with one projection for queries, keys and values, or with three."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in "ab")
        self.out = nn.Linear(width, width, bias=False)
        turns = [nn.Linear(width, width, bias=False) for _ in range(3)]
        self.turns = nn.ModuleList(turns)
        if fused:
            turn = nn.Linear(width, 3 * width, bias=False, device="meta")
            turn.weight = nn.Parameter(torch.cat([part.weight.detach() for part in turns]))
            self.turns = nn.ModuleList([turn])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        parts = self.turns[0](y).chunk(3, -1) if self.fused else [turn(y) for turn in self.turns]
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


@unseen(
    "none: queries, keys and values come of three large products, each of which fills the GPU; one product of the joined weights",
    names=r"qkv|q,? ?k,? (and )?v\b|(fuse|join|merge|combin|concatenat|stack)\w* .*(projection|linear|product)"
    r"|(one|single) (projection|linear|product|matmul|gemm)|three (projections|linear|products)",
    kind="training",
    recorded="step",
    null=True,
    record_shapes=False,
)
def statutes_learnt_by_heart(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    rows, length, width, vocabulary = small(8), small(1024, 32), small(2048, 128), small(16384, 256)
    embed, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
    layers = nn.ModuleList(Threefold(width, 16, changed) for _ in range(4))
    model = nn.ModuleList([embed, head, layers]).to(device=device, dtype=half(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    words = torch.randint(vocabulary, (rows, length + 1), device=device)

    def step() -> Tensor:
        x = embed(words[:, :-1])
        for layer in layers:
            x = layer(x)
        loss = F.cross_entropy(head(x).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the numbers of the words are copied to the GPU as int64, a quarter of a megabyte; as int32, which are half as many "
    "bytes",
    names=r"int32|int64|torch\.long|narrower|smaller (dtype|type|copy|integer)|half (the|as many) bytes",
    kind="inference",
    recorded="embed",
    null=True,
)
def job_offers_embedded(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, length, width, vocabulary = small(128), small(256, 16), small(768, 96), 30000
    embed = nn.Embedding(vocabulary, width)
    layers = nn.ModuleList(Layer(width, 12) for _ in range(8))
    nn.ModuleList([embed, layers]).to(device=device, dtype=half(device)).eval()
    words = torch.randint(vocabulary, (rows, length), dtype=torch.int32 if changed else torch.int64)
    if device != "cpu":
        words = words.pin_memory()

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(words.to(device, non_blocking=True))
        for layer in layers:
            x = layer(x)
        return F.normalize(x.float().mean(1), dim=1).cpu()

    return step


# For two cores, with a fault.


@unseen(
    "a GRU is called for each hour by itself, although the readings of all hours are known; one call with the whole series",
    names=r"(whole|full|entire) (input )?(sequence|series)|all (the )?(hours|time.?steps|steps) (at once|together|in one)"
    r"|(one|single) call|(step|hour|frame) by (step|hour|frame)"
    r"|loop over (the )?(time|hours|steps)|(per|each|every).(hour|time.?step)|sequence at once|vectori[sz]",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def river_levels_learnt_by_hour(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, hours, width = 48, 72, 96
    enter, leave = nn.Sequential(nn.Linear(14, width), nn.Tanh()), nn.Linear(width, 3)
    memory = nn.GRU(width, width, batch_first=True)
    model = nn.ModuleList([enter, leave, memory]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    rain, levels = torch.randn(rows, hours, 14, device=device), torch.randn(rows, hours, 3, device=device)

    def step() -> Tensor:
        x = enter(rain)
        if changed:
            states = memory(x)[0]
        else:
            state, parts = torch.zeros(1, rows, width, device=device), []
            for hour in range(hours):
                part, state = memory(x[:, hour : hour + 1], state)
                parts.append(part)
            states = torch.cat(parts, 1)
        loss = F.mse_loss(leave(states), levels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "hits are counted in a Python loop that compares the prediction of each review with its label; one comparison of the whole "
    "batch and a sum",
    names=r"vectori[sz]|loop over|(one|single) (comparison|sum|operation)|(element|sample|example|review|item) by "
    r"(element|sample|example|review|item)|\.item\b|item\(\)|_local_scalar_dense|is_nonzero|aten::eq\b|one at a time"
    r"|(whole|entire) batch|accuracy",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def hotel_reviews_graded(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    rows, length, width = 512, 40, 64
    embed = nn.Embedding(4000, width)
    net = nn.Sequential(nn.Conv1d(width, 96, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(96, 5))
    model = nn.ModuleList([embed, net]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    words, grades = torch.randint(4000, (rows, length), device=device), torch.randint(5, (rows,), device=device)

    def step() -> tuple[Tensor, float]:
        guess = net(embed(words).transpose(1, 2))
        loss = F.cross_entropy(guess, grades)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        best = guess.argmax(1)
        if changed:
            right = int((best == grades).sum())
        else:
            right = 0
            for one, grade in zip(best, grades, strict=True):
                if one == grade:
                    right += 1
        return loss.detach(), right / rows

    return step


@unseen(
    "every block of a small network is checkpointed, as in the large network that the code comes from, so its forward pass runs "
    "twice although there is memory enough; without checkpoints",
    names=r"checkpoint|recomput|forward .*(twice|again|second time)",
    kind="training",
    recorded="step",
    on=("cpu",),
    profile_memory=True,
)
def corals_counted_under_water(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    parts = [pictures_net((24,), 1), pictures_net((48,), 1, 24), pictures_net((96,), 1, 48)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 1))
    for part in [*parts, head]:
        for norm in part.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.momentum = 0.0
    model = nn.ModuleList([*parts, head]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    photos, counts = torch.rand(10, 3, 96, 96, device=device), torch.rand(10, 1, device=device)

    def step() -> Tensor:
        x = photos
        for part in parts:
            x = part(x) if changed else checkpoint(part, x, use_reentrant=False)
        loss = F.smooth_l1_loss(head(x), counts)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the vectors of all words of a document are looked up, written out and averaged; nn.EmbeddingBag, which averages as it reads",
    names=r"embedding.?bag|(materiali[sz]|writ)\w* .*(embedding|vectors|lookups?)|(fuse|combin)\w* .*(mean|sum|averag|pool)"
    r"|bag.of.words",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def patents_filed_by_class(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    rows, length, width, vocabulary = 96, 400, 64, 8000
    table = nn.Embedding(vocabulary, width)
    bag = nn.EmbeddingBag.from_pretrained(table.weight.detach().clone(), freeze=False, mode="mean")
    words_of: nn.Module = bag if changed else table
    net = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 120))
    model = nn.ModuleList([words_of, net]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    words, classes = torch.randint(vocabulary, (rows, length), device=device), torch.randint(120, (rows,), device=device)

    def step() -> Tensor:
        x = words_of(words) if changed else words_of(words).mean(1)
        loss = F.cross_entropy(net(x), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "histograms of every weight and of its gradient are made for the log in every step; in every hundredth",
    names=r"histogram|\bhistc\b|searchsorted|bincount|log\w* .*(less|every|rarer|seldom|fewer|hundred)|(less|rarer|seldom) .*log"
    r"|every (few|n|\d+|hundred)\w* steps?|monitor",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def bakery_demand_forecast(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    rows, width = 512, 384
    net = nn.Sequential(
        *(nn.Linear(160, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 14),
    ).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    past, sold, number = torch.randn(rows, 160, device=device), torch.rand(rows, 14, device=device), 0
    edges = torch.linspace(-1, 1, 65, device=device)
    log: dict[str, Tensor] = {}

    def histogram(values: Tensor) -> Tensor:
        return torch.histogram(values.detach().flatten(), edges).hist

    def step() -> Tensor:
        nonlocal number
        number += 1
        loss = F.smooth_l1_loss(net(past), sold)
        loss.backward()
        if not changed or number % 100 == 0:
            for name, weight in net.named_parameters():
                log[name] = histogram(weight)
                if weight.grad is not None:
                    log[f"{name}.grad"] = histogram(weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the handler of requests builds the network and reads its weights from the file each time; once, when the service starts",
    names=r"torch\.load|load_state_dict|state_dict|unpickl|deseriali[sz]|kaiming|uniform_|_load_from"
    r"|(load|read|build|buil|construct|creat|initiali[sz])\w* .*(once|each (request|call)|every (request|call)|anew|again)"
    r"|(model|weights|network) .*(once|start.?up|kept|cache|from (the )?(file|disk))",
    kind="inference",
    recorded="request",
    on=("cpu",),
    with_stack=True,
)
def parcels_priced_on_request(device: str, changed: bool) -> Step:
    torch.manual_seed(26)

    def made() -> nn.Sequential:
        return nn.Sequential(
            *(nn.Linear(48, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU()),
            nn.Linear(640, 3),
        )

    file = Path(tempfile.mkdtemp()) / "prices.pt"
    torch.save(made().state_dict(), file)

    def read() -> nn.Sequential:
        model = made()
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.to(device).eval()

    kept = read()
    parcels = torch.randn(1600, 48, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        model = kept if changed else read()
        return F.softplus(model(parcels))

    return step


class Folded(nn.Module):
    """Convolutions by channel and by point, each with a batch norm, which may be folded into it."""

    def __init__(self, widths: tuple[int, ...], fold: bool) -> None:
        super().__init__()
        convs = [nn.Conv2d(3, widths[0], 3, 2, 1, bias=False)]
        for a, b in pairwise(widths):
            convs += [nn.Conv2d(a, a, 3, 2 if b > a else 1, 1, groups=a, bias=False), nn.Conv2d(a, b, 1, bias=False)]
        norms = [nn.BatchNorm2d(conv.out_channels) for conv in convs]
        for norm in norms:
            nn.init.constant_(norm.weight, 2.2)
        self.convs: nn.ModuleList = nn.ModuleList(convs)
        self.norms: nn.ModuleList = nn.ModuleList(norms)
        self.eval()
        if fold:
            self.convs = nn.ModuleList(fuse_conv_bn_eval(conv, norm) for conv, norm in zip(convs, norms, strict=True))
            self.norms = nn.ModuleList(nn.Identity() for _ in norms)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return x


@unseen(
    "batch norms follow the convolutions as layers of their own at inference, each a pass over the pictures; folded into the "
    "convolutions' weights (fuse_conv_bn_eval)",
    names=r"\bfold|fuse_conv|fus\w* .*(conv|batch.?norm|\bbn\b)|(batch.?norm|\bbn\b)\w* .*(into|absorb|merg|fus|fold)"
    r"|conv.?\+?.?bn",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def shelves_watched_for_gaps(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    net = Folded((32, 32, 64, 64, 128, 128, 128), changed).to(device)
    head = nn.Conv2d(128, 2, 1).to(device)
    shelves = torch.rand(4, 3, 160, 160, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        return head(net(shelves)).softmax(1)

    return step


@unseen(
    "for each character the LSTM reads the whole text so far again from the start; keep its state, and read the new character "
    "alone",
    names=r"(hidden|recurrent|lstm|previous) state|(keep|kept|carry|carried|reus|pass|stor)\w* .*\bstate"
    r"|\bstate\w* .*(keep|kept|carr|reus)|cach(e|ing)\b|recomput|re-?reads?|prefix"
    r"|(whole|entire|full) (text|sequence|prefix|history)"
    r"|only the (new|last|latest)|quadratic",
    kind="inference",
    recorded="generate",
    record_shapes=False,
    on=("cpu",),
)
def poems_spelled_out(device: str, changed: bool) -> Step:
    torch.manual_seed(28)
    rows, width, letters = 8, 256, 80
    embed, memory = nn.Embedding(letters, 96), nn.LSTM(96, width, 2, batch_first=True)
    head = nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, letters))
    nn.ModuleList([embed, memory, head]).to(device).eval()
    start = torch.randint(letters, (rows, 12), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        text, state, sure = start, None, []
        for at in range(14):
            x, state = memory(embed(text if not changed or at == 0 else text[:, -1:]), state if changed else None)
            best = head(x[:, -1]).log_softmax(1).max(1)
            text = torch.cat([text, best.indices[:, None]], 1)
            sure.append(best.values)
        return torch.stack(sure)

    return step


@unseen(
    "the eigenvalues of symmetric matrices are computed by the general routine, in complex numbers; eigvalsh (eigh), which is "
    "made for symmetric ones",
    names=r"eigh|eigvalsh|symmetric|hermitian|linalg_eig\b|aten::linalg_eigvals\b|general (eigen|routine|solver)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def molecules_by_their_spectra(device: str, changed: bool) -> Step:
    torch.manual_seed(29)
    rows, atoms = 24, 56
    net = nn.Sequential(nn.Linear(atoms, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 12)).to(device)
    warp = nn.Sequential(nn.Linear(16, 256), nn.SiLU(), nn.Linear(256, 3)).to(device)
    places, charge = torch.randn(rows, atoms, 16, device=device), torch.rand(rows, atoms, device=device) * 8 + 1

    @torch.inference_mode()
    def step() -> Tensor:
        far = torch.cdist(warp(places), warp(places), compute_mode="donot_use_mm_for_euclid_dist")
        pull = charge[:, :, None] * charge[:, None] / (far + far.mT + 1)
        spectra = torch.linalg.eigvalsh(pull) if changed else torch.linalg.eigvals(pull).real.sort(1).values
        return net(spectra)

    return step


@unseen(
    "the moving average of each signal is taken window by window in a Python loop; F.avg_pool1d (or a cumulative sum) over all "
    "of it",
    names=r"avg_pool|unfold|cumsum|cumulative|conv1d|loop over|vectori[sz]|(one|single) (call|operation)"
    r"|(window|sample) by (window|sample)|(moving|running|rolling) (average|mean)|sliding",
    kind="inference",
    recorded="score",
    on=("cpu",),
)
def bearings_heard_wearing(device: str, changed: bool) -> Step:
    torch.manual_seed(30)
    rows, channels, length, window = 16, 4, 640, 33
    net = nn.Sequential(
        *(nn.Conv1d(2 * channels, 64, 7, padding=3), nn.ReLU(), nn.Conv1d(64, 96, 7, 2, 3), nn.ReLU()),
        *(nn.Conv1d(96, 128, 7, padding=3), nn.ReLU(), nn.Conv1d(128, 128, 7, padding=3), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 2)),
    ).to(device)
    signals = torch.randn(rows, channels, length, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = F.pad(signals, (window - 1, 0))
        if changed:
            smooth = F.avg_pool1d(x, window, 1)
        else:
            smooth = torch.stack([x[:, :, at : at + window].mean(2) for at in range(length)], 2)
        return net(torch.cat([signals, signals - smooth], 1)).softmax(1)

    return step


# For two cores, a change that brings nothing.


@unseen(
    "none: each batch goes through .to(device) and .float(), which give back the same tensors, as they are there and are "
    "float32; without these calls",
    names=r"\.to\(device\)|\.float\(\)|no.?op (cop|cast|conver|\.to)|aten::_?to\b|_to_copy"
    r"|redundant (cop|conver|cast)|\bcop(y|ies) (left|that)",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def tides_told_from_moon(device: str, changed: bool) -> Step:
    torch.manual_seed(31)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 24)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    sky, tides = torch.randn(768, 64, device=device), torch.randn(768, 24, device=device)

    def step() -> Tensor:
        x, y = (sky, tides) if changed else (sky.to(device).float(), tides.to(device).float())
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: a softmax over 30 kinds precedes the argmax, tiny beside the convolutions; argmax of the scores themselves",
    names=r"softmax",
    kind="inference",
    recorded="sort",
    null=True,
    on=("cpu",),
)
def bottles_sorted_on_belt(device: str, changed: bool) -> Step:
    torch.manual_seed(32)
    net = nn.Sequential(pictures_net((24, 48, 96)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 30))
    net.to(device).eval()
    bottles = torch.rand(8, 3, 144, 144, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = net(bottles)
        return scores.argmax(1) if changed else scores.softmax(1).argmax(1)

    return step


@unseen(
    "none: the window of a spectrogram, 512 numbers, is made anew at each call; made once and kept",
    names=r"hann|window (function|tensor)|register_buffer|(kept|made|built|comput\w*) once|precomput",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def frogs_heard_at_night(device: str, changed: bool) -> Step:
    torch.manual_seed(33)
    kept = torch.hann_window(512, device=device)
    net = nn.Sequential(
        *(nn.Conv1d(257, 192, 5, padding=2), nn.ReLU(), nn.Conv1d(192, 192, 5, padding=2), nn.ReLU()),
        *(nn.Conv1d(192, 192, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(192, 15)),
    ).to(device)
    nights = torch.randn(8, 32000, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        window = kept if changed else torch.hann_window(512, device=device)
        spectra = torch.stft(nights, 512, 160, window=window, return_complex=True).abs()
        return net(torch.log1p(spectra)).sigmoid()

    return step


@unseen(
    "none: the answers for nine tiles of a map are gathered in a list and joined by torch.cat, a small copy; written into a "
    "tensor that was made before",
    names=r"torch\.cat|aten::cat|concatenat|prealloc|torch\.stack|list of (tiles|tensors|results)",
    kind="inference",
    recorded="map",
    null=True,
    on=("cpu",),
    profile_memory=True,
)
def snow_mapped_in_tiles(device: str, changed: bool) -> Step:
    torch.manual_seed(34)
    net = nn.Sequential(pictures_net((24, 48), 1, 4), nn.Conv2d(48, 3, 1)).to(device).eval()
    tiles, side = torch.rand(9, 2, 4, 96, 96, device=device), 24
    whole = torch.zeros(18, 3, side, side, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            for at, tile in enumerate(tiles):
                whole[2 * at : 2 * at + 2] = net(tile)
            return whole.softmax(1)
        return torch.cat([net(tile) for tile in tiles]).softmax(1)

    return step
