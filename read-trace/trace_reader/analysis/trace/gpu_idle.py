"""Idle time of a GPU: between which events it did nothing, and why. This is apart from the critical path: a gap need not cost."""

import msgspec
import numpy as np
from trace_reader.analysis.trace.cpu_time import CpuActivity
from trace_reader.link.trace import Trace
from trace_reader.link.waits import LATE_END_NS, Reason
from trace_reader.model.rows import Rows
from trace_reader.names.kernel_names import decode_name

MOST_GAPS = 5  # that are told one by one
IN_A_WAIT = "a synchronization that returns late"


class Gap(msgspec.Struct, frozen=True):
    """One gap: `start_us` from the file's first slice; labels of the events `before` and `after`; the `cause` of most of it."""

    start_us: float
    duration_us: float
    before: str
    after: str
    cause: str


class IdleFacts(msgspec.Struct, frozen=True):
    """A device's idle time. The causes, the largest first, sum up to it: `latency` (the next event was launched already), what
    the CPU did until it launched (as in cpu_time, with `input`), `a synchronization that returns late` (the CPU still waited for
    the GPU, which had nothing to do any more), `unknown` (no launch in the trace).
    """

    total_us: float
    causes: tuple[tuple[str, float], ...]
    gaps: tuple[Gap, ...]  # the largest


def idle_facts(trace: Trace, cpu: CpuActivity, device: int | str, start_ns: int, end_ns: int) -> IdleFacts:
    """Return the idle time of a device between two moments (ns from the first slice)."""
    slices = trace.slices
    work = _work_of(trace, device, start_ns, end_ns)
    begins, ends, at = gaps(trace, device, start_ns, end_ns)
    after = work.where(at)
    launched = after.call >= 0
    launch_ns = np.where(launched, np.clip(slices.start_ns[after.call], begins, ends), begins)
    track = np.where(launched, slices.track[after.call], -1)
    freed_ns = _last_end_in(trace.waits, begins, launch_ns)  # from then on the CPU could go on
    late = launched & (launch_ns > begins)
    spent = cpu.time(freed_ns[late], launch_ns[late], track[late])
    causes = {
        **spent.what_us,
        "input": spent.input_us,
        IN_A_WAIT: int((freed_ns - begins)[late].sum()) / 1000,
        "latency": int((ends - launch_ns)[launched].sum()) / 1000,
        "unknown": int((ends - begins)[~launched].sum()) / 1000,
    }
    largest = np.argsort(begins - ends, kind="stable")[:MOST_GAPS]
    before = np.array([int(np.argmax(work.end_ns[:index])) if index else -1 for index in at[largest].tolist()], np.int64)
    told_gaps = []
    for index, earlier in zip(largest.tolist(), before.tolist(), strict=True):
        parts = {"latency": int(ends[index] - launch_ns[index]), IN_A_WAIT: int(freed_ns[index] - begins[index]) * late[index]}
        if not launched[index]:
            parts = {"unknown": 1}
        else:
            one = slice(index, index + 1)
            alone = cpu.time(freed_ns[one], launch_ns[one], track[one]) if late[index] else None
            parts |= {name: round(us * 1000) for name, us in alone.what_us.items()} if alone else {}
            parts["input"] = round(alone.input_us * 1000) if alone else 0
        told_gaps.append(
            Gap(
                int(begins[index]) / 1000,
                int(ends[index] - begins[index]) / 1000,
                _label(work, earlier) if earlier >= 0 else "the window's start",
                _label(after, index),
                max(parts, key=lambda name: parts[name]),
            )
        )
    total_us = int((ends - begins).sum()) / 1000
    told = tuple(sorted(((name, us) for name, us in causes.items() if us > 0), key=lambda item: (-item[1], item[0])))
    return IdleFacts(total_us, told, tuple(told_gaps))


def gaps(trace: Trace, device: int | str, start_ns: int, end_ns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the stretches between two moments in which a device did nothing until it had work again: their starts, their ends
    (ns), and which of the device's work there comes after each.
    """
    one = _work_of(trace, device, start_ns, end_ns)
    reached = np.append(start_ns, np.maximum.accumulate(one.end_ns))
    at = np.flatnonzero((one.start_ns > reached[:-1]) & (reached[:-1] >= start_ns))
    return np.maximum(reached[at], start_ns), one.start_ns[at], at


def _work_of(trace: Trace, device: int | str, start_ns: int, end_ns: int) -> Rows:
    on_device = np.array([name == device for name, _ in trace.slices.tracks])
    rows = trace.work.where(on_device[trace.work.track])
    return rows.where((rows.end_ns > start_ns) & (rows.start_ns < end_ns))


def _last_end_in(calls: Rows, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each stretch: when the last of the calls that waited for the GPU as it began had returned (its clock may be early);
    else its begin.
    """
    calls = calls.where(calls.reason != Reason.QUEUE)
    order = np.argsort(calls.start_ns, kind="stable")
    reached = np.append(np.maximum.accumulate(calls.end_ns[order]), np.iinfo(np.int64).min)
    last = reached[np.searchsorted(calls.start_ns[order], begins, "right") - 1]
    return np.where(last >= begins - LATE_END_NS, np.clip(last, begins, ends), begins)


def _label(rows: Rows, index: int) -> str:
    return decode_name(rows[index].name).label
