"""What no change of form changes: the order of the events, the clock, how often the file holds them, who is A and who is B."""

import gzip
import json
import random

import pytest
from reader_helpers import GALLERY
from trace_reader import read
from trace_reader.analysis.runs.comparison import compare

RECORDED = sorted(path for path in GALLERY.glob("*/*.json") if path.stat().st_size < 150_000)[::4]


def facts_of(tmp_path, data):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(data))
    return read(str(path))


@pytest.fixture(params=RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def recorded(request):
    return json.loads(request.param.read_bytes())


def test_the_order_of_the_events_changes_nothing(recorded, tmp_path):
    before = facts_of(tmp_path, recorded)
    random.Random(1).shuffle(recorded["traceEvents"])
    assert facts_of(tmp_path, recorded) == before


def moved(event, by_us):
    return {**event, "ts": event["ts"] + by_us} if "ts" in event else event


@pytest.mark.parametrize("by_us", [-1_000_000, 12_345, 2**40])
def test_the_clock_changes_nothing(recorded, tmp_path, by_us):
    before = facts_of(tmp_path, recorded)
    # Whole nanoseconds: what a float of the test's own cannot hold is none of the reader's.
    events = [{**e, "ts": round(e["ts"] * 8) / 8} if "ts" in e else e for e in recorded["traceEvents"]]
    before = facts_of(tmp_path, {**recorded, "traceEvents": events})
    after = facts_of(tmp_path, {**recorded, "traceEvents": [moved(e, by_us) for e in events]})
    assert after == before


def test_a_clock_since_1970_changes_nothing(recorded, tmp_path):
    events = [{**e, "ts": round(e["ts"] * 8) / 8} if "ts" in e else e for e in recorded["traceEvents"]]
    before = facts_of(tmp_path, {**recorded, "traceEvents": events})
    base = 1_763_700_000_000_000
    texts = []
    for event in events:
        text = json.dumps(event)
        if "ts" in event:
            whole, part = divmod(round(event["ts"] * 1000), 1000)
            text = json.dumps({**event, "ts": "@"}).replace('"@"', f"{base + whole}.{part:03}")
        texts.append(text)
    head = json.dumps({**recorded, "traceEvents": []}).replace('"traceEvents": []', f'"traceEvents": [{", ".join(texts)}]')
    path = tmp_path / "t.json"
    path.write_text(head)
    assert read(str(path)) == before


def test_a_file_that_holds_everything_twice_has_twice_the_sums(recorded, tmp_path):
    """The copy runs later, with ids and numbers of steps of its own."""
    once = facts_of(tmp_path, recorded)
    events = [e for e in recorded["traceEvents"] if e.get("ph") == "X"]
    later = 10 + max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    copies = []
    for event in events:
        copy = moved(event, later)
        if "correlation" in copy.get("args", {}):
            copy["args"] = copy["args"] | {"correlation": copy["args"]["correlation"] + 10_000_000}
        copies.append(copy)
    twice = facts_of(tmp_path, {**recorded, "traceEvents": recorded["traceEvents"] + copies})
    assert len(twice.steps) == 2 * len(once.steps)
    assert (twice.kernels_total, twice.memcpys_total, twice.memsets_total) == (
        2 * once.kernels_total, 2 * once.memcpys_total, 2 * once.memsets_total,
    )  # fmt: skip
    assert twice.gpu_busy_us == pytest.approx(2 * once.gpu_busy_us)
    assert twice.gpu_to_cpu == pytest.approx(once.gpu_to_cpu)
    assert twice.recorded_verdict == once.recorded_verdict
    by_name = {k.name: k for k in once.kernels}
    assert {k.name for k in twice.kernels} == set(by_name)
    for kernel in twice.kernels:
        single = by_name[kernel.name]
        assert (kernel.calls, kernel.median_us, kernel.max_us) == (2 * single.calls, single.median_us, single.max_us)
        assert kernel.total_us == pytest.approx(2 * single.total_us)
        assert kernel.share == pytest.approx(single.share)
    ops = {op.name: op for op in once.ops}
    assert [(op.name, op.calls, op.launched) for op in sorted(twice.ops, key=lambda op: op.name)] == [
        (name, 2 * ops[name].calls, 2 * ops[name].launched) for name in sorted(ops)
    ]
    assert [(c.name, c.calls) for c in twice.calls] == [(c.name, 2 * c.calls) for c in once.calls]
    assert [(g.m, g.n, g.k, g.calls) for g in twice.gemms] == [(g.m, g.n, g.k, 2 * g.calls) for g in once.gemms]


def test_sums_fit_together(recorded, tmp_path):
    facts = facts_of(tmp_path, recorded)
    assert sum(k.share for k in facts.kernels) == pytest.approx(1)
    assert sum(k.calls for k in facts.kernels) + facts.gpu_events_by_origin["carried_over"] == (
        facts.kernels_total + facts.memcpys_total + facts.memsets_total
    )
    assert sum(facts.gpu_time_by_origin_us.values()) >= facts.gpu_busy_us - 1e-6
    assert sum(s.kernels for s in facts.steps) <= facts.kernels_total
    assert all(k.min_us <= k.median_us <= k.max_us and k.total_us <= k.calls * k.max_us + 1e-6 for k in facts.kernels)
    assert 0 < facts.gpu_busy_share <= 1 and facts.gpu_busy_us <= facts.window_us


def test_zipped_or_not(recorded, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(recorded))
    plain = read(str(path))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert read(str(path)) == plain


@pytest.mark.parametrize("indent", [None, 0, 3])
def test_how_the_json_is_written_changes_nothing(recorded, tmp_path, indent):
    before = facts_of(tmp_path, recorded)
    events = [dict(reversed(event.items())) for event in recorded["traceEvents"]]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**recorded, "traceEvents": events}, indent=indent, separators=(",", ":")))
    assert read(str(path)) == before


def test_b_against_a_is_the_opposite_of_a_against_b(tmp_path):
    facts = [read(str(path)) for path in RECORDED]
    for a, b in zip(facts, facts[1:] + facts[:1], strict=True):
        there, back = compare(a, b), compare(b, a)
        assert (there.only_a, there.ops_only_a, there.findings_gone) == (back.only_b, back.ops_only_b, back.findings_new)
        assert sorted((y.name, y.calls, x.calls) for x, y in there.common) == sorted(
            (x.name, x.calls, y.calls) for x, y in back.common
        )
        assert there.steps == tuple((x, y) for y, x in back.steps)
