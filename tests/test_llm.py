"""The lessons with a language model, on the CPU and small: the same tokens whichever way, and what their traces hold."""

import importlib
import json
import re
from types import SimpleNamespace
from typing import Any

from common.cli import LessonError
from common.plain_step import PlainStep
from models import answering, decoding
from models.ladder import RUNGS
from models.llm import PUBLISHED, SIZES
import pytest
import torch
from trace_reader import read

SMALL = ("--device", "cpu", "--dtype", "fp32", "--prompt", "8", "--active", "1")
TRAIN = ("--device", "cpu", "--dtype", "fp32", "--batch", "2", "--seq", "8", "--no-warmup", "--no-plain", "--active", "1")


def run(lesson, tmp_path, *flags):
    tmp_path.mkdir(exist_ok=True)
    module = importlib.import_module(lesson)
    return module.main(module.parse_args([*flags, "--trace_dir", str(tmp_path)]))


def trace_of(tmp_path):
    (path,) = tmp_path.glob("*.json")
    return read(str(path))


def decoded(tmp_path, *flags):
    """Return the tokens that were written, and the logits of the last one."""
    decoder = run("05_a_llm_decode", tmp_path, *SMALL, *flags)
    return torch.cat(decoder.written, 1).tolist(), decoder.logits


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return decoded(tmp_path_factory.mktemp("expected"))


@pytest.mark.parametrize(
    "flags",
    [
        ("--cache", "static"),
        ("--attention", "eager"),
        ("--seed", "0"),
        pytest.param(("--cache", "static", "--compile"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_greedy_tokens_are_the_same_whichever_way(tmp_path, expected, flags):
    tokens, logits = decoded(tmp_path, *flags)
    assert tokens == expected[0]
    torch.testing.assert_close(logits, expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["cudnn", "efficient"])
def test_an_attention_of_which_torch_has_no_kernel_is_said_in_one_line(tmp_path, backend):
    with pytest.raises(LessonError, match=f"^--attention {backend}: torch has no such kernel for "):
        run("05_a_llm_decode", tmp_path, *SMALL, "--attention", backend)
    assert not list(tmp_path.iterdir())


def test_without_the_plain_steps_only_the_schedule_runs(tmp_path, capsys):
    decoder = run("05_a_llm_decode", tmp_path, *SMALL, "--no-warmup", "--no-plain", "--active", "2")
    assert len(decoder.written) == 1 + 1 + 2
    assert re.search(
        r"^tokens per second: [\d,]+ with the profiler \([\d.]+ ms per step\)$", capsys.readouterr().out, re.MULTILINE
    )


def test_another_seed_gives_other_tokens(tmp_path, expected):
    assert decoded(tmp_path, "--seed", "1")[0] != expected[0]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_what_was_written_before_changes_no_token(tmp_path, cache):
    """--again writes all tokens once, and begins again at the prompt: lengths are no new ones then, nothing else differs."""
    once = decoded(tmp_path / "a", "--cache", cache)[0]
    assert decoded(tmp_path / "b", "--cache", cache, "--again")[0] == once


@pytest.mark.parametrize("arch", ["llama", "gemma3", "smollm3"])
def test_each_architecture_decodes(tmp_path, arch):
    (written,), _ = decoded(tmp_path, "--arch", arch)
    assert len(written) == 3 + 3 + 11 and all(0 <= token < 512 for token in written)  # warm-up, in the schedule, plain


def test_a_step_is_one_forward_with_its_layers(tmp_path, capsys):
    run("05_a_llm_decode", tmp_path, *SMALL, "--layers", "3", "--active", "2")
    calls = {a.name: a.calls for a in trace_of(tmp_path).annotations}
    assert calls == {"decode_step": 2, "layer 0": 2, "layer 1": 2, "layer 2": 2}
    out = capsys.readouterr().out
    rates = r"^tokens per second: [\d,]+ without the profiler \([\d.]+ ms per step\), [\d,]+ with it \([\d.]+ ms per step\)$"
    assert re.search(rates, out, re.MULTILINE)
    # 3 layers of 64 x (64 + 32 + 32 + 64 + 3 x 128) and 64 + 64 + 2 x 16 in norms; 512 x 64 tokens; a last norm of 64; fp32
    weights = 3 * (64 * (64 + 32 + 32 + 64 + 3 * 128) + 160) + 512 * 64 + 64
    cache = 2 * 3 * 2 * 16 * 8
    assert f"floor: {4 * (weights + cache) / 1e6:.1f} MB of weights and cache, read once; how fast this device's memory" in out


@pytest.mark.parametrize(("phase", "tokens"), [("decode", 3), ("prefill", 21)])
def test_the_rates_of_a_device_whose_times_are_known(monkeypatch, capsys, phase, tokens):
    """Three sequences of seven tokens in 2 ms and, recorded, 4 ms; 48 MB of weights at 4,800 GB/s take 10 us."""
    config = SimpleNamespace(num_hidden_layers=5, num_key_value_heads=2000)
    model = SimpleNamespace(config=config, dtype=torch.bfloat16)
    args = SimpleNamespace(batch=3, prompt=7, phase=phase, head_dim=16)
    cache = 2 * 5 * 2000 * 16 * 7 * 3 * 2  # 13.4 MB
    monkeypatch.setattr(decoding, "weight_bytes", lambda model: 48_000_000 - cache)
    monkeypatch.setattr(decoding, "_recorded_us", lambda args: 4000.0)
    decoder: Any = SimpleNamespace(args=args, model=model, device=SimpleNamespace(name="NVIDIA H200"))
    decoding.print_rates(decoder, PlainStep(2000.0, 1900.0, 2100.0, 9))
    rates = f"{tokens * 500:,} without the profiler (2.00 ms per step), {tokens * 250:,} with it (4.00 ms per step)"
    floor = "floor: 48.0 MB of weights and cache, read once"
    assert capsys.readouterr().out == f"tokens per second: {rates}\n{floor}; so little may stay in the device's cache\n"
    monkeypatch.setattr(decoding, "IN_CACHE_BYTES", 0)
    decoding.print_rates(decoder, PlainStep(2000.0, 1900.0, 2100.0, 9))
    assert capsys.readouterr().out.endswith(f"\n{floor}, take 10.0 us at 4,800 GB/s; the step is 200.0 times as long\n")


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_prefill_reads_all_of_the_prompt_each_time(tmp_path, cache):
    decoder = run("05_a_llm_decode", tmp_path, *SMALL, "--phase", "prefill", "--cache", cache)
    assert decoder.cache.get_seq_length() == 8 and not decoder.written
    assert {a.name for a in trace_of(tmp_path).annotations} == {"prefill_fwd", "layer 0", "layer 1"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_like_stands_for_published_sizes_and_later_flags_count(name):
    module = importlib.import_module("05_a_llm_decode")
    arch, *sizes = PUBLISHED[name]
    args = module.parse_args(["--like", name])
    assert (args.arch, [getattr(args, size) for size in SIZES]) == (arch, sizes)
    assert module.parse_args([f"--like={name}", "--layers", "1"]).layers == 1


def test_heads_that_do_not_fit_are_one_line(lesson):
    done = lesson("05_a_llm_decode.py", "--device", "cpu", "--heads", "3")
    said = "error: --heads 3 are no multiple of --kv_heads 2: as many heads share each pair of keys and values\n"
    assert (done.code, done.err) == (2, said)


@pytest.mark.parametrize("implementation", ["foreach", "for-loop"])
def test_the_optimizers_implementations_agree(tmp_path, implementation):
    losses = [run("05_c_train_step", tmp_path / name, *TRAIN, "--implementation", name) for name in ("fused", implementation)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][-1] < losses[0][0]


@pytest.mark.parametrize(
    "flags", [("--checkpoint",), ("--log_loss",), pytest.param(("--compile",), marks=pytest.mark.slow)], ids=" ".join
)
def test_what_changes_the_work_changes_no_loss(tmp_path, flags):
    losses = [run("05_c_train_step", tmp_path / name, *TRAIN, *more) for name, more in (("plain", ()), ("other", flags))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_passes_that_accumulate_share_one_loss(tmp_path):
    """The same batch twice, each for half: the same gradients, step by step."""
    losses = [run("05_c_train_step", tmp_path / n, *TRAIN, "--accumulate", n) for n in ("1", "2")]
    assert [2 * loss for loss in losses[1]] == pytest.approx(losses[0], rel=1e-4)


def test_a_training_step_is_annotated(tmp_path):
    run("05_c_train_step", tmp_path, *TRAIN, "--accumulate", "2")
    calls = {a.name: a.calls for a in trace_of(tmp_path).annotations}
    assert calls == {
        "forward": 2, "loss": 2, "backward": 2, "optimizer": 1, "layer 0": 2, "layer 1": 2,
        "Optimizer.step#AdamW.step": 1, "Optimizer.zero_grad#AdamW.zero_grad": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("flags", "calls"), [((), 2), (("--checkpoint",), 4)])
def test_checkpointing_computes_each_layer_twice(tmp_path, flags, calls):
    run("05_c_train_step", tmp_path, *TRAIN, *flags)
    assert {op.name: op.calls for op in trace_of(tmp_path).ops}["aten::silu"] == calls


def test_a_loader_is_an_annotation_and_its_workers_need_it(tmp_path, lesson):
    run("05_c_train_step", tmp_path, *TRAIN, "--loader")
    assert any(a.name.startswith("enumerate(DataLoader)") for a in trace_of(tmp_path).annotations)
    done = lesson("05_c_train_step.py", "--workers", "1")
    assert done.code == 2 and done.err.startswith("error: --workers 1 changes nothing without --loader: add --loader\n")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of one layer, as transformers saves it."""
    from common.device import choose_device
    from models.llm import make_model

    module = importlib.import_module("05_a_llm_decode")
    args = module.parse_args(
        ["--device", "cpu", "--layers", "1", "--vocab", "64", "--head_dim", "32", "--seed", "3", "--dtype", "fp32"]
    )
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("models") / "tiny"
    make_model(args, choose_device("cpu")).save_pretrained(path)
    return str(path)


def test_a_checkpoint_brings_its_weights_architecture_and_sizes(tmp_path, checkpoint):
    decoder = run("05_a_llm_decode", tmp_path, *SMALL, "--model", checkpoint)
    assert (decoder.args.layers, decoder.args.vocab, decoder.args.arch) == (1, 64, "qwen3")
    assert (decoder.args.hidden, decoder.args.heads, decoder.args.head_dim) == (64, 4, 32)  # which need not be 64 / 4
    from transformers import AutoModelForCausalLM

    saved = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        tokens = decoder.prompt
        for _ in range(4):
            tokens = torch.cat([tokens, saved(input_ids=tokens).logits[:, -1:].argmax(-1)], 1)
    assert tokens[:, -3:].tolist() == torch.cat(decoder.written[:3], 1).tolist()
    (trace,) = tmp_path.glob("*.json")
    assert re.search(r"_model-[\w.-]*tiny-[0-9a-f]{8}\.json$", trace.name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--model", "{}", "--layers", "2"), 2, "--model brings its own architecture and sizes: leave --layers out"),
        (("--model", "{}", "--layers=2"), 2, "--model brings its own architecture and sizes: leave --layers=2 out"),
        (("--model", "{}/no"), 1, "--model {}/no: cannot be loaded: "),
        (("--model", "{}/../cut"), 1, "--model {}/../cut: cannot be loaded: "),
    ],
)
def test_a_checkpoint_that_cannot_be_taken_is_one_line(lesson, checkpoint, flags, code, said):
    done = lesson(
        "05_a_llm_decode.py", "--device", "cpu", *(flag.format(checkpoint) for flag in flags), env={"HF_HUB_OFFLINE": "1"}
    )
    assert done.code == code and done.err.startswith(f"error: {said.format(checkpoint)}") and done.err.count("\n") == 1


def test_a_model_of_another_kind_is_said(lesson, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    done = lesson("05_c_train_step.py", "--device", "cpu", "--model", str(tmp_path))
    said = f"error: --model {tmp_path}: of type gpt2; known are qwen3, llama, gemma3, smollm3\n"
    assert (done.code, done.err) == (2, said)


@pytest.mark.parametrize("rung", [pytest.param(rung, marks=pytest.mark.slow) for rung in ("graph", "tuned", "attention")])
def test_the_rungs_to_the_floor_write_the_same_tokens(tmp_path, expected, rung):
    decoder = run("05_b_decode_floor", tmp_path, *SMALL, "--rung", rung)
    assert torch.cat(decoder.written, 1).tolist() == expected[0]
    torch.testing.assert_close(decoder.logits, expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_eight_bits_are_near_and_are_a_quarter_of_fp32(tmp_path, expected, capsys):
    decoder = run("05_b_decode_floor", tmp_path, *SMALL, "--rung", "int8")
    # Each weight is off by half of 1/127 of its row's largest at most: through two layers, some percent of the logits.
    error = (decoder.logits - expected[1]).norm() / expected[1].norm()
    assert 0 < error < 0.2
    products = 2 * 64 * (64 + 32 + 32 + 64 + 3 * 128) + 512 * 64
    rows = 2 * (64 + 2 * 32 + 64 + 2 * 128 + 64) + 512
    norms, frequencies, cache = 2 * 160 + 64, 16, 2 * 2 * 2 * 16 * 8
    assert f"floor: {(products + 4 * (rows + norms + frequencies + cache)) / 1e6:.1f} MB of" in capsys.readouterr().out


@pytest.mark.slow
def test_each_rung_of_the_ladder_computes_what_the_naive_one_does(tmp_path):
    """The loss and the gradients' norm of each step; with products in 16 bits, nearly."""
    small = ("--layers", "2", "--dim", "32", "--heads", "4", "--vocab", "50", "--batch", "2", "--seq", "8", "--device", "cpu")
    found = {
        rung: run("05_d_ladder", tmp_path / rung, *small, "--rung", rung) for rung in RUNGS if rung not in ("compiled", "graph")
    }
    naive = torch.tensor(found.pop("naive"))[:8]
    assert naive.shape[0] > 3 and naive[0, 0] > naive[-1, 0] and naive.std() > 0
    for rung, one in found.items():
        apart = (torch.tensor(one)[:8] - naive).abs().max() / naive.abs().max()
        assert apart < (0.02 if rung == "bits" else 1e-5), (rung, apart)


ANSWER = ("--layers", "2", "--dim", "32", "--heads", "4", "--vocab", "50", "--batch", "2", "--prompt", "6", "--new", "5")


@pytest.mark.slow
def test_each_rung_of_the_answer_writes_what_the_naive_one_does(tmp_path):
    """The same tokens, in each step; where all is in 16 bits, as many."""
    rungs = [rung for rung in answering.RUNGS if rung != "graph"]
    written = {rung: run("05_e_answer_ladder", tmp_path / rung, *ANSWER, "--device", "cpu", "--rung", rung) for rung in rungs}
    naive = written.pop("naive")
    assert len(naive) > 3 and all(step == naive[0] for step in naive)
    assert [len(one) for one in naive[0]] == [5, 5] and all(0 <= token < 50 for one in naive[0] for token in one)
    for rung, steps in written.items():
        assert all(step == steps[0] for step in steps) and [len(one) for one in steps[0]] == [5, 5], rung
        assert steps[0] == naive[0] or rung in ("bits", "compiled"), rung


@pytest.mark.parametrize(
    ("rung", "rows", "positions"),
    [("naive", [6, 7, 8, 9, 10], [6, 7, 8, 9, 10]), ("last", [6, 7, 8, 9, 10], [1] * 5), ("cache", [6, 1, 1, 1, 1], [1] * 5),
     ("room", [6, 1, 1, 1, 1], [1] * 5)],
)  # fmt: skip
def test_how_many_tokens_each_pass_of_an_answer_computes(tmp_path, rung, rows, positions):
    """The first layer's input, and the positions of which the last product makes logits."""
    run("05_e_answer_ladder", tmp_path, *ANSWER, "--device", "cpu", "--rung", rung, "--active", "1", "--record_shapes")
    (path,) = tmp_path.rglob("*.json")
    ops = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op"]
    layers = [e["args"]["Input Dims"] for e in sorted(ops, key=lambda e: e["ts"]) if e["name"] == "aten::linear"]
    assert [first[1] for first, weight, *_ in layers if weight == [96, 32]][::2] == rows
    heads = [e["args"]["Input Dims"][0] for e in sorted(ops, key=lambda e: e["ts"]) if e["name"] == "aten::matmul"]
    assert [one[1] for one in heads if len(one) == 3 and one[-1] == 32] == positions


def test_a_rung_that_needs_a_gpu_says_so(lesson):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    ran = lesson("05_e_answer_ladder.py", "--rung", "graph", "--device", "cpu")
    assert (ran.code, ran.err) == (2, "error: --rung graph needs a GPU, and this run is on cpu. Take --rung compiled\n")
    ran = lesson("05_d_ladder.py", "--rung", "graph", "--device", "cpu")
    assert (ran.code, ran.err) == (2, "error: --rung graph needs a GPU, and this run is on cpu. Take --rung compiled\n")


def test_heads_divide_the_width(lesson):
    ran = lesson("05_d_ladder.py", "--dim", "10", "--heads", "4")
    assert ran.code == 2 and ran.err.startswith("error: --heads 4 is no divisor of --dim 10\n")


@pytest.mark.parametrize(
    ("argv", "compiles", "mode"),
    [
        (["--rung", "bits"], False, None),
        (["--rung=compiled"], True, None),
        (["--rung", "graph"], True, "reduce-overhead"),
        (["--rung", "naive", "--rung", "graph"], True, "reduce-overhead"),
        (["--rung", "graph", "--rung", "naive"], False, None),
        (["--rung", "compiled", "--compile_mode", "max-autotune"], True, "max-autotune"),
    ],
)
def test_a_rung_compiles_from_compiled_on(argv, compiles, mode):
    args = importlib.import_module("05_d_ladder").parse_args(argv)
    assert (args.compile, args.compile_mode) == (compiles, mode)
