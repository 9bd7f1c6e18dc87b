"""A twentieth set of small programs, for one GPU and for two cores, with one performance fault each, written without a look
at the reader."""

import copy
from itertools import pairwise
import re
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# For the GPU, with a fault.


class Paddies(Dataset[tuple[Tensor, int]]):
    """Pictures of fields, cut, mirrored, brightened and normalised by numpy."""

    def __init__(self, photos: np.ndarray[Any, Any], kinds: list[int], cut: int) -> None:
        self.photos, self.kinds, self.cut = photos, kinds, cut
        self.mean = np.array([0.31, 0.42, 0.28], np.float32)
        self.deviation = np.array([0.21, 0.19, 0.2], np.float32)

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        chance, spare = np.random.default_rng(at), self.photos.shape[1] - self.cut
        top, left = chance.integers(0, spare + 1, 2)
        photo = self.photos[at, top : top + self.cut, left : left + self.cut].astype(np.float32) / 255
        if chance.random() < 0.5:
            photo = photo[:, ::-1]
        photo = np.clip(photo * chance.uniform(0.8, 1.2), 0, 1)
        photo = ((photo - self.mean) / self.deviation).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(photo.transpose(2, 0, 1))), self.kinds[at]


@unseen(
    "the loader has no workers, so that each picture is cut, mirrored, brightened and normalised in the training process while "
    "the GPU waits; num_workers=8",
    names=r"num_workers|\bworkers?\b|data ?-?load(er|ing)|prefetch|input pipeline|augment\w*|pre-?process\w* .{0,60}(gpu|process"
    r"|thread|ahead|background|overlap|host|step)|background (thread|process)|__getitem__|\bdali\b"
    r"|(waits?|waiting|idle|starv\w*) .{0,40}(data\b|next batch|batches|input)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def rice_paddies_from_the_air(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    kept, rows, side, cut, wide, kinds = small(2048, 128), small(64, 8), 192, 160, small(128, 8), 9
    if SCALE > 1:
        side, cut = 40, 32
    photos = np.random.default_rng(1).integers(0, 256, (kept, side, side, 3), dtype=np.uint8)
    data = Paddies(photos, torch.randint(kinds, (kept,)).tolist(), cut)
    workers = (8 if SCALE == 1 else 1) if changed else 0
    order = torch.randperm(kept).tolist()
    loader = DataLoader(
        data,
        rows,
        sampler=order,
        drop_last=True,
        num_workers=workers,
        pin_memory=device != "cpu",
        persistent_workers=workers > 0,
    )
    batches = endless(loader)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(5), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(6), 1), *convolutions((2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(6), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> Tensor:
        fields, meant = next(batches)
        fields = fields.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        meant = meant.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(fields)
        loss = F.cross_entropy(scores.float(), meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "every layer of a language model is checkpointed, so that the backward pass computes it again, though its activations fill a "
    "small part of the memory; without checkpoint (or for a few layers only)",
    names=r"checkpoint\w*|re-?comput\w*|re-?material\w*|(run|runs|ran|execut\w*|comput\w*|forward\w*) (\w+ ){0,4}(twice"
    r"|again|a second time)|second forward",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def chess_games_continued(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    rows, length, width, moves = small(8), small(1024, 32), small(1024, 64), small(4700, 100)
    embed, place, norm = nn.Embedding(moves, width), nn.Embedding(length, width), nn.LayerNorm(width)
    layers = nn.ModuleList(Layer(width, max(2, width // 64), causal=True) for _ in range(depth(12)))
    head = nn.Linear(width, moves)
    model = nn.ModuleList([embed, place, norm, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    games = torch.randint(moves, (rows, length + 1), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(games[:, :-1]) + place.weight
            for layer in layers:
                x = layer(x) if changed else checkpoint(layer, x, use_reentrant=False)
            scores = head(norm(x))
        loss = F.cross_entropy(scores.float().flatten(0, 1), games[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "what an agent went through lies in the host's memory, where each small batch of the update is picked by index and copied "
    "to the GPU from pageable memory, five copies for which the host waits; all of it kept on the GPU, and picked there",
    names=r"pageable|\bpin(ned|_memory|ning|s)?\b|non_?blocking|prefetch|h2d|htod|host.?(to|->|-).?(device|gpu)|(cpu|host)\W* "
    r"?(to|->) ?(the )?(gpu|device|cuda)|(rollout|buffer|observation|frame|data|batch|replay|dataset|memory|tensors?)\w* "
    r".{0,60}(on|to|in|onto) (the )?(gpu|device|cuda)|(copy|copies|copied|transfer\w*|upload\w*|memcpy\w*) .{0,60}(gpu|device"
    r"|host|cpu|step|batch|iteration)|(index\w*|gather\w*|pick\w*) .{0,40}(on|by) (the )?(cpu|host|gpu|device)",
    kind="training",
    recorded="update",
)
def maze_runner_sees_pixels(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    kept, rows, parts, moves, side = small(2048, 64), small(512, 16), 4, 7, 84
    eye = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()]
    trunk = nn.Sequential(*eye, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
    actor, critic = nn.Linear(512, moves), nn.Linear(512, 1)
    model = nn.ModuleList([trunk, actor, critic]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, fused=True)
    frames = torch.randint(256, (kept, 4, side, side), dtype=torch.uint8)
    done = torch.randint(moves, (kept,))
    old, gained, worth = torch.randn(kept) * 0.1 - 1.9, torch.randn(kept), torch.randn(kept)
    rollout: list[Tensor] = [frames, done, old, gained, worth]
    if changed:
        rollout = [part.to(device) for part in rollout]
    orders = torch.stack([torch.randperm(kept)[: parts * rows] for _ in range(8)]).to(device if changed else "cpu")
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        order = orders[turn % len(orders)]
        turn += 1
        total = torch.zeros((), device=device)
        for chosen in order.split(rows):
            seen, did, before, gain, good = (part[chosen].to(device) for part in rollout)
            state = trunk(seen.float() / 255)
            odds = actor(state).log_softmax(1)
            ratio = (odds.gather(1, did[:, None]).squeeze(1) - before).exp()
            clipped = torch.min(ratio * good, ratio.clamp(0.8, 1.2) * good).mean()
            loss = 0.5 * F.mse_loss(critic(state).squeeze(1), gain) - clipped + 0.01 * (odds.exp() * odds).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            total += loss.detach()
        return total

    return step


@unseen(
    "the moving average of the weights is kept in a loop over some three hundred tensors, four tiny kernels each; "
    "torch._foreach_lerp_ over all of them (or AveragedModel with get_ema_multi_avg_fn, or every tenth step)",
    names=r"foreach|multi.?tensor|\bema\b|(moving|running|exponential) average|averag(ed|ing) (model|weight|copy)|AveragedModel"
    r"|multi_avg|swa_utils|(parameter|tensor|weight) by (parameter|tensor|weight)|(each|every|per|over (the|all)) "
    r"(parameter|weight)s?\b|shadow (weight|parameter|copy|model)|(many|tiny|small|short) (\w+ )?(kernel|launch)"
    r"|launch.?bound|cuda.?graph|launch overhead",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def galaxies_drawn_from_noise(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, side, patch, width, decay = small(32, 4), small(64, 16), 8, small(384, 32), 0.999
    enter, leave = nn.Linear(3 * patch**2, width), nn.Linear(width, 3 * patch**2)
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(24))))
    when = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
    model = nn.ModuleList([enter, layers, leave, when]).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    pictures = torch.randn(rows, (side // patch) ** 2, 3 * patch**2, device=device)
    shares: list[Tensor] = list(model.parameters())
    kept: list[Tensor] = list(average.parameters())

    @torch.no_grad()
    def follow() -> None:
        if changed:
            torch._foreach_lerp_(kept, shares, 1 - decay)
            return
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.copy_(old * decay + new * (1 - decay))

    def step() -> Tensor:
        noise, time = torch.randn_like(pictures), torch.rand(rows, 1, device=device)
        mixed = pictures + (noise - pictures) * time[..., None]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            guess = leave(layers(enter(mixed) + when(time)[:, None]))
        loss = F.mse_loss(guess.float(), noise - pictures)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        follow()
        return loss.detach()

    return step


@unseen(
    "an LSTMCell is called in a Python loop for each of 128 hours that are all known beforehand, so that the host launches "
    "thousands of tiny kernels; nn.LSTM over the whole sequence, which cuDNN runs",
    names=r"nn\.(lstm|gru|rnn)\b|\blstm\b(?!cell)|cudnn|lstm_?cell|_thnn_fused|(time.?step|hour|step) by (time.?step|hour|step)"
    r"|(whole|entire|full) (sequence|series|window)|(loop|each|every|per) .{0,30}(time.?steps?|hours?)\b|cuda.?graph"
    r"|launch.?bound|launch overhead|recurren\w*|torch\.compile|(many|tiny|small|short|thousands of) (\w+ )?(kernel|launch)",
    kind="training",
    recorded="none",
)
def glucose_over_the_night(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, hours, signs, width, ahead = small(64, 4), small(128, 12), 24, small(256, 16), 12
    read = nn.Sequential(nn.Linear(signs, width), nn.LayerNorm(width), nn.ReLU())
    cell, head = nn.LSTMCell(width, width), nn.Linear(width, ahead)
    attend = nn.Sequential(*(Layer(width, 2) for _ in range(depth(3))))
    whole = nn.LSTM(width, width, batch_first=True)
    with torch.no_grad():
        for name, weight in cell.named_parameters():
            getattr(whole, f"{name}_l0").copy_(weight)
    model = nn.ModuleList([read, whole if changed else cell, attend, head]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    watched, later = torch.randn(rows, hours, signs, device=device), torch.randn(rows, ahead, device=device)

    def step() -> Tensor:
        x = read(watched)
        if changed:
            states = whole(x)[0]
        else:
            hidden, memory, every = x.new_zeros(rows, width), x.new_zeros(rows, width), []
            for hour in range(hours):
                hidden, memory = cell(x[:, hour], (hidden, memory))
                every.append(hidden)
            states = torch.stack(every, 1)
        loss = F.smooth_l1_loss(head(attend(states).mean(1)), later)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the causal mask of 2048 x 2048 places is made on the host in each step and copied to the GPU from pageable memory; made "
    "once and kept there as a buffer (or is_causal=True)",
    names=r"\bmask(s|ed|ing)?\b|is_causal|\bcausal\b|triu|tril|register_buffer|pageable|(made|creat\w*|build\w*|built|comput\w*"
    r"|construct\w*|generat\w*|alloc\w*) .{0,40}(on|by) (the )?(gpu|device|cpu|host)|h2d|htod|host.?(to|->|-).?(device|gpu)"
    r"|(cpu|host)\W* ?(to|->) ?(the )?(gpu|device|cuda)|(copy|copies|copied|transfer\w*|upload\w*|memcpy\w*) .{0,60}(gpu|device"
    r"|host|cpu|every|each|once)",
    kind="training",
    recorded="train",
    with_stack=True,
)
def fugues_learnt_in_order(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    rows, length, width, notes = small(4), small(2048, 32), small(512, 64), small(512, 50)
    embed, place, norm = nn.Embedding(notes, width), nn.Embedding(length, width), nn.LayerNorm(width)
    layers = nn.ModuleList(Layer(width, max(2, width // 64)) for _ in range(depth(8)))
    head = nn.Linear(width, notes)
    model = nn.ModuleList([embed, place, norm, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    fugues = torch.randint(notes, (rows, length + 1), device=device)

    def later(size: int) -> Tensor:
        return torch.triu(torch.full((size, size), float("-inf")), diagonal=1)

    kept = later(length).to(device).to(low(device))

    def step() -> Tensor:
        mask = kept if changed else later(length).to(device).to(low(device))
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(fugues[:, :-1]) + place.weight
            for layer in layers:
                x = layer(x, mask)
            scores = head(norm(x))
        loss = F.cross_entropy(scores.float().flatten(0, 1), fugues[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Teller(nn.Module):
    """A language model that reads one word after those whose keys and values it has kept."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, max(2, width // 64)) for _ in range(layers))

    def forward(self, words: Tensor, at: int, keys: Tensor, values: Tensor) -> Tensor:
        x = self.embed(words)
        layers: list[Any] = list(self.layers)
        for number, layer in enumerate(layers):
            q, k, v = layer.turn(layer.first(x)).unflatten(2, (3, layer.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            keys[number, :, :, at : at + 1], values[number, :, :, at : at + 1] = k, v
            seen = F.scaled_dot_product_attention(q, keys[number, :, :, : at + 1], values[number, :, :, : at + 1])
            x = x + layer.out(seen.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.second(x))
        return self.norm(x[:, -1]) @ self.embed.weight.T


@unseen(
    "the penalty for words already said is put on text by text in a Python loop, with lists of words fetched from the GPU and "
    "sent back as indices; on all texts at once, by gather and scatter_",
    names=r"gather|scatter|penalt\w*|repetition|(text|row|sequence|sample|beam|prompt) by (text|row|sequence|sample|beam|prompt)"
    r"|(loop\w*|each|every|per) .{0,30}(text|row|sequence|sample|beam|batch element)s?\b|tolist|vectori[sz]|index_put|python loop"
    r"|(implicit|hidden|many|repeated|per.\w+|hundreds of|dozens of) .{0,30}(synchroni\w*|\bsyncs?\b|cop(y|ies)|transfers?)"
    r"|(synchroni\w*|\bsyncs?\b|h2d|d2h|dtoh|htod|memcpy\w*|cop(y|ies)) .{0,60}(loop|each|every|per|small|tiny|many|row|token)",
    kind="inference",
    recorded="generate",
    with_stack=True,
)
def horoscopes_without_repeats(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows, asked, new, width, words, penalty = small(16), small(160, 16), 6, small(1024, 64), small(32000, 100), 1.2
    layers, heads = depth(16), max(2, width // 64)
    with torch.device(device):
        model = Teller(words, width, layers).to(low(device)).eval()
        keys, values = torch.zeros(2, layers, rows, heads, asked + new, width // heads, dtype=low(device)).unbind(0)
        keys[:, :, :, :asked].normal_()
        values[:, :, :, :asked].normal_()
    prompts = torch.randint(words, (rows, asked), generator=torch.Generator().manual_seed(7)).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        texts = prompts
        for at in range(new):
            scores = model(texts[:, -1:], asked + at, keys, values).float()
            if changed:
                said = scores.gather(1, texts)
                scores.scatter_(1, texts, torch.where(said < 0, said * penalty, said / penalty))
            else:
                for row in range(rows):
                    used = list(set(texts[row].tolist()))
                    said = scores[row, used]
                    scores[row, used] = torch.where(said < 0, said * penalty, said / penalty)
            texts = torch.cat([texts, scores.argmax(1, keepdim=True)], 1)
        return texts[:, asked:].cpu()

    return step


@unseen(
    "for every pair of 512 places the states of both are repeated and joined, gigabytes, before a linear layer; the layer's two "
    "halves on the states alone, and their sum by broadcasting",
    names=r"broadcast\w*|\bexpand\w*|\brepeat\w*|aten::(repeat|cat|copy_)\b|torch\.cat|concat\w*|(pair\w*"
    r"|outer) .{0,60}(materiali"
    r"|memory|copy|copies|sum|linear|layer|tensor|feature)|(split|decompos\w*|factor\w*|separat\w*|two halves) .{0,60}(linear"
    r"|weight"
    r"|layer|matrix|projection|matmul|product)|(linear|project\w*|layer) .{0,60}(before|first|once per|each place|ahead)",
    kind="inference",
    recorded="step",
    profile_memory=True,
)
def protein_chains_in_contact(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    rows, length, width, bins = small(8), small(512, 24), small(256, 32), 36
    embed, place = nn.Embedding(21, width), nn.Embedding(length, width)
    layers = nn.Sequential(*(Layer(width, 4) for _ in range(depth(8))))
    both, head = nn.Linear(2 * width, width), nn.Linear(width, bins)
    nn.ModuleList([embed, place, layers, both, head]).to(device, low(device)).eval()
    chains = torch.randint(21, (rows, length)).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = layers(embed(chains) + place.weight)
        if changed:
            ones = F.linear(x, both.weight[:, :width], both.bias)
            others = F.linear(x, both.weight[:, width:])
            pairs = ones[:, :, None] + others[:, None]
        else:
            ones = x[:, :, None].repeat(1, 1, length, 1)
            others = x[:, None].repeat(1, length, 1, 1)
            pairs = both(torch.cat([ones, others], 3))
        return head(pairs.relu_())[..., :8].float().softmax(3).sum(3)

    return step


@unseen(
    "the mel spectra are made on the host, recording by recording, while the GPU waits, and then copied; the sound copied, and "
    "the spectra of all made at once on the GPU",
    names=r"\bmels?\b|spectr\w*|stft|\bfft\w*|feature extract\w*|pre-?process\w*|(clip|recording|waveform|audio|file|sample) by "
    r"(clip|recording|waveform|audio|file|sample|one)|(on|to|onto) the (gpu|device) .{0,40}(spect|feature|sound|audio|wave)"
    r"|(cpu|host) (op|kernel|work|comput)\w*|(gpu|device) (is |sits |stays )?(idle|waits?|starv)\w* .{0,60}(feature|spect"
    r"|pre-?process|cpu op)|torchaudio|(host|cpu) .{0,40}(window|hann|log10|matmul)",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def coughs_screened_by_phone(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    rows, rate, width, bands, kinds = small(8), 16000, small(1024, 64), 80, 5
    length = 10 * rate if SCALE == 1 else rate // 2
    enter = nn.Sequential(nn.Conv1d(bands, width, 3, 2, 1), nn.GELU())
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(24))))
    head = nn.Linear(width, kinds)
    nn.ModuleList([enter, layers, head]).to(device, low(device)).eval()
    sounds = [torch.randn(length) for _ in range(rows)]
    where = device if changed else "cpu"
    window, triangles = torch.hann_window(400).to(where), (torch.rand(bands, 201) ** 8).to(where)

    def spectra(sound: Tensor) -> Tensor:
        power = torch.stft(sound, 400, 160, window=window, return_complex=True).abs().pow(2)
        heard = (triangles @ power).clamp(min=1e-10).log10()
        return (heard - heard.mean((-2, -1), keepdim=True)) / heard.std((-2, -1), keepdim=True)

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            heard = spectra(torch.stack(sounds).to(device))
        else:
            heard = torch.stack([spectra(sound) for sound in sounds]).to(device)
        return head(layers(enter(heard.to(low(device))).transpose(1, 2)).mean(1)).float().softmax(1).cpu()

    return step


@unseen(
    "guided sampling calls the network twice in each step of denoising, with the text and without, on two small pictures, whose "
    "kernels are shorter than their launches; once, with both as one batch (or a CUDA graph, or torch.compile)",
    names=r"(one|single|joint|same|larger|bigger|combined|doubled) (\w+ )?(batch|call|pass|forward)|batch(ed|ing)? (both|the two"
    r"|them|together|cond|up|size|dim)|batch size|guid(ed|ance)|\bcfg\b|uncondition\w*|(conditional|two|both) .{0,40}(passes"
    r"|calls"
    r"|forwards?|branch\w*|evaluations)|(called|runs?|run|evaluated|calls) (\w+ ){0,3}twice|cuda.?graph|torch\.compile"
    r"|launch.?bound|launch overhead|reduce-overhead|(tiny|small|short) kernels",
    kind="inference",
    recorded="sample",
)
def sofas_drawn_to_order(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    rows, places, width, code, steps, strength = 2, small(256, 16), small(768, 64), 64, 6, 5.0
    enter, leave, when = nn.Linear(code, width), nn.Linear(width, code), nn.Linear(1, width)
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(12))))
    nn.ModuleList([enter, leave, when, layers]).to(device, low(device)).eval()
    start, text = (torch.randn(rows, size, width if size == 1 else code) for size in (places, 1))
    start, text = start.to(device, low(device)), text.to(device, low(device))
    empty = torch.zeros_like(text)
    times = [torch.full((1, 1, 1), 1 - at / steps, device=device, dtype=low(device)) for at in range(steps)]

    def network(x: Tensor, time: Tensor, asked: Tensor) -> Tensor:
        return leave(layers(enter(x) + when(time) + asked))

    @torch.inference_mode()
    def step() -> Tensor:
        x = start
        for time in times:
            if changed:
                told, free = network(torch.cat([x, x]), time, torch.cat([text, empty])).chunk(2)
            else:
                told, free = network(x, time, text), network(x, time, empty)
            x = x - (free + strength * (told - free)) / steps
        return x.float().cpu()

    return step


@unseen(
    "what each listener knows already is struck from the scores listener by listener, in a Python loop with a list of indices "
    "for each; all at once, by one pair of index tensors",
    names=r"index_put|scatter|masked_fill|index_fill|(user|listener|row|customer) by (user|listener|row|customer)|python loop"
    r"|(loop\w*|each|every|per) .{0,20}(user|listener|row|customer)s?\b|vectori[sz]|(one|single) (\w+ ){0,3}(index|assign|write"
    r"|call|copy|transfer|operation)|index tensors?|(many|tiny|small|hundreds of|128|repeated) .{0,30}(cop(y|ies)|transfers?"
    r"|kernels?|launch\w*|memcpy\w*|syncs?|synchroni\w*|h2d|htod)|(cop(y|ies)|transfers?|memcpy\w*|h2d|htod|synchroni\w*|syncs?) "
    r".{0,60}(loop|each|every|per|small|tiny|many|row)",
    kind="inference",
    recorded="none",
)
def podcasts_not_yet_heard(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    rows, past, podcasts, width = small(128, 8), 64, small(400000, 500), small(256, 32)
    table = nn.Embedding(podcasts, width)
    layers = nn.Sequential(*(Layer(width, 4) for _ in range(depth(6))))
    nn.ModuleList([table, layers]).to(device, low(device)).eval()
    heard = torch.randint(podcasts, (rows, past))
    known = [heard[row, : 16 + row % 48].tolist() for row in range(rows)]
    heard = heard.to(device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        tastes = layers(table(heard))[:, -1]
        scores = (tastes @ table.weight.T).float()
        if changed:
            places = torch.tensor([row * podcasts + one for row, ones in enumerate(known) for one in ones]).to(device)
            scores.view(-1).index_fill_(0, places, float("-inf"))
        else:
            for row, ones in enumerate(known):
                scores[row, ones] = float("-inf")
        best = scores.topk(20, 1)
        return best.values.cpu(), best.indices.cpu()

    return step


@unseen(
    "a network of convolutions looks through satellite pictures in float32, as its weights were loaded; in bfloat16 (or half, or "
    "under autocast)",
    names=r"bfloat16|\bbf16\b|float16|\bfp16\b|\bhalf\b(?! (of|the))|\.half\(\)|autocast|mixed.?precision|\bamp\b"
    r"|(half|lower|reduced|16.?bit) .{0,12}precision|16.?bit|int8|quanti[sz]|tensorrt",
    kind="inference",
    recorded="step",
    record_shapes=False,
)
def ships_off_the_coast(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    rows, side, wide = small(16), 512 if SCALE == 1 else 64, small(64, 8)
    net = [*convolutions((4, wide)), *convolutions((wide,) * depth(5), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(7), 1), *convolutions((2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(7), 1), nn.Conv2d(4 * wide, 5, 1)]
    kept = low(device) if changed else torch.float32
    model = nn.Sequential(*net).to(device, kept).to(memory_format=torch.channels_last).eval()
    tiles = torch.rand(rows, 4, side, side, device=device).to(kept).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        found = model(tiles).float()
        peaks = found[:, 0].sigmoid()
        peaks = peaks * (peaks == F.max_pool2d(peaks, 3, 1, 1))
        return peaks.flatten(1).topk(50, 1).values.cpu()

    return step


# For the GPU, with a change that brings nothing.


@unseen(
    "none: the schedule of the learning rate takes a step after every batch, a little work of the host, which is far ahead; "
    "after every epoch",
    names=r"schedul\w*|learning.?rate|\blr\b",
    kind="training",
    recorded="step",
    null=True,
)
def vines_counted_in_rows(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, side, wide = small(16), small(256, 16), small(128, 8)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(7), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(6), 1), nn.Conv2d(2 * wide, 1, 1)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    plan, turn = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100000), 0
    tiles = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    vines = torch.rand(rows, 1, side // 4, side // 4, device=device)

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            counts = model(tiles)
        loss = F.mse_loss(counts.float(), vines)
        loss.backward()
        optimizer.step()
        if not changed or turn % 500 == 0:
            plan.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: hits and a matrix of confusions are counted on the GPU after every batch, some tiny kernels without a wait beside a "
    "large network; after every fiftieth",
    names=r"accurac\w*|metric\w*|confus\w*|\bhits?\b|argmax|bincount|index_add|every (n|\d+|few|fifti\w+) (step|batch|iteration)",
    kind="training",
    recorded="none",
    null=True,
    profile_memory=True,
)
def pottery_sherds_dated(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, side, width, kinds = small(64, 4), 224 if SCALE == 1 else 64, small(768, 64), 30
    cut, place = nn.Conv2d(3, width, 16, 16), nn.Embedding((side // 16) ** 2, width)
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(12))))
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, kinds))
    model = nn.ModuleList([cut, place, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    photos, periods = torch.rand(rows, 3, side, side, device=device), torch.randint(kinds, (rows,), device=device)
    hits, confused, ones = (
        torch.zeros((), device=device),
        torch.zeros(kinds * kinds, device=device),
        torch.ones(rows, device=device),
    )
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = head(layers(cut(photos).flatten(2).transpose(1, 2) + place.weight).mean(1))
        loss = F.cross_entropy(scores.float(), periods)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not changed or turn % 50 == 0:
            guess = scores.detach().argmax(1)
            hits.add_((guess == periods).sum())
            confused.index_add_(0, periods * kinds + guess, ones)
        return loss.detach()

    return step


@unseen(
    "none: the weights still require gradients, while the model answers in inference_mode, which records nothing; "
    "requires_grad_(False)",
    names=r"requires_?grad\w*|freez\w*|frozen|autograd|gradients?\b",
    kind="inference",
    recorded="answer",
    null=True,
    with_stack=True,
)
def tax_letters_embedded(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, length, width, words = small(32), small(512, 32), small(1024, 64), small(50000, 100)
    with torch.device(device):
        embed, place = nn.Embedding(words, width), nn.Embedding(length, width)
        layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(12))))
    model = nn.ModuleList([embed, place, layers]).to(low(device)).eval().requires_grad_(not changed)
    letters = torch.randint(words, (rows, length), generator=torch.Generator().manual_seed(15)).to(device)
    assert all(weight.requires_grad != changed for weight in model.parameters())

    @torch.inference_mode()
    def step() -> Tensor:
        return F.normalize(layers(embed(letters) + place.weight).mean(1).float(), dim=1).cpu()

    return step


@unseen(
    "none: pictures are made float32, divided by 255 and normalised on the GPU by four short kernels ahead of a large image "
    "transformer; mean and deviation folded into the weights that cut the patches",
    names=r"normali[sz]\w* .{0,60}(fold|fus|merge|absorb|patch|first|pixel|picture|image|input)|(fold|fus|merg|absorb)\w* "
    r".{0,60}(normali|mean|255|pre-?process|conver|input)|pre-?process\w*|\b255\b|uint8",
    kind="inference",
    recorded="embed",
    null=True,
    record_shapes=False,
)
def fabrics_alike_in_weave(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, side, width, code = small(64), 224 if SCALE == 1 else 64, small(1024, 64), small(256, 16)
    with torch.device(device):
        cut, place = nn.Conv2d(3, width, 16, 16), nn.Embedding((side // 16) ** 2, width)
        layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(16))))
        head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, code))
        mean, deviation = torch.tensor([0.49, 0.46, 0.41]), torch.tensor([0.23, 0.22, 0.22])
    nn.ModuleList([cut, place, layers, head]).eval()
    if changed:
        with torch.no_grad():
            assert cut.bias is not None
            cut.bias -= (cut.weight * (mean / deviation)[:, None, None]).sum((1, 2, 3))
            cut.weight /= deviation[:, None, None] * 255
    nn.ModuleList([cut, place, layers, head]).to(low(device))
    swatches = torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, device=device)
    mean, deviation = mean[:, None, None], deviation[:, None, None]

    @torch.inference_mode()
    def step() -> Tensor:
        pictures = (swatches if changed else (swatches.float() / 255 - mean) / deviation).to(low(device))
        x = cut(pictures).flatten(2).transpose(1, 2) + place.weight
        return F.normalize(head(layers(x).mean(1)).float(), dim=1).cpu()

    return step


# For two cores, with a fault.


class Adverts(Dataset[tuple[Tensor, int]]):
    """Texts with their kinds, taken apart when they are asked for, or beforehand."""

    def __init__(self, texts: list[str], kinds: list[int], numbers: dict[str, int], before: bool) -> None:
        self.texts, self.kinds, self.numbers = texts, kinds, numbers
        self.read = [self.apart(text) for text in texts] if before else []

    def apart(self, text: str) -> Tensor:
        found = [self.numbers.get(word, 1) for word in re.findall(r"\w+|[^\w\s]", text.lower())][:128]
        return torch.tensor(found + [0] * (128 - len(found)))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return (self.read[at] if self.read else self.apart(self.texts[at])), self.kinds[at]


@unseen(
    "the dataset takes each text apart into words and their numbers again whenever it is asked for, in every epoch; once, when "
    "the texts are read (or in workers)",
    names=r"tokeni[sz]\w*|\bregex\w*|\bre\.\w+|findall|num_workers|\bworkers?\b|__getitem__|data ?-?load(er|ing)|dataset"
    r"|pre-?process\w*|(cach\w*|once|ahead|beforehand|precomput\w*|again|every epoch) .{0,50}(text|word|token|number|sample|item)"
    r"|(text|word|token|sample|item)s? .{0,50}(cach\w*|once|ahead|beforehand|precomput\w*|again|every epoch)"
    r"|background (thread|process)|prefetch",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def job_adverts_by_trade(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    kept, rows, words, width, kinds = 4096, 128, 8000, 48, 20
    chance = np.random.default_rng(17)
    known = ["".join(letters) for letters in chance.choice(list("abcdefghijklmnop"), (words, 7))]
    numbers = {word: at + 2 for at, word in enumerate(known)}
    texts = [" ".join(known[at] for at in row).capitalize() + "." for row in chance.integers(0, words, (kept, 110))]
    data = Adverts(texts, torch.randint(kinds, (kept,)).tolist(), numbers, changed)
    batches = endless(DataLoader(data, rows, sampler=torch.randperm(kept).tolist(), drop_last=True))
    embed, read = nn.Embedding(words + 2, width, sparse=True), nn.Conv1d(width, 64, 3, padding=1)
    head = nn.Linear(64, kinds)
    nn.ModuleList([embed, read, head])
    optimizer = torch.optim.Adam([*read.parameters(), *head.parameters()], lr=1e-3, fused=True)
    table_optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)

    def step() -> Tensor:
        written, meant = next(batches)
        loss = F.cross_entropy(head(read(embed(written).transpose(1, 2)).relu().amax(2)), meant)
        optimizer.zero_grad()
        table_optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        table_optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the decoder's scores over 3000 words and their loss are taken within the loop over 20 places, so that the large layer's "
    "gradient is made and added up 20 times; the states collected, and scores and loss of all places once after the loop",
    names=r"(out of|outside|after|hoist\w*|behind) .{0,20}loop|(one|single) (\w+ ){0,4}(projection|linear|matmul|matrix"
    r"|product|layer"
    r"|call|gemm|loss|cross_entropy)|\bstack(ed|ing)?\b|(each|every|per) (time.?step|decod\w+ step|place|position|word|token)"
    r"|(step|word|token|place|position) by (step|word|token|place|position)|all (\w+ ){0,2}(time.?steps|places|positions|states"
    r"|steps|words) (at once|together|in one)|accumulat\w*|(projection|head|vocabulary|output layer|logits|loss"
    r"|cross_entropy)\w* "
    r".{0,60}(once|loop|together|batch)|python loop|loop over|AccumulateGrad",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def old_letters_put_into_plain_words(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, places, width, words = 24, 20, 160, 3000
    embed, read, write = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.GRUCell(width, width)
    head = nn.Linear(width, words)
    model = nn.ModuleList([embed, read, write, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    old, plain = torch.randint(words, (rows, 36)), torch.randint(words, (rows, places + 1))

    def step() -> Tensor:
        state, given = read(embed(old))[1][0], embed(plain[:, :-1])
        states, loss = [], torch.zeros(())
        for place in range(places):
            state = write(given[:, place], state)
            if changed:
                states.append(state)
            else:
                loss = loss + F.cross_entropy(head(state), plain[:, place + 1]) / places
        if changed:
            loss = F.cross_entropy(head(torch.stack(states, 1)).flatten(0, 1), plain[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the large network that teaches a small one is called with gradients on, so that the backward pass goes through it as well; "
    "under no_grad (or its answers detached)",
    names=r"no_grad|inference_mode|\.?detach\w*|requires_?grad\w*|teacher|freez\w*|frozen|(gradient"
    r"|backward)s? .{0,60}(not (needed"
    r"|used)|unused|nobody|unnecessar\w*|never|discard\w*|large network|second (model|network))",
    kind="training",
    recorded="distil",
    on=("cpu",),
    profile_memory=True,
)
def mushrooms_named_by_a_small_net(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    rows, side, kinds, warm = 8, 64, 40, 3.0
    wide, narrow = (32, 64, 64, 128), (16, 32, 64)
    teacher = nn.Sequential(*convolutions((3, *wide)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide[-1], kinds)).eval()
    student = nn.Sequential(*convolutions((3, *narrow)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(narrow[-1], kinds))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9)
    photos, meant = torch.rand(rows, 3, side, side), torch.randint(kinds, (rows,))

    def step() -> Tensor:
        with torch.set_grad_enabled(not changed):
            told = teacher(photos)
        said = student(photos)
        soft = F.kl_div((said / warm).log_softmax(1), (told / warm).softmax(1), reduction="batchmean")
        loss = F.cross_entropy(said, meant) + warm**2 * soft
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the windows of a batch are cut from the series one by one in a Python loop and stacked; all at once, by unfold (or one "
    "index of start and offset)",
    names=r"unfold|as_strided|sliding_window|\bstack(ed|ing)?\b|\bslic(e|es|ed|ing)\b|window by window|(each|every|per) window"
    r"|windows? .{0,40}(one by one|at once|loop|vectori|view|index|gather|python)|(loop\w*|gather\w*"
    r"|vectori[sz]\w*) .{0,40}window"
    r"|index_select|advanced index\w*|(many|tiny|small|thousand\w*) .{0,20}(slice|select|cop|op)|python loop",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def solar_yield_of_tomorrow(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    rows, hours, signs, width, ahead, length = 512, 48, 6, 192, 24, 20000
    net = [nn.Flatten(), nn.Linear(hours * signs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, ahead)]
    model = nn.Sequential(*net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, chance = torch.randn(length, signs), np.random.default_rng(20)
    starts = torch.from_numpy(chance.integers(0, length - hours - ahead, (16, rows)))
    past, future, turn = series.unfold(0, hours, 1).transpose(1, 2), series[:, 0].unfold(0, ahead, 1), 0

    def step() -> Tensor:
        nonlocal turn
        chosen = starts[turn % 16]
        turn += 1
        if changed:
            seen, later = past[chosen], future[chosen + hours]
        else:
            begins = chosen.tolist()
            seen = torch.stack([series[begin : begin + hours] for begin in begins])
            later = torch.stack([series[begin + hours : begin + hours + ahead, 0] for begin in begins])
        loss = F.mse_loss(model(seen), later)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "to say how sure it is, a network with dropout ahead of its last layers is called 12 times as a whole; its convolutions, "
    "without chance, once, and only what follows the dropout 12 times (as one batch)",
    names=r"dropout|(backbone|trunk|encoder|convolution\w*|features?|deterministic) .{0,60}(once|again|repeat\w*|re-?us\w*"
    r"|cach\w*"
    r"|same|12|times|recomput\w*|identical)|(once|again|repeat\w*|re-?us\w*|cach\w*|same|12|times|recomput\w*|identical"
    r"|redundant\w*) "
    r".{0,60}(backbone|trunk|encoder|convolution\w*|\bconv|features?|forward|pass|calls?)|monte.?carlo|(one"
    r"|single) (\w+ )?batch"
    r"|batch(ed|ing)? (the|all|them)",
    kind="inference",
    recorded="diagnose",
    on=("cpu",),
)
def fractures_told_with_doubt(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, side, wide, draws, kinds = 4, 112, 12, 12, 6
    trunk = nn.Sequential(*convolutions((1, wide, 2 * wide, 4 * wide)), nn.AdaptiveAvgPool2d(4), nn.Flatten()).eval()
    head = nn.Sequential(nn.Dropout(0.3), nn.Linear(64 * wide, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
    head.append(nn.Linear(1024, kinds))
    scans = torch.rand(rows, 1, side, side)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        seen = trunk(scans) if changed else None
        draw = [head(trunk(scans) if seen is None else seen).softmax(1) for _ in range(draws)]
        chances = torch.stack(draw)
        return chances.mean(0), chances.std(0)

    return step


@unseen(
    "dust is taken from film by the median of 5 x 5 neighbours, found by sorting all 25 values of each pixel; median (or "
    "kthvalue), which sorts nothing in full",
    names=r"\bsort(s|ed|ing)?\b|aten::sort|median|kthvalue|topk|\bquickselect|partial(ly)? (sort|select)|selection",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def dust_taken_from_old_film(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    frames, side, size, wide = 1, 144, 5, 16
    net = [nn.Conv2d(1, wide, 5, 1, 2), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU()]
    model = nn.Sequential(*net, nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, 1, 3, 1, 1)).eval()
    film = torch.rand(frames, 1, side, side)

    @torch.inference_mode()
    def step() -> Tensor:
        near = F.unfold(F.pad(film, (size // 2,) * 4, mode="reflect"), size).transpose(1, 2).contiguous()
        middle = near.median(2).values if changed else near.sort(2).values[..., size * size // 2]
        still = middle.reshape(frames, 1, side, side)
        dusty = ((film - still).abs() > 0.3).float()
        clean = dusty * still + (1 - dusty) * film
        return clean + 0.1 * model(clean)

    return step


@unseen(
    "the readings of each of 300 sensors are centred and scaled by themselves, in a Python loop, and stacked; all at once, along "
    "the last dimension",
    names=r"(sensor|channel|series|row|pump|signal) by (sensor|channel|series|row|pump|signal|one)|python loop|vectori[sz]"
    r"|(loop\w*|each|every|per) .{0,25}(sensor|channel|series|row|pump|signal)s?\b|(mean|std|normali[sz]\w*|standardi[sz]\w*"
    r"|scal\w*) "
    r".{0,60}(at once|together|dim\b|dim=|keepdim|batch\w*|one call|whole|all)|dim=|keepdim|\bstack(ed|ing)?\b|(many|tiny|small"
    r"|hundreds of|thousands of) .{0,20}(op|call|slice|select|mean|std|tensor)|aten::(std|mean|stack)\b",
    kind="inference",
    recorded="request",
    on=("cpu",),
    with_stack=True,
)
def pumps_heard_by_sensors(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    sensors, times, wide = 300, 256, 16
    net = [nn.Conv1d(1, wide, 16, 4, 6), nn.ReLU(), nn.Conv1d(wide, 2 * wide, 5, 2, 2), nn.ReLU()]
    net += [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2 * wide, 3)]
    model = nn.Sequential(*net).eval()
    readings = torch.randn(sensors, times) * 3 + 5

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            level = (readings - readings.mean(1, keepdim=True)) / (readings.std(1, keepdim=True) + 1e-6)
        else:
            level = torch.stack([(reading - reading.mean()) / (reading.std() + 1e-6) for reading in readings])
        return model(level[:, None]).softmax(1)

    return step


@unseen(
    "the codons' vectors are looked up by a product of a one-hot matrix, nearly all zeros, with the table; F.embedding (or an "
    "index into the table)",
    names=r"one.?hot|embedding|look.?up|index_select|gather|(index\w*|row)s? .{0,20}(in|into|of|from) the (table|weight|matrix)"
    r"|mostly zero|nearly all zeros?|sparse",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def viruses_by_their_codons(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    rows, length, codes, width, wide, kinds = 12, 160, 1024, 48, 192, 7
    table = torch.randn(codes, width)
    read = nn.Sequential(nn.Conv1d(width, wide, 5), nn.ReLU(), nn.Conv1d(wide, wide, 5), nn.ReLU())
    head = nn.Linear(wide, kinds)
    nn.ModuleList([read, head]).eval()
    genes = torch.randint(codes, (rows, length))

    @torch.inference_mode()
    def step() -> Tensor:
        x = F.embedding(genes, table) if changed else F.one_hot(genes, codes).float() @ table
        return head(read(x.transpose(1, 2)).amax(2)).softmax(1)

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: layers of dropout with a rate of 0, left from a search for the best rate, hand on what they get; taken out",
    names=r"dropout|no.?op (layer|module)s?|identity",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def coffee_roasts_by_colour(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    rows, side, wide, kinds = 16, 64, 24, 5
    net: list[nn.Module] = []
    for inputs, outputs in pairwise((3, wide, 2 * wide, 2 * wide, 4 * wide)):
        net += convolutions((inputs, outputs))
        if not changed:
            net.append(nn.Dropout(0.0))
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    beans, roasts = torch.rand(rows, 3, side, side), torch.randint(kinds, (rows,))

    def step() -> Tensor:
        loss = F.cross_entropy(model(beans), roasts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: 100 scores for each picture are sorted for the best five, beside convolutions; topk",
    names=r"\bsort(s|ed|ing)?\b|topk|aten::sort|partial(ly)? sort",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def dishes_on_a_cafeteria_tray(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    rows, side, wide, kinds = 4, 160, 32, 100
    net = [*convolutions((3, wide, 2 * wide)), *convolutions((2 * wide, 2 * wide), 1), *convolutions((2 * wide, 4 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds)).eval()
    trays = torch.rand(rows, 3, side, side)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = model(trays).softmax(1)
        return scores.topk(5, 1).values if changed else scores.sort(1, descending=True).values[:, :5]

    return step


@unseen(
    "none: eval() is called on the model for every request, a walk over few modules; once, when the service starts",
    names=r"\beval\(?\)?|\.train\(|(each|every|per) request",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def heart_sounds_judged(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    rows, bands, frames, wide, kinds = 8, 64, 256, 32, 3
    net = [*convolutions((1, wide, 2 * wide)), *convolutions((2 * wide, 2 * wide), 1), *convolutions((2 * wide, 4 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds)).eval()
    sounds = torch.randn(rows, 1, bands, frames)

    @torch.inference_mode()
    def step() -> Tensor:
        if not changed:
            model.eval()
        return model(sounds).softmax(1)

    return step
