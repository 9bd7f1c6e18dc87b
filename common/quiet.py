"""Around a run: what torch prints in a healthy one is kept off the terminal, and what the user can mend is one line."""

import argparse
from collections.abc import Iterator
import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings

from common.cli import LessonError
from common.device import Device, is_out_of_memory

# Lines of a healthy run: Kineto's progress (USDT:2026-11-20 ...), and torch's log below the level of an error
# (W1120 11:48:15 ...), and the winner of an autotuning. That Kineto could not write its file is said in our words.
NOISE = re.compile(
    rb"(USDT|VERBOSE|INFO|STAGE):\d{4}-\d\d-\d\d |\[?[VIW]\d{4} \d\d:\d\d:\d\d"
    rb'|Autotune Choices Stats:|\{"num_choices":|ERROR:.* output_json\.cpp'
)
NOISE_WITHOUT_GPU = re.compile(rb"ERROR:.* gpuGetDeviceCount failed")


@contextlib.contextmanager
def watched(args: argparse.Namespace, device: Device) -> Iterator[None]:
    """For the block: torch's own messages are kept off the terminal, and failures that the user can mend are one line."""
    with quiet(args, device), explained(args, device):
        yield


@contextlib.contextmanager
def quiet(args: argparse.Namespace, device: Device) -> Iterator[None]:
    """Keep what Kineto and torch print in a healthy run off the terminal; pass all else on when the block ends.

    Kineto prints from C++, past Python's sys.stderr, so it is the file descriptor that is redirected. With TORCH_LOGS, which
    asks torch to tell more, all is passed on at once.
    """
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    if args.compile_mode and args.compile_mode.startswith("max-autotune"):
        # Autotuning prints a table of its candidates, and an error for each that does not fit the device.
        from torch._inductor import select_algorithm  # here, because it takes seconds to import

        select_algorithm.PRINT_AUTOTUNE = False
        logging.getLogger(select_algorithm.__name__).setLevel(logging.CRITICAL)
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as said, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\b")
        warnings.filterwarnings("ignore", message="Profiler won't be using warmup")  # --schedule_warmup 0 asked for it
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            said.seek(0)
            for line in said:
                if not NOISE.match(line) and not (device.type == "cpu" and NOISE_WITHOUT_GPU.match(line)):
                    os.write(2, line)


@contextlib.contextmanager
def explained(args: argparse.Namespace, device: Device) -> Iterator[None]:
    """Turn the failures of a step that the user can mend into a LessonError."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise device.out_of_memory(args) from error
        if compiler := _missing_compiler(str(error)):
            raise LessonError(
                f"torch.compile needs {compiler} and finds none that works; install one, or run without --compile"
                if args.compile
                else f"this lesson's kernel needs {compiler} and finds none that works; install one"
            ) from error
        raise


def _missing_compiler(message: str) -> str | None:
    """Return which compiler torch.compile misses, from the message of Inductor's or Triton's error; None: another error."""
    if found := re.search(r"No working C\+\+ compiler found in .*'(.+)'\)", message):
        return f"a C++ compiler ({found[1]})"
    if found := re.search(r"Compiler: (\S+) is not found", message):
        return f"a C++ compiler ({found[1]})"
    if "Failed to find C compiler" in message:
        return "a C compiler (gcc or clang; the variable CC names it) for Triton's launchers"
    if (found := re.search(r"No such file or directory: '(.+)'", message)) and found[1] == os.environ.get("CC"):
        return f"a C compiler ({found[1]}, which the variable CC names) for Triton's launchers"
    if found := re.search(r"Command '\['([^']*(?:cc|clang)[^']*)'.* returned non-zero exit status", message):
        return f"a C compiler ({found[1]}, which says why above) for Triton's launchers"
    if "Cannot find a working triton installation" in message:
        return "Triton"
    return None
