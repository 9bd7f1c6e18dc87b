"""The ledger of advice: what of a pair counts as named, told, inside and promised; and that its page is up to date."""

import json
from pathlib import Path
import sys
from types import SimpleNamespace

from helpers import ROOT
import pytest

sys.path.insert(0, str(ROOT / "benchmarks"))
from advice import record
from advice.ledger import DOCS, HERE, NOTES, Entry, _wrong, document, keep, read_kept, unseen_document
from advice.pairs import PAIRS
from trace_reader.analysis.replay.edits import AS_PLAYED, BANDS, GONE, UNSURE
from trace_reader.analysis.replay.what_if import odds, share_at
from trace_reader.findings import PATTERNS


def entry(before_us=100, after_us=70, findings=(("sync-in-step", 0.2, 0.35),), verdict="overhead-bound", plain_us=(90, 110)):
    when = {"findings": [list(f) for f in findings], "verdict": verdict, "plain_us": list(plain_us)}
    return Entry("item_small", {"plain_us": {"before": [before_us], "after": [after_us]}, "before": when, "after": when})


def test_the_pages_are_what_is_kept():
    assert (DOCS / "advice.md").read_text() == document(read_kept())
    assert (DOCS / "advice_unseen.md").read_text() == unseen_document(read_kept())


def test_all_sets_together_are_the_sum_of_the_sets():
    rows = [line.split(" | ") for line in document(read_kept()).splitlines() if line.startswith("| **not seen**")]
    rows = [row for row in rows if "jobs" not in row[0]]
    on_gpu = [row for row in rows if "H200" in row[0]]
    (told,) = [
        line.split(" | ") for line in document(read_kept()).splitlines() if line.startswith(f"| all {len(on_gpu)} sets on an")
    ]
    for column in (1, 2, 3):
        assert int(told[column].split()[0]) == sum(int(row[column].split()[0]) for row in on_gpu)


def test_at_least_24_pairs_were_measured_on_the_gpu_and_eight_on_a_cpu_and_a_fifth_bring_nothing():
    kept = read_kept()
    assert len(kept["h200"]) >= 24 and len(kept["cpu"]) >= 8
    assert sum(Entry(name, values).brings_nothing for name, values in kept["h200"].items()) >= len(kept["h200"]) / 5


def test_every_pair_is_named_by_findings_that_there_are():
    assert {slug for pair in PAIRS.values() for slug in pair.named_by} <= set(PATTERNS) and set(NOTES) <= set(PAIRS)


def test_the_band_of_each_kind_of_change_holds_four_of_five_that_were_measured():
    rows = json.loads((ROOT / "read-trace" / "benchmarks" / "bands.json").read_text())
    held = {}
    for kind, (low, high) in BANDS.items():
        measured = [(share_at(odds(row["played"]) + low), row["saved"], share_at(odds(row["played"]) + high))
                    for row in rows if row["kind"] == kind]  # fmt: skip
        held[kind] = sum(least - 0.03 <= saved <= most + 0.03 for least, saved, most in measured) / max(len(measured), 1)
    assert {kind for kind, share in held.items() if share < 0.8} == {AS_PLAYED, UNSURE}  # of UNSURE, none does
    gone = [row["saved"] > row["played"] for row in rows if row["kind"] == GONE]
    assert (len(rows), len(gone), sum(gone)) == (369, 105, 75)  # the documents say so


@pytest.mark.parametrize(
    ("findings", "place", "told"),
    [
        ([("sync-in-step", 0.2, 0.35)], 1, (0.2, 0.35)),
        ([("hotspot",), ("sync-in-step", 0, 0.3)], 2, (0, 0.3)),
        ([("overhead-bound", 0, 0.9), ("sync-in-step", 0, 0.3)], 1, (0, 0.3)),  # it explains the verdict
        ([("hotspot",), ("sync-in-step",)], 2, None),
        ([("hotspot",)], None, None),
    ],
)
def test_a_change_is_named_by_its_finding(findings, place, told):
    found = entry(findings=findings)
    assert (found.place, found.told) == (place, told)


@pytest.mark.parametrize(("after_us", "inside"), [(83.1, False), (82.9, True), (62.1, True), (61.9, False)])
def test_what_a_change_brings_is_inside_with_three_hundredths_more(after_us, inside):
    """Told are 0.20 to 0.35."""
    assert entry(after_us=after_us).is_inside is inside


@pytest.mark.parametrize(("after_us", "nothing"), [(97.1, True), (96.9, False), (103, True)])
def test_a_change_that_brings_no_more_than_three_hundredths_brings_nothing(after_us, nothing):
    assert entry(after_us=after_us).brings_nothing is nothing


def test_a_step_is_inside_its_estimate_or_has_none():
    assert [inside for *_, inside in entry().steps()] == [True, False]
    assert [inside for *_, inside in entry(plain_us=()).steps()] == [None, None]


def test_what_is_kept_of_recordings_is_what_the_reader_says_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr("advice.ledger.HERE", tmp_path)
    fault = Path(ROOT / "read-trace" / "tests" / "data" / "faults" / "item_on_gradients.json.gz").read_bytes()
    sound = Path(ROOT / "read-trace" / "tests" / "data" / "faults" / "sound.json.gz").read_bytes()
    (tmp_path / "item_small_before.json.gz").write_bytes(fault)
    (tmp_path / "item_small_after.json.gz").write_bytes(sound)
    for what in ("stacks", "memory"):
        (tmp_path / f"item_small_before_{what}.json.gz").write_bytes(fault)
    measured = {"torch": "2.11.0", "date": "2026-11-23", "plain_us": {"before": [3.0], "after": [2.0]}}
    (tmp_path / "item_small.json").write_text(json.dumps(measured))
    keep(tmp_path, "here")
    kept = json.loads((tmp_path / "here.json").read_text())["item_small"]
    assert kept["plain_us"] == {"before": [3.0], "after": [2.0]}
    assert (kept["after"]["verdict"], kept["after"]["device"]) == ("gpu-bound", "NVIDIA H200")
    assert Entry("item_small", kept).place == 1
    assert [when for when, *_ in Entry("item_small", kept).steps_with_more()] == ["before, stacks", "before, memory"]
    assert kept["before, stacks"] == kept["before"] and kept["before"]["plain_us"]
    kept["before, memory"]["findings"] = [["hotspot"], ["sync-in-step", 0.0, 0.2]]
    other = Entry("item_small", kept).recorded_with("memory")
    assert (other.place, other.told, other.gain) == (2, (0.0, 0.2), Entry("item_small", kept).gain)
    assert tmp_path != HERE


@pytest.mark.parametrize(("device", "place"), [("cuda", 1), ("cpu", None)])
def test_workers_are_not_what_the_reader_advises_without_a_gpu(device, place):
    when = {"findings": [["input-bound", 0, 0.5]], "verdict": "input-bound", "plain_us": [90, 110]}
    kept = {"device": device, "plain_us": {"before": [100], "after": [150]}, "before": when, "after": when}
    assert Entry("loader_workers", kept).place == place


def test_what_promises_at_most_something_and_brings_nothing_is_wrong():
    """The upper end is the promise."""
    promised = entry(100, 100, findings=(("sync-in-step", 0.0, 0.35),))
    assert "promised, and brings nothing" in _wrong([promised])[0]
    assert not _wrong([entry(100, 100, findings=(("sync-in-step", 0.0, 0.01),))])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pairs_are_measured_where_they_are_for(device, tmp_path, monkeypatch):
    ran = []

    def run(command):
        ran.append(command[3])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(record.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["record.py", str(tmp_path), "--device", device])
    assert record.main() == 0
    assert ran == [name for name, pair in PAIRS.items() if device in pair.on] and 0 < len(ran) < len(PAIRS)
