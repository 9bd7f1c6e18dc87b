"""A report before it is written: titles, lines and tables. A writer (write/) gives it its form."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

LONGEST_LINE = 2000  # characters
LONGEST_KERNEL_NAME = 4000  # of a kernel, with --full
LONGEST_CELL = 100
LABEL_WIDTH = 40
ROWS = 15  # of a table


class Style(msgspec.Struct, frozen=True):
    """How much is told: rows of each table, labels or full kernel names, everything or what comes first."""

    top: int | None = None
    full: bool = False
    everything: bool = False

    @property
    def is_short(self) -> bool:
        """Whether the report keeps to a screen or two."""
        return self.top is None and not self.full and not self.everything


class Column(msgspec.Struct, frozen=True):
    """A column of a table: its heading, what stands in the cell of a row, and in which reports it stands.

    `cell` and `shown` are also given the view that the report is made from. `in_short`: whether a short report has it.
    """

    head: str | Callable[[Any], str]
    cell: Callable[[Any, Any], str]
    in_short: bool = True
    shown: Callable[[Any], bool] = lambda view: True


class Table(msgspec.Struct, frozen=True):
    """All that there is to say of a table, in one place. `key` names it on pages; `rows` are what it has a row for, given the
    view.

    `light(row, timelines, job)`: which slices a row is about, by the number of the trace (report/lights.py). `short_rows`: how
    many rows a short report shows, at least `least` where it has to be short (None: such a report leaves the table out);
    `rows_of_all`: how many --all does.
    `every`: all rows are always shown. `name`: what a short report calls it where it is left out.
    """

    key: str
    title: str | Callable[[Any], str]
    rows: Callable[[Any], Sequence[Any]]
    columns: tuple[Column, ...]
    light: Callable[[Any, Any, Any], dict[int, Any]] = lambda row, timelines, job: {}
    short_rows: int | None = None
    least: int = 3
    rows_of_all: int = ROWS
    every: Callable[[Any], bool] = lambda view: False
    empty: str = "none"
    shown: Callable[[Any], bool] = lambda view: True
    name: str = ""


class Title(msgspec.Struct, frozen=True):
    lines: list[str]


class Section(msgspec.Struct, frozen=True):
    """A heading; `key` names what stands under it: "verdict", "findings", a table's key."""

    text: str
    key: str


class Lines(msgspec.Struct, frozen=True):
    lines: list[str]
    indented: bool


class Block(msgspec.Struct, frozen=True):
    """Lines whose indentation matters. `is_whole`: they are commands, which are not cut."""

    lines: list[str]
    is_whole: bool = False


class Item(msgspec.Struct, frozen=True):
    """A finding: its name, what was seen, what it means, what to do next; its `slug`, and of which of the traces it is. `light`:
    what it lights up on a page (write/page_payload.py).
    """

    name: str
    seen: str
    means: str
    next: str
    slug: str
    number: int
    light: dict[str, Any] = {}
    title: str = ""  # of a page: what one notices


class Best(msgspec.Struct, frozen=True):
    """The change that a report names first: `what` it is, `of` what, its `worth` ("saves 4% to 15% of a step"), what to do."""

    what: str
    of: str
    worth: str
    advice: str

    @property
    def line(self) -> str:
        return f"{self.what} ({self.of}, {self.worth}): {self.advice}"


class TablePart(msgspec.Struct, frozen=True):
    """A table that is filled in: cells, and the `items` that its rows are of. `more` rows were left out, and `how` they are
    shown. A cell longer than `longest` loses its middle. In a short report it can come down to `least` rows. `lights`: what each
    row lights up on a page.
    """

    table: Table
    head: list[str]
    rows: list[list[str]]
    items: Sequence[Any]
    more: int
    how: str
    longest: int
    least: int
    lights: Sequence[dict[str, Any]] = ()


Part = Title | Section | Lines | Block | Item | TablePart


def middle(name: str, width: int) -> str:
    """Return a name, no longer than `width`: of a longer one the beginning and the end."""
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

    def section(self, text: str, key: str) -> None:
        self.parts.append(Section(text, key))

    def lines(self, lines: Iterable[str], indented: bool = False) -> None:
        self.parts.append(Lines(list(lines), indented))

    def block(self, lines: Iterable[str], is_whole: bool = False) -> None:
        self.parts.append(Block(list(lines), is_whole))

    def item(self, item: Item) -> None:
        self.parts.append(item)

    def table(self, table: Table, view: Any, above: str = "") -> None:
        """A table under its heading, with as many rows and columns as the style shows; `above` it a line. All of it, or, where
        something fails, nothing.
        """
        title = table.title if isinstance(table.title, str) else table.title(view)
        part = self._filled(table, view)
        self.section(title, table.key)
        if above:
            self.lines([above], indented=True)
        self.parts.append(part)

    def rows(self, table: Table, view: Any) -> None:
        """A table without a heading."""
        self.parts.append(self._filled(table, view))

    def _filled(self, table: Table, view: Any) -> TablePart:
        items = table.rows(view)
        every = table.every(view)
        most = self.style.top or (table.short_rows or ROWS if self.style.is_short else table.rows_of_all)
        kept = items if every else items[:most]
        columns = [c for c in table.columns if c.shown(view) and (c.in_short or not self.style.is_short)]
        head = [c.head if isinstance(c.head, str) else c.head(view) for c in columns]
        cells = [[c.cell(item, view) for c in columns] for item in kept]
        how = "--all" if self.style.is_short else f"--top {len(items)}"
        longest = LONGEST_KERNEL_NAME if self.style.full else LONGEST_CELL
        least = len(cells) if every else table.least
        return TablePart(table, head, cells, kept, len(items) - len(kept), how, longest, least)


def short(name: str, style: Style) -> str:
    """Return a name for a cell: all of it with --full, else its beginning."""
    return name if style.full or len(name) <= 2 * LABEL_WIDTH else f"{name[: 2 * LABEL_WIDTH - 3]}..."
