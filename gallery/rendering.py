"""Markdown of the documents as HTML of the course, and links between its pages."""

import base64
from html import escape
import io
import itertools
import keyword
from pathlib import Path
import re
import tokenize

from gallery.figures import ROOT
from markdown_it import MarkdownIt

GALLERY = ROOT / "gallery"
_KINDS = {tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.NUMBER: "n"} | {
    getattr(tokenize, name): "s" for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END") if hasattr(tokenize, name)
}
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def trace_file(path: Path) -> str:
    """Return the page of a recording."""
    name = str(path.relative_to(GALLERY)).removesuffix(".gz").removesuffix(".json")
    return f"trace_{name.removeprefix('h200/').replace('/', '_')}.html"


def inline(text: str) -> str:
    return MARKDOWN.renderInline(text)


def rendered(text: str) -> str:
    """Markdown as HTML, pictures in it. Links to recordings lead to their pages; others, whose files are not here, are text."""
    html = re.sub(r'<a href="([^"]*)">(.*?)</a>', _linked, MARKDOWN.render(text), flags=re.DOTALL)
    html = re.sub(r"<h2>([^<]+)</h2>", _anchored, html)
    html = re.sub(r"<table>.*?</table>", _headed, html, flags=re.DOTALL)
    return re.sub(r'<img src="([^"]*)"', _pictured, html)


def coloured(program: str) -> str:
    """Return a program of Python as HTML, with its words, texts, comments and numbers marked (.k, .s, .c, .n)."""
    lines = program.splitlines(keepends=True)
    begins = [0, *itertools.accumulate(map(len, lines))]
    out, at = [], 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(program).readline):
            kind = "k" if token.type == tokenize.NAME and keyword.iskeyword(token.string) else _KINDS.get(token.type, "")
            if kind:
                begin, end = (begins[line - 1] + column for line, column in (token.start, token.end))
                out += [escape(program[at:begin]), f'<span class="{kind}">{escape(program[begin:end])}</span>']
                at = end
    except (tokenize.TokenError, SyntaxError):
        return escape(program)
    return "".join([*out, escape(program[at:])])


def _anchored(found: re.Match[str]) -> str:
    """Return a heading under the name that links to it use, as on GitHub."""
    return f'<h2 id="{re.sub(r"[^a-z0-9 -]", "", found[1].lower()).replace(" ", "-")}">{found[1]}</h2>'


def _headed(found: re.Match[str]) -> str:
    """Return a table whose cells say what they are of: a phone shows them below each other."""
    heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", found[0], re.DOTALL)
    names = itertools.cycle(escape(re.sub(r"<[^>]*>", "", head)) for head in heads)
    return re.sub(r"<td", lambda _: f'<td data-head="{next(names)}"', found[0]) if heads else found[0]


def _linked(found: re.Match[str]) -> str:
    name, _, anchor = found[1].partition("#")
    path = (ROOT / "docs" / name).resolve()
    if found[1].startswith("https://") or name.endswith(".html"):  # a page of the site
        return found[0]
    if path.name == "lessons.md" and (number := re.match(r"\d+", anchor)):
        return f'<a href="exercise_{int(number[0]):02}.html">{found[2]}</a>'
    if path.stem in ("figures", "cheatsheet", "patterns", "glossary") and path.suffix == ".md":
        return f'<a href="{path.stem}.html{f"#{anchor}" * bool(anchor)}">{found[2]}</a>'
    return f'<a href="{trace_file(path)}">{found[2]}</a>' if path.name.endswith((".json", ".json.gz")) else found[2]


def _pictured(found: re.Match[str]) -> str:
    picture = base64.b64encode((ROOT / "docs" / found[1]).resolve().read_bytes()).decode()
    return f'<img src="data:image/png;base64,{picture}"'
