"""`python -m trace_reader`: the command read-trace, where it is not on the PATH."""

from trace_reader.system.interrupts import at_once

with at_once():  # Ctrl-C, while it is imported
    from trace_reader.cli import script

if __name__ == "__main__":
    script()
