"""A report as one HTML page: the timeline to zoom and click, findings and tables beside it, nothing loaded from anywhere.

What a document says is written as HTML here, with every name escaped; the slices go along as columns (page_payload.py), for
the page's script to draw.
"""

import base64
from collections.abc import Sequence
import hashlib
from html import escape
from importlib.resources import files
import json
import re
from typing import Any

import msgspec
from trace_reader.analysis.replay.plain_run import GPU_MARGIN, PlainRun
from trace_reader.findings import Choices
from trace_reader.glossary import GLOSSARY
from trace_reader.report.document import Best, Block, Document, Item, Lines, Part, Section, TablePart, Title
from trace_reader.report.step_bars import Part as BarPart
from trace_reader.report.step_bars import StepBar
from trace_reader.report.theme import PATH_COLOURS
from trace_reader.system.terminal import printable
from trace_reader.units import us
from trace_reader.write.page_payload import NO_NAME, Panel
from trace_reader.write.page_roofline import roofline

ASSETS = files("trace_reader.write") / "assets"
SCRIPTS = ("trace.js", "timeline.js", "page.js")
LONGEST_CELL, LONGEST_LINE = 300, 4000
PERHAPS = '<svg width="12" height="12"><rect class="perhaps" width="12" height="12"/></svg>'
FIRST_PLACES = 3
FIRST_FINDINGS = 3  # the others are folded
KEYS = (
    ("W S", "zoom"), ("A D", "pan"), ("drag", "measure"), ("shift drag", "pan"), ("ctrl wheel", "zoom"), ("click", "select"),
    ("← →", "next slice"), ("↑ ↓", "outer, inner, next lane"), ("F", "fit what is selected"), ("L", "fit launch and kernel"),
    ("M", "measure what is selected"), ("G", "the white space behind it"), ("0", "everything"), ("P", "critical path"),
    ("/", "search"), ("Esc", "clear"),
)  # fmt: skip


DETAILS = """<section id="details" aria-live="polite" aria-label="What is selected"><h2>Selected</h2>
<p>Nothing yet: click a slice.</p></section>"""
_NUMBER = re.compile(r"-?[\d.,]+(?: ?(?:%|[µmn]?s|[kMG]?B|GB/s))?|-|unknown|nothing")
_TAG = re.compile(r"(<[^>]*>)")
_NOT_PROSE = re.compile(r"<(?:a|button|caption|code|figure|h1|kbd|label|nav|output|pre|strong|summary|td|th)\b")
_NOT_PROSE_END = re.compile(r"</(?:a|button|caption|code|figure|h1|kbd|label|nav|output|pre|strong|summary|td|th)>")
_TERMS = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, map(escape, GLOSSARY)), key=len, reverse=True))})(?![\w-])", re.IGNORECASE
)


class Page(msgspec.Struct, frozen=True):
    """What a page shows: a document, whose findings and tables' rows carry what they light up, the panels of its timeline, and
    what the verdict lights up there. `left_out` says what of the traces is not drawn; empty if all is.
    """

    document: Document
    panels: Sequence[Panel]
    lit_verdict: dict[str, Any]
    left_out: str = ""
    navigation: str = ""  # HTML, above all
    changes: tuple[PlainRun, Choices] | None = None  # that can be ticked
    bars: tuple[StepBar, ...] = ()  # of a step
    best: Best | None = None
    device: str = ""  # of a single trace: the one whose peaks its ops are below


def write(page: Page) -> bytes:
    """Return the bytes of the page: the same report gives the same bytes."""
    sections = _sections(page.document.parts)
    title = " and ".join(
        printable(line, LONGEST_LINE) for part in sections[0].parts if isinstance(part, Title) for line in part.lines
    )
    lights = _Lights()
    head = [
        *_head(sections[0].parts),
        *(
            _verdict(section.parts, lights.number(page.lit_verdict), page.bars, page.best, _three_places(sections, lights))
            for section in sections
            if section.key == "verdict"
        ),
    ]
    findings = [_findings(section, lights) for section in sections if section.key == "findings"]
    tables = _tables([section for section in sections[1:] if section.key not in ("verdict", "findings")], lights, page.device)
    if not findings and tables:  # of a job, or of two traces: its first table is what the verdict is read from
        findings.append(f'<div class="tables">{tables.pop(0).replace("<details>", "<details open>", 1)}</div>')
    body = [
        f'<header class="top">{page.navigation}<a class="skip" href="#tables">to the tables</a>',
        *head,
        "</header>",
        '<main class="main">',
        timeline_html(page.left_out, any(panel.head.get("folded") for panel in page.panels)),
        '<div class="beside"><div>',
        *findings,
        '</div><aside class="side">',
        *(_changes(page.changes[1]) if page.changes else []),
        DETAILS,
        "</aside></div>",
        '<div class="tables" id="tables">',
        '<p><button type="button" id="unfold">unfold everything</button></p>' if tables else "",
        *tables,
        "</div></main>",
    ]
    return html(title, with_terms("\n".join(body)), page.panels, {"lights": lights.found, **_bars(page.changes)})


def html(
    title: str, body: str, panels: Sequence[Panel], data: dict[str, Any], more_script: str = "", more_style: str = ""
) -> bytes:
    """Return a page around its body: style, scripts and data inside it, and a policy that lets nothing else run or load."""
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


def timeline_html(left_out: str = "", job: bool = False) -> str:
    """Return the place where the script draws; of a `job`, whose ranks can be opened."""
    every = (("click a rank", "open its lanes"), ("Enter", "open the next rank"), *KEYS) if job else KEYS
    keys = " ".join(f"<span><kbd>{escape(key)}</kbd> {escape(what)}</span>" for key, what in every)
    keys = f'<details class="help"><summary title="keys and mouse">?</summary><p class="keys">{keys}</p></details>'
    note = f'<p class="left-out">{escape(left_out)}</p>' if left_out else ""
    return f"""<section class="timeline" aria-label="Timeline">
<div class="bar">
<label>Search <input id="search" type="search" autocomplete="off" spellcheck="false"></label>
<button id="next" type="button" disabled>next</button>
<output id="found" aria-live="polite"></output>
<label id="path-label" hidden><input id="path" type="checkbox"> critical path</label>
<label id="plain-label" hidden><input id="plain" type="checkbox" checked> without the profiler</label>
<button id="nearer" type="button" aria-label="zoom in">+</button>
<button id="farther" type="button" aria-label="zoom out">-</button>
<button id="all" type="button">everything</button>
<button id="clear" type="button">clear</button>
{keys}
</div>
{note}
<div id="legend"></div>
<div id="scroll"><canvas id="lanes" tabindex="0" role="application" aria-roledescription="timeline"
aria-label="Timeline. Arrow keys go from slice to slice, Enter opens the next rank of a job, W, A, S and D zoom and pan."
></canvas><div id="height"></div></div>
<div id="tip" role="tooltip" hidden></div>
</section>
<details id="in-view"><summary>the slices in view, as a table</summary><div class="wide"></div></details>
<noscript><p>The timeline needs scripts; the report's tables do not.</p></noscript>"""


class _Part(msgspec.Struct):
    """A section of the document: its heading, its key, and what stands under it."""

    text: str
    key: str
    parts: list[Part]


def _sections(parts: Sequence[Part]) -> list[_Part]:
    """Return the document by its sections; the first has what stands before all headings."""
    found = [_Part("", "", [])]
    for part in parts:
        if isinstance(part, Section):
            found.append(_Part(part.text, part.key, []))
        else:
            found[-1].parts.append(part)
    return found


def _head(parts: Sequence[Part]) -> list[str]:
    """Return the titles, and the lines below them: the first of them, and the others folded."""
    out: list[str] = []
    facts: list[str] = []
    for part in parts:
        match part:
            case Title(lines):
                out += [f"<h1>{_text(line)}</h1>" for line in lines]
            case Lines(lines):
                facts += [f'<p class="head">{_text(line)}</p>' for line in lines if line]
    if len(facts) > 1:
        first = facts[0].removeprefix('<p class="head">').removesuffix("</p>")
        return [*out, f'<details class="facts"><summary class="head">{first}</summary>', *facts[1:], "</details>"]
    return [*out, *facts]


def _verdict(parts: Sequence[Part], light: int | None, bars: Sequence[StepBar], best: Best | None, places: Sequence[str]) -> str:
    """Return the lines of the verdict, the first of which lights up `light`, the bars of a step, the best change, and places."""
    first, *more = [line for part in parts if isinstance(part, Lines) for line in part.lines if line]
    show = "" if light is None else f' <button type="button" class="lights" data-light="{light}">show it</button>'
    return "\n".join(
        [
            f'<h2 class="verdict">{_text(first)}{show}</h2>',
            *_step(bars),
            *(f'<p class="best">{_text(one.what.capitalize())}, <b>{_text(one.worth)}</b>: '
              f'{_text(one.advice)} <code>{_text(one.of)}</code></p>' for one in (best,) if one),
            *places,
            *(f'<p class="head">{_text(line)}</p>' for line in more if best is None or line != best.line),
        ]
    )  # fmt: skip


def _three_places(sections: Sequence[_Part], lights: "_Lights") -> list[str]:
    """Return the places that save most, each of which can be lit."""
    table = next(
        (part for one in sections for part in one.parts if isinstance(part, TablePart) and part.table.key == "places"), None
    )
    if table is None or not table.rows:
        return []
    gone = table.head.index("gone")
    items = []
    for cells, light in list(zip(table.rows, table.lights, strict=True))[:FIRST_PLACES]:
        number, name = lights.number(light), _text(cells[0], LONGEST_CELL)
        button = name if number is None else f'<button type="button" class="lights" data-light="{number}">{name}</button>'
        items.append(f"<li>{button} {_text(cells[gone])}</li>")
    return ['<p class="head">Without one of these, a step saves:</p><ol class="places">', *items, "</ol>"]


def _step(bars: Sequence[StepBar]) -> list[str]:
    """A step as bars on one scale: what it is made of, how long it is; paler, how long it may be."""
    if not bars:
        return []
    longest_us = max(bar.high_us for bar in bars)
    out = ['<figure class="steps" aria-label="A step, by its critical path">']
    for bar in bars:
        low, high = us(bar.low_us), us(bar.high_us)
        time = low if low == high else f"{low} to {high}"
        boxes = f'<svg class="length">{_boxes(bar, longest_us)}</svg>'
        out.append(f'<div class="step"><span>{_text(bar.name)}</span>{boxes}<span>{time}</span></div>')
    whose = next((bar for bar in reversed(bars) if bar.parts), None)
    if whose is not None:
        shares = {part.name: f" {part.share:.0%}" for part in whose.parts}
        colours = {part.name: part.colour for bar in (whose, *bars) for part in bar.parts}
        key = '<svg width="12" height="12"><rect width="12" height="12" fill="{}"/></svg> {}{}'
        legend = "".join(
            f"<span>{key.format(colour, _text(name), shares.get(name, ''))}</span>" for name, colour in colours.items()
        )
        perhaps = f"<span>{PERHAPS} up to here, by the estimate</span>" if any(bar.high_us > bar.low_us for bar in bars) else ""
        out.append(f"<figcaption>{legend} of the critical path, {_text(whose.name)} {perhaps}</figcaption>")
    return [*out, "</figure>"]


def _boxes(bar: StepBar, longest_us: float) -> str:
    """Return the parts of a bar, and the stretch that it may be longer."""
    sure, perhaps = (100 * length_us / longest_us for length_us in (bar.low_us, bar.high_us - bar.low_us))
    at, out = 0.0, []
    for part in bar.parts or (BarPart("", 1.0, PATH_COLOURS["unknown"]),):
        title = f"<title>{_text(part.name)} {part.share:.0%}</title>" if part.name else ""
        wide = part.share * sure
        out.append(f'<rect x="{at:.2f}%" width="{wide:.2f}%" height="100%" fill="{part.colour}">{title}</rect>')
        at += wide
    out.append(f'<rect class="perhaps" x="{sure:.2f}%" width="{perhaps:.2f}%" height="100%"/>')
    return "".join(out)


def _changes(choices: Choices) -> list[str]:
    """Return the changes to tick, and the place of the bars."""
    boxes = [
        f'<li><label><input type="checkbox" class="change" value="{place}"> <strong>{_text(change.name)}</strong> '
        f"{_text(change.advice)}</label></li>"
        for place, change in enumerate(choices.changes)
    ]
    return [
        '<section class="changes"><h2>What changes would bring</h2><p>Guess, then tick what you would change.</p>',
        '<div id="bars"></div><output id="changed" aria-live="polite"></output>',
        *("<ul>", *boxes, "</ul></section>"),
    ]


def _bars(changes: tuple[PlainRun, Choices] | None) -> dict[str, Any]:
    """Return what the bars need: the times of a step in us, and what each choice of the changes saves, and leaves at least."""
    if changes is None:
        return {}
    plain, choices = changes
    gains = [[round(gain.low, 4), round(gain.high, 4)] for gain in choices.gains]
    step = {"recorded": plain.recorded_step_us, "plain": [plain.low_us, plain.high_us]}
    least = [round(busy_us * (1 - GPU_MARGIN), 1) for busy_us in choices.busy_us]
    return {"changes": {**step, "gains": gains, "least": least}}


def _findings(section: _Part, lights: "_Lights") -> str:
    items = [part for part in section.parts if isinstance(part, Item)]
    if not items:
        return ""
    name, note = _parted(section.text)
    out = [f'<section class="findings"><h2>{_text(name)}</h2>', f'<p class="head">{_text(note)}</p>' if note else "", "<ol>"]
    for place, item in enumerate(items):
        if place == FIRST_FINDINGS:
            out.append(f'</ol><details><summary>{len(items) - place} more</summary><ol start="{place + 1}">')
        number = lights.number(item.light)
        id_of, _, gain = item.name.partition(" (")
        note = f" <small>{_text(gain.removesuffix(')'))}</small>" if gain else ""
        name = f"<strong>{_text(item.title)}</strong>{note} <code>{_text(id_of)}</code>"
        head = name if number is None else f'<button type="button" class="lights" data-light="{number}">{name}</button>'
        out.append(f"<li>{head}<p>{_text(item.seen)}</p><p>{_text(item.means)} <em>Next:</em> {_text(item.next)}</p></li>")
    return "\n".join([*out, "</ol></details></section>" if len(items) > FIRST_FINDINGS else "</ol></section>"])


def _tables(sections: Sequence[_Part], lights: "_Lights", device: str) -> list[str]:
    """Return the sections with their tables and lines, each folded under its heading."""
    out: list[str] = []
    for section in sections:
        body: list[str] = []
        for part in section.parts:
            match part:
                case TablePart():
                    numbers = [lights.number(light) for light in part.lights]
                    if part.table.key == "op_shapes":
                        body.append(roofline(part.items, device, numbers))
                    body += _table(part, section.text, numbers)
                case Block(lines):
                    body.append(f"<pre>{_text(chr(10).join(lines))}</pre>")
                case Lines(lines):
                    body += [f"<p>{_text(line)}</p>" for line in lines if line]
        if body:
            name, note = _parted(section.text)
            head = f"<details><summary><h2>{_text(name)}</h2></summary>"
            out.append("\n".join([head, *([f'<p class="head">{_text(note)}</p>'] if note else []), *body, "</details>"]))
    return out


def _parted(text: str) -> tuple[str, str]:
    """Return a heading and what stands behind it in brackets."""
    name, _, note = text.partition(" (")
    return name, note.removesuffix(")")


def _table(table: TablePart, caption: str, numbers: Sequence[int | None]) -> list[str]:
    if not table.rows:
        return [f"<p>{_text(table.table.empty)}</p>"]
    is_number = [all(_NUMBER.fullmatch(row[place]) for row in table.rows) for place in range(len(table.head))]
    classes = [' class="n"' * one for one in is_number]
    heads = "".join(
        f'<th scope="col"{one}><button type="button" class="sort">{_text(head) or "what it is"}</button></th>'
        for head, one in zip(table.head, classes, strict=True)
    )
    out = [f'<div class="wide" role="region" tabindex="0" aria-label="{_text(caption)}">']
    out.append(f'<table><caption class="hidden">{_text(caption)}')
    out.append(f"</caption><thead><tr>{heads}</tr></thead><tbody>")
    for cells, number in zip(table.rows, numbers, strict=True):
        first, *rest = (_text(cell, LONGEST_CELL) for cell in cells)
        first = first or NO_NAME
        if number is not None:
            first = f'<button type="button" class="lights" data-light="{number}">{first}</button>'
        # A phone shows a row's cells below each other, each with its heading.
        named = zip(table.head[1:], rest, classes[1:], strict=True)
        cells_html = "".join(f'<td{one} data-head="{_text(head)}">{cell}</td>' for head, cell, one in named)
        out.append(f'<tr><th scope="row">{first}</th>{cells_html}</tr>')
    out.append("</tbody></table></div>")
    if table.more:
        out.append(f"<p>and {table.more} more</p>")
    return out


class _Lights:
    """What can be lit up, numbered."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def number(self, lit: dict[str, Any]) -> int | None:
        """Return the number of it; None: there is nothing to light."""
        if not lit:
            return None
        self.found.append(lit)
        return len(self.found) - 1


def with_terms(body: str, without: Sequence[str] = ()) -> str:
    """Return the body with each term of the glossary, but those `without`, explained on hover where it first stands in text."""
    pieces = _TAG.split(body)  # text, tag, text, ...
    seen = set(without)

    def explained(found: re.Match[str]) -> str:
        term = found[0].lower()
        if term in seen or term not in GLOSSARY:
            return found[0]
        seen.add(term)
        return f'<abbr tabindex="0" title="{escape(GLOSSARY[term])}">{found[0]}</abbr>'

    inside = 0  # of elements whose text is not prose
    for place, piece in enumerate(pieces):
        if place % 2:
            inside += (_NOT_PROSE.match(piece) is not None) - (_NOT_PROSE_END.match(piece) is not None)
        elif not inside:
            pieces[place] = _TERMS.sub(explained, piece)
    return "".join(pieces)


def _text(text: str, longest: int = LONGEST_LINE) -> str:
    return escape(printable(text, longest))


def _json(values: Any) -> str:
    """JSON that is safe inside a script element, whose end no string in it can be."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
