"""What the ladders of lessons 05_d and 05_e share: rungs in their order, and the flags that come with a rung."""

import argparse
from collections.abc import Mapping, Sequence
import sys

from common.cli import LessonParser


class Rungs(dict[str, str]):
    """The rungs of a ladder, the lowest one first, and what each of them changes. A rung has the changes of those before it."""

    def reached(self, rung: str, other: str) -> bool:
        """Return whether a rung is as high as another one."""
        every = list(self)
        return every.index(rung) >= every.index(other)


def parse_rung(parser: LessonParser, argv: Sequence[str] | None, flags: Mapping[str, Sequence[str]]):
    """Return the arguments, with the `flags` that come with their rung. Heads that do not divide the width end the process."""
    argv = sys.argv[1:] if argv is None else argv
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)  # finds the rung, and checks nothing
    first.add_argument("--rung", default="", nargs="?")
    args = parser.parse_args([*flags.get(first.parse_known_args(argv)[0].rung, ()), *argv])
    if args.dim % args.heads:
        parser.error(f"--heads {args.heads} is no divisor of --dim {args.dim}")
    return args
