"""A twenty-second set of small programs, for one GPU and for two cores, with one performance fault each, written without a look
at the reader."""

from collections import deque
import logging
import math

from advice.unseen_pairs import SCALE, Step, Unseen, pairs_into
from advice.unseen_parts import Layer, convolutions, depth, low, small
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)
log = logging.getLogger(__name__)


class Decoding(nn.Module):
    """A layer of a transformer that takes one token at a time, with fewer heads for keys and values than for queries."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, size = heads, shared, width // heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * shared * size), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, at: int, repeated: bool) -> Tensor:
        h = self.first(x)
        q = self.q(h).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(h).unflatten(2, (2, self.shared, -1)).unbind(2)
        keys[:, :, at], values[:, :, at] = k[:, 0], v[:, 0]
        k, v = keys[:, :, : at + 1], values[:, :, : at + 1]
        if repeated:
            times = self.heads // self.shared
            seen = F.scaled_dot_product_attention(q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1))
        else:
            seen = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads > self.shared)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


# For the GPU, with a fault.


@unseen(
    "at every token the keys and values of the whole cache are copied out to all heads of the queries "
    "(repeat_interleave), though "
    "groups of heads share them; enable_gqa=True in scaled_dot_product_attention",
    names=r"repeat_interleave|enable_gqa|\bgqa\b|grouped.?query|(key|value|kv|cache)\w* .{0,40}(repeat|expand|copi|copy|duplicat)"
    r"|(repeat|expand|copi|copy|duplicat)\w* .{0,40}(keys?\b|values?\b|kv|cache|heads)",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def harbor_pilots_briefed(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width, heads, shared, long, words, tokens = small(16), small(4096, 64), 32, 8, small(4096, 48), small(64000, 100), 4
    heads, shared = (heads, shared) if SCALE == 1 else (8, 2)
    size, layers = width // heads, depth(8)
    with torch.device(device):
        embed = nn.Embedding(words, width).to(low(device))
        blocks = nn.ModuleList([Decoding(width, heads, shared).to(low(device)) for _ in range(layers)]).eval()
        norm, head = nn.LayerNorm(width).to(low(device)), nn.Linear(width, words, bias=False).to(low(device))
        keys = [torch.randn(rows, shared, long, size, dtype=low(device)) for _ in range(layers)]
        values = [torch.randn(rows, shared, long, size, dtype=low(device)) for _ in range(layers)]
        start = torch.randint(words, (rows, 1))

    @torch.no_grad()
    def step() -> Tensor:
        token, first = start, None
        for at in range(long - tokens, long):
            x = embed(token)
            for block, k, v in zip(blocks, keys, values, strict=True):
                x = block(x, k, v, at, repeated=not changed)
            scores = head(norm(x))[:, 0]
            first = scores if first is None else first
            token = scores.argmax(1, keepdim=True)
        assert first is not None
        return first.float()

    return step


@unseen(
    "the weights lie there in float32, and autocast casts every one of them to bfloat16 again at each request; "
    "the linear layers cast once (module.to(torch.bfloat16))",
    names=r"autocast .{0,60}(weight|again|every|each|once|cast|cop)|(weight|parameter|model)\w* .{0,60}(cast|convert"
    r"|bf16|bfloat16|half|float32|fp32)"
    r"|(cast|convert|bf16|bfloat16|half)\w* .{0,60}(weight|parameter|model|once)|aten::(to|_to_copy|copy_)\b|\.to\(torch\.bf"
    r"|precision.{0,30}(copy|copies|cast)",
    kind="inference",
    recorded="none",
)
def ferry_tickets_answered(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, width, words = small(4), small(16, 4), small(4096, 64), small(50000, 100)
    with torch.device(device):
        embed = nn.Embedding(words, width)
        layers = nn.ModuleList([Layer(width, width // 64 if SCALE > 1 else 32, causal=True) for _ in range(depth(10))]).eval()
        out = nn.Linear(width, 512)
        ids = torch.randint(words, (rows, long))
    if changed:
        for module in [*layers.modules(), out]:
            if isinstance(module, nn.Linear):
                module.to(low(device))

    @torch.no_grad()
    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            x = embed(ids)
            for layer in layers:
                x = layer(x)
            return out(x[:, -1]).float().softmax(1)

    return step


@unseen(
    "the long convolution by FFT takes a length that is a large prime (signal + filter - 1), for which the FFT has no fast plan; "
    "padded to the next power of two",
    names=r"fft\w* .{0,80}(length|size|prime|power|pad|factor|\bn\b|16381|round)|(length|size|prime|power of (two|2)|pad\w*) "
    r".{0,80}fft|bluestein|large prime|prime (length|factor|size)|power.of.(two|2)|next_?pow|smooth (length|size)"
    r"|cufft|aten::_fft",
    kind="training",
    recorded="step",
)
def whale_calls_traced(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width, long = small(8), small(256, 8), 8192 if SCALE == 1 else 512
    taps = long - 2
    whole = long + taps - 1  # 16381
    length = 1 << (whole - 1).bit_length() if changed else whole

    class Long(nn.Module):
        """A gated convolution as long as the signal."""

        def __init__(self) -> None:
            super().__init__()
            self.taps = nn.Parameter(torch.randn(width, taps) * torch.linspace(0, -6, taps).exp() * 0.05)
            self.turn, self.out, self.norm = nn.Linear(width, 2 * width), nn.Linear(width, width), nn.LayerNorm(width)

        def forward(self, x: Tensor) -> Tensor:
            gate, h = self.turn(self.norm(x)).transpose(1, 2).chunk(2, 1)
            spectrum = torch.fft.rfft(h, n=length) * torch.fft.rfft(self.taps, n=length)
            h = torch.fft.irfft(spectrum, n=length)[..., :long]
            return x + self.out((h * F.silu(gate)).transpose(1, 2))

    rise, layers, head = nn.Linear(16, width), nn.Sequential(*[Long() for _ in range(depth(4))]), nn.Linear(width, 24)
    model = nn.Sequential(rise, layers, head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    bands = torch.randn(rows, long, 16, device=device)
    calls = torch.randint(24, (rows, long), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(model(bands).flatten(0, 1), calls.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the sparse matrix of the roads was never coalesced, so that every product with it sorts and merges its two million entries "
    "first; coalesce() once, where it is made (or to_sparse_csr)",
    names=r"coalesc|\bcsr\b|to_sparse|sparse\.mm|sparse (matri|tensor|product|adjacency|index|indices)|\bcoo\b|sparse_coo"
    r"|sort\w* .{0,60}(index|indices|key|entries|edge|adjacency|sparse)|(index|indices|entries|edge|adjacency)\w* .{0,60}\bsort"
    r"|aten::_sparse|aten::_coalesce|radix",
    kind="training",
    recorded="epoch_part",
)
def village_roads_repaired(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    nodes, edges, width = small(200_000, 100), small(2_000_000, 400), small(128, 8)
    source, target = (torch.randint(nodes, (edges,), device=device) for _ in range(2))
    degree = torch.bincount(target, minlength=nodes).clamp(min=1).float()
    roads = torch.sparse_coo_tensor(torch.stack([target, source]), 1 / degree[target], (nodes, nodes))
    if changed:
        roads = roads.coalesce()

    class Around(nn.Module):
        """A layer that takes the mean over neighbours."""

        def __init__(self) -> None:
            super().__init__()
            self.own, self.around, self.norm = nn.Linear(width, width), nn.Linear(width, width), nn.LayerNorm(width)

        def forward(self, x: Tensor) -> Tensor:
            met = torch.sparse.mm(roads, self.around(x))
            return x + F.relu(self.norm(self.own(x) + met))

    model = nn.Sequential(nn.Linear(32, width), *[Around() for _ in range(3)], nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    known = torch.randn(nodes, 32, device=device)
    cost = torch.rand(nodes, 1, device=device)

    def step() -> Tensor:
        loss = F.smooth_l1_loss(model(known), cost)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "a line of the debug log, which nobody reads, is made all the same: an f-string formats tensors, each number of them fetched "
    "from the GPU; lazy arguments (log.debug('%s', tensor)), or isEnabledFor(DEBUG)",
    names=r"\blog(s|ged|ging)?\b|debug|f.?string|\bformatt\w*|__format__|__repr__|__str__|_tensor_str|print\w*"
    r"|string|aten::item|\.item\(\)"
    r"|local_scalar_dense|sync\w* .{0,60}(item|scalar)|masked_select",
    kind="training",
    recorded="step",
    with_stack=True,
)
def bakery_loaves_weighed(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide = small(64, 4), 224 if SCALE == 1 else 32, small(64, 8)
    net = [*convolutions((3, wide, 2 * wide)), *convolutions((2 * wide,) * depth(6), 1), *convolutions((2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(5), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * wide, 8)]
    model = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    loaves = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    kinds = torch.randint(8, (rows,), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(loaves)
        loss = F.cross_entropy(scores.float(), kinds)
        if changed:
            log.debug("loss %s, scores %s", loss, scores)
        else:
            log.debug(f"loss {loss}, scores {scores}")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "each of three tasks' losses goes backward on its own (retain_graph=True), each time through the whole shared trunk; "
    "the losses summed, and one backward",
    names=r"retain_graph|(several|three|3|multiple|many|each|every|second|repeated|more than one|single|one) .{0,30}backward"
    r"|backward .{0,60}(times|thrice|twice|per (task|loss|head)|each (task|loss)|once|again|repeat)|sum\w* (of )?(the |all )?"
    r"(\w+ )?loss|loss\w* .{0,30}(sum|add|combin|together)|total loss|trunk|backbone",
    kind="training",
    recorded="step",
)
def clinic_slides_graded(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide = small(48, 4), 256 if SCALE == 1 else 32, small(64, 8)
    net = [*convolutions((3, wide, 2 * wide)), *convolutions((2 * wide,) * depth(6), 1), *convolutions((2 * wide, 4 * wide))]
    net += [*convolutions((4 * wide,) * depth(4), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    trunk = nn.Sequential(*net).to(device).to(memory_format=torch.channels_last)
    grade, stain, age = (nn.Linear(4 * wide, outputs).to(device) for outputs in (5, 3, 1))
    parameters = [p for part in (trunk, grade, stain, age) for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    slides = torch.rand(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    grades, stains = torch.randint(5, (rows,), device=device), torch.randint(3, (rows,), device=device)
    ages = torch.rand(rows, 1, device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            seen = trunk(slides)
        seen = seen.float()
        losses = [F.cross_entropy(grade(seen), grades), F.cross_entropy(stain(seen), stains), F.mse_loss(age(seen), ages)]
        if changed:
            torch.stack(losses).sum().backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack([*(loss.detach() for loss in losses), norm])

    return step


@unseen(
    "each parameter has an optimizer of its own, stepped by a hook during backward, to save memory that is not "
    "short: hundreds of "
    "tiny optimizer steps; one fused optimizer over all parameters after backward",
    names=r"optimi[sz]er\w* .{0,80}(per|each|hundred|separate|hook|own)|(per|each|every|one|single"
    r"|many|hundreds of|separate|\d+) .{0,20}optimi[sz]er|hook|post_accumulate|per.parameter|parameter by parameter"
    r"|step#|optimi[sz]er\.step .{0,60}(call|times|launch)",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def laundry_loads_sorted(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, width, words = small(32), small(128, 8), small(512, 32), small(8000, 50)
    embed = nn.Embedding(words, width)
    layers = [Layer(width, 8 if SCALE == 1 else 2) for _ in range(depth(12))]
    model = nn.Sequential(embed, *layers, nn.LayerNorm(width), nn.Linear(width, 12)).to(device)
    together = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    apart = {parameter: torch.optim.AdamW([parameter], lr=1e-4, fused=True) for parameter in model.parameters()}
    ids = torch.randint(words, (rows, long), device=device)
    loads = torch.randint(12, (rows,), device=device)

    def update(parameter: Tensor) -> None:
        own = apart[parameter]  # type: ignore[index]
        own.step()
        own.zero_grad()

    if not changed:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(ids)[:, 0]
        loss = F.cross_entropy(scores.float(), loads)
        loss.backward()
        if changed:
            together.step()
            together.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the names of the classes go through the text encoder at every request, though they and the weights never change; "
    "encoded once, kept",
    names=r"text (encoder|tower|embedding|feature|part)|(class|label|prompt|name)\w* .{0,60}(cache|once|each|every|again|recomput"
    r"|re-?encod|encod|embed)|(cache|precomput|comput\w* once|keep|hoist|reus|re-?encod|encod)\w* .{0,60}(text|class"
    r"|label|prompt|name"
    r"|embedding|feature)|same (input|result|output|value)s? .{0,40}(every|each|again)|constant (input|result"
    r"|output)|loop.?invariant|encode_?names",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def museum_labels_matched(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width, heads, classes = small(64), small(768, 32), 12 if SCALE == 1 else 2, small(400, 10)
    side = 224 if SCALE == 1 else 64
    with torch.device(device):
        patches = nn.Conv2d(3, width, 16, 16).to(low(device))
        sight = nn.Sequential(*[Layer(width, heads) for _ in range(depth(12))]).to(low(device)).eval()
        embed = nn.Embedding(small(30000, 100), width).to(low(device))
        speech = nn.Sequential(*[Layer(width, heads, causal=True) for _ in range(depth(8))]).to(low(device)).eval()
        photos = torch.rand(rows, 3, side, side, dtype=low(device))
        named = torch.randint(embed.num_embeddings, (classes, 16))

    def encode_names() -> Tensor:
        return F.normalize(speech(embed(named))[:, -1].float(), dim=1)

    with torch.no_grad():
        kept = encode_names()

    @torch.no_grad()
    def step() -> Tensor:
        pieces = patches(photos).flatten(2).transpose(1, 2)
        seen = F.normalize(sight(pieces).mean(1).float(), dim=1)
        meant = kept if changed else encode_names()
        return (100 * seen @ meant.T).softmax(1)

    return step


@unseen(
    "every distribution of the imagined steps checks its arguments and samples (validate_args, on by default), and "
    "the host waits "
    "for each check; validate_args=False",
    names=r"validat|distribution|Categorical|Normal\b|check\w* .{0,50}(argument|sample|support|constraint)|constraint|aten::all\b"
    r"|is_nonzero|aten::item|local_scalar_dense|bool\w* .{0,40}(sync|wait)|sync\w* .{0,40}(bool|all\b|check)",
    kind="training",
    recorded="step",
    with_stack=True,
)
def kite_flights_steered(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width, groups, classes, pulls, horizon = (
        small(1024, 8),
        small(512, 16),
        small(32),
        small(32),
        6,
        15 if SCALE == 1 else 3,
    )
    cell, prior = nn.GRUCell(groups * classes + pulls, width), nn.Linear(width, groups * classes)
    actor = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * pulls))
    critic = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
    model = nn.ModuleList([cell, prior, actor, critic]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    begun = torch.randn(rows, width, device=device)
    codes = torch.zeros(rows, groups * classes, device=device)
    validated = False if changed else None  # None: the default

    def step() -> Tensor:
        state, code = begun, codes
        worths, sure, unsure = [], [], []
        for _ in range(horizon):
            mean, spread = actor(state).chunk(2, 1)
            policy = Normal(mean, F.softplus(spread) + 0.1, validate_args=validated)
            pull = policy.rsample()
            state = cell(torch.cat([code, pull], 1), state)
            logits = prior(state).unflatten(1, (groups, classes))
            world = Categorical(logits=logits, validate_args=validated)
            drawn = world.sample()
            chances = world.probs
            code = (F.one_hot(drawn, classes) + chances - chances.detach()).flatten(1)
            worths.append(critic(state)[:, 0])
            sure.append(world.log_prob(drawn).mean(1))
            unsure.append(policy.entropy().sum(1))
        loss = -(torch.stack(worths) + 0.1 * torch.stack(sure) + 1e-3 * torch.stack(unsure)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the bound of each picture's brightness is a quantile, for which torch.quantile sorts every pixel; torch.topk "
    "of the few largest "
    "(or kthvalue)",
    names=r"quantile|percentile|top.?k|kthvalue|\bsort\w*|dynamic.?threshold",
    kind="inference",
    recorded="step",
)
def aurora_frames_tinted(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide, rounds = small(48), 256 if SCALE == 1 else 32, small(96, 8), 2
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(7), 1), nn.Upsample(scale_factor=2)]
    net += [*convolutions((wide, wide // 2), 1), nn.Conv2d(wide // 2, 3, 3, 1, 1)]
    model = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    noise = torch.randn(rows, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    share, pixels = 0.995, 3 * side * side

    def bound(frames: Tensor) -> Tensor:
        bright = frames.flatten(1).abs()
        if not changed:
            return torch.quantile(bright, share, dim=1)
        rank = share * (pixels - 1)
        lower = math.floor(rank)
        largest = bright.topk(pixels - lower, dim=1).values
        return torch.lerp(largest[:, -1], largest[:, -2], rank - lower)

    @torch.no_grad()
    def step() -> Tensor:
        frames = noise
        for turn in range(rounds):
            clean = frames - model(frames.to(low(device))).float()
            limit = bound(clean).clamp(min=1.0)[:, None, None, None]
            clean = torch.minimum(torch.maximum(clean, -limit), limit) / limit
            frames = torch.lerp(frames, clean, 0.5 + 0.5 * turn / rounds)
        return frames

    return step


@unseen(
    "the penalty on words already said is put row by row, over Python sets of the row's words, which are fetched "
    "from the GPU and "
    "sent back each time; all rows at once with gather and scatter_",
    names=r"penalt|gather|scatter|tolist|python (set|list|loop)|row by row|(loop\w*|each|every|per) .{0,20}(row|sequence|sample)"
    r"|vectori[sz]|aten::item|local_scalar_dense|index_put|(whole|entire) batch|all (\w+ )?(rows|sequences) at once"
    r"|torch\.tensor\(|DtoH|HtoD|sync\w* .{0,60}(loop|row|token|list)",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def parrot_phrases_taught(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width, heads, prompt, tokens, words = small(8), small(1024, 32), 16, small(256, 16), 8, small(32000, 100)
    heads, tokens = (heads, tokens) if SCALE == 1 else (2, 3)
    layers = depth(12)
    with torch.device(device):
        embed = nn.Embedding(words, width).to(low(device))
        blocks = nn.ModuleList([Decoding(width, heads, heads).to(low(device)) for _ in range(layers)]).eval()
        norm, head = nn.LayerNorm(width).to(low(device)), nn.Linear(width, words, bias=False).to(low(device))
        room = (rows, heads, prompt + tokens, width // heads)
        keys = [torch.randn(room, dtype=low(device)) for _ in range(layers)]
        values = [torch.randn(room, dtype=low(device)) for _ in range(layers)]
        said = torch.zeros(rows, prompt + tokens + 1, dtype=torch.long)
        said[:, : prompt + 1] = torch.randint(words, (rows, prompt + 1))

    def penalize(scores: Tensor, so_far: Tensor) -> Tensor:
        if changed:
            met = scores.gather(1, so_far)
            return scores.scatter_(1, so_far, torch.where(met > 0, met / 1.2, met * 1.2))
        for row in range(rows):
            seen = torch.tensor(sorted(set(so_far[row].tolist())), device=device)
            met = scores[row, seen]
            scores[row, seen] = torch.where(met > 0, met / 1.2, met * 1.2)
        return scores

    @torch.no_grad()
    def step() -> Tensor:
        scores = torch.zeros(rows, words, device=device)
        for at in range(prompt, prompt + tokens):
            x = embed(said[:, at : at + 1])
            for block, k, v in zip(blocks, keys, values, strict=True):
                x = block(x, k, v, at, repeated=False)
            scores = penalize(head(norm(x))[:, 0].float(), said[:, : at + 1])
            said[:, at + 1] = scores.argmax(1)
        return scores

    return step


@unseen(
    "smoothed labels are made as a float matrix of one number for each token and word of the vocabulary (one_hot), "
    "multiplied with "
    "log_softmax; F.cross_entropy(label_smoothing=0.1) with the class indices",
    names=r"one.?hot|label_?.?smooth|F\.cross_entropy|cross_entropy .{0,60}(ind|label|smooth|dense)|class (index"
    r"|indices)|index\w* .{0,30}target|target .{0,40}(ind|dense|matrix)"
    r"|aten::scatter_?\b|log_softmax",
    kind="training",
    recorded="none",
)
def cinema_reviews_written(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, width, words = small(16), small(512, 8), small(1024, 32), small(32000, 50)
    embed, head = nn.Embedding(words, width), nn.Linear(width, words)
    layers = [Layer(width, 16 if SCALE == 1 else 2, causal=True) for _ in range(depth(6))]
    model = nn.Sequential(embed, *layers, nn.LayerNorm(width), head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(words, (rows, long + 1), device=device)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(ids[:, :-1])
        scores, meant = scores.float().flatten(0, 1), ids[:, 1:].flatten()
        if changed:
            loss = F.cross_entropy(scores, meant, label_smoothing=0.1)
        else:
            smooth = F.one_hot(meant, words).float() * 0.9 + 0.1 / words
            loss = -(smooth * scores.log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the rotation of each piece is found on its own: a singular value decomposition of one 3 x 3 matrix after the other; "
    "torch.linalg.svd of the whole batch",
    names=r"svd|singular value|(batch|one|single|each|every|loop)\w* .{0,60}(decompos|matri|linalg|rotation)|(matri"
    r"|linalg|rotation"
    r"|decompos)\w* .{0,60}(batch|one by one|loop|at once|each|one at a time)|python loop|cusolver|gesvd",
    kind="inference",
    recorded="step",
)
def puzzle_pieces_aligned(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    clouds, points, width = small(12), small(2048, 16), small(512, 32)
    rise = nn.Linear(3, width).to(device, low(device))
    layers = nn.Sequential(*[Layer(width, 8 if SCALE == 1 else 2) for _ in range(depth(6))]).to(device, low(device)).eval()
    first = torch.rand(clouds, points, 3, device=device) * torch.tensor([1.0, 0.7, 0.4], device=device)
    turned = torch.linalg.qr(torch.randn(clouds, 3, 3))[0]
    turned = (turned * turned.det()[:, None, None]).to(device)  # no mirrors
    second = first @ turned + 0.01 * torch.rand(clouds, points, 3, device=device)

    def rotation(shared: Tensor) -> Tensor:
        u, _, vh = torch.linalg.svd(shared)
        flip = torch.ones_like(shared[..., 0])
        flip[..., 2] = torch.det(u @ vh)
        return (u * flip.unsqueeze(-2)) @ vh

    @torch.no_grad()
    def step() -> Tensor:
        a, b = (layers(rise(cloud.to(low(device)))) for cloud in (first, second))
        likely = (a @ b.transpose(1, 2) / math.sqrt(width)).float().softmax(2)
        met = likely @ second
        # kept well off degenerate, so that the rotation is not a matter of rounding
        shared = (first - first.mean(1, keepdim=True)).transpose(1, 2) @ (met + second - (met + second).mean(1, keepdim=True))
        if changed:
            return rotation(shared)
        return torch.stack([rotation(shared[cloud]) for cloud in range(clouds)])

    return step


# For the GPU, with a change that brings nothing.


@unseen(
    "nothing: the loss is fetched with item() at the end of each step, but the GPU has long been busy for most of "
    "it; kept on the GPU",
    names=r"\bnothing\b",
    kind="training",
    null=True,
    recorded="step",
)
def tram_stops_announced(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, width, words = small(32), small(512, 8), small(1024, 32), small(4000, 50)
    embed, head = nn.Embedding(words, width), nn.Linear(width, words)
    layers = [Layer(width, 16 if SCALE == 1 else 2, causal=True) for _ in range(depth(8))]
    model = nn.Sequential(embed, *layers, nn.LayerNorm(width), head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(words, (rows, long + 1), device=device)

    def step() -> Tensor | float:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            scores = model(ids[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach() if changed else loss.item()

    return step


@unseen(
    "nothing: the network runs under no_grad, and the GPU is busy all the time; under inference_mode",
    names=r"\bnothing\b",
    kind="inference",
    null=True,
    recorded="none",
)
def greenhouse_leaves_checked(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, wide = small(128), 256 if SCALE == 1 else 32, small(96, 8)
    net = [*convolutions((3, wide)), *convolutions((wide,) * depth(8), 1), *convolutions((wide, 2 * wide))]
    net += [*convolutions((2 * wide,) * depth(6), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, 40)]
    model = nn.Sequential(*net).to(device, low(device)).to(memory_format=torch.channels_last).eval()
    leaves = torch.rand(rows, 3, side, side, device=device, dtype=low(device)).contiguous(memory_format=torch.channels_last)

    def step() -> Tensor:
        with torch.inference_mode() if changed else torch.no_grad():
            return model(leaves).float().softmax(1)

    return step


@unseen(
    "nothing: the ids of the words are sent from pageable memory, but they are few, next to what is computed; "
    "pinned, with non_blocking=True",
    names=r"\bnothing\b",
    kind="inference",
    null=True,
    recorded="request",
    with_stack=True,
)
def subway_maps_summarised(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, width, words = small(64), small(512, 8), small(1024, 32), small(30000, 50)
    with torch.device(device):
        embed, head = nn.Embedding(words, width).to(low(device)), nn.Linear(width, 256).to(low(device))
        layers = nn.Sequential(*[Layer(width, 16 if SCALE == 1 else 2) for _ in range(depth(10))]).to(low(device)).eval()
    ids = torch.randint(words, (rows, long))
    if changed and device != "cpu":
        ids = ids.pin_memory()

    @torch.no_grad()
    def step() -> Tensor:
        sent = ids.to(device, non_blocking=changed)
        return F.normalize(head(layers(embed(sent)).mean(1)).float(), dim=1)

    return step


# For two cores, with a fault.


@unseen(
    "the weights of the trained network still come from weight_norm, anew at each chunk; "
    "parametrize.remove_parametrizations, once, before it serves",
    names=r"weight_?.?norm|parametri[sz]|(weight|parameter)\w* .{0,60}(recomput|anew|again|each|every|once|bake|fold|fus)"
    r"|(recomput|bake|fold|fus|remov)\w* .{0,40}(weight|norm)|remove_weight_norm",
    kind="inference",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def radio_jingles_synthesised(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Conv1d(80, 1024, 7, padding=3)]
    wide = 1024
    for stride in (4, 4, 2):
        layers += [nn.LeakyReLU(0.1), nn.Upsample(scale_factor=stride), nn.Conv1d(wide, wide // 2, 7, padding=3)]
        wide //= 2
        layers += [nn.LeakyReLU(0.1), nn.Conv1d(wide, wide, 7, padding=3)]
    layers += [nn.LeakyReLU(0.1), nn.Conv1d(wide, 1, 7, padding=3), nn.Tanh()]
    for layer in layers:
        if isinstance(layer, nn.Conv1d):
            parametrizations.weight_norm(layer)
    model = nn.Sequential(*layers).to(device).eval()
    if changed:
        for layer in layers:
            if parametrize.is_parametrized(layer):
                parametrize.remove_parametrizations(layer, "weight")
    chunk = torch.randn(1, 80, 2, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        return model(chunk)[0, 0]

    return step


@unseen(
    "whole photos are brightened, coloured and normed, and only then is the small part cut out that is trained on; "
    "cut out first, the rest on the part",
    names=r"crop|\bcut|\bslic|(before|after|first|last|order|earlier) .{0,40}(augment|normali|colou?r|jitter|flip)"
    r"|(augment|normali|colou?r"
    r"|jitter)\w* .{0,60}(before|after|whole|full|smaller|fewer|discard|thrown)|(whole|full|entire).{0,20}(image"
    r"|photo|picture|resolution"
    r"|size)|thr[eo]wn? away|discard|unused|fewer pixels|aten::pow",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def pottery_glazes_photographed(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, tall, wide, side = 8, 288, 384, 128
    photos = torch.rand(rows, 3, tall, wide, device=device)
    mean, spread = torch.full((1, 3, 1, 1), 0.45, device=device), torch.full((1, 3, 1, 1), 0.22, device=device)
    net = [*convolutions((3, 24, 48, 96)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 14)]
    model = nn.Sequential(*net).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    glazes = torch.randint(14, (rows,), device=device)

    def coloured(part: Tensor, gamma: Tensor, strong: Tensor) -> Tensor:
        part = part.clamp(min=1e-3) ** gamma
        grey = part.mean(1, keepdim=True)
        return ((grey + strong * (part - grey)).clamp(0, 1) - mean) / spread

    def step() -> Tensor:
        gamma, strong = (0.7 + 0.6 * torch.rand(rows, 1, 1, 1, device=device) for _ in range(2))
        top, left = int(torch.randint(tall - side, ())), int(torch.randint(wide - side, ()))
        if changed:
            seen = coloured(photos[..., top : top + side, left : left + side], gamma, strong)
        else:
            seen = coloured(photos, gamma, strong)[..., top : top + side, left : left + side]
        loss = F.cross_entropy(model(seen), glazes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "the wide Gaussian blur of each photo is a convolution of 41 x 41 weights, though it is the product of a column and a row; "
    "two convolutions, 41 x 1 and 1 x 41",
    names=r"separab|(two|1.?d|one.dimensional) .{0,20}(pass|conv|filter)|1 ?x ?41|41 ?x ?41|gauss|blur|depthwise|groups="
    r"|(conv\w*|kernel|filter) .{0,40}(row|column|horizontal|vertical|outer product|rank.?(1|one))"
    r"|(large|wide|big) (kernel|filter)",
    kind="inference",
    recorded="clear_up",
    on=("cpu",),
)
def fog_banks_lifted(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, side, reach = 4, 128, 20
    model = nn.Sequential(nn.Conv2d(3, 24, 3, 1, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.ReLU(), nn.Conv2d(24, 3, 3, 1, 1))
    model = model.to(device).eval()
    foggy = 0.6 * torch.rand(rows, 3, side, side, device=device) + 0.3
    line = torch.exp(-((torch.arange(-reach, reach + 1, device=device) / 8) ** 2) / 2)
    line = line / line.sum()
    square = torch.outer(line, line).repeat(3, 1, 1, 1)
    column, row = line.view(1, 1, -1, 1).repeat(3, 1, 1, 1), line.view(1, 1, 1, -1).repeat(3, 1, 1, 1)

    @torch.no_grad()
    def step() -> Tensor:
        seen = F.pad(foggy, (reach,) * 4, mode="reflect")
        filters = (column, row) if changed else (square,)
        light = seen
        for weights in filters:
            light = F.conv2d(light, weights, groups=3)
        lifted = torch.log(foggy) - torch.log(light)
        return (lifted + 0.1 * model(lifted)).sigmoid()

    return step


@unseen(
    "the windows of a batch come as a list of NumPy arrays, which torch.tensor reads number by number; "
    "np.stack first, then torch.from_numpy",
    names=r"numpy|np\.|torch\.tensor\(|from_numpy|list of|as_tensor|np\.stack|torch\.stack|sliding_window|unfold"
    r"|aten::lift_fresh|python list"
    r"|host.{0,30}(prepar|build|batch)|batch .{0,40}(built|made|assembl|prepar|construct)",
    kind="training",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def tide_gauges_foretold(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, ahead, length = 128, 336, 48, 100_000
    series = np.cumsum(np.random.default_rng(1).standard_normal(length)).astype(np.float32) / 100
    model = nn.Sequential(nn.Linear(long, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, ahead)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    dice = np.random.default_rng(2)

    def step() -> Tensor:
        starts = dice.integers(0, length - long - ahead, rows)
        windows = [series[start : start + long] for start in starts]
        futures = [series[start + long : start + long + ahead] for start in starts]
        if changed:
            seen, meant = torch.from_numpy(np.stack(windows)), torch.from_numpy(np.stack(futures))
        else:
            seen, meant = torch.tensor(windows), torch.tensor(futures)
        base = seen[:, -1:]
        loss = F.smooth_l1_loss(model(seen - base), meant - base)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "for each edge the features of both ends are put together (cat) and go through a linear layer; the layer's parts applied to "
    "the nodes, of which there are far fewer, and their results gathered and added",
    names=r"\bcat\b|concat|(linear|matmul|addmm|\bmm\b|gemm|project)\w* .{0,60}(edge|node|gather|before|split"
    r"|per.edge)|(edge|node)s?\b"
    r".{0,60}(linear|matmul|project|multiply|instead|before)|split\w* .{0,30}(weight|linear|layer|matri)|gather\w* .{0,40}(after"
    r"|before|later|first|project)",
    kind="training",
    recorded="step",
    on=("cpu",),
)
def trail_junctions_rated(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    nodes, edges, width, near = 2000, 24_000, 64, 4
    source, target = torch.randint(nodes, (edges,), device=device), torch.randint(nodes, (edges,), device=device)

    class Passing(nn.Module):
        """Messages along edges, from both ends and from what is known of the edge."""

        def __init__(self) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(2 * width + near, width), nn.Linear(width, width)

        def forward(self, x: Tensor, known: Tensor) -> Tensor:
            if changed:
                ours, theirs, own = self.message.weight.split([width, width, near], 1)
                sent = (x @ ours.T).index_select(0, target) + (x @ theirs.T).index_select(0, source)
                sent = sent + F.linear(known, own, self.message.bias)
            else:
                ends = [x.index_select(0, target), x.index_select(0, source), known]
                sent = self.message(torch.cat(ends, 1))
            return x + self.update(torch.zeros_like(x).index_add(0, target, F.relu(sent)))

    rise, passing, head = nn.Linear(12, width).to(device), nn.ModuleList([Passing(), Passing()]).to(device), nn.Linear(width, 1)
    model = nn.ModuleList([rise, passing, head.to(device)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
    features, lengths = torch.randn(nodes, 12, device=device), torch.rand(edges, near, device=device)
    ratings = torch.rand(nodes, 1, device=device)

    def step() -> Tensor:
        x = rise(features)
        for layer in passing:
            x = layer(x, lengths)
        loss = F.mse_loss(head(x), ratings)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "precision and recall are counted afresh at each step, class by class, over all that was predicted in the last 400 batches; "
    "counts kept up to date with the new batch (and without the oldest)",
    names=r"metric|precision and recall|\brecall|\bf1\b|confusion|\bhistory|running (count|sum|total)|incremental"
    r"|bincount|accumulat\w* .{0,40}(count|statistic|metric)"
    r"|(class by class|per class|each class|every class)|aten::(eq|cat|bitwise_and|logical_and)|every (n|\d+"
    r"|few)\w* step|less often",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def mailroom_parcels_routed(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, routes, window = 256, 16, 400
    model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, routes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    parcels, meant = torch.randn(rows, 256, device=device), torch.randint(routes, (rows,), device=device)
    history = deque([(torch.randint(routes, (rows,)), torch.randint(routes, (rows,))) for _ in range(window)])

    def pairs(guessed: Tensor, true: Tensor) -> Tensor:
        return torch.bincount(true * routes + guessed, minlength=routes * routes).view(routes, routes)

    counts = torch.stack([pairs(*batch) for batch in history]).sum(0)

    def step() -> list[Tensor]:
        nonlocal counts
        scores = model(parcels)
        loss = F.cross_entropy(scores, meant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        new, old = (scores.detach().argmax(1), meant), history.popleft()
        history.append(new)
        if changed:
            counts = counts + pairs(*new) - pairs(*old)
            hits, guesses, trues = counts.diagonal(), counts.sum(0), counts.sum(1)
        else:
            guessed, true = (torch.cat(parts) for parts in zip(*history, strict=True))
            found = [((guessed == c) & (true == c), guessed == c, true == c) for c in range(routes)]
            hits, guesses, trues = (torch.stack([each.sum() for each in kind]) for kind in zip(*found, strict=True))
        return [loss.detach(), hits / guesses.clamp(min=1), hits / trues.clamp(min=1)]

    return step


@unseen(
    "while the judge learns, the drawings it judges are still attached to the drawer, so that its gradients are "
    "computed too (and "
    "thrown away); fake.detach()",
    names=r"detach|retain_graph|no_grad|generator|drawer|(unused|unneeded|needless|discard|thrown|wasted|zeroed"
    r"|unnecessary)\w* .{0,30}"
    r"(grad|backward)|(grad|backward)\w* .{0,60}(unused|discard|thrown|wasted|not needed|never used|zeroed|twice|through)"
    r"|backward .{0,30}(again|second)",
    kind="training",
    recorded="step",
    on=("cpu",),
    profile_memory=True,
)
def stamp_designs_drawn(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, wide, broad = 16, 40, 64
    drawer = nn.Sequential(
        *[nn.Linear(64, 4 * broad * 16), nn.Unflatten(1, (4 * broad, 4, 4)), nn.ReLU()],
        *[nn.ConvTranspose2d(4 * broad, 2 * broad, 4, 2, 1), nn.BatchNorm2d(2 * broad), nn.ReLU()],
        *[nn.ConvTranspose2d(2 * broad, broad, 4, 2, 1), nn.BatchNorm2d(broad), nn.ReLU()],
        *[nn.ConvTranspose2d(broad, 3, 4, 2, 1), nn.Tanh()],
    ).to(device)
    judge = nn.Sequential(
        *[nn.Conv2d(3, wide, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(wide, 2 * wide, 4, 2, 1), nn.LeakyReLU(0.2)],
        *[nn.Conv2d(2 * wide, 4 * wide, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4 * wide * 16, 1)],
    ).to(device)
    draws = torch.optim.Adam(drawer.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real = torch.rand(rows, 3, 32, 32, device=device) * 2 - 1
    noise = torch.randn(rows, 64, device=device)
    yes, no = torch.ones(rows, 1, device=device), torch.zeros(rows, 1, device=device)

    def step() -> Tensor:
        fake = drawer(noise)
        judges.zero_grad()
        doubt = F.binary_cross_entropy_with_logits(judge(real), yes)
        if changed:
            doubt = doubt + F.binary_cross_entropy_with_logits(judge(fake.detach()), no)
            doubt.backward()
        else:
            doubt = doubt + F.binary_cross_entropy_with_logits(judge(fake), no)
            doubt.backward(retain_graph=True)
        judges.step()
        draws.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(fake), yes)
        fooled.backward()
        draws.step()
        return torch.stack([doubt.detach(), fooled.detach()])

    return step


@unseen(
    "the likelihood of the Gaussian process takes the inverse of the covariance and, apart from it, its log determinant; "
    "one Cholesky factor for both (cholesky_solve, the sum of the logarithms of the diagonal)",
    names=r"cholesky|inverse|linalg_inv|\binv\b|logdet|slogdet|determinant|lu_factor|linalg_solve|factor(is|iz|ed)|triangular",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def beehive_humidity_mapped(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    hives = 500
    places = torch.rand(hives, 3, device=device, dtype=torch.float64)
    humid = torch.sin(places.sum(1, keepdim=True) * 4) + 0.1 * torch.randn(hives, 1, device=device, dtype=torch.float64)
    reach = torch.zeros(3, device=device, dtype=torch.float64, requires_grad=True)
    size = torch.zeros((), device=device, dtype=torch.float64, requires_grad=True)
    noise = torch.full((), -1.0, device=device, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([reach, size, noise], lr=1e-3)
    eye = torch.eye(hives, device=device, dtype=torch.float64)

    def step() -> Tensor:
        scaled = places / reach.exp()
        squares = scaled.square().sum(1)
        apart = (squares[:, None] + squares[None] - 2 * scaled @ scaled.T).clamp(min=0)
        shared = size.exp() * torch.exp(-0.5 * apart) + noise.exp() * eye
        if changed:
            lower = torch.linalg.cholesky(shared)
            fit = (humid * torch.cholesky_solve(humid, lower)).sum()
            loss = 0.5 * fit + lower.diagonal().log().sum()
        else:
            loss = 0.5 * (humid.T @ shared.inverse() @ humid).squeeze() + 0.5 * torch.logdet(shared)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the distances are taken difference by difference (compute_mode='donot_use_mm_for_euclid_dist'); by a matrix product, which "
    "cdist uses by itself, or for unit vectors a plain product",
    names=r"cdist|compute_mode|use_mm|(distance|euclid|norm)\w* .{0,60}(matrix|matmul|product|mm\b|gemm|dot)|(matmul"
    r"|matrix product|gemm"
    r"|dot product|matrix multipl)\w* .{0,60}(distance|euclid|similar)|pairwise",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def butterfly_wings_compared(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, known, width, side = 32, 9000, 128, 80
    net = [*convolutions((3, 24, 48, 96)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, width)]
    model = nn.Sequential(*net).to(device).eval()
    wings = torch.rand(rows, 3, side, side, device=device)
    gallery = torch.randn(known, width, device=device)
    mode = "use_mm_for_euclid_dist" if changed else "donot_use_mm_for_euclid_dist"

    @torch.no_grad()
    def step() -> Tensor:
        apart = torch.cdist(model(wings), gallery, compute_mode=mode)
        return apart.topk(10, dim=1, largest=False).values

    return step


@unseen(
    "the best path of each recipe is followed backwards one tag at a time, each fetched from the tensor as a Python number; all "
    "recipes at once, with gather (or the pointers as lists, tolist())",
    names=r"backtrac|back.?pointer|viterbi|best path|aten::item|\.item\(\)|int\(|tolist|gather|scalar"
    r"|local_scalar_dense|aten::select"
    r"|one (tag|element|number|value) at a time|python (loop|number)|element by element|vectori[sz]",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def recipe_steps_tagged(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, words, width, tags = 24, 64, 2000, 128, 18
    embed, turn, head = nn.Embedding(words, width), nn.Conv1d(width, width, 5, padding=2), nn.Linear(width, tags)
    again = nn.Conv1d(width, width, 5, padding=2)
    for part in (embed, turn, again, head):
        part.to(device).eval()
    change = torch.randn(tags, tags, device=device)
    ids = torch.randint(words, (rows, long), device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = F.relu(turn(embed(ids).transpose(1, 2)))
        scores = head(F.relu(again(x)).transpose(1, 2))
        so_far, pointers = scores[:, 0], []
        for at in range(1, long):
            best, pointer = (so_far[:, :, None] + change).max(1)
            so_far = best + scores[:, at]
            pointers.append(pointer)
        last = so_far.argmax(1)
        if changed:
            tag, path = last, [last]
            for pointer in reversed(pointers):
                tag = pointer.gather(1, tag[:, None])[:, 0]
                path.append(tag)
            return torch.stack(path[::-1], 1)
        paths = []
        for row in range(rows):
            own = [int(last[row])]
            for pointer in reversed(pointers):
                own.append(int(pointer[row, own[-1]]))
            paths.append(own[::-1])
        return torch.tensor(paths)

    return step


@unseen(
    "to draw 128 of 400,000 past moves, all 400,000 numbers are shuffled (randperm) at each step; torch.randint",
    names=r"randperm|permut|shuffl|randint|sampl\w* .{0,60}(index|indices|replay|buffer|whole|all)|(replay|buffer"
    r"|index|indices) .{0,60}"
    r"(sampl|draw)|random (index|indices|integer|number)",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def warehouse_robots_guided(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    kept, rows, seen, moves = 400_000, 128, 24, 6
    before, after = torch.randn(kept, seen, device=device), torch.randn(kept, seen, device=device)
    done, made, gained = torch.rand(kept) < 0.02, torch.randint(moves, (kept,)), torch.rand(kept)

    def judging() -> nn.Module:
        layers = [nn.Linear(seen, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, moves)]
        return nn.Sequential(*layers).to(device)

    judge, slow = judging(), judging()
    slow.load_state_dict(judge.state_dict())
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-4)

    def step() -> Tensor:
        drawn = torch.randint(kept, (rows,)) if changed else torch.randperm(kept)[:rows]
        with torch.no_grad():
            worth = slow(after[drawn]).max(1).values
            aim = gained[drawn] + 0.99 * worth * ~done[drawn]
        loss = F.smooth_l1_loss(judge(before[drawn]).gather(1, made[drawn, None])[:, 0], aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(judge.parameters()), 0.005)
        return loss.detach()

    return step


@unseen(
    "the echo of the chapel, thousands of taps long, is put on by a direct convolution (conv1d); through the FFT: "
    "rfft, product, irfft",
    names=r"fft|(long|large|many|thousand|\d{3,}).{0,20}(kernel|filter|taps|impulse)|impulse|echo|reverb|conv1d|frequency domain"
    r"|(kernel|filter|taps)\w* .{0,30}(long|large|length|size)",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def chapel_choirs_recorded(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, taps, window = 2, 24_000, 2000, 512
    voices = torch.randn(rows, long, device=device)
    echo = torch.randn(taps, device=device) * torch.linspace(0, -7, taps, device=device).exp() * 0.1
    hann = torch.hann_window(window, device=device)
    bins = window // 2 + 1
    layers = [nn.Conv1d(bins, 256, 3, padding=1), nn.ReLU(), nn.Conv1d(256, 256, 3, padding=1), nn.ReLU()]
    mask = nn.Sequential(*layers, nn.Conv1d(256, bins, 1), nn.Sigmoid()).to(device).eval()

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            length = 1 << (long + taps - 2).bit_length()
            spectrum = torch.fft.rfft(voices, n=length) * torch.fft.rfft(echo, n=length)
            wet = torch.fft.irfft(spectrum, n=length)[:, :long]
        else:
            wet = F.conv1d(F.pad(voices[:, None], (taps - 1, 0)), echo.flip(0)[None, None])[:, 0]
        wave = torch.stft(voices + wet, window, window // 2, window=hann, return_complex=True)
        wave = wave * mask(torch.log1p(wave.abs()))
        return torch.istft(wave, window, window // 2, window=hann, length=long)

    return step


@unseen(
    "the songs of each list are looked up one and all, and then averaged: a tensor of list by song by width; "
    "F.embedding_bag(mode="
    "'mean'), which sums while it looks up",
    names=r"embedding_?.?bag|(embedding|lookup|look.?up|gather)\w* .{0,80}(mean|sum|pool|averag|intermediate|materiali)"
    r"|(mean|sum|pool|averag)\w* .{0,60}(embedding|lookup)|mode=.?(mean|sum)",
    kind="inference",
    recorded="serve",
    on=("cpu",),
)
def song_lists_suggested(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, songs, long, width = 384, 60_000, 120, 128
    table = nn.Embedding(songs, width).to(device)
    tower = (
        nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)).to(device).eval()
    )
    lists = torch.randint(songs, (rows, long), device=device)
    offered = torch.randint(songs, (2000,), device=device)

    @torch.no_grad()
    def step() -> Tensor:
        taste = F.embedding_bag(lists, table.weight, mode="mean") if changed else table(lists).mean(1)
        scores = tower(taste) @ table(offered).T
        return scores.topk(20, dim=1).values

    return step


# For two cores, with a change that brings nothing.


@unseen(
    "nothing: contiguous() is called between the layers, on tensors that are contiguous already; not called",
    names=r"\bnothing\b",
    kind="inference",
    null=True,
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def quarry_stones_split(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width = 768, 768
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(6)]).to(device).eval()
    stones = torch.randn(rows, width, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = stones
        for layer in layers:
            x = layer(x) if changed else layer(x.contiguous())
            x = F.relu(x) if changed else F.relu(x.contiguous())
        return x.softmax(1)

    return step


@unseen(
    "nothing: the optimizer goes parameter by parameter, but these are few, and the products take the time; foreach=True",
    names=r"\bnothing\b",
    kind="training",
    null=True,
    recorded="none",
    on=("cpu",),
)
def lantern_shapes_cut(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, width = 1536, 384
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(width, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=changed)
    shapes, kinds = torch.randn(rows, width, device=device), torch.randint(8, (rows,), device=device)

    def step() -> Tensor:
        loss = F.cross_entropy(model(shapes), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@unseen(
    "nothing: the table of the positions (sines) is computed anew at each request, but it is small next to the layers; kept",
    names=r"\bnothing\b",
    kind="inference",
    null=True,
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def glacier_layers_dated(device: str, changed: bool) -> Step:
    torch.manual_seed(1)
    rows, long, width = 8, 128, 256
    layers = nn.Sequential(*[Layer(width, 4) for _ in range(4)]).to(device).eval()
    cores = torch.randn(rows, long, width, device=device)

    def positions() -> Tensor:
        angles = torch.arange(long, device=device)[:, None] * torch.exp(torch.arange(0, width, 2, device=device) * (-9.2 / width))
        return torch.cat([angles.sin(), angles.cos()], 1)

    kept = positions()

    @torch.no_grad()
    def step() -> Tensor:
        return layers(cores + (kept if changed else positions())).mean(1)

    return step
