"""The reader as tools for an agent: `read-trace mcp`, asked by the protocol's own client over standard input and output."""

import asyncio
import json
import os
import shutil
import sys

import pytest
from reader_helpers import GALLERY, TOOL
from trace_reader import cli
from trace_reader.commands.serve_tools import Tools
from trace_reader.errors import TraceError

NAIVE = GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json"
SDPA = GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_flash_bf16_warm_eager.json"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "traces"
    (folder / "in").mkdir(parents=True)
    shutil.copyfile(NAIVE, folder / "naive.json")
    shutil.copyfile(SDPA, folder / "in" / "step10.json")
    shutil.copyfile(SDPA, folder / "in" / "step9.json")
    (tmp_path / "secret.json").write_text("{}")
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    return folder


def asked(root, *calls):
    """Return what the server answers to these calls of tools, each as its text and whether it is an error; and its tools."""
    mcp = pytest.importorskip("mcp")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOL), os.environ.get("PYTHONPATH", "")])}
    command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "trace_reader", "mcp", str(root)], env=env)

    async def run():
        async with mcp.Client(command) as client:
            tools = await client.list_tools()
            answers = [await client.call_tool(name, arguments) for name, arguments in calls]
            return [tool.name for tool in tools.tools], [(answer.content[0].text, bool(answer.is_error)) for answer in answers]

    return asyncio.run(asyncio.wait_for(run(), 100))


def test_an_agent_lists_reads_shows_compares_and_asks_what_if(root):
    tools, answers = asked(
        root,
        ("traces", {}),
        ("read", {"trace": "naive.json"}),
        ("show", {"trace": "naive.json", "finding": "unfused-attention", "top": 2}),
        ("compare", {"before": "naive.json", "after": "in/step9.json"}),
        ("what_if", {"trace": "naive.json", "changes": ["drop aten::masked_fill", "no waits"]}),
    )
    assert tools == [
        "traces", "read", "next_steps", "places", "ops", "show", "time", "job", "memory", "compare", "check", "what_if",
    ]  # fmt: skip
    (listed, _), (read, _), (shown, _), (compared, _), (changed, _) = answers
    assert not any(is_error for _, is_error in answers)
    assert listed.split("\n") == ["in/step9.json", "in/step10.json", "naive.json"]  # not what a link leads out to
    assert "\nverdict: gpu-bound: 87% of the critical path is GPU compute" in read and "1. unfused-attention (saves" in read
    assert "15 slices, 2.81 ms together:" in shown and "and 13 more" in shown
    assert "naive.json" in compared and "flash" in compared
    assert "recorded" in changed and "masked_fill" in changed


def test_what_is_asked_wrongly_is_told_in_words(root):
    _, answers = asked(
        root,
        ("read", {"trace": "../secret.json"}),
        ("read", {"trace": str(NAIVE)}),
        ("read", {"trace": "link.json"}),
        ("read", {"trace": "http://localhost/x.json"}),
        ("show", {"trace": "naive.json", "finding": "nothing"}),
        ("what_if", {"trace": "naive.json", "changes": ["drop ("]}),
        ("what_if", {"trace": "naive.json", "changes": ["fly"]}),
    )
    assert all(is_error for _, is_error in answers)
    for (text, _), name in zip(answers, ("../secret.json", str(NAIVE), "link.json", "http://localhost/x.json"), strict=False):
        assert f"{name!r} is not among the traces; `traces` lists them" in text
    assert "no finding is called 'nothing'" in answers[4][0] and "Traceback" not in "".join(text for text, _ in answers)


@pytest.mark.parametrize("name", ["..", "", ".", "in", "naive.json\0", "in/../../secret.json", "s3://x/y.json", "-"])
def test_no_path_leads_out_of_the_root(root, name):
    with pytest.raises(TraceError, match="is not among the traces"):
        Tools(root).read(name)


def test_without_a_folder_or_the_sdk_it_is_said(tmp_path, capsys, monkeypatch):
    assert cli.main(["mcp", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'}: not a folder\n"
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert cli.main(["mcp", str(tmp_path)]) == 1
    assert "install read-trace with it, read-trace[mcp]" in capsys.readouterr().err


def test_an_agent_asks_what_is_next_where_the_time_goes_and_whether_it_is_worse(root):
    _, answers = asked(
        root,
        ("next_steps", {"trace": "naive.json"}),
        ("time", {"trace": "naive.json", "by": "annotation"}),
        ("time", {"trace": "naive.json", "by": "luck"}),
        ("check", {"new": ["naive.json"], "baseline": ["in/step9.json"]}),
    )
    told = json.loads(answers[0][0])["next"]
    assert [one["place"] for one in told] == ["unfused-attention", "hidden-copy", "unfused-pointwise"]
    assert (round(told[0]["low"], 3), round(told[0]["high"], 3), told[0]["line"]) == (0.85, 0.966, None)
    assert told[0]["change"].startswith("Use F.scaled_dot_product_attention with a fused backend")
    assert "ProfilerStep" in answers[1][0] or "annotation" in answers[1][0]
    assert answers[2] == ("expected one of annotation, layer, stack, got 'luck'", True) or answers[2][1]
    assert answers[3][0].startswith("worse than the baseline (1 run beside 1 run)\n")


def test_an_agent_asks_of_ops_of_a_job_and_of_memory(root):
    shapes = GALLERY / "03_simple_mlp" / "64_128_768_3072_bf16_warm_eager_record_shapes.json"
    shutil.copyfile(shapes, root / "shapes.json")
    for rank in (0, 1):
        shutil.copyfile(
            GALLERY.parent / "several_gpus" / f"data_parallel_slow30_rank{rank}.json.gz", root / f"job_rank{rank}.json.gz"
        )
    for name in ("before", "after"):
        shutil.copyfile(TOOL / "tests" / "data" / "snapshot" / f"{name}.pickle", root / f"{name}.pickle")
    _, answers = asked(
        root,
        ("ops", {"trace": "shapes.json"}),
        ("job", {"traces": ["job_rank0.json.gz", "job_rank1.json.gz"]}),
        ("memory", {"snapshot": "before.pickle"}),
        ("memory", {"snapshot": "before.pickle", "later": "after.pickle"}),
        ("memory", {"snapshot": "../secret.json"}),
        ("memory", {"snapshot": ""}),
        ("job", {"traces": []}),
    )
    assert "8192x768, 768x3072 bf16" in answers[0][0] and "Ops by shape (per step; of peak: of the limit" in answers[0][0]
    assert "rank 1" in answers[1][0].split("\n\n")[1]
    assert "before.pickle" in answers[2][0] and "after.pickle" not in answers[2][0]
    assert "after.pickle" in answers[3][0] and [is_error for _, is_error in answers] == [False] * 4 + [True] * 3


def test_programs_are_run_only_where_that_is_allowed(tmp_path):
    assert Tools(tmp_path).try_program not in Tools(tmp_path).all()
    own = Tools(tmp_path, allow_run=True)
    assert own.try_program in own.all()
    said = own.try_program(["nothing.py"])
    assert said == "exit code 2\n\nerror: no program is called 'nothing.py'\n"
