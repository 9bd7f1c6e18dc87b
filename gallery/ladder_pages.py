"""The ladder of lesson 05_d as a chapter of the course: a page for each rung, whose question is what the next one brings; and
what benchmarks/ladder.py measured of it.
"""

from itertools import pairwise
import json
import statistics
from typing import Any

from exercises.judge.verdict import near
from gallery.figures import ROOT, program_of, source_of
from models.ladder import RUNGS
from trace_reader import us

CHAPTER = "From naive to the limit"
HEADS = "aten::linear"  # of the loop over heads no finding tells: each head has three layers of its own
# Of each rung: the finding of its trace that names what the next one changes, and where that one stands in the source.
FOUND = {
    "naive": ("", "models/ladder.py:Block.attention"),
    "heads": ("mask-rebuilt", "models/ladder.py:Block.attention"),
    "mask": ("unfused-attention", "models/ladder.py:Block.attention"),
    "attention": ("written-out", "models/ladder.py:Norm"),
    "fused_ops": ("sync-in-step", "05_d_ladder.py:main"),
    "reads": ("unfused-optimizer", "05_d_ladder.py:main"),
    "optimizer": ("fp32-cuda-cores", "05_d_ladder.py:main"),
    "bits": ("many-calls", "05_d_ladder.py:COMPILED"),
    "compiled": ("graph-of-compiled-code", "05_d_ladder.py:COMPILED"),
}


def measured(name: str) -> dict[str, Any]:
    """Return what was measured on a machine: its device and versions, and of each rung what is told of it."""
    return json.loads((ROOT / "benchmarks" / "ladder" / f"{name}.json").read_text("utf-8"))


def step_us(run: dict[str, Any], rung: str) -> float:
    """Return what a step takes: the median of the processes."""
    return statistics.median(run["rungs"][rung]["step_us"])


def times_as_fast(run: dict[str, Any], rung: str, after: str) -> float:
    return step_us(run, rung) / step_us(run, after)


def with_range(run: dict[str, Any], rung: str) -> str:
    """Return what a step takes, in words: the median, and from the shortest to the longest of the processes."""
    each_us = run["rungs"][rung]["step_us"]
    return f"{us(step_us(run, rung))} ({us(min(each_us))} to {us(max(each_us))})"


def pages() -> list[dict[str, Any]]:
    """Return the fields of each page's exercise: all rungs but the last, in their order."""
    gpu, cpu = measured("h200"), measured("cpu2")
    return [_page(number, rung, after, gpu, cpu) for number, (rung, after) in enumerate(pairwise(RUNGS))]


def _page(number: int, rung: str, after: str, gpu: dict[str, Any], cpu: dict[str, Any]) -> dict[str, Any]:
    finding, source = FOUND[rung]
    so_far = "".join(f"\n- {changes}" for name, changes in list(RUNGS.items())[1 : number + 1])
    program = program_of("05_d_ladder.py")
    brought = times_as_fast(gpu, rung, after)
    return {
        "file": f"rung_{number:02}.html",
        "label": f"L{number}",
        "title": f"Rung {number}: {rung.replace('_', ' ')}",
        "about": f"{program.does}{f' It has these changes:{chr(10)}{so_far}' if so_far else ''}",
        "code": source_of(source),
        "command": f"uv run 05_d_ladder.py --rung {rung}",
        "answer": _answer(rung, after, finding, gpu, cpu),
        "finding": finding,
        "lights": () if finding else (HEADS,),
        "lesson": "05_d_ladder.py",
        "trace": ROOT / "gallery" / "ladder" / f"{rung}.json.gz",
        "ask": f"The next rung changes this: {RUNGS[after]}. How many times as fast is a step then? (1: nothing)",
        "right": round(brought, 2),
        "within": round(near(brought) / brought, 3),
    }


def _answer(rung: str, after: str, finding: str, gpu: dict[str, Any], cpu: dict[str, Any]) -> str:
    """Return what the next rung brought, on a GPU and on a CPU, what the reader had said of it, and how busy the GPU is then."""
    before, then = gpu["rungs"][rung], gpu["rungs"][after]
    processes = len(before["step_us"])
    told = [
        f"**{times_as_fast(gpu, rung, after):.2f} times** as fast: {RUNGS[after]}. A step took {with_range(gpu, rung)} and takes "
        f"{with_range(gpu, after)}, measured without the profiler: the medians of {processes} processes, and their ranges "
        f"({gpu['device']}, torch {gpu['torch']}, {gpu['date']}).",
        f"The GPU had {us(before['gpu_busy_us'])} of work in a step, {before['gpu_busy_us'] / step_us(gpu, rung):.0%} of it, "
        f"and has {us(then['gpu_busy_us'])}, {then['gpu_busy_us'] / step_us(gpu, after):.0%}.",
    ]
    if before["saves"] and before["advice"] == finding:
        low, high = before["saves"]
        told.append(
            f"The reader had said this first: `{finding}`, which saves {low:.0%} to {high:.0%} of a step; it saved "
            f"{1 - 1 / times_as_fast(gpu, rung, after):.0%}."
        )
    if after in cpu["rungs"]:
        ratio = times_as_fast(cpu, rung, after)
        how = f"a step is {ratio:.2f} times as fast" if ratio >= 1 else f"a step takes {1 / ratio:.2f} times as long"
        if _overlap(cpu, rung, after):
            how = "no difference is larger than what one process differs from the other"
        where = f"{cpu['device']}, torch {cpu['torch']}, {cpu['date']}"
        told.append(
            f"On a CPU, where the model is smaller, {how}: {with_range(cpu, rung)}, then {with_range(cpu, after)} ({where})."
        )
    if after == list(RUNGS)[-1]:
        told.append(
            f"This is the last rung: {times_as_fast(gpu, next(iter(RUNGS)), after):.1f} times as fast as the first. What is left "
            "is nearly all work of the GPU: only less of that would make a step shorter."
        )
    return " ".join(told)


def _overlap(run: dict[str, Any], rung: str, after: str) -> bool:
    """Return whether some processes of each of two rungs took as long as some of the other's."""
    one, other = (run["rungs"][name]["step_us"] for name in (rung, after))
    return max(min(one), min(other)) <= min(max(one), max(other))
