"""Read a profiler trace: the bottleneck, the steps, the kernels, and what it means. `uv run read_trace.py --help`

The program is trace_reader/; outside this clone it is the command `read-trace`.
"""

from trace_reader.system.interrupts import at_once

with at_once():  # Ctrl-C, while it is imported
    from trace_reader import cli

PROG, COMMAND = "read_trace.py", "uv run read_trace.py"


def main(argv: list[str] | None = None) -> int:
    return cli.main(argv, PROG, COMMAND)


if __name__ == "__main__":
    cli.script(PROG, COMMAND)
