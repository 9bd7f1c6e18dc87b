"""Kernels whose time is not as one expects, and ops that have none."""

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.kernels import KernelFacts
from trace_reader.findings.registry import finding, listed
from trace_reader.link.trace import Trace
from trace_reader.model.slices import Kind
from trace_reader.names.ops import VIEW_OPS, is_device_copy
from trace_reader.units import us

UNEVEN_SPREAD = 0.04  # of the median
LARGE_BYTES = 10_000_000  # below, a kernel's start and end weigh as much as its work
SLOW_RATE = 0.6  # of the best in the trace


@finding(
    "uneven-kernel",
    "one kernel takes different times in equal steps",
    "the kernel's durations, call by call",
    "The same kernel takes different times: clocks, heat, power, a neighbour in memory; or other shapes, if it has several.",
    "Quote the median, and look at the distribution before the mean (--active 20).",
)
def _uneven_kernel(trace: Trace, facts: Facts) -> str | None:
    def spread(k: KernelFacts) -> float:
        return (k.max_us - k.min_us) / k.median_us if k.median_us else 0.0

    def range_us(k: KernelFacts) -> float:
        return k.max_us - k.min_us

    def same_work(k: KernelFacts) -> bool:
        # A kernel whose every step has a slow call does different work in them.
        different = len(k.outlier_steps) == len(facts.steps) > 1
        return k.calls >= 3 and k.calls % len(facts.steps) == 0 and k.calls <= 3 * len(facts.steps) and not different

    if not facts.steps:
        return None
    k = max(
        (k for k in facts.compute_kernels if k.share > 0.1 and same_work(k) and spread(k) >= UNEVEN_SPREAD),
        key=range_us,
        default=None,
    )
    if k is None or range_us(k) < 1:
        return None
    where = f"; far out in {listed(k.outlier_steps)}" if k.outlier_steps else ""
    return f"{k.decoded.label}: median {us(k.median_us)}, {us(k.min_us)} to {us(k.max_us)} in {k.calls} calls{where}"


@finding(
    "slow-pointwise",
    "a pointwise kernel is far slower than its bytes explain",
    "GB/s in the reader's bandwidth table (record shapes)",
    "A pointwise kernel only moves bytes, so it could run at the rate that another one reaches. It does not: it moves few "
    "bytes at a time (strides, a broadcast input, a narrow type), or it computes more than it seems.",
    "Write it another way, make its inputs contiguous, or let torch.compile or a kernel of yours fuse it with a neighbour.",
)
def _slow_pointwise(trace: Trace, facts: Facts) -> str | None:
    rated = [k for k in facts.kernels if k.gb_per_s and (k.moved_bytes or 0) >= LARGE_BYTES]
    rated = [k for k in rated if k.kind != Kind.MEMCPY or is_device_copy(k.name)]
    best = max(rated, key=_rate, default=None)
    if best is None:
        return None
    slow = [k for k in rated if k.kind != Kind.MEMCPY and _rate(k) < SLOW_RATE * _rate(best)]
    if not slow:
        return None
    return listed(
        f"{k.decoded.label} moves {(k.moved_bytes or 0) / 1e6:.1f} MB at {_rate(k):.0f} GB/s, where {best.decoded.label} "
        f"reaches {_rate(best):.0f}"
        for k in slow
    )


def _rate(k: KernelFacts) -> float:
    return k.gb_per_s or 0.0


@finding(
    "views-launch-nothing",
    "ops that spend 0 us on the GPU",
    "aten::t, view, transpose: no launch below them",
    "These ops change strides, not data: CPU time only, 0 us on the GPU.",
    "Their CPU time matters only if the step is overhead-bound.",
    trivia=True,
)
def _views(trace: Trace, facts: Facts) -> str | None:
    if facts.regime == "cpu-only":
        return None
    views = [op for op in facts.ops if op.name in VIEW_OPS and not op.launched]
    if not views:
        return None
    views.sort(key=lambda op: (-op.calls, op.name))
    return f"{listed((f'{op.calls} x {op.name}' for op in views), 5)} launched nothing"
