"""Fixtures and hooks of the tutorial's tests, which tests/conftest.py imports."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import threading

from helpers import LAUNCHER, ROOT, Run
import pytest
from reader_helpers.fixtures import chromium, opened  # noqa: F401  # fixtures
import torch

Lesson = Callable[..., Run]
# Variables that are read where they are needed, not when torch is imported: a fork of the process that has it heeds them.
READ_LATE = {"CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "LOCAL_KERNELS"}


@pytest.fixture(scope="session")
def forked_lessons() -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs a script in a fork of a process that has imported torch: (exit code, stdout, stderr). One at a time. `env`: the
    variables that differ, of READ_LATE.
    """
    started: list[subprocess.Popen] = []
    lock = threading.Lock()

    def run(argv: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        assert READ_LATE.issuperset(env or {}), "torch was imported without it"
        with lock, tempfile.TemporaryDirectory() as folder:
            if not started:
                command = [sys.executable, str(ROOT / "tests" / "helpers" / "forked_lessons.py")]
                started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            (process,) = started
            files = {"out": f"{folder}/out", "err": f"{folder}/err"}
            asked = {"argv": argv, "cwd": str(cwd), "env": {**os.environ, **(env or {})}, **files}
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            out, err = (Path(path).read_text(errors="replace") for path in files.values())
            return code, out, err

    yield run
    for process in started:
        process.stdin.close()
        process.wait()


@pytest.fixture(scope="session")
def lesson(tmp_path_factory, forked_lessons) -> Lesson:
    """Run a lesson, `lesson("01_matmul_add.py", "--size", "8")`, in a process of its own, with a folder of its own; with `ranks`,
    in so many processes of the launcher. With variables beyond READ_LATE or other settings, Python starts for it alone. It times
    no step without the profiler, which would take as long as the recording, unless asked with "--plain".
    """

    base = tmp_path_factory.mktemp("lessons")  # once and here: pytest's factory is not safe among threads

    def run(script: str, *flags: str, env: Mapping[str, str] | None = None, ranks: int = 0, **popen) -> Run:
        folder = popen.pop("folder", None) or Path(tempfile.mkdtemp(dir=base))
        quick = ("--no-plain",) if script[:2] not in ("00", "re") else ()
        arguments = [str(ROOT / script), "--trace_dir", str(folder), *quick, *map(str, flags)]
        if READ_LATE.issuperset(env or {}) and not (ranks or popen):
            code, out, err = forked_lessons(arguments, Path.cwd(), env)
            return Run(code, out, err, folder)
        launcher = (*LAUNCHER, str(ranks)) if ranks else ()
        done = subprocess.run(
            [sys.executable, *launcher, *arguments], capture_output=True, text=True, env={**os.environ, **(env or {})}, **popen
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


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch finds none here"))
