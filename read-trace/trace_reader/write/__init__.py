"""What is told, and in which form. `OUTPUTS` are the forms: to add one, write its file and add a line."""

from collections.abc import Callable
from typing import Any

import msgspec
from trace_reader.report.document import Document
from trace_reader.write import json_output, markdown, plain_text


class Answer(msgspec.Struct, frozen=True):
    """What a command found: a document for people, and the same as JSON values; each is made when it is asked for."""

    document: Callable[[], Document]
    data: Callable[[], dict[str, Any]]


class Output(msgspec.Struct, frozen=True):
    """A form of an answer: its flag's help, and how it is written."""

    help: str
    write: Callable[[Answer], str]


OUTPUTS = {  # by flag; without one, text
    "json": Output("for programs: stable field names, null for unknown", lambda answer: json_output.write(answer.data())),
    "md": Output("Markdown, for notes", lambda answer: markdown.write(answer.document())),
}
TEXT = Output("", lambda answer: plain_text.write(answer.document()))
