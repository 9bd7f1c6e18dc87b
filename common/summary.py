"""What a run prints at its end: where its artifacts are, and what the reader says of the trace, where it is installed."""

import argparse
import shlex

from common.artifacts import Files, add_header
from common.cli import LessonError
from common.device import Device
from common.plain_step import PlainStep
from common.run_names import recorded_on_a_gpu
from common.units import human_bytes

# More than this the profiler never cost in docs/profiler_cost.md, stacks included: what is more has another cause.
MOST_PER_STEP_US, MOST_PER_EVENT_US = 100, 15
NOT_INSTALLED = "verdict: left out, because the reader is not installed: pip install ./read-trace"


def finish(files: Files, plain_step: PlainStep | None, args: argparse.Namespace, device: Device) -> None:
    """Write the time of a step without the profiler into the trace, which does not tell it otherwise, and print the summary.

    Raises LessonError where a GPU was used and none of its events was recorded; the artifacts are kept.
    """
    if plain_step is not None:
        add_header(args.run.trace, plain_step.as_header())
    for path in (args.run.trace, args.run.table):
        print(f"wrote {path} ({human_bytes(path.stat().st_size)}, {files.seconds:.3f} s)")
    print(*(line for line in args.run.table.read_text().splitlines() if line.startswith("Self ")), sep="\n")
    if files.peak_memory:
        print(f"peak memory: {files.peak_memory}")
    path = str(args.run.trace)
    try:
        from trace_reader import plain_sentence, read, verdict_sentence, work_per_step  # here: a lesson records without it, too
    except ImportError:
        print(NOT_INSTALLED)
        print(f"next: drag {shlex.quote(path)} into https://ui.perfetto.dev")
        return
    facts = read(path)
    print(f"verdict: {verdict_sentence(facts)}")
    if facts.plain.step_us is not None and (said := plain_sentence(facts)):
        print(f"{said}{_profilers_share(facts, args)}")
    print(work_per_step(facts))
    if args.guess is not None and args.run.rank is None:
        print(answer(args.guess, facts))
    print(f"next: uv run read_trace.py {shlex.quote(path)}, or drag it into https://ui.perfetto.dev")
    recorded = recorded_on_a_gpu(facts.lesson.get("script", ""), facts.lesson.get("run", ""))
    if facts.verdict == "cpu-only" and recorded is not None:
        print(f"the same run on an H200: uv run read_trace.py {recorded}")
    if device.type == "cuda" and facts.verdict == "cpu-only":
        raise LessonError(
            "the lesson ran on the GPU, but no GPU event was recorded (the artifacts are kept). Likely causes: "
            "another profiler is attached (nsys, ncu, compute-sanitizer, a debugger), the container lacks the "
            "permission, or WSL without GPU tracing"
        )


def _profilers_share(facts, args: argparse.Namespace) -> str:
    """Return how much of a recorded step is the profiler's, where nothing else makes the difference: a cold run's recorded steps
    may pay for the start, those of a job wait for each other, and steps can differ in their work.
    """
    plain, recorded_us = facts.plain, facts.plain.recorded_step_us
    if not args.warmup or recorded_us is None or recorded_us <= plain.high_us:
        return ""
    if (facts.world_size or 1) > 1 or getattr(args, "vary_batch", False):
        return ""
    events = sum(op.calls for op in (*facts.ops, *facts.calls)) / len(facts.steps)
    if recorded_us - plain.step_us > MOST_PER_STEP_US + MOST_PER_EVENT_US * events:
        return ""
    return f"; {1 - plain.step_us / recorded_us:.0%} of the recorded step is the profiler's own cost"


def answer(guess: int, facts) -> str:
    """Return what the trace says to a guess of how many kernels (without a GPU: leaf ops) a step launches. `facts`: the
    reader's.
    """
    step = facts.usual_step
    if step is None:
        return "guess: the trace has no recorded step to compare with"
    unit, verb = ("ops", "ran") if facts.verdict == "cpu-only" else ("kernels", "launched")
    if guess == step.kernels_or_ops:
        return f"guess: {guess} {unit} per step. Correct."
    work = "".join(f"\n  {n} x {label}" for label, n in step.work)
    return f"guess: {guess} {unit} per step; the trace has {step.kernels_or_ops}. {step.name} {verb}:{work or ' nothing'}"
