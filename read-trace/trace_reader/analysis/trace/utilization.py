"""How much of a step a device would need at its peak: the model FLOP utilization (MFU).

The operations of a step over what the device could do in that time (Chowdhery et al., PaLM, arXiv:2204.02311, section 4.1), each
at the peak for its type. Operations are counted as the trace has them: what a backward pass computes again (activation
checkpointing) counts, as it does in that paper's hardware FLOP utilization, and not in its MFU.
"""

import msgspec
from trace_reader.analysis.trace.facts import Facts

MOST_UNKNOWN = 0.5  # of the GPU's time, in ops whose operations are not known: then nothing is told
PRODUCT_KINDS = ("gemm", "convolution", "attention")


class Utilization(msgspec.Struct, frozen=True):
    """`flop`: of a step, of all ops whose operations are known. `low` and `high`: what share of a step without the profiler these
    take at the device's peaks. `unknown`: the share of the GPU's time that is in other ops.
    """

    flop: int
    low: float
    high: float
    unknown: float


def utilization(facts: Facts) -> Utilization | None:
    """Return the utilization of a trace's step; None without shapes, of several devices or one whose peaks are not published,
    where the step without the profiler is not known, or more of the GPU's time than MOST_UNKNOWN is in ops that are not.
    """
    plain = facts.plain
    rows = [row for row in facts.op_shapes if row.at_peak_us and row.kind in PRODUCT_KINDS]
    every_us = sum(kernel.total_us for kernel in facts.kernels)
    if len(facts.critical_paths) > 1:  # of several devices, with one step
        return None
    if not rows or not facts.steps or plain.low_us is None or plain.high_us is None or not every_us:
        return None
    known_us = sum(
        row.time_us for row in facts.op_shapes if row.kind is not None and (row.kind not in PRODUCT_KINDS or row.at_peak_us)
    )
    unknown = max(1 - known_us / every_us, 0.0)
    if unknown > MOST_UNKNOWN:
        return None
    at_peak_us = sum(row.at_peak_us or 0.0 for row in rows)
    flop = sum((row.flop or 0) * row.calls for row in rows) // len(facts.steps)
    low, high = at_peak_us / plain.high_us, at_peak_us / plain.low_us
    return Utilization(flop, low, high, unknown) if high <= 1 else None
