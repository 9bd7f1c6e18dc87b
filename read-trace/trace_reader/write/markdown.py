"""A document as Markdown, for notes."""

from trace_reader.scene.document import LONGEST_LINE, Block, Document, Item, Lines, Section, TablePart, Title
from trace_reader.system.terminal import plain


def write(document: Document) -> str:
    out: list[str] = []
    for part in document.parts:
        match part:
            case Title(lines):
                out.append(f"# {', '.join(plain(line, LONGEST_LINE) for line in lines)}\n")
            case Section(text, _):
                out.append(f"\n## {plain(text)}\n")
            case Lines(lines):
                out += [f"- {plain(line, LONGEST_LINE)}" if line else line for line in lines]
            case Block(lines):
                out += ["```", *(plain(line, LONGEST_LINE) for line in lines), "```"]
            case Item(name, seen, means, next, _, _):
                out.append(f"- **{name}**: {plain(seen, LONGEST_LINE)}. {means} Next: {next}")
            case TablePart():
                out += _table(part)
    return "\n".join(out).strip() + "\n"


def _table(table: TablePart) -> list[str]:
    if not table.rows:
        return [f"- {table.table.empty}"]
    rows = [[plain(cell, table.longest) for cell in row] for row in table.rows]
    out = ["| " + " | ".join(table.head) + " |", "|" + "---|" * len(table.head)]
    out += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    if table.more:
        out.append(f"- and {table.more} more: {table.how}")
    return out
