"""What the reader prints and writes of recordings: its words, and its figures apart from them."""

from base64 import b64decode
import contextlib
import gzip
import hashlib
import html
import io
import json
from pathlib import Path
import re
import tempfile
from typing import Any
import unittest.mock

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
WRITES = {"--html": "a.html", "--folded": "a.txt", "--redact": "a.json", "--merge": "a.json"}
SENTENCES = {"seen", "means", "next", "no_gain", "unknown_because", "summary"}  # keys of the JSON


def printed(arguments: list[str]) -> str:
    """Return the exit code or what was said at the end, where it is not 0, stdout and stderr."""
    import read_trace

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = read_trace.main(arguments)
        except SystemExit as end:
            code = end.code
    return "\n".join(filter(None, [str(code) if code else "", out.getvalue(), err.getvalue()]))


def answer(paths: list[str], form: str) -> str:
    """Return what is printed, or written, of these recordings with the flags of `form`, in which ~ stands for a space inside of
    one.
    """
    arguments = [word.replace("~", " ") for word in form.split()]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        target = None
        if arguments[:1] == ["--plot"]:
            for picture in ("trace", "job", "roofline"):
                stack.enter_context(unittest.mock.patch(f"trace_reader.write.{picture}_picture.encoded", _described))
            target = Path(folder) / (arguments.pop(1) if arguments[1:2] and "." in arguments[1] else "a.svg")
        elif arguments and (name := WRITES.get(arguments[0])) is not None:
            target = Path(folder) / name
        if target:
            arguments.insert(1, str(target))
        report = printed([*paths, *arguments])
        if target is None or not target.exists():
            return report
        text = target.read_text()
        if target.suffix == ".html":  # without what is the same in every page
            text = re.sub(r"<(style|script)>.*?</\1>|<meta [^>]*>", "", text, flags=re.DOTALL)
            text = re.sub(r'(?<=class="columns">)[^<]+', lambda found: gzip.decompress(b64decode(found[0])).hex(), text)
        return text


def figures(text: str, form: str) -> str:
    """Of an answer, what remains without its sentences: the JSON's other fields, a page's elements, the rest's numbers.

    Another word in a sentence leaves it as it is; another number, row or name does not.
    """
    if "--json" in form and text.startswith("{"):
        value, end = json.JSONDecoder().raw_decode(text)  # what follows went to stderr
        return f"{json.dumps(_without_sentences(value))}\n{_numbers(text[end:])}"
    if form.startswith("--html"):
        without = re.sub(r' (title|aria-label|data-head)="[^"]*"', r" \1", text)
        return re.sub(r"(?<=>)[^<]+", lambda words: _numbers(html.unescape(words[0])), without)
    if form.startswith(("--redact", "--merge", "--folded")):
        return text
    return _numbers(text)


def words_of_page(page: str) -> str:
    """Return what a page says, a line for each element, without its data."""
    without = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    hints = re.sub(r'<[^>]* (?:title|aria-label)="([^"]*)"[^>]*>', r"\n[\1]\n", without)
    lines = (" ".join(line.split()) for line in html.unescape(re.sub(r"<[^>]*>", "\n", hints)).splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def _numbers(text: str) -> str:
    """Return the words that hold a digit."""
    return " ".join(re.findall(r"\S*\d\S*", text))


def _without_sentences(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_sentences(item) for key, item in value.items() if not (key in SENTENCES and isinstance(item, str))}
    return [_without_sentences(item) for item in value] if isinstance(value, list) else value


def _described(figure: Any, _suffix: str) -> bytes:
    """Return what a picture shows, and where: the same with any matplotlib."""
    lines = [_rounded(figure.get_figheight())]
    for ax in figure.axes:
        lines += [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), _rounded(*ax.get_xlim(), *ax.get_ylim())]
        lines += [f"{text.get_text()} {text.get_color()} {_rounded(*text.get_position())}" for text in ax.texts]
        lines += [f"{_rounded(line.get_xdata())} {_rounded(line.get_ydata())} {line.get_color()}" for line in ax.lines]
        lines += [f"{_rounded(patch.get_extents().bounds)} {_rounded(patch.get_facecolor())}" for patch in ax.patches]
        for shapes in ax.collections:
            lines.append(_rounded(shapes.get_facecolor()))
            lines += [_rounded(path.vertices) for path in shapes.get_paths()]
        lines += [label.get_text() for label in ax.get_yticklabels()]
    lines += [text.get_text() for legend in figure.legends for text in legend.get_texts()] + [t.get_text() for t in figure.texts]
    return "\n".join(lines).encode()


def _rounded(*values: float) -> str:
    return " ".join(f"{value:.4g}" for value in np.ravel(values))
