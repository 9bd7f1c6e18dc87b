"""Every finding once triggered, on the least evidence that it asks for, and silent without that evidence."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from reader_helpers import GALLERY
from reader_helpers.events import (
    ADD,
    GEMM,
    H200,
    MIB,
    annotation,
    backward,
    call,
    event,
    forward,
    kernel,
    launch,
    memcpy,
    memory,
    memory_training,
    on,
    op,
    step,
    write,
)
from reader_helpers.played import as_played  # noqa: F401  # in each test of this file
from trace_reader import analyze, cli, examine, load, read
from trace_reader.analysis.replay.edits import REPLACED, Edited
from trace_reader.analysis.replay.rounds import made_of
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.collectives import OF_COLLECTIVES
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.analysis.trace.critical_path import critical_path, windows
from trace_reader.analysis.trace.facts import Finding
from trace_reader.findings import PATTERNS, Reading, _with_parts, is_generic, rank_of_finding
from trace_reader.findings.catalogue import ENTRIES
from trace_reader.findings.registry import Seen, a_step
from trace_reader.findings.verdict import verdict_sentence
from trace_reader.reading import judged, with_lines
from trace_reader.report.lights import finding_light
from trace_reader.report.timeline import Timeline

HEAVY = dict(regs=168, shared=213188, grid=(2, 66, 1), block=(384, 1, 1))
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>>(int)"
TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_tf32_128x128_tn_align4>(int)"
ALIGN1 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(int)"
SGEMM = "ampere_sgemm_128x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MULTI_TENSOR = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor>(int)"
TO_BF16 = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, 2>(int)"
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
COMPILED = [
    e
    for n in range(3)
    for e in (
        step(n, n * 100, 50),
        op("TorchDynamo Cache Lookup", n * 100 + 1, 4),
        op("Torch-Compiled Region: 0/0", n * 100 + 6, 40),
        op("AOTDispatcher Runtime Wrapper Prologue", n * 100 + 7, 3),
        op("## Call CompiledFxGraph fadri2gvaccdsuvko2wt ##", n * 100 + 11, 30),
    )
]


def linked(name, ts, dur, n=1, **more):
    """Return a launch and its kernel."""
    return [launch(ts, n), kernel(name, ts + 1, dur, n, **more)]


def few_rows(m, n=4096, k=4096, calls=10, period=3000):
    """Return two steps, each of some products [m, k] @ [k, n] in bf16."""
    shapes = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    return [
        e
        for number in range(2)
        for e in (
            step(number, number * period, period),
            *(e
              for call in range(calls)
              for at in [number * period + 100 * call]
              for e in (op("aten::mm", at, 50, **shapes), *linked(GEMM, at + 10, 20, 1 + call + calls * number))),
        )
    ]  # fmt: skip


def calls_of_an_op(*durations):
    """A step in which an op takes so long, call by call; a µs of that is a launch."""
    calls = [e for n, dur in enumerate(durations) for e in (op("aten::x", 70 * n, dur), *linked(ADD, 70 * n + 1, 3, n))]
    return [step(0, 0, 280), *calls]


def matrices(item, size=64):
    """Return the recorded inputs of a product of two square matrices."""
    return {"Input Dims": [[size, size]] * 2, "Input type": [item, item], "Input Strides": [[size, 1]] * 2}


def runs(name, durations, **more):
    """Three steps of 100 µs, each launching the kernel once for its duration."""
    return [e for n, d in enumerate(durations) for e in (step(n, n * 100, 100), *linked(name, n * 100 + 1, d, n + 1, **more))]


def gaps(*gaps_us):
    """Steps whose annotation waits that long for its first op."""
    return [
        e
        for n, gap in enumerate(gaps_us)
        for e in (step(n, n * 100, 90), annotation("fwd", n * 100, 80), op("aten::mm", n * 100 + gap, 5))
    ]


def pointwise(name, ts, dur, n):
    """Return an op on ten million elements of two bytes, and its kernel."""
    inputs = {"Input Dims": [[10_000, 1000]], "Input type": ["c10::Half"], "Input Strides": [[1000, 1]]}
    return [op(name, ts, 5, **inputs), launch(ts + 1, n), kernel(name.removeprefix("aten::"), ts + 10, dur, n)]


def copied(**more):
    """Return a copy's call and the copy."""
    return [call("cudaMemcpyAsync", 2, 3, 1), memcpy(10, 9, 1, **more)]


def all_reduce(ts, dur, n, elements=4096):
    """Return an all-reduce of two ranks that says what it carries."""
    said = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "Group size": 2,
            "dtype": "BFloat16", "Process Group Name": "0"}  # fmt: skip
    return linked(NCCL, ts, dur, n, **said)


def products(m, n, k=4096):
    return {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}


def cats(*durations):
    """Concatenations, launched one after the other, that run one after the other from 12 µs on."""
    starts = [12 + sum(durations[:n]) for n in range(len(durations))]
    work = [kernel(CAT, ts, dur, n) for n, (ts, dur) in enumerate(zip(starts, durations, strict=True))]
    return [step(0, 0, 100), *(launch(n, n) for n in range(len(durations))), *work]


def queued(n):
    """Launches, one after the other, of kernels that run from 100 µs on."""
    return [e for k in range(n) for e in (call("cudaLaunchKernel", k / 10, 0.1, k), kernel(ADD, 100 + k, 1, k))]


RMS = [f"aten::{name}" for name in ("pow", "mean", "add", "rsqrt", "mul")]


def python(name, ts, dur):
    return event("python_function", name, ts, dur)


def shaped(name, ts, dur, *dims):
    return op(
        name, ts, dur, **{"Input Dims": list(dims), "Input type": ["float"] * len(dims), "Concrete Inputs": [""] * len(dims)}
    )


def later(event, us):
    return {**event, "ts": event["ts"] + us}


def rounds(n, rows=640, few=20, second=(8, 16), apart=True, at_once=1):
    """So many times a product of `rows` rows (or several, one after the other), and one of `few`: in turns, or first all of the
    one.
    """
    large = [shaped("aten::linear", 0, 60 / at_once, [2, rows // 2, 16], list(second)) for _ in range(n)]
    small = [shaped("aten::linear", 0, 30 / at_once, [few, 16], [4, 16]) for _ in range(n // at_once)]
    turns = zip(*(large[start::at_once] for start in range(at_once)), small, strict=True)
    every = [one for turn in turns for one in turn] if apart else [*large, *small]
    return [one | {"ts": 5 + 60 / at_once * n} for n, one in enumerate(every)]


def trained(gradients, updates, size=None, name="aten::add_", grid=None):
    """A forward op, the node of its backward pass with so many gradients, and an optimizer with so many ops; `size`: of a
    gradient; `grid`: of the kernel that each of these launches.
    """
    shapes = {} if size is None else {"Input Dims": [[size]], "Input type": ["float"]}
    events = [op("aten::mm", 5, 50, **{"Sequence number": 1}), backward("Mm", 100, 200, 1)]
    for n in range(gradients):
        at = 310 + 30 * n
        around = op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 25)
        events += [around, op("torch::autograd::AccumulateGrad", at + 1, 20, **shapes)]
    events.append(annotation("Optimizer.step#SGD.step", 700, 250))
    for n in range(updates):
        events.append(op(name, 705 + 20 * n, 15, **shapes))
        if grid is not None:
            events += [launch(706 + 20 * n, n), kernel("multi_tensor_apply", 960 + 2 * n, 1, n, grid=(grid, 1, 1))]
    return events


def allocated(ts, address, blocks):
    """2 MiB more, of so many blocks then."""
    return memory(ts, address, 2 * MIB, blocks * 2 * MIB)


def run_of(names):
    """Ops one after the other, each with a kernel."""
    found = enumerate(names)
    return [e for n, name in found for e in (op(name, 100 * n, 90), launch(100 * n + 1, n), kernel(ADD, 100 * n + 5, 80, n))]


def hooked(n, between=()):
    """Steps of optimizers, one after the other, with ops between them."""
    steps = [
        e for k in range(n) for e in (annotation("Optimizer.step#AdamW.step", 100 * k, 50), op("aten::lerp_", 100 * k + 5, 40))
    ]
    return [*steps, *(op(name, 100 * k + 60, 30) for k in range(n) for name in between)]


def isnan(ts):
    return op("aten::isnan", ts, 20)


def passes(n):
    """So many times a product, and its node."""
    forward = [op("aten::mm", 200 * k + 10, 60, **{"Sequence number": k, "Fwd thread id": 0}) for k in range(n)]
    node = "autograd::engine::evaluate_function: MmBackward0"
    return [*forward, *on(2, *(op(node, 200 * k + 80, 60, **{"Sequence number": k, "Fwd thread id": 1}) for k in range(n)))]


def repeated_heads(view="aten::expand", way="aten::flatten", copy=("aten::copy_",), times=4, between=(), attends=None, width=16,
                   strides=None, rows=2):  # fmt: skip
    """Keys and values, each of which a view repeats and an op copies, and what takes them."""
    events = []
    for at in (100, 250):
        copied = shaped(way, at + 40, 100, [rows, 4, times, 100, width])
        copied["args"] |= {"Input Strides": strides} if strides else {}
        events += [shaped(view, at, 20, [rows, 4, 1, 100, 16]), copied, *(op(name, at + 45, 90) for name in copy)]
    return [*events, *between, *[attends] * bool(attends), op("aten::relu", 900, 90)]


def attends(heads=16, keys=100):
    """Attention of one query per head."""
    return shaped("aten::scaled_dot_product_attention", 400, 300, [2, heads, 1, 16], *2 * [[2, 16, keys, 16]])


TAKES_HEADS = attends()


def round_of(first, second):
    """Sixteen times one op and then another."""
    return [e for n in range(16) for e in (op(first, 100 * n, 40), op(second, 100 * n + 50, 40))]


def expert(n, width):
    """Return a product of a loop's round, 64 wide, and what follows."""
    shapes = {"Input Dims": [[32, 64], [64, width]], "Input type": ["float", "float"]}
    relu = {"Input Dims": [[32, width]], "Input type": ["float"]}
    return op("aten::mm", 100 * n, 40, **shapes), op("aten::relu", 100 * n + 50, 40, **relu)


def top(experts, start=5, name="aten::topk", dim="-1"):
    """Return the choice of one expert for each of 32 tokens."""
    given = ["", "1", dim, "True", "True"] if name == "aten::topk" else ["", dim, "False"]
    values = {"Concrete Inputs": given, "Input type": ["float", *["Scalar"] * 4]}
    return op(name, start, 20, **{"Input Dims": [[32, experts], [], [], [], []], **values})


def cut(name, ts, before, *after):
    """Views, one of the other, that take a part of a tensor, as `x[...]` records them."""
    events = []
    for n, left in enumerate(after):
        size = {"Input Dims": [before, [], [], []], "Input type": ["float", "ScalarList", "ScalarList", ""]}
        events += [shaped(name, ts + 4 * n, 3, before), op("aten::as_strided", ts + 4 * n + 1, 1, **size,
                   **{"Concrete Inputs": ["", str(left), "[1]", "0"]})]  # fmt: skip
        before = left
    return events


def normalized(*dims, made=("aten::div", "aten::sub")):
    """A picture that is made float, normalized and cropped, and then a layer of what is left of it."""
    events = [op("aten::to", 5, 100, **{"Input Dims": [list(dims), []], "Input type": ["unsigned char", "Scalar"],
                                        "Concrete Inputs": ["", "6"]})]  # fmt: skip
    events += [shaped(name, 110 + 100 * n, 100, list(dims), [dims[1], 1, 1]) for n, name in enumerate(made)]
    return [*events, *cut("aten::slice", 320, list(dims), [*dims[:-2], 8, 32], [*dims[:-2], 8, 8]),
            shaped("aten::conv2d", 340, 50, [*dims[:-2], 8, 8], [4, dims[-3], 3, 3])]  # fmt: skip


def adapted(rank=8, between=(), base_first=True):
    """A layer of 64 numbers to 96, its low-rank adapter, scaled, and their sum."""
    x, width = [4, 10, 64], 96
    base = shaped("aten::linear", 5 if base_first else 260, 100, x, [width, 64])
    adapter = [shaped("aten::linear", 110, 50, x, [rank, 64]), *between,
               shaped("aten::linear", 170, 60, [4, 10, rank], [width, rank]),
               shaped("aten::mul", 235, 20, [4, 10, width], []),
               shaped("aten::add", 400, 40, [4, 10, width], [4, 10, width])]  # fmt: skip
    return sorted([base, *adapter], key=lambda e: e["ts"])


def float_attention(kind):
    """A layer of bfloat16, and attention of some type, which launches a kernel of 600 us."""
    heads = {"Input Dims": [[2, 4, 64, 32]] * 3, "Input type": [kind] * 3}
    layer = {"Input Dims": [[2, 64, 128], [384, 128]], "Input type": ["c10::BFloat16"] * 2}
    return [op("aten::linear", 5, 20, **layer), *linked(GEMM, 10, 80, 1),
            op("aten::scaled_dot_product_attention", 100, 20, **heads), *linked(ADD, 110, 600, 2)]  # fmt: skip


EXPERTS = [op("aten::scatter_", 30, 5), *(e for n in range(1, 5) for e in expert(n, 16))]
WEIGHTED = shaped("aten::mul", 510, 20, [32, 4, 16], [32, 4, 1])


def dense_targets(made):
    """Return a loss of 64 tokens and 1000 classes, whose targets this op makes."""
    whole = [64, 1000]
    return [shaped("aten::full_like", 5, 190, whole), shaped(made, 200, 200, whole, [64, 1]),
            shaped("aten::log_softmax", 410, 100, whole), shaped("aten::mul", 520, 210, whole, whole)]  # fmt: skip


def longer(*rows, at=0, attends="aten::scaled_dot_product_attention", appends="aten::cat"):
    """Rounds of 100 us each: attention over so many rows and a layer of these, a head of the last row, and the new row."""
    events = []
    for us, each in zip(range(at, at + 100 * len(rows), 100), rows, strict=True):
        events += [shaped(attends, us, 20, *3 * [[2, 4, each, 4]]), shaped("aten::linear", us + 20, 60, [2, each, 16], [16, 16])]
        events += [shaped("aten::linear", us + 80, 10, [2, 16], [99, 16]), op(appends, us + 90, 10)]
    return events


def copied_to_the_gpu(ts, number):
    """A tensor of the CPU that goes to the GPU, for 50 us."""
    copies = "Memcpy HtoD (Pageable -> Device)"
    return [op("aten::to", ts, 50), op("aten::copy_", ts + 1, 48), call("cudaMemcpyAsync", ts + 2, 45, number),
            memcpy(ts + 4, 2, number, copies)]  # fmt: skip


ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


# slug: (events that show it, what is seen, events that lack one thing)
def time_step(n, features):
    """A recurrence's round: its input is taken out of a tensor of so many features, and a layer of six takes it."""
    yield shaped("aten::select", 100 * n, 30, [4, 8, features])
    yield shaped("aten::linear", 100 * n + 35, 40, [4, 6], [12, 6])
    yield op("aten::lerp", 100 * n + 80, 15)


def penalty(behind="aten::sum"):
    for n in range(4):
        yield op("aten::pow", 100 * n, 40, **{"Sequence number": n + 1, "Fwd thread id": 0})
        yield op(behind, 100 * n + 45, 40)


def penalty_nodes():
    return on(2, *(backward("Pow", 500 + 50 * n, 40, n + 1) for n in range(4)))


def constants(at=0, data=None):
    """A table of positions, made of sizes alone (or with one tensor of the program's), and a layer that takes it."""
    dims = ("aten::arange",), ("aten::unsqueeze", [64]), ("aten::mul", [64, 1]), ("aten::exp", [64, 1]), ("aten::cos", [64, 1])
    events = [shaped(name, at + 20 * n, 18, *inputs) for n, (name, *inputs) in enumerate(dims)]
    if data is not None:
        events[2] = shaped("aten::mul", at + 40, 18, [64, 1], data)
    return [*events, shaped("aten::linear", at + 100, 18, [2, 8, 16], [16, 16])]


def history(sizes=(10, 20, 30, 40, 50, 60)):
    """Scores of a batch of ten, and the area under the curve of all so far."""
    for n, size in enumerate(sizes, 1):
        at = 150 * n - 150
        yield shaped("aten::linear", at, 40, [10, 4], [1, 4])
        yield op("aten::cat", at + 41, 18, **{"Input Dims": [[[10]] * n], "Input type": ["TensorList"]})
        yield shaped("aten::argsort", at + 60, 28, [size])
        yield shaped("aten::cumsum", at + 89, 28, [size])
        yield shaped("aten::trapezoid", at + 118, 10, [size], [size])
        yield shaped("aten::item", at + 129, 10)


def epochs(last=20_000, first=15_000, between=100, apart=30_000):
    """Two passes of four calls of a loader, 1 ms of work behind each but the last."""
    at, events = 0, []
    for _ in range(2):
        begin = at
        for number, us in enumerate((first, between, between, between, last)):
            events += [annotation(LOADER, at, us), *[op("aten::mm", at + us, 1000)] * (number < 4)]
            at += us + 1000 * (number < 4)
        events.append(annotation("epoch", begin, at - begin))
        at += apart  # the loader's iterator is made anew
    return events


def layers_twice(differentiated=(0, 1), widths=((32, 8), (8, 32)), again=((32, 8), (8, 32))):
    """Layers that are trained (with a node each, of those that are `differentiated`), and then some without a gradient."""
    events = []
    for n, (outputs, inputs) in enumerate((*widths, *again)):
        layer = shaped("aten::linear", 100 * n, 80, [4, inputs], [outputs, inputs])
        layer["args"] |= {"Sequence number": n + 1, "Fwd thread id": 0} if n in differentiated else {}
        events += [layer, shaped("aten::relu", 100 * n + 85, 10, [4, outputs])]
    return [*events, *on(2, *(backward("Addmm", 600 + 40 * n, 30, n + 1) for n in differentiated))]


def of_a_table(rows=5000, width=8, *more):
    """Statistics of a table, of which a batch is gathered and normalized."""
    table = [rows, width]
    return [shaped("aten::mean", 5, 100, table), shaped("aten::std", 110, 100, table), shaped("aten::index", 220, 20, table),
            shaped("aten::sub", 250, 20, [64, width], [width]), *more]  # fmt: skip


def in_parts(times, *, whole=(2, 2, 16, 8), between="aten::slice", at=100, cuts=3):
    """Attention of one head of one sample after the other."""
    part = [1, 1, 16, 8]
    events = [shaped("aten::linear", 5, 60, [2, 16, 16], [48, 16]), shaped("aten::permute", 70, 2, [3, *whole]),
              shaped("aten::unbind", 75, 2, [3, *whole]), shaped("aten::empty_like", 80, 2, [*whole])]  # fmt: skip
    for n in range(times):
        ts = at + 60 * n
        events += [*(shaped(between, ts + 3 * k, 2, [*whole]) for k in range(cuts)), shaped("aten::copy_", ts + 9, 2, part, part),
                   shaped("aten::scaled_dot_product_attention", ts + 12, 40, part, part, part)]  # fmt: skip
    return events


CRITIC, DRAWS = ([8, 4], [8]), ([4, 2], [4])  # the parameters of two parts


def parts(*passes, steps=1, ops=("aten::add_",)):
    """Steps of several backward passes, each with its optimizer's step: (gradients, what of them is added to, updated). `ops`:
    of the optimizers, for each parameter.
    """
    events = []
    for number in range(steps):
        ts = 1000 * number + 5
        events.append(step(number, ts - 5, 1000))
        for gradients, added, updated in passes:
            for n, shape in enumerate(gradients):
                node = "torch::autograd::AccumulateGrad"
                events += [backward("Addmm", ts, 50, len(events)), op(f"autograd::engine::evaluate_function: {node}", ts + 51, 9),
                           shaped(node, ts + 52, 7, shape)]  # fmt: skip
                events += [shaped("aten::add_", ts + 53, 2, shape, shape)] * (n in added)
                ts += 60
            ts += 5
            events.append(annotation("Optimizer.step#SGD.step", ts, 10 + 10 * len(updated)))
            each_us = 9 / len(ops)
            events += [shaped(name, ts + 1 + 10 * n + k * each_us, 0.9 * each_us, shape, shape)
                       for n, shape in enumerate(updated) for k, name in enumerate(ops)]  # fmt: skip
            ts += 20 + 10 * len(updated)
    return events


# The first pass goes on through the part that drew; its gradients are added to what the second pass of the step before left.
UNDETACHED = ((*CRITIC, *DRAWS), (2, 3), CRITIC), ((*CRITIC, *DRAWS), (0, 1), DRAWS)
DETACHED = (CRITIC, (), CRITIC), ((*CRITIC, *DRAWS), (0, 1), DRAWS)


def kept(parts=50, made=1, listed=False):
    """A layer whose result is joined with those of other steps, and what is counted of all."""
    dims = [[[32, 8]] * parts] if listed else [[]]
    layers = [shaped("aten::linear", 10 * n, 8, [32, 16], [8, 16]) for n in range(made)]
    return [*layers, op("aten::cat", 100, 100, **{"Input Dims": dims, "Input type": ["TensorList"]}),
            shaped("aten::argmax", 210, 200, [32 * parts, 8]), shaped("aten::mean", 420, 50, [32 * parts]),
            shaped("aten::exp", 480, 100, [32, 8])]  # fmt: skip


def sampled(rounds=4, layers=2, random=True):
    """A network with dropout behind its first layers, so many times."""
    events = []
    for at in range(10, 10 + 100 * rounds, 100):
        events += [shaped("aten::linear", at + 10 * n, 8, [4, 16 if n else 12], [16, 16 if n else 12]) for n in range(layers)]
        events += [shaped("aten::dropout", at + 40, 10, [4, 16])]
        events += [op("aten::bernoulli_", at + 42, 4)] * random
        events += [shaped("aten::linear", at + 60, 8, [4, 16], [2, 16]), shaped("aten::softmax", at + 70, 8, [4, 2])]
    return events


def picked(columns=10, between=(), behind=()):
    """Scores of 1,000 candidates, of which some are gathered."""
    return [shaped("aten::matmul", 10, 400, [8, 16], [16, 1000]), *between,
            shaped("aten::gather", 420, 10, [8, 1000], [8, columns]), *behind]  # fmt: skip


def compared(rows=8, candidates=1000, ranks="aten::topk", behind=()):
    """A layer on the batch, two on the candidates, and a product of both."""
    return [shaped("aten::linear", 10, 40, [rows, 16], [32, 16]), shaped("aten::linear", 60, 200, [candidates, 24], [64, 24]),
            shaped("aten::relu", 270, 50, [candidates, 64]), shaped("aten::linear", 330, 100, [candidates, 64], [32, 64]),
            op("aten::numpy_T", 440, 2, **{"Input Dims": [[candidates, 32]], "Input type": ["float"]}),
            shaped("aten::matmul", 450, 100, [rows, 32], [32, candidates]), shaped(ranks, 560, 50, [rows, candidates]),
            *behind]  # fmt: skip


def cells(gates=4, times=3, layer="aten::linear", activation="aten::tanh", inputs=8):
    """An LSTM by hand: of each gate a layer of the input and one of the state."""
    events = []
    for at in range(10, 10 + 200 * times, 200):
        for gate in range(gates):
            us = at + 30 * gate
            events += [shaped(layer, us, 12, [4, inputs], [16, inputs]), shaped(layer, us + 13, 12, [4, 16], [16, 16])]
            events += [shaped("aten::add", us + 26, 2, [4, 16], [4, 16])]
        events += [shaped("aten::sigmoid", at + 130, 2, [4, 16]), shaped(activation, at + 135, 2, [4, 16]),
                   shaped("aten::mul", at + 140, 2, [4, 16], [4, 16])]  # fmt: skip
    return events


def listed(lists=40, first="aten::empty", apart=20):
    """A DataLoader that makes a tensor of each of so many lists: it looks for their type in 5 us, and fills each in 6."""
    made = [
        one
        for at in range(10, 10 + apart * lists, apart)
        for one in (
            op(first, at + 5, 2),
            op("aten::to", at + 13, 1),
            op("aten::lift_fresh", at + 15, 1),
            op("aten::detach_", at + 17, 1),
        )
    ]
    return [annotation(ALONE, 5, apart * lists + 10), *made]  # fmt: skip


def passes_through(times=2, first=4, behind=3, between=(), at=10):
    """So many passes through four layers, the first of which takes so many numbers, and `behind` ops on what they make."""
    weights, made = ((16, first), (16, 16), (16, 16), (first, 16)), []
    for _ in range(times):
        for out, inputs in weights:
            made.append(shaped("aten::linear", at, 40, [8, inputs], [out, inputs]))
            at += 45
        made += [op(name, at, 5) for name in between]
        at += 10 * len(between)
    return [*made, *(op("aten::sub", at + 10 * n, 5) for n in range(behind))]


def two_towers(*makes):
    """Layers on an image, then on numbers that are looked up, of which the step `makes` some."""
    names = ["aten::conv2d", "aten::linear", *makes, "aten::embedding", *["aten::linear"] * 5]
    return [e for n, name in enumerate(names, 1) for e in
            (op(name, 20 * n, 10), launch(20 * n + 1, n), kernel(ADD, 60 * n, 50, n))]  # fmt: skip


def in_a_rollout(numbers=range(1, 9)):
    """Eight layers with such numbers of autograd's, and two that are trained."""
    rollout = [op("aten::linear", 50 * n, 40, **{"Sequence number": number}) for n, number in enumerate(numbers)]
    trained = [op("aten::linear", 500 + 50 * n, 40, **{"Sequence number": 20 + n}) for n in range(2)]
    return [*rollout, *trained, op("aten::sum", 600, 5, **{"Sequence number": 22}),
            *on(2, *(backward("Addmm", 700 + 50 * n, 40, 21 - n) for n in range(2)))]  # fmt: skip


def built(draws=6):
    """A network that is built, so many of its tensors random, and run."""
    drawn = [op("aten::uniform_", 20 * n, 10) for n in range(1, draws + 1)]
    return [*drawn, op("aten::copy_", 200, 50), op("aten::linear", 400, 100), op("aten::linear", 510, 100)]


def updated_one_by_one():
    """Tensors of different shapes, each with ops of its own."""
    return [e for n in range(20) for e in (shaped("aten::mul_", 40 * n + 1, 17, [n + 1]),
            shaped("aten::add_", 40 * n + 20, 13, [n + 1]))]  # fmt: skip


def of_channels(rounds=8, cut="aten::slice", whole=16):
    """A convolution for each channel of a tensor, of so many channels."""
    return [e for n in range(rounds) for e in (shaped(cut, 50 * n, 5, [2, whole, 100]),
            shaped("aten::conv1d", 50 * n + 6, 35, [2, 1, 100], [4, 1, 3]))]  # fmt: skip


def for_few_rows(rows=1, kind="float", outputs=3072):
    """Layers with large weights."""
    types = {"Input type": [kind, kind], "Concrete Inputs": ["", ""]}
    return [op("aten::linear", 110 * n, 100, **{"Input Dims": [[rows, 1, 768], [outputs, 768]], **types}) for n in range(4)]


def enlarged(weights, to=32, between="aten::view", stride=""):
    """Features that are enlarged, then go through a convolution."""
    layer = shaped("aten::conv2d", 400, 200, [2, 64, to, to], weights, [], [], [])
    layer["args"]["Concrete Inputs"] = ["", "", "", stride, stride and "[0, 0]"]
    return [shaped("aten::upsample_bilinear2d", 10, 300, [2, 64, 8, 8]), shaped(between, 320, 20, [2, 64, to, to]), layer]


def of_a_number(at):
    """torch.log(torch.tensor(a number))."""
    empty = op("aten::empty", at, 0.1, **{"Input Dims": [[]], "Input type": ["ScalarList"], "Concrete Inputs": ["[]"]})
    rest = ("aten::to", "aten::log", "aten::lift_fresh", "aten::detach_")
    return [empty, *(shaped(name, at + 0.1 * n, 0.08, []) for n, name in enumerate(("aten::to", *rest[2:], rest[1]), start=1))]


def asleep(waiting, other=2):
    """A step that sleeps for 600 us, in which another thread waits for so long."""
    get = python("<built-in method get of _queue.SimpleQueue object at 0x1>", 300, waiting)
    return [step(0, 0, 1000), python("train.py(5): step", 10, 980), python("<built-in function sleep>", 100, 600),
            op("aten::mm", 720, 200), *on(other, python("work.py(3): run", 50, 900), get)]  # fmt: skip


def beside(waiting=350, asks="m.py(9): load"):
    """A step in Python, while another thread runs, and waits for so long in between."""
    get = python("<built-in method acquire of _thread.lock object at 0x1>", 200, waiting)
    return [step(0, 0, 1000), python("train.py(5): step", 10, 980), python(asks, 20, 600), op("aten::mm", 720, 200),
            *on(2, python("work.py(3): run", 100, 750), get)]  # fmt: skip


def sent_in(pieces, load=None):
    """A batch that a worker sends as so many tensors."""
    sets = [op("aten::set_", 20 + 30 * n, 5) for n in range(pieces)]
    return [step(0, 0, 1000), annotation(load or LOADER, 10, 600), *sets, *linked(ADD, 900, 80, 20)]


def large(numbers, kind="float", us=10_000):
    """Two elementwise ops with results of so many numbers."""
    args = {"Input Dims": [[numbers], []], "Input type": [kind, "Scalar"]}
    return [op("aten::sub", 100, us, **args), op("aten::div", 200 + us, us, **args)]


def read_across(one):
    """The same op on a matrix that is transposed."""
    return one | {"args": one["args"] | {"Input Dims": [[4096, 2048], []], "Input Strides": [[1, 4096], []]}}


def of_types(one, *types):
    return one | {"args": one["args"] | {"Input type": list(types)}}


def masked(classes, kind="long int", same=False, of_mask="bool", then="aten::sum"):
    """A mask for each class, two sums of it, and what is left of the sums."""
    found, mask = [], {"Input Dims": [[100]], "Input type": [of_mask]}
    for n in range(classes):
        number = {"Input Dims": [[100], []], "Input type": [kind, "Scalar"], "Concrete Inputs": ["", "7" if same else str(n)]}
        found += [op("aten::eq", 50 * n, 10, **number), op(then, 50 * n + 15, 10, **mask), op(then, 50 * n + 30, 10, **mask),
                  shaped("aten::add", 50 * n + 45, 2, [1])]  # fmt: skip
    return found


def relabelled(at):
    return op("aten::add", at, 1, **{"Input Dims": [[100], []], "Input type": ["long int", "Scalar"]})


CASES = {
    "convolutions-of-parts": (
        [step(0, 0, 1000), *of_channels()],
        "in a row, per step: 8 x (aten::conv1d, aten::slice); 320.0 µs of CPU time: 32% of the steps' time",
        [step(0, 0, 1000), *of_channels(rounds=7)],
    ),
    "weights-for-few-rows": (
        [step(0, 0, 1000), *for_few_rows()],
        "4 linear layers per step with at most 4 rows, for 38 MB of weights; 400.0 µs of CPU time: 40% of the steps' time",
        [step(0, 0, 1000), *for_few_rows(rows=5)],
    ),
    "same-network-twice": (
        [step(0, 0, 1000), *passes_through()],
        "2 passes in a row per step through 4 layers of the same shapes; 320.0 µs of CPU time: 32% of the steps' time",
        [step(0, 0, 1000), *passes_through(first=16)],  # blocks of a network
    ),
    "inputs-made-elsewhere": (
        [step(0, 0, 1000), *two_towers()],
        "6 layers per step from aten::embedding on, whose numbers the step neither copies nor makes; 300.0 µs of GPU time: 57% "
        "of the critical path",
        [step(0, 0, 1000), *two_towers("aten::argmax")],
    ),
    "graph-never-used": (
        [step(0, 0, 1000), *in_a_rollout()],
        "autograd records 8 of 10 layers per step, to which no backward pass comes; 320.0 µs of CPU time: 32% of the steps' time",
        [step(0, 0, 1000), *in_a_rollout([20] * 8)],  # without a gradient the numbers stand still
    ),
    "network-made-in-step": (
        [step(0, 0, 1000), *built()],
        "random numbers are written over 6 tensors per step, 380.0 µs before its first layer; 110.0 µs of CPU time: 11% of the "
        "steps' time",
        [step(0, 0, 1000), *built(draws=5)],
    ),
    "lists-to-tensors-while-loading": (
        [step(0, 0, 1000), *listed()],
        "40 lists or numbers per step made tensors while the DataLoader loads, with 754.0 µs of CPU time per step",
        [step(0, 0, 1000), *listed(first="aten::empty_strided")],  # of an array
    ),
    "history-in-each-step": (
        [step(0, 0, 1000), *kept()],
        "joined per step: 1 x (50 tensors of 32x8), of which the step made at most 3; with what goes over all of them; 350.0 µs "
        "of CPU time: 35% of the steps' time",
        [step(0, 0, 1000), *kept(made=4)],
    ),
    "layers-before-dropout-again": (
        [step(0, 0, 1000), *sampled(rounds=8)],
        "per step: 1 x 8 times layers of the same shapes, 2 of them before the first dropout; 112.0 µs of CPU time: 11% of the "
        "steps' time",
        [step(0, 0, 1000), *sampled(rounds=8, random=False)],
    ),
    "scored-then-picked": (
        [step(0, 0, 1000), *picked()],
        "1 product per step: 8x10 of 8x1000 scores are picked; 400.0 µs of CPU time: 40% of the steps' time",
        [step(0, 0, 1000), *picked(columns=20)],
    ),
    "candidates-each-time": (
        [step(0, 0, 1000), *compared()],
        "3 ops per step make the vectors of 1,000 candidates, with which 8 rows are compared; 350.0 µs of CPU time: 35% of the "
        "steps' time",
        [step(0, 0, 1000), *compared(ranks="aten::relu")],
    ),
    "gates-one-by-one": (
        [step(0, 0, 1000), *cells()],
        "3 cells per step, with 4 x aten::linear (4x8, 16x8) and 4 x aten::linear (4x16, 16x16) in each; 216.0 µs of CPU time: "
        "22% of the steps' time",
        [step(0, 0, 1000), *cells(gates=2)],
    ),
    "read-one-by-one": (
        [step(0, 0, 2000), *(e for n in range(20) for e in (op("aten::select", 50 * n, 10), op("aten::item", 50 * n + 12, 30)))],
        "in a row, per step: 20 x (aten::item, aten::select); 800.0 µs of CPU time: 40% of the steps' time",
        [step(0, 0, 2000), *(e for n in range(20) for e in (op("aten::exp", 50 * n, 10), op("aten::item", 50 * n + 12, 30)))],
    ),
    "no-gpu-events": ([step(0, 0, 10), launch(1, 1)], "1 kernel launch and no GPU event", [step(0, 0, 10), op("aten::mm", 1, 2)]),
    "overhead-bound": (
        runs("a", (10, 10, 10)),
        "90% of the critical path is CPU time (nothing recorded 89%, launch calls 0.9%)",
        runs("a", (200, 200, 200)),
    ),
    "gpu-bound": (
        runs("a", (200, 200, 200)),
        "100% of the critical path is GPU compute (a 100%)",
        runs("a", (10, 10, 10)),
    ),
    "copy-bound": (
        [step(0, 0, 100), call("cudaMemcpyAsync", 0, 2, 1), memcpy(10, 80, 1), *linked(ADD, 5, 9, 2, stream=8)],
        "83% of the critical path is copying (Memcpy DtoD 83%)",
        [step(0, 0, 100), call("cudaMemcpyAsync", 0, 2, 1), memcpy(60, 30, 1)],
    ),
    "latency-bound": (
        [step(0, 0, 100), launch(1, 1), kernel(ADD, 60, 9, 1)],
        "86% of the critical path is launch latency",
        [step(0, 0, 100), launch(1, 1), kernel(ADD, 20, 49, 1)],
    ),
    "mixed": (
        [step(0, 0, 100), launch(40, 1), kernel(ADD, 60, 40, 1)],
        "40% of the critical path is GPU compute and 40% is CPU time (add 40%, nothing recorded 40%)",
        [step(0, 0, 100), launch(40, 1), kernel(ADD, 50, 50, 1)],
    ),
    "input-bound": (
        [step(0, 0, 100), annotation(LOADER, 10, 30), *linked(ADD, 60, 39)],
        "waiting for the DataLoader takes 30% of the critical path",
        [step(0, 0, 100), annotation(LOADER, 10, 4), *linked(ADD, 60, 39)],
    ),
    "copies-while-loading": (
        [step(0, 0, 1000), annotation(ALONE, 10, 600), *(e for n in range(8) for e in copied_to_the_gpu(20 + 60 * n, n + 1)),
         *linked(ADD, 900, 80, 20)],
        "8 copies per step to the GPU while the DataLoader loads, with 400.0 µs of CPU time per step",
        [step(0, 0, 1000), annotation(ALONE, 10, 420), *(e for n in range(8) for e in copied_to_the_gpu(20 + 60 * n, n + 1)),
         *linked(ADD, 900, 80, 20)],  # the last one behind it
    ),
    "exposed-communication": (
        [step(0, 0, 100), *linked(GEMM, 0, 59), *linked(NCCL, 10, 89, 2, stream=17)],
        "40.0 µs of 89.0 µs of communication are exposed: 40% of the time",
        [step(0, 0, 100), *linked(GEMM, 0, 99), *linked(NCCL, 10, 39, 2, stream=17)],
    ),
    "late-rank-suspected": (
        [step(0, 0, 1000), *(e for n, us in enumerate((10, 11, 12, 90)) for e in all_reduce(100 * n, us, n))],
        "83.0 µs of 123.0 µs in collectives exceeds the fastest call of equal size; 1 call took over twice as long, "
        "one of them 90.0 µs instead of 10.0 µs",
        [step(0, 0, 1000), *(e for n, us in enumerate((10, 11, 12, 90)) for e in all_reduce(100 * n, us, n, 1000 * (n + 1)))],
    ),
    "unfused-optimizer": (
        [step(0, 0, 1000), annotation("Optimizer.step#AdamW.step", 100, 800),
         *(e for n in range(50) for e in linked(ADD, 110 + 10 * n, 2, n))],
        "50 kernels per optimizer step (median 2.0 µs) and 800.0 µs of CPU time: 83% of the critical path",  # 100 to 602, of 603
        [step(0, 0, 1000), annotation("Optimizer.step#AdamW.step", 100, 800),
         *(e for n in range(50) for e in linked(MULTI_TENSOR, 110 + 10 * n, 2, n))],
    ),
    "many-small-kernels": (
        [step(0, 0, 1000), *(e for n in range(50) for e in linked(ADD, 10 * n, 2, n))],
        "50 of 50 kernels per step take less than 10 µs (median 2.0 µs); the GPU waits for the CPU or a launch in 100% "
        "of the critical path",
        [step(0, 0, 1000), *(e for n in range(49) for e in linked(ADD, 10 * n, 2, n))],
    ),
    "dtype-conversions": (
        [step(0, 0, 100), op("aten::_to_copy", 1, 18), *linked(TO_BF16, 4, 20), launch(20, 2), kernel(ADD, 25, 75, 2)],
        "1 conversion per step: 23% of the critical path, 21% of GPU time",  # with 3 of the op's time before its launch
        [step(0, 0, 100), op("aten::_to_copy", 1, 18), *linked(ADD, 4, 20), launch(20, 2), kernel(ADD, 25, 75, 2)],
    ),
    "layout-copies": (
        [*linked("cudnn::engines_precompiled::nchwToNhwcKernel<float, float>", 0, 2), *linked(ADD, 20, 98, 2)],
        "1 such kernel per step: 2.0% of GPU time",
        [*linked("cudnn::engines_precompiled::nchwToNhwcKernel<float, float>", 0, 1), *linked(ADD, 20, 98, 2)],
    ),
    "recomputation": (
        [op("autograd::engine::evaluate_function: MmBackward0", 0, 90), op("aten::linear", 5, 30), *linked(GEMM, 10, 20),
         *linked(ADD, 60, 20, 2)],
        "in the backward pass: 1 x aten::linear; 50% of GPU time",
        [op("autograd::engine::evaluate_function: MmBackward0", 0, 90), op("aten::mm", 5, 30), *linked(GEMM, 10, 20),
         op("aten::linear", 91, 30), *linked(ADD, 100, 20, 2)],
    ),
    "compute-on-the-cpu": (
        [step(0, 0, 1000), op("aten::div", 100, 300), op("aten::to", 410, 50), op("aten::add", 900, 50), *linked(ADD, 910, 80)],
        "1 aten::div per step (300.0 µs each): 30% of the critical path",  # 300 of the 991 up to the kernel's end
        [step(0, 0, 1000), op("aten::div", 100, 300), call("cudaMalloc", 150, 9, 5), op("aten::to", 410, 50),
         op("aten::add", 900, 50), *linked(ADD, 910, 80)],
    ),
    "cpu-only": (
        [step(0, 0, 100), op("aten::mm", 0, 60), op("aten::add", 60, 25)],
        "60% of the steps' time is aten::mm, 25% is aten::add",
        [step(0, 0, 100), op("aten::mm", 0, 60), op("aten::add", 60, 25), *linked(ADD, 90, 5)],
    ),
    "half-precision-on-cpu": (
        [step(0, 0, 1000), op("aten::mm", 0, 900, **matrices("c10::BFloat16", 256))],  # 2 * 256**3 FLOP
        "aten::mm in bf16: 90% of the time; the largest, of 2 of 256x256 bf16, at 37 GFLOP/s",
        [step(0, 0, 1000), op("aten::mm", 0, 900, **matrices("c10::BFloat16"))],  # 2 * 64**3: the memory may be the limit
    ),
    "many-small-ops": (
        [step(0, 0, 100), *(op("aten::add", n * 1.5, 1) for n in range(50))],
        "50 of 50 outermost ops per step take less than 50 µs (median 1.0 µs; 50 x aten::add): 74% of the time with what is "
        "between them",
        [step(0, 0, 100), *(op("aten::add", n * 1.5, 1) for n in range(49))],
    ),
    "copies-on-the-cpu": (
        [step(0, 0, 100), op("aten::contiguous", 0, 10), op("aten::clone", 1, 8), op("aten::mm", 20, 60)],
        "1 x aten::contiguous (10.0 µs) per step: 10% of the time",
        [step(0, 0, 100), op("aten::contiguous", 0, 9), op("aten::clone", 1, 8), op("aten::mm", 20, 60)],
    ),
    "double-precision-on-cpu": (
        [step(0, 0, 1000), op("aten::mm", 0, 45, **matrices("double")), op("aten::relu", 50, 5, **matrices("double"))],
        "aten::mm in fp64, aten::relu in fp64: 5.0% of the time; the largest product, aten::mm of 2 of 64x64 fp64",
        [step(0, 0, 1000), op("aten::mm", 0, 44, **matrices("double")), op("aten::relu", 50, 5, **matrices("double"))],
    ),
    "attention-in-parts-on-cpu": (
        [step(0, 0, 100), op("aten::bmm", 0, 20), op("aten::view", 20, 1), op("aten::_softmax", 30, 10), op("aten::bmm", 50, 20)],
        "1 softmax per step between two batched products, 50.0 µs each: 50% of the time",
        [step(0, 0, 100), op("aten::bmm", 0, 20), op("aten::_softmax", 30, 10), op("aten::mm", 50, 20)],
    ),
    "gradients-unused": (
        [step(0, 0, 100), forward("aten::mm", 0, 5, 7), forward("aten::add", 10, 5, 8)],
        "autograd recorded 2 nodes per step, and no backward pass is in the trace",
        [step(0, 0, 100), forward("aten::mm", 0, 5, 7), forward("aten::add", 10, 5, 7)],
    ),
    "uneven-steps": (
        [e for n, dur in enumerate((90, 40, 80, 40)) for e in (step(n, n * 100, dur), op("aten::mm", n * 100, dur - 10))],
        "ProfilerStep#2 takes 80.0 µs, the median step 40.0 µs; most of the difference is aten::mm: 70.0 µs there, 30.0 µs in "
        "the median step",
        [e for n, dur in enumerate((90, 40, 79, 40)) for e in (step(n, n * 100, dur), op("aten::mm", n * 100, dur - 10))],
    ),
    "uneven-op": (
        [step(0, 0, 100), *(op("aten::mm", n * 10, 2 + 7 * (n % 2), **matrices("float")) for n in range(10))],
        "10 calls of aten::mm with inputs of one shape: a tenth of them take 2.0 µs and less, a tenth 9.0 µs and more",
        [step(0, 0, 100), *(op("aten::mm", n * 10, 2 + 7 * (n % 2), **matrices("float")) for n in range(9))],
    ),
    "python-between-ops": (
        [step(0, 0, 100), op("aten::view", 1, 9), op("aten::add", 50, 20), *linked(ADD, 60, 9)],
        "1 gap of 40.0 µs or more per step, 40.0 µs of a step, the longest 40.0 µs: 57% of the critical path",
        [step(0, 0, 100), op("aten::view", 1, 10), op("aten::add", 50, 20), *linked(ADD, 60, 9)],
    ),
    "tf32-products": (
        [*linked(TF32, 0, 20), *linked(ADD, 30, 80, 2)],
        "cutlass GEMM 128x128: 20% of GPU time",
        [*linked(TF32, 0, 19), *linked(ADD, 30, 81, 2)],
    ),
    "unaligned-product": (
        [op("aten::mm", 0, 20, **{"Input Dims": [[512, 768], [768, 50257]], "Input type": ["c10::BFloat16"] * 2}),
         *linked(ALIGN1, 1, 20), *linked(ADD, 30, 80, 2)],
        "cutlass GEMM 128x128: 20% of GPU time; of these sizes: 50257",
        [*linked(ALIGN1.replace("align1", "align8"), 0, 20), *linked(ADD, 30, 80, 2)],
    ),
    # 224 tiles of 256x128 are two rounds on 132 SMs, 264 of them; 256 tiles fill them.
    "partial-wave": (
        [op("aten::mm", 0, 20, **products(4096, 1792)), *linked(GEMM, 1, 20), *linked(ADD, 30, 80, 2)],
        "a product of 4,096 x 1,792 is 224 tiles of 256x128: 2 rounds on 132 SMs, filled to 85%",
        [op("aten::mm", 0, 20, **products(4096, 2048)), *linked(GEMM, 1, 20), *linked(ADD, 30, 80, 2)],
    ),
    "cache-growing-by-cat": (
        cats(4, 6, 8, 10),
        "4 cats per step: 70% of the critical path; the first takes 4.0 µs, the longest 10.0 µs",  # 28 of 40
        cats(4, 12, 8, 9),
    ),
    "small-grid": (
        [step(0, 0, 100), *linked(ADD, 0, 99, grid=(66, 1, 1))],
        "1 kernel call with fewer blocks than the 132 multiprocessors, above all add (66 blocks); weighted by the "
        "unused multiprocessors: 50% of the critical path",
        [step(0, 0, 100), *linked(ADD, 0, 99, grid=(128, 1, 1))],
    ),
    "capture-trace": (
        [step(0, 0, 100), call("cudaStreamBeginCapture", 10, 1, 5), launch(20, 6), *linked(ADD, 50, 5)],
        "1 graph capture",
        [step(0, 0, 100), launch(20, 6), *linked(ADD, 50, 5)],
    ),
    "hotspot": (
        [launch(0, 1), launch(0.1, 2), kernel(GEMM, 1, 90, 1), kernel(ADD, 91, 10, 2)],
        "nvjet GEMM 256x128 takes 90% of GPU time in 1 call",
        [*linked(GEMM, 0, 90), *linked(ADD, 500, 10, 2)],  # the GPU waits: it is not what to look at first
    ),
    "many-calls": (
        [step(0, 0, 1000), *(e for n in range(20) for e in linked(ADD, 40 * n, 12, n))],
        "per step: 20 x add (12.0 µs on average)",
        [step(0, 0, 1000), *(e for n in range(19) for e in linked(ADD, 40 * n, 12, n))],
    ),
    "sync-in-step": (
        [step(0, 0, 100), op("aten::item", 30, 40), op("aten::_local_scalar_dense", 31, 38), *linked(ADD, 1, 60),
         call("cudaStreamSynchronize", 32, 30, 9), *linked(ADD, 80, 19, 2)],
        "1 synchronizing call per step took 30.0 µs: aten::_local_scalar_dense (1 call, 30.0 µs); the GPU's wait "
        "afterwards is 18% of the critical path",  # from the wait's end to the launch at 80
        [step(0, 0, 100), *linked(ADD, 1, 60), *linked(ADD, 80, 19, 2), call("cudaDeviceSynchronize", 101, 50, 9)],
    ),
    "blocking-copy": (
        [step(0, 0, 100), op("aten::copy_", 4, 80), call("cudaMemcpyAsync", 5, 50, 1),
         memcpy(10, 44, 1, name="Memcpy HtoD (Pageable -> Device)", bytes=4_000_000), *linked(ADD, 80, 19, 2)],
        "1 copy per step took 50.0 µs: aten::copy_ (1 call, 50.0 µs); up to 4.0 MB each; pageable memory; "
        "copies and the GPU's wait after them are 70% of the critical path",  # the copy's 44 and 26
        [step(0, 0, 100), call("cudaMemcpyAsync", 5, 50, 1), memcpy(60, 10, 1), *linked(ADD, 80, 19, 2)],
    ),
    "blocked-by-the-queue": (
        [step(0, 0, 1000), *queued(950), call("cudaLaunchKernel", 100, 60, 2000), kernel(ADD, 1060, 1, 2000)],
        "1 call per step took 60.0 µs: in no op (1 call, 60.0 µs)",
        [step(0, 0, 1000), *queued(800), call("cudaLaunchKernel", 100, 60, 2000), kernel(ADD, 1060, 1, 2000)],
    ),
    "allocation-in-step": (
        [step(0, 0, 100), op("aten::empty", 10, 50), call("cudaMalloc", 20, 30, 9), *linked(ADD, 80, 19)],
        "managing memory takes 30% of the critical path; with the GPU's wait after frees, 30% of the "
        "critical path",
        [step(0, 0, 100), op("aten::empty", 10, 50), *linked(ADD, 80, 19)],
    ),
    "loading-or-compiling-in-step": (
        [step(0, 0, 100), call("cuModuleLoadData", 20, 30, 9), op("fx (dynamo_timed)", 60, 10), *linked(ADD, 80, 19)],
        "loading code or compiling takes 40% of the critical path",
        [step(0, 0, 100), op("aten::mm", 20, 30), *linked(ADD, 80, 19)],
    ),
    "cold-start": (
        [step(2, 0, 90), step(3, 100, 60), step(4, 200, 40)],
        "ProfilerStep#2 takes 90.0 µs of CPU time, the later steps 50.0 µs (median)",
        [step(2, 0, 70), step(3, 100, 60), step(4, 200, 40)],
    ),
    "entry-gap": (
        gaps(30, 4),
        "from the annotation's start to its first op: #0 30.0 µs, #1 4.0 µs",
        gaps(5, 4),
    ),
    "heavy-launch": (
        [step(0, 0, 9), call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1, 1, 9), *linked(GEMM, 2, 5, **HEAVY)],
        "1 occupancy query in ProfilerStep#0; launched next: nvjet GEMM 256x128 (after 1)",
        [step(0, 0, 9), *linked(GEMM, 2, 5, **HEAVY)],
    ),
    "driver-launch": (
        [launch(0, 1, "cuLaunchKernelEx"), kernel(CUDNN, 2, 5, 1, **HEAVY)],
        "cuDNN attention 64x128x64 (cuLaunchKernelEx)",
        linked(CUDNN, 0, 5, **HEAVY),
    ),
    "light-launch": (
        linked(ADD, 0, 5),
        "add is launched by cudaLaunchKernel and has 32 registers per thread, 0 B of shared memory",
        linked(GEMM, 0, 5, **HEAVY),
    ),
    "profiler-sync": (
        [step(0, 0, 10), call("cudaDeviceSynchronize", 12, 300, 9)],
        "a synchronizing call of 300.0 µs ends after the last step",
        [step(0, 0, 400), call("cudaDeviceSynchronize", 12, 300, 9)],
    ),
    "hidden-copy": (
        [
            op("aten::masked_fill", 0, 20), op("aten::clone", 1, 10), *copied(bytes=2_000_000),
            op("aten::masked_fill_", 12, 5), *linked(ADD, 13, 27, 2),
        ],
        "aten::masked_fill > aten::clone: 1 copy per step, 2.0 MB on average, 25% of GPU time",
        [op("aten::to", 0, 20), *copied(name="Memcpy HtoD (Pageable -> Device)")],
    ),
    "bias-copy": (
        [op("aten::addmm", 0, 20), *copied(), *linked(GEMM, 15, 5, 2)],
        "1 device-to-device copy per step inside an addmm that also launches a GEMM",
        [op("aten::addmm", 0, 20), *linked(GEMM, 15, 5, 2)],
    ),
    "profiler-buffer": (
        [step(0, 0, 10), event("overhead", "Activity Buffer Request", 1, 1770)],
        "1 Activity Buffer Request, 1.77 ms in total",
        [step(0, 0, 10), event("overhead", "Resource", 1, 1770)],
    ),
    "uneven-kernel": (
        runs(GEMM, (90, 72, 71)),
        "nvjet GEMM 256x128: median 72.0 µs, 71.0 µs to 90.0 µs in 3 calls; outliers in ProfilerStep#0",
        runs(GEMM, (72, 72, 71)),
    ),
    "unfused-pointwise": (
        [step(0, 0, 1000), *(launch(n, n) for n in range(60)), *(kernel(ADD, 100 + 20 * n, 20, n) for n in range(60))],
        "60 elementwise kernels per step take 92% of the critical path",
        [step(0, 0, 1000), *(launch(n, n) for n in range(60)), *(kernel(ADD, 100 + 20 * n, 9, n) for n in range(49)),
         *(kernel(GEMM, 100 + 20 * n, 20, n) for n in range(49, 60))],
    ),
    "slow-call": (
        calls_of_an_op(60, 5, 5, 5),
        "1 of 4 calls of aten::x takes 59.0 µs itself, the others 4.0 µs: 28% of the critical path",
        calls_of_an_op(40, 5, 5, 5),
    ),
    "slow-pointwise": (
        [*pointwise("aten::gelu", 0, 100, 1), *pointwise("aten::relu", 200, 20, 2)],
        "gelu moves 40.0 MB at 400 GB/s; relu reaches 2000 GB/s",
        [*pointwise("aten::gelu", 0, 30, 1), *pointwise("aten::relu", 200, 20, 2)],
    ),
    "views-launch-nothing": (
        [op("aten::t", 0, 2), op("aten::transpose", 0.5, 1), *linked(ADD, 5, 5)],
        "1 x aten::t, 1 x aten::transpose of a step launched nothing themselves",
        [op("aten::mm", 0, 2), op("aten::empty", 1, 1), *linked(ADD, 5, 5)],
    ),
    "epilogue-bias": (
        [op("aten::addmm", 0, 9), *linked("nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", 1, 5)],
        "nvjet GEMM 64x8 names a bias in its epilogue (bz_bias)",
        [op("aten::mm", 0, 9), *linked(GEMM, 1, 5)],
    ),
    "two-gemm-tiles": (
        [*linked(GEMM, 0, 5), *linked("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT", 10, 5, 2)],
        "the GEMMs have the tiles 192x128, 256x128",
        [*linked(GEMM, 0, 5), *linked(GEMM, 10, 5, 2)],
    ),
    "fp32-cuda-cores": (
        [*linked(SGEMM, 0, 3), *linked(GEMM, 5, 1, 2)],
        "sgemm 128x64: 75% of GPU time",
        linked(GEMM, 0, 5),
    ),
    "far-from-the-floor": (
        few_rows(1),
        "0.34 GB of weights (the products' second matrices) per step need 69.9 µs at the published 4,800 GB/s; a step "
        "takes 3.00 ms, 43 times as long",
        few_rows(4096),
    ),
    "activations-kept": (
        [*memory_training(), *linked(ADD, 5, 500)],
        "at the peak of 19.0 MiB, 6.0 MiB were kept from the forward pass, 6.0 MiB of it in layer 0, layer 1",
        [*(e for e in memory_training() if e["ts"] < 300), *linked(ADD, 5, 500)],
    ),
    "fused-triton": (
        linked(FUSED, 0, 5),
        f"{FUSED}: a pointwise kernel of _unsafe_view, gelu, mul; 5.0 µs",
        linked("triton_poi_fused_gelu_0", 0, 5),
    ),
    "compile-tax": (
        COMPILED,
        "on average per call: 4.0 µs in the cache lookup, 3.0 µs in the runtime wrapper's prologue",
        [e for e in COMPILED if e["name"] != "TorchDynamo Cache Lookup"],
    ),
    "cache-hits": (COMPILED, "one graph, fadri2gvaccd..., ran in 3 calls", COMPILED[:5]),
    "recompile": (
        [*COMPILED, op("## Call CompiledFxGraph zzzzzzzzzzzzzzzz ##", 400, 5)],
        "2 compiled graphs: fadri2gvaccd... (3 calls), zzzzzzzzzzzz... (1 call)",
        COMPILED,
    ),
    "mask-rebuilt": (
        [e for n in range(2) for e in (step(n, n * 10, 10), op("aten::ones", n * 10 + 1, 1), op("aten::tril", n * 10 + 3, 1))],
        "aten::tril runs 2 times in 2 steps; other mask ops: aten::ones",
        [op("aten::tril", -50, 1), step(0, 0, 10), step(1, 10, 10)],
    ),
    "safe-softmax": (
        [
            op("aten::_safe_softmax", 0, 20), op("aten::_softmax", 1, 5), *linked(SOFTMAX, 2, 30),
            op("aten::isneginf", 7, 5), launch(8, 2), kernel("isneginf", 35, 12, 2), op("aten::mm", 25, 5),
            *linked(GEMM, 60, 9, 3),
        ],
        "aten::_safe_softmax runs 1 time, with 2 kernels and 42.0 µs of GPU time each time",
        [op("aten::_softmax", 0, 5), *linked(SOFTMAX, 2, 30)],
    ),
    "unfused-attention": (
        [step(0, 0, 9), *linked(GEMM, 1, 5), *linked(ADD, 2, 5, 2), *linked(SOFTMAX, 3, 5, 3), *linked(GEMM, 4, 5, 4)],
        "4 kernels per softmax: 2 GEMMs, a softmax and 1 more",
        [step(0, 0, 9), *linked(GEMM, 1, 5), *linked(ADD, 2, 5, 2), *linked(GEMM, 4, 5, 4)],
    ),
    "fused-attention": (
        linked(CUDNN, 0, 5),
        "cuDNN attention 64x128x64 (generated by cuDNN): 5.0 µs per call, for sm90, tile 64x128x64, variant 7",
        linked(SOFTMAX, 0, 5),
    ),
    "opaque-op": (
        [step(0, 0, 100), op("aten::_cudnn_attention_forward", 10, 40), op("aten::empty", 11, 10), *linked(CUDNN, 30, 5)],
        "aten::_cudnn_attention_forward: 29.0 µs of its 40.0 µs per step are self time, 29% of ProfilerStep#0's CPU "
        "time",
        [step(0, 0, 100), op("aten::_cudnn_attention_forward", 10, 40), op("aten::empty", 11, 20), *linked(CUDNN, 40, 5)],
    ),
    "low-occupancy-by-design": (
        linked(FLASH, 0, 5, regs=255, block=(128, 1, 1)),
        "flash attention fwd: 128 threads x 255 registers = 32,640 of 65,536 per SM: 2 blocks, 8 of 64 warps (12.5%)",
        linked(FLASH, 0, 5, regs=32, block=(128, 1, 1)),
    ),
    "occupancy-not-estimated": (
        linked(GEMM, 0, 5, **HEAVY),
        "more than 48 KiB of shared memory: nvjet GEMM 256x128 (213,188 B)",
        linked(GEMM, 0, 5, regs=168, shared=49152),
    ),
    "annotation-double-count": (
        [*linked(ADD, 0, 10), event("gpu_user_annotation", "fwd", 1, 50, {"pid": 0, "tid": 7})],
        "fwd spans 50.0 µs on the GPU, 500% of the summed GPU time",
        [*linked(ADD, 0, 10), event("gpu_user_annotation", "fwd", 1, 10, {"pid": 0, "tid": 7})],
    ),
    "carried-over": (
        [kernel(GEMM, 0, 20, 99), *linked(GEMM, 30, 5)],
        "1 GPU event (20.0 µs) without a launch in the trace",
        [*linked(GEMM, 30, 5), kernel(GEMM, 50, 20, 99)],
    ),
    "graph-launch": (
        [call("cudaGraphLaunch", 0, 2, 1), kernel(GEMM, 5, 5, 1), kernel(ADD, 11, 5, 1)],
        "2 GPU events from 1 graph launch",
        linked(GEMM, 0, 5),
    ),
    "crossing-slices": (
        [kernel("a", 0, 10, 1), kernel("b", 5, 10, 2)],
        "1 crossing slice: b",
        [kernel("a", 0, 10, 1), kernel("b", 5, 10, 2, stream=8)],
    ),
    "threads-take-turns": (
        [step(0, 0, 1000), *linked(ADD, 0, 5, 1), *on(2, op("aten::add", 300, 40), launch(310, 2)), kernel(ADD, 320, 5, 2)],
        "2 threads launch 2 of the trace's 2 launches, and the GPU waits for the CPU in 95% of the critical path",
        [step(0, 0, 1000), *linked(ADD, 0, 5, 1), op("aten::add", 300, 40), launch(310, 2), kernel(ADD, 320, 5, 2)],
    ),
    "own-function": (
        [step(0, 0, 1000), python("train.py(5): step", 10, 980), python("train.py(9): pad", 20, 600),
         op("aten::add", 30, 10), op("aten::mm", 700, 250)],
        "train.py(9): pad, once per step: 600.0 µs with all that it calls, 60% of the steps' time",
        [step(0, 0, 1000), python("train.py(5): step", 10, 980), python("torch/x.py(9): pad", 20, 600),
         op("aten::mm", 700, 250)],
    ),
    "sleeps-in-step": (
        asleep(350),
        "1 sleep() per step, 600.0 µs of a step: 60% of the steps' time; in 350.0 µs of it no other thread is at work",
        [step(0, 0, 1000), python("train.py(5): step", 10, 980), python("<built-in function sort>", 100, 600),
         op("aten::mm", 720, 200)],
    ),
    "another-thread-works": (
        beside(),
        "another thread is at work for 400.0 µs of a step: 40% of the steps' time; the longest there is work.py(3): run",
        beside(waiting=501),
    ),
    "batch-in-pieces": (
        sent_in(16),
        "16 tensors per step from a worker, one after the other: 450.0 µs, 45% of the steps' time",
        sent_in(15),
    ),
    "large-results-on-cpu": (
        [step(0, 0, 50_000), *large(1 << 23)],
        "2 results per step of up to 34 MB: 1 x aten::div, 1 x aten::sub; 20.00 ms of CPU time: 40% of the steps' time",
        [step(0, 0, 50_000), *large((1 << 23) - 1)],
    ),
    "mask-per-class": (
        [step(0, 0, 1000), *masked(16)],
        "labels (100) are compared with 16 numbers, 16 times per step, with 32 ops on these masks; 480.0 µs of CPU time: 48% of "
        "the steps' time",
        [step(0, 0, 1000), *masked(15)],
    ),
    "enlarged-before-a-layer": (
        [step(0, 0, 1000), *enlarged([4, 64, 1, 1])],
        "1 x features are enlarged per step (2x64x8x8, of which a 1x1 convolution makes 6% of the channels); 500.0 µs of CPU "
        "time: 50% of the steps' time",
        [step(0, 0, 1000), *enlarged([33, 64, 1, 1])],
    ),
    "gathered-then-multiplied": (
        [step(0, 0, 1000), shaped("aten::index_select", 5, 90, [100, 16], [], [800]),
         shaped("aten::linear", 100, 500, [800, 16], [4, 16])],
        "1 x a product of 800 rows per step that were gathered from 100; 500.0 µs of CPU time: 50% of the steps' time",
        [step(0, 0, 1000), shaped("aten::index_select", 5, 90, [401, 16], [], [800]),
         shaped("aten::linear", 100, 500, [800, 16], [4, 16])],
    ),
    "many-optimizer-steps": (
        [step(0, 0, 1000), *hooked(9)],
        "8 more optimizer steps in each, 400.0 µs of CPU time: 40% of the steps' time",
        [step(0, 0, 1000), *hooked(8)],
    ),
    "product-in-each-round": (
        [step(0, 0, 1000), *rounds(8)],
        "8 products per step of 640 rows, between others of few; 480.0 µs of CPU time: 48% of the steps' time",
        [step(0, 0, 1000), *rounds(7)],
    ),
    "prefix-again": (
        [step(0, 0, 1000), *longer(*range(100, 108))],
        "8 times the same layers per step, of 100 rows, then 101, to 107; 560.0 µs of CPU time: 56% of the steps' time",
        [step(0, 0, 1000), *longer(*range(100, 107))],
    ),
    "product-order": (
        [step(0, 0, 1000), shaped("aten::matmul", 5, 290, [2, 100, 8], [2, 8, 100]), shaped("aten::div", 300, 5, [2, 100, 100]),
         shaped("aten::matmul", 310, 300, [2, 100, 100], [2, 100, 8])],
        "1 x 2x100x8 by 2x8x100, then by 2x100x8 per step: 12.5 times the operations of the other order; 590.0 µs of CPU time: "
        "59% of the steps' time",
        [step(0, 0, 1000), shaped("aten::matmul", 5, 290, [2, 100, 8], [2, 8, 100]),
         shaped("aten::softmax", 300, 5, [2, 100, 100]), shaped("aten::matmul", 310, 300, [2, 100, 100], [2, 100, 8])],
    ),
    "cut-afterwards": (
        [step(0, 0, 1000), *normalized(2, 3, 32, 32)],
        "3 ops per step make all of a tensor, of which 2x3x8x8 of 2x3x32x32 is taken (6.2%); 300.0 µs of CPU time: 30% of the "
        "steps' time",
        [step(0, 0, 1000), *normalized(2, 3, 8, 8)],
    ),
    "adapters-not-merged": (
        [step(0, 0, 1000), *adapted()],
        "1 adapters per step, of rank 8; 170.0 µs of CPU time: 17% of the steps' time",
        [step(0, 0, 1000), *adapted(rank=32)],  # a quarter of the width is no longer thin
    ),
    "attention-in-float32": (
        [step(0, 0, 1000), *float_attention("float")],
        "1 attention per step of float32 inputs, in a model whose layers have 16 bits: 84% of the critical path",
        [step(0, 0, 1000), *float_attention("c10::BFloat16")],
    ),
    "experts-on-all-tokens": (
        [step(0, 0, 1000), top(4), *EXPERTS, WEIGHTED],
        "4 x (aten::mm, aten::relu) per step of all 32 rows each, 1 of 4 chosen for a row; 320.0 µs of CPU time: 32% of the "
        "steps' time",
        [step(0, 0, 1000), top(5), *EXPERTS, WEIGHTED],
    ),
    "dense-targets": (
        [step(0, 0, 1000), *dense_targets("aten::scatter_")],
        "labels spread over 1,000 classes, and multiplied with log_softmax: 600.0 µs of CPU time per step",
        [step(0, 0, 1000), *dense_targets("aten::sigmoid")],
    ),
    "library-function": (
        [step(0, 0, 1000), python("train.py(5): step", 10, 980), python("torch/serialization.py(9): save", 20, 600),
         op("aten::add", 30, 10), op("aten::mm", 700, 250)],
        "torch/serialization.py: save, called by the program once per step: 600.0 µs with all that it calls, 60% of the steps' "
        "time",
        [step(0, 0, 1000), python("torch/x.py(5): step", 10, 980), python("torch/serialization.py(9): save", 20, 600),
         op("aten::mm", 700, 250)],
    ),
    "tensor-of-a-list": (
        [step(0, 0, 1000), op("aten::empty", 5, 5), op("aten::to", 510, 5), op("aten::lift_fresh", 520, 5),
         op("aten::detach_", 526, 3), op("aten::mm", 600, 300)],
        "1 gap of 40.0 µs or more per step, 500.0 µs of a step, the longest 500.0 µs: 50% of the steps' time",
        [step(0, 0, 1000), op("aten::zeros", 5, 5), op("aten::to", 510, 5), op("aten::lift_fresh", 520, 5),
         op("aten::detach_", 526, 3), op("aten::mm", 600, 300)],
    ),
    "gradients-nobody-uses": (
        [step(0, 0, 1000), *trained(gradients=4, updates=3)],
        "the gradients of 4 parameters are computed in a step, of which the optimizer uses 3 at most; the backward pass is 30% "
        "of the steps' time",
        [step(0, 0, 1000), *trained(gradients=4, updates=4)],
    ),
    "compiled-runs-eager": (
        [step(0, 0, 100), op("TorchDynamo Cache Lookup", 5, 10), *linked(ADD, 40, 20)],
        "1 cache lookup per step, and no compiled region in the trace",
        [step(0, 0, 100), op("TorchDynamo Cache Lookup", 5, 10), op("Torch-Compiled Region: 0/0", 30, 60), *linked(ADD, 40, 20)],
    ),
    "graph-of-compiled-code": (
        [step(0, 0, 1000), op("Torch-Compiled Region: 0/0", 0, 990), *(e for n in range(8) for e in linked(ADD, 100 * n, 2, n))],
        "8 kernels per step, launched one by one from compiled code; the GPU waits for the CPU or a launch in 100% of the "
        "critical path",
        [step(0, 0, 1000), op("Torch-Compiled Region: 0/0", 0, 990), *(e for n in range(7) for e in linked(ADD, 100 * n, 2, n))],
    ),
    "copies-in-turn": (
        [step(0, 0, 100), launch(1, 1, "cudaMemcpyAsync"), memcpy(20, 30, 1, "Memcpy HtoD (Pinned -> Device)"), launch(3, 2),
         kernel(ADD, 50, 150, 2)],
        "1 copy per step on the kernels' stream, 30.0 µs of a step: 15% of the critical path",
        [step(0, 0, 100), launch(1, 1, "cudaMemcpyAsync"), memcpy(20, 30, 1, "Memcpy HtoD (Pinned -> Device)", stream=9),
         launch(3, 2), kernel(ADD, 50, 150, 2)],
    ),
    "backward-twice": (
        [step(0, 0, 1000), *on(2, *(backward("Mm", 100 * n, 90, n % 3) for n in range(6)))],
        "3 of 6 nodes per step run again",
        [step(0, 0, 1000), *on(2, *(backward("Mm", 100 * n, 90, n) for n in range(6)))],
    ),
    "many-backward-passes": (
        [step(0, 0, 1000), *passes(4)],
        "4 backward passes per step, each of 1 nodes: 36% of the steps' time is in all but the first",
        [step(0, 0, 1000), *passes(3)],
    ),
    "anomaly-detection": (
        [step(0, 0, 1000), *on(2, *(e for n in range(4) for e in (backward("Mm", 100 * n, 90, n), isnan(100 * n + 50))))],
        "4 of 4 nodes of the backward pass look for NaN",
        [step(0, 0, 1000), *on(2, *(backward("Mm", 100 * n, 90, n) for n in range(4)), isnan(50))],
    ),
    "repeated-ops": (
        [step(0, 0, 2000), *round_of("aten::select", "aten::maximum")],
        "in a row, per step: 16 x (aten::maximum, aten::select); 1.28 ms of CPU time: 64% of the steps' time",
        [step(0, 0, 2000), *round_of("aten::layer_norm", "aten::maximum")],
    ),
    "inputs-projected-one-by-one": (
        [step(0, 0, 1000), *(e for n in range(8) for e in time_step(n, 6))],
        "in loops, per step: 8 x aten::linear, each of one part of a tensor; 320.0 µs of CPU time",
        [step(0, 0, 1000), *(e for n in range(8) for e in (*time_step(n, 6), shaped("aten::add", 100 * n + 96, 3, [4, 6])))],
        # The state has that shape, too: the layer may take it.
    ),
    "penalty-in-the-loss": (
        [step(0, 0, 1000), *penalty(), *penalty_nodes()],
        "in a row, per step: 4 x (aten::pow, aten::sum); with their backward pass 480.0 µs of CPU time",
        [step(0, 0, 1000), *penalty("aten::mul"), *penalty_nodes()],  # a series of powers, which are not summed up each
    ),
    "memory-grows": (
        [e for n in range(3) for e in (step(n, 100 * n, 90), op("aten::mm", 100 * n, 50), allocated(100 * n + 5, n, n + 1))],
        "GPU 0 memory: 2.0 MiB, 4.0 MiB, 6.0 MiB at the ends of the steps: 2.0 MiB more after each",
        [e for n in range(3) for e in (step(n, 100 * n, 90), op("aten::mm", 100 * n, 50), allocated(100 * n + 5, n, 1),
                                       memory(100 * n + 50, n, -2 * MIB, 0))],
    ),
    "written-out": (
        [step(0, 0, 1000), *run_of(RMS)],
        "per step: 1 x RMSNorm, of 5 ops",
        [step(0, 0, 1000), *run_of(RMS[1:])],
    ),
    "loop-over-tensors": (
        [step(0, 0, 1000), *(e for n in range(8) for e in (op("aten::mul_", 100 * n, 40), op("aten::add_", 100 * n + 50, 40)))],
        "in a row, per step: 8 x (aten::add_, aten::mul_); 640.0 µs of CPU time: 64% of the steps' time",
        [step(0, 0, 1000), *(e for n in range(7) for e in (op("aten::mul_", 100 * n, 40), op("aten::add_", 100 * n + 50, 40)))],
    ),
    "constants-made-again": (
        [step(0, 0, 1000), *(e for n in range(3) for e in constants(150 * n))],
        "per step: 3 x (aten::arange to aten::cos, 5 ops); 270.0 µs of CPU time: 27% of the steps' time",
        [step(0, 0, 1000), *(e for n in range(3) for e in constants(150 * n, data=[64, 1]))],
    ),
    "history-in-each-round": (
        [step(0, 0, 1000), *history()],
        "per step: 6 x aten::argsort of 10 to 60 rows, with what goes with it; 470.0 µs of CPU time: 47% of the steps' time",
        [step(0, 0, 1000), *history((10, 20, 30, 40, 50, 50))],
    ),
    "statistics-of-a-table": (
        [step(0, 0, 1000), *of_a_table()],
        "1 x aten::mean, 1 x aten::std per step, of a table of 5000x8; 200.0 µs of CPU time: 20% of the steps' time",
        [step(0, 0, 1000), *of_a_table(rows=999)],
    ),
    "attention-in-parts": (
        [step(0, 0, 1000), *in_parts(4)],
        "in a row with queries of 1x1x16x8 of 2x2x16x8, per step: 4 x (aten::scaled_dot_product_attention); 192.0 µs of CPU "
        "time: 19% of the steps' time",
        [step(0, 0, 1000), *in_parts(3)],
    ),
    "gradients-of-another-part": (
        parts(*UNDETACHED),
        "backward pass 1 of 2 in a step, before Optimizer.step#SGD.step, computes the gradients of 4 parameters, of which 2 are "
        "updated; the next pass computes the others anew; 118.0 µs of CPU time: 12% of the steps' time",
        parts((CRITIC, (), CRITIC), (DRAWS, (), DRAWS)),
    ),
    "forward-without-gradient": (
        [step(0, 0, 1000), *layers_twice()],
        "2 of 4 layers per step run without a gradient, with the same shapes; 170.0 µs of CPU time: 17% of the steps' time",
        [step(0, 0, 1000), *layers_twice(again=((64, 8), (8, 64)))],
    ),
    "frozen-layers-run-again": (
        [step(0, 0, 1000), *layers_twice((2, 3), again=((64, 8), (8, 64)))],
        "2 of 4 layers per step run without a gradient, of other shapes; 170.0 µs of CPU time: 17% of the steps' time",
        [step(0, 0, 1000), *layers_twice((2, 3))],
    ),
    "expanded-then-copied": (
        [step(0, 0, 1000), *repeated_heads(attends=TAKES_HEADS)],
        "2 tensors per step from 2x4x1x100x16 to 2x4x4x100x16; 200.0 µs of CPU time: 20% of the steps' time",
        [step(0, 0, 1000), *repeated_heads(copy=(), attends=TAKES_HEADS)],  # a view
    ),
    "workers-start-anew": (
        epochs(),
        "the call before the gap takes 20.00 ms, the one behind it 15.00 ms, the others 100.0 µs; 30.00 ms between the two",
        epochs(last=100),
    ),
    "loop-of-small-products": (
        [step(0, 0, 1000), *(e for n in range(8) for e in expert(n, 16))],
        "in a row, per step: 8 x (aten::mm, aten::relu); 640.0 µs of CPU time: 64% of the steps' time",
        [step(0, 0, 1000), *(e for n in range(8) for e in expert(n, 64))],  # as wide out as in: a layer may take what one made
    ),
    "zero-timestamps": (
        [step(0, 5e12, 10), launch(5e12 + 1, 1), kernel("a", 0, 5, 1), kernel("a", 5e12 + 5, 5, 1)],
        "kernels with a start or a duration of 0: 1 of 1",
        [step(0, 5e12, 10), launch(5e12 + 1, 1), kernel("a", 5e12 + 5, 5, 1)],
    ),
}  # fmt: skip


def test_every_finding_has_a_case():
    """Those of the catalogue in test_catalogue.py, those of collectives in test_collective_calls.py."""
    assert set(PATTERNS) == set(CASES) | {entry.slug for entry in ENTRIES} | OF_COLLECTIVES


def found(path, events):
    return {f.slug: f.seen for f in read(write(path / "t.json", *events)).findings}


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        ({"gradients": 4, "updates": 1, "name": "aten::_foreach_add_", "grid": 3}, "the gradients of 4 parameters are computed "
         "in a step, of which the optimizer uses 3 at most; the backward pass"),
        ({"gradients": 4, "updates": 1, "name": "aten::_foreach_add_", "grid": 4}, None),
        ({"gradients": 4, "updates": 2, "name": "aten::_fused_adam_", "grid": 2}, None),
        # Of three chunks each: 12 in all.
        ({"gradients": 4, "updates": 1, "size": 140_000, "name": "aten::_foreach_add_", "grid": 9}, "the gradients of 4 "
         "parameters are computed in a step; in pieces of at most 65,536 numbers these are 12, of which the optimizer uses 9 at "
         "most"),
        ({"gradients": 4, "updates": 1, "size": 140_000, "name": "aten::_foreach_add_", "grid": 10}, None),
        ({"gradients": 4, "updates": 2, "size": 140_000}, "65,536 numbers these are 12, of which the optimizer uses 6 at most"),
        ({"gradients": 0, "updates": 2}, None),
        ({"gradients": 4, "updates": 0}, None),
    ],
)  # fmt: skip
def test_gradients_that_the_optimizer_cannot_have_used(tmp_path, made, seen):
    said = found(tmp_path, [step(0, 0, 1000), *trained(**made)]).get("gradients-nobody-uses")
    assert seen in said if seen else said is None


@pytest.mark.parametrize(("scaled", "made", "told"), [("addcmul_", 4, True), ("addcmul_", 2, False), ("sub_", 4, False)])
def test_adam_multiplies_twice_for_each_parameter_that_it_changes(tmp_path, scaled, made, told):
    """Of two parameters: mul_ four times, addcdiv_ twice. Of another optimizer each mul_ may change one of its own."""
    names = ["mul_", "mul_", scaled, "addcdiv_"] * 2
    updates = [op(f"aten::{name}", 705 + 20 * n, 15) for n, name in enumerate(names)]
    seen = found(tmp_path, [step(0, 0, 1000), *trained(gradients=made, updates=0), *updates])
    assert ("gradients-nobody-uses" in seen) is told
    if told:
        words = "the gradients of 4 parameters are computed in a step, of which the optimizer uses 2 at most; "
        assert seen["gradients-nobody-uses"].startswith(words)
        # Of one of the two, the weight does not decay.
        seen = found(tmp_path, [step(0, 0, 1000), *trained(gradients=made, updates=0), *updates[1:]])
        assert seen["gradients-nobody-uses"].startswith(words)


def test_gradients_of_two_losses_and_of_two_optimizers_are_not_told(tmp_path):
    once = trained(gradients=4, updates=1)
    assert "gradients-nobody-uses" in found(tmp_path, [step(0, 0, 1000), *once])
    for more in (backward("Mm", 430, 10, 1), annotation("Optimizer.step#SGD.step", 980, 10)):
        assert "gradients-nobody-uses" not in found(tmp_path, [step(0, 0, 1000), *once, more])


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        ({}, True),
        ({"few": 21}, False),  # not so many more
        ({"apart": False}, False),  # layers of an encoder, and those of a head
        ({"second": (2, 16, 8)}, False),  # a matrix for each
        ({"n": 16, "at_once": 2}, True),  # keys and values
        ({"n": 16, "at_once": 4}, False),
    ],
)
def test_a_product_in_each_round_is_far_larger_than_what_is_between(tmp_path, made, seen):
    events = [step(0, 0, 1000), *rounds(**{"n": 8} | made)]
    assert ("product-in-each-round" in found(tmp_path, events)) is seen
    assert "product-in-each-round" not in found(tmp_path, [*events, *on(2, backward("Mm", 5, 90, 1))])


@pytest.mark.parametrize(("op_us", "told"), [(60, True), (40, False)])
def test_of_a_step_that_is_nearly_all_in_no_op_nothing_is_promised(tmp_path, op_us, told):
    """What a step does is in these gaps: other threads may compute there, unrecorded."""
    trace = write(
        tmp_path / "t.json", *(e for n in range(3) for e in (step(n, 1000 * n, 1000), op("aten::cat", 1000 * n, op_us)))
    )
    (one,) = [f for f in read(trace).findings if f.slug == "python-between-ops"]
    assert (one.gain is not None) is told


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (range(100, 110), "10 times the same layers per step, of 100 rows, then 101, to 109;"),
        ([7, *range(100, 108)], "8 times the same layers per step, of 100 rows, then 101, to 107;"),
        ([*range(100, 109), 7], "9 times the same layers per step, of 100 rows, then 101, to 108;"),
        ([*range(100, 105), *range(106, 111)], ""),  # not by one each time
        (range(100, 120, 2), ""),
        ([100] * 10, ""),
        (range(110, 100, -1), ""),
    ],
)
def test_rows_that_grow_one_by_one_are_computed_again(tmp_path, rows, told):
    events = [step(0, 0, 1000), *longer(*rows)]
    seen = found(tmp_path, events).get("prefix-again", "")
    assert seen.startswith(told) and bool(seen) is bool(told)
    assert "prefix-again" not in found(tmp_path, [*events, *on(2, backward("Mm", 5, 90, 1))])


@pytest.mark.parametrize("other", [{"attends": "aten::relu"}, {"appends": "aten::add"}])
def test_texts_that_are_longer_each_time_are_no_text_that_is_written(tmp_path, other):
    """Without attention over the rows, or without what puts a new one to them."""
    assert "prefix-again" not in found(tmp_path, [step(0, 0, 1000), *longer(*range(100, 110), **other)])


def test_two_texts_that_are_written_are_counted_each(tmp_path):
    both = [*longer(*range(100, 110)), *longer(*range(500, 508), at=1000)]
    more = [*both, *({**event, "ts": event["ts"] + 2000} for event in both)]
    seen = found(tmp_path, [step(0, 0, 2000), step(1, 2000, 2000), *more])["prefix-again"]
    assert seen.startswith(
        "10 times the same layers per step, of 100 rows, then 101, to 109, and 8 times other lengths; 1.28 ms "
    )


def test_of_what_is_computed_again_the_first_round_and_the_new_rows_are_left(tmp_path):
    """And what does not grow: of 2,000, ten rounds of 80 are the same layers, one of them the first; a sort is behind them."""
    events = [step(0, 0, 2000), *longer(*range(100, 110)), shaped("aten::sort", 1000, 1000, [2, 7])]
    trace = write(tmp_path / "t.json", *events, plain_step_us={"median": 2000, "low": 2000, "high": 2000})
    (one,) = [f for f in read(trace).findings if f.slug == "prefix-again"]
    assert one.share == pytest.approx(9 * 80 / 2000)
    sure = 0.36 * (1 - 1 / 105)
    assert one.gain.low < sure < one.gain.high < 0.6


CONV = ("aten::conv2d", [1, 3, 8, 8], [4, 3, 3, 3])
HEAD = [CONV, ("aten::relu", [1, 4, 8, 8]), ("aten::mean", [1, 4, 8, 8]), ("aten::linear", [1, 4], [9, 4])]
HIDDEN, WIDE = [2, 1, 16], [2, 1, 64]
LAYER = [("aten::layer_norm", HIDDEN, [16]), ("aten::linear", HIDDEN, [64, 16]), ("aten::gelu", WIDE),
         ("aten::linear", WIDE, [16, 64]), ("aten::add", HIDDEN, HIDDEN)]  # fmt: skip
MEMORY = [("aten::linear", [2, 90, 16], [16, 16]), ("aten::linear", HIDDEN, [16, 16]),
          ("aten::scaled_dot_product_attention", HIDDEN, [2, 90, 16], [2, 90, 16])]  # fmt: skip


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (HEAD, True),
        ([("aten::unsqueeze", [3, 8, 8]), *HEAD], True),
        (HEAD[1:] + HEAD[:1], True),  # begun elsewhere
        (LAYER, False),  # what stands beside the layer goes on
        (LAYER[2:] + MEMORY + LAYER[:2], False),  # of a decoder: what it reads comes from outside, and its state goes on
        ([("aten::unbind", [2, 2, 90, 16]), *LAYER], False),  # no part of it is what the layer takes
        ([("aten::linear", [2, 16], [16, 16]), ("aten::tanh", [2, 16])], False),
        ([("aten::linear", [2, 4], [16, 4]), ("aten::unbind", [2, 16]), ("aten::sin", [2]), ("aten::stack",)], False),
        ([("aten::lstm", [2, 9, 4]), ("aten::select", [2, 9, 16]), ("aten::linear", [2, 16], [5, 16])], False),  # hidden states
        ([("aten::linear", [2, 4], [12, 4]), ("aten::chunk", [2, 12]), ("aten::mul", [2, 6], [2, 6]),
          ("aten::linear", [2, 6], [5, 6])], True),  # two parts of one
        ([("aten::linear", [2, 4], [6, 4]), ("aten::mul", [2, 6], [2, 6]), ("aten::linear", [2, 6], [6, 6])], False),
        # One of two products may be kept, and the state be added to the other.
        ([("aten::linear", [2, 4], [6, 4]), ("aten::linear", [2, 4], [6, 4]), ("aten::add", [2, 6], [2, 6])], False),
        ([("aten::linear", [2, 4], [6, 4]), ("aten::linear", [2, 4], [6, 4]), ("aten::add", [2, 6], [2, 6]),
          ("aten::linear", [2, 6], [5, 6])], True),
        # Of a gate's parts and a state, as above.
        ([("aten::linear", [2, 4], [12, 4]), ("aten::chunk", [2, 12]), ("aten::mul", [2, 6], [2, 6])], False),
        ([("aten::linear", [2, 4], [6, 4]), ("aten::relu", [2, 6])], True),
        # What flows is broadcast, added to, or made by an outer product.
        ([("aten::matmul", [9, 9], [2, 9, 6])], False),
        ([("aten::baddbmm", [2, 6, 6], [2, 6, 1], [2, 1, 6])], False),
        ([("aten::addmm", [6], [2, 4], [4, 6]), ("aten::relu", [2, 6])], True),  # a bias
        ([("aten::mul", [6, 1], [1, 4]), ("aten::mul", [6, 4], [6, 4]), ("aten::mm", [6, 4], [4, 4])], False),
        ([CONV, ("aten::max_pool2d", [1, 4, 8, 8]), ("aten::view", [1, 4, 4, 4]), ("aten::linear", [1, 64], [9, 64])], True),
        ([CONV, ("aten::max_pool2d", [1, 4, 8, 8]), ("aten::view", [1, 5, 4, 4]), ("aten::linear", [1, 80], [9, 80])], False),
        # A network of frames, whose results are kept flat; a state that comes back in another shape, with as many numbers.
        ([("aten::select", [1, 4, 3, 8, 8]), CONV, ("aten::relu", [1, 4, 8, 8]), ("aten::flatten", [1, 4, 8, 8])], True),
        ([CONV, ("aten::relu", [1, 4, 8, 8]), ("aten::flatten", [1, 4, 8, 8]), ("aten::mm", [3, 7], [7, 4]),
          ("aten::mm", [2, 128], [128, 5])], False),
        ([("aten::linear", [2, 8], [6, 8]), ("aten::narrow", [2, 6]), ("aten::linear", [2, 3], [5, 3])], True),
        ([("aten::linear", [2, 8], [6, 8]), ("aten::narrow", [2, 6]), ("aten::linear", [1, 3], [5, 3])], False),  # two parts
        ([("aten::linear", [2, 8], [6, 8]), ("aten::amax", [2, 6]), ("aten::linear", [2], [5, 2])], True),
        ([("aten::linear", [2, 8], [6, 8]), ("aten::amax", [2, 6]), ("aten::linear", [3], [5, 3])], False),
    ],
)  # fmt: skip
def test_rounds_that_may_need_each_others_results_are_not_done_at_once(tmp_path, ops, told):
    made = [shaped(name, 5 + 20 * n, 18, *dims) for n, (name, *dims) in enumerate(ops * 4)]
    assert ("loop-of-small-products" in found(tmp_path, [step(0, 0, 1000), *made])) is told


def test_of_a_loop_only_the_runs_whose_rounds_do_not_chain_are_told(tmp_path):
    """Four heads, and behind them four layers of the same ops."""
    heads, layers = [[2, 4], [6, 4]], [[2, 6], [6, 6]]
    ops = [(name, dims) for dims in (heads, layers) for _ in range(4) for name in ("aten::linear", "aten::relu")]
    made = [shaped(name, 5 + 20 * n, 18, *(dims if name == "aten::linear" else [[2, 6]])) for n, (name, dims) in enumerate(ops)]
    seen = found(tmp_path, [step(0, 0, 1000), *made[:8], op("aten::cat", 166, 2), *(later(e, 5) for e in made[8:])])
    assert seen["loop-of-small-products"].startswith("in a row, per step: 4 x (aten::linear, aten::relu); 144.0 µs of CPU time: ")


@pytest.mark.parametrize(
    ("grid", "device", "saved"),
    [
        ([33, 1, 1], [{"id": 0, "numSms": 132}], 0.625),  # of 840 are left: the first kernel's 100, and a quarter of the others'
        ([11, 3, 1], [{"id": 0, "numSms": 132}], 0.625),
        ([264, 1, 1], [{"id": 0, "numSms": 132}], 0),  # each fills the GPU
        ([33, 1, 1], [], 0),  # how many blocks it takes is not known
    ],
)
def test_kernels_of_a_loop_are_done_at_once_as_far_as_they_fit_beside_each_other(tmp_path, grid, device, saved):
    events = []
    for n in range(4):
        events += [step(n, 840 * n, 840), call("cudaDeviceSynchronize", 840 * n + 90, 735, 10 * n)]
        for k in range(8):
            number, inputs = 10 * n + k + 1, {"Input Dims": [[32, 64], [64, 16]], "Input type": ["float"] * 2}
            events += [op("aten::mm", 840 * n + 5 + 10 * k, 8, **inputs), launch(840 * n + 6 + 10 * k, number)]
            events += [kernel(GEMM, 840 * n + 100 * k + 20, 100, number, grid=grid)]
    path = write(tmp_path / "t.json", *events, deviceProperties=device)
    (one,) = [f for f in read(path).findings if f.slug == "loop-of-small-products"]
    assert one.gain.high == pytest.approx(saved, abs=0.01)


def test_two_runs_of_a_loop_are_told_as_two(tmp_path):
    ops = [shaped(name, 5 + 20 * n, 18, *dims) for n, (name, dims) in enumerate(
        4 * [("aten::linear", [[2, 4], [6, 4]]), ("aten::relu", [[2, 6]])])]  # fmt: skip
    seen = found(tmp_path, [step(0, 0, 1000), *ops, op("aten::cat", 166, 2), *(later(e, 200) for e in ops)])
    told = "in a row, per step: 8 x (aten::linear, aten::relu) in 2 runs; 288.0 µs of CPU time: "
    assert seen["loop-of-small-products"].startswith(told)


@pytest.mark.parametrize(
    ("choice", "weight", "told"),
    [
        (top(4), WEIGHTED, True),
        (top(2), shaped("aten::mul", 510, 20, [32, 16], [32, 1]), True),  # two runs of experts; each round's result is weighted
        (top(4, name="aten::max"), WEIGHTED, True),
        (top(4, start=520), WEIGHTED, False),  # of what the layers made
        (top(4, name="aten::argmax"), WEIGHTED, False),  # the classes that are right
        (shaped("aten::max", 5, 20, [32, 4], [32, 4]), WEIGHTED, False),  # of two tensors
        (top(4), shaped("aten::mul", 510, 20, [32, 16], [32, 16]), False),
        (top(4), shaped("aten::sum", 510, 20, [32, 4, 1]), False),
        (top(3), WEIGHTED, False),  # of four rounds
        (top(4, dim="0"), WEIGHTED, False),  # of the tokens
        (top(4, name="aten::max", dim="0"), WEIGHTED, False),
        (op("aten::max", 5, 20, **{"Input Dims": [[32, 4]], "Input type": ["float"], "Concrete Inputs": [""]}), WEIGHTED, False),
    ],
)
def test_experts_are_chosen_before_and_weighted_behind(tmp_path, choice, weight, told):
    assert ("experts-on-all-tokens" in found(tmp_path, [step(0, 0, 1000), choice, *EXPERTS, weight])) is told


def test_experts_that_are_all_used_are_as_they_should_be(tmp_path):
    """A choice is made, and nothing makes zeros of it."""
    events = [step(0, 0, 1000), top(4), *EXPERTS[1:], WEIGHTED]
    assert "experts-on-all-tokens" not in found(tmp_path, events)


def test_experts_of_two_layers_are_told_by_the_longer_ones(tmp_path):
    second = [later(e, 1000) for e in (top(2), *EXPERTS[:4], *EXPERTS[4:], shaped("aten::mul", 510, 20, [32, 16], [32, 1]))]
    seen = found(tmp_path, [step(0, 0, 2000), top(4), *EXPERTS, WEIGHTED, *second, op("aten::cat", 1900, 2)])
    assert seen["experts-on-all-tokens"].startswith(
        "4 x (aten::mm, aten::relu) per step of all 32 rows each, 1 of 4 chosen for a row, and 4 others; 640.0 µs of CPU time"
    )


def test_products_of_several_shapes_are_told_by_the_longest(tmp_path):
    """Each has its own share of operations that are left."""
    made = [shaped("aten::matmul", 5, 290, [100, 8], [8, 100]), shaped("aten::matmul", 310, 300, [100, 100], [100, 8]),
            shaped("aten::matmul", 620, 20, [60, 4], [4, 60]), shaped("aten::matmul", 650, 20, [60, 60], [60, 4])]  # fmt: skip
    seen = found(tmp_path, [step(0, 0, 1000), *made])["product-order"]
    assert seen.startswith("1 x 100x8 by 8x100, then by 100x8 per step: 12.5 times the operations of the other order, and 1 of ")


def test_the_first_product_may_be_needed_where_another_op_takes_its_shape(tmp_path):
    made = [shaped("aten::matmul", 5, 290, [100, 8], [8, 100]), shaped("aten::matmul", 310, 300, [100, 100], [100, 8])]
    for also, told in (([100, 99], True), ([100, 100], False)):
        events = [step(0, 0, 1000), *made, shaped("aten::softmax", 700, 10, also)]
        assert ("product-order" in found(tmp_path, events)) is told


@pytest.mark.parametrize(
    ("between", "told"),
    [
        ([], True),
        ([shaped("aten::mul", 401, 5, [64, 1000]), shaped("aten::add_", 407, 2, [64, 1000])], True),  # smoothed
        ([shaped("aten::mul", 401, 5, [64, 1000], [64, 1])], False),  # mixed
        ([shaped("aten::index", 401, 5, [64, 1000], [64])], False),
        ([shaped("aten::div", 401, 8, [64, 1000])], True),  # the logits by a temperature: told, and not counted
        ([shaped("aten::mul", 401, 5, [64, 1000], [64, 1000])], False),  # the first that takes such two is not behind log_softmax
    ],
)
def test_targets_that_are_more_than_labels_are_dense(tmp_path, between, told):
    events = dense_targets("aten::scatter_")
    events[2:2] = between
    assert ("dense-targets" in found(tmp_path, [step(0, 0, 1000), *events])) is told


@pytest.mark.parametrize(
    ("name", "dims", "told"),
    [("aten::one_hot", [64], True), ("aten::one_hot", [32], False), ("aten::scatter_", [64, 1000], False)],  # of no index
)
def test_labels_are_spread_by_one_hot_too(tmp_path, name, dims, told):
    events = [*dense_targets("aten::sigmoid")[2:], shaped(name, 512, 5, dims)]
    assert ("dense-targets" in found(tmp_path, [step(0, 0, 1000), *events])) is told


def test_of_dense_targets_the_temperature_and_what_comes_later_are_not_counted(tmp_path):
    """Of labels for a metric, behind the loss, too; where they alone are scattered, nothing is told."""
    div, later_labels = shaped("aten::div", 401, 8, [64, 1000]), shaped("aten::scatter_", 740, 90, [64, 1000], [64, 1])
    events = dense_targets("aten::scatter_")
    told = found(tmp_path, [step(0, 0, 1000), *events[:2], div, *events[2:], later_labels])["dense-targets"]
    assert told.endswith(": 600.0 µs of CPU time per step")
    assert "dense-targets" not in found(tmp_path, [step(0, 0, 1000), *events[2:], later_labels])


def test_a_scatter_of_several_classes_for_each_row_is_of_no_labels(tmp_path):
    events = dense_targets("aten::scatter_")
    events[1] = shaped("aten::scatter_", 200, 200, [64, 1000], [64, 5])
    assert "dense-targets" not in found(tmp_path, [step(0, 0, 1000), *events])


def test_rounds_whose_inputs_lie_otherwise_in_memory_are_of_one_loop(tmp_path):
    strides = [[[1]], [[1]], [[2]], [[2]]]
    made = [op("aten::mm", 5 + 60 * n, 45, **{"Input Dims": [[32, 64], [64, 16]], "Input type": ["float"] * 2,
                                                "Input Strides": lies * 2}) for n, lies in enumerate(strides)]  # fmt: skip
    (one,) = [f for f in read(write(tmp_path / "a.json", step(0, 0, 1000), *made)).findings if f.slug == "loop-of-small-products"]
    assert one.seen.startswith("in a row, per step: 4 x (aten::mm)")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (([100, 8], [8, 100]), ([100, 100], [100, 8]), True),
        (([8, 100], [100, 100]), ([8, 8], [8, 100]), False),  # another's result
        (([100, 100], [100, 8]), ([8, 100], [100, 8]), False),  # smaller than what goes in
        (([100, 8], [8, 100]), ([4, 100], [100, 100]), True),  # as the second matrix
        (([2, 100, 8], [2, 8, 100]), ([2, 100, 100], [100, 8]), False),  # batches differ
    ],
)
def test_the_order_of_two_products_is_by_their_shapes(tmp_path, first, second, told):
    made = [shaped("aten::matmul", 5, 290, *map(list, first)), shaped("aten::matmul", 310, 300, *map(list, second))]
    assert ("product-order" in found(tmp_path, [step(0, 0, 1000), *made])) is told


def test_rows_that_each_have_a_matrix_are_not_multiplied_before_the_gather(tmp_path):
    gather = shaped("aten::index_select", 5, 90, [100, 16], [], [800])
    for second, between, seen in (([16, 4], [], True), ([800, 16, 4], [], False), ([16, 4], [op("aten::relu", 96, 3)], False)):
        events = [step(0, 0, 1000), gather, *between, shaped("aten::matmul", 100, 500, [800, 16], second)]
        assert ("gathered-then-multiplied" in found(tmp_path, events)) is seen


@pytest.mark.parametrize(
    ("more", "gain", "words"),
    [
        ({}, True, "Call scaled_dot_product_attention(..., enable_gqa=True)"),
        ({"way": "aten::clone"}, True, "Call scaled_dot_product_attention(..., enable_gqa=True)"),
        ({"way": "aten::reshape"}, True, "Call scaled_dot_product_attention(..., enable_gqa=True)"),
        ({"attends": attends(heads=4)}, True, "Leave the expanded tensor"),  # as many heads: another dimension is repeated
        ({"attends": shaped("aten::mul", 400, 300, [2, 16, 100, 16], [2, 16, 100, 16])}, True, "Leave the expanded tensor"),
        ({"attends": shaped("aten::matmul", 400, 300, [2, 16, 1, 100], [2, 16, 100, 16])}, False, "A batched product writes"),
        ({"attends": shaped("aten::conv2d", 400, 300, [2, 16, 100, 16], [16, 16, 3, 3])}, False, ""),
        ({"attends": shaped("aten::mul_", 400, 300, [2, 16, 100, 16], [])}, False, ""),  # a view cannot be changed so
        ({"attends": attends(keys=200)}, False, ""),  # others than what was copied
        ({"view": "aten::transpose"}, False, ""),
        ({"between": (op("aten::neg", 130, 5), op("aten::neg", 280, 5))}, False, ""),  # it is the negative that is copied
        ({"times": 1}, False, ""),
        ({"times": 2}, True, "Leave the expanded tensor a view"),  # for fewer heads than the queries have
        ({"width": 8}, False, ""),  # another tensor than the view is copied
        ({"strides": [[6400, 1600, 1600, 16, 1]]}, False, ""),  # and so it is by its strides
        ({"strides": [[6400, 1600, 0, 16, 1]]}, True, "Call scaled_dot_product_attention(..., enable_gqa=True)"),
        ({"rows": 0}, False, ""),
    ],
)  # fmt: skip
def test_a_view_that_repeats_is_copied_for_what_could_take_the_view(tmp_path, more, gain, words):
    more = {"attends": attends(keys=50 if more.get("times") == 2 else 100), **more}
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *repeated_heads(**more)))
    assert not facts.failed
    (one,) = [f for f in facts.findings if f.slug == "expanded-then-copied"] or [None]
    assert (one.next if one else "").startswith(words) and bool(one) is bool(words)
    assert (one.gain is not None) is gain if one else not gain


def test_attention_of_heads_in_float32_is_to_be_timed(tmp_path):
    events = [step(0, 0, 1000), *repeated_heads(attends=TAKES_HEADS), *linked(ADD, 900, 50, 9)]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "expanded-then-copied"]
    assert one.next.endswith("leave out the expand and the copy. Time both.")
    assert (one.gain, one.gain_unknown_because) == (None, "in float32, attention of fewer heads can take longer")


def test_what_most_copies_of_a_shape_are_taken_by_says_what_to_do(tmp_path):
    """One of other numbers, for a batched product, leaves the words and the gain of two for attention."""
    product = shaped("aten::matmul", 870, 20, [2, 4, 4, 8, 16], [2, 4, 4, 16, 8])
    other = [shaped("aten::expand", 800, 5, [2, 4, 1, 8, 16]), shaped("aten::reshape", 810, 50, [2, 4, 4, 8, 16]),
             op("aten::copy_", 812, 40), product]  # fmt: skip
    events = [step(0, 0, 1000), *repeated_heads(attends=TAKES_HEADS), *other]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "expanded-then-copied"]
    assert one.seen.startswith("2 tensors per step from 2x4x1x100x16 to 2x4x4x100x16, and 1 of other shapes; ")
    assert one.next.startswith("Call scaled_dot_product_attention") and one.gain is not None


@pytest.mark.parametrize(("between", "told"), [(13, True), (15, False)])
def test_what_takes_a_copy_is_near(tmp_path, between, told):
    """The values' copy and its expand stand behind the keys', and up to thirteen ops more."""
    ops = [op("aten::neg", 391 + 0.5 * n, 0.4) for n in range(between)]
    events = [step(0, 0, 1000), *repeated_heads(between=ops, attends=TAKES_HEADS)]
    seen = found(tmp_path, events).get("expanded-then-copied", "")
    assert seen.startswith("2 tensors per step" if told else "1 tensor per step")


@pytest.mark.parametrize(
    ("convolution", "words"),
    [("conv1d", "unsqueeze(2)"), ("conv2d", "Keep model and images in channels_last: "), ("conv3d", "channels_last_3d"),
     ("convolution_backward", "Keep model and images")],
)  # fmt: skip
def test_channels_last_is_a_layout_of_images(tmp_path, convolution, words):
    layout = linked("cudnn::engines_precompiled::nchwToNhwcKernel<float, float>", 1, 9)
    events = [step(0, 0, 200), op(f"aten::{convolution}", 0, 50), *layout, op("aten::conv1d", 60, 30), *linked(ADD, 65, 30, 2)]
    assert words in advice(tmp_path, "layout-copies", *events)  # by the convolutions that have these kernels
    effect = examine(load(write(tmp_path / "t.json", *events))).effect("layout-copies")
    assert (effect.least is None) is (convolution == "conv1d")  # nothing of it is sure


def test_values_that_are_listed_before_they_become_a_tensor(tmp_path):
    """The gap right before torch.tensor counts, none that another op ends."""
    events = [step(0, 0, 1000), op("aten::relu", 1, 5), op("aten::empty", 106, 5), op("aten::to", 510, 5),
              op("aten::lift_fresh", 520, 5), op("aten::detach_", 526, 3), op("aten::mm", 700, 290)]  # fmt: skip
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "tensor-of-a-list"]
    before = "100.0 µs of a step right before, where torch.tensor may look for the list's type, or the list be made"
    assert one.seen.endswith(f"; {before}")
    assert one.gain.high == pytest.approx(0.499, abs=0.01)
    assert one.next.startswith("If its values stay the same, make the tensor once")


def test_what_works_on_all_that_was_sorted_goes_with_the_sort(tmp_path):
    """Of the same shape, at once behind it; not what only takes a part."""
    sort = shaped("aten::sort", 5, 300, [64, 5000])
    for shape, words in (([64, 5000], "1 x aten::sort, 1 x aten::cumsum per step"), ([64, 50], "1 x aten::sort per step")):
        events = [step(0, 0, 1000), sort, shaped("aten::cumsum", 310, 200, shape), op("aten::mm", 600, 300)]
        assert found(tmp_path, events)["whole-sort"].startswith(words)


def test_a_loop_of_inverted_matrices_is_none_of_layers(tmp_path):
    """But for one with a layer in it, which can take what the round before made."""
    for third, told in (("aten::linalg_inv", True), ("aten::relu", False)):
        ops = [e for n in range(16) for e in (op("aten::matmul", 100 * n, 40), op("aten::matmul", 100 * n + 45, 20),
                                              op(third, 100 * n + 70, 20))]  # fmt: skip
        assert ("repeated-ops" in found(tmp_path, [step(0, 0, 2000), *ops])) is told
    flow = [e for n in range(16) for e in (op("aten::linalg_inv", 100 * n, 40), op("aten::linear", 100 * n + 45, 40))]
    assert "repeated-ops" not in found(tmp_path, [step(0, 0, 2000), *flow])


def test_the_time_before_a_list_counts_as_long_as_its_conversion_at_most(tmp_path):
    """It may be another function's, or a wait; one before the recorded path is not counted."""
    made = [op("aten::empty", 706, 5), op("aten::to", 810, 5), op("aten::lift_fresh", 820, 5), op("aten::detach_", 826, 3)]
    events = [step(0, 0, 1000), op("aten::relu", 1, 5), *made, op("aten::mm", 850, 140)]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "tensor-of-a-list"]
    assert "; 700.0 µs of a step right before, " in one.seen and one.gain.high == pytest.approx(0.198, abs=0.005)


def test_the_loader_that_is_waited_for_longest_says_what_to_do(tmp_path):
    """One beside it, in the program's own process, which works on the GPU, does not."""
    both = [annotation(LOADER, 10, 30), annotation(ALONE, 50, 5), *linked(ADD, 52, 1, 7)]
    events = [step(0, 0, 100), *both, *linked(ADD, 80, 19)]
    assert advice(tmp_path, "input-bound", *events).startswith("Use more workers")
    longer = [annotation(LOADER, 10, 5), annotation(ALONE, 50, 25), *linked(ADD, 12, 1, 7)]  # the other one launches
    assert advice(tmp_path, "input-bound", step(0, 0, 100), *longer, *linked(ADD, 80, 19)).startswith("Set num_workers above 0")


def test_the_parts_of_a_batch_are_no_items(tmp_path):
    """Copies of one shape are counted; from pinned memory already, that is no advice."""

    def copied(sizes, memory="Pageable"):
        parts = [copied_to_the_gpu(20 + 60 * n, n + 1) for n in range(len(sizes))]
        for size, (to, _, _, copy) in zip(sizes, parts, strict=True):
            to["args"] |= {"Input Dims": [[256, size]], "Input type": ["float"]}
            copy["name"] = f"Memcpy HtoD ({memory} -> Device)"
        return [step(0, 0, 1000), annotation(ALONE, 10, 600), *(e for part in parts for e in part), *linked(ADD, 900, 80, 20)]

    assert "copies-while-loading" not in found(tmp_path, copied(range(1, 9)))
    assert "pin_memory" in advice(tmp_path, "copies-while-loading", *copied([3] * 8))
    assert "pin_memory" not in advice(tmp_path, "copies-while-loading", *copied([3] * 8, "Pinned"))
    outside = [e for n in range(9) for e in copied_to_the_gpu(20 + 60 * n, n + 1)]  # by the program itself
    assert "copies-while-loading" not in found(tmp_path, [step(0, 0, 1000), *outside, *linked(ADD, 900, 80, 20)])


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (large(1 << 22, "double"), True),
        (large(1 << 23, us=2000), False),  # as fast as memory is
        (large(1 << 23)[:1], False),
        ([one | {"name": f"{one['name']}_"} for one in large(1 << 23)], False),  # in place
        ([read_across(one) for one in large(1 << 23)], False),
        ([shaped("aten::mul", 100 + 15_000 * n, 10_000, [1 << 22], [1 << 22]) for n in range(2)], False),  # 16 MiB
        (
            [
                of_types(one, "float", "long int")
                for one in (shaped("aten::mul", 100 + 15_000 * n, 10_000, [1 << 22], [1 << 22]) for n in range(2))
            ],
            False,
        ),  # floats of 4 bytes
        ([shaped("aten::add", 100 + 15_000 * n, 10_000, *[[1 << 23]] * 3) for n in range(2)], False),  # out=
        ([one | {"name": "aten::exp"} for one in large(1 << 23)], False),  # the arithmetic may take it
        ([one | {"args": one["args"] | {"Sequence number": n + 1}} for n, one in enumerate(large(1 << 23))], False),  # kept
    ],
)
def test_large_results_are_told_that_could_be_written_into_memory_that_is_kept(tmp_path, ops, told):
    events = [step(0, 0, 50_000), *ops, *on(2, backward("Mul", 49_000, 50, 1), backward("Mul", 49_100, 50, 2))]
    assert ("large-results-on-cpu" in found(tmp_path, events)) is told


def test_a_sleep_counts_as_far_as_no_other_thread_is_at_work(tmp_path):
    """Of a thread that was open when the recording began (without a number) nothing is known."""
    (slept,) = (one for one in read(write(tmp_path / "t.json", *asleep(350))).findings if one.slug == "sleeps-in-step")
    assert round(slept.gain.high, 2) == 0.35
    assert not {"own-function", "library-function"} & set(found(tmp_path, asleep(350)))
    nobody = on(0, python("work.py(3): run", 50, 900))
    idle = on(2, python("<built-in method acquire of _thread.lock object at 0x1>", 50, 900))
    for others in (nobody, idle):
        alone = [*asleep(350)[:4], *others]
        (slept,) = (one for one in read(write(tmp_path / "t.json", *alone)).findings if one.slug == "sleeps-in-step")
        assert slept.gain is None
        assert slept.gain_unknown_because == "it is not recorded what the program waits for there"


def test_a_wait_for_a_worker_between_two_batches_is_no_crossing(tmp_path):
    """A batch that comes before its turn is kept, and the load waits for the one of another worker."""
    for second_us, told in ((320, True), (4000, False)):
        sets = [op("aten::set_", start + 30 * n, 5) for start in (20, second_us) for n in range(10)]
        events = [step(0, 0, 1000 if told else 10_000), annotation(LOADER, 10, 850 if told else 6000), *sets]
        told_of = found(tmp_path, [*events, *linked(ADD, 900 if told else 9000, 80, 20)])
        assert ("batch-in-pieces" in told_of) is told


def test_another_thread_is_told_once_by_what_is_known_with_functions(tmp_path):
    """Its ops alone say that it works; where the recording has functions, too, these say it, or that the steps wait for it."""
    ops = [op("aten::mm", 20, 900), *on(2, *(op("aten::sort", 100 * n, 60) for n in range(9)))]
    for more, told in (
        ([python("train.py(5): step", 10, 980), *on(2, python("count.py(3): tally", 0, 990))], "count.py(3): tally"),
        ([python("somewhere/lib/python3.12/queue.py(205): get_nowait", 10, 980)], ""),
    ):
        trace = write(tmp_path / "t.json", step(0, 0, 1000), *ops, *more)
        seen = [one.seen for one in read(trace).findings if one.slug == "another-thread-works"]
        assert [one.rpartition("the longest there is ")[2] for one in seen] == [told] * bool(told)


def test_functions_light_up_where_they_are_though_one_began_before_all_else(tmp_path):
    early = python("main.py(1): main", -500, 100)
    trace = load(write(tmp_path / "t.json", early, *beside(0)))
    reading = with_lines(judged(trace), load(tmp_path / "t.json", stacks=True))
    (works,) = (one for one in reading.facts.findings if one.slug == "another-thread-works")
    assert [(one.start_us, one.duration_us) for one in works.evidence] == [(100, 750)]
    light = finding_light(Timeline(reading), "another-thread-works")
    assert light is not None and light.spans_ns is not None
    assert light.spans_ns.tolist() == [[100_000, 850_000]]


def test_of_sleeps_in_a_row_only_the_last_one_may_be_longer_than_need_be(tmp_path):
    """After each of the others the program asked, and went on to sleep, while no recorded thread was at work."""
    asks = [python("<built-in function sleep>", 100 + 110 * n, 100) for n in range(5)]
    busy = on(
        2, python("work.py(3): run", 50, 900), python("<built-in method get of _queue.SimpleQueue object at 0x1>", 150, 550)
    )
    events = [step(0, 0, 1000), python("train.py(5): step", 10, 980), *asks, op("aten::mm", 720, 200), *busy]
    (slept,) = (one for one in read(write(tmp_path / "t.json", *events)).findings if one.slug == "sleeps-in-step")
    assert round(slept.gain.high, 2) == 0.1


def test_a_function_that_the_model_runs_in_is_the_program(tmp_path):
    for model_us, told in ((100, True), (400, False)):
        around = python("serve.py(9): answer", 50, 750), python("nn.Module: Net_0", 100, model_us)
        events = [step(0, 0, 1000), python("serve.py(5): step", 10, 980), *around, op("aten::relu", 850, 20)]
        assert ("own-function" in found(tmp_path, events)) is told


def test_a_sleep_while_the_gpu_works_waits_for_it(tmp_path):
    for kernel_us, highs in ((100, [0.3]), (500, [])):
        events = [*asleep(350), *linked(ADD, 250, kernel_us, 20)]
        slept = [one for one in read(write(tmp_path / "t.json", *events)).findings if one.slug == "sleeps-in-step"]
        assert [round(one.gain.high, 2) for one in slept] == highs
        assert all("no other thread is at work, nor the GPU" in one.seen for one in slept)


def test_a_line_that_sleeps_between_ops_promises_nothing(tmp_path):
    events = [*asleep(0), op("aten::mm", 20, 70)]
    (between,) = (one for one in read(write(tmp_path / "t.json", *events)).findings if one.slug == "python-between-ops")
    assert (between.gain, between.gain_unknown_because) == (
        None,
        "the program sleeps there, and what it waits for may take as long",
    )


OTHER = (64, 8), (8, 64)  # shapes of weights


def test_layers_of_which_no_shape_is_known_are_not_told_of(tmp_path):
    events = [step(0, 0, 1000), *layers_twice((2, 3), again=OTHER), op("aten::linear", 520, 70), *linked(ADD, 700, 5, 3)]
    assert found(tmp_path, events)["frozen-layers-run-again"].startswith("2 of 5 layers per step run without a gradient")


def test_what_ran_again_before_the_steps_is_not_counted_in_them(tmp_path):
    """On a GPU: four passes before the first of two steps, one in each."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    events = [step(0, 1000, 100), step(1, 1100, 100)]
    for n, at in enumerate((0, 200, 400, 600, 1000, 1100)):
        events += [
            op(node, at, 90),
            op("aten::linear", at + 5, 30),
            *linked(GEMM, at + 10, 20, n),
            *linked(ADD, at + 60, 20, 10 + n),
        ]
    assert found(tmp_path, events)["recomputation"].startswith("in the backward pass of each step: 1 x aten::linear; ")


def test_what_trained_layers_make_is_not_computed_ahead(tmp_path):
    """Layers of a reward model, a critic or a metric run behind them."""
    (one,) = [f for f in read(write(tmp_path / "t.json", step(0, 0, 1000), *layers_twice(again=OTHER))).findings
              if f.slug == "frozen-layers-run-again"]  # fmt: skip
    assert (one.gain, one.gain_unknown_because) == (None, "they may take what trained layers compute")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), True),
        ((shaped("aten::lerp_", 500, 20, [32, 8]),), False),  # weights that follow others
        ((shaped("aten::lerp_", 500, 20, [33, 8]),), True),
        ((annotation("Optimizer.step#SGD.step", 490, 50), shaped("aten::add_", 500, 20, [32, 8])), True),
        (on(2, shaped("aten::linear", 705, 10, [4, 8], [8, 8]), backward("Mm", 700, 30, 9)), False),  # checkpointed
    ],
)  # fmt: skip
def test_layers_are_frozen_where_nothing_changes_them(tmp_path, more, told):
    events = [step(0, 0, 1000), *layers_twice((2, 3), again=OTHER), *more]
    assert ("frozen-layers-run-again" in found(tmp_path, events)) is told


def test_an_op_that_is_trained_ends_a_run_of_frozen_layers(tmp_path):
    """Between two of them, as a recurrent cell is."""
    events = [step(0, 0, 1000), *layers_twice((2, 3), again=OTHER)]
    events[2]["args"] |= {"Sequence number": 77, "Fwd thread id": 0}  # the ReLU of 10 us behind the first
    node = on(2, backward("Relu", 800, 20, 77))
    assert "170.0 µs" in found(tmp_path, events)["frozen-layers-run-again"]
    assert "160.0 µs" in found(tmp_path, [*events, *node])["frozen-layers-run-again"]


def test_a_function_whose_time_the_profiler_may_take_has_no_gain(tmp_path):
    """By the price of a function of Python without a GPU, 0.4 us each: of 300 us, those inside may take 280."""
    lib = "somewhere/lib/python3.12"
    for inside, because in ((700, "the profiler may take most of its time for the short functions of Python in it"), (250, None)):
        frames = [(f"{lib}/statistics.py(9): mean", 20.0, 300.0)]
        frames += [(f"{lib}/b.py(1): f", 21 + n * 0.4, 0.1) for n in range(inside)]
        facts = read(write(tmp_path / "t.json", *python_step(*frames)))
        (one,) = [f for f in facts.findings if f.slug == "library-function"]
        assert (one.gain_unknown_because, one.gain is None) == (because, because is not None)


def python_step(*frames):
    return [step(0, 0, 1000), python("train.py(5): step", 10, 980), *(python(*one) for one in frames), op("aten::mm", 960, 20)]


@pytest.mark.parametrize(
    ("frames", "name", "next"),
    [
        # Of one file all functions count, the longest first; a method of C goes by its name.
        ([("torch/distributions/normal.py(87): log_prob", 20, 200), ("torch/distributions/normal.py(9): sample", 300, 100)],
         "torch/distributions/normal.py: log_prob, sample", "validate_args=False"),
        ([("<built-in method tensor of type object at 0x7f>", 20, 300)], "tensor()", "torch.from_numpy(numpy.stack(...))"),
        ([("numpy/lib/_function_base_impl.py(9): append", 20, 300)], "numpy/lib/_function_base_impl.py: append",
         "copies the whole array"),
        ([("somewhere/lib/python3.12/queue.py(205): get_nowait", 20, 300)], "somewhere/lib/python3.12/queue.py: get_nowait",
         "use get(), which waits"),
        ([("<built-in function collect>", 20, 300)], "collect()", "leave gc.collect() out of the step"),
        ([("torch/_tensor.py(9): __format__", 20, 300)], "torch/_tensor.py: __format__", "logger.debug('%s', x)"),
        ([("somewhere/lib/python3.12/statistics.py(9): mean", 20, 300)], "somewhere/lib/python3.12/statistics.py: mean",
         "Call the function less often, once ahead of time, or for a whole batch"),
        # What runs the program's own code, the model, its backward pass or its optimizer is none.
        ([("torch/utils/_contextlib.py(9): wrapped", 20, 300)], None, ""),
        ([("torch/_tensor.py(9): backward", 20, 300)], None, ""),
        ([("torch/optim/sgd.py(9): step", 20, 300)], None, ""),
        ([("torch/amp/grad_scaler.py(9): step", 20, 300)], None, ""),  # in which the optimizer's is
        ([("torch/nn/functional.py(9): dropout", 20, 300)], None, ""),
        # The words are those of the longest.
        ([("torch/_tensor.py(9): __iter__", 20, 300), ("torch/_tensor.py(9): __format__", 330, 20)],
         "torch/_tensor.py: __iter__, __format__", "Call the function less often"),
        ([("lib.py(9): f", 20, 300)], None, ""),  # its own
        ([("statistics.py(9): mean", 20, 300), ("train.py(9): each", 25, 200)], None, ""),  # which calls the program's
        ([("statistics.py(9): mean", 20, 140)], None, ""),
    ],
)  # fmt: skip
def test_functions_of_libraries_that_the_program_calls(tmp_path, frames, name, next):
    facts = read(write(tmp_path / "t.json", *python_step(*frames)))
    told = [(one.seen.partition(", called by")[0], one.next) for one in facts.findings if one.slug == "library-function"]
    assert [one for one, _ in told] == ([name] if name else [])
    assert all(next in words for _, words in told)


def test_what_numpy_made_is_not_converted_number_by_number(tmp_path):
    """torch.from_numpy ends with aten::lift_fresh, too, and no aten::detach_ behind it."""
    events = [step(0, 0, 1000), op("aten::empty", 5, 5), op("aten::to", 510, 5), op("aten::lift_fresh", 520, 5)]
    last = [op("aten::mm", 600, 300)]
    assert "tensor-of-a-list" in found(tmp_path, [*events, op("aten::detach_", 526, 3), *last])
    assert "tensor-of-a-list" not in found(tmp_path, [*events, op("aten::detach", 526, 3), *last])


@pytest.mark.parametrize("other", [op("c10d::allreduce_", 980, 5), annotation("Optimizer.step#Lamb.step", 0, 0)])
def test_gradients_that_others_may_use_are_not_told(tmp_path, other):
    """Those of a rank, of which it may change its share, and of an optimizer that is not torch's."""
    events = trained(gradients=4, updates=1)
    if "Lamb" in other["name"]:
        events = [one | {"name": other["name"]} if one["name"].startswith("Optimizer") else one for one in events]
    else:
        events.append(other)
    assert "gradients-nobody-uses" not in found(tmp_path, [step(0, 0, 1000), *events])


def test_a_function_of_a_library_that_is_mostly_products_is_the_model(tmp_path):
    frames = ("somewhere/lib/python3.12/statistics.py(9): mean", 20, 500)
    assert "library-function" in found(tmp_path, python_step(frames))
    assert "library-function" not in found(tmp_path, [*python_step(frames), op("aten::mm", 30, 300)])
    assert "library-function" in found(
        tmp_path, [*python_step(("torch/serialization.py(9): save", 20, 500)), op("aten::mm", 30, 300)]
    )


def test_a_grid_as_large_as_the_gpu_is_not_small(tmp_path):
    even = launch(50, 2), kernel(GEMM, 105, 90, 2, grid=(132, 1, 1))
    assert found(tmp_path, [step(0, 0, 200), *linked(ADD, 0, 99, grid=(66, 1, 1)), *even])["small-grid"].startswith(
        "1 kernel call"
    )


@pytest.mark.parametrize(
    ("n", "steps", "words"),
    [
        (4, 2, "2 copies per step"),
        (2, 2, "1 copy per step"),
        (3, 2, "3 copies in 2 steps"),
        (1, 2, "1 copy in 2 steps"),
        (3, 0, "3 copies"),
    ],
)
def test_a_count_is_per_step_where_it_divides_evenly(n, steps, words):
    facts: Any = SimpleNamespace(steps=[None] * steps)
    assert a_step(n, facts, "copy", "copies") == words


def test_a_prologue_is_told_per_prologue(tmp_path):
    """Two in each call: a forward and a backward one."""
    more = [op("AOTDispatcher Runtime Wrapper Prologue", n * 100 + 45, 5) for n in range(3)]
    assert found(tmp_path, [*COMPILED, *more])["compile-tax"].endswith("4.0 µs in the runtime wrapper's prologue")


def test_launches_without_a_step_and_a_gpu_event(tmp_path):
    assert found(tmp_path, [launch(1, 1), op("aten::mm", 0, 9)])["no-gpu-events"] == "1 kernel launch and no GPU event"


def test_what_a_graph_replays_is_no_run_of_calls(tmp_path):
    """The same fifty kernels, launched one by one, and by graphs of one."""
    replayed = [e for n in range(50) for e in (call("cudaGraphLaunch", 40 * n, 1, n), kernel(ADD, 40 * n + 1, 12, n))]
    assert "many-calls" not in found(tmp_path, [step(0, 0, 1000), *replayed])
    assert "many-calls" in found(tmp_path, [step(0, 0, 1000), *(e for n in range(50) for e in linked(ADD, 40 * n, 12, n))])


def test_small_kernels_are_counted_of_the_steps_on_the_path(tmp_path):
    """Of four steps, it leaves out the first."""
    events = [e for n in range(4) for e in (step(n, 1000 * n, 1000),
              *(e for k in range(51) for e in linked(ADD, 1000 * n + 15 * k, 2 + k % 3, 100 * n + k)))]  # fmt: skip
    assert found(tmp_path, events)["many-small-kernels"].startswith(
        "51 of 51 kernels per step take less than 10 µs (median 3.0 µs)"
    )


@pytest.mark.parametrize(("more", "differ"), [((0, 0, 0), False), ((0, 1), False), ((0, 1, 2), True), ((0, 1, 0), False)])
def test_steps_that_launch_different_kernels_are_no_one_graph(tmp_path, more, differ):
    """So many more kernels in each step: where two are alike, a graph may replay those."""
    events = [e for n, extra in enumerate(more) for e in (step(n, 1000 * n, 1000),
              *(e for k in range(51 + extra) for e in linked(ADD, 1000 * n + 15 * k, 2, 100 * n + k)))]  # fmt: skip
    (one,) = [f for f in read(write(tmp_path / "a.json", *events)).findings if f.slug == "many-small-kernels"]
    assert one.next.endswith("one CUDA graph does not replay them.") is differ
    assert (one.gain_unknown_because == "its steps launch different kernels: one graph does not replay them") is differ


def test_a_light_launch_on_rocm(tmp_path):
    seen = found(tmp_path, [launch(0, 1, "hipLaunchKernel"), kernel(ADD, 1, 5, 1)])["light-launch"]
    assert seen == "add is launched by hipLaunchKernel and has 32 registers per thread, 0 B of shared memory"


def test_a_view_that_launches_is_none_that_launches_nothing(tmp_path):
    events = [op("aten::t", 0, 4), launch(1, 1), kernel(ADD, 2, 5, 1), op("aten::transpose", 5, 1)]
    assert found(tmp_path, events)["views-launch-nothing"] == "1 x aten::transpose of a step launched nothing themselves"


def test_the_largest_of_several_copies(tmp_path):
    events = [step(0, 0, 200), op("aten::copy_", 4, 150)]
    for n, (ts, size) in enumerate(((5, 1_000_000), (70, 4_000_000), (130, 2_000_000)), 1):
        events += [call("cudaMemcpyAsync", ts, 20, n), memcpy(ts + 2, 16, n, name="Memcpy HtoD (Pageable -> Device)", bytes=size)]
    assert "; up to 4.0 MB each;" in found(tmp_path, [*events, *linked(ADD, 180, 19, 9)])["blocking-copy"]


def test_who_waited_longest_comes_first(tmp_path):
    events = [step(0, 0, 200), *linked(ADD, 1, 90)]
    for ts, dur, name in ((10, 11, "aten::a"), (30, 31, "aten::c"), (70, 21, "aten::b")):
        events += [op(name, ts, dur + 2), call("cudaStreamSynchronize", ts + 1, dur, 5 + ts)]
    seen = found(tmp_path, [*events, *linked(ADD, 150, 49, 2)])["sync-in-step"]
    assert seen.startswith(
        "3 synchronizing calls per step took 63.0 µs: aten::c (1 call, 31.0 µs), aten::b (1 call, 21.0 µs), "
        "aten::a (1 call, 11.0 µs)"
    )


@pytest.mark.parametrize("slug", CASES)
def test_a_finding_says_what_it_saw(slug, tmp_path):
    events, seen, _ = CASES[slug]
    assert found(tmp_path, events)[slug] == seen


@pytest.mark.parametrize("slug", CASES)
def test_a_finding_is_silent_without_its_evidence(slug, tmp_path):
    _, _, lacking = CASES[slug]
    assert slug not in found(tmp_path, lacking)


def test_every_finding_explains_itself():
    for slug, pattern in PATTERNS.items():
        assert slug == slug.lower() and len(pattern.means) > 20 and len(pattern.next) >= 20
        assert pattern.means.endswith(".") and pattern.next.endswith((".", ").")), slug
        assert pattern.symptom and pattern.where, slug


def advice(tmp_path, slug, *events, **header):
    return {f.slug: f.next for f in read(write(tmp_path / "t.json", *events, **header)).findings}[slug]


def test_what_to_do_fits_the_program(tmp_path):
    late = [step(0, 0, 100), call("cudaGraphLaunch", 80, 2, 1), kernel(ADD, 90, 10, 1)]
    assert "replayed from a graph already" in advice(tmp_path, "overhead-bound", *late)
    compiled = [step(0, 0, 100), op("Torch-Compiled Region: 0/0", 10, 80), *linked(ADD, 80, 19)]
    assert advice(tmp_path, "overhead-bound", *compiled).startswith("Most of it is compiled already")
    backward = [step(0, 0, 100), op("CompiledFunctionBackward", 10, 80), *linked(ADD, 80, 19)]
    assert advice(tmp_path, "overhead-bound", *backward).startswith("Most of it is compiled already")
    short = [e for n in range(4) for e in (op("aten::view", 20 * n, 1), *linked(ADD, 20 * n + 10, 3, n))]
    assert "torch.compile" in advice(tmp_path, "overhead-bound", step(0, 0, 100), *short)
    long_gap = advice(tmp_path, "overhead-bound", step(0, 0, 100), *linked(ADD, 80, 19))
    assert long_gap.startswith("See python-between-ops: ")


@pytest.mark.parametrize(
    ("major", "words"),
    [(9, "Use bf16, or allow tf32"), (8, "Use bf16, or allow tf32"), (7, "Use fp16: "), (6, "This GPU has no tensor cores")],
)
def test_a_gpu_is_not_told_to_use_what_it_lacks(tmp_path, major, words):
    device = {**H200, "computeMajor": major}
    assert advice(tmp_path, "fp32-cuda-cores", *linked(SGEMM, 0, 5), deviceProperties=[device]).startswith(words)


def test_a_little_fp32_is_not_worth_telling(tmp_path):
    assert "fp32-cuda-cores" not in found(tmp_path, [*linked(SGEMM, 0, 1), *linked(GEMM, 5, 30, 2)])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Tesla V100-SXM2-16GB", "Use fp16: "), ("Tesla T4", "Use fp16: "),
        ("NVIDIA GeForce GTX 1080", "This GPU has no tensor cores."), ("NVIDIA A100-SXM4-80GB", "Use bf16, or allow tf32: "),
        ("NVIDIA GB200", "Use bf16, or allow tf32: "),
    ],
)  # fmt: skip
def test_a_gpu_whose_file_tells_its_name_alone_gets_what_it_has(tmp_path, name, words):
    assert advice(tmp_path, "fp32-cuda-cores", *linked(SGEMM, 0, 5), deviceProperties=[{"id": 0, "name": name}]).startswith(words)


@pytest.mark.parametrize("name", ["aten::copy_", "aten::to", "aten::contiguous", "aten::cat", "aten::item"])
def test_a_copy_that_somebody_asked_for_is_not_hidden(tmp_path, name):
    assert "hidden-copy" not in found(tmp_path, [op(name, 0, 20), op("aten::copy_", 1, 10), *copied(bytes=2_000_000)])


def test_a_hidden_copy_of_another_op_is_not_told_to_use_the_in_place_form(tmp_path):
    events = [op("aten::pow", 0, 20), op("aten::copy_", 1, 10), *copied(bytes=2_000_000)]
    assert advice(tmp_path, "hidden-copy", *events) == "Check why the op copies: another op may not need to."
    fill = [op("aten::masked_fill", 40, 20), op("aten::clone", 41, 10)]
    more = [*fill, call("cudaMemcpyAsync", 42, 3, 2), memcpy(50, 9, 2, bytes=2_000_000)]
    both = [*({**e, "name": e["name"].replace("pow", "add")} for e in events), *more]
    assert advice(tmp_path, "hidden-copy", *both) == "Check why the op copies: another op may not need to."


def test_many_small_calls_matter_where_the_cpu_limits(tmp_path):
    busy = [step(0, 0, 100), *(e for n in range(60) for e in (launch(n, n), kernel(ADD, 100 + 50 * n, 50, n)))]
    assert "many-calls" not in found(tmp_path, busy)


def test_attention_written_out_is_seen_in_a_model(tmp_path):
    def layer(t, n):
        work = [("aten::mm", GEMM, 10), ("aten::bmm", GEMM, 20), ("aten::mul", ADD, 5), ("aten::_softmax", SOFTMAX, 20),
                ("aten::bmm", GEMM, 20), ("aten::mm", GEMM, 25)]  # fmt: skip
        return [e for k, (name, k_name, us) in enumerate(work) for e in (
            op(name, t + 2 * k, 2), launch(t + 2 * k + 0.5, n + k), kernel(k_name, t + 100 + 30 * k, us, n + k))]  # fmt: skip

    events = [step(0, 0, 500), *layer(1, 1), *layer(201, 11)]
    seen = "2 softmaxes per step between batched GEMMs; with these, 65% of GPU time"
    assert found(tmp_path, events)["unfused-attention"] == seen
    classifier = [e for e in events if e["name"] != "aten::bmm"]
    assert "unfused-attention" not in found(tmp_path, classifier)


def test_of_attention_in_one_op_the_cpus_time_between_the_gemms_is_gone(tmp_path):
    """Of a step of 450 the CPU takes 400, half of it for a softmax and a scale, and the GPU 300, of which 50 would be left."""
    events = []
    for n in range(3):
        at, work = 450 * n, ((0, "aten::bmm", GEMM, 100), (100, "aten::mul", ADD, 50), (200, "aten::_softmax", SOFTMAX, 50),
                             (300, "aten::bmm", GEMM, 100))  # fmt: skip
        events += [step(n, at, 450), call("cudaDeviceSynchronize", at + 405, 40, 10 * n + 9)]
        for k, (begin, name, kernel_name, us) in enumerate(work):
            events += [
                op(name, at + begin, 98),
                launch(at + begin + 5, 10 * n + k),
                kernel(kernel_name, at + begin + 12, us, 10 * n + k),
            ]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "unfused-attention"]
    assert one.gain.high == pytest.approx(0.52)  # while the CPU takes as long as before: 0.09


def test_what_is_not_between_the_gemms_stays_though_attention_is_one_op(tmp_path):
    """An op of the CPU at the end of each step, the last before what is launched between steps; and what makes the inputs."""
    gains = []
    for other in (True, False):
        events = []
        for n in range(3):
            at, names = 1000 * n, (("aten::randn", ADD), ("aten::bmm", GEMM), ("aten::_softmax", SOFTMAX), ("aten::bmm", GEMM))
            events += [step(n, at, 900), op("aten::sort", at + 450, 300)]
            events += (
                [op("aten::add", at + 920, 30), launch(at + 930, 10 * n + 9), kernel(ADD, at + 940, 10, 10 * n + 9)]
                if other
                else []
            )
            for k, (name, kernel_name) in enumerate(names):
                events += [
                    op(name, at + 100 * k, 98),
                    launch(at + 100 * k + 5, 10 * n + k),
                    kernel(kernel_name, at + 100 * k + 12, 50, 10 * n + k),
                ]
        (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "unfused-attention"]
        gains.append(one.gain.high)
    assert max(gains) < 0.15  # of 1,000 the softmax's 98; with the numbers 0.2, with the sort, too, 0.5


def test_trivia_are_told_of_small_traces_and_for_everything(tmp_path):
    def slugs(n, everything=False):
        events = [e for k in range(n) for e in linked(GEMM, 10 * k, 5, k, **HEAVY)]
        return {f.slug for f in analyze(load(write(tmp_path / "t.json", *events)), everything).findings}

    trivia = {"occupancy-not-estimated", "low-occupancy-by-design"}
    assert trivia <= slugs(300) and not trivia & slugs(301) and trivia <= slugs(301, everything=True)


def test_all_is_a_flag(tmp_path, capsys):
    path = write(tmp_path / "t.json", *(e for k in range(301) for e in linked(GEMM, 10 * k, 5, k, **HEAVY)))
    for flags, told in (([], False), (["--all"], True)):
        assert cli.main([path, *flags]) == 0
        assert ("occupancy-not-estimated" in capsys.readouterr().out) is told


def test_waits_that_cost_the_gpu_nothing_are_not_told(tmp_path):
    """A synchronize while plenty is queued: the GPU goes on."""
    events = [step(0, 0, 100), launch(0, 1), launch(0.5, 2), kernel(ADD, 1, 50, 1), kernel(ADD, 51, 60, 2),
              call("cudaEventSynchronize", 10, 42, 9), launch(60, 3), kernel(ADD, 111, 40, 3)]  # fmt: skip
    assert "sync-in-step" not in found(tmp_path, events)


def synchronized(*at_us):
    """Two steps with kernels that are launched 20 and 60 µs after their begin, one from before, and calls that synchronize."""
    events = [step(0, 0, 100), step(1, 100, 100), kernel(ADD, 1, 14, 999)]
    for n, (at, dur) in enumerate(((20, 30), (60, 50), (120, 30), (160, 50))):
        events += [launch(at, n), kernel(ADD, at + 2, dur, n)]
    ends = {1: 16, 30: 53, 80: 113, 101: 113, 180: 213}
    return [*events, *(call("cudaDeviceSynchronize", at, ends[at] - at, 90 + at) for at in at_us)]


@pytest.mark.parametrize(
    ("at_us", "seen"),
    [
        ([1, 180], None),  # at the beginning and the end of the recording
        ([180], None),
        ([1, 101], "1 synchronizing call per step took 13.5 µs: in no op (1 call, 13.5 µs)"),
        ([80, 180], "1 synchronizing call per step took 32.5 µs: in no op (1 call, 32.5 µs)"),
        ([1, 30, 180], "1 synchronizing call in 2 steps took 23.0 µs: in no op (1 call, 23.0 µs)"),
    ],
)
def test_a_recording_may_synchronize_at_its_ends_but_a_program_in_each_step(tmp_path, at_us, seen):
    told = found(tmp_path, synchronized(*at_us)).get("sync-in-step")
    assert told == seen if seen is None else told.startswith(f"{seen}; ")


def test_a_program_may_synchronize_behind_all_launches_of_one_step_in_the_middle(tmp_path):
    events = [e for n in range(3) for e in (step(n, 100 * n, 100), launch(100 * n + 20, n), kernel(ADD, 100 * n + 22, 70, n))]
    told = found(tmp_path, [*events, call("cudaDeviceSynchronize", 130, 63, 9)])
    assert told["sync-in-step"].startswith(
        "1 synchronizing call in 2 steps took 63.0 µs: in no op (1 call, 63.0 µs)"
    )  # of the path
    last = found(tmp_path, [*events, call("cudaDeviceSynchronize", 230, 63, 9)])
    assert "sync-in-step" not in last


def test_a_synchronize_of_what_is_sent_is_spared_by_pinned_memory(tmp_path):
    events = [step(0, 0, 100), op("aten::copy_", 4, 60), call("cudaMemcpyAsync", 5, 3, 1),
              memcpy(10, 44, 1, name="Memcpy HtoD (Pageable -> Device)", bytes=4_000_000),
              call("cudaStreamSynchronize", 10, 46, 3), *linked(ADD, 80, 19, 2)]  # fmt: skip
    for name, is_told in (("Memcpy HtoD (Pageable -> Device)", True), ("Memcpy DtoH (Device -> Pageable)", False)):
        events[3] = memcpy(10, 44, 1, name=name, bytes=4_000_000)
        (one,) = [one for one in read(write(tmp_path / "a.json", *events)).findings if one.slug == "sync-in-step"]
        assert one.next.startswith("Pin the host memory") is is_told


def test_code_that_was_to_be_compiled_is_not_told_to_be_compiled(tmp_path):
    norm = run_of(RMS)
    lookup = op("TorchDynamo Cache Lookup", 0, 2)
    for events, is_told in ((norm, True), ([lookup, *norm], False)):
        findings = {one.slug: one for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *events)).findings}
        assert findings["written-out"].next.endswith("; torch.compile fuses them in any case.") is is_told
    many = [e for n in range(20) for e in linked(ADD, 49 * n + 5, 48, n)]
    assert "unfused-pointwise" in found(tmp_path, [step(0, 0, 1000), *many])
    assert "unfused-pointwise" not in found(tmp_path, [step(0, 0, 1000), lookup, *many])


@pytest.mark.parametrize(
    ("ops", "fused"),
    [
        ("mul pow mul add mul tanh add mul", "F.gelu(approximate='tanh')"),  # 0.5 * x * (1 + tanh(c * (x + a * x**3)))
        ("mul mul mul add mul mul tanh add mul", "F.gelu(approximate='tanh')"),  # what is in the tanh, first
        ("div erf add mul mul", "F.gelu"),
        ("mul add mul tanh mul", ""),
    ],
)
def test_a_gelu_that_is_written_out_is_known_by_either_formula(tmp_path, ops, fused):
    path = write(tmp_path / "a.json", step(0, 0, 1000), *run_of([f"aten::{name}" for name in ops.split()]))
    told = [one.next for one in read(path).findings if one.slug == "written-out"]
    assert told == ([f"If that is what they compute, use {fused}; torch.compile fuses them in any case."] if fused else [])


def test_compiled_code_would_spare_what_is_written_out(tmp_path):
    events = [step(0, 0, 1000), op("TorchDynamo Cache Lookup", 0, 2), *run_of(RMS)]
    gains = {one.slug: one.gain for one in read(write(tmp_path / "a.json", *events)).findings}
    assert gains["written-out"] is not None and gains["compiled-runs-eager"] == gains["written-out"]


def test_a_copy_blocked_by_the_queue_is_one(tmp_path):
    copying = [e for k in range(20) for e in (call("cudaMemcpyAsync", 100 + k, 0.2, 3000 + k), memcpy(1200 + k, 1, 3000 + k))]
    blocked = [call("cudaMemcpyAsync", 130, 60, 4000), memcpy(1300, 1, 4000)]
    events = [step(0, 0, 1000), *queued(950), *copying, *blocked]
    assert found(tmp_path, events)["blocked-by-the-queue"].startswith("1 call per step took 60.0 µs")


@pytest.mark.parametrize("name", ["cudaFree", "cudaFreeHost", "cuMemFree_v2", "hipFree", "hipHostFree"])
def test_frees_wait_for_the_device(tmp_path, name):
    events = [step(0, 0, 100), *linked(ADD, 1, 40), call(name, 5, 40, 9), *linked(ADD, 60, 39, 2)]
    assert found(tmp_path, events)["allocation-in-step"] == (
        "managing memory takes 3.0% of the critical path; 1 free per step took 40.0 µs: in no op (1 call, 40.0 µs); "
        "with the GPU's wait after frees, 21% of the critical path"  # its own end, and from it to the launch at 60
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (annotation("load_batch", 1, 70), "Profile the Python code"),
        (call("cudaHostAlloc", 1, 70, 50), "See allocation-in-step"),
        (call("cuModuleLoadData", 1, 70, 50), "Record after warm-up: the CPU spends the most time loading code"),
        (op("f (dynamo_timed)", 1, 70), "Record after warm-up: the CPU spends the most time compiling"),
        (call("cudaPointerGetAttributes", 1, 70, 50), "Look for long calls that launch nothing"),
        (op("aten::mm", 1, 70), "Give each launch more work"),
    ],
)
def test_what_to_do_fits_what_the_cpu_did(tmp_path, what, words):
    assert advice(tmp_path, "overhead-bound", step(0, 0, 100), what, *linked(ADD, 80, 19)).startswith(words)


def test_a_value_that_is_asked_for_cannot_be_pinned(tmp_path):
    events = [step(0, 0, 100), op("aten::_local_scalar_dense", 4, 80), call("cudaMemcpyAsync", 5, 50, 1),
              memcpy(10, 44, 1, name="Memcpy DtoH (Device -> Pageable)", bytes=4), *linked(ADD, 80, 19, 2)]  # fmt: skip
    assert advice(tmp_path, "blocking-copy", *events).startswith("Read values less often")


def test_a_pageable_copy_that_ends_a_little_after_its_call_waited(tmp_path):
    """The call waits for the kernel before the copy and returns when the last part is staged, 13 µs before the copy ends."""
    name = "Memcpy HtoD (Pageable -> Device)"
    events = [step(0, 0, 1000), *linked(ADD, 0, 499), call("cudaMemcpyAsync", 10, 777, 2), memcpy(501, 299, 2, name=name),
              launch(805, 3), kernel(ADD, 811, 189, 3)]  # fmt: skip
    facts = read(write(tmp_path / "t.json", *events))
    assert facts.verdict == "gpu-bound" and facts.steps[0].sync_us == 777
    path = facts.critical_path
    # 189 + 499 of kernels, the copy's 286 up to the call's end, the CPU's 18 to the launch; the rest is latency
    assert (path.compute_us, path.copy_us, path.cpu_us, path.latency_us) == (688, 286, 18, 8)
    assert found(tmp_path, events)["blocking-copy"].endswith("are 30% of the critical path")
    other = [e if e["name"] != name else {**e, "name": "Memcpy HtoD (Pinned -> Device)"} for e in events]
    assert read(write(tmp_path / "t.json", *other)).steps[0].sync_us == 0


def path_of(folder, events):
    trace = load(write(folder / "t.json", *events))
    (window,) = windows(trace)
    return critical_path(trace, CpuActivity(trace), window)


def test_what_the_backward_passs_thread_does_is_what_happens(tmp_path):
    """The thread of the steps waits in backward(): the other thread's ops and waits are what happens."""
    node = "autograd::engine::evaluate_function: MulBackward0"
    events = [step(0, 0, 100), *on(2, op(node, 10, 60), op("aten::mul", 20, 40)), *linked(ADD, 80, 19)]
    path = path_of(tmp_path, events)
    assert {part.name: part.us for part in path.cpu} == {"op": 60, "silent": 20}
    other = [{**e, "name": "work"} if e["name"] == node else e for e in events]  # a thread for which nobody waits
    path = path_of(tmp_path, other)
    assert {part.name: part.us for part in path.cpu} == {"silent": 80}


def test_what_the_backward_passs_thread_waits_for_is_waited_for(tmp_path):
    node = "autograd::engine::evaluate_function: CopyBackward0"
    events = [step(0, 0, 100), *linked(ADD, 0, 49), *on(2, op(node, 10, 60), call("cudaStreamSynchronize", 20, 31, 9)),
              *linked(ADD, 80, 19, 2)]  # fmt: skip
    path = path_of(tmp_path, events)
    # ADD 81 to 100 and its launch; the CPU back to the wait's end at 51; the event that it waited for, 50 to 1, and its launch
    assert (path.compute_us, path.cpu_us, path.latency_us) == (68, 29, 3)


def test_one_collective_a_step_can_only_be_hidden_in_parts(tmp_path):
    late = [step(0, 0, 200), *linked(GEMM, 0, 99), *all_reduce(101, 60, 2), launch(105, 3), kernel(GEMM, 170, 30, 3)]
    assert "bucket_cap_mb" in advice(tmp_path, "exposed-communication", *late)
    half = [step(0, 0, 200), *linked(GEMM, 0, 99), *all_reduce(50, 100, 2), launch(105, 3), kernel(GEMM, 170, 30, 3)]
    assert advice(tmp_path, "exposed-communication", *half).startswith("Look for a straggler first")


def test_a_loader_in_the_programs_own_process_is_told_to_leave_it(tmp_path):
    events = [step(0, 0, 100), annotation(ALONE, 10, 30), *linked(ADD, 60, 39)]
    assert advice(tmp_path, "input-bound", *events).startswith("Set num_workers above 0")
    on_the_gpu = advice(tmp_path, "input-bound", *events, *linked(ADD, 20, 5, 2))
    assert "which forked workers cannot" in on_the_gpu and on_the_gpu.endswith("then set num_workers above 0.")


def test_what_runs_again_takes_the_time_between_its_ops_with_it(tmp_path):
    """Of 1000 us, 300 are in ops of which it is known; up to the end of the last one 590 pass since the node began."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    events = [step(0, 0, 1000), op(node, 100, 800), *(op("aten::linear", 110 + 240 * n, 100) for n in range(3)),
              op("aten::mul", 220, 90), op("aten::mm", 700, 190)]  # fmt: skip
    work = [e for n in range(3) for e in linked(GEMM, 120 + 240 * n, 20, n)]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events, *work, *linked(ADD, 880, 30, 9))).findings
              if f.slug == "recomputation"]  # fmt: skip
    assert (one.gain.low, one.gain.high) == pytest.approx((0.3, 0.59), abs=0.01)


def test_compiling_in_every_step_is_not_cured_by_a_warm_up(tmp_path):
    def steps(compiled):
        return [e for n in range(3) for e in (step(n, 100 * n, 90), *linked(ADD, 100 * n + 80, 9, n),
                *([op("inductor_compile", 100 * n + 1, 60)] if n in compiled else []))]  # fmt: skip

    slug = "loading-or-compiling-in-step"
    assert advice(tmp_path, slug, *steps({0, 1, 2})).startswith("It compiles in every step")
    assert advice(tmp_path, slug, *steps({1})).startswith("Record after warm-up")


def test_what_torch_compile_tries_out_is_not_the_programs(tmp_path):
    trying = [op("inductor_compile", 0, 2900), *(e for n in range(60) for e in linked(ADD, 40 * n, 12, n))]
    assert "many-calls" not in found(tmp_path, [step(0, 0, 3000), *trying])
    waiting = [step(0, 0, 100), *linked(ADD, 1, 60), call("cudaStreamSynchronize", 32, 30, 9), *linked(ADD, 80, 19, 2)]
    assert "sync-in-step" in found(tmp_path, waiting)
    assert "sync-in-step" not in found(tmp_path, [*waiting, op("f (dynamo_timed)", 30, 40)])


def test_only_the_cats_that_grow_are_counted(tmp_path):
    stacked = [op("aten::stack", 4, 9), op("aten::cat", 5, 5), launch(6, 9), kernel(CAT, 40, 9, 9)]
    assert found(tmp_path, [*cats(4, 6, 8, 10), *stacked])["cache-growing-by-cat"].startswith("4 cats per step: ")


def test_by_their_shapes_cats_grow_whatever_they_take(tmp_path):
    def shaped(*sizes, more=lambda size: 1):
        events = cats(*(9 for _ in sizes))
        ops = [op("aten::cat", n, 0.9, **{"Input Dims": [[[1, size, 8], [1, more(size), 8]], []], "Input type": ["", ""],
               "Input Strides": [[], []]}) for n, size in enumerate(sizes)]  # fmt: skip
        launches = [{**e, "ts": e["ts"] + 0.1, "dur": 0.5} if e["name"] == "cudaLaunchKernel" else e for e in events]
        return found(tmp_path, [*launches, *ops])

    assert "cache-growing-by-cat" in shaped(16, 17, 18, 19) and "cache-growing-by-cat" not in shaped(16, 16, 16, 16)
    assert "cache-growing-by-cat" not in shaped(16, 48, 112, 240, more=lambda size: size + 16)  # what is joined to it is larger


def test_a_rate_that_only_a_cache_gives_is_no_yardstick(tmp_path):
    # 40 MB in 8.5 µs are 4706 GB/s, of 4800 that the memory has; in 40 µs 1000
    near_peak = [*pointwise("aten::relu", 200, 8.5, 2), *pointwise("aten::gelu", 0, 40, 1)]
    assert "slow-pointwise" not in found(tmp_path, near_peak)
    assert "slow-pointwise" in found(tmp_path, [*near_peak, *pointwise("aten::tanh", 400, 15, 3)])


def test_a_kernel_of_several_sizes_is_not_uneven(tmp_path):
    events = runs(GEMM, (90, 72, 71))
    assert "uneven-kernel" in found(tmp_path, events)
    events[2]["args"]["grid"] = [2, 1, 1]
    assert "uneven-kernel" not in found(tmp_path, events)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, True),
        ({"calls": 5}, False),  # 0.17 GB: an L2 cache may hold them
        ({"period": 1100, "calls": 10}, True),
        ({"period": 279, "calls": 2, "n": 16384, "k": 8192}, False),  # less than 4 times as long
        ({"m": 200}, True),  # with 989 TFLOP/s and 4,800 GB/s, of 206 rows on, the arithmetic takes longer than the memory
        ({"m": 210}, False),
    ],
)
def test_how_far_from_the_floor_is_told(tmp_path, more, told):
    events = few_rows(**{"m": 8, **more})
    assert ("far-from-the-floor" in found(tmp_path, events)) is told


def test_a_measured_step_is_set_beside_the_floor(tmp_path):
    header = {"plain_step_us": {"median": 1500, "low": 1400, "high": 1600}}
    facts = read(write(tmp_path / "t.json", *few_rows(1), **header))
    (seen,) = [f.seen for f in facts.findings if f.slug == "far-from-the-floor"]
    assert seen.endswith("; a step takes 1.50 ms without the profiler (measured), 21 times as long")


def test_a_step_that_a_header_tells_and_the_trace_lacks_has_no_floor(tmp_path):
    header = {"plain_step_us": {"median": 1500, "low": 1400, "high": 1600}}
    marked = few_rows(1)
    without = [one for one in marked if not one["name"].startswith("ProfilerStep") and one["cat"] in ("kernel", "cuda_runtime")]
    facts = read(write(tmp_path / "t.json", *without, **header))
    assert "far-from-the-floor" not in [f.slug for f in facts.findings] and not facts.failed


def test_of_a_later_gpus_products_no_rounds_are_told(tmp_path):
    """They were not measured."""
    later = GEMM.replace("sm90", "sm100")
    for name, told in ((GEMM, True), (later, False)):
        events = [op("aten::mm", 0, 20, **products(4096, 1792)), *linked(name, 1, 20)]
        assert ("partial-wave" in found(tmp_path, events)) is told


def test_views_that_are_the_same_in_each_step_are_counted_by_step(tmp_path):
    each = [[step(n, 100 * n, 100), *[op("aten::t", 100 * n + 10 * k, 5) for k in range(3)]] for n in range(2)]
    events = [*each[0], *each[1], *linked(GEMM, 50, 5)]
    assert found(tmp_path, events)["views-launch-nothing"] == "3 x aten::t of a step launched nothing themselves"
    uneven = [*events, op("aten::t", 190, 5)]
    assert found(tmp_path, uneven)["views-launch-nothing"] == "7 x aten::t launched nothing themselves"


def test_without_all_shapes_no_floor_is_told(tmp_path):
    events = few_rows(1)
    del events[1]["args"]["Input Dims"]
    assert "far-from-the-floor" not in found(tmp_path, events)
    other = [{**H200, "name": "NVIDIA Unknown"}]
    facts = read(write(tmp_path / "u.json", *few_rows(1), deviceProperties=other))
    assert "far-from-the-floor" not in [f.slug for f in facts.findings]


def test_a_step_of_no_time_has_no_opaque_op(tmp_path):
    """A share of it cannot be told."""
    events = [step(0, 10, 0), op("aten::_cudnn_attention_forward", 10, 40), *linked(CUDNN, 30, 5)]
    facts = read(write(tmp_path / "t.json", *events))
    assert facts.steps[0].cpu_us == 0 and "opaque-op" not in {found.slug for found in facts.findings}


def test_two_long_elementwise_kernels_of_a_step_are_told(tmp_path):
    def mlp(add_us):
        return [step(0, 0, 150), *(launch(n, n) for n in range(3)), kernel(GEMM, 10, 80, 0), kernel(ADD, 90, add_us, 1),
                kernel(ADD, 90 + add_us, add_us, 2)]  # fmt: skip

    assert found(tmp_path, mlp(30))["unfused-pointwise"].startswith("2 long elementwise kernels per step (add): ")
    assert "unfused-pointwise" not in found(tmp_path, mlp(9))


def test_an_add_in_the_epilogue_needs_an_addmm_that_launches_nothing_else(tmp_path):
    def addmm(*more):
        return found(tmp_path, [step(0, 0, 99), op("aten::addmm", 1, 20), *linked(GEMM, 2, 5), *more]).get("epilogue-bias")

    alone = "each aten::addmm launches nvjet GEMM 256x128 and nothing else; the trace has no aten::add"
    named = "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT"
    second = [launch(10, 2), kernel("epilogue::impl::globalKernel", 12, 5, 2)]
    both = [step(0, 0, 99), op("aten::addmm", 1, 20), *linked(named, 2, 5), *second]
    assert "epilogue-bias" not in found(tmp_path, both)  # whatever its name says, another kernel runs, too
    assert (addmm(), addmm(launch(10, 2), kernel("epilogue::impl::globalKernel", 12, 5, 2))) == (alone, None)


def test_a_copy_behind_the_gemm_is_not_of_the_bias(tmp_path):
    assert "bias-copy" not in found(
        tmp_path, [op("aten::addmm", 0, 60), *linked(GEMM, 2, 5, 2), call("cudaMemcpyAsync", 30, 3, 1), memcpy(40, 9, 1)]
    )


@pytest.mark.parametrize(
    ("name", "late_us", "blocks"),
    [("hipMemcpyWithStream", 9, True), ("hipMemcpyWithStream", 11, False), ("cudaMemcpyAsync", 0.4, True),
     ("cudaMemcpyAsync", 0.6, False)],
)  # fmt: skip
def test_a_copy_that_waits_by_its_name_may_seem_to_end_later(tmp_path, name, late_us, blocks):
    copy = memcpy(20, 180 + late_us, 1, name="Memcpy DtoH (Device -> Host)")
    events = [step(0, 0, 400), call(name, 10, 190, 1), copy, *linked(ADD, 300, 50, 2)]
    assert ("blocking-copy" in found(tmp_path, events)) is blocks


def test_a_pageable_copy_that_begins_after_its_call_did_not_block_it(tmp_path):
    def told(start):
        copy = memcpy(start, 60, 1, name="Memcpy HtoD (Pageable -> Device)")
        return found(tmp_path, [step(0, 0, 400), call("cudaMemcpyAsync", 10, 90, 1), copy, *linked(ADD, 300, 50, 2)])

    assert "blocking-copy" in told(60) and "blocking-copy" not in told(101)


def test_advice_for_time_in_python_asks_for_no_stacks_that_are_there(tmp_path):
    events = [step(0, 0, 900), *linked(ADD, 800, 9)]
    without = advice(tmp_path, "overhead-bound", *events)
    assert "record with with_stack=True" in without
    stacked = advice(tmp_path, "overhead-bound", *events, event("python_function", "t.py(7): load", 0, 700))
    assert "--by stack --time cpu" in stacked and "with_stack=True" not in stacked


def test_a_little_of_a_run_that_is_compiled_is_no_compiled_run(tmp_path):
    def regions(n):
        return [step(0, 0, 900), op("Torch-Compiled Region: 0/0", 0, 40 * n),
                *(e for k in range(10) for e in (op("aten::add", 40 * k + 1, 30), *linked(ADD, 40 * k + 2, 3, k)))]  # fmt: skip

    assert "compiled already" in advice(tmp_path, "overhead-bound", *regions(5))
    assert "compiled already" not in advice(tmp_path, "overhead-bound", *regions(4))


def test_many_small_collectives_are_to_be_sent_together(tmp_path):
    def reduced(n):
        work = [e for k in range(n) for e in all_reduce(10 * k + 1, 8, k)]
        return advice(tmp_path, "exposed-communication", step(0, 0, 10 * n + 20), *work)

    assert reduced(50) == "Send more with each call: 50 collectives per step take less than 20 µs (median 8.0 µs)."
    assert "Send more" not in reduced(49)


def test_growing_cats_are_seen_without_a_gpu(tmp_path):
    def grown(*durations):
        return found(tmp_path, [step(0, 0, 100), *(op("aten::cat", 20 * n, us) for n, us in enumerate(durations))])

    words = "4 cats per step: 28% of the steps' time; the first takes 4.0 µs, the longest 10.0 µs"
    assert grown(4, 6, 8, 10)["cache-growing-by-cat"] == words and "cache-growing-by-cat" not in grown(4, 6, 8, 7)


def test_other_cats_between_do_not_hide_a_cache_that_grows(tmp_path):
    """A cache [1, n, 8], and beside each of its cats a small one of another kind."""

    def cat(ts, *dims):
        return op("aten::cat", ts, 9, **{"Input Dims": [[list(one) for one in dims], []], "Input type": ["TensorList", "Scalar"]})

    events = [e for n in range(6) for e in (cat(20 * n, (1, 16 + n, 8), (1, 1, 8)), cat(20 * n + 10, (3, 1), (3, 1)))]
    assert found(tmp_path, [step(0, 0, 150), *events])["cache-growing-by-cat"].startswith(
        "6 cats per step: 36% of the steps' time"
    )


def test_a_few_of_autograds_numbers_are_no_forward_pass(tmp_path):
    """As autocast makes them for the weights that it converts, under no_grad, too."""
    few = [forward("aten::to", 0, 5, 7), forward("aten::to", 5, 5, 8), *(forward("aten::mm", 10 + 5 * n, 4, 9) for n in range(6))]
    assert "gradients-unused" not in found(tmp_path, [step(0, 0, 100), *few])


def test_a_query_is_about_the_kernel_that_its_own_op_launches_next(tmp_path):
    query = call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 2, 1, 9)
    one = [step(0, 0, 90), op("aten::mm", 1, 20), query, *linked(GEMM, 5, 5)]
    assert (
        found(tmp_path, one)["heavy-launch"] == "1 occupancy query in ProfilerStep#0; launched next: nvjet GEMM 256x128 (after 1)"
    )
    others = [step(0, 0, 90), op("aten::mm", 1, 20), query, op("aten::add", 30, 20), *linked(ADD, 35, 5)]
    assert "heavy-launch" not in found(tmp_path, others)


def test_a_thread_that_launches_nothing_may_wait(tmp_path):
    """As the watchdog of NCCL does."""
    watchdog = on(5, call("cudaEventSynchronize", 100, 20, 9))
    events = [step(0, 0, 300), *linked(GEMM, 0, 40), call("cudaDeviceSynchronize", 5, 40, 8), *watchdog]
    told = found(tmp_path, [*events, launch(120, 3), kernel(GEMM, 122, 50, 3)])
    assert told["sync-in-step"].startswith("1 synchronizing call per step took 40.0 µs")


def checkpointed(n):
    """So many nodes that compute their part of the forward pass again, each on its thread, and go back through it."""
    events = []
    for k in range(n):
        at, number = 100 + 200 * k, {"Sequence number": 50 + k}
        events += [op("aten::mm", 10 * k, 8, **{"Sequence number": k, "Fwd thread id": 0})]
        node = "autograd::engine::evaluate_function: {}Backward{}"
        events += on(
            2,
            op(node.format("CheckpointFunction", ""), at, 190, **{"Sequence number": k, "Fwd thread id": 1}),
            op("aten::mm", at + 5, 60, **number, **{"Fwd thread id": 0}),
            op(node.format("Mm", "0"), at + 80, 60, **number, **{"Fwd thread id": 2}),
        )
    return events


def gradients_of_one_pass(n):
    """A forward pass of so many ops, and as many times a way back from where two of them are."""
    forward = [op("aten::mm", 20 * k + 10, 15, **{"Sequence number": k, "Fwd thread id": 0}) for k in range(n)]
    node = "autograd::engine::evaluate_function: MmBackward0"
    back = [op(node, 200 + 100 * k, 80, **{"Sequence number": n - 1 - k, "Fwd thread id": 1}) for k in range(n)]
    return [*forward, *on(2, *back)]


@pytest.mark.parametrize("events", [checkpointed(4), gradients_of_one_pass(4)], ids=["checkpointed", "one forward pass"])
def test_a_way_back_without_a_forward_pass_of_its_own_is_no_pass(tmp_path, events):
    assert "many-backward-passes" in found(tmp_path, [step(0, 0, 1000), *passes(4)])
    assert "many-backward-passes" not in found(tmp_path, [step(0, 0, 1000), *events])


def test_passes_with_an_update_after_each_are_steps(tmp_path):
    updates = [annotation("Optimizer.step#SGD.step", 200 * k + 150, 20) for k in range(4)]
    assert "many-backward-passes" in found(tmp_path, [step(0, 0, 1000), *passes(4), *updates[:1]])
    assert "many-backward-passes" not in found(tmp_path, [step(0, 0, 1000), *passes(4), *updates])


def test_a_steps_first_pass_is_none_more(tmp_path):
    """Of 4 and 3 passes, the last of which has two nodes."""
    again = on(2, op("autograd::engine::evaluate_function: MmBackward0", 1345, 40, **{"Sequence number": 6, "Fwd thread id": 1}))
    assert "many-backward-passes" not in found(tmp_path, [step(0, 0, 790), step(1, 800, 590), *passes(7), *again])


@pytest.mark.parametrize(("changed", "why"), [
    (1, None),  # as a mask is, once
    (4, "something is changed in place between them, which may be the weights"),
])  # fmt: skip
def test_passes_between_which_weights_may_change_promise_nothing(tmp_path, changed, why):
    updates = [op("aten::sub_", 200 * k + 150, 20) for k in range(changed)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *passes(4), *updates))
    (seen,) = (one for one in facts.findings if one.slug == "many-backward-passes")
    assert seen.gain_unknown_because == why


def test_what_takes_as_many_rows_behind_the_comparison_makes_no_candidates(tmp_path):
    later_rows = [shaped("aten::linear", 700, 100, [1000, 24], [64, 24])]
    seen = found(tmp_path, [step(0, 0, 1000), *compared(behind=later_rows)])["candidates-each-time"]
    assert seen.startswith("3 ops per step make the vectors of 1,000 candidates")


def test_lists_of_tensors_that_change_between_passes_may_be_the_weights(tmp_path):
    between = [op("aten::_foreach_add_", 200 * k + 150, 20, **{"Input Dims": [[[8, 16]]]}) for k in range(4)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *passes(4), *between, record_shapes=1))
    (seen,) = (one for one in facts.findings if one.slug == "many-backward-passes")
    assert seen.gain is None


@pytest.mark.parametrize(("shape", "why"), [
    ([8, 16], "something is changed in place between them, which may be the weights"),  # or an input, as in an attack
    ([], None),  # as a sum of losses
])  # fmt: skip
def test_a_number_may_change_between_passes(tmp_path, shape, why):
    between = [shaped("aten::add_", 200 * k + 150, 20, shape, shape) for k in range(4)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *passes(4), *between, record_shapes=1))
    (seen,) = (one for one in facts.findings if one.slug == "many-backward-passes")
    assert seen.gain_unknown_because == why


@pytest.mark.parametrize(("slug", "events", "told"), [
    ("enlarged-before-a-layer", enlarged([4, 64, 3, 3]), False),
    ("enlarged-before-a-layer", enlarged([4, 64, 1, 1], stride="[2, 2]"), False),
    ("enlarged-before-a-layer", enlarged([4, 64, 1, 1], stride="[1, 1]"), True),
    ("enlarged-before-a-layer",  # something else takes it, too, as a view
     [*enlarged([4, 64, 1, 1]), shaped("aten::flatten", 700, 5, [2, 64, 32, 32]), shaped("aten::mean", 710, 50, [2, 64, 1024])],
     False),
    ("enlarged-before-a-layer", enlarged([4, 64, 1, 1], to=4), False),  # they become smaller
    ("enlarged-before-a-layer", enlarged([4, 64, 1, 1], between="aten::cat"), False),
    ("resampling", enlarged([4, 64, 1, 1]), False),  # it is told once
    ("sleeps-in-step", asleep(350)[1:4], True),  # what it waits for was not recorded
    ("another-thread-works", beside(asks="somewhere/lib/python3.12/queue.py(205): get_nowait")[1:], False),  # it waits for it
    ("another-thread-works", [op("aten::mm", 20, 900), *on(2, *(op("aten::sort", 100 * n, 10) for n in range(9)))], True),
    ("batch-in-pieces", sent_in(16, load=ALONE), False),  # no worker sends it
    ("mask-per-class", masked(16, "float"), False),  # no labels
    ("mask-per-class", masked(16, same=True), False),
    ("mask-per-class",  # other labels after each class
     [one for n, event in enumerate(masked(16)) for one in (event, *[relabelled(50 * (n // 4) + 48)] * (n % 4 == 3))], False),
    ("mask-per-class", masked(16, of_mask="float"), False),  # sums of something else
    ("mask-per-class", masked(16, then="aten::nonzero"), False),  # the places of each class
    ("enlarged-before-a-layer",  # another layer takes it, too
     [*enlarged([4, 64, 1, 1]), shaped("aten::conv2d", 700, 50, [2, 64, 32, 32], [8, 64, 3, 3])], False),
    ("another-thread-works",  # it waits for it
     beside(asks="<built-in method acquire of _thread.lock object at 0x1>")[1:], False),
    ("history-in-each-step", kept(parts=12, listed=True), True),
    ("history-in-each-step", kept(parts=12), False),  # of so few the profiler has their shapes
    ("history-in-each-step", kept(made=0), False),  # of other tensors than the step makes
    ("history-in-each-step", [*kept(), shaped("aten::linear", 600, 100, [1600, 8], [4, 8])], False),  # a window for a model
    ("history-in-each-step", [*kept(parts=40)[:2], op("aten::item", 210, 5)], False),
    ("layers-before-dropout-again",
     [*sampled(rounds=8, random=False), op("aten::bernoulli_", 900, 10)], False),  # random numbers of something else
    ("layers-before-dropout-again", sampled(rounds=8, layers=0), False),
    ("layers-before-dropout-again", [*sampled(rounds=8), *on(2, backward("Addmm", 900, 50, 1))], False),
    ("scored-then-picked", [*picked(), *on(2, backward("Addmm", 900, 50, 1))], False),
    ("scored-then-picked", picked(behind=[shaped("aten::softmax", 440, 10, [8, 1000])]), False),
    ("scored-then-picked", picked(between=[shaped("aten::softmax", 412, 5, [8, 1000])]), False),
    ("candidates-each-time", compared(rows=1000), False),  # which of both are the batch?
    ("candidates-each-time", compared()[4:], False),  # vectors that are kept
    ("candidates-each-time", [shaped("aten::linalg_vector_norm", 20, 50, [1000, 32]), *compared()[4:]], True),
    ("history-in-each-step",  # of rewards, beside states that a network takes: a sample of a memory
     [*kept(), shaped("aten::linear", 600, 9, [32, 9], [4, 9]), op("aten::cat", 620, 50, **{"Input Dims": [[]]}),
      shaped("aten::linear", 680, 100, [1600, 4], [2, 4])], False),
    ("read-one-by-one",  # an optimizer's own counts
     [annotation("Optimizer.step#AdamW.step", 0, 900), *(op("aten::item", 40 * n, 30) for n in range(20))], False),
    ("lists-to-tensors-while-loading", listed(lists=15), False),
    ("lists-to-tensors-while-loading", listed()[1:], False),  # outside of a DataLoader
    ("candidates-each-time", compared(ranks="aten::softmax"), True),
    ("candidates-each-time", [*compared(), shaped("aten::conv2d", 5, 4, [1000, 3, 8, 8], [4, 3, 3, 3])], False),  # images
    ("candidates-each-time",
     compared(ranks="aten::softmax", behind=[shaped("aten::matmul", 620, 20, [8, 1000], [1000, 32])]), False),  # attention
    ("candidates-each-time", [*compared(), *on(2, backward("Addmm", 900, 50, 1))], False),
    ("gates-one-by-one", cells(activation="aten::relu"), False),
    ("gates-one-by-one", cells(times=1), False),
    ("gates-one-by-one", cells(inputs=16), False),  # as layers one after the other
    ("gates-one-by-one", cells(layer="aten::conv2d"), True),
])  # fmt: skip
def test_what_is_kept_picked_or_shared_by_gates(tmp_path, slug, events, told):
    assert (slug in found(tmp_path, [step(0, 0, 1000), *events])) is told


def test_neighbours_that_meet_within_a_rounding_do_not_cross(tmp_path):
    """Beside two that do."""
    crossing = kernel("a", 10, 10, 1), kernel("b", 15, 10, 2)
    meeting = kernel("c", 40, 10.001, 3), kernel("d", 50, 10, 4)
    told = found(tmp_path, [step(0, 0, 200), *(launch(n, n + 1) for n in range(4)), *crossing, *meeting])
    assert told["crossing-slices"] == "1 crossing slice: b"


def test_a_broadcast_that_takes_longer_once_waits_for_nobody(tmp_path):
    said = {"Collective name": "broadcast", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2, "dtype": "BFloat16",
            "Process Group Name": "0"}  # fmt: skip
    name = "ncclDevKernel_Broadcast_RING_LL"
    calls = [e for n, us in enumerate((10, 11, 12, 90)) for e in linked(name, 100 * n, us, n, **said)]
    assert "late-rank-suspected" not in found(tmp_path, [step(0, 0, 1000), *calls])
    said["Collective name"] = "allreduce"
    calls = [e for n, us in enumerate((10, 11, 12, 90)) for e in linked(NCCL, 100 * n, us, n, **said)]
    assert "late-rank-suspected" in found(tmp_path, [step(0, 0, 1000), *calls])


def test_a_compiled_backward_pass_uses_the_gradients(tmp_path):
    events = [step(0, 0, 100), forward("aten::mm", 0, 5, 7), forward("aten::add", 10, 5, 8)]
    assert "gradients-unused" in found(tmp_path, events)
    assert "gradients-unused" not in found(tmp_path, [*events, op("CompiledFunctionBackward", 30, 20)])


def test_what_the_backward_pass_computes_on_the_cpu_counts(tmp_path):
    """It runs on a thread of its own."""
    node = op("autograd::engine::evaluate_function: DivBackward0", 100, 400, **{"Fwd thread id": 1, "Sequence number": 3})
    later = [node, op("aten::div", 110, 300), op("aten::add", 900, 50), call("cudaLaunchKernel", 910, 5, 55)]
    events = [step(0, 0, 1000), op("aten::to", 5, 20), *linked(ADD, 10, 30), *on(77, *later), kernel(ADD, 920, 70, 55)]
    assert found(tmp_path, events)["compute-on-the-cpu"].startswith("1 aten::div per step (300.0 µs each): 31%")


SCORES = [64, 1000]


def reduced_on_the_host(then, between=(), bytes=1000, *, fetched=SCORES, reduced=SCORES, behind=(), steps=1):
    """Scores that are copied to the host for 400 us, in steps of 1,000, and what runs behind them."""
    copy = shaped("aten::to", 5, 420, fetched) if fetched else op("aten::to", 5, 420)
    reduce = shaped(then, 500, 300, reduced) if reduced else op(then, 500, 300)
    one = [
        shaped("aten::softmax", 1, 3, SCORES),
        copy,
        op("aten::copy_", 6, 418),
        *between,
        reduce,
        *behind,
        op("aten::add", 900, 50),
    ]
    events = []
    for n in range(steps):
        ts = 1000 * n
        events += [step(n, ts, 1000), *(later(event, ts) for event in one), call("cudaMemcpyAsync", ts + 8, 410, 2 * n + 1),
                   memcpy(ts + 10, 400, 2 * n + 1, "Memcpy DtoH (Device -> Pageable)", bytes),
                   *linked(ADD, ts + 910, 80, 2 * n + 2)]  # fmt: skip
    return events


@pytest.mark.parametrize(
    ("then", "also", "told"),
    [
        ("aten::argmax", {}, True),
        ("aten::argmax", {"between": (op("aten::view", 450, 2),)}, True),
        ("aten::div", {}, False),  # it needs all of them
        ("aten::argmax", {"between": (op("aten::mul", 450, 40),)}, False),  # of the product
        ("aten::argmax", {"reduced": [64, 10]}, False),  # of something else
        ("aten::argmax", {"behind": (shaped("aten::topk", 810, 40, [64, 10]),)}, True),
        ("aten::argmax", {"behind": (shaped("aten::topk", 810, 40, SCORES),)}, False),
        ("aten::argmax", {"behind": (shaped("aten::slice", 810, 4, SCORES),)}, False),  # a part of them, for something else
        ("aten::argmax", {"behind": (shaped("aten::cat", 810, 4, [SCORES, SCORES]),)}, False),
        ("aten::argmax", {"steps": 2}, True),  # the next step has such scores, too
        ("aten::argmax", {"behind": (shaped("aten::topk", 810, 40, SCORES),), "steps": 2}, False),
    ],
)
def test_what_is_fetched_for_a_reduction_goes_with_it(tmp_path, then, also, told):
    facts = read(write(tmp_path / "t.json", *reduced_on_the_host(then, **also)))
    (one,) = [finding for finding in facts.findings if finding.slug == "compute-on-the-cpu"]
    words = "; what they reduce may be copied to the host for them alone, 400.0 µs per step"
    assert one.seen.endswith(words) is told
    assert one.gain.low == pytest.approx(0.24, abs=0.01) and (one.gain.high > 0.7) is told


def test_without_shapes_what_is_fetched_may_be_for_the_reduction_behind_it(tmp_path):
    for then, high in (("aten::argmax", 0.82), ("aten::div", 0.51)):
        facts = read(write(tmp_path / "t.json", *reduced_on_the_host(then, fetched=None, reduced=None)))
        (one,) = [finding for finding in facts.findings if finding.slug == "compute-on-the-cpu"]
        assert "what they reduce" not in one.seen and (one.gain.low, one.gain.high) == pytest.approx((0.24, high), abs=0.01)


@pytest.mark.parametrize(
    ("then", "between", "high"),
    [
        ("aten::index", (), 0.89),
        ("aten::index", (op("aten::view", 420, 2), op("aten::index", 430, 60)), 0.81),  # two tables, then two copies
        ("aten::div", (), 0.778),  # a copy of less, perhaps
        ("aten::index", (op("aten::div", 420, 60),), 0.70),  # it is the quotient that is sent
        ("aten::index", (op("aten::index", 420, 60), *linked(ADD, 430, 9, 3)), 0.70),  # on the GPU
    ],
)
def test_rows_that_are_picked_on_the_gpu_are_not_sent_to_it(tmp_path, then, between, high):
    """Of 1000 us, 400 in what picks, 300 in what sends, 90 and 100 up to the next op behind either."""
    events = [
        step(0, 0, 1000), op(then, 10, 400), *between, op("aten::to", 500, 300), op("aten::copy_", 501, 298),
        call("cudaMemcpyAsync", 505, 290, 1), memcpy(510, 280, 1, "Memcpy HtoD (Pageable -> Device)", 10_000_000),
        op("aten::add", 900, 50), *linked(ADD, 910, 80, 2),
    ]  # fmt: skip
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "compute-on-the-cpu"]
    assert (one.gain.low, one.gain.high) == pytest.approx((0.32, high), abs=0.01)


def test_a_copy_before_rows_are_picked_is_not_theirs(tmp_path):
    """Of 1000 us, 400 in what picks and 100 behind it go, and the wait for the copy before it; the copy stays."""
    events = [
        step(0, 0, 1000), op("aten::to", 10, 300), op("aten::copy_", 11, 298), call("cudaMemcpyAsync", 15, 290, 1),
        memcpy(20, 280, 1, "Memcpy HtoD (Pageable -> Device)", 10_000_000), op("aten::index", 400, 400), op("aten::add", 900, 50),
        *linked(ADD, 910, 80, 2),
    ]  # fmt: skip
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "compute-on-the-cpu"]
    assert one.gain.high == pytest.approx(0.788, abs=0.005)


def test_without_anomaly_detection_the_forward_pass_keeps_no_tracebacks(tmp_path):
    """On a GPU the CPU's time in its ops is mostly theirs; on a CPU only the checks are known to go."""
    checked = on(2, *(e for n in range(4) for e in (backward("Mm", 500 + 100 * n, 90, n), isnan(550 + 100 * n))))
    ops = [forward("aten::mm", 100 * n, 90, n) for n in range(4)]
    for work, low, high in ((linked(ADD, 50, 20), 0.2, 0.6), ([], 0.0, 0.1)):
        facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *ops, *checked, *work))
        (one,) = [finding for finding in facts.findings if finding.slug == "anomaly-detection"]
        assert low <= one.gain.high <= high, one.gain


def test_anomaly_detection_looks_at_nearly_every_node(tmp_path):
    for checked, told in ((2, False), (3, True)):
        nodes = on(2, *(e for n in range(4) for e in (backward("Mm", 100 * n, 90, n), *[isnan(100 * n + 50)] * (n < checked))))
        assert ("anomaly-detection" in found(tmp_path, [step(0, 0, 1000), *nodes])) is told


def test_a_query_before_the_steps_is_not_counted_in_them(tmp_path):
    query = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
    before = [call(query, 1, 1, 9), *linked(GEMM, 2, 5, **HEAVY), step(0, 50, 20)]
    assert "heavy-launch" not in found(tmp_path, before)
    inside = [call(query, 1, 1, 10), step(0, 50, 20), call(query, 51, 1, 9), *linked(GEMM, 52, 8, **HEAVY)]
    assert found(tmp_path, inside)["heavy-launch"].startswith("1 occupancy query in ProfilerStep#0; ")


def test_a_gap_of_less_than_ten_microseconds_is_none(tmp_path):
    assert "entry-gap" not in found(tmp_path, gaps(9, 3, 2)) and "entry-gap" in found(tmp_path, gaps(11, 3, 2))


def test_a_graph_that_ran_in_one_step_alone_hits_no_cache(tmp_path):
    once = [one for one in COMPILED if "CompiledFxGraph" not in one["name"] or one["ts"] < 100]
    assert "cache-hits" in found(tmp_path, COMPILED) and "cache-hits" not in found(tmp_path, once)


def test_a_kernel_that_steps_call_differently_often_is_not_uneven(tmp_path):
    events = [step(0, 0, 400), step(1, 400, 200), *linked(GEMM, 1, 70, 1), *linked(GEMM, 101, 90, 2), *linked(GEMM, 401, 71, 3)]
    assert "uneven-kernel" not in found(tmp_path, events)
    twice = [*events, *linked(GEMM, 501, 72, 4)]
    assert "uneven-kernel" in found(tmp_path, twice)


def test_one_little_copy_does_not_make_the_large_ones_little(tmp_path):
    """A copy of 4 MB gains by pinned memory, whatever else is copied."""
    events = [step(0, 0, 300)]
    for n, size in enumerate((4_000_000, 400)):
        name = "Memcpy HtoD (Pageable -> Device)"
        events += [call("cudaMemcpyAsync", 100 * n + 5, 50, n + 1), memcpy(100 * n + 10, 44, n + 1, name=name, bytes=size)]
    assert advice(tmp_path, "blocking-copy", *events, *linked(ADD, 280, 19, 9)).startswith("Pin the host memory")


def test_what_an_opaque_op_does_before_the_steps_is_not_counted(tmp_path):
    before = [op("aten::_cudnn_attention_forward", 0, 400), *linked(CUDNN, 300, 5, 1)]
    inside = [step(0, 500, 100), op("aten::_cudnn_attention_forward", 510, 20), *linked(CUDNN, 520, 5, 2)]
    assert "opaque-op" not in found(tmp_path, [*before, *inside])


def test_what_the_cpu_computes_before_the_steps_is_not_counted(tmp_path):
    events = [op("aten::div", 0, 800), step(0, 1000, 1000), op("aten::div", 1100, 300), op("aten::to", 1410, 50),
              op("aten::add", 1900, 50), *linked(ADD, 1910, 5)]  # fmt: skip
    (path,) = [write(tmp_path / "a.json", *events)]
    (seen,) = [f.seen for f in read(path).findings if f.slug == "compute-on-the-cpu"]
    assert seen.startswith("1 aten::div per step (300.0 µs each)")


def test_one_step_that_compiles_is_to_be_warmed_up(tmp_path):
    events = [step(0, 0, 100), op("fx (dynamo_timed)", 20, 40), *linked(ADD, 80, 19)]
    assert advice(tmp_path, "loading-or-compiling-in-step", *events).startswith("Record after warm-up")


def test_a_synchronization_that_begins_in_the_last_step_and_ends_after_it(tmp_path):
    events = [step(0, 0, 100), launch(5, 1), kernel(ADD, 6, 300, 1), call("cudaDeviceSynchronize", 90, 220, 9)]
    assert "profiler-sync" in found(tmp_path, events)


def test_few_kernels_of_an_optimizer_do_not_become_many_by_many_steps(tmp_path):
    def steps(kernels):
        for n in range(3):
            yield from (step(n, 1000 * n, 900), annotation("Optimizer.step#AdamW.step", 1000 * n + 10, 700))
            for k in range(kernels):
                number, at = 100 * n + k, 1000 * n + 20 + 11 * k
                yield from (op("aten::mul_", at, 8), launch(at + 1, number), kernel(ADD, at + 4, 8, number))

    assert "unfused-optimizer" not in found(tmp_path, list(steps(20)))
    assert "unfused-optimizer" in found(tmp_path, list(steps(60)))


def test_recomputation_says_what_memory_it_saves(tmp_path):
    """Two layers: one allocates 6 MiB when it computes again, and frees 1 of them; the other 3. One at a time is there."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    events = [
        op(node, 0, 90), op("aten::linear", 5, 30), *linked(GEMM, 10, 20), memory(1, 1, 2 * MIB, 12 * MIB),
        memory(6, 2, 4 * MIB, 16 * MIB), memory(8, 3, MIB, 17 * MIB), memory(9, 3, -MIB, 16 * MIB),
        memory(60, 4, 9 * MIB, 25 * MIB),
        memory(70, 4, -9 * MIB, 16 * MIB), op(node, 100, 90), op("aten::linear", 105, 30), *linked(GEMM, 110, 20, 2),
        memory(106, 5, 3 * MIB, 19 * MIB),
    ]  # fmt: skip
    said = "in the backward pass: 2 x aten::linear; 100% of GPU time"
    (seen,) = [finding.seen for finding in read(write(tmp_path / "t.json", *events)).findings if finding.slug == "recomputation"]
    assert seen == f"{said}; else about 3.0 MiB more would be kept for the backward pass"
    twice = [step(0, 0, 200), *events, step(1, 1000, 200)]
    for one in events:  # the same step again
        again = {**one, "ts": one["ts"] + 1000, "args": {**one["args"]}}
        again["args"].update({"correlation": one["args"]["correlation"] + 10} if "correlation" in one["args"] else {})
        twice.append(again)
    (seen,) = [finding.seen for finding in read(write(tmp_path / "t.json", *twice)).findings if finding.slug == "recomputation"]
    of_each = said.replace("pass: ", "pass of each step: ")
    assert seen == f"{of_each}; else about 3.0 MiB more would be kept for the backward pass"
    without = [one for one in events if one["name"] != "[memory]"]
    (seen,) = [finding.seen for finding in read(write(tmp_path / "t.json", *without)).findings if finding.slug == "recomputation"]
    assert seen == said


def test_what_recomputation_saves_is_near_what_the_same_step_without_it_needs():
    """Two recordings of one training step on an H200: without checkpointing the peak is higher by 7.5 GiB."""
    plain, checkpointed = (read(str(GALLERY.parent / "llm" / f"{name}.json.gz")) for name in ("train", "train_checkpoint"))
    higher = plain.memory[0].peak_bytes - checkpointed.memory[0].peak_bytes
    (seen,) = [finding.seen for finding in checkpointed.findings if finding.slug == "recomputation"]
    assert f"{higher / 2**30:.1f}" == "7.5" and "else about 7.6 GiB more would be kept" in seen


def test_a_first_step_that_only_waited_for_the_gpu_is_not_cold(tmp_path):
    """It takes twice as long as the others, half of that in a synchronize that waits for work from before."""
    events = [
        launch(-30, 99), kernel(GEMM, -20, 115, 99), step(0, 0, 200), call("cudaDeviceSynchronize", 1, 99, 1),
        *(e for n in (1, 2) for e in (step(n, 100 + 100 * n, 100),)),
        *(e for n in range(3) for e in (launch(150 + 100 * n, n + 2), kernel(GEMM, 160 + 100 * n, 20, n + 2))),
    ]  # fmt: skip
    slugs = [finding.slug for finding in read(write(tmp_path / "t.json", *events)).findings]
    assert "cold-start" not in slugs
    without = [one for one in events if one["name"] != "cudaDeviceSynchronize"]
    assert "cold-start" in [finding.slug for finding in read(write(tmp_path / "u.json", *without)).findings]


def test_a_bias_is_in_the_epilogue_only_where_no_addmm_launches_anything_else(tmp_path):
    """Two shapes of addmm: the one's kernel stands alone, the other one copies its bias first."""
    alone = [op("aten::addmm", 0, 10), *linked(GEMM, 1, 20)]
    both = [op("aten::addmm", 100, 10), *linked(ADD, 101, 3, 2), *linked("gemv", 105, 9, 3)]
    found = [
        [finding.slug for finding in read(write(tmp_path / "t.json", *events)).findings] for events in (alone, [*alone, *both])
    ]
    assert ["epilogue-bias" in slugs for slugs in found] == [True, False]


def test_on_a_cpu_workers_share_its_cores(tmp_path):
    """One thread waits for the next batch; which of the two helps, the trace does not say."""
    begins = {"_SingleProcess": "Set num_workers above 0", "_MultiProcessing": "Use more workers (num_workers)"}
    for iterator, begin in begins.items():
        name = f"enumerate(DataLoader)#{iterator}DataLoaderIter.__next__"
        events = [step(0, 0, 100), annotation(name, 10, 30), op("aten::mm", 50, 49)]
        rest = ", or cheaper transforms; time both: workers and the model share the CPU's cores."
        assert advice(tmp_path, "input-bound", *events) == begin + rest


def test_what_a_product_copies_itself_is_no_copy_to_leave_out(tmp_path):
    """The bias, on which a product adds up; a Python number that is added."""
    for outer in ("aten::addmm", "aten::mul"):
        events = [step(0, 0, 100), op(outer, 0, 90), op("aten::copy_" if outer == "aten::addmm" else "aten::to", 5, 60)]
        assert "copies-on-the-cpu" not in found(tmp_path, events)
    events = [step(0, 0, 100), op("aten::matmul", 0, 90), op("aten::copy_", 5, 60)]
    assert found(tmp_path, events)["copies-on-the-cpu"] == "1 x aten::copy_ (60.0 µs) per step: 60% of the time"


def test_what_a_dataset_does_before_it_makes_a_tensor_of_a_list_is_not_counted(tmp_path):
    """Of 100 us for each of 16, 6 more at most than torch.tensor() takes."""
    seen = found(tmp_path, [step(0, 0, 2000), *listed(lists=16, apart=100)])["lists-to-tensors-while-loading"]
    assert seen.endswith(f"with {13 + 15 * 19:.1f} µs of CPU time per step")


@pytest.mark.parametrize(("dims", "kind", "told"), [
    ([4096], "unsigned char", True), ([64, 64], "unsigned char", False), ([4096], "float", False)])  # fmt: skip
def test_copies_of_whole_memories_are_those_of_a_deepcopy(tmp_path, dims, kind, told):
    copies = [op("aten::copy_", at, 20, **{"Input Dims": [dims, dims], "Input type": [kind, kind]}) for at in (5, 30)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 100), *copies))
    (one,) = [finding for finding in facts.findings if finding.slug == "copies-on-the-cpu"]
    assert ("a copy.deepcopy of" in one.next) is told


def test_a_loop_of_small_ops_is_told_as_one(tmp_path):
    events = [step(0, 0, 5000)]
    for at in range(0, 5000, 100):
        events += [op("aten::lstm_cell", at, 99), *(op("aten::mul", at + 1 + 6 * k, 5) for k in range(16))]
    assert found(tmp_path, events)["many-small-ops"] == (
        "50 of 50 outermost ops per step take less than 50 µs or are loops over such ops (median 99.0 µs; 50 x aten::lstm_cell): "
        "100% of the time with what is between them"
    )


def test_on_a_busy_machine_small_ops_that_waited_for_a_core_are_small(tmp_path):
    """Of 50 adds of 1 one takes 80 in each step, another one; a large one takes 80 in all of them."""

    def steps(*waited):
        events = []
        for number, late in enumerate(waited):
            at = number * 300
            events.append(step(number, at, 290))
            for n in range(50):
                events.append(op("aten::add", at, 80 if n == late else 1))
                at += events[-1]["dur"] + 0.5
        return events

    assert found(tmp_path, steps(7, 31))["many-small-ops"] == (
        "50 of 50 outermost ops per step take less than 50 µs in at least one step (median 1.0 µs; 50 x aten::add): "
        "52% of the time with what is between them"
    )
    assert "many-small-ops" not in found(tmp_path, steps(7, 7))


@pytest.mark.parametrize(
    ("queries", "keys", "is_cross"), [(1, 320, True), (1, 319, False), (320, 320, False), (None, 320, False)]
)
def test_products_of_as_many_rows_as_attention_takes_keys_are_those_of_cross_attention(tmp_path, queries, keys, is_cross):
    q, kv = ([2, 4, length, 4] for length in (queries, keys))
    attention = shaped("aten::scaled_dot_product_attention", 980, 10, *([q, kv, kv] if queries else []))
    (one,) = [f for f in read(write(tmp_path / "t.json", step(0, 0, 1000), *rounds(8), attention)).findings
              if f.slug == "product-in-each-round"]  # fmt: skip
    rows = "8 products per step of 640 rows, between others of few"
    assert one.seen.partition(";")[0] == rows and ("; attention takes as many keys; " in one.seen) is is_cross
    assert one.next == (
        "If their input is the same (an encoder's output), compute the keys and values of this cross-attention once, before "
        "the loop, and keep them."
        if is_cross
        else "If its input is the same (an encoder's output, a prompt, a table), compute the product once, before the loop, and "
        "keep it."
    )


@pytest.mark.parametrize(
    ("mean", "between", "is_weights"),
    [
        ([2, 4, 64, 64], 4, True),
        ([2, 4, 64, 32], 4, False),  # not as many numbers
        ([8, 64, 64], 4, False),  # no heads to take it over
        ([2, 4, 64, 64], 20, False),  # far behind the softmax
    ],
)
def test_the_mean_of_an_attentions_weights_goes_with_it(tmp_path, mean, between, is_weights):
    product = {"Input Dims": [[8, 64, 64], [8, 64, 16]], "Input type": ["float"] * 2}
    events = [step(0, 0, 200), op("aten::bmm", 0, 20, **product), shaped("aten::_softmax", 30, 10, [8, 64, 64]),
              op("aten::bmm", 50, 20, **product), *(op("aten::add", 75 + n, 0.5) for n in range(between)),
              shaped("aten::mean", 100, 40, mean)]  # fmt: skip
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "attention-in-parts-on-cpu"]
    assert one.seen == (
        "1 softmax per step between two batched products, 50.0 µs each: 25% of the time"
        + "; then 1 mean per step of weights over the heads" * is_weights
    )
    assert one.next.startswith("Pass need_weights=False" if is_weights else "Use F.scaled_dot_product_attention")
    assert round(one.gain.high, 2) == (0.43 if is_weights else 0.23)


def test_torchs_own_layer_is_not_told_to_be_torchs_own_attention(tmp_path):
    events, _, _ = CASES["attention-in-parts-on-cpu"]
    attention = "attention-in-parts-on-cpu"
    assert attention in found(tmp_path, [*events, op("aten::native_layer_norm", 75, 5)])
    assert attention not in found(tmp_path, [*events, op("aten::_transformer_encoder_layer_fwd", 0, 80)])


def test_on_the_gpu_the_mean_of_an_attentions_weights_goes_with_it_too(tmp_path):
    gains = []
    for heads in (4, 5):
        events = [step(0, 0, 500)]
        work = (("aten::bmm", GEMM, [8, 64, 64]), ("aten::_softmax", SOFTMAX, [8, 64, 64]), ("aten::bmm", GEMM, [8, 64, 64]),
                ("aten::mean", ADD, [2, heads, 64, 64]))  # fmt: skip
        for n, (name, kernel_name, dims) in enumerate(work):
            at = 100 * n
            events += [shaped(name, at, 20, dims), launch(at + 5, n), kernel(kernel_name, at + 12, 90, n)]
        (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "unfused-attention"]
        gains.append((one.seen.endswith("; then 1 mean per step of weights over the heads"), round(one.gain.high, 2)))
    assert gains == [(True, 0.08), (False, 0.04)]  # of the CPU's 500, the softmax and the mean take 20 each


def test_a_softmax_whose_result_the_next_product_cannot_take_is_no_attention(tmp_path):
    def events(scores):
        shapes = {"Input Dims": [[8, scores, scores]], "Input type": ["float"]}
        product = {"Input Dims": [[8, 64, 64], [8, 64, 16]], "Input type": ["float"] * 2}
        return [step(0, 0, 100), op("aten::bmm", 0, 20, **product), op("aten::_softmax", 30, 10, **shapes),
                op("aten::bmm", 50, 20, **product)]  # fmt: skip

    assert "attention-in-parts-on-cpu" in found(tmp_path, events(64))
    assert "attention-in-parts-on-cpu" not in found(tmp_path, events(65))


def test_a_slow_step_that_does_more_is_told_so(tmp_path):
    """Two large products in the third step; then the same products in each step, of other sizes."""

    def steps(sizes):
        events = []
        for n, size in enumerate(sizes):
            at, dur = 1000 * n, 800 if n == 2 else 100
            events += [step(n, at, dur), op("aten::mm", at, 40, **matrices("float", 64))]
            events += [op("aten::mm", at + 50, dur - 60, **matrices("float", size))] if size else []
        return events

    events = steps((0, 0, 512, 0, 0))
    assert found(tmp_path, events)["uneven-steps"] == (
        "ProfilerStep#2 takes 800.0 µs, the median step 100.0 µs; it calls aten::mm 1 time with inputs of one shape, no other "
        "step does: 740.0 µs"
    )
    assert advice(tmp_path, "uneven-steps", *events) == "Look at what that step does and the others do not."
    outside = [e for e in events if e["name"] != "aten::mm"] + [op("aten::add", 1000 * n + 900, 10) for n in range(5)]
    assert found(tmp_path, outside)["uneven-steps"] == "ProfilerStep#2 takes 800.0 µs, the median step 100.0 µs"
    unknown = [{**e, "args": {}} if e["name"] == "aten::mm" else e for e in events]  # without record_shapes
    assert found(tmp_path, unknown)["uneven-steps"].endswith("; it calls aten::mm 2 times, no other step more than 1: 740.0 µs")
    growing = steps((1, 2, 3, 4, 5))
    assert "most of the difference is aten::mm" in found(tmp_path, growing)["uneven-steps"]
    assert advice(tmp_path, "uneven-steps", *growing).startswith("Record again on a machine that does nothing else")


def test_calls_that_take_as_long_in_each_step_at_the_same_place_are_not_uneven(tmp_path):
    """The first of ten products meet cold memory in each step; then others do in each."""

    def steps(slow_at):
        events = []
        for n in range(4):
            events += [step(n, 1000 * n, 500)]
            for k in range(10):
                events += [op("aten::mm", 1000 * n + 45 * k, 40 if k in slow_at(n) else 5, **matrices("float"))]
        return events

    assert "uneven-op" not in found(tmp_path, steps(lambda n: (0, 1)))
    assert "uneven-op" in found(tmp_path, steps(lambda n: (2 * n, 2 * n + 1)))


def test_an_optimizer_on_a_cpu_that_has_a_fused_one(tmp_path):
    """60 of 1,000 µs; not where it is fused, takes less, or has no fused one that was faster."""

    def events(name, dur, inside="aten::mul_"):
        return [step(0, 0, 1000), op("aten::mm", 0, 900), annotation(f"Optimizer.step#{name}.step", 900, dur), op(inside, 901, 8)]

    trace = read(write(tmp_path / "t.json", *events("AdamW", 60)))
    (told,) = (finding for finding in trace.findings if finding.slug == "unfused-optimizer")
    assert told.seen == "1 ops per optimizer step, and 60.0 µs: 6.0% of the time"
    assert told.next == "Use fused=True: one op then reads and writes each parameter once."
    assert told.gain is not None and (told.gain.low, told.gain.high) == (pytest.approx(0.024), pytest.approx(0.054, abs=1e-4))
    for other in (events("AdamW", 49), events("SGD", 60), events("AdamW", 60, "aten::_fused_adamw_")):
        assert "unfused-optimizer" not in found(tmp_path, other)


def test_the_later_steps_of_a_cold_run_have_their_median(tmp_path):
    events = [e for n, dur in enumerate((90, 10, 30)) for e in (step(n, 100 * n, dur), *linked(ADD, 100 * n + 1, 3, n))]
    assert found(tmp_path, events)["cold-start"] == "ProfilerStep#0 takes 90.0 µs of CPU time, the later steps 20.0 µs (median)"


def test_time_in_no_op_while_a_collective_runs_is_told_apart(tmp_path):
    gloo = event("user_annotation", "gloo:all_reduce", 20, 70, {"pid": 1, "tid": 9})
    facts = read(write(tmp_path / "t.json", step(0, 0, 100), op("aten::mm", 0, 30), gloo))
    assert verdict_sentence(facts) == (
        "cpu-only: the trace holds no GPU event; 60% of the steps' time is in no op while a collective runs on the CPU, 30% is "
        "aten::mm"
    )
    assert advice(tmp_path, "cpu-only", step(0, 0, 100), op("aten::mm", 0, 30), gloo) == (
        "Read the traces of all ranks together: that shows which rank waits for which."
    )


def test_gaps_with_functions_of_python_in_them_promise_nothing_where_their_price_is_not_known(tmp_path):
    """A single step: what it takes without the profiler is not known."""

    def gain(*more):
        events = [step(0, 0, 1000), op("aten::view", 1, 9), op("aten::add", 500, 20), *linked(ADD, 510, 9), *more]
        (told,) = (f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "python-between-ops")
        return told

    assert gain().gain is not None
    told = gain(*(event("python_function", "t.py(7): load", 20 + n, 1) for n in range(400)))
    assert told.gain is None and told.gain_unknown_because == (
        "the gaps include the profiler's cost of Python functions, which is not known"
    )


def test_of_communication_on_the_path_no_more_is_exposed_than_is_told(tmp_path):
    """The last kernel waits for a collective of 80, beside which 60 are computed."""
    events = [step(0, 0, 100), *linked(NCCL, 0, 80, 1, stream=17), launch(2, 2), kernel(GEMM, 11, 60, 2)]
    events += [launch(4, 3), kernel(ADD, 81, 10, 3, stream=17)]
    (told,) = (f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "exposed-communication")
    assert told.seen == "20.0 µs of 80.0 µs of communication are exposed: 22% of the time"
    assert told.share == pytest.approx(20 / 91, abs=0.01)


@pytest.mark.parametrize(
    ("gather", "inputs", "taken", "told"),
    [
        ("aten::embedding", ([10, 16], [800]), [800, 16], True),
        ("aten::embedding", ([10, 16], [40, 20]), [40, 20, 16], True),
        ("aten::embedding", ([10, 16], [800]), [900, 16], False),  # of another number of rows
        ("aten::embedding", ([10, 16], [800]), [800, 256], False),  # a class beside a picture
        ("aten::index_select", ([100, 16], [], [800]), [800, 256], False),
        ("aten::index_select", ([100, 16], [], [800]), [800, 16], True),
    ],
)
def test_a_product_takes_what_is_gathered(tmp_path, gather, inputs, taken, told):
    events = [step(0, 0, 1000), shaped(gather, 5, 90, *inputs), shaped("aten::linear", 100, 300, taken, [4, taken[-1]])]
    assert ("gathered-then-multiplied" in found(tmp_path, events)) is told


def test_where_launch_calls_take_most_of_the_path_they_are_what_is_shown(tmp_path):
    lit = []
    for inside_us in (88, 10):  # of an op of 90
        ops = []
        for n in range(9):
            ops += [op("aten::add", 100 * n, 90), call("cudaLaunchKernel", 100 * n + 1, inside_us, n + 1)]
            ops += [kernel(ADD, 100 * n + 91, 5, n + 1)]
        trace = load(write(tmp_path / "t.json", step(0, 0, 900), *ops))
        reading = examine(trace)
        assert reading.facts.verdict == "overhead-bound"
        lit.append(set(reading.seen["overhead-bound"].evidence.names))
    assert lit == [{"cudaLaunchKernel"}, {"aten::add"}]


def test_calls_that_launch_nothing_are_not_shown_as_launches(tmp_path):
    calls = [
        e
        for n in range(9)
        for e in (
            call("cudaLaunchKernel", 100 * n, 60, n + 1),
            call("cudaMalloc", 100 * n + 61, 20, 50 + n),
            kernel(ADD, 100 * n + 90, 5, n + 1),
        )
    ]
    seen = examine(load(write(tmp_path / "t.json", step(0, 0, 900), *calls))).seen["overhead-bound"]  # fmt: skip
    assert set(seen.evidence.names) == {"cudaLaunchKernel"}


def test_smaller_products_are_launched_as_often(tmp_path):
    """Of 500 the GPU takes 400 for two products, of which 8% are left, and the CPU 60: those stay."""
    dims = ([100, 8], [8, 100]), ([100, 100], [100, 8])
    events = []
    for n in range(3):
        events += [step(n, 500 * n, 500), call("cudaDeviceSynchronize", 500 * n + 70, 420, 10 * n + 9)]
        for k, both in enumerate(dims):
            events += [shaped("aten::matmul", 500 * n + 5 + 30 * k, 29, *both), launch(500 * n + 6 + 30 * k, 10 * n + k + 1)]
            events += [kernel(GEMM, 500 * n + 40 + 200 * k, 200, 10 * n + k + 1)]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "product-order"]
    assert one.gain.high == pytest.approx(0.776)  # were the launches less as well: 0.806


HEAD_OF_ATTENTION = [("aten::linear", [2, 9, 16], [4, 16]), ("aten::linear", [2, 9, 16], [4, 16]),
                     ("aten::matmul", [2, 9, 4], [2, 4, 9]), ("aten::softmax", [2, 9, 9]),
                     ("aten::linear", [2, 9, 16], [4, 16]), ("aten::matmul", [2, 9, 9], [2, 9, 4])]  # fmt: skip


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (HEAD_OF_ATTENTION, True),
        ([*HEAD_OF_ATTENTION, ("aten::linear", [2, 9, 4], [16, 4])], False),  # a layer: it makes what the next one takes
        (HEAD_OF_ATTENTION[1:3] + HEAD_OF_ATTENTION[3:4] + HEAD_OF_ATTENTION[5:], False),  # one projection: of a state, maybe
        ([*HEAD_OF_ATTENTION[:3], ("aten::hardshrink", [2, 9, 9]), *HEAD_OF_ATTENTION[4:]], False),
        ([("aten::linear", [2, 9, 16], [16, 16]), *HEAD_OF_ATTENTION[1:]], False),  # as wide as what it takes
        ([("aten::linear", [2, 9, 16]), *HEAD_OF_ATTENTION[1:]], False),  # of unknown width
        ([*HEAD_OF_ATTENTION, ("aten::add", [2, 9, 16], [2, 9, 16])], False),  # a residual
        ([*HEAD_OF_ATTENTION, ("aten::matmul", [2, 9, 4], [4, 16])], False),  # it makes what the next one takes
        ([("aten::layer_norm", [2, 9, 16], []), *HEAD_OF_ATTENTION], False),
        ([("aten::hardshrink", [2, 9, 16]), *HEAD_OF_ATTENTION], False),
    ],
)
def test_heads_of_attention_that_are_modules_of_their_own(tmp_path, ops, told):
    made = [shaped(name, 5 + 20 * n, 18, *dims) for n, (name, *dims) in enumerate(ops * 4)]
    assert ("loop-of-small-products" in found(tmp_path, [step(0, 0, 1000), *made])) is told


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (["aten::matmul", "aten::mul", "aten::matmul", "aten::add"], True),
        (["aten::matmul", "aten::mul", "aten::matmul"], False),
        (["aten::matmul", "aten::mul", "aten::relu", "aten::add"], False),  # a layer
        (["aten::linear", "aten::mul", "aten::matmul", "aten::add"], False),
    ],
)
def test_polynomials_of_matrices_are_no_layers(tmp_path, ops, told):
    made = [op(name, 5 + 20 * n, 18) for n, name in enumerate(ops * 16)]
    assert ("repeated-ops" in found(tmp_path, [step(0, 0, 2000), *made])) is told


@pytest.mark.parametrize(
    ("whole", "told"), [([16, 8, 8], True), ([17, 8, 8], True), ([4, 8, 8], False), ([16, 4, 8], False)]
)  # the last: 16 samples, whose first position each layer takes
def test_a_loop_over_a_tensor_with_a_place_for_each_round_is_none_of_layers(tmp_path, whole, told):
    made = [e for n in range(16) for e in (
        shaped("aten::select", 100 * n, 40, whole), shaped("aten::matmul", 100 * n + 50, 40, [8, 8], [8, 8]))]  # fmt: skip
    assert ("repeated-ops" in found(tmp_path, [step(0, 0, 2000), *made])) is told


@pytest.mark.parametrize(
    ("operands", "told"), [(([8, 8], [8, 4]), True), (([2, 8], [8, 8]), False), (([8, 8], [8, 8]), True)]
)  # the second: weights of layers, stacked
def test_what_is_multiplied_with_an_element_of_each_round_may_be_what_flows_through_layers(tmp_path, operands, told):
    made = [e for n in range(16) for e in (
        shaped("aten::select", 100 * n, 40, [16, 8, 8]), shaped("aten::matmul", 100 * n + 50, 40, *operands))]  # fmt: skip
    assert ("repeated-ops" in found(tmp_path, [step(0, 0, 2000), *made])) is told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], True),
        ([shaped("aten::randn", -15, 5)], True),  # before it
        ([shaped("aten::normal_", 58.5, 1, [64, 1])], False),
        ([shaped("aten::add_", 58.5, 1, [64, 1], [64, 1])], False),  # of two that are as large, one is the program's
        ([shaped("aten::add", 58.5, 1, [64, 1], [64])], True),  # of two views
        ([shaped("aten::mul", 58.5, 1, [64, 1], [])], False),  # a number of the program's, a tensor without dimensions
        ([shaped("aten::empty", 58.5, 1)], False),
        ([*of_a_number(58.1), shaped("aten::div", 58.8, 0.1, [64, 1], [])], True),
        ([*of_a_number(58.1)[:-2], shaped("aten::div", 58.8, 0.1, [64, 1], [])], False),  # of the program's
        ([shaped("aten::add", 118.2, 1, [64, 1], [64, 1])], True),  # of the three that were made
        # One of these is the program's: an op of it takes that shape, and one is left of what was made.
        ([shaped("aten::relu", -15, 5, [64, 1]), shaped("aten::mul", 78.5, 1, [64, 1], [64, 1])], False),
    ],
)
def test_a_chain_of_constants_takes_nothing_of_the_program(tmp_path, more, told):
    made = [e for n in range(3) for e in (*constants(150 * n + 20), *(later(one, 150 * n + 20) for one in more))]
    made.sort(key=lambda one: one["ts"])
    assert ("constants-made-again" in found(tmp_path, [step(0, 0, 1000), *made])) is told


def test_what_the_backward_pass_has_a_node_of_is_no_constant(tmp_path):
    """A table that is trained takes part in it."""
    chains = [e for n in range(3) for e in constants(150 * n)]
    chains[3]["args"] |= {"Sequence number": 7, "Fwd thread id": 0}  # the first one's exp
    seen = found(tmp_path, [step(0, 0, 1000), *chains])
    assert seen["constants-made-again"].startswith("per step: 3 x (aten::arange to aten::cos, 5 ops)")
    events = [step(0, 0, 1000), *chains, *on(2, backward("Exp", 900, 50, 7))]
    assert "constants-made-again" not in found(tmp_path, events)  # two are too few


def test_two_axes_are_made_before_either_is_used(tmp_path):
    """Of the first one no op behind it says how long it is."""
    ops = [("aten::arange",), ("aten::arange",), ("aten::unsqueeze", [16]), ("aten::unsqueeze", [8]),
           ("aten::sub", [16, 1], [1, 8]), ("aten::gt", [16, 8]), ("aten::__and__", [16, 8], [16, 8]),
           ("aten::where", [16, 8], [16, 8], [16, 8]), ("aten::linear", [2, 8, 16], [16, 16])]  # fmt: skip
    made = [shaped(name, 200 * n + 20 * k, 18, *dims) for n in range(3) for k, (name, *dims) in enumerate(ops)]
    seen = found(tmp_path, [step(0, 0, 1000), *made])["constants-made-again"]
    assert seen.startswith("per step: 3 x (aten::arange to aten::where, 8 ops)")


def test_what_compares_with_other_numbers_is_not_the_same(tmp_path):
    """Three layers of other windows, the same in each of two steps: three chains."""
    made = []
    for n in range(6):
        chain = constants(150 * n)
        chain[3] = op("aten::lt", 150 * n + 60, 18, **{"Input Dims": [[64, 1], []], "Input type": ["float", "Scalar"],
                                                      "Concrete Inputs": ["", str(n % 3)]})  # fmt: skip
        made += chain
    assert "constants-made-again" not in found(tmp_path, [step(0, 0, 450), *made[: len(made) // 2]])
    both = found(tmp_path, [step(0, 0, 450), step(1, 450, 450), *made])
    assert both["constants-made-again"].startswith("per step: 1 x (aten::arange to aten::cos, 5 ops), 1 x (")


def test_a_position_is_no_table(tmp_path):
    """What begins with a single number may be where a loop is."""
    made = [e | {"args": {k: [[1 if n == 64 else n for n in one] for one in v] if k == "Input Dims" else v
                          for k, v in e["args"].items()}} for n in range(3) for e in constants(150 * n)]  # fmt: skip
    assert "constants-made-again" not in found(tmp_path, [step(0, 0, 1000), *made])


def test_a_constant_of_one_step_may_be_kept_already(tmp_path):
    """Made once in the only step, or in one of two; not when both make it."""
    assert "constants-made-again" not in found(tmp_path, [step(0, 0, 200), *constants(20)])
    first = [step(0, 0, 200), *constants(20), step(1, 200, 200), op("aten::mm", 220, 100)]
    assert "constants-made-again" not in found(tmp_path, first)
    assert "constants-made-again" in found(tmp_path, [*first[:-1], *constants(220)])


def test_a_transpose_turns_the_last_two_dimensions_and_t_reverses_all():
    turned = {name: made_of(f"aten::{name}", [(2, 3, 4)], []) for name in ("mT", "numpy_T", "relu")}
    assert turned == {"mT": (2, 4, 3), "numpy_T": (4, 3, 2), "relu": (2, 3, 4)}
    assert made_of("aten::t", [(3, 4)], []) == (4, 3) and made_of("aten::numpy_T", [(4,)], []) == (4,)


def test_of_sines_that_are_constants_one_finding_tells(tmp_path):
    for data, told in ((None, "constants-made-again"), ([64, 1], "sines-in-step")):
        every = found(tmp_path, [step(0, 0, 1000), *(e for n in range(4) for e in constants(150 * n, data=data))])
        assert {"constants-made-again", "sines-in-step"}.intersection(every) == {told}


def test_a_lookup_of_constants_is_one_but_for_training(tmp_path):
    """Its table is the same in each layer, until an optimizer changes it."""
    table = [later(e, 150 * n) for n in range(3) for e in (
        *constants(20)[:-1], shaped("aten::embedding", 120, 18, [32, 8], [64, 1]), shaped("aten::permute", 140, 8, [64, 1, 8]),
        shaped("aten::linear", 150, 15, [2, 16], [16, 16]))]  # fmt: skip
    events = [step(0, 0, 1000), *table]
    assert "aten::arange to aten::permute, 7 ops" in found(tmp_path, events)["constants-made-again"]
    node = on(2, backward("Mm", 900, 50, 1))
    assert "aten::arange to aten::cos, 5 ops" in found(tmp_path, [*events, *node])["constants-made-again"]


@pytest.mark.parametrize(("times", "one_by_one"), [(2, False), (3, False), (4, True)])
def test_nodes_that_run_often_may_be_of_a_jacobian(tmp_path, times, one_by_one):
    """A loss more runs them once more; each output of a layer runs them as often as it has outputs."""
    nodes = on(2, *(backward("Mm", 100 * n, 90, n % 3) for n in range(3 * times)))
    (one,) = [f for f in read(write(tmp_path / "t.json", step(0, 0, 2000), *nodes)).findings if f.slug == "backward-twice"]
    assert one.seen == f"{3 * times - 3} of {3 * times} nodes per step run again" + f", most of these {times} times" * one_by_one
    assert ("torch.func.jacrev" in one.next) is one_by_one and ("without retain_graph" in one.next) is not one_by_one


@pytest.mark.parametrize(
    ("name", "rounds", "told"),
    [("aten::fill_", 16, True), ("aten::exp", 16, True), ("aten::exp", 15, False), ("aten::linear", 16, False)],
)
def test_a_loop_over_rows_of_different_lengths(tmp_path, name, rounds, told):
    """Of layers, those of other shapes are no round of the same loop."""
    made = [e for n in range(rounds) for e in (shaped("aten::select", 100 * n, 40, [16, 99]),
            shaped(name, 100 * n + 45, 40, [n + 1]))]  # fmt: skip
    assert ("repeated-ops" in found(tmp_path, [step(0, 0, 2000), *made])) is told


def test_what_a_loop_does_says_what_does_it_at_once(tmp_path):
    made = [e for n in range(16) for e in (op("aten::index_put_", 100 * n, 45), op("aten::mean", 100 * n + 65, 20))]
    next = advice(tmp_path, "repeated-ops", step(0, 0, 2000), *made)
    here = (
        " Here it may be one index_put_ or scatter_ with the indices of all rounds (rows and columns) joined; or one reduction "
    )
    assert here in next and next.startswith("If the rounds of this Python loop do not need each other's results, ")
    seen = found(tmp_path, [step(0, 0, 2000), *made])["repeated-ops"]
    assert seen.startswith("in a row, per step: 16 x (aten::index_put_, aten::mean); ")  # what takes most first


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (passes_through(behind=2), False),  # a chain, whose next input is made behind each pass: as much as around all
        (passes_through(times=3), True),
        (passes_through(between=["aten::argmax"], behind=9), False),  # which chooses the next token
        (passes_through(between=["aten::sub", "aten::mul", "aten::add"], behind=2), False),
        (passes_through(times=4), False),  # with the same between any two
        ([*passes_through(behind=4), *passes_through(at=500, behind=4)], True),  # two pairs
    ],
)
def test_passes_that_may_be_one_are_no_chain(tmp_path, events, told):
    assert ("same-network-twice" in found(tmp_path, [step(0, 0, 2000), *events])) is told


def test_most_of_the_waits_may_be_cudnns_search(tmp_path):
    """By their time: then what the convolutions take goes; else what reads a value."""
    for ops, begins in (
        (("aten::cudnn_convolution", "aten::item"), "Most of this time is in convolutions: for each size that is new, "),
        (("aten::item", "aten::cudnn_convolution"), "Read values less often (.item(), "),
    ):
        events = [step(0, 0, 400), *linked(ADD, 1, 110)]
        for n, (name, ts, dur) in enumerate(zip(ops, (20, 180), (100, 20), strict=True)):
            events += [op(name, ts, dur + 5), call("cudaStreamSynchronize", ts + 1, dur, 5 + n)]
        events += linked(ADD, 300, 49, 2)
        (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "sync-in-step"]
        assert one.next.startswith(begins), one.next


@pytest.mark.parametrize(
    ("slug", "events", "gain"),
    [
        # Three tenths of 40% are left; a quarter of 80% goes.
        ("weights-for-few-rows", for_few_rows(), 0.28),
        ("gradients-unused", [forward("aten::mm", 100 * n, 80, 7 + n) for n in range(10)], 0.2),
        ("graph-never-used", in_a_rollout(), 0.08),
    ],
)
def test_what_the_newest_advice_saves_as_played(tmp_path, slug, events, gain):
    reading = examine(load(write(tmp_path / "t.json", step(0, 0, 1000), *events)))
    effect = reading.effect(slug)
    assert effect is not None and reading.run is not None and effect.kind == REPLACED
    edited = Edited(reading.run.replay, reading.run.replay.nodes.after_ns)
    effect.most(edited)
    assert 1 - edited.play().step_us / 1000 == pytest.approx(gain, abs=0.01)


@pytest.mark.parametrize(
    ("slug", "weight"),
    [("repeated-ops", 0.8), ("inputs-made-elsewhere", 0.5), ("whole-sort", 1.0), ("many-small-kernels", 0.125)],
)
def test_what_may_not_be_possible_stands_lower(slug, weight):
    """0.4 of a step, weighed, is beside 0.3 of one that is sure."""

    def rank(name, middle):
        return rank_of_finding(Finding(name, "", "", "", 0.5, (), Gain(middle, middle), None))

    assert (rank(slug, 0.4) < rank("many-cats", 0.3)) is (0.4 * weight > 0.3)
    assert (rank(slug, 0.4) < rank("many-cats", 0.1)) is (0.4 * weight > 0.1)


def test_norms_one_by_one_are_of_gradients(tmp_path):
    """In inference they may be of anything."""
    norms = [op("aten::linalg_vector_norm", 10 * n, 9) for n in range(24)]
    assert "norms-one-by-one" not in found(tmp_path, [step(0, 0, 1000), *norms])
    assert "norms-one-by-one" in found(tmp_path, [step(0, 0, 1000), *norms, *on(2, backward("Addmm", 900, 50, 1))])


def test_of_long_passes_on_a_cpu_no_number_is_told(tmp_path):
    slow = [{**e, "dur": 2 * e["dur"], "ts": 2 * e["ts"]} for e in passes_through()]
    (one,) = [f for f in read(write(tmp_path / "t.json", step(0, 0, 2000), *slow)).findings if f.slug == "same-network-twice"]
    assert one.gain is None and one.gain_unknown_because == "whether the inputs are the same is not in a trace"


@pytest.mark.parametrize(
    ("slug", "events"),
    [
        ("convolutions-of-parts", of_channels(cut="aten::relu")),  # of the whole tensor
        (
            "convolutions-of-parts",
            [
                e
                for n in range(8)
                for e in (
                    shaped("aten::conv1d", 50 * n, 35, [2, 4, 100], [4, 4, 3]),
                    shaped("aten::slice", 50 * n + 36, 5, [2, 4, 102]),
                )
            ],
        ),  # each of what the one before made
        ("same-network-twice", [*passes_through(), *on(2, backward("Addmm", 100, 50, 1))]),  # with a backward pass between them
        ("inputs-made-elsewhere", [e for e in two_towers() if e["ts"] != 40]),  # the positions of an image's patches
        (
            "graph-never-used",
            [{**e, "args": {k: v for k, v in e["args"].items() if k != "Fwd thread id"}} for e in in_a_rollout()],
        ),
        ("loop-over-tensors", [shaped("aten::to", 20 * n, 15, [n + 1]) for n in range(26)]),  # the fields of a batch
        ("loop-over-tensors", [annotation("Optimizer.step#SGD.step", 0, 990), *updated_one_by_one()]),  # unfused-optimizer tells
        ("weights-for-few-rows", for_few_rows(kind="c10::BFloat16")),
        ("weights-for-few-rows", for_few_rows(outputs=1024)),  # it may stay in a cache
        ("weights-for-few-rows", [*for_few_rows(), *on(2, backward("Addmm", 900, 50, 1))]),
        ("network-made-in-step", [*built(), *on(2, backward("Addmm", 900, 50, 1))]),  # noise of a training
        ("network-made-in-step", [op("aten::linear", 5, 10), *built()]),  # noise behind a layer
        ("inputs-made-elsewhere", [*two_towers(), *on(2, backward("Addmm", 900, 50, 1))]),
        ("inputs-made-elsewhere", [e for e in two_towers() if e["name"] != "aten::conv2d"]),
        ("graph-never-used", in_a_rollout([20] * 7 + [19])),  # one layer of ten
        ("graph-never-used", in_a_rollout()[:11]),  # without a backward pass, gradients-unused tells
    ],
)
def test_the_newest_rules_are_silent_where_it_may_be_something_else(tmp_path, slug, events):
    assert slug not in found(tmp_path, [step(0, 0, 1000), *events])


def test_a_list_of_tensors_of_different_shapes_is_a_loop(tmp_path):
    seen = found(tmp_path, [step(0, 0, 1000), *updated_one_by_one()])["loop-over-tensors"]
    assert seen == "in a row, per step: 20 x (aten::mul_, aten::add_); 600.0 µs of CPU time: 60% of the steps' time"


def test_a_momentum_is_no_other_parameter(tmp_path):
    """SGD with momentum has two add_ and one mul_ for each parameter."""
    updates = [op(name, 800 + 10 * n, 5) for n, name in enumerate(["aten::mul_", "aten::add_", "aten::add_"] * 2)]
    events = [
        *(op("aten::linear", 50 * n, 40, **{"Sequence number": n}) for n in range(4)),
        *on(2, *(backward("Addmm", 300 + 100 * n, 50, 3 - n) for n in range(4))),
        *on(2, *(op("torch::autograd::AccumulateGrad", 360 + 100 * n, 5) for n in range(4))),
        annotation("Optimizer.step#SGD.step", 790, 100), *updates,
    ]  # fmt: skip
    seen = found(tmp_path, [step(0, 0, 1000), *events]).get("gradients-nobody-uses", "")
    assert "of 4 parameters are computed in a step, of which the optimizer uses 2 at most" in seen


def test_what_picks_rows_on_the_host_may_be_kept_on_the_gpu(tmp_path):
    picked = [op("aten::index", 100, 400), *linked(ADD, 600, 700, 1)]
    assert advice(tmp_path, "compute-on-the-cpu", step(0, 0, 1000), *picked).startswith(
        "If the GPU's memory allows, keep the data"
    )
    computed = [op("aten::sum", 100, 400), *linked(ADD, 600, 700, 1)]
    assert advice(tmp_path, "compute-on-the-cpu", step(0, 0, 1000), *computed).startswith("Move the inputs to the GPU")


def test_most_layers_run_again_without_a_gradient_not_one_alone(tmp_path):
    """A frozen layer among those that are trained is none of a second pass, nor is a pass of other layers."""
    three = (32, 8), (16, 32), (8, 16)
    for differentiated, again, told in (((0, 1, 2), three[:2], True), ((0, 1, 2), three[:1], False), ((0,), three, False),
                                        ((0, 1, 2, 3, 4, 5), three, False)):  # fmt: skip
        events = layers_twice(differentiated, three, again)
        assert ("forward-without-gradient" in found(tmp_path, [step(0, 0, 1000), *events])) is told


def test_what_is_ahead_of_trained_layers_may_be_frozen_ones(tmp_path):
    """Then they cannot go; behind the last trained layer, they are a pass of their own. A backward pass ends such a run."""
    for differentiated, told in (((0, 1), True), ((2, 3), False)):
        trace = load(write(tmp_path / "t.json", step(0, 0, 1000), *layers_twice(differentiated)))
        reading = examine(trace)
        (one,) = [finding for finding in reading.facts.findings if finding.slug == "forward-without-gradient"]
        assert (one.gain is not None) is told
        assert one.gain_unknown_because == (None if told else "trained layers may take what they compute")
        assert reading.seen[one.slug].evidence.total_us == 170  # two layers, and what is between them
    node = backward("Addmm", 297, 5, 1)  # between two layers without a gradient, on their thread
    late = [later(e, 10) if e["ts"] >= 300 else e for e in layers_twice()[:-2]]
    seen = examine(load(write(tmp_path / "t.json", step(0, 0, 1000), *late, node, backward("Addmm", 600, 30, 2)))).seen
    assert seen["forward-without-gradient"].evidence.total_us == 160  # without what is between them


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"base_first": False}, True),
        ({"between": (shaped("aten::gelu", 162, 5, [4, 10, 8]),)}, False),  # a bottleneck of its own
        ({"between": (shaped("aten::gelu", 260, 5, [4, 10, 96]),)}, False),  # the sum is of something else
        ({"between": (shaped("aten::mul", 260, 5, [4, 10, 96], [4, 1, 1]),)}, False),  # each row has adapters of its own
        ({"rank": 25}, False),
        ({"between": (shaped("aten::dropout", 106, 2, [4, 10, 64]),)}, True),
        ({"between": (shaped("aten::gelu", 106, 2, [4, 10, 64]),)}, False),  # what it takes is made of the layer's result
        ({"base_first": False, "between": (shaped("aten::linear", 370, 9, [4, 10, 96], [96, 96]),)}, False),  # two layers
    ],
)
def test_two_thin_layers_may_be_no_adapter(tmp_path, made, told):
    assert ("adapters-not-merged" in found(tmp_path, [step(0, 0, 1000), *adapted(**made)])) is told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (shaped("aten::index", 300, 20, [5000]), True),  # its labels
        (shaped("aten::linear", 300, 20, [5000, 3], [8, 3]), False),  # what makes the table, maybe
        (shaped("aten::mul_", 300, 20, [5000, 8], []), False),  # what changes it
        (shaped("aten::_foreach_add_", 300, 20, [[5000, 8], [8]]), False),
        (shaped("aten::copy_", 300, 20, [50, 100, 8], [50, 100, 8]), False),  # the same memory, maybe
    ],
)
def test_what_a_step_makes_is_no_table_that_stays_the_same(tmp_path, more, told):
    assert ("statistics-of-a-table" in found(tmp_path, [step(0, 0, 1000), *of_a_table(5000, 8, more)])) is told


def test_a_table_that_is_trained_changes(tmp_path):
    """A node of the backward pass belongs to the gather."""
    events = of_a_table()
    events[2]["args"] |= {"Sequence number": 7, "Fwd thread id": 0}
    trained = [step(0, 0, 1000), *events, *on(2, backward("Index", 600, 50, 7))]
    assert "statistics-of-a-table" not in found(tmp_path, trained)


def test_without_a_gather_it_is_no_table(tmp_path):
    events = [e for e in of_a_table() if e["name"] != "aten::index"]
    assert "statistics-of-a-table" not in found(tmp_path, [step(0, 0, 1000), *events])


def test_attention_in_parts_may_begin_with_its_first_cut(tmp_path):
    events = [e for e in in_parts(4) if e["ts"] >= 100]
    assert "attention-in-parts" in found(tmp_path, [step(0, 0, 1000), *events])


def test_a_mask_is_not_what_queries_are_cut_from(tmp_path):
    masks = [shaped("aten::slice", 111 + 60 * n, 0.5, [64, 64]) for n in range(4)]
    events = sorted([*in_parts(4), *masks], key=lambda e: e["ts"])
    assert " with queries of 1x1x16x8 of 2x2x16x8, " in found(tmp_path, [step(0, 0, 1000), *events])["attention-in-parts"]


def test_attention_of_whole_tensors_is_not_in_parts(tmp_path):
    assert "attention-in-parts" in found(tmp_path, [step(0, 0, 1000), *in_parts(4, between="aten::select")])
    assert "attention-in-parts" not in found(tmp_path, [step(0, 0, 1000), *in_parts(4, whole=(1, 3, 16, 8))])  # fewer numbers
    assert "attention-in-parts" not in found(tmp_path, [step(0, 0, 1000), *in_parts(4, between="aten::view")])
    assert "attention-in-parts" not in found(tmp_path, [step(0, 0, 1000), *in_parts(4, cuts=2)])  # one is of the round before
    long = [e if "attention" not in e["name"] else e | {"dur": 60} for e in (later(e, 0) for e in in_parts(4))]
    apart = [later(e, 100 * n) for n, e in enumerate(long)]
    assert "attention-in-parts" not in found(tmp_path, [step(0, 0, 4000), *apart])  # on a CPU, of calls that take long
    layers = [e if e["name"] != "aten::copy_" else e | {"name": "aten::linear"} for e in in_parts(4)]
    assert "attention-in-parts" not in found(tmp_path, [step(0, 0, 1000), *layers])


def test_adapters_of_several_ranks(tmp_path):
    events = [later(e, 500 * n) for n, rank in enumerate((8, 8, 16, 4, 2)) for e in adapted(rank=rank)]
    seen = found(tmp_path, [step(0, 0, 2500), *events[:15]])["adapters-not-merged"]
    assert seen.startswith("3 adapters per step, of rank 8 and 16; ")
    seen = found(tmp_path, [step(0, 0, 2500), *events])["adapters-not-merged"]
    assert seen.startswith("5 adapters per step, of rank 2 and 4 and 8 and 1 more; ")


def test_an_adapter_has_its_layer_beside_it_and_no_backward_pass(tmp_path):
    """Two thin layers in place of a large one, and a residual behind them, are none."""
    thin = [e for e in adapted() if e["ts"] != 5]
    before = [shaped("aten::linear", 1, 3, [4, 10, 64], [96, 64]), shaped("aten::softmax", 4, 2, [4, 10, 64]),
              shaped("aten::dropout", 7, 2, [4, 10, 64])]  # fmt: skip
    assert "adapters-not-merged" not in found(tmp_path, [step(0, 0, 1000), *before, *thin])
    summed_before = [e for e in thin if e["name"] != "aten::mul"] + [shaped("aten::linear", 450, 50, [4, 10, 64], [96, 64])]
    assert "adapters-not-merged" not in found(tmp_path, [step(0, 0, 1000), *summed_before])
    trained = [*adapted(), *on(2, backward("Addmm", 600, 30, 1))]
    assert "adapters-not-merged" not in found(tmp_path, [step(0, 0, 1000), *trained])


@pytest.mark.parametrize(
    ("types", "told"), [(["c10::BFloat16"] * 2, True), ([], False), (["", ""], False), (["c10::BFloat16", ""], False)]
)
def test_layers_of_unknown_types_may_have_any_bits(tmp_path, types, told):
    layer, *others = float_attention("float")
    layer = layer | {"args": layer["args"] | {"Input type": types}}
    assert ("attention-in-float32" in found(tmp_path, [step(0, 0, 1000), layer, *others])) is told


def test_another_threads_layer_is_not_that_of_this_attention(tmp_path):
    layer, *others = float_attention("float")
    assert "attention-in-float32" not in found(tmp_path, [step(0, 0, 1000), *on(2, layer), *others])
    assert "attention-in-float32" not in found(tmp_path, [step(0, 0, 50), step(1, 95, 905), layer, *others])


def test_attention_behind_a_layer_of_float32_is_meant_so(tmp_path):
    layer, wide = {"Input Dims": [[2, 64, 128], [384, 128]]}, ["float"] * 2
    events = [*float_attention("float"), op("aten::linear", 30, 20, **layer, **{"Input type": wide})]
    assert "attention-in-float32" not in found(tmp_path, [step(0, 0, 1000), *sorted(events, key=lambda e: e["ts"])])


def test_what_is_computed_again_on_a_cpu_counts(tmp_path):
    node = op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 0, 900)
    events = [step(0, 0, 1000), node, op("aten::linear", 5, 300), forward("aten::addmm", 10, 290, 7)]
    (one,) = [f for f in read(write(tmp_path / "t.json", *events)).findings if f.slug == "recomputation"]
    # Nor outside of the steps.
    outside = [step(0, 0, 900), step(1, 900, 100), *(later(e, 1000) for e in events[1:])]
    assert "recomputation" not in found(tmp_path, outside)
    # A backward pass of the program's own may have layers, too: of these autograd makes no node.
    assert "recomputation" not in found(tmp_path, [*events[:3], op("aten::addmm", 10, 290)])
    assert one.seen == "in the backward pass: 1 x aten::linear; 30% of the steps' time"
    assert 0.15 < one.gain.high < 0.5


def test_of_a_copy_to_the_host_less_may_be_copied(tmp_path):
    (one,) = [
        f
        for f in read(write(tmp_path / "t.json", *reduced_on_the_host("aten::div", bytes=MIB))).findings
        if f.slug == "blocking-copy"
    ]
    assert one.next.startswith(
        "Compute on the GPU what the host needs (an argmax, a draw by torch.multinomial, uint8 in place of float32), and copy "
    )


PICTURE = [2, 3, 32, 32]


@pytest.mark.parametrize(
    ("also", "told"),
    [
        (shaped("aten::max_pool2d", 500, 20, [2, 3, 8, 8]), True),  # of what is cut
        (shaped("aten::max_pool2d", 500, 20, PICTURE), False),  # of the whole
        (shaped("aten::mul_", 336, 2, [2, 3, 8, 8], [1]), False),  # a part of the whole is written
        (shaped("aten::abs", 1, 2, PICTURE), False),  # the program has such a tensor, which may be what a step leaves to the next
    ],
)
def test_nothing_else_takes_what_is_cut_afterwards(tmp_path, also, told):
    events = sorted([step(0, 0, 1000), *normalized(*PICTURE), also], key=lambda e: e["ts"])
    assert ("cut-afterwards" in found(tmp_path, events)) is told


def test_another_op_may_make_such_a_tensor_anew(tmp_path):
    anew = [later(e, 500) for e in normalized(*PICTURE)]
    seen = found(tmp_path, [step(0, 0, 1000), *normalized(*PICTURE), *anew])["cut-afterwards"]
    assert seen.startswith("6 ops per step")


def tokens(taken, *, last=64, differentiated=True):
    """A feed-forward layer with its residual over 16 tokens, and then one token, or one number of each."""
    x, wide = [4, 16, last], [4, 16, 256]
    events = [shaped("aten::embedding", 5, 10, [100, last], [4, 16]), shaped("aten::linear", 20, 100, x, [256, last]),
              shaped("aten::gelu", 130, 50, wide), shaped("aten::linear", 190, 100, wide, [last, 256]),
              shaped("aten::add", 300, 20, x, x), *cut("aten::select", 330, x, taken)]  # fmt: skip
    for n, e in enumerate(e for e in events if differentiated and e["name"] in ("aten::linear", "aten::gelu", "aten::add")):
        e["args"] |= {"Sequence number": n + 1, "Fwd thread id": 0}
    return [*events, *on(2, *(backward("AnyBackward0", 500 + 60 * n, 50, n + 1) for n in range(4 if differentiated else 0)))]


def test_layers_of_all_tokens_are_cut_with_their_backward_pass(tmp_path):
    for differentiated, low, high in ((False, 0.2, 0.3), (True, 0.35, 0.55)):
        events = tokens([4, 64], differentiated=differentiated)
        (one,) = [f for f in read(write(tmp_path / "t.json", step(0, 0, 1000), *events)).findings if f.slug == "cut-afterwards"]
        assert one.seen.startswith("4 ops per step make all of a tensor, of which 4x64 of 4x16x64 is taken (6.2%); 270.0 µs")
        assert low < one.gain.high < high, one.gain
    assert "cut-afterwards" not in found(tmp_path, [step(0, 0, 1000), *tokens([4, 16])])  # a number of each row needs the row


def test_cuts_of_several_tensors_are_told_apart(tmp_path):
    other = [later(e, 400) for e in normalized(4, 3, 32, 32, made=("aten::div",))]
    seen = found(tmp_path, [step(0, 0, 1000), *normalized(*PICTURE), *other])["cut-afterwards"]
    assert seen.startswith("3 ops per step make all of a tensor, of which 2x3x8x8 of 2x3x32x32 is taken (6.2%), and 2 of other ")


def test_what_a_cut_calls_is_on_its_thread_and_on_the_cpu(tmp_path):
    """Kernels may run meanwhile, and other threads call views of their own."""
    events = tokens([4, 64])
    at = next(e["ts"] for e in events if e["name"] == "aten::select")
    kernels = [kernel("a", at + 0.1 + n / 10, 0.1, 90 + n, stream=7) for n in range(3)]
    for other, told in ((kernels, True), ([], True)):
        assert ("cut-afterwards" in found(tmp_path, sorted([step(0, 0, 1000), *events, *other], key=lambda e: e["ts"]))) is told
    views = [e for e in events if e["name"] == "aten::as_strided"]
    without = [e for e in events if e["name"] != "aten::as_strided"]
    assert "cut-afterwards" not in found(tmp_path, [step(0, 0, 1000), *without, *on(5, *views)])


def test_a_whole_vocabularys_logits_are_told_once(tmp_path):
    logits = [shaped("aten::embedding", 5, 10, [9000, 64], [4, 32]), shaped("aten::linear", 20, 500, [4, 32, 64], [9000, 64]),
              *cut("aten::select", 530, [4, 32, 9000], [4, 9000]), shaped("aten::softmax", 550, 9, [4, 9000])]  # fmt: skip
    assert "cut-afterwards" not in found(tmp_path, [step(0, 0, 1000), *logits])
    norm = shaped("aten::layer_norm", 16, 3, [4, 32, 64], [64])
    assert "cut-afterwards" not in found(tmp_path, [step(0, 0, 1000), logits[0], norm, *logits[1:]])
    small = [e if e["name"] != "aten::linear" else shaped("aten::linear", 20, 500, [4, 32, 64], [900, 64]) for e in logits]
    small[2:4] = cut("aten::select", 530, [4, 32, 900], [4, 900])
    assert "cut-afterwards" in found(tmp_path, [step(0, 0, 1000), *small])


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([*tokens([4, 64]), shaped("aten::mul", 400, 9, [4, 16, 64], [4, 16, 64])], False),
        # Such a tensor is made anew, but two are taken: one of them is the whole of what was cut.
        ([*tokens([4, 64]), shaped("aten::linear", 400, 9, [4, 16, 8], [64, 8]),
          shaped("aten::mul", 420, 9, [4, 16, 64], [4, 16, 64])], False),
        ([*tokens([4, 64]), shaped("aten::linear", 400, 9, [4, 16, 8], [64, 8]),
          shaped("aten::mul", 420, 9, [4, 16, 64], [64])], True),
        # One more is made, and two ops take such a tensor.
        ([*tokens([4, 64]), shaped("aten::linear", 400, 9, [4, 16, 8], [64, 8]), shaped("aten::sum", 420, 9, [4, 16, 64]),
          shaped("aten::sum", 440, 9, [4, 16, 64])], False),
        ([*tokens([4, 64]), shaped("aten::linear", 400, 9, [4, 16, 8], [64, 8]), shaped("aten::sum", 420, 9, [4, 16, 64])], True),
        # The part is written, later.
        ([*tokens([4, 64]), shaped("aten::add_", 450, 9, [4, 64], [4, 64])], False),
        # Behind the backward pass, too.
        ([*tokens([4, 64]), shaped("aten::argmax", 900, 9, [4, 16, 64])], False),
        # A norm over tokens and features.
        ([*tokens([4, 64])[:-6], shaped("aten::layer_norm", 322, 6, [4, 16, 64], [16, 64]), *tokens([4, 64])[-6:]], False),
        ([*tokens([4, 64])[:-6], shaped("aten::layer_norm", 322, 6, [4, 16, 64], [64]), *tokens([4, 64])[-6:]], True),
    ],
)  # fmt: skip
def test_where_the_rest_may_be_used_nothing_is_cut_first(tmp_path, events, told):
    events = sorted(events, key=lambda e: e["ts"])
    assert ("cut-afterwards" in found(tmp_path, [step(0, 0, 1000), *events])) is told


def test_what_is_no_part_of_the_run_does_not_run_behind_the_cut(tmp_path):
    """A weight that is cast for its layer takes part in none of the tokens; what is broadcast is made of something smaller."""
    weight = op("aten::to", 185, 4, **{"Input Dims": [[64, 256], []], "Input type": ["float", "Scalar"],
                                      "Concrete Inputs": ["", "15"]})  # fmt: skip
    events = sorted([*tokens([4, 64]), weight], key=lambda e: e["ts"])
    assert found(tmp_path, [step(0, 0, 1000), *events])["cut-afterwards"].startswith("4 ops per step make all of a tensor")
    events = [shaped("aten::linear", 5, 50, [4, 16, 8], [64, 8]), shaped("aten::relu", 60, 50, [4, 16, 64]),
              shaped("aten::add", 120, 200, [4, 1, 64], [1, 16, 64]),
              *cut("aten::select", 330, [4, 16, 64], [4, 64])]  # fmt: skip
    assert found(tmp_path, [step(0, 0, 1000), *events])["cut-afterwards"].startswith("1 ops per step make all of a tensor")


def test_a_states_rows_are_not_cut_first(tmp_path):
    """Of a matrix, as a recurrent state is, a slice may be all that is read now."""
    events = [shaped("aten::mm", 5, 10, [16, 8], [8, 64]), shaped("aten::linear", 20, 200, [16, 64], [64, 64]),
              shaped("aten::tanh", 230, 50, [16, 64]), *cut("aten::select", 330, [16, 64], [64])]  # fmt: skip
    assert "cut-afterwards" not in found(tmp_path, [step(0, 0, 1000), *events])


def test_memory_of_the_programs_is_not_cut_first(tmp_path):
    """What begins in place may write to what a later step reads."""
    events = [e for e in normalized(*PICTURE, made=("aten::div_", "aten::sub_")) if e["name"] != "aten::to"]
    assert "cut-afterwards" not in found(tmp_path, [step(0, 0, 1000), *events])
    fresh = normalized(*PICTURE, made=("aten::div_", "aten::sub_"))
    assert found(tmp_path, [step(0, 0, 1000), *fresh])["cut-afterwards"].startswith("3 ops per step")


def of_another_part(path, events):
    return [f for f in read(write(path / "t.json", *events)).findings if f.slug == "gradients-of-another-part"]


def test_where_the_other_part_comes_first_only_its_own_gradients_can_go(tmp_path):
    """Half of its nodes' time is left: they still compute the gradients of their inputs."""
    for passes, advice, high in (
        (UNDETACHED, "detach() that input", 0.12),
        (DETACHED, "set requires_grad_(False) on them", 0.07),
    ):
        (one,) = of_another_part(tmp_path, parts(*passes, steps=2))
        assert one.seen.startswith(f"backward pass {1 if passes is UNDETACHED else 2} of 2 in a step, before ")
        assert advice in one.next and one.gain.high == pytest.approx(high, abs=0.03)
        assert sum(slice.duration_us for slice in one.evidence) == 2 * 118


def test_of_the_last_pass_of_a_trace_a_step_before_says_what_follows(tmp_path):
    assert not of_another_part(tmp_path, parts(*DETACHED))


def test_adamw_multiplies_twice_and_updates_once(tmp_path):
    (one,) = of_another_part(
        tmp_path, parts(*UNDETACHED, ops=[f"aten::{name}_" for name in ("mul", "mul", "addcmul", "addcdiv")])
    )
    assert "of which 2 are updated" in one.seen
    assert not of_another_part(tmp_path, parts(*UNDETACHED, ops=["aten::mul_", "aten::mul_", "aten::addcdiv_"]))


def test_a_parameter_without_dimensions_is_left_out(tmp_path):
    """As the logarithm of a temperature is, which an optimizer of its own updates."""
    with_it = [([*gradients, []], added, updated) for gradients, added, updated in UNDETACHED]
    for passes in (with_it, [UNDETACHED[0], ([[]], (), ([],)), UNDETACHED[1]]):
        (one,) = of_another_part(tmp_path, parts(*passes))
        assert "the gradients of 4 parameters, of which 2 are updated" in one.seen


def test_gradients_that_something_else_takes_are_used(tmp_path):
    """Between the backward pass and the optimizer's step, or in place behind it; not what zeroes them."""
    events = parts(*UNDETACHED)
    step_ends = next(e["ts"] + e["dur"] for e in events if e["name"].startswith("Optimizer.step"))
    begins = next(e["ts"] for e in events if e["name"].startswith("Optimizer.step"))
    for other, told in (
        (shaped("aten::linalg_vector_norm", begins - 3, 2, DRAWS[0]), False),
        (shaped("aten::mul", begins - 3, 2, [1], DRAWS[0]), False),
        (shaped("aten::_foreach_norm", begins - 3, 2, [*CRITIC, *DRAWS]), False),  # a list of all
        (shaped("aten::_foreach_norm", begins - 3, 2, [*CRITIC]), True),
        (shaped("aten::sub_", step_ends + 1, 1, DRAWS[0], DRAWS[0]), False),
        (shaped("aten::zero_", step_ends + 1, 1, DRAWS[0]), True),
        (shaped("aten::_foreach_add_", step_ends + 1, 1, [*DRAWS], [*DRAWS]), False),  # what was kept is added
        (shaped("aten::_foreach_norm", step_ends + 1, 1, [*DRAWS]), False),  # read for the log
        (shaped("aten::linalg_vector_norm", step_ends + 1, 1, CRITIC[0]), True),
        (shaped("aten::linalg_vector_norm", begins - 3, 2, CRITIC[0]), True),
        (shaped("aten::dot", step_ends + 1, 1, DRAWS[1], DRAWS[1]), False),  # of two gradients
        (shaped("aten::mm", step_ends + 1, 1, [3, 8], DRAWS[0]), True),  # of the parameter
    ):
        norm = shaped("aten::linalg_vector_norm", begins - 5, 1, CRITIC[1])  # of what is updated
        told_of = of_another_part(tmp_path, sorted([*events, norm, other], key=lambda e: e["ts"]))
        assert bool(told_of) is told, other


@pytest.mark.parametrize(
    "passes",
    [
        # Two optimizers of one trunk, whose gradients add up.
        [((*CRITIC, *DRAWS), (), CRITIC), ((*DRAWS, *DRAWS), (2, 3), (*DRAWS, *DRAWS))],
        [((*CRITIC, *DRAWS), (), CRITIC), (([3], *DRAWS), (), ([3], *DRAWS, *DRAWS))],
        # Each pass trains all, with one optimizer for each part, or the second one adds to what the first one left.
        [((*CRITIC, *DRAWS), (), CRITIC), ((), (), DRAWS)],
        [((*CRITIC, *DRAWS), (), CRITIC), ((*CRITIC, *DRAWS), (2, 3), (*CRITIC, *DRAWS))],
        # What is left over is no end and no beginning of the pass.
        [((CRITIC[0], *DRAWS, CRITIC[1]), (), CRITIC), ((*CRITIC, *DRAWS), (), (*CRITIC, *DRAWS))],
        # The two parts have parameters of the same shapes.
        [((*CRITIC, *CRITIC), (), CRITIC), ((*CRITIC, *CRITIC), (), CRITIC)],
        # The next pass does not begin anew what is left over: a later step of the optimizer may use it.
        [((*CRITIC, *DRAWS), (), CRITIC), (CRITIC, (), (*CRITIC, *DRAWS))],
        # Less than a quarter is left over.
        [((*CRITIC, *DRAWS, [3]), (), (*CRITIC, *DRAWS)), ((*CRITIC, *DRAWS, [3]), (), (*CRITIC, *DRAWS, [3]))],
    ],
)
def test_what_an_optimizer_leaves_out_may_be_for_another(tmp_path, passes):
    assert not of_another_part(tmp_path, parts(*passes, steps=2))


@pytest.mark.parametrize(("last", "told"), [([16, 2], 2), ([16, 16], 0)])
def test_powers_of_a_matrix_before_a_few_columns_go_with_them(tmp_path, last, told):
    """a @ a @ a @ h: all three products are dearer than those from the right; of four powers none is."""
    dims = [([16, 16], [16, 16])] * 2 + [([16, 16], last)]
    products = [shaped("aten::matmul", 100 * n, 90, *both) for n, both in enumerate(dims)]
    events = [step(0, 0, 300), *products, step(1, 300, 300), *(later(e, 300) for e in products)]
    reading = examine(load(write(tmp_path / "t.json", *events)))
    assert ("product-order" in reading.seen) is (told > 0)
    trace_of_it = shaped("aten::diagonal", 292, 5, [16, 16])
    used = [*events, trace_of_it, later(trace_of_it, 300)]  # the square is asked for itself
    assert "product-order" not in found(tmp_path, used)
    if told:
        seen = reading.seen["product-order"]
        assert len(seen.evidence) == 6
        assert seen.text == (
            "1 x 16x16 by 16x16, then by 16x2 per step: 4.5 times the operations of the other order; 1 square ones before them; "
            "270.0 µs of CPU time: 90% of the steps' time"
        )
        assert seen.next.startswith("If each of these products takes the result of the one before (powers of a matrix)")


def test_a_history_that_is_gone_leaves_the_last_round(tmp_path):
    """Of 1000, four of five rounds of 94."""
    trace = write(tmp_path / "t.json", step(0, 0, 1000), *history(), plain_step_us={"median": 1000, "low": 1000, "high": 1000})
    (one,) = [f for f in read(trace).findings if f.slug == "history-in-each-round"]
    assert one.gain.high == pytest.approx(4 * 0.094)


def test_a_round_of_a_history_begins_behind_the_last_one(tmp_path):
    """What takes no rows, between two rounds, goes with one of them alone: of the first round, which is not looked at, with the
    second. Of 1000: 4 sorts of 25, and what stands behind these and the first, 25 and 20.
    """
    ops = [shaped(name, 100 * n + at, 25, *dims) for n in range(6)
           for name, at, dims in (("aten::sort", 0, [[10 * n + 10]]), ("aten::item", 30, []))]  # fmt: skip
    ops += [op("aten::cat", 100 * n + 60, 20, **{"Input Dims": [[[10 * n + 10], [10]]], "Input type": ["TensorList"]})
            for n in range(5)]  # fmt: skip
    trace = write(tmp_path / "t.json", step(0, 0, 1000), *ops, plain_step_us={"median": 1000, "low": 1000, "high": 1000})
    (one,) = [f for f in read(trace).findings if f.slug == "history-in-each-round"]
    assert one.seen == (
        "per step: 6 x aten::sort of 10 to 60 rows, with what goes with it; 375.0 µs of CPU time: 38% of the steps' time"
    )
    assert one.gain.high == pytest.approx(9 * 0.025 + 5 * 0.02)


def test_a_history_is_collected_and_its_last_round_can_be_short(tmp_path):
    short = [step(0, 0, 1000), *history((10, 20, 30, 40, 50, 55))]
    assert "6 x aten::argsort of 10 to 55 rows" in found(tmp_path, short)["history-in-each-round"]
    assert "history-in-each-round" not in found(tmp_path, [e for e in short if e["name"] != "aten::cat"])  # lists of any length


def test_calls_of_a_metric_are_counted_for_all_steps(tmp_path):
    """The second step has one round more."""
    events = [step(0, 0, 1000), *history(), step(1, 1000, 1100)]
    events += [later(e, 1000) for e in history((10, 20, 30, 40, 50, 60, 70))]
    assert found(tmp_path, events)["history-in-each-round"].startswith(
        "per step: 3 x aten::argsort of 10 to 60 rows, 3.5 x aten::argsort of 10 to 70 rows, with what goes with it; "
    )


def test_workers_that_take_long_at_the_start_alone_go_on(tmp_path):
    """So they do when they were kept: they have to fetch the first batch."""
    assert "workers-start-anew" not in found(tmp_path, epochs(last=100, first=15_000))
    # A seed is drawn while the iterator is made.
    drawn = [*epochs(), op("aten::random_", max(e["ts"] + e["dur"] for e in epochs()[:11]) + 27_000, 10)]
    assert "workers-start-anew" in found(tmp_path, drawn)
    assert "workers-start-anew" not in found(tmp_path, epochs(between=12_000))  # no call is short: the loader is slow
    assert "workers-start-anew" not in found(tmp_path, epochs(apart=1000))  # nothing is made between the two
    # Before them a loader that is slow in each batch, with a gap: then no pair of long calls stands alone.
    slow_ones = [annotation(LOADER, 40_000 * n, 30_000) for n in range(2)]
    assert "workers-start-anew" not in found(tmp_path, [*slow_ones, *(later(e, 80_000) for e in epochs(last=100))])
    slow = epochs()
    ends = max(e["ts"] for e in slow[:9] if e["name"] == LOADER) + 20_000  # of the last call of the first pass
    assert "workers-start-anew" not in found(
        tmp_path, [*slow, op("aten::mm", ends, 1000)]
    )  # two slow batches, one after the other


@pytest.mark.parametrize(("wait", "told"), [(call("cudaDeviceSynchronize", 5, 15, 7), True), (op("aten::mm", 5, 15), False)])
def test_what_follows_a_wait_for_the_gpu_can_be_done_while_it_works(tmp_path, wait, told):
    events = [step(0, 0, 1000), launch(1, 1), kernel(ADD, 3, 12, 1), wait, launch(700, 2), kernel(ADD, 702, 250, 2)]
    said = advice(tmp_path, "python-between-ops", *events)
    assert ("launch the next batch before it" in said) is told and "call gc.freeze() after the warm-up." in said


@pytest.mark.parametrize(
    ("first", "dims", "told"),
    [("aten::select", [8], True), ("aten::relu", [8], False), ("aten::select", [4, 8], False)],  # the last: a recurrence's state
)
def test_a_loop_that_takes_elements_out_of_a_tensor_and_multiplies_them_is_no_model_of_layers(tmp_path, first, dims, told):
    made = [e for n in range(16) for e in (op(first, 100 * n, 40), shaped("aten::matmul", 100 * n + 50, 40, [8, 8], dims))]
    assert ("repeated-ops" in found(tmp_path, [step(0, 0, 2000), *made])) is told


def of_weights(squared=(8, 8), updated=(8, 8), over=None, at=900):
    """Four tensors are squared and summed up before a backward pass, `over` some dimensions, and weights are updated."""
    for n in range(4):
        numbers = {"Sequence number": n + 1, "Fwd thread id": 0}
        shapes = {"Input Dims": [list(squared)], "Input type": ["float"], "Concrete Inputs": [""]}
        yield op("aten::pow", at + 100 * n, 40, **shapes, **numbers)
        dims = {"Input Dims": [list(squared), [], []], "Input type": ["float", "ScalarList", "Scalar"]}
        yield op("aten::sum", at + 45 + 100 * n, 40, **(dims | {"Concrete Inputs": ["", over, "False"]} if over else shapes))
    yield from on(2, *(backward("Pow", 1400 + 50 * n, 40, n + 1) for n in range(4)))
    yield annotation("Optimizer.step#SGD.step", 1700, 100)
    yield shaped("aten::add_", 1710, 80, list(updated))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, True),
        ({"updated": (4, 8)}, False),  # activations
        ({"over": "[1]"}, False),  # each feature's power
        ({"at": 900, "squared": (4, 8)}, False),
    ],
)
def test_a_penalty_is_of_whole_weights(tmp_path, more, told):
    facts = read(write(tmp_path / "t.json", step(0, 0, 2000), *of_weights(**more)))
    assert ("penalty-in-the-loss" in [f.slug for f in facts.findings]) is told


def test_what_is_squared_after_a_backward_pass_is_no_penalty(tmp_path):
    """It may be a gradient."""
    earlier = on(2, op("autograd::engine::evaluate_function: MmBackward0", 100, 50))
    assert "penalty-in-the-loss" not in found(tmp_path, [step(0, 0, 2000), *earlier, *of_weights()])


def test_without_shapes_a_penalty_has_no_number(tmp_path):
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *penalty(), *penalty_nodes()))
    (one,) = [f for f in facts.findings if f.slug == "penalty-in-the-loss"]
    assert one.gain is None
    facts = read(write(tmp_path / "t.json", step(0, 0, 2000), *of_weights()))
    (one,) = [f for f in facts.findings if f.slug == "penalty-in-the-loss"]
    assert one.gain is not None


@pytest.mark.parametrize(
    ("layer", "whole", "told"),
    [
        (([4, 6], [12, 6]), [4, 8, 6], True),
        (([4, 6], [6, 6]), [4, 8, 6], False),  # it makes what it takes: a recurrence over a buffer
        (([4, 6], [12, 6]), [4, 5, 6], False),  # of five, no round has its own
        (([4, 6], [12, 6]), [4, 9, 6], True),  # the first one before the loop
    ],
)
def test_each_round_takes_its_own_part(tmp_path, layer, whole, told):
    rounds = []
    for n in range(8):
        rounds += [shaped("aten::select", 100 * n, 30, whole), shaped("aten::linear", 100 * n + 35, 40, *layer)]
        rounds.append(op("aten::lerp", 100 * n + 80, 15))
    assert ("inputs-projected-one-by-one" in found(tmp_path, [step(0, 0, 1000), *rounds])) is told


def test_what_the_rounds_write_into_may_be_what_the_next_one_takes(tmp_path):
    """A rollout whose buffer is read and written: not where something else is written to."""
    for written, told in (([4, 9, 6], False), ([4, 9, 3], True)):
        ops: list[tuple[Any, ...]] = [("aten::select", 0, 20, [4, 9, 6]), ("aten::linear", 25, 40, [4, 6], [12, 6]),
               ("aten::slice", 70, 10, written), ("aten::copy_", 85, 10, [4, 1, 6], [4, 1, 6])]  # fmt: skip
        rounds = [shaped(name, 100 * n + at, us, *dims) for n in range(8) for name, at, us, *dims in ops]
        assert ("inputs-projected-one-by-one" in found(tmp_path, [step(0, 0, 1000), *rounds])) is told


@pytest.mark.parametrize(("weights", "told"), [(None, False), (3, True), (8, False)])
def test_that_all_rounds_have_one_weight_the_backward_pass_says(tmp_path, weights, told):
    """Of an inference nothing says so, and of as many weights as rounds it may not be so."""
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    nodes = on(2, *(op(name, 850 + 10 * n, 5) for n in range(weights or 0)))
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *(e for n in range(8) for e in time_step(n, 6)), *nodes))
    (one,) = [f for f in facts.findings if f.slug == "inputs-projected-one-by-one"]
    assert (one.gain is not None) is told


def test_a_penalty_without_a_gradient_is_none(tmp_path):
    """The norms of clipping, or of a log; beside one that has a gradient, they are not counted."""
    assert "penalty-in-the-loss" not in found(tmp_path, [step(0, 0, 1000), *penalty()])
    log = [op("aten::norm", 720 + 40 * n, 30) for n in range(5)]
    seen = found(tmp_path, [step(0, 0, 1000), *penalty(), *penalty_nodes(), *log])["penalty-in-the-loss"]
    assert seen == "in a row, per step: 4 x (aten::pow, aten::sum); with their backward pass 480.0 µs of CPU time"


def test_what_a_layer_takes_was_taken_out_of_the_tensor_before_it(tmp_path):
    events = [step(0, 0, 1000), *(e for n in range(8) for e in time_step(n, 5))]  # it is of six features
    assert "inputs-projected-one-by-one" not in found(tmp_path, events)


def test_of_products_whose_backward_pass_is_no_loop_short_nodes_go_too(tmp_path):
    """Of eight on a CPU: with nodes of 20 µs seven go; nodes of 60 compute for so long."""
    high = []
    for long_us in (20, 60):
        made = []
        for n in range(8):
            product, relu = expert(n, 16)
            numbers = {"Sequence number": n + 1, "Fwd thread id": 0}
            made += [{**product, "args": {**product["args"], **numbers}}, relu]
        nodes = [backward(f"Other{n}", 900 + 130 * n, long_us, n + 1) for n in range(8)]  # of other names: they are no loop
        facts = read(write(tmp_path / "t.json", step(0, 0, 2000), *made, *on(2, *nodes)))
        high.append(next(f.gain.high for f in facts.findings if f.slug == "loop-of-small-products"))
    assert high[0] > high[1] + 0.03


def test_one_long_op_among_short_ones_is_no_round_of_short_ops(tmp_path):
    """Of 200 µs among five of 4: on average 37."""
    made = []
    for n in range(8):
        made += [shaped("aten::mm", 230 * n, 200, [32, 64], [64, 16])]
        made += [shaped("aten::relu", 230 * n + 201 + 5 * k, 4, [32, 16]) for k in range(5)]
    assert "loop-of-small-products" not in found(tmp_path, [step(0, 0, 2000), *made])


@pytest.mark.parametrize(("longer", "told"), [(1, True), (2, False)])
def test_on_a_cpu_rounds_of_long_ops_gain_nothing_by_being_done_at_once(tmp_path, longer, told):
    """Of 40 µs each, or 80."""
    made = [{**event, "ts": longer * event["ts"], "dur": longer * event["dur"]} for n in range(8) for event in expert(n, 16)]
    assert ("loop-of-small-products" in found(tmp_path, [step(0, 0, 2000), *made])) is told
    rounds = [{**one, "ts": longer * one["ts"], "dur": longer * one["dur"]} for one in round_of("aten::select", "aten::maximum")]
    assert ("repeated-ops" in found(tmp_path, [step(0, 0, 4000), *rounds])) is told


def test_what_an_optimizer_does_of_the_weights_of_a_loop_goes_with_it(tmp_path):
    """Of three heads of four: their layers, the nodes of the backward pass, what adds to their gradients, and their updates."""
    numbered, threads = [{"Sequence number": n + 1} for n in range(4)], ({"Fwd thread id": 0}, {"Fwd thread id": 1})
    dims = {"Input Dims": [[2, 4], [6, 4]], "Input type": ["float"] * 2}
    heads = [op("aten::linear", 25 * n, 20, **dims, **one, **threads[0]) for n, one in enumerate(numbered)]
    evaluate = "autograd::engine::evaluate_function: "
    nodes = [e for n, one in enumerate(reversed(numbered)) for e in (
        op(f"{evaluate}AddmmBackward0", 200 + 60 * n, 25, **one, **threads[1]),
        op(f"{evaluate}torch::autograd::AccumulateGrad", 230 + 60 * n, 25))]  # fmt: skip
    updates = [e for n in range(4) for e in (
        shaped("aten::lerp_", 510 + 60 * n, 25, [6, 4]), shaped("aten::addcdiv_", 540 + 60 * n, 25, [6, 4]))]  # fmt: skip
    optimizer = annotation("Optimizer.step#Adam.step", 505, 300)
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *heads, *on(2, *nodes), optimizer, *updates))
    (one,) = [f for f in facts.findings if f.slug == "loop-of-small-products"]
    assert one.seen.startswith("in a row (forward, backward and optimizer), per step: 4 x (aten::linear), 4 x (")
    assert one.share == pytest.approx(0.08 + 0.2 + 0.2)
    alone = read(write(tmp_path / "t.json", step(0, 0, 1000), *heads, *on(2, *nodes), *updates))
    (other,) = [f for f in alone.findings if f.slug == "loop-of-small-products"]
    assert other.seen.startswith("in a row (forward and backward), per step: ") and other.gain.high < one.gain.high
    others = [shaped(one["name"], one["ts"], 25, [4, 4]) for one in updates]  # of other weights, as many by chance
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *heads, *on(2, *nodes), optimizer, *others))
    (apart,) = [f for f in facts.findings if f.slug == "loop-of-small-products"]
    assert apart.seen.startswith("in a row (forward and backward), per step: ")
    short = annotation("Optimizer.step#Adam.step", 505, 120)  # half of them are in it
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *heads, *on(2, *nodes), short, *updates))
    (half,) = [f for f in facts.findings if f.slug == "loop-of-small-products"]
    assert half.seen.startswith("in a row (forward and backward), per step: ")
    shared = [node for node in nodes if "Accumulate" not in node["name"]]  # one weight for all
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *heads, *on(2, *shared), optimizer, *updates))
    (once,) = [f for f in facts.findings if f.slug == "loop-of-small-products"]
    assert once.seen.startswith("in a row (forward and backward), per step: ")


@pytest.mark.parametrize(
    ("last", "added_in", "told"),
    [
        ([1, 4], None, True),  # four networks of four features, whose results have one
        ([1, 4], "Addmm", False),  # what the first layer makes has two uses: the next round may take it
        ([1, 4], "torch::autograd::AccumulateGrad", True),  # to the gradient of the step before
        ([4, 4], None, False),  # four layers, one after the other
        ([1, 4], "beside the nodes", False),
    ],
)
def test_what_the_backward_pass_adds_nothing_to_has_one_use(tmp_path, last, added_in, told):
    evaluate = "autograd::engine::evaluate_function: "
    made, nodes = list[dict](), list[dict]()
    for n in range(4):
        for k, (name, dims) in enumerate((("linear", [[2, 4], [4, 4]]), ("relu", [[2, 4]]), ("linear", [[2, 4], last]))):
            one = shaped(f"aten::{name}", 80 * n + 25 * k + 1, 20, *dims)
            made += [{**one, "args": {**one["args"], "Sequence number": 3 * n + k + 1, "Fwd thread id": 0}}]
        for k, name in enumerate(("Addmm", "Relu", "Addmm", "torch::autograd::AccumulateGrad")):
            at, own = 340 + 120 * n + 30 * k, {"Sequence number": 3 * (3 - n) + 3 - k, "Fwd thread id": 1}
            weight = name.startswith("torch")
            nodes += [op(f"{evaluate}{name}{'' if weight else 'Backward0'}", at, 25, **({} if weight else own))]
            nodes += [op("aten::add_", at + 5, 10)] * (name == added_in)
        nodes += [op("aten::add_", 456 + 120 * n, 3)] * (added_in == "beside the nodes")
    seen = found(tmp_path, [step(0, 0, 1000), *made, *on(2, *nodes)])
    words = "in a row (forward and backward), per step: 4 x (2 x aten::linear, aten::relu), 4 x ("
    assert seen.get("loop-of-small-products", "")[: len(words)] == words * told


def test_optimizer_steps_with_ops_between_them_are_of_several_batches_unless_the_backward_pass_calls_them(tmp_path):
    assert "many-optimizer-steps" not in found(tmp_path, [step(0, 0, 1000), *hooked(9, ["aten::linear"])])
    node = op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 0, 890)
    assert "many-optimizer-steps" in found(tmp_path, [step(0, 0, 1000), node, *hooked(9, ["aten::linear"])])
    two = [e for n in range(2) for e in (step(n, 1000 * n, 1000), *(later(e, 1000 * n) for e in hooked(9)))]
    assert found(tmp_path, two)["many-optimizer-steps"].startswith("8 more optimizer steps in each, 400.0 µs of CPU time: ")


@pytest.mark.parametrize(
    ("gathers", "width", "told"),
    [
        (
            [100, 100],
            36,
            "1 x a product of 800 rows per step, joined of 2 gathers from 100; 500.0 µs of CPU time: 50% of the steps' time",
        ),
        (
            [100, 400],
            32,
            "1 x a product of 800 rows per step, joined of 2 gathers from 400; 500.0 µs of CPU time: 50% of the steps' time",
        ),
        ([100, 401], 32, ""),  # nearly as many rows as are gathered
        ([100], 33, ""),  # most columns come from elsewhere
        ([100, 100], 31, ""),  # fewer than are gathered
        ([100, 100], 32, "wide"),  # and each product is three times as wide as what was gathered
    ],
)
def test_what_is_gathered_and_joined_can_be_multiplied_before(tmp_path, gathers, width, told):
    made = [shaped("aten::index_select", 5 + 50 * n, 40, [rows, 16], [], [800]) for n, rows in enumerate(gathers)]
    columns = 96 if told == "wide" else 4
    events = [step(0, 0, 1000), *made, op("aten::cat", 110, 20), shaped("aten::linear", 150, 500, [800, width], [columns, width])]
    findings = {one.slug: one for one in read(write(tmp_path / "a.json", *events)).findings}
    one = findings.get("gathered-then-multiplied")
    assert (one.seen if one else "") == told.removeprefix("wide")
    assert one is None or one.next.startswith("Split the layer's weight by the parts that are joined")


def test_advice_for_nearly_every_run_has_no_parts_and_what_has_no_gain_is_none(tmp_path):
    reading = examine(load(str(write(tmp_path / "a.json", step(0, 0, 1000), op("aten::mm", 0, 500)))))
    ops, gain = reading.trace.ops, Gain(0.1, 0.2)

    def part_of(*findings, gaps=None):
        made = [Finding(slug, "seen", "means", "next", 0.5, (), gain if has_gain else None) for slug, has_gain in findings]
        seen = {slug: Seen("seen", ops, gaps=gaps) for slug, _ in findings}
        facts = msgspec.structs.replace(reading.facts, findings=tuple(made))
        return _with_parts(Reading(reading.trace, facts, seen)).facts.findings[1].part_of

    assert part_of(("order-statistics", True), ("whole-sort", True)) == "order-statistics"
    assert part_of(("order-statistics", True), ("whole-sort", True), gaps=(ops.start_ns, ops.end_ns)) is None  # it lies in gaps
    assert part_of(("hotspot", True), ("whole-sort", True)) is None
    assert part_of(("order-statistics", True), ("whole-sort", False)) is None
    assert part_of(("order-statistics", False), ("whole-sort", True)) is None


def test_of_what_is_not_taken_at_once_nobody_knows_whether_a_later_round_takes_it(tmp_path):
    """By the backward pass each result has one use; but the first one is taken behind another op."""
    evaluate = "autograd::engine::evaluate_function: "
    made, nodes = list[dict](), list[dict]()
    ops = (("linear", [[2, 4], [4, 4]]), ("mm", [[2, 3], [3, 5]]), ("relu", [[2, 4]]), ("linear", [[2, 4], [1, 4]]))
    for n in range(4):
        for k, (name, dims) in enumerate(ops):
            one = shaped(f"aten::{name}", 80 * n + 19 * k + 1, 18, *dims)
            made += [{**one, "args": {**one["args"], "Sequence number": 4 * n + k + 1, "Fwd thread id": 0}}]
            own = {"Sequence number": 4 * (3 - n) + 4 - k, "Fwd thread id": 1}
            nodes += [op(f"{evaluate}{'Relu' if k == 1 else 'Addmm'}Backward0", 340 + 120 * n + 30 * k, 25, **own)]
    assert "loop-of-small-products" not in found(tmp_path, [step(0, 0, 1000), *made, *on(2, *nodes)])


def test_a_finding_whose_work_lies_in_that_of_an_earlier_one_is_a_part_of_it(tmp_path):
    """A sort in a quantile, which counts as both, and one beside it, which is most of all sorts."""
    quantile = [shaped("aten::quantile", 0, 300, [8, 4000]), shaped("aten::sort", 10, 200, [8, 4000])]
    beside = [*quantile, shaped("aten::sort", 300, 600, [8, 5000])]
    for events, part_of in ((quantile, "order-statistics"), (beside, None)):
        rest = [op("aten::mm", 900, 90)]
        findings = {one.slug: one for one in read(write(tmp_path / "a.json", step(0, 0, 1000), *events, *rest)).findings}
        assert findings["whole-sort"].part_of == part_of and findings["order-statistics"].part_of is None


@pytest.mark.parametrize(
    ("converted", "taken", "training", "told"),
    [
        ([8, 16], [[4, 16], [8, 16]], False, "; 100% of it in tensors of the shapes of layers' weights"),
        ([4, 16], [[4, 16], [8, 16]], False, ""),  # what the layer takes besides
        ([8, 16], [[8, 16], [8, 16]], False, ""),  # either
        ([2, 8, 16], [[2, 4, 8], [2, 8, 16]], False, ""),  # a batch of matrices
        ([8, 16], [[4, 16], [8, 16]], True, ""),  # the weights change
    ],
)
def test_weights_that_are_converted_in_each_step_are_told_before_advice_for_all_runs(tmp_path, converted, taken, training, told):
    conversion = op("aten::_to_copy", 1, 18, **{"Input Dims": [converted], "Input type": ["float"]})
    layer = shaped("aten::matmul" if len(taken[1]) > 2 else "aten::linear", 20, 9, *taken)
    events = [step(0, 0, 100), conversion, *linked(TO_BF16, 4, 20), layer, launch(21, 2),
              kernel(ADD, 25, 75, 2)]  # fmt: skip
    if training:
        events += on(2, backward("Addmm", 60, 9, 1))
    (one,) = [one for one in read(write(tmp_path / "a.json", *events)).findings if one.slug == "dtype-conversions"]
    assert one.seen.partition("% of GPU time")[2] == told
    assert is_generic(one) is not bool(told) and one.next.startswith("Convert the weights once") is bool(told)


def test_a_backward_pass_of_other_ops_is_none_of_a_loops(tmp_path):
    """It goes round as often as the heads do, and was made by what ran before them."""
    heads = [shaped(name, 205 + 20 * n, 18, *dims) for n, (name, dims) in enumerate(
        4 * [("aten::linear", [[2, 4], [6, 4]]), ("aten::relu", [[2, 6]])])]  # fmt: skip
    made = [op("aten::mm", 5 + 40 * n, 30 - 9 * (n % 2), **{"Sequence number": n + 1, "Fwd thread id": 0}) for n in range(4)]
    node, threads = "autograd::engine::evaluate_function: MmBackward0", {"Fwd thread id": 1}
    nodes = [op(node, 500 + 40 * n, 38, **{"Sequence number": n + 1, **threads}) for n in range(4)]
    seen = found(tmp_path, [step(0, 0, 1000), *made, *heads, *on(2, *nodes)])["loop-of-small-products"]
    assert seen.startswith("in a row, per step: 4 x (aten::linear, aten::relu); 144.0 µs of CPU time")
