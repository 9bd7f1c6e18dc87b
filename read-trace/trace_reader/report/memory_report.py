"""A snapshot of CUDA's memory as a report: the peak, and what held it, by line; two beside each other."""

from collections.abc import Sequence
from typing import Any

from trace_reader.analysis.snapshot_facts import HeldChange, HeldFacts, SnapshotFacts, compare_held
from trace_reader.report.document import Column, Document, Style, Table, middle
from trace_reader.units import count, human_bytes, percent

LONGEST_LINE = 60
BEFORE = "before the first event, freed later"


class HeldView:
    """The rows of a table, and of how many bytes their shares are."""

    def __init__(self, rows: Sequence[Any], total_bytes: int):
        self.rows, self.total_bytes = rows, total_bytes


def memory_report(path: str, devices: Sequence[SnapshotFacts], lost: int, style: Style, command: str) -> Document:
    """Return the report on one snapshot. `command`: how the program is called."""
    out = Document(style)
    out.title(path)
    out.lines(_of_file(devices, lost))
    for device in devices:
        out.section(device.device, "memory")
        out.lines(_device(device), indented=True)
        _at_peak(out, device)
        out.table(AT_END, HeldView(device.at_end, device.allocated_bytes))
    if devices:
        out.lines(["", f"next: {command} memory {path} LATER.pickle tells what grew since"])
    return out


def add_snapshot(out: Document, path: str, devices: Sequence[SnapshotFacts], steps: Sequence[str | None], lost: int) -> None:
    """What a snapshot says of the time of a trace, behind the trace's report. `steps`: for each device the step of its peak."""
    out.section(f"Memory, by {path}", "snapshot")
    out.lines(_of_file(devices, lost))
    for device, step in zip(devices, steps, strict=True):
        if device.peak_bytes is not None:
            when = " in the trace's time" + (f", in {step}" if step else "")
            out.lines([f"{device.device}: {_peak(device, when)}"], indented=True)
            _at_peak(out, device)


def _at_peak(out: Document, snapshot: SnapshotFacts) -> None:
    if snapshot.peak_bytes is not None:
        before = [HeldFacts(BEFORE, "", 0, snapshot.before_bytes)] if snapshot.before_bytes else []
        out.table(AT_PEAK, HeldView(sorted([*before, *snapshot.at_peak], key=lambda row: -row.bytes), snapshot.peak_bytes))


def snapshots_report(paths: Sequence[str], facts: Sequence[Sequence[SnapshotFacts]], lost: int, style: Style) -> Document:
    """Return the report on two snapshots: what is in use at the end of each, by line."""
    before, after = facts
    out = Document(style)
    out.title(*(f"{name}: {path}" for name, path in zip("AB", paths, strict=True)))
    out.lines(_of_file([*before, *after], lost))
    both = {one.device: one for one in after}
    for one in before:
        other = both.pop(one.device, None)
        out.section(one.device, "memory")
        if other is None:
            out.lines(["in A only"], indented=True)
            continue
        change = other.allocated_bytes - one.allocated_bytes
        words = f"in use at the end: {human_bytes(one.allocated_bytes)}, then {human_bytes(other.allocated_bytes)}"
        out.lines([f"{words} ({signed(change)})", *_peaks(one, other)], indented=True)
        out.table(GROWN, HeldView([row for row in compare_held(one, other) if row.grown_bytes], one.allocated_bytes))
    for name in both:
        out.section(name, "memory")
        out.lines(["in B only"], indented=True)
    return out


def _of_file(devices: Sequence[SnapshotFacts], lost: int) -> list[str]:
    lines = [] if devices else ["no memory of a GPU is in it: was CUDA used before it was dumped?"]
    if lost:
        lines.append(f"{count(lost, 'entry', 'entries')} could not be read, and are not counted")
    return lines


def _device(snapshot: SnapshotFacts) -> list[str]:
    reserved = (
        f"{human_bytes(snapshot.reserved_bytes)} reserved, the largest free piece: {human_bytes(snapshot.largest_free_bytes)}"
    )
    lines = [f"in use at the end: {human_bytes(snapshot.allocated_bytes)} of {reserved}"]
    if snapshot.peak_bytes is None:
        lines.append("no history was recorded: call torch.cuda.memory._record_memory_history() before, for the peak")
    else:
        lines.append(_peak(snapshot, " of the recorded history"))
    return [*lines, *_ooms(snapshot)]


def _ooms(snapshot: SnapshotFacts) -> list[str]:
    lines = []
    for oom in snapshot.ooms:
        free = "" if oom.free_bytes is None else f"; the device had {human_bytes(oom.free_bytes)} free"
        lines.append(f"out of memory: {human_bytes(oom.bytes)} asked for by {oom.line}{free}")
    return lines


def _peaks(a: SnapshotFacts, b: SnapshotFacts) -> list[str]:
    """Return what two snapshots say of a device beside what is in use."""
    lines = [f"{name}: {line}" for name, one in (("A", a), ("B", b)) for line in _ooms(one)]
    if a.peak_bytes is None or b.peak_bytes is None:
        return lines
    return [f"peak of the recorded history: {human_bytes(a.peak_bytes)}, then {human_bytes(b.peak_bytes)}", *lines]


def _peak(snapshot: SnapshotFacts, where: str) -> str:
    before = f", {human_bytes(snapshot.before_bytes)} of it allocated {BEFORE}" if snapshot.before_bytes else ""
    return f"peak{where}: {human_bytes(snapshot.peak_bytes or 0)}{before} ({count(snapshot.events, 'event')})"


def signed(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{human_bytes(abs(size))}"


def _share(row: HeldFacts, view: HeldView) -> str:
    return percent(row.bytes / view.total_bytes) if view.total_bytes else "-"


def _held_table(key: str, title: str) -> Table:
    return Table(
        key=key,
        title=title,
        rows=lambda view: view.rows,
        columns=(
            Column("line", lambda row, view: middle(row.line, LONGEST_LINE)),
            Column("category", lambda row, view: row.category),
            Column("blocks", lambda row, view: str(row.blocks) if row.blocks else ""),
            Column("bytes", lambda row, view: human_bytes(row.bytes)),
            Column("share", _share),
        ),
        short_rows=10,
    )


def _blocks(row: HeldChange) -> str:
    change = row.blocks[1] - row.blocks[0]
    return f"{change:+d}" if change else "0"


AT_PEAK = _held_table("at_peak", "In use at the peak, by the line that asked for it")
AT_END = _held_table("at_end", "In use at the end, by the line that asked for it")
GROWN = Table(
    key="grown",
    title="What grew and shrank, by the line that asked for it",
    rows=lambda view: view.rows,
    columns=(
        Column("line", lambda row, view: middle(row.line, LONGEST_LINE)),
        Column("category", lambda row, view: row.category),
        Column("A", lambda row, view: human_bytes(row.bytes[0])),
        Column("B", lambda row, view: human_bytes(row.bytes[1])),
        Column("bytes", lambda row, view: signed(row.grown_bytes)),
        Column("blocks", lambda row, view: _blocks(row)),
    ),
    short_rows=15,
    empty="nothing",
)
