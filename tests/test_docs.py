"""The documents name what there is: commands parse and run, links lead somewhere, samples are what is printed."""

import glob
import importlib
import os
from pathlib import Path
import re
import shlex
import subprocess
import sys

from helpers import GALLERY, LESSONS, ROOT, TOOL
from helpers.flags import OWN, SHARED
import pytest
from trace_reader import cli, read

import read_trace

README = (ROOT / "README.md").read_text()
DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
OF_THE_TOOL = sorted(str(path.relative_to(ROOT)) for path in (*TOOL.glob("*.md"), *(TOOL / "docs").glob("*.md")))
PAGES = [*DOCS, *OF_THE_TOOL, "CONTRIBUTING.md", "CHANGELOG.md"]
DOCUMENTS = ["README.md", "traces/README.md", *PAGES, "read_trace.py", "00_doctor.py", *LESSONS]


def text_of(document):
    if document == "read_trace.py":  # its help
        return cli.help_text("read_trace.py", "uv run read_trace.py")
    return (ROOT / document).read_text()


def commands(script: str) -> list[tuple[str, str]]:
    """(document, command) for each time that a document says `uv run <script> ...`."""
    pattern = rf"uv run ({script}[^`\n&|(;,\"]*)"
    return sorted({(d, c.strip()) for d in DOCUMENTS for c in re.findall(pattern, text_of(d))})


COMMANDS = commands(r"\d\d_\w+\.py")
READING = commands(r"read_trace\.py")


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 60 and len(READING) > 40
    assert {"README.md", "read-trace/docs/reading.md", "docs/sharing.md", "docs/without_gpu.md"} <= {
        d for d, _ in (*COMMANDS, *READING)
    }


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_every_command_parses(document, command):
    script, *flags = shlex.split(command)
    importlib.import_module(script.removesuffix(".py")).parse_args([flag for flag in flags if flag != "..."])


@pytest.mark.parametrize(("document", "command"), READING)
def test_every_command_that_reads_a_trace_parses_and_its_recordings_are_there(document, command):
    _, *arguments = shlex.split(re.sub(r" {2,}.*", "", command))
    if "--help" in arguments:
        return
    for path in getattr(cli.parse_args(arguments), "traces", ()):
        if path.startswith(("tests/", "gallery/")):
            assert list(ROOT.glob(path)), path


@pytest.mark.parametrize("document", ["README.md", *PAGES])
def test_every_link_and_picture_is_there(document):
    for target in re.findall(r"\]\(([^)]+)\)", text_of(document)):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            path = ((ROOT / document).parent / name).resolve() if name else ROOT / document
            assert path.is_file(), target
            assert not anchor or anchor in anchors(path), target


def anchors(path):
    """Return what GitHub calls the links to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", ["README.md", *PAGES])
def test_every_file_of_the_suite_that_is_named_is_there(document):
    named = set(re.findall(r"`((?:\.ci|benchmarks|common|docs|gallery|read-trace|tests|traces)/[\w./-]+)`", text_of(document)))
    for name in named:
        assert (ROOT / name).exists() or name.startswith("traces/0"), name


def test_the_readme_is_short_and_maps_to_every_page():
    assert sum(not line.startswith("|") for line in README.splitlines()) <= 110
    assert {f"docs/{name}.md" for name in re.findall(r"\(docs/(\w+)\.md\)", README)} == set(DOCS)


def test_the_readme_names_every_lesson():
    assert set(re.findall(r"\d\d_\w+\.py", README)) == {"00_doctor.py", *LESSONS}


def flags_in(*documents):
    return {flag for d in documents for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text_of(d))}


def test_the_pages_name_every_flag_and_no_other():
    one = {flag for flags in OWN.values() for flag in flags}
    reading = {
        "--json",
        "--md",
        "--top",
        "--full",
        "--all",
        "--chain",
        "--steps_from",
        "--by",
        "--names",
        "--places",
        "--time",
        "--recompiles",
        "--what_if",
        "--folded",
        "--plot",
        "--html",
        "--steps",
        "--us",
        "--open",
        "--redact",
        "--keep",
        "--merge",
        "--scheduler",
        "--snapshot",
        "--step",
        "--brief",
        "--change",
        "--eager",
        "--stacks",
    }
    foreign = {
        "--in-turns",  # of a benchmark
        "--no-delete",
        "--help",
        "--version",
        "--in-dim",
        "--from",
        "--with",
        "--standalone",
        "--nproc_per_node",
        "--nnodes",
        "--rdzv_endpoint",
        "--out",
        "--hta",
        "--megabytes",
        "--one_core",
        "--tracelens",
        "--ranks",
        "--reduce",
        "--slices",
        "--torch-backend",
        "--no-sync",
        "--index-url",
        "--accept",
        "--no-project",
        "--with-editable",
        "--type",
        "--group",
        "--diff",
        "--analysis",
        "--augment_trace",
        "--combine",
    }  # of other programs; another spelling
    assert set(SHARED) <= flags_in("docs/recording.md")
    assert {"--batch", "--op", "--vary_batch", "--backend", "--kernel_version"} <= flags_in("docs/recording.md")
    reading = {*reading, "--write"}
    assert reading <= flags_in("read-trace/docs/reading.md", "docs/sharing.md")
    exercise = {"--fast", "--watch", "--leave", "--hint", "--solution", "--html", "--reset", "--list"}
    assert exercise <= flags_in("docs/exercises.md")
    check = {"--baseline", "--name", "--max", "--config", "--github", "--junit", "--md", "--json"}
    check |= {"--sort", "--csv", "--strict"}
    assert check - {"--json"} <= flags_in("read-trace/docs/check.md")
    loop = {"--top", "--every", "--once", "--against", "--keep-running", "--log", "--to", "--allow-run"}
    check |= loop
    assert loop <= flags_in("read-trace/docs/own_loop.md")
    assert flags_in("README.md", *PAGES) <= {*SHARED, *one, *reading, *exercise, *check, *foreign}


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_says_what_to_guess_and_what_it_writes(lesson):
    doc = importlib.import_module(lesson.removesuffix(".py")).__doc__
    assert doc is not None
    assert "Guess first" in doc and "Then look" in doc and f"Writes traces/{lesson.removesuffix('.py')}/<" in doc
    assert text_of(lesson).count("\n") <= 120


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_shows_the_loop_that_the_readme_shows(lesson):
    if lesson.startswith("01"):
        assert all(call in text_of(lesson) for call in ("profile(", "schedule(", ".table(", "export_chrome_trace("))
        return
    loop = README.partition("```\nwith record(")[2].partition("```")[0]
    *lines, last = [line.strip() for line in f"with record({loop}".splitlines()]
    assert len(lines) == 4
    code = [line.strip() for line in text_of(lesson).splitlines()]
    at = code.index(lines[0])
    assert code[at : at + 4] == lines
    limited = "plain_step = time_plain_steps(step, args, device, most=PLAIN_STEPS)"  # a cache has room for so many
    named = "plain_step = time_plain_steps(step, args, device)"
    assert code[at + 4] in (last, limited, named)
    assert code[at + 4] == last or code[at + 5] == last.replace("time_plain_steps(step, args, device)", "plain_step")


def run_python(code, folder):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def snippets(document):
    return re.findall(r"```python\n(.*?)```", text_of(document), re.DOTALL)


@pytest.mark.slow
def test_the_recording_in_plain_torch_runs_and_holds_the_same_steps(tmp_path):
    (code,) = snippets("README.md")
    assert "aten::mm" in run_python(code, tmp_path)
    facts = read(str(tmp_path / "trace.json"))
    assert [step.name for step in facts.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    assert facts.usual_step is not None
    assert dict(facts.usual_step.work) == {"aten::mm": 1, "aten::add": 1}


def test_the_snippet_for_notebooks_runs():
    *_, code = snippets("read-trace/docs/reading.md")  # the others need a GPU
    assert run_python(code, ROOT).startswith("overhead-bound 2 ['overhead-bound', ")


def numbers_out(text):
    return re.sub(r"\d+(\.\d+)?( ?(us|µs|ms|s)\b)?", "N", text)


@pytest.mark.slow
def test_the_sample_in_the_readme_is_what_the_run_prints_but_for_the_machine_and_times(lesson):
    """Line by line; the first line names the machine, and numbers differ, but not those of the memory and of the work."""
    sample = README.partition("$ uv run 01_matmul_add.py --guess 3\n")[2].partition("```")[0].splitlines()
    run = lesson("01_matmul_add.py", "--guess", "3", "--device", "cpu", "--plain")
    folder = str(run.folder)
    printed = run.out.replace("_device-cpu", "").replace(folder, "traces/01_matmul_add").splitlines()

    def told(lines):  # which op takes most is the machine's, and whether other programs made rounds differ
        lines = [re.sub(r" \(\S+ \S+ to \S+ \S+ in its rounds\)", "", line) for line in lines[1:]]
        return [numbers_out(line.partition("; ")[0] if line.startswith("verdict: ") else line) for line in lines]

    assert told(printed) == told(sample)
    same = [line for line in sample if line.startswith(("peak", "innermost ops", "guess", "  1"))]
    assert len(same) == 5 and set(same) <= set(printed)


def test_the_workspace_that_the_readme_names_is_the_recordings():
    assert "cuBLAS: a workspace of 32 MiB on an H200" in README
    facts = read(str(GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"))
    assert facts.lesson["peak_memory"] == (
        "40.0 KiB of tensors, of which 24.0 KiB are inputs and weights; 32.0 MiB with what libraries took for themselves"
    )


def test_no_document_names_a_place_of_this_machine():
    for document in DOCUMENTS:
        assert str(ROOT) not in text_of(document) and str(Path.home()) + "/" not in text_of(document)


SHOWN = re.compile(r"^```\n\$ uv run read_trace.py ([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("document", "command", "shown"),
    [
        pytest.param(path, command, shown, id=f"{path.name}: {command[:60]}")
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(TOOL.rglob("*.md")))
        for command, shown in SHOWN.findall(path.read_text("utf-8"))
    ],
)
def test_what_a_document_shows_of_the_reader_is_what_it_prints(document, command, shown, capsys, monkeypatch):
    """`...` stands for lines that are left out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    arguments = [path for word in shlex.split(command) for path in (sorted(glob.glob(word)) if "*" in word else [word])]
    assert read_trace.main(arguments) == 0
    printed = capsys.readouterr().out
    for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
        assert part in printed
