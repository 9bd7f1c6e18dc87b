"""The ranks of a job played again together: made ranks with times worked out by hand, recorded jobs, and the command."""

from collections import defaultdict
import gzip
import json
import math
from pathlib import Path

import msgspec
import pytest
from reader_helpers import RECORDINGS
from reader_helpers.events import GEMM, annotation, call, document, kernel, op, step
from trace_reader import cli, load
from trace_reader.analysis.jobs.collective_matching import match
from trace_reader.analysis.jobs.job_facts import JobFinding, job_facts
from trace_reader.analysis.jobs.job_replay import JobReplay
from trace_reader.analysis.jobs.job_what_if import job_what_if
from trace_reader.analysis.jobs.rank_summary import RankSummary
from trace_reader.analysis.replay.edits import BANDS, GONE, Edited
from trace_reader.analysis.replay.replay import Replay
from trace_reader.analysis.replay.what_if import Gain, odds, parse_change, share_at
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.commands.read_job import play_job, read_rank
from trace_reader.commands.write_page import page_of_job
from trace_reader.findings.of_jobs import _at_most
from trace_reader.report.document import Style
from trace_reader.report.job_report import found_in, job_report
from trace_reader.write import plain_text

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEVERAL = RECORDINGS / "several_gpus"
JOBS: dict[str, list[Path]] = defaultdict(list)
for path in sorted(SEVERAL.glob("*_rank*.json.gz")):
    JOBS[path.name.partition("_rank")[0]].append(path)


NOT_SHARED = "error: what-if cannot play this job again: its ranks share no collectives that can be matched\n"


def all_reduce(n, ts, dur, ranks):
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": len(ranks),
            "dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": str(list(ranks))}  # fmt: skip
    return kernel(NCCL, ts, dur, n, stream=17, **said)


def job(folder, *late, shifts=(0, 0, 0), steps=3, launch_us=1.0, **plain):
    """Ranks of which each works so long on the CPU before it launches an all-reduce and waits for it; the last to come makes the
    others wait. Then 30 of transfer, 2 until the call returns, and 8 more. `plain`: what the ranks' headers say of their steps.
    """
    ranks, period = range(len(late)), max(late) + 45
    paths = []
    for rank, one in enumerate(late):
        events = []
        for n in range(steps):
            at = n * period + shifts[rank]
            end = at + max(late) + 35
            events += [step(n, at, period - 1), op("aten::mul", at + 1, one - 1 - launch_us)]
            events += [call("cudaLaunchKernel", at + one + 1 - launch_us, launch_us, n + 1)]
            events += [all_reduce(n + 1, at + one + 5, end - at - one - 5, ranks)]
            events += [call("cudaDeviceSynchronize", at + one + 2, end + 2 - at - one - 2, n + 100)]
        config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": len(late), "ranks": list(ranks)}]
        header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(late), "pg_config": config}}
        header |= {key: said[rank] for key, said in plain.items() if said[rank]}
        path = folder / f"t_rank{rank}.json"
        path.write_text(json.dumps(document(*events, **header)))
        paths.append(str(path))
    return paths


def asked(paths, *changes):
    traces = {}

    def kept(path, steps_from):
        traces[path] = load(path)
        return traces[path]

    facts = job_facts([rank for path in paths if isinstance(rank := read_rank(str(path), None, kept), RankSummary)])
    return job_what_if(facts, [traces[summary.trace] for summary in facts.summaries], [parse_change(text) for text in changes])


def test_a_rank_that_comes_like_another_is_waited_for_no_longer(tmp_path):
    """A step takes 20 + 45 then: what rank 0 needs, and the transfer."""
    changed = asked(job(tmp_path, 20, 80), "rank 1 like 0")
    assert (changed.recorded_step_us, changed.changed_high_us, changed.collectives) == (125, 65, 3)
    assert changed.gain_high == pytest.approx(60 / 125)


def test_of_three_ranks_the_next_one_is_waited_for(tmp_path):
    assert asked(job(tmp_path, 20, 80, 50), "rank 1 like 0").changed_high_us == 95
    assert asked(job(tmp_path, 20, 80, 50), "rank 1 like 0", "rank 2 like 0").changed_high_us == 65
    assert asked(job(tmp_path, 20, 80, 50), "rank 0 like 2").changed_high_us == 125


@pytest.mark.parametrize("shifts", [(0, 5000, 0), (0, 0.5, 77777)])
def test_the_clocks_of_the_ranks_make_no_difference(tmp_path, shifts):
    changed = asked(job(tmp_path, 20, 80, 50, shifts=shifts), "rank 1 like 0")
    assert (changed.recorded_step_us, changed.changed_high_us) == (125, 95)


def test_a_change_is_made_on_every_rank_and_the_last_one_decides(tmp_path):
    """Without their ops, both ranks come after 2."""
    changed = asked(job(tmp_path, 20, 80), "drop aten::mul")
    assert (changed.changed_high_us, changed.matched) == (47, ("drop aten::mul: 3 x aten::mul (on 2 of 2 ranks)",))


def test_a_collective_that_takes_half_as_long_saves_half_of_the_transfer_and_no_waiting(tmp_path):
    """30 from the last one's coming to the end."""
    assert asked(job(tmp_path, 20, 80), "scale nccl 0.5").changed_high_us == 110


@pytest.mark.parametrize("name", JOBS)
def test_a_recorded_job_is_played_again_as_it_was(name):
    traces = {}

    def kept(path, steps_from):
        traces[path] = load(path)
        return traces[path]

    facts = job_facts([rank for path in JOBS[name] if isinstance(rank := read_rank(str(path), None, kept), RankSummary)])
    ranks = [traces[summary.trace] for summary in facts.summaries]
    replay = JobReplay([Replay(trace) for trace in ranks], match(facts.summaries)[1], [shift or 0 for shift in facts.offset_ns])
    played = replay.play([Edited(one, one.nodes.after_ns) for one in replay.replays])
    assert replay.collectives > 2 and played == pytest.approx([step_period_us(trace) for trace in ranks], abs=1e-3)


def test_without_its_straggler_a_job_takes_what_it_takes_without_the_fault():
    """Rank 1 sleeps for 30 ms in each step: 39.0 ms. The same job without that takes 25.3 ms (gallery/several_gpus)."""
    changed = asked(JOBS["data_parallel_slow30"], "rank 1 like 0")
    assert changed.recorded_step_us == pytest.approx(38_960, abs=30) and changed.of == "estimated"
    without_us = step_period_us(load(str(JOBS["data_parallel_25mb"][0])))  # its GPUs are busy: with and without the profiler
    assert (changed.changed_low_us, without_us) == (pytest.approx(24_905.7, abs=0.1), pytest.approx(25_290.4, abs=0.1))
    assert without_us < changed.changed_high_us < changed.plain.low_us


def test_the_report_and_the_json(tmp_path, capsys, monkeypatch):
    paths = job(tmp_path, 20, 80)
    monkeypatch.chdir(tmp_path)
    assert cli.main([".", "--what_if", "rank 1 like 0"]) == 0
    assert capsys.readouterr().out == (
        "./t_rank0.json\n./t_rank1.json\n2 ranks, held together by 3 collectives\n\nWhat if: rank 1 like 0\n"
        "  recorded: a step takes 125.0 µs\n  without the profiler: unknown; what follows is computed from the recorded step\n"
        "  changed: 65.0 µs, which saves 48% of the recorded step\n"
    )
    assert cli.main([*paths, "--what_if", "rank 1 like 0", "--json"]) == 0
    unknown = {"step_us": None, "low_us": None, "high_us": None, "recorded_step_us": 125, "how": "unknown", "verdict": None,
               "unknown_because": "what the profiler costs on such a device was not measured"}  # fmt: skip
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1, "traces": paths, "changes": ["rank 1 like 0"], "matched": [], "ranks": [0, 1], "collectives": 3,
        "of": "recorded", "recorded_step_us": 125, "plain": unknown, "changed_low_us": 65, "changed_high_us": 65,
        "gain_low": 0.48, "gain_high": 0.48, "latency_us": None,
    }  # fmt: skip


def test_a_jobs_step_without_the_profiler_is_estimated_by_its_prices(tmp_path, capsys):
    """Of a step, 30 of its annotation and 2 of its op; of the 7 at its end a tenth is left, of the 1 between two steps nothing.
    What is left is the same for a rank that is late and one that is not.
    """
    changed = asked(paths := job(tmp_path, 2000, 8000, launch_us=4.7), "rank 1 like 0")
    middle = 8045 - 30 - 2 - 6.3 - 1
    took = 1 - middle / 8045
    assert (changed.of, changed.plain.step_us) == ("estimated", pytest.approx(middle, abs=0.1))
    assert changed.plain.low_us == pytest.approx(middle * math.exp(-0.05 - 0.65 * took), abs=0.5)
    assert changed.plain.high_us == pytest.approx(min(middle * math.exp(0.12 + 0.45 * took), 8045 * 1.05), abs=0.5)
    assert (changed.gain_low, changed.gain_high) == (pytest.approx(6000 / 8045), pytest.approx(0.755, abs=1e-4))
    assert cli.main([*paths, "--what_if", "rank 1 like 0"]) == 0
    assert capsys.readouterr().out.endswith(
        "  recorded: a step takes 8.04 ms\n  without the profiler: 7.59 ms to 8.45 ms, estimated\n"
        "  changed: 1.86 ms to 2.15 ms, which saves 75% of a step\n"
    )


@pytest.mark.parametrize("lacks_one", [False, True])
def test_a_jobs_step_that_each_rank_measured_is_that_of_the_slowest(tmp_path, lacks_one):
    """At the prices at which the job takes as long, the late rank comes 6000 late, as at any price."""
    told = [{"low": 7900, "median": 7950, "high": 8000}, {"low": 7800, "median": 8000, "high": 8050}]
    if lacks_one:
        told[0] = {}
    changed = asked(job(tmp_path, 2000, 8000, launch_us=4.7, plain_step_us=told), "rank 1 like 0")
    if lacks_one:  # nobody knows whether it was the slowest
        assert changed.of == "estimated"
        return
    assert (changed.of, changed.plain.low_us, changed.plain.step_us, changed.plain.high_us) == ("measured", 7900, 8000, 8050)
    # At higher prices a step is hardly shorter, since it waits: 6000 of some 7800.
    assert (changed.changed_low_us, changed.changed_high_us) == (pytest.approx(1832, abs=1), pytest.approx(2000, abs=1))
    assert pytest.approx(changed.gain_low, abs=1e-3) == 0.75 and changed.gain_high == pytest.approx(0.771, abs=1e-3)


@pytest.mark.parametrize("median", [6000, 9000])
def test_a_measured_step_of_a_job_that_no_price_explains_is_told_and_the_recorded_one_changed(tmp_path, capsys, median):
    told = [{"low": median, "median": median, "high": median}] * 2
    paths = job(tmp_path, 2000, 8000, launch_us=4.7, plain_step_us=told)
    assert cli.main([*paths, "--what_if", "rank 1 like 0"]) == 0
    assert capsys.readouterr().out.endswith(
        f"  without the profiler: {median / 1000:.2f} ms measured, which the replay does not reach; what\n  follows is computed "
        "from the recorded step\n  changed: 2.05 ms, which saves 75% of the recorded step\n"
    )


def test_of_a_job_whose_launches_are_too_short_for_any_cpu_nothing_is_estimated(tmp_path):
    assert asked(job(tmp_path, 20, 80, launch_us=4.7), "rank 1 like 0").of == "estimated"
    changed = asked(job(tmp_path, 20, 80, launch_us=1.9), "rank 1 like 0")
    assert (changed.of, changed.plain.how) == ("recorded", "unknown")


def test_the_report_on_a_job_names_the_command_that_tells_what_its_straggler_costs(tmp_path, capsys):
    """Of three ranks that which waits the longest is the one to be like. Of a single step nothing can be told."""
    assert cli.main(job(tmp_path, 50, 20, 80)) == 0
    assert "\nwhat it costs: --what_if 'rank 2 like 1'\n" in capsys.readouterr().out
    assert cli.main(job(tmp_path, 50, 20, 80, steps=1)) == 0
    said = capsys.readouterr().out
    assert "rank 2 is the straggler" in said and "what it costs" not in said


def test_the_report_on_a_job_says_what_its_straggler_costs_of_a_step_without_the_profiler(tmp_path, capsys):
    """6000 of the 8045 or less that a step takes, as --what_if tells it. The ops of both ranks are one's own work."""
    paths = job(tmp_path, 2000, 8000, launch_us=4.7)
    assert cli.main(paths) == 0
    said = capsys.readouterr().out
    assert (
        "\nwhat it costs: 75% of a step (--what_if 'rank 1 like 0')\n"
        "without the profiler a step takes an estimated 7.59 ms to 8.45 ms, 8.04 ms\n  recorded\n"
    ) in said
    assert cli.main([*paths, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    changed = asked(paths, "rank 1 like 0")
    assert told["late_rank"]["gain"] == {"low": round(changed.gain_low, 6), "high": round(changed.gain_high, 6), "of": "plain"}
    assert told["plain"]["how"] == "estimated" and told["plain"]["low_us"] == round(changed.plain.low_us, 6)


def test_who_is_late_in_the_first_step_alone_costs_a_step_nothing(tmp_path, capsys):
    """What a step takes begins with the end of the first one: rank 1 comes 7980 late there, and then with the other."""
    paths, late = [], 8000
    for rank, first in enumerate((20, late)):
        (tmp_path / str(rank)).mkdir()
        one = job(tmp_path / str(rank), 20, 20, steps=4, launch_us=4.7)[rank]
        data = json.loads(Path(one).read_text())
        for event in data["traceEvents"]:
            if event.get("ts", 0) < 60 and event["name"] == NCCL:
                event["ts"] -= late - first
                event["dur"] += late - first
            elif event.get("ts", 0) < 60 and event["ph"] == "X" and event["name"].startswith("ProfilerStep"):
                event["ts"] -= late
                event["dur"] += late
        Path(one).write_text(json.dumps(data))
        paths.append(one)
    assert cli.main(paths) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "rank 1 causes 100% of the waiting, which takes 97% of rank 0's time, and of a step without the profiler nothing" in said
    )
    assert "straggler" not in said.partition("Ranks (")[0] or "there is no straggler" in said


@pytest.mark.parametrize("name", ["data_parallel_slow30", "data_parallel_slow5"])
def test_a_late_rank_is_judged_by_what_it_costs(name, capsys):
    """Rank 1 sleeps for 30 ms, and for 5 ms, in each step: the queue of its GPU is longer than that."""
    assert cli.main([*map(str, JOBS[name]), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["late_rank"]["rank"] == 1 and told["late_rank"]["cost"] > 0.03
    assert told["straggler"] == (1 if name == "data_parallel_slow30" else None)
    assert (told["late_rank"]["gain"]["low"] > 0.2) is (name == "data_parallel_slow30")


def test_a_ranks_finding_is_told_with_what_it_saves_of_the_jobs_step(capsys):
    """What rank 1 does between its ops makes the other wait; the job's elementwise kernels are on all ranks."""
    assert cli.main([*map(str, JOBS["data_parallel_slow30"]), "--json"]) == 0
    found = {one["slug"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    between = found["python-between-ops"]
    # Without the fault a step took 25.3 ms in place of 39.0, as recorded: 0.35.
    assert between["ranks"] == [1] and between["gain"] == {"low": 0.146977, "high": 0.467023, "of": "plain"}
    assert cli.main([*map(str, JOBS["data_parallel_slow30"])]) == 0
    assert (
        "\nbest change (to what delays rank 1, saves 21% to 33% of a step): Fix what delays\n  this rank"
        in capsys.readouterr().out
    )
    assert cli.main([*map(str, JOBS["data_parallel_25mb"])]) == 0
    assert (
        "\nbest change (unfused-pointwise of all ranks, saves 4% to 15% of a step): Fuse\n  pointwise kernels with "
        "torch.compile, or use a fused op\n"
    ) in capsys.readouterr().out


def test_of_a_job_whose_measured_step_the_replay_does_not_reach_no_gain_is_told(tmp_path, capsys):
    told = [{"low": us, "median": us, "high": us} for us in (5000, 6000)]
    paths = job(tmp_path, 2000, 8000, launch_us=4.7, plain_step_us=told)
    assert cli.main([*paths, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["plain"]["how"], data["plain"]["step_us"], data["late_rank"]["gain"]) == ("measured", 6000, None)
    assert {one["no_gain"] for one in data["findings"]} == {"the replay does not reach the measured step"}
    assert cli.main(paths) == 0
    assert "\na step takes 6.00 ms without the profiler, 8.04 ms recorded\n" in capsys.readouterr().out


def test_the_gpu_of_a_late_rank_is_no_floor_for_a_step_without_it(tmp_path):
    """Rank 1 computes 6000 longer on its GPU: without it, a step takes what rank 0 needs, 1040."""
    paths = []
    for rank, one in enumerate((1000, 7000)):
        events = []
        for n in range(4):
            at, end = 8000 * n, 8000 * n + 7040
            events += [step(n, at, 7990), op("aten::mm", at + 1, 20), call("cudaLaunchKernel", at + 5, 4.7, 3 * n + 1)]
            events += [kernel(GEMM, at + 10, one, 3 * n + 1), call("cudaLaunchKernel", at + 30, 4.7, 3 * n + 2)]
            events += [all_reduce(3 * n + 2, at + 10 + one, end - at - 10 - one, (0, 1))]
            events += [call("cudaDeviceSynchronize", at + 50, end + 2 - at - 50, 3 * n + 3)]
        config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]
        header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2, "pg_config": config}}
        (tmp_path / f"t_rank{rank}.json").write_text(json.dumps(document(*events, **header)))
        paths.append(str(tmp_path / f"t_rank{rank}.json"))
    changed = asked(paths, "rank 1 like 0")
    assert changed.gain_high == pytest.approx(6000 / 8000, abs=0.03)
    assert 1800 < changed.changed_low_us <= changed.changed_high_us < 2200  # 1000 of it until the CPU of rank 0 begins again


def test_a_cut_off_rank_is_named_and_its_job_may_cost_more(tmp_path, capsys):
    paths = job(tmp_path, 2000, 8000, launch_us=4.7, steps=4)
    text = Path(paths[1]).read_text()
    Path(paths[1]).write_text(text[: text.rindex('{"ph"', 0, text.rindex("ProfilerStep#3"))])
    assert cli.main(paths) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rank 1: the file is cut off, and its whole part was read Verdict" in said
    assert "of a step, or more: not all of its collectives are here (--what_if 'rank 1 like 0')" in said


def test_a_measured_step_of_a_job_is_told_with_its_rounds_where_they_are_far_apart(tmp_path, capsys):
    told = [{"low": 4000, "median": 7950, "high": 8100}] * 2
    assert cli.main(job(tmp_path, 2000, 8000, launch_us=4.7, plain_step_us=told)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a step takes 7.95 ms (4.00 ms to 8.10 ms in its rounds) without the profiler, 8.04 ms recorded" in said


def test_a_large_job_is_not_played_for_its_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("trace_reader.commands.read_job.HELD_BYTES", 1000)
    for measured in (False, True):
        told = [{"low": 7900, "median": 7900 + 50 * rank, "high": 8000} if measured else {} for rank in range(2)]
        paths = job(tmp_path, 2000, 8000, launch_us=4.7, plain_step_us=told)
        assert cli.main(paths) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "what it costs: --what_if 'rank 1 like 0'" in said
        unknown = "is not known: a job of more than 1000 B, or 64 ranks, is played again by --what_if alone"
        assert ("a step takes 7.95 ms without the profiler, 8.04 ms recorded" in said) is measured
        assert (unknown in said) is not measured


def test_the_first_change_is_called_the_best_only_where_none_promises_more(tmp_path):
    job, _, _ = play_job(transferring(tmp_path))
    every = ("many-small-kernels", "Fuse.", 0.8), ("small-buckets", "Let larger buckets be reduced.", 0.2)
    found = tuple(JobFinding(slug, (0, 1), "", next, 0.1, Gain(most / 2, most)) for slug, next, most in every)
    bound = JobFinding("gpu-bound", (0, 1), "", "Use faster kernels.", 0.1, Gain(0.8, 0.9))  # a verdict, no change
    for findings, first in ((found, "first change to try"), (found[1:], "best change"), ((bound, found[1]), "best change")):
        told = plain_text.write(job_report(msgspec.structs.replace(job, findings=findings), Style()))
        assert f" {first} (small-buckets of all ranks, saves 10% to 20% of a step): Let larger" in " ".join(told.split())


def test_of_a_job_no_change_is_told_first_that_saves_next_to_nothing(tmp_path):
    job, _, _ = play_job(transferring(tmp_path))
    for most, is_told in ((0.01, False), (0.1, True)):
        findings = (JobFinding("small-buckets", (0, 1), "", "Let larger buckets be reduced.", 0.1, Gain(0, most)),)
        told = plain_text.write(job_report(msgspec.structs.replace(job, findings=findings), Style()))
        assert ("best change (small-buckets" in told) is is_told


@pytest.mark.parametrize(("most", "first"), [(0.3, "best change"), (0.9, "first change to try")])
def test_a_late_rank_is_the_best_change_only_where_no_finding_promises_more(most, first):
    job, _, _ = play_job([str(path) for path in JOBS["data_parallel_slow30"]])
    found = (JobFinding("many-small-kernels", (0, 1), "", "Fuse.", 0.1, Gain(most - 0.2, most)),)
    told = plain_text.write(job_report(msgspec.structs.replace(job, findings=found), Style()))
    assert f" {first} (to what delays rank 1, saves 21% to 33% of a step)" in " ".join(told.split())


@pytest.mark.parametrize(("low", "first"), [(0.3, "to what delays rank 1"), (0.5, "many-small-kernels of all ranks")])
def test_a_late_rank_is_told_first_if_mending_it_saves_a_quarter_of_what_a_change_does(low, first):
    job, _, _ = play_job([str(path) for path in JOBS["data_parallel_slow30"]])
    found = (JobFinding("many-small-kernels", (0, 1), "", "Fuse.", 0.1, Gain(low, low + 0.4)),)
    job = msgspec.structs.replace(job, findings=found, late_gain=Gain(0.1, 0.2))
    assert f" ({first}, saves " in " ".join(plain_text.write(job_report(job, Style())).split())


def test_of_what_is_asked_of_collectives_the_advice_is_printed_once(tmp_path):
    job, _, _ = play_job(transferring(tmp_path))
    every = ("small-buckets", "Let larger buckets be reduced.", 0.2), ("unused-parameters", "Leave it out.", None)
    found = tuple(JobFinding(slug, (0, 1), "", next, 0.1, Gain(most / 2, most) if most else None) for slug, next, most in every)
    told = plain_text.write(job_report(msgspec.structs.replace(job, findings=found), Style()))
    assert "\n\nunused-parameters: Leave it out\n" in told
    assert " ".join(told.split()).count("Let larger buckets be reduced") == 1


def test_places_of_one_rank_say_where_they_are_told(capsys):
    assert cli.main(["places", str(JOBS["tensor_parallel"][0])]) == 2
    assert capsys.readouterr().err.endswith(
        "no places: its collectives wait for other ranks: the report on all of them tells what a step saves\n"
    )


def test_a_job_of_many_ranks_is_not_played_for_its_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("trace_reader.commands.read_job.MOST_HELD", 1)
    assert cli.main(job(tmp_path, 2000, 8000, launch_us=4.7)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a job of more than 512.0 MiB, or 1 ranks, is played again by --what_if alone" in said


def test_a_zipped_job_is_as_large_as_what_it_holds(tmp_path, capsys, monkeypatch):
    """Some 5 kB in all, of which 1 is left when they are zipped: sixteen times that is more than the 10 that would be held."""
    monkeypatch.setattr("trace_reader.commands.read_job.HELD_BYTES", 10_000)
    paths = job(tmp_path, 2000, 8000, launch_us=4.7)
    assert sum(Path(path).stat().st_size for path in paths) < 10_000 and cli.main(paths) == 0
    assert "is played again by --what_if alone" not in capsys.readouterr().out
    zipped = [f"{path}.gz" for path in paths]
    for path, target in zip(paths, zipped, strict=True):
        Path(target).write_bytes(gzip.compress(Path(path).read_bytes()))
    assert 10_000 / 16 < sum(Path(path).stat().st_size for path in zipped) < 10_000 and cli.main(zipped) == 0
    assert "is played again by --what_if alone" in " ".join(capsys.readouterr().out.split())


def test_the_page_of_a_job_offers_its_changes(tmp_path, monkeypatch):
    """The late rank first; then what its ranks' findings name, each choice with what it saves."""
    page = page_of_job(list(map(str, JOBS["data_parallel_slow30"])), Style(), None, None)
    plain, choices = page.changes
    assert [change.name for change in choices.changes] == ["rank 1 like 0", "python-between-ops"]
    assert plain.how == "estimated" and choices.gains[0] == Gain(0, 0) and len(choices.gains) == 4
    late, between, both = choices.gains[1:]
    told = asked(JOBS["data_parallel_slow30"], "rank 1 like 0")
    # The page takes the largest saving of the shortest step, what-if each end with its own: 1.5% further here.
    assert max(plain.low_us * (1 - late.high), choices.busy_us[1] * 0.95) == pytest.approx(24536.72, abs=0.01)
    assert told.changed_low_us == pytest.approx(24905.72, abs=0.01)
    assert 0.2 < late.low < late.high < 0.35 and both.high == pytest.approx(between.high, abs=1e-3)
    assert page_of_job(list(map(str, JOBS["tensor_parallel"])), Style(), None, None).changes is None


def test_parameters_that_are_gathered_twice_are_told_with_what_keeping_them_saved(capsys):
    """Recorded with and without, two runs of each: 26.2 to 28.0 ms, and 24.1 to 24.2."""
    assert cli.main([*map(str, JOBS["sharded"]), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    gain = {one["slug"]: one["gain"] for one in told["findings"]}["gathered-again"]
    assert (round(gain["low"], 3), round(gain["high"], 3)) == (0.018, 0.088)
    assert gain["low"] < 1 - 24.2 / 26.2 <= gain["high"] + 0.03  # as the ledger counts it
    gathers = [one for one in told["communication"] if one["name"] == "allgather" and one["bytes"] > 1e6]
    assert [(one["phase"], one["calls"], one["asked_by"]) for one in gathers] == [
        ("forward", 8, "FSDP::all_gather"), ("backward", 8, "FSDP::all_gather")
    ]  # fmt: skip


def test_a_collective_that_is_gone_holds_no_rank_up(tmp_path):
    """Rank 1 alone: 80 to its launch, and what the step takes besides."""
    changed = asked(job(tmp_path, 20, 80), "drop nccl|cudaLaunch")
    assert changed.changed_high_us == pytest.approx(90, abs=5)


def test_where_a_rank_is_missing_nobody_can_say_who_waits_for_whom(tmp_path, capsys):
    paths = job(tmp_path, 20, 80, 50)[:2]
    assert cli.main([*paths, "--what_if", "rank 1 like 0"]) == 2
    assert capsys.readouterr().err == NOT_SHARED


def test_of_ranks_with_more_steps_than_others_those_that_all_have_are_played(tmp_path):
    for name in ("more", "fewer"):
        (tmp_path / name).mkdir()
    paths = [job(tmp_path / "more", 20, 80, steps=6)[0], job(tmp_path / "fewer", 20, 80, steps=4)[1]]
    assert asked(paths, "rank 1 like 0").changed_high_us == 65


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (["rank 1 like 0", "rank 1 like 2"], "'rank 1 like 2': rank 1 is given twice"),
        (["rank 1 like 0", "rank 0 like 1"], "rank 0, 1 cannot come like another one and be the one that others come like"),
        (["rank 2 like 1", "rank 1 like 0"], "rank 1 cannot come like another one and be the one that others come like"),
    ],
)
def test_ranks_are_not_like_each_other_in_a_chain(tmp_path, changes, error):
    with pytest.raises(LookupError, match=error):
        asked(job(tmp_path, 20, 80, 50), *changes)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("rank 2 like 0", "'rank 2 like 0': the job has no trace of rank 2"),
        ("rank 0 like 7", "'rank 0 like 7': the job has no trace of rank 7"),
        ("drop nothing", "'drop nothing' matches nothing: the trace has no op"),
    ],
)
def test_what_cannot_be_changed_is_said(tmp_path, capsys, change, error):
    assert cli.main([*job(tmp_path, 20, 80), "--what_if", change]) == 2
    assert error in capsys.readouterr().err


def test_one_rank_alone_has_no_other_to_be_like(tmp_path, capsys):
    path = job(tmp_path, 20, 80)[0]
    assert cli.main([path, "--what_if", "rank 1 like 0"]) == 2
    expected = f"error: {path}: 'rank R like S' and 'ranks N' are of a job: name its ranks' traces, or their folder\n"
    assert capsys.readouterr().err == expected


def test_ranks_that_share_nothing_are_not_played(tmp_path, capsys):
    paths = job(tmp_path, 20, 80)
    for path in paths:
        data = json.loads(Path(path).read_text())
        for one in data["traceEvents"]:
            if one["name"] == NCCL:
                one["name"] = GEMM
        Path(path).write_text(json.dumps(data))
    assert cli.main([*paths, "--what_if", "rank 1 like 0"]) == 2
    assert capsys.readouterr().err == NOT_SHARED


@pytest.mark.parametrize("text", ["rank 1 like 1", "rank 1", "rank one like 0", "rank 1 like 0 0"])
def test_a_change_of_ranks_names_two(text):
    with pytest.raises(ValueError, match="expected"):
        parse_change(text)


def test_a_changed_job_is_no_shorter_than_what_its_gpus_still_do():
    """Of the estimate's low end 22% go; its GPUs take 25.8 ms."""
    changed = asked(JOBS["data_parallel_slow30"], "graph")
    assert changed.changed_low_us == pytest.approx(24_896, abs=1) and changed.changed_low_us > 0.95 * 25_828


def transferring(folder, places=("", "", "", ""), computes_us=100, steps=(4, 4), pairs=False):
    """Two ranks, each with so many steps: in each, of 1000, the GPU computes so long, and sends until 900 are over, asked for in
    annotations of these names, and the CPU waits for it. `pairs`: four ranks, of which each sends to two others in turn.
    """
    asks = len(places)
    paths = []
    world = 4 if pairs else 2
    for rank in range(world):
        beside = [rank ^ 1, rank ^ 2] if pairs else [rank ^ 1]
        events = []
        for k in range(steps[rank % 2]):
            at = 1000 * k
            events += [step(k, at, 990), op("aten::mm", at + 1, 20), call("cudaLaunchKernel", at + 5, 5, 1000 * k + 1)]
            events += [kernel(GEMM, at + 12, computes_us, 1000 * k + 1)]
            sends_us = (900 - computes_us) / asks
            for n in range(asks):
                events += [
                    op("c10d::allreduce_", at + 30 + 9 * n, 8),
                    call("cudaLaunchKernel", at + 32 + 9 * n, 5, 1000 * k + 2 + n),
                ]
                events += [annotation(places[n], at + 29.5 + 9 * n, 8.8)] if places[n] else []
                events += [
                    all_reduce(
                        1000 * k + 2 + n,
                        at + 12 + computes_us + sends_us * n,
                        sends_us,
                        tuple(sorted((rank, beside[n % len(beside)]))),
                    )
                ]
            events += [call("cudaDeviceSynchronize", at + 100, 815, 1000 * k + 900)]
        config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": world, "ranks": list(range(world))}]
        header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": config}}
        header["plain_step_us"] = {"median": 1000, "low": 1000, "high": 1000}
        (folder / f"t_rank{rank}.json").write_text(json.dumps(document(*events, **header)))
        paths.append(str(folder / f"t_rank{rank}.json"))
    return paths


def test_communication_is_told_with_what_a_step_saves_without_it_and_with_half(tmp_path, capsys):
    job, _, _ = play_job(transferring(tmp_path))
    (one,) = job.communication
    assert (one.name, one.phase, one.asked_by, one.calls) == ("allreduce", "forward", "", 4)
    for gain, played in ((one.gone, 0.8), (one.half, 0.4), (one.hidden, 0.8)):
        low, high = (share_at(odds(played) + distance) for distance in BANDS[GONE])
        assert (gain.low, gain.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))
    assert cli.main([str(tmp_path)]) == 0
    title = "Communication (of a rank, per step; what the job's step saves without it, in one call) "
    assert title in " ".join(capsys.readouterr().out.split())
    assert cli.main([str(tmp_path), "--all"]) == 0
    all_of = "saves without it, with half of its transfer, with none of it waited for, in one call) "
    assert all_of in " ".join(capsys.readouterr().out.split())


def test_of_several_messages_in_one_call_the_latency_is_gone(tmp_path):
    """Of four of 200 each three take 200 less a small message's time; of one nothing is told."""
    played = {}
    for us in (0.0, 100.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trace_reader.findings.of_jobs.PlayedJob._latency_us", lambda job, us=us: us)
            job, _, _ = play_job(transferring(tmp_path))
            played[us] = share_at(odds(job.communication[0].in_one.high) - BANDS[GONE][1])
    assert played[0.0] == pytest.approx(0, abs=0.02) and played[100.0] == pytest.approx(0.3, abs=0.01)
    job, _, _ = play_job(transferring(tmp_path))  # of 2,000 bytes each: the shortest one's time is its latency
    assert share_at(odds(job.communication[0].in_one.high) - BANDS[GONE][1]) == pytest.approx(0.6, abs=0.01)
    assert _at_most(Gain(0.1, 0.2), Gain(0.05, 0.3)) == Gain(0.05, 0.2)
    (alone,) = play_job(transferring(tmp_path, places=("metrics",)))[0].communication
    assert alone.in_one is None


def test_a_collective_without_an_annotation_is_asked_by_the_op_around_it(tmp_path):
    paths = transferring(tmp_path)
    for path in paths:
        told = json.loads(Path(path).read_text())
        asked = [event for event in told["traceEvents"] if event["name"] == "c10d::allreduce_"]
        node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
        told["traceEvents"] += [{**one, "name": node, "ts": one["ts"] - 0.4, "dur": one["dur"] + 0.6} for one in asked]
        Path(path).write_text(json.dumps(told))
    (one,) = play_job(paths)[0].communication
    assert (one.asked_by, one.calls) == ("AccumulateGrad", 4)


@pytest.mark.parametrize(
    ("waits_us", "steps"),
    [((50.0,), 10), ((100.0, 100.0, 100.0), 10), ((10.0, 100.0, 190.0), 13), ((0.0, 0.0, 300.0), 48), ((0.0, 0.0, 0.0), 10)],
)
def test_how_many_steps_would_tell_chance_from_a_late_rank(tmp_path, waits_us, steps):
    """Of 10, 100 and 190 the deviation is 90: (4 x 90 / 100)^2."""
    job, _, _ = play_job(transferring(tmp_path))
    one = job.waits_longest
    by_step = tuple(msgspec.structs.replace(one.by_step[0], waiting_us=us) for us in waits_us)
    ranks = tuple(msgspec.structs.replace(rank, by_step=by_step) if rank is one else rank for rank in job.ranks)
    assert msgspec.structs.replace(job, ranks=ranks).steps_to_tell == steps


def test_the_layers_of_a_model_are_one_place_and_the_longest_places_are_told(tmp_path, monkeypatch):
    job, _, _ = play_job(transferring(tmp_path, places=("layer_0.norm (a)", "layer_1.norm (b)", "metrics", "metrics")))
    assert sorted((one.asked_by, one.calls) for one in job.communication) == [("layer_*.norm", 2), ("metrics", 2)]
    monkeypatch.setattr("trace_reader.findings.of_jobs.MOST_PLACES", 1)
    job, _, _ = play_job(transferring(tmp_path, places=("few", "many", "many", "many")))
    assert [(one.asked_by, one.calls) for one in job.communication] == [("many", 3)]


def test_what_is_asked_of_collectives_stands_before_generic_advice(tmp_path):
    """Where it may save a twentieth of a step; then as of a single trace, and last what is not known to save anything."""
    job, _, _ = play_job(transferring(tmp_path))
    every = [
        ("many-small-kernels", (0, 1), 0.8), ("small-buckets", (0, 1), 0.2), ("unused-parameters", (0, 1), None),
        ("buffers-broadcast", (0, 1), 0.03), ("hotspot", (0, 1), None), ("slow-call", (0,), None), ("whole-sort", (0, 1), 0.5),
    ]  # fmt: skip
    found = tuple(JobFinding(slug, ranks, "", "", 0.9, Gain(most / 2, most) if most else None) for slug, ranks, most in every)
    told = found_in(msgspec.structs.replace(job, findings=found))
    assert [one.slug for one in told] == [
        "small-buckets", "whole-sort", "many-small-kernels", "buffers-broadcast", "unused-parameters", "slow-call"
    ]  # fmt: skip


def what_if(capsys, folder, *changes):
    code = cli.main([str(folder), *(word for change in changes for word in ("--what_if", change))])
    said = capsys.readouterr()
    return code, said.out.partition("What if: ")[2] or said.err


def test_more_ranks_send_by_the_formula_of_a_ring(tmp_path, capsys, monkeypatch):
    """Of 1000, 40 are sent by 2 ranks: by 4, factor(4) / factor(2) = 1.5 times as long, by 64 1.97 times."""
    monkeypatch.setattr("trace_reader.analysis.jobs.more_ranks.SMALL", 0)
    transferring(tmp_path, computes_us=860)
    assert what_if(capsys, tmp_path, "ranks 4") == (
        0,
        "ranks 4\n  ranks 4: 32 x allreduce, as rings of 4\n  recorded: a step takes 1.00 ms\n"
        "  without the profiler: 1.00 ms, measured\n  changed: 1.02 ms, which makes a step 2% longer\n"
        "  a model: each rank does what it does here, and each step of a ring has the\n  recorded rate, and no latency: no "
        "small message tells it\n"
        "  a lower limit: work that did not wait in the recording may have to wait for\n  the longer kernels\n",
    )
    assert "changed: 1.04 ms, which makes a step 4% longer" in what_if(capsys, tmp_path, "ranks 64")[1]


def test_a_small_message_tells_the_latency_of_a_rings_steps(tmp_path, capsys):
    """Each of the four takes 10 for two steps of a ring of 2: by 4, for 6 steps, between 15 and 30."""
    transferring(tmp_path, computes_us=860)
    out = what_if(capsys, tmp_path, "ranks 4")[1]
    assert "changed: 1.02 ms to 1.08 ms, which makes a step 2% to 8% longer" in out
    assert "the\n  recorded rate, and a latency of up to 5.0 µs\n" in out


@pytest.mark.parametrize(
    ("computes_us", "changes", "because"),
    [
        (860, ("ranks 2",), "'ranks 2': the job has 2; expected more"),
        (860, ("ranks 4", "ranks 8"), "expected 'ranks N' once"),
        (840, ("ranks 4",), "'ranks 4': a GPU computes for less than 85% of a step, and what else takes longer among more ranks "
         "no trace tells"),
    ],
)  # fmt: skip
def test_ranks_that_cannot_be_told(tmp_path, capsys, computes_us, changes, because):
    transferring(tmp_path, computes_us=computes_us)
    assert what_if(capsys, tmp_path, *changes) == (2, f"error: {because}\n")


def test_collectives_of_some_ranks_alone_have_no_formula_for_more(tmp_path, capsys):
    """How many would be in such a group then, no trace tells."""
    transferring(tmp_path, computes_us=860, pairs=True)
    because = "error: 'ranks 8': no collective of all 4 ranks has a formula\n"
    assert what_if(capsys, tmp_path, "ranks 8") == (2, because)


def test_of_a_rank_with_more_steps_those_that_are_played_are_changed(tmp_path, capsys):
    transferring(tmp_path, computes_us=860, steps=(6, 4))
    code, out = what_if(capsys, tmp_path, "ranks 4")
    assert (code, out.splitlines()[1]) == (0, "  ranks 4: 32 x allreduce, as rings of 4")


def test_a_change_beside_more_ranks_leaves_the_gpu_its_work(tmp_path, capsys):
    """Half of 860 is gone, and what is left is still done: the floor is that of the changed work."""
    transferring(tmp_path, computes_us=860)
    code, out = what_if(capsys, tmp_path, "scale nvjet 0.5", "ranks 4")
    assert code == 0 and "changed: 590.0 µs to 650.0 µs, which saves 35% to 41% of a step" in out


def test_the_gpu_limits_a_job_by_its_longest_estimate(capsys, monkeypatch):
    """Of the steps that it may take without the profiler, the GPU computes for 86% to 95%."""
    paths = JOBS["sharded"]
    assert cli.main([*map(str, paths), "--what_if", "ranks 8"]) == 0
    monkeypatch.setattr("trace_reader.analysis.jobs.more_ranks.GPU_LIMITS", 0.9)
    assert cli.main([*map(str, paths), "--what_if", "ranks 8"]) == 2
    assert "'ranks 8': a GPU computes for less than 90% of a step" in capsys.readouterr().err
