"""Recordings changed by a seed: times, names, shapes, streams, steps and headers that no recording has, and what the reader says.

    uv run tests/helpers/perturbed.py SEED --write FOLDER   the files of a seed, and the command

A seed is one to four changes of a recording of this repository and one command. Those in tests/answers/numbers.tsv changed their
answer when a fault was put into the reader that no answer about a recording as it is noticed.
"""

import argparse
from collections.abc import Callable
import contextlib
from functools import cache
import gzip
import json
from pathlib import Path
import random
import sys
import tempfile
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in (".", "tests", "read-trace/tests")]

from helpers.snapshots import ROOT, answer, figures, printed
from reader_helpers.other_forms import write_nsys

RECORDINGS = ROOT / "tests" / "answers" / "perturbed_recordings.txt"
FORMS = (
    "--json", "--all", "--json --all", "--all", "--json", "--brief", "--md --all --top 3", "--html", "--html", "--chain",
    "--by annotation", "--by layer --json", "--by stack", "--by stack --time cpu", "--folded", "--redact", "--what_if graph",
    "--what_if no~waits --json", "--what_if loader", "--what_if drop~aten::.*_ --json", "--what_if scale~.*gemm.*~0.5",
    "--full --top 4", "--plot", "--plot", "--plot roofline.svg", "show", "show --json", "--by layer",
    "--steps_from train_step|forward --json", "--names --json",
)  # fmt: skip  # ~ stands for a space inside an argument
OF_TWO = (
    "--json", "--html", "--all", "check --json", "check --md", "check", "check --github", "runs --sort step", "runs --json",
    "--plot", "--plot a.svg --us 100:250",
)  # fmt: skip
OF_A_JOB = (
    "--all",
    "--json",
    "--md",
    "--html",
    "--merge",
    "--what_if no~waits --json",
    "--what_if rank~1~like~0",
    "--plot",
    "runs",
)
CALLS = (
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpyAsync", "cudaMalloc", "cudaFree", "cudaHostAlloc",
    "cudaGraphLaunch", "cudaEventSynchronize", "cudaStreamWaitEvent", "cudaEventRecord", "cudaMemcpy", "cudaLaunchKernelExC",
    "hipLaunchKernel", "hipMemcpyWithStream", "cudaStreamIsCapturing", "cuLaunchKernelEx",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
)  # fmt: skip
OPS = (
    "aten::item", "aten::_local_scalar_dense", "aten::copy_", "aten::to", "aten::cat", "aten::contiguous", "aten::softmax",
    "aten::mm", "aten::bmm", "aten::addmm", "aten::embedding", "aten::convolution",
    "aten::_scaled_dot_product_flash_attention", "aten::layer_norm", "aten::nonzero", "aten::_foreach_add_",
    "Optimizer.step#AdamW.step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "autograd::engine::evaluate_function: MmBackward0", "Torch-Compiled Region: 0/0", "CompiledFxGraph abc",
    "nccl:all_reduce", "aten::masked_fill_", "aten::gelu", "aten::dropout", "aten::to_copy", "aten::fill_", "aten::triu",
    "aten::_to_copy",
)  # fmt: skip
KERNELS = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "volta_sgemm_128x64_nt", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nt",
    "cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "triton_poi_fused_add_0",
    "triton_red_fused_native_layer_norm_1", "void at::native::reduce_kernel<512, 1, float>",
    "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>", "Memset (Device)", "elementwise_kernel", "my_kernel(int)",
    "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda>",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<>",
    "void at::native::elementwise_kernel<128, 2, where>",
)  # fmt: skip
TYPES = ("float", "c10::BFloat16", "c10::Half", "double", "long int", "Scalar", "", "c10::Float8_e4m3fn", "bool")
DEVICES = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X", "NVIDIA GeForce RTX 4090", "?")
Events = list[dict[str, Any]]
Change = Callable[[random.Random, dict[str, Any], Events], None]


def _some(chance: random.Random, events: Events, *kinds: str) -> Events:
    """Return some events of one of these kinds that the trace has: few, half, or all of them, or those of one name."""
    present = sorted({e["cat"] for e in events if e.get("ph") == "X" and e.get("cat") in kinds})
    if not present:
        return []
    kind = chance.choice(present)
    one = [e for e in events if e.get("ph") == "X" and e.get("cat") == kind]
    how = chance.randrange(4)
    if how == 0:
        return chance.sample(one, min(len(one), 3))
    if how == 1:
        name = chance.choice(one)["name"]
        return [e for e in one if e["name"] == name]
    return one if how == 2 else [e for e in one if chance.random() < 0.5]


WORK, CPU = (
    ("kernel", "gpu_memcpy", "gpu_memset"),
    ("cpu_op", "cuda_runtime", "cuda_driver", "user_annotation", "python_function"),
)


def stretch(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    factor = chance.choice((0, 0.1, 0.5, 2, 5, 50))
    for event in _some(chance, events, *WORK, *CPU):
        event["dur"] = round(event["dur"] * factor, 3)


def shift(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    by_us = chance.choice((-300.0, -20.0, 5.0, 100.0, 4000.0))
    for event in _some(chance, events, *WORK, *CPU):
        event["ts"] = round(event["ts"] + by_us, 3)


def part(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """A pause: all that begins after a moment is later."""
    moment = chance.choice([e["ts"] for e in events if e.get("ph") == "X"])
    by_us = chance.choice((50.0, 1000.0, 30000.0))
    for event in events:
        if event.get("ts", 0) > moment:
            event["ts"] = round(event["ts"] + by_us, 3)


def drop(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    gone = {id(e) for e in _some(chance, events, *WORK, *CPU)}
    events[:] = [e for e in events if id(e) not in gone]


def rename(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    kind, names = chance.choice((("kernel", KERNELS), ("cpu_op", OPS), ("cuda_runtime", CALLS), ("user_annotation", OPS)))
    name = chance.choice(names)
    for event in _some(chance, events, kind):
        event["name"] = name


def reshape(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """Shapes and types of ops; the footprint of kernels; bytes of copies."""
    factor, kind = chance.choice((0, 1, 2, 3, 7, 64)), chance.choice(TYPES)
    which = chance.choice(("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number"))
    for event in _some(chance, events, "cpu_op", "kernel", "gpu_memcpy"):
        args = event.get("args", {})
        for key in ("registers per thread", "shared memory", "bytes", "In msg nelems", "Group size"):
            if isinstance(args.get(key), int):
                args[key] *= factor
        for key in ("grid", "block"):
            if key in args:
                args[key] = [args[key][0] * factor + (factor == 1), *args[key][1:]]
        if which == "Input Dims" and which in args:
            args[which] = [[n * factor + (factor == 1) for n in dims] if isinstance(dims, list) else dims for dims in args[which]]
        elif which == "Input type" and which in args:
            args[which] = [kind if one else one for one in args[which]]
        else:
            args.pop(which, None)


def move(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """Work onto another stream or device; calls and ops onto another thread."""
    stream, device = chance.choice(((20, 0), (24, 0), (7, 1)))
    for event in _some(chance, events, *WORK, "cpu_op", "cuda_runtime"):
        if event["cat"] in WORK:
            event["tid"], event["args"]["stream"] = stream, stream
            event["pid"], event["args"]["device"] = device, device
        else:
            event["tid"] = 4242


def repeat(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """The whole again, later, once to three times, with ids and numbers of steps of its own."""
    once = [e for e in events if "ts" in e]
    length = max(e["ts"] + e.get("dur", 0) for e in once) - min(e["ts"] for e in once) + chance.choice((0.5, 30.0, 900.0))
    for turn in range(1, chance.randint(2, 4)):
        slower = chance.choice((1, 1, 1.02, 1.5))
        for event in once:
            copy = json.loads(json.dumps(event))
            copy["ts"] = round(copy["ts"] + turn * length, 3)
            if "dur" in copy and copy.get("cat") in WORK:
                copy["dur"] = round(copy["dur"] * slower, 3)
            for key in ("correlation", "External id"):
                if key in copy.get("args", {}):
                    copy["args"][key] += turn * 10_000_000
            if copy["name"].startswith("ProfilerStep#"):
                copy["name"] = f"ProfilerStep#{int(copy['name'].partition('#')[2]) + 10 * turn}"
            events.append(copy)


def insert(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """Calls, ops, annotations, Python or counters where there were none."""
    spans = [e for e in events if e.get("ph") == "X" and e.get("cat") in CPU]
    for where in chance.sample(spans, min(len(spans), chance.choice((1, 2, 12)))):
        kind = chance.choice(("cuda_runtime", "cpu_op", "user_annotation", "python_function", "overhead"))
        name = chance.choice(
            {"cuda_runtime": CALLS, "cpu_op": OPS}.get(kind, ("forward", "<built-in gc.collect>", "train.py(7): go"))
        )
        made = {
            "ph": "X", "cat": kind, "name": name, "pid": where["pid"], "tid": where["tid"],
            "ts": round(where["ts"] + 0.001, 3), "dur": round(where["dur"] * chance.choice((0.3, 0.9)), 3),
        }  # fmt: skip
        if kind == "cuda_runtime":
            made["args"] = {"correlation": chance.randrange(90_000_000, 99_000_000)}
        events.append(made)


def remember(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """Memory taken and given back inside the ops."""
    total, held = 0, list[tuple[int, int]]()
    for number, where in enumerate(
        [e for e in events if e.get("cat") == "cpu_op" and e.get("ph") == "X"][:: chance.choice((1, 5))]
    ):
        if held and chance.random() < 0.4:
            address, size = held.pop(chance.randrange(len(held)))
            size = -size
        else:
            address, size = 4096 * (number + 1), 512 * chance.randint(1, 4000)
            held.append((address, size))
        total += size
        args = {
            "Addr": address, "Bytes": size, "Device Type": 1, "Device Id": 0, "Total Allocated": total,
            "Total Reserved": 2 * total + 1,
        }  # fmt: skip
        lane = {"pid": where["pid"], "tid": where["tid"], "ts": round(where["ts"] + 0.01, 3)}
        events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **lane, "args": args})


def head(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """Another device, flags, a plain step, a rank."""
    for properties in data.get("deviceProperties", []):
        properties["name"] = chance.choice(DEVICES)
        properties["numSms"] = chance.choice((16, 84, 132))
    for flag in ("record_shapes", "with_stack", "profile_memory"):
        if chance.random() < 0.5:
            data[flag] = chance.randrange(2)
    period_us = max((e["dur"] for e in events if e.get("name", "").startswith("ProfilerStep#")), default=100.0)
    if chance.random() < 0.5:
        step_us = round(period_us * chance.choice((0.3, 0.7, 1.0, 1.4)), 3)
        data["plain_step_us"] = {"median": step_us, "low": round(step_us * 0.9, 3), "high": round(step_us * 1.2, 3), "steps": 9}
    if chance.random() < 0.3:
        data["distributedInfo"] = {"backend": "nccl", "rank": chance.randrange(2), "world_size": chance.choice((2, 4))}


def steps(chance: random.Random, data: dict[str, Any], events: Events) -> None:
    """No steps, steps of another kind, or one that is longer."""
    name = chance.choice(("", "execute_context_3(96)_generation_5(5)", "train_step", "step[DECODE bs=4]"))
    for event in events:
        if event.get("name", "").startswith("ProfilerStep#") and chance.random() < 0.8:
            event["name"] = name or "gone"


CHANGES: tuple[Change, ...] = (
    *(stretch, stretch, shift, part, drop, rename, rename, reshape, reshape, move, repeat, insert, insert, remember, head, steps),
)


@cache
def bases() -> tuple[list[list[Path]], list[list[Path]]]:
    """Return the recordings that are changed, and the jobs, by rank: with one more, or one less, each seed means something
    else.
    """
    lines = [[ROOT / path for path in line.split()] for line in RECORDINGS.read_text().splitlines()]
    return [paths for paths in lines if len(paths) == 1], [paths for paths in lines if len(paths) > 1]


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    return read


def damaged(chance: random.Random, text: bytes) -> bytes:
    """Return a cut, a hole, another byte, a second list, or only half of the .gz."""
    where, how = chance.randrange(len(text) // 4, len(text)), chance.randrange(5)
    if how == 0:
        return text[:where]
    if how == 1:
        return text[:where] + text[where + chance.choice((1, 40, 3000)) :]
    if how == 2:
        return text[:where] + chance.choice((b"}", b"]", b'"', b",", b"x", b"\0" * 90)) + text[where + 1 :]
    if how == 3:
        return (
            text[:-1]
            + b', "traceEvents": '
            + json.dumps([{"ph": "X", "cat": "cpu_op", "name": "late", "ts": 1, "dur": 1}]).encode()
            + b"}"
        )
    return gzip.compress(text, mtime=0)[: where // 8]


def changed(seed: int, folder: Path) -> tuple[list[str], str]:
    """Writes the files of a seed; their names, and the form: flags, or the command that takes the files."""
    chance = random.Random(seed)
    of_one, jobs = bases()
    kind = chance.choice(("one", "one", "one", "one", "one", "one", "two", "two", "job"))
    if kind == "job":
        files = {f"t_rank{rank}.json": _read(path) for rank, path in enumerate(chance.choice(jobs))}
        form = chance.choice(OF_A_JOB)
    else:
        data = _read(*chance.choice(of_one))
        files = {"a.json": data, "b.json": json.loads(json.dumps(data))} if kind == "two" else {"t.json": data}
        form = chance.choice(OF_TWO if kind == "two" else FORMS)
    for _ in range(chance.randint(1, 4)):
        data = files[chance.choice(sorted(files))]
        if any(e.get("ph") == "X" for e in data["traceEvents"]):
            chance.choice(CHANGES)(chance, data, data["traceEvents"])
    for name, data in files.items():
        text = json.dumps(data).encode()
        (folder / name).write_bytes(damaged(chance, text) if chance.random() < 0.07 else text)
    if list(files) == ["t.json"] and chance.random() < 0.05:
        with contextlib.suppress(KeyError, TypeError, ValueError):  # what the tables have no place for: as JSON, then
            write_nsys(folder / "t.sqlite", files["t.json"])
            return ["t.sqlite"], form
    return list(files), form


def said(names: list[str], form: str) -> str:
    """Return what the reader says of files in the current folder."""
    command, *more = form.split()
    if command == "check":
        return printed(["check", names[1], "--baseline", names[0], *more])
    if command == "runs":
        return printed(["runs", *names, *more])
    if command == "show":
        report = printed([*names, "--json"])
        ids = [found["slug"] for found in json.loads(report)["findings"]] if report.startswith("{") else ["low-occupancy"]
        return "\n".join(printed(["show", *names, slug, *more]) for slug in ids)
    if command == "--names":
        return printed([*names, "--names", names[0], *more])
    return answer(names, form)


def figures_of(seed: int) -> str:
    """Return what the reader says of a seed's files, without its sentences."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        names, form = changed(seed, Path(folder))
        return figures(said(names, form), form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--write", type=Path, metavar="FOLDER", required=True, help="where")
    args = parser.parse_args()
    names, form = changed(args.seed, args.write)
    print(" ".join([*(str(args.write / name) for name in names), *form.split()]))


if __name__ == "__main__":
    main()
