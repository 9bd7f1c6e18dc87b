"""The exercises of the course as pages, in chapters: those of the documents and those of exercises/."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
import re
from typing import Any

from exercises.judge import book
from exercises.judge.verdict import near, right_option
from exercises.judge.why_not import has_of, named, wrong_because
from gallery import ladder_pages
from gallery.figures import (
    ROOT,
    TITLES,
    Check,
    Elsewhere,
    Figure,
    asked,
    elsewhere,
    filled,
    program_of,
    recording,
    trace_of,
)
from gallery.rendering import coloured, inline, rendered, trace_file
from trace_reader import PATTERNS, Facts, Kind, pages, read_job

GALLERY, RECORDED = ROOT / "gallery", book.RECORDED
ELSEWHERE = {"llm.md": "A language model", "several_gpus.md": "Several GPUs"}
BLOG = "https://huggingface.co/blog/"
POSTS = {1: "torch-profiler", 2: "torch-mlp-fusion", 3: "torch-attention-profile"}
SIZES = {  # in the words of options
    "two thirds": 2 / 3, "nine tenths": 0.9, "a third": 1 / 3, "half": 0.5, "twice": 2.0, "three times": 3.0, "once": 1.0,
}  # fmt: skip
FRACTIONS = {0.5: "half", 0.33: "a third", 0.25: "a quarter", 0.2: "a fifth", 0.1: "a tenth", 0.01: "a hundredth"}
WORDS_TO_SAY = 40  # letters, at least: not only "No."
OF_RANKS = ("waiting", "share")  # terms of the glossary that mean this only of a job
MOST_TRACES = 3  # on a page: the exercise's own, and those that it is compared with


@dataclass(frozen=True)
class Question:
    """One field of a page: choose one of `options`, or type a number, which may be off by the share `within`. `why`: of each
    option that is wrong, why, or of any number; empty where that is not told. `seen`: of each option, what the trace has of it,
    which tells nothing of the right one; `slices`: the names of these slices. Or `mark` what shows it in the trace: `right` says
    what that is.
    """

    ask: str
    right: str | float
    options: tuple[str, ...] = ()
    unit: str = ""
    within: float = 0.0
    why: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    slices: tuple[tuple[str, ...], ...] = ()
    mark: bool = False


@dataclass(frozen=True)
class Exercise:
    """One page of the course. `about`, what the program does, `look` and `answer` are Markdown; `code` is what is shown of the
    program; `traces`: what is shown, one, two, a job's ranks; `lights` parts of the names of slices, or `finding`, or the GPU's
    `white` space: what explains the answer, and, if it `is_marked`, what one can mark. `guess`: the question as a document has
    it. `hints` and `solution`: of a program to be mended.
    """

    file: str
    label: str
    part: str
    title: str
    about: str
    code: str
    command: str
    look: str
    answer: str
    questions: tuple[Question, ...]
    traces: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    finding: str = ""
    lights: tuple[str, ...] = ()
    post: int = 0
    lesson: str = ""
    guess: str = ""
    figure: str = ""
    is_marked: bool = True
    white: bool = False
    hints: tuple[str, ...] = ()
    solution: str = ""

    @property
    def is_mended(self) -> bool:
        return self.file.startswith("mend")

    @property
    def is_rung(self) -> bool:
        return self.part in {one.chapter for one in ladder_pages.LADDERS}

    @property
    def is_job(self) -> bool:
        return len(self.traces) > 1 and "_rank" in self.traces[0].name


@dataclass(frozen=True)
class Chapter:
    """A part of the way: what one learns in it, how hard it is (1 to 3), the recording of its picture, and its exercises."""

    title: str
    learn: str
    level: int
    picture: Path
    exercises: list[Exercise] = field(default_factory=list)
    needs: str = ""  # beside a computer


def _chapters() -> list[Chapter]:
    h200 = GALLERY / "h200"
    return [
        Chapter(TITLES[1], "Read a trace: lanes, launches, steps. Is the CPU or the GPU the bottleneck?", 1,
                h200 / "01_matmul_add" / "64_bf16_cold_eager.json"),
        Chapter("Six small programs", "Mend your first programs, on your own machine.", 1, RECORDED / "01_heads.json.gz"),
        Chapter(TITLES[2], "What fuses with what, and what torch.compile changes.", 2,
                h200 / "03_simple_mlp" / "64_128_768_3072_bf16_warm_eager.json"),
        Chapter("Layers and attention", "Mend parts of a language model, on your own machine.", 1,
                RECORDED / "09_attention.json.gz"),
        Chapter(TITLES[3], "What attention costs: written out, and in torch's own implementations.", 2,
                h200 / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json"),
        Chapter("Words and numbers", "Mend three programs, or leave them as they are.", 2, RECORDED / "13_word_counts.json.gz"),
        Chapter(TITLES[4], "Kernels of one's own, decoding, training, and what the profiler costs.", 2,
                h200 / "05_c_train_step" / "2_64_4_2_16_128_512_4_64_qwen3_adamw_fused_bf16_warm_eager_active-1.json"),
        Chapter(ELSEWHERE["llm.md"], "Layers, memory and launches of a model of real size.", 3,
                GALLERY / "llm" / "eager.json.gz"),
        *(Chapter(one.chapter, one.learn, 2, one.folder / "naive.json.gz") for one in ladder_pages.LADDERS),
        Chapter("Training", "Gradients, optimizers and memory: mend, or leave.", 2, RECORDED / "14_head_on_encoder.json.gz"),
        Chapter("On a GPU", "Mend programs of a GPU.", 3,
                ROOT / "exercises" / "cases" / "22_watched_mlp.json.gz", needs="needs a GPU"),
        Chapter(ELSEWHERE["several_gpus.md"], "Which rank waits for which, and what hides behind what.", 3,
                GALLERY / "several_gpus" / "data_parallel_25mb_rank0.json.gz"),
        Chapter("Two processes", "Mend a job of your own.", 3,
                GALLERY / "several_gpus" / "data_parallel_slow30_rank0.json.gz", needs="needs two cores"),
        Chapter("Detective work: traces without a program", "Name the cause, mark the slice that proves it, predict the gain.", 3,
                ROOT / "exercises" / "cases" / "23_linear_stack.json.gz"),
        Chapter("What the device could do", "Busy is not used: of what it could compute, how much a step does.", 3,
                ROOT / "exercises" / "cases" / "34_sixteen_requests.json.gz"),
    ]  # fmt: skip


def chapters() -> list[Chapter]:
    """Return the way through, each chapter with its exercises: the posts' order, with programs to mend in between."""
    found = _chapters()
    by_title = {chapter.title: chapter for chapter in found}
    for exercise in exercises():
        by_title[exercise.part].exercises.append(exercise)
    return found


def exercises() -> list[Exercise]:
    """Return all of them: those of the documents, the ladders' rungs, then those of exercises/."""
    return [*of_documents(), *of_ladder(), *map(_of_book, book.exercises())]


def of_ladder() -> list[Exercise]:
    return [_of_rung(**fields) for one in ladder_pages.LADDERS for fields in ladder_pages.pages(one)]


def _of_rung(ask: str, right: float, within: float, trace: Path, **fields: Any) -> Exercise:
    question = Question(ask, right, (), "times", within)
    return Exercise(look="", questions=(question,), traces=(trace,), names=("",), is_marked=False, **fields)


def of_documents() -> list[Exercise]:
    found: list[Exercise] = []
    found += [_of_figure(f, TITLES[f.post], number) for number, f in asked().items()]
    for number, exercise in enumerate(elsewhere(), len(found) + 1):
        found.append(_of_document(exercise, number))
    return found


def _of_figure(f: Figure, part: str, number: int) -> Exercise:
    assert f.check is not None
    check, answer, program = f.check, filled(f.answer, f), program_of(f.command)
    return Exercise(
        file=f"exercise_{number:02}.html",
        label=f"Q{number}",
        part=part,
        title=f.title,
        about=program.does,
        code=program.code,
        command=f"uv run {f.command}",
        look=f.look,
        answer=answer,
        questions=(_checked(check, answer),),
        guess=f.guess,
        is_marked=check.mark,
        figure=f.in_words,
        traces=(*(trace_of(command) for command in f.others.values()), f.trace)[-MOST_TRACES:],
        names=(*(f"{name}: " for name in f.others), "")[-MOST_TRACES:],
        finding="" if check.lights else f.findings[0],
        lights=check.lights,
        post=f.post,
        lesson=f.command.split()[0],
    )


def _checked(check: Check, answer: str) -> Question:
    """Return a document's question; to a wrong answer the first words of the right one are said, which the recording shows."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(answer.split()))
    said = ""
    for sentence in re.split(r"(?<=[.!?]) (?=[A-Z0-9(])", plain):
        if len(said := f"{said} {sentence}".strip()) >= WORDS_TO_SAY:
            break
    why = () if "|" in said or said.startswith("- ") else (said,) * max(len(check.options), 1)
    if why and check.options:
        why = tuple(f"{_beside_what_is(option, str(check.right))} {said}".strip() for option in check.options)
    return Question(check.ask, check.right, check.options, check.unit, check.within, why)


def _beside_what_is(option: str, right: str) -> str:
    """Return how large a wrong option is beside the right one, in words; empty where these are no sizes."""
    wrong_size, right_size = _size_of(option), _size_of(right)
    if option == right or not wrong_size or not right_size:
        return ""
    ratio = wrong_size / right_size
    of_it = f"{ratio:.2g} times" if ratio > 1 else f"{FRACTIONS.get(round(ratio, 2), f'{ratio:.0%}')} of"
    return f"{option[:1].upper()}{option[1:]} would be {of_it} what the trace shows."


def _size_of(option: str) -> float | None:
    """Return the size that an option says: about 20 µs, half as many, as long; None where it says none, or a limit."""
    if "less than" in option or "falls" in option:
        return None
    if number := re.search(r"\d+(?:\.\d+)?", option):
        return float(number[0])
    size = next((size for word, size in SIZES.items() if word in option), None)
    return 1.0 if size is None and re.search(r"\bas (?:long|many|large|much)\b", option) else size


def _of_document(exercise: Elsewhere, number: int) -> Exercise:
    question, answer = in_document(exercise.document, exercise.number)
    traces = tuple(GALLERY / name for name in exercise.traces)
    files = re.sub(r"_rank\d+\.", "_rank*.", str(traces[0].relative_to(ROOT)))
    question, _, command = question.partition(" `uv run ")  # where it ends with one
    check, program = exercise.check, program_of(exercise.traces[0])
    return Exercise(
        file=f"exercise_{number:02}.html",
        label=f"Q{number}",
        part=ELSEWHERE[exercise.document],
        title=exercise.title,
        about=program.does,
        code=program.code,
        command=f"uv run {command.removesuffix('`')}" if command else f"uv run read_trace.py page {files} -o page.html",
        look=exercise.note or "The timeline: it is the recording that the answer is read from.",
        answer=answer,
        questions=(_checked(check, answer),),
        guess=question,
        traces=traces,
        names=("",) * len(traces),
        finding=exercise.finding,
        lights=check.lights,
    )


def in_document(document: str, number: int) -> tuple[str, str]:
    """Return the question and the answer of an exercise that stands in a document. Raises LookupError: it does not."""
    text = (ROOT / "docs" / document).read_text("utf-8")
    found = re.search(
        rf"^(?:### )?{number}\. ((?:(?!\n(?:### |\d+\. )).)*?)\s*<details><summary>Answer</summary>\n(.*?)</details>",
        text[text.find("## Exercises") if "## Exercises" in text else 0 :],
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        raise LookupError(f"docs/{document} has no exercise {number}")
    question, answer = (re.sub(r"^ +", "", part, flags=re.MULTILINE).strip() for part in found.groups())
    return " ".join(question.split()), answer


def _asked(choice: book.Choice, facts: Facts) -> Question:
    """Return a question of exercises.toml, with what this recording has of each wrong option."""
    right = right_option(choice, facts)
    why = tuple(wrong_because(choice, n, right, facts) for n in range(1, len(choice.options) + 1))
    slices = tuple(() if number == right else named(choice, number) for number in range(1, len(choice.options) + 1))
    seen = tuple(has_of(names, choice, facts) for names in slices)
    return Question(choice.ask, choice.options[right - 1], choice.options, why=why, seen=seen, slices=slices)


def _where(facts: Facts) -> str:
    device = facts.lesson["device"] if facts.device is None else facts.device
    torch = facts.versions.get("torch", "").partition("+")[0]
    return f"{device}, torch {torch}" if torch else str(device)


def _of_book(exercise: book.Exercise) -> Exercise:
    facts = recording(exercise.recorded[0]).facts
    questions, choices = [_asked(exercise.limits, facts)], [exercise.limits]
    if exercise.shows is not None:  # on a page it is marked, not chosen: one has to find it
        questions.append(Question(exercise.shows.ask, exercise.shows.answer, mark=True))
        choices.append(exercise.shows)
    where = "" if exercise.kind == "case" else f" (On {_where(facts)}; the command above says what it is on yours.)"
    asked = zip(questions, choices, strict=True)
    answer = "\n".join(f"- {one.ask} **{one.right}**{where if choice.bounds else ''}" for one, choice in asked)
    answer += f"\n\n{exercise.why}"
    if exercise.kind == "case":
        measured = exercise.measured
        ask = f"The change: {exercise.change}. How many times as fast did it make a step? (1: nothing)"
        questions.append(
            Question(ask, round(exercise.brought, 2), (), "times", round(near(exercise.brought) / exercise.brought, 3))
        )
        how = "without the profiler" if measured["how"] == "plain" else "with the profiler"
        where = f"{measured['device']}, torch {measured['torch']}, {measured['date']}"
        answer += (
            f"\n\nThe change, {exercise.change}, made a step **{exercise.brought:.3g} times** as fast, measured {how} on {where}."
        )
    elif exercise.kind == "leave":
        answer += f"\n\nThe obvious change, {exercise.change}, brings nothing: `uv run exercise.py {exercise.number} --leave`."
    answer += f"\n\n**Learned:** {exercise.learned}"
    part = exercise.figure.partition(":")[0]
    if exercise.where_in_the_posts:
        post = f"[{exercise.where_in_the_posts}]({BLOG}{POSTS[int(part)]})" if part in "123" else exercise.where_in_the_posts
        answer += f" It is in {post.replace(' (docs/figures.md)', '')}."
    traces = tuple(exercise.recorded)
    named = re.split(r", |: | a step", exercise.shows.answer)[0] if exercise.shows is not None else ""
    return Exercise(
        file=f"{'case' if exercise.kind == 'case' else 'mend'}_{exercise.number:02}.html",
        label=f"E{exercise.number}",
        part=exercise.chapter,
        title=exercise.title,
        about=exercise.doc,
        code="" if exercise.kind == "case" else exercise.given.read_text("utf-8").split('"""')[2].strip(),
        command=f"uv run exercise.py {exercise.number}",
        look="",
        answer=answer,
        questions=tuple(questions),
        traces=traces,
        names=("",) * len(traces),
        finding="" if exercise.lights or exercise.white else exercise.finding,
        white=exercise.white,
        lights=exercise.lights or (() if exercise.finding else (named,) if named else exercise.ops_gone),
        hints=exercise.hints,
        solution=exercise.solution.read_text("utf-8") if exercise.kind == "mend" else "",
    )


# --- A page


def page(exercise: Exercise, before: Exercise | None, after: Exercise | None, navigation: str, script: str, style: str) -> bytes:
    """Return the page of an exercise: the program, the trace, which opens with the first guess, the question, the explanation."""
    shown = _panels(exercise)
    after_it = "Look, then mend" if exercise.is_mended else "Look"
    stages = "".join(f"<li>{stage}</li>" for stage in ("Guess", after_it, "Explained"))
    body = f"""<main class="top">
{navigation}
<p class="crumb">{_crumb(exercise)}</p>
<h1>{inline(exercise.title)}</h1>
<ol class="stages">{stages}</ol>
<div class="about">{rendered(exercise.about)}</div>
{_program(exercise)}
<div id="work"><section id="trace" tabindex="-1" aria-label="The trace">{_closed(exercise)}
{_mend(exercise) if exercise.is_mended else _look(exercise)}</section>
<div id="recorded" hidden>{pages.timeline_html(job=exercise.is_job)}</div>
<section id="question" aria-label="The question">
<p id="said" role="status" tabindex="-1"></p>
<form id="guess"></form>
{TO_MARK}
<noscript><p>The course needs scripts.</p></noscript>
</section>
<aside id="selected" hidden>{pages.DETAILS}</aside></div>
<section id="answer" tabindex="-1" aria-label="Explained" hidden>
<h2>Explained</h2><div id="scale"></div>{rendered(exercise.answer)}{_explained(exercise)}
{_solution(exercise)}{_next(after)}</section></main>
{"" if exercise.is_job else DROP}
<nav class="top ends" aria-label="Beside">{_beside(before, "prev")}{_beside(after, "next")}</nav>"""
    data = {
        "lights": shown.lights if shown else [],
        "marked": exercise.is_marked,
        "white": _white(exercise),
        "told": 0 if exercise.is_job else len(exercise.traces) - 1,  # of which trace the questions' answers are told
        "late": _late(exercise),
        "names": exercise.lights if exercise.is_job or exercise.white else (),
        "questions": [asdict(question) for question in exercise.questions],
        "exercise": exercise.file,
    }
    title = f"{exercise.label}. {exercise.title}"
    without = () if exercise.is_job else OF_RANKS
    return pages.html(title, pages.with_terms(body, without), shown.panels if shown else [], data, script, style)


def _white(exercise: Exercise) -> str:
    """Return on which lanes white space is what shows the answer: the GPU's, the CPU's, or none."""
    if exercise.white or not exercise.finding or exercise.is_job:
        return "gpu" if exercise.white else ""
    seen = recording(exercise.traces[-1]).seen.get(exercise.finding)
    return "cpu" if seen is not None and seen.gaps is not None else ""


def _late(exercise: Exercise) -> int | None:
    """Return which of the ranks the others wait for, if there is one: its place among the traces."""
    job = read_job([str(path) for path in exercise.traces])[0] if exercise.is_job else None
    if job is None or job.straggler is None:
        return None
    return next(place for place, rank in enumerate(job.ranks) if rank.rank == job.straggler.rank)


def _program(exercise: Exercise) -> str:
    """Return the program's code, or the part of it that a step runs, and the command that records it."""
    code = f'<pre class="program">{coloured(exercise.code)}</pre>' if exercise.code else ""
    return code if exercise.is_mended else f"{code}{_command(exercise)}"


def _closed(exercise: Exercise) -> str:
    """Return the trace at a glance, until one has guessed."""
    facts = recording(exercise.traces[-1]).facts
    many = f"{len(exercise.traces)} traces" if len(exercise.traces) > 1 and not exercise.is_job else "The trace"
    ranks = f" of {len(exercise.traces)} ranks" if exercise.is_job else ""
    where = f"recorded on {escape(_where(facts))}"
    pictures = "".join(map(thumbnail, exercise.traces if exercise.is_job else exercise.traces[-1:]))
    return f"""<div id="closed">{pictures}<p class="key"><i class="op"></i>ops of the CPU <i class="inner"></i>ops inside them
{'<i class="kernel"></i>work of the GPU' if facts.device else ""}</p>
<p><b>{many}{ranks}</b>, {where}. Guess first: then it opens here.
<button type="button" id="open">look before guessing</button></p></div>"""


def _crumb(exercise: Exercise) -> str:
    """Return the chapter, and what else belongs to the page: its post, its lesson, its recording."""
    out = [f'<a href="index.html">{escape(_titled(exercise.part))}</a>', escape(exercise.label)]
    if exercise.post in POSTS:
        figures = f"{exercise.figure} of the post" if exercise.figure else "the post"
        out.append(f'<a href="{BLOG}{POSTS[exercise.post]}">{figures}</a>')
    if exercise.lesson:
        out.append(f"lesson <code>{escape(exercise.lesson)}</code>")
    return " · ".join(out)


def _look(exercise: Exercise) -> str:
    table = exercise.traces[-1].with_suffix(".txt")
    first = " open" * (exercise.label == "Q1")
    return f"""<div id="look" hidden>{f"<p>Look: {inline(exercise.look)}</p>" if exercise.look else ""}{_memory(exercise)}
<details{first}><summary>how to read a trace</summary>{rendered(TO_READ)}</details>
{_folded("the profiler's table", table, " open" * ("the table" in exercise.look.lower()))}
{_folded(f"the whole program, {exercise.lesson}", ROOT / exercise.lesson) if exercise.lesson else ""}</div>"""


def _memory(exercise: Exercise) -> str:
    """Return the lines on memory that the runs printed, where one is to look at these: no trace shows them."""
    if "memory that each run prints" not in exercise.look:
        return ""
    told = [
        (name, recording(path).facts.lesson["peak_memory"]) for name, path in zip(exercise.names, exercise.traces, strict=True)
    ]
    return "".join(f"<p>{escape(name)}peak memory: {escape(peak)}</p>" for name, peak in told)


def _command(exercise: Exercise) -> str:
    copy = '<button type="button" id="copy">copy</button>'
    return f'<p class="command"><code id="command">{escape(exercise.command)}</code> {copy}</p>'


TO_READ = """
- Time runs from left to right. A lane is a thread of the CPU, or a stream of the GPU.
- A slice is something that ran: a step, an annotation, an op, a call, a kernel. What lies below a slice ran inside it.
- The CPU launches, and the GPU computes: select a launch call, such as cuLaunchKernelEx, to see the arrow to its kernel.
- White space in the GPU's lane is time in which the GPU waits.
"""
TO_MARK = """<p id="marking" hidden><button type="button" id="mark" disabled>this shows it</button>
<output id="marked" aria-live="polite"></output></p>
<p><button type="button" id="explain">show the answer</button></p>"""


def _folded(title: str, path: Path, state: str = "") -> str:
    """Return a text file to unfold; nothing where it is not there."""
    if not path.is_file():
        return ""
    text = path.read_text("utf-8")
    shown = coloured(text) if path.suffix == ".py" else escape(text)
    return f'<details{state}><summary>{escape(title)}</summary><pre class="program">{shown}</pre></details>'


def _mend(exercise: Exercise) -> str:
    hints = "".join(
        f"<details><summary>Hint {n}</summary><p>{inline(hint)}</p></details>" for n, hint in enumerate(exercise.hints, 1)
    )
    return f"""<div id="look" hidden>
<p>In your clone, this command asks for your guess, records the program on your machine, and judges what you make of it:</p>
{_command(exercise)}
{hints}</div>"""


def _next(exercise: Exercise | None) -> str:
    return "" if exercise is None else f'<p><a class="go" href="{exercise.file}">next: {escape(exercise.label)}</a></p>'


def _solution(exercise: Exercise) -> str:
    if not exercise.solution:
        return ""
    return f'<details><summary>The solution</summary><pre class="program">{coloured(exercise.solution)}</pre></details>'


def _explained(exercise: Exercise) -> str:
    """Return the button of what is lit, and what the finding means."""
    if exercise.is_job:
        return _report(exercise)
    pattern = PATTERNS.get(exercise.finding)
    shown = "what the next rung changes" if exercise.is_rung else "what shows it"
    button = f'<button type="button" class="lights" data-light="0">{escape(pattern.symptom if pattern else shown)}</button>'
    name = f" <code>{exercise.finding}</code>" if pattern else ""
    meaning = f"<p>{escape(pattern.means)}</p>" if pattern else ""
    return f'<p class="finding">{button}{name}</p>{meaning}{_report(exercise)}'


def _report(exercise: Exercise) -> str:
    """Return links to the whole report of each recording that the question is about, where the course has its page."""
    paths = exercise.traces if exercise.is_job else exercise.traces[-1:]
    if exercise.is_mended or not all(path.is_relative_to(GALLERY) for path in paths):
        return ""
    of_ranks = [f" of rank {number}" for number in range(len(paths))] if exercise.is_job else [""]
    links = (f'<a href="{trace_file(path)}">the whole report{rank}</a>' for path, rank in zip(paths, of_ranks, strict=True))
    return f"<p>{', '.join(links)}</p>"


def _beside(exercise: Exercise | None, rel: str) -> str:
    if exercise is None:
        return ""
    name = f"{escape(exercise.label)}: {inline(exercise.title)}"
    return f'<a href="{exercise.file}" rel="{rel}">{f"← {name}" if rel == "prev" else f"{name} →"}</a>'


DROP = """<section id="drop" class="top" hidden><h2>Your own trace beside it</h2>
<p>Drop a trace (.json, .json.gz) or a page of <code>--html</code> here, or <label for="file">choose a file</label>. The file does
not leave this browser.</p>
<input id="file" type="file" accept=".json,.gz,.html"><p id="dropped" role="status"></p><div id="compared"></div></section>"""


def _panels(exercise: Exercise) -> pages.Panels | None:
    """Return the recordings from their first recorded step on, and what explains the answer in the last of them."""
    if exercise.is_job:
        return pages.job_panels([str(path) for path in exercise.traces])
    if not exercise.traces:
        return None
    labels = [f"{name}{path.relative_to(ROOT)}" for name, path in zip(exercise.names, exercise.traces, strict=True)]
    labels = [label.replace("gallery/", "") for label in labels]
    return pages.trace_panels(
        [recording(path) for path in exercise.traces],
        labels,
        exercise.finding,
        lambda name: any(part in name for part in exercise.lights),
        exercise.white,
    )


# --- The start page


def start_page(navigation: str, script: str, style: str) -> bytes:
    """Return what one learns, how far one is, and the chapters, each with a picture."""
    every = chapters()
    count = sum(len(chapter.exercises) for chapter in every)
    cards = "".join(_card(number, chapter) for number, chapter in enumerate(every, 1))
    body = f"""<main class="text">{navigation}
<h1>Profiling in PyTorch: guess first, then look</h1>
<p class="lead">You will read a trace and say what limits a program, predict what a change brings, make the change,
and see whether you were right. {count} exercises, each with a recording or a program: say your guess, look yourself, mark the
slice that shows it, and only then read why.</p>
<p class="lead">You need to know basic PyTorch, and nothing of traces. Questions and cases need only a browser. To mend a program,
you need a clone of the repository and uv (<code>pip install uv</code>): each of these pages has its command. Q7 is the
seventh question, E3 the exercise that <code>uv run exercise.py 3</code> starts.</p>
<p><a id="continue" class="go" href="{every[0].exercises[0].file}">begin</a> <span id="progress" aria-live="polite"></span></p>
<p id="asks" class="head"></p>
<progress id="far" max="{count}" value="0" aria-label="done of {count} exercises"></progress>
<section id="again" hidden><h2>Come again</h2><p>Questions that you missed, some pages ago:</p><ul></ul></section>
<div class="chapters">{cards}</div>
<p class="head">The minutes of a chapter: one for each 200 words and each question, five for each program to mend.</p>
<p>Your progress is kept in this browser only. <button type="button" id="forget">forget it</button></p></main>"""
    return pages.html("Profiling in PyTorch", body, [], {}, script, style)


def _titled(chapter: str) -> str:
    """Return a chapter's title without its number: the cards are numbered themselves."""
    title, _, rest = chapter.partition(": ")
    shown = rest or title
    return shown[:1].upper() + shown[1:]


WORDS_A_MINUTE, TO_LOOK, TO_MEND = 200, 1, 5  # minutes: a question, and a program


def minutes(chapter: Chapter) -> int:
    """About how long a chapter takes: to read it, to look for each answer, and to mend each program; no one was timed."""
    read = (
        sum(len(f"{exercise.about} {exercise.code} {exercise.look} {exercise.answer}".split()) for exercise in chapter.exercises)
        / WORDS_A_MINUTE
    )
    look = sum(TO_LOOK * len(exercise.questions) for exercise in chapter.exercises)
    mend = sum(TO_MEND * exercise.is_mended for exercise in chapter.exercises)
    return 5 * max(1, round((read + look + mend) / 5))


LEVELS = {1: "for a start", 2: "with some practice", 3: "harder"}


def _card(number: int, chapter: Chapter) -> str:
    items = "".join(
        f'<li><span class="label">{exercise.label}</span> <a href="{exercise.file}" data-exercise="{exercise.file}">'
        f'{inline(exercise.title)}</a> <span class="state"></span></li>'
        for exercise in chapter.exercises
    )
    kind = "to mend" if chapter.exercises[0].is_mended else "to look at"
    needs = f' <span class="needs">{escape(chapter.needs)}</span>' if chapter.needs else ""
    count = len(chapter.exercises)
    return f"""<section class="chapter"><h2><span class="number">{number}</span> {escape(_titled(chapter.title))}{needs}</h2>
{thumbnail(chapter.picture)}
<p>{escape(chapter.learn)}</p>
<p class="facts">{count} {kind} · {LEVELS[chapter.level]} · about {minutes(chapter)} minutes</p>
<progress max="{count}" value="0" aria-label="done of {count}"></progress>
<details><summary>exercises <span class="done"></span></summary><ul>{items}</ul></details>
<p class="next"></p></section>"""


WIDE, ROW, MOST_BOXES = 320, 16, 500


def thumbnail(path: Path) -> str:
    """Return a recording as a small picture: the ops of its steps above, the GPU's work below."""
    trace = recording(path).trace
    ops = [(op.start_us, op.end_us) for op in trace.ops]
    work = [(a.event.start_us, a.event.end_us) for a in trace.activities() if a.event.kind in (Kind.KERNEL, Kind.MEMCPY)]
    begin = trace.steps[0].start_us
    end = max(high for _, high in [*ops, *work] if high > begin)
    boxes = [*_boxes(_outer(ops), begin, end, "op", 0), *_boxes(_inner(ops), begin, end, "inner", ROW)]
    boxes += _boxes(work, begin, end, "kernel", 2 * ROW) if work else []
    high = ROW * (3 if work else 2)
    return f'<svg class="thumb" viewBox="0 0 {WIDE} {high}" preserveAspectRatio="none" aria-hidden="true">{"".join(boxes)}</svg>'


def _outer(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return those that are in no other."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or start >= found[-1][1]:
            found.append((start, end))
    return found


def _inner(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of those that are in another, the outermost."""
    outer = set(_outer(spans))
    return _outer([span for span in spans if span not in outer])


def _boxes(spans: Sequence[tuple[float, float]], begin: float, end: float, name: str, y: int) -> list[str]:
    """Rectangles, of those narrower than a quarter of a unit only the first."""
    scale, found, last = WIDE / (end - begin), [], -1.0
    for start, stop in sorted(spans):
        x, wide = (start - begin) * scale, (stop - start) * scale
        if x < 0 or (wide < 0.25 and x - last < 0.5):
            continue
        last = x
        found.append(f'<rect class="{name}" x="{x:.1f}" y="{y + 1}" width="{max(wide, 0.3):.1f}" height="{ROW - 2}"/>')
    return found[:MOST_BOXES]
