"""Fully sharded: every GPU keeps a part of each weight, and gathers a block's weights before it uses them.

    uv run torchrun --standalone --nproc_per_node 2 06_b_sharded.py
    uv run torchrun --standalone --nproc_per_node 2 06_b_sharded.py --no-reshard_after_forward

Guess first: how many collectives does a block need, in the forward pass and in the backward pass? How many bytes does a step
send, compared with data parallel? What changes if the weights are kept between the two passes, and what does that cost? Which
of the collectives overlap with computing?

Then look: there is an all-gather before each block's forward pass, another before its backward pass unless the weights were
kept, and a reduce-scatter after that. Together they send 1.5 times as many bytes as data parallel, but each GPU
needs only a part of the memory that data parallel needs. While one block computes, the next block's weights are gathered; only
the first all-gather of a step has nothing to overlap with.

Writes traces/06_b_sharded/<layers>_<dim>_<batch>_<seq>_<dtype>_<cold|warm>_<eager|compile>_w<ranks>_rank<rank>.json and .txt.
"""

import argparse

from common.cli import DTYPES, run
from common.job import job, job_parser
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.blocks import make_blocks, train_step
import torch
from torch.distributed.fsdp import fully_shard


def parse_args(argv=None):
    parser = job_parser(__file__, __doc__)
    parser.add_argument(
        "--reshard_after_forward",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="free a block's gathered weights after its forward pass and gather them again for the backward pass (default: on)",
    )
    return parser.parse_args(argv)


def main(args):
    with job(args) as own:
        device = own.device
        with device.allocating(args):
            model = make_blocks(args, device.type)
        for block in model:
            if args.compile:
                block.compile(mode=args.compile_mode)
            fully_shard(block, reshard_after_forward=args.reshard_after_forward)
        fully_shard(model, reshard_after_forward=args.reshard_after_forward)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        # The batch of all ranks together; each rank takes its part: [batch, seq, dim]
        size = (own.world * args.batch, args.seq, args.dim)
        whole = torch.randn(size, generator=torch.Generator().manual_seed(args.seed))
        x = whole[own.rank * args.batch :][: args.batch].to(device.type, DTYPES[args.dtype])

        def step():
            optimizer.zero_grad()
            train_step(model, optimizer, x)

        warm_up(step, args, device)
        with record(args, device) as profiler:
            for _ in profiler.steps:
                step()
                profiler.step()
        finish(profiler.files, time_plain_steps(step, args, device), args, device)
    return model


if __name__ == "__main__":
    run(main, parse_args)
