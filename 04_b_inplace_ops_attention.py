"""The attention of 04_a plus one character: masked_fill_ masks the scores in place.

    uv run 04_b_inplace_ops_attention.py --batch 8 --heads 16 --seq 1024 --head_dim 64
    uv run 04_b_inplace_ops_attention.py --seq 4096

Guess first: how many activities are left on the GPU? How much of 04_a's GPU time was the copy? Does the peak memory fall, too?

Then look: the copy is gone, and the kernels are the same (read_trace.py with both traces shows it). The peak memory stays the
same, because it is reached at the last matmul, where scores, weights and output are alive together. Masking in place is safe
here, because nothing reads the unmasked scores again, and no gradient needs them.

Writes traces/04_b_inplace_ops_attention/<batch>_<heads>_<seq>_<head_dim>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from common.cli import DTYPES, LessonParser, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
import torch


def attention(q, k, v, causal_mask):
    """softmax(q k^T / sqrt(head_dim)) v, where `causal_mask` [seq, seq] is True for the tokens that come later."""
    scores = torch.matmul(q, k.transpose(-2, -1))  # [batch, heads, seq, seq]
    scores = torch.mul(scores, q.shape[-1] ** -0.5)
    scores = scores.masked_fill_(causal_mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights, v)  # [batch, heads, seq, head_dim]


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    parser.add_size("--batch", 8, "sequences")
    parser.add_size("--heads", 16, "attention heads")
    parser.add_size("--seq", 1024, "tokens per sequence")
    parser.add_size("--head_dim", 64, "features per head")
    return parser.parse_args(argv)


def main(args):
    device = choose_device(args.device)
    shape = (args.batch, args.heads, args.seq, args.head_dim)
    with device.allocating(args):
        q, k, v = (torch.randn(shape, device=device.type, dtype=DTYPES[args.dtype]) for _ in range(3))
        # Once, here: made in the step, the mask would be made anew in every call, as 04_c's math backend does.
        causal_mask = torch.ones(args.seq, args.seq, device=device.type, dtype=torch.bool).triu(diagonal=1)
    fn = torch.compile(attention, mode=args.compile_mode) if args.compile else attention

    @torch.no_grad()
    def step():
        with torch.profiler.record_function("attn_fwd"):
            return fn(q, k, v, causal_mask)

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
