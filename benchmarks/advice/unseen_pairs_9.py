"""A ninth set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

A sample of what people meet who profile PyTorch on a CPU, in programs that the earlier sets do not have.
"""

import itertools
from typing import Any

from advice.unseen_pairs import Step, Unseen, blocks, pairs_into
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# Inference, evaluation and features.


class Tagger(nn.Module):
    """Scores of each tag for each word, and of each tag after another."""

    def __init__(self, words: int, tags: int):
        super().__init__()
        self.embedding = nn.Embedding(words, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(128, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags))

    def forward(self, words: Tensor) -> Tensor:
        return self.emit(self.lstm(self.embedding(words))[0])


@unseen(
    "Viterbi decoding goes through the tags in a Python loop within each word; all tags at once by broadcasting",
    names=r"(python|for|inner|nested).?loops?|loop(s|ing)? (over|through|in)|vectori[sz]|broadcast|viterbi"
    r"|(each|every|per|by|all|one) tags?\b|tag by tag|aten::stack\b|torch\.stack"
    r"|(many|tiny|small|short) (\w+ )?(ops|operations|calls|tensors)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def entities_viterbi_tag_by_tag(device: str, changed: bool) -> Step:
    tags, length = 13, 30
    tagger = Tagger(5000, tags).to(device).eval()
    sentences = torch.randint(5000, (24, length), device=device)

    def advance(best: Tensor) -> tuple[Tensor, Tensor]:
        if changed:
            return (best.unsqueeze(2) + tagger.transitions).max(1)
        values, sources = [], []
        for tag in range(tags):
            value, source = (best + tagger.transitions[:, tag]).max(1)
            values.append(value)
            sources.append(source)
        return torch.stack(values, 1), torch.stack(sources, 1)

    @torch.no_grad()
    def step() -> Tensor:
        emissions = tagger(sentences)
        best, back = emissions[:, 0], []
        for word in range(1, length):
            best, sources = advance(best)
            best = best + emissions[:, word]
            back.append(sources)
        path = [best.argmax(1, keepdim=True)]
        for sources in reversed(back):
            path.append(sources.gather(1, path[-1]))
        return torch.cat(path[::-1], 1)

    return step


@unseen(
    "the mean and the count of each film's ratings are taken with a mask for each film; sums over groups with index_add",
    names=r"index_add|scatter|bincount|segment_reduce|group.?by|(boolean|bool) (mask|index)|\bmasks?\b|masked"
    r"|aten::(eq|nonzero)\b|nonzero"
    r"|(python|for).?loop|loop(s|ing)? over|vectori[sz]|(each|every|per|by) film|film by film",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def films_rated_by_mask(device: str, changed: bool) -> Step:
    count, shrink = 120, 20.0
    films = torch.randint(count, (50_000,), device=device)
    users = torch.randint(3000, (50_000,), device=device)
    ratings = torch.randint(1, 11, (50_000,), device=device) / 2
    tables = nn.ModuleList([nn.Embedding(count, 32), nn.Embedding(3000, 32)]).to(device)

    def sums_and_counts() -> tuple[Tensor, Tensor]:
        if changed:
            sums = torch.zeros(count, device=device).index_add_(0, films, ratings)
            return sums, torch.bincount(films, minlength=count).float()
        sums, counts = torch.zeros(count, device=device), torch.zeros(count, device=device)
        for film in range(count):
            chosen = ratings[films == film]
            sums[film] = chosen.sum()
            counts[film] = len(chosen)
        return sums, counts

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        sums, counts = sums_and_counts()
        means = (sums + shrink * ratings.mean()) / (counts + shrink)
        affinity = (tables[0](films) * tables[1](users)).sum(1)
        return means, ratings - means[films] - 0.01 * affinity

    return step


@unseen(
    "the grid that undistorts a fisheye camera is computed anew for each frame; once, kept for all frames",
    names=r"\bgrid\b(?!.?sampl)|meshgrid|linspace|\batan\b|aten::(atan|linspace|meshgrid|sqrt|pow)\b|undistort|lookup table"
    r"|(same|constant|never chang\w+|unchang\w+|fixed|invariant).{0,40}(each|every|per|all|frame|step|call|value|tensor)"
    r"|(comput|calculat|buil[dt]|mak|creat)\w* (it |them |that )?(once|anew|again|ahead)|precomput|recomput|hoist"
    r"|cach(e|ed|ing) (it|the|them|that|once|result|tensor)",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def fisheye_grid_each_frame(device: str, changed: bool) -> Step:
    height, width = 480, 640
    bends = (0.08, -0.02, 0.004)
    lanes = nn.Sequential(nn.Conv2d(3, 16, 5, stride=3, padding=2), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1)).to(device).eval()
    frame = torch.rand(1, 3, height, width, device=device)

    def undistortion() -> Tensor:
        y, x = torch.meshgrid(
            torch.linspace(-1, 1, height, device=device), torch.linspace(-1.3, 1.3, width, device=device), indexing="ij"
        )
        radius = (x.square() + y.square()).sqrt().clamp(min=1e-6)
        angle = torch.atan(radius)
        bent = angle * (1 + bends[0] * angle**2 + bends[1] * angle**4 + bends[2] * angle**6)
        return torch.stack((x * bent / radius / 1.3, y * bent / radius), dim=-1).unsqueeze(0)

    kept = undistortion()

    @torch.no_grad()
    def step() -> Tensor:
        grid = kept if changed else undistortion()
        straight = F.grid_sample(frame, grid, align_corners=True)
        return lanes(straight).softmax(1)

    return step


@unseen(
    "a radar's samples stay complex128, as numpy made them; complex64",
    names=r"complex.?(128|64)|c10::complex<(double|float)>|\bdoubles?\b|(float|fp)\s?(64|32)|double.?precision|single.?precision"
    r"|64.?bit|32.?bit|(wider|narrower|smaller|lower|half the) (d?type|precision|width|bytes)|astype",
    kind="inference",
    recorded="radar",
    on=("cpu",),
)
def radar_in_complex128(device: str, changed: bool) -> Step:
    numbers = np.random.default_rng(3)
    antennas, chirps, samples = 8, 128, 512
    echoes = numbers.standard_normal((antennas, chirps, samples)) + 1j * numbers.standard_normal((antennas, chirps, samples))
    cube = torch.from_numpy(echoes.astype(np.complex64) if changed else echoes).to(device)
    real = torch.float32 if changed else torch.float64
    range_window = torch.hann_window(samples, dtype=real, device=device)
    doppler_window = torch.hann_window(chirps, dtype=real, device=device)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        ranges = torch.fft.fft(cube * range_window, dim=2)
        doppler = torch.fft.fftshift(torch.fft.fft(ranges * doppler_window[:, None], dim=1), dim=1)
        power = doppler.abs().square().sum(0)
        noise = F.avg_pool2d(power[None, None], 9, stride=1, padding=4)[0, 0]
        ratio = power / noise
        return ratio.amax(0).float(), power.mean(1).float()

    return step


@unseen(
    "the vibrations of molecules are found with eigh, whose eigenvectors nobody uses; eigvalsh",
    names=r"eigvalsh|eigvals|eigen.?vectors?|linalg_eigh|\beigh\b",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def normal_modes_with_vectors(device: str, changed: bool) -> Step:
    molecules, atoms = 24, 22
    masses = 1 + 15 * torch.rand(molecules, atoms, dtype=torch.float64, device=device)
    factors = torch.randn(molecules, 3 * atoms, 3 * atoms, dtype=torch.float64, device=device)
    hessians = factors @ factors.mT / atoms
    temperatures = torch.linspace(200, 400, 64, dtype=torch.float64, device=device)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        scale = masses.repeat_interleave(3, dim=1).rsqrt()
        weighted = scale.unsqueeze(2) * hessians * scale.unsqueeze(1)
        squares = torch.linalg.eigvalsh(weighted) if changed else torch.linalg.eigh(weighted)[0]
        frequencies = squares.clamp(min=1e-9).sqrt() * 1302.8
        quanta = 1.4388 * frequencies.unsqueeze(2) / temperatures
        entropy = quanta / torch.expm1(quanta) - torch.log1p(-torch.exp(-quanta))
        return entropy.sum(1), frequencies[:, 6:].sum(1) / 2

    return step


@unseen(
    "molecules are padded to the limit of 128 atoms where the largest of a batch has 46; padded to the largest of the batch",
    names=r"\bpad(s|ded|ding)?\b|pad_sequence|longest|largest (molecule|of)|bucket|(sort|group)\w* by (length|size)"
    r"|nested.?tensor|jagged|ragged|variable.?length|masked (position|token|atom)s?|\btrim",
    kind="inference",
    recorded="batch",
    on=("cpu",),
    with_stack=True,
)
def molecules_padded_to_limit(device: str, changed: bool) -> Step:
    limit, dim = 128, 128
    layers = blocks(3, dim, 4, device).eval()
    elements, solubility = nn.Embedding(100, dim, padding_idx=0).to(device), nn.Linear(dim, 1).to(device)
    sizes = [*torch.randint(12, 46, (16,)).tolist(), 46]
    molecules = [torch.randint(1, 100, (size,), device=device) for size in sizes]

    def collate() -> Tensor:
        room = max(len(molecule) for molecule in molecules) if changed else limit
        atoms = torch.zeros(len(molecules), room, dtype=torch.long, device=device)
        for row, molecule in enumerate(molecules):
            atoms[row, : len(molecule)] = molecule
        return atoms

    @torch.no_grad()
    def step() -> Tensor:
        atoms = collate()
        real = atoms != 0
        x = elements(atoms)
        for layer in layers:
            x = layer(x, mask=real[:, None, None, :])
        pooled = (x * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
        return solubility(pooled).squeeze(1)

    return step


@unseen(
    "the rank of each right answer is looked up in a sorted list of Python; counted, the better scores in one comparison",
    names=r"\btolist\b|python (list|int)|(to|into|a|as|sorted) lists?\b|list\.index|\.index\("
    r"|aten::(arg)?sort|\barg?sort|\bsort(s|ed|ing)?\b"
    r"|(python|for).?loop|loop(s|ing)? over|vectori[sz]|(each|every|per|by|one) (query|question|row)|(row|query) by (row|query)",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def ranks_by_list(device: str, changed: bool) -> Step:
    entities = torch.randn(3000, 256, device=device)
    relations = torch.randn(20, 256, device=device)
    heads, kinds = torch.randint(3000, (256,), device=device), torch.randint(20, (256,), device=device)
    tails = torch.randint(3000, (256,), device=device)
    known = torch.rand(256, 3000, device=device) < 0.01
    known[torch.arange(256), tails] = False

    def ranks_of(scores: Tensor) -> Tensor:
        if changed:
            right = scores.gather(1, tails.unsqueeze(1))
            return (scores > right).sum(1) + 1
        ranks = []
        for row, tail in zip(scores, tails.tolist(), strict=True):
            order = row.argsort(descending=True).tolist()
            ranks.append(order.index(tail) + 1)
        return torch.tensor(ranks, device=device)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        scores = ((entities[heads] * relations[kinds]) @ entities.T).masked_fill(known, -torch.inf)
        ranks = ranks_of(scores)
        return (1 / ranks).mean(), (ranks <= 10).float().mean()

    return step


@unseen(
    "all recipes' vectors, stored as float16, are cast to float32 for every query; cast once, kept in float32",
    names=r"(?<!b)float.?16|\bhalf\b|\bfp16\b|\bcast(s|ing|ed)?\b|conver(t|sion)|aten::(to|_to_copy|copy_)\b|to_copy|\bdtypes?\b"
    r"|\.float\(\)|\.to\(",
    kind="inference",
    recorded="query",
    on=("cpu",),
)
def recipes_cast_each_query(device: str, changed: bool) -> Step:
    stored = F.normalize(torch.randn(30_000, 192, device=device), dim=1).half()
    bank = stored.float() if changed else stored
    encoder = nn.Sequential(nn.Linear(1000, 1024), nn.ReLU(), nn.Linear(1024, 192)).to(device).eval()
    ingredients = (torch.rand(8, 1000, device=device) < 0.01).float()

    @torch.no_grad()
    def step() -> Tensor:
        queries = F.normalize(encoder(ingredients), dim=1)
        similar = queries @ bank.float().T
        return similar.topk(20, dim=1).values

    return step


# Training.


@unseen(
    "the spectra still require a gradient, left from a saliency map, so the first layer computes one; they do not",
    names=r"(input|spectr|first layer|feature)\w*.{0,40}(gradient|grad\b|requires_grad)|requires_grad|saliency|not a parameter"
    r"|(gradients?|grads?) (of|for|with respect to|wrt|to|into) (the |its |their )?(input|spectr|data|batch|first)"
    r"|gradients? (that )?(nobody|no one|nothing) (uses|reads|needs)|unused gradient|detach\w* (the )?(input|spectr|data|batch)",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def saliency_gradient_left_on(device: str, changed: bool) -> Step:
    net = nn.Sequential(nn.Linear(3000, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 9)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    measured = torch.rand(256, 3000, device=device)
    minerals = torch.randint(9, (256,), device=device)

    def step() -> Tensor:
        spectra = (measured - measured.mean(1, keepdim=True)).requires_grad_(not changed)
        loss = F.cross_entropy(net(spectra), minerals)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class FactorisationMachine(nn.Module):
    """Clicks from all pairs of an advert's fields."""

    def __init__(self, values: int, dim: int, cheap: bool):
        super().__init__()
        self.factors, self.weights, self.cheap = nn.Embedding(values, dim), nn.Embedding(values, 1), cheap
        nn.init.normal_(self.factors.weight, std=0.1)

    def forward(self, fields: Tensor) -> Tensor:
        x = self.factors(fields)
        if self.cheap:
            pairs = (x.sum(1).square() - x.square().sum(1)).sum(1) / 2
        else:
            products = x.unsqueeze(1) * x.unsqueeze(2)
            pairs = products.sum(-1).triu(diagonal=1).sum((1, 2))
        return self.weights(fields).sum((1, 2)) + pairs


@unseen(
    "a factorisation machine multiplies all pairs of fields in a tensor of batch x fields x fields x factors; "
    "half the square of the sum less the sum of squares",
    names=r"broadcast|outer product|all pairs|pairwise|pairs of|square of (the |a )?sum|sum of (the )?squares|sum.square"
    r"|intermediate"
    r"|(large|huge|big|giant) (\w+ )?(tensor|product)|batch ?x ?fields|einsum|\bbmm\b|matmul|matrix product|triu|unsqueeze",
    kind="training",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def ads_factorisation_pairs(device: str, changed: bool) -> Step:
    machine = FactorisationMachine(20_000, 16, changed).to(device)
    optimizer = torch.optim.SGD(machine.parameters(), lr=0.01)
    adverts = torch.randint(20_000, (512, 22), device=device)
    clicks = (torch.rand(512, device=device) < 0.1).float()

    def step() -> Tensor:
        loss = F.binary_cross_entropy_with_logits(machine(adverts), clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Tiles(Dataset[Any]):
    """Pictures of the land from above, as bytes, each with the gain of its camera."""

    def __init__(self, number: int, ready: bool):
        self.pixels = torch.randint(256, (number, 4, 32, 32), dtype=torch.uint8)
        self.gains, self.classes, self.ready = 0.8 + 0.4 * torch.rand(number), torch.randint(10, (number,)), ready

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        tile = self.pixels[index]
        if self.ready:
            tile = prepared(tile, self.gains[index])
        return tile, self.gains[index], self.classes[index]


def prepared(tiles: Tensor, gains: Tensor) -> Tensor:
    means, deviations = torch.tensor([0.3, 0.35, 0.4, 0.5]), torch.tensor([0.1, 0.12, 0.15, 0.2])
    light = (tiles.float() / 255 * gains[..., None, None, None]).clamp(0, 1)
    return ((light - means[:, None, None]) / deviations[:, None, None]).flip(-1)


@unseen(
    "each tile is scaled and normalised by itself in the dataset; the whole batch at once, after the loader",
    names=r"data.?load(er|ing)|__getitem__|dataset|collat|(each|every|per|single|one|by) (tile|sample|item|picture|image)\w*"
    r"|(tile|sample|item) by (tile|sample|item)|per.sample|whole batch|batch at once|vectori[sz]"
    r"|(small|tiny|many|short) (\w+ )?(ops|operations|calls|tensors)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def tiles_augmented_singly(device: str, changed: bool) -> Step:
    tiles = Tiles(640, ready=not changed)
    net = nn.Sequential(nn.Conv2d(4, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()).to(device)
    head = nn.Linear(32 * 64, 10).to(device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-3)
    loader = DataLoader(tiles, batch_size=64)
    state = {"batches": iter(loader)}

    def step() -> Tensor:
        batch = next(state["batches"], None)
        if batch is None:
            state["batches"] = iter(loader)
            batch = next(state["batches"])
        pixels, gains, classes = batch
        if changed:
            pixels = prepared(pixels, gains)
        loss = F.cross_entropy(head(net(pixels.to(device))), classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class HourHeads(nn.Module):
    """A forecast for each of the next hours, from one state."""

    def __init__(self, dim: int, hours: int, joined: bool):
        super().__init__()
        heads = [nn.Linear(dim, 1) for _ in range(hours)]
        self.heads: nn.Module = nn.ModuleList(heads)
        self.joined = joined
        if joined:
            self.heads = nn.Linear(dim, hours)
            with torch.no_grad():
                self.heads.weight.copy_(torch.cat([head.weight for head in heads]))
                self.heads.bias.copy_(torch.cat([head.bias for head in heads]))

    def forward(self, state: Tensor) -> Tensor:
        if isinstance(self.heads, nn.ModuleList):
            return torch.cat([head(state) for head in self.heads], dim=1)
        return self.heads(state)


@unseen(
    "a forecast of 48 hours has a linear layer for each hour; one layer with 48 outputs",
    names=r"(one|single|larger|wider|joined|fused|merged|combined) (nn\.)?(linear|layer|matmul|matrix|product|gemm|addmm)"
    r"|(each|every|per|by|48) (hour|head|horizon|small linear|linear)|addmm.{0,40}(calls|times|each|small|tiny)"
    r"|(small|tiny|many|short) (\w+ ){0,2}(ops|operations|calls|linears?|layers|products|matmuls|gemms)"
    r"|(batch|merge|fuse|join|combine|stack|concatenat)\w* (\w+ ){0,2}(linear|layer|head|matmul|product|weight|call|op)",
    kind="training",
    recorded="train",
    on=("cpu",),
    with_stack=True,
)
def horizons_head_by_head(device: str, changed: bool) -> Step:
    history, demand = torch.randn(32, 6, 96, device=device), torch.randn(32, 48, device=device)
    encoder = nn.Sequential(
        nn.Conv1d(6, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=4, dilation=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1)
    ).to(device)
    heads = HourHeads(64, 48, changed).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *heads.parameters()], lr=1e-3)

    def step() -> Tensor:
        forecast = heads(encoder(history).squeeze(2))
        loss = F.smooth_l1_loss(forecast, demand)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class GatedLayer(nn.Module):
    """A gated recurrence, written out for its own gate."""

    def __init__(self, inputs: int, dim: int, ahead: bool):
        super().__init__()
        self.enter, self.carry, self.ahead = nn.Linear(inputs, 2 * dim), nn.Linear(dim, 2 * dim, bias=False), ahead

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.carry.in_features)
        entered = self.enter(x).unbind(1) if self.ahead else None
        for time in range(x.shape[1]):
            into = self.enter(x[:, time]) if entered is None else entered[time]
            gate, new = (into + self.carry(state)).chunk(2, dim=1)
            state = torch.lerp(state, torch.tanh(new), torch.sigmoid(gate))
        return state


@unseen(
    "a recurrent layer projects its input within each time step; once for all time steps, ahead of the loop",
    names=r"(input|project\w*|linear|addmm)\b.{0,60}(once|ahead|outside|before the|out of|hoist"
    r"|one (large|larger|matmul|product|call|linear))"
    r"|(once|ahead|outside|before the|out of|hoist\w*).{0,60}(input|project|linear|addmm|time.?step)|input projection"
    r"|addmm.{0,40}(calls|times|each|small|tiny)"
    r"|(all|each|every|per) time.?steps?|(linear|matmul|product|gemm|projection)s? (in|within|inside|at) (a |the |each |every )?"
    r"(python |for )?(loop|time|step)|(small|tiny|many|short) (\w+ ){0,2}(linears?|products|matmuls|gemms)",
    kind="training",
    recorded="train",
    on=("cpu",),
    with_stack=True,
)
def heartbeats_projected_in_loop(device: str, changed: bool) -> Step:
    layer, head = GatedLayer(96, 64, changed).to(device), nn.Linear(64, 5).to(device)
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.01)
    beats, rhythms = torch.randn(32, 30, 96, device=device), torch.randint(5, (32,), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(head(layer(beats)), rhythms)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the squares of all weights are added to the loss by hand, through autograd; the optimizer's weight_decay",
    names=r"weight.?decay|\bl2\b|regulari[sz]|penalt(y|ies)|pow_?backward|aten::pow\b|\bpow\b"
    r"|(squares?|norms?) of (all )?(the )?(weight|parameter)|squared (weight|parameter)",
    kind="training",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def rents_penalised_by_hand(device: str, changed: bool) -> Step:
    layers: list[nn.Module] = [nn.Linear(80, 512), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(512, 512), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(512, 1)).to(device)
    strength = 1e-4
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=2 * strength if changed else 0.0)
    flats, rents = torch.randn(256, 80, device=device), torch.rand(256, 1, device=device)

    def step() -> tuple[Tensor, Tensor]:
        error = F.mse_loss(net(flats), rents)
        loss = error
        if not changed:
            loss = loss + strength * sum(weight.pow(2).sum() for weight in net.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            return error.detach(), net(flats[:8])

    return step


# Changes that bring nothing.


class Picker(nn.Module):
    """Finds the onset of an earthquake in a seismogram."""

    def __init__(self, plain: bool):
        super().__init__()
        widths = [3, 32, 64, 64, 64]
        self.layers = nn.ModuleList(nn.Conv1d(before, after, 7, padding=3) for before, after in itertools.pairwise(widths))
        self.last, self.plain = nn.Conv1d(64, 2, 1), plain

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
            if not self.plain:
                x = x.contiguous().float()
        return self.last(x)


@unseen(
    "none: the calls of contiguous and float left out, which copy nothing",
    names=r"contiguous|\.float\(\)|aten::(contiguous|to)\b|\bcop(y|ies)\b|\bcasts?\b",
    kind="inference",
    null=True,
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def null_contiguous_left_out(device: str, changed: bool) -> Step:
    picker = Picker(changed).to(device).eval()
    records = torch.randn(8, 3, 1500, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        level = (records - records.mean(2, keepdim=True)) / records.std(2, keepdim=True)
        return picker(level).softmax(1).amax(2)

    return step


@unseen(
    "none: x ** 2 written as x * x in the loss of an autoencoder",
    names=r"\bpow\b|aten::pow|\*\* ?2|x \* x|\bsquares?\b|multipl",
    kind="training",
    null=True,
    recorded="none",
    on=("cpu",),
)
def null_square_as_product(device: str, changed: bool) -> Step:
    encoder = nn.Sequential(nn.Linear(900, 768), nn.Tanh(), nn.Linear(768, 64)).to(device)
    decoder = nn.Sequential(nn.Linear(32, 768), nn.Tanh(), nn.Linear(768, 900)).to(device)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=1e-4)
    genes = torch.rand(256, 900, device=device)

    def square(x: Tensor) -> Tensor:
        return x * x if changed else x**2

    def step() -> Tensor:
        mean, log_deviation = encoder(genes).chunk(2, dim=1)
        code = mean + log_deviation.exp() * torch.randn_like(mean)
        divergence = (square(mean) + square(log_deviation.exp()) - 1).sum(1) / 2 - log_deviation.sum(1)
        loss = (square(decoder(code) - genes).sum(1) + divergence).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: einsum written as matmul, where both are the same matrix product",
    names=r"einsum|matmul|\bbmm\b|\beinstein\b",
    kind="inference",
    null=True,
    recorded="match",
    on=("cpu",),
    with_stack=True,
)
def null_einsum_as_matmul(device: str, changed: bool) -> Step:
    queries, passages = torch.randn(16, 24, 128, device=device), torch.randn(16, 1500, 128, device=device)
    project = nn.Linear(128, 128).to(device).eval()

    @torch.no_grad()
    def step() -> Tensor:
        words, others = project(queries), project(passages)
        scores = words @ others.mT if changed else torch.einsum("bqd,bkd->bqk", words, others)
        return scores.amax(2).sum(1)

    return step


@unseen(
    "none: the batch second in a GRU, not first (batch_first)",
    names=r"batch_first|time.?first|transpos",
    kind="training",
    null=True,
    recorded="step",
    on=("cpu",),
)
def null_time_first(device: str, changed: bool) -> Step:
    gru = nn.GRU(32, 128, batch_first=not changed).to(device)
    head = nn.Linear(128, 1).to(device)
    optimizer = torch.optim.SGD([*gru.parameters(), *head.parameters()], lr=0.01)
    sensors, wear = torch.randn(64, 60, 32, device=device), torch.rand(64, 1, device=device)
    readings = sensors.transpose(0, 1).contiguous() if changed else sensors

    def step() -> Tensor:
        _, state = gru(readings)
        loss = F.mse_loss(head(state[0]), wear)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
