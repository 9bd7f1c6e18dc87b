"""A fourth set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

Written without a look at what the reader knows: the faults are the ones that guides to tuning, code reviews and forums name
most often, each in a program of its own. UNSEEN holds them by name.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
import contextlib
import itertools
from typing import Any

from advice.unseen_pairs import Step, Unseen, batches_for_ever, blocks, conv_net, low, pairs_into, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def pinned(tensor: Tensor, device: str) -> Tensor:
    """Return a tensor in pinned memory; where the program is only tried on a CPU, the tensor itself."""
    return tensor if device == "cpu" else tensor.pin_memory()


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers of the given widths, with ReLUs between them."""
    layers: list[nn.Module] = []
    for last, width in itertools.pairwise(widths):
        layers += [nn.Linear(last, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def through(layers: Any, x: Tensor) -> Tensor:
    """Return what a list of blocks makes of x."""
    for layer in layers:
        x = layer(x)
    return x


# Training on a GPU.


@unseen(
    "the float32 matrix products of an emulator run at full precision; set_float32_matmul_precision('high') or bfloat16",
    names=r"tf32|matmul_precision|bf16|bfloat16|autocast|mixed.precision|half.precision|fp16|float16",
    kind="training",
    recorded="step",
)
def weather_emulator(device: str, changed: bool) -> Step:
    width = small(1024)
    fields, later = (torch.randn(small(4096), width, device=device) for _ in range(2))
    layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), perceptron(width, 2 * width, width)) for _ in range(6)).to(device)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4)

    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        optimizer.zero_grad()
        x = fields
        for layer in layers:
            x = x + layer(x)
        loss = F.mse_loss(x, later)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the noise of a diffusion model is drawn on the host and copied to the device; torch.randn(..., device=device)",
    names=r"randn|aten::normal_|random numbers|noise|memcpy ?htod|host.to.device|on the (cpu|host)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def diffusion_training(device: str, changed: bool) -> Step:
    images = torch.randn(small(16), 3, 256, 256, device=device)
    width = small(192)
    into, out = nn.Conv2d(3, width, 4, stride=4).to(device), nn.ConvTranspose2d(width, 3, 4, stride=4).to(device)
    layers = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.SiLU()) for _ in range(8)).to(device)
    optimizer = torch.optim.AdamW([*into.parameters(), *layers.parameters(), *out.parameters()], lr=1e-4)

    def step() -> Tensor:
        noise = torch.randn(images.shape, device=device) if changed else torch.randn(images.shape).to(device)
        level = torch.rand(len(images), 1, 1, 1, device=device)
        optimizer.zero_grad()
        x = into(images * (1 - level).sqrt() + noise * level.sqrt())
        for layer in layers:
            x = x + layer(x)
        loss = F.mse_loss(out(x), noise)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "an LSTM is written as a loop over time around nn.LSTMCell; nn.LSTM, which runs in cuDNN",
    names=r"nn\.LSTM\b|cudnn|lstm_?cell|fused_lstm|loop over (the )?(time|sequence|steps)|cuda.?graph|launch|many small",
    kind="training",
    recorded="step",
)
def speech_recurrence(device: str, changed: bool) -> Step:
    frames, labels = torch.randn(200, small(64), 80, device=device), torch.randint(40, (small(64),), device=device)
    lstm, cell = nn.LSTM(80, small(512)).to(device), nn.LSTMCell(80, small(512)).to(device)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in lstm.state_dict().items()})
    smooth, head = nn.Conv1d(80, 80, 5, padding=2).to(device), perceptron(small(512), small(512), 40).to(device)
    recurrent = lstm if changed else cell
    optimizer = torch.optim.SGD([*recurrent.parameters(), *smooth.parameters(), *head.parameters()], lr=0.01)

    def states(x: Tensor) -> Tensor:
        if changed:
            all_states: Tensor = lstm(x)[0]
            return all_states
        state, found = None, []
        for frame in x:
            state = cell(frame, state)
            found.append(state[0])
        return torch.stack(found)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = smooth(frames.permute(1, 2, 0)).permute(2, 0, 1).contiguous()
        loss = F.cross_entropy(head(states(x).mean(0)), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the moving average of the weights is updated parameter by parameter; torch._foreach_lerp_",
    names=r"foreach|\bema\b|moving average|averag(e|ed|ing) (of the )?(weights|parameters|model)|lerp|parameter by parameter|"
    r"multi.?tensor|cuda.?graph|launch|many small",
    kind="training",
    recorded="step",
)
def average_of_weights(device: str, changed: bool) -> Step:
    net, average = (blocks(12, 256, 8, device) for _ in range(2))
    average.load_state_dict(net.state_dict())
    pieces = torch.randn(small(16), 64, 256, device=device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    weights, averages = list(net.parameters()), list(average.parameters())

    @torch.no_grad()
    def update_average() -> None:
        if changed:
            torch._foreach_lerp_(averages, weights, 0.001)
        else:
            for old, new in zip(averages, weights, strict=True):
                old.mul_(0.999).add_(new, alpha=0.001)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (through(net, pieces) - pieces.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        update_average()
        return averages[-1].detach()

    return step


@unseen(
    "the norm of the gradients is added up on the host, with .item() of each parameter; nn.utils.clip_grad_norm_",
    names=r"clip_grad|\.item\(|_local_scalar_dense|foreach_norm|synchroni[sz]|\bnorm of the gradients|gradient norm",
    kind="training",
    recorded="step",
    with_stack=True,
)
def clipped_classifier(device: str, changed: bool) -> Step:
    images, labels = torch.randn(small(64), 3, 128, 128, device=device), torch.randint(100, (small(64),), device=device)
    net = conv_net([32] * 4 + [64] * 5 + [128] * 5, norm=True).to(device)
    head = nn.Linear(128, 100).to(device)
    parameters = [*net.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def clip_gradients(limit: float) -> None:
        if changed:
            nn.utils.clip_grad_norm_(parameters, limit)
            return
        total = 0.0
        for parameter in parameters:
            if parameter.grad is not None:
                total += parameter.grad.norm().item() ** 2
        scale = min(1.0, limit / (total**0.5 + 1e-6))
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(scale)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(images).mean((2, 3))), labels)
        loss.backward()
        clip_gradients(0.5)
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the teacher of a distillation runs with gradients, and backward goes through it; torch.no_grad() around it",
    names=r"no_grad|detach|inference_mode|requires_grad|teacher|frozen|freeze",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def distilled_encoder(device: str, changed: bool) -> Step:
    teacher, student = blocks(12, 512, 8, device, low(device)), blocks(4, 512, 8, device, low(device))
    texts = torch.randn(small(64), 128, 512, device=device, dtype=low(device))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.no_grad() if changed else contextlib.nullcontext():
            target = through(teacher, texts)
        loss = F.mse_loss(through(student, texts), target) + (1 - F.cosine_similarity(texts, target, dim=-1)).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "each of two tasks' losses is sent back through the shared trunk by itself, with retain_graph; one backward of their sum",
    names=r"retain_graph|(two|second|separate|each|several) (calls of |calls to )?backward|backward (\w+ )?(twice|once)|"
    r"(sum|add)\w* (of )?(up )?(the |both |two )?loss|single backward|one backward|combined? (the )?loss",
    kind="training",
    recorded="step",
    with_stack=True,
)
def two_tasks(device: str, changed: bool) -> Step:
    images = torch.randn(small(32), 3, 224, 224, device=device)
    depth, kinds = torch.rand(small(32), 1, 28, 28, device=device), torch.randint(20, (small(32), 28, 28), device=device)
    trunk = conv_net([64, 64, 128, 128, 256, 256]).to(device)
    of_depth, of_kinds = nn.Conv2d(256, 1, 1).to(device), nn.Conv2d(256, 20, 1).to(device)
    optimizer = torch.optim.SGD([*trunk.parameters(), *of_depth.parameters(), *of_kinds.parameters()], lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        shared = trunk(images)
        loss_of_depth = F.l1_loss(of_depth(shared), depth)
        loss_of_kinds = F.cross_entropy(of_kinds(shared), kinds)
        if changed:
            (loss_of_depth + loss_of_kinds).backward()
        else:
            loss_of_depth.backward(retain_graph=True)
            loss_of_kinds.backward()
        optimizer.step()
        return (loss_of_depth + loss_of_kinds).detach()

    return step


@unseen(
    "the loss of a language model multiplies log_softmax with one-hot targets; F.cross_entropy with the indices",
    names=r"cross_?entropy|one_?hot|nll_?loss",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def words_by_one_hot(device: str, changed: bool) -> Step:
    words = small(32_000)
    tokens = torch.randint(words, (small(8), 513), device=device)
    table, layers = nn.Embedding(words, 512).to(device, low(device)), blocks(4, 512, 8, device, low(device))
    optimizer = torch.optim.SGD([*table.parameters(), *layers.parameters()], lr=0.001)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = table(tokens[:, :-1])
        for block in layers:
            x = block(x, causal=True)
        logits, targets = (x @ table.weight.T).float().flatten(0, 1), tokens[:, 1:].flatten()
        if changed:
            loss = F.cross_entropy(logits, targets)
        else:
            loss = -(F.one_hot(targets, words) * F.log_softmax(logits, dim=-1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Rows of a table in memory, each with a label."""

    def __init__(self, number: int, width: int):
        self.features, self.labels = torch.randn(number, width), torch.randint(2, (number,))

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.features[row], self.labels[row]


@unseen(
    "a table in memory is read row by row by a DataLoader that stacks each batch; slices of the table (or workers)",
    names=r"data ?loader|collate|__getitem__|row by row|num_workers|workers|slic(e|es|ing)|aten::stack|torch\.stack|"
    r"input pipeline",
    kind="training",
    recorded="step",
    with_stack=True,
)
def table_by_rows(device: str, changed: bool) -> Step:
    batch = small(1024)
    rows = Rows(16 * batch, 128)
    loader: Any = DataLoader(rows, batch)
    read = batches_for_ever(loader)
    numbers = itertools.cycle(range(0, 16 * batch, batch))
    net = perceptron(128, *[small(2048)] * 6, 2).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def next_batch() -> Any:
        if not changed:
            return next(read)
        start = next(numbers)
        return rows.features[start : start + batch], rows.labels[start : start + batch]

    def step() -> Tensor:
        features, labels = next_batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(features.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "torch.cuda.empty_cache() is called after every step, so that all memory is allocated anew; leave it out",
    names=r"empty_cache|cuda_?malloc|cuda_?free|caching allocator|allocator'?s cache|returns? (its |the )?(cached )?memory",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def emptied_cache(device: str, changed: bool) -> Step:
    scans, organs = torch.randn(small(16), 3, 320, 320, device=device), torch.randint(8, (small(16), 80, 80), device=device)
    net = nn.Sequential(conv_net([64, 64, 64, 128, 128, 128], norm=True), nn.Conv2d(128, 8, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(scans), organs)
        loss.backward()
        optimizer.step()
        if not changed:
            torch.cuda.empty_cache()
        return loss.detach()

    return step


@unseen(
    "a convolutional network in bfloat16 keeps the layout NCHW; memory_format=torch.channels_last",
    names=r"channels.?last|nhwc|memory.?format|memory layout",
    kind="training",
    recorded="none",
)
def layout_of_convolutions(device: str, changed: bool) -> Step:
    layout = torch.channels_last if changed else torch.contiguous_format
    images = torch.randn(small(64), 3, 256, 256, device=device, dtype=low(device)).to(memory_format=layout)
    labels = torch.randint(100, (small(64),), device=device)
    net: nn.Module = conv_net([64, 64, 128, 128, 128, 256, 256, 256, 512, 512], norm=True)
    net = net.to(device=device, dtype=low(device), memory_format=layout)  # type: ignore[call-overload]
    head = nn.Linear(512, 100).to(device, low(device))
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01, momentum=0.9)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(images).mean((2, 3))).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "loss.item() after each step, of a model large enough that the GPU is never short of work; log every 50 steps",
    names=r"\.item\(|_local_scalar_dense|synchroni[sz]|log (less|every)",
    kind="training",
    recorded="step",
    null=True,
    with_stack=True,
)
def logged_loss(device: str, changed: bool) -> Step:
    width = small(1024)
    net = blocks(8, width, 8, device, low(device))
    proteins = torch.randn(small(16), 512, width, device=device, dtype=low(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    losses: deque[Any] = deque(maxlen=50)
    numbers = itertools.count(1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = (through(net, proteins).float() - proteins.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach() if changed else loss.item())
        if changed and next(numbers) % 50 == 0:
            torch.stack(list(losses)).mean().item()
        return losses[-1]

    return step


@unseen(
    "the ReLUs of a network write new tensors; inplace=True, which saves memory and no time",
    names=r"in.?place",
    kind="training",
    recorded="none",
    null=True,
    profile_memory=True,
)
def new_activations(device: str, changed: bool) -> Step:
    plants, labels = torch.randn(small(48), 3, 256, 256, device=device), torch.randint(50, (small(48),), device=device)
    net = conv_net([64, 64, 64, 128, 128, 128, 256, 256], norm=True).to(device)
    for module in net:
        if isinstance(module, nn.ReLU):
            module.inplace = changed
    head = nn.Linear(256, 50).to(device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01, momentum=0.9)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(plants).mean((2, 3))), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "gradients are filled with zeros, which is a hundredth of the step at most; zero_grad(set_to_none=True)",
    names=r"set_to_none|zero_grad|zero_\b|accumulate_?grad",
    kind="training",
    recorded="step",
    null=True,
    record_shapes=False,
)
def zeroed_gradients(device: str, changed: bool) -> Step:
    net, head = blocks(6, 512, 8, device, low(device)), nn.Linear(512, 4).to(device, low(device))
    reads = torch.randn(small(32), 512, 512, device=device, dtype=low(device))
    bases = torch.randint(4, (small(32) * 512,), device=device)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.001)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=changed)
        loss = F.cross_entropy(head(through(net, reads)).flatten(0, 1).float(), bases)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Inference on a GPU.


@unseen(
    "the mean of each class is taken in a loop over classes, with a boolean mask that makes the host wait; index_add_",
    names=r"index_add|scatter|boolean (mask|index)|nonzero|one_?hot|loop over (the )?classes|"
    r"synchroni[sz]|mean of each class|masked? index",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def prototypes_of_classes(device: str, changed: bool) -> Step:
    ways = small(96)
    images = torch.randn(ways * 8, 3, 84, 84, device=device)
    labels = torch.arange(ways * 8, device=device) % ways
    encoder = conv_net([64, 64, 128, 128, 256], norm=True).to(device).eval()

    def prototypes(features: Tensor) -> Tensor:
        if not changed:
            return torch.stack([features[labels == way].mean(0) for way in range(ways)])
        sums = features.new_zeros(ways, features.shape[1]).index_add_(0, labels, features)
        return sums / features.new_zeros(ways).index_add_(0, labels, features.new_ones(len(labels)))[:, None]

    @torch.no_grad()
    def step() -> Tensor:
        features = F.normalize(encoder(images).mean((2, 3)), dim=-1)
        return features @ prototypes(features).T

    return step


@unseen(
    "keys and values of past tokens are copied by torch.cat for each new token; room for them allocated once, written in place",
    names=r"aten::cat|torch\.cat|concatenat|pre-?allocat|static.?cache|grow(s|ing)? (the |a )?(kv|key|cache)|cache in place",
    kind="inference",
    recorded="generate",
)
def growing_cache(device: str, changed: bool) -> Step:
    past, new = small(2048), 4
    layers = blocks(8, 512, 8, device, low(device)).eval()
    table = nn.Embedding(small(8000), 512).to(device, low(device))
    first = torch.randint(small(8000), (small(32),), device=device)
    shape = (small(32), 8, past + (new if changed else 0), 64)
    caches = [[torch.randn(shape, device=device, dtype=low(device)) for _ in range(2)] for _ in layers]
    for before, cache in enumerate(caches):
        for part in cache:
            part[:, :, :past] = torch.sin(torch.arange(past * 64, device=device).view(past, 64) * (before + 1.0))

    def extended(cache: list[Tensor], fresh: tuple[Tensor, Tensor], length: int) -> list[Tensor]:
        if not changed:
            return [torch.cat([part, last], dim=2) for part, last in zip(cache, fresh, strict=True)]
        for part, last in zip(cache, fresh, strict=True):
            part[:, :, length : length + 1] = last
        return cache

    @torch.no_grad()
    def step() -> Tensor:
        tokens, now, answer = first, list(caches), []
        for length in range(past, past + new):
            x = table(tokens)[:, None]
            for number, block in enumerate(layers):
                q, k, v = block.heads_of(x)
                now[number] = extended(now[number], (k, v), length)
                keys, values = (part[:, :, : length + 1] for part in now[number])
                x = block.rest(x, F.scaled_dot_product_attention(q, keys, values))
            answer.append(x)
            tokens = (x[:, 0] @ table.weight.T).argmax(-1)
        return torch.cat(answer, 1)

    return step


@unseen(
    "each tile of a map is copied to the device on the stream that also computes; the next tile copied on a stream of its own",
    names=r"stream|overlap|prefetch|double.?buffer",
    kind="inference",
    recorded="none",
)
def tiles_of_a_map(device: str, changed: bool) -> Step:
    tiles = [pinned(torch.randn(small(16), 3, 512, 512), device) for _ in range(6)]
    net = nn.Sequential(conv_net([32, 64, 64, 64, 64]), nn.Conv2d(64, 12, 1)).to(device).eval()
    side = torch.cuda.Stream() if changed and device != "cpu" else None

    def fetch(number: int) -> Tensor:
        with torch.cuda.stream(side) if side else contextlib.nullcontext():
            return tiles[number].to(device, non_blocking=True)

    @torch.no_grad()
    def step() -> Tensor:
        found = []
        following = fetch(0)
        for number in range(len(tiles)):
            if side:
                torch.cuda.current_stream().wait_stream(side)
                following.record_stream(torch.cuda.current_stream())
            tile = following
            if side and number + 1 < len(tiles):
                following = fetch(number + 1)
            found.append(net(tile).softmax(1).mean((2, 3)))
            if not side and number + 1 < len(tiles):
                following = fetch(number + 1)
        return torch.stack(found)

    return step


@unseen(
    "spectra are prepared on the host while the GPU waits, and the GPU works while the host waits; a thread prepares the next",
    names=r"\bprepare\b|thread|prefetch|overlap|background|rfft|spectr|numpy|pre-?process|input pipeline|in parallel with",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def spectra_in_line(device: str, changed: bool) -> Step:
    sounds = [np.random.default_rng(seed).standard_normal((small(8), 48_000)).astype(np.float32) for seed in range(4)]
    window = np.hanning(512).astype(np.float32)
    net = nn.Sequential(nn.Conv1d(257, small(1024), 1), *(nn.Conv1d(small(1024), small(1024), 5, padding=2) for _ in range(16)))
    net = net.to(device).eval()
    pool, numbers = ThreadPoolExecutor(1), itertools.count()

    def prepare(number: int) -> Tensor:
        frames = np.lib.stride_tricks.sliding_window_view(sounds[number % 4], 512, axis=1)[:, ::128]
        power = np.abs(np.fft.rfft(frames * window, axis=-1)) ** 2
        return torch.from_numpy(np.log(power + 1e-6).astype(np.float32)).transpose(1, 2).contiguous()

    ahead = deque([pool.submit(prepare, next(numbers))] if changed else [])

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            spectra = ahead.popleft().result()
            ahead.append(pool.submit(prepare, next(numbers)))
        else:
            spectra = prepare(next(numbers))
        result: Tensor = net(spectra.to(device)).amax(-1).cpu()
        return result

    return step


@unseen(
    "embeddings of a user's history are gathered and then averaged, field by field; F.embedding_bag",
    names=r"embedding_?bag",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def histories_of_users(device: str, changed: bool) -> Step:
    users, items = small(16_384), small(200_000)
    tables = [nn.Embedding(items, 64).to(device) for _ in range(6)]
    histories = [torch.randint(items, (users, 100), device=device) for _ in tables]
    ranker = perceptron(6 * 64, 1024, 512, 1).to(device).eval()

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            fields = [F.embedding_bag(ids, table.weight, mode="mean") for table, ids in zip(tables, histories, strict=True)]
        else:
            fields = [table(ids).mean(1) for table, ids in zip(tables, histories, strict=True)]
        scores: Tensor = ranker(torch.cat(fields, -1)).squeeze(-1)
        return scores.sigmoid()

    return step


@unseen(
    "reviews of 150 words at most are padded to 512; padded to the longest of the batch",
    names=r"padd|longest|bucket|nested|var.?len|variable.length|shorter sequence|trim|truncat",
    kind="inference",
    recorded="request",
)
def padded_reviews(device: str, changed: bool) -> Step:
    lengths = [20 + 13 * number % 131 for number in range(small(64))]
    words = torch.randint(1, 8000, (small(64), 512))
    for row, length in zip(words, lengths, strict=True):
        row[length:] = 0
    table, layers = nn.Embedding(8000, 512).to(device, low(device)), blocks(6, 512, 8, device, low(device)).eval()
    head = nn.Linear(512, 5).to(device, low(device))

    @torch.no_grad()
    def step() -> Tensor:
        ids = (words[:, : max(lengths)] if changed else words).to(device)
        mask = ids != 0
        x = table(ids)
        for block in layers:
            x = block(x, mask[:, None, None, :])
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        logits: Tensor = head(mean).float()
        return logits

    return step


@unseen(
    "the crops of a frame are recognised one by one; in one batch",
    names=r"\bbatch(es|ed|ing)?\b|one by one|one at a time|cuda.?graph|launch|reduce-overhead|many small|\brecognise\b",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def crops_of_a_frame(device: str, changed: bool) -> Step:
    frame = torch.randn(2, 3, 1088, 1920, device=device)
    finder = nn.Sequential(conv_net([32, 32, 64, 64, 128, 128]), nn.Conv2d(128, 5, 1)).to(device).eval()
    reader, head = conv_net([32, 32, 64, 64, 128, 128], norm=True).to(device).eval(), nn.Linear(128, 36).to(device)
    corners = [(37 * number % 950, 53 * number % 1800) for number in range(small(48))]

    def recognise(crops: Tensor) -> Tensor:
        logits: Tensor = head(reader(crops).mean((2, 3)))
        return logits.softmax(-1)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        map_of_scores = finder(frame).sigmoid()
        crops = [frame[:1, :, top : top + 96, left : left + 96] for top, left in corners]
        if changed:
            return map_of_scores, recognise(torch.cat(crops))
        return map_of_scores, torch.cat([recognise(crop) for crop in crops])

    return step


@unseen(
    "the logits of all positions of a prompt are computed, where only the last position's are used; the last state alone",
    names=r"last (position|token|state|hidden|row)|lm.?head|logits|vocabulary|all positions|every position",
    kind="inference",
    recorded="none",
)
def logits_of_a_prompt(device: str, changed: bool) -> Step:
    words, width = small(50_000), small(1024)
    prompts = torch.randint(words, (small(16), 512), device=device)
    table, layers = nn.Embedding(words, width).to(device, low(device)), blocks(8, width, 8, device, low(device)).eval()
    head = nn.Linear(width, words, bias=False).to(device, low(device))

    @torch.no_grad()
    def step() -> Tensor:
        x = table(prompts)
        for block in layers:
            x = block(x, causal=True)
        logits: Tensor = head(x[:, -1:] if changed else x).float()
        return logits[:, -1].softmax(-1)

    return step


@unseen(
    "distances to the codes of a codebook are computed by broadcasting all differences; torch.cdist or a matrix product",
    names=r"cdist|broadcast|pairwise|matrix product|matmul|\(a ?- ?b\)|all differences",
    kind="inference",
    recorded="step",
    profile_memory=True,
)
def nearest_codes(device: str, changed: bool) -> Step:
    images = torch.randn(small(32), 3, 256, 256, device=device)
    encoder = nn.Sequential(conv_net([64, 64, 128, 128, 128, 256, 256]), nn.Conv2d(256, 64, 3, stride=2, padding=1)).to(device)
    codebook = torch.randn(small(1024), 64, device=device)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        latents = F.layer_norm(encoder(images).permute(0, 2, 3, 1).flatten(0, 2), (64,))
        if changed:
            nearest, codes = torch.cdist(latents, codebook).min(1)
        else:
            nearest, codes = (latents[:, None] - codebook[None]).pow(2).sum(-1).sqrt().min(1)
        return nearest, codebook[codes].mean(0)

    return step


@unseen(
    "the prompt is encoded again at each step of denoising; once, before the loop",
    names=r"encode_prompt|text encoder|prompt|\bonce\b|hoist|same (inputs?|result)|recomput|out of the loop|reus(e|ing)",
    kind="inference",
    recorded="denoise",
    with_stack=True,
)
def prompt_of_a_picture(device: str, changed: bool) -> Step:
    encoder, denoiser = blocks(6, 512, 8, device, low(device)).eval(), blocks(8, 512, 8, device, low(device)).eval()
    table = nn.Embedding(8000, 512).to(device, low(device))
    prompt = torch.randint(8000, (small(4), 77), device=device)
    start = torch.randn(small(4), 1024, 512, device=device, dtype=low(device))

    def encode_prompt() -> Tensor:
        return through(encoder, table(prompt))

    @torch.no_grad()
    def step() -> Tensor:
        latents = start
        text = encode_prompt()
        for number in range(8):
            if number and not changed:
                text = encode_prompt()
            noise = through(denoiser, torch.cat([latents, text], 1))[:, :1024]
            latents = latents - 0.1 * noise
        return latents

    return step


@unseen(
    "a rollout of a small policy in a simulated world is many small operations; a CUDA graph",
    names=r"cuda.?graph|launch|reduce-overhead|many small|torch\.compile|\bfus(e|ed|ion)\b",
    kind="inference",
    recorded="rollout",
)
def rollout_of_a_policy(device: str, changed: bool) -> Step:
    policy = perceptron(4, 128, 128, 1).to(device)
    start = torch.randn(small(2048), 4, device=device) * 0.05

    @torch.no_grad()
    def simulate() -> Tensor:
        state, rewards = start, torch.zeros(len(start), device=device)
        for _ in range(64):
            force = 10 * policy(state).tanh().squeeze(-1)
            place, speed, angle, turn = state.unbind(-1)
            pull = (force + 0.05 * turn.square() * angle.sin()) / 1.1
            bend = (9.8 * angle.sin() - angle.cos() * pull) / (0.67 - 0.045 * angle.cos().square())
            push = pull - 0.045 * bend * angle.cos()
            state = torch.stack([place + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * bend], -1)
            rewards = rewards + (angle.abs() < 0.2)
        return rewards

    if not changed or device == "cpu":
        return simulate
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        simulate()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rewards = simulate()

    def step() -> Tensor:
        graph.replay()
        return rewards

    return step


@unseen(
    "a causal mask is given as a tensor, which keeps attention off the flash kernel and from skipping half; is_causal=True",
    names=r"is_causal|flash|causal|attn_mask|attention mask|mask tensor",
    kind="inference",
    recorded="prefill",
)
def mask_of_a_document(device: str, changed: bool) -> Step:
    length, width = small(4096), small(1024)
    documents = torch.randn(2, length, width, device=device, dtype=low(device))
    layers = blocks(5, width, 16, device, low(device)).eval()
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()

    @torch.no_grad()
    def step() -> Tensor:
        x = documents
        for block in layers:
            x = block(x, causal=True) if changed else block(x, mask)
        return x[:, -1]

    return step


@unseen(
    "a chain of elementwise operations on large images goes through memory at each one; torch.compile fuses them",
    names=r"torch\.compile|\bfus(e|es|ed|ing|ion)\b|element-?wise|point-?wise|\bdevelop\b|memory.bound",
    kind="inference",
    recorded="none",
)
def developed_photos(device: str, changed: bool) -> Step:
    photos = torch.rand(small(48), 3, 512, 512, device=device)
    gain = torch.tensor([1.9, 1.0, 1.6], device=device).view(3, 1, 1)
    net = conv_net([32, 64, 64, 128, 128]).to(device).eval()

    def develop(x: Tensor) -> Tensor:
        x = (x - 0.02) * gain
        x = x.clamp(min=0) / (1 + 0.5 * x.clamp(min=0))
        x = torch.where(x < 0.003, 12.9 * x, 1.055 * (x + 1e-6).pow(1 / 2.4) - 0.055)
        x = (x - 0.5) * 1.2 + 0.5
        x = x + 0.1 * torch.sin(6.28 * x)
        return (x.clamp(0, 1) - 0.45) / 0.22

    developed = torch.compile(develop, dynamic=False) if changed and device != "cpu" else develop

    @torch.no_grad()
    def step() -> Tensor:
        features: Tensor = net(developed(photos))
        return features.mean((2, 3))

    return step


@unseen(
    "torch.no_grad() around a network that keeps the GPU busy; torch.inference_mode()",
    names=r"inference_mode",
    kind="inference",
    recorded="step",
    null=True,
)
def without_gradients(device: str, changed: bool) -> Step:
    scans = torch.randn(small(32), 3, 384, 384, device=device)
    net = nn.Sequential(conv_net([64, 64, 128, 128, 256, 256]), nn.Conv2d(256, 4, 1)).to(device).eval()

    def step() -> Tensor:
        with torch.inference_mode() if changed else torch.no_grad():
            logits = net(scans)
            return F.interpolate(logits, size=(192, 192), mode="bilinear").softmax(1).mean((2, 3))

    return step


@unseen(
    "a small tower for a table's columns runs before the large one for images, of which it is a hundredth; a second stream",
    names=r"stream|concurren|in parallel|overlap",
    kind="inference",
    recorded="none",
    null=True,
)
def towers_in_turn(device: str, changed: bool) -> Step:
    images = torch.randn(small(48), 3, 256, 256, device=device)
    columns = torch.randn(small(48), 64, device=device)
    of_images = conv_net([64, 64, 64, 128, 128, 256, 256]).to(device).eval()
    of_columns, head = perceptron(64, 256, 256, 256).to(device), nn.Linear(512, 2).to(device)
    side = torch.cuda.Stream() if changed and device != "cpu" else None

    @torch.no_grad()
    def step() -> Tensor:
        if side:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side) if side else contextlib.nullcontext():
            second = of_columns(columns)
        first = of_images(images).mean((2, 3))
        if side:
            torch.cuda.current_stream().wait_stream(side)
            second.record_stream(torch.cuda.current_stream())
        logits: Tensor = head(torch.cat([first, second], -1))
        return logits

    return step


@unseen(
    "a batch of word numbers, some kilobytes, is copied before the network runs; the next one copied ahead on another stream",
    names=r"stream|overlap|prefetch|double.?buffer|memcpy ?htod|host.to.device",
    kind="inference",
    recorded="step",
    null=True,
)
def words_in_line(device: str, changed: bool) -> Step:
    batches = [pinned(torch.randint(8000, (small(32), 512)), device) for _ in range(4)]
    numbers = itertools.cycle(range(4))
    table, layers = nn.Embedding(8000, 512).to(device, low(device)), blocks(8, 512, 8, device, low(device)).eval()
    side = torch.cuda.Stream() if changed and device != "cpu" else None

    def fetch() -> Tensor:
        with torch.cuda.stream(side) if side else contextlib.nullcontext():
            return batches[next(numbers)].to(device, non_blocking=True)

    ahead = deque([fetch()] if side else [])

    @torch.no_grad()
    def step() -> Tensor:
        if side:
            torch.cuda.current_stream().wait_stream(side)
            words = ahead.popleft()
            words.record_stream(torch.cuda.current_stream())
            ahead.append(fetch())
        else:
            words = fetch()
        return through(layers, table(words)).mean(1)

    return step


# On a CPU.


@unseen(
    "a table that comes from NumPy as float64 makes the whole training float64; float32",
    names=r"float64|\bdouble\b|float32|single.precision|fp64",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def numbers_of_a_table(device: str, changed: bool) -> Step:
    source = np.random.default_rng(0)
    dtype = torch.float32 if changed else torch.float64
    table, prices = torch.from_numpy(source.random((512, 64))).to(dtype), torch.from_numpy(source.random(512)).to(dtype)
    net = perceptron(64, 512, 512, 512, 1).to(device, dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.huber_loss(net(table).squeeze(-1), prices)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a batch is made by torch.tensor() of a list of NumPy arrays, element by element; np.stack and torch.from_numpy",
    names=r"from_numpy|np\.(stack|array|asarray)|numpy\.(stack|array)|list of (numpy |nd)?arrays|torch\.tensor\(|"
    r"as_tensor|lift_fresh|batch_of_windows",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def windows_of_sensors(device: str, changed: bool) -> Step:
    signal = np.random.default_rng(0).standard_normal((20_000, 12)).astype(np.float32)
    net = nn.Sequential(*(m for _ in range(3) for m in (nn.LazyConv1d(64, 5, padding=2), nn.ReLU())), nn.Conv1d(64, 6, 1))
    net(torch.zeros(1, 12, 64))
    numbers = itertools.count()

    def batch_of_windows(start: int) -> Tensor:
        windows = [signal[start + 32 * number : start + 32 * number + 128] for number in range(192)]
        return torch.from_numpy(np.stack(windows)) if changed else torch.tensor(windows)

    @torch.no_grad()
    def step() -> Tensor:
        x = batch_of_windows(next(numbers) % 1000).to(device).transpose(1, 2)
        logits: Tensor = net((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True))
        return logits.mean(-1).argmax(-1)

    return step


@unseen(
    "the gradient of a large embedding is a dense tensor of the table's size, for a few rows; nn.Embedding(sparse=True)",
    names=r"sparse|embedding_dense_backward|dense gradient",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def table_of_items(device: str, changed: bool) -> Step:
    items, users = (nn.Embedding(120_000, 64, sparse=changed).to(device) for _ in range(2))
    net = perceptron(128, 512, 256, 1).to(device)
    optimizer = torch.optim.SGD([*items.parameters(), *users.parameters(), *net.parameters()], lr=0.05)
    pairs, clicks = torch.randint(120_000, (2, 1024), device=device), torch.rand(1024, device=device).round()

    def step() -> Tensor:
        optimizer.zero_grad()
        both = torch.cat([items(pairs[0]), users(pairs[1])], -1)
        loss = F.binary_cross_entropy_with_logits(net(both).squeeze(-1), clicks)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "torch.set_num_threads(1) is left over from another program; as many threads as cores",
    names=r"num_threads|omp_num|intra-?op|\b(one|single|more|all) (thread|core)s?\b|single-threaded",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def only_one_thread(device: str, changed: bool) -> Step:
    views = torch.randn(4, 3, 160, 160, device=device)
    net = conv_net([32, 32, 64, 64, 128, 128], norm=True).to(device).eval()

    @torch.no_grad()
    def step() -> Tensor:
        torch.set_num_threads(2 if changed else 1)
        features: Tensor = net(views)
        return features.amax((2, 3))

    return step


@unseen(
    "discounted returns are computed in a loop over the elements of a tensor; over the floats of rewards.tolist()",
    names=r"tolist|discounted|\breturns_of\b|element by element|loop over (the )?(elements|rewards|time)|"
    r"iterat\w+ (over )?(a |the )?tensor|unbind|aten::select|many small|scalar tensors|vectori[sz]",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def returns_of_an_episode(device: str, changed: bool) -> Step:
    observations, rewards = torch.randn(1500, 24, device=device), torch.rand(1500, device=device)
    actions = torch.randint(6, (1500,), device=device)
    policy = perceptron(24, 256, 256, 6).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)

    def returns_of(rewards: Tensor) -> Tensor:
        running: Any = 0.0
        found: list[Any] = []
        for reward in reversed(rewards.tolist() if changed else list(rewards)):
            running = reward + 0.99 * running
            found.append(running)
        found.reverse()
        return torch.tensor(found) if changed else torch.stack(found)

    def step() -> Tensor:
        returns = returns_of(rewards)
        optimizer.zero_grad()
        chosen = policy(observations).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        loss = -(chosen * returns / returns.std()).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "sound is convolved directly with a long impulse response; by FFT",
    names=r"fft|fourier|frequency domain|conv1d|(long|large) (kernel|filter|impulse)|aten::(mkldnn_|_?slow_|thnn_)?conv",
    kind="inference",
    recorded="augment",
    on=("cpu",),
)
def echo_of_a_room(device: str, changed: bool) -> Step:
    sounds, room = torch.randn(4, 1, 16_000, device=device), torch.randn(1, 1, 2048, device=device) * 0.02
    net = nn.Sequential(nn.Conv1d(1, 64, 16, 8), nn.ReLU(), nn.Conv1d(64, 128, 5, 2), nn.ReLU(), nn.Conv1d(128, 128, 5, 2))
    net = net.to(device).eval()

    def echoed(x: Tensor) -> Tensor:
        if not changed:
            return F.conv1d(F.pad(x, (2047, 0)), room.flip(-1))
        size = x.shape[-1] + 2047
        return torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(room, size), size)[..., : x.shape[-1]]

    @torch.no_grad()
    def step() -> Tensor:
        features: Tensor = net(sounds + echoed(sounds))
        return features.mean(-1)

    return step


@unseen(
    "the neighbours in a graph are added up with a dense adjacency matrix, of which 1 in 250 is not zero; a sparse matrix",
    names=r"sparse|\bcsr\b|\bcoo\b|dense adjacency|adjacency|index_add|scatter|edge list|mostly zero",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def neighbours_in_a_graph(device: str, changed: bool) -> Step:
    number = 2000
    edges = torch.randint(number, (2, 8 * number), device=device)
    adjacency: Tensor = torch.eye(number, device=device)
    adjacency[edges[0], edges[1]] = 1.0
    adjacency = adjacency / adjacency.sum(1, keepdim=True)
    if changed:
        adjacency = adjacency.to_sparse_csr()
    features = torch.randn(number, 128, device=device)
    layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4)).to(device)
    head = perceptron(128, 512, 512, 40).to(device)

    @torch.no_grad()
    def step() -> Tensor:
        x = features
        for layer in layers:
            x = layer(adjacency @ x).relu()
        logits: Tensor = head(x)
        return logits.softmax(-1)

    return step


@unseen(
    "only the head is trained, yet backward goes through the whole frozen trunk; torch.no_grad() or requires_grad_(False)",
    names=r"requires_grad|freez|frozen|no_grad|detach|\btrunk\b|backbone",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def head_of_a_frozen_net(device: str, changed: bool) -> Step:
    leaves, labels = torch.randn(8, 3, 96, 96, device=device), torch.randint(38, (8,), device=device)
    trunk, head = conv_net([32, 32, 64, 64, 128], norm=True).to(device).eval(), nn.Linear(128, 38).to(device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.no_grad() if changed else contextlib.nullcontext():
            features = trunk(leaves).mean((2, 3))
        loss = F.cross_entropy(head(features), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "categories are looked up by a product of one-hot vectors with a table; F.embedding",
    names=r"one_?hot|embedding|index_select|look.?up|aten::gather|torch\.gather|scatter_",
    kind="inference",
    recorded="score",
    on=("cpu",),
    record_shapes=False,
)
def categories_of_a_table(device: str, changed: bool) -> Step:
    columns, kinds = 8, 500
    categories = torch.randint(kinds, (1024, columns), device=device)
    tables = torch.randn(columns, kinds, 32, device=device)
    net = perceptron(columns * 32, 1024, 1024, 1).to(device)

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            fields = [F.embedding(categories[:, column], tables[column]) for column in range(columns)]
        else:
            fields = [F.one_hot(categories[:, column], kinds).float() @ tables[column] for column in range(columns)]
        scores: Tensor = net(torch.cat(fields, -1)).squeeze(-1)
        return scores.sigmoid()

    return step


@unseen(
    "AdamW goes through the weights a dozen times, an operation each; AdamW(..., fused=True)",
    names=r"fused|foreach|adamw?\b|optimi[sz]er",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def weights_of_a_wide_net(device: str, changed: bool) -> Step:
    spectra, amounts = torch.randn(64, 1024, device=device), torch.randn(64, 16, device=device)
    net = perceptron(1024, 1536, 1536, 16).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=changed)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(net(spectra), amounts)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the policy is asked for each of 96 agents by itself; for all of them in one batch",
    names=r"\bbatch(es|ed|ing)?\b|vectori[sz]|one by one|one at a time|loop over (the )?agents|many small|"
    r"launch overhead|\bactions_of\b|vmap",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def agents_by_themselves(device: str, changed: bool) -> Step:
    policy = perceptron(48, 256, 256, 8).to(device)
    views = torch.randn(96, 3, 64, 64, device=device)
    eye = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 48, 5, 2), nn.ReLU()).to(device)

    def actions_of(states: Tensor) -> Tensor:
        if changed:
            logits: Tensor = policy(states)
            return logits.softmax(-1)
        return torch.stack([policy(state).softmax(-1) for state in states])

    @torch.no_grad()
    def step() -> Tensor:
        return actions_of(eye(views).mean((2, 3)))

    return step


@unseen(
    "the overlap of each class is counted with masks, in a loop over classes; torch.bincount of label and prediction at once",
    names=r"bincount|confusion|histogram|histc|loop over (the )?classes|(per|each|every) class|\bcounts_of\b|one pass",
    kind="inference",
    recorded="evaluate",
    on=("cpu",),
    with_stack=True,
)
def overlap_of_classes(device: str, changed: bool) -> Step:
    kinds = 21
    streets, labels = torch.randn(2, 3, 256, 256, device=device), torch.randint(kinds, (2, 256, 256), device=device)
    net = nn.Sequential(conv_net([16, 32, 32]), nn.Conv2d(32, kinds, 1)).to(device).eval()

    def counts_of(found: Tensor) -> Tensor:
        if changed:
            table = torch.bincount((labels * kinds + found).flatten(), minlength=kinds**2).view(kinds, kinds)
            both = table.diagonal()
            return torch.stack([both, table.sum(0) + table.sum(1) - both])
        both = torch.stack([((found == kind) & (labels == kind)).sum() for kind in range(kinds)])
        either = torch.stack([((found == kind) | (labels == kind)).sum() for kind in range(kinds)])
        return torch.stack([both, either])

    @torch.no_grad()
    def step() -> Tensor:
        logits = F.interpolate(net(streets), size=(256, 256), mode="bilinear")
        both, either = counts_of(logits.argmax(1))
        return both / either.clamp(min=1)

    return step


@unseen(
    "torch.no_grad() around an encoder; torch.inference_mode()",
    names=r"inference_mode",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def encoder_without_gradients(device: str, changed: bool) -> Step:
    layers = blocks(3, 256, 4, device).eval()
    frames = torch.randn(4, 128, 256, device=device)

    def step() -> Tensor:
        with torch.inference_mode() if changed else torch.no_grad():
            return through(layers, frames).mean(1)

    return step


@unseen(
    "queries, keys and values are three matrix products, large ones; one product of the joined weights",
    names=r"\bqkv\b|(join|concat|merg|fus|combin|stack)\w* (the )?(\w+ )?(three |weights|projections|linear|matri|products)|"
    r"one (larger )?(matmul|matrix product)",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
)
def three_projections(device: str, changed: bool) -> Step:
    tokens = torch.randn(8, 128, 384, device=device)
    weights = [torch.randn(384, 384, device=device) / 20 for _ in range(3)]
    joined = torch.cat(weights)
    out = perceptron(384, 1536, 384).to(device)

    @torch.no_grad()
    def step() -> Tensor:
        x = tokens
        for _ in range(2):
            parts = F.linear(x, joined).chunk(3, -1) if changed else [F.linear(x, weight) for weight in weights]
            q, k, v = (part.unflatten(-1, (6, 64)).transpose(1, 2) for part in parts)
            x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = F.layer_norm(x + out(x), (384,))
        return x.mean(1)

    return step
