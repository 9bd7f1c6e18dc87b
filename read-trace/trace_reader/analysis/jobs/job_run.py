"""A job without the profiler: its ranks played again together (job_replay.py), and what changes of them bring."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from trace_reader.analysis.jobs.collective_matching import match
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.analysis.jobs.job_replay import JobReplay
from trace_reader.analysis.replay.edits import Edited
from trace_reader.analysis.replay.plain_run import (
    ESTIMATED,
    EVERYTHING,
    GPU_MARGIN,
    LONGER,
    MARGIN,
    MEASURED,
    MOST_DEAR,
    NO_PRICES,
    SOUND_SHARE,
    SPREAD,
    TRIES,
    UNKNOWN,
    UNLIKE,
    PlainRun,
    RunWithoutProfiler,
    factors,
    has_prices,
    interval,
    plain_step_of_header,
    steps_to_play,
)
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.link.trace import Trace
from trace_reader.names.header_keys import PLAIN_STEP


class JobRun:
    """A job that can be played again. `recorded_us` and `plain`: a step of its slowest rank, as recorded and without the
    profiler; `runs`: what the run may be, the plain one if it is known (`is_plain`), else the recorded one: how long a step is
    (us), and the times between the nodes of each rank. `collectives`: how many hold the ranks together.
    """

    def __init__(self, job: JobFacts, traces: Sequence[Trace]):
        """`traces`: of the job's ranks, in their order. Raises LookupError, with the reason why it cannot be played again."""
        if not any(summary.has_gpu for summary in job.summaries):
            raise LookupError("what waits for other ranks is played on GPUs alone, and none was used")
        _, matched, _ = match(job.summaries)
        if None in job.offset_ns or not matched.whole.any():
            raise LookupError("its ranks share no collectives that can be matched")
        # A step that another rank lacks has nobody to wait for.
        steps = min(min(steps_to_play(trace), len(trace.steps)) for trace in traces)
        recorded_us = [step_period_us(trace) if len(trace.steps) > 1 else None for trace in traces]
        if None in recorded_us:
            raise LookupError("a rank has fewer than two steps")
        self._traces, self._priced = traces, [RunWithoutProfiler(trace, steps) for trace in traces]
        self.replay = JobReplay([run.replay for run in self._priced], matched, [offset or 0 for offset in job.offset_ns])
        self.collectives = self.replay.collectives
        if not self.collectives:
            raise LookupError("no collective is in the steps that would be played")
        as_recorded = [replay.nodes.after_ns for replay in self.replay.replays]
        before_us = self._play(as_recorded)
        for played, recorded, trace in zip(before_us, recorded_us, traces, strict=True):
            if abs(played - (recorded or 0.0)) > SOUND_SHARE * (recorded or 0.0):
                raise LookupError(f"{trace.path}: {UNLIKE}")
        self.recorded_us = max(before_us)
        self.plain, runs = self._without_profiler()
        self.runs = runs or [(self.recorded_us, as_recorded)]
        self.is_plain = bool(runs)
        self._before_us: dict[frozenset[int], list[float]] = {}

    def changed(
        self, change: Callable[[Sequence[Edited]], object], like: Mapping[int, int] | None = None
    ) -> tuple[list[float], float]:
        """Return what a change of the ranks saves of a step, a share for each of `runs`; and how long a GPU is busy after it, in
        us, at least. `like`: as JobReplay.play has it; step and GPU are then those of the other ranks.
        """
        counted = [place for place in range(len(self._traces)) if place not in (like or {})] or list(range(len(self._traces)))
        key = frozenset(counted)
        if key not in self._before_us:
            played = [self._play(run) for _, run in self.runs]
            self._before_us[key] = [max(times_us[place] for place in counted) for times_us in played]
        gains, busy_us = [], 0.0
        for (_, run), before_us in zip(self.runs, self._before_us[key], strict=True):
            ranks = self._edited(run)
            change(ranks)
            busy_us = max(ranks[place].busy_us() for place in counted)
            times_us = self.replay.play(ranks, like)
            gains.append(1 - max(times_us[place] for place in counted) / before_us)
        return gains, busy_us

    @property
    def computing_share(self) -> float:
        """How much of a step the GPU of the rank that computes least computes, at least."""
        shares = [min(one.busy_us() for one in self._edited(times_ns)) / max(step_us, 1.0) for step_us, times_ns in self.runs]
        return min(shares)

    def _edited(self, times_ns: Sequence[np.ndarray]) -> list[Edited]:
        return [Edited(replay, after_ns) for replay, after_ns in zip(self.replay.replays, times_ns, strict=True)]

    def _play(self, times_ns: Sequence[np.ndarray]) -> list[float]:
        """Return the time of a step on each rank (us), with these times between its nodes."""
        return self.replay.play(self._edited(times_ns))

    def _without_profiler(self) -> tuple[PlainRun, list[tuple[float, list[np.ndarray]]]]:
        """Return the step without the profiler, of the slowest rank, and the runs that it may be; none of these, where no price
        is known, or they tell too little.
        """
        recorded_us, priced = self.recorded_us, self._priced
        told = [plain_step_of_header(trace.header.get(PLAIN_STEP)) for trace in self._traces]
        if all(told):
            low, middle, high = (max(finding[at] for finding in told if finding) for at in range(3))
            times = self._times_at(middle)
            runs = [(middle, times)] if times else []
            dearest = [run.without(run.prices.times(MOST_DEAR)) for run in priced]
            if times and middle < recorded_us and max(self._play(dearest)) >= middle * (1 - SPREAD):
                runs.append((middle, dearest))  # the GPUs limit it: it does not tell what the CPU takes
            return PlainRun(middle, low, high, recorded_us, MEASURED), runs
        if not all(map(has_prices, self._traces)):
            return self._unknown(NO_PRICES), []
        likely = [run.likely[0] for run in priced]
        ends = likely, [EVERYTHING] * len(priced)
        at, floor = (
            max(self._play([run.without(prices) for run, prices in zip(priced, end, strict=True)])) / recorded_us for end in ends
        )
        if not 0 < at <= 1 + SOUND_SHARE:
            return self._unknown(LONGER), []
        # Of 23 jobs that narrow an interval held 18: what two hosts differ by, ranks that wait for each other hide.
        shares = interval(max(1 - at, 0.0), floor * (1 - GPU_MARGIN), True, is_known_host=True)
        low, middle, high = (share * recorded_us for share in shares)
        times_ns = [
            [run.without(prices.times(factor)) for run, prices in zip(priced, likely, strict=True)] for factor in factors(shares)
        ]
        runs = list(zip((low, high), times_ns, strict=True))
        if high > recorded_us:  # then the profiler may have cost the slowest rank nothing
            runs.append((recorded_us, [run.replay.nodes.after_ns for run in priced]))
        return PlainRun(middle, low, high, recorded_us, ESTIMATED), runs

    def _unknown(self, because: str) -> PlainRun:
        return PlainRun(None, None, None, self.recorded_us, UNKNOWN, unknown_because=because)

    def _times_at(self, step_us: float) -> list[np.ndarray] | None:
        """Return the times between each rank's nodes at the prices, all by one factor, at which the slowest rank's step takes so
        long; None: it does at none.
        """
        low, high = 0.0, MOST_DEAR if step_us < self.recorded_us else 0.0
        times = [run.without(run.prices.times(high)) for run in self._priced]
        if step_us > self.recorded_us * (1 + SPREAD) or max(self._play(times)) > step_us * (1 + MARGIN):
            return None
        for _ in range(TRIES if high else 0):
            middle = (low + high) / 2
            times = [run.without(run.prices.times(middle)) for run in self._priced]
            low, high = (middle, high) if max(self._play(times)) > step_us else (low, middle)
        return times
