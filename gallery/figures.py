"""The list of figures.toml, where the recording of each is, and the numbers that are taken from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
import importlib
import json
from pathlib import Path
import shlex
import statistics
import sys
import tomllib
from typing import Any

from reader import Facts, LinkedTrace, load, tell
from reader.render import us, verdict, work_of_a_step

ROOT = Path(__file__).resolve().parent.parent
GALLERY = ROOT / "gallery" / "h200"
MACHINE = GALLERY / "machine.json"
SPREAD = GALLERY / "spread.json"  # by trace: what all five runs measured, in the order of their CPU times
PAIRS: dict[Path, list[Path]] = {}
TITLES = {
    1: "Part 1: a matmul and an add",
    2: "Part 2: a linear layer and an MLP",
    3: "Part 3: attention",
    4: "Beyond the posts",
}
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True)
class Figure:
    """One figure, table or exercise. `command` is what follows `uv run`; texts may hold {numbers}, see NUMBERS."""

    post: int  # 4: what the posts do not have
    figure: str
    command: str
    guess: str
    look: str
    numbers: tuple[str, ...]
    findings: tuple[str, ...]  # that the reader must have on the recording
    a100: str = ""
    differs: str = ""  # where the H200 tells another story than the post's A100, and why
    answer: str = ""  # of an exercise in docs/lessons.md

    @property
    def script(self) -> str:
        return self.command.split(".py")[0]

    @property
    def flags(self) -> list[str]:
        return shlex.split(self.command)[1:]

    @property
    def folder(self) -> Path:
        return GALLERY / self.script

    @property
    def trace(self) -> Path:
        return self.folder / f"{tag(self.script, tuple(self.flags))}.json"


@lru_cache
def tag(script: str, flags: tuple[str, ...]) -> str:
    """The name of the run, as the lesson's own parser makes it."""
    return importlib.import_module(script).parse_args(list(flags)).tag


def figures() -> list[Figure]:
    """All entries of figures.toml, in its order. Raises TypeError for an unknown or missing field."""
    entries = tomllib.loads((ROOT / "gallery" / "figures.toml").read_text())["figure"]
    return [Figure(**{key: _frozen(value) for key, value in entry.items()}) for entry in entries]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@lru_cache
def recording(path: Path) -> tuple[LinkedTrace, Facts]:
    trace = load(str(path))
    return trace, tell(trace)


def filled(text: str, figure: Figure) -> str:
    """The text with each {number} taken from the figure's recording. Raises KeyError for a number that is none."""
    return text.format_map(_Numbers(figure))


class _Numbers(dict):
    def __init__(self, figure: Figure):
        super().__init__()
        self.figure = figure

    def __missing__(self, name: str) -> str:
        _, number = NUMBERS[name]
        return number(*recording(self.figure.trace))


def _list_us(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if len(known) > 6:
        return f"{us(known[0])} first, then {us(min(known[1:]))} to {us(max(known[1:]))}"
    return ", ".join(us(v) for v in known) or "unknown"


def _gaps(trace: LinkedTrace, facts: Facts) -> str:
    """In each step: from the end of its first kernel to the start of the second."""
    gaps: list[float | None] = []
    for index in range(len(trace.steps)):
        own = [a.event for a in trace.activities if a.step == index and a.event.kind == "kernel"]
        gaps.append(own[1].start_us - own[0].end_us if len(own) > 1 else None)
    return _list_us(gaps)


def _lags(trace: LinkedTrace, facts: Facts) -> str:
    """From the start of each step's first launch to the start of its kernel."""
    lags: list[float | None] = []
    for index in range(len(trace.steps)):
        first = next((a for a in trace.activities if a.step == index and a.event.kind == "kernel" and a.call), None)
        lags.append(first.event.start_us - first.call.start_us if first and first.call else None)
    return _list_us(lags)


def _kernels(trace: LinkedTrace, facts: Facts) -> str:
    shown = [f"{k.decoded.label} {us(k.median_us)}" for k in facts.kernels if k.decoded.family != "memset"][:6]
    return ", ".join(shown)


def _footprints(trace: LinkedTrace, facts: Facts) -> str:
    said = []
    for k in [k for k in facts.kernels if k.registers_per_thread is not None][:3]:
        occupancy = f", {k.occupancy.warps} of {k.occupancy.max_warps} warps" if k.occupancy else ""
        said.append(
            f"{k.decoded.label}: {k.registers_per_thread} registers, {k.shared_memory_bytes or 0:,} B shared, "
            f"grid {'x'.join(map(str, k.grid or ()))}, block {'x'.join(map(str, k.block or ()))}{occupancy}"
        )
    return "; ".join(said)


def _durations(trace: LinkedTrace, facts: Facts) -> str:
    k = next(k for k in facts.kernels if k.decoded.family not in ("memcpy", "memset"))
    mean = k.total_us / k.calls
    return f"{k.decoded.label}, {k.calls} calls: median {us(k.median_us)}, mean {us(mean)}, {us(k.min_us)} to {us(k.max_us)}"


def _seen(slug: str) -> Callable[[LinkedTrace, Facts], str]:
    return lambda trace, facts: next((f.seen for f in facts.findings if f.slug == slug), "not there")


Number = Callable[[LinkedTrace, Facts], str]
NUMBERS: dict[str, tuple[str, Number]] = {  # by name: what it is called in a table (empty: it says so itself), and the number
    "verdict": ("", lambda trace, facts: verdict(facts)),
    "work": ("", lambda trace, facts: work_of_a_step(facts)),
    "totals": (
        "all steps",
        lambda trace, facts: (
            f"CPU {us(sum(s.cpu_us for s in facts.steps))}, GPU {us(sum(s.gpu_busy_us or 0 for s in facts.steps))}"
        ),
    ),
    "busy_share": ("GPU busy", lambda trace, facts: f"{facts.gpu_busy_share or 0:.1%}"),
    "step_cpu": ("CPU of the steps", lambda trace, facts: _list_us([s.cpu_us for s in facts.steps])),
    "step_gpu": ("GPU a step", lambda trace, facts: us(statistics.median(s.gpu_busy_us or 0 for s in facts.steps))),
    "entry_gaps": ("dead windows", lambda trace, facts: _list_us([s.entry_gap_us for s in facts.steps])),
    "kernel_count": ("kernels a step", lambda trace, facts: str(facts.middle_step.kernels if facts.middle_step else "unknown")),
    "kernels": ("median times", _kernels),
    "kernel_names": (
        "names",
        lambda trace, facts: ", ".join(f"`{k.name[:90]}`" for k in facts.kernels if k.decoded.family != "memset"),
    ),
    "launch_calls": ("launches", lambda trace, facts: ", ".join(f"{k.decoded.label}: {k.launch}" for k in facts.kernels)),
    "queries": ("occupancy queries", lambda trace, facts: str(sum(s.occupancy_queries for s in facts.steps))),
    "footprints": ("", _footprints),
    "durations": ("", _durations),
    "gaps": ("first kernel's end to the second's start", _gaps),
    "lags": ("launch to kernel", _lags),
    "buffer": ("", _seen("profiler-buffer")),
    "hidden_copy": ("", _seen("hidden-copy")),
    "bias_copies": ("", _seen("bias-copy")),
    "tax": ("", _seen("compile-tax")),
    "graph": ("", _seen("cache-hits")),
    "fused": ("", _seen("fused-triton")),
    "attention": ("", _seen("fused-attention")),
    "occupancy": ("", _seen("low-occupancy-by-design")),
    "not_estimated": ("occupancy not estimated", _seen("occupancy-not-estimated")),
    "opaque": ("", _seen("opaque-op")),
    "safe_softmax": ("", _seen("safe-softmax")),
    "mask": ("", _seen("mask-rebuilt")),
    "fp32": ("fp32 on CUDA cores", _seen("fp32-cuda-cores")),
    "slow": ("", _seen("slow-pointwise")),
    "views": ("views", _seen("views-launch-nothing")),
    "gemms": (
        "",
        lambda trace, facts: "; ".join(
            f"{g.op} {g.m}x{g.k} @ {g.k}x{g.n}: {us(g.median_us)}, {g.tflop_per_s:.0f} TFLOP/s" for g in facts.gemms
        ),
    ),
    "bandwidth": (
        "",
        lambda trace, facts: ", ".join(f"{k.decoded.label} {k.gb_per_s:.0f} GB/s" for k in facts.kernels if k.gb_per_s),
    ),
}


def machine() -> dict[str, Any]:
    """What the recordings were made on."""
    return json.loads(MACHINE.read_text())
