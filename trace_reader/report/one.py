"""The report on one trace."""

from trace_reader.analysis.collectives import CollectiveFacts
from trace_reader.analysis.facts import Facts, Finding
from trace_reader.analysis.kernels import KernelFacts
from trace_reader.analysis.steps import StepFacts
from trace_reader.analysis.tree import Node
from trace_reader.analysis.verdict import CPU_WORDS, verdict
from trace_reader.report.document import Document, Style
from trace_reader.units import about, percent, us

LABEL_WIDTH = 40
WORTH_TELLING = 0.02  # of the path's window
MOST_FINDINGS = 5
MOST_KINDS = 12  # of kernels or ops in one line
ORIGINS = {
    "op": "launched inside a CPU op",
    "library": "launched with no op around it (Triton, a library)",
    "graph": "replayed by a graph launch",
    "carried_over": "launched before the recording began",
    "unknown": "no launch in the trace",
}


def work_of_a_step(facts: Facts) -> str:
    """One line: how many kernels (without a GPU: leaf ops) the middle recorded step launched, and which."""
    step = facts.middle_step
    if step is None:
        return "no recorded steps"
    listed = ", ".join(label if n == 1 else f"{n} x {label}" for label, n in step.work[:MOST_KINDS]) or "nothing"
    if len(step.work) > MOST_KINDS:
        listed += f" and {len(step.work) - MOST_KINDS} more kinds"
    if facts.regime == "cpu-only":
        return f"ops a step: {step.kernels_or_ops} ({listed})"
    others = ((step.memcpys, "memcpy"), (step.memsets, "memset"))
    extras = "".join(f" and {n} {name}{'s' if n > 1 else ''}" for n, name in others if n)
    return f"kernels a step: {step.kernels}{extras} ({listed})"


def report(facts: Facts, style: Style, tree: Node | None = None) -> Document:
    """Everything about one trace."""
    out = Document(style)
    out.title(facts.trace)
    out.lines(_header(facts))
    if tree is not None:
        out.section(f"Dispatch of {tree.name}")
        out.block(_tree(tree, style))
        return out
    out.section("Verdict")
    said = [f for f in facts.findings if f.slug == facts.regime]
    out.lines([verdict(facts), *(f"{f.means} Next: {f.next}" for f in said), work_of_a_step(facts)])
    _findings(out, [f for f in facts.findings if f.slug != facts.regime])
    out.section("Steps (GPU columns: the work that the step launched, whenever it ran)")
    out.table(
        [
            "step",
            "CPU",
            "waited",
            "GPU busy",
            "GPU/CPU",
            "kernels",
            "memcpys",
            "memsets",
            "launches",
            "queries",
            "entry gap",
        ],
        facts.steps,
        _step_row,
        empty="no ProfilerStep in the trace",
    )
    if facts.annotations:
        on_gpu = facts.regime != "cpu-only"
        about_gpu = " (GPU time: of what was launched inside on the same thread; the backward pass has its own)"
        out.section("Annotations" + about_gpu * on_gpu)
        out.table(
            ["annotation", "calls", "CPU", "median", *["launched", "GPU time"] * on_gpu],
            facts.annotations,
            lambda a: [
                short(a.name, style),
                str(a.calls),
                us(a.total_us),
                us(a.median_us),
                *[str(a.launched), us(a.gpu_us)] * on_gpu,
            ],
        )
    if facts.regime != "cpu-only":
        out.section("Where the GPU's time comes from")
        total = sum(facts.gpu_time_by_origin_us.values())
        out.table(
            ["origin", "events", "time", "share", ""],
            [(name, n) for name, n in facts.gpu_events_by_origin.items() if n],
            lambda item: _origin_row(*item, facts.gpu_time_by_origin_us[item[0]], total),
        )
        if facts.idle and facts.critical_path and facts.idle.total_us > WORTH_TELLING * facts.critical_path.window_us:
            out.section(f"Idle time of the GPU in the path's window: {us(facts.idle.total_us)}, by cause, and its largest gaps")
            out.lines([", ".join(f"{CPU_WORDS.get(name, name)} {us(time)}" for name, time in facts.idle.causes)], indented=True)
            out.table(
                ["gap", "after", "before", "cause"],
                facts.idle.gaps,
                lambda gap: [us(gap.duration_us), gap.before, gap.after, CPU_WORDS.get(gap.cause, gap.cause)],
            )
        out.section("GPU time by kind of work")
        out.table(
            ["kind", "calls", "time", "share"],
            facts.families,
            lambda family: [family.family, str(family.calls), us(family.total_us), percent(family.share)],
        )
        out.section("Kernels, copies and memsets (share: of their summed time)")
        out.table(
            ["kernel", "family", "calls", "total", "median", "min", "max", "share", "op", "launch"],
            facts.kernels,
            lambda k: kernel_row(k, style),
        )
        reported = [k for k in facts.kernels if k.registers_per_thread is not None]
        out.section("Footprints (occupancy: theoretical, of the warps an SM holds)")
        out.table(
            [
                "kernel",
                "regs/thread",
                "shared B",
                "grid",
                "block",
                "blocks/SM",
                "occupancy",
                "limited by",
                "profiler's estimate",
            ],
            reported,
            lambda k: _footprint_row(k, style),
            empty="not in the trace",
        )
    if facts.collectives:
        out.section("Collectives (bus bandwidth: of the median call, in which it may wait for others, and of the fastest)")
        out.table(
            ["collective", "group", "ranks", "MB", "calls", "total", "median", "min", "bus GB/s", "best"],
            facts.collectives,
            _collective_row,
        )
    rated = [k for k in facts.kernels if k.gb_per_s is not None]
    if rated:
        out.section("Bandwidth (bytes that a call has to read and write, over its time)")
        out.table(
            ["kernel", "op", "calls", "MB", "median", "GB/s"],
            rated,
            lambda k: [k.name if style.full else k.decoded.label, k.op or "unknown", str(k.calls),
                       f"{(k.moved_bytes or 0) / 1e6:.1f}", us(k.median_us), f"{k.gb_per_s:.0f}"],
        )  # fmt: skip
    if facts.gemms:
        out.section("GEMMs ([m, k] @ [k, n])")
        out.table(
            ["op", "batch", "m", "n", "k", "calls", "median", "GFLOP", "TFLOP/s", "kernel"],
            facts.gemms,
            lambda g: [g.op, str(g.batch), str(g.m), str(g.n), str(g.k), str(g.calls), us(g.median_us), f"{g.flop / 1e9:.1f}",
                       f"{g.tflop_per_s:.0f}", short(g.kernel, style)],
        )  # fmt: skip
    if facts.regime == "cpu-only":
        out.section("Ops (self: without the ops inside)")
        ops = sorted(facts.ops, key=lambda op: (-op.self_us, op.name))
        out.table(
            ["op", "calls", "self", "total"],
            ops,
            lambda op: [short(op.name, style), str(op.calls), us(op.self_us), us(op.total_us)],
        )
    return out


def _findings(out: Document, findings: list[Finding]) -> None:
    """Those that explain most of the critical path; of the rest, the names."""
    out.section("Findings (share: of the critical path)")
    if not findings:
        out.lines(["none"], indented=True)
    shown = findings if out.style.everything else findings[:MOST_FINDINGS]
    for found in shown:
        share = f" ({about(found.share)})" if found.share and found.share >= 0.0005 else ""
        out.item(found.slug + share, found.seen, f"{found.means} Next: {found.next}")
    if rest := findings[len(shown) :]:
        out.lines([f"and {', '.join(found.slug for found in rest)} (--all)"], indented=True)


def _origin_row(name: str, events: int, time_us: float, total_us: float) -> list[str]:
    return [name, str(events), us(time_us), percent(time_us / total_us if total_us else None), ORIGINS[name]]


def _header(facts: Facts) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items()) or "versions unknown"
    lines = [f"device: {facts.device or 'unknown'}; {versions}"]
    if facts.world_size is not None and facts.world_size > 1:
        lines.append(f"rank: {'unknown' if facts.rank is None else facts.rank} of {facts.world_size}")
    if facts.lesson.get("run"):
        lines.append(f"run: {facts.lesson.get('script', 'unknown')} {facts.lesson['run']}")
    if facts.lesson.get("peak_memory"):
        lines.append(f"peak memory: {facts.lesson['peak_memory']}")
    skipped = sum(facts.skipped.values())
    reasons = ", ".join(f"{n} {reason}" for reason, n in facts.skipped.items())
    lines.append(f"events: {facts.events} found, {skipped} not used{f' ({reasons})' if reasons else ''}")
    if facts.first_bad:
        lines.append(f"the first that could not be read: {facts.first_bad}")
    if facts.truncated:
        lines.append("the file is cut off: what is whole was read")
    if facts.steps:
        first, last = facts.steps[0].name, facts.steps[-1].name
        names = first if first == last else f"{first} to {last}"
        lines.append(f"steps: {len(facts.steps)} ({names})")
    else:
        lines.append("steps: none")
    return lines


def _step_row(s: StepFacts) -> list[str]:
    ratio = "unknown" if s.gpu_to_cpu is None else f"{s.gpu_to_cpu:.2f}"
    counts = [str(n) for n in (s.kernels, s.memcpys, s.memsets, s.launches, s.occupancy_queries)]
    return [s.name, us(s.cpu_us), us(s.sync_us), us(s.gpu_busy_us), ratio, *counts, us(s.entry_gap_us)]


def short(name: str, style: Style) -> str:
    if style.full or len(name) <= 2 * LABEL_WIDTH:
        return name
    return name[: 2 * LABEL_WIDTH - 3] + "..."


def label_of(k: KernelFacts, style: Style) -> str:
    return k.name if style.full else k.decoded.label[:LABEL_WIDTH]


def kernel_row(k: KernelFacts, style: Style) -> list[str]:
    times = [us(t) for t in (k.total_us, k.median_us, k.min_us, k.max_us)]
    op = (k.op or "none")[: None if style.full else LABEL_WIDTH]
    return [label_of(k, style), k.decoded.family, str(k.calls), *times, percent(k.share), op, k.launch or "unknown"]


def _footprint_row(k: KernelFacts, style: Style) -> list[str]:
    o = k.occupancy
    reported = k.reported_occupancy_percent
    return [
        label_of(k, style),
        str(k.registers_per_thread),
        "unknown" if k.shared_memory_bytes is None else str(k.shared_memory_bytes),
        ("unknown" if k.grid is None else "x".join(map(str, k.grid)))
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
