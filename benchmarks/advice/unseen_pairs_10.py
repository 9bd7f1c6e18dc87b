"""A tenth set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

A sample of what people meet who profile PyTorch on a CPU of two cores, in programs that the earlier sets do not have.
"""

import itertools
import math
import os

from advice.unseen_pairs import Step, Unseen, pairs_into
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


# Data preparation and features.


@unseen(
    "the columns of a recommender are put into buckets by comparing them with each boundary in turn; torch.bucketize",
    names=r"bucketi[sz]e|searchsorted|digiti[sz]e|binary search|boundar(y|ies)|\bbuckets?\b|\bbins?\b|aten::(gt|greater|lt|ge)\b"
    r"|compar(es?|ed|ing|isons?)\b",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def baskets_boundary_by_boundary(device: str, changed: bool) -> Step:
    columns, dim = 6, 16
    boundaries = torch.randn(columns, 31, device=device).sort(dim=1).values
    tables = nn.ModuleList(nn.Embedding(32, dim) for _ in range(columns)).to(device)
    scorer = nn.Sequential(nn.Linear(columns * dim, 128), nn.ReLU(), nn.Linear(128, 1)).to(device).eval()
    baskets = torch.randn(columns, 20_000, device=device)

    def bucket_of(values: Tensor, edges: Tensor) -> Tensor:
        if changed:
            return torch.bucketize(values, edges)
        found = torch.zeros_like(values, dtype=torch.long)
        for edge in edges:
            found += values > edge
        return found

    @torch.no_grad()
    def step() -> Tensor:
        features = [table(bucket_of(baskets[i], boundaries[i])) for i, table in enumerate(tables)]
        return scorer(torch.cat(features, dim=1)).sigmoid().squeeze(1)

    return step


def sinc_kernel(before: int, after: int, zeros: int = 6) -> tuple[Tensor, int]:
    """Return the filters that resample from one rate to another, one for each phase, and how far they reach."""
    base = 0.99 * min(before, after)
    reach = math.ceil(zeros * before / base)
    times = torch.arange(-reach, before + reach, dtype=torch.float64)[None] / before
    times = times + torch.arange(0, -after, -1, dtype=torch.float64)[:, None] / after
    times = (times * base).clamp(-zeros, zeros)
    window = torch.cos(times * math.pi / zeros / 2) ** 2
    angles = times * math.pi
    sinc = torch.where(angles == 0, torch.ones_like(angles), angles.sin() / angles)
    return (sinc * window * base / before).float().unsqueeze(1), reach


@unseen(
    "the filters that resample recorded calls are worked out again for each call; once, kept for all",
    names=r"\b(kernel|filter|coefficient|window|sinc)s?\b.{0,80}\b(again|anew|once|each|every|cach\w+|keep|kept|rebuil\w+|preco\w+"
    r"|recomp\w+|recreat\w+|constant|same|hoist\w*|outside)\b|\b(once|again|anew|cach\w+|keep|kept|rebuil\w+|preco\w+|recomp\w+"
    r"|recreat\w+|constant|hoist\w*)\b.{0,80}\b(kernel|filter|coefficient|window|sinc)s?\b|sinc|lru_cache|transforms\.Resample"
    r"|aten::(sin|cos|where|pow|clamp|arange)\b",
    kind="inference",
    recorded="none",
    on=("cpu",),
    record_shapes=False,
)
def calls_resampled_with_new_filters(device: str, changed: bool) -> Step:
    before, after = 441, 160  # 44.1 kHz to 16 kHz
    calls = [torch.randn(1, 1, 44_100 * seconds, device=device) for seconds in (1, 2, 1, 3, 2, 1, 1, 2)]
    kept = sinc_kernel(before, after)

    def resampled(call: Tensor) -> Tensor:
        kernel, reach = kept if changed else sinc_kernel(before, after)
        padded = F.pad(call, (reach, reach + before))
        phases = F.conv1d(padded, kernel, stride=before)
        return phases.transpose(1, 2).flatten()[: call.shape[-1] * after // before]

    @torch.no_grad()
    def step() -> list[Tensor]:
        heard = [resampled(call) for call in calls]
        return [call / call.abs().max() for call in heard]

    return step


# Text.


@unseen(
    "the tokens of subtitles are turned into words one by one, each read from its tensor alone; all with tolist at once",
    names=r"to_?list|\bitem\b|local_scalar_dense|aten::(item|unbind|select|is_nonzero)\b|\bunbind\b|iterat\w+ over (a|the) tensor"
    r"|(token|element|value|number|id|scalar)s? (by|at a time|after)\b|(each|every|per|one|single|individual).?(token|element|id"
    r"|scalar)\b|python (loop|list|int|number)s?",
    kind="inference",
    recorded="subtitles",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def subtitles_token_by_token(device: str, changed: bool) -> Step:
    words = [f"word{number}" for number in range(800)]
    head = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, len(words))).to(device).eval()
    speech = torch.randn(48, 50, 128, device=device)

    def words_of(tokens: Tensor) -> str:
        kept = []
        for token in tokens.tolist() if changed else tokens:
            number = int(token)
            if number == 0:  # the end of a line
                break
            kept.append(words[number])
        return " ".join(kept)

    @torch.no_grad()
    def step() -> tuple[Tensor, int]:
        tokens = head(speech).argmax(dim=-1)
        lines = [words_of(line) for line in tokens]
        return tokens, sum(len(line) for line in lines)

    return step


class TicketEncoder(nn.Module):
    """A convolution over the words of a ticket, and the mean of what is no padding."""

    def __init__(self, words: int, dim: int, queues: int):
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.mix, self.queue = nn.Conv1d(dim, dim, 3, padding=1), nn.Linear(dim, queues)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = F.relu(self.mix(self.words(tokens).transpose(1, 2)))
        kept = mask.unsqueeze(1).float()
        return self.queue((x * kept).sum(-1) / kept.sum(-1))


@unseen(
    "the padding mask of a batch of tickets is filled ticket by ticket in a loop; arange compared with all lengths",
    names=r"arange|\bmasks?\b|row by row|ticket by ticket|(each|every|per|one|single).?(row|ticket|sequence|sentence|sample)\b"
    r"|python loop|aten::(fill_|slice|select|copy_)\b|slice.?assign|(small|tiny|many|short) (copies|writes|fills)|vectori[sz]"
    r"|broadcast|\blengths\b",
    kind="inference",
    recorded="step",
    on=("cpu",),
)
def tickets_masked_in_loop(device: str, changed: bool) -> Step:
    encoder = TicketEncoder(8000, 64, 12).to(device).eval()
    lengths = [5 + 7 * i % 44 for i in range(256)]
    tokens = torch.randint(1, 8000, (len(lengths), 48), device=device)

    def mask_of(lengths: list[int]) -> Tensor:
        if changed:
            return torch.arange(tokens.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]
        mask = torch.zeros(tokens.shape, dtype=torch.bool, device=device)
        for i, length in enumerate(lengths):
            mask[i, :length] = True
        return mask

    @torch.no_grad()
    def step() -> Tensor:
        mask = mask_of(lengths)
        return encoder(tokens * mask, mask).softmax(dim=-1)

    return step


# Training of small models.


class PhonemeTagger(nn.Module):
    """A recurrent net that says which phoneme each frame is."""

    def __init__(self, features: int, dim: int, phonemes: int):
        super().__init__()
        self.recurrence, self.head = nn.GRU(features, dim, batch_first=True), nn.Linear(dim, phonemes)

    def forward(self, frames: Tensor) -> Tensor:
        return self.head(self.recurrence(frames)[0])


@unseen(
    "the loss of a phoneme tagger is summed in a loop over the frames; cross_entropy once over all frames",
    names=r"(loss|cross.?entropy|criterion|nll)\w*.{0,80}(loop|frame|time|step|once|one call|all |whole|flat|each|every|many)"
    r"|(loop|frame|time.?step|once|one call|each|every|flatten\w*|reshap\w+|many).{0,60}(loss|cross.?entropy|criterion|nll)"
    r"|select.?backward|aten::(select|select_backward|nll_loss\w*|cross_entropy\w*|_log_softmax\w*|log_softmax)\b"
    r"|frame by frame|(each|every|per|one).?frame",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def phonemes_loss_frame_by_frame(device: str, changed: bool) -> Step:
    tagger = PhonemeTagger(40, 64, 48).to(device)
    optimizer = torch.optim.SGD(tagger.parameters(), lr=0.01)
    frames = torch.randn(16, 100, 40, device=device)
    phonemes = torch.randint(48, (16, 100), device=device)

    def loss_of(scores: Tensor) -> Tensor:
        if changed:
            return F.cross_entropy(scores.flatten(0, 1), phonemes.flatten())
        loss = torch.zeros((), device=device)
        for t in range(scores.shape[1]):
            loss = loss + F.cross_entropy(scores[:, t], phonemes[:, t])
        return loss / scores.shape[1]

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(tagger(frames))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a policy gradient runs the policy again for each step of an episode alone; once for all observations of the episode",
    names=r"\bbatch(es|ed|ing)?\b|\bstack(ed|ing)?\b|vectori[sz]|(all|whole).{0,30}(observation|state|step|episode|row|sample)s?\b"
    r"|(one|each|every|per|single).?(observation|state|sample|row|time.?step)\b|(one|row) (by|at a) (one|row|time)|one row"
    r"|python loop|(tiny|small|many|short) (op|call|matri|product|kernel|linear|forward)\w*|in one call|aten::(addmv?|mv)\b",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def lander_observation_by_observation(device: str, changed: bool) -> Step:
    policy = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 4)).to(device)
    critic = nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-4)
    observations, actions = torch.randn(120, 8, device=device), torch.randint(4, (120,), device=device)
    returns = torch.linspace(1, -1, 120, device=device)

    def loss_of_episode() -> Tensor:
        if changed:
            chosen = policy(observations).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        else:
            steps = zip(observations, actions, strict=True)
            chosen = torch.stack([policy(observation).log_softmax(-1)[action] for observation, action in steps])
        values = critic(observations).squeeze(1)
        return F.mse_loss(values, returns) - (chosen * (returns - values.detach())).mean()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of_episode()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Evaluation.


@unseen(
    "a forecast's quantiles are asked for level by level, and each call sorts all samples; one call with all levels",
    names=r"quantile.{0,80}(one|once|single|levels?|all|vector|together|again|same|repeat\w*|each|every|times|calls|loop)\b"
    r"|(one|once|single|levels?|all|vector|together|again|same|repeat\w*|each|every|calls|loop)\b.{0,80}quantile"
    r"|\bsort\w*.{0,60}\b(once|again|same|repeat\w*|each|every|times|calls|loop)\b|aten::(sort|lerp)\b|kthvalue"
    r"|\b(once|again|same|repeat\w*|each|every|calls|loop)\b.{0,60}\bsort|level by level|percentile",
    kind="inference",
    recorded="evaluate",
    on=("cpu",),
)
def demand_quantile_by_quantile(device: str, changed: bool) -> Step:
    levels = torch.linspace(0.1, 0.9, 9, device=device)
    stations, hours = 40, 24
    samples = 5 + torch.randn(100, stations, hours, device=device).cumsum(dim=-1)
    demand = 5 + torch.randn(stations, hours, device=device).cumsum(dim=-1)

    def quantiles() -> Tensor:
        if changed:
            return torch.quantile(samples, levels, dim=0)
        return torch.stack([torch.quantile(samples, float(level), dim=0) for level in levels])

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        error = demand - quantiles()
        weights = levels[:, None, None]
        pinball = torch.maximum(weights * error, (weights - 1) * error).mean(dim=(1, 2))
        covered = (error >= 0).float().mean(dim=(1, 2))
        return pinball, covered

    return step


# Simulation and scientific code.


@unseen(
    "a simulation of ripples makes a new large tensor in each operation of a time step; in place, into kept memory",
    names=r"in.?place|\bout=|preallocat|temporar(y|ies)|\ballocat\w*|page.?fault|new (large )?tensors?|je_?malloc|tc_?malloc"
    r"|reus(e|es|ed|ing)\b.{0,40}(buffer|memory|tensor|storage)|\bfus(e|es|ed|ing|ion)\b|torch\.compile|intermediate"
    r"|elementwise (chain|op|pass)\w*|memory.?(traffic|bandwidth|bound|passes)",
    kind="inference",
    recorded="none",
    on=("cpu",),
    profile_memory=True,
)
def ripples_in_new_tensors(device: str, changed: bool) -> Step:
    side, speed = 1500, 0.2
    middle, above, below = slice(1, -1), slice(None, -2), slice(2, None)
    drops = torch.zeros(side, side, device=device)
    drops[torch.randint(1, side - 1, (50,)), torch.randint(1, side - 1, (50,))] = 1.0
    fields = {"past": drops.clone(), "now": drops.clone()}
    room = torch.empty(side - 2, side - 2, device=device)

    def advance() -> None:
        past, now = fields["past"], fields["now"]
        inner = now[middle, middle]
        if changed:
            torch.add(now[above, middle], now[below, middle], out=room)
            room.add_(now[middle, above]).add_(now[middle, below]).sub_(inner, alpha=4)
            past[middle, middle].neg_().add_(inner, alpha=2).add_(room, alpha=speed)
            ahead = past
        else:
            curve = now[above, middle] + now[below, middle] + now[middle, above] + now[middle, below] - 4 * inner
            ahead = F.pad(2 * inner - past[middle, middle] + speed * curve, (1, 1, 1, 1))
        fields["past"], fields["now"] = now, ahead

    @torch.no_grad()
    def step() -> Tensor:
        for _ in range(3):
            advance()
        return fields["now"]

    return step


@unseen(
    "the prices and greeks of a book of options take some thirty elementwise operations; torch.compile makes one loop of them",
    names=r"compil(e|es|ed|er|ing)\b|inductor|\bfus(e|es|ed|ing|ion)\b|elementwise|pointwise|in.?place|temporar(y|ies)|\bout="
    r"|memory.?(traffic|bandwidth|bound|passes)|numexpr|\bjit\b|intermediate",
    kind="inference",
    recorded="price",
    on=("cpu",),
)
def options_elementwise(device: str, changed: bool) -> Step:
    count, rate = 1_000_000, 0.03
    spots, strikes = 80 + 40 * torch.rand(count, device=device), 80 + 40 * torch.rand(count, device=device)
    years, volatility = 0.1 + 2 * torch.rand(count, device=device), 0.1 + 0.4 * torch.rand(count, device=device)

    def normal(x: Tensor) -> Tensor:
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def price(spot: Tensor, strike: Tensor, time: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        spread = sigma * time.sqrt()
        up = (torch.log(spot / strike) + (rate + 0.5 * sigma * sigma) * time) / spread
        down = up - spread
        discounted = strike * torch.exp(-rate * time)
        call = spot * normal(up) - discounted * normal(down)
        density = torch.exp(-0.5 * up * up) / math.sqrt(2 * math.pi)
        return call, call - spot + discounted, normal(up), spot * density * time.sqrt()

    priced = torch.compile(price) if changed else price

    @torch.no_grad()
    def step() -> list[Tensor]:
        return [values.clamp(min=0) for values in priced(spots, strikes, years, volatility)]

    return step


# Graphs.


@unseen(
    "a traffic model gathers a message for each road and adds it up by index_add_; a product with a sparse (CSR) matrix",
    names=r"sparse|\bcsr\b|spmm|index_add|aten::(index_add_?|index_select|index|scatter_add_?|gather)\b|scatter|\bgather(s|ed|ing)?\b"
    r"|adjacency|(each|every|per|one).?(edge|road|message)|messages? (is|are|of|for|per)\b|materiali[sz]",
    kind="inference",
    recorded="traffic",
    on=("cpu",),
)
def roads_added_by_index(device: str, changed: bool) -> Step:
    crossings, dim = 8000, 64
    source, target = torch.randint(crossings, (2, 80_000), device=device)
    share = torch.rand(len(source), device=device) / 10
    sizes = (crossings, crossings)
    roads = torch.sparse_coo_tensor(torch.stack([target, source]), share, sizes).coalesce().to_sparse_csr()
    layers = nn.ModuleList(nn.Sequential(nn.Linear(dim, 256), nn.ReLU(), nn.Linear(256, dim)) for _ in range(3)).to(device).eval()
    speeds = torch.randn(crossings, dim, device=device)

    def passed(x: Tensor) -> Tensor:
        if changed:
            return roads @ x
        messages = x[source] * share[:, None]
        return torch.zeros_like(x).index_add_(0, target, messages)

    @torch.no_grad()
    def step() -> Tensor:
        x = speeds
        for layer in layers:
            x = F.relu(layer(x) + passed(x))
        return x.mean(dim=1)

    return step


# Services.


class ConvNorm(nn.Module):
    """A convolution and its batch normalisation, the latter with statistics as training leaves them."""

    def __init__(self, before: int, after: int, size: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)
        self.norm: nn.BatchNorm2d | nn.Identity = nn.BatchNorm2d(after)
        self.norm.load_state_dict(
            {"running_mean": 0.1 * torch.randn(after), "running_var": 0.5 + torch.rand(after)}, strict=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


@unseen(
    "a service that reads gas meters runs batch normalisation after each convolution; folded into the convolutions' weights",
    names=r"\bfold(s|ed|ing)?\b|\bfus(e|es|ed|ing|ion)\b|batch.?norm|\bbn\b|torch\.compile|optimize_for_inference|freez",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def meters_with_norms_apart(device: str, changed: bool) -> Step:
    parts: list[nn.Module] = [ConvNorm(3, 24, 3, stride=2)]
    for before, after, stride in [(24, 48, 1), (48, 96, 2), (96, 96, 1), (96, 192, 2), (192, 192, 1), (192, 192, 1)]:
        parts += [ConvNorm(before, before, 3, stride, groups=before), ConvNorm(before, after, 1)]
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 6 * 10)).to(device).eval()
    if changed:
        for part in net.modules():
            if isinstance(part, ConvNorm) and isinstance(part.norm, nn.BatchNorm2d):
                part.conv, part.norm = fuse_conv_bn_eval(part.conv, part.norm), nn.Identity()
    photos = torch.rand(4, 3, 192, 192, device=device)

    @torch.no_grad()
    def step() -> tuple[Tensor, Tensor]:
        digits = net(photos).view(len(photos), 6, 10).softmax(-1)
        return digits.max(-1).values, digits.argmax(-1)

    return step


# Changes that bring nothing.


@unseen(
    "none: descriptions of products are embedded in one batch of 1024 instead of two of 512, which keep both cores busy already",
    names=r"(larger|bigger|greater|small|increas\w+).{0,20}batch|batch.?size|batch of \d+|(one|single) batch"
    r"|more (rows|descriptions|products|samples)",
    kind="inference",
    recorded="step",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def null_batch_of_1024(device: str, changed: bool) -> Step:
    widths = [768, 1024, 1024, 1024, 768]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    tower = nn.Sequential(*layers, nn.Linear(768, 128)).to(device).eval()
    descriptions = torch.randn(1024, 768, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        batches = descriptions.split(1024 if changed else 512)
        return torch.cat([F.normalize(tower(batch), dim=1) for batch in batches])

    return step


@unseen(
    "none: a sound tagger's loss is taken from the logits in one function instead of a sigmoid and binary_cross_entropy; "
    "it is a tiny part of a step",
    names=r"with.?logits|BCEWithLogits|aten::(sigmoid|sigmoid_backward|binary_cross_entropy\w*)\b|\bbce(loss)?\b"
    r"|binary.?cross.?entropy|sigmoid",
    kind="training",
    recorded="step",
    null=True,
    on=("cpu",),
    record_shapes=False,
)
def null_loss_from_logits(device: str, changed: bool) -> Step:
    widths = [(40, 96), (96, 96), (96, 128)]
    parts: list[nn.Module] = []
    for before, after in widths:
        parts += [nn.Conv1d(before, after, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)]
    tagger = nn.Sequential(*parts, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 50)).to(device)
    optimizer = torch.optim.SGD(tagger.parameters(), lr=0.01)
    sounds = torch.randn(32, 40, 256, device=device)
    tags = torch.randint(2, (32, 50), device=device).float()

    def step() -> Tensor:
        optimizer.zero_grad()
        scores = tagger(sounds)
        loss = F.binary_cross_entropy_with_logits(scores, tags) if changed else F.binary_cross_entropy(scores.sigmoid(), tags)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: a service that ranks job offers sets the number of threads to that of its cores, which PyTorch uses anyway",
    names=r"set_num_threads|num_threads|OMP_NUM|MKL_NUM|\bthreads?\b|\bcores?\b|intra.?op|inter.?op|parallel|affinity|numactl",
    kind="inference",
    recorded="none",
    null=True,
    on=("cpu",),
    with_stack=True,
)
def null_threads_as_cores(device: str, changed: bool) -> Step:
    layers = [nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 128)]
    tower = nn.Sequential(*layers).to(device).eval()
    offers = F.normalize(torch.randn(20_000, 128, device=device), dim=1)
    seekers = torch.randn(256, 512, device=device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else torch.get_num_threads()

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            torch.set_num_threads(cores)
        scores = F.normalize(tower(seekers), dim=1) @ offers.T
        return scores.topk(10, dim=1).values

    return step
