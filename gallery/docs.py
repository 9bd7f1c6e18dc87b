"""Write docs/figures.md and docs/lessons.md from figures.toml and the recordings. Numbers come through the reader.

    uv run gallery/docs.py

A test fails while the two do not say what this writes.
"""

from dataclasses import replace
from pathlib import Path
import sys

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gallery.figures import NUMBERS, ROOT, TITLES, Figure, figures, filled, machine, recording
from reader.compare import rows
from reader.render import Style, table

FIGURES = ROOT / "docs" / "figures.md"
LESSONS = ROOT / "docs" / "lessons.md"


def _machine() -> str:
    m = machine()
    return (
        f"{m['device']}, driver {m['driver']}, torch {m['torch']}, CUDA {m['CUDA']}, CUPTI {m['CUPTI']}, {m['date']}; "
        f"kernels of the Hub: {m['kernels']}"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _recorded(figure: Figure) -> str:
    named = [(NUMBERS[name][0], filled(f"{{{name}}}", figure)) for name in figure.numbers]
    numbers = "; ".join(f"{title}: {value}" if title else value for title, value in named)
    trace = figure.trace.relative_to(ROOT)
    return f"{numbers} ([trace](../{trace}), [picture](../{trace.with_suffix('.png')}))"


def figures_md() -> str:
    """The table of all figures."""
    out = [
        "# Every figure, its command, and what was recorded",
        "",
        "Written by `uv run gallery/docs.py` from gallery/figures.toml and gallery/h200; do not edit it here.",
        f"Recorded on: {_machine()}. The A100's numbers are the posts'.",
    ]
    for post, title in TITLES.items():
        out += ["", f"## {title}", "", "| figure | command | guess | on an A100 | on an H200 | where they differ |"]
        out.append("|---|---|---|---|---|---|")
        for f in figures():
            if f.post == post:
                cells = (f.figure, f"`uv run {f.command}`", f.guess, f.a100, _recorded(f), filled(f.differs, f))
                out.append("| " + " | ".join(map(_cell, cells)) + " |")
        runs = list(dict.fromkeys(f.trace for f in figures() if f.post == post))
        out += ["", "All runs of this part (`read_trace.py` with all their traces):", ""]
        several = [replace(recording(path)[1], trace=str(path.relative_to(ROOT / "gallery/h200"))) for path in runs]
        out += [line for line in table(rows(several), Style(markdown=True)).splitlines() if line.startswith("|")]
    return "\n".join(out) + "\n"


def lessons_md() -> str:
    """The exercises: guess, command, question, and the answer folded away."""
    out = [
        "# The series as exercises",
        "",
        "For each: say your guess aloud, run the command, look at the trace, then unfold the answer. The answers quote a",
        f"recording; yours will differ in the numbers. Recorded on: {_machine()}.",
        "",
        "No GPU at hand? Read the recording instead of running the command; its name stands under each exercise.",
    ]
    number = 0
    for post, title in TITLES.items():
        out += ["", f"## {title}"]
        for f in figures():
            if f.post != post or not f.answer:
                continue
            number += 1
            trace = f.trace.relative_to(ROOT)
            out += [
                "",
                f"### {number}. {f.guess}",
                "",
                "```",
                f"uv run {f.command}",
                "```",
                "",
                f"Look: {f.look} (Recorded: `uv run read_trace.py {trace}`.)",
                "",
                "<details><summary>Answer</summary>",
                "",
                filled(f.answer, f),
                "",
                f"![the trace](../{trace.with_suffix('.png')})",
                "",
                "</details>",
            ]
    return "\n".join(out) + "\n"


def main() -> None:
    for path, text in ((FIGURES, figures_md()), (LESSONS, lessons_md())):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
