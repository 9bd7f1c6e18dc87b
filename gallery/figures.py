"""The list of figures.toml, where the recording of each is, and the numbers that are taken from it.

A text of figures.toml may hold {name}, an entry of NUMBERS read from the figure's own recording, {other.name}, the same read from
a recording that it names under `others`, and {cpu_beside_other}: both CPU times, and whether they can be told apart.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
import importlib
from itertools import pairwise
import json
from pathlib import Path
import shlex
import statistics
import sys
import textwrap
import tomllib
from typing import Any

from trace_reader import Kind, Reading, Slice, examine, load, plain_sentence, us, verdict_sentence, work_per_step

ROOT = Path(__file__).resolve().parent.parent
GALLERY = ROOT / "gallery" / "h200"
MACHINE = GALLERY / "machine.json"
SPREAD = GALLERY / "spread.json"  # by trace: what all five runs measured, in the order of their CPU times
CHOICE = GALLERY / "inductor_choice.json"  # what benchmarks/inductor_choice.py measured
TITLES = {
    1: "Part 1: a matmul and an add",
    2: "Part 2: a linear layer and an MLP",
    3: "Part 3: attention",
    4: "Beyond the posts",
}
sys.path.insert(0, str(ROOT))


@lru_cache
def tag(script: str, flags: tuple[str, ...]) -> str:
    """Return the name of the run, as the lesson's own parser makes it."""
    return importlib.import_module(script).parse_args(list(flags)).run.tag


@lru_cache
def trace_of(command: str) -> Path:
    """Return where the recording of a command (what follows `uv run`) is."""
    script, *flags = shlex.split(command)
    name = script.removesuffix(".py")
    return GALLERY / name / f"{tag(name, tuple(flags))}.json"


@dataclass(frozen=True)
class Check:
    """What the course asks for in an exercise, and what is right: one of `options`, or a number, of which a guess may be off by
    the share `within`, in `unit`. `lights`: parts of the names of the slices that explain the answer, where no finding does.
    """

    ask: str
    right: str | float
    options: tuple[str, ...] = ()
    within: float = 0.0
    unit: str = ""
    lights: tuple[str, ...] = ()
    mark: bool = True  # whether one is to mark a slice that shows it


@dataclass(frozen=True)
class Figure:
    """One figure, table or exercise. `command` is what follows `uv run`; texts may hold {numbers}, see NUMBERS."""

    post: int  # 4: what the posts do not have
    figure: str
    command: str
    guess: str
    look: str  # where to look, without what is to be seen there
    numbers: tuple[str, ...]
    findings: tuple[str, ...] = ()  # that the reader must have on the recording
    a100: str = ""
    differs: str = ""  # where the H200 differs from the post's A100, and why
    title: str = ""  # of an exercise
    answer: str = ""  # of an exercise in docs/lessons.md
    check: Check | None = None  # of an exercise
    others: dict[str, str] = field(default_factory=dict)  # commands of other recordings, by the name that texts call them
    pair: str = ""  # the one of `others` that the picture shows, too

    @property
    def script(self) -> str:
        return self.command.split(".py")[0]

    @property
    def in_words(self) -> str:
        """Its numbers in the post, as `figures 5, 6`; empty where it has none there."""
        numbers = self.figure.removesuffix(", table")
        if self.post not in (1, 2, 3) or not numbers[0].isdecimal():
            return ""
        return f"{'figure' if numbers.isdecimal() else 'figures'} {numbers}"

    @property
    def flags(self) -> list[str]:
        return shlex.split(self.command)[1:]

    @property
    def trace(self) -> Path:
        return trace_of(self.command)

    @property
    def picture(self) -> Path:
        """Of the recording alone, or above the one of `pair`."""
        path = self.trace.with_suffix(".png")
        return path.with_name(f"{path.stem}_beside_{self.pair}.png") if self.pair else path

    @property
    def pictured(self) -> list[Path]:
        return [*([trace_of(self.others[self.pair])] if self.pair else []), self.trace]


def figures() -> list[Figure]:
    """Return all entries of figures.toml, in its order. Raises TypeError for an unknown or missing field."""
    return [Figure(**_fields(entry)) for entry in _entries("figure")]


def asked() -> dict[int, Figure]:
    """Return the entries that are exercises, by their numbers: part by part."""
    return dict(enumerate((f for post in TITLES for f in figures() if f.post == post and f.answer), 1))


@dataclass(frozen=True)
class Claim:
    """What a post says, and what our recording of `command` shows. `h200` and `why` may hold {numbers}, as a figure's texts.

    `status`: confirmed, corrected (`why` says how, by which rows), or unknown (`why` says what the recordings cannot tell).
    """

    post: int
    figure: str
    claim: str
    status: str
    h200: str
    a100: str = ""
    command: str = ""  # empty: no recording shows it
    why: str = ""
    others: dict[str, str] = field(default_factory=dict)

    def said(self, text: str) -> str:
        """Return a text with the numbers of the recording."""
        return filled(text, Figure(self.post, self.figure, self.command, "", "", (), others=self.others)) if text else ""


def claims() -> list[Claim]:
    """Return all entries of claims.toml, in its order. Raises TypeError for an unknown or missing field."""
    entries = tomllib.loads((ROOT / "gallery" / "claims.toml").read_text("utf-8"))["claim"]
    return [Claim(**_fields(entry)) for entry in entries]


@dataclass(frozen=True)
class Elsewhere:
    """An exercise that stands in a document of its own, under this number there. `traces` are paths in gallery/; `note` says what
    of the question they do not show.
    """

    document: str
    number: int
    title: str
    traces: tuple[str, ...]
    check: Check
    finding: str = ""
    note: str = ""


def elsewhere() -> list[Elsewhere]:
    """Return all exercises of other documents, in the order of figures.toml."""
    return [Elsewhere(**_fields(entry)) for entry in _entries("exercise")]


@dataclass(frozen=True)
class Program:
    """What one is told of a program before one is asked: what it `does`, in two sentences, and parts of its `source`, as
    file:name, where name may lead into a class or a function; none where each page shows another part. `of`: how its commands,
    or the names of its recordings, begin.
    """

    of: tuple[str, ...]
    does: str
    source: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        return "\n\n".join(map(source_of, self.source))


def program_of(name: str) -> Program:
    """Return the program of a command or of a recording: the first of figures.toml that fits. Raises LookupError: none does."""
    for one in (Program(**_fields(entry)) for entry in _entries("program")):
        if name.startswith(one.of):
            return one
    raise LookupError(f"no program of figures.toml is that of {name}")


def source_of(place: str) -> str:
    """Return the source of a function, a class or a constant (file:name), with its decorators, as if it stood at the margin."""
    file, name = place.split(":")
    text = (ROOT / file).read_text("utf-8")
    found: Any = ast.parse(text)
    for part in name.split("."):
        found = next((one for one in found.body if part in _names(one)), None)
        if found is None:
            raise LookupError(f"{file} has no {name}")
    first = min([found.lineno, *(one.lineno for one in getattr(found, "decorator_list", []))])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : found.end_lineno]))


def _names(statement: ast.stmt) -> list[str]:
    """Return what a statement defines."""
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [statement.name] if isinstance(statement, ast.FunctionDef | ast.ClassDef) else []


@lru_cache
def _entries(kind: str) -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "gallery" / "figures.toml").read_text("utf-8"))[kind]


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: Check(**_fields(value)) if key == "check" else _frozen(value) for key, value in entry.items()}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@lru_cache
def recording(path: Path) -> Reading:
    return examine(load(str(path)))


class Run:
    """A recording with all that a document may quote of it: {name} in a text is an entry of NUMBERS."""

    def __init__(self, path: Path):
        self.path = path
        reading = recording(path)
        self.trace, self.facts = reading.trace, reading.facts

    @property
    def spread(self) -> list[dict[str, Any]]:
        """What each of the five processes measured of its middle step."""
        return json.loads(SPREAD.read_text("utf-8"))[str(self.path.relative_to(GALLERY))]

    def __getattr__(self, name: str) -> str:
        if name not in NUMBERS:
            raise AttributeError(f"no number is called {name}")
        return NUMBERS[name][1](self)


def filled(text: str, figure: Figure) -> str:
    """Return the text with each {number} taken from a recording. Raises KeyError or AttributeError for a number that is none."""
    return text.format_map(_Numbers(figure))


class _Numbers(dict):
    def __init__(self, figure: Figure):
        super().__init__()
        self.figure = figure

    def __missing__(self, name: str) -> Any:
        if name.startswith("cpu_beside_"):
            return _beside(Run(self.figure.trace), Run(trace_of(self.figure.others[name.removeprefix("cpu_beside_")])))
        if name in self.figure.others:
            return Run(trace_of(self.figure.others[name]))
        if name not in NUMBERS:
            raise KeyError(name)
        return NUMBERS[name][1](Run(self.figure.trace))


def _beside(run: Run, other: Run) -> str:
    """Return the CPU times of two runs' middle steps, and whether five processes of each tell them apart."""
    ranges = [[entry["cpu_us"] for entry in each.spread] for each in (run, other)]
    apart = max(ranges[0]) < min(ranges[1]) or max(ranges[1]) < min(ranges[0])
    return f"{run.cpu} {'instead of' if apart else 'compared with'} {other.cpu}{'' if apart else ', and the ranges overlap'}"


def _list_us(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if len(known) > 6:
        return f"{us(known[0])} first, then {us(min(known[1:]))} to {us(max(known[1:]))}"
    return ", ".join(us(v) for v in known) or "unknown"


def _own(run: Run, step: int) -> list[Slice]:
    """Return the kernels that a step launched, in the order of their starts."""
    return [a.event for a in run.trace.activities() if a.step == step and a.event.kind == Kind.KERNEL]


def _gaps_us(run: Run) -> list[float]:
    """In each step that launches two kernels or more: from the end of the first to the start of the second."""
    kernels = [_own(run, index) for index in range(len(run.trace.steps))]
    return [launched[1].start_us - launched[0].end_us for launched in kernels if len(launched) > 1]


def _launch_behind(run: Run) -> str:
    """In the second step: from the end of its first kernel to the start of the call that launches the second."""
    first, second = [a for a in run.trace.activities() if a.step == 1 and a.event.kind == Kind.KERNEL][:2]
    assert second.call is not None
    return us(second.call.start_us - first.event.end_us)


def _lags_us(run: Run) -> list[float]:
    """From the end of each step's first launch to the start of its kernel."""
    return [kernel.start_us - call.end_us for call, kernel in _first_launches(run)]


def _final_sync_us(run: Run) -> float:
    """Return the longest synchronizing call that ends after the last step; 0 for none."""
    end_us = run.trace.steps[len(run.trace.steps) - 1].end_us
    return max((c.duration_us for c in run.trace.calls if "Synchronize" in c.name and c.end_us > end_us), default=0.0)


def _launch_us(run: Run) -> str:
    return _list_us([call.duration_us for call, _ in _first_launches(run)])


def _first_launches(run: Run) -> list[tuple[Slice, Slice]]:
    """In each step, its first kernel with the call that launched it."""
    found = []
    for index in range(len(run.trace.steps)):
        one = (a for a in run.trace.activities() if a.step == index and a.event.kind == Kind.KERNEL and a.call)
        if first := next(one, None):
            assert first.call is not None
            found.append((first.call, first.event))
    return found


def _first_gap(run: Run) -> str:
    """Return what the trace holds between the first step's two kernels, and when the profiler's buffer request had ended."""
    first, second = _own(run, 0)[:2]
    start_us = run.trace.steps[0].start_us
    buffer = max(e.end_us for e in run.trace.overheads if "Buffer" in e.name)
    events = [*run.trace.calls, *run.trace.overheads, *run.trace.ops]
    moments = sorted({t for e in events for t in (e.start_us, e.end_us) if first.end_us <= t <= second.start_us})
    silences = sorted(((b - a, a) for a, b in pairwise(moments)), reverse=True)[:2]
    inside = []
    for length_us, at_us in silences:
        open_now = [e for e in (*run.trace.ops, *run.trace.calls) if e.start_us <= at_us and e.end_us >= at_us + length_us]
        inside.append(f"{us(length_us)} inside {open_now[-1].name if open_now else 'no op and no call'}")
    return (
        f"the buffer request ends {us(buffer - start_us)} after the step's start, the gap begins at "
        f"{us(first.end_us - start_us)} and ends at {us(second.start_us - start_us)}. Most of it is {' and '.join(inside)}, "
        "in which the trace shows nothing further"
    )


def _before_first_kernel(run: Run) -> str:
    """Return the longest stretch before the first kernel in which no call or overhead starts or ends, and the op that is open."""
    first = _own(run, 0)[0]
    moments = sorted({t for e in [*run.trace.calls, *run.trace.overheads] for t in (e.start_us, e.end_us) if t <= first.start_us})
    length_us, at_us = max((b - a, a) for a, b in pairwise(moments))
    open_now = [e for e in (*run.trace.ops, *run.trace.calls) if e.start_us <= at_us and e.end_us >= at_us + length_us]
    return f"{us(length_us)} inside {open_now[-1].name if open_now else 'no op'}"


def _kernels(run: Run) -> str:
    shown = [f"{k.decoded.label} {us(k.median_us)}" for k in run.facts.kernels if k.kind != Kind.MEMSET][:6]
    return ", ".join(shown)


def _kernel_names(run: Run) -> str:
    return ", ".join(f"`{k.name[:90]}`" for k in run.facts.kernels if k.kind != Kind.MEMSET)


def _gemm_names(run: Run) -> str:
    return ", ".join(f"`{k.name}`" for k in run.facts.kernels if k.decoded.is_gemm)


def _transposes(run: Run) -> str:
    return str(_ops_a_step(run).split(", ").count("aten::transpose"))


def _kernel(run: Run, fits: Callable[[Any], bool]) -> Any:
    """Of the kernels, copies and memsets that fit, the one that takes the most time."""
    return next(k for k in run.facts.kernels if fits(k))


def _is_pointwise(kernel: Any) -> bool:
    return kernel.kind == Kind.KERNEL and not kernel.decoded.is_gemm


def _mean_us(kernel: Any) -> float:
    return kernel.total_us / kernel.calls


def _per_thread(run: Run) -> str:
    """Elements of the MLP's [8192, 3072] that each thread of the fused kernel computes."""
    kernel = _kernel(run, _is_pointwise)
    return f"{8192 * 3072 / (kernel.grid[0] * kernel.block[0]):g}"


def _activities(run: Run) -> str:
    step = run.facts.usual_step
    assert step is not None
    return str(step.kernels + step.memcpys + step.memsets)


def _footprint(kernel: Any) -> str:
    shared = kernel.shared_memory_bytes or 0
    return f"{kernel.registers_per_thread} registers per thread and {shared:,} B of shared memory per block"


def _footprints(run: Run) -> str:
    said = []
    for k in [k for k in run.facts.kernels if k.registers_per_thread is not None][:3]:
        occupancy = f", {k.occupancy.warps} of {k.occupancy.max_warps} warps" if k.occupancy else ""
        said.append(
            f"{k.decoded.label}: {k.registers_per_thread} registers per thread, {k.shared_memory_bytes or 0:,} B of shared "
            f"memory, grid {'x'.join(map(str, k.grid or ()))}, block {'x'.join(map(str, k.block or ()))}{occupancy}"
        )
    return "; ".join(said)


def _durations(run: Run) -> str:
    k = next(k for k in run.facts.kernels if k.kind == Kind.KERNEL)
    mean = k.total_us / k.calls
    return f"{k.decoded.label}, {k.calls} calls: median {us(k.median_us)}, mean {us(mean)}, {us(k.min_us)} to {us(k.max_us)}"


def _totals(run: Run) -> list[list[str]]:
    """Return the two totals under the profiler's table, the CPU's and the GPU's: name and value, as it prints them."""
    lines = run.path.with_suffix(".txt").read_text("utf-8").splitlines()
    return [line.split(": ") for line in lines if line.startswith("Self ")]


def _totals_us(run: Run) -> list[float]:
    units = {"us": 1, "ms": 1000}  # the last two letters of a value; there is no space before them
    return [float(value[:-2]) * units[value[-2:]] for _, value in _totals(run)]


def _cpu(run: Run) -> str:
    """Return the middle step's CPU time with its spread."""
    times = [entry["cpu_us"] for entry in run.spread]
    assert run.facts.usual_step is not None
    return f"{us(run.facts.usual_step.cpu_us)} ({us(min(times))} to {us(max(times))} in {len(times)} processes)"


def _plain_range(run: Run) -> str:
    times = [measured["plain_us"] for measured in run.spread]
    return f"{us(min(times))} and {us(max(times))}"


def _recorded_ratio(run: Run) -> str:
    plain = run.facts.plain
    return f"{(plain.recorded_step_us or 0) / (plain.step_us or 1):.1f}"


def _step_cpu(run: Run) -> str:
    times = [entry["cpu_us"] for entry in run.spread]
    middle = run.facts.usual_step
    assert middle is not None
    listed = _list_us([s.cpu_us for s in run.facts.steps])
    number = middle.name.removeprefix("ProfilerStep")
    return f"{listed} ({number} in {len(times)} processes: {us(min(times))} to {us(max(times))})"


def _ratios(run: Run) -> str:
    """GPU busy time over CPU time of the middle step, in the five runs."""
    ratios = [entry["gpu_busy_us"] / entry["cpu_us"] for entry in run.spread]
    return f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} processes"


def _queries(run: Run) -> str:
    """Occupancy queries in each step, by what they are called."""
    counts = []
    for step in run.trace.steps:
        names = [c.name for c in run.trace.calls if "Occupancy" in c.name and step.start_us <= c.start_us < step.end_us]
        each = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names)) or "none"
        counts.append(f"{step.name.removeprefix('ProfilerStep')}: {each}")
    return "; ".join(counts)


def _calls_a_step(run: Run) -> str:
    """Return the runtime and driver calls of the middle step, in order."""
    step = run.facts.usual_step
    assert step is not None
    slice_ = next(s for s in run.trace.steps if s.name == step.name)
    names = [c.name for c in run.trace.calls if slice_.start_us <= c.start_us < slice_.end_us]
    return f"{len(names)} ({', '.join(names)})"


def _ops_a_step(run: Run) -> str:
    """Return the aten ops of the middle step, in order."""
    step = run.facts.usual_step
    assert step is not None
    slice_ = next(s for s in run.trace.steps if s.name == step.name)
    ops = [o for o in run.trace.ops if slice_.start_us <= o.start_us < slice_.end_us and o.track == slice_.track]
    names = [o.name for o in ops if o.name.startswith("aten::")]
    return ", ".join(names)


def _self_times(run: Run) -> list[tuple[str, float, float]]:
    """Name, total and self CPU time of the first ops of the middle step: a total includes what the op calls, self does not."""
    step = run.facts.usual_step
    assert step is not None
    slice_ = next(s for s in run.trace.steps if s.name == step.name)
    ops = [o for o in run.trace.ops if slice_.start_us <= o.start_us < slice_.end_us and o.track == slice_.track]
    calls = [c for c in run.trace.calls if slice_.start_us <= c.start_us < slice_.end_us]
    times = []
    for op in ops[:3]:
        inside = [e for e in (*ops, *calls) if e is not op and op.start_us <= e.start_us and e.end_us <= op.end_us]
        outer = [e for e in inside if not any(o is not e and o.start_us <= e.start_us and e.end_us <= o.end_us for o in inside)]
        times.append((op.name, op.duration_us, op.duration_us - sum(e.duration_us for e in outer)))
    return times


def _gemms(run: Run) -> str:
    """Return the GEMMs by their dimensions: time, rate, and the share of the published peak."""
    said = []
    for g in run.facts.gemms:
        share = f", {g.peak_share:.0%} of the published {g.tflop_per_s / g.peak_share:.0f}" if g.peak_share else ""
        said.append(f"{g.op} {g.m}x{g.k} @ {g.k}x{g.n}: {us(g.median_us)}, {g.tflop_per_s:.0f} TFLOP/s{share}")
    return "; ".join(said)


def _compile_steps(run: Run) -> str:
    """In which steps torch.compile compiled."""
    said = []
    for step in run.trace.steps:
        compiled = any("compile_inner" in op.name and step.start_us <= op.start_us < step.end_us for op in run.trace.ops)
        said.append(f"{step.name.removeprefix('ProfilerStep')} {us(step.duration_us)}{', compiling' if compiled else ''}")
    return "; ".join(said)


def _softmax_us(run: Run) -> str:
    return us(next(k.median_us for k in run.facts.kernels if k.decoded.is_softmax))


def _seen(slug: str) -> Callable[[Run], str]:
    return lambda run: next((f.seen for f in run.facts.findings if f.slug == slug), "no such finding")


Number = Callable[[Run], str]
NUMBERS: dict[str, tuple[str, Number]] = {  # by name: what it is called in a table (empty: it says so itself), and the number
    "verdict": ("", lambda run: verdict_sentence(run.facts)),
    "plain": ("", lambda run: plain_sentence(run.facts)),
    "plain_step": ("a step without the profiler", lambda run: us(run.facts.plain.step_us)),
    "plain_range": ("the same in all processes", _plain_range),
    "recorded_step": ("a recorded step", lambda run: us(run.facts.plain.recorded_step_us)),
    "recorded_ratio": ("recorded over plain step", _recorded_ratio),
    "ratios": ("GPU over CPU time of the middle step", _ratios),
    "work": ("", lambda run: work_per_step(run.facts)),
    "table_totals": ("the table's totals", lambda run: ", ".join(f"{name} {value}" for name, value in _totals(run))),
    "cpu_total": ("the table's CPU total", lambda run: us(_totals_us(run)[0])),
    "gpu_total": ("the table's GPU total", lambda run: us(_totals_us(run)[1])),
    "totals_ratio": ("CPU total over GPU total", lambda run: f"{_totals_us(run)[0] / _totals_us(run)[1]:.0f}"),
    "final_sync": ("the synchronize at the end", lambda run: us(_final_sync_us(run))),
    "busy_share": ("GPU busy", lambda run: f"{run.facts.gpu_busy_share or 0:.1%}"),
    "step_cpu": ("CPU of the steps", _step_cpu),
    "first_cpu": ("CPU of the first step", lambda run: us(run.facts.steps[0].cpu_us)),
    "cpu": ("CPU of the middle step", _cpu),
    "cpu_us": ("CPU of the middle step, without its range", lambda run: _cpu(run).partition(" (")[0]),
    "step_gpu": ("GPU time per step", lambda run: us(statistics.median(s.gpu_busy_us or 0 for s in run.facts.steps))),
    "entry_gaps": ("dead windows", lambda run: _list_us([s.entry_gap_us for s in run.facts.steps])),
    "first_entry_gap": ("dead window of the first step", lambda run: us(run.facts.steps[0].entry_gap_us)),
    "activities": ("kernels, copies and memsets per step", _activities),
    "kernel_count": ("kernels per step", lambda run: str(run.facts.usual_step.kernels if run.facts.usual_step else "unknown")),
    "kernels": ("median times", _kernels),
    "kernel_names": (
        "names",
        lambda run: ", ".join(f"`{k.name[:90]}`" for k in run.facts.kernels if k.kind != Kind.MEMSET),
    ),
    "gemm_names": ("the GEMM", _gemm_names),
    "transposes": ("aten::transpose per step", _transposes),
    "launch_calls": ("launches", lambda run: ", ".join(f"{k.decoded.label}: {k.launch}" for k in run.facts.kernels)),
    "calls_a_step": ("runtime and driver calls per step", _calls_a_step),
    "call_count": ("how many calls", lambda run: _calls_a_step(run).partition(" ")[0]),
    "ops_a_step": ("ops per step", _ops_a_step),
    "self_us": (
        "",
        lambda run: "; ".join(f"{name} total {us(total)}, self {us(self_time)}" for name, total, self_time in _self_times(run)),
    ),
    "op_total": ("CPU total of the first op", lambda run: us(_self_times(run)[0][1])),
    "op_self": ("Self CPU of the first op", lambda run: us(_self_times(run)[0][2])),
    "queries": ("occupancy queries", _queries),
    "query_count": ("how many occupancy queries", lambda run: str(sum(step.occupancy_queries for step in run.facts.steps))),
    "footprints": ("", _footprints),
    "gemm_footprint": ("the GEMM's footprint", lambda run: _footprint(_kernel(run, lambda k: k.decoded.is_gemm))),
    "add_footprint": ("the add's footprint", lambda run: _footprint(_kernel(run, lambda k: k.decoded.label == "add"))),
    "durations": ("", _durations),
    "gemm_us": ("the GEMM's median time", lambda run: us(_kernel(run, lambda k: k.decoded.is_gemm).median_us)),
    "gemm_mean": ("the GEMM's mean time", lambda run: us(_mean_us(_kernel(run, lambda k: k.decoded.is_gemm)))),
    "add_us": ("the add's median time", lambda run: us(_kernel(run, lambda k: k.decoded.label == "add").median_us)),
    "copy_us": ("the copy's median time", lambda run: us(_kernel(run, lambda k: k.kind == Kind.MEMCPY).median_us)),
    "memset_bytes": ("a memset's size", lambda run: f"{_kernel(run, lambda k: k.kind == Kind.MEMSET).bytes} bytes"),
    "attention_us": ("the attention kernel's time", lambda run: us(_kernel(run, lambda k: k.kind == Kind.KERNEL).median_us)),
    "fused_us": ("the fused kernel's time", lambda run: us(_kernel(run, _is_pointwise).median_us)),
    "per_thread": ("elements per thread of the fused kernel", _per_thread),
    "gaps": ("first kernel's end to the second's start", lambda run: _list_us([*_gaps_us(run)])),
    "gap_first": ("that gap in the first step", lambda run: us(_gaps_us(run)[0])),
    "gap_second": ("that gap in the second step", lambda run: us(_gaps_us(run)[1])),
    "gap_later": ("the median of that gap in the later steps", lambda run: us(statistics.median(_gaps_us(run)[2:]))),
    "launch_behind": ("from the second step's first kernel to the launch of the next", _launch_behind),
    "first_gap": ("", _first_gap),
    "before_first_kernel": ("silence before the first kernel", _before_first_kernel),
    "lags": ("launch's end to kernel's start", lambda run: _list_us([*_lags_us(run)])),
    "first_lag": ("the same in the first step", lambda run: us(_lags_us(run)[0])),
    "last_lag": ("the same in the last step", lambda run: us(_lags_us(run)[-1])),
    "launch_us": ("the launch itself", _launch_us),
    "buffer": ("", _seen("profiler-buffer")),
    "hidden_copy": ("", _seen("hidden-copy")),
    "bias_copies": ("", _seen("bias-copy")),
    "tax": ("", _seen("compile-tax")),
    "graph": ("", _seen("cache-hits")),
    "graph_launch": ("", _seen("graph-launch")),
    "unfused": ("", _seen("unfused-optimizer")),
    "opaque": ("", _seen("slow-call")),
    "opaque_op": ("", _seen("opaque-op")),
    "recompiled": ("", _seen("recompile")),
    "compile_steps": ("steps", _compile_steps),
    "fused": ("", _seen("fused-triton")),
    "attention": ("", _seen("fused-attention")),
    "occupancy": ("", _seen("low-occupancy-by-design")),
    "not_estimated": ("occupancy not estimated", _seen("occupancy-not-estimated")),
    "safe_softmax": ("", _seen("safe-softmax")),
    "softmax_us": ("softmax per step", _softmax_us),
    "mask": ("", _seen("mask-rebuilt")),
    "fp32": ("fp32 on CUDA cores", _seen("fp32-cuda-cores")),
    "slow": ("", _seen("slow-pointwise")),
    "views": ("views", _seen("views-launch-nothing")),
    "memory": ("peak memory", lambda run: run.facts.lesson.get("peak_memory", "unknown")),
    "peak": ("peak memory of tensors", lambda run: run.facts.lesson.get("peak_memory", "unknown").partition(" of ")[0]),
    "gemms": ("", _gemms),
    "peak_share": ("share of the published peak", lambda run: f"{run.facts.gemms[0].peak_share or 0:.0%}"),
    "tflop": ("rate of the GEMM", lambda run: f"{run.facts.gemms[0].tflop_per_s:.0f} TFLOP/s"),
    "bandwidth": ("", lambda run: ", ".join(f"{k.decoded.label} {k.gb_per_s:.0f} GB/s" for k in run.facts.kernels if k.gb_per_s)),
}


def machine() -> dict[str, Any]:
    """Return what the recordings were made on."""
    return json.loads(MACHINE.read_text("utf-8"))
