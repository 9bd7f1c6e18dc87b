"""Where a step of a running program ends, without a change to the program: `watch` calls back once per step.

What ends a step is seen by sys.monitoring (Python 3.12), which calls back where Python enters, leaves or jumps back in code that
was asked for, and costs nothing elsewhere. Of what recurs the first of these that the program has:

    step of torch.profiler.profile · step of an optimizer · a marked range (record_function) · next of a DataLoader ·
    the turn of a loop of its own: that around its backward pass, else the outermost that turns often enough
"""

from collections.abc import Callable
import dis
import os
from pathlib import Path
import re
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import Any, NamedTuple

TOOL = 4  # of sys.monitoring: 0 to 2 and 5 are a debugger's, coverage's, a profiler's and an optimizer's
ENOUGH = 3  # times, for what recurs
WITH_GRADIENTS = 40  # times, where a backward pass runs and no optimizer has stepped
SETTLED_S, OUTER_S = 0.3, 5.0  # how long a loop has turned before it is a step; how long a loop around it is waited for
PROFILER, OPTIMIZER, RANGE, LOADER, LOOP, FUNCTION = "profiler", "optimizer", "range", "loader", "loop", "function"
IN_ORDER = (PROFILER, OPTIMIZER, RANGE, LOADER, LOOP)
OF_COMPREHENSIONS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")
OF_TORCH = ("Optimizer.", "enumerate(DataLoader)", "ProfilerStep#")  # ranges that torch marks itself
NOT_OWN = tuple({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
TORCH = f"{os.sep}torch{os.sep}__init__.py"
COMPILED = "torchinductor"  # in the name of the folder that torch.compile writes into
READER = os.path.realpath(Path(__file__).parents[1])

Where = tuple[str, Any]  # a kind, and which one of it


def is_own(path: str) -> bool:
    """Return whether a file is the program's own: neither Python's, nor installed beside it, of this reader, nor written
    by torch.compile."""
    return path.endswith(".py") and COMPILED not in path and not os.path.realpath(path).startswith((*NOT_OWN, READER))


class FoundStep:
    """What ends the steps of this program: `asked` ("train.step", "step", "train.py:12"), or what is found. `ended` is called
    each time, with what it is, in words, the first time (and when it is another one than was thought), else with None.
    `on_torch` is called with torch when the program has imported it.
    """

    def __init__(
        self,
        ended: Callable[[str | None], object],
        asked: str | None = None,
        on_torch: Callable[[Any], object] = lambda torch: None,
    ):
        self._ended, self._asked, self._on_torch = ended, asked, on_torch
        self.found: Where | None = None
        self._counts: dict[Where, int] = {}
        self._since: dict[Where, float] = {}
        self._trains = self._inside = False
        self._around_backward: Where | None = None
        self._around: list[Where] = []  # loops, when the step was found
        self._thread = threading.get_ident()
        self._loops: dict[int, tuple[CodeType, dict[int, Loop]]] = {}  # by id: equal code may be of two files
        self._torch: dict[int, tuple[CodeType, str]] = {}
        self.functions: dict[str, int] = {}  # of the program, by how often each was entered

    def watch(self) -> None:
        """Begin. Raises RuntimeError before Python 3.12."""
        if not hasattr(sys, "monitoring"):
            raise RuntimeError("finding the step of a program needs Python 3.12 or newer")
        monitoring, events = sys.monitoring, sys.monitoring.events
        monitoring.use_tool_id(TOOL, "read-trace")
        monitoring.register_callback(TOOL, events.PY_START, self._entered)
        monitoring.register_callback(TOOL, events.PY_RETURN, self._left)
        monitoring.register_callback(TOOL, events.JUMP, self._jumped)
        monitoring.set_events(TOOL, events.PY_START)  # each code once: `_entered` disables it where it is not asked for
        os.register_at_fork(after_in_child=self.stop)  # a worker of a DataLoader has no steps

    def stop(self) -> None:
        """See nothing more. What was imported goes on as it is."""
        if hasattr(sys, "monitoring") and sys.monitoring.get_tool(TOOL) == "read-trace":
            sys.monitoring.set_events(TOOL, 0)
            for code, _ in (*self._torch.values(), *self._loops.values()):
                sys.monitoring.set_local_events(TOOL, code, 0)
            sys.monitoring.free_tool_id(TOOL)

    def _look_at_torch(self) -> None:
        import torch
        import torch.utils.data

        self._on_torch(torch)

        events = sys.monitoring.events
        (stepped,) = (one for one in torch.optim.Optimizer.profile_hook_step.__code__.co_consts if isinstance(one, CodeType))
        at_return = {
            torch.profiler.profile.step.__code__: PROFILER,
            stepped: OPTIMIZER,
            torch.utils.data.dataloader._BaseDataLoaderIter.__next__.__code__: LOADER,
        }
        at_start = {torch.autograd.profiler.record_function.__enter__.__code__: RANGE, _backward_code(torch): "backward"}
        self._torch = {id(code): (code, kind) for code, kind in (*at_return.items(), *at_start.items())}
        for code in at_return:
            sys.monitoring.set_local_events(TOOL, code, events.PY_RETURN)
        for code in at_start:
            sys.monitoring.set_local_events(TOOL, code, events.PY_START)

    # --- what sys.monitoring calls

    def _entered(self, code: CodeType, offset: int) -> Any:
        if self._is_deaf():
            return None
        kind = self._torch[id(code)][1] if id(code) in self._torch else None
        if kind == "backward":
            self._trains = True
            self._around_backward = next(iter(self._loops_around(sys._getframe(1))), None)
            return None
        if kind == RANGE:
            frame = sys._getframe(1)
            name = str(frame.f_locals["self"].name)
            if self._asked is None and not name.startswith(OF_TORCH) and frame.f_back and is_own(frame.f_back.f_code.co_filename):
                name = re.sub(r"\d+", "N", name)
                self._recurred((RANGE, name), f"the range {name!r}")
            return None
        if kind is not None:
            return None
        if code.co_name == "<module>" and code.co_filename.endswith(TORCH):
            self._torch[id(code)] = code, "torch"
            sys.monitoring.set_local_events(TOOL, code, sys.monitoring.events.PY_RETURN)
        if not is_own(code.co_filename):
            return sys.monitoring.DISABLE
        if id(code) not in self._loops:
            self._loops[id(code)] = code, _loops(code)
            if self._loops[id(code)][1]:
                sys.monitoring.set_local_events(TOOL, code, sys.monitoring.events.JUMP)
        if code.co_name == "<module>":
            return sys.monitoring.DISABLE
        where = f"{code.co_qualname} of {os.path.basename(code.co_filename)}"
        self.functions[where] = self.functions.get(where, 0) + 1
        if self._asked is not None and _is_called(code, self._asked):
            self._recurred((FUNCTION, code.co_qualname), f"a call of {where}")
        elif self.found is not None or self.functions[where] >= WITH_GRADIENTS:
            return sys.monitoring.DISABLE  # that it was called is known
        return None

    def _left(self, code: CodeType, offset: int, value: object) -> None:
        kind = self._torch[id(code)][1] if id(code) in self._torch else None
        if self._is_deaf() or kind is None or (self._asked is not None and kind != "torch"):
            return
        if kind == "torch":
            self._inside = True
            self._look_at_torch()
            self._inside = False
            return
        of = sys._getframe(1).f_locals
        which = of["args"][0] if kind == OPTIMIZER else of["self"]
        words = {PROFILER: "step() of its profiler", OPTIMIZER: f"step() of its optimizer ({type(which).__name__})"}
        self._recurred((kind, id(which) if kind == OPTIMIZER else kind), words.get(kind, "the next batch of its DataLoader"))

    def _jumped(self, code: CodeType, offset: int, destination: int) -> None:
        if self._is_deaf() or destination > offset or id(code) not in self._loops:
            return
        loop = self._loops[id(code)][1].get(destination)
        if loop is None:
            return
        where = (LOOP, (id(code), loop))
        words = f"a turn of the loop at {os.path.basename(code.co_filename)}:{loop.line}"
        if self._asked is not None:
            if words.endswith(f" {os.path.basename(self._asked)}"):
                self._recurred(where, words)
            return
        self._recurred(where, words)

    def _is_deaf(self) -> bool:
        """Return whether this is of no step: while one is told of, and in a thread beside the program's first."""
        return self._inside or threading.get_ident() != self._thread

    # --- which of them it is

    def _recurred(self, where: Where, words: str) -> None:
        count = self._counts[where] = self._counts.get(where, 0) + 1
        self._since.setdefault(where, time.perf_counter())
        if self.found is None:
            if not self._is_it(where, count):
                return
            self._take(where, words)
        elif where == self.found:
            self._call(None)
        elif self._asked is None and self._is_it(where, count) and (_order(where) < _order(self.found) or self._has_left(where)):
            self._take(where, words)

    def _has_left(self, where: Where) -> bool:
        """Return whether the program has left the loop that was found, and is in another one that was not around it."""
        now = self._loops_around(sys._getframe(1))
        return self.found is not None and self.found[0] == LOOP and self.found not in now and where not in self._around

    def _take(self, where: Where, words: str) -> None:
        self.found, self._around = where, self._loops_around(sys._getframe(1))
        self._call(words)

    def _call(self, words: str | None) -> None:
        self._inside = True
        try:
            self._ended(words)
        finally:
            self._inside = False

    def _is_it(self, where: Where, count: int) -> bool:
        kind = where[0]
        if self._asked is not None:
            return True
        if count < ENOUGH or any(_order(one) < _order(where) for one in self._counts if one != self.found):
            return False
        if self._trains and kind in (LOADER, RANGE, LOOP) and count < WITH_GRADIENTS and self._counts_none(OPTIMIZER):
            return kind == LOOP and where == self._around_backward and count >= ENOUGH and self._settled(where)
        return kind != LOOP or (self._settled(where) and self._is_outermost(where))

    def _counts_none(self, kind: str) -> bool:
        return all(one[0] != kind for one in self._counts)

    def _settled(self, where: Where) -> bool:
        return time.perf_counter() - self._since[where] >= SETTLED_S

    def _is_outermost(self, where: Where) -> bool:
        """Return whether this loop is the outermost of those that run, or has been at it for so long that those around it are no
        steps.
        """
        around = self._loops_around(sys._getframe(1))
        return where == around[-1] or time.perf_counter() - self._since[where] >= OUTER_S

    def _loops_around(self, frame: FrameType | None) -> list[Where]:
        """Return the loops of the program in which this frame is, the innermost first."""
        found: list[Where] = []
        while frame is not None:
            _, loops = self._loops.get(id(frame.f_code), (None, {}))
            inside = {one for one in loops.values() if one.begin <= frame.f_lasti <= one.end}
            found += [(LOOP, (id(frame.f_code), one)) for one in sorted(inside, key=lambda one: -one.begin)]
            frame = frame.f_back
        return found


def _order(where: Where) -> int:
    return IN_ORDER.index(where[0])


def _backward_code(torch: Any) -> CodeType:
    return torch.autograd.graph._engine_run_backward.__code__


def _is_called(code: CodeType, asked: str) -> bool:
    """Return whether a function is the one that was asked for: "step", "Trainer.step", "train.step" or "train:step"."""
    module, _, name = asked.rpartition(":")
    file, qualified = Path(code.co_filename).stem, code.co_qualname.replace("<locals>.", "")
    if module:
        return qualified == name and module.rpartition(".")[2] == file
    return asked in (qualified, code.co_name, f"{file}.{qualified}")


class Loop(NamedTuple):
    """A loop of a function: its line, and the bytes of the function's code that are in it."""

    line: int
    begin: int
    end: int


def _loops(code: CodeType) -> dict[int, Loop]:
    """Return the loops of a function that have more than one line, by each place that Python jumps back to; no comprehensions."""
    found: dict[int, Loop] = {}
    instructions = list(dis.get_instructions(code))
    lines, line = [], 0
    for one in instructions:
        line = (one.positions.lineno if one.positions else None) or line
        lines.append(line)
    for number, one in enumerate(instructions):
        if not one.opname.startswith("JUMP_BACKWARD") or instructions[number - 1].opname in OF_COMPREHENSIONS:
            continue
        begin = one.argval
        inside = [at for at, other in zip(lines, instructions, strict=True) if begin <= other.offset <= one.offset]
        if len(set(inside)) > 1:
            end = max(one.offset, found[begin].end if begin in found else 0)
            found[begin] = Loop(min(inside), begin, end)
    for line in {one.line for one in found.values()}:  # of a `while` each `continue` may jump to another place
        same = [one for one in found.values() if one.line == line]
        whole = Loop(line, min(one.begin for one in same), max(one.end for one in same))
        found |= {begin: whole for begin, one in found.items() if one.line == line}
    return found
