"""One finding, and the slices that prove it."""

from collections.abc import Sequence

import msgspec
from trace_reader.analysis.replay.place import LOOP, Place
from trace_reader.analysis.trace.facts import Finding
from trace_reader.report.document import Column, Document, Style, Table, middle
from trace_reader.report.trace_report import finding_item
from trace_reader.report.trace_tables import saved
from trace_reader.units import about, count, us


class Proof(msgspec.Struct, frozen=True):
    """A slice that shows a finding. `start_us` from the file's first slice; `ops`: those that launched or hold it, from the
    outside in; `line`: of Python, file(line): function, where stacks were recorded; `correlation`: of the launch and its work.
    """

    name: str
    kind: str
    start_us: float
    duration_us: float
    step: str | None
    ops: tuple[str, ...]
    line: str | None
    correlation: int | None


def finding_report(finding: Finding, proofs: Sequence[Proof], style: Style) -> Document:
    """Return what the finding says, and its slices, the longest first."""
    out = Document(style)
    out.item(finding_item(finding))
    _slices(out, proofs)
    return out


def place_title(place: Place) -> str:
    """Return what a place is, and what a step saves without it."""
    rounds = f"{place.rounds} rounds of " if place.kind == LOOP else ""
    more = [f"at the floor {saved(place.floor)}" if place.floor else "", f"once {saved(place.once)}" if place.once else ""]
    mfu = f"; MFU {about(place.mfu)}" if place.mfu is not None else ""
    return (
        f"{place.kind}: {rounds}{place.name} (without it a step saves {', '.join([saved(place.gone), *filter(None, more)])}{mfu})"
    )


def proofs_report(title: str, proofs: Sequence[Proof], style: Style) -> Document:
    """Return the slices of a place, the longest first."""
    out = Document(style)
    out.lines([title])
    _slices(out, proofs)
    return out


def _slices(out: Document, proofs: Sequence[Proof]) -> None:
    if not proofs:
        out.lines(["", "No slice shows it: it is what the trace lacks."])
        return
    total_us = sum(proof.duration_us for proof in proofs)
    kind = "gap" if proofs[0].kind == "gap" else "slice"
    out.lines(["", f"{count(len(proofs), kind)}, {us(total_us)} together:"])
    out.rows(PROOFS, proofs)


def _head(proofs: Sequence[Proof]) -> str:
    return "gap" if proofs and proofs[0].kind == "gap" else "slice"


PROOFS = Table(
    key="slices",
    title="Slices",
    rows=lambda proofs: proofs,
    columns=(
        Column(_head, lambda row, proofs: middle(row.name, 60)),
        Column("at", lambda row, proofs: us(row.start_us)),
        Column("takes", lambda row, proofs: us(row.duration_us)),
        Column("step", lambda row, proofs: (row.step or "-").removeprefix("ProfilerStep")),
        Column(
            "of", lambda row, proofs: row.ops[-1] if row.ops else "-", shown=lambda proofs: any(proof.ops for proof in proofs)
        ),
        Column("line", lambda row, proofs: row.line or "-", shown=lambda proofs: any(proof.line for proof in proofs)),
    ),
)
