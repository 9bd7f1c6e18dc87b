"""The process that runs programs of exercises: outputs beside each other, times in turns, a trace of each.

    python -m exercises.judge.measure FOLDER GIVEN [MINE] --device cpu [--ranks 2]

FOLDER/measured.json holds what was measured, FOLDER/given.json and FOLDER/mine.json the traces; of a job each rank's, such as
FOLDER/given_rank1.json. Where the reader's own program raises, its traceback is printed, without the lines of this file, and the
exit code is BROKEN.

Each step that is timed gets a batch that no step has seen, and whose tensors lie where those of an earlier one lay. What a
program keeps of a batch, by its values, is never asked for again; what it keeps by address or identity is wrong, and told so.
"""

import argparse
import ast
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
import contextlib
import copy
import datetime
import importlib.util
import io
import itertools
import json
import logging
import math
import os
from pathlib import Path
import platform
import random
import sys
import tempfile
from time import perf_counter, sleep  # by these names: a program may put another clock in their place
import traceback
from types import FunctionType, ModuleType
from typing import Any

from common.device import Device
from common.job import OF_A_PEER
from common.quiet import quiet
from exercises.judge.book import BROKEN, TOLERANCE
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException, spawn
from torch.profiler import profile, schedule
from torch.utils._pytree import tree_flatten, tree_map
from trace_reader import count, plain_step_us, with_header, write_all

BATCHES = 3  # whose outputs are compared
COMPARED = 2 * BATCHES  # steps: each batch comes twice, so that one that was written to shows
MOST_BEFORE = 12  # steps, before outputs are compared once more
ROUNDS, ROUND_S, LEAST_STEPS, WARMUP_STEPS, ACTIVE = 9, 0.1, 3, 3, 3
PLAIN = torch.Tensor, torch.nn.Parameter, bool, int, float  # what a step gives: no class of its own, which may answer as it likes
LEFT = object()  # the state of what is not brought back: functions, modules of Python
MOST_BYTES = 128e6  # of the batches of a round
# Numbers that hold for a whole process: how they are asked for, and set.
SETTINGS: dict[Any, tuple[Any, Any]] = {
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "precision": (lambda: _precision(), torch.set_float32_matmul_precision),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "anomalies": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "benchmark": (lambda: torch.backends.cudnn.benchmark, lambda value: setattr(torch.backends.cudnn, "benchmark", value)),
}
OF_EARLIER_BATCHES = "does the program keep results of earlier batches, or stop computing after some?"
OF_ANOTHER_MODEL = "is something of the first one kept outside of the model that make() returns?"
PATIENCE_S = 60  # that a rank waits for the others
AFTER_A_PEER_S = 5  # until one that lost its peer tells of it


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


def _precision() -> Any:
    """Return the precision of products in float32; LEFT where a program has set it by op, which cannot be asked as one."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return LEFT


def _settings() -> dict[Any, Any]:
    """Return what a program can change of torch for others: its functions and classes' methods, and numbers that hold for all."""
    owners = (torch, torch.Tensor, torch.nn, torch.nn.Module, torch.nn.functional, torch.optim, torch.autograd, torch.linalg,
              torch.fft, torch.special)  # fmt: skip
    found: dict[Any, Any] = {
        (owner, name): value for owner in owners for name, value in vars(owner).items() if not isinstance(value, ModuleType)
    }
    return found | {name: of() for name, (of, _) in SETTINGS.items()}


def _set(settings: dict[Any, Any], now: dict[Any, Any]) -> None:
    """Bring torch back to such settings, from those that it has now. What is new stays, which nothing else asks for, but for what
    hides a method that a class has inherited.
    """
    for key in now.keys() - settings.keys():
        owner, name = key
        if isinstance(owner, type) and any(name in vars(base) for base in owner.__mro__[1:]):
            delattr(owner, name)
    for key, value in settings.items():
        if key in SETTINGS:
            if now[key] != value and LEFT is not value and LEFT is not now[key]:
                SETTINGS[key][1](value)
        elif now.get(key, LEFT) is not value:
            owner, name = key
            setattr(owner, name, value)


class Batches:
    """What steps take. `fresh`: so many that no step has seen, whose tensors lie where those before them lay."""

    def __init__(self, given: ModuleType, device: str, seed: int):
        self._data, self._device, self._seed = given.data, device, seed
        self._kept: list[Any] = []

    def fresh(self, count: int) -> list[Any]:
        torch.manual_seed(self._seed)
        for n in range(count):
            batch = self._data(self._device, self._seed + n)
            if n < len(self._kept):
                self._kept[n] = tree_map(_put, self._kept[n], batch)
            else:
                self._kept.append(batch)
        self._seed += count
        return self._kept[:count]


def _put(old: Any, new: Any) -> Any:
    """Return a new value, in the memory of the old one where it fits there."""
    if isinstance(old, torch.Tensor) and (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype):
        if old.requires_grad:  # a step wanted its gradient
            old.requires_grad_(False)
        return old.copy_(new)
    return new


class Program:
    """A program of an exercise, with its model: `step` calls it with a batch. What it changes of torch holds while it is
    `at_work` alone.
    """

    def __init__(self, path: Path, given: ModuleType, device: str):
        self.path, self.device, self._settings = path.resolve(), device, _settings()
        with self.at_work():
            self.module = given if path.samefile(str(given.__file__)) else loaded(path)
            for name in ("make", "step"):
                if not callable(getattr(self.module, name, None)):
                    raise BrokenError(f"{path.name} has no function `{name}` any more; --reset brings the program back")
            if _source_of_data(self.path) != _source_of_data(Path(str(given.__file__))):
                raise BrokenError(f"{path.name}: data() is changed; the batches have to stay the same, so put it back as it was")
            torch.manual_seed(0)
            self.model = self.module.make(device)
        self._begun = _state(self.model, set())
        self.handed_back: set[int] = set()  # the outputs, from 1, that lie in their batch

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Around calls of the program: with torch as it left it, and afterwards as it was before."""
        before, judge = _settings(), {key: _of_the_judge(*key) for key in JUDGE}
        _set(self._settings, before)
        try:
            with _of_its_author(self.path):
                yield
        finally:
            self._settings = _settings()
            _set(before, self._settings)
            if changed := [key for key, value in judge.items() if _of_the_judge(*key) is not value]:
                for owner, name in changed:
                    setattr(owner, name, judge[owner, name])
                raise BrokenError(f"{self.path.name} changes the process that judges it ({changed[0][1]}): leave that as it is")

    def begin_another(self) -> None:
        """Take another model in place of the first."""
        with self.at_work():
            torch.manual_seed(1)
            self.model = self.module.make(self.device)

    @torch.no_grad()
    def begin(self) -> None:
        """Bring the model back to what it was at first, in the same objects: what is kept for these, or added to them, stays."""
        with _of_its_author(self.path):
            _restore(self.model, self._begun)

    def step(self, batch: Any) -> Any:
        return self.module.step(self.model, batch)

    def plain(self, outputs: Any) -> list[Any]:
        """Return the tensors and numbers that a step gave, in tuples, lists and dicts. Raises BrokenError for one of a class of
        its own, and where they lie in one.
        """
        kind = type(outputs)
        if kind is list or (isinstance(outputs, tuple) and kind.__iter__ is tuple.__iter__):
            return [leaf for one in outputs for leaf in self.plain(one)]
        if kind in (dict, OrderedDict, defaultdict):
            return [leaf for one in outputs.values() for leaf in self.plain(one)]
        if kind not in PLAIN and (isinstance(outputs, (*PLAIN, tuple, list, dict)) or kind.__module__ == self.module.__name__):
            raise BrokenError(f"{self.path.name}: step gives a {kind.__name__}, a class of its own: give plain tensors")
        return [outputs]

    def outputs(self, batches: list[Any]) -> list[Any]:
        """Return all numbers of steps with these batches. Raises BrokenError where one writes into its batch."""
        before = [_kept(leaf) for leaf in tree_flatten(batches)[0]]
        with self.at_work():
            found: list[Any] = []
            for batch in batches:
                outputs, lies = self.plain(self.step(batch)), _memory(batch)
                self.handed_back |= {number for number, one in enumerate(outputs, 1) if lies & _memory(one)}
                found += map(_kept, outputs)
            after = [_kept(leaf) for leaf in tree_flatten(batches)[0]]
            if any(isinstance(one, torch.Tensor) and not torch.equal(one, now) for one, now in zip(before, after, strict=True)):
                raise BrokenError(f"{self.path.name}: step writes into its batch, which is used again: write into a new tensor")
        return found


def _parts(one: Any) -> dict[Any, Any]:
    """Return what a list, a tuple, a dict or another object of a program's own holds, by place, key or name."""
    if isinstance(one, list | tuple):
        return dict(enumerate(one))
    return dict(one) if isinstance(one, dict) else dict(getattr(one, "__dict__", {}))


def _state(one: Any, seen: set[int]) -> Any:
    """Return a copy of what steps change of a model: its tensors, modules, optimizers and numbers, wherever it holds them."""
    if isinstance(one, torch.Tensor):
        return one.detach().clone()
    if hasattr(one, "state_dict"):
        return copy.deepcopy(one.state_dict())
    if id(one) in seen or isinstance(one, type | ModuleType) or callable(one):
        return LEFT
    parts = _parts(one)
    return {key: _state(part, seen | {id(one)}) for key, part in parts.items()} if parts else one


def _restore(one: Any, state: Any) -> Any:
    """Bring a model, or a part of it, back to such a state; returns it, or the number that it was."""
    if state is LEFT:
        return one
    if state is None or isinstance(state, torch.Tensor) != isinstance(one, torch.Tensor):
        return state  # of a place that a step filled, or emptied
    if isinstance(one, torch.Tensor):
        if one.shape != state.shape or one.is_inference():
            return state.clone()
        one.copy_(state)
        one.grad = None
    elif hasattr(one, "state_dict"):
        one.load_state_dict(copy.deepcopy(state))
        if isinstance(one, torch.nn.Module):
            one.zero_grad()
    elif parts := _parts(one):
        for key, part in parts.items():
            if isinstance(state, dict) and key in state:
                now = _restore(part, state[key])
                if isinstance(one, list | dict):
                    one[key] = now
                elif not isinstance(one, tuple):
                    object.__setattr__(one, key, now)  # a frozen dataclass's, too
    elif isinstance(one, bool | int | float | str | None):
        return state
    return one


def _kept(output: Any) -> Any:
    """Return an output that stays as it is: the next step may write into the same memory."""
    return output.detach().clone().cpu() if isinstance(output, torch.Tensor) else output


def _memory(one: Any) -> set[int]:
    """Return where the numbers of an output or a batch lie."""
    leaves = (leaf for leaf in tree_flatten(one)[0] if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided)
    return {leaf.untyped_storage().data_ptr() for leaf in leaves if leaf.numel()}


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


def _of_the_judge(owner: Any, name: str) -> Any:
    return vars(owner).get(name, LEFT) if isinstance(owner, type | ModuleType) else getattr(owner, name)


class Nowhere(io.TextIOBase):
    """Takes what a program prints in the hundreds of steps that are timed; the steps whose outputs are compared show it."""

    def __init__(self) -> None:
        self.printed = 0  # characters

    def write(self, text: str) -> int:
        self.printed += len(text)
        return len(text)


def round_us(program: Program, batches: list[Any], device: Device) -> tuple[float, float]:
    """Return a round of steps without the profiler: the mean, the device synchronized at both ends only, and what tells the least
    of other programs: on a CPU the fastest step (where a core is taken, the threads of an op wait for each other), else the mean.
    """
    device.synchronize()
    start = begin = perf_counter()
    fastest_s = math.inf
    outputs, clock = None, perf_counter  # a step may put another one there
    for batch in batches:
        outputs = program.step(batch)
        end = clock()
        fastest_s, begin = min(fastest_s, end - begin), end
    device.synchronize()
    mean_us = (clock() - start) / len(batches) * 1e6
    program.plain(outputs)
    return mean_us, fastest_s * 1e6 if device.type == "cpu" and not dist.is_initialized() else mean_us


def steps_a_round(step_us: float, batch: Any) -> int:
    """Return how many steps fill a round, with batches that fit into memory; of a job, as rank 0 has it."""
    size = sum(leaf.nbytes for leaf in tree_flatten(batch)[0] if isinstance(leaf, torch.Tensor))
    steps = max(LEAST_STEPS, min(math.ceil(ROUND_S / step_us * 1e6), int(MOST_BYTES // max(size, 1))))
    return _of_rank_0(steps)


def recorded(program: Program, batches: list[Any], device: Device, name: str, plain_us: list[float]) -> bytes:
    """Return the trace of some steps, which tells the time of a step without the profiler, too."""
    plan = schedule(wait=1, warmup=1, active=ACTIVE, repeat=1)
    with quiet(argparse.Namespace(compile_mode=None), device), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=device.activities(), schedule=plan, acc_events=True, record_shapes=True) as profiler:
            for number, batch in enumerate(batches):
                program.step(batch)
                if number == 1 or (
                    number == 1 + ACTIVE and device.type != "cpu"
                ):  # of a job, ranks meet before they are recorded
                    device.synchronize()
                profiler.step()
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes().replace(json.dumps(str(path)).encode(), json.dumps(f"{name}.json").encode())
    lesson = {"script": name, "device": device.name, "versions": f"torch {torch.__version__}"}
    return with_header(trace, {"lesson": lesson, **plain_step_us(plain_us, ROUNDS)})


def measure(given: Path, mine: Path | None, device: Device, seed: int | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what was measured, and the traces. `seed`: of the batches that are timed; None: drawn. Raises BrokenError."""
    original, drawn = loaded(given), random.Random(seed)
    programs = {"given": Program(given, original, device.type)}
    batches = Batches(original, device.type, drawn.randrange(2**31))
    if mine is not None:
        programs["mine"] = Program(mine, original, device.type)
        compared = list(itertools.islice(itertools.cycle(Batches(original, device.type, 1).fresh(BATCHES)), COMPARED))
        if said := differs(programs, compared):
            return {"differs": said}, {}
    means_us: dict[str, list[float]] = {name: [] for name in programs}
    times_us: dict[str, list[float]] = {name: [] for name in programs}
    nowhere, steps = Nowhere(), {}
    for name, program in programs.items():
        with program.at_work(), contextlib.redirect_stdout(nowhere):
            round_us(program, batches.fresh(WARMUP_STEPS), device)
            some = batches.fresh(LEAST_STEPS)
            steps[name] = steps_a_round(round_us(program, some, device)[1], some[0])
    for done in range(ROUNDS):
        show(f"timing, round {done + 1} of {ROUNDS}")
        for name, program in programs.items():
            fresh = batches.fresh(steps[name])
            with program.at_work(), contextlib.redirect_stdout(nowhere):
                mean_us, time_us = round_us(program, fresh, device)
            means_us[name].append(mean_us)
            times_us[name].append(time_us)
    show("recording")
    traces = {}
    for name, program in programs.items():
        fresh = batches.fresh(2 + ACTIVE)
        with program.at_work(), contextlib.redirect_stdout(nowhere):
            traces[name] = recorded(program, fresh, device, given.stem, means_us[name])
    if mine is not None:  # from the beginning, in the same objects, with other values: what was kept of the others is of no use
        for program in programs.values():
            program.begin()
        before, fresh = drawn.randrange(1, MOST_BEFORE), batches.fresh(BATCHES)
        with contextlib.redirect_stdout(nowhere):
            again = itertools.islice(itertools.cycle(fresh), before + COMPARED)
            if said := differs(programs, list(again), before):
                show("")
                return {"differs": f"on batches not seen before, {said}; {OF_EARLIER_BATCHES}"}, {}
            for program in programs.values():
                program.begin_another()
            if said := differs(programs, batches.fresh(BATCHES) * 2):
                show("")
                return {"differs": f"with a second model, {said}; {OF_ANOTHER_MODEL}"}, {}
    show("")
    found = {"device": device.name, "torch": torch.__version__, "times_us": times_us, "means_us": means_us}
    return {"differs": "", **found, "prints": nowhere.printed > 0}, traces


def differs(programs: dict[str, Program], batches: list[Any], before: int = 0) -> str:
    """Return in what outputs of the two differ, but for those `before`, in words; of a job, the first rank's that do."""
    given, mine = (programs[name].outputs(batches) for name in ("given", "mine"))
    a, b = (len(found) * before // len(batches) for found in (given, mine))
    said = difference(given[a:], mine[b:])
    if not said and (handed_back := programs["mine"].handed_back - programs["given"].handed_back):
        said = f"output {min(handed_back)} is the batch itself or a part of it, where the program as given makes a new tensor"
    if not dist.is_initialized():
        return said
    every: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(every, said)
    return next((f"rank {rank}: {one}" for rank, one in enumerate(every) if one), "")


def measure_into(folder: Path, given: Path, mine: Path | None, device: Device, seed: int | None = None) -> dict[str, Any]:
    """Return what was measured, written beside the traces to this folder; of a job, each rank writes its own. Raises
    BrokenError.
    """
    found, traces = measure(given, mine, device, seed)
    rank = f"_rank{dist.get_rank()}" if dist.is_initialized() else ""
    files = {folder / f"{name}{rank}.json": data for name, data in traces.items()}
    if rank in ("", "_rank0"):
        files[folder / "measured.json"] = f"{json.dumps(found, indent=1)}\n".encode()
    write_all(files)
    return found


def _of_rank_0(number: int) -> int:
    if not dist.is_initialized():
        return number
    sent = torch.tensor(number)
    dist.broadcast(sent, 0)
    return int(sent)


def device_of(kind: str) -> Device:
    """Return the device, with the name that traces and results have. Raises RuntimeError where there is none."""
    if kind != "cpu":
        return Device(kind, torch.cuda.get_device_name(), None)
    name = f"{platform.machine()}, {count(torch.get_num_threads(), 'thread')}"
    return (
        OfAJob(kind, f"{dist.get_world_size()} ranks, each {name}", None) if dist.is_initialized() else Device(kind, name, None)
    )


class OfAJob(Device):
    """The device of a rank, which is done when all ranks are."""

    def synchronize(self) -> None:
        dist.barrier()


def show(text: str) -> None:
    """Progress, on a terminal only: a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def as_rank(rank: int, args: argparse.Namespace, meet: str, seed: int) -> None:
    """Be one rank of a job on gloo, each with its share of the cores, from beginning to end."""
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // args.ranks)))
    patience = datetime.timedelta(seconds=PATIENCE_S)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=args.ranks, timeout=patience)
    silent = contextlib.redirect_stdout(io.StringIO()) if rank else contextlib.nullcontext()
    with silent:
        code = of_one_process(args, device_of("cpu"), seed, rank)
    if code:
        os._exit(code)  # the process group's own threads wait for the others
    dist.destroy_process_group()


def of_one_process(args: argparse.Namespace, device: Device, seed: int, rank: int = 0) -> int:
    """Measure, and return the exit code. Of ranks that fail together the first tells of it, or, of one that lost its peer, the
    peer.
    """
    try:
        measure_into(args.folder, args.given, args.mine, device, seed)
    except BrokenError as error:
        lost = args.ranks > 1 and any(word in str(error) for word in OF_A_PEER)
        sleep(AFTER_A_PEER_S if lost else rank)
        print(f"\n{error}" if str(error) else "", file=sys.stderr, flush=True)
        return BROKEN
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("given", type=Path)
    parser.add_argument("mine", type=Path, nargs="?")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ranks", type=int, default=1)
    args, seed = parser.parse_args(argv), random.randrange(2**31)
    if args.ranks == 1:
        return of_one_process(args, device_of(args.device), seed)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it tells of each process that it ends
    with tempfile.TemporaryDirectory() as folder:
        try:
            spawn(as_rank, (args, f"file://{folder}/meet", seed), args.ranks)
        except ProcessExitedException as error:
            return error.exit_code
        except ProcessRaisedException as error:  # of a rank that lost its peer between two steps
            print(error, file=sys.stderr)
            return BROKEN
    return 0


# What judges, by whose it is and its name: no program may put something else there.
JUDGES: tuple[Any, ...] = (sys.modules[__name__], Program, Batches)
JUDGE: list[tuple[Any, str]] = [(owner, name) for owner in JUDGES for name in vars(owner) if not name.startswith("__")]
JUDGE += [(one, "__code__") for one in (_of_the_judge(*key) for key in JUDGE) if isinstance(one, FunctionType)]

if __name__ == "__main__":
    sys.exit(main())
