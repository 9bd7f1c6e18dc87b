"""The folder of attempts, .read-trace/: one for each, with its traces, its numbers and the program's own files."""

from collections.abc import Iterator, Sequence
import contextlib
import datetime
import json
from pathlib import Path
import shutil
import subprocess
import tempfile

import msgspec
from trace_reader.analysis.runs.attempts import Attempt, Outcome, advice_of
from trace_reader.errors import NotWrittenError, TraceError
from trace_reader.findings import GENERIC
from trace_reader.names.file_names import STACKS_NAME
from trace_reader.recording.saved_source import digest_of, line_of
from trace_reader.recording.tried_run import TriedRun
from trace_reader.report.document import Style
from trace_reader.system.files import write_file
from trace_reader.write import TEXT, Answer, in_json

FOLDER = Path(".read-trace")
IN_TURNS = "in_turns.json"


class Begun(msgspec.Struct, frozen=True):
    """What is known of an attempt beside its runs, as Attempt has it."""

    command: tuple[str, ...]
    program: str
    asked: str | None
    has: int | None
    busy: str


def made_folder(folder: Path) -> None:
    """Make a folder, which is FOLDER or lies in it, and keep it out of git. Raises NotWrittenError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(FOLDER / ".gitignore", b"*\n")
    except OSError as error:
        raise NotWrittenError(f"{folder}: {error.strerror}") from None


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """Give a folder inside FOLDER for a run, which is gone at the end if it was not kept. Raises NotWrittenError."""
    made_folder(FOLDER)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".running-", dir=FOLDER))
    except OSError as error:
        raise NotWrittenError(f"{FOLDER}: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def attempts_here() -> list[Attempt]:
    """Return the attempts of this folder, in their order. Raises TraceError."""
    found = []
    for path in FOLDER.glob("[0-9]*/attempt.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Attempt))
        except (OSError, msgspec.MsgspecError) as error:
            raise TraceError(f"{path}: {error}") from None
    return sorted(found, key=lambda one: one.number)


def keep_outcome(found: Outcome) -> None:
    """Keep what two attempts brought that ran in turns, beside the later one. Raises NotWrittenError."""
    path = FOLDER / f"{found.after:03}" / IN_TURNS
    try:
        write_file(path, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    except OSError as error:
        raise NotWrittenError(f"{path}: {error.strerror}") from None


def outcomes_here() -> dict[int, Outcome]:
    """Return what was kept so, by the later attempt's number. Raises TraceError."""
    found = {}
    for path in sorted(FOLDER.glob(f"[0-9]*/{IN_TURNS}")):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=Outcome)
        except (OSError, msgspec.MsgspecError) as error:
            raise TraceError(f"{path}: {error}") from None
        found[one.after] = one
    return found


def runs_in(folder: Path) -> list[TriedRun]:
    """Return what each process has told of its run."""
    return [TriedRun(**json.loads(path.read_text())) for path in sorted(folder.glob("run*.json"))]


def keep(folder: Path, runs: Sequence[TriedRun], begun: Begun) -> tuple[list[str], Attempt]:
    """As `_read`; the folder is that of the attempt then. Raises NotWrittenError, and keeps nothing where reading fails."""
    number = max((int(path.name) for path in FOLDER.glob("[0-9]*") if path.name.isdecimal()), default=0) + 1
    while (target := FOLDER / f"{number:03}").exists():  # of another process, meanwhile
        number += 1
    try:
        folder.rename(target)
        try:
            lines, attempt = _read(target, runs, begun, number)
            if attempt.commit:
                write_file(target / "changes.diff", _git("diff", "HEAD").encode())
            write_file(target / "attempt.json", msgspec.json.format(msgspec.json.encode(attempt), indent=1) + b"\n")
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    except OSError as error:
        raise NotWrittenError(f"{target}: {error.strerror}") from None
    return lines, attempt


def _read(folder: Path, runs: Sequence[TriedRun], begun: Begun, number: int) -> tuple[list[str], Attempt]:
    """Return what a report says of a run in some lines, and the attempt that is kept."""
    slowest = max(runs, key=lambda one: one.step_us)
    first = runs[0]
    traces = sorted(str(path) for path in folder.glob("trace*.json") if STACKS_NAME not in path.name)
    if len(traces) > 1:
        from trace_reader.commands.read_job import play_job
        from trace_reader.report.job_report import found_in, job_report

        job = play_job(traces)[0]
        lines = TEXT.write(Answer(lambda: job_report(job, Style()), in_json("job_json", job))).splitlines()
        advice, shown = advice_of(found_in(job), GENERIC), [one.slug for one in found_in(job)]
    else:
        from trace_reader.reading import examine_file
        from trace_reader.report.brief_report import change_lines, changes, verdict_lines

        facts = examine_file(traces[0]).facts
        lines = [*verdict_lines(facts), *change_lines(facts)]
        advice, shown = advice_of(changes(facts), GENERIC), [one.slug for one in facts.findings]
    return lines, Attempt(
        number=number,
        made=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        command=begun.command,
        program=begun.program,
        asked=begun.asked,
        step=first.step,
        times_us=tuple(slowest.times_us),
        steps=slowest.steps,
        pauses_us=tuple(slowest.pauses_us),
        recorded=first.recorded,
        has=begun.has,
        ranks=len(runs),
        device=first.device,
        torch=first.torch,
        python=first.python,
        threads=first.threads,
        busy=begun.busy,
        commit=_git("rev-parse", "HEAD").strip(),
        advice=advice,
        source=digest_of(folder),
        shown=tuple(shown),
        asked_line=line_asked(folder, begun.asked),
    )


def line_asked(folder: Path, asked: str | None) -> str:
    """Return the text of the line that was said to be the step's loop, as it was in an attempt; empty where none was."""
    file, _, number = (asked or "").rpartition(":")
    return line_of(folder, file, int(number)) if file.endswith(".py") and number.isdecimal() else ""


def _git(*words: str) -> str:
    """Return what git says; nothing where it is not there, or the folder is none of its."""
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True, errors="replace").stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
