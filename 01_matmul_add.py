"""A matrix multiplication and an addition: is the CPU or the GPU the bottleneck?

    uv run 01_matmul_add.py --size 64
    uv run 01_matmul_add.py --size 4096
    uv run 01_matmul_add.py --size 4096 --warmup --compile

Guess first: how many kernels does a step launch? Which of the three recorded steps is the widest on the CPU's lane? At
which size does the GPU become the bottleneck? What does torch.compile remove, and what does it add?

Then look: in the table, do the CPU total and the CUDA total have the same unit? In the trace, follow the dispatch chain
ProfilerStep#N > matmul_add > aten::matmul > aten::mm, and after it aten::add. Below each of the last two is a kernel launch,
and its arrow leads to the kernel on the GPU's lane. The white space there is time in which the GPU waits.

Every lesson ends in the same loop. `record` is torch.profiler.profile with the lesson's flags, see common/record.py.

Writes traces/01_matmul_add/<size>_<dtype>_<cold|warm>_<eager|compile>.json (the trace) and .txt (the table).
"""

from common.cli import DTYPES, LessonParser, positive_int, run
from common.device import choose_device
from common.record import record, warm_up
import torch


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
        with torch.profiler.record_function("matmul_add"):
            return fn(x, w, b)

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()


if __name__ == "__main__":
    run(main, parse_args)
