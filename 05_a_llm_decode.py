"""A language model, one forward pass per step: it reads a prompt (prefill), or writes the next token (decode).

    uv run 05_a_llm_decode.py --phase prefill
    uv run 05_a_llm_decode.py --phase decode --cache dynamic
    uv run 05_a_llm_decode.py --phase decode --cache static --compile
    uv run 05_a_llm_decode.py --like qwen3-0.6b --prompt 512 --cache static --compile --compile_mode reduce-overhead

Guess first: a decode step multiplies every weight with a single token. What limits it: the GPU's arithmetic, its memory, or
the CPU? How many kernels does it launch, and how many does a prefill of 512 tokens launch? What does a cache cost that grows
by one token per step? How close does the best variant come to the floor, the time that it takes to read the weights and the
cache once?

Then look: eager, one token takes as long as 512 do, because the CPU launches each kernel and is the bottleneck. A dynamic
cache is copied by aten::cat in every layer and gives attention a new length in every step. Is there one op that takes far
longer than its like? A static cache has all of its memory from the start, so the step can be compiled and replayed as a CUDA
graph. The last lines report what the profiler itself costs, and the distance to the floor.

Writes traces/05_a_llm_decode/<sizes>_<arch>_<phase>_<cache>_<attention>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from common.cli import LessonParser, run
from common.decoding import PLAIN_STEPS, Decoder, print_rates
from common.device import choose_device
from common.llm import add_model_flags, annotate_layers, make_model, published
from common.record import record, warm_up
import torch


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    add_model_flags(parser)
    parser.add_size("--prompt", 64, "tokens of the prompt, before the first step")
    parser.add_size("--batch", 1, "sequences")
    parser.add_variant("--phase", ("decode", "prefill"), "decode", "what a step does: write one token, or read the whole prompt")
    parser.add_variant("--cache", ("dynamic", "static"), "dynamic", "of keys and values: growing, or allocated whole")
    parser.add_variant("--attention", ("sdpa", "eager"), "sdpa", "one fused call, or attention written out")
    return parser.parse_args(published(argv))


def main(args):
    device = choose_device(args.device)
    model = make_model(args, device, args.attention).eval()
    if not args.compile:
        annotate_layers(model)
    with torch.no_grad():
        decoder = Decoder(args, model, device)
        step = decoder.prefill_step if args.phase == "prefill" else decoder.decode_step
        warm_up(step, args, device)
        with record(args, device, PLAIN_STEPS) as profiler:
            for _ in profiler.steps:
                step()
                profiler.step()
    print_rates(decoder, profiler.plain_step)
    return decoder


if __name__ == "__main__":
    run(main, parse_args)
