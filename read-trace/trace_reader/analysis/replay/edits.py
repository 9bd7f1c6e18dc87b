"""Changes to a run that is played again: work and waits that are gone, kernels that take another time."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from trace_reader.analysis.replay.replay import LONG_AGO_NS, STEPS_CHAIN, Played, Replay
from trace_reader.link.intervals import each_within_ns, merged, ranges, without
from trace_reader.link.launches import devices_of
from trace_reader.model.rows import Rows, among, distinct, once

GRAPH_LAUNCH_NS = 20_000  # what the CPU takes to launch a graph; one H200's took 10 to 60 us, behind the GPU's work
NEVER_NS = LONG_AGO_NS // 2  # after that long a time, nothing is waited for

Union = tuple[np.ndarray, np.ndarray]


class Edited:
    """A run that is being changed. Changes can be made in any order; what one takes away, another does not take away again.

    `after_ns`: the times between the replay's nodes, without what `skip` takes; `left`: of each GPU event's time, what is left;
    `is_gone`: whether it was dropped.
    """

    def __init__(self, replay: Replay, after_ns: np.ndarray):
        self.replay, self.after_ns = replay, after_ns.copy()
        self.left = np.ones(len(replay.work))
        self.is_gone = np.zeros(len(replay.work), bool)
        self._launches = (np.zeros(0, np.int64), 0)
        self._skipped: dict[int, list[tuple[float, Union]]] = {}  # by chain of threads: what is left in which stretches
        self._left_of_ends: list[tuple[float, np.ndarray]] = []  # of the time up to the ends of calls (nodes)

    def play(self) -> Played:
        """Return the changed run."""
        return self.replay.play(self.times_ns())

    def times_ns(self) -> np.ndarray:
        """Return the times between the nodes of the changed run."""
        after_ns = self.after_ns.copy()
        for chain, unions in self._skipped.items():
            nodes, left = self._left_of(chain, unions)
            after_ns[nodes, 0] = (after_ns[nodes, 0] * left).astype(np.int64)
        if self._left_of_ends:
            left = np.ones(len(after_ns))
            for of_these, ends in self._left_of_ends:
                left[ends] = np.minimum(left[ends], of_these)
            after_ns[:, 0] = (after_ns[:, 0] * left).astype(np.int64)
        nodes, launch_ns = self._launches
        after_ns[nodes, 0] += launch_ns
        return np.maximum(after_ns, NEVER_NS)

    def busy_us(self) -> float:
        """Return how long the GPU is busy in a step at least, with what is left, if it is as fast as recorded: of several GPUs
        the one that is for longest.
        """
        replay = self.replay
        begin_ns, end_ns, steps = replay.edges(replay.nodes.recorded_ns)
        inside = np.minimum(replay.work.end_ns, end_ns) - np.maximum(replay.work.start_ns, begin_ns)
        gone_us = np.maximum(inside, 0) * (1 - self.left) / 1000 / steps
        devices = devices_of(replay.work)
        left_us = (busy_us - float(gone_us[devices == device].sum()) for device, busy_us in replay.busy_us_by_device.items())
        return max((0.0, *left_us))

    def skip(self, union: Union, left: float = 0.0, chain: int = STEPS_CHAIN) -> None:
        """Let the threads of a chain take no time in these stretches (as `merged` gives them), or so much of it. Where several
        say so of one stretch, the least is left, times what those say that let it take longer. A pause in them is not played.
        """
        union = without(union, self.replay.trace.pauses_ns)
        if len(union[0]):
            self._skipped.setdefault(chain, []).append((left, union))

    def _left_of(self, chain: int, unions: list[tuple[float, Union]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes of a chain's stretches, and which share of each one's time is left."""
        edges = once(np.concatenate([moments for _, union in unions for moments in union]))
        starts, ends, least, longer = edges[:-1], edges[1:], np.ones(len(edges[1:])), np.ones(len(edges[1:]))
        for left, (begin, end) in unions:
            within = np.searchsorted(begin, starts, side="right") - 1
            inside = (within >= 0) & (starts < end[within])
            if left <= 1:
                least[inside] = np.minimum(least[inside], left)
            else:
                longer[inside] *= left
        left_of_each = np.ones(len(self.replay.stretches_of(chain)))
        for left in once(least * longer).tolist():
            of_these = least * longer == left
            if left != 1:
                left_of_each += (left - 1) * self._share_inside((starts[of_these], ends[of_these]), chain)
        return self.replay.stretches.node[self.replay.stretches_of(chain)], left_of_each

    def stretch(self, spans: Rows, factor: float) -> None:
        """Let the CPU take so many times as long in these spans."""
        for chain, union in self._by_chain(spans):
            self.skip(union, factor, chain)

    def _by_chain(self, spans: Rows) -> Iterator[tuple[int, Union]]:
        """Give where these spans are, for each chain of threads."""
        tracks = distinct(spans.track)
        chains = np.array([self.replay.chain_of(track) for track in tracks.values.tolist()], np.int64)[tracks.which]
        for (chain,), span in spans.by(chains):
            yield chain, merged(span.start_ns, span.end_ns)

    def _share_inside(self, union: Union, chain: int) -> np.ndarray:
        """Return how much of each stretch of the CPU's time that is of this chain is inside a union."""
        stretches, places = self.replay.stretches, self.replay.stretches_of(chain)
        inside = each_within_ns(stretches.start_ns[places], stretches.end_ns[places], union)
        return inside / np.maximum(stretches.length_ns[places], 1)

    def scale(self, factors: np.ndarray) -> None:
        """Let each GPU event take so many times as long."""
        self._leave(self.left * factors)

    def limit(self, left: np.ndarray) -> None:
        """Of each GPU event's time, let no more than so much be left: two kinds of advice for one kernel do not multiply."""
        self._leave(np.minimum(self.left, left))

    def _leave(self, left: np.ndarray) -> None:
        """Of each GPU event's time, let so much be left."""
        saved_ns = (self.replay.work.end_ns - self.replay.work.start_ns) * (self.left - left)
        self.after_ns[self.replay.gpu_nodes] -= np.rint(saved_ns).astype(np.int64)[:, None]
        self.left = left

    def drop(self, spans: Rows, left_of_cpu: float = 0.0, left_of_gpu: float | np.ndarray = 0.0) -> None:
        """Take these spans and calls (in order) away, with what is in them and what they launched; or leave so much of the time
        (of the GPU's, as a number, or one for each of its events).
        """
        replay = self.replay
        for chain, union in self._by_chain(spans):
            self.skip(union, left_of_cpu, chain)
        inside = [np.zeros(0, np.int64)]
        for (track,), within in spans.by(spans.track):
            calls, starts_ns = replay.calls_by_track.get(track, (inside[0], inside[0]))
            first, after = (np.searchsorted(starts_ns, edges) for edges in merged(within.start_ns, within.end_ns))
            inside.append(calls[ranges(first, after)])
        dropped = np.sort(np.concatenate(inside))
        ends = replay.number[replay.moments.place(dropped, end=True)]
        self._left_of_ends.append((left_of_cpu, ends))
        self.after_ns[ends, 1:] = NEVER_NS
        gone = among(replay.work.call, dropped)
        self._leave(np.where(gone, np.minimum(self.left, left_of_gpu), self.left))
        self.is_gone |= gone & (np.asarray(left_of_gpu) == 0)
        # It takes no more than what is left of it: whoever waited for it still waits for what it waited for, itself.
        nodes, length_ns = replay.gpu_nodes[gone], (replay.work.end_ns - replay.work.start_ns)[gone]
        self.after_ns[nodes] = np.rint(length_ns * self.left[gone]).astype(np.int64)[:, None]

    def return_at_once(self, calls: np.ndarray) -> bool:
        """Let these calls (rows) wait for nothing. Whether there was one that did."""
        ends = self.replay.moments.place(calls, end=True)
        ends = self.replay.number[ends[ends >= 0]]
        waiting = ends[self.replay.nodes.waits_for[ends, 1] >= 0]
        self.after_ns[waiting, 1] = NEVER_NS
        return len(waiting) > 0

    def load_nothing(self) -> bool:
        """Let a DataLoader take no time. Whether there was one that did."""
        _, _, share = self.replay.nature
        after_ns = self.after_ns
        after_ns[:, 0] = np.where(share > 0, after_ns[:, 0] * (1 - share), after_ns[:, 0]).astype(np.int64)
        return bool(share.any())

    def launch_at_once(self, loads: bool = True) -> None:
        """The CPU's time in a step is one launch, what it computes itself and what a DataLoader takes; GPU events follow each
        other as in a queue.
        """
        replay, after_ns = self.replay, self.after_ns
        share = np.minimum(replay.nature[2] * loads + replay.computing, 1.0)
        stretches, moments = replay.stretches, replay.moments
        after_ns[stretches.node, 0] = (after_ns[stretches.node, 0] * share[stretches.node]).astype(np.int64)
        of_steps = (moments.call < 0) & moments.is_end
        self._launches = replay.number[: len(moments)][of_steps], GRAPH_LAUNCH_NS
        after_ns[replay.launch_ends, 0] = 0
        # A launch that was the first of its kind can have taken long to reach the GPU.
        late_ns = replay.nodes.after_ns[replay.gpu_nodes, 0] - (replay.work.end_ns - replay.work.start_ns) - replay.latency_ns
        launched = replay.work.call >= 0
        after_ns[replay.gpu_nodes[launched], 0] -= np.maximum(late_ns[launched], 0)


Edit = Callable[[Edited], object]


GONE, ELSEWHERE, REPLACED, WAITS, AT_ONCE, ONCE, UNSURE = "gone", "elsewhere", "replaced", "waits", "at once", "once", "unsure"
JOINED = "joined"
AS_PLAYED = "as played"
# By the kind of a change: how far what was measured was from what the replay said, as logarithms of odds (of what is saved to
# what is left), the band that holds four of five. Of 365 pairs and 4 jobs, H100, H200 and CPUs, torch 2.11, 2026-11-26 to 29
# (read-trace/benchmarks/bands.py).
BANDS = {
    GONE: (-0.3, 1.3),  # of 105
    ELSEWHERE: (-0.75, 0.85),  # of 12: what the CPU does between ops, and has to do in another way
    REPLACED: (-0.6, 0.9),  # of 146
    WAITS: (-0.3, 0.9),  # of 17, wider than these say: they are few
    AT_ONCE: (-1.0, 1.25),  # of 18, whole steps that were replayed as a CUDA graph, compiled or batched
    ONCE: (-0.75, 0.8),  # of 51
    JOINED: (-0.35, 1.25),  # of 4 jobs: collectives that are sent in fewer calls
    AS_PLAYED: (0.0, 0.0),  # of a place: what is there at most
    UNSURE: (-9.0, 0.3),  # of 16, no band of which holds so many: what takes the place of what is gone may take as long
}


class Effect(msgspec.Struct, frozen=True):
    """What following an advice makes of a run: `most`, where it succeeds as well as it can, and `least`, what of that is sure;
    None for nothing. `kind`: of change, by which what was measured of such changes narrows what is told (BANDS).
    """

    most: Edit
    least: Edit | None = None
    kind: str = GONE


def surely(edit: Edit) -> Effect:
    """Return the effect of an advice that can be followed as it is played: all of that is saved at least."""
    return Effect(edit, edit)


def all_of(*edits: Edit) -> Edit:
    """Return several edits."""
    return lambda run: [edit(run) for edit in edits]


def scaled(rows: Rows, factor: float | np.ndarray) -> Edit:
    """Let these GPU events (in order) take so much of their time, each or all."""
    factors = np.broadcast_to(factor, len(rows))

    def edit(run: Edited) -> None:
        if len(rows):
            work = run.replay.work
            at = np.minimum(np.searchsorted(rows.at, work.at), len(rows) - 1)
            run.limit(np.where(rows.at[at] == work.at, factors[at], 1.0))

    return edit


def skipped(union: Union, left: float = 0.0) -> Edit:
    """Let the CPU take no time in these stretches (as `merged` gives them), or only so much of it."""
    return lambda run: run.skip(union, left)


def dropped(spans: Rows, left_of_cpu: float = 0.0, left_of_gpu: float = 0.0) -> Edit:
    """Take these ops and calls (in order) away, with what they launched; or leave so much of the time."""
    return lambda run: run.drop(spans, left_of_cpu, left_of_gpu)


def unlaunched(rows: Rows) -> Edit:
    """Take these GPU events away, with the calls that launched them."""
    return dropped(Rows(rows.slices, distinct(rows.call[rows.call >= 0]).values.astype(np.int64)))


def without_waits(calls: Rows) -> Edit:
    """Let these calls wait for nothing."""
    return lambda run: run.return_at_once(calls.at)


def launched_at_once(run: Edited) -> None:
    """Replay each step as a CUDA graph."""
    run.launch_at_once()


def without_loader(run: Edited) -> None:
    """A DataLoader takes no time."""
    run.load_nothing()
