"""A report as one HTML page: the timeline to zoom and click, findings and tables beside it, nothing loaded from anywhere.

What a document says is written as HTML here, with every name escaped; the slices go along as columns (report/columns.py), for
the page's script to draw.
"""

import base64
from collections.abc import Sequence
import hashlib
from html import escape
from importlib.resources import files
import json
from typing import Any

import msgspec
from trace_reader.report.columns import NO_NAME, Lit, Panel
from trace_reader.report.document import Block, Document, Item, Lines, Part, Section, Table, Title
from trace_reader.system.terminal import plain

ASSETS = files("trace_reader.report") / "assets"
SCRIPTS = ("trace.js", "timeline.js", "page.js")
LONGEST_CELL, LONGEST_LINE = 300, 4000
KEYS = (
    ("W S", "zoom"), ("A D", "pan"), ("drag", "measure"), ("shift drag", "pan"), ("ctrl wheel", "zoom"), ("click", "select"),
    ("← →", "next slice"), ("↑ ↓", "outer, inner, next lane"), ("F", "fit what is selected"), ("L", "fit launch and kernel"),
    ("M", "measure what is selected"), ("0", "everything"), ("P", "critical path"), ("/", "search"), ("Esc", "clear"),
)  # fmt: skip


DETAILS = """<section id="details" aria-live="polite" aria-label="What is selected"><h2>Selected</h2>
<p>Nothing yet: click a slice.</p></section>"""


class Page(msgspec.Struct, frozen=True):
    """What a page shows: a document, the panels of its timeline, and what each finding and table row lights up there.

    `lit_findings` has for each finding of the document (in order) what it lights, `lit_rows` for each table with rows one for
    each row. `left_out` says what of the traces is not drawn; empty if all is.
    """

    document: Document
    panels: Sequence[Panel]
    lit_findings: Sequence[Lit]
    lit_rows: Sequence[Sequence[Lit]]
    lit_verdict: Lit
    left_out: str = ""
    navigation: str = ""  # HTML, above all


def write(page: Page) -> bytes:
    """The bytes of the page: the same report gives the same bytes."""
    parts = page.document.parts
    title = " and ".join(plain(line, LONGEST_LINE) for part in parts if isinstance(part, Title) for line in part.lines)
    lit = _Lights()
    body = [
        f'<header class="top">{page.navigation}<a class="skip" href="#tables">to the tables</a>',
        *_top(parts, lit.number(page.lit_verdict)),
        "</header>",
        '<main class="main">',
        timeline(page.left_out, any(panel.head.get("folded") for panel in page.panels)),
        '<div class="tables" id="tables">',
        *_tables(parts, page.lit_rows, lit),
        "</div></main>",
        '<aside class="side">',
        DETAILS,
        *_findings(parts, page.lit_findings, lit),
        "</aside>",
    ]
    return html(title, "\n".join(body), page.panels, {"lights": lit.found})


def html(
    title: str, body: str, panels: Sequence[Panel], data: dict[str, Any], more_script: str = "", more_style: str = ""
) -> bytes:
    """A page around its body: style, scripts and data inside it, and a policy that lets nothing else run or load."""
    style = _asset("page.css") + more_style
    script = "\n".join(map(_asset, SCRIPTS)) + more_script
    images = "img-src data:; " if "<img " in body else ""
    values = {**data, "panels": [panel.head for panel in panels]}
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; {images}base-uri 'none'; "
        "form-action 'none'"
    )
    if "</script" in script.lower() or "</style" in style.lower():
        raise ValueError("a script or a style that would end itself")
    blocks = "\n".join(f'<script type="text/plain" class="columns">{panel.columns}</script>' for panel in panels)
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{_json(values)}</script>
{blocks}
<script>{script}</script>
</body>
</html>
"""
    return text.encode("utf-8", "replace")


def timeline(left_out: str = "", job: bool = False) -> str:
    """The place where the script draws; of a `job`, whose ranks can be opened."""
    every = (("click a rank", "open its lanes"), ("Enter", "open the next rank"), *KEYS) if job else KEYS
    keys = " ".join(f"<span><kbd>{escape(key)}</kbd> {escape(what)}</span>" for key, what in every)
    note = f'<p class="left-out">{escape(left_out)}</p>' if left_out else ""
    return f"""<section class="timeline" aria-label="Timeline">
<div class="bar">
<label>Search <input id="search" type="search" autocomplete="off" spellcheck="false"></label>
<button id="next" type="button" disabled>next</button>
<output id="found" aria-live="polite"></output>
<label id="path-label" hidden><input id="path" type="checkbox"> critical path</label>
<button id="nearer" type="button" aria-label="zoom in">+</button>
<button id="farther" type="button" aria-label="zoom out">-</button>
<button id="all" type="button">everything</button>
<button id="clear" type="button">clear</button>
</div>
{note}
<div id="scroll"><canvas id="lanes" tabindex="0" role="application" aria-roledescription="timeline"
aria-label="Timeline. Arrow keys go from slice to slice, Enter opens the next rank of a job, W, A, S and D zoom and pan."
></canvas><div id="height"></div></div>
<div id="tip" role="tooltip" hidden></div>
</section>
<p class="keys">{keys}</p>
<div id="legend"></div>
<noscript><p>The timeline needs scripts; the report's tables do not.</p></noscript>"""


def _top(parts: Sequence[Part], light: int | None) -> list[str]:
    """The titles, what stands before the first section, and the verdict, where the document has one; it lights up `light`."""
    out, begun = [], False
    for place, part in enumerate(parts):
        match part:
            case Title(lines):
                out += [f"<h1>{_text(line)}</h1>" for line in lines]
            case Section(text):
                if text != "Verdict":
                    break
                begun = True
            case Lines(lines):
                said = [_text(line) for line in lines if line]
                if begun:
                    button = f' <button type="button" class="lights" data-light="{light}">show it</button>'
                    show = "" if light is None else button
                    out += [f'<p class="verdict">{said[0]}{show}</p>', *(f"<p>{line}</p>" for line in said[1:])]
                else:
                    compared = any(isinstance(other, Title) and len(other.lines) > 1 for other in parts[:place])
                    kind = "verdict" if compared else "head"
                    out += [f'<p class="{kind}">{line}</p>' for line in said]
    return out


def _top_length(parts: Sequence[Part]) -> int:
    """How many of the parts `_top` has shown."""
    for place, part in enumerate(parts):
        if isinstance(part, Section) and part.text != "Verdict":
            return place
    return len(parts)


def _findings(parts: Sequence[Part], lit: Sequence[Lit], lights: "_Lights") -> list[str]:
    items = [part for part in parts if isinstance(part, Item)]
    if not items:
        return []
    title = next((part.text for part in parts if isinstance(part, Section) and part.text.startswith("Findings")), "Findings")
    out = [f'<section class="findings"><h2>{_text(title)}</h2>', "<ol>"]
    for item, own in zip(items, lit, strict=True):
        number = lights.number(own)
        name = f"<strong>{_text(item.name)}</strong>"
        head = name if number is None else f'<button type="button" class="lights" data-light="{number}">{name}</button>'
        out.append(f"<li>{head}<p>{_text(item.seen)}</p><p>{_text(item.means)} <em>Next:</em> {_text(item.next)}</p></li>")
    return [*out, "</ol></section>"]


def _tables(parts: Sequence[Part], lit_rows: Sequence[Sequence[Lit]], lights: "_Lights") -> list[str]:
    """What comes after the verdict, without the findings, each section under its heading."""
    out: list[str] = []
    lit = iter(lit_rows)
    heading, open_ = "", False
    for part in parts[_top_length(parts) :]:
        match part:
            case Section(text):
                heading, open_ = text, False
            case Item():
                open_ = True  # its heading is beside the timeline
            case Lines() | Block() | Table():
                if isinstance(part, Lines) and not any(part.lines):
                    continue
                if not open_:
                    out.append(f"<h2>{_text(heading)}</h2>")
                    open_ = True
                if isinstance(part, Table):
                    out += _table(part, heading, next(lit), lights)
                elif isinstance(part, Block):
                    out.append(f"<pre>{_text(chr(10).join(part.lines))}</pre>")
                else:
                    out += [f"<p>{_text(line)}</p>" for line in part.lines if line]
    return out


def _table(table: Table, caption: str, lit: Sequence[Lit], lights: "_Lights") -> list[str]:
    if not table.rows:
        return [f"<p>{_text(table.empty)}</p>"]
    heads = "".join(
        f'<th scope="col"><button type="button" class="sort">{_text(head) or "what it is"}</button></th>' for head in table.head
    )
    out = [f'<div class="wide" role="region" tabindex="0" aria-label="{_text(caption)}">']
    out.append(f'<table><caption class="hidden">{_text(caption)}')
    out.append(f"</caption><thead><tr>{heads}</tr></thead><tbody>")
    for cells, own in zip(table.rows, lit, strict=True):
        number = lights.number(own)
        first, *rest = (_text(cell, LONGEST_CELL) for cell in cells)
        first = first or NO_NAME
        if number is not None:
            first = f'<button type="button" class="lights" data-light="{number}">{first}</button>'
        out.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>')
    out.append("</tbody></table></div>")
    if table.more:
        out.append(f"<p>and {table.more} more</p>")
    return out


class _Lights:
    """What can be lit up, numbered."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def number(self, lit: Lit) -> int | None:
        """The number of it; None: there is nothing to light."""
        if not lit:
            return None
        self.found.append(lit.values)
        return len(self.found) - 1


def _text(text: str, longest: int = LONGEST_LINE) -> str:
    return escape(plain(text, longest))


def _json(values: Any) -> str:
    """JSON that is safe inside a script element, whose end no string in it can be."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
