"""Does profiling work on this machine? Runs one matmul under the profiler, and says what is there and what is missing.

    uv run 00_doctor.py
    uv run 00_doctor.py --json

Each line is ok, a warning (a lesson or a flag will not work) or a problem (something is broken), with what to do. The exit
code is 0 when the lessons that this machine can run will work, and 1 when something is broken. It takes some ten seconds and
changes nothing.
"""

import argparse
import dataclasses
import json
import sys

from common.doctor import examine, exit_code, report


def parse_args(argv=None):
    parser = argparse.ArgumentParser(
        prog="00_doctor.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="a list of name, status, text and todo, for programs")
    return parser.parse_args(argv)


def main(args):
    checks = examine()
    print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2) if args.json else report(checks), end="")
    return exit_code(checks)


if __name__ == "__main__":
    sys.exit(main(parse_args()))
