"""A decoder-only language model of transformers, made from sizes: seeded random weights, nothing downloaded."""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
import logging
from pathlib import Path
import sys
from typing import Any

from common.cli import DTYPES, LessonError, LessonParser
from common.device import Device
import torch

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
    parser.add_size("--vocab", 512, "tokens in the vocabulary")
    parser.add_variant("--arch", ARCHITECTURES, "qwen3", "the model's architecture")
    parser.add_argument("--like", choices=PUBLISHED, help="the architecture and sizes of this model, in place of those flags")
    parser.add_argument("--model", metavar="FOLDER_OR_NAME", help="this checkpoint, with its weights, architecture and sizes")


def published(argv: list[str] | None) -> list[str]:
    """Return the arguments (None: the program's) with the flags that `--like NAME` and `--model CHECKPOINT` stand for: those of a
    published model before them, where later ones still count, those of a checkpoint after them.

    Raises LessonError where the checkpoint cannot be read or is of another architecture.
    """
    tokens = sys.argv[1:] if argv is None else argv
    given = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    given.add_argument("--like")
    given.add_argument("--model")
    try:
        known, _ = given.parse_known_args(tokens)
    except argparse.ArgumentError:  # a flag without its value: the lesson's own parser says so
        return tokens
    if known.model:
        one = {"--like", "--arch", *(f"--{size}" for size in SIZES)}
        if clash := next((token for token in tokens if token.partition("=")[0] in one), None):
            raise LessonError(f"--model brings its own architecture and sizes: leave {clash} out", exit_code=2)
        return [*tokens, *_flags(*_sizes_of(known.model))]
    if known.like in PUBLISHED:
        arch, *sizes = PUBLISHED[known.like]
        return [*_flags(arch, sizes), *tokens]
    return tokens


def _flags(arch: str, sizes: Sequence[int]) -> list[str]:
    return [f"--arch={arch}", *(f"--{size}={value}" for size, value in zip(SIZES, sizes, strict=True))]


def _sizes_of(checkpoint: str) -> tuple[str, list[int]]:
    """Return the architecture and sizes of a folder's or the Hub's checkpoint."""
    AutoConfig = _transformers().AutoConfig
    with _loading(checkpoint):
        config = AutoConfig.from_pretrained(checkpoint)
    arch = next((ours for ours, theirs in ARCHITECTURES.items() if theirs == config.model_type), None)
    if arch is None:
        raise LessonError(f"--model {checkpoint}: of type {config.model_type}; known are {', '.join(ARCHITECTURES)}", exit_code=2)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return arch, [
        config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.num_key_value_heads, head_dim,
        config.intermediate_size, config.vocab_size,
    ]  # fmt: skip


def _transformers() -> Any:
    """Return the library, which is imported here, because it takes seconds. Raises LessonError where it is not installed."""
    try:
        import transformers
    except ImportError:
        command = f"uv run --group llm {Path(sys.argv[0]).name}"
        raise LessonError(f"this needs transformers: {command}, or pip install transformers", exit_code=2) from None
    return transformers


@contextlib.contextmanager
def _loading(checkpoint: str) -> Iterator[None]:
    """What transformers says of a checkpoint that is not there, is broken, or cannot be fetched, in one line."""
    from safetensors import SafetensorError

    for library in ("transformers", "huggingface_hub"):  # what they say of each try
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        said = str(error).strip().split("\n")[0]
        raise LessonError(f"--model {checkpoint}: cannot be loaded: {said}", exit_code=1) from error


def make_model(args: argparse.Namespace, device: Device, attention: str = "sdpa") -> Any:
    """Return the model (of transformers) on the device, its weights seeded with `args.seed`.

    Raises LessonError where the sizes do not fit together.
    """
    if args.heads % args.kv_heads:
        shared = f"--heads {args.heads} are no multiple of --kv_heads {args.kv_heads}"
        raise LessonError(f"{shared}: as many heads share each pair of keys and values", exit_code=2)
    AutoConfig, AutoModelForCausalLM = (getattr(_transformers(), name) for name in ("AutoConfig", "AutoModelForCausalLM"))
    settings: dict[str, Any] = {"dtype": DTYPES[args.dtype], "attn_implementation": attention}
    if args.model:
        with _loading(args.model), device.allocating(args):
            loaded: Any = AutoModelForCausalLM.from_pretrained(args.model, **settings)
            return loaded.to(device.type)
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
        with device.allocating(args), torch.device(device.type):
            return AutoModelForCausalLM.from_config(config, **settings)
    except ValueError as error:
        raise LessonError(f"these sizes make no {args.arch}: {error}", exit_code=2) from error


def annotate_layers(model: Any) -> None:
    """Give each decoder layer an annotation, `layer 0` and so on, around its forward pass."""
    for number, layer in enumerate(model.get_decoder().layers):
        layer.forward = torch.profiler.record_function(f"layer {number}")(layer.forward)


def weight_bytes(model: Any) -> int:
    """Return the bytes of the weights that a step reads: each once, and the embedding's only where it is the head's weight, too.
    Of an embedding alone, a step reads a row for each token.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    weights = {weight.data_ptr(): weight.nbytes for weight in (*model.parameters(), *model.buffers())}
    if head is not None and head.weight.data_ptr() != embedding.weight.data_ptr():
        del weights[embedding.weight.data_ptr()]
    return sum(weights.values())
