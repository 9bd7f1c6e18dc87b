"""The table of runs: `read-trace runs`."""

import csv
import json
from pathlib import Path
import shutil

import pytest
from reader_helpers.events import document, kernel, launch, memory, op, step, write
from trace_reader import cli
from trace_reader.units import natural


@pytest.fixture
def run(tmp_path):
    """Writes a trace of steps of these lengths, one after the other, each with a kernel; its path."""

    def written(name, *steps_us, plain_us=None):
        events, at = [], 1000.0
        for n, long_us in enumerate(steps_us, 1):
            events += [step(n, at, long_us), launch(at + 1, n), kernel("gemm", at + 2, 4, n)]
            at += long_us
        header = (
            {} if plain_us is None else {"plain_step_us": {"median": plain_us, "low": plain_us, "high": plain_us, "steps": 5}}
        )
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**document(*events), **header}))
        return str(path)

    return written


def told(capsys, *arguments):
    code = cli.main(["runs", *arguments])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def rows_of(capsys, *arguments):
    code, out, _ = told(capsys, *arguments, "--json")
    return code, json.loads(out)["runs"]


def test_a_row_tells_the_median_of_its_steps_and_what_they_lie_between(run, capsys):
    """A step lasts from the end of the one before to its own: of the first, nothing is known."""
    code, out, _ = told(capsys, run("a", 500, 100, 120, 180), run("b", 100, 100, plain_us=80))
    assert code == 0
    assert out.splitlines()[0] == "2 runs"
    cells = [line.split("  ") for line in out.splitlines()[-2:]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in cells]
    assert cells[0][:3] == ["a", "120.0 µs", "67%"]
    assert cells[1][:4] == ["b", "100.0 µs", "-", "80.0 µs"]


def test_names_count_and_what_is_sorted_by_comes_first(run, capsys):
    paths = [run(f"step{n}", 100, us) for n, us in ((10, 300), (5, 400), (9, 200))]
    assert [one["run"] for one in rows_of(capsys, *paths)[1]] == ["step5", "step9", "step10"]
    assert [one["run"] for one in rows_of(capsys, *paths, "--sort", "recorded")[1]] == ["step5", "step10", "step9"]
    assert sorted(["step10", "step9", "10", "9a", "a"], key=natural) == ["9a", "10", "a", "step9", "step10"]


def test_a_step_is_told_beside_the_baselines(run, tmp_path, capsys):
    olds = [run(f"old{n}", 100, us, plain_us=us) for n, us in enumerate((100, 90, 200))]
    news = [run("same", 100, 100, plain_us=100), run("slow", 100, 150, plain_us=125)]
    code, rows = rows_of(capsys, *news, "--baseline", *olds)
    assert code == 0 and [row["change"] for row in rows] == [0.0, 0.25]
    base = tmp_path / "base.json"
    assert cli.main(["baseline", *olds, "-o", str(base)]) == 0
    capsys.readouterr()
    out = told(capsys, *news, "--baseline", str(base))[1]
    assert "+0.0%" in out and "+25.0%" in out and "to baseline" in out
    assert "to baseline" not in told(capsys, *news)[1]
    assert [one["change"] for one in rows_of(capsys, *news)[1]] == [None, None]


def test_a_spreadsheet_gets_microseconds(run, tmp_path, capsys):
    file = tmp_path / "runs.csv"
    code, out, _ = told(capsys, run("a", 100, 1200), "--csv", str(file))
    assert (code, out) == (0, f"wrote {file}: 1 run\n")
    (row,) = csv.DictReader(file.open(encoding="utf-8"))
    assert (row["run"], row["steps"], row["recorded_us"], row["verdict"]) == ("a", "2", "1200.0", "overhead-bound")


def test_the_ranks_of_a_job_are_one_row_of_the_slowest(run, tmp_path, capsys):
    run("job_rank0", 100, 100)
    run("job_rank1", 100, 300)
    run("alone", 100, 200)
    code, rows = rows_of(capsys, str(tmp_path))
    assert code == 0 and [(row["run"], row["recorded_us"], row["kernels"]) for row in rows] == [
        ("alone", 200.0, 1),
        ("job_rank*", 300.0, 2),
    ]


def test_what_cannot_be_read_is_named_and_the_rest_is_told(run, tmp_path, capsys):
    (tmp_path / "broken.json").write_text("{")
    code, out, err = told(capsys, run("a", 100, 100), str(tmp_path / "broken.json"))
    assert code == 2 and out.startswith("1 run\n") and err.startswith(f"error: {tmp_path / 'broken.json'}: ")
    code, out, err = told(capsys, str(tmp_path / "broken.json"))
    assert code == 2 and out == "" and err.endswith("error: none of them could be read\n")


def test_runs_of_several_folders_keep_what_tells_them_apart(run, tmp_path, capsys):
    paths = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        paths.append(shutil.move(run("same", 100, 100), tmp_path / name / "same.json"))
    assert [one["run"] for one in rows_of(capsys, *map(str, paths))[1]] == ["x/same", "y/same"]


def test_the_peak_of_memory_has_a_column_where_one_run_has_one(run, tmp_path, capsys):
    one, other = run("a", 100, 100), run("b", 100, 100)
    trace = json.loads((tmp_path / "b.json").read_text())
    trace["traceEvents"] += [memory(1010, 7, 1024, 1024), memory(1020, 7, -1024, 0)]
    (tmp_path / "b.json").write_text(json.dumps(trace))
    out = told(capsys, one, other)[1]
    assert "peak memory" in out and "1.0 KiB" in out and "peak memory" not in told(capsys, one)[1]


def test_a_recorded_step_is_beside_a_recorded_one(run, tmp_path, capsys):
    """One run measured its step without the profiler, the other did not."""
    paths = [run("both", 100, 100, plain_us=40), run("recorded", 110, 110)]
    for old, new, change in ((0, 1, "+10.0%"), (1, 0, "-9.1%"), (0, 0, "+0.0%")):
        assert cli.main(["runs", str(paths[new]), "--baseline", str(paths[old])]) == 0
        assert f" {change} " in capsys.readouterr().out
    assert cli.main(["watch", str(tmp_path), "--once"]) == 0
    assert [line.split()[-2] for line in capsys.readouterr().out.splitlines()[1:]] == ["+0.0%", "+10.0%"]


def test_a_trace_that_is_written_on_is_read_again(run, tmp_path, capsys, monkeypatch):
    """Of a program that stops while it writes, half a file stands still for a while."""
    path = Path(run("late", 100, 100, 300, 300))
    whole = path.read_text()
    path.write_text(whole[: whole.rindex('"ProfilerStep#3"') - 60])
    looks = iter(range(10))

    def sleep(seconds):
        look = next(looks)
        if look == 2:
            path.write_text(whole)
        if look == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        cli.main(["watch", str(tmp_path)])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["late", "late"] and rows[0] != rows[1] and rows[1][1:3] == ["300.0", "µs"]


def test_a_baseline_of_which_one_run_was_not_measured_is_as_recorded(run, capsys):
    paths = [run("a", 100, 100, plain_us=40), run("b", 100, 100), run("c", 120, 120, plain_us=44)]
    assert cli.main(["runs", paths[2], "--baseline", *paths[:2]]) == 0
    assert " +20.0% " in capsys.readouterr().out
    assert cli.main(["runs", paths[2], "--baseline", paths[0]]) == 0
    assert " +10.0% " in capsys.readouterr().out


def test_what_is_not_known_of_a_run_stands_last(tmp_path, capsys):
    cpu = write(tmp_path / "cpu.json", step(0, 0, 90), step(1, 90, 90), op("aten::mm", 5, 50))
    gpu = write(tmp_path / "gpu.json", step(0, 0, 90), step(1, 90, 90), launch(5, 1), kernel("gemm", 20, 9, 1))
    assert [one["run"] for one in rows_of(capsys, cpu, gpu, "--sort", "gpu")[1]] == ["gpu", "cpu"]
