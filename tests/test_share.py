"""Sharing: the installed trace-util over a folder that lessons wrote, with only its calls to the Hub replaced."""

from types import SimpleNamespace

from huggingface_hub import BucketFile
import pytest

cli = pytest.importorskip("trace_util.cli", reason="needs trace-util, which `uv run` installs")
core = pytest.importorskip("trace_util.core")


@pytest.fixture
def hub(monkeypatch):
    """A Hub that keeps what was synced in a list."""
    synced = []

    def create_bucket(name, exist_ok, token):
        uri = SimpleNamespace(to_uri=lambda: f"hf://buckets/{name}", to_url=lambda: f"https://huggingface.co/buckets/{name}")
        return SimpleNamespace(uri=uri, bucket_id=name)

    def sync_bucket(source, dest, delete, token):
        from pathlib import Path

        files = sorted(str(path.relative_to(source)) for path in Path(source).rglob("*") if path.is_file())
        synced.append((dest, delete, files))

    def list_bucket_tree(bucket, recursive, token):
        return [BucketFile(type="file", path=path, size=1, xetHash="0" * 64) for path in synced[-1][2]]

    monkeypatch.setattr(core, "login", lambda token: None)
    for name, replacement in (
        ("create_bucket", create_bucket),
        ("sync_bucket", sync_bucket),
        ("list_bucket_tree", list_bucket_tree),
    ):
        monkeypatch.setattr(core, name, replacement)
    return synced


@pytest.mark.slow
def test_both_artifacts_are_synced_and_each_gets_a_link(lesson, tmp_path, hub, capsys):
    for script, size in (("01_matmul_add.py", "--size"), ("02_linear.py", "--batch")):
        folder = tmp_path / "traces" / script.removesuffix(".py")
        assert lesson(script, "--device", "cpu", size, "8", folder=folder).code == 0
    assert cli.main(["-f", str(tmp_path / "traces"), "-b", "someone/traces", "--no-color"]) == 0
    names = ["01_matmul_add/8_bf16_cold_eager_device-cpu", "02_linear/8_32_64_bf16_warm_eager_device-cpu"]
    files = [f"{name}{suffix}" for name in names for suffix in (".json", ".txt")]
    assert hub == [("hf://buckets/someone/traces", True, files)]  # True: what is not in the folder is deleted
    out = capsys.readouterr().out
    for path in files:
        assert f"https://ui.perfetto.dev/#!/?url=https://huggingface.co/buckets/someone/traces/resolve/{path}\n" in out


def test_no_delete_keeps_what_is_in_the_bucket(tmp_path, hub):
    (tmp_path / "a.json").write_text("{}")
    assert cli.main(["-f", str(tmp_path), "-b", "someone/traces", "--no-delete"]) == 0
    assert hub[0][1] is False
