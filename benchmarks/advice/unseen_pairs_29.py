"""Small PyTorch programs for two cores of a CPU, with one performance fault each, and the same programs after one change.

Set 29: eight faults that people meet in training scripts, inference services and research code, and two plausible changes that
bring nothing (null). UNSEEN holds the pairs by name; a pair's build(device, changed) returns a step.
"""

from collections.abc import Iterator
import queue
import threading
from typing import Any

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, endless
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


class FieldPhotos(Dataset[tuple[Tensor, Tensor]]):
    """Photos of rows of maize with a grade each; a patch of each is what the model sees."""

    mean, deviation = (0.41, 0.45, 0.31), (0.21, 0.19, 0.18)

    def __init__(self, photos: int, side: int, patch: int, crop_first: bool) -> None:
        self.photos = torch.randint(0, 256, (photos, 3, side, side), dtype=torch.uint8)
        self.grades = torch.randint(0, 5, (photos,))
        self.patch, self.crop_first = patch, crop_first
        self.shift = torch.tensor(self.mean)[:, None, None]
        self.scale = torch.tensor(self.deviation)[:, None, None]

    def __len__(self) -> int:
        return len(self.photos)

    def crop(self, photo: Tensor, top: int, left: int) -> Tensor:
        return photo[:, top : top + self.patch, left : left + self.patch]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        photo = self.photos[index]
        room = photo.shape[-1] - self.patch
        top, left = torch.randint(0, room, (2,)).tolist()
        light, gamma = (torch.rand(2) * 0.4 + 0.8).tolist()
        if self.crop_first:
            photo = self.crop(photo, top, left)
        picture = (photo.float() / 255 * light).clamp(0, 1).pow(gamma)
        picture = (picture - self.shift) / self.scale
        if not self.crop_first:
            picture = self.crop(picture, top, left)
        return picture.contiguous(), self.grades[index]


@unseen(
    "the dataset's __getitem__ converts, jitters and normalizes the whole photo, then crops a small patch; crop first, as uint8",
    names=r"\bcrop|__getitem__|FieldPhotos|data ?load(er|ing)|input pipeline|num_workers|augmentation|preprocess|"
    r"(full|whole|entire)[- ](size|resolution|photo|picture|image)",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def maize_rows_graded(device: str, changed: bool) -> Step:
    photos = FieldPhotos(24, 640, 128, changed)
    model = nn.Sequential(
        *convolutions((3, 24, 48, 96, 128)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(128, 5)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = endless(DataLoader(photos, batch_size=12, shuffle=True))

    def step() -> Tensor:
        pictures, grades = next(batches)
        loss = F.cross_entropy(model(pictures.to(device)), grades.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


Molecule = tuple[Tensor, Tensor, Tensor, Tensor]


class Molecules(Dataset[Molecule]):
    """Molecules: kinds of atoms, charges, bonds, kinds of bonds."""

    def __init__(self, count: int) -> None:
        made = torch.Generator().manual_seed(3)
        self.found: list[Molecule] = []
        for index in range(count):
            atoms, bonds = 14 + index % 17, 30 + 2 * (index % 19)
            self.found.append(
                (
                    torch.randint(0, 20, (atoms,), generator=made),
                    torch.randn(atoms, 3, generator=made),
                    torch.randint(0, atoms, (2, bonds), generator=made),
                    torch.randint(0, 4, (bonds,), generator=made),
                )
            )

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int) -> Molecule:
        return self.found[index]


def as_listed(molecules: list[Molecule]) -> list[Molecule]:
    return molecules


def joined(molecules: list[Molecule]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Make one graph of several."""
    kinds, charges, bonds, orders = zip(*molecules, strict=True)
    sizes = torch.tensor([len(kind) for kind in kinds])
    firsts = sizes.cumsum(0) - sizes
    shifted = torch.cat([pair + first for pair, first in zip(bonds, firsts.tolist(), strict=True)], 1)
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return torch.cat(kinds), torch.cat(charges), shifted, torch.cat(orders), owner


class Affinity(nn.Module):
    """Message passing over bonds, and a value for each molecule."""

    def __init__(self, width: int, rounds: int) -> None:
        super().__init__()
        self.kind, self.order = nn.Embedding(20, width), nn.Embedding(4, width)
        self.charge = nn.Linear(3, width)
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.update = nn.ModuleList(nn.GRUCell(width, width) for _ in range(rounds))
        self.value = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, kinds: Tensor, charges: Tensor, bonds: Tensor, orders: Tensor, owner: Tensor, count: int) -> Tensor:
        x = self.kind(kinds) + self.charge(charges)
        edge = self.order(orders)
        for message, update in zip(self.message, self.update, strict=True):
            sent = F.silu(message(torch.cat((x[bonds[0]], edge), 1)))
            x = update(torch.zeros_like(x).index_add_(0, bonds[1], sent), x)
        return torch.zeros(count, 1, device=x.device).index_add_(0, owner, self.value(x))


@unseen(
    "collate_fn hands a list of hundreds of tiny tensors per batch from the worker, each by shared memory and a file descriptor "
    "of its own; join them in the worker's collate_fn, so that a batch is five tensors",
    names=r"collat|shared[- ]memory|file descriptor|rebuild_storage|sharing_strategy|inter-?process|\bIPC\b|"
    r"(many|small|tiny|hundreds of|number of) tensors.{0,60}(worker|load)|worker.{0,60}(many|small|tiny|hundreds of) tensors|"
    r"data ?load(er|ing)|pickl|aten::set_\b",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def molecules_screened(device: str, changed: bool) -> Step:
    count = 56
    loader = DataLoader(
        Molecules(count * 12),
        batch_size=count,
        num_workers=1,
        persistent_workers=True,
        collate_fn=joined if changed else as_listed,
    )
    model = Affinity(160, 3).to(device).eval()
    batches = endless(loader)

    @torch.inference_mode()
    def step() -> Tensor:
        batch = next(batches)
        graph = batch if changed else joined(batch)
        affinity: Tensor = model(*(part.to(device) for part in graph), count)
        return affinity.sigmoid()

    return step


class ClauseModel(nn.Module):
    """A causal language model that proposes the word after a clause."""

    def __init__(self, words: int, width: int, layers: int, last_only: bool) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(256, width)
        self.layers = nn.ModuleList(Layer(width, 8, causal=True) for _ in range(layers))
        self.norm, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.last_only = last_only

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        x = self.embed(words) + self.place.weight[: words.shape[1]]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        rows = torch.arange(len(words), device=words.device)
        if self.last_only:
            logits: Tensor = self.lm_head(x[rows, lengths - 1])
            return logits
        logits = self.lm_head(x).float()
        return logits[rows, lengths - 1]


@unseen(
    "the language model's head computes logits at every position, of which only each clause's last is used; pick the last hidden "
    "state ahead of the head",
    names=r"lm_head|logit|vocab|(last|final) (token|position|hidden|word)|(every|all|each) (the )?(position|token)|"
    r"(unused|discarded|thrown away) (rows|output|position)|output projection",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def clauses_continued(device: str, changed: bool) -> Step:
    model = ClauseModel(14000, 256, 4, changed).to(device).eval()
    words = torch.randint(0, 14000, (4, 128), device=device)
    lengths = torch.tensor([128, 117, 96, 121], device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        logits = model(words, lengths)
        best = logits.topk(20).values
        return (best / 0.8).softmax(-1)

    return step


class VisitRanker(nn.Module):
    """Scores a visitor's interest in an article."""

    def __init__(self, visitors: int, articles: int, width: int, sparse: bool) -> None:
        super().__init__()
        self.visitor = nn.Embedding(visitors, width, sparse=sparse)
        self.article = nn.Embedding(articles, width, sparse=sparse)
        self.score = nn.Sequential(
            nn.Linear(2 * width + 16, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, visitors: Tensor, articles: Tensor, context: Tensor) -> Tensor:
        score: Tensor = self.score(torch.cat((self.visitor(visitors), self.article(articles), context), 1))
        return score.squeeze(1)


@unseen(
    "the big embedding tables get dense gradients of which few rows differ from zero, and SGD goes over all rows; sparse=True",
    names=r"sparse|embedding_dense_backward|EmbeddingBackward|(dense|whole|full) (gradient|table)|"
    r"embedding.{0,40}(gradient|table|rows)",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def shop_visits_ranked(device: str, changed: bool) -> Step:
    visitors, articles, batch = 240_000, 90_000, 2048
    model = VisitRanker(visitors, articles, 32, changed).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    made = torch.Generator().manual_seed(5)
    who = torch.randint(0, visitors, (batch,), generator=made).to(device)
    what = (torch.rand(batch, generator=made).pow(3) * articles).long().to(device)
    context = torch.randn(batch, 16, generator=made).to(device)
    bought = (torch.rand(batch, generator=made) < 0.1).float().to(device)

    def step() -> list[Tensor]:
        loss = F.binary_cross_entropy_with_logits(model(who, what, context), bought)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss.detach(), model.visitor.weight.detach()[who[:8]].clone()]

    return step


class TemplateMatcher(nn.Module):
    """Correlates stations' records with templates of known quakes, and rates the peaks."""

    def __init__(self, templates: int, taps: int, samples: int, length: int) -> None:
        super().__init__()
        self.samples, self.length = samples, length
        self.register_buffer("spectra", torch.fft.rfft(torch.randn(templates, taps), n=length).conj())
        self.rate = nn.Sequential(
            nn.Conv1d(templates, 24, 9, 4, 4), nn.ReLU(), nn.Conv1d(24, 32, 9, 4, 4), nn.ReLU(), nn.Conv1d(32, 1, 5, 1, 2)
        )

    def correlated(self, records: Tensor) -> Tensor:
        spectra = torch.fft.rfft(records, n=self.length)
        both = spectra[:, None] * self.get_buffer("spectra")
        return torch.fft.irfft(both, n=self.length)[..., : self.samples]

    def forward(self, records: Tensor) -> Tensor:
        records = (records - records.mean(-1, keepdim=True)) / records.std(-1, keepdim=True)
        peaks = self.correlated(records)
        peaks = peaks / peaks.square().mean(-1, keepdim=True).sqrt()
        rated: Tensor = self.rate(peaks)
        return rated.squeeze(1)


@unseen(
    "the FFT's length, samples + taps - 1, is a prime number; pad to the next length of small factors",
    names=r"prime|power[- ]of[- ](two|2)|next_fast_len|fast(er)? length|(smooth|good|composite|round) (fft )?(length|size)|"
    r"small (prime )?factors|aten::_?fft_|\b[ri]*fft\b|Fourier",
    kind="inference",
    recorded="hour",
    on=("cpu",),
)
def quakes_matched(device: str, changed: bool) -> Step:
    samples, taps = 19_500, 510  # the sum less one is 20009
    full = samples + taps - 1
    model = TemplateMatcher(8, taps, samples, 20_480 if changed else full).to(device).eval()
    records = torch.randn(32, samples, generator=torch.Generator().manual_seed(2)).cumsum(-1).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(records).amax(-1)

    return step


class StreetLabeller(nn.Module):
    """Labels the pixels of panoramas."""

    def __init__(self, labels: int, label_first: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(*convolutions((3, 32, 64)))
        self.body = nn.Sequential(*convolutions((64, 64, 64, 64), 1))
        self.label = nn.Conv2d(64, labels, 1)
        self.label_first = label_first

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.stem(pictures)
        x = x + self.body(x)
        if self.label_first:
            return F.interpolate(self.label(x), size=pictures.shape[-2:], mode="bilinear", align_corners=False)
        x = F.interpolate(x, size=pictures.shape[-2:], mode="bilinear", align_corners=False)
        labelled: Tensor = self.label(x)
        return labelled


@unseen(
    "features of 64 channels are interpolated to full resolution and only then projected to 6 labels by a 1x1 convolution; "
    "project first, then interpolate",
    names=r"upsampl|interpolat|\b1 ?[x\u00d7] ?1\b|pointwise|(low|lower|reduced|coarse|small)(er)? resolution|resiz|"
    r"StreetLabeller",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def panoramas_labelled(device: str, changed: bool) -> Step:
    model = StreetLabeller(6, changed).to(device).eval()
    pictures = torch.randn(2, 3, 256, 512, device=device)

    @torch.inference_mode()
    def step() -> list[Tensor]:
        shares = model(pictures).softmax(1)
        return [shares.mean((2, 3)), shares[:, :, ::16, ::16].clone()]

    return step


class FlightLog:
    """Takes the boxes of frames on a thread of its own and keeps a smoothed track."""

    def __init__(self, blocking: bool) -> None:
        self.boxes: queue.Queue[list[list[float]] | None] = queue.Queue()
        self.blocking = blocking
        self.track: list[list[float]] = []
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def arrivals(self) -> Iterator[list[list[float]]]:
        while True:
            if not self.blocking and self.boxes.empty():
                continue
            boxes = self.boxes.get()
            if boxes is None:
                return
            yield boxes

    def follow(self) -> None:
        for boxes in self.arrivals():
            for box in boxes:
                past = self.track[-1] if self.track else box
                self.track.append([0.7 * old + 0.3 * new for old, new in zip(past, box, strict=True)])

    def close(self) -> list[list[float]]:
        self.boxes.put(None)
        self.thread.join()
        return self.track


@unseen(
    "the thread of the log polls an empty queue in a tight loop and so holds the GIL (and a core), for which the model's thread "
    "waits after each operation; block in Queue.get",
    names=r"\bGIL\b|interpreter lock|busy[- ]?(wait|loop)|spin(s|ning)?\b|spin[- ]?(wait|lock|loop)|\bpoll(s|ing)?\b|tight loop|"
    r"queue\.(get|empty)|blocking get|another (python )?thread|other (python )?threads?|background thread|FlightLog|\barrivals\b",
    kind="inference",
    recorded="flight",
    on=("cpu",),
    with_stack=True,
)
def drone_frames_tracked(device: str, changed: bool) -> Step:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(64, 96, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(96 * 16, 4),
    ).to(device)
    model.eval()
    frames = torch.rand(8, 3, 288, 384, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        log = FlightLog(changed)
        for box in model(frames).sigmoid().tolist():
            log.boxes.put([box])
        return torch.tensor(log.close())

    return step


def store_means_by_mask(rows: Tensor, stores: Tensor, count: int) -> Tensor:
    means = torch.zeros(count, rows.shape[1], device=rows.device)
    for store in range(count):
        own = rows[stores == store]
        if len(own):
            means[store] = own.mean(0)
    return means


def store_means_by_index(rows: Tensor, stores: Tensor, count: int) -> Tensor:
    sums = torch.zeros(count, rows.shape[1], device=rows.device).index_add_(0, stores, rows)
    return sums / torch.bincount(stores, minlength=count).clamp(min=1)[:, None]


@unseen(
    "the means of each store's rows come from a Python loop with a mask over all rows for each store; one index_add, a bincount",
    names=r"index_add|scatter|segment_reduce|bincount|store_means|(boolean|bool) (mask|index)|"
    r"mask(ed|s)? (per|for each|index|select)|group[- ]?by|(each|every|per) (group|store)|aten::nonzero|python loop|vectori[sz]",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def store_sales_forecast(device: str, changed: bool) -> Step:
    count, width = 400, 28
    made = torch.Generator().manual_seed(7)
    stores = torch.randint(0, count, (4000,), generator=made).to(device)
    rows = torch.randn(4000, width, generator=made).to(device) + stores[:, None] / count
    sales = (rows[:, :3].sum(1) + 0.1 * torch.randn(4000, generator=made).to(device)).to(device)
    model = nn.Sequential(
        nn.Linear(2 * width, 224), nn.LayerNorm(224), nn.GELU(), nn.Linear(224, 112), nn.GELU(), nn.Linear(112, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    means_of = store_means_by_index if changed else store_means_by_mask

    def step() -> Tensor:
        means = means_of(rows, stores, count)[stores]
        foreseen = model(torch.cat((rows - means, means), 1)).squeeze(1)
        loss = F.huber_loss(foreseen, sales)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "null: Adam with fused=True; the few small parameters' update is nothing beside the convolutions over large maps",
    names=r"fused|foreach|_foreach_|optimi[sz]er|\bAdam",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
)
def glacier_flow_emulated(device: str, changed: bool) -> Step:
    layers: list[nn.Module] = []
    for inputs, outputs in ((4, 32), (32, 32), (32, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, 1, 1, padding_mode="replicate"), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Conv2d(32, 2, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=changed)
    made = torch.Generator().manual_seed(11)
    maps = torch.randn(2, 4, 128, 128, generator=made).to(device)
    flow = torch.randn(2, 2, 128, 128, generator=made).to(device)

    def step() -> Tensor:
        foreseen = model(maps)
        spread = (foreseen[..., 1:] - foreseen[..., :-1]).square().mean()
        loss = F.mse_loss(foreseen, flow) + 0.01 * spread
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Beats(Dataset[Tensor]):
    """Pieces of electrocardiograms, twelve leads each."""

    def __init__(self, count: int, samples: int) -> None:
        self.leads = torch.randn(count, 12, samples, generator=torch.Generator().manual_seed(13))

    def __len__(self) -> int:
        return len(self.leads)

    def __getitem__(self, index: int) -> Tensor:
        return self.leads[index]


class BeatLabeller(nn.Module):
    """Convolutions and attention over pieces of electrocardiograms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(12, 96, 15, 2, 7),
            nn.ReLU(),
            nn.Conv1d(96, 192, 9, 1, 4),
            nn.ReLU(),
            nn.Conv1d(192, 128, 9, 8, 4),
            nn.ReLU(),
        )
        self.over = nn.Sequential(Layer(128, 4), Layer(128, 4))
        self.label = nn.Linear(128, 9)

    def forward(self, leads: Tensor) -> Tensor:
        seen: Tensor = self.over(self.stem(leads).transpose(1, 2))
        labelled: Tensor = self.label(seen.amax(1))
        return labelled


@unseen(
    "null: a persistent worker for the DataLoader; loading takes next to nothing beside the model, which has both cores busy",
    names=r"num_workers|\bworkers?\b|prefetch|data ?load(er|ing)|input pipeline|collat",
    kind="inference",
    recorded="none",
    on=("cpu",),
    null=True,
)
def heart_beats_labelled(device: str, changed: bool) -> Step:
    loader: DataLoader[Any] = DataLoader(Beats(960, 1000), batch_size=32, num_workers=int(changed), persistent_workers=changed)
    model = BeatLabeller().to(device).eval()
    batches = endless(loader)

    @torch.inference_mode()
    def step() -> Tensor:
        leads: Tensor = next(batches)
        return model(leads.to(device)).sigmoid()

    return step
