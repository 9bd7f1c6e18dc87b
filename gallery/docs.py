"""Write docs/figures.md, claims.md, lessons.md, exercises.md, ladder.md, cheatsheet.md, patterns.md, glossary.md and
fused_kernel.md from figures.toml, claims.toml, exercises.toml, the findings, the glossary, the recordings and benchmarks/.

    uv run gallery/docs.py

In read-trace/README.md and read-trace/docs/reading.md it makes the outputs anew that stand under commands. Numbers come through
the reader. A test fails while a document does not say what this writes.
"""

from collections.abc import Callable
import contextlib
import functools
import glob
import inspect
import io
import json
import math
from pathlib import Path
import re
import shlex
import statistics
import sys
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from exercises.judge.book import TOLERANCE, Exercise, exercises
from gallery.figures import (
    CHOICE,
    GALLERY,
    NUMBERS,
    ROOT,
    TITLES,
    Figure,
    Run,
    asked,
    claims,
    figures,
    filled,
    machine,
    trace_of,
)
from gallery.ladder_pages import ANSWERING, TRAINING, Ladder, overlap, times_as_fast, what_is_left, with_range
import msgspec
import trace_reader
from trace_reader import GLOSSARY, PATTERNS, several_markdown, us, write_all

DOCS = ROOT / "docs"
READER = ROOT / "read-trace"
WRITTEN = "Written by `uv run gallery/docs.py`; do not edit it here."
MLP = "--batch 64 --seq 128 --dim 768 --hidden 3072"
SETUPS = {  # the five of part 2
    "nn.Linear, eager": "02_linear.py --batch 1024 --in_dim 32 --out_dim 64",
    "nn.Linear, compiled": "02_linear.py --batch 1024 --in_dim 32 --out_dim 64 --compile",
    "MLP, eager": f"03_simple_mlp.py {MLP}",
    "MLP, compiled": f"03_simple_mlp.py {MLP} --compile",
    "MLP with Liger's kernel": f"03_kernels_mlp.py {MLP}",
}
SIZE = 8192 * 3072  # elements of the MLP's [batch * seq, hidden]
LADDER_ASKS = """\
Guess first. Which of the ten rungs saves most on a GPU, and which on a CPU? Which saves nothing? Where does the bottleneck
move between the CPU and the GPU? Then unfold the tables. Compare the recordings before and after it
moves:"""
LADDER_SHOWS = """\
On the H200 the matrix multiplications of the naive step are in fp32, and `{naive[advice]}` is the reader's first advice
for each rung up to `optimizer`. The rungs before `bits` save time in two ways: the GPU has less work, and it is idle for less
time. Of the {heads[saved_ms]:.1f} ms that `heads` saves, {heads[less_work_ms]:.1f} ms are work of the GPU; of the
{reads[saved_ms]:.1f} ms that `reads` saves, {reads[less_work_ms]:.1f} ms are. The rest was idle time. `mask`, which spares the
CPU a copy, saves {mask[saves]:.0%}. `bits` saves most: the GPU's work falls from {optimizer[work_ms]:.1f} ms to
{bits[work_ms]:.1f} ms, and the CPU takes longer than that to launch it. So `compiled`, which removes
{compiled[less_work]:.0%} of the GPU's work, saves {compiled[saves]:.0%} of the step. With one launch for each pass
(`graph`), the GPU is busy for {graph[busy]:.0%} of a step. Only the GPU's work is left: a next rung would have to reduce
it. On the CPU of the second table, `bits` makes no step shorter."""  # with numbers of benchmarks/ladder/h200.json
ANSWER_ASKS = """\
A step reads a prompt of 512 tokens, and writes the 8 tokens of an answer. Guess first. The naive program computes the whole text
again for each token. By what factor is a step with a cache faster? Which rung saves most after that? Which saves nothing? How
far is the last rung from the floor, the least time that the memory's rate allows? Then unfold the tables. Compare the recordings
of these pairs of rungs:"""
ANSWER_SHOWS = """\
Without autograd, {no_grad[how]}: the GPU is the bottleneck, and its work hides most of what the CPU does. With the logits of one
position, the GPU has {last[less_work_ms]:.1f} ms less to do, and the step is {last[saved_ms]:.1f} ms shorter. `cache` saves most:
the GPU's work falls from {last[work_ms]:.0f} ms to {cache[work_ms]:.0f} ms, and now the CPU takes longer to launch this work than
the GPU takes to do it. `room` spares copies, but launches {room[launches]} kernels, not {cache[launches]}: {room[how]}. On all of
these rungs the CPU waits for each token before it launches the next pass; `reads` removes that wait, and its step is
{reads[saves]:.0%} shorter. With `bits`, the GPU's work falls from {reads[work_ms]:.1f} ms to {bits[work_ms]:.1f} ms, but the
number of launches stays the same, and with it what the CPU has to do: {bits[how]}.
`compiled` has {compiled[launches]} kernels to launch, `graph` one launch for each
token. {left}"""  # with numbers of benchmarks/ladder/answer_h200.json


def _machine() -> str:
    m = machine()
    parts = (m["device"], f"driver {m['driver']}", f"torch {m['torch']}", f"CUDA {m['CUDA']}", m["date"])
    return f"{', '.join(parts)}; kernels of the Hub: {m['kernels']}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _link(path: Path) -> str:
    return f"../{path.relative_to(ROOT)}"


def _recorded(figure: Figure) -> str:
    named = [(NUMBERS[name][0], filled(f"{{{name}}}", figure)) for name in figure.numbers]
    numbers = "; ".join(f"{title}: {value}" if title else value for title, value in named)
    links = {"trace": figure.trace, "table": figure.trace.with_suffix(".txt"), "picture": figure.picture}
    return f"{numbers} ({', '.join(f'[{name}]({_link(path)})' for name, path in links.items())})"


def question_heading(number: int, figure: Figure) -> str:
    """Return the heading of an exercise in lessons.md: its number, its title, and which figures it is on."""
    return f"{number}. {figure.title}{f' ({figure.in_words})' * bool(figure.in_words)}"


def _exercises_on(figure: Figure) -> str:
    """Return links to the question on a figure, and to the exercises on the same; empty where there are none."""
    number = next((number for number, one in asked().items() if one == figure), None)
    found = [f"[E{one.number}](exercises.md)" for one in exercises() if one.figure == f"{figure.post}: {figure.figure}"]
    if number is not None:
        anchor = re.sub(r"[^a-z0-9_ -]", "", question_heading(number, figure).lower()).replace(" ", "-")
        found.insert(0, f"[Q{number}](lessons.md#{anchor})")
    return ", ".join(found)


def figures_md() -> str:
    """Return the table of all figures."""
    out = [
        "# Every figure of the posts: its command, on an A100 and on an H200",
        "",
        f"{WRITTEN} The A100's numbers are the posts'. The H200's were recorded on: {_machine()}.",
        "",
        "Each command was run in five processes. The recording linked here is the one whose middle step has the median CPU time;",
        "that time is given with its range over the five. The link *table* leads to the table that the profiler prints; its two",
        "totals are the lines below it.",
    ]
    for post, title in TITLES.items():
        heads = ("figure", "command", "guess", "on an A100", "on an H200", "where they differ", "exercise")
        out += ["", f"## {title}", "", _row(*heads), "|---" * len(heads) + "|"]
        for f in figures():
            if f.post == post:
                cells = f"`uv run {f.command}`", f.guess, f.a100, _recorded(f), filled(f.differs, f), _exercises_on(f)
                out.append(_row(f.figure, *cells))
        if post == 2:
            out += ["", *_setups()]
        runs = list(dict.fromkeys(f.trace for f in figures() if f.post == post))
        out += ["", "All runs of this part, as `read_trace.py` summarizes them:", ""]
        several = [msgspec.structs.replace(Run(path).facts, trace=str(path.relative_to(GALLERY))) for path in runs]
        out += [line for line in several_markdown(several).splitlines() if line.startswith("|")]
    return "\n".join(out) + "\n"


def _setups() -> list[str]:
    """Part 2's five setups: what changes on the GPU, and what it costs the CPU."""
    out = ["The post's five setups side by side: what changes on the GPU, what stays the same, and what it costs the CPU.", ""]
    out += [
        _row("setup", "kernels, median times", "GPU time per step", "CPU time of the middle step", "GPU / CPU time", "verdict"),
        "|---|---|---|---|---|---|",
    ]
    for name, command in SETUPS.items():
        run = Run(trace_of(command))
        out.append(_row(name, run.kernels, run.step_gpu, run.cpu, run.ratios, run.facts.verdict))
    return out


def claims_md() -> str:
    """Return what the posts say, claim by claim, and whether our recordings show it."""
    every = claims()
    counts = [f"{sum(claim.status == status for claim in every)} {status}" for status in ("confirmed", "corrected", "unknown")]
    out = [
        "# What the posts say, and what an H200 shows of it",
        "",
        f"{WRITTEN} Below are {len(every)} claims of the posts, in our words: {', '.join(counts)}. Guess first: which",
        "figures look different on a newer GPU, and which sentences say more than a trace can show?",
        "",
        f"The A100's numbers are the posts'. The H200's are read from the recordings: {_machine()}.",
        "*Confirmed*: our recording shows it, too. *Corrected*: it shows something else, or the cause that",
        "the post names does not hold. *Unknown*: no recording here can tell.",
    ]
    for post, title in TITLES.items():
        one = [c for c in every if c.post == post]
        if one:
            out += [
                "",
                f"## {title}",
                "",
                _row("figure", "claim", "on the posts' A100", "", "on our H200"),
                "|---|---|---|---|---|",
            ]
        for c in one:
            shown = " ".join(text for text in (c.said(c.h200), c.said(c.why)) if text)
            link = f" ([trace]({_link(trace_of(c.command))}))" if c.command else ""
            out.append(_row(c.figure, c.claim, c.a100, f"*{c.status}*", f"{shown}{link}"))
    return "\n".join([*out, ""])


def lessons_md() -> str:
    """Return the exercises: guess, command, where to look, and the answer folded away."""
    out = [
        "# The series as exercises",
        "",
        f"{WRITTEN}",
        "",
        "Each exercise asks a question about one command. Say your guess aloud, run the command, look at the trace, and only",
        "then unfold the answer. Treat any mismatch as the most interesting thing on the screen.",
        "",
        "The answers quote our recordings, so your numbers will differ. Where the posts' A100 shows something else, the answer",
        f"says so. Recorded on: {_machine()}.",
        "",
        "CPU times vary more from run to run than GPU times do. That is why the CPU time of a middle step is the median of five",
        "processes, often with its range in parentheses. Where the ranges of two runs overlap, the answer says so, and five",
        "processes cannot tell the two runs apart.",
        "",
        "No GPU at hand? Below each command is another one that reads our recording of it.",
    ]
    for post, title in TITLES.items():
        out += ["", f"## {title}"]
        for number, f in asked().items():
            if f.post != post:
                continue
            out += ["", f"### {question_heading(number, f)}", "", f.guess, "", "```", f"uv run {f.command}", "```", ""]
            out += [f"Look: {f.look}", ""]
            files = f"[table]({_link(f.trace.with_suffix('.txt'))}), [picture]({_link(f.picture)})"
            out += [f"Without a GPU: `uv run read_trace.py {f.trace.relative_to(ROOT)}` ({files})", ""]
            beside = [f"{name}: `uv run {command}`" for name, command in f.others.items()]
            if beside:
                out += [f"Compare with {'; '.join(beside)}", ""]
            out += ["<details><summary>Answer</summary>", "", filled(f.answer, f), "", f"![the trace]({_link(f.picture)})", ""]
            out += ["</details>"]
    return "\n".join(out) + "\n"


MEASURED = ("cpu2", "cpu16", "h200")  # in benchmarks/exercise_gains/


def exercises_md() -> str:
    """Return the exercises of exercises/: how they go, and what there is."""
    every = exercises()
    mend = [one for one in every if one.kind != "case"]
    out = [
        "# Something to mend",
        "",
        f"{WRITTEN} {len(every)} exercises: {len(mend)} small programs to mend, or to leave as they are,",
        f"and {len(every) - len(mend)} traces without a program. Guess first, then look; then change the program, and see",
        "whether you were right.",
        "",
        "```",
        "uv run exercise.py",
        "```",
        "",
        "starts the next unsolved exercise, and `uv run exercise.py 3` the third (E3 on the web pages).",
        "It first asks for two guesses: one about what the trace of a step will show, and how many times as fast",
        "the step can become. Then it records the program, shows the verdict of",
        "[the trace reader](../read-trace/README.md) and the longest ops, and asks both questions again: the trace has the",
        "answers, the program's text does not. Finally it prints the advice of the trace reader. Now change the program in",
        "`exercises/mine/`,",
        f"and run the same command again. The trace is the judge: the outputs have to be equal (within {TOLERANCE:.5f} of the",
        "largest number), the cause has to be gone from the trace, and a step has to reach the speedup that the exercise asks",
        "for, timed in nine rounds, in turns with the program as it was given. If the rounds do not decide, the command says",
        "so. In some exercises the obvious change gains nothing; there `--leave` is right.",
        "",
        f"- `--fast`, for those who know traces: {sum(bool(one.skips) for one in every)} questions on as many traces;",
        "  the exercises on what you know are skipped afterwards.",
        "- `--watch` judges whenever you save the file. `--hint` gives up to three hints, each",
        "  saying more; `--solution` prints the solution.",
        "- `--html` opens a page: the report, or, of a trace without a program, its timeline.",
        "- `--list` shows all exercises and your progress, which `.exercises.json` keeps. `--reset` starts an exercise again.",
        "",
        "The pages that `uv run gallery/site.py` writes contain these exercises, too, among others.",
    ]
    chapter = ""
    for one in every:
        if one.chapter != chapter:
            chapter = one.chapter
            out += ["", f"## {chapter}", ""]
        where = "" if one.device == "cpu" else " (needs a GPU)" if one.device == "cuda" else f" ({one.device})"
        files = f"[{one.name}.py](../exercises/{one.name}.py)" if one.kind != "case" else f"`{one.name}`"
        out.append(f"{one.number}. {files}: {one.title}{where}. {one.limits.ask}")
    out += ["", "## Tried", "", *TRIED]
    out += ["", "[How much faster the solutions are](../exercises/solutions/README.md) gives answers away."]
    return "\n".join(out) + "\n"


def solutions_md() -> str:
    """Return how much faster the solutions are, to lie beside them."""
    mend = [one for one in exercises() if one.kind != "case"]
    return "\n".join(["# How much faster the solutions are", "", f"{WRITTEN}", "", *_gains(mend)]) + "\n"


TRIED = (
    "In November 2026 the exercises were tried as a new user would do them, by language models without the answers. This was",
    "not a study of people. After looking at the traces, nearly all answers were right: 20 of 20 in exercises 1 to 8, 47 of 47",
    "of the lessons' questions. When a model played a beginner and guessed before looking, it named about half of the causes: in",
    "the last try, three of them named 20, 16 and 15 of 34.",
    "",
    "<details><summary>Each try</summary>",
    "",
    "- Exercises 1 to 6 and the cases 22, 24 and 30: the first guess of the cause was right in 9 of 9, each in 0.6 to 3.9",
    "  minutes of a fast reader. (At that time the right option was the longest in most questions; it no longer is.) The six",
    "  gains that were guessed were 3, 300, 50, 100, 1 and 2 times as fast, the measured ones 1.9, 130, 140, 16, 1 and 2.1.",
    "- The first chapter of the course, 20 pages: 11 right at the first guess, 2 at the second, 7 wrong.",
    "- All 33 exercises by their texts alone, before any trace: the cause was right in 33, the gain nearly right in 17. So an",
    "  exercise asks for the gain again after you have seen the trace.",
    "- Exercises 1, 7, 9, 11, 13, 14, 15 and the cases 25 and 30: the first guess of the cause was right in 9 of 9; exercise 13",
    "  was judged three times until it was solved, the others once. The exact gelu passed as the one by tanh, because outputs",
    "  that differ by 0.001 were taken as equal then. A text spoke of something that the screen did not show; the screen now",
    "  has a table of the longest ops.",
    "- Then the questions were made harder. Of exercises 1 to 8, 13 of 20 first guesses by three models were right, and all 20",
    "  answers after looking; all were solved. In the first chapter, 12 of 18, 12 of 20 and 18 of 20 were right before looking;",
    "  after looking, 18 to 20. Ten questions on traces that are not here were all answered rightly even before the",
    "  course, so they say nothing about it.",
    "- Three other models answered the questions of exercises 1 to 8: 5, 1 and 1 of 8 before looking (the second one says that",
    "  it answered three as a beginner might, but knew the right answers), all after looking. In exercise 4 the ratio fell into",
    "  a gap between two options, which is closed now. Of the [ladder](ladder.md), each of three models had six of eight right",
    "  before looking, and then all that four of its recordings can show.",
    "- Then eleven yes-or-no questions of the first chapter became questions for a size. Two other models had 11 of 20 right",
    "  before looking, and 20 of 20 after. They said that the wording gave away about seven of the eleven; it has changed",
    "  since.",
    "- Then every page said what its program does before it asks, and more questions asked for a size. Two other models",
    "  answered the 47 questions of the lessons: 38 and 22 were right before looking (the first model knew traces), 47 and 47",
    "  after. What they could tell from the words alone, or had to read twice, has changed since.",
    "- Two models answered the 37 questions of exercises 9 to 34 by their texts alone. The one that was asked to answer as a",
    "  beginner had 17 right, the one that was to do as well as it could had 36. It listed what gave answers away: options that",
    "  named the cause, proofs that repeated the first question, the smallest number of each list. Some thirty options and",
    "  questions have changed since.",
    "- With these changed, two models answered all 48 questions of exercises 1 to 34 by their texts alone; unlike the pages,",
    "  the texts told the proposed change before the questions. As a beginner, one had 19 of 34 causes right (3 of 8 in",
    "  exercises 1 to 8), and all 14 questions for the proof. The other, as well as it could, had all 48. So a beginner has to",
    "  look for the cause; but the options of the questions for the proof tell too much. On the pages, these have no options",
    "  any more: one marks the proof in the trace.",
    "- A model tried these 14 marks and the eight pages of the inference ladder in a browser. Of the marks it knew 9 before it",
    "  looked; of the ladder's gains it guessed 1 of 8, and 5 after looking. Some right marks were refused (a collective of any",
    "  rank, an op inside of another); they are accepted since.",
    "- Two models answered the 34 questions for the cause again, by texts and programs alone: as a beginner, one had 16 right;",
    "  the other, as well as it could, 33. So a beginner has to look; one who knows PyTorch well can work out most of them.",
    "- Then eight of these questions changed, which nearly all models had answered rightly at first sight (7, 9, 10, 13, 19 to",
    "  21 and 32). Three models had 20, 16 and 15 of 34 causes right at first sight, as a beginner (2026-11-28); the options of",
    "  exercise 19 changed again after that. With 9, 10 and 13 changed, two others had 33 and 32, as well as they could, and",
    "  all 34 after they had read what the reader says of each recording.",
    "- A model tried exercises 1 to 8 as a beginner, in 18 minutes (2026-11-29): 1 of 8 causes right at first sight, 7 after",
    "  looking (the eighth recording was of a busy machine, and another one was judged; the one that was shown is now). All",
    "  were solved. It tried to cheat the judge twelve times, and four times it was counted: torch's own ops slowed down for",
    "  the program as given, threads set for its own, weights kept outside of the model. They are not counted any more.",
    "- Three models did 13 questions of the first chapter, the ladder, and exercises 1 to 8, as beginners, in 13 to 30",
    "  minutes on a busy machine (2026-11-29). In the chapter 8, 7 and 4 of 13 were right before looking, and all 13 after.",
    "  Of the causes in the exercises, each model named 1 of 8 before looking. After looking, all 15 answers on recordings",
    "  that were not noisy were right; five recordings were noisy, and four questions got no answer. All 24 programs were",
    "  solved, 22 of them at once. Of the ladder's rungs, one model had called 5 of 9 rightly before it looked. Of 21",
    "  cheats three counted: two tensors of a class of their own, which answer as they like or compute when they are looked",
    "  at, and functions of the judge that were put aside. They are not counted any more.",
    "",
    "</details>",
)


def _gains(mend: list[Exercise]) -> list[str]:
    """Return what the solutions and the obvious changes brought, on each machine."""
    runs = [json.loads((ROOT / "benchmarks" / "exercise_gains" / f"{name}.json").read_text("utf-8")) for name in MEASURED]
    machines = "; ".join(f"{run['device']} (torch {run['torch']}, {run['date']})" for run in runs)
    out = [
        "How many times as fast a step became, with the interval that holds the median in 96% of cases, as measured by",
        "`uv run benchmarks/exercise_gains.py`: with the solution or, for programs best left alone, with the obvious change.",
        f"On {machines}; exercise 13, since it has annotations, on 2026-11-28.",
        "",
        _row("exercise", "change", "asked for", *(run["device"] for run in runs)),
        "|---|---|---|" + "---|" * len(runs),
    ]
    for one in mend:
        cells = []
        for run in runs:
            found = run["exercises"].get(one.name)
            cells.append(f"{found['times']:.3g} ({found['low']:.3g} to {found['high']:.3g})" if found else "-")
        change = f"{one.change}: nothing" if one.kind == "leave" else "the solution"
        out.append(_row(one.name, change, f"{one.target:g}" if one.target else "to leave it", *cells))
    return out


ON_THE_SHEET = {  # findings, by where they catch the eye; all others are in patterns.md alone
    "In the profiler's table": (
        "overhead-bound", "gpu-bound", "hotspot", "many-calls", "views-launch-nothing", "annotation-double-count",
    ),
    "On the CPU's lanes": (
        "cold-start", "entry-gap", "sync-in-step", "blocking-copy", "input-bound", "opaque-op", "profiler-sync",
    ),
    "On the GPU's lanes": (
        "latency-bound", "many-small-kernels", "unfused-pointwise", "hidden-copy", "bias-copy", "fp32-cuda-cores",
        "unfused-attention", "unfused-optimizer", "uneven-kernel", "exposed-communication", "profiler-buffer",
    ),
    "With torch.compile": ("fused-triton", "compile-tax", "cache-hits", "recompile", "graph-launch"),
}  # fmt: skip


def cheatsheet_md() -> str:
    """Return the most useful patterns on one printed page: the findings' own sentences."""
    out = [
        "# Cheat sheet",
        "",
        f"{WRITTEN} Guess first, then look. `read_trace.py` looks for each of these patterns in a trace;",
        "[patterns.md](patterns.md) lists all patterns, and where to look for each.",
    ]
    for place, slugs in ON_THE_SHEET.items():
        out += ["", f"## {place}", ""]
        out += [f"- **{_sentence(PATTERNS[slug].symptom)}** {PATTERNS[slug].means} *{PATTERNS[slug].next}*" for slug in slugs]
    return "\n".join(out) + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def patterns_md() -> str:
    """Return what one sees, where, what it means and what to do, for every finding."""
    out = [
        "# All patterns",
        "",
        f"{WRITTEN} `read_trace.py` looks for each of these patterns in a trace, and reports those that it finds.",
        "The most useful ones are on one page: [cheatsheet.md](cheatsheet.md).",
        "",
        "A source stands with those of the catalogue of changes (read-trace/trace_reader/findings/changes.toml).",
        "",
        _row("what you see", "where", "what it usually means", "what to look at or try next", "finding"),
        "|---|---|---|---|---|",
    ]
    for slug, p in PATTERNS.items():
        source = f" ([source]({p.source}))" if p.source else ""
        out.append(_row(p.symptom, p.where, p.means, f"{p.next}{source}", f"`{slug}`"))
    return "\n".join(out) + "\n"


def glossary_md() -> str:
    """Return the terms of the documents and reports."""
    out = ["# Glossary", "", f"{WRITTEN} The pages of `--html` show these on hover."]
    for term, meaning in GLOSSARY.items():
        out += ["", f"## {term}", "", meaning]
    return "\n".join(out) + "\n"


def api_md() -> str:
    """Return what the reader exports, by its docstrings."""
    out = [
        "# From Python",
        "",
        f"{WRITTEN}",
        "",
        "This is the package's interface. A name keeps its meaning until the next minor version; one that goes warns for a",
        "version before (`DeprecationWarning`). All other modules may change at any time. The keys of `--json` are an",
        "interface, too:",
        "[for programs](reading.md#for-programs).",
    ]
    kinds = (("class", inspect.isclass), ("function", callable), ("module", inspect.ismodule), ("table", lambda value: True))
    for name in trace_reader.__all__:
        value = getattr(trace_reader, name)
        kind = next(word for word, is_one in kinds if is_one(value))
        text = inspect.getdoc(value) if kind != "table" else ""
        head = f"`{name}{inspect.signature(value)}`" if kind == "function" else f"A {kind}."
        out += ["", f"## {name}", "", head, *(["", *text.splitlines()] if text else [])]
    return "\n".join(line.rstrip() for line in out) + "\n"


def fused_kernel_md() -> str:
    """Ours, Liger's and Inductor's kernel for gelu(gate) * up, over ten processes each."""
    measured = json.loads(CHOICE.read_text("utf-8"))
    runs = measured["programs"]
    count = len(next(iter(runs.values())))
    out = [
        "# One function, three fused kernels",
        "",
        f"{WRITTEN}",
        "",
        "Which kernel for gelu(gate) * up is the fastest, and why? torch.compile's Inductor, the Liger package and",
        "[03_triton_mlp.py](../03_triton_mlp.py) each have one. All of them get two [8192, 3072] bf16 tensors: inside the MLP of",
        "part 2 (*lesson*), or alone, with inputs that rotate through memory so that no cache holds them (*alone*).",
        "",
        f"`uv run benchmarks/inductor_choice.py` measured this on an {measured['device']}, torch {measured['torch']},",
        f"{measured['date']}, with {count} processes of each program, each with an empty compile cache.",
        "",
        _row("program", "median of the processes", "range", "launch chosen (grid, block, elements per thread): processes, times"),
        "|---|---|---|---|",
    ]
    for name, results in runs.items():
        times = sorted(r["median_us"] for r in results)
        launches = []
        for launch in sorted({(tuple(r["grid"]), tuple(r["block"])) for r in results}):
            of_it = sorted(r["median_us"] for r in results if (tuple(r["grid"]), tuple(r["block"])) == launch)
            grid, block = ("x".join(map(str, side)) for side in launch)
            each = SIZE / (launch[0][0] * launch[1][0])
            launches.append(f"{grid}, {block}, {each:g}: {len(of_it)} of {len(results)}, {us(of_it[0])} to {us(of_it[-1])}")
        out.append(_row(name, us(statistics.median(times)), f"{us(times[0])} to {us(times[-1])}", "; ".join(launches)))
    out += ["", "## Why Inductor's two programs differ", "", *_autotuning(runs)]
    return "\n".join(out) + "\n"


def _autotuning(runs: dict[str, list[dict]]) -> list[str]:
    """Return what autotuning measured of each launch that it tried, beside what it then chose."""
    out = [
        "At a kernel's first call, Inductor's autotuning tries a few launches of it and keeps the fastest. The table shows the",
        "lowest and the highest time that it measured in any process, and how often it chose each launch:",
        "",
        _row("program", "launch", "autotuning measured (µs)", "chosen"),
        "|---|---|---|---|",
    ]
    measured_us: dict[str, dict[str, list[float]]] = {}
    for name in (name for name in runs if "torch.compile" in name):
        tried = sorted({launch for r in runs[name] for launch in r["autotuning_ms"]})
        for launch in tried:
            times = sorted(1000 * r["autotuning_ms"][launch] for r in runs[name] if launch in r["autotuning_ms"])
            measured_us.setdefault(launch, {})[name] = times
            fastest = sum(min(r["autotuning_ms"], key=r["autotuning_ms"].get) == launch for r in runs[name])
            out.append(_row(name, launch, f"{times[0]:.1f} to {times[-1]:.1f}", f"{fastest} of {len(runs[name])}"))
    # The launch that autotuning measures most differently in the two programs.
    wide = max(measured_us, key=lambda launch: max(map(max, measured_us[launch].values())))
    slow, fast = sorted(measured_us[wide].values(), key=lambda times: -times[0])
    ours = sorted(r["median_us"] for r in runs["lesson, ours"])
    return [
        *out,
        "",
        f"The launch configuration makes the difference, not the arithmetic: where Inductor chooses its wide launch ({wide}),",
        "its kernel is about as fast as ours. If this kernel is compiled alone, without the lesson's MLP, autotuning measures",
        f"{us(fast[0])} to {us(fast[-1])} for this launch, and chooses it. In the lesson, autotuning measures {us(slow[0])} to",
        f"{us(slow[-1])} for it, so it keeps the narrow launch, in which each thread computes 2 elements (4 bytes of each",
        "tensor) at a time. Inductor's log does not say why it measures so much there.",
        "",
        f"Our kernel, with the wide launch's grid and block, takes {us(ours[0])} to {us(ours[-1])} in the lesson's MLP.",
        "Liger's kernel gives each block one row, whose 3,072 elements fill three quarters of the block's 4,096 places; the",
        "other places are idle.",
    ]


COMMAND = re.compile(r"^```\n\$ uv run read_trace\.py (.*)\n(?:.*\n)*?```$", re.MULTILINE)


def _with_outputs(path: Path) -> str:
    """Return a document with the outputs of its commands made anew: a dispatch tree, what a change would bring, a report to its
    findings, what a snapshot says of its peak, a table of runs.
    """
    return COMMAND.sub(_printed, path.read_text("utf-8"))


def _printed(found: re.Match[str]) -> str:
    import read_trace  # here, because it is a program

    arguments = [path for word in shlex.split(found[1]) for path in (sorted(glob.glob(word, root_dir=ROOT)) or [word])]
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(io.StringIO()) as out:
        assert read_trace.main(arguments) == 0
    if alone := re.search(r"^(?:Dispatch of|What if:) [\s\S]*", out.getvalue(), re.MULTILINE):
        shown = f"...\n{alone[0]}"
    else:
        report, *rest = re.split(r"\n\n(?:Steps |In use at the end, )", out.getvalue(), maxsplit=1)
        shown = (report if rest else report.partition("\n\n")[0]) + "\n...\n"
    return f"```\n$ uv run read_trace.py {found[1]}\n{shown}```"


def ladder_md() -> str:
    """Return each rung of lessons 05_d and 05_e: what it changes, what a step takes, and what the reader advised before it."""
    return "\n".join(
        [
            "# One program, from naive to the limit",
            "",
            f"{WRITTEN} A small decoder learns (`05_d_ladder.py`), and answers (`05_e_answer_ladder.py`). The lowest rung of",
            "each ladder is naive code. Each rung above it changes one thing, and keeps what the rungs before it changed.",
            "",
            "On the pages that `uv run gallery/site.py` writes, each ladder is a chapter: each rung has its trace, and one",
            "guesses what the next change brings before any of the numbers below.",
            "",
            "## Training",
            "",
            *_ladder(TRAINING, LADDER_ASKS, LADDER_SHOWS, ("optimizer", "bits"), ("compiled", "graph")),
            "",
            "## Inference",
            "",
            *_ladder(ANSWERING, ANSWER_ASKS, ANSWER_SHOWS, ("last", "cache"), ("bits", "graph")),
            "",
        ]
    )


def _ladder(of: Ladder, asks: str, shows: str, *moves: tuple[str, str]) -> list[str]:
    """Return a ladder's lines: the question, the rungs, and, folded, the tables and what they show."""
    gpu, cpu = of.measured("h200"), of.measured("cpu2")
    folder = of.folder.relative_to(ROOT)
    out = [
        "```",
        f"uv run {of.lesson} --rung naive",
        "```",
        "",
        asks,
        "",
        "```",
        *(f"uv run read_trace.py {folder}/{before}.json.gz {folder}/{after}.json.gz" for before, after in moves),
        "```",
        "",
        *(f"{number}. `{rung}`: {changes}." for number, (rung, changes) in enumerate(of.rungs.items())),
    ]
    for one in (gpu, cpu):
        rungs, has_gpu = one["rungs"], one is gpu
        out += [
            "",
            f"<details><summary>{'On a GPU' if has_gpu else 'On a CPU'}</summary>",
            "",
            f"{one['device']}, torch {one['torch']}, {one['date']}. The step is timed without the profiler: the median of "
            f'{len(rungs["naive"]["step_us"])} processes and their range. "Times as fast" compares the median with that of the '
            'rung before; the other columns are from the first process. "Advised before" is what the reader advised for the '
            "rung before.",
            "",
            _row("rung", "step", "times as fast", *(("the GPU is busy for",) if has_gpu else ()), "advised before"),
            f"|{'---|' * (5 if has_gpu else 4)}",
        ]
        for last, (rung, told) in zip((None, *rungs), rungs.items(), strict=False):
            faster = f"{times_as_fast(one, last, rung):.2f}" if last else ""
            busy = (f"{us(told['gpu_busy_us'])}, {told['verdict']}",) if has_gpu else ()
            promised = ""
            if last and (saves := rungs[last]["saves"]):
                promised = f"`{rungs[last]['advice']}`: {saves[0]:.0%} to {saves[1]:.0%}"
            out.append(_row(f"`{rung}`", with_range(one, rung), faster, *busy, promised))
        whole = times_as_fast(one, next(iter(rungs)), list(rungs)[-1])
        out += ["", f"From the first to the last rung: {whole:.1f} times as fast.", "", "</details>"]
    told = shows.format(**_of_rungs(gpu["rungs"]), left=what_is_left(of, gpu))
    return [*out, "", "<details><summary>What it shows</summary>", "", told, "", "</details>"]


def _of_rungs(rungs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return of each rung its GPU's work (ms, and `busy`: of a step), and what it saves of the one before it (ms, and shares)."""
    found: dict[str, dict[str, Any]] = {}
    before_ms = before_work_ms = math.nan
    before_us: list[float] = []
    for rung, told in rungs.items():
        also = " (the ranges over the processes overlap)" if before_us and overlap(before_us, told["step_us"]) else ""
        step_ms, work_ms = statistics.median(told["step_us"]) / 1000, told["gpu_busy_us"] / 1000
        saved_ms, less_work_ms = before_ms - step_ms, before_work_ms - work_ms
        found[rung] = {
            "advice": told["advice"],
            "launches": told["launches"],
            "work_ms": work_ms,
            "busy": work_ms / step_ms,
            "saved_ms": saved_ms,
            "less_work_ms": less_work_ms,
            "saves": saved_ms / before_ms,
            "how": f"the median step is {abs(saved_ms / before_ms):.0%} {'shorter' if saved_ms > 0 else 'longer'}{also}",
            "less_work": less_work_ms / before_work_ms,
        }
        before_ms, before_work_ms, before_us = step_ms, work_ms, told["step_us"]
    return found


DOCUMENTS: dict[Path, Callable[[], str]] = {
    DOCS / "figures.md": figures_md,
    DOCS / "claims.md": claims_md,
    DOCS / "lessons.md": lessons_md,
    DOCS / "exercises.md": exercises_md,
    ROOT / "exercises" / "solutions" / "README.md": solutions_md,
    DOCS / "ladder.md": ladder_md,
    DOCS / "cheatsheet.md": cheatsheet_md,
    DOCS / "patterns.md": patterns_md,
    DOCS / "glossary.md": glossary_md,
    DOCS / "fused_kernel.md": fused_kernel_md,
    READER / "docs" / "api.md": api_md,
    **{path: functools.partial(_with_outputs, path) for path in (READER / "README.md", READER / "docs" / "reading.md")},
}


def main() -> None:
    write_all({path: write().encode() for path, write in DOCUMENTS.items()})
    for path in DOCUMENTS:
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
