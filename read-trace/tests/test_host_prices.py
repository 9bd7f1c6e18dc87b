"""What the profiler costs on a host: told by recordings with a measured step, kept in a file, and used for other traces."""

import json
from pathlib import Path

import pytest
from reader_helpers import GALLERY
from reader_helpers.events import op, step, write
from reader_helpers.recordings import TRACES
from trace_reader import cli, read
from trace_reader.names.file_names import PRICES_NAME


def recording(path, measured_us=None, device=None, ops=50):
    """Three steps of 1000 us without a GPU, of which 30 and 1.1 for each op are the profiler's by the usual prices."""
    events = [op("aten::mm", 1000 * at + 20 * k + 1, 18) for at in range(3) for k in range(ops)]
    header = (
        {} if measured_us is None else {"plain_step_us": dict.fromkeys(("median", "low", "high"), measured_us) | {"steps": 9}}
    )
    return write(path, *[step(at, 1000 * at, 1000) for at in range(3)], *events, record_shapes=1, **header)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("READ_TRACE_CACHE", "cache")
    return Path("cache") / PRICES_NAME


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Traces of one host: half of the usual (70 of a step), twice, and three times."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, measured_us in (("a", 965), ("b", 860), ("c", 790)):
        recording(tmp_path / "runs" / f"{name}.json", measured_us)
    return tmp_path / "runs"


def test_what_is_told_and_kept_and_used(runs, cache, capsys):
    recording(runs / "new.json")
    assert cli.main(["prices", "runs", "--write"]) == 0
    out = capsys.readouterr().out
    assert (
        out
        == f"""\
What the profiler costs here
  trace          device  recorded  measured  profiler  times the usual
  runs/a.json    CPU      1.00 ms  965.0 µs      3.5%             0.50
  runs/b.json    CPU      1.00 ms  860.0 µs       14%             2.00
  runs/c.json    CPU      1.00 ms  790.0 µs       21%             3.00
  runs/new.json  CPU      1.00 ms         -         -                -
CPU: 2.00 times the usual, the median of 3 recordings (from 0.50 to 3.00).
wrote {cache}
"""
    )
    assert json.loads(cache.read_text()) == {"hosts": [{"device": "CPU", "factor": 2.0, "recordings": 3}]}
    before = read(str(runs / "a.json")).plain
    assert (before.how, before.step_us) == ("measured", 965)
    facts = read(str(runs / "new.json"))
    assert facts.plain.how == "estimated"
    assert facts.plain.step_us == pytest.approx(1000 - 2.0 * 70, abs=0.5)
    assert cli.main(["report", "runs/new.json"]) == 0
    words = "what the profiler costs: 2.00 times the usual, by 3 recordings whose step was measured (cache/profiler_cost.json)"
    assert words in " ".join(capsys.readouterr().out.split())
    cli.main(["report", "runs/a.json"])
    assert "what the profiler costs" not in capsys.readouterr().out
    assert cli.main(["report", "runs/new.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["host_prices"] == {"device": "CPU", "factor": 2.0, "recordings": 3, "file": str(cache)}


def test_the_file_beside_a_trace_comes_first_and_is_no_trace(runs, cache, capsys):
    recording(runs / "new.json")
    cache.parent.mkdir()
    cache.write_text('{"hosts": [{"device": "CPU", "factor": 3.0, "recordings": 4}]}')
    assert read(str(runs / "new.json")).plain.step_us == pytest.approx(790, abs=0.5)
    assert cli.main(["prices", "runs", "--write", "runs/profiler_cost.json"]) == 0
    assert read("runs/new.json").plain.step_us == pytest.approx(1000 - 2.0 * 70, abs=0.5)
    assert read("runs/new.json").host_prices.file == "runs/profiler_cost.json"
    capsys.readouterr()
    assert cli.main(["runs", "runs"]) == 0
    done = capsys.readouterr()
    assert done.err == "" and PRICES_NAME not in done.out


def test_what_is_kept_of_other_devices_stays(runs, cache):
    cache.parent.mkdir()
    of_gpu = {"device": "NVIDIA H200", "factor": 2.1, "recordings": 39}
    cache.write_text(json.dumps({"torch": "2.11", "hosts": [of_gpu, {"device": "CPU", "factor": 9, "recordings": 4}]}))
    assert cli.main(["prices", "runs", "--write"]) == 0
    hosts = [{"device": "CPU", "factor": 2.0, "recordings": 3}, of_gpu]
    assert json.loads(cache.read_text()) == {"torch": "2.11", "hosts": hosts}


@pytest.mark.parametrize(("file", "said"), [("runs/a.json", "there is a file already, which has no prices"),
                                            ("runs/a.json/x.json", "File exists")])  # fmt: skip
def test_no_other_file_is_written_over(runs, capsys, file, said):
    """`prices --write TRACE` takes the trace for the file."""
    before = (runs / "a.json").read_bytes()
    assert cli.main(["prices", "runs", "--write", file]) == 1
    assert f"{file}: {said}" in capsys.readouterr().err
    assert (runs / "a.json").read_bytes() == before


def test_the_prices_of_another_device_are_not_used(tmp_path):
    source = (GALLERY / TRACES["01_64_cold"]).read_text()
    trace = json.loads(source)
    trace.pop("plain_step_us", None)
    (tmp_path / "t.json").write_text(json.dumps(trace))
    name = trace["deviceProperties"][0]["name"]
    usual = read(str(tmp_path / "t.json"))
    assert usual.plain.how == "estimated" and usual.host_prices is None
    hosts = [{"device": "CPU", "factor": 0.5, "recordings": 3}]
    (tmp_path / PRICES_NAME).write_text(json.dumps({"hosts": hosts}))
    assert read(str(tmp_path / "t.json")).plain == usual.plain
    (tmp_path / PRICES_NAME).write_text(json.dumps({"hosts": [*hosts, {"device": name, "factor": 0.5, "recordings": 3}]}))
    cheap = read(str(tmp_path / "t.json"))
    assert cheap.plain.step_us > usual.plain.step_us and cheap.host_prices.device == name


@pytest.mark.parametrize(
    ("name", "measured_us", "ops"),
    [
        ("as long as recorded", 1000, 50),
        ("longer", 1100, 50),
        ("too few ops, with 30 of the step: 4.9% and less", 960, 17),
        ("shorter than the dearest profiler explains", 400, 50),
        ("never measured", None, 50),
    ],
)
def test_recordings_that_do_not_tell_it(tmp_path, monkeypatch, capsys, name, measured_us, ops):
    monkeypatch.chdir(tmp_path)
    for one in "abc":
        recording(tmp_path / f"{one}.json", measured_us, ops=ops)
    assert cli.main(["prices", "a.json", "b.json", "c.json", "--write", "kept.json"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "CPU: not known. 0 recordings tell it, 3 are needed."
    assert not (tmp_path / "kept.json").exists()


def test_all_recordings_are_listed(runs, capsys):
    for number in range(12):
        recording(runs / f"more{number:02}.json")
    (runs / "b.json").unlink()
    (runs / "c.json").unlink()
    assert cli.main(["prices", "runs"]) == 1
    out = capsys.readouterr().out
    assert out.count(".json") == 13 and out.endswith("CPU: not known. 1 recording tells it, 3 are needed.\n")


def test_two_recordings_are_too_few(runs, capsys):
    assert cli.main(["prices", "runs/a.json", "runs/b.json", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [row["factor"] for row in told["recordings"]] == [pytest.approx(0.5, abs=0.01), pytest.approx(2, abs=0.01)]
    assert told["hosts"] == []


def one_host(factor, recordings=3):
    return json.dumps({"hosts": [{"device": "CPU", "factor": factor, "recordings": recordings}]})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "\x00", '{"hosts": 3}', '{"hosts": [{"device": "CPU"}]}',
     one_host("2"), one_host(0), one_host(-2), one_host(1e9), one_host(2, 0)],
)  # fmt: skip
def test_a_file_that_says_nothing_is_none(tmp_path, text):
    recording(tmp_path / "t.json")
    usual = read(str(tmp_path / "t.json")).plain
    (tmp_path / PRICES_NAME).write_text(text)
    facts = read(str(tmp_path / "t.json"))
    assert facts.plain == usual and facts.host_prices is None
