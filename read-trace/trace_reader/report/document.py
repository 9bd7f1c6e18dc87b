"""A report before it is written: titles, lines and tables. A writer (text, markdown) gives it its form."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
LONGEST_LINE = 2000  # characters
LONGEST_NAME = 4000  # of a kernel, with --full
LONGEST_CELL = 100
ROWS = 15  # of a table


class Style(msgspec.Struct, frozen=True):
    """How much is told: rows of each table, labels or full kernel names, everything or what comes first."""

    top: int | None = None
    full: bool = False
    everything: bool = False

    @property
    def brief(self) -> bool:
        """Whether the report keeps to a screen or two."""
        return self.top is None and not self.full and not self.everything


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
    """A finding: its name, what was seen, what it means, what to do next."""

    name: str
    seen: str
    means: str
    next: str


class Table(msgspec.Struct, frozen=True):
    """`items` are what the rows are of. `more` rows were left out, and `how` they are shown; without rows, `empty` is said. A
    cell longer than `longest` loses its middle. In a brief report it can come down to `least` rows.
    """

    head: list[str]
    rows: list[list[str]]
    items: Sequence[Any]
    more: int
    how: str
    empty: str
    longest: int
    least: int


Part = Title | Section | Lines | Block | Item | Table


def middle(name: str, width: int) -> str:
    """A name, no longer than `width`: of a longer one the beginning and the end."""
    if len(name) <= width:
        return name
    end = (width - 3) // 2
    return f"{name[: width - 3 - end]}...{name[len(name) - end :]}"


class Document:
    """The parts of a report, in order."""

    def __init__(self, style: Style):
        self.style = style
        self.parts: list[Part] = []

    def title(self, *lines: str) -> None:
        self.parts.append(Title(list(lines)))

    def section(self, text: str) -> None:
        self.parts.append(Section(text))

    def lines(self, lines: Iterable[str], indented: bool = False) -> None:
        self.parts.append(Lines(list(lines), indented))

    def block(self, lines: Iterable[str]) -> None:
        self.parts.append(Block(list(lines)))

    def item(self, name: str, seen: str, means: str, next: str) -> None:
        self.parts.append(Item(name, seen, means, next))

    def table(
        self,
        head: list[str],
        items: Sequence[T],
        row: Callable[[T], list[str]],
        empty: str = "none",
        every: bool = False,
        brief: int = ROWS,
        least: int = 3,
    ) -> None:
        """A row of cells for each item; of more than the style shows (in a brief report `brief`, at least `least`), the first,
        unless `every` is asked for.
        """
        most = self.style.top or (brief if self.style.brief else ROWS)
        shown = items if every else items[:most]
        longest = LONGEST_NAME if self.style.full else LONGEST_CELL
        rows = [row(item) for item in shown]
        how = "--all" if self.style.brief else f"--top {len(items)}"
        self.parts.append(Table(head, rows, shown, len(items) - len(shown), how, empty, longest, len(rows) if every else least))
