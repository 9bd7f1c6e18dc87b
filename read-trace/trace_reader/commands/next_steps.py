"""What to do next about a trace, for programs: each change with its place, its line and what it saves."""

from pathlib import Path
import re
from typing import Any

from trace_reader.analysis.trace.own_code import file_and_line
from trace_reader.commands.attempt_folder import FOLDER
from trace_reader.commands.show_finding import Shown, read_for_show
from trace_reader.report.brief_report import MOST_CHANGES, changes


def next_steps(path: str, steps_from: re.Pattern[str] | None = None, stacks: str | None = None) -> list[dict[str, Any]]:
    """Return up to MOST_CHANGES changes: `place` (the id of the finding), `file` and `line` (null where it is not known),
    `change`, `low` and `high` (of a step without the profiler; null: not known), `how_to_check`. Raises TraceError, LookupError.
    """
    shown = read_for_show(path, steps_from, stacks)
    return [_step(path, shown, finding) for finding in changes(shown.reading.facts)[:MOST_CHANGES]]


def _step(path: str, shown: Shown, finding: Any) -> dict[str, Any]:
    lines = [of for proof in shown.proofs(finding.slug) if proof.line and (of := file_and_line(proof.line))]
    gain = finding.gain
    return {
        "place": finding.slug,
        "seen": finding.seen,
        "file": lines[0][0] if lines else None,
        "line": lines[0][1] if lines else None,
        "change": finding.next,
        "low": gain.low if gain else None,
        "high": gain.high if gain else None,
        "how_to_check": f"read-trace show {path} {finding.slug}; after the change, record again: "
        f"read-trace compare {path} NEW.json" + (", or read-trace try" if FOLDER.name in Path(path).parts else ""),
    }
