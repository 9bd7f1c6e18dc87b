"""The profiled loop: warm up, record a few steps, export the trace and the table."""

from common.artifacts import encode_trace, table_path, trace_path, write_all
from common.cli import LessonError
from common.device import Device, human_bytes, is_out_of_memory, versions
from reader import Facts, read
from reader.render import verdict, work_of_a_step

import argparse
import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch

WARMUP_CALLS = 3
TABLE_ROWS = 15
NAME_WIDTH = 120  # characters; kernels that differ do so well before

# Lines of a healthy run: Kineto's progress (USDT:2026-11-20 ...), and torch's log below the level of an error
# (W1120 11:48:15 ...), and the winner of an autotuning.
NOISE = re.compile(
    rb"(USDT|VERBOSE|INFO|STAGE):\d{4}-\d\d-\d\d |\[?[VIW]\d{4} \d\d:\d\d:\d\d"
    rb'|Autotune Choices Stats:|\{"num_choices":'
)
NOISE_WITHOUT_GPU = re.compile(rb"ERROR:.* gpuGetDeviceCount failed")


@dataclass(frozen=True)
class Schedule:
    """How many times the step is called, and which of these calls are recorded. Repeat is always 1."""

    wait: int
    warmup: int
    active: int

    @property
    def first_recorded(self) -> int:
        return self.wait + self.warmup

    @property
    def steps(self) -> int:
        return self.first_recorded + self.active

    def __str__(self) -> str:
        last = self.steps - 1
        recorded = f"#{self.first_recorded}" if self.active == 1 else f"#{self.first_recorded}..#{last}"
        return (
            f"{self.steps} steps (wait {self.wait}, warmup {self.warmup}, active {self.active}), recording ProfilerStep{recorded}"
        )


def profile(step: Callable[[], object], args: argparse.Namespace, device: Device) -> None:
    """Call `step` under the profiler as the flags say, and write `<tag>.json` and `<tag>.txt`.

    Raises LessonError when the device runs out of memory, torch.compile finds no compiler, an artifact cannot be
    written, or a GPU was used and none of its events was recorded (the artifacts are kept then).
    """
    schedule = Schedule(args.wait, args.schedule_warmup, args.active)
    print(f"run: {args.tag}: {schedule}", flush=True)
    with _quiet(args, device), _explained(args, device):
        profiler = _record(step, schedule, args, device)
        trace, trace_s = _timed(lambda: encode_trace(_export(profiler, args, device), args))
        table, table_s = _timed(lambda: _table(profiler, args, device))
        peak_bytes = _peak_bytes(step, device)

    contents = {trace_path(args): trace, table_path(args): table.encode()}
    try:
        _, write_s = _timed(lambda: write_all(contents))
    except OSError as error:
        raise LessonError(f"cannot write to {args.trace_dir}: {error.strerror}; earlier artifacts are kept") from error
    for (path, data), seconds in zip(contents.items(), (trace_s, table_s), strict=True):
        print(f"wrote {path} ({human_bytes(len(data))}, {seconds + write_s:.3f} s)")
    print(*(line for line in table.splitlines() if line.startswith("Self ")), sep="\n")
    if peak_bytes is not None:
        print(f"peak memory: {human_bytes(peak_bytes)}, of which {human_bytes(device.input_bytes)} are inputs and weights")
    facts = read(str(trace_path(args)))
    print(f"verdict: {verdict(facts)}")
    print(work_of_a_step(facts))
    if args.guess is not None:
        print(answer(args.guess, facts))
    print(f"next: uv run read_trace.py {trace_path(args)}, or drag it into https://ui.perfetto.dev")

    if device.type == "cuda" and facts.regime == "cpu-only":
        raise LessonError(
            "the lesson ran on the GPU, but no GPU event was recorded (the artifacts are kept). Likely causes: "
            "another profiler is attached (nsys, ncu, compute-sanitizer, a debugger), the container lacks the "
            "permission, or WSL without GPU tracing"
        )


def answer(guess: int, facts: Facts) -> str:
    """What the trace says to a guess of how many kernels (without a GPU: leaf ops) a step launches."""
    step = facts.middle_step
    if step is None:
        return "guess: the trace has no recorded step to compare with"
    unit, verb = ("ops", "ran") if facts.regime == "cpu-only" else ("kernels", "launched")
    if guess == step.kernels_or_ops:
        return f"guess: {guess} {unit} a step, and so it is"
    launched = "".join(f"\n  {n} x {label}" for label, n in step.work)
    return f"guess: {guess} {unit} a step; the trace has {step.kernels_or_ops}. {step.name} {verb}:{launched or ' nothing'}"


def _record(step: Callable[[], object], schedule: Schedule, args: argparse.Namespace, device: Device) -> torch.profiler.profile:
    if args.warmup:
        for _ in range(WARMUP_CALLS):
            step()
    device.synchronize()
    device.reset_peak()

    profiler = torch.profiler.profile(
        activities=device.activities(),
        schedule=torch.profiler.schedule(wait=schedule.wait, warmup=schedule.warmup, active=schedule.active, repeat=1),
        record_shapes=args.record_shapes,
        profile_memory=args.profile_memory,
        with_stack=args.with_stack,
        acc_events=True,  # without it torch warns that a next cycle would drop the events; there is none
    )
    # Not as a context manager: in the middle of a failed step, stop() can raise an error of its own, which would hide
    # the step's. Left running, the profiler crashes the process at its end.
    profiler.start()
    try:
        for i in range(1, schedule.steps + 1):
            step()
            if i == schedule.first_recorded:
                # Recording starts in the next line. A kernel that is still running then would be in the trace,
                # inside the first recorded step, though no recorded step launched it.
                device.synchronize()
            profiler.step()
    except BaseException:
        with contextlib.suppress(Exception):
            profiler.stop()
        raise
    profiler.stop()
    return profiler


def _export(profiler: torch.profiler.profile, args: argparse.Namespace, device: Device) -> bytes:
    """The Chrome trace, with what its events do not tell at the top, under the key `lesson`."""
    lesson = {"script": args.script, "run": args.tag, "device": device.name, "versions": versions()}
    trace = _chrome_trace(profiler, trace_path(args).name)
    return b'{\n  "lesson": ' + json.dumps(lesson).encode() + b"," + trace.lstrip()[1:]


def _chrome_trace(profiler: torch.profiler.profile, name: str) -> bytes:
    """The Chrome trace, called `name`. Raises LessonError if Kineto could not write it: it only logs that."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes() if path.exists() else b""
    if not trace.rstrip().endswith(b"}"):
        raise LessonError(f"cannot write the trace: no room in the temporary folder {tempfile.gettempdir()}")
    # Kineto writes the path of its file into the trace; the name is enough.
    return trace.replace(json.dumps(str(path)).encode(), json.dumps(name).encode())


def _peak_bytes(step: Callable[[], object], device: Device) -> int | None:
    """The most memory that tensors held at once, inputs included; None where torch cannot tell (MPS).

    A GPU's allocator counts it. The CPU's does not: there it is that of one more step, whose allocations are recorded.
    """
    if device.type != "cpu":
        return device.peak_bytes()
    with torch.profiler.profile(activities=device.activities(), profile_memory=True, acc_events=True) as profiler:
        step()
    events = json.loads(_chrome_trace(profiler, "memory"))["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    return device.input_bytes + max(accumulate((size for _, size in changes), initial=0))


def _table(profiler: torch.profiler.profile, args: argparse.Namespace, device: Device) -> str:
    averages = profiler.key_averages(group_by_input_shape=args.record_shapes)
    sort_by = "cpu_time_total" if device.type in ("cpu", "mps") else "device_time_total"
    return averages.table(
        sort_by=sort_by, row_limit=TABLE_ROWS, max_name_column_width=NAME_WIDTH, max_shapes_column_width=NAME_WIDTH
    )


def _timed[T](call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start


@contextlib.contextmanager
def _quiet(args: argparse.Namespace, device: Device) -> Iterator[None]:
    """Keep what Kineto and torch print in a healthy run off the terminal; pass all else on when the block ends.

    Kineto prints from C++, past Python's sys.stderr, so it is the file descriptor that is redirected.
    """
    if args.compile_mode and args.compile_mode.startswith("max-autotune"):
        # Autotuning prints a table of its candidates, and an error for each that does not fit the device.
        from torch._inductor import select_algorithm  # here, because it takes seconds to import

        select_algorithm.PRINT_AUTOTUNE = False
        logging.getLogger(select_algorithm.__name__).setLevel(logging.CRITICAL)
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as said, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\b")
        warnings.filterwarnings("ignore", message="Profiler won't be using warmup")  # --schedule_warmup 0 asked for it
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            said.seek(0)
            for line in said:
                if not NOISE.match(line) and not (device.type == "cpu" and NOISE_WITHOUT_GPU.match(line)):
                    os.write(2, line)


@contextlib.contextmanager
def _explained(args: argparse.Namespace, device: Device) -> Iterator[None]:
    """Turn the failures of a step that the user can mend into a LessonError."""
    try:
        yield
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        if is_out_of_memory(error):
            raise device.out_of_memory(args) from error
        if compiler := _missing_compiler(str(error)):
            raise LessonError(
                f"torch.compile needs {compiler} and finds none that works; install one, or run without --compile"
                if args.compile
                else f"this lesson's kernel needs {compiler} and finds none that works; install one"
            ) from error
        raise


def _missing_compiler(message: str) -> str | None:
    """Which compiler torch.compile misses, from the message of Inductor's or Triton's error; None: another error."""
    if found := re.search(r"No working C\+\+ compiler found in .*'(.+)'\)", message):
        return f"a C++ compiler ({found[1]})"
    if found := re.search(r"Compiler: (\S+) is not found", message):
        return f"a C++ compiler ({found[1]})"
    if "Failed to find C compiler" in message:
        return "a C compiler (gcc or clang; the variable CC names it) for Triton's launchers"
    if (found := re.search(r"No such file or directory: '(.+)'", message)) and found[1] == os.environ.get("CC"):
        return f"a C compiler ({found[1]}, which the variable CC names) for Triton's launchers"
    if found := re.search(r"Command '\['([^']*(?:cc|clang)[^']*)'.* returned non-zero exit status", message):
        return f"a C compiler ({found[1]}, which says why above) for Triton's launchers"
    if "Cannot find a working triton installation" in message:
        return "Triton"
    return None
