"""Pairs of programs for an NVIDIA H200: thirteen with one fault each, and five with a change that brings nothing.

Written without a look at what the reader knows; see unseen_pairs.py for the format.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
import os
import time
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def pinned(tensor: Tensor, device: str) -> Tensor:
    """Return the tensor in page-locked memory, where there is a GPU."""
    return tensor.pin_memory() if device == "cuda" else tensor


# ---------------------------------------------------------------------------------------------------------------- inference


def smooth_length(least: int) -> int:
    """Return the smallest length from the given one up that has no prime factor above five."""
    while True:
        rest = least
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return least
        least += 1


class LongFilter(nn.Module):
    """A gated layer whose filters are as long as the recording, applied by Fourier transforms."""

    def __init__(self, channels: int, length: int, transform: int) -> None:
        super().__init__()
        self.length, self.transform = length, transform
        decay = torch.exp(-torch.arange(length) * 8.0 / length)
        self.filters = nn.Parameter(torch.randn(channels, length) * decay * length**-0.5)
        self.mix = nn.Conv1d(channels, 2 * channels, 1)
        self.norm = nn.GroupNorm(1, channels)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(self.norm(x), n=self.transform)
        response = torch.fft.rfft(self.filters, n=self.transform)
        y = torch.fft.irfft(spectrum * response, n=self.transform)[..., : self.length]
        value, gate = self.mix(F.gelu(y)).chunk(2, 1)
        return x + value * torch.sigmoid(gate)


@unseen(
    "long convolutions by FFT at the exact length L + K - 1 = 59999, a prime, for which cuFFT needs Bluestein's way (several "
    "longer transforms); pad to a length of small factors (60000)",
    names=r"bluestein|next_fast_len|power[- ]of[- ](two|2)\b|(fast|smooth|good|friendly|better|composite|even) (fft |transform )?"
    r"(length|size)|small (prime )?factors|prime (length|size|factor)|(large|awkward) prime|aten::_?fft_|\brfft\b|\bcufft\b|"
    r"pad\w* .{0,40}\bfft|\bfft\b.{0,60}(pad|length)",
    kind="inference",
    recorded="none",
)
def whale_calls_filtered(device: str, changed: bool) -> Step:
    channels, length, classes = small(96, 8), small(30000, 400), 24
    exact = 2 * length - 1
    transform = smooth_length(exact) if changed else exact
    model = nn.Sequential(
        nn.Conv1d(1, channels, 9, padding=4),
        *[LongFilter(channels, length, transform) for _ in range(depth(4))],
        nn.AdaptiveAvgPool1d(64),
        nn.Flatten(),
        nn.Linear(64 * channels, classes),
    )
    model = model.to(device).eval()
    calls = torch.randn(8, 1, length, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        sound = calls - calls.mean(2, keepdim=True)
        return torch.log_softmax(model(sound), 1)

    return step


class GroupedDecoder(nn.Module):
    """A layer of a decoder with fewer heads of keys than of queries, and a cache of set size."""

    def __init__(self, width: int, heads: int, shared: int, batch: int, context: int, regroup: bool) -> None:
        super().__init__()
        self.heads, self.shared, self.regroup = heads, shared, regroup
        size = width // heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.queries, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.pairs = nn.Linear(width, 2 * shared * size, bias=False)
        self.up, self.down = nn.Linear(width, 6 * width, bias=False), nn.Linear(3 * width, width, bias=False)
        self.register_buffer("cache", torch.randn(2, batch, shared, context, size))
        self.cache: Tensor

    def forward(self, x: Tensor, position: int) -> Tensor:
        normed = self.first(x)
        q = self.queries(normed).unflatten(1, (self.heads, -1))
        self.cache[:, :, :, position] = self.pairs(normed).unflatten(1, (2, self.shared, -1)).transpose(0, 1)
        k, v = self.cache[:, :, :, : position + 1].unbind(0)
        if self.regroup:
            seen = F.scaled_dot_product_attention(q.unflatten(1, (self.shared, -1)), k, v).flatten(1)
        else:
            batch, shared, context, size = k.shape
            wide = (batch, shared, self.heads // shared, context, size)
            k = k[:, :, None].expand(wide).reshape(batch, self.heads, context, size)
            v = v[:, :, None].expand(wide).reshape(batch, self.heads, context, size)
            seen = F.scaled_dot_product_attention(q[:, :, None], k, v).flatten(1)
        x = x + self.out(seen)
        value, gate = self.up(self.second(x)).chunk(2, 1)
        return x + self.down(value * F.silu(gate))


@unseen(
    "grouped-query attention copies the keys and values out for each query head (repeat_kv) at each token; let the query heads "
    "of a group share them (enable_gqa=True, or the group as the queries' dimension)",
    names=r"enable_gqa|\bgqa\b|grouped[- ]quer|repeat_kv|repeat_interleave|aten::(clone|expand|repeat)|"
    r"(expand|repeat|copy|copie|duplicat|materiali[sz])\w* .{0,50}(keys|values|heads|\bkv\b|k/v)|"
    r"(keys|values|heads|\bkv\b|k/v).{0,50}(expand|repeat|duplicat|materiali[sz])",
    kind="inference",
    recorded="none",
)
def dispatch_notes_generated(device: str, changed: bool) -> Step:
    width, heads, shared, batch, context = small(2048, 64), 32 if SCALE == 1 else 8, 4, small(32), small(4096, 32)
    words = small(32000, 100)
    with torch.device(device):
        embed = nn.Embedding(words, width)
        layers = nn.ModuleList([GroupedDecoder(width, heads, shared, batch, context, changed) for _ in range(depth(8))])
        norm, head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
    for part in (embed, layers, norm, head):
        part.to(device, low(device)).eval()
    first = torch.randint(words, (batch,), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(first)
        for layer in layers:
            x = layer(x, context - 2)
        logits = head(norm(x)).float()
        return torch.log_softmax(logits, 1).max(1).values

    return step


def hashed_singly(texts: list[bytes], buckets: int) -> Tensor:
    """Return the hashes of the trigrams of each text, found letter by letter."""
    rows = []
    for text in texts:
        row, before, middle = [], 0, 0
        for letter in text:
            if 65 <= letter <= 90:
                letter += 32
            row.append((before * 9409 + middle * 97 + letter) % buckets)
            before, middle = middle, letter
        rows.append(row)
    return torch.tensor(rows)


def hashed_together(texts: list[bytes], buckets: int) -> Tensor:
    """Return the same hashes, found by operations on whole arrays."""
    letters = np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), -1).astype(np.int64)
    letters += 32 * ((letters >= 65) & (letters <= 90))
    padded = np.pad(letters, ((0, 0), (2, 0)))
    return torch.from_numpy((padded[:, :-2] * 9409 + padded[:, 1:-1] * 97 + letters) % buckets)


@unseen(
    "a thread prepares the next request letter by letter in pure Python and holds the interpreter's lock, so that the thread "
    "which launches the model waits for the lock at each operation; prepare by NumPy on whole arrays (or in a process)",
    names=r"\bgil\b|interpreter('s)? lock|global lock|pure[- ]python|python thread|background thread|other thread|"
    r"(worker|helper|second|preprocessing) thread|vectori[sz]|\bnumpy\b|multiprocess|separate process|another process|"
    r"process(es)? (instead of|rather than) threads?|switch ?interval",
    kind="inference",
    recorded="request",
)
def support_tickets_routed(device: str, changed: bool) -> Step:
    width, letters, tickets, buckets = small(512, 32), small(512, 32), 64 if SCALE == 1 else 8, 50021
    hashed: Callable[[list[bytes], int], Tensor] = hashed_together if changed else hashed_singly
    embed = nn.Embedding(buckets, width).to(device, low(device))
    layers = nn.ModuleList([Layer(width, 8) for _ in range(depth(6))]).to(device, low(device)).eval()
    head = nn.Linear(width, 40).to(device, low(device))
    spelled = torch.randint(32, 127, (4, tickets, letters), dtype=torch.uint8)
    requests = [[bytes(ticket) for ticket in request.tolist()] for request in spelled]
    pool = ThreadPoolExecutor(1)
    ahead: list[Future[Tensor]] = [pool.submit(hashed, requests[0], buckets)]
    served = 0

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal served
        served += 1
        ids = ahead.pop().result()
        ahead.append(pool.submit(hashed, requests[served % len(requests)], buckets))
        x = embed(ids.to(device))
        for layer in layers:
            x = layer(x)
        return torch.softmax(head(x.mean(1)).float(), 1).cpu()

    return step


@unseen(
    "the service asks every 10 ms whether the event after the model has come (event.query() and time.sleep); wait for it by "
    "event.synchronize()",
    names=r"\bsleep|\bpoll(s|ed|ing)?\b|event\.synchronize|\.query\(\)|cudaEventQuery|cudaEventSynchronize|busy[- ]wait|"
    r"block(ing)? (wait )?on the event|wait(ing)? on the event|event\.wait",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def stream_clips_flagged(device: str, changed: bool) -> Step:
    clips, frames, side, width = 16 if SCALE == 1 else 2, 16 if SCALE == 1 else 4, small(128, 32), small(768, 64)
    channels = (3, width // 8, width // 4, width // 2, width)
    trunk = nn.Sequential(*convolutions(channels)).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    layers = nn.ModuleList([Layer(width, 8) for _ in range(depth(4))]).to(device, low(device)).eval()
    head = nn.Linear(width, 12).to(device, low(device))
    stored = torch.randint(256, (3, clips * frames, side, side, 3), dtype=torch.uint8)
    buffers = [pinned(torch.empty_like(stored[0]), device) for _ in range(2)]
    flags = pinned(torch.empty(clips, 12), device)
    done = torch.cuda.Event() if device == "cuda" else None
    pool = ThreadPoolExecutor(1)

    def fetch(number: int) -> Tensor:
        return buffers[number % 2].copy_(stored[number % len(stored)])

    ahead: list[Future[Tensor]] = [pool.submit(fetch, 0)]
    served = 0

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal served
        served += 1
        pictures = ahead.pop().result().to(device, non_blocking=True)
        ahead.append(pool.submit(fetch, served))
        x = trunk(pictures.permute(0, 3, 1, 2).to(low(device)) / 255)
        x = x.flatten(2).transpose(1, 2).unflatten(0, (clips, frames)).flatten(1, 2)
        for layer in layers:
            x = layer(x)
        flags.copy_(torch.sigmoid(head(x.mean(1)).float()), non_blocking=True)
        if done is not None:
            done.record()
            if changed:
                done.synchronize()
            else:
                while not done.query():
                    time.sleep(0.01)
        return flags.clone()

    return step


@unseen(
    "all scores of a gallery are sorted for the best hundred; torch.topk",
    names=r"\btop_?k\b|aten::(arg)?sort|full sort|whole sort|sort\w* (all|every|the (whole|full|entire))|torch\.(arg)?sort|"
    r"partial sort|radix ?sort|\bargsort\b",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def artworks_matched(device: str, changed: bool) -> Step:
    width, gallery_size, best, batch, side = small(512, 64), small(400000, 2000), 100, small(64), small(192, 64)
    patches = nn.Conv2d(3, width, 16, 16)
    layers, head = nn.ModuleList([Layer(width, 8) for _ in range(depth(6))]), nn.Linear(width, width)
    for part in (patches, layers, head):
        part.to(device, low(device)).eval()
    gallery = F.normalize(torch.randn(gallery_size, width, device=device), dim=1)
    pictures = torch.rand(batch, 3, side, side, device=device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        x = patches(pictures.to(low(device)) - 0.5).flatten(2).transpose(1, 2)
        for layer in layers:
            x = layer(x)
        query = F.normalize(head(x.mean(1)).float(), dim=1)
        scores = query @ gallery.T
        if changed:
            found, which = scores.topk(best, 1)
        else:
            ordered = scores.sort(1, descending=True)
            found, which = ordered.values[:, :best], ordered.indices[:, :best]
        near = gallery[which]
        agreement = (near @ near.transpose(1, 2)).mean(2)
        return found, found + 0.1 * agreement

    return step


@unseen(
    "a Gaussian process inverts its covariance and takes its determinant by another factorization, though it is symmetric and "
    "positive; one Cholesky factor, with cholesky_solve and solve_triangular",
    names=r"cholesky|aten::(linalg_)?inv|linalg_inv|linalg\.(inv|solve)|explicit inver|matrix inver|invert|inverse|slogdet|"
    r"triangular|factori[sz]|\bLU\b|getrf|aten::_?linalg_",
    kind="inference",
    recorded="none",
)
def catalysts_predicted(device: str, changed: bool) -> Step:
    known, asked, inputs, width = small(4096, 64), small(512, 16), 48, small(256, 32)
    encoder = nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 16))
    encoder.to(device).eval()
    measured, candidates = torch.randn(known, inputs, device=device), torch.randn(asked, inputs, device=device)
    target = torch.sin(measured[:, :1]) + 0.1 * torch.randn(known, 1, device=device)

    def covariance(left: Tensor, right: Tensor) -> Tensor:
        squares = left.square().sum(1)[:, None] + right.square().sum(1) - 2 * left @ right.T
        return torch.exp(-0.5 * squares.clamp(min=0))

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor, Tensor]:
        old, new = 4 * encoder(measured), 4 * encoder(candidates)
        noisy = covariance(old, old) + 0.5 * torch.eye(known, device=device)
        cross = covariance(old, new)
        if changed:
            factor = torch.linalg.cholesky(noisy)
            weights = torch.cholesky_solve(target, factor)
            logarithm = 2 * factor.diagonal().log().sum()
            explained = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0)
        else:
            inverse = torch.linalg.inv(noisy)
            weights = inverse @ target
            logarithm = torch.linalg.slogdet(noisy).logabsdet
            explained = (cross * (inverse @ cross)).sum(0)
        evidence = -0.5 * ((target * weights).sum() + logarithm)
        return cross.T @ weights, 1.5 - explained, evidence

    return step


class Distances(nn.Module):
    """A bias of attention by bucketed distance."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        self.buckets, self.farthest = buckets, farthest
        self.table = nn.Embedding(buckets, heads)

    def forward(self, length: int, device: str, dtype: torch.dtype) -> Tensor:
        where = torch.arange(length, device=device)
        apart = where[None, :] - where[:, None]
        half = self.buckets // 2
        exact = half // 2
        bucket = (apart > 0).long() * half
        apart = apart.abs()
        share = torch.log(apart.float().clamp(min=1) / exact) / torch.log(torch.tensor(self.farthest / exact))
        far = (exact + share * (half - exact)).long().clamp(max=half - 1)
        bucket = bucket + torch.where(apart < exact, apart, far)
        return self.table(bucket).permute(2, 0, 1)[None].to(dtype).contiguous()


@unseen(
    "the bias by relative position, the same for all layers and requests of this length, is made anew in each layer; make it "
    "once and pass it on",
    names=r"relative[- ](position|bias)|position(al)?[- ]?bias|attention bias|\bcach(e|ed|ing) |precompute|pre-compute|hoist|"
    r"register_buffer|loop[- ]invariant|recomput|same (result|values?|inputs?|bias|constants?) .{0,40}(layer|again)|"
    r"(comput|built|build|made|make|calculat)\w* .{0,30}\bonce\b|(each|every|per)[- ]layer.{0,40}(again|same|bias)|redundan|"
    r"constant .{0,40}(again|each|every)",
    kind="inference",
    recorded="none",
)
def enzymes_annotated(device: str, changed: bool) -> Step:
    width, heads, length, batch, letters = small(512, 32), 8, small(1024, 32), small(6), 26
    embed, layers = nn.Embedding(letters, width), nn.ModuleList([Layer(width, heads) for _ in range(depth(16))])
    distances, head = Distances(heads).to(device).eval(), nn.Linear(width, 300)
    for part in (embed, layers, head):
        part.to(device, low(device)).eval()
    chains = torch.randint(letters, (batch, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(chains)
        bias = distances(length, device, x.dtype) if changed else None
        for layer in layers:
            x = layer(x, distances(length, device, x.dtype) if bias is None else bias)
        return torch.sigmoid(head(x.mean(1)).float())

    return step


class Outline(nn.Module):
    """A small U-shaped network."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.downs = nn.ModuleList(
            nn.Sequential(*convolutions((before, after)), *convolutions((after, after), 1))
            for before, after in ((inputs, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.ups = nn.ModuleList(
            nn.Sequential(*convolutions((before, after), 1)) for before, after in ((6 * width, 2 * width), (3 * width, width))
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for down in self.downs:
            x = down(x)
            kept.append(x)
        for up, other in zip(self.ups, (kept[1], kept[0]), strict=True):
            x = up(torch.cat([F.interpolate(x, scale_factor=2.0), other], 1))
        return self.head(x)


@unseen(
    "pictures of bytes are turned to float32 and normed on the CPU, then copied, four times the bytes; copy the bytes and norm "
    "them on the GPU",
    names=r"\buint8\b|as bytes|raw bytes|(normali[sz]|normed|convert|conversion|cast|scal|preprocess)\w*\W.{0,80}"
    r"(on|to|onto) (the )?(gpu|device|accelerator|cuda)|(gpu|device)[- ]side (normali|conver|preproc)|"
    r"after the (copy|transfer|upload)|(cpu|host)[- ]side (normali|conver|preproc|cast)|copy (the )?bytes",
    kind="inference",
    recorded="tile",
)
def orchards_mapped(device: str, changed: bool) -> Step:
    batch, side = small(16), small(384, 32)
    model = Outline(3, small(64, 8), 6).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    tiles = torch.randint(256, (4, batch, 3, side, side), dtype=torch.uint8)
    mean, spread = torch.tensor([0.41, 0.45, 0.37]).view(3, 1, 1), torch.tensor([0.21, 0.19, 0.23]).view(3, 1, 1)
    there_mean, there_spread = mean.to(device), spread.to(device)
    buffer = pinned(torch.empty(batch, 3, side, side, dtype=torch.uint8 if changed else torch.float32), device)
    mask = pinned(torch.empty(batch, side // 2, side // 2, dtype=torch.uint8), device)
    served = 0

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal served
        tile = tiles[served % len(tiles)]
        served += 1
        if changed:
            pictures = (buffer.copy_(tile).to(device, non_blocking=True).float() / 255 - there_mean) / there_spread
        else:
            pictures = buffer.copy_((tile.float() / 255 - mean) / spread).to(device, non_blocking=True)
        found = model(pictures.to(low(device), memory_format=torch.channels_last))
        mask.copy_(found.argmax(1).to(torch.uint8), non_blocking=True)
        shares = torch.softmax(found.float(), 1).mean((0, 2, 3))
        return shares.cpu()  # the mask has come, too

    return step


# ----------------------------------------------------------------------------------------------------------------- training


class Roads(nn.Module):
    """A layer of messages along the edges of a graph."""

    def __init__(self, width: int, edge_width: int, split: bool) -> None:
        super().__init__()
        self.width, self.split = width, split
        self.message = nn.Linear(2 * width + edge_width, width)
        self.update = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, edges: Tensor) -> Tensor:
        if self.split:
            from_source, from_target, from_edge = self.message.weight.split([self.width, self.width, edges.shape[1]], 1)
            message = F.linear(edges, from_edge, self.message.bias)
            message = message + F.linear(x, from_source).index_select(0, source)
            message = message + F.linear(x, from_target).index_select(0, target)
        else:
            message = self.message(torch.cat([x.index_select(0, source), x.index_select(0, target), edges], 1))
        summed = torch.zeros_like(x).index_add(0, target, F.silu(message))
        return self.norm(x + F.silu(self.update(torch.cat([x, summed], 1))))


@unseen(
    "the messages' linear layer is applied to the concatenated features of both ends of each edge, sixteen edges a node; apply "
    "its parts to the nodes, and gather what comes out",
    names=r"per[- ]node|(before|ahead of|prior to) (the )?(gather|index_select|index)|gather\w* (after|the (result|output|"
    r"projected|transformed))|(node|vert)\w* (first|once)|once per (node|vertex)|split\w* (up )?(the |its )?(weight|linear)|"
    r"per[- ]edge|(on|over|for|to) (all |every |each |the )?edges?\b|project\w* (the )?nodes|aten::cat\b|concat",
    kind="training",
    recorded="step",
)
def traffic_flows_forecast(device: str, changed: bool) -> Step:
    nodes, width, hours, edge_width, ahead = small(32000, 200), small(128, 16), 24, 16, 12
    count = 16 * nodes
    first, last = nn.Linear(hours, width), nn.Linear(width, ahead)
    layers = nn.ModuleList([Roads(width, edge_width, changed) for _ in range(depth(3))])
    model = nn.ModuleList([first, layers, last]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    source, target = torch.randint(nodes, (2, count), device=device).unbind(0)
    edges, flows = torch.randn(count, edge_width, device=device), torch.randn(nodes, hours, device=device)
    truth = torch.randn(nodes, ahead, device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = F.silu(first(flows))
        for layer in layers:
            x = layer(x, source, target, edges)
        loss = F.huber_loss(last(x), truth)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


Sample = tuple[Tensor, Tensor, Tensor]


class Collisions(Dataset[Sample]):
    """Jets of particles with what was measured of the whole event."""

    def __init__(self, events: int, particles: int) -> None:
        self.jets, self.events = torch.randn(events, particles, 4), torch.randn(events, 12)
        self.labels = torch.randint(5, (events,))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.jets[index], self.events[index], self.labels[index]


class CollisionsTogether(Collisions):
    """The same, a batch of which is taken at once."""

    def __getitems__(self, indices: list[int]) -> Sample:
        which = torch.tensor(indices)
        return self.jets[which], self.events[which], self.labels[which]


def as_it_is(batch: Any) -> Any:
    return batch


@unseen(
    "the loader's workers take a batch of 1024 tiny samples one by one and stack them, and the training waits for them; take "
    "a batch by one indexing (__getitems__, or a BatchSampler with batch_size=None)",
    names=r"__getitems__|batch_?sampler|batch_size=None|num_workers|more workers|collat|data ?loader|loader's|"
    r"(input|data)[- ](bound|pipeline|starv)|waits? for (the )?(data|batch|input|loader)|sample by sample|row by row",
    kind="training",
    recorded="step",
)
def collisions_tagged(device: str, changed: bool) -> Step:
    events, particles, width, batch, parts = small(400000, 4000), 24, small(512, 32), small(1024, 64), 4
    data = CollisionsTogether(events, particles) if changed else Collisions(events, particles)
    loader: DataLoader[Any] = DataLoader(
        data,
        batch,
        num_workers=2,
        collate_fn=as_it_is if changed else None,
        pin_memory=device == "cuda",
        drop_last=True,
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    batches = endless(loader)
    embed, layers = nn.Linear(4, width), nn.ModuleList([Layer(width, 8) for _ in range(depth(2))])
    head = nn.Sequential(nn.Linear(width + 12, width), nn.ReLU(), nn.Linear(width, 5))
    model = nn.ModuleList([embed, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for _ in range(parts):
            jets, event, label = (part.to(device, non_blocking=True) for part in next(batches))
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                x = embed(jets)
                for layer in layers:
                    x = layer(x)
                loss = F.cross_entropy(head(torch.cat([x.mean(1), event], 1)).float(), label) / parts
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


@unseen(
    "each of three tasks' losses goes backward of its own (retain_graph=True), three times through the shared trunk; one "
    "backward of their sum",
    names=r"retain_graph|\b(one|single) (call to |call of |combined |joint )?(loss\.)?\.?backward|"
    r"(sum|add|combin|total)\w*\W.{0,40}\bloss(es)?\b|loss(es)? .{0,30}(sum|added|combined|together)|"
    r"backward\W.{0,50}(three|3|several|multiple|repeated|times|more than once|per loss)|"
    r"(three|3|several|multiple|repeated) (separate )?backward|torch\.autograd\.backward|shared (trunk|backbone|encoder)",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def driving_scenes_understood(device: str, changed: bool) -> Step:
    batch, height, across, width = small(16), small(384, 64), small(640, 64), small(64, 8)
    trunk = nn.Sequential(
        *convolutions((3, width, 2 * width)),
        *convolutions((2 * width, 2 * width, 2 * width), 1),
        *convolutions((2 * width, 4 * width)),
        *convolutions((4 * width, 4 * width, 4 * width), 1),
    )
    heads = nn.ModuleList(
        nn.Sequential(*convolutions((4 * width, width), 1), nn.Conv2d(width, outputs, 1)) for outputs in (19, 1, 2)
    )
    model = nn.ModuleList([trunk, heads]).to(device, low(device)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scenes = torch.rand(batch, 3, height, across, device=device)
    classes = torch.randint(19, (batch, height // 8, across // 8), device=device)
    depths = torch.rand(batch, 1, height // 8, across // 8, device=device)
    moves = torch.randn(batch, 2, height // 8, across // 8, device=device)

    def step() -> list[Tensor]:
        optimizer.zero_grad()
        shared = trunk(scenes.to(low(device), memory_format=torch.channels_last))
        named, depth_found, moved = (head(shared).float() for head in heads)
        losses = [
            F.cross_entropy(named, classes),
            F.smooth_l1_loss(depth_found, depths),
            0.5 * F.mse_loss(moved, moves),
        ]
        if changed:
            (losses[0] + losses[1] + losses[2]).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
        optimizer.step()
        return [loss.detach() for loss in losses]

    return step


class Denoiser(nn.Module):
    """A network that tells the noise of a picture of patches."""

    def __init__(self, channels: int, width: int, layers: int) -> None:
        super().__init__()
        self.patch, self.back = nn.Conv2d(channels, width, 4, 4), nn.ConvTranspose2d(width, channels, 4, 4)
        self.moment = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList([Layer(width, 8) for _ in range(layers)])

    def forward(self, x: Tensor, moment: Tensor) -> Tensor:
        waves = torch.cat([torch.sin(moment[:, None] * self.scales), torch.cos(moment[:, None] * self.scales)], 1)
        y = self.patch(x)
        shape = y.shape[2:]
        z = y.flatten(2).transpose(1, 2) + self.moment(waves)[:, None]
        for layer in self.layers:
            z = layer(z)
        return self.back(z.transpose(1, 2).unflatten(2, tuple(shape)))

    @property
    def scales(self) -> Tensor:
        return torch.exp(torch.linspace(0, 5, 32, device=self.back.weight.device))


@unseen(
    "the moving average of the weights is kept on the host: all weights are copied there, one by one, in each step; keep it on "
    "the GPU (torch._foreach_lerp_)",
    names=r"\bema\b|moving average|averag\w* (of the )?(weights|parameters|model|copy)|AveragedModel|memcpy ?d(to|2)h|"
    r"\bd(to|2)h\b|device[- ]to[- ]host|\.cpu\(\)|to the (host|cpu)\b|_foreach_lerp|aten::_?foreach_lerp|swa_utils",
    kind="training",
    recorded="step",
    with_stack=True,
)
def galaxies_denoised(device: str, changed: bool) -> Step:
    batch, side, width = small(32), small(128, 32), small(384, 32)
    model = Denoiser(3, width, depth(8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    parameters: list[Tensor] = list(model.parameters())
    averages = [parameter.detach().clone() for parameter in parameters]
    if not changed:
        averages = [average.cpu() for average in averages]
    galaxies = torch.randn(batch, 3, side, side, device=device)
    noise, moment = torch.randn_like(galaxies), torch.rand(batch, device=device)
    decay = 0.99

    def step() -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        alpha = torch.cos(moment * 1.5).view(-1, 1, 1, 1)
        noisy = alpha * galaxies + (1 - alpha.square()).sqrt() * noise
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = F.mse_loss(model(noisy, moment).float(), noise)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if changed:
                torch._foreach_lerp_(averages, parameters, 1 - decay)
            else:
                for average, parameter in zip(averages, parameters, strict=True):
                    average.mul_(decay).add_(parameter.detach().cpu(), alpha=1 - decay)
        return loss.detach(), averages[0][0].clone()

    return step


class Cells(nn.Module):
    """A layer of points that exchange what they know within the cells of a grid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.point, self.cell = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, cell: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
        pooled = grid.index_add(0, cell, F.relu(self.point(x)))
        return self.norm(x + F.relu(self.cell(pooled)).index_select(0, cell)), pooled


@unseen(
    "torch.use_deterministic_algorithms(True) was left on: index_add sorts its indices, what is allocated is filled; off",
    names=r"determinis|fill_uninitialized|(index_put|index_add)\w*.{0,80}sort|aten::_?index_put|"
    r"sort\w*.{0,80}(index_put|index_add)",
    kind="training",
    recorded="none",
)
def radar_echoes_detected(device: str, changed: bool) -> Step:
    echoes, width, side, batch = small(400000, 2000), small(64, 8), small(256, 32), 4
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    first, cells = nn.Linear(6, width), nn.ModuleList([Cells(width) for _ in range(3)])
    head = nn.Sequential(*convolutions((width, 2 * width, 2 * width)), nn.Conv2d(2 * width, 8, 1))
    model = nn.ModuleList([first, cells, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    places = (torch.randn(echoes, 2, device=device) * side / 6 + side / 2).long().clamp(0, side - 1)
    sweep = torch.randint(batch, (echoes,), device=device)
    cell = (sweep * side + places[:, 0]) * side + places[:, 1]
    measured = torch.randn(echoes, 6, device=device)
    grid = torch.zeros(batch * side * side, width, device=device)
    truth = torch.rand(batch, 8, side // 4, side // 4, device=device)

    def step() -> Tensor:
        torch.use_deterministic_algorithms(not changed, warn_only=True)
        try:
            optimizer.zero_grad()
            x, pooled = F.relu(first(measured)), grid
            for layer in cells:
                x, pooled = layer(x, cell, grid)
            pooled = grid.index_add(0, cell, x) + pooled
            seen = pooled.view(batch, side, side, width).permute(0, 3, 1, 2)
            loss = F.binary_cross_entropy_with_logits(head(seen), truth)
            loss.backward()
            optimizer.step()
            return loss.detach()
        finally:
            torch.use_deterministic_algorithms(False)

    return step


# -------------------------------------------------------------------------------------------------- changes that bring nothing


class Sharper(nn.Module):
    """A stack of residual blocks of convolutions at full resolution, and a doubling of it."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        self.last = nn.Sequential(nn.Conv2d(width, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


@unseen(
    "captured in a CUDA graph, though large convolutions keep the GPU busy far longer than their launches take",
    names=r"cuda[_ -]?graph|torch\.cuda\.graph|make_graphed_callables|reduce-overhead|graph (capture|replay)",
    kind="inference",
    recorded="none",
    null=True,
)
def mammograms_sharpened(device: str, changed: bool) -> Step:
    batch, side = small(4), small(512, 32)
    model = Sharper(small(128, 8), depth(10)).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    films = torch.rand(batch, 1, side, side, device=device)

    @torch.inference_mode()
    def work() -> Tensor:
        large = model(films.to(low(device), memory_format=torch.channels_last)).float()
        return large.clamp(0, 1).mean((1, 2, 3))

    if not changed or device != "cuda":
        return work
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()

    def step() -> Tensor:
        graph.replay()
        return out.clone()

    return step


@unseen(
    "float32 products in TF32, though they are tiny and the program is bound by the launches of its many small operations",
    names=r"\btf32\b|tensor ?float|allow_tf32|set_float32_matmul_precision|float32_matmul_precision",
    kind="training",
    recorded="step",
    null=True,
    record_shapes=False,
)
def warehouse_robots_trained(device: str, changed: bool) -> Step:
    batch, state, action, width = small(256, 16), 40, 8, small(256, 16)

    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))

    actor = network(state, action).to(device)
    critics = nn.ModuleList([network(state + action, 1) for _ in range(4)]).to(device)
    targets = nn.ModuleList([network(state + action, 1) for _ in range(4)]).to(device).requires_grad_(False)
    followers: list[Tensor] = list(targets.parameters())
    leaders: list[Tensor] = list(critics.parameters())
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-4, fused=device == "cuda")
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-4, fused=device == "cuda")
    now, later = torch.randn(2, batch, state, device=device).unbind(0)
    done = torch.tanh(torch.randn(batch, action, device=device))
    reward = torch.randn(batch, 1, device=device)

    def step() -> tuple[Tensor, Tensor]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if changed else "highest")
        with torch.no_grad():
            future = torch.cat([later, torch.tanh(actor(later))], 1)
            goal = reward + 0.99 * torch.stack([target(future) for target in targets]).amin(0)
        taken = torch.cat([now, done], 1)
        error = torch.stack([F.mse_loss(critic(taken), goal) for critic in critics]).sum()
        critic_optimizer.zero_grad()
        error.backward()
        critic_optimizer.step()
        planned = torch.cat([now, torch.tanh(actor(now))], 1)
        gain = -torch.stack([critic(planned) for critic in critics]).amin(0).mean()
        actor_optimizer.zero_grad()
        gain.backward()
        actor_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(followers, leaders, 0.005)
        torch.set_float32_matmul_precision(before)
        return error.detach(), gain.detach()

    return step


def envelope(trace: Tensor, pool: int) -> Tensor:
    """Return features of recordings (stations x samples), by passes over them all."""

    def pooled(values: Tensor) -> Tensor:
        return values.unflatten(1, (-1, pool)).mean(2)

    trace = trace - trace.mean(1, keepdim=True)
    slope = trace[:, 1:] - trace[:, :-1]
    power = F.pad(slope, (1, 0)).square() + trace.square()
    loud = torch.log1p(power)
    loud = loud - loud.mean(1, keepdim=True)
    loud = loud / (loud.square().mean(1, keepdim=True) + 1e-5).sqrt()
    gated = torch.tanh(loud) * torch.sigmoid(trace)
    return torch.stack([pooled(power).log1p(), pooled(gated)], 1)


@unseen(
    "two halves of the stations on two streams, though each operation already takes all of the memory's bandwidth",
    names=r"\b(side|second|two|separate|several|multiple|different|own|another|extra|parallel|additional|cuda) streams?\b|"
    r"torch\.cuda\.Stream|concurrent(ly)? (on|stream|branch)|overlap\w* (the )?(two )?(branches|halves)",
    kind="inference",
    recorded="none",
    null=True,
)
def quakes_located(device: str, changed: bool) -> Step:
    stations, samples, pool, width = small(256, 8), small(262144, 4096), 256, small(256, 16)
    north, south = torch.randn(2, stations, samples, device=device).unbind(0)
    locate = nn.Sequential(nn.Conv1d(2, width, 9, padding=4), nn.ReLU(), nn.Conv1d(width, width, 9, padding=4), nn.ReLU())
    place = nn.Linear(width, 3)
    locate.to(device).eval()
    place.to(device).eval()
    aside = torch.cuda.Stream() if changed and device == "cuda" else None

    @torch.inference_mode()
    def step() -> Tensor:
        if aside is None:
            first, second = envelope(north, pool), envelope(south, pool)
        else:
            main = torch.cuda.current_stream()
            aside.wait_stream(main)
            with torch.cuda.stream(aside):
                second = envelope(south, pool)
            first = envelope(north, pool)
            main.wait_stream(aside)
            second.record_stream(main)
        return place(locate(torch.cat([first, second])).mean(2))

    return step


class Songs(Dataset[tuple[Tensor, Tensor]]):
    """Recordings of birds, cut at a place that the index tells, with the letters of what was heard."""

    def __init__(self, songs: int, samples: int, letters: int) -> None:
        self.sound, self.samples = torch.randn(2 * samples), samples
        self.letters = torch.randint(60, (songs, letters))

    def __len__(self) -> int:
        return len(self.letters)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * 997 % self.samples
        cut = self.sound[start : start + self.samples]
        return cut / cut.abs().max(), self.letters[index]


@unseen(
    "six workers of the loader for two, though two give the batches faster than the GPU takes them",
    names=r"num_workers|(more|additional|extra|further) (loader |data ?loader )?(workers|processes)|prefetch_factor|"
    r"(number of|raise the|increase the|two|three|four|six|eight|\d+) workers",
    kind="training",
    recorded="step",
    null=True,
)
def birdsong_transcribed(device: str, changed: bool) -> Step:
    batch, samples, letters, width = small(48), small(65536, 4096), 32, small(768, 64)
    loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        Songs(small(6000, 200), samples, letters),
        batch,
        num_workers=6 if changed else 2,
        pin_memory=device == "cuda",
        drop_last=True,
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    batches = endless(loader)
    front = nn.Sequential(nn.Conv1d(1, width // 4, 16, 8, 4), nn.GELU(), nn.Conv1d(width // 4, width, 16, 16), nn.GELU())
    layers, heard = nn.ModuleList([Layer(width, 8) for _ in range(depth(6))]), nn.Linear(width, 60)
    model = nn.ModuleList([front, layers, heard]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")

    def step() -> Tensor:
        sound, text = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            x = front(sound[:, None]).transpose(1, 2)
            for layer in layers:
                x = layer(x)
            logits = heard(F.adaptive_avg_pool1d(x.transpose(1, 2), letters).transpose(1, 2))
        loss = F.cross_entropy(logits.float().flatten(0, 1), text.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def volumes(channels: tuple[int, ...]) -> list[nn.Module]:
    """Stack convolutions of volumes, with their norms, at one resolution."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv3d(inputs, outputs, 3, padding=1), nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01)]
    return layers


@unseen(
    "AdamW(fused=True), though the few weights' update is a small part beside the convolutions of large volumes",
    names=r"\bfused=True|fused (adam|optimi[sz]er|implementation|version of (the )?(adam|optimi))|foreach=",
    kind="training",
    recorded="step",
    null=True,
    profile_memory=True,
)
def livers_outlined(device: str, changed: bool) -> Step:
    batch, side, width = 2, small(96, 16), small(32, 4)
    down = nn.Sequential(*volumes((1, width, width)))
    deep = nn.Sequential(nn.MaxPool3d(2), *volumes((width, 2 * width, 2 * width)), nn.Upsample(scale_factor=2.0))
    up = nn.Sequential(*volumes((3 * width, width, width)), nn.Conv3d(width, 3, 1))
    model = nn.ModuleList([down, deep, up]).to(device)
    if changed:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scans = torch.randn(batch, 1, side, side, side, device=device)
    organ = torch.randint(3, (batch, side, side, side), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            fine = down(scans)
            logits = up(torch.cat([fine, deep(fine)], 1)).float()
        loss = F.cross_entropy(logits, organ)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
