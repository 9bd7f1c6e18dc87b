"""`%%try_step`: a cell of a notebook as a step, which is tried as `read-trace try` tries a program."""

import contextlib
import sys
from typing import Any

from trace_reader.analysis.runs.attempts import last_of, outcome
from trace_reader.commands.attempt_folder import Begun, attempts_here, keep, new_folder
from trace_reader.commands.try_program import told
from trace_reader.recording.step_recorder import StepRecorder
from trace_reader.recording.tried_run import run_of
from trace_reader.system.busy import Others
from trace_reader.system.files import write_file

MAGIC = "%%try_step"


def load_ipython_extension(ipython: Any) -> None:
    """Add the magic %%try_step [NAME] to a notebook. `%load_ext trace_reader` calls this function.

    The magic runs its cell many times and treats each run as a step. It times some runs without the profiler and records a few
    others. It then prints what to change, and how the step compares with that of the previous cell of the same name.
    """
    ipython.register_magic_function(lambda line, cell: _try_step(ipython, line, cell), "cell", MAGIC.removeprefix("%%"))


def _try_step(ipython: Any, line: str, cell: str) -> None:
    """Try a cell. Raises what the cell raises, TraceError and NotWrittenError."""
    code = compile(ipython.transform_cell(cell), "<cell>", "exec")
    command = tuple(filter(None, (MAGIC, line.strip())))
    with new_folder() as folder:
        recorder, others, seen = StepRecorder(folder), Others(), 0
        with contextlib.ExitStack() as stack:
            stack.callback(recorder.abandon)
            while not recorder.is_done:
                with contextlib.redirect_stdout(None if seen else sys.stdout):  # what it prints, once
                    exec(code, ipython.user_ns)
                recorder.ended()
                seen += 1
        write_file(folder / "cell.py", cell.encode())
        runs = [run_of(recorder, "a run of the cell", seen, "", [], True)]
        before = last_of(attempts_here(), " ".join(command))
        lines, attempt = keep(folder, runs, Begun(command, " ".join(command), None, None, others.busy()))
    print(told(attempt, lines, before, None if before is None else outcome(before, attempt)), end="")
