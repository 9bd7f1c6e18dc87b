"""A decoder-only language model of transformers, made from sizes: seeded random weights, nothing downloaded."""

import argparse
from collections.abc import Iterator
import contextlib
import sys
import time
from typing import Any

from common.cli import DTYPES, LessonError, LessonParser
from common.device import Device
import torch
from torch import nn

SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
ARCHITECTURES = {"qwen3": "qwen3", "llama": "llama", "gemma3": "gemma3_text", "smollm3": "smollm3"}  # transformers' names
PUBLISHED = {  # the shapes that were published: (architecture, the sizes in the order above)
    "qwen3-0.6b": ("qwen3", 28, 1024, 16, 8, 128, 3072, 151936),
    "llama-3.2-1b": ("llama", 16, 2048, 32, 8, 64, 8192, 128256),
    "gemma-3-270m": ("gemma3", 18, 640, 4, 1, 256, 2048, 262144),
    "smollm3-3b": ("smollm3", 36, 2048, 16, 4, 128, 11008, 128256),
}


def add_model_flags(parser: LessonParser) -> None:
    """The model's flags: its sizes, `--arch`, and `--like`, which sets them to those of a published model."""
    parser.add_size("--layers", 2, "decoder layers")
    parser.add_size("--hidden", 64, "features of a token")
    parser.add_size("--heads", 4, "attention heads")
    parser.add_size("--kv_heads", 2, "heads of keys and values")
    parser.add_size("--head_dim", 16, "features of a token in a head")
    parser.add_size("--intermediate", 128, "features inside the MLP")
    parser.add_size("--vocab", 512, "tokens that there are")
    parser.add_variant("--arch", ARCHITECTURES, "qwen3", "the model's architecture")
    parser.add_argument("--like", choices=PUBLISHED, help="the architecture and sizes of this model, in place of those flags")


def published(argv: list[str] | None) -> list[str]:
    """The arguments (None: the program's) with the flags that `--like NAME` stands for before them: later ones still count."""
    tokens = sys.argv[1:] if argv is None else argv
    for place, token in enumerate(tokens):
        name = token.partition("=")[2] if token.startswith("--like=") else "".join(tokens[place + 1 : place + 2])
        if token.partition("=")[0] == "--like" and name in PUBLISHED:
            arch, *sizes = PUBLISHED[name]
            flags = [f"--{size}={value}" for size, value in zip(SIZES, sizes, strict=True)]
            return [f"--arch={arch}", *flags, *tokens]
    return tokens


def make_model(args: argparse.Namespace, device: Device, attention: str = "sdpa") -> Any:
    """The model (of transformers) on the device, its weights seeded with `args.seed`.

    Raises LessonError where the sizes do not fit together.
    """
    if args.heads % args.kv_heads:
        shared = f"--heads {args.heads} are no multiple of --kv_heads {args.kv_heads}"
        raise LessonError(f"{shared}: as many heads share each pair of keys and values", exit_code=2)
    from transformers import AutoConfig, AutoModelForCausalLM  # here, because it takes seconds

    try:
        config = AutoConfig.for_model(
            ARCHITECTURES[args.arch],
            num_hidden_layers=args.layers,
            hidden_size=args.hidden,
            num_attention_heads=args.heads,
            num_key_value_heads=args.kv_heads,
            head_dim=args.head_dim,
            intermediate_size=args.intermediate,
            vocab_size=args.vocab,
            tie_word_embeddings=True,
            max_position_embeddings=40960,
            pad_token_id=None,
            bos_token_id=0,
            eos_token_id=0,
        )

        def make(on: str) -> nn.Module:
            with torch.device(on):
                return AutoModelForCausalLM.from_config(config, dtype=DTYPES[args.dtype], attn_implementation=attention)

        return device.allocate(make, args)
    except ValueError as error:
        raise LessonError(f"these sizes make no {args.arch}: {error}", exit_code=2) from error


def annotate_layers(model: Any) -> None:
    """Give each decoder layer an annotation, `layer 0` and so on, around its forward pass."""
    for number, layer in enumerate(model.get_decoder().layers):
        open_: list[torch.profiler.record_function] = []

        def begin(module: nn.Module, inputs: tuple, name: str = f"layer {number}", open_: list = open_) -> None:
            open_.append(torch.profiler.record_function(name))
            open_[-1].__enter__()

        def end(module: nn.Module, inputs: tuple, output: object, open_: list = open_) -> None:
            open_.pop().__exit__(None, None, None)

        layer.register_forward_pre_hook(begin)
        layer.register_forward_hook(end, always_call=True)


def weight_bytes(model: nn.Module) -> int:
    """The bytes of all weights, each once: an embedding that is the head's weight, too, counts once."""
    return sum({p.data_ptr(): p.nbytes for p in model.parameters()}.values())


@contextlib.contextmanager
def timed(device: Device, calls: int) -> Iterator[list[float]]:
    """The time of one of `calls` calls in the block, in us: the list's only item once the block has ended."""
    found: list[float] = []
    device.synchronize()
    start = time.perf_counter()
    yield found
    device.synchronize()
    found.append((time.perf_counter() - start) / calls * 1e6)
