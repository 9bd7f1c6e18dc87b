"""A language model writes tokens: the prompt, the cache, a step, and how far that is from the floor."""

import argparse
from collections.abc import Callable
from typing import Any

from common.device import Device
from common.plain_step import PlainStep
from common.record import WARMUP_CALLS
from models.llm import weight_bytes
import torch

PLAIN_STEPS = 11  # without the profiler
IN_CACHE_BYTES = 1.5e8  # what a GPU's L2 cache holds is not read from its memory each time: the largest have some 100 MB


class Decoder:
    """The model and what it has read; to be used under torch.no_grad(). A step is one forward; `token` is what was written last,
    [batch, 1], `logits` what it was chosen from, [batch, 1, vocab]; `written` are all tokens of the steps.
    """

    def __init__(self, args: argparse.Namespace, model: Any, device: Device):
        self.args, self.model, self.device = args, model, device
        self.prompt = torch.randint(args.vocab, (args.batch, args.prompt), device=device.type)
        self.steps = WARMUP_CALLS + PLAIN_STEPS + args.wait + args.schedule_warmup + args.active
        self.tokens = args.prompt + self.steps + 1  # that a static cache has room for
        self.forward = torch.compile(model, mode=args.compile_mode) if args.compile else model
        self.cache = self.make_cache()
        self.logits: torch.Tensor | None = None
        self.written: list[torch.Tensor] = []
        self.token = self.read(self.model)

    def make_cache(self) -> Any:
        """Return an empty cache of keys and values: one that grows, or one that has its memory."""
        from transformers import DynamicCache, StaticCache  # here, because it takes seconds

        if self.args.cache == "dynamic":
            return DynamicCache(config=self.model.config)
        return StaticCache(config=self.model.config, max_cache_len=self.tokens)

    def read(self, forward: Callable) -> torch.Tensor:
        """Read the prompt into the cache: the token after it, [batch, 1]."""
        logits = forward(input_ids=self.prompt, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
        return logits.argmax(-1)

    def prefill_step(self) -> torch.Tensor:
        """Read the prompt once more."""
        if self.args.cache == "static":
            self.cache.reset()
        else:
            self.cache = self.make_cache()
        with torch.profiler.record_function("prefill_fwd"):
            return self.read(self.forward)

    def write_once(self) -> None:
        """Write as many tokens as all steps together will, and begin again at the prompt."""
        for _ in range(self.steps):
            self.decode_step()
        self.token = self.prefill_step()
        self.written.clear()

    def decode_step(self) -> None:
        """Write one token."""
        with torch.profiler.record_function("decode_step"):
            self.logits = self.forward(input_ids=self.token, past_key_values=self.cache, use_cache=True).logits.clone()
            self.token = self.logits.argmax(-1)
        self.written.append(self.token)


def print_rates(decoder: Decoder, plain_step: PlainStep | None) -> None:
    """What the profiler costs, and how far the step is from the time in which its memory can be read once."""
    plain_us = plain_step.median_us if plain_step else None
    args, config = decoder.args, decoder.model.config
    tokens = args.batch * (args.prompt if getattr(args, "phase", "decode") == "prefill" else 1)
    rates = [("without the profiler", plain_us), ("with it" if plain_us else "with the profiler", _recorded_us(args))]
    listed = [f"{tokens / us * 1e6:,.0f} {how} ({us / 1000:.2f} ms per step)" for how, us in rates if us]
    if listed:
        print(f"tokens per second: {', '.join(listed)}")
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * args.head_dim * args.prompt * args.batch
    read_bytes = weight_bytes(decoder.model) + cached * decoder.model.dtype.itemsize
    print(floor_of(read_bytes, decoder.device.name, plain_us, "the step"))


def floor_of(read_bytes: float, device: str, plain_us: float | None, what: str) -> str:
    """Return a line on how long a device's memory takes to read so much once, and how much longer `what` takes."""
    line = f"floor: {read_bytes / 1e6:,.1f} MB of weights and cache, read once"
    gb_per_s = _memory_peak(device)
    if not gb_per_s:
        return f"{line}; how fast this device's memory can be read is not known here"
    if read_bytes < IN_CACHE_BYTES:
        return f"{line}; so little may stay in the device's cache"
    floor_us = read_bytes / gb_per_s / 1e3
    line += f", take {floor_us:,.1f} us at {gb_per_s:,.0f} GB/s"
    return f"{line}; {what} is {plain_us / floor_us:.1f} times as long" if plain_us else line


def _recorded_us(args: argparse.Namespace) -> float | None:
    """Return the time of a recorded step; None where there is one step only, or no reader to ask."""
    try:
        from trace_reader import read
    except ImportError:
        return None
    return read(str(args.run.trace)).step_period_us


def _memory_peak(device: str) -> float | None:
    """Return the published GB/s of a device's memory; None where it is not known, or there is no reader to ask."""
    try:
        from trace_reader import peak
    except ImportError:
        return None
    return peak(device, "memory")
