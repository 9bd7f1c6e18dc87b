"""The course as pages: what a guess brings, progress, one's own trace beside the recording; in a real browser."""

import gzip
import itertools
import json
import re
import subprocess
import sys

from gallery import exercise_pages
from gallery.figures import recording
from helpers import GALLERY, ROOT
from helpers.course import BOOK, EVERY, every, number_of
import pytest
from reader_helpers import keep_screen
from reader_helpers.browser import LIT
from trace_reader import PATTERNS, cli

pytestmark = pytest.mark.slow  # the pages are written, and opened in a browser, dozens of times


def _write(out):
    command = [sys.executable, "gallery/site.py", "--out", str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder to which the command wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("out") / "site"
    return folder, _write(folder)


@pytest.fixture(scope="module")
def folder(written):
    return written[0]


@pytest.fixture(scope="module")
def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_command(written, tmp_path):
    folder, ran = written
    assert (ran.returncode, ran.stderr) == (0, "")
    n = len(list(folder.iterdir()))
    assert re.fullmatch(rf"wrote {n} pages \([\d.]+ MiB\); open {re.escape(str(folder / 'index.html'))}\n", ran.stdout)
    (tmp_path / "file").write_text("mine")
    ran = _write(tmp_path / "file")
    assert (ran.returncode, ran.stderr) == (1, f"error: {tmp_path / 'file'}: File exists\n")


def test_the_start_page_has_a_chapter_for_each_part_with_a_picture_and_its_exercises(files):
    chapters = exercise_pages.chapters()
    assert [exercise for chapter in chapters for exercise in chapter.exercises] != every()  # programs to mend stand in between
    assert sorted(exercise.file for chapter in chapters for exercise in chapter.exercises) == sorted(one.file for one in every())
    assert all(chapter.exercises for chapter in chapters) and len(every()) == 58 + 9 + 8 + 34
    index = files["index.html"].decode()
    assert index.count('<svg class="thumb"') == len(chapters) and index.count("data-exercise=") == len(every())
    assert f"{len(every())} exercises, each with" in index


def test_a_page_tells_of_the_program_then_of_the_trace_and_asks_then(files):
    for one in every():
        text = files[one.file].decode()
        places = [text.index(f"<{each}") for each in ('div class="about"', 'section id="trace"', 'section id="question"')]
        assert places == sorted(places), one.file
        assert len(one.title) <= 40 and one.about.strip(), one.file
        assert one.code or one.file.startswith("case"), one.file


def test_what_a_run_printed_of_its_memory_stands_where_one_is_to_look_at_it(files):
    told = [one for one in EVERY if "peak memory: " in files[one.file].decode().partition('<section id="answer"')[0]]
    assert [number_of(one) for one in told] == [30, 39]
    text = files[told[0].file].decode()
    assert "<p>a: peak memory: 577.0 MiB of tensors" in text and "<p>peak memory: 577.0 MiB of tensors" in text


def test_a_trace_can_be_opened_before_a_guess(folder, opened):
    page = opened(folder / EVERY[0].file, wait="html[data-asked]")
    assert page.is_visible("#closed") and page.is_hidden("#recorded") and page.is_hidden("#drop")
    page.click("#open")
    page.wait_for_function("() => exercise.report")
    assert page.is_hidden("#closed") and page.is_visible("#recorded") and page.is_visible("legend") and page.is_visible("#drop")
    assert page.evaluate("document.activeElement.id") == "trace"  # the button that was pressed is gone
    assert guess(page, "about 30 times as large") == "Right."


def guess(page, typed):
    """Return a guess: a button where there are options, else what is typed."""
    if page.query_selector("#typed"):
        page.fill("#typed", typed)
        page.click("#guess button[type=submit]")
    else:
        page.click(f".option:text-is({json.dumps(typed, ensure_ascii=False)})")
    return page.inner_text("#said")


def explained(page):
    page.click("#explain")
    page.wait_for_selector("html[data-ready]", state="attached")
    page.wait_for_selector("#answer", state="visible")


RIGHT_MARK = """() => { const found = exercise.lit(), { spans } = report.timeline, { white, late } = exercise.data;
    report.timeline.light(null);
    for (const [k, panel] of report.panels.entries()) {
        const [first] = found[k];
        if (first !== undefined) { report.timeline.select(panel, first); return; }
        const inside = (at) => spans.some(([n, from, to]) => n === k && from <= at && at <= to);
        if (white) for (const lane of panel.lanes.filter((one) => Boolean(one.gpu) === (white === "gpu"))) {
            const { start, end } = panel.workOf(lane);
            const isOne = (n) => start[n] > end[n - 1] && inside((start[n] + end[n - 1]) / 2 - panel.shift);
            const n = [...start.keys()].find((at) => at && isOne(at));
            if (n !== undefined) { report.timeline.selectWhite(panel, lane, [end[n - 1], start[n]]); return; } }
        else for (let i = 0; i < panel.n; i++)
            if (inside((panel.start[i] + panel.end[i]) / 2 - panel.shift) && /^(nccl|gloo):/.test(panel.names[panel.name[i]])) {
                report.timeline.select(panel, i); return; }
    }
    const [panel] = report.panels, isNamed = (i) => exercise.data.names.some((part) => panel.called(i).includes(part));
    report.timeline.select(panel, [...Array(panel.n).keys()].find(isNamed)); }"""


def mark_rightly(page):
    """Mark what an exercise's question for a mark asks for, and return what is said."""
    page.wait_for_function("() => exercise.report")
    page.evaluate(RIGHT_MARK)
    page.click("#mark")
    return page.inner_text("#said")


def ask_again(page, number):
    page.evaluate("(number) => { exercise.guesses[number] = []; exercise.ask(number); }", number)


SELECT_FIRST = "Select a slice or white space first: click it, or use the arrow keys, and G for the white space behind a slice."
MARK = " Mark what shows it, or read why."


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted({one.part for one in EVERY} | {one.chapter for one in BOOK}))
def test_a_right_guess_shows_the_recording_and_the_explanation_lights_its_slices(folder, opened, part):
    for item in (one for one in every() if one.part == part and one.traces):
        page = opened(folder / item.file, wait="html[data-asked]")
        for check in item.questions:
            if check.mark:
                said = mark_rightly(page)
                assert said.startswith("Right: "), (item.file, said)
                continue
            said = guess(page, check.right if check.options else f"{check.right:,} {check.unit}")
            assert said.removesuffix(MARK).removesuffix(" And then:") == "Right.", (item.file, said)
        page.wait_for_selector("html[data-ready]", state="attached")
        page.wait_for_function("() => exercise.report")
        assert page.is_visible("#lanes") and page.evaluate("report.panels.reduce((n, p) => n + p.n, 0)") > 0
        shown = page.evaluate("report.panels.length - 1")
        assert page.is_hidden("#answer") and page.evaluate(LIT, shown) == []
        explained(page)
        lit, spans = page.evaluate(LIT, shown), page.evaluate("report.timeline.spans.length")
        if item.finding and not item.is_job:
            reading = recording(item.traces[-1])
            evidence = next((finding.evidence for finding in reading.facts.findings if finding.slug == item.finding), ())
            if item.finding in reading.seen and reading.seen[item.finding].gaps is not None:
                assert spans and not lit  # the white space, and not what is around it
            else:
                assert {each.name for each in evidence} <= {name for name, *_ in lit}
            assert page.inner_text(".finding") == f"{PATTERNS[item.finding].symptom} {item.finding}"
        if item.lights and not item.is_job and not item.white:
            assert lit and all(any(part in name for part in item.lights) for name, *_ in lit)
            assert page.inner_text(".finding") == "what shows it"
        assert lit or spans or item.is_job
        page.context.close()


def test_a_guess_a_second_one_a_mark_and_the_progress(folder, opened):
    page = opened(folder / "index.html")
    assert page.inner_text("#progress") == "109 exercises" and page.inner_text("#continue") == "begin"
    page.click("#continue")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert page.inner_text("legend").startswith("The profiler's table ends with two totals.") and page.is_hidden("#recorded")
    assert guess(page, "about 3 times as large") == "Not that. Look at the trace, and guess again."
    page.wait_for_function("() => exercise.report")
    assert page.is_visible("#recorded") and page.is_hidden("#answer") and page.inner_text("[aria-current=step]") == "Look"
    keep_screen(page, "exercise_look")
    assert page.is_hidden("#marking")  # the table shows it, no slice does
    assert page.is_visible("#look pre") and page.is_visible("#look li >> nth=0")  # it is unfolded, and how to read a trace, too
    explained(page)
    assert "it waits for the CPU" in page.inner_text("#answer") and page.inner_text("[aria-current=step]") == "Explained"
    keep_screen(page, "exercise_answered")
    page.click("a[rel=next]")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert guess(page, "4096") == "Not that. It is far too high. Look at the trace, and guess again."
    assert guess(page, "69") == f"Right, the second time.{MARK}"
    explained(page)
    scale = "your guess: 4,096 times, second guess: 69 times, right: 69 times (from about 55 to 83)"
    assert page.get_attribute(".scale", "aria-label") == scale
    page.reload()
    page.wait_for_selector("html[data-asked]", state="attached")
    again = "Last time: right the second time."
    assert page.inner_text("#said") == again
    page.goto((folder / EVERY[2].file).as_uri())
    assert guess(page, "about 3 times as long").startswith("Right.")
    explained(page)
    page.goto((folder / "index.html").as_uri())
    progress_is(page, "3 of 109 done, 1 right at the first guess")
    assert page.inner_text("#continue") == "continue: Q4" and page.inner_text("#asks") == "From launch to kernel"
    far, card = (page.eval_on_selector(which, "one => [one.value, one.max]") for which in ("#far", ".chapter progress"))
    assert (far, card) == ([3, 109], [3, 20])
    assert page.inner_text(".chapter >> nth=0 >> .next") == "next: Q4" and page.inner_text(".needs >> nth=0") == "needs a GPU"
    assert page.inner_text(".chapter >> nth=0 >> .done") == "· 3 of 20 done" and page.is_hidden("#again")
    page.click(".chapter >> nth=0 >> summary")
    states = ["seen", "✓ right the second time", "✓ right", ""]
    assert [page.inner_text(f".state >> nth={n}") for n in range(4)] == states
    keep_screen(page, "index")


def test_a_slice_is_marked_that_shows_it(folder, opened):
    page = opened(folder / EVERY[3].file, wait="html[data-asked]")
    assert guess(page, "1.9") == f"Right.{MARK}"
    page.wait_for_function("() => exercise.report")
    assert page.is_disabled("#mark") and page.is_disabled("#typed") and page.input_value("#typed") == "1.9"
    assert page.inner_text("#marked") == SELECT_FIRST
    select = """([name, gpu]) => { const p = report.panels[0]; for (let i = 0; i < p.n; i++)
        if (p.names[p.name[i]] === name && p.laneOf(i).gpu === gpu) { report.timeline.select(p, i); break; } }"""
    for name, gpu, said in (
        ("ProfilerStep#2", False, r"Not this one: ProfilerStep#2 takes [\d.]+ µs\. Look again, or read why\."),
        ("matmul_add", True, r"Not this one: 3 \S matmul_add take [\d.]+ µs\. Look again, or read why\."),
        ("aten::matmul", False, "Yes: what shows it is in it."),
        ("cuLaunchKernelEx", False, r"Yes: it is one of \d+ that do, [\d.]+ µs together\."),
    ):  # fmt: skip
        page.evaluate(select, [name, gpu])
        assert page.inner_text("#marked") == ""  # of the slice before
        page.click("#mark")
        assert re.fullmatch(said, page.inner_text("#marked"))
    page.evaluate("report.timeline.measure(...report.timeline.selected)")  # it stays selected
    assert page.is_enabled("#mark")
    page.evaluate("report.timeline.select(null)")
    assert page.is_disabled("#mark") and page.inner_text("#marked") == SELECT_FIRST


@pytest.mark.parametrize(
    ("file", "slices"),
    [
        ("exercise_52.html", {"ncclDevKernel": True, "nccl:": True, "c10d::": True, "ProfilerStep": False, "aten::": False}),
        # On a CPU, where a collective is an annotation of the process group's.
        ("mend_33.html", {"gloo:": True, "c10d::": True, "ProfilerStep": False, "aten::mm": False}),
    ],
)
def test_of_a_job_only_a_collective_lies_where_it_shows(folder, opened, file, slices):
    page = opened(folder / file, wait="html[data-asked]")
    for answer in (question.right for one in every() if one.file == file for question in one.questions):
        assert guess(page, answer).startswith("Right.")
    page.wait_for_function("() => exercise.report")
    select = """(begins) => { exercise.lit(); const spans = report.timeline.spans;
        for (const [k, p] of report.panels.entries()) for (let i = 0; i < p.n; i++) {
            const at = (p.start[i] + p.end[i]) / 2 - p.shift;
            const lies = spans.some(([n, from, to]) => n === k && from <= at && at <= to);
            if (lies && p.names[p.name[i]].startsWith(begins)) { report.timeline.select(p, i); return true; } }
        return false; }"""
    for begins, shows in slices.items():
        assert page.evaluate(select, begins), begins
        page.click("#mark")
        assert page.inner_text("#marked").startswith("Yes: ") is shows, begins


def progress_is(page, told):
    """What one page has stored may come late to another, on a busy machine."""
    page.wait_for_function("(told) => document.getElementById('progress').textContent.startsWith(told)", arg=told)


def answer_rightly(page, folder, exercises):
    for exercise in exercises:
        page.goto((folder / exercise.file).as_uri())
        guess(page, exercise.questions[0].right if exercise.questions[0].options else str(exercise.questions[0].right))
        explained(page)


def test_what_was_missed_comes_again_and_can_be_mended(folder, opened):
    two = next(n for n, one in enumerate(EVERY) if one.questions[0].options == ("program", "profiler"))
    page = opened(folder / EVERY[two].file, wait="html[data-asked]")
    said = "Not this time: profiler. The profiler makes the call, not the program: it calls"  # a second guess would be none
    assert guess(page, "program").startswith(said)
    explained(page)
    answer_rightly(page, folder, EVERY[2:6])
    page.goto((folder / "index.html").as_uri())
    progress_is(page, "5 of 109 done")
    assert page.inner_text("#again li") == "The last call"
    page.click("#again a")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert guess(page, "profiler").startswith("Right.")
    explained(page)
    page.goto((folder / "index.html").as_uri())
    page.wait_for_selector("#again", state="hidden")
    page.click(".chapter >> nth=0 >> summary")
    assert page.inner_text(f".state >> nth={two}") == "✓ right when it came again"
    progress_is(page, "5 of 109 done, 4 right at the first guess")
    answer_rightly(page, folder, EVERY[6:10])
    page.goto((folder / "index.html").as_uri())
    progress_is(page, "9 of 109 done")
    assert page.is_hidden("#again")
    page.click("#forget")
    assert page.inner_text("#progress") == "109 exercises"


def test_a_page_that_knows_less_overwrites_nothing_of_another(folder, opened):
    """What one page has stored may come late to the next, which then stores its own."""
    page = opened(folder / EVERY[2].file, wait="html[data-asked]")
    late = '(own) => localStorage.setItem(\'profiling-in-pytorch/\' + own, \'{"right": 1, "guesses": [], "at": 0}\')'
    page.evaluate("window.before = progress; progress = () => ({})")  # it has not come yet
    page.evaluate(late, EVERY[3].file)
    guess(page, EVERY[2].questions[0].right)
    explained(page)
    page.goto((folder / "index.html").as_uri())
    progress_is(page, "2 of 109 done, 2 right at the first guess")


def test_what_comes_again_and_is_missed_again_is_not_mended(folder, opened):
    """A second guess that is right mends nothing."""
    page = opened(folder / EVERY[1].file, wait="html[data-asked]")
    guess(page, "4096")
    explained(page)
    answer_rightly(page, folder, EVERY[2:6])
    page.goto((folder / "index.html").as_uri())
    progress_is(page, "5 of 109 done")
    page.click("#again a")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert guess(page, "4096").startswith("Not that.")
    assert guess(page, "69").startswith("Right, the second time.")
    explained(page)
    page.goto((folder / "index.html").as_uri())
    page.click(".chapter >> nth=0 >> summary")
    assert page.inner_text(".state >> nth=1") == "seen"


def test_the_progress_of_an_earlier_course_is_read(folder, opened):
    page = opened(folder / "index.html")
    # In the page as it loads: what is stored right before a reload may come late on a busy machine.
    page.add_init_script(
        """localStorage.setItem('profiling-in-pytorch', '{"exercise_01.html": "right", "exercise_02.html": "wrong"}')"""
    )
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.inner_text("#progress") == "2 of 109 done, 1 right at the first guess"


NOT_THAT = "Not that. It is {}. Look at the trace, and guess again."


@pytest.mark.parametrize(
    ("number", "typed", "said"),
    [
        (17, "max-autotune", "Not that. Look at the trace, and guess again."),
        (21, "one", "Right."),
        (21, "1 kernel", "Right."),
        (21, "1 ms", "Type one number, in kernels."),
        (20, "90%", "Right."),  # within 15%
        (20, "97 percent", NOT_THAT.format("near, but too high")),
        (25, "-5", NOT_THAT.format("far too low")),
        (36, "none", "Right."),
        (2, "262 144", NOT_THAT.format("far too high")),
        (2, "0.07k", "Right."),
        (2, "6.9e1x", "Right."),
        (2, "64 * 64", "Type one number, in times."),
        (21, "1 or 2", "Type one number, in kernels."),
        (4, ".5", NOT_THAT.format("too low")),
        (4, "2 µs", "Right."),
        (4, "2000 ns", "Right."),
        (4, "2 ms", NOT_THAT.format("far too high")),
        (4, "2 s", NOT_THAT.format("far too high")),
        (4, "2 GB", "Type one number, in µs or another unit of time."),
    ],
)
def test_how_a_guess_is_read(folder, opened, number, typed, said):
    page = opened(folder / EVERY[number - 1].file, wait="html[data-asked]")
    assert guess(page, typed).removesuffix(MARK) == said


def test_one_is_of_a_singular(folder, opened):
    for number, typed, said in (
        (11, "2", "your guess: 2 steps, right: 1 step"),
        (44, "2", "your guess: 2 launches, right: 1 launch"),
        (29, "1", "your guess: 1 activity, right: 7 activities"),
        (4, "1", "your guess: 1 µs, right: 1.9 µs (from about 1.6 to 2.2)"),
    ):
        page = opened(folder / EVERY[number - 1].file, wait="html[data-asked]")
        guess(page, typed)
        explained(page)
        assert page.get_attribute(".scale", "aria-label") == said
        page.context.close()


def test_the_answer_can_be_asked_for(folder, opened):
    page = opened(folder / EVERY[28].file, wait="html[data-asked]")
    explained(page)
    assert "Nobody wrote the copy" in page.inner_text("#answer")
    assert page.inner_text("#command") == "uv run 04_a_naive_attention.py --batch 8 --heads 16 --seq 1024 --head_dim 64"
    page.click("#copy")


def test_a_program_to_be_mended(folder, opened):
    item = next(one for one in every() if one.file == "mend_03.html")
    page = opened(folder / item.file, wait="html[data-asked]")
    assert "def step(epsilon, x):" in page.inner_text(".program >> nth=0") and page.is_hidden("#look")
    assert guess(page, "five") == "Not that. Look at the trace, and guess again."
    assert page.is_disabled(".option.missed")  # it is no second guess
    assert page.inner_text("#command") == "uv run exercise.py 3" and page.locator("#look details").count() == 3
    assert guess(page, "fourteen") == f"Right, the second time.{MARK}"
    explained(page)
    assert "The program calls five ops for each of 512 rows" in page.inner_text("#answer")
    assert page.evaluate("document.activeElement.id") == "answer"  # the button that was pressed is gone
    page.click("#answer summary")
    assert "keepdim=True" in page.inner_text("#answer .program")
    keep_screen(page, "exercise_mend")


def test_a_case_asks_for_cause_proof_and_gain(folder, opened):
    page = opened(folder / "case_23.html", wait="html[data-asked]")
    assert guess(page, "nearly all") == "Not that. Look at the trace, and guess again."
    said = "Not this time: a third. nvjet GEMM, sixteen a step, takes 181 µs of the GPU's 567. And then:"
    assert guess(page, "a tenth") == said
    assert page.inner_text("legend") == "Which slices take most of the GPU's time?"
    assert page.locator(".option").count() == 0 and page.is_visible("#mark")  # the trace has them, no list
    told = mark_rightly(page)
    assert re.fullmatch(r"Right: it is one of \d+ that do, [\d.]+ ms together\. And then:", told)
    assert page.inner_text("legend").startswith("The change: weights converted once, not at each use.")
    assert page.is_hidden("#marking")
    assert guess(page, "2") == "Right."
    explained(page)
    assert page.inner_text("#said") == "2 of 3 right."
    assert "made a step 2.23 times as fast, measured without the profiler on NVIDIA H200" in page.inner_text("#answer")
    assert {name for name, *_ in page.evaluate(LIT, 0)} and page.inner_text(".finding code") == "dtype-conversions"


def test_a_mark_that_does_not_show_it_counts_as_a_guess(folder, opened):
    page = opened(folder / "case_23.html", wait="html[data-asked]")
    select = """([number, name]) => { const panel = report.panels[number];
        report.timeline.select(panel, [...Array(panel.n).keys()].find((i) => panel.names[panel.name[i]].includes(name))); }"""
    assert guess(page, "a third") == "Right. And then:"
    page.wait_for_function("() => exercise.report")
    assert page.is_disabled("#mark")
    for name in ("nvjet", "cuLaunchKernelEx"):
        page.evaluate(select, [0, name])
        page.click("#mark")
        assert page.inner_text("#marked").startswith("Not this one: ")
    said = page.inner_text("#said")
    assert re.fullmatch(r"Not this one: \d+ \S cuLaunchKernelEx take [\d.]+ .s; what shows it is on the lane “.+”\. "
                        r"It is this: bfloat16_copy\. And then:", said), said  # fmt: skip
    assert guess(page, "2") == "Right."
    explained(page)
    assert page.inner_text("#said") == "2 of 3 right."
    page.goto((folder / "index.html").as_uri())
    assert page.locator("a[data-exercise='case_23.html'] + .state").text_content() == "seen"


def test_white_space_is_marked_where_it_is_what_shows_it(folder, opened):
    page = opened(folder / "case_24.html", wait="html[data-asked]")
    assert guess(page, "0.16 ms") == "Right. And then:"
    page.wait_for_function("() => exercise.report")
    select = """(name) => { const [panel] = report.panels;
        const found = [...Array(panel.n).keys()].filter((i) => panel.names[panel.name[i]] === name);
        report.timeline.select(panel, found[Math.floor(found.length / 2)]); }"""
    for wrong in ("cudaDeviceSynchronize", "aten::relu", "aten::addmm"):
        ask_again(page, 1)
        page.evaluate(select, wrong)
        page.click("#mark")
        assert page.inner_text("#marked").startswith("Not this one: "), wrong
    page.evaluate(select, "aten::relu")
    page.keyboard.press("g")
    assert page.inner_text("#details dt >> nth=0") == "no op, call or kernel"
    page.keyboard.press("m")  # the slice, which is still selected
    assert page.inner_text("#details dt >> nth=0") == "measured" and page.evaluate("report.timeline.white") is None
    page.evaluate("report.timeline.show(0, 1000)")  # 1 µs, before it
    page.keyboard.press("g")
    assert page.evaluate("(({ white, t0, t1 }) => t0 <= white.from && white.to <= t1)(report.timeline)")
    page.click("#mark")
    yes = r"Yes: no op, call or kernel is on the lane “.+” for [\d.]+ µs, one of \d+ such stretches, [\d.]+ ms together\."
    assert re.fullmatch(yes, page.inner_text("#marked"))
    assert page.inner_text("#said").startswith("Right, the second time: no op, call or kernel is on the lane ")
    # The same with the mouse.
    ask_again(page, 1)
    where = """() => { const [panel] = report.panels, { timeline } = report;
        const lane = panel.lanes.find((one) => !one.gpu), { start, end } = panel.workOf(lane);
        const at = start.findIndex((moment, n) => n && moment - end[n - 1] > 1e5);
        timeline.show(end[at - 1] - 1e5, start[at] + 1e5);
        const item = timeline.laneItem.get(lane);
        return [timeline.x((end[at - 1] + start[at]) / 2), timeline.top(item) + ROW * (lane.rows.length - 0.5)]; }"""
    x, y = page.evaluate(where)
    page.click("canvas", position={"x": x, "y": y})
    page.click("#mark")
    assert page.inner_text("#marked").startswith("Yes: no op, call or kernel is on the lane ")
    first = """() => { const [panel] = report.panels, { start } = panel.workOf(panel.lanes.find((one) => !one.gpu));
        return start[1]; }"""
    at = page.evaluate(first)
    page.evaluate("report.panels[0].stretch(2)")
    assert page.evaluate(first) == pytest.approx(2 * at)  # white space goes with what is drawn
    page.click("#explain")
    page.wait_for_selector("#answer", state="visible")
    assert page.inner_text("#said") == "2 of 3 right, 1 skipped."
    assert re.fullmatch(r"\d+ stretches of time lit", page.inner_text("#found"))
    page.goto((folder / "index.html").as_uri())
    state = page.locator("a[data-exercise='case_24.html'] + .state").text_content()
    assert state == "✓ right, as far as answered"


@pytest.mark.parametrize(
    ("file", "panel", "name", "said"),
    [
        ("case_31.html", 1, "AllReduce", "Yes: it takes "),  # on whichever rank
        ("case_30.html", 1, "nccl:all_reduce", "Yes: it "),  # the late rank's, which is short
        ("case_30.html", 0, "aten::linear", "Not this one: "),
        ("case_27.html", 0, "cudaLaunchKernel", "Yes: it takes "),  # the white space, or what comes too late
        ("mend_12.html", 0, "aten::_local_scalar_dense", "Yes: it is part of what shows it."),  # what .item() calls
        ("mend_12.html", 0, "aten::mm", "Not this one: "),
    ],
)
def test_what_shows_it_in_another_way_is_right_too(folder, opened, file, panel, name, said):
    page = opened(folder / file, wait="html[data-asked]")
    guess(page, next(one for one in every() if one.file == file).questions[0].right)
    page.wait_for_function("() => exercise.report")
    select = """([number, part]) => { const panel = report.panels[number]; report.timeline.select(panel,
        [...Array(panel.n).keys()].find((i) => panel.called(i).includes(part))); }"""
    page.evaluate(select, [panel, name])
    page.click("#mark")
    assert page.inner_text("#marked").startswith(said)


def test_white_space_of_the_gpu_does_not_say_what_it_waits_for(folder, opened):
    page = opened(folder / "case_24.html", wait="html[data-asked]")
    guess(page, "0.16 ms")
    page.wait_for_function("() => exercise.report")
    mark_white(page, 0, True)
    assert "; so the GPU waits, and its lane does not say for what. " in page.inner_text("#marked")


def test_white_space_shows_nothing_where_slices_do(folder, opened):
    page = opened(folder / "case_23.html", wait="html[data-asked]")
    guess(page, "a third")
    page.wait_for_function("() => exercise.report")
    page.keyboard.press("g")  # nothing is selected
    assert page.is_disabled("#mark")
    page.focus("canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("g")
    page.click("#mark")
    here, elsewhere = r"no op, call or kernel is on the lane “.+” for [\d.]+ .?s", "what shows it is a slice"
    assert re.fullmatch(rf"Not this one: {here}; {elsewhere}\. Look again, or read why\.", page.inner_text("#marked"))


def test_white_space_of_the_gpu_can_be_what_shows_it(folder, opened):
    page = opened(folder / "case_27.html", wait="html[data-asked]")
    guess(page, "11 ms")
    page.wait_for_function("() => exercise.report")
    for is_gpu, said in ((True, "Yes: no op, call or kernel is on the lane "), (False, "Not this one: no op, call or kernel is")):
        ask_again(page, 1)
        mark_white(page, 0, is_gpu)
        assert page.inner_text("#marked").startswith(said)
    explained(page)
    spans = page.evaluate("report.timeline.spans.map(([, from, to]) => to - from)")
    steps = recording(ROOT / "exercises" / "cases" / "27_small_gpt.json.gz").trace.steps
    steps_ns = int((steps.end_ns - steps.start_ns).sum())
    assert 0.95 * steps_ns < sum(spans) < steps_ns


def mark_white(page, panel, is_gpu):
    """Mark the longest white space of the first lane of a kind, of a step."""
    longest = """([number, isGpu]) => { const panel = report.panels[number], lane = panel.lanes.find((one) =>
        Boolean(one.gpu) === isGpu && panel.workOf(one).start.length > 9), { start, end } = panel.workOf(lane);
        const found = start.slice(1).map((moment, n) => [end[n], moment]).filter(([from]) => from > panel.steps[0][1]);
        report.timeline.selectWhite(panel, lane, found.sort((a, b) => b[1] - b[0] - a[1] + a[0])[0]); }"""
    page.evaluate(longest, [panel, is_gpu])
    page.click("#mark")


def test_of_a_job_the_collective_that_waits_shows_it_and_what_the_late_rank_does_meanwhile(folder, opened):
    page = opened(folder / "case_30.html", wait="html[data-asked]")
    (case,) = (one for one in every() if one.file == "case_30.html")
    guess(page, case.questions[0].right)
    page.wait_for_function("() => exercise.report")
    for panel, is_gpu in itertools.product((0, 1), (True, False)):
        ask_again(page, 1)
        mark_white(page, panel, is_gpu)
        assert page.inner_text("#marked").startswith("Not this one: no op, call or kernel is on the lane ")
    late = page.evaluate("exercise.data.late")
    in_span = """(number) => { const panel = report.panels[number]; exercise.lit();
        const at = [...Array(panel.n).keys()].filter((i) => panel.categories[panel.category[i]][0] === "op"),
            middle = (i) => (panel.start[i] + panel.end[i]) / 2 - panel.shift,
            inside = (i) => report.timeline.spans.some(([k, from, to]) => k === number && from <= middle(i) && middle(i) <= to);
        return [at.find(inside), at.find((i) => !inside(i))]; }"""
    for panel in (late, 1 - late):
        for found, is_right in zip(page.evaluate(in_span, panel), (panel == late, False), strict=True):
            ask_again(page, 1)
            page.evaluate("([number, i]) => report.timeline.select(report.panels[number], i)", [panel, found])
            page.click("#mark")
            assert page.inner_text("#marked").startswith("Yes: " if is_right else "Not this one: ")


def test_the_ranks_of_a_job_are_open_so_that_their_slices_can_be_marked(folder, opened):
    page = opened(folder / "exercise_52.html", wait="html[data-asked]")
    assert guess(page, "rank 1").startswith("Not this time: rank 0.")
    assert "hit" in page.get_attribute(".option:text-is('rank 0')", "class")  # the right one is shown beside it
    page.wait_for_function("() => exercise.report")
    assert page.evaluate("report.timeline.items.filter((item) => item.kind === 'lane').length") > 4
    explained(page)
    assert page.inner_text("#said") == "Not this time."


def test_ones_own_trace_beside_the_recorded_one(folder, tmp_path, capsys, opened):
    item = next(one for one in EVERY if one.command.startswith("uv run 01_matmul_add.py --size 4096 --warmup"))
    trace = GALLERY / "01_matmul_add" / "4096_bf16_warm_eager.json"
    zipped = tmp_path / "mine.json.gz"
    zipped.write_bytes(gzip.compress(trace.read_bytes()))
    page_file = tmp_path / "report.html"
    assert cli.main([str(trace), "--html", str(page_file)]) == 0
    capsys.readouterr()
    page = opened(folder / item.file, wait="html[data-asked]")
    explained(page)
    recorded = page.evaluate("report.panels.at(-1).n")
    for file in (trace, zipped, page_file):
        page.set_input_files("#file", str(file))
        page.wait_for_function("(name) => document.getElementById('dropped').textContent.startsWith(name)", arg=file.name)
        assert page.inner_text("#dropped").startswith(f"{file.name}: {recorded} slices, drawn below")
        # The same recording: the same slices, launches and colours, from the same moment on.
        same = """() => { const [a, b] = report.panels, all = (p) => [...p.start.keys()].map((i) =>
            [p.start[i], p.duration[i], p.names[p.name[i]], p.called(i), p.categories[p.category[i]][0], p.call[i], p.parent[i]]
              .join()).sort().join("\\n"); return all(a) === all(b); }"""
        assert page.evaluate(same)
        cells = page.eval_on_selector_all(
            "#compared tbody tr", "(rows) => rows.map((r) => [...r.cells].map((c) => c.textContent))"
        )
        assert cells and all(mine == theirs for _, theirs, mine in cells)
    keep_screen(page, "exercise_compared")
    for name, text, message in (
        ("a.json", "{", "no trace: this is not JSON"),
        ("b.json", "{}", "no trace: there is no list traceEvents in it"),
        ("c.json", '{"traceEvents": []}', "no slices in it"),
        ("d.html", "<p>", "no page of --html"),
        ("e.json", json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "<b>x</b>", "ts": "a", "dur": 1}, 3, None]}),
         "no slices in it"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        page.set_input_files("#file", str(tmp_path / name))
        page.wait_for_function("(said) => document.getElementById('dropped').textContent === said", arg=f"{name}: {message}")
    assert page.evaluate("report.panels.length") == 1 and page.inner_text("#compared") == ""


def test_ones_own_trace_fits_a_scale_of_its_own(folder, tmp_path, opened):
    """Of a step a thousand times as long: drawn as wide as the recording's, with its own times."""
    item = next(one for one in EVERY if one.command.startswith("uv run 01_matmul_add.py --size 4096 --warmup"))
    trace = json.loads((GALLERY / "01_matmul_add" / "4096_bf16_warm_eager.json").read_text())
    first = min(event["ts"] for event in trace["traceEvents"] if event.get("ph") == "X")
    for event in trace["traceEvents"]:
        if event.get("ph") == "X":
            event["ts"], event["dur"] = (event["ts"] - first) * 1000, event["dur"] * 1000
    (tmp_path / "slow.json").write_text(json.dumps(trace))
    page = opened(folder / item.file, wait="html[data-asked]")
    explained(page)
    page.set_input_files("#file", str(tmp_path / "slow.json"))
    page.wait_for_function("() => document.getElementById('dropped').textContent")
    assert " It is drawn 0.0010 times as wide, so that its steps fit; its times are its own." in page.inner_text("#dropped")
    found = page.evaluate("""() => report.panels.map((p) => {
        const i = [...p.start.keys()].find((k) => p.isGpu(k) && p.call[k] >= 0);
        return [p.start[i], p.duration[i], describe(p, i).find(([what]) => what === "launch")[1]]; })""")
    (start, duration, said), (own_start, own_duration, own_said) = found
    assert own_start == pytest.approx(start, rel=0.01) and own_duration == pytest.approx(1000 * duration, rel=0.01)
    assert said.endswith("µs before") and own_said.endswith("ms before") and ", its end " in said
    # A page of it has bands, too: what runs in each moment, drawn to the same scale.
    assert cli.main([str(tmp_path / "slow.json"), "--html", str(tmp_path / "slow.html")]) == 0
    page.set_input_files("#file", str(tmp_path / "slow.html"))
    page.wait_for_function("() => document.getElementById('dropped').textContent.startsWith('slow.html')")
    last, bands = page.evaluate("() => [report.panels.map((p) => p.last), report.panels[1].bands.length]")
    assert bands and last[1] == pytest.approx(last[0], rel=0.05)


def test_the_pages_hold_together_and_load_nothing(folder):
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(files) > 100 and {"index.html", "figures.html", "cheatsheet.html"} <= set(files)
    for name, text in files.items():
        links = re.findall(r'(?:href|src)="([^"]*)"', re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
        for link in links:
            if link.startswith("#"):
                assert f'id="{link[1:]}"' in text
                continue
            file, _, anchor = link.partition("#")
            assert not anchor or link.startswith("https://") or f'id="{anchor}"' in files[file], (name, link)
            sources = tuple(pattern.source for pattern in PATTERNS.values() if pattern.source)
            allowed = ("data:image/png", "https://docs.nvidia.com", "https://github.com", exercise_pages.BLOG, *sources)
            assert file in files or link.startswith(allowed), (name, link)
        assert len(text) < 2_000_000 and "default-src 'none'" in text and str(ROOT) not in text, name
        assert 'href="index.html"' in text and "|---|" not in text, name


@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "figures.html",
        "cheatsheet.html",
        "patterns.html",
        "exercise_15.html",
        "exercise_51.html",
        "mend_03.html",
        "case_30.html",
    ],
)
def test_nothing_sticks_out_on_a_phone(folder, opened, name):
    page = opened(folder / name, wait="main", viewport={"width": 390, "height": 844})
    if name.startswith(("exercise", "mend", "case")):
        explained(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep_screen(page, f"phone_{name.removesuffix('.html')}")


@pytest.mark.parametrize("name", ["figures.html", "cheatsheet.html", "patterns.html", "glossary.html"])
def test_a_wide_table_does_not_run_out_of_the_page(folder, opened, name):
    page = opened(folder / name, wait="main", viewport={"width": 1280, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    wide = "() => [...document.querySelectorAll('table')].filter((own) => own.getBoundingClientRect().right > innerWidth).length"
    assert page.evaluate(wide) == 0
    keep_screen(page, f"page_{name.removesuffix('.html')}")


def test_the_cheat_sheet_is_one_printed_page(folder, opened):
    """A4, in two columns: one page of PDF, which names each of its pages /Type /Page."""
    page = opened(folder / "cheatsheet.html", wait="main")
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('.cheatsheet')).columnCount") == "2"


def test_a_term_leads_to_its_place(folder):
    """The anchors themselves are looked at in the test of all links."""
    text = "".join(path.read_text() for path in folder.glob("exercise_*.html"))
    assert 'href="glossary.html#overhead-bound"' in text


def test_a_term_is_explained_on_hover(folder):
    text = (folder / "exercise_01.html").read_text() + next(folder.glob("trace_01*")).read_text()
    assert re.search(r'<abbr tabindex="0" title="[^"]{20,}">critical path</abbr>', text)
