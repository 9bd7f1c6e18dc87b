"""Does the gate pass what is unchanged, and stop what is not? A repository of its own, whose CI is the workflow of docs/check.md.

    uv run read-trace/benchmarks/gate/gate.py [--unchanged 10] [--in-turns] [--out FILE] [FAULT ...]

A program that records some steps, train_profiled.py, is put into a new repository with a baseline of three runs. Then the shell
lines of the workflow run: on the program as it is, and with each of eight faults in it. With --in-turns, it is the workflow for a
shared machine, without a baseline. FILE (JSON) holds the exit codes and what was said; those in this folder are in docs/check.md.
A round takes about half a minute, in turns one and a half. The exit code is 1 if the gate stopped an unchanged program or let a
fault pass.
"""

import argparse
import datetime
import json
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import torch

FOLDER = Path(__file__).resolve().parent
PROGRAM = "train_profiled.py"
WITH_BASELINE, IN_TURNS = "## In a workflow", "## On a shared machine"  # headings of docs/check.md
GPU = torch.cuda.is_available()
# What is put in: the program's text, what takes its place, and the limits of which one has to say so.
FAULTS = {
    "sync": ("    loss.backward()\n", "    loss.backward()\n    assert loss.item() >= 0\n", ("syncs", "aten_calls")),
    "copy": (".to(DEVICE)\n    loss", f"{'.to(DEVICE).cpu()' if GPU else '.clone()'}.to(DEVICE)\n    loss",
             ("copies", "aten_calls")),
    "kernels": (".square().mean()", ".square().mean() + 1e-4 * sum(p.square().sum() for p in net.parameters())",
                ("kernels", "aten_calls")),
    "recompiles": ("net(x)", "net(x, str(n))", ("compiled",)),
    "slower op": ("ROWS, WIDTH, LAYERS = 256", "ROWS, WIDTH, LAYERS = 1024", ("step", "gpu")),
    "allocation": ("    loss = net", "    scratch = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)\n    loss = net",
                   ("peak_memory", "aten_calls")),
    "loader": ("    return torch.randn", "    __import__('time').sleep(0.05)\n    return torch.randn", ("step",)),
    "memory": ("    return loss\n", "    kept.append(x)\n    return loss\n", ("peak_memory",)),
}  # fmt: skip


def lines_of(document: Path, heading: str) -> list[str]:
    """Return the shell lines of the first workflow below this heading: what its steps run."""
    text = document.read_text("utf-8").partition(heading)[2]
    return re.findall(r"^ +- run: (.*)$", text.partition("```yaml\n")[2].partition("```")[0], re.MULTILINE)


class Repository:
    """A repository with the program in it; `run` runs the lines of its workflow, the one below that heading of the document."""

    def __init__(self, folder: Path, document: Path, heading: str = WITH_BASELINE):
        self.folder = folder
        self.lines = [line for line in lines_of(document, heading) if not line.startswith("pip install")]
        path = f"{self._commands()}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "GITHUB_BASE_REF": "main"}
        shutil.copyfile(FOLDER / PROGRAM, folder / PROGRAM)
        self.shell("git init -q")
        self.commit("Train")
        if heading == WITH_BASELINE:
            self.baseline()
        else:
            self.shell("git update-ref refs/remotes/origin/main HEAD").check_returncode()

    def _commands(self) -> Path:
        """Return a folder in which `python` and `read-trace` are this interpreter's."""
        place = self.folder / ".bin"
        place.mkdir()
        for name, module in (("python", ""), ("read-trace", "-m trace_reader ")):
            (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
            (place / name).chmod(0o755)
        (self.folder / ".gitignore").write_text(".bin/\nold/\nnew*.json\nold*.json\nprofile.xml\n")
        return place

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=600)

    def commit(self, message: str) -> None:
        person = "-c user.name=gate -c user.email=gate@localhost"
        self.shell(f"git add -A && git {person} commit -q -m '{message}'").check_returncode()

    def baseline(self) -> None:
        """Three runs, kept as docs/check.md says."""
        self.shell(f"for n in 1 2 3; do python {PROGRAM} --out old$n.json; done").check_returncode()
        self.shell("read-trace baseline old1.json old2.json old3.json -o base.json").check_returncode()
        self.commit("Keep a baseline")

    def run(self) -> tuple[int, str]:
        """Return the workflow: the exit code of the first line that fails, else of the last, and what that line printed."""
        code, said = 0, ""
        for line in self.lines:
            done = self.shell(line)
            code, said = done.returncode, done.stdout + done.stderr
            if code:
                break
        return code, said

    def change(self, old: str, new: str) -> None:
        path = self.folder / PROGRAM
        text = path.read_text("utf-8")
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new), "utf-8")

    def restore(self) -> None:
        self.shell(f"git checkout -q {PROGRAM}").check_returncode()
        self.shell("git worktree remove --force old")  # where the workflow made one


def worse(said: str) -> list[str]:
    """Return the measures that the annotations of a workflow call worse."""
    return re.findall(r"^::error title=read-trace ([\w.]+)=", said, re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)} (default: all)")
    parser.add_argument("--unchanged", type=int, default=10, metavar="N", help="rounds without a fault (default: 10)")
    parser.add_argument("--in-turns", action="store_true", help="the workflow for a shared machine")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    if unknown := set(args.faults) - set(FAULTS):
        parser.error(f"no fault {', '.join(sorted(unknown))}")
    unchanged, faults, wrong = [], {}, 0
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(
            Path(folder), FOLDER.parents[1] / "docs" / "check.md", IN_TURNS if args.in_turns else WITH_BASELINE
        )
        for n in range(args.unchanged):
            code, said = repository.run()
            repository.restore()
            unchanged.append(code)
            wrong += code not in (0, 3)
            print(f"unchanged {n + 1}: {code} {'' if code in (0, 3) else f'  <- WRONG {said}'}", flush=True)
        for name in args.faults or FAULTS:
            old, new, expected = FAULTS[name]
            repository.change(old, new)
            code, said = repository.run()
            repository.restore()
            found = worse(said)
            fine = code == 1 and bool(set(expected) & set(found))
            wrong += not fine
            faults[name] = {"exit": code, "worse": found}
            print(f"{name}: {code} {', '.join(found)}{'' if fine else f'  <- WRONG {said}'}", flush=True)
    if args.out:
        device = torch.cuda.get_device_name() if GPU else f"{platform.machine()}, {torch.get_num_threads()} threads"
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        head = {"device": device, "torch": torch.__version__, "date": date, "unchanged": unchanged, "faults": faults}
        args.out.write_text(f"{json.dumps(head, indent=1)}\n", "utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
