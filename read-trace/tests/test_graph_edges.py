"""The arrows between the nodes of a CUDA graph (torch 2.15's Cuspy): what waited for what, whatever else ended just then."""

import json

import pytest
from reader_helpers.events import call, document, kernel, step, write
from reader_helpers.other_forms import torchs_exporter, window
from trace_reader import load
from trace_reader.analysis.replay.edits import Edited, scaled
from trace_reader.analysis.replay.replay import Replay

FIRST = 1 << 40  # the number of the first arrow: launches have smaller ones
PERIOD = 1000
# A graph of four nodes: `join` waits for `long`, and what ends just before it begins is `other`, for which nobody waits.
NODES = {"long": (7, 50, 445), "other": (8, 60, 438), "join": (9, 500, 100)}  # stream, start, duration


def run_of(*arrows, n=3):
    """Steps that launch the graph; `arrows`: events of a step, by its start."""
    events = []
    for k in range(n):
        at = k * PERIOD
        events += [step(k, at, 700), call("cudaGraphLaunch", at + 5, 10, k + 1)]
        events += [call("cudaDeviceSynchronize", at + 20, 590, 100 + k)]  # until `join` has ended, and 10 more
        events += [kernel(name, at + start, us, k + 1, stream) for name, (stream, start, us) in NODES.items()]
        events += [one for k_th in arrows for one in k_th(at, k)]
    return events


def arrow(before, after, written=json.dumps):
    def of_step(at, k):
        (one, start, us), (other, begin, _) = NODES[before], NODES[after]
        number = FIRST + 10 * k + list(NODES).index(before)
        head = {"cat": "ac2g", "name": "ac2g", "id": number, "pid": 0}
        return {"ph": "s", **head, "tid": one, "ts": at + start + us}, {
            "ph": "f",
            **head,
            "tid": other,
            "ts": at + begin,
            "bp": "e",
        }

    return of_step


def left_of_a_step(trace, name, factor=0.0):
    """What is left of a step if the kernels of this name take so much of their time."""
    replay = Replay(trace)
    edited = Edited(replay, replay.nodes.after_ns)
    scaled(trace.work.where(trace.work.is_named(name.__eq__)), factor)(edited)
    return round(edited.play().step_us)


def test_a_node_waits_for_what_its_graph_says_and_not_for_what_ended_just_before(tmp_path):
    trace = load(write(tmp_path / "a.json", *run_of(arrow("long", "join"))))
    names = [(trace.slices[before].name, trace.slices[after].name) for before, after in trace.graph_edges.tolist()]
    assert names == [("long", "join")] * 3
    guessed = load(write(tmp_path / "b.json", *run_of()))
    assert len(guessed.graph_edges) == 0
    assert Replay(trace).play().step_us == Replay(guessed).play().step_us == PERIOD
    assert [left_of_a_step(guessed, name) for name in NODES] == [1000, 562, 900]
    assert [left_of_a_step(trace, name) for name in NODES] == [555, 1000, 900]


def test_of_several_the_last_one_counts_and_the_others_are_waited_for_too(tmp_path):
    """Without `other`, which ends last, the node still waits for `long`, which ends 3 before, and begins as soon as it can."""
    trace = load(write(tmp_path / "a.json", *run_of(arrow("long", "join"), arrow("other", "join"))))
    assert len(trace.graph_edges) == 6
    assert [left_of_a_step(trace, name) for name in NODES] == [1000, 995, 900]


def test_torch_writes_them_so(tmp_path):
    """What its exporter makes of a graph's dependencies is read as they are."""
    try:
        exporter = torchs_exporter()
    except ImportError:
        pytest.skip("torch 2.15 writes them")
    rows = [
        (1, number, 0, stream, start * 1000, (start + us) * 1000) for number, (stream, start, us) in enumerate(NODES.values())
    ]
    flows = exporter._graph_dependency_flow_events(rows, {2: [0, 1]}, base_ns=0)
    assert min(one["id"] for one in flows) == FIRST
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document(*run_of(n=1), *flows)))
    trace = load(str(path))
    assert sorted(trace.slices[row].name for row in trace.graph_edges[:, 0].tolist()) == ["long", "other"]
    path.write_text(json.dumps(document(*run_of(n=1), *flows), separators=(",", ":")))
    assert len(load(str(path)).graph_edges) == 2


def test_torch_writes_them_so_into_both_forms(tmp_path):
    """In Perfetto's form a node names what it waits for; a name that no node has is none."""
    try:
        exporter = torchs_exporter()
    except ImportError:
        pytest.skip("torch 2.15 writes them")
    events = run_of()
    for event in events:
        if event["name"] in NODES:
            event["args"]["graph node id"] = 10 + list(NODES).index(event["name"])
    cpu, columns = window(document(*events), 1_700_000_000_000_000_000)
    (tmp_path / "cpu.json").write_text(json.dumps(cpu))
    told = []
    for name in ("run.json", "run.pftrace"):
        graph = {"graph_deps": {12: [10, 99]}}
        exporter.merge_trace_window_into_chrome_trace(tmp_path / "cpu.json", tmp_path / name, {**columns, **graph})
        trace = load(str(tmp_path / name))
        names = [(trace.slices[before].name, trace.slices[after].name) for before, after in trace.graph_edges.tolist()]
        told.append((names, [left_of_a_step(trace, name) for name in NODES]))
    assert told[0] == told[1] == ([("long", "join")] * 3, [555, 1000, 900])


@pytest.mark.parametrize(
    "spoilt",
    [
        {"tid": 12},
        {"ts": 3.5},
        {"ts": None},
        {"ts": 1e300},
        {"pid": "x"},
        {"id": FIRST + 99},
        {"id": "1099511627776"},
        {"id": -(1 << 40)},
        {"id": 1 << 62},
        {"ph": "t"},
    ],
)
def test_arrows_that_lead_nowhere_are_none(tmp_path, spoilt):
    start, end = arrow("long", "join")(0, 0)
    trace = load(write(tmp_path / "a.json", *run_of(n=1), start, {**end, **spoilt}))
    assert len(trace.graph_edges) == 0


def test_an_arrow_back_in_time_is_none(tmp_path):
    """Clocks of two streams can disagree."""
    trace = load(write(tmp_path / "a.json", *run_of(arrow("join", "long"), n=1)))
    assert len(trace.graph_edges) == 0


def test_a_flow_of_a_launch_is_no_arrow_of_a_graph(tmp_path):
    start, end = arrow("long", "join")(0, 0)
    trace = load(write(tmp_path / "a.json", *run_of(n=1), {**start, "id": 7}, {**end, "id": 7}))
    assert len(trace.graph_edges) == 0
    assert trace.skipped["flow"] == 2


def test_a_node_that_begins_a_rounding_before_the_other_ends_still_waits_for_it(tmp_path):
    """Times are rounded to a nanosecond, each of its own."""

    def rounded(at, k):
        start, end = arrow("long", "join")(at, k)
        return start, {**end, "ts": end["ts"] + 0.001}

    exact, early = run_of(arrow("long", "join")), run_of(rounded)
    for events, us in ((exact, 0.0), (early, 0.001)):
        for event in events:
            if event["name"] == "long":
                event["dur"] = NODES["join"][1] - NODES["long"][1] + us
            if event["name"] == "ac2g" and event["ph"] == "s":
                event["ts"] = event["ts"] + 5 + us
    one, other = (load(write(tmp_path / f"{name}.json", *events)) for name, events in (("a", exact), ("b", early)))
    assert len(one.graph_edges) == len(other.graph_edges) == 3
    assert left_of_a_step(one, "long") == left_of_a_step(other, "long") < PERIOD - 300
