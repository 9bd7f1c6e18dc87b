"""`read-trace mcp ROOT`: the reader as tools of the Model Context Protocol, over standard input and output.

An agent asks for traces below ROOT, and for no other file. Needs the extra `mcp` (the protocol's own SDK).
"""

import argparse
from collections.abc import Callable
import os
from pathlib import Path
import re
import subprocess
import sys

from trace_reader.analysis.runs.gate import DEFAULTS, gate, parse_limit
from trace_reader.commands import change_run, read_memory, report
from trace_reader.commands.check import runs_of
from trace_reader.commands.flags import BY
from trace_reader.commands.next_steps import next_steps
from trace_reader.commands.read_job import ENDINGS
from trace_reader.commands.show_finding import finding_text
from trace_reader.errors import MissingExtraError, TraceError
from trace_reader.report.document import Style
from trace_reader.report.gate_report import gate_report
from trace_reader.report.place_report import ops_report
from trace_reader.units import natural
from trace_reader.write import TEXT, Answer, json_output

MCP = """\
Serve the reader's answers to an agent: a server of the Model Context Protocol on standard input and output. It reads traces below
ROOT and no other file, writes none, and needs no network.

    read-trace mcp traces/

With --allow-run it also runs programs in ROOT, as `read-trace try` does, which keeps what it records in ROOT/.read-trace/.
"""
MOST_TRACES = 200  # that are listed
LONGEST = 20_000  # characters of what a program prints
PACKAGE = Path(__file__).parents[2]


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Serve until standard input ends. Raises TraceError: there is no such folder; MissingExtraError: the SDK is not there."""
    if not args.root.is_dir():
        raise TraceError(f"{args.root}: not a folder")
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise MissingExtraError("`mcp` needs the protocol's SDK: install read-trace with it, read-trace[mcp]") from error
    server = MCPServer(
        "read-trace", instructions="Reads traces of torch.profiler. Begin with `traces`, then `read`, then `show`."
    )
    for tool in Tools(args.root, args.allow_run).all():
        server.tool()(_guarded(tool, ToolError))
    server.run()
    return "", 0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = MCP
    parser.add_argument("root", type=Path, metavar="ROOT", help="the folder whose traces may be read")
    allowed = "a further tool, `try_program`, runs Python programs in ROOT, with all that this user may do"
    parser.add_argument("--allow-run", action="store_true", help=allowed)


def _guarded(tool: Callable[..., str], error_type: type[Exception]) -> Callable[..., str]:
    """Return the tool, whose errors are told in the reader's words."""
    import functools

    @functools.wraps(tool)
    def run(*args: object, **kwargs: object) -> str:
        try:
            return tool(*args, **kwargs)
        except (TraceError, LookupError, ValueError) as error:
            raise error_type(str(error)) from None

    return run


class Tools:
    """What an agent may ask. Paths are those below the root, as `traces` lists them."""

    def __init__(self, root: Path, allow_run: bool = False):
        self.root, self.allow_run = root.resolve(), allow_run

    def all(self) -> list[Callable[..., str]]:
        run = [self.try_program] if self.allow_run else []
        return [self.traces, self.read, self.next_steps, self.places, self.ops, self.show, self.time, self.job, self.memory,
                self.compare, self.check, self.what_if, *run]  # fmt: skip

    def traces(self) -> str:
        """List the traces that can be read, a path in each line."""
        found = [path for path in self.root.rglob("*") if path.name.endswith(ENDINGS) and self._is_inside(path)]
        names = sorted((str(path.relative_to(self.root)) for path in found), key=natural)
        more = [f"and {len(names) - MOST_TRACES} more"] if len(names) > MOST_TRACES else []
        return "\n".join([*names[:MOST_TRACES], *more]) or "no trace: no file ends with .json or .json.gz"

    def read(self, trace: str) -> str:
        """Say what limits a recorded run: the verdict, the time of a step with and without the profiler, and up to three changes
        with what they would save and the id of their finding.
        """
        return report.brief(self._path(trace), None)

    def next_steps(self, trace: str) -> str:
        """Say what to do next about a run, as JSON: up to three changes, each with place (the id of its finding), file, line,
        change, low and high (what it saves of a step, shares) and how_to_check.
        """
        return json_output.write({"next": json_output.values(next_steps(self._path(trace)))})

    def time(self, trace: str, by: str = "stack") -> str:
        """Say where the time of a run goes, added up by "stack" (lines of Python, where stacks were recorded), "layer" or
        "annotation".
        """
        if by not in BY:
            raise ValueError(f"expected one of {', '.join(BY)}, got {by!r}")
        return TEXT.write(report.by(self._path(trace), by, Style(everything=True), None))

    def check(self, new: list[str], baseline: list[str]) -> str:
        """Say whether new runs are worse than older ones: each a list of traces, three or more for a sure answer."""
        old, now = (runs_of([self._path(name) for name in names], None) for names in (baseline, new))
        found = gate(old, now, [parse_limit(text) for text in DEFAULTS], strict=False)
        return TEXT.write(Answer(lambda: gate_report(found, Style()), dict))

    def try_program(self, command: list[str], against: int | None = None, step: str | None = None) -> str:
        """Run a program in the root as it is (["train.py", "--lr", "0.1"]; also ["-m", MODULE], ["pytest", TEST], ["torchrun",
        ...]), find and time its step, record it, and say what to change; after a change, what that brought. `against`: the number
        of an earlier attempt, run in turns. `step`: what a step is, FUNCTION or FILE.py:LINE, where it is found wrongly.
        """
        flags = [*(["--against", str(against)] if against is not None else []), *(["--step", step] if step is not None else [])]
        words = [sys.executable, "-m", "trace_reader", "try", *flags, *command]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}
        ran = subprocess.run(words, cwd=self.root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return f"exit code {ran.returncode}\n{ran.stdout[-LONGEST:]}\n{ran.stderr[-LONGEST:]}"

    def places(self, trace: str) -> str:
        """List the places of a run (ops, annotations, functions, loops, nodes of the backward pass) by what a step saves without
        each: the most that a change there can bring.
        """
        return TEXT.write(report.places(self._path(trace), Style(everything=True), None))

    def ops(self, trace: str) -> str:
        """List the ops of a run by the shapes and types of their inputs: time of a step, rate, and what the device could do."""
        facts = report.read_one(self._path(trace), None, None, everything=True).facts
        return TEXT.write(Answer(lambda: ops_report(facts, Style(everything=True)), dict))

    def job(self, traces: list[str]) -> str:
        """Say what limits a job of several processes, by the traces of its ranks: who is late, what waits, what to change."""
        if len(traces) < 2:
            raise ValueError("a job has the traces of two ranks or more")
        answer, code = report.report([self._path(name) for name in traces], Style(), None, None)
        missing = "some of these traces could not be read\n\n" if code else ""
        return missing + TEXT.write(answer) if answer is not None else "none could be read"

    def memory(self, snapshot: str, later: str = "") -> str:
        """Say what holds CUDA's memory, by a snapshot of torch.cuda.memory._dump_snapshot(FILE): the peak and the end, by line of
        Python; with one of later, what grew.
        """
        return TEXT.write(read_memory.answered([self._path(name) for name in (snapshot, *([later] if later else []))], Style()))

    def show(self, trace: str, finding: str, top: int = 10) -> str:
        """Show one finding of a trace by its id, or a place by its name, and the slices that prove it: when, how long, in which
        step, of which op, of which line of Python where stacks were recorded.
        """
        return finding_text(self._path(trace), finding, max(1, min(top, 100)))

    def compare(self, before: str, after: str) -> str:
        """Say what differs between two traces: the step, kernels that came, went or changed, findings that are gone or new."""
        paths = [self._path(before), self._path(after)]
        answer, _ = report.report(paths, Style(), None, None)
        return TEXT.write(answer) if answer is not None else "neither could be read"

    def what_if(self, trace: str, changes: list[str]) -> str:
        """Estimate what a step would take with changes, without the profiler: the id of a finding, 'place NAME', 'drop REGEX'
        (ops, annotations, calls), 'scale REGEX FACTOR' (kernels, copies), 'no waits', 'graph' (one launch per step), 'loader' (no
        waiting for input).
        """
        asked = [change_run.parsed_change(change) for change in changes]
        return TEXT.write(change_run.run([self._path(trace)], asked, Style(), None))

    def _is_inside(self, path: Path) -> bool:
        """Return whether it is a file below the root, links followed."""
        return path.is_file() and path.resolve().is_relative_to(self.root)

    def _path(self, name: str) -> str:
        """Return the file that a name means. Raises TraceError: it is none of the root's traces."""
        if "\0" in name or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name) or not self._is_inside(self.root / name):
            raise TraceError(f"{name!r} is not among the traces; `traces` lists them")
        return str((self.root / name).resolve())
