"""Communication between GPUs, and ranks that wait for each other."""

from collections import defaultdict
import math

import numpy as np
from trace_reader.analysis.trace.collectives import collectives, waits_for_all
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.registry import Seen, a_step, finding
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.names.kernel_names import is_collective
from trace_reader.units import about, count, us

MIN_SHARE_OF_PATH = 0.05  # of the path
WAITING = 0.3  # of the time in collectives
FEWEST_CALLS = 3  # of one size, to tell a long one by
FEW_CALLS = 2  # a step
MIN_SHARE_OF_MESSAGES = 0.8
SMALL_US, MANY_SMALL = 20, 50  # of a collective; a step


@finding(
    "exposed-communication",
    "NCCL kernels run while the compute streams are idle",
    "the streams of the NCCL kernels and of the GEMMs, side by side",
    "Communication is exposed: the GPU computes nothing while it transfers data or waits for another rank.",
    "Look for a straggler first: a rank whose own collectives are short. If there is none, overlap communication with compute, "
    "or send less.",
)
def _exposed_communication(trace: Trace, facts: Facts) -> Seen | None:
    path, times = facts.critical_path, facts.gpu_time
    if path is None or times is None or times.exposed_communication_us < MIN_SHARE_OF_PATH * times.window_us:
        return None
    share = times.exposed_communication_us / times.window_us
    seen = f"{us(times.exposed_communication_us)} of {us(times.communication_us)} of communication are exposed: "
    rows = trace.linked.where(trace.linked.is_named(is_collective))
    next = ""
    if (
        len(rows) <= FEW_CALLS * max(len(facts.steps), 1)
        and times.exposed_communication_us > MIN_SHARE_OF_MESSAGES * times.communication_us
    ):
        calls = a_step(len(rows), facts, "collective", "collectives")
        next = f"If these are gradients, send them in more buckets during the backward pass (DDP's bucket_cap_mb): now {calls}."
    small = rows.where(rows.duration_us < SMALL_US)
    if len(small) >= MANY_SMALL * max(len(facts.steps), 1) and small.total_us > MIN_SHARE_OF_MESSAGES * rows.total_us:
        calls = a_step(len(small), facts, "collective", "collectives")
        next = f"Send more with each call: {calls} take less than {SMALL_US} µs (median {us(small.median_us)})."
    return Seen(f"{seen}{about(share)} of the time", rows, next, min(path.classes["communication"], share))


@finding(
    "late-rank-suspected",
    "equal collectives take very different times",
    "the durations of NCCL kernels that carry equal bytes",
    "Collectives of equal size take different times. A collective ends only when the last rank has joined, so the long ones "
    "may be waiting for a straggler.",
    "Read all ranks together (read_trace.py JOB_rank*.json): the straggler's own collectives are short.",
)
def _late_rank(trace: Trace, facts: Facts) -> Seen | None:
    waited_us, total_us, slow = 0.0, 0.0, []
    by_step: dict[int, float] = defaultdict(float)
    fastest_us, slowest_us = math.inf, 0.0
    for said, rows in collectives(trace):
        if len(rows) < FEWEST_CALLS or (said.group_size or 0) < 2 or not waits_for_all(said.name):
            continue
        least_us = float(rows.duration_us.min())
        total_us += rows.total_us
        waited_us += rows.total_us - len(rows) * least_us
        for (step,), row in rows.by(rows.step):
            by_step[step] += row.total_us - len(row) * least_us
        longer = rows.where(rows.duration_us > 2 * least_us)
        slow.append(longer.at)
        if len(longer) and longer.duration_us.max() > slowest_us:
            fastest_us, slowest_us = least_us, float(longer.duration_us.max())
    path, times = facts.critical_path, facts.gpu_time
    if path is None or times is None or not slowest_us or waited_us < max(WAITING * total_us, MIN_SHARE_OF_PATH * path.window_us):
        return None
    late = Rows(trace.slices, np.sort(np.concatenate(slow)))
    seen = (
        f"{us(waited_us)} of {us(total_us)} in collectives exceeds the fastest call of equal size; "
        f"{count(len(late), 'call')} took over twice as long, one of them {us(slowest_us)} instead of {us(fastest_us)}"
    )
    step = max(by_step, key=lambda step: by_step[step])
    if step >= 0 and len(by_step) > 1 and by_step[step] > MIN_SHARE_OF_MESSAGES * waited_us:
        seen += f"; {us(by_step[step])} of it in {trace.steps[step].name}"
    # What is computed meanwhile costs nothing.
    exposed = times.exposed_communication_us / times.window_us
    return Seen(seen, late, share=min(path.explained_us(late) / path.window_us, exposed))
