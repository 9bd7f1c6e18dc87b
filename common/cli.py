"""The shared flags, and how a lesson ends: exit code 0, or one `error: ...` line with exit code 1 or 2."""

import argparse
from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import errno
import os
from pathlib import Path
import signal
import sys
from typing import NoReturn

from common.run_names import Run, check_folder, run_tag
from common.short_errors import ShortErrorParser
import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class LessonError(Exception):
    """Something the user can mend. `exit_code` is 2 for what was asked for, 1 for what happened on the way."""

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


def stop(error: LessonError) -> NoReturn:
    """End the process with the error's line and exit code."""
    sys.stdout.flush()
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


def positive_int(text: str) -> int:
    return _int_from(1, text)


def count(text: str) -> int:
    return _int_from(0, text)


def seed(text: str) -> int:
    """Return a seed that torch.manual_seed takes."""
    value = count(text)
    if value >= 2**64:
        raise argparse.ArgumentTypeError(f"expected a whole number below 2^64, got {text!r}")
    return value


def _int_from(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number, {least} or more, got {text!r}")
    return value


def guess_and_look(doc: str) -> tuple[str, str]:
    """Return a lesson's text without what its trace shows, the paragraph "Then look", and that paragraph."""
    before, begins, after = doc.partition("Then look: ")
    look, blank, rest = after.partition("\n\n")
    if not begins:
        return doc, ""
    return f"{before}Then look at the trace; --look says what it shows.{blank}{rest}", f"{look[:1].upper()}{look[1:]}"


class LessonParser(ShortErrorParser):
    """The flags that all lessons share; a lesson adds its sizes with `add_size`, a choice that names the run
    with `add_variant`, and the rest with `add_argument`.

    `parse_args` returns, beside the flags, the `run` (`common.run_names.Run`: what it is called, and where its artifacts lie).
    Flags are spelled with underscores, as in the posts; the spelling with hyphens means the same.
    """

    def __init__(
        self,
        file: str,
        doc: str | None,
        *,
        warmup: bool = True,
        counted: str = "kernels (without a GPU: ops that do work)",
        of_dtype: str = "inputs and weights",
    ):
        """`file` and `doc` are the lesson's `__file__` and `__doc__`; `warmup` is the default of `--warmup`; `counted` says of
        what `--guess` is the number, `of_dtype` what has the type of `--dtype`.
        """
        script = Path(file).stem
        asks, look = guess_and_look(doc or "")
        super().__init__(
            prog=f"{script}.py", description=asks, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        self._script = script
        self._sizes = self.add_argument_group("sizes")
        self._size_flags: list[str] = []
        self._variant_flags: list[str] = []

        self.add_argument(
            "--guess", type=count, metavar="N", help=f"how many {counted} you expect a step to launch; the run answers"
        )
        if look:
            self.add_argument("--look", action="version", version=look, help="say what the trace shows, and exit: guess first")
        self._add_shared(warmup, of_dtype)
        self._add_schedule()
        self._add_recording(script)

    def _add_shared(self, warmup: bool, of_dtype: str) -> None:
        shared = self.add_argument_group("flags that all lessons share")
        shared.add_argument("--dtype", choices=DTYPES, default="bf16", help=f"type of {of_dtype} (default: %(default)s)")
        shared.add_argument(
            "--warmup",
            action=argparse.BooleanOptionalAction,
            default=warmup,
            help="make 3 plain calls and synchronize before the profiler starts, so that one-time costs are "
            f"not in the trace (default: {'on' if warmup else 'off'})",
        )
        shared.add_argument("--compile", action="store_true", help="run through torch.compile")
        shared.add_argument(
            "--compile_mode", choices=COMPILE_MODES, help="torch.compile's mode; needs --compile (default: default)"
        )
        shared.add_argument(
            "--device",
            choices=("auto", "cuda", "xpu", "mps", "cpu"),
            default="auto",
            help="auto: torch's current accelerator if it is usable, else cpu; ROCm counts as cuda (default: %(default)s)",
        )

    def _add_schedule(self) -> None:
        schedule = self.add_argument_group(
            "schedule",
            "The step is called wait + schedule_warmup + active times: the schedule runs once (repeat is 1). Steps are "
            "numbered from 0 and only the active ones are recorded: ProfilerStep#N from N = wait + schedule_warmup "
            "to N = wait + schedule_warmup + active - 1, so by default ProfilerStep#2, #3 and #4.",
        )
        schedule.add_argument("--wait", type=count, default=1, help="steps with the profiler off (default: %(default)s)")
        schedule.add_argument(
            "--schedule_warmup",
            type=count,
            default=1,
            help="steps that the profiler traces and throws away: its own start-up is in these (default: %(default)s)",
        )
        schedule.add_argument("--active", type=positive_int, default=3, help="steps that are recorded (default: %(default)s)")

    def _add_recording(self, script: str) -> None:
        detail = self.add_argument_group("what is recorded and where")
        detail.add_argument(
            "--record_shapes",
            action="store_true",
            help="record each op's input shapes, and list them in the table; costs CPU time in every op",
        )
        detail.add_argument(
            "--profile_memory",
            action="store_true",
            help="record allocations and frees; costs CPU time for each of them, and makes the trace larger",
        )
        detail.add_argument(
            "--with_stack",
            action="store_true",
            help="record the Python stack of each op; costs the most CPU time, and makes the trace many times larger",
        )
        detail.add_argument(
            "--trace_dir", type=Path, default=Path("traces") / script, help="folder of the two artifacts (default: %(default)s)"
        )
        detail.add_argument(
            "--plain",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="afterwards, call the step twice more without the profiler, then time three rounds, each of two "
            "steps or 0.07 s, whichever is longer (default: on)",
        )
        detail.add_argument("--gz", action="store_true", help="write the trace as .json.gz, about 10 times smaller")
        detail.add_argument("--seed", type=seed, default=0, help="random seed of inputs and weights (default: %(default)s)")

    def add_size(self, flag: str, default: int, help: str) -> None:
        """Add a size flag: a positive integer that is part of the run's name."""
        action = self._sizes.add_argument(flag, type=positive_int, default=default, help=f"{help} (default: %(default)s)")
        self._size_flags.append(action.dest)

    def add_variant(self, flag: str, choices: Collection[str], default: str, help: str) -> None:
        """Add a choice that is part of the run's name, after the sizes."""
        action = self.add_argument(flag, choices=choices, default=default, help=f"{help} (default: %(default)s)")
        self._variant_flags.append(action.dest)

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        """Parse and check; a mistake ends the process with a message and exit code 2.

        `compile_mode` is None unless `--compile_mode` is given, which torch.compile takes as its default mode.
        """
        spellings = {option.replace("_", "-"): option for option in self._option_string_actions}

        def underscored(token: str) -> str:
            flag, equals, value = token.partition("=")
            return spellings.get(flag.replace("_", "-"), flag) + equals + value

        tokens = sys.argv[1:] if args is None else args
        parsed = super().parse_args([underscored(t) if t.startswith("--") else t for t in tokens], namespace)
        if parsed.compile_mode and not parsed.compile:
            self.error(f"--compile_mode {parsed.compile_mode} changes nothing without --compile: add --compile")
        if parsed.compile:  # on a CPU the fused kernels are in the trace then
            os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")
        tag = run_tag(
            sizes=[getattr(parsed, name) for name in (*self._size_flags, *self._variant_flags)],
            dtype=parsed.dtype,
            warmup=parsed.warmup,
            compile=parsed.compile,
            changed=self._changed_settings(parsed),
        )
        parsed.run = Run(self._script, tag, tuple(self._size_flags), parsed.trace_dir, parsed.gz)
        return parsed

    def _changed_settings(self, parsed: argparse.Namespace) -> dict[str, object]:
        """Return the settings that are not at their default and that the tag does not name otherwise, in the flags' order."""
        named = {
            *self._size_flags,
            *self._variant_flags,
            "help",
            "look",
            "dtype",
            "warmup",
            "compile",
            "trace_dir",
            "plain",
            "guess",
        }
        return {
            action.dest: getattr(parsed, action.dest)
            for action in self._actions
            if action.dest not in named and getattr(parsed, action.dest) != action.default
        }


def run(main: Callable[[argparse.Namespace], None], parse_args: Callable[[], argparse.Namespace]) -> NoReturn:
    """Run a lesson, `main(parse_args())`, and end the process.

    Checks the trace folder first, and turns what the user can mend into one line. The exit code is 0; 1 or 2 after an
    error; 141 where nobody reads what it prints any more. Ctrl-C and SIGTERM end the process on the spot, for a shell with
    130 and 143: Python's exception would be lost in a callback of torch's, or end a running profiler by a segmentation fault.
    """
    for number in _heeded_signals():
        signal.signal(number, signal.SIG_DFL)
    try:
        args = parse_args()
        try:
            check_folder(args.run)
        except OSError as error:
            raise LessonError(f"--trace_dir {args.trace_dir}: cannot write there: {error}", exit_code=2) from error
        main(args)
        sys.stdout.flush()
    except LessonError as error:
        stop(error)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again at its end
        if error.errno == errno.EPIPE:  # `| head`
            sys.exit(128 + signal.SIGPIPE)
        stop(LessonError(f"cannot write to standard output: {error.strerror}"))
    sys.exit(0)


@contextlib.contextmanager
def tidy_on_signals() -> Iterator[None]:
    """For the block, Ctrl-C and SIGTERM raise SystemExit (130, 143), so that files which are not whole are removed."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, leave) for number in _heeded_signals()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _heeded_signals() -> list[signal.Signals]:
    """Not Ctrl-C where the process was started to ignore it: in the background."""
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
