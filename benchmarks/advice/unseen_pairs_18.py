"""An eighteenth set of small programs, for one GPU, with one performance fault each, written without a look at the reader."""

from collections.abc import Iterator
import math
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.turn(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


# With a fault.


class Curves(Dataset[tuple[Tensor, Tensor]]):
    """Light of stars over time, with what was found in it, by star."""

    def __init__(self, light: Tensor, found: Tensor) -> None:
        self.light, self.found = light, found

    def __len__(self) -> int:
        return len(self.light)

    def __getitem__(self, star: int) -> tuple[Tensor, Tensor]:
        return self.light[star], self.found[star]


def whole_batches(data: Curves, order: Tensor, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Give batches in an order, each taken out by one index, epoch after epoch."""
    while True:
        for stars in order[: len(order) // rows * rows].split(rows):
            yield data.light[stars], data.found[stars]


@unseen(
    "all samples lie on the GPU, yet a DataLoader picks the 1024 of a batch one by one and stacks them; the batch taken out "
    "of the tensors at once, by one index",
    names=r"(sample|item|example|curve|star|row)s? (by|after) (sample|item|example|curve|star|row|one)|one (by one|at a time)"
    r"|(each|every|per|single|individual|1024|2048|thousands? of)\W+(\w+ )?(sample|item|example|curve|star|row|element)s?\b"
    r"|per-sample|__getitems?__|torch\.stack|aten::(stack|select|unsqueeze)\b|(whole|entire|full) batch|batch(es)? .{0,30}at once"
    r"|batch_sampler|(one|single|batched?|index\w*) .{0,20}ind(ex|ices|exing)\b|index(es|ed|ing)? (with|by|the|a|into)\b"
    r"|index_select|randperm|vectori[sz]|slic(e|es|ing) (the )?(batch|tensor)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def light_curves_with_transits(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    stars, rows, times, kinds, wide = small(32768, 64), small(1024, 8), small(512, 64), 3, small(64, 16)
    light, found = torch.randn(stars, 2, times, device=device), torch.randint(kinds, (stars,), device=device)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((2, wide, 2), (wide, 2 * wide, 2), (2 * wide, 4 * wide, 2), *[(4 * wide, 4 * wide, 1)] * 4):
        layers += [nn.Conv1d(inputs, outputs, 7, stride, 3, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4 * wide, kinds)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data, order = Curves(light, found), torch.randperm(stars)
    if changed:
        batches = whole_batches(data, order.to(device), rows)
    else:
        batches = endless(DataLoader(data, batch_size=rows, sampler=order.tolist(), drop_last=True))

    def step() -> Tensor:
        curves, labels = next(batches)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(curves)
        loss = F.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Residual(nn.Module):
    """Two linear layers beside their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.relu(self.up(self.norm(x))))


def residual_net(inputs: int, outputs: int, width: int, blocks: int) -> nn.Sequential:
    """Return a network of residual blocks for numbers in a row."""
    middle = [Residual(width) for _ in range(blocks)]
    return nn.Sequential(nn.Linear(inputs, width), *middle, nn.LayerNorm(width), nn.Linear(width, outputs))


@unseen(
    "the target networks follow the critics parameter by parameter, four tiny kernels for each of them in every step; "
    "torch._foreach_lerp_ over all parameters",
    names=r"foreach|multi.?tensor|\blerp|soft.?updat|polyak|target (net|critic|param|weight|q)|moving average|\bema\b|swa_utils"
    r"|(each|every|per|over|all|the) (of the )?(parameter|weight)s?\b.{0,60}(loop|updat|one|tiny|small|kernel|launch|copy|averag)"
    r"|(loop|updat\w*|averag\w*) .{0,40}(parameter|weight)s?\b|parameter by parameter|one parameter (at a time|after)",
    kind="training",
    recorded="update",
    record_shapes=False,
)
def racing_drone_learns_gates(device: str, changed: bool) -> Step:
    torch.manual_seed(2)
    kept, rows, senses, moves, width, blocks = small(200_000, 64), small(512, 16), 36, 4, small(512, 32), depth(4)
    actor = residual_net(senses, 2 * moves, width, 2).to(device)
    critics = nn.ModuleList(residual_net(senses + moves, 1, width, blocks) for _ in range(2)).to(device)
    targets = nn.ModuleList(residual_net(senses + moves, 1, width, blocks) for _ in range(2)).to(device).requires_grad_(False)
    targets.load_state_dict(critics.state_dict())
    act_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)
    judge_optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4, fused=True)
    seen, later = torch.randn(2, kept, senses, device=device)
    done, rewards = torch.rand(kept, moves, device=device) * 2 - 1, torch.randn(kept, 1, device=device)
    followed: list[Tensor] = list(targets.parameters())
    leaders: list[Tensor] = list(critics.parameters())
    rate, warmth = 0.005, 0.1

    def moved(state: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = actor(state).chunk(2, 1)
        spread = spread.clamp(-5, 2)
        noise = torch.randn_like(mean)
        move = torch.tanh(mean + spread.exp() * noise)
        chance = -0.5 * noise.square() - spread - torch.log(1 - move.square() + 1e-6)
        return move, chance.sum(1, keepdim=True)

    def judged(judges: nn.ModuleList, state: Tensor, move: Tensor) -> tuple[Tensor, ...]:
        both = torch.cat([state, move], 1)
        return tuple(judge(both) for judge in judges)

    def step() -> tuple[Tensor, Tensor]:
        at = torch.randint(kept, (rows,), device=device)
        now, then, was, reward = seen[at], later[at], done[at], rewards[at]
        with torch.no_grad():
            move, chance = moved(then)
            aim = reward + 0.99 * (torch.minimum(*judged(targets, then, move)) - warmth * chance)
        one, two = judged(critics, now, was)
        error = F.mse_loss(one, aim) + F.mse_loss(two, aim)
        judge_optimizer.zero_grad()
        error.backward()
        judge_optimizer.step()
        move, chance = moved(now)
        loss = (warmth * chance - torch.minimum(*judged(critics, now, move))).mean()
        act_optimizer.zero_grad()
        loss.backward()
        act_optimizer.step()
        with torch.no_grad():
            if changed:
                torch._foreach_lerp_(followed, leaders, rate)
            else:
                for target, leader in zip(followed, leaders, strict=True):
                    target.data.copy_(rate * leader.data + (1 - rate) * target.data)
        return error.detach(), loss.detach()

    return step


@unseen(
    "the Chamfer distance is taken from the differences of all pairs of points, a tensor of batch x 2048 x 2048 x 3 that is "
    "made, squared, summed and gone through again backward; a product of matrices for the distances (cdist)",
    names=r"cdist|chamfer|\bbmm\b|baddbmm|matmul|matrix.{0,12}(product|multipl)|(product|multiplication) of matrices|pairwise"
    r"|all pairs|broadcast|differences?\b|distance|\bknn\b|keops|pytorch3d|expand(ed|ing)? the square|x\^2|squared? norms?"
    r"|(large|huge|big|intermediate) (\w+ )?(tensor|temporar|intermediate)|\bfus(e|ed|es|ing|ion)\b|torch\.compile"
    r"|aten::(sub|pow|min)\b|PowBackward",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def chairs_as_point_clouds(device: str, changed: bool) -> Step:
    torch.manual_seed(3)
    rows, points, width, code = small(16), small(2048, 64), small(512, 32), small(1024, 64)
    enter, leave = nn.Linear(3, width), nn.Linear(width, code)
    middle = nn.Sequential(*(Residual(width) for _ in range(depth(5))))
    draw = nn.Sequential(nn.Linear(code, 2 * code), nn.ReLU(), nn.Linear(2 * code, points * 3))
    model = nn.ModuleList([enter, middle, leave, draw]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    clouds = torch.randn(rows, points, 3, device=device)

    def apart(one: Tensor, two: Tensor) -> Tensor:
        if changed:
            lengths = one.square().sum(2)[:, :, None] + two.square().sum(2)[:, None]
            return torch.baddbmm(lengths, one, two.transpose(1, 2), alpha=-2)
        return (one[:, :, None] - two[:, None]).pow(2).sum(3)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            drawn = draw(leave(middle(enter(clouds))).amax(1))
        distances = apart(drawn.float().view(rows, points, 3), clouds)
        loss = distances.min(2).values.mean() + distances.min(1).values.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "in every step the first pictures and what the network makes of them are copied to the host and put into a grid for a "
    "preview, while the GPU waits; a preview every hundredth step",
    names=r"preview|\bgrid\b|(image|picture|reconstruction|sample)s? .{0,60}(log|host|cpu|copied|every)|\blog(s|ged|ging)\b"
    r"|tensorboard|wandb|(every|each|once) .{0,12}(n|\d+|few|hundred\w*|fift\w+|tenth)\w* (steps?|iterations?|batch)"
    r"|less (often|frequent)|(not|rather than|instead of) (in |at )?(each|every) step|\.cpu\(\)|\.numpy\(\)|DtoH|D2H"
    r"|device.?(to|->).?host|(to|on) the (host|cpu)|synchroni|\bsyncs?\b|pinned|non_?blocking|host (waits|blocks|work)"
    r"|gpu (is |sits |stays )?(idle|waits)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def stamps_squeezed_to_codes(device: str, changed: bool) -> Step:
    torch.manual_seed(4)
    rows, side, wide, code, shown = small(64, 4), small(128, 16), small(64, 8), small(32, 8), small(16)
    net = [*convolutions((3, wide, wide), 1), *convolutions((wide, 2 * wide)), *convolutions((2 * wide,) * 3, 1)]
    squeeze = nn.Sequential(*net, *convolutions((2 * wide, 4 * wide)), nn.Conv2d(4 * wide, 2 * code, 1))
    net = [nn.Conv2d(code, 4 * wide, 1), nn.Upsample(scale_factor=2), *convolutions((4 * wide, 2 * wide, 2 * wide), 1)]
    net += [nn.Upsample(scale_factor=2), *convolutions((2 * wide, wide, wide), 1), nn.Conv2d(wide, 3, 1)]
    draw = nn.Sequential(*net)
    model = nn.ModuleList([squeeze, draw]).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    stamps = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    turn, previews = 0, {}

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            mean, spread = squeeze(stamps).chunk(2, 1)
            drawn = draw(mean + torch.randn_like(mean) * (0.5 * spread).exp()).sigmoid()
        chance = (mean.float().square() + spread.float().exp() - spread.float() - 1).mean()
        loss = F.mse_loss(drawn.float(), stamps) + 1e-3 * chance
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not changed or turn % 100 == 0:
            pictures = torch.cat([stamps[:shown], drawn[:shown].detach().float()]).cpu().numpy()
            grid = pictures.reshape(2, shown, 3, side, side).transpose(0, 3, 1, 4, 2).reshape(2 * side, shown * side, 3)
            previews["last"] = (grid.clip(0, 1) * 255).astype(np.uint8)
        return loss.detach()

    return step


@unseen(
    "the mask of the causal attention is made on the host in every step, 2048 x 2048 numbers, and copied to the GPU; made "
    "once, kept there as a buffer (or is_causal=True)",
    names=r"\bmasks?\b|\btri[ul]\b|is_causal|causal|register_buffer|generate_square|HtoD|H2D|host.?(to|->).?device"
    r"|(upload|copi|copy|transfer|mov)\w* .{0,60}(host|cpu|gpu|device|pageable|each step|every step)|pageable|pin(ned|_memory)"
    r"|(made|make|creat\w*|buil[td]\w*|constant|same)\b.{0,60}(on|to) the (gpu|device|host|cpu)|device=",
    kind="training",
    recorded="train",
    profile_memory=True,
)
def bird_song_syllables_continued(device: str, changed: bool) -> Step:
    torch.manual_seed(5)
    rows, length, width, kinds = small(4), small(2048, 32), small(512, 64), small(400, 20)
    embed, place, layers = nn.Embedding(kinds, width), nn.Embedding(length, width), [Layer(width, 8) for _ in range(depth(6))]
    norm, head = nn.LayerNorm(width), nn.Linear(width, kinds)
    model = nn.ModuleList([embed, place, *layers, norm, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    songs, at = torch.randint(kinds, (rows, length + 1), device=device), torch.arange(length, device=device)

    def made() -> Tensor:
        return torch.triu(torch.full((length, length), -torch.inf), diagonal=1).to(device)

    kept = made()

    def step() -> Tensor:
        mask = kept if changed else made()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(songs[:, :-1]) + place(at)
            for layer in layers:
                x = layer(x, mask)
            scores = head(norm(x))
        loss = F.cross_entropy(scores.float().flatten(0, 1), songs[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "loss.item() in every step, for a running mean: the host waits for the GPU and only then draws the next negatives, for "
    "which the GPU waits in turn; the sum kept on the GPU, read now and then (or the batches drawn ahead, by a worker)",
    names=r"\.?item\(\)|\bitem\b|_local_scalar_dense|synchroni|\bsyncs?\b|(host|cpu|python) (waits|blocks|stalls)"
    r"|(read|log|fetch)\w* .{0,20}\bloss\b|\bloss\b.{0,60}(read|every step|each step|on the (gpu|device)|detach|logg)"
    r"|detach\(\)|DtoH|D2H|device.?(to|->).?host|prefetch|(prepare|draw|build|sampl|mak|load)\w* .{0,60}(ahead|background|worker"
    r"|thread|while the gpu|meanwhile)|overlap|run(s|ning)? ahead|num_workers|gpu (is |sits |stays )?(idle|waits)",
    kind="training",
    recorded="none",
    with_stack=True,
)
def drugs_taken_together(device: str, changed: bool) -> Step:
    torch.manual_seed(6)
    drugs, pairs, rows, others, width, wide = 20_000, small(1_000_000, 500), small(4096, 16), 15, small(256, 16), small(2048, 32)
    draw = np.random.default_rng(6)
    keys = np.unique(draw.integers(drugs * drugs, size=pairs))
    table, score = nn.Embedding(drugs, width), nn.Sequential(nn.Linear(3 * width, wide), nn.ReLU(), nn.Linear(wide, wide))
    score.extend([nn.ReLU(), nn.Linear(wide, 1)])
    model = nn.ModuleList([table, score]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    total, turn = torch.zeros((), device=device), 0
    losses: list[float] = []

    def uploaded(numbers: np.ndarray[Any, Any]) -> Tensor:
        there = torch.from_numpy(numbers)
        return there if device == "cpu" else there.pin_memory().to(device, non_blocking=True)

    def drawn() -> tuple[Tensor, Tensor]:
        firsts, seconds = np.divmod(keys[draw.integers(len(keys), size=rows)], drugs)
        wrong = draw.integers(drugs, size=(rows, others))
        asked = firsts[:, None] * drugs + wrong
        place = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
        wrong = np.where(keys[place] == asked, (wrong + 1) % drugs, wrong)
        return uploaded(firsts), uploaded(np.concatenate([seconds[:, None], wrong], 1))

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        firsts, seconds = drawn()
        one, two = table(firsts)[:, None].expand(-1, others + 1, -1), table(seconds)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = score(torch.cat([one, two, one * two], 2))[..., 0].float()
        loss = F.softplus(-scores[:, 0]).mean() + F.softplus(scores[:, 1:]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not changed:
            losses.append(loss.item())
        else:
            total.add_(loss.detach())
            if turn % 500 == 0:
                losses.append(total.item() / turn)
        return loss.detach()

    return step


@unseen(
    "attention is given a mask of padding in which nothing is masked, for all texts are cut to one length, and the mask rules "
    "out flash attention; no mask where none is padded",
    names=r"attn_mask|attention.?mask|\bmask(s|ed)?\b|\bflash|padding|efficient_attention|fmha|sdpa_kernel|varlen|nested.?tensor"
    r"|flex.?attention|cudnn.?attention",
    kind="inference",
    recorded="none",
)
def customs_declarations_coded(device: str, changed: bool) -> Step:
    torch.manual_seed(7)
    rows, length, width, words, codes = small(8), small(2048, 32), small(768, 64), small(30000, 100), small(5000, 20)
    embed, place, layers = nn.Embedding(words, width), nn.Embedding(length, width), nn.ModuleList()
    layers.extend(Layer(width, width // 64) for _ in range(depth(12)))
    head = nn.Linear(width, codes)
    nn.ModuleList([embed, place, layers, head]).to(device, low(device)).eval()
    texts, at = torch.randint(1, words, (rows, length), device=device), torch.arange(length, device=device)
    lengths = [length] * rows

    @torch.inference_mode()
    def step() -> Tensor:
        mask: Tensor | None = None
        if not changed or min(lengths) < length:
            mask = (texts != 0)[:, None, None, :].expand(-1, -1, length, -1)
        x = embed(texts) + place(at)
        for layer in layers:
            x = layer(x, mask)
        return head(x.mean(1)).float().softmax(1).topk(5).values

    return step


@unseen(
    "recall and gain are worked out user by user, and the twenty suggestions of each of them are read from the GPU by "
    "themselves; all suggestions read at once, by one tolist()",
    names=r"to_?list|\.cpu\(\)|\.numpy\(\)|\.?item\(\)|_local_scalar_dense|DtoH|D2H|device.?(to|->).?host|synchroni|\bsyncs?\b"
    r"|read(ing)? back|(host|cpu|python) (waits|blocks|stalls)|(each|every|per|one|single|over (the )?) ?(user|row|reader)s?\b"
    r"|(user|row) by (user|row)|one (by one|at a time)|python loop|vectori[sz]|(one|single) (copy|transfer|read)"
    r"|(small|tiny|many|512|hundreds of) (copies|transfers|reads|memcp)|\bmetrics?\b|recall|ndcg|torchmetrics"
    r"|aten::(select|unbind)",
    kind="inference",
    recorded="evaluate",
    with_stack=True,
)
def library_loans_suggested(device: str, changed: bool) -> Step:
    torch.manual_seed(8)
    readers, length, width, books, best = small(512, 16), 64, small(256, 32), small(200_000, 500), 20
    table, place, layers = (
        nn.Embedding(books, width),
        nn.Embedding(length, width),
        nn.ModuleList(Layer(width, 4) for _ in range(2)),
    )
    nn.ModuleList([table, place, layers]).to(device, low(device)).eval()
    loans, at = torch.randint(books, (readers, length), device=device), torch.arange(length, device=device)
    lent = [set(some) for some in torch.randint(books, (readers, max(10, books // 200))).tolist()]
    worth = [1 / math.log2(rank + 2) for rank in range(best)]

    def judged(suggested: list[int], real: set[int]) -> tuple[float, float]:
        hits = [rank for rank, book in enumerate(suggested) if book in real]
        return len(hits) / best, sum(worth[rank] for rank in hits) / sum(worth)

    @torch.inference_mode()
    def step() -> tuple[float, float]:
        x = table(loans) + place(at)
        for layer in layers:
            x = layer(x)
        scores = (x[:, -1] @ table.weight.T).float().scatter_(1, loans, -torch.inf)
        top = scores.topk(best).indices
        if changed:
            kept = [judged(suggested, real) for suggested, real in zip(top.tolist(), lent, strict=True)]
        else:
            kept = [judged(top[reader].tolist(), real) for reader, real in enumerate(lent)]
        return sum(recall for recall, _ in kept) / readers, sum(gain for _, gain in kept) / readers

    return step


@unseen(
    "the pillars that hold points are found by torch.unique(dim=0) over rows of three coordinates, which sorts by comparing "
    "rows; the coordinates put into one integer, and unique over those",
    names=r"\bunique|unique_dim|\bsort(s|ed|ing)?\b|merge.?sort|radix|(one|single|flat|linear|packed|scalar|combined|integer|1-?d)"
    r" (\w+ )?(key|index|integer|number|id|code|int64)s?\b|(flatten|pack|encod|combin|hash|ravel|lineari[sz])\w* .{0,40}"
    r"(coord|key|row|cell|voxel|pillar|index)|voxel|pillar|dim=0|morton|z-?order",
    kind="inference",
    recorded="step",
    record_shapes=False,
)
def forklift_sees_pallets(device: str, changed: bool) -> Step:
    torch.manual_seed(9)
    scans, each, side, width, wide = small(4), small(300_000, 500), small(512, 32), small(64, 16), small(128, 16)
    points, which = torch.randn(scans * each, 4, device=device), torch.arange(scans, device=device).repeat_interleave(each)
    points[:, :2] *= 15
    lift = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()).to(device, low(device)).eval()
    net = [*convolutions((width, wide)), *convolutions((wide,) * 6, 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * 5, 1), nn.Conv2d(2 * wide, 8, 1)]
    seer = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()

    @torch.inference_mode()
    def step() -> Tensor:
        cells = ((points[:, :2] + 51.2) * (side / 102.4)).long().clamp(0, side - 1)
        if changed:
            keys, pillar = torch.unique((which * side + cells[:, 0]) * side + cells[:, 1], return_inverse=True)
            found = torch.stack([keys // side**2, keys // side % side, keys % side], 1)
        else:
            found, pillar = torch.unique(torch.cat([which[:, None], cells], 1), dim=0, return_inverse=True)
        lifted = lift(points.to(low(device))).float()
        sums = torch.zeros(len(found), width, device=device).index_add_(0, pillar, lifted)
        counts = torch.zeros(len(found), device=device).index_add_(0, pillar, torch.ones_like(points[:, 0]))
        plan = torch.zeros(scans, side, side, width, device=device, dtype=low(device))
        plan[found[:, 0], found[:, 1], found[:, 2]] = (sums / counts[:, None]).to(plan.dtype)
        return seer(plan.permute(0, 3, 1, 2)).float().amax((2, 3))

    return step


def event_weights(energy: Tensor, cosine: Tensor, flux: Tensor, split: Tensor, mixed: float = 0.085) -> Tensor:
    """Return how much each event counts, where neutrinos cross the earth with a given splitting of masses."""
    radius, height, slope = 6371.0, 15.0, 0.99
    path = ((radius + height) ** 2 - radius**2 * (1 - cosine * cosine)).sqrt() - radius * cosine
    density = 3.0 + 8.0 * torch.sigmoid(-10 * (cosine + 0.6))
    matter = 1.52e-4 * density * energy / split
    angle = 1 - 2 * mixed
    resonance = (4 * mixed * (1 - mixed) + (angle - matter) ** 2).sqrt()
    strength = 4 * mixed * (1 - mixed) / (resonance * resonance)
    phase = 1.267 * split * path / energy
    appeared = 0.5 * strength * torch.sin(phase * resonance) ** 2
    stayed = 1 - slope * torch.sin(phase) ** 2 * (1 - 0.5 * appeared)
    crossed = 0.677 * energy * (1 - 0.1 * torch.exp(-energy / 5)) * torch.sigmoid((energy - 3) / 2)
    spectrum = (energy / 10) ** -0.2 * (1 + 0.05 * torch.log(energy))
    return flux * spectrum * crossed * (0.7 * stayed + 0.3 * appeared) * torch.exp(-0.002 * energy)


@unseen(
    "the weights of millions of events come from fifty elementwise operations, each of which reads and writes all of them; "
    "torch.compile makes one kernel of it",
    names=r"torch\.compile|compil(e|ed|ing|er)\b|inductor|\bfus(e|es|ed|ing|ion)\b|element.?wise|point-?wise|triton"
    r"|(one|single|custom) kernel|memory.?(bound|bandwidth|traffic)|intermediate|temporar(y|ies)|\bjit\b|jiterator|in.?place",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def neutrino_events_reweighted(device: str, changed: bool) -> Step:
    torch.manual_seed(10)
    events, bins = small(32_000_000, 1000), 400
    energy, cosine = 2 + 60 * torch.rand(events, device=device), -torch.rand(events, device=device)
    flux, where = torch.rand(events, device=device), torch.randint(bins, (events,), device=device)
    splits = [torch.tensor(value, device=device) for value in (2.3e-3, 2.5e-3, 2.7e-3)]
    weigh = torch.compile(event_weights) if changed else event_weights

    @torch.no_grad()
    def step() -> list[Tensor]:
        return [torch.bincount(where, weigh(energy, cosine, flux, split), minlength=bins) for split in splits]

    return step


@unseen(
    "each frame of the clips goes through the convolutions by itself, in a Python loop over time; all frames as one batch",
    names=r"(each|every|per|single|one|individual|over (the )?) ?(frame|time.?step|picture|image)s?\b|frame by frame"
    r"|one (by one|at a time)|(all|the) (\w+ )?(frames|images|pictures) .{0,30}(batch|once|together|one)|flatten"
    r"|(fold|merge|mov|reshap|view)\w* .{0,40}(time|frames?).{0,40}batch|(larger|bigger|one|single|as a) batch|\bbatch(ed|ing)\b"
    r"|python loop|loop over (the )?(frames|time)|cuda.?graph|launch|(small|tiny|short|many) kernels|reduce-overhead|host.?bound"
    r"|cpu.?bound",
    kind="inference",
    recorded="recognise",
    with_stack=True,
)
def signs_read_from_clips(device: str, changed: bool) -> Step:
    torch.manual_seed(11)
    rows, frames, side, wide, signs = small(8), small(24, 4), small(112, 32), small(64, 8), small(1200, 20)
    net: list[nn.Module] = []
    for inputs, outputs in ((3, wide), (wide, 2 * wide), (2 * wide, 4 * wide), (4 * wide, 8 * wide)):
        net += [*convolutions((inputs, outputs)), *convolutions((outputs,) * 4, 1)]
    look = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(device, low(device))
    look.to(memory_format=torch.channels_last).eval()
    follow, head = nn.Sequential(*(Layer(8 * wide, 8) for _ in range(depth(6)))), nn.Linear(8 * wide, signs)
    nn.ModuleList([follow, head]).to(device, low(device)).eval()
    clips = torch.rand(rows, frames, 3, side, side, device=device, dtype=low(device))

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            seen = look(clips.flatten(0, 1)).unflatten(0, (rows, frames))
        else:
            seen = torch.stack([look(clips[:, at]) for at in range(frames)], 1)
        return head(follow(seen).mean(1)).float().softmax(1)

    return step


@unseen(
    "the names of all classes go through the text encoder again for every batch of pictures, though they never change; their "
    "vectors worked out once and kept",
    names=r"(texts?|prompts?|class(es)? (name|embedding|vector|feature)s?|names|labels|captions?)\b.{0,80}(once|again|cach"
    r"|precomput|ahead|every|each|same|constant|redundant|repeated|recomput|kept|keep|stor|hoist|outside|unchang"
    r"|never chang)|(once|again|cach\w*|precomput\w*|redundant\w*|repeat\w*|recomput\w*|same|constant|hoist\w*|unchang\w*"
    r"|stor\w*)\b.{0,80}(texts?|prompts?|class|names|labels|captions?|encoder|tower|embedding|feature)|(same|identical|unchang\w*"
    r"|constant) (input|tensor|result|value|output|work|computation)s?\b|zero-?shot|loop.?invariant|memoi[sz]|lru_cache",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def antiques_named_without_training(device: str, changed: bool) -> Step:
    torch.manual_seed(12)
    rows, side, kinds, length, words = small(64), 224 if SCALE == 1 else 64, small(200, 8), small(77, 16), small(49000, 100)
    wide, width, joint = small(768, 64), small(512, 64), small(512, 32)
    cut, place = nn.Conv2d(3, wide, 16, 16), nn.Embedding((side // 16) ** 2, wide)
    look, tell = (
        nn.Sequential(*(Layer(size, size // 64) for _ in range(depth(12))), nn.LayerNorm(size)) for size in (wide, width)
    )
    embed, order = nn.Embedding(words, width), nn.Embedding(length, width)
    shown, told = nn.Linear(wide, joint, bias=False), nn.Linear(width, joint, bias=False)
    nn.ModuleList([cut, place, look, tell, embed, order, shown, told]).to(device, low(device)).eval()
    prompts = torch.randint(words, (kinds, length), device=device)
    photos = torch.rand(rows, 3, side, side, device=device, dtype=low(device))

    @torch.inference_mode()
    def described() -> Tensor:
        return F.normalize(told(tell(embed(prompts) + order.weight)[:, -1]), dim=1)

    kept = described()

    @torch.inference_mode()
    def step() -> Tensor:
        names = kept if changed else described()
        seen = look(cut(photos).flatten(2).transpose(1, 2) + place.weight).mean(1)
        return (100 * F.normalize(shown(seen), dim=1) @ names.T).float().softmax(1)

    return step


@unseen(
    "a model whose weights are float32 answers under autocast, which casts all of them to bfloat16 again in every call; the "
    "model cast once, model.to(torch.bfloat16)",
    names=r"autocast.{0,80}(again|each|every|weight|cache|\bcast|inside|leave|without)|\bcast(s|ed|ing)?\b|(weight|parameter|model|module)s?\b.{0,60}(bfloat16|bf16|half|float16|fp16|lower"
    r"|precision|convert)|(conver(t|sion)\w*|\.to\().{0,60}(weight|parameter|model|once|bfloat16|bf16|half|dtype)|dtype conver"
    r"|aten::(_to_copy|to)\b|\.half\(\)|\.bfloat16\(\)|(type|dtype|precision) (cast|conversion|change)",
    kind="inference",
    recorded="verify",
    profile_memory=True,
)
def voices_verified_at_the_gate(device: str, changed: bool) -> Step:
    torch.manual_seed(13)
    rows, frames, width, code, known = small(4), small(150, 16), small(1024, 64), small(256, 16), small(5000, 20)
    with torch.device(device):
        enter, leave, norm = nn.Linear(400, width), nn.Linear(width, code), nn.LayerNorm(width)
        layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(depth(24))))
    model = nn.Sequential(enter, layers, norm).eval()
    leave.eval()
    if changed:
        model.to(low(device))
        leave.to(low(device))
    voices, people = torch.randn(rows, frames, 400, device=device), F.normalize(torch.randn(known, code, device=device), dim=1)

    @torch.inference_mode()
    def step() -> Tensor:
        if changed:
            codes = leave(model(voices.to(low(device))).mean(1))
        else:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
                codes = leave(model(voices).mean(1))
        return (F.normalize(codes.float(), dim=1) @ people.T).max(1).values.cpu()

    return step


# With a change that brings nothing.


@unseen(
    "none: the memory in use, and its peak, are asked for in every step, for a log; not asked for (the GPU has work enough "
    "meanwhile)",
    names=r"memory_(allocated|stats|reserved|summary)|max_memory|mem_get_info|memory (statistics|stats|logging|usage is|queries)"
    r"|(peak|memory)\b.{0,30}(\blog|ask|quer)",
    kind="training",
    recorded="none",
    null=True,
    with_stack=True,
    profile_memory=True,
)
def floods_of_small_rivers(device: str, changed: bool) -> Step:
    torch.manual_seed(14)
    rows, days, width, gauges, ahead = small(256), small(256, 16), small(512, 64), 12, 14
    enter, place, layers = (
        nn.Linear(gauges, width),
        nn.Embedding(days, width),
        nn.Sequential(*(Layer(width, 8) for _ in range(2))),
    )
    head = nn.Linear(width, ahead)
    model = nn.ModuleList([enter, place, layers, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    levels, later = torch.randn(rows, days, gauges, device=device), torch.randn(rows, ahead, device=device)
    log: dict[str, int] = {}

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            foretold = head(layers(enter(levels) + place.weight).mean(1))
        loss = F.smooth_l1_loss(foretold.float(), later)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not changed:
            log["now"], log["peak"] = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        return loss.detach()

    return step


@unseen(
    "none: the mean and the spread of the colours become tensors on the GPU anew for every request, twice three numbers; made "
    "once and kept there",
    names=r"\bmean\b|\bstd\b|constant|register_buffer|HtoD|H2D|host.?(to|->).?device|torch\.tensor\(|aten::(lift_fresh|tensor)\b"
    r"|(small|tiny) (cop(y|ies)|uploads?|transfers?)|normali[sz]|pageable|pin(ned|_memory)|non_?blocking",
    kind="inference",
    recorded="step",
    null=True,
)
def coins_dated_by_photo(device: str, changed: bool) -> Step:
    torch.manual_seed(15)
    rows, side, wide, reigns = small(96), small(224, 32), small(64, 8), 90
    net = [
        *convolutions((3, wide)),
        *convolutions((wide,) * 4, 1),
        *convolutions((wide, 2 * wide)),
        *convolutions((2 * wide,) * 4, 1),
    ]
    net += [*convolutions((2 * wide, 4 * wide)), *convolutions((4 * wide,) * 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*net, nn.Linear(4 * wide, reigns)).to(device, low(device))
    model.to(memory_format=torch.channels_last).eval()
    photos = torch.randint(256, (rows, side, side, 3), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)

    def colours() -> tuple[Tensor, Tensor]:
        mean, spread = torch.tensor([0.485, 0.456, 0.406], device=device), torch.tensor([0.229, 0.224, 0.225], device=device)
        return mean[:, None, None], spread[:, None, None]

    kept = colours()

    @torch.inference_mode()
    def step() -> Tensor:
        mean, spread = kept if changed else colours()
        scores = model(((photos / 255 - mean) / spread).to(low(device)))
        return scores.float().softmax(1).cpu()

    return step


class Radar(Dataset[tuple[Tensor, int]]):
    """Fields seen by radar over a year, with what grows there; the few that are kept come again and again."""

    def __init__(self, kept: int, dates: int, side: int, crops: int) -> None:
        self.fields, self.crops = torch.randn(kept, dates, side, side), crops

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return self.fields[at % len(self.fields)], at % self.crops


@unseen(
    "none: the workers of the loader would be started anew for each epoch, but an epoch takes hours; persistent_workers=True",
    names=r"persistent|(start|spawn|fork|launch|creat|re-?creat|shut|tear)\w* .{0,30}(worker|process|epoch)|worker\w* .{0,40}"
    r"(start|spawn|fork|creat|epoch|alive|shut)|keep .{0,20}workers|data.?load(er|ing)|num_workers|prefetch",
    kind="training",
    recorded="none",
    null=True,
    record_shapes=False,
)
def barley_fields_by_radar(device: str, changed: bool) -> Step:
    torch.manual_seed(16)
    rows, dates, side, wide, crops = small(64, 4), 8, 64, small(128, 8), 12
    net = [*convolutions((dates, wide), 1), *convolutions((wide,) * depth(5), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(5), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, crops)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = Radar(small(256), dates, side, crops)
    loader = DataLoader(data, rows, num_workers=2, pin_memory=device != "cpu", persistent_workers=changed)
    batches = endless(loader)

    def step() -> Tensor:
        fields, grown = next(batches)
        fields = fields.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(fields)
        loss = F.cross_entropy(scores.float(), grown.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Apart(nn.Module):
    """A layer of a wide transformer whose queries, keys and values come from three products, or from one."""

    def __init__(self, width: int, heads: int, joined: bool) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second, self.out = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        if joined:
            one = nn.utils.skip_init(nn.Linear, width, 3 * width, device=self.out.weight.device)
            with torch.no_grad():
                one.weight.copy_(torch.cat([part.weight for part in self.parts]))  # type: ignore[misc]
                one.bias.copy_(torch.cat([part.bias for part in self.parts]))  # type: ignore[misc]
            self.parts = nn.ModuleList([one])

    def forward(self, x: Tensor) -> Tensor:
        normed = self.first(x)
        parts = self.parts[0](normed).chunk(3, 2) if len(self.parts) == 1 else [part(normed) for part in self.parts]
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


@unseen(
    "none: queries, keys and values come from three products of wide matrices, which fill the GPU each; one product for all "
    "three",
    names=r"\bqkv\b|(queries|query|q), .{0,10}(keys?|k).{0,10}(values?|v)\b.{0,60}(one|single|fus|joined|merge|concat|together)"
    r"|(fus|join|merg|combin|concat|pack)\w* .{0,40}(projection|linear|qkv|q, k|weights|products)|(three|3|separate) (\w+ )?"
    r"(projection|linear|product|matmul|gemm)|in_proj|(one|single|larger|bigger) (\w+ )?(projection|linear|gemm|matmul|product)",
    kind="inference",
    recorded="embed",
    null=True,
)
def treaties_of_two_centuries(device: str, changed: bool) -> Step:
    torch.manual_seed(17)
    rows, length, width, words = small(16), small(1024, 32), small(2048, 64), small(32000, 100)
    with torch.device(device):
        embed, place, norm = nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width)
        layers = nn.Sequential(*(Apart(width, 16, changed) for _ in range(depth(6))))
    nn.ModuleList([embed, place, norm, layers]).to(low(device)).eval()
    treaties = torch.randint(words, (rows, length), generator=torch.Generator().manual_seed(17)).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = norm(layers(embed(treaties) + place.weight)).mean(1)
        return F.normalize(x.float(), dim=1)

    return step


@unseen(
    "none: the teacher's weights follow the student's tensor by tensor, two dozen short kernels under a long step of "
    "convolutions; torch._foreach_lerp_",
    names=r"foreach|multi.?tensor|\blerp|moving average|\bema\b|teacher|swa_utils|parameter by parameter"
    r"|(each|every|per|over) (\w+ )?(parameter|weight|tensor)s?\b",
    kind="training",
    recorded="step",
    null=True,
    with_stack=True,
)
def sinuses_outlined_in_slices(device: str, changed: bool) -> Step:
    torch.manual_seed(18)
    rows, side, wide, kinds = small(32), small(256, 16), small(64, 8), 5

    def made() -> nn.Sequential:
        net = [*convolutions((1, wide, wide), 1), *convolutions((wide, 2 * wide)), *convolutions((2 * wide,) * 3, 1)]
        net += [nn.Upsample(scale_factor=2), *convolutions((2 * wide, wide), 1), nn.Conv2d(wide, kinds, 1)]
        return nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)

    student, teacher = made(), made()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=True)
    slices, outlines = torch.randn(rows, 1, side, side, device=device), torch.randint(kinds, (rows, side, side), device=device)
    followed: list[Tensor] = list(teacher.parameters())
    leaders: list[Tensor] = list(student.parameters())

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            with torch.no_grad():
                led = teacher(slices + 0.1 * torch.randn_like(slices))
            scores = student(slices)
        loss = F.cross_entropy(scores.float(), outlines) + F.mse_loss(scores.float().softmax(1), led.float().softmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            if changed:
                torch._foreach_lerp_(followed, leaders, 0.01)
            else:
                for target, leader in zip(followed, leaders, strict=True):
                    target.lerp_(leader, 0.01)
        return loss.detach()

    return step
