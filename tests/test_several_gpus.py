"""The lessons under the launcher, on gloo and small: the same numbers as one process, whole artifacts, and how a job ends."""

from collections import Counter
import importlib
import json
import multiprocessing
import os
from pathlib import Path
import re
import subprocess
import sys

from common.cli import LessonError
from common.job import _end
from helpers import ROOT, jobs
from models.blocks import make_blocks, train_step
import pytest
from reader_helpers import free_port
import torch
from trace_reader.analysis.jobs.job_facts import job_facts
from trace_reader.commands.read_job import read_job

LAUNCH = [sys.executable, "-m", "torch.distributed.run"]
ENV = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # gloo, also on a machine with GPUs


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of all jobs of tests/helpers/jobs.py, two processes each, and what rank 0 printed of each."""
    folder = tmp_path_factory.mktemp("jobs")
    done = subprocess.run(
        [*LAUNCH, "--standalone", "--nproc_per_node", "2", ROOT / "tests" / "helpers" / "jobs.py", folder, *jobs.JOBS],
        capture_output=True, text=True, env=ENV, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])


def expected(name):
    """Return the weights and gradients of one process that sees the batch of both, after as many steps."""
    lesson, *_ = jobs.JOBS[name]
    args = importlib.import_module(lesson).parse_args(jobs.flags_of(name, Path()))
    ranks = 1 if lesson == "06_c_tensor_parallel" else 2
    torch.manual_seed(args.seed)
    model = make_blocks(args, "cpu")
    parts = getattr(args, "accumulate", 1)
    shape = (ranks * args.batch, args.seq, args.dim)
    whole = torch.randn((parts, *shape), generator=torch.Generator().manual_seed(args.seed))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(args.wait + args.schedule_warmup + args.active):
        optimizer.zero_grad()
        for number, x in enumerate(whole, start=1):
            train_step(model, optimizer, x, parts=parts, last=number == parts)
    return [tensor for weight in model.parameters() for tensor in (weight.detach(), weight.grad)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in jobs.JOBS if "large" not in name])
def test_weights_and_gradients_are_those_of_one_process_with_the_whole_batch(ran, name):
    found = torch.load(ran[0] / f"{name}.pt")
    for one, whole in zip(found, expected(name), strict=True):
        torch.testing.assert_close(one, whole, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", jobs.JOBS)
def test_each_rank_leaves_a_trace_and_a_table_and_the_job_its_verdict(ran, name):
    folder, printed = ran
    files = sorted(path.name for path in (folder / name).iterdir())
    tag = files[0].partition("_w2_rank0")[0]
    assert files == [f"{tag}_w2_rank{rank}.{kind}" for rank in range(2) for kind in ("json", "txt")]
    assert len(re.findall(r"^job: 2 processes, gloo; this is rank 0$", printed[name], re.MULTILINE)) == 1
    assert len(re.findall(r"^device: ", printed[name], re.MULTILINE)) == 1  # of rank 0 alone
    assert (
        f"\nnext: uv run read_trace.py {folder / name}/{tag}_w2_rank*.json\nthe same with --merge job.json.gz: " in printed[name]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("a", "1 x all_reduce"),  # 66 kB of gradients: one bucket
        ("a_parts", "1 x all_reduce"), ("a_view", "1 x all_reduce"),  # of two passes, the first sends nothing
        ("a_each", "2 x all_reduce"),
        ("a_large", "3 x all_reduce"), ("a_large_25", "1 x all_reduce"),
        ("b", "4 x all_gather, 2 x all_reduce"), ("b_kept", "2 x all_gather, 2 x all_reduce"),  # gloo scatters by reducing all
        ("c", "4 x all_reduce"),
    ],
)  # fmt: skip
def test_how_many_collectives_a_step_makes(ran, name, counts):
    found = re.search(r"^collectives per step: (.*)$", ran[1][name], re.MULTILINE)
    assert found is not None
    made = found[1]
    if name.startswith("a"):  # the recorded step is the first after the buckets were rebuilt, which rank 0 tells the others
        made = made.removeprefix("2 x broadcast, ")
    assert made == counts


@pytest.mark.slow
def test_a_guess_is_of_all_collectives_of_a_step(ran):
    assert "\nguess: 6 collectives per step. Correct.\n" in ran[1]["b"]


def ops_of(folder, name):
    """Return the events of rank 0's trace, by name."""
    (trace,) = (folder / name).glob("*_rank0.json")
    return Counter(event["name"] for event in json.loads(trace.read_text())["traceEvents"])


@pytest.mark.slow
def test_gradients_that_are_views_of_their_bucket_are_not_copied(ran):
    apart, views = (ops_of(ran[0], name)["aten::copy_"] for name in ("a_parts", "a_view"))
    assert apart > views


@pytest.mark.slow
def test_blocks_are_compiled_where_that_is_asked_for(tmp_path):
    helper = ROOT / "tests" / "helpers" / "jobs.py"
    command = [*LAUNCH, "--standalone", "--nproc_per_node", "2", helper, tmp_path, *jobs.COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=500)
    assert done.returncode == 0, done.stderr
    for name in jobs.COMPILED:
        assert any(one.startswith("Torch-Compiled Region") for one in ops_of(tmp_path, name)), name


@pytest.mark.slow
def test_the_rank_that_sleeps_is_found(ran):
    folder, printed = ran
    facts, errors = read_job(sorted(map(str, (folder / "a_slow").glob("*.json"))))
    assert facts.straggler is not None
    assert (errors, facts.straggler.rank, facts.straggler.cause) == ([], 1, "cpu")
    start_ns, end_ns = facts.summaries[0].window_ns
    assert 200e3 < facts.straggler.caused_us < (end_ns - start_ns) / 1000  # 4 times 100 ms; on busy cores rank 0 is late as well
    assert re.search(r"\njob: rank 1 is the straggler(, in \d of \d steps)?: it arrives last in ", printed["a_slow"])
    assert "\n  its CPU is late before forward; rank 1 runs the same 67 outermost ops as rank 0, and takes " in printed["a_slow"]
    assert "\nguess: 1 collectives per step. Correct.\n" in printed["a_slow"]


@pytest.mark.slow
def test_gradients_that_each_pass_sends_are_found(ran):
    jobs_of = [read_job(sorted(map(str, (ran[0] / name).glob("*.json"))))[0] for name in ("a_each", "a_parts")]
    each, once = ([one for one in job.findings if one.slug == "reduced-in-each-pass"] for job in jobs_of)
    assert [(one.ranks, one.seen) for one in each] == [
        (
            (0, 1),
            "2 backward passes per step, each of which reduces gradients: 2 collectives, where 1 would do",
        )
    ]
    assert once == []


@pytest.mark.slow
def test_the_ranks_in_any_order_are_one_job(ran):
    paths = sorted(map(str, (ran[0] / "b").glob("*.json")))
    facts = [read_job(order)[0] for order in (paths, paths[::-1])]
    assert facts[0].ranks == facts[1].ranks and facts[0].collectives == facts[1].collectives
    assert job_facts(facts[0].summaries).ranks == facts[0].ranks


def test_without_the_launcher_a_lesson_says_its_command(lesson):
    run = lesson("06_b_sharded.py")
    assert (run.code, run.out, run.err, run.files) == (
        2, "", "error: this lesson runs in several processes: uv run torchrun --standalone --nproc_per_node 2 06_b_sharded.py\n",
        [],
    )  # fmt: skip


@pytest.mark.slow
def test_a_rank_that_dies_ends_all_and_its_error_is_said(tmp_path):
    """Rank 1 cannot write its trace, whose name leads into another file system; rank 0 has written its own, or none of it."""
    flags = jobs.flags_of("a", tmp_path)
    (tmp_path / "a").mkdir()
    tag = importlib.import_module("06_a_data_parallel").parse_args(flags).run.tag
    (tmp_path / "a" / f"{tag}_w2_rank1.json").symlink_to("/proc/self/comm")
    done = subprocess.run(
        [*LAUNCH, "--standalone", "--nproc_per_node", "2", ROOT / "06_a_data_parallel.py", *flags],
        capture_output=True, text=True, env=ENV, timeout=120,
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "rank "))]
    assert done.returncode == 1
    first, *later = errors
    assert first == f"error: rank 1: cannot write to {tmp_path / 'a'}: Invalid cross-device link; earlier artifacts are kept"
    gone = ["rank 0: another rank may have ended, whose error is then the one to read", "rank 0:"]
    assert later in ([], gone)  # on a busy machine the launcher comes late
    written = tmp_path / "a" / f"{tag}_w2_rank0.json"  # the launcher may end rank 0 before it has come to its files
    assert not written.exists() or json.loads(written.read_text())["distributedInfo"]["rank"] == 0


@pytest.mark.slow
def test_two_launchers_are_two_nodes(tmp_path):
    flags = jobs.flags_of("b", tmp_path)
    (tmp_path / "b").mkdir()
    port = free_port()
    node = [*LAUNCH, "--nnodes", "2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_id", "test",
            "--rdzv_endpoint", f"127.0.0.1:{port}", str(ROOT / "06_b_sharded.py"), *flags]  # fmt: skip
    nodes = [subprocess.Popen(node, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) for _ in range(2)]
    out = "".join(node.communicate(timeout=120)[0] for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0]
    assert len(list((tmp_path / "b").glob("*_w2_rank*.json"))) == 2
    assert out.count("\njob: ") == 2 and "\ncollectives per step: 4 x all_gather, 2 x all_reduce\n" in out


def test_a_mistake_in_the_call_ends_a_rank_as_it_ends_a_lesson():
    rank = multiprocessing.get_context("fork").Process(target=_end, args=(LessonError("no such thing", exit_code=2), 1))
    rank.start()
    rank.join()
    assert rank.exitcode == 2


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--slow_host", "--slow_host changes nothing without --slow_rank: add --slow_rank 1"),
        ("--reduce_each_pass", "--reduce_each_pass changes nothing of one pass: add --accumulate 2"),
    ],
)
def test_a_flag_that_changes_nothing_is_refused(lesson, flag, said):
    ran = lesson("06_a_data_parallel.py", flag)
    assert ran.code == 2 and ran.err.startswith(f"error: {said}\n")
