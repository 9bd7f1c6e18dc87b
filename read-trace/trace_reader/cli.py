"""The command `read-trace`: its words, and its exit codes. What each command does is in trace_reader/commands."""

import argparse
import contextlib
import difflib
import gc
from pathlib import Path
import re
import sys
from typing import NoReturn, TextIO

from trace_reader import __version__, guard
from trace_reader.errors import MissingExtraError, NotWrittenError, TraceError
from trace_reader.parse.byte_source import is_remote, list_folder
from trace_reader.system.files import check_target, protected
from trace_reader.system.interrupts import at_once, unwind_on_signals
from trace_reader.system.terminal import prepare_streams, printable, say_error, stdout_failed

with at_once():
    from trace_reader.commands import BY_WORD, COMMANDS, Command

HELP = """\
usage: {prog} [COMMAND] TRACE...
What a trace of torch.profiler shows: what limits the run, and what to try next.

Which line takes the time?  {command} time TRACE --by stack
What holds the memory?      {command} memory SNAPSHOT.pickle
What changed?               {command} compare BEFORE AFTER
Is it worse?                {command} check NEW... --baseline OLD...

{commands}
TRACE: a .json or .json.gz of torch.profiler, of any torch and any GPU; several or
a folder for a table; JOB_rank*.json, the ranks of a job; - is standard input.
{command} COMMAND --help has its flags; --version.
Exit code: 0; 2 for a file that is no trace, and for a mistake in the call; 1 if the
answer could not be written, memory ran out, or the reader itself failed.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one sentence, and the two lines that help. - and _ mean the same inside a flag."""

    called = ""  # how the program is called, with the command

    def error(self, message: str) -> NoReturn:
        usage = re.sub(r"\s+", " ", self.format_usage().removeprefix("usage: ").replace("[-h] ", "")).strip()
        flags = f"{self.called} --help"
        sys.stdout.flush()
        print(f"error: {printable(message, 2000)}\n  usage: {printable(usage, 2000)}\n  flags: {flags}", file=sys.stderr)
        sys.exit(2)

    def spelled(self, tokens: list[str]) -> list[str]:
        """The tokens with this parser's own spelling of its flags."""
        one = {option.replace("-", "_"): option for option in self._option_string_actions if option.startswith("--")}
        spelled = []
        for token in tokens:
            flag, equals, value = token.partition("=")
            spelled.append(one.get(flag.replace("-", "_"), flag) + equals + value if flag.startswith("--") else token)
        return spelled


def parser_of(command: Command, prog: str = "read-trace", called: str = "read-trace") -> Parser:
    """The parser of one command."""
    top = Parser(prog=prog, add_help=False)
    words = top.add_subparsers(prog=prog, parser_class=Parser)
    text = f"{command.help[0].upper()}{command.help[1:]}."
    raw = argparse.RawDescriptionHelpFormatter
    parser = words.add_parser(command.word, description=text, formatter_class=raw, allow_abbrev=False)
    parser.called = f"{called} {command.word}"
    parser.set_defaults(run=command.run, word=command.word, called=called)
    command.add_flags(parser)
    return parser


def parse_args(argv: list[str] | None = None, prog: str = "read-trace", called: str = "read-trace") -> argparse.Namespace:
    """The flags; `run` is the command that they ask for. A mistake ends the process with a message and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["help"] and not Path("help").exists():
        argv = [*argv[1:2], "--help"] if argv[1:2] and argv[1] in BY_WORD else ["--help"]
    if argv[:1] in (["--help"], ["-h"]):
        print(help_text(prog, called), end="")
        sys.exit(0)
    if argv[:1] == ["--version"]:
        print(f"read-trace {__version__}")
        sys.exit(0)
    command, tokens = _command_of(argv, prog, called)
    parser = parser_of(command, prog, called)
    args, others = parser.parse_known_args(parser.spelled(tokens))
    if others:
        parser.error(_not_of(command, others[0], prog))
    traces = [*getattr(args, "traces", ()), getattr(args, "eager", None)]
    if traces.count("-") > 1:
        parser.error("standard input (-) can be read only once")
    if command.word == "open" and args.traces == ["-"]:
        parser.error("open takes a file, not standard input")
    return args


def help_text(prog: str, called: str) -> str:
    """What `--help` prints: a screen, in which the questions stand first."""
    default = " (the default)"
    lines = "".join(f"  {one.word:<9} {one.help}{default * (one is COMMANDS[0])}\n" for one in COMMANDS)
    return HELP.format(prog=prog, command=called, commands=lines)


def _command_of(argv: list[str], prog: str, called: str) -> tuple[Command, list[str]]:
    """The command, by its word or by the flag that stands for it, and the rest."""
    first = argv[0] if argv else ""
    if first in BY_WORD and not Path(first).exists():
        return BY_WORD[first], argv[1:]
    flags = {token.partition("=")[0].removeprefix("--").replace("-", "_") for token in argv if token.startswith("--")}
    asked = [command for command in COMMANDS if command.alias and command.alias in flags]
    if "names" in flags:  # it has --by, too
        asked = [command for command in asked if command.word != "time"]
    report = COMMANDS[0]
    if len(asked) > 1:
        listed = " and ".join(f"--{command.alias}" for command in asked)
        parser_of(report, prog, called).error(f"{listed} are two commands: give one of them")
    if not asked and re.fullmatch(r"[a-z][a-z_-]*", first) and not Path(first).exists():
        close = difflib.get_close_matches(first.replace("_", "-"), BY_WORD, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        parser = parser_of(BY_WORD[close[0]] if close else report, prog, called)
        parser.called = called
        parser.error(f"no command and no file is called {first!r}{meant}")
    return asked[0] if asked else report, argv


def _not_of(command: Command, token: str, prog: str) -> str:
    """What is wrong with a token that a command does not take."""
    if not token.startswith("-"):
        return f"{command.word} takes one trace, got {token!r} beside it"
    flag = token.partition("=")[0]
    heeding = [one.word for one in COMMANDS if flag.replace("-", "_") in _flags_of(one)]
    if heeding:
        *before, last = heeding
        words = f"{', '.join(before)} and {last}" if before else last
        return f"{flag} does nothing with {command.word}: it is for {words}"
    known = [option for option in parser_of(command, prog)._option_string_actions if option.startswith("--")]
    close = difflib.get_close_matches(flag, known, 1)
    return f"{command.word} has no flag {flag}{f'; did you mean {close[0]}?' if close else ''}"


def _flags_of(command: Command) -> set[str]:
    return {option.replace("-", "_") for option in parser_of(command)._option_string_actions}


def main(argv: list[str] | None = None, prog: str = "read-trace", command: str = "read-trace") -> int:
    """Do what the arguments say; the exit code. `command` is how the help calls the program."""
    args = parse_args(argv, prog, command)

    def run() -> tuple[str, int]:
        with protected(_inputs(args)):
            _check_targets(args)
            return args.run(args)

    # A copy itself went to stdout: what is said of it does not.
    return _answered(args, run, sys.stderr if args.word == "redact" and args.out == "-" else sys.stdout)


def _answered(args: argparse.Namespace, run, stream: TextIO) -> int:
    """Run a command and print its answer; the exit code."""
    try:
        text, code = run()
    except (TraceError, LookupError) as error:
        say_error(error)
        return 2
    except (MissingExtraError, NotWrittenError) as error:
        say_error(error)
        return 1
    except OSError as error:  # of a copy on stdout
        return stdout_failed(error)
    except MemoryError:
        say_error("there is not enough memory for this trace: read it on a larger machine, or record fewer steps")
        return 1
    except Exception as error:
        if guard.raises:
            raise
        say_error(f"read-trace {__version__} failed on this: {guard.error_line(error)}; please report it")
        return 1
    try:
        stream.write(text)
        stream.flush()
        sys.stdout.flush()
    except OSError as error:
        return stdout_failed(error)
    return code


def _inputs(args: argparse.Namespace) -> list[str | int]:
    """The files that are read, those in folders, too; 0 is standard input."""
    beside = (getattr(args, name, None) for name in ("eager", "snapshot"))
    named = [*getattr(args, "traces", ()), *filter(None, beside)]
    every = [path for name in named for path in ([name] if name == "-" or is_remote(name) else list_folder(name) or [name])]
    return [0 if path == "-" else path for path in every]


def _check_targets(args: argparse.Namespace) -> None:
    """Raises NotWrittenError where the answer would be written onto what is read: before it is worked out."""
    target = getattr(args, "out", None)
    if target is not None and str(target) != "-":
        check_target(target)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream that is no file
        check_target(sys.stdout.fileno())


def script(prog: str = "read-trace", command: str = "read-trace") -> None:
    """The program: as `main`, with streams that work, ended quietly by Ctrl-C and SIGTERM."""
    prepare_streams()
    unwind_on_signals()
    gc.disable()  # what is read lives to the end: looking for garbage in it takes as long as reading it
    code = main(None, prog, command)
    gc.freeze()  # nor is it looked for at the end
    sys.exit(code)
