"""A document as Markdown, for notes."""

import re

from trace_reader.report.document import LONGEST_LINE, Block, Document, Item, Lines, Section, TablePart, Title
from trace_reader.system.terminal import printable

# What Markdown, and HTML inside it, gives a meaning; an underscore has none inside a word, which most names need.
_MARKUP = re.compile(r"[\\`*<>&|\[\]]|(?<!\w)_|_(?!\w)")
_HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def write(document: Document) -> str:
    out: list[str] = []
    for part in document.parts:
        match part:
            case Title(lines):
                out.append(f"# {', '.join(map(_text, lines))}\n")
            case Section(text, _):
                out.append(f"\n## {_text(text)}\n")
            case Lines(lines):
                out += [f"- {_text(line)}" if line else line for line in lines]
            case Block(lines):
                out += ["```", *(printable(line, LONGEST_LINE) for line in lines), "```"]
            case Item(name, seen, means, next, _, _):
                out.append(f"- **{name}**: {_text(seen)}. {_text(means)} Next: {_text(next)}")
            case TablePart():  # behind a list it begins after an empty line, or it is a part of the last item
                out += [*([""] if out and out[-1].startswith("- ") else []), *_table(part)]
    return "\n".join(out).strip() + "\n"


def _table(table: TablePart) -> list[str]:
    if not table.rows:
        return [f"- {table.table.empty}"]
    out = ["| " + " | ".join(map(_text, table.head)) + " |", "|" + "---|" * len(table.head)]
    out += ["| " + " | ".join(_text(cell, table.longest) for cell in row) + " |" for row in table.rows]
    if table.more:
        out.append(f"- and {table.more} more: {table.how}")
    return out


def _text(text: str, longest: int = LONGEST_LINE) -> str:
    """As it is to be seen: no name is markup."""
    return _MARKUP.sub(lambda found: _HTML.get(found[0], f"\\{found[0]}"), printable(text, longest))
