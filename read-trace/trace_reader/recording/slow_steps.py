"""A schedule for torch.profiler that records around slow steps.

To record always, and to keep what was slow, costs a step that the CPU limits half of its time (docs/profiler_cost.md). So steps
are timed only, by the CPU's clock from one call of step() to the next. Recorded is what comes after a slow one: the next steps;
and where a step is about as slow as an earlier one, those around the step that comes as far behind it as that came before. What
is slow every so many steps is recorded so; what is slow once is not.
"""

from collections import deque
from collections.abc import Callable
import statistics
import time
from typing import Any

from trace_reader.units import us

LEAST_STEPS, MOST_STEPS = 20, 60  # of whose times the median is taken
EVERY = 10  # steps it is worked out anew
ALIKE = 2.0  # times as long, that two slow steps are of one kind


class SlowSteps:
    """`times`: the median step, so many times, is slow. `warmup`, `active`: as torch.profiler.schedule has them; `repeat`: traces
    at most. `say` is told of each slow step that something is recorded for. Not timed are recorded steps, and the one in which a
    trace is written.
    """

    def __init__(self, times: float, say: Callable[[str], object], warmup: int = 1, active: int = 3, repeat: int = 3):
        if not 1 < times < float("inf") or warmup < 1 or active < 1 or repeat < 1:
            raise ValueError("a slow step takes more than once the median; warmup, active and repeat are 1 or more")
        self.times, self.warmup, self.active, self.repeat = times, warmup, active, repeat
        self._say = say
        self._taken_s: deque[float] = deque(maxlen=MOST_STEPS)  # slow ones, too: where all are, that is the usual
        self._seen = 0  # timed steps
        self._limit_s = float("inf")
        self._was_slow = False  # whether the timed step before was: steps that are slow in a row are one slowdown
        self._begun_s = 0.0
        self._is_quiet = False  # whether the step that ends now was neither recorded nor that in which a trace was written
        self._first: int | None = None  # the first step that is to be recorded
        self._last = -1  # the last step that was
        self._slow: deque[tuple[int, float]] = deque(maxlen=MOST_STEPS)  # the slow steps, and how long each took (s)
        self._foretold: tuple[int, float] | None = None  # the slow step that is to be recorded, and how long one like it took (s)
        self._recorded = 0
        self.header: dict[str, Any] = {}

    def __call__(self, number: int) -> Any:
        """Return what the profiler is to do in this step, which begins now."""
        from torch.profiler import ProfilerAction

        now_s = time.perf_counter()
        if self._is_quiet:
            self._see(number - 1, now_s - self._begun_s)
        first = self._first
        waits = first is None or number < first - self.warmup
        self._begun_s, self._is_quiet = now_s, waits and number != self._last + 1
        if first is None or waits:
            return ProfilerAction.NONE
        if number < first:
            return ProfilerAction.WARMUP
        if number < first + self.active - 1:
            return ProfilerAction.RECORD
        self._first, self._last, self._recorded = None, number, self._recorded + 1
        if self._foretold:
            self._slow.append(self._foretold)
            self._foretold = None
        return ProfilerAction.RECORD_AND_SAVE

    def _see(self, step: int, took_s: float) -> None:
        limit_s = self._limit_s
        self._taken_s.append(took_s)
        self._seen += 1
        if self._seen >= LEAST_STEPS and self._seen % EVERY == 0:
            self._limit_s = self.times * statistics.median(self._taken_s)
        was_slow, self._was_slow = self._was_slow, took_s > limit_s
        if not self._was_slow or was_slow or self._recorded >= self.repeat:
            return
        alike = [at for at, of_it_s in self._slow if took_s / ALIKE < of_it_s < took_s * ALIKE]
        is_slowest = all(took_s > of_it_s for _, of_it_s in self._slow)
        self._slow.append((step, took_s))
        is_less = self._foretold is not None and took_s * ALIKE <= self._foretold[1]  # than the one that is waited for
        if not is_less and (alike or (is_slowest and self._first is None)):
            self._plan(step, took_s, limit_s / self.times, 2 * step - alike[-1] if alike else None)

    def _plan(self, step: int, took_s: float, median_s: float, next_one: int | None) -> None:
        """Decide what to record after a slow step: around the next one of its kind, where it is foretold."""
        soonest = step + 1 + self.warmup
        self._first = soonest if next_one is None else max(soonest, next_one - self.active // 2)
        self._foretold = None if next_one is None else (next_one, took_s)
        last = self._first + self.active - 1
        self.header = {"slow_step": {"step": step, "us": round(took_s * 1e6, 3), "median_us": round(median_s * 1e6, 3)}}
        self._say(
            f"step {step} took {us(took_s * 1e6)}, {took_s / median_s:.1f} times the median ({us(median_s * 1e6)}); "
            f"steps {self._first} to {last} will be recorded"
        )
