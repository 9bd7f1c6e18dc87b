"""What a run leaves: the trace and the table, whole or not at all, and what they say."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
import json
from pathlib import Path
import shlex
import tempfile
import time

from common.artifacts import encode_trace, table_path, trace_path
from common.cli import LessonError
from common.device import Device, versions
import torch
from trace_reader import Facts, read
from trace_reader.analysis.verdict import verdict
from trace_reader.report.one import work_of_a_step
from trace_reader.system.files import write_all
from trace_reader.system.interrupts import temporary_folders
from trace_reader.units import human_bytes

TABLE_ROWS = 15
NAME_WIDTH = 120  # characters; kernels that differ do so well before


@dataclass(frozen=True)
class Artifacts:
    """The bytes of the two files, and the seconds that it took to make each."""

    trace: bytes
    trace_s: float
    table: str
    table_s: float


def export(profiler: torch.profiler.profile, memory: str | None, args: argparse.Namespace, device: Device) -> Artifacts:
    """The artifacts of what `profiler` recorded; writes only into the system's temporary folder.

    `memory` is what `peak_memory` says; it goes into the trace, which does not tell it otherwise.
    """
    trace, trace_s = _timed(lambda: encode_trace(_with_lesson(profiler, memory, args, device), args))
    table, table_s = _timed(lambda: _table(profiler, args, device))
    return Artifacts(trace, trace_s, table, table_s)


def report(artifacts: Artifacts, memory: str | None, args: argparse.Namespace, device: Device) -> None:
    """Write the artifacts, and print where they are and what they say. Raises LessonError, see common.record.record."""
    contents = {trace_path(args): artifacts.trace, table_path(args): artifacts.table.encode()}
    try:
        _, write_s = _timed(lambda: write_all(contents))
    except OSError as error:
        raise LessonError(f"cannot write to {args.trace_dir}: {error.strerror}; earlier artifacts are kept") from error
    for (path, data), seconds in zip(contents.items(), (artifacts.trace_s, artifacts.table_s), strict=True):
        print(f"wrote {path} ({human_bytes(len(data))}, {seconds + write_s:.3f} s)")
    print(*(line for line in artifacts.table.splitlines() if line.startswith("Self ")), sep="\n")
    if memory:
        print(f"peak memory: {memory}")
    facts = read(str(trace_path(args)))
    print(f"verdict: {verdict(facts)}")
    print(work_of_a_step(facts))
    if args.guess is not None:
        print(answer(args.guess, facts))
    print(f"next: uv run read_trace.py {shlex.quote(str(trace_path(args)))}, or drag it into https://ui.perfetto.dev")

    if device.type == "cuda" and facts.regime == "cpu-only":
        raise LessonError(
            "the lesson ran on the GPU, but no GPU event was recorded (the artifacts are kept). Likely causes: "
            "another profiler is attached (nsys, ncu, compute-sanitizer, a debugger), the container lacks the "
            "permission, or WSL without GPU tracing"
        )


def peak_memory(tensor_bytes: int | None, allocated_bytes: int | None, input_bytes: int) -> str | None:
    """The peak (bytes) in words: of tensors, and of all that a GPU's allocator gave out; None if neither is known."""
    of_inputs = f"of which {human_bytes(input_bytes)} are inputs and weights"
    if tensor_bytes is None:
        if allocated_bytes is None:
            return None
        return f"{human_bytes(allocated_bytes)}, {of_inputs}; workspaces of libraries are counted"
    line = f"{human_bytes(tensor_bytes)} of tensors, {of_inputs}"
    if allocated_bytes is not None and human_bytes(allocated_bytes) != human_bytes(tensor_bytes):
        line += f"; {human_bytes(allocated_bytes)} with what libraries took for themselves"
    return line


def answer(guess: int, facts: Facts) -> str:
    """What the trace says to a guess of how many kernels (without a GPU: leaf ops) a step launches."""
    step = facts.middle_step
    if step is None:
        return "guess: the trace has no recorded step to compare with"
    unit, verb = ("ops", "ran") if facts.regime == "cpu-only" else ("kernels", "launched")
    if guess == step.kernels_or_ops:
        return f"guess: {guess} {unit} a step. Correct."
    launched = "".join(f"\n  {n} x {label}" for label, n in step.work)
    return f"guess: {guess} {unit} a step; the trace has {step.kernels_or_ops}. {step.name} {verb}:{launched or ' nothing'}"


def _with_lesson(profiler: torch.profiler.profile, memory: str | None, args: argparse.Namespace, device: Device) -> bytes:
    """The Chrome trace, with what its events do not tell at the top, under the key `lesson`."""
    lesson = {"script": args.script, "run": args.tag, "device": device.name, "versions": versions()}
    if memory:
        lesson["peak_memory"] = memory
    trace = _chrome_trace(profiler, trace_path(args).name)
    return b'{\n  "lesson": ' + json.dumps(lesson).encode() + b"," + trace.lstrip()[1:]


def _chrome_trace(profiler: torch.profiler.profile, name: str) -> bytes:
    """The Chrome trace, called `name`. Raises LessonError if Kineto could not write it: it only logs that."""
    with tempfile.TemporaryDirectory() as folder:
        temporary_folders.add(folder)
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes() if path.exists() else b""
    temporary_folders.discard(folder)
    if not trace.rstrip().endswith(b"}"):
        raise LessonError(f"cannot write the trace: no room in the temporary folder {tempfile.gettempdir()}")
    # Kineto writes the path of its file into the trace; the name is enough.
    return trace.replace(json.dumps(str(path)).encode(), json.dumps(name).encode())


def _table(profiler: torch.profiler.profile, args: argparse.Namespace, device: Device) -> str:
    averages = profiler.key_averages(group_by_input_shape=args.record_shapes)
    sort_by = "cpu_time_total" if device.type in ("cpu", "mps") else "device_time_total"
    return averages.table(
        sort_by=sort_by, row_limit=TABLE_ROWS, max_name_column_width=NAME_WIDTH, max_shapes_column_width=NAME_WIDTH
    )


def _timed[T](call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start
