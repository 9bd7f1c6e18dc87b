"""A job read as one: collectives matched over its ranks, and who waits for whom, in made traces with numbers done by hand."""

import contextlib
import json
import multiprocessing
import os
from pathlib import Path
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from matplotlib.colors import to_hex
import msgspec
import numpy as np
import pytest
from reader_helpers import free_port
from reader_helpers.events import ADD, GEMM, annotation, document, event, kernel, launch, memcpy, op, step
from trace_reader import analyze, cli, load
from trace_reader.analysis.jobs.job_facts import job_facts
from trace_reader.analysis.jobs.rank_summary import rank_of, summarize_rank
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.commands import merge_ranks as commands_merge
from trace_reader.commands import read_job as commands
from trace_reader.report.job_report import job_sentence
from trace_reader.report.lights import waits_for_straggler
from trace_reader.write import job_picture
from trace_reader.write.trace_picture import PictureRange

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def collective(n, ts, dur, name="allreduce", elements=1000, group="0", ranks=(0, 1, 2), launched=None, **more):
    said = {"Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, "Group size": len(ranks),
            "dtype": "BFloat16", "Process Group Name": group, "Process Group Ranks": str(list(ranks)), **more}  # fmt: skip
    return [launch(ts - 1 if launched is None else launched, n), kernel(NCCL, ts, dur, n, stream=17, **said)]


def compute(n, ts, dur, launched=None):
    return [launch(ts - 1 if launched is None else launched, n), kernel(ADD, ts, dur, n)]


def header(rank, world=3, **more):
    config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": world, "ranks": list(range(world))}]
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": config}, **more}


def shifted(events, by):
    return [{**e, "ts": e["ts"] + by} for e in events]


def write(folder, rank, *events, shift=0, name=None, **more):
    path = folder / (name or f"t_rank{rank}.json")
    path.write_text(json.dumps(document(*shifted(events, shift), **{**header(rank), **more})))
    return str(path)


def facts_of(*paths):
    traces = [load(path) for path in paths]
    return job_facts(summarize_rank(trace, analyze(trace), rank_of(trace.header, trace.path)) for trace in traces)


def three(folder, shifts=(0, 0, 0)):
    """Rank 2 computes 30 µs longer before the first collective; 5 µs later at the second; of the third it is no part."""
    pair = {"group": "1", "ranks": (0, 1)}
    ranks = [
        [*compute(1, 10, 50), *collective(2, 60, 40), *collective(3, 200, 20), *collective(4, 300, 20, **pair)],
        [*compute(1, 10, 50), *collective(2, 60, 40), *collective(3, 200, 20), *collective(4, 310, 10, **pair)],
        [*compute(1, 10, 80), *collective(2, 90, 10), *collective(3, 205, 15)],
    ]
    return [write(folder, rank, step(0, 0, 1000), *events, shift=shifts[rank]) for rank, events in enumerate(ranks)]


@pytest.mark.parametrize(
    ("offset_ns", "shift_ns", "as_of"),
    [
        ((0, 0, 0), 0, 0),  # rank 0 waits 45 µs, rank 1 waits 35
        ((0, -9000, 700), -700, 0),  # on the late rank's own clock
        ((None, -9000, 700), -9700, 1),  # rank 0's clock is tied to no other
        ((0, 0, None), 0, None),
        ((None, None, 0), 0, None),
    ],
)
def test_of_the_late_rank_the_time_lights_up_in_which_another_waits_longest(tmp_path, offset_ns, shift_ns, as_of):
    job = msgspec.structs.replace(facts_of(*three(tmp_path)), offset_ns=offset_ns)
    lights = waits_for_straggler(job)
    waited = [spans[spans[:, 1] > spans[:, 0]] for spans in (np.stack(both, 1) for both in job.waits_ns)]
    assert [sorted(np.diff(spans).ravel().tolist()) for spans in waited] == [[5000, 10000, 30000], [5000, 30000], []]
    told = {place: one.spans_ns.tolist() for place, one in lights.items()}
    late = {} if as_of is None else {2: (waited[as_of] + shift_ns).tolist()}
    assert told == {0: waited[0].tolist(), 1: waited[1].tolist(), **late}


@pytest.mark.parametrize("shifts", [(0, 0, 0), (0, 5000, 123456.789), (777, 0, 31)])
def test_who_waits_for_whom(tmp_path, capsys, shifts):
    paths = three(tmp_path, shifts)
    assert cli.main([*paths, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    keys = "rank", "compute_us", "communication_us", "overlapped_us", "exposed_us", "waiting_us", "idle_us", "last_to_arrive"
    assert [tuple(rank[key] for key in keys) for rank in told["ranks"]] == [
        (0, 50, 80, 0, 80, 45, 870, 0), (1, 50, 70, 0, 70, 35, 880, 1), (2, 80, 25, 0, 25, 0, 895, 2),
    ]  # fmt: skip
    assert [(rank["trace"], rank["steps"], rank["verdict"]) for rank in told["ranks"]] == [
        (path, 1, analyze(load(path)).verdict) for path in paths
    ]
    assert told["late_rank"] == {"rank": 2, "share": pytest.approx(75 / 80, abs=1e-6), "cost": 0.045, "gain": None}
    assert {key: told[key] for key in ("matched", "unmatched", "transfer_us", "clock_residual_us", "straggler")} == {
        "matched": 3, "unmatched": 0, "transfer_us": 35, "clock_residual_us": 0, "straggler": 2
    }  # fmt: skip
    # 2,000 bytes: 4/3 of them on the bus of three ranks, all of them on that of two
    assert told["collectives"] == [
        {"name": "allreduce", "group": "0", "ranks": [0, 1, 2], "count": 2, "bytes": 2000, "transfer_us": 12.5, "skew_us": 17.5,
         "bus_gb_per_s": 0.213333, "class": "arrival skew"},
        {"name": "allreduce", "group": "1", "ranks": [0, 1], "count": 1, "bytes": 2000, "transfer_us": 10, "skew_us": 10,
         "bus_gb_per_s": 0.2, "class": "arrival skew"},
    ]  # fmt: skip
    assert set(told) == {"schema_version", "ranks", "matched", "unmatched", "transfer_us", "clock_residual_us", "straggler",
                         "late_rank", "plain", "findings", "collectives", "communication", "difference"}  # fmt: skip
    assert (told["communication"], told["difference"]) == ([], None)  # it cannot be played again, and holds no ops


def test_the_report(tmp_path, capsys, monkeypatch):
    three(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["."]) == 0
    assert (
        capsys.readouterr().out
        == """\
3 ranks of one job: ./t_rank*.json
device: NVIDIA H200
steps: 1 (ProfilerStep#0)

Verdict
rank 2 is the straggler: it arrives last in 2 of 2 collectives
the others wait 35.0 µs to 45.0 µs in collectives, rank 2 waits 0.0 µs; rank 0
  spends 4.5% of its time in exposed waiting
it computes longer
what a step takes without the profiler is not known: a rank has fewer than two
  steps

Ranks (all that was recorded; waiting and transfer: the exposed part; last: how
often it arrived last, in all steps)
  rank  compute  commun.  exposed  waiting  transfer      idle  last
  0     50.0 µs  80.0 µs  80.0 µs  45.0 µs   35.0 µs  870.0 µs     0
  1     50.0 µs  70.0 µs  70.0 µs  35.0 µs   35.0 µs  880.0 µs     1
  2     80.0 µs  25.0 µs  25.0 µs   0.0 µs   25.0 µs  895.0 µs     2

Collectives (transfer and skew: medians; GB/s: on the bus; a device's NVLink
carries 450 as published)
  collective  group  ranks  count    MB  transfer     skew  GB/s  mostly
  allreduce       0    0-2      2  0.00   12.5 µs  17.5 µs   0.2  skew
  allreduce       1    0-1      1  0.00   10.0 µs  10.0 µs   0.2  skew

Clocks and matching
the ends of 3 matched collectives align the clocks; they remain 0.0 µs apart
  (median)
"""
    )


def late(folder, *, before, gap_launch):
    """Rank 1's second kernel begins 100 µs late, launched at `gap_launch`; `before`: what else is on its CPU."""
    fine = [step(0, 0, 400), annotation("forward", 5, 200), *compute(1, 20, 30), *collective(2, 50, 110, ranks=(0, 1))]
    slow = [step(0, 0, 400), *before, *compute(1, 120, 30, launched=gap_launch), *collective(2, 150, 10, ranks=(0, 1))]
    return [write(folder, rank, *events, **header(rank, 2)) for rank, events in enumerate((fine, slow))]


@pytest.mark.parametrize(
    ("before", "launched", "why"),
    [
        ([annotation("forward", 110, 200)], 119, "its CPU is late before forward"),
        ([annotation("forward", 1, 300), *compute(9, 3, 1)], 119, "its CPU is late in forward"),
        ([], 119, "its CPU is late"),
        ([annotation("data", 5, 50), annotation("forward", 110, 200)], 119, "its CPU is late before forward"),
        ([annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 50)], 119, "its CPU is late"),
        ([], 61, "its CPU is late"),  # of 120 µs without work, more than half before the launch
        ([], 59, "its device waits for something that is not the CPU"),
        ([annotation("nccl:all_reduce", 110, 200)], 119, "its CPU is late"),  # the backend's own says nothing of the program
        ([annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 110)], 119,
         "it waits for its input (a DataLoader)"),
        ([], 4, "its device waits for something that is not the CPU"),
    ],
)  # fmt: skip
def test_what_kept_the_late_rank(tmp_path, capsys, before, launched, why):
    assert cli.main(late(tmp_path, before=before, gap_launch=launched)) == 0
    told = capsys.readouterr().out
    assert (
        "\nrank 1 is the straggler: it arrives last in 1 of 1 collective\nrank 0 waits 100.0 µs in collectives, rank 1 " in told
    )
    assert f"\n{why}\n" in told


def test_who_is_late_for_several_in_a_row_is_late_for_what_kept_it_first(tmp_path):
    # Rank 0 goes on computing while it waits: for the second collective it has nothing left to do.
    fine = [step(0, 0, 900), *compute(1, 20, 30), *collective(2, 50, 110, ranks=(0, 1)), *compute(3, 60, 50),
            *collective(4, 160, 60, ranks=(0, 1), launched=70)]  # fmt: skip
    slow = [step(0, 0, 900), *compute(1, 120, 30, launched=119), *collective(2, 150, 10, ranks=(0, 1)), *compute(3, 160, 50),
            *collective(4, 210, 10, ranks=(0, 1))]  # fmt: skip
    job = facts_of(*(write(tmp_path, rank, *events, **header(rank, 2)) for rank, events in enumerate((fine, slow))))
    assert (job.straggler.rank, job.straggler.last, job.straggler.caused_us, job.straggler.cause) == (1, 2, 150, "cpu")
    # of rank 0's waiting, 100 µs and 50 µs, the kernel of 50 µs hides as much
    assert (job.ranks[0].waiting_us, job.ranks[0].exposed_waiting_us, job.ranks[0].overlapped_us) == (150, 100, 50)
    assert (job.ranks[0].exposed_us, job.ranks[0].exposed_transfer_us) == (120, 20)


def test_waiting_that_is_hidden_makes_no_straggler(tmp_path):
    ranks = [
        [*compute(1, 40, 500), *collective(2, 50, 110, ranks=(0, 1))],
        [*compute(1, 40, 500), *collective(2, 150, 10, ranks=(0, 1))],
    ]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 900), *events, **header(rank, 2)) for rank, events in enumerate(ranks)))
    assert (job.ranks[0].waiting_us, job.ranks[0].exposed_waiting_us, job.straggler) == (100, 0, None)


def test_what_cannot_be_matched_is_left_out_and_said(tmp_path, capsys):
    ranks = [[*collective(1, 10, 20), *collective(2, 50, 20), *collective(3, 90, 20, elements=7)] for _ in range(3)]
    ranks[1] = ranks[1][2:]  # the first of rank 1 is missing: which of the two equal ones, nobody knows
    paths = [write(tmp_path, rank, step(0, 0, 500), *events) for rank, events in enumerate(ranks)]
    assert cli.main(paths) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "left out: 2 collectives allreduce in group 0, ProfilerStep#0: not all ranks have equally many: "
        "rank 0 has 2, rank 1 has 1, rank 2 has 2"
    ) in told
    job = facts_of(*paths)
    assert (job.matched, job.unmatched, [row.bytes for row in job.collectives]) == (1, 2, [14])


def test_what_is_left_out_counts_as_the_rank_with_most_of_all_sizes_has_it(tmp_path):
    ranks = [[*collective(1, 10, 20), *collective(2, 50, 20), *collective(3, 90, 20, elements=7)], collective(1, 10, 20), []]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 500), *events) for rank, events in enumerate(ranks)))
    assert (job.matched, job.unmatched) == (0, 3)


def test_a_missing_call_does_not_touch_the_other_steps(tmp_path):
    both = [step(0, 0, 100), *collective(1, 10, 20), *collective(2, 50, 20), step(1, 100, 100), *collective(3, 110, 20)]
    paths = [write(tmp_path, rank, *(both if rank else both[3:])) for rank in range(3)]
    job = facts_of(*paths)
    assert (job.matched, job.unmatched, job.left_out[0].step) == (1, 2, "ProfilerStep#0")


def test_calls_with_numbers_are_matched_by_these(tmp_path):
    ranks = [[call for n in range(3) for call in collective(n + 1, 10 + 40 * n, 10 + 5 * rank, Seq=n)] for rank in range(3)]
    ranks[1] = ranks[1][2:]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 500), *events) for rank, events in enumerate(ranks)))
    assert (job.matched, job.unmatched, [row.skew_us for row in job.collectives]) == (2, 1, [10])


def test_a_collective_is_of_the_step_that_launched_it(tmp_path):
    """On rank 1 it runs when the next step has begun."""
    steps = step(0, 0, 100), step(1, 100, 100)
    ranks = [collective(1, ts, 170 - ts, ranks=(0, 1), launched=50) for ts in (60, 150)]
    job = facts_of(*(write(tmp_path, rank, *steps, *events, **header(rank, 2)) for rank, events in enumerate(ranks)))
    assert (job.matched, job.unmatched) == (1, 0)


def test_calls_with_numbers_are_matched_whichever_steps_the_ranks_recorded(tmp_path):
    calls = collective(1, 110, 20, ranks=(0, 1), Seq=4)
    a = write(tmp_path, 0, step(0, 0, 100), step(1, 100, 100), *calls, **header(0, 2))
    b = write(tmp_path, 1, step(1, 100, 100), *calls, **header(1, 2))
    c = write(tmp_path, 1, step(5, 100, 100), *calls, **header(1, 2), name="other.json")
    assert [(facts_of(a, other).matched, facts_of(a, other).unmatched) for other in (b, c)] == [(1, 0), (1, 0)]


def test_a_send_and_its_receive_are_one(tmp_path):
    sends = collective(1, 10, 30, "send", ranks=(0, 1, 2), **{"Dst Rank": 1})
    receives = collective(1, 25, 20, "recv", ranks=(0, 1, 2), **{"Src Rank": 0})
    alone = collective(1, 25, 20, "recv", ranks=(0, 1, 2))  # does not say from whom
    paths = [write(tmp_path, rank, step(0, 0, 500), *events) for rank, events in enumerate((sends, receives, alone))]
    job = facts_of(*paths)
    assert [(row.name, row.ranks, row.transfer_us, row.skew_us) for row in job.collectives] == [("send and recv", (0, 1), 20, 10)]
    assert (job.matched, job.unmatched) == (1, 1)


def test_a_rank_that_is_not_here(tmp_path, capsys):
    paths = three(tmp_path)[:2]
    assert cli.main(paths) == 0
    out = capsys.readouterr().out
    assert "of 3 ranks, rank 2 is missing here; the straggler may be among them\n" in out
    job = facts_of(*paths)
    assert job.missing_ranks == (2,)
    # Rank 2 may have come last: then both of the others waited.
    assert [(row.group, row.kind, row.bus_gb_per_s) for row in job.collectives] == [
        ("0", "inconclusive", None),
        ("1", "arrival skew", 0.2),
    ]
    assert [rank.last_to_arrive for rank in job.ranks] == [0, 1]


def test_ranks_that_share_no_collective_have_clocks_of_their_own(tmp_path):
    one = [collective(1, 10, 20, group="1", ranks=(0, 1)), collective(1, 10, 20, group="1", ranks=(0, 1)), compute(1, 10, 20)]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 100), *events, shift=rank) for rank, events in enumerate(one)))
    assert job.offset_ns == (0, 0, None)


def test_clocks_are_tied_over_other_ranks(tmp_path):
    one, two = {"group": "1", "ranks": (0, 1)}, {"group": "2", "ranks": (1, 2)}
    ranks = [
        collective(1, 10, 20, **one),
        [*collective(1, 15, 15, **one), *collective(2, 50, 20, **two)],
        collective(1, 60, 10, **two),
    ]
    shifts = 0, 100, 1000
    paths = [
        write(tmp_path, rank, annotation("a", 0, 5), step(0, 0, 100), *events, shift=shifts[rank])
        for rank, events in enumerate(ranks)
    ]
    assert facts_of(*paths).offset_ns == (0, 0, 0)  # each counts from its own first slice
    late_start = write(tmp_path, 2, *ranks[2], step(0, 40, 60), shift=1000)
    assert facts_of(*paths[:2], late_start).offset_ns == (0, 0, 40_000)
    write(tmp_path, 1, *ranks[1], step(0, 5, 95), shift=100)  # the one between them is off as well
    job = facts_of(*paths[:2], late_start)
    assert (job.offset_ns, job.clock_residual_us) == ((0, 5000, 40_000), 0)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([{}, {"rank": 0}, {"rank": 1}], "two files are of rank 0: {0} and {1}; name one for each rank of one job"),
        ([{}, {"rank": 1, "world": 4}], "not one job: {0} is of 3 ranks, {1} of 4"),
        ([{}, {"rank": 3}], "{1}: rank 3 of 3 ranks"),
    ],
)
def test_files_that_are_not_one_job(tmp_path, capsys, ranks, message):
    paths = []
    for number, said in enumerate(ranks):
        said = {"rank": 0, "world": 3, **said}
        paths.append(write(tmp_path, number, step(0, 0, 100), *collective(1, 10, 20), name=f"{number}.json", **header(**said)))
    assert cli.main(paths) == 2
    assert capsys.readouterr() == ("", f"error: {message.format(*paths)}\n")


def test_recordings_at_different_times_are_not_one_job(tmp_path, capsys):
    a = write(tmp_path, 0, step(0, 0, 100), *collective(1, 10, 20, ranks=(0, 1)), **header(0, 2), baseTimeNanoseconds=10**18)
    b = write(tmp_path, 1, step(0, 0, 100), *collective(1, 10, 20, ranks=(0, 1), elements=5), **header(1, 2),
              baseTimeNanoseconds=10**18 + 3 * 10**9)  # fmt: skip
    assert cli.main([a, b]) == 2
    assert capsys.readouterr().err == (
        f"error: not one job: {a} and {b} were recorded 3.0 s apart, and their collectives do not fit each other\n"
    )


def test_ranks_of_other_groups_are_not_one_job(tmp_path, capsys):
    paths = []
    for rank, name in enumerate(("0", "mesh")):
        said = header(rank, 2)
        said["distributedInfo"]["pg_config"][0]["pg_name"] = name
        paths.append(write(tmp_path, rank, step(0, 0, 100), *collective(1, 10, 20, ranks=(0, 1)), **said))
    assert cli.main(paths) == 2
    assert capsys.readouterr().err == f"error: not one job: {paths[0]} and {paths[1]} have different process groups\n"


def test_a_rank_without_collectives_hides_no_other(tmp_path):
    call = collective(1, 10, 20, ranks=(0, 2))
    job = facts_of(
        *(write(tmp_path, rank, step(0, 0, 100), *events) for rank, events in enumerate((call, compute(1, 10, 20), call)))
    )
    assert (job.matched, [row.ranks for row in job.collectives]) == (1, [(0, 2)])


def test_two_runs_of_one_rank_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    paths = [write(tmp_path, 0, step(0, 0, 100), *compute(1, 10, 20 + n), name=f"{n}.json", trace_id=str(n)) for n in range(2)]
    assert cli.main(paths) == 0
    assert capsys.readouterr().out.startswith(f"A: {paths[0]}\nB: {paths[1]}\n")


def test_a_flag_of_one_trace_is_not_ignored_for_a_folder(tmp_path, capsys):
    three(tmp_path)
    assert cli.main([str(tmp_path), "--chain"]) == 2
    assert capsys.readouterr().err == f"error: tree shows one trace: name one of these 3, as {tmp_path}/t_rank0.json\n"


def test_a_folder_is_its_traces(tmp_path, capsys):
    three(tmp_path)
    assert cli.main([str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["matched"] == 3
    (tmp_path / "t_rank1.json").write_text("{")
    assert cli.main([str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert err == f"error: {tmp_path}/t_rank1.json: no trace: there is no list traceEvents in it\n"
    assert out.startswith("2 ranks of one job: ")


def test_the_rank_in_the_name_of_a_file(tmp_path):
    names = "a_rank3.json", "rank-12.json.gz", "x/rank_0/b.json", "frank3.json", "ranks.json", "node_rank0_rank3.json"
    assert [rank_of({}, name) for name in names] == [3, 12, None, None, None, 3]
    assert rank_of({"distributedInfo": {"rank": 1}}, "a_rank3.json") == 1
    assert rank_of({"distributedInfo": {"rank": True}}, "a.json") is None
    assert rank_of({"distributedInfo": []}, "a.json") is None


def test_processes_tell_the_same(tmp_path):
    paths = three(tmp_path)
    (tmp_path / "broken_rank7.json").write_text("")
    paths.append(str(tmp_path / "broken_rank7.json"))
    one, two = (commands.read_job(paths, processes=n) for n in (1, 2))
    assert one[0].ranks == two[0].ranks and one[0].collectives == two[0].collectives
    assert [str(error) for error in two[1]] == [str(error) for error in one[1]] == [f"{paths[3]}: the file is empty"]


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, commands.TRIES + 1])
def test_a_process_that_is_killed(tmp_path, deaths):
    paths = three(tmp_path)
    pipe = tmp_path / "pipe_rank1.json"
    os.mkfifo(pipe)

    def feed():
        for _ in range(deaths):
            end = os.open(pipe, os.O_WRONLY)  # waits for who reads it
            for process in multiprocessing.active_children():
                process.kill()
                process.join()
            os.close(end)
        if deaths == 1:
            pipe.write_bytes(Path(paths[1]).read_bytes())

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    job, errors = commands.read_job([paths[0], str(pipe), paths[2]], processes=2)
    feeding.join(60)
    if deaths == 1:
        assert (job.matched, job.straggler.rank, errors) == (3, 2, [])
    else:
        assert [rank.rank for rank in job.ranks] == [0, 2]
        assert list(map(str, errors)) == [f"{pipe}: the process that read it was killed; is there enough memory?"]


@pytest.mark.parametrize(
    ("late_us", "late"),
    [
        ((60, 60, 60), 1),
        ((60, -20, 60), 1),  # rank 0 is late in one of three steps, and rank 1 waits 20 for it
        ((60, -61, 60), None),  # rank 1 itself waits half as long as the other
        ((60, 3, 3, 60), None),  # late in half of the steps
    ],
)
def test_without_a_gpu_a_straggler_is_late_in_most_steps_and_waits_little_itself(tmp_path, late_us, late):
    """There nothing is compared: of a balanced job some rank causes half of the waiting, too."""
    paths = []
    for rank in range(2):
        events = []
        for n, us in enumerate(late_us):
            at, began = 200 * n, 200 * n + 20 + (max(us, 0) if rank else max(-us, 0))
            events += [
                step(n, at, 190),
                op("aten::mm", at + 5, 10),
                op("aten::mm", began - 5, 4),
                op("c10d::allreduce_", began, 5),
            ]
            events += [event("user_annotation", "gloo:all_reduce", began, at + 130 - began, {"pid": 1, "tid": 9})]
        paths.append(write(tmp_path, rank, *events, **header(rank, 2)))
    straggler = facts_of(*paths).straggler
    assert (straggler.rank if straggler else None) == late


def test_without_a_gpu_the_backends_annotations_are_the_collectives(tmp_path):
    def rank(number, from_us):
        gloo = event("user_annotation", "gloo:all_reduce", from_us, 100 - from_us, {"pid": 1, "tid": 9})
        ops = op("aten::mm", 10, from_us - 10), op("c10d::allreduce_", from_us, 5)
        return write(tmp_path, number, step(0, 0, 200), *ops, gloo, **header(number, 2))

    job = facts_of(rank(0, 30), rank(1, 90))
    assert [(one.compute_us, one.communication_us, one.waiting_us) for one in job.ranks] == [(20, 70, 60), (80, 10, 0)]
    assert (job.straggler.rank, job.straggler.cause, job.collectives[0].name) == (1, "compute", "all_reduce")
    assert (job.collectives[0].bytes, job.collectives[0].bus_gb_per_s) == (None, None)


def test_without_a_gpu_and_without_groups_all_ranks_take_part(tmp_path):
    gloo = [event("user_annotation", "gloo:all_reduce", 50 + rank, 20 - rank, {"pid": 1, "tid": 9}) for rank in range(2)]
    info = [{"distributedInfo": {"rank": rank, "world_size": 2}} for rank in range(2)]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 200), gloo[rank], **info[rank]) for rank in range(2)))
    assert [(row.name, row.ranks, row.transfer_us) for row in job.collectives] == [("all_reduce", (0, 1), 19)]


def test_merged_ranks_are_one_trace_with_the_sum_of_the_parts(tmp_path, capsys):
    paths = three(tmp_path, (0, 5000, 123456.789))
    target = tmp_path / "all" / "job.json.gz"
    assert cli.main([*paths, "--merge", str(target)]) == 1
    assert capsys.readouterr().err == f"error: {target}: No such file or directory\n"
    target.parent.mkdir()
    assert cli.main([*paths, "--merge", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {target} (") and target.read_bytes()[:2] == b"\x1f\x8b"
    whole, parts = analyze(load(str(target))), [analyze(load(path)) for path in paths]
    assert whole.kernels_total == sum(part.kernels_total for part in parts) == 11
    assert whole.gpu_time_by_origin_us["op"] + whole.gpu_time_by_origin_us["library"] == sum(
        kernel.total_us for part in parts for kernel in part.kernels
    )
    counters = whole.skipped["counter"]
    assert whole.unlinked == 0 and whole.events - counters == sum(part.events for part in parts)
    assert cli.main([str(target)]) == 0
    assert "\nranks: 0, 1, 2, merged; steps, verdict and path are those of one rank" in capsys.readouterr().out
    # Steps are those of the first rank, and so is what they launched.
    assert [(step.name, step.kernels, step.launches) for step in whole.steps] == [("ProfilerStep#0", 4, 4)]


def test_merged_ranks_keep_lanes_ids_and_devices_apart_and_meet_in_time(tmp_path):
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 2, "pid": 1, "tid": 1, "ts": 60}
    label = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}
    unused = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}}
    ranks = [[step(0, 0, 200), *collective(2, 60, 40, ranks=(0, 1)), {**flow, "ts": 59}, label | {"ts": 0}, unused | {"ts": 0}],
             [step(0, 0, 200), *collective(2, 80, 20, ranks=(0, 1)), {**flow, "ts": 79}, label | {"ts": 0}]]  # fmt: skip
    paths = [
        write(tmp_path, rank, *events, shift=1000 * rank, baseTimeNanoseconds=5, **header(rank, 2))
        for rank, events in enumerate(ranks)
    ]
    commands_merge.run(paths, tmp_path / "all.json")
    merged = json.loads((tmp_path / "all.json").read_text())
    assert "distributedInfo" not in merged and merged["mergedRanks"] == [0, 1]
    assert [one["id"] for one in merged["deviceProperties"]] == [0, 1]
    kernels = [event for event in merged["traceEvents"] if event.get("cat") == "kernel"]
    assert [(event["pid"], event["args"]["device"], event["ts"], event["ts"] + event["dur"]) for event in kernels] == [
        (0, 0, 60, 100), (1, 1, 80, 100),
    ]  # fmt: skip
    calls = [event["args"]["correlation"] for event in merged["traceEvents"] if event.get("cat") == "cuda_runtime"]
    assert calls == [event["args"]["correlation"] for event in kernels] and len(set(calls)) == 2
    assert len({event["id"] for event in merged["traceEvents"] if event["ph"] == "s"}) == 2
    named = {event["pid"]: event["args"]["name"] for event in merged["traceEvents"] if event["name"] == "process_name"}
    assert sorted(named.values()) == ["rank 0: python", "rank 1: python"]
    assert set(named) == {event["pid"] for event in merged["traceEvents"] if event.get("cat") == "cuda_runtime"}


def test_merged_lanes_have_the_ranks_numbers(tmp_path):
    """Of the second and third of three ranks, not of the first and second file."""
    label = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}
    paths = [write(tmp_path, rank, step(0, 0, 200), *collective(2, 60, 40), label) for rank in (1, 2)]
    commands_merge.run(paths, tmp_path / "all.json")
    merged = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert sorted(event["args"]["name"] for event in merged if event["name"] == "process_name") == [
        "rank 1: python", "rank 2: python",
    ]  # fmt: skip


def test_merged_numbers_of_ranks_stay_apart(tmp_path):
    """Autograd's sequence numbers, addresses and device ids of memory events, which the reader compares across threads."""
    said = {"Sequence number": 7, "Addr": 140000000000000, "Device Id": 1, "Device Type": 1}
    on_cpu = {"Addr": 5, "Device Id": -1, "Device Type": 0}
    for rank in range(2):
        events = [event("cpu_op", "aten::add", 5, 1, **said), event("cpu_op", "aten::add", 7, 1, **on_cpu)]
        write(tmp_path, rank, step(0, 0, 200), *collective(2, 60, 40, ranks=(0, 1)), *events, **header(rank, 2))
    commands_merge.run([str(tmp_path)], tmp_path / "all.json")
    merged = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    one = [event["args"] for event in merged if event["name"] == "aten::add"]
    assert [args.get("Sequence number") for args in one] == [7, None, 7 + (1 << 30), None]
    assert [args["Addr"] for args in one] == [140000000000000, 5, 140000000000000 + (1 << 48), 5 + (1 << 48)]
    assert [args["Device Id"] for args in one] == [1, 0, 3, 1]  # on GPUs: after those that the kernels ran on, 0 and 2


def test_what_cannot_be_merged(tmp_path, capsys):
    paths = three(tmp_path)
    Path(paths[1]).write_text(Path(paths[1]).read_text()[:-40])
    for asked, message in (
        (paths, f"{paths[1]}: it can be read, but is not whole, and cannot be merged: "),
        (paths[:1], f"{paths[0]}: one trace; merge takes the ranks of a job"),
    ):
        assert cli.main([*asked, "--merge", str(tmp_path / "out.json")]) == 2
        assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "out.json").exists()


def test_who_keeps_a_rank_that_keeps_others_is_the_late_one(tmp_path):
    """Rank 1 of 8 computes 500 µs longer: it holds up its group of four, and these hold up their partners in the other one."""
    fours, paths = [(0, 1, 2, 3), (4, 5, 6, 7)], []
    for rank in range(8):
        late = 500 if rank == 1 else 0
        four, pair = fours[rank // 4], (rank % 4, rank % 4 + 4)
        joined = 610 if rank < 4 else 110  # when the first collective has ended
        paths.append(
            write(tmp_path, rank, step(0, 0, 2000), *compute(1, 10, 90 + late),
                  *collective(2, 100 + late, joined - 100 - late, group="t", ranks=four),
                  *collective(3, joined, 620 - joined, group="d", ranks=pair), **header(rank, 8))
        )  # fmt: skip
    job = facts_of(*paths)
    # 3 ranks wait 500 µs for rank 1, and 4 for those
    assert (job.straggler.rank, job.straggler.caused_us, job.straggler.cause) == (1, 7 * 500, "compute")
    assert [rank.last_to_arrive for rank in job.ranks] == [1, 2, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "lasts"),
    [("allreduce", [0, 1]), ("_allgather_base", [0, 1]), ("all_to_all", [0, 1]), ("_reduce_scatter_base", [0, 1]),
     ("broadcast", [0, 0]), ("gather", [0, 0]), ("scatter", [0, 0]), ("reduce", [0, 0]), ("send", [0, 0]), ("recv", [0, 0])],
)  # fmt: skip
def test_who_need_not_wait_for_others_is_not_the_last(tmp_path, name, lasts):
    ranks = [collective(1, 10, 50, name, ranks=(0, 1)), collective(1, 40, 20, name, ranks=(0, 1))]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 100), *events, **header(rank, 2)) for rank, events in enumerate(ranks)))
    assert [rank.last_to_arrive for rank in job.ranks] == lasts


@pytest.mark.parametrize("earlier", [0, 40])  # us that rank 1's recording begins before the others'
def test_of_equally_short_calls_the_one_that_began_last_came_last(tmp_path, earlier):
    """Rank 1 and rank 2 take as long, and end 5 µs apart; three collectives before it tie the clocks."""
    before = [e for n in range(3) for e in collective(n + 2, 100 * n + 10, 20)]
    calls = [(310, 60), (340, 30), (335, 30)]
    ranks = [[*before, *collective(1, *call)] for call in calls]
    begins = 0, -earlier, 0
    job = facts_of(
        *(
            write(tmp_path, rank, step(0, begins[rank], 500 - begins[rank]), *events, shift=50)
            for rank, events in enumerate(ranks)
        )
    )
    assert job.offset_ns == (0, -1000 * earlier, 0) and [rank.last_to_arrive for rank in job.ranks] == [0, 1, 0]


def test_who_adds_to_what_it_waited_is_late_for_the_rest_alone(tmp_path):
    """Rank 0 holds up rank 1 by 100 µs, and that rank 2 by 250 µs: 150 are its own."""
    t, d = {"group": "t", "ranks": (0, 1)}, {"group": "d", "ranks": (1, 2)}
    ranks = [
        [*compute(1, 10, 100), *collective(2, 110, 10, **t)],
        [*collective(2, 10, 110, **t), *compute(3, 120, 150), *collective(4, 270, 10, **d)],
        collective(4, 20, 260, **d),
    ]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 1000), *events) for rank, events in enumerate(ranks)))
    assert [rank.waiting_us for rank in job.ranks] == [0, 100, 250]
    assert (job.late.rank, job.late.caused_us, job.late.share) == (0, 200, 200 / 350)


def test_what_two_groups_owe_to_one_rank_is_summed(tmp_path):
    """Rank 0 holds up rank 1 in two groups by 100 us each, and rank 1 then holds up rank 2 by 200 µs: all is rank 0's doing."""
    groups = [{"group": name, "ranks": ranks} for name, ranks in (("a", (0, 1)), ("b", (0, 1, 3)), ("c", (1, 2)))]
    ranks = [
        [*compute(1, 10, 100), *collective(2, 110, 10, **groups[0]), *compute(3, 120, 100), *collective(4, 220, 10, **groups[1])],
        [*collective(2, 10, 110, **groups[0]), *collective(4, 120, 110, **groups[1]), *collective(5, 230, 10, **groups[2])],
        collective(5, 30, 210, **groups[2]),
        collective(4, 220, 10, **groups[1]),
    ]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 1000), *events, **header(rank, 4)) for rank, events in enumerate(ranks)))
    assert (job.straggler.rank, job.straggler.caused_us) == (0, 100 + 100 + 200)


def test_what_is_before_the_steps_does_not_count(tmp_path):
    """Half an op, and a collective, which the backend ran before the step."""

    def rank(number):
        gloo = [event("user_annotation", "gloo:all_reduce", ts, 20, {"pid": 1, "tid": 9}) for ts in (50, 150)]
        ops = op("aten::mm", 90, 20), op("aten::mm", 120, 10)
        return write(tmp_path, number, annotation("set up", 0, 40), step(0, 100, 100), *ops, *gloo, **header(number, 2))

    (first, _) = facts_of(rank(0), rank(1)).ranks
    assert (first.window_us, first.compute_us, first.communication_us, first.idle_us) == (100, 20, 20, 60)


def test_of_calls_that_begin_and_end_together_nobody_is_the_last(tmp_path):
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 100), *collective(1, 10, 50)) for rank in range(3)))
    assert ([rank.last_to_arrive for rank in job.ranks], job.matched, job.straggler) == ([0, 0, 0], 1, None)


def test_groups_that_the_traces_do_not_name_are_left_out(tmp_path, capsys):
    def bare(rank):
        pairs = [{"pg_name": str(n), "ranks": ranks} for n, ranks in enumerate([[0, 1, 2, 3], [0, 1], [2, 3]])]
        config = {"distributedInfo": {"rank": rank, "world_size": 4, "pg_config": pairs}}
        return write(tmp_path, rank, step(0, 0, 100), launch(9, 1), kernel(NCCL, 10, 20 + rank, 1), **config)

    assert cli.main([bare(rank) for rank in range(4)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "no collective could be matched, so which rank waits for which is unknown" in told
    assert told.count("unknown unknown") == 4  # waiting and transfer of each
    assert "NCCL AllReduce in group unknown, ProfilerStep#0: the traces do not say which ranks take part: rank 0 has 1" in told


def test_traces_that_tell_of_no_groups_are_matched_by_name_and_order_if_the_ends_agree(tmp_path, capsys):
    """As torch before 2.2 wrote them: the last rank comes 40 late to each of two collectives, and all end together."""

    def old(rank, late_us=40.0, name="a"):
        late = late_us * (rank == 2)
        events = [
            step(0, 0, 400),
            launch(9, 1),
            kernel(NCCL, 10 + late, 90 - late, 1),
            launch(149, 2),
            kernel(NCCL, 150 + late, 90 - late, 2),
        ]
        return write(tmp_path, rank, *events, name=f"{name}_rank{rank}.json", distributedInfo={"rank": rank, "world_size": 3})

    job = facts_of(*(old(rank) for rank in range(3)))
    assert (job.matched, job.unmatched, job.by_order, job.ends_fit) == (2, 0, True, True)
    assert job.late.rank == 2
    assert cli.main([old(rank) for rank in range(3)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the traces do not say which ranks take part in a collective: they are matched by name and order" in told
    assert "the ends of 2 matched collectives align the clocks; they remain 0.0 µs apart" in told


@pytest.mark.parametrize("numbered", [True, False])
def test_an_all_to_all_of_uneven_sizes_is_one_collective(tmp_path, numbered):
    more = {"Seq": 7} if numbered else {}
    job = facts_of(
        *(write(tmp_path, rank, step(0, 0, 100), *collective(1, 10, 50, "all_to_allv", 100 + rank, **more)) for rank in range(3))
    )
    assert [(row.name, row.count, row.bytes) for row in job.collectives] == [("all_to_allv", 1, 204)] and job.unmatched == 0


def test_several_all_to_alls_of_uneven_sizes_are_matched_in_their_order(tmp_path):
    """Each rank sends another size each time: of an expert's tokens there and back, say."""
    ranks = [
        [*collective(1, 10, 50, "all_to_allv", 100 + rank), *collective(2, 100, 50 - rank, "all_to_allv", 300 - 100 * rank)]
        for rank in range(3)
    ]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 500), *events) for rank, events in enumerate(ranks)))
    assert (job.matched, job.unmatched, job.left_out) == (2, 0, ())
    assert [(row.count, row.bytes, row.transfer_us, row.skew_us) for row in job.collectives] == [(2, None, 49, 1)]


def test_each_size_has_its_own_bandwidth(tmp_path):
    """2 GB in 20 ms and 2 kB in 10 µs: 4/3 of them on the bus of three ranks. With numbers, and an all-to-all a step."""
    large, small = 10**9, 1000
    numbered = [*collective(1, 10, 20_000, elements=large, Seq=1), *collective(2, 30_000, 10, elements=small, Seq=2)]
    a_step = [
        step(0, 0, 25_000), *collective(1, 10, 20_000, "all_to_all", elements=large),
        step(1, 25_000, 10_000), *collective(2, 30_000, 10, "all_to_all", elements=small),
    ]  # fmt: skip
    for events, factor in ((numbered, 4 / 3), (a_step, 2 / 3)):
        job = facts_of(*(write(tmp_path, rank, *events) for rank in range(3)))
        rates = [(row.bytes, row.transfer_us, row.bus_gb_per_s) for row in job.collectives]
        assert rates == [
            (2 * large, 20_000, pytest.approx(100 * factor)),
            (2 * small, 10, pytest.approx(0.2 * factor)),
        ]


def test_a_rank_that_recorded_another_step_before_is_compared_from_the_same_step_on(tmp_path):
    common = [step(1, 1000, 1000), *compute(11, 1010, 90), *collective(12, 1100, 310, ranks=(0, 1))]
    late = [step(0, 0, 1000), *compute(1, 10, 900), step(1, 1000, 1000), *compute(11, 1310, 90, launched=1309),
            *collective(12, 1400, 10, ranks=(0, 1))]  # fmt: skip
    job = facts_of(*(write(tmp_path, rank, *events, **header(rank, 2)) for rank, events in enumerate((common, late))))
    assert (job.straggler.rank, job.straggler.cause) == (1, "cpu")


@pytest.mark.parametrize(
    "said",
    [
        {"Seq": 2**63}, {"Seq": -1}, {"Process Group Ranks": "[" * 100_000}, {"Process Group Ranks": [[0, 1]]},
        {"Group size": 10**12}, {"Group size": True}, {"Src Rank": "x"}, {"Process Group Ranks": ""},
    ],
)  # fmt: skip
def test_odd_values_end_no_report(tmp_path, capsys, said):
    paths = [write(tmp_path, rank, step(0, 0, 100), *collective(1, 10, 50, **said)) for rank in range(3)]
    assert cli.main([*paths, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["matched"] in (0, 1)


@pytest.mark.parametrize("world", [10**12, True, -1, 0, "3", None])
def test_odd_numbers_of_ranks_are_not_believed(tmp_path, capsys, world):
    paths = [
        write(tmp_path, rank, step(0, 0, 100), *collective(1, 10, 50), distributedInfo={"rank": rank, "world_size": world})
        for rank in range(3)
    ]
    assert cli.main(paths) == 0
    assert "of one job" in (out := capsys.readouterr().out) and "these are not here" not in out


def test_a_rank_is_found_wherever_the_header_stands(tmp_path, capsys):
    for rank in range(2):
        data = document(step(0, 0, 100), *collective(1, 10, 50, ranks=(0, 1)), **header(rank, 2))
        data["distributedInfo"]["nested"] = {"a": {"b": [1]}}
        if rank:
            data["distributedInfo"] = data.pop("distributedInfo")  # behind the events
        (tmp_path / f"{rank}.json").write_text(json.dumps(data))
    (tmp_path / "config.json").write_text('{"dim": 3}')  # no trace, and no reason to read the others one by one
    assert cli.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 ranks of one job: ")
    assert err == f"note: {tmp_path}/config.json: no trace, and left out; name it to read it\n"


def test_two_runs_that_fit_each_other_badly_are_not_one_job(tmp_path, capsys):
    """The same program twice, hours apart: its collectives are as many, and end 60 µs off."""
    ends = [0, 60, -60, 60, -60]
    ranks = [
        [call for n in range(5) for call in collective(n + 1, 100 * n + 200 + rank * ends[n], 20, ranks=(0, 1))]
        for rank in range(2)
    ]
    paths = [write(tmp_path, rank, step(0, 0, 900), *events, baseTimeNanoseconds=rank * 10**13, **header(rank, 2))
             for rank, events in enumerate(ranks)]  # fmt: skip
    assert cli.main(paths) == 2
    assert "were recorded 10000.0 s apart, and their collectives do not fit each other" in capsys.readouterr().err


@pytest.mark.parametrize("base_ns", [(0, 10**10), (10**10, 0)])
def test_a_clock_that_is_far_off_is_said(tmp_path, capsys, base_ns):
    events = step(0, 0, 100), *collective(1, 10, 50, ranks=(0, 1))
    paths = [write(tmp_path, rank, *events, baseTimeNanoseconds=base_ns[rank], **header(rank, 2)) for rank in range(2)]
    assert cli.main(paths) == 0
    assert "the clocks of ranks 0 and 1 are 10.00 s apart: is this one run?" in " ".join(capsys.readouterr().out.split())


def test_the_waiting_of_a_rank_without_a_match_is_unknown(tmp_path, capsys):
    """Its own collective has no partner in the other rank's trace."""
    ranks = [[step(0, 0, 500), *collective(1, 10, 50, ranks=(0, 1))], [step(0, 0, 500), *compute(2, 10, 50)]]
    paths = [write(tmp_path, rank, *events, **header(rank, 2)) for rank, events in enumerate(ranks)]
    assert cli.main([*paths, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["ranks"]
    assert [(rank["communication_us"], rank["waiting_us"], rank["last_to_arrive"]) for rank in told] == [
        (50, None, None),
        (0, 0, 0),
    ]


def test_a_rank_that_is_recorded_later_has_the_same_clock(tmp_path, capsys):
    """Its trace begins 0.2 s after the other one's; the collective ends at the same moment in both."""
    paths = [write(tmp_path, rank, step(0, early, 300_000 - early), *collective(1, 250_000, 50, ranks=(0, 1)),
                   baseTimeNanoseconds=10**10, **header(rank, 2)) for rank, early in enumerate((0, 200_000))]  # fmt: skip
    assert cli.main(paths) == 0
    assert "apart: is this one run?" not in " ".join(capsys.readouterr().out.split())


def test_what_is_left_out_is_no_transfer(tmp_path, capsys):
    ranks = [
        [
            *collective(1, 10, 20, ranks=(0, 1)),
            *collective(2, 100, 500, elements=7, ranks=(0, 1)),
            *([] if rank else collective(3, 700, 100, elements=7, ranks=(0, 1))),
        ]
        for rank in range(2)
    ]
    assert (
        cli.main([write(tmp_path, rank, step(0, 0, 1000), *events, **header(rank, 2)) for rank, events in enumerate(ranks)]) == 0
    )
    assert "3.5% of it is transfer and 0.0% waiting for other ranks, 96% could not be matched " in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.fixture(scope="module")
def cluster():
    """A Dask scheduler with two workers on this machine."""
    distributed = pytest.importorskip("distributed")
    here = {"dashboard_address": None, "host": "127.0.0.1", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **here) as started:
        yield started


@pytest.mark.slow
def test_a_dask_cluster_tells_the_same(tmp_path, capsys, cluster):
    paths = three(tmp_path)
    assert cli.main([*paths, "--json"]) == 0
    here = capsys.readouterr().out
    assert cli.main([*paths, "--json", "--scheduler", cluster.scheduler_address]) == 0
    assert capsys.readouterr().out == here
    # paths that fsspec knows, and a folder of them
    assert cli.main([f"file://{tmp_path}", "--json", "--scheduler", cluster.scheduler_address]) == 0
    assert capsys.readouterr().out == here.replace(str(tmp_path), f"file://{tmp_path}")


def test_a_worker_that_is_killed_changes_nothing(tmp_path, cluster):
    paths = three(tmp_path)
    pipe = tmp_path / "pipe_rank1.json"
    os.mkfifo(pipe)

    def feed():
        end = os.open(pipe, os.O_WRONLY)  # waits for the worker that reads it
        for worker in cluster.workers.values():
            os.kill(worker.pid, signal.SIGKILL)
        os.close(end)
        with contextlib.suppress(OSError):  # raised when the dead reader is gone
            while True:
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        pipe.write_bytes(Path(paths[1]).read_bytes())

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    job, errors = commands.read_job([paths[0], str(pipe), paths[2]], scheduler=cluster.scheduler_address)
    feeding.join(60)
    assert (job.matched, job.straggler.rank, errors) == (3, 2, [])


def test_a_scheduler_that_is_not_there(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    port = free_port()
    monkeypatch.setattr(commands, "CONNECT_S", 1)
    assert cli.main([*three(tmp_path), "--scheduler", f"tcp://127.0.0.1:{port}"]) == 2
    assert capsys.readouterr().err.startswith(f"error: --scheduler tcp://127.0.0.1:{port}: no Dask scheduler answers there")
    assert cli.main([*three(tmp_path), "--scheduler", "no address"]) == 2
    assert capsys.readouterr().err.startswith("error: --scheduler no address: ")


@pytest.mark.parametrize(("late_us", "told"), [(32, True), (28, False)])
def test_waiting_is_told_from_three_hundredths_of_the_time_on(tmp_path, late_us, told):
    fine = [*compute(1, 10, 50), *collective(2, 60, 10 + late_us, ranks=(0, 1))]
    slow = [*compute(1, 10, 50 + late_us), *collective(2, 60 + late_us, 10, ranks=(0, 1))]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 1000), *one, **header(rank, 2)) for rank, one in enumerate((fine, slow))))
    assert (job.straggler is not None) is told


def steps_of_two(folder, *late_us):
    """Return two ranks of which the second computes so much longer in each step of 1000 µs before their collective of 10; the
    first waits. In each step the rank computes 20 besides, while the first rank's collective runs.
    """
    paths = []
    for rank in range(2):
        events = []
        for n, late in enumerate(late_us):
            at, end = 1000 * n, 1000 * n + 120 + late
            began = end - 10 if rank else at + 110
            events += [step(n, at, 999), *compute(100 * n + 1, at + 10, began - at - 10)]
            events += [*collective(100 * n + 2, began, end - began, ranks=(0, 1))]
            events += [launch(at + 60, 100 * n + 3), kernel(GEMM, end - 5, 20, 100 * n + 3, stream=9)]
        paths.append(write(folder, rank, *events, **header(rank, 2)))
    return paths


def test_each_ranks_steps_are_told_with_the_first_apart(tmp_path, capsys):
    """Exposed is what the collective takes but for its last 5; waiting but for nothing of that."""
    paths = steps_of_two(tmp_path, 500, 100, 300, 200)
    first, second = facts_of(*paths).ranks
    assert [tuple(msgspec.structs.astuple(one)) for one in first.by_step] == [
        ("ProfilerStep#0", 999, 120, 505, 500, 374), ("ProfilerStep#1", 1000, 120, 105, 100, 775),
        ("ProfilerStep#2", 1000, 120, 305, 300, 575), ("ProfilerStep#3", 1000, 120, 205, 200, 675),
    ]  # fmt: skip
    assert [(one.compute_us, one.exposed_us, one.waiting_us) for one in second.by_step[:2]] == [(620, 5, 0), (220, 5, 0)]
    assert cli.main([*paths, "--all"]) == 0
    assert capsys.readouterr().out.partition("Steps of the ranks ")[2].partition("\n\n")[0] == (
        """(as recorded; first: the first one, from its start; else the
later ones' median, end to end)
  rank     first     step   compute   exposed  first waiting   waiting
  0     999.0 µs  1.00 ms  120.0 µs  205.0 µs       500.0 µs  200.0 µs
  1     999.0 µs  1.00 ms  320.0 µs    5.0 µs         0.0 µs    0.0 µs"""
    )
    assert cli.main(paths) == 0
    assert "Steps of the ranks" not in capsys.readouterr().out


def test_a_step_of_a_rank_ends_with_the_work_that_it_launched(tmp_path):
    """Where the CPU runs ahead, its own steps say nothing."""
    events = [e for n in range(3) for e in (step(n, 10 * n, 9), launch(10 * n + 1, n), kernel(GEMM, 100 + 200 * n, 200, n))]
    path = write(tmp_path, 0, *events, *collective(9, 30, 5, ranks=(0,)), **header(0, 1))
    assert [(one.period_us, one.compute_us) for one in facts_of(path).ranks[0].by_step] == [(300, 200), (200, 200), (200, 200)]


@pytest.mark.parametrize(
    ("late_us", "in_steps", "said"),
    [((300, 300, 300), 3, ", in 3 of 3 steps: "), ((800, 44, 0), 1, ", in 1 of 3 steps: "), ((600, 100, 101), 1, "1 of 3"),
     ((599, 134, 67), 2, "2 of 3")],
)  # fmt: skip
def test_a_straggler_is_late_in_each_step_or_once(tmp_path, late_us, in_steps, said):
    """A step counts from half of what the rank causes in one on average."""
    job = facts_of(*steps_of_two(tmp_path, *late_us))
    assert (job.straggler.rank, job.straggler.in_steps, job.straggler.of_steps) == (1, in_steps, 3)
    assert said in job_sentence(job)


def blamed(folder, most):
    """Of 100 µs that are waited, rank 1 causes `most`, rank 0 the rest: computed before each of two collectives."""
    one = [
        *collective(1, 60, 10 + most, ranks=(0, 1)),
        *compute(2, 200, 50 + 100 - most),
        *collective(3, 350 - most, 10, ranks=(0, 1)),
    ]
    two = [*compute(1, 10, 50 + most), *collective(2, 60 + most, 10, ranks=(0, 1)), *compute(3, 200, 50),
           *collective(4, 250, 110 - most, ranks=(0, 1))]  # fmt: skip
    return [write(folder, rank, step(0, 0, 400), *item, **header(rank, 2)) for rank, item in enumerate((one, two))]


@pytest.mark.parametrize(("most", "rank"), [(51, 1), (50, 0), (49, 0)])
def test_who_causes_half_of_the_waiting_is_the_late_one(tmp_path, most, rank):
    late = facts_of(*blamed(tmp_path, most)).straggler
    assert (late.rank if late else None) == rank


@pytest.mark.parametrize(("apart_us", "fit"), [(0, True), (100, True), (120, False)])
def test_on_cpus_durations_are_compared_where_the_calls_of_a_collective_end_together(tmp_path, capsys, apart_us, fit):
    """Three collectives, of which rank 1's end later than rank 0's by 0, so much, and twice so much: no clock explains that."""
    for rank in range(2):
        calls = [annotation("gloo:all_reduce", 100 + 200 * n, 100 + rank * n * apart_us) for n in range(3)]
        write(tmp_path, rank, step(0, 0, 1000), op("aten::add", 20, 30), *calls, **header(rank, 2))
    job = facts_of(*(str(tmp_path / f"t_rank{rank}.json") for rank in range(2)))
    assert job.ends_fit is fit
    assert cli.main([str(tmp_path)]) == 0
    assert ("do not show which rank waited for which" in " ".join(capsys.readouterr().out.split())) is not fit


def test_many_ranks_are_read_by_processes(tmp_path, monkeypatch):
    """From 32 MiB of files on, as many as there are files or cores; below it, none."""
    paths, asked = three(tmp_path), []

    def in_processes(paths, steps_from, processes):
        asked.append(processes)
        return iter([])

    monkeypatch.setattr(commands, "_in_processes", in_processes)
    monkeypatch.setattr(commands, "cores", lambda: 2)
    for size, expected in ((10 << 20, []), (11 << 20, [2])):
        monkeypatch.setattr(commands, "size_of", lambda path, size=size: size)
        assert len(list(commands._read_all(paths, None, None, None))) == (0 if expected else 3)
        assert asked == expected


def lanes(figure):
    """Of each lane, from when to when (us) what is drawn in a colour, by its name in the legend."""
    colours = {to_hex(handle.get_facecolor()): handle.get_label() for handle in figure.legends[0].legend_handles}
    found: dict[int, dict[str, list[tuple[float, float]]]] = {}
    for drawn in figure.axes[0].collections:
        for path in drawn.get_paths():
            left, top, right, _ = path.get_extents().extents
            found.setdefault(int(top), {}).setdefault(colours[to_hex(drawn.get_facecolor()[0])], []).append(
                (round(float(left) * 1000, 3), round(float(right) * 1000, 3))
            )
    return found


def test_the_picture_has_a_lane_for_each_rank(tmp_path):
    drawn = lanes(job_picture.draw(facts_of(*three(tmp_path, (0, 5000, 123))), PictureRange()))
    busy = {
        0: ([(10, 60)], [(90, 100), (205, 220), (310, 320)], [(60, 90), (200, 205), (300, 310)]),
        1: ([(10, 60)], [(90, 100), (205, 220), (310, 320)], [(60, 90), (200, 205)]),
        2: ([(10, 90)], [(90, 100), (205, 220)], []),
    }
    for rank, (compute, transfer, waiting) in busy.items():
        assert drawn[rank]["compute"] == compute and drawn[rank]["transfer"] == transfer
        assert drawn[rank].get("waiting for another rank", []) == waiting
    assert drawn[2]["idle"] == [(0, 10), (100, 205), (220, 1000)]


def test_the_picture_of_a_window(tmp_path, capsys):
    job = facts_of(*three(tmp_path))
    drawn = lanes(job_picture.draw(job, PictureRange(us=(70, 210))))
    assert drawn[0]["transfer"] == [(20, 30), (135, 140)] and drawn[0]["waiting for another rank"] == [(0, 20), (130, 135)]
    target = tmp_path / "out.png"
    for flags, message in (
        (("--steps", "4:5"), "no rank has recorded a step from ProfilerStep#4 to #5"),
        (("--us", "2000:3000"), "the window holds nothing"),
    ):
        assert cli.main([str(tmp_path), "--plot", str(target), *flags]) == 2
        assert capsys.readouterr().err == f"error: {message}\n" and not target.exists()
    assert cli.main([str(tmp_path), "--plot", str(target), "--steps", "0"]) == 0
    assert target.read_bytes()[:4] == b"\x89PNG"


def test_the_steps_of_a_picture_end_where_the_clocks_of_all_ranks_say(tmp_path):
    """Rank 1's file begins 5 ms before its first step: its clock is moved, and so is the end of its step."""
    paths = []
    for rank, early in enumerate((0, 5000)):
        work = [one for n in range(2) for one in collective(2 + n, early + 1000 * n + 500, 20, ranks=(0, 1))]
        spans = [step(n, early + 1000 * n, 1000) for n in range(2)]
        before = [op("aten::mm", 0, 10)] if early else []
        paths.append(write(tmp_path, rank, *before, *spans, *work, **header(rank, 2)))
    assert job_picture._window(facts_of(*paths), [0, 1], PictureRange(us=None, steps=(0, 0))) == (0, 1_000_000)


def test_of_more_ranks_than_can_be_drawn_those_that_wait_least(tmp_path):
    everyone = tuple(range(66))
    paths = [
        write(tmp_path, rank, step(0, 0, 400), *collective(1, 60 + rank, 140 - rank, ranks=everyone), **header(rank, 66))
        for rank in everyone
    ]
    axes = job_picture.draw(facts_of(*paths), PictureRange()).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {rank}" for rank in range(2, 66)]
    assert "(64 of 66, those that wait least)" in axes.get_title(loc="left").replace("\n", " ")


def two(folder, *ranks, span=1000):
    """Return the job of two ranks with these events, in one step."""
    return facts_of(*(write(folder, n, step(0, 0, span), *events, **header(n, 2)) for n, events in enumerate(ranks)))


def test_times_are_compared_whatever_the_files_count_from(tmp_path, capsys):
    """Rank 1's file begins 10 s later by its base, and its events 10 s earlier: one time. Nothing else ties the clocks."""
    both = [[step(0, 0, 100), *collective(1, 10, 20, ranks=(0, 1), elements=5 + rank)] for rank in range(2)]
    bases = {"baseTimeNanoseconds": 10**18}, {"baseTimeNanoseconds": 10**18 + 10**10}
    for later in (0, 50):  # us: of a window of 100
        paths = [write(tmp_path, n, *both[n], shift=(10**7, later)[n], **header(n, 2), **bases[n]) for n in range(2)]
        assert cli.main(paths) == 0 and "2 ranks of one job" in capsys.readouterr().out


def test_how_much_of_the_communication_is_hidden(tmp_path, capsys):
    """Of 40 µs, 30 lie under a kernel: 10 µs of 1,000 are exposed."""
    events = [step(0, 0, 1000), *compute(1, 100, 230), *collective(2, 300, 40, ranks=(0, 1))]
    paths = [write(tmp_path, rank, *events, **header(rank, 2)) for rank in range(2)]
    assert cli.main(paths) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "there is no straggler, and exposed communication takes 1.0% of the time (75% of all communication is hidden)" in told


def test_transfer_that_a_kernel_hides_is_not_exposed(tmp_path):
    """Of the first collective's transfer, 40 µs, a kernel hides 30; the second's 10 µs come after 50 µs of waiting."""
    both = {"ranks": (0, 1)}
    job = two(tmp_path, [*compute(1, 100, 230), *collective(2, 300, 40, **both), *collective(3, 400, 60, **both)],
              [*compute(1, 100, 50), *collective(2, 300, 40, **both), *collective(3, 450, 10, **both)])  # fmt: skip
    assert [(rank.exposed_transfer_us, rank.waiting_us) for rank in job.ranks] == [(10 + 10, 50), (40 + 10, 0)]


def test_a_transfer_beside_another_collectives_wait_is_waiting(tmp_path):
    """Two at once, on two streams: 100 to 160, of which rank 0 waits up to 150, and 110 to 130."""
    said = {"Collective name": "allreduce", "In msg nelems": 7, "Out msg nelems": 7, "Group size": 2, "dtype": "BFloat16",
            "Process Group Name": "1", "Process Group Ranks": "[0, 1]"}  # fmt: skip
    other = [launch(109, 3), kernel(NCCL, 110, 20, 3, stream=18, **said)]
    job = two(tmp_path, [*compute(1, 10, 5), *collective(2, 100, 60, ranks=(0, 1)), *other],
              [*compute(1, 10, 5), *collective(2, 150, 10, ranks=(0, 1)), *other])  # fmt: skip
    first = job.ranks[0]
    assert (first.exposed_us, first.exposed_waiting_us, first.exposed_transfer_us) == (60, 50, 10)


def test_in_a_merged_file_a_rank_that_nothing_ties_is_moved_by_its_base(tmp_path):
    """Rank 1's file counts from 10 s later: an event at its 50 µs is at 10 s and 50 µs of rank 0's."""
    bases = {"baseTimeNanoseconds": 10**18}, {"baseTimeNanoseconds": 10**18 + 10**10}
    events = [[step(0, 5, 100), op(f"own{rank}", 50 + rank, 1)] for rank in range(2)]
    paths = [write(tmp_path, rank, *events[rank], **header(rank, 2), **bases[rank]) for rank in range(2)]
    assert cli.main([*paths, "--merge", str(tmp_path / "all.json")]) == 0
    merged = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    at = {event["name"]: event["ts"] for event in merged if event["name"].startswith("own")}
    assert at["own1"] - at["own0"] == 10**7 + 1


@pytest.mark.parametrize(
    ("transfer_us", "skew_us", "kind"),
    [(75, 25, "transfer"), (74, 26, "mixed"), (51, 49, "mixed"), (50, 50, "arrival skew"), (0.2, 0.3, "arrival skew")],
)
def test_what_took_the_time_of_a_collective(tmp_path, transfer_us, skew_us, kind):
    job = two(tmp_path, collective(1, 10, transfer_us + skew_us, ranks=(0, 1)),
              collective(1, 10 + skew_us, transfer_us, ranks=(0, 1)))  # fmt: skip
    assert [row.kind for row in job.collectives] == [kind]


@pytest.mark.parametrize(
    ("listed", "said", "ranks"),
    [
        ([0, 1], {}, (0, 1)),
        ("[0, 1]", {}, (0, 1)),
        ("[0, 1, ...]", {}, (0, 1, 2)),  # cut off, and of as many as there are ranks
        ([0, 1.5], {}, (0, 1, 2)),  # no ranks
        ("[0, 1, ...]", {"Group size": 2}, None),  # cut off, and of which two is not said
    ],
)
def test_a_groups_ranks_are_those_of_the_header_where_a_call_has_none(tmp_path, listed, said, ranks):
    config = [{"pg_name": "other", "ranks": [0, 1]}, {"pg_name": "t", "ranks": listed}]
    paths = []
    for rank in range(2):
        call = collective(1, 10, 20, group="t", **{"Process Group Ranks": "", **said})
        info = {"distributedInfo": {"rank": rank, "world_size": 3, "pg_config": config}}
        paths.append(write(tmp_path, rank, step(0, 0, 100), *call, **info))
    job = facts_of(*paths)
    assert [row.ranks for row in job.collectives] == ([ranks] if ranks else [])
    assert [left.reason for left in job.left_out] == ([] if ranks else ["the traces do not say which ranks take part"])


def test_clocks_are_tied_by_sends_where_there_is_nothing_else(tmp_path):
    """Two messages, whose receives end 4 µs and 10 µs after their sends: 7 µs the median, from which both are 3 µs off."""
    sends = [e for n in (1, 2) for e in collective(n, 100 * n, 20, "send", ranks=(0, 1), **{"Dst Rank": 1})]
    receives = [e for n in (1, 2) for e in collective(n, 100 * n, 18 + 6 * n, "recv", ranks=(0, 1), **{"Src Rank": 0})]
    job = two(tmp_path, sends, receives)
    assert (job.offset_ns, job.clock_residual_us) == ((0, -7000), 3)


@pytest.mark.parametrize(("launched", "cause"), [(129, "cpu"), (29, "gap")])
def test_the_longest_of_several_gaps_tells_what_kept_the_late_rank(tmp_path, launched, cause):
    """Rank 1's device is idle three times before the collective; the second time is the longest."""
    fine = [*compute(1, 10, 20), *collective(2, 30, 180, ranks=(0, 1))]
    slow = [*compute(1, 20, 10, launched=1), *compute(2, 130, 10, launched=launched), *compute(3, 170, 10, launched=131),
            *collective(4, 200, 10, ranks=(0, 1), launched=132)]  # fmt: skip
    job = two(tmp_path, fine, slow)
    assert (job.straggler.rank, job.straggler.cause) == (1, cause)


@pytest.mark.parametrize(("others", "once"), [(1, "ProfilerStep#3"), (20, "")])
def test_one_collective_that_makes_most_of_the_waiting_is_said(tmp_path, others, once):
    """Of ten collectives, one a step, the fourth makes rank 0 wait 100 µs, each of the other nine less."""
    ranks = [[step(9, -200, 200)], []]  # rank 0 recorded a step more
    for n in range(10):
        wait = 100 if n == 3 else others
        ranks[0] += [step(n, 200 * n, 200), *collective(n + 1, 200 * n + 10, 150, ranks=(0, 1))]
        ranks[1] += [step(n, 200 * n, 200), *collective(n + 1, 200 * n + 10 + wait, 150 - wait, ranks=(0, 1))]
    paths = [write(tmp_path, rank, *events, **header(rank, 2)) for rank, events in enumerate(ranks)]
    late = facts_of(*paths).straggler
    assert (late.rank, late.last, late.of, late.caused_us, late.once) == (1, 10, 10, 100 + 9 * others, once)


@pytest.mark.parametrize(("steps", "once"), [(True, "ProfilerStep#0"), (False, "step 0")])
def test_where_one_collective_lies_that_makes_most_of_the_waiting(tmp_path, steps, once):
    """The first of ten, in the first step or in none."""
    ranks: list[list[dict[str, Any]]] = [[], []]
    for n in range(10):
        wait = 1 if n else 50
        ranks[0] += collective(n + 1, 100 * n + 10, 60, ranks=(0, 1))
        ranks[1] += collective(n + 1, 100 * n + 10 + wait, 60 - wait, ranks=(0, 1))
    paths = [
        write(tmp_path, rank, *([step(0, 0, 1000)] if steps else []), *events, **header(rank, 2))
        for rank, events in enumerate(ranks)
    ]
    assert facts_of(*paths).straggler.once == once


def test_clocks_are_tied_by_collectives_where_there_are_some(tmp_path):
    """A message whose receive ends 40 µs after its send moves no clock."""
    both = {"ranks": (0, 1)}
    send = collective(1, 10, 20, "send", **both, **{"Dst Rank": 1})
    receive = collective(1, 10, 60, "recv", **both, **{"Src Rank": 0})
    job = two(tmp_path, [*send, *collective(2, 100, 20, **both)], [*receive, *collective(2, 105, 15, **both)])
    assert (job.matched, job.offset_ns, job.clock_residual_us) == (2, (0, 0), 0)


@pytest.mark.parametrize(("computes_us", "cause"), [(60, "compute"), (40, "unknown")])
def test_what_explains_less_than_half_is_not_called_the_cause(tmp_path, computes_us, cause):
    """Rank 1 comes 100 µs late: it computes longer, and copies the rest of the time, which no cause is known for."""
    fine = [*compute(1, 10, 20), *collective(2, 30, 110, ranks=(0, 1))]
    slow = [*compute(1, 10, 20 + computes_us), launch(11, 3), memcpy(30 + computes_us, 100 - computes_us, 3),
            *collective(2, 130, 10, ranks=(0, 1))]  # fmt: skip
    assert two(tmp_path, fine, slow).straggler.cause == cause


def test_what_was_before_a_collective_that_all_came_to_is_no_cause(tmp_path):
    """Both launch the first kernel late, and come to the first collective together but for 5 µs; then rank 1 waits for input."""
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 620, 100)
    fine = [*compute(1, 500, 10), *collective(2, 510, 100, ranks=(0, 1)), *collective(3, 620, 110, ranks=(0, 1))]
    slow = [*compute(1, 505, 10), *collective(2, 515, 95, ranks=(0, 1)), loader, *collective(3, 720, 10, ranks=(0, 1))]
    job = two(tmp_path, fine, slow)
    assert (job.straggler.rank, job.straggler.last, job.straggler.cause) == (1, 2, "input")


def test_without_steps_all_collectives_count(tmp_path):
    paths = [write(tmp_path, rank, *collective(1, 10 + rank, 20 - rank, ranks=(0, 1)), **header(rank, 2)) for rank in range(2)]
    job = facts_of(*paths)
    assert (job.matched, [rank.communication_us for rank in job.ranks]) == (1, [20, 19])


def test_equal_sizes_of_other_types_are_other_kinds(tmp_path):
    """2,000 bytes twice, in the other order on rank 1."""
    calls: list[dict[str, Any]] = [{"elements": 1000}, {"elements": 500, "dtype": "Float"}]
    ranks = [
        [e for n, said in enumerate(order) for e in collective(n + 1, 10 + 50 * n, 20 + 10 * rank, ranks=(0, 1), **said)]
        for rank, order in enumerate((calls, calls[::-1]))
    ]
    assert [(row.count, row.bytes) for row in two(tmp_path, *ranks).collectives] == [(1, 2000), (1, 2000)]


def test_what_was_waited_for_before_the_group_met_again_is_over(tmp_path):
    """Rank 0 holds up rank 1, then rank 1 rank 0; that rank 1 afterwards holds up rank 2 is its own doing: it computes."""
    t, d = {"group": "t", "ranks": (0, 1)}, {"group": "d", "ranks": (1, 2)}
    ranks = [
        [*compute(1, 10, 100), *collective(2, 110, 10, **t), *collective(3, 130, 15, **t)],
        [*collective(2, 10, 110, **t), *collective(3, 135, 10, **t), *compute(4, 145, 300), *collective(5, 445, 10, **d)],
        [*collective(5, 145, 310, **d)],
    ]
    job = facts_of(*(write(tmp_path, rank, step(0, 0, 1000), *events) for rank, events in enumerate(ranks)))
    assert (job.straggler.rank, job.straggler.caused_us, job.straggler.cause) == (1, 305, "compute")


def test_a_scheduler_that_is_silent_is_given_up(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(commands, "CONNECT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert cli.main([*three(tmp_path), "--scheduler", address]) == 2
    assert capsys.readouterr().err == f"error: --scheduler {address}: no Dask scheduler answers there (silent for 2 s)\n"


def test_a_scheduler_without_workers_says_so(tmp_path, capsys, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(commands, "CONNECT_S", 1)
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert cli.main([*three(tmp_path), "--scheduler", address]) == 2
    assert capsys.readouterr().err == f"error: --scheduler {address}: it has 0 workers, after 1 s, too; start one\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_who_started_them(tmp_path, number):
    """A pipe as the ranks' file keeps the workers reading."""
    pipes = [tmp_path / f"t_rank{rank}.json" for rank in range(2)]
    for pipe in pipes:
        os.mkfifo(pipe)
    code = f"from trace_reader.commands.read_job import read_job\nread_job({list(map(str, pipes))!r}, processes=2)"
    process = subprocess.Popen([sys.executable, "-c", code])
    held = [pipe.open("w") for pipe in pipes]  # each waits until a worker reads at the other end
    process.send_signal(number)
    process.wait(30)
    deadline = time.monotonic() + 20
    for file in held:
        while True:  # a pipe that nobody reads any more breaks
            try:
                file.write("x")
                file.flush()
            except BrokenPipeError:
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
    for file in held:
        with contextlib.suppress(BrokenPipeError):
            file.close()


def small_job(folder, late_us, ranks=2, steps=1):
    """Return a job whose rank 1 is late by so much in each step of 1,000 µs."""
    folder.mkdir(parents=True)
    for rank in range(ranks):
        wait_us = late_us if rank != 1 else 0
        events = [e for n in range(steps) for e in (step(n, 1000 * n, 1000),
                  *collective(2 + n, 1000 * n + 500 - wait_us, 20 + wait_us, ranks=tuple(range(ranks))))]  # fmt: skip
        write(folder, rank, *events, **header(rank, ranks))
    return folder


def test_a_late_rank_that_costs_little_is_named_and_called_small(tmp_path, capsys):
    assert cli.main([str(small_job(tmp_path / "a", 20))]) == 0
    told = capsys.readouterr().out
    assert "there is no straggler that costs much, and" in told
    assert "\nrank 1 causes 100% of the waiting, which costs 2.0% of rank 0's time: small\n" in told


def test_a_folder_with_several_jobs_lists_them_with_their_commands(tmp_path, capsys, monkeypatch):
    """Each command, run by a shell, reads the job; of a folder with nothing but one job it names the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some jobs").mkdir()
    a, b = small_job(Path("some jobs/a"), 20), small_job(Path("some jobs/deep/b"), 20)
    for rank in range(2):
        (a / f"other_rank{rank}.json").write_bytes((a / f"t_rank{rank}.json").read_bytes())
    (a / "alone.json").write_bytes(Path(three(tmp_path)[0]).read_bytes())
    (a / "spread.json").write_text('{"spread": [1, 2]}')
    assert cli.main([str(a)]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "2 jobs and 1 trace of no job\n\nRead one job\n  read-trace 'some jobs/a/other_rank'*.json  # 2 ranks\n"
        "  read-trace 'some jobs/a/t_rank'*.json  # 2 ranks\n\nCompare two\n  read-trace 'some jobs/a/other_rank'*.json 'some "
        "jobs/a/t_rank'*.json\n\nOf no job\n  read-trace 'some jobs/a/alone.json'\n"
    )
    assert said.err == "note: some jobs/a/spread.json: no trace, and left out; name it to read it\n"
    (command,) = re.findall(r"read-trace (.*t_rank.*)  #", said.out)
    listed = subprocess.run(["sh", "-c", f"ls {command}"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert listed == ["some jobs/a/t_rank0.json", "some jobs/a/t_rank1.json"]
    assert cli.main([*map(str, sorted(a.glob("*_rank*"))), str(b / "t_rank0.json"), str(b / "t_rank1.json")]) == 0
    assert capsys.readouterr().out.startswith(
        "3 jobs\n\nRead one job\n  read-trace 'some jobs/a/other_rank'*.json  # 2 ranks\n"
        "  read-trace 'some jobs/a/t_rank'*.json  # 2 ranks\n  read-trace 'some jobs/deep/b'  # 2 ranks\n\nCompare two\n"
    )
    assert cli.main(["some jobs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(job["argument"], len(job["traces"])) for job in told["jobs"]] == [
        ("'some jobs/a/other_rank'*.json", 2), ("'some jobs/a/t_rank'*.json", 2), ("'some jobs/deep/b'", 2)
    ]  # fmt: skip
    assert told["others"] == []


def test_a_job_beside_another_trace_is_listed_and_two_jobs_that_are_named_are_compared(tmp_path, capsys):
    a, b = small_job(tmp_path / "in" / "a", 20), small_job(tmp_path / "in" / "b", 20)
    assert cli.main([str(tmp_path / "in")]) == 0
    assert capsys.readouterr().out.startswith("2 jobs\n")
    assert cli.main([str(a), str(b)]) == 0
    assert capsys.readouterr().out.startswith("A: 2 ranks, ")
    (a / "alone.json").write_bytes((a / "t_rank0.json").read_bytes().replace(b'"distributedInfo"', b'"nothing"'))
    assert cli.main([str(a)]) == 0
    assert capsys.readouterr().out.startswith("1 job and 1 trace of no job\n")
    # The folder is not the job's alone: naming it would list again.
    assert cli.main([str(tmp_path / "in")]) == 0
    assert f"\n  read-trace {a}/t_rank*.json  # 2 ranks\n  read-trace {b}  # 2 ranks\n" in capsys.readouterr().out
    assert cli.main(["runs", str(tmp_path / "in")]) == 0
    assert capsys.readouterr().out.startswith("2 runs\n")  # of folders of jobs what lies in jobs


@pytest.mark.parametrize("option", [["--html", "x.html"], ["--merge", "x.json"], ["--what_if", "graph"]])
def test_what_is_of_one_job_names_those_of_a_folder(tmp_path, capsys, option):
    a = small_job(tmp_path / "a", 20)
    for rank in range(2):
        (a / f"other_rank{rank}.json").write_bytes((a / f"t_rank{rank}.json").read_bytes())
    assert cli.main([str(a), *option]) == 2
    listed = f"  {a}/other_rank*.json (2 ranks)\n  {a}/t_rank*.json (2 ranks)\n"
    assert capsys.readouterr().err == f"error: {a}: a folder with 2 jobs; name the traces of one:\n{listed}"
    assert cli.main([str(tmp_path), *option]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: a folder of folders with jobs; name the traces of one:\n{listed}"


def test_a_file_that_is_no_trace_hides_no_job_in_a_folder_below(tmp_path, capsys):
    small_job(tmp_path / "a", 20)
    (tmp_path / "config.json").write_text("{}")
    assert cli.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("2 ranks of one job: ")
    (tmp_path / "b").mkdir()
    assert cli.main([str(tmp_path / "b")]) == 2  # nothing in it
    (tmp_path / "b" / "config.json").write_text("{}")
    assert cli.main([str(tmp_path / "b")]) == 2
    assert "config.json: no trace: there is no list traceEvents in it" in capsys.readouterr().err


def test_a_command_for_a_job_reads_no_other(tmp_path, capsys):
    """run_rank*.json would match run_rank0_step10.json, too; and a folder is no job's where a trace of no job lies in it."""
    a = small_job(tmp_path / "a", 20)
    for rank in range(2):
        (a / f"t_rank{rank}_step10.json").write_bytes((a / f"t_rank{rank}.json").read_bytes())
    assert cli.main([str(a)]) == 0
    assert capsys.readouterr().out.startswith(
        f"2 jobs\n\nRead one job\n  read-trace {a}/t_rank0.json {a}/t_rank1.json  # 2 ranks\n"
        f"  read-trace {a}/t_rank*_step10.json  # 2 ranks\n"
    )


def test_a_file_that_is_no_trace_hides_no_job(tmp_path, capsys):
    a = small_job(tmp_path / "a", 20)
    (a / "package.json").write_text('{"name": "x"}')
    assert cli.main([str(a)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 ranks of one job: ") and said.err.endswith(
        "package.json: no trace, and left out; name it to read it\n"
    )
    assert cli.main([str(a / "package.json")]) == 2


def as_tensorboard_names(folder, jobs=2, gap_us=20_000, spread_us=7_000, world=2):
    """Return what torch's handler for TensorBoard writes on two hosts of a job of two ranks, which is recorded so often: no rank
    in a name, the times are of the end. The second rank's process starts late.
    """
    folder.mkdir()
    for job, rank in [(job, rank) for job in range(jobs) for rank in (1, 0)]:
        at_us = 4_000_000 + job * gap_us
        work = [step(0, 0, 1000), *compute(1, 10 + spread_us * rank, 30), *collective(2, 500, 20, ranks=(0, 1))]
        name = f"node{1 - rank}_77.{at_us}000.pt.trace.json"
        first = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": spread_us * rank, "args": {"name": "python"}}
        write(folder, rank, first, *work, shift=at_us, name=name, baseTimeNanoseconds=10**18, **header(rank, world))
    return sorted(map(str, folder.iterdir()))


def test_jobs_whose_traces_names_tell_no_rank_are_told_apart_by_their_start(tmp_path, capsys):
    a, c, b, d = as_tensorboard_names(tmp_path / "runs")  # node0's (rank 1) two and node1's (rank 0) two
    assert cli.main([str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out == (
        f"2 jobs\n\nRead one job\n  read-trace {b} {a}  # 2 ranks\n  read-trace {d} {c}  # 2 ranks\n\n"
        f"Compare two\n  read-trace {b} {a} {d} {c}\n"
    )
    assert cli.main([b, a]) == 0
    assert capsys.readouterr().out.startswith("2 ranks of one job: ")
    assert cli.main([d, c, b, a]) == 0  # in the order of what is named
    told = capsys.readouterr().out
    assert told.startswith("A: 2 ranks, ") and told.index(Path(d).name) < told.index(Path(b).name)
    assert cli.main(["runs", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out.startswith("2 runs\n")
    assert cli.main([str(tmp_path / "runs"), "--merge", str(tmp_path / "all.json")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/runs: a folder with 2 jobs; name the traces of one:\n  {b} {a} (2 ranks)\n  {d} {c} (2 ranks)\n"
    )


def test_traces_that_may_be_of_either_job_are_told_apart_by_nothing(tmp_path, capsys):
    """The second job's first rank starts before the first job's last; or a trace is lacking, or a rank of each."""
    a, c, b, d = as_tensorboard_names(tmp_path / "mixed", gap_us=5_000)
    assert cli.main([a, b, c, d]) == 2
    assert capsys.readouterr().err == f"error: two files are of rank 0: {b} and {d}; name one for each rank of one job\n"
    a, c, b, d = as_tensorboard_names(tmp_path / "of three", world=3)
    assert cli.main([a, b, c, d]) == 2
    assert capsys.readouterr().err == f"error: two files are of rank 0: {b} and {d}; name one for each rank of one job\n"
    a, c, b, d = as_tensorboard_names(tmp_path / "one less")
    assert cli.main([a, b, c]) == 2
    assert capsys.readouterr().err == f"error: two files are of rank 1: {a} and {c}; name one for each rank of one job\n"


def test_two_jobs_of_different_sizes_are_compared_by_their_step(tmp_path, capsys):
    a, b = small_job(tmp_path / "a", 20), small_job(tmp_path / "b", 300, ranks=4, steps=2)
    own_us = step_period_us(load(str(b / "t_rank0.json")))
    assert cli.main([str(a), str(b), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["step_a"]["ranks"], told["step_b"]["ranks"], told["b"]["straggler"]) == (2, 4, 1)
    assert told["step_b"]["step_us"] == own_us  # as a rank's own report has it
    ratio = told["step_a"]["step_us"] / told["step_b"]["step_us"]
    assert told["weak_efficiency"] == pytest.approx(ratio, abs=1e-5)
    assert told["strong_efficiency"] == pytest.approx(ratio / 2, abs=1e-5)
    assert (told["step_a"]["exposed_waiting_us"], told["step_b"]["exposed_waiting_us"]) == (
        10,
        300,
    )  # medians of 20, 0; 3 x 300, 0
    assert cli.main([str(a), str(b)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"where a rank has the same work in both, the scaling efficiency is {100 * ratio:.1f}%" in text


def test_the_first_of_several_steps_is_left_out_where_two_jobs_are_compared(tmp_path, capsys):
    """The first step of the second job pays for its start: 1,000 µs beside 100."""
    for name, first_us in (("a", 100), ("b", 1000)):
        (tmp_path / name).mkdir()
        for rank in range(2):
            starts = [0, *(first_us + 100 * n for n in range(3))]
            steps = [step(n, at, 100 if n else first_us) for n, at in enumerate(starts)]
            work = [one for n, at in enumerate(starts) for one in collective(2 + n, at + 50, 20, ranks=(0, 1))]
            write(tmp_path / name, rank, *steps, *work, **header(rank, 2))
    assert cli.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "a recorded step takes 100.0 µs on 2 ranks, 100.0 µs on 2 ranks (+0%" in told
    assert told.endswith("idle 80.0 µs 80.0 µs +0%")  # of the same steps


def test_a_finding_of_one_rank_alone_stands_on_the_jobs_report(tmp_path, capsys):
    """Rank 1 spends 60 µs between two ops, in which nothing is recorded."""
    for rank in range(2):
        gap = 60 if rank else 5
        events = [op("aten::mm", 0, 10), op("aten::mm", 10 + gap, 180 - gap), *compute(1, 90, 30)]
        write(tmp_path, rank, step(0, 0, 200), *events, *collective(2, 150, 20), **header(rank, 2))
    assert cli.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    title = "Findings of the ranks' own traces (share: of the path of the one that shows\nmost; saves: of the job's step)\n"
    assert title in out
    assert re.search(r"\n  rank 1 alone  python-between-ops  +[0-9.]+%  unknown  1 gap of 40.0 µs or...\n", out)


def test_merged_ranks_have_counters_of_their_queues_and_waits(tmp_path):
    """On rank 0 two kernels are launched at 10 and 12 µs and end at 30 and 50; rank 1 waits 35 µs for rank 2."""
    paths = three(tmp_path, (0, 0, 0))
    events = [launch(10, 91), launch(12, 92), kernel(ADD, 20, 10, 91, stream=9), kernel(ADD, 30, 20, 92, stream=9)]
    write(tmp_path, 0, step(0, 0, 1000), *compute(1, 10, 50), *collective(2, 60, 40), *collective(3, 200, 20),
          *collective(4, 310, 10, group="1", ranks=(0, 1)), *events)  # fmt: skip
    assert cli.main([*paths, "--merge", str(tmp_path / "all.json")]) == 0
    counters = [e for e in json.loads((tmp_path / "all.json").read_text())["traceEvents"] if e["ph"] == "C"]
    depths = [(e["ts"], e["args"]["events"]) for e in counters if e["name"] == "launched and not done, stream 9"]
    assert depths == [(10, 1), (12, 2), (30, 1), (50, 0)]
    waits = [(e["ts"], e["args"]["us"]) for e in counters if e["name"] == "waits for another rank (us)"]
    assert {(60, 30), (90, 0), (200, 5), (205, 0)} <= set(waits)


def test_traces_with_collectives_that_say_no_rank_are_compared_with_a_note(tmp_path, capsys):
    """As dynolog names them: by process. With the rank in its name each is one of a job."""
    for rank, late in enumerate((0, 300)):
        events = []
        for n in range(3):
            events += [step(n, 1000 * n, 900), *compute(20 * n + 1, 1000 * n + 10, 50 + late)]
            events += collective(20 * n + 2, 1000 * n + 60 + late, 310 - late, ranks=(0, 1))
        path = tmp_path / f"libkineto_trace_47{rank}1.json"
        path.write_text(json.dumps(document(*events)))
    paths = sorted(map(str, tmp_path.iterdir()))
    note = "note: these traces hold collectives, and do not say of which ranks they are; name them ..._rank0.json, ..._rank1.json"
    assert cli.main(paths) == 0 and capsys.readouterr().err.startswith(note)
    alone = tmp_path / "alone.json"  # a trace without collectives is no rank
    alone.write_text(json.dumps(document(step(0, 0, 900), *compute(1, 10, 50))))
    assert cli.main([paths[0], str(alone)]) == 0 and not capsys.readouterr().err
    alone.unlink()
    for rank, path in enumerate(paths):
        Path(path).rename(tmp_path / f"dynolog_rank{rank}.json")
    assert cli.main([str(tmp_path)]) == 0
    caught = capsys.readouterr()
    assert "rank 1 is the straggler, in 3 of 3 steps" in caught.out and not caught.err


def test_waiting_for_a_rank_on_the_cpu_is_no_python_and_names_no_command_that_fails(tmp_path, capsys):
    """Rank 0 waits 60 of 100 for rank 1, in a thread of gloo's; --what_if plays GPUs alone."""
    for rank in range(2):
        events = []
        for n in range(3):
            at, began = 100 * n, 100 * n + (30 if rank == 0 else 90)
            events += [step(n, at, 99), op("aten::mm", at + 1, began - at - 2)]
            events += [event("user_annotation", "gloo:all_reduce", began, at + 95 - began, {"pid": 1, "tid": 9})]
        write(tmp_path, rank, *events, **header(rank, 2))
    assert cli.main([str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rank 1 is the straggler" in said and "what it costs" not in said
    assert "is not known: what waits for other ranks is played on GPUs alone, and none was used" in said
    facts = analyze(load(str(tmp_path / "t_rank0.json")))
    assert "python-between-ops" not in [finding.slug for finding in facts.findings]
    assert facts.plain.unknown_because == "its collectives wait for other ranks"


def test_ranks_without_a_gpu_are_on_a_cpu(tmp_path, capsys):
    for rank in (0, 1):
        events = []
        for n in range(3):
            wait = event("user_annotation", "gloo:all_reduce", 1000 * n + 400, 300)
            events += [step(n, 1000 * n, 900), op("aten::mm", 1000 * n + 10, 300), wait]
        of_rank = {"backend": "gloo", "rank": rank, "world_size": 2}
        trace = document(*events, deviceProperties=[], distributedInfo=of_rank)
        (tmp_path / f"job_rank{rank}.json").write_text(json.dumps(trace))
    assert cli.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "device: CPU"
