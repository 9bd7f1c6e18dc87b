"""A trace as a page's script draws it: lanes, the columns of its slices, and what lights up.

The columns are packed: the bytes of equal weight together, then gzip, then base64.
"""

import base64
from collections.abc import Mapping, Sequence
from functools import cached_property
import gzip
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.collectives import collectives, message_bytes
from trace_reader.analysis.comparison import Change
from trace_reader.analysis.critical_path import Class
from trace_reader.analysis.dispatch_tree import thread_label
from trace_reader.analysis.facts import CollectiveFacts, Facts
from trace_reader.analysis.gpu_idle import Gap, gaps
from trace_reader.analysis.job_facts import JobCollectiveFacts, JobFacts, RankFacts
from trace_reader.analysis.kernel_facts import FamilyFacts, GemmFacts, KernelFacts, family_of, gemm_calls
from trace_reader.analysis.memory_facts import curves
from trace_reader.analysis.op_facts import OpFacts
from trace_reader.analysis.place_facts import PlaceFacts
from trace_reader.analysis.rank_summary import RankSummary, Union
from trace_reader.analysis.step_facts import StepFacts
from trace_reader.analysis.verdict import CPU_WORDS
from trace_reader.link.intervals import without
from trace_reader.link.nesting import parents
from trace_reader.link.trace import TOLERANCE_NS, Trace
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import ON_CPU, ON_GPU, Collective, Footprint, Inputs, Kind
from trace_reader.names.kernel_names import decode_name
from trace_reader.report.colours import CPU_COLOURS, GPU_COLOURS, cpu_kind
from trace_reader.system.terminal import plain
from trace_reader.units import count, human_bytes

MOST_SLICES = 1_000_000  # of a page: they take 0.2 s to lay out and are drawn at 60 frames a second (benchmarks/page_frames.py)
MOST_SPANS = 2000
CALL_LEFT_OUT = -2  # in the column `call`
LONGEST_NAME, LONGEST_DETAIL = 2000, 400
NO_NAME = "(no name)"
CATEGORIES = [
    *((name, colour) for name, colour in CPU_COLOURS.items()),
    *((name, colour) for name, colour in GPU_COLOURS.items()),
]
PLACE_OF = {name: place for place, name in enumerate(CPU_COLOURS)}
GPU_PLACE_OF = {name: len(CPU_COLOURS) + place for place, name in enumerate(GPU_COLOURS)}
GPU_KINDS = (*ON_GPU, Kind.GPU_ANNOTATION)


class Panel(msgspec.Struct, frozen=True):
    """One trace on the page: `head` are values for the script, `columns` the packed arrays that it names."""

    head: dict[str, Any]
    columns: str


class Lit(msgspec.Struct):
    """What a click lights up, by panel: all slices of some names, some slices (the panel's rows), stretches of time (ns), and one
    class of the critical path.
    """

    names: dict[int, list[int]] = msgspec.field(default_factory=dict)
    rows: dict[int, list[int]] = msgspec.field(default_factory=dict)
    spans: dict[int, list[list[int]]] = msgspec.field(default_factory=dict)
    path: dict[int, int] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(any(own.values()) for own in (self.names, self.rows, self.spans)) or bool(self.path)

    @property
    def values(self) -> dict[str, Any]:
        """As JSON values, without what is empty; each row as its distance from the one before, which takes fewer letters."""
        rows = {number: np.diff(np.sort(own), prepend=0).tolist() for number, own in self.rows.items()}
        every = {"names": self.names, "rows": rows, "spans": self.spans, "path": self.path}
        return {name: own for name, own in every.items() if own}


class Shown:
    """A trace of which a panel is made: which slices it shows, and how they are numbered there.

    `drawn`: the same trace with the functions of Python, where it has them; `trace` is without, and what the facts are of.
    `most`: slices, of which beyond Python's functions are left out, then what is far from the step in the middle; `left_out`
    says what.
    """

    def __init__(self, number: int, trace: Trace, facts: Facts, most: int = MOST_SLICES, drawn: Trace | None = None):
        self.number, self.trace, self.facts, self.drawn = number, trace, facts, drawn or trace
        self.rows, self.left_out = _kept(self.drawn, most)
        slices = self.drawn.slices
        self.row_of_drawn = np.full(len(slices) + 1, -1, np.int64)  # the last: of no slice
        self.row_of_drawn[self.rows] = np.arange(len(self.rows))
        same = np.flatnonzero(slices.kind != Kind.PYTHON) if drawn else np.arange(len(slices))
        self.row_of = np.append(self.row_of_drawn[same], -1)  # by the row in `trace`
        names = distinct(slices.name[self.rows])
        self.names = names.values
        self.name_of = names.which
        self.counts = names.counts
        self.place_of_name = {int(name): place for place, name in enumerate(names.values.tolist())}

    @cached_property
    def gemms(self) -> dict[tuple[str, tuple[int, int, int, int], str, str | None], Rows]:
        """As `gemm_calls`: asked for by each row of a table."""
        return gemm_calls(self.trace)

    @cached_property
    def collectives(self) -> list[tuple[Collective, Rows]]:
        """As the function of this name: asked for by each row of a table."""
        return collectives(self.trace)

    def nearest(self, parent: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """For each of these rows of the drawn trace, the row on the panel of the nearest span around it that is there, or -1."""
        around = parent[rows]
        while len(missing := np.flatnonzero((around >= 0) & (self.row_of_drawn[around] < 0))):
            around[missing] = parent[around[missing]]
        return self.row_of_drawn[around]

    def light(self, lit: Lit, rows: Rows) -> None:
        """Add these slices of the trace."""
        own = self.row_of[rows.at]
        own = own[own >= 0]
        names = distinct(self.name_of[own]).values
        if len(own) and int(self.counts[names].sum()) == len(own):
            lit.names[self.number] = [*lit.names.get(self.number, []), *names.tolist()]
        elif len(own):
            lit.rows[self.number] = [*lit.rows.get(self.number, []), *own.tolist()]

    def light_named(self, lit: Lit, name: str | None, *kinds: Kind) -> None:
        """Add the slices of this name."""
        rows = self.trace.linked if kinds == ON_GPU else Rows(self.trace.slices, self.trace.slices.of(*kinds))
        self.light(lit, rows.where(rows.is_named(lambda own: own == name)))


def lit_of(item: Any, shown: Sequence[Shown], job: JobFacts | None = None) -> Lit:
    """What lights up for the row of a table: the slices that it is of, in each panel; empty where it is of none. Of a rank of a
    job it is where that rank waited.
    """
    lit = Lit()
    for place, own in enumerate(shown):
        trace, facts = own.trace, own.facts
        match item:
            case KernelFacts():
                own.light_named(lit, item.name, *ON_GPU)
            case Change():
                side = (item.a, item.b)[place]
                own.light_named(lit, side.name if side else None, *ON_GPU)
            case GemmFacts():
                own.light(lit, own.gemms[item.op, (item.batch, item.m, item.n, item.k), item.kernel, item.dtype])
            case FamilyFacts():
                names = {k.name for k in facts.kernels if family_of(k) == item.family}
                own.light(lit, trace.linked.where(trace.linked.is_named(names.__contains__)))
            case OpFacts():
                own.light_named(lit, item.name, Kind.OP)
            case PlaceFacts():
                own.light_named(lit, item.name, Kind.ANNOTATION)
            case StepFacts():
                own.light(lit, trace.steps.where(trace.steps.is_named(item.name.__eq__)))
            case (StepFacts() | None, StepFacts() | None):
                if (step := item[place]) is not None:
                    own.light(lit, trace.steps.where(trace.steps.is_named(step.name.__eq__)))
            case CollectiveFacts() | JobCollectiveFacts():
                for said, rows in own.collectives:
                    if (said.name, said.group, message_bytes(said)) == (item.name, item.group, item.bytes):
                        own.light(lit, rows)
            case Gap():
                start_ns = round(item.start_us * 1000)
                lit.spans[own.number] = [[start_ns, start_ns + round(item.duration_us * 1000)]]
            case str() if facts.critical_path is not None and item in facts.critical_path.classes:
                if item.upper() in Class.__members__:
                    lit.path[own.number] = int(Class[item.upper()])
            case RankFacts() if job is not None and job.ranks[own.number].rank == item.rank:
                _light_waits(lit, job, own.number)
    return lit


def lit_waits(job: JobFacts) -> Lit:
    """Where the other ranks waited, if one is late."""
    lit = Lit()
    for place, own in enumerate(job.ranks):
        if job.straggler is not None and own.rank != job.straggler.rank:
            _light_waits(lit, job, place)
    return lit


def _light_waits(lit: Lit, job: JobFacts, place: int) -> None:
    """Add the longest waits of a rank."""
    start_ns, end_ns = job.waits_ns[place]
    longest = np.sort(np.argsort(start_ns - end_ns, kind="stable")[:MOST_SPANS])
    longest = longest[end_ns[longest] > start_ns[longest]]
    lit.spans[place] = np.stack([start_ns[longest], end_ns[longest]], axis=1).tolist()


def panel(shown: Shown, label: str, shift_ns: int = 0, counted_from: str = "") -> Panel:
    """The panel of a trace; its times are moved by `shift_ns` on the page's axis, which counts from `counted_from`, by default
    the first slice.
    """
    counted_from = counted_from or f"the first slice{' that is not of Python' * (shown.drawn is not shown.trace)}"
    trace, facts, slices, rows = shown.drawn, shown.facts, shown.drawn.slices, shown.rows
    tracks = distinct(slices.track[rows]).values.tolist()
    lanes = _lanes(trace, rows, tracks)
    call = np.full(len(slices), -1)
    call[trace.work.at] = trace.work.call
    details = distinct(slices.detail[rows])
    said = [_detail(slices.details[number]) if number >= 0 else "" for number in details.values.tolist()]
    packed = _Packed()
    # With the functions of Python, another slice may be the first: the report counts from the first of the others.
    earlier_ns = trace.zero_ns - shown.trace.zero_ns
    parent = parents(slices, (*ON_CPU, Kind.PYTHON)) if trace is not shown.trace else trace.parent
    parent_row = shown.nearest(parent, rows)
    call_row = shown.row_of_drawn[call[rows]]
    packed.add("start", np.diff(slices.start_ns[rows] + earlier_ns, prepend=0).astype(np.float64))
    packed.add("duration", np.rint(slices.duration_us[rows] * 1000).astype(np.float64))
    packed.add("name", shown.name_of.astype(np.int32))
    packed.add("track", np.searchsorted(tracks, slices.track[rows]).astype(np.int32))
    packed.add("category", _categories(trace, rows, {k.name: family_of(k) for k in facts.kernels}).astype(np.uint8))
    packed.add("parent", parent_row.astype(np.int32))
    packed.add("call", np.where((call[rows] >= 0) & (call_row < 0), CALL_LEFT_OUT, call_row).astype(np.int32))
    packed.add("detail", details.which.astype(np.int32))
    path = None
    if facts.critical_path is not None:
        pieces, own = facts.critical_path.pieces, shown.trace.slices
        number_of = {track: number for number, track in enumerate(slices.tracks)}
        same = np.array([number_of[track] for track in own.tracks] + [-1])
        lane = same[np.where(pieces.row >= 0, own.track[np.maximum(pieces.row, 0)], pieces.track)]
        drawn = (lane >= 0) & np.isin(lane, tracks)
        packed.add("path_start", pieces.start_ns[drawn].astype(np.float64))
        packed.add("path_end", pieces.end_ns[drawn].astype(np.float64))
        packed.add("path_kind", pieces.kind[drawn].astype(np.uint8))
        packed.add("path_track", np.searchsorted(tracks, lane[drawn]).astype(np.int32))
        packed.add("path_row", shown.row_of[pieces.row[drawn]].astype(np.int32))
        path = [kind.name.lower() for kind in Class]
    names = [plain(slices.names[name], LONGEST_NAME) or NO_NAME for name in shown.names.tolist()]
    on_gpu = set(slices.name[rows][np.isin(slices.kind[rows], ON_GPU)].tolist())
    decoded = {place: decode_name(slices.names[name]).label for place, name in enumerate(shown.names.tolist()) if name in on_gpu}
    labels = {str(place): plain(label, 200) for place, label in decoded.items() if label and plain(label, 200) != names[place]}
    head = {
        "label": plain(label, LONGEST_NAME),
        "n": len(rows),
        "shift": shift_ns,
        "from": counted_from,
        "tolerance": TOLERANCE_NS,
        "names": names,
        "labels": labels,
        "details": said,
        "lanes": lanes,
        "bands": _idle_bands(shown, packed),
        "curves": _curves(shown.trace, packed),
        "steps": [
            [plain(step.name, 200), round(step.start_us * 1000), round(step.end_us * 1000)]
            for step in list(shown.trace.steps)[:MOST_SPANS]
        ],
        "path": path,
        "columns": packed.columns,
        "categories": CATEGORIES,
    }
    return Panel(head, packed.text())


def rank_panel(job: JobFacts, place: int, shown: Shown | None) -> Panel:
    """The panel of one rank of a job: a lane of what it did, by the first rank's clock; below it, to be opened, its own lanes."""
    own, shift_ns = job.summaries[place], job.offset_ns[place] or 0
    label = f"rank {own.rank}"
    of = f"rank {own.rank}, whose clock nothing ties to the others'" if job.offset_ns[place] is None else "the first rank"
    base = panel(shown, label, shift_ns, f"the first slice of {of}") if shown else _without_slices(label, shift_ns)
    packed = _Packed(base)
    head = {
        **base.head,
        "folded": True,
        "bands": [_rank_band(own, job.waits_ns[place], job.whole and not job.unmatched, packed), *base.head["bands"]],
    }
    head["columns"] = packed.columns
    return Panel(head, packed.text())


def _without_slices(label: str, shift_ns: int) -> Panel:
    packed = _Packed()
    head = {
        "label": label, "n": 0, "shift": shift_ns, "from": "the first slice of the first rank", "tolerance": TOLERANCE_NS,
        "names": [], "labels": {}, "details": [], "lanes": [], "bands": [], "curves": [], "steps": [], "path": None,
        "columns": packed.columns, "categories": CATEGORIES,
    }  # fmt: skip
    return Panel(head, packed.text())


def _kept(trace: Trace, most: int) -> tuple[np.ndarray, str]:
    """The rows that are drawn, and what is left out, in words."""
    slices = trace.slices
    rows = np.arange(len(slices))
    if len(rows) <= most:
        return rows, ""
    without = np.flatnonzero(slices.kind != Kind.PYTHON)
    python = len(rows) - len(without)
    left = [f"{count(python, 'function', 'functions')} of Python"] if python else []
    rows = without
    if len(rows) > most:
        middle = (
            int(trace.steps.start_ns[len(trace.steps) // 2]) if len(trace.steps) else int(slices.start_ns[rows[len(rows) // 2]])
        )
        first = int(np.clip(np.searchsorted(slices.start_ns[rows], middle) - most // 2, 0, len(rows) - most))
        before, after = first, len(rows) - most - first
        left += [f"{n:,} slices {where}" for n, where in ((before, "before"), (after, "after")) if n]
        rows = rows[first : first + most]
    return (
        rows,
        f"Not drawn: {', '.join(left)}; {len(rows):,} slices are. The verdict, findings and tables are of the whole trace.",
    )


def _lanes(trace: Trace, rows: np.ndarray, tracks: list[int]) -> list[dict[str, Any]]:
    """The lanes in their order: threads of the CPU, the one of the steps first, then the streams of each device."""
    slices = trace.slices
    counts = np.bincount(np.searchsorted(tracks, slices.track[rows]), minlength=len(tracks)).tolist()
    on_gpu = set(distinct(slices.track[slices.of(*GPU_KINDS)]).values.tolist())
    main = int(trace.steps.track[0]) if len(trace.steps) else -1
    several = len({slices.tracks[track][0] for track in on_gpu}) > 1
    lanes = []
    for place, track in enumerate(tracks):
        device, stream = slices.tracks[track]
        gpu = track in on_gpu
        label = f"GPU{f' {device}' if several else ''} stream {stream}" if gpu else thread_label(trace, track)
        order = (gpu, track != main, 0 if gpu else -counts[place], [str(part).rjust(20) for part in slices.tracks[track]])
        lanes.append((order, {"track": place, "label": plain(label, 100), "gpu": gpu}))
    return [lane for _, lane in sorted(lanes, key=lambda pair: pair[0])]


def _categories(trace: Trace, rows: np.ndarray, families: Mapping[str, str]) -> np.ndarray:
    """For each row, its place in CATEGORIES; each pair of kind and name is asked once. `families`: of each kernel, its kind."""
    slices = trace.slices
    key = slices.name.astype(np.int64) * len(Kind) + slices.kind
    every = distinct(key[rows])
    found = np.zeros(len(every.values), np.int64)
    for place, first in enumerate(rows[every.first].tolist()):
        kind = Kind(int(slices.kind[first]))
        if kind in ON_GPU:
            found[place] = GPU_PLACE_OF[families.get(slices.names[slices.name[first]], "other")]
        elif kind == Kind.GPU_ANNOTATION:
            found[place] = GPU_PLACE_OF["GPU annotation"]
        else:
            found[place] = PLACE_OF[cpu_kind(kind, slices.names[slices.name[first]])]
    return found[every.which]


def _detail(detail: Any) -> str:
    """What a slice's detail says, in words."""
    if isinstance(detail, Footprint):
        parts = []
        if detail.grid:
            parts.append(f"grid {'x'.join(map(str, detail.grid))}")
        if detail.block:
            parts.append(f"block {'x'.join(map(str, detail.block))}")
        if detail.registers_per_thread is not None:
            parts.append(f"{detail.registers_per_thread} registers a thread")
        if detail.shared_memory_bytes is not None:
            parts.append(f"{human_bytes(detail.shared_memory_bytes)} shared")
        if detail.reported_occupancy_percent:  # 0 stands for: not estimated
            parts.append(f"occupancy {detail.reported_occupancy_percent:.0f}% as the profiler estimates it")
        if isinstance(said := detail.collective, Collective):
            size = message_bytes(said)
            parts.insert(0, f"{said.name} of {'unknown size' if size is None else human_bytes(size)} in group {said.group}")
        return plain(", ".join(parts), LONGEST_DETAIL)
    if isinstance(detail, Inputs):
        return plain(
            ", ".join(_shape(dims) for dims in detail.dims if dims) if isinstance(detail.dims, tuple) else "", LONGEST_DETAIL
        )
    return human_bytes(detail) if isinstance(detail, int) else plain(str(detail), LONGEST_DETAIL)


def _shape(dims: Any) -> str:
    if isinstance(dims, tuple | list):
        inner = [_shape(part) for part in dims]
        return f"[{', '.join(inner)}]"
    return str(dims)


def _idle_bands(shown: Shown, packed: "_Packed") -> list[dict[str, Any]]:
    """A lane for each device: where it did nothing until its last work; the largest gaps of the path's window say why."""
    facts, found = shown.facts, []
    for number, path in enumerate(facts.critical_paths):
        work = shown.trace.work
        first_ns = min(int(work.start_ns.min()), path.start_ns)
        begins, ends, _ = gaps(shown.trace, path.device, first_ns, int(work.end_ns.max()))
        known = {
            round(gap.start_us * 1000): CPU_WORDS.get(gap.cause, gap.cause) for gap in (facts.idle.gaps if facts.idle else ())
        }
        texts = ["idle", *(f"idle, {cause}" for cause in dict.fromkeys(known.values()))] if number == 0 else ["idle"]
        text = np.array(
            [texts.index(f"idle, {known[at]}") if not number and at in known else 0 for at in begins.tolist()], np.uint8
        )
        several = f" {path.device}" if len(facts.critical_paths) > 1 else ""
        found.append(packed.band(f"GPU{several} idle", begins, ends, text, [[own, "idle", 0] for own in texts]))
    return found


def _rank_band(own: RankSummary, waits: Union, known: bool, packed: "_Packed") -> dict[str, Any]:
    """What a rank did: above what it computes and copies, below its communication, with its waiting. `known`: what of it waits;
    else it is not called transfer.
    """
    transfer = "transfer" if known else "communication"
    texts: list[list[Any]] = [
        ["idle", "idle", 0], ["copy", "copy", 1], ["compute", "GEMM", 1], [transfer, "communication", 2],
        ["waiting for another rank", "waiting", 2],
    ]  # fmt: skip
    window = (np.array([own.window_ns[0]]), np.array([own.window_ns[1]]))
    unions = [without(window, own.busy), without(without(own.busy, own.computing), own.communicating), own.computing]
    unions += [without(own.communicating, waits), waits]
    start, end = (np.concatenate([union[side] for union in unions]) for side in (0, 1))
    text = np.concatenate([np.full(len(union[0]), place, np.uint8) for place, union in enumerate(unions)])
    order = np.argsort(start, kind="stable")
    order = order[end[order] > start[order]]
    return packed.band(f"rank {own.rank}", start[order], end[order], text[order], texts)


def _curves(trace: Trace, packed: "_Packed") -> list[dict[str, Any]]:
    """A lane for each device whose memory was recorded."""
    found: list[dict[str, Any]] = []
    for curve in curves(trace) if len(trace.memory) else []:
        number = len(found)
        packed.add(f"curve{number}_at", curve.moment_ns.astype(np.float64))
        packed.add(f"curve{number}_bytes", curve.bytes.astype(np.float64))
        peak = int(max(curve.bytes.max(), curve.first_bytes))
        found.append({"label": f"{curve.device} memory", "first": int(curve.first_bytes), "peak": peak})
    return found


class _Packed:
    """Arrays to be packed, after those of a panel."""

    def __init__(self, base: Panel | None = None):
        self.columns: list[list[Any]] = list(base.head["columns"]) if base else []
        self._bytes = [gzip.decompress(base64.b64decode(base.columns))] if base else []
        self._bands = len(base.head["bands"]) if base else 0

    def add(self, name: str, array: np.ndarray) -> None:
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        self.columns.append([name, {"f8": "f64", "i4": "i32", "u1": "u8"}[little.dtype.str[1:]], len(little)])
        self._bytes.append(little.view(np.uint8).reshape(-1, little.itemsize).T.tobytes())

    def band(self, label: str, start: np.ndarray, end: np.ndarray, text: np.ndarray, texts: list[list[Any]]) -> dict[str, Any]:
        """A lane of stretches that each have a text, with the colour and the half (0: both, 1: upper, 2: lower) that it has."""
        name = f"band{self._bands}"
        self._bands += 1
        self.add(f"{name}_start", start.astype(np.float64))
        self.add(f"{name}_end", end.astype(np.float64))
        self.add(f"{name}_text", text.astype(np.uint8))
        return {"label": label, "name": name, "texts": texts}

    def text(self) -> str:
        return base64.b64encode(gzip.compress(b"".join(self._bytes), 6, mtime=0)).decode()
