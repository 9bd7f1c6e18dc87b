"""FlashAttention-2 as its authors publish it: the kernel of the package flash-attn2, from the Hugging Face Hub.

    uv run 04_d_kernels_attention.py --batch 8 --heads 16 --seq 1024 --head_dim 64

Guess first: torch's flash backend (04_c_sdpa_attention.py --backend flash) was made from the same source. Will the kernel
be the same? Which ops come between the annotation and the launch here, and which came there in 04_c?

Then look: there is one kernel. The package takes tensors of [batch, seq, heads, head_dim], the layout in which a projection
leaves them, so nothing has to be transposed before or after the call.

The kernel needs a GPU, and bf16 or fp16. Without a network, point LOCAL_KERNELS to a local copy:
LOCAL_KERNELS="kernels-community/flash-attn2=<folder>" uv run 04_d_kernels_attention.py (docs/without_gpu.md lists what it holds).

Writes traces/04_d_kernels_attention/<batch>_<heads>_<seq>_<head_dim>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.hub import load_kernel, version_or_commit
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch

REPO = "kernels-community/flash-attn2"


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 8, "sequences")
    parser.add_size("--heads", 16, "attention heads")
    parser.add_size("--seq", 1024, "tokens per sequence")
    parser.add_size("--head_dim", 64, "features per head")
    parser.add_argument(
        "--kernel_version", type=version_or_commit, default=3, help=f"version of {REPO}, or a commit (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    if args.dtype == "fp32":
        parser.error("--dtype fp32: FlashAttention-2 has kernels for bf16 and fp16 only")
    if args.head_dim > 256:
        parser.error(f"--head_dim {args.head_dim}: FlashAttention-2 has kernels for up to 256")
    return args


def main(args):
    device = choose_device(args.device)
    if device.type not in ("cuda", "xpu"):
        otherwise = "torch's own flash attention runs here: uv run 04_c_sdpa_attention.py --backend flash"
        raise device.lacks_gpu(args, "the package's kernel needs a GPU", otherwise)
    flash_attn_func = load_kernel(REPO, args.kernel_version).flash_attn_func

    def attention(q, k, v):
        return flash_attn_func(q, k, v, causal=True)  # [batch, seq, heads, head_dim]

    shape = (args.batch, args.seq, args.heads, args.head_dim)
    with device.allocating(args):
        q, k, v = (torch.randn(shape, device=device.type, dtype=DTYPES[args.dtype]) for _ in range(3))
    fn = torch.compile(attention, mode=args.compile_mode) if args.compile else attention

    @torch.no_grad()
    def step():
        with torch.profiler.record_function("flash_kernel_fwd"):
            return fn(q, k, v)

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
