"""The process that runs programs of exercises: outputs beside each other, times in turns, a trace of each.

    python -m exercises.judge.measure FOLDER GIVEN [MINE] --device cpu

FOLDER/measured.json holds what was measured, FOLDER/given.json and FOLDER/mine.json the traces. Where the reader's own program
raises, its traceback is printed, without the lines of this file, and the exit code is BROKEN.
"""

import argparse
import ast
from collections.abc import Callable, Iterator
import contextlib
import importlib.util
import io
import json
import math
from pathlib import Path
import platform
import sys
import tempfile
import time
import traceback
from types import ModuleType
from typing import Any

from common.device import Device
from common.quiet import quiet
from exercises.judge.book import BROKEN, TOLERANCE
import torch
from torch.profiler import profile, schedule
from torch.utils._pytree import tree_flatten
from trace_reader import Stopwatch, plain_step_us, with_header, write_all

BATCHES = 3  # that the steps take in turns
COMPARED = 2 * BATCHES  # steps whose outputs are compared: each batch comes twice, so that one that was written to shows
ROUNDS, ROUND_S, LEAST_STEPS, WARMUP_STEPS, ACTIVE = 9, 0.1, 3, 3, 3


class BrokenError(Exception):
    """The program of the exercise does not run; the message is for its author."""


@contextlib.contextmanager
def _of_its_author(path: Path) -> Iterator[None]:
    """Around calls of a program: what it raises becomes a BrokenError with the traceback of the program and what it calls."""
    try:
        yield
    except BrokenError:
        raise
    except (Exception, SystemExit) as error:
        frames = error.__traceback__
        while frames is not None and Path(frames.tb_frame.f_code.co_filename) != path:
            frames = frames.tb_next
        raise BrokenError("".join(traceback.format_exception(type(error), error, frames)).rstrip()) from None


class Program:
    """A program of an exercise, with its model made and its batches: `step()` calls it with the next of them."""

    def __init__(self, path: Path, given: ModuleType, device: str):
        self.path = path.resolve()
        self.given, self.device = given, device
        with _of_its_author(self.path):
            self.module = given if path.samefile(str(given.__file__)) else loaded(path)
            for name in ("make", "step"):
                if not callable(getattr(self.module, name, None)):
                    raise BrokenError(f"{path.name} has no function `{name}` any more; --reset brings the program back")
            if _source_of_data(self.path) != _source_of_data(Path(str(given.__file__))):
                raise BrokenError(f"{path.name}: data() is changed; the batches are what they are, so put it back as it was")
        self.begin(0)

    def begin(self, first_batch: int) -> None:
        """Make the model anew, and BATCHES batches from this one on."""
        with _of_its_author(self.path):
            torch.manual_seed(0)
            self.model = self.module.make(self.device)
        torch.manual_seed(1)
        self.batches = [self.given.data(self.device, first_batch + n) for n in range(BATCHES)]
        self.calls = 0

    def step(self) -> Any:
        self.calls += 1
        return self.module.step(self.model, self.batches[self.calls % BATCHES])

    def outputs(self) -> list[Any]:
        """Return all numbers of its first steps. Raises BrokenError: a step writes into its batch."""
        before = [_kept(leaf) for leaf in tree_flatten(self.batches)[0]]
        with _of_its_author(self.path):
            found = [_kept(leaf) for _ in range(COMPARED) for leaf in tree_flatten(self.step())[0]]
            after = [_kept(leaf) for leaf in tree_flatten(self.batches)[0]]
            if any(isinstance(one, torch.Tensor) and not torch.equal(one, now) for one, now in zip(before, after, strict=True)):
                raise BrokenError(f"{self.path.name}: step writes into its batch, which comes again: make a new tensor of it")
        return found


def _kept(output: Any) -> Any:
    """Return an output that stays as it is: the next step may write into the same memory."""
    return output.detach().clone().cpu() if isinstance(output, torch.Tensor) else output


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _source_of_data(path: Path) -> str:
    """Return what `data` does, without its comments; empty where there is none."""
    tree = ast.parse(path.read_text("utf-8"))
    return "".join(ast.dump(one) for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "data")


def loaded(path: Path) -> ModuleType:
    """Return a program as a module of its own, which finds modules that lie beside it."""
    name = f"{path.resolve().parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec.loader.exec_module(module)
    return module


def difference(given: list[Any], mine: list[Any]) -> str:
    """In what the outputs differ, in words; empty where they are equal within TOLERANCE."""
    if len(given) != len(mine):
        return f"a step gives {len(mine) // COMPARED} outputs, where the program as given gives {len(given) // COMPARED}"
    if found := {type(one).__name__ for one in mine if not isinstance(one, torch.Tensor | bool | int | float)}:
        return f"a step gives {', '.join(sorted(found))}, where numbers or tensors are expected"
    for place, (one, other) in enumerate(zip(given, mine, strict=True)):
        a, b = torch.as_tensor(one).double(), torch.as_tensor(other).double()
        number = place % (len(given) // COMPARED) + 1
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and other.element_size() > one.element_size():
            return f"output {number} is {_type(other)}, where the program as given has {_type(one)}"
        if a.shape != b.shape:
            return f"output {number} has the shape {list(b.shape)}, where the program as given has {list(a.shape)}"
        largest = max(a.abs().max().item(), 1e-12) if a.numel() else 1.0
        apart = (a - b).abs().max().item() if a.numel() else 0.0
        if not apart <= TOLERANCE * largest:  # nan is not
            return f"output {number} differs by up to {apart:.3g}, where its largest number is {largest:.3g}"
    return ""


class Nowhere(io.TextIOBase):
    """Takes what a program prints in the hundreds of steps that are timed; the steps whose outputs are compared show it."""

    def __init__(self) -> None:
        self.printed = 0  # characters

    def write(self, text: str) -> int:
        self.printed += len(text)
        return len(text)


def round_us(step: Callable[[], object], device: Device) -> tuple[float, float]:
    """Return a round of steps without the profiler: the mean, the device synchronized at both ends only, and what tells the least
    of other programs: on a CPU the fastest step (where a core is taken, the threads of an op wait for each other), else the mean.
    """
    watch = Stopwatch(device.synchronize)
    start = begin = time.perf_counter()
    steps, fastest_s = 0, math.inf
    while steps < LEAST_STEPS or begin - start < ROUND_S:
        step()
        end = time.perf_counter()
        fastest_s, begin, steps = min(fastest_s, end - begin), end, steps + 1
    mean_us = watch.step_us(steps)
    return mean_us, fastest_s * 1e6 if device.type == "cpu" else mean_us


def recorded(program: Program, device: Device, name: str, plain_us: list[float]) -> bytes:
    """Return the trace of some steps, which tells the time of a step without the profiler, too."""
    plan = schedule(wait=1, warmup=1, active=ACTIVE, repeat=1)
    with quiet(argparse.Namespace(compile_mode=None), device), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=device.activities(), schedule=plan, acc_events=True, record_shapes=True) as profiler:
            for number in range(2 + ACTIVE):
                if number == 2:
                    device.synchronize()
                program.step()
                if number == 1 + ACTIVE:
                    device.synchronize()
                profiler.step()
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes().replace(json.dumps(str(path)).encode(), json.dumps(f"{name}.json").encode())
    lesson = {"script": name, "device": device.name, "versions": f"torch {torch.__version__}"}
    return with_header(trace, {"lesson": lesson, **plain_step_us(plain_us, ROUNDS)})


def measure(given: Path, mine: Path | None, device: Device) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what was measured, and the traces. Raises BrokenError."""
    original = loaded(given)
    programs = {"given": Program(given, original, device.type)}
    if mine is not None:
        programs["mine"] = Program(mine, original, device.type)
        if said := difference(programs["given"].outputs(), programs["mine"].outputs()):
            return {"differs": said}, {}
    means_us: dict[str, list[float]] = {name: [] for name in programs}
    times_us: dict[str, list[float]] = {name: [] for name in programs}
    nowhere = Nowhere()
    for program in programs.values():
        with _of_its_author(program.path), contextlib.redirect_stdout(nowhere):
            for _ in range(WARMUP_STEPS):
                program.step()
    for done in range(ROUNDS):
        show(f"timing, round {done + 1} of {ROUNDS}")
        for name, program in programs.items():
            with _of_its_author(program.path), contextlib.redirect_stdout(nowhere):
                mean_us, time_us = round_us(program.step, device)
            means_us[name].append(mean_us)
            times_us[name].append(time_us)
    show("recording")
    traces = {}
    for name, program in programs.items():
        with _of_its_author(program.path), contextlib.redirect_stdout(nowhere):
            traces[name] = recorded(program, device, given.stem, means_us[name])
    if mine is not None:  # batches not seen before: what was kept of the others is of no use
        for program in programs.values():
            program.begin(BATCHES)
        with contextlib.redirect_stdout(nowhere):
            said = difference(programs["given"].outputs(), programs["mine"].outputs())
        if said:
            return {"differs": f"of batches not seen before, {said}"}, {}
    show("")
    found = {"device": device.name, "torch": torch.__version__, "times_us": times_us, "means_us": means_us}
    return {"differs": "", **found, "prints": nowhere.printed > 0}, traces


def measure_into(folder: Path, given: Path, mine: Path | None, device: Device) -> dict[str, Any]:
    """Return what was measured, written beside the traces to this folder. Raises BrokenError."""
    found, traces = measure(given, mine, device)
    files = {folder / f"{name}.json": data for name, data in traces.items()}
    write_all({folder / "measured.json": f"{json.dumps(found, indent=1)}\n".encode(), **files})
    return found


def device_of(kind: str) -> Device:
    """Return the device, with the name that traces and results have. Raises RuntimeError where there is none."""
    if kind != "cpu":
        return Device(kind, torch.cuda.get_device_name(), None)
    return Device(kind, f"{platform.machine()}, {torch.get_num_threads()} threads", None)


def show(text: str) -> None:
    """Progress, on a terminal only: a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("given", type=Path)
    parser.add_argument("mine", type=Path, nargs="?")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    try:
        measure_into(args.folder, args.given, args.mine, device_of(args.device))
    except BrokenError as error:
        print(f"\n{error}" if str(error) else "", file=sys.stderr)
        return BROKEN
    return 0


if __name__ == "__main__":
    sys.exit(main())
