"""A GeGLU MLP, the feed-forward block of many language models: which ops are worth fusing?

    uv run 03_simple_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072
    uv run 03_simple_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072 --compile
    uv run 03_simple_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072 --record_shapes

Guess first: there are three linear layers, a gelu and an elementwise mul. How many kernels is that per step? Which of them spend
their time on arithmetic, and which on moving data? Which will torch.compile replace?

Then look: eager launches five kernels, three GEMMs, gelu and mul. gelu writes a [batch * seq, hidden] tensor, and mul reads it
back at once: memory traffic that a fused kernel avoids. Compiled, the GEMMs keep their names, and one Triton kernel does the
work of gelu and mul; its name lists the ops that it merged. With --record_shapes, the reader lists each GEMM with its
dimensions.

Writes traces/03_simple_mlp/<batch>_<seq>_<dim>_<hidden>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch
from torch import nn
from torch.nn import functional as F


class GeGLUMLP(nn.Module):
    """down(gelu(gate(x)) * up(x)), with gelu's tanh approximation and no biases (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, dim, hidden, **factory):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False, **factory)
        self.up_proj = nn.Linear(dim, hidden, bias=False, **factory)
        self.down_proj = nn.Linear(hidden, dim, bias=False, **factory)

    def forward(self, x):
        gate = F.gelu(self.gate_proj(x), approximate="tanh")  # [batch, seq, hidden]
        return self.down_proj(gate * self.up_proj(x))  # [batch, seq, dim]


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 64, "sequences")
    parser.add_size("--seq", 128, "tokens per sequence")
    parser.add_size("--dim", 768, "features per token")
    parser.add_size("--hidden", 3072, "features between the projections")
    return parser.parse_args(argv)


def main(args):
    device = choose_device(args.device)
    on, dtype = device.type, DTYPES[args.dtype]
    with device.allocating(args):
        mlp = GeGLUMLP(args.dim, args.hidden, device=on, dtype=dtype)
        x = torch.randn(args.batch, args.seq, args.dim, device=on, dtype=dtype)  # [batch, seq, dim]
    fn = torch.compile(mlp, mode=args.compile_mode) if args.compile else mlp

    @torch.no_grad()
    def step():
        with torch.profiler.record_function("mlp_fwd"):
            return fn(x)

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
