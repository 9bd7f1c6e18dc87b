"""The MLP of 03_simple_mlp.py with gelu and mul fused by hand: Liger's Triton kernel, from the Hugging Face Hub.

    uv run 03_kernels_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072

Guess first: how many kernels per step? Will a step's CPU time be closer to eager's or to torch.compile's? Which fused kernel is
faster, Liger's or the one that torch.compile writes (03_simple_mlp.py --compile)?

Then look: there are four kernels, and _geglu_tanh_forward_kernel has replaced gelu and mul. There is no Dynamo lookup, no guard
and no runtime wrapper before it, because the layer calls its kernel directly.

The kernel needs a GPU that Triton supports. Without a network, point LOCAL_KERNELS to a local copy:
LOCAL_KERNELS="kernels-community/liger-kernels=<folder>" uv run 03_kernels_mlp.py (docs/without_gpu.md lists what it holds).

Writes traces/03_kernels_mlp/<batch>_<seq>_<dim>_<hidden>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from types import SimpleNamespace

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.hub import load_kernel, version_or_commit
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch
from torch import nn

REPO = "kernels-community/liger-kernels"


def build_mlp(layer_class, dim, hidden, *, device, dtype):
    """Return an MLP of Liger's class with its three projections, for both versions of that class."""
    with torch.device(device):
        if "__init__" in vars(layer_class):  # version 1: the class makes its own layers
            mlp = layer_class(SimpleNamespace(hidden_size=dim, intermediate_size=hidden))
        else:  # from version 2 on, the class is only a forward for layers that a model has
            mlp = layer_class()
            mlp.gate_proj = nn.Linear(dim, hidden, bias=False)
            mlp.up_proj = nn.Linear(dim, hidden, bias=False)
            mlp.down_proj = nn.Linear(hidden, dim, bias=False)
    return mlp.to(dtype)


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 64, "sequences")
    parser.add_size("--seq", 128, "tokens per sequence")
    parser.add_size("--dim", 768, "features per token")
    parser.add_size("--hidden", 3072, "features between the projections")
    parser.add_argument(
        "--kernel_version", type=version_or_commit, default=1, help=f"version of {REPO}, or a commit (default: %(default)s)"
    )
    return parser.parse_args(argv)


def main(args):
    device = choose_device(args.device)
    if device.type not in ("cuda", "xpu"):
        otherwise = "The same fusion, written by torch.compile, runs anywhere: uv run 03_simple_mlp.py --compile"
        raise device.lacks_gpu(args, "Liger's kernel needs a GPU that Triton supports", otherwise)
    layer_class = load_kernel(REPO, args.kernel_version).layers.LigerGEGLUMLP

    on, dtype = device.type, DTYPES[args.dtype]
    with device.allocating(args):
        mlp = build_mlp(layer_class, args.dim, args.hidden, device=on, dtype=dtype)
        x = torch.randn(args.batch, args.seq, args.dim, device=on, dtype=dtype)  # [batch, seq, dim]
    fn = torch.compile(mlp, mode=args.compile_mode) if args.compile else mlp

    @torch.no_grad()
    def step():
        with torch.profiler.record_function("kernels_mlp_fwd"):
            return fn(x)

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
