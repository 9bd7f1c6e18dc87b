"""What a change of the program would bring, by the trace: --what_if."""

import re
from typing import TYPE_CHECKING

from trace_reader.analysis.facts import summarize
from trace_reader.commands.load_shown import load_shown
from trace_reader.scene.document import Style
from trace_reader.write import Answer, json_output

if TYPE_CHECKING:
    from trace_reader.analysis.what_if import Change


def run(path: str, changes: "list[Change]", style: Style, steps_from: re.Pattern[str] | None) -> Answer:
    """The step with these changes made, all together. Raises TraceError and LookupError."""
    from trace_reader.analysis.what_if import what_if
    from trace_reader.scene.what_if_report import what_if_report

    trace = load_shown(path, steps_from)
    facts = summarize(trace)
    changed = what_if(trace, facts.plain, changes)
    return Answer(lambda: what_if_report(facts, changed, style), lambda: json_output.values(changed))
