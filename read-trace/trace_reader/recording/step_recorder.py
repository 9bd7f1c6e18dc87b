"""Times and records the steps of a program that runs: `ended` is called where one ends, and the next begins."""

from collections.abc import Callable
import contextlib
import itertools
import math
from pathlib import Path
import time
from typing import Any

from trace_reader.names.file_names import STACKS_NAME
from trace_reader.recording.handler import is_on_gpu, synchronize, write_trace
from trace_reader.recording.header import Stopwatch, plain_step_us
from trace_reader.units import us

FEWEST_TO_WARM, MOST_TO_WARM, MOST_WARMING_S = 5, 40, 60.0
ALIKE, LAST = 1.25, 3  # warm: the last ones take as long as each other, up to this factor
STRETCHES, FEWEST, MOST, STRETCH_S = 5, 3, 200, 0.2  # of steps without the profiler: how many each, to take so long
OF_A_RANK = 8, 4  # steps to warm up, and of a stretch: all ranks of a job must end in the same step
RECORDED, WITH_STACKS = 3, 2  # steps, each after one in which the profiler warms up
PAUSE, MOST_PAUSES = 5, 1 / 3  # between steps on a CPU: so many times as long as most, of so many of them at most
# Steps, with two by which they are found and two in which the profiler warms up.
FEWEST_OF_A_PROGRAM = 2 + FEWEST_TO_WARM + STRETCHES * FEWEST + 2 + RECORDED + WITH_STACKS
FEWEST_OF_A_RANK = 2 + OF_A_RANK[0] + STRETCHES * OF_A_RANK[1] + 2 + RECORDED + WITH_STACKS


class StepRecorder:
    """Warms up, times steps without the profiler in STRETCHES, records RECORDED with shapes into `folder`/trace.json (of a job
    trace_rank0.json), and WITH_STACKS with stacks beside it, on a GPU with its memory; `is_done` then. `only_timed`: records
    nothing. `has`: how many steps there are, where they are few. `say` is told what it does. `soon` calls something, now or when
    whatever told of a step's end has returned: what is told from inside a callback of sys.monitoring has no returns of functions
    in a recording with stacks, if that begins there.
    """

    def __init__(
        self,
        folder: Path,
        rank: int | None = None,
        only_timed: bool = False,
        has: int | None = None,
        say: Callable[[str], object] = lambda text: None,
        soon: Callable[[Callable[[], object]], object] = lambda call: call(),
    ):
        self.folder, self.rank, self.only_timed, self.has, self._say, self._soon = folder, rank, only_timed, has, say, soon
        self.trace = folder / f"trace{'' if rank is None else f'_rank{rank}'}.json"
        self.begin()

    def begin(self) -> None:
        """Begin anew: what was taken for a step was none."""
        self.times_us: list[float] = []  # of a step without the profiler, one for each stretch
        self.steps = 0  # that were timed
        self.pauses_us: list[float] = []  # that are no part of a step: an evaluation between two, say
        self.recorded = 0
        self.is_done = False
        self._ended_s: list[float] = []
        self._length = self._left = 0
        self._watch: Stopwatch | None = None
        self._profiler: Any = None
        self._now: Callable[[], None] = self._warm

    def ended(self) -> None:
        """A step has ended."""
        self._now()

    def abandon(self) -> None:
        """The program has ended, in the middle of a recording or not: what then is recorded is of no use."""
        if self._profiler is not None:
            profiler, self._profiler = self._profiler, None
            with contextlib.suppress(Exception):
                profiler.stop()

    def _warm(self) -> None:
        self._ended_s.append(time.perf_counter())
        took_s = [b - a for a, b in itertools.pairwise(self._ended_s)]
        if not self._is_warm(took_s):
            return
        length = min(MOST, max(FEWEST, math.ceil(STRETCH_S / max(min(took_s[-LAST:]), 1e-6))))
        if self.has is not None:
            length = min(length, (self.has - FEWEST_OF_A_PROGRAM) // STRETCHES + FEWEST)
        self._length = self._left = length if self.rank is None else OF_A_RANK[1]
        recorded = "" if self.only_timed else f", then {RECORDED} and {WITH_STACKS} recorded"
        self._say(f"{us(min(took_s[-LAST:]) * 1e6)} or more each: {STRETCHES * self._length} are timed{recorded}")
        self._begin_stretch()
        self._now = self._time

    def _is_warm(self, took_s: list[float]) -> bool:
        if self.rank is not None:
            return len(took_s) >= OF_A_RANK[0]
        last_s = took_s[-LAST:]
        if len(took_s) < FEWEST_TO_WARM or self.has is not None:
            return len(took_s) >= FEWEST_TO_WARM
        return max(last_s) <= ALIKE * min(last_s) or len(took_s) >= MOST_TO_WARM or sum(took_s) >= MOST_WARMING_S

    def _time(self) -> None:
        assert self._watch is not None
        self._left -= 1
        self._ended_s.append(time.perf_counter())
        if self._left:
            return
        pauses_us = [] if is_on_gpu() else _pauses_us(self._ended_s)
        steps = self._length - len(pauses_us)
        self.times_us.append((self._watch.step_us(1) - sum(pauses_us)) / steps)
        self.pauses_us += pauses_us
        self.steps += steps
        if len(self.times_us) < STRETCHES:
            self._begin_stretch()
        elif self.only_timed:
            self.is_done = True
        else:
            self._start(RECORDED, self.trace, record_shapes=True)

    def _begin_stretch(self) -> None:
        self._watch, self._left, self._ended_s = Stopwatch(synchronize), self._length, [time.perf_counter()]

    def _start(self, steps: int, path: Path, **options: Any) -> None:
        from torch.profiler import schedule
        from torch.profiler.profiler import profile  # not the one that a program that is tried sees

        def written(profiler: Any) -> None:
            write_trace(profiler, path, plain_step_us(self.times_us, self.steps))

        self._profiler = profile(
            schedule=schedule(wait=0, warmup=1, active=steps, repeat=1), on_trace_ready=written, acc_events=True, **options
        )
        self._profiler.start()
        self._left, self._now = 1 + steps, self._record

    def _record(self) -> None:
        if self.recorded:  # with stacks
            self._soon(self._step)
        else:
            self._step()

    def _step(self) -> None:
        if self._profiler is None:  # it was abandoned before it came to this
            return
        self._profiler.step()
        self._left -= 1
        if self._left:
            return
        self._profiler.stop()
        self._profiler = None
        if self.recorded:
            self.is_done = True
            return
        self.recorded = RECORDED
        stacks = self.trace.with_name(f"{self.trace.stem}{STACKS_NAME}.json")
        self._start(WITH_STACKS, stacks, record_shapes=True, with_stack=True, profile_memory=is_on_gpu())


def _pauses_us(ended_s: list[float]) -> list[float]:
    """Return which of the times between these ends of steps are none of a step's. Where a CPU runs ahead of a GPU it has such,
    too.
    """
    took_s = sorted(b - a for a, b in itertools.pairwise(ended_s))
    pauses = [one for one in took_s if one > PAUSE * took_s[len(took_s) // 2]]
    return [one * 1e6 for one in pauses] if len(pauses) <= MOST_PAUSES * len(took_s) else []
