"""What is next, for programs and for agents."""

import json

from reader_helpers import GALLERY
from trace_reader import cli
from trace_reader.commands.write_skill import FILE

NAIVE = GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json"


def test_the_changes_as_json(capsys):
    assert cli.main(["brief", str(NAIVE), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    first = told["next"][0]
    assert list(first) == ["place", "seen", "file", "line", "change", "low", "high", "how_to_check"]
    assert first["place"] == "unfused-attention" and first["file"] is None
    assert first["how_to_check"].startswith(f"read-trace show {NAIVE} unfused-attention; ")


def test_the_skill_is_printed_and_written(tmp_path, capsys):
    assert cli.main(["skill"]) == 0
    text = capsys.readouterr().out
    assert text == FILE.read_text() and text.startswith("---\nname: profile\ndescription: ") and text.count("\n") <= 60
    assert cli.main(["skill", "--to", str(tmp_path / "skills")]) == 0
    target = tmp_path / "skills" / "profile" / "SKILL.md"
    assert capsys.readouterr().out == f"wrote {target}\n" and target.read_text() == text


def test_the_skills_commands_are_commands(capsys, monkeypatch, tmp_path):
    """Each that reads a trace is run; those that run a program are in tests of the whole."""
    lines = [line.split("`")[1] for line in FILE.read_text().splitlines() if line.startswith("- `read-trace")]
    assert len(lines) == 6
    for line in lines:
        words = line.replace("'drop aten::item'", "'drop aten::softmax'").replace("TRACE", str(NAIVE))
        words = words.replace("BEFORE", str(NAIVE)).replace("AFTER", str(NAIVE))
        before, quoted, rest = (*words.split("'"), "", "")[:3]
        argv = [*before.split(), *([quoted] if quoted else []), *rest.split()][1:]
        code = cli.main(argv)
        said = capsys.readouterr()
        assert code == 0 or "stack" in said.err, (line, said.err)
