"""The verdict in a sentence."""

from trace_reader.analysis.replay.plain_run import ESTIMATED, MEASURED, PlainRun
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.op_shapes import COMPUTE
from trace_reader.names.kernel_names import decode_name
from trace_reader.units import about, count, us

CLASSES = {  # of the critical path
    "compute": "GPU compute", "cpu": "CPU time", "input": "waiting for a DataLoader", "communication": "communication",
    "copy": "copying", "latency": "launch latency", "unknown": "waiting that the trace does not explain",
}  # fmt: skip
CPU_WORDS = {
    "python": "Python", "silent": "nothing recorded", "annotation": "annotations, in no op", "op": "ops",
    "launch": "launch calls", "call": "calls that launch no kernel",
    "memory": "memory management", "loading": "loading code", "compilation": "compiling", "profiler": "the profiler",
    "collective": "no op, while a collective runs on the CPU",
}  # fmt: skip
DURING_COLLECTIVES = "in no op while a collective runs on the CPU"
BETWEEN_OPS = "in no op (Python, waiting, or freeing memory)"
WORTH_ADDING_UP = 0.1  # of the path: so much more than the two that are named, and the rest is named, too
MOST_PAUSES = 3  # that are told, the longest
TOO_FAST = 1.5  # times the device's published peak
TOO_FAST_FOR_A_CACHE = 4.0  # times the memory's peak: a cache moves bytes at twice that
NEARLY_BUSY = 0.8  # of a step: a GPU that is busy for so long may limit it
ROUNDS_APART = 2.0  # times the shortest round of a measured step, from which on the longest is told, too


def verdict_sentence(facts: Facts) -> str:
    """Return one line that says what limits the run, the share of the critical path that this takes, and what makes up most of
    this share.
    """
    path = facts.critical_path
    if facts.verdict == "cpu-only":
        launched = sum(step.launches for step in facts.steps)
        held = "launches, but no GPU event" if launched else "no GPU event"
        return f"cpu-only: the trace holds {held}" + (f"; {cpu_sentence(facts, path)}" if path else "")
    lacks = f"the trace lacks {' and '.join(facts.missing)}" if facts.missing else "no recorded step launched GPU work"
    if path is None:
        return f"unknown: {lacks}" + ("; it holds no GPU event" if facts.ops and not facts.has_gpu_work else "")
    words = what_limits(path)
    if len(facts.critical_paths) > 1:
        words = f"on GPU {path.device}, which ends last, {words}"
    return f"unknown: {lacks}; of what it holds, {words}" if facts.missing else f"{facts.verdict}: {words}"


def health_lines(facts: Facts) -> list[str]:
    """Return what of the recording cannot be, or proves that something is not in it, a line each; empty where all is well."""
    health, lines = facts.health, []
    if health.impossible:
        worst = max(health.impossible, key=lambda event: event.duration_us - event.left_us)
        later = count(worst.others, "later event starts", "later events start")
        name, many = decode_name(worst.name).label, len(health.impossible)
        cut = "it is cut" if many == 1 else f"{many} such events are cut"
        impossible = f"{name} lasts {us(worst.duration_us)}, but {later} on the same stream before it ends"
        lines.append(f"impossible timing: {impossible}; {cut} at the next event's start")
    fastest = max((op for op in facts.op_shapes if op.limited_by == COMPUTE), key=lambda op: op.peak_share or 0.0, default=None)
    if fastest is not None and (fastest.peak_share or 0.0) > TOO_FAST:
        rate = f"{fastest.op} of {fastest.shapes} would run at {fastest.peak_share:.1f} times the device's peak"
        lines.append(f"impossible timing: {rate}; its times or its shapes are wrong")
    cached = max((op for op in facts.op_shapes if op.limited_by != COMPUTE), key=lambda op: op.peak_share or 0.0, default=None)
    if cached is not None and (cached.peak_share or 0.0) > TOO_FAST_FOR_A_CACHE:
        rate = f"{cached.op} of {cached.shapes} would move bytes at {cached.peak_share:.1f} times the memory's peak"
        lines.append(f"impossible timing: {rate}; its times or its shapes are wrong")
    if health.fastest_copy:
        rate = f"{health.fastest_copy} would move {health.fastest_copy_gb_per_s:,.0f} GB/s"
        lines.append(f"impossible timing: {rate}, more than any bus; its time or its size is wrong")
    if health.overlapping:
        begin = count(health.overlapping, "GPU event begins", "GPU events begin")
        lines.append(f"{begin} while another of the same stream runs: times that are added up count such moments twice")
    if health.early:
        begin = count(health.early, "GPU event begins", "GPU events begin")
        lines.append(f"impossible timing: {begin} before the launch, by up to {us(health.early_us)}: the clocks may differ")
    if health.mixed_nodes:
        name = count(health.mixed_nodes, "sequence number names", "sequence numbers name")
        lines.append(f"{name} several backward ops: which forward op these belong to is not certain")
    if health.unnamed_collectives:
        alone, several = (
            "says nothing of its message: no rate is reported",
            "say nothing of their messages: no rates are reported",
        )
        say = f"{alone} for it" if health.unnamed_collectives == 1 else f"{several} for those"
        lines.append(f"{health.unnamed_collectives} of {count(health.collectives, 'collective')} {say}")
    if health.outlasting and not health.impossible:
        wait = count(health.outlasting, "synchronizing call waits", "synchronizing calls wait")
        lines.append(f"missing GPU work: {wait} up to {us(health.outlasting_us)} after the last recorded GPU work ends")
    if health.outlived:
        end = count(health.outlived, "op or call ends", "ops or calls end")
        lines.append(f"impossible timing: {end} after the parent, by up to {us(health.outlived_us)} ({health.outlived_by})")
    longest = sorted(health.pauses, key=lambda pause: pause.start_ns - pause.end_ns)[:MOST_PAUSES]
    for pause in sorted(longest, key=lambda pause: pause.start_ns):
        name, long = facts.steps[pause.step].name, us((pause.end_ns - pause.start_ns) / 1000)
        if pause.is_before:
            lines.append(f"nothing is recorded for {long} before {name}; per-step numbers exclude this gap")
        else:
            why = "it waits for its DataLoader" if pause.is_of_loader else "perhaps garbage collection, or a busy machine"
            lines.append(f"{name} pauses for {long}, unlike the other steps ({why}); per-step numbers exclude the pause")
    if more := len(health.pauses) - len(longest):
        have = count(more, "more step has a shorter pause", "more steps have a shorter pause")
        lines.append(f"{have}; per-step numbers exclude {'it' if more == 1 else 'these'}, too")
    if health.is_unlinked:
        lines.append("the GPU events name no launch: each counts in the step in which it starts")
    return lines


def plain_sentence(facts: Facts) -> str:
    """Return one line that says how long a step takes without the profiler, if this time was measured or differs from the
    recorded one. If the recorded run has another verdict, the line gives that verdict, too. If the time is not known, the line
    says why. Returns an empty string where there is nothing to say.
    """
    plain, recorded = facts.plain, facts.recorded_critical_path
    if plain.step_us is None or plain.high_us is None:
        because = plain.unknown_because
        return f"what a step takes without the profiler is not known: {because}" if because else ""
    step = f"an estimated {us(plain.low_us)} to {us(plain.high_us)}"
    if plain.how == MEASURED:
        step = f"{us(plain.step_us)}{far_rounds(plain)}"
    if facts.verdict != facts.recorded_verdict and recorded is not None:
        name, share = next(iter(recorded.classes.items()))
        at = f", at {us(plain.recorded_step_us)} a step," if plain.recorded_step_us else ","
        looks = f"recorded{at} the run looks {facts.recorded_verdict} ({about(share)} {CLASSES[name]})"
        return f"{looks}; without the profiler {_busy(facts, step)}"
    least_us = plain.step_us if plain.how == MEASURED else plain.low_us
    # A kernel of a collective is busy while it waits for other ranks.
    waits = any(kernel.work_kind == "communication" for kernel in facts.kernels)
    may_limit = plain.verdict is None and not waits and facts.verdict != "gpu-bound"
    if may_limit and _busy_us(facts) >= NEARLY_BUSY * (least_us or 0.0):
        return f"without the profiler it may be gpu-bound: {_busy(facts, step)}"
    before = f", {us(plain.recorded_step_us)} recorded" if plain.recorded_step_us else ""
    if plain.how == MEASURED:
        return f"a step takes {step} without the profiler{before}"
    return f"without the profiler a step takes {step}{before}" if (plain.recorded_step_us or 0.0) > plain.high_us else ""


def far_rounds(plain: PlainRun) -> str:
    """From when to when the rounds of a measured step are, where that is far: ` (1.0 ms to 3.0 ms in its rounds)`; else empty."""
    low_us, high_us = plain.low_us or 0.0, plain.high_us or 0.0
    return f" ({us(low_us)} to {us(high_us)} in its rounds)" if low_us * ROUNDS_APART < high_us else ""


def cpu_lines(facts: Facts) -> str:
    """Return one line: in which lines of Python the CPU is where the run waits for it; of one that the CPU limits and that was
    recorded without stacks, how to see them.
    """
    if facts.cpu_lines:
        told = ", ".join(
            f"{line.line} {about(line.share)}" + f" (mostly {line.mostly.strip('<>')})" * bool(line.mostly)
            for line in facts.cpu_lines
        )
        return f"of {denominator(facts)}, by line of Python (with what it calls in torch): {told}"
    if facts.verdict == "overhead-bound" and not (facts.lesson or facts.stacks_from or "stacks" in facts.recorded_with):
        return "recorded without stacks: with_stack=True would show which lines of Python the CPU is at"
    return ""


def _busy(facts: Facts, step: str) -> str:
    """Return what the GPU has to do in a step without the profiler."""
    if _busy_us(facts) > (facts.plain.high_us or 0.0):
        return f"it takes {step}"
    if facts.plain.how == ESTIMATED and _busy_us(facts) > (facts.plain.low_us or 0.0):
        return f"a step takes {step}, and the GPU's work in it, as recorded, {us(_busy_us(facts))}"
    return f"the GPU is busy for {us(_busy_us(facts))} of {step} per step"


def _busy_us(facts: Facts) -> float:
    """Return how long the GPU is busy with a step's work, on average."""
    busy_us = [found.gpu_busy_us for found in facts.steps if found.gpu_busy_us is not None]
    return sum(busy_us) / max(len(busy_us), 1)


def what_limits(path: CriticalPath) -> str:
    """Return the share and the class of the path (of none with half of it, the two largest), and the two things that are most of
    it.
    """
    shares = [(name, share) for name, share in path.classes.items() if share > 0]
    limiting = shares[:2] if path.verdict == "mixed" else shares[:1]
    words = [f"{about(share)}{' of the critical path' * (not n)} is {CLASSES[name]}" for n, (name, share) in enumerate(limiting)]
    named = [named_us for name, _ in limiting for named_us in largest_contributors(path, name)]
    largest = sorted(named, key=lambda named_us: -named_us[1])[:2]
    rest = sum(share for _, share in limiting) - sum(time_us for _, time_us in largest) / path.window_us
    if rest >= WORTH_ADDING_UP and largest:
        largest.append(("other", rest * path.window_us))
    most = ", ".join(f"{what} {about(us_ / path.window_us)}" for what, us_ in largest)
    return " and ".join(words) + (f" ({most})" if largest else "")


def cpu_sentence(facts: Facts, path: CriticalPath) -> str:
    """Return what takes most of a run without a GPU: the share and the name of the two largest of its ops and of what is no
    op.
    """
    told = [
        f"{about(time_us / path.window_us)}{f' of {denominator(facts)}' * (not n)} is {what}"
        for n, (what, time_us) in enumerate(cpu_breakdown(path)[:2])
    ]
    return ", ".join(told)


def denominator(facts: Facts) -> str:
    """Of what a share is: of the critical path, which without a GPU is the steps' time."""
    return "the critical path" if facts.has_gpu_work else "the steps' time" if facts.steps else "the time"


def cpu_breakdown(path: CriticalPath) -> list[tuple[str, float]]:
    """Return what a run without a GPU spends its time on: ops by name, what is in none, waiting for a DataLoader; the most
    first.
    """
    found = [(part.name, part.us) for part in path.ops]
    collective_us = sum(part.us for part in path.cpu if part.name == "collective")
    found.append((DURING_COLLECTIVES, collective_us))
    found.append((BETWEEN_OPS, max(path.cpu_us - sum(part.us for part in path.ops) - collective_us, 0.0)))
    found.append((CLASSES["input"], path.input_us))
    return sorted(((name, time_us) for name, time_us in found if time_us > 0), key=lambda thing: (-thing[1], thing[0]))


def largest_contributors(path: CriticalPath, name: str) -> list[tuple[str, float]]:
    """Return what makes up a class of the path, with its time in us, the most first."""
    if name == "cpu":
        return [(CPU_WORDS[part.name], part.us) for part in path.cpu]
    labels: dict[str, float] = {}
    for kernel in path.kernels:
        if kernel.kind == name:
            label = decode_name(kernel.name).label
            labels[label] = labels.get(label, 0.0) + kernel.us
    return sorted(labels.items(), key=lambda item: -item[1])
