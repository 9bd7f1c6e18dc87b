"""How close can a token come to the floor, the time to read the weights and the cache once? Each rung includes those before it.

    uv run 05_b_decode_floor.py --like qwen3-0.6b --prompt 512 --rung graph
    uv run 05_b_decode_floor.py --like qwen3-0.6b --prompt 512 --rung tuned
    uv run 05_b_decode_floor.py --like qwen3-0.6b --prompt 512 --rung attention
    uv run 05_b_decode_floor.py --like qwen3-0.6b --prompt 512 --rung int8

    graph      the best step of 05_a: static cache, torch.compile, replayed as a CUDA graph
    tuned      torch.compile writes the kernels that multiply a matrix by one token, and picks the fastest of several
    attention  attention is written out for torch.compile to fuse; the libraries' attention kernels are made for many queries
    int8       the weights of these multiplications have 8 bits, and a scale per row: half the bytes to read

Guess first: in the graph, no kernel waits for its launch any more. What limits the step now: the arithmetic, the memory, or the
time in which each kernel starts and ends? Which rung gains most? Do half the bytes take half the time? And with --batch 16, is
int8 still the fastest?

Then look: read_trace.py A B compares two rungs. How long does each kernel take, and how long would reading its weights take at
the memory's peak bandwidth? The last line reports the same for the whole step.

Writes traces/05_b_decode_floor/<sizes>_<arch>_<rung>_<dtype>_<cold|warm>_compile.json and .txt.
"""

from common.cli import LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.decoding import PLAIN_STEPS, Decoder, print_rates
from models.llm import add_model_flags, make_model, published
import torch
from torch import nn
from torch.nn import functional as F

RUNGS = ("graph", "tuned", "attention", "int8")


class Int8Linear(nn.Module):
    """Weights [out, in] in 8 bits, with a scale for each row."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.abs().amax(1, keepdim=True).float() / 127
        self.register_buffer("weight", (linear.weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.squeeze(1).to(linear.weight.dtype))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


def quantize(model):
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and child.bias is None:
                setattr(module, name, Int8Linear(child))


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    add_model_flags(parser)
    parser.add_size("--prompt", 64, "tokens of the prompt, before the first step")
    parser.add_size("--batch", 1, "sequences")
    parser.add_variant("--rung", RUNGS, "graph", "how far to go; each rung keeps all those before it")
    parser.set_defaults(compile=True, compile_mode="reduce-overhead", cache="static")
    return parser.parse_args(published(argv))


def main(args):
    device = choose_device(args.device)
    rungs = RUNGS[: RUNGS.index(args.rung) + 1]
    model = make_model(args, device, "eager" if "attention" in rungs else "sdpa").eval()
    torch._inductor.config.coordinate_descent_tuning = "tuned" in rungs
    if "int8" in rungs:
        quantize(model)
    with torch.no_grad():
        decoder = Decoder(args, model, device)
        step = decoder.decode_step
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
