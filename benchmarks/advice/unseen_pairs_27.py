"""Ten pairs for two cores of a CPU, written without a look at the reader: eight faults, and two changes that bring nothing.

The programs are small models with the work around them: audio, control, text, tides, hydrophones, heart beats, roads,
earthquakes, reefs, and a camera rig.
"""

from collections import deque
import logging
import math
import queue
import threading
import time
from typing import Any, NamedTuple

from advice.unseen_pairs import Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


class Residual(nn.Module):
    """Convolutions of a vocoder with a way around them."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            parametrizations.weight_norm(nn.Conv1d(channels, channels, kernel, padding=kernel // 2)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(F.leaky_relu(x, 0.1))
        return x


class Vocoder(nn.Module):
    """Turn mel frames into a wave."""

    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Conv1d(80, 512, 7, padding=3))
        ups, blocks, channels = [], [], 512
        for rate in (4, 4):
            ups.append(
                parametrizations.weight_norm(nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, padding=rate // 2))
            )
            channels //= 2
            blocks.append(nn.ModuleList(Residual(channels, kernel) for kernel in (3, 7, 11)))
        self.ups, self.blocks = nn.ModuleList(ups), nn.ModuleList(blocks)
        self.last = parametrizations.weight_norm(nn.Conv1d(channels, 4, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = torch.stack([block(x) for block in blocks]).mean(0)  # type: ignore[attr-defined]
        return torch.tanh(self.last(F.leaky_relu(x))).transpose(1, 2).flatten(1)


@unseen(
    "a streaming vocoder computes the weights of its weight-normed layers anew for each chunk; the parametrizations removed once "
    "ahead of serving",
    names=r"weight.?norm|parametri[sz]|fold(ed|ing)? (the )?(weights?|norms?)",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def announcements_spoken_live(device: str, changed: bool) -> Step:
    vocoder = Vocoder().to(device).eval()
    if changed:
        for module in list(vocoder.modules()):
            if parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
    mels = torch.randn(1, 80, 18, device=device)
    fade = torch.linspace(0, 1, 32, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        spoken: list[Tensor] = []
        for chunk in mels.split(3, 2):
            wave = vocoder(chunk)
            wave[:, :32] *= fade
            spoken.append((wave.clamp(-1, 1) * 32767).round())
        return torch.cat(spoken, 1) / 32767

    return step


class Transition(NamedTuple):
    """What one move of the arm was."""

    seen: np.ndarray
    action: np.ndarray
    reward: float
    then: np.ndarray


class Replay:
    """The last moves of an arm, sampled for updates."""

    def __init__(self, plain: bool) -> None:
        self.moves: deque[Transition] = deque(maxlen=5000)
        self.random, self.plain = np.random.default_rng(3), plain

    def sample_moves(self, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        chosen = [self.moves[place] for place in self.random.integers(len(self.moves), size=size)]
        rewards = torch.tensor([move.reward for move in chosen]).unsqueeze(1)
        if self.plain:
            seen = torch.tensor([move.seen for move in chosen])
            actions = torch.tensor([move.action for move in chosen])
            then = torch.tensor([move.then for move in chosen])
        else:
            seen = torch.from_numpy(np.stack([move.seen for move in chosen]))
            actions = torch.from_numpy(np.stack([move.action for move in chosen]))
            then = torch.from_numpy(np.stack([move.then for move in chosen]))
        return seen, actions, rewards, then


def perceptron(inputs: int, outputs: int, width: int = 400) -> nn.Sequential:
    """Return three layers."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


@unseen(
    "a replay buffer turns lists of numpy arrays into tensors with torch.tensor, element by element; np.stack and from_numpy",
    names=r"torch\.tensor\b|as_tensor|from_numpy|(np|numpy)\.(stack|array|asarray)|lists? of (numpy |nd)?arrays?|sample_moves"
    r"|element.by.element",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def gripper_arm_rehearsed(device: str, changed: bool) -> Step:
    replay = Replay(plain=not changed)
    random = np.random.default_rng(5)
    for _ in range(3000):
        seen, then = random.standard_normal((2, 96)).astype(np.float32)
        replay.moves.append(Transition(seen, random.uniform(-1, 1, 7).astype(np.float32), float(random.uniform()), then))
    actor, critic, target = perceptron(96, 7), perceptron(103, 1), perceptron(103, 1)
    target.load_state_dict(critic.state_dict())
    actor_adam = torch.optim.Adam(actor.parameters(), 3e-4)
    critic_adam = torch.optim.Adam(critic.parameters(), 3e-4)

    def step() -> list[Tensor]:
        losses: list[Tensor] = []
        for _ in range(3):
            seen, actions, rewards, then = replay.sample_moves(256)
            with torch.no_grad():
                goal = rewards + 0.99 * target(torch.cat([then, actor(then).tanh()], 1))
            loss = F.smooth_l1_loss(critic(torch.cat([seen, actions], 1)), goal)
            critic_adam.zero_grad()
            loss.backward()
            critic_adam.step()
            worth = -critic(torch.cat([seen, actor(seen).tanh()], 1)).mean()
            actor_adam.zero_grad()
            worth.backward()
            actor_adam.step()
            with torch.no_grad():
                for slow, quick in zip(target.parameters(), critic.parameters(), strict=True):
                    slow.lerp_(quick, 0.005)
            losses += [loss.detach(), worth.detach()]
        return losses

    return step


class Router(nn.Module):
    """Read a letter to a help desk, and tell which desk it is for."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(8000, 192), nn.Embedding(128, 192)
        self.layers = nn.ModuleList(Layer(192, 6) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 40)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(words) + self.places.weight[: words.shape[1]]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return x, self.head(x.mean(1))


@unseen(
    "a service formats hidden states and scores into debug messages by f-strings although debug messages are off; the logger's "
    "own lazy arguments",
    names=r"f-?strings?\b|_tensor_str|tensor_str|__repr__|__format__|\brepr\b|formatt?(ing|ed|s)? (of )?(the |a )?tensors?"
    r"|logger\.debug|\blogg(ing|er)\b|isEnabledFor|debug (message|line|log|print)|handle_letter"
    r"|tensors? (to|into|as) (text|strings?)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def letters_to_desks(device: str, changed: bool) -> Step:
    logger = logging.getLogger("desk")
    logger.setLevel(logging.WARNING)
    model = Router().to(device).eval()
    letters = [torch.randint(8000, (1, length), device=device) for length in (40, 72, 55, 96, 63, 81, 47, 66)]

    def handle_letter(words: Tensor) -> Tensor:
        hidden, scores = model(words)
        shares = scores.softmax(1)
        if changed:
            logger.debug("hidden %s", hidden)
            logger.debug("scores %s, shares %s", scores, shares)
        else:
            logger.debug(f"hidden {hidden}")
            logger.debug(f"scores {scores}, shares {shares}")
        return shares.topk(3, 1).values

    @torch.inference_mode()
    def step() -> list[Tensor]:
        return [handle_letter(words) for words in letters]

    return step


class Tides(nn.Module):
    """Forecast the levels of gauges: harmonics of the moon and a gated network for the weather."""

    def __init__(self) -> None:
        super().__init__()
        self.speeds = nn.Parameter(torch.linspace(0.2, 1.2, 12))
        self.weather = nn.ModuleList(nn.Linear(64, 128) for _ in range(10))
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(10))
        self.lift, self.head = nn.Linear(9, 64), nn.Linear(64, 24 + 1)

    def forward(self, hours: Tensor, weather: Tensor) -> tuple[Tensor, Tensor]:
        x = self.lift(weather)
        for norm, layer in zip(self.norms, self.weather, strict=True):
            value, gate = layer(norm(x)).chunk(2, -1)
            x = x + value * torch.sigmoid(gate)
        sizes, scale = self.head(x).split((24, 1), -1)
        phases = hours.unsqueeze(-1) * self.speeds
        level = (sizes * torch.cat([phases.sin(), phases.cos()], -1)).sum(-1)
        return level, F.softplus(scale.squeeze(-1)) + 1e-3


@unseen(
    "anomaly detection, switched on for a bug hunt, is still on in training; switched off",
    names=r"anomaly|aten::isnan|\bisnan\b|nan.?check|check(s|ing)? for nans?",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def harbour_tides_ahead(device: str, changed: bool) -> Step:
    model = Tides().to(device)
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    hours = torch.arange(48.0, device=device).repeat(32, 1)
    weather, levels = torch.randn(32, 48, 9, device=device), torch.randn(32, 48, device=device)

    def step() -> list[Tensor]:
        losses: list[Tensor] = []
        with torch.autograd.set_detect_anomaly(not changed):
            for part in range(2):
                level, scale = model(hours + 48 * part, weather)
                loss = (scale.log() + (levels - level).abs() / scale).mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                adam.step()
                losses.append(loss.detach())
        return losses

    return step


class Windows(threading.Thread):
    """Cut recordings into windows and turn each into a spectrogram, ahead of the model."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.recordings: queue.Queue[Tensor] = queue.Queue()
        self.ready: queue.Queue[Tensor] = queue.Queue(maxsize=4)
        self.shape = torch.hann_window(512)

    def run(self) -> None:
        while True:
            recording = self.recordings.get()
            for window in recording.unfold(0, 32000, 16000):
                power = torch.stft(window, 512, 128, window=self.shape, return_complex=True).abs()
                loud = torch.log1p(power[:192, :248])
                self.ready.put((loud - loud.median(1, keepdim=True).values).unsqueeze(0))


@unseen(
    "the main thread polls a queue with get_nowait without a pause and so keeps the interpreter's lock and a core from the "
    "thread that fills it; a blocking get",
    names=r"busy.?(wait|loop|poll)|\bspin(s|ning|ning)?\b|get_nowait|\bpoll(s|ing|ed)?\b|block(ing|s)? (get|wait|queue|call)"
    r"|queue\.get|\bGIL\b|interpreter'?s? lock|next_window|queue\.Empty",
    kind="inference",
    recorded="recording",
    on=("cpu",),
    with_stack=True,
)
def whales_by_hydrophone(device: str, changed: bool) -> Step:
    model = nn.Sequential(*convolutions((1, 32, 64, 96, 96)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 12))
    model.to(device).eval()
    windows = Windows()
    windows.start()
    recording = torch.randn(16000 * 5, device=device)

    def next_window() -> Tensor:
        if changed:
            return windows.ready.get()
        while True:
            try:
                return windows.ready.get_nowait()
            except queue.Empty:
                continue

    @torch.inference_mode()
    def step() -> Tensor:
        windows.recordings.put(recording)
        heard = [model(next_window().unsqueeze(0)).sigmoid() for _ in range(4)]
        return torch.cat(heard).amax(0)

    return step


class Beats(Dataset[tuple[Tensor, int]]):
    """Heart beats, filtered and cut as they are read."""

    def __init__(self) -> None:
        self.waves = np.random.default_rng(9).standard_normal((256, 2, 600)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        wave = self.waves[place]
        drift = np.stack([np.convolve(lead, np.full(51, 1 / 51, np.float32), "same") for lead in wave])
        wave = (wave - drift)[:, 44:556]
        return torch.from_numpy(wave / (np.abs(wave).max() + 1e-6)), place % 5


@unseen(
    "the workers of a DataLoader are started anew at each short epoch; persistent_workers=True",
    names=r"persistent.?workers?|(start|spawn|fork|creat|launch|restart)\w* (up )?(of )?(the |new |its |fresh )?(\w+ )?workers?\b"
    r"|workers?('s)? (process(es)? )?(start|spawn|creation|launch)|_MultiProcessingDataLoaderIter|keep\w* (the |its )?workers"
    r"|workers? (are |is )?(re)?(started|created|spawned|forked)",
    kind="training",
    recorded="epoch",
    on=("cpu",),
)
def heart_beats_sorted(device: str, changed: bool) -> Step:
    model = nn.Sequential(
        nn.Conv1d(2, 32, 9, 2, 4),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 64, 9, 2, 4),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Conv1d(64, 96, 9, 2, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(96, 5),
    ).to(device)
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(
        Beats(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        generator=torch.Generator().manual_seed(4),
        persistent_workers=changed,
        multiprocessing_context="fork",
    )

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for waves, kinds in loader:
            loss = F.cross_entropy(model(waves.to(device)), kinds.to(device))
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += loss.detach()
        return total / len(loader)

    return step


@unseen(
    "a network over roads multiplies by a dense matrix of all pairs of crossings, nearly all zeros, made anew for each snapshot; "
    "messages along the edges by index_add or a sparse product",
    names=r"\bsparse|sparsity|\bcsr\b|\bcoo\b|spmm|index_add|scatter_?(add|reduce)|adjacency|mostly zeros?"
    r"|edge.?list|along (the )?edges",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def road_speeds_predicted(device: str, changed: bool) -> Step:
    crossings, width = 2500, 96
    start = torch.arange(crossings, device=device).repeat(4)
    end = (start + torch.tensor([1, -1, 50, -50], device=device).repeat_interleave(crossings)) % crossings
    lift = nn.Sequential(nn.Linear(36, 256), nn.ReLU(), nn.Linear(256, width)).to(device)
    mixes = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3)).to(device)
    memory, head = nn.GRUCell(width, width).to(device), nn.Linear(width, 12).to(device)
    past, lengths = torch.rand(crossings, 36, device=device), torch.rand(len(start), device=device) + 0.5

    def flow_weights(speeds: Tensor) -> Tensor:
        weights = torch.exp(-lengths / (speeds[start] + 0.1))
        sums = torch.zeros(crossings, device=device).index_add_(0, end, weights)
        return weights / sums[end]

    @torch.inference_mode()
    def step() -> Tensor:
        weights = flow_weights(past[:, -1])
        if not changed:
            roads = torch.zeros(crossings, crossings, device=device)
            roads[end, start] = weights
        x = lift(past)
        state = torch.zeros_like(x)
        for mix in mixes:
            near = torch.zeros_like(x).index_add_(0, end, x[start] * weights.unsqueeze(1)) if changed else roads @ x
            x = F.relu(mix(torch.cat([x, near], 1)))
            state = memory(x, state)
        return head(state)

    return step


@unseen(
    "a search for earthquakes correlates by Fourier transforms of a length that is a large prime; padded to a length of small "
    "factors",
    names=r"next_fast_len|power.of.(two|2)|\bprime\b|small (prime )?factors|smooth (length|size|number)|fft.?(length|size)s?"
    r"|(length|size)s? of (the |each |its )?(fft|(fourier )?transform)|pad\w* (\w+ ){0,4}(fft|transform|length)|_fft_(r2c|c2r)",
    kind="inference",
    recorded="scan",
    on=("cpu",),
)
def tremors_by_template(device: str, changed: bool) -> Step:
    long, short = 28000, 1034  # long + short - 1 = 29033 is a prime
    length = 29160 if changed else long + short - 1  # 29160 = 2 ** 3 * 3 ** 6 * 5
    clean = nn.Sequential(
        nn.Conv1d(1, 12, 15, padding=7), nn.ReLU(), nn.Conv1d(12, 12, 15, padding=7), nn.ReLU(), nn.Conv1d(12, 1, 15, padding=7)
    )
    clean.to(device).eval()
    templates = torch.randn(10, short, device=device)
    stations = torch.randn(6, 1, long, device=device)
    spectra = torch.fft.rfft(templates.flip(1), length)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        waves = clean(stations) + stations
        waves = ((waves - waves.mean(2, keepdim=True)) / waves.std(2, keepdim=True)).squeeze(1)
        heard = torch.fft.irfft(torch.fft.rfft(waves, length).unsqueeze(1) * spectra, length)[..., : long + short - 1]
        together = heard[..., short - 1 : long].mean(0) / math.sqrt(short)
        peaks = F.max_pool1d(together.abs(), 201, 50, 100)
        return peaks.topk(5, 1).values, together.square().mean(1)

    return step


@unseen(
    "a fused optimizer instead of one parameter after the other, where the convolutions are nearly all of the time",
    names=r"\bfused|foreach|optimi[sz]er|adamw",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
)
def reef_photos_outlined(device: str, changed: bool) -> Step:
    model = nn.Sequential(
        *convolutions((3, 32, 32), 1),
        *convolutions((32, 48)),
        *convolutions((48, 48), 1),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(48, 8, 3, padding=1),
    ).to(device)
    flags: dict[str, Any] = {"fused": True} if changed else {"foreach": False}
    adam = torch.optim.AdamW(model.parameters(), 1e-3, **flags)
    photos = torch.rand(4, 3, 112, 112, device=device)
    outlines = torch.randint(8, (4, 112, 112), device=device)

    def step() -> Tensor:
        turned = photos.flip(3)
        loss = F.cross_entropy(model(turned), outlines.flip(2), label_smoothing=0.05)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.detach()

    return step


class Rig(threading.Thread):
    """Four cameras above a belt, which give a set of pictures each 30 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.fresh = threading.Event()
        self.belt = torch.randint(256, (4, 3, 112, 112), dtype=torch.uint8, generator=torch.Generator().manual_seed(8))
        self.latest = self.belt

    def run(self) -> None:
        while True:
            time.sleep(0.03)
            self.latest = self.belt.clone()
            self.fresh.set()

    def next_set(self) -> Tensor:
        """Wait for pictures that are taken from now on: older ones show parcels that have moved."""
        self.fresh.clear()
        self.fresh.wait()
        return self.latest


@unseen(
    "pictures scaled all at once instead of one camera and channel after the other, where the cameras' rate bounds the program",
    names=r"scale_pictures|per.?(picture|image|camera|channel) loop|vectori[sz]|broadcast"
    r"|one (picture|image|channel|camera) at a time|torch\.stack|aten::stack",
    kind="inference",
    recorded="parcel",
    on=("cpu",),
    null=True,
)
def parcels_on_belt(device: str, changed: bool) -> Step:
    means, scales = torch.tensor([0.48, 0.45, 0.41], device=device), torch.tensor([0.23, 0.22, 0.22], device=device)
    model = nn.Sequential(*convolutions((3, 24, 48, 96, 128)), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(1152, 30))
    model.to(device).eval()
    rig = Rig()
    rig.start()

    def scale_pictures(pictures: Tensor) -> Tensor:
        if changed:
            return (pictures.float() / 255 - means[:, None, None]) / scales[:, None, None]
        scaled: list[Tensor] = []
        for picture in pictures:
            channels = [(channel.float() / 255 - means[i]) / scales[i] for i, channel in enumerate(picture)]
            scaled.append(torch.stack(channels))
        return torch.stack(scaled)

    @torch.inference_mode()
    def step() -> Tensor:
        kinds = [model(scale_pictures(rig.next_set().to(device))).softmax(1) for _ in range(5)]
        return torch.stack(kinds).mean(0)

    return step
