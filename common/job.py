"""A lesson in several processes, under PyTorch's launcher: the process group, a trace for each rank, and at the end what all of
them say together.
"""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
from dataclasses import dataclass
import io
import os
import shlex
import sys
import time
import traceback

from common.cli import LessonError, LessonParser
from common.device import Device, choose_device
from common.summary import NOT_INSTALLED
import torch
import torch.distributed as dist

PATIENCE_S = 20  # that a rank whose peer is gone waits for the launcher to end it: the peer's error is the one to read
OF_A_PEER = ("Connection", "NCCL", "gloo", "Broken pipe", "timed out", "Timeout")
WITH_GPU, WITHOUT = (8, 2048, 8, 1024), (4, 256, 2, 64)  # layers, dim, batch, seq


@dataclass
class Job:
    """This process's part: its `device`, its `rank` (0 to `world` - 1), and which GPU of its machine is its own."""

    device: Device
    rank: int
    world: int
    local_rank: int


class JobParser(LessonParser):
    """The parser of a lesson in several processes: under the launcher, a run's name ends with how many they are, and the rank.
    The guess is of collectives: the job counts them, where a single lesson counts kernels.
    """

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        parsed = super().parse_args(args, namespace)
        if "RANK" in os.environ:
            parsed.run = parsed.run.of_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        return parsed


def job_parser(file: str, doc: str | None, batch_of: str = "a rank") -> JobParser:
    """Return the parser with the sizes of the model; `batch_of` says whose the batch is."""
    parser = JobParser(file, doc, counted="collectives")
    layers, dim, batch, seq = WITH_GPU if torch.accelerator.is_available() else WITHOUT
    parser.add_size("--layers", layers, "blocks")
    parser.add_size("--dim", dim, "width of the model; 4 times that inside a block")
    parser.add_size("--batch", batch, f"sequences of {batch_of}")
    parser.add_size("--seq", seq, "tokens a sequence")
    return parser


@contextlib.contextmanager
def job(args: argparse.Namespace) -> Iterator[Job]:
    """Join the process group for the block. At the end, rank 0 reads all traces and prints the verdict.

    Only rank 0 prints; errors say which rank's they are, and end the process at once, so that the launcher ends the others.
    Raises LessonError (exit code 2) where no launcher started this process, or it started more than there are GPUs.
    """
    if "LOCAL_RANK" not in os.environ:
        raise LessonError(
            f"this lesson runs in several processes: uv run torchrun --standalone --nproc_per_node 2 {args.run.script}.py",
            exit_code=2,
        )
    rank, world, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    try:
        with contextlib.ExitStack() as silent:
            if rank:
                silent.enter_context(contextlib.redirect_stdout(io.StringIO()))
            yield _joined(args, rank, world, local_rank)
            dist.barrier()
        if rank == 0:
            _print_job(args, world)
        dist.destroy_process_group()
    except SystemExit:
        raise
    except BaseException as error:
        _end(error, rank)


def _joined(args: argparse.Namespace, rank: int, world: int, local_rank: int) -> Job:
    if args.device in ("auto", "cuda") and torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise LessonError(
                f"this machine has {torch.cuda.device_count()} GPUs: lower --nproc_per_node, or use none with --device cpu",
                exit_code=2,
            )
        torch.cuda.set_device(local_rank)
    device = choose_device(args.device)
    backend = dist.get_default_backend_for_device(device.type)
    one = torch.device(device.type, local_rank) if device.type != "cpu" else None
    dist.init_process_group(backend, device_id=one)
    print(f"job: {world} processes, {backend}; this is rank 0", flush=True)
    return Job(device, rank, world, local_rank)


def _print_job(args: argparse.Namespace, world: int) -> None:
    """What the traces of all ranks say together. Those of other machines may lie there: then it is of what is here."""
    paths = [args.run.of_rank(rank, world).trace for rank in range(world)]
    try:
        from trace_reader import TraceError, job_details, job_sentence, read_job  # here: a lesson records without it, too
    except ImportError:
        print(f"job: {NOT_INSTALLED.partition(': ')[2]}")
        return
    try:
        facts, _ = read_job([str(path) for path in paths if path.exists()])
    except TraceError as error:
        raise LessonError(f"the traces of the ranks are written, but cannot be read as one job: {error}") from error
    counts = collectives_per_step(facts)
    print(f"job: {job_sentence(facts)}")
    for line in job_details(facts):
        print(f"  {line}")
    print(f"collectives per step: {', '.join(f'{n} x {name}' for name, n in counts.items()) or 'none'}")
    if args.guess is not None:
        made = sum(counts.values())
        print(f"guess: {args.guess} collectives per step{'. Correct.' if args.guess == made else f'; the job has {made}'}")
    before, _, after = str(paths[0]).rpartition("rank0")
    files = f"{shlex.quote(before + 'rank')}*{shlex.quote(after)}"
    print(f"next: uv run read_trace.py {files}")
    print("the same with --merge job.json.gz: one file with all ranks, for https://ui.perfetto.dev")


def collectives_per_step(facts) -> dict[str, int]:
    """Return how many calls of each kind rank 0 makes in the middle recorded step. `facts`: the reader's, of the job."""
    one = facts.summaries[0]
    middle = len(one.steps) // 2
    counts: dict[str, int] = {}
    for message, step in zip(one.calls.message.tolist(), one.calls.step.tolist(), strict=True):
        if step == middle:
            name = one.messages[message].name
            counts[name] = counts.get(name, 0) + 1
    return counts


def _end(error: BaseException, rank: int) -> None:
    """End this process because of an error. That a peer is gone is the peer's: then the launcher soon ends this process."""
    if isinstance(error, RuntimeError) and any(word in str(error) for word in OF_A_PEER):
        time.sleep(PATIENCE_S)
        print(f"rank {rank}: another rank may have ended, whose error is then the one to read", file=sys.stderr, flush=True)
    if isinstance(error, LessonError):
        print(f"error: rank {rank}: {error}", file=sys.stderr, flush=True)
    else:
        print(f"rank {rank}:", *traceback.format_exception(error), sep="\n", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(getattr(error, "exit_code", 1))  # the process group's own threads wait for the others
