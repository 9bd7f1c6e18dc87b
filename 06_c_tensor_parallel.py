"""Tensor parallel: every GPU computes a part of each matrix multiplication, on the same batch.

    uv run torchrun --standalone --nproc_per_node 2 06_c_tensor_parallel.py
    uv run torchrun --standalone --nproc_per_node 2 06_c_tensor_parallel.py --sequence_parallel

Guess first: the first Linear of a block is split by columns, the second by rows. How many collectives does a block need,
forward and backward, and which of them overlap with computing? Are they larger or smaller than those of data parallel, and
what does their size depend on? What does --sequence_parallel change: their number, their bytes, what the LayerNorm computes?

Then look: there is one all-reduce of the activations per block and pass. The next kernel needs its result, so all of it is
exposed. With --sequence_parallel, each all-reduce becomes a reduce-scatter and an all-gather, which together send the same
number of bytes. What comes between two blocks is then computed and kept once in total, not once per rank.

Writes traces/06_c_tensor_parallel/<layers>_<dim>_<batch>_<seq>_<dtype>_<cold|warm>_<eager|compile>_w<ranks>_rank<rank>.json .txt.
"""

from common.cli import DTYPES, LessonError, run
from common.job import job, job_parser
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.blocks import make_blocks, train_step
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


def parse_args(argv=None):
    parser = job_parser(__file__, __doc__, batch_of="all ranks together")
    parser.add_argument(
        "--sequence_parallel", action="store_true", help="give each rank a part of the sequence between the matmuls"
    )
    return parser.parse_args(argv)


def main(args):
    with job(args) as own:
        device = own.device
        if args.dim * 4 % own.world:
            raise LessonError(f"--dim {args.dim}: 4 times it must be a multiple of the {own.world} ranks", exit_code=2)
        if args.sequence_parallel and args.seq % own.world:
            raise LessonError(f"--seq {args.seq} must be a multiple of the {own.world} ranks", exit_code=2)
        with device.allocating(args):
            model = make_blocks(args, device.type)
        mesh = init_device_mesh(device.type, (own.world,))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if args.sequence_parallel:
            up, down = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
            plan = {"norm": SequenceParallel(), "up": up, "down": down}
        for block in model:
            parallelize_module(block, mesh, plan)
        forward = torch.compile(model, mode=args.compile_mode) if args.compile else model
        # A fused optimizer kernel takes either sharded weights or whole ones: a group for each.
        cut = [weight for weight in model.parameters() if isinstance(weight, DTensor)]
        whole = [weight for weight in model.parameters() if not isinstance(weight, DTensor)]
        optimizer = torch.optim.AdamW([{"params": group} for group in (cut, whole) if group], lr=1e-3, fused=True)
        # One batch for all ranks: [batch, seq, dim]; with --sequence_parallel, each has a part of the sequence.
        x = torch.randn((args.batch, args.seq, args.dim), generator=torch.Generator().manual_seed(args.seed))
        x = x.chunk(own.world, 1)[own.rank].contiguous() if args.sequence_parallel else x
        x = x.to(device.type, DTYPES[args.dtype])

        def step():
            optimizer.zero_grad()
            train_step(forward, optimizer, x, parts=own.world if args.sequence_parallel else 1)

        warm_up(step, args, device)
        with record(args, device) as profiler:
            for _ in profiler.steps:
                step()
                profiler.step()
        finish(profiler.files, time_plain_steps(step, args, device), args, device)
    return model


if __name__ == "__main__":
    run(main, parse_args)
