"""Flags that must not be dead: two runs whose traces differ in a named thing, and nothing else need be known of it.

A flag that does nothing gives equal losses and tokens, too; the name of a run says what was asked for, not what was done.
"""

import argparse
import contextlib
import importlib
import json
from types import SimpleNamespace
from typing import Any

from common import job
from common.cli import LessonError
import pytest
import torch
from torch._inductor import config as inductor

LLM = ("--dtype", "fp32", "--prompt", "8", "--active", "1")
TRAIN = ("--dtype", "fp32", "--batch", "2", "--seq", "8", "--no-warmup", "--active", "1")
ATTENTION = ("--batch", "1", "--heads", "2", "--seq", "8", "--head_dim", "8")
# lesson, its flags, the flags in question, and the events of that name before and after
FLAGS = [
    ("01_matmul_add", (), ("--op", "addmm"), "aten::addmm", 0, 3),
    ("01_matmul_add", (), ("--batch", "4"), "aten::bmm", 0, 3),
    ("01_matmul_add", ("--size", "8"), ("--profile_memory",), "[memory]", False, True),
    ("01_matmul_add", ("--size", "8"), ("--with_stack",), "[memory]", False, False),
    ("04_c_sdpa_attention", ATTENTION, ("--backend", "math"), "aten::_scaled_dot_product_attention_math", 0, 3),
    ("05_a_llm_decode", LLM, ("--attention", "eager"), "aten::scaled_dot_product_attention", 2, 0),
    ("05_a_llm_decode", (*LLM, "--phase", "prefill"), ("--cache", "static"), "aten::index_copy_", 0, 4),
    ("05_c_train_step", TRAIN, ("--optimizer", "sgd"), "Optimizer.step#SGD.step", 0, 1),
    ("05_c_train_step", TRAIN, ("--implementation", "for-loop"), "aten::_fused_adamw_", 1, 0),
    ("05_c_train_step", TRAIN, ("--implementation", "foreach"), "aten::_foreach_addcdiv_", 0, 1),
    ("05_c_train_step", (*TRAIN, "--loader"), ("--workers", "1"),
     "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 1),
]  # fmt: skip


def recorded(lesson, folder, *flags):
    """The events of a run on the CPU."""
    folder.mkdir()
    module = importlib.import_module(lesson)
    module.main(module.parse_args(["--device", "cpu", *flags, "--trace_dir", str(folder)]))
    (trace,) = folder.glob("*.json")
    return json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(("lesson", "base", "flags", "name", "before", "after"), FLAGS, ids=lambda value: str(value)[:40])
def test_a_flag_changes_a_named_thing(lesson, base, flags, name, before, after, tmp_path):
    counts = [
        sum(event["name"] == name for event in recorded(lesson, tmp_path / folder, *base, *more))
        for folder, more in (("without", ()), ("with", flags))
    ]
    assert [type(wanted)(count) for wanted, count in zip((before, after), counts, strict=True)] == [before, after], counts


SMALL = {
    "01_matmul_add": ("--size", "8"),
    "02_linear": ("--batch", "2", "--in_dim", "4", "--out_dim", "5"),
    "03_simple_mlp": ("--batch", "1", "--seq", "2", "--dim", "4", "--hidden", "8"),
    "04_a_naive_attention": ATTENTION,
    "04_b_inplace_ops_attention": ATTENTION,
    "04_c_sdpa_attention": ATTENTION,
}


@pytest.mark.parametrize("lesson", SMALL)
def test_the_mode_of_compiling_is_torch_compiles(lesson, tmp_path, monkeypatch):
    modes = []
    monkeypatch.setattr(torch, "compile", lambda function, mode: modes.append(mode) or function)
    recorded(lesson, tmp_path / "compiled", *SMALL[lesson], "--compile", "--compile_mode", "max-autotune-no-cudagraphs")
    assert modes == ["max-autotune-no-cudagraphs"]


@pytest.mark.parametrize("lesson", ["03_kernels_mlp", "04_d_kernels_attention"])
def test_the_version_of_a_kernel_is_the_one_that_is_loaded(lesson, tmp_path, monkeypatch):
    module = importlib.import_module(lesson)

    def load(repo, version):
        raise LessonError(f"{repo} {version}")

    monkeypatch.setattr(module, "choose_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(module, "load_kernel", load)
    for version in ("2", "0123456789abcdef0123456789abcdef01234567"):
        with pytest.raises(LessonError, match=rf"^{module.REPO} {version}$"):
            module.main(module.parse_args(["--device", "cpu", "--kernel_version", version, "--trace_dir", str(tmp_path)]))


def test_the_decode_floor_is_compiled_to_a_graph_that_is_replayed():
    args = importlib.import_module("05_b_decode_floor").parse_args([])
    assert (args.rung, args.compile, args.compile_mode, args.cache) == ("graph", True, "reduce-overhead", "static")


def test_a_backend_is_the_one_of_its_name():
    backends = importlib.import_module("04_c_sdpa_attention").BACKENDS
    assert {name: backend and backend.name.split("_")[0].lower() for name, backend in backends.items()} == {
        "auto": None, "math": "math", "flash": "flash", "efficient": "efficient", "cudnn": "cudnn",
    }  # fmt: skip


def test_the_samples_of_the_loader_differ_and_hold_a_token_to_predict():
    lesson = importlib.import_module("05_c_train_step")
    first, other = (lesson.Samples(lesson.parse_args(["--loader", "--seq", "8", "--seed", seed])) for seed in ("0", "7"))
    assert first[3].shape == (9,) and torch.equal(first[3], first[3])
    assert not torch.equal(first[3], first[4]) and not torch.equal(first[3], other[3])


# The tensors of 01 ask for no gradient: nothing is kept there, either, but its ops have numbers.
@pytest.mark.parametrize("lesson", [lesson for lesson in SMALL if lesson != "01_matmul_add"])
def test_nothing_is_kept_for_a_backward_pass(lesson, tmp_path):
    """An op that makes a node of autograd has a number of it, and what it took is kept."""
    events = recorded(lesson, tmp_path / "run", *SMALL[lesson])
    assert [event["name"] for event in events if "Sequence number" in event.get("args", {})] == []


@pytest.mark.parametrize(("batch", "rows"), [(9, (7, 6, 5)), (4, (2, 1, 1))])
def test_each_step_of_a_varying_batch_has_one_row_less(batch, rows, tmp_path):
    """Two steps come before those that are recorded, and one row is the least."""
    flags = "--no-warmup", "--batch", str(batch), "--in_dim", "4", "--out_dim", "5", "--vary_batch", "--record_shapes"
    events = recorded("02_linear", tmp_path / "t", *flags)
    shapes = [event["args"]["Input Dims"][0] for event in events if event["name"] == "aten::linear"]
    assert shapes == [[n, 4] for n in rows]


@pytest.mark.parametrize("lesson", ["04_a_naive_attention", "04_b_inplace_ops_attention"])
def test_each_token_sees_itself_and_those_before_it(lesson, tmp_path, monkeypatch):
    module, masks = importlib.import_module(lesson), []

    def attention(q, k, v, mask):
        masks.append(mask)
        return q

    monkeypatch.setattr(module, "attention", attention)
    recorded(lesson, tmp_path / "t", "--batch", "1", "--heads", "1", "--seq", "3", "--head_dim", "4")
    assert masks[0].tolist() == [[False, True, True], [False, False, True], [False, False, False]]


def test_a_backend_has_compiled_kernels_of_its_own(tmp_path):
    recorded("04_c_sdpa_attention", tmp_path / "t", *ATTENTION, "--backend", "math")
    assert torch.compiler.config.cache_key_tag == "math"


@pytest.mark.parametrize(
    ("rung", "attention", "tuned"), [("graph", "sdpa", False), ("attention", "eager", True), ("int8", "eager", True)]
)
def test_each_rung_keeps_those_before_it(rung, attention, tuned, monkeypatch):
    """Asked of what the lesson sets, before it computes anything."""
    lesson = importlib.import_module("05_b_decode_floor")
    asked = []

    def stop(*_):
        raise InterruptedError

    def make(args, device, kind):
        asked.append(kind)
        return torch.nn.Linear(2, 2)

    monkeypatch.setattr(lesson, "make_model", make)
    monkeypatch.setattr(lesson, "Decoder", stop)
    with inductor.patch(coordinate_descent_tuning=not tuned):
        with pytest.raises(InterruptedError):
            lesson.main(lesson.parse_args(["--device", "cpu", "--rung", rung]))
        assert (asked, inductor.coordinate_descent_tuning) == ([attention], tuned)


def test_the_hubs_kernel_computes_causal_attention(monkeypatch):
    """As the other lessons of its part, which it is compared with."""
    lesson = importlib.import_module("04_d_kernels_attention")
    calls = []
    device = SimpleNamespace(type="cuda", name="a GPU", allocating=lambda args: contextlib.nullcontext())
    package = SimpleNamespace(flash_attn_func=lambda q, k, v, **more: calls.append((q.shape, more)))
    monkeypatch.setattr(lesson, "choose_device", lambda name: device)
    monkeypatch.setattr(lesson, "load_kernel", lambda repo, version: package)
    monkeypatch.setattr(lesson.torch, "randn", lambda shape, **_: torch.zeros(shape))

    def once(step, args, device):
        step()
        raise InterruptedError

    monkeypatch.setattr(lesson, "warm_up", once)
    with pytest.raises(InterruptedError):
        lesson.main(lesson.parse_args(list(ATTENTION)))
    assert calls == [((1, 8, 2, 8), {"causal": True})]


def test_each_rank_takes_the_gpu_of_its_number(monkeypatch):
    chosen: list[Any] = []
    monkeypatch.setattr(job.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(job.torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(job.torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(job, "choose_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(job.dist, "init_process_group", lambda backend, device_id: chosen.append((backend, device_id)))
    made = job._joined(argparse.Namespace(device="auto"), 5, 6, 2)
    assert chosen == [2, ("nccl", torch.device("cuda", 2))] and (made.rank, made.world) == (5, 6)
    with pytest.raises(LessonError, match="this machine has 3 GPUs"):
        job._joined(argparse.Namespace(device="cuda"), 3, 4, 3)
