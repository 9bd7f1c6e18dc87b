"""Loading a kernel package: local folder, cache, and what is said when there is neither Hub nor copy."""

from http.server import BaseHTTPRequestHandler, HTTPServer
import json
import subprocess
import threading

from helpers import ROOT, stand_ins
import pytest
import torch

REPO = "kernels-community/liger-kernels"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there


def package(folder):
    """Return a kernel package for any build of this torch's backend, whose module has `answer = 42`."""
    return stand_ins.package(folder, "answer = 42\n", backend="cuda" if torch.version.cuda else "cpu")


@pytest.fixture
def load(forked_lessons, tmp_path, monkeypatch):
    """Load the package in a process of its own, with a cache of its own, and print what is `wanted` of it."""

    def run(wanted="answer", version="1", **env):
        code = f"""
from common.cli import LessonError
from common.hub import load_kernel, version_or_commit
try:
    print(load_kernel({REPO!r}, version_or_commit({version!r})).{wanted})
except LessonError as error:
    sys.exit(f"error: {{error}}")
"""
        return run_code(forked_lessons, tmp_path, code, CUDA_VISIBLE_DEVICES="", HF_HUB_CACHE=str(tmp_path / "hub"), **env)

    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    return run


def run_code(forked_lessons, tmp_path, code, **env):
    """(exit code, stdout, stderr) of a script beside common/."""
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}")
    return forked_lessons([str(script)], ROOT, env)


class StandIn(HTTPServer):
    """What the fixture `hub` gives; a test sets what it answers."""

    url: str
    status: int
    answer: dict[str, object]


@pytest.fixture
def hub():
    """A stand-in for the Hub on 127.0.0.1 that answers `status` to everything."""

    class Handler(BaseHTTPRequestHandler):
        server: StandIn

        def do_GET(self):
            body = json.dumps({"name": "kernels-community", "type": "org", **self.server.answer}).encode()
            self.send_response(self.server.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = StandIn(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    server.answer = {}
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_local_folder_stands_in_for_the_download(load, tmp_path):
    code, out, err = load(HF_ENDPOINT=NOWHERE, LOCAL_KERNELS=f"{REPO}={package(tmp_path / 'local')}")
    assert (code, out, err) == (0, "42\n", "")


@pytest.mark.skipif(not torch.version.cuda, reason="the recipe's package is built for CUDA, and this torch is not")
def test_the_recipe_of_the_docs_makes_a_package_with_the_layer(load, tmp_path):
    recipe = (ROOT / "docs" / "without_gpu.md").read_text().partition("mkdir -p liger/")[2].partition("LOCAL_KERNELS=")[0]
    subprocess.run(f"mkdir -p liger/{recipe}", shell=True, cwd=tmp_path, check=True)
    code, out, err = load("layers.LigerGEGLUMLP.__name__", HF_ENDPOINT=NOWHERE, LOCAL_KERNELS=f"{REPO}={tmp_path}/liger")
    assert (code, out, err) == (0, "LigerGEGLUMLP\n", "")


def test_the_cache_serves_when_the_hub_cannot_be_reached(load, tmp_path):
    cached = tmp_path / "hub" / f"kernels--{REPO.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    package(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text(commit)
    code, out, err = load(HF_ENDPOINT=NOWHERE)
    assert (code, out, err) == (0, "42\n", "")


def test_a_commit_is_taken_as_it_is(load, tmp_path):
    """No version points to it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    package(tmp_path / "hub" / f"kernels--{REPO.replace('/', '--')}" / "snapshots" / commit)
    assert load(version=commit, HF_ENDPOINT=NOWHERE) == (0, "42\n", "")
    code, _, err = load(version="f" * 40, HF_ENDPOINT=NOWHERE)
    assert code == 1 and err.startswith(f"error: cannot load {REPO} version {'f' * 40}: the Hub")


def test_no_hub_and_no_copy_says_what_failed_and_gives_the_ways_out(load, tmp_path):
    code, out, err = load(HF_ENDPOINT=NOWHERE)
    assert (code, out) == (1, "")
    assert err == (
        f"error: cannot load {REPO} version 1: the Hub ({NOWHERE}) cannot be reached ([Errno 111] Connection refused), "
        f"and the cache ({tmp_path}/hub) has no copy.\n"
        "With a network, run it once: the download stays in the cache. Without one, name a folder of yours that holds "
        f'build/torch-cuda/metadata.json and __init__.py: LOCAL_KERNELS="{REPO}=FOLDER" uv run ... '
        "(docs/without_gpu.md)\n"
    )


def test_a_hub_that_refuses_is_quoted(load, tmp_path, hub):
    hub.status = 403
    code, _, err = load(HF_ENDPOINT=hub.url)
    assert code == 1
    assert err.startswith(f"error: cannot load {REPO} version 1: ") and "403" in err
    assert "trust" not in err


def test_a_publisher_that_the_hub_does_not_trust_is_never_taken_from_the_cache(load, tmp_path, hub):
    hub.status, hub.answer = 200, {"fullname": "Kernels", "numModels": 0, "avatarUrl": ""}
    cached = tmp_path / "hub" / f"kernels--{REPO.replace('/', '--')}"
    commit = "0" * 40
    package(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text(commit)  # as good a copy as test_the_cache_serves_... has
    code, _, err = load(HF_ENDPOINT=hub.url)
    assert code == 1
    assert "is not from a trusted publisher" in err


def test_a_local_folder_without_a_build_says_so(load, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = load(HF_ENDPOINT=NOWHERE, LOCAL_KERNELS=f"{REPO}={tmp_path}/empty")
    assert code == 1
    assert f"Cannot find a build variant for this system in {tmp_path}/empty" in err


OFFLINE = """
import errno, socket, ssl, types
calls = []
def get_kernel(repo, version):
    from huggingface_hub import constants
    calls.append((repo, version, constants.HF_HUB_OFFLINE))
    if len(calls) == 1:
        raise RuntimeError("could not verify publisher trust status") from CAUSE
    return types.SimpleNamespace(answer="from the cache")
sys.modules["kernels"] = types.SimpleNamespace(get_kernel=get_kernel)
from common.cli import LessonError
from common.hub import load_kernel, version_or_commit
try:
    print(load_kernel("a/b", 7).answer)
except LessonError as error:
    print(error)
print(calls)
"""


@pytest.mark.parametrize(
    "cause",
    [
        "ConnectionRefusedError('no')",
        "TimeoutError('too long')",
        "socket.gaierror(-2, 'Name or service not known')",
        "ssl.SSLError('certificate')",
        "OSError(errno.ENETUNREACH, 'Network is unreachable')",
        "OSError(errno.EHOSTUNREACH, 'No route to host')",
    ],
)
def test_a_hub_that_cannot_be_reached_in_any_way_leaves_the_cache(forked_lessons, tmp_path, cause):
    _, out, err = run_code(forked_lessons, tmp_path, OFFLINE.replace("CAUSE", cause), HF_HUB_OFFLINE="0")
    assert out == "from the cache\n[('a/b', 7, False), ('a/b', 7, True)]\n", err


@pytest.mark.parametrize("cause", ["PermissionError('401')", "ValueError('no such version')", "OSError(errno.ENOSPC, 'full')"])
def test_any_other_failure_is_told_and_never_answered_from_the_cache(forked_lessons, tmp_path, cause):
    _, out, _ = run_code(forked_lessons, tmp_path, OFFLINE.replace("CAUSE", cause), HF_HUB_OFFLINE="0")
    said, calls = out.splitlines()
    assert said.startswith("cannot load a/b version 7: ") and "trust" not in said
    assert calls == "[('a/b', 7, False)]"
