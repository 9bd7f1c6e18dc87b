"""What is told, and in which form. `OUTPUTS` are the forms: to add one, write its file and add a line."""

from collections.abc import Callable
import importlib
from typing import Any

import msgspec
from trace_reader.report.document import Document
from trace_reader.write import plain_text


def in_json(function: str, *found: Any) -> Callable[[], dict[str, Any]]:
    """Return what a function of json_output.py makes of these, when it is asked for: a report as text does without that file."""
    return lambda: getattr(importlib.import_module("trace_reader.write.json_output"), function)(*found)


class Answer(msgspec.Struct, frozen=True):
    """What a command found: a document for people, and the same as JSON values; each is made when it is asked for."""

    document: Callable[[], Document]
    data: Callable[[], dict[str, Any]]


class Output(msgspec.Struct, frozen=True):
    """A form of an answer: its flag's help, and how it is written."""

    help: str
    write: Callable[[Answer], str]


def _as_json(answer: Answer) -> str:
    from trace_reader.write import json_output

    return json_output.write(answer.data())


def _as_markdown(answer: Answer) -> str:
    from trace_reader.write import markdown

    return markdown.write(answer.document())


OUTPUTS = {  # by flag; without one, text
    "json": Output("for programs: stable field names, null for unknown", _as_json),
    "md": Output("Markdown, for notes", _as_markdown),
}
TEXT = Output("", lambda answer: plain_text.write(answer.document()))
