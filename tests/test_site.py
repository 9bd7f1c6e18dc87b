"""What the course asks, and what is right, by its exercises; without a browser."""

from dataclasses import replace
import html
import itertools
import json
import math
import re
import statistics

from exercises.judge.book import exercises
from exercises.judge.verdict import near
from exercises.judge.why_not import named
from gallery import docs, exercise_pages, site
from gallery.figures import figures, filled, recording, trace_of
from gallery.rendering import coloured, rendered
from helpers import GALLERY, ROOT
from helpers.course import BOOK, EVERY, every, number_of
import pytest
from trace_reader.model.slices import Kind

DOCUMENTS = {"lessons.md": 47, "llm.md": 3, "several_gpus.md": 8}
# Right answers that the text leaves to the reader to work out: by the exercise's number.
WORKED_OUT = {2, 8, 24, 27, 29, 33, 36, 38, 39, 50}


def test_every_exercise_of_the_documents_is_there_with_its_own_text():
    found = []
    for name, n in DOCUMENTS.items():
        text = (ROOT / "docs" / name).read_text()
        asked = len(re.findall(r"<details><summary>Answer</summary>", text))
        assert asked == n
        found += [" ".join(text.split())] * n
    assert len(EVERY) == len(found) == 58
    for one, text in zip(EVERY, found, strict=True):
        assert one.guess in text
        assert " ".join(one.answer.split()) in text
    assert site.cheatsheet_md is docs.cheatsheet_md and site.figures_md is docs.figures_md


@pytest.mark.parametrize("own", EVERY, ids=lambda one: one.file)
def test_what_is_right_is_what_the_answer_says(own):
    (check,) = own.questions
    assert check.ask.endswith("?") and bool(check.unit) == (not check.options)
    if isinstance(check.right, str):
        assert check.right in check.options and len(check.options) > 1 and not check.within
        return
    assert not check.options and 0 <= check.within < 1
    said = {float(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", own.answer)}
    words = {"One": 1, "5": 5, "In two": 2, "Each step makes 2": 2}
    said |= {float(value) for word, value in words.items() if own.answer.startswith(word)}
    assert check.right in said or number_of(own) in WORKED_OUT, (check, sorted(said))


def test_what_is_worked_out_is_right():
    by_number = {number_of(one): one for one in EVERY}

    def facts(number):
        return recording(by_number[number].traces[-1]).facts

    launched = [one for one in recording(by_number[7].traces[-1]).trace.activities() if one.event.kind == Kind.KERNEL]
    kernels = [[one.event for one in launched if one.step == step] for step in range(len(facts(7).steps))]
    gaps_us = [second.start_us - first.end_us for first, second in kernels]
    assert sum(gap > 30 for gap in gaps_us) == by_number[7].questions[0].right and len(gaps_us) == 20
    assert sum(bool(one.occupancy_queries) for one in facts(11).steps) == by_number[11].questions[0].right
    right = {number: by_number[number].questions[0].right for number in WORKED_OUT}
    step = facts(8).usual_step
    trace = recording(by_number[8].traces[-1]).trace
    slice_ = next(one for one in trace.steps if one.name == step.name)
    inside = [op.name for op in trace.ops if slice_.start_us <= op.start_us < slice_.end_us and op.name.startswith("aten::")]
    assert len(inside) == right[8]
    compiling = [found for found in facts(24).findings if found.slug == "recompile"]
    (grown,) = [f for f in figures() if f.post == 1 and f.figure == "2"]
    totals_us = [float(filled(total, grown).split()[0]) for total in ("{gpu_total}", "{small.gpu_total}")]
    assert totals_us[0] / totals_us[1] == pytest.approx(right[2], rel=0.01)
    assert right[24] == 2 and "2 compiled" in compiling[0].seen
    assert facts(27).usual_step.kernels == right[27]
    assert facts(29).usual_step.kernels + facts(29).usual_step.memcpys + facts(29).usual_step.memsets == right[29]
    own, five = facts(33).usual_step.gpu_busy_us, facts(30).usual_step.gpu_busy_us
    assert five / own == pytest.approx(right[33], rel=0.03)
    ops = {op.name: op.calls for op in facts(36).ops}
    assert ops.get("aten::transpose", 0) == right[36]
    assert facts(38).usual_step.gpu_busy_us / facts(29).usual_step.gpu_busy_us == pytest.approx(right[38], rel=0.02)
    assert right[39] == 258.0 / 64.5 and "258.0 MiB" in by_number[39].answer and "64.5 MiB" in by_number[39].answer
    # 7.7 of 15.7 GiB are the layers': more than the weights and the optimizer's 3.4, or the logits' 4 x 1.2.
    assert by_number[50].questions[0].right == "layers" and "7.7 GiB are activations" in by_number[50].answer


@pytest.mark.parametrize(
    ("post", "figure", "options", "ratio"),
    [
        (1, "1", (3, 30, 300), "{cpu_total} / {gpu_total}"),
        (1, "5, 6", (1, 3, 30), "{warm.first_cpu} / {warm.cpu_us}"),
        (1, "queue", (2, 20, 200), "{last_lag} / 1.0 µs"),
        (1, "self and total", (0.05, 0.5, 1), "{op_self} / {op_total}"),
        (1, "15, 16", (0.5, 1, 5), "{gemm_footprint} / {add_footprint}"),
        (1, "exercise: tiny", (1, 3, 10), "{cpu_us} / {eager.cpu_us}"),
        (2, "4, 5", (0.5, 1, 2), "{cpu_us} / {eager.cpu_us}"),
        (2, "9, table", (7, 30, 70), "3431 / 48"),  # GB/s, and a hundredth of what NVIDIA publishes
        (2, "12-14", (0.8, 1, 1.2), "{fused_us} / {compiled.fused_us}"),
        (3, "18, 22", (0.6, 1.2, 2.4), "{attention_us} / {flash.attention_us}"),
        (4, "bandwidth", (1 / 3, 1, 3), "4244 / 1500"),  # GB/s, of the same bytes
        (4, "own kernel", (0.7, 1, 1.4), "{fused_us} / {compiled.fused_us}"),
    ],
)
def test_of_several_sizes_the_right_one_is_the_nearest(post, figure, options, ratio):
    """As a ratio, by the recording."""
    (one,) = [f for f in figures() if f.post == post and f.figure == figure]
    above, below = (float(side.split()[0]) for side in filled(ratio, one).split(" / "))
    assert all(f"{number} GB/s" in filled(one.answer, one) for number in re.findall(r"\b\d{4}\b", ratio))
    assert one.check is not None
    distances = [abs(math.log(option * below / above)) for option in options]
    assert one.check.options[distances.index(min(distances))] == one.check.right


def test_the_recordings_of_a_page_have_their_own_names_and_the_table_is_that_of_its_command():
    several = 0
    for one in EVERY:
        figure = next((f for f in figures() if f"uv run {f.command}" == one.command and f.guess == one.guess), None)
        if figure is not None:
            names = {trace_of(command): f"{name}: " for name, command in figure.others.items()} | {figure.trace: ""}
            assert [names[trace] for trace in one.traces] == list(one.names)
            several += len(names) > len(one.names)
            table = html.escape(figure.trace.with_suffix(".txt").read_text("utf-8").strip())
            assert table in exercise_pages._look(one)
    assert several  # more than a page shows


def test_the_recordings_of_a_pair_have_the_right_names():
    """Those that are beside it come first, under their names; the exercise's own comes last, without."""
    pairs = [(one, figure) for one in EVERY for figure in figures() if f"uv run {figure.command}" == one.command and figure.pair]
    pairs = [(pair, figure) for pair, figure in pairs if pair.guess == figure.guess]
    assert pairs
    for pair, figure in pairs:
        shown = exercise_pages._panels(pair)
        assert shown is not None
        labels = [panel.head["label"] for panel in shown.panels]
        beside = [f"{name}: {trace_of(command).relative_to(GALLERY.parent)}" for name, command in figure.others.items()]
        assert labels == [*beside, str(figure.trace.relative_to(GALLERY.parent))][-3:] and len(labels) > 1


def test_programs_are_coloured_and_cut_ones_are_as_they_are():
    told = coloured('def f(x):  # "one"\n    return "<" + f"{x}" * 2\n')
    assert told == (
        '<span class="k">def</span> f(x):  <span class="c"># &quot;one&quot;</span>\n    <span class="k">return</span> '
        '<span class="s">&quot;&lt;&quot;</span> + <span class="s">f&quot;</span>{x}<span class="s">&quot;</span> * '
        '<span class="n">2</span>\n'
    )
    assert coloured('def f(:\n  """cut & ') == "def f(:\n  &quot;&quot;&quot;cut &amp; "
    for exercise in exercise_pages.exercises():
        assert html.unescape(re.sub(r"<[^>]*>", "", coloured(exercise.code))) == exercise.code


def test_the_cells_of_a_table_say_what_they_are_of():
    table = rendered("| *op* | time |\n|---|---|\n| mm | 1 |\n| add | 2 |\n")
    assert re.findall(r'<td data-head="(\w+)">(\w+)', table) == [("op", "mm"), ("time", "1"), ("op", "add"), ("time", "2")]


def test_the_minutes_of_a_chapter_are_for_reading_looking_and_mending():
    one = replace(EVERY[0], about="word " * 1000, code="", look="", answer="")  # five minutes of words, one question
    chapter = replace(exercise_pages.chapters()[0], exercises=[one] * 4)
    assert exercise_pages.minutes(chapter) == 25  # 24
    assert exercise_pages.minutes(replace(chapter, exercises=[replace(one, file="mend_01.html")] * 4)) == 45  # 44
    assert exercise_pages.minutes(replace(chapter, exercises=[])) == 5


OVERLAP = {("h200", "compiled"), ("answer_h200", "bits"), ("answer_h200", "compiled")}


def test_each_rung_of_the_ladder_asks_what_the_next_one_brings():
    """Its trace names the change, its code has it, and the last one's answer says how near it is to the GPU's own work."""
    every = exercise_pages.of_ladder()
    rungs, answers = every[:9], every[9:]
    assert [one.label for one in every] == [*(f"L{n}" for n in range(9)), *(f"A{n}" for n in range(8))]
    for of_ladder, file in ((rungs, "h200"), (answers, "answer_h200")):
        measured = json.loads((ROOT / "benchmarks" / "ladder" / f"{file}.json").read_text())["rungs"]
        for one, (before, after) in zip(of_ladder, itertools.pairwise(measured), strict=True):
            reading = recording(one.traces[0])
            seen, names = reading.facts, reading.trace.slices.names
            assert one.finding in [finding.slug for finding in seen.findings] or any(one.lights[0] in name for name in names)
            times = statistics.median(measured[before]["step_us"]) / statistics.median(measured[after]["step_us"])
            if after in ("no_grad", "room") and file == "answer_h200":
                assert one.questions[0].right == 1 and one.answer.startswith("**Nothing**: no difference is larger than ")
            else:
                also = " (the ranges over the processes overlap)" if (file, after) in OVERLAP else ""
                assert one.answer.startswith(f"**{times:.2f} times** as fast{also}: ")
                assert one.questions[0].right == round(times, 2)
            assert f'"{after}"' in one.code or after in ("reads", "optimizer", "cache", "room", "compiled", "graph", "bits")
    assert "the last rung: 19.0 times as fast as the first. A step takes no less than its reads: " in answers[-1].answer
    assert answers[-1].answer.endswith(" it has to read the weights and the cache once. These 175 MB take 36.5 µs "
                                       "at the memory's published rate. The reads for all tokens take 291.9 µs; a step of the "
                                       "last rung takes 17 times as long.")  # fmt: skip
    # What the reader advises is told where it is this change; a difference, where the processes do not overlap.
    assert [one.label for one in rungs if "The reader had said this first" in one.answer] == ["L6", "L7", "L8"]
    assert "The reader had said this first: `fp32-cuda-cores`, which saves 40% to 78% of a step; it saved 74%." in rungs[6].answer
    assert ", no difference is larger than what one process differs from the other: 9.10 ms (" in rungs[6].answer
    assert ", a step is 1.33 times as fast: 11.06 ms (10.57 ms to 12.43 ms), then 8.34 ms (8.22 ms to 9.58 ms)" in rungs[7].answer
    assert (
        "This is the last rung: 16.9 times as fast as the first." in rungs[-1].answer and "54% of it, and has" in rungs[-1].answer
    )


def test_hardly_a_question_is_one_of_yes_and_no():
    """Half of these are right without a look."""
    assert [number_of(one) for one in EVERY if set(one.questions[0].options) == {"yes", "no"}] == [22]


def test_the_right_option_is_not_always_the_same_one():
    """Of the questions about a size, whose options rise: the first, the second or the third of them."""
    places = [one.options.index(one.right) for one in (each.questions[0] for each in EVERY) if len(one.options) == 3]
    assert min(places.count(place) for place in range(3)) >= 5, places


def test_the_command_of_a_jobs_exercise_reads_all_of_its_ranks():
    jobs = [one for one in EVERY if any("_rank" in path.name for path in one.traces) and "read_trace.py" in one.command]
    assert jobs
    for job in jobs:
        pattern = next(word for word in job.command.split() if ".json" in word)
        assert {ROOT / path for path in ROOT.glob(pattern)} >= set(job.traces), job.command


@pytest.mark.parametrize("number", [one.number for one in BOOK if len(one.recorded) == 1])
def test_what_lights_up_are_slices_of_that_name(number):
    (own,) = (one for one in every() if one.file in (f"mend_{number:02}.html", f"case_{number:02}.html"))
    names = set(recording(own.traces[-1]).trace.slices.names)
    assert [bool(own.lights) and not own.white, bool(own.finding), own.white].count(True) == 1
    assert not own.finding or own.finding in {finding.slug for finding in recording(own.traces[-1]).facts.findings}
    assert all(any(light == name or (light in name and len(light) > 4) for name in names) for light in own.lights)


def test_what_is_said_of_a_wrong_answer_is_how_the_right_one_begins():
    for one in EVERY:
        (question,) = one.questions
        assert len(question.why) == max(len(question.options), 1) or number_of(one) in (
            53,
            57,
        )  # which begin with a table or list
        told = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(one.answer.split()))
        behind = [re.sub(r"^.{,80}? what the trace shows\. ", "", why) for why in question.why]
        assert all(told.startswith(why) and why[-1] in ".!?" for why in behind)


def test_a_wrong_size_is_told_beside_the_right_one():
    for number, option, said in (
        (5, "about 2 µs", "About 2 µs would be a hundredth of what the trace shows. About 200 µs: "),
        (23, "about half as long", "About half as long would be a quarter of what the trace shows. It takes longer: "),
        (19, "about 10 times as long", "About 10 times as long would be 3.3 times what the trace shows. About 3 times as long: "),
        (9, "about 5%", "About 5%: in the middle step "),  # it is right
        (14, "about 10%", "Here they agree: "),  # beside a limit
        (13, "program", "The profiler makes the call, "),
        (30, "it falls by half", "The peak stays the same: "),
    ):
        (question,) = EVERY[number - 1].questions
        assert question.why[question.options.index(option)].startswith(said)


def test_the_ranks_of_a_job_that_is_asked_about_do_not_say_who_waits():
    """Its bar of rank 0 says that it communicates; it is where this is lit that it waited."""
    page = exercise_pages._of_book(next(one for one in BOOK if one.name == "30_two_gpus"))
    shown = exercise_pages._panels(page)
    assert shown is not None
    assert [{text for text, *_ in one.head["bands"][0]["texts"]} for one in shown.panels] == [
        {"idle", "copy", "compute", "communication"}
    ] * 2
    assert {len(spans) > 0 for spans in shown.lights[0]["spans"].values()} == {True} and len(shown.lights[0]["spans"]) == 2


@pytest.mark.parametrize("own", [exercise for exercise in exercises() if exercise.kind == "case"], ids=lambda one: one.name)
def test_a_guess_of_a_gain_counts_as_right_where_it_does_in_the_terminal(own):
    question = exercise_pages._of_book(own).questions[-1]
    assert question.within * float(question.right) == pytest.approx(near(own.brought), rel=0.02)


@pytest.mark.parametrize("own", [one for one in BOOK if one.kind == "case" and "_rank" not in one.traces[0]],
                         ids=lambda one: one.name)  # fmt: skip
def test_no_slice_of_a_wrong_option_is_a_right_mark(own):
    page = exercise_pages._of_book(own)
    shown = exercise_pages._panels(page)
    assert shown is not None
    lit = shown.lights[0]
    names = shown.panels[-1].head["names"]
    right = {names[n] for n in lit.get("names", {}).get(0, [])}
    if "rows" in lit:  # some slices of a name: the others of it count as well
        right |= set(recording(page.traces[-1]).seen[page.finding].evidence.names)
    labels = shown.panels[-1].head["labels"]
    wrong = {name for n in range(1, len(own.shows.options) + 1) if n != own.shows.right for name in named(own.shows, n)}
    clash = {name for name in wrong for n, full in enumerate(names) if full in right and name in (full, labels.get(n))}
    assert not clash
    assert lit.get("spans") or lit.get("names") or lit.get("rows")
