"""A late rank that does something else than the others, and one that does the same, slower: what is told of both."""

import json

import msgspec
import pytest
from reader_helpers.events import GEMM, call, kernel, launch, op, step
from test_job import collective, header
from trace_reader import cli, load
from trace_reader.analysis.jobs.rank_difference import AT_A_PLACE, BEGINS, NOT_LATER, OTHER_WORK, SLOWER, rank_difference
from trace_reader.commands.read_job import play_job
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


def test_too_few_ops_and_ranks_without_a_gpu_are_not_compared(tmp_path):
    assert difference(tmp_path, rank(begins_us=(500, 900), ops=20), rank(ops=19)) is not None  # other work
    assert difference(tmp_path, rank(begins_us=(500, 900), ops=19), rank(ops=19)) is None
    on_the_cpu = [[e for e in one if e["cat"] != "kernel"] for one in (rank(begins_us=(500, 900)), rank())]
    assert difference(tmp_path, *on_the_cpu) is None


def report(tmp_path, capsys, late):
    for number, one in enumerate((rank(), late)):
        write(tmp_path / f"t_rank{number}.json", *one, **header(number, 2))
    assert cli.main([str(tmp_path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_rank_that_is_slow_at_a_place_is_the_straggler(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(begins_us=(2500, 2500)))
    assert "Verdict rank 1 is the straggler, in 2 of 2 steps: it arrives last in 2 of 2 collectives rank 0 waits " in said
    assert (
        "rank 1 runs the same 30 ops as rank 0; at the step's begin it is 2.50 ms later in a step (2.50 ms in all) what" in said
    )


def test_a_rank_that_does_the_same_slower_is_no_straggler(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(each_us=(100, 100)))
    assert "straggler" not in said
    assert (
        "rank 1 runs the same 30 ops as rank 0, half of them 5.00 times as long or more, and is 2.40 ms later by them in a step: "
        "its host may be slow, rather than a line of the program; record more steps, to tell a slow one from chance"
    ) in said


def test_a_rank_with_other_ops_that_takes_hardly_longer_is_no_straggler(tmp_path, capsys):
    """What one op more takes explains little of what rank 0 waits."""
    both = enumerate((rank(), rank(begins_us=(2500, 2500))))
    job, _, _ = play_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both])
    late = rank(names={7: "aten::sort"}, slow={(0, 7): 4, (1, 7): 4})
    other = difference(tmp_path, late, rank())
    job = msgspec.structs.replace(job, difference=other)
    assert job.straggler is None and job_details(job)[1] == (
        "rank 1 runs other ops than rank 0, and is 4.0 µs later by them in a step: too little to call it the straggler"
    )


def test_a_rank_that_is_late_by_chance_is_no_straggler(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(slow={(0, 7): 3000}))
    assert "straggler" not in said
    assert "by its own ops rank 1 is no later than rank 0, in one step at least; record more steps, to tell a slow one" in said


def test_a_rank_that_is_hardly_slower_is_told_without_a_number(tmp_path, capsys):
    said = report(tmp_path, capsys, rank(each_us=(20.8, 20.8)))
    assert "times as long" not in said and "straggler" not in said


def test_a_rank_that_was_behind_before_is_said_to_be(tmp_path):
    """Rank 0 waits 2400 in a step, of which the other one's ops explain 100."""
    both = enumerate((rank(), rank(each_us=(100, 100))))
    job, _, _ = play_job([write(tmp_path / f"t_rank{n}.json", *one, **header(n, 2)) for n, one in both])
    job = msgspec.structs.replace(job, difference=msgspec.structs.replace(job.difference, later_us=100.0))
    assert job_details(job)[1] == (
        "rank 1 runs the same 30 ops as rank 0 and is 100.0 µs later by them in a step, less than half of what rank 0 waits: it "
        "may have been behind before"
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
    assert job.late_gain.low == pytest.approx(job.late_gain.high / 2, abs=0.02) and job.late_gain.high > 0.6
