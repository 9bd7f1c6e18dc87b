"""Traces side by side: what is the same, what changed, in which direction, and what a table of several says."""

import json

import msgspec
import pytest
from reader_helpers.events import (
    ADD,
    GEMM,
    annotation,
    call,
    document,
    event,
    kernel,
    launch,
    memcpy,
    memset,
    on,
    op,
    step,
    write,
)
from trace_reader import cli, load, read
from trace_reader.analysis.runs.comparison import compare, rows
from trace_reader.analysis.runs.where_differs import where_differs

EVERY_10_MS = "the step period went from 10.00 ms to 10.00 ms (+0%), "
TRITON = "triton_poi_fused_gelu_mul_0"


def run(tmp_path, name, steps):
    """Return the facts of a trace: for each step its CPU time and the (op, kernel, us) that it launches."""
    events, ts, number = [], 0.0, 0
    for n, (cpu_us, work) in enumerate(steps):
        events.append(step(n, ts, cpu_us))
        for place, (op_name, kernel_name, gpu_us) in enumerate(work):
            number += 1
            at = ts + 1 + 2 * place
            events += [op(op_name, at, 2), launch(at + 0.5, number)]
            lane = ts + cpu_us + 100 * place
            events.append(memset(lane, gpu_us, number) if kernel_name == "memset" else kernel(kernel_name, lane, gpu_us, number))
        ts += 10_000
    return read(write(tmp_path / f"{name}.json", *events))


@pytest.fixture
def eager(tmp_path):
    return run(
        tmp_path,
        "eager",
        [(100, [("aten::mm", GEMM, 50), ("aten::gelu", "gelu", 30), ("aten::mul", "mul", 20), ("aten::zero_", "memset", 1)])] * 3,
    )


@pytest.fixture
def compiled(tmp_path):
    return run(tmp_path, "compiled", [(140, [("aten::mm", GEMM, 60), ("graph", TRITON, 35)])] * 2)


def test_what_is_common_gone_and_new(eager, compiled):
    c = compare(eager, compiled)
    assert [(a.name, a.calls, a.median_us, b.name, b.calls, b.median_us) for a, b in c.common] == [(GEMM, 3, 50, GEMM, 2, 60)]
    assert [k.name for k in c.only_a] == ["gelu", "mul", "Memset (Device)"]
    assert [k.name for k in c.only_b] == [TRITON]
    assert (c.ops_only_a, c.ops_only_b) == (("aten::gelu", "aten::mul", "aten::zero_"), ("graph",))
    assert [(a and a.name, b and b.name) for a, b in c.steps] == [
        ("ProfilerStep#0", "ProfilerStep#0"), ("ProfilerStep#1", "ProfilerStep#1"), ("ProfilerStep#2", None),
    ]  # fmt: skip
    assert "fused-triton" in c.findings_new and "fused-triton" not in c.findings_gone


def test_a_kernel_of_another_name_is_matched_by_what_it_does(tmp_path):
    other, more = GEMM.replace("256x128", "192x128"), "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_TNT"
    a = run(tmp_path, "a", [(100, [("aten::mm", GEMM, 50), ("aten::gelu", "gelu", 30)])] * 2)
    b = run(tmp_path, "b", [(100, [("aten::mm", other, 40), ("aten::gelu", "gelu", 30)])] * 3)
    first, *_ = compare(a, b).changes
    assert (first.a.name, first.b.name, first.matched_by, first.calls) == (GEMM, other, "op", (1, 1))
    assert (first.renamed, first.us, first.difference_us) == ("tile 256x128 -> 192x128", (50, 40), -10)
    # Two that the op launches could be either: none is guessed.
    b = run(tmp_path, "b", [(100, [("aten::mm", other, 40), ("aten::mm", more, 10)])] * 2)
    assert {(c.a and c.a.name, c.b and c.b.name) for c in compare(a, b).changes} == {
        (GEMM, None), ("gelu", None), (None, other), (None, more),
    }  # fmt: skip


def test_gemms_are_matched_by_their_shapes(tmp_path):
    def trace(name, kernels):
        events = [step(0, 0, 100)]
        for n, (kernel_name, k) in enumerate(kernels):
            shapes = {"Input Dims": [[64, k], [k, 32]], "Input type": ["c10::BFloat16"] * 2, "Input Strides": [[k, 1], [32, 1]]}
            events += [op("aten::mm", 10 * n, 5, **shapes), launch(10 * n + 1, n), kernel(kernel_name, 200 + 50 * n, 40, n)]
        return read(write(tmp_path / f"{name}.json", *events))

    names = [GEMM.replace("256x128", tile) for tile in ("256x128", "192x128", "64x8", "128x64")]
    c = compare(trace("a", [(names[0], 128), (names[1], 512)]), trace("b", [(names[2], 512), (names[3], 128)]))
    assert {(change.a.name, change.b.name, change.matched_by) for change in c.changes} == {
        (names[0], names[3], "shape"), (names[1], names[2], "shape"),
    }  # fmt: skip


def test_one_gemm_is_matched_by_its_shape_whichever_op_has_it(tmp_path):
    shapes = {"Input Dims": [[64, 8], [8, 32]]}
    other = "ampere_sgemm_128x64_tn"
    a, b = (
        read(write(tmp_path / f"{n}.json", step(0, 0, 100), op("aten::mm", 10, 9, **shapes), launch(11, 1), launch(13, 3),
                   kernel(name, 200, 40, 1), kernel("split", 300, 5, 3)))
        for n, name in enumerate((GEMM, other))
    )  # fmt: skip
    (change,) = (change for change in compare(a, b).changes if change.difference_us == 0 and change.matched_by != "name")
    assert (change.matched_by, change.a.name, change.b.name) == ("shape", GEMM, other)
    assert change.renamed == (
        "family cuBLAS nvjet -> cuBLAS, architecture sm90 -> sm80, dtype bf16 -> fp32, tile 256x128 -> 128x64, layout NNT -> tn"
    )


def test_the_other_way_round_is_the_opposite(eager, compiled):
    there, back = compare(eager, compiled), compare(compiled, eager)
    assert (back.only_a, back.only_b) == (there.only_b, there.only_a)
    assert (back.ops_only_a, back.ops_only_b) == (there.ops_only_b, there.ops_only_a)
    assert (back.findings_gone, back.findings_new) == (there.findings_new, there.findings_gone)
    assert back.common == tuple((b, a) for a, b in there.common)
    assert [(b, a) for a, b in back.steps] == list(there.steps)


def test_a_trace_against_itself_shows_no_difference(eager):
    c = compare(eager, eager)
    assert c.only_a == c.only_b == c.ops_only_a == c.ops_only_b == c.findings_gone == c.findings_new == ()
    assert c.summary == f"{EVERY_10_MS}the same 1 GEMM call per step, GPU time per step +0%, CPU time per step +0%."


def test_the_sentence(eager, compiled):
    # 101 µs of GPU time per step against 95; 100 µs of CPU time against 140
    assert compare(eager, compiled).summary == EVERY_10_MS + (
        "the same 1 GEMM call per step, gelu and mul became triton gelu+mul, GPU time per step -6%, CPU time per step +40% "
        "(of one recording each)."
    )
    assert compare(compiled, eager).summary == EVERY_10_MS + (
        "the same 1 GEMM call per step, triton gelu+mul became gelu and mul, GPU time per step +6%, CPU time per step -29% "
        "(of one recording each)."
    )


def test_the_sentence_counts_what_is_too_much_to_name(tmp_path):
    few = run(tmp_path, "few", [(10, [("aten::mm", GEMM, 5)])])
    many = run(tmp_path, "many", [(10, [("aten::mm", GEMM, 5), *((f"aten::{n}", n * 4, 9 - k) for k, n in enumerate("abcde"))])])
    assert compare(few, many).summary.startswith("the same 1 GEMM call per step, aaaa, bbbb, cccc and 2 more came, GPU")
    assert compare(many, few).summary.startswith("the same 1 GEMM call per step, aaaa, bbbb, cccc and 2 more went, GPU")


def test_what_another_kernel_does_is_not_said_to_have_become_it(tmp_path):
    one = run(tmp_path, "one", [(10, [("aten::mm", GEMM, 5), ("aten::cat", "concatenated", 3)])])
    other = run(tmp_path, "other", [(10, [("aten::mm", GEMM, 5), ("aten::index", "gathered", 3)])])
    assert compare(one, other).summary.startswith("the same 1 GEMM call per step, concatenated went, gathered came, GPU")


def test_gemms_that_are_not_as_many_in_every_step(tmp_path):
    one = run(tmp_path, "one", [(10, [("aten::mm", GEMM, 5)] * 2), (10, [("aten::mm", GEMM, 5)])])
    assert ", the same 1.5 GEMM calls per step, " in compare(one, one).summary


def test_gemms_of_one_name_that_are_not_as_many(tmp_path):
    one = run(tmp_path, "one", [(10, [("aten::mm", GEMM, 5)] * 2)])
    three = run(tmp_path, "three", [(10, [("aten::mm", GEMM, 5)] * 3)] * 2)
    assert compare(one, three).summary.startswith("2 became 3 GEMM calls per step, GPU time")
    assert compare(three, one).summary.startswith("3 became 2 GEMM calls per step, GPU time")


def test_as_many_gemms_of_other_kernels_are_not_the_same_ones(tmp_path):
    one = run(tmp_path, "one", [(10, [("aten::mm", GEMM, 5)] * 2)])
    other = run(tmp_path, "other", [(10, [("aten::mm", GEMM, 5), ("aten::mm", "ampere_sgemm_128x64_tn", 5)])])
    assert compare(one, one).summary.startswith("the same 2 GEMM calls per step")
    assert compare(one, other).summary.startswith("as many GEMM calls per step (2), ")


def test_a_gpu_time_that_goes_to_nothing_is_told_and_one_that_comes_from_nothing_is_not(tmp_path):
    some = run(tmp_path, "some", [(100, [("aten::add", ADD, 50)])])
    none = run(tmp_path, "none", [(100, [])])
    idle = read(write(tmp_path / "idle.json", step(0, 0, 100), launch(500, 1), kernel(ADD, 600, 5, 1)))
    assert (
        compare(some, idle).summary
        == "the same kernels, GPU time per step -100%, CPU time per step +0%, latency-bound became unknown."
    )
    assert compare(idle, some).summary == "the same kernels, CPU time per step +0%, unknown became latency-bound."
    assert compare(none, none).summary == "CPU time per step +0%."


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((500, 108, 107), (110, 112, 111), "CPU time per step +3%."),  # of 108 and 111
        ((500, 100, 109), (105, 106, 104), "CPU time per step -4% (within noise: the steps of A differ by 9%)."),
        ((100, 100, 100), (500, 90, 130), "CPU time per step +30% (within noise: the steps of B differ by 44%)."),
        ((100, 130), (120, 120), "CPU time per step +20% (within noise: the steps of A differ by 30%)."),
        ((100, 100, 100), (100, 100, 100), "CPU time per step +0%."),
    ],
)
def test_a_change_that_the_steps_of_one_trace_show_too_is_noise(tmp_path, before, after, words):
    """The first of three steps still pays for the profiler's start: it says nothing of noise."""
    a, b = (run(tmp_path, name, [(cpu, []) for cpu in times]) for name, times in (("a", before), ("b", after)))
    assert compare(a, b).summary.partition("), ")[2] == words


def test_a_period_that_one_long_step_makes_is_noise(tmp_path):
    """Steps begin every 10 ms; of b the fourth takes 29 ms, in a pause that the others have not."""
    a, b = run(tmp_path, "a", [(100, [])] * 4), run(tmp_path, "b", [(100, []), (100, []), (100, []), (29_000, [])])
    told = "the step period went from 10.00 ms to 9.97 ms (-0%), CPU time per step +0% (within noise: the steps of B differ by "
    assert compare(a, b).summary.startswith(f"{told}28900%)")


def test_a_step_lasts_to_its_last_gpu_event(tmp_path):
    # The steps begin every 10 ms; their GPU work ends 100 µs after the CPU, and in b's last step 500 µs after it.
    a = run(tmp_path, "a", [(100, [("aten::mm", GEMM, 100)])] * 3)
    b = run(tmp_path, "b", [(100, [("aten::mm", GEMM, 100)])] * 2 + [(100, [("aten::mm", GEMM, 500)])])
    assert (a.step_period_us, b.step_period_us) == (10_000, 10_200)
    assert compare(a, b).summary.startswith("the step period went from 10.00 ms to 10.20 ms (+2%), ")
    assert run(tmp_path, "one", [(100, [])]).step_period_us == 100


def test_nothing_to_compare(tmp_path):
    bare = read(write(tmp_path / "bare.json", call("cudaDeviceSynchronize", 0, 1, 1)))
    assert compare(bare, bare).summary == "nothing to compare: no steps and no kernels that both have."


@pytest.mark.parametrize(
    ("times", "middle"),
    [([(50, 4), (20, 1), (90, 3), (30, 2)], (30, 2)), ([(50, 4), (20, 1), (90, 3)], (50, 3)), ([(50, 4)], (50, 4))],
)
def test_the_times_of_a_step_are_the_lower_median(tmp_path, times, middle):
    """Of an even number of steps the lower of the two in the middle: a value that was measured."""
    (row,) = rows([run(tmp_path, "t", [(cpu, [("aten::add", ADD, gpu)]) for cpu, gpu in times])])
    assert (row.cpu_us, row.gpu_us) == middle


def test_what_came_and_went_without_a_gemm(tmp_path):
    some = run(tmp_path, "some", [(10, [("aten::add", ADD, 5)])])
    more = run(tmp_path, "more", [(10, [("aten::add", ADD, 5), *((f"aten::{n}", n, 1) for n in ("aa", "bb", "cc"))])])
    cpu = run(tmp_path, "cpu", [(10, [])])
    assert compare(some, more).summary.startswith("aa, bb and cc came, GPU time")
    assert compare(more, some).summary.startswith("aa, bb and cc went, GPU time")
    assert compare(cpu, some).summary == "add came, CPU time per step +0%, unknown became latency-bound."
    assert compare(some, cpu).summary == "add went, CPU time per step +0%, latency-bound became unknown."


def test_a_row_for_each_trace(eager, compiled, tmp_path):
    cpu = read(write(tmp_path / "cpu.json", step(0, 0, 10), annotation("fwd", 1, 8), op("aten::mm", 2, 5)))
    copying = read(
        write(tmp_path / "copy.json", step(0, 0, 10), launch(1, 1), launch(2, 2), kernel(ADD, 20, 5, 1), memcpy(30, 9, 2))
    )
    first, second, third, fourth = rows([eager, compiled, cpu, copying])
    assert [row.label for row in (first, second, third, fourth)] == ["eager", "compiled", "cpu", "copy"]
    assert (first.kernels, first.copies, first.gpu_us, first.cpu_us, first.slowest.name) == (3, 0, 101, 100, GEMM)
    assert (second.kernels, second.copies, second.gpu_us, second.cpu_us, second.slowest.name) == (2, 0, 95, 140, GEMM)
    assert (third.kernels, third.copies, third.gpu_us, third.cpu_us, third.slowest) == (None, None, None, 10, None)
    assert (fourth.kernels, fourth.copies, fourth.gpu_us) == (1, 1, 14)
    assert [row.facts for row in (first, second, third, fourth)] == [eager, compiled, cpu, copying]
    assert "fused-triton" in second.findings and "fused-triton" not in first.findings
    shared = {f.slug for f in eager.findings} & {f.slug for f in compiled.findings}
    assert shared and not shared & set(rows([eager, compiled])[0].findings)


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["a/x/1.json", "a/y/1.json.gz"], ["x/1", "y/1"]),
        (["a/x/1.json", "a/x/2.json"], ["1", "2"]),
        (["x/1.json", "2.json.gz"], ["x/1", "2"]),
        (["/somewhere/1.json", "here/2.json"], ["/somewhere/1", "here/2"]),  # one absolute, one not
    ],
)
def test_labels(eager, paths, labels):
    facts = [msgspec.structs.replace(eager, trace=path) for path in paths]
    assert [row.label for row in rows(facts)] == labels


def test_the_json_of_a_comparison_has_each_traces_own_values(eager, compiled, capsys):
    assert cli.main([eager.trace, compiled.trace, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["a"]["trace"], data["b"]["trace"]) == (eager.trace, compiled.trace)
    assert (data["a"]["window_us"], data["b"]["window_us"]) == (20401, 10275)
    changes = [(c["a"], c["b"], c["matched_by"], c["calls_a_step"], c["us_a_step"], c["difference_us"]) for c in data["kernels"]]
    assert changes == [
        (None, TRITON, None, [0, 1], [0, 35], 35),
        ("gelu", None, None, [1, 0], [30, 0], -30),
        ("mul", None, None, [1, 0], [20, 0], -20),
        (GEMM, GEMM, "name", [1, 1], [50, 60], 10),
        ("Memset (Device)", None, None, [1, 0], [1, 0], -1),
    ]
    del data["a"], data["b"], data["kernels"], data["where_differs"]
    assert data == {
        "schema_version": 1,
        "summary": compare(eager, compiled).summary,
        "kernels_common": [{"name": GEMM, "calls": [3, 2], "median_us": [50, 60]}],
        "kernels_only_a": ["gelu", "mul", "Memset (Device)"],
        "kernels_only_b": [TRITON],
        "ops_only_a": ["aten::gelu", "aten::mul", "aten::zero_"],
        "ops_only_b": ["graph"],
        "findings_only_a": [],
        "findings_only_b": ["fused-triton"],
    }


def test_a_name_that_is_the_common_ending_itself_is_whole(tmp_path, capsys):
    for name in ("x_y.json", "z_y.json", "_y.json"):
        (tmp_path / name).write_text(json.dumps(document(step(0, 0, 100), op("aten::mm", 1, 50))))
    assert cli.main([str(tmp_path / name) for name in ("x_y.json", "z_y.json", "_y.json")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[3:]] == ["x_y", "z_y", "_y"]


def test_two_steps_that_were_measured_without_the_profiler_are_compared_first(tmp_path):
    def one(name, middle, low, high):
        events = [step(0, 0, 100), step(1, 100, 100), op("aten::mm", 5, 50), launch(10, 1), kernel(GEMM, 20, 30, 1)]
        return read(write(tmp_path / f"{name}.json", *events, plain_step_us={"median": middle, "low": low, "high": high}))

    slow, fast, near = one("slow", 80, 78, 82), one("fast", 60, 59, 61), one("near", 79, 77, 81)
    assert compare(slow, fast).summary.startswith(
        "without the profiler a step went from 80.0 µs to 60.0 µs (-25%), the step period"
    )
    assert compare(slow, near).summary.startswith(
        "without the profiler a step went from 80.0 µs to 79.0 µs (-1%, within their rounds)"
    )


# --- Where they differ, by the regions of a step


def step_of(tmp_path, name, spans, us=1000, steps=2):
    """Return a trace of steps of these spans: (name, start, length, us of the kernel it launches); the first step is longer."""
    events, number = [], 0
    for n in range(steps):
        at = n * 10_000
        events.append(step(n, at, us))
        for place, (called, start, length, gpu_us) in enumerate(spans):
            one = op if called.startswith(("aten::", "triton_", "autograd::", "MmBackward0")) else annotation
            events.append(one(called, at + start, length))
            if gpu_us:
                number += 1
                events += [launch(at + start + 1, number), kernel(f"k{place}", at + 2000 + 500 * place, gpu_us, number)]
    return load(write(tmp_path / f"{name}.json", *events))


def told(a, b, of_gpu):
    (found,) = [one for one in where_differs(a, b) if one.of_gpu is of_gpu]
    return [(" > ".join(one.path), one.a, one.b, one.kind, one.calls, one.us) for one in found.differences]


LAYERS = [("forward", 10, 400, 0), ("layer 0", 20, 100, 0), ("aten::mm", 30, 20, 50), ("aten::add", 60, 20, 10),
          ("layer 1", 200, 100, 0), ("aten::mm", 210, 20, 50), ("aten::add", 240, 20, 10)]  # fmt: skip


def test_a_difference_is_followed_down_to_one_place(tmp_path):
    """Of two ops of one name, in two layers, one takes longer; on the CPU the layer does, and all around it."""
    slower = [(name, start, length, 90 if start == 240 else us) for name, start, length, us in LAYERS]
    a, b = step_of(tmp_path, "a", LAYERS), step_of(tmp_path, "b", slower)
    assert told(a, b, True) == [("forward > layer 1", ("aten::add",), ("aten::add",), "both", (1, 1), (10, 90))]
    assert told(a, b, False) == []
    longer = [("forward", 10, 490, 0), *LAYERS[1:4], ("layer 1", 200, 190, 0), *LAYERS[5:]]
    found = told(a, step_of(tmp_path, "c", longer, us=1090), False)
    assert found == [("forward", ("layer 1",), ("layer 1",), "both", (1, 1), (100, 190))]


def test_what_stands_for_ops_in_compiled_code_is_told_beside_them(tmp_path):
    eager = [("forward", 10, 160, 0), ("aten::mm", 30, 20, 50), ("aten::gelu", 60, 20, 30), ("aten::mul", 90, 20, 20)]
    compiled = [
        ("forward", 10, 400, 0),
        ("Torch-Compiled Region: 0/0", 20, 300, 0),
        ("aten::mm", 30, 20, 80),
        (TRITON, 60, 20, 25),
    ]
    a, b = step_of(tmp_path, "a", eager), step_of(tmp_path, "b", compiled, us=1240)
    product = ("forward", ("aten::mm",), ("aten::mm",), "both", (1, 1), (50, 80))
    assert told(a, b, True) == [product, ("forward", ("aten::gelu", "aten::mul"), (TRITON,), "replaced", (2, 1), (50, 25))]
    assert told(b, a, True)[1] == ("forward", (TRITON,), ("aten::gelu", "aten::mul"), "replaced", (1, 2), (25, 50))
    ops, region = ("aten::gelu", "aten::mm", "aten::mul"), ("Torch-Compiled Region: 0/0",)
    assert told(a, b, False) == [("forward", ops, region, "replaced", (3, 1), (60, 300))]


def test_a_range_of_another_name_at_the_same_place_is_the_same(tmp_path):
    other = [
        ("fwd", 10, 400, 0),
        *((name, start, length, us + 30 * (name == "aten::mm")) for name, start, length, us in LAYERS[1:]),
    ]
    a, b = step_of(tmp_path, "a", LAYERS), step_of(tmp_path, "b", other)
    assert [(one[0], one[1], one[5]) for one in told(a, b, True)] == [
        ("forward -> fwd > layer 0", ("aten::mm",), (50, 80)), ("forward -> fwd > layer 1", ("aten::mm",), (50, 80)),
    ]  # fmt: skip


def test_what_only_one_has_the_time_between_ops_and_the_backward_pass(tmp_path):
    node = [
        ("autograd::engine::evaluate_function: MmBackward0", 500, 100, 0),
        ("MmBackward0", 510, 80, 0),
        ("aten::mm", 520, 20, 40),
    ]
    a = step_of(tmp_path, "a", [*LAYERS, *node])
    b = step_of(tmp_path, "b", [*LAYERS, *node[:2], ("aten::mm", 520, 20, 70), ("aten::sort", 700, 50, 60)], us=1500)
    assert told(a, b, True) == [
        ("", (), ("aten::sort",), "only in B", (0, 1), (0, 60)),
        ("MmBackward0", ("aten::mm",), ("aten::mm",), "both", (1, 1), (40, 70)),
    ]
    assert told(a, b, False) == [
        ("", ("between ops",), ("between ops",), "both", (0, 0), (500, 950)),
        ("", (), ("aten::sort",), "only in B", (0, 1), (0, 50)),
    ]


def graph(name, us):
    return [(f"## Call CompiledFxGraph {name} ##", 10, 400, 0), ("aten::mm", 30, 20, us)]


@pytest.mark.parametrize(
    ("a", "b", "longer_us", "of_gpu", "seen"),
    [
        # A place whose parts do not explain it, in which one of them takes longer.
        ([("forward", 10, 100, 0), ("aten::mm", 20, 20, 0)], [("forward", 10, 200, 0), ("aten::mm", 20, 50, 0)], 100, False,
         [("", ("forward",), ("forward",))]),
        # Less than a hundredth of a step; less than a tenth of what differs.
        ([("aten::mm", 20, 20, 0)], [("aten::mm", 20, 28, 0)], 8, False, []),
        ([("aten::mm", 20, 20, 0), ("aten::add", 400, 20, 0)], [("aten::mm", 20, 320, 0), ("aten::add", 400, 45, 0)], 325, False,
         [("", ("aten::mm",), ("aten::mm",))]),
        (graph("fabc", 50), graph("fxyz", 90), 0, True, [("CompiledFxGraph", ("aten::mm",), ("aten::mm",))]),
        # No range of another name, for it runs twice; and ops of another name are others.
        ([("one", 10, 50, 0), ("aten::mm", 20, 20, 30), ("one", 70, 50, 0), ("aten::mm", 80, 20, 30)],
         [("two", 10, 50, 0), ("aten::mm", 20, 20, 90)], 0, True, [("", ("aten::mm",), ("aten::mm",))]),
        ([("aten::sort", 20, 20, 90)], [("aten::topk", 20, 20, 30)], 0, True, [("", ("aten::sort",), ("aten::topk",))]),
        ([("aten::gelu", 20, 20, 90), ("aten::mul_", 50, 20, 90), ("aten::add", 80, 9, 50)], [(TRITON, 20, 20, 30)], 0, True,
         [("", ("aten::gelu", "aten::mul_"), (TRITON,)), ("", ("aten::add",), ())]),
    ],
)  # fmt: skip
def test_what_is_followed_and_what_is_told(tmp_path, a, b, longer_us, of_gpu, seen):
    one, other = step_of(tmp_path, "a", a), step_of(tmp_path, "b", b, us=1000 + longer_us)
    assert [found[:3] for found in told(one, other, of_gpu)] == seen


def test_differences_that_cancel_out_are_told(tmp_path):
    a = [("m", 10, 600, 0), ("aten::mm", 20, 200, 0), ("aten::add", 300, 50, 0)]
    b = [("m", 10, 600, 0), ("aten::mm", 20, 50, 0), ("aten::add", 300, 200, 0)]
    found = told(step_of(tmp_path, "a", a), step_of(tmp_path, "b", b), False)
    assert [(path, one, us) for path, one, _, _, _, us in found] == [
        ("m", ("aten::add",), (50, 200)), ("m", ("aten::mm",), (200, 50)),
    ]  # fmt: skip


def test_work_of_no_op_is_told(tmp_path):
    def trace(name, us):
        return load(write(tmp_path / f"{name}.json", step(0, 0, 500), launch(12, 1), kernel("k", 20, us, 1)))

    assert told(trace("a", 50), trace("b", 250), True) == [("", ("in no op",), ("in no op",), "both", (0, 0), (50, 250))]


def test_what_other_threads_do_is_not_between_the_ops_of_the_steps_thread(tmp_path):
    def trace(name, *more):
        events = [step(0, 0, 1000), op("aten::mm", 10, 250), *on(2, op("aten::add", 0, 300), *more)]
        return load(write(tmp_path / f"{name}.json", *events))

    assert told(trace("a"), trace("b", op("aten::add", 400, 350)), False) == [
        ("", ("aten::add",), ("aten::add",), "both", (1, 2), (300, 650))
    ]


def test_two_ranges_with_nothing_in_common_are_two(tmp_path):
    a = step_of(tmp_path, "a", [("load", 10, 300, 0), ("aten::copy_", 20, 250, 0)])
    b = step_of(tmp_path, "b", [("evaluate", 10, 200, 0), ("aten::mm", 20, 150, 0)])
    assert ("", ("load",), ("evaluate",), "replaced", (1, 1), (300, 200)) in told(a, b, False)


def test_regions_in_one_another_are_followed_so_deep(tmp_path):
    def trace(name, us):
        spans = [op(f"f{n}", 1 + n, us + 3000 - 2 * n) for n in range(1400)]
        return load(write(tmp_path / f"{name}.json", step(0, 0, 9000), *spans))

    (one,) = [path for path, *_ in told(trace("a", 100), trace("b", 2100), False) if path]
    assert one.startswith("f0 > f1 > f2") and one.count(" > ") == 100


def test_what_the_cpu_waits_is_a_place(tmp_path):
    def trace(name, us):
        events = [step(0, 0, 500 + us), op("aten::item", 10, 20 + us), launch(12, 1), kernel("k", 20, us, 1)]
        return load(write(tmp_path / f"{name}.json", *events, call("cudaStreamSynchronize", 15, us, 9)))

    assert [found[:2] for found in told(trace("a", 50), trace("b", 250), False)] == [("aten::item", ("cudaStreamSynchronize",))]


def test_a_first_step_that_pays_for_the_profiler_is_left_out(tmp_path):
    def trace(name, first_us):
        events = [
            one for n, us in enumerate((first_us, 20, 20)) for one in (step(n, 1000 * n, 900), op("aten::mm", 1000 * n + 5, us))
        ]
        return load(write(tmp_path / f"{name}.json", *events))

    assert told(trace("a", 800), trace("b", 20), False) == []


def test_modules_where_stacks_were_recorded(tmp_path):
    def trace(name, us):
        modules = [event("python_function", f"nn.Module: Linear_{n}", 100 + 300 * n, 50 + (us if n else 50)) for n in range(2)]
        ops = [op("aten::linear", 120 + 300 * n, us if n else 50) for n in range(2)]
        return load(write(tmp_path / f"{name}.json", step(0, 0, 900 + us), *modules, *ops, with_stack=1), stacks=True)

    assert told(trace("a", 50), trace("b", 150), False) == [
        ("Linear", ("aten::linear",), ("aten::linear",), "both", (2, 2), (100, 200))
    ]


def test_the_places_are_in_the_report_and_in_json(tmp_path, capsys):
    slower = [(name, start, length, 90 if start == 240 else us) for name, start, length, us in LAYERS]
    for name, spans in (("a", LAYERS), ("b", slower)):
        step_of(tmp_path, name, spans)
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert cli.main(["compare", *paths]) == 0
    out = capsys.readouterr().out
    assert (
        """
Where the GPU's time in a step differs: 120.0 µs -> 200.0 µs
  forward > layer 1 > aten::add: +80.0 µs (10.0 µs -> 90.0 µs, 1 call)

Where the CPU's time in a step differs: 1.00 ms -> 1.00 ms
  nowhere by much
"""
        in out
    )
    assert cli.main(["compare", *paths, "--json"]) == 0
    (gpu, cpu) = json.loads(capsys.readouterr().out)["where_differs"]
    assert (gpu["of_gpu"], gpu["us"], cpu["differences"]) == (True, [120, 200], [])
    assert gpu["differences"] == [
        {"path": ["forward", "layer 1"], "a": ["aten::add"], "b": ["aten::add"], "kind": "both", "calls": [1, 1], "us": [10, 90]}
    ]
