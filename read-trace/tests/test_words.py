"""The words of the command line: each flag of before stands for one, and a mistake is answered with what helps."""

import re

import pytest
from reader_helpers import FAULTS, GALLERY
from trace_reader import cli
from trace_reader.commands import COMMANDS

TRACE = str(FAULTS / "item_on_gradients.json.gz")
GRAPH = str(GALLERY / "01_matmul_add" / "4096_bf16_warm_compile_compile_mode-reduce-overhead.json")
EAGER = str(GALLERY / "01_matmul_add" / "4096_bf16_warm_eager.json")


def told(capsys, *arguments):
    """Exit code, stdout and stderr."""
    try:
        code: object = cli.main(list(arguments))
    except SystemExit as end:
        code = end.code
    return (code, *capsys.readouterr())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([TRACE, "--brief"], ["brief", TRACE]),
        ([TRACE, "--chain", "3"], ["tree", TRACE, "--step", "3"]),
        ([TRACE, "--chain"], ["tree", TRACE]),
        ([TRACE, "--by", "annotation", "--json"], ["time", TRACE, "--by", "annotation", "--json"]),
        ([GRAPH, "--names", EAGER], ["names", GRAPH, "--eager", EAGER]),
        ([GRAPH, "--names", EAGER, "--by", "annotation"], ["names", GRAPH, "--eager", EAGER, "--by", "annotation"]),
        ([TRACE, "--what_if", "graph"], ["what-if", TRACE, "-c", "graph"]),
        ([TRACE, "--what-if", "graph"], ["what-if", TRACE, "--change", "graph"]),
        ([TRACE, "--html", "x.html"], ["page", TRACE, "-o", "x.html"]),
        ([TRACE, "--plot", "x.svg", "--steps", "3:3"], ["plot", TRACE, "--out", "x.svg", "--steps", "3:3"]),
        ([TRACE, "--folded", "x.txt"], ["folded", TRACE, "-o", "x.txt"]),
        ([TRACE, "--redact=x.json"], ["redact", TRACE, "-o", "x.json"]),
        ([EAGER, GRAPH], ["compare", EAGER, GRAPH]),
        ([TRACE, "--steps-from", "^ProfilerStep"], ["report", TRACE, "--steps_from", "^ProfilerStep"]),
    ],
)
def test_a_flag_of_before_is_its_command(flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = told(capsys, *flags)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert told(capsys, *words) == before and before[0] == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written


def test_the_help_fits_a_screen_and_answers_five_questions(capsys):
    _, out, _ = told(capsys, "--help")
    lines = out.splitlines()
    assert len(lines) <= 38 and max(map(len, lines)) <= 88
    for question, answer in (
        ("Which line takes the time?", "time TRACE --by stack"),
        ("What holds the memory?", "memory SNAPSHOT.pickle"),
        ("What changed?", "compare BEFORE AFTER"),
        ("Is it worse?", "check NEW... --baseline OLD..."),
        ("And a program of my own?", "try train.py"),
    ):
        assert re.search(rf"^{re.escape(question)} +read-trace {re.escape(answer)}$", out, re.MULTILINE)
    assert [line.split()[0] for line in lines if re.match(r"  [a-z]", line)] == [command.word for command in COMMANDS]
    assert told(capsys, "help") == told(capsys, "-h") == (0, out, "")
    assert told(capsys, "help", "page") == told(capsys, "page", "--help")
    assert told(capsys, "page", "--help")[1].startswith("usage: read-trace page [-h] -o FILE ")


@pytest.mark.parametrize(
    ("arguments", "error", "usage", "flags"),
    [
        (["pgae", TRACE], "no command and no file is called 'pgae'; did you mean page?", "page -o FILE ", "read-trace --help"),
        (
            ["what_fi", TRACE],
            "no command and no file is called 'what_fi'; did you mean what-if?", "what-if -c CHANGE ", "read-trace --help",
        ),
        ([TRACE, "--tpo", "3"], "report has no flag --tpo; did you mean --top?", "report ", "read-trace report --help"),
        (["page", TRACE], "the following arguments are required: -o/--out", "page -o FILE ", "read-trace page --help"),
        (
            ["page", TRACE, "-o", "x.html", "--recompiles", "y"],
            "--recompiles does nothing with page: it is for report", "page -o FILE ", "read-trace page --help",
        ),
        (["compare", TRACE], "the following arguments are required: TRACE", "compare ", "read-trace compare --help"),
        (["check", TRACE], "the following arguments are required: --baseline", "check --baseline ", "read-trace check --help"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence_and_two_lines_that_help(arguments, error, usage, flags, capsys):
    code, out, err = told(capsys, *arguments)
    assert (code, out) == (2, "")
    first, second, third = err.splitlines()
    assert first == f"error: {error}" and third == f"  flags: {flags}"
    assert second.startswith(f"  usage: read-trace {usage}")


def test_a_word_is_a_command_where_a_file_or_folder_of_that_name_lies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("runs", "check", "mcp", "help"):  # runs: where TensorBoard keeps its own
        (tmp_path / name).mkdir()
    before = told(capsys, "runs", TRACE, EAGER)
    assert before[0] == 0 and before[2] == "" and len(before[1].splitlines()) >= 3
    code, out, _ = told(capsys, "check", TRACE, "--baseline", TRACE, "--max", "kernels=+0")
    assert code == 0 and out.startswith("no worse than the baseline")
    assert told(capsys, "help") == told(capsys, "--help")
    (tmp_path / "page").write_bytes((GALLERY / "02_linear" / "1024_32_64_bf16_warm_eager.json").read_bytes())
    assert told(capsys, "page")[2].startswith("error: the following arguments are required: ")
    code, out, _ = told(capsys, "./page")
    assert code == 0 and out.startswith("./page\ndevice: NVIDIA H200")


@pytest.mark.parametrize("arguments", [[], ["diff", TRACE, TRACE], ["help", "zzzz"]])
def test_what_is_no_command_is_answered_with_the_commands(arguments, capsys):
    code, out, err = told(capsys, *arguments)
    first, usage, flags = err.splitlines()
    assert (code, out, flags) == (2, "", "  flags: read-trace --help") and first.startswith("error: no command")
    assert usage == f"  usage: read-trace [COMMAND] TRACE..., COMMAND one of {', '.join(command.word for command in COMMANDS)}"


def test_hyphens_and_underscores_are_the_same_in_words_findings_and_measures(capsys):
    for one, other in (
        (["what_if", TRACE, "-c", "graph"], ["what-if", TRACE, "-c", "graph"]),
        (["help", "what_if"], ["help", "what-if"]),
        (["show", TRACE, "sync_in_step"], ["show", TRACE, "sync-in-step"]),
    ):
        assert told(capsys, *one) == told(capsys, *other) and told(capsys, *one)[0] == 0
    assert told(capsys, "check", TRACE, "--baseline", TRACE, "--max", "plain-step=5%")[0] == 2  # no measure either way
    (code, out, err) = told(capsys, "check", GRAPH, "--baseline", EAGER, "--max", "kernels=+9", "--max", "aten-calls=+9%")
    assert (code, err) == (0, "") and "aten-calls=+9%" in out


@pytest.mark.parametrize("limit", ["step=5", "gpu=+0.1", "peak_memory=+1000"])
def test_a_limit_of_a_time_or_of_memory_needs_a_unit(limit, capsys):
    code, _, err = told(capsys, "check", TRACE, "--baseline", TRACE, "--max", limit)
    measure = limit.partition("=")[0]
    units = "%, B, KiB, MiB, GiB" if measure == "peak_memory" else "%, us, µs, ms, s"
    assert code == 2 and err.startswith(f"error: argument --max: {limit!r} needs a unit that {measure} has: {units}\n")


def test_a_finding_in_the_place_of_the_trace_is_said(capsys):
    error = "error: cold-start is a finding: the trace comes first, show TRACE cold-start\n"
    assert told(capsys, "show", "cold-start", TRACE) == (2, "", error)
