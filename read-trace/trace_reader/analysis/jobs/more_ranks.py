"""What the collectives of a job take on more ranks than were recorded, by the formula of a ring: a model, not a measurement.

A ring of n ranks sends an all-reduce in 2 (n - 1) steps, of 1/n of the message each, and an all-gather, a reduce-scatter or an
all-to-all in n - 1 (the factors: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). A transfer of time t on n
ranks, of which each step's latency is a, takes on N ranks: steps(N) a + (t - steps(n) a) factor(N) / factor(n).
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from trace_reader.analysis.jobs.job_run import JobRun
from trace_reader.analysis.replay.edits import Edited
from trace_reader.analysis.trace.collectives import bus_factor, collective_calls, messages_of, plain_name
from trace_reader.link.trace import Trace

SMALL = 64 << 10  # bytes, whose transfer is latency
GPU_LIMITS = 0.85  # of a step without the profiler, that each GPU computes


class MoreRanks:
    """The collectives of a job's ranks, as if there were `ranks`. `matched`: how many of which kinds; `latency_us`: of a step of
    the ring, at most, as a small message of the job tells it; 0 where none does. Raises LookupError: there are as many ranks
    already, a GPU computes for less than GPU_LIMITS of a step, or no collective is of all ranks and of a kind with a formula.
    """

    def __init__(self, run: JobRun, traces: Sequence[Trace], ranks: int):
        recorded = len(traces)
        if ranks <= recorded:
            raise LookupError(f"'ranks {ranks}': the job has {recorded}; expected more")
        if run.computing_share < GPU_LIMITS:
            because = f"a GPU computes for less than {GPU_LIMITS:.0%} of a step"
            raise LookupError(f"'ranks {ranks}': {because}, and what else takes longer among more ranks no trace tells")
        self.ranks, self._rings = ranks, list[np.ndarray]()
        names, small_us = Counter[str](), list[float]()
        for place, trace in enumerate(traces):
            transfer_us = run.replay.transfers_us(place)
            kernel_of = {row: kernel for kernel, row in enumerate(run.replay.replays[place].work.at.tolist())}
            calls, rings = collective_calls(trace), list[tuple[float, ...]]()
            for row, message, size, group in zip(
                calls.at.tolist(), messages_of(calls), calls.bytes.tolist(), calls.group_size.tolist(), strict=True
            ):
                if row not in kernel_of:  # of a step that is not played
                    continue
                now, then = bus_factor(message.name, recorded), bus_factor(message.name, ranks)
                us = transfer_us.get(kernel_of[row], 0.0)
                if group != recorded or not now or not then or us <= 0:
                    continue
                passes = 2 if plain_name(message.name).startswith("allreduce") else 1
                steps = passes * (recorded - 1)
                rings.append((kernel_of[row], us, steps, passes * (ranks - 1), then / now))
                names[message.name] += 1
                if size <= SMALL:
                    small_us.append(us / steps)
            self._rings.append(np.array(rings, float).reshape(-1, 5).T)
        if not names:
            raise LookupError(f"'ranks {ranks}': no collective of all {recorded} ranks has a formula")
        self.latency_us = min(small_us, default=0.0)
        self.matched = f"{', '.join(f'{n} x {name}' for name, n in sorted(names.items()))}, as rings of {ranks}"

    def change(self, runs: Sequence[Edited], latency: float) -> None:
        """Let the transfers of all ranks be those of the rings; `latency`: what share of `latency_us` each of their steps has."""
        step_us = latency * self.latency_us
        for run, (kernel, us, steps, more_steps, factor) in zip(runs, self._rings, strict=True):
            factors = np.ones(len(run.replay.work))
            factors[kernel.astype(int)] = (more_steps * step_us + np.maximum(us - steps * step_us, 0.0) * factor) / us
            run.scale(factors)
