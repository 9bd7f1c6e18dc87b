"""Short names of recordings, and what the command prints of them."""

import contextlib
import io

from trace_reader import cli

TRACES = {  # paths from the copied gallery's h200
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
    "01_64_cpu": "../../01_64_cpu.json",
}
PART_3 = ["04_a", "04_b", *(f"04_c_{backend}" for backend in ("math", "efficient", "flash", "cudnn")), "04_d"]


def printed(arguments: list[str]) -> str:
    """Return what the command prints; names of TRACES stand for their files. The current folder has to be GALLERY."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = cli.main([TRACES.get(argument, argument) for argument in arguments])
    assert code == 0
    return out.getvalue()
