"""The report on one trace."""

from collections import Counter
from collections.abc import Sequence
import math

from trace_reader.analysis.collectives import CollectiveFacts
from trace_reader.analysis.critical_path import CriticalPath
from trace_reader.analysis.dispatch_tree import Node
from trace_reader.analysis.facts import Facts, Finding
from trace_reader.analysis.gpu_time import Timeline
from trace_reader.analysis.kernel_facts import KernelFacts
from trace_reader.analysis.memory_facts import AliveFacts, MemoryFacts
from trace_reader.analysis.place_facts import PlaceFacts
from trace_reader.analysis.step_facts import StepFacts
from trace_reader.analysis.verdict import CLASSES, CPU_WORDS, things, verdict
from trace_reader.names.devices import peak
from trace_reader.report.document import ROWS, Document, Style, middle
from trace_reader.units import about, human_bytes, percent, us

LABEL_WIDTH = 40
WORTH_TELLING = 0.02  # of the path's window
WORTH_SHOWING = 0.005  # as a line of the path
SMALLEST_SHARE = 0.0005  # that is not 0
MOST_FINDINGS = 5  # of a brief report
MOST_RANKS = 8  # of a merged file, that are named
MOST_KINDS = 12  # of kernels or ops in one line
BRIEF_KINDS = 6
BRIEF_VERSIONS = 2
MOST_THINGS = 2  # of a class of the path
ORIGINS = {
    "op": "launched inside a CPU op",
    "library": "launched with no op around it (Triton, a library)",
    "graph": "replayed by a graph launch",
    "carried_over": "launched before the recording began",
    "unknown": "no launch in the trace",
}


def work_of_a_step(facts: Facts, most: int = MOST_KINDS) -> str:
    """One line: how many kernels (without a GPU: leaf ops) the middle recorded step launched, and which."""
    step = facts.middle_step
    if step is None:
        return "no recorded steps"
    names = [(middle(label, LABEL_WIDTH), n) for label, n in step.work[:most]]
    listed = ", ".join(label if n == 1 else f"{n} x {label}" for label, n in names) or "nothing"
    if len(step.work) > most:
        listed += f" and {len(step.work) - most} more kinds"
    if not facts.has_gpu_work:
        return f"ops a step: {step.kernels_or_ops} ({listed})"
    others = ((step.memcpys, "memcpy"), (step.memsets, "memset"))
    extras = "".join(f" and {n} {name}{'s' if n > 1 else ''}" for n, name in others if n)
    return f"kernels a step: {step.kernels}{extras} ({listed})"


def report(facts: Facts, style: Style, tree: Node | None = None) -> Document:
    """One trace: the verdict, its reasons and findings first. A brief report leaves out what `--all` tells of."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(header(facts, style))
    if tree is not None:
        out.section(f"Dispatch of {tree.name}")
        out.block(_tree(tree, style))
        return out
    out.section("Verdict")
    said = [f for f in facts.findings if f.slug == facts.regime]
    kinds = BRIEF_KINDS if style.brief else MOST_KINDS
    out.lines([verdict(facts), *(f"{f.means} Next: {f.next}" for f in said), work_of_a_step(facts, kinds)])
    _findings(out, [f for f in facts.findings if f.slug != facts.regime])
    _steps(out, facts)
    if facts.critical_path:
        _path(out, facts, facts.critical_path)
    if not facts.has_gpu_work:
        _ops(out, facts)
    else:
        _kernels(out, facts)
    if style.brief:
        out.lines(["", f"more with --all: {', '.join(_left_out(facts))}"])
        return out
    if facts.annotations:
        places(out, facts, "annotation", facts.annotations)
    if facts.has_gpu_work:
        if facts.timeline:
            _timeline(out, facts, facts.timeline)
        _origins(out, facts)
        if _idles(facts):
            _idle(out, facts)
        _families(out, facts)
        _footprints(out, facts)
    if facts.collectives:
        _collectives(out, facts)
    for memory in facts.memory:
        _memory(out, memory)
    if any(k.gb_per_s is not None for k in facts.kernels):
        _bandwidth(out, facts)
    if facts.gemms:
        _gemms(out, facts)
    return out


def _left_out(facts: Facts) -> list[str]:
    """What a brief report does not show of this trace."""
    on_gpu = facts.has_gpu_work
    every = {
        "annotations": bool(facts.annotations), "timeline": on_gpu, "the GPU's idle time": _idles(facts), "kinds of work": on_gpu,
        "footprints and occupancy": on_gpu, "collectives": bool(facts.collectives), "memory": bool(facts.memory),
        "bandwidth": any(k.gb_per_s is not None for k in facts.kernels), "GEMMs": bool(facts.gemms),
    }  # fmt: skip
    return [name for name, there in every.items() if there] + ["all rows and columns"]


def _steps(out: Document, facts: Facts) -> None:
    brief, least, empty = 4, 2, "no ProfilerStep in the trace"
    if not facts.has_gpu_work:
        out.section("Steps")
        head = ["step", "CPU", "ops", "launches", "entry gap"]
        out.table(head, facts.steps, _cpu_step_row, empty=empty, brief=brief, least=least)
        return
    out.section("Steps (GPU columns: the work that the step launched, whenever it ran)")
    head = ["step", "CPU", "waited", "GPU busy", "GPU/CPU", "kernels", "launches"]
    head += [] if out.style.brief else ["memcpys", "memsets", "queries", "entry gap"]
    out.table(head, facts.steps, lambda s: _step_row(s)[: len(head)], empty=empty, brief=brief, least=least)


def _path(out: Document, facts: Facts, path: CriticalPath) -> None:
    steps = len(facts.steps) - (len(facts.steps) >= 3)  # the path leaves the first of many out
    first = facts.steps[-steps].name if steps else ""
    begins = f" from {first} on ({steps} of {len(facts.steps)} steps)" if first else ""
    out.section(f"Critical path: {us(path.window_us)}{begins}")
    classes = [name for name, share in path.classes.items() if share >= WORTH_SHOWING]
    out.table(
        ["waited for", "time", "share", "most of it"],
        classes,
        lambda name: [
            CLASSES[name],
            us(path.classes[name] * path.window_us),
            percent(path.classes[name]),
            ", ".join(f"{what} {about(time_us / path.window_us)}" for what, time_us in things(path, name)[:MOST_THINGS]),
        ],
        least=2,
    )


def _timeline(out: Document, facts: Facts, times: Timeline) -> None:
    each = facts.step_period_us  # a GPU that is far behind may still work on an earlier step when the window begins
    every = {
        "compute": times.compute_us, "communication": times.communication_us,
        "of it exposed": times.exposed_communication_us, "copies": times.copy_us, "of them exposed": times.exposed_copy_us,
        "idle": times.idle_us,
    }  # fmt: skip
    out.section("The GPU's time in the path's window (exposed: while nothing is computed)")
    out.table(
        ["", "time", "share", *["a step"] * bool(each)],
        [(what, time_us) for what, time_us in every.items() if time_us],
        lambda item: [
            item[0],
            us(item[1]),
            percent(item[1] / times.window_us),
            *[us(item[1] / times.window_us * (each or 0.0))] * bool(each),
        ],
    )


def places(out: Document, facts: Facts, what: str, rows: Sequence[PlaceFacts], most: int = ROWS) -> None:
    """A row for each annotation or layer, `most` at most; with a number of its own all of them with --all."""
    on_gpu = facts.has_gpu_work
    has_backward = any(a.backward_us is not None for a in rows)
    about = "GPU time: of what was launched inside, on the same thread; backward: of its backward pass, which runs later"
    if not on_gpu:
        about = "backward: the CPU's time in the ops of its backward pass, which runs later" if has_backward else ""
    out.section(f"{what.capitalize()}s" + (f" ({about})" if about else ""))
    out.table(
        [what, "calls", "CPU", "median", *["launched", "GPU time"] * on_gpu, *["backward"] * has_backward],
        rows,
        lambda a: [
            short(a.name, out.style),
            str(a.calls),
            us(a.total_us),
            us(a.median_us),
            *[str(a.launched), us(a.gpu_us)] * on_gpu,
            *[us(a.backward_us)] * has_backward,
        ],
        every=most != ROWS and out.style.everything,
        brief=most,
    )


def _origins(out: Document, facts: Facts) -> None:
    out.section("Where the GPU's time comes from")
    total = sum(facts.gpu_time_by_origin_us.values())
    out.table(
        ["origin", "events", "time", "share", ""],
        [(name, n) for name, n in facts.gpu_events_by_origin.items() if n],
        lambda item: _origin_row(*item, facts.gpu_time_by_origin_us[item[0]], total),
    )


def _idles(facts: Facts) -> bool:
    path = facts.critical_path
    return bool(facts.idle and path and facts.idle.total_us > WORTH_TELLING * path.window_us)


def _idle(out: Document, facts: Facts) -> None:
    assert facts.idle is not None
    out.section(f"Idle time of the GPU in the path's window: {us(facts.idle.total_us)}, by cause, and its largest gaps")
    out.lines([", ".join(f"{CPU_WORDS.get(name, name)} {us(time)}" for name, time in facts.idle.causes)], indented=True)
    out.table(
        ["gap", "after", "before", "cause"],
        facts.idle.gaps,
        lambda gap: [us(gap.duration_us), gap.before, gap.after, CPU_WORDS.get(gap.cause, gap.cause)],
    )


def _families(out: Document, facts: Facts) -> None:
    out.section("GPU time by kind of work")
    out.table(
        ["kind", "calls", "time", "share"],
        facts.families,
        lambda family: [family.family, str(family.calls), us(family.total_us), percent(family.share)],
    )


def _kernels(out: Document, facts: Facts) -> None:
    labels = distinct_labels(facts.kernels, out.style)
    out.section("Kernels, copies and memsets (share: of their summed time)")
    if out.style.brief:
        out.table(
            ["kernel", "calls", "total", "median", "share", "op"],
            facts.kernels,
            lambda k: [labels[k.name], str(k.calls), us(k.total_us), us(k.median_us), percent(k.share), k.op or "none"],
            brief=8,
            least=4,
        )
        return
    out.table(
        ["kernel", "family", "calls", "total", "median", "min", "max", "share", "op", "launch"],
        facts.kernels,
        lambda k: [labels[k.name], *kernel_row(k, out.style)[1:]],
    )


def _footprints(out: Document, facts: Facts) -> None:
    labels = distinct_labels(facts.kernels, out.style)
    out.section("Footprints (occupancy: theoretical, of the warps an SM holds)")
    out.table(
        ["kernel", "regs/thread", "shared B", "grid", "block", "blocks/SM", "occupancy", "limited by", "profiler's estimate"],
        [k for k in facts.kernels if k.registers_per_thread is not None],
        lambda k: [labels[k.name], *_footprint_row(k, facts)],
        empty="not in the trace",
    )


def _collectives(out: Document, facts: Facts) -> None:
    out.section("Collectives (bus bandwidth: of the median call, in which it may wait for others, and of the fastest)")
    out.table(
        ["collective", "group", "ranks", "MB", "calls", "total", "median", "min", "bus GB/s", "best"],
        facts.collectives,
        _collective_row,
    )


def _memory(out: Document, memory: MemoryFacts) -> None:
    where = f" in {memory.step}" if memory.step else ""
    most = human_bytes(memory.peak_bytes)
    out.section(f"Memory of {memory.device}: peak {most}{where}; what was alive at it, by what allocated it")
    before = AliveFacts("before the recording", None, 0, memory.before_bytes)
    rows = [*([before] if memory.before_bytes else []), *memory.alive]
    out.table(
        ["annotation", "op", "blocks", "bytes", "share"],
        sorted(rows, key=lambda alive: -alive.bytes),
        lambda alive: [
            alive.annotation or "none",
            alive.op or ("" if alive is before else "none"),
            str(alive.blocks or ""),
            human_bytes(alive.bytes),
            percent(alive.bytes / memory.peak_bytes),
        ],
    )
    if memory.activation_bytes:
        kept = f"of the forward pass, not freed before the backward pass (activations): {human_bytes(memory.activation_bytes)}"
        out.lines([kept + (f", {human_bytes(memory.layer_bytes)} of it in layers" if memory.layers else "")], indented=True)


def _bandwidth(out: Document, facts: Facts) -> None:
    labels = distinct_labels(facts.kernels, out.style)
    best = peak(facts.device or "", "memory")
    reached = f"; of peak: of the published {best:.0f} GB/s" if best else ""
    out.section(f"Bandwidth (bytes that a call has to read and write, over its time{reached})")
    out.table(
        ["kernel", "op", "calls", "MB", "median", "GB/s", *["of peak"] * bool(best)],
        [k for k in facts.kernels if k.gb_per_s is not None],
        lambda k: [labels[k.name], k.op or "unknown", str(k.calls), f"{(k.moved_bytes or 0) / 1e6:.1f}", us(k.median_us),
                   f"{k.gb_per_s:.0f}", *[percent((k.gb_per_s or 0) / (best or 1))] * bool(best)],
    )  # fmt: skip


def _gemms(out: Document, facts: Facts) -> None:
    out.section("GEMMs ([m, k] @ [k, n]; of peak: of the published dense TFLOP/s, where the kernel's name tells the dtype)")
    out.table(
        ["op", "batch", "m", "n", "k", "calls", "median", "GFLOP", "TFLOP/s", "of peak", "kernel"],
        facts.gemms,
        lambda g: [g.op, str(g.batch), str(g.m), str(g.n), str(g.k), str(g.calls), us(g.median_us), f"{g.flop / 1e9:.1f}",
                   f"{g.tflop_per_s:.0f}", percent(g.peak_share), short(g.kernel, out.style)],
    )  # fmt: skip


def _ops(out: Document, facts: Facts) -> None:
    out.section("Ops (self: without the ops inside)")
    out.table(
        ["op", "calls", "self", "total", "threads"],
        sorted(facts.ops, key=lambda op: (-op.self_us, op.name)),
        lambda op: [short(op.name, out.style), str(op.calls), us(op.self_us), us(op.total_us), str(op.threads)],
        brief=12,
    )


def _findings(out: Document, findings: list[Finding]) -> None:
    """Those that explain most of the critical path; of the rest, the names."""
    out.section("Findings (share: of the critical path)")
    if not findings:
        out.lines(["none"], indented=True)
    shown = findings[:MOST_FINDINGS] if out.style.brief else findings
    for found in shown:
        out.item(finding_title(found), found.seen, found.means, found.next)
    if rest := findings[len(shown) :]:
        out.lines([f"and {', '.join(found.slug for found in rest)} (--all)"], indented=True)


def finding_title(found: Finding) -> str:
    """A finding's name with its share of the critical path."""
    return found.slug + (f" ({about(found.share)})" if found.share and found.share >= SMALLEST_SHARE else "")


def _origin_row(name: str, events: int, time_us: float, total_us: float) -> list[str]:
    return [name, str(events), us(time_us), percent(time_us / total_us if total_us else None), ORIGINS[name]]


def header(facts: Facts, style: Style) -> list[str]:
    known = list(facts.versions.items())[: BRIEF_VERSIONS if style.brief else None]
    versions = ", ".join(f"{name} {version}" for name, version in known) or "versions unknown"
    lines = [f"device: {facts.device or 'unknown'}; {versions}"]
    if facts.world_size is not None and facts.world_size > 1:
        lines.append(f"rank: {'unknown' if facts.rank is None else facts.rank} of {facts.world_size}")
    if facts.merged_ranks:
        told = ", ".join(map(str, facts.merged_ranks[:MOST_RANKS])) + ", ..." * (len(facts.merged_ranks) > MOST_RANKS)
        lines.append(
            f"ranks: {told}, merged; steps, verdict and path are of one of them, kernels of all. Read the ranks' own files for "
            "who waits for whom"
        )
    if facts.lesson.get("run"):
        lines.append(f"run: {facts.lesson.get('script', 'unknown')} {facts.lesson['run']}")
    if facts.lesson.get("peak_memory") and not style.brief:
        lines.append(f"peak memory: {facts.lesson['peak_memory']}")
    skipped = sum(facts.skipped.values())
    reasons = ", ".join(f"{n} {reason}" for reason, n in facts.skipped.items())
    if not style.brief or facts.first_bad:
        lines.append(f"events: {facts.events} found, {skipped} not used{f' ({reasons})' if reasons else ''}")
    if facts.first_bad:
        lines.append(f"the first that could not be read: {facts.first_bad}")
    if facts.truncated:
        lines.append("the file is cut off: what is whole was read")
    if facts.steps:
        each = f", one every {us(facts.step_period_us)}" if facts.step_period_us else ""
        lines.append(f"{steps_line([step.name for step in facts.steps])}{each}")
    else:
        lines.append("steps: none")
    return lines


def steps_line(names: Sequence[str]) -> str:
    """The recorded steps in words: how many, and from which to which."""
    return f"steps: {len(names)} ({names[0] if names[0] == names[-1] else f'{names[0]} to {names[-1]}'})"


def _step_row(s: StepFacts) -> list[str]:
    ratio = "unknown" if s.gpu_to_cpu is None else f"{s.gpu_to_cpu:.2f}"
    counts = [str(n) for n in (s.kernels, s.launches, s.memcpys, s.memsets, s.occupancy_queries)]
    return [s.name, us(s.cpu_us), us(s.sync_us), us(s.gpu_busy_us), ratio, *counts, us(s.entry_gap_us)]


def _cpu_step_row(s: StepFacts) -> list[str]:
    return [s.name, us(s.cpu_us), str(s.kernels_or_ops), str(s.launches), us(s.entry_gap_us)]


def short(name: str, style: Style) -> str:
    if style.full or len(name) <= 2 * LABEL_WIDTH:
        return name
    return name[: 2 * LABEL_WIDTH - 3] + "..."


def label_of(k: KernelFacts, style: Style) -> str:
    return k.name if style.full else middle(k.decoded.label, LABEL_WIDTH)


def distinct_labels(kernels: Sequence[KernelFacts], style: Style) -> dict[str, str]:
    """The label of each kernel, by its name; of several kernels with one label, the later ones are numbered."""
    labels: dict[str, str] = {}
    used: Counter[str] = Counter()
    for k in kernels:
        if k.name not in labels:
            label = label_of(k, style)
            used[label] += 1
            labels[k.name] = label if used[label] == 1 else f"{label} #{used[label]}"
    return labels


def kernel_row(k: KernelFacts, style: Style) -> list[str]:
    times = [us(t) for t in (k.total_us, k.median_us, k.min_us, k.max_us)]
    op = (k.op or "none")[: None if style.full else LABEL_WIDTH]
    return [label_of(k, style), k.decoded.family, str(k.calls), *times, percent(k.share), op, k.launch or "unknown"]


def _footprint_row(k: KernelFacts, facts: Facts) -> list[str]:
    o, sms = k.occupancy, (facts.device_properties or {}).get("numSms")
    reported = k.reported_occupancy_percent
    few = k.grid is not None and isinstance(sms, int) and math.prod(k.grid) < sms
    return [
        str(k.registers_per_thread),
        "unknown" if k.shared_memory_bytes is None else str(k.shared_memory_bytes),
        ("unknown" if k.grid is None else "x".join(map(str, k.grid)))
        + (f", fewer than the {sms} SMs" if few else "")
        + (f" ({k.configurations} configurations, this {percent(k.configuration_share)})" if k.configurations > 1 else ""),
        "unknown" if k.block is None else "x".join(map(str, k.block)),
        "unknown" if o is None else str(o.blocks),
        "unknown" if o is None else f"{o.warps}/{o.max_warps} warps, {o.theoretical:.1%}",
        "unknown" if o is None else o.limited_by,
        "not estimated" if reported is None else f"{reported:.0f}%",
    ]


def _collective_row(c: CollectiveFacts) -> list[str]:
    size = "unknown" if c.bytes is None else f"{c.bytes / 1e6:.2f}"
    rates = ["unknown" if rate is None else f"{rate:.1f}" for rate in (c.bus_gb_per_s, c.best_bus_gb_per_s)]
    times = [us(c.total_us), us(c.median_us), us(c.min_us)]
    return [c.name, c.group, "unknown" if c.group_size is None else str(c.group_size), size, str(c.calls), *times, *rates]


def _tree(node: Node, style: Style, depth: int = 0) -> list[str]:
    launched = "".join(f"  -> {label} {us(time)}" for label, time in node.launched[:3])
    if len(node.launched) > 3:
        launched += f"  and {len(node.launched) - 3} more"
    lines = [f"{'  ' * depth}{short(node.name, style)}  {us(node.duration_us)}{launched}"]
    for child in node.children:
        lines += _tree(child, style, depth + 1)
    return lines
