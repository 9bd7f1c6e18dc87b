"""A report before it is written: titles, lines and tables. A writer (text, markdown) gives it its form."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")
LONGEST_LINE = 2000  # characters
LONGEST_NAME = 4000  # of a kernel, with --full
LONGEST_CELL = 100


class Style(msgspec.Struct, frozen=True):
    """How much is told: rows of a table, labels or full kernel names, all findings."""

    top: int = 15
    full: bool = False
    everything: bool = False


class Title(msgspec.Struct, frozen=True):
    lines: list[str]


class Section(msgspec.Struct, frozen=True):
    text: str


class Lines(msgspec.Struct, frozen=True):
    lines: list[str]
    indented: bool


class Block(msgspec.Struct, frozen=True):
    """Lines whose indentation matters."""

    lines: list[str]


class Item(msgspec.Struct, frozen=True):
    """A finding: its name, what was seen, what it means."""

    name: str
    seen: str
    explanation: str


class Table(msgspec.Struct, frozen=True):
    """`more` rows were left out; without rows, `empty` is said. A cell longer than `longest` loses its middle."""

    head: list[str]
    rows: list[list[str]]
    more: int
    empty: str
    longest: int


class Document:
    """The parts of a report, in order."""

    def __init__(self, style: Style):
        self.style = style
        self.parts: list[Title | Section | Lines | Block | Item | Table] = []

    def title(self, *lines: str) -> None:
        self.parts.append(Title(list(lines)))

    def section(self, text: str) -> None:
        self.parts.append(Section(text))

    def lines(self, lines: Iterable[str], indented: bool = False) -> None:
        self.parts.append(Lines(list(lines), indented))

    def block(self, lines: Iterable[str]) -> None:
        self.parts.append(Block(list(lines)))

    def item(self, name: str, seen: str, explanation: str) -> None:
        self.parts.append(Item(name, seen, explanation))

    def table(
        self, head: list[str], items: Sequence[T], row: Callable[[T], list[str]], empty: str = "none", every: bool = False
    ) -> None:
        """A row of cells for each item; of more than the style shows, the first, unless `every` is asked for."""
        shown = items if every else items[: self.style.top]
        longest = LONGEST_NAME if self.style.full else LONGEST_CELL
        self.parts.append(Table(head, [row(item) for item in shown], len(items) - len(shown), empty, longest))
