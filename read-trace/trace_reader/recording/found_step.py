"""Where a step of a running program ends, without a change to the program: `watch` calls back once per step.

What ends a step is seen by sys.monitoring (Python 3.12), which calls back where Python enters, leaves or jumps back in code that
was asked for. While a step is looked for, each place calls back OFTEN times in AGAIN_S; when it is found, that place alone does,
and those of what would be a better one: the steps are timed. Of what recurs the first of these that the program has:

    step of torch.profiler.profile · step of an optimizer · a marked range (record_function) · next of a DataLoader ·
    the turn of a loop of its own: that around its backward pass, else the outermost that turns often enough
"""

from collections.abc import Callable, Sequence
import contextlib
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
import weakref

from trace_reader.names.range_names import TURN, is_torchs_range

TOOL = 4  # of sys.monitoring: 0 to 2 and 5 are a debugger's, coverage's, a profiler's and an optimizer's
ENOUGH = 3  # times, for what recurs
WITH_GRADIENTS = 40  # times, where a backward pass runs and no optimizer has stepped
OFTEN, AGAIN_S = 50, 0.25
SILENT_S, SILENT = 1.0, 5  # it is looked for again: no step has ended for so long, and for so many steps' time
SETTLED_S, OUTER_S = 0.3, 1.0  # how long a loop has turned before it is a step; how long a loop around it is waited for
PROFILER, OPTIMIZER, RANGE, LOADER, LOOP, FUNCTION = "profiler", "optimizer", "range", "loader", "loop", "function"
IN_ORDER = (PROFILER, OPTIMIZER, RANGE, LOADER, LOOP)
ENDS, BACKWARD, IMPORTED = "ends", "backward", "imported"  # of a range; a backward pass; torch
OF_COMPREHENSIONS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")
STANDARD = tuple({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
# What is installed, in this environment or one below it, and the folder that torch.compile writes into.
NOT_OWN = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", "torchinductor")
TORCH = f"{os.sep}torch{os.sep}__init__.py"
READER = os.path.realpath(Path(__file__).parents[1])
NEVER_OWN = tuple(f"{folder}{os.sep}" for folder in (*STANDARD, READER))

Where = tuple[str, Any]  # a kind, and which one of it


def is_own(path: str) -> bool:
    """Return whether a file is the program's own: neither Python's, nor installed, nor of this reader, nor written by
    torch.compile.
    """
    if not path.endswith(".py") or any(part in path for part in NOT_OWN):
        return False
    return not os.path.realpath(path).startswith(NEVER_OWN)


class FoundStep:
    """What ends the steps of this program: `asked` ("train.step", "step", "train.py:12"), or what is found. `ended` is called
    each time, with what it is, in words, the first time (and when it is another one than was thought), else with None.
    `on_torch` is called with torch when the program has imported it; `none`: what is no step, in words; `hurries`:
    a loop need not turn for SETTLED_S.
    """

    def __init__(
        self,
        ended: Callable[[str | None], object],
        asked: str | None = None,
        on_torch: Callable[[Any], object] = lambda torch: None,
        none: Sequence[str] = (),
        hurries: bool = False,
    ):
        self._ended, self._asked, self._on_torch, self._none = ended, asked, on_torch, none
        self._settled_s = 0.0 if hurries else SETTLED_S
        self.found: Where | None = None
        self._counts: dict[Where, int] = {}
        self._since_s: dict[Where, float] = {}
        self._last_s: dict[Where, float] = {}
        self._trains = self._inside = False
        self._around_backward: Where | None = None
        self._around: list[Where] = []  # loops, when the step was found
        self._rejected: set[Where] = set()
        self._looks = True  # for a step
        self._depth = self._in_a_row = 0  # of ranges; steps of another optimizer
        self._ended_s = self._took_s = 0.0  # of the last step: when it ended, and how long it took
        self._optimizer: Callable[[], object] = lambda: None  # whose steps end the program's, while it lives
        self._raised: BaseException | None = None
        self._called: dict[tuple[int, int], int] = {}  # how often each place has called back
        self._stopped = threading.Event()
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
        monitoring.register_callback(TOOL, events.LINE, self._at_line)
        monitoring.set_events(TOOL, events.PY_START)  # each code once: `_entered` disables it where it is not asked for
        os.register_at_fork(after_in_child=self._see_nothing)  # a worker of a DataLoader has no steps
        threading.Thread(target=self._look_again, daemon=True).start()

    def _look_again(self) -> None:
        """Let all places call back again, as long as a step is looked for, and when none has ended for long."""
        while not self._stopped.wait(AGAIN_S):
            silent_s = max(SILENT_S, SILENT * self._took_s)
            self._looks = self.found is None or time.perf_counter() - self._ended_s > silent_s
            if self._looks:
                self._called.clear()
                sys.monitoring.restart_events()

    def reject(self) -> None:
        """What was found is no step: look for another one."""
        if self.found is not None:
            self._rejected.add(self.found)
        self.found, self._looks = None, True

    def stop(self) -> None:
        """See nothing more. What was imported goes on as it is."""
        self._stopped.set()
        self._see_nothing()

    def _see_nothing(self) -> None:
        if hasattr(sys, "monitoring") and sys.monitoring.get_tool(TOOL) == "read-trace":
            sys.monitoring.set_events(TOOL, 0)
            for code, _ in (*self._torch.values(), *self._loops.values()):
                sys.monitoring.set_local_events(TOOL, code, 0)
            sys.monitoring.free_tool_id(TOOL)

    def _look_at_torch(self) -> None:
        """Watch the functions of torch that end a step; what another version has not, ends none."""
        import torch
        import torch.utils.data

        self._on_torch(torch)
        events = sys.monitoring.events
        watched = (
            (lambda: torch.profiler.profile.step.__code__, PROFILER, events.PY_RETURN),
            (lambda: _inner_code(torch.optim.Optimizer.profile_hook_step), OPTIMIZER, events.PY_RETURN),
            (lambda: torch.utils.data.dataloader._BaseDataLoaderIter.__next__.__code__, LOADER, events.PY_RETURN),
            (lambda: torch.autograd.profiler.record_function.__enter__.__code__, RANGE, events.PY_START),
            (lambda: torch.autograd.profiler.record_function.__exit__.__code__, ENDS, events.PY_START),
            (lambda: torch.autograd.graph._engine_run_backward.__code__, BACKWARD, events.PY_START),
        )
        for code_of, kind, event in watched:
            with contextlib.suppress(AttributeError, StopIteration):
                code = code_of()
                self._torch[id(code)] = code, kind
                sys.monitoring.set_local_events(TOOL, code, event)

    # --- what sys.monitoring calls

    def _entered(self, code: CodeType, offset: int) -> Any:
        kind = self._kind_of(code)
        if kind is None and not is_own(code.co_filename) and not code.co_filename.endswith(TORCH):
            return sys.monitoring.DISABLE
        if self._is_deaf():
            is_asked = self._asked is not None and _is_called(code, self._asked)
            return sys.monitoring.DISABLE if self.found is not None and kind is None and not is_asked else None
        if kind == BACKWARD:
            self._trains = True
            self._around_backward = next(iter(self._loops_around(sys._getframe(1))), None)
            return None if self._looks else sys.monitoring.DISABLE
        if kind in (RANGE, ENDS):
            return self._in_range(kind, sys._getframe(1))
        if kind is not None:
            return None
        if code.co_name == "<module>" and code.co_filename.endswith(TORCH):
            self._torch[id(code)] = code, IMPORTED
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

    def _is_in_backward(self, frame: FrameType | None) -> bool:
        while frame is not None and self._kind_of(frame.f_code) != BACKWARD:
            frame = frame.f_back
        return frame is not None

    def _kind_of(self, code: CodeType) -> str | None:
        """Return what a function of torch ends; None: it is none that is watched."""
        return self._torch[id(code)][1] if id(code) in self._torch else None

    def _in_range(self, kind: str, frame: FrameType) -> Any:
        """A range of the program's own begins or ends: of those in each other the outermost counts."""
        if self._asked is not None or (self.found is not None and not self._looks and _order(self.found) < IN_ORDER.index(RANGE)):
            return sys.monitoring.DISABLE
        name = str(frame.f_locals["self"].name)
        if is_torchs_range(name) or frame.f_back is None or not is_own(frame.f_back.f_code.co_filename):
            return None
        if kind == RANGE and self._depth == 0:
            name = re.sub(r"\d+", "N", name)
            self._recurred((RANGE, name), f"the range {name!r}")
        self._depth = max(self._depth + (1 if kind == RANGE else -1), 0)
        return None

    def _left(self, code: CodeType, offset: int, value: object) -> None:
        kind = self._kind_of(code)
        if self._is_deaf():
            return
        if kind == IMPORTED:
            self._inside = True
            try:
                self._look_at_torch()
            finally:
                self._inside = False
        elif kind is not None and self._asked is None:
            self._ended_by(kind, sys._getframe(1))

    def _ended_by(self, kind: str, frame: FrameType) -> None:
        """A function of torch has returned that ends a step: of this kind, in this frame."""
        if kind == PROFILER:
            self._recurred((PROFILER, None), "step() of its profiler")
        elif kind == LOADER:  # of two loaders side by side one counts: by what it loads, which the next epoch's shares
            loads = id(getattr(frame.f_locals["self"], "_dataset", None))
            self._recurred((LOADER, loads), "the next batch of its DataLoader")
        elif not self._is_in_backward(frame):  # from a hook of the backward pass on nothing can be recorded
            self._stepped(frame.f_locals["args"][0])

    def _stepped(self, optimizer: Any) -> None:
        where = (OPTIMIZER, (id(optimizer), type(optimizer).__name__))
        words = f"step() of its optimizer ({type(optimizer).__name__})"
        if self.found is None and (others := {one for one in self._counts if one[0] == OPTIMIZER} - {where}):
            words += f", one of {len(others) + 1}"
        elif self.found is not None and self.found[0] == OPTIMIZER and self._optimizer() is None:
            self._in_a_row = ENOUGH  # the one before is gone: this has come in its place
        self._recurred(where, words)
        if self.found == where and self._optimizer() is not optimizer:
            self._optimizer = weakref.ref(optimizer)

    def _jumped(self, code: CodeType, offset: int, destination: int) -> Any:
        if self._is_deaf():
            return None
        loop = self._loops[id(code)][1].get(destination) if id(code) in self._loops else None
        if loop is None or destination > offset:
            return sys.monitoring.DISABLE
        where = (LOOP, (id(code), loop))
        words = f"{TURN}{os.path.basename(code.co_filename)}:{loop.line}"
        is_asked = self._asked is not None and words.endswith(f" {os.path.basename(self._asked)}")
        if where != self.found and not (is_asked or (self._looks and self._asked is None)):
            return sys.monitoring.DISABLE
        try:
            self._recurred(where, words)
        except BaseException as error:  # no `finally` around the loop covers its last instruction: its next line does
            self._raised = error
            events = sys.monitoring.events
            sys.monitoring.set_local_events(TOOL, code, events.JUMP | events.LINE)
            return None
        called = self._called[id(code), offset] = self._called.get((id(code), offset), 0) + 1
        return sys.monitoring.DISABLE if called >= OFTEN and where != self.found and not is_asked else None

    def _at_line(self, code: CodeType, line: int) -> None:
        if self._raised is not None and not self._is_deaf():
            error, self._raised = self._raised, None
            raise error

    def _is_deaf(self) -> bool:
        """Return whether this is of no step: while one is told of, and in a thread beside the program's first."""
        return self._inside or threading.get_ident() != self._thread

    # --- which of them it is

    def _recurred(self, where: Where, words: str) -> None:
        count = self._counts[where] = self._counts.get(where, 0) + 1
        self._last_s[where] = time.perf_counter()
        self._since_s.setdefault(where, self._last_s[where])
        if self.found is None:
            if not self._is_it(where, count, words):
                return
            self._take(where, words)
        elif where == self.found:
            self._in_a_row = 0
            self._call(None)
        elif where[0] == self.found[0] == OPTIMIZER:
            self._other_optimizer(where, words)
        elif (
            self._asked is None
            and self._is_it(where, count, words)
            and (_order(where) < _order(self.found) or self._has_left(where))
        ):
            self._take(where, words)

    def _other_optimizer(self, where: Where, words: str) -> None:
        """Another optimizer has stepped: where it does so again and again, it has come in the place of the one before."""
        assert self.found is not None
        self._in_a_row += 1
        if self._in_a_row >= ENOUGH and where[1][1] == self.found[1][1]:  # of the same type: of the next fold, say
            self.found, self._in_a_row = where, 0
            self._call(None)
        elif self._in_a_row >= ENOUGH:
            self._take(where, words)

    def _has_left(self, where: Where) -> bool:
        """Return whether the program has left the loop that was found, and is in another one that was not around it."""
        now = self._loops_around(sys._getframe(1))
        return self.found is not None and self.found[0] == LOOP and self.found not in now and where not in self._around

    def _take(self, where: Where, words: str) -> None:
        self.found, self._around, self._in_a_row, self._took_s = where, self._loops_around(sys._getframe(1)), 0, 0.0
        self._ended_s = time.perf_counter()
        self._call(words)

    def _call(self, words: str | None) -> None:
        now_s = time.perf_counter()
        self._took_s, self._ended_s, self._looks = now_s - self._ended_s, now_s, False
        self.deafly(lambda: self._ended(words))

    def calls_back(self, frame: FrameType | None) -> bool:
        """Return whether this frame is in, or below, a function that sys.monitoring calls."""
        while frame is not None and frame.f_code.co_filename != __file__:
            frame = frame.f_back
        return frame is not None

    def deafly(self, call: Callable[[], object]) -> None:
        """Call something that ends no step, whatever it calls."""
        self._inside = True
        try:
            call()
        finally:
            self._inside = False

    def _is_it(self, where: Where, count: int, words: str) -> bool:
        kind = where[0]
        if self._asked is not None:
            return True
        if (
            where in self._rejected
            or words in self._none
            or count < ENOUGH
            or any(_order(one) < _order(where) and self._goes_on(one, where) for one in self._counts if one != self.found)
        ):
            return False
        if self._trains and kind in (LOADER, RANGE, LOOP) and count < WITH_GRADIENTS and self._counts_none(OPTIMIZER):
            return kind == LOOP and where == self._around_backward and count >= ENOUGH and self._settled(where)
        return kind != LOOP or (self._settled(where) and self._is_outermost(where))

    def _goes_on(self, one: Where, beside: Where) -> bool:
        """Return whether something recurs, or has come once since the other thing began to."""
        return self._counts[one] >= ENOUGH or self._last_s[one] > self._since_s[beside]

    def _counts_none(self, kind: str) -> bool:
        return all(one[0] != kind for one in self._counts)

    def _settled(self, where: Where) -> bool:
        return time.perf_counter() - self._since_s[where] >= self._settled_s

    def _is_outermost(self, where: Where) -> bool:
        """Return whether this loop is the outermost of those that run, or has been at it for so long that those around it are no
        steps.
        """
        around = self._loops_around(sys._getframe(1))
        return where == around[-1] or time.perf_counter() - self._since_s[where] >= OUTER_S

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


def _inner_code(function: Any) -> CodeType:
    """Return the code of the function that is made inside another one. Raises StopIteration: there is none."""
    return next(one for one in function.__code__.co_consts if isinstance(one, CodeType))


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
    """Return the loops of a function, by each place that Python jumps back to; no comprehensions."""
    found: dict[int, Loop] = {}
    if code.co_name.startswith("<") and code.co_name != "<module>":  # <genexpr>, <lambda>
        return found
    instructions = list(dis.get_instructions(code))
    lines, line = [], 0
    for one in instructions:
        line = (one.positions.lineno if one.positions else None) or line
        lines.append(line)
    # What handles exceptions stands at the end: it, too, jumps back into a loop.
    handlers = next((one.offset for one in instructions if one.opname == "PUSH_EXC_INFO"), len(code.co_code))
    for number, one in enumerate(instructions):
        if not one.opname.startswith("JUMP_BACKWARD") or instructions[number - 1].opname in OF_COMPREHENSIONS:
            continue
        begin = one.argval
        if begin in found and begin < handlers <= one.offset:
            continue
        inside = [at for at, other in zip(lines, instructions, strict=True) if begin <= other.offset <= one.offset]
        found[begin] = Loop(min(inside), begin, max(one.offset, found[begin].end if begin in found else 0))
    for line in {one.line for one in found.values()}:  # of a `while` each `continue` may jump to another place
        same = [one for one in found.values() if one.line == line]
        whole = Loop(line, min(one.begin for one in same), max(one.end for one in same))
        found |= {begin: whole for begin, one in found.items() if one.line == line}
    return found
