"""Steps of inference servers, which nobody marked by the profiler's step()."""

import pytest
from reader_helpers.events import ADD, annotation, kernel, launch, op, step, write
from trace_reader import cli, load, read
from trace_reader.analysis.trace.server_steps import Lengths, ServerSteps, kind_of_step, lengths_of_step


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("execute_context_2(1500)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_8(8)", "decode"),
        ("execute_context_1(700)_generation_7(7)", "prefill and decode"),
        ("execute_context_0(0)_generation_0(0)", None),
        ("execute_new_3_cached_0", "prefill"),
        ("step[EXTEND bs=1 toks=512]", "prefill"),
        ("step[DECODE bs=4]", "decode"),
        ("step[MIXED bs=4]", "prefill and decode"),
        ("gpu_model_runner: forward", None),
        ("ProfilerStep#2", None),
    ],
)
def test_what_a_step_does_is_in_its_name(name, kind):
    assert kind_of_step(name) == kind


def served(*names):
    """A step of 100 µs of each name, the first longest."""
    return [
        e
        for n, name in enumerate(names)
        for e in (annotation(name, 100 * n, 50), launch(100 * n + 1, n), kernel(ADD, 100 * n + 5, 80 - 10 * n, n))
    ]


def test_the_annotations_of_a_server_are_its_steps(tmp_path, capsys):
    names = (
        "execute_context_1(512)_generation_0(0)",
        "execute_context_0(0)_generation_1(1)",
        "execute_context_0(0)_generation_2(2)",
    )
    path = write(tmp_path / "t.json", *served(*names))
    facts = read(path)
    assert [s.name for s in facts.steps] == list(names)
    assert facts.server_steps == (ServerSteps("prefill", 1, 85), ServerSteps("decode", 2, 70))  # to the kernels' ends
    assert cli.main([path]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "an inference server's steps, by their annotations: 1 of prefill (median 85.0 µs), 2 of decode (median 70.0 µs)" in told
    )


def test_a_servers_prefill_is_no_cold_start(tmp_path):
    """A first step of 300 of CPU time, the others 50: of a program that says nothing of its steps it would be one."""
    names = ("execute_context_1(512)_generation_0(0)", *(f"execute_context_0(0)_generation_{n}({n})" for n in (1, 2, 3)))

    def slow(first):
        return [e | {"dur": 300} if e["name"] == first else e | {"ts": e["ts"] + 300} for e in served(first, *names[1:])]

    def slugs(events):
        return [found.slug for found in read(write(tmp_path / "t.json", *events)).findings]

    assert "cold-start" not in slugs(slow(names[0]))
    plain = [{**e, "name": f"ProfilerStep#{names.index(e['name'])}"} if e["name"] in names else e for e in slow(names[0])]
    assert "cold-start" in slugs(plain)


def test_the_profilers_own_steps_come_first(tmp_path):
    path = write(tmp_path / "t.json", step(0, 0, 300), *served("step[DECODE bs=1]", "step[DECODE bs=2]"))
    assert load(path).steps.names == ["ProfilerStep#0"]


def test_where_nobody_marked_a_step_the_report_says_what_could_be_one(tmp_path, capsys):
    path = write(
        tmp_path / "t.json", *(e for n in range(3) for e in (annotation(f"batch {n}", 20 * n, 9), op("aten::mm", 20 * n, 5)))
    )
    assert cli.main([path]) == 0
    out = capsys.readouterr().out
    assert "\nsteps: 3 (batch 0 to batch 2), one every 20.0 µs\n" in out
    assert "\nno ProfilerStep: the steps are the range batch #, which repeats (1 op each)\n" in out


def test_a_step_that_begins_before_the_last_ones_kernels_end_counts_from_there(tmp_path):
    """The first one's kernel ends at 130, after the second has begun at 100: that takes from 130 to 180."""
    events = [annotation("step[DECODE bs=1]", 0, 50), launch(1, 1), kernel(ADD, 50, 80, 1),
              annotation("step[DECODE bs=1]", 100, 50), launch(101, 2), kernel(ADD, 130, 50, 2)]  # fmt: skip
    assert read(write(tmp_path / "t.json", *events)).server_steps == (ServerSteps("decode", 2, 90),)  # of 130 and 50


def test_one_annotation_alone_is_no_servers_steps(tmp_path):
    path = write(
        tmp_path / "t.json", annotation("execute_model", 0, 50), launch(1, 0), kernel(ADD, 10, 20, 0),
        *(one for n in range(1, 10) for one in (launch(100 * n, n), kernel(ADD, 100 * n + 5, 60, n))),
    )  # fmt: skip
    trace = load(path)
    assert trace.found is not None and "execute_model" not in trace.steps.names


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        # Two requests of 3 and 5 new tokens, of which the second has 4 more keys in the cache: 3 * 3 - 3 and 5 * 9 - 10 pairs.
        ("execute_8_context_2(sq8sk12sqsq34sqsk54)_generation_0(sq0sk0sqsq0sqsk0)", Lengths(8, 12, 41)),
        ("execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq64sk131072sqsq64sqsk131072)", Lengths(64, 131072, 131072)),
        ("step[EXTEND bs=1 toks=1025 c_sqsq=1050625 c_sqsk=1050625 c_sk=1025]", Lengths(1025, 1025, 525825)),
        ("step[DECODE bs=64 g_sqsq=64 g_sqsk=100032 g_sk=100032]", Lengths(64, 100032, 100032)),
        ("step[MIXED bs=3 c=1 g=2 c_sq=8 c_sk=8 c_sqsq=64 c_sqsk=64 g_sq=2 g_sk=10 g_sqsq=2 g_sqsk=10]", Lengths(10, 18, 46)),
        ("step[DECODE bs=64]", None),
        ("step[DECODE bs=64 g_sqsq=64 g_sqsk=5 g_sk=100032]", None),  # fewer pairs than queries: cannot be
        ("execute_context_0(0)_generation_8(8)", None),
    ],
)
def test_the_lengths_of_the_requests_are_in_the_name_of_a_detailed_step(name, lengths):
    assert lengths_of_step(name) == lengths


def test_a_servers_attention_is_a_row_of_each_kind_of_step_against_the_roofline(tmp_path, capsys):
    """Of the same inputs: 8 heads of 128 (1024 a token), 2 of keys and values (256), bf16: two decode steps of 64 requests, a
    prefill of 64 tokens.
    """
    inputs = {
        "Input Dims": [[64, 8, 128], [64, 2, 128], [64, 2, 128]], "Input type": ["c10::BFloat16"] * 3,
    }  # fmt: skip
    decode = "execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq64sk{0}sqsq64sqsk{0})"
    names = (
        decode.format(64_000), "execute_64_context_1(sq64sk64sqsq4096sqsk4096)_generation_0(sq0sk0sqsq0sqsk0)",
        decode.format(128_000),
    )  # fmt: skip
    events = []
    for n, (name, dur) in enumerate(zip(names, (50, 10, 70), strict=True)):
        at = 100 * n
        attention = op("vllm::unified_attention_with_output", at + 1, 5)
        attention["args"] |= inputs
        events += [annotation(name, at, 90), attention, launch(at + 2, n), kernel("unified_attention_kernel", at + 8, dur, n)]
    path = write(tmp_path / "t.json", *events, record_shapes=1)
    rows = {row.shapes: row for row in read(path).op_shapes}
    assert {shapes: (row.calls, row.time_us, row.flop, row.bytes) for shapes, row in rows.items()} == {
        "decode: 64 queries, 96000 keys (mean)": (2, 120, 4 * 1024 * 96_000, 2 * 64 * 1024 * 2 + 96_000 * 1024),
        "prefill: 64 queries, 64 keys": (1, 10, 4 * 1024 * (64 * 65 // 2), 2 * 64 * 1024 * 2 + 64 * 1024),
    }
    assert [row.limited_by for row in rows.values()] == ["memory", "memory"]
    assert cli.main([path, "--all"]) == 0
    assert "decode: 64 queries, 96000 keys (mean)" in capsys.readouterr().out


def test_a_servers_attention_in_a_step_that_says_no_lengths_has_no_cost(tmp_path):
    inputs = {"Input Dims": [[64, 8, 128], [64, 2, 128], [64, 2, 128]], "Input type": ["c10::BFloat16"] * 3}
    names = ("execute_context_0(0)_generation_64(64)", "execute_64_context_0()_generation_64(sq64sk640sqsq64sqsk640)")
    events = []
    for n, name in enumerate(names):
        attention = op("vllm::unified_attention", 100 * n + 1, 5)
        attention["args"] |= inputs
        events += [annotation(name, 100 * n, 90), attention, launch(100 * n + 2, n), kernel("attention", 100 * n + 8, 50, n)]
    rows = read(write(tmp_path / "t.json", *events, record_shapes=1)).op_shapes
    assert sorted((row.calls, row.flop) for row in rows if row.flop is None) == [(1, None)]
    assert [(row.calls, row.flop) for row in rows if row.flop is not None] == [(1, 4 * 1024 * 640)]
