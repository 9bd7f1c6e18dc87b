"""Facts as text for people, Markdown for notes, JSON for programs. The same content; the JSON's field names are a contract."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
import json
from typing import Any

from reader.compare import Comparison, Row
from reader.facts import Facts, KernelFacts, Node, StepFacts
from reader.terminal import plain

LABEL_WIDTH = 40
MOST_KINDS = 12  # of kernels or ops in one line
LONGEST_LINE = 2000  # characters
LONGEST_NAME = 4000  # of a kernel, with --full
LONGEST_CELL = 100


@dataclass(frozen=True)
class Style:
    """How a report is written: text or Markdown, rows of a table, labels or full kernel names."""

    markdown: bool = False
    top: int = 15
    full: bool = False


def us(value: float | None) -> str:
    """Microseconds, in the unit that suits them; `unknown` for None."""
    if value is None:
        return "unknown"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f} s"
    return f"{value / 1000:.2f} ms" if abs(value) >= 1000 else f"{value:.1f} us"


def percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def verdict(facts: Facts) -> str:
    """One line: the bottleneck, and the numbers that say so."""
    if facts.regime == "cpu-only":
        launched = sum(step.launches for step in facts.steps)
        return "cpu-only: " + ("launches but no GPU event in the trace" if launched else "no GPU event in the trace")
    busy = f"the GPU is busy {percent(facts.gpu_busy_share)} of the {us(facts.window_us)} window"
    if facts.gpu_to_cpu is None:
        return f"{facts.regime}: {busy}"
    n = sum(step.gpu_to_cpu is not None for step in facts.steps)
    ratio = f"{facts.gpu_to_cpu:.0%}" if facts.gpu_to_cpu >= 0.095 else f"{facts.gpu_to_cpu:.1%}"
    return f"{facts.regime}: a step's GPU busy time is {ratio} of its CPU time (median of {n} steps); {busy}"


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


def report(facts: Facts, style: Style, chain: Node | None = None) -> str:
    """Everything about one trace."""
    out = _Page(style)
    out.title(facts.trace)
    out.lines(_header(facts))
    if chain is not None:
        out.section(f"Dispatch of {chain.name}")
        out.block(_tree(chain, style))
        return out.text()
    out.section("Verdict")
    out.lines([verdict(facts), work_of_a_step(facts)])
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
        [_step_row(step) for step in facts.steps[: style.top]],
        more=len(facts.steps) - style.top,
        empty="no ProfilerStep in the trace",
    )
    if facts.regime != "cpu-only":
        out.section("Where the GPU's time comes from")
        total = sum(facts.gpu_time_by_origin_us.values())
        out.table(
            ["origin", "events", "time", "share", ""],
            [
                [
                    name,
                    str(facts.gpu_events_by_origin[name]),
                    us(time),
                    percent(time / total if total else None),
                    ORIGINS[name],
                ]
                for name, time in facts.gpu_time_by_origin_us.items()
                if facts.gpu_events_by_origin[name]
            ],
        )
        out.section("Kernels, copies and memsets (share: of their summed time)")
        out.table(
            ["kernel", "family", "calls", "total", "median", "min", "max", "share", "op", "launch"],
            [_kernel_row(k, style) for k in facts.kernels[: style.top]],
            more=len(facts.kernels) - style.top,
        )
        rows = [_footprint_row(k, style) for k in facts.kernels if k.registers_per_thread is not None]
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
            rows[: style.top],
            more=len(rows) - style.top,
            empty="not in the trace",
        )
    rated = [k for k in facts.kernels if k.gb_per_s is not None]
    if rated:
        out.section("Bandwidth (bytes that a call has to read and write, over its time)")
        out.table(
            ["kernel", "op", "calls", "MB", "median", "GB/s"],
            [
                [k.name if style.full else k.decoded.label, k.op or "unknown", str(k.calls), f"{(k.moved_bytes or 0) / 1e6:.1f}",
                 us(k.median_us), f"{k.gb_per_s:.0f}"]
                for k in rated[: style.top]
            ],
            more=len(rated) - style.top,
        )  # fmt: skip
    if facts.gemms:
        out.section("GEMMs ([m, k] @ [k, n])")
        out.table(
            ["op", "batch", "m", "n", "k", "calls", "median", "GFLOP", "TFLOP/s", "kernel"],
            [
                [g.op, str(g.batch), str(g.m), str(g.n), str(g.k), str(g.calls), us(g.median_us), f"{g.flop / 1e9:.1f}",
                 f"{g.tflop_per_s:.0f}", _short(g.kernel, style)]
                for g in facts.gemms[: style.top]
            ],
            more=len(facts.gemms) - style.top,
        )  # fmt: skip
    if facts.regime == "cpu-only":
        out.section("Ops")
        ops = sorted(facts.ops, key=lambda op: (-op.total_us, op.name))
        out.table(
            ["op", "calls", "total"],
            [[_short(op.name, style), str(op.calls), us(op.total_us)] for op in ops[: style.top]],
            more=len(ops) - style.top,
            empty="none",
        )
    out.section("Findings")
    if not facts.findings:
        out.lines(["none"])
    for found in facts.findings:
        out.item(found.slug, found.seen, f"{found.means} Next: {found.next}")
    return out.text()


ORIGINS = {
    "op": "launched inside a CPU op",
    "library": "launched with no op around it (Triton, a library)",
    "graph": "replayed by a graph launch",
    "carried_over": "launched before the recording began",
    "unknown": "no launch in the trace",
}


def comparison(c: Comparison, style: Style) -> str:
    """Two traces side by side."""
    out = _Page(style)
    out.title(f"A: {c.a.trace}\nB: {c.b.trace}" if not style.markdown else f"A: {c.a.trace}, B: {c.b.trace}")
    out.lines([f"A: {verdict(c.a)}", f"B: {verdict(c.b)}", "", c.summary])
    out.section("Steps")
    out.table(
        ["A", "B", "CPU A", "CPU B", "GPU busy A", "GPU busy B", "kernels A", "kernels B", "launches A", "launches B"],
        [_pair_row(a, b) for a, b in c.steps[: style.top]],
        more=len(c.steps) - style.top,
        empty="neither trace has ProfilerSteps",
    )
    out.section("Kernels with the identical name in both")
    out.table(
        ["kernel", "calls A", "calls B", "median A", "median B", "change"],
        [
            [_short(a.name, style), str(a.calls), str(b.calls), us(a.median_us), us(b.median_us),
             f"{b.median_us / a.median_us - 1:+.0%}" if a.median_us else "unknown"]
            for a, b in c.common[: style.top]
        ],
        more=len(c.common) - style.top,
        empty="none",
    )  # fmt: skip
    for which, kernels in (("A", c.only_a), ("B", c.only_b)):
        out.section(f"Kernels only in {which}")
        out.table(
            ["kernel", "family", "calls", "total", "median", "min", "max", "share", "op", "launch"],
            [_kernel_row(k, style) for k in kernels[: style.top]],
            more=len(kernels) - style.top,
            empty="none",
        )
    out.section("Ops and findings")
    out.lines(
        [
            f"ops only in A: {', '.join(c.ops_only_a) or 'none'}",
            f"ops only in B: {', '.join(c.ops_only_b) or 'none'}",
            f"findings only in A: {', '.join(c.findings_gone) or 'none'}",
            f"findings only in B: {', '.join(c.findings_new) or 'none'}",
        ]
    )
    return out.text()


def table(rows: Sequence[Row], style: Style) -> str:
    """Several traces, a row for each."""
    out = _Page(style)
    out.title(f"{len(rows)} traces (of a recorded step: the counts of the middle one, the medians of the times)")
    out.table(
        ["trace", "kernels", "copies", "GPU busy", "CPU", "regime", "slowest kernel", "its median", "its share"],
        [_row(row, style) for row in rows],
    )
    out.section("Findings (without those that all of the traces show)")
    for row in rows:
        out.lines([f"{'' if style.markdown else '  '}{row.label}: {', '.join(row.findings) or 'none'}"])
    return out.text()


def _row(row: Row, style: Style) -> list[str]:
    counts = ["unknown" if n is None else str(n) for n in (row.kernels, row.copies)]
    k = row.slowest
    slowest = ["none"] * 3 if k is None else [k.name if style.full else k.decoded.label, us(k.median_us), percent(k.share)]
    return [row.label, *counts, us(row.gpu_us), us(row.cpu_us), row.facts.regime, *slowest]


def table_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Several traces as JSON values: a row for each, with all of its facts under `facts`."""
    return {
        "rows": [
            {
                "label": row.label,
                "kernels_a_step": row.kernels,
                "copies_a_step": row.copies,
                "gpu_us_a_step": _round(row.gpu_us),
                "cpu_us_a_step": _round(row.cpu_us),
                "regime": row.facts.regime,
                "slowest_kernel": row.slowest.name if row.slowest else None,
                "findings": list(row.findings),
                "facts": to_json(row.facts),
            }
            for row in rows
        ]
    }


def to_json(facts: Facts, chain: Node | None = None) -> dict[str, Any]:
    """The facts as JSON values. Field names are a contract: add, do not rename. Unknown values are null."""
    data: dict[str, Any] = {
        "trace": facts.trace,
        "device": facts.device,
        "versions": facts.versions,
        "events": facts.events,
        "skipped": facts.skipped,
        "window_us": _round(facts.window_us),
        "gpu_busy_us": _round(facts.gpu_busy_us),
        "gpu_busy_share": _round(facts.gpu_busy_share),
        "gpu_to_cpu": _round(facts.gpu_to_cpu),
        "regime": facts.regime,
        "kernels_total": facts.kernels_total,
        "memcpys_total": facts.memcpys_total,
        "memsets_total": facts.memsets_total,
        "unlinked": facts.unlinked,
        "gpu_time_by_origin_us": {name: _round(time) for name, time in facts.gpu_time_by_origin_us.items()},
        "steps": [
            {
                "name": s.name,
                "cpu_us": _round(s.cpu_us),
                "sync_us": _round(s.sync_us),
                "gpu_busy_us": _round(s.gpu_busy_us),
                "gpu_to_cpu": _round(s.gpu_to_cpu),
                "kernels": s.kernels,
                "memcpys": s.memcpys,
                "memsets": s.memsets,
                "launches": s.launches,
                "occupancy_queries": s.occupancy_queries,
                "entry_gap_us": _round(s.entry_gap_us),
            }
            for s in facts.steps
        ],
        "kernels": [_kernel_json(k) for k in facts.kernels],
        "gemms": [
            {
                "op": g.op,
                "batch": g.batch,
                "m": g.m,
                "n": g.n,
                "k": g.k,
                "calls": g.calls,
                "kernel": g.kernel,
                "median_us": _round(g.median_us),
                "flop": g.flop,
                "tflop_per_s": _round(g.tflop_per_s),
            }
            for g in facts.gemms
        ],
        "findings": [{"slug": f.slug, "seen": f.seen, "means": f.means, "next": f.next} for f in facts.findings],
    }
    if chain is not None:
        data["chain"] = _node_json(chain)
    return data


def comparison_json(c: Comparison) -> dict[str, Any]:
    """A comparison as JSON values, with both traces' own facts under `a` and `b`."""
    return {
        "summary": c.summary,
        "kernels_common": [
            {"name": a.name, "calls": [a.calls, b.calls], "median_us": [_round(a.median_us), _round(b.median_us)]}
            for a, b in c.common
        ],
        "kernels_only_a": [k.name for k in c.only_a],
        "kernels_only_b": [k.name for k in c.only_b],
        "ops_only_a": list(c.ops_only_a),
        "ops_only_b": list(c.ops_only_b),
        "findings_only_a": list(c.findings_gone),
        "findings_only_b": list(c.findings_new),
        "a": to_json(c.a),
        "b": to_json(c.b),
    }


def dump(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


class _Page:
    """Collects a report: titles, lines and tables, as text or Markdown."""

    def __init__(self, style: Style):
        self.style = style
        self._out: list[str] = []

    def text(self) -> str:
        return "\n".join(self._out).strip() + "\n"

    def title(self, text: str) -> None:
        lines = [plain(line, LONGEST_LINE) for line in text.split("\n")]
        self._out += [f"# {line}\n" for line in lines] if self.style.markdown else lines

    def section(self, text: str) -> None:
        text = plain(text)
        self._out.append(f"\n## {text}\n" if self.style.markdown else f"\n{text}")

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            line = plain(line, LONGEST_LINE)
            self._out.append(f"- {line}" if self.style.markdown and line else line)

    def block(self, lines: list[str]) -> None:
        lines = [plain(line, LONGEST_LINE) for line in lines]
        self._out += ["```", *lines, "```"] if self.style.markdown else lines

    def item(self, name: str, seen: str, explanation: str) -> None:
        seen = plain(seen, LONGEST_LINE)
        if self.style.markdown:
            self._out.append(f"- **{name}**: {seen}. {explanation}")
        else:
            self._out += [f"  {name}: {seen}", f"      {explanation}"]

    def table(self, head: list[str], rows: Sequence[Sequence[str]], more: int = 0, empty: str = "none") -> None:
        rows = [[plain(cell, LONGEST_NAME if self.style.full else LONGEST_CELL) for cell in row] for row in rows]
        if not rows:
            self.lines([empty if self.style.markdown else f"  {empty}"])
            return
        if self.style.markdown:
            self._out.append("| " + " | ".join(head) + " |")
            self._out.append("|" + "---|" * len(head))
            self._out += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        else:
            widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
            numeric = [any(row[i][:1].isdigit() for row in rows) and i > 0 for i in range(len(head))]
            for row in (head, *rows):
                cells = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True))
                self._out.append("  " + "  ".join(cells).rstrip())
        if more > 0:
            self.lines(
                [
                    f"and {more} more: --top {len(rows) + more}"
                    if self.style.markdown
                    else f"  and {more} more (--top {len(rows) + more})"
                ]
            )


def _header(facts: Facts) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items()) or "versions unknown"
    lines = [f"device: {facts.device or 'unknown'}; {versions}"]
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


def _pair_row(a: StepFacts | None, b: StepFacts | None) -> list[str]:
    def cells(step: StepFacts | None) -> list[str]:
        if step is None:
            return ["-"] * 5
        return [step.name, us(step.cpu_us), us(step.gpu_busy_us), str(step.kernels), str(step.launches)]

    return [cell for pair in zip(cells(a), cells(b), strict=True) for cell in pair]


def _short(name: str, style: Style) -> str:
    if style.full or len(name) <= 2 * LABEL_WIDTH:
        return name
    return name[: 2 * LABEL_WIDTH - 3] + "..."


def _label(k: KernelFacts, style: Style) -> str:
    return k.name if style.full else k.decoded.label[:LABEL_WIDTH]


def _kernel_row(k: KernelFacts, style: Style) -> list[str]:
    times = [us(t) for t in (k.total_us, k.median_us, k.min_us, k.max_us)]
    op = (k.op or "none")[: None if style.full else LABEL_WIDTH]
    return [_label(k, style), k.decoded.family, str(k.calls), *times, percent(k.share), op, k.launch or "unknown"]


def _footprint_row(k: KernelFacts, style: Style) -> list[str]:
    o = k.occupancy
    reported = k.reported_occupancy_percent
    return [
        _label(k, style),
        str(k.registers_per_thread),
        "unknown" if k.shared_memory_bytes is None else str(k.shared_memory_bytes),
        "unknown" if k.grid is None else "x".join(map(str, k.grid)),
        "unknown" if k.block is None else "x".join(map(str, k.block)),
        "unknown" if o is None else str(o.blocks),
        "unknown" if o is None else f"{o.warps}/{o.max_warps} warps, {o.theoretical:.1%}",
        "unknown" if o is None else o.limited_by,
        "not estimated" if reported is None else f"{reported:.0f}%",
    ]


def _kernel_json(k: KernelFacts) -> dict[str, Any]:
    d = k.decoded
    said = {"architecture": d.architecture, "dtype": d.dtype, "tile": d.tile, "stages": d.stages, "layout": d.layout,
            "epilogue": d.epilogue, "unit": d.unit, "inductor_kind": d.inductor_kind, "knob": d.knob}  # fmt: skip
    return {
        "name": k.name,
        "label": d.label,
        "family": d.family,
        "calls": k.calls,
        "total_us": _round(k.total_us),
        "median_us": _round(k.median_us),
        "min_us": _round(k.min_us),
        "max_us": _round(k.max_us),
        "share": _round(k.share),
        "op": k.op,
        "launch": k.launch,
        "registers_per_thread": k.registers_per_thread,
        "shared_memory_bytes": k.shared_memory_bytes,
        "grid": k.grid,
        "block": k.block,
        "moved_bytes": k.moved_bytes,
        "gb_per_s": _round(k.gb_per_s),
        "theoretical_occupancy": None if k.occupancy is None else _round(k.occupancy.theoretical),
        "limited_by": None if k.occupancy is None else k.occupancy.limited_by,
        "blocks_per_sm": None if k.occupancy is None else k.occupancy.blocks,
        **said,
        "merged_ops": list(d.merged_ops),
    }


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "kind": node.kind,
        "duration_us": _round(node.duration_us),
        "launched": [{"label": label, "duration_us": _round(time)} for label, time in node.launched],
        "children": [_node_json(child) for child in node.children],
    }


def _tree(node: Node, style: Style, depth: int = 0) -> list[str]:
    launched = "".join(f"  -> {label} {us(time)}" for label, time in node.launched[:3])
    if len(node.launched) > 3:
        launched += f"  and {len(node.launched) - 3} more"
    lines = [f"{'  ' * depth}{_short(node.name, style)}  {us(node.duration_us)}{launched}"]
    for child in node.children:
        lines += _tree(child, style, depth + 1)
    return lines


def _round(value: float | None) -> float | None:
    """Six decimals: more are the arithmetic's, not the trace's."""
    return None if value is None else round(value, 6)
