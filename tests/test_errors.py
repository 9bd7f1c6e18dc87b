"""What goes wrong on the way, and what the user sees: text and exit code."""

import os
import resource
import subprocess
import sys

from helpers import ROOT, SMALL_ATTENTION, SMALL_MLP
import pytest
import torch

WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_a_device_that_is_not_there(lesson, device):
    run = lesson("01_matmul_add.py", "--device", device, env=WITHOUT_GPU)
    assert (run.code, run.out, run.files) == (2, "", [])
    assert run.err == (
        f"error: --device {device}: torch {torch.__version__} finds no usable {device} device here; usable: cpu. "
        "Leave --device out to let the lesson choose.\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="MPS is there on a Mac")
def test_mps_on_linux(lesson):
    run = lesson("02_linear.py", "--device", "mps", env=WITHOUT_GPU)
    assert (run.code, run.files) == (2, [])
    assert run.err.startswith("error: --device mps: torch ") and run.err.count("\n") == 1


def test_kernels_mlp_names_the_way_out_where_triton_has_no_gpu(lesson):
    run = lesson("03_kernels_mlp.py", "--device", "cpu")
    assert (run.code, run.files) == (2, [])
    assert run.err == (
        "error: Liger's kernel needs a GPU that Triton supports, and this run is on cpu. The same fusion, written by "
        "torch.compile, runs anywhere: uv run 03_simple_mlp.py --compile. Its recording on an H200: uv run "
        "read_trace.py gallery/h200/03_kernels_mlp/64_128_768_3072_bf16_warm_eager.json\n"
    )


def test_triton_mlp_names_the_way_out_where_triton_has_no_gpu(lesson):
    run = lesson("03_triton_mlp.py", "--device", "cpu")
    assert (run.code, run.files) == (2, [])
    assert run.err == (
        "error: the kernel needs a GPU that Triton supports, and this run is on cpu. The same fusion, written by "
        "torch.compile, runs anywhere: uv run 03_simple_mlp.py --compile. Its recording on an H200: uv run "
        "read_trace.py gallery/h200/03_triton_mlp/64_128_768_3072_bf16_warm_eager.json\n"
    )


def test_triton_mlp_without_triton(lesson, tmp_path):
    (tmp_path / "triton.py").write_text("raise ImportError('not here')\n")
    run = lesson("03_triton_mlp.py", env={"PYTHONPATH": str(tmp_path)})
    assert (run.code, run.out, run.files) == (2, "", [])
    assert run.err == (
        "error: this lesson needs Triton, which torch brings along on Linux only. The same fusion, written by "
        "torch.compile, runs anywhere: uv run 03_simple_mlp.py --compile\n"
    )


def test_kernels_attention_names_the_way_out_where_there_is_no_gpu(lesson):
    run = lesson("04_d_kernels_attention.py", "--device", "cpu")
    assert (run.code, run.files) == (2, [])
    assert run.err == (
        "error: the package's kernel needs a GPU, and this run is on cpu. torch's own flash attention runs here: "
        "uv run 04_c_sdpa_attention.py --backend flash. Its recording on an H200: uv run "
        "read_trace.py gallery/h200/04_d_kernels_attention/8_16_1024_64_bf16_warm_eager.json\n"
    )


@pytest.mark.parametrize("backend", ["efficient", "cudnn"])
def test_an_attention_backend_that_the_cpu_lacks(lesson, backend):
    run = lesson("04_c_sdpa_attention.py", "--device", "cpu", "--backend", backend, *SMALL_ATTENTION)
    assert (run.code, run.files) == (2, [])
    assert run.err.startswith(f"error: --backend {backend} cannot be used on ")
    assert run.err.endswith("with bf16 and these sizes: torch has no such kernel for cpu. Here these can: auto, math, flash\n")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("benchmarks/geglu_kernel.py", "error: this benchmark needs a CUDA GPU, and torch finds none here\n"),
        ("gallery/record.py", "error: the gallery is recorded on a CUDA GPU, and torch finds none here\n"),
    ],
)
def test_what_needs_a_gpu_says_so(forked_lessons, script, message):
    assert forked_lessons([str(ROOT / script)], ROOT, WITHOUT_GPU) == (2, "", message)


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "benchmarks").glob("*.py") if "bare" not in path.name))
def test_a_benchmark_explains_itself_and_does_no_work(forked_lessons, script):
    """Whatever it needs beyond torch is asked for when it runs, not when its help is."""
    code, out, _ = forked_lessons([str(ROOT / "benchmarks" / script), "--help"], ROOT)
    assert code == 0 and out.startswith("usage: ") and "uv run " in out


def test_inputs_larger_than_the_memory(lesson):
    run = lesson("01_matmul_add.py", "--device", "cpu", "--size", "4000000")
    assert (run.code, run.files) == (1, [])
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    (name,) = [line.split("(")[1].split(", " + f"{total:.1f}")[0] for line in run.out.splitlines()]
    assert run.err == (
        "error: out of memory on cpu: the inputs and weights alone need at least 29.1 TiB, "
        f"{name} has {total:.1f} GiB; lower --size\n"
    )


@pytest.mark.slow
def test_an_allocation_that_fails_on_the_way(lesson):
    """The inputs fit, their product [batch, seq, hidden] does not."""

    def no_overcommitting():  # where the system promises memory that it does not have, it kills instead
        resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))

    run = lesson(
        "03_simple_mlp.py",
        *("--device", "cpu", "--batch", "1000", "--seq", "1000", "--dim", "1", "--hidden", "2000000"),
        preexec_fn=no_overcommitting,
    )
    assert (run.code, run.files) == (1, [])
    assert run.err.startswith("error: out of memory on cpu: the inputs and weights alone need 13.4 MiB, ")
    assert run.err.endswith("; lower --batch or --seq or --dim or --hidden\n") and run.err.count("\n") == 1


@pytest.mark.parametrize("size", ["9" * 12, "9" * 30])
def test_sizes_beyond_64_bits(lesson, size):
    run = lesson("01_matmul_add.py", "--device", "cpu", "--size", size)
    assert (run.code, run.files) == (1, [])
    assert run.err == "error: these sizes are beyond what a tensor can hold: lower --size\n"


def test_a_trace_folder_that_cannot_be_made_is_found_before_the_run(lesson, tmp_path):
    (tmp_path / "file").write_text("")
    run = lesson("01_matmul_add.py", "--trace_dir", str(tmp_path / "file" / "sub"))
    assert (run.code, run.out) == (2, "")
    assert run.err == (
        f"error: --trace_dir {tmp_path}/file/sub: cannot write there: [Errno 20] Not a directory: '{tmp_path}/file/sub'\n"
    )


def test_a_folder_in_the_place_of_an_artifact_is_found_before_the_run(lesson, tmp_path):
    (tmp_path / "64_bf16_cold_eager.txt").mkdir()
    run = lesson("01_matmul_add.py", folder=tmp_path)
    assert (run.code, run.out) == (2, "")
    assert run.err.endswith(f"[Errno 21] Is a directory: '{tmp_path}/64_bf16_cold_eager.txt'\n")


@pytest.mark.slow
def test_a_full_disk_leaves_the_earlier_artifacts(lesson, tmp_path):
    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    assert lesson("01_matmul_add.py", "--device", "cpu", folder=tmp_path).code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    keeping_none = {"PYTHONDONTWRITEBYTECODE": "1"}  # bytecode would be cut off, too
    run = lesson("01_matmul_add.py", "--device", "cpu", folder=tmp_path, env=keeping_none, preexec_fn=small_files_only)
    assert run.code == 1
    assert run.err.splitlines()[-1].startswith("error: cannot write the trace: no room in the temporary folder ")
    assert "Traceback" not in run.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_compile_without_a_compiler_names_it(lesson, tmp_path):
    env = {"CXX": "/nowhere/c++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    run = lesson("03_simple_mlp.py", "--device", "cpu", "--compile", *SMALL_MLP, env=env)
    assert (run.code, run.files) == (1, [])
    assert run.err == (
        "error: torch.compile needs a C++ compiler (/nowhere/c++) and finds none that works; install one, or run "
        "without --compile\n"
    )


@pytest.mark.slow
def test_a_pipe_that_closes_early_is_no_traceback(tmp_path):
    done = subprocess.run(
        f"set -o pipefail; {sys.executable} 01_matmul_add.py --device cpu --trace_dir {tmp_path} | head -n 1",
        shell=True,
        executable="/bin/bash",
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("device: cpu")
    assert (done.returncode, done.stderr) == (141, "")
