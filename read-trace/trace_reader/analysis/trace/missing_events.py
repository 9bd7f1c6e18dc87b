"""What a trace lacks although the program did it. What is not recorded must not read as "no problem"."""

import numpy as np
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among
from trace_reader.names.call_names import begins_capture, is_copy, is_launch
from trace_reader.units import count, percent, us

MOST_UNREAD = 0.01  # of the events
MOST_EARLY = 0.1  # of the GPU events with a launch
MOST_WITHOUT_WORK = 0.1  # of the launches: those of the last moments are always cut off
MOST_UNEXPLAINED = 0.1  # of the steps' time (without steps, of all)


def missing(trace: Trace) -> tuple[str, ...]:
    """Return what the trace lacks, in words. Each of these could change the verdict."""
    found = []
    if trace.header.get("unread"):
        found.append("the part of the file that is not read")
    elif trace.header.get("truncated"):
        found.append("the cut-off end of the file")
    elif trace.header.get("damaged"):
        found.append("the damaged parts of the file")
    lost = trace.skipped.get("malformed", 0)
    if lost >= MOST_UNREAD * trace.total:
        found.append(f"{count(lost, 'event')} that could not be read")
    if unknown := trace.skipped.get("unknown device", 0):
        found.append(f"what {count(unknown, 'event')} of a kind of device that this reader does not know would say")
    if processes := trace.mixed_processes:
        a_job = "let each write a file of its own: read-trace FOLDER then reads them as a job"
        found.append(f"a way to tell apart the {processes} processes whose events are in this one file ({a_job})")
    if len(trace.early_us) >= MOST_EARLY * max(int((trace.work.call >= 0).sum()), 1):
        most = us(float(trace.early_us.max()))
        found.append(
            f"one clock ({count(len(trace.early_us), 'GPU event begins', 'GPU events begin')} up to {most} before the launch)"
        )
    calls = trace.calls
    if not len(trace.work):
        if not len(trace.ops) and not calls.is_named(is_launch).any() and not found:
            found.append(f"any op or kernel (it holds {_held(trace)}): run the program inside the profile() block")
        return tuple(found)
    spans = trace.steps if len(trace.steps) else Rows(trace.slices, np.arange(len(trace.slices)))
    length_us = float(spans.end_ns.max() - spans.start_ns.min()) / 1000
    launches = calls.where(calls.is_named(is_launch))
    without = _without_work(trace, launches)
    if len(launches) and without.mean() >= MOST_WITHOUT_WORK:
        share = percent(float(without.mean()))
        words = f"the GPU events of {share} of the launches"
        if calls.is_named(begins_capture).any():
            words += " (a graph was captured)"
        found.append(words)
    copies = calls.where(calls.is_named(lambda name: is_launch(name) or is_copy(name)))
    copies = copies.where(_without_work(trace, copies))
    copies = copies.where(trace.step_at(copies.start_ns) >= 0) if len(trace.steps) else copies
    if not found and copies.total_us > MOST_UNEXPLAINED * length_us:
        found.append(f"the GPU events of {count(len(copies), 'call')} that {us(copies.total_us)} were spent in")
    if not found and trace.outlasting_us.sum() > MOST_UNEXPLAINED * length_us:
        longest = us(float(trace.outlasting_us.max()))
        many = len(trace.outlasting_us)
        found.append(f"GPU work that {count(many, 'call waits', 'calls wait')} for, {'up to ' * (many > 1)}{longest}")
    if not found and trace.outlived[2].sum() > MOST_UNEXPLAINED * length_us:
        found.append("times that fit: what is called ends long after what called it")
    if len(trace.steps) and not (trace.work.step >= 0).any():
        found.append(f"GPU work of the {count(len(trace.steps), 'recorded step')}")
    return tuple(found)


def _without_work(trace: Trace, calls: Rows) -> np.ndarray:
    """For each call, whether no GPU event is of it."""
    return ~(among(calls.correlation, trace.work.correlation) | among(calls.at, trace.work.call))


def _held(trace: Trace) -> str:
    """Return what a trace without ops and kernels holds."""
    names = (("annotation", len(trace.annotations) + len(trace.steps)), ("call", len(trace.calls)))
    return " and ".join(count(n, name) for name, n in names if n) or count(len(trace.slices), "event")
