"""A parser whose errors are one line: the mistake first, without all flags before it."""

import argparse
import difflib
import sys
from typing import NoReturn


class ShortErrorParser(argparse.ArgumentParser):
    """As argparse's, but for its errors: `error: ...`, the flag that is meant if one is spelled alike, and where all are."""

    def error(self, message: str) -> NoReturn:
        sys.stdout.flush()
        print(f"error: {message}{self._meant(message)}\n  all flags: uv run {self.prog} --help", file=sys.stderr)
        sys.exit(2)

    def _meant(self, message: str) -> str:
        _, unknown, flags = message.partition("unrecognized arguments: ")
        flag = flags.partition(" ")[0].partition("=")[0]
        near = difflib.get_close_matches(flag, self._option_string_actions, 1, 0.75) if unknown and flag.startswith("--") else []
        return f" (did you mean {near[0]}?)" if near else ""
