"""The model of lesson 05_d: a small decoder, written as one might at first, and, rung by rung, as it should be. Each rung keeps
what the ones before it changed.
"""

import math

from models.rungs import Rungs
import torch
from torch import nn
from torch.nn import functional as F

RUNGS = Rungs(
    {  # in their order: what each of them changes
        "naive": "nothing yet",
        "heads": "all heads in one matrix multiplication, instead of a loop over the heads",
        "mask": "the mask is made once, on the device, instead of once in each block",
        "attention": "one op for attention, instead of separate ops for scores, mask, softmax and the second matmul",
        "fused_ops": "torch's LayerNorm and GELU, in place of their formulas",
        "reads": "the loss and the gradients' norm stay on the device; before, the CPU read a number for each gradient",
        "optimizer": "one optimizer kernel for all weights, in place of a loop over them",
        "bits": "matrix multiplications in 16 bits",
        "compiled": "torch.compile",
        "graph": "one launch for each pass, as a CUDA graph",
    }
)
reached = RUNGS.reached


def attend(q, k, v, mask):
    """Attention by its formula: [..., seq, head_dim] each, mask [seq, seq]."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ v


def causal_mask(seq: int, device) -> torch.Tensor:
    return torch.ones(seq, seq, dtype=torch.bool, device=device).tril()


class Norm(nn.Module):
    def __init__(self, dim: int, rung: str):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.is_fused = reached(rung, "fused_ops")

    def forward(self, x):
        if self.is_fused:
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight + self.bias


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, rung: str):
        super().__init__()
        self.rung, self.heads = rung, heads
        self.norms = nn.ModuleList(Norm(dim, rung) for _ in range(2))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attention(self, q, k, v, mask):
        if reached(self.rung, "attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if not reached(self.rung, "mask"):
            mask = causal_mask(q.shape[-2], "cpu").to(q.device)
        if reached(self.rung, "heads"):
            return attend(q, k, v, mask)
        return torch.stack([attend(q[:, n], k[:, n], v[:, n], mask) for n in range(self.heads)], 1)

    def gelu(self, x):
        if reached(self.rung, "fused_ops"):
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(q, k, v, mask).transpose(1, 2).flatten(2))  # [batch, seq, dim]
        return x + self.down(self.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    """Tokens [batch, seq + 1] to the loss of guessing each next one."""

    def __init__(self, args, rung: str):
        super().__init__()
        self.tokens, self.places = nn.Embedding(args.vocab, args.dim), nn.Embedding(args.seq, args.dim)
        self.blocks = nn.ModuleList(Block(args.dim, args.heads, rung) for _ in range(args.layers))
        self.register_buffer("mask", causal_mask(args.seq, None))

    def forward(self, tokens):
        x = self.tokens(tokens[:, :-1]) + self.places.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = x @ self.tokens.weight.T  # [batch, seq, vocab]
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
