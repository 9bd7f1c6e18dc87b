"""What the posts claim and what holds on any CUDA device, on traces recorded here and now."""

import functools
import json
import os
import re
import subprocess
import sys

from common.job import collectives_per_step
from helpers import LESSONS, ROOT, Trace
from helpers.stand_ins import all_packages
import pytest
import torch
from trace_reader import join_names, load, read, read_job

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
    "03 triton": ("03_triton_mlp.py", *MLP),
    "03 triton compile": ("03_triton_mlp.py", *MLP, "--compile"),
    "04_a": ("04_a_naive_attention.py",),
    "04_a compile": ("04_a_naive_attention.py", "--compile"),
    "04_b": ("04_b_inplace_ops_attention.py",),
    "math": ("04_c_sdpa_attention.py", "--backend", "math"),
    "efficient": ("04_c_sdpa_attention.py", "--backend", "efficient"),
    "flash": ("04_c_sdpa_attention.py", "--backend", "flash"),
    "cudnn": ("04_c_sdpa_attention.py", "--backend", "cudnn"),
    "auto": ("04_c_sdpa_attention.py",),
    "math compile": ("04_c_sdpa_attention.py", "--backend", "math", "--compile"),
    "flash compile": ("04_c_sdpa_attention.py", "--backend", "flash", "--compile"),
}


@pytest.fixture(scope="module")
def runs(lessons):
    return lessons(COMMANDS)


LLM = {
    "05_a": ("05_a_llm_decode.py", "--active", "1"),
    "05_a graph": (
        "05_a_llm_decode.py", "--cache", "static", "--compile", "--compile_mode", "reduce-overhead", "--active", "1",
    ),
    "05_a compiled": ("05_a_llm_decode.py", "--cache", "static", "--compile", "--active", "1"),
    "05_b": ("05_b_decode_floor.py", "--rung", "tuned", "--active", "1"),
    "05_c": ("05_c_train_step.py", "--active", "1", "--profile_memory"),
    "05_c loop": ("05_c_train_step.py", "--implementation", "for-loop", "--active", "1"),
}  # fmt: skip


LADDER = {rung: ("05_d_ladder.py", "--rung", rung, "--active", "1") for rung in ("naive", "bits", "graph")}
ANSWER = {rung: ("05_e_answer_ladder.py", "--rung", rung, "--active", "1") for rung in ("bits", "compiled", "graph")}


@pytest.fixture(scope="module")
def trace(runs):
    return lambda name: runs[name].result().trace()


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """The environment of the stand-ins for the Hub's packages."""
    return all_packages(tmp_path_factory.mktemp("packages"))


def kernels(trace: Trace, step: str) -> list[str]:
    return [event["name"] for event in trace.launched_by(step) if event["cat"] == "kernel"]


def gemms(trace: Trace, step: str) -> list[str]:
    return [name for name in kernels(trace, step) if "elementwise" not in name and "triton" not in name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_well_and_quietly(runs, name):
    run = runs[name].result()
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("device: cuda (") and "\nSelf CUDA time total: " in run.out
    lines = [line for line in run.out.splitlines() if "without the profiler" not in line]  # estimated, where it tells something
    assert len(lines) == (9 if name in ("01 graph", "01 tune") else 10)  # a CUDA graph hides its memory


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
def test_ligers_mlp_is_four_kernels_a_step_in_both_forms_of_its_class(lesson, packages, form):
    run = lesson("03_kernels_mlp.py", *MLP, "--kernel_version", form, env={**packages, "LIGER_FORM": form})
    assert (run.code, run.err) == (0, "")
    trace = run.trace()
    assert len(trace.named("kernels_mlp_fwd")) >= 3
    for step in trace.steps():
        assert len(kernels(trace, step)) == 4
        assert kernels(trace, step).count("_geglu_tanh_forward_kernel") == 1


@pytest.mark.parametrize("name", ["03 triton", "03 triton compile"])
def test_the_mlp_with_our_triton_kernel_is_four_kernels_and_the_same_gemms(trace, name):
    step = trace("03").steps()[0]
    for other in trace(name).steps():
        assert kernels(trace(name), other).count("geglu_kernel") == 1
        assert sorted(k for k in kernels(trace(name), other) if k != "geglu_kernel") == sorted(gemms(trace("03"), step))


def test_our_triton_kernel_without_a_c_compiler(lesson, tmp_path):
    run = lesson("03_triton_mlp.py", env={"CC": "/nowhere/cc", "TRITON_CACHE_DIR": str(tmp_path)})
    assert (run.code, run.files) == (1, [])
    assert run.err == (
        "error: this lesson's kernel needs a C compiler (/nowhere/cc, which the variable CC names) for Triton's launchers "
        "and finds none that works; install one\n"
    )


def test_attention_written_out_is_five_kernels_and_out_of_place_a_copy(trace):
    for step in trace("04_a").steps():
        assert len(kernels(trace("04_a"), step)) == 5
        copies = [e for e in trace("04_a").launched_by(step) if e["cat"] == "gpu_memcpy"]
        assert [(e["name"].split(" (")[0], e["args"]["bytes"]) for e in copies] == [("Memcpy DtoD", 8 * 16 * 1024 * 1024 * 2)]
        assert kernels(trace("04_b"), step) == kernels(trace("04_a"), step)
        assert not [e for e in trace("04_b").launched_by(step) if e["cat"] == "gpu_memcpy"]
        assert len(kernels(trace("04_a compile"), step)) < 5


def test_the_math_backend_launches_more_than_15_kernels_and_builds_a_mask(trace):
    t = trace("math")
    for step in t.steps():
        assert len(kernels(t, step)) > 15
    assert len(t.named("aten::tril")) == len(t.named("aten::_safe_softmax")) == 3


@pytest.mark.parametrize(
    ("backend", "kernel", "transposes"),
    [("efficient", "fmha_cutlassF_", 4), ("flash", "flash_fwd_kernel", 4), ("cudnn", "cudnn_generated_", 0)],
)
def test_the_other_backends_are_one_kernel(trace, backend, kernel, transposes):
    t = trace(backend)
    for step in t.steps():
        (name,) = kernels(t, step)
        assert kernel in name
        assert t.ops(step).count("aten::transpose") == transposes


def test_cudnn_launches_through_the_driver_and_flash_through_the_runtime(trace):
    for backend, call in (("cudnn", "cuLaunchKernelEx"), ("flash", "cudaLaunchKernel")):
        launched = {event["args"]["correlation"] for event in trace(backend).of("kernel")}
        calls = {e["name"] for e in trace(backend).of("cuda_runtime", "cuda_driver") if e["args"]["correlation"] in launched}
        assert calls == {call}


def test_a_compiled_run_gets_its_own_backends_kernels_and_not_those_in_the_cache_of_another(trace):
    for step in trace("flash compile").steps():
        (name,) = kernels(trace("flash compile"), step)
        assert "flash_fwd_kernel" in name
        assert len(kernels(trace("math compile"), step)) > 3


def test_the_scores_are_in_the_peak_memory_of_attention_that_is_written_out(runs):
    peaks = {}
    for name in ("04_a", "flash"):
        found = re.search(r"^peak memory: ([\d.]+) MiB of tensors", runs[name].result().out, re.MULTILINE)
        assert found is not None
        peaks[name] = float(found[1])
    assert peaks["04_a"] == 49 + 2 * 256 + 16  # MiB: inputs and mask, two score matrices, the output
    assert peaks["flash"] < 100


def test_an_unsupported_backend_is_explained(lesson):
    run = lesson("04_c_sdpa_attention.py", "--backend", "flash", "--dtype", "fp32")
    assert (run.code, run.files) == (2, [])
    assert run.err.startswith("error: --backend flash cannot be used on NVIDIA ") and run.err.count("\n") == 1
    assert " with fp32 and these sizes: Expected query, key and value to all be of dtype: {Half, BFloat16}. Got " in run.err
    assert run.err.endswith(". Here these can: auto, math, efficient\n")


@pytest.mark.parametrize("compile", [[], ["--compile"]])
def test_the_flash_attention_package_is_one_kernel_without_transposes(lesson, packages, compile):
    run = lesson("04_d_kernels_attention.py", *compile, env=packages)
    assert (run.code, run.err) == (0, "")
    trace = run.trace()
    for step in trace.steps():
        (name,) = kernels(trace, step)
        assert "flash_fwd_kernel" in name and "aten::transpose" not in trace.ops(step)


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


def test_the_doctor_finds_a_gpu_whose_events_are_recorded(packages):
    done = subprocess.run(
        [sys.executable, "00_doctor.py", "--json"], cwd=ROOT, capture_output=True, text=True, env={**os.environ, **packages}
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0
    assert checks["profiler"]["status"] == "ok" and "recorded, linked to their launches" in checks["profiler"]["text"]
    assert {checks[lesson]["text"] for lesson in LESSONS} == {f"runs on {torch.cuda.get_device_name()}"}


@pytest.fixture(scope="module")
def llm(lessons):
    runs = lessons(LLM)
    return lambda name: runs[name].result()


def facts_of(run):
    (path,) = run.folder.glob("*.json")
    return read(str(path))


@pytest.mark.parametrize("name", LLM)
def test_a_language_model_runs_quietly(llm, name):
    run = llm(name)
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("device: cuda (") and "\nverdict: " in run.out


def test_a_graph_replays_a_token_in_one_launch(llm):
    eager, graph = facts_of(llm("05_a")), facts_of(llm("05_a graph"))
    assert graph.gpu_events_by_origin["graph"] > 20 and eager.gpu_events_by_origin["graph"] == 0
    assert graph.steps[0].launches < eager.steps[0].launches / 5
    assert "floor: " in llm("05_a").out


def test_the_compiled_step_names_every_kernel_of_the_graph(llm):
    graph, compiled = (load(str(next(llm(name).folder.glob("*.json")))) for name in ("05_a graph", "05_a compiled"))
    joined = join_names(graph, compiled)
    assert joined.named == joined.events > 20 and joined.differs is None


def test_fewer_kernels_where_torch_compile_writes_the_products(llm):
    tuned, graph = facts_of(llm("05_b")), facts_of(llm("05_a graph"))
    assert 0 < tuned.kernels_total < graph.kernels_total
    assert not any(k.decoded.is_gemm and "Triton" not in k.decoded.library for k in tuned.kernels)


def test_the_peak_of_the_curve_is_that_of_the_allocator(llm):
    """The lesson asks the allocator itself."""
    (found,) = facts_of(llm("05_c")).memory
    said = re.search(r"peak memory: ([\d.]+) ([KMG])iB of tensors", llm("05_c").out)
    assert said is not None
    number, unit = said.groups()
    tensors = float(number) * 1024 ** (1 + "KMG".index(unit))
    assert found.device == "GPU 0" and 0.95 * tensors < found.peak_bytes  # which counts what libraries took, too
    assert 0 < found.layer_bytes < found.activation_bytes < found.peak_bytes


def test_the_backward_pass_is_that_of_its_layers(llm):
    annotations = {a.name: a for a in facts_of(llm("05_c")).annotations}
    layers = [annotations[f"layer {n}"] for n in range(2)]
    assert all(layer.backward_us > layer.gpu_us > 0 for layer in layers)
    assert sum(layer.backward_us for layer in layers) < annotations["forward"].backward_us
    assert annotations["backward"].backward_us == 0


def test_a_fused_optimizer_launches_fewer_kernels(llm):
    fused, loop = (next(a for a in facts_of(llm(name)).annotations if a.name == "optimizer") for name in ("05_c", "05_c loop"))
    assert 0 < 10 * fused.launched < loop.launched


JOBS = {
    "25 MB": ("06_a_data_parallel.py",),
    "one bucket": ("06_a_data_parallel.py", "--bucket_mb", "1000"),
    "slow": ("06_a_data_parallel.py", "--slow_rank", "1", "--slow_ms", "30", "--guess", "17"),
    "host": ("06_a_data_parallel.py", "--slow_rank", "1", "--slow_host"),
    "each pass": ("06_a_data_parallel.py", "--accumulate", "2", "--reduce_each_pass"),
    "sharded": ("06_b_sharded.py",),
    "tensor": ("06_c_tensor_parallel.py",),
    "sequence": ("06_c_tensor_parallel.py", "--sequence_parallel"),
}


@pytest.fixture(scope="module")
def job(lesson):
    """The facts of a job of two ranks, and what its run printed; each runs when it is asked for, alone on the GPUs."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs, and torch finds {torch.cuda.device_count()} here")

    @functools.cache
    def of(name):
        run = lesson(*JOBS[name], ranks=2)
        assert run.code == 0, run.err
        facts, errors = read_job(sorted(map(str, run.folder.glob("*_rank*.json"))))
        assert not errors and facts.unmatched == 0
        assert facts.clock_residual_us is not None and facts.clock_residual_us < 20
        return facts, run.out

    return of


def exposed_us(facts):
    return sum(rank.exposed_us for rank in facts.ranks)


def test_buckets_hide_communication_behind_the_backward_pass(job):
    small, one = job("25 MB")[0], job("one bucket")[0]
    assert (small.matched, one.matched) == (3 * 17, 3 * 1)
    assert exposed_us(small) < 0.5 * exposed_us(one)
    assert all(rank.overlapped_us > 0.5 * rank.communication_us for rank in small.ranks)
    assert all(rank.overlapped_us < 0.1 * rank.communication_us for rank in one.ranks)


def test_the_rank_that_sleeps_is_found(job):
    facts, out = job("slow")
    assert (facts.straggler.rank, facts.straggler.cause, facts.straggler.place.annotation) == (1, "cpu", "forward")
    assert re.search(r"^job: rank 1 is the straggler, in \d of 3 steps: it arrives last in ", out, re.MULTILINE)
    assert "\n  its CPU is late before forward; rank 1 runs the same " in out and " later at the start of the step\n" in out
    assert "\nguess: 17 collectives per step. Correct.\n" in out


def test_a_rank_whose_host_is_slow_is_no_straggler(job):
    facts, _ = job("host")
    assert (facts.late.rank, facts.difference.kind, facts.straggler) == (1, "slower", None)


def test_what_each_pass_sends_is_found(job):
    facts, out = job("each pass")
    assert "\ncollectives per step: 34 x allreduce\n" in out
    (found,) = (finding for finding in facts.findings if finding.slug == "reduced-in-each-pass")
    assert found.ranks == (0, 1) and found.seen.startswith(
        "2 backward passes per step, each of which reduces the same gradients: 34 "
    )


def test_a_sharded_block_gathers_twice_and_scatters_once(job):
    facts, _ = job("sharded")
    counts = collectives_per_step(facts)
    gathers = sum(n for name, n in counts.items() if "gather" in name)
    assert (gathers, sum(counts.values()) - gathers) == (16, 8)
    assert all(row.kind != "inconclusive" and row.bus_gb_per_s > 1 for row in facts.collectives)


def test_nothing_of_tensor_parallels_communication_is_hidden(job):
    tensor, sequence = job("tensor")[0], job("sequence")[0]
    for facts in (tensor, sequence):
        assert all(rank.overlapped_us < 0.1 * rank.communication_us for rank in facts.ranks)
    assert set(collectives_per_step(tensor).values()) == {2 * 8}
    assert sum(collectives_per_step(sequence).values()) > 4 * 8


def test_a_ladder_ends_with_one_launch_for_each_pass(lessons):
    """Its products are fp32 at first; at last the GPU replays them, and does nearly nothing else in a step."""
    runs = lessons(LADDER)
    naive, bits, graph = (facts_of(runs[rung].result()) for rung in LADDER)
    assert [runs[rung].result().code for rung in LADDER] == [0, 0, 0]
    assert "fp32-cuda-cores" in {one.slug for one in naive.findings} and not {one.slug for one in bits.findings} & {
        "fp32-cuda-cores"
    }
    assert graph.gpu_events_by_origin["graph"] > 100 and bits.gpu_events_by_origin["graph"] == 0
    assert graph.steps[0].launches < bits.steps[0].launches / 5
    assert naive.gpu_busy_us > 3 * graph.gpu_busy_us


def test_an_answer_takes_one_launch_for_each_token_at_last(lessons):
    """A graph's kernels have one launch for each token but the first, which the prompt's pass writes."""
    runs = lessons(ANSWER)
    bits, compiled, graph = (facts_of(runs[rung].result()) for rung in ANSWER)
    assert [runs[rung].result().code for rung in ANSWER] == [0, 0, 0]
    assert bits.usual_step.launches > compiled.usual_step.launches > 2 * graph.usual_step.launches
    assert graph.gpu_events_by_origin["graph"] > 100 and compiled.gpu_events_by_origin["graph"] == 0


def test_every_lesson_is_covered_here():
    every = (COMMANDS, LLM, LADDER, ANSWER, JOBS)
    covered = {command[0] for commands in every for command in commands.values()}
    assert covered | {"03_kernels_mlp.py", "04_d_kernels_attention.py"} == set(LESSONS)
