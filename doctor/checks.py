"""The checks of 00_doctor.py: does profiling work on this machine, and if not, why?

Nothing here imports torch: a child process does, so that a broken installation is a line of the report and not a traceback.
Nothing is changed: what is written goes into a temporary folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import json
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any
import urllib.request

OK, WARNING, PROBLEM = "ok", "warning", "problem"
NEWEST_NEEDED = (2, 11)  # of torch
NO_READER = "a matmul was recorded, but the reader is not installed to read it"
PROBE_TIMEOUT_S = 120
SLOW_BF16 = 2.0  # times as long as in fp32, a product on the CPU
HUB_TIMEOUT_S = 4
PACKAGES = {"03_kernels_mlp.py": "kernels-community/liger-kernels", "04_d_kernels_attention.py": "kernels-community/flash-attn2"}
# Environment variables that a profiler or debugger sets in the processes that it watches.
ATTACHED = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems (nsys)",
    "NV_NSIGHT_INJECTION_PORT_BASE": "Nsight Compute (ncu)",
    "NV_TPS_LAUNCH_TOKEN": "Nsight Compute (ncu)",
    "NV_SANITIZER_INJECTION_PORT_BASE": "compute-sanitizer",
    "CUDA_INJECTION64_PATH": "a tool that injects itself into CUDA",
    "ROCPROFILER_REGISTER_LIBRARY": "rocprofiler",
}
INJECTED = re.compile(r"nsys|nsight|ncu|sanitizer|cupti|rocprof", re.IGNORECASE)

PROBE = """
import json, sys, time
import torch
from torch.profiler import ProfilerActivity, profile

kind = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
said = {"torch": torch.__version__, "device": kind, "CUDA": torch.version.cuda, "ROCm": torch.version.hip}
said["built_for"] = getattr(torch.accelerator.current_accelerator(), "type", None)
if kind in ("cuda", "xpu"):
    module = getattr(torch, kind)
    said["name"] = module.get_device_name()
    said["total_bytes"] = module.get_device_properties().total_memory
try:
    import triton
    said["triton"] = triton.__version__
except ImportError:
    said["triton"] = None

def product_s(dtype):
    x, times_s = torch.ones(256, 256, dtype=dtype), []
    for _ in range(11):
        start_s = time.perf_counter()
        x @ x
        times_s.append(time.perf_counter() - start_s)
    return min(times_s[1:])

if kind == "cpu":
    torch.set_num_threads(1)  # several wait for each other where other programs run
    bf16_s = product_s(torch.bfloat16)
    said["bf16_over_fp32"], said["bf16_4096_s"] = bf16_s / product_s(torch.float32), bf16_s * 16**3
print(json.dumps(said), flush=True)
x = torch.ones(64, 64, device=kind)
x @ x
if kind != "cpu":
    torch.accelerator.synchronize()
wanted = {"CPU", kind.upper()}
with profile(activities=[a for a in torch.profiler.supported_activities() if a.name in wanted], acc_events=True) as profiler:
    x @ x
    if kind != "cpu":
        torch.accelerator.synchronize()
profiler.export_chrome_trace(sys.argv[1])
"""


@dataclass(frozen=True)
class Check:
    """One line of the report. `todo` says what helps, where something is not ok."""

    name: str
    status: str
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Probe:
    """What the child process said and recorded. `said` is empty if torch could not be imported."""

    said: dict[str, Any]
    facts: Any  # the reader's
    error: str

    @property
    def device(self) -> str:
        return self.said.get("device", "unknown")

    @property
    def has_gpu(self) -> bool:
        return self.device in ("cuda", "xpu")


def probe() -> Probe:
    """Return one matmul under the profiler, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        try:
            done = subprocess.run(
                [sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return Probe({}, None, f"it did not end within {PROBE_TIMEOUT_S} s")
        first = done.stdout.split("\n")[0]
        said = json.loads(first) if first.startswith("{") else {}
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
            return Probe(said, None, f"{ended}: {lines[-1] if lines else 'it said nothing'}")
        try:
            from trace_reader import TraceError, read
        except ImportError:
            return Probe(said, None, NO_READER)
        try:
            return Probe(said, read(str(path)), "")
        except TraceError as error:
            return Probe(said, None, f"its trace cannot be read: {error}")


def examine(env: Mapping[str, str] = os.environ) -> list[Check]:
    """Return all checks, in the order of the report."""
    probed = probe()
    compilers = {language: _compiles(language, env) for language in ("c++", "c")}
    kernels = {repo: _kernel(repo, env) if probed.has_gpu else ("", "not needed without a GPU") for repo in PACKAGES.values()}
    checks = [_python(), _torch(probed), _device(probed), *_bf16(probed), _recording(probed)]
    checks += [*_attached(env, probed), *_surroundings()]
    checks += [_compiler(compilers, probed), *(_package(repo, *where, probed.has_gpu) for repo, where in kernels.items())]
    return checks + _lessons(probed, compilers, kernels)


def _python() -> Check:
    return Check("Python", OK, f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def _torch(probed: Probe) -> Check:
    if not probed.said:
        return Check("torch", PROBLEM, probed.error, "torch does not start: uv sync --reinstall-package torch")
    version = probed.said["torch"]
    platforms = [f"{name} {probed.said[name]}" for name in ("CUDA", "ROCm") if probed.said.get(name)]
    text = f"{version}, built for {', '.join(platforms) or probed.said['built_for'] or 'the CPU alone'}"
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < NEWEST_NEEDED:
        return Check("torch", PROBLEM, text, "the lessons need 2.11 or newer: uv sync --upgrade-package torch")
    return Check("torch", OK, text)


def _driver() -> str | None:
    """Return the NVIDIA driver's version, or None where there is none."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 and done.stdout.strip() else None


def _device(probed: Probe) -> Check:
    driver = _driver()
    if probed.has_gpu:
        memory = f"{probed.said['total_bytes'] / 2**30:.1f} GiB"
        with_driver = f", driver {driver}" if driver else ""
        return Check("device", OK, f"{probed.device}: {probed.said['name']}, {memory}{with_driver}")
    if driver and probed.said:
        return Check(
            "device",
            PROBLEM,
            f"the NVIDIA driver {driver} is there, but torch finds no usable GPU",
            "a torch that is built for another CUDA than the driver knows, or CUDA_VISIBLE_DEVICES is empty: "
            "uv run python -c \"import torch; torch.zeros(1, device='cuda')\" says why",
        )
    return Check("device", OK, f"{probed.device if probed.said else 'unknown'}: no GPU here; the lessons run on the CPU")


def _bf16(probed: Probe) -> list[Check]:
    """Of a CPU: whether the lessons' type is slow there."""
    ratio = probed.said.get("bf16_over_fp32")
    if ratio is None:
        return []
    text = f"a product in bf16 takes {ratio:.2g} times as long as in fp32"
    large_s = probed.said["bf16_4096_s"]
    large = f"by this time, a product of --size 4096 takes {large_s:.0f} s in bf16 on one thread"
    todo = f"give lessons with large sizes --dtype fp32: {large}"
    return [Check("bf16", WARNING if ratio > SLOW_BF16 else OK, text, todo)]


def _recording(probed: Probe) -> Check:
    if probed.error == NO_READER:
        return Check("profiler", WARNING, NO_READER, "lessons run, and leave their verdict out; pip install ./read-trace")
    if probed.facts is None:
        return Check("profiler", PROBLEM, f"the trial run failed: {probed.error}", "run it by hand: uv run 01_matmul_add.py")
    facts = probed.facts
    if not probed.has_gpu:
        return Check("profiler", OK, f"{facts.events} events of a matmul recorded, CPU only")
    cupti = f"CUPTI {facts.versions['CUPTI']}" if "CUPTI" in facts.versions else "CUPTI's version unknown"
    if not facts.kernels_total:
        return Check(
            "profiler",
            PROBLEM,
            f"no GPU event was recorded of a matmul on the GPU ({cupti})",
            "CUPTI serves one profiler at a time: detach nsys, ncu, sanitizers, debuggers; a container needs the permission "
            "(--cap-add SYS_ADMIN, or the driver's NVreg_RestrictProfilingToAdminUsers=0); WSL needs a current driver",
        )
    gpu_events = facts.kernels_total + facts.memcpys_total + facts.memsets_total
    if facts.unlinked:
        return Check(
            "profiler",
            WARNING,
            f"{facts.unlinked} of {gpu_events} GPU events have no launch in the trace",
            "their step and op stay unknown; a newer torch or driver usually helps",
        )
    if facts.zero_timestamps:
        return Check(
            "profiler",
            WARNING,
            f"{facts.zero_timestamps} of {facts.kernels_total} kernels have a start or duration of 0 ({cupti})",
            "CUPTI of CUDA 12.6 update 2 up to 13.0 loses times at a session's start; 13.1 does not; keep a schedule_warmup",
        )
    kernels = f"{facts.kernels_total} kernel" + ("s" if facts.kernels_total > 1 else "")
    return Check("profiler", OK, f"{kernels} recorded, linked to their launches, with sane times; {cupti}")


def _attached(env: Mapping[str, str], probed: Probe) -> list[Check]:
    tools = {f"{tool} ({name})" for name, tool in ATTACHED.items() if env.get(name)}
    tools |= {f"LD_PRELOAD={value}" for value in env.get("LD_PRELOAD", "").split(":") if INJECTED.search(value)}
    if not tools:
        return [Check("other profilers", OK, "none attached")]
    status = WARNING if probed.has_gpu else OK
    todo = "run the lessons outside of it: GPU events go to one profiler only"
    return [Check("other profilers", status, f"attached: {', '.join(sorted(tools))}", todo)]


def _surroundings() -> list[Check]:
    """Return where traces are known to miss GPU events; said so that it is seen beside the profiler's line."""
    places = []
    kernel_version = Path("/proc/version")
    if kernel_version.exists() and "microsoft" in kernel_version.read_text("utf-8").lower():
        places.append("WSL")
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        places.append("a container")
    return [
        Check("surroundings", OK, f"inside {' and '.join(places)}" if places else "no container and no WSL that shows itself")
    ]


def _compiles(language: str, env: Mapping[str, str]) -> str | None:
    """Return the compiler's name if it compiles a line, else None."""
    variable, usual = {"c++": ("CXX", ("c++", "g++", "clang++")), "c": ("CC", ("cc", "gcc", "clang"))}[language]
    for name in [env[variable]] if env.get(variable) else usual:
        with tempfile.TemporaryDirectory() as folder:
            command = [name, "-x", language, "-c", "-", "-o", str(Path(folder) / "out.o")]
            try:
                done = subprocess.run(command, input="int one() { return 1; }\n", capture_output=True, text=True, timeout=30)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0:
                return name
    return None


def _compiler(compilers: Mapping[str, str | None], probed: Probe) -> Check:
    needed = ["c"] if probed.has_gpu else ["c++"]  # Triton's launchers, or Inductor's kernels for the CPU
    missing = [language for language in needed if not compilers[language]]
    names = ", ".join(name for name in compilers.values() if name)
    if missing:
        package = {"c": "gcc", "c++": "g++"}[missing[0]]
        return Check("compiler", WARNING, f"no working {package}", f"--compile needs it: install {package}, or set CC and CXX")
    return Check("compiler", OK, f"{names}: torch.compile can build its kernels")


def _kernel(repo: str, env: Mapping[str, str]) -> tuple[str, str]:
    """Return where the package would come from (empty: from nowhere), and what is known of it."""
    for entry in env.get("LOCAL_KERNELS", "").split(":"):
        name, _, folder = entry.partition("=")
        if name == repo:
            return (
                ("local", folder) if (Path(folder) / "build").is_dir() else ("", f"LOCAL_KERNELS names {folder}: no build/ there")
            )
    home = Path(env.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(env.get("HF_HUB_CACHE", home / "hub"))
    if any(cache.glob(f"*--{repo.replace('/', '--')}/snapshots/*")):
        return "cache", str(cache)
    endpoint = env.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=HUB_TIMEOUT_S):
            return "Hub", endpoint
    except OSError as error:
        return "", f"{endpoint} cannot be reached ({getattr(error, 'reason', error)}), and it is not in the cache"


def _package(repo: str, source: str, detail: str, needed: bool) -> Check:
    name = f"kernel {repo.split('/')[1]}"
    if not needed:
        return Check(name, OK, detail)
    if source:
        return Check(
            name, OK, {"local": "a local folder", "cache": "in the cache", "Hub": "to be fetched from"}[source] + f": {detail}"
        )
    return Check(name, WARNING, detail, "with a network, run the lesson once; without one, LOCAL_KERNELS (docs/without_gpu.md)")


def _lessons(probed: Probe, compilers: Mapping[str, str | None], kernels: Mapping[str, tuple[str, str]]) -> list[Check]:
    """Return a line for each lesson: will it run here?"""
    works = probed.facts is not None or probed.error == NO_READER
    checks = []
    for script in sorted(path.name for path in Path(__file__).resolve().parents[1].glob("0[1-9]_*.py")):
        needs_gpu = script in PACKAGES or script == "03_triton_mlp.py"
        if not works:
            checks.append(Check(script, PROBLEM, "will not run", "see the lines above"))
        elif needs_gpu and not probed.has_gpu:
            checks.append(Check(script, OK, "not here: it needs a GPU; gallery/h200 has its recording"))
        elif probed.has_gpu and probed.facts and not probed.facts.kernels_total:
            checks.append(Check(script, PROBLEM, "runs, but what the GPU does is not recorded", "see the profiler's line above"))
        elif script in PACKAGES and not kernels[PACKAGES[script]][0]:
            checks.append(Check(script, WARNING, "not yet: its kernel is missing", "see its line above"))
        elif script == "03_triton_mlp.py" and not (compilers["c"] and probed.said.get("triton")):
            missing = "a C compiler" if probed.said.get("triton") else "Triton"
            checks.append(Check(script, WARNING, f"not yet: {missing} is missing", "see the compiler's line above"))
        else:
            language = "c" if probed.has_gpu else "c++"
            compiled = "" if compilers[language] else ", without --compile"
            checks.append(Check(script, OK, f"runs on {probed.said.get('name', 'the CPU')}{compiled}"))
    return checks


def report(checks: list[Check]) -> str:
    """Return the checks as text, and a last line that sums up."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.status:<8} {check.name:<{width}}  {check.text}")
        if check.todo and check.status != OK:
            lines.append(f"{'':<8} {'':<{width}}  -> {check.todo}")
    problems = sum(check.status == PROBLEM for check in checks)
    warnings = sum(check.status == WARNING for check in checks)
    lines.append(f"problems: {problems}, warnings: {warnings}" if problems or warnings else "all is well")
    return "\n".join(lines) + "\n"


def exit_code(checks: list[Check]) -> int:
    return int(any(check.status == PROBLEM for check in checks))
