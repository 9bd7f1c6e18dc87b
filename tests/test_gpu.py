"""What the posts claim of parts 1 and 2 and what holds on any CUDA device, on traces recorded here and now."""

import pytest
from conftest import LESSONS, Trace
from liger import stand_in

pytestmark = pytest.mark.gpu

MLP = ("--batch", "64", "--seq", "128", "--dim", "768", "--hidden", "3072")
COMMANDS = {
    "01": ("01_matmul_add.py", "--size", "64"),
    "01 cold start": ("01_matmul_add.py", "--wait", "0", "--schedule_warmup", "0"),
    "01 fp32": ("01_matmul_add.py", "--dtype", "fp32", "--size", "4096"),
    "01 addmm": ("01_matmul_add.py", "--size", "4096", "--warmup", "--op", "addmm"),
    "01 compile": ("01_matmul_add.py", "--size", "4096", "--warmup", "--compile"),
    "01 graph": ("01_matmul_add.py", "--size", "4096", "--warmup", "--compile", "--compile_mode", "reduce-overhead"),
    "01 tune": ("01_matmul_add.py", "--size", "512", "--warmup", "--compile", "--compile_mode", "max-autotune"),
    "02": ("02_linear.py",),
    "02 compile": ("02_linear.py", "--compile"),
    "03": ("03_simple_mlp.py", *MLP),
    "03 compile": ("03_simple_mlp.py", *MLP, "--compile"),
}


@pytest.fixture(scope="module")
def runs(lessons):
    return lessons(COMMANDS)


@pytest.fixture(scope="module")
def trace(runs):
    return lambda name: runs[name].result().trace()


@pytest.fixture(scope="session")
def liger(tmp_path_factory):
    """The environment of a stand-in for the Hub's package."""
    return stand_in(tmp_path_factory.mktemp("liger"))


def kernels(trace: Trace, step: str) -> list[str]:
    return [event["name"] for event in trace.launched_by(step) if event["cat"] == "kernel"]


def gemms(trace: Trace, step: str) -> list[str]:
    return [name for name in kernels(trace, step) if "elementwise" not in name and "triton" not in name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_well_and_quietly(runs, name):
    run = runs[name].result()
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("device: cuda (") and "\nSelf CUDA time total: " in run.out
    assert len(run.out.splitlines()) == 9


def test_a_matmul_and_an_add_are_two_kernels_a_step(trace):
    for step in trace("01").steps():
        gemm, add = kernels(trace("01"), step)
        assert "CUDAFunctor_add" in add and "elementwise" not in gemm


def test_the_profiler_requests_its_buffer_before_the_first_kernel(trace):
    overheads = [e for e in trace("01 cold start").of("overhead") if e["name"] == "Activity Buffer Request"]
    assert min(e["ts"] for e in overheads) < min(e["ts"] for e in trace("01 cold start").of("kernel"))


@pytest.mark.parametrize("name", ["01", "01 fp32", "02", "03", "03 compile"])
def test_no_kernel_is_recorded_that_no_recorded_step_launched(trace, name):
    launched = [event for step in trace(name).steps() for event in trace(name).launched_by(step)]
    assert len(launched) == len(trace(name).of("kernel", "gpu_memcpy", "gpu_memset")) > 0


@pytest.mark.parametrize("name", ["01 addmm", "01 compile"])
def test_an_addmm_copies_the_bias_from_device_to_device(trace, name):
    for step in trace(name).steps():
        first = trace(name).launched_by(step)[0]
        assert first["name"].startswith("Memcpy DtoD")
        assert first["args"]["bytes"] == 4096 * 4096 * 2
        assert len(kernels(trace(name), step)) == 1


def test_a_graph_launches_many_kernels_at_once(trace):
    for step in trace("01 graph").steps():
        correlations = {event["args"]["correlation"] for event in trace("01 graph").launched_by(step)}
        assert correlations & {e["args"]["correlation"] for e in trace("01 graph").named("cudaGraphLaunch")}


def test_a_linear_layer_is_one_kernel_and_its_transpose_launches_nothing(trace):
    t = trace("02")
    for step in t.steps():
        assert len(kernels(t, step)) == 1
    launches = t.of("cuda_runtime", "cuda_driver")
    for transpose in t.named("aten::t"):
        assert not [e for e in launches if e in t.inside(transpose)]
    assert not t.named("aten::add")
    assert "aten::linear" not in t.ops(t.steps()[0]) or "aten::addmm" in t.ops(t.steps()[0])
    assert not trace("02 compile").named("aten::linear")


def test_an_eager_mlp_is_five_kernels_a_step_and_a_compiled_one_four(trace):
    for step in trace("03").steps():
        assert len(kernels(trace("03"), step)) == 5
        assert len(gemms(trace("03"), step)) == 3
    for step in trace("03 compile").steps():
        names = kernels(trace("03 compile"), step)
        assert len(names) == 4
        assert [name for name in names if name.startswith("triton_poi_fused_")] == ["triton_poi_fused__unsafe_view_gelu_mul_0"]


def test_compiling_the_mlp_keeps_the_names_of_its_gemms(trace):
    step = trace("03").steps()[0]
    assert sorted(gemms(trace("03"), step)) == sorted(gemms(trace("03 compile"), step))


@pytest.mark.parametrize("form", ["1", "2"])
def test_ligers_mlp_is_four_kernels_a_step_in_both_forms_of_its_class(lesson, liger, form):
    run = lesson("03_kernels_mlp.py", *MLP, "--kernel_version", form, env={**liger, "LIGER_FORM": form})
    assert (run.code, run.err) == (0, "")
    trace = run.trace()
    assert len(trace.named("kernels_mlp_fwd")) >= 3
    for step in trace.steps():
        assert len(kernels(trace, step)) == 4
        assert kernels(trace, step).count("_geglu_tanh_forward_kernel") == 1


def test_out_of_device_memory_in_the_middle_of_a_step(lesson):
    run = lesson("03_simple_mlp.py", "--batch", "1000", "--seq", "1000", "--dim", "1", "--hidden", "2000000")
    assert (run.code, run.files) == (1, [])
    assert run.err.startswith("error: out of memory on cuda: the inputs and weights alone need 13.4 MiB, NVIDIA ")
    assert run.err.endswith("; lower --batch or --seq or --dim or --hidden\n") and run.err.count("\n") == 1


def test_triton_without_a_c_compiler(lesson, tmp_path):
    env = {"CC": "/nowhere/cc", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path)}
    run = lesson("03_simple_mlp.py", "--compile", env=env)
    assert (run.code, run.files) == (1, [])
    assert run.err == (
        "error: torch.compile needs a C compiler (/nowhere/cc, which the variable CC names) for Triton's launchers and "
        "finds none that works; install one, or run without --compile\n"
    )


def test_triton_with_a_c_compiler_that_fails(lesson, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho cc: out of order >&2\nexit 1\n")
    compiler.chmod(0o755)
    env = {"CC": str(compiler), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path)}
    run = lesson("03_simple_mlp.py", "--compile", env=env)
    assert (run.code, run.files) == (1, [])
    assert "cc: out of order\n" in run.err and "Traceback" not in run.err
    assert run.err.splitlines()[-1] == (
        f"error: torch.compile needs a C compiler ({compiler}, which says why above) for Triton's launchers and finds "
        "none that works; install one, or run without --compile"
    )


def test_the_gpu_can_be_left_alone(lesson):
    run = lesson("01_matmul_add.py", "--device", "cpu")
    assert (run.code, run.err) == (0, "")
    assert not run.trace().of("kernel", "cuda_runtime", "cuda_driver")


def test_every_lesson_is_covered_here():
    covered = {command[0] for command in COMMANDS.values()} | {"03_kernels_mlp.py"}
    assert covered == set(LESSONS)
