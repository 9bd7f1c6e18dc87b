"""What the links between the GPUs reach: all-reduce, all-gather and reduce-scatter alone, as nccl-tests measures them.

    uv run torchrun --standalone --nproc_per_node 2 benchmarks/all_reduce.py

For each size: the time of a call over 20 in a row (5 before them are not timed), and the bandwidth on the bus by nccl-tests' rule
(PERFORMANCE.md there): bytes times 2(n-1)/n, or (n-1)/n, over the time. Without a GPU it runs on gloo, small sizes only.
"""

import argparse
from collections.abc import Callable
import functools
import os
import time

import torch
import torch.distributed as dist
from trace_reader import bus_factor

CALLS, BEFORE = 20, 5
BYTES = (8 << 10, 1 << 20, 32 << 20, 512 << 20)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if "LOCAL_RANK" not in os.environ:
        raise SystemExit("error: this benchmark runs in several processes: uv run torchrun --standalone --nproc_per_node 2 ...")
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    world = dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"{world} x {torch.cuda.get_device_name() if device.type == 'cuda' else 'cpu'}, torch {torch.__version__}")
    for size in BYTES if device.type == "cuda" else BYTES[:2]:
        whole = torch.ones(size // 2, dtype=torch.bfloat16, device=device)
        part = torch.ones(size // 2 // world, dtype=torch.bfloat16, device=device)
        calls: dict[str, Callable[[], object]] = {
            "allreduce": functools.partial(dist.all_reduce, whole),
            "allgather": functools.partial(dist.all_gather_into_tensor, whole, part),
            "reducescatter": functools.partial(dist.reduce_scatter_tensor, part, whole),
        }
        for name, call in calls.items():
            for number in range(BEFORE + CALLS):
                if number == BEFORE:
                    wait(device)
                    start = time.perf_counter()
                call()
            wait(device)
            seconds = (time.perf_counter() - start) / CALLS
            if dist.get_rank() == 0:
                rate = size * (bus_factor(name, world) or 0) / seconds / 1e9
                print(f"{name:>13} {size / 1e6:>9.2f} MB {seconds * 1e6:>10.1f} us {rate:>7.1f} GB/s")
    dist.destroy_process_group()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    else:
        dist.barrier()


if __name__ == "__main__":
    main()
