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
from common.device import choose_device
import numpy as np
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
    ("05_a_llm_decode", LLM, ("--attention", "math"), "aten::_scaled_dot_product_attention_math", 0, 2),
    ("05_a_llm_decode", (*LLM, "--phase", "prefill"), ("--cache", "static"), "aten::index_copy_", 0, 4),
    ("05_c_train_step", TRAIN, ("--optimizer", "sgd"), "Optimizer.step#SGD.step", 0, 1),
    ("05_c_train_step", TRAIN, ("--implementation", "for-loop"), "aten::_fused_adamw_", 1, 0),
    ("05_c_train_step", TRAIN, ("--implementation", "foreach"), "aten::_foreach_addcdiv_", 0, 1),
    ("05_c_train_step", (*TRAIN, "--loader"), ("--workers", "1"),
     "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 1),
]  # fmt: skip


def run_of(lesson, folder, *flags):
    """Return what a lesson's main gives back, on the CPU."""
    module = importlib.import_module(lesson)
    return module.main(module.parse_args(["--device", "cpu", *flags, "--trace_dir", str(folder)]))


def recorded(lesson, folder, *flags):
    """Return the events of a run on the CPU."""
    folder.mkdir()
    run_of(lesson, folder, *flags)
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


@pytest.mark.slow
@pytest.mark.parametrize("lesson", SMALL)
def test_the_mode_of_compiling_is_torch_compiles(lesson, tmp_path, monkeypatch):
    modes = []

    def compile(function, mode):
        modes.append(mode)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    recorded(lesson, tmp_path / "compiled", *SMALL[lesson], "--compile", "--compile_mode", "max-autotune-no-cudagraphs")
    assert modes == ["max-autotune-no-cudagraphs"]


class Reached(Exception):
    """What a lesson would work with: here it ends."""


@pytest.fixture
def batch_of(monkeypatch, tmp_path):
    """A rank's part of the batch, as its first step gets it; of two ranks on two machines, so each is rank 0 of its own."""

    def reach(lesson, rank, *flags):
        module = importlib.import_module(lesson)

        @contextlib.contextmanager
        def alone(args):
            yield job.Job(choose_device("cpu"), rank, 2, 0)

        def stop(model, optimizer, x, **_):
            raise Reached(x)

        monkeypatch.setattr(module, "job", alone)
        monkeypatch.setattr(module, "train_step", stop)
        for name in ("DistributedDataParallel", "fully_shard", "parallelize_module", "init_device_mesh"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda model, *_, **__: model)
        small = "--layers", "1", "--dim", "8", "--batch", "3", "--seq", "5", "--dtype", "fp32", "--device", "cpu", "--trace_dir"
        with pytest.raises(Reached) as reached:
            module.main(module.parse_args([*small, str(tmp_path), *flags]))
        return reached.value.args[0]

    return reach


@pytest.mark.parametrize("lesson", ["06_a_data_parallel", "06_b_sharded", "06_c_tensor_parallel"])
def test_the_seed_decides_the_batch_of_a_job(lesson, batch_of):
    first, again, other = (batch_of(lesson, 0, "--seed", seed) for seed in ("1", "1", "2"))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("lesson", ["06_a_data_parallel", "06_b_sharded"])
def test_each_rank_trains_on_its_own_part_of_the_batch(lesson, batch_of):
    whole = torch.randn((6, 5, 8), generator=torch.Generator().manual_seed(4))
    parts = [batch_of(lesson, rank, "--seed", "4") for rank in (0, 1)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_sequence_is_cut_only_where_it_is_asked_for(batch_of):
    """Five tokens for two ranks."""
    assert batch_of("06_c_tensor_parallel", 1).shape == (3, 5, 8)
    with pytest.raises(LessonError, match=r"^--seq 5 must be a multiple of the 2 ranks$"):
        batch_of("06_c_tensor_parallel", 1, "--sequence_parallel")
    assert batch_of("06_c_tensor_parallel", 1, "--sequence_parallel", "--seq", "6").shape == (3, 3, 8)


class Language:
    """Triton's language for one program, on the CPU; its numbers have 32 bits, as the GPU's have."""

    int64, float32 = np.int64, np.float32

    def __init__(self, program):
        self.program, self.stored = program, []

    def program_id(self, axis):
        class Number(np.int32):
            def to(self, dtype):
                return dtype(self)

        return Number(self.program)

    def arange(self, first, end):
        return np.arange(first, end, dtype=np.int32)

    def load(self, address, mask=None):
        return address

    def store(self, address, value, mask=None):
        self.stored.append(address)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_an_index_beyond_32_bits_is_the_right_one(monkeypatch):
    lesson = importlib.import_module("03_triton_mlp")
    language = Language(2**31 // lesson.BLOCK + 5)
    monkeypatch.setattr(lesson, "tl", language)
    monkeypatch.setattr(lesson, "geglu_of", lambda gate, up: gate)
    kernel = getattr(lesson.geglu_kernel, "fn", lesson.geglu_kernel)
    kernel(0, 0, 0, 2**32, lesson.BLOCK)
    ((first, *_, last),) = language.stored
    assert (first, last) == (2**31 + 5 * lesson.BLOCK, 2**31 + 6 * lesson.BLOCK - 1)


def test_flash_attention_has_kernels_up_to_256_features_per_head(capsys):
    lesson = importlib.import_module("04_d_kernels_attention")
    assert lesson.parse_args(["--head_dim", "256"]).head_dim == 256
    with pytest.raises(SystemExit):
        lesson.parse_args(["--head_dim", "257"])
    assert capsys.readouterr().err.startswith("error: --head_dim 257: FlashAttention-2 has kernels for up to 256\n")


def test_a_static_cache_has_room_for_all_steps(tmp_path):
    """Those that the schedule waits for are steps, too."""
    decoder = run_of("05_a_llm_decode", tmp_path, *LLM, "--layers", "1", "--cache", "static", "--wait", "3")
    assert decoder.tokens == 8 + len(decoder.written) + 1


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


def test_a_step_begins_without_the_gradients_of_the_one_before(tmp_path):
    """Else the backward pass of the second step would add to them."""
    events = recorded("05_c_train_step", tmp_path / "run", *TRAIN[:-1], "2", "--wait", "0", "--schedule_warmup", "0")
    steps = sorted((e["ts"], e["dur"]) for e in events if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation")
    added = [sum(e["name"] == "aten::add_" and start <= e["ts"] < start + dur for e in events) for start, dur in steps]
    assert len(added) == 2 and added[0] == added[1]


def test_weights_in_8_bits_are_the_weights_within_half_a_unit():
    lesson = importlib.import_module("05_b_decode_floor")
    linear = torch.nn.Linear(3, 2, bias=False)
    linear.weight.data = torch.tensor([[1.0, -1.0, 0.3], [0.5, 0.02, -0.25]])
    small = lesson.Int8Linear(linear)
    assert small.weight.tolist() == [[127, -127, 38], [127, 5, -64]]
    assert torch.allclose(small.weight * small.scale[:, None], linear.weight, atol=1 / 254)


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
