"""A seventeenth set of small programs, for one GPU or two cores, with one performance fault each, written without a look at
the reader."""

from collections import deque
from collections.abc import Callable
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import convolutions, depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


class Layer(nn.Module):
    """A layer of a transformer, normed ahead of each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, by head."""
        return self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """Do what follows attention."""
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(x)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


# For one GPU, with a fault.


class Songs(Dataset[tuple[np.ndarray[Any, Any], int]]):
    """Songs of whales as samples of 16 bits, made noisy spectrograms when they are asked for."""

    def __init__(self, songs: int, samples: int) -> None:
        rng = np.random.default_rng(1)
        self.songs = rng.integers(-8000, 8000, (songs, samples), dtype=np.int16)
        self.window = np.hanning(512).astype(np.float32)

    def __len__(self) -> int:
        return 32 * len(self.songs)

    def __getitem__(self, at: int) -> tuple[np.ndarray[Any, Any], int]:
        rng = np.random.default_rng(at)
        heard = self.songs[at % len(self.songs)].astype(np.float32) / 32768
        heard = np.roll(heard, int(rng.integers(4000))) * np.float32(rng.uniform(0.5, 1.5))
        heard += 0.01 * rng.standard_normal(len(heard), dtype=np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(heard, 512)[::128] * self.window
        return np.log1p(np.abs(np.fft.rfft(frames)[:, :256])).astype(np.float32), at % 23


@unseen(
    "the loader has no workers, so noise and spectrogram of each song are made by numpy in the training process while the GPU "
    "waits; num_workers=8",
    names=r"num_workers|\bworkers?\b|worker process|DataLoader|data.?load|input pipeline|prefetch|background (thread|process)"
    r"|(augment|spectrogram|stft|transform|prepar|preprocess)\w* .{0,60}(gpu|ahead|once|workers?|cach|background|parallel)"
    r"|__next__|torchaudio",
    kind="training",
    recorded="step",
    with_stack=True,
)
def whales_by_their_songs(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, wide = small(32, 4), small(96, 16)
    order = torch.Generator().manual_seed(1)
    workers = 0 if not changed else 8 if SCALE == 1 else 2
    loader = DataLoader(
        Songs(256, 16000 if SCALE == 1 else 6400),
        rows,
        shuffle=True,
        drop_last=True,
        generator=order,
        num_workers=workers,
        pin_memory=device != "cpu",
        persistent_workers=workers > 0,
    )
    batches = endless(loader)
    net = [*convolutions((1, wide), 1), *convolutions((wide,) * depth(5), 1), *convolutions((wide, 2 * wide, 4 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, 23))
    model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        spectra, kinds = (part.to(device, non_blocking=True) for part in next(batches))
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(spectra[:, None].contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(scores.float(), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "each batch goes through the network a second time, only to count how many it gets right for the log; the scores of the "
    "first time, which the loss was taken from",
    names=r"(second|twice|additional|extra|redundant|repeated|another|duplicate)\b.{0,40}(forward|through the (network|model)"
    r"|inference)"
    r"|(forward|network|model)\b.{0,60}(twice|a second time|redundant|two times|again|repeated)|two forward"
    r"|forward pass(es)? .{0,40}"
    r"(log|accuracy|metric)|(reus|re-us|keep|kept|share|sav|cach)\w* .{0,60}(logits|scores|outputs?|predictions?|forward"
    r"|result)"
    r"|(accuracy|metrics?)\b.{0,80}(logits|scores|outputs?|predictions?|forward|already)",
    kind="training",
    recorded="none",
)
def lace_patterns_recognised(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    rows, side, wide, kinds = small(128, 4), small(128, 32), small(96, 16), 50
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(6), 1), *convolutions((wide, 2 * wide, 4 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds))
    model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    photos = torch.randn(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    laces = torch.randint(kinds, (rows,), device=device)

    def scored() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            return model(photos).float()

    def step() -> tuple[Tensor, Tensor]:
        scores = scored()
        loss = F.cross_entropy(scores, laces)
        loss.backward()
        with torch.no_grad():
            guesses = (scores if changed else scored()).argmax(1)
            right = (guesses == laces).float().mean()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), right

    return step


class Many(nn.Module):
    """As many small networks as there are agents, their weights stacked."""

    def __init__(self, nets: list[nn.Sequential]) -> None:
        super().__init__()
        linears = [[layer for layer in net if isinstance(layer, nn.Linear)] for net in nets]
        stacked = [torch.stack([one[at].weight.detach().T for one in linears]) for at in range(len(linears[0]))]
        shifts = [torch.stack([one[at].bias.detach()[None] for one in linears]) for at in range(len(linears[0]))]
        self.weights, self.shifts = nn.ParameterList(stacked), nn.ParameterList(shifts)

    def forward(self, x: Tensor) -> Tensor:
        for at, (weight, shift) in enumerate(zip(self.weights, self.shifts, strict=True)):
            x = torch.baddbmm(shift, x if at == 0 else x.relu(), weight)
        return x


@unseen(
    "each of forty robots has a small critic of its own, called one after another in a Python loop, tiny kernels forward and "
    "back; the weights stacked, one batched product for a layer of all of them (bmm, vmap of stack_module_state)",
    names=r"\bbmm\b|baddbmm|batched (matri|product|matmul|gemm|linear|weights)|vmap|stack_module_state|functional_call"
    r"|torch\.func"
    r"|(stack|batch|group|fus|merg|combin)\w* .{0,60}(weights|critics?|networks?|agents?|robots?|models|linears?|heads|members)"
    r"|ensemble|(each|every|per) (agent|robot|critic|network|member)|one (by one|after another|at a time)|grouped"
    r"|(python )?loop over (the )?(agents|robots|critics|networks|models|members)|einsum|(tiny|small|short|many"
    r"|little) (kernels|"
    r"launches|products|matmuls)|launch.?bound|cuda.?graph|torch\.compile|reduce-overhead|kernel launch",
    kind="training",
    recorded="update",
    record_shapes=False,
)
def warehouse_robots_give_way(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    agents, rows, senses, width, hidden, tokens = small(40, 3), small(256, 8), 64, small(512, 64), small(192, 16), 41
    enter, layers = nn.Linear(senses, width), nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(3))))
    shared = nn.ModuleList([enter, layers]).to(device)
    nets = [
        nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        for _ in range(agents)
    ]
    critics = (Many(nets) if changed else nn.ModuleList(nets)).to(device)
    optimizer = torch.optim.Adam([*shared.parameters(), *critics.parameters()], lr=3e-4, fused=True)
    seen = torch.randn(rows, tokens, senses, device=device)[:, :agents].contiguous()
    returns = torch.randn(agents, rows, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = layers(enter(seen))
        x = x.float()
        if isinstance(critics, Many):
            worths = critics(x.transpose(0, 1))[..., 0]
        else:
            worths = torch.stack([critic(x[:, at])[:, 0] for at, critic in enumerate(critics)])  # type: ignore[arg-type]
        loss = F.smooth_l1_loss(worths, returns)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Message(nn.Module):
    """A layer of a graph network: messages along the edges, added up at their ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tell, self.take, self.norm = nn.Linear(width, width), nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x: Tensor, source: Tensor, goal: Tensor) -> Tensor:
        told = F.silu(self.tell(x)).index_select(0, source)
        heard = torch.zeros_like(x).index_add(0, goal, told)
        return self.norm(x + F.silu(self.take(torch.cat([x, heard], 1))))


@unseen(
    "the sixteen graphs of a batch go through the network one by one, forward and back, many short kernels; as one graph of "
    "separate parts, the numbers of the nodes shifted",
    names=r"disjoint|block.?diagonal|Batch\.from_data_list|torch_geometric|\bpyg\b|\bdgl\b|(each|every|per|single|individual) "
    r"(graph|sample|protein|surface|example|item|micro.?batch)|(graph|one|sample) by (graph|one|sample)|one (at a time"
    r"|after (another|the other))|(all|several|the|many|more) .{0,20}(graphs|samples|surfaces|examples) .{0,30}(together"
    r"|at once"
    r"|one|single|batch)"
    r"|(one|single|larger|bigger|whole|as a) (large |big |batched )?(batch|graph)\b|\bbatch(ed|ing)\b"
    r"|(tiny|small|short|many|little) (kernels|launches)|launch.?bound|cuda.?graph"
    r"|python loop|loop over (the )?(graphs|samples|surfaces)|kernel launch|gradient accumulation",
    kind="training",
    recorded="step",
)
def enzyme_surfaces_bound(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    graphs, width = small(16, 3), small(128, 16)
    enter, leave = nn.Linear(12, width), nn.Linear(width, 1)
    layers = nn.ModuleList(Message(width) for _ in range(depth(5)))
    model = nn.ModuleList([enter, leave, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    draw = torch.Generator().manual_seed(4)
    sizes = torch.randint(small(800, 10), small(1200, 20), (graphs,), generator=draw).tolist()
    ends = [torch.randint(size, (2, 12 * size), generator=draw).to(device) for size in sizes]
    points = [torch.randn(size, 12, generator=draw).to(device) for size in sizes]
    sites = [torch.rand(size, generator=draw).round().to(device) for size in sizes]
    shifts = np.cumsum([0, *sizes[:-1]]).tolist()
    together = (
        torch.cat(points),
        torch.cat([one + shift for one, shift in zip(ends, shifts, strict=True)], 1),
        torch.cat(sites),
        torch.cat([torch.full((size,), 1 / size / graphs) for size in sizes]).to(device),
    )

    def answer(x: Tensor, edges: Tensor) -> Tensor:
        x = enter(x)
        for layer in layers:
            x = layer(x, edges[0], edges[1])
        return leave(x)[:, 0]

    def step() -> Tensor:
        if changed:
            x, edges, bound, shares = together
            total = F.binary_cross_entropy_with_logits(answer(x, edges), bound, weight=shares, reduction="sum")
            total.backward()
        else:
            total = torch.zeros((), device=device)
            for x, edges, bound in zip(points, ends, sites, strict=True):
                loss = F.binary_cross_entropy_with_logits(answer(x, edges), bound) / graphs
                loss.backward()
                total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total.detach()

    return step


@unseen(
    "batches of clips are copied to the GPU from pageable memory, and the host waits for each copy; pinned memory "
    "(pin_memory=True) and non_blocking=True",
    names=r"\bpin(ned|ning|_memory)?\b|page.?able|page.?locked|non_?blocking|HtoD|H2D|host.?(to|->).?(device|gpu)"
    r"|(prefetch|copy|copied|upload)\w* .{0,60}(ahead|next batch|side stream|own stream|another stream|second stream)"
    r"|cudaMemcpyAsync|\bMemcpy\b",
    kind="training",
    recorded="none",
    with_stack=True,
)
def sign_language_clips(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, side, frames, width, signs, batches = small(48, 2), small(160, 32), 16, small(768, 64), 300, 4
    deep, high = frames // 2, side // 16
    cut, place = nn.Linear(2 * 16 * 16 * 3, width), nn.Embedding(deep * high * high, width)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(4))))
    norm, head = nn.LayerNorm(width), nn.Linear(width, signs)
    model = nn.ModuleList([cut, place, layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    clips = torch.randint(256, (batches, rows, frames, side, side, 3), dtype=torch.uint8)
    shown = torch.randint(signs, (batches, rows))
    if changed and device != "cpu":
        clips, shown = clips.pin_memory(), shown.pin_memory()
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        at = turn % batches
        turn += 1
        clip, sign = clips[at].to(device, non_blocking=changed), shown[at].to(device, non_blocking=changed)
        pieces = clip.view(rows, deep, 2, high, 16, high, 16, 3).permute(0, 1, 3, 5, 2, 4, 6, 7)
        pieces = pieces.reshape(rows, deep * high * high, -1).to(low(device)) / 255
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = head(norm(layers(cut(pieces) + place.weight)).mean(1))
        loss = F.cross_entropy(scores.float(), sign)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "attention gets a mask of the padding though every sequence is full and nothing is padded, which keeps it off the flash "
    "kernel; no mask where there is no padding",
    names=r"attn_?mask|attention.?mask|(padding|key.?padding|boolean|bool|all.?(ones|true)|needless|unneeded|explicit|dense"
    r"|full) "
    r"(attention )?mask|mask\b.{0,80}(none|needless|unneeded|all (ones|true)|drop|omit|remov|without|no padding|flash"
    r"|efficient)"
    r"|(drop|omit|remov|without|skip|leav)\w* .{0,40}\bmask|flash.?(attention|attn|kernel)?|mem(ory)?.?efficient|cutlass|fmha"
    r"|efficient_attention|varlen|flex_?attention|is_causal",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def genomes_with_gaps_closed(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    rows, length, width, words = small(8), small(2048, 64), small(1024, 64), 70
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, words)
    layers, norm = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(5))), nn.LayerNorm(width)
    model = nn.ModuleList([embed, place, layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    bases, at = torch.randint(1, words, (rows, length), device=device), torch.arange(length, device=device)
    hidden = torch.rand(rows, length, device=device) < 0.15
    seen, aims = bases.masked_fill(hidden, 1), bases.masked_fill(~hidden, -100)
    padded = (bases != 0)[:, None, None, :]

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(seen) + place(at)
            for layer in layers:
                x = layer(x, None if changed else padded.expand(-1, -1, length, -1))
            scores = head(norm(x))
        loss = F.cross_entropy(scores.flatten(0, 1).float(), aims.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a linear recurrence, each state the decayed one before it and the input, runs as a Python loop over the times, forward "
    "and back; as a convolution with the powers of the decay, by FFT (or a scan)",
    names=r"\bfft\b|convolution|\bconv1d\b|\bscan\b|cumsum|recurrence|recurrent|(each|every|per|over) (the )?time.?(step|s\b)?"
    r"|time.?step|step by step|python loop|loop over (the )?(times|time|sequence|steps|length|frames)|(custom|fused|one|single"
    r"|triton) kernel|triton|torch\.compile|cuda.?graph|mamba|state.?space|toeplitz|parallel (form|over)|(tiny|small|short"
    r"|many) "
    r"(kernels|launches|operations|ops)|launch.?bound|kernel launch|unbind|vectori[sz]",
    kind="training",
    recorded="fit",
)
def river_levels_remembered(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows, length, width, senses = small(64), small(320, 32), small(768, 32), 24
    enter, gate, leave = nn.Linear(senses, width), nn.Linear(width, width), nn.Linear(width, 1)
    bodies = nn.ModuleList(
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(depth(4))
    )
    model = nn.ModuleList([enter, gate, leave, bodies]).to(device)
    decay = nn.Parameter(torch.linspace(1, 4, width, device=device))
    optimizer = torch.optim.AdamW([*model.parameters(), decay], lr=1e-4, fused=True)
    past, level = torch.randn(rows, length, senses, device=device), torch.randn(rows, length, device=device)
    powers = torch.arange(length, device=device, dtype=torch.float32)[:, None]

    def remembered(x: Tensor) -> Tensor:
        if changed:
            kernel = (F.logsigmoid(decay) * powers).exp()
            product = torch.fft.rfft(x, 2 * length, dim=1) * torch.fft.rfft(kernel, 2 * length, dim=0)
            return torch.fft.irfft(product, 2 * length, dim=1)[:, :length]
        keep, state, states = decay.sigmoid(), torch.zeros_like(x[:, 0]), []
        for now in x.unbind(1):
            state = keep * state + now
            states.append(state)
        return torch.stack(states, 1)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = enter(past)
            x = remembered(x.float()) * gate(x).sigmoid()
            for body in bodies:
                x = x + body(x)
            guess = leave(x)[..., 0]
        loss = F.mse_loss(guess.float(), level)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "names found in a text are read from the GPU text by text, nonzero() and tolist() in a Python loop, and the host waits "
    "each time; all labels copied to the host once, and looked through there",
    names=r"tolist|nonzero|torch\.where|\.?item\(\)|\.cpu\(\)|_local_scalar_dense|synchroni|\bsyncs?\b|(host|cpu|python) (waits"
    r"|blocks|stalls)|DtoH|D2H|device.?(to|->).?host|(text|row|document|sentence) by (text|row|document|sentence)|(each|every"
    r"|per"
    r"|single) (text|row|document|sentence)|(copy|copied|transfer|fetch|mov|read)\w* .{0,60}(once|one go|at once|single"
    r"|one copy)"
    r"|loop over (the )?(texts|rows|batch|documents|sentences)|boolean (mask|index)|python loop",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def place_names_in_old_letters(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    rows, length, width, words, labels = small(80), small(160, 16), small(768, 64), small(30000, 200), 9
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, labels)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(8))))
    nn.ModuleList([embed, place, head, layers]).to(device, low(device)).eval()
    letters = torch.randint(words, (rows, length), device=device)

    @torch.inference_mode()
    def step() -> list[Tensor]:
        labelled = head(layers(embed(letters) + place.weight)).argmax(2)
        found: list[tuple[list[int], list[int]]] = []
        if changed:
            for marks in labelled.cpu().numpy():
                places = np.flatnonzero(marks > 5)
                found.append((places.tolist(), marks[places].tolist()))
        else:
            for one in labelled:
                at = (one > 5).nonzero()[:, 0]
                found.append((at.tolist(), one[at].tolist()))
        return [torch.tensor([sum(places), sum(marks)]) for places, marks in found]

    return step


@unseen(
    "an encoder of sentences serves in float32, its products as TF32; in bfloat16 (or half precision), weights and activations",
    names=r"autocast|bfloat16|\bbf16\b|\bfp16\b|float16|\bhalf\b|half.?precision|mixed.?precision|\bamp\b|(lower|reduced) "
    r"precision|16.?bit|\bint8\b|\bfp8\b",
    kind="inference",
    recorded="none",
)
def recipes_embedded_for_search(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    rows, length, width, words = small(64), small(256, 16), small(1024, 64), small(30000, 200)
    embed, place = nn.Embedding(words, width), nn.Embedding(length, width)
    layers, norm = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(8)))), nn.LayerNorm(width)
    nn.ModuleList([embed, place, layers, norm]).to(device, low(device) if changed else torch.float32).eval()
    recipes = torch.randint(words, (rows, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        torch.set_float32_matmul_precision("high")
        x = norm(layers(embed(recipes) + place.weight))
        return F.normalize(x.float().mean(1), dim=1)

    return step


@unseen(
    "the tower for the wares computes the vectors of all 400000 of them again for each batch of customers, though neither "
    "wares nor weights change; once, kept",
    names=r"(vector|embedding|tower|item|ware|product|catalogu?e?|candidate)s?\b.{0,80}(once|again|cach|precomput|pre-comput"
    r"|stored"
    r"|kept|keep|offline|ahead of|recomput|(each|every) (request|call|batch|step))|(once|cach\w*|precomput\w*|pre-comput\w*"
    r"|stor\w*"
    r"|keep|kept|offline|recomput\w*|same)\b.{0,80}(vectors|embeddings|tower|items|wares|catalog|candidates)|loop.?invariant"
    r"|constant (input|across)|same inputs?",
    kind="inference",
    recorded="recommend",
)
def garden_tools_recommended(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    wares, facts, width, rows, history = small(400_000, 1000), small(256, 32), small(512, 64), small(256), small(100, 8)
    tower = nn.Sequential(nn.Linear(facts, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 128))
    enter, leave = nn.Embedding(small(50_000, 200), width), nn.Linear(width, 128)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(4))))
    nn.ModuleList([tower, enter, leave, layers]).to(device, low(device)).eval()
    tools = torch.randn(wares, facts, device=device, dtype=low(device))
    bought = torch.randint(small(50_000, 200), (rows, history), device=device)
    with torch.inference_mode():
        kept = tower(tools)

    @torch.inference_mode()
    def step() -> Tensor:
        customers = leave(layers(enter(bought))[:, -1])
        vectors = kept if changed else tower(tools)
        return (customers @ vectors.T).topk(20).values.float()

    return step


@unseen(
    "the equations of shallow water are written as some ninety small operations for a step in time, shifts, differences and "
    "products, each of which reads and writes whole fields; torch.compile, which fuses them",
    names=r"torch\.compile|\bcompil(e|ed|ing|ation)\b|inductor|triton|(fus|merg|combin)(e|es|ed|ing|ion)\b|custom kernel|(one"
    r"|single) "
    r"(fused |custom )?kernel|jit\b|element.?wise|point.?wise|memory.?(bound|bandwidth|traffic)|torch\.roll|aten::roll"
    r"|\bnvfuser\b|convolution|conv2d",
    kind="inference",
    recorded="step",
)
def storm_surges_forecast(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    members, side, wide, rounds = small(16), small(1024, 32), small(32, 8), 3
    shape = (members, side, side)
    height = 100 + torch.rand(shape, device=device)
    east, north = 0.1 * torch.randn(shape, device=device), 0.1 * torch.randn(shape, device=device)
    mend = nn.Sequential(nn.Conv2d(3, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, 3, 1))
    mend.to(device, low(device)).to(memory_format=torch.channels_last).eval()

    def slope(x: Tensor, along: int) -> Tensor:
        return (torch.roll(x, -1, along) - torch.roll(x, 1, along)) * 0.5

    def spread(x: Tensor) -> Tensor:
        return torch.roll(x, 1, 1) + torch.roll(x, -1, 1) + torch.roll(x, 1, 2) + torch.roll(x, -1, 2) - 4 * x

    def moved(h: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        speed = torch.sqrt(u * u + v * v + 1e-6)
        drag = 0.002 * speed / h
        next_u = u + 0.01 * (0.5 * v - 9.8 * slope(h, 2) - u * slope(u, 2) - v * slope(u, 1) - drag * u + 0.05 * spread(u))
        next_v = v + 0.01 * (-0.5 * u - 9.8 * slope(h, 1) - u * slope(v, 2) - v * slope(v, 1) - drag * v + 0.05 * spread(v))
        return h - 0.01 * (slope(h * u, 2) + slope(h * v, 1)), next_u, next_v

    move: Callable[..., tuple[Tensor, Tensor, Tensor]] = moved
    if changed and device != "cpu":
        move = torch.compile(moved)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor, Tensor]:
        h, u, v = height, east, north
        for _ in range(rounds):
            h, u, v = move(h, u, v)
        state = torch.stack([h - 100, u, v], 1).to(low(device)).contiguous(memory_format=torch.channels_last)
        more = mend(state).float()
        return h + 0.01 * more[:, 0], u + 0.01 * more[:, 1], v + 0.01 * more[:, 2]

    return step


@unseen(
    "the same instructions, a thousand tokens, go through the model again ahead of each batch of questions; their keys and "
    "values computed once and kept (a prefix cache)",
    names=r"prefix|(system|shared|common|same|fixed|constant) (prompt|instructions|prefix|tokens|text|context)|prompt.?cach"
    r"|(instructions|prompt|prefix|context)\b.{0,80}(once|again|cach|kept|keep|stor|reus|recomput|each|every|precomput)"
    r"|(keys?( and"
    r"|,)? values?|\bkv\b).{0,60}(once|kept|keep|reus|stor|prefix|prompt|cached for|precomput|across)|(reus|keep|kept|stor|cach"
    r"|precomput)\w* .{0,60}(keys? and values?|\bkv\b|prompt|instructions|prefix)|prefill",
    kind="inference",
    recorded="answer",
    profile_memory=True,
)
def tax_questions_answered(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    rows, told, asked, tokens = small(8), small(1024, 32), small(128, 8), 5
    width, words, length = small(1024, 64), small(32000, 200), small(1024, 32) + small(128, 8) + 5
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, words, bias=False)
    layers, norm = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(12))), nn.LayerNorm(width)
    nn.ModuleList([embed, place, head, layers, norm]).to(device, low(device)).eval()
    cache = torch.zeros(2, len(layers), rows, width // 64, length, 64, device=device, dtype=low(device))
    rules = torch.randint(words, (1, told), device=device).expand(rows, -1)
    questions = torch.randint(words, (rows, asked), device=device)
    after = torch.ones(asked, told + asked, dtype=torch.bool, device=device).tril(told)

    def read(text: Tensor, start: int) -> Tensor:
        stop = start + text.shape[1]
        x = embed(text) + place.weight[start:stop]
        for number, layer in enumerate(layers):
            assert isinstance(layer, Layer)
            q, k, v = layer.split(x)
            cache[0, number, :, :, start:stop], cache[1, number, :, :, start:stop] = k, v
            keys, values = cache[0, number, :, :, :stop], cache[1, number, :, :, :stop]
            whole, one = start == 0, text.shape[1] == 1
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=None if whole or one else after, is_causal=whole)
            x = layer.rest(x, attended)
        return head(norm(x[:, -1:])).float()

    @torch.inference_mode()
    def step() -> Tensor:
        scores = read(questions, told) if changed else read(torch.cat([rules, questions], 1), 0)
        first = scores
        for at in range(tokens):
            scores = read(scores.argmax(2), told + asked + at)
        return first

    with torch.inference_mode():
        read(rules, 0)
    return step


@unseen(
    "a voice is made frame by frame by a small network, some twenty-five tiny kernels each, launched one by one from Python; "
    "all frames captured in a CUDA graph and replayed",
    names=r"cuda.?graph|graph(s|ed)? (capture|replay)|reduce-overhead|torch\.compile|captur|replay|launch.?(bound|overhead"
    r"|latency"
    r"|rate)|kernel launch|(tiny|small|short|many|little) (kernels|launches|operations|ops)|host.?bound|cpu.?bound"
    r"|python overhead"
    r"|(gpu|device) (is )?(idle|idles|waits|starv)|(one|fused|custom|persistent) kernel",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def bus_stops_announced(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, letters, width, mels, frames, wide = 4, 80, small(512, 32), 80, small(64, 6), small(256, 16)
    pre = nn.Sequential(nn.Linear(mels, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    one, two = nn.GRUCell(256 + width, width), nn.GRUCell(2 * width, width)
    ask, score, out = nn.Linear(width, 128), nn.Linear(128, 1), nn.Linear(2 * width, mels)
    layers: list[nn.Module] = [nn.Conv1d(mels, 2 * wide, 7, 1, 3)]
    for inputs, scale in ((2 * wide, 8), (wide, 8), (wide // 2, 4)):
        layers += [nn.ConvTranspose1d(inputs, inputs // 2, 2 * scale, scale, scale // 2)]
        layers += [nn.LeakyReLU(0.1), nn.Conv1d(inputs // 2, inputs // 2, 7, 1, 3), nn.LeakyReLU(0.1)]
    vocoder = nn.Sequential(*layers, nn.Conv1d(wide // 4, 1, 7, 1, 3))
    nn.ModuleList([pre, one, two, ask, score, out, vocoder]).to(device).eval()
    memory, keys = torch.randn(rows, letters, width, device=device), torch.randn(rows, letters, 128, device=device)

    @torch.no_grad()
    def spoken() -> Tensor:
        frame, said = torch.zeros(rows, mels, device=device), []
        state, other, context = (torch.zeros(rows, width, device=device) for _ in range(3))
        for _ in range(frames):
            state = one(torch.cat([pre(frame), context], 1), state)
            shares = score(torch.tanh(keys + ask(state)[:, None]))[..., 0].softmax(1)
            context = torch.bmm(shares[:, None], memory)[:, 0]
            other = two(torch.cat([state, context], 1), other)
            frame = out(torch.cat([other, context], 1))
            said.append(frame)
        return torch.stack(said, 2)

    if changed and device != "cpu":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                spoken()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = spoken()

    @torch.no_grad()
    def step() -> Tensor:
        if changed and device != "cpu":
            graph.replay()
            return vocoder(held)
        return vocoder(spoken())

    return step


# For one GPU, with a change that brings nothing.


@unseen(
    "none: AdamW updates a convolutional network of few weights in the default way (foreach), some small kernels beside a step "
    "of many milliseconds; fused=True",
    names=r"fused|foreach|optimi[sz]er|adamw?\b|multi.?tensor",
    kind="training",
    recorded="none",
    null=True,
)
def coral_cover_estimated(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, side, wide = small(160, 4), small(128, 32), small(96, 16)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(8), 1), *convolutions((wide, wide, wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 6))
    model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=changed, foreach=not changed)
    reefs = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    cover = torch.rand(rows, 6, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            guess = model(reefs)
        loss = F.smooth_l1_loss(guess.float(), cover)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Tiles(Dataset[tuple[Tensor, Tensor]]):
    """Tiles of a map in memory, as bytes, with a class for each pixel."""

    def __init__(self, tiles: int, side: int) -> None:
        self.tiles = torch.randint(256, (tiles, 3, side, side), dtype=torch.uint8)
        self.classes = torch.randint(7, (tiles, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return 64 * len(self.tiles)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.tiles[at % len(self.tiles)], self.classes[at % len(self.tiles)]


@unseen(
    "none: four workers keep two cheap batches each ready, well ahead of a GPU that is busy all the time; prefetch_factor=8",
    names=r"prefetch|num_workers|\bworkers?\b|DataLoader|data.?load|input pipeline",
    kind="training",
    recorded="learn",
    null=True,
)
def hedgerows_on_the_map(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, side, wide = small(32, 4), small(160, 32), small(96, 16)
    order = torch.Generator().manual_seed(15)
    batches = endless(
        DataLoader(
            Tiles(512 if SCALE == 1 else 32, side),
            rows,
            shuffle=True,
            drop_last=True,
            generator=order,
            num_workers=4 if SCALE == 1 else 2,
            prefetch_factor=8 if changed else 2,
            pin_memory=device != "cpu",
            persistent_workers=True,
        )
    )
    model = nn.Sequential(*convolutions((3, *([wide] * depth(7))), 1), nn.Conv2d(wide, 7, 1))
    model.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        tiles, classes = (part.to(device, non_blocking=True) for part in next(batches))
        tiles = (tiles.float() / 255).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(tiles)
        loss = F.cross_entropy(scores.float(), classes.long())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the ten best of 500 scores of each customer come from a full sort, a few microseconds at the end of a long call; topk",
    names=r"\btop.?k\b|\bsort(s|ed|ing)?\b|argsort|radix|partial selection",
    kind="inference",
    recorded="none",
    null=True,
)
def theatre_seats_suggested(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, width, tokens, plays = small(128), small(768, 64), small(200, 16), 500
    embed, head = nn.Embedding(small(20000, 200), width), nn.Linear(width, plays)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(8))))
    nn.ModuleList([embed, head, layers]).to(device, low(device)).eval()
    seen = torch.randint(small(20000, 200), (rows, tokens), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = head(layers(embed(seen))[:, -1]).float()
        return scores.topk(10).values if changed else scores.sort(1, descending=True).values[:, :10]

    return step


@unseen(
    "none: sines and cosines of the hour and of the places are made anew in each call, a few small kernels ahead of many "
    "milliseconds of work; once, kept as a buffer",
    names=r"register_buffer|\bbuffer\b|\b(sine?s?|cosines?|cos|sinusoid\w*)\b|position\w*|(embedding|table)s?\b.{0,60}(once"
    r"|again"
    r"|cach|precomput)|precomput|\barange\b|\bcach(e|ed|ing)\b",
    kind="inference",
    recorded="denoise",
    null=True,
    with_stack=True,
)
def cloud_cover_sharpened(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    rows, width, tokens = small(32), small(1024, 64), small(900, 16)
    enter, leave, when = nn.Linear(48, width), nn.Linear(width, 16), nn.Linear(width, width)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(6))))
    nn.ModuleList([enter, leave, when, layers]).to(device, low(device)).eval()
    coarse = torch.randn(rows, tokens, 48, device=device, dtype=low(device))
    hours = torch.rand(rows, 1, device=device)

    def made() -> tuple[Tensor, Tensor]:
        rates = torch.exp(-torch.arange(width // 2, device=device) / width * 18.4)
        places = torch.arange(tokens, device=device)[:, None] * rates
        turned = hours * 1000 * rates
        told = (torch.cat([part.sin(), part.cos()], 1).to(low(device)) for part in (places, turned))
        return next(told), next(told)

    kept = made()

    @torch.inference_mode()
    def step() -> Tensor:
        places, turned = kept if changed else made()
        return leave(layers(enter(coarse) + places + when(turned)[:, None])).float()

    return step


@unseen(
    "none: score and kind of the best answer are read by .item() one after the other, at the end of a long call, whose end the "
    "caller needs anyway; both by one tolist()",
    names=r"\.?item\(\)|\bitem\b|tolist|_local_scalar_dense|synchroni|\bsyncs?\b|(host|cpu|python) (waits|blocks|stalls)|DtoH"
    r"|D2H",
    kind="inference",
    recorded="step",
    null=True,
    record_shapes=False,
)
def brain_scan_slices_graded(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, width, side = small(64), small(1024, 64), small(256, 32)
    cut, head = nn.Conv2d(1, width, 16, 16), nn.Linear(width, 5)
    layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(6))))
    nn.ModuleList([cut, head, layers]).to(device, low(device)).eval()
    slices = torch.randn(rows, 1, side, side, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        scores = head(layers(cut(slices).flatten(2).transpose(1, 2)).mean((0, 1))).float().softmax(0)
        best, kind = scores.max(0)
        if changed:
            grade, number = torch.stack([best, kind.float()]).tolist()
        else:
            grade, number = best.item(), kind.item()
        return torch.tensor([grade, float(number)])

    return step


# For two cores, with a fault.


class Scans(Dataset[tuple[Tensor, int]]):
    """Scans by the name of their file, in memory; the names put in order for each item, or once."""

    def __init__(self, scans: int, once: bool) -> None:
        rng = np.random.default_rng(19)
        self.scans = {f"scan-{number:06d}.dcm": torch.randn(1, 48, 48) for number in rng.permutation(scans).tolist()}
        self.names = sorted(self.scans) if once else []

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        names = self.names or sorted(self.scans)
        return self.scans[names[at]], at % 6


@unseen(
    "the dataset puts the names of all scans in order again for each item that it gives, between the steps; once, when it is "
    "made",
    names=r"\bsort(s|ed|ing)?\b|__getitem__|__init__|\bkeys\b|(file|scan|item)s?.? ?names|DataLoader|data.?load|data ?set"
    r"|input pipeline|num_workers|\bworkers?\b|prefetch|__next__|collate",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def wrists_in_plaster(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    order = torch.Generator().manual_seed(19)
    batches = endless(DataLoader(Scans(2500, changed), 16, shuffle=True, drop_last=True, generator=order))
    net = [*convolutions((1, 32)), *convolutions((32, 48), 1), *convolutions((48, 96))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 6)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> Tensor:
        scans, kinds = next(batches)
        loss = F.cross_entropy(model(scans.to(device)), kinds.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the accuracy so far is counted in each step from the scores of all batches so far, joined anew by torch.cat; running "
    "counts, to which each batch adds its own",
    names=r"torch\.cat\b|aten::cat\b|concatenat|(running|incremental\w*|cumulative|accumulat\w*) .{0,40}(counts?|sums?"
    r"|totals?|accuracy"
    r"|average|mean|metrics?|correct|hits)|torchmetrics|metrics?\b|accuracy|history|(all|every|earlier|previous|past"
    r"|whole) .{0,30}"
    r"(scores|predictions|batches|outputs|logits)|argmax|(end|once) .{0,20}epoch|quadratic",
    kind="training",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def parcels_sorted_by_label(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    rows, kinds, width, batches = 256, 60, 384, 50
    model = nn.Sequential(
        nn.Linear(300, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, kinds),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    labels, towns = torch.randn(rows, 300, device=device), torch.randint(kinds, (rows,), device=device)
    past = [torch.randn(rows, kinds, device=device) for _ in range(batches)]
    scores, truths = deque(past, maxlen=batches), deque([towns] * batches, maxlen=batches)
    hits = deque([(one.argmax(1) == towns).sum() for one in past], maxlen=batches)

    def step() -> tuple[Tensor, Tensor]:
        guess = model(labels)
        loss = F.cross_entropy(guess, towns)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if changed:
            hits.append((guess.detach().argmax(1) == towns).sum())
            right = torch.stack(tuple(hits)).sum() / (rows * batches)
        else:
            scores.append(guess.detach())
            truths.append(towns)
            right = (torch.cat(tuple(scores)).argmax(1) == torch.cat(tuple(truths))).float().mean()
        return loss.detach(), right

    return step


@unseen(
    "each gate of a recurrent layer has convolutions of its own, eight for each frame, those of the input too; one convolution "
    "with the channels of all gates, the input's for all frames at once",
    names=r"\bgates?\b|(one|single|merged|fused|larger|joint|combined|wider|fewer|batched|bigger) (larger |bigger |batched "
    r"|big )?"
    r"conv|(merg|fus|combin|join|stack|concatenat|batch|group|hoist)\w* .{0,60}(conv|gates?|frames?|kernels|weights|channels)"
    r"|(all|whole) .{0,30}(frames|times?|steps|sequence)\b|(each|every|per) (frame|time.?step|gate)|conv.?lstm|output channels"
    r"|out_channels|many small convolutions|small convolutions",
    kind="training",
    recorded="fit",
    on=("cpu",),
)
def hail_on_the_radar(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, frames, side, wide = 2, 6, 24, 12
    reads, recalls = nn.Conv2d(6, 4 * wide, 3, 1, 1), nn.Conv2d(wide, 4 * wide, 3, 1, 1, bias=False)
    head = nn.Sequential(*convolutions((wide, 48, 48), 1), nn.Conv2d(48, 1, 1))
    ways: list[nn.Conv2d] = []
    for whole in (reads, recalls):
        for at in range(4):
            part = slice(at * wide, (at + 1) * wide)
            way = nn.Conv2d(whole.in_channels, wide, 3, 1, 1, bias=whole.bias is not None)
            way.weight.data.copy_(whole.weight.data[part])
            if way.bias is not None and whole.bias is not None:
                way.bias.data.copy_(whole.bias.data[part])
            ways.append(way)
    model = nn.ModuleList([reads, recalls, head] if changed else [*ways, head]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    radar, hail = torch.randn(rows, frames, 6, side, side, device=device), torch.rand(rows, 1, side, side, device=device)

    def step() -> Tensor:
        state, cell = (torch.zeros(rows, wide, side, side, device=device) for _ in range(2))
        told = reads(radar.flatten(0, 1)).unflatten(0, (rows, frames)) if changed else radar
        for at in range(frames):
            if changed:
                parts = (told[:, at] + recalls(state)).chunk(4, 1)
            else:
                parts = tuple(ways[gate](told[:, at]) + ways[4 + gate](state) for gate in range(4))
            cell = parts[0].sigmoid() * cell + parts[1].sigmoid() * parts[2].tanh()
            state = parts[3].sigmoid() * cell.tanh()
        loss = F.mse_loss(head(state), hail)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the goods of each basket are set to one in a row of zeros number by number, in a Python loop; all at once, by one index "
    "of rows and columns (scatter)",
    names=r"multi.?hot|one.?hot|scatter|index_put|aten::(fill_|select)\b|(number|element|item|good|entry|one) by (number"
    r"|element"
    r"|item|good|entry|one)|(each|every|per|single|individual) (item|good|element|entry|basket|number)|one at a time"
    r"|python loop|"
    r"nested loop|loop over (the )?(baskets|goods|items|rows)|vectori[sz]|advanced index|(one|single) index|embedding_?bag"
    r"|at once",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def market_baskets_completed(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    rows, goods = 128, 1200
    model = nn.Sequential(
        nn.Linear(goods, 1024), nn.Tanh(), nn.Linear(1024, 96), nn.Tanh(), nn.Linear(96, 1024), nn.Tanh(), nn.Linear(1024, goods)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(22)
    baskets = [rng.choice(goods, int(rng.integers(4, 16)), replace=False).tolist() for _ in range(rows)]

    def step() -> Tensor:
        filled = torch.zeros(rows, goods, device=device)
        if changed:
            numbers = [number for basket in baskets for number in basket]
            sizes = torch.tensor([len(basket) for basket in baskets], device=device)
            which = torch.arange(rows, device=device).repeat_interleave(sizes)
            filled[which, torch.tensor(numbers, device=device)] = 1
        else:
            for at, basket in enumerate(baskets):
                for number in basket:
                    filled[at, number] = 1
        loss = F.binary_cross_entropy_with_logits(model(filled), filled)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Readings(Dataset[tuple[Tensor, Tensor]]):
    """Readings of a kiln, dicts of strings as a CSV reader gives them; or numbers already."""

    def __init__(self, readings: int, columns: int, parsed: bool) -> None:
        numbers = np.random.default_rng(23).normal(size=(readings, columns + 1)).round(3).tolist()
        self.rows = [{f"t{at}": str(number) for at, number in enumerate(row)} for row in numbers]
        self.names = [f"t{at}" for at in range(columns)]
        self.last = f"t{columns}"
        self.table = (
            torch.stack([torch.cat([*map(torch.atleast_1d, self.read(at))]) for at in range(readings)]) if parsed else None
        )

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, at: int) -> tuple[Tensor, Tensor]:
        row = self.rows[at]
        return torch.tensor([float(row[name]) for name in self.names]), torch.tensor(float(row[self.last]))

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        if self.table is not None:
            return self.table[at, :-1], self.table[at, -1]
        return self.read(at)


@unseen(
    "each reading is made of strings, float() for each column, whenever the loader takes it, in every epoch; the whole table "
    "made a tensor once, before the training",
    names=r"\bfloat\(|\bpars(e|es|ed|ing)\b|\bstrings?\b|\bcsv\b|torch\.tensor\b|__getitem__|__init__|(convert|conversion"
    r"|tensor|table|"
    r"data ?set|rows?)\w* .{0,60}(once|ahead|before|upfront|up front|advance|start|again|every epoch|each)|DataLoader"
    r"|data.?load"
    r"|input pipeline|num_workers|\bworkers?\b|prefetch|__next__|collate|list comprehension",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def bricks_out_of_the_kiln(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    columns, width = 64, 640
    order = torch.Generator().manual_seed(23)
    batches = endless(DataLoader(Readings(2048, columns, changed), 256, shuffle=True, drop_last=True, generator=order))
    model = nn.Sequential(
        *(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> Tensor:
        readings, strength = next(batches)
        loss = F.mse_loss(model(readings.to(device))[:, 0], strength.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "for each hour forecast the network reads all 720 hours of the past again, though its last output depends on the 127 last "
    "alone; cut to these (or the layers' states kept)",
    names=r"receptive|(last|recent|final|latest) \S{0,6} ?\w* ?(hours|inputs|steps|values|samples|outputs?|positions?|points"
    r"|window)"
    r"|(crop|trim|slic|truncat|shorten|narrow)\w* .{0,60}(input|history|past|context|window|sequence|last|series)"
    r"|(whole|entire|full|all) .{0,20}(history|past|context|sequence|series|window|input)\b|(state|activation|output|buffer"
    r"|column)s?\b"
    r".{0,30}(kept|keep|cach)|\bcach(e|ed|ing)\b|incremental|recomput|again for (each|every)",
    kind="inference",
    recorded="forecast",
    on=("cpu",),
)
def ice_cream_sold_by_the_hour(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    shops, past, ahead, wide = 4, 720, 6, 32
    layers = nn.ModuleList(nn.Conv1d(1 if at == 0 else wide, wide, 3, dilation=2**at) for at in range(6)).to(device).eval()
    last = nn.Conv1d(wide, 1, 1).to(device).eval()
    sold = torch.randn(shops, 1, past, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        series = sold
        for _ in range(ahead):
            x = series[:, :, -127:] if changed else series
            for at, layer in enumerate(layers):
                x = layer(F.pad(x, (2 * 2**at, 0))).relu()
            series = torch.cat([series, last(x)[:, :, -1:]], 2)
        return series[:, 0, past:]

    return step


@unseen(
    "for its doubt a network answers eight times with dropout on, each time from the picture on, though only the last layers "
    "have dropout; the trunk once, the last layers eight times",
    names=r"(trunk|backbone|encoder|feature|convolution|conv|deterministic)\w*\b.{0,80}(once|again|cach|reus|shar|kept|keep"
    r"|each pass"
    r"|every pass|same|recomput|repeated)|(once|again|cach\w*|reus\w*|recomput\w*|repeat\w*|same|redundant)\b.{0,80}(trunk"
    r"|backbone"
    r"|encoder|feature|convolution|conv|picture|image|input)|(only|just) (the )?(head|last layers?|dropout)|monte.?carlo"
    r"|mc.?dropout"
    r"|(passes|samples|times) .{0,40}(batch|together|at once|one)|same inputs?",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def moles_with_some_doubt(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    rows, passes = 2, 8
    trunk = nn.Sequential(*convolutions((3, 12, 16, 24, 32)), nn.AdaptiveAvgPool2d(4), nn.Flatten()).to(device).eval()
    head = nn.Sequential(
        *(nn.Linear(512, 2048), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(2048, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 5)),
    ).to(device)
    moles = torch.rand(rows, 3, 96, 96, device=device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        kept = trunk(moles) if changed else None
        answers = torch.stack([head(trunk(moles) if kept is None else kept).softmax(1) for _ in range(passes)])
        return answers.mean(0), answers.std(0)

    return step


@unseen(
    "texts as counts of words, nearly all of them zero, are made dense and multiplied by the weights of 12000 words; a sparse "
    "product (or the sum of the rows of the words there, embedding_bag)",
    names=r"spars(e|ity|ely)|to_dense|\bdense\b|\bcsr\b|\bcoo\b|embedding_?bag|(mostly|nearly all|many"
    r"|almost all) (of them )?zeros?"
    r"|non.?zeros?|bag.of.words|tf.?idf|gather",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def complaints_to_the_railway(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    rows, words, said, width = 128, 12000, 60, 192
    first, rest = nn.Linear(words, width), nn.Sequential(nn.ReLU(), nn.Linear(width, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    rest.extend([nn.ReLU(), nn.Linear(2048, 24)])
    nn.ModuleList([first, rest]).to(device).eval()
    used = torch.randint(words, (rows, said), device=device)
    counts = torch.zeros(rows, words, device=device).scatter_add_(1, used, torch.rand(rows, said, device=device))
    texts, weight = counts.to_sparse_csr(), first.weight.detach().T.contiguous()

    @torch.inference_mode()
    def step() -> Tensor:
        x = torch.sparse.mm(texts, weight) + first.bias if changed else first(texts.to_dense())
        return rest(x).softmax(1)

    return step


@unseen(
    "the scores of all 50000 songs are computed for each listener, of which the eighty candidates' are then picked; the "
    "vectors of the candidates picked first, and multiplied alone",
    names=r"candidates?|(only|just|alone) .{0,60}(songs|rows|items|vectors|scores|needed|picked|used)|(all|whole|entire|full"
    r"|every) .{0,20}"
    r"(songs|scores|catalog\w*|items|vocabulary|table)\b|(gather|pick|select|index|look)\w* .{0,60}(first|before|rows|vectors"
    r"|embedd"
    r"|weights)|aten::gather\b|\bgather\b|(before|ahead of) the (product|matmul|multiplication|matrix)|\bbmm\b|index_select"
    r"|(last|output|final|large|big) (layer|linear|projection|product|matmul)|unused (scores|logits|outputs)",
    kind="inference",
    recorded="rank",
    on=("cpu",),
    record_shapes=True,
)
def songs_for_a_long_drive(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    rows, songs, width, heard, few = 48, 50_000, 96, 24, 80
    table, layers = nn.Embedding(songs, width), nn.Sequential(*(Layer(width, 4) for _ in range(2)))
    nn.ModuleList([table, layers]).to(device).eval()
    played, chosen = torch.randint(songs, (rows, heard), device=device), torch.randint(songs, (rows, few), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        listeners = layers(table(played))[:, -1]
        vectors = table(chosen) if changed else table.weight.T
        scores = (vectors @ listeners[:, :, None])[..., 0] if changed else (listeners @ vectors).gather(1, chosen)
        return scores.sort(1, descending=True).values

    return step


@unseen(
    "the warping of two melodies reads and writes the elements of a tensor one by one in Python, some operations for each cell; "
    "on lists of floats (tolist) or numpy, or a diagonal at a time",
    names=r"tolist|numpy|numba|(python|plain) lists?|python floats?|(element|cell|entry|number|one|scalar)s? (by"
    r"|after) (element|cell"
    r"|entry|number"
    r"|one|scalar)|(each|every|per|single|individual) (cell|element|entry|scalar)|one at a time|diagonal|aten::(select|copy_"
    r"|item"
    r"|_local_scalar_dense|lt|minimum)|\bdtw\b|dynamic (time|program)|python loop|nested loop|vectori[sz]|\.?item\(\)"
    r"|scalar (tensor"
    r"|index)|\b0-?d(im\w*)?\b|(tiny|small|short|many|little) (operations|ops|calls)|torch\.jit|cython",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def folk_tunes_matched(device: str, changed: bool) -> Step:
    torch.manual_seed(28)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 96, 4), (96, 160, 4), (160, 160, 4), (160, 128, 4)):
        layers += [nn.Conv1d(inputs, outputs, 9, stride, 4), nn.ReLU()]
    model = nn.Sequential(*layers).to(device).eval()
    tunes = torch.randn(2, 1, 32 * 256, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        one, two = F.normalize(model(tunes), dim=1).transpose(1, 2)
        costs = torch.cdist(one, two)
        high, wide = costs.shape
        if changed:
            far = float("inf")
            before, given = [0.0, *([far] * wide)], costs.tolist()
            for row in given:
                line = [far]
                for at, cost in enumerate(row):
                    line.append(cost + min(before[at], before[at + 1], line[at]))
                before = line
            return torch.tensor(before[-1])
        paths = torch.full((high + 1, wide + 1), float("inf"), device=device)
        paths[0, 0] = 0
        for row_ in range(high):
            for at in range(wide):
                best = min(paths[row_, at], paths[row_, at + 1], paths[row_ + 1, at])
                paths[row_ + 1, at + 1] = costs[row_, at] + best
        return paths[-1, -1]

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: the rows of a batch are drawn by permuting the numbers of the 3000 rows that there are, some microseconds; randint, "
    "which draws with replacement",
    names=r"randperm|permut|randint|with replacement|shuffl",
    kind="training",
    recorded="none",
    null=True,
    on=("cpu",),
)
def soil_samples_weighed(device: str, changed: bool) -> Step:
    torch.manual_seed(29)
    samples, rows, width = 3000, 512, 512
    table, weights = torch.randn(samples, 40, device=device), torch.rand(samples, 1, device=device)
    model = nn.Sequential(
        nn.Linear(40, width),
        nn.SiLU(),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, 1),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    draw = torch.Generator().manual_seed(29)

    def step() -> Tensor:
        drawn = torch.randint(samples, (rows,), generator=draw) if changed else torch.randperm(samples, generator=draw)[:rows]
        loss = F.mse_loss(model(table[drawn]), weights[drawn])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: Adam updates the few weights of a convolutional network tensor by tensor, little beside the convolutions; fused=True",
    names=r"fused|foreach|optimi[sz]er|\badam\b|tensor by tensor|(each|every|per) (parameter|weight|tensor)",
    kind="training",
    recorded="train",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def kites_seen_from_below(device: str, changed: bool) -> Step:
    torch.manual_seed(30)
    net = [*convolutions((3, 32)), *convolutions((32, 48, 32), 1), *convolutions((32, 64))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=changed)
    kites, kinds = torch.rand(12, 3, 96, 96, device=device), torch.randint(8, (12,), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(model(kites), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: denormal numbers are not set to zero, in a network of ordinary numbers, where there are none; "
    "torch.set_flush_denormal(True)",
    names=r"denormal|subnormal|flush",
    kind="inference",
    recorded="listen",
    null=True,
    on=("cpu",),
)
def doorbells_heard(device: str, changed: bool) -> Step:
    torch.manual_seed(31)
    gru, head = nn.GRU(64, 192, batch_first=True), nn.Linear(192, 4)
    enter = nn.Sequential(nn.Conv1d(1, 64, 16, 8, 4), nn.ReLU(), nn.Conv1d(64, 64, 16, 8, 4), nn.ReLU())
    nn.ModuleList([gru, head, enter]).to(device).eval()
    heard = torch.randn(16, 1, 8000, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        torch.set_flush_denormal(changed)
        states, _ = gru(enter(heard).transpose(1, 2))
        torch.set_flush_denormal(False)
        return head(states.mean(1)).softmax(1)

    return step


@unseen(
    "none: squares are written as x ** 2, which torch computes as a product of x with itself; x * x",
    names=r"\bpow\b|\*\* ?2|\bx ?\* ?x\b|squar(e|es|ed|ing)\b|aten::pow",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
    profile_memory=True,
)
def engines_by_their_hum(device: str, changed: bool) -> Step:
    torch.manual_seed(32)
    width = 768
    model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model.to(device).eval()
    hums = torch.randn(1024, 512, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        parts = torch.fft.rfft(hums)[:, :256]
        real, other = parts.real.contiguous(), parts.imag.contiguous()
        power = real * real + other * other if changed else real**2 + other**2
        x = model(power.log1p())
        middle = x - x.mean(1, keepdim=True)
        spread = (middle * middle if changed else middle**2).mean(1, keepdim=True)
        return middle / (spread + 1e-5).sqrt()

    return step
