"""Does profiling work on this machine? Profiles one matmul, and reports what works and what is missing.

    uv run 00_doctor.py
    uv run 00_doctor.py --json

Each line reports ok, a warning (a lesson or a flag will not work) or a problem (something is broken), and what to do about it.
The exit code is 1 if something is broken; otherwise it is 0, and the lessons that suit this machine will work. The check takes
about ten seconds and changes nothing.
"""

import argparse
import dataclasses
import json
import sys

from common.short_errors import ShortErrorParser
from doctor.checks import examine, exit_code, report


def parse_args(argv=None):
    parser = ShortErrorParser(prog="00_doctor.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print a JSON list of name, status, text and todo, for programs")
    return parser.parse_args(argv)


def main(args):
    checks = examine()
    print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2) if args.json else report(checks), end="")
    return exit_code(checks)


if __name__ == "__main__":
    sys.exit(main(parse_args()))
