"""`read-trace repro`: an op, a loop or what a finding is about, as a program of its own."""

import argparse
from collections.abc import Sequence
from pathlib import Path
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.cost_factor import priced_device
from trace_reader.analysis.replay.place import LOOP
from trace_reader.commands.flags import add_steps_from, one_trace
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.show_finding import place_called
from trace_reader.errors import TraceError
from trace_reader.findings import Reading
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Inputs, Kind, Slice
from trace_reader.parse.byte_source import read_bytes
from trace_reader.parse.details import as_tuples
from trace_reader.reading import judged, with_places
from trace_reader.report.repro_script import Recorded, RecordedCall, repro_script
from trace_reader.system.files import write_file
from trace_reader.units import count

REPRO = """\
A small program that calls an op, a round of a loop, or the ops of a finding, with the shapes, types and strides of a trace
and random values, and prints the time on this machine next to the recorded time. Use it for a bug report (it contains nothing
of your program except shapes), or to learn. It needs a recording with shapes, and torch to run.

    read-trace repro A.json aten::mm -o repro.py
    read-trace repro A.json unfused-pointwise -o repro.py

For an op, it uses the shapes that take most. If one op calls another (aten::linear calls aten::addmm), it calls the outer op.
"""
MOST_CALLS = 60  # of a program


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = REPRO
    parser.add_argument("trace", type=one_trace, metavar="TRACE")
    parser.add_argument("place", metavar="PLACE", help="an op, a loop as `places` names it, or the id of a finding")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="where to write it (default: it is printed)")
    add_steps_from(parser)


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError, LookupError, NotWrittenError."""
    text = repro(args.trace, args.place, args.steps_from)
    if args.out is None:
        return text, 0
    write_file(args.out, text.encode())
    return f"wrote {args.out}: run it with the Python that has torch\n", 0


def repro(path: str, place: str, steps_from: re.Pattern[str] | None = None) -> str:
    """Return the program. Raises TraceError: nothing is called so, or its inputs were not recorded; LookupError."""
    trace = load_with_progress(path, steps_from)
    inputs = _Inputs(trace, path)
    what, groups = _asked(trace, inputs, path, place)
    rows = groups[0]
    if len(rows) > MOST_CALLS:
        named = ", ".join(
            f"{name} ({len(of)})" for name, of in sorted(rows.by_name(), key=lambda one: (-len(one[1]), one[0]))[:3]
        )
        raise TraceError(f"{place}: {len(rows)} ops, more than the {MOST_CALLS} of a small program; name one of them: {named}")
    calls = tuple(map(inputs.call, rows))
    times = [_time_us(trace, group) for group in groups]
    on_gpu = len(trace.launched_in(rows)) > 0
    try:
        return repro_script(Recorded(what, calls, float(np.median(times)), len(groups), priced_device(trace), on_gpu))
    except ValueError as error:
        raise TraceError(f"{place}: {error}") from error


def _asked(trace: Trace, inputs: "_Inputs", path: str, place: str) -> tuple[str, list[Rows]]:
    """Return what is meant, in words, and its ops each time that it was recorded: equal groups."""
    if not place.strip():
        raise TraceError("a place has a name: an op, a loop as `places` names it, or the id of a finding")
    ops = trace.ops.where(trace.step_at(trace.ops.start_ns) >= 0) if len(trace.steps) else trace.ops
    if len(named := ops.where(ops.is_named(place.__eq__))):
        groups = [rows for _, rows in named.by(inputs.kind[named.at])]
        most = max(groups, key=lambda rows: _time_us(trace, rows))
        others = f" (of {count(len(groups), 'kind')} of inputs, those that take most)" if len(groups) > 1 else ""
        return f"{place}{others}", [Rows(trace.slices, most.at[[n]]) for n in range(len(most))]
    reading = with_places(judged(trace, everything=True))
    if found := place_called(reading, place):
        if found.place.kind == LOOP:
            length, at = len(found.place.ops), found.spans.at
            rounds = [at[n : n + length] for n in range(0, len(at), length)]
            return f"a round of the loop {found.place.name}", inputs.equal(place, rounds)
        # Its name may be somebody's own.
        return "the ops of a place, in one step", inputs.equal(place, _by_step(trace, _outermost_ops(trace, found.spans)))
    finding = place.replace("_", "-")
    if finding in reading.seen:
        return f"the ops of {finding}, in one step", inputs.equal(place, _by_step(trace, _ops_of(trace, reading, finding)))
    raise TraceError(f"{path}: no op, place or finding is called {place!r}; `read-trace places {path}` lists some")


def _ops_of(trace: Trace, reading: Reading, finding: str) -> Rows:
    """Return the ops that a finding is about, or that launched what it is about."""
    evidence = reading.seen[finding].evidence
    rows = evidence.at if evidence is not None else np.zeros(0, np.int64)
    launchers = trace.work.op[np.isin(trace.work.at, rows)]
    ops = np.concatenate([rows[trace.slices.kind[rows] == Kind.OP], launchers[launchers >= 0]])
    return Rows(trace.slices, outermost(trace.slices, np.unique(ops)))


def _outermost_ops(trace: Trace, spans: Rows) -> Rows:
    """Return the outermost ops of spans: of an annotation or a module those in it."""
    outer = trace.outer_ops
    starts = np.searchsorted(spans.start_ns, outer.start_ns, side="right") - 1
    around = spans.where(np.maximum(starts, 0))
    found = outer.where((starts >= 0) & (outer.end_ns <= around.end_ns) & (outer.track == around.track))
    return found if len(found) else spans.where(spans.kind == Kind.OP)


def _by_step(trace: Trace, ops: Rows) -> list[np.ndarray]:
    return [rows.at for _, rows in ops.by(trace.step_at(ops.start_ns))]


def _time_us(trace: Trace, ops: Rows) -> float:
    launched = trace.launched_in(ops)
    return launched.total_us if len(launched) else ops.total_us


class _Event(msgspec.Struct):
    name: Any = None
    ts: Any = None
    args: Any = None


class _Events(msgspec.Struct):
    traceEvents: list[_Event]  # as torch writes it


class _Inputs:
    """What ops were called with, read once more from the file: the reader keeps of it only what it tells. `kind`: by slice, a
    number that those share which were called alike; -1 where it is not known. Raises TraceError: it is no whole Chrome trace.
    """

    def __init__(self, trace: Trace, path: str):
        try:
            events = msgspec.json.decode(read_bytes(path).data, type=_Events).traceEvents
        except msgspec.MsgspecError as error:
            raise TraceError(f"{path}: its inputs are read from a whole Chrome trace alone ({error})") from error
        self._trace, self._path = trace, path
        self._calls: list[RecordedCall] = []
        self.kind = np.full(len(trace.slices), -1)
        said = _calls_by_shape(events)
        for shape, at in _ops_by_shape(trace).items():
            calls = said.get(shape, [])
            numbers = dict[Any, int]()
            for call in calls:
                if (values := _hashable(call.values)) not in numbers:
                    numbers[values] = len(self._calls)
                    self._calls.append(call)
            if len(calls) == len(at):
                self.kind[at] = [numbers[_hashable(call.values)] for call in calls]
            elif len(numbers) == 1:  # else which of them is meant is not known
                self.kind[at] = [*numbers.values()]

    def call(self, op: Slice) -> RecordedCall:
        """Return what an op was called with. Raises TraceError: that is not known."""
        if not op.name.startswith("aten::"):
            raise TraceError(f"{op.name} is no op of torch's own (aten::), and not called by its name alone")
        if self.kind[op.row] < 0:
            raise TraceError(f"{self._path} does not have the inputs of {op.name}: record with record_shapes=True")
        return self._calls[self.kind[op.row]]

    def equal(self, place: str, groups: Sequence[np.ndarray]) -> list[Rows]:
        """Return those of these groups of ops that do what most of them do, with the same inputs. Raises TraceError: there are
        none.
        """
        groups = [at for at in groups if len(at)]
        if not groups:
            raise TraceError(f"{place}: no op in the steps is its own; name an op: `read-trace places {self._path}` lists some")
        names = self._trace.slices.name
        kinds = [tuple(zip(names[at].tolist(), self.kind[at].tolist(), strict=True)) for at in groups]
        usual = max(dict.fromkeys(kinds), key=kinds.count)
        return [Rows(self._trace.slices, at) for at, kind in zip(groups, kinds, strict=True) if kind == usual]


def _ops_by_shape(trace: Trace) -> dict[Any, np.ndarray]:
    """Return the ops (rows) by name, shapes, types and strides, in the order of their starts."""
    found: dict[Any, list[np.ndarray]] = {}
    for _, rows in trace.ops.by(trace.ops.name, trace.ops.detail):
        if isinstance(of := rows[0].detail, Inputs):
            found.setdefault((rows[0].name, *map(_hashable, (of.dims, of.types, of.strides))), []).append(rows.at)
    starts = trace.slices.start_ns
    return {shape: (at := np.concatenate(parts))[np.argsort(starts[at], kind="stable")] for shape, parts in found.items()}


def _hashable(said: Any) -> str:
    """Return what an event says of inputs, whatever that is, so that equal ones are equal."""
    return repr(as_tuples(said))


def _calls_by_shape(events: Sequence[_Event]) -> dict[Any, list[RecordedCall]]:
    """Return what a file says of its ops' inputs, by name, shapes, types and strides, in the order of their starts."""
    found: dict[Any, list[tuple[float, RecordedCall]]] = {}
    for event in events:
        if isinstance(event.args, dict) and isinstance(event.args.get("Input Dims"), list) and isinstance(event.ts, int | float):
            keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
            said = (event.args.get(key) for key in keys)
            dims, types, strides, values = (one if isinstance(one, list) else [] for one in said)
            call = RecordedCall(str(event.name), dims, types, strides, values)
            found.setdefault((call.op, *map(_hashable, (dims, types, strides))), []).append((event.ts, call))
    return {shape: [call for _, call in sorted(calls, key=lambda one: one[0])] for shape, calls in found.items()}
