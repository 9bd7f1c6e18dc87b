"""What the reader estimates of a step without the profiler, beside what was measured, for folders of recordings.

    uv run read-trace/benchmarks/plain_steps.py FOLDER [FOLDER ...]

A folder is one that benchmarks/advice/record.py wrote, or one with a `pairs.json`: by name `before_ms` and `after_ms`, and under
`recorded` what `steps` were recorded and in which `mode` (`none`: they are not marked), beside NAME.before.json.gz and
NAME.after.json.gz. Of each folder a row: recordings, of how many something is told, how often the measured step lies inside, how
wide the intervals are (of their upper end, median), and by how much their middle errs (median). With --each also a line for each
recording.
"""

import argparse
from collections.abc import Iterator
import json
import math
from pathlib import Path
import statistics
import sys

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from trace_reader import Facts, read

Measured = tuple[
    str, Path, float, int | None
]  # name, trace, a step in us, and how many steps were recorded if they are not marked


def measured(folder: Path) -> Iterator[Measured]:
    """Yield the recordings of a folder, each with its measured step."""
    if (pairs := folder / "pairs.json").exists():
        for name, pair in json.loads(pairs.read_text()).items():
            steps = pair["recorded"]["steps"] if pair["recorded"]["mode"] == "none" else None
            for when in ("before", "after"):
                yield f"{name}.{when}", folder / f"{name}.{when}.json.gz", pair[f"{when}_ms"] * 1000, steps
        return
    for path in sorted(folder.glob("*.json")):
        plain_us = json.loads(path.read_text())["plain_us"]
        for trace in sorted(folder.glob(f"{path.stem}_*.json.gz")):
            when = trace.name.removeprefix(f"{path.stem}_").removesuffix(".json.gz")
            if (first := when.partition("_")[0]) in plain_us and when in (first, f"{first}_stacks", f"{first}_memory"):
                yield f"{path.stem}.{when}", trace, statistics.median(plain_us[first]), None


def judged(facts: Facts, step_us: float, steps: int | None) -> tuple[bool, float, float] | None:
    """Return whether the measured step lies inside of what is told, how wide that is, and by how much its middle errs; None: not
    told.

    `steps`: of a recording without marks; the reader may have found others.
    """
    plain = facts.plain
    if plain.step_us is None or plain.low_us is None or plain.high_us is None:
        return None
    step_us *= steps / len(facts.steps) if steps else 1
    inside = plain.low_us <= step_us <= plain.high_us
    return inside, 1 - plain.low_us / plain.high_us, abs(math.log(plain.step_us / step_us))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--each", action="store_true", help="a line for each recording, too")
    args = parser.parse_args()
    print("| folder | recordings | told | inside | width | error |\n|---|---|---|---|---|---|")
    for folder in args.folders:
        every = [(name, judged(read(str(trace)), us, steps)) for name, trace, us, steps in measured(folder)]
        told = [one for _, one in every if one is not None]
        if not told:
            print(f"| {folder.name} | {len(every)} | 0 | - | - | - |")
            continue
        inside = sum(one[0] for one in told)
        width, error = (statistics.median(one[at] for one in told) for at in (1, 2))
        row = (folder.name, len(every), len(told), f"{inside} ({inside / len(told):.0%})", f"{width:.0%}", f"{error:.0%}")
        print(f"| {' | '.join(map(str, row))} |")
        for name, one in every if args.each else ():
            print(f"  {name}: {'not told' if one is None else 'inside' if one[0] else 'outside'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
