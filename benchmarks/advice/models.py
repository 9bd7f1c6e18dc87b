"""The models that the pairs change: small, in plain torch, each with the switches that a pair turns."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal self-attention. `how`: sdpa, or written (scores, mask, softmax; the mask a buffer, or made on the CPU each time)."""

    def __init__(self, dim: int, heads: int, how: str, seq: int):
        super().__init__()
        self.heads, self.how = heads, how
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(seq, seq, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x):  # [batch, seq, dim]
        batch, seq, dim = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        if self.how == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(seq, seq, dtype=torch.bool).triu(1).to(x.device) if self.how == "cpu_mask" else self.mask
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            y = torch.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, seq, dim))


class OwnNorm(nn.Module):
    """A layer norm written out, op by op."""

    def __init__(self, dim: int):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, unbiased=False)
        return self.scale * ((x - mean) / torch.sqrt(variance + 1e-5)) + self.shift


class OwnGelu(nn.Module):
    """GELU's tanh form written out, op by op."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class CastingLinear(nn.Linear):
    """A linear layer whose fp32 weight is cast each time it is used."""

    def forward(self, x):
        return F.linear(x, self.weight.to(torch.bfloat16), self.bias.to(torch.bfloat16))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, attention: str, norm: type, gelu: type, seq: int):
        super().__init__()
        self.norm_1, self.norm_2 = norm(dim), norm(dim)
        self.attention = Attention(dim, heads, attention, seq)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), gelu(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    """A decoder-only language model, GPT-2's shape: `checkpoint` runs each block's forward pass again in the backward one."""

    def __init__(
        self,
        layers=6,
        dim=768,
        heads=12,
        vocab=50257,
        seq=512,
        attention="sdpa",
        norm=nn.LayerNorm,
        gelu=nn.GELU,
        checkpoint=False,
    ):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList([Block(dim, heads, attention, norm, gelu, seq) for _ in range(layers)])
        self.norm, self.head = norm(dim), nn.Linear(dim, vocab, bias=False)
        self.checkpoint = checkpoint

    def forward(self, tokens):  # [batch, seq] -> [batch, seq, vocab]
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpoint else block(x)
        return self.head(self.norm(x))


class Tables(nn.Module):
    """A recommender's embedding tables and MLP: looked up one by one, or in one table with offsets."""

    def __init__(self, tables=26, rows=10_000, dim=64, merged=False):
        super().__init__()
        self.merged = merged
        self.tables = nn.ModuleList(
            [nn.Embedding(rows * tables, dim)] if merged else [nn.Embedding(rows, dim) for _ in range(tables)]
        )
        self.register_buffer("offsets", torch.arange(tables) * rows, persistent=False)
        self.mlp = nn.Sequential(nn.Linear(tables * dim, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, ids):  # [batch, tables]
        if self.merged:
            x = self.tables[0](ids + self.offsets).flatten(1)
        else:
            x = torch.cat([table(ids[:, n]) for n, table in enumerate(self.tables)], 1)
        return self.mlp(x)


class Recurrent(nn.Module):
    """An LSTM over a sequence: one cell at a time, or torch's own layer."""

    def __init__(self, dim=256, cells=True):
        super().__init__()
        self.cells = cells
        self.lstm = nn.LSTMCell(dim, dim) if cells else nn.LSTM(dim, dim)
        self.head = nn.Linear(dim, dim)

    def forward(self, x):  # [seq, batch, dim]
        if not self.cells:
            return self.head(self.lstm(x)[0])
        state, outputs = None, []
        for token in x:
            state = self.lstm(token, state)
            outputs.append(state[0])
        return self.head(torch.stack(outputs))


class Residual(nn.Module):
    """A bottleneck of a residual network, without strides."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        layers: list[nn.Module] = []
        for cin, cout, size in ((channels, inner, 1), (inner, inner, 3), (inner, channels, 1)):
            layers += [nn.Conv2d(cin, cout, size, padding=size // 2, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return F.relu(x + self.layers(x))


def conv_net(blocks=6, channels=256) -> nn.Module:
    """Return a small residual network for images of [batch, 3, height, width]."""
    stem = [nn.Conv2d(3, channels, 7, stride=4, padding=3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    body = [Residual(channels, channels // 4) for _ in range(blocks)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def mlp(layers=8, dim=1024, activation=nn.ReLU) -> nn.Sequential:
    return nn.Sequential(*(module for _ in range(layers) for module in (nn.Linear(dim, dim), activation())))
