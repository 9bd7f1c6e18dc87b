"""`read-trace repro`: an op, a loop or what a finding is about, as a program of its own."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.cost_factor import priced_device
from trace_reader.analysis.replay.place import LOOP
from trace_reader.commands.flags import add_steps_from
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.show_finding import place_called
from trace_reader.errors import TraceError
from trace_reader.findings import Reading
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Inputs, Kind
from trace_reader.parse.byte_source import read_bytes
from trace_reader.parse.details import as_tuples
from trace_reader.reading import judged, with_places
from trace_reader.report.repro_script import Recorded, RecordedCall, repro_script
from trace_reader.system.files import write_file
from trace_reader.units import count

REPRO = """\
A small program that calls an op, a round of a loop, or the ops of a finding, with the shapes, types and strides of a trace
and random values, and says what it takes here beside what was recorded. For a bug report (nothing of the program is in it but
shapes), and to learn. It needs a recording with shapes, and torch to run.

    read-trace repro A.json aten::mm -o repro.py
    read-trace repro A.json unfused-pointwise -o repro.py

Of an op, the shapes that take most. Ops of one call inside another (aten::linear calls aten::addmm) are called by the outer one.
"""
MOST_CALLS = 60  # of a program


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = REPRO
    parser.add_argument("trace", metavar="TRACE")
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
    what, groups = _asked(trace, path, place)
    rows = groups[0]
    if len(rows) > MOST_CALLS:
        raise TraceError(f"{place}: {len(rows)} ops, more than the {MOST_CALLS} of a small program; name one of them")
    calls = tuple(_calls(trace, path, rows))
    times = [_time_us(trace, group) for group in groups]
    on_gpu = len(trace.launched_in(rows)) > 0
    try:
        return repro_script(Recorded(what, calls, float(np.median(times)), len(groups), priced_device(trace), on_gpu))
    except ValueError as error:
        raise TraceError(f"{place}: {error}") from error


def _asked(trace: Trace, path: str, place: str) -> tuple[str, list[Rows]]:
    """Return what is meant, in words, and its ops each time that it was recorded: equal groups."""
    ops = trace.ops.where(trace.step_at(trace.ops.start_ns) >= 0) if len(trace.steps) else trace.ops
    if len(named := ops.where(ops.is_named(place.__eq__))):
        groups = [rows for _, rows in named.by(named.detail)]
        most = max(groups, key=lambda rows: _time_us(trace, rows))
        others = f" (of {count(len(groups), 'kind')} of inputs, those that take most)" if len(groups) > 1 else ""
        return f"{place}{others}", [Rows(trace.slices, most.at[[n]]) for n in range(len(most))]
    reading = with_places(judged(trace, everything=True))
    if found := place_called(reading, place):
        if found.place.kind == LOOP:
            length, at = len(found.place.ops), found.spans.at
            rounds = [at[n : n + length] for n in range(0, len(at), length)]
            return f"a round of the loop {found.place.name}", _equal(rounds, trace)
        # Its name may be somebody's own.
        return "the ops of a place, in one step", _equal(list(_by_step(trace, _outermost_ops(trace, found.spans))), trace)
    finding = place.replace("_", "-")
    if finding in reading.seen:
        return f"the ops of {finding}, in one step", _equal(list(_by_step(trace, _ops_of(trace, reading, finding))), trace)
    raise TraceError(f"{path}: no op, place or finding is called {place!r}; `read-trace places {path}` lists some")


def _ops_of(trace: Trace, reading: Reading, finding: str) -> Rows:
    """Return the ops that a finding is about, or that launched what it is about."""
    evidence = reading.seen[finding].evidence
    rows = evidence.at if evidence is not None else np.zeros(0, np.int64)
    launchers = trace.work.op[np.isin(trace.work.at, rows)]
    ops = np.concatenate([rows[trace.slices.kind[rows] == Kind.OP], launchers[launchers >= 0]])
    return Rows(trace.slices, np.unique(ops))


def _outermost_ops(trace: Trace, spans: Rows) -> Rows:
    """Return the outermost ops of spans: of an annotation or a module those in it."""
    outer = trace.outer_ops
    starts = np.searchsorted(spans.start_ns, outer.start_ns, side="right") - 1
    around = spans.where(np.maximum(starts, 0))
    found = outer.where((starts >= 0) & (outer.end_ns <= around.end_ns) & (outer.track == around.track))
    return found if len(found) else spans.where(spans.kind == Kind.OP)


def _by_step(trace: Trace, ops: Rows) -> Iterator[np.ndarray]:
    for _, rows in ops.by(trace.step_at(ops.start_ns)):
        yield rows.at


def _equal(groups: Sequence[np.ndarray], trace: Trace) -> list[Rows]:
    """Return those of these groups of ops that do what most of them do, with the same inputs."""
    kinds = [
        tuple(zip(trace.slices.name[at].tolist(), trace.slices.detail[at].tolist(), strict=True)) for at in groups if len(at)
    ]
    if not kinds:
        raise TraceError("none of its ops is in the steps")
    usual = max(dict.fromkeys(kinds), key=kinds.count)
    return [Rows(trace.slices, at) for at, kind in zip((at for at in groups if len(at)), kinds, strict=True) if kind == usual]


def _time_us(trace: Trace, ops: Rows) -> float:
    launched = trace.launched_in(ops)
    return launched.total_us if len(launched) else ops.total_us


class _Event(msgspec.Struct):
    name: Any = None
    args: Any = None


class _Events(msgspec.Struct):
    traceEvents: list[_Event]  # as torch writes it


def _calls(trace: Trace, path: str, ops: Rows) -> Iterator[RecordedCall]:
    """Read the inputs of ops once more from the file: the reader keeps of them only what it tells."""
    try:
        events = msgspec.json.decode(read_bytes(path).data, type=_Events).traceEvents
    except msgspec.MsgspecError as error:
        raise TraceError(f"{path}: its inputs are read from a whole Chrome trace alone ({error})") from error
    shapes = ("Input Dims", "Input type", "Input Strides")
    found: dict[Any, list[Any]] = {}
    for event in events:
        if isinstance(event.args, dict) and isinstance(event.args.get("Input Dims"), list):
            said = [event.args.get(key, []) for key in shapes]
            found.setdefault((event.name, *map(as_tuples, said)), [*said, event.args.get("Concrete Inputs", [])])
    for op in ops:
        if not op.name.startswith("aten::"):
            raise TraceError(f"{op.name} is no op of torch's own (aten::), and not called by its name alone")
        inputs = op.detail
        key = (op.name, inputs.dims, inputs.types, inputs.strides) if isinstance(inputs, Inputs) else None
        if key not in found:
            raise TraceError(f"{path} does not have the inputs of {op.name}: record with record_shapes=True")
        yield RecordedCall(op.name, *found[key])
