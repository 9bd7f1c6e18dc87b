"""The run without the profiler: what a step takes, and what limits it, when nobody records it.

A lesson measures the step, and writes it into the trace's header. Where it was not measured, it is estimated: the recorded run
is played again (analysis/replay/replay.py) without what the profiler costs in each op and call.
"""

from functools import cached_property
import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.replay import STEPS_CHAIN, Played, Replay
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.analysis.trace.critical_path import CriticalPath, PathWindow, path_along_device
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.launches import Origin
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.call_names import is_launch
from trace_reader.names.header_keys import PLAIN_STEP
from trace_reader.names.kernel_names import is_collective, is_collective_on_cpu
from trace_reader.names.range_names import is_step

GPU_BOUND = "gpu-bound"
UNLIKE = "played again, its steps take another time: kernels overlap, clocks disagree, or the first steps are unlike the others"
LONGER = "played again, its steps take longer than recorded"
NO_PRICES = "what the profiler costs on such a device was not measured"
MEASURED, ESTIMATED, UNKNOWN = "measured", "estimated", "unknown"


class PlainRun(msgspec.Struct, frozen=True):
    """A step without the profiler, in us: between `low_us` and `high_us`. `how` it is known: measured, estimated, or unknown.

    `verdict`: what limits that run, where it is the same in all of the interval, or the GPU in its middle; else None.
    `unknown_because`: of an unknown one of a trace with steps, why; else None.
    """

    step_us: float | None
    low_us: float | None
    high_us: float | None
    recorded_step_us: float | None
    how: str
    verdict: str | None = None
    unknown_because: str | None = None


class ProfilerOverhead(msgspec.Struct, frozen=True):
    """What the profiler costs, in us.

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


# What it costs where the CPU launches kernels: 216 recordings of three hosts with an H100 (Xeon, torch 2.11, 2026-11-25), each of
# a step that was timed before anything had been recorded. Fitted to those of each host that the CPU limits, an op took 2.5, 3.0
# and 2.6 us longer, where the median launch takes 4.9, 5.2 and 8.6: not more where all else is slower. The rest is known less: a
# call took 2.1, 0.4 and 2.5, a step 62, 39 and 61. docs/profiler_cost.md has what lies inside, with one host left out at a time.
PRICES = ProfilerOverhead(2.5, 2.2, 25.0, 60.0, 1.1, 1.7)
# Without a GPU: 60 recordings on two cores (Xeon, torch 2.15, 2026-11-25), of which those of many ops took 0.6 to 1.4 us an op.
CPU_PRICES = ProfilerOverhead(1.1, 0.0, 0.0, 30.0, 0.4, 0.7)
# Of steps that wait so much of their time for a loader's processes, so much of what the prices say is taken.
WORKERS, WAITING, AT_A_LOADERS_PACE = "_MultiProcessingDataLoaderIter", 0.1, 0.5
NOTHING, EVERYTHING = ProfilerOverhead(0.0, 0.0, 0.0, 0.0), ProfilerOverhead(1e6, 1e6, 1e6, 1e6, 1e6, 1e6)
# Where prices say that the profiler took much, it took less: so much of what they say beyond MUCH.
MUCH, BEYOND = 0.4, 0.5
# What is told lies so far below and above, by the logarithm: so much, and so much times the share that the profiler took.
# Hosts differ by twice; on one whose prices are known (read-trace prices), it is less.
BELOW, ABOVE = (0.12, 1.4), (0.12, 0.45)
BELOW_ON_A_KNOWN_HOST = (0.05, 0.65)
CPU_BELOW, CPU_ABOVE = (0.5, 0.6), (0.2, 0.9)
WITHOUT_SHAPES_US = 2.0  # of an op
SHORT_FUNCTION_US = 0.2  # that a function costs at least
BETWEEN_US = 100.0  # of the time between two steps, the profiler's at most: it took 38 to 45 us there
SHORTEST_LAUNCH_US = 2.0  # as recorded: the hosts with prices take 4 to 12
SHORTEST_STEP_US, LONGEST_STEP_US = 0.01, 1e12  # what a header can say of a step
MARGIN, GPU_MARGIN = 0.1, 0.05  # of a measured step that a price explains; of what the GPU takes
GRAPH_MARGIN = 0.2  # recorded, the kernels of a graph stand further apart: two replays took 14 and 16% less without the profiler
MOST_EVENTS, LEAST_STEPS = 20_000, 3  # of a longer recording, the first steps with so many events of the GPU are played
SPREAD = 0.05  # of a measured step: so much longer it can be than what the GPU takes, which limits it
CPU_SPREAD = 0.15  # without a GPU, of a recorded step: so much longer the plain one can be
LEAST_SHARE = 0.1  # of a stretch of the CPU's time, that is left at any price
SOUND_SHARE = 0.02  # of a step: so far a replay of the unchanged run may be from it
DEARER = 2.0  # times the prices, what the profiler may have cost where a change makes the CPU the limit
# Of a recorded step: if the functions of Python take so much by the cheap price, they take some 0.2 us each, of which it would
# leave nothing; a loop that read the clock 67,000 times a step lost next to nothing without the profiler.
MOST_OF_FUNCTIONS = 0.5
MOST_DEAR = 8.0  # times the prices, at which a replay is tried
TRIES_OF_AN_END = 5  # to find the factor at which the replay takes the longest that is told
TRIES = 10  # to find the factor at which the replay takes what was measured


class Known(msgspec.Struct, frozen=True):
    """What is known of the plain run, and the critical path that it has; None where it is not known what limits it."""

    run: PlainRun
    path: CriticalPath | None = None


def plain_run(
    trace: Trace, run: "RunWithoutProfiler | None", recorded_step_us: float | None, cpu: CpuActivity, window: PathWindow | None
) -> Known:
    """Return what is known of the run without the profiler, which `run` plays. `window`: that of the recorded critical path, if
    one device worked. Takes time linear in the number of events.
    """
    plain = PlainRun(None, None, None, recorded_step_us, UNKNOWN)
    # Measured were the profiler's steps: of others, that somebody chose, it says nothing.
    are_others = not trace.steps.is_named(is_step).all() and bool(trace.annotations.is_named(is_step).any())
    if not are_others and (told := plain_step_of_header(trace.header.get(PLAIN_STEP))):
        low, middle, high = told
        plain = PlainRun(middle, low, high, recorded_step_us, MEASURED)
    if run is None:
        return Known(_because(plain, trace, _not_playable(trace)))
    if not run.replays_as_recorded(recorded_step_us):
        return Known(_because(plain, trace, UNLIKE))
    if plain.how == UNKNOWN and recorded_step_us:
        plain = _estimated(run, recorded_step_us)
    if plain.how == UNKNOWN:
        return Known(plain)
    played = probable = run.played(plain)
    verdicts = {one.verdict for one in played}
    if plain.how == ESTIMATED:  # its ends are unlikely
        probable = [run.likely[1]]
        verdicts = {GPU_BOUND} if probable[0].verdict == GPU_BOUND else verdicts
    if len(verdicts) != 1 or window is None or not len(trace.work):
        return Known(plain)
    plain = msgspec.structs.replace(plain, verdict=verdicts.pop())
    if any(one.leaves_the_gpu for one in probable):
        steps = len(trace.steps) - trace.steps_left_out
        length_ns = round(np.mean([one.step_us for one in probable]) * steps * 1000)
        return Known(plain, path_along_device(trace, cpu, window, length_ns))
    middle_ns = np.mean([one.after_ns for one in probable], axis=0).astype(np.int64)
    return Known(plain, run.replay.play(middle_ns).critical_path(cpu, window))


def _because(plain: PlainRun, trace: Trace, why: str | None) -> PlainRun:
    """Return the same, and if it is unknown, why: of a trace with steps, unless it is said already."""
    if plain.how != UNKNOWN or plain.unknown_because or not len(trace.steps):
        return plain
    return msgspec.structs.replace(plain, unknown_because=why)


def _not_playable(trace: Trace) -> str | None:
    if trace.mixed_processes:
        return "the events of several processes are in this one file"
    if trace.work.is_named(is_collective).any() or trace.annotations.is_named(is_collective_on_cpu).any():
        return "its collectives wait for other ranks"
    return "the launches of too much of its GPU work are missing" if (trace.work.step >= 0).any() else None


def _estimated(run: "RunWithoutProfiler", recorded_step_us: float) -> PlainRun:
    """Return the plain step by the prices; unknown where these are not known."""
    why = None
    if not has_prices(run.trace):
        why = NO_PRICES
    elif run.has_short_functions:
        why = f"it holds {run.functions:,.0f} short functions of Python per step, of which the profiler's cost is not known"
    elif run.told is None:
        why = LONGER
    if why or run.told is None:
        return PlainRun(None, None, None, recorded_step_us, UNKNOWN, unknown_because=why)
    low, middle, high = (share * recorded_step_us for share in run.told)
    return PlainRun(middle, low, high, recorded_step_us, ESTIMATED)


def interval(took: float, gpu: float, has_gpu: bool, is_known_host: bool) -> tuple[float, float, float]:
    """Of a step without the profiler, as shares of the recorded one: the least, the middle and the most. `took`: the share that
    the profiler took by its prices, which are this host's own if it `is_known_host`; `gpu`: what the GPU takes of the recorded
    step at any price, less what it may be less.
    """
    (below, below_by), (above, above_by) = (BELOW, ABOVE) if has_gpu else (CPU_BELOW, CPU_ABOVE)
    if has_gpu and is_known_host:
        below, below_by = BELOW_ON_A_KNOWN_HOST
    middle = 1 - took
    low, high = (
        middle * math.exp(-below - below_by * took),
        min(middle * math.exp(above + above_by * took), 1 + (SPREAD if has_gpu else CPU_SPREAD)),
    )
    return min(max(low, gpu), middle), middle, high


def factors(told: tuple[float, float, float]) -> tuple[float, float]:
    """By which factors the prices are multiplied at both ends of what is told (see `interval`): the dear end first."""
    low, middle, high = told
    took = max(1 - middle, SOUND_SHARE)
    return min(max((1 - low) / took, 1.0), MOST_DEAR), min(max(1 - high, 0.0) / took, 1.0)


def plain_step_of_header(said: Any) -> tuple[float, float, float] | None:
    """Return the lowest, the median and the highest time (us) that a header says; None where it says none that can be."""
    values: list[Any] = [said.get(key) for key in ("low", "median", "high")] if isinstance(said, dict) else []
    if not values or not all(type(us) in (int, float) for us in values):
        return None
    if not SHORTEST_STEP_US <= values[0] <= values[1] <= values[2] <= LONGEST_STEP_US:
        return None
    low, middle, high = (float(us) for us in values)
    return low, middle, high


def has_prices(trace: Trace) -> bool:
    """Return whether the trace is of a kind whose prices were measured: with CUDA's launches, or without a GPU."""
    launches = trace.calls.where(trace.calls.is_named(lambda name: is_launch(name) and name.startswith("cu")))
    return not len(trace.work) or (len(launches) > 0 and launches.median_us >= SHORTEST_LAUNCH_US)


def usual_prices(trace: Trace) -> ProfilerOverhead:
    """Return what the profiler usually costs in such a recording."""
    if not len(trace.work):
        return CPU_PRICES
    return PRICES if trace.header.get("record_shapes") else msgspec.structs.replace(PRICES, op_us=WITHOUT_SHAPES_US)


def is_playable(trace: Trace) -> bool:
    """Return whether a run can be played again by what its trace holds: steps, GPU work whose launches are there (but for a tenth
    at most, and for what was launched before the recording began), and no collectives, which wait for other processes. Without a
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
    """Return a trace's run, to be played again; None where it is not playable."""
    return RunWithoutProfiler(trace) if is_playable(trace) else None


def steps_to_play(trace: Trace) -> int:
    """Return how many of a trace's first steps are played: of a long recording, those with MOST_EVENTS events of the GPU."""
    return max(LEAST_STEPS, MOST_EVENTS * max(len(trace.steps), 1) // max(len(trace.work), 1))


class RunWithoutProfiler:
    """A run, to be played again without what the profiler costs. `prices`: of that. `steps`: how many are played; what is usual
    for the trace, unless given.
    """

    def __init__(self, trace: Trace, steps: int | None = None):
        self.trace = trace
        self._plain_times: list[tuple[np.ndarray, float]] | None = None
        self.replay = Replay(trace, steps or steps_to_play(trace))
        self.unchanged_us = self.replay.play().step_us
        self._marks_steps = bool(trace.steps.is_named(is_step).all())  # the profiler's step() takes its time, too
        self.prices = usual_prices(trace)
        if trace.host_prices and not plain_step_of_header(trace.header.get(PLAIN_STEP)):
            self.prices = self.prices.times(trace.host_prices.factor)

    def with_fewer_steps(self, nodes: int) -> "RunWithoutProfiler":
        """Return the run, or its first steps, four at least (two would tell of one), where it has more nodes than that."""
        steps, all_nodes = len(self.replay.steps), len(self.replay.nodes.recorded_ns)
        fewer = max(LEAST_STEPS + 1, steps * nodes // max(all_nodes, 1))
        return self if all_nodes <= nodes or fewer >= steps else RunWithoutProfiler(self.trace, fewer)

    @property
    def functions(self) -> float:
        """The functions of Python in a step, on average."""
        return float(self._begun[3].sum()) / len(self.replay.steps)

    @property
    def has_short_functions(self) -> bool:
        """Whether its functions of Python are so many that even the price of short ones would leave little of the step."""
        return self.functions * SHORT_FUNCTION_US > MOST_OF_FUNCTIONS * self.unchanged_us

    @cached_property
    def _begun(self) -> tuple[np.ndarray, ...]:
        """In each stretch of the CPU's time, how many ops and annotations begin, how many compiled kernels, how many calls, how
        many functions of Python, and how many allocations and frees are in it.
        """
        trace, stretches = self.trace, self.replay.stretches

        def count(starts_ns: np.ndarray) -> np.ndarray:
            return np.searchsorted(starts_ns, stretches.end_ns) - np.searchsorted(starts_ns, stretches.start_ns)

        compiled = trace.ops.is_named(lambda name: name.startswith("triton_"))
        ops = count(trace.ops.where(~compiled).start_ns) + count(trace.annotations.start_ns)
        besides = count(trace.functions_ns), count(trace.memory.at_ns)
        return ops, count(trace.ops.where(compiled).start_ns), count(trace.calls.start_ns), *besides

    @cached_property
    def _own_work_ns(self) -> np.ndarray:
        """How much of each stretch of the steps' threads the profiler works itself: buffers that it asks for, and the like."""
        slices, stretches = self.trace.slices, self.replay.stretches
        own = Rows(slices, slices.of(Kind.OVERHEAD))
        inside = each_within_ns(stretches.start_ns, stretches.end_ns, merged(own.start_ns, own.end_ns))
        return np.minimum(np.where(stretches.chain == STEPS_CHAIN, inside, 0), stretches.length_ns)

    def replays_as_recorded(self, recorded_step_us: float | None) -> bool:
        """Return whether the run, played again as it was, takes as long as it did: clocks that disagree can make it another one.
        Of a long recording, whether its first steps are like all of them.
        """
        trace, steps = self.trace, self.replay.steps
        if self.unchanged_us <= 0:
            return False
        if recorded_step_us is None:  # of a single step
            return self.replay.is_exact
        if abs(self.unchanged_us - recorded_step_us) > SOUND_SHARE * recorded_step_us:
            return False
        if len(steps) == len(trace.steps):
            return True
        played = self.replay.work.where(self.replay.work.step >= 0).total_us / len(steps)
        every = trace.work.where(trace.work.step >= 0).total_us / len(trace.steps)
        return abs(played - every) <= SOUND_SHARE * every

    def without(self, prices: ProfilerOverhead) -> np.ndarray:
        """Return the times between the replay's nodes with these prices taken away, and what the profiler takes between two
        steps.
        """
        stretches, after_ns = self.replay.stretches, self.replay.nodes.after_ns.copy()
        if prices == NOTHING:
            return after_ns
        ops, compiled, calls, functions, allocations = self._begun
        spent_us = ops * prices.op_us + compiled * prices.compiled_us + calls * prices.call_us
        spent_ns = (spent_us + functions * prices.function_us + allocations * prices.allocation_us) * 1000
        if self._marks_steps:
            spent_ns[stretches.at_edge] += prices.step_us * 500
        length_ns = stretches.length_ns - self._own_work_ns
        left_ns = np.maximum(length_ns - spent_ns, length_ns * LEAST_SHARE)
        between_ns = np.maximum(length_ns - BETWEEN_US * 1000, 0)
        after_ns[stretches.node, 0] = np.where(stretches.between_steps & self._marks_steps, between_ns, left_ns)
        alone_ns = after_ns[self.replay.call_ends, 0]
        after_ns[self.replay.call_ends, 0] = np.maximum(alone_ns - prices.call_us * 1000, alone_ns * LEAST_SHARE)
        return after_ns

    @cached_property
    def likely(self) -> tuple[ProfilerOverhead, Played]:
        """The prices that are likely for this run, and the run without them: where those of an op or a call say that the profiler
        took much of a step, it took less.
        """
        played, factor = self.at(self.prices), 1.0
        took = 1 - self.recorded_times(played)
        if took > MUCH:
            less = MUCH + BEYOND * (took - MUCH)
            # Without a GPU ops can be so short that the prices are more than all of them.
            factor = less / took if len(self.trace.work) else self.factor_at((1 - less) * self.unchanged_us)
        if self.waits_for_workers:
            factor *= AT_A_LOADERS_PACE
        prices = self.prices.times(factor)
        return prices, played if factor == 1 else self.at(prices)

    @cached_property
    def told(self) -> tuple[float, float, float] | None:
        """What is told of a plain step that was not measured, as `interval` has it. None: where a step is longer without what the
        profiler takes, the GPU was busy before.
        """
        at = self.recorded_times(self.likely[1])
        if not 0 < at <= 1 + SOUND_SHARE:
            return None
        # What the GPU takes is known better than what the CPU does, but for what lies between the kernels of a graph.
        less = GRAPH_MARGIN if (self.replay.work.origin == Origin.GRAPH).any() else GPU_MARGIN
        gpu = self.recorded_times(self.at(EVERYTHING)) * (1 - less) if len(self.replay.work) else 0.0
        return interval(max(1 - at, 0.0), gpu, len(self.replay.work) > 0, self.trace.host_prices is not None)

    @property
    def waits_for_workers(self) -> bool:
        """Whether the steps wait for the processes of a DataLoader, which nobody records: what the profiler takes of the program
        may be time in which it would wait longer.
        """
        waits = self.trace.annotations.where(self.trace.annotations.is_named(lambda name: WORKERS in name))
        return waits.where(self.trace.step_at(waits.start_ns) >= 0).total_us > WAITING * self.trace.steps.total_us

    @cached_property
    def ends(self) -> list[Played]:
        """The run at both ends of what is told: at prices by which the profiler took as much."""
        (prices, _), told = self.likely, self.told or (1.0, 1.0, 1.0)
        dear, cheap = factors(told)
        high, low, played = cheap, 0.0, self.at(prices.times(cheap))
        for _ in range(TRIES_OF_AN_END):  # where the GPU hides what the CPU takes, the prices of the longest step are lower
            if self.recorded_times(played) >= told[2] * (1 - SPREAD):
                break
            middle = (low + high) / 2
            tried = self.at(prices.times(middle))
            if self.recorded_times(tried) > told[2] * (1 + SPREAD):
                low = middle
            else:
                high, played = middle, tried
        return [self.at(prices.times(dear)), played]

    def recorded_times(self, played: Played) -> float:
        """Return how many times as long as the recorded one a step of the run is then; once, where that takes no time."""
        return played.step_us / self.unchanged_us if self.unchanged_us else 1.0

    def played(self, plain: PlainRun) -> list[Played]:
        """Return the plain run: of one that was not measured, at both ends; where it is not known, the recorded one. None, where
        no price explains it.
        """
        if plain.how == UNKNOWN:
            return [self.replay.play()]
        recorded_us = plain.recorded_step_us or self.unchanged_us
        if plain.how == MEASURED and plain.step_us:
            share = plain.step_us / recorded_us
            # Without a GPU a recorded step can be the shorter one: the machine was busier meanwhile.
            prices = self.prices_at(share if len(self.trace.work) else min(share, 1.0))
            if prices is None:
                return []
            dearest = self._dearest(prices, share * self.unchanged_us)
            return [self.at(one) for one in ((prices,) if dearest == prices else (prices, dearest))]
        return self.ends if self.told else []

    def plain_times(self, plain: PlainRun) -> list[tuple[np.ndarray, float]]:
        """Return the times between the nodes of the plain run, each with the time of a step (us) that is played with them. Worked
        out once.
        """
        if self._plain_times is None:
            played = self.played(plain)
            if played and plain.how == ESTIMATED:  # a change can show more of the CPU than the plain step does
                played = [*played, self.at(self.prices.times(DEARER))]
            self._plain_times = [(one.after_ns, one.step_us) for one in played]
        return self._plain_times

    def prices_at(self, share: float) -> ProfilerOverhead | None:
        """Return the prices, all by one factor, at which a step takes this share of the recorded one; None: it does at no
        price.
        """
        step_us = share * self.unchanged_us
        if share >= 1:  # within a round's spread the profiler cost nothing; a longer step no price explains
            return NOTHING if share <= 1 + SPREAD else None
        if step_us * (1 - SPREAD) <= self._step_us(self.prices) <= step_us * (1 + MARGIN):
            return self.prices
        shortest_us = self._step_us(self.prices.times(MOST_DEAR))
        if shortest_us > step_us * (1 + MARGIN):
            return None
        # Of a GPU that limits it, the lowest prices at which it does.
        return self.prices.times(self.factor_at(max(step_us, shortest_us * (1 + SOUND_SHARE / 2))))

    def factor_at(self, step_us: float) -> float:
        """Return how many times the prices leave so long a step, at most MOST_DEAR."""
        low, high = 0.0, MOST_DEAR
        for _ in range(TRIES):
            middle = (low + high) / 2
            low, high = (middle, high) if self._step_us(self.prices.times(middle)) > step_us else (low, middle)
        return high

    def _dearest(self, prices: ProfilerOverhead, step_us: float) -> ProfilerOverhead:
        """Return where higher prices leave the step as long, since the GPU limits it: the highest that are tried; else these. A
        measured step then does not tell what the CPU takes.
        """
        highest = prices.times(MOST_DEAR)
        return highest if prices != NOTHING and self._step_us(highest) >= step_us * (1 - SPREAD) else prices

    def _step_us(self, prices: ProfilerOverhead) -> float:
        return self.at(prices).step_us

    def at(self, prices: ProfilerOverhead) -> Played:
        """Return the run with these prices taken away."""
        return self.replay.play(self.without(prices))
