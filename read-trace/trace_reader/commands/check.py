"""`read-trace check`: a gate for continuous integration."""

import argparse
from collections.abc import Sequence
from pathlib import Path
import re
import tomllib
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec
from trace_reader.analysis.runs.gate import (
    DEFAULTS,
    FINE,
    GONE,
    INCONCLUSIVE,
    UNKNOWN,
    WORSE,
    Gate,
    Limit,
    Outcome,
    gate,
    parse_limit,
)
from trace_reader.analysis.runs.run_measures import RunMeasures, measures, of_job
from trace_reader.commands.attempt_folder import FOLDER
from trace_reader.commands.flags import add_forms, add_steps_from
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.read_job import expanded, jobs_of
from trace_reader.errors import TraceError
from trace_reader.reading import analyze
from trace_reader.report.document import Style
from trace_reader.report.gate_report import called, change, gate_report
from trace_reader.system.files import write_file
from trace_reader.write import OUTPUTS, TEXT, Answer

SCHEMA, OLDEST = 4, 3  # what is written, and what is read
BASELINES, NAME = FOLDER / "baselines", r"[\w.-]+"
EXIT = {FINE: 0, WORSE: 1, INCONCLUSIVE: 3}
CHECK = """\
Is a run worse than its baseline? Exit code 0: no. 1: yes; the output says in what, and by how much. 3: the noise between runs is
wider than the limit; the output says how many more runs would be enough. 2: a mistake in the call, or a file that is not a trace.

    read-trace check new*.json --baseline old*.json
    read-trace check new*.json --baseline base.json --max step=+5% --max kernels=+0 --md
"""


class _Version(msgspec.Struct, frozen=True):
    read_trace_baseline: int


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that `baseline` writes."""

    read_trace_baseline: int
    runs: tuple[RunMeasures, ...]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = CHECK
    parser.add_argument("new", nargs="+", metavar="NEW", help="traces of the new runs, a folder of them, or ranks of jobs")
    old = "the same for the old runs, or a baseline's file or name"
    most = f"how much a measure may grow (default: {' '.join(DEFAULTS)})"
    parser.add_argument("--baseline", nargs="+", required=True, metavar="OLD", help=old)
    parser.add_argument("--max", action="append", type=_limit, metavar="LIMIT", help=most.replace("%", "%%"))
    config = "a TOML file with max = [...] (default: [tool.read-trace] of pyproject.toml)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=config)
    strict = "with the default limits: more kernels or ops fail, even if the measured step is shorter"
    parser.add_argument("--strict", action="store_true", help=strict)
    add_steps_from(parser)
    add_forms(parser).add_argument("--github", action="store_true", help="annotations of a GitHub workflow")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report, too")


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError."""
    try:
        limits = args.max or _configured(args.config)
        strict = args.strict or limits != [parse_limit(text) for text in DEFAULTS]
        old, new = (runs_of(paths, args.steps_from) for paths in (args.baseline, args.new))
        found = gate(old, new, limits, strict)
    except (OSError, ValueError) as error:
        raise TraceError(str(error)) from None
    if args.junit is not None:
        write_file(args.junit, _junit(found).encode())
    if args.github:
        return _github(found), EXIT[found.verdict]
    answer = Answer(lambda: gate_report(found, Style()), lambda: {"verdict": found.verdict, **msgspec.to_builtins(found)})
    form_of = OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT
    return form_of.write(answer), EXIT[found.verdict]


def _limit(text: str) -> Limit:
    try:
        return parse_limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _configured(file: Path | None) -> list[Limit]:
    """Return the limits of a TOML file, of this folder's pyproject.toml, or the defaults. Raises OSError, ValueError."""
    path = file or Path("pyproject.toml")
    if file is None and not path.is_file():
        return [parse_limit(text) for text in DEFAULTS]
    said = tomllib.loads(path.read_text("utf-8"))
    entry = said.get("tool", {}).get("read-trace", said if file is not None and "tool" not in said else {})
    if not isinstance(entry, dict):
        raise ValueError(f"{path}: read-trace: expected a table with max = [...]")
    if unknown := [key for key in entry if key != "max"]:
        raise ValueError(f"{path}: {', '.join(map(repr, unknown))} is no key of read-trace; expected max = [...]")
    if file is not None and "max" not in entry:
        raise ValueError(f"{path}: it has no limits; expected max = [...], or that under [tool.read-trace]")
    texts: Any = entry.get("max", list(DEFAULTS))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("max: expected a list of limits such as ['step=+5%']")
    return [parse_limit(text) for text in texts]


def runs_of(paths: Sequence[str], steps_from: re.Pattern[str] | None = None) -> list[RunMeasures]:
    """Return the runs of these traces, a job's ranks as one; of a baseline's file, those that it holds. Raises TraceError."""
    if len(paths) == 1 and (kept := _kept(baseline_path(paths[0]))) is not None:
        return [*kept.runs]
    paths = expanded(list(paths), several=True)
    jobs = jobs_of(paths)
    in_jobs = {path for ranks in jobs.values() for path in ranks}
    groups = [*jobs.values(), *([path] for path in paths if path not in in_jobs)]
    return [of_job([_measured(path, steps_from) for path in ranks]) for ranks in groups]


def baseline_path(name: str) -> Path:
    """Return the file of a baseline that `baseline --name` has kept; of a path, that. Raises TraceError: it is both."""
    kept, path = BASELINES / f"{name}.json", Path(name)
    if not re.fullmatch(NAME, name):
        return path
    if kept.exists() and path.exists():
        raise TraceError(f"{name}: {kept} or ./{name}? Say which")
    if kept.exists() or path.exists():
        return kept if kept.exists() else path
    if names := sorted(file.stem for file in BASELINES.glob("*.json")):
        raise TraceError(f"{name}: no such file, and no baseline of this name (there is {', '.join(names)})")
    return path


def _measured(path: str, steps_from: re.Pattern[str] | None) -> RunMeasures:
    trace = load_with_progress(path, steps_from)
    return measures(analyze(trace))


def _kept(path: Path) -> Baseline | None:
    """Return a baseline's file; None: another one. Raises TraceError: it is of another version, or damaged."""
    try:
        with path.open("rb") as file:
            if b"read_trace_baseline" not in file.read(200):
                return None
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Version).read_trace_baseline
        if not OLDEST <= version <= SCHEMA:
            raise TraceError(f"{path}: a baseline of version {version}, and this reads {OLDEST} to {SCHEMA}: make it again")
        found = msgspec.json.decode(data, type=Baseline)
    except OSError:
        return None  # the reader says why
    except msgspec.MsgspecError as error:
        raise TraceError(f"{path}: a baseline that this version does not read: {error}") from error
    if not found.runs:
        raise TraceError(f"{path}: a baseline without a run")
    return found


def _github(found: Gate) -> str:
    """Return a line of a GitHub workflow for each limit that was not kept."""
    level = {WORSE: "error", GONE: "error", INCONCLUSIVE: "warning"}
    lines = [
        f"::{level[outcome.verdict]} title=read-trace {outcome.limit.text}::{outcome.limit.measure} {_how(outcome)}"
        for outcome in found.outcomes
        if outcome.verdict in level
    ]
    lines += [
        f"::notice title=read-trace::{called(cause)}: calls {cause.calls[0]:g} -> {cause.calls[1]:g}"
        for cause in found.causes
        if lines
    ]
    return "".join(f"{line}\n" for line in lines)


def _how(outcome: Outcome) -> str:
    return GONE if outcome.verdict == GONE else f"grew by {change(outcome)}"


def _junit(found: Gate) -> str:
    """Return a test case for each limit, as JUnit's XML has them."""
    cases = []
    for outcome in found.outcomes:
        said = quoteattr(_how(outcome))
        failed, skipped_for = f"<failure message={said}/>", f"<skipped message={said}/>"
        inside = {WORSE: failed, GONE: failed, INCONCLUSIVE: skipped_for, UNKNOWN: "<skipped/>"}.get(outcome.verdict, "")
        cases.append(f'  <testcase classname="read-trace" name={quoteattr(outcome.limit.text)}>{inside}</testcase>\n')
    kinds = (WORSE, GONE), (INCONCLUSIVE, UNKNOWN)
    failures, skipped = (sum(outcome.verdict in named for outcome in found.outcomes) for named in kinds)
    head = f'<testsuite name="{escape("read-trace check")}" tests="{len(cases)}" failures="{failures}" skipped="{skipped}">'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}\n{"".join(cases)}</testsuite>\n'
