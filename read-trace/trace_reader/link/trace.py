"""A linked trace: who launched which GPU event, inside which op, in which recorded step.

A call belongs to the step whose time it starts in, and to the innermost op that is open then on its thread.
"""

from functools import cached_property
import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from trace_reader.errors import MissingExtraError
from trace_reader.link.backward import Passes, backward_passes, forward_ops
from trace_reader.link.found_steps import (
    Found,
    found_spans,
    ranges_among_ops,
    repeated_range,
    with_spans,
)
from trace_reader.link.graph_edges import graph_edges
from trace_reader.link.impossible_events import ImpossibleEvent, cut_impossible
from trace_reader.link.intervals import merged, ranges
from trace_reader.link.launches import Origin, gpu_work
from trace_reader.link.nesting import outermost, parents
from trace_reader.link.odd_steps import Pause, pauses
from trace_reader.link.waits import waits
from trace_reader.model.host_prices import HostPrices
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import NO_CORRELATION, Counters, Footprint, Inputs, Kind, Memory, Region, Slice, Slices, Track
from trace_reader.names.call_names import is_launch
from trace_reader.names.range_names import is_step
from trace_reader.parse.decode import Decoded

if TYPE_CHECKING:
    import pandas

# What inference servers call their steps, where nobody called the profiler's step(): vLLM's batches, SGLang's, vLLM's forward
# passes. The first of these that a trace has.
_SERVERS = (
    r"execute_(?:context_|new_|\d)", r"^step\[", r"^(?:prefill|decode)\[", r"^gpu_model_runner: forward$", r"^execute_model$",
)  # fmt: skip
SERVER_STEPS = tuple(map(re.compile, _SERVERS))
EVALUATE = "autograd::engine::evaluate_function"  # what runs a node of the backward pass
OWN_WORK = 0.02  # of a step, that the profiler's own work in it may take: less than that does no harm
ROUNDED_NS = 1000  # of a clock of whole microseconds
ATEN = re.compile("aten::")
OUTLIVED_NS = 2000  # that an op may seem to end after the one that calls it
TOLERANCE_NS = 2  # times are written with three decimals: ends and starts that meet can differ by a rounding


class Activity(msgspec.Struct, frozen=True, gc=False):
    """A GPU event with what is known of its launch. `step` is the index of the recorded step that launched it."""

    event: Slice
    origin: Origin
    call: Slice | None
    op: Slice | None
    step: int | None


class Trace(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A linked trace, as `load` returns it. All rows are in the order of their starts.

    `steps`: the CPU's ProfilerStep slices, or the annotations that `load` was told to use as steps. `annotations`: all other
    annotations. `parent`: for each row, the row of the span around it, or -1. `work`: the kernels, copies and memsets. Their
    columns are `call` and `op` (each a row, or -1 for none), `origin`, and `step` (an index into `steps`, or -1 for none).
    `has_steps`: for each track, whether a slice that begins on it during a step belongs to that step. `memory`: the allocations
    and frees. `counters`: the samples of hardware counters. `functions_ns`: the start of each recorded Python function, in
    order. `zero_ns`: the start of the first slice on the file's own clock; all other times count from it. `found`: how the
    reader found the steps, if the program marks none. `graph_edges`: pairs of GPU events (rows). In each pair, the second event
    waits for the first, as an arrow of a CUDA graph in the trace says. `impossible`: GPU events whose recorded duration is
    impossible; here they end earlier than in the file. `host_prices`: what the profiler costs on the host of the trace, if a
    file gives these costs.
    """

    path: str
    slices: Slices
    header: dict[str, Any]
    total: int
    skipped: dict[str, int]
    first_bad: str | None
    zero_timestamps: int
    thread_names: dict[Track, str]
    parent: np.ndarray
    steps: Rows
    annotations: Rows
    work: Rows
    has_steps: np.ndarray
    memory: Memory
    counters: Counters
    functions_ns: np.ndarray
    zero_ns: int
    graph_edges: np.ndarray
    found: Found | None = None
    impossible: tuple[ImpossibleEvent, ...] = ()
    host_prices: HostPrices | None = None

    @property
    def base_ns(self) -> int:
        """What the file's times count from, since 1970; 0 where its header does not say: then they may count from there."""
        base_ns = self.header.get("baseTimeNanoseconds")
        return base_ns if type(base_ns) is int and abs(base_ns) < 2**62 else 0

    @cached_property
    def ops(self) -> Rows:
        return Rows(self.slices, self.slices.of(Kind.OP))

    @cached_property
    def outer_ops(self) -> Rows:
        """The ops of the steps that lie in no other op; of a node of the backward pass the node."""
        ops = self.ops.where(self.step_at(self.ops.start_ns) >= 0)
        return Rows(self.slices, outermost(self.slices, ops.at))

    @cached_property
    def nodes(self) -> Rows:
        """The nodes of the backward pass, with the column `made_by`: the op of the forward pass whose node it is (a row; -1: not
        known).
        """
        nodes = self.ops.where(self.ops.is_named(lambda name: name.startswith(EVALUATE)))
        forward, places = forward_ops(self.slices, self.parent, nodes.at)
        made_by = np.full(len(nodes), -1, np.int64)
        made_by[places] = forward
        return Rows(self.slices, nodes.at, made_by=made_by)

    @cached_property
    def passes(self) -> Passes:
        """The backward passes of the steps, by the nodes of which it is known what made them."""
        step = self.step_at(self.nodes.start_ns)
        known = (self.nodes.made_by >= 0) & (step >= 0)
        return backward_passes(self.nodes.where(known), step[known])

    @cached_property
    def op_names(self) -> frozenset[str]:
        """The names of the ops, each once."""
        return frozenset(self.slices.names[number] for number in distinct(self.ops.name).values.tolist())

    @cached_property
    def has_backward(self) -> bool:
        """Whether a node of a backward pass runs in it."""
        return len(self.backward_tracks) > 0 or any("Backward" in name for name in self.op_names)

    @cached_property
    def calls(self) -> Rows:
        return Rows(self.slices, self.slices.of(Kind.CALL))

    @cached_property
    def waits(self) -> Rows:
        """The calls that waited for the GPU, with the columns `reason` and `copied` (link/waits.py)."""
        return waits(self.calls, self.work)

    @cached_property
    def backward_tracks(self) -> np.ndarray:
        """The threads that run a backward pass, for which the thread that called backward() waits meanwhile. Torch 1.8 and 1.9
        write no evaluate_function around a node: there, those that run the nodes that a thread made.
        """
        nodes = self.ops.where(self.ops.is_named(lambda name: name.startswith(EVALUATE)))
        if not len(nodes):
            nodes = self.ops.where(self.slices.forward_thread[self.ops.at] > 0)
        return distinct(nodes.track).values

    @cached_property
    def step_ends_ns(self) -> np.ndarray:
        """When each step ends: when its last GPU event has ended, or on the CPU, whichever is later. Where the CPU runs ahead,
        its own time says nothing of how fast the run is.
        """
        ends_ns = self.steps.end_ns.copy()
        launched = self.work.where(self.work.step >= 0)
        np.maximum.at(ends_ns, launched.step, launched.end_ns)
        return np.maximum.accumulate(ends_ns)

    @cached_property
    def steps_left_out(self) -> int:
        """How many of the recorded steps a path leaves out: the first, if it pays for the profiler's start. Of three or more it
        is taken to, of two it does where the profiler's own work is a part of it.
        """
        if len(self.steps) != 2:
            return int(len(self.steps) > 2)
        own = self.overheads.where(self.step_at(self.overheads.start_ns) == 0)
        return int(own.total_us > OWN_WORK * float(self.steps.duration_us[0]))

    @cached_property
    def pauses(self) -> tuple[Pause, ...]:
        """What one step waited and the others did not (link/odd_steps.py)."""
        return pauses(self.slices, self.steps, self.step_ends_ns)

    @property
    def pauses_ns(self) -> tuple[np.ndarray, np.ndarray]:
        """When the pauses start and end; in order, and none overlaps another."""
        times = np.array([(pause.start_ns, pause.end_ns) for pause in self.pauses], np.int64).reshape(-1, 2)
        return times[:, 0], times[:, 1]

    @cached_property
    def early_us(self) -> np.ndarray:
        """Of each GPU event that begins before the call that launched it, by how much. None can: the clocks differ."""
        linked = self.work.where(self.work.call >= 0)
        before_ns = self.slices.start_ns[linked.call] - linked.start_ns
        return before_ns[before_ns > ROUNDED_NS] / 1000

    @cached_property
    def outlasting_us(self) -> np.ndarray:
        """Of each synchronize of the steps (where there are none, of all) that goes on after all recorded GPU work has ended, how
        long it does. The profiler's own, behind the last step, is none.
        """
        waits = self.waits.where(self.waits.outlasts)
        waits = waits.where(self.step_at(waits.start_ns) >= 0) if len(self.steps) else waits
        ends_ns = np.append(np.iinfo(np.int64).min, np.sort(self.work.end_ns))
        before_ns = ends_ns[np.searchsorted(ends_ns, waits.end_ns, "right") - 1]
        return (waits.end_ns - np.maximum(before_ns, waits.start_ns)) / 1000

    @cached_property
    def outlived(self) -> tuple[Rows, Rows, np.ndarray]:
        """Ops that end after the op that calls them, and what a step of the profiler holds and ends after it: each with what it
        lies in, and by how much it is later (us). None can.
        """
        slices = self.slices
        rows = slices.of(Kind.OP, Kind.CALL)
        rows = rows[self.parent[rows] >= 0]
        rows = rows[slices.end_ns[rows] - slices.end_ns[self.parent[rows]] > OUTLIVED_NS]
        inner, outer = Rows(slices, rows), Rows(slices, self.parent[rows])
        in_op = inner.is_named(ATEN.match) & outer.is_named(ATEN.match) & (inner.kind == Kind.OP) & (outer.kind == Kind.OP)
        asked = in_op | outer.is_named(is_step)
        asked &= (self.step_at(inner.start_ns) >= 0) | (len(self.steps) == 0)
        inner, outer = inner.where(asked), outer.where(asked)
        return inner, outer, (inner.end_ns - outer.end_ns) / 1000

    @cached_property
    def mixed_processes(self) -> int:
        """Of how many processes the events are in the file that cannot be told apart: steps of one name, or launches of one
        number, are several processes', or steps of one name several threads' (processes that have one number). 0: of none.
        """
        if self.header.get("mergedRanks"):
            return 0
        number: dict[int | str, int] = {}
        process = np.array([number.setdefault(pid, len(number)) for pid, _ in self.slices.tracks])
        launches = self.calls.where(self.calls.is_named(is_launch) & (self.calls.correlation != NO_CORRELATION))
        annotations = Rows(self.slices, self.slices.of(Kind.ANNOTATION))
        steps = annotations.where(annotations.is_named(is_step))
        found: set[int] = set()
        for rows, key in ((launches, launches.correlation), (steps, steps.name)):
            pairs = distinct(distinct(key).which * len(number) + process[rows.track]).values  # of a key and a process, each once
            keys = distinct(pairs // len(number))
            found.update((pairs[keys.counts[keys.which] > 1] % len(number)).tolist())
        pairs = distinct(distinct(steps.name).which * len(self.slices.tracks) + steps.track).values  # of a name and a thread
        threads = distinct(pairs // max(len(self.slices.tracks), 1)).counts.max(initial=0)
        return max(len(found), int(threads) if threads > 1 else 0)

    @cached_property
    def overheads(self) -> Rows:
        return Rows(self.slices, self.slices.of(Kind.OVERHEAD))

    @cached_property
    def gpu_annotations(self) -> Rows:
        return Rows(self.slices, self.slices.of(Kind.GPU_ANNOTATION))

    @cached_property
    def cpu_spans(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the CPU that take time, and their starts (ns): ops, annotations, and calls that are in no other call (the
        driver's are in the runtime's).
        """
        slices = self.slices
        takes_time = slices.end_ns > slices.start_ns
        kept = takes_time & ((slices.kind == Kind.OP) | (slices.kind == Kind.ANNOTATION))
        calls = slices.of(Kind.CALL)
        kept[outermost(slices, calls[takes_time[calls]])] = True
        rows = np.flatnonzero(kept).astype(np.int32)
        return rows, slices.start_ns[rows]

    @cached_property
    def linked(self) -> Rows:
        """The GPU's work without what was launched before the recording began: what means and shares are of."""
        return self.work.where(self.work.origin != Origin.CARRIED_OVER)

    @cached_property
    def launched(self) -> Rows:
        """The GPU's work that the steps launched."""
        return self.linked.where((self.linked.call >= 0) & (self.linked.step >= 0))

    @cached_property
    def _launches(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of what the steps launched, by the launches' threads and starts: its places in `launched`, and both of these."""
        track, start_ns = self.slices.track[self.launched.call], self.slices.start_ns[self.launched.call]
        order = np.lexsort((start_ns, track))
        return order, track[order], start_ns[order]

    def launched_in(self, spans: Rows) -> Rows:
        """Return what of the GPU's work the steps launched inside these spans, on their threads."""
        order, tracks, starts_ns = self._launches
        places = [np.zeros(0, np.int64)]
        for (track,), one in spans.by(spans.track):
            first, after = np.searchsorted(tracks, (track, track + 1)).tolist()
            begins_ns, ends_ns = merged(one.start_ns, one.end_ns)
            begins, ends = (first + np.searchsorted(starts_ns[first:after], moments) for moments in (begins_ns, ends_ns))
            places.append(order[ranges(begins, ends)])
        return self.launched.where(np.sort(np.concatenate(places)))

    def step_at(self, moment_ns: np.ndarray) -> np.ndarray:
        """Return the index of the step that is open at each moment, or -1."""
        return _step_at(self.steps, moment_ns)

    def activities(self, rows: Rows | None = None) -> list[Activity]:
        """Return the GPU's work (or these rows of it), one by one."""
        rows = self.work if rows is None else rows
        every = zip(rows, rows.origin.tolist(), rows.call.tolist(), rows.op.tolist(), rows.step.tolist(), strict=True)
        return [
            Activity(
                event,
                Origin(origin),
                self.slices[call] if call >= 0 else None,
                self.slices[op] if op >= 0 else None,
                step if step >= 0 else None,
            )
            for event, origin, call, op, step in every
        ]

    def events(self) -> "pandas.DataFrame":
        """Return all slices as a DataFrame of pandas, a row each, in order of start.

        Columns: `name`, `kind` (op, annotation, call, kernel, memcpy, memset, overhead, gpu_annotation, and python
        where `load` was asked for stacks), `pid` and `tid` (of
        a GPU's: device and stream), `start_us` from the first slice, `duration_us`, `parent` (the row of the span around
        it), `step` (an index of the recorded steps: the one that is open at the start, of the GPU's work the one that launched
        it), and of the GPU's work `call` and `op` (rows); -1 for none; `correlation` of a launch with its work, -1 for none.
        What an event says of itself, as far as it was recorded, else None: an op's `shapes` (one for each input) and `types`, a
        kernel's `grid` and `block`, `bytes` of a copy or memset. Raises MissingExtraError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("events() needs pandas: install read-trace with it, read-trace[pandas]") from error
        slices = self.slices
        columns = {"step": self.step_at(slices.start_ns), "call": np.full(len(slices), -1), "op": np.full(len(slices), -1)}
        for name, column in columns.items():
            column[self.work.at] = getattr(self.work, name)
        return pandas.DataFrame(
            {
                "name": pandas.Categorical.from_codes(slices.name, slices.names),
                "kind": pandas.Categorical.from_codes(slices.kind, [kind.word for kind in Kind]),
                "pid": [slices.tracks[track][0] for track in slices.track.tolist()],
                "tid": [slices.tracks[track][1] for track in slices.track.tolist()],
                "start_us": slices.start_ns / 1000,
                "duration_us": slices.duration_us,
                "parent": self.parent,
                **columns,
                "correlation": np.where(slices.correlation == NO_CORRELATION, -1, slices.correlation),
                **self._said(),
            }
        )

    def _said(self) -> dict[str, list[Any]]:
        """Return what each event says of itself: columns of `events`."""
        details: list[Any] = [*self.slices.details, None]  # the last for those that say nothing
        of = {
            "shapes": [detail.dims if isinstance(detail, Inputs) else None for detail in details],
            "types": [detail.types if isinstance(detail, Inputs) else None for detail in details],
            "grid": [detail.grid if isinstance(detail, Footprint) else None for detail in details],
            "block": [detail.block if isinstance(detail, Footprint) else None for detail in details],
        }
        regions = [detail.name if isinstance(detail, Region) else None for detail in details]
        which = self.slices.detail.tolist()
        moved = among(self.slices.kind, (Kind.MEMCPY, Kind.MEMSET)).tolist()
        size = [
            details[one] if is_moved and isinstance(details[one], int) else None
            for one, is_moved in zip(which, moved, strict=True)
        ]
        said = {name: [values[one] for one in which] for name, values in of.items()}
        return {**said, "bytes": size, "region": [regions[one] for one in self.slices.region.tolist()]}

    def __repr__(self) -> str:
        return f"<Trace {self.path}: {len(self.slices)} slices, {len(self.work)} on a GPU, {len(self.steps)} steps>"


def link(decoded: Decoded, steps_from: re.Pattern[str] | None = None) -> Trace:
    """Join the events of a file. Takes time n log n of the number of events.

    `steps_from`: the annotations that are the steps, where these are not the profiler's. Raises LookupError: there is none.
    """
    slices = decoded.slices
    parent = parents(slices)
    slices.kind[ranges_among_ops(slices, parent)] = Kind.ANNOTATION
    annotations = Rows(slices, slices.of(Kind.ANNOTATION))
    found = None
    if steps_from is not None:
        steps = _chosen(decoded.path, annotations, steps_from)
    elif not (steps := annotations.is_named(is_step)).any():
        if server := next((name for name in SERVER_STEPS if _named(annotations, name).sum() >= 2), None):
            steps = _chosen(decoded.path, annotations, server)
        elif (ranges := repeated_range(slices, annotations)) is not None:
            found, steps = ranges
        elif (spans := found_spans(slices, parent)) is not None:
            found, (slices, new) = spans[0], with_spans(slices, spans[1])
            parent = parents(slices)
            annotations = Rows(slices, slices.of(Kind.ANNOTATION))
            steps = among(annotations.at, new)
    work = gpu_work(slices, parent)
    impossible = cut_impossible(slices, work)
    has_steps = _without_other_processes(annotations, steps)
    steps &= has_steps[annotations.track]
    recorded = annotations.where(steps)
    step = np.full(len(work), -1)
    launched = work.call >= 0
    if not launched.any():  # no event names its launch: each counts for the step in which it begins
        step = _step_at(recorded, work.start_ns)
    launched[launched] = has_steps[slices.track[work.call[launched]]]
    step[launched] = _step_at(recorded, slices.start_ns[work.call[launched]])
    return Trace(
        path=decoded.path,
        slices=slices,
        header=decoded.header,
        total=decoded.total,
        skipped=decoded.skipped,
        first_bad=decoded.first_bad,
        zero_timestamps=decoded.zero_timestamps,
        thread_names=decoded.thread_names,
        parent=parent,
        steps=recorded,
        annotations=annotations.where(~steps),
        work=Rows(slices, work.at, call=work.call, op=work.op, origin=work.origin, step=step),
        has_steps=has_steps,
        memory=decoded.memory,
        counters=decoded.counters,
        functions_ns=decoded.functions_ns,
        zero_ns=decoded.zero_ns,
        graph_edges=graph_edges(slices, work, decoded.arrows),
        found=found,
        impossible=impossible,
    )


def _without_other_processes(annotations: Rows, steps: np.ndarray) -> np.ndarray:
    """For each track, whether the steps are its own: where several processes are in one file and each has steps (a job that was
    merged), the steps are those of the process that begins first, and the others' tracks have none.
    """
    processes = [pid for pid, _ in annotations.slices.tracks]
    first, *others = dict.fromkeys(processes[track] for track in annotations.track[steps].tolist()) or [None]
    return np.array([pid == first or pid not in others for pid in processes])


def _named(annotations: Rows, pattern: re.Pattern[str]) -> np.ndarray:
    """For each annotation, whether its name matches."""
    return annotations.is_named(lambda name: pattern.search(name) is not None)


def _chosen(path: str, annotations: Rows, steps_from: re.Pattern[str]) -> np.ndarray:
    """For each annotation, whether its name matches, and it begins when no other such one is open."""
    chosen = _named(annotations, steps_from)
    matching = annotations.where(chosen)
    if not len(matching):
        there = ", ".join(repr(name) for name in sorted(dict.fromkeys(annotations.names))[:5]) or "none at all"
        raise LookupError(f"{path}: no annotation matches {steps_from.pattern!r}; there are {there}")
    reached = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(matching.end_ns)[:-1])
    chosen[np.flatnonzero(chosen)[matching.start_ns < reached]] = False
    return chosen


def _step_at(steps: Rows, moment_ns: np.ndarray) -> np.ndarray:
    if not len(steps):
        return np.full(len(moment_ns), -1)
    index = np.searchsorted(steps.start_ns, moment_ns + TOLERANCE_NS, "right") - 1
    return np.where((index >= 0) & (moment_ns < steps.end_ns[index] + TOLERANCE_NS), index, -1)
