"""The run without the profiler: what a step takes, and what limits it, when nobody records it.

A lesson measures the step, and writes it into the trace's header. Where it was not measured, it is estimated: the recorded run
is played again (analysis/replay.py) without what the profiler costs in each op and call.
"""

from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.critical_path import SHARE_THAT_NAMES, VERDICTS
from trace_reader.analysis.replay import Replay
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, median
from trace_reader.names.kernel_names import is_collective

MEASURED, ESTIMATED, UNKNOWN = "measured", "estimated", "unknown"
HEADER_KEY = "plain_step_us"  # {"median": us, "low": us, "high": us}


class PlainRun(msgspec.Struct, frozen=True):
    """A step without the profiler, in us: between `low_us` and `high_us`. `how` it is known: measured, estimated, or unknown.

    `verdict`: what limits that run, where it is the same in all of the interval; else None.
    """

    step_us: float | None
    low_us: float | None
    high_us: float | None
    recorded_step_us: float | None
    how: str
    verdict: str | None = None


class Prices(msgspec.Struct, frozen=True):
    """What the profiler costs, in us, on a machine on which a kernel's launch is recorded with LAUNCH_US.

    `op_us`: of an op or an annotation; `call_us`: of a call of the runtime or driver; `compiled_us`: of a kernel of
    torch.compile, which tells more of itself where a profiler listens; `step_us`: of a step's own annotation.
    """

    op_us: float
    call_us: float
    compiled_us: float
    step_us: float

    def times(self, factor: float) -> "Prices":
        return Prices(*(getattr(self, name) * factor for name in self.__struct_fields__))


# One NVIDIA H200, torch 2.11, record_shapes, 2026-11-23: 19 pairs of benchmarks/advice/pairs.py (limited by the CPU, before
# or after), each recorded after its steps had been timed in a process that had profiled nothing. Of the 26 recordings that the
# CPU limits and that get an estimate, 23 measured steps lie between the two, with the margins below; half of the intervals are
# narrower than 25% of their upper end.
CHEAP, DEAR = Prices(2.0, 2.0, 2.0, 20.0), Prices(3.5, 3.0, 40.0, 60.0)
NOTHING = Prices(0.0, 0.0, 0.0, 0.0)
CHEAP_WITHOUT_SHAPES_US = 1.2  # of an op
BETWEEN_US = 100.0  # of the time between two steps, the profiler's at most: it took 38 to 45 us there
SHORTEST_STEP_US, LONGEST_STEP_US = 0.01, 1e12  # what a header can say of a step
LAUNCH_US = 4.7  # the median of a kernel's launch in those recordings
LIKE = 2.0  # a CPU that launches so many times as fast or slowly was not tried
MARGIN, GPU_MARGIN = 0.1, 0.03
MOST_EVENTS, LEAST_STEPS = 20_000, 3  # of a longer recording, the first steps with so many events of the GPU are played
SPREAD = 0.05  # of a measured step: so much longer it can be than what the GPU takes, which limits it
LEAST_SHARE = 0.1  # of a stretch of the CPU's time, that is left at any price
SOUND_SHARE = 0.02  # of a step: so far a replay of the unchanged run may be from it
WIDEST = 0.5  # of its upper end: a wider interval says nothing
MOST_DEAR = 8.0  # times the prices: what stacks and memory cost besides was not measured
TRIES = 10  # to find the factor at which the replay takes what was measured
LAUNCHES = frozenset(["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"])


def plain_run(trace: Trace, recorded_step_us: float | None) -> PlainRun:
    """What is known of the run without the profiler. Takes time linear in the number of events."""
    unknown = PlainRun(None, None, None, recorded_step_us, UNKNOWN)
    if measured := _measured(trace.header.get(HEADER_KEY)):
        low, middle, high = measured
        verdict = None
        if recorded_step_us and _is_linked(trace) and not trace.work.is_named(is_collective).any():
            run = PricedRun(trace)
            prices = run.prices_at(middle / recorded_step_us) if run.is_sound(recorded_step_us) else None
            verdict = None if prices is None else run.ends(prices)[1]
        return PlainRun(middle, low, high, recorded_step_us, MEASURED, verdict)
    if not recorded_step_us or not _has_prices(trace):
        return unknown
    run = PricedRun(trace)
    if not run.is_sound(recorded_step_us):
        return unknown
    (least_share, at_least), (most_share, at_most) = (run.ends(prices) for prices in run.estimated)
    least, most = least_share * recorded_step_us, most_share * recorded_step_us
    # What the GPU takes is known better than what the CPU does.
    low = least * (1 - (GPU_MARGIN if at_least == "gpu-bound" else MARGIN))
    high = most * (1 + (MARGIN / 2 if at_most == "gpu-bound" else MARGIN))
    # A replay that takes longer than the recorded step, or longer at higher prices, begins with a GPU that was busy before.
    if not 0 < least <= most <= recorded_step_us * (1 + SOUND_SHARE) or high - low > WIDEST * high:
        return unknown
    verdict = at_least if at_least == at_most else None
    return PlainRun((least + most) / 2, low, high, recorded_step_us, ESTIMATED, verdict)


def _measured(said: Any) -> tuple[float, float, float] | None:
    """The lowest, the median and the highest time (us) that a header says; None where it says none that can be."""
    values: list[Any] = [said.get(key) for key in ("low", "median", "high")] if isinstance(said, dict) else []
    if not values or not all(type(us) in (int, float) for us in values):
        return None
    if not SHORTEST_STEP_US <= values[0] <= values[1] <= values[2] <= LONGEST_STEP_US:
        return None
    low, middle, high = (float(us) for us in values)
    return low, middle, high


def _has_prices(trace: Trace) -> bool:
    """Whether the trace is of a kind whose prices were measured: CUDA's launches, by a CPU about as fast, and no stacks, modules
    or memory; and of a process that waits for no other one, whose profiler may hold up this one's collectives.
    """
    flags = ("with_stack", "with_modules", "profile_memory")
    if any(trace.header.get(flag) for flag in flags) or "python_function" in trace.skipped or len(trace.memory):
        return False
    launches = trace.calls.where(trace.calls.is_named(LAUNCHES.__contains__))
    if not len(launches) or not LAUNCH_US / LIKE <= launches.median_us <= LAUNCH_US * LIKE:
        return False
    return not trace.work.is_named(is_collective).any()


def _is_linked(trace: Trace) -> bool:
    """Whether there is GPU work whose launches are in the trace, but for a tenth at most."""
    return 10 * int((trace.work.call < 0).sum()) <= len(trace.work) > 0


def _verdict(shares: dict[str, float]) -> str:
    name, share = max(shares.items(), key=lambda item: item[1])
    return VERDICTS[name] if share >= SHARE_THAT_NAMES else "mixed"


class PricedRun:
    """A run, to be played again without what the profiler costs. `estimated`: the dear prices and the cheap ones."""

    def __init__(self, trace: Trace):
        self._trace = trace
        steps = max(len(trace.steps), 1)
        self.replay = Replay(trace, max(LEAST_STEPS, MOST_EVENTS * steps // max(len(trace.work), 1)))
        self._unchanged_us = self.replay.play().step_us
        without_shapes = msgspec.structs.replace(CHEAP, op_us=CHEAP_WITHOUT_SHAPES_US)
        self.estimated = DEAR, CHEAP if trace.header.get("record_shapes") else without_shapes

    @cached_property
    def _scale(self) -> float:
        """From the prices in us to this trace's nanoseconds: what a launch takes here tells how fast this CPU is."""
        launches = self._trace.calls.where(self._trace.calls.is_named(LAUNCHES.__contains__))
        return (median(launches.duration_us) / LAUNCH_US if len(launches) else 1.0) * 1000

    @cached_property
    def _begun(self) -> tuple[np.ndarray, ...]:
        """In each stretch of the CPU's time, how many ops and annotations begin, how many compiled kernels, how many calls."""
        trace, stretches = self._trace, self.replay.stretches

        def count(rows: Rows) -> np.ndarray:
            starts_ns = rows.start_ns
            return np.searchsorted(starts_ns, stretches.end_ns) - np.searchsorted(starts_ns, stretches.start_ns)

        compiled = trace.ops.is_named(lambda name: name.startswith("triton_"))
        return (
            count(trace.ops.where(~compiled)) + count(trace.annotations), count(trace.ops.where(compiled)), count(trace.calls)
        )  # fmt: skip

    def is_sound(self, recorded_step_us: float | None) -> bool:
        """Whether the run, played again as it was, takes as long as it did: clocks that disagree can make it another one. Of a
        long recording, whether its first steps are like all of them.
        """
        trace, steps = self._trace, self.replay.steps
        if recorded_step_us is None:  # of a single step
            return self.replay.is_exact
        if abs(self._unchanged_us - recorded_step_us) > SOUND_SHARE * recorded_step_us:
            return False
        if len(steps) == len(trace.steps):
            return True
        played = self.replay.work.where(self.replay.work.step >= 0).total_us / len(steps)
        every = trace.work.where(trace.work.step >= 0).total_us / len(trace.steps)
        return abs(played - every) <= SOUND_SHARE * every

    def without(self, prices: Prices) -> np.ndarray:
        """The times between the replay's nodes with these prices taken away, and what the profiler takes between two steps."""
        stretches, after_ns = self.replay.stretches, self.replay.nodes.after_ns.copy()
        if prices == NOTHING:
            return after_ns
        ops, compiled, calls = self._begun
        spent_ns = (ops * prices.op_us + compiled * prices.compiled_us + calls * prices.call_us) * self._scale
        spent_ns[stretches.at_edge] += prices.step_us / 2 * self._scale
        length_ns = stretches.end_ns - stretches.start_ns
        left_ns = np.maximum(length_ns - spent_ns, length_ns * LEAST_SHARE)
        between_ns = np.maximum(length_ns - BETWEEN_US * self._scale, 0)
        after_ns[stretches.node, 0] = np.where(stretches.between_steps, between_ns, left_ns)
        alone_ns = after_ns[self.replay.call_ends, 0]
        after_ns[self.replay.call_ends, 0] = np.maximum(alone_ns - prices.call_us * self._scale, alone_ns * LEAST_SHARE)
        return after_ns

    def ends(self, prices: Prices) -> tuple[float, str]:
        """The time of a step with these prices taken away, as a share of the recorded one, and what limits the run then."""
        played = self.replay.play(self.without(prices))
        return played.step_us / self._unchanged_us, _verdict(played.shares())

    def prices_at(self, share: float) -> Prices | None:
        """The prices at which a step takes this share of the recorded one: the dear ones, if it does then, else those, all by
        one factor. None: it does at no price.
        """
        low, high, step_us = 0.0, MOST_DEAR, share * self._unchanged_us
        if share >= 1:  # within a round's spread the profiler cost nothing; a longer step no price explains
            return NOTHING if share <= 1 + SPREAD else None
        if step_us * (1 - SPREAD) <= self._step_us(DEAR) <= step_us * (1 + MARGIN):
            return DEAR
        if self._step_us(CHEAP.times(high)) > step_us * (1 + MARGIN):
            return None
        for _ in range(TRIES):
            middle = (low + high) / 2
            low, high = (middle, high) if self._step_us(CHEAP.times(middle)) > step_us else (low, middle)
        return CHEAP.times(high)

    def _step_us(self, prices: Prices) -> float:
        return self.replay.play(self.without(prices)).step_us
