"""The model of lesson 05_e: a decoder that answers, written as one might at first, and, rung by rung, as it should be. Each rung
keeps what the ones before it changed.
"""

import math
from typing import Any

from models.rungs import Rungs
import torch
from torch import nn
from torch.nn import functional as F

RUNGS = Rungs(
    {  # in their order: what each of them changes
        "naive": "nothing yet",
        "no_grad": "autograd is off",
        "last": "logits for the last position only, instead of for all",
        "cache": "keys and values are kept, and each pass computes the new token alone, instead of the whole text again",
        "room": "the room for all keys and values is made once, instead of a longer copy for each token",
        "reads": "the tokens stay on the device until the answer is complete; before, the CPU read each of them",
        "bits": "weights, keys and values in 16 bits",
        "compiled": "torch.compile, of the pass for one token",
        "graph": "one launch for each token, as a CUDA graph",
    }
)
reached = RUNGS.reached


class Growing:
    """The keys and values of a block, [batch, heads, tokens, head_dim], made anew for each token."""

    def __init__(self):
        self.kept: list[torch.Tensor] = []

    def add(self, keys, values, places):
        new = (keys, values)
        self.kept = [torch.cat(both, 2) for both in zip(self.kept, new, strict=True)] if self.kept else [*new]
        return self.kept


class Room(nn.Module):
    """The same in memory that has room for all tokens."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, *shape: int):
        super().__init__()
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def add(self, keys, values, places):
        return self.keys.index_copy_(2, places, keys), self.values.index_copy_(2, places, values)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, cache, places, mask):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.add(k, v, places)
        mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None and q.shape[2] > 1)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))  # [batch, tokens, dim]
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Decoder(nn.Module):
    """Tokens [batch, tokens], and their places in the text [tokens], to the next token [batch, 1]."""

    every_place: torch.Tensor

    def __init__(self, args, rung: str):
        super().__init__()
        self.rung, length = rung, args.prompt + args.new
        self.tokens, self.places = nn.Embedding(args.vocab, args.dim), nn.Embedding(length, args.dim)
        self.blocks = nn.ModuleList(Block(args.dim, args.heads) for _ in range(args.layers))
        self.shape = args.batch, args.heads, length, args.dim // args.heads  # of a block's keys, and of its values
        self.rooms = nn.ModuleList(Room(*self.shape) for _ in self.blocks if reached(rung, "room"))
        self.caches: list[Any] = [None for _ in self.blocks]
        self.register_buffer("every_place", torch.arange(length))

    @property
    def least_read_bytes(self) -> int:
        """What a pass for one token has to read at least: each weight once, and the keys and values of all tokens."""
        weights = sum(one.nbytes for one in self.parameters())
        keys = math.prod(self.shape) * self.tokens.weight.itemsize
        return weights + 2 * len(self.blocks) * keys

    def forget(self):
        """Begin a new text."""
        if reached(self.rung, "cache"):
            self.caches = list(self.rooms) or [Growing() for _ in self.blocks]

    def forward(self, tokens, places):
        x = self.tokens(tokens) + self.places(places)
        mask = self.every_place <= places[:, None] if self.rooms else None  # of all the room, what is filled
        for block, cache in zip(self.blocks, self.caches, strict=True):
            x = block(x, cache, places, mask)
        if reached(self.rung, "last"):
            x = x[:, -1:]
        logits = x @ self.tokens.weight.T  # [batch, tokens or 1, vocab]
        return logits[:, -1:].argmax(-1)


class Answer:
    """A prompt [batch, prompt] and what follows it; `token` [batch, 1] and `place` [1]: of the pass for one token."""

    def __init__(self, model: Decoder, args, device: str):
        self.model, self.new, self.rung = model, args.new, args.rung
        self.prompt = torch.randint(args.vocab, (args.batch, args.prompt), device=device)
        self.token, self.place = self.prompt[:, -1:].clone(), torch.full((1,), args.prompt, device=device)
        self.forward = torch.compile(model, mode=args.compile_mode) if args.compile else model
        self.graph = self.captured() if args.rung == "graph" else None

    @torch.no_grad()
    def captured(self) -> torch.cuda.CUDAGraph:
        """Record the launches of the pass for one token, to replay them; its tensors stay where they are."""
        self.read()
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.one_token()  # compiles
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            self.one_token()
        return graph

    def read(self) -> None:
        """Read the prompt, and write the first token."""
        self.model.forget()
        with torch.profiler.record_function("prompt"):
            self.token.copy_(self.model(self.prompt, self.model.every_place[: self.prompt.shape[1]]))
        self.place.fill_(self.prompt.shape[1])

    def one_token(self) -> None:
        """Write the token after `token`, which stands at `place`."""
        self.token.copy_(self.forward(self.token, self.place))
        self.place += 1

    def write(self) -> list[list[int]]:
        """Return the new tokens, a list for each sequence of the batch."""
        self.read()
        text, written = self.prompt, [self.written()]
        for _ in range(self.new - 1):
            with torch.profiler.record_function("token"):
                if not reached(self.rung, "cache"):
                    text = torch.cat((text, self.token), 1)
                    self.token.copy_(self.forward(text, self.model.every_place[: text.shape[1]]))
                elif self.graph is not None:
                    self.graph.replay()
                else:
                    self.one_token()
                written.append(self.written())
        return torch.cat(written, 1).tolist()

    def written(self) -> torch.Tensor:
        """Return what was written last; a copy on the CPU up to the rung `reads`."""
        return self.token.clone() if reached(self.rung, "reads") else self.token.to("cpu", copy=True)
