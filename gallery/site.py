"""Write the course as pages: site/index.html, a page for each exercise and each recording, the figures, the cheat sheet.

    uv run gallery/site.py [--out FOLDER]

Each page is one file that opens offline with a double click. Questions, answers and numbers are the documents': they come
from figures.toml, the recordings, exercises/exercises.toml, docs/llm.md and docs/several_gpus.md. The folder can be published as
it is.
"""

import argparse
from itertools import pairwise
from pathlib import Path
import re
import sys

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gallery import exercise_pages
from gallery.docs import WRITTEN, cheatsheet_md, figures_md, glossary_md, patterns_md
from gallery.figures import ROOT, figures, recording
from gallery.rendering import GALLERY, rendered, trace_file
import msgspec
from trace_reader import count, human_bytes, pages, write_all

ASSETS = GALLERY / "course"
NOT_HERE = r", \[(?:table|picture)\]\([^)]*\)", r" The link \*table\* leads.*?below it\."
NAVIGATION = (
    '<nav aria-label="Course"><a href="index.html">the course</a> <a href="figures.html">figures</a> '
    '<a href="cheatsheet.html">cheat sheet</a> <a href="patterns.html">patterns</a> <a href="glossary.html">glossary</a></nav>'
)


def site() -> dict[str, bytes]:
    """Return all files of the site, by their names."""
    script, style = _asset("own_trace.js") + _asset("course.js"), _asset("course.css")
    found = {"index.html": exercise_pages.start_page(NAVIGATION, script, style)}
    way = [None, *(exercise for chapter in exercise_pages.chapters() for exercise in chapter.exercises), None]
    for (before, one), (_, after) in pairwise(pairwise(way)):
        assert one is not None
        found[one.file] = exercise_pages.page(one, before, after, NAVIGATION, script, style)
    used = {path for f in figures() for path in (f.trace, *f.pictured)}
    # Not of programs to mend: the report would give the answer away.
    shown = (exercise.traces for exercise in exercise_pages.exercises() if not exercise.is_mended)
    used |= {path for traces in shown for path in traces if path.is_relative_to(GALLERY)}
    for path in sorted(used):
        reading = recording(path)
        facts = msgspec.structs.replace(reading.facts, trace=str(path.relative_to(ROOT)))
        found[trace_file(path)] = pages.trace_page(msgspec.structs.replace(reading, facts=facts), NAVIGATION)
    for name, title, text in (
        ("figures", "Figures", _of_pages(figures_md())),
        ("cheatsheet", "Cheat sheet", cheatsheet_md()),
        ("patterns", "All patterns", patterns_md()),
        ("glossary", "Glossary", glossary_md()),
    ):
        body = f'<main class="page {name}">{NAVIGATION}{rendered(text.replace(WRITTEN, "").strip())}</main>'
        found[f"{name}.html"] = pages.html(title, body, [], {}, more_style=style)
    return found


def _of_pages(text: str) -> str:
    """Return the list of figures without what it says of files that the site does not have, and with links to its exercises."""
    files = {one.label: one.file for one in exercise_pages.exercises()}
    text = re.sub(r"\[(E\d+)\]\(exercises\.md\)", lambda found: f"[{found[1]}]({files[found[1]]})", text)
    for part in NOT_HERE:
        text, found = re.subn(part, "", text, flags=re.DOTALL)
        assert found, part
    return text


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
