"""What a change would bring: the run without the profiler, played again with the change made (analysis/replay.py).

A change is text: `drop REGEX` (ops, annotations and calls of these names, and what they launched), `scale REGEX FACTOR` (GPU
events of these names), `no waits` (no call waits for the GPU), `graph` (each step is one launch), `loader` (no time goes into
asking a DataLoader for a batch).
"""

from collections import Counter
from collections.abc import Callable
import math
import re

import msgspec
import numpy as np
from trace_reader.analysis.plain_run import MEASURED, UNKNOWN, PlainRun, PricedRun
from trace_reader.analysis.replay import LONG_AGO_NS, Replay
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.trace import Trace, is_step
from trace_reader.link.waits import Reason
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import ON_CPU
from trace_reader.names.kernel_names import decode_name, is_collective

GRAPH_LAUNCH_NS = 20_000  # what the CPU takes to launch a graph; one H200's took 10 to 60 us, behind the GPU's work
NEVER_NS = LONG_AGO_NS // 2  # after that long a time, nothing is waited for
RECORDED = "recorded"
MOST_FACTOR, MOST_NAMES, LONGEST_NAME = 1000, 3, 60
CHANGES = "drop REGEX, scale REGEX FACTOR, no waits, graph, loader"


class Change(msgspec.Struct, frozen=True):
    """A change by its `kind`: drop, scale, no waits, graph or loader. `pattern` and `factor`: of those that take them."""

    text: str
    kind: str
    pattern: re.Pattern[str] | None = None
    factor: float = 1.0


class WhatIf(msgspec.Struct, frozen=True):
    """What changes bring. `of`: which step they are told of: the plain one, measured or estimated, or the recorded one.

    `matched`: of each change with a name, what that matched. `changed`: the step's time after them, from the lowest to the
    highest (us); `gain`: the share of the step that they save. `in_a_job`: whether the trace holds collectives, which are played
    as long as they were, though other ranks may change them.
    """

    trace: str
    changes: tuple[str, ...]
    matched: tuple[str, ...]
    of: str
    recorded_step_us: float
    plain: PlainRun
    changed_low_us: float
    changed_high_us: float
    gain_low: float
    gain_high: float
    in_a_job: bool


class Gain(msgspec.Struct, frozen=True):
    """The share of a step without the profiler that a change saves, 0 to 1."""

    low: float
    high: float


Edit = Callable[[Replay, np.ndarray], object]  # changes the times between the nodes of a replay


class Effect(msgspec.Struct, frozen=True):
    """What following an advice makes of a run: `most`, where it succeeds as well as it can, and `least`, what of that is sure;
    None for nothing.
    """

    most: Edit
    least: Edit | None = None


def surely(edit: Edit) -> Effect:
    """The effect of an advice that can be played exactly."""
    return Effect(edit, edit)


def parse_change(text: str) -> Change:
    """Raises ValueError, in words for the user."""
    kind, _, rest = text.strip().partition(" ")
    if text.strip() in ("no waits", "graph", "loader"):
        return Change(text, text.strip())
    if kind not in ("drop", "scale") or not rest.strip():
        raise ValueError(f"expected one of {CHANGES}, got {text!r}")
    factor = 1.0
    if kind == "scale":
        rest, _, number = rest.strip().rpartition(" ")
        try:
            factor = float(number)
        except ValueError:
            factor = math.nan
        if not rest or not 0 <= factor <= MOST_FACTOR:
            raise ValueError(f"expected scale REGEX FACTOR, with a factor from 0 to {MOST_FACTOR}, got {text!r}")
    try:
        return Change(text, kind, re.compile(rest.strip()), factor)
    except re.error as error:
        raise ValueError(f"expected a regular expression in {text!r}: {error}") from None


def what_if(trace: Trace, plain: PlainRun, changes: list[Change]) -> WhatIf:
    """What these changes bring, all together, in whatever order. Raises LookupError: the trace has no steps, it cannot be played
    again, or a change finds nothing to change.
    """
    if not len(trace.steps):
        raise LookupError(f"{trace.path}: --what_if changes a step, and the trace has none")
    run = PricedRun(trace)
    if not run.is_sound(plain.recorded_step_us):
        raise LookupError(f"{trace.path}: --what_if cannot play this trace again: clocks disagree, or its first steps are others")
    times_ns, of = run.times_ns(plain) if plain.how != UNKNOWN else [], plain.how
    if not times_ns:
        times_ns, of = [run.replay.nodes.after_ns.copy()], RECORDED
    before_us = [run.replay.play(after_ns).step_us for after_ns in times_ns]
    after_us: list[float] = []
    matched: tuple[str, ...] = ()
    for after_ns in times_ns:
        matched = _make(changes, run.replay, after_ns)
        after_us.append(run.replay.play(np.maximum(after_ns, NEVER_NS)).step_us)
    gains = [1 - after / before for before, after in zip(before_us, after_us, strict=True)]
    recorded_us = plain.recorded_step_us or run.replay.play().step_us
    whole_us = {MEASURED: plain.step_us, RECORDED: recorded_us}.get(of)
    changed_us = after_us if whole_us is None else [whole_us * (1 - gain) for gain in gains]
    return WhatIf(
        trace=trace.path,
        changes=tuple(change.text for change in changes),
        matched=matched,
        of=of,
        recorded_step_us=recorded_us,
        plain=plain,
        changed_low_us=min(changed_us),
        changed_high_us=max(changed_us),
        gain_low=min(gains),
        gain_high=max(gains),
        in_a_job=bool(run.replay.work.is_named(is_collective).any()),
    )


def gain_of(run: PricedRun, plain: PlainRun, effect: Effect) -> Gain | None:
    """What an advice saves of the plain step; None where that step is not known."""
    gains: dict[str, list[float]] = {"least": [], "most": []}
    for after_ns, before_us in run.plain_times(plain):
        for name, found in gains.items():
            edit = getattr(effect, name)
            changed_ns = after_ns.copy()
            if edit is not None:
                edit(run.replay, changed_ns)
            after_us = before_us if edit is None else run.replay.play(np.maximum(changed_ns, NEVER_NS)).step_us
            found.append(1 - after_us / before_us)
    if not gains["most"]:
        return None
    low = max(min(gains["least"]), 0.0)
    return Gain(low, max(*gains["most"], low))


def _make(changes: list[Change], replay: Replay, after_ns: np.ndarray) -> tuple[str, ...]:
    """Make the changes: first the factors, which multiply, last what is dropped, which stays so. For each change in words what it
    matched. Raises LookupError: there is nothing to change.
    """
    kinds = {change.kind for change in changes}
    factors, matched = np.ones(len(replay.work)), []
    for change in changes:
        if change.kind == "scale":
            own, told = _scaled(change, replay)
            factors *= own
            matched.append(f"{change.text}: {told}")
    _scale(replay, after_ns, np.minimum(factors, MOST_FACTOR))
    if "graph" in kinds:
        if not len(replay.work):
            raise _nothing("graph", replay, "no GPU event")
        launch_at_once(replay, after_ns, "loader" not in kinds)
    if "loader" in kinds and not load_nothing(replay, after_ns):
        raise _nothing("loader", replay, "no DataLoader that was asked for a batch")
    calls = replay.trace.waits.where(replay.trace.waits.reason != Reason.QUEUE)
    if "no waits" in kinds and not return_at_once(replay, after_ns, calls.at):
        raise _nothing("no waits", replay, "no call that waits for the GPU")
    for change in changes:
        if change.kind == "drop":
            spans = _matching(change, replay)
            matched.append(f"{change.text}: {_listed(spans.names)}")
            drop_spans(replay, after_ns, spans)
    return tuple(matched)


def _nothing(text: str, replay: Replay, what: str) -> LookupError:
    return LookupError(f"{replay.trace.path}: {text!r} matches nothing: the trace has {what}")


def _listed(names: list[str]) -> str:
    """How many there are, and of which names, the most frequent first."""
    counts = Counter(names).most_common()
    more = f" and {len(counts) - MOST_NAMES} more names" if len(counts) > MOST_NAMES else ""
    return ", ".join(f"{n} x {name[:LONGEST_NAME]}" for name, n in counts[:MOST_NAMES]) + more


def _scaled(change: Change, replay: Replay) -> tuple[np.ndarray, str]:
    """For each GPU event, the change's factor, 1 for those that do not match; and what matches, in words."""
    work = replay.work

    def matches(name: str) -> bool:
        return bool(change.pattern and (change.pattern.search(name) or change.pattern.search(decode_name(name).label)))

    chosen = work.is_named(matches)
    if not chosen.any():
        raise _nothing(change.text, replay, "no kernel or copy of such a name (scale takes kernels and copies, drop takes ops)")
    labels = [decode_name(name).label for name in work.where(chosen).names]
    return np.where(chosen, change.factor, 1.0), _listed(labels)


def _matching(change: Change, replay: Replay) -> Rows:
    """The ops, annotations and calls of the steps that match."""
    slices = replay.trace.slices
    spans = Rows(slices, slices.of(*ON_CPU))
    spans = spans.where(spans.is_named(lambda name: bool(change.pattern and change.pattern.search(name) and not is_step(name))))
    spans = spans.where((spans.start_ns >= replay.steps.start_ns[0]) & (spans.start_ns < replay.steps.end_ns[-1]))
    if not len(spans):
        what = "no op, annotation or call of such a name in its steps (drop takes ops, scale takes kernels and copies)"
        raise _nothing(change.text, replay, what)
    return spans


def _scale(replay: Replay, after_ns: np.ndarray, factors: np.ndarray) -> None:
    """Let each GPU event take so many times as long."""
    saved_ns = (replay.work.end_ns - replay.work.start_ns) * (1 - factors)
    after_ns[replay.gpu_nodes] -= np.rint(saved_ns).astype(np.int64)[:, None]


def scaled(rows: Rows, factor: float | np.ndarray) -> Edit:
    """Let these GPU events (in order) take so many times as long, each or all."""
    factors = np.broadcast_to(factor, len(rows))

    def edit(replay: Replay, after_ns: np.ndarray) -> None:
        if len(rows):
            at = np.minimum(np.searchsorted(rows.at, replay.work.at), len(rows) - 1)
            _scale(replay, after_ns, np.where(rows.at[at] == replay.work.at, factors[at], 1.0))

    return edit


def skip(replay: Replay, after_ns: np.ndarray, union: tuple[np.ndarray, np.ndarray], left: float = 0.0) -> None:
    """Let the CPU take no time in these stretches (as `merged` gives them), or only so much of it."""
    stretches = replay.stretches
    inside = each_within_ns(stretches.start_ns, stretches.end_ns, union)
    kept = 1 - (1 - left) * inside / np.maximum(stretches.end_ns - stretches.start_ns, 1)
    after_ns[stretches.node, 0] = (after_ns[stretches.node, 0] * kept).astype(np.int64)


def skipped(union: tuple[np.ndarray, np.ndarray]) -> Edit:
    """Let the CPU take no time in these stretches (as `merged` gives them)."""
    return lambda replay, after_ns: skip(replay, after_ns, union)


def dropped(spans: Rows, left_of_cpu: float = 0.0, left_of_gpu: float = 0.0) -> Edit:
    """Take these ops and calls (in order) away, with what they launched; or leave so much of the time."""
    return lambda replay, after_ns: drop_spans(replay, after_ns, spans, left_of_cpu, left_of_gpu)


def without_waits(calls: Rows) -> Edit:
    """Let these calls wait for nothing."""
    return lambda replay, after_ns: return_at_once(replay, after_ns, calls.at)


def unlaunched(rows: Rows) -> Edit:
    """Take these GPU events away, with the calls that launched them."""
    return dropped(Rows(rows.slices, distinct(rows.call[rows.call >= 0]).values.astype(np.int64)))


def all_of(*edits: Edit) -> Edit:
    """Several edits, one after the other."""

    def edit(replay: Replay, after_ns: np.ndarray) -> None:
        for one in edits:
            one(replay, after_ns)

    return edit


def drop_spans(replay: Replay, after_ns: np.ndarray, spans: Rows, left_of_cpu: float = 0.0, left_of_gpu: float = 0.0) -> None:
    """Take these spans and calls (in order) away, with what is in them and what they launched; or leave so much of the time."""
    slices, moments = replay.trace.slices, replay.moments
    skip(replay, after_ns, merged(spans.start_ns, spans.end_ns), left_of_cpu)
    calls = np.unique(moments.call[moments.call >= 0])
    dropped = np.zeros(len(calls), bool)
    for (track,), own in spans.by(spans.track):
        on_track = slices.track[calls] == track
        starts = slices.start_ns[calls[on_track]]
        dropped[on_track] |= each_within_ns(starts, starts + 1, merged(own.start_ns, own.end_ns)) > 0
    ends = replay.number[moments.place(calls[dropped], end=True)]
    after_ns[ends, 0] = (after_ns[ends, 0] * left_of_cpu).astype(np.int64)
    after_ns[ends, 1:] = NEVER_NS
    is_gone = np.isin(replay.work.call, calls[dropped])
    gone, work = replay.gpu_nodes[is_gone], replay.work.where(is_gone)
    after_ns[gone, :2] = np.rint((work.end_ns - work.start_ns) * left_of_gpu).astype(np.int64)[:, None]
    after_ns[gone, 2] = NEVER_NS


def return_at_once(replay: Replay, after_ns: np.ndarray, calls: np.ndarray) -> bool:
    """Let these calls (rows) wait for nothing. Whether there was one that did."""
    ends = replay.moments.place(calls, end=True)
    ends = replay.number[ends[ends >= 0]]
    waiting = ends[replay.nodes.waits_for[ends, 1] >= 0]
    after_ns[waiting, 1] = NEVER_NS
    return len(waiting) > 0


def load_nothing(replay: Replay, after_ns: np.ndarray) -> bool:
    """Let a DataLoader take no time. Whether there was one that did."""
    _, _, share = replay.nature
    after_ns[:, 0] = np.where(share > 0, after_ns[:, 0] * (1 - share), after_ns[:, 0]).astype(np.int64)
    return bool(share.any())


def need_no_cpu(replay: Replay, after_ns: np.ndarray) -> None:
    """The CPU takes no time but what a DataLoader takes: what launching can bring at most, by whatever means."""
    launch_at_once(replay, after_ns, launch_ns=0)


def launch_at_once(replay: Replay, after_ns: np.ndarray, loads: bool = True, launch_ns: int = GRAPH_LAUNCH_NS) -> None:
    """The CPU's time in a step is one launch and what a DataLoader takes; GPU events follow each other as they do in a queue."""
    share = replay.nature[2] * loads
    stretches, moments = replay.stretches, replay.moments
    after_ns[stretches.node, 0] = (after_ns[stretches.node, 0] * share[stretches.node]).astype(np.int64)
    of_steps = (moments.call < 0) & moments.is_end
    after_ns[replay.number[: len(moments)][of_steps], 0] += launch_ns
    launches = moments.place(np.unique(replay.work.call[replay.work.call >= 0]), end=True)
    waits = moments.place(replay.trace.waits.at, end=True)
    launches = np.setdiff1d(launches[launches >= 0], waits)
    after_ns[replay.number[launches], 0] = 0
    # A launch that was the first of its kind can have taken long to reach the GPU.
    late_ns = replay.nodes.after_ns[replay.gpu_nodes, 0] - (replay.work.end_ns - replay.work.start_ns) - replay.latency_ns
    launched = replay.work.call >= 0
    after_ns[replay.gpu_nodes[launched], 0] -= np.maximum(late_ns[launched], 0)
