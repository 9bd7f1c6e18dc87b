"""A twelfth set of small programs, for two cores, with one performance fault each, written without a look at the reader."""

from itertools import pairwise
import math
from typing import Any

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import endless
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader, Dataset, TensorDataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def convolutions(channels: tuple[int, ...], stride: int = 2) -> list[nn.Module]:
    """Stack convolutions with batch norms, each of them halving the picture unless told."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return layers


# With a fault.


@unseen(
    "the table of 100000 songs gets a dense gradient, which is zeroed, filled and applied in full, although a batch touches "
    "a few thousand rows; sparse=True, which SGD takes",
    names=r"sparse|embedding_dense_backward|dense grad|(whole|entire|full|every row of the) (embedding|table)"
    r"|rows (touched|used)",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def songs_next_in_playlist(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    songs, rows, length, width = 100_000, 192, 16, 48
    table = nn.Embedding(songs, width, sparse=changed, device=device)
    tower = nn.Sequential(nn.Linear(width, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, width)).to(device)
    optimizer = torch.optim.SGD([*table.parameters(), *tower.parameters()], lr=0.05)
    heard = torch.randint(songs, (rows, length), device=device)
    following = torch.randint(songs, (rows,), device=device)
    right = torch.arange(rows, device=device)

    def step() -> Tensor:
        listeners = tower(table(heard).mean(1))
        loss = F.cross_entropy(listeners @ table(following).T / math.sqrt(width), right)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "whole photos are converted to float32 and normalized, and only then is the label cut out of them; cut out the label first "
    "and convert that part alone",
    names=r"\bcrop|cut out|cut (it|them|the)|slice (first|before|the)"
    r"|(whole|entire|full|large) (photo|image|picture|frame)"
    r"|(convert|normali[sz])\w* (only|less|after|the whole|the full|the entire)|full resolution|part (alone|that is used)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def parcels_read_by_camera(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    photos = torch.randint(256, (2, 720, 1280, 3), dtype=torch.uint8, device=device)
    top, left, high, wide = 240, 400, 256, 480
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(3, 1, 1)
    spread = torch.tensor([0.229, 0.224, 0.225], device=device).view(3, 1, 1)
    model = nn.Sequential(*convolutions((3, 24, 48, 96)), nn.AdaptiveAvgPool2d((1, 24))).to(device).eval()
    letters = nn.Linear(96, 37).to(device)

    def cut(x: Tensor) -> Tensor:
        return x[..., top : top + high, left : left + wide]

    @torch.inference_mode()
    def step() -> Tensor:
        x = photos.permute(0, 3, 1, 2)
        x = (cut(x).float() / 255 - mean) / spread if changed else cut((x.float() / 255 - mean) / spread)
        return letters(model(x)[:, :, 0].transpose(1, 2)).softmax(2)

    return step


@unseen(
    "the convolutions of a vocoder keep their weight norm after training, so each call makes every weight anew from direction "
    "and length; the parametrizations removed (remove_parametrizations, remove_weight_norm) once after loading",
    names=r"weight.?norm|parametri[sz]|norm_except_dim"
    r"|(weights?|kernels?) .*(again|anew|each call|every call|once|fold|bake|precomp)",
    kind="inference",
    recorded="chunk",
    on=("cpu",),
    with_stack=True,
)
def voice_streamed_in_chunks(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    width, frames = 512, 16
    enter, leave = nn.Conv1d(80, width, 7, padding=3), nn.Conv1d(width // 2, 1, 7, padding=3)
    deep = nn.ModuleList(nn.Conv1d(width, width, 7, padding=3 * d, dilation=d) for d in (1, 3, 5))
    rise = nn.ConvTranspose1d(width, width // 2, 8, 4, 2)
    late = nn.ModuleList(nn.Conv1d(width // 2, width // 2, 7, padding=3 * d, dilation=d) for d in (1, 3, 5))
    convs = [enter, *deep, rise, *late, leave]
    for conv in convs:
        conv.requires_grad_(False)
        parametrizations.weight_norm(conv)
        if changed:
            parametrize.remove_parametrizations(conv, "weight")
    nn.ModuleList(convs).to(device).eval()
    mels = torch.randn(1, 80, frames, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(mels)
        for conv in deep:
            x = x + conv(F.leaky_relu(x, 0.1))
        x = rise(F.leaky_relu(x, 0.1))
        for conv in late:
            x = x + conv(F.leaky_relu(x, 0.1))
        return leave(F.leaky_relu(x)).tanh()

    return step


class Decoder(nn.Module):
    """A layer of a translator that looks at its own past words and at the source."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.own_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ask, self.source, self.source_out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x.view(len(x), -1, parts, self.heads, x.shape[-1] // parts // self.heads).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Tensor, past: list[Tensor], source: tuple[Tensor, ...]) -> Tensor:
        q, k, v = self.split(self.own(self.norms[0](x)), 3)
        past[:] = [torch.cat([old, new], 2) for old, new in zip(past, (k, v), strict=True)] if past else [k, v]
        x = x + self.own_out(F.scaled_dot_product_attention(q, past[0], past[1]).transpose(1, 2).flatten(2))
        (q,) = self.split(self.ask(self.norms[1](x)), 1)
        x = x + self.source_out(F.scaled_dot_product_attention(q, source[0], source[1]).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[2](x))


@unseen(
    "keys and values of the source text, which stay the same, are projected again in every layer for every word generated; "
    "once per text, before the first word",
    names=r"cross.?attention|cach\w+|(keys|values|projections?|k/?v) .*(once|again|same|before the|reuse|recomput)|recomput"
    r"|precomput|once,? before|(encoder|source|memory).*(once|again|every (word|token|step))"
    r"|same (inputs?|product|projection|result|linear)",
    kind="inference",
    recorded="translate",
    on=("cpu",),
)
def menus_translated_word_by_word(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, words, width, vocabulary = 4, 64, 192, 3000
    embed, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
    layers = [Decoder(width, 6) for _ in range(3)]
    nn.ModuleList([embed, head, *layers]).to(device).eval()
    texts = torch.randn(rows, words, width, device=device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        word, score = torch.zeros(rows, 1, dtype=torch.long, device=device), torch.zeros(rows, device=device)
        pasts: list[list[Tensor]] = [[] for _ in layers]
        sources = [layer.split(layer.source(texts), 2) for layer in layers] if changed else []
        chosen = []
        for _ in range(8):
            x = embed(word)
            for at, layer in enumerate(layers):
                x = layer(x, pasts[at], sources[at] if changed else layer.split(layer.source(texts), 2))
            best, word = head(x[:, -1]).log_softmax(1).max(1, keepdim=True)
            score = score + best[:, 0]
            chosen.append(word)
        return score, torch.cat(chosen, 1)

    return step


@unseen(
    "a batch of remembered states is made by torch.tensor of a list of numpy arrays, which reads each number as a Python object; "
    "np.stack and torch.from_numpy",
    names=r"torch\.tensor|aten::tensor|np\.(stack|array|asarray)|numpy|from_numpy|list of (arrays|ndarrays)|as_tensor|python list"
    r"|(number|element|value) by (number|element|value)|preallocat",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def crane_learns_from_memory(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rng, size, rows = np.random.default_rng(5), 64, 320
    states = rng.standard_normal((4000, size), dtype=np.float32)
    memory = [(states[at], int(rng.integers(6)), float(rng.random()), states[at + 1]) for at in range(3999)]
    value, target = (
        nn.Sequential(nn.Linear(size, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 6)).to(device) for _ in "ab"
    )
    target.load_state_dict(value.state_dict())
    optimizer = torch.optim.SGD(value.parameters(), lr=1e-3)
    chooser = np.random.default_rng(6)

    def batch(arrays: list[Any]) -> Tensor:
        if changed:
            return torch.from_numpy(np.stack(arrays)).to(device)
        return torch.tensor(arrays, device=device)

    def step() -> Tensor:
        chosen = [memory[at] for at in chooser.integers(len(memory), size=rows)]
        before, after = batch([c[0] for c in chosen]), batch([c[3] for c in chosen])
        actions = torch.tensor([c[1] for c in chosen], device=device)
        rewards = torch.tensor([c[2] for c in chosen], device=device)
        with torch.no_grad():
            aim = rewards + 0.97 * target(after).amax(1)
        loss = F.smooth_l1_loss(value(before).gather(1, actions[:, None])[:, 0], aim)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the atoms of each crystal are picked with a mask and averaged in a Python loop over the crystals of the batch; one "
    "index_add (scatter, segment_reduce) for all and a division by the counts",
    names=r"index_add|scatter|segment|bincount|vectori[sz]|loop over (the )?(crystals|graphs|groups)|boolean mask|mask(ed)? index"
    r"|\bnonzero\b|(graph|crystal|group) by (graph|crystal|group)|one at a time|pooling",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def crystals_energy_learnt(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    crystals, atoms, bonds, width = 160, 2400, 9600, 48
    embed, head = nn.Embedding(90, width), nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
    mixes = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.SiLU()) for _ in range(2))
    model = nn.ModuleList([embed, head, mixes]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kinds, energy = torch.randint(90, (atoms,), device=device), torch.randn(crystals, 1, device=device)
    source, target = torch.randint(atoms, (2, bonds), device=device)
    owner = torch.cat([torch.arange(crystals), torch.randint(crystals, (atoms - crystals,))]).sort().values.to(device)
    counts = torch.bincount(owner, minlength=crystals)[:, None]

    def step() -> Tensor:
        x = embed(kinds)
        for mix in mixes:
            x = x + mix(torch.cat([x, torch.zeros_like(x).index_add(0, target, x[source])], 1))
        if changed:
            pooled = torch.zeros(crystals, width, device=device).index_add(0, owner, x) / counts
        else:
            pooled = torch.stack([x[owner == crystal].mean(0) for crystal in range(crystals)])
        loss = F.mse_loss(head(pooled), energy)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the critic's loss is computed on drawings that are still tied to the network that drew them, so its backward pass also runs "
    "through that network, whose gradients are thrown away; detach the drawings (or draw under no_grad)",
    names=r"detach|no_grad|thrown away|discard|(generator|drawer|drawing network)\w*.*(grad|backward)"
    r"|(grad|backward).*(generator|drawer)"
    r"|unneeded grad|unused grad|requires?_grad|(?<!gc\.)freez",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def glyphs_drawn_against_critic(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows = 24
    drawer = nn.Sequential(
        *(nn.Linear(64, 128 * 16), nn.Unflatten(1, (128, 4, 4)), nn.ReLU(), nn.ConvTranspose2d(128, 96, 4, 2, 1), nn.ReLU()),
        *(nn.ConvTranspose2d(96, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh()),
    ).to(device)
    critic = nn.Sequential(
        *(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 16, 1)),
    ).to(device)
    drawing, judging = (torch.optim.SGD(net.parameters(), lr=1e-3) for net in (drawer, critic))
    glyphs = torch.rand(rows, 1, 32, 32, device=device) * 2 - 1
    ideas, more = torch.randn(2, rows, 64, device=device)

    def step() -> Tensor:
        drawn = drawer(ideas)
        loss = F.softplus(-critic(glyphs)).mean() + F.softplus(critic(drawn.detach() if changed else drawn)).mean()
        judging.zero_grad()
        loss.backward()
        judging.step()
        fooled = F.softplus(-critic(drawer(more))).mean()
        drawing.zero_grad()
        fooled.backward()
        drawing.step()
        return torch.stack([loss.detach(), fooled.detach()])

    return step


class Calls(Dataset[tuple[Tensor, int]]):
    """Calls of whales, of which spectrograms are made when asked for."""

    def __init__(self, calls: int, length: int) -> None:
        rng = np.random.default_rng(8)
        self.waves = rng.standard_normal((64, length), dtype=np.float32)
        self.kinds, self.calls = rng.integers(12, size=calls), calls
        self.window = np.hanning(512).astype(np.float32)

    def __len__(self) -> int:
        return self.calls

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        wave = self.waves[at % 64] * (1 + at / self.calls)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::96] * self.window
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
        bands = np.log1p(power[:, :256].reshape(len(power), 64, 4).mean(2))
        return torch.from_numpy(((bands - bands.mean(0)) / (bands.std(0) + 1e-3)).astype(np.float32)), int(self.kinds[at])


@unseen(
    "the loader has no workers, so spectrograms are made in the training process between the steps, while the second core idles; "
    "num_workers=2, which make the next batches meanwhile",
    names=r"num_workers|worker|DataLoader|data.?load|prefetch|background|spectrogram.*(once|cache|precomput|before)|__getitem__",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def whale_calls_told_apart(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    workers: dict[str, Any] = {"num_workers": 2, "persistent_workers": True} if changed else {}
    loader = DataLoader(Calls(4096, 16384), 16, shuffle=True, generator=torch.Generator().manual_seed(8), **workers)
    net, head = nn.Sequential(nn.Conv1d(64, 48, 9, 4), nn.ReLU()).to(device), nn.Linear(48, 12).to(device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-2)
    batches = endless(loader)

    def step() -> Tensor:
        spectra, kinds = next(batches)
        states = net(spectra.to(device).transpose(1, 2))
        loss = F.cross_entropy(head(states.mean(2)), kinds.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the loader's worker is started anew for each short epoch and ended after it; persistent_workers=True (or no worker for data "
    "that is in memory)",
    names=r"persistent|num_workers|(start|restart|fork|spawn|creat)\w* .*(worker|process)"
    r"|worker\w* .*(start|restart|fork|spawn|creat|anew)"
    r"|__iter__|(worker|process) start|start.?up",
    kind="training",
    recorded="epoch",
    on=("cpu",),
    with_stack=True,
)
def meters_read_in_short_epochs(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    data = TensorDataset(torch.randn(256, 96, 4), torch.randn(256, 24))
    loader = DataLoader(data, 64, num_workers=1, persistent_workers=changed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 24)).to(
        device
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for past, following in loader:
            loss = F.l1_loss(net(past.to(device)), following.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        return total

    return step


@unseen(
    "the vectors of the recipes come from numpy in float64, so the queries are made double too and the search runs in double; "
    "the vectors kept in float32",
    names=r"float64|double|\bfp64\b|float32|single precision",
    kind="inference",
    recorded="answer",
    on=("cpu",),
    record_shapes=False,
)
def recipes_found_by_taste(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    vectors = np.random.default_rng(10).standard_normal((40000, 256))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    recipes = torch.from_numpy(vectors).to(device)
    if changed:
        recipes = recipes.float()
    embed = nn.EmbeddingBag(5000, 256).to(device)
    tower = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).to(device)
    wishes = torch.randint(5000, (32, 12), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        tastes = F.normalize(tower(embed(wishes)), dim=1).to(recipes.dtype)
        return (tastes @ recipes.T).topk(10).values.float()

    return step


@unseen(
    "the covariance of the stations is inverted, and the inverse multiplied with the readings and the covariance to the map; "
    "a Cholesky factor and triangular solves",
    names=r"cholesky|triangular|linalg\.solve|\binv(erse|ert|erting|ersion)?\b|linalg_inv|factori[sz]",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def ozone_between_stations(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    stations, points = 700, 120
    warp = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 8)).to(device)
    known, wanted = torch.rand(stations, 5, device=device) * 4, torch.rand(points, 5, device=device) * 4
    readings = torch.randn(stations, 1, device=device)

    def alike(a: Tensor, b: Tensor) -> Tensor:
        far = torch.cdist(a, b) * math.sqrt(3)
        return (1 + far) * torch.exp(-far)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        a, b = 4 * warp(known), 4 * warp(wanted)
        among = alike(a, a) + 0.3 * torch.eye(stations, device=device)
        across = alike(b, a)
        if changed:
            factor = torch.linalg.cholesky(among)
            mean = across @ torch.cholesky_solve(readings, factor)
            sure = torch.linalg.solve_triangular(factor, across.T, upper=False).square().sum(0)
        else:
            inverse = torch.linalg.inv(among)
            mean = across @ inverse @ readings
            sure = (across @ inverse * across).sum(1)
        return mean[:, 0], 1.3 - sure

    return step


@unseen(
    "in silence the echo's delay lines have sunk to denormal numbers, with which the processor calculates many times slower; "
    "torch.set_flush_denormal(True)",
    names=r"denormal|subnormal|flush.?(to.?zero|denormal)|\bftz\b|\bdaz\b|tiny (numbers|values)|below 1e-3[0-9]",
    kind="inference",
    recorded="render",
    on=("cpu",),
    profile_memory=True,
)
def hall_echo_rendered(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    lines, length = 16, 1024
    mix = torch.linalg.qr(torch.randn(lines, lines)).Q.to(device) * 0.98
    listen = nn.Sequential(nn.Linear(lines, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 3)).to(device)
    tail = torch.randn(lines, length, device=device) * 1e-39
    quiet = torch.zeros(length, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        torch.set_flush_denormal(changed)
        delayed, before, heard = tail, tail[:, :1], []
        for _ in range(12):
            delayed = mix @ delayed + quiet
            damped = 0.7 * delayed + 0.3 * torch.cat([before, delayed[:, :-1]], 1)
            before, delayed = delayed[:, -1:], damped
            heard.append((delayed.square().mean(1) + 1e-8).log())
        return listen(torch.stack(heard)).softmax(1)

    return step


# A change that brings nothing.


@unseen(
    "none: a few large convolutions run under no_grad; inference_mode, which saves some bookkeeping for each operation",
    names=r"inference_mode",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def moths_named_on_screen(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    model = nn.Sequential(*convolutions((3, 32, 64, 128, 128)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 60))
    model.to(device).eval()
    moths = torch.rand(8, 3, 160, 160, device=device)

    def step() -> Tensor:
        with torch.inference_mode() if changed else torch.no_grad():
            return model(moths).softmax(1).clone()

    return step


@unseen(
    "none: attention's products are written with einsum, which calls the same batched product; matmul of transposed tensors",
    names=r"einsum",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def proverbs_completed(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, length, width, heads = 16, 48, 128, 4
    embed, head = nn.Embedding(2000, width), nn.Linear(width, 2000)
    turns = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
    mlps = nn.ModuleList(
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 512), nn.GELU(), nn.Linear(512, width)) for _ in "ab"
    )
    model = nn.ModuleList([embed, head, turns, mlps]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    words = torch.randint(2000, (rows, length + 1), device=device)
    later = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if changed:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            shares = (q @ k.transpose(2, 3) / math.sqrt(width // heads)).masked_fill(later, -math.inf).softmax(3)
            return (shares @ v).transpose(1, 2).flatten(2)
        scores = torch.einsum("blhd,bmhd->bhlm", q, k) / math.sqrt(width // heads)
        return torch.einsum("bhlm,bmhd->blhd", scores.masked_fill(later, -math.inf).softmax(3), v).flatten(2)

    def step() -> Tensor:
        x = embed(words[:, :-1])
        for turn, mlp in zip(turns, mlps, strict=True):
            x = x + attend(*turn(x).view(rows, length, 3, heads, -1).unbind(2))
            x = x + mlp(x)
        loss = F.cross_entropy(head(x).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: sixteen small windows lying in memory are taken for each batch in the training process; two workers that do it",
    names=r"num_workers|workers?\b|prefetch|DataLoader|data.?load",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def trams_arrival_foretold(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    data = TensorDataset(torch.randn(2048, 8, 128), torch.randn(2048, 12))
    workers: dict[str, Any] = {"num_workers": 2, "persistent_workers": True} if changed else {}
    loader = DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(15), **workers)
    layers: list[nn.Module] = []
    for inputs, outputs in ((8, 128), (128, 128), (128, 128), (128, 128), (128, 128)):
        layers += [nn.Conv1d(inputs, outputs, 7, padding=3), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 12)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = endless(loader)

    def step() -> Tensor:
        past, arrival = next(batches)
        loss = F.smooth_l1_loss(model(past.to(device)), arrival.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the gradients of a small convolutional network are filled with zeros after each step; set_to_none=True",
    names=r"set_to_none|zero_grad|aten::zero_|foreach_zero",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def chimes_tuned_by_ear(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    model = nn.Sequential(*convolutions((1, 16, 32, 48)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 24)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    sounds, notes = torch.randn(32, 1, 64, 96, device=device), torch.randint(24, (32,), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(model(sounds), notes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=changed)
        return loss.detach()

    return step
