"""Judge each exercise three times: as given, with its solution, and, where it is to be left, with its obvious change.

    uv run benchmarks/exercise_gains.py [--device cuda] [--out FILE] [EXERCISE ...]

FILE (JSON) holds how many times as fast each became; those in benchmarks/exercise_gains/ are in docs/exercises.md. Takes ten
seconds an exercise. The exit code is 1 where an exercise as given passes, a solution does not, or an obvious change is a gain.
"""

import argparse
import datetime
import json
from pathlib import Path
import subprocess
import sys
import tempfile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from exercises.judge.book import ROOT, Exercise, exercises
from exercises.judge.measure import device_of
from exercises.judge.verdict import Judgement, Speed, judged
import torch
from trace_reader import write_all

WANTED = {"mend": "solved", "leave": "no gain"}


def measured(exercise: Exercise, mine: Path) -> tuple[Speed, Judgement]:
    """Return an exercise's program beside a changed one. Raises AssertionError where the outputs differ."""
    with tempfile.TemporaryDirectory() as folder:
        how = ["--device", exercise.device, "--ranks", str(exercise.ranks)]
        command = [sys.executable, "-m", "exercises.judge.measure", folder, str(exercise.given), str(mine), *how]
        subprocess.run(command, cwd=ROOT, check=True)
        found = json.loads((Path(folder) / "measured.json").read_text("utf-8"))
        assert not found["differs"], found["differs"]
        return judged(exercise, found["times_us"], Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="those that run on it (default: cpu)")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    found, wrong = {}, []
    for exercise in exercises():
        if exercise.kind == "case" or exercise.device != args.device or (args.exercises and exercise.name not in args.exercises):
            continue
        speed, judgement = measured(exercise, exercise.solution if exercise.kind == "mend" else exercise.obvious)
        _, unchanged = measured(exercise, exercise.given) if exercise.kind == "mend" else (None, None)
        found[exercise.name] = {"times": round(speed.median, 3), "low": round(speed.low, 3), "high": round(speed.high, 3)}
        fine = judgement.outcome == WANTED[exercise.kind] and (unchanged is None or unchanged.outcome == "cause")
        wrong += [] if fine else [exercise.name]
        as_given = "" if unchanged is None else f"; as given: {unchanged.outcome}"
        print(
            f"{exercise.name}: {judgement.outcome} {' '.join(judgement.said)}, {speed}{as_given}{'' if fine else '  <- WRONG'}",
            flush=True,
        )
    if args.out:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        device = device_of(args.device).name
        head = {"device": device, "torch": torch.__version__, "date": date, "exercises": found}
        write_all({args.out: f"{json.dumps(head, indent=1)}\n".encode()})
    print(f"{len(found) - len(wrong)} of {len(found)} as they should be")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
