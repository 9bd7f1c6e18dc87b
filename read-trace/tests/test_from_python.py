"""The package as a library: what its README shows, and the table of events."""

import re
import shutil

import pytest
from reader_helpers import GALLERY, TOOL
from trace_reader import cli, load, replay, to_html

NAIVE = GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json"
SHAPES = GALLERY / "01_matmul_add" / "4096_bf16_warm_eager_record_shapes.json"
pandas = pytest.importorskip("pandas")


def test_the_readmes_program_runs(tmp_path, monkeypatch, capsys):
    (code,) = [
        one for one in re.findall(r"```python\n(.*?)```", (TOOL / "README.md").read_text("utf-8"), re.DOTALL) if "load" in one
    ]
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(NAIVE, "trace.json")
    exec(code, {})
    out = capsys.readouterr().out
    assert out.startswith("gpu-bound ['gpu-bound', 'unfused-attention'") and "count" in out
    assert (tmp_path / "trace.html").read_bytes() == to_html("trace.json")


def test_events_say_what_was_recorded_of_them():
    events = load(str(SHAPES)).events()
    op = events[events.name == "aten::mm"].iloc[0]
    assert op["shapes"][:2] == ((4096, 4096), (4096, 4096)) and op["types"][:2] == ("c10::BFloat16", "c10::BFloat16")
    kernel = events[events.kind == "kernel"].iloc[0]
    assert len(kernel.grid) == 3 and len(kernel.block) == 3 and kernel.shapes is None
    call = events.loc[kernel.call]
    assert kernel.correlation == call.correlation > 0 and call.kind == "call"
    assert events.loc[kernel.op, "name"] == "aten::mm"
    copies = load(str(NAIVE)).events().query("kind == 'memcpy'")
    assert set(copies["bytes"]) == {268435456} and set(events[events.kind == "op"]["bytes"].isna()) == {True}


def test_a_page_is_the_commands(tmp_path):
    assert cli.main([str(NAIVE), "--html", str(tmp_path / "a.html"), "--all"]) == 0
    assert len(to_html(str(NAIVE))) > 50_000
    assert b"recorded" in to_html(str(NAIVE), str(SHAPES))


def test_a_replay_is_the_commands_answer():
    changed = replay(str(NAIVE), "drop aten::masked_fill")
    assert changed.changes == ("drop aten::masked_fill",) and 0 < changed.changed_high_us < changed.plain.low_us
    with pytest.raises(ValueError, match="fly"):
        replay(str(NAIVE), "fly")


@pytest.mark.slow
def test_the_notebook_prints_what_it_holds(monkeypatch):
    """Run by Jupyter's own client, in its folder."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    stored = nbformat.read(TOOL / "docs" / "notebook.ipynb", 4)
    fresh = nbformat.read(TOOL / "docs" / "notebook.ipynb", 4)
    nbclient.NotebookClient(fresh, timeout=120, resources={"metadata": {"path": TOOL / "docs"}}).execute()

    def printed(notebook):
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        return [[output.get("text") or output.data["text/plain"] for output in cell.outputs] for cell in cells]

    assert printed(fresh) == printed(stored) and len(printed(stored)) == 7
