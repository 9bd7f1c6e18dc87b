"""The run without the profiler: what a step takes, and what limits it, when nobody records it.

A lesson measures the step, and writes it into the trace's header. Where it was not measured, it is estimated: the recorded run
is played again (analysis/replay/replay.py) without what the profiler costs in each op and call.
"""

from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.replay import Played, Replay
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.analysis.trace.critical_path import CriticalPath, PathWindow, path_along_device
from trace_reader.link.launches import Origin
from trace_reader.link.trace import Trace
from trace_reader.model.rows import median
from trace_reader.names.call_names import is_launch
from trace_reader.names.header_keys import PLAIN_STEP
from trace_reader.names.kernel_names import is_collective, is_collective_on_cpu
from trace_reader.names.range_names import is_step
from trace_reader.units import us

MEASURED, ESTIMATED, UNKNOWN = "measured", "estimated", "unknown"


class PlainRun(msgspec.Struct, frozen=True):
    """A step without the profiler, in us: between `low_us` and `high_us`. `how` it is known: measured, estimated, or unknown.

    `verdict`: what limits that run, where it is the same in all of the interval; else None. `unknown_because`: of an unknown one
    of a trace with steps, why; else None.
    """

    step_us: float | None
    low_us: float | None
    high_us: float | None
    recorded_step_us: float | None
    how: str
    verdict: str | None = None
    unknown_because: str | None = None


class ProfilerOverhead(msgspec.Struct, frozen=True):
    """What the profiler costs, in us, on a machine on which a kernel's launch is recorded with LAUNCH_US.

    `op_us`: of an op or an annotation; `call_us`: of a call of the runtime or driver; `compiled_us`: of a kernel of
    torch.compile, which tells more of itself where a profiler listens; `step_us`: of a step's own annotation. With stacks,
    `function_us`: of a function of Python; with memory, `allocation_us`: of an allocation or a free.
    """

    op_us: float
    call_us: float
    compiled_us: float
    step_us: float
    function_us: float = 0.0
    allocation_us: float = 0.0

    def times(self, factor: float) -> "ProfilerOverhead":
        return ProfilerOverhead(*(getattr(self, name) * factor for name in self.__struct_fields__))


# Of ops, calls and steps: one NVIDIA H200, torch 2.11, record_shapes, 2026-11-23: 19 pairs of benchmarks/advice/pairs.py
# (limited by the CPU, before or after), each recorded after its steps had been timed in a process that had profiled nothing. Of
# the 26 recordings that the CPU limits and that get an estimate, 23 measured steps lie between the two, with the margins below;
# half of the intervals are narrower than 25% of their upper end. Of functions and allocations:
# read-trace/benchmarks/profiler_cost/, three machines, 2026-11-24: of programs with 200 a step and more, a function took 0.25
# to 1.13 us besides, an allocation up to 2.6.
CHEAP, DEAR = ProfilerOverhead(2.0, 2.0, 2.0, 20.0, 0.2, 0.0), ProfilerOverhead(3.5, 3.0, 40.0, 60.0, 1.2, 2.0)
NOTHING, EVERYTHING = ProfilerOverhead(0.0, 0.0, 0.0, 0.0), ProfilerOverhead(1e6, 1e6, 1e6, 1e6, 1e6, 1e6)
# Without a GPU, of an op: 13 pairs of benchmarks/advice on 16 cores (Xeon), torch 2.11, 2026-11-23. Where ops are many, each
# was recorded 0.3 to 3.1 us longer than it took; where they are long, by up to a third: 16 of 17 measured steps lie in the
# estimate, of a later recording 14 of 18 (docs/advice.md).
CPU_MARGIN = 0.3
CPU_CHEAP, CPU_DEAR = ProfilerOverhead(0.3, 0.0, 0.0, 5.0, 0.2, 0.0), ProfilerOverhead(3.5, 0.0, 0.0, 60.0, 1.2, 2.0)
CHEAP_WITHOUT_SHAPES_US = 1.2  # of an op
BETWEEN_US = 100.0  # of the time between two steps, the profiler's at most: it took 38 to 45 us there
SHORTEST_STEP_US, LONGEST_STEP_US = 0.01, 1e12  # what a header can say of a step
LAUNCH_US = 4.7  # the median of a kernel's launch in those recordings
LIKE = 2.0  # a CPU that launches so many times as fast or slowly was not tried
MARGIN, GPU_MARGIN = 0.1, 0.03
GRAPH_MARGIN = 0.2  # recorded, the kernels of a graph stand further apart: two replays took 14 and 16% less without the profiler
MOST_EVENTS, LEAST_STEPS = 20_000, 3  # of a longer recording, the first steps with so many events of the GPU are played
SPREAD = 0.05  # of a measured step: so much longer it can be than what the GPU takes, which limits it
LEAST_SHARE = 0.1  # of a stretch of the CPU's time, that is left at any price
SOUND_SHARE = 0.02  # of a step: so far a replay of the unchanged run may be from it
DEARER = 0.5  # than the dear prices, what the profiler may have cost where a change makes the CPU the limit
# Of a recorded step: if the functions of Python take so much by the cheap price, they take some 0.2 us each, of which it would
# leave nothing; a loop that read the clock 67,000 times a step lost next to nothing without the profiler.
MOST_OF_FUNCTIONS = 0.5
WIDEST = 0.5  # of its upper end: a wider interval says nothing
# Of its upper end: of a wider interval so much is told. What is too much goes from both ends, by ratios, less of it from the
# lower one: so the 75 intervals of docs/advice.md (17 of them wider) hold 63 measured steps, and whole they hold 64. Without a
# GPU, where only long ops get an estimate, all of it goes from the lower one: 15 of 19, and whole 16.
TOLD, FROM_LOWER = 0.3, 0.3
MOST_DEAR = 8.0  # times the prices, at which a replay is tried
TRIES = 10  # to find the factor at which the replay takes what was measured
LAUNCHES = frozenset(["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"])


class Known(msgspec.Struct, frozen=True):
    """What is known of the plain run, and the critical path that it has; None where it is not known what limits it."""

    run: PlainRun
    path: CriticalPath | None = None


def plain_run(
    trace: Trace, run: "RunWithoutProfiler | None", recorded_step_us: float | None, cpu: CpuActivity, window: PathWindow | None
) -> Known:
    """What is known of the run without the profiler, which `run` plays. `window`: that of the recorded critical path, if one
    device worked. Takes time linear in the number of events.
    """
    plain = PlainRun(None, None, None, recorded_step_us, UNKNOWN)
    if told := plain_step_of_header(trace.header.get(PLAIN_STEP)):
        low, middle, high = told
        plain = PlainRun(middle, low, high, recorded_step_us, MEASURED)
    if run is None:
        return Known(_because(plain, trace, _not_playable(trace)))
    if not run.replays_as_recorded(recorded_step_us):
        return Known(_because(plain, trace, "clocks disagree, or its first steps are not like the others"))
    if plain.how == UNKNOWN and recorded_step_us:
        plain = _estimated(run, recorded_step_us)
    if plain.how == UNKNOWN:
        return Known(plain)
    played = run.played(plain)
    verdicts = {one.verdict for one in played}
    if len(verdicts) != 1 or window is None or not len(trace.work):
        return Known(plain)
    plain = msgspec.structs.replace(plain, verdict=verdicts.pop())
    if any(one.leaves_the_gpu for one in played):
        steps = len(trace.steps) - trace.steps_left_out
        length_ns = round(np.mean([one.step_us for one in played]) * steps * 1000)
        return Known(plain, path_along_device(trace, cpu, window, length_ns))
    middle_ns = np.mean([one.after_ns for one in played], axis=0).astype(np.int64)
    return Known(plain, run.replay.play(middle_ns).critical_path(cpu, window))


def _because(plain: PlainRun, trace: Trace, why: str | None) -> PlainRun:
    """The same, and if it is unknown, why: of a trace with steps, unless it is said already."""
    if plain.how != UNKNOWN or plain.unknown_because or not len(trace.steps):
        return plain
    return msgspec.structs.replace(plain, unknown_because=why)


def _not_playable(trace: Trace) -> str | None:
    if trace.work.is_named(is_collective).any() or trace.annotations.is_named(is_collective_on_cpu).any():
        return "its collectives wait for other ranks"
    return "the launches of too much of its GPU work are missing" if (trace.work.step >= 0).any() else None


def _estimated(run: "RunWithoutProfiler", recorded_step_us: float) -> PlainRun:
    """The plain step by the prices; unknown where these tell too little."""
    least, most = (run.recorded_times(one) * recorded_step_us for one in run.ends)
    at_least, at_most = (one.verdict for one in run.ends)
    # What the GPU takes is known better than what the CPU does, but for what lies between the kernels of a graph.
    at_gpu = GRAPH_MARGIN if (run.replay.work.origin == Origin.GRAPH).any() else GPU_MARGIN
    at_cpu = MARGIN if len(run.replay.work) else CPU_MARGIN
    low = least * (1 - (at_gpu if at_least == "gpu-bound" else at_cpu))
    high = most * (1 + (MARGIN / 2 if at_most == "gpu-bound" else MARGIN))
    if not run.is_plausible_interval(least, most, recorded_step_us):
        return PlainRun(None, None, None, recorded_step_us, UNKNOWN)
    if high - low > WIDEST * high:
        took = [max(1 - step_us / recorded_step_us, 0.0) for step_us in (high, low)]
        what = "its functions of Python are so many" if run.are_functions_dearest else "its ops are so short"
        because = f"{what} that the profiler may have taken {took[0]:.0%} to {took[1]:.0%} of the recorded one"
        if run.has_short_functions:
            because = (
                f"it holds {run.functions:,.0f} short functions of Python per step, of which the profiler's cost is not known"
            )
        if run.estimated == (EVERYTHING, NOTHING):
            launch_us = run.launch_us
            because = "what the profiler costs on such a machine was not measured"
            if launch_us:
                because = (
                    f"its launches take {us(launch_us)}, and what the profiler costs was measured where they take {us(LAUNCH_US)}"
                )
        return PlainRun(None, None, None, recorded_step_us, UNKNOWN, unknown_because=because)
    low, high = narrowed(low, high, FROM_LOWER if len(run.replay.work) else 1.0)
    return PlainRun(min(max((least + most) / 2, low), high), low, high, recorded_step_us, ESTIMATED)


def narrowed(low_us: float, high_us: float, from_lower: float = FROM_LOWER) -> tuple[float, float]:
    """What is told of an interval that is wider than that."""
    if high_us - low_us <= TOLD * high_us:
        return low_us, high_us
    low_us *= ((1 - TOLD) * high_us / low_us) ** from_lower
    return low_us, low_us / (1 - TOLD)


def plain_step_of_header(said: Any) -> tuple[float, float, float] | None:
    """The lowest, the median and the highest time (us) that a header says; None where it says none that can be."""
    values: list[Any] = [said.get(key) for key in ("low", "median", "high")] if isinstance(said, dict) else []
    if not values or not all(type(us) in (int, float) for us in values):
        return None
    if not SHORTEST_STEP_US <= values[0] <= values[1] <= values[2] <= LONGEST_STEP_US:
        return None
    low, middle, high = (float(us) for us in values)
    return low, middle, high


def has_prices(trace: Trace) -> bool:
    """Whether the trace is of a kind whose prices were measured: CUDA's launches, by a CPU about as fast, or no GPU."""
    if not len(trace.work):
        return True
    launches = trace.calls.where(trace.calls.is_named(LAUNCHES.__contains__))
    return len(launches) > 0 and LAUNCH_US / LIKE <= launches.median_us <= LAUNCH_US * LIKE


def is_playable(trace: Trace) -> bool:
    """Whether a run can be played again by what its trace holds: steps, GPU work whose launches are there (but for a tenth at
    most, and for what was launched before the recording began), and no collectives, which wait for other processes. Without a
    GPU: steps with ops, no launches, and no collectives either.
    """
    if trace.mixed_processes:
        return False
    if not len(trace.work):
        waits = trace.annotations.is_named(is_collective_on_cpu).any()
        return len(trace.steps) > 0 and len(trace.ops) > 0 and not waits and not trace.calls.is_named(is_launch).any()
    if not (trace.work.step >= 0).any() or trace.work.is_named(is_collective).any():
        return False
    return 10 * int((trace.work.origin == Origin.UNKNOWN).sum()) <= int((trace.work.call >= 0).sum()) > 0


def run_without_profiler(trace: Trace) -> "RunWithoutProfiler | None":
    """A trace's run, to be played again; None where it is not playable."""
    return RunWithoutProfiler(trace) if is_playable(trace) else None


def steps_to_play(trace: Trace) -> int:
    """How many of a trace's first steps are played: of a long recording, those with MOST_EVENTS events of the GPU."""
    return max(LEAST_STEPS, MOST_EVENTS * max(len(trace.steps), 1) // max(len(trace.work), 1))


class RunWithoutProfiler:
    """A run, to be played again without what the profiler costs. `estimated`: the dearest and the cheapest prices of that.
    `steps`: how many are played; what is usual for the trace, unless given.
    """

    def __init__(self, trace: Trace, steps: int | None = None):
        self._trace = trace
        self._plain_times: list[tuple[np.ndarray, float]] | None = None
        self.replay = Replay(trace, steps or steps_to_play(trace))
        self._unchanged_us = self.replay.play().step_us
        self._marks_steps = bool(trace.steps.is_named(is_step).all())  # the profiler's step() takes its time, too
        without_shapes = msgspec.structs.replace(CHEAP, op_us=CHEAP_WITHOUT_SHAPES_US)
        known = DEAR, CHEAP if trace.header.get("record_shapes") else without_shapes
        if not len(trace.work):
            known = CPU_DEAR, CPU_CHEAP
        if self.has_short_functions:
            known = known[0], msgspec.structs.replace(known[1], function_us=0.0)
        self.estimated = known if has_prices(trace) else (EVERYTHING, NOTHING)

    @cached_property
    def launch_us(self) -> float:
        """The median of the kernels' launches, as recorded; 0 where there are none."""
        launches = self._trace.calls.where(self._trace.calls.is_named(LAUNCHES.__contains__))
        return median(launches.duration_us) if len(launches) else 0.0

    @property
    def functions(self) -> float:
        """The functions of Python in a step, on average."""
        return float(self._begun[3].sum()) / len(self.replay.steps)

    @property
    def has_short_functions(self) -> bool:
        """Whether its functions of Python are so many and short that the cheap price would leave little of the step."""
        return self.functions * CHEAP.function_us * self._scale / 1000 > MOST_OF_FUNCTIONS * self._unchanged_us

    @property
    def are_functions_dearest(self) -> bool:
        """Whether more of what is not known of the profiler's cost lies in functions of Python than in all else."""
        dear, cheap = self.estimated
        apart = [high - low for high, low in zip(msgspec.structs.astuple(dear), msgspec.structs.astuple(cheap), strict=True)]
        ops, compiled, calls, functions, allocations = (float(begun.sum()) for begun in self._begun)
        spent = [ops, compiled, calls, len(self.replay.steps), functions, allocations]
        by_field = dict(
            zip(ProfilerOverhead.__struct_fields__, [n * us for n, us in zip(spent, apart, strict=True)], strict=True)
        )
        return by_field["function_us"] > sum(by_field.values()) / 2

    @property
    def _scale(self) -> float:
        """From the prices in us to this trace's nanoseconds: what a launch takes here tells how fast this CPU is."""
        return self.launch_us / LAUNCH_US * 1000 or 1000.0

    @cached_property
    def _begun(self) -> tuple[np.ndarray, ...]:
        """In each stretch of the CPU's time, how many ops and annotations begin, how many compiled kernels, how many calls, how
        many functions of Python, and how many allocations and frees are in it.
        """
        trace, stretches = self._trace, self.replay.stretches

        def count(starts_ns: np.ndarray) -> np.ndarray:
            return np.searchsorted(starts_ns, stretches.end_ns) - np.searchsorted(starts_ns, stretches.start_ns)

        compiled = trace.ops.is_named(lambda name: name.startswith("triton_"))
        ops = count(trace.ops.where(~compiled).start_ns) + count(trace.annotations.start_ns)
        besides = count(trace.functions_ns), count(trace.memory.at_ns)
        return ops, count(trace.ops.where(compiled).start_ns), count(trace.calls.start_ns), *besides

    def replays_as_recorded(self, recorded_step_us: float | None) -> bool:
        """Whether the run, played again as it was, takes as long as it did: clocks that disagree can make it another one. Of a
        long recording, whether its first steps are like all of them.
        """
        trace, steps = self._trace, self.replay.steps
        if self._unchanged_us <= 0:
            return False
        if recorded_step_us is None:  # of a single step
            return self.replay.is_exact
        if abs(self._unchanged_us - recorded_step_us) > SOUND_SHARE * recorded_step_us:
            return False
        if len(steps) == len(trace.steps):
            return True
        played = self.replay.work.where(self.replay.work.step >= 0).total_us / len(steps)
        every = trace.work.where(trace.work.step >= 0).total_us / len(trace.steps)
        return abs(played - every) <= SOUND_SHARE * every

    def without(self, prices: ProfilerOverhead) -> np.ndarray:
        """The times between the replay's nodes with these prices taken away, and what the profiler takes between two steps."""
        stretches, after_ns = self.replay.stretches, self.replay.nodes.after_ns.copy()
        if prices == NOTHING:
            return after_ns
        ops, compiled, calls, functions, allocations = self._begun
        spent_us = ops * prices.op_us + compiled * prices.compiled_us + calls * prices.call_us
        spent_ns = (spent_us + functions * prices.function_us + allocations * prices.allocation_us) * self._scale
        if self._marks_steps:
            spent_ns[stretches.at_edge] += prices.step_us / 2 * self._scale
        length_ns = stretches.length_ns
        left_ns = np.maximum(length_ns - spent_ns, length_ns * LEAST_SHARE)
        between_ns = np.maximum(length_ns - BETWEEN_US * self._scale, 0)
        after_ns[stretches.node, 0] = np.where(stretches.between_steps & self._marks_steps, between_ns, left_ns)
        alone_ns = after_ns[self.replay.call_ends, 0]
        after_ns[self.replay.call_ends, 0] = np.maximum(alone_ns - prices.call_us * self._scale, alone_ns * LEAST_SHARE)
        return after_ns

    @cached_property
    def ends(self) -> list[Played]:
        """The run at both ends of the estimate: without the most that the profiler may take, and without the least."""
        return [self.at(prices) for prices in self.estimated]

    def recorded_times(self, played: Played) -> float:
        """How many times as long as the recorded one a step of the run is then."""
        return played.step_us / self._unchanged_us

    def played(self, plain: PlainRun) -> list[Played]:
        """The plain run: of one that was not measured, at both ends; where it is not known, the recorded one. None, where no
        price explains it.
        """
        if plain.how == UNKNOWN:
            return [self.replay.play()]
        recorded_us = plain.recorded_step_us or self._unchanged_us
        if plain.how == MEASURED and plain.step_us:
            share = plain.step_us / recorded_us
            # Without a GPU a recorded step can be the shorter one: the machine was busier meanwhile.
            prices = self.prices_at(share if len(self._trace.work) else min(share, 1.0))
            if prices is None:
                return []
            dearest = self._dearest(prices, share * self._unchanged_us)
            return [self.at(one) for one in ((prices,) if dearest == prices else (prices, dearest))]
        least, most = (self.recorded_times(one) * recorded_us for one in self.ends)
        return self.ends if self.is_plausible_interval(least, most, recorded_us) else []

    @staticmethod
    def is_plausible_interval(least_us: float, most_us: float, recorded_us: float) -> bool:
        """Whether these can be the ends of a step: a replay that takes longer than the recorded step, or longer at higher prices,
        begins with a GPU that was busy before.
        """
        return 0 < least_us <= most_us <= recorded_us * (1 + SOUND_SHARE)

    def plain_times(self, plain: PlainRun) -> list[tuple[np.ndarray, float]]:
        """The times between the nodes of the plain run, each with the time of a step (us) that is played with them. Worked out
        once.
        """
        if self._plain_times is None:
            played = self.played(plain)
            if played and plain.how == ESTIMATED:  # a change can show more of the CPU than the plain step does
                played = [*played, self.at(self.estimated[0].times(1 + DEARER))]
            self._plain_times = [(one.after_ns, one.step_us) for one in played]
        return self._plain_times

    def prices_at(self, share: float) -> ProfilerOverhead | None:
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

    def _dearest(self, prices: ProfilerOverhead, step_us: float) -> ProfilerOverhead:
        """Where higher prices leave the step as long, since the GPU limits it: the highest that are tried; else these. A
        measured step then does not tell what the CPU takes.
        """
        highest = prices.times(MOST_DEAR)
        return highest if prices != NOTHING and self._step_us(highest) >= step_us * (1 - SPREAD) else prices

    def _step_us(self, prices: ProfilerOverhead) -> float:
        return self.at(prices).step_us

    def at(self, prices: ProfilerOverhead) -> Played:
        """The run with these prices taken away."""
        return self.replay.play(self.without(prices))
