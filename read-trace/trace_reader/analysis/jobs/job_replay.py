"""The ranks of a job played again together: each as replay.py has it, and a collective begins on all of them
when the last one has come.

Of a rank's kernel of a collective, what passes until the last rank has come is waiting; what passes then, up to the kernel's
end on this rank, is as long as recorded. The clocks are those that the report on a job aligns.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from trace_reader.analysis.jobs.collective_matching import Matched, entries_of
from trace_reader.analysis.replay.edits import Edited
from trace_reader.analysis.replay.replay import Replay
from trace_reader.names.kernel_names import is_collective


class Meeting(msgspec.Struct):
    """The collectives of one rank: by the node at which its kernel ends, the collective, the kernel's place in the rank's work,
    and how long the kernel goes on when the last rank has come (ns). `ready`: before which node each is known to be ready.
    """

    collective: dict[int, int]
    kernel: dict[int, int]
    tail_ns: dict[int, int]
    ready: dict[int, list[int]]


class JobReplay:
    """What can be played again of the ranks of a job. `offset_ns`: what is added to each rank's times to make them the first's;
    `collectives`: how many have all of their ranks here.
    """

    def __init__(self, replays: Sequence[Replay], matched: Matched, offset_ns: Sequence[int]):
        self.replays, self.offset_ns = tuple(replays), tuple(offset_ns)
        self._meetings = [Meeting({}, {}, {}, defaultdict(list)) for _ in replays]
        self._members: dict[int, set[int]] = defaultdict(set)
        for place, mine in entries_of(matched.rank):
            mine = mine[matched.whole[matched.collective[mine]]]
            self._find(place, matched.start_ns[mine], matched.collective[mine])
        came_ns: dict[int, int] = {}
        for replay, meeting, offset in zip(self.replays, self._meetings, offset_ns, strict=True):
            for node, collective in meeting.collective.items():
                start_ns = int(replay.work.start_ns[meeting.kernel[node]]) + offset
                came_ns[collective] = max(came_ns.get(collective, start_ns), start_ns)
        for replay, meeting, offset in zip(self.replays, self._meetings, offset_ns, strict=True):
            for node, collective in meeting.collective.items():
                end_ns = int(replay.work.end_ns[meeting.kernel[node]]) + offset
                meeting.tail_ns[node] = end_ns - came_ns[collective]
        self.collectives = len(came_ns)

    def transfers_us(self, place: int) -> dict[int, float]:
        """Return of each kernel (of a rank's work) that is played as a collective how long it goes on when the last rank has
        come.
        """
        meeting = self._meetings[place]
        return {kernel: meeting.tail_ns[node] / 1000 for node, kernel in meeting.kernel.items()}

    def _find(self, place: int, start_ns: np.ndarray, collective: np.ndarray) -> None:
        """Note the kernels of a rank that begin at these times, and of which collective each is."""
        replay, meeting = self.replays[place], self._meetings[place]
        kernels = np.flatnonzero(replay.work.is_named(is_collective))
        kernels = kernels[np.argsort(replay.work.start_ns[kernels], kind="stable")]
        reached_ns = np.maximum.accumulate(replay.nodes.recorded_ns)
        for at_ns, number in zip(start_ns.tolist(), collective.tolist(), strict=True):
            found = int(np.searchsorted(replay.work.start_ns[kernels], at_ns))
            if found == len(kernels) or replay.work.start_ns[kernels[found]] != at_ns:
                continue  # of a step that is not played
            node = int(replay.gpu_nodes[kernels[found]])
            after = max(int(replay.nodes.waits_for[node].max()) + 1, int(np.searchsorted(reached_ns, at_ns)))
            meeting.collective[node], meeting.kernel[node] = number, int(kernels[found])
            meeting.ready[min(after, node)].append(node)
            self._members[number].add(place)

    def play(self, runs: Sequence[Edited], like: Mapping[int, int] | None = None) -> list[float]:
        """Return the time of a step on each rank (us), with these changes. `like`: ranks (places) that come when another one
        does, and so are waited for no longer where that one takes part. Raises LookupError: the ranks wait for each other in a
        circle.
        """
        came: dict[int, dict[int, int]] = defaultdict(dict)
        waited_for = {
            number: members - {place for place, other in (like or {}).items() if other in members}
            for number, members in self._members.items()
        }
        times_ns = [np.zeros(0)] * len(runs)
        playing = {place: self._play(place, runs[place], came, waited_for, times_ns) for place in range(len(runs))}
        while playing:
            moved = False
            for place, rank in list(playing.items()):
                try:
                    moved |= next(rank)
                except StopIteration:
                    del playing[place]
                    moved = True
            if not moved:
                raise LookupError("the ranks wait for each other in a circle: their clocks disagree")
        found = []
        for replay, one in zip(self.replays, times_ns, strict=True):
            begin_ns, end_ns, steps = replay.edges(one)
            found.append((end_ns - begin_ns) / 1000 / steps)
        return found

    def _play(
        self,
        place: int,
        run: Edited,
        came: dict[int, dict[int, int]],
        waited_for: Mapping[int, set[int]],
        times_ns: list[np.ndarray],
    ) -> Iterator[bool]:
        """Play a rank, from one moment to the next at which it is ready for a collective, or waits in one. Where it waits for
        other ranks it yields whether it came further since.
        """
        replay, meeting, offset = run.replay, self._meetings[place], self.offset_ns[place]
        nodes, times, came_further = replay.nodes, replay.nodes.begun(), True
        length_ns = np.rint((replay.work.end_ns - replay.work.start_ns) * run.left).astype(np.int64)
        after_ns, begun = run.times_ns(), 0
        for node in sorted(meeting.ready.keys() | meeting.collective.keys()):
            nodes.play(times, after_ns, begun, node)
            begun = node
            for kernel_node in meeting.ready.get(node, ()):
                number, kernel = meeting.collective[kernel_node], meeting.kernel[kernel_node]
                waits_for, after = nodes.waits_for[kernel_node].tolist(), after_ns[kernel_node].tolist()
                came[number][place] = nodes.when(times, waits_for, after) - int(length_ns[kernel]) + offset
            number = meeting.collective.get(node, -1)
            if number < 0 or run.is_gone[meeting.kernel[node]]:
                continue
            while not waited_for[number] <= came[number].keys():
                yield came_further
                came_further = False
            last_ns = max(came[number][rank] for rank in waited_for[number]) - offset
            times[node] = last_ns + round(meeting.tail_ns[node] * float(run.left[meeting.kernel[node]]))
            begun, came_further = node + 1, True
        nodes.play(times, after_ns, begun, len(nodes.recorded_ns))
        times_ns[place] = np.array(times[:-1], np.int64)
