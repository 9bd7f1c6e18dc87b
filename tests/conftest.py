"""Running lessons as their users do, and reading what they wrote."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
import contextlib
from dataclasses import dataclass
import datetime
import gzip
import json
import os
from pathlib import Path
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
GALLERY = ROOT / "gallery" / "h200"
sys.path.insert(0, str(ROOT))
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
LESSONS = sorted(path.name for path in ROOT.glob("0[1-9]_*.py"))  # 00_doctor.py is none
SMALL_ATTENTION = ("--batch", "1", "--heads", "2", "--seq", "256")
SMALL_MLP = ("--batch", "2", "--seq", "8", "--dim", "32", "--hidden", "64")


def fuzz_seed() -> int:
    """What tests/test_fuzz.py begins with: FUZZ_SEED, or today's date."""
    return int(os.environ.get("FUZZ_SEED") or datetime.date.today().strftime("%Y%m%d"))


def free_ports(n: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as open_now:
        servers = [open_now.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [server.getsockname()[1] for server in servers]


def pytest_report_header():
    return f"fuzz seed: {fuzz_seed()}"


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch finds none here"))


@dataclass(frozen=True)
class Trace:
    """The events of a Chrome trace, with what the tests ask of them."""

    events: list[dict]

    @classmethod
    def load(cls, path: Path) -> "Trace":
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return cls([event for event in json.loads(data)["traceEvents"] if event.get("ph") == "X"])

    def named(self, name: str) -> list[dict]:
        return [event for event in self.events if event["name"] == name]

    def of(self, *categories: str) -> list[dict]:
        return [event for event in self.events if event.get("cat") in categories]

    def steps(self) -> list[str]:
        """The recorded steps on the CPU's lane, in order."""
        steps = [e for e in self.of("user_annotation") if e["name"].startswith("ProfilerStep#")]
        return [event["name"] for event in sorted(steps, key=lambda event: event["ts"])]

    def inside(self, outer: dict) -> list[dict]:
        end = outer["ts"] + outer["dur"]
        return [e for e in self.events if e["tid"] == outer["tid"] and outer["ts"] <= e["ts"] < end and e is not outer]

    def ops(self, step: str) -> list[str]:
        """The aten ops of a step, in the order they begin."""
        (outer,) = [e for e in self.of("user_annotation") if e["name"] == step]
        ops = [e for e in self.inside(outer) if e.get("cat") == "cpu_op" and e["name"].startswith("aten::")]
        return [event["name"] for event in sorted(ops, key=lambda event: event["ts"])]

    def launched_by(self, step: str) -> list[dict]:
        """The GPU events that the calls of a step launched, whenever they ran."""
        (outer,) = [e for e in self.of("user_annotation") if e["name"] == step]
        calls = [e for e in self.inside(outer) if e.get("cat") in ("cuda_runtime", "cuda_driver")]
        correlations = {event["args"]["correlation"] for event in calls}
        gpu = self.of("kernel", "gpu_memcpy", "gpu_memset")
        return sorted((e for e in gpu if e["args"]["correlation"] in correlations), key=lambda event: event["ts"])


@dataclass(frozen=True)
class Run:
    """A finished lesson."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def trace(self) -> Trace:
        (path,) = [p for p in self.folder.iterdir() if ".json" in p.suffixes]
        return Trace.load(path)

    def table(self) -> str:
        (path,) = self.folder.glob("*.txt")
        return path.read_text()


Lesson = Callable[..., Run]


@pytest.fixture(scope="session")
def lesson(tmp_path_factory) -> Lesson:
    """Run a lesson, `lesson("01_matmul_add.py", "--size", "8")`, in a process of its own, with a folder of its own; with `ranks`,
    in so many processes of the launcher.
    """

    base = tmp_path_factory.mktemp("lessons")  # once and here: pytest's factory is not safe among threads

    def run(script: str, *flags: str, env: Mapping[str, str] | None = None, ranks: int = 0, **popen) -> Run:
        folder = popen.pop("folder", None) or Path(tempfile.mkdtemp(dir=base))
        done = subprocess.run(
            [
                sys.executable,
                *(LAUNCHER if ranks else ()),
                *([str(ranks)] if ranks else ()),
                ROOT / script,
                "--trace_dir",
                folder,
                *flags,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            **popen,
        )
        return Run(done.returncode, done.stdout, done.stderr, folder)

    return run


@pytest.fixture(scope="session")
def lessons(lesson) -> Callable[[Mapping[str, tuple[str, ...]]], dict[str, Future[Run]]]:
    """Start several lessons at once, two at a time: `lessons({"add": ("01_matmul_add.py", "--size", "8")})`."""

    def start(commands: Mapping[str, tuple[str, ...]]) -> dict[str, Future[Run]]:
        return {name: pool.submit(lesson, *command) for name, command in commands.items()}

    pool = ThreadPoolExecutor(2)
    return start


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The system's Chromium, without a window; skips, with the reason, where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page by file:// and returns it, once its scripts are done. At the end: nothing was asked of any other address, and
    nothing was complained of.
    """
    contexts, complaints, asked = [], [], []

    def open_page(path: Path, wait: str = "html[data-ready]", **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        # Reading pixels back is the tests' own doing.
        page.on("console", lambda message: message.text.startswith("Canvas2D:") or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(wait, state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith("file://")] == []


def keep_screen(page: Any, name: str) -> None:
    """A picture of what the page shows, in the folder that SCREENSHOTS names, if it does: CI keeps it."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")
