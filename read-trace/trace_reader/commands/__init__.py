"""The commands: what each is asked with, how many traces it takes, and which other flags change what it does.

The first is the report. To add one: a file in this folder, an entry here, and its flag in cli.py.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec
from trace_reader.scene.document import Style

REPORT = ""  # the command without a flag of its own
FORMS = ("json", "md")


class Command(msgspec.Struct, frozen=True):
    """A command. `flag` asks for it; `takes` are the other flags that it heeds: any other one is an error. `one`: whether it
    takes one trace only. `run` returns what is printed, and the exit code.

    What only some commands need is imported when they run: most runs are short.
    """

    flag: str
    takes: tuple[str, ...]
    one: bool
    run: Callable[[argparse.Namespace], tuple[str, int]]


def _style(args: argparse.Namespace) -> Style:
    return Style(top=args.top, full=args.full, everything=args.all)


def _written(args: argparse.Namespace, answer: object) -> str:
    """An answer in the form that was asked for."""
    from trace_reader.write import OUTPUTS, TEXT, Answer

    form = next((OUTPUTS[name] for name in FORMS if getattr(args, name)), TEXT)
    return form.write(answer) if isinstance(answer, Answer) else ""


def _report(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    answer, code = report.report(args.traces, _style(args), args.steps_from, args.scheduler, args.recompiles)
    return _written(args, answer), code


def _brief(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return report.brief(args.traces[0], args.steps_from), 0


def _chain(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return _written(args, report.chain(args.traces[0], args.chain, _style(args), args.steps_from)), 0


def _by(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return _written(args, report.by(args.traces[0], args.by, _style(args), args.steps_from, args.time)), 0


def _names(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return _written(args, report.names(args.traces[0], args.names, args.by, _style(args), args.steps_from)), 0


def _what_if(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import change_run

    return _written(args, change_run.run(args.traces, args.what_if, _style(args), args.steps_from)), 0


def _plot(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import draw_picture

    return draw_picture.run(args.traces, args.plot, args.steps, args.us, args.steps_from, args.scheduler), 0


def _html(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import write_page

    return write_page.run(args.traces, args.html, _style(args), args.steps_from, args.scheduler, args.snapshot), 0


def _folded(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import folded_stacks

    return folded_stacks.run(args.traces[0], Path(args.folded), args.steps_from, args.time), 0


def _merge(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import merge_ranks

    return merge_ranks.run(args.traces, args.merge, args.scheduler), 0


def _open(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import open_perfetto

    return "", open_perfetto.run(args.traces[0])


def _redact(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import redact

    return redact.run(args.traces[0], args.redact, args.keep, args.all), 0


COMMANDS = (
    Command(REPORT, (*FORMS, "top", "all", "full", "steps_from", "scheduler", "recompiles"), False, _report),
    Command("brief", ("steps_from",), True, _brief),
    Command("chain", (*FORMS, "full", "steps_from"), True, _chain),
    Command("by", (*FORMS, "time", "top", "all", "full", "steps_from"), True, _by),
    Command("names", (*FORMS, "by", "top", "all", "full", "steps_from"), True, _names),
    Command("what_if", (*FORMS, "all", "steps_from"), False, _what_if),
    Command("plot", ("steps", "us", "steps_from", "scheduler"), False, _plot),
    Command("html", ("top", "all", "full", "steps_from", "scheduler", "snapshot"), False, _html),
    Command("folded", ("time", "steps_from"), True, _folded),
    Command("merge", ("scheduler",), False, _merge),
    Command("open", (), True, _open),
    Command("redact", ("keep", "all"), True, _redact),
)


def command_of(args: argparse.Namespace) -> Command:
    """The command that the flags ask for. Raises ValueError, in words for the user: two are asked for, or a flag does nothing."""
    given = [name for name, value in vars(args).items() if name != "traces" and value is not None and value is not False]
    asked = [own for own in COMMANDS if own.flag in given]
    # --by has a table of its own, and chooses the rows of that of --names.
    asked = [own for own in asked if not any(own.flag in other.takes for other in asked)]
    if len(asked) > 1:
        raise ValueError(f"{' and '.join(f'--{own.flag}' for own in asked)} are two commands: give one of them")
    command = asked[0] if asked else COMMANDS[0]
    for name in given:
        if name != command.flag and name not in command.takes:
            raise ValueError(f"--{name} does nothing {_with(command)}: it is for {_heeding(name)}")
    return command


def _with(command: Command) -> str:
    return f"with --{command.flag}" if command.flag else "in a report"


def _heeding(name: str) -> str:
    """The commands that heed a flag, in words."""
    words = [f"--{own.flag}" if own.flag else "the report" for own in COMMANDS if name in own.takes]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
