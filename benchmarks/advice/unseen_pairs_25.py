"""Twelve pairs for two cores of a CPU: nine with a fault that people make in training scripts, services and research code, and
three with a change that looks like tuning and brings nothing, as something else bounds the program."""

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
import json
import math
import time

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, endless
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


@unseen(
    "every operation of the calibration returns a new tensor of 36 MB, which is mapped afresh and faulted in page by page; write "
    "into one buffer that is kept, in place",
    names=r"in[- ]?place|\bout=|pre-?allocat|re-?us\w* (the |a |one |its |their )*(buffer|memory|output|tensor)|page[- ]?fault"
    r"|jemalloc|tcmalloc|allocator|\b(sub|mul|div|clamp|sqrt|add)_\b|temporar(y|ies)|intermediate (tensor|result|buffer)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def star_field_calibrated(device: str, changed: bool) -> Step:
    """Calibrate a night's exposures and look for stars in them."""
    frames, size = 9, 1024
    raw = torch.randint(300, 4000, (frames, 1, size, size), dtype=torch.int16, device=device)
    bias = torch.rand(1, 1, size, size, device=device) * 20 + 280
    dark = torch.rand(1, 1, size, size, device=device)
    flat = torch.rand(1, 1, size, size, device=device) * 0.2 + 0.9
    exposure = torch.linspace(1.0, 3.0, frames, device=device).view(-1, 1, 1, 1)
    finder = nn.Sequential(*convolutions((1, 24, 48, 96)), nn.Conv2d(96, 3, 1)).to(device).eval()
    kept = torch.empty(frames, 1, size, size, device=device)

    def fresh() -> Tensor:
        electrons = raw.float() - bias
        electrons = electrons - dark
        electrons = electrons / flat
        electrons = electrons * 1.7
        electrons = electrons / exposure
        return torch.sqrt(torch.clamp(electrons, min=0.0))

    def reused() -> Tensor:
        kept.copy_(raw).sub_(bias)
        kept.sub_(dark)
        kept.div_(flat)
        kept.mul_(1.7)
        kept.div_(exposure)
        return kept.clamp_(min=0.0).sqrt_()

    calibrate = reused if changed else fresh

    @torch.no_grad()
    def step() -> list[Tensor]:
        picture = calibrate()
        binned = F.avg_pool2d(picture, 4)
        sky = binned.mean((2, 3), keepdim=True)
        found = finder((binned - sky) / 10.0)
        return [sky, found.amax((2, 3))]

    return step


class SentenceEncoder(nn.Module):
    """Embed sentences of token ids."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, 8) for _ in range(layers))
        self.out = nn.Linear(width, 1024)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.out(x.mean(1)), dim=1)


@unseen(
    "the service turns its embeddings into lists of Python floats and writes them as JSON text (tolist, json.dumps); send their "
    "bytes (numpy's tobytes, in base64)",
    names=r"json|tolist|serial[iy]|to_?bytes|base64|binary (form|format|bytes|reply)|msgpack|orjson|protobuf"
    r"|python (floats?|lists?)|write_reply",
    kind="inference",
    recorded="request",
    on=("cpu",),
    with_stack=True,
)
def sentence_search_service(device: str, changed: bool) -> Step:
    """Answer a request of a search service with the embeddings of its sentences."""
    sentences, length = 48, 12
    encoder = SentenceEncoder(8000, 256, 3).to(device).eval()
    tokens = torch.randint(0, 8000, (sentences, length))
    request = json.dumps({"id": 17, "sentences": tokens.tolist()}).encode()

    def read_request(body: bytes) -> Tensor:
        return torch.tensor(json.loads(body)["sentences"], device=device)

    def write_reply(embedded: Tensor) -> bytes:
        if changed:
            content = base64.b64encode(embedded.cpu().numpy().tobytes()).decode()
            return json.dumps({"id": 17, "shape": list(embedded.shape), "float32": content}).encode()
        return json.dumps({"id": 17, "embeddings": embedded.cpu().tolist()}).encode()

    @torch.inference_mode()
    def step() -> Tensor:
        embedded = encoder(read_request(request))
        reply = write_reply(embedded)
        assert len(reply) > sentences
        return embedded

    return step


@unseen(
    "the validation counts hits, predictions and labels of each of 150 classes in a loop, with masks of the whole batch; count "
    "all at once (bincount of label times classes plus prediction: the confusion matrix)",
    names=r"bincount|confusion|histc|histogram|scatter_add|(each|per|every|over)[- ](the )?class|loop over|aten::(eq|bitwise_and"
    r"|logical_and|__and__)|vectori[sz]|one_hot|class_counts",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def street_scenes_validated(device: str, changed: bool) -> Step:
    """Segment street scenes and count for the mean intersection over union."""
    classes, pictures, size = 150, 2, 224
    body = nn.Sequential(*convolutions((3, 32, 64, 96))).to(device).eval()
    head = nn.Conv2d(96, classes, 1).to(device)
    scenes = torch.randn(pictures, 3, size, size, device=device)
    labels = torch.randint(0, classes, (pictures, size, size), device=device)

    def class_counts(predicted: Tensor) -> tuple[Tensor, Tensor]:
        if changed:
            pairs = torch.bincount((labels * classes + predicted).flatten(), minlength=classes * classes)
            confusion = pairs.view(classes, classes)
            both = confusion.diagonal()
            return both, confusion.sum(0) + confusion.sum(1) - both
        hits, unions = [], []
        for number in range(classes):
            guess, truth = predicted == number, labels == number
            hits.append((guess & truth).sum())
            unions.append(guess.sum() + truth.sum() - hits[-1])
        return torch.stack(hits), torch.stack(unions)

    @torch.no_grad()
    def step() -> list[Tensor]:
        scores = F.interpolate(head(body(scenes)), size=(size, size), mode="bilinear", align_corners=False)
        both, either = class_counts(scores.argmax(1))
        return [both, (both / either.clamp(min=1)).mean()]

    return step


@unseen(
    "the hall's impulse response of thousands of taps is applied as a direct convolution (conv1d); multiply spectra (rfft)",
    names=r"fft|frequency domain|spectr(um|a)|overlap[- ]?(add|save)|conv1d|\btaps\b"
    r"|(long|large|big|wide|huge)\w* (kernel|filter|impulse)",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def concert_hall_rendered(device: str, changed: bool) -> Step:
    """Place dry recordings in a hall and judge by a small network how they sound."""
    stems, samples, taps = 2, 80000, 2400
    dry = torch.randn(stems, 1, samples, device=device) * 0.1
    decay = torch.exp(-torch.arange(taps, device=device) / 500.0)
    hall = torch.randn(1, 1, taps, device=device) * decay
    window = torch.hann_window(512, device=device)
    judge = nn.Sequential(*convolutions((1, 32, 64, 128)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 5))
    judge = judge.to(device).eval()
    length = 1 << (samples + taps - 1).bit_length()

    def reverberate(sound: Tensor) -> Tensor:
        if changed:
            product = torch.fft.rfft(sound, n=length) * torch.fft.rfft(hall, n=length)
            return torch.fft.irfft(product, n=length)[..., :samples]
        return F.conv1d(F.pad(sound, (taps - 1, 0)), hall.flip(2))

    @torch.inference_mode()
    def step() -> list[Tensor]:
        wet = 0.7 * dry + 0.3 * reverberate(dry)
        wet = wet / wet.abs().amax(2, keepdim=True)
        spectrum = torch.stft(wet.squeeze(1), 512, 128, window=window, return_complex=True).abs()
        return [wet, judge(torch.log1p(spectrum).unsqueeze(1))]

    return step


class Generator(nn.Module):
    """Make sound of a mel spectrogram, as vocoders do: transposed convolutions and residual blocks, all of them weight-normed."""

    def __init__(self, mels: int, width: int) -> None:
        super().__init__()
        self.first = weight_norm(nn.Conv1d(mels, width, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for times in (4, 4, 4):
            self.ups.append(weight_norm(nn.ConvTranspose1d(width, width // 2, 2 * times, times, times // 2)))
            width //= 2
            for size in (3, 7, 11):
                self.blocks.append(weight_norm(nn.Conv1d(width, width, size, padding=size // 2)))
        self.last = weight_norm(nn.Conv1d(width, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for number, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, 0.1))
            parts = [x + block(F.leaky_relu(x, 0.1)) for block in self.blocks[3 * number : 3 * number + 3]]
            x = (parts[0] + parts[1] + parts[2]) / 3
        return torch.tanh(self.last(F.leaky_relu(x, 0.1)))


@unseen(
    "the generator is served with the weight norm of its training, which makes each weight anew in each call; remove it once "
    "after loading (remove_parametrizations, remove_weight_norm)",
    names=r"weight[_ -]?norm|remove_param|parametri[sz]"
    r"|parametrize\.cached|(bake|fold|fuse|materiali[sz]e)\w* (the |its )?(norm|weight)",
    kind="inference",
    recorded="chunk",
    on=("cpu",),
)
def assistant_voice_streamed(device: str, changed: bool) -> Step:
    """Speak by chunks of a few spectrogram frames."""
    generator = Generator(80, 512).to(device).eval()
    if changed:
        for layer in generator.modules():
            if parametrize.is_parametrized(layer, "weight"):
                parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    chunks = [torch.randn(1, 80, 4, device=device) for _ in range(8)]

    @torch.no_grad()
    def step() -> Tensor:
        spoken = [generator(chunk) for chunk in chunks]
        return torch.cat(spoken, 2)

    return step


class Replay:
    """Hold what a robot has lived through."""

    def __init__(self, size: int, seen: int, acts: int) -> None:
        source = np.random.default_rng(0)
        self.size = size
        self.before = source.standard_normal((size, seen), dtype=np.float32)
        self.acts = source.standard_normal((size, acts), dtype=np.float32)
        self.rewards = source.standard_normal((size, 1), dtype=np.float32)
        self.generator = np.random.default_rng(1)

    def draw(self, batch: int, quick: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw transitions, none of them twice."""
        if quick:
            rows = self.generator.choice(self.size - 1, batch, replace=False)
        else:
            rows = np.random.choice(self.size - 1, batch, replace=False)
        parts = (self.before[rows], self.acts[rows], self.rewards[rows], self.before[rows + 1])
        first, second, third, fourth = (torch.from_numpy(part) for part in parts)
        return first, second, third, fourth


def perceptron(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


@unseen(
    "the replay buffer draws its batch by np.random.choice(replace=False), which permutes all of its rows; draw by a Generator "
    "(default_rng().choice, which does not) or by random integers",
    names=r"random\.choice|\bchoice\b|permut|default_rng|randint|\.integers|random\.Generator|replace=|\bdraw\b"
    r"|sampling|sample (the )?(ind|row|batch)"
    r"|replay|mtrand|RandomState",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def quadruped_critics_updated(device: str, changed: bool) -> Step:
    """Update the two critics of a walking robot from what it has lived through."""
    replay = Replay(900_000, 28, 8)
    critics = nn.ModuleList(perceptron(36, 320, 1) for _ in range(2)).to(device)
    targets = nn.ModuleList(perceptron(36, 320, 1) for _ in range(2)).to(device)
    targets.load_state_dict(critics.state_dict())
    actor = perceptron(28, 320, 8).to(device)
    optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4)

    def step() -> Tensor:
        now, acts, rewards, after = (part.to(device) for part in replay.draw(1024, changed))
        with torch.no_grad():
            there = torch.cat([after, torch.tanh(actor(after))], 1)
            goal = rewards + 0.99 * torch.minimum(targets[0](there), targets[1](there))
        here = torch.cat([now, acts], 1)
        loss = F.mse_loss(critics[0](here), goal) + F.mse_loss(critics[1](here), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for target, critic in zip(targets.parameters(), critics.parameters(), strict=True):
                target.lerp_(critic, 0.005)
        return loss.detach()

    return step


@unseen(
    "only the head is trained, but the backward pass runs through the whole backbone, whose gradients nobody uses; run the "
    "backbone under no_grad (or requires_grad_(False), detach)",
    names=r"no_grad|requires_grad|fr[eo]ez|frozen|detach|inference_mode|unused gradient"
    r"|gradients? (that|which|nobody|no one|of param)",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def garden_birds_finetuned(device: str, changed: bool) -> Step:
    """Teach a new head on an old backbone the birds of the garden."""
    backbone = nn.Sequential(*convolutions((3, 24, 48, 96, 128)), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(device).eval()
    head = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 60)).to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.randint(0, 256, (24, 3, 128, 128), dtype=torch.uint8, device=device)
    species = torch.randint(0, 60, (24,), device=device)

    def step() -> Tensor:
        with torch.set_grad_enabled(not changed):
            features = backbone(pictures.float().div(127.5).sub(1.0))
        loss = F.cross_entropy(head(features), species)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the likelihood of a Gaussian process is written with the inverse and the logdet of its covariance; factor it once "
    "(cholesky, cholesky_solve, the sum of the logarithms of the diagonal)",
    names=r"chol|linalg\.solve|solve_triangular|lu_(factor|solve)|(explicit|matrix) inverse|linalg[._]inv"
    r"|aten::(linalg_)?(inv|slogdet|logdet)"
    r"|\binv(erse|_ex)?\b|logdet|slogdet|factori[sz]",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def rainfall_between_gauges(device: str, changed: bool) -> Step:
    """Fit a Gaussian process to the gauges' rain and map the rain between them."""
    gauges = 640
    places = torch.rand(gauges, 2, dtype=torch.float64, device=device) * 10
    rain = torch.sin(places[:, :1]) + torch.cos(2 * places[:, 1:])
    rain = rain + 0.1 * torch.randn(gauges, 1, dtype=torch.float64, device=device)
    side = torch.linspace(0, 10, 30, dtype=torch.float64, device=device)
    grid = torch.cartesian_prod(side, side)
    near, far = torch.cdist(places, places).square(), torch.cdist(grid, places).square()
    start = torch.tensor([0.0, 0.0, -2.0], dtype=torch.float64, device=device)
    shape = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([shape], lr=0.001)

    def kernel(gaps: Tensor) -> Tensor:
        return torch.exp(shape[0] - 0.5 * gaps * torch.exp(-2 * shape[1]))

    def step() -> list[Tensor]:
        covariance = kernel(near) + torch.exp(shape[2]) * torch.eye(gauges, dtype=torch.float64, device=device)
        if changed:
            factor = torch.linalg.cholesky(covariance)
            weights = torch.cholesky_solve(rain, factor)
            volume = 2 * factor.diagonal().log().sum()
        else:
            weights = torch.linalg.inv(covariance) @ rain
            volume = torch.logdet(covariance)
        loss = 0.5 * ((rain * weights).sum() + volume + gauges * math.log(2 * math.pi))
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            between = kernel(far) @ weights
        optimizer.step()
        return [loss.detach(), between.detach()]

    return step


@unseen(
    "the main thread looks every 20 ms whether the features of the other thread are there (a loop of done() and time.sleep); "
    "wait for the future (result(), a condition, a blocking get)",
    names=r"sleep|poll|\.result\(|(the|a|its|each) future\b|block(s|ing)? (wait|get|call)|busy|Event\b|Condition"
    r"|wait_for|wait (on|for) the (future|result|thread)"
    r"|queue\.get|as_completed",
    kind="inference",
    recorded="window",
    on=("cpu",),
    with_stack=True,
)
def doorbell_words_spotted(device: str, changed: bool) -> Step:
    """Hear words in windows of sound, whose features another thread makes."""
    window = torch.hann_window(400, device=device)
    bank = torch.rand(257, 64, device=device) / 257
    model = nn.Sequential(*convolutions((1, 64, 128, 192)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 35))
    model = model.to(device).eval()
    sounds = [torch.randn(16, 16000, device=device) for _ in range(2)]
    pool = ThreadPoolExecutor(1)

    def features(sound: Tensor) -> Tensor:
        with torch.inference_mode():
            spectrum = torch.stft(sound, 512, 160, 400, window, return_complex=True).abs().square()
            return torch.log(spectrum.transpose(1, 2) @ bank + 1e-6).unsqueeze(1)

    def wait_for(future: "Future[Tensor]") -> Tensor:
        while not changed and not future.done():
            time.sleep(0.02)
        return future.result()

    def step() -> list[Tensor]:
        heard = []
        for sound in sounds:
            made = wait_for(pool.submit(features, sound))
            with torch.inference_mode():
                heard.append(model(made - made.mean((2, 3), keepdim=True)).softmax(1))
        return heard

    return step


class ArchiveTiles(Dataset[tuple[Tensor, Tensor]]):
    """Batches of tiles, each of which takes the archive's answer time to come."""

    def __init__(self, batches: int, tiles: int, answer_s: float) -> None:
        self.batches, self.tiles, self.answer_s = batches, tiles, answer_s
        self.stored = torch.randint(0, 256, (tiles, 3, 64, 64), dtype=torch.uint8)

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.answer_s)
        return self.stored.roll(number, 0), torch.arange(self.tiles) % 4


@unseen(
    "AdamW(fused=True) while each step waits for the loader's worker, which waits for the archive: nothing",
    names=r"fused|foreach|optimi[sz]er|adamw",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def tissue_tiles_from_archive(device: str, changed: bool) -> Step:
    """Train on tiles of tissue which come slowly from an archive."""
    tiles = ArchiveTiles(4000, 8, 0.05)
    batches: Iterator[tuple[Tensor, Tensor]] = endless(
        DataLoader(tiles, batch_size=None, num_workers=1, prefetch_factor=1, persistent_workers=True)
    )
    model = nn.Sequential(*convolutions((3, 32, 64, 128)), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=changed)

    def step() -> Tensor:
        pictures, grades = next(batches)
        loss = F.cross_entropy(model(pictures.to(device).float() / 255), grades.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class TitleLayer(nn.Module):
    """A layer of a transformer whose attention is written out, or one operation."""

    def __init__(self, width: int, heads: int, whole: bool) -> None:
        super().__init__()
        self.heads, self.whole = heads, whole
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.whole:
            seen = F.scaled_dot_product_attention(q, k, v)
        else:
            seen = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), 3) @ v
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


@unseen(
    "scaled_dot_product_attention in place of attention that is written out, over titles of ten words: linear layers bound it",
    names=r"scaled_dot_product|sdpa|flash|fused attention|aten::(_?softmax|bmm)",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
)
def product_titles_tagged(device: str, changed: bool) -> Step:
    """Tag the words of a shop's product titles: brand, size, colour and so on."""
    width = 768
    words = nn.Embedding(20000, width).to(device)
    layers = nn.Sequential(*(TitleLayer(width, 4, changed) for _ in range(2))).to(device).eval()
    tags = nn.Linear(width, 40).to(device)
    titles = torch.randint(0, 20000, (48, 10), device=device)

    @torch.inference_mode()
    def step() -> list[Tensor]:
        scores = tags(layers(words(titles))).log_softmax(2)
        best = scores.max(2)
        return [scores, best.values.sum(1)]

    return step


def word_errors(pair: tuple[list[int], list[int]]) -> int:
    """Return the edit distance of two transcripts."""
    said, heard = pair
    above = list(range(len(heard) + 1))
    for row, word in enumerate(said, 1):
        line = [row]
        left = row
        for column, other in enumerate(heard):
            least = above[column] if word == other else above[column] + 1
            if left + 1 < least:
                least = left + 1
            if above[column + 1] + 1 < least:
                least = above[column + 1] + 1
            line += (least,)
            left = least
        above = line
    return above[-1]


@unseen(
    "two threads in place of one for the transcripts' edit distances, pure Python under the interpreter's lock: nothing",
    names=r"max_workers|(more|two|several) (worker )?threads|thread[- ]?pool|number of threads|parallel thread",
    kind="inference",
    recorded="call",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def support_calls_scored(device: str, changed: bool) -> Step:
    """Transcribe calls greedily and count their word errors."""
    calls, frames, words = 12, 140, 300
    hearing = nn.Sequential(nn.Conv1d(80, 640, 9, padding=4), nn.ReLU(), nn.Conv1d(640, 640, 9, padding=4), nn.ReLU())
    hearing = nn.Sequential(hearing, nn.Conv1d(640, words, 1)).to(device).eval()
    features = torch.randn(calls, 80, frames, device=device)
    truth = torch.randint(1, words, (calls, 70)).tolist()
    pool = ThreadPoolExecutor(2 if changed else 1)
    errors: Callable[[tuple[list[int], list[int]]], int] = word_errors

    @torch.inference_mode()
    def step() -> Tensor:
        best = hearing(features).argmax(1).cpu()
        texts = [torch.unique_consecutive(line).tolist() for line in best]
        counts = list(pool.map(errors, zip(truth, texts, strict=True)))
        return torch.tensor(counts, dtype=torch.float32) / 70

    return step
