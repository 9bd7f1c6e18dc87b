"""The bottleneck, and what makes up most of it."""

from trace_reader.analysis.facts import Facts
from trace_reader.findings.registry import finding
from trace_reader.link.trace import Trace
from trace_reader.units import about, count, us

HOTSPOT_SHARE = 0.5
MANY_CALLS_A_STEP = 50


@finding(
    "no-gpu-events",
    "the table's CUDA total is 0, though the program used a GPU",
    "the GPU's lanes: there are none",
    "The calls that launch work were recorded, the work was not: CUPTI, which records it, did not start. Another profiler "
    "may be attached (nsys, ncu, compute-sanitizer), the container may lack the permission, or WSL its support.",
    "Detach the other profiler or grant the permission, and record again.",
)
def _no_gpu_events(trace: Trace, facts: Facts) -> str | None:
    launches = sum(s.launches for s in facts.steps) or sum(c.calls for c in facts.calls if "Launch" in c.name)
    if launches and facts.regime == "cpu-only":
        return f"{count(launches, 'launch', 'launches')} and no GPU event"
    return None


@finding(
    "overhead-bound",
    "the table's CPU total is many times its CUDA total",
    "the GPU's lane: mostly white between short kernels",
    "The CPU launches work more slowly than the GPU executes it: the GPU waits.",
    "Give each launch more to do (larger batch), launch less (fuse, torch.compile), or replay launches (CUDA graphs).",
)
def _overhead_bound(trace: Trace, facts: Facts) -> str | None:
    if facts.regime != "overhead-bound":
        return None
    return _verdict_numbers(facts)


@finding(
    "gpu-bound",
    "the CPU's total and the CUDA total are alike, because the CPU waits in a synchronize",
    "the GPU's lane: no white between kernels",
    "The GPU is the bottleneck; the CPU runs ahead and its time is hidden.",
    "Look at the longest kernels.",
)
def _gpu_bound(trace: Trace, facts: Facts) -> str | None:
    return _verdict_numbers(facts) if facts.regime == "gpu-bound" else None


def _verdict_numbers(facts: Facts) -> str:
    if facts.gpu_to_cpu is not None:
        steps = sorted((s for s in facts.steps if s.gpu_to_cpu is not None), key=lambda s: s.gpu_to_cpu or 0)
        middle = steps[len(steps) // 2]
        return (
            f"GPU busy time is {about(facts.gpu_to_cpu)} of a step's CPU time (median of {len(steps)}); {middle.name}: "
            f"{us(middle.gpu_busy_us or 0)} on the GPU, {us(middle.cpu_us - middle.sync_us)} on the CPU"
        )
    return f"the GPU is busy {facts.gpu_busy_share or 0:.0%} of {us(facts.window_us)}; the trace has no steps"


@finding(
    "hotspot",
    "one row has most of the table's CUDA total",
    "the widest slice on the GPU's lane",
    "One kernel is most of the GPU's time.",
    "Optimize this first.",
)
def _hotspot(trace: Trace, facts: Facts) -> str | None:
    top = next(iter(facts.compute_kernels), None)
    if top is None or top.share < HOTSPOT_SHARE or len(facts.kernels) < 2:
        return None
    return f"{top.decoded.label} takes {top.share:.0%} of the GPU's time in {count(top.calls, 'call')}"


@finding(
    "many-calls",
    "one row of the table has a huge number of calls",
    "many equal slices on the GPU's lane",
    "Each launch has a price on the CPU; many small ones add up.",
    "Fuse them, or batch them.",
)
def _many_calls(trace: Trace, facts: Facts) -> str | None:
    if not facts.steps:
        return None
    top = max(facts.compute_kernels, key=lambda k: k.calls, default=None)
    if top is None or top.graph or top.calls < MANY_CALLS_A_STEP * len(facts.steps):
        return None
    return f"{top.decoded.label} is called {top.calls / len(facts.steps):.0f} times a step, {us(top.median_us)} each"
