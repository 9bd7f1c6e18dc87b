"""A twenty-first set of small programs, for one GPU and for two cores, with one performance fault each, written without a look
at the reader."""

from itertools import pairwise
from pathlib import Path
import tempfile
from typing import Any

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, endless, low, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# For the GPU, with a fault.


@unseen(
    "the loss of a detector is taken picture by picture, in a Python loop, with boolean masks that pick the cells "
    "with an apple, "
    "and the host waits for each of them; all pictures at once, what does not count multiplied by zero (torch.where)",
    names=r"boolean (mask|index)\w*|mask\w* .{0,40}(index\w*|select\w*|sync\w*|wait\w*|loop|multipl\w*|weight\w*)|masked_select"
    r"|nonzero|torch\.where|(image|picture|sample|photo|row) by (image|picture|sample|photo|row)|(loop\w*|each"
    r"|every|per) .{0,20}"
    r"(image|picture|sample|photo)s?\b|python loop|vectori[sz]|data.?dependent|aten::index\b|sync\w* .{0,60}(loop|mask|index)"
    r"|all (\w+ ){0,2}(images|pictures|samples|rows) at once|(whole|entire) batch",
    kind="training",
    recorded="step",
    with_stack=True,
)
def orchard_apples_boxed(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide = small(64, 4), 256 if SCALE == 1 else 32, small(64, 8)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(4), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(5), 1), *convolutions((2 * wide, 2 * wide)), nn.Conv2d(2 * wide, 5, 1)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    photos = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    cells = (side // 8) ** 2
    chance = torch.rand(rows, cells)
    chance[:, 0] = 0.0
    # 1: an apple, 0: none, -1: not to be counted
    meant = torch.where(chance < 0.05, 1.0, torch.where(chance < 0.9, 0.0, -1.0)).to(device)
    placed = torch.rand(rows, cells, 4, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            out = model(photos)
        out = out.float().flatten(2).transpose(1, 2)
        scores, boxes = out[..., 0], out[..., 1:]
        if changed:
            counted, apples = (meant >= 0).float(), (meant > 0).float()
            unsure = F.binary_cross_entropy_with_logits(scores, meant.clamp(min=0), reduction="none")
            off = F.smooth_l1_loss(boxes, placed, reduction="none").mean(2)
            loss = ((unsure * counted).sum(1) / counted.sum(1) + (off * apples).sum(1) / apples.sum(1)).mean()
        else:
            losses = []
            for row in range(rows):
                valid, apple = meant[row] >= 0, meant[row] > 0
                sure = F.binary_cross_entropy_with_logits(scores[row][valid], meant[row][valid])
                losses.append(sure + F.smooth_l1_loss(boxes[row][apple], placed[row][apple]))
            loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the structural similarity in a loss blurs with a square window of 11 x 11 weights for each channel, five times a step and "
    "back; the bell curve comes apart, so blurs along the rows and then along the columns, 11 weights each",
    names=r"separab\w*|(two|1.?d|one.?dimensional) (passes|blurs?|convolutions?|kernels?|filters?)|11 ?[x*] ?1\b"
    r"|1 ?[x*] ?11\b"
    r"|depth.?wise|grouped? conv\w*|groups=|\bssim\b|structural similarity|gaussian|\bblur\w*|11 ?[x*] ?11|window\w* "
    r".{0,40}(conv\w*|loss|weights)|avg_pool|box filter|large (kernel|window|filter)",
    kind="training",
    recorded="none",
)
def night_photos_cleared(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    rows, side, wide, size = small(16), 256 if SCALE == 1 else 32, small(64, 8), 11
    net = [*convolutions((3, wide), 1), *convolutions((wide,) * depth(5), 1), nn.Conv2d(wide, 3, 3, 1, 1)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    dark = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    bright = torch.rand(rows, 3, side, side, device=device)
    bell = torch.exp(-((torch.arange(size) - size // 2) ** 2) / (2 * 1.5**2))
    bell = (bell / bell.sum()).to(device)
    square, along = (bell[:, None] * bell).expand(3, 1, size, size).contiguous(), bell.expand(3, 1, 1, size).contiguous()
    down = along.transpose(2, 3).contiguous()

    def blur(x: Tensor) -> Tensor:
        if changed:
            return F.conv2d(F.conv2d(x, along, groups=3), down, groups=3)
        return F.conv2d(x, square, groups=3)

    def likeness(x: Tensor, y: Tensor) -> Tensor:
        mean_x, mean_y = blur(x), blur(y)
        var_x, var_y, both = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2, blur(x * y) - mean_x * mean_y
        top = (2 * mean_x * mean_y + 1e-4) * (2 * both + 9e-4)
        return (top / ((mean_x**2 + mean_y**2 + 1e-4) * (var_x + var_y + 9e-4))).mean()

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            made = model(dark)
        made = made.float().contiguous().sigmoid()
        loss = F.l1_loss(made, bright) + 0.2 * (1 - likeness(made, bright))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "entropy and certainty of the predictions, over 50000 words at each place, are worked out in every step for the log; in "
    "every hundredth step",
    names=r"entropy(?!_loss)(?! loss)|certain\w*|confiden\w*|metric\w*|\blog(s|ged|ging)\b|monitor\w*|diagnostic\w*"
    r"|statistic\w*"
    r"|every (n|\d+|few|hundred\w*|k)[- ]?(th)? (step|batch|iteration)|less often|(second|another|extra|additional|redundant"
    r"|repeated|twice) .{0,30}softmax|softmax .{0,60}(again|twice|second|besides|log_softmax|already|separate\w*)",
    kind="training",
    recorded="train",
    profile_memory=True,
)
def folk_tales_continued(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    rows, length, width, words = small(8), small(1024, 32), small(512, 64), small(50304, 200)
    embed, place, norm = nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width)
    layers = nn.ModuleList(Layer(width, max(2, width // 64), causal=True) for _ in range(depth(8)))
    head = nn.Linear(width, words, bias=False)
    model = nn.ModuleList([embed, place, norm, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tales = torch.randint(words, (rows, length + 1), device=device)
    watched, turn = torch.zeros(3, device=device), 0

    @torch.no_grad()
    def watch(scores: Tensor, meant: Tensor) -> None:
        chances = scores.softmax(-1)
        watched[0] = -(chances * (chances + 1e-9).log()).sum(-1).mean()
        watched[1] = chances.amax(-1).mean()
        watched[2] = (scores.argmax(-1) == meant).float().mean()

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(tales[:, :-1]) + place.weight
            for layer in layers:
                x = layer(x)
            scores = head(norm(x))
        scores, meant = scores.float().flatten(0, 1), tales[:, 1:].flatten()
        loss = F.cross_entropy(scores, meant)
        if not changed or turn % 100 == 0:
            watch(scores, meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a network that learns a flow from its equation is called for the points of each of ten edges by itself, small batches and "
    "tiny kernels forward and back; the points of all edges joined, one call",
    names=r"boundar\w*|\bedges?\b|(one|single|joint|larger|bigger) (\w+ ){0,3}(call|batch|forward|pass)|concat\w*|torch\.cat"
    r"|\bjoin\w*|batch(ed|ing)? (the|all|them|together|these)|launch.?bound|launch overhead|cuda.?graph|reduce-overhead"
    r"|(many|tiny|small|short|hundreds of|thousands of) (\w+ )?(kernel|launch|batch|call)|torch\.compile"
    r"|(called|calls|runs|forward\w*) .{0,40}(ten|10|11|times|separate\w*|repeated\w*)",
    kind="training",
    recorded="none",
    record_shapes=False,
)
def heat_in_a_furnace_wall(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    inner, edge, edges, width = small(8192, 64), small(512, 8), 10, small(128, 16)
    net: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(depth(4)):
        net += [nn.Linear(width, width), nn.Tanh()]
    model = nn.Sequential(*net, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    places = torch.rand(inner, 2, device=device, requires_grad=True)
    borders = [torch.rand(edge, 2, device=device) for _ in range(edges)]
    known = [torch.rand(edge, 1, device=device) for _ in range(edges)]
    all_borders, all_known = torch.cat(borders), torch.cat(known)

    def step() -> Tensor:
        heat = model(places)
        slope = torch.autograd.grad(heat.sum(), places, create_graph=True)[0]
        bend = torch.autograd.grad(slope[:, 0].sum(), places, create_graph=True)[0][:, 0]
        loss = (slope[:, 1] - 0.1 * bend).square().mean()
        if changed:
            loss = loss + edges * F.mse_loss(model(all_borders), all_known)
        else:
            for border, value in zip(borders, known, strict=True):
                loss = loss + F.mse_loss(model(border), value)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the rotation of each of 52 joints is made by itself, in a Python loop of small operations forward and back; "
    "the matrices of "
    "all joints at once, the joints as a dimension of the batch",
    names=r"joint by joint|(loop\w*|each|every|per|all|52) .{0,20}(joint|rotation|bone)s?\b|rodrigues|rotation matri\w*"
    r"|python loop"
    r"|vectori[sz]|batch(ed|ing)? (the|all|them|over|dimension)|launch.?bound|launch overhead|cuda.?graph|reduce-overhead"
    r"|(many|tiny|small|short|hundreds of|thousands of) (\w+ )?(kernel|launch|op)|torch\.compile|\bvmap\b",
    kind="training",
    recorded="fit",
    with_stack=True,
)
def dancers_poses_from_video(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, side, wide, joints, skin = small(128, 4), 128 if SCALE == 1 else 32, small(64, 8), 52, small(1024, 20)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(4), 1), *convolutions((wide, 2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(4), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, 3 * joints)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    frames = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    rest, meant = torch.randn(skin, 3, device=device), torch.randn(rows, skin, 3, device=device)
    pull = torch.rand(skin, joints, device=device).softmax(1)

    def rotation(turn: Tensor) -> Tensor:
        angle = (turn.square().sum(-1, keepdim=True) + 1e-8).sqrt()
        x, y, z = (turn / angle).unbind(-1)
        sine, cosine, nought = angle.sin()[..., None], angle.cos()[..., None], torch.zeros_like(x)
        skew = torch.stack([nought, -z, y, z, nought, -x, -y, x, nought], -1).unflatten(-1, (3, 3))
        return torch.eye(3, device=turn.device) + sine * skew + (1 - cosine) * (skew @ skew)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            turns = model(frames)
        turns = turns.float().unflatten(1, (joints, 3))
        matrices = rotation(turns) if changed else torch.stack([rotation(turns[:, joint]) for joint in range(joints)], 1)
        blended = torch.einsum("sj,bjxy->bsxy", pull, matrices)
        loss = F.l1_loss((blended @ rest[:, :, None]).squeeze(3), meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "pictures are mirrored, cut and brightened on the GPU one by one in a Python loop, whose ifs and slices wait for the coins "
    "that lie there; all pictures at once, by indices and torch.where",
    names=r"(image|picture|sample|photo|row) by (image|picture|sample|photo|row)|one by one|(loop\w*|each|every|per) .{0,20}"
    r"(image|picture|sample|photo)s?\b|python loop|vectori[sz]|augment\w*|batch(ed|ing)? (the|all|them|augment\w*"
    r"|flip\w*|crop\w*)"
    r"|sync\w* .{0,60}(loop|if\b|each|item|int\(|bool)|\.item\(\)|_local_scalar_dense|data.?dependent|(on|to"
    r"|from) the (host|cpu)"
    r" .{0,40}(draw|random|coin)|(random|coin|draw)\w* .{0,40}(host|cpu|python)|torch\.where|grid_sample|kornia",
    kind="training",
    recorded="step",
)
def fungi_on_bread(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    rows, side, cut, wide, kinds = small(128, 4), 112, 96, small(64, 8), 12
    if SCALE > 1:
        side, cut = 40, 32
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(4), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(5), 1), *convolutions((2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(4), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, kinds)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    photos = torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, device=device)
    meant = torch.randint(kinds, (rows,), device=device)
    along, spare = torch.arange(cut, device=device), side - cut + 1
    number, colour = torch.arange(rows, device=device)[:, None, None, None], torch.arange(3, device=device)[:, None, None]

    def altered() -> Tensor:
        coins = torch.rand(rows, 4, device=device)
        if changed:
            top, left = (coins[:, 1:3] * spare).long().clamp(max=spare - 1).unbind(1)
            across = torch.where(coins[:, :1] < 0.5, along.flip(0), along) + left[:, None]
            down = top[:, None] + along
            seen = photos[number, colour, down[:, None, :, None], across[:, None, None, :]].float() / 255
            return (seen * (0.8 + 0.4 * coins[:, 3])[:, None, None, None]).clamp(0, 1)
        made = []
        for row in range(rows):
            coin = coins[row]
            high, side_on = min(int(coin[1] * spare), spare - 1), min(int(coin[2] * spare), spare - 1)
            one = photos[row, :, high : high + cut, side_on : side_on + cut].float() / 255
            if coin[0] < 0.5:
                one = one.flip(2)
            made.append((one * (0.8 + 0.4 * coin[3])).clamp(0, 1))
        return torch.stack(made)

    def step() -> Tensor:
        seen = altered().contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(seen)
        loss = F.cross_entropy(scores.float(), meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Scans(Dataset[tuple[Tensor, int]]):
    """Clouds of points, thinned, turned and jittered by numpy."""

    def __init__(self, clouds: np.ndarray[Any, Any], kinds: list[int], points: int) -> None:
        self.clouds, self.kinds, self.points = clouds, kinds, points

    def __len__(self) -> int:
        return len(self.clouds)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        chance = np.random.default_rng(at)
        cloud = self.clouds[at][chance.choice(self.clouds.shape[1], self.points, replace=False)]
        cloud = cloud - cloud.mean(0)
        cloud = cloud / np.sqrt((cloud**2).sum(1)).max()
        angle = chance.uniform(0, 2 * np.pi)
        turned = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        cloud = cloud @ turned + np.clip(chance.normal(0, 0.01, cloud.shape), -0.05, 0.05)
        return torch.from_numpy(cloud.T.astype(np.float32)), self.kinds[at]


@unseen(
    "the loader has no workers, so that each cloud of points is thinned, turned and jittered in the training process while the "
    "GPU waits; num_workers=8",
    names=r"num_workers|\bworkers?\b|data ?-?load(er|ing)|prefetch|input pipeline|augment\w*|pre-?process\w* .{0,60}(gpu"
    r"|process"
    r"|thread|ahead|background|overlap|host|step)|background (thread|process)|__getitem__"
    r"|(waits?|waiting|idle|starv\w*) .{0,40}(data\b|next batch|batches|input)",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def trees_told_by_laser(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    kept, rows, every, points, wide, kinds = small(512, 32), small(32, 4), small(8192, 300), small(2048, 100), small(128, 8), 14
    clouds = np.random.default_rng(7).standard_normal((kept, every, 3)).astype(np.float32)
    data = Scans(clouds, torch.randint(kinds, (kept,)).tolist(), points)
    workers = (8 if SCALE == 1 else 1) if changed else 0
    order = [at for _ in range(20) for at in torch.randperm(kept).tolist()]
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
    net: list[nn.Module] = []
    for inputs, outputs in pairwise((3, wide, wide, 2 * wide, 4 * wide, 8 * wide)):
        net += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
    head = nn.Sequential(nn.Linear(8 * wide, 4 * wide), nn.ReLU(), nn.Linear(4 * wide, kinds)).to(device)
    model = nn.Sequential(*net).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3, fused=True)

    def step() -> Tensor:
        cloud, meant = next(batches)
        cloud, meant = cloud.to(device, non_blocking=True), meant.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = head(model(cloud).amax(2))
        loss = F.cross_entropy(scores.float(), meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the scores of all twelve classes at every pixel are copied to the host as float32, and the best class is "
    "found there; argmax "
    "on the GPU, and the classes alone copied, as bytes",
    names=r"argmax|d2h|dtoh|device.?(to|->|-).?host|(gpu|device|cuda)\W* ?(to|->) ?(the )?(cpu|host)|uint8|\bbytes?\b"
    r"|(copy|copies|copied|transfer\w*|download\w*|memcpy\w*) .{0,60}(host|cpu|scores|logits|smaller|less|class)|\.cpu\(\)"
    r"|(on|by) the (host|cpu) .{0,40}(argmax|class|reduc\w*|max)|pageable|pinned",
    kind="inference",
    recorded="none",
)
def wetlands_mapped_by_drone(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    rows, side, wide, kinds = small(4), 384 if SCALE == 1 else 64, small(128, 8), 12
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(6), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(8), 1), nn.Conv2d(2 * wide, kinds, 1)]
    model = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    tiles = torch.rand(rows, 3, side, side, device=device).to(low(device)).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = F.interpolate(model(tiles).float().contiguous(), scale_factor=4.0, mode="bilinear")
        if changed:
            return scores.argmax(1).to(torch.uint8).cpu()
        return scores.cpu().argmax(1).to(torch.uint8)

    return step


@unseen(
    "the candidates of a detector are gone through in a Python loop that asks of each score on the GPU whether it "
    "is high enough, "
    "and fetches boxes one by one, for which the host waits each time; all copied to the host at once (tolist) "
    "ahead of the loop",
    names=r"tolist|\.item\(\)|_local_scalar_dense|python loop|one by one|(loop\w*|each|every|per) .{0,25}(box|candidate"
    r"|detection"
    r"|score|element|vehicle|object)\w*|(copy|copies|copied|transfer\w*|fetch\w*|move\w*|bring\w*"
    r"|read\w*) .{0,60}(once|together"
    r"|bulk|one (copy|transfer)|ahead|before)|(many|tiny|small|hundreds of|repeated) .{0,30}(cop(y|ies)|transfers?"
    r"|memcpy\w*|syncs?"
    r"|synchroni\w*|reads?|d2h|dtoh)|(cop(y|ies)|transfers?|memcpy\w*|d2h|dtoh|synchroni\w*|syncs?"
    r"|waits?) .{0,60}(loop|each|every"
    r"|element|small|tiny|many)|boolean mask|vectori[sz]",
    kind="inference",
    recorded="request",
    with_stack=True,
)
def cargo_bikes_in_traffic(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    rows, side, wide, kept, kinds = small(8), 512 if SCALE == 1 else 128, small(64, 8), 300, 8
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(4), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(6), 1), *convolutions((2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(6), 1), nn.Conv2d(4 * wide, 4 + kinds, 1)]
    model = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    frames = torch.rand(rows, 3, side, side, device=device).to(low(device)).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> list[float]:
        out = model(frames).float().permute(0, 2, 3, 1).flatten(0, 2)
        best, kind = out[:, 4:].softmax(1).max(1)
        scores, chosen = best.topk(min(kept, len(best)))
        boxes, kind, limit = out[chosen, :4], kind[chosen], scores[min(100, len(scores) - 1)].item()
        found: list[float] = []
        if changed:
            for score, box, one in zip(scores.tolist(), boxes.tolist(), kind.tolist(), strict=True):
                if score > limit:
                    found += [*box, score, float(one)]
            return found
        for at in range(len(scores)):
            if scores[at] > limit:
                found += [*boxes[at].tolist(), scores[at].item(), float(kind[at].item())]
        return found

    return step


@unseen(
    "keys and values of the words so far are joined with those of the new word by torch.cat, a copy of the whole "
    "cache in every "
    "layer for each word; room for all words kept from the start, into which the new ones are written",
    names=r"torch\.cat\b|\bconcat\w*|aten::cat|CatArray\w*|(kv|key).{0,20}cache|static cache|pre-?allocat\w*|(grow\w*|append\w*"
    r"|join\w*) .{0,40}(cache|keys?|values?)|index_copy\w*|in.?place writ\w*|(written|write) in(to)? .{0,30}(buffer|place|room"
    r"|cache)|cop(y|ies|ied|ying) .{0,30}(whole|entire|all) .{0,20}(cache|keys|past)",
    kind="inference",
    recorded="generate",
    profile_memory=True,
)
def radio_jingles_worded(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    rows, past, new, width, words, count = small(64, 4), small(1536, 32), 5, small(1024, 64), small(32000, 200), depth(8)
    heads = max(2, width // 64)
    embed = nn.Embedding(words, width)
    turns = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(count))
    outs = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
    norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * count))
    wide = (nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count))
    mlps = nn.ModuleList(wide)
    nn.ModuleList([embed, turns, outs, norms, mlps]).to(device, low(device)).eval()
    shape = (rows, heads, past, width // heads)
    asked = [torch.randn(2, *shape, device=device, dtype=low(device)) for _ in range(count)]
    if changed:
        rooms = [torch.zeros(2, rows, heads, past + new, width // heads, device=device, dtype=low(device)) for _ in range(count)]
        for room, read in zip(rooms, asked, strict=True):
            room[:, :, :, :past] = read
    first = torch.randint(words, (rows, 1), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        word, said = first, []
        caches = [tuple(read.unbind(0)) for read in (rooms if changed else asked)]
        for at in range(past, past + new):
            x = embed(word)
            for layer in range(count):
                q, k, v = turns[layer](norms[2 * layer](x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
                keys, values = caches[layer]
                if changed:
                    keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
                    keys, values = keys[:, :, : at + 1], values[:, :, : at + 1]
                else:
                    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
                    caches[layer] = keys, values
                x = x + outs[layer](F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2))
                x = x + mlps[layer](norms[2 * layer + 1](x))
            word = (x[:, -1] @ embed.weight.T).argmax(1, keepdim=True)
            said.append(word)
        return torch.cat(said, 1).cpu()

    return step


@unseen(
    "the wide layers of a network that stands in for a climate model multiply in full float32, as is the default; TF32 "
    "(set_float32_matmul_precision('high')), or bfloat16",
    names=r"\btf32\b|tensorfloat|set_float32_matmul_precision|allow_tf32|fp32_precision|bfloat16|\bbf16\b|float16"
    r"|\bfp16\b|\.half\("
    r"|autocast|mixed.?precision|\bamp\b|tensor.?cores?|(half|lower|reduced|16.?bit) .{0,12}precision|16.?bit",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def clouds_below_the_grid(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    columns, heights, width = small(16384, 64), small(480, 16), small(1536, 32)
    enter, leave = nn.Linear(heights, width), nn.Linear(width, heights)
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth(5)))
    norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth(5)))
    nn.ModuleList([enter, leave, layers, norms]).to(device).eval()
    air, mean, spread = (torch.rand(columns, heights, device=device) + 0.5 for _ in range(3))

    @torch.inference_mode()
    def step() -> Tensor:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        x = enter((air - mean) / spread)
        for layer, norm in zip(layers, norms, strict=True):
            x = x + F.silu(layer(norm(x)))
        rate = leave(x) * spread
        torch.set_float32_matmul_precision("highest")
        return (air + 0.01 * rate).mean(0).cpu()

    return step


class Listener(nn.Module):
    """A layer of a transformer around nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int, weights: bool) -> None:
        super().__init__()
        self.weights = weights
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + self.attend(y, y, y, need_weights=self.weights)[0]
        return x + self.mlp(self.second(x))


@unseen(
    "nn.MultiheadAttention makes its weights of attention, 1024 x 1024 for each head, and their mean, though no "
    "one reads them; "
    "need_weights=False, which takes the fused attention",
    names=r"need_weights|scaled_dot_product_attention|\bsdpa\b|flash|fused (attention|sdpa|kernel)|attention (weights|matri\w*"
    r"|scores|maps?)|average_attn_weights|memory.?efficient attention|(material\w*|writ\w*|stor\w*) .{0,40}(scores|weights)",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def crickets_heard_in_meadows(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    rows, length, bands, width, kinds = small(8), small(1024, 32), 128, small(768, 64), 40
    enter, head = nn.Linear(bands, width), nn.Linear(width, kinds)
    layers = nn.Sequential(*(Listener(width, max(2, width // 64), not changed) for _ in range(depth(12))))
    nn.ModuleList([enter, layers, head]).to(device, low(device)).eval()
    heard = torch.randn(rows, length, bands, device=device).to(low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        return head(layers(enter(heard)).mean(1)).float().softmax(1).cpu()

    return step


# For the GPU, with a change that brings nothing.


@unseen(
    "none: clip_grad_norm_ is left to choose how it goes through the gradients, and takes all of them together by itself; "
    "foreach=True",
    names=r"clip_grad\w*|gradient clipping|clip\w* .{0,20}gradient|foreach",
    kind="training",
    recorded="iteration",
    null=True,
)
def sails_seen_from_the_shore(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, side, wide, kinds = small(64, 4), 192 if SCALE == 1 else 32, small(64, 8), 9
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(6), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(8), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, kinds)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    photos = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    meant = torch.randint(kinds, (rows,), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(photos)
        loss = F.cross_entropy(scores.float(), meant)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True if changed else None)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "none: the scores of ten kinds go through softmax ahead of argmax, which it does not change, a tiny kernel after a long "
    "network; argmax of the scores",
    names=r"softmax|argmax",
    kind="inference",
    recorded="step",
    null=True,
    record_shapes=False,
)
def locks_on_old_doors(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, side, wide, kinds = small(64, 4), 224 if SCALE == 1 else 32, small(128, 8), 10
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(5), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(6), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, kinds)]
    model = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    photos = torch.rand(rows, 3, side, side, device=device).to(low(device)).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = model(photos).float()
        return scores.argmax(1).cpu() if changed else scores.softmax(1).argmax(1).cpu()

    return step


@unseen(
    "none: each call moves model and batch to the GPU with to(device), where they are already, so that nothing is "
    "copied; once, "
    "at the start",
    names=r"\.to\(|to\(device\)|\.cuda\(\)|(mov\w*|copy|copies|copied|copying|transfer\w*) .{0,30}(model|weights|batch)",
    kind="inference",
    recorded="none",
    null=True,
    with_stack=True,
)
def contracts_read_for_risks(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, length, width, words, kinds = small(32), small(512, 16), small(1024, 64), small(30000, 200), 6
    embed, head = nn.Embedding(words, width), nn.Linear(width, kinds)
    layers = nn.Sequential(*(Layer(width, max(2, width // 64)) for _ in range(depth(12))))
    model = nn.Sequential(embed, layers, nn.LayerNorm(width)).to(device, low(device)).eval()
    head = head.to(device, low(device)).eval()
    written = torch.randint(words, (rows, length), device=device)

    @torch.inference_mode()
    def step() -> Tensor:
        if not changed:
            model.to(device)
        text = written if changed else written.to(device)
        return head(model(text)[:, 0]).float().softmax(1).cpu()

    return step


class Sum(nn.Module):
    """Two convolutions, whose result is added to what they got."""

    def __init__(self, wide: int, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.body = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1), nn.GELU(), nn.Conv2d(wide, wide, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return y.add_(x) if self.in_place else y + x


@unseen(
    "none: the sum behind each pair of convolutions is written as a new tensor, which reads and writes as many "
    "bytes as in place; "
    "add_",
    names=r"in.?place|\badd_|aten::add\b|new tensor|residual",
    kind="inference",
    recorded="answer",
    null=True,
    profile_memory=True,
)
def puppet_films_enlarged(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, side, wide = small(8), 256 if SCALE == 1 else 32, small(128, 8)
    body = [Sum(wide, changed) for _ in range(depth(6))]
    net = nn.Sequential(nn.Conv2d(3, wide, 3, 1, 1), *body, nn.Conv2d(wide, 12, 3, 1, 1), nn.PixelShuffle(2))
    model = net.to(device, low(device)).to(memory_format=torch.channels_last).eval()
    frames = torch.rand(rows, 3, side, side, device=device).to(low(device)).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        return (model(frames).float().clamp(0, 1) * 255).to(torch.uint8).cpu()

    return step


# For two cores, with a fault.


@unseen(
    "the likelihood of a Gaussian process takes the inverse of its covariance and, apart from that, the logarithm of its "
    "determinant, two factorizations and more; one Cholesky factor for both (cholesky_solve, sum of the logarithms "
    "of its diagonal)",
    names=r"cholesky\w*|linalg\.solve|\bsolve\w*|invers\w*|\binv\b|linalg_inv\w*|log_?det\w*|slogdet|determinant|factori[sz]\w*"
    r"|triangular|\blu\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def ore_grades_between_boreholes(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    holes, traits, width = 600, 8, 32
    read = nn.Sequential(nn.Linear(traits, width), nn.Tanh(), nn.Linear(width, 4)).double()
    scale = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = torch.optim.Adam([*read.parameters(), scale], lr=1e-3, fused=True)
    rocks, grade = torch.randn(holes, traits, dtype=torch.float64), torch.randn(holes, 1, dtype=torch.float64)
    unit = torch.eye(holes, dtype=torch.float64)

    def step() -> Tensor:
        seen = read(rocks)
        apart = (seen.square().sum(1)[:, None] + seen.square().sum(1) - 2 * seen @ seen.T).clamp(min=0)
        covariance = scale[0].exp() * torch.exp(-0.5 * apart) + (scale[1].exp() * 0.1 + 1e-4) * unit
        if changed:
            factor = torch.linalg.cholesky(covariance)
            fit = (grade * torch.cholesky_solve(grade, factor)).sum()
            size = 2 * factor.diagonal().log().sum()
        else:
            fit = (grade.T @ torch.inverse(covariance) @ grade).sum()
            size = torch.logdet(covariance)
        loss = 0.5 * (fit + size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the table of 60000 vectors gets a dense gradient, nearly all of it zero, and Adam goes through all of the table for a few "
    "thousand rows a step; nn.Embedding(sparse=True) with SparseAdam",
    names=r"sparse|SparseAdam|dense (embedding )?gradient|embedding_dense_backward|(all|every|whole|full"
    r"|entire) .{0,20}(rows?|table"
    r"|embedding)|lazy|rows that (were|are)|(mostly|nearly all) zeros?|embedding\w* .{0,60}(optimi[sz]er|adam|gradient|update)",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def hikes_liked_by_walkers(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, hikes, width, past = 512, 60000, 48, 10
    table = nn.Embedding(hikes, width, sparse=changed)
    net = [nn.Linear(2 * width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)]
    model = nn.Sequential(*net)
    if changed:
        optimizers: list[torch.optim.Optimizer] = [
            torch.optim.SparseAdam(table.parameters(), lr=1e-3),
            torch.optim.Adam(model.parameters(), lr=1e-3, fused=True),
        ]
    else:
        optimizers = [torch.optim.Adam([*table.parameters(), *model.parameters()], lr=1e-3, fused=True)]
    walked, next_one = torch.randint(hikes, (rows, past)), torch.randint(hikes, (rows,))
    liked = torch.rand(rows, 1).round()

    def step() -> Tensor:
        seen = torch.cat([table(walked).mean(1), table(next_one)], 1)
        loss = F.binary_cross_entropy_with_logits(model(seen), liked)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a table that lies in memory as tensors goes through a DataLoader, which takes the 512 rows of a batch one by "
    "one and stacks "
    "them; the batch by one index into the tensors (batches of indices as sampler, batch_size=None)",
    names=r"data ?-?load(er|ing)|collat\w*|__getitem__|row by row|one by one|(each|every|per|single|individual) (row"
    r"|sample|item"
    r"|example)|\bstack(ed|ing)?\b|batch_size=None|BatchSampler|__getitems__|(index\w*|slic\w*) .{0,40}(batch|at once|whole)"
    r"|num_workers|\bworkers?\b|prefetch|input pipeline|TensorDataset",
    kind="training",
    recorded="epoch part",
    on=("cpu",),
)
def claims_after_hailstorms(device: str, changed: bool) -> Step:
    torch.manual_seed(19)
    kept, rows, columns, kinds, width = 8192, 512, 40, 12, 384
    numbers, places, paid = torch.randn(kept, columns), torch.randint(200, (kept, kinds)), torch.rand(kept)
    order = torch.randperm(kept)
    if changed:
        batches = endless(DataLoader(TensorDataset(numbers, places, paid), None, sampler=order.split(rows)))
    else:
        batches = endless(DataLoader(TensorDataset(numbers, places, paid), rows, sampler=order.tolist(), drop_last=True))
    table = nn.Embedding(200, 16)
    net = [nn.Linear(columns + 16 * kinds, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)]
    model = nn.Sequential(*net)
    optimizer = torch.optim.AdamW([*table.parameters(), *model.parameters()], lr=1e-3, fused=True)

    def step() -> Tensor:
        number, place, cost = next(batches)
        loss = F.smooth_l1_loss(model(torch.cat([number, table(place).flatten(1)], 1)).squeeze(1), cost)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the matrix of confusions is counted element by element, in a Python loop over the predictions of the batch; bincount (or "
    "index_add) of all at once",
    names=r"bincount|confusion|index_add|index_put|scatter_add|histc|(element|sample|prediction|row|cell"
    r"|pixel) by (element|sample"
    r"|prediction|row|cell|pixel)|python loop|vectori[sz]|(loop\w*|each|every|per) .{0,20}(element|sample|prediction|cell)s?\b"
    r"|tolist|\.item\(\)|_local_scalar_dense|metric\w*|(many|tiny|small|hundreds of|thousands of) .{0,20}(op|call"
    r"|select|index)",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def farm_fields_by_crop(device: str, changed: bool) -> Step:
    torch.manual_seed(20)
    rows, times, bands, wide, kinds = 512, 24, 10, 24, 9
    net = [nn.Conv1d(bands, wide, 5, padding=2), nn.ReLU(), nn.Conv1d(wide, wide, 5, padding=2), nn.ReLU()]
    net += [nn.Conv1d(wide, wide, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(wide, kinds)]
    model = nn.Sequential(*net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    seen, meant = torch.randn(rows, bands, times), torch.randint(kinds, (rows,))
    confused = torch.zeros(kinds, kinds, dtype=torch.int64)

    def step() -> Tensor:
        scores = model(seen)
        loss = F.cross_entropy(scores, meant)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        said = scores.detach().argmax(1)
        if changed:
            confused.add_(torch.bincount(meant * kinds + said, minlength=kinds * kinds).view(kinds, kinds))
        else:
            for true, guess in zip(meant, said, strict=True):
                confused[true, guess] += 1
        return loss.detach()

    return step


@unseen(
    "the service builds its network and reads the weights from a file for each request; once, when it starts, and kept",
    names=r"torch\.load|load_state_dict|state.?dict|checkpoint\w*|(load\w*|read\w*|build\w*|built|construct\w*|creat\w*"
    r"|initiali[sz]\w*"
    r"|instantiat\w*|deseriali[sz]\w*) .{0,60}(model|network|weights|once|each|every|per|start\w*)|kaiming|aten::uniform_?"
    r"|(model|network|weights) .{0,40}(kept|once|cach\w*|re-?us\w*|at start\w*)",
    kind="inference",
    recorded="request",
    on=("cpu",),
    with_stack=True,
)
def bills_sorted_for_an_office(device: str, changed: bool) -> Step:
    torch.manual_seed(21)
    rows, side, wide, kinds = 2, 160, 32, 20

    def network() -> nn.Module:
        net = [*convolutions((1, wide, 2 * wide)), *convolutions((2 * wide, 2 * wide), 1), *convolutions((2 * wide, 4 * wide))]
        net += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * wide, 256), nn.ReLU(), nn.Linear(256, kinds)]
        return nn.Sequential(*net).eval()

    file = Path(tempfile.mkdtemp()) / "bills.pt"
    torch.save(network().state_dict(), file)

    def loaded() -> nn.Module:
        model = network()
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.eval()

    kept, bills = loaded(), torch.rand(rows, 1, side, side)

    @torch.inference_mode()
    def step() -> Tensor:
        model = kept if changed else loaded()
        return model(bills).softmax(1)

    return step


@unseen(
    "a whole photo is enlarged and smoothed, of which then a small part about the plate is cut out for the "
    "network; the part cut "
    "out first, and that alone enlarged",
    names=r"\bcrop\w*|cut(ting)? .{0,30}(first|before|ahead)|(first|before|ahead|only|alone|part|region) .{0,40}(resiz\w*"
    r"|enlarg\w*"
    r"|interpolat\w*|upsampl\w*)|(resiz\w*|enlarg\w*|interpolat\w*|upsampl\w*|bicubic\w*) .{0,60}(whole|entire|full"
    r"|crop|part|region"
    r"|discard\w*|thrown|only|smaller|unused|cheaper|bilinear|less)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def plates_at_the_car_park(device: str, changed: bool) -> Step:
    torch.manual_seed(22)
    high, across, wide, letters, margin = 240, 320, 48, 36, 8
    net = [*convolutions((3, wide)), *convolutions((wide, wide), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide, 2 * wide), 1), nn.AdaptiveAvgPool2d((1, 8)), nn.Conv2d(2 * wide, letters, 1)]
    model = nn.Sequential(*net).eval()
    photos = torch.rand(2, 3, high, across)
    top, left, tall, broad = 120, 96, 48, 128

    def enlarged(x: Tensor) -> Tensor:
        return F.avg_pool2d(F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False), 3, 1, 1)

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            near = photos[:, :, top - margin : top + tall + margin, left - margin : left + broad + margin]
            plate = enlarged(near)[:, :, 2 * margin : 2 * (margin + tall), 2 * margin : 2 * (margin + broad)]
        else:
            plate = enlarged(photos)[:, :, 2 * top : 2 * (top + tall), 2 * left : 2 * (left + broad)]
        return model(plate).softmax(1)

    return step


@unseen(
    "the answers to a questionnaire go through the network one by one, in a Python loop; all as one batch",
    names=r"one by one|(one|single|larger|bigger) (\w+ ){0,2}batch|batch(ed|ing|es)?\b|(text|answer|sentence|row|sample"
    r"|request) by "
    r"(text|answer|sentence|row|sample|request)|batch size|python loop|(loop\w*|each|every|per) .{0,20}(text|answer"
    r"|sentence|sample)",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def patients_questionnaires_scored(device: str, changed: bool) -> Step:
    torch.manual_seed(23)
    answers, length, width, words, kinds = 24, 32, 128, 4000, 5
    embed, head = nn.Embedding(words, width), nn.Linear(width, kinds)
    layers = nn.Sequential(Layer(width, 4), Layer(width, 4), Layer(width, 4))
    nn.ModuleList([embed, layers, head]).eval()
    written = torch.randint(words, (answers, length))

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            return head(layers(embed(written)).mean(1)).softmax(1)
        return torch.cat([head(layers(embed(one[None])).mean(1)).softmax(1) for one in written])

    return step


@unseen(
    "the mean of the neighbours of each crossing is taken by itself, in a Python loop over the crossings; "
    "index_add (or scatter, "
    "or a sparse product) along all roads at once",
    names=r"index_add|scatter\w*|segment_reduce|sparse|embedding_bag|(node|crossing|vertex|neighbou?r) by (node|crossing|vertex"
    r"|neighbou?r)|python loop|vectori[sz]|(loop\w*|each|every|per) .{0,20}(node|crossing|vertex|neighbou?r)\w*"
    r"|\bstack(ed|ing)?\b"
    r"|(many|tiny|small|hundreds of|thousands of) .{0,25}(op|call|select|index|mean|tensor)|aten::(stack|mean)\b",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def roads_that_fill_up(device: str, changed: bool) -> Step:
    torch.manual_seed(24)
    nodes, edges, width, hops = 500, 3000, 192, 2
    source, target = torch.randint(nodes, (edges,)), torch.cat([torch.arange(nodes), torch.randint(nodes, (edges - nodes,))])
    count = torch.bincount(target, minlength=nodes)[:, None]
    near = [source[target == node] for node in range(nodes)]
    own = nn.ModuleList(nn.Linear(width, width) for _ in range(hops))
    others = nn.ModuleList(nn.Linear(width, width) for _ in range(hops))
    cast = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 12)).eval()
    traffic = torch.randn(nodes, width)

    @torch.inference_mode()
    def step() -> Tensor:
        x = traffic
        for hop in range(hops):
            if changed:
                mean = torch.zeros_like(x).index_add_(0, target, x[source]) / count
            else:
                mean = torch.stack([x[ones].mean(0) for ones in near])
            x = (own[hop](x) + others[hop](mean)).relu()
        return cast(x)

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "none: 32 scores go through sigmoid and then the cross entropy of probabilities, two tiny operations in a long step; "
    "binary_cross_entropy_with_logits, which does both",
    names=r"with_?logits|BCE\w*|binary_cross_entropy|sigmoid",
    kind="training",
    recorded="train",
    null=True,
    on=("cpu",),
)
def cracks_in_violin_varnish(device: str, changed: bool) -> Step:
    torch.manual_seed(25)
    rows, side, wide = 32, 64, 24
    net = [*convolutions((3, wide, 2 * wide)), *convolutions((2 * wide, 2 * wide), 1), *convolutions((2 * wide, 4 * wide))]
    model = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    photos, cracked = torch.rand(rows, 3, side, side), torch.rand(rows, 1).round()

    def step() -> Tensor:
        scores = model(photos)
        if changed:
            loss = F.binary_cross_entropy_with_logits(scores, cracked)
        else:
            loss = F.binary_cross_entropy(scores.sigmoid(), cracked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: the twelve traits of a site are repeated for its 400 hours, a copy of some kilobytes ahead of wide "
    "layers; expand, a "
    "view",
    names=r"\brepeat\w*|\bexpand\w*|broadcast\w*|aten::repeat",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def wind_at_new_sites(device: str, changed: bool) -> Step:
    torch.manual_seed(26)
    hours, signs, traits, width = 400, 20, 12, 1024
    net = [nn.Linear(signs + traits, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*net, nn.Linear(width, 1)).eval()
    weather, site = torch.randn(hours, signs), torch.randn(1, traits)

    @torch.inference_mode()
    def step() -> Tensor:
        told = site.expand(hours, -1) if changed else site.repeat(hours, 1)
        return model(torch.cat([weather, told], 1))

    return step


@unseen(
    "none: a recurrent network gets a first state of zeros made anew for each request, a few kilobytes; made once, kept",
    names=r"\bzeros?\b|aten::zeros|(first|initial|hidden) state|\bh_?0\b",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
)
def bees_danced_directions(device: str, changed: bool) -> Step:
    torch.manual_seed(27)
    rows, times, signs, width = 32, 100, 6, 256
    read, head = nn.GRU(signs, width, batch_first=True), nn.Linear(width, 2)
    nn.ModuleList([read, head]).eval()
    dances, kept = torch.randn(rows, times, signs), torch.zeros(1, rows, width)

    @torch.inference_mode()
    def step() -> Tensor:
        start = kept if changed else torch.zeros(1, rows, width)
        return head(read(dances, start)[0].mean(1))

    return step
