"""The report on one trace: the verdict, its reasons and findings first, then the tables."""

from collections.abc import Iterable, Sequence
import re
from typing import TYPE_CHECKING

import numpy as np
from trace_reader.analysis.replay.plain_run import ESTIMATED, MEASURED
from trace_reader.analysis.replay.what_if import PLAIN, Gain
from trace_reader.analysis.trace.critical_path import VERDICTS
from trace_reader.analysis.trace.dispatch_tree import Node
from trace_reader.analysis.trace.facts import Facts, Finding
from trace_reader.analysis.trace.recompiles import Recompiled
from trace_reader.analysis.trace.utilization import utilization
from trace_reader.findings import GENERIC, NAMING, PATTERNS, about_middle, is_generic
from trace_reader.findings.bottleneck import NO_OP_IS_FAR, far_from_usual
from trace_reader.findings.verdict import (
    CPU_WORDS,
    cpu_lines,
    denominator,
    health_lines,
    plain_sentence,
    verdict_sentence,
)
from trace_reader.guard import Failures
from trace_reader.link.found_steps import RANGE, WHOLE
from trace_reader.model.rows import median
from trace_reader.names.kernel_names import is_collective
from trace_reader.names.range_names import is_part_of_a_step
from trace_reader.report.document import LABEL_WIDTH, Best, Document, Item, Style, middle, short
from trace_reader.report.trace_tables import IDLE, MEMORY, MIN_GAIN, TABLES, TraceView, places_line, saved
from trace_reader.system.terminal import printable
from trace_reader.units import about, count, human_bytes, us

if TYPE_CHECKING:
    from trace_reader.analysis.jobs.job_facts import JobFinding

SAYS_NOTHING = 0.95  # a bound of nearly all of a step
SAYS_ENOUGH = 0.5  # a share of the path with which a bound of nearly all says something, after all
SMALLEST_SHARE = 0.0005  # that is not 0
TO_LOOK_INTO, WORTH_A_LOOK = frozenset(["python-between-ops"]), 0.2  # what says where to look is no change; a share of the path
OF_NO_CHANGE = frozenset(VERDICTS.values()) - NAMING
NOTHING_FAR = "nothing here is far from what the device can do"
LEAST_RATED, LEAST_USED, LITTLE_GAIN = 0.8, 0.3, 0.05  # of the time of ops by shape; of the device's peak; of a step
TO_TRY, OF_A_STEP = "first change to try", "saves {} of a step"
MOST_FINDINGS = 4  # of a brief report
FAR_STEP = 3.0  # times the median of the steps
LEAST_STEPS = 3  # annotations, that could be steps
MOST_MERGED_RANKS = 8  # of a merged file, that are named
CPU = "CPU"
MOST_KINDS = 12  # of kernels or ops in one line
BRIEF_KINDS = 6
BRIEF_VERSIONS = 2
LEAST_MFU = 0.001
SAID = 0.05  # of the GPU's time, whose operations are not known
# Events that no report uses; others that are left out are told.
ORDINARY = frozenset(["metadata", "flow", "instant", "counter", "other category", "other phase", "python_function"])
FINDINGS_TITLE = "Findings (what each saves, or its share of {})"


def trace_report(facts: Facts, style: Style, tree: Node | None = None, recompiled: Sequence[Recompiled] = ()) -> Document:
    """Return the report on one trace; with a `tree` that alone; with what was compiled again. A brief report leaves out what
    `--all` tells of.
    """
    out = Document(style)
    out.title(facts.trace)
    out.lines(header(facts, style))
    if tree is not None:
        out.section(f"Dispatch of {tree.name}", "chain")
        out.block(_tree(tree, style))
        return out
    out.section("Verdict", "verdict")
    explained = [f for f in facts.findings if f.slug == facts.verdict and not f.is_worthless]
    kinds = BRIEF_KINDS if style.is_short else MOST_KINDS
    far = nothing_is_far(facts)
    best = far or best_change(facts)
    told = [best and (f.gain is None or f.slug in NAMING) for f in explained]  # by the line of the best change
    means = [f.means if said else f"{f.means} Next: {f.next}{_saves(f)}" for f, said in zip(explained, told, strict=True)]
    work = (work_per_step(facts, kinds), mfu_sentence(facts))
    lines = (verdict_sentence(facts), plain_sentence(facts), cpu_lines(facts), best, *means, *work)
    out.lines([line for line in lines if line])
    _findings(out, [f for f in facts.findings if f not in explained], facts)
    if recompiled:
        out.section("Compiled again (TORCH_LOGS=recompiles): the function, and the guards that failed", "recompiles")
        out.lines([line for one in recompiled for line in _again(one)], indented=True)
    left_out = _tables(out, TraceView(facts, style), ends_here=style.is_short and not facts.lesson and bool(far))
    if style.is_short:
        out.lines(["", f"more with --all: {', '.join([*left_out, 'all rows and columns'])}"])
    return out


def mfu_sentence(facts: Facts) -> str:
    """Return one line: the operations of a step, and how much of it they would take at the device's peaks; else empty."""
    found = utilization(facts)
    if found is None:
        return ""
    share = about(found.low) if about(found.low) == about(found.high) else f"{about(found.low)} to {about(found.high)}"
    share = share if found.high >= LEAST_MFU else f"less than {about(LEAST_MFU)}"
    unknown = f"; {about(found.unknown)} of the GPU's time is in ops that are not counted" if found.unknown >= SAID else ""
    step = ", by the estimated step" if facts.plain.how == ESTIMATED else ""
    return f"operations per step: {operations(found.flop)}, {share} of the device's peak for their types (MFU{step}){unknown}"


def operations(flop: int) -> str:
    """Return a number of operations in the unit that suits it."""
    unit, size = next((one for one in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9)) if flop >= one[1]), ("MFLOP", 1e6))
    return f"{flop / size:.2f} {unit}"


def _tables(out: Document, view: TraceView, ends_here: bool) -> list[str]:
    """Add the tables that the style shows, or, if the report ends here, none; return what the others are called."""
    left_out, failures = [], Failures()
    for table in TABLES:
        with failures.caught(f"the table {table.key}"):
            if not table.shown(view):
                continue
            if ends_here or (out.style.is_short and table.short_rows is None):
                left_out += [table.name] * bool(table.name)
            elif table is MEMORY:
                _memory(out, view.facts, out.style)
            elif table is IDLE and view.facts.idle is not None:
                causes = ", ".join(f"{CPU_WORDS.get(name, name)} {us(time)}" for name, time in view.facts.idle.causes)
                out.table(table, view, above=causes)
            else:
                out.table(table, view)
    if failures:
        out.lines(["", *failures])
    return left_out


def _memory(out: Document, facts: Facts, style: Style) -> None:
    for memory in facts.memory:
        out.table(MEMORY, TraceView(facts, style, memory))
        if memory.activation_bytes:
            kept = f"made by the forward pass and not freed before the backward pass: {human_bytes(memory.activation_bytes)}"
            in_layers = f", {human_bytes(memory.layer_bytes)} of it in layers" if memory.layers else ""
            out.lines([f"activations, {kept}{in_layers}"], indented=True)


def work_per_step(facts: Facts, most: int = MOST_KINDS) -> str:
    """Return one line that says how many kernels a usual step launched (without a GPU: how many leaf ops it ran), and which. The
    usual step is a recorded one whose work is the most common. `most`: how many different kernels or ops to name at most.
    """
    step = facts.usual_step
    if step is None:
        return "no recorded steps"
    names = [(middle(label, LABEL_WIDTH), n) for label, n in step.work[:most]]
    listed = ", ".join(label if n == 1 else f"{n} x {label}" for label, n in names) or "nothing"
    if len(step.work) > most:
        listed += f" and {count(len(step.work) - most, 'more kind')}"
    alike = sum((one.work, one.memcpys, one.memsets) == (step.work, step.memcpys, step.memsets) for one in facts.steps)
    of_steps = f", in {alike} of {len(facts.steps)} steps" if alike < len(facts.steps) else ""
    if not facts.has_gpu_work:
        return f"innermost ops per step: {step.kernels_or_ops} ({listed}){of_steps}"
    if step.is_mixed and facts.has_gpu_work:
        return "kernels per step: unknown (several processes' are in the file)"
    if step.lacks_gpu_work:
        return f"kernels per step: unknown (of its {count(step.launches, 'launch', 'launches')} the trace lacks the GPU events)"
    others = ((step.memcpys, "memcpy"), (step.memsets, "memset"))
    extras = "".join(f" and {n} {name}{'s' if n > 1 else ''}" for n, name in others if n)
    return f"kernels per step: {step.kernels}{extras} ({listed}){of_steps}"


def _findings(out: Document, findings: list[Finding], facts: Facts) -> None:
    """Those that explain most of the critical path; of the rest, the names. What only teaches how to read a trace is told of a
    lesson's, and with --all.
    """
    out.section(FINDINGS_TITLE.format(denominator(facts)), "findings")
    shown = findings
    if out.style.is_short:
        shown = [f for f in findings if not f.is_worthless and (facts.lesson or not PATTERNS[f.slug].trivia)][:MOST_FINDINGS]
    if not shown:
        out.lines(["none"], indented=True)
    for finding in shown:
        out.item(finding_item(finding))
    if out.style.is_short and (line := places_line(facts)):
        out.lines([line], indented=True)
    if rest := [finding.slug for finding in findings if finding not in shown]:
        out.lines([f"and {', '.join(rest)} (--all)"], indented=True)


def finding_item(finding: Finding, name: str = "", number: int = 0) -> Item:
    """Return a finding with what it saves, or its share of the critical path; of several traces, of the one that is called
    `name`.
    """
    told = f" (saves {told})" if (told := gain_words(finding)) and not finding.is_worthless else ""
    if not told and finding.gain is None and finding.share and finding.share >= SMALLEST_SHARE:
        told = f" (takes {about(finding.share)})"
    if finding.part_of:
        told = f"{told.removesuffix(')') or ' ('}{'; ' * bool(told)}part of the work of {finding.part_of})"
    title = f"{name}: {finding.slug}{told}" if name else f"{finding.slug}{told}"
    symptom = PATTERNS[finding.slug].symptom
    noticed = symptom if "::" in symptom.split()[0] else f"{symptom[:1].upper()}{symptom[1:]}"
    return Item(title, finding.seen, finding.means, f"{finding.next}{_saves(finding)}", finding.slug, number, title=noticed)


def _again(function: Recompiled) -> list[str]:
    """Return a function that was compiled again, and why."""
    guards = [f"  {guard}" + (f" ({times} times)" if times > 1 else "") for guard, times in function.guards]
    return [f"{function.function} ({function.place}), {count(function.times, 'time')}", *guards]


def nothing_is_far(facts: Facts) -> str:
    """Return one line for a run in which the GPU computes nearly as fast as it can, by its ops and by its MFU (products of a few
    rows are as fast as they can be, and the device hardly computes), and no finding saves much; else empty.
    """
    findings, used = [finding for finding in facts.findings if finding.slug != facts.verdict], utilization(facts)
    most = max((finding.gain.high for finding in findings if finding.gain), default=0.0)
    if used is None or used.low < LEAST_USED or most > LITTLE_GAIN or any(map(_explains_much, findings)):
        return ""
    if facts.verdict != "gpu-bound" or far_from_usual(facts, LEAST_RATED) != []:
        return ""
    saves = f" saves more than {most:.0%} of a step" if most >= MIN_GAIN else " is known to save something"
    return (
        f"{NOTHING_FAR}: {NO_OP_IS_FAR}, and no finding{saves}. What is left is less work: a smaller model, input or dtype, or "
        "fewer passes over memory (fused ops)"
    )


def best_change(facts: Facts) -> str:
    """Return one line that names the change to try first; an empty string where no change is known to save something."""
    best = best_of(facts)
    return best.line if best else ""


def best_of(facts: Facts) -> Best | None:
    """Return, of the changes that the findings name, the one that is told first: one that is known to save something; before
    generic advice, one that cannot be played and stands before it. None where there is none.
    """
    if nothing_is_far(facts):
        return None
    findings = [finding for finding in facts.findings if finding.slug != facts.verdict or finding.slug in NAMING]
    named = [finding for finding in findings if is_first_worthy(finding)]
    is_played = any(finding.gain for finding in facts.findings)
    if findings and is_played and _explains_much(findings[0]) and (not named or is_generic(named[0])):
        share = f"takes {about(findings[0].share or 0.0)} of {denominator(facts)}"
        return Best(TO_TRY, findings[0].slug, share, advice(findings[0].next))
    if not named:
        return None
    first = called_first(named[0].gain, [finding.gain for finding in named])
    return Best(first, named[0].slug, OF_A_STEP.format(gain_words(named[0])), advice(named[0].next))


def _explains_much(finding: Finding) -> bool:
    """Return whether a finding names a change that cannot be played, of what takes much of the critical path."""
    is_change = not PATTERNS[finding.slug].trivia and finding.slug not in GENERIC | OF_NO_CHANGE
    return is_change and finding.gain is None and (finding.share or 0.0) >= WORTH_A_LOOK


def is_first_worthy(finding: "Finding | JobFinding") -> bool:
    """Return whether a finding may be told first: it is known to save something, and does not only say where to look."""
    only_where = finding.slug in TO_LOOK_INTO and (finding.share or 0.0) < WORTH_A_LOOK
    return not only_where and not finding.is_worthless and bool(gain_words(finding))


def called_first(gain: Gain | None, gains: Iterable[Gain | None]) -> str:
    """Return what the change that is told first is called: the best, unless another one may save clearly more of a step."""
    own, *others = (about_middle(one) if one else 0.0 for one in (gain, *gains))
    return TO_TRY if own < max(others, default=0.0) else "best change"


def advice(next: str) -> str:
    """Return the first sentence of what to do next, without what stands in brackets."""
    return re.sub(r" \((?:[^()]|\([^()]*\))*\)", "", next).split(". ")[0].rstrip(".")


def gain_words(finding: "Finding | JobFinding") -> str:
    """Return what following the advice saves, in words; empty where that is not known, or says nothing."""
    if finding.gain is None:
        return ""
    is_bound = finding.gain.low < MIN_GAIN and finding.gain.high >= SAYS_NOTHING
    if is_bound and ((finding.share or 0.0) < SAYS_ENOUGH or finding.slug in OF_NO_CHANGE):
        return ""
    return saved(finding.gain)


def _saves(finding: Finding) -> str:
    """Return what following the advice saves of a step, as a sentence; empty where that is not known."""
    is_plain = finding.gain is not None and finding.gain.of == PLAIN
    if finding.is_worthless:
        return f" It saves next to nothing{' without the profiler' * is_plain}."
    of = "a step without the profiler" if is_plain else "a step as recorded"
    that = "Where that is so, it" if finding.next.startswith("If ") else "That"
    return f" {that} saves {told} of {of}." if (told := gain_words(finding)) else ""


def device_name(facts: Facts) -> str:
    """Return the GPU, or `CPU` where the program used none."""
    is_cpu = facts.device is None and facts.verdict == "cpu-only" and not facts.device_properties
    return CPU if is_cpu else facts.device or "unknown"


def header(facts: Facts, style: Style) -> list[str]:
    """Return the lines above a report: device, versions, run, steps, and what of the file could not be read."""
    versions = list(facts.versions.items())[: BRIEF_VERSIONS if style.is_short else None]
    listed = ", ".join(f"{name} {version}" for name, version in versions)
    device = device_name(facts)
    lines = [f"device: {'; '.join([device, *([listed or 'versions unknown'] if device != CPU or listed else [])])}"]
    if facts.world_size is not None and facts.world_size > 1:
        lines.append(f"rank: {'unknown' if facts.rank is None else facts.rank} of {facts.world_size}")
    if with_ := recorded_with(facts):
        lines.append(with_)
    if facts.host_prices:
        lines.append(f"what the profiler costs: {facts.host_prices.words}")
    if facts.stacks_from:
        lines.append(f"lines and functions of Python: {facts.stacks_from}")
    if facts.merged_ranks:
        ranks = ", ".join(map(str, facts.merged_ranks[:MOST_MERGED_RANKS])) + ", ..." * (
            len(facts.merged_ranks) > MOST_MERGED_RANKS
        )
        lines.append(
            f"ranks: {ranks}, merged; steps, verdict and path are those of one rank, kernels those of all. To see which rank "
            "waits for which, read the ranks' own files"
        )
    if facts.lesson.get("run"):
        lines.append(f"run: {facts.lesson.get('script', 'unknown')} {facts.lesson['run']}")
    if facts.lesson.get("peak_memory") and not style.is_short:
        lines.append(f"peak memory: {facts.lesson['peak_memory']}")
    skipped = sum(facts.skipped.values())
    reasons = ", ".join(f"{n} {reason}" for reason, n in facts.skipped.items())
    if not style.is_short or facts.first_bad or not ORDINARY.issuperset(facts.skipped):
        lines.append(f"events: {facts.events} found, {skipped} not used{f' ({reasons})' if reasons else ''}")
    if facts.first_bad:
        lines.append(f"the first event that could not be read: {facts.first_bad}")
    lines += health_lines(facts)
    lines += facts.failed
    if facts.truncated:
        lines.append("the file is cut off: its whole part was read")
    if facts.steps:
        every = "one every " if len(facts.steps) > 1 else ""
        period = f", {every}{us(facts.step_period_us)}{_far_step(facts)}" if facts.step_period_us else ""
        lines.append(f"{steps_line([step.name for step in facts.steps])}{period}")
        if how := how_found(facts):
            lines.append(f"{how}{_to_take(facts)}")
        if facts.server_steps:
            kinds = ", ".join(f"{one.steps} of {one.kind} (median {us(one.median_us)})" for one in facts.server_steps)
            lines.append(f"an inference server's steps, by their annotations: {kinds}")
    else:
        lines.append("steps: none")
    if facts.outliers:
        verb = "is" if facts.outliers == 1 else "are"
        lines.append(f"{count(facts.outliers, 'event')} far from all others {verb} left out of the window")
    return lines


def _far_step(facts: Facts) -> str:
    """Return where one step makes the mean another number than most steps are: the median, and that step."""
    times_us = facts.step_times_us
    told = times_us[1:]
    if len(told) < LEAST_STEPS or facts.server_steps or max(told) < FAR_STEP * (usual_us := median(np.array(told))):
        return ""
    return f" on average (median {us(usual_us)}; {facts.steps[times_us.index(max(told))].name} {us(max(told))})"


def how_found(facts: Facts) -> str:
    """Return one line: how the steps were found, where the program marks none, and whether they do the same; else empty."""
    found = facts.steps_found
    if found is None:
        return ""
    if found.how == WHOLE:
        return "no ProfilerStep, and nothing repeats: the whole recording counts as one step"
    counts = [step.launches if facts.has_gpu_work else step.kernels_or_ops for step in facts.steps]
    names = ("launch", "launches") if facts.has_gpu_work else ("op", "ops")
    alike = f"{count(counts[0], *names)} each" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} {names[1]} each"
    if found.how == RANGE:
        return f"no ProfilerStep: the steps are the range {printable(found.name, 60)}, which repeats ({alike})"
    again = f"the steps are the ops that repeat, starting at {printable(found.name, 60)} ({alike})"
    return f"no ProfilerStep: {again}; one step of the program may span several"


def _to_take(facts: Facts) -> str:
    """Return which annotations could be taken for steps: those whose names differ in numbers only, in the main, the most
    first.
    """
    alike: dict[str, int] = {}
    if facts.steps_found is None or facts.steps_found.how == RANGE:
        return ""
    for place in (annotation for annotation in facts.annotations if annotation.total_us is not None):
        if is_part_of_a_step(place.name) or is_collective(place.name):
            continue
        if start := re.match(r"[^\d\[(#]{3,}", place.name):
            alike[start[0]] = alike.get(start[0], 0) + place.calls
    name, calls = max(alike.items(), key=lambda item: item[1], default=("", 0))
    return f" (--steps_from '^{re.escape(name)}' would take {calls} annotations for steps)" if calls >= LEAST_STEPS else ""


def recorded_with(facts: Facts) -> str:
    """Return one line: what was recorded besides the events, where that is more than shapes, and what the profiler costs a step,
    where both are known; else empty.
    """
    asked, plain = facts.recorded_with, facts.plain
    if not set(asked) - {"shapes"}:
        return ""
    words = f"recorded with {', '.join(asked)}"
    if plain.how != MEASURED or not plain.step_us or not plain.recorded_step_us or plain.recorded_step_us <= plain.step_us:
        return f"{words}, which slows down the CPU"
    return f"{words}: {about(1 - plain.step_us / plain.recorded_step_us)} of a recorded step is the profiler's"


def steps_line(names: Sequence[str]) -> str:
    """Return the recorded steps in words: how many, and from which to which."""
    return f"steps: {len(names)} ({names[0] if names[0] == names[-1] else f'{names[0]} to {names[-1]}'})"


def _tree(node: Node, style: Style, depth: int = 0) -> list[str]:
    launched = "".join(f"  -> {label} {us(time)}" for label, time in node.launched[:3])
    if len(node.launched) > 3:
        launched += f"  and {len(node.launched) - 3} more"
    lines = [f"{'  ' * depth}{short(node.name, style)}  {us(node.duration_us)}{launched}"]
    for child in node.children:
        lines += _tree(child, style, depth + 1)
    return lines
