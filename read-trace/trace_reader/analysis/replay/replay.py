"""A run played again: the same calls and GPU events, each as early as what it waited for allows, with some of the times changed.

Every moment that others wait for is a node: the start and the end of each call that launches or waits, the ends of the steps,
the end of each GPU event. A node comes so long after each of the nodes that it depends on:

- A call starts after the last moment before it on the CPU. The thread of the steps and those of a backward pass hand over to
  each other and are one chain; every other thread is a chain of its own.
- A launch ends after its start; one that found the queue full, also after the event that made room.
- A call that waits ends after its start, and after the event that it waited for.
- A GPU event ends after its launch, after the event before it on its stream, and after what it waited for on another one.

Nothing changed, each node comes at its recorded time, unless the trace's clocks disagree.
"""

from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
from trace_reader.analysis.trace.cpu_time import CpuActivity, cpu_computing
from trace_reader.analysis.trace.critical_path import (
    NEARLY_BUSY,
    SHARE_THAT_NAMES,
    VERDICTS,
    CriticalPath,
    PathClass,
    PathWindow,
    joined,
    path_of,
    pieces,
)
from trace_reader.link.graph_edges import TOLERANCE_NS
from trace_reader.link.intervals import each_within_ns, merged, union_ns
from trace_reader.link.launches import devices_of
from trace_reader.link.nesting import BLOCK, self_us
from trace_reader.link.trace import Trace
from trace_reader.link.waits import LATE_END_NS, Reason
from trace_reader.model.rows import Rows, among, distinct, grouped, median, once
from trace_reader.model.slices import Kind
from trace_reader.names.kernel_names import is_collective
from trace_reader.names.range_names import is_loader

OTHER_STREAM_NS = 5_000  # an event that begins so much later than its launch and its stream let it waits for another stream's
LONGEST_LATENCY_NS = 50_000  # of a launch that waits for nothing
BUSY_ITSELF_US = 1000  # of an op: it does more than launch, such as plan
NO_WAIT_NS = 2_000  # what a call that waits takes where there is nothing to wait for
LONG_AGO_NS = -(2**61)
STEPS_CHAIN = 0
LONGEST_RUN_NS = 2**45  # ten hours: a node that comes so long before the one that it waits for does not wait
LEAST_TOGETHER = 64  # nodes: as many are played together in the time of one by one
MOST_EDGES = 4  # of a CUDA graph, that lead to one node from other streams
NOT_ON_GPU = ("cpu", "input", "latency")  # classes of a path


Edges = list[tuple[np.ndarray, np.ndarray]]  # what comes before, and what waits for it


class Nodes(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The nodes in an order in which each comes after those that it depends on. Columns; times in ns from the first slice.

    `waits_for`: [nodes, 3], places of other nodes (-1: none), `after_ns`: [nodes, 3], how long after each of them. Where nodes of
    a CUDA graph wait for several others, there are more columns.
    """

    recorded_ns: np.ndarray
    waits_for: np.ndarray
    after_ns: np.ndarray

    def begun(self) -> list[int]:
        """Return the times of nodes of which none has come yet; behind them, at -1, of what nothing waits for."""
        return [0] * len(self.recorded_ns) + [LONG_AGO_NS]

    @staticmethod
    def when(times: list[int], waits_for: list[int], after_ns: list[int]) -> int:
        """Return when a node comes, by the times of those before it."""
        time = times[waits_for[0]] + after_ns[0]
        for before, after in zip(waits_for[1:], after_ns[1:], strict=True):
            if before >= 0:
                time = max(time, times[before] + after)
        return time

    def play(self, times: list[int], after_ns: np.ndarray, first: int, last: int) -> None:
        """Note when each node from `first` on comes, up to `last`, with these times between them."""
        rows = slice(first, last)
        if self.waits_for.shape[1] > 3:
            for node, (before, after) in enumerate(
                zip(self.waits_for[rows].tolist(), after_ns[rows].tolist(), strict=True), start=first
            ):
                times[node] = self.when(times, before, after)
            return
        waits = self.waits_for[rows]
        used = 3 if (waits[:, 2] >= 0).any() else 2  # columns; what nothing waits for came long ago (see `begun`)
        columns = *waits.T[:used].tolist(), *after_ns[rows].T[:used].tolist()
        if used == 2:
            for node, (a, b, after_a, after_b) in enumerate(zip(*columns, strict=True), start=first):
                time, other = times[a] + after_a, times[b] + after_b
                times[node] = time if time >= other else other
            return
        for node, (a, b, c, after_a, after_b, after_c) in enumerate(zip(*columns, strict=True), start=first):
            time = times[a] + after_a
            if (other := times[b] + after_b) > time:
                time = other
            if (other := times[c] + after_c) > time:
                time = other
            times[node] = time

    @cached_property
    def chains(self) -> "Chains":
        """The nodes, joined to chains."""
        before, n = self.waits_for[:, 0], len(self.waits_for)
        is_link = (before >= 0) & (self.waits_for[:, 1:] < 0).all(axis=1)
        links = np.flatnonzero(is_link)
        is_link[np.delete(links, distinct(before[links]).first)] = False  # a chain does not branch
        links, head = np.flatnonzero(is_link), list(range(n))
        for node, earlier in zip(links.tolist(), before[links].tolist(), strict=True):
            head[node] = head[earlier]
        head_of, heads = np.array(head, np.int64), np.flatnonzero(~is_link)
        of, waits_for = np.searchsorted(heads, head_of), self.waits_for[heads]
        return Chains(heads, of, np.argsort(of, kind="stable"), np.where(waits_for < 0, -1, of[waits_for]))

    def times_ns(self, after_ns: np.ndarray | None = None) -> np.ndarray:
        """Return when each node comes, with these times between them. Takes time linear in their number: of a chain only the
        head is looked at by itself, and heads that come one after another are played together.
        """
        after_ns = self.after_ns if after_ns is None else after_ns
        chains, before = self.chains, self.waits_for[self.chains.heads]
        behind_ns = chains.behind_head_ns(after_ns[:, 0])
        of_heads = Nodes(self.recorded_ns[chains.heads], chains.waits_for, after_ns[chains.heads])
        np.add(of_heads.after_ns, behind_ns[before], out=of_heads.after_ns, where=before >= 0)
        times, times_ns = of_heads.begun(), np.array(of_heads.begun())
        for first, last, together in chains.runs:
            if together:
                times_ns[first:last] = of_heads.together_ns(times_ns, first, last)
                times[first:last] = times_ns[first:last].tolist()
            else:
                of_heads.play(times, of_heads.after_ns, first, last)
                times_ns[first:last] = times[first:last]
        return times_ns[chains.of] + behind_ns

    def together_ns(self, times_ns: np.ndarray, first: int, last: int) -> np.ndarray:
        """Return when the nodes of a run (see Chains) come: t[n] = max(t[n - 1] + after[n], known[n]), and the sum of what comes
        after each other taken away, that is the largest so far.
        """
        waits_for, after_ns = self.waits_for[first:last], self.after_ns[first:last]
        is_known = waits_for < first
        known_ns = np.where(is_known, times_ns[waits_for] + after_ns, LONG_AGO_NS).max(axis=1)
        behind_ns = np.maximum(np.where(is_known, LONG_AGO_NS, after_ns).max(axis=1), -LONGEST_RUN_NS)
        behind_ns[0] = 0
        so_far_ns = np.cumsum(behind_ns)
        return np.maximum.accumulate(known_ns - so_far_ns) + so_far_ns


class Chains(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Nodes in chains: each but the first of one, its head, waits for the one before it alone.

    `heads`: the nodes that are one; `of`: of each node the number of its chain's head; `order`: the nodes by chain; `waits_for`:
    of each head the heads of what it waits for.
    """

    heads: np.ndarray
    of: np.ndarray
    order: np.ndarray
    waits_for: np.ndarray

    def behind_head_ns(self, after_ns: np.ndarray) -> np.ndarray:
        """Return how long after its chain's head each node comes, by how long it comes after the node that it waits for."""
        after_ns = after_ns.copy()
        after_ns[self.heads] = 0
        so_far_ns = np.empty(len(after_ns), np.int64)
        so_far_ns[self.order] = np.cumsum(after_ns[self.order])
        return so_far_ns - so_far_ns[self.heads][self.of]

    @cached_property
    def runs(self) -> list[tuple[int, int, bool]]:
        """Where runs of heads begin and end, and whether they are played together: each head of one but the first waits for the
        one before it, and else for heads that come before the run. What lies between long runs is one, played node by node.
        """
        n = len(self.heads)
        is_next = self.waits_for == np.arange(-1, n - 1)[:, None]
        others = np.where(is_next, -1, self.waits_for).max(axis=1, initial=-1)
        starts = [0]
        for head, (follows, latest) in enumerate(zip(is_next.any(axis=1).tolist(), others.tolist(), strict=True)):
            if head and (not follows or latest >= starts[-1]):
                starts.append(head)
        found = [(0, 0, True)]
        for first, last in pairwise([*starts, n]):
            if last - first >= LEAST_TOGETHER:
                found.append((first, last, True))
            elif found[-1][2] or last - found[-1][0] > BLOCK:  # so that a large trace takes no more memory
                found.append((first, last, False))
            else:
                found[-1] = (found[-1][0], last, False)
        return found[1:]


class Moments(msgspec.Struct, frozen=True, eq=False):
    """The CPU's nodes, in order of time: when, on which thread, of which call (a row; -1: the start or end of a step), and
    whether the call ends; `chain`: STEPS_CHAIN for the steps' thread and those of the backward pass, else the thread's own.
    """

    at_ns: np.ndarray
    track: np.ndarray
    call: np.ndarray
    is_end: np.ndarray
    chain: np.ndarray

    def __len__(self) -> int:
        return len(self.at_ns)

    def place(self, calls: np.ndarray, end: bool) -> np.ndarray:
        """Return where the calls (rows) start, or end; -1 for those that are not there."""
        places = np.flatnonzero((self.call >= 0) & (self.is_end == end))
        places = places[np.argsort(self.call[places], kind="stable")]
        if not len(places):
            return np.full(len(calls), -1)
        found = places[np.minimum(np.searchsorted(self.call[places], calls), len(places) - 1)]
        return np.where(self.call[found] == calls, found, -1)


class Stretches(msgspec.Struct, frozen=True, eq=False):
    """Stretches of the CPU's time, in order, as columns: the `node` at which each ends, the chain of threads that it is of (see
    Moments), whether it lies between two steps, whether it is the first or the last of a step, and how much of it is a pause that
    one step had and the others had not: that is not played.
    """

    node: np.ndarray
    chain: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    between_steps: np.ndarray
    at_edge: np.ndarray
    pause_ns: np.ndarray

    @property
    def length_ns(self) -> np.ndarray:
        """How long each is, without the pauses."""
        return self.end_ns - self.start_ns - self.pause_ns


class Replay:
    """What can be played again of a trace, or of its first `steps`: as it was recorded, and with some of the times changed.

    `number`: of each node its place in `nodes`, first those of the CPU's `moments`, then those of the GPU's `work`. `is_exact`:
    unchanged, each node comes at its recorded time; false where a clock has something wait for what came later.
    """

    def __init__(self, trace: Trace, steps: int | None = None):
        self.trace = trace
        self.steps = trace.steps.where(np.arange(len(trace.steps))[:steps])
        begin_ns = int(self.steps.start_ns[0]) if len(self.steps) else 0
        end_ns = int(self.steps.end_ns[-1]) if len(self.steps) < len(trace.steps) else -LONG_AGO_NS
        work = trace.work.where((trace.work.end_ns > begin_ns) & (trace.work.start_ns < end_ns))
        work = work.where((work.call < 0) | (trace.slices.start_ns[work.call] < end_ns))
        self.work = work.where(np.lexsort((work.end_ns, work.start_ns, work.track)))
        self.moments = _moments(trace, self.steps, self.work, begin_ns, end_ns)
        self.number = self._in_order()
        waits_for, after_ns = self._links()
        at_ns = np.concatenate([self.moments.at_ns, self.work.end_ns])
        waits_for[waits_for >= 0] = self.number[waits_for[waits_for >= 0]]
        order = np.argsort(self.number)
        self.nodes = Nodes(at_ns[order], waits_for[order].astype(np.int32), after_ns[order])
        self.is_exact = _without_later_ones(self.nodes)
        self.nodes.after_ns[self.stretches.node, 0] -= self.stretches.pause_ns

    @cached_property
    def stretches(self) -> "Stretches":
        """The CPU's time between two of its nodes: before each call, and before each start and end of a step."""
        moments = self.moments
        places = np.flatnonzero((moments.call < 0) | ~moments.is_end)
        places = places[self.earlier[places] >= 0]
        start_ns, end_ns = moments.at_ns[self.earlier[places]], moments.at_ns[places]
        of_step = moments.call < 0
        begins, ends = of_step & ~moments.is_end, of_step & moments.is_end
        at_edge = ends[places] | begins[self.earlier[places]]
        chain, (pauses_start_ns, pauses_end_ns) = moments.chain[places], self.trace.pauses_ns
        so_far_ns = np.append(0, np.cumsum(pauses_end_ns - pauses_start_ns))
        first, last = np.searchsorted(pauses_start_ns, start_ns), np.searchsorted(pauses_end_ns, end_ns, "right")
        pause_ns = np.where(chain == STEPS_CHAIN, so_far_ns[np.maximum(first, last)] - so_far_ns[first], 0)
        return Stretches(self.number[places], chain, start_ns, end_ns, begins[places], at_edge, pause_ns)

    def stretches_of(self, chain: int) -> np.ndarray:
        """Return the places of the stretches of a chain of threads."""
        return self._stretches_by_chain.get(chain, np.zeros(0, np.int64))

    @cached_property
    def _stretches_by_chain(self) -> dict[int, np.ndarray]:
        chain = self.stretches.chain
        order, starts = grouped(chain)
        return dict(zip(chain[order[starts]].tolist(), np.split(order, starts[1:]), strict=True)) if len(chain) else {}

    def chain_of(self, track: int) -> int:
        """Return the chain of a thread: that of the steps, or its own."""
        alone = STEPS_CHAIN if track in self.trace.backward_tracks else 1 + track
        return self._chains.get(track, alone)

    @cached_property
    def _chains(self) -> dict[int, int]:
        tracks = distinct(self.moments.track)
        return dict(zip(tracks.values.tolist(), self.moments.chain[tracks.first].tolist(), strict=True))

    @cached_property
    def calls_by_track(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """The calls of the CPU's nodes (rows) by thread, in order, and when they start."""
        calls = Rows(self.trace.slices, once(self.moments.call[self.moments.call >= 0]))
        return {track: (one.at, one.start_ns) for (track,), one in calls.by(calls.track)}

    @cached_property
    def call_ends(self) -> np.ndarray:
        """The nodes at which calls end."""
        return self.number[: len(self.moments)][(self.moments.call >= 0) & self.moments.is_end]

    @cached_property
    def launch_ends(self) -> np.ndarray:
        """The nodes at which launches end, but for those that wait."""
        moments, calls = self.moments, once(self.work.call[self.work.call >= 0])
        ends = moments.place(calls, end=True)
        is_launch = np.zeros(len(moments) + 1, bool)  # the last for -1
        is_launch[ends] = True
        is_launch[moments.place(self.trace.waits.at, end=True)] = False
        return self.number[np.flatnonzero(is_launch[:-1])]

    @cached_property
    def busy_us_by_device(self) -> dict[int, float]:
        """How long each GPU was busy in a step, as recorded, but for collectives, which wait for others."""
        begin_ns, end_ns, steps = self.edges(self.nodes.recorded_ns)
        computing = self.work.where(~self.work.is_named(is_collective))
        return {
            device: union_ns(np.clip(work.start_ns, begin_ns, end_ns), np.clip(work.end_ns, begin_ns, end_ns)) / 1000 / steps
            for (device,), work in computing.by(devices_of(computing))
        }

    @property
    def gpu_nodes(self) -> np.ndarray:
        """The nodes of the GPU's work."""
        return self.number[len(self.moments) :]

    def _in_order(self) -> np.ndarray:
        """Return the number of each node, first of the CPU's and then of the GPU's: none comes before what it waits for."""
        moments, work = self.moments, self.work
        at_ns = moments.at_ns.copy()
        waits = self._waits
        seen = waits.event >= 0
        at_ns[waits.end[seen]] = np.maximum(at_ns[waits.end[seen]], work.end_ns[waits.event[seen]])
        at_ns = np.maximum.accumulate(at_ns)
        is_cpu = np.arange(len(moments) + len(work)) < len(moments)
        number = np.empty(len(is_cpu), np.int64)
        number[np.lexsort((is_cpu, np.concatenate([at_ns, work.end_ns])))] = np.arange(len(is_cpu))
        return number

    @cached_property
    def _waits(self) -> "_Waits":
        return _waits(self.trace, self.moments, self.work)

    def _links(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what each node waits for, and how long it comes after that: the CPU's, then the GPU's."""
        n = len(self.moments)
        waits_for, after_ns = np.full((n + len(self.work), 3), -1), np.zeros((n + len(self.work), 3), np.int64)
        self.earlier = _earlier(self.moments)
        waits_for[:n, 0] = self.earlier
        after_ns[:n, 0] = self.moments.at_ns - np.where(self.earlier >= 0, self.moments.at_ns[self.earlier], LONG_AGO_NS)
        waits = self._waits
        seen = waits.event >= 0
        after_ns[waits.end, 0] = waits.alone_ns
        waits_for[waits.end[seen], 1] = n + waits.event[seen]
        after_ns[waits.end[seen], 1] = waits.after_ns[seen]
        edges = _cross_edges(self.work, self.trace.graph_edges)
        waits_for[n:], after_ns[n:], self.latency_ns, usual_gap_ns = _gpu_links(self.work, self.moments, edges)
        for before, after in edges[1:]:  # a column for each of several that one waits for
            more, how_long_ns = np.full(len(waits_for), -1), np.zeros(len(waits_for), np.int64)
            more[n + after] = n + before
            behind_ns = self.work.start_ns[after] - self.work.end_ns[before]
            how_long_ns[n + after] = np.minimum(behind_ns, usual_gap_ns) + self.work.end_ns[after] - self.work.start_ns[after]
            waits_for, after_ns = np.column_stack([waits_for, more]), np.column_stack([after_ns, how_long_ns])
        return waits_for, after_ns

    def play(self, after_ns: np.ndarray | None = None) -> "Played":
        """Return the run with these times between its nodes; without, as it was recorded. Raises ValueError: the trace has no
        steps.
        """
        if not len(self.steps):
            raise ValueError("a trace without steps is not played again")
        after_ns = self.nodes.after_ns if after_ns is None else after_ns
        times_ns = self.nodes.times_ns(after_ns)
        return Played(self, after_ns, times_ns, *self.edges(times_ns))

    def edges(self, times_ns: np.ndarray) -> tuple[int, int, int]:
        """From when to when the time of a step is taken, and of how many steps."""
        n = len(self.moments)
        at_ns = times_ns[self.number]
        of_steps = np.flatnonzero(self.moments.call < 0)
        ends_ns = at_ns[of_steps[self.moments.is_end[of_steps]]].copy()
        launched = self.work.step >= 0
        np.maximum.at(ends_ns, self.work.step[launched], at_ns[n:][launched])
        ends_ns = np.maximum.accumulate(ends_ns)
        if len(ends_ns) == 1:
            return int(at_ns[of_steps[0]]), int(ends_ns[0]), 1
        return int(ends_ns[0]), int(ends_ns[-1]), len(ends_ns) - 1

    @cached_property
    def computing(self) -> np.ndarray:
        """Of each node how much of the stretch before it is the CPU's own computing, which no way to launch makes shorter, or an
        op that is busy with more than launching.
        """
        found, stretches = np.zeros(len(self.nodes.recorded_ns)), self.stretches
        ops, long = cpu_computing(self.trace), self.trace.ops.where(self.trace.ops.duration_us >= BUSY_ITSELF_US)
        busy = long.where(self_us(self.trace.slices, self.trace.parent, long.at) >= BUSY_ITSELF_US)
        spans = Rows(self.trace.slices, once(np.concatenate([ops.at, busy.at])))
        inside = each_within_ns(stretches.start_ns, stretches.end_ns, merged(spans.start_ns, spans.end_ns))
        found[stretches.node] = inside / np.maximum(stretches.length_ns, 1)
        return found

    @cached_property
    def rows(self) -> tuple[np.ndarray, ...]:
        """Of each node the row of the GPU's event, the CPU's thread, the row of its call, and whether that frees memory."""
        n = len(self.nodes.recorded_ns)
        row, track, call, frees = np.full(n, -1), np.full(n, -1), np.full(n, -1), np.zeros(n, bool)
        row[self.gpu_nodes] = self.work.at
        of_cpu, moments = self.number[: len(self.moments)], self.moments
        track[of_cpu], call[of_cpu] = moments.track, moments.call
        frees[of_cpu] = among(moments.call, self.trace.waits.at[self.trace.waits.reason == Reason.FREE])
        return row, track, call, frees

    @cached_property
    def nature(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each node its class, how long it is itself (a GPU event's duration), and how much of the stretch before is input."""
        n = len(self.nodes.recorded_ns)
        kind, own_ns, input_share = np.full(n, PathClass.CPU), np.zeros(n, np.int64), np.zeros(n)
        numbers = self.gpu_nodes
        collective = self.work.is_named(is_collective)
        of_kernels = np.where(collective, PathClass.COMMUNICATION, PathClass.COMPUTE)
        kind[numbers] = np.where(self.work.kind == Kind.KERNEL, of_kernels, PathClass.COPY)
        own_ns[numbers] = self.work.end_ns - self.work.start_ns
        loading = self.trace.annotations.where(self.trace.annotations.is_named(is_loader))
        stretches = self.stretches
        inside = each_within_ns(stretches.start_ns, stretches.end_ns, merged(loading.start_ns, loading.end_ns))
        input_share[stretches.node] = inside / np.maximum(stretches.length_ns, 1)
        return kind, own_ns, input_share


class Played(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A run as it was played: when each node came, and from when to when (ns) the time of so many `steps` is taken."""

    replay: Replay
    after_ns: np.ndarray
    times_ns: np.ndarray
    begin_ns: int
    end_ns: int
    steps: int

    @property
    def step_us(self) -> float:
        """The time of a step, from one's end to the next one's (of a single one: from its start), as `step_period_us` has it."""
        return (self.end_ns - self.begin_ns) / 1000 / self.steps

    @cached_property
    def shares(self) -> dict[str, float]:
        """What the time of the steps is spent on, as shares of 1: going back from the end of the last one, at each node to
        the one that it waited for longest. `input` is the part of the CPU's time in which a DataLoader was asked for a batch.
        """
        at, earlier_ns, choice = self._path
        kind, own_ns, input_share = (column[at] for column in self.replay.nature)
        length_ns = self.times_ns[at] - earlier_ns
        own_ns = np.minimum(own_ns, length_ns)
        on_cpu = kind == PathClass.CPU
        waited = on_cpu & (choice > 0)
        working_ns = np.where(on_cpu & ~waited, length_ns, 0)
        input_ns = int((working_ns * input_share).sum())
        spent_ns = {name: int(own_ns[kind == PathClass[name.upper()]].sum()) for name in ("compute", "communication", "copy")}
        spent_ns["latency"] = int((length_ns - own_ns)[~on_cpu].sum() + length_ns[waited].sum())
        spent_ns["cpu"], spent_ns["input"] = int(working_ns.sum()) - input_ns, input_ns
        return {name: ns / max(self.end_ns - self.begin_ns, 1) for name, ns in spent_ns.items()}

    @cached_property
    def verdict(self) -> str:
        """What limits the run: the class of time that has half of it or more, as a verdict; else `mixed`. A GPU that is nearly
        always busy does, whatever launched its work.
        """
        name, share = max(self.shares.items(), key=lambda item: item[1])
        if self.leaves_the_gpu:
            return "gpu-bound"
        return VERDICTS[name] if share >= SHARE_THAT_NAMES else "mixed"

    @property
    def leaves_the_gpu(self) -> bool:
        """Whether the path goes along the CPU in the main, though a GPU has so much to do that little can be saved there."""
        busy_us = max(self.replay.busy_us_by_device.values(), default=0.0)
        return max(self.shares, key=self.shares.__getitem__) in NOT_ON_GPU and busy_us >= NEARLY_BUSY * self.step_us

    def critical_path(self, cpu: CpuActivity, window: PathWindow) -> CriticalPath:
        """Return the critical path of this run, its pieces where they were recorded. `window`: that of the recorded run's
        path.
        """
        at, earlier_ns, choice = self._path
        replay, nodes = self.replay, self.replay.nodes
        kind, own_ns, _ = (column[at] for column in replay.nature)
        length_ns, end_ns = self.times_ns[at] - earlier_ns, nodes.recorded_ns[at]
        row, track, call, frees = (column[at] for column in replay.rows)
        on_cpu = kind == PathClass.CPU
        waited = on_cpu & (choice > 0)
        # The call that had waited before a stretch of the CPU's: the next one on the way back.
        place = np.minimum.accumulate(np.where(waited, np.arange(len(at)), len(at))[::-1])[::-1]
        waited_for = np.append(call, -1)[place]
        before = nodes.waits_for[at, 0]
        begun_ns = np.where(before >= 0, nodes.recorded_ns[before], end_ns - length_ns)
        own_ns = np.where(on_cpu, 0, np.minimum(own_ns, length_ns))
        working, event = on_cpu & ~waited, ~on_cpu
        tail = np.where(frees, PathClass.CPU, PathClass.LATENCY)
        found = joined(
            pieces(end_ns - own_ns, end_ns, kind, row=row).where(event),
            pieces(end_ns - length_ns, end_ns - own_ns, PathClass.LATENCY).where(event),
            pieces(begun_ns, end_ns, PathClass.CPU, track=track, waited=waited_for, length_ns=length_ns).where(working),
            pieces(end_ns - length_ns, end_ns, tail, track=track, waited=waited_for).where(waited),
        )
        found = found.where((found.length_ns > 0) & (found.end_ns > found.start_ns))
        return path_of(replay.trace, cpu, found, window, self.end_ns - self.begin_ns)

    @cached_property
    def _path(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Going back from the end: the nodes, when (ns) what each waited for came, and which of the three that was."""
        waits_for = self.replay.nodes.waits_for
        choice = np.empty(len(waits_for), np.int8)
        for first in range(0, len(choice), BLOCK):
            block = slice(first, first + BLOCK)
            came_ns = np.where(waits_for[block] >= 0, self.times_ns[waits_for[block]] + self.after_ns[block], LONG_AGO_NS)
            choice[block] = came_ns.argmax(axis=1)
        before = waits_for[np.arange(len(choice)), choice]
        node, path = int(np.flatnonzero(self.times_ns == self.end_ns)[-1]) if self.end_ns > self.begin_ns else -1, []
        comes_before = np.where(self.times_ns[before] > self.begin_ns, before, -1).tolist()
        while node >= 0:
            path.append(node)
            node = comes_before[node]
        at = np.array(path, np.int64)
        earlier = before[at]
        return at, np.where(earlier >= 0, np.maximum(self.times_ns[earlier], self.begin_ns), self.begin_ns), choice[at]


def _moments(trace: Trace, of_steps: Rows, work: Rows, begin_ns: int, end_ns: int) -> Moments:
    """Return the CPU's nodes between two moments."""
    slices = trace.slices
    launches = work.call[work.call >= 0]
    calls = distinct(np.concatenate([launches, trace.waits.at])).values.astype(np.int64)
    calls = calls[(slices.start_ns[calls] >= begin_ns) & (slices.start_ns[calls] < end_ns)]
    steps = of_steps.at
    none = np.full(len(steps), -1)
    starts, ends = slices.start_ns, np.maximum(slices.end_ns, slices.start_ns + 1)
    at_ns = np.concatenate([starts[steps], ends[steps], starts[calls], ends[calls]])
    rows = np.concatenate([steps, steps, calls, calls])
    call = np.concatenate([none, none, calls, calls])
    is_end = np.concatenate([none >= 0, none < 0, np.zeros(len(calls), bool), np.ones(len(calls), bool)])
    track = slices.track[rows]
    of_the_steps = among(track, trace.backward_tracks)
    if len(steps):
        of_the_steps |= track == slices.track[steps[-1]]
    elif len(calls):
        threads = distinct(track)
        of_the_steps |= track == threads.values[np.argmax(threads.counts)]
    order = np.lexsort((~is_end, at_ns))
    chain = np.where(of_the_steps, STEPS_CHAIN, 1 + track)
    return Moments(*(column[order] for column in (at_ns, track, call, is_end, chain)))


def _earlier(moments: Moments) -> np.ndarray:
    """For each of the CPU's nodes the place of the one after which it comes: of a call's end its start, of a start the last one
    before it of its own thread's chain or of the steps'; -1 for none.
    """
    places = np.arange(len(moments))
    earlier = np.full(len(moments), -1)
    for chain in [STEPS_CHAIN, *(value for value in distinct(moments.chain).values.tolist() if value)]:
        one = (moments.chain == chain) | (moments.chain == STEPS_CHAIN)
        last = np.maximum.accumulate(np.where(one, places, -1))
        before = np.append(-1, last[:-1])
        earlier[moments.chain == chain] = before[moments.chain == chain]
    ends = (moments.call >= 0) & moments.is_end
    earlier[ends] = moments.place(moments.call[ends], end=False)
    return earlier


class _Waits(msgspec.Struct, frozen=True, eq=False):
    """Of each call that waits: the place of its `end` among the moments, the place of the `event` in the work for which it waits
    (-1: none), how long its end comes `after_ns` that, and how long it takes `alone_ns` where there is nothing to wait for.
    """

    end: np.ndarray
    event: np.ndarray
    after_ns: np.ndarray
    alone_ns: np.ndarray


def _waits(trace: Trace, moments: Moments, work: Rows) -> _Waits:
    calls = trace.waits
    end = moments.place(calls.at, end=True)
    calls, end = calls.where(end >= 0), end[end >= 0]
    long_ns = calls.end_ns - calls.start_ns
    event, alone_ns = np.full(len(calls), -1), np.minimum(long_ns, NO_WAIT_NS)
    if not len(work) or not len(calls):
        return _Waits(end, event, np.zeros(len(calls), np.int64), long_ns)
    by_end = np.argsort(work.end_ns, kind="stable")
    last = by_end[np.searchsorted(work.end_ns[by_end], calls.end_ns + LATE_END_NS, "right") - 1]
    first_end_ns = work.end_ns[by_end[0]]
    ended_inside = (work.end_ns[last] >= calls.start_ns) & (first_end_ns <= calls.end_ns + LATE_END_NS)
    # Of all that had been launched, what ended last: where a call waited for the device, that is what it would wait for.
    launched = np.flatnonzero(work.call >= 0)
    launched = launched[np.argsort(trace.slices.start_ns[work.call[launched]], kind="stable")]
    asked = np.searchsorted(trace.slices.start_ns[work.call[launched]], calls.start_ns) - 1
    ends_ns = np.maximum.accumulate(work.end_ns[launched])
    latest = np.maximum.accumulate(np.where(work.end_ns[launched] == ends_ns, np.arange(len(launched)), -1))
    for_all = np.where(asked >= 0, launched[latest[np.maximum(asked, 0)]], -1) if len(launched) else event
    is_sync = (calls.reason == Reason.SYNCHRONIZE) & ~calls.is_named(lambda name: "Event" in name)
    for_all[~is_sync | (work.end_ns[for_all] > calls.end_ns + LATE_END_NS)] = -1
    event = np.where(for_all >= 0, for_all, np.where(ended_inside, last, -1))
    is_copy = calls.reason == Reason.COPY
    copied = _place_of(work, calls.copied[is_copy], trace)
    event[is_copy] = copied
    for reason in (Reason.FREE, Reason.QUEUE):
        alone_ns[(calls.reason == reason) & (event < 0)] = long_ns[(calls.reason == reason) & (event < 0)]
    waited = (event >= 0) & (work.end_ns[event] >= calls.start_ns)
    alone_ns = np.where(waited, alone_ns, long_ns)
    after_ns = np.where(waited, calls.end_ns - work.end_ns[event], np.minimum(long_ns, NO_WAIT_NS))
    return _Waits(end, event, after_ns, alone_ns)


def _place_of(work: Rows, places: np.ndarray, trace: Trace) -> np.ndarray:
    """Return where these places of the trace's work stand in a part of it, or -1."""
    order = np.argsort(work.at, kind="stable")
    rows = trace.work.at[places]
    found = order[np.minimum(np.searchsorted(work.at[order], rows), len(order) - 1)]
    return np.where(work.at[found] == rows, found, -1)


def _gpu_links(work: Rows, moments: Moments, edges: Edges) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Of each GPU event: its launch, the event before it on its stream, and one of another stream that it waited for; and how
    long it usually takes from a launch to its event.
    """
    n, slices = len(work), work.slices
    waits_for, after_ns = np.full((n, 3), -1), np.zeros((n, 3), np.int64)
    if not n:
        return waits_for, after_ns, 0, 0
    start, end, place = work.start_ns, work.end_ns, np.arange(n)
    launch = moments.place(work.call, end=False)
    launched = launch >= 0
    called_ns = np.where(launched, slices.start_ns[work.call], LONG_AGO_NS)
    before = np.where(np.append(False, work.track[1:] == work.track[:-1]), place - 1, -1)
    before_ns = np.where(before >= 0, end[before], LONG_AGO_NS)
    was_late = launched & (called_ns > before_ns)
    queued = (before >= 0) & ~was_late
    usual_ns = _usual(start - called_ns, was_late, LONGEST_LATENCY_NS), _usual(start - before_ns, queued, OTHER_STREAM_NS)
    latency_ns = np.where(was_late, start - called_ns, np.minimum(start - called_ns, usual_ns[0]))
    gap_ns = np.where(queued, start - before_ns, np.minimum(start - before_ns, usual_ns[1]))
    # Neither of them: another stream's event that ended just before this one began, later than both.
    by_end = np.argsort(end, kind="stable")
    other = by_end[np.maximum(np.searchsorted(end[by_end], start + LATE_END_NS, "right") - 1, 0)]
    is_known = np.zeros(n, bool)
    for earlier, later in edges[:1]:
        other[later], is_known[later] = earlier, True
    ready_ns = np.maximum(before_ns + usual_ns[1], called_ns + usual_ns[0])
    latest_ns = start + np.where(is_known, TOLERANCE_NS, 0)
    between = (work.track[other] != work.track) & (end[other] > ready_ns) & (end[other] <= latest_ns)
    between &= start - ready_ns > OTHER_STREAM_NS
    latency_ns[between] = np.minimum(latency_ns, usual_ns[0])[between]
    gap_ns[between] = np.minimum(gap_ns, usual_ns[1])[between]
    # An event with neither comes at its time.
    alone = ~launched & (before < 0)
    waits_for[:, 0], waits_for[:, 1], waits_for[:, 2] = launch, np.where(before >= 0, len(moments) + before, -1), -1
    # What a graph says that it waited for, it waits for also where that was not what kept it.
    waited = between | is_known
    waits_for[waited, 2] = len(moments) + other[waited]
    length, behind_ns = end - start, np.where(between, start - end[other], np.minimum(start - end[other], usual_ns[1]))
    after_ns[:, 0] = np.where(launched, latency_ns + length, np.where(alone, end - LONG_AGO_NS, 0))
    after_ns[:, 1] = gap_ns + length
    after_ns[:, 2] = np.where(waited, behind_ns + length, 0)
    return waits_for, after_ns, usual_ns[0], usual_ns[1]


def _cross_edges(work: Rows, edges: np.ndarray) -> Edges:
    """Return the edges between streams, as places in the work: first, for each event, that to the one that ended last of those
    that it waits for; then that to the one that ended before it, and so on, MOST_EDGES at most.
    """
    found: Edges = []
    if not len(edges):
        return found
    order = np.argsort(work.at, kind="stable")
    edges = edges[among(edges[:, 0], work.at) & among(edges[:, 1], work.at)]
    before, after = (order[np.searchsorted(work.at[order], rows)] for rows in edges.T)
    crosses = (work.track[before] != work.track[after]) & (work.end_ns[before] <= work.start_ns[after] + TOLERANCE_NS)
    before, after = before[crosses], after[crosses]
    latest = np.lexsort((-work.end_ns[before], after))
    before, after = before[latest], after[latest]
    while len(after) and len(found) < MOST_EDGES:
        is_first = np.append(True, after[1:] != after[:-1])
        found.append((before[is_first], after[is_first]))
        before, after = before[~is_first], after[~is_first]
    return found


def _usual(values: np.ndarray, mask: np.ndarray, longest_ns: int) -> int:
    """Return the median of those that are no wait for something else; 0 where there are none."""
    short = values[mask & (values <= longest_ns)]
    return int(median(short)) if len(short) else 0


def _without_later_ones(nodes: Nodes) -> bool:
    """Drop what would wait for a later node: two clocks can disagree. Whether there was none."""
    wrong = nodes.waits_for >= np.arange(len(nodes.recorded_ns))[:, None]
    nodes.waits_for[wrong] = -1
    lost = wrong.any(axis=1) & (nodes.waits_for < 0).all(axis=1)
    nodes.after_ns[lost, 0] = nodes.recorded_ns[lost] - LONG_AGO_NS
    return not wrong.any()
