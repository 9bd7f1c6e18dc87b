"""Runs a program as it is, and times and records its steps: what `read-trace try` starts in a process of its own, of a job in one
for each rank. What it is to do stands in the environment (SETTINGS), as JSON.
"""

from collections.abc import Callable
import contextlib
import ctypes
import importlib.util
import json
import os
from pathlib import Path
import runpy
import sys
import threading
import traceback
import types
from typing import Any, cast

if __name__ == "__main__":  # as a script its folder stands first: the program's own goes there
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from trace_reader.errors import NotWrittenError
from trace_reader.names.range_names import TURN
from trace_reader.recording.found_step import FoundStep, is_own
from trace_reader.recording.handler import is_on_gpu, rank_of_job
from trace_reader.recording.saved_source import SavedSource, save_source
from trace_reader.recording.step_recorder import StepRecorder
from trace_reader.recording.tried_run import SETTINGS, Settings, run_of
from trace_reader.system.files import write_file

PENDING_CALL = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
LONGEST_S = 20.0  # that threads of a program that has ended may go on
OFTEN_ENOUGH = 3  # times that it is told to


class EnoughError(SystemExit):
    """All that is needed is recorded: the program ends, as by sys.exit(0)."""


class Tried:
    """A program that is tried: its steps are found, timed and recorded, and it is ended then. `failed`: why nothing could be
    recorded, which is no fault of the program's.
    """

    def __init__(self, told: Settings):
        self.told, self.rank = told, rank_of_job()
        self.is_quiet = bool(self.rank) or told.is_quiet
        say = _no_word if self.is_quiet else _say
        self.found = FoundStep(self.ended, told.step, _on_torch, told.none, told.hurries)
        self.recorder = StepRecorder(Path(told.folder), self.rank, told.only_timed, told.has, say, self._soon)
        self.step, self.seen, self.endings, self.failed = "", 0, 0, ""
        self._is_proved, self._probe = False, cast(Any, None)
        self._is_pending, self._call, self._raised = False, cast(Any, None), cast(BaseException | None, None)

    def ended(self, words: str | None) -> None:
        """A step has ended; `words`: what it is, where that is new. Raises EnoughError when all is recorded, or it failed."""
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error
        if self.failed:
            self._enough()
            return
        if self._is_pending and words is None:  # a step that no function of Python was called in
            return
        try:
            self._record(words)
        except Exception as error:  # a full disk, or a profiler that another one holds
            self.failed = f"{type(error).__name__}: {error}"
        if self.failed or self.recorder.is_done:
            self._enough()

    def _soon(self, call: Callable[[], object]) -> None:
        """Call this in the program's first thread, as soon as it is in no callback."""

        def called(nothing: int | None) -> int:
            try:
                if self.found.calls_back(sys._getframe(1)) and not ctypes.pythonapi.Py_AddPendingCall(self._call, None):
                    return 0
                self._is_pending = False
                self.found.deafly(call)
            except Exception as error:  # as in `ended`
                self._is_pending, self.failed = False, f"{type(error).__name__}: {error}"
            except BaseException as error:  # Ctrl-C: it is raised where a step ends, from here nothing can be
                self._is_pending, self._raised = False, error
            return 0

        self._is_pending, self._call = True, PENDING_CALL(called)  # which lives as long as it may be called
        if ctypes.pythonapi.Py_AddPendingCall(self._call, None):  # too many wait there
            self._is_pending = False
            call()

    def _record(self, words: str | None) -> None:
        if words is not None:
            self.abandon()
            self.recorder.begin()
            self.step, self.seen, self._is_proved = words, 0, not words.startswith(TURN) or bool(self.told.step)
        if not self._is_proved and not self._runs_ops():
            return
        if not self.seen and not self.is_quiet:
            _say(f"a step is {self.step}")
        self.seen += 1
        if not self.recorder.is_done:
            self.recorder.ended()

    def _runs_ops(self) -> bool:
        """Return whether a turn of the loop that was found has run an op: else it is none of torch's. Where a GPU is used, that
        is taken for granted: to look there would slow the launches that are timed.
        """
        torch: Any = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "profiler"):
            self._reject()
        elif is_on_gpu():
            self._is_proved = True
        elif self._probe is None:
            from torch.profiler.profiler import profile

            self._probe = profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self._probe.start()
        else:
            probe, self._probe = self._probe, None
            probe.stop()
            self._is_proved = bool(probe.profiler.kineto_results.events())
            if not self._is_proved:
                self._reject()
        return self._is_proved

    def _reject(self) -> None:
        self.step = ""
        self.found.reject()

    def _enough(self) -> None:
        if self.told.keep_running:
            self.found.stop()
            return
        self.endings += 1
        if self.endings == 1:  # before the program ends, in whatever way
            self.write()
        if self.endings > OFTEN_ENOUGH:  # whatever catches it
            _end_now(0)
        raise EnoughError(0)

    def abandon(self) -> None:
        """Record no more of what was taken for a step, or of a program that has ended."""
        self.recorder.abandon()
        if self._probe is not None:
            probe, self._probe = self._probe, None
            probe.stop()

    def write(self) -> None:
        """Write what is known of the run beside its trace; of a job, of each rank. A disk that is full is told."""
        functions = sorted(self.found.functions, key=lambda name: -self.found.functions[name])
        run = run_of(self.recorder, self.step, self.seen, self.failed, functions, not self.rank)
        name = f"run{'' if self.rank is None else f'_rank{self.rank}'}.json"
        try:
            if not self.rank and not self.told.only_timed:
                save_source(Path(self.told.folder))
            write_file(Path(self.told.folder) / name, json.dumps(run._asdict(), indent=1).encode())
        except (OSError, NotWrittenError) as error:
            _say(str(error))


def _end_at_last(code: int) -> None:
    """End the process, though threads of the program's go on."""
    threading.Event().wait(LONGEST_S)
    _end_now(code)


def _end_now(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"read-trace: {text}", file=sys.stderr, flush=True)


def _no_word(text: str) -> None:
    pass


def _quiet_profiler(torch: Any) -> type:
    """Return a class for the program's own profiler, which records nothing: two cannot record at once."""
    from torch.autograd.profiler_util import EventList
    from torch.profiler.profiler import ProfilerAction, profile

    class Quiet(profile):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(schedule=lambda number: ProfilerAction.NONE)
            self.record_steps = False

        def events(self) -> Any:
            return EventList([])

        def key_averages(self, *args: Any, **options: Any) -> Any:
            return EventList([])

        def export_chrome_trace(self, *args: Any, **options: Any) -> None:
            pass

        export_stacks = export_memory_timeline = export_chrome_trace

    return Quiet


def _script(path: str, arguments: list[str], source: SavedSource | None) -> None:
    file = Path(path).absolute()
    sys.argv, sys.path[0] = [path, *arguments], str(file.resolve().parent)
    text = (source.text_of(str(file)) if source else None) or file.read_bytes()
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(file), __spec__=None, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(compile(text, str(file), "exec"), main.__dict__)


def _module(name: str, arguments: list[str]) -> None:
    sys.argv, sys.path[0] = [name, *arguments], os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _test(arguments: list[str], tried: Tried) -> None:
    """Run one test, again and again: a step is a call of it."""
    import pytest
    import torch  # before the test's file takes its profiler from it

    _on_torch(torch)

    class Again:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            if len(items) > 1:
                raise pytest.UsageError(f"try takes one test, and these are {len(items)}: name it, as {items[0].nodeid}")

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool:
            names = pyfuncitem._fixtureinfo.argnames
            tried.ended(f"a call of the test {pyfuncitem.name}")
            while not (tried.recorder.is_done or tried.failed):
                pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
                with contextlib.suppress(EnoughError):
                    tried.ended(None)
            return True

    sys.path[0] = os.getcwd()
    alone = ["-n0"] if importlib.util.find_spec("xdist") else []
    quiet = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*arguments, *alone, *quiet], plugins=[Again()]))


def _run(tried: Tried) -> None:
    told = tried.told
    source = SavedSource(Path(told.source)) if told.source else None
    if source is not None:
        source.install()
    kind, what, *arguments = told.command
    if kind == "pytest":
        _test([what, *arguments] if what else arguments, tried)
        return
    tried.found.watch()
    (_module if kind == "module" else lambda name, rest: _script(name, rest, source))(what, arguments)


def main() -> int:
    """Run the program; its own exit code, or 0 where it was ended. What fails in it is told as Python tells it."""
    tried = Tried(Settings(**json.loads(os.environ[SETTINGS])))
    code = 0
    try:
        _run(tried)
    except EnoughError:
        pass
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException as error:
        shown = error.__traceback__
        while shown is not None and not is_own(shown.tb_frame.f_code.co_filename):
            shown = shown.tb_next
        error.__suppress_context__ = error.__suppress_context__ or isinstance(error.__context__, EnoughError)
        traceback.print_exception(type(error), error, shown or error.__traceback__)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        tried.found.stop()
        tried.abandon()
    if tried.endings:
        threading.Thread(target=_end_at_last, args=(code,), daemon=True).start()
    else:
        tried.write()
    return code


def _on_torch(torch: Any) -> None:
    torch.profiler.profile = _quiet_profiler(torch)


if __name__ == "__main__":
    sys.exit(main())
