"""The gallery: every figure's command parses and has its recording, the documents say what the recordings say."""

import argparse
import gzip
import importlib
import json
from pathlib import Path
import re
import statistics
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple, cast

from common.job import collectives_per_step
from exercises.judge.book import exercises
from gallery import docs
from gallery import jobs as gallery_jobs
from gallery import record as recording_of_gallery
from gallery.figures import CHOICE, MACHINE, NUMBERS, SPREAD, Run, _beside, claims, figures, filled, recording, trace_of
from gallery.rendering import rendered
from helpers import GALLERY, LESSONS, ROOT
import pytest
from reader_helpers.events import op, step, write
from trace_reader import (
    PATTERNS,
    Facts,
    analyze,
    human_bytes,
    job_details,
    job_sentence,
    join_names,
    layer_facts,
    load,
    op_facts_of,
    read_job,
    us,
)

FIGURES = figures()
RECORDED = sorted(GALLERY.glob("*/*.json"))
LLM = sorted((GALLERY.parent / "llm").glob("*.json.gz"))  # of docs/llm.md
SEVERAL = GALLERY.parent / "several_gpus"
each = pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f"{f.post}-{f.figure}-{f.script}")


@each
def test_the_command_parses_and_its_recording_is_there(figure):
    args = importlib.import_module(figure.script).parse_args(figure.flags)
    for suffix in (".json", ".txt", ".png"):
        path = GALLERY / figure.script / f"{args.run.tag}{suffix}"
        assert path.stat().st_size > 1000 and path.stat().st_size < 2_000_000
    assert figure.picture.is_file() and all(trace_of(command).is_file() for command in figure.others.values())


@each
def test_the_reader_finds_what_the_figure_shows(figure):
    facts = recording(figure.trace).facts
    assert set(figure.findings) <= {finding.slug for finding in facts.findings}
    assert facts.device == "NVIDIA H200" and facts.lesson["script"] == figure.script


def names_in(figure):
    """Return what the texts ask for: (other recording or "", number)."""
    asked = re.findall(r"\{(?:(\w+)\.)?(\w+)\}", figure.differs + figure.answer)
    asked += [(number.removeprefix("cpu_beside_"), "cpu") for _, number in asked if number.startswith("cpu_beside_")]
    asked = [(other, number) for other, number in asked if not number.startswith("cpu_beside_")]
    return {*asked, *(("", name) for name in figure.numbers)}


@each
def test_the_texts_are_complete(figure):
    assert figure.guess.endswith("?") and figure.look.endswith((".", ").")) and figure.numbers and figure.findings
    assert {number for _, number in names_in(figure)} <= set(NUMBERS)
    assert {other for other, _ in names_in(figure) if other} <= set(figure.others)
    for text in (figure.answer, figure.differs):
        assert "unknown" not in filled(text, figure) and "no such finding" not in filled(text, figure)


@each
def test_where_to_look_does_not_say_what_is_to_be_seen(figure):
    """No number of the answer, and no kernel or op that only the answer may name."""
    seen = set(re.findall(r"\d[\d.,]*(?: us| ms| GB/s)", filled(figure.answer, figure)))
    assert not {number for number in seen if number in figure.look + figure.guess}
    for word in ("Memcpy", "far wider", "is gone", "no aten::", "bmm", "takes nearly all"):
        assert word not in figure.look


def test_a_cpu_time_stands_with_its_spread():
    run = Run(trace_of("01_matmul_add.py --size 64"))
    times = [entry["cpu_us"] for entry in run.spread]
    assert run.facts.usual_step is not None
    middle, low, high = (f"{value:.1f} µs" for value in (run.facts.usual_step.cpu_us, times[0], times[-1]))
    assert run.cpu == f"{middle} ({low} to {high} in 5 processes)"
    eager, compiled = (Run(trace_of(f"01_matmul_add.py --size 4096 --warmup{flag}")) for flag in ("", " --compile"))
    assert max(e["cpu_us"] for e in eager.spread) < min(e["cpu_us"] for e in compiled.spread)  # told apart
    assert _beside(compiled, eager) == f"{compiled.cpu} instead of {eager.cpu}"
    assert _beside(eager, eager) == f"{eager.cpu} compared with {eager.cpu}, and the ranges overlap"
    first, second, third = (f"{step.cpu_us:.1f} µs" for step in run.facts.steps)
    assert run.step_cpu == f"{first}, {second}, {third} (#3 in 5 processes: {low} to {high})"


def test_every_number_and_every_other_recording_is_used():
    of_claims = {name.rpartition(".")[2] for claim in claims() for name in re.findall(r"{([\w.]+)}", claim.h200 + claim.why)}
    assert {number for f in FIGURES for _, number in names_in(f)} | of_claims & set(NUMBERS) == set(NUMBERS)
    for figure in FIGURES:
        assert {other for other, _ in names_in(figure) if other} | {figure.pair} - {""} >= set(figure.others) - {figure.pair}


def test_every_lesson_and_every_post_has_figures_and_nothing_else_is_recorded():
    of_llm = {f"{load(str(path)).header['lesson']['script']}.py" for path in LLM}
    of_jobs = {f"{load(str(path)).header['lesson']['script']}.py" for path in SEVERAL.glob("*.json.gz")}
    ladders = [path for folder in ("ladder", "answer") for path in (GALLERY.parent / folder).glob("*.json.gz")]
    of_ladder = {f"{load(str(path)).header['lesson']['script']}.py" for path in ladders}
    assert {f"{f.script}.py" for f in FIGURES} | of_llm | of_jobs | of_ladder == set(LESSONS)
    assert {f.post for f in FIGURES} == {1, 2, 3, 4}
    assert {f.trace for f in FIGURES} == set(RECORDED)
    pictures = {f.picture for f in FIGURES} | {f.trace.with_suffix(".png") for f in FIGURES}
    assert pictures == set(GALLERY.glob("*/*.png"))
    assert sum(path.stat().st_size for path in GALLERY.rglob("*")) < 10_000_000


def of_the_runs(runs, what):
    times = sorted(run[f"{what}_us"] / 1000 for run in runs)
    decimals = 1 if (middle := statistics.median(times)) >= 10 else 2
    return f"{middle:.{decimals}f}", f"({times[0]:.{decimals}f} to {times[-1]:.{decimals}f})"


def waited(job):
    """Return what each call of the first of two ranks took longer than the other's."""
    a, b = (summary.calls.duration_us for summary in job.summaries)
    return [max(x - y, 0) for x, y in zip(a, b, strict=True)]


def test_the_page_of_several_gpus_says_what_the_recordings_say():
    days = [json.loads((SEVERAL / f"spread_2026-11-{day}.json").read_text()) for day in (22, 26)]
    page = (ROOT / "docs" / "several_gpus.md").read_text()
    machine = days[0]["machine"]
    assert machine == {**days[1]["machine"], "python": machine["python"]} and "on two H200, 2026-11-26:" in page
    nccl = ".".join(map(str, machine["nccl"]))
    assert f"two {machine['device']} (NVLink, multicast off), torch {machine['torch']}, NCCL {nccl}, 2026-11-22" in page
    every = [run for day in days for run in day["runs"].items()]
    rows = [row.split(" | ") for row in re.findall(r"^\| (06_.*) \|$", page, re.MULTILINE)]
    assert len(rows) == len(every)
    for row, (name, runs) in zip(rows, every, strict=True):
        step, compute, transfer, exposed = (of_the_runs(runs, what) for what in ("step", "compute", "transfer", "exposed"))
        assert row[3:] == [" ".join(step), compute[0], transfer[0], " ".join(exposed), str(len(runs))], name
        job, errors = read_job([str(SEVERAL / f"{name}_rank{rank}.json.gz") for rank in range(2)])
        counts = ", ".join(f"{n} x {kind}" for kind, n in collectives_per_step(job).items())
        assert (row[2], errors, job.unmatched) == (counts, [], 0), name
        if name == "data_parallel_slow30":
            assert job_sentence(job) in " ".join(page.split())
        if name == "data_parallel_slow_host":
            assert job_details(job)[1].partition("; record")[0] in " ".join(page.split())
        if name == "data_parallel_slow5":
            one = job.summaries[0].calls
            first = sum(us for us, step in zip(waited(job), one.step, strict=True) if step == 0)
            assert (
                f"{job.ranks[0].waiting_us / 1000:.1f} ms that rank 0 waits in all recorded steps, {first / 1000:.1f} ms"
                in " ".join(page.split())
            )
        rates = {
            "tensor_parallel": "252 with nothing beside it (06_c)",
            "data_parallel_1000mb": "308 as the only bucket (06_a)",
        }
        if name in rates:
            (row_of,) = job.collectives
            assert f"{row_of.bus_gb_per_s:.0f}" in rates[name] and rates[name] in page


def test_a_recording_is_the_run_in_the_middle_of_five():
    spread = json.loads(SPREAD.read_text())
    assert set(spread) == {str(path.relative_to(GALLERY)) for path in RECORDED}
    for path in RECORDED:
        runs = spread[str(path.relative_to(GALLERY))]
        times = [run["cpu_us"] for run in runs]
        step = recording(path).facts.usual_step
        assert step is not None and len(times) == 5 and times == sorted(times)
        assert times[2] == pytest.approx(step.cpu_us, abs=0.001), path
        assert runs[2]["gpu_busy_us"] == pytest.approx(step.gpu_busy_us, abs=0.001)


def test_totals_are_the_tables():
    run = Run(trace_of("01_matmul_add.py --size 64"))
    table = run.path.with_suffix(".txt").read_text()
    assert [f"Self CPU time total: {run.table_totals.split('total ')[1].split(',')[0]}" in table] == [True]
    assert run.table_totals.split("total ")[2] in table


@pytest.mark.parametrize("path", docs.DOCUMENTS, ids=lambda path: path.name)
def test_the_documents_are_fresh(path):
    """After a new recording or a change of figures.toml: uv run gallery/docs.py, and look at the difference."""
    assert path.read_text() == docs.DOCUMENTS[path]()


def test_the_exercises_are_numbered_and_fold_their_answers_away():
    text = docs.lessons_md()
    numbers = re.findall(r"^### (\d+)\. ", text, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)] and len(numbers) >= 30
    assert text.count("<details><summary>Answer</summary>") == text.count("</details>") == len(numbers)


def test_the_figures_of_the_readme_are_those_of_the_lessons():
    numbers: dict[str, set[int]] = {}
    for one in figures():
        if one.figure[0] in "123456789" and one.post < 4:
            numbers.setdefault(f"{one.post} {one.script}", set()).update(map(int, re.findall(r"\d+", one.figure)))
    rows = re.findall(r"^\| (`0.*?) \| .* \| .*?part (\d).*?, (\d+) to (\d+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == 6
    for lessons, part, first, last in rows:
        said = [numbers.pop(f"{part} {lesson}", set()) for lesson in re.findall(r"`(\w+)\.py`", lessons)]
        assert (min(set().union(*said)), max(set().union(*said))) == (int(first), int(last)), lessons
    assert not numbers


def test_each_exercise_of_the_lessons_is_linked_from_its_figure():
    text = docs.figures_md()
    assert re.findall(r"\[Q(\d+)\]\(lessons\.md#\1-", text) == [str(number) for number in docs.asked()]
    shown = {one.number for one in exercises() if one.figure}
    assert {int(number) for number in re.findall(r"\[E(\d+)\]\(exercises\.md\)", text)} == shown
    assert "| [Q3](lessons.md#3-three-equal-steps-figures-5-6) |" in text
    assert '<a href="exercise_03.html">Q3</a>' in rendered(text)


def test_the_list_of_patterns_has_every_finding_in_its_own_words():
    rows = [line.split(" | ") for line in docs.patterns_md().splitlines() if line.endswith("` |")]
    assert [row[-1].strip("`| ") for row in rows] == list(PATTERNS)
    for row, pattern in zip(rows, PATTERNS.values(), strict=True):
        source = f" ([source]({pattern.source}))" * bool(pattern.source)
        assert [cell.strip("| ").replace("\\|", "|") for cell in row[:4]] == [
            pattern.symptom, pattern.where, pattern.means, pattern.next + source,
        ]  # fmt: skip


def test_the_cheat_sheet_has_some_of_them_each_once():
    slugs = [slug for group in docs.ON_THE_SHEET.values() for slug in group]
    assert len(slugs) == len(set(slugs)) and set(slugs) <= set(PATTERNS) and len(slugs) > 20
    text = docs.cheatsheet_md()
    assert all(f"{PATTERNS[slug].means} *{PATTERNS[slug].next}*" in text for slug in slugs)


def test_a_bar_in_a_cell_does_not_end_it():
    assert docs._row("a|b", "c\nd") == "| a\\|b | c d |"


def test_what_is_said_of_inductors_choice_is_what_was_measured():
    programs = json.loads(CHOICE.read_text())["programs"]
    assert {len(results) for results in programs.values()} == {10}
    text = docs.fused_kernel_md()
    # In the lesson 10 of 10 processes chose 2 elements a thread, alone 10 of 10 chose 8: counted here from the raw numbers.
    for name, elements in (("lesson, torch.compile", 2), ("alone, torch.compile", 8)):
        chosen = [8192 * 3072 / (r["grid"][0] * r["block"][0]) for r in programs[name]]
        assert chosen == [elements] * 10
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} | "))
        assert f", {elements}: 10 of 10, " in row
    for result in (*programs["lesson, torch.compile"], *programs["alone, torch.compile"]):
        tried = result["autotuning_ms"]
        wide = tried["XBLOCK: 1024, num_warps: 4"]
        assert (wide == min(tried.values())) == (result["block"][0] == 128)


@pytest.mark.slow
def test_drawing_again_needs_no_gpu_and_gives_the_pictures_that_are_there(tmp_path):
    """With today's words in them, as their metadata has these. The same matplotlib gives the same bytes, another one others."""
    code = (
        "import io, sys; sys.path.insert(0, '.'); from PIL import Image; from gallery import record;"
        "written = []; record.write_all = lambda files: written.extend(files.items());"
        "sys.argv = ['record.py', '--draw']; assert record.main() == 0;"
        "print(sum(len(data) > 10_000 for _, data in written), len({path for path, _ in written}));"
        "said = lambda picture: Image.open(picture).text['Description'];"
        "print([path.name for path, data in written if not said(path) or said(path) != said(io.BytesIO(data))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count = len(list(GALLERY.glob("*/*.png"))) + len(LLM) + len(list(SEVERAL.glob("*.png")))
    assert done.stdout == f"{count} {count}\n[]\n"


def test_the_machine_is_described_without_its_name():
    machine = json.loads(MACHINE.read_text())
    assert {"device", "driver", "torch", "CUDA", "date", "kernels"} == set(machine)
    for path in (*RECORDED, *LLM, *SEVERAL.glob("*.json.gz")):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        assert not re.search(r'"/|[" ]/(?:home|root|tmp|usr|opt|work)/|torchinductor_', text)


def test_the_language_models_recordings_are_what_its_page_shows():
    assert {path.with_suffix("").with_suffix(".png") for path in LLM} == set((GALLERY.parent / "llm").glob("*.png"))
    page = (ROOT / "docs" / "llm.md").read_text()
    traces = {path.name.removesuffix(".json.gz"): load(str(path)) for path in LLM}
    facts = {name: analyze(trace) for name, trace in traces.items()}
    assert {f.device for f in facts.values()} == {"NVIDIA H200"}
    joined = join_names(traces["graph"], traces["compiled"])
    said = f"{joined.named} of {joined.events} kernels, copies and memsets that {joined.replays} graph launches replayed"
    assert joined.differs is None and said in page
    for one in op_facts_of(traces["compiled"], joined.asked)[:2]:
        cells = ["", *one.name.split(), str(one.launched), *us(one.time_us).split(), f"{one.share:.1%}"]
        assert any(line.split() == cells[1:] for line in page.splitlines()), cells
    for name, rung in (("graph", "| `graph` | 2.36 |"), ("tuned", "| `tuned` | 1.58, 3.30 |")):
        row = next(line for line in page.splitlines() if line.startswith(rung))
        step = facts[name].usual_step
        assert step is not None and step.gpu_busy_us is not None
        assert f" {step.gpu_busy_us / 1000:.2f} " in row
    for name, words in (("eager", "1,877 kernels, each launched"), ("compiled", "565 kernels, and still a launch for each")):
        step = facts[name].usual_step
        assert step is not None and f"{step.kernels:,}" in words and words in page
    whole, checkpointed = (facts[name].memory[0] for name in ("train", "train_checkpoint"))
    gib = 2**30
    for words in (
        f"Of the peak of {human_bytes(whole.peak_bytes)}, {human_bytes(whole.activation_bytes)} were allocated in the forward",
        f"could free up to {human_bytes(whole.layer_bytes)}. With",
        f"With `--checkpoint` the peak is {human_bytes(checkpointed.peak_bytes)}.",
    ):
        assert words in " ".join(page.split()), words
    assert [x.bytes // 2**20 for x in checkpointed.alive[:4]] == [checkpointed.alive[0].bytes // 2**20] * 4
    layers = layer_facts(traces["train"])
    assert len(layers) == 28
    assert all(layer.backward_us is not None and layer.backward_us > 2 * layer.gpu_us for layer in layers)
    again = layer_facts(traces["train_checkpoint"])
    for layer, repeated in zip(layers, again, strict=True):  # the backward pass holds the forward pass once more
        assert repeated.gpu_us == pytest.approx(layer.gpu_us, rel=0.05)
        assert layer.backward_us is not None
        assert repeated.backward_us == pytest.approx(layer.backward_us + layer.gpu_us, rel=0.05)
    said = " ".join(page.split())
    launched = {a.name: a.launched for a in facts["eager"].annotations if a.name.startswith("layer ")}
    assert len(launched) == 28 and set(launched.values()) == {66} and "66 in each of the 28 layers: 1,848 of the" in said
    train = {a.name: a for a in facts["train"].annotations}
    counts = [train[name].launched for name in ("forward", "loss", "optimizer")]
    step = facts["train"].usual_step
    assert step is not None
    rest = step.kernels - sum(counts)
    assert f"{step.kernels:,} kernels: {counts[0]:,} in `forward`, {counts[1]} in `loss`, {counts[2]} in" in said
    assert f"The other {rest:,} belong to the backward pass, {rest / counts[0]:.1f} for each" in said
    forward, backward = (sum(getattr(train[name], key) for name in ("forward", "loss")) for key in ("gpu_us", "backward_us"))
    assert f"they take {backward / 1000:.1f} ms of GPU time, compared with {forward / 1000:.1f}" in said
    assert f"Of {human_bytes(whole.peak_bytes)}, {whole.before_bytes / gib:.1f} GiB were there before the step" in said
    assert [x.bytes for x in whole.alive[:4]] == [pytest.approx(4 * 1024 * 151936 * 2, rel=0.001)] * 4  # blocks are round


class Made(NamedTuple):
    """A figure, as far as the choice asks for it."""

    trace: Path


def test_of_five_runs_the_one_in_the_middle_becomes_the_recording_without_its_machine(tmp_path, monkeypatch):
    """Made runs, in no order of their CPU times, which are known."""
    command = "01_matmul_add.py"
    target = trace_of(command)
    for number, cpu_us in enumerate((50, 10, 40, 20, 30)):
        folder = tmp_path / "runs" / str(number) / target.parent.name
        folder.mkdir(parents=True)
        events = [step(2 + n, 100 * n, cpu_us + n) for n in range(3)]
        write(folder / target.name, *events, op(f"run{number}", 1, 2), hostname="kestrel", username="mallory")
        (folder / target.with_suffix(".txt").name).write_text(f"table of {number}")
    gallery = tmp_path / "gallery"
    monkeypatch.setattr(recording_of_gallery, "GALLERY", gallery)
    monkeypatch.setattr(recording_of_gallery, "SPREAD", tmp_path / "spread.json")
    monkeypatch.setattr(recording_of_gallery, "_trace_of", lambda command: gallery / target.parent.name / target.name)
    monkeypatch.setattr(recording_of_gallery, "figures", lambda: [Made(gallery / target.parent.name / target.name)])
    recording_of_gallery.choose([command], tmp_path / "runs")
    made = gallery / target.parent.name / target.name
    assert made.with_suffix(".txt").read_text() == "table of 4" and "run4" in made.read_text()
    assert "kestrel" not in made.read_text() and "mallory" not in made.read_text()
    ((name, measured),) = json.loads((tmp_path / "spread.json").read_text()).items()
    assert name == f"{target.parent.name}/{target.name}" and [run["cpu_us"] for run in measured] == [11, 21, 31, 41, 51]


def test_a_run_that_failed_is_run_again(tmp_path, monkeypatch, capsys):
    command, asked = "01_matmul_add.py", []

    def record(command, folder, env):
        asked.append(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return "no GPU" if len(asked) == 2 else None

    monkeypatch.setattr(recording_of_gallery, "record", record)
    assert recording_of_gallery.record_all([command], tmp_path, {}) == 1
    assert "2/5 01_matmul_add.py: no GPU\n" in capsys.readouterr().out
    assert recording_of_gallery.record_all([command], tmp_path, {}) == 0
    assert len(asked) == 6 and asked[-1] == asked[1]


def test_each_recording_compiles_with_a_cache_of_its_own(tmp_path, monkeypatch):
    caches = []

    def run(command, env, **_):
        caches.append(Path(env["TORCHINDUCTOR_CACHE_DIR"]))
        assert env["KEPT"] == "1" and caches[-1].is_dir() and list(caches[-1].iterdir()) == []
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(recording_of_gallery.subprocess, "run", run)
    for _ in range(2):
        assert recording_of_gallery.record("01_matmul_add.py --compile", tmp_path, {"KEPT": "1"}) is None
    assert len(set(caches)) == 2 and not any(cache.exists() for cache in caches)


def test_each_picture_shows_the_page_of_its_name(monkeypatch, capsys):
    """A browser that gives the name of the page as its picture."""
    screens = importlib.import_module("gallery.screens")
    made: dict[Path, bytes] = {}

    class Browser:
        chromium = property(lambda self: self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def launch(self, executable_path):
            return self

        def close(self):
            pass

        def new_page(self, viewport):
            return Page()

    class Page:
        def goto(self, url):
            self.name = url.rpartition("/")[2]

        def wait_for_selector(self, *_, **__):
            pass

        click = wait_for_selector

        def screenshot(self):
            return self.name.encode()

    monkeypatch.setattr(screens, "sync_playwright", Browser)
    monkeypatch.setattr(screens.shutil, "which", lambda name: "/chromium")
    monkeypatch.setattr(screens, "printed", lambda *arguments: "the report")
    monkeypatch.setattr(screens, "write_all", made.update)
    monkeypatch.setattr(screens.os, "chdir", lambda path: None)
    screens.main()
    pictures = {path.relative_to(screens.ROOT).as_posix(): data for path, data in made.items() if path.suffix == ".png"}
    assert pictures == {
        "read-trace/docs/pictures/page.png": b"page.html",
        "read-trace/docs/pictures/job.png": b"job.html",
        "docs/pictures/report_page.png": b"page.html",
    }


@pytest.mark.parametrize("name", gallery_jobs.COMMANDS)
def test_the_first_runs_numbers_are_those_of_the_traces_that_are_kept(tmp_path, monkeypatch, name):
    """Of one step, of the rank that says most; transfer and communication of a job that waits for nobody are the same."""

    def ran(command, **how):
        for rank in range(2):
            kept = SEVERAL / f"{name}_rank{rank}.json.gz"
            (Path(command[-1]) / f"run_rank{rank}.json.gz").write_bytes(kept.read_bytes())
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(gallery_jobs.subprocess, "run", ran)
    found = gallery_jobs.record(name, gallery_jobs.COMMANDS[name], argparse.Namespace(ranks=2, out=tmp_path), keep=True)
    day = 26 if name in ("data_parallel_each_pass", "data_parallel_slow_host") else 22
    assert found == json.loads((SEVERAL / f"spread_2026-11-{day}.json").read_text())["runs"][name][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}_rank{rank}.json.gz" for rank in range(2)]


def test_of_several_runs_of_the_jobs_the_first_is_kept(tmp_path, monkeypatch, capsys):
    asked = []

    def record(name, command, args, keep):
        asked.append((name, keep))
        return {"step_us": float(len(asked))}

    monkeypatch.setattr(gallery_jobs, "record", record)
    monkeypatch.setattr(gallery_jobs, "COMMANDS", {"a": ("a.py",), "b": ("b.py",)})
    monkeypatch.setattr(gallery_jobs.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(gallery_jobs.torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(gallery_jobs.torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr("sys.argv", ["jobs.py", "--out", str(tmp_path / "out"), "--runs", "1", "b"])
    gallery_jobs.main()
    assert [asked.pop()] == [("b", True)]
    monkeypatch.setattr("sys.argv", ["jobs.py", "--out", str(tmp_path / "out"), "--runs", "3"])
    gallery_jobs.main()
    assert asked == [("a", True), ("b", True), *[("a", False), ("b", False)] * 2]
    (path,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"spread_\d{4}-\d\d-\d\d\.json", path.name)
    spread = json.loads(path.read_text())
    assert [run["step_us"] for run in spread["runs"]["a"]] == [1, 3, 5] and spread["machine"]["device"] == "NVIDIA H200"


def test_jobs_are_recorded_on_as_many_gpus_as_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery_jobs.torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("sys.argv", ["jobs.py", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"^this needs 2 GPUs, and finds 1; gallery/several_gpus/ holds a run of each$"):
        gallery_jobs.main()
    assert not (tmp_path / "out").exists()


def test_a_jobs_step_takes_as_long_as_its_slowest_ranks(tmp_path, monkeypatch):
    def run(command, **_):
        folder = Path(command[-1])
        for rank, period in enumerate((100, 250)):
            said = {"rank": rank, "world_size": 2, "backend": "nccl"}
            path = folder / f"t_rank{rank}.json"
            write(path, *(step(n, period * n, period - 10) for n in range(4)), distributedInfo=said)
            (folder / f"t_rank{rank}.json.gz").write_bytes(gzip.compress(path.read_bytes()))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(gallery_jobs.subprocess, "run", run)
    args = argparse.Namespace(ranks=2, out=tmp_path)
    assert gallery_jobs.record("data_parallel", ("06_a_data_parallel.py",), args, keep=False)["step_us"] == 250.0


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: f"{claim.post}-{claim.figure}: {claim.claim[:40]}")
def test_a_claim_is_judged_by_a_recording_and_says_why_where_it_does_not_hold(claim):
    assert claim.status in ("confirmed", "corrected", "unknown") and claim.claim.endswith(".")
    assert bool(claim.why) is (claim.status != "confirmed")
    assert claim.command or claim.status == "unknown"
    told = f"{claim.said(claim.h200)} {claim.said(claim.why)}"
    assert "{" not in told and "no such finding" not in told and told.rstrip().endswith(".")


def test_of_a_plain_step_what_is_measured_is_kept():
    step = SimpleNamespace(cpu_us=5.0, gpu_busy_us=3.0)
    for how, kept in (("measured", {"plain_us": 4.0}), ("estimated", {})):
        facts = SimpleNamespace(usual_step=step, plain=SimpleNamespace(how=how, step_us=4.0))
        assert recording_of_gallery._measured(cast(Facts, facts)) == {"cpu_us": 5.0, "gpu_busy_us": 3.0, **kept}
