"""A matrix multiplication and an addition: is the CPU or the GPU the bottleneck?

    uv run 01_matmul_add.py --size 64
    uv run 01_matmul_add.py --size 4096
    uv run 01_matmul_add.py --size 4096 --warmup --compile

Guess first: how many kernels does a step launch? Which of the three recorded steps is the widest on the CPU's lane? At
which size does the GPU become the bottleneck? What does torch.compile remove, and what does it add?

Then look: in the table, do the CPU total and the CUDA total have the same unit? In the trace, follow the dispatch chain
ProfilerStep#N > matmul_add > aten::matmul > aten::mm, and after it aten::add. Below each of the last two is a kernel launch,
and its arrow leads to the kernel on the GPU's lane. The white space there is time in which the GPU waits.

Writes traces/01_matmul_add/<size>_<dtype>_<cold|warm>_<eager|compile>.json (the trace) and .txt (the table).
"""

from common.artifacts import TABLE, writing
from common.cli import DTYPES, LessonParser, positive_int, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.quiet import watched
from common.record import warm_up
from common.summary import finish
from common.tensor_memory import PeakMemory
import torch
from torch.profiler import profile, record_function, schedule


def matmul_add(x, w, b):
    return torch.add(torch.matmul(x, w), b)


def addmm(x, w, b):
    return torch.addmm(b, x, w)


OPS = {"matmul_add": matmul_add, "addmm": addmm}


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__, warmup=False)
    parser.add_size("--size", 64, "rows and columns of x, w and b")
    parser.add_argument("--batch", type=positive_int, help="length of a batch axis for x, w and b (default: none)")
    parser.add_argument(
        "--op", choices=OPS, default="matmul_add", help="two ops, or the one that does the work of both (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    if args.batch and args.op == "addmm":
        parser.error("--op addmm takes matrices without a batch axis: drop --batch, or use --op matmul_add")
    return args


def main(args):
    device = choose_device(args.device)
    shape = (args.size, args.size) if args.batch is None else (args.batch, args.size, args.size)
    with device.allocating(args):
        x, w, b = (torch.randn(shape, device=device.type, dtype=DTYPES[args.dtype]) for _ in range(3))
    fn = OPS[args.op]
    if args.compile:
        fn = torch.compile(fn, mode=args.compile_mode)

    def step():
        with record_function("matmul_add"):
            return fn(x, w, b)

    warm_up(step, args, device)
    memory = PeakMemory(args, device)
    with watched(args, device):  # torch's log stays off the terminal, and an error that you can mend is one line
        device.synchronize()
        with profile(
            activities=device.activities(),
            schedule=schedule(wait=args.wait, warmup=args.schedule_warmup, active=args.active, repeat=1),
            record_shapes=args.record_shapes,
            profile_memory=args.profile_memory,
            with_stack=args.with_stack,
            acc_events=True,  # or torch warns that a next cycle drops the events; there is none
        ) as profiler:
            for number in range(args.wait + args.schedule_warmup + args.active):
                with memory.of_step(number):
                    step()
                if number + 1 == args.wait + args.schedule_warmup:
                    device.synchronize()  # a kernel that still ran would be in the first recorded step
                profiler.step()
        with writing(args, device, memory.peak) as files:
            profiler.export_chrome_trace(str(files.trace))
            averages = profiler.key_averages(group_by_input_shape=args.record_shapes)
            files.table.write_text(averages.table(sort_by=device.sort_by, **TABLE))
    # From 02 on, `record` is the lines from `memory` to here (common/record.py).
    finish(files, time_plain_steps(step, args, device), args, device)


if __name__ == "__main__":
    run(main, parse_args)
