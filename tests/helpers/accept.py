"""What the reader says of every recording of this repository: its words as text files, its numbers as hashes.

    uv run tests/helpers/accept.py             show the words that changed, and name the recordings whose numbers did
    uv run tests/helpers/accept.py --accept    the same, and keep today's

The words are in tests/answers/, in folders named as those of the recordings, and are reviewed as a diff. The numbers are in
tests/answers/numbers.tsv: hashes of the JSON without its sentences, and of what the other forms hold beside words. Some are of
recordings that a seed changes (tests/helpers/perturbed.py). tests/test_answers.py holds the reader to both.
"""

import argparse
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
import difflib
from itertools import pairwise
import os
from pathlib import Path
import re
import sys

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in (".", "tests", "read-trace/tests")]

from helpers import perturbed
from helpers.snapshots import ROOT, answer, figures, hashed, words_of_page

ANSWERS = ROOT / "tests" / "answers"
NUMBERS = ANSWERS / "numbers.tsv"
FOLDERS = (
    "gallery/h200/*", "gallery/llm", "gallery/several_gpus", "gallery/ladder", "gallery/answer", "exercises/cases",
    "read-trace/tests/data/faults", "read-trace/tests/data/detailed",
)  # fmt: skip
# One of each kind of recording.
IN_EVERY_FORM = (
    "gallery/h200/01_matmul_add/64_bf16_cold_eager.json",
    "gallery/h200/01_matmul_add/4096_bf16_warm_compile_compile_mode-reduce-overhead.json",
    "gallery/h200/03_simple_mlp/64_128_768_3072_bf16_warm_compile.json",
    "gallery/h200/04_c_sdpa_attention/8_16_1024_64_math_bf16_warm_eager.json",
    "exercises/cases/25_gpt_training.json.gz",
    "gallery/several_gpus/data_parallel_slow30_rank0.json.gz",
    "read-trace/tests/data/01_64_cpu.json",
    "read-trace/tests/data/detailed/cpu_training.json.gz",
    "read-trace/tests/data/detailed/h200_casts_memory.json.gz",
    "read-trace/tests/data/detailed/h200_casts_stacks.json.gz",
)
# Flags whose words are kept, and flags whose numbers are; ~ stands for a space inside an argument.
WORDS = (
    "", "--full --top 3", "--md --all --top 3", "--brief", "--chain", "--by annotation", "--by layer", "--by stack",
    "--by stack --time cpu", "--what_if graph", "--what_if no~waits", "--html",
)  # fmt: skip
FORMS = (
    "--html", "--folded", "--folded --time cpu", "--redact", "--what_if no~waits --json", "--by annotation --json", "--plot",
)  # fmt: skip
FORMS_OF_A_JOB = ("--merge", "--what_if no~waits --json", "--html", "--plot")
MLP = "gallery/h200/03_{}mlp/64_128_768_3072_bf16_warm_{}.json"
EAGER, COMPILED = MLP.format("simple_", "eager_record_shapes"), MLP.format("simple_", "compile")
ATTENTION = [
    "gallery/h200/04_a_naive_attention/8_16_1024_64_bf16_warm_eager.json",
    "gallery/h200/04_b_inplace_ops_attention/8_16_1024_64_bf16_warm_eager.json",
    *(f"gallery/h200/04_c_sdpa_attention/8_16_1024_64_{backend}_bf16_warm_eager.json" for backend in ("math", "flash", "cudnn")),
]


@dataclass(frozen=True)
class Group:
    """Recordings, as paths from the root, that the reader is asked about together. `words` are the flags whose words are kept,
    those of the first in a file of their own; `numbers` those whose numbers are.
    """

    name: str
    paths: list[str]
    words: tuple[str, ...]
    numbers: tuple[str, ...]


TWO = (("", "--md"), ("--json", "--html"))
MORE = (
    Group("comparisons/eager_and_compiled", [EAGER, COMPILED], *TWO),
    Group("comparisons/in_place", ATTENTION[:2], *TWO),
    Group("comparisons/four_mlps", [EAGER, COMPILED, MLP.format("kernels_", "eager"), MLP.format("triton_", "eager")], *TWO),
    Group("comparisons/attention", ATTENTION, *TWO),
    Group("gallery/llm/train_by_layer", ["gallery/llm/train.json.gz"], ("--by layer",), ("--by layer --json", "--what_if graph")),
)


@dataclass(frozen=True)
class Answer:
    """Words by the name of their file, and hashes of numbers by group and form."""

    words: dict[str, str]
    numbers: dict[tuple[str, str], str]


def groups() -> dict[str, Group]:
    """By name: each recording alone, the first two of each folder beside each other, the ranks of each job, and MORE."""
    every = [_of_one("read-trace/tests/data/01_64_cpu.json")]
    ranks: dict[str, list[str]] = {}
    for folder in (path for pattern in FOLDERS for path in sorted(ROOT.glob(pattern)) if path.is_dir()):
        recordings = sorted(str(path.relative_to(ROOT)) for path in folder.iterdir() if _is_recording(path))
        every += [_of_one(path) for path in recordings]
        every += [Group(f"{a} + {Path(b).name}", [a, b], (), ("--json",)) for a, b in [*pairwise(recordings)][:1]]
        for path in recordings:
            if of_job := re.fullmatch(r"(.*)_rank\d+\.json(?:\.gz)?", path):
                ranks.setdefault(of_job[1], []).append(path)
    jobs = {name: paths for name, paths in ranks.items() if len(paths) > 1}
    every += [Group(f"{name}_job", paths, ("--all",), ("--json", *FORMS_OF_A_JOB)) for name, paths in jobs.items()]
    return {group.name: group for group in (*every, *MORE)}


def _of_one(path: str) -> Group:
    more = path in IN_EVERY_FORM
    return Group(path, [path], ("--all", *(WORDS if more else ())), ("--json", *(FORMS if more else ())))


def _is_recording(path: Path) -> bool:
    """Return whether it is a trace: the gallery keeps measurements as .json, too."""
    if not path.name.endswith((".json", ".json.gz")):
        return False
    return path.suffix == ".gz" or b'"traceEvents"' in path.read_bytes()[:200_000]


def answer_about(group: Group) -> Answer:
    """Return what the reader says of a group today; the current folder has to be the root."""
    return Answer({**_first_words(group), **_more_words(group)}, dict(_numbers(group, group.numbers)))


def short_answer_about(group: Group) -> Answer:
    """Return the same of its first form of each kind alone."""
    return Answer(_first_words(group), dict(_numbers(group, group.numbers[:1])))


def files_of(group: Group) -> list[str]:
    """Return the files of its words: those of the first form, and those of all others together."""
    stem = group.name.removesuffix(".gz").removesuffix(".json")
    return [f"{stem}.txt", f"{stem}.forms.txt"][: len(group.words)]


def _first_words(group: Group) -> dict[str, str]:
    return {name: answer(group.paths, group.words[0]) for name in files_of(group)[:1]}


def _more_words(group: Group) -> dict[str, str]:
    more = {form: answer(group.paths, form) for form in group.words[1:]}
    parts = [f"==== {form or '(no flag)'}\n{words_of_page(text) if form == '--html' else text}" for form, text in more.items()]
    return {name: "\n".join(parts) for name in files_of(group)[1:]}


def _numbers(group: Group, forms: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    for form in forms:
        yield (group.name, form), hashed(figures(answer(group.paths, form), form))


def answer_about_seed(seed: int) -> Answer:
    """Return the same of a recording that a seed changes: its numbers alone."""
    return Answer({}, {("perturbed", str(seed)): hashed(perturbed.figures_of(seed))})


def kept_numbers() -> dict[tuple[str, str], str]:
    rows = (line.split("\t") for line in NUMBERS.read_text().splitlines())
    return {(name, form): value for name, form, value in rows}


def kept_words() -> dict[str, str]:
    return {str(path.relative_to(ANSWERS)): path.read_text() for path in sorted(ANSWERS.rglob("*.txt")) if path.parent != ANSWERS}


def seeds() -> list[int]:
    """Return those whose answer is kept."""
    return [int(form) for name, form in kept_numbers() if name == "perturbed"]


def today() -> Answer:
    """Everything that the reader says, in a process for each core."""
    words: dict[str, str] = {}
    numbers: dict[tuple[str, str], str] = {}
    with ProcessPoolExecutor() as pool:
        about_groups = pool.map(answer_about, groups().values())
        about_seeds = pool.map(answer_about_seed, seeds(), chunksize=8)
        for part in (*about_groups, *about_seeds):
            words |= part.words
            numbers |= part.numbers
    return Answer(words, numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="keep today's words and numbers")
    args = parser.parse_args()
    os.chdir(ROOT)
    now, words, numbers = today(), kept_words(), kept_numbers()
    changed = sorted(name for name in {*words, *now.words} if words.get(name) != now.words.get(name))
    for name in changed:
        before, after = (text.get(name, "").splitlines() for text in (words, now.words))
        print("\n".join(line[:300] for line in difflib.unified_diff(before, after, f"{name} (kept)", name, lineterm="", n=1)))
    others = sorted(key for key in {*numbers, *now.numbers} if numbers.get(key) != now.numbers.get(key))
    for name, form in others:
        print(f"numbers: {name} {form}")
    print(f"words of {len(changed)} of {len(now.words)} files changed, numbers of {len(others)} of {len(now.numbers)} answers")
    if args.accept:
        for name in changed:
            path = ANSWERS / name
            path.unlink(missing_ok=True)
            if name in now.words:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(now.words[name])
        NUMBERS.write_text("".join(f"{name}\t{form}\t{value}\n" for (name, form), value in now.numbers.items()))


if __name__ == "__main__":
    main()
