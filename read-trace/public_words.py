"""Make trace_reader/names/public_words.txt: the words that the names of a trace are made of at everybody's place.

    uv run read-trace/public_words.py

They come from what is public: the names of torch's operators, autograd nodes, CUDA kernels, classes and functions; of the CUDA
API; of Python's own modules; and of our recordings. `--redact` keeps them and replaces every other word, so a word is added here
with care: a name of somebody would stay in every shared trace. The result depends on torch's version; it is made by hand.
"""

import ast
from collections.abc import Iterable, Iterator
import gzip
import json
from pathlib import Path
import re
import subprocess
import sys
import textwrap

import torch
from trace_reader.names.public_words import pieces

ROOT = Path(__file__).resolve().parents[1]
WORDS = ROOT / "read-trace" / "trace_reader" / "names" / "public_words.txt"
TORCH = Path(torch.__file__).parent
PYTHON = "nn optim autograd utils/data utils/checkpoint.py distributed/fsdp distributed/tensor distributed/distributed_c10d.py "
PYTHON += "cuda amp profiler _tensor.py functional.py _ops.py"
# What no source here has: of AMD's and Intel's libraries, of devices, and of what programs call their own stages.
MORE = """
tesla sxm pcie hbm gh gb nvl thor orin rx xtx xt generation max pro hierarchy kwargs hash file queue priority cbid
the of by for and to with from in on at is no not its it this that us ms ns kib mib gib kb mb gb tb scudnn hcudnn cnn wgrad
dgrad fprop bprop spatial tensorop simt warpspecialized dconv singleread delta interior alg sgemm hgemm igemm cask volta
turing maxwell pascal winograd nonfused wino cf bn fw bw tr nn nt tn tt nnn nnt ntn ntt tnn tnt ttn ttt nhwc nchw ailk bljk
ajlk bjlk bbs bh bss cijk hbh hhs hss lds ldsb mi mt sb sn isa tensile hip hipblaslt rocm rocblas rocclr miopen rccl ck amd
composable instinct radeon geforce rtx gtx quadro titan hopper ampere ada turing laptop graphics intel arc xpu ze zecommand
level xe apple mps mtia privateuse onednn dnnl mkl openmp omp nvtx cutedsl cute mha gqa mla moe llm kv rope rms swiglu quant
dequant fp bf int uint train training eval evaluation inference epoch epochs batch loss data loading dataloader dataset
inst executed hmma imma dmma bmma lsu xu adu alu cbu idc fma sectors wavefronts tex lts ltc fbpa smsp tpc gpc gcc ld st red
dram throughput elapsed sustained pct peak issued stalled eligible cycles nvlink nvlrx nvltx tx fan speed
optimizer zero grad scaler clip warmup prefill token tokens sampling sample logits embedding encoder decoder attention mlp
layer block head norm checkpoint validation plain high low median steps hostname host user node command environment path file
"""


def words(names: Iterable[str]) -> set[str]:
    return {piece for name in names for piece in pieces(name)}


# What the reader itself looks for in names.
NAMES = [*sorted((ROOT / "read-trace/trace_reader/names").glob("*_names.py")), ROOT / "read-trace/tests/test_kernel_names.py"]
RECORDINGS = ("gallery/h200/*/*.json", "gallery/*/*.json.gz", "read-trace/tests/data/faults/*.gz", "read-trace/benchmarks/*.gz")


def operators() -> set[str]:
    return words(torch._C._dispatch_get_all_op_names())


def autograd_nodes() -> set[str]:
    header = TORCH / "include/torch/csrc/autograd/generated/Functions.h"
    return words(re.findall(r"struct \w+ (\w+)", header.read_text()))


def cuda_calls() -> set[str]:
    headers = [next(Path(sys.prefix).glob(f"lib/python*/site-packages/nvidia/*/include/{name}")) for name in CUDA_HEADERS]
    return words(
        name for header in headers for name in re.findall(r"\b(cu(?:da)?[A-Z]\w+)\s*\(", header.read_text(errors="replace"))
    )


CUDA_HEADERS = ("cuda.h", "cuda_runtime_api.h")


def torch_kernels() -> set[str]:
    symbols = subprocess.run(["nm", "-DC", TORCH / "lib/libtorch_cuda.so"], capture_output=True, text=True, check=True).stdout
    return words(re.findall(r"(?:at|c10)::(?:native|cuda)::[^ ]+kernel\w*", symbols))


def torch_python() -> set[str]:
    found = set()
    for part in PYTHON.split():
        for path in [TORCH / part] if part.endswith(".py") else sorted((TORCH / part).rglob("*.py")):
            found |= words([str(path.relative_to(TORCH))])
            nodes = ast.walk(ast.parse(path.read_text()))
            found |= words(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return found


def recordings() -> set[str]:
    """Of our recordings: names of events, metadata, and keys."""
    found: set[str] = set()
    for pattern in RECORDINGS:
        for path in sorted(ROOT.glob(pattern)):
            data = path.read_bytes()
            trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
            found |= words(set(_strings(trace)))
    return found


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        # Hashes and addresses are no words.
        yield re.sub(r"\b0x[0-9a-f]+|\bf[a-z2-7]{40,}|\b[0-9A-F]{32}\b", "", value)
    elif isinstance(value, list):
        for element in value:
            yield from _strings(element)
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from _strings(key)
            yield from _strings(element)


def main() -> None:
    found = operators() | autograd_nodes() | cuda_calls() | torch_kernels() | torch_python() | recordings()
    found |= words(path.read_text() for path in NAMES)
    found |= words(sys.stdlib_module_names) | words(MORE.split())
    kept = sorted(word for word in found if 2 <= len(word) <= 24)
    WORDS.write_text("\n".join(textwrap.wrap(" ".join(kept), 130)) + "\n")
    print(f"{len(kept)} words in {WORDS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
