"""A late rank that does something else than the others, and one that does the same, slower: what is told of both."""

import json

import msgspec
import pytest
from reader_helpers.events import GEMM, call, event, kernel, launch, op, step
from test_job import collective, header
from trace_reader import cli, load
from trace_reader.analysis.jobs.rank_difference import AT_A_PLACE, BEGINS, NOT_LATER, OTHER_WORK, SLOWER, rank_difference
from trace_reader.commands.read_job import play_job, read_job
from trace_reader.report.job_report import job_details

OPS, PERIOD = 30, 10_000


def write(path, *events, **more):
    path.write_text(json.dumps({"traceEvents": list(events), **more}))
    return str(path)


def rank(each_us=(20, 20), begins_us=(0, 0), slow=None, ops=OPS, names=None, shapes=None, kernel_us=10, waits=False):
    """Two steps of equal ops, each of so many µs, one after the other; behind them all ranks meet, until 6000. The CPU may wait
    for that.
    """
    events = []
    for number, (each, begins) in enumerate(zip(each_us, begins_us, strict=True)):
        start = free = (6100 if waits else PERIOD) * number
        at = start + 10 + begins
        for k in range(ops):
            took = each + (slow or {}).get((number, k), 0)
            name, dims = (names or {}).get(k, "aten::mm"), (shapes or {}).get(k, [[8, 8], [8, 8]])
            events.append(op(name, at, took, **{"Input Dims": dims, "Input type": ["float", "float"]}))
            n = 100 * number + k
            events += [launch(at + 2, n), kernel(GEMM, max(at + 8, free), kernel_us, n)]
            free, at = max(at + 8, free) + kernel_us, at + took
        meets_us = max(at + 30, free)
        events += collective(1000 + number, meets_us, start + 6000 - meets_us, ranks=(0, 1), launched=at + 5)
        if waits:
            events.append(call("cudaDeviceSynchronize", at + 10, start + 6010 - at - 10, 2000 + number))
        events.append(step(number, start, 6050 if waits else at + 10 - start))
    return events


def difference(tmp_path, late, other, of_gpu=False):
    mine, others = (load(write(tmp_path / f"{n}.json", *one)) for n, one in enumerate((late, other)))
    return rank_difference(mine, others, 0, of_gpu)


def test_what_one_place_takes_longer_in_each_step_is_at_a_place(tmp_path):
    found = difference(tmp_path, rank(begins_us=(500, 900)), rank())
    assert (found.kind, found.ops, found.place, found.later_us) == (AT_A_PLACE, OPS, BEGINS, 500)
    found = difference(tmp_path, rank(slow={(0, 7): 400, (1, 7): 400}, names={7: "aten::sort"}), rank(names={7: "aten::sort"}))
    assert (found.kind, found.place, found.later_us) == (AT_A_PLACE, "aten::sort", 400)


def test_what_all_ops_take_longer_is_slower(tmp_path):
    found = difference(tmp_path, rank(each_us=(26, 24)), rank())
    assert (found.kind, found.times, found.later_us) == (SLOWER, pytest.approx(1.25, abs=0.01), OPS * 4)


def test_what_one_step_alone_is_late_by_is_not_in_each(tmp_path):
    assert difference(tmp_path, rank(slow={(0, 7): 3000}), rank()).kind == NOT_LATER
    assert difference(tmp_path, rank(each_us=(26, 18)), rank()).kind == NOT_LATER


LATE = {(0, 7): 300, (1, 7): 300}


@pytest.mark.parametrize(
    ("late", "place", "place_us"),
    [
        (rank(names={7: "aten::sort"}, slow=LATE), "aten::sort", 320),
        (rank(shapes={7: [[9, 8], [8, 8]]}, slow=LATE), "aten::mm", 300),
        (rank(ops=OPS + 9, names=dict.fromkeys(range(OPS, OPS + 9), "aten::sort")), "aten::sort", 190),
    ],
)
def test_other_ops_and_other_shapes_that_take_longer_are_other_work(tmp_path, late, place, place_us):
    found = difference(tmp_path, late, rank())
    assert (found.kind, found.place, found.place_us) == (OTHER_WORK, place, place_us)


@pytest.mark.parametrize(
    "late", [rank(names={7: "aten::sort"}), rank(shapes={7: [[9, 8], [8, 8]]}), rank(slow={(0, 7): 3, (1, 7): 3})]
)
def test_what_takes_no_longer_keeps_no_rank(tmp_path, late):
    """It may have been behind before: 3 of 620 are no straggler's place."""
    assert difference(tmp_path, late, rank()).kind in (NOT_LATER, SLOWER)


def test_kernels_are_compared_where_the_late_rank_computes_longer(tmp_path):
    found = difference(tmp_path, rank(kernel_us=15), rank(), of_gpu=True)
    assert (found.kind, found.ops, found.times, found.later_us) == (SLOWER, OPS, 1.5, OPS * 5)
    late = rank(kernel_us=15, shapes={7: [[9, 8], [8, 8]]})
    assert difference(tmp_path, late, rank(), of_gpu=True).kind == OTHER_WORK
    larger = [{**e, "args": {**e["args"], "grid": [300, 1, 1]}} if e["name"] == GEMM else e for e in rank(kernel_us=15)]
    assert difference(tmp_path, larger, rank(), of_gpu=True).kind == OTHER_WORK


def test_of_several_places_as_many_are_named_as_it_takes(tmp_path):
    slow = {(n, k): us for n in range(2) for k, us in ((3, 90), (9, 85), (20, 80), (25, 75), (27, 70))}
    late = rank(slow=slow, names={3: "aten::a", 9: "aten::b", 20: "aten::c"})
    found = difference(tmp_path, late, rank(names={3: "aten::a", 9: "aten::b", 20: "aten::c"}))
    assert (found.kind, found.place, found.place_us, found.later_us) == (AT_A_PLACE, "aten::a, aten::b, aten::c", 255, 400)


def test_other_work_that_explains_less_than_half_is_not_why(tmp_path):
    """All ops take longer, and one of them has another shape."""
    late, other = rank(each_us=(40, 40), slow={(n, 7): 280 for n in range(2)}, shapes={7: [[9, 8], [8, 8]]}), rank()
    names = {7: "aten::sort"}
    assert difference(tmp_path, late, other).kind == OTHER_WORK  # as one name
    late = rank(each_us=(40, 40), slow={(n, 7): 280 for n in range(2)}, names=names, shapes={7: [[9, 8], [8, 8]]})
    found = difference(tmp_path, late, rank(names=names))
    assert (found.kind, found.later_us, found.place, found.place_us) == (NOT_LATER, 880, "aten::sort", 300)


@pytest.mark.parametrize(
    ("late", "kind", "later_us"),
    [
        ({"begins_us": (500, 900)}, AT_A_PLACE, 500),
        ({"slow": {(0, 7): 400, (1, 7): 400}}, SLOWER, 400),  # of an op that computes, no line of the program is the reason
        ({"slow": {(0, 7): 400, (1, 7): 400}, "shapes": {7: [[9, 8], [8, 8]]}}, OTHER_WORK, 400),
        ({}, NOT_LATER, 0),
    ],
)
def test_without_a_gpu_ops_are_compared_without_their_waiting(tmp_path, late, kind, later_us):
    """Each rank waits in gloo until 6000, and the one that is in time longer; while an op computes, nobody waits."""
    both = []
    for one in (rank(**late), rank()):
        events = [e for e in one if e["cat"] != "kernel"]
        ops = [e for e in events if e["cat"] == "cpu_op"]
        for number in range(2):
            start = PERIOD * number
            ends = max(e["ts"] + e["dur"] for e in ops if e["ts"] < start + PERIOD)
            events.append(event("user_annotation", "gloo:all_reduce", ends - 50, start + 6000 - ends + 50, {"pid": 1, "tid": 9}))
        both.append([{**e, "dur": 6100} if e["name"].startswith("ProfilerStep") else e for e in events])
    found = difference(tmp_path, both[0], both[1], of_gpu=True)
    assert (found.kind, found.later_us, found.of_gpu) == (kind, later_us, False)


def test_too_few_ops_and_a_rank_without_a_gpu_beside_one_with_are_not_compared(tmp_path):
    assert difference(tmp_path, rank(begins_us=(500, 900), ops=20), rank(ops=19)) is not None  # other work
    assert difference(tmp_path, rank(begins_us=(500, 900), ops=19), rank(ops=19)) is None
    on_the_cpu = [e for e in rank() if e["cat"] != "kernel"]
    assert difference(tmp_path, rank(begins_us=(500, 900)), on_the_cpu) is None
    assert difference(tmp_path, on_the_cpu, rank()) is None


def report(tmp_path, capsys, late):
    for number, one in enumerate((rank(), late)):
        write(tmp_path / f"t_rank{number}.json", *one, **header(number, 2))
    assert cli.main([str(tmp_path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_rank_that_is_slow_at_a_place_is_the_straggler(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(begins_us=(2500, 2500)))
    assert "Verdict rank 1 is the straggler, in 2 of 2 steps: it arrives last in 2 of 2 collectives rank 0 waits " in said
    assert (
        "rank 1 runs the same 30 outermost ops as rank 0, and takes 2.50 ms longer for them per step; "
        "2.50 ms later at the start of the step "
    ) in said


def test_a_rank_that_does_the_same_slower_is_no_straggler(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(each_us=(100, 100)))
    assert "straggler" not in said
    assert (
        "rank 1 runs the same 30 outermost ops as rank 0, half of them 5.00 times as long or more, and takes 2.40 ms longer for "
        "them per step: its host may be slow, rather than a line of the program; "
        "record 10 steps or more, to tell a slow one from chance"
    ) in said


def test_a_rank_with_other_ops_that_takes_hardly_longer_is_no_straggler(tmp_path, capsys):
    """What one op more takes explains little of what rank 0 waits."""
    both = enumerate((rank(), rank(begins_us=(2500, 2500))))
    job, _, _ = play_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both])
    late = rank(names={7: "aten::sort"}, slow={(0, 7): 4, (1, 7): 4})
    other = difference(tmp_path, late, rank())
    job = msgspec.structs.replace(job, difference=other)
    assert job.straggler is None and job_details(job)[1] == (
        "rank 1 runs other outermost ops than rank 0, and takes 4.0 µs longer for them per step; the other ones "
        "explain too little of that to call it the straggler"
    )


def test_a_rank_that_is_late_by_chance_is_no_straggler(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(slow={(0, 7): 3000}))
    assert "straggler" not in said
    assert "by its own outermost ops rank 1 is no later than rank 0, in one step at least; record 10 steps or more" in said


def test_a_rank_that_is_hardly_slower_is_told_without_a_number(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(each_us=(20.8, 20.8)))
    assert "times as long" not in said and "straggler" not in said


def test_a_host_is_not_called_slow_by_less_than_a_meeting_waits(tmp_path):
    """Rank 0 waits 2400 in each of its meetings, of which the other one's ops explain 100."""
    both = enumerate((rank(), rank(each_us=(100, 100))))
    job, _, _ = play_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both])
    job = msgspec.structs.replace(job, difference=msgspec.structs.replace(job.difference, later_us=100.0))
    assert job_details(job)[1] == (
        "rank 1 runs the same 30 outermost ops as rank 0, and takes 100.0 µs longer for them per step, "
        "spread over many of them; record 10 steps or more, to tell a slow one from chance"
    )


@pytest.mark.parametrize(
    ("cause", "is_one"), [("cpu", False), ("unknown", False), ("compute", False), ("input", True), ("gap", True)]
)
def test_who_waits_for_its_input_is_a_straggler_though_its_ops_are_slower(tmp_path, cause, is_one):
    both = enumerate((rank(), rank(each_us=(100, 100))))
    job, _, _ = play_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both])
    assert job.difference.kind == SLOWER
    job = msgspec.structs.replace(job, late=msgspec.structs.replace(job.late, cause=cause))
    assert (job.straggler is not None) is is_one


def test_who_computes_other_shapes_could_share_them_out(tmp_path):
    """Rank 1 computes 4800 of 6000, rank 0 300: nearly all of that could go, or half of it go to the other."""
    shapes = {k: [[64, 8], [8, 8]] for k in range(OPS)}
    measured = {"plain_step_us": {"median": 6100, "low": 6100, "high": 6100}}
    both = enumerate((rank(waits=True), rank(shapes=shapes, kernel_us=160, waits=True)))
    job, _, _ = play_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2), **measured) for n, one in both])
    assert (job.late.cause, job.difference.kind) == ("compute", OTHER_WORK)
    gain, shared = job.late_gain, job.mending_gain
    assert gain.low == gain.high > 0.6 and (shared.low, shared.high) == (gain.low / 2, gain.high)


def test_what_other_kernels_belong_to_is_told_by_its_op(tmp_path):
    found = difference(tmp_path, rank(kernel_us=15, shapes={7: [[9, 8], [8, 8]]}), rank(), of_gpu=True)
    assert (found.kind, found.place, found.place_us) == (OTHER_WORK, "aten::mm", OPS * 5)


def test_what_asks_for_a_collective_is_no_other_work(tmp_path):
    """However long its op takes: that depends on the others."""
    names, shapes = {7: "c10d::alltoall_base_"}, {7: [[9, 8], [8, 8]]}
    assert difference(tmp_path, rank(names=names, shapes=shapes, slow=LATE), rank(names=names)).kind == NOT_LATER


def test_a_picture_and_a_large_job_say_of_the_late_rank_what_the_report_says(tmp_path, monkeypatch):
    both = enumerate((rank(), rank(each_us=(100, 100))))
    paths = [write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both]
    played, read = play_job(paths)[0], read_job(paths)[0]
    assert read.difference == played.difference and read.straggler is played.straggler is None
    monkeypatch.setattr("trace_reader.commands.read_job.MOST_HELD", 1)
    assert play_job(paths)[0].difference == played.difference


def test_a_place_that_explains_little_of_the_waiting_makes_no_straggler(tmp_path):
    both = enumerate((rank(), rank(slow={(n, 7): 500 for n in range(2)})))
    job = read_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both])[0]
    assert (job.difference.kind, job.straggler) == (AT_A_PLACE, job.late)
    waits_us = job.waits_longest.exposed_waiting_us
    for sum_us, straggler in ((waits_us / 3, job.late), (waits_us / 3 - 1, None)):
        job = msgspec.structs.replace(job, difference=msgspec.structs.replace(job.difference, sum_us=sum_us))
        assert job.straggler is straggler
    assert job_details(job)[1].startswith("rank 1 is ")
    little = "later in a step than rank 0 by its own outermost ops, little of what rank 0 waits: record 10 steps or more, to "
    assert little in job_details(job)[1]


def test_shapes_that_one_rank_alone_has_recorded_tell_nothing(tmp_path):
    bare = [
        {**e, "args": {k: v for k, v in e["args"].items() if not k.startswith("Input")}} if "args" in e else e for e in rank()
    ]
    assert difference(tmp_path, rank(each_us=(26, 24)), bare).kind == SLOWER


def test_other_work_is_told_with_its_place_and_without_what_is_not_known_besides(tmp_path, capsys):
    """What passes up to the next op may be behind it: a checkpoint, say."""
    said = report(tmp_path, capsys, rank(names={7: "aten::sort"}, slow={(n, 7): 2500 for n in range(2)}))
    longer = "rank 1 takes 2.50 ms a step longer than rank 0, by other outermost ops: 2.52 ms in aten::sort, or right behind what"
    assert longer in said
    job = read_job(sorted(map(str, tmp_path.glob("*.json"))))[0]
    unknown = msgspec.structs.replace(job, late=msgspec.structs.replace(job.late, cause="unknown", place=None))
    assert job_details(unknown)[1] == longer.removesuffix(" what")
    nothing = msgspec.structs.replace(unknown, difference=None)
    assert job_details(nothing)[1] == "its compute and launches do not show what delays it"


def steps_of(*each, **more):
    """Steps of rank(), one after the other, of which each has so many ops."""
    events = []
    for number, ops in enumerate(each):
        begins = {"begins_us": (late := more.get("begins_us", (0,) * len(each))[number], late)}
        one = [e for e in rank(ops=ops, **begins) if e["ts"] < PERIOD]
        for e in one:
            args = dict(e.get("args", {}))
            for key in ("correlation", "External id"):
                args |= {key: args[key] + 5000 * number} if key in args else {}
            name = f"ProfilerStep#{number}" if e["name"].startswith("ProfilerStep") else e["name"]
            events.append({**e, "ts": e["ts"] + PERIOD * number, "name": name, "args": args})
    return events


def test_of_steps_that_do_not_all_do_the_same_those_that_do_what_most_do_are_compared(tmp_path):
    """An evaluation each third step, on both ranks, in which rank 0 is no later."""
    late = steps_of(30, 30, 60, begins_us=(500, 900, 0))
    found = difference(tmp_path, late, steps_of(30, 30, 60))
    assert (found.kind, found.ops, found.place, found.later_us) == (AT_A_PLACE, 30, BEGINS, 500)


def test_of_one_step_alone_that_does_what_no_other_does_nothing_is_told(tmp_path):
    assert difference(tmp_path, steps_of(30, 40, 50, begins_us=(500, 900, 700)), steps_of(30, 40, 50)) is None
    assert difference(tmp_path, steps_of(30, begins_us=(500,)), steps_of(30)) is not None  # the only one recorded


def test_an_op_that_computes_while_gloo_runs_is_no_waiting(tmp_path):
    """On the late rank alone gloo runs beside its ops, which take no longer for it."""
    both = []
    for is_late in (True, False):
        events = [e for e in rank(slow={(n, 7): 400 for n in range(2)}) if e["cat"] != "kernel"]
        if is_late:
            events += [event("user_annotation", "gloo:all_reduce", PERIOD * n + 20, 300, {"pid": 1, "tid": 9}) for n in range(2)]
        both.append(events)
    assert [difference(tmp_path, *pair).kind for pair in (both, both[::-1])] == [NOT_LATER, NOT_LATER]
