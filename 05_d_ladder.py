"""One program, from naive to the limit: a decoder learns, and each rung of a ladder changes one thing. Which one helps most?

    uv run 05_d_ladder.py --rung naive
    uv run 05_d_ladder.py --rung heads
    uv run 05_d_ladder.py --rung reads

The rungs in order, each with the changes of the rungs before it: naive, heads, mask, attention, fused_ops, reads, optimizer,
bits, compiled, graph. models/ladder.py has them side by side.

Guess first: what limits the naive step, the CPU or the GPU? Which rung helps most, and which not at all? Where does the
bottleneck change sides, and what is left at the top? Take one rung, guess how many times as fast a step gets, and run it.

Then look: where the GPU is busy for most of a step, it helps to give it less work. It also helps to remove what makes it wait: a
number that the CPU reads, or launches that come too late. Each rung changes how much the next one saves. docs/ladder.md shows
all rungs, on an H200 and on a CPU, with what the reader advised before each.

Writes traces/05_d_ladder/<layers>_<dim>_<heads>_<vocab>_<batch>_<seq>_<rung>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.ladder import RUNGS, Decoder, reached
from models.rungs import parse_rung
import torch
from torch.profiler import record_function

COMPILED = {"compiled": ("--compile",), "graph": ("--compile", "--compile_mode", "reduce-overhead")}  # flags of these rungs
WITH_GPU, WITHOUT = (6, 768, 12, 8192, 8, 512), (2, 128, 4, 512, 4, 64)  # layers, dim, heads, vocab, batch, seq


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__, of_dtype="matrix multiplications, from the rung bits on; before it, float32")
    layers, dim, heads, vocab, batch, seq = WITH_GPU if torch.accelerator.is_available() else WITHOUT
    parser.add_size("--layers", layers, "blocks")
    parser.add_size("--dim", dim, "width of the model")
    parser.add_size("--heads", heads, "attention heads; a divisor of --dim")
    parser.add_size("--vocab", vocab, "tokens in the vocabulary")
    parser.add_size("--batch", batch, "sequences")
    parser.add_size("--seq", seq, "tokens per sequence")
    parser.add_variant("--rung", RUNGS, "naive", "the rung; it has the changes of those before it")
    return parse_rung(parser, argv, COMPILED)


def main(args):
    device = choose_device(args.device)
    if args.rung == "graph" and device.type != "cuda":
        raise device.lacks_gpu(args, "--rung graph needs a GPU", "Take --rung compiled")
    with device.allocating(args):
        model = Decoder(args, args.rung).to(device.type)
        tokens = torch.randint(args.vocab, (args.batch, args.seq + 1), device=device.type)
    is_fused, reads = reached(args.rung, "optimizer"), not reached(args.rung, "reads")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False, fused=is_fused)
    forward = torch.compile(model, mode=args.compile_mode) if args.compile else model
    is_half = reached(args.rung, "bits") and args.dtype != "fp32"
    watched = []

    def step():
        optimizer.zero_grad()
        with record_function("forward"), torch.autocast(device.type, DTYPES[args.dtype], enabled=is_half):
            loss = forward(tokens)
        with record_function("backward"):
            loss.backward()
        with record_function("watch"):
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            if reads:
                watched.append((loss.item(), sum(one.norm().item() ** 2 for one in gradients) ** 0.5))
            else:
                watched.append((loss.detach().clone(), torch.nn.utils.get_total_norm(gradients)))
        with record_function("optimizer"):
            optimizer.step()

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)
    return [(float(loss), float(norm)) for loss, norm in watched]


if __name__ == "__main__":
    run(main, parse_args)
