"""A fifteenth set of small programs, for one GPU or two cores, with one performance fault each, written without a look at
the reader."""

from contextlib import nullcontext
import json
import logging
from pathlib import Path
import random
import tempfile
import warnings

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import convolutions, depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint
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

    def forward(self, x: Tensor, causal: bool = False, bias: Tensor | None = None) -> Tensor:
        q, k, v = self.split(x)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal))


# For one GPU, with a fault.


@unseen(
    "the replay memory is a Python list of transitions, small tensors on the GPU, and each batch is put together "
    "from thousands of them with torch.stack; one preallocated tensor for each part, from which the batch is taken "
    "by an index",
    names=r"torch\.stack|\bstack(s|ed|ing)?\b|aten::(stack|cat|unsqueeze)\b|CatArray|preallocat|ring buffer|circular|(one"
    r"|single|large|big|contiguous) (\w+ )?(tensor|buffer|array)s?\b|index_select|list of (\w+ )?(tensors|transitions)"
    r"|(many|thousands of|small|tiny|individual|separate) tensors|(each|per|every|single) (transition|sample"
    r"|experience)|replay (memory|buffer)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def parcels_nudged_into_chutes(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    kept, rows, moves = small(4096, 64), small(512, 8), 9
    frames = torch.randint(256, (kept + 1, 4, 84, 84), dtype=torch.uint8, device=device)
    done, rewards = torch.randint(moves, (kept,), device=device), torch.randn(kept, device=device)
    ended = (torch.rand(kept, device=device) < 0.02).float()
    memory = [(frames[at], done[at], rewards[at], frames[at + 1], ended[at]) for at in range(kept)]
    parts = (frames[:-1], done, rewards, frames[1:], ended)

    def net() -> nn.Sequential:
        return nn.Sequential(
            *(nn.Conv2d(4, 64, 8, 4), nn.ReLU(), nn.Conv2d(64, 128, 4, 2), nn.ReLU(), nn.Conv2d(128, 128, 3), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(128 * 49, 1024), nn.ReLU(), nn.Linear(1024, moves)),
        ).to(device)

    online, target = net(), net()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
    rng = random.Random(1)

    def step() -> Tensor:
        drawn = rng.sample(range(kept), rows)
        if changed:
            index = torch.tensor(drawn, device=device)
            before, acted, gained, after, over = (part.index_select(0, index) for part in parts)
        else:
            before, acted, gained, after, over = (torch.stack(part) for part in zip(*(memory[at] for at in drawn), strict=True))
        seen, following = before.float() / 255, after.float() / 255
        with torch.no_grad():
            best = online(following).argmax(1, keepdim=True)
            aim = gained + 0.99 * (1 - over) * target(following).gather(1, best)[:, 0]
        loss = F.smooth_l1_loss(online(seen).gather(1, acted[:, None])[:, 0], aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the crops of self-supervised training, two large and six small for each picture, go through student and teacher "
    "one crop after another; those of one size joined as one batch",
    names=r"\bbatch(ed|ing)\b|(one|single|larger|bigger|same) batch|batch (of|all|them)\b|concat|torch\.cat\b|(crop"
    r"|view)s? (by|after) (crop|view|another)|(each|every|per|one) (crop|view)|(all|several|the) crops|one (by one"
    r"|after (the )?(an)?other|at a time)|(join|group|stack)\w* .*(crops|views|inputs|calls)",
    kind="training",
    recorded="none",
)
def moths_on_light_sheets(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    pictures, width, codes, patch = small(32), small(384, 64), small(4096, 64), 16

    def net() -> nn.ModuleDict:
        layers = nn.Sequential(*(Layer(width, 6 if width == 384 else 4) for _ in range(depth(8))))
        parts = {"cut": nn.Conv2d(3, width, patch, patch), "layers": layers, "head": nn.Linear(width, codes)}
        return nn.ModuleDict(parts).to(device)

    student, teacher = net(), net().requires_grad_(False)
    teacher.load_state_dict(student.state_dict())
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=True)
    large = [torch.randn(pictures, 3, 224, 224, device=device) for _ in range(2)]
    little = [torch.randn(pictures, 3, 96, 96, device=device) for _ in range(6)]

    def coded(net: nn.ModuleDict, x: Tensor) -> Tensor:
        return net["head"](net["layers"](net["cut"](x).flatten(2).transpose(1, 2)).mean(1))

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            if changed:
                with torch.no_grad():
                    aims = coded(teacher, torch.cat(large)).chunk(2)
                codes = (*coded(student, torch.cat(large)).chunk(2), *coded(student, torch.cat(little)).chunk(6))
            else:
                with torch.no_grad():
                    aims = tuple(coded(teacher, crop) for crop in large)
                codes = tuple(coded(student, crop) for crop in (*large, *little))
        shares, logs = [(aim.float() / 0.04).softmax(1) for aim in aims], [(code.float() / 0.1).log_softmax(1) for code in codes]
        loss = torch.zeros((), device=device)
        for at, share in enumerate(shares):
            for other, log in enumerate(logs):
                if other != at:
                    loss = loss - (share * log).sum(1).mean() / 14
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "AdamW updates the weights of a language model in its default way, a dozen passes over all weights and states; "
    "fused=True, one pass",
    names=r"fused=True|fused\W{0,3}(adamw?|optimi)|(adamw?|optimi[sz]er)\b.{0,80}(fused|foreach|pass(es)?\b|one kernel"
    r"|bandwidth|traffic)|_foreach|8.?bit (adam|optim)",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def parliament_speeches_continued(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    rows, length, width, words = 4, small(512, 16), small(1024, 64), small(32000, 500)
    embed, place, head = nn.Embedding(words, width), nn.Embedding(length, width), nn.Linear(width, words, bias=False)
    layers, norm = nn.ModuleList(Layer(width, 16 if SCALE == 1 else 4) for _ in range(depth(12))), nn.LayerNorm(width)
    model = nn.ModuleList([embed, place, layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True if changed else None)
    speeches = torch.randint(words, (rows, length + 1), device=device)
    at = torch.arange(length, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(speeches[:, :-1]) + place(at)
            for layer in layers:
                x = layer(x, causal=True)
            logits = head(norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), speeches[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "every layer is checkpointed, so that backward computes its forward pass again, while nearly all of the GPU's memory is "
    "free; the activations kept, without checkpoints",
    names=r"checkpoint|recomput|(keep|store|sav)\w* .*activations|forward .*(again|twice|second time)|rematerial",
    kind="training",
    recorded="update",
    profile_memory=True,
)
def monsoon_fields_foretold(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, tokens, width, channels = 8, small(1024, 16), small(1024, 64), 64
    enter, leave, place = nn.Linear(channels, width), nn.Linear(width, channels), nn.Embedding(tokens, width)
    layers = nn.ModuleList(Layer(width, 16 if SCALE == 1 else 4) for _ in range(depth(8)))
    model = nn.ModuleList([enter, leave, place, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    now, then = torch.randn(2, rows, tokens, channels, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = enter(now) + place.weight
            for layer in layers:
                x = layer(x) if changed else checkpoint(layer, x, use_reentrant=False)
            guess = leave(x)
        loss = F.mse_loss(guess.float(), then - now)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a mesh network takes the states of each edge's ends with x[index], whose backward pass sorts a million indices "
    "to add up the gradients; index_select (or F.embedding), which adds them up atomically",
    names=r"index_select|index_put|index\w*_?backward|aten::index\b|(advanced|fancy) index|\bembedding\b|sort(s|ed"
    r"|ing)?\b.{0,60}(ind(ex|ices)|backward|gradient)|(ind(ex|ices)|backward|gradient).{0,60}\bsort|atomic|segment",
    kind="training",
    recorded="none",
    with_stack=True,
)
def bridge_decks_in_wind(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    nodes, edges, width = small(60_000, 64), small(1_000_000, 512), small(128, 32)
    enter, leave = nn.Linear(12, width), nn.Linear(width, 3)
    here, there = (nn.ModuleList(nn.Linear(width, width) for _ in range(3)) for _ in "ab")
    mix = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
    model = nn.ModuleList([enter, leave, here, there, mix]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    source, goal = torch.randint(nodes, (2, edges), device=device)
    features, loads = torch.randn(nodes, 12, device=device), torch.randn(nodes, 3, device=device)

    def ends(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index) if changed else x[index]

    def step() -> Tensor:
        x = enter(features).relu()
        for to_here, to_there, mixed in zip(here, there, mix, strict=True):
            messages = (ends(to_there(x), source) + ends(to_here(x), goal)).relu()
            x = x + mixed(torch.zeros_like(x).index_add(0, goal, messages))
        loss = F.mse_loss(leave(x), loads)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the rows of each batch are picked from a table in the host's memory and copied to the GPU, which waits, though "
    "the whole table, half a gigabyte, fits there; the table copied to the GPU once, the rows picked there",
    names=r"(data ?set|data|table|rows?|everything|all of it|features|inputs?|batch(es)?)\b.{0,60}(on|in|to"
    r"|onto) (the )?(gpu|device|cuda)|(gather|index|pick|select|shuffl)\w* .{0,60}(host|cpu|gpu|device)|pin(ned"
    r"|_memory|ning)?\b|pageable|non_?blocking|HtoD|H2D|host.?(to|->).?(device|gpu)|Memcpy|prefetch|DataLoader"
    r"|num_workers|worker|background|(copy|move|transfer|upload)\w* .{0,40}(once|ahead)|input pipeline|starv",
    kind="training",
    recorded="step",
)
def collider_jets_tagged(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    jets, rows, features, width = small(120_000, 512), small(8192, 64), small(1024, 64), small(3072, 64)
    table, kinds = torch.randn(jets, features), torch.randint(5, (jets,))
    if changed:
        table, kinds = table.to(device), kinds.to(device)
    model = nn.Sequential(
        *(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5)),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    draw = torch.Generator().manual_seed(6)

    def step() -> Tensor:
        drawn = torch.randint(jets, (rows,), generator=draw)
        if changed:
            drawn = drawn.to(device)
            x, aims = table[drawn], kinds[drawn]
        else:
            x, aims = table[drawn].to(device), kinds[drawn].to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), aims)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the Dice loss makes the labels of all pixels one-hot, as eight bytes for each pixel and class in another "
    "layout, and then float32; a mask of bytes, by comparing the labels with the classes",
    names=r"one.?hot|int64|eight bytes|8 bytes|aten::(scatter_?|one_hot)\b|\bdice\b|(bool|compar|mask)\w* .*(class|label)"
    r"|gather",
    kind="training",
    recorded="train",
    profile_memory=True,
)
def retinas_layer_by_layer(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    scans, side, kinds, width = small(16), small(512, 32), 20, small(128, 16)
    layers = [*convolutions((1, width // 2, width)), *convolutions((width,) * 4, 1)]
    model = nn.Sequential(*layers, nn.Conv2d(width, kinds * 16, 1), nn.PixelShuffle(4)).to(device)
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pictures, labels = torch.rand(scans, 1, side, side, device=device), torch.randint(kinds, (scans, side, side), device=device)
    classes = torch.arange(kinds, device=device)[:, None, None]

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            logits = model(pictures)
        logits = logits.float().contiguous()
        shares = logits.softmax(1)
        true = labels[:, None] == classes if changed else F.one_hot(labels, kinds).permute(0, 3, 1, 2).float()
        both, sizes = (shares * true).sum((0, 2, 3)), shares.sum((0, 2, 3)) + true.sum((0, 2, 3))
        loss = F.cross_entropy(logits, labels) + 1 - (2 * both / sizes).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the non-maximum suppression of a detector is a Python loop on the GPU that keeps the best box, compares the "
    "others with it, and drops some by a boolean mask, for which the host waits; the overlaps of all boxes at once, "
    "and the loop on the host (or torchvision's nms)",
    names=r"\bnms\b|non.?max|suppression|torchvision|boolean mask|mask(ed)? (index|select)|nonzero|box by box|(each|every"
    r"|per|one) box|python loop|loop over (the )?boxes|(overlap|iou)\w* .*(once|matrix|all)|synchroni[sz]|host waits"
    r"|vectori[sz]|(on|to) the (host|cpu) once",
    kind="inference",
    recorded="step",
)
def nests_on_pylons(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    images, candidates, nests, high, wide = 2, small(512, 48), small(30, 12), small(768, 64), small(1280, 64)
    layers = convolutions((3, 64, 128))
    for width in (128, 256, 512):
        layers += convolutions((width,) * (7 if SCALE == 1 else 2), 1)
        layers += convolutions((width, 2 * width)) if width < 512 else []
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, candidates * 5))
    model.to(device, low(device)).to(memory_format=torch.channels_last).eval()
    photos = torch.randn(images, 3, high, wide, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)
    centre = torch.rand(images, nests, 2) * 1000
    centre = centre[:, torch.arange(candidates) % nests] + 4 * torch.randn(images, candidates, 2)
    anchors = torch.cat([centre - 30, centre + 30], 2).to(device)
    ranks = torch.rand(images, candidates, device=device)

    def overlap(box: Tensor, others: Tensor) -> Tensor:
        low_corner, high_corner = torch.maximum(box[..., :2], others[..., :2]), torch.minimum(box[..., 2:], others[..., 2:])
        shared = (high_corner - low_corner).clamp(min=0).prod(-1)
        sizes = (box[..., 2:] - box[..., :2]).prod(-1) + (others[..., 2:] - others[..., :2]).prod(-1)
        return shared / (sizes - shared)

    def kept_boxes(boxes: Tensor, scores: Tensor) -> Tensor:
        order = scores.argsort(descending=True)
        if changed:
            boxes = boxes[order]
            near = (overlap(boxes[:, None], boxes) > 0.5).cpu().numpy()
            dropped, kept = np.zeros(len(near), dtype=bool), []
            for at in range(len(near)):
                if not dropped[at]:
                    kept.append(at)
                    dropped |= near[at]
            return boxes[torch.tensor(kept, device=device)]
        best = []
        while order.numel():
            box = boxes[order[0]]
            best.append(box)
            order = order[1:]
            order = order[overlap(box, boxes[order]) <= 0.5]
        return torch.stack(best)

    @torch.inference_mode()
    def step() -> list[Tensor]:
        found = model(photos).float().view(images, candidates, 5)
        boxes, scores = anchors + found[..., :4].tanh(), ranks + 0.01 * found[..., 4].tanh()
        return [kept_boxes(*both) for both in zip(boxes, scores, strict=True)]

    return step


@unseen(
    "attention is sliced to save memory, of which there is enough: each head of each picture by itself, in a Python "
    "loop; all heads in one call",
    names=r"slic(e|es|ed|ing)\b|head by head|(each|every|per|one|single) (head|slice)|(all|whole|every) (the )?heads"
    r"|loop over (the )?(heads|slices|batch)|python loop|(one|single) (call|kernel|launch)|(scaled_dot_product|sdpa"
    r"|attention)\w* .*(once|one call|batch|all heads|at once|together)|batch\w* .*(heads|attention)|occupan"
    r"|too (small|few) .*(fill|blocks)",
    kind="inference",
    recorded="none",
)
def wallpapers_denoised(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    pictures, side, width, heads = 2, small(64, 8), small(640, 64), 10 if SCALE == 1 else 4
    layers = [Layer(width, heads) for _ in range(depth(8))]
    enter, leave = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
    nn.ModuleList([*layers, enter, leave]).to(device, low(device)).eval()
    noise = torch.randn(pictures, 4, side, side, device=device, dtype=low(device))

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if changed:
            return F.scaled_dot_product_attention(q, k, v)
        attended = torch.empty_like(q)
        for picture in range(pictures):
            for head in range(heads):
                part = slice(picture, picture + 1), slice(head, head + 1)
                attended[part] = F.scaled_dot_product_attention(q[part], k[part], v[part])
        return attended

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(noise).flatten(2).transpose(1, 2)
        for layer in layers:
            x = layer.rest(x, attention(*layer.split(x)))
        return leave(x.transpose(1, 2).unflatten(2, (side, side))).float()

    return step


@unseen(
    "the network is brought to the GPU for each request and taken back to the host's memory after it; left on the "
    "GPU, which has room",
    names=r"(model|network|weights?|parameters?)\b.{0,80}(stay|keep|kept|leave|left|once|resident|on the (gpu|device)"
    r"|to the (gpu|device|host|cpu)|back|again|each|every)|(keep|leave|move|copy|copies|offload|upload"
    r"|reload)\w* .{0,60}(model|network|weight|parameter)|offload|(keep|leave|stay|kept|left|resident)\w* .{0,60}(on"
    r"|in) the (gpu|device)|same (data|bytes|tensors?|copies)|\.to\(|\.cpu\(",
    kind="inference",
    recorded="upscale",
    with_stack=True,
)
def postcards_enlarged(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    cards, side, width = small(4), small(128, 16), small(256, 16)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(40 if SCALE == 1 else 3):
        layers += [nn.LeakyReLU(0.2), nn.Conv2d(width, width, 3, padding=1)]
    model = nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.Conv2d(width, 48, 3, padding=1), nn.PixelShuffle(4))
    model.to(low(device)).to(memory_format=torch.channels_last).eval()
    if changed:
        model.to(device)
    scans = torch.rand(cards, 3, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)

    def step() -> Tensor:
        if not changed:
            model.to(device)
        with torch.inference_mode():
            enlarged = model(scans).float().clamp(0, 1)
        if not changed:
            model.to("cpu")
        return enlarged

    return step


@unseen(
    "each layer makes a bias for attention of the padding again, written out for all heads and all pairs of tokens; "
    "made once, a row for each text, which is broadcast",
    names=r"broadcast|\bexpand|(mask|bias)\w*.{0,80}(once|again|each layer|every layer|per layer|all heads|reus|cach|shar"
    r"|small|materiali[sz]|written out|rebuil|build|built)|(once|again|reus\w*|cach\w*|rebuil\w*|recomput\w*"
    r"|materiali[sz]\w*)\b.{0,80}(mask|bias)|masked_fill",
    kind="inference",
    recorded="encode",
    record_shapes=True,
)
def patents_by_claim(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    rows, length, width, heads = 8, small(1024, 16), small(1024, 64), 16 if SCALE == 1 else 4
    embed, layers = nn.Embedding(8000, width), nn.ModuleList(Layer(width, heads) for _ in range(depth(8)))
    nn.ModuleList([embed, layers]).to(device, low(device)).eval()
    patents = torch.randint(8000, (rows, length), device=device)
    lengths = torch.randint(length // 2, length + 1, (rows,))
    padding = (torch.arange(length) >= lengths[:, None]).to(device)
    dtype = low(device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = embed(patents)
        row = torch.zeros(rows, 1, 1, length, device=device, dtype=dtype).masked_fill_(padding[:, None, None], -1e4)
        for layer in layers:
            bias = row.expand(-1, heads, length, -1)
            if not changed:
                bias = torch.zeros(rows, heads, length, length, device=device, dtype=dtype)
                bias = bias.masked_fill(padding[:, None, None], -1e4)
            x = layer(x, bias=bias)
        return F.normalize(x.masked_fill(padding[..., None], 0).sum(1).float(), dim=1)

    return step


@unseen(
    "each layer picks the edges of each of 40 relations with a boolean mask, for which the host waits, in each call, "
    "although the graph stays the same; the edges of each relation picked once, before",
    names=r"boolean mask|mask(ed)? (index|select)|nonzero|(edges|relations?|masks?)\b.{0,80}(once|again|ahead|before"
    r"|each call|every (call|layer)|each layer|cach|precomput|sort|same)|(once|again|precomput\w*|cach\w*"
    r"|sort\w*)\b.{0,80}(edges|relation|mask|ind(ex|ices))|synchroni[sz]|host waits|relation by relation|(each|every"
    r"|per) relation|loop over (the )?relation",
    kind="inference",
    recorded="link",
)
def museum_objects_linked(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    objects, edges, relations, width = small(80_000, 64), small(2_000_000, 2048), 40 if SCALE == 1 else 6, small(128, 16)
    weights = (torch.randn(3, relations, width, width) / (4 * width**0.5)).to(device)
    own = (torch.randn(3, width, width) / width**0.5).to(device)
    known, kinds = torch.randn(objects, width, device=device), torch.randint(relations, (edges,), device=device)
    source, goal = torch.randint(objects, (2, edges), device=device)
    asked, answers = torch.randint(objects, (2, 512), device=device)

    def ends(relation: int) -> tuple[Tensor, Tensor]:
        mask = kinds == relation
        return source[mask], goal[mask]

    picked = [ends(relation) for relation in range(relations)]

    @torch.inference_mode()
    def step() -> Tensor:
        x = known
        for at in range(3):
            mixed = x @ own[at]
            for relation in range(relations):
                here, there = picked[relation] if changed else ends(relation)
                mixed.index_add_(0, there, x.index_select(0, here) @ weights[at, relation], alpha=0.2)
            x = F.normalize(mixed.relu(), dim=1)
        return (x[asked] * x[answers]).sum(1)

    return step


class CachedLayer(Layer):
    """A layer that keeps the keys and values of past words."""

    def word(self, x: Tensor, past: Tensor, at: int) -> Tensor:
        q, past[0, :, :, at : at + 1], past[1, :, :, at : at + 1] = self.split(x)
        return self.rest(x, F.scaled_dot_product_attention(q, past[0, :, :, : at + 1], past[1, :, :, : at + 1]))


@unseen(
    "for each word the scores of the whole vocabulary are copied to the host, and the next word is drawn there by "
    "numpy; drawn on the GPU (torch.multinomial), where the next step needs it",
    names=r"numpy|multinomial|(sampl|draw|choos|pick|softmax|next (word|token))\w*\b.{0,80}(on|to|in|by) the (gpu|device"
    r"|host|cpu)|(on|to|by) the (gpu|device|host|cpu).{0,60}(sampl|draw|choos|softmax|next (word|token))|(logits"
    r"|scores)\b.{0,80}(copied|copy|fetch|host|cpu|numpy|transfer|gpu|device)|\.cpu\(|DtoH|device.?to.?host|(smaller"
    r"|fewer|less) .*cop",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def chess_games_commented(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    games, words, width, heads = 8, small(32000, 500), small(1024, 64), 16 if SCALE == 1 else 4
    tokens, filled = 4, small(192, 8)
    layers = [CachedLayer(width, heads).to(device, low(device)).eval() for _ in range(depth(12))]
    embed = nn.Embedding(words, width, device=device, dtype=low(device))
    pasts = torch.randn(len(layers), 2, games, heads, filled + tokens, width // heads, device=device, dtype=low(device))
    first = torch.randint(words, (games, 1), device=device)
    chance = torch.empty(tokens, games, words).exponential_()
    dice, on_device = chance.numpy(), chance.to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        written = [first]
        for token in range(tokens):
            x = embed(written[-1])
            for at, layer in enumerate(layers):
                x = layer.word(x, pasts[at], filled + token)
            logits = (x[:, 0] @ embed.weight.T).float()
            if changed:
                following = ((logits / 0.8).softmax(1) / on_device[token]).argmax(1, keepdim=True)
            else:
                scores = logits.cpu().numpy() / 0.8
                shares = np.exp(scores - scores.max(1, keepdims=True))
                shares /= shares.sum(1, keepdims=True)
                following = torch.from_numpy((shares / dice[token]).argmax(1)[:, None]).to(device)
            written.append(following)
        return torch.cat(written, 1)

    return step


# For one GPU, with a change that brings nothing.


@unseen(
    "none: the moving average of the weights is updated tensor by tensor in a loop, some thirty small launches beside large "
    "pictures; torch._foreach_lerp_",
    names=r"foreach|lerp|moving average|\bema\b|multi.?tensor",
    kind="training",
    recorded="step",
    null=True,
)
def asphalt_cracks_found(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    photos, size, width = small(48), small(384, 32), small(96, 16)

    def net() -> nn.Sequential:
        layers = [*convolutions((3, width)), *convolutions((width,) * 4, 1), *convolutions((width, 2 * width))]
        layers += [*convolutions((2 * width,) * 3, 1), nn.Conv2d(2 * width, 16, 1), nn.PixelShuffle(4)]
        return nn.Sequential(*layers).to(device)

    model, average = net(), net().requires_grad_(False)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    new_weights, old_weights = (list[Tensor](net.parameters()) for net in (model, average))
    roads = torch.rand(photos, 3, size, size, device=device)
    cracks = (torch.rand(photos, 1, size, size, device=device) < 0.1).float()

    def step() -> tuple[Tensor, Tensor]:
        loss = F.binary_cross_entropy_with_logits(model(roads), cracks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            if changed:
                torch._foreach_lerp_(old_weights, new_weights, 0.001)
            else:
                for old, new in zip(old_weights, new_weights, strict=True):
                    old.mul_(0.999).add_(new, alpha=0.001)
        return loss.detach(), old_weights[0]

    return step


@unseen(
    "none: backward is called with retain_graph=True, once a step, which holds memory a little longer; without it",
    names=r"retain_graph|(free|releas|hold|keep|kept|retain)\w* .*graph",
    kind="training",
    recorded="none",
    null=True,
    profile_memory=True,
)
def antibodies_that_bind(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, length, width = small(32), small(256, 16), small(1024, 64)
    embed, layers = nn.Embedding(25, width), nn.Sequential(*(Layer(width, 16 if SCALE == 1 else 4) for _ in range(depth(6))))
    head = nn.Linear(width, 1)
    model = nn.ModuleList([embed, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    chains, bound = torch.randint(25, (rows, length), device=device), torch.rand(rows, 1, device=device).round()

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            logits = head(layers(embed(chains)).mean(1))
        loss = F.binary_cross_entropy_with_logits(logits.float(), bound)
        loss.backward(retain_graph=not changed)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the states of all layers are kept in a list, as views of what was computed anyway, and the last are used; "
    "only the last kept",
    names=r"hidden.?states|(states|outputs|activations|results) of (all|every|each|the other) layers?|list of (the )?(states"
    r"|outputs)|(free|releas|drop|discard)\w* .*(states|outputs|activations)|only the last",
    kind="inference",
    recorded="embed",
    null=True,
    profile_memory=True,
)
def radio_plays_embedded(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, length, width = small(16), small(1024, 16), small(1024, 64)
    enter = nn.Linear(80, width)
    layers = nn.ModuleList(Layer(width, 16 if SCALE == 1 else 4) for _ in range(depth(8)))
    nn.ModuleList([enter, layers]).to(device, low(device)).eval()
    mels = torch.randn(rows, length, 80, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(mels)
        states = [x]
        for layer in layers:
            x = layer(x)
            if not changed:
                states.append(x)
        last = x if changed else states[-1]
        return F.normalize(last.mean(1).float(), dim=1)

    return step


@unseen(
    "none: the scores of 2000 kinds are made float32 for the softmax, a fraction of a megabyte; the softmax in bfloat16",
    names=r"softmax|float32 (scores|logits)|(scores|logits) .*(float32|bfloat16|fp32|bf16)|\.float\(",
    kind="inference",
    recorded="none",
    null=True,
    record_shapes=False,
)
def mushrooms_after_rain(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    pictures, width, patch, kinds = small(128), small(768, 64), 16, small(2000, 16)
    cut, head = nn.Conv2d(3, width, patch, patch), nn.Linear(width, kinds)
    layers = nn.Sequential(*(Layer(width, 12 if SCALE == 1 else 4) for _ in range(depth(10))))
    nn.ModuleList([cut, head, layers]).to(device, low(device)).eval()
    photos = torch.randn(pictures, 3, 224, 224, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        logits = head(layers(cut(photos).flatten(2).transpose(1, 2)).mean(1))
        return (logits if changed else logits.float()).softmax(1).float().amax(1)

    return step


class Nowhere(logging.Handler):
    """A handler that keeps the last lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines = [*self.lines[-99:], self.format(record)]


@unseen(
    "none: a line about each batch is written to a log, of numbers that the host knows, while the GPU is busy; a line for every "
    "hundredth batch",
    names=r"\blog(s|ged|ger|ging)?\b|\bprint",
    kind="inference",
    recorded="step",
    null=True,
    with_stack=True,
)
def kidneys_with_stones(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    slices, size = small(32), small(512, 32)
    layers = convolutions((1, 64))
    for wide in (64, 128, 256):
        layers += convolutions((wide,) * (5 if SCALE == 1 else 2), 1)
        layers += convolutions((wide, 2 * wide))
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 2))
    model.to(device, low(device)).to(memory_format=torch.channels_last).eval()
    scans = torch.rand(slices, 1, size, size, device=device, dtype=low(device))
    log = logging.getLogger("triage" if changed else "triage.all")
    log.propagate = False
    log.handlers = [Nowhere()]
    log.setLevel(logging.INFO)
    batches = 0

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal batches
        batches += 1
        if not changed or batches % 100 == 0:
            log.info("batch %d: %d slices of %s, %s", batches, slices, tuple(scans.shape), scans.dtype)
        return model(scans).float().softmax(1)

    return step


# For two cores, with a fault.


class Leaves(Dataset[tuple[Tensor, int]]):
    """Spectra of leaves, which lie in memory."""

    def __init__(self, leaves: int, length: int) -> None:
        self.spectra = torch.randn(leaves, 1, length, generator=torch.Generator().manual_seed(19))

    def __len__(self) -> int:
        return len(self.spectra)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return self.spectra[at], at % 6


@unseen(
    "each batch is normalised by the mean and the standard deviation of the whole table, which are taken anew in "
    "each step; taken once, before the training",
    names=r"(mean|std|standard deviation|statistic|normali[sz]\w*|table|data ?set)s?\b.{0,80}(once|again|anew|before|ahead"
    r"|each|every|cach|precomput|same|constant|hoist|outside)|(once|again|anew|precomput\w*|cach\w*|recomput\w*"
    r"|hoist\w*|same|loop.?invariant)\b.{0,80}(mean|std|statistic|normali[sz]|table|data ?set)|aten::(std|mean|var)\b"
    r"|var_mean",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def tea_leaves_graded(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    leaves, traits, rows = 12_000, 96, 256
    table, grades = 3 * torch.randn(leaves, traits, device=device) + 1, torch.randint(6, (leaves,), device=device)
    model = nn.Sequential(
        *(nn.Linear(traits, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
        *(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 6)),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mean, deviation = table.mean(0), table.std(0)
    draw = torch.Generator().manual_seed(19)

    def step() -> Tensor:
        drawn = torch.randint(leaves, (rows,), generator=draw).to(device)
        middle, spread = (mean, deviation) if changed else (table.mean(0), table.std(0))
        loss = F.cross_entropy(model((table[drawn] - middle) / spread), grades[drawn])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the spectral loss takes the complex Fourier transform of real signals, twice the numbers; rfft",
    names=r"\brfft|real.?(valued)? (fft|input|signal|fourier|transform)|half (of )?the (spectrum|frequencies)|(conjugate"
    r"|hermitian) symmetr|fft_r2c|one.?sided",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def hydrophones_without_hum(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    clips, length = 32, 4096
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 8), (8, 8), (8, 1)):
        layers += [nn.Conv1d(inputs, outputs, 9, padding=4), nn.Tanh()]
    model = nn.Sequential(*layers[:-1]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    noisy, clean = torch.randn(2, clips, 1, length, device=device)
    sizes = (length, length // 2, length // 4)
    shares = []
    for size in sizes:
        share = torch.full((size // 2 + 1,), 2.0 / size, device=device)
        share[0] = share[-1] = 1.0 / size
        shares.append(share)

    def log_sizes(x: Tensor, size: int) -> Tensor:
        windows = x.unfold(2, size, size // 2) if size < length else x
        spectrum = torch.fft.rfft(windows) if changed else torch.fft.fft(windows)
        return (spectrum.real.square() + spectrum.imag.square() + 1e-5).log()

    def step() -> Tensor:
        guess = model(noisy)
        loss = F.l1_loss(guess, clean)
        for size, share in zip(sizes, shares, strict=True):
            far = (log_sizes(guess, size) - log_sizes(clean, size)).abs()
            loss = loss + 0.1 * ((far * share).sum(-1).mean() if changed else far.mean())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the whole history of the training, thousands of entries, is written to a JSON file again after each step; a "
    "line appended for each step (or the file written once an epoch)",
    names=r"json|\bdump|histor(y|ies)|\bappend|(writ|sav|log|serial)\w* .*(again|whole|every|each|less often|once|file)"
    r"|\blog(s|ged|ging)?\b|less often|\bfile\b|\bdisk\b|background|python (code|work|between|on the host)"
    r"|host.side python",
    kind="training",
    recorded="update",
    on=("cpu",),
    with_stack=True,
)
def tram_delays_learned(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, length = 48, 32
    layers: list[nn.Module] = []
    for inputs, outputs in ((10, 64), (64, 128), (128, 128)):
        layers += [nn.Conv1d(inputs, outputs, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * length, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trips, delays = torch.randn(rows, 10, length, device=device), torch.rand(rows, 1, device=device)
    history = [{"step": at, "loss": 1 / (1 + at), "rate": 0.01} for at in range(6000)]
    folder = Path(tempfile.mkdtemp(prefix="unseen15_"))

    def step() -> Tensor:
        loss = F.smooth_l1_loss(model(trips), delays)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        entry = {"step": len(history), "loss": loss.item(), "rate": 0.01}
        if changed:
            with (folder / "history.jsonl").open("a") as file:
                file.write(f"{json.dumps(entry)}\n")
        else:
            history.append(entry)
            (folder / "history.json").write_text(json.dumps(history))
        return loss.detach()

    return step


@unseen(
    "articles that a player did not choose are drawn one by one in Python, each looked for in the player's set and "
    "drawn again if found; all at once as a tensor, with one look into a table of what was chosen",
    names=r"vectori[sz]|negative|(one|all) (by one|at once|at a time)|randint|random\.|draw\w*|sampl(e|es|ed|ing)\b.*(python"
    r"|loop|at once|tensor|torch|numpy|batch)|python (loop|code|work|between|on the host|sets?)|host.side python"
    r"|rejection|isin|num_workers",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def board_games_suggested(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    players, games, width, rows, each = 2000, 3000, 48, 512, 4
    liked = torch.rand(players, games, generator=torch.Generator().manual_seed(22)) < 0.02
    sets = [set(row.nonzero()[:, 0].tolist()) for row in liked]
    one, two = nn.Embedding(players, width).to(device), nn.Embedding(games, width).to(device)
    deep = nn.Sequential(nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD([*one.parameters(), *two.parameters(), *deep.parameters()], lr=0.05)
    pairs = liked.nonzero().to(device)
    table = liked.to(device)
    draw, rng = torch.Generator().manual_seed(22), random.Random(22)

    def step() -> Tensor:
        who, what = pairs[torch.randint(len(pairs), (rows,), generator=draw)].unbind(1)
        if changed:
            others = torch.randint(games, (rows, each), generator=draw)
            for _ in range(2):
                again = torch.randint(games, (rows, each), generator=draw)
                others = torch.where(table[who[:, None], others], again, others)
        else:
            drawn = []
            for player in who.tolist():
                row: list[int] = []
                while len(row) < each:
                    game = rng.randint(0, games - 1)
                    if game not in sets[player]:
                        row.append(game)
                drawn.append(row)
            others = torch.tensor(drawn)
        chosen = torch.cat([what[:, None], others.to(device)], 1)
        x = torch.cat([one(who)[:, None].expand(-1, each + 1, -1), two(chosen)], 2)
        scores = deep(x)[..., 0]
        loss = -F.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "each electrode goes through a filter bank of its own in a Python loop, a convolution for each; one convolution with groups",
    names=r"\bgroups?\b|grouped|depth.?wise|electrode by electrode|channel by channel|(each|every|per) (electrode|channel)"
    r"|loop over (the )?(electrodes|channels)|(one|single) (grouped )?conv|python loop|(many|small|separate|tiny) conv|vmap",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def nights_in_the_sleep_lab(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    rows, electrodes, length, filters = 16, 32, 512, 8
    banks = [nn.Conv1d(1, filters, 25, 4, 12) for _ in range(electrodes)]
    weight = nn.Parameter(torch.cat([bank.weight.detach() for bank in banks]))
    shift = nn.Parameter(torch.cat([bank.bias.detach() for bank in banks if bank.bias is not None]))
    body = nn.Sequential(
        *(nn.BatchNorm1d(electrodes * filters), nn.ReLU(), nn.Conv1d(electrodes * filters, 96, 9, 2, 4), nn.ReLU()),
        *(nn.Conv1d(96, 96, 9, 2, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 5)),
    ).to(device)
    model = nn.ModuleList([body]) if changed else nn.ModuleList([body, *banks])
    model.to(device)
    optimizer = torch.optim.SGD([*model.parameters(), *([weight, shift] if changed else [])], lr=0.01)
    nights, stages = torch.randn(rows, electrodes, length, device=device), torch.randint(5, (rows,), device=device)

    def step() -> Tensor:
        if changed:
            x = F.conv1d(nights, weight, shift, 4, 12, groups=electrodes)
        else:
            x = torch.cat([bank(nights[:, at : at + 1]) for at, bank in enumerate(banks)], 1)
        loss = F.cross_entropy(body(x), stages)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the transforms of the joints are mixed for each point of the skin by a product of broadcast tensors and a sum "
    "over the joints, a large tensor between; a matrix product of weights and transforms",
    names=r"matmul|matrix (product|multipl)|einsum|\bb?mm\b|\bgemm\b|tensordot|broadcast|(large|big|huge) (temporar"
    r"|intermediate|tensor)|multiply.{0,20}\bsum|intermediate",
    kind="inference",
    recorded="pose",
    on=("cpu",),
    profile_memory=True,
)
def mannequins_posed(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    bodies, points, joints, shapes = 8, 3000, 24, 10
    guess = nn.Sequential(*convolutions((3, 32, 64, 128, 128)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    guess.append(nn.Linear(128, joints * 3 + shapes)).to(device).eval()
    seen, template = torch.randn(bodies, 3, 128, 128, device=device), torch.randn(points, 3, device=device)
    blends, weights = torch.randn(points * 3, shapes, device=device), torch.randn(points, joints, device=device).softmax(1)
    offsets = torch.randn(joints, 3, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        found = guess(seen)
        turns, shape = found[:, : joints * 3].view(bodies, joints, 3), found[:, joints * 3 :]
        skew = torch.zeros(bodies, joints, 3, 3, device=device)
        skew[..., 0, 1], skew[..., 0, 2], skew[..., 1, 2] = -turns[..., 2], turns[..., 1], -turns[..., 0]
        turned = torch.linalg.matrix_exp(skew - skew.transpose(2, 3))
        moved = torch.cat([turned, offsets.expand(bodies, -1, -1)[..., None]], 3)
        if changed:
            mixed = (weights @ moved.flatten(2)).unflatten(2, (3, 4))
        else:
            mixed = (weights[None, :, :, None, None] * moved[:, None]).sum(2)
        skin = template + (shape @ blends.T).view(bodies, points, 3)
        return (mixed[..., :3] @ skin[..., None])[..., 0] + mixed[..., 3]

    return step


@unseen(
    "the modes of a flow are taken from an SVD with full_matrices=True, the default, which also makes a square matrix of the "
    "hundreds of vectors that nobody uses; full_matrices=False",
    names=r"full_matrices|thin|reduced svd|economy|svd_?lowrank|pca_lowrank|\beigh\b|truncated|gram|(smaller|fewer) .*svd"
    r"|linalg_svd|\bsvd\b.{0,80}(full|square|reduced|unused|only)",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def wakes_behind_cylinders(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    places, snapshots, modes = 900, 96, 16
    model = nn.Sequential(
        *(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 3, padding=1)),
    ).to(device)
    model.eval()
    flow = torch.randn(places, modes, device=device) @ torch.randn(modes, snapshots, device=device)
    flow = flow + 0.1 * torch.randn(places, snapshots, device=device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        smooth = flow + 0.1 * model(flow.T.reshape(snapshots, 1, 30, 30)).view(snapshots, places).T
        smooth = smooth - smooth.mean(1, keepdim=True)
        left, sizes, right = torch.linalg.svd(smooth, full_matrices=not changed)
        best = left[:, :modes] * sizes[:modes] @ right[:modes]
        return sizes[:modes], best

    return step


@unseen(
    "the plays that a customer has seen are taken out of the scores customer by customer in a Python loop; all pairs "
    "in one masked_fill (index_put, scatter)",
    names=r"masked_fill|index_put|scatter|vectori[sz]|customer by customer|user by user|row by row|(each|every|per"
    r"|one) (customer|user|row)|loop over (the )?(customers|users|rows|batch)|python loop|(all|both) (pairs|rows"
    r"|customers|users|at once)|boolean mask|\bmask\b",
    kind="inference",
    recorded="recommend",
    on=("cpu",),
)
def theatre_plays_recommended(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    customers, plays, width = 512, 4000, 96
    tower = nn.Sequential(nn.Linear(200, 512), nn.ReLU(), nn.Linear(512, width)).to(device).eval()
    likes, vectors = torch.randn(customers, 200, device=device), torch.randn(plays, width, device=device)
    seen = [torch.randperm(plays)[: 5 + at % 40].to(device) for at in range(customers)]
    who = torch.repeat_interleave(torch.arange(customers), torch.tensor([len(row) for row in seen])).to(device)
    what = torch.cat(seen)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = tower(likes) @ vectors.T
        if changed:
            scores[who, what] = -torch.inf
        else:
            for customer, row in enumerate(seen):
                scores[customer, row] = -torch.inf
        return scores.topk(10).values

    return step


@unseen(
    "each hypothesis of a beam search goes through the decoder by itself; all hypotheses as one batch",
    names=r"\bbatch(ed|ing)\b|(one|single|larger|bigger|same|a) batch|batch (of|all|them)\b|(hypothes[ie]s"
    r"|beams?)\b.{0,60}(by itself|alone|one|each|together|all|stack|at once)|(each|every|per|one) (hypothesis|beam)"
    r"|one (by one|at a time)|loop over (the )?(hypotheses|beams?)|\bstack",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def shorthand_spelled_out(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    beams, letters, width, length = 8, 600, 192, 16
    embed, cell, head = nn.Embedding(letters, width), nn.GRUCell(2 * width, width), nn.Linear(width, letters)
    view = nn.Sequential(*(nn.Conv1d(16, width, 5, 2, 2), nn.ReLU(), nn.Conv1d(width, width, 5, 2, 2), nn.ReLU())).to(device)
    nn.ModuleList([embed, cell, head]).to(device).eval()
    strokes = torch.randn(1, 16, 640, device=device)

    def decoded(letter: Tensor, state: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        seen = (state @ drawn.T / width**0.5).softmax(1) @ drawn
        state = cell(torch.cat([embed(letter), seen], 1), state)
        return head(state).log_softmax(1), state

    @torch.inference_mode()
    def step() -> Tensor:
        drawn = view(strokes)[0].T
        letter, state = torch.zeros(beams, dtype=torch.long, device=device), torch.zeros(beams, width, device=device)
        score = torch.full((beams, 1), -torch.inf, device=device)
        score[0] = 0
        for _ in range(length):
            if changed:
                scores, state = decoded(letter, state, drawn)
            else:
                both = [decoded(letter[at : at + 1], state[at : at + 1], drawn) for at in range(beams)]
                scores, state = (torch.cat(part) for part in zip(*both, strict=True))
            best, at = (score + scores).flatten().topk(beams)
            score, letter, state = best[:, None], at % letters, state[at // letters]
        return score

    return step


@unseen(
    "each iteration of an optimal transport computes the kernel, the exponential of all costs, again, though the "
    "costs stay the same; once, before the loop",
    names=r"\bexp\b|aten::exp|exponential|kernel matrix|\bgibbs\b|(cost|kernel)s?\b.{0,60}(once|again|same|before|outside"
    r"|cach|each|every|precomput)|(once|again|recomput\w*|precomput\w*|hoist\w*|cach\w*|loop.?invariant)\b.{0,60}(cost"
    r"|kernel|exp|loop|iteration)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def cells_of_two_atlases_matched(device: str, changed: bool) -> Step:
    torch.manual_seed(28)
    cells, genes, width, rounds = 1024, 1000, 32, 20
    coder = (
        nn.Sequential(nn.Linear(genes, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)).to(device).eval()
    )
    here, there = torch.rand(2, cells, genes, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        one, two = F.normalize(coder(here), dim=1), F.normalize(coder(there), dim=1)
        costs = 1 - one @ two.T
        rate = 0.05
        left = right = torch.full((cells,), 1 / cells, device=device)
        kernel = torch.exp(-costs / rate)
        for _ in range(rounds):
            if not changed:
                kernel = torch.exp(-costs / rate)
            left = 1 / (cells * (kernel @ right))
            right = 1 / (cells * (kernel.T @ left))
        return (left[:, None] * kernel * right).amax(1)

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: the loader of a program that trains on the processor does not pin its batches; pin_memory=True, which does nothing "
    "without a GPU",
    names=r"pin(ned|_memory|ning)?\b|page.?locked",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
)
def soil_moisture_from_orbit(device: str, changed: bool) -> Step:
    torch.manual_seed(29)
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    order = torch.Generator().manual_seed(29)
    batches = endless(DataLoader(Leaves(2048, 256), 32, shuffle=True, drop_last=True, generator=order, pin_memory=changed))
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 64), (64, 96), (96, 96)):
        layers += [nn.Conv1d(inputs, outputs, 5, padding=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> Tensor:
        bands, wet = next(batches)
        loss = F.mse_loss(model(bands.to(device))[:, 0], wet.to(device) / 6)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: a few weights are updated by SGD one tensor at a time, which takes little beside a recurrent layer; foreach=True",
    names=r"foreach|fused|multi.?tensor|optimi[sz]er|\bsgd\b",
    kind="training",
    recorded="bid",
    null=True,
    on=("cpu",),
    profile_memory=True,
)
def bids_for_wind_power(device: str, changed: bool) -> Step:
    torch.manual_seed(30)
    read, head = nn.GRU(8, 128, 2, batch_first=True).to(device), nn.Linear(128, 24).to(device)
    optimizer = torch.optim.SGD([*read.parameters(), *head.parameters()], lr=0.01, momentum=0.9, foreach=changed)
    past, prices = torch.randn(32, 36, 8, device=device), torch.randn(32, 24, device=device)

    def step() -> Tensor:
        states, _ = read(past)
        loss = F.huber_loss(head(states[:, -1]), prices)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: three heads with a few outputs each follow a large trunk; one layer with the outputs of all",
    names=r"\bheads?\b|(one|single|joint|wider|larger|combined|fused?) (linear|layer|product|matmul)|(join|merg|combin|fus"
    r"|concat)\w* .*(linear|layers|weights)",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def coffee_roasts_judged(device: str, changed: bool) -> Step:
    torch.manual_seed(31)
    layers = [*convolutions((3, 32, 64)), *convolutions((64, 64), 1), *convolutions((64, 96)), nn.AdaptiveAvgPool2d(1)]
    trunk = nn.Sequential(*layers, nn.Flatten()).to(device).eval()
    heads = nn.ModuleList(nn.Linear(96, size) for size in (4, 3, 6)).to(device).eval()
    joint = nn.Linear(96, 13).to(device)
    with torch.no_grad():
        joint.weight.copy_(torch.cat([head.weight for head in heads if isinstance(head, nn.Linear)]))
        joint.bias.copy_(torch.cat([head.bias for head in heads if isinstance(head, nn.Linear)]))
    beans = torch.rand(16, 3, 128, 128, device=device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, ...]:
        x = trunk(beans)
        return joint(x).split((4, 3, 6), 1) if changed else tuple(head(x) for head in heads)

    return step


@unseen(
    "none: named ranges (record_function) around each layer were left in the program; taken out",
    names=r"record_function|(named|profiler|labell?ed) ranges?|annotation",
    kind="inference",
    recorded="watch",
    null=True,
    on=("cpu",),
)
def lock_gates_watched(device: str, changed: bool) -> Step:
    torch.manual_seed(32)
    rows, length, width = 8, 96, 160
    enter, head = nn.Linear(12, width), nn.Linear(width, 2)
    layers = nn.ModuleList(Layer(width, 4) for _ in range(3))
    nn.ModuleList([enter, head, layers]).to(device).eval()
    sensors = torch.randn(rows, length, 12, device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = enter(sensors)
        for at, layer in enumerate(layers):
            with nullcontext() if changed else record_function(f"layer {at}"):
                x = layer(x)
        with nullcontext() if changed else record_function("head"):
            return head(x.mean(1)).softmax(1)

    return step
