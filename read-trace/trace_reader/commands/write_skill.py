"""`read-trace skill`: instructions for a coding agent, as a file that it reads."""

import argparse
from pathlib import Path

from trace_reader.errors import NotWrittenError
from trace_reader.system.files import write_file

SKILL = """\
Write the skill `profile` for coding agents: how to record, read, change one thing and try again with this tool.

    read-trace skill --to ~/.agents/skills

Without --to it is printed.
"""
FILE = Path(__file__).parents[1] / "skills" / "profile" / "SKILL.md"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = SKILL
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="write FOLDER/profile/SKILL.md")


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises NotWrittenError."""
    text = FILE.read_text("utf-8")
    if args.to is None:
        return text, 0
    target = args.to / FILE.parent.name / FILE.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWrittenError(f"{target}: {error.strerror}") from None
    write_file(target, text.encode())
    return f"wrote {target}\n", 0
