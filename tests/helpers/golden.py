"""Write the golden outputs of read-trace/tests/data again: what read_trace.py prints of the gallery's recordings.

    uv run tests/helpers/golden.py

Look at the difference before you commit it: read-trace/tests/test_read_trace.py holds read_trace.py to these files.
"""

import contextlib
import io
import os
from pathlib import Path
import sys

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "read-trace" / "tests" / "data"
GALLERY = ROOT / "gallery" / "h200"
sys.path.insert(0, str(ROOT))

TRACES = {  # short names of recordings; paths from the gallery, in which the outputs are made
    "01_64_cold": "01_matmul_add/64_bf16_cold_eager.json",
    "01_64_no_warmup_step": "01_matmul_add/64_bf16_cold_eager_wait-0_schedule_warmup-0.json",
    "01_4096_warm": "01_matmul_add/4096_bf16_warm_eager.json",
    "01_4096_compile": "01_matmul_add/4096_bf16_warm_compile.json",
    "01_4096_graph": "01_matmul_add/4096_bf16_warm_compile_compile_mode-reduce-overhead.json",
    "02": "02_linear/1024_32_64_bf16_warm_eager.json",
    "03_eager": "03_simple_mlp/64_128_768_3072_bf16_warm_eager_record_shapes.json",
    "03_compile": "03_simple_mlp/64_128_768_3072_bf16_warm_compile.json",
    "03_kernels": "03_kernels_mlp/64_128_768_3072_bf16_warm_eager.json",
    "03_triton": "03_triton_mlp/64_128_768_3072_bf16_warm_eager.json",
    "04_a": "04_a_naive_attention/8_16_1024_64_bf16_warm_eager.json",
    "shapes_04_a": "04_a_naive_attention/8_16_1024_64_bf16_warm_eager_record_shapes.json",
    "04_b": "04_b_inplace_ops_attention/8_16_1024_64_bf16_warm_eager.json",
    "04_c_math": "04_c_sdpa_attention/8_16_1024_64_math_bf16_warm_eager.json",
    "04_c_efficient": "04_c_sdpa_attention/8_16_1024_64_efficient_bf16_warm_eager.json",
    "04_c_flash": "04_c_sdpa_attention/8_16_1024_64_flash_bf16_warm_eager.json",
    "04_c_cudnn": "04_c_sdpa_attention/8_16_1024_64_cudnn_bf16_warm_eager.json",
    "04_d": "04_d_kernels_attention/8_16_1024_64_bf16_warm_eager.json",
    "01_64_cpu": "../../read-trace/tests/data/01_64_cpu.json",
}
PART_3 = ["04_a", "04_b", *(f"04_c_{backend}" for backend in ("math", "efficient", "flash", "cudnn")), "04_d"]
GOLDEN = {
    **{f"{name}.out": [name] for name in TRACES},
    "01_64_cold.md": ["01_64_cold", "--md"],
    "01_64_cold.json.out": ["01_64_cold", "--json"],
    "03_eager.full": ["03_eager", "--full", "--top", "3"],
    "03_eager.chain": ["03_eager", "--chain"],
    "03_eager_compile.out": ["03_eager", "03_compile"],
    "03_eager_compile.md": ["03_eager", "03_compile", "--md"],
    "03_compile_kernels.out": ["03_compile", "03_kernels"],
    "03_all.out": ["03_eager", "03_compile", "03_kernels", "03_triton"],
    "04_a_b.out": ["04_a", "04_b"],
    "04_c_math.chain": ["04_c_math", "--chain"],
    "part_3.out": PART_3,
    "part_3.md": [*PART_3, "--md"],
}


def read_trace(arguments: list[str]) -> str:
    """What read_trace.py prints; names of TRACES stand for their files. The current folder has to be the gallery."""
    import read_trace

    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = read_trace.main([TRACES.get(argument, argument) for argument in arguments])
    assert code == 0
    return out.getvalue()


def main() -> None:
    os.chdir(GALLERY)
    for path in (DATA / "golden").iterdir():
        path.unlink()
    for name, arguments in GOLDEN.items():
        (DATA / "golden" / name).write_text(read_trace(arguments))


if __name__ == "__main__":
    main()
