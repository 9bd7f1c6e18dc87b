"""Times of one recording, lines of another one of the same program, which stacks have made slower."""

import json
from pathlib import Path

import pytest
from reader_helpers.events import annotation, event, on, op, step, write
from trace_reader import cli, load
from trace_reader.link.other_recording import with_functions_of
from trace_reader.model.slices import Kind

PERIOD = 1000
MEASURED = {"plain_step_us": {"median": 900, "low": 900, "high": 900}}


def run_of(slow=1, thread=100, n=3, stacks=False, last="aten::mm", marked=step):
    """Steps that wait in `pad` for 400, then multiply; `slow` times as long, with the functions of Python that are open."""
    found = []
    for k in range(n):
        at = k * PERIOD * slow
        found += [marked(k, at, 950 * slow), op("aten::add", at + 10 * slow, 50 * slow), op(last, at + 500 * slow, 300 * slow)]
        if stacks:
            frames = [("train.py(20): main", 0, 950), ("train.py(9): pad", 80, 400), ("torch/nn.py(3): forward", 490, 320)]
            found += [event("python_function", name, at + begin * slow, us * slow) for name, begin, us in frames]
    return on(thread, *found)


@pytest.fixture
def both(tmp_path):
    """A recording without stacks and one with, which is three times as slow and of another process."""

    def written(name="b.json", **changed):
        first = write(tmp_path / "a.json", *run_of(), **MEASURED)
        return first, write(tmp_path / name, *run_of(**{"slow": 3, "thread": 7, "stacks": True, "n": 2, **changed}))

    return written


def told(capsys, *arguments):
    code = cli.main(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_times_are_of_the_one_and_lines_of_the_other(both, capsys):
    one, other = both()
    code, text, _ = told(capsys, one, "--json")
    alone = json.loads(text)
    code, text, err = told(capsys, one, "--stacks", other, "--json")
    facts = json.loads(text)
    assert (code, err) == (0, "")
    for name in ("verdict", "plain", "steps", "step_times_us", "ops"):
        assert facts[name] == alone[name]
    assert facts["stacks_from"] == f"{other}, which does the same in 3 of 3 steps"
    assert [(line["line"], round(line["share"], 2)) for line in facts["cpu_lines"]][:1] == [("train.py(9): pad", 0.41)]
    pad = [place for place in facts["places"] if place["name"] == "train.py(9): pad"]
    assert [(place["kind"], place["calls"], round(place["cpu_us"])) for place in pad] == [("function", 1, 400)]
    (between,) = [finding for finding in facts["findings"] if finding["slug"] == "python-between-ops"]
    assert between["next"].startswith("Look at train.py(9): pad: Python is there, between the ops, for 41% of the steps' time")


def test_the_report_says_which_is_which_and_so_does_the_brief_one(both, capsys):
    one, other = both()
    _, text, _ = told(capsys, one, "--stacks", other)
    said = f"lines and functions of Python: {other}, which does the same in 3 of 3 steps"
    assert "".join(said.split()) in "".join(text.split())  # long paths are cut where a line ends
    _, text, _ = told(capsys, "brief", one, "--stacks", other)
    assert f"stacks: {other}, which does the same in 3 of 3 steps\n" in text
    assert told(capsys, "places", one, "--stacks", other)[1].count("train.py(9): pad") == 1


@pytest.mark.parametrize("name", ["a_stacks.json", "a_stacks.json.gz"])
def test_what_lies_beside_it_with_stacks_is_read_with_it_and_no_trace_of_its_folder(both, tmp_path, capsys, name):
    one, other = both("x.json")
    data = Path(other).read_bytes()
    if name.endswith(".gz"):
        import gzip

        data = gzip.compress(data)
    Path(other).unlink()
    (tmp_path / name).write_bytes(data)
    _, text, err = told(capsys, one, "--json")
    assert json.loads(text)["stacks_from"].startswith(f"{tmp_path}/{name}, ") and err == ""
    _, in_folder, _ = told(capsys, str(tmp_path), "--json")
    assert json.loads(in_folder)["stacks_from"] == json.loads(text)["stacks_from"]


def test_of_several_steps_that_do_the_same_the_one_that_is_as_late_lends_its_functions(tmp_path):
    """In the other recording each step waits in a function of its own."""
    one = load(write(tmp_path / "a.json", *run_of()))
    frames = [event("python_function", f"train.py({k}): wait", k * PERIOD + 80, 400) for k in range(3)]
    other = load(write(tmp_path / "b.json", *run_of(), *on(100, *frames)), stacks=True)
    stacks, matched = with_functions_of(one, other)
    functions = stacks.slices.of(Kind.PYTHON)
    assert matched == 3
    assert [(stacks.slices[row].name, stacks.slices[row].start_us) for row in functions.tolist()] == [
        (f"train.py({k}): wait", k * PERIOD + 80) for k in range(3)
    ]


def test_a_pattern_that_names_the_ranks_of_a_job_reads_none_of_their_stacks(tmp_path, capsys):
    named = []
    for rank in range(2):
        said = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        named.append(write(tmp_path / f"a_rank{rank}.json", *run_of(), **said))
        named.append(write(tmp_path / f"a_rank{rank}_stacks.json", *run_of(stacks=True, slow=3), **said))
    by_pattern = told(capsys, *named)
    assert by_pattern == told(capsys, str(tmp_path)) and by_pattern[0] == 0
    assert by_pattern[1].startswith("2 ranks of one job: ")


def test_two_that_are_named_are_compared(both, tmp_path, capsys):
    one, _ = both("a_stacks.json")
    assert "a_stacks.json" in told(capsys, "compare", one, str(tmp_path / "a_stacks.json"))[1]


def test_another_program_is_refused_and_beside_a_trace_left_out(both, tmp_path, capsys):
    one, other = both(last="aten::bmm")
    because = f"{other}: another program than {one}: behind 1 op of a step aten::mm here, and aten::bmm there"
    assert told(capsys, one, "--stacks", other) == (2, "", f"error: {because}\n")
    beside = tmp_path / "a_stacks.json"
    Path(other).rename(beside)
    code, text, err = told(capsys, one, "--json")
    assert code == 0 and json.loads(text)["stacks_from"] == ""
    assert err == f"note: {because.replace(other, str(beside))}; it is left out\n"


def test_without_stacks_or_steps_there_is_nothing_to_match(both, tmp_path, capsys):
    one, other = both(stacks=False)
    error = "no functions of Python were recorded: record it with with_stack=True"
    assert told(capsys, one, "--stacks", other) == (2, "", f"error: {other}: {error}\n")
    two = write(tmp_path / "c.json", *run_of())
    assert told(capsys, one, two, "--stacks", other)[::2] == (2, "error: --stacks is of one trace, got 2\n")


def test_steps_that_are_ranges_of_the_program_are_matched_too(tmp_path, capsys):
    def marked(k, at, us):
        return annotation("train step", at, us)

    one = write(tmp_path / "a.json", *run_of(marked=marked, n=4), **MEASURED)
    other = write(tmp_path / "b.json", *run_of(marked=marked, n=4, slow=2, stacks=True))
    code, text, err = told(capsys, one, "--stacks", other, "--json")
    assert (code, err) == (0, "")
    assert json.loads(text)["stacks_from"].endswith("which does the same in 4 of 4 steps")
    assert json.loads(text)["cpu_lines"][0]["line"] == "train.py(9): pad"


def test_a_step_of_very_many_ops_is_matched(tmp_path, monkeypatch):
    """Of more than those that are looked at of a chain."""
    monkeypatch.setattr("trace_reader.link.other_recording.LONGEST", 4)

    def recording(slow, *more):
        events = [step(0, 0, 1000 * slow)]
        events += [op(f"aten::op{n}", (50 + 60 * n) * slow, 20 * slow) for n in range(15)]
        return load(write(tmp_path / f"{slow}.json", *events, *more), stacks=True)

    joined, matched = with_functions_of(recording(1), recording(3, event("python_function", "train.py(9): pad", 300, 600)))
    (pad,) = (joined.slices[row] for row in joined.slices.of(Kind.PYTHON).tolist())
    assert matched == 1 and (pad.start_us, pad.duration_us) == (pytest.approx(100, abs=1), pytest.approx(200, abs=1))
