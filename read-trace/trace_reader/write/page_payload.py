"""A timeline as a page's script draws it: lanes, the columns of its slices, and what lights up.

The columns are packed: the bytes of equal weight together, then gzip, then base64.
"""

import base64
from collections.abc import Mapping
from functools import cached_property
import gzip
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.jobs.job_facts import JobFacts
from trace_reader.analysis.trace.collectives import message_bytes
from trace_reader.analysis.trace.critical_path import PathClass, Pieces
from trace_reader.link.nesting import parents
from trace_reader.link.trace import TOLERANCE_NS, Trace
from trace_reader.model.rows import among, distinct
from trace_reader.model.slices import ON_CPU, ON_GPU, Collective, Footprint, Inputs, Kind
from trace_reader.names.kernel_names import decode_name
from trace_reader.report.lights import MOST_SPANS, Light
from trace_reader.report.theme import COLOURS
from trace_reader.report.timeline import Band, Timeline, rank_band
from trace_reader.system.files import gzipped
from trace_reader.system.terminal import printable
from trace_reader.units import count, human_bytes

MOST_SLICES = 1_000_000  # of a page: they take 0.2 s to lay out and are drawn at 60 frames a second (benchmarks/page_frames.py)
CALL_LEFT_OUT = -2  # in the column `call`
LONGEST_SLICE_NAME, LONGEST_DETAIL = 2000, 400
NO_NAME = "(no name)"
CATEGORIES = list(COLOURS.items())


class Panel(msgspec.Struct, frozen=True):
    """One trace on the page: `head` are values for the script, `columns` the packed arrays that it names."""

    head: dict[str, Any]
    columns: str


class DrawnSlices:
    """A timeline of which a panel is made: which slices it shows, and how they are numbered there.

    `most`: slices, of which beyond Python's functions are left out, then what is far from the step in the middle; `left_out`
    says what.
    """

    def __init__(self, number: int, timeline: Timeline, most: int = MOST_SLICES):
        self.number, self.timeline = number, timeline
        drawn, trace = timeline.drawn, timeline.trace
        self.rows, self.left_out = _kept(drawn, most)
        slices = drawn.slices
        self.row_of_drawn = np.full(len(slices) + 1, -1, np.int64)  # the last: of no slice
        self.row_of_drawn[self.rows] = np.arange(len(self.rows))
        same = np.flatnonzero(slices.kind != Kind.PYTHON) if drawn is not trace else np.arange(len(slices))
        self.row_of = np.append(self.row_of_drawn[same], -1)  # by the row in the trace
        names = distinct(slices.name[self.rows])
        self.names, self.name_of, self.counts = names.values, names.which, names.counts

    def lit(self, light: Light) -> dict[str, Any]:
        """Return what lights up on this panel, as JSON values: all slices of some names, some slices (each as its distance from
        the one before, which takes fewer letters), stretches of time, a class of the critical path; without what is empty.
        """
        found: dict[str, Any] = {}
        if light.rows is not None:
            rows = self.row_of[light.rows.at]
            rows = np.sort(rows[rows >= 0])
            names = distinct(self.name_of[rows]).values
            if len(rows) and int(self.counts[names].sum()) == len(rows):
                found["names"] = names.tolist()
            elif len(rows):
                found["rows"] = np.diff(rows, prepend=0).tolist()
        if light.spans_ns is not None and len(light.spans_ns):
            found["spans"] = light.spans_ns.tolist()
        if light.path is not None:
            found["path"] = int(light.path)
        return found

    @cached_property
    def tracks(self) -> list[int]:
        """The tracks that are shown, in the order of their numbers."""
        return distinct(self.timeline.drawn.slices.track[self.rows]).values.tolist()


def lit_values(lights: Mapping[int, Light], shown: Mapping[int, DrawnSlices]) -> dict[str, Any]:
    """Return what lights up on all panels, by kind and panel; empty where nothing does."""
    found: dict[str, Any] = {}
    for number, light in lights.items():
        one = (
            shown[number].lit(light) if number in shown else {"spans": [] if light.spans_ns is None else light.spans_ns.tolist()}
        )
        for kind, value in one.items():
            if value or kind == "path":
                found.setdefault(kind, {})[number] = value
    return found


def panel(shown: DrawnSlices, label: str, shift_ns: int = 0, counted_from: str = "") -> Panel:
    """Return the panel of a trace; its times are moved by `shift_ns` on the page's axis, which counts from `counted_from`, by
    default the first slice.
    """
    timeline, rows = shown.timeline, shown.rows
    trace, slices = timeline.drawn, timeline.drawn.slices
    has_python = trace is not timeline.trace
    packed = _Packed()
    every = len(slices.details) + 1
    details = distinct((slices.detail[rows] + np.int64(1)) * every + slices.region[rows] + 1)
    _pack_slices(packed, shown, details.which)
    path = _pack_path(packed, shown)
    names = [printable(slices.names[name], LONGEST_SLICE_NAME) or NO_NAME for name in shown.names.tolist()]
    on_gpu = set(slices.name[rows][among(slices.kind[rows], ON_GPU)].tolist())
    decoded = {place: decode_name(slices.names[name]).label for place, name in enumerate(shown.names.tolist()) if name in on_gpu}
    lanes = [lane for lane in timeline.lanes if lane.track in shown.tracks]
    steps = list(timeline.trace.steps)[:MOST_SPANS]
    head = {
        "label": printable(label, LONGEST_SLICE_NAME),
        "n": len(rows),
        "shift": shift_ns,
        "from": counted_from or f"the first slice{' that is not of Python' * has_python}",
        "tolerance": TOLERANCE_NS,
        "names": names,
        "labels": {str(n): printable(label, 200) for n, label in decoded.items() if label and printable(label, 200) != names[n]},
        "details": [_said(slices.details, *divmod(number, every)) for number in details.values.tolist()],
        "lanes": [
            {"track": shown.tracks.index(lane.track), "label": printable(lane.label, 100), "gpu": lane.on_gpu} for lane in lanes
        ],
        "bands": [packed.band(band) for _, band in timeline.idle],
        "curves": _curves(timeline, packed),
        "steps": [[printable(step.name, 200), round(step.start_us * 1000), round(step.end_us * 1000)] for step in steps],
        "path": path,
        "columns": packed.columns,
        "categories": CATEGORIES,
    }
    return Panel(head, packed.text())


def _pack_slices(packed: "_Packed", shown: DrawnSlices, detail: np.ndarray) -> None:
    timeline, rows = shown.timeline, shown.rows
    trace, slices = timeline.drawn, timeline.drawn.slices
    # With the functions of Python, another slice may be the first: the report counts from the first of the others.
    earlier_ns = trace.zero_ns - timeline.trace.zero_ns
    parent = trace.parent if trace is timeline.trace else parents(slices, (*ON_CPU, Kind.PYTHON))
    call = np.full(len(slices), -1)
    call[trace.work.at] = trace.work.call
    call_row = shown.row_of_drawn[call[rows]]
    packed.add("start", np.diff(slices.start_ns[rows] + earlier_ns, prepend=0).astype(np.float64))
    packed.add("duration", np.rint(slices.duration_us[rows] * 1000).astype(np.float64))
    packed.add("name", shown.name_of.astype(np.int32))
    packed.add("track", np.searchsorted(shown.tracks, slices.track[rows]).astype(np.int32))
    packed.add("category", timeline.kinds[rows].astype(np.uint8))
    packed.add("parent", _nearest(shown, parent).astype(np.int32))
    packed.add("call", np.where((call[rows] >= 0) & (call_row < 0), CALL_LEFT_OUT, call_row).astype(np.int32))
    packed.add("detail", detail.astype(np.int32))


def _nearest(shown: DrawnSlices, parent: np.ndarray) -> np.ndarray:
    """For each slice that is shown, the row on the panel of the nearest span around it that is there, or -1."""
    around = parent[shown.rows]
    while len(missing := np.flatnonzero((around >= 0) & (shown.row_of_drawn[around] < 0))):
        around[missing] = parent[around[missing]]
    return shown.row_of_drawn[around]


def _pack_path(packed: "_Packed", shown: DrawnSlices) -> list[str] | None:
    """Add the critical path, and where that is not the recorded run's, the one of that; the names of their classes."""
    timeline = shown.timeline
    path, recorded = timeline.facts.critical_path, timeline.facts.recorded_critical_path
    if path is None or not timeline.facts.has_gpu_work:
        return None
    _pack_pieces(packed, shown, path.pieces, "path")
    if recorded is not None and recorded is not path:
        _pack_pieces(packed, shown, recorded.pieces, "recorded")
    return [kind.name.lower() for kind in PathClass]


def _pack_pieces(packed: "_Packed", shown: DrawnSlices, pieces: Pieces, name: str) -> None:
    """Add the pieces of a path that lie in a lane that is shown, in order of time, as columns of this name."""
    timeline, slices = shown.timeline, shown.timeline.trace.slices
    pieces = pieces.where(np.argsort(pieces.start_ns, kind="stable"))
    number_of = {track: number for number, track in enumerate(timeline.drawn.slices.tracks)}
    same = np.array([number_of[track] for track in slices.tracks] + [-1])
    lane = same[np.where(pieces.row >= 0, slices.track[np.maximum(pieces.row, 0)], pieces.track)]
    drawn = (lane >= 0) & among(lane, shown.tracks)
    packed.add(f"{name}_start", pieces.start_ns[drawn].astype(np.float64))
    packed.add(f"{name}_end", pieces.end_ns[drawn].astype(np.float64))
    packed.add(f"{name}_kind", pieces.kind[drawn].astype(np.uint8))
    packed.add(f"{name}_track", np.searchsorted(shown.tracks, lane[drawn]).astype(np.int32))
    packed.add(f"{name}_row", shown.row_of[pieces.row[drawn]].astype(np.int32))


def rank_panel(job: JobFacts, place: int, shown: DrawnSlices | None, tells_waits: bool = True) -> Panel:
    """Return the panel of one rank of a job: a lane of what it did, by the first rank's clock (`tells_waits`: which of that is
    waiting); below it, to be opened, its own lanes.
    """
    summary, shift_ns = job.summaries[place], job.offset_ns[place] or 0
    label = f"rank {summary.rank}"
    of = f"rank {summary.rank}, whose clock nothing ties to the others'" if job.offset_ns[place] is None else "the first rank"
    base = panel(shown, label, shift_ns, f"the first slice of {of}") if shown else _without_slices(label, shift_ns)
    packed = _Packed(base)
    head = {**base.head, "folded": True, "bands": [packed.band(rank_band(job, place, tells_waits)), *base.head["bands"]]}
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
    """Return the rows that are drawn, and what is left out, in words."""
    slices = trace.slices
    rows = np.arange(len(slices))
    if len(rows) <= most:
        return rows, ""
    without = np.flatnonzero(slices.kind != Kind.PYTHON)
    python = len(rows) - len(without)
    left = [f"{count(python, 'function', 'functions')} of Python"] if python else []
    rows = without
    if len(rows) > most:
        starts = trace.steps.start_ns if len(trace.steps) else slices.start_ns[rows]
        first = int(np.searchsorted(slices.start_ns[rows], int(starts[len(starts) // 2]))) - most // 2
        first = min(max(first, 0), len(rows) - most)
        before, after = first, len(rows) - most - first
        left += [f"{n:,} slices {where}" for n, where in ((before, "before"), (after, "after")) if n]
        rows = rows[first : first + most]
    return (
        rows,
        f"Not drawn: {', '.join(left)}; {len(rows):,} slices are. The verdict, findings and tables are of the whole trace.",
    )


def _said(details: list[Any], detail: int, region: int) -> str:
    """Return a detail and a region, each the number of its place plus 1, 0 for none, in words."""
    parts = [_detail(details[detail - 1])] if detail else []
    return ", ".join([*parts, f"in {printable(details[region - 1].name, LONGEST_SLICE_NAME)}"] if region else parts)


def _detail(detail: Any) -> str:
    """Return what a slice's detail says, in words."""
    if isinstance(detail, Footprint):
        return printable(", ".join(_footprint(detail)), LONGEST_DETAIL)
    if isinstance(detail, Inputs):
        shapes = ", ".join(_shape(dims) for dims in detail.dims if dims) if isinstance(detail.dims, tuple) else ""
        return printable(shapes, LONGEST_DETAIL)
    return human_bytes(detail) if isinstance(detail, int) else printable(str(detail), LONGEST_DETAIL)


def _footprint(detail: Footprint) -> list[str]:
    parts = []
    if isinstance(message := detail.collective, Collective):
        size = message_bytes(message)
        parts.append(f"{message.name} of {'unknown size' if size is None else human_bytes(size)} in group {message.group}")
    if detail.grid:
        parts.append(f"grid {'x'.join(map(str, detail.grid))}")
    if detail.block:
        parts.append(f"block {'x'.join(map(str, detail.block))}")
    if detail.registers_per_thread is not None:
        parts.append(f"{detail.registers_per_thread} registers per thread")
    if detail.shared_memory_bytes is not None:
        parts.append(f"{human_bytes(detail.shared_memory_bytes)} shared")
    if detail.reported_occupancy_percent:  # 0 stands for: not estimated
        parts.append(f"occupancy {detail.reported_occupancy_percent:.0f}% as the profiler estimates it")
    return parts


def _shape(dims: Any) -> str:
    return f"[{', '.join(map(_shape, dims))}]" if isinstance(dims, tuple | list) else str(dims)


def _curves(timeline: Timeline, packed: "_Packed") -> list[dict[str, Any]]:
    """Return a lane for each device whose memory was recorded."""
    found: list[dict[str, Any]] = []
    for number, curve in enumerate(timeline.curves):
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

    def band(self, band: Band) -> dict[str, Any]:
        """Return a lane of stretches; for the script, each kind is a text, a colour's name and a half."""
        name = f"band{self._bands}"
        self._bands += 1
        self.add(f"{name}_start", band.start_ns.astype(np.float64))
        self.add(f"{name}_end", band.end_ns.astype(np.float64))
        self.add(f"{name}_text", band.kind.astype(np.uint8))
        return {"label": band.label, "name": name, "texts": [[kind.text, kind.colour, kind.half] for kind in band.kinds]}

    def text(self) -> str:
        return base64.b64encode(gzipped(b"".join(self._bytes), 6)).decode()
