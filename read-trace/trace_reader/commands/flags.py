"""The flag that commands which read steps have in common."""

import argparse
import re


def add_steps_from(parser: argparse.ArgumentParser) -> None:
    """`--steps_from REGEX`."""
    parser.add_argument(
        "--steps_from",
        metavar="REGEX",
        type=pattern,
        help="the annotations that are the steps, where these are not ProfilerStep#N: their names match",
    )


def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, got {text!r}: {error}") from None
