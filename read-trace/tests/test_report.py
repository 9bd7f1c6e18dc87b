"""The report as a terminal shows it: how long, how wide, in which colours."""

import random
import re

from msgspec.structs import replace
import pytest
from reader_helpers import FAULTS, GALLERY
from reader_helpers.events import ADD, GEMM, annotation, kernel, launch, on, op, step, write
from reader_helpers.played import as_played  # noqa: F401  # in each test of this file
from trace_reader import cli, read
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.facts import Finding
from trace_reader.analysis.trace.utilization import Utilization
from trace_reader.findings.bottleneck import NO_OP_IS_FAR
from trace_reader.report import trace_report as trace_report_module
from trace_reader.report.document import Column, Document, Style, Table, TablePart
from trace_reader.report.trace_report import NOTHING_FAR, best_of, called_first, nothing_is_far, trace_report
from trace_reader.write import plain_text
from trace_reader.write.plain_text import shortened

RECORDINGS = sorted([*GALLERY.glob("*/*.json"), *FAULTS.glob("*.json.gz")])
ESCAPE = re.compile("\x1b\\[[0-9;]*m")


def told(capsys, *arguments):
    assert cli.main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_what_only_teaches_is_on_the_first_screen_of_a_lesson_alone(capsys, tmp_path):
    events = [step(0, 0, 100), op("aten::t", 10, 5), launch(20, 1), kernel(GEMM, 25, 70, 1)]
    lesson = {"script": "01_matmul_add", "run": "64"}
    of_a_lesson = told(capsys, write(tmp_path / "a.json", *events, lesson=lesson))
    of_another, everything = (told(capsys, write(tmp_path / "b.json", *events), *flags) for flags in ([], ["--all"]))
    assert "\n  views-launch-nothing: 1 x aten::t of a step launched nothing themselves\n" in of_a_lesson
    assert "\n  views-launch-nothing: " in everything and "\n  views-launch-nothing: " not in of_another
    assert "views-launch-nothing" in of_another.partition("and ")[2]  # by its name


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name.partition('.')[0]}")
def test_a_report_keeps_to_50_lines_of_80_columns(capsys, path):
    lines = told(capsys, path).splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 80
    for line in ("Verdict", "Findings (what each saves, or its share of the critical path)", "more with --all: "):
        assert any(line in each for each in lines)


@pytest.mark.parametrize("columns", [40, 63, 80, 100, 160])
@pytest.mark.parametrize("flags", [[], ["--all"]])
def test_a_report_is_as_wide_as_the_terminal(capsys, monkeypatch, columns, flags):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = FAULTS / "loop_optimizer.json.gz"
    assert columns - 12 < max(map(len, told(capsys, path, *flags).splitlines())) <= columns


@pytest.mark.parametrize("columns", [70, 80])
def test_a_table_that_is_too_wide_is_several_and_loses_nothing(capsys, monkeypatch, columns):
    path = GALLERY / "03_simple_mlp" / "64_128_768_3072_bf16_warm_eager_record_shapes.json"
    every = {}
    for width in (columns, 300):
        monkeypatch.setenv("COLUMNS", str(width))
        out = told(capsys, path, "--all")
        every[width] = set(out[out.index("\nFootprints") : out.index("\nBandwidth")].split())
    assert every[300] <= every[columns] | {"Footprints"} and "18.8%" in every[columns]


def test_without_flags_four_findings_are_told_and_the_others_named(capsys):
    path = GALLERY / "03_simple_mlp" / "64_128_768_3072_bf16_warm_eager_record_shapes.json"
    brief, every = told(capsys, path), told(capsys, path, "--all")
    slugs = re.compile(r"^  ([a-z0-9-]+)(?: \((?:saves [a-z0-9 ]+)?[0-9.]+%\))?: ", re.MULTILINE)
    findings = brief[brief.index("\nFindings") : brief.index("\nSteps")]
    said = slugs.findall(findings)
    rest = re.search(r"  and ([a-z0-9, \n-]+)\(--all\)", findings)[1].replace("\n", " ").replace(",", "").split()
    assert len(said) == 4 and [*said, *rest] == slugs.findall(every[every.index("\nFindings") : every.index("\nSteps")])


@pytest.mark.parametrize("seed", range(50))
def test_shortened_names_stay_distinct(seed):
    rng = random.Random(seed)
    names = ["".join(rng.choice("ab") for _ in range(rng.randrange(1, 30))) for _ in range(40)]
    short = shortened(names, 12)
    assert max(map(len, short)) <= 12
    assert len(set(short)) == len(set(names)) == len(set(zip(names, short, strict=True)))


def test_a_shortened_name_has_its_beginning_and_its_end():
    assert shortened(["abcdefghijklmnop", "short"], 11) == ["abcd...mnop", "short"]


def test_kernels_with_one_label_are_numbered(capsys, tmp_path):
    other = ADD.replace("<8,", "<4,")
    events = [step(0, 0, 100), launch(0, 1), kernel(ADD, 10, 60, 1), launch(1, 2), kernel(other, 70, 20, 2)]
    out = told(capsys, write(tmp_path / "t.json", *events))
    assert re.search(r"^  add  .*60.0 µs", out, re.MULTILINE) and re.search(r"^  add #2  .*20.0 µs", out, re.MULTILINE)


def as_a_terminal(monkeypatch, **environment):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)


def test_the_change_that_saves_most_stands_under_the_verdict(capsys):
    """And what the verdict's own finding advises in general is left out then."""
    brief = told(capsys, FAULTS / "pageable_copy.json.gz")
    best = "best change (blocking-copy, saves 1% to 21% of a step): Pin the host memory, copy with non_blocking=True, and leave"
    assert f"\n{best} results on the GPU\n" in brief.replace("\n  ", " ") and "longest kernels first" not in brief
    brief = told(capsys, FAULTS / "sound.json.gz")
    assert "best change" not in brief and "longest kernels first" in brief.replace("\n  ", " ")


def test_on_a_terminal_there_are_colours_and_the_same_words(capsys, monkeypatch):
    path = FAULTS / "pageable_copy.json.gz"
    before = told(capsys, path)
    as_a_terminal(monkeypatch)
    coloured = told(capsys, path)
    assert "\x1b[1mVerdict\x1b[0m\n" in coloured and "\x1b[1;33m  blocking-copy (saves 1% to 21%)\x1b[0m: 1 copy" in coloured
    assert ESCAPE.sub("", coloured) == before and not ESCAPE.search(before)


def test_no_color_is_heeded(capsys, monkeypatch):
    as_a_terminal(monkeypatch, NO_COLOR="1")
    assert not ESCAPE.search(told(capsys, FAULTS / "sound.json.gz"))


def test_a_name_is_no_markup(capsys, monkeypatch, tmp_path):
    as_a_terminal(monkeypatch)
    events = [step(0, 0, 100), op("[bold red]aten::mm[/bold red]", 0, 9), launch(1, 1), kernel("[red]k[/]", 10, 90, 1)]
    out = ESCAPE.sub("", told(capsys, write(tmp_path / "t.json", *events)))
    assert "[red]k[/]" in out and "[bold red]aten::mm[/bold red]" in out


def test_the_full_report_names_what_the_brief_one_leaves_out(capsys):
    path = FAULTS / "loop_optimizer.json.gz"
    brief, every = told(capsys, path), told(capsys, path, "--all")
    assert "\nAnnotations" not in brief and "\nAnnotations" in every
    assert " ".join(brief[brief.index("more with --all") :].split()) == (
        "more with --all: places, annotations, the GPU's time, origins, the GPU's idle time, kinds of work, footprints and "
        "occupancy, all rows and columns"
    )
    assert GEMM[:5] in every


def test_the_verdicts_own_change_is_the_best_where_it_names_one(capsys):
    assert cli.main([str(FAULTS / "slow_loader.json.gz")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "best change (input-bound, saves up to 82% of a step): Set num_workers above 0: a DataLoader loads in the program's"
        in told
    )


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ({"record_shapes": 1}, None),
        ({"with_stack": 1}, "recorded with stacks, which slows down the CPU"),
        ({"record_shapes": 1, "profile_memory": 1, "plain_step_us": {"low": 74, "median": 75, "high": 76}},
         "recorded with shapes, memory: 25% of a recorded step is the profiler's"),
    ],
)  # fmt: skip
def test_what_was_recorded_besides_has_its_price(tmp_path, capsys, header, line):
    events = [e for n in range(3) for e in (step(n, 100 * n, 100), op("aten::mm", 100 * n, 90))]
    lines = told(capsys, write(tmp_path / "t.json", *events, **header)).splitlines()
    assert [text for text in lines if text.startswith("recorded with ")] == ([line] if line else [])


@pytest.mark.parametrize(("gap_us", "best"), [(300, True), (150, False)])
def test_where_to_look_is_the_best_change_only_where_it_is_much(tmp_path, capsys, gap_us, best):
    events = [e for n in range(3) for e in (step(n, 1000 * n, 1000), op("aten::mm", 1000 * n, 1000 - gap_us))]
    out = told(capsys, write(tmp_path / "t.json", *events))
    assert ("best change (python-between-ops, " in out) is best and "  python-between-ops (saves up to " in out


@pytest.mark.parametrize(
    ("others", "what"),
    [
        ([None, Gain(0.1, 0.3)], "best change"),
        ([Gain(0.2, 0.29)], "best change"),  # about as much
        ([None, Gain(0.2, 0.32)], "first change to try"),
    ],
)
def test_the_first_change_is_the_best_only_where_none_may_save_clearly_more(others, what):
    assert called_first(Gain(0.1, 0.3), others) == what
    assert called_first(None, []) == "best change"


@pytest.mark.parametrize(
    ("threads", "first"),
    [((1, 2), ["first change to try (threads-take-turns, takes 100%"]), ((1, 1), [])],
)
def test_a_change_that_cannot_be_played_is_told_before_advice_for_nearly_every_run(tmp_path, capsys, threads, first):
    events = [step(n, 1000 * n, 1000) for n in range(2)]
    for n in range(60):
        events += [*on(threads[n % 2], launch(30 * n, n)), kernel(ADD, 30 * n + 5, 2, n)]
    lines = told(capsys, write(tmp_path / "t.json", *events)).splitlines()
    assert [line.split(" of ")[0] for line in lines if line.startswith(("first change", "best change"))] == first
    facts = read(str(tmp_path / "t.json"))
    unplayed = replace(facts, findings=tuple(replace(one, gain=None) for one in facts.findings))  # as of a rank of a job
    assert best_of(unplayed) is None


@pytest.mark.parametrize(("loader_us", "told_of"), [(960, True), (300, False)])
def test_a_bound_of_nearly_all_is_told_where_most_of_the_steps_is_of_it(tmp_path, capsys, loader_us, told_of):
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [e for n in range(3) for e in (step(n, 1000 * n, 1000), annotation(loader, 1000 * n, loader_us),
              op("aten::mm", 1000 * n + loader_us, 1000 - loader_us))]  # fmt: skip
    out = told(capsys, write(tmp_path / "t.json", *events))
    assert ("best change (input-bound, saves up to 96% of a step)" in out) is told_of


def test_of_a_run_whose_ops_are_as_fast_as_usual_it_is_said_and_the_report_ends(monkeypatch):
    facts = read(str(GALLERY / "01_matmul_add" / "4096_bf16_warm_eager_record_shapes.json"))
    lines = nothing_is_far(facts)
    assert lines.startswith(
        f"{NOTHING_FAR}: {NO_OP_IS_FAR}, and no finding is known to save something. What is left is less work"
    )
    assert best_of(facts) is None
    some = Finding("sync-in-step", "seen", "means", "next", None, (), Gain(0.0, 0.05))
    few, much = (replace(facts, findings=(*facts.findings, replace(some, gain=Gain(0.0, high)))) for high in (0.05, 0.06))
    assert "no finding saves more than 5% of a step. What is left" in nothing_is_far(few) and nothing_is_far(much) == ""
    assert nothing_is_far(replace(facts, verdict="overhead-bound")) == ""
    change = replace(some, slug="channels-first-on-cpu", gain=None, share=0.3)  # which cannot be played
    assert nothing_is_far(replace(facts, findings=(*facts.findings, change))) == ""
    short = Style()
    own, lesson = (plain_text.write(trace_report(one, short)) for one in (replace(facts, lesson={}), facts))
    assert "\nSteps" in lesson and "\nSteps" not in own and "\nmore with --all: places, " in own
    slow = [replace(one, to_gain_us=one.time_us) for one in facts.op_shapes]
    assert nothing_is_far(replace(facts, op_shapes=tuple(slow))) == ""
    monkeypatch.setattr(trace_report_module, "utilization", lambda _: Utilization(1, 0.29, 0.4, 0.0))
    assert nothing_is_far(facts) == ""


def test_a_long_name_loses_its_middle_in_markdown_too(capsys):
    path = GALLERY.parent / "llm" / "compiled.json.gz"
    assert cli.main([str(path), "--md", "--all"]) == 0
    cells = [cell for line in capsys.readouterr().out.splitlines() if line.startswith("|") for cell in line.split(" | ")]
    assert max(map(len, cells)) <= 130 and any("..." in cell for cell in cells)


def test_where_nothing_else_is_left_to_shorten_tables_come_down_to_a_row(monkeypatch):
    """The rows that a table has at least go, one by one, but for the first."""
    monkeypatch.setattr("trace_reader.write.plain_text.MOST_LINES", 3)
    table = Table("t", "T", lambda view: (), (Column("a", lambda one, view: one),), short_rows=6)
    document = Document(Style())
    document.parts.append(TablePart(table, ["a"], [["x"], ["y"], ["z"]], ["x", "y", "z"], 0, "--all", 40, 3))
    assert [line.strip() for line in plain_text.write(document).splitlines()] == ["a", "x", "and 2 more (--all)"]
