"""`read-trace repro`: ops of the recordings as programs of their own, which run."""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys

from helpers import ROOT
import pytest
from trace_reader import cli

torch = pytest.importorskip("torch")
MLP = "gallery/h200/03_simple_mlp/64_128_768_3072_bf16_warm_eager_record_shapes.json"
ATTENTION = "gallery/h200/04_a_naive_attention/8_16_1024_64_bf16_warm_eager_record_shapes.json"
GPT, IMAGES = "exercises/cases/25_gpt_training.json.gz", "exercises/cases/26_images.json.gz"
TEN = [
    *((MLP, f"aten::{op}") for op in ("mm", "mul", "linear")),
    *((ATTENTION, f"aten::{op}") for op in ("mul", "masked_fill_", "bmm")),
    *((GPT, f"aten::{op}") for op in ("embedding", "native_layer_norm_backward", "arange")),
    (IMAGES, "aten::convolution"),
]
NO_SHAPES = "gallery/h200/01_matmul_add/64_bf16_cold_eager.json"


def program(trace, place, capsys):
    assert cli.main(["repro", str(ROOT / trace), place]) == 0
    return capsys.readouterr().out


def run(text, rounds=1):
    """Run a program in this process; return what it prints."""
    assert "\nROUNDS = 20\n" in text
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text.replace("\nROUNDS = 20\n", f"\nROUNDS = {rounds}\n"), "repro.py", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(("trace", "op"), TEN)
def test_ten_ops_run_on_a_cpu(trace, op, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = run(program(trace, op, capsys))
    assert re.fullmatch(r"recorded: [\d.]+ us \(NVIDIA H200\); here: [\d.]+ us \(CPU\), another device\n", said), said


def test_inputs_are_those_of_the_trace(capsys):
    text = program(MLP, "aten::mm", capsys)
    assert text.startswith(
        '"""aten::mm (of 2 kinds of inputs, those that take most): called as a trace has it, with random values.\n'
    )
    assert "RECORDED_US, RECORDED_ON = 56.432, 'NVIDIA H200'  # its kernels on the GPU, the median of 6 times\n" in text
    inputs = "tensor((8192, 768), (768, 1), torch.bfloat16), tensor((768, 3072), (1, 768), torch.bfloat16)"
    assert f"CALLS = [\n    call('mm', {inputs}),\n]\n" in text
    text = program(ATTENTION, "aten::masked_fill_", capsys)
    assert "tensor((1024, 1024), (1024, 1), torch.bool), float('-inf'))" in text
    ast.parse(text)


def test_a_number_of_python_is_no_tensor_of_the_gpu(capsys):
    """With one in its place the GPU's kernel is another, which takes 3.9 times as long."""
    text = program(ATTENTION, "aten::mul", capsys)
    assert ", tensor((), (), torch.float64))," in text
    found: dict[str, object] = {}
    exec(compile(text.partition("\nCALLS = [")[0], "repro.py", "exec"), found)
    assert found["tensor"]((), (), torch.float64).make(1).device.type == "cpu"  # type: ignore[operator]


def test_the_ops_of_a_finding_in_one_step(capsys):
    text = program(ATTENTION, "unfused-pointwise", capsys)
    assert text.startswith('"""the ops of unfused-pointwise, in one step: called')
    assert re.findall(r"    call\('(\w+)'", text) == ["mul", "masked_fill_"]
    text = program("exercises/cases/24_mlp_by_hand.json.gz", "views-launch-nothing", capsys)
    assert re.findall(r"    call\('(\w+)'", text) == ["t"] * 16  # each of which calls aten::transpose


def test_a_round_of_a_loop(tmp_path, capsys):
    """Of two products and an addition, eight times."""
    from torch.profiler import profile, record_function

    x, names = torch.randn(16, 16), []
    for _ in range(5):  # where another program holds the core between the ops, the loop saves too little to be a place
        with profile(record_shapes=True, acc_events=True) as profiler:
            for number in range(3):
                with record_function(f"ProfilerStep#{number}"):
                    for _ in range(8):
                        x = torch.tanh(torch.mm(x, x) + 1.5)
        profiler.export_chrome_trace(str(tmp_path / "t.json"))
        names = [place["name"] for place in told(tmp_path / "t.json", capsys) if place["kind"] == "loop"]
        if names:
            break
    text = program(tmp_path / "t.json", names[0], capsys)
    assert text.startswith('"""a round of the loop ')
    assert sorted(re.findall(r"    call\('(\w+)', ([^\n]*)\),\n", text)) == [
        ("add", "tensor((16, 16), (16, 1), torch.float32), tensor((), (), torch.float64), 1"),
        ("mm", "tensor((16, 16), (16, 1), torch.float32), tensor((16, 16), (16, 1), torch.float32)"),
        ("tanh", "tensor((16, 16), (16, 1), torch.float32)"),
    ]
    (tmp_path / "repro.py").write_text(text)
    done = subprocess.run([sys.executable, str(tmp_path / "repro.py")], capture_output=True, text=True, check=True)
    assert re.match(r"recorded: [\d.]+ us \(CPU\); here: [\d.]+ us \(", done.stdout), done.stdout


def test_calls_of_the_same_shapes_and_other_values_are_told_apart(tmp_path, capsys):
    """A sum over the rows, three times in a step, takes longer than one over the columns, which comes first in the file."""
    from torch.profiler import profile, record_function

    x, y = torch.randn(2000, 2000), torch.randn(2000, 2000)
    with profile(record_shapes=True, acc_events=True) as profiler:
        for number in range(3):
            with record_function(f"ProfilerStep#{number}"):
                for dim in (1, 0, 0, 0):
                    torch.cumsum(x, dim)
                torch.add(x, y, alpha=3)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    text = program(tmp_path / "t.json", "aten::cumsum", capsys)
    assert text.startswith('"""aten::cumsum (of 2 kinds of inputs, those that take most): ')
    assert "the median of 9 times" in text and "torch.float32), 0, NOT_RECORDED),\n" in text
    assert ", 3),\n" in program(tmp_path / "t.json", "aten::add", capsys)


def test_the_name_of_a_place_stays_out_of_it(tmp_path, capsys):
    from torch.profiler import profile, record_function

    x = torch.randn(64, 64)
    with profile(record_shapes=True, acc_events=True) as profiler:
        for number in range(3):
            with record_function(f"ProfilerStep#{number}"):
                x = torch.sin(x)
                with record_function("our_secret"):
                    y = torch.mm(x, x)
                x = torch.tanh(y)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    text = program(tmp_path / "t.json", "our_secret", capsys)
    assert "secret" not in text and re.findall(r"    call\('(\w+)'", text) == ["mm"]
    assert run(text).startswith("recorded: ")


def told(path, capsys):
    assert cli.main(["places", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["places"]


def test_it_is_written_where_one_says(tmp_path, capsys):
    assert cli.main(["repro", str(ROOT / MLP), "aten::mul", "-o", str(tmp_path / "r.py")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'r.py'}: run it with the Python that has torch\n"
    assert "call('mul', " in (tmp_path / "r.py").read_text()


@pytest.mark.parametrize(
    ("trace", "place", "why"),
    [
        (MLP, "nothing", "no op, place or finding is called 'nothing'"),
        (MLP, " ", "a place has a name: an op, a loop as `places` names it, or the id of a finding"),
        (NO_SHAPES, "aten::mm", "does not have the inputs of aten::mm: record with record_shapes=True"),
        (GPT, "aten::_fused_adamw_", "its lists of tensors are not in the trace"),
        (GPT, "unfused-pointwise", "more than the 60 of a small program; name one of them: aten::copy_ (147), aten::add (13)"),
    ],
)
def test_what_cannot_be_called(trace, place, why, capsys):
    assert cli.main(["repro", str(ROOT / trace), place]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("said", [{"Input type": None}, {"Concrete Inputs": 5}, {"Input Strides": 7}, {"Input type": {}}])
def test_inputs_that_are_no_lists_are_none(tmp_path, said, capsys):
    trace = json.loads((ROOT / MLP).read_text())
    for event in trace["traceEvents"]:
        if event.get("name") == "aten::mm":
            event["args"] |= said
    (tmp_path / "t.json").write_text(json.dumps(trace))
    assert cli.main(["repro", str(tmp_path / "t.json"), "aten::mm"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_values_that_do_not_fit_are_told(capsys):
    text = program(MLP, "aten::mm", capsys).replace("tensor((768, 3072)", "tensor((767, 3072)")
    with pytest.raises(SystemExit, match=r"aten::mm cannot be called so with torch [\w.+]+: RuntimeError: "):
        run(text)


@pytest.mark.gpu
def test_on_the_gpu_it_takes_what_was_recorded(capsys):
    """About as long, of ops that the GPU is busy with for 10 us and more, on the GPU that they were recorded on; of another type,
    or with other strides, it is twice as long or half. (Not among them: the softmax of the attention, whose inputs are masked
    there, takes 0.72 of that with random values.)
    """
    if torch.cuda.get_device_name() != "NVIDIA H200":
        pytest.skip("the recordings are an H200's")
    ratios = {}
    for trace, op in TEN:
        said = re.fullmatch(r"recorded: ([\d.]+) us .*, ([\d.]+) times as long\n", run(program(trace, op, capsys), rounds=20))
        assert said is not None
        if float(said[1]) >= 10:
            ratios[trace, op] = float(said[2])
    assert len(ratios) == 9 and {which: ratio for which, ratio in ratios.items() if not 0.6 <= ratio <= 1.6} == {}
