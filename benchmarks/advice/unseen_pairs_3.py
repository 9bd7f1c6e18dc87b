"""A third set of small PyTorch programs with one performance fault each, in the form of unseen_pairs.py.

Written without a look at what the reader knows, with other programs and other faults than those of the first two sets. UNSEEN
holds them by name.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
import gc
import io
from itertools import pairwise
import logging
import math
from pathlib import Path
import queue
import tempfile
import time
from typing import Any

from advice.unseen_pairs import Step, Unseen, batches_for_ever, blocks, conv_net, low, pairs_into, small
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

UNSEEN: dict[str, Unseen] = {}
unseen = pairs_into(UNSEEN)


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with a SiLU between each two."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


# Training on a GPU.


@unseen(
    "a contrastive loss takes the cosine similarity of all pairs by broadcasting, as one large tensor; "
    "normalised vectors and a matrix product",
    names=r"cosine_similarity|matmul|matrix (product|multipl)|broadcast|normali[sz]|(large|big|huge) (tensor|interm)|materiali",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def captions_cosine_broadcast(device: str, changed: bool) -> Step:
    count, dim = small(512), small(512)
    towers = nn.ModuleList(perceptron(1024, 2048, 2048, dim) for _ in range(2)).to(device)
    optimizer = torch.optim.AdamW(towers.parameters(), lr=1e-4, fused=True)
    pictures, captions = torch.randn(2, count, 1024, device=device)
    own = torch.arange(count, device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        a, b = towers[0](pictures), towers[1](captions)
        near = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T if changed else F.cosine_similarity(a[:, None], b[None], dim=-1)
        loss = F.cross_entropy(near / 0.07, own) + F.cross_entropy(near.T / 0.07, own)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a batch that fits into memory is split into eight micro-batches whose gradients are accumulated; the whole batch at once",
    names=r"accumulat|micro.?batch|(larger|bigger|whole|full|one) batch|batch.?size",
    kind="training",
    recorded="step",
)
def protein_micro_batches(device: str, changed: bool) -> Step:
    parts = 1 if changed else 8
    net, table = blocks(6, 512, 8, device, low(device)), nn.Embedding(32, 512, device=device, dtype=low(device))
    head = nn.Linear(512, 32, device=device, dtype=low(device))
    optimizer = torch.optim.AdamW([*net.parameters(), *table.parameters(), *head.parameters()], lr=1e-5, fused=True)
    chains = torch.randint(0, 32, (16, small(256)), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for chain in chains.chunk(parts):
            x = table(chain)
            for block in net:
                x = block(x)
            loss = F.cross_entropy(head(x).flatten(0, 1).float(), chain.flatten()) / parts
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


@unseen(
    "label smoothing by a target distribution over all 32000 words for each token; cross_entropy's label_smoothing",
    names=r"label_?smoothing|cross_entropy|smoothed|(target|label|dense|full) distribution|aten::scatter_?\b|one_?hot|nll_loss",
    kind="training",
    recorded="none",
    profile_memory=True,
)
def translation_smoothed_targets(device: str, changed: bool) -> Step:
    words, tokens = small(32_000), small(4096)
    net = perceptron(512, 1024, 1024, 512).to(device=device, dtype=low(device))
    head = nn.Linear(512, words, device=device, dtype=low(device))
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    x = torch.randn(tokens, 512, device=device, dtype=low(device))
    target = torch.randint(0, words, (tokens,), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        logits = head(net(x)).float()
        if changed:
            loss = F.cross_entropy(logits, target, label_smoothing=0.1)
        else:
            wanted = torch.full_like(logits, 0.1 / words)
            wanted.scatter_(1, target[:, None], 0.9 + 0.1 / words)
            loss = -(wanted * logits.log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "padding is taken out of a loss by indexing the logits with a boolean mask, a copy of nearly all of them; ignore_index",
    names=r"ignore_index|boolean|nonzero|aten::(index|index_put_?|masked_select)\b|_index_put_impl_|IndexBackward|mask",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def dialogue_loss_by_mask(device: str, changed: bool) -> Step:
    words, rows, length = small(24_000), 8, small(512)
    net = blocks(3, 768, 12, device, low(device))
    head = nn.Linear(768, words, device=device, dtype=low(device))
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-5, fused=True)
    x = torch.randn(rows, length, 768, device=device, dtype=low(device))
    target = torch.randint(0, words, (rows, length), device=device)
    target[:, length - length // 10 :] = -100

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        for block in net:
            h = block(h, causal=True)
        logits, wanted = head(h).flatten(0, 1), target.flatten()
        if changed:
            loss = F.cross_entropy(logits.float(), wanted, ignore_index=-100)
        else:
            real = wanted != -100
            loss = F.cross_entropy(logits[real].float(), wanted[real])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the distributions of a policy check their arguments and samples, and wait for the answer, in each step of a rollout; "
    "validate_args=False",
    names=r"validat|distributions?\b|constraint|aten::(all|is_nonzero)\b|is_nonzero",
    kind="training",
    recorded="update",
    on=("cuda", "cpu"),
    with_stack=True,
)
def arm_distributions_validated(device: str, changed: bool) -> Step:
    from torch.distributions import Normal

    policy, critic = perceptron(24, 128, 128, 7).to(device), perceptron(24, 128, 128, 1).to(device)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=3e-4)
    spread = torch.full((7,), 0.3, device=device)
    first = torch.randn(64, 24, device=device)
    turning = torch.randn(7, 24, device=device) / 10

    def step() -> Tensor:
        state, kept = first, []
        for _ in range(16):
            with torch.no_grad():
                chance = Normal(policy(state), spread, validate_args=not changed)
                action = chance.sample()
                reward = -state.square().mean(1)
                kept.append((state, action, chance.log_prob(action).sum(1), reward))
                state = (state + action @ turning).clamp(-4, 4)
        states, actions, old, rewards = (torch.stack(part) for part in zip(*kept, strict=True))
        optimizer.zero_grad()
        gain = rewards.flip(0).cumsum(0).flip(0) - critic(states).squeeze(-1)
        new = Normal(policy(states), spread, validate_args=not changed).log_prob(actions).sum(-1)
        loss = gain.square().mean() - ((new - old).exp() * gain.detach()).mean()
        loss.backward()
        optimizer.step()
        return rewards.mean()

    return step


@unseen(
    "a GradScaler scales the losses of a training in bfloat16, which needs none, and reads back whether all is finite; "
    "without the scaler",
    names=r"scaler|unscale|found_inf|non_?finite_check|loss scal",
    kind="training",
    recorded="none",
    with_stack=True,
)
def actors_with_scaler(device: str, changed: bool) -> Step:
    actors = [perceptron(48, 256, 256, 256, 8).to(device) for _ in range(4)]
    optimizers = [torch.optim.Adam(actor.parameters(), lr=1e-4) for actor in actors]
    scalers = [torch.amp.GradScaler(device, init_scale=1024.0, enabled=not changed) for _ in actors]
    seen = torch.randn(4, 1024, 48, device=device)
    acted = torch.randint(0, 8, (4, 1024), device=device)

    def step() -> Tensor:
        losses = []
        for number, (actor, optimizer, scaler) in enumerate(zip(actors, optimizers, scalers, strict=True)):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
                loss = F.cross_entropy(actor(seen[number]), acted[number])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return torch.stack(losses)

    return step


@unseen(
    "quantisation-aware training rounds the weights channel by channel in a Python loop; all channels at once, by broadcasting",
    names=r"per.?channel|fake_quant|vectori[sz]|broadcast|channel by channel|(each|every|one|over) (the )?(output )?channels?"
    r"|amax|aten::(round|unbind|select|stack)\b|torch\.stack",
    kind="training",
    recorded="step",
    record_shapes=False,
)
def weights_rounded_by_channel(device: str, changed: bool) -> Step:
    weights = nn.ParameterList(torch.randn(b, a, 3, 3) / math.sqrt(9 * a) for a, b in ((3, 24), (24, 32), (32, 48))).to(device)
    head = nn.Linear(48, 10).to(device)
    optimizer = torch.optim.SGD([*weights.parameters(), *head.parameters()], lr=1e-2)
    images, labels = torch.randn(small(64), 3, 96, 96, device=device), torch.randint(0, 10, (small(64),), device=device)

    def rounded(weight: Tensor) -> Tensor:
        if changed:
            scale = weight.detach().abs().amax((1, 2, 3), keepdim=True) / 127
            return weight + ((weight / scale).round().clamp(-127, 127) * scale - weight).detach()
        channels = []
        for channel in weight:
            scale = channel.detach().abs().max() / 127
            channels.append(channel + ((channel / scale).round().clamp(-127, 127) * scale - channel).detach())
        return torch.stack(channels)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = images
        for weight in weights:
            x = F.relu(F.conv2d(x, rounded(weight), None, 2, 1))
        loss = F.cross_entropy(head(x.mean((2, 3))), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "style transfer takes the features of the content and of the style, which never change, in every iteration; once",
    names=r"style|content|(target|fixed|constant)\w* (image|picture|feature|tensor)|precomput|(comput|done|tak)\w* once"
    r"|\bcach(e|ed|ing)\b|same (input|result)|never change",
    kind="training",
    recorded="none",
)
def style_features_again(device: str, changed: bool) -> Step:
    side, dtype = small(384), low(device)
    net = conv_net([64, 64, 128, 128, 256, 256, 256]).to(device=device, dtype=dtype).requires_grad_(False)
    net = net.to(memory_format=torch.channels_last)
    content, style = torch.rand(2, 1, 3, side, side, device=device, dtype=dtype)
    picture = content.clone().requires_grad_()
    optimizer = torch.optim.Adam([picture], lr=1e-3)

    def features(x: Tensor) -> tuple[list[Tensor], Tensor]:
        grams = []
        x = x.to(memory_format=torch.channels_last)
        for layer in net:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                flat = x.flatten(2)[0]
                grams.append(flat @ flat.T / flat.numel())
        return grams, x

    kept = features(style)[0], features(content)[1]

    def step() -> Tensor:
        grams_wanted, wanted = kept if changed else (features(style)[0], features(content)[1])
        optimizer.zero_grad()
        grams, found = features(picture)
        loss = F.mse_loss(found.float(), wanted.float())
        for gram, gram_wanted in zip(grams, grams_wanted, strict=True):
            loss = loss + 1000 * F.mse_loss(gram.float(), gram_wanted.float())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a float32 scale of each block makes the residual stream of a bfloat16 network float32, cast back for every convolution; "
    "the scale in bfloat16",
    names=r"promot|float32|dtype|\bcasts?\b|casting|aten::(to|_to_copy|copy_)\b|layer.?scale",
    kind="training",
    recorded="step",
    profile_memory=True,
)
def denoiser_promoted(device: str, changed: bool) -> Step:
    width, depth, dtype = 64, 8, low(device)
    convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
    convs = convs.to(device=device, dtype=dtype).to(memory_format=torch.channels_last)
    kind = dtype if changed else torch.float32
    scales = nn.ParameterList(nn.Parameter(torch.full((width, 1, 1), 0.1, device=device, dtype=kind)) for _ in range(depth))
    optimizer = torch.optim.SGD([*convs.parameters(), *scales.parameters()], lr=1e-3)
    noisy = torch.randn(small(32), width, 128, 128, device=device, dtype=dtype).to(memory_format=torch.channels_last)

    def step() -> Tensor:
        optimizer.zero_grad()
        x = noisy
        for conv, scale in zip(convs, scales, strict=True):
            x = x + scale * F.silu(conv(x.to(dtype)))
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a learning rate for each layer is given by a parameter group for each tensor, so that the fused optimizer is launched for "
    "each; tensors with equal settings in one group",
    names=r"param(eter)?[ _.-]?groups?|\bgroups?\b|multi.?tensor|foreach|(launch|call|kernel)\w* for each (tensor|parameter)",
    kind="training",
    recorded="step",
)
def layers_group_by_tensor(device: str, changed: bool) -> Step:
    net = blocks(10, 256, 4, device, low(device))
    settings: dict[Any, dict[str, Any]] = {}
    for layer, block in enumerate(net):
        for name, parameter in block.named_parameters():
            decay = 0.01 if parameter.ndim > 1 else 0.0
            key: Any = (layer, decay) if changed else (layer, name)
            group = settings.setdefault(key, {"params": [], "lr": 1e-5 * 0.9 ** (10 - layer), "weight_decay": decay})
            group["params"].append(parameter)
    optimizer = torch.optim.AdamW(list(settings.values()), fused=True)
    x, target = torch.randn(2, small(64), 64, 256, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        for block in net:
            h = block(h)
        loss = F.mse_loss(h.float(), target.float())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "convolutions before BatchNorm have a bias, which the norm takes away again; bias=False",
    names=r"\bbias\b",
    kind="training",
    recorded="none",
)
def plants_bias_before_norm(device: str, changed: bool) -> Step:
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 64, 2), *[(64, 64, 1)] * 6, (64, 128, 2), *[(128, 128, 1)] * 6):
        conv = nn.Conv2d(before, after, 3, stride, 1)
        if changed:
            conv.bias = None
        else:
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        layers += [conv, nn.BatchNorm2d(after), nn.ReLU()]
    net = nn.Sequential(*layers).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    head = nn.Linear(128, 40, device=device, dtype=low(device))
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-3, momentum=0.9)
    images = torch.randn(small(96), 3, 160, 160, device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 40, (images.shape[0],), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(net(images).mean((2, 3))).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "26 embedding tables are looked up, and get their gradients, one after another; one table with an offset for each field",
    names=r"(one|single|fused|shared|joint|big|common) (embedding |lookup )?(table|lookup)|offset|fbgemm|torchrec"
    r"|table by table|(each|every|per|26) (embedding )?tables?|aten::embedding|EmbeddingBackward|embedding_dense_backward",
    kind="training",
    recorded="step",
)
def shop_tables_one_by_one(device: str, changed: bool) -> Step:
    fields, kinds, dim, rows = 26, small(5000), 32, small(4096)
    weights = torch.randn(fields, kinds, dim, device=device) / 10
    tables = nn.ParameterList([nn.Parameter(weights.flatten(0, 1))] if changed else [nn.Parameter(w) for w in weights])
    net = perceptron(fields * dim, 512, 256, 1).to(device)
    optimizer = torch.optim.SGD([*tables.parameters(), *net.parameters()], lr=1e-2)
    ids, bought = torch.randint(0, kinds, (rows, fields), device=device), torch.rand(rows, device=device).round()
    offsets = torch.arange(fields, device=device) * kinds

    def step() -> Tensor:
        optimizer.zero_grad()
        if changed:
            x = F.embedding(ids + offsets, tables[0]).flatten(1)
        else:
            x = torch.cat([F.embedding(ids[:, i], table) for i, table in enumerate(tables)], dim=1)
        loss = F.binary_cross_entropy_with_logits(net(x).squeeze(1), bought)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def edit_distance(first: list[int], second: list[int]) -> int:
    above = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        row = [i]
        for j, b in enumerate(second, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


@unseen(
    "the word errors of each training step are counted in Python while the GPU waits; in every fiftieth step",
    names=r"edit_distance|levenshtein|error.?rate|word.?error|\bwer\b|metric|less often|every \w+ steps",
    kind="training",
    recorded="step",
    with_stack=True,
    record_shapes=False,
)
def speech_errors_each_step(device: str, changed: bool) -> Step:
    count, frames, words = 10, 240, 60
    net = nn.Sequential(
        *(m for i in range(6) for m in (nn.Conv1d(256 if i else 80, 256, 9, padding=4), nn.GELU())), nn.Conv1d(256, 64, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    sounds = torch.randn(count, 80, frames, device=device)
    texts = torch.randint(1, 64, (count, words), device=device)
    heard, said = (torch.full((count,), length, dtype=torch.long) for length in (frames, words))
    texts_list, rates, steps = texts.tolist(), deque[float](maxlen=100), 0

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        scores = net(sounds).log_softmax(1)
        loss = F.ctc_loss(scores.permute(2, 0, 1), texts, heard, said)
        loss.backward()
        optimizer.step()
        if not changed or steps % 50 == 0:
            found = scores.detach().argmax(1)[:, ::4].tolist()
            errors = sum(edit_distance(a, b) for a, b in zip(found, texts_list, strict=True))
            rates.append(errors / (count * words))
        return loss.detach()

    return step


@unseen(
    "all weights are written as a checkpoint in every step; in every two-hundredth",
    names=r"torch\.save|checkpoint|seriali[sz]|pickle|less often|every \w+ steps|state_dict",
    kind="training",
    recorded="step",
    on=("cuda", "cpu"),
    with_stack=True,
)
def weights_written_each_step(device: str, changed: bool) -> Step:
    width = 256 if device == "cpu" else 1024
    net = perceptron(64, width, width, width, width, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, target = torch.randn(width, 64, device=device), torch.randn(width, 1, device=device)
    steps = 0

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(net(x), target)
        loss.backward()
        optimizer.step()
        if not changed or steps % 200 == 0:
            torch.save({"step": steps, "net": net.state_dict()}, io.BytesIO())
        return loss.detach()

    return step


@unseen(
    "a thread that writes the losses down asks its queue again and again without a pause, and takes the interpreter's lock from "
    "the thread that trains; a queue whose get() waits",
    names=r"\bGIL\b|interpreter.?s? lock|busy.?(wait|loop)|spin|\bpoll|queue|(an|second|writ\w+)\W?(other)? thread"
    r"|threads? (wait|compete|contend|hold|take turns)",
    kind="training",
    recorded="none",
    on=("cuda", "cpu"),
    with_stack=True,
)
def losses_spinning_writer(device: str, changed: bool) -> Step:
    net = perceptron(32, 128, 128, 4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, target = torch.randn(512, 32, device=device), torch.randn(512, 4, device=device)
    waiting: queue.SimpleQueue[Tensor | None] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(1)

    def take() -> Tensor | None:
        if changed:
            return waiting.get()
        while waiting.empty():
            time.sleep(0)
        return waiting.get()

    def write() -> float:
        total = 0.0
        while (loss := take()) is not None:
            total += float(loss)
        return total

    def step() -> float:
        written: Future[float] = pool.submit(write)
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), target)
            loss.backward()
            optimizer.step()
            waiting.put(loss.detach())
        waiting.put(None)
        return written.result()

    return step


# Inference on a GPU.


@unseen(
    "hooks that were left in a model copy the output of every block to the host, where nobody reads it; the hooks removed",
    names=r"hook|\.cpu\(\)|DtoH|D2H|(gpu|device) ?(->|to) ?(host|cpu)|to the (host|cpu)|pageable",
    kind="inference",
    recorded="none",
    with_stack=True,
)
def retina_hooks_left(device: str, changed: bool) -> Step:
    net = blocks(8, 768, 12, device, low(device)).eval()
    patches = torch.randn(small(16), 196, 768, device=device, dtype=low(device))
    seen: dict[int, Tensor] = {}
    if not changed:
        for number, block in enumerate(net):
            block.register_forward_hook(lambda _m, _i, output, number=number: seen.update({number: output.float().cpu()}))

    @torch.no_grad()
    def step() -> Tensor:
        x = patches
        for block in net:
            x = block(x)
        return x.mean(1)

    return step


class Decoder(nn.Module):
    """Transformer blocks that also attend to an encoder's output, one token at a time."""

    def __init__(self, layers: int, dim: int, heads: int, device: str):
        super().__init__()
        self.heads = heads
        self.blocks = blocks(layers, dim, heads, device, low(device))
        query, key, value = (nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers)) for _ in range(3))
        self.query, self.key, self.value = (m.to(device=device, dtype=low(device)) for m in (query, key, value))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def cross(self, layer: int, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended = F.scaled_dot_product_attention(self.split(self.query[layer](x)), keys, values)
        return x + attended.transpose(1, 2).flatten(2)


@unseen(
    "a beam search reorders the encoder's keys and values too, which are the same for all beams of a sentence; "
    "only the decoder's own",
    names=r"index_select|re-?order|\bbeams?\b|cross|encoder|aten::(index|gather)\b",
    kind="inference",
    recorded="generate",
)
def beams_reorder_encoder(device: str, changed: bool) -> Step:
    layers, sentences, beams, source, words, heads = 4, 4, 8, small(1500), small(8000), 12
    rows, dtype = sentences * beams, low(device)
    net = Decoder(layers, 768, heads, device).eval()
    table = torch.randn(words, 768, device=device, dtype=dtype)
    encoded = torch.randn(layers, 2, sentences, heads, source, 64, device=device, dtype=dtype).repeat_interleave(beams, dim=2)
    start = torch.arange(sentences, device=device)[:, None] * beams

    @torch.no_grad()
    def step() -> Tensor:
        cross, own = list(encoded), [torch.empty(2, rows, heads, 0, 64, device=device, dtype=dtype)] * layers
        token = torch.arange(rows, device=device)[:, None]
        scores = torch.zeros(sentences, beams, 1, device=device)
        for _ in range(5):
            x = F.embedding(token, table)
            for i, block in enumerate(net.blocks):
                q, k, v = block.heads_of(x)
                own[i] = torch.cat([own[i], torch.stack([k, v])], dim=3)
                x = net.cross(i, block.rest(x, F.scaled_dot_product_attention(q, *own[i])), *cross[i])
            chance = (x[:, 0] @ table.T).float().log_softmax(-1).view(sentences, beams, words)
            best, place = (scores + chance).flatten(1).topk(beams, dim=1)
            scores, token = best[..., None], (place % words).view(-1, 1)
            order = (start + place // words).flatten()
            own = [part.index_select(1, order) for part in own]
            if not changed:
                cross = [part.index_select(1, order) for part in cross]
        return scores

    return step


@unseen(
    "a decoder projects the encoder's output to keys and values again for every token; once for a request",
    names=r"cross|encoder|precomput|(comput|project|done)\w* once|\bcach(e|ed|ing)\b|keys? and (the )?values?|same input",
    kind="inference",
    recorded="none",
)
def caption_keys_each_token(device: str, changed: bool) -> Step:
    layers, rows, source, room = 4, 8, small(1024), 8
    net = Decoder(layers, 768, 12, device).eval()
    encoded = torch.randn(rows, source, 768, device=device, dtype=low(device))
    cache = torch.zeros(layers, 2, rows, 12, room, 64, device=device, dtype=low(device))
    first = torch.randn(rows, 1, 768, device=device, dtype=low(device))

    def projected(layer: int) -> tuple[Tensor, Tensor]:
        return net.split(net.key[layer](encoded)), net.split(net.value[layer](encoded))

    @torch.no_grad()
    def step() -> Tensor:
        x = first
        kept = [projected(layer) for layer in range(layers)] if changed else []
        for place in range(room):
            for i, block in enumerate(net.blocks):
                q, k, v = block.heads_of(x)
                cache[i, 0, :, :, place : place + 1], cache[i, 1, :, :, place : place + 1] = k, v
                keys, values = cache[i, :, :, :, : place + 1]
                x = block.rest(x, F.scaled_dot_product_attention(q, keys, values))
                x = net.cross(i, x, *(kept[i] if changed else projected(i)))
        return x

    return step


@unseen(
    "a melody is continued without a cache: the whole prefix goes through the network for every note; keys and values kept",
    names=r"kv.?cache|keys? and (the )?values?|past_key|\bcach(e|ed|ing)\b|recomput|prefix|increment|one (new )?token",
    kind="inference",
    recorded="continue",
    record_shapes=False,
)
def melody_without_cache(device: str, changed: bool) -> Step:
    layers, rows, prefix, notes = 6, 8, small(512), 8
    net = blocks(layers, 512, 8, device, low(device)).eval()
    table = torch.randn(512, 512, device=device, dtype=low(device))
    start = torch.randint(0, 512, (rows, prefix), device=device)
    cache = torch.zeros(layers, 2, rows, 8, prefix + notes, 64, device=device, dtype=low(device))

    def through(melody: Tensor, done: int) -> Tensor:
        x, end = F.embedding(melody[:, done:], table), melody.shape[1]
        for i, block in enumerate(net):
            q, k, v = block.heads_of(x)
            if changed:
                cache[i, 0, :, :, done:end], cache[i, 1, :, :, done:end] = k, v
                k, v = cache[i, :, :, :, :end]
            x = block.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=not done))
        return (x[:, -1] @ table.T).float()

    @torch.no_grad()
    def step() -> Tensor:
        melody, first = start, None
        for number in range(notes):
            chances = through(melody, melody.shape[1] - 1 if changed and number else 0)
            first = chances if first is None else first
            melody = torch.cat([melody, chances.argmax(-1, keepdim=True)], dim=1)
        assert first is not None
        return first

    return step


@unseen(
    "every expert of a mixture runs on all tokens, and a mask takes those that were meant for it; each on its own tokens",
    names=r"rout(e|ed|ing)|(its|their|own|selected|chosen|assigned|routed) tokens|experts?\b|mask|mixture|sparse",
    kind="inference",
    recorded="none",
    profile_memory=True,
)
def experts_on_all_tokens(device: str, changed: bool) -> Step:
    tokens, dim, number = small(8192), small(1024), 8
    experts = nn.ModuleList(perceptron(dim, 4 * dim, dim) for _ in range(number)).to(device=device, dtype=low(device))
    gate = nn.Linear(dim, number, device=device, dtype=low(device))
    x = torch.randn(tokens, dim, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        weight, chosen = gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(experts):
            if changed:
                rows = (chosen == i).nonzero().squeeze(1)
                out[rows] = expert(x[rows]) * weight[rows, None]
            else:
                out += expert(x) * (weight * (chosen == i))[:, None]
        return x + out

    return step


@unseen(
    "a street map takes the softmax over 60 classes at each pixel, and then only the largest; argmax of the logits",
    names=r"softmax|argmax|monoton",
    kind="inference",
    recorded="segment",
)
def streets_softmax_for_argmax(device: str, changed: bool) -> Step:
    classes, side = 60, small(128)
    net = conv_net([64, 64, 128, 128]).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last).eval()
    head = nn.Conv2d(128, classes, 1, device=device, dtype=low(device))
    images = torch.randn(small(8), 3, 4 * side, 4 * side, device=device, dtype=low(device))
    images = images.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        logits = F.interpolate(head(net(images)).contiguous().float(), scale_factor=4.0, mode="bilinear")
        found = (logits if changed else logits.softmax(1)).argmax(1)
        return torch.stack([(found == number).float().mean() for number in range(4)])

    return step


@unseen(
    "pictures are made float32 on the host and then copied, four times the bytes; copied as bytes and converted on the GPU",
    names=r"uint8|(as|fewer) bytes\b|HtoD|H2D|before (the )?(upload|copy|transfer)|host.?to.?device"
    r"|(convert|normali[sz])\w* (them )?on the (gpu|device)|aten::(to|_to_copy|copy_|div|sub)\b|on the (host|cpu)",
    kind="inference",
    recorded="step",
)
def moles_uploaded_as_float(device: str, changed: bool) -> Step:
    net = conv_net([32, 64, 64, 128, 128]).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last).eval()
    pictures = torch.randint(0, 256, (small(48), 3, 224, 224), dtype=torch.uint8)
    pictures = pictures if device == "cpu" else pictures.pin_memory()

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            x = (pictures.to(device, non_blocking=True).float() / 255 - 0.45) / 0.22
        else:
            x = ((pictures.float() / 255 - 0.45) / 0.22).to(device, non_blocking=True)
        return net(x.to(dtype=low(device), memory_format=torch.channels_last)).mean((2, 3))

    return step


@unseen(
    "64 columns of a table are copied to the GPU one by one; stacked on the host and copied once",
    names=r"(one|single) (copy|transfer|upload)|\bpack(ed|ing)?\b|torch\.stack"
    r"|(many|small|64|128) (small )?(copies|uploads|transfers)|HtoD|H2D|cudaMemcpyAsync"
    r"|aten::(to|_to_copy|copy_)\b|(copied|upload\w*) (one by one|together|once)",
    kind="inference",
    recorded="none",
    record_shapes=False,
)
def credit_columns_one_by_one(device: str, changed: bool) -> Step:
    net = perceptron(64, 512, 512, 512, 1).to(device).eval()
    columns = [torch.randn(2048) for _ in range(64)]

    @torch.no_grad()
    def step() -> Tensor:
        together = torch.stack(columns).to(device) if changed else torch.stack([column.to(device) for column in columns])
        return net(together.T).squeeze(1).sigmoid()

    return step


@unseen(
    "the axes and offsets of a skeleton's joints are made tensors on the GPU in every call; once, kept there",
    names=r"torch\.tensor|constants?\b|\bbuffers?\b|HtoD|H2D|lift_fresh|hoist"
    r"|(made|make|built|build|creat)\w* (\w+ )?(once|anew)|(in|for) (every|each) call",
    kind="inference",
    recorded="pose",
    with_stack=True,
)
def skeleton_constants_each_call(device: str, changed: bool) -> Step:
    random = np.random.default_rng(3)
    axes, offsets = (random.standard_normal((2, 22, 3)) / 2).tolist()
    poses = torch.randn(small(4096), 22, device=device)
    eye = torch.eye(3, device=device)

    def constants(joint: int) -> tuple[Tensor, Tensor]:
        x, y, z = axes[joint]
        cross = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], device=device)
        return cross, torch.tensor(offsets[joint], device=device)

    kept = [constants(joint) for joint in range(22)]

    @torch.no_grad()
    def step() -> Tensor:
        turned, place = eye.expand(len(poses), 3, 3), torch.zeros(len(poses), 3, device=device)
        places = []
        for joint in range(22):
            cross, offset = kept[joint] if changed else constants(joint)
            angle = poses[:, joint, None, None]
            place = place + turned @ offset
            turned = turned @ (eye + angle.sin() * cross + (1 - angle.cos()) * (cross @ cross))
            places.append(place)
        return torch.stack(places, dim=1)

    return step


@unseen(
    "each enlarged picture is copied to the host by cpu() before the next is computed, so copies and kernels take turns; "
    "into pinned memory on a side stream, meanwhile",
    names=r"side stream|overlap|(second|another|separate|own|copy) (cuda )?stream|cuda\.Stream|pinned|pin_memory|page-?able"
    r"|page-?locked|non_blocking|\.cpu\(\)|DtoH|D2H",
    kind="inference",
    recorded="none",
)
def enlarged_pictures_in_turn(device: str, changed: bool) -> Step:
    chunks, count, side = 6, small(8), small(192)
    layers = [
        nn.Conv2d(3, 64, 3, padding=1),
        *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(10)),
        nn.Conv2d(64, 27, 3, padding=1),
    ]
    net = nn.Sequential(*(m for conv in layers for m in (conv, nn.ReLU())), nn.PixelShuffle(3)).to(device, low(device)).eval()
    net = net.to(memory_format=torch.channels_last)
    pictures = torch.rand(chunks, count, 3, side, side, device=device, dtype=low(device))
    gpu = device != "cpu"
    room = torch.empty(chunks, count, 3, 3 * side, 3 * side, pin_memory=gpu and changed)
    copies = torch.cuda.Stream() if gpu and changed else None

    @torch.no_grad()
    def step() -> Tensor:
        for number, picture in enumerate(pictures):
            large = net(picture.to(memory_format=torch.channels_last)).float().contiguous()
            if copies is None:
                room[number] = large.cpu()
                continue
            copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(copies):
                room[number].copy_(large, non_blocking=True)
            large.record_stream(copies)
        if copies is not None:
            copies.synchronize()
        return room[..., ::64, ::64].clone()

    return step


@unseen(
    "ten crops of a picture are classified one after another; as one batch",
    names=r"\bbatch(ed|es|ing)?\b|torch\.(stack|cat)\b|\bcrops?\b|(one|single) (forward|call|pass)|together|at once",
    kind="inference",
    recorded="step",
    with_stack=True,
)
def birds_ten_crops_singly(device: str, changed: bool) -> Step:
    net = conv_net([32, 64, 64, 128, 128, 128, 256, 256, 256]).to(device).eval()
    head = nn.Linear(256, 200).to(device)
    picture = torch.rand(3, small(256), small(256), device=device)
    size = picture.shape[1] * 7 // 8
    rest = picture.shape[1] - size

    @torch.no_grad()
    def step() -> Tensor:
        corners = [(y, x) for y in (0, rest) for x in (0, rest)] + [(rest // 2, rest // 2)]
        crops = [picture[:, y : y + size, x : x + size] for y, x in corners]
        crops += [crop.flip(-1) for crop in crops]
        if changed:
            return head(net(torch.stack(crops)).mean((2, 3))).softmax(-1).mean(0)
        chances = [head(net(crop[None]).mean((2, 3))).softmax(-1) for crop in crops]
        return torch.cat(chances).mean(0)

    return step


@unseen(
    "eight threads of a server run the model for one request each, and contend for the interpreter and the GPU; "
    "the requests that wait as one batch",
    names=r"\bbatch(ed|es|ing)?\b|\bGIL\b|interpreter.?s? lock|together|torch\.(stack|cat)\b|(one|single) forward"
    r"|(eight|8|several|many) threads|threads? (wait|compete|contend|hold|take turns)",
    kind="inference",
    recorded="none",
)
def requests_in_threads(device: str, changed: bool) -> Step:
    net = blocks(6, 384, 6, device, low(device)).eval()
    head = nn.Linear(384, 12, device=device, dtype=low(device))
    asked = torch.randn(8, 48, 384)
    pool = ThreadPoolExecutor(8)

    @torch.no_grad()
    def answer(requests: Tensor) -> Tensor:
        x = requests.to(device=device, dtype=low(device))
        for block in net:
            x = block(x)
        return head(x.mean(1)).float().cpu()

    def step() -> Tensor:
        return answer(asked) if changed else torch.cat(list(pool.map(answer, asked.split(1))))

    return step


@unseen(
    "linear attention multiplies queries by keys first, a square of the length; keys by values first",
    names=r"associat|re-?order|order of|(keys?|k\w*)\W+(and|with|by|times|@)?\W*(the )?(values?|v) first|quadratic|parenthes"
    r"|linear in|aten::(bmm|matmul)\b",
    kind="inference",
    recorded="none",
    profile_memory=True,
)
def genome_linear_attention(device: str, changed: bool) -> Step:
    rows, heads, length, dim, dtype = 2, 8, small(4096), 512, low(device)
    ins = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(4)).to(device=device, dtype=dtype)
    outs = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4)).to(device=device, dtype=dtype)
    bases = torch.randn(rows, length, dim, device=device, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        x = bases
        for into, out in zip(ins, outs, strict=True):
            q, k, v = into(F.layer_norm(x, (dim,))).view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            q, k = F.elu(q) + 1, (F.elu(k) + 1) / length
            summed = q @ (k.transpose(-2, -1) @ v) if changed else (q @ k.transpose(-2, -1)) @ v
            x = x + out((summed / (q @ k.sum(2)[..., None])).transpose(1, 2).flatten(2))
        return x

    return step


@unseen(
    "messages for a debug log that is off format whole tensors with f-strings; logger.debug('%s', x), or no message",
    names=r"f-?strings?|\brepr\b|_tensor_str|__(repr|str|format)__|format|\blogg(er|ing)\b|\bdebug|\bprint",
    kind="inference",
    recorded="none",
    on=("cuda", "cpu"),
    with_stack=True,
    record_shapes=False,
)
def fraud_debug_messages(device: str, changed: bool) -> Step:
    logger = logging.getLogger("fraud")
    width = 192 if device == "cpu" else 1024
    net = perceptron(*[width] * 6).to(device).eval()
    paid = torch.randn(width, width, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        x = paid
        for number, layer in enumerate(net):
            x = layer(x)
            if changed:
                logger.debug("after layer %d: %s", number, x)
            else:
                logger.debug(f"after layer {number}: {x}")
        return x.amax(1)

    return step


@unseen(
    "a recommender builds and coalesces its sparse adjacency matrix in each layer; once, coalesced (or CSR)",
    names=r"coalesce|\bcoo\b|\bcsr\b|sparse",
    kind="inference",
    recorded="none",
)
def friends_coalesced_each_layer(device: str, changed: bool) -> Step:
    people, pairs, dim = small(60_000), small(1_000_000), 32
    edges = torch.randint(0, people, (2, pairs), device=device)
    degree = torch.bincount(edges[0], minlength=people).clamp(min=1).float()
    start = torch.randn(people, dim, device=device)

    def adjacency() -> Tensor:
        return torch.sparse_coo_tensor(edges, 1 / degree[edges[0]], (people, people)).coalesce()

    kept = adjacency()

    @torch.no_grad()
    def step() -> Tensor:
        x = total = start
        for _ in range(3):
            x = torch.sparse.mm(kept if changed else adjacency(), x)
            total = total + x
        return total / 4

    return step


@unseen(
    "a network taken from another framework pads its input with F.pad before every convolution, a copy; the padding argument",
    names=r"F\.pad\b|constant_pad_nd|ZeroPad|functional\.pad|aten::pad\b|padding ?=|\bpad(s|ding|ded)?\b",
    kind="inference",
    recorded="step",
)
def ported_network_pads(device: str, changed: bool) -> Step:
    convs = nn.ModuleList(nn.Conv2d(3 if i == 0 else 32, 32, 3, padding=1 if changed else 0) for i in range(10))
    convs = convs.to(device=device, dtype=low(device)).to(memory_format=torch.channels_last).eval()
    images = torch.rand(small(64), 3, 160, 160, device=device, dtype=low(device)).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        x = images
        for conv in convs:
            x = F.relu(conv(x if changed else F.pad(x, (1, 1, 1, 1))))
        return x.mean((2, 3))

    return step


@unseen(
    "forces are taken with create_graph=True where nothing is differentiated again; without",
    names=r"create_graph|double.?backward|second.?(order|derivative)|higher.?order|retain_graph|infinitely_differentiable"
    r"|graph of the (gradient|backward)|differentia\w+ (again|twice)",
    kind="inference",
    recorded="relax",
    on=("cuda", "cpu"),
)
def forces_differentiable(device: str, changed: bool) -> Step:
    molecules, atoms = (12 if device == "cpu" else 96), 24
    pair, atom = perceptron(20, 64, 64).to(device), perceptron(64, 64, 64, 1).to(device)
    centers = torch.linspace(0, 4, 20, device=device)
    start = torch.randn(molecules, atoms, 3, device=device)
    other = 1 - torch.eye(atoms, device=device)

    def step() -> Tensor:
        places = start
        for _ in range(3):
            places = places.detach().requires_grad_()
            apart = ((places[:, :, None] - places[:, None]).square().sum(-1) + 1e-6).sqrt()
            message = pair(torch.exp(-(apart[..., None] - centers).square())) * other[..., None]
            energy = atom(message.sum(2)).sum()
            (slope,) = torch.autograd.grad(energy, places, create_graph=not changed)
            places = places - 0.01 * slope
        return places.detach()

    return step


@unseen(
    "pictures are blurred by a square of 25 x 25 weights, which is the product of a column and a row; "
    "two passes of 25 weights each",
    names=r"separab|(two|1-?d|one.?dimensional|horizontal|vertical)\w* (passes|convolutions?|filters?|kernels?)|25 ?x ?25"
    r"|kernel.?size|depth.?wise|\bgroups\b|blur|gaussian",
    kind="inference",
    recorded="none",
    on=("cuda", "cpu"),
)
def pictures_blurred_by_square(device: str, changed: bool) -> Step:
    count, side = (1, 160) if device == "cpu" else (small(32), 256)
    net = conv_net([16, 32, 32, 64]).to(device).eval()
    pictures = torch.rand(count, 3, side, side, device=device)
    row = torch.exp(-torch.linspace(-3, 3, 25, device=device).square() / 2)
    row = (row / row.sum()).expand(3, 1, 1, 25).contiguous()
    square = (row.transpose(2, 3) * row).contiguous()

    @torch.no_grad()
    def step() -> Tensor:
        if changed:
            across = F.conv2d(pictures, row, padding=(0, 12), groups=3)
            soft = F.conv2d(across, row.transpose(2, 3).contiguous(), padding=(12, 0), groups=3)
        else:
            soft = F.conv2d(pictures, square, padding=12, groups=3)
        return net(2 * pictures - soft).mean((2, 3))

    return step


@unseen(
    "a sampler does the arithmetic of its noise levels with tensors of one element on the GPU, a kernel for each operation; "
    "Python numbers, computed ahead",
    names=r"scalars?\b|0-?d(im)?\b|zero.?dim|python (floats?|numbers?)|(one|single)[ -](element|number)|0-dimensional|\btiny\b"
    r"|math\.|schedule|\bsigmas?\b|noise levels?|on the (host|cpu)",
    kind="inference",
    recorded="sample",
    record_shapes=False,
)
def sampler_numbers_on_gpu(device: str, changed: bool) -> Step:
    net = perceptron(66, 512, 512, 512, 64).to(device).eval()
    noise = torch.randn(small(1024), 64, device=device)
    levels = [(80 ** (1 / 7) + i / 11 * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7 for i in range(12)]
    on_gpu = torch.tensor(levels, device=device)

    def numbers(level: Any, following: Any) -> tuple[Any, ...]:
        spread = (level**2 + 0.25) ** 0.5
        angle = (level.log() if isinstance(level, Tensor) else math.log(level)) / 4
        return 0.25 / spread**2, level * 0.5 / spread, 1 / spread, angle, (following - level) / level

    @torch.no_grad()
    def step() -> Tensor:
        x = noise * levels[0]
        for number, (level, following) in enumerate(pairwise(levels)):
            if not changed:
                level, following = on_gpu[number], on_gpu[number + 1]  # type: ignore[assignment]
            skip, out, into, angle, forward = numbers(level, following)
            known = torch.ones(len(x), 2, device=device) * angle
            clean = skip * x + out * net(torch.cat([x * into, known], dim=1))
            x = x + forward * (x - clean)
        return x

    return step


@unseen(
    "attention over a feature map gets queries, keys and values whose last dimension is strided (channels first), "
    "which leaves only the slow path that holds all scores; made contiguous",
    names=r"contiguous|\bstrid(e|ed|es)\b|\bmath\b|flash|efficient.?attention|layout|attention_math|transpos",
    kind="inference",
    recorded="none",
)
def latents_strided_attention(device: str, changed: bool) -> Step:
    count, width, heads, side, dtype = 2, 512, 8, small(64), low(device)
    norms = nn.ModuleList(nn.GroupNorm(16, width) for _ in range(3)).to(device=device, dtype=dtype)
    ins = nn.ModuleList(nn.Conv1d(width, 3 * width, 1) for _ in range(3)).to(device=device, dtype=dtype)
    outs = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3)).to(device=device, dtype=dtype)
    latents = torch.randn(count, width, side * side, device=device, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        x = latents
        for norm, into, out in zip(norms, ins, outs, strict=True):
            q, k, v = into(norm(x)).view(count, 3, heads, width // heads, -1).transpose(-2, -1).unbind(1)
            if changed:
                q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
            attended = F.scaled_dot_product_attention(q, k, v)
            x = x + out(attended.transpose(-2, -1).reshape(x.shape))
        return x

    return step


@unseen(
    "the weights of an LSTM were set one by one and lie in scattered memory, so that cuDNN copies them together in every call; "
    "flatten_parameters() once",
    names=r"flatten_parameters|_cudnn_rnn_flatten_weight|contiguous (chunk|block|buffer|memory)|weight_?buf|scattered"
    r"|flatten\w* (the )?weights?",
    kind="inference",
    recorded="listen",
)
def keyword_scattered_weights(device: str, changed: bool) -> Step:
    rnn, head = nn.LSTM(40, 1024, num_layers=2).to(device), nn.Linear(1024, 12).to(device)
    for parameter in rnn.parameters():
        parameter.data = parameter.data.clone()
    if changed:
        rnn.flatten_parameters()
    sounds = torch.randn(6, 4, 8, 40, device=device)

    @torch.no_grad()
    def step() -> Tensor:
        state, outputs = None, []
        for chunk in sounds:
            heard, state = rnn(chunk, state)
            outputs.append(head(heard[-1]))
        return torch.stack(outputs)

    return step


@unseen(
    "a speech synthesiser repeats each sound for its duration in a Python loop; repeat_interleave",
    names=r"repeat_interleave|durations?|length.?regulat|aten::(repeat|select|cat)\b|torch\.cat"
    r"|(each|per|every|one) (sound|phoneme)|sound by sound|vectori[sz]",
    kind="inference",
    recorded="none",
    on=("cuda", "cpu"),
    with_stack=True,
)
def speech_durations_in_loop(device: str, changed: bool) -> Step:
    count = 4 if device == "cpu" else 8
    phonemes = torch.randn(count, 60, 128, device=device)
    before = nn.Conv1d(128, 128, 5, padding=2).to(device).eval()
    after = nn.Sequential(*(m for _ in range(3) for m in (nn.Conv1d(128, 128, 5, padding=2), nn.ReLU()))).to(device).eval()
    durations = torch.randint(2, 9, (count, 60), device=device)

    @torch.no_grad()
    def step() -> Tensor:
        hidden = before(phonemes.transpose(1, 2)).transpose(1, 2)
        if changed:
            spoken = [h.repeat_interleave(times, dim=0) for h, times in zip(hidden, durations, strict=True)]
        else:
            spoken = []
            for h, times in zip(hidden, durations.tolist(), strict=True):
                spoken.append(torch.cat([sound.repeat(repeats, 1) for sound, repeats in zip(h, times, strict=True)]))
        padded = nn.utils.rnn.pad_sequence(spoken, batch_first=True)
        return after(padded.transpose(1, 2)).mean(-1)

    return step


# On a GPU, changes that bring nothing.


@unseen(
    "none: ReLUs after large convolutions write a new tensor, as many bytes as in place; inplace=True",
    names=r"in-?place|relu_|clamp_min_?",
    kind="training",
    recorded="step",
    null=True,
    profile_memory=True,
)
def null_relu_in_place(device: str, changed: bool) -> Step:
    layers: list[nn.Module] = [nn.Conv2d(3, 128, 3, 2, 1), nn.ReLU(inplace=changed)]
    for _ in range(8):
        layers += [nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU(inplace=changed)]
    net = nn.Sequential(*layers).to(device=device, dtype=low(device)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    images = torch.randn(small(64), 3, 160, 160, device=device, dtype=low(device)).to(memory_format=torch.channels_last)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(images).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: an image transformer, whose only convolution cuts the patches; channels_last",
    names=r"channels_last|nhwc|memory.?format",
    kind="inference",
    recorded="none",
    null=True,
)
def null_channels_last_of_patches(device: str, changed: bool) -> Step:
    net = blocks(12, 768, 12, device, low(device)).eval()
    layout = torch.channels_last if changed else torch.contiguous_format
    cut = nn.Conv2d(3, 768, 16, 16).to(device=device, dtype=low(device)).to(memory_format=layout)
    images = torch.randn(small(64), 3, 256, 256, device=device, dtype=low(device)).to(memory_format=layout)

    @torch.no_grad()
    def step() -> Tensor:
        x = cut(images).flatten(2).transpose(1, 2).contiguous()
        for block in net:
            x = block(x)
        return x.mean(1)

    return step


@unseen(
    "none: attention without a mask, for which the flash kernel is chosen anyway; sdpa_kernel(FLASH_ATTENTION)",
    names=r"sdpa_kernel|flash|attention backend|enable_flash",
    kind="training",
    recorded="step",
    null=True,
    record_shapes=False,
)
def null_flash_asked_for(device: str, changed: bool) -> Step:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    net = blocks(4, 1024, 16, device, low(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    x, target = torch.randn(2, small(16), small(1024), 1024, device=device, dtype=low(device))
    wanted = [SDPBackend.FLASH_ATTENTION]
    if not changed:
        wanted += [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

    def step() -> Tensor:
        optimizer.zero_grad()
        h = x
        with sdpa_kernel(wanted):
            for block in net:
                h = block(h, causal=True)
        loss = F.mse_loss(h, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: the gradients of a few weights that large batches share are set to zero; zero_grad(set_to_none=True)",
    names=r"set_to_none|zero_grad|aten::(_foreach_)?zero_",
    kind="training",
    recorded="none",
    null=True,
    with_stack=True,
)
def null_gradients_to_none(device: str, changed: bool) -> Step:
    dim = small(2048)
    net = perceptron(*[dim] * 7).to(device=device, dtype=low(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, target = torch.randn(2, small(32_768), dim, device=device, dtype=low(device))

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=changed)
        loss = F.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: a transformer without dropout or batch norms was left in training mode; eval()",
    names=r"\.eval\(\)|eval(uation)? mode|train(ing)? mode",
    kind="inference",
    recorded="encode",
    on=("cuda", "cpu"),
    null=True,
)
def null_eval_without_dropout(device: str, changed: bool) -> Step:
    rows, dim = (4, 192) if device == "cpu" else (small(32), 1024)
    net = blocks(4, dim, dim // 64, device, low(device)).train(not changed)
    words = torch.randn(rows, 256, dim, device=device, dtype=low(device))

    @torch.no_grad()
    def step() -> Tensor:
        x = words
        for block in net:
            x = block(x)
        return F.normalize(x.mean(1), dim=-1)

    return step


@unseen(
    "none: a pinned batch of 200 kB is uploaded on the stream that computes, before milliseconds of kernels; a stream of its own",
    names=r"side stream|stream of its own|prefetch|overlap|(second|another|separate|own|copy) (cuda )?stream|cuda\.Stream",
    kind="inference",
    recorded="none",
    null=True,
)
def null_stream_for_small_upload(device: str, changed: bool) -> Step:
    dim = small(4096)
    first, net = nn.Linear(64, dim).to(device), perceptron(*[dim] * 7).to(device=device, dtype=low(device))
    rows = torch.randn(16, 784, 64)
    rows = rows if device == "cpu" else rows.pin_memory()
    side = torch.cuda.Stream() if changed and device != "cpu" else None
    number = 0

    def upload() -> Tensor:
        nonlocal number
        number += 1
        return rows[number % 16].to(device, non_blocking=True)

    @torch.no_grad()
    def step() -> Tensor:
        if side is None:
            x = upload()
        else:
            with torch.cuda.stream(side):
                x = upload()
            torch.cuda.current_stream().wait_stream(side)
            x.record_stream(torch.cuda.current_stream())
        many = first(x).to(low(device)).repeat(8, 1)
        return net(many).mean(0)

    return step


# On the CPU.


class Scans(Dataset[tuple[Tensor, Tensor]]):
    """Scans in a file of numpy's, with what is to be found in them."""

    def __init__(self, mapped: bool):
        self.path, self.mapped = Path(tempfile.gettempdir()) / "unseen_scans.npy", mapped
        if not self.path.exists():
            np.save(self.path, np.random.default_rng(5).standard_normal((600, 48, 64), dtype=np.float32))
        self.scans = np.load(self.path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        scans = self.scans if self.mapped else np.load(self.path)
        scan = torch.from_numpy(np.array(scans[number]))
        return scan, scan[0, :8].sign().clamp(min=0)


@unseen(
    "the dataset reads the whole file of scans for each scan; opened once, mapped into memory (mmap_mode)",
    names=r"np\.load|numpy\.load|npyio|mmap|memmap|\bmapped\b|__getitem__|fromfile"
    r"|(whole|same|each|open\w*|read\w*) (the )?files?",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
)
def scans_file_for_each(device: str, changed: bool) -> Step:
    batches = batches_for_ever(DataLoader(Scans(changed), 12))
    net = perceptron(48 * 64, 384, 384, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)

    def step() -> Tensor:
        scans, labels = next(batches)
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(scans.flatten(1)), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the variances of principal components are taken from the SVD of a tall matrix; eigenvalues of its small covariance matrix",
    names=r"\bsvd|svdvals|eigh|eigvals|eigenval|covariance|gram|pca_lowrank|linalg_svd|gesdd",
    kind="inference",
    recorded="reduce",
    on=("cpu",),
)
def spectra_tall_svd(device: str, changed: bool) -> Step:
    net, spectra = perceptron(256, 128, 96), torch.randn(4000, 256)

    @torch.no_grad()
    def step() -> Tensor:
        features = net(spectra)
        features = features - features.mean(0)
        if changed:
            variances = torch.linalg.eigvalsh(features.T @ features).flip(0)
        else:
            variances = torch.linalg.svd(features, full_matrices=False).S.square()
        return variances[:16] / (len(features) - 1)

    return step


@unseen(
    "a flow scales its features by the product with a diagonal matrix; by elementwise multiplication",
    names=r"\bdiag(onal|_embed|flat)?\b|element-?wise|aten::(mm|matmul|diag\w*)\b|broadcast",
    kind="training",
    recorded="step",
    on=("cpu",),
    record_shapes=False,
)
def flow_diagonal_matrices(device: str, changed: bool) -> Step:
    dim, rows = 320, 384
    nets = nn.ModuleList(perceptron(dim, 64, dim) for _ in range(4))
    scales = nn.ParameterList(nn.Parameter(torch.rand(dim) / 2 + 0.75) for _ in range(4))
    optimizer = torch.optim.Adam([*nets.parameters(), *scales.parameters()], lr=1e-4)
    events = torch.randn(rows, dim)

    def step() -> Tensor:
        optimizer.zero_grad()
        x, volume = events, torch.zeros(())
        for net, scale in zip(nets, scales, strict=True):
            x = x * scale if changed else x @ torch.diag(scale)
            x = x + 0.1 * net(x.roll(1, 1)).tanh()
            volume = volume + scale.abs().log().sum()
        loss = x.square().sum(1).mean() / 2 - volume
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "the density of a mixture is taken component by component, a MultivariateNormal for each; one with a batch of 40",
    names=r"\bbatch(ed|es)?\b|MultivariateNormal|vectori[sz]|(each|per|every|one|40|by) (component|gaussian|distribution)"
    r"|cholesky|solve_triangular|validat",
    kind="inference",
    recorded="none",
    on=("cpu",),
    with_stack=True,
)
def mixture_by_component(device: str, changed: bool) -> Step:
    from torch.distributions import MultivariateNormal

    number, dim = 40, 6
    encoder, cells = perceptron(64, 256, dim), torch.randn(256, 64)
    centers, roots = torch.randn(number, dim), torch.randn(number, dim, dim) / 3
    covariances = roots @ roots.transpose(1, 2) + torch.eye(dim)

    @torch.no_grad()
    def step() -> Tensor:
        x = encoder(cells)
        if changed:
            chances = MultivariateNormal(centers, covariances).log_prob(x[:, None])
        else:
            parts = [MultivariateNormal(a, b).log_prob(x) for a, b in zip(centers, covariances, strict=True)]
            chances = torch.stack(parts, dim=1)
        return chances.softmax(1).mean(0)

    return step


@unseen(
    "negatives are drawn by multinomial from weights of all words, whose sums are taken again in every step; "
    "cumulative sums kept, and searchsorted",
    names=r"multinomial|searchsorted|cumsum|cumulative|alias|\bcdf\b|bucketize",
    kind="training",
    recorded="step",
    on=("cpu",),
    profile_memory=True,
)
def words_negatives_multinomial(device: str, changed: bool) -> Step:
    words, dim, batch, negatives = 400_000, 48, 512, 8
    table = nn.Embedding(words, dim, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    weights = (1 / torch.arange(10.0, words + 10)) ** 0.75
    sums = weights.cumsum(0)
    centers, near = torch.randint(0, words, (2, batch))

    def step() -> Tensor:
        if changed:
            drawn = torch.searchsorted(sums, torch.rand(batch * negatives) * sums[-1]).clamp(max=words - 1)
        else:
            drawn = torch.multinomial(weights, batch * negatives, replacement=True)
        optimizer.zero_grad()
        x = table(centers)
        fits = (x * table(near)).sum(1)
        others = (table(drawn.view(batch, negatives)) @ x[:, :, None]).squeeze(2)
        loss = -F.logsigmoid(fits / dim).mean() - F.logsigmoid(-others / dim).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a model saved in half precision for a GPU is run so on the CPU; float32",
    names=r"float16|\bhalf\b|float32|dtype|precision",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def letters_half_on_cpu(device: str, changed: bool) -> Step:
    dtype = torch.float32 if changed else torch.float16
    net = conv_net([16, 32, 32, 64], norm=True).half().to(dtype).eval()
    images = torch.rand(6, 3, 96, 96).half().to(dtype)

    @torch.no_grad()
    def step() -> Tensor:
        return net(images).mean((2, 3))

    return step


@unseen(
    "Python's own sum() and max() go through the losses of a portfolio number by number; Tensor.sum and amax",
    names=r"built-?in|python'?s? (own )?\W?(sum|max)|\.sum\(|torch\.(sum|max)|amax|aten::(unbind|select|add|gt)\b|iterat\w+"
    r"|number by number|element by element|vectori[sz]",
    kind="inference",
    recorded="risk",
    on=("cpu",),
)
def portfolio_builtin_sum(device: str, changed: bool) -> Step:
    net, markets = perceptron(64, 256, 256, 1), torch.randn(1500, 64)

    @torch.no_grad()
    def step() -> Tensor:
        losses = net(markets).squeeze(1).exp()
        if changed:
            worst, mean = losses.amax(), losses.sum() / len(losses)
        else:
            worst, mean = max(losses), sum(losses) / len(losses)
        return torch.stack([worst, mean])

    return step


@unseen(
    "a batch is made by torch.tensor of a list of numpy arrays, number by number; np.stack and from_numpy",
    names=r"np\.(stack|array|asarray)|numpy\.(stack|array)|from_numpy|as_tensor|list of (numpy )?(nd)?arrays?|torch\.tensor"
    r"|(extremely|very) slow",
    kind="training",
    recorded="none",
    on=("cpu",),
)
def games_list_of_arrays(device: str, changed: bool) -> Step:
    random = np.random.default_rng(1)
    seen = [random.random((4, 20, 20), dtype=np.float32) for _ in range(256)]
    net = nn.Sequential(nn.Conv2d(4, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 6))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    number = 0

    def step() -> Tensor:
        nonlocal number
        number += 1
        chosen = [seen[(37 * i + number) % 256] for i in range(64)]
        states = torch.from_numpy(np.stack(chosen)) if changed else torch.tensor(chosen)
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(net(states).amax(1), states.mean((1, 2, 3)))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "a whole Hessian is made, a backward pass for each parameter, for one product with a vector; hvp",
    names=r"\bhvp\b|\bvhp\b|\bjvp\b|hessian|vector.product",
    kind="inference",
    recorded="curvature",
    on=("cpu",),
    with_stack=True,
)
def curvature_by_hessian(device: str, changed: bool) -> Step:
    doses, answers = torch.randn(600, 6), torch.randn(600)
    weights, direction = torch.randn(6 * 10 + 10 + 10) / 3, torch.randn(80)

    def loss_of(w: Tensor) -> Tensor:
        hidden = torch.tanh(doses @ w[:60].view(6, 10) + w[60:70])
        return F.mse_loss(hidden @ w[70:], answers)

    def step() -> Tensor:
        if changed:
            return torch.autograd.functional.hvp(loss_of, weights, direction)[1]
        return torch.autograd.functional.hessian(loss_of, weights) @ direction

    return step


@unseen(
    "the neighbourhood of the chosen papers is collected in Python, with sets and dicts; with masks over the edges' tensors",
    names=r"neighbo|subgraph|python (sets?|dicts?)|vectori[sz]|python (code|loop|function)|by_sets|tolist",
    kind="training",
    recorded="step",
    on=("cpu",),
    with_stack=True,
    record_shapes=False,
)
def papers_neighbourhood_in_python(device: str, changed: bool) -> Step:
    papers, cited, dim = 12_000, 60_000, 64
    edges = torch.randint(0, papers, (2, cited))
    neighbours: dict[int, list[int]] = {number: [] for number in range(papers)}
    for a, b in zip(*edges.tolist(), strict=True):
        neighbours[b].append(a)
    features, labels = torch.randn(papers, dim), torch.randint(0, 5, (papers,))
    layers = nn.ModuleList([nn.Linear(2 * dim, 128), nn.Linear(256, 5)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-2)
    chosen = torch.randperm(papers)[:128]

    def by_sets() -> tuple[Tensor, Tensor]:
        found = set(chosen.tolist())
        for _ in range(2):
            found |= {a for b in found for a in neighbours[b]}
        nodes = sorted(found)
        place = {node: i for i, node in enumerate(nodes)}
        inside = [(place[a], place[b]) for b in nodes for a in neighbours[b] if a in place]
        return torch.tensor(nodes), torch.tensor(inside).T

    def by_masks() -> tuple[Tensor, Tensor]:
        found = torch.zeros(papers, dtype=torch.bool)
        found[chosen] = True
        for _ in range(2):
            found[edges[0][found[edges[1]]]] = True
        place = found.cumsum(0) - 1
        return found.nonzero().squeeze(1), place[edges[:, found[edges].all(0)]]

    def step() -> Tensor:
        nodes, (source, sink) = by_masks() if changed else by_sets()
        optimizer.zero_grad()
        h = features[nodes]
        for layer in layers:
            summed = torch.zeros_like(h).index_add_(0, sink, h[source])
            h = layer(torch.cat([h, summed], dim=1)).relu()
        loss = F.cross_entropy(h, labels[nodes])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "torch.set_num_threads(1), once meant for the workers of a loader, was left in a program that has two cores; two threads",
    names=r"num_threads|OMP_NUM_THREADS|(one|1|single|more|two|2|intra.?op) threads?\b|\bcores?\b",
    kind="inference",
    recorded="none",
    on=("cpu",),
)
def tracks_on_one_thread(device: str, changed: bool) -> Step:
    net = conv_net([32, 64, 64, 64, 128]).eval()
    frames = torch.rand(4, 3, 160, 160)

    @torch.no_grad()
    def step() -> Tensor:
        torch.set_num_threads(2 if changed else 1)
        return net(frames).mean((2, 3))

    return step


# On the CPU, changes that bring nothing.


@unseen(
    "none: a small array is copied by torch.tensor for a step of many milliseconds; torch.from_numpy",
    names=r"from_numpy|as_tensor|torch\.tensor|share\w* memory",
    kind="training",
    recorded="step",
    on=("cpu",),
    null=True,
    with_stack=True,
)
def null_array_not_copied(device: str, changed: bool) -> Step:
    random = np.random.default_rng(2)
    measured = [random.random((256, 24), dtype=np.float32) for _ in range(16)]
    net = perceptron(24, 768, 768, 768, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    number = 0

    def step() -> Tensor:
        nonlocal number
        number += 1
        array = measured[number % 16]
        x = torch.from_numpy(array) if changed else torch.tensor(array)
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), x.mean(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@unseen(
    "none: a training step of large products that leaves few objects for the garbage collector; the collector off in the step",
    names=r"garbage|\bgc\b|collector",
    kind="training",
    recorded="none",
    on=("cpu",),
    null=True,
)
def null_collector_off(device: str, changed: bool) -> Step:
    rnn, head = nn.LSTM(24, 128, batch_first=True), nn.Linear(128, 1)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)
    weather = torch.randn(64, 30, 24)

    def step() -> Tensor:
        if changed:
            gc.disable()
        optimizer.zero_grad()
        loss = F.huber_loss(head(rnn(weather)[0][:, -1]), weather[:, -1, :1])
        loss.backward()
        optimizer.step()
        gc.enable()
        return loss.detach()

    return step
