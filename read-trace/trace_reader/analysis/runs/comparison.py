"""Traces side by side. Two: what is the same, what is only in one, and a sentence that sums it up. More: a row for each."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
import os

import msgspec
from trace_reader.analysis.replay.plain_run import MEASURED, PlainRun
from trace_reader.analysis.runs.where_differs import WhereDiffers
from trace_reader.analysis.trace.facts import Facts
from trace_reader.analysis.trace.kernel_facts import KernelFacts
from trace_reader.analysis.trace.step_facts import StepFacts
from trace_reader.model.slices import Kind
from trace_reader.units import us


class Change(msgspec.Struct, frozen=True):
    """A kernel of one trace beside its counterpart in the other; None where there is none.

    `matched_by`: "name" to the letter; "shape", the GEMMs of the same shapes; "op", the only kernel that its op launches as often
    in either trace. `renamed` says what differs in the names then. Calls and times are those of a step (without steps: of all).
    """

    a: KernelFacts | None
    b: KernelFacts | None
    matched_by: str | None
    renamed: str
    calls: tuple[float, float]
    us: tuple[float, float]

    @property
    def difference_us(self) -> float:
        return self.us[1] - self.us[0]


class Comparison(msgspec.Struct, frozen=True):
    """What differs between the traces `a` and `b`. In `common` are the kernels whose names are the same, to the letter; in
    `changes` all of them, matched also by what they do, those with the largest difference in time first.
    """

    a: Facts
    b: Facts
    steps: tuple[tuple[StepFacts | None, StepFacts | None], ...]  # the first with the first, and so on
    common: tuple[tuple[KernelFacts, KernelFacts], ...]
    only_a: tuple[KernelFacts, ...]
    only_b: tuple[KernelFacts, ...]
    changes: tuple[Change, ...]
    ops_only_a: tuple[str, ...]
    ops_only_b: tuple[str, ...]
    findings_gone: tuple[str, ...]
    findings_new: tuple[str, ...]
    summary: str
    where: tuple[WhereDiffers, ...] = ()  # by the regions of their steps: of the GPU's time and the CPU's


def compare(a: Facts, b: Facts, where: tuple[WhereDiffers, ...] = ()) -> Comparison:
    """Compare the facts of two traces; `b` is told as a change from `a`. `where`: what `where_differs` says of the two."""
    in_a, in_b = ({k.name: k for k in facts.kernels} for facts in (a, b))
    common = tuple((k, in_b[k.name]) for k in a.kernels if k.name in in_b)
    only_a = tuple(k for k in a.kernels if k.name not in in_b)
    only_b = tuple(k for k in b.kernels if k.name not in in_a)
    ops_a, ops_b = ({op.name for op in facts.ops} for facts in (a, b))
    slugs_a, slugs_b = ([f.slug for f in facts.findings] for facts in (a, b))
    return Comparison(
        a=a,
        b=b,
        steps=tuple(zip_longest(a.steps, b.steps)),
        common=common,
        only_a=only_a,
        only_b=only_b,
        changes=_changes(a, b, common, only_a, only_b),
        ops_only_a=tuple(sorted(ops_a - ops_b)),
        ops_only_b=tuple(sorted(ops_b - ops_a)),
        findings_gone=tuple(slug for slug in slugs_a if slug not in slugs_b),
        findings_new=tuple(slug for slug in slugs_b if slug not in slugs_a),
        summary=_summary(a, b, common, only_a, only_b),
        where=where,
    )


def _changes(
    a: Facts,
    b: Facts,
    common: Sequence[tuple[KernelFacts, KernelFacts]],
    only_a: Sequence[KernelFacts],
    only_b: Sequence[KernelFacts],
) -> tuple[Change, ...]:
    pairs: list[tuple[KernelFacts | None, KernelFacts | None, str | None]] = [(one, other, "name") for one, other in common]
    left_a, left_b = list(only_a), list(only_b)
    for how, key_of in (("shape", _shapes), ("op", _launched_by)):
        keys_a, keys_b = ([key_of(facts, k) for k in left] for facts, left in ((a, left_a), (b, left_b)))
        for key in dict.fromkeys(keys_a):
            if key and keys_a.count(key) == keys_b.count(key) == 1:
                pairs.append((left_a[keys_a.index(key)], left_b[keys_b.index(key)], how))
        matched = {k.name for pair in pairs for k in pair[:2] if k}
        left_a, left_b = ([k for k in left if k.name not in matched] for left in (left_a, left_b))
    pairs += [(k, None, None) for k in left_a] + [(None, k, None) for k in left_b]
    steps = len(a.steps) or 1, len(b.steps) or 1
    changes = [
        Change(
            one,
            other,
            how,
            _renamed(one, other) if one and other and how != "name" else "",
            ((one.calls if one else 0) / steps[0], (other.calls if other else 0) / steps[1]),
            ((one.total_us if one else 0.0) / steps[0], (other.total_us if other else 0.0) / steps[1]),
        )
        for one, other, how in pairs
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.difference_us), -max(change.us))))


def _shapes(facts: Facts, k: KernelFacts) -> tuple | None:
    """Return the shapes of the GEMMs that a kernel takes, where they were recorded."""
    return tuple(sorted((g.op, g.batch, g.m, g.n, g.k) for g in facts.gemms if g.kernel == k.name)) or None


def _launched_by(facts: Facts, k: KernelFacts) -> tuple | None:
    return (k.op, k.kind, k.calls / (len(facts.steps) or 1)) if k.op else None


def _renamed(a: KernelFacts, b: KernelFacts) -> str:
    """Return what differs between two names, as far as they are understood."""
    parts = [
        f"{'family' if field == 'library' else field} {before} -> {after}"
        for field in ("library", "architecture", "dtype", "tile", "stages", "layout", "epilogue", "unit")
        if (before := getattr(a.decoded, field)) != (after := getattr(b.decoded, field)) and before and after
    ]
    return ", ".join(parts) or "another name"


class Row(msgspec.Struct, frozen=True):
    """One trace of several. Counts are those of the middle recorded step, times the median over the recorded steps."""

    label: str
    facts: Facts
    kernels: int | None  # None: no GPU event, or no recorded step
    copies: int | None
    gpu_us: float | None
    cpu_us: float | None
    slowest: KernelFacts | None  # by its time in all of the trace
    findings: tuple[str, ...]  # without those that all of the traces show


def rows(traces: Sequence[Facts]) -> tuple[Row, ...]:
    """Return a row for each trace, in the order given."""
    shared = set.intersection(*({f.slug for f in facts.findings} for facts in traces))
    return tuple(_row(label, facts, shared) for label, facts in zip(_labels_of([f.trace for f in traces]), traces, strict=True))


def _row(label: str, facts: Facts, shared: set[str]) -> Row:
    step = facts.usual_step if facts.has_gpu_work else None
    return Row(
        label,
        facts,
        kernels=step.kernels if step else None,
        copies=step.memcpys if step else None,
        gpu_us=median_of(_gpu_us(facts)),
        cpu_us=median_of(_cpu_us(facts)),
        slowest=next(iter(facts.kernels), None),
        findings=tuple(f.slug for f in facts.findings if f.slug not in shared),
    )


def _labels_of(paths: Sequence[str]) -> list[str]:
    """Return the paths without the folders that all of them begin with, and without .json."""
    folders = [os.path.dirname(path) for path in paths]
    try:
        start = os.path.commonpath(folders)
    except ValueError:  # some absolute, some not
        start = ""
    short = [os.path.relpath(path, start) if start else path for path in paths]
    return [path.removesuffix(".gz").removesuffix(".json") for path in short]


ONE_EACH, WORTH_A_REMARK = " (of one recording each)", 5  # %: another process may differ by more than its steps do


def _summary(
    a: Facts,
    b: Facts,
    common: tuple[tuple[KernelFacts, KernelFacts], ...],
    only_a: tuple[KernelFacts, ...],
    only_b: tuple[KernelFacts, ...],
) -> str:
    """Such as: the same 3 GEMM calls per step, gelu and mul became triton gelu+mul, GPU time -5%, CPU time per step +28%."""
    parts = []
    if a.kernels or b.kernels:
        gemms_a, gemms_b = (sum(k.calls for k in facts.kernels if k.decoded.is_gemm) for facts in (a, b))
        if gemms_a and gemms_b and a.steps and b.steps:
            in_a, in_b = gemms_a / len(a.steps), gemms_b / len(b.steps)
            calls = f"{_number(in_b)} GEMM call{'' if in_b == 1 else 's'} per step"
            if in_a != in_b:
                parts.append(f"{_number(in_a)} became {calls}")
            elif any(k.decoded.is_gemm for k in (*only_a, *only_b)):
                parts.append(f"as many GEMM calls per step ({_number(in_b)})")
            else:
                parts.append(f"the same {calls}")
        elif not only_a and not only_b:
            parts.append("the same kernels")
        gone, new = _labels(only_a), _labels(only_b)
        if gone and new and (_are_merged_in(only_a, only_b) or _are_merged_in(only_b, only_a)):
            parts.append(f"{gone} became {new}")
        else:
            parts += [f"{gone} went"] * bool(gone) + [f"{new} came"] * bool(new)
        if change := _change(a, b, _gpu_us):
            parts.append(f"GPU time per step {change}")
    if change := _change(a, b, _cpu_us):
        largest = "" if a.has_gpu_work or b.has_gpu_work else _largest_op(a, b)
        alone = abs(int(change.split("%")[0])) >= WORTH_A_REMARK and not change.endswith(")")
        parts.append(f"CPU time per step {change}{ONE_EACH * alone}{largest}")
    if a.step_period_us and b.step_period_us and len(a.steps) > 1 and len(b.steps) > 1:
        longer = b.step_period_us / a.step_period_us - 1
        told = f"{longer:+.0%}{_noise(a, b, _cpu_us, longer, '; ') if abs(100 * longer) >= WORTH_A_REMARK else ''}"
        parts.insert(0, f"the step period went from {us(a.step_period_us)} to {us(b.step_period_us)} ({told})")
    if plain := _plain_steps(a.plain, b.plain):
        parts.insert(0, plain)
    if a.verdict != b.verdict:
        parts.append(f"{a.verdict} became {b.verdict}")
    return (", ".join(parts) or "nothing to compare: no steps and no kernels that both have") + "."


def _plain_steps(a: PlainRun, b: PlainRun) -> str:
    """Return how the step without the profiler changed, where both were measured; empty else."""
    if (
        a.how != MEASURED
        or b.how != MEASURED
        or not (a.step_us and b.step_us and a.low_us and a.high_us and b.low_us and b.high_us)
    ):
        return ""
    rounds = ", within their rounds" if a.low_us <= b.high_us and b.low_us <= a.high_us else ""
    return f"without the profiler a step went from {us(a.step_us)} to {us(b.step_us)} ({b.step_us / a.step_us - 1:+.0%}{rounds})"


def _largest_op(a: Facts, b: Facts) -> str:
    """Of two runs without a GPU, the op whose own time differs most: `, most of it aten::mm (1.0 ms became 3.2 ms)`."""
    if not a.steps or not b.steps:
        return ""
    one = [{op.name: op.self_us / len(facts.steps) for op in facts.ops} for facts in (a, b)]
    name = max(sorted(one[0].keys() & one[1].keys()), key=lambda name: abs(one[1][name] - one[0][name]), default=None)
    middle = [median_of(_cpu_us(facts)) or 0.0 for facts in (a, b)]
    if name is None or abs(one[1][name] - one[0][name]) < 0.5 * abs(middle[1] - middle[0]) or middle[0] == middle[1]:
        return ""
    return f", most of it {name} ({us(one[0][name])} became {us(one[1][name])})"


def _are_merged_in(some: tuple[KernelFacts, ...], others: tuple[KernelFacts, ...]) -> bool:
    """Return whether others' names say that they do what some of these kernels did."""
    merged = {op for kernel in others for op in kernel.decoded.merged_ops}
    return any(kernel.decoded.label in merged for kernel in some)


def _labels(kernels: tuple[KernelFacts, ...], most: int = 3) -> str:
    names = list(dict.fromkeys(k.decoded.label for k in kernels if k.kind != Kind.MEMSET))
    shown = names[:most] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def median_of(values: list[float]) -> float | None:
    """Return the median; of an even number, the lower of the two in the middle (a value that was measured)."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


def _gpu_us(facts: Facts) -> list[float]:
    return [s.gpu_busy_us for s in facts.steps if s.gpu_busy_us is not None]


def _cpu_us(facts: Facts) -> list[float]:
    return [s.cpu_us for s in facts.steps]


def _change(a: Facts, b: Facts, times_us: Callable[[Facts], list[float]]) -> str | None:
    """`+28%`, of the medians over the steps, and whether the steps of one trace differ by as much among themselves.

    The first recorded step, which still pays for the profiler's start, is left out of that where there are others. None if one of
    the times is unknown or there is nothing to divide by.
    """
    before, after = median_of(times_us(a)), median_of(times_us(b))
    if not before or after is None:
        return None
    noise = _noise(a, b, times_us, after / before - 1)
    return f"{after / before - 1:+.0%}{f' ({noise})' if noise else ''}"


def _noise(a: Facts, b: Facts, times_us: Callable[[Facts], list[float]], change: float, before: str = "") -> str:
    """Return whether the steps of one trace differ by as much as that among themselves; empty if they do not."""
    spread, which = max((_spread(times_us(facts)), name) for facts, name in ((a, "A"), (b, "B")))
    return f"{before}within noise: the steps of {which} differ by {spread:.0%}" if abs(change) < spread else ""


def _spread(times: list[float]) -> float:
    """By how much they differ, over their median."""
    later = times[1:] if len(times) > 2 else times
    middle = median_of(later)
    return (max(later) - min(later)) / middle if middle else 0.0
