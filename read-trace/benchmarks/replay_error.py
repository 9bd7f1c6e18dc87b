"""How far a replay of the unchanged run is from the recorded one, and what it costs.

    uv run read-trace/benchmarks/replay_error.py                    of every recording in this repository
    uv run read-trace/benchmarks/replay_error.py TRACE.json ...     of these, and how long each part takes

The error is the share of a step by which the replayed one is longer or shorter. A recording that is not told of, since the report
itself says that it cannot be played, stands in the last line with the reason.
"""

from collections import Counter
from pathlib import Path
import statistics
import sys
import time

from trace_reader import TraceError, analyze, load
from trace_reader.analysis.jobs.job_facts import job_facts
from trace_reader.analysis.jobs.job_run import JobRun
from trace_reader.analysis.jobs.rank_summary import RankSummary
from trace_reader.analysis.replay.edits import Edited
from trace_reader.analysis.replay.plain_run import SOUND_SHARE, RunWithoutProfiler, is_playable
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.commands.read_job import jobs_of, read_rank
from trace_reader.link.trace import Trace
from trace_reader.names.kernel_names import is_collective

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gallery", "exercises/cases", "read-trace/tests/data", "read-trace/benchmarks")


def recordings() -> list[str]:
    """Return the files of this repository that may be traces."""
    return [str(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.json*")) if path.is_file()]


def error_of(trace: Trace) -> float | str | None:
    """Return the error, or why the report does not play the run; None of what has no steps, or is no recording."""
    recorded_us = step_period_us(trace)
    if recorded_us is None:
        return None
    if trace.work.is_named(is_collective).any():
        return "of a job, played with its other ranks"
    if not is_playable(trace):
        return "launches or ops are missing"
    played_us = RunWithoutProfiler(trace).replay.play().step_us
    error = abs(played_us / recorded_us - 1)
    return error if error <= SOUND_SHARE else "its first steps are not like the others, or clocks disagree"


def error_of_job(paths: list[str]) -> float | str:
    """Return the largest error of a job's ranks, played together, or why they are not."""
    read: dict[str, Trace] = {}
    found = [read_rank(path, None, load, lambda one: read.update({one.trace.path: one.trace})) for path in paths]
    try:
        job = job_facts([item for item in found if isinstance(item, RankSummary)])
        traces = [read[summary.trace] for summary in job.summaries]
        run = JobRun(job, traces)
    except (TraceError, LookupError) as error:
        return str(error)
    played_us = run.replay.play([Edited(replay, replay.nodes.after_ns) for replay in run.replay.replays])
    return max(abs(us / (step_period_us(trace) or us) - 1) for us, trace in zip(played_us, traces, strict=True))


def main() -> int:
    paths = sys.argv[1:]
    errors: list[float] = []
    left_out: Counter[str] = Counter()
    for path in paths or recordings():
        begun = time.perf_counter()
        try:
            trace = load(path)
        except TraceError:
            continue  # no trace
        read_s, error = time.perf_counter() - begun, error_of(trace)
        if isinstance(error, float):
            errors.append(error)
        elif error is not None:
            left_out[error] += 1
        if paths:
            begun = time.perf_counter()
            run = RunWithoutProfiler(trace)
            run.replay.play()
            played_s, begun = time.perf_counter() - begun, time.perf_counter()
            analyze(trace)
            told = f"error {error:.4f}" if isinstance(error, float) else error or "no steps"
            print(
                f"{path}: {told}; reading {read_s:.2f} s, one replay {played_s:.2f} s, all facts and findings "
                f"{time.perf_counter() - begun:.2f} s; {len(trace.slices)} slices"
            )
    jobs = [error_of_job(one) for one in jobs_of(paths or recordings()).values()]
    played = [error for error in jobs if isinstance(error, float)]
    worst, middle = (max(errors), statistics.median(errors)) if errors else (0.0, 0.0)
    print(f"{len(errors)} recordings: error {middle:.4f} (median), {worst:.4f} at most")
    print(f"not played: {', '.join(f'{n} ({why})' for why, n in left_out.items()) or 'none'}")
    if jobs:
        print(f"{len(played)} of {len(jobs)} jobs: error {max(played, default=0.0):.4f} at most")
    return 0 if worst <= SOUND_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
