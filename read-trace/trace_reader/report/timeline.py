"""A trace on its time axis, worked out once: its lanes, what each slice is, where each device was idle and why, what a rank did.

Painters (write/) choose what of it fits, and where it is drawn; they decide nothing of this.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from trace_reader.analysis.jobs.rank_summary import Union
from trace_reader.analysis.trace.collectives import collectives
from trace_reader.analysis.trace.dispatch_tree import thread_label
from trace_reader.analysis.trace.gpu_idle import gaps
from trace_reader.analysis.trace.kernel_facts import gemm_calls
from trace_reader.analysis.trace.memory_facts import Curve, curves
from trace_reader.analysis.trace.op_shapes import OpShapeFacts, op_shapes
from trace_reader.findings import Reading
from trace_reader.findings.verdict import CPU_WORDS
from trace_reader.link.intervals import without
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import ON_GPU, Collective, Kind
from trace_reader.names.work_kinds import cpu_kind, work_kind
from trace_reader.report.theme import COLOURS

if TYPE_CHECKING:
    from trace_reader.analysis.jobs.job_facts import JobFacts

KINDS = tuple(COLOURS)  # what a slice can be: `Timeline.kinds` are places in it
GPU_LANES = (*ON_GPU, Kind.GPU_ANNOTATION)


class Lane(msgspec.Struct, frozen=True):
    """A thread of the CPU or a stream of a GPU: its track's number, and what it is called."""

    track: int
    label: str
    on_gpu: bool


class Stretch(msgspec.Struct, frozen=True):
    """A kind of stretch of a band: what it is called, its colour's name, and the half of the lane that it fills (0: all of it,
    1: the upper, 2: the lower).
    """

    text: str
    colour: str
    half: int = 0


class Band(msgspec.Struct, frozen=True, eq=False):
    """A lane that is made of stretches: from `start_ns` to `end_ns`, each of a `kind`, which is a place in `kinds`."""

    label: str
    kinds: tuple[Stretch, ...]
    start_ns: np.ndarray
    end_ns: np.ndarray
    kind: np.ndarray


class Timeline:
    """A trace that was read, on its time axis (ns from the first slice). `drawn`: the trace whose slices are shown, which may
    have the functions of Python, too; the facts are those of `trace`. `curves_before`: of the allocated bytes, from a snapshot;
    they go before the trace's own.
    """

    def __init__(self, reading: Reading, drawn: Trace | None = None, curves_before: Sequence[Curve] = ()):
        self.reading, self.trace, self.facts = reading, reading.trace, reading.facts
        self.drawn, self.curves_before = drawn or reading.trace, curves_before

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes in their order: threads of the CPU, that of the steps first, then those with the most slices; then the GPU's
        streams, in the order of devices and streams.
        """
        slices = self.drawn.slices
        counts = np.bincount(slices.track, minlength=len(slices.tracks)).tolist()
        on_gpu = set(distinct(slices.track[slices.of(*GPU_LANES)]).values.tolist())
        main = int(self.drawn.steps.track[0]) if len(self.drawn.steps) else -1
        several = len({slices.tracks[track][0] for track in on_gpu}) > 1
        found = []
        for track, (device, stream) in enumerate(slices.tracks):
            if not counts[track]:
                continue
            gpu = track in on_gpu
            label = f"GPU{f' {device}' if several else ''} stream {stream}" if gpu else thread_label(self.drawn, track)
            order = (gpu, track != main, 0 if gpu else -counts[track], _in_order((device, stream)))
            found.append((order, Lane(track, label, gpu)))
        return tuple(lane for _, lane in sorted(found, key=lambda pair: pair[0]))

    @cached_property
    def kinds(self) -> np.ndarray:
        """For each slice that is drawn, its place in KINDS; each pair of name and kind is worked out once."""
        slices = self.drawn.slices
        is_step = np.zeros(len(slices), bool)
        is_step[self.drawn.steps.at] = True
        key = (slices.name.astype(np.int64) * len(Kind) + slices.kind) * 2 + is_step
        every = distinct(key)
        of_kernel = {(k.name, k.kind): k.work_kind for k in self.facts.kernels}
        found = np.zeros(len(every.values), np.uint8)
        for place, row in enumerate(every.first.tolist()):
            kind, name = Kind(int(slices.kind[row])), slices.names[slices.name[row]]
            if kind in ON_GPU:
                word = of_kernel.get((name, kind)) or work_kind(name, kind, None, None)
            elif kind == Kind.GPU_ANNOTATION:
                word = "GPU annotation"
            else:
                word = cpu_kind(kind, name, bool(is_step[row]))
            found[place] = KINDS.index(word)
        return found[every.which]

    @cached_property
    def idle(self) -> tuple[tuple[int | str, Band], ...]:
        """For each device where it did nothing, from the first step's start (without steps: from the first work) until its last
        work. The largest gaps of the critical path's window say why.
        """
        facts, work, found = self.facts, self.trace.work, []
        if not len(work):
            return ()
        first_ns = int(work.start_ns.min())
        if len(self.trace.steps):
            first_ns = min(first_ns, int(self.trace.steps.start_ns[0]))
        devices = [path.device for path in facts.critical_paths] or _devices(self.trace)
        causes = {round(gap.start_us * 1000): gap.cause for gap in (facts.idle.gaps if facts.idle else ())}
        for number, device in enumerate(devices):
            start_ns, end_ns, _ = gaps(self.trace, device, first_ns, int(work.end_ns.max()))
            known = causes if number == 0 else {}  # the causes are those of the device that ends last
            said = list(dict.fromkeys(CPU_WORDS.get(cause, cause) for cause in known.values()))
            kinds = (Stretch("idle", "idle"), *(Stretch(f"idle, {cause}", "idle") for cause in said))
            places = [said.index(CPU_WORDS.get(known[at], known[at])) + 1 if at in known else 0 for at in start_ns.tolist()]
            label = f"GPU {device} idle" if len(devices) > 1 else "GPU idle"
            found.append((device, Band(label, kinds, start_ns, end_ns, np.array(places, np.uint8))))
        return tuple(found)

    @cached_property
    def curves(self) -> list[Curve]:
        """The allocated bytes of each device whose memory was recorded."""
        known = {curve.device for curve in self.curves_before}
        return [*self.curves_before, *(one for one in curves(self.trace) if one.device not in known)]

    @cached_property
    def gemms(self) -> dict[tuple[str, tuple[int, int, int, int], str, str | None], Rows]:
        """As `gemm_calls`: asked for by each row of a table."""
        return gemm_calls(self.trace)

    @cached_property
    def op_shapes(self) -> dict[OpShapeFacts, Rows]:
        """What each row of the ops by shape is of."""
        return dict(op_shapes(self.trace, str((self.facts.device_properties or {}).get("name", ""))))

    @cached_property
    def collectives(self) -> list[tuple[Collective, Rows]]:
        """As the function of this name: asked for by each row of a table."""
        return collectives(self.trace)

    @property
    def begins_ns(self) -> int:
        """When the first recorded step begins; without steps, the GPU's first work, or the first slice."""
        rows = next((rows for rows in (self.trace.steps, self.trace.work) if len(rows)), None)
        return 0 if rows is None else int(rows.start_ns[0])


def rank_band(job: "JobFacts", place: int, tells_waits: bool = True) -> Band:
    """Return what a rank did in its window: above what it computes and copies, below its communication, with its waiting. Where
    it is not known what of that is waiting, it is not called transfer. Or, for one who is to find out, none of it `tells_waits`.
    """
    summary, waits = job.summaries[place], job.waits_ns[place]
    known = job.whole and not job.unmatched and tells_waits
    communication = Stretch("transfer" if known else "communication", "communication", 2)
    kinds = (
        Stretch("idle", "idle"), Stretch("copy", "copy", 1), Stretch("compute", "GEMM", 1),
        communication, Stretch("waiting for another rank", "waiting", 2) if tells_waits else communication,
    )  # fmt: skip
    window: Union = (np.array([summary.window_ns[0]]), np.array([summary.window_ns[1]]))
    stretches: Iterable[Union] = (
        without(window, summary.busy),
        without(without(summary.busy, summary.computing), summary.communicating),
        summary.computing,
        without(summary.communicating, waits),
        waits,
    )
    pairs = [(start, end, np.full(len(start), kind, np.uint8)) for kind, (start, end) in enumerate(stretches)]
    start, end, kind = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.argsort(start, kind="stable")
    order = order[end[order] > start[order]]
    return Band(f"rank {summary.rank}", kinds, start[order], end[order], kind[order])


def _devices(trace: Trace) -> list[int | str]:
    return list(dict.fromkeys(trace.slices.tracks[track][0] for track in trace.work.track.tolist()))


def _in_order(track: tuple[int | str, int | str]) -> list[tuple[bool, int, str]]:
    """Numbers by their value, before names."""
    return [(isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in track]
