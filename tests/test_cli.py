"""The flags: their list, spellings, mistakes, and the names that runs get from them."""

import importlib
import random
import re

from helpers import LESSONS, ROOT
from helpers.flags import OWN, SHARED
import pytest


def parse(script, *flags):
    return importlib.import_module(script.removesuffix(".py")).parse_args(list(flags))


def test_every_lesson_is_in_this_file():
    assert sorted(OWN) == LESSONS


@pytest.mark.parametrize("script", LESSONS)
def test_the_flags_are_these(script, capsys):
    with pytest.raises(SystemExit) as end:
        parse(script, "--help")
    assert end.value.code == 0
    shown = {word.strip(",[]") for word in capsys.readouterr().out.split("\n\n")[0].split() if "--" in word}
    assert shown == {*SHARED, *OWN[script]}


@pytest.mark.parametrize("script", LESSONS)
def test_what_the_trace_shows_is_told_when_it_is_asked_for(script, capsys):
    """Guess first: the help does not tell it."""
    told = []
    for flag in ("--look", "--help"):
        with pytest.raises(SystemExit) as ended:
            parse(script, flag)
        assert ended.value.code == 0
        told.append(" ".join(capsys.readouterr().out.split()))
    look, help = told
    written = " ".join((ROOT / script).read_text().split())
    assert f"Then look: {look[:1].lower()}{look[1:]}" in written or f"Then look: {look}" in written
    assert look[20:80] not in help and "Then look at the trace; --look says what it shows. " in help and "Guess first" in help


def test_the_help_says_which_steps_are_recorded(capsys):
    with pytest.raises(SystemExit):
        parse("01_matmul_add.py", "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "so by default ProfilerStep#2, #3 and #4." in text


@pytest.mark.parametrize(("script", "default"), [("01_matmul_add.py", "off"), ("03_simple_mlp.py", "on")])
def test_the_help_says_whether_a_lesson_warms_up(script, default, capsys):
    with pytest.raises(SystemExit):
        parse(script, "--help")
    assert f"not in the trace (default: {default})" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("script", "flags", "tag"),
    [
        ("01_matmul_add.py", "", "64_bf16_cold_eager"),
        ("01_matmul_add.py", "--size 4096 --warmup --compile", "4096_bf16_warm_compile"),
        ("02_linear.py", "", "1024_32_64_bf16_warm_eager"),
        ("02_linear.py", "--no-warmup --dtype fp32", "1024_32_64_fp32_cold_eager"),
        ("03_simple_mlp.py", "--compile", "64_128_768_3072_bf16_warm_compile"),
        ("04_a_naive_attention.py", "", "8_16_1024_64_bf16_warm_eager"),
        ("04_b_inplace_ops_attention.py", "--seq 4096 --compile", "8_16_4096_64_bf16_warm_compile"),
        ("04_c_sdpa_attention.py", "", "8_16_1024_64_auto_bf16_warm_eager"),
        ("04_c_sdpa_attention.py", "--backend flash", "8_16_1024_64_flash_bf16_warm_eager"),
        ("04_d_kernels_attention.py", "--head-dim 128", "8_16_1024_128_bf16_warm_eager"),
        ("03_kernels_mlp.py", "--kernel_version 2", "64_128_768_3072_bf16_warm_eager_kernel_version-2"),
        (
            "01_matmul_add.py",
            "--compile --compile_mode max-autotune --seed 7 --record_shapes --batch 8",
            "64_bf16_cold_compile_compile_mode-max-autotune_record_shapes_seed-7_batch-8",
        ),
    ],
)
def test_the_tag_names_sizes_dtype_warmup_compile_and_what_else_was_changed(script, flags, tag):
    args = parse(script, *flags.split())
    assert args.run.tag == tag
    assert str(args.trace_dir) == f"traces/{script.removesuffix('.py')}"


def test_runs_with_different_settings_never_share_a_name():
    choices: dict[str, list[str | None]] = {
        "--size": ["1", "64", "641"],
        "--dtype": ["bf16", "fp16", "fp32"],
        "--warmup": [None, ""],
        "--compile": [None, ""],
        "--compile_mode": [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"],
        "--device": ["auto", "cuda", "xpu", "mps", "cpu"],
        "--wait": ["0", "1", "11"],
        "--schedule_warmup": ["0", "1", "11"],
        "--active": ["1", "3", "11"],
        "--record_shapes": [None, ""],
        "--profile_memory": [None, ""],
        "--with_stack": [None, ""],
        "--gz": [None, ""],
        "--seed": ["0", "1", "11"],
        "--batch": [None, "1", "11"],
        "--op": ["matmul_add", "addmm"],
    }
    pick = random.Random(0)
    by_tag: dict[str, dict[str, object]] = {}
    for _ in range(3000):
        settings = {flag: pick.choice(values) for flag, values in choices.items() if pick.random() < 0.4}
        if "--compile" not in settings or settings["--compile"] is None:
            settings.pop("--compile_mode", None)
        if settings.get("--batch"):
            settings.pop("--op", None)
        tokens = [token for flag, value in settings.items() if value is not None for token in (flag, value) if token]
        args = vars(parse("01_matmul_add.py", *tokens)).copy()
        tag = args.pop("run").tag
        assert by_tag.setdefault(tag, args) == args
    assert len(by_tag) > 2000


@pytest.mark.parametrize("flag", ["--in_dim", "--in-dim"])
def test_hyphens_and_underscores_are_the_same(flag):
    assert parse("02_linear.py", flag, "3").in_dim == 3
    assert parse("02_linear.py", f"{flag}=3").in_dim == 3
    assert parse("02_linear.py", "--no_warmup").warmup is False
    assert parse("02_linear.py", "--compile", "--compile-mode=reduce-overhead").compile_mode == "reduce-overhead"


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [
        ("01_matmul_add.py", "--size 0", "argument --size: expected a whole number, 1 or more, got '0'"),
        ("01_matmul_add.py", "--size -64", "argument --size: expected a whole number, 1 or more, got '-64'"),
        ("01_matmul_add.py", "--size 6.4", "argument --size: expected a whole number, 1 or more, got '6.4'"),
        ("02_linear.py", "--in_dim many", "argument --in_dim: expected a whole number, 1 or more, got 'many'"),
        ("01_matmul_add.py", "--active 0", "argument --active: expected a whole number, 1 or more, got '0'"),
        ("01_matmul_add.py", "--wait -1", "argument --wait: expected a whole number, 0 or more, got '-1'"),
        (
            "01_matmul_add.py",
            "--dtype int8",
            "argument --dtype: invalid choice: 'int8' (choose from bf16, fp16, fp32)",
        ),
        (
            "01_matmul_add.py",
            "--compile_mode max-autotune",
            "--compile_mode max-autotune changes nothing without --compile: add --compile",
        ),
        (
            "01_matmul_add.py",
            "--op addmm --batch 8",
            "--op addmm takes matrices without a batch axis: drop --batch, or use --op matmul_add",
        ),
        (
            "01_matmul_add.py",
            "--op addmm --batch 1",
            "--op addmm takes matrices without a batch axis: drop --batch, or use --op matmul_add",
        ),
        (
            "04_c_sdpa_attention.py",
            "--backend fastest",
            "argument --backend: invalid choice: 'fastest' (choose from auto, math, flash, efficient, cudnn)",
        ),
        ("04_d_kernels_attention.py", "--dtype fp32", "--dtype fp32: FlashAttention-2 has kernels for bf16 and fp16 only"),
        ("04_d_kernels_attention.py", "--head_dim 264", "--head_dim 264: FlashAttention-2 has kernels for up to 256"),
        ("02_linear.py", "--size 64", "unrecognized arguments: --size 64"),
        ("01_matmul_add.py", "--sizee 64", "unrecognized arguments: --sizee 64 (did you mean --size?)"),
        ("01_matmul_add.py", "--warm-up", "unrecognized arguments: --warm-up (did you mean --warmup?)"),
    ],
)
def test_a_mistake_in_the_flags_is_one_message_and_exit_code_2(script, flags, message, capsys):
    with pytest.raises(SystemExit) as end:
        parse(script, *flags.split())
    assert end.value.code == 2
    first, *rest = capsys.readouterr().err.splitlines()
    choices = re.compile(r"(?<=choose from ).*(?=\))")  # some versions of Python quote each of them
    assert choices.sub(lambda found: found[0].replace("'", ""), first) == f"error: {message}"
    assert rest == [f"  all flags: uv run {script} --help"]
