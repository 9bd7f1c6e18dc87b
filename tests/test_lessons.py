"""Each lesson on the CPU: what it prints, what it writes, and the ops that its trace holds."""

import re

from helpers import ROOT, SMALL_ATTENTION, SMALL_MLP
import pytest
import torch
from trace_reader.units import human_bytes

COMMANDS = {
    "01": ("01_matmul_add.py", "--device", "cpu", "--size", "16"),
    "01 warm": ("01_matmul_add.py", "--device", "cpu", "--size", "16", "--warmup", "--guess", "2"),
    "01 batch": ("01_matmul_add.py", "--device", "cpu", "--size", "16", "--batch", "8", "--guess", "3"),
    "01 addmm": ("01_matmul_add.py", "--device", "cpu", "--size", "16", "--op", "addmm"),
    "01 schedule": ("01_matmul_add.py", "--device", "cpu", "--wait", "0", "--schedule-warmup", "0", "--active", "20"),
    "01 one step": ("01_matmul_add.py", "--device", "cpu", "--wait", "2", "--active", "1"),
    "01 gz": ("01_matmul_add.py", "--device", "cpu", "--gz"),
    "01 detail": ("01_matmul_add.py", "--device", "cpu", "--record_shapes", "--profile_memory", "--with_stack"),
    "01 compile": ("01_matmul_add.py", "--device", "cpu", "--size", "16", "--warmup", "--compile"),
    "02": ("02_linear.py", "--device", "cpu", "--batch", "8", "--in-dim", "32", "--out_dim", "64"),
    "02 compile": ("02_linear.py", "--device", "cpu", "--batch", "8", "--compile"),
    "03": ("03_simple_mlp.py", "--device", "cpu", *SMALL_MLP),
    "04_a": ("04_a_naive_attention.py", "--device", "cpu", *SMALL_ATTENTION, "--guess", "5"),
    "04_a long": ("04_a_naive_attention.py", "--device", "cpu", *SMALL_ATTENTION[:-1], "1024", "--active", "1"),
    "04_b": ("04_b_inplace_ops_attention.py", "--device", "cpu", *SMALL_ATTENTION, "--guess", "5"),
    "04_c auto": ("04_c_sdpa_attention.py", "--device", "cpu", *SMALL_ATTENTION),
    "04_c math": ("04_c_sdpa_attention.py", "--device", "cpu", *SMALL_ATTENTION, "--backend", "math"),
    "04_c flash": ("04_c_sdpa_attention.py", "--device", "cpu", *SMALL_ATTENTION, "--backend", "flash"),
    "04_c flash long": ("04_c_sdpa_attention.py", "--device", "cpu", *SMALL_ATTENTION[:-1], "1024", "--backend", "flash"),
}


@pytest.fixture(scope="module")
def runs(lessons):
    return lessons(COMMANDS)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("01", "16_bf16_cold_eager_device-cpu"),
        ("01 warm", "16_bf16_warm_eager_device-cpu"),
        ("01 batch", "16_bf16_cold_eager_device-cpu_batch-8"),
        ("01 addmm", "16_bf16_cold_eager_device-cpu_op-addmm"),
        ("01 schedule", "64_bf16_cold_eager_device-cpu_wait-0_schedule_warmup-0_active-20"),
        ("01 one step", "64_bf16_cold_eager_device-cpu_wait-2_active-1"),
        ("01 compile", "16_bf16_warm_compile_device-cpu"),
        ("02", "8_32_64_bf16_warm_eager_device-cpu"),
        ("02 compile", "8_32_64_bf16_warm_compile_device-cpu"),
        ("03", "2_8_32_64_bf16_warm_eager_device-cpu"),
        ("04_a", "1_2_256_64_bf16_warm_eager_device-cpu"),
        ("04_b", "1_2_256_64_bf16_warm_eager_device-cpu"),
        ("04_c auto", "1_2_256_64_auto_bf16_warm_eager_device-cpu"),
        ("04_c math", "1_2_256_64_math_bf16_warm_eager_device-cpu"),
        ("04_c flash", "1_2_256_64_flash_bf16_warm_eager_device-cpu"),
    ],
)
def test_writes_both_artifacts_at_the_promised_names_and_nothing_else(runs, name, tag):
    run = runs[name].result()
    assert (run.code, run.err) == (0, "")
    assert run.files == [f"{tag}.json", f"{tag}.txt"]


def test_prints_device_run_artifacts_totals_and_the_next_step_and_nothing_else(runs):
    run = runs["01"].result()
    path = re.escape(str(run.folder / "16_bf16_cold_eager_device-cpu"))
    assert re.fullmatch(
        r"device: cpu \(.+, \d+ cores, [\d.]+ GiB\): asked for with --device cpu; "
        rf"torch {re.escape(torch.__version__)}.*\n"
        r"run: 16_bf16_cold_eager_device-cpu: 5 steps \(wait 1, warmup 1, active 3\), recording ProfilerStep#2\.\.#4\n"
        rf"wrote {path}\.json \([\d.]+ KiB, \d\.\d+ s\)\n"
        rf"wrote {path}\.txt \([\d.]+ KiB, \d\.\d+ s\)\n"
        r"Self CPU time total: [\d.]+[um]s\n"
        r"peak memory: 2\.5 KiB of tensors, of which 1\.5 KiB are inputs and weights\n"
        r"verdict: cpu-only: the trace holds no GPU event; \d+\S*% of the steps' time is .+\n"
        r"(without the profiler a step takes an estimated [\d.]+ [µm]s to [\d.]+ [µm]s, [\d.]+ [µm]s recorded\n)?"
        r"innermost ops per step: 2 \(aten::mm, aten::add\)\n"
        rf"next: uv run read_trace\.py {path}\.json, or drag it into https://ui\.perfetto\.dev\n",
        run.out,
    )


@pytest.mark.parametrize(("name", "first", "last"), [("01", 2, 4), ("01 schedule", 0, 19), ("01 one step", 3, 3), ("03", 2, 4)])
def test_the_schedule_decides_which_steps_are_recorded(runs, name, first, last):
    run = runs[name].result()
    assert run.trace().steps() == [f"ProfilerStep#{n}" for n in range(first, last + 1)]
    recorded = f"#{first}" if first == last else f"#{first}..#{last}"
    assert f"recording ProfilerStep{recorded}\n" in run.out


@pytest.mark.parametrize(
    ("name", "annotation", "ops"),
    [
        ("01", "matmul_add", ["aten::matmul", "aten::mm", "aten::add"]),
        ("01 batch", "matmul_add", ["aten::matmul", "aten::bmm", "aten::add"]),
        ("01 addmm", "matmul_add", ["aten::addmm"]),
        ("01 compile", "matmul_add", ["aten::addmm"]),
        ("02", "linear_fwd", ["aten::linear", "aten::t", "aten::addmm"]),
        ("02 compile", "linear_fwd", ["aten::addmm"]),
        (
            "04_a",
            "attn_fwd",
            [
                "aten::transpose",
                "aten::matmul",
                "aten::bmm",
                "aten::mul",
                "aten::masked_fill",
                "aten::clone",
                "aten::copy_",
                "aten::masked_fill_",
                "aten::softmax",
                "aten::_softmax",
                "aten::matmul",
                "aten::bmm",
            ],
        ),
        ("04_b", "attn_fwd", ["aten::matmul", "aten::mul", "aten::masked_fill_", "aten::softmax", "aten::matmul"]),
        (
            "04_c math",
            "sdpa_fwd",
            [
                "aten::scaled_dot_product_attention",
                "aten::_scaled_dot_product_attention_math",
                "aten::tril",
                "aten::bmm",
                "aten::_safe_softmax",
                "aten::bmm",
            ],
        ),
        ("04_c flash", "sdpa_fwd", ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"]),
        ("04_c auto", "sdpa_fwd", ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"]),
        ("03", "mlp_fwd", ["aten::linear", "aten::mm", "aten::gelu", "aten::linear", "aten::mm", "aten::mul"]),
    ],
)
def test_every_recorded_step_holds_the_annotation_and_the_chain_of_ops(runs, name, annotation, ops):
    trace = runs[name].result().trace()
    assert len(trace.named(annotation)) == 3
    for step in trace.steps():
        remaining = iter(trace.ops(step))
        assert all(op in remaining for op in ops), f"{step}: {ops} not in this order in {trace.ops(step)}"


@pytest.mark.parametrize("name", ["01 compile", "02 compile"])
def test_a_compiled_step_runs_a_compiled_region_without_the_ops_it_replaced(runs, name):
    trace = runs[name].result().trace()
    assert [e["name"].split(":")[0] for e in trace.events].count("Torch-Compiled Region") == 3
    assert len(trace.named("TorchDynamo Cache Lookup")) == 3
    assert not trace.named("aten::linear") and not trace.named("aten::matmul") and not trace.named("aten::add")


def test_04_a_and_04_b_differ_in_one_line_and_the_docstring():
    a, b = (
        (ROOT / f"{name}.py").read_text().split('"""\n', 1)[1] for name in ("04_a_naive_attention", "04_b_inplace_ops_attention")
    )
    assert a.count(".masked_fill(") == 1
    assert a.replace(".masked_fill(", ".masked_fill_(") == b


def test_only_the_masking_out_of_place_copies(runs):
    assert not {"aten::masked_fill", "aten::clone"} & {e["name"] for e in runs["04_b"].result().trace().events}
    assert (
        "\ninnermost ops per step: 6 (2 x aten::bmm, aten::mul, aten::copy_, aten::masked_fill_, aten::_softmax)\n"
        in runs["04_a"].result().out
    )
    assert "\nguess: 5 ops per step. Correct.\n" in runs["04_b"].result().out


@pytest.mark.slow
def test_a_compiled_attention_is_one_compiled_region(lesson):
    run = lesson("04_a_naive_attention.py", "--device", "cpu", *SMALL_ATTENTION, "--compile")
    assert (run.code, run.err) == (0, "")
    assert run.files == [f"1_2_256_64_bf16_warm_compile_device-cpu.{suffix}" for suffix in ("json", "txt")]
    trace = run.trace()
    assert [e["name"].split(":")[0] for e in trace.events].count("Torch-Compiled Region") == 3
    assert not trace.named("aten::masked_fill") and not trace.named("aten::softmax")


def test_the_score_matrix_is_in_the_peak_memory_where_attention_is_written_out(runs):
    """In KiB: q, k, v and the output of [2, seq, 64] and twice the scores of [2, seq, seq], in bf16; the mask in bytes."""
    for name, seq in (("04_a", 256), ("04_b", 256), ("04_a long", 1024)):
        inputs = 3 * 2 * seq * 64 * 2 + seq * seq
        peak = inputs + 2 * (2 * seq * seq * 2) + 2 * seq * 64 * 2
        line = f"peak memory: {human_bytes(peak)} of tensors, of which {human_bytes(inputs)} are inputs and weights"
        assert line in runs[name].result().out.splitlines()
    short, long = (_peak_kib(runs[name].result().out) for name in ("04_c flash", "04_c flash long"))
    assert long < 6 * short


def _peak_kib(out: str) -> float:
    found = re.search(r"^peak memory: ([\d.]+) (KiB|MiB)", out, re.MULTILINE)
    assert found is not None
    number, unit = found.groups()
    return float(number) * {"KiB": 1, "MiB": 1024}[unit]


def test_a_guess_is_answered(runs):
    assert "\nguess: 2 ops per step. Correct.\n" in runs["01 warm"].result().out
    assert (
        "\nguess: 3 ops per step; the trace has 2. ProfilerStep#3 ran:\n  1 x aten::bmm\n  1 x aten::add\n"
        in runs["01 batch"].result().out
    )


def test_the_trace_says_which_run_it_is_and_no_path(runs):
    run = runs["01"].result()
    text = (run.folder / run.files[0]).read_text()
    assert '"script": "01_matmul_add", "run": "16_bf16_cold_eager_device-cpu"' in text
    assert f'"versions": "torch {torch.__version__}' in text
    assert '"traceName": "16_bf16_cold_eager_device-cpu.json"' in text


def test_gz_writes_a_compressed_trace(runs):
    run = runs["01 gz"].result()
    assert run.files == ["64_bf16_cold_eager_device-cpu_gz.json.gz", "64_bf16_cold_eager_device-cpu_gz.txt"]
    assert run.trace().steps() == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]


def test_detail_flags_record_shapes_memory_and_stacks(runs):
    run = runs["01 detail"].result()
    trace = run.trace()
    assert trace.named("aten::mm")[0]["args"]["Input Dims"] == [[64, 64], [64, 64]]
    assert "[[64, 64], [64, 64]]" in run.table() and "CPU Mem" in run.table()
    assert trace.of("python_function")


def test_the_table_is_sorted_by_total_time_and_has_at_most_15_rows(runs):
    for name in ("01", "03", "01 compile"):
        rows = runs[name].result().table().split("\n")
        header, body = rows[1], rows[3 : rows.index(rows[0], 3)]
        totals = [_us(re.split(r"  +", row.strip())[4]) for row in body]
        assert re.split(r"  +", header.strip())[4] == "CPU total"
        assert totals == sorted(totals, reverse=True)
        assert 3 < len(body) <= 15


def _us(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)(us|ms|s)", text)
    assert found is not None
    number, unit = found.groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]
