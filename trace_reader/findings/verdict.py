"""The bottleneck, and what makes up most of it."""

from collections import Counter, defaultdict

from trace_reader.analysis.facts import Facts
from trace_reader.analysis.verdict import what_limits
from trace_reader.findings.registry import Seen, finding
from trace_reader.link.trace import Trace
from trace_reader.units import about, count, us

HOTSPOT_SHARE = 0.5
WORTH_TELLING = 0.05  # of the path
MANY_CALLS_A_STEP = 50
OTHER_THAN_LAUNCHING = {  # what to do where most of the CPU's part is this
    "memory": "Most of it is managing memory: see allocation-in-step.",
    "loading": "Most of it is loading code, which happens once: record after warm-up.",
    "compilation": "Most of it is compiling: record after warm-up; TORCH_LOGS=recompiles says what is compiled again.",
    "annotation": "Most of it is Python inside annotations, outside ops: a profiler of Python (with_stack, py-spy) says where.",
    "profiler": "Most of it is the profiler's own: record less (no stacks, no shapes), or fewer steps.",
}


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
    "The CPU brings work more slowly than the GPU executes it: the GPU waits.",
    "Give each launch more to do (larger batch), launch less (fuse, torch.compile), or replay launches (CUDA graphs).",
)
def _overhead_bound(trace: Trace, facts: Facts) -> str | Seen | None:
    path = facts.critical_path
    if path is None or facts.regime != "overhead-bound":
        return None
    words = what_limits(path)
    most = path.cpu[0].name if path.cpu else ""
    if most in OTHER_THAN_LAUNCHING:
        return Seen(words, OTHER_THAN_LAUNCHING[most])
    if facts.gpu_time_by_origin_us["graph"] > 0.5 * sum(facts.gpu_time_by_origin_us.values()):
        return Seen(words, "Its launches are replayed from a graph already: look at what the CPU does between the replays.")
    if any(op.name.startswith("Torch-Compiled Region") for op in facts.ops):
        return Seen(words, "It is compiled already: give each launch more to do (larger batch), or replay it as a CUDA graph.")
    return words


@finding(
    "gpu-bound",
    "the CPU's total and the CUDA total are alike, because the CPU waits in a synchronize",
    "the GPU's lane: no white between kernels",
    "The GPU is the bottleneck; the CPU runs ahead and its time is hidden.",
    "Look at the longest kernels.",
)
def _gpu_bound(trace: Trace, facts: Facts) -> str | None:
    return what_limits(facts.critical_path) if facts.critical_path and facts.regime == "gpu-bound" else None


@finding(
    "input-bound",
    "the GPU's lane is white while a DataLoader is asked for the next batch",
    "the annotation enumerate(DataLoader)...__next__, on the lane of the steps",
    "The GPU waits for its input.",
    "More workers (num_workers), cheaper transforms, or more of them done ahead.",
)
def _input_bound(trace: Trace, facts: Facts) -> str | None:
    path = facts.critical_path
    if path is None or path.input_us < WORTH_TELLING * path.window_us:
        return None
    return f"waiting for a DataLoader is {about(path.input_us / path.window_us)} of the critical path, {us(path.input_us)}"


@finding(
    "exposed-communication",
    "the GPU's lanes of compute are white while one of NCCL is not",
    "the stream of the NCCL kernels, and the one of the GEMMs at the same time",
    "Communication that no computing hides: the step waits for the other GPUs, or for one that is late.",
    "Look first for a rank that is late: its own collectives are short. Else overlap it with computing, or send less.",
)
def _exposed_communication(trace: Trace, facts: Facts) -> str | None:
    path, times = facts.critical_path, facts.timeline
    if path is None or times is None or times.exposed_communication_us < WORTH_TELLING * times.window_us:
        return None
    return (
        f"{us(times.exposed_communication_us)} of {us(times.communication_us)} of communication run while nothing is computed: "
        f"{about(times.exposed_communication_us / times.window_us)} of the time"
    )


@finding(
    "hotspot",
    "one row has most of the table's CUDA total",
    "the widest slice on the GPU's lane",
    "One kernel is most of the GPU's time.",
    "Optimize this first.",
)
def _hotspot(trace: Trace, facts: Facts) -> str | None:
    top = next(iter(facts.compute_kernels), None)
    if facts.regime != "gpu-bound" or top is None or top.share < HOTSPOT_SHARE or len(facts.kernels) < 2:
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
    if not facts.steps or facts.regime != "overhead-bound":
        return None
    calls: Counter[str] = Counter()
    time_us: dict[str, float] = defaultdict(float)
    for k in facts.compute_kernels:
        if not k.graph:
            calls[k.decoded.label] += k.calls
            time_us[k.decoded.label] += k.total_us
    label, n = max(calls.items(), key=lambda item: item[1], default=("", 0))
    if n < MANY_CALLS_A_STEP * len(facts.steps):
        return None
    return f"{label} is called {n / len(facts.steps):.0f} times a step, {us(time_us[label] / n)} each on average"
