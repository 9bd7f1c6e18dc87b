"""Data parallel: every GPU has the whole model and a batch of its own, and the gradients are averaged. Who waits for whom?

    uv run torchrun --standalone --nproc_per_node 2 06_a_data_parallel.py
    uv run torchrun --standalone --nproc_per_node 2 06_a_data_parallel.py --bucket_mb 1000
    uv run torchrun --standalone --nproc_per_node 2 06_a_data_parallel.py --slow_rank 1 --slow_ms 5
    uv run torchrun --standalone --nproc_per_node 2 06_a_data_parallel.py --accumulate 4 --reduce_each_pass

Guess first: gradients are sent in buckets of --bucket_mb. How many all-reduces per step is that with 1, 25 and 1,000 MB, and
which of the three steps is the fastest? How much of the communication overlaps with the backward pass? If one rank sleeps
before each step, are its collectives long, or short? And if its host is slow (--slow_host)? With --accumulate 4, four
passes add up their gradients, and only the last sends them. Does the step show it if each pass sends
them (--reduce_each_pass)? What is different in the very first step (--no-warmup --wait 0)?

Then look: an all-reduce starts as soon as the last gradient of its bucket is ready. It runs on its own stream, while the
backward pass continues; with a single bucket, nothing is left to overlap with, and it is exposed. Ranks that are in time wait
inside the collective, so the straggler is the one whose collectives are short. A rank that sleeps is late at one place of its
program; one whose host is slow runs the same ops, and is late all over. After the first backward pass, the buckets are rebuilt in
the order in which the gradients became ready.

Writes traces/06_a_data_parallel/<layers>_<dim>_<batch>_<seq>_<dtype>_<cold|warm>_<eager|compile>_w<ranks>_rank<rank>.json, .txt.
"""

import contextlib
import sys
import threading
import time

from common.cli import DTYPES, count, positive_int, run
from common.job import job, job_parser
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.blocks import make_blocks, train_step
import torch
from torch.nn.parallel import DistributedDataParallel

TURN_S = 0.0002  # that a second thread has Python for itself, at nearly every op


def parse_args(argv=None):
    parser = job_parser(__file__, __doc__)
    parser.add_argument(
        "--bucket_mb", type=positive_int, default=25, metavar="MB", help="size of the gradients sent together (default: 25)"
    )
    parser.add_argument("--gradient_as_bucket_view", action="store_true", help="keep the gradients in the buckets: no copy")
    parser.add_argument("--slow_rank", type=count, metavar="R", help="let this rank sleep before each step")
    parser.add_argument("--slow_ms", type=count, default=5, metavar="MS", help="how long it sleeps, in milliseconds (default: 5)")
    parser.add_argument("--slow_host", action="store_true", help="no sleep: a Python thread takes turns with the rank's ops")
    parser.add_argument(
        "--reduce_each_pass", action="store_true", help="send the gradients after each of the --accumulate passes"
    )
    parser.add_argument(
        "--accumulate", type=positive_int, default=1, metavar="N", help="backward passes before the gradients are sent"
    )
    args = parser.parse_args(argv)
    if args.slow_host and args.slow_rank is None:
        parser.error("--slow_host changes nothing without --slow_rank: add --slow_rank 1")
    if args.reduce_each_pass and args.accumulate == 1:
        parser.error("--reduce_each_pass changes nothing of one pass: add --accumulate 2")
    return args


def compute_until(over: threading.Event):
    while not over.is_set():
        pass


@contextlib.contextmanager
def slow_host(slow: bool):
    """Let another thread of Python compute during the block: it gets its turn at nearly every op."""
    over, turn_s = threading.Event(), sys.getswitchinterval()
    if slow:
        sys.setswitchinterval(TURN_S)
        threading.Thread(target=compute_until, args=(over,)).start()
    try:
        yield
    finally:
        over.set()
        sys.setswitchinterval(turn_s)


def main(args):
    with job(args) as own, slow_host(args.slow_host and own.rank == args.slow_rank):
        device = own.device
        with device.allocating(args):
            model = make_blocks(args, device.type)
        parallel = DistributedDataParallel(
            model,
            device_ids=[own.local_rank] if device.type == "cuda" else None,
            bucket_cap_mb=args.bucket_mb,
            gradient_as_bucket_view=args.gradient_as_bucket_view,
        )
        forward = torch.compile(parallel, mode=args.compile_mode) if args.compile else parallel
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        # The batch of all ranks together; each rank takes its part: [accumulate, batch, seq, dim]
        size = (args.accumulate, own.world * args.batch, args.seq, args.dim)
        whole = torch.randn(size, generator=torch.Generator().manual_seed(args.seed))
        inputs = whole[:, own.rank * args.batch :][:, : args.batch].to(device.type, DTYPES[args.dtype]).unbind()

        def step():
            if own.rank == args.slow_rank and not args.slow_host:
                time.sleep(args.slow_ms / 1000)
            optimizer.zero_grad()
            for n, x in enumerate(inputs, start=1):
                last = n == args.accumulate
                with contextlib.nullcontext() if last or args.reduce_each_pass else parallel.no_sync():
                    train_step(forward, optimizer, x, parts=args.accumulate, last=last)

        warm_up(step, args, device)
        with record(args, device) as profiler:
            for _ in profiler.steps:
                step()
                profiler.step()
        finish(profiler.files, time_plain_steps(step, args, device), args, device)
    return model


if __name__ == "__main__":
    run(main, parse_args)
