"""The verdict in a sentence."""

from trace_reader.analysis.critical_path import CriticalPath
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.plain_run import MEASURED
from trace_reader.names.kernel_names import decode_name
from trace_reader.units import about, us

CLASSES = {  # of the critical path
    "compute": "GPU compute", "cpu": "CPU time", "input": "waiting for a DataLoader", "communication": "communication",
    "copy": "copying", "latency": "launch latency", "unknown": "waiting that the trace does not explain",
}  # fmt: skip
CPU_WORDS = {
    "python": "Python", "annotation": "Python in annotations", "op": "ops", "launch": "launch calls",
    "call": "calls that launch no kernel",
    "memory": "memory management", "loading": "loading code", "compilation": "compiling", "profiler": "the profiler",
}  # fmt: skip

NOT_THE_GPU = frozenset(["overhead-bound", "latency-bound", "mixed"])  # verdicts that the profiler can be the reason of
BUSY_SHARE = 0.8  # of a step without the profiler: so long the GPU is busy in a run that it limits, at least


def verdict_sentence(facts: Facts) -> str:
    """One line: what limits the run, its share of the critical path, and what makes up most of that."""
    if facts.verdict == "cpu-only":
        launched = sum(step.launches for step in facts.steps)
        return "cpu-only: " + ("the trace holds launches, but no GPU event" if launched else "the trace holds no GPU event")
    path = facts.critical_path
    lacks = f"the trace lacks {' and '.join(facts.missing)}" if facts.missing else "no recorded step launched GPU work"
    if path is None:
        return f"unknown: {lacks}" + ("" if facts.has_gpu_work else "; it holds no GPU event")
    words = what_limits(path)
    if len(facts.critical_paths) > 1:
        words = f"on GPU {path.device}, which ends last, {words}"
    return f"unknown: {lacks}; of what it holds, {words}" if facts.missing else f"{facts.verdict}: {words}"


def plain_sentence(facts: Facts) -> str:
    """One line: what a step takes without the profiler, where that was measured, and that the GPU is the limit then, where it is
    not in the recorded run; else empty.
    """
    plain = facts.plain
    if plain.step_us is None or plain.high_us is None:
        return ""
    recorded = f"{us(plain.recorded_step_us)} recorded" if plain.recorded_step_us else ""
    if plain.how == MEASURED:
        words = f"a step takes {us(plain.step_us)} without the profiler"
    else:
        words = f"without the profiler a step takes an estimated {us(plain.low_us)} to {us(plain.high_us)}"
    busy_us = [step.gpu_busy_us for step in facts.steps if step.gpu_busy_us is not None]
    differs = plain.verdict == "gpu-bound" and facts.verdict in NOT_THE_GPU and len(facts.critical_paths) == 1
    if differs and BUSY_SHARE * plain.high_us <= (mean_us := sum(busy_us) / len(busy_us)) <= plain.high_us:
        return f"{words}, of which the GPU is busy for {us(mean_us)}, so that run is gpu-bound; {recorded}"
    return ", ".join(part for part in (words, recorded) if part) if plain.how == MEASURED else ""


def what_limits(path: CriticalPath) -> str:
    """The share and the class of the path (of none with half of it, the two largest), and the two things that are most of it."""
    shares = [(name, share) for name, share in path.classes.items() if share > 0]
    limiting = shares[:2] if path.verdict == "mixed" else shares[:1]
    words = [f"{about(share)}{' of the critical path' * (not n)} is {CLASSES[name]}" for n, (name, share) in enumerate(limiting)]
    largest = sorted((thing for name, _ in limiting for thing in things(path, name)), key=lambda thing: -thing[1])[:2]
    most = ", ".join(f"{what} {about(us_ / path.window_us)}" for what, us_ in largest)
    return " and ".join(words) + (f" ({most})" if largest else "")


def things(path: CriticalPath, name: str) -> list[tuple[str, float]]:
    """What makes up a class of the path, with its time in us, the most first."""
    if name == "cpu":
        return [(CPU_WORDS[part.name], part.us) for part in path.cpu]
    labels: dict[str, float] = {}
    for kernel in path.kernels:
        if kernel.kind == name:
            label = decode_name(kernel.name).label
            labels[label] = labels.get(label, 0.0) + kernel.us
    return sorted(labels.items(), key=lambda item: -item[1])
