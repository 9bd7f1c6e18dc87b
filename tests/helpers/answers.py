"""What the reader answers of every recording of this repository, in every form, as one hash an answer.

    uv run tests/helpers/answers.py                     which answers differ from those that are kept
    uv run tests/helpers/answers.py --against HEAD      the same, with the lines that differ from that commit's answers
    uv run tests/helpers/answers.py --keep              keep them: the change is meant

read-trace/tests/test_answers.py holds the reader to what is kept. A hash says that an answer changed, and not which one is right:
look at the lines before you keep them.
"""

import argparse
from base64 import b64decode
from collections.abc import Iterator
import contextlib
import difflib
import gzip
import hashlib
import io
from itertools import pairwise
import json
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "read-trace" / "tests" / "data" / "answers.tsv"
OF_ONE = (
    "--all", "--json", "--md --all --top 3", "--brief", "--chain", "--by annotation", "--by layer --json", "--by stack",
    "--by stack --time cpu", "--what_if graph", "--what_if no~waits --json", "--html", "--folded", "--folded --time cpu",
    "--redact",
)  # fmt: skip  # ~ stands for a space inside an argument
OF_TWO = ("--json", "--html")
OF_A_JOB = ("--all", "--json", "--md", "--html", "--merge", "--what_if no~waits")
WRITES = {"--html": "a.html", "--folded": "a.txt", "--redact": "a.json", "--merge": "a.json"}


def groups() -> dict[str, tuple[list[str], tuple[str, ...]]]:
    """By name: recordings, as paths from the repository's root, and the forms that are asked for. Each recording alone, each
    two neighbours of a folder beside each other, and the ranks of each job.
    """
    folders = ("gallery/h200/*", "gallery/llm", "gallery/several_gpus", "exercises/cases", "read-trace/tests/data/faults",
               "read-trace/tests/data/detailed")  # fmt: skip
    found: dict[str, tuple[list[str], tuple[str, ...]]] = {"read-trace/tests/data/01_64_cpu.json": ([], OF_ONE)}
    jobs: dict[str, list[str]] = {}
    for folder in (own for pattern in folders for own in sorted(ROOT.glob(pattern)) if own.is_dir()):
        every = sorted(str(path.relative_to(ROOT)) for path in folder.iterdir() if _is_recording(path))
        for path in every:
            found[path] = ([], OF_ONE)
            if of_job := re.fullmatch(r"(.*)_rank\d+\.json(?:\.gz)?", path):
                jobs.setdefault(of_job[1], []).append(path)
        found |= {f"{a} + {Path(b).name}": ([a, b], OF_TWO) for a, b in pairwise(every)}
    found |= {f"{name}_rank*": (ranks, OF_A_JOB) for name, ranks in jobs.items() if len(ranks) > 1}
    return {name: (paths or [name], forms) for name, (paths, forms) in found.items()}


def _is_recording(path: Path) -> bool:
    """Whether it is a trace: the gallery keeps measurements as .json, too."""
    if not path.name.endswith((".json", ".json.gz")):
        return False
    return path.suffix == ".gz" or b'"traceEvents"' in path.read_bytes()[:200_000]


def printed(arguments: list[str]) -> str:
    """The exit code or what was said at the end, where it is not 0, stdout and stderr."""
    import read_trace

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = read_trace.main(arguments)
        except SystemExit as end:
            code = end.code
    return "\n".join(filter(None, [str(code) if code else "", out.getvalue(), err.getvalue()]))


def answer(paths: list[str], form: str) -> str:
    """What is printed, or written, of these recordings; the current folder has to be the root."""
    arguments = [word.replace("~", " ") for word in form.split()]
    with tempfile.TemporaryDirectory() as folder:
        target = None
        if (name := WRITES.get(arguments[0])) is not None:
            target = Path(folder) / name
            arguments.insert(1, str(target))
        said = printed([*paths, *arguments])
        if target is None or not target.exists():
            return said
        text = target.read_text()
        if target.suffix == ".html":  # without what is the same in every page
            text = re.sub(r"<(style|script)>.*?</\1>|<meta [^>]*>", "", text, flags=re.DOTALL)
            text = re.sub(r'(?<=class="columns">)[^<]+', lambda found: gzip.decompress(b64decode(found[0])).hex(), text)
        return text


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def kept() -> dict[str, dict[str, str]]:
    """By group, the hash of each form."""
    found: dict[str, dict[str, str]] = {}
    for line in KEPT.read_text().splitlines():
        name, form, value = line.split("\t")
        found.setdefault(name, {})[form] = value
    return found


def every_answer() -> Iterator[tuple[str, str, str]]:
    """Group, form, answer."""
    for name, (paths, forms) in groups().items():
        for form in forms:
            yield name, form, answer(paths, form)


def answers_at(commit: str, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """These answers, of the reader as it was in a commit, about today's recordings."""
    program = (
        "import json, sys; sys.path[:0] = ['.', 'read-trace', sys.argv[1]]; from helpers.answers import answer;"
        "print(json.dumps([answer(*own) for own in json.load(sys.stdin)]))"
    )
    every = groups()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, commit], cwd=ROOT, check=True)
        try:
            asked = json.dumps([([str(ROOT / path) for path in every[name][0]], form) for name, form in wanted])
            command = [sys.executable, "-P", "-c", program, str(ROOT / "tests")]
            run = subprocess.run(command, cwd=folder, input=asked, capture_output=True, text=True, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=True)
    found = [text.replace(f"{ROOT}/", "") for text in json.loads(run.stdout)]
    return dict(zip(wanted, found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep today's answers")
    parser.add_argument("--against", metavar="COMMIT", help="show the lines that differ from this commit's answers")
    args = parser.parse_args()
    os.chdir(ROOT)
    today = {(name, form): text for name, form, text in every_answer()}
    if args.keep:
        KEPT.write_text("".join(f"{name}\t{form}\t{hashed(text)}\n" for (name, form), text in today.items()))
        return
    known = kept() if KEPT.exists() else {}
    changed = [own for own, text in today.items() if known.get(own[0], {}).get(own[1]) != hashed(text)]
    before = answers_at(args.against, changed) if args.against and changed else {}
    for name, form in changed:
        print(f"{name} {form}")
        if args.against:
            old, new = before[name, form].splitlines(), today[name, form].splitlines()
            print("\n".join(line[:300] for line in difflib.unified_diff(old, new, "before", "now", lineterm="", n=1)))
    print(f"{len(changed)} of {len(today)} answers differ from those that are kept")


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    main()
