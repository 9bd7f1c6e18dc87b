"""Write the course as pages: site/index.html, a page for each exercise and each recording, the figures, the cheat sheet.

    uv run gallery/site.py [--out FOLDER]

Each page is one file that opens offline with a double click. Questions, answers and numbers are the documents': they come from
figures.toml, the recordings, docs/llm.md and docs/several_gpus.md. The folder can be published as it is.
"""

import argparse
import base64
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
import re
import sys

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gallery.docs import WRITTEN, cheatsheet_md, figures_md, glossary_md, patterns_md
from gallery.figures import ROOT, TITLES, Check, Elsewhere, Figure, elsewhere, figures, filled, recording
from markdown_it import MarkdownIt
import msgspec
from trace_reader import PATTERNS, count, human_bytes, pages, write_all

GALLERY, ASSETS = ROOT / "gallery", ROOT / "gallery" / "course"
ELSEWHERE = {"llm.md": "A language model", "several_gpus.md": "Several GPUs"}
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True)
class Exercise:
    """One page of the course. `question`, `look` and `answer` are Markdown; `traces`: what is shown, one, two, a job's ranks."""

    number: int
    part: str
    question: str
    command: str
    look: str
    answer: str
    check: Check
    traces: tuple[Path, ...]
    names: tuple[str, ...]
    finding: str

    @property
    def file(self) -> str:
        return f"exercise_{self.number:02}.html"


def exercises() -> list[Exercise]:
    """All exercises, in the order in which they build on each other."""
    found: list[Exercise] = []
    for post, title in TITLES.items():
        found += [_of_figure(f, title, len(found) + n) for n, f in enumerate(_with_answers(post), 1)]
    for number, exercise in enumerate(elsewhere(), len(found) + 1):
        found.append(_of_document(exercise, number))
    return found


def _with_answers(post: int) -> list[Figure]:
    return [f for f in figures() if f.post == post and f.answer]


def _of_figure(f: Figure, part: str, number: int) -> Exercise:
    assert f.check is not None
    names = tuple([f"{f.pair}: "] * bool(f.pair) + [""])
    return Exercise(
        number,
        part,
        f.guess,
        f"uv run {f.command}",
        f.look,
        filled(f.answer, f),
        f.check,
        tuple(f.pictured),
        names,
        "" if f.check.lights else f.findings[0],
    )


def _of_document(exercise: Elsewhere, number: int) -> Exercise:
    question, answer = in_document(exercise.document, exercise.number)
    traces = tuple(GALLERY / name for name in exercise.traces)
    files = re.sub(r"_rank\d+\.", "_rank*.", str(traces[0].relative_to(ROOT)))
    look = "The output of the command, which reads the recording. The answer shows the same recording on this page."
    question, _, command = question.partition(" `uv run ")  # where it ends with one
    command = f"uv run {command.removesuffix('`')}" if command else f"uv run read_trace.py {files} --html page.html"
    names = ("",) * len(traces)
    return Exercise(
        number, ELSEWHERE[exercise.document], question, command, look, answer, exercise.check, traces, names, exercise.finding
    )


def in_document(document: str, number: int) -> tuple[str, str]:
    """The question and the answer of an exercise that stands in a document. Raises LookupError: it does not."""
    text = (ROOT / "docs" / document).read_text()
    found = re.search(
        rf"^(?:### )?{number}\. ((?:(?!\n(?:### |\d+\. )).)*?)\s*<details><summary>Answer</summary>\n(.*?)</details>",
        text[text.find("## Exercises") if "## Exercises" in text else 0 :],
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        raise LookupError(f"docs/{document} has no exercise {number}")
    question, answer = (re.sub(r"^ +", "", part, flags=re.MULTILINE).strip() for part in found.groups())
    return " ".join(question.split()), answer


def site() -> dict[str, bytes]:
    """All files of the site, by their names."""
    every = exercises()
    used = {path for f in figures() for path in (f.trace, *f.pictured)} | {path for exercise in every for path in exercise.traces}
    found = {"index.html": _index(every)}
    for exercise in every:
        found[exercise.file] = _exercise(exercise, len(every))
    for path in sorted(used):
        trace, facts = recording(path)
        facts = msgspec.structs.replace(facts, trace=str(path.relative_to(ROOT)))
        found[trace_file(path)] = pages.trace_page(trace, facts, _navigation())
    for name, title, text in (
        ("figures", "Figures", figures_md()),
        ("cheatsheet", "Cheat sheet", cheatsheet_md()),
        ("patterns", "All patterns", patterns_md()),
        ("glossary", "Glossary", glossary_md()),
    ):
        body = f'<main class="page {name}">{_navigation()}{_html(text.replace(WRITTEN, "").strip())}</main>'
        found[f"{name}.html"] = pages.html(title, body, [], {}, more_style=_asset("course.css"))
    return found


def trace_file(path: Path) -> str:
    """The page of a recording."""
    name = str(path.relative_to(GALLERY)).removesuffix(".gz").removesuffix(".json")
    return f"trace_{name.removeprefix('h200/').replace('/', '_')}.html"


def _index(every: list[Exercise]) -> bytes:
    out = [_navigation(), "<h1>Profiling in PyTorch: guess first, then look</h1>"]
    out.append(
        "<p>Each exercise asks for a guess and then shows the recording that answers it: a timeline to zoom and click, in which "
        "the slices that explain the answer are highlighted. Your progress is kept in this browser only.</p>"
        f'<p id="progress" aria-live="polite">{count(len(every), "exercise")}</p>'
    )
    part = ""
    for exercise in every:
        if exercise.part != part:
            out += ["</ol>"] * bool(part) + [f"<h2>{escape(exercise.part)}</h2>", f'<ol start="{exercise.number}">']
            part = exercise.part
        out.append(
            f'<li><a href="{exercise.file}" data-exercise="{exercise.file}">{_inline(exercise.question)}</a> '
            '<span class="state"></span></li>'
        )
    out.append("</ol>")
    return pages.html(
        "Profiling in PyTorch", f'<main class="text">{"".join(out)}</main>', [], {}, _asset("course.js"), _asset("course.css")
    )


def _exercise(exercise: Exercise, of: int) -> bytes:
    job = len(exercise.traces) > 1 and "_rank" in exercise.traces[0].name
    finding = "" if job else exercise.finding or ", ".join(exercise.check.lights)
    shown = pages.job_panels([str(path) for path in exercise.traces]) if job else _panels(exercise)
    check = asdict(exercise.check)
    options = f" ({', '.join(exercise.check.options)})" if exercise.check.options else ""
    before = (
        f'<a href="exercise_{exercise.number - 1:02}.html" rel="prev">← {exercise.number - 1}</a>' if exercise.number > 1 else ""
    )
    after = (
        f'<a href="exercise_{exercise.number + 1:02}.html" rel="next">{exercise.number + 1} →</a>' if exercise.number < of else ""
    )
    explained = f'<p class="finding"><button type="button" class="lights" data-light="0">{escape(finding)}</button></p>' * bool(
        finding
    )
    sentence = f"<p>{escape(PATTERNS[finding].means)}</p>" if finding in PATTERNS else ""
    drop = "" if job else DROP
    body = f"""<main class="top">
{_navigation(before, after)}
<h1>{exercise.number}. {_inline(exercise.question)}</h1>
<p>{_inline(exercise.look)}</p>
<p class="command"><code id="command">{escape(exercise.command)}</code> <button type="button" id="copy">copy</button></p>
<form id="guess">
<label for="typed">{escape(exercise.check.ask)}{escape(options)}</label>
<input id="typed" type="text" autocomplete="off" required> <button type="submit">check my guess</button>
<button type="button" id="tell">show the answer</button>
</form>
<p id="said" role="status"></p>
</main>
<div id="answer" hidden>
<section class="top">{_html(exercise.answer)}{explained}{sentence}</section>
<div class="main">{pages.timeline(job=job)}</div>
<aside class="side">{pages.DETAILS}{drop}</aside>
</div>"""
    data = {"lights": shown.lights, "check": check, "exercise": exercise.file}
    title = f"{exercise.number}. {exercise.question}"
    return pages.html(title, body, shown.panels, data, _asset("course.js"), _asset("course.css"))


DROP = """<section id="drop"><h2>Your own trace beside it</h2>
<p>Drop a trace (.json, .json.gz) or a page of <code>--html</code> here, or <label for="file">choose a file</label>. The file does
not leave this browser.</p>
<input id="file" type="file" accept=".json,.gz,.html"><p id="dropped" role="status"></p><div id="compared"></div></section>"""


def _panels(exercise: Exercise) -> pages.Panels:
    """The recordings from their first recorded step on, and what explains the answer in the last of them."""
    labels = [f"{name}{path.relative_to(GALLERY)}" for name, path in zip(exercise.names, exercise.traces, strict=True)]
    return pages.trace_panels(
        [recording(path) for path in exercise.traces],
        labels,
        exercise.finding,
        lambda name: any(part in name for part in exercise.check.lights),
    )


def _navigation(*links: str) -> str:
    fixed = '<a href="index.html">all exercises</a> <a href="figures.html">figures</a> <a href="cheatsheet.html">cheat sheet</a> '
    fixed += '<a href="glossary.html">glossary</a>'
    return f'<nav aria-label="Course">{fixed} {" ".join(links)}</nav>'


def _html(text: str) -> str:
    """Markdown as HTML, pictures in it. Links to recordings lead to their pages; others, whose files are not here, are text."""
    html = re.sub(r'<a href="([^"]*)">(.*?)</a>', _linked, MARKDOWN.render(text), flags=re.DOTALL)
    html = re.sub(r"<h2>([^<]+)</h2>", _anchored, html)
    return re.sub(r'<img src="([^"]*)"', _pictured, html)


def _anchored(found: re.Match[str]) -> str:
    """A heading under the name that links to it use, as on GitHub."""
    return f'<h2 id="{re.sub(r"[^a-z0-9 -]", "", found[1].lower()).replace(" ", "-")}">{found[1]}</h2>'


def _linked(found: re.Match[str]) -> str:
    name, _, anchor = found[1].partition("#")
    path = (ROOT / "docs" / name).resolve()
    if found[1].startswith("https://"):
        return found[0]
    if path.stem in ("figures", "cheatsheet", "patterns", "glossary") and path.suffix == ".md":
        return f'<a href="{path.stem}.html{f"#{anchor}" * bool(anchor)}">{found[2]}</a>'
    return f'<a href="{trace_file(path)}">{found[2]}</a>' if path.name.endswith((".json", ".json.gz")) else found[2]


def _pictured(found: re.Match[str]) -> str:
    picture = base64.b64encode((ROOT / "docs" / found[1]).resolve().read_bytes()).decode()
    return f'<img src="data:image/png;base64,{picture}"'


def _inline(text: str) -> str:
    return MARKDOWN.renderInline(text)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "site", metavar="FOLDER", help="folder to write to (default: site)")
    args = parser.parse_args()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        found = site()
        write_all({args.out / name: data for name, data in found.items()})
    except OSError as error:
        parser.exit(1, f"error: {args.out}: {error.strerror or error}\n")
    size = human_bytes(sum(map(len, found.values())))
    print(f"wrote {count(len(found), 'page')} ({size}); open {args.out / 'index.html'}")


if __name__ == "__main__":
    main()
