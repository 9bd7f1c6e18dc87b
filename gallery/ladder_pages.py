"""The ladders of lessons 05_d and 05_e as chapters of the course: a page for each rung, whose question is what the next one
brings; and what benchmarks/ladder.py measured of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import importlib
from itertools import pairwise
import json
from pathlib import Path
import statistics
from types import SimpleNamespace
from typing import Any

from exercises.judge.verdict import near
from gallery.figures import ROOT, program_of, source_of
from models import answering, ladder
import torch
from trace_reader import PATTERNS, peak, us


@dataclass(frozen=True)
class Ladder:
    """One of them. `folder`: of its recordings; `prefix`: of the names of its pages and of what was measured; `letter`: of its
    pages' labels. `found`: of each rung the finding of its trace that names what the next one changes, or the name of the slices
    in which that is, and where it stands in the source.
    """

    chapter: str
    learn: str
    lesson: str
    rungs: dict[str, str]
    folder: Path
    prefix: str
    letter: str
    found: dict[str, tuple[str, str]]

    def measured(self, name: str) -> dict[str, Any]:
        """Return what was measured on a machine: its device and versions, and of each rung what is told of it."""
        file = f"{self.prefix}_{name}.json" if self.prefix else f"{name}.json"
        return json.loads((ROOT / "benchmarks" / "ladder" / file).read_text("utf-8"))


TRAINING = Ladder(
    "From naive to the limit: training",
    "One decoder learns, in ten rungs: look at each, and say what the next change brings.",
    "05_d_ladder.py",
    ladder.RUNGS,
    ROOT / "gallery" / "ladder",
    "",
    "L",
    {
        "naive": ("aten::linear", "models/ladder.py:Block.attention"),  # each head has three layers of its own
        "heads": ("mask-rebuilt", "models/ladder.py:Block.attention"),
        "mask": ("unfused-attention", "models/ladder.py:Block.attention"),
        "attention": ("written-out", "models/ladder.py:Norm"),
        "fused_ops": ("sync-in-step", "05_d_ladder.py:main"),
        "reads": ("unfused-optimizer", "05_d_ladder.py:main"),
        "optimizer": ("fp32-cuda-cores", "05_d_ladder.py:main"),
        "bits": ("many-calls", "05_d_ladder.py:COMPILED"),
        "compiled": ("graph-of-compiled-code", "05_d_ladder.py:COMPILED"),
    },
)
ANSWERING = Ladder(
    "From naive to the limit: inference",
    "The same decoder answers, in nine rungs: what does each change bring, and where is the floor?",
    "05_e_answer_ladder.py",
    answering.RUNGS,
    ROOT / "gallery" / "answer",
    "answer",
    "A",
    {
        "naive": ("gradients-unused", "05_e_answer_ladder.py:main"),
        "no_grad": ("aten::mm", "models/answering.py:Decoder.forward"),  # with the whole vocabulary
        "last": ("token", "models/answering.py:Answer.write"),
        "cache": ("many-cats", "models/answering.py:Growing"),
        "room": ("Memcpy DtoH", "models/answering.py:Answer.write"),
        "reads": ("fp32-cuda-cores", "05_e_answer_ladder.py:main"),
        "bits": ("many-small-kernels", "models/answering.py:Answer.__init__"),
        "compiled": ("graph-of-compiled-code", "models/answering.py:Answer.captured"),
    },
)
LADDERS = (TRAINING, ANSWERING)


def floor(device: str) -> tuple[int, float]:
    """Return how many bytes a token of the last rung of ANSWERING reads at least, with its published sizes, and how long the
    device's memory takes for them (us), by its published rate.
    """
    lesson = importlib.import_module("05_e_answer_ladder")
    names = ("layers", "dim", "heads", "vocab", "batch", "prompt", "new")
    args = SimpleNamespace(**dict(zip(names, lesson.WITH_GPU, strict=True)))
    with torch.device("meta"):
        model = answering.Decoder(args, list(ANSWERING.rungs)[-1]).to(torch.bfloat16)
    gb_per_s = peak(device, "memory")
    assert gb_per_s is not None
    return model.least_read_bytes, model.least_read_bytes / gb_per_s / 1e3


def what_is_left(of: Ladder, gpu: dict[str, Any]) -> str:
    """Return what a step of the last rung still does."""
    last = list(of.rungs)[-1]
    if of is TRAINING:
        return "What is left is nearly all work of the GPU: only less of that would make a step shorter."
    tokens = importlib.import_module("05_e_answer_ladder").WITH_GPU[-1]
    read_bytes, token_us = floor(gpu["device"])
    times = step_us(gpu, last) / (tokens * token_us)
    return (
        f"A step takes no less than its reads: for each of its {tokens} tokens, it has to read the weights and the cache once. "
        f"These {read_bytes / 1e6:.0f} MB take {us(token_us)} at the memory's published rate. The reads for all tokens take "
        f"{us(tokens * token_us)}; a step of the last rung takes {times:.0f} times as long."
    )


def step_us(run: dict[str, Any], rung: str) -> float:
    """Return what a step takes: the median of the processes."""
    return statistics.median(run["rungs"][rung]["step_us"])


def times_as_fast(run: dict[str, Any], rung: str, after: str) -> float:
    return step_us(run, rung) / step_us(run, after)


def with_range(run: dict[str, Any], rung: str) -> str:
    """Return what a step takes, in words: the median, and from the shortest to the longest of the processes."""
    each_us = run["rungs"][rung]["step_us"]
    return f"{us(step_us(run, rung))} ({us(min(each_us))} to {us(max(each_us))})"


def pages(of: Ladder) -> list[dict[str, Any]]:
    """Return the fields of each page's exercise: all rungs but the last, in their order."""
    gpu, cpu = of.measured("h200"), of.measured("cpu2")
    return [_page(of, number, rung, after, gpu, cpu) for number, (rung, after) in enumerate(pairwise(of.rungs))]


def _page(of: Ladder, number: int, rung: str, after: str, gpu: dict[str, Any], cpu: dict[str, Any]) -> dict[str, Any]:
    found, source = of.found[rung]
    finding = found if found in PATTERNS else ""
    so_far = "".join(f"\n- {changes}" for name, changes in list(of.rungs.items())[1 : number + 1])
    program = program_of(of.lesson)
    brought = 1.0 if _is_nothing(gpu, rung, after) else times_as_fast(gpu, rung, after)
    return {
        "file": f"{of.prefix or 'rung'}_{number:02}.html",
        "label": f"{of.letter}{number}",
        "part": of.chapter,
        "title": f"Rung {number}: {rung.replace('_', ' ')}",
        "about": f"{program.does}{f' It has these changes:{chr(10)}{so_far}' if so_far else ''}",
        "code": source_of(source),
        "command": f"uv run {of.lesson} --rung {rung}",
        "answer": _answer(of, rung, after, finding, gpu, cpu),
        "finding": finding,
        "lights": () if finding else (found,),
        "lesson": of.lesson,
        "trace": of.folder / f"{rung}.json.gz",
        "ask": f"The next rung changes this: {of.rungs[after]}. How many times as fast is a step then? (1: nothing)",
        "right": round(brought, 2),
        "within": round(max(near(brought) / brought, _spread(gpu, rung, after, brought)), 3),
    }


def _answer(of: Ladder, rung: str, after: str, finding: str, gpu: dict[str, Any], cpu: dict[str, Any]) -> str:
    """Return what the next rung brought, on a GPU and on a CPU, what the reader had said of it, and how busy the GPU is then."""
    before, then = gpu["rungs"][rung], gpu["rungs"][after]
    processes = len(before["step_us"])
    how = f"**{times_as_fast(gpu, rung, after):.2f} times** as fast"
    if _is_nothing(gpu, rung, after):
        how = "**Nothing**: no difference is larger than what one process differs from the other"
    elif _overlap(gpu, rung, after):
        how += " (the ranges over the processes overlap)"
    told = [
        f"{how}: {of.rungs[after]}. A step took {with_range(gpu, rung)} and takes {with_range(gpu, after)}, measured without "
        f"the profiler: the medians of {processes} processes, and their ranges "
        f"({gpu['device']}, torch {gpu['torch']}, {gpu['date']}).",
        f"The GPU had {us(before['gpu_busy_us'])} of work in a step, {before['gpu_busy_us'] / step_us(gpu, rung):.0%} of it, "
        f"and has {us(then['gpu_busy_us'])}, {then['gpu_busy_us'] / step_us(gpu, after):.0%}.",
    ]
    if then["verdict"] == "overhead-bound":
        told.append("The run is overhead-bound then: most of its critical path is time of the CPU.")
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
    if after == list(of.rungs)[-1]:
        told.append(
            f"This is the last rung: {times_as_fast(gpu, next(iter(of.rungs)), after):.1f} times as fast as the first. "
            f"{what_is_left(of, gpu)}"
        )
    return " ".join(told)


def _is_nothing(run: dict[str, Any], rung: str, after: str) -> bool:
    """Return whether no difference of a rung from the one before it is larger than what one process differs from the other, and
    their medians are near each other.
    """
    times = times_as_fast(run, rung, after)
    return _overlap(run, rung, after) and abs(times - 1) <= near(1)


def _spread(run: dict[str, Any], rung: str, after: str, brought: float) -> float:
    """Return how far, as a share of what a rung `brought`, the processes are from it, where theirs and those of the rung before
    overlap; else 0.
    """
    if not _overlap(run, rung, after):
        return 0.0
    before_us, after_us = (run["rungs"][name]["step_us"] for name in (rung, after))
    return max(max(before_us) / min(after_us) / brought - 1, 1 - min(before_us) / max(after_us) / brought)


def _overlap(run: dict[str, Any], rung: str, after: str) -> bool:
    return overlap(run["rungs"][rung]["step_us"], run["rungs"][after]["step_us"])


def overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether some of each of two groups of processes took as long as some of the other's."""
    return max(min(one), min(other)) <= min(max(one), max(other))
