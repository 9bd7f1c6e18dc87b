"""Write the golden outputs of tests/data again, and with --gpu record its traces first.

    uv run tests/record.py
    uv run tests/record.py --gpu       on a machine with a GPU

Look at the difference before you commit it: tests/test_read_trace.py holds read_trace.py to these files.
"""

import contextlib
import io
import os
from pathlib import Path
import subprocess
import sys
import tempfile

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT))

MLP = "--batch 64 --seq 128 --dim 768 --hidden 3072"
TRACES = {
    "01_64_cold": "01_matmul_add.py --size 64",
    "01_64_no_warmup_step": "01_matmul_add.py --size 64 --wait 0 --schedule_warmup 0",
    "01_4096_warm": "01_matmul_add.py --size 4096 --warmup",
    "01_4096_compile": "01_matmul_add.py --size 4096 --warmup --compile",
    "01_4096_graph": "01_matmul_add.py --size 4096 --warmup --compile --compile_mode reduce-overhead",
    "02": "02_linear.py",
    "03_eager": f"03_simple_mlp.py {MLP} --record_shapes",
    "03_compile": f"03_simple_mlp.py {MLP} --compile",
    "03_kernels": f"03_kernels_mlp.py {MLP}",
    "03_triton": f"03_triton_mlp.py {MLP}",
    "04_a": "04_a_naive_attention.py",
    "shapes_04_a": "04_a_naive_attention.py --record_shapes",
    "04_b": "04_b_inplace_ops_attention.py",
    "04_c_math": "04_c_sdpa_attention.py --backend math",
    "04_c_efficient": "04_c_sdpa_attention.py --backend efficient",
    "04_c_flash": "04_c_sdpa_attention.py --backend flash",
    "04_c_cudnn": "04_c_sdpa_attention.py --backend cudnn",
    "04_d": "04_d_kernels_attention.py",
    "01_64_cpu": "01_matmul_add.py --device cpu",
}
PART_3 = ["04_a.json", "04_b.json", *(f"04_c_{backend}.json" for backend in ("math", "efficient", "flash", "cudnn")), "04_d.json"]
GOLDEN = {
    **{f"{name}.out": [f"{name}.json"] for name in TRACES},
    "01_64_cold.md": ["01_64_cold.json", "--md"],
    "01_64_cold.json.out": ["01_64_cold.json", "--json"],
    "03_eager.full": ["03_eager.json", "--full", "--top", "3"],
    "03_eager.chain": ["03_eager.json", "--chain"],
    "03_eager_compile.out": ["03_eager.json", "03_compile.json"],
    "03_eager_compile.md": ["03_eager.json", "03_compile.json", "--md"],
    "03_compile_kernels.out": ["03_compile.json", "03_kernels.json"],
    "03_all.out": ["03_eager.json", "03_compile.json", "03_kernels.json", "03_triton.json"],
    "04_a_b.out": ["04_a.json", "04_b.json"],
    "04_c_math.chain": ["04_c_math.json", "--chain"],
    "part_3.out": PART_3,
    "part_3.md": [*PART_3, "--md"],
}


def record_traces() -> None:
    from stand_ins import all_packages

    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **all_packages(Path(folder) / "packages")}
        for name, command in TRACES.items():
            script, *flags = command.split()
            target = Path(folder) / name
            subprocess.run([sys.executable, script, *flags, "--trace_dir", target], cwd=ROOT, env=env, check=True)
            (trace,) = target.glob("*.json")
            (DATA / f"{name}.json").write_bytes(trace.read_bytes())


def read_trace(arguments: list[str]) -> str:
    """What read_trace.py prints for files of tests/data, which must be the current folder."""
    import read_trace

    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = read_trace.main(arguments)
    assert code == 0
    return out.getvalue()


def main() -> None:
    (DATA / "golden").mkdir(parents=True, exist_ok=True)
    if sys.argv[1:] == ["--gpu"]:
        record_traces()
    os.chdir(DATA)
    for name, arguments in GOLDEN.items():
        (DATA / "golden" / name).write_text(read_trace(arguments))


if __name__ == "__main__":
    main()
