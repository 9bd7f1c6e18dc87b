"""What share of a GPU's peak ops reach: where USUAL in read-trace/trace_reader/analysis/trace/op_shapes.py comes from.

    uv run benchmarks/op_rates.py TRACE.json

Records large ops of each kind, three calls each, with their shapes, and prints the reader's own table of them. Takes some
seconds on an H200.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile, schedule
from trace_reader import analyze, load

GEMMS = [
    (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 768, 3072), (8192, 3072, 768),
    (4096, 768, 50304), (4096, 768, 50257), (64, 4096, 4096), (1, 4096, 4096),
]  # fmt: skip
IMAGES = [(64, 56), (128, 28), (256, 14), (512, 7)]  # channels, and height and width
HEADS = [(1024, 64), (4096, 64), (4096, 128)]  # sequence, and size of a head
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
ROWS, COLUMNS = 8192, 4096


def rand(*shape: int, grad: bool = False, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def attention(query: torch.Tensor, backend: SDPBackend, causal: bool) -> None:
    with sdpa_kernel(backend):
        F.scaled_dot_product_attention(query, query, query, is_causal=causal).backward(query)


def both_ways(module: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    module(x).sum().backward()


def calls() -> Iterator[Callable[[], Any]]:
    """Yield the ops, one by one."""
    for m, k, n in GEMMS:
        yield partial(torch.mm, rand(m, k), rand(k, n))
    yield partial(torch.mm, *(rand(4096, 4096, dtype=torch.float32) for _ in range(2)))
    yield partial(torch.bmm, rand(128, 1024, 64), rand(128, 64, 1024))
    for channels, size in IMAGES:
        conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False).to("cuda", torch.bfloat16)
        conv.weight.data = conv.weight.data.to(memory_format=torch.channels_last)
        image = rand(128, channels, size, size).to(memory_format=torch.channels_last).requires_grad_()
        yield partial(both_ways, conv, image)
    for length, width in HEADS:
        query = rand(8, 16, length, width, grad=True)
        for backend in BACKENDS:
            for causal in (False, True):
                yield partial(attention, query, backend, causal)
    x, learned = rand(ROWS, COLUMNS), rand(ROWS, COLUMNS, grad=True)
    yield partial(both_ways, nn.LayerNorm(COLUMNS).to("cuda", torch.bfloat16), learned)
    yield partial(F.rms_norm, x, (COLUMNS,))
    yield partial(F.softmax, x, -1)
    yield partial(both_ways, F.gelu, learned)
    yield partial(torch.add, x, x)
    yield partial(torch.sum, x)
    yield partial(torch.sum, x, -1)
    yield x.clone
    yield x.t().contiguous
    yield x.float
    yield partial(
        both_ways, nn.Embedding(50257, 1024).to("cuda", torch.bfloat16), torch.randint(50257, (16, 1024), device="cuda")
    )
    yield partial(both_ways, nn.BatchNorm2d(256).to("cuda", torch.bfloat16), rand(64, 256, 56, 56, grad=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", metavar="TRACE.json")
    path = parser.parse_args().trace
    if not torch.cuda.is_available():
        sys.exit("error: this needs a GPU of NVIDIA")
    torch.backends.cuda.matmul.allow_tf32 = True
    ops = list(calls())
    with profile(schedule=schedule(wait=1, warmup=1, active=3, repeat=1), record_shapes=True, acc_events=True) as profiler:
        for _ in range(5):
            for op in ops:
                op()
            torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(path)
    for row in analyze(load(path)).op_shapes:
        if row.peak_share is not None:
            share = f"{row.peak_share:5.2f} of the peak of {row.limited_by:8}"
            print(f"{row.kind:11}  {row.time_us / row.calls:8.1f} us  {share}  {row.op} {row.shapes}")


if __name__ == "__main__":
    main()
