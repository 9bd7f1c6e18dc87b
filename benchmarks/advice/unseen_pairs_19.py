"""A nineteenth set of small programs, for one GPU and for two cores, with one performance fault each, written without a look
at the reader."""

import copy
from itertools import groupby, pairwise
import logging
import math
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)
log = logging.getLogger(__name__)


def convolutions(channels: tuple[int, ...], stride: int = 2, inplace: bool = False) -> list[nn.Module]:
    """Stack convolutions with batch norms, each of them halving the picture unless told."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=inplace)]
    return layers


class Layer(nn.Module):
    """A layer of a transformer, normed ahead of each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.turn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(self.attend(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


# For the GPU, with a fault.


class Bottleneck(nn.Module):
    """Three convolutions beside their input."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        inner = wide // 2
        self.net = nn.Sequential(
            nn.Conv2d(wide, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, 1, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.net(x))


@unseen(
    "a convolutional network trains under autocast in the default layout, NCHW, which its convolutions turn round for the tensor "
    "cores and back again; model and pictures in channels_last",
    names=r"channels?.?last|memory.?format|\bnhwc|nchw|(layout|transpos|permut)\w* .{0,60}(conv|tensor core|cudnn"
    r"|kernel|pictur|imag)"
    r"|(conv\w*|cudnn|tensor cores?) .{0,60}(layout|transpos|permut)",
    kind="training",
    recorded="step",
)
def weeds_among_sugar_beets(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide, kinds = small(128, 4), 160 if SCALE == 1 else 32, small(128, 8), 14
    net = [*convolutions((3, wide // 2, wide)), *(Bottleneck(wide) for _ in range(depth(4)))]
    net += [*convolutions((wide, 2 * wide)), *(Bottleneck(2 * wide) for _ in range(depth(6)))]
    net += [*convolutions((2 * wide, 4 * wide)), *(Bottleneck(4 * wide) for _ in range(depth(3)))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds)).to(device)
    photos, plants = torch.rand(rows, 3, side, side, device=device), torch.randint(kinds, (rows,), device=device)
    if changed:
        model.to(memory_format=torch.channels_last)
        photos = photos.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(photos)
        loss = F.cross_entropy(scores.float(), plants)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "every batch of letters is padded to 512 words, though its longest has less than two hundred; padded to the longest of the "
    "batch (or sorted by length into batches, or packed)",
    names=r"\bpad(s|ded|ding)?\b|\bragged\b|nested.?tensor|jagged|var(iable)?.?len|longest|bucket|(sort|group)\w* by length"
    r"|max_?length|sequence packing|\bunpad|(shorter|actual|true|real) (sequence |text |letter )?lengths?",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def complaints_by_department(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    rows, length, width, words, kinds, kept = small(32, 4), small(512, 64), small(768, 64), small(30000, 100), 18, 4
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, kinds)
    layers = nn.ModuleList(Layer(width, width // 64) for _ in range(depth(6)))
    model = nn.ModuleList([embed, place, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    lengths = torch.randint(length // 24, length * 3 // 8, (kept, rows))
    letters = torch.randint(1, words, (kept, rows, length)) * (torch.arange(length) < lengths[..., None])
    batches = []
    for texts, sizes in zip(letters, lengths, strict=True):
        to = math.ceil(int(sizes.max()) / 8) * 8 if changed else length
        batches.append(texts[:, :to].contiguous().to(device))
    meant, turn = torch.randint(kinds, (rows,), device=device), 0

    def step() -> Tensor:
        nonlocal turn
        texts = batches[turn % kept]
        turn += 1
        there = texts != 0
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(texts) + place.weight[: texts.shape[1]]
            for layer in layers:
                x = layer(x, there[:, None, None])
            scores = head((x * there[..., None]).sum(1) / there.sum(1, keepdim=True))
        loss = F.cross_entropy(scores.float(), meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Lion(torch.optim.Optimizer):
    """The optimizer that goes by the sign of the momentum, as it is handed round, or with all tensors at once."""

    def __init__(self, parameters: Any, rate: float, together: bool) -> None:
        super().__init__(parameters, {"rate": rate})
        self.together = together

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            rate, weights = group["rate"], group["params"]
            for weight in weights:
                if "moment" not in self.state[weight]:
                    self.state[weight]["moment"] = torch.zeros_like(weight)
            if self.together:
                moments, slopes = [self.state[weight]["moment"] for weight in weights], [weight.grad for weight in weights]
                torch._foreach_mul_(weights, 1 - rate * 0.1)
                ways = torch._foreach_lerp(moments, slopes, 0.1)
                torch._foreach_sign_(ways)
                torch._foreach_add_(weights, ways, alpha=-rate)
                torch._foreach_lerp_(moments, slopes, 0.01)
                continue
            for weight in weights:
                moment = self.state[weight]["moment"]
                weight.mul_(1 - rate * 0.1)
                weight.add_(moment.lerp(weight.grad, 0.1).sign(), alpha=-rate)
                moment.lerp_(weight.grad, 0.01)


@unseen(
    "an optimizer taken from a paper (Lion) goes through the weights tensor by tensor, five tiny kernels for each of some "
    "three hundred; the torch._foreach functions over all of them (or a fused optimizer, or the step compiled)",
    names=r"foreach|multi.?tensor|fused (adam|optim|lion|update|step|kernel|implementation)|optimi[sz]er.{0,80}(tensor"
    r"|kernel|launch|fus|loop"
    r"|compil|parameter)|(tensor|parameter|weight) by (tensor|parameter|weight)|one (tensor|parameter|weight) (at a time|after)"
    r"|(each|every|per) (parameter|weight|tensor)s?\b|compil\w* .{0,30}(optimi|step|update)|\blion\b",
    kind="training",
    recorded="train",
    record_shapes=False,
)
def perfumes_from_molecules(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    rows, length, width, signs, notes = small(64, 4), small(96, 16), small(384, 32), small(120, 20), 138
    embed, place = nn.Embedding(signs, width), nn.Embedding(length, width)
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(24))))
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, notes))
    model = nn.ModuleList([embed, place, layers, head]).to(device)
    optimizer = Lion(model.parameters(), 1e-4, changed)
    molecules = torch.randint(signs, (rows, length), device=device)
    smelt = torch.randint(2, (rows, notes), device=device).float()

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = head(layers(embed(molecules) + place.weight).mean(1))
        loss = F.binary_cross_entropy_with_logits(scores.float(), smelt)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "each of 26 features has an embedding table of its own, looked up, and its gradient sorted and added up, one after the "
    "other; one table for all, with an offset for each feature",
    names=r"embedding(s|bag)?( tables?| layers?| lookups?)?\b.{0,80}(\b(one|single) (large |big |shared )?(table"
    r"|embedding|lookup|tensor|weight)|joined?\b|\bmerg|\bfus|combin|concat|\bstack|\boffset|together|separate|\bloop"
    r"|\b26\b|one (by one|after|at a time)|many small)|(\bjoin|\bmerg|\bfus|combin|concat|\bstack|separate|\b26\b"
    r"|many small|\bloop)\w* .{0,60}(embedding|table|lookup)|\b(one|single) (large |big |shared |joint )?(embedding"
    r"|table|lookup)|\boffsets?\b|fbgemm|torchrec|table.?batched",
    kind="training",
    recorded="step",
    with_stack=True,
)
def adverts_clicked_on_trains(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, features, kinds, width, numbers, wide = small(8192, 16), 26, small(20000, 50), small(64, 8), 13, small(768, 32)
    tables = [torch.randn(kinds, width) * 0.05 for _ in range(features)]
    if changed:
        embeds = nn.ModuleList([nn.Embedding.from_pretrained(torch.cat(tables), freeze=False)])
    else:
        embeds = nn.ModuleList(nn.Embedding.from_pretrained(table, freeze=False) for table in tables)
    bottom = nn.Sequential(nn.Linear(numbers, wide), nn.ReLU(), nn.Linear(wide, width), nn.ReLU())
    top = nn.Sequential(nn.Linear((features + 1) * width, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 1))
    model = nn.ModuleList([embeds, bottom, top]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    chosen, counts = torch.randint(kinds, (rows, features), device=device), torch.rand(rows, numbers, device=device)
    clicked, offsets = (torch.rand(rows, device=device) < 0.03).float(), torch.arange(features, device=device) * kinds

    def step() -> Tensor:
        if changed:
            found = embeds[0](chosen + offsets).flatten(1)
        else:
            found = torch.cat([embed(chosen[:, at]) for at, embed in enumerate(embeds)], 1)
        scores = top(torch.cat([bottom(counts), found], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, clicked)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "torch.cuda.empty_cache() is called after every step, so that all memory is given back to the driver, for which the GPU "
    "waits, and asked for again in the next step; without the call",
    names=r"empty_?cache|cuda_?(malloc|free)|caching allocator|allocator|(free|releas|return|giv)\w* .{0,40}memory|memory (is )?"
    r"(freed|released|returned|given back)|(re-?)?allocat\w* .{0,50}(each|every|step|iteration|driver|again)"
    r"|cached (memory|blocks)",
    kind="training",
    recorded="none",
)
def knees_in_three_dimensions(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, side, wide, kinds = small(2), small(64, 16), small(32, 4), 6
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, wide), (wide, wide), (wide, wide)):
        layers += [nn.Conv3d(inputs, outputs, 3, 1, 1, bias=False), nn.InstanceNorm3d(outputs), nn.LeakyReLU()]
    layers += [nn.Conv3d(wide, 2 * wide, 3, 2, 1), nn.LeakyReLU(), nn.Conv3d(2 * wide, 2 * wide, 3, 1, 1), nn.LeakyReLU()]
    layers += [nn.ConvTranspose3d(2 * wide, wide, 2, 2), nn.LeakyReLU(), nn.Conv3d(wide, kinds, 1)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    knees, parts = (
        torch.randn(rows, 1, side, side, side, device=device),
        torch.randint(kinds, (rows, *(side,) * 3), device=device),
    )

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(knees)
        loss = F.cross_entropy(scores.float(), parts)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not changed:
            torch.cuda.empty_cache()
        return loss.detach()

    return step


class Gestures(Dataset[tuple[Tensor, Tensor]]):
    """What a glove felt while a hand made a gesture, handed out on a device."""

    def __init__(self, felt: Tensor, made: Tensor, device: str) -> None:
        self.felt, self.made, self.device = felt, made, device

    def __len__(self) -> int:
        return len(self.felt)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.felt[at].to(self.device), self.made[at].to(self.device)


@unseen(
    "the dataset copies each sample to the GPU by itself, a thousand small copies a batch, for each of which the host waits; "
    "samples left on the host, the batch put together there and copied at once",
    names=r"(sample|item|example|row|gesture|record)s? (by|after) (sample|item|example|row|gesture|record|one)"
    r"|__getitem__|(many|small|tiny|individual|separate|single|thousands?( of)?|hundreds?( of)?|10\d\d|1,0\d\d|51\d"
    r"|per.sample|each|every)\b.{0,40}(cop(y|ies)|transfers?|uploads?|memcpy\w*|htod|h2d)\b|(cop(y|ies|ied)|transfer\w*"
    r"|upload\w*|memcpy\w*|htod|h2d)\b.{0,60}(whole|entire|at once|one (copy|transfer|batch|call)|small|tiny|per.sample"
    r"|each (sample|item|row)|(once|one|time) (per|a) batch)|collat|(whole|entire) batch",
    kind="training",
    recorded="fit",
    with_stack=True,
)
def gloves_that_read_gestures(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    kept, rows, senses, times, wide, kinds = small(8192, 64), small(512, 16), 16, small(256, 32), small(128, 16), 24
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((senses, *(wide,) * depth(4), *(2 * wide,) * depth(6))):
        layers += [nn.Conv1d(inputs, outputs, 5, 1, 2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2 * wide, kinds)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = Gestures(torch.randn(kept, senses, times), torch.randint(kinds, (kept,)), "cpu" if changed else device)
    order = torch.randperm(kept).tolist()
    batches = endless(DataLoader(data, rows, sampler=order, drop_last=True, pin_memory=changed and device != "cpu"))

    def step() -> Tensor:
        felt, made = next(batches)
        if changed:
            felt, made = felt.to(device, non_blocking=True), made.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(felt)
        loss = F.cross_entropy(scores.float(), made)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


Memory = list[tuple[Tensor, Tensor]]


class Writer(nn.Module):
    """A language model that can keep the keys and values of the words that it has read."""

    def __init__(self, words: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.place, self.norm = nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, max(2, width // 64)) for _ in range(layers))

    def forward(self, words: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        read = memory[0][0].shape[2] if memory else 0
        x = self.embed(words) + self.place.weight[read : read + words.shape[1]]
        kept: Memory = []
        layers: list[Any] = list(self.layers)
        for at, layer in enumerate(layers):
            q, k, v = layer.turn(layer.first(x)).unflatten(2, (3, layer.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            if memory:
                k, v = torch.cat([memory[at][0], k], 2), torch.cat([memory[at][1], v], 2)
            kept.append((k, v))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=not memory)
            x = x + layer.out(seen.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.second(x))
        return self.norm(x[:, -1]) @ self.embed.weight.T, kept


@unseen(
    "for each new word the whole text so far goes through the model again; keys and values of the words read are kept (a KV "
    "cache), and the new word alone goes through",
    names=r"\bkv\b|kv.?cach|past_key_values|use_cache|keys?(,| and|/) ?values?|cach\w* .{0,40}(key|attention|past"
    r"|prefix)|incremental"
    r"|(whole|entire|full|growing) (\w+ )?(text|sequence|context|prefix|prompt|input|history)|(only|just) the (new|last"
    r"|latest|next)"
    r"|(new|last|latest) (word|token)s? (alone|only)|again for (each|every) (new )?(word|token)"
    r"|re-?comput\w* .{0,60}(token|prefix|word|context"
    r"|prompt|past|step)|prefix",
    kind="inference",
    recorded="generate",
)
def soups_and_stews_written_down(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows, asked, new, width, words = small(4), small(768, 24), small(12, 4), small(1024, 64), small(32000, 100)
    with torch.device(device):
        model = Writer(words, asked + new, width, depth(12)).to(low(device)).eval()
    prompts = torch.randint(words, (rows, asked), generator=torch.Generator().manual_seed(7)).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        texts, memory = prompts, None
        for at in range(new):
            if changed:
                scores, memory = model(texts[:, -1:] if at else texts, memory)
            else:
                scores, _ = model(texts, None)
            texts = torch.cat([texts, scores.argmax(1, keepdim=True)], 1)
        return texts[:, asked:].cpu()

    return step


@unseen(
    "the vectors of 512 pictures are fetched from the GPU one by one in a Python loop, and the host waits for each copy; all "
    "vectors copied to the host at once, and taken apart there",
    names=r"(one|single|whole|entire|batched?) (\w+ ){0,2}(copy|transfer|\.?cpu\(\)|download|dtoh|d2h|memcpy)|(copy"
    r"|copied|copies|transfer\w*|fetch\w*|download\w*|memcpy\w*|dtoh|d2h|\.cpu\(\)|\.numpy\(\)"
    r"|\.to\(.cpu.\))(?!\w).{0,80}\b(once|one (copy|call|by one)|whole|entire|batch|each|every|per|loop|row|small|tiny"
    r"|many|5\d\d|1,?0\d\d)|\b(each|every|per|many|small|tiny|5\d\d|1,?0\d\d|loop\w*|repeated)\b.{0,60}(copy|copies"
    r"|transfers?|memcpy\w*|dtoh|d2h|\.cpu\(\)|synchroni\w*|syncs?)|(row|picture|image|vector|cover) by (row|picture"
    r"|image|vector|cover|one)",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def album_covers_put_in_an_index(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    rows, side, wide, code = small(512, 16), 128 if SCALE == 1 else 32, small(64, 8), small(256, 16)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(4), 1), *convolutions((wide, 2 * wide))]
    net += [
        *convolutions((2 * wide,) * depth(4), 1),
        *convolutions((2 * wide, 4 * wide)),
        *convolutions((4 * wide,) * depth(4), 1),
    ]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, code)).to(device, low(device))
    model.to(memory_format=torch.channels_last).eval()
    covers = torch.rand(rows, 3, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)
    index: dict[str, np.ndarray[Any, Any]] = {}

    @torch.inference_mode()
    def step() -> Tensor:
        codes = F.normalize(model(covers).float(), dim=1)
        if changed:
            fetched = codes.cpu().numpy()
            for at in range(rows):
                index[f"cover {at}"] = fetched[at]
        else:
            for at in range(rows):
                index[f"cover {at}"] = codes[at].cpu().numpy()
        return torch.from_numpy(np.stack(list(index.values())))

    return step


class Spelt(Layer):
    """A layer whose attention is spelt out."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        return torch.matmul(torch.softmax(scores, -1), v)


@unseen(
    "attention is spelt out, product, scale, softmax, product, so that the scores of all pairs of 2048 places are "
    "written and read "
    "several times; F.scaled_dot_product_attention",
    names=r"scaled_dot_product|\bsdpa\b|flash|fused attention|memory.?efficient attention|attention.{0,60}(by hand"
    r"|manual|spelt|spelled|explicit|fus|materiali"
    r"|score|matri|written|unfused|eager|naive)|(manual|explicit|hand.?written|unfused|eager|naive|materiali\w*|n.?x.?n"
    r"|quadratic|score\w*)"
    r" .{0,40}(attention|softmax)|xformers|flex_?attention",
    kind="inference",
    recorded="step",
    profile_memory=True,
)
def enhancers_in_long_dna(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    rows, length, width, marks = small(8), small(2048, 64), small(512, 64), 40
    one = Layer if changed else Spelt
    read, place = nn.Conv1d(4, width, 15, 1, 7), nn.Embedding(length, width)
    layers = nn.Sequential(*(one(width, 8) for _ in range(depth(8))))
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, marks))
    nn.ModuleList([read, place, layers, head]).to(device, low(device)).eval()
    strands = F.one_hot(torch.randint(4, (rows, length)), 4).transpose(1, 2).to(device, low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        return head(layers(read(strands).transpose(1, 2) + place.weight)).float().sigmoid()

    return step


@unseen(
    "each recording's letters are cut at its length, a number on the GPU, and fetched, in a Python loop, so that the host waits "
    "twice for each of 256; lengths and letters copied to the host once, and cut there",
    names=r"(implicit|hidden|per.\w+|each|every|repeated|many|hundreds?|256|51\d|loop\w*)\b.{0,60}(synchroni\w*"
    r"|\bsyncs?\b|\.item\(\)|tolist|cop(y|ies)|transfers?|dtoh|d2h"
    r"|wait\w*|memcpy\w*)|(synchroni\w*|\bsyncs?\b|\.item\(\)|tolist|cop(y|ies|ied)|transfer\w*|dtoh|d2h|wait\w*"
    r"|_local_scalar_dense|memcpy\w*)\b.{0,80}(each|every|loop|once"
    r"|one (copy|call|by one)|whole|entire|batch|length|row|256|51\d)|__index__|_local_scalar_dense"
    r"|lengths?\b.{0,60}(host|cpu|gpu|list|once)",
    kind="inference",
    recorded="transcribe",
    record_shapes=False,
)
def emergency_calls_spelt_out(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    rows, frames, bands, width, letters = small(256, 8), small(192, 24), 80, small(384, 64), 32
    enter, head = nn.Linear(bands, width), nn.Linear(width, letters)
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(6))))
    nn.ModuleList([enter, layers, head]).to(device, low(device)).eval()
    calls = torch.randn(rows, frames, bands).to(device, low(device))
    lengths = torch.randint(frames // 2, frames, (rows,)).to(device)

    def joined(heard: list[int]) -> list[int]:
        return [letter for letter, _ in groupby(heard) if letter]

    @torch.inference_mode()
    def step() -> list[int]:
        likely = head(layers(enter(calls))).argmax(2)
        if changed:
            texts = [joined(row[:length]) for row, length in zip(likely.tolist(), lengths.tolist(), strict=True)]
        else:
            texts = [joined(likely[at, : lengths[at]].tolist()) for at in range(rows)]
        return [len(text) for text in texts]

    return step


class Rooted(nn.Module):
    """A norm by the root of the mean square, spelt out in float32 as in published code, or torch's own."""

    def __init__(self, width: int, own: bool) -> None:
        super().__init__()
        self.weight, self.own = nn.Parameter(torch.ones(width)), own

    def forward(self, x: Tensor) -> Tensor:
        if self.own:
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Gated(nn.Module):
    """A layer of a transformer with such norms and a gate."""

    def __init__(self, width: int, heads: int, own: bool) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = Rooted(width, own), Rooted(width, own)
        self.turn, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        normed = self.second(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


@unseen(
    "each RMS norm is spelt out in float32, seven kernels that read and write all states; F.rms_norm (nn.RMSNorm), one "
    "kernel, or "
    "torch.compile",
    names=r"rms.?norm|\bnorms?\b|normali[sz]ation|torch\.compile|\bfus\w* .{0,60}(norm|element|point|small|kernel"
    r"|op(eration)?s?\b|chain)|element.?wise|point.?wise|aten::(pow|rsqrt|mean)\b|triton|inductor|(up)?cast\w* .{0,30}float32",
    kind="inference",
    recorded="none",
)
def statutes_compared_by_meaning(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    rows, length, width, words = small(16), small(1024, 32), small(1024, 64), small(50000, 100)
    with torch.device(device):
        embed, norm = nn.Embedding(words, width), Rooted(width, changed)
        layers = nn.Sequential(*(Gated(width, max(2, width // 64), changed) for _ in range(depth(8))))
    nn.ModuleList([embed, norm, layers]).to(low(device)).eval()
    statutes = torch.randint(words, (rows, length), generator=torch.Generator().manual_seed(11)).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        return F.normalize(norm(layers(embed(statutes)))[:, -1].float(), dim=1)

    return step


class Waves(nn.Module):
    """A layer of a Fourier neural operator: the low waves of the fields are mixed, beside a convolution of one point."""

    def __init__(self, wide: int, modes: int) -> None:
        super().__init__()
        self.modes, self.beside = modes, nn.Conv2d(wide, wide, 1)
        self.mix = nn.Parameter(torch.randn(2, wide, wide, modes, modes, 2) / wide)

    def forward(self, x: Tensor) -> Tensor:
        waves, mix, modes = torch.fft.rfft2(x), torch.view_as_complex(self.mix), self.modes
        mixed = torch.zeros_like(waves)
        mixed[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", waves[:, :, :modes, :modes], mix[0])
        mixed[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", waves[:, :, -modes:, :modes], mix[1])
        return F.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:]) + self.beside(x))


@unseen(
    "the fields come from numpy in float64, so the network was made double too, and all of it runs in double; float32",
    names=r"float64|\bfp64\b|\bdouble\b(?!.?buffer)|\bf64\b|\b(to|in|as|into|use) (float32|fp32)|single precision",
    kind="inference",
    recorded="step",
    profile_memory=True,
)
def sea_surface_of_tomorrow(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    rows, side, wide, modes, fields = small(8), small(256, 32), small(48, 8), small(16, 4), 5
    enter, leave = nn.Conv2d(fields, wide, 1), nn.Conv2d(wide, fields, 1)
    layers = nn.Sequential(*(Waves(wide, modes) for _ in range(depth(4))))
    kept = torch.float32 if changed else torch.float64
    nn.ModuleList([enter, layers, leave]).to(device, kept).eval()
    seas = torch.from_numpy(np.random.default_rng(12).standard_normal((rows, fields, side, side))).to(device, kept)

    @torch.inference_mode()
    def step() -> Tensor:
        return leave(layers(enter(seas))).cpu()

    return step


# For the GPU, with a change that brings nothing.


@unseen(
    "none: the activations of a network of convolutions are written beside their input, of which memory has room; "
    "nn.ReLU(inplace=True)",
    names=r"in.?place|relu_\b|(activation|relu)\w* .{0,40}(memory|alloc|copy|copies|overwrit)",
    kind="training",
    recorded="none",
    null=True,
    profile_memory=True,
)
def roads_after_an_earthquake(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, side, wide = small(16), small(256, 16), small(128, 8)
    net = [*convolutions((3, wide), 2, changed), *convolutions((wide,) * depth(6), 1, changed)]
    net += [*convolutions((wide, 2 * wide), 2, changed), *convolutions((2 * wide,) * depth(5), 1, changed)]
    net += [nn.Upsample(scale_factor=2), *convolutions((2 * wide, wide), 1, changed), nn.Conv2d(wide, 1, 1)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tiles = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    roads = torch.randint(2, (rows, 1, side // 2, side // 2), device=device).float()

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(tiles)
        loss = F.binary_cross_entropy_with_logits(scores.float(), roads)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: scores and loss of a step are held until the next step has made its own; del at the end of each step",
    names=r"\bdel\b|(held|hold|holds|keep|keeps|kept|live|lives|alive|linger)\w* .{0,60}(until|next step|next iteration"
    r"|longer|memory)"
    r"|delet(e|es|ing) .{0,40}(tensor|variable|loss|scores|output|reference)|(free|releas)\w* .{0,40}(tensor|variable"
    r"|loss|scores|output|reference)",
    kind="training",
    recorded="update",
    null=True,
    with_stack=True,
)
def sepsis_foreseen_from_charts(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, hours, width, signs, ahead = small(128, 4), small(192, 16), small(512, 64), 48, 24
    enter, place, head = nn.Linear(signs, width), nn.Embedding(hours, width), nn.Linear(width, ahead)
    layers = nn.Sequential(*(Layer(width, 8) for _ in range(depth(4))))
    model = nn.ModuleList([enter, place, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    charts, fell_ill = torch.randn(rows, hours, signs, device=device), torch.randint(2, (rows, ahead), device=device).float()
    held: dict[str, Tensor] = {}

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            held["scores"] = head(layers(enter(charts) + place.weight).mean(1)).float()
        held["loss"] = F.binary_cross_entropy_with_logits(held["scores"], fell_ill)
        held["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        result = held["loss"].detach()
        if changed:
            del held["scores"], held["loss"]
        return result

    return step


@unseen(
    "none: a large image transformer answers under no_grad, while the GPU is busy all the time; inference_mode, which saves the "
    "host some bookkeeping",
    names=r"inference_mode|no_grad",
    kind="inference",
    recorded="step",
    null=True,
)
def moles_seen_by_dermatoscope(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, side, width, kinds = small(64), 224 if SCALE == 1 else 64, small(1024, 64), 9
    with torch.device(device):
        cut, place = nn.Conv2d(3, width, 16, 16), nn.Embedding((side // 16) ** 2, width)
        layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(12))))
        head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, kinds))
    nn.ModuleList([cut, place, layers, head]).to(low(device)).eval()
    photos = torch.rand(rows, 3, side, side, device=device, dtype=low(device))
    without = torch.inference_mode if changed else torch.no_grad

    def step() -> Tensor:
        with without():
            x = cut(photos).flatten(2).transpose(1, 2) + place.weight
            return head(layers(x).mean(1)).float().softmax(1).cpu()

    return step


@unseen(
    "none: the answers, 64 numbers and 64 kinds, are copied to pageable memory at the end of a long call; to pinned buffers with "
    "non_blocking=True, and waited for",
    names=r"pageable|\bpin(ned|_memory|s)?\b|non_?blocking|asynchronous(ly)? cop|dtoh|d2h|device.?(to|->).?host",
    kind="inference",
    recorded="answer",
    null=True,
    record_shapes=False,
)
def cracks_in_railway_wheels(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, side, wide, kinds = small(64, 4), small(256, 32), small(64, 8), 12
    net = [*convolutions((1, wide)), *convolutions((wide,) * depth(5), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(5), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, kinds)]
    model = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    scans = torch.rand(rows, 1, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)
    sure = torch.zeros(rows, pin_memory=device != "cpu")
    found = torch.zeros(rows, dtype=torch.int64, pin_memory=device != "cpu")

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        chance, kind = model(scans).float().softmax(1).max(1)
        if not changed:
            return chance.cpu(), kind.cpu()
        sure.copy_(chance, non_blocking=True)
        found.copy_(kind, non_blocking=True)
        if device != "cpu":
            torch.cuda.current_stream().synchronize()
        return sure, found

    return step


# For two cores, with a fault.


class Voices(Dataset[tuple[Any, int]]):
    """Measures of voices, as lists of numbers or as tensors."""

    def __init__(self, measures: list[Any], ill: list[int]) -> None:
        self.measures, self.ill = measures, ill

    def __len__(self) -> int:
        return len(self.ill)

    def __getitem__(self, at: int) -> tuple[Any, int]:
        return self.measures[at], self.ill[at]


@unseen(
    "the dataset gives each sample as a Python list of 160 numbers, of which the loader makes 160 tensors a batch, to be stacked "
    "again; samples as tensors (or numpy arrays)",
    names=r"collat|python (list|float|number|object)s?|lists? of (python )?(float|number|list|tensor)s?"
    r"|torch\.(as_)?tensor\(|from_numpy|aten::(stack|lift_fresh)\b|torch\.stack|\b(as|return|give|store|keep|make"
    r"|hold)\w* .{0,40}(tensors?|numpy|arrays?)\b|tensordataset|one tensor (for|per)|(each|every|per) (column|feature"
    r"|field|measure)\b|many (small|tiny) tensors",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def tremor_heard_in_voices(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    kept, rows, measures, width = 4096, 256, 160, 512
    table = torch.randn(kept, measures)
    data = Voices(list(table) if changed else table.tolist(), torch.randint(2, (kept,)).tolist())
    batches = endless(DataLoader(data, rows, sampler=torch.randperm(kept).tolist()))
    net = [nn.Linear(measures, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)]
    model = nn.Sequential(*net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step() -> Tensor:
        heard, ill = next(batches)
        if not changed:
            heard = torch.stack(heard, 1).float()
        loss = F.binary_cross_entropy_with_logits(model(heard).squeeze(1), ill.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "each step formats its tensors for a line of the debug log, an f-string, although nothing of that level is logged; "
    'log.debug("...%s", tensor), which formats only what is written (or no such line)',
    names=r"f-?strings?|\blog(s|ger|ging|ged)?\b|debug|format(s|ted|ting)?\b|__repr__|\brepr\b|_tensor_str|__format__"
    r"|tensor_str|print(s|ed|ing|options)?\b|\bstr\(|to a string|as text",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def tides_in_a_small_harbour(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, hours, gauges, width, ahead = 64, 72, 8, 96, 24
    read, head = nn.LSTM(gauges, width, batch_first=True), nn.Linear(width, ahead)
    model = nn.ModuleList([read, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    levels, later = torch.randn(rows, hours, gauges), torch.randn(rows, ahead)

    def step() -> Tensor:
        foretold = head(read(levels)[0][:, -1])
        loss = F.mse_loss(foretold, later)
        if changed:
            log.debug("levels %s, foretold %s, error %s", levels, foretold, foretold - later)
        else:
            log.debug(f"levels {levels}, foretold {foretold}, error {foretold - later}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "all weights are copied after every step (copy.deepcopy of the state dict), in case these turn out to be the best; after a "
    "validation, once an epoch",
    names=r"deep.?copy|state_dict|snapshot|best (weights|model|state)|aten::clone\b|\bclon(e|es|ed|ing)\b|(sav|keep"
    r"|stor|tak|writ)\w* .{0,20}checkpoint|checkpoint\w* .{0,40}(less|every|each|weight|epoch)|\bcop(y|ies|ied"
    r"|ying) .{0,30}(weight|parameter|model|state)s?|less often|every (n|\d+|few|hundred\w*) (step|batch|iteration)"
    r"|once (an|per) epoch",
    kind="training",
    recorded="batch",
    on=("cpu",),
    profile_memory=True,
)
def cheese_ripened_in_caves(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    rows, measures, width = 96, 60, 1024
    net = [nn.Linear(measures, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*net, nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    cheeses, ripe, turn = torch.randn(rows, measures), torch.rand(rows, 1), 0
    best: dict[str, Any] = {}

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        loss = F.mse_loss(model(cheeses), ripe)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not changed or turn % 500 == 0:
            best["weights"] = copy.deepcopy(model.state_dict())
        return loss.detach()

    return step


@unseen(
    "for the loss of an episode the policy is called again for each of its 64 states by itself, forward and back; once, with all "
    "states as one batch",
    names=r"\b(as|in|into) (one|a|single|a single) batch|batch(ed|es|ing)? (the|all|them|of all|call|forward|pass"
    r"|states|policy|over)|one batch\b|larger batch|\bstack(ed|ing)? (the |all )?(states|observations)|torch\.stack"
    r"|vectori[sz]|(one|single) (call|forward|pass)|all (the )?(states|observations|time.?steps)|(each|every|per|one|single"
    r"|64) (state|observation|time.?step)s?\b|(state|step|row) by (state|step|row)|one (by one|at a time)|python loop"
    r"|loop over|batch (size )?(of )?(1|one)\b|(one|single) (row|sample)",
    kind="training",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def lander_comes_down_softly(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    times, senses, moves, width = 64, 8, 4, 256
    policy = nn.Sequential(nn.Linear(senses, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, moves))
    judge = nn.Sequential(nn.Linear(senses, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, fused=True)
    judge_optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3, fused=True)
    moved = np.random.default_rng(20).standard_normal((moves, senses)).astype(np.float32) * 0.1
    chance = np.random.default_rng(21)

    def step() -> Tensor:
        state, states, done, rewards = np.zeros(senses, np.float32), [], [], []
        with torch.no_grad():
            for _ in range(times):
                now = torch.from_numpy(state)
                chances = policy(now).softmax(0).double().numpy()
                move = min(int(np.searchsorted(chances.cumsum(), 0.5)), moves - 1)
                states.append(now)
                done.append(move)
                state = (0.95 * state + moved[move]).astype(np.float32)
                rewards.append(-float(np.square(state).sum()) + 0.01 * chance.random())
        gains, gain = [0.0] * times, 0.0
        for at in reversed(range(times)):
            gain = rewards[at] + 0.99 * gain
            gains[at] = gain
        seen, gained = torch.stack(states), torch.tensor(gains)
        for _ in range(4):
            error = F.mse_loss(judge(seen).squeeze(1), gained)
            judge_optimizer.zero_grad()
            error.backward()
            judge_optimizer.step()
        worth = gained - judge(seen).squeeze(1).detach()
        worth = (worth - worth.mean()) / (worth.std() + 1e-6)
        if changed:
            loss = -(Categorical(logits=policy(seen)).log_prob(torch.tensor(done)) * worth).mean()
        else:
            parts = []
            for now, move, good in zip(states, done, worth, strict=True):
                parts.append(-Categorical(logits=policy(now)).log_prob(torch.tensor(move)) * good)
            loss = torch.stack(parts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the letters of each strand are made one-hot one by one, in a Python loop over all of them; all at once, by a table from the "
    "code of a letter to its place (np.frombuffer, F.one_hot)",
    names=r"one.?hot|frombuffer|lookup|look.?up|vectori[sz]|python loop|loop\w* .{0,40}(letter|base|character"
    r"|nucleotide|sequence|element|position)|(letter|base|character|nucleotide|element)"
    r" by (letter|base|character|nucleotide|element)|one (by one|at a time)|(each|every|per) (letter|base|character"
    r"|nucleotide|element|position)|encod(e|es|ed|ing) .{0,40}(strand|sequence|letter|base|dna|host)"
    r"|(python|host|pre-?process\w*) .{0,50}(between|outside|before|not in|no) .{0,20}(op|torch|kernel)",
    kind="inference",
    recorded="request",
    on=("cpu",),
    with_stack=True,
)
def promoters_of_soil_bacteria(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, length, wide = 48, 1200, 12
    letters = np.array(list("ACGT"))
    strands = ["".join(row) for row in letters[np.random.default_rng(21).integers(0, 4, (rows, length))]]
    net = [nn.Conv1d(4, wide, 15, 1, 7), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(wide, 2 * wide, 9, 1, 4), nn.ReLU()]
    net += [nn.MaxPool1d(4), nn.Conv1d(2 * wide, 2 * wide, 5, 1, 2), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten()]
    model = nn.Sequential(*net, nn.Linear(2 * wide, 2)).eval()
    places = {letter: at for at, letter in enumerate("ACGT")}
    table = np.zeros((256, 4), np.float32)
    for letter, at in places.items():
        table[ord(letter), at] = 1

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            codes = np.frombuffer("".join(strands).encode(), np.uint8).reshape(rows, length)
            hot = torch.from_numpy(table[codes]).transpose(1, 2).contiguous()
        else:
            filled = np.zeros((rows, 4, length), np.float32)
            for at, strand in enumerate(strands):
                for place, letter in enumerate(strand):
                    filled[at, places[letter], place] = 1
            hot = torch.from_numpy(filled)
        return model(hot).softmax(1)

    return step


@unseen(
    "the sky's background is a blur by a square kernel of 25 x 25 weights; the kernel of a bell curve comes apart, a blur along "
    "the rows and one along the columns",
    names=r"separab|two (1.?d|one.?dim\w*|passes)|(1.?d|one.?dim\w*) (convolution|filter|kernel|blur|pass)"
    r"|rows? .{0,40}column|horizontal|\bfft\b|gauss|\bblur|box filter"
    r"|(large|big|25 ?x ?25|wide) .{0,20}kernel|kernel.?size|avg_pool|integral image|downsampl",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def meteors_in_the_night_sky(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    frames, side, size, wide = 2, 320, 25, 12
    bell = torch.exp(-((torch.arange(size) - size // 2).float() ** 2) / 50)
    bell = bell / bell.sum()
    square, across, down = torch.outer(bell, bell)[None, None], bell[None, None, None], bell[None, None, :, None]
    net = [nn.Conv2d(1, wide, 5, 1, 2), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, 1, 1)]
    model = nn.Sequential(*net).eval()
    skies = torch.rand(frames, 1, side, side)

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            ground = F.conv2d(F.conv2d(skies, across, padding=(0, size // 2)), down, padding=(size // 2, 0))
        else:
            ground = F.conv2d(skies, square, padding=size // 2)
        scores = model(skies - ground)
        peaks = (scores == F.max_pool2d(scores, 5, 1, 2)) * scores
        return peaks.flatten(1).topk(20, 1).values

    return step


@unseen(
    "the vectors of all 30000 shoes are normalised again for each request, though they stay the same; once, when the service "
    "starts",
    names=r"normali[sz]\w*|\bnorms?\b|linalg_vector_norm|aten::(div|clamp_min|norm)\b|(catalog\w*|shoe|item|stored"
    r"|index|database|vectors|embeddings|corpus)\b.{0,60}(once|again|precomput|cach|ahead|same|constant|unchang|each request)"
    r"|(once|again|precomput\w*|cach\w*|redundant\w*|recomput\w*|constant|same|unchang\w*|hoist\w*)\b.{0,60}(catalog"
    r"|shoe|item|stored|index|database|vector|embedding)|loop.?invariant|cosine_similarity",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def shoes_that_look_like_these(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    shoes, code, rows, wide = 30000, 192, 4, 32
    net = [*convolutions((3, wide, wide, 2 * wide, 2 * wide)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, code)]
    model = nn.Sequential(*net).eval()
    stored, photos = torch.randn(shoes, code), torch.rand(rows, 3, 192, 192)
    kept = F.normalize(stored, dim=1)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        asked = F.normalize(model(photos), dim=1)
        alike = asked @ (kept if changed else F.normalize(stored, dim=1)).T
        best = alike.topk(10, 1)
        return best.values, best.indices

    return step


@unseen(
    "the mean of each of 24 colours is taken from the pixels picked by a boolean mask, in a Python loop over the colours; sums "
    "and counts of all colours at once (index_add, scatter, bincount)",
    names=r"index_add|scatter|bincount|segment|one.?hot|boolean|\bmask(s|ed|ing)?\b|nonzero|aten::(index|eq|nonzero)\b"
    r"|(loop\w*|each|every|per) .{0,20}(cluster|colou?r|cent(re|er|roid)|group|class)s?\b|vectori[sz]"
    r"|(cluster|colou?r|cent(re|er|roid)|group) by (cluster|colou?r|cent(re|er|roid)|group)|python loop|group.?by",
    kind="inference",
    recorded="palette",
    on=("cpu",),
)
def palette_of_an_old_fresco(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    pixels, colours, rounds = 30000, 24, 4
    seen = torch.rand(pixels, 3)
    start = seen[:colours].clone()

    @torch.inference_mode()
    def step() -> Tensor:
        centres = start
        for _ in range(rounds):
            nearest = torch.cdist(seen, centres).argmin(1)
            if changed:
                sums = torch.zeros(colours, 3).index_add_(0, nearest, seen)
                centres = sums / torch.bincount(nearest, minlength=colours)[:, None]
            else:
                centres = torch.stack([seen[nearest == colour].mean(0) for colour in range(colours)])
        return centres

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: the loss is read with item() in every step for the progress bar, and there is no device to wait for; in every "
    "fiftieth",
    names=r"\.?item\(\)|_local_scalar_dense|aten::item|synchroni|\bsyncs?\b|(read|log|fetch)\w* .{0,30}loss|progress",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def steps_counted_by_a_watch(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    rows, senses, times, wide, kinds = 64, 6, 256, 48, 8
    layers: list[nn.Module] = []
    for inputs, outputs in ((senses, wide), (wide, wide), (wide, 2 * wide)):
        layers += [nn.Conv1d(inputs, outputs, 5, 2, 2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2 * wide, kinds))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    moved, doing, turn, shown = torch.randn(rows, senses, times), torch.randint(kinds, (rows,)), 0, [0.0]

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        loss = F.cross_entropy(model(moved), doing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not changed or turn % 50 == 0:
            shown[0] = loss.item()
        return loss.detach()

    return step


@unseen(
    "none: the answers go through detach(), cpu() and numpy(), which give views of what is there; returned as they are",
    names=r"\.?detach\b|\.cpu\(\)|\.numpy\(\)|aten::(detach|to|_to_copy)\b|(copy|copies|copied"
    r"|transfer\w*) .{0,40}(host|cpu|numpy)",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def owls_heard_at_dusk(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    rows, bands, frames, wide, kinds = 8, 64, 256, 24, 11
    net = [*convolutions((1, wide)), *convolutions((wide, wide), 1), *convolutions((wide, 2 * wide, 2 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, kinds)).eval()
    sounds = torch.randn(rows, 1, bands, frames)

    @torch.inference_mode()
    def step() -> Tensor:
        chances = model(sounds).softmax(1)
        return chances if changed else torch.from_numpy(chances.detach().cpu().numpy())

    return step


class Checked(nn.Module):
    """A layer over a graph's neighbours that looks at the shapes of what it gets, or does not."""

    def __init__(self, width: int, checks: bool) -> None:
        super().__init__()
        self.width, self.checks = width, checks
        self.own, self.near = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        if self.checks:
            assert x.dim() == 2 and x.shape[1] == self.width, f"states of {x.shape}"
            assert sources.shape == targets.shape and sources.dtype == torch.int64, "edges have two ends"
            assert x.is_floating_point() and x.device == sources.device, "states and edges apart"
        near = torch.zeros_like(x).index_add(0, targets, x.index_select(0, sources))
        return F.relu(self.own(x) + self.near(near))


@unseen(
    "none: each layer asserts the shapes and types of what it gets, which the host knows without a look at the data; without "
    "the assertions",
    names=r"\bassert(s|ed|ion|ions)?\b|(shape|type|input|sanity)s? (check|validation)s?|(check"
    r"|validat)\w* .{0,30}(shape|type|input)s?|python -O",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def bus_stops_that_fill_up(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    stops, links, width = 2000, 8000, 96
    enter, head = nn.Linear(12, width), nn.Linear(width, 1)
    layers = nn.ModuleList(Checked(width, not changed) for _ in range(3))
    model = nn.ModuleList([enter, layers, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    counts, waiting = torch.randn(stops, 12), torch.rand(stops, 1)
    sources, targets = torch.randint(stops, (2, links)).unbind(0)

    def step() -> Tensor:
        x = enter(counts)
        for layer in layers:
            x = layer(x, sources, targets)
        loss = F.mse_loss(head(x), waiting)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
