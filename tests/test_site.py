"""The course as pages: what a guess brings, progress, one's own trace beside the recording; in a real browser."""

import gzip
import json
import re
import subprocess
import sys

from gallery import docs, site
from gallery.figures import figures, trace_of
from helpers import GALLERY, ROOT, keep_screen
from helpers.browser import LIT
import pytest
from trace_reader import cli

EVERY = site.exercises()
DOCUMENTS = {"lessons.md": 47, "llm.md": 3, "several_gpus.md": 6}
# Right answers that the text leaves to the reader to work out: by the exercise's number.
WORKED_OUT = {8, 24, 27, 29, 33, 36, 38, 39, 50}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("site")
    for name, data in site.site().items():
        (path / name).write_bytes(data)
    return path


def test_every_exercise_of_the_documents_is_there_with_its_own_text():
    found = []
    for name, n in DOCUMENTS.items():
        text = (ROOT / "docs" / name).read_text()
        asked = len(re.findall(r"<details><summary>Answer</summary>", text))
        assert asked == n
        found += [" ".join(text.split())] * n
    assert len(EVERY) == len(found) == 56
    for own, text in zip(EVERY, found, strict=True):
        assert f"{own.question}" in text
        assert " ".join(own.answer.split()) in text
    assert site.cheatsheet_md is docs.cheatsheet_md and site.figures_md is docs.figures_md


@pytest.mark.parametrize("own", EVERY, ids=lambda own: own.file)
def test_what_is_right_is_what_the_answer_says(own):
    check = own.check
    assert check.ask.endswith("?")
    if isinstance(check.right, str):
        assert check.right in check.options and len(check.options) > 1 and not check.within
        return
    assert not check.options and 0 <= check.within < 1
    said = {float(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", own.answer)}
    words = {"One": 1, "5": 5}
    said |= {float(value) for word, value in words.items() if own.answer.startswith(word)}
    assert check.right in said or own.number in WORKED_OUT, (check, sorted(said))


def test_what_is_worked_out_is_right():
    by_number = {own.number: own for own in EVERY}

    def facts(number):
        return site.recording(by_number[number].traces[-1])[1]

    right = {number: by_number[number].check.right for number in WORKED_OUT}
    step = facts(8).middle_step
    trace = site.recording(by_number[8].traces[-1])[0]
    slice_ = next(own for own in trace.steps if own.name == step.name)
    inside = [op.name for op in trace.ops if slice_.start_us <= op.start_us < slice_.end_us and op.name.startswith("aten::")]
    assert len(inside) == right[8]
    compiling = [found for found in facts(24).findings if found.slug == "recompile"]
    assert right[24] == 2 and "2 compiled" in compiling[0].seen
    assert facts(27).middle_step.kernels == right[27]
    assert facts(29).middle_step.kernels + facts(29).middle_step.memcpys + facts(29).middle_step.memsets == right[29]
    own, five = facts(33).middle_step.gpu_busy_us, facts(30).middle_step.gpu_busy_us
    assert five / own == pytest.approx(right[33], rel=0.03)
    ops = {op.name: op.calls for op in facts(36).ops}
    assert ops.get("aten::transpose", 0) == right[36]
    assert facts(38).middle_step.gpu_busy_us / facts(29).middle_step.gpu_busy_us == pytest.approx(right[38], rel=0.02)
    assert right[39] == 258.0 / 64.5 and "258.0 MiB" in by_number[39].answer and "64.5 MiB" in by_number[39].answer
    # 7.7 of 15.7 GiB are the layers': more than the weights and the optimizer's 3.4, or the logits' 4 x 1.2.
    assert by_number[50].check.right == "layers" and "7.7 are activations" in by_number[50].answer


def test_the_recordings_of_a_pair_have_the_right_names():
    """The one that is beside it comes first, under its name; the exercise's own comes last, without."""
    pairs = [(own, figure) for own in EVERY for figure in figures() if f"uv run {figure.command}" == own.command and figure.pair]
    pairs = [(own, figure) for own, figure in pairs if own.question == figure.guess]
    assert pairs
    for own, figure in pairs:
        beside = trace_of(figure.others[figure.pair])
        labels = [panel.head["label"] for panel in site._panels(own).panels]
        assert labels == [f"{figure.pair}: {beside.relative_to(site.GALLERY)}", str(figure.trace.relative_to(site.GALLERY))]


def test_the_list_of_exercises_goes_on_counting_in_each_part():
    first: dict[str, int] = {}
    for own in EVERY:
        first.setdefault(own.part, own.number)
    index = site.site()["index.html"].decode()
    assert [int(n) for n in re.findall(r'<ol start="(\d+)">', index)] == list(first.values()) and len(first) > 3


def test_the_command_of_a_jobs_exercise_reads_all_of_its_ranks():
    jobs = [own for own in EVERY if any("_rank" in path.name for path in own.traces) and "read_trace.py" in own.command]
    assert jobs
    for own in jobs:
        pattern = next(word for word in own.command.split() if ".json" in word)
        assert {ROOT / path for path in ROOT.glob(pattern)} >= set(own.traces), own.command


def guess(page, typed):
    page.fill("#typed", typed)
    page.click("#guess button[type=submit]")
    return page.inner_text("#said")


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted({own.part for own in EVERY}))
def test_nonsense_shows_nothing_and_a_right_guess_the_recording_with_its_finding_lit(folder, opened, part):
    for own in (own for own in EVERY if own.part == part):
        page = opened(folder / own.file, wait="html[data-asked]")
        check = own.check
        for typed in ("hm, let me see", "?"):
            assert guess(page, typed) == (
                f"Say one of: {', '.join(check.options)}." if check.options else "Type one number, without a unit."
            )
            assert page.is_hidden("#answer")
        typed = f"I say {check.right}" if check.options else f"about {check.right:,}"
        assert guess(page, typed) == "Right."
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.is_visible("#lanes") and page.evaluate("report.panels.reduce((n, p) => n + p.n, 0)") > 0
        shown = page.evaluate("report.panels.length - 1")
        lit, spans = page.evaluate(LIT, shown), page.evaluate("report.timeline.spans.length")
        if own.finding:
            _, facts = site.recording(own.traces[-1])
            evidence = next(finding.evidence for finding in facts.findings if finding.slug == own.finding)
            assert {each.name for each in evidence} <= {name for name, *_ in lit}
            assert bool(lit) == bool(evidence) and page.inner_text(".finding") == own.finding
        if own.check.lights:
            assert lit and all(any(part in name for part in own.check.lights) for name, *_ in lit)
            assert page.inner_text(".finding") == ", ".join(own.check.lights)
        assert lit or spans or len(own.traces) == 2
        page.context.close()


def test_a_wrong_guess_is_told_and_progress_is_kept(folder, opened):
    page = opened(folder / "index.html")
    assert page.inner_text("#progress") == "0 of 56 exercises seen, 0 guessed right"
    page.click("a[data-exercise] >> nth=0")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert page.is_hidden("#answer") and guess(page, "the GPU") == "Not this time: CPU."
    assert page.is_visible("#answer") and "it waits for the CPU" in page.inner_text("#answer")
    keep_screen(page, "exercise_answered")
    page.click("a[rel=next]")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert guess(page, "1,000") == "Not this time: 262,144."
    page.click("nav a >> nth=0")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.inner_text("#progress") == "2 of 56 exercises seen, 0 guessed right"
    page.click("a[data-exercise] >> nth=1")
    page.wait_for_selector("html[data-asked]", state="attached")
    assert guess(page, "262144 times") == "Right."
    page.goto((folder / "index.html").as_uri())
    assert page.inner_text("#progress") == "2 of 56 exercises seen, 0 guessed right"  # the first guess is the one that counts
    page.goto((folder / EVERY[2].file).as_uri())
    assert guess(page, "no") == "Right."
    assert guess(page, "yes") == "Not this time: no."
    page.goto((folder / "index.html").as_uri())
    assert page.inner_text("#progress") == "3 of 56 exercises seen, 1 guessed right"
    assert [page.inner_text(f".state >> nth={n}") for n in range(4)] == ["seen", "seen", "✓ right", ""]
    keep_screen(page, "index")


@pytest.mark.parametrize(
    ("number", "typed", "said"),
    [
        (1, "CPU or GPU", "Say one of: CPU, GPU."),
        (3, "No!", "Right."),
        (3, "nothing like that", "Say one of: yes, no."),
        (17, "max-autotune", "Not this time: none."),
        (17, "reduce-overhead", "Not this time: none."),
        (21, "one", "Right."),
        (20, "90%", "Right."),  # within 15%
        (20, "97", "Not this time: 83."),
        (25, "-5", "Not this time: 5."),
        (36, "none", "Right."),
        (2, "262,144", "Right."),
        (2, "262 144", "Right."),
        (2, "262k", "Right."),
        (2, "2.6e5", "Right."),
        (2, "64 * 64", "Type one number, without a unit."),
        (21, "1 or 2", "Type one number, without a unit."),
        (4, ".5", "Not this time: 1.9."),
    ],
)
def test_how_a_guess_is_read(folder, opened, number, typed, said):
    page = opened(folder / EVERY[number - 1].file, wait="html[data-asked]")
    assert guess(page, typed) == said


def test_the_answer_can_be_asked_for(folder, opened):
    page = opened(folder / EVERY[28].file, wait="html[data-asked]")
    page.click("#tell")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert "Nobody wrote the copy" in page.inner_text("#answer")
    assert page.inner_text("#command") == "uv run 04_a_naive_attention.py --batch 8 --heads 16 --seq 1024 --head_dim 64"
    page.click("#copy")


def test_ones_own_trace_beside_the_recorded_one(folder, tmp_path, capsys, opened):
    own = next(own for own in EVERY if own.command.startswith("uv run 01_matmul_add.py --size 4096 --warmup"))
    trace = GALLERY / "01_matmul_add" / "4096_bf16_warm_eager.json"
    zipped = tmp_path / "mine.json.gz"
    zipped.write_bytes(gzip.compress(trace.read_bytes()))
    page_file = tmp_path / "report.html"
    assert cli.main([str(trace), "--html", str(page_file)]) == 0
    capsys.readouterr()
    page = opened(folder / own.file, wait="html[data-asked]")
    page.click("#tell")
    page.wait_for_selector("html[data-ready]", state="attached")
    recorded = page.evaluate("report.panels[0].n")
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
            assert not anchor or f'id="{anchor}"' in files[file], (name, link)
            assert file in files or link.startswith(("data:image/png", "https://docs.nvidia.com", "https://github.com")), (
                name,
                link,
            )
        assert len(text) < 2_000_000 and "default-src 'none'" in text and str(ROOT) not in text, name
        assert 'href="index.html"' in text and "|---|" not in text, name


@pytest.mark.parametrize(
    "name", ["index.html", "figures.html", "cheatsheet.html", "patterns.html", "exercise_15.html", "exercise_51.html"]
)
def test_nothing_sticks_out_on_a_phone(folder, opened, name):
    page = opened(folder / name, wait="main", viewport={"width": 390, "height": 844})
    if name.startswith("exercise"):
        page.click("#tell")
        page.wait_for_selector("html[data-ready]", state="attached")
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
    assert re.search(r'<abbr title="[^"]{20,}">critical path</abbr>', text)


@pytest.mark.slow
def test_the_command(tmp_path):
    target = tmp_path / "out" / "site"
    ran = subprocess.run([sys.executable, "gallery/site.py", "--out", str(target)], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    n = len(list(target.iterdir()))
    assert re.fullmatch(rf"wrote {n} pages \([\d.]+ MiB\); open {re.escape(str(target / 'index.html'))}\n", ran.stdout)
    (tmp_path / "file").write_text("mine")
    ran = subprocess.run(
        [sys.executable, "gallery/site.py", "--out", str(tmp_path / "file")], cwd=ROOT, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (1, f"error: {tmp_path / 'file'}: File exists\n")
