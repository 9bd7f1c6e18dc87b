"""A linear layer: where did the addition of the bias go?

    uv run 02_linear.py --batch 1024 --in_dim 32 --out_dim 64
    uv run 02_linear.py --batch 1024 --in_dim 32 --out_dim 64 --compile
    uv run 02_linear.py --compile --vary_batch --no-warmup --wait 0 --schedule_warmup 0

Guess first: x @ w.T + b is a transpose, a matrix multiplication and an addition. How many kernels is that? What does the
transpose cost on the GPU? What is left for torch.compile to fuse?

Then look: aten::linear calls aten::t, which launches nothing (it swaps two strides and copies no data), and then aten::addmm,
which launches one kernel per step. There is no aten::add, because the GEMM adds the bias in its epilogue, the last thing that
it does before it writes the result. Compiled, only aten::addmm is left. Is its kernel's name the same as in eager? With a
different number of rows in every step, which steps compile again, and when does that stop?

Writes traces/02_linear/<batch>_<in_dim>_<out_dim>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

import itertools

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch
from torch import nn


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 1024, "rows of the input")
    parser.add_size("--in_dim", 32, "features of the input")
    parser.add_size("--out_dim", 64, "features of the output")
    parser.add_argument("--vary_batch", action="store_true", help="give each step one row fewer than the step before")
    return parser.parse_args(argv)


def main(args):
    device = choose_device(args.device)
    on, dtype = device.type, DTYPES[args.dtype]
    with device.allocating(args):
        linear = nn.Linear(args.in_dim, args.out_dim, device=on, dtype=dtype)  # weight: [out_dim, in_dim]
        x = torch.randn(args.batch, args.in_dim, device=on, dtype=dtype)  # [batch, in_dim]
    rows = itertools.count(args.batch, -1)
    fn = torch.compile(linear, mode=args.compile_mode) if args.compile else linear

    # Without no_grad, autograd would record every op for a backward pass that never comes.
    @torch.no_grad()
    def step():
        with torch.profiler.record_function("linear_fwd"):
            return fn(x[: max(1, next(rows))] if args.vary_batch else x)  # [batch, out_dim]

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
