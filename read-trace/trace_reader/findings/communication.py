"""What several GPUs say to each other, and who waits for whom."""

from collections import defaultdict
import math

import numpy as np
from trace_reader.analysis.collectives import collectives
from trace_reader.analysis.facts import Facts
from trace_reader.findings.registry import Seen, a_step, finding
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.kernel_names import is_collective
from trace_reader.units import about, count, us

WORTH_TELLING = 0.05  # of the path
WAITING = 0.3  # of the time in collectives
FEWEST_CALLS = 3  # of one size, to tell a long one by
FEW_CALLS = 2  # a step
MOSTLY = 0.8


@finding(
    "exposed-communication",
    "the GPU's lanes of compute are white while one of NCCL is not",
    "the stream of the NCCL kernels, and the one of the GEMMs at the same time",
    "Communication that no computing hides: the step waits for the other GPUs, or for one that is late.",
    "Look first for a rank that is late: its own collectives are short. Else overlap it with computing, or send less.",
)
def _exposed_communication(trace: Trace, facts: Facts) -> Seen | None:
    path, times = facts.critical_path, facts.timeline
    if path is None or times is None or times.exposed_communication_us < WORTH_TELLING * times.window_us:
        return None
    share = times.exposed_communication_us / times.window_us
    seen = (
        f"{us(times.exposed_communication_us)} of {us(times.communication_us)} of communication run while nothing is computed: "
    )
    rows = trace.linked.where(trace.linked.is_named(is_collective))
    next = ""
    if len(rows) <= FEW_CALLS * max(len(facts.steps), 1) and times.exposed_communication_us > MOSTLY * times.communication_us:
        calls = a_step(len(rows), facts, "collective", "collectives")
        next = (
            f"There is {calls}, and nothing left to compute beside it: send in several parts while the backward pass goes on "
            "(DistributedDataParallel's bucket_cap_mb)."
        )
    return Seen(f"{seen}{about(share)} of the time", rows, next, share)


@finding(
    "late-rank-suspected",
    "equal collectives take very different times",
    "the durations of the NCCL kernels that carry equal bytes",
    "A collective ends when the last rank has come: the fastest of equal ones shows what the transfer takes, and what the others "
    "take beyond it is waiting for another rank.",
    "Read the other ranks' traces: the late one is the one whose collectives are short.",
)
def _late_rank(trace: Trace, facts: Facts) -> Seen | None:
    waited_us, total_us, slow = 0.0, 0.0, []
    by_step: dict[int, float] = defaultdict(float)
    fastest_us, slowest_us = math.inf, 0.0
    for said, rows in collectives(trace):
        if len(rows) < FEWEST_CALLS or (said.group_size or 0) < 2:
            continue
        least_us = float(rows.duration_us.min())
        total_us += rows.total_us
        waited_us += rows.total_us - len(rows) * least_us
        for (step,), own in rows.by(rows.step):
            by_step[step] += own.total_us - len(own) * least_us
        longer = rows.where(rows.duration_us > 2 * least_us)
        slow.append(longer.at)
        if len(longer) and longer.duration_us.max() > slowest_us:
            fastest_us, slowest_us = least_us, float(longer.duration_us.max())
    path, times = facts.critical_path, facts.timeline
    if path is None or times is None or not slowest_us or waited_us < max(WAITING * total_us, WORTH_TELLING * path.window_us):
        return None
    late = Rows(trace.slices, np.sort(np.concatenate(slow)))
    seen = (
        f"of {us(total_us)} in collectives at least {us(waited_us)} is waiting for another rank: {count(len(late), 'call')} took "
        f"more than twice as long as the fastest of equal size, one of them {us(slowest_us)} beside {us(fastest_us)}"
    )
    step = max(by_step, key=lambda step: by_step[step])
    if step >= 0 and len(by_step) > 1 and by_step[step] > MOSTLY * waited_us:
        seen += f"; {us(by_step[step])} of it in {trace.steps[step].name}"
    # What is computed meanwhile costs nothing.
    exposed = times.exposed_communication_us / times.window_us
    return Seen(seen, late, share=min(path.explained_us(late) / path.window_us, exposed))
