"""A language model, one forward pass per step: it reads a prompt (prefill), or writes the next token (decode).

    uv run 05_a_llm_decode.py --phase prefill
    uv run 05_a_llm_decode.py --phase decode --cache dynamic
    uv run 05_a_llm_decode.py --phase decode --attention flash
    uv run 05_a_llm_decode.py --phase decode --again
    uv run 05_a_llm_decode.py --phase decode --cache static --compile
    uv run 05_a_llm_decode.py --like qwen3-0.6b --prompt 512 --cache static --compile --compile_mode reduce-overhead

Guess first: a decode step multiplies every weight with a single token. What limits it: the GPU's arithmetic, its memory, or
the CPU? How many kernels does it launch, and how many does a prefill of 512 tokens launch? What is the cost of a cache that
grows by one token per step? How close does the best variant come to the floor, the time that it takes to read the weights and the
cache once?

Then look: eager and with a static cache, one token takes about as long as 512 do: the CPU launches each kernel and is the
bottleneck. A dynamic cache is copied by aten::cat in every layer and gives attention a new length in every step. Does one
op take far longer than similar ops? Does it still do so with --attention flash, or with --again, which first runs through
the same lengths once? A static cache has all of its memory from the start, so the step can be compiled and replayed as a CUDA
graph. The last lines report what the profiler itself costs, and the distance to the floor.

Writes traces/05_a_llm_decode/<sizes>_<arch>_<phase>_<cache>_<attention>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

import contextlib

from common.cli import LessonError, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.decoding import PLAIN_STEPS, Decoder, print_rates
from models.llm import add_model_flags, annotate_layers, make_model, published
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
ATTENTION = ("sdpa", "eager", *BACKENDS)


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    add_model_flags(parser)
    parser.add_size("--prompt", 64, "tokens of the prompt, before the first step")
    parser.add_size("--batch", 1, "sequences")
    parser.add_variant("--phase", ("decode", "prefill"), "decode", "what a step does: write one token, or read the whole prompt")
    parser.add_variant("--cache", ("dynamic", "static"), "dynamic", "cache of keys and values: growing, or allocated whole")
    parser.add_variant("--attention", ATTENTION, "sdpa", "one fused call, whose backend torch or you choose; or written out")
    parser.add_argument(
        "--again", action="store_true", help="first write all tokens once, so that no length of the cache is new later"
    )
    return parser.parse_args(published(argv))


def main(args):
    device = choose_device(args.device)
    model = make_model(args, device, "eager" if args.attention == "eager" else "sdpa").eval()
    if not args.compile:
        annotate_layers(model)
    chosen = sdpa_kernel(BACKENDS[args.attention]) if args.attention in BACKENDS else contextlib.nullcontext()
    with torch.no_grad(), chosen:
        try:
            decoder = Decoder(args, model, device)
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
            raise LessonError(f"--attention {args.attention}: torch has no such kernel for {device.name}") from None
        step = decoder.prefill_step if args.phase == "prefill" else decoder.decode_step
        if args.again:
            decoder.write_once()
        warm_up(step, args, device)
        with record(args, device) as profiler:
            for _ in profiler.steps:
                step()
                profiler.step()
        plain_step = time_plain_steps(step, args, device, most=PLAIN_STEPS)
        finish(profiler.files, plain_step, args, device)
    print_rates(decoder, plain_step)
    return decoder


if __name__ == "__main__":
    run(main, parse_args)
