"""A document as plain text, for a terminal."""

from trace_reader.report.document import LONGEST_LINE, Block, Document, Item, Lines, Section, Table, Title
from trace_reader.system.terminal import plain


def write(document: Document) -> str:
    out: list[str] = []
    for part in document.parts:
        match part:
            case Title(lines) | Block(lines):
                out += [plain(line, LONGEST_LINE) for line in lines]
            case Lines(lines, indented):
                out += [f"{'  ' if indented else ''}{plain(line, LONGEST_LINE)}" for line in lines]
            case Section(text):
                out.append(f"\n{plain(text)}")
            case Item(name, seen, explanation):
                out += [f"  {name}: {plain(seen, LONGEST_LINE)}", f"      {explanation}"]
            case Table():
                out += _table(part)
    return "\n".join(out).strip() + "\n"


def _table(table: Table) -> list[str]:
    if not table.rows:
        return [f"  {table.empty}"]
    rows = [[plain(cell, table.longest) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    numeric = [any(row[i][:1].isdigit() for row in rows) and i > 0 for i in range(len(table.head))]
    out = []
    for row in (table.head, *rows):
        cells = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True))
        out.append("  " + "  ".join(cells).rstrip())
    if table.more:
        out.append(f"  and {table.more} more (--top {len(rows) + table.more})")
    return out
