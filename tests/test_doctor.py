"""The doctor: its report here, and each failure that can be staged."""

import importlib
import json
import subprocess
import sys

from doctor import checks as doctor
from doctor.checks import OK, PROBLEM, WARNING, Check, Probe
from helpers import LESSONS, ROOT
from helpers.stand_ins import LIGER, package
import pytest
from reader_helpers.events import GEMM, kernel, launch, op, write
from trace_reader import read

NOWHERE = "http://127.0.0.1:9"
CPU_PROBE = {"torch": "2.15.0", "device": "cpu", "CUDA": "13.2", "ROCm": None, "built_for": "cuda", "triton": "3.9.0"}
GPU_PROBE = CPU_PROBE | {"device": "cuda", "name": "NVIDIA H200", "total_bytes": 150 * 2**30}


@pytest.fixture
def staged(monkeypatch, tmp_path):
    """What the doctor says of a machine: `staged(said, events, env)`, by name."""

    def stage(said, events=(), error="", **env):
        facts = read(write(tmp_path / "t.json", *events, cupti_version=130001)) if events else None
        monkeypatch.setattr(doctor, "probe", lambda: Probe(said, facts, error))
        monkeypatch.setattr(doctor, "_driver", lambda: env.pop("driver", None))
        checks = doctor.examine({"HF_ENDPOINT": NOWHERE, "HF_HUB_CACHE": str(tmp_path / "hub"), **env})
        return {check.name: check for check in checks}, doctor.exit_code(checks)

    return stage


GOOD = (launch(0, 1), kernel(GEMM, 5, 10, 1))


@pytest.mark.slow
def test_the_report_of_this_machine():
    done = subprocess.run([sys.executable, "00_doctor.py", "--json"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert [name for name in checks if name.endswith(".py")] == LESSONS
    assert checks["01_matmul_add.py"]["text"].startswith("runs on ") and checks["profiler"]["status"] == OK
    on_cpu = checks["01_matmul_add.py"]["text"].startswith("runs on the CPU")
    assert ("bf16" in checks) == on_cpu
    assert set(checks["torch"]) == {"name", "status", "text", "todo"}


@pytest.mark.parametrize(("status", "code"), [(OK, 0), (WARNING, 0), (PROBLEM, 1)])
def test_the_exit_code_is_that_of_the_worst(monkeypatch, capsys, status, code):
    lesson = importlib.import_module("00_doctor")
    monkeypatch.setattr(lesson, "examine", lambda: [Check("a", OK, "fine"), Check("b", status, "so", "do")])
    assert lesson.main(lesson.parse_args(["--json"])) == code
    assert [check["status"] for check in json.loads(capsys.readouterr().out)] == [OK, status]


def test_a_healthy_gpu(staged, tmp_path):
    liger = package(tmp_path / "liger", LIGER)
    local = f"kernels-community/liger-kernels={liger}:kernels-community/flash-attn2={liger}"
    checks, code = staged(GPU_PROBE, GOOD, LOCAL_KERNELS=local, driver="580.1")
    assert code == 0 and {check.status for check in checks.values()} == {OK}
    assert checks["device"].text == "cuda: NVIDIA H200, 150.0 GiB, driver 580.1"
    assert checks["profiler"].text == "1 kernel recorded, linked to their launches, with sane times; CUPTI 130001"
    assert all(checks[lesson].text == "runs on NVIDIA H200" for lesson in LESSONS)


def test_a_gpu_whose_events_are_not_recorded(staged):
    checks, code = staged(
        GPU_PROBE, [launch(0, 1)], NSYS_PROFILING_SESSION_ID="7", LD_PRELOAD="/x/libToolsInjection64.so:/x/libncu.so"
    )
    assert (code, checks["profiler"].status) == (1, PROBLEM)
    assert checks["profiler"].text == "no GPU event was recorded of a matmul on the GPU (CUPTI 130001)"
    assert "detach nsys, ncu, sanitizers" in checks["profiler"].todo
    assert checks["01_matmul_add.py"].text == "runs, but what the GPU does is not recorded"
    attached = checks["other profilers"]
    assert attached.status == WARNING
    assert attached.text == "attached: LD_PRELOAD=/x/libncu.so, Nsight Systems (nsys) (NSYS_PROFILING_SESSION_ID)"


def test_kernels_without_launches_and_without_times_are_warnings(staged):
    checks, code = staged(GPU_PROBE, [*GOOD, kernel(GEMM, 50, 10, 99)])
    assert (code, checks["profiler"].status) == (0, WARNING)
    assert checks["profiler"].text == "1 of 2 GPU events have no launch in the trace"
    checks, code = staged(GPU_PROBE, [launch(0, 1), kernel(GEMM, 5.5, 0, 1)])
    assert checks["profiler"].text == "1 of 1 kernels have a start or duration of 0 (CUPTI 130001)"
    assert "13.1 does not" in checks["profiler"].todo


@pytest.mark.parametrize(("torch", "status"), [("2.10.1", WARNING), ("2.11.0", OK), ("2.11.0+cu130", OK), ("3.0", OK)])
def test_the_oldest_torch_that_suffices(staged, torch, status):
    checks, _ = staged(CPU_PROBE | {"torch": torch}, [op("aten::mm", 0, 5)])
    assert (checks["torch"].status == OK) == (status == OK)


@pytest.mark.parametrize(
    ("ratio", "status", "text"),
    [
        (2.0, OK, "a product in bf16 takes 2 times as long as in fp32"),
        (30.4, WARNING, "a product in bf16 takes 30 times as long as in fp32"),
    ],
)
def test_a_cpu_on_which_the_lessons_type_is_slow(staged, ratio, status, text):
    checks, code = staged(CPU_PROBE | {"bf16_over_fp32": ratio, "bf16_4096_s": 40.96}, [op("aten::mm", 0, 5)])
    assert (code, checks["bf16"].status, checks["bf16"].text) == (0, status, text)
    assert checks["bf16"].todo.endswith("--dtype fp32: by this time, a product of --size 4096 takes 41 s in bf16 on one thread")


def test_a_kernel_in_the_cache_of_hf_home(monkeypatch, tmp_path):
    """It lies in hub/ there; HF_HUB_CACHE is that folder itself."""
    monkeypatch.setattr(doctor, "probe", lambda: Probe(GPU_PROBE, None, ""))
    for repo in ("liger-kernels", "flash-attn2"):
        package(tmp_path / "hub" / f"kernels--kernels-community--{repo}" / "snapshots" / "0", LIGER)
    for env, status in (({"HF_HOME": str(tmp_path)}, OK), ({"HF_HOME": str(tmp_path / "hub")}, WARNING)):
        checks = {check.name: check for check in doctor.examine({"HF_ENDPOINT": NOWHERE, **env})}
        assert {checks[f"kernel {repo}"].status for repo in ("liger-kernels", "flash-attn2")} == {status}


def test_a_driver_that_torch_does_not_get_along_with(staged):
    checks, code = staged(CPU_PROBE, [op("aten::mm", 0, 5)], driver="450.1")
    assert (code, checks["device"].status) == (1, PROBLEM)
    assert checks["device"].text == "the NVIDIA driver 450.1 is there, but torch finds no usable GPU"


def test_a_torch_that_cannot_be_imported_or_is_too_old(staged):
    checks, code = staged({}, error="exit code 1: ImportError: libcudart.so.13")
    assert (code, checks["torch"].text) == (1, "exit code 1: ImportError: libcudart.so.13")
    assert checks["01_matmul_add.py"] == Check("01_matmul_add.py", PROBLEM, "will not run", "see the lines above")
    checks, code = staged(CPU_PROBE | {"torch": "2.6.0+cpu"}, [op("aten::mm", 0, 5)])
    assert (code, checks["torch"].status) == (1, PROBLEM)


def test_a_compiler_that_is_missing_or_fails(staged, tmp_path):
    checks, code = staged(CPU_PROBE, [op("aten::mm", 0, 5)], CXX="/nowhere/c++")
    assert (code, checks["compiler"].status, checks["compiler"].text) == (0, WARNING, "no working g++")
    assert checks["01_matmul_add.py"].text == "runs on the CPU, without --compile"
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    checks, code = staged(GPU_PROBE, GOOD, CC=str(failing))
    assert (code, checks["compiler"].text) == (0, "no working gcc")
    assert checks["03_triton_mlp.py"].text == "not yet: a C compiler is missing"
    assert checks["01_matmul_add.py"].text == "runs on NVIDIA H200, without --compile"
    checks, _ = staged(GPU_PROBE, GOOD, CXX="/nowhere/c++")  # which kernels for a GPU do not need
    assert checks["01_matmul_add.py"].text == "runs on NVIDIA H200"


def test_kernel_packages_from_nowhere_from_the_cache_and_from_a_broken_folder(staged, tmp_path):
    checks, code = staged(GPU_PROBE, GOOD, LOCAL_KERNELS=f"kernels-community/flash-attn2={tmp_path}/none")
    assert code == 0
    assert checks["kernel liger-kernels"].text.startswith(f"{NOWHERE} cannot be reached (")
    assert checks["kernel flash-attn2"].text == f"LOCAL_KERNELS names {tmp_path}/none: no build/ there"
    assert checks["03_kernels_mlp.py"].text == "not yet: its kernel is missing"
    (tmp_path / "hub" / "kernels--kernels-community--liger-kernels" / "snapshots" / "0").mkdir(parents=True)
    checks, _ = staged(GPU_PROBE, GOOD)
    assert checks["kernel liger-kernels"].text == f"in the cache: {tmp_path}/hub"


def test_without_a_gpu_its_lessons_are_pointed_to_their_recordings(staged):
    checks, code = staged(CPU_PROBE, [op("aten::mm", 0, 5)])
    assert code == 0 and checks["kernel flash-attn2"].text == "not needed without a GPU"
    for lesson in ("03_kernels_mlp.py", "03_triton_mlp.py", "04_d_kernels_attention.py"):
        assert checks[lesson].text == "not here: it needs a GPU; gallery/h200 has its recording"


def test_a_trial_run_that_fails_or_hangs_is_a_line(monkeypatch):
    monkeypatch.setattr(doctor, "PROBE", "import sys; sys.exit('RuntimeError: no kernel image')")
    assert doctor.probe() == Probe({}, None, "exit code 1: RuntimeError: no kernel image")
    monkeypatch.setattr(doctor, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert doctor.probe().error == "signal 11: it said nothing"
    monkeypatch.setattr(doctor, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "PROBE_TIMEOUT_S", 1)
    assert doctor.probe().error == "it did not end within 1 s"


def test_the_text_shows_what_to_do_below_what_is_wrong():
    checks = [
        Check("torch", OK, "2.11"),
        Check("profiler", PROBLEM, "no GPU event", "detach nsys"),
        Check("x", WARNING, "y", "z"),
    ]
    assert doctor.report(checks) == (
        "ok       torch     2.11\n"
        "problem  profiler  no GPU event\n"
        "                   -> detach nsys\n"
        "warning  x         y\n"
        "                   -> z\n"
        "problems: 1, warnings: 1\n"
    )
    assert doctor.report(checks[:1]) == "ok       torch  2.11\nall is well\n"


def test_the_command_has_one_flag(capsys):
    with pytest.raises(SystemExit) as end:
        importlib.import_module("00_doctor").parse_args(["--help"])
    assert end.value.code == 0 and "--json" in capsys.readouterr().out
