"""The run without the profiler: what a step takes, and what limits it, when nobody records it.

A lesson measures the step, and writes it into the trace's header. Where it was not measured, it is estimated: the recorded run
is played again (analysis/replay.py) without what the profiler costs in each op and call.
"""

from functools import cached_property
import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.critical_path import SHARE_THAT_NAMES, VERDICTS
from trace_reader.analysis.replay import Replay
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, median

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


# One NVIDIA H200, torch 2.11, record_shapes, 2026-11-23: 19 pairs of benchmarks/advice/pairs.py, before and after. Between the
# two, and 5% more at each end, lay 24 of the 27 steps of CPU-bound recordings that had been timed in the same process before it
# first profiled anything; half of the intervals were narrower than 21% of their upper end.
CHEAP, DEAR = Prices(2.0, 2.0, 2.0, 20.0), Prices(3.5, 3.0, 40.0, 60.0)
CHEAP_WITHOUT_SHAPES_US = 1.2  # of an op
LAUNCH_US = 4.7  # the median of a kernel's launch in those recordings
MARGIN = 0.1
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
        if recorded_step_us and len(trace.work):
            run = PricedRun(trace)
            prices = run.prices_at(middle / recorded_step_us)
            verdict = None if prices is None else run.ends(prices)[1]
        return PlainRun(middle, low, high, recorded_step_us, MEASURED, verdict)
    if not recorded_step_us or not _has_prices(trace):
        return unknown
    run = PricedRun(trace)
    if not run.is_sound(recorded_step_us):
        return unknown
    (least_share, at_least), (most_share, at_most) = (run.ends(prices) for prices in run.estimated)
    least, most = least_share * recorded_step_us, most_share * recorded_step_us
    low, high = least * (1 - MARGIN), most * (1 + MARGIN)
    if low <= 0 or high - low > WIDEST * high:
        return unknown
    verdict = at_least if at_least == at_most else None
    return PlainRun((least + most) / 2, low, high, recorded_step_us, ESTIMATED, verdict)


def _measured(said: Any) -> tuple[float, float, float] | None:
    """The lowest, the median and the highest time (us) that a header says; None where it says none that can be."""
    values: list[Any] = [said.get(key) for key in ("low", "median", "high")] if isinstance(said, dict) else []
    if not values or not all(type(us) in (int, float) and math.isfinite(us) for us in values):
        return None
    low, middle, high = (float(us) for us in values)
    return (low, middle, high) if 0 < low <= middle <= high else None


def _has_prices(trace: Trace) -> bool:
    """Whether the trace is of a kind whose prices were measured: CUDA's launches, and no stacks, modules or memory."""
    flags = ("with_stack", "with_modules", "profile_memory")
    return not any(trace.header.get(flag) for flag in flags) and bool(trace.calls.is_named(LAUNCHES.__contains__).any())


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

    def is_sound(self, recorded_step_us: float) -> bool:
        """Whether the run, played again as it was, takes as long as it did: clocks that disagree can make it another one."""
        return self.replay.is_exact or abs(self._unchanged_us - recorded_step_us) <= SOUND_SHARE * recorded_step_us

    def without(self, prices: Prices) -> np.ndarray:
        """The times between the replay's nodes with these prices taken away, and all that lies between two steps."""
        stretches, after_ns = self.replay.stretches, self.replay.nodes.after_ns.copy()
        ops, compiled, calls = self._begun
        spent_ns = (ops * prices.op_us + compiled * prices.compiled_us + calls * prices.call_us) * self._scale
        spent_ns[stretches.at_edge] += prices.step_us / 2 * self._scale
        length_ns = stretches.end_ns - stretches.start_ns
        left_ns = np.maximum(length_ns - spent_ns, length_ns * LEAST_SHARE)
        after_ns[stretches.node, 0] = np.where(stretches.between_steps, 0, left_ns)
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
