"""Eight pairs for two cores of a CPU, written without a look at the reader: six with a fault, two whose change brings nothing.

Sound, molecules, payments, photos, heart beats, a walking robot; the nulls are a load forecast and protein fragments.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
import random
import time
from typing import Any, NamedTuple

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import endless
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)

Floats = npt.NDArray[np.float32]


def generator(seed: int) -> torch.Generator:
    """Return a seeded generator, so that both variants see the same data."""
    return torch.Generator().manual_seed(seed)


class Spotter(nn.Module):
    """A small keyword spotter on log spectrograms."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.layers = nn.Sequential(
            nn.Conv1d(257, 128, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(128, 128, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(128, 128, 3, 1, 1),
            nn.ReLU(),
        )
        self.head = nn.Linear(128, 35)

    def forward(self, sound: Tensor) -> Tensor:
        window = self.get_buffer("window")
        power = torch.stft(sound, 512, 160, window=window, return_complex=True).abs().square()
        return self.head(self.layers((power + 1e-6).log()).mean(2))


@unseen(
    "rooms' echoes of thousands of taps are put on the clips by a direct convolution (conv1d, a group for each clip), whose work "
    "is length times taps; convolve in the frequency domain (rfft, multiply, irfft)",
    names=r"\bi?r?fft\b|fft[-_ ]?conv|fftconvolve|torch\.fft|frequency[- ]domain|overlap[- ](add|save)|fourier (domain|space)|"
    r"(long|large|huge|wide)[- ](fir|kernel|filter|tap)|impulse response|direct convolution|\btaps\b|\bin_room\b",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def keywords_in_rooms(device: str, changed: bool) -> Step:
    """Train a keyword spotter on clips with a room's echo."""
    source = generator(11)
    clips = torch.randn(32, 16000, generator=source) * 0.1
    rooms = torch.randn(32, 2400, generator=source) * torch.exp(-torch.arange(2400) / 400.0)
    rooms[:, 0] = 1.0
    words = torch.randint(35, (32,), generator=source)
    model = Spotter().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def in_room(sound: Tensor, room: Tensor) -> Tensor:
        length, taps = sound.shape[1], room.shape[1]
        if changed:
            size = 18432  # 2 ** 11 * 9, not below length + taps - 1
            return torch.fft.irfft(torch.fft.rfft(sound, size) * torch.fft.rfft(room, size), size)[:, :length]
        padded = F.pad(sound, (taps - 1, 0))
        return F.conv1d(padded[None], room.flip(1)[:, None], groups=len(sound))[0]

    def step() -> list[Tensor]:
        with torch.no_grad():
            heard = in_room(clips, rooms)
            heard = heard / heard.abs().amax(1, keepdim=True)
        loss = F.cross_entropy(model(heard), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss.detach(), heard[:, ::997]]

    return step


class Molecule(NamedTuple):
    """The atoms and bonds of a molecule."""

    numbers: Tensor
    places: Tensor
    charges: Tensor
    bonds: Tensor
    orders: Tensor


class Molecules(Dataset[Molecule]):
    """Random molecules."""

    def __init__(self, count: int) -> None:
        source = generator(12)
        self.molecules = []
        for _ in range(count):
            atoms = int(torch.randint(12, 30, (), generator=source))
            self.molecules.append(
                Molecule(
                    torch.randint(1, 20, (atoms,), generator=source),
                    torch.randn(atoms, 3, generator=source) * 2,
                    torch.randn(atoms, generator=source) * 0.1,
                    torch.randint(atoms, (2, 4 * atoms), generator=source),
                    torch.randint(4, (4 * atoms,), generator=source),
                )
            )

    def __len__(self) -> int:
        return len(self.molecules)

    def __getitem__(self, index: int) -> Molecule:
        one = self.molecules[index]
        return one._replace(places=one.places - one.places.mean(0), charges=one.charges - one.charges.mean())


def merged(molecules: list[Molecule]) -> tuple[Molecule, Tensor]:
    """Make one graph of the molecules, and say whose each atom is."""
    counts = torch.tensor([len(one.numbers) for one in molecules])
    starts = counts.cumsum(0) - counts
    bonds = torch.cat([one.bonds + start for one, start in zip(molecules, starts, strict=True)], 1)
    graph = Molecule(
        torch.cat([one.numbers for one in molecules]),
        torch.cat([one.places for one in molecules]),
        torch.cat([one.charges for one in molecules]),
        bonds,
        torch.cat([one.orders for one in molecules]),
    )
    return graph, torch.repeat_interleave(torch.arange(len(molecules)), counts)


def as_they_are(molecules: list[Molecule]) -> list[Molecule]:
    """Leave a batch a list."""
    return molecules


class Energies(nn.Module):
    """Pass messages along the bonds."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.atom, self.order = nn.Embedding(20, width), nn.Embedding(4, width)
        self.start = nn.Linear(width + 1, width)
        self.messages = nn.ModuleList(nn.Linear(2 * width + 1, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.energy = nn.Linear(width, 1)

    def forward(self, graph: Molecule, owner: Tensor, count: int) -> Tensor:
        x = F.silu(self.start(torch.cat([self.atom(graph.numbers), graph.charges[:, None]], 1)))
        left, right = graph.bonds
        far = (graph.places[left] - graph.places[right]).square().sum(1, keepdim=True)
        order = self.order(graph.orders)
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = F.silu(message(torch.cat([x[left], order, far], 1)))
            x = x + F.silu(update(torch.cat([x, torch.zeros_like(x).index_add_(0, right, sent)], 1)))
        return torch.zeros(count, 1).index_add_(0, owner, self.energy(x))


@unseen(
    "the worker hands each molecule over as five small tensors (collate_fn leaves the list), so that a batch sends hundreds of "
    "storages between the processes, a file descriptor each; merge them within collate_fn in the worker: few tensors a batch",
    names=r"collate|rebuild_storage_fd|rebuild_tensor|file[- ]descriptors?|recv_handle|recvfds|(many|small|tiny|hundreds of) "
    r"(separate |single |individual )?(tensors|storages) (from|through|over|between|across|per batch|a batch|sent|passed|handed)|"
    r"inter-?process|\bIPC\b|unpickl|pickl|file_system|sharing[_ ]strategy|shared[- ]memory|as_they_are",
    kind="inference",
    recorded="step",
    with_stack=True,
    on=("cpu",),
)
def molecules_screened(device: str, changed: bool) -> Step:
    """Predict the energies of batches of molecules that a worker reads."""
    collate: Callable[[list[Molecule]], Any] = merged if changed else as_they_are
    loader = DataLoader(
        Molecules(400), 40, num_workers=1, collate_fn=collate, persistent_workers=True, multiprocessing_context="fork"
    )
    batches = endless(loader)
    model = Energies(192, 4).to(device).eval()

    def step() -> Tensor:
        batch = next(batches)
        graph, owner = batch if changed else merged(batch)
        with torch.inference_mode():
            return model(graph, owner, 40)

    return step


def strings_of_payments(count: int) -> list[str]:
    """Return the times of payments, as a file of them has them."""
    source, start = random.Random(13), datetime(2023, 1, 1)
    return [(start + timedelta(seconds=source.randrange(60_000_000))).strftime("%Y-%m-%d %H:%M:%S") for _ in range(count)]


def clock_features(stamps: list[str]) -> Tensor:
    """Return second of the day, day of the week and days since 2023, for each time."""
    rows = []
    for stamp in stamps:
        when = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S")
        second = when.hour * 3600 + when.minute * 60 + when.second
        rows.append((second, when.weekday(), (when - datetime(2023, 1, 1)).days))
    return torch.tensor(rows)


def clock_features_at_once(stamps: list[str]) -> Tensor:
    """Return the same, without a loop."""
    seconds = np.array(stamps, dtype="datetime64[s]").astype(np.int64)
    days = seconds // 86400
    return torch.from_numpy(np.stack([seconds % 86400, (days + 3) % 7, days - 19358], 1))


class Payments(nn.Module):
    """Score rows of a table by embeddings and a residual net."""

    def __init__(self) -> None:
        super().__init__()
        self.shop, self.country, self.day = nn.Embedding(5000, 32), nn.Embedding(200, 16), nn.Embedding(7, 8)
        self.start = nn.Linear(32 + 16 + 8 + 4, 192)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 192)) for _ in range(3))
        self.end = nn.Linear(192, 1)

    def forward(self, shops: Tensor, countries: Tensor, amounts: Tensor, clock: Tensor) -> Tensor:
        angle = clock[:, :1] * (2 * torch.pi / 86400)
        numbers = [amounts.log1p()[:, None], angle.sin(), angle.cos(), clock[:, 2:] / 365.0]
        x = self.start(torch.cat([self.shop(shops), self.country(countries), self.day(clock[:, 1]), *numbers], 1))
        for block in self.blocks:
            x = x + block(x)
        return self.end(x).sigmoid()[:, 0]


@unseen(
    "clock_features parses thousands of times by datetime.strptime, one by one in Python; parse them at once "
    "(numpy datetime64, pandas.to_datetime; or datetime.fromisoformat, or once ahead of serving)",
    names=r"strptime|clock_features|fromisoformat|datetime|time[- ]?stamps?\b.{0,40}pars|pars\w* (the |of |each |all )?"
    r"(dates?|times?|time ?stamps?|strings)\b|date pars",
    kind="inference",
    recorded="none",
    with_stack=True,
    on=("cpu",),
)
def payments_scored(device: str, changed: bool) -> Step:
    """Score a batch of payments for fraud."""
    source, count = generator(13), 5000
    stamps = strings_of_payments(count)
    shops, countries = torch.randint(5000, (count,), generator=source), torch.randint(200, (count,), generator=source)
    amounts = torch.rand(count, generator=source) * 300
    model = Payments().to(device).eval()
    features = clock_features_at_once if changed else clock_features

    def step() -> list[Tensor]:
        clock = features(stamps)
        with torch.inference_mode():
            return list(model(shops, countries, amounts, clock).topk(50))

    return step


def prepared(photo: npt.NDArray[np.uint8]) -> Tensor:
    """Shrink and normalise a photo."""
    picture = torch.from_numpy(photo).permute(2, 0, 1)[None].float().div_(255)
    picture = F.interpolate(picture, (160, 160), mode="bilinear", antialias=True)
    return (picture - 0.45) / 0.225


def when_ready(jobs: list[Future[Tensor]], changed: bool) -> Tensor:
    """Wait for the photos, and make a batch of them."""
    if not changed:
        while not all(job.done() for job in jobs):
            time.sleep(0.05)
    return torch.cat([job.result() for job in jobs])


@unseen(
    "when_ready polls the pool's futures with time.sleep(0.05) between looks, and so sleeps on after they are done; wait for "
    "them (Future.result, concurrent.futures.wait, as_completed), which returns at once",
    names=r"sleep|\bpoll(s|ed|ing)?\b|when_ready|as_completed|futures\.wait|Future\.result|\.result\(\)|"
    r"threading\.(Event|Condition)|condition variable|block(s|ing)? (wait|get|call)|busy[- ]?wait|notif(y|ied|ication)",
    kind="inference",
    recorded="request",
    with_stack=True,
    on=("cpu",),
)
def shelves_photographed(device: str, changed: bool) -> Step:
    """Count goods on photos that a pool of threads prepares."""
    source = np.random.default_rng(14)
    photos = [source.integers(0, 256, (480, 640, 3), dtype=np.uint8) for _ in range(8)]
    pool = ThreadPoolExecutor(2)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 48), (48, 80), (80, 112), (112, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(128, 12, 1), nn.Softplus()).eval()
    model = model.to(device).to(memory_format=torch.channels_last)

    def step() -> Tensor:
        jobs = [pool.submit(prepared, photo) for photo in photos]
        batch = when_ready(jobs, changed).contiguous(memory_format=torch.channels_last)
        with torch.inference_mode():
            return model(batch).sum((2, 3))

    return step


class Beats(nn.Module):
    """An auto-encoder of heart beats whose codes are of a book."""

    def __init__(self, changed: bool) -> None:
        super().__init__()
        self.changed = changed
        self.encoder = nn.Sequential(
            nn.Conv1d(2, 96, 9, 2, 4), nn.ReLU(), nn.Conv1d(96, 128, 9, 2, 4), nn.ReLU(), nn.Conv1d(128, 48, 5, 2, 2)
        )
        self.book = nn.Parameter(torch.randn(192, 48) * 0.05)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(48, 128, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(128, 96, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(96, 2, 4, 2, 1),
        )

    @torch.no_grad()
    def nearest(self, points: Tensor) -> Tensor:
        """Return the number of the nearest code of each point."""
        if self.changed:
            far = self.book.square().sum(1) - 2 * points @ self.book.T
        else:
            far = (points[:, None] - self.book[None]).pow(2).sum(2)
        return far.argmin(1)

    def forward(self, beats: Tensor) -> Tensor:
        points = self.encoder(beats).transpose(1, 2)
        codes = F.embedding(self.nearest(points.flatten(0, 1)), self.book).view_as(points)
        lost = F.mse_loss(codes, points.detach()) + 0.25 * F.mse_loss(points, codes.detach())
        back = self.decoder((points + (codes - points).detach()).transpose(1, 2))
        return F.mse_loss(back, beats) + lost


@unseen(
    "the distances to the codebook are made by broadcasting: differences of all pairs in all dimensions, (points, codes, width), "
    "are written to memory; torch.cdist, or |a|^2 - 2ab + |b|^2 with one matrix product",
    names=r"cdist|pairwise (squared )?(distance|difference)|broadcast|(points|rows) ?x ?(codes|columns)|"
    r"euclidean|squared distance|: nearest\b|nearest(\(| (code|neighbou?r))|code ?book|\ba(\^2|²|\*\*2) ?[-+] ?2|"
    r"aten::(sub|pow)\b.{0,120}(matmul|matrix (product|multipl)|\bGEMM)|"
    r"(matmul|matrix (product|multipl)\w*|GEMM)\b.{0,120}(distance|difference)",
    kind="training",
    recorded="step",
    profile_memory=True,
    on=("cpu",),
)
def heartbeats_quantized(device: str, changed: bool) -> Step:
    """Train the auto-encoder on two leads of an ECG."""
    beats = torch.randn(12, 2, 1024, generator=generator(15)).cumsum(2) * 0.05
    model = Beats(changed).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        loss = model(beats)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Move(NamedTuple):
    """What a robot saw, did, got and saw then."""

    seen: Floats
    action: Floats
    reward: float
    then: Floats
    ended: bool


class Memory:
    """The last moves, of which batches are drawn."""

    def __init__(self, moves: list[Move], changed: bool) -> None:
        self.moves, self.changed, self.dice = moves, changed, random.Random(16)

    def tensor(self, arrays: list[Floats]) -> Tensor:
        return torch.from_numpy(np.stack(arrays)) if self.changed else torch.tensor(arrays)

    def draw(self, count: int) -> tuple[Tensor, ...]:
        seen, action, reward, then, ended = zip(*self.dice.sample(self.moves, count), strict=True)
        flags = torch.tensor(reward), torch.tensor(ended, dtype=torch.float32)
        return self.tensor(list(seen)), self.tensor(list(action)), flags[0], self.tensor(list(then)), flags[1]


def critic(seen: int, actions: int) -> nn.Sequential:
    """Return the net that values moves."""
    return nn.Sequential(nn.Linear(seen + actions, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1))


@unseen(
    "the drawn batch is made by torch.tensor of a list of numpy arrays, which reads element by element; "
    "np.stack or np.array first, then torch.from_numpy (or hold the moves in one tensor and index it)",
    names=r"from_numpy|as_tensor|np\.(stack|array|asarray)|numpy\.(stack|array|asarray)|lists? of (numpy |np\.)?(nd)?arrays?|"
    r"torch\.tensor\b|(element|item|value|number)[- ]by[- ](element|item|value|number)|replay (buffer|memory)|"
    r"built-?in (method|function) tensor|\bdraw\b|Memory\.tensor",
    kind="training",
    recorded="none",
    with_stack=True,
    record_shapes=False,
    on=("cpu",),
)
def walker_learns(device: str, changed: bool) -> Step:
    """Update the critics and the actor of a walking robot."""
    source = np.random.default_rng(16)
    moves = [
        Move(
            source.standard_normal(105).astype(np.float32),
            source.uniform(-1, 1, 8).astype(np.float32),
            float(source.standard_normal()),
            source.standard_normal(105).astype(np.float32),
            bool(source.random() < 0.02),
        )
        for _ in range(4000)
    ]
    memory = Memory(moves, changed)
    first, second = critic(105, 8).to(device), critic(105, 8).to(device)
    old_first, old_second = critic(105, 8).to(device), critic(105, 8).to(device)
    actor = nn.Sequential(nn.Linear(105, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 8), nn.Tanh()).to(device)
    learned: list[Tensor] = [*first.parameters(), *second.parameters()]
    followers: list[Tensor] = [*old_first.parameters(), *old_second.parameters()]
    critics = torch.optim.Adam(learned, lr=3e-4, fused=True)
    acting = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)

    def step() -> Tensor:
        seen, action, reward, then, ended = memory.draw(384)
        with torch.no_grad():
            ahead = torch.cat([then, actor(then)], 1)
            worth = torch.minimum(old_first(ahead), old_second(ahead))[:, 0]
            wanted = reward + 0.99 * (1 - ended) * worth
        pair = torch.cat([seen, action], 1)
        loss = F.mse_loss(first(pair)[:, 0], wanted) + F.mse_loss(second(pair)[:, 0], wanted)
        critics.zero_grad()
        loss.backward()
        critics.step()
        gain = -first(torch.cat([seen, actor(seen)], 1)).mean()
        acting.zero_grad()
        gain.backward()
        acting.step()
        with torch.no_grad():
            torch._foreach_lerp_(followers, learned, 0.005)
        return loss.detach()

    return step


class Loads(Dataset[tuple[Tensor, Tensor]]):
    """Windows of the load of a grid's regions."""

    def __init__(self) -> None:
        self.series = torch.randn(6000, 32, generator=generator(17)).cumsum(0) * 0.02

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.series[index : index + 192]
        centre = window[:168].mean(0)
        return window[:168] - centre, window[168:] - centre


class Mixing(nn.Module):
    """Mix along hours, then along regions."""

    def __init__(self, hours: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(nn.Linear(hours, 2 * hours), nn.ReLU(), nn.Linear(2 * hours, hours))
        self.across = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.along(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.second(x))


@unseen(
    "a null: two workers in place of one, where one is always ahead of a step whose products of matrices fill both cores",
    names=r"num_workers|more workers|(another|second|additional|extra) worker|prefetch|data ?loader|waits? (for|on) (the )?"
    r"(data|batch|loader|worker)|input[- ]bound|data loading",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def grid_load_forecast(device: str, changed: bool) -> Step:
    """Train a forecast of a day's load on a week of it."""
    loader = DataLoader(
        Loads(), 32, num_workers=2 if changed else 1, persistent_workers=True, drop_last=True, multiprocessing_context="fork"
    )
    batches = endless(loader)
    model = nn.ModuleDict(
        {
            "start": nn.Linear(32, 160),
            "mix": nn.Sequential(*(Mixing(168, 160) for _ in range(2))),
            "hours": nn.Linear(168, 24),
            "end": nn.Linear(160, 32),
        }
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> Tensor:
        week, day = next(batches)
        x = model["mix"](model["start"](week))
        loss = F.l1_loss(model["end"](model["hours"](x.transpose(1, 2)).transpose(1, 2)), day)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Residues(nn.Module):
    """A layer of a protein's language model, its projections apart or in one."""

    def __init__(self, width: int, heads: int, changed: bool) -> None:
        super().__init__()
        self.heads, self.changed = heads, changed
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        apart = (self.query, self.key, self.value)
        self.all = nn.Linear(width, 3 * width) if changed else None
        if self.all is not None:
            with torch.no_grad():
                self.all.weight.copy_(torch.cat([part.weight for part in apart]))
                self.all.bias.copy_(torch.cat([part.bias for part in apart]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        parts = self.all(y).chunk(3, 2) if self.all is not None else (self.query(y), self.key(y), self.value(y))
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


@unseen(
    "a null: the three projections of attention become one linear layer, where each product is large enough to fill both cores",
    names=r"\bqkv\b|q, ?k,? (and )?v|(one|single|merged?|fused?|combined?|stacked?|joint|packed) (linear|projection|matmul|GEMM)|"
    r"in_proj|(merge|fuse|combine|stack|join|pack)\w* (the )?(three |several |parallel )?(linear|projection|matmul|GEMM|"
    r"aten::(addmm|linear))|(same|shared) input",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
)
def protein_fragments_embedded(device: str, changed: bool) -> Step:
    """Embed fragments of proteins."""
    fragments = torch.randint(25, (6, 192), generator=generator(18))
    start = nn.Embedding(25, 256).to(device)
    places = nn.Parameter(torch.randn(192, 256) * 0.02)
    layers: list[Residues] = []
    for number in range(3):
        torch.manual_seed(100 + number)
        layers.append(Residues(256, 8, changed).to(device).eval())
    end = nn.LayerNorm(256).to(device)

    def step() -> Tensor:
        with torch.inference_mode():
            x = start(fragments) + places
            for layer in layers:
                x = layer(x)
            return F.normalize(end(x).mean(1), dim=1)

    return step
