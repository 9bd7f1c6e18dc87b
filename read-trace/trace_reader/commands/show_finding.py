"""`read-trace show TRACE FINDING`: one finding, with the slices that prove it."""

import argparse
from pathlib import Path
import re
from typing import Any, NamedTuple

import msgspec
import numpy as np
from trace_reader.analysis.replay.places import AskedPlace
from trace_reader.analysis.trace.own_code import is_own_function, lines_of, written_lines
from trace_reader.commands.flags import add_forms, add_stacks, add_steps_from, at_least_one, one_trace
from trace_reader.commands.load_with_progress import load_joined, load_with_progress
from trace_reader.errors import TraceError
from trace_reader.findings import PATTERNS, Reading
from trace_reader.link.nesting import parents
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import NO_CORRELATION, ON_CPU, Footprint, Kind
from trace_reader.names.kernel_names import decode_name
from trace_reader.reading import judged, with_places
from trace_reader.report.document import Style
from trace_reader.report.finding_report import Proof, finding_report, place_title, proofs_report
from trace_reader.report.trace_tables import place_names
from trace_reader.write import OUTPUTS, TEXT, Answer

SHOW = """\
One finding of a trace, by its id (--brief and the report name them), and the slices that prove it, the longest first: when, how
long, in which step, of which op, and of which line of Python if the trace has stacks. For a finding about gaps: the gaps.

    read-trace show A.json sync-in-step
"""
TOP = 15


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = SHOW
    parser.add_argument("trace", type=one_trace, metavar="TRACE")
    parser.add_argument("finding", metavar="FINDING", help="its id, such as sync-in-step; or a place, such as aten::sort")
    parser.add_argument("--top", type=at_least_one, default=TOP, metavar="N", help=f"how many slices (default: {TOP})")
    add_stacks(parser)
    add_steps_from(parser)
    add_forms(parser)


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError and LookupError."""
    form = OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT
    return form.write(_answer(args.trace, args.finding, args.top, args.steps_from, args.stacks)), 0


def finding_text(path: str, finding: str, top: int) -> str:
    """Return a finding and its slices, as text. Raises TraceError: the trace does not show it."""
    return TEXT.write(_answer(path, finding, top))


def _answer(path: str, finding: str, top: int, steps_from: re.Pattern[str] | None = None, stacks: str | None = None) -> Answer:
    wanted, finding = finding, finding.replace("_", "-")
    if path.replace("_", "-") in PATTERNS and not Path(path).exists():
        raise TraceError(f"{path} is a finding: the trace comes first, show TRACE {path}")
    shown = read_for_show(path, steps_from, stacks)
    findings = {found.slug: found for found in shown.reading.facts.findings}
    if finding not in findings and (place := place_called(shown.reading, wanted)):
        proofs = _proofs(shown.trace, place.spans)
        return Answer(
            lambda: proofs_report(place_title(place.place), proofs, Style(top=top)),
            lambda: {"place": msgspec.to_builtins(place.place), "slices": msgspec.to_builtins(proofs[:top])},
        )
    if finding not in findings:
        unknown = f"{path} does not show {finding}" if finding in PATTERNS else f"no finding is called {finding!r}"
        raise TraceError(f"{unknown}; this trace shows {', '.join(findings) or 'none'}")
    found, proofs = findings[finding], shown.proofs(finding)
    return Answer(lambda: finding_report(found, proofs, Style(top=top)), lambda: _values(found, proofs[:top]))


class Shown(NamedTuple):
    """A trace, with its functions of Python where these were recorded, and what was read of it."""

    trace: Trace
    reading: Reading

    def proofs(self, slug: str) -> list[Proof]:
        """Return the slices of a finding that the trace shows, the longest first; of one about gaps, these."""
        seen = self.reading.seen[slug]
        return _proofs(self.trace, seen.evidence) if seen.gaps is None else _gaps(self.trace, *seen.gaps)


def read_for_show(path: str, steps_from: re.Pattern[str] | None, stacks: str | None) -> Shown:
    """Return a trace with all its findings. Raises TraceError and LookupError."""
    joined = load_joined(path, stacks, steps_from)
    trace = joined.stacks if joined else load_with_progress(path, steps_from, stacks=True)
    return Shown(trace, with_places(judged(trace, everything=True), trace))


def place_called(reading: Reading, wanted: str) -> AskedPlace | None:
    """Return the place of this name, as it is or as a report has it, or the only one whose name holds it."""
    exact = [one for one in reading.places if wanted in (one.place.name, *place_names(one.place))]
    holding = [one for one in reading.places if wanted in one.place.name]
    return exact[0] if exact else holding[0] if len(holding) == 1 else None


def _proofs(trace: Trace, rows: Any) -> list[Proof]:
    """Return the slices of a finding, the longest first."""
    if rows is None or not len(rows):
        return []
    slices = trace.slices
    parent = parents(slices, (*ON_CPU, Kind.PYTHON)) if len(slices.of(Kind.PYTHON)) else trace.parent
    own_code = slices.are_named(Kind.PYTHON, is_own_function)
    launcher = np.full(len(slices), -1)
    launcher[trace.work.at] = np.where(trace.work.op >= 0, trace.work.op, trace.work.call)
    found = []
    for at in rows.at[np.argsort(-slices.duration_us[rows.at], kind="stable")].tolist():
        step = trace.step_at(slices.start_ns[[at]])[0] if launcher[at] < 0 else trace.step_at(slices.start_ns[[launcher[at]]])[0]
        around = _around(parent, launcher[at] if launcher[at] >= 0 else at)
        ops = [slices.names[slices.name[one]] for one in around if slices.kind[one] == Kind.OP]
        correlation = int(slices.correlation[at])
        found.append(
            Proof(
                name=_called(slices.names[slices.name[at]], Kind(slices.kind[at])),
                kind=Kind(slices.kind[at]).word,
                start_us=float(slices.start_ns[at]) / 1000,
                duration_us=float(slices.duration_us[at]),
                step=trace.steps.names[step] if step >= 0 else None,
                ops=tuple(dict.fromkeys(reversed(ops))),
                line=_written(slices.details[slices.detail[at]] if slices.detail[at] >= 0 else None)
                or next((slices.names[slices.name[one]] for one in around if own_code[one]), None),
                correlation=None if correlation == NO_CORRELATION else correlation,
            )
        )
    return found


def _gaps(trace: Trace, start_ns: np.ndarray, end_ns: np.ndarray) -> list[Proof]:
    """Return the gaps of a finding, the longest first, each with what stands before and after it."""
    slices = trace.slices
    spans = Rows(slices, slices.of(Kind.OP, Kind.CALL, Kind.ANNOTATION))
    begins, ends = (dict(zip(start_n.tolist(), spans.names, strict=True)) for start_n in (spans.start_ns, spans.end_ns))
    found = []
    for at in np.argsort(start_ns - end_ns, kind="stable").tolist():
        first, last = int(start_ns[at]), int(end_ns[at])
        step = int(trace.step_at(start_ns[[at]])[0])
        around = [f"after {ends[first]}" if first in ends else "", f"before {begins[last]}" if last in begins else ""]
        found.append(
            Proof(
                name=", ".join(filter(None, around)) or "in nothing else",
                kind="gap",
                start_us=first / 1000,
                duration_us=(last - first) / 1000,
                step=trace.steps.names[step] if step >= 0 else None,
                ops=(),
                line=None,
                correlation=None,
            )
        )
    return found


def _written(detail: Any) -> str:
    """Return the lines of the program whose ops a compiled kernel does, where Inductor wrote them; else empty."""
    return lines_of(written_lines(detail.stacks)) if isinstance(detail, Footprint) and detail.stacks else ""


def _called(name: str, kind: Kind) -> str:
    return decode_name(name).label if kind == Kind.KERNEL else name


def _around(parent: np.ndarray, at: int) -> list[int]:
    """Return the slice and those around it, from the inside out."""
    found = []
    while at >= 0:
        found.append(int(at))
        at = parent[at]
    return found


def _values(found: Any, proofs: list[Proof]) -> dict[str, Any]:
    gain = None if found.gain is None else {"low": found.gain.low, "high": found.gain.high}
    one = {
        "finding": found.slug,
        "seen": found.seen,
        "means": found.means,
        "next": found.next,
        "share": found.share,
        "gain": gain,
    }
    return {**one, "slices": msgspec.to_builtins(proofs)}
