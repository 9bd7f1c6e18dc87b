"""Pairs of programs: one before, one after a change that tuning guides recommend. Some bring much, some nothing.

A pair is a function of the device and of whether the change is made, and returns the step.
"""

from collections.abc import Callable
from dataclasses import dataclass
import gc
import itertools
import time
from typing import Any

from advice.models import CastingLinear, Gpt, OwnGelu, OwnNorm, Recurrent, Tables, conv_net, mlp
import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[], Any]


@dataclass(frozen=True)
class Pair:
    """`change`: what is done, in words. `on`: the devices on which it is measured. `named_by`: the findings that advise it."""

    name: str
    change: str
    build: Callable[[str, bool], Step]
    on: tuple[str, ...]
    named_by: tuple[str, ...]


PAIRS: dict[str, Pair] = {}


def pair(change: str, *named_by: str, on: tuple[str, ...] = ("cuda",)):
    def register(build):
        PAIRS[build.__name__] = Pair(build.__name__, change, build, on, named_by)
        return build

    return register


def _gpt_training(
    device: str,
    batch=4,
    amp=True,
    tf32=True,
    fused: bool | None = True,
    foreach: bool | None = None,
    vocab=50257,
    compiled=False,
    **model,
) -> Step:
    """A step of training: forward and backward pass, optimizer. `amp`: in bfloat16 where autocast knows how."""
    net = Gpt(vocab=vocab, **model).to(device)
    forward = torch.compile(net) if compiled else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=fused, foreach=foreach)
    tokens = torch.randint(vocab, (batch, 513), device=device)

    def step():
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=amp):
            logits = forward(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def _training(device: str, net: nn.Module, *inputs: torch.Tensor, amp=False, **optimizer_flags) -> Step:
    """A step of training on fixed inputs, with the mean of the outputs as the loss."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, **({"fused": True} | optimizer_flags))

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=amp):
            loss = net(*inputs).float().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _without_gradients(net: nn.Module, *inputs: torch.Tensor) -> Step:
    @torch.no_grad()
    def step():
        return net(*inputs)

    return step


# --- The GPU's time


@pair("matmuls of float32 in TF32", "fp32-cuda-cores")
def tf32(device, changed):
    return _gpt_training(device, batch=16, amp=False, tf32=changed)


@pair("bfloat16 by autocast", "tf32-products")
def bf16(device, changed):
    return _gpt_training(device, batch=16, amp=changed)


@pair("attention by scaled_dot_product_attention", "unfused-attention")
def sdpa(device, changed):
    return _gpt_training(device, batch=16, attention="sdpa" if changed else "written")


@pair("torch's LayerNorm for one written out", "unfused-pointwise")
def layer_norm(device, changed):
    return _gpt_training(device, batch=16, norm=nn.LayerNorm if changed else OwnNorm)


@pair("a vocabulary of 50304 for one of 50257", "unaligned-product")
def vocabulary(device, changed):
    return _gpt_training(device, batch=16, vocab=50304 if changed else 50257)


@pair("no activation checkpointing", "recomputation")
def checkpointing(device, changed):
    return _gpt_training(device, batch=16, checkpoint=not changed)


@pair("torch.compile of a model with written-out norms and GELU", "unfused-pointwise")
def compile_large(device, changed):
    return _gpt_training(device, batch=16, norm=OwnNorm, gelu=OwnGelu, compiled=changed)


@pair("channels_last for convolutions", "layout-copies")
def channels_last(device, changed):
    net, images = conv_net().to(device), torch.randn(32, 3, 224, 224, device=device)
    if changed:
        net, images = net.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
    return _training(device, net, images, amp=True)


@pair("weights cast once, not at each use", "dtype-conversions")
def casts(device, changed):
    dim, dtype = (4096, torch.bfloat16) if device == "cuda" else (512, torch.bfloat16)
    layer = nn.Linear if changed else CastingLinear
    net = nn.Sequential(*(layer(dim, dim) for _ in range(16))).to(device)
    return _without_gradients(net.to(dtype) if changed else net, torch.randn(64, dim, device=device, dtype=dtype))


# --- The CPU's time


@pair("a fused optimizer for a loop over the parameters", "unfused-optimizer")
def optimizer_loop(device, changed):
    return _gpt_training(device, batch=4, layers=12, fused=True if changed else None, foreach=None if changed else False)


@pair("a fused optimizer for a foreach one", "unfused-optimizer")
def optimizer_foreach(device, changed):
    return _gpt_training(device, batch=4, layers=12, fused=True if changed else None, foreach=None if changed else True)


@pair("torch.compile of a small model in training", "many-small-kernels")
def compile_small(device, changed):
    return _gpt_training(device, batch=1, layers=12, dim=384, vocab=8192, norm=OwnNorm, gelu=OwnGelu, compiled=changed)


@pair("torch's LSTM for a loop of cells", "many-small-kernels", "many-small-ops", on=("cuda", "cpu"))
def lstm(device, changed):
    return _training(device, Recurrent(cells=not changed).to(device), torch.randn(64, 32, 256, device=device))


@pair("one embedding table for 26", "many-calls", "many-small-ops", on=("cuda", "cpu"))
def tables(device, changed):
    ids = torch.randint(10_000, (512, 26), device=device)
    return _without_gradients(Tables(merged=changed).to(device), ids)


@pair("a CUDA graph of small kernels", "many-small-kernels")
def graph_small(device, changed):
    return _graphed(Gpt(layers=12, dim=256, heads=4, vocab=4096, seq=128), torch.randint(4096, (1, 128), device=device), changed)


def _graphed(net: nn.Module, tokens: torch.Tensor, changed: bool) -> Step:
    net = net.to(tokens.device, torch.bfloat16).eval()
    step = _without_gradients(net, tokens)
    if not changed:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replayed():
        graph.replay()
        return net, tokens  # which the graph uses, and does not keep alive

    return replayed


@pair("no work of Python between the layers", "python-between-ops", on=("cuda", "cpu"))
def python_between(device, changed):
    net = mlp(16, 512).to(device)
    x = torch.randn(64, 512, device=device)

    @torch.no_grad()
    def step():
        y = x
        for layer in net:
            y = layer(y)
            if not changed:
                sum(n * n for n in range(1500))
        return y

    return step


@pair("no garbage collection in a step", "python-between-ops", on=("cuda", "cpu"))
def collection(device, changed):
    step = _training(device, mlp(8, 256).to(device), torch.randn(64, 256, device=device))

    def collecting():
        step()
        if not changed:
            gc.collect()

    return collecting


@pair("a mask made once on the GPU, not in each layer on the CPU", "mask-rebuilt")
def cpu_mask(device, changed):
    return _gpt_training(device, batch=4, layers=12, attention="written" if changed else "cpu_mask")


# --- Waiting


@pair("no .item() after each layer", "sync-in-step")
def item_small(device, changed):
    return _with_item(device, mlp(24, 512), 512, changed)


def _with_item(device: str, net: nn.Sequential, dim: int, changed: bool) -> Step:
    net.to(device)
    x = torch.randn(256, dim, device=device)

    @torch.no_grad()
    def step():
        y = x
        for n, layer in enumerate(net):
            y = layer(y)
            if not changed and n % 2:
                y.abs().max().item()
            elif n % 2:
                y.abs().max()
        return y

    return step


@pair("no torch.cuda.empty_cache() in a step", "allocation-in-step")
def empty_cache(device, changed):
    step = _gpt_training(device, batch=4)

    def emptying():
        step()
        if not changed:
            torch.cuda.empty_cache()

    return emptying


@pair("workers of the DataLoader", "input-bound", on=("cuda", "cpu"))
def loader_workers(device, changed):
    return _with_loader(device, work_s=0.004, workers=4 if changed else 0, batch=4)


@pair("a pageable copy of a large batch pinned", "blocking-copy")
def pinned_large(device, changed):
    images = torch.randn(64, 3, 384, 384)
    images = images.pin_memory() if changed else images
    net = conv_net(2).to(device)

    @torch.no_grad()
    def step():
        with torch.autocast(device, torch.bfloat16):
            return net(images.to(device, non_blocking=True))

    return step


class _Images(torch.utils.data.Dataset):
    """Images that take `work_s` each to be made ready."""

    def __init__(self, work_s: float):
        self.work_s = work_s

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        end = time.perf_counter() + self.work_s
        while time.perf_counter() < end:
            pass
        return torch.full((3, 64, 64), float(index % 7))


def _with_loader(device: str, work_s: float, workers: int, batch: int, pinned=False, prefetch: int | None = None) -> Step:
    loader = torch.utils.data.DataLoader(_Images(work_s), batch, num_workers=workers, pin_memory=pinned, prefetch_factor=prefetch)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    net = conv_net(4, 128).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        images = next(batches).to(device, non_blocking=pinned)
        optimizer.zero_grad()
        net(images).mean().backward()
        optimizer.step()

    return step


# --- What brings nothing


@pair("a CUDA graph of a large model", "many-small-kernels")
def graph_large(device, changed):
    return _graphed(Gpt(layers=6, dim=2048, heads=16), torch.randint(50257, (8, 512), device=device), changed)


@pair("no .item() of the loss where the GPU is far behind", "sync-in-step")
def item_large(device, changed):
    step = _gpt_training(device, batch=32)

    def read():
        return step().item()

    return step if changed else read


@pair("no torch.cuda.synchronize() at the end of a large step", "sync-in-step")
def synchronize_large(device, changed):
    step = _gpt_training(device, batch=32, layers=8)

    def synchronized():
        step()
        torch.cuda.synchronize()

    return step if changed else synchronized


@pair("a small batch pinned", "sync-in-step", "blocking-copy")
def pinned_small(device, changed):
    batch = torch.randint(50257, (16, 513))
    batch = batch.pin_memory() if changed else batch
    net = Gpt().to(device, torch.bfloat16)

    @torch.no_grad()
    def step():
        return net(batch.to(device, non_blocking=changed)[:, :-1])

    return step


@pair("a fused optimizer for a foreach one where the GPU is the bottleneck", "unfused-optimizer")
def optimizer_large(device, changed):
    return _gpt_training(device, batch=48, layers=4, fused=True if changed else None, foreach=None if changed else True)


@pair("torch.compile of one large matmul", "unfused-pointwise", on=("cuda", "cpu"))
def compile_matmul(device, changed):
    size = 8192 if device == "cuda" else 1024
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, w = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    fn = torch.compile(torch.matmul) if changed else torch.matmul
    return lambda: fn(x, w)


@pair("inference_mode for no_grad where the GPU is the bottleneck")
def inference_mode(device, changed):
    net, tokens = Gpt(layers=8, dim=1024, heads=16).to(device, torch.bfloat16), torch.randint(50257, (16, 512), device=device)

    def step():
        with torch.inference_mode() if changed else torch.no_grad():
            return net(tokens)

    return step


@pair("gradients dropped, not filled with zeros", on=("cuda", "cpu"))
def zero_grad(device, changed):
    dim = 4096 if device == "cuda" else 512
    net, x = mlp(8, dim).to(device), torch.randn(2048 if device == "cuda" else 256, dim, device=device)

    def step():
        net.zero_grad(set_to_none=changed)
        net(x).mean().backward()

    return step


@pair("twelve workers of the DataLoader for four, where the GPU is the bottleneck", "input-bound")
def more_workers(device, changed):
    return _with_loader(device, work_s=0.0003, workers=12 if changed else 4, batch=64, pinned=True)


@pair("eight batches for two that each worker of a DataLoader prepares ahead", "input-bound")
def prefetch(device, changed):
    return _with_loader(device, work_s=0.0003, workers=12, batch=64, pinned=True, prefetch=8 if changed else 2)


@pair("embeddings gathered by an index that is 32 bits wide for one of 64")
def narrow_index(device, changed):
    ids = torch.randint(50257, (16, 512), device=device, dtype=torch.int32 if changed else torch.int64)
    return _without_gradients(Gpt(layers=8, dim=1024, heads=16).to(device, torch.bfloat16), ids)


@pair("TF32 for a model that autocast runs in bfloat16", "fp32-cuda-cores", "tf32-products")
def tf32_of_bf16(device, changed):
    return _gpt_training(device, batch=16, vocab=50304, tf32=changed)


@pair("ReLU in place in a convolutional network")
def relu_in_place(device, changed):
    layers = [(nn.Conv2d(128, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(inplace=changed)) for _ in range(8)]
    net = nn.Sequential(*(layer for one in layers for layer in one)).to(memory_format=torch.channels_last).to(device)
    images = torch.randn(32, 128, 64, 64, device=device).contiguous(memory_format=torch.channels_last)
    return _training(device, net, images, amp=True)


# --- Models of torchvision and transformers


@pair("matmuls and convolutions of float32 in TF32", "fp32-cuda-cores")
def resnet50(device, changed):
    from torchvision.models import resnet50

    step = _training(device, resnet50().to(device), torch.randn(32, 3, 224, 224, device=device))

    def with_precision():
        torch.backends.cudnn.allow_tf32 = changed
        torch.set_float32_matmul_precision("high" if changed else "highest")
        step()

    return with_precision


@pair("channels_last for a ResNet-50 in bfloat16", "layout-copies")
def resnet50_layout(device, changed):
    from torchvision.models import resnet50

    layout = torch.channels_last if changed else torch.contiguous_format
    net = resnet50().to(device, memory_format=layout)
    return _training(device, net, torch.randn(64, 3, 224, 224, device=device).contiguous(memory_format=layout), amp=True)


@pair("bfloat16 by autocast for a vision transformer", "fp32-cuda-cores")
def vit(device, changed):
    from torchvision.models import vit_b_16

    return _training(device, vit_b_16().to(device), torch.randn(32, 3, 224, 224, device=device), amp=changed)


@pair("scaled_dot_product_attention in BERT", "unfused-attention")
def bert(device, changed):
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=30522, return_dict=False)
    config._attn_implementation = "sdpa" if changed else "eager"
    net = BertModel(config).to(device, torch.bfloat16)
    tokens = torch.randint(30522, (16, 512), device=device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad()
        net(tokens)[0].float().mean().backward()
        optimizer.step()

    return step


@pair("a CUDA graph of GPT-2 at batch 1", "many-small-kernels")
def gpt2_graph(device, changed):
    from transformers import GPT2Config, GPT2Model

    net = GPT2Model(GPT2Config(use_cache=False, return_dict=False))
    return _graphed(net, torch.randint(50257, (1, 64), device=device), changed)


# --- The CPU alone


@pair("a sum of products for a loop over the rows", "many-small-ops", on=("cpu",))
def row_loop(device, changed):
    x, w = torch.randn(256, 512), torch.randn(512, 512)
    return (lambda: x @ w) if changed else (lambda: torch.stack([row @ w for row in x]))


@pair("no gradients where none are used", "gradients-unused", on=("cpu",))
def no_grad(device, changed):
    net, x = mlp(12, 64), torch.randn(8, 64)
    return _without_gradients(net, x) if changed else (lambda: net(x))


@pair("scaled_dot_product_attention on a CPU", "attention-in-parts-on-cpu", on=("cpu",))
def cpu_attention(device, changed):
    q, k, v = torch.randn(3, 2, 8, 512, 64).unbind()

    def written():
        return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v

    return (lambda: F.scaled_dot_product_attention(q, k, v)) if changed else written


@pair("no copies of a transposed matrix", "copies-on-the-cpu", on=("cpu",))
def cpu_copies(device, changed):
    x, w = torch.randn(64, 2048), torch.randn(2048, 2048)
    return (lambda: x @ w.t()) if changed else (lambda: x @ w.t().contiguous())


@pair("float32 for bfloat16 on a CPU", "half-precision-on-cpu", on=("cpu",))
def cpu_half(device, changed):
    dtype = torch.float32 if changed else torch.bfloat16
    net, x = mlp(4, 1024).to(dtype), torch.randn(256, 1024, dtype=dtype)
    return _without_gradients(net, x)


@pair("float32 for float64 on a CPU", "double-precision-on-cpu", on=("cpu",))
def cpu_double(device, changed):
    dtype = torch.float32 if changed else torch.float64
    net, x = mlp(4, 512).to(dtype), torch.randn(256, 512, dtype=dtype)
    return _without_gradients(net, x)


@pair("a fused optimizer on a CPU", "unfused-optimizer", on=("cpu",))
def cpu_optimizer(device, changed):
    net, x = mlp(6, 512), torch.randn(32, 512)
    optimizer = torch.optim.AdamW(net.parameters(), fused=changed)

    def step():
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pair("a cache written in place on a CPU", "cache-growing-by-cat", on=("cpu",))
def cpu_cat(device, changed):
    new, kept = torch.randn(64, 1, 1024), torch.empty(64, 64, 1024)

    def grown():
        cache = new[:, :0]
        for _ in range(64):
            cache = torch.cat([cache, new], 1)
        return cache

    def written():
        for place in range(64):
            kept[:, place : place + 1] = new
        return kept

    return written if changed else grown
