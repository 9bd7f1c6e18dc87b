"""The MLP of 03_simple_mlp.py with gelu and mul in one Triton kernel, written here: how fast can this kernel be?

    uv run 03_triton_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072
    uv run benchmarks/geglu_kernel.py

Guess first: the kernel reads two tensors of [8192, 3072] and writes a third, in bf16. How many bytes is that, and how long
does moving them take at your GPU's memory bandwidth? Will twenty lines of Triton come close to that? Closer than
torch.compile's kernel (03_simple_mlp.py --compile) and Liger's (03_kernels_mlp.py)?

Then look: there are four kernels, with geglu_kernel before the last GEMM. Divide the number of elements by its grid times its
block: each thread computes 8 elements, which are 16 bytes of each tensor. That is the most that one instruction loads on a
Hopper GPU. How many elements per thread do the other two fused kernels compute?

The kernel needs a GPU that Triton supports.

Writes traces/03_triton_mlp/<batch>_<seq>_<dim>_<hidden>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from types import SimpleNamespace

from common.cli import DTYPES, LessonError, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch
from torch import nn

try:
    import triton
    import triton.language as tl
except ImportError:  # torch installs Triton on Linux only: main reports it
    triton = tl = SimpleNamespace(jit=lambda kernel: kernel, constexpr=int)

OTHERWISE = "The same fusion, written by torch.compile, runs anywhere: uv run 03_simple_mlp.py --compile"
BLOCK = 1024  # elements per program; with Triton's default of 4 warps, which are 128 threads, 8 elements per thread


@triton.jit
def geglu_of(gate, up):
    """gelu(gate) * up, computed in fp32; gelu's tanh form is 0.5 * gate * (1 + tanh t), and 1 + tanh t = 2 * sigmoid(2 t)."""
    gate = gate.to(tl.float32)
    t = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)  # sqrt(2 / pi)
    return gate * tl.sigmoid(2 * t) * up.to(tl.float32)


@triton.jit
def geglu_kernel(gate, up, out, size, BLOCK: tl.constexpr):
    """Program n of many: computes elements n * BLOCK to (n + 1) * BLOCK. gate, up and out are addresses."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    index = start + tl.arange(0, BLOCK)
    if start + BLOCK <= size:
        tl.store(out + index, geglu_of(tl.load(gate + index), tl.load(up + index)))
    else:  # the last program reaches beyond the end; a mask in every program would make the loads narrow for odd sizes
        inside = index < size
        result = geglu_of(tl.load(gate + index, mask=inside), tl.load(up + index, mask=inside))
        tl.store(out + index, result, mask=inside)


def geglu(gate, up):
    """gelu(gate) * up, for two contiguous tensors of the same shape and dtype."""
    out = torch.empty_like(gate)
    programs = triton.cdiv(out.numel(), BLOCK)
    geglu_kernel[(programs,)](gate, up, out, out.numel(), BLOCK=BLOCK)
    return out


class TritonMLP(nn.Module):
    """The GeGLUMLP of 03_simple_mlp.py, with our kernel."""

    def __init__(self, dim, hidden, **factory):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False, **factory)
        self.up_proj = nn.Linear(dim, hidden, bias=False, **factory)
        self.down_proj = nn.Linear(hidden, dim, bias=False, **factory)

    def forward(self, x):
        hidden = geglu(self.gate_proj(x), self.up_proj(x))  # [batch, seq, hidden]
        return self.down_proj(hidden)  # [batch, seq, dim]


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 64, "sequences")
    parser.add_size("--seq", 128, "tokens per sequence")
    parser.add_size("--dim", 768, "features per token")
    parser.add_size("--hidden", 3072, "features between the projections")
    return parser.parse_args(argv)


def main(args):
    if not hasattr(triton, "cdiv"):
        raise LessonError(f"this lesson needs Triton, which torch brings along on Linux only. {OTHERWISE}", exit_code=2)
    device = choose_device(args.device)
    if device.type not in ("cuda", "xpu"):
        raise device.lacks_gpu(args, "the kernel needs a GPU that Triton supports", OTHERWISE)

    on, dtype = device.type, DTYPES[args.dtype]
    with device.allocating(args):
        mlp = TritonMLP(args.dim, args.hidden, device=on, dtype=dtype)
        x = torch.randn(args.batch, args.seq, args.dim, device=on, dtype=dtype)  # [batch, seq, dim]
    fn = torch.compile(mlp, mode=args.compile_mode) if args.compile else mlp

    @torch.no_grad()
    def step():
        with torch.profiler.record_function("triton_mlp_fwd"):
            return fn(x)

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
