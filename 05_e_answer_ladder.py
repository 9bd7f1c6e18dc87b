"""One program, from naive to the limit: a decoder answers, and each rung of a ladder changes one thing. Which one helps most?

    uv run 05_e_answer_ladder.py --rung naive
    uv run 05_e_answer_ladder.py --rung cache
    uv run 05_e_answer_ladder.py --rung graph

The rungs in order, each with the changes of the rungs before it: naive, no_grad, last, cache, room, reads, bits, compiled, graph.
models/answering.py has them side by side. A step reads a prompt and writes an answer, token by token.

Guess first: the naive program computes the whole text again for each token. How many times as fast is a step with a cache? What
limits a step then? Which rung helps most, and which not at all? How far from the floor, the time to read the weights once for
each token, is the last one? Take one rung, guess how many times as fast a step gets, and run it.

Then look: a pass for one token has as many launches as one for the whole text, and hardly any arithmetic. So a cache saves work
of the GPU; where launching takes longer than the work that is left, only fewer launches help. docs/ladder.md shows all rungs, on
an H200 and on a CPU, with what the reader advised before each.

Writes traces/05_e_answer_ladder/<layers>_<dim>_<heads>_<vocab>_<batch>_<prompt>_<new>_<rung>_<dtype>_<cold|warm>_<mode>.json and
.txt; the mode is eager or compile.
"""

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.answering import RUNGS, Answer, Decoder, reached
from models.decoding import floor_of
from models.rungs import parse_rung
import torch

COMPILED = {"compiled": ("--compile",), "graph": ("--compile",)}  # flags of these rungs
WITH_GPU, WITHOUT = (6, 768, 12, 8192, 8, 512, 8), (2, 128, 4, 512, 4, 64, 8)  # layers, dim, heads, vocab, batch, prompt, new


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__, of_dtype="weights, keys and values, from the rung bits on; before it, float32")
    layers, dim, heads, vocab, batch, prompt, new = WITH_GPU if torch.accelerator.is_available() else WITHOUT
    parser.add_size("--layers", layers, "blocks")
    parser.add_size("--dim", dim, "width of the model")
    parser.add_size("--heads", heads, "attention heads; a divisor of --dim")
    parser.add_size("--vocab", vocab, "tokens in the vocabulary")
    parser.add_size("--batch", batch, "sequences")
    parser.add_size("--prompt", prompt, "tokens of the prompt")
    parser.add_size("--new", new, "tokens of the answer")
    parser.add_variant("--rung", RUNGS, "naive", "the rung; it has the changes of those before it")
    return parse_rung(parser, argv, COMPILED)


def main(args):
    device = choose_device(args.device)
    if args.rung == "graph" and device.type != "cuda":
        raise device.lacks_gpu(args, "--rung graph needs a GPU", "Take --rung compiled")
    with device.allocating(args):
        model = Decoder(args, args.rung).to(device.type, DTYPES[args.dtype] if reached(args.rung, "bits") else torch.float32)
    answer = Answer(model, args, device.type)
    written = []

    def step():
        with torch.set_grad_enabled(not reached(args.rung, "no_grad")):
            written.append(answer.write())

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    plain_step = time_plain_steps(step, args, device)
    finish(profiler.files, plain_step, args, device)
    plain_us = plain_step.median_us / args.new if plain_step else None
    print(floor_of(model.least_read_bytes, device.name, plain_us, "a step, for each of its tokens,"))
    return written


if __name__ == "__main__":
    run(main, parse_args)
