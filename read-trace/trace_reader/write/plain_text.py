"""A document as plain text, for a terminal: no wider than it, and of a brief report no longer than a screen or two."""

from collections.abc import Iterator
import io
import os
import shutil
import sys
import textwrap

import msgspec
from trace_reader.report.document import LONGEST_LINE, Block, Document, Item, Lines, Part, Section, TablePart, Title, middle
from trace_reader.system.terminal import printable

MOST_LINES = 50  # of a brief report
NARROWEST = 40  # columns that are counted on
SHORTEST_NAME = 18  # that a column of names is narrowed to
TITLE, HEAD, NAME = "bold", "dim", "bold yellow"


class _Line(msgspec.Struct, frozen=True):
    """A line, and how its first characters are coloured where there are colours."""

    text: str
    style: str = ""
    styled: int = 0


def write(document: Document) -> str:
    """Return the document for the terminal that stdout is; 80 columns where there is none. COLUMNS says otherwise."""
    width = max(shutil.get_terminal_size((80, 24)).columns, NARROWEST)
    amounts = [_whole(part) for part in document.parts]
    lines = _lines(document, width, amounts)
    if document.style.is_short:
        for index in _to_shorten(document):
            if len(lines) <= MOST_LINES:
                break
            amounts[index] -= 1
            lines = _lines(document, width, amounts)
    return _coloured(lines) if _has_colours() else "\n".join(line.text for line in lines) + "\n"


def _whole(part: Part) -> int:
    """Return how much of a part there is to show: a table's rows, a finding's explanations."""
    match part:
        case TablePart():
            return len(part.rows)
        case Item():
            return 2
    return 1


def _to_shorten(document: Document) -> Iterator[int]:
    """Yield the places of parts, in the order in which a brief report takes something away: what the findings mean, the last's
    first and the first's not yet; rows of the tables, those of the longest first; what to do next; at last rows of the tables
    down to one, from the last table on.
    """
    items = [index for index, part in enumerate(document.parts) if isinstance(part, Item)]
    yield from reversed(items[1:])
    spare = {index: len(part.rows) - part.least for index, part in enumerate(document.parts) if isinstance(part, TablePart)}
    while any(rows > 0 for rows in spare.values()):
        index = max(spare, key=lambda index: (spare[index], index))
        spare[index] -= 1
        yield index
    yield from reversed(items)
    yield from items[:1]
    for index, part in reversed(list(enumerate(document.parts))):
        if isinstance(part, TablePart):
            yield from [index] * (min(part.least, len(part.rows)) - 1)


def _lines(document: Document, width: int, amounts: list[int]) -> list[_Line]:
    out: list[_Line] = []
    for index, part in enumerate(document.parts):
        match part:
            case Title(lines):
                out += [
                    _Line(line, TITLE, len(line)) for line in (middle(printable(text, LONGEST_LINE), width) for text in lines)
                ]
            case Block(lines, is_whole):
                out += [_Line(_cut(printable(line, LONGEST_LINE), LONGEST_LINE if is_whole else width)) for line in lines]
            case Lines(lines, indented):
                out += [_Line(line) for text in lines for line in _wrapped(text, width, "  " * indented, "  ")]
            case Section(text, _):
                out += [_Line(""), *(_Line(line, TITLE, len(line)) for line in _wrapped(text, width))]
            case Item(name, seen, means, next, _, _):
                first, *more = _wrapped(f"{name}: {seen}", width, "  ", "    ")
                out += [_Line(first, NAME, len(name) + 2), *map(_Line, more)]
                if words := ("", f"Next: {next}", f"{means} Next: {next}")[amounts[index]]:
                    out += [_Line(line) for line in _wrapped(words, width, "    ", "    ")]
            case TablePart():
                wide = max(width, LONGEST_LINE) if document.style.full else width
                out += _table(part, wide, amounts[index])
    while out and not out[-1].text:
        out.pop()
    return out


def _wrapped(text: str, width: int, first: str = "", more: str = "") -> list[str]:
    text = printable(text, LONGEST_LINE)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=more, break_on_hyphens=False) or [""]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."


def _table(table: TablePart, width: int, most: int) -> list[_Line]:
    if not table.rows:
        return [_Line(f"  {table.table.empty}")]
    most += len(table.rows) - most == 1 and not table.more  # that one was left out would take a line, too
    rows = [[printable(cell, table.longest) for cell in row] for row in table.rows[:most]]
    columns = [[head, *cells] for head, *cells in zip(table.head, *rows, strict=True)]
    numeric = [index > 0 and any(cell.lstrip("+-")[:1].isdigit() for cell in column[1:]) for index, column in enumerate(columns)]
    widths = _narrowed([max(map(len, column)) for column in columns], numeric, [len(head) for head in table.head], width)
    for index, column in enumerate(columns):
        column[:] = shortened(column, widths[index])
    out = []
    for group in _groups(widths, width):
        for number, row in enumerate(zip(*(columns[index] for index in group), strict=True)):
            aligned = (
                cell.rjust(widths[index]) if numeric[index] else cell.ljust(widths[index])
                for index, cell in zip(group, row, strict=True)
            )
            line = "  " + "  ".join(aligned).rstrip()
            out.append(_Line(line, "" if number else HEAD, 0 if number else len(line)))
    if more := table.more + len(table.rows) - len(rows):
        out.append(_Line(f"  and {more} more ({table.how})"))
    return out


def _narrowed(widths: list[int], numeric: list[bool], heads: list[int], width: int) -> list[int]:
    """Return the widths with the columns of names made narrower, the widest first, until the table fits. Where it cannot, it will
    be several tables: then only what leaves no room for another column is made narrower.
    """
    narrow, room = list(widths), width - 2 - 2 * (len(widths) - 1)
    least = [max(head, SHORTEST_NAME) for head in heads]
    while sum(narrow) > room:
        wide = [index for index in range(len(widths)) if not numeric[index] and narrow[index] > least[index]]
        if not wide:
            first = min(widths[0], max(width // 2, heads[0]))
            return [first, *(min(one, width - 4 - first) for one in widths[1:])]
        narrow[max(wide, key=lambda index: narrow[index])] -= 1
    return narrow


def _groups(widths: list[int], width: int) -> list[list[int]]:
    """Return the columns in as many tables as it takes to be no wider; each begins with the first column."""
    groups, used = [[0]], 2 + widths[0]
    for index in range(1, len(widths)):
        if used + 2 + widths[index] > width and len(groups[-1]) > 1:
            groups.append([0])
            used = 2 + widths[0]
        groups[-1].append(index)
        used += 2 + widths[index]
    return groups


def shortened(names: list[str], width: int) -> list[str]:
    """Return the names, no longer than `width`, by their middles; different ones stay different."""
    short = {name: middle(name, width) for name in names}
    used: dict[str, str] = {}
    for name in dict.fromkeys(names):
        text, number = short[name], 2
        while used.setdefault(text, name) != name:
            mark = f"#{number}"
            text, number = middle(name, width - len(mark)) + mark, number + 1
        short[name] = text
    return [short[name] for name in names]


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _coloured(lines: list[_Line]) -> str:
    from rich.console import Console  # takes a third of the time that a small trace is read in
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=LONGEST_LINE, highlight=False)
    for line in lines:
        text = Text(line.text)
        if line.styled:
            text.stylize(line.style, 0, line.styled)
        console.print(text, soft_wrap=True)
    return out.getvalue()
