"""Attention in one call: which kernels does scaled_dot_product_attention run with each of its backends?

    uv run 04_c_sdpa_attention.py --backend math --batch 8 --heads 16 --seq 1024 --head_dim 64
    uv run 04_c_sdpa_attention.py --backend efficient
    uv run 04_c_sdpa_attention.py --backend flash
    uv run 04_c_sdpa_attention.py --backend cudnn

Guess first: the math backend writes attention out, like 04_b. Will it launch as many kernels, and run as fast? How many
kernels do the other backends launch? Which is the fastest, and which takes the most CPU time? Which one does auto choose?

Then look: math builds the mask again in every call, computes in fp32, and uses a softmax with extra kernels. Each of the
others is one kernel. Read its name (who wrote it, and for which architecture?), its registers and its block, and work out how
many blocks fit on an SM. Which calls launch these kernels? Which of the ops before them launch nothing?

Writes traces/04_c_sdpa_attention/<batch>_<heads>_<seq>_<head_dim>_<backend>_<dtype>_<cold|warm>_<eager|compile>.json, .txt.
"""

import contextlib
import warnings

from common.cli import DTYPES, LessonError, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "auto": None,  # torch chooses, by device, dtype and shape
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [batch, heads, seq, head_dim]


def pinned(backend):
    only = BACKENDS[backend]
    return contextlib.nullcontext() if only is None else sdpa_kernel(only)


def why_not(backend, q, k, v):
    """Return why torch cannot use `backend` for these tensors, or None if it can. Launches nothing."""
    if BACKENDS[backend] is None:
        return None
    with pinned(backend), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            torch._fused_sdp_choice(q, k, v, is_causal=True)  # the op itself makes this choice first
            return None
        except RuntimeError:
            pass
    reasons = [str(warning.message).partition(" (Triggered internally")[0].rstrip(".") for warning in said]
    about_it = [r for r in reasons if not r.endswith((" not used because:", " has been runtime disabled"))]
    return "; ".join(about_it) or f"torch has no such kernel for {q.device.type}"


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 8, "sequences")
    parser.add_size("--heads", 16, "attention heads")
    parser.add_size("--seq", 1024, "tokens per sequence")
    parser.add_size("--head_dim", 64, "features per head")
    parser.add_variant("--backend", BACKENDS, "auto", "the only backend that torch may use; with auto, torch chooses one")
    return parser.parse_args(argv)


def main(args):
    device = choose_device(args.device)
    shape = (args.batch, args.heads, args.seq, args.head_dim)
    with device.allocating(args):
        q, k, v = (torch.randn(shape, device=device.type, dtype=DTYPES[args.dtype]) for _ in range(3))
    if reason := why_not(args.backend, q, k, v):
        usable = [name for name in BACKENDS if why_not(name, q, k, v) is None]
        raise LessonError(
            f"--backend {args.backend} cannot be used on {device.name} with {args.dtype} and these sizes: {reason}. "
            f"Here these can: {', '.join(usable)}",
            exit_code=2,
        )
    # torch.compile's cache on disk ignores the pinned backend: without a tag, a run would get another backend's kernels.
    torch.compiler.config.cache_key_tag = args.backend
    fn = torch.compile(attention, mode=args.compile_mode) if args.compile else attention

    @torch.no_grad()
    def step():
        with torch.profiler.record_function("sdpa_fwd"):
            return fn(q, k, v)

    with pinned(args.backend):
        warm_up(step, args, device)
        with record(args, device) as profiler:
            for _ in profiler.steps:
                step()
                profiler.step()
        finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
