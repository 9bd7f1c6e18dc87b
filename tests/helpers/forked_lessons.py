"""A process that has imported torch already and runs lessons in forks of itself: importing torch takes seconds, a fork nothing.

python forked_lessons.py        reads a line of JSON for each lesson: {"argv", "cwd", "env", "out", "err"}; answers its exit code
"""

import atexit
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
import warnings


def run(argv: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    """In the fork: the script as Python runs it, with stdout and stderr in files; never returns."""
    code = 1
    try:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv, sys.path[0] = argv, os.path.dirname(argv[0])
        try:
            runpy.run_path(argv[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main() -> None:
    # What a lesson imports on its way: torch, what torch's profiler imports when it starts, and the reader.
    for name in (
        "torch._inductor",
        "torch._meta_registrations",
        "torch.fx.experimental.symbolic_shapes",
        "torch.profiler",
        "trace_reader.reading",
        "trace_reader.report.trace_report",
    ):
        importlib.import_module(name)
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded")  # torch's threads are idle here
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for line in sys.stdin:
        asked = json.loads(line)
        if (child := os.fork()) == 0:
            run(**asked)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
