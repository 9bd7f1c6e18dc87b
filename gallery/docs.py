"""Write docs/figures.md, lessons.md, cheatsheet.md and fused_kernel.md from figures.toml, the findings and the recordings.

    uv run gallery/docs.py

In docs/reading.md it makes the outputs anew that stand under commands. Numbers come through the reader. A test fails while a
document does not say what this writes.
"""

import contextlib
import glob
import io
import json
from pathlib import Path
import re
import shlex
import statistics
import sys

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gallery.figures import CHOICE, GALLERY, NUMBERS, ROOT, TITLES, Figure, Run, figures, filled, machine, trace_of
import msgspec
from trace_reader.analysis.comparison import rows
from trace_reader.findings import PATTERNS
from trace_reader.report import markdown
from trace_reader.report.document import Style
from trace_reader.report.several import table
from trace_reader.system.files import write_all
from trace_reader.units import us

DOCS = ROOT / "docs"
WRITTEN = "Written by `uv run gallery/docs.py`; do not edit it here."
MLP = "--batch 64 --seq 128 --dim 768 --hidden 3072"
SETUPS = {  # the five of part 2
    "nn.Linear, eager": "02_linear.py --batch 1024 --in_dim 32 --out_dim 64",
    "nn.Linear, compiled": "02_linear.py --batch 1024 --in_dim 32 --out_dim 64 --compile",
    "MLP, eager": f"03_simple_mlp.py {MLP}",
    "MLP, compiled": f"03_simple_mlp.py {MLP} --compile",
    "MLP with Liger's kernel": f"03_kernels_mlp.py {MLP}",
}
SIZE = 8192 * 3072  # elements of the MLP's [batch * seq, hidden]


def _machine() -> str:
    m = machine()
    parts = (m["device"], f"driver {m['driver']}", f"torch {m['torch']}", f"CUDA {m['CUDA']}", m["date"])
    return f"{', '.join(parts)}; kernels of the Hub: {m['kernels']}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _link(path: Path) -> str:
    return f"../{path.relative_to(ROOT)}"


def _recorded(figure: Figure) -> str:
    named = [(NUMBERS[name][0], filled(f"{{{name}}}", figure)) for name in figure.numbers]
    numbers = "; ".join(f"{title}: {value}" if title else value for title, value in named)
    links = {"trace": figure.trace, "table": figure.trace.with_suffix(".txt"), "picture": figure.picture}
    return f"{numbers} ({', '.join(f'[{name}]({_link(path)})' for name, path in links.items())})"


def figures_md() -> str:
    """The table of all figures."""
    out = [
        "# Every figure, its command, and what was recorded",
        "",
        f"{WRITTEN} Recorded on: {_machine()}. The A100's numbers are the posts'.",
        "",
        "Each recording is one of five processes: the one whose middle step takes the median CPU time. A CPU time stands with",
        "its range over the five. The totals are those under the table that the profiler prints, which is linked.",
    ]
    for post, title in TITLES.items():
        out += ["", f"## {title}", "", _row("figure", "command", "guess", "on an A100", "on an H200", "where they differ")]
        out.append("|---|---|---|---|---|---|")
        for f in figures():
            if f.post == post:
                out.append(_row(f.figure, f"`uv run {f.command}`", f.guess, f.a100, _recorded(f), filled(f.differs, f)))
        if post == 2:
            out += ["", *_setups()]
        runs = list(dict.fromkeys(f.trace for f in figures() if f.post == post))
        out += ["", "All runs of this part (`read_trace.py` with all their traces):", ""]
        several = [msgspec.structs.replace(Run(path).facts, trace=str(path.relative_to(GALLERY))) for path in runs]
        out += [line for line in markdown.write(table(rows(several), Style())).splitlines() if line.startswith("|")]
    return "\n".join(out) + "\n"


def _setups() -> list[str]:
    """Part 2's five setups: what changes on the GPU, and what it costs the CPU."""
    out = ["The five setups of the post side by side: what changed on the GPU, what stayed, and what the CPU pays.", ""]
    out += [
        _row("setup", "kernels a step", "GPU a step", "CPU of the middle step", "GPU over CPU time of it", "verdict"),
        "|---|---|---|---|---|---|",
    ]
    for name, command in SETUPS.items():
        run = Run(trace_of(command))
        out.append(_row(name, run.kernels, run.step_gpu, run.cpu, run.ratios, run.facts.regime))
    return out


def lessons_md() -> str:
    """The exercises: guess, command, where to look, and the answer folded away."""
    out = [
        "# The series as exercises",
        "",
        f"{WRITTEN}",
        "",
        "For each: say your guess aloud, run the command, look at the trace, then unfold the answer. The answers quote a",
        f"recording; yours will differ in the numbers. Recorded on: {_machine()}.",
        "The CPU time of a middle step stands with its range over five processes; where two ranges overlap, five processes do",
        "not tell the two runs apart. Tables of several traces show medians over the steps of one recording.",
        "",
        "No GPU at hand? Read the recording instead of running the command; its name stands under each exercise.",
    ]
    number = 0
    for post, title in TITLES.items():
        out += ["", f"## {title}"]
        for f in figures():
            if f.post != post or not f.answer:
                continue
            number += 1
            out += ["", f"### {number}. {f.guess}", "", "```", f"uv run {f.command}", "```", "", f"Look: {f.look}", ""]
            files = f"[table]({_link(f.trace.with_suffix('.txt'))}), [picture]({_link(f.picture)})"
            out += [f"Recorded: `uv run read_trace.py {f.trace.relative_to(ROOT)}` ({files})", ""]
            beside = [f"{name}: `uv run {command}`" for name, command in f.others.items()]
            if beside:
                out += [f"Beside it: {'; '.join(beside)}", ""]
            out += ["<details><summary>Answer</summary>", "", filled(f.answer, f), "", f"![the trace]({_link(f.picture)})", ""]
            out += ["</details>"]
    return "\n".join(out) + "\n"


def cheatsheet_md() -> str:
    """What one sees, where, what it means and what to do: the findings' own sentences."""
    out = [
        "# Cheat sheet",
        "",
        f"{WRITTEN} `read_trace.py` looks for each of these in a trace, and says which it found.",
        "",
        *_verdict_lines(),
        "",
        _row("you see", "where", "it usually means", "look at or try next", "finding"),
        "|---|---|---|---|---|",
    ]
    out += [_row(p.symptom, p.where, p.means, p.next, f"`{slug}`") for slug, p in PATTERNS.items()]
    return "\n".join(out) + "\n"


def _verdict_lines() -> list[str]:
    """How the README defines the verdict."""
    text = (ROOT / "README.md").read_text()
    start = text.index("- It answers:")
    return text[start : text.index("\n\n", start)].splitlines()


def fused_kernel_md() -> str:
    """Ours, Liger's and Inductor's kernel for gelu(gate) * up, over ten processes each."""
    measured = json.loads(CHOICE.read_text())
    runs = measured["programs"]
    count = len(next(iter(runs.values())))
    out = [
        "# One function, three fused kernels",
        "",
        f"{WRITTEN} Measured by `uv run benchmarks/inductor_choice.py`: {measured['device']}, torch {measured['torch']},",
        f"{measured['date']}, {count} processes of each program, each with an empty compile cache.",
        "",
        "gelu(gate) * up of two [8192, 3072] bf16 tensors, as torch.compile's Inductor, the Liger package and",
        "[03_triton_mlp.py](../03_triton_mlp.py) write it. *Lesson*: inside the MLP of part 2. *Alone*: the function by itself,",
        "on inputs that rotate through memory.",
        "",
        _row(
            "program", "median over the processes", "range", "launches chosen (grid, block, elements a thread): processes, times"
        ),
        "|---|---|---|---|",
    ]
    for name, results in runs.items():
        times = sorted(r["median_us"] for r in results)
        launches = []
        for launch in sorted({(tuple(r["grid"]), tuple(r["block"])) for r in results}):
            of_it = sorted(r["median_us"] for r in results if (tuple(r["grid"]), tuple(r["block"])) == launch)
            grid, block = ("x".join(map(str, side)) for side in launch)
            each = SIZE / (launch[0][0] * launch[1][0])
            launches.append(f"{grid}, {block}, {each:g}: {len(of_it)} of {len(results)}, {us(of_it[0])} to {us(of_it[-1])}")
        out.append(_row(name, us(statistics.median(times)), f"{us(times[0])} to {us(times[-1])}", "; ".join(launches)))
    out += ["", "## Why Inductor's two programs differ", "", *_autotuning(runs)]
    return "\n".join(out) + "\n"


def _autotuning(runs: dict[str, list[dict]]) -> list[str]:
    """What autotuning measured of each launch that it tried, beside what it then chose."""
    out = [
        "Inductor tries a few launches of the kernel once, at its first call, and keeps the fastest. What it measured (in us,",
        "the lowest and the highest over the processes), and how often it chose each:",
        "",
        _row("program", "launch", "autotuning measured", "chosen"),
        "|---|---|---|---|",
    ]
    measured_us: dict[str, dict[str, list[float]]] = {}
    for name in (name for name in runs if "torch.compile" in name):
        tried = sorted({launch for r in runs[name] for launch in r["autotuning_ms"]})
        for launch in tried:
            times = sorted(1000 * r["autotuning_ms"][launch] for r in runs[name] if launch in r["autotuning_ms"])
            measured_us.setdefault(launch, {})[name] = times
            fastest = sum(min(r["autotuning_ms"], key=r["autotuning_ms"].get) == launch for r in runs[name])
            out.append(_row(name, launch, f"{times[0]:.1f} to {times[-1]:.1f}", f"{fastest} of {len(runs[name])}"))
    # The launch that autotuning measures most differently in the two programs.
    wide = max(measured_us, key=lambda launch: max(map(max, measured_us[launch].values())))
    slow, fast = sorted(measured_us[wide].values(), key=lambda times: -times[0])
    ours = sorted(r["median_us"] for r in runs["lesson, ours"])
    return [
        *out,
        "",
        f"Launch shape, not arithmetic, decides: where it is chosen, Inductor's wide launch ({wide}) is about as",
        f"fast as ours. In the lesson autotuning measures that launch at {us(slow[0])} to {us(slow[-1])}, alone at {us(fast[0])}",
        f"to {us(fast[-1])}, so in the lesson it keeps the narrow one: 2 elements a thread, 4 bytes of each tensor at a time.",
        "Its log does not say why it measures so much. Ours, with the wide launch's grid and block, takes",
        f"{us(ours[0])} to {us(ours[-1])} in the lesson's MLP. Liger gives a block a row: 3,072 elements in 4,096 places,",
        "a quarter of them idle.",
    ]


COMMAND = re.compile(r"^```\n\$ uv run read_trace\.py (.*)\n(?:.*\n)*?```$", re.MULTILINE)


def reading_md() -> str:
    """docs/reading.md with the outputs of the commands in it made anew: a dispatch tree, or a table without what follows it."""
    return COMMAND.sub(_printed, (DOCS / "reading.md").read_text())


def _printed(found: re.Match[str]) -> str:
    import read_trace  # here, because it is a program

    arguments = [path for word in shlex.split(found[1]) for path in (sorted(glob.glob(word, root_dir=ROOT)) or [word])]
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(io.StringIO()) as out:
        assert read_trace.main(arguments) == 0
    before, tree, after = out.getvalue().partition("\nDispatch of ")
    shown = f"...\n{tree.strip()} {after}" if tree else before.partition("\n\n")[0] + "\n...\n"
    return f"```\n$ uv run read_trace.py {found[1]}\n{shown}```"


DOCUMENTS = {
    DOCS / "figures.md": figures_md,
    DOCS / "lessons.md": lessons_md,
    DOCS / "cheatsheet.md": cheatsheet_md,
    DOCS / "fused_kernel.md": fused_kernel_md,
    DOCS / "reading.md": reading_md,
}


def main() -> None:
    write_all({path: write().encode() for path, write in DOCUMENTS.items()})
    for path in DOCUMENTS:
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
