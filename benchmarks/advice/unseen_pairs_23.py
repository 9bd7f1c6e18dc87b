"""A twenty-third set of small programs, all of them for two cores, with one performance fault each, written without a look at
the reader."""

from datetime import datetime
import io
from itertools import pairwise
import math
import random
from typing import Any

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import convolutions
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal
import torch.nn.functional as F

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def perceptron(*widths: int) -> nn.Sequential:
    """Stack linear layers with ReLUs between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# Inference, with a fault.


@unseen(
    "the surfaces are made by one matrix, the Kronecker product of the splines along and across, written out (12288 x "
    "576); the coefficients multiplied by the splines from the left and from the right (along @ c @ across.T)",
    names=r"\bkron|kronecker|vec.?trick|tensor.?product|(two|small|separable)\w* .{0,30}(product|matmul|matrices)|separab"
    r"|left and .{0,20}right",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def dunes_surveyed_after_storms(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    dunes, tall, wide, knots, width = 12, 96, 128, 24, 768
    with torch.device(device):
        net = perceptron(60, width, width, width, knots * knots)
        soundings = torch.randn(dunes, 60)
        along = (1 - (torch.linspace(0, knots - 1, tall)[:, None] - torch.arange(knots)).abs()).clamp(min=0)
        across = (1 - (torch.linspace(0, knots - 1, wide)[:, None] - torch.arange(knots)).abs()).clamp(min=0)
        smooth = nn.Sequential(nn.Conv2d(1, 24, 5, 1, 2), nn.ReLU(), nn.Conv2d(24, 1, 5, 1, 2)).eval()

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        c = net(soundings)
        if changed:
            surface = along @ c.view(dunes, knots, knots) @ across.T
        else:
            surface = (torch.kron(along, across) @ c.T).T.reshape(dunes, tall, wide)
        surface = surface + smooth(surface[:, None])[:, 0]
        north, east = torch.gradient(surface, dim=(1, 2))
        shade = (1 + north - east) / (3 * (1 + north * north + east * east)).sqrt()
        return surface, shade.clamp(min=0)

    return step


@unseen(
    "torch.unique(dim=0) sorts rows of three coordinates with a comparison of rows; the coordinates packed into one "
    "integer for each point, whose unique values are taken in one dimension",
    names=r"\bunique(_dim|_consecutive|2)?\b|(pack|encod|combin|flatten|hash)\w* .{0,50}(coordinate|voxel|row|ind(ex|ices)"
    r"|integer|key)|(one|single|scalar|linear) (integer|key|index)|voxel",
    kind="inference",
    recorded="scan",
    on=("cpu",),
)
def shipwrecks_under_the_sonar(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    points, width, cells = 16000, 96, 64
    with torch.device(device):
        xyz = torch.randn(points, 3) * torch.tensor([3.0, 3.0, 1.0])
        echo = torch.rand(points, 4)
        lift, body = perceptron(7, 64, width), perceptron(width, 128, 12)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        cell = ((xyz / 0.35).floor().long() + cells).clamp(0, 2 * cells - 1)
        if changed:
            side = 2 * cells
            keys, inverse, counts = torch.unique(
                (cell[:, 0] * side + cell[:, 1]) * side + cell[:, 2], return_inverse=True, return_counts=True
            )
            places = torch.stack((keys // (side * side), keys // side % side, keys % side), 1)
        else:
            places, inverse, counts = torch.unique(cell, dim=0, return_inverse=True, return_counts=True)
        h = lift(torch.cat((xyz, echo), 1))
        pooled = torch.zeros(places.shape[0], width, device=device).index_add_(0, inverse, h) / counts[:, None]
        return body(pooled), places.float()

    return step


@unseen(
    "the darkest value of each neighbourhood is taken by max_pool2d with a window of 31 x 31 (961 comparisons for each "
    "pixel); a maximum over rows and then one over columns (31 x 1, 1 x 31)",
    names=r"max_?pool|separab|rows? .{0,30}columns?|31 ?x ?1\b|1 ?x ?31|(two|1-?d|one-dimensional) .{0,30}pool|large (window"
    r"|kernel)|van herk|(window|kernel)\w* (of|is) 31",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def valleys_seen_through_mist(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    frames, tall, wide, window = 2, 192, 256, 31
    with torch.device(device):
        pictures = torch.rand(frames, 3, tall, wide)
        refine = nn.Sequential(
            nn.Conv2d(4, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 1, 3, 1, 1)
        ).eval()

    @torch.no_grad()
    def step() -> Tensor:
        light = pictures.flatten(2).amax(2)[..., None, None]
        dark = -(pictures / light).amin(1, keepdim=True)
        half = window // 2
        if changed:
            dark = F.max_pool2d(dark, (window, 1), 1, (half, 0))
            dark = F.max_pool2d(dark, (1, window), 1, (0, half))
        else:
            dark = F.max_pool2d(dark, window, 1, half)
        through = (1 + 0.95 * dark + 0.05 * refine(torch.cat((pictures, dark), 1)).tanh()).clamp(min=0.1)
        return (pictures - light) / through + light

    return step


@unseen(
    "the Fourier transforms have a length that is a prime number (65537: sound and echo added up); padded to a length of "
    "small factors (2, 3, 5)",
    names=r"\bprime\b|fast (length|size)|(length|size)\w* .{0,60}(fft|fourier|transform|power of two)|power of (two|2)\b|(fft"
    r"|fourier|transform)\w* .{0,60}(length|size|padd|factor)|next_fast_len|65537|65536|small factors|pad\w* .{0,40}(fft"
    r"|transform)",
    kind="inference",
    recorded="render",
    on=("cpu",),
    with_stack=True,
)
def barrel_organs_in_a_courtyard(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    voices, sound, echo = 6, 49153, 16385
    length = sound + echo - 1
    while changed and 30**20 % length:  # until it has no other factors than 2, 3 and 5
        length += 1
    with torch.device(device):
        pipes = torch.randn(voices, sound)
        yard = torch.randn(2, echo) * torch.exp(-torch.arange(echo) / 3000)
        yard = torch.fft.rfft(yard, length)
        window = torch.hann_window(1024)
        meter = perceptron(513, 256, 256, 16)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        wet = torch.fft.irfft(torch.fft.rfft(pipes, length)[:, None] * yard, length)[..., : sound + echo - 1]
        mixed = wet.sum(0) / wet.abs().amax()
        loud = torch.stft(mixed, 1024, 256, window=window, return_complex=True).abs().transpose(1, 2)
        return mixed, meter(torch.log1p(loud)).mean(1)

    return step


@unseen(
    "the table of items has max_norm, so that each lookup first norms the rows it finds anew (embedding_renorm_), though "
    "the weights no longer change; rows normed once when the model is loaded, without max_norm",
    names=r"max_norm|renorm|norm\w* .{0,40}(once|row|table|embedding|lookup)|(embedding|table|lookup|row)\w* .{0,40}\bnorm",
    kind="inference",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def allotment_seeds_swapped(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    items, width, people, long = 40_000, 64, 512, 30
    with torch.device(device):
        table = nn.Embedding(items, width, max_norm=1.0)
        tower = perceptron(2 * width, 512, 512, width)
        seen = torch.randint(items, (people, long))
        offered = torch.randint(items, (2000,))
    if changed:
        with torch.no_grad():
            table(torch.arange(items, device=device))
        table.max_norm = None

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        past = table(seen)
        user = tower(torch.cat((past.mean(1), past.amax(1)), 1))
        scores = user @ table(offered).T
        best = scores.topk(20)
        return best.values, best.indices

    return step


@unseen(
    "the letters of the answers are looked up by walking over tensors, each letter a tensor that is compared and turned "
    "into an index by itself; the ids as lists once (tolist)",
    names=r"tolist|\bitem\b|_local_scalar_dense|(iterat|walk|loop)\w* over .{0,40}(tensor|token|\bids?\b|element|letter)"
    r"|aten::(eq|unbind|is_nonzero)\b|\b0-?d(im)?|element by element|one (element|token|id|letter) at a time|python (list"
    r"|int)|__index__",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def crosswords_filled_in_by_machine(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    clues, long, letters, width, end = 48, 40, 64, 256, 0
    alphabet = ["#", *(chr(ord("0") + i) for i in range(letters - 1))]
    with torch.device(device):
        embed, head = nn.Embedding(5000, width), nn.Linear(width, letters)
        recurrent = nn.GRU(width, width, batch_first=True, bidirectional=False)
        words = torch.randint(5000, (clues, long))

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        logits = head(recurrent(embed(words))[0])
        ids = logits.argmax(2)
        answers = []
        for row in ids.tolist() if changed else ids:
            answer = ""
            for letter in row:
                if letter == end:
                    break
                answer += alphabet[letter]
            answers.append(answer)
        return torch.tensor([float(sum(map(ord, answer))) for answer in answers]), logits.logsumexp(2)

    return step


# Training, with a fault.


@unseen(
    "the compressed .npz archive stays open as it is, and each access to one of its arrays reads and inflates the whole "
    "array anew; the arrays taken out once",
    names=r"\bnpz|NpzFile|np\.load|numpy\.load|zlib|zipfile|_npyio|read_array|inflat|decompress|(archive|array"
    r"|file)s? .{0,50}(once|anew|again|each (step|time)|every (step|time))|(read|load)\w* .{0,40}(once|anew|again|archive"
    r"|file)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def avocados_felt_by_spectrum(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    fruits, bands, batch = 1500, 224, 128
    source = np.random.default_rng(1)
    file = io.BytesIO()
    np.savez_compressed(
        file,
        spectra=(source.normal(size=(fruits, bands)) * 500).astype(np.int16),
        days=source.integers(0, 12, size=fruits),
    )
    file.seek(0)
    archive = np.load(file)
    stored = {name: archive[name] for name in archive.files} if changed else archive
    with torch.device(device):
        model = nn.Sequential(
            nn.Conv1d(1, 32, 7, 2, 3), nn.ReLU(), nn.Conv1d(32, 64, 5, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 56, 12)
        )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    chosen = np.random.default_rng(2)

    def step() -> Tensor:
        rows = chosen.integers(0, fruits, size=batch)
        x = torch.from_numpy(stored["spectra"][rows]).to(device, torch.float32).div(500)[:, None]
        y = torch.from_numpy(stored["days"][rows]).to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "each moment is taken out of the projected sequence by its index (x[:, t]), so that the backward pass fills a whole "
    "sequence of zeros for each moment and adds them up; x.unbind(1) once",
    names=r"unbind|select_backward|SelectBackward|aten::select\b|(select|slic|index)\w* .{0,80}(whole|full|zero)|(zero"
    r"|gradient)s? .{0,40}(whole|full|each|every) .{0,20}(sequence|moment|time|step)|zeros? .{0,30}gradient"
    r"|gradient .{0,40}\bzeros?\b|x\[:, t\]",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def tortoises_tracked_to_water(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    animals, moments, width = 24, 64, 128
    with torch.device(device):
        lift, gates = nn.Linear(6, 2 * width), nn.Linear(width, 2 * width)
        head = nn.Linear(width, 2)
        tracks, goals = torch.randn(animals, moments, 6), torch.randn(animals, moments, 2)
    weights = [*lift.parameters(), *gates.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(weights, 1e-4)

    def step() -> Tensor:
        x = lift(tracks)
        parts = x.unbind(1) if changed else None
        state, states = torch.zeros(animals, width, device=device), []
        for t in range(moments):
            update, candidate = ((x[:, t] if parts is None else parts[t]) + gates(state)).chunk(2, 1)
            state = torch.lerp(state, candidate.tanh(), update.sigmoid())
            states.append(state)
        loss = F.smooth_l1_loss(head(torch.stack(states, 1)), goals)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the likenesses of each picture with itself are left out by boolean indexing of the whole matrix (nonzero, index, and "
    "an index_put_ backward), twice; the diagonal filled with -inf, and the positives told by their index in cross_entropy",
    names=r"boolean|mask(ed)?_(select|fill)|nonzero|index_put|aten::index\b|IndexBackward|diagonal|mask\w* .{0,40}(index|select"
    r"|fill)|index\w* .{0,30}mask|advanced index|-inf",
    kind="training",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def sheep_told_by_their_faces(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    sheep = 384
    with torch.device(device):
        encoder = nn.Sequential(*convolutions((3, 16, 32, 64)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64))
        faces = torch.randn(sheep, 3, 24, 24)
        same = torch.eye(2 * sheep, dtype=torch.bool)
        partner = torch.arange(2 * sheep).roll(sheep)
        pairs = same[partner]
        first = torch.zeros(2 * sheep, dtype=torch.long)
    optimizer = torch.optim.SGD(encoder.parameters(), 1e-3)

    def step() -> Tensor:
        views = torch.cat((faces, faces.flip(3) + 0.1))
        z = F.normalize(encoder(views), dim=1)
        alike = z @ z.T / 0.2
        if changed:
            loss = F.cross_entropy(alike.masked_fill(same, -math.inf), partner)
        else:
            positive = alike[pairs].view(2 * sheep, 1)
            negative = alike[~(pairs | same)].view(2 * sheep, -1)
            loss = F.cross_entropy(torch.cat((positive, negative), 1), first)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "for each link the features of both its people are put side by side and multiplied by the layer's weights, though "
    "there are many more links than people; the weights split in two, each person multiplied once, and the products "
    "gathered and added",
    names=r"(split|separat|halves|two parts)\w* .{0,50}(weight|linear|layer|matri|projection)|(weight|linear|layer|matri"
    r"|projection)\w* .{0,60}(split|separat|halves|(per|each|every|by|for) (node|person|people)|node)|before .{0,30}gather"
    r"|gather\w* .{0,30}after|(per|each|every) (edge|link)|(many|more) (edges|links)|(aten::)?cat\b.{0,60}(linear|addmm"
    r"|edge|link)|once (per|for each) (node|person)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def rumours_through_a_village(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    people, links, width, layers = 600, 7000, 96, 2
    with torch.device(device):
        lift, head = nn.Linear(16, width), nn.Linear(width, 3)
        talks: Any = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])
        turns: Any = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])
        source, target = torch.randint(people, (2, links)).unbind(0)
        traits, heard = torch.randn(people, 16), torch.randint(3, (people,))
    weights = [p for part in (lift, head, talks, turns) for p in part.parameters()]
    optimizer = torch.optim.Adam(weights, 1e-4)

    def step() -> Tensor:
        h = lift(traits)
        for talk, turn in zip(talks, turns, strict=True):
            if changed:
                to, by = talk.weight.chunk(2, 1)
                said = F.linear(h, by, talk.bias).index_select(0, source) + F.linear(h, to).index_select(0, target)
            else:
                said = talk(torch.cat((h.index_select(0, target), h.index_select(0, source)), 1))
            news = torch.zeros_like(h).index_add(0, target, F.silu(said))
            h = h + turn(torch.cat((h, news), 1)).relu()
        loss = F.cross_entropy(head(h), heard)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the covariance of six factors and a diagonal is written out as a full matrix, whose Cholesky factor (and its "
    "gradient) is taken at each step; LowRankMultivariateNormal (Woodbury's identity), which factors a matrix of 6 x 6",
    names=r"cholesky|low.?rank|woodbury|MultivariateNormal|covariance|capacitance|triangular|determinant lemma",
    kind="training",
    recorded="week",
    on=("cpu",),
)
def bakeries_selling_together(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    shops, factors, days, width = 320, 6, 384, 512
    with torch.device(device):
        model = perceptron(32, width, width, shops)
        loadings = nn.Parameter(0.3 * torch.randn(shops, factors))
        spread = nn.Parameter(torch.zeros(shops))
        weather, sold = torch.randn(days, 32), torch.randn(days, shops)
    optimizer = torch.optim.AdamW([*model.parameters(), loadings, spread], 1e-5)

    def step() -> Tensor:
        expected, own = model(weather), F.softplus(spread) + 0.05
        normal: torch.distributions.Distribution
        if changed:
            normal = LowRankMultivariateNormal(expected, loadings, own, validate_args=False)
        else:
            normal = MultivariateNormal(expected, loadings @ loadings.T + own.diag(), validate_args=False)
        loss = -normal.log_prob(sold).mean() / shops
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the time of each line is read by datetime.strptime, which looks its format up in Python for each line; all of them by "
    "numpy's datetime64 (or datetime.fromisoformat)",
    names=r"strptime|datetime|time ?stamp|fromisoformat|\bdates?\b|\bpars(e|es|ed|ing)\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def weather_vanes_read_hourly(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    lines, width = 1200, 512
    source = random.Random(1)
    texts = []
    for _ in range(lines):
        day, hour, minute = source.randint(1, 28), source.randint(0, 23), source.randint(0, 59)
        winds = ";".join(f"{source.gauss(0, 5):.2f}" for _ in range(6))
        texts.append(f"2025-{source.randint(1, 12):02d}-{day:02d} {hour:02d}:{minute:02d}:00;{winds}")
    start = datetime(2025, 1, 1)
    with torch.device(device):
        model = perceptron(10, width, width, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> Tensor:
        rows = [text.split(";") for text in texts]
        if changed:
            since = np.array([row[0] for row in rows], dtype="datetime64[s]") - np.datetime64(start, "s")
            seconds = torch.from_numpy(since.astype(np.float64))
        else:
            moments = [datetime.strptime(row[0], "%Y-%m-%d %H:%M:%S") - start for row in rows]
            seconds = torch.tensor([moment.total_seconds() for moment in moments], dtype=torch.float64)
        winds = torch.tensor([[float(value) for value in row[1:]] for row in rows])
        turns = torch.stack((seconds / 86400, seconds / 86400 / 365.25), 1) * 2 * math.pi
        x = torch.cat((turns.sin().float(), turns.cos().float(), winds), 1).to(device)
        loss = F.mse_loss(model(x[:-1])[:, 0], x[1:, 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the player is given the learner's weights after each update through torch.save and torch.load in memory; copied from "
    "module to module (load_state_dict of the state_dict, or copy_)",
    names=r"torch\.(save|load)\b|serializ|serialis|pickl|BytesIO|_foreach_copy|load_state_dict|(weight|parameter"
    r"|state)\w* .{0,40}(cop(y|ied)\b|directly|in memory)|(save|load)\w* .{0,40}(weights|state|parameters|copy)",
    kind="training",
    recorded="update",
    on=("cpu",),
    profile_memory=True,
)
def curling_stones_swept(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    batch, width, actions = 160, 448, 9
    with torch.device(device):
        learner, player = (perceptron(24, width, width, width, actions) for _ in range(2))
        sheets, moves, scores = torch.randn(batch, 24), torch.randint(actions, (batch, 1)), torch.randn(batch, 1)
        throws = torch.randn(16, 24)
    optimizer = torch.optim.SGD(learner.parameters(), 1e-4)

    def step() -> tuple[Tensor, Tensor]:
        loss = F.smooth_l1_loss(learner(sheets).gather(1, moves), scores)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if changed:
            player.load_state_dict(learner.state_dict())
        else:
            message = io.BytesIO()
            torch.save(learner.state_dict(), message)
            message.seek(0)
            player.load_state_dict(torch.load(message, map_location=device))
        with torch.no_grad():
            state = throws
            for _ in range(4):
                state = state + 0.01 * player(state).softmax(1).amax(1, keepdim=True)
        return loss.detach(), state

    return step


# Nulls.


@unseen(
    "the optimizer takes its parameters one after the other; with foreach=True, which brings nothing on a CPU for a few "
    "large tensors",
    names=r"foreach|multi.?tensor",
    kind="training",
    recorded="none",
    null=True,
    on=("cpu",),
)
def planks_priced_at_a_sawmill(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    batch, width = 1024, 512
    with torch.device(device):
        model = perceptron(40, width, width, 1)
        planks, prices = torch.randn(batch, 40), torch.randn(batch, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9, foreach=changed)

    def step() -> Tensor:
        loss = F.huber_loss(model(planks), prices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the mask is where the sigmoid is over a half; where the logit is over zero, without a sigmoid, which the convolutions "
    "outweigh",
    names=r"sigmoid|logits? .{0,30}(zero|0)",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def umbrellas_found_on_the_beach(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    with torch.device(device):
        net = nn.Sequential(*convolutions((3, 32, 64)), *convolutions((64, 192, 192, 192), 1), nn.Conv2d(192, 1, 1)).eval()
        beaches = torch.rand(3, 3, 96, 96)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        logits = net(beaches - 0.5)
        logits = 100 * (logits - logits.mean())
        shades = logits > 0 if changed else torch.sigmoid(logits) > 0.5
        return shades.float().mean((1, 2, 3)), shades.float().mean(3)

    return step


@unseen(
    "each weight of the layers is transposed in the product (x @ w.T); stored transposed and contiguous, which the product "
    "does not care about",
    names=r"transpos|contiguous|aten::t\b|\.T\b",
    kind="inference",
    recorded="tray",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def pearls_graded_in_trays(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    pearls, width, layers = 768, 640, 5
    with torch.device(device):
        lustre = torch.randn(pearls, width)
        weights = [torch.randn(width, width) / width**0.5 for _ in range(layers)]
    ready = [weight.T.contiguous() for weight in weights]

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        h = lustre
        for weight, turned in zip(weights, ready, strict=True):
            h = F.layer_norm(h + F.silu(h @ turned if changed else h @ weight.T), (width,))
        return h.softmax(1).amax(1), h.mean(1)

    return step
