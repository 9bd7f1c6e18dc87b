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
And a program of my own?    {command} try train.py

{commands}
TRACE is a .json or .json.gz of torch.profiler, or - for standard input. Several, or a
folder, make a table; JOB_rank*.json are a job's ranks. COMMAND --help lists its flags.
Exit code 2: no trace, or a mistake in the call; 1: the answer could not be written.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one sentence, and the two lines that help. - and _ mean the same inside a flag."""

    called = ""  # how the program is called, with the command
    former: dict[str, str]  # flags of before: those that they are now

    def error(self, message: str) -> NoReturn:
        _mistake(message, self.usage_line(), self.called)

    def usage_line(self) -> str:
        return re.sub(r"\s+", " ", self.format_usage().removeprefix("usage: ").replace("[-h] ", "")).strip()

    def split(self, tokens: list[str]) -> tuple[list[str], list[str]]:
        """Return the tokens that are flags, with their values, and those from the first other one on: a program's."""
        at, flags = 0, {flag.replace("-", "_"): action for flag, action in self._option_string_actions.items()}
        while at < len(tokens) and tokens[at].startswith("-"):
            action = flags.get(tokens[at].replace("-", "_"))
            at += 2 if action is not None and action.nargs is None else 1
        return tokens[:at], tokens[at:]

    def spelled(self, tokens: list[str]) -> list[str]:
        """Return the tokens with this parser's own spelling of its flags."""
        flags = {option: option for option in self._option_string_actions if option.startswith("--")} | self.former
        one = {flag.replace("-", "_"): now for flag, now in flags.items()}
        spelled = []
        for token in tokens:
            flag, equals, value = token.partition("=")
            spelled.append(one.get(flag.replace("-", "_"), flag) + equals + value if flag.startswith("--") else token)
        return spelled


def _mistake(message: str, usage: str, called: str) -> NoReturn:
    sys.stdout.flush()
    print(f"error: {printable(message, 2000)}\n  usage: {printable(usage, 2000)}\n  flags: {called} --help", file=sys.stderr)
    sys.exit(2)


def parser_of(command: Command, prog: str = "read-trace", called: str = "read-trace") -> Parser:
    """Return the parser of one command."""
    top = Parser(prog=prog, add_help=False)
    words = top.add_subparsers(prog=prog, parser_class=Parser)
    text = f"{command.help[0].upper()}{command.help[1:]}."
    raw = argparse.RawDescriptionHelpFormatter
    parser = words.add_parser(command.word, description=text, formatter_class=raw, allow_abbrev=False)
    parser.called = f"{called} {command.word}"
    parser.former = {f"--{command.alias}": command.alias_of} if command.alias_of else {}
    parser.set_defaults(run=command.run, word=command.word, called=called)
    command.add_flags(parser)
    return parser


def parse_args(argv: list[str] | None = None, prog: str = "read-trace", called: str = "read-trace") -> argparse.Namespace:
    """Return the flags; `run` is the command that they ask for. A mistake ends the process with a message and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["help"]:
        if argv[1:2] and _by_word(argv[1]) is None:
            _no_command(argv[1], f"no command is called {argv[1]!r}", prog, called)
        argv = [*argv[1:2], "--help"]
    if argv[:1] in (["--help"], ["-h"]):
        print(help_text(prog, called), end="")
        sys.exit(0)
    if argv[:1] == ["--version"]:
        print(f"read-trace {__version__}")
        sys.exit(0)
    command, tokens = _command_of(argv, prog, called)
    parser = parser_of(command, prog, called)
    tokens, program = parser.split(tokens) if command.has_program else (tokens, [])
    args, others = parser.parse_known_args(parser.spelled(tokens))
    args.program = program
    if others:
        parser.error(_not_of(command, others[0], prog))
    traces = [*getattr(args, "traces", ()), getattr(args, "eager", None)]
    if traces.count("-") > 1:
        parser.error("standard input (-) can be read only once")
    if command.word == "open" and args.traces == ["-"]:
        parser.error("open takes a file, not standard input")
    return args


def help_text(prog: str, called: str) -> str:
    """Return what `--help` prints: a screen, in which the questions stand first."""
    default = " (the default)"
    lines = "".join(f"  {one.word:<9} {one.help}{default * (one is COMMANDS[0])}\n" for one in COMMANDS)
    return HELP.format(prog=prog, command=called, commands=lines)


def _command_of(argv: list[str], prog: str, called: str) -> tuple[Command, list[str]]:
    """Return the command, by its word or by the flag that stands for it, and the rest. A word is a command wherever it is typed:
    a file or folder of that name is ./runs.
    """
    if not argv:
        _mistake("no command, and no trace to read", _usage(prog), called)
    first = argv[0]
    if (command := _by_word(first)) is not None:
        return command, argv[1:]
    flags = {token.partition("=")[0].removeprefix("--").replace("-", "_") for token in argv if token.startswith("--")}
    asked = [command for command in COMMANDS if command.alias and command.alias in flags]
    if "names" in flags:  # it has --by, too
        asked = [command for command in asked if command.word != "time"]
    report = COMMANDS[0]
    if len(asked) > 1:
        listed = " and ".join(f"--{command.alias}" for command in asked)
        parser_of(report, prog, called).error(f"{listed} are two commands: give one of them")
    if not asked and re.fullmatch(r"[a-z][a-z_-]*", first) and not Path(first).exists():
        _no_command(first, f"no command and no file is called {first!r}", prog, called)
    return asked[0] if asked else report, argv


def _by_word(word: str) -> Command | None:
    return BY_WORD.get(word.replace("_", "-"))


def _no_command(word: str, message: str, prog: str, called: str) -> NoReturn:
    """Say that a word is no command, and what may have been meant."""
    close = difflib.get_close_matches(word.replace("_", "-"), BY_WORD, 1)
    if close:
        _mistake(f"{message}; did you mean {close[0]}?", parser_of(BY_WORD[close[0]], prog).usage_line(), called)
    _mistake(message, _usage(prog), called)


def _usage(prog: str) -> str:
    return f"{prog} [COMMAND] TRACE..., COMMAND one of {', '.join(BY_WORD)}"


def _not_of(command: Command, token: str, prog: str) -> str:
    """Return what is wrong with a token that a command does not take."""
    if not token.startswith("-"):
        beside = "two traces, got {!r} beside them" if command.word == "compare" else "one trace, got {!r} beside it"
        return f"{command.word} takes {beside.format(token)}"
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
    parser = parser_of(command)
    return {option.replace("-", "_") for option in (*parser._option_string_actions, *parser.former)}


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
    """Return the files that are read, those in folders, too; 0 is standard input."""
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
