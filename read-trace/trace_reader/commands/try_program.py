"""`read-trace try`: run a program of one's own, time and record its steps, say what to change, and then what that brought."""

import argparse
from collections.abc import Callable, Iterator, Sequence
import contextlib
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import threading
from typing import Any

import msgspec
from trace_reader.analysis.runs.attempts import Attempt, Outcome, last_of, outcome, outcomes
from trace_reader.analysis.runs.gate import ratio_of_medians
from trace_reader.commands.attempt_folder import (
    FOLDER,
    Begun,
    attempts_here,
    keep,
    keep_outcome,
    new_folder,
    outcomes_here,
    runs_in,
)
from trace_reader.commands.flags import at_least_one
from trace_reader.names.range_names import TURN
from trace_reader.recording.step_recorder import FEWEST_OF_A_PROGRAM, FEWEST_OF_A_RANK
from trace_reader.recording.tried_run import SETTINGS, Settings, TriedRun
from trace_reader.report.attempt_report import attempt_lines, log_report, outcome_lines
from trace_reader.report.document import LONGEST_LINE, Style
from trace_reader.system.busy import Others
from trace_reader.system.terminal import printable, say_note
from trace_reader.units import us
from trace_reader.write import TEXT, Answer, in_json

TRY = """\
Run a program as it is, find its step, time some steps without the profiler, record a few, and say what to change. Change the
program and try again: the output says what the change saved, and what was promised.

    read-trace try train.py [ITS ARGUMENTS]   also: -m package.train, pytest test_x.py::test_y, torchrun ... train.py
    read-trace try                            the last command again
    read-trace try --against 1                the program as it was in attempt 1 and as it is now, in turns
    read-trace try --log                      all attempts

A step ends with step() of the program's profiler or its optimizer, with a marked range, with the next batch of its DataLoader, or
with an iteration of a loop; the output says which. When enough is recorded, the program is ended as if by sys.exit(). Its own
profiler records nothing meanwhile. All is kept in .read-trace/: traces, numbers, the program's own files, what git calls changed.
Exit code: 0; with --against 0 better, 1 worse, 3 inconclusive; 2 if too few steps were seen; otherwise the program's own.
"""
RUN = Path(__file__).parents[1] / "recording" / "tried_program.py"
RUNS = 3  # processes of each side, in turns
FOUND_BY = 3  # turns, by which a loop is found
SURE = 0.8  # of a program's steps are left, at least, when its step is found again
CHANGED = 1.5  # times, that an attempt takes when it is run again
BETTER, WORSE, INCONCLUSIVE = 0, 1, 3
EXAMPLE = "name one: train.py, -m package.train, pytest test_x.py::test_y, torchrun --nproc_per_node 2 train.py"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = TRY
    parser.usage = "read-trace try [FLAGS] [PROGRAM [ITS ARGUMENTS]]"
    parser.add_argument("-m", action="store_true", dest="module", help="PROGRAM is a module, as with python -m")
    where = "a step is a call of this function (step, Trainer.step, train:step), or an iteration of the loop at FILE.py:LINE"
    parser.add_argument("--step", metavar="WHERE", help=where)
    against = "alternate between the program as it was in attempt N and as it is now, and compare"
    parser.add_argument("--against", type=at_least_one, metavar="N", help=against)
    parser.add_argument("--keep-running", action="store_true", help="let the program run on when enough is recorded")
    parser.add_argument("--log", action="store_true", help="list all attempts, and what each saved")
    parser.add_argument("--json", action="store_true", help="for programs: stable field names, null for unknown")


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError, LookupError, NotWrittenError."""
    attempts = attempts_here()
    if args.log:
        if not attempts:
            raise LookupError(f"no attempt is in {FOLDER}/: read-trace try PROGRAM makes one")
        return _written(args.json, attempts, outcomes(attempts, outcomes_here())), 0
    command, step = tuple([*(["-m"] if args.module else []), *args.program]), args.step
    if not command and not attempts:
        raise LookupError(f"no program to try, and none was tried here before: {EXAMPLE}")
    if not command:
        command, step = attempts[-1].command, step or _where_now(attempts[-1])
    kind = _kind(command)
    if step is None and "--step" in args.program:
        say_note("--step behind the program's name is an argument of the program; for read-trace, it stands before it")
    if step is not None and kind.words[0] == "pytest":
        raise LookupError("of a test, a step is a call of it: leave --step out")
    before = last_of(attempts, kind.program)
    if args.against is not None:
        before = _numbered(attempts, args.against)
        if before.program == kind.program and before.words != msgspec.structs.replace(before, command=command).words:
            say_note(f"attempt {before.name} was {' '.join(before.command)}: each runs with its own arguments")
    with new_folder() as folder:
        others = Others()
        settings = Settings([], str(folder), step, keep_running=args.keep_running)
        ended, runs, has = _recorded(kind, settings, args.json)
        if ended and not (runs and all(one.is_done for one in runs)):
            if runs and runs[0].step:
                seen = f"after {runs[0].seen} steps ({runs[0].step}), before enough of them were recorded"
                say_note(f"the program ended with exit code {ended} {seen}: nothing is kept")
            return "", ended
        _check(runs, command, step)
        begun = Begun(command, kind.program, step, has, others.busy())
        lines, attempt = keep(folder, runs, begun)
    in_turns, code, brought = RUNS if args.against is not None else 0, 0, None
    if before is not None and in_turns:
        is_same = before.asked_line == attempt.asked_line != ""  # each at its own line
        brought = _in_turns(before, attempt, before.asked if is_same else args.step or before.asked, args.json)
        keep_outcome(brought)
        code = INCONCLUSIVE if not brought.is_clear else BETTER if brought.saved > 0 else WORSE
    elif before is not None and attempt.has_the_step_of(before):
        brought = outcome(before, attempt)
    if args.json:
        return _written(True, [attempt], [brought] if brought is not None else []), code
    return told(attempt, lines, before, brought, in_turns), code


def _where_now(attempt: Attempt) -> str | None:
    """Return what was said to be the step of an attempt; of a loop, at its line now: the one line with the same text."""
    file, _, number = (attempt.asked or "").rpartition(":")
    try:
        lines = [line.strip() for line in Path(file).read_text("utf-8", "replace").splitlines()] if attempt.asked_line else []
    except OSError:
        return attempt.asked
    here = [n for n, line in enumerate(lines, 1) if line == attempt.asked_line]
    if len(here) != 1 or here[0] == int(number):
        return attempt.asked
    say_note(f"the loop at {attempt.asked} is at {file}:{here[0]} now")
    return f"{file}:{here[0]}"


def _numbered(attempts: Sequence[Attempt], number: int) -> Attempt:
    """Return an attempt by its number. Raises LookupError."""
    for one in attempts:
        if one.number == number:
            return one
    there = ", ".join(str(one.number) for one in attempts) or "none"
    raise LookupError(f"no attempt {number} in {FOLDER}/: there are {there}")


def told(attempt: Attempt, lines: Sequence[str], before: Attempt | None, brought: Outcome | None, in_turns: int = 0) -> str:
    """Return what is printed of an attempt, of which a report says these lines, and of what it brought beside the one before."""
    text = [*attempt_lines(attempt), *lines, f"all of it: read-trace {FOLDER / attempt.name}"]
    if brought is not None and before is not None:
        text += outcome_lines(brought, before, in_turns)
    elif before is not None:
        text.append(f"attempt {before.name} is not beside it: a step of that is {before.step}")
    return "".join(f"{printable(line, LONGEST_LINE)}\n" for line in text)


def _written(as_json: bool, attempts: Sequence[Attempt], found: Sequence[Outcome]) -> str:
    from trace_reader.write import OUTPUTS

    def values() -> dict[str, object]:
        return {"attempts": in_json("values", attempts)(), "outcomes": in_json("values", found)()}

    return (OUTPUTS["json"] if as_json else TEXT).write(Answer(lambda: log_report(attempts, found, Style()), values))


class Kind(msgspec.Struct, frozen=True):
    """How a program is run: its kind and its words (as Settings has them), torchrun's own before it, and Python's own `flags`."""

    words: list[str]
    torchrun: list[str] | None = None
    flags: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """Which program it is, whatever its arguments."""
        return " ".join([self.words[0], *map(os.path.normpath, self.words[1:2])])


def _kind(command: Sequence[str]) -> Kind:
    """Return how to run a command. Raises LookupError: it is none that can be tried."""
    first, *rest = command
    if re.fullmatch(r"python(3(\.\d+)?)?", Path(first).name) and rest:
        at = 0
        while at < len(rest) and rest[at].startswith("-") and rest[at] != "-m":
            at += 2 if rest[at] in ("-W", "-X") else 1
        if at < len(rest):
            return msgspec.structs.replace(_kind(rest[at:]), flags=tuple(rest[:at]))
    if first == "-m" and rest:
        return Kind(["module", *rest]) if rest[0] != "pytest" else Kind(["pytest", *rest[1:]])
    if first == "pytest":
        return Kind(["pytest", *rest])
    if first == "torchrun":
        try:
            from trace_reader.recording.job_command import split_torchrun

            own, is_module, program = split_torchrun(rest)
        except ImportError:
            raise LookupError("torchrun needs torch, which is not installed beside read-trace") from None
        except ValueError as error:
            raise LookupError(str(error)) from None
        return Kind(["module" if is_module else "script", *program], own)
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise LookupError(f"no program is called {first!r}")
        return Kind(["script", first, *rest])
    raise LookupError(f"{first!r} is no Python program: {EXAMPLE}")


def _started(kind: Kind, settings: Settings, to_stderr: bool) -> int:
    """Run the program to its end; its exit code. What it prints is its own; `to_stderr`: what it prints to stdout, too."""
    settings = settings._replace(command=kind.words, folder=str(Path(settings.folder).absolute()))
    env = {**os.environ, SETTINGS: json.dumps(settings._asdict()), "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "6")}
    launcher = [] if kind.torchrun is None else ["-m", "torch.distributed.run", *kind.torchrun]
    sys.stdout.flush()
    words = [sys.executable, *kind.flags, *launcher, str(RUN)]
    process = subprocess.Popen(words, env=env, stdout=sys.stderr if to_stderr else None)
    with _signals_are_of(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _signals_are_of(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Inside, Ctrl-C is the program's, which the terminal tells of it, too; SIGTERM and SIGHUP, the end of a terminal, are handed
    on. What then happens is the program's to decide. At the end it has ended, or is ended.
    """
    handed_on = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    handed_on = [number for number in handed_on if signal.getsignal(number) != signal.SIG_IGN]  # under nohup
    handlers: dict[int, Callable[[int, Any], None]] = {signal.SIGINT: lambda number, frame: None}
    handlers |= {number: lambda number, frame: process.send_signal(number) for number in handed_on}
    can = threading.current_thread() is threading.main_thread()
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()} if can else {}
    wakes = signal.set_wakeup_fd(-1) if can else -1  # who waits there ends this process soon
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if can:
            signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)


def _recorded(kind: Kind, settings: Settings, to_stderr: bool) -> tuple[int, list[TriedRun], int | None]:
    """Run the program, once more where it has few steps; its exit code, its runs, and how many steps it has, if these are few."""
    code, runs = _started(kind, settings, to_stderr), runs_in(Path(settings.folder))
    if code or not runs or runs[0].is_done or runs[0].failed or not runs[0].torch:
        return code, runs, None
    seen, fewest = min(one.seen for one in runs), FEWEST_OF_A_RANK if len(runs) > 1 else FEWEST_OF_A_PROGRAM
    if not runs[0].step and not settings.step and not settings.hurries:
        say_note("no loop turned for long: once more, and a short one will do")
        return _recorded(kind, settings._replace(hurries=True), to_stderr)
    has: int | None = None
    if seen >= fewest and len(runs) == 1:
        say_note(f"the program has {seen} steps from there on: once more, and fewer are timed")
        has = max(int(seen * SURE), fewest)
        again = settings._replace(has=has)
    elif seen < fewest and runs[0].step.startswith(TURN) and not settings.step:
        say_note(f"{runs[0].step} turned {seen} times since it was found: once more, from its first turn on")
        known = _recorded(kind, settings._replace(step=runs[0].step.removeprefix(TURN)), to_stderr)
        if known[0] or (known[1] and all(one.is_done for one in known[1])):
            return known
        say_note(f"{runs[0].step} is one of {seen + FOUND_BY} or so: once more, and another step is looked for")
        again = settings._replace(none=(*settings.none, runs[0].step))
    else:
        return code, runs, None
    code = _started(kind, again, to_stderr)
    return code, runs_in(Path(settings.folder)), has


def _check(runs: Sequence[TriedRun], command: Sequence[str], asked: str | None) -> None:
    """Raises LookupError where a run has told too little."""
    if not runs:
        raise LookupError(f"{' '.join(command)}: it ended in a way that left nothing to read (os._exit, or another program)")
    if failed := next((one.failed for one in runs if one.failed), ""):
        raise LookupError(f"{' '.join(command)}: its steps could not be recorded: {failed}")
    if not runs[0].torch:
        raise LookupError(f"{' '.join(command)}: it does not import torch; a step of it cannot be recorded")
    if not runs[0].step:
        said = "; its functions: " + ", ".join(runs[0].functions[:5]) if runs[0].functions else ""
        why = (
            "in the program's first process and thread, nothing that ends one came often enough. Say what it is: --step "
            "FUNCTION, or --step FILE.py:LINE of a loop"
        )
        if asked is not None:
            why = f"no function called {asked} was entered, and no loop there turned"
        raise LookupError(f"{' '.join(command)}: no step was found: {why}{said}")
    if not all(one.is_done for one in runs):
        fewest = FEWEST_OF_A_RANK if len(runs) > 1 else FEWEST_OF_A_PROGRAM
        raise LookupError(
            f"{' '.join(command)}: it ended {runs[0].seen} steps later ({runs[0].step}); {fewest} are needed, to "
            "warm up, to time and to record: let it run longer, or say what a step is: --step"
        )


def _in_turns(before: Attempt, after: Attempt, asked: str | None, to_stderr: bool) -> Outcome:
    """Return what is saved, by RUNS processes of each of the two, in turns. `asked`: what a step of the earlier one is;
    `to_stderr`: as `_started` has it. Raises LookupError.
    """
    times_us: dict[str, list[float]] = {before.name: [], after.name: []}
    order = [name for turn in range(RUNS) for name in ((before.name, after.name), (after.name, before.name))[turn % 2]]
    say_note(f"attempts {before.name} and {after.name} in turns, {len(order)} runs")
    others, steps = Others(), {}
    for turn, name in enumerate(order, 1):
        one, step = (before, asked) if name == before.name else (after, after.asked)
        step = step or one.loop  # no need to find it again
        with new_folder() as folder:
            source = str((FOLDER / name).absolute())
            told = Settings([], str(folder), step, only_timed=True, has=one.has, is_quiet=True, source=source)
            code, runs, _ = _recorded(_kind(one.command), told, to_stderr)
        if code or not runs or not all(run.is_done for run in runs):
            raise LookupError(f"the program of attempt {name} ended with exit code {code} before enough of its steps were timed")
        times_us[name].append(max(run.step_us for run in runs))
        steps[name] = runs[0].step
        say_note(f"{turn} of {len(order)}: {name}: {us(times_us[name][-1])}")
    old, new = (
        msgspec.structs.replace(one, times_us=tuple(times_us[one.name]), step=steps[one.name], asked=None)
        for one in (before, after)
    )
    if not new.has_the_step_of(old):
        raise LookupError(f"a step of {old.name} is {old.step}, of {new.name} {new.step}: say --step, of both")
    if not 1 / CHANGED < old.step_us / before.step_us < CHANGED:
        say_note(
            f"attempt {old.name} took {us(before.step_us)} then, and {us(old.step_us)} now: what it reads beside its own Python "
            "files may have changed, or the machine"
        )
    if busy := others.busy():
        say_note(f"busy meanwhile: {busy}")
    return outcome(old, new, ratio_of_medians(list(old.times_us), list(new.times_us)))
