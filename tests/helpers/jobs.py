"""What the processes of tests/test_several_gpus.py run: lessons, one after the other.

    torchrun --standalone --nproc_per_node 2 tests/helpers/jobs.py FOLDER NAME...

Rank 0 saves of each the weights and gradients, whole, as FOLDER/<name>.pt.
"""

from collections.abc import Callable
import functools
import importlib
import os
from pathlib import Path
import sys
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SMALL = ("--layers", "2", "--dim", "32", "--batch", "2", "--seq", "8", "--dtype", "fp32", "--device", "cpu", "--no-warmup",
         "--wait", "0")  # fmt: skip
JOBS = {
    "a": ("06_a_data_parallel", "--bucket_mb", "1"),
    "a_view": ("06_a_data_parallel", "--gradient_as_bucket_view", "--accumulate", "2"),
    "a_parts": ("06_a_data_parallel", "--accumulate", "2"),
    "a_large": ("06_a_data_parallel", "--dim", "192", "--bucket_mb", "1"),
    "a_large_25": ("06_a_data_parallel", "--dim", "192", "--bucket_mb", "25"),
    "a_slow": ("06_a_data_parallel", "--slow_rank", "1", "--slow_ms", "100", "--active", "4", "--guess", "1"),
    "a_each": ("06_a_data_parallel", "--accumulate", "2", "--reduce_each_pass"),
    "a_host": ("06_a_data_parallel", "--slow_rank", "1", "--slow_host"),
    "b": ("06_b_sharded", "--guess", "6"),
    "b_kept": ("06_b_sharded", "--no-reshard_after_forward"),
    "c": ("06_c_tensor_parallel",),
    "c_sequence": ("06_c_tensor_parallel", "--sequence_parallel"),
}
COMPILED = {"b_compiled": ("06_b_sharded", "--compile"), "c_compiled": ("06_c_tensor_parallel", "--compile")}
EVERY = {**JOBS, **COMPILED}


def flags_of(name: str, folder: Path) -> list[str]:
    """Return the flags of two steps: one that is thrown away, one that is recorded. None is timed: weights are compared after
    as many steps.
    """
    return [*SMALL, "--no-plain", "--active", "1", *EVERY[name][1:], "--trace_dir", str(folder / name)]


def main(folder: Path, names: list[str]) -> None:
    from common import job
    import torch
    from torch.distributed.tensor import DTensor

    made: list[torch.nn.Module] = []
    join, leave = job.dist.init_process_group, job.dist.destroy_process_group
    rank, world = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))

    def save_and_leave(group: object = None) -> None:
        """What is cut over the ranks is gathered while they are still a group."""
        pairs = [tensor for weight in made[-1].parameters() for tensor in (weight.detach(), weight.grad)]
        whole = [tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for tensor in pairs]
        if job.dist.get_rank() == 0:
            torch.save(whole, folder / f"{name}.pt")
        job.dist.barrier()
        leave()

    job.dist.destroy_process_group = save_and_leave
    for name in names:
        # A store of its own: in the launcher's, the next group would find what the one before left there. A file: a port that is
        # free now may be taken when the group begins.
        group = f"file://{folder.resolve() / name}.group"
        job.dist.init_process_group = functools.partial(join, init_method=group, rank=rank, world_size=world)
        module: Any = importlib.import_module(EVERY[name][0])
        make = module.make_blocks

        def make_and_keep(args: Any, device: Any, make: Callable[..., torch.nn.Module] = make) -> torch.nn.Module:
            made.append(make(args, device))
            return made[-1]

        module.make_blocks = make_and_keep
        (folder / name).mkdir(exist_ok=True)
        if rank == 0:
            print(f"== {name}", flush=True)
        module.main(module.parse_args(flags_of(name, folder)))
        module.make_blocks = make


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)  # threads of groups that are gone can end the process instead ("terminate called without an active exception")
